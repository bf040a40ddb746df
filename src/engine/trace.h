/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h: what a rank did when, for Perfetto and Chrome's tracing page (docs/traces.md): steps, actions, layers and
 * kernels inside one another, what travelled between ranks and who waited for it, memory in use. The picture of the
 * schedule (tutti schedule --svg) says when each should come; beside it the trace shows where time really went.
 *
 * A rank writes events into a ring that was planned with everything else (engine_config.trace_bytes); words and JSON
 * are made later, between steps, when the events of all ranks are collected into one file by rank 0.
 *
 * Invariants
 *   1. Events on the rank's own thread lie inside one another or apart: they are told when they end, by the thread
 *      itself.
 *   2. When the ring is full the oldest events go, and the file says how many.
 *   3. The file is a list that is readable wherever it ends: a run that is killed leaves what was collected before.
 *   4. Without a trace a step costs one test per action and per operation of a communicator.
 * Floor 6. Order: Local unless said otherwise.
 */
#ifndef TUTTI_ENGINE_TRACE_H
#define TUTTI_ENGINE_TRACE_H

#include "comm/comm.h"
#include "device/device.h"
#include "base/append.h"
#include "program/program_run.h"

enum trace_kind {
    TRACE_F,
    TRACE_B,
    TRACE_W,
    TRACE_RECOMPUTE,
    TRACE_GATHER,
    TRACE_RELEASE,
    TRACE_REDUCE,
    TRACE_OPTIMIZER,
    TRACE_PUBLISH, /* actions; of a parameter server OPTIMIZER is words */
    TRACE_STEP,
    TRACE_PART, /* of a step, beside actions: sums, norms, data */
    TRACE_LAYER,
    TRACE_KERNEL,
    TRACE_CALL, /* the thread was inside comm */
    TRACE_COMM, /* an operation or message, from the call until it was over */
    TRACE_COUNTER,
    TRACE_N
};
enum trace_counter { COUNTER_SLABS, COUNTER_GATHERED, COUNTER_N };
enum { TRACE_WHAT = 48, TRACE_GROUP = 80, TRACE_LANES = 16 };

struct trace_event {
    uint8_t kind;
    uint8_t how;               /* LAYER: program_phase; CALL: comm_stay; COMM: comm_op; COUNTER: which */
    int8_t send;               /* COMM: 1 a message sent, 0 received, -1 a collective */
    uint8_t dtype;             /* COMM */
    int32_t stage, microbatch; /* actions; LAYER: stage is the layer, or LAYER_BEFORE, LAYER_AFTER */
    int64_t step;              /* of the optimizer, from 0 */
    double from_s, to_s;       /* of the machine's clock (clock_now_s) */
    double asked_s; /* COMM: when the rank called; from_s is later where another collective of the group was first */
    const struct program *program; /* KERNEL; COMM: of the instruction that began it, or NULL */
    const struct instr *instr;
    double flops;              /* KERNEL: of this run of it */
    struct trace_group *group; /* CALL, COMM */
    const char *algorithm;
    int64_t ticket, number, bytes, sent; /* as struct comm_event has them; COUNTER: bytes */
    int32_t peer;                        /* rank of the world */
    char what[TRACE_WHAT];               /* actions: "2F0"; PART: words; COMM: comm's */
};
enum { LAYER_BEFORE = -1, LAYER_AFTER = -2 };

/* A communicator in the trace: a row of its own. */
struct trace_group {
    const struct comm *c;
    char name[TRACE_GROUP];       /* "tp 0-3": the same on all its ranks, of no other group */
    double over_s;                /* its last collective was over */
    int64_t lane_ns[TRACE_LANES]; /* rows of overlapping messages: until when each is taken */
    int n_lanes;
    const struct program *program[256]; /* by ticket: what began the operation */
    const struct instr *instr[256];
};

struct trace_clock { /* this rank's clock minus rank 0's, measured */
    double at_s, offset_s, error_s;
};

struct trace_info { /* what the file says of the run and of this rank; borrowed until trace_close */
    const char *path;
    const struct ledger *ledger;
    const char *place;    /* "pp 1, tp 0" */
    const char *schedule; /* its text, where it is short enough to be worth keeping; "" */
    int stage_rank;       /* coordinate along pp: who waits for another one waits in a bubble */
    double skew_s;        /* for tests: this rank's clock is that far ahead */
};

struct trace {
    struct trace_event *ring;
    int64_t room, n; /* n: told since the last collection */
    bool on;         /* events are kept only while it is, */
    double on_s;     /* since then */
    bool paused;     /* collecting: comm is used by the trace itself */
    /* what the thread is in */
    const struct program *program;
    const struct instr *instr;
    int64_t step, counter[COUNTER_N];
    /* the file */
    struct trace_info info;
    struct trace_clock clock[2]; /* before and after what is in the ring */
    struct trace_group *group;
    int n_groups;
    int64_t dropped, arrows, arrows_lost; /* arrows on rank 0 */
    double begun_s;                       /* rank 0's clock: time 0 of the file */
    struct trace_ends *ends;              /* rank 0: ends of arrows whose other end has not come yet */
    struct append file;                   /* rank 0 */
    struct comm *world;                   /* while it is open; NULL: alone */
    bool open, failed;                    /* failed: rank 0 could not write, and said so */
};

/* ring: bytes of memory for events, the caller's; NULL: nothing is kept. */
void trace_init(struct trace *t, void *ring, size_t bytes);
void trace_turn(struct trace *t, bool on);
/* Before the world is freed, and the ring. A trace that is still open ends where it is. Also of a zeroed struct. */
void trace_free(struct trace *t);
/* A new event to be filled in, or NULL: t is NULL or off. */
struct trace_event *trace_put(struct trace *t, enum trace_kind kind, double from_s, double to_s);
void trace_add(struct trace *t, enum trace_kind kind, const char *what, int64_t step, double from_s, double to_s);
/* A counter moved by so many bytes. */
void trace_count(struct trace *t, enum trace_counter c, int64_t by);
/* What is kept, oldest first: n of them. */
int64_t trace_kept(const struct trace *t);
const struct trace_event *trace_at(const struct trace *t, int64_t i);

/* ---- programs (trace_program.c): layers and kernels of one phase ---- */
struct trace_program {
    struct trace *t;
    const struct program *p;
    const struct program_args *args; /* of the part that runs */
    enum program_phase phase;
    int layer, first_layered;
    bool in_layer, again; /* again: inside a RECOMPUTE */
    double layer_s, kernel_s;
};
/* A phase begins; one of its parts is run with a, and is over; the phase is. Nothing is done while t is off. Parts that
 * compute forward once more are boxes of their own around their layers. */
void trace_program_begin(struct trace_program *x, struct trace *t, const struct program *p, enum program_phase phase);
void trace_program_part(struct trace_program *x, struct program_args *a, bool again);
void trace_program_part_end(struct trace_program *x);
void trace_program_end(struct trace_program *x);

/* ---- the file (trace_file.c) ---- */
/* Measures clocks, watches the world's communicators, and makes the file. world: NULL when alone. Groups split later
 * are not watched. Collective(world). */
int trace_open(struct trace *t, const struct trace_info *info, struct comm *world, struct err *e);
/* Writes what the rings hold. A file that cannot be written any more is said once, and the run goes on.
 * Collective(world). */
void trace_collect(struct trace *t, struct comm *world);
/* The last collection, and the file's end. Collective(world). */
void trace_close(struct trace *t, struct comm *world);

/* ---- words (trace_words.c) ---- */
/* Time of the file in ns, from a time of this rank's clock. */
int64_t trace_ns(const struct trace *t, double s);
/* One line of JSON with ",\n" behind it: an event as it is drawn on that row. of: for a CALL, its operation, or
 * NULL. */
void trace_event_print(const struct trace *t, const struct trace_event *v, const struct trace_event *of, int rank,
                       int row, struct str *out);
void trace_layer_name(int layer, char out[32]);

/* ---- arrows (trace_arrows.c) ---- */
struct trace_end {
    uint64_t id; /* of the message or collective */
    int64_t from_ns, to_ns;
    int32_t rank, row, of, send; /* of: how many ends belong together; send as in struct trace_event */
};
struct trace_ends {
    struct trace_end *end;
    int64_t n, room;
};
void trace_ends_add(struct trace_ends *x, const struct trace_end *e);
/* Prints the arrows of all ends that are complete and takes those away. *arrows grows by those drawn, *lost by those
 * that would point back in time. */
void trace_ends_print(struct trace_ends *x, int64_t *arrows, int64_t *lost, struct str *out);
/* The number that both ends of a message, or all ranks of a collective, agree on. */
uint64_t trace_id(const struct trace_event *v);
/* The same in words: "tp 0-3 #12", "pp 0-1 0>1 #7". */
void trace_id_text(const struct trace_event *v, char out[TRACE_GROUP + 64]);

#endif
