/* SPDX-License-Identifier: Apache-2.0 */
/* config_layout.h: which layouts can be: degrees of all axes for the ranks there are, and what must fit together.
 * Private to config/; config_resolve calls. A refusal begins with the place of the key to change, and says why and what
 * is nearest. Floor 7. Order: Same (the same config on all ranks).
 */
#ifndef TUTTI_CONFIG_CONFIG_LAYOUT_H
#define TUTTI_CONFIG_CONFIG_LAYOUT_H

#include "config/config.h"

/* Fills in the degrees that are left open. Model and sequence length are resolved. */
int config_resolve_degrees(struct config *c, const struct conf *f, int n_ranks, struct err *e);
/* Schedule and exact order; batch sizes are resolved. */
int config_resolve_schedule(const struct config *c, const struct conf *f, struct err *e);

/* What config_resolve_schedule is made of. A pipeline that cannot be, with the key to change (config_pipeline.c). */
int config_refuse_pipeline(const struct config *c, const struct conf *f, struct err *e);
/* Whether the order of sums can be kept; *key: what to change where it cannot (config_exact.c). */
int config_exact(const struct config *c, const char **key, struct err *e);

/* Every rank runs as many microbatches as the one with the largest part of the batch. */
int64_t config_microbatches(const struct config *c);
struct pipeline_config config_pipeline(const struct config *c);

#endif
