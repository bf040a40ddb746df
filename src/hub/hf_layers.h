/* SPDX-License-Identifier: Apache-2.0 */
/* hf_layers.h: which layers of a model are local, turn by position, have experts: their lists and rules in and out of
 * config.json, ours as patterns (model/layer_pattern.h). For hf_config.c. Includes: base, hf_numbers.h. Order: Local.
 */
#ifndef TUTTI_HUB_HF_LAYERS_H
#define TUTTI_HUB_HF_LAYERS_H

#include "hub/hf_numbers.h"

/* After the numbers: m->model.layers and attn.window are known. ERR_REQUEST names the key. */
int hf_layers_read(struct hf_model *m, const struct json *config, const char *what, struct err *e);
/* What each layer of a hybrid is, and so how many there are. ERR_REQUEST names the key. */
int hf_kinds_read(struct hf_model *m, const struct json *config, const char *what, struct err *e);
/* Whether the family's rules say the pattern of that row of the table of numbers. */
bool hf_layers_says(const struct hf_model *m, const struct number *n);
bool hf_layers_windows(enum hf_family f); /* whether the family's layers may have a window */
/* Adds the lists; m outlives s. */
void hf_layers_add(struct hf_puts *s, const struct hf_model *m);

#endif
