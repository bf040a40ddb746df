/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h: the table of coarse operations. One row per operation (ops.c), one implementation per family. What each row
 * computes, with its attributes: attrs.h.
 *
 * A row says: which attributes it has, how many inputs and outputs, their shapes, which inputs are weights, what
 * backward needs, FLOPs, bytes, and the rule of mesh types. The tape, the gradient checks, the planner, the tracer and
 * the docs all read this table. A family (ref: plain loops, the executable specification; cpu: vectorised; onednn)
 * fills slots; an empty slot falls through to the next family of its device's chain (kernel.c). ref fills them all.
 *
 * Invariants
 *   1. Kernels return void and cannot fail: shapes were checked when the operation was recorded.
 *   2. `backward input` writes din[i] = acc[i] + d(loss)/d(in[i]) for the inputs that are not weights;
 *      acc[i].p == NULL means 0; acc[i].p == din[i].p means accumulate in place; else acc is another buffer.
 *      `backward weight` does the same for weights, in fp32 always.
 *   3. The same call gives the same bits, whatever the number of threads or their timing.
 *   4. Nothing allocates: scratch comes with the call, its size from kernel_scratch().
 *   5. Every in/out pointer may be unaligned beyond its element size; rows may be strided, the last dim is dense.
 *   6. din[0] may be the same memory as dout[0] or in[0] only where the row says so (inplace_bwd).
 * Floors 0-1 and device only.
 */
#ifndef TUTTI_KERNEL_KERNEL_H
#define TUTTI_KERNEL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/thread.h"
#include "device/device.h"
#include "kernel/attrs.h"
#include "layout/dtype.h"
#include "layout/spmd.h"

enum { KERNEL_MAX_IN = 7, KERNEL_MAX_OUT = 3, KERNEL_MAX_DIM = 4 };

/* What changes from step to step while shapes stay. */
struct step_info {
    uint64_t seed;        /* run.seed */
    uint64_t step;        /* optimizer step, from 0 */
    uint64_t first_token; /* global index, in this step, of the microbatch's first token: dropout's index base */
    bool training;        /* false: dropout is the identity */
    float loss_scale;     /* XENT: d(loss)/d(sum of nats): 1 / global count of trained tokens, times fp16 scale */
    int64_t blank;        /* so many sequences at the microbatch's end do not exist: their rows are there and mean
                             nothing, so whatever counts, compares or makes room must not look at them */
};

/* A window on memory for one call. p == NULL: absent, or the null device. Absent for good: all zero (nd == 0). */
struct view {
    void *p;
    enum dtype dtype;
    int nd;
    int64_t n[KERNEL_MAX_DIM];
    int64_t stride; /* elements from one row (all dims but the last) to the next; = n[nd-1] when dense */
};
static inline int64_t view_rows(const struct view *v)
{
    int64_t r = 1;
    for (int i = 0; i + 1 < v->nd; i++) r *= v->n[i];
    return r;
}
static inline int64_t view_cols(const struct view *v) { return v->nd ? v->n[v->nd - 1] : 1; }

enum kernel_phase { KERNEL_FWD, KERNEL_BWD_IN, KERNEL_BWD_W, KERNEL_N_PHASES };

struct kernel_slot;
struct kernel_call {
    enum op op;
    enum kernel_phase phase;
    struct op_attrs at;
    const struct step_info *step;
    int n_in, n_out;
    int round;                       /* DISPATCH, COMBINE in rounds: which, from 0 */
    bool refill;                     /* and DISPATCH once more for backward: who gets how many rows is known (out[2]) */
    struct view in[KERNEL_MAX_IN];   /* backward: p set for those the row saves */
    struct view out[KERNEL_MAX_OUT]; /* backward: p set for those the row saves */
    struct view dout[KERNEL_MAX_OUT]; /* backward: gradients of outputs; p NULL where no gradient exists */
    struct view din[KERNEL_MAX_IN];   /* backward: where to write; p NULL: not wanted (not all of a phase's) */
    struct view acc[KERNEL_MAX_IN];   /* backward: invariant 2 */
    void *scratch;                    /* 64-byte aligned */
    size_t scratch_bytes;
    struct stream *stream; /* where it is carried out: a device's, or one that has threads alone (kernel_here) */
    const char *what;      /* whose result it is, for messages; NULL: nobody's */
    const struct kernel_slot *kernel; /* the way, chosen before (kernel_find); NULL: found when it runs */
};
typedef void kernel_fn(const struct kernel_call *c);
/* The threads that carry it out on the host; NULL: the caller alone. */
static inline struct team *kernel_team(const struct kernel_call *c) { return c->stream ? c->stream->team : NULL; }
/* A stream of no device, for memory of the caller's. */
static inline struct stream kernel_here(struct team *team) { return (struct stream){.name = "here", .team = team}; }

/* ---- the row: everything about an operation that is not an implementation ---- */
/* Families have slots for kernels only. */
enum op_by {
    BY_KERNEL,
    BY_RANKS, /* a collective: parallel/, between the ranks of at_over() */
    BY_COPIES /* to and from another memory */
};
struct op_row {
    const char *name;
    enum attrs_kind attrs; /* the one that its calls have */
    int min_in, max_in, n_out;
    uint8_t weight_in;    /* bit i: in[i] is a weight; its gradient is computed by backward-weight */
    uint8_t grad_in;      /* bit i: in[i] gets a gradient from backward-input */
    uint8_t weight_by_in; /* bit i: in[i] is a weight whose gradient backward-input makes beside the others (in grad_in
                             too): f32, and added to what its slot holds, as those of weight_in */
    uint8_t save_in;      /* bit i: backward-input needs the values of in[i] */
    uint8_t save_in_w;    /* bit i: backward-weight needs the values of in[i] */
    uint8_t save_out;     /* bit i: backward needs the values of out[i] */
    uint8_t row_in, row_out; /* bit i: in[i], out[i] have one row per token, and forward and backward-input make a row
                              * of what they write from the same row of what they read: any rows may be done by
                              * themselves (ADD and DROPOUT: where index_T says which token a row is). 0: not so */
    bool inplace_fwd;        /* out[0] may (and for ROTARY must) share in[0]'s memory when nobody else needs in[0] */
    bool inplace_bwd;        /* din[0] may share dout[0]'s memory (ROTARY, DROPOUT, ADD: dout is read before din[0]
                              * is written, element by element), or in[0]'s (XENT) */
    bool has_backward;
    uint8_t changes_in; /* bit i: forward writes in[i], too: what is kept of sequences, an optimizer's arrays */
    enum op_by by;      /* who carries it out */
    bool travels;   /* it is begun in its turn and finished before the first instruction that touches its bytes, which
                       are its own until then (program/underway.c); work that needs nothing of it goes on beside it */
    bool alias_fwd; /* out[0] is in[0]'s memory, and nothing runs forward (ENTER) */
    bool alias_bwd; /* din[0] is dout[0]'s memory, and nothing runs backward (REDUCE) */
    /* Output shapes and dtypes from the inputs, p = NULL; a text for the user when they do not fit, else NULL. */
    const char *(*infer)(const struct op_attrs *at, int n_in, const struct view *in, struct view *out);
    /* Floating-point operations (a multiply-add is 2) and bytes moved of the call's phase. Only what the
     * mathematics needs: masked pairs of attention and scores computed a second time in backward do not count. */
    double (*flops)(const struct kernel_call *c);
    double (*bytes)(const struct kernel_call *c);
    /* Mesh types on one axis; returns NULL, or why the inputs do not fit ("x partial"). */
    const char *(*rule)(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out);
};
const struct op_row *op_row(enum op op);
/* What input or output i is, in messages: "master", "an input". */
const char *op_part(enum op op, bool output, int i);
static inline bool op_collective(enum op op) { return op_row(op)->by == BY_RANKS; }
/* Of the rows of all ranks, those of rank `part`: how the rows of collectives are cut. */
int64_t op_rows_here(const struct rows_attrs *at, int part);

/* ---- families ---- */
/* How a product cuts the depth that it sums over: into slices of at most `most`, multiples of `step`, alike in length.
 * A sum that is cut at such a place, and goes on in another call from the f32 that is there, has the same bits. */
struct depth_rule {
    int64_t most, step; /* 0: anywhere */
};
static inline int64_t depth_slice(struct depth_rule r, int64_t depth)
{
    if (depth <= 0 || r.most <= 0) return 1;
    int64_t n = (depth + r.most - 1) / r.most, each = (depth + n - 1) / n;
    return (each + r.step - 1) / r.step * r.step;
}
/* A way of computing a call; where a family has several for one row and phase, its slot is a door to them instead:
 * `choose` alone is set. What is found for a call is always a way, and a way decides nothing again when it runs, except
 * by what is data only then (the rows of GROUPED's experts); its words say so. */
struct kernel_slot {
    kernel_fn *run;
    size_t (*scratch)(const struct kernel_call *c, int n_threads);    /* NULL: none needed */
    bool (*accepts)(const struct kernel_call *c);                     /* NULL: every call; else fall through */
    const char *way;                                                  /* in words, "avx2: packed f32"; NULL: it is
                                                                         the family's only one */
    struct depth_rule (*depth)(const struct kernel_call *c);          /* GROUPED's weight gradients; NULL: rounded once
                                                                         a call */
    const struct kernel_slot *(*choose)(const struct kernel_call *c); /* the way for this call, NULL: fall through */
};
struct kernel_family {
    const char *name;
    struct kernel_slot slot[OP_N][KERNEL_N_PHASES];
    void (*library)(char out[32]); /* whose code it calls, such as "oneDNN 3.1.1"; NULL: tutti's own */
};

/* A device's kernels: a chain of families. For the null device nothing runs, but
 * scratch sizes are those of the chain it stands for (so predicted bytes equal allocated bytes). */
struct kernel_table {
    const char *device, *name;            /* whose kernels: "cpu"; by which of its names: "auto" */
    const struct kernel_family *chain[4]; /* tried in order; the last is the device's own */
    int n_threads;
    bool dry;        /* count, do not run */
    const char *isa; /* "amx", "avx512-bf16", "avx512", "avx2", "ref": what was found and chosen */
};
/* d's own. name: "auto" (its best) or "ref" (the plain loops). n_threads: the largest team that will run the calls. */
int kernel_table_of(struct kernel_table *t, const struct device *d, const char *name, int n_threads, struct err *e);
/* The same of a cpu, for who has no device: "auto" is the best for this one (cpuid.h). */
int kernel_table_init(struct kernel_table *t, const char *name, int n_threads, bool dry, struct err *e);
/* The host's, for memory that is not the device's: t itself where that is a cpu's. */
struct kernel_table kernel_table_host(const struct kernel_table *t);
/* Puts a family in front of the chain that adds up products of 16 and 8 bits as `way` says (ref/accumulate.h); "fp32":
 * none. */
int kernel_table_accumulate(struct kernel_table *t, const char *way, struct err *e);
/* The way of this family that takes the call, NULL: it has none. */
const struct kernel_slot *kernel_way(const struct kernel_family *f, const struct kernel_call *c);
/* The same of the first family that has one, NULL if the operation has no such phase: for printing, scratch and
 * running. Shapes, dtypes and attributes decide, never pointers: the null device must find the same way. */
const struct kernel_slot *kernel_find(const struct kernel_table *t, const struct kernel_call *c, const char **family);
/* The libraries of its families: "oneDNN 3.1.1", or "" where all is tutti's own. */
void kernel_libraries(const struct kernel_table *t, char out[32]);
/* Whether the call is one that is computed at all: the reference has it. */
bool kernel_computes(const struct kernel_call *c);
size_t kernel_scratch(const struct kernel_table *t, const struct kernel_call *c);
/* Runs a call at once, by c->stream's threads, on memory that the caller can touch. kernel_enqueue comes to this;
 * callers with host memory may call it. */
void kernel_run(const struct kernel_table *t, const struct kernel_call *c);

/* ---- on a stream (entry.c): the door to a device's bytes ---- */
/* What is enqueued on s runs by t (borrowed) from now on. A stream without a table copies only. */
void kernel_on(struct stream *s, const struct kernel_table *t);
/* Addresses are of s's device: translated here where it is untouchable, and host memory is refused with a CHECK.
 * c->stream is s from here on; the call and its step are copied where they have to last. */
void kernel_enqueue(struct stream *s, struct kernel_call *c);
extern const struct kernel_family kernel_family_ref;
extern const struct kernel_family kernel_family_cpu;
extern const struct kernel_family kernel_family_onednn;
extern const struct kernel_family kernel_family_cuda; /* a GPU's, simulated (kernel/cuda/) */
extern const struct kernel_family kernel_family_carried_ref, kernel_family_carried_auto; /* carry.c */
/* Whether a way is one of theirs: it runs on the host, at once, and takes addresses of the device. */
bool kernel_is_carried(const struct kernel_slot *s);

#endif
