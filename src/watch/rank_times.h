/* SPDX-License-Identifier: Apache-2.0 */
/* rank_times.h: how long each rank takes for what, and which is the straggler that holds up the others. In a step that
 * all take together everybody takes as long as the slowest: its own step time says nothing about a rank. What does is
 * how long it computes, and how long it waits for others.
 *
 *   slow compute   over a window of steps a rank computes longer than the ranks with the same work, by the medians, in
 *                  nearly every step, and by a share of the step that matters; and it waits less than they do
 *   slow link      nobody computes longer, all wait; then ranks send each other small messages in turn, and the one
 *                  whose every message takes long, also of ten such rounds, is named. Twice in a row, or it was
 *                  chance
 *
 * A busy machine keeps one rank, then another, from its cores: no rank is the slower one in nearly all steps of a
 * window, and nobody is named. Cost: a message of a few numbers per rank and step.
 * Floor 9. Order: Collective(world) unless said otherwise.
 */
#ifndef TUTTI_WATCH_RANK_TIMES_H
#define TUTTI_WATCH_RANK_TIMES_H

#include "base/str.h"
#include "config/ranks.h"

enum rank_time { RANK_TIME_STEP, RANK_TIME_FORWARD, RANK_TIME_BACKWARD, RANK_TIME_UPDATE, RANK_TIME_WAIT, RANK_TIME_N };
extern const char *const rank_times_names[RANK_TIME_N]; /* "step_s", ... */
enum { RANK_TIME_WINDOW = 32, RANK_TIME_NAMED = 4 };

/* Of one step over all ranks; rank 0. */
struct rank_times_spread {
    double least, median, most;
};
struct rank_times_step {
    int n;
    struct rank_times_spread of[RANK_TIME_N];
    int slowest[RANK_TIME_NAMED], n_slowest; /* by what they computed, the slowest first */
};

enum rank_times_cause { RANK_TIME_NOBODY, RANK_TIME_COMPUTE, RANK_TIME_LINK };
struct rank_times_verdict {
    enum rank_times_cause cause;
    int rank;
    double own_s, others_s; /* of a step, computing; of a message and its answer */
    double waits_s;         /* what the others wait longer than it does, in a step */
    int steps, window;      /* in how many of how many it was the slower */
};

/* seconds: [window][n][RANK_TIME_N]; work: [n] FLOPs of a step; peers: [n] ranks of one number have the same work. A
 * rank without peers is held against all by its work. Local, a pure function. */
struct rank_times_verdict rank_times_judge(const double *seconds, int window, int n, const double *work,
                                           const int *peers);
/* round_trip: [n] of the least of a rank's neighbours; 0: unknown. Local, a pure function. */
struct rank_times_verdict rank_times_judge_links(const double *round_trip, int n);

struct rank_times;
/* dir: for rank-times.jsonl, cut behind step `after`; NULL: it is not written. */
int rank_times_open(struct rank_times **p, const struct ranks *r, const struct engine *g, const char *dir,
                    int64_t after, struct err *e);
int rank_times_close(struct rank_times *p, struct err *e); /* Local */
void rank_times_begin(struct rank_times *p);               /* a step begins; NULL is fine. Local */
/* After a step that took step_s here. *all: rank 0's. said: at most one line about who is slow, empty where there is
 * nothing new; verdict as in it. */
int rank_times_step(struct rank_times *p, int64_t step, double step_s, struct rank_times_step *all,
                    struct rank_times_verdict *verdict, struct str *said, struct err *e);

#endif
