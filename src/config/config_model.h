/* SPDX-License-Identifier: Apache-2.0 */
/* config_model.h: what the keys of model and adapter mean together. Floor 7. Order: Same(config). */
#ifndef TUTTI_CONFIG_CONFIG_MODEL_H
#define TUTTI_CONFIG_CONFIG_MODEL_H

#include "config/config.h"

/* Fills in what is left out, n_vocab from the tokenizer (0: unknown); refuses what makes no model, or no adapter. */
int config_resolve_model(struct config *c, const struct conf *f, int64_t n_vocab, struct err *e);

#endif
