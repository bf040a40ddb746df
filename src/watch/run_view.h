/* SPDX-License-Identifier: Apache-2.0 */
/* run_view.h: a run view: how a run is, read from its files while it goes on or afterwards. `tutti watch` shows it, the
 * status server (watch/status.h) hands it out. The run knows nothing of it: who looks reads metrics.jsonl from where it
 * was read last, and the few lines of the other files; so looking never costs a step anything but the disk's time.
 *
 * Invariants
 *   1. A line that is no JSON object, also the last one that is being written, is passed over.
 *   2. Memory is bounded: of the curves at most 2 * RUN_VIEW_POINTS points are kept, then every second one goes; the
 *      last point is always there.
 *   3. How long a run is silent is measured by the clock that nobody sets, from the first look on: clocks of hosts that
 *      differ or jump make no silence, and end none.
 *   4. A file that became shorter (the run went back to a checkpoint) or is another one is read again from its
 *      beginning.
 * Floor 9. Order: Local; one thread.
 */
#ifndef TUTTI_WATCH_RUN_VIEW_H
#define TUTTI_WATCH_RUN_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

enum { RUN_VIEW_POINTS = 300, RUN_VIEW_ERRORS = 4, RUN_VIEW_TEXT = 400 };

enum run_view_state {
    RUN_VIEW_EMPTY,    /* nothing was written yet */
    RUN_VIEW_GOES_ON,  /* its last start has no end, and it wrote lately */
    RUN_VIEW_SILENT,   /* the same, but for longer than its steps take it has written nothing: a long save, a hang, a
                          kill */
    RUN_VIEW_STOPPED,  /* a signal ended it; it is saved */
    RUN_VIEW_FINISHED, /* all of run.steps are done */
    RUN_VIEW_STATES
};
extern const char *const run_view_states[RUN_VIEW_STATES];

struct run_view_point {
    int64_t step;
    double loss, tokens_per_s, peak_bytes;
};

struct run_view {
    char *dir;
    enum run_view_state state;
    int64_t step, steps, tokens;                                                    /* steps: wanted; 0: not known */
    double loss, valid_loss, grad_norm, lr, step_s, data_wait_s, tokens_per_s, mfu; /* NaN: not known. The last two are
                                                                                       means over recent steps */
    double peak_bytes, silent_s, eta_s;                                             /* eta NaN where nothing goes on */
    char started[40], host[80], transport[24], checkpoint[80];
    int64_t ranks, saved;                               /* saved: step of the newest checkpoint, -1: none */
    double ranks_least_s, ranks_median_s, ranks_most_s; /* computing of a step: forward, backward and update; NaN */
    int64_t slowest[4], n_slowest;
    int64_t straggler; /* rank, -1: nobody was named */
    char straggler_cause[16];
    int64_t straggler_step;
    char stacks[RUN_VIEW_TEXT], stacks_cause[RUN_VIEW_TEXT]; /* where the stacks of ranks that hung lie, and why they
                                                                were written; "": there are none */
    char error[RUN_VIEW_ERRORS][RUN_VIEW_TEXT];              /* what the run left about failures, newest first */
    int n_errors;
    struct run_view_point *point; /* [n_points] */
    int n_points;
    int64_t every; /* of so many steps one point is kept */
    /* of reading */
    int64_t offset, n_starts, n_ends, ended; /* ended: the start that the last end is of, counted from 1; -1 unknown */
    uint64_t file[3];                        /* of metrics.jsonl, when it was looked at last: which, bytes, time */
    double seen_s, seen_silent_s;            /* when it was another one than before; for how long it had been silent */
    struct str line;
    double recent[16]; /* seconds of steps */
    double recent_tokens[16], recent_mfu[16];
    int64_t n_recent;
    char start_time[40], end_time[40], signal[16];
    bool finished;
};

/* ERR_REQUEST where dir is no run's directory (it has neither config.yaml nor metrics.jsonl). */
int run_view_open(struct run_view **p, const char *dir, struct err *e);
void run_view_close(struct run_view *p);
/* Reads what is new. ERR_IO: a file cannot be read. */
int run_view_look(struct run_view *p, struct err *e);
/* The members of an object; curve: its curves as well. */
void run_view_put(const struct run_view *p, struct json_out *o, bool curve);
/* The same for Prometheus, in its text format. */
void run_view_prometheus(const struct run_view *p, struct str *out);

#endif
