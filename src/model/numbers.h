/* SPDX-License-Identifier: Apache-2.0 */
/* model/numbers.h: what there is to say of a model in numbers: one struct, which config, layers, checkpoints and
 * Hugging Face's config.json share, and one table (numbers.def) of its fields, from which reading, printing, comparing,
 * import and export follow.
 *
 * Invariants
 *   1. A field of struct model_config (but family) is a row of numbers.def, and its config key is its path:
 *   model.moe.top_k.
 *   2. 0 (false, the first word) means that the model has none of it where the row's need is not met.
 *   3. A file of Hugging Face names a number by at most one key per family.
 * Floor 1: base. Order: Local.
 */
#ifndef TUTTI_MODEL_NUMBERS_H
#define TUTTI_MODEL_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/conf.h"

enum model_family { MODEL_GPT2, MODEL_LLAMA, MODEL_MIXTRAL, MODEL_DEEPSEEK, MODEL_VIT, MODEL_N };
#define MODEL_FAMILIES "gpt2|llama|mixtral|deepseek|vit"
/* Hugging Face's, by their model_type. */
enum hf_family { HF_GPT2, HF_LLAMA, HF_MIXTRAL, HF_DEEPSEEK_V2, HF_DEEPSEEK_V3, HF_VIT, HF_N };

enum moe_aux_scope {
    MOE_AUX_SEQUENCE,
    MOE_AUX_MICROBATCH
}; /* words of moe.aux_scope; those of moe.score are kernel/attrs.h's moe_score */

#define NUMBER_INT int64_t
#define NUMBER_REAL double
#define NUMBER_BOOL bool
#define NUMBER_CHOICE int

/* The fields, in groups: hidden, moe.top_k (struct moe_config), mla.kv_rank (struct mla_config), ... */
struct model_config {
    enum model_family family;
#define NUMBER(type, group, name, ...) NUMBER_##type name;
#define GROUP(name) struct name##_config {
#define END(name)                                                                                                      \
    }                                                                                                                  \
    name;
#include "model/numbers.def"
};

/* Whether samples are pictures with a class; else they are texts. */
static inline bool model_sees(const struct model_config *c) { return c->family == MODEL_VIT; }
/* Values of a picture; 0: there are none. */
static inline int64_t model_pixels(const struct model_config *c)
{
    return model_sees(c) ? c->channels * c->image_size * c->image_size : 0;
}
/* Patches of a picture, along one side squared, and the class's place before them: the rows of a sequence. */
static inline int64_t model_places(const struct model_config *c)
{
    int64_t side = c->image_size / c->patch_size;
    return side * side + 1;
}

/* What follows from a number. */
enum number_role {
    NUMBER_SHAPE, /* the shapes of the weights: weights that are there decide it */
    NUMBER_TABLE, /* the length of a table that one family has as weights; elsewhere a limit */
    NUMBER_USE,   /* how weights are used: they say so, and a config may say otherwise */
    NUMBER_LEARN, /* how the model is trained only: a run may go on with another */
    NUMBER_RUN,   /* what a run's samples are; weights say nothing of it */
};

/* What a model has to have for a number to have an effect. */
enum number_need {
    NEED_ALWAYS,
    NEED_ROTARY,
    NEED_LLAMA3,
    NEED_YARN,
    NEED_SCALED,
    NEED_EXPERTS,
    NEED_GROUPS,
    NEED_BIAS,
    NEED_LATENT,
    NEED_TEXT,
    NEED_PICTURES
};

/* Where a key of Hugging Face stands: in config.json of these families (1 << enum hf_family), or in its object of
 * rotary positions when that is of this type. */
enum { IN_DEFAULT = 1 << HF_N, IN_LLAMA3 = 2 << HF_N, IN_YARN = 4 << HF_N };

enum spelling_how {
    SPELT_MAY = 0,           /* may be left out, or null */
    SPELT_NEEDED = 1,        /* may not */
    SPELT_ZERO = 2,          /* 0 may be said; without this the least is 1 where the row's range begins at 0 */
    SPELT_NONE_IF_NULL = 4,  /* null is 0; else null is as good as absent */
    SPELT_UNUSUAL = 8,       /* written only where it is not the default */
    SPELT_WRITTEN = 16,      /* never read */
    SPELT_ASIDE = 32,        /* said elsewhere too: absent, it changes nothing */
    SPELT_NULL_IF_NONE = 64, /* 0 is written as null */
};
struct spelling {
    unsigned in;     /* 0 ends a row's */
    const char *key; /* NULL: in these families the number is `otherwise`, and no key says so */
    int at;          /* place among the keys that are written; 0: not written */
    unsigned how;    /* of enum spelling_how */
    double otherwise;
};

enum { NUMBER_SPELLINGS = 5 };
struct number {
    struct conf_row row; /* path of the config key; offset in struct model_config */
    enum number_role role;
    enum number_need need;
    struct spelling theirs[NUMBER_SPELLINGS];
};

extern const struct number model_numbers[]; /* ends with row.path NULL */

const struct number *number_find(const char *key); /* "model.moe.top_k"; NULL: none */
/* Whether the number has an effect in this model; why not, in words that end a sentence ("model.moe.experts is 0"). */
bool number_needed(const struct number *n, const struct model_config *c);
const char *number_idle(const struct number *n);

#endif
