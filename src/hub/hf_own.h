/* SPDX-License-Identifier: Apache-2.0 */
/* hf_own.h: numbers of a model that its family's config.json has no key for: a decoder of no family's. They stand in an
 * object of ours ("tutti": {"attn.window": 64}), so that a checkpoint's own description is whole; export for their code
 * refuses such a model (hf_config_expressible). For hf_config.c and hf_config_put.c. Includes: base, hf_numbers.h.
 * Order: Local. */
#ifndef TUTTI_HUB_HF_OWN_H
#define TUTTI_HUB_HF_OWN_H

#include "hub/hf_numbers.h"

#define HF_OWN "tutti"

/* Whether a number has another value than the family's code, and no key says it. only: what their code has. */
bool hf_own_has(const struct hf_model *m, const struct number *n, double *only);
/* The object's members into m, after all else was read. ERR_REQUEST names the member. */
int hf_own_read(struct hf_model *m, const struct json *config, const char *what, struct err *e);
/* Adds the object where it has members; m outlives s. */
void hf_own_add(struct hf_puts *s, const struct hf_model *m);

#endif
