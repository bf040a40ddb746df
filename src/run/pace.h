/* SPDX-License-Identifier: Apache-2.0 */
/* pace.h: how long each rank takes for what, and which is the straggler that holds up the others. In a step that all
 * take together everybody takes as long as the slowest: its own step time says nothing about a rank. What does is how
 * long it computes, and how long it waits for others.
 *
 *   slow compute   over a window of steps a rank computes longer than the ranks with the same work, by the medians, in
 *                  nearly every step, and by a share of the step that matters; and it waits less than they do
 *   slow link      nobody computes longer, all wait; then ranks send each other small messages in turn, and the one
 *                  whose every message takes long, also of ten such rounds, is named. Twice in a row, or it was
 *                  chance
 *
 * A busy machine keeps one rank, then another, from its cores: no rank is the slower one in nearly all steps of a
 * window, and nobody is named. Cost: a message of a few numbers per rank and step.
 * Floor 8. Order: Collective(world) unless said otherwise.
 */
#ifndef TUTTI_RUN_PACE_H
#define TUTTI_RUN_PACE_H

#include "base/str.h"
#include "config/ranks.h"

enum pace_time { PACE_STEP, PACE_FORWARD, PACE_BACKWARD, PACE_UPDATE, PACE_WAIT, PACE_N };
extern const char *const pace_names[PACE_N]; /* "step_s", ... */
enum { PACE_WINDOW = 32, PACE_NAMED = 4 };

/* Of one step over all ranks; rank 0. */
struct pace_spread {
    double least, median, most;
};
struct pace_step {
    int n;
    struct pace_spread of[PACE_N];
    int slowest[PACE_NAMED], n_slowest; /* by what they computed, the slowest first */
};

enum pace_cause { PACE_NOBODY, PACE_COMPUTE, PACE_LINK };
struct pace_verdict {
    enum pace_cause cause;
    int rank;
    double own_s, others_s; /* of a step, computing; of a message and its answer */
    double waits_s;         /* what the others wait longer than it does, in a step */
    int steps, window;      /* in how many of how many it was the slower */
};

/* seconds: [window][n][PACE_N]; work: [n] FLOPs of a step; peers: [n] ranks of one number have the same work. A rank
 * without peers is held against all by its work. Local, a pure function. */
struct pace_verdict pace_judge(const double *seconds, int window, int n, const double *work, const int *peers);
/* round_trip: [n] of the least of a rank's neighbours; 0: unknown. Local, a pure function. */
struct pace_verdict pace_judge_links(const double *round_trip, int n);

struct pace;
/* dir: for rank-times.jsonl, cut behind step `after`; NULL: it is not written. */
int pace_open(struct pace **p, const struct ranks *r, const struct engine *g, const char *dir, int64_t after,
              struct err *e);
int pace_close(struct pace *p, struct err *e); /* Local */
void pace_begin(struct pace *p);               /* a step begins; NULL is fine. Local */
/* After a step that took step_s here. *all: rank 0's. said: at most one line about who is slow, empty where there is
 * nothing new; verdict as in it. */
int pace_step(struct pace *p, int64_t step, double step_s, struct pace_step *all, struct pace_verdict *verdict,
              struct str *said, struct err *e);

#endif
