/* SPDX-License-Identifier: Apache-2.0 */
/* layouts.h: which layouts of a config are tried beside one rank: every product of degrees that the model and the batch
 * allow, up to a number of ranks. On paper only. Floor 9. Order: Local.
 */
#ifndef TUTTI_VERIFY_LAYOUTS_H
#define TUTTI_VERIFY_LAYOUTS_H

#include "config/config.h"

struct layout_try {
    int dp_replicate, dp_shard, zero, tp, cp, pp, servers;
    int ep, etp; /* 0: 1, and tp */
    bool sequence;
    int cp_algorithm;     /* enum config_cp */
    const char *schedule; /* of the pipeline; NULL: as the config says */
};
struct layouts {
    struct layout_try *at;
    int n, room;
};
void layouts_enumerate(struct layouts *l, const struct config *c, int max_ranks);
void layouts_free(struct layouts *l);
void layouts_apply(const struct layout_try *t, struct config *c);
/* "dp4 replicate2 zero1 tp2+seq" */
void layout_name(const struct config *c, char *out, size_t n);

#endif
