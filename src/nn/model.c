/* SPDX-License-Identifier: Apache-2.0 */
/* What the families share: checks, rotary angles, counts; and the walk embedding -> layers -> head. Each family
 * fills one row of a table (gpt2.c, llama.c). */
#include "nn/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernel/cache_runs.h"
#include "layout/sequence.h"
#include "model/rope.h"
#include "nn/adapter.h"
#include "nn/layers.h"

_Static_assert(SCORE_SOFTMAX == 0 && SCORE_SIGMOID == 1, "the words of moe.score in model/numbers.def");
_Static_assert(POOL_CLASS == 0 && POOL_MEAN == 1, "the words of pool in model/numbers.def");

static const struct family *const families[MODEL_N] = {[MODEL_GPT2] = &family_gpt2,
                                                       [MODEL_LLAMA] = &family_llama,
                                                       [MODEL_MIXTRAL] = &family_mixtral,
                                                       [MODEL_DEEPSEEK] = &family_deepseek,
                                                       [MODEL_VIT] = &family_vit,
                                                       [MODEL_BERT] = &family_bert,
                                                       [MODEL_MISTRAL] = &family_mistral,
                                                       [MODEL_QWEN2] = &family_qwen2,
                                                       [MODEL_QWEN3] = &family_qwen3,
                                                       [MODEL_QWEN3_MOE] = &family_qwen3_moe,
                                                       [MODEL_SMOLLM3] = &family_smollm3,
                                                       [MODEL_OLMO2] = &family_olmo2,
                                                       [MODEL_PHI3] = &family_phi3,
                                                       [MODEL_GEMMA2] = &family_gemma2,
                                                       [MODEL_GEMMA3] = &family_gemma3,
                                                       [MODEL_GPT_OSS] = &family_gpt_oss,
                                                       [MODEL_MAMBA2] = &family_mamba2,
                                                       [MODEL_LLAVA] = &family_llava,
                                                       [MODEL_NEMOTRON_H] = &family_nemotron_h,
                                                       [MODEL_T5] = &family_t5};

const char *model_family_name(enum model_family f) { return families[f]->name; }

/* The number nearest to n that divides `of`. */
static int64_t nearest_divisor(int64_t of, int64_t n)
{
    for (int64_t d = 0;; d++) {
        if (n - d > 0 && of % (n - d) == 0) return n - d;
        if (n + d <= of && of % (n + d) == 0) return n + d;
    }
}

static int check_experts(const struct model_config *c, struct err *e)
{
    const struct moe_config *m = &c->moe;
    bool family = c->family == MODEL_MIXTRAL || c->family == MODEL_DEEPSEEK || c->family == MODEL_QWEN3_MOE ||
                  c->family == MODEL_GPT_OSS;
    if (!model_decodes(c) && m->experts)
        return err_set(e, ERR_REQUEST, "model.moe.experts: %s has no experts; choose model.family mixtral or deepseek",
                       model_family_name(c->family));
    if (!m->experts)
        return family ? err_set(e, ERR_REQUEST, "model.moe.experts: %s wants a number of experts, 1 or more",
                                model_family_name(c->family))
                      : OK;
    if (m->top_k < 1 || m->top_k > m->experts)
        return err_set(e, ERR_REQUEST, "model.moe.top_k: wanted 1 to model.moe.experts = %" PRId64 ", got %" PRId64,
                       m->experts, m->top_k);
    if (c->family == MODEL_MIXTRAL && (m->score != SCORE_SOFTMAX || !m->norm_topk || m->scale != 1 || m->groups ||
                                       m->bias || m->shared || m->first_dense || model_moe_layers(c) != c->layers))
        return err_set(e, ERR_REQUEST,
                       "model.moe: mixtral has softmax scores scaled to sum 1, and no groups, bias, shared "
                       "experts or dense layers; the deepseek family has them");
    if (m->ffn < 1) return err_set(e, ERR_REQUEST, "model.moe.ffn: wanted 1 or more, got %lld", (long long)m->ffn);
    if (m->first_dense > c->layers)
        return err_set(e, ERR_REQUEST, "model.moe.first_dense: %" PRId64 " of %" PRId64 " layers; choose at most that",
                       m->first_dense, c->layers);
    if (!m->groups) return OK;
    if (m->experts % m->groups)
        return err_set(e, ERR_REQUEST,
                       "model.moe.groups: %" PRId64 " does not divide model.moe.experts = %" PRId64
                       "; the nearest that does is %" PRId64,
                       m->groups, m->experts,
                       nearest_divisor(m->experts, m->groups < m->experts ? m->groups : m->experts));
    if (m->top_groups < 1 || m->top_groups > m->groups || m->top_k > m->top_groups * (m->experts / m->groups))
        return err_set(e, ERR_REQUEST,
                       "model.moe.top_groups: wanted 1 to %" PRId64 " groups that together hold the %" PRId64
                       " chosen experts, got %" PRId64 " groups of %" PRId64,
                       m->groups, m->top_k, m->top_groups, m->experts / m->groups);
    if (m->group_pairs && m->experts / m->groups < 2)
        return err_set(e, ERR_REQUEST,
                       "model.moe.groups: a group that counts by its two largest scores needs two experts, %" PRId64
                       " groups of %" PRId64 " have fewer; choose at most %" PRId64,
                       m->groups, m->experts, m->experts / 2);
    return OK;
}

static int check_latent(const struct model_config *c, struct err *e)
{
    const struct mla_config *m = &c->mla;
    if ((m->kv_rank > 0) != (c->family == MODEL_DEEPSEEK))
        return err_set(e, ERR_REQUEST,
                       "model.mla.kv_rank: latent attention is the deepseek family's, and it has no other");
    if (!m->kv_rank) return OK;
    if (c->attn.qkv_bias || c->attn.o_bias || c->attn.sinks || c->attn.qk_norm || c->attn.scale_dim > 0 ||
        layer_pattern_count(&c->attn.rope, c->layers) != c->layers)
        return err_set(e, ERR_REQUEST,
                       "model.attn: latent attention has no biases, sinks or norms of heads, its own scale, and turns "
                       "in "
                       "every "
                       "layer; leave qkv_bias, o_bias, sinks, qk_norm, scale_dim and rope out");
    if (m->nope_dim < 1 || m->rope_dim < 2 || m->rope_dim % 2 || m->value_dim < 1)
        return err_set(e, ERR_REQUEST,
                       "model.mla.rope_dim: wanted an even number, and nope_dim and value_dim of 1 or more; "
                       "got %" PRId64 ", %" PRId64 ", %" PRId64,
                       m->rope_dim, m->nope_dim, m->value_dim);
    if (m->value_dim > m->nope_dim + m->rope_dim)
        return err_set(e, ERR_REQUEST,
                       "model.mla.value_dim: %" PRId64 " is more than a key's nope_dim + rope_dim = %" PRId64
                       "; choose at most that",
                       m->value_dim, m->nope_dim + m->rope_dim);
    if (c->head_dim != m->nope_dim + m->rope_dim || c->kv_heads != c->heads)
        return err_set(e, ERR_REQUEST,
                       "model.head_dim: latent attention has head_dim = nope_dim + rope_dim = %" PRId64 " and kv_heads "
                       "= heads = %" PRId64 "; leave both out",
                       m->nope_dim + m->rope_dim, c->heads);
    return OK;
}

/* What a model that reads text has, and one that sees pictures. */
static int check_vocabulary(const struct model_config *c, struct err *e)
{
    if (c->vocab < 2) return err_set(e, ERR_REQUEST, "model.vocab: wanted at least 2, got %lld", (long long)c->vocab);
    if (c->vocab > INT32_MAX)
        return err_set(e, ERR_REQUEST, "model.vocab: token ids are 32 bits, got %lld", (long long)c->vocab);
    return OK;
}

/* Of families whose keys have as many heads as their queries. */
static int check_equal_heads(const struct model_config *c, struct err *e)
{
    if (c->kv_heads == c->heads) return OK;
    return err_set(e, ERR_REQUEST,
                   "model.kv_heads: %" PRId64 ", but %s has as many as model.heads = %" PRId64 "; leave the key out",
                   c->kv_heads, model_family_name(c->family), c->heads);
}

/* An encoder and a decoder. */
static int check_pairs(const struct model_config *c, struct err *e)
{
    if (!model_pairs(c)) return OK;
    if (c->encoder_layers < 1 || c->encoder_layers >= c->layers)
        return err_set(e, ERR_REQUEST,
                       "model.encoder_layers: %" PRId64 " of model.layers = %" PRId64
                       "; encoder and decoder want one each at least",
                       c->encoder_layers, c->layers);
    if (c->buckets % 2)
        return err_set(e, ERR_REQUEST,
                       "model.buckets: %" PRId64 ", half of which are of places behind; choose an even number",
                       c->buckets);
    if (c->distance <= c->buckets / 2)
        return err_set(e, ERR_REQUEST,
                       "model.distance: %" PRId64 " is not beyond the distances that have a bucket of their own; "
                       "choose more than model.buckets / 2 = %" PRId64,
                       c->distance, c->buckets / 2);
    if (c->document_mask)
        return err_set(e, ERR_REQUEST,
                       "model.document_mask: a span that is taken out of one document is written beside those of "
                       "others; leave the key out");
    return check_equal_heads(c, e);
}

/* An encoder of text. */
static int check_encoder(const struct model_config *c, struct err *e)
{
    if (c->family != MODEL_BERT) return OK;
    if (c->classes == 1)
        return err_set(e, ERR_REQUEST,
                       "model.classes: of one class nothing is told; choose 2 or more, or leave the key out");
    if (c->types < 1)
        return err_set(e, ERR_REQUEST, "model.types: wanted 1 or more kinds of segments, got %" PRId64, c->types);
    if (c->classes && c->tie_embeddings)
        return err_set(e, ERR_REQUEST,
                       "model.tie_embeddings: a model that tells classes has no output matrix of tokens to share; "
                       "leave the key out");
    return check_equal_heads(c, e);
}

static int check_pictures(const struct model_config *c, struct err *e)
{
    if (c->classes < 2)
        return err_set(e, ERR_REQUEST,
                       "model.classes: %s wants to know how many kinds of pictures there are, 2 or more",
                       model_family_name(c->family));
    if (c->image_size % c->patch_size)
        return err_set(e, ERR_REQUEST,
                       "model.patch_size: %" PRId64 " does not divide model.image_size = %" PRId64
                       ", and pixels at the edges would be in no patch; the nearest that does is %" PRId64,
                       c->patch_size, c->image_size,
                       nearest_divisor(c->image_size, c->patch_size < c->image_size ? c->patch_size : c->image_size));
    if (model_places(c) > 1 << 24)
        return err_set(e, ERR_REQUEST,
                       "model.patch_size: pictures of %" PRId64 " rows in patches of %" PRId64 " make %" PRId64
                       " places, more than 2^24; choose larger patches",
                       c->image_size, c->patch_size, model_places(c));
    if (c->seq_len != model_places(c))
        return err_set(e, ERR_REQUEST,
                       "model.seq_len: %" PRId64 ", but a picture has %" PRId64 " places (its patches, and one for its "
                       "class); leave the key out",
                       c->seq_len, model_places(c));
    if (c->tie_embeddings)
        return err_set(e, ERR_REQUEST, "model.tie_embeddings: %s has no table of tokens to share; leave the key out",
                       model_family_name(c->family));
    if (c->document_mask)
        return err_set(e, ERR_REQUEST, "model.document_mask: %s sees one picture in a sequence; leave the key out",
                       model_family_name(c->family));
    return check_equal_heads(c, e);
}

/* A reward model. */
static int check_scores(const struct model_config *c, struct err *e)
{
    if (!model_may_score(c))
        return err_set(e, ERR_REQUEST,
                       "model.family: %s has no form with a score; reward models are decoders of text with attention "
                       "(gpt2, llama, mistral, qwen2, qwen3, smollm3, olmo2, phi3, gemma2, gemma3)",
                       model_family_name(c->family));
    if (c->mtp.depth)
        return err_set(e, ERR_REQUEST, "model.mtp.depth: a reward model tells nothing of further tokens; choose 0");
    if (c->tie_embeddings)
        return err_set(e, ERR_REQUEST,
                       "model.tie_embeddings: a reward model has no output matrix of tokens to share; leave the key "
                       "out");
    return OK;
}

/* State spaces, and nothing of attention. */
static int check_scan(const struct model_config *c, struct err *e)
{
    const struct ssm_config *s = &c->ssm;
    if (!model_scans(c)) return OK;
    if (s->heads < 1)
        return err_set(e, ERR_REQUEST,
                       "model.ssm.heads: wanted 1 or more; 2 hidden = %" PRId64 " columns make no head of %" PRId64
                       " (model.ssm.head_dim)",
                       2 * c->hidden, s->head_dim);
    if (s->heads % s->groups)
        return err_set(e, ERR_REQUEST,
                       "model.ssm.groups: %" PRId64 " does not divide model.ssm.heads = %" PRId64
                       "; the nearest that does is %" PRId64,
                       s->groups, s->heads, nearest_divisor(s->heads, s->groups < s->heads ? s->groups : s->heads));
    if (s->step_most > 0 && s->step_most <= s->step_least)
        return err_set(e, ERR_REQUEST, "model.ssm.step_most: %g is not more than step_least = %g", s->step_most,
                       s->step_least);
    return OK;
}

/* Layers of several kinds: a pattern that fits the model. */
static int check_kinds(const struct model_config *c, struct err *e)
{
    if (!model_mixes(c)) return OK;
    const char *wanted = layer_kinds_wanted(c->pattern.text);
    if (wanted) return err_set(e, ERR_REQUEST, "model.pattern: wanted %s; got '%s'", wanted, c->pattern.text);
    if (layer_kinds_length(&c->pattern) > c->layers)
        return err_set(e, ERR_REQUEST,
                       "model.layers: %" PRId64 ", but model.pattern names %" PRId64
                       " layers; leave the key out, or choose %" PRId64,
                       c->layers, layer_kinds_length(&c->pattern), layer_kinds_length(&c->pattern));
    if (layer_kinds_have(&c->pattern, LAYER_SCAN)) return OK;
    return err_set(e, ERR_REQUEST,
                   "model.pattern: '%s' has no state space (M); nemotron_h is a hybrid with them, other families have "
                   "none; write M in the place of a letter",
                   c->pattern.text);
}

/* Prompts that are seen in both directions. */
static int check_prefix(const struct model_config *c, struct err *e)
{
    if (!model_prefixes(c)) return OK;
    if (c->attn.window > 0)
        return err_set(e, ERR_REQUEST,
                       "model.attn.prefix: what a window leaves of a prefix is not agreed on; choose "
                       "model.attn.window: 0, or no prefix");
    if (c->mtp.depth)
        return err_set(e, ERR_REQUEST,
                       "model.attn.prefix: a module for further tokens would see the answer's first token in the "
                       "prompt's "
                       "last place; choose model.mtp.depth: 0, or no prefix");
    return OK;
}

/* Whether local layers have angles of their own. */
static bool has_near(const struct model_config *c) { return c->attn.window > 0 && c->attn.local_theta > 0; }

/* Positions that turn pairs of columns. */
static int check_rotary(const struct model_config *c, struct err *e)
{
    const struct rope_scaling_config *r = &c->rope_scaling;
    int64_t turned = model_turned(c);
    if (families[c->family]->uses_rope && !c->mla.kv_rank && (turned % 2 || turned < 2))
        return err_set(e, ERR_REQUEST,
                       "%s: rotary positions turn pairs of numbers, so the columns of a head that turn must be even, "
                       "got "
                       "%" PRId64 " (head_dim %" PRId64 ", hidden %lld / heads %" PRId64 ")",
                       turned == c->head_dim ? "model.head_dim" : "model.rope_part", turned, c->head_dim,
                       (long long)c->hidden, c->heads);
    if (!model_long_rope(c)) return OK;
    for (int i = 0; i < 2; i++) {
        const struct conf_numbers *list = i ? &r->long_factors : &r->short_factors;
        if (list->n != turned / 2)
            return err_set(e, ERR_REQUEST,
                           "model.rope_scaling.%s_factors: %" PRId64 " numbers; the %" PRId64
                           " columns of a head that turn are %" PRId64 " pairs, and each has one",
                           i ? "long" : "short", list->n, turned, turned / 2);
    }
    if (r->original_max_position < 2)
        return err_set(e, ERR_REQUEST, "model.rope_scaling.original_max_position: wanted 2 or more, got %" PRId64,
                       r->original_max_position);
    if (has_near(c))
        return err_set(e, ERR_REQUEST,
                       "model.attn.local_theta: local layers with angles of their own beside longrope are not computed "
                       "here; choose 0, or another model.rope_scaling.kind");
    return OK;
}

int model_check(const struct model_config *c, struct err *e)
{
    int rc = check_scan(c, e);
    if (rc) return rc;
    rc = check_kinds(c, e);
    if (rc) return rc;
    bool attends = model_attends(c);
    if (attends && (c->kv_heads > c->heads || c->heads % c->kv_heads))
        return err_set(e, ERR_REQUEST,
                       "model.kv_heads: %" PRId64 " does not divide model.heads = %" PRId64
                       "; the nearest that does is %" PRId64,
                       c->kv_heads, c->heads,
                       nearest_divisor(c->heads, c->kv_heads < c->heads ? c->kv_heads : c->heads));
    if (attends && c->head_dim < 1)
        return err_set(e, ERR_REQUEST,
                       "model.heads: %" PRId64 " heads do not divide model.hidden = %lld; choose heads that do, "
                       "or give model.head_dim",
                       c->heads, (long long)c->hidden);
    rc = check_experts(c, e);
    if (!rc) rc = check_latent(c, e);
    if (!rc) rc = check_rotary(c, e);
    if (!rc) rc = check_prefix(c, e);
    if (rc) return rc;
    rc = model_sees(c) ? check_pictures(c, e) : check_vocabulary(c, e);
    if (!rc) rc = check_encoder(c, e);
    if (!rc) rc = check_pairs(c, e);
    if (rc) return rc;
    if (c->scores && (rc = check_scores(c, e))) return rc;
    if (model_looks(c) && (rc = vision_check(c, e))) return rc;
    if (c->mtp.depth && model_looks(c))
        return err_set(e, ERR_REQUEST,
                       "model.mtp.depth: tokens ahead may be places of pictures, which modules for further tokens do "
                       "not see; choose 0");
    if (c->dropout < 0 || c->dropout >= 1)
        return err_set(e, ERR_REQUEST, "model.dropout: wanted 0 <= p < 1, got %g", c->dropout);
    return model_check_size(c, e);
}

void model_declare(const struct model_config *c, const struct par *par, struct param_table *t)
{
    struct par single = par_single();
    if (!par) par = &single;
    t->mesh = par_mesh(par, &t->rank);
    struct declare_ctx x = {c, par, t, ""};
    families[c->family]->declare(&x);
    if (c->adapter) adapter_declare(&x);
}

int model_check_adapter(const struct model_config *c, const struct param_table *t, struct err *e)
{
    return c->adapter ? adapter_check(c->adapter, t, e) : OK;
}

/* YaRN's: what turns many times over the original length is kept, what turns less than once is stretched, a ramp over
 * the pairs between. */
static double yarn_frequency(const struct model_config *c, int i, int64_t cols)
{
    const struct yarn_config *y = &c->yarn;
    double theta = c->rope_theta, freq = pow(theta, -2.0 * i / (double)cols),
           n = (double)c->rope_scaling.original_max_position, pi = acos(-1.0);
    double low = (double)cols * log(n / (y->beta_fast * 2 * pi)) / (2 * log(theta));
    double high = (double)cols * log(n / (y->beta_slow * 2 * pi)) / (2 * log(theta));
    low = fmax(y->truncate ? floor(low) : low, 0);
    high = fmin(y->truncate ? ceil(high) : high, (double)cols - 1);
    double ramp = fmin(1, fmax(0, (i - low) / (high == low ? 0.001 : high - low)));
    return freq / y->factor * ramp + freq * (1 - ramp);
}

static double yarn_mscale(double factor, double m) { return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1; }

double yarn_angles(const struct model_config *c)
{
    const struct yarn_config *y = &c->yarn;
    if (y->factor == 0) return 1;
    if (y->mscale != 0 && y->mscale_all_dim != 0)
        return yarn_mscale(y->factor, y->mscale) / yarn_mscale(y->factor, y->mscale_all_dim);
    return yarn_mscale(y->factor, 1);
}

double yarn_scores(const struct model_config *c)
{
    if (c->yarn.factor == 0 || c->yarn.mscale_all_dim == 0) return 1;
    double m = yarn_mscale(c->yarn.factor, c->yarn.mscale_all_dim);
    return m * m;
}

int64_t model_rope_cols(const struct model_config *c) { return families[c->family]->uses_rope ? model_turned(c) : 0; }

int64_t model_rope_rows(const struct model_config *c)
{
    return has_near(c) || model_turns_by_length(c) ? 2 * c->max_positions : c->max_positions;
}

/* Dynamic scaling: for texts of more tokens than the model saw at first the base is raised, so that the slowest pair
 * turns as far over them as it did (bloc97 2023, "Dynamically scaled RoPE"). A run's texts are all of seq_len. */
static double base_of(const struct model_config *c, int64_t cols)
{
    const struct rope_scaling_config *r = &c->rope_scaling;
    double longer = (double)c->seq_len / (double)r->original_max_position;
    if (r->factor == 0 || r->kind != ROPE_DYNAMIC || longer <= 1 || cols <= 2) return c->rope_theta;
    return c->rope_theta * pow(r->factor * longer - (r->factor - 1), (double)cols / (double)(cols - 2));
}

/* Of local layers with a base of their own: nothing is scaled. */
static void near_rope_table(const struct model_config *c, float *out)
{
    int64_t cols = model_rope_cols(c), half = cols / 2;
    for (int64_t p = 0; p < c->max_positions; p++)
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)p * pow(c->attn.local_theta, -2.0 * (double)i / (double)cols);
            out[p * cols + i] = (float)cos(angle);
            out[p * cols + half + i] = (float)sin(angle);
        }
}

/* LongRoPE (Ding et al. 2024): each pair's frequency is divided by a number of its own, of one list in texts of at most
 * the original length and of another in longer ones; what is turned is multiplied by one number in both. */
static void long_rope_table(const struct model_config *c, bool longer, float *out)
{
    const struct rope_scaling_config *r = &c->rope_scaling;
    const struct conf_numbers *by = longer ? &r->long_factors : &r->short_factors;
    int64_t cols = model_rope_cols(c), half = cols / 2;
    double scale = r->attention_factor;
    if (scale <= 0) scale = r->factor <= 1 ? 1 : sqrt(1 + log(r->factor) / log((double)r->original_max_position));
    for (int64_t i = 0; i < half; i++) {
        double freq = pow(c->rope_theta, -2.0 * (double)i / (double)cols) / by->v[i];
        for (int64_t p = 0; p < c->max_positions; p++) {
            out[p * cols + i] = (float)(scale * cos((double)p * freq));
            out[p * cols + half + i] = (float)(scale * sin((double)p * freq));
        }
    }
}

void model_rope_table(const struct model_config *c, float *out)
{
    int64_t cols = model_rope_cols(c), half = cols / 2;
    double scale = yarn_angles(c), base = base_of(c, cols);
    if (has_near(c)) near_rope_table(c, out + c->max_positions * cols);
    if (model_long_rope(c)) {
        bool each = model_turns_by_length(c);
        long_rope_table(c, !each && c->seq_len > c->rope_scaling.original_max_position, out);
        if (each) long_rope_table(c, true, out + c->max_positions * cols);
        return;
    }
    for (int i = 0; i < half; i++) {
        double freq = c->yarn.factor != 0 ? yarn_frequency(c, i, cols)
                                          : rope_stretched(&c->rope_scaling, pow(base, -2.0 * i / (double)cols));
        for (int64_t p = 0; p < c->max_positions; p++) {
            out[p * cols + i] = (float)(scale * cos((double)p * freq));
            out[p * cols + half + i] = (float)(scale * sin((double)p * freq));
        }
    }
}

/* Tokens differ along the data axes, and cp shares out those of every sequence; everything else is the same on every
 * rank. */
static struct spmd_type type_tokens(enum spmd over_cp)
{
    struct spmd_type t = spmd_all(SPMD_I);
    t = spmd_with(t, AXIS_DP_REPLICATE, SPMD_V);
    t = spmd_with(t, AXIS_DP_SHARD, SPMD_V);
    return spmd_with(t, AXIS_CP, over_cp);
}

/* Replicated over the data axes: the gradient is a sum over them. */
static struct layout weight_over(const struct mesh *m, struct shape n, const struct declare *d)
{
    struct layout l = layout_on(m, MESH_DENSE, n, SPMD_I);
    l = layout_with(layout_with(layout_with(l, AXIS_DP_REPLICATE, SPMD_R), AXIS_DP_SHARD, SPMD_R), AXIS_CP, SPMD_R);
    return d->unit && spmd_is_shard(d->over_tp) ? layout_with_unit(l, AXIS_TP, d->over_tp, d->unit)
                                                : layout_with(l, AXIS_TP, d->over_tp);
}

static void print_name(char name[PARAM_NAME], const char *prefix, const char *fmt, va_list ap)
{
    size_t n = (size_t)snprintf(name, PARAM_NAME, "%s", prefix);
    vsnprintf(name + n, PARAM_NAME - n, fmt, ap);
}

void layer_declare(struct declare_ctx *x, struct declare d, int nd, const int64_t *n, const char *fmt, ...)
{
    char name[PARAM_NAME];
    va_list ap;
    va_start(ap, fmt);
    print_name(name, x->prefix, fmt, ap);
    va_end(ap);
    bool tower = x->prefix[0] && d.layer >= 0; /* its layers are units of their own, before all others */
    int i = param_add(x->t, name, weight_over(&x->t->mesh, shape_of(nd, n), &d), d.init, d.std,
                      tower ? LAYER_TOWER - d.layer : d.layer);
    if (tower && nd >= 2) x->t->p[i].group = PARAM_MATRICES;
}

struct vocab_attrs vocab_here(const struct model_config *c, const struct par *p)
{
    int64_t lo, hi;
    par_share(p, AXIS_TP, c->vocab, &lo, &hi);
    return (struct vocab_attrs){.first = lo, .whole = c->vocab, .n_parts = p->size[AXIS_TP]};
}

enum spmd over_vocab(const struct par *p) { return p->size[AXIS_TP] > 1 ? SPMD_S0 : SPMD_I; }

/* The root of hidden, as a number of the compute dtype: theirs is one. */
static float embed_scale(const struct layer_ctx *x)
{
    float root = sqrtf((float)x->c->hidden);
    if (!model_decodes(x->c) || !x->c->scale_embedding) return 0;
    if (x->s->dtype == DT_F32) return root;
    return x->s->dtype == DT_BF16 ? bf16_to_f32(bf16_from_f32(root)) : f16_to_f32(f16_from_f32(root));
}

tid embed_tokens(struct layer_ctx *x, tid ids_T)
{
    struct vocab_attrs all = {.scale = embed_scale(x)}, here = vocab_here(x->c, x->par);
    here.scale = all.scale;
    tid w_VD = layer_param(x, 1, "embed.token");
    if (x->par->size[AXIS_TP] == 1) return op_embed(x->t, ids_T, w_VD, all, "embed.token");
    return region_leave(x, op_embed(x->t, ids_T, w_VD, here, "embed.token"));
}

/* What the stage before sends: the stream as it lies here. */
static tid stream_arrives(struct layer_ctx *x, struct spmd_type type)
{
    int64_t lo = 0, hi = x->tokens;
    if (x->par->sequence) {
        par_share(x->par, AXIS_TP, hi, &lo, &hi);
        type = spmd_with(type, AXIS_TP, SPMD_S0);
    }
    return tape_stage_in(x->t, "stage.in", SLOT_STAGE_IN, SLOT_STAGE_DIN, x->s->dtype, 2,
                         (int64_t[]){hi - lo, x->c->hidden}, type);
}

/* What the stage before sends is the stage's own from here on: entering changes what is done with its gradient. Where
 * norms stand behind what they are of (BERT, OLMo-2), a stage's first layer enters with nothing between. */
static tid own_stream(struct layer_ctx *x, tid h_TD)
{
    if (x->t->err.code) return h_TD;
    const struct tensor *h = tape_tensor(x->t, h_TD);
    if (tape_tensor(x->t, h->root)->kind == TENSOR_LOCAL) return h_TD;
    return tape_record(x->t, OP_COPY, &(struct op_attrs){0}, 1, &h_TD, h->dtype, "stage.own");
}

tid region_enter(struct layer_ctx *x, tid h_TD)
{
    if (x->par->sequence) return par_gather(x->t, x->par, h_TD, AXIS_TP, x->tokens);
    return par_enter(x->t, x->par, x->par->size[AXIS_TP] > 1 ? own_stream(x, h_TD) : h_TD, AXIS_TP);
}

tid region_leave(struct layer_ctx *x, tid partial_TD)
{
    if (x->par->sequence) return par_scatter(x->t, x->par, partial_TD, AXIS_TP);
    return par_reduce(x->t, x->par, partial_TD, AXIS_TP);
}

tid layer_param(struct layer_ctx *x, int span, const char *fmt, ...)
{
    char name[PARAM_NAME];
    va_list ap;
    va_start(ap, fmt);
    print_name(name, x->prefix, fmt, ap);
    va_end(ap);
    int i = param_find(x->params, name);
    CHECK(i >= 0, "the model declares no parameter %s", name);
    const struct param *p = &x->params->p[i];
    int64_t n[PARAM_MAX_DIM];
    for (int k = 0; k < p->nd; k++) n[k] = p->ln[k];
    for (int k = 1; k < span; k++) {
        const struct param *q = &x->params->p[i + k];
        CHECK(q->nd == p->nd && (p->nd < 2 || q->ln[1] == p->ln[1]) && spmd_equal(q->type, p->type),
              "%s and %s do not form one matrix", p->name, q->name);
        if (q->frozen != p->frozen && !x->t->err.code)
            err_set(&x->t->err, ERR_REQUEST,
                    "train.freeze, train.only: %s is frozen and %s is not, and one product makes both; freeze both, or "
                    "neither",
                    p->frozen ? p->name : q->name, p->frozen ? q->name : p->name);
        n[0] += q->ln[0];
    }
    for (int a = 0; a < AXIS_N && !x->t->err.code; a++)
        if (p->type.on[a] == SPMD_V)
            err_set(&x->t->err, ERR_REQUEST, "%s over %s: a parameter does not differ by rank: whole, cut or partial",
                    p->name, axis_name((enum axis)a));
    if (x->param_tid[i] < 0 || span > 1)
        x->param_tid[i] =
            tape_param(x->t, p->name, slot_param(i), p->frozen ? -1 : slot_grad(i), x->s->dtype, p->nd, n, p->type);
    return x->param_tid[i];
}

tid layer_linear(struct layer_ctx *x, tid h, tid w, tid bias, bool bias_off, const char *name)
{
    tid own = adapter_bias(x, w, bias), y = coded_record(x, h, w, own, bias_off, TID_NONE, 0, name);
    if (y < 0) y = op_linear_partial(x->t, h, w, own, bias_off, name);
    return adapter_record(x, h, w, y,
                          &(struct adapter_how){.rows_E = TID_NONE,
                                                .bias = own == bias ? TID_NONE : bias,
                                                .bias_off = bias_off});
}

tid layer_grouped(struct layer_ctx *x, tid h, tid w, tid rows_E, int64_t expected, const char *name)
{
    tid y = coded_record(x, h, w, TID_NONE, false, rows_E, expected, name);
    if (y < 0) y = op_grouped(x->t, h, w, rows_E, expected, name);
    return adapter_record(x, h, w, y, &(struct adapter_how){.rows_E = rows_E, .expected = expected, .bias = TID_NONE});
}

tid layer_rows(struct layer_ctx *x, int span, const char *name)
{
    char whole[PARAM_NAME];
    snprintf(whole, sizeof whole, "%s%s", x->prefix, name);
    int i = param_find(x->params, whole);
    CHECK(i >= 0, "the model declares no parameter %s", whole);
    const struct param *p = &x->params->p[i];
    for (int k = 0; k < span; k++) {
        const struct param *q = p + k;
        CHECK(q->nd == 1 && q->ln[0] == p->ln[0] && spmd_equal(q->type, p->type), "%s is no row beside %s", q->name,
              p->name);
    }
    return tape_param(x->t, p->name, slot_param(i), p->frozen ? -1 : slot_grad(i), x->s->dtype, 2,
                      (int64_t[]){span, p->ln[0]}, p->type);
}

/* By itself: its gradient is there after the forward pass, the norm's before it only after the backward. */
void head_declare(struct declare_ctx *x)
{
    const struct model_config *c = x->c;
    struct declare head = {INIT_NORMAL, 0.02, -2, c->scores ? SPMD_I : over_vocab(x->par), 0};
    int64_t n[2] = {model_outputs(c), c->hidden};
    if (c->scores) layer_declare(x, head, 2, n, "score.weight");
    else if (!c->tie_embeddings) layer_declare(x, head, 2, n, "head.weight");
}

static tid record_logits(struct layer_ctx *x, tid h_CD, tid w_VD, tid b_V)
{
    tid logits_CV = layer_linear(x, h_CD, w_VD, b_V, false, "logits");
    bool capped = model_decodes(x->c) && x->c->logit_cap > 0;
    return capped ? op_cap(x->t, logits_CV, (float)x->c->logit_cap, "logits.cap") : logits_CV;
}

/* Nats of a chunk of tokens; over tp each rank has the logits of its part of the vocabulary, and only three numbers per
 * token travel. */
static void record_chunk(struct layer_ctx *x, tid h_CD, tid w_VD, tid b_V, int64_t row, int64_t n)
{
    int slot = x->stat_slot;
    tid logits_CV = record_logits(x, h_CD, w_VD, b_V), target_C = tape_rows(x->t, x->target_T, row, n);
    bool each = x->c->by_token;
    tid factor_C = each ? tape_rows(x->t, x->factor_T, row, n) : TID_NONE;
    struct vocab_attrs v = {0};
    if (x->par->size[AXIS_TP] == 1) {
        v.each = x->tokens;
        v.at = row;
        if (each) op_xent_each(x->t, logits_CV, target_C, TID_NONE, factor_C, v, slot, "loss");
        else op_xent_times(x->t, logits_CV, target_C, x->loss_times, slot, "loss");
        return;
    }
    v = vocab_here(x->c, x->par);
    v.times = x->loss_times;
    tid stats_C3 = op_xent_part(x->t, logits_CV, target_C, v, "loss.part");
    int64_t rows = x->t->err.code ? 0 : tensor_rows(tape_tensor(x->t, stats_C3)) * v.n_parts;
    tid stats_N3 = par_collect(x->t, x->par, stats_C3, AXIS_TP, rows);
    if (!each) {
        op_xent_join(x->t, logits_CV, target_C, stats_N3, v, slot, "loss");
        return;
    }
    v.each = x->tokens;
    v.at = row;
    op_xent_each(x->t, logits_CV, target_C, stats_N3, factor_C, v, slot, "loss");
}

/* A reward model's head, the same on every rank of tp. */
static tid record_scores(struct layer_ctx *x, tid h_TD)
{
    return layer_linear(x, h_TD, layer_param(x, 1, "score.weight"), TID_NONE, false, "score");
}

/* Every token has a score; those of targets count. */
static void record_score_loss(struct layer_ctx *x, tid h_TD)
{
    if (x->par->sequence) h_TD = par_collect(x->t, x->par, h_TD, AXIS_TP, x->tokens);
    tape_segment_begin(x->t, SEGMENT_LOSS);
    op_score(x->t, record_scores(x, h_TD), x->target_T, x->stat_slot, "loss");
    tape_segment_end(x->t);
}

/* Head and loss in chunks of rows: logits live for one chunk, forward and backward at once. */
static void record_loss(struct layer_ctx *x, tid h_TD, tid w_VD, tid b_V)
{
    int64_t tokens = x->tokens;
    int64_t chunk = x->s->loss_rows > 0 && x->s->loss_rows < tokens ? x->s->loss_rows : tokens;
    if (x->par->size[AXIS_TP] > 1) h_TD = region_enter(x, h_TD);
    for (int64_t row = 0; row < tokens; row += chunk) {
        int64_t n = tokens - row < chunk ? tokens - row : chunk;
        tape_segment_begin(x->t, SEGMENT_LOSS);
        record_chunk(x, tape_rows(x->t, h_TD, row, n), w_VD, b_V, row, n);
        tape_segment_end(x->t);
    }
}

void head_record(struct layer_ctx *x, tid h_TD, tid b_V)
{
    bool scores = x->c->scores, trains = x->s->mode == MODEL_TRAIN;
    if (scores && trains) {
        record_score_loss(x, h_TD);
        return;
    }
    tid w_VD = scores ? TID_NONE : layer_param(x, 1, "%s", x->c->tie_embeddings ? "embed.token" : "head.weight");
    if (trains) {
        record_loss(x, h_TD, w_VD, b_V);
        return;
    }
    if (x->s->mode == MODEL_DECODE) {
        tid wanted_R = tape_input(x->t, "wanted", SLOT_WANTED, DT_I32, 1, &x->decode->wanted, type_tokens(SPMD_V));
        h_TD = op_embed(x->t, wanted_R, h_TD, (struct vocab_attrs){0}, "wanted");
        if (x->par->size[AXIS_TP] > 1 && !scores) h_TD = par_enter(x->t, x->par, h_TD, AXIS_TP);
    }
    tid logits = scores ? record_scores(x, h_TD) : record_logits(x, h_TD, w_VD, b_V);
    if (x->t->err.code) return;
    if (x->s->dtype != DT_F32) logits = op_cast(x->t, logits, DT_F32, "logits32");
    tape_bind(x->t, logits, SLOT_LOGITS);
}

/* What of a stage's i-th layer is computed again. */
static uint64_t again_in(const struct layer_ctx *x, int i)
{
    const struct recompute *r = &x->s->recompute;
    if (x->s->mode != MODEL_TRAIN) return 0;
    return !r->layers || i < r->layers ? r->again : r->rest;
}

/* Layers of a stage, each in its own segment where they are computed again. */
static tid record_layers(struct layer_ctx *x, const struct family *f, tid h_TD, int first, int end)
{
    if (model_pairs(x->c) && x->s->mode == MODEL_DECODE) first = to_int(x->c->encoder_layers); /* it was read */
    for (int l = first; l < end; l++) {
        uint64_t again = again_in(x, l - first);
        x->t->layer = l;
        if (model_pairs(x->c) && x->s->mode != MODEL_DECODE && l == x->c->encoder_layers) h_TD = pairs_between(x, h_TD);
        if (again) tape_recompute_begin(x->t, again);
        h_TD = f->block(x, h_TD, l);
        if (again) tape_segment_end(x->t);
    }
    x->t->layer = -1;
    return h_TD;
}

/* Rows are not tokens in order where cp or tp (sequence parallelism) shares them out. */
static tid record_index(struct layer_ctx *x)
{
    bool apart = x->par->sequence || x->par->size[AXIS_CP] > 1;
    if (!apart || x->c->dropout == 0 || x->s->mode == MODEL_DECODE) return TID_NONE;
    struct spmd_type type = spmd_with(spmd_all(SPMD_I), AXIS_CP, SPMD_S0);
    tid index_T = tape_input(x->t, "index", SLOT_INDEX, DT_I32, 1, &x->tokens, type);
    return x->par->sequence ? par_rows(x->t, x->par, index_T, AXIS_TP) : index_T;
}

/* What is embedded, and what is predicted: a text's tokens lie over cp, pictures and labels are whole on each rank. */
static tid record_input(struct layer_ctx *x, struct spmd_type type)
{
    int64_t n[2] = {x->s->batch, model_pixels(x->c)};
    if (!model_sees(x->c)) return tape_input(x->t, "tokens", SLOT_TOKENS, DT_I32, 1, &x->tokens, type);
    return tape_input(x->t, "pixels", SLOT_PIXELS, DT_F32, 2, n, type_tokens(SPMD_I));
}

/* Of the texts' pictures; in decoding rows of the stream that were made of them before. */
static tid record_pixels(struct layer_ctx *x)
{
    int64_t n[2] = {x->s->batch * x->c->vision.images, model_pixels(x->c) / x->c->vision.images};
    if (x->s->mode == MODEL_DECODE) {
        int64_t rows[2] = {x->decode->pictures, x->c->hidden};
        return tape_input(x->t, "pictures", SLOT_PIXELS, x->s->dtype, 2, rows, type_tokens(SPMD_V));
    }
    return tape_input(x->t, "pixels", SLOT_PIXELS, DT_F32, 2, n, type_tokens(SPMD_R));
}

static tid record_targets(struct layer_ctx *x, struct spmd_type type)
{
    if (!model_sees(x->c)) return tape_input(x->t, "targets", SLOT_TARGETS, DT_I32, 1, &x->tokens, type);
    return tape_input(x->t, "label", SLOT_LABEL, DT_I32, 1, &x->s->batch, type_tokens(SPMD_I));
}

/* The table of angles, and behind it that of local layers where it is another. */
static void record_angles(struct layer_ctx *x)
{
    int64_t rows = x->c->max_positions, n[2] = {model_rope_rows(x->c), model_rope_cols(x->c)};
    x->rope_PA = tape_input(x->t, "rope", SLOT_ROPE, DT_F32, 2, n, spmd_all(SPMD_I));
    if (!has_near(x->c)) return;
    x->near_rope_PA = tape_rows(x->t, x->rope_PA, rows, rows);
    x->rope_PA = tape_rows(x->t, x->rope_PA, 0, rows);
}

/* The next token of each, and those after it. */
static void record_heads(struct layer_ctx *x, tid h_TD, const struct model_stage *g)
{
    head_record(x, h_TD, TID_NONE);
    if (x->s->mode == MODEL_TRAIN && x->c->mtp.depth) mtp_record(x, h_TD, again_in(x, g->end - g->first));
}

static void record_model(struct tape *t, const struct model_config *c, const struct param_table *p,
                         const struct par *par, const struct model_shape *s, const struct decode_shape *d)
{
    const struct family *f = families[c->family];
    const struct model_stage whole = {0, c->layers, true, true}, *g = s->stage ? s->stage : &whole;
    CHECK(s->mode != MODEL_DECODE || !model_both_ways(c) || model_pairs(c), "%s writes nothing", f->name);
    CHECK((s->mode == MODEL_DECODE) == (d != NULL), "decoding is recorded by model_record_decode");
    bool decode = s->mode == MODEL_DECODE; /* no loss of a whole sequence: its cache is on this rank */
    int64_t tokens = s->batch * (decode ? s->seq : context_rows(s->seq, par->size[AXIS_CP], par->rank[AXIS_CP], 1));
    int64_t all = s->batch * s->seq; /* on all ranks of cp */
    struct spmd_type type = type_tokens(decode ? SPMD_V : SPMD_S0);
    struct layer_ctx x = {.t = t,
                          .c = c,
                          .params = p,
                          .par = par,
                          .s = s,
                          .tokens = tokens,
                          .decode = d,
                          .prefix = "",
                          .near_rope_PA = TID_NONE,
                          .stat_slot = SLOT_STAT};
    CHECK(g->embeds || g->heads || g->end > g->first, "a stage with nothing in it");
    x.param_tid = arena_alloc(t->arena, sizeof *x.param_tid * (size_t)p->n);
    for (int i = 0; i < p->n; i++) x.param_tid[i] = TID_NONE;
    bool trains = s->mode == MODEL_TRAIN;
    bool weighs = false; /* balance is over trained tokens */
    for (int l = g->first; l < g->end; l++) weighs = weighs || model_layer_is_moe(c, l);
    tid in = g->embeds ? record_input(&x, type) : TID_NONE;
    x.target_T = trains && (g->heads || weighs) ? record_targets(&x, type) : TID_NONE;
    x.factor_T =
        c->by_token && trains && g->heads ? tape_input(t, "factor", SLOT_FACTOR, DT_F32, 1, &tokens, type) : TID_NONE;
    t->same_rows = c->by_token;
    x.pos_T = model_sees(c) ? TID_NONE : tape_input(t, "positions", SLOT_POSITIONS, DT_I32, 1, &tokens, type);
    x.doc_T = c->document_mask && trains ? tape_input(t, "documents", SLOT_DOCS, DT_I32, 1, &all, type_tokens(SPMD_I))
                                         : TID_NONE;
    if (model_looks(c) && g->embeds && (!decode || d->pictures)) {
        x.patch_T = tape_input(t, "patches", SLOT_PATCHES, DT_I32, 1, &tokens, type);
        x.pixels = record_pixels(&x);
    }
    if (model_takes(c, BATCH_SEGMENTS) && g->embeds)
        x.segment_T = tape_input(t, "segments", SLOT_SEGMENTS, DT_I32, 1, &tokens, type);
    x.index_T = record_index(&x);
    x.runs_SX = decode
                    ? tape_input(t, "runs", SLOT_RUNS, DT_I32, 2, (int64_t[]){d->sequences, RUN_PAGES + d->most}, type)
                    : TID_NONE;
    x.reads_SX = decode && model_pairs(c) ? tape_input(t, "reads", SLOT_READS, DT_I32, 2,
                                                       (int64_t[]){d->sequences, RUN_PAGES + d->most}, type)
                                          : TID_NONE;
    if (f->uses_rope) record_angles(&x);
    tid h_TD = g->embeds ? f->embed(&x, in) : stream_arrives(&x, type);
    h_TD = record_layers(&x, f, h_TD, g->first, g->end);
    if (g->heads && f->head) f->head(&x, h_TD);
    else if (g->heads) record_heads(&x, f->norm(&x, h_TD), g);
    else tape_stage_out(t, h_TD, SLOT_STAGE_OUT, SLOT_STAGE_DOUT);
    for (int i = 0; i < p->n && !t->err.code; i++)
        if (p->p[i].adapter && p->p[i].held && x.param_tid[i] < 0 && model_stage_uses(c, g, &p->p[i]))
            err_set(&t->err, ERR_REQUEST, "adapter.targets: %s: %s computes nothing with it; leave its matrix out",
                    p->p[i].name, f->name);
}

void model_record(struct tape *t, const struct model_config *c, const struct param_table *p, const struct par *par,
                  const struct model_shape *s)
{
    record_model(t, c, p, par, s, NULL);
}

void model_record_decode(struct tape *t, const struct model_config *c, const struct param_table *p,
                         const struct par *par, const struct decode_shape *s)
{
    struct model_shape shape = {.mode = MODEL_DECODE,
                                .dtype = s->dtype,
                                .batch = 1,
                                .seq = s->tokens,
                                .cache_rows = s->cache_rows,
                                .stage = s->stage};
    record_model(t, c, p, par, &shape, s);
}

void model_record_pictures(struct tape *t, const struct model_config *c, const struct param_table *p,
                           const struct par *par, enum dtype dtype)
{
    struct model_shape shape = {.mode = MODEL_LOGITS, .dtype = dtype, .batch = 1, .seq = 1};
    struct layer_ctx x =
        {.t = t, .c = c, .params = p, .par = par, .s = &shape, .tokens = 1, .prefix = "", .near_rope_PA = TID_NONE};
    x.param_tid = arena_alloc(t->arena, sizeof *x.param_tid * (size_t)p->n);
    for (int i = 0; i < p->n; i++) x.param_tid[i] = TID_NONE;
    x.doc_T = x.index_T = x.target_T = x.factor_T = TID_NONE;
    struct op_attrs none = op_attrs_zero(OP_COPY);
    tid rows_RD = vision_rows(&x, record_pixels(&x)); /* may be another's memory */
    if (!t->err.code) rows_RD = tape_record(t, OP_COPY, &none, 1, &rows_RD, dtype, "pictures");
    if (!t->err.code) tape_bind(t, rows_RD, SLOT_LOGITS);
}

void model_record_reading(struct tape *t, const struct model_config *c, const struct param_table *p,
                          const struct par *par, enum dtype dtype, int64_t n)
{
    struct decode_shape d = {.dtype = dtype, .tokens = n};
    struct model_shape shape = {.mode = MODEL_DECODE, .dtype = dtype, .batch = 1, .seq = n};
    struct layer_ctx x = {.t = t,
                          .c = c,
                          .params = p,
                          .par = par,
                          .s = &shape,
                          .tokens = n,
                          .decode = &d,
                          .prefix = "",
                          .near_rope_PA = TID_NONE};
    x.param_tid = arena_alloc(t->arena, sizeof *x.param_tid * (size_t)p->n);
    for (int i = 0; i < p->n; i++) x.param_tid[i] = TID_NONE;
    x.pos_T = x.doc_T = x.index_T = x.target_T = x.factor_T = x.runs_SX = x.reads_SX = TID_NONE;
    pairs_read(&x, tape_input(t, "tokens", SLOT_TOKENS, DT_I32, 1, &n, type_tokens(SPMD_S0)));
}

bool model_stage_uses(const struct model_config *c, const struct model_stage *s, const struct param *p)
{
    if (p->layer >= c->layers) return s->heads; /* of what predicts further tokens */
    if (p->layer >= 0) return p->layer >= s->first && p->layer < s->end;
    bool embedding = p->layer <= LAYER_TOWER || !strncmp(p->name, "embed.", 6) || !strncmp(p->name, "vision.", 7) ||
                     !strncmp(p->name, "projector.", 10);
    if (embedding && (c->tie_embeddings || c->mtp.depth) && s->heads && !strcmp(p->name, "embed.token")) return true;
    return embedding ? s->embeds : s->heads;
}

/* Of an expert's matrices a token sees top_k / experts. */
static double share_used(const struct model_config *c, const struct param *p)
{
    return strstr(p->name, ".moe.experts.") ? (double)c->moe.top_k / c->moe.experts : 1;
}

/* Of a layer with experts, or without: declared as a model of its own, so that a deep model need not be. */
static double layer_cost(const struct model_config *c, int64_t seq, bool moe, int64_t window, enum layer_kind kind)
{
    struct model_config one = *c;
    struct param_table t = {0};
    double s = (double)seq, w = window > 0 && window < seq ? (double)window : s;
    double pairs = model_both_ways(c) ? s * s : w * (w + 1) / 2 + (s - w) * w; /* that attention looks at */
    double cost = kind == LAYER_SCAN  ? 2.5 * (double)c->ssm.heads * (double)(c->ssm.head_dim * c->ssm.state)
                  : kind == LAYER_MLP ? 0
                                      : 2 * pairs / s * (double)c->heads * c->head_dim;
    if (kind != LAYER_BOTH && model_mixes(c)) one.pattern = (struct layer_pattern){.text = {layer_kind_letter(kind)}};
    one.layers = 1;
    one.mtp.depth = 0;
    one.moe.first_dense = !moe;
    one.moe.sparse = (struct layer_pattern){.text = ""};
    model_declare(&one, NULL, &t);
    for (int i = 0; i < t.n; i++)
        if (t.p[i].layer == 0 && t.p[i].nd >= 2) cost += (double)t.p[i].numel * share_used(c, &t.p[i]);
    param_table_free(&t);
    return cost;
}

void model_costs(const struct model_config *c, int64_t seq, double *layer, double *embed, double *head)
{
    double of[LAYER_KINDS][2][2] = {{{0}}}; /* with experts or without, local or not */
    for (int l = 0; l < c->layers; l++) {
        if (model_pairs(c)) {
            layer[l] = pairs_layer_cost(c, seq, l);
            continue;
        }
        int64_t window = model_window(c, l);
        enum layer_kind kind = model_layer_kind(c, l);
        double *cost = &of[kind][model_layer_is_moe(c, l)][window > 0];
        if (*cost <= 0) *cost = layer_cost(c, seq, model_layer_is_moe(c, l), window, kind);
        layer[l] = *cost;
    }
    double D = (double)c->hidden;
    *embed = model_looks(c)  ? (double)c->vision.images * vision_cost(c) / (double)seq
             : model_sees(c) ? (double)(c->channels * c->patch_size * c->patch_size) * D
                             : 0; /* a table is looked up */
    *head = model_sees(c)    ? (double)c->classes * D / (double)seq
            : model_tells(c) ? (double)c->classes * D
                             : (double)model_outputs(c) * D;
    if (c->family == MODEL_BERT) *head += D * D;
    if (model_pairs(c)) *head *= 1 - (double)c->encoder_len / (double)seq;
    double next = *head;
    for (int64_t l = c->layers; l < model_blocks(c); l++)
        *head += next + 2 * D * D + layer_cost(c, seq, model_layer_is_moe(c, l), model_window(c, l), LAYER_BOTH);
}
