/* SPDX-License-Identifier: Apache-2.0 */
/* timing.h: where the time of a trace went. Reads the file that run.trace made (docs/traces.md) and deals every moment
 * of every rank's traced steps out to one kind:
 *
 *   COMPUTE   kernels and the optimizer
 *   EXPOSED   inside an operation between ranks that all its ranks had begun: bytes moved, and nothing else was done
 *             meanwhile
 *   BUBBLE    waiting until a rank of another pipeline stage began its part
 *   LATE      waiting until a rank of the same stage did
 *   OTHER     between kernels: handing over the batch, starting actions, writing metrics
 *
 * Invariants
 *   1. Over the steps that are whole in the file the kinds of a rank add up to its time in steps.
 *   2. A file that ends early, or that has lost events, counts from where it is whole; what was left out is said.
 *   3. What does not look like a trace of ours is refused by name.
 * Floor 11; includes base and schedule. Order: Local.
 */
#ifndef TUTTI_REPORT_TIMING_H
#define TUTTI_REPORT_TIMING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

enum time_kind { TIME_COMPUTE, TIME_EXPOSED, TIME_BUBBLE, TIME_LATE, TIME_OTHER, TIME_N };
const char *time_kind_name(enum time_kind k); /* "compute", "exposed", "bubble", "late", "other" */

enum time_action { TIME_F, TIME_B, TIME_W, TIME_BW, TIME_ACTIONS };

struct timing_rank {
    const char *place; /* "pp 1, tp 0" */
    int pp;
    int64_t steps;
    double step_s, s[TIME_N]; /* in steps */
    double busy_s;            /* in actions, waits in them left out */
};
struct timing_operation { /* kernels of one operation over all ranks */
    const char *name;
    double s, flops;
    int64_t calls;
};
enum { TIMING_OPERATIONS = 64 };

struct timing_stage {
    double mean_s[TIME_ACTIONS]; /* of one of its actions, waits left out; 0: there was none */
    int64_t actions[TIME_ACTIONS];
};

struct timing {
    struct timing_rank *rank;
    int n_ranks;
    int64_t first_step, last_step;
    double mean_s[TIME_ACTIONS]; /* of an action of one stage, waits left out; 0: there was none */
    struct timing_stage *stage; /* [n_stages] the same stage by stage: those that the file has actions of, and before */
    int n_stages;
    double window_s;      /* from the first action to the last one's end, the mean over steps; 0: no actions */
    double idle_share;    /* of that time and all ranks that compute: in no action */
    const char *schedule; /* its text; "": none, or too long to be kept */
    struct timing_operation operation[TIMING_OPERATIONS]; /* most time first */
    int n_operations;
    int64_t events, broken; /* lines read; passed over (the last one of a file that was cut off) */
    int64_t dropped;        /* events that did not fit the run's memory for them */
    int64_t left_out;       /* steps of ranks that are not whole in the file */
    bool ended;             /* the run wrote its end */
    double clock_error_s;   /* the worst of any rank */
    struct arena *arena;
};

int timing_read(struct timing *t, const char *path, struct err *e);
/* The same from text, for tests. */
int timing_parse(struct timing *t, const char *text, size_t n, const char *what, struct err *e);
void timing_free(struct timing *t);

/* What the schedule promises when each stage takes the times that were measured of it, messages nothing
 * (timing_predict.c). false: the file has no schedule, or not all that is needed. */
struct timing_promise {
    double makespan_s, bubble_ratio, idle_share;
};
bool timing_predict(const struct timing *t, struct timing_promise *p);

#endif
