/* SPDX-License-Identifier: Apache-2.0 */
/* stages.h: which layers make up each stage of the pipeline, and which pipeline ranks hold a parameter. On paper.
 *
 * Layers are dealt to the stages so that the slowest stage is as fast as can be; the embedding counts with the first
 * stage and the head with the last (nn/model.h knows what they cost), so 30 layers over 4 stages are legal, a large
 * vocabulary moves layers away from the last stage, and the ends may have none (engine/deal.h). A list from the config
 * overrides that.
 * Floor 6. Order: Same(config).
 */
#ifndef TUTTI_ENGINE_STAGES_H
#define TUTTI_ENGINE_STAGES_H

#include "nn/model.h"
#include "schedule/schedule.h"

/* Fills out[n_stages]. layers: how many each stage takes, NULL: dealt by cost. ERR_REQUEST names the nearest legal
 * value. */
int stages_split(struct model_stage *out, int n_stages, const struct model_config *c, int64_t seq,
                 const int64_t *layers, int n_layers, struct err *e);
/* Pipeline ranks that hold parameter p, ascending, each once; returns how many (at least 1). out holds s->n_ranks. */
int stages_holders(const struct schedule *s, const struct model_stage *stage, const struct model_config *c,
                   const struct param *p, int *out);
/* The stages placed on a rank, ascending; returns how many. out holds s->n_stages. */
int stages_on(const struct schedule *s, int rank, int *out);

#endif
