/* SPDX-License-Identifier: Apache-2.0 */
/* layouts.h: which layouts of a config are tried beside one rank: every product of degrees that the model and the batch
 * allow, up to a number of ranks. On paper only. Floor 11. Order: Local.
 */
#ifndef TUTTI_VERIFY_LAYOUTS_H
#define TUTTI_VERIFY_LAYOUTS_H

#include "config/config.h"

enum { LAYOUT_MOST_STAGES = 16 };
struct layout_try {
    int dp_replicate, dp_shard, zero, tp, cp, pp, servers;
    int ep, etp; /* 0: 1, and tp */
    bool sequence;
    int cp_algorithm;     /* enum config_cp */
    const char *schedule; /* of the pipeline; NULL: as the config says */
    int chunks, round;    /* of it; 0: its own */
    int64_t layers[LAYOUT_MOST_STAGES];
    int n_layers; /* of the stages, when they are not by cost */
};
struct layouts {
    struct layout_try *at;
    int n, room;
};
void layouts_enumerate(struct layouts *l, const struct config *c, int max_ranks);
void layouts_free(struct layouts *l);
/* What it shares out: of enum verify_axes (verify.h). */
unsigned layout_axes(const struct layout_try *t);
/* t is borrowed, for its layers. */
void layouts_apply(const struct layout_try *t, struct config *c);
/* "dp4 replicate2 zero1 tp2+seq" */
void layout_name(const struct config *c, char *out, size_t n);

#endif
