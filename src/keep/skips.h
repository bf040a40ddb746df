/* SPDX-License-Identifier: Apache-2.0 */
/* skips.h: steps whose batch is left out because the loss jumped or was not finite, and when a loss has jumped.
 *
 * A step that is left out counts: its samples are drawn and pass by, nothing is computed or updated, and what follows
 * is a function of (config, data, list of such steps). The list is in the manifest of every checkpoint
 * ("skipped_steps"), and each decision is a line of run.dir/skips.jsonl before anything follows from it, so a run that
 * is killed in between decides the same. run.skip adds steps by hand.
 *
 * A loss has jumped when it lies more than so many deviations above the mean, both exponential averages over a window
 * of steps, once that many steps have been seen. The averages are in the checkpoint too. Floor 8. Order: Local unless
 * said.
 */
#ifndef TUTTI_KEEP_SKIPS_H
#define TUTTI_KEEP_SKIPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "comm/comm.h"

#define SKIPS_NAME "skips.jsonl"

struct skips {
    int64_t *step; /* [n] ascending, from 1 as in the metrics */
    int64_t n;
    int64_t seen; /* losses in the averages */
    double mean, var;
};
struct skips_note { /* a decision */
    int64_t step, back_to;
    const char *cause; /* "loss", "not finite" */
    double loss, mean, deviation;
};

bool skips_has(const struct skips *s, int64_t step);
/* Adds a step; one that is there already stays there once. */
void skips_add(struct skips *s, int64_t step);
void skips_free(struct skips *s);

/* Of the losses so far; at least a thousandth of their mean. */
double skips_deviation(const struct skips *s);
/* Whether the loss of the step at hand has jumped; learns it where not. window < 1: never. */
bool skips_jumped(const struct skips *s, double loss, double deviations, int64_t window);
void skips_learn(struct skips *s, double loss, int64_t window);

/* Members "skipped_steps" and "loss_average" of what o is printing; and back. What is not there is left empty.
 *   fails   ERR_CORRUPT: not what skips_put writes */
void skips_put(const struct skips *s, struct json_out *o);
int skips_take(struct skips *s, const struct json *extra, const char *what, struct err *e);

/* Appends to dir/skips.jsonl, synced. */
int skips_write(const char *dir, const struct skips_note *n, struct err *e);
/* Adds the steps of dir/skips.jsonl, which rank 0 reads. fails: ERR_CORRUPT with the line. Collective(world); NULL: one
 * rank. */
int skips_read(struct skips *s, const char *dir, struct comm *world, struct err *e);

#endif
