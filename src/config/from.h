/* SPDX-License-Identifier: Apache-2.0 */
/* from.h: what model.from decides of a config, and what a config may decide against it.
 *
 * Keys that the shapes of the weights follow from are the model's: one given beside it has to agree. Keys that only say
 * how the weights are used (norms' eps, rotary positions, routing, the longest position of a model that has no table of
 * them) are taken from the model where the config does not give them, and win where it does; what differs is said when
 * the weights are loaded. Floor 7. Order: Same(config).
 */
#ifndef TUTTI_CONFIG_FROM_H
#define TUTTI_CONFIG_FROM_H

#include "hub/weights.h"
#include "token/tokenizer.h"
#include "config/config.h"

/* ERR_REQUEST names the key, its value and the model's. */
int from_take(struct config *c, const struct conf *f, const struct weights *w, struct err *e);
/* Says which of the model's own settings the config has otherwise, and when its tokenizer is another one. */
void from_say(const struct weights *w, const struct config *c, const struct tokenizer *t);

#endif
