/* SPDX-License-Identifier: Apache-2.0 */
/* numbers.c: numbers.def as a table in memory. What rows share, the conditions under which a number has an effect, is a
 * table of its own. */
#include "model/numbers.h"

#include <string.h>

#include "model/family_letters.h"

enum {
    MAY = SPELT_MAY,
    NEEDED = SPELT_NEEDED,
    ZERO = SPELT_ZERO,
    NONE_IF_NULL = SPELT_NONE_IF_NULL,
    UNUSUAL = SPELT_UNUSUAL,
    WRITTEN = SPELT_WRITTEN,
    ASIDE = SPELT_ASIDE,
    NULL_IF_NONE = SPELT_NULL_IF_NONE
};
enum { SOFTMAX, SIGMOID }; /* words of moe.score */

#define RANGE(from, to) .lo = from, .hi = to
#define WORDS(words) .choices = words
#define EITHER .choices = NULL
#define LAYERS .n = LAYER_PATTERN_BYTES, .fits = layer_pattern_wanted
#define KINDS .n = LAYER_PATTERN_BYTES, .fits = layer_kinds_wanted
#define THEIRS(where, name, place, flags, usual)                                                                       \
    {                                                                                                                  \
        where, name, place, flags, usual                                                                               \
    }
#define FIXED(where, value)                                                                                            \
    {                                                                                                                  \
        where, NULL, 0, MAY, value                                                                                     \
    }

/* clang-format off */
const struct number model_numbers[] = {
#define NUMBER(kind, group, name, usual, limits, part, wants, text, ...)                                                            \
    {.row = {.path = "model." #group #name, .type = CONF_##kind, .offset = offsetof(struct model_config, group name),                \
             .otherwise = usual, limits, .doc = text},                                                                              \
     .role = NUMBER_##part, .need = NEED_##wants, .theirs = {__VA_ARGS__}},
#define GROUP(name)
#define END(name)
#include "model/numbers.def"
    {.row = {.path = NULL}},
};
/* clang-format on */

const struct number *number_find(const char *key)
{
    for (const struct number *n = model_numbers; n->row.path; n++)
        if (!strcmp(n->row.path, key)) return n;
    return NULL;
}

static bool always(const struct model_config *c) { return c != NULL; }
static bool sees(const struct model_config *c) { return model_sees(c); }
static bool looks(const struct model_config *c) { return model_looks(c); }
static bool reads(const struct model_config *c) { return !model_sees(c); }
static bool pairs(const struct model_config *c) { return model_pairs(c); }
static bool scores(const struct model_config *c) { return c->scores; }
static bool tells(const struct model_config *c) { return model_both_ways(c) && !model_pairs(c); }
static bool has_segments(const struct model_config *c) { return model_encodes(c); }
static bool has_attention(const struct model_config *c) { return model_attends(c); }
static bool has_scan(const struct model_config *c) { return model_scans(c); }
static bool has_kinds(const struct model_config *c) { return model_mixes(c); }
static bool has_rotary(const struct model_config *c) { return model_decodes(c); }
static bool has_llama3(const struct model_config *c) { return has_rotary(c) && c->rope_scaling.factor > 0; }
static bool has_ramp(const struct model_config *c) { return has_llama3(c) && c->rope_scaling.kind == ROPE_LLAMA3; }
static bool has_long(const struct model_config *c) { return has_llama3(c) && c->rope_scaling.kind == ROPE_LONG; }
static bool has_window(const struct model_config *c) { return has_rotary(c) && c->attn.window > 0; }
static bool has_yarn(const struct model_config *c) { return has_rotary(c) && c->yarn.factor > 0; }
static bool is_scaled(const struct model_config *c) { return has_llama3(c) || has_yarn(c); }
static bool has_experts(const struct model_config *c) { return c->moe.experts > 0; }
static bool has_groups(const struct model_config *c) { return has_experts(c) && c->moe.groups > 0; }
static bool has_bias(const struct model_config *c) { return has_experts(c) && c->moe.bias; }
static bool looks_ahead(const struct model_config *c) { return c->mtp.depth > 0; }
static bool is_latent(const struct model_config *c) { return c->mla.kv_rank > 0; }

static const struct {
    bool (*met)(const struct model_config *c);
    const char *idle;
} needs[] = {
    [NEED_ALWAYS] = {always, ""},
    [NEED_ROTARY] = {has_rotary, "gpt2, vit, bert, t5, mamba2 and nemotron_h have no rotary positions"},
    [NEED_LLAMA3] = {has_llama3, "model.rope_scaling.factor is 0"},
    [NEED_RAMP] = {has_ramp, "positions are not scaled as Llama 3's (model.rope_scaling)"},
    [NEED_LONG] = {has_long, "positions are not scaled by longrope (model.rope_scaling)"},
    [NEED_DECODER] = {has_rotary, "gpt2, vit, bert, t5, mamba2 and nemotron_h have blocks of their own"},
    [NEED_WINDOW] = {has_window, "model.attn.window is 0: no layer is local"},
    [NEED_YARN] = {has_yarn, "model.yarn.factor is 0"},
    [NEED_SCALED] = {is_scaled, "model.rope_scaling.factor and model.yarn.factor are 0"},
    [NEED_EXPERTS] = {has_experts, "model.moe.experts is 0"},
    [NEED_GROUPS] = {has_groups, "model.moe.groups is 0"},
    [NEED_BIAS] = {has_bias, "model.moe.bias is false"},
    [NEED_AHEAD] = {looks_ahead, "model.mtp.depth is 0"},
    [NEED_LATENT] = {is_latent, "model.mla.kv_rank is 0"},
    [NEED_TEXT] = {reads, "vit sees pictures and reads no text"},
    [NEED_PICTURES] = {sees, "only vit sees pictures"},
    [NEED_TOWER] = {looks, "only llava sees pictures in texts"},
    [NEED_CLASSES] = {tells, "only vit and bert tell classes and have a choice of it"},
    [NEED_PAIRS] = {pairs, "only t5 has an encoder and a decoder"},
    [NEED_SCORE] = {scores, "train.objective is not reward"},
    [NEED_SEGMENTS] = {has_segments, "only bert has segments"},
    [NEED_ATTENTION] = {has_attention, "mamba2 has no attention and no feed-forward layers; model.ssm has its sizes"},
    [NEED_SCAN] = {has_scan, "only mamba2 and nemotron_h have state spaces"},
    [NEED_KINDS] = {has_kinds, "only nemotron_h has layers of several kinds"},
};

bool number_needed(const struct number *n, const struct model_config *c) { return needs[n->need].met(c); }

const char *number_idle(const struct number *n) { return needs[n->need].idle; }
