/* SPDX-License-Identifier: Apache-2.0 */
/* hf_copies.h: tensors of a file that should be another one of its once more: an output matrix beside the embedding
 * that it is said to be, T5's tables of its stacks, a bias kept twice. What their library does of two that differ hangs
 * on its release, so none is passed over unread. For hf_read.c. Includes: base, hf.h, safetensors.h. Order: Local. */
#ifndef TUTTI_HUB_HF_COPIES_H
#define TUTTI_HUB_HF_COPIES_H

#include "hub/hf.h"
#include "checkpoint/safetensors.h"

/* Whether two tensors have one shape and the same values, whatever type each is stored as. */
int hf_same_values(struct safetensors *s, const struct safetensors_entry *a, const struct safetensors_entry *b,
                   bool *same, struct err *e);
/* Compares each copy that the files hold with what it copies. ERR_REQUEST names two that differ. */
int hf_copies_check(const struct hf_model *m, struct safetensors *s, const char *dir, struct err *e);

#endif
