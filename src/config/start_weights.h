/* SPDX-License-Identifier: Apache-2.0 */
/* start_weights.h: starting weights from a Hugging Face directory or a checkpoint, and the model's description in the
 * words of both. The bridge between nn/ (which knows no files) and checkpoint/ (which knows no models).
 * Floor 7. Order: Local.
 */
#ifndef TUTTI_CONFIG_START_WEIGHTS_H
#define TUTTI_CONFIG_START_WEIGHTS_H

#include "hub/weights.h"
#include "nn/model.h"
#include "state/store.h"
#include "token/tokenizer.h"

/* A model of ours as one of theirs; eos and bos: token ids, -1 none. */
struct hf_model source_hf_model(const struct model_config *m, int32_t bos, int32_t eos);
/* Fills the parameters (master and compute copy) from a checkpoint or directory; names and shapes are compared
 * first. Where they tell hidden tokens and the model classes of texts (BERT), its head stays as it is. */
int source_load(struct store *s, const struct kernel_table *k, struct stream *st, struct weights *w, struct err *e);
/* Starting values of adapters from a folder that peft saved, which has those of the model's table and no other. w: the
 * weights that they stand beside, which those with lengths (DoRA) need; NULL: drawn ones. */
int source_adapter(struct store *s, const struct kernel_table *k, struct stream *st, const struct model_config *m,
                   struct weights *w, const char *dir, struct err *e);
/* The tokenizer that goes with the weights. ERR_REQUEST when there is none. */
int source_tokenizer(const struct weights *w, struct tokenizer **t, struct err *e);

#endif
