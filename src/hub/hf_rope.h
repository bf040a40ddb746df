/* SPDX-License-Identifier: Apache-2.0 */
/* hf_rope.h: by which angles positions turn: their object in and out of config.json. For hf_config.c and
 * hf_config_put.c. Includes: base, hf_numbers.h. Order: Local. */
#ifndef TUTTI_HUB_HF_ROPE_H
#define TUTTI_HUB_HF_ROPE_H

#include "hub/hf_numbers.h"

/* After the numbers. ERR_REQUEST names the key. */
int hf_rope_read(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                 struct err *e);
/* After all else: a list of longrope has a number for each pair that turns. */
int hf_rope_check(const struct model_config *c, const struct json *config, const char *what, struct err *e);
/* Adds the object; the model, in their words, outlives s. */
void hf_rope_add(struct hf_puts *s, const struct model_config *theirs);

#endif
