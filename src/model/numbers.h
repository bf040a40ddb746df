/* SPDX-License-Identifier: Apache-2.0 */
/* model/numbers.h: what there is to say of a model in numbers: one struct, which config, layers, checkpoints and
 * Hugging Face's config.json share, and one table (numbers.def) of its fields, from which reading, printing, comparing,
 * import and export follow.
 *
 * Invariants
 *   1. A field of struct model_config (but family, adapter, by_token, scores, pads, by_length) is a row of numbers.def,
 *      and its config key is its path: model.moe.top_k.
 *   2. 0 (false, the first word) means that the model has none of it where the row's need is not met.
 *   3. A file of Hugging Face names a number by at most one key per family.
 * Floor 1: base, layout. Order: Local.
 */
#ifndef TUTTI_MODEL_NUMBERS_H
#define TUTTI_MODEL_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/conf.h"
#include "layout/packing.h"
#include "model/families.h"
#include "model/layer_kinds.h"
#include "model/layer_pattern.h"

enum rope_kind { ROPE_LLAMA3, ROPE_LINEAR, ROPE_DYNAMIC, ROPE_LONG }; /* words of rope_scaling.kind */
enum { MTP_DEPTH_MOST = 8 };                                          /* of mtp.depth's range */
enum qk_norm { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_ALL };
enum norm_place { NORM_BEFORE, NORM_AFTER, NORM_BOTH };
enum score_at { SCORE_AT_END, SCORE_AT_TEXT }; /* words of score_at */
enum feed_forward_kind { FEED_FORWARD_RELU, FEED_FORWARD_GATED };
enum head_scale { HEAD_SCALE_TIED, HEAD_SCALE_ALWAYS, HEAD_SCALE_NEVER }; /* words of head_scale */
enum gate_kind { GATE_SILU, GATE_GELU_TANH, GATE_SWISH };

enum moe_aux_scope {
    MOE_AUX_SEQUENCE,
    MOE_AUX_MICROBATCH
}; /* words of moe.aux_scope; those of moe.score are kernel/attrs.h's moe_score */

#define NUMBER_INT int64_t
#define NUMBER_REAL double
#define NUMBER_BOOL bool
#define NUMBER_CHOICE int
#define NUMBER_WORD struct layer_pattern
#define NUMBER_NUMBERS struct conf_numbers

/* Low-rank adapters beside frozen matrices (nn/adapter.h). */
enum adapter_kind { ADAPTER_NONE, ADAPTER_LORA, ADAPTER_DORA }; /* words of adapter.kind */
struct adapter {
    int64_t rank;
    double alpha;               /* what they add is multiplied by alpha / rank, */
    bool stabilised;            /* or by alpha / sqrt(rank) (rsLoRA) */
    bool lengths;               /* rows' lengths are trained by themselves (DoRA) */
    enum packing base;          /* of the matrices that keep their values (QLoRA) */
    const char *const *targets; /* patterns of names; borrowed */
    int n_targets;
};

/* The fields, in groups: hidden, moe.top_k (struct moe_config), mla.kv_rank (struct mla_config), ... */
struct model_config {
    enum model_family family;
    const struct adapter *adapter; /* NULL: none; borrowed */
    bool by_token;  /* the loss of each token is told and weighed by itself, and has the same bits when the text is
                       written */
    bool scores;    /* a reward model: a number for a text, read at its last token, instead of what comes next */
    bool pads;      /* what the encoder reads may end before its places do: a token whose position is negative is not
                       there (t5) */
    bool by_length; /* whoever writes texts: positions turn by the length of each (model_turns_by_length), not by
                       seq_len */
#define NUMBER(type, group, name, ...) NUMBER_##type name;
#define GROUP(name) struct name##_config {
#define END(name)                                                                                                      \
    }                                                                                                                  \
    name;
#include "model/numbers.def"
};

/* What computes it, by its family. */
static inline enum family_blocks model_made_of(const struct model_config *c)
{
    return model_families[c->family].blocks;
}
/* Whether samples are pictures with a class; else they are texts. */
static inline bool model_sees(const struct model_config *c) { return model_made_of(c) == BLOCKS_VIT; }
/* Whether texts have pictures in them (nn/vision.c). */
static inline bool model_looks(const struct model_config *c) { return model_made_of(c) == BLOCKS_LLAVA; }
/* Whether it is an encoder of texts (nn/bert.c), which may be of two segments. */
static inline bool model_encodes(const struct model_config *c) { return model_made_of(c) == BLOCKS_BERT; }
/* Whether there are an encoder and a decoder (nn/t5.c): a sample is what the one reads, then what the other does. */
static inline bool model_pairs(const struct model_config *c) { return model_made_of(c) == BLOCKS_T5; }
/* Whether what goes into its output matrix is divided by the root of hidden. */
static inline bool model_scales_head(const struct model_config *c)
{
    return model_pairs(c) &&
           (c->head_scale == HEAD_SCALE_TIED ? c->tie_embeddings : c->head_scale == HEAD_SCALE_ALWAYS);
}
/* Whether a place sees those after it, too: such a model predicts no next token of a text that it is given, and writes
 * nothing here. */
static inline bool model_both_ways(const struct model_config *c)
{
    return model_sees(c) || model_encodes(c) || model_pairs(c);
}
/* Whether it tells classes, of pictures or of texts: a target is one of model.classes. */
static inline bool model_tells(const struct model_config *c)
{
    return model_both_ways(c) && !model_pairs(c) && c->classes > 0;
}
/* Whether what it is trained to tell are tokens of its input that were hidden from it. */
static inline bool model_unmasks(const struct model_config *c) { return model_encodes(c) && !c->classes; }
/* Whether each layer is of one of several kinds, by model.pattern (nn/hybrid.c). */
static inline bool model_mixes(const struct model_config *c) { return model_made_of(c) == BLOCKS_NEMOTRON_H; }
/* Whether there are state spaces (nn/mamba.c): all layers, or some. */
static inline bool model_scans(const struct model_config *c)
{
    return model_made_of(c) == BLOCKS_MAMBA2 || model_mixes(c);
}
/* Its family has experts in every form. */
static inline bool model_wants_experts(const struct model_config *c) { return model_families[c->family].wants_experts; }
/* Whether there is a form of it that scores texts: decoders of plain text whose layers are attention. */
static inline bool model_may_score(const struct model_config *c)
{
    return !model_both_ways(c) && !model_looks(c) && !model_scans(c);
}
/* Columns of what a decoder's head makes of a token. */
static inline int64_t model_outputs(const struct model_config *c) { return c->scores ? 1 : c->vocab; }
/* Whether there is attention: in all layers, or in some. */
static inline bool model_attends(const struct model_config *c) { return model_made_of(c) != BLOCKS_MAMBA2; }
/* What a layer is, where it is one thing; of the other families each layer is attention and a feed-forward layer. */
static inline enum layer_kind model_layer_kind(const struct model_config *c, int64_t layer)
{
    if (model_mixes(c)) return layer_kind_at(&c->pattern, layer);
    return model_made_of(c) == BLOCKS_MAMBA2 ? LAYER_SCAN : LAYER_BOTH;
}
static inline bool model_layer_scans(const struct model_config *c, int64_t layer)
{
    return model_layer_kind(c, layer) == LAYER_SCAN;
}
static inline bool model_layer_attends(const struct model_config *c, int64_t layer)
{
    return model_layer_kind(c, layer) == LAYER_ATTENTION || model_layer_kind(c, layer) == LAYER_BOTH;
}
/* Blocks of llama.c: rotary positions, norms of the root of squares, gated feed-forward layers. */
static inline bool model_decodes(const struct model_config *c)
{
    return model_made_of(c) == BLOCKS_DECODER || model_looks(c);
}
/* Keys that a token of this layer sees, itself among them; 0: all before it. */
static inline int64_t model_window(const struct model_config *c, int64_t layer)
{
    return model_decodes(c) && layer_pattern_has(&c->attn.local, layer) ? c->attn.window : 0;
}
/* Whether a prompt's tokens see each other in both directions. */
static inline bool model_prefixes(const struct model_config *c) { return model_decodes(c) && c->attn.prefix; }
/* Whether each head has a score without a key in its softmax. */
static inline bool model_sinks(const struct model_config *c) { return model_decodes(c) && c->attn.sinks; }
static inline bool model_layer_turns(const struct model_config *c, int64_t layer)
{
    return model_decodes(c) && layer_pattern_has(&c->attn.rope, layer);
}
/* Columns of a head that positions turn. */
static inline int64_t model_turned(const struct model_config *c)
{
    if (c->mla.kv_rank) return c->mla.rope_dim;
    return c->rope_part > 0 ? (int64_t)((double)c->head_dim * c->rope_part) : c->head_dim;
}
/* Whether texts of more than rope_scaling.original_max_position tokens turn otherwise than shorter ones, pair by pair.
 */
static inline bool model_long_rope(const struct model_config *c)
{
    return model_decodes(c) && c->rope_scaling.factor > 0 && c->rope_scaling.kind == ROPE_LONG;
}
static inline bool model_layer_is_moe(const struct model_config *c, int64_t layer)
{
    return c->moe.experts && layer >= c->moe.first_dense && layer_pattern_has(&c->moe.sparse, layer);
}
/* Layers, and behind them those of the modules that predict further tokens. */
static inline int64_t model_blocks(const struct model_config *c) { return c->layers + c->mtp.depth; }
/* Layers with experts. */
static inline int64_t model_moe_layers(const struct model_config *c)
{
    int64_t n = 0;
    for (int64_t l = 0; l < c->layers; l++) n += model_layer_is_moe(c, l);
    return n;
}
/* Values of a sample's pictures; 0: there are none. */
static inline int64_t model_pixels(const struct model_config *c)
{
    const struct vision_config *v = &c->vision;
    if (model_looks(c)) return v->images * v->channels * v->image_size * v->image_size;
    return model_sees(c) ? c->channels * c->image_size * c->image_size : 0;
}
/* Of a picture in a text: its patches, which are so many tokens; and its rows in the tower. */
static inline int64_t vision_patches(const struct vision_config *v)
{
    int64_t side = v->image_size / v->patch_size;
    return side * side;
}
static inline int64_t vision_places(const struct vision_config *v) { return vision_patches(v) + v->class_place; }
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
    NEED_RAMP,
    NEED_LONG,
    NEED_DECODER,
    NEED_WINDOW,
    NEED_EXPERTS,
    NEED_GROUPS,
    NEED_BIAS,
    NEED_LATENT,
    NEED_AHEAD,
    NEED_TEXT,
    NEED_PICTURES,
    NEED_TOWER,
    NEED_CLASSES,
    NEED_SEGMENTS,
    NEED_PAIRS,
    NEED_SCORE,
    NEED_ATTENTION,
    NEED_SCAN,
    NEED_KINDS
};

/* Where a key of Hugging Face stands: in config.json of these families (1 << enum hf_family), or in its object of
 * rotary positions, or that of the tower, when that is of this type. */
enum {
    IN_DEFAULT = 1 << HF_N,
    IN_LLAMA3 = 2 << HF_N,
    IN_YARN = 4 << HF_N,
    IN_LINEAR = 8 << HF_N,
    IN_DYNAMIC = 16 << HF_N,
    IN_CLIP = 32 << HF_N, /* the tower of LLaVA, by its model_type */
    IN_SIGLIP = 64 << HF_N,
    IN_TOWER = IN_CLIP | IN_SIGLIP,
    IN_LONGROPE = 256 << HF_N,
    IN_LLAVA = 128 << HF_N /* config.json of LLaVA itself; 1 << HF_LLAVA is its text_config */
};
_Static_assert(HF_N <= 22, "a bit for each family of Hugging Face and each object, in an int: give them 64");

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

enum { NUMBER_SPELLINGS = 8 };
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
