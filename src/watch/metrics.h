/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h: what a run says of itself: metrics.jsonl (one object per step), expert_load.bin, TensorBoard events, the
 * progress line.
 *
 * Invariants
 *   1. metrics.jsonl holds each step once, in order: a run that resumes at step s drops the lines after s, when its
 *      checkpoint was loaded. A run that begins moves the file of another one aside.
 *   2. Every line is whole: written in one piece and flushed.
 * Floor 9. Order: Local to the rank that reports.
 */
#ifndef TUTTI_WATCH_METRICS_H
#define TUTTI_WATCH_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct rounding_report;
struct rank_times_step;
struct rank_times_verdict;
struct policy_sums;
struct preference_sums;

struct metrics_source {
    int64_t samples, tokens;
    double epochs;
};

struct metrics_step {
    int64_t step;                            /* optimizer steps done, from 1 */
    double loss, grad_norm, lr;              /* NaN: the step made none */
    bool sees;                               /* samples are pictures: */
    bool tells;                              /* classes: */
    double accuracy;                         /* share of the trained ones whose class was told right, before the step */
    const double *ahead;                     /* loss of each module that predicts further tokens; */
    int ahead_depth;                         /* 0: there is none */
    int64_t pictures;                        /* of this step */
    int64_t tokens;                          /* trained so far */
    int64_t step_tokens;                     /* that exist, in this step: what tokens_per_s counts */
    const struct preference_sums *preferred; /* of a step on preferences; NULL: it is none */
    const struct policy_sums *policy;        /* of a step on rewards; NULL: it is none */
    double step_s, mfu;
    double data_wait_s;                 /* for the batch, before step_s began, of the rank that waited longest */
    double mean_tokens_per_s, mean_mfu; /* of the steps since the last progress line, which shows them */
    int64_t peak_bytes;
    bool scaled;           /* fp16: */
    const char *skip;      /* why the step was left out; NULL: it was not */
    bool left_out;         /* its batch was, so nothing was computed: no speed */
    double loss_scale;     /* of this step */
    int64_t skipped;       /* steps left out so far */
    bool async;            /* a parameter server's updates as they come: */
    double staleness_mean; /* updates between a pull and its push, over those since the last report */
    int64_t staleness_max;
    /* Of models with experts, else load NULL: losses per trained token, the busiest expert's share times their number,
     * and by layer the picks of each expert ([layers], rows NULL where a layer has none). */
    double balance_loss, z_loss, load_worst;
    double rounds_mean; /* in which rows came to their experts; 0: all at once, always */
    int rounds_most;
    const double *const *load;
    int layers, experts;
    const struct fallback *fallback;       /* NULL: no layer falls back */
    const struct rounding_report *rounded; /* what rounding did (rounding_report.h); NULL: nobody looked */
    bool tier;                             /* something waits on disk: */
    int64_t put_bytes, got_bytes;          /* there and back in this step, of all ranks */
    double tier_s;                         /* what the rank waited for it that waited longest */
    int64_t padded;                        /* places of this step without a token; packed: 0 of them are said, too */
    bool packed;
    double busiest, busiest_by_position;  /* as in engine_report; 0: it has no meaning */
    const struct metrics_source *sources; /* what was used of each by now; NULL: nobody knows */
    int n_sources;
    const struct rank_times_step *ranks; /* how long ranks took for what (rank_times.h); NULL: there is one */
    bool progress_load;                  /* say the load on the progress line too */
};

struct metrics_valid {
    int64_t step, tokens; /* done and trained so far */
    double loss;          /* the mean over valid_tokens */
    double accuracy;      /* of classes; NAN: there are none */
    int64_t valid_tokens;
    bool judged, best; /* somebody keeps the best one; it is that */
};

struct metrics;
/* after: steps already done, whose checkpoint was loaded; lines of later steps are dropped. 0: a run that begins. */
int metrics_open(struct metrics **m, const char *dir, int64_t after, bool tensorboard, struct err *e);
int metrics_close(struct metrics *m, struct err *e);
/* A line of exponents.jsonl beside it, without its end, which it gets; on a full disk it waits, too. */
int metrics_exponents(struct metrics *m, struct str *line, struct err *e);
int metrics_step(struct metrics *m, const struct metrics_step *s, struct err *e);
int metrics_valid(struct metrics *m, const struct metrics_valid *v, struct err *e);
/* Ranks that must hold the same numbers do not (engine/replicas.h): which tensor, where in it, which ranks. */
int metrics_differ(struct metrics *m, int64_t step, const char *tensor, const char *element, const int *ranks,
                   int n_ranks, struct err *e);
/* A rank that computed a part of the batch a second time got other bits (train/witness.h): in what first, who is wrong.
 */
int metrics_witness(struct metrics *m, int64_t step, const char *tensor, const int *ranks, int n_ranks, struct err *e);
/* A checkpoint was saved (what: "saved") or gone on from ("loaded") when `step` steps were done: of which step it is,
 * and the one number of its state. The latter waits for the first line of this start. */
int metrics_state(struct metrics *m, int64_t step, const char *what, int64_t of_step, uint64_t state, struct err *e);
/* A rank holds up the others. */
int metrics_straggler(struct metrics *m, int64_t step, const struct rank_times_verdict *v, struct err *e);
/* The progress line: "step 120/1000  loss 2.345  12.3k tok/s  MFU 41 %  ETA 3m 10s". */
void metrics_progress(const struct metrics *m, const struct metrics_step *s, int64_t steps, double eta_s);

#endif
