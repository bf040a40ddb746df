/* SPDX-License-Identifier: Apache-2.0 */
/* hf_config_impl.h: what reading and writing config.json share: what each family is called. Includes: base, hf.h. */
#ifndef TUTTI_HUB_HF_CONFIG_IMPL_H
#define TUTTI_HUB_HF_CONFIG_IMPL_H

#include "hub/hf.h"

#define BERT_TELLS "BertForSequenceClassification"

/* Rows of MODEL_TYPE in model/families.def. */
struct hf_row {
    const char *name, *architecture;
    enum model_family ours;
    const char *scores;
};
extern const struct hf_row hf_rows[HF_N];
/* The number of a token; negative ones mean none (-1), as null does. */
int hf_token_id(const struct json *v, int64_t *id, const char *what, const char *key, struct err *e);

#endif
