/* SPDX-License-Identifier: Apache-2.0 */
/* families.h: the families of models, ours and Hugging Face's, as families.def has them: enums, words, and what
 * computes each. Tables of upper rooms that have a row for each family are made from families.def too. Floor 1:
 * nothing. Order: Local.
 */
#ifndef TUTTI_MODEL_FAMILIES_H
#define TUTTI_MODEL_FAMILIES_H

#include <stdbool.h>

enum family_blocks {
#define BLOCKS(id, ...) BLOCKS_##id,
#include "model/families.def"
    BLOCKS_N
};
enum model_family {
#define FAMILY(id, ...) MODEL_##id,
#include "model/families.def"
    MODEL_N
};
/* Hugging Face's, by their model_type. */
enum hf_family {
#define MODEL_TYPE(id, ...) HF_##id,
#include "model/families.def"
    HF_N
};
/* Which layers see what is near only, by Hugging Face's config.json. */
enum hf_windows {
#define WINDOWS(id, ...) WINDOWS_##id,
#include "model/families.def"
    WINDOWS_N
};

/* "gpt2|llama|...": the words of model.family. */
#define MODEL_FAMILIES (&family_bar_words[1])
extern const char family_bar_words[];

struct family_row {
    const char *word;
    enum family_blocks blocks;
    bool wants_experts;  /* each model of it has some */
    enum hf_family type; /* in whose form it is written */
};
extern const struct family_row model_families[MODEL_N];

static inline const char *model_family_name(enum model_family f) { return model_families[f].word; }

#endif
