/* SPDX-License-Identifier: Apache-2.0 */
/* peft.h: adapters in the form of Hugging Face's peft: a directory of adapter_config.json and
 * adapter_model.safetensors, in and out.
 *
 * Reading matches every tensor with a matrix of the model that it is for, both ways: one that is missing, has another
 * shape or no matrix here is refused, so an adapter of another base does not pass for one of this. Keys that change
 * numbers and that tutti does not compute (ranks by pattern, biases, saved modules; peft_keys.c) are refused by name.
 * All of it is read at once: adapters are small. Includes: base, layout, hf.h, weights.h. Order: Local.
 */
#ifndef TUTTI_HUB_PEFT_H
#define TUTTI_HUB_PEFT_H

#include "hub/weights.h"

struct peft;
/* w: the base's weights, with which what the folder holds of them is compared; NULL: they are not at hand. */
int peft_open(struct peft **out, const char *dir, struct weights *w, const struct hf_model *m, struct err *e);
/* The same of the two files' bytes, without weights. */
int peft_open_memory(struct peft **out, const char *config, size_t n_config, const void *tensors, size_t n_tensors,
                     const char *what, const struct hf_model *m, struct err *e);
void peft_close(struct peft *p);
const char *peft_path(const struct peft *p);
int64_t peft_rank(const struct peft *p);
double peft_times(const struct peft *p); /* what their sums are multiplied by */
int64_t peft_count(const struct peft *p);
bool peft_lengths(const struct peft *p); /* DoRA: all matrices have lengths */
/* What a matrix ("layers.0.attn.q.weight") has, borrowed; false: it has no adapter. */
struct peft_matrix {
    const float *a, *b;   /* [rank, K], [N, rank] */
    const float *lengths; /* [N]: of the rows of W + times B A, whatever they are without; NULL: as they are */
};
bool peft_find(const struct peft *p, const char *matrix, struct peft_matrix *out);
/* The adapters of a checkpoint, whose matrices are read as they are without (not weights_merge), as a directory, which
 * must not exist or be empty. */
int peft_export(const char *dir, const struct weights *w, enum dtype dtype, struct err *e);

#endif
