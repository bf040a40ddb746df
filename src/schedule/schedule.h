/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h: WHEN. Which action each rank issues next, as data.
 *
 * A schedule is a list of actions per rank and a table that says which rank runs which stage. Generators write
 * compute order only (F, B, W, BW); passes add receive/send, gather/release, reduce and update; the checker proves that
 * the lists can run; the simulator says when; one executor runs them. Training on one rank is the one-stage
 * schedule, so gradient accumulation and evaluation are not special.
 *
 *   generate -> pass -> check -> (simulate, print, draw) -> execute
 *
 * Invariants (schedule_check proves 2 to 6, schedule_new and schedule_push keep 1)
 *   1. Stages, microbatches and ranks of all actions are in range.
 *   2. Every (stage, microbatch) has one F and then one BW, or one B and then one W; only F when forward_only.
 *   3. Each runs on the rank the placement names.
 *   4. F(s) follows F(s-1); B(s) follows F(s) and B(s+1); W(s) follows B(s), for the same microbatch.
 *   5. Where a schedule has sends and receives, every message has both ends, and data crosses ranks in no other way.
 *   6. Issued in order, with any speed of ranks and links, all lists come to their end.
 *
 * Floor 1: includes base only. Order: Local; the same arguments give the same schedule on every rank.
 */
#ifndef TUTTI_SCHEDULE_SCHEDULE_H
#define TUTTI_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "schedule/action.h"

#define SCHEDULE_MAX_RANKS 4096
#define SCHEDULE_MAX_STAGES 16384
#define SCHEDULE_MAX_MICROBATCHES 16384
#define SCHEDULE_MAX_PIECES (1 << 22) /* stages x microbatches */

struct action_list {
    struct action *a;
    int64_t n, room;
};

struct schedule {
    char kind[24];      /* the generator's name: "1f1b" */
    int n_ranks;        /* pipeline ranks */
    int n_stages;       /* over all ranks: n_ranks x chunks */
    int n_microbatches; /* per optimizer step */
    int n_chunks;       /* n_stages / n_ranks: a stage is 1/n_chunks of a rank's share of the model */
    bool forward_only;  /* evaluation: no backward at all */
    /* Stage -> rank. One way for most schedules. Bidirectional schedules place every stage twice: microbatches
     * from way_from on take way 1. */
    int n_ways;
    int way_from;
    uint16_t *place;          /* [n_ways][n_stages] */
    struct action_list *rank; /* [n_ranks] */
};

/* ---- create ---------------------------------------------------------------------------------------------- */

/* ERR_REQUEST, naming the nearest legal value, for numbers that schedule_new would refuse. */
int schedule_limits(int n_ranks, int n_stages, int n_microbatches, struct err *e);
/* No actions yet; every stage s on rank s % n_ranks (looped). CHECKs schedule_limits. */
struct schedule *schedule_new(const char *kind, int n_ranks, int n_stages, int n_microbatches);
void schedule_free(struct schedule *s);
void schedule_place(struct schedule *s, int way, int stage, int rank);
/* Opens way 1 for microbatches >= way_from; place its stages next. */
void schedule_add_way(struct schedule *s, int way_from);
void schedule_push(struct schedule *s, int rank, struct action a);

/* One rank, one stage, gradient accumulation: F0 BW0 F1 BW1 ..., or F0 B0 W0 ... when split_w. Then
 * schedule_add_moves appends REDUCE. At most one (stage, microbatch) is alive at any time. */
struct schedule *schedule_new_onestage(int n_microbatches, bool split_w);
/* Evaluation with the stages where s has them: forward only. */
struct schedule *schedule_new_forward(const struct schedule *s);
/* By name, for the command line and the config. n_chunks: stages per rank, 0 for the generator's own. round:
 * microbatches that go through one chunk before the next one, for kinds that have rounds; 0 for as many as ranks.
 * Errors name the nearest legal value. */
int schedule_generate(struct schedule **out, const char *kind, int n_ranks, int n_microbatches, int n_chunks, int round,
                      struct err *e);
/* The names schedule_generate knows and one line about each, NULL after the last. */
const char *schedule_kind_name(int i);
const char *schedule_kind_doc(int i);

/* ---- passes: each takes a correct schedule and leaves a correct schedule ---------------------------------- */

void schedule_split_backward(struct schedule *s); /* BW becomes B W */
/* B and the W right after it become BW. The way back, by which tests show that splitting loses nothing. */
void schedule_fuse_backward(struct schedule *s);
/* RECV right before the action that needs the data, SEND right after the one that makes it. */
void schedule_add_comm(struct schedule *s);
/* What else a rank does with whole stages (parts.h tells it part by part): GATHER before and RELEASE after every F, B
 * and BW, REDUCE as soon as a stage's gradient is complete, in the step or, where `each`, in the phase or microbatch;
 * RECOMPUTE before every B and BW; UPDATE of every stage at the end of the list, and PUBLISH behind it. */
struct schedule_moves {
    bool gather, reduce, each, recompute, update, publish;
};
void schedule_add_moves(struct schedule *s, struct schedule_moves m);

/* ---- inspect --------------------------------------------------------------------------------------------- */

int schedule_rank_of(const struct schedule *s, int stage, int microbatch);
bool schedule_has_stage(const struct schedule *s, int rank, int stage); /* some microbatches run it there */
bool schedule_has(const struct schedule *s, enum action_kind kind);     /* anywhere */
/* The actions that must be complete before a starts, at most two, out of the keys alone; returns how many. A BW
 * counts as the B and the W of its key. crosses[i] is set where the i-th ran on another rank than a. With has_comm
 * (the schedule holds sends and receives) data from other ranks comes through a RECV on a's own rank. */
int schedule_needs(const struct schedule *s, struct action a, bool has_comm, struct action out[2], bool crosses[2]);

/* What a rank holds at the worst moment, in (stage, microbatch) pieces. */
struct schedule_peak {
    int64_t activations; /* F done, backward for the input not yet: slabs of the pool, full size */
    int64_t wgrads;      /* B done, W not yet: what the weight half still needs */
    int64_t both;        /* the largest sum of the two at one moment: tapes alive */
    int64_t whole;       /* stages whose parameters are gathered; 0 where nothing is gathered at all */
};
/* Proves the invariants; fills peak[n_ranks] (may be NULL). A failure names rank, position and action:
 * "rank 1, action 4 (1B0): waits for 2B0, which rank 2 never issues". Returns OK or ERR_REQUEST. */
int schedule_check(const struct schedule *s, struct schedule_peak *peak, struct err *e);

/* ---- simulate -------------------------------------------------------------------------------------------- */

/* What one microbatch takes on one stage. b leaves out what is computed once more for it (again), which RECOMPUTE takes
 * where the schedule has it, else B and BW. bw: both halves at once; 0: b + w. update: UPDATE, once a step, which holds
 * its rank as the rest does; PUBLISH travels beside it. */
struct schedule_stage_cost {
    double f, b, w, again, bw, update;
};
/* Seconds, or any unit, for one microbatch and ALL stages of a rank: a stage takes 1/n_chunks of it, times its
 * weight. Or stage by stage, where that is known. */
struct schedule_cost {
    double f, b, w;
    double comm;         /* from the end of an action to the start of one that needs it on another rank */
    const double *stage; /* [n_stages] how dear each stage is beside the mean one; NULL: all alike. Borrowed by
                            schedule_simulate */
    const struct schedule_stage_cost *each; /* [n_stages] instead of f, b, w and stage, which then are what a rank's
                                               stages take together, the mean, in the timeline; NULL: not known.
                                               Borrowed by schedule_simulate */
    double update;                          /* of the stages of a rank, as f, b and w are, but once */
};
struct schedule_time {
    double start_s, end_s;
};
struct schedule_timeline {
    double makespan;     /* first start to last end, over all ranks */
    double ideal;        /* work of the busiest rank */
    double bubble_ratio; /* (makespan - ideal) / ideal */
    /* The longest span of one rank from its own first start to its own last end: the time of a step when steps follow
     * each other without all ranks meeting in between, as the zero-bubble papers count. */
    double period, period_bubble_ratio;
    double *idle;              /* [rank]: of the makespan, the time in which it computes nothing */
    double idle_share;         /* of all ranks' time together */
    struct schedule_cost cost; /* what it was simulated with */
    int n_ranks;
    struct schedule_time **at; /* [rank][index in its list] */
};
/* The schedule must pass schedule_check. */
void schedule_simulate(const struct schedule *s, const struct schedule_cost *c, struct schedule_timeline *t);
void schedule_timeline_fini(struct schedule_timeline *t);

/* ---- text and pictures ----------------------------------------------------------------------------------- */

/* A whole schedule as text that schedule_parse reads back to an equal one:
 *     schedule 1f1b ranks 2 stages 2 microbatches 2
 *     place 0 1
 *     rank 0: 0F0 0F1 0BW0 0BW1
 *     rank 1: 1F0 1BW0 1F1 1BW1                                                                            */
void schedule_print(const struct schedule *s, struct str *out);
void schedule_print_rank(const struct schedule *s, int rank, struct str *out); /* the actions only, one line */
/* Reads that text, or a table of actions (CSV: a row per rank, csv.c); what: the file's name for errors. */
int schedule_parse(struct schedule **out, const char *text, const char *what, struct err *e);
bool schedule_equal(const struct schedule *a, const struct schedule *b);
/* The timeline for a terminal, a row per rank; -1 (and nothing printed) where `columns` are too few. */
int schedule_draw(const struct schedule *s, const struct schedule_timeline *t, int columns, struct str *out);
/* The timeline as a picture: a row per rank, a box per action, an axis of time and how much of it each rank idles. */
void schedule_svg(const struct schedule *s, const struct schedule_timeline *t, struct str *out);
/* The object of INTERFACE's `schedule` command. */
void schedule_json(const struct schedule *s, const struct schedule_timeline *t, const struct schedule_peak *peak,
                   struct str *out);

#endif
