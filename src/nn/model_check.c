/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a model's numbers fit together: what the range of a number by itself (model/numbers.def) cannot say. A check
 * for each kind of model and of layer; each refusal names the key and what to choose instead. */
#include <inttypes.h>

#include "base/str.h"
#include "nn/adapter.h"
#include "nn/layers.h"

_Static_assert(SCORE_SOFTMAX == 0 && SCORE_SIGMOID == 1, "the words of moe.score in model/numbers.def");
_Static_assert(POOL_CLASS == 0 && POOL_MEAN == 1, "the words of pool in model/numbers.def");

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
    if (!model_decodes(c) && m->experts)
        return err_set(e, ERR_REQUEST, "model.moe.experts: %s has no experts; choose 0, or model.family: mixtral",
                       model_family_name(c->family));
    if (!m->experts)
        return model_wants_experts(c) ? err_set(e, ERR_REQUEST,
                                                "model.moe.experts: %s wants a number of experts; choose 1 or more, or "
                                                "model.family: llama",
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
        return err_set(e, ERR_REQUEST,
                       "model.moe.first_dense: %" PRId64 " of %" PRId64 " layers; choose at most %" PRId64,
                       m->first_dense, c->layers, c->layers);
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

/* Of families whose keys have as many heads as their queries. */
static int check_equal_heads(const struct model_config *c, struct err *e)
{
    if (c->kv_heads == c->heads) return OK;
    return err_set(e, ERR_REQUEST,
                   "model.kv_heads: %" PRId64 ", but %s has as many as model.heads = %" PRId64 "; leave it out",
                   c->kv_heads, model_family_name(c->family), c->heads);
}

static int check_latent(const struct model_config *c, struct err *e)
{
    const struct mla_config *m = &c->mla;
    if ((m->kv_rank > 0) != (c->family == MODEL_DEEPSEEK))
        return err_set(e, ERR_REQUEST,
                       "model.mla.kv_rank: latent attention is the deepseek family's, and it has no other; choose %s",
                       m->kv_rank ? "0, or model.family: deepseek" : "1 or more, or model.family: llama");
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
                       "; choose at most %" PRId64,
                       m->value_dim, m->nope_dim + m->rope_dim, m->nope_dim + m->rope_dim);
    if (c->head_dim != m->nope_dim + m->rope_dim)
        return err_set(e, ERR_REQUEST,
                       "model.head_dim: %" PRId64 ", but latent attention has model.mla.nope_dim + rope_dim = %" PRId64
                       "; leave it out",
                       c->head_dim, m->nope_dim + m->rope_dim);
    return check_equal_heads(c, e);
}

/* What a model that reads text has, and one that sees pictures. */
static int check_vocabulary(const struct model_config *c, struct err *e)
{
    if (c->vocab < 2) return err_set(e, ERR_REQUEST, "model.vocab: wanted at least 2, got %lld", (long long)c->vocab);
    if (c->vocab > INT32_MAX)
        return err_set(e, ERR_REQUEST, "model.vocab: token ids are 32 bits, got %lld", (long long)c->vocab);
    return OK;
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
                       "model.buckets: %" PRId64 ", half of which are of places behind; choose %" PRId64, c->buckets,
                       c->buckets + 1);
    if (c->distance <= c->buckets / 2)
        return err_set(e, ERR_REQUEST,
                       "model.distance: %" PRId64 " is not beyond the distances that have a bucket of their own; "
                       "choose %" PRId64 " or more",
                       c->distance, c->buckets / 2 + 1);
    if (c->document_mask)
        return err_set(e, ERR_REQUEST,
                       "model.document_mask: a span that is taken out of one document is written beside those of "
                       "others; leave it out");
    return check_equal_heads(c, e);
}

/* An encoder of text. */
static int check_encoder(const struct model_config *c, struct err *e)
{
    if (!model_encodes(c)) return OK;
    if (c->classes == 1)
        return err_set(e, ERR_REQUEST,
                       "model.classes: of one class nothing is told; choose 2 or more, or leave it out");
    if (c->types < 1)
        return err_set(e, ERR_REQUEST, "model.types: wanted 1 or more kinds of segments, got %" PRId64, c->types);
    if (c->classes && c->tie_embeddings)
        return err_set(e, ERR_REQUEST,
                       "model.tie_embeddings: a model that tells classes has no output matrix of tokens to share; "
                       "leave it out");
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
                       "class); leave it out",
                       c->seq_len, model_places(c));
    if (c->tie_embeddings)
        return err_set(e, ERR_REQUEST, "model.tie_embeddings: %s has no table of tokens to share; leave it out",
                       model_family_name(c->family));
    if (c->document_mask)
        return err_set(e, ERR_REQUEST, "model.document_mask: %s sees one picture in a sequence; leave it out",
                       model_family_name(c->family));
    return check_equal_heads(c, e);
}

/* With those that do it named, of which none wants experts. */
static int refuse_scores(const struct model_config *c, struct err *e)
{
    struct str all = {0};
    for (int f = 0; f < MODEL_N; f++) {
        const struct model_config m = {.family = (enum model_family)f};
        if (model_may_score(&m) && !model_wants_experts(&m))
            str_printf(&all, "%s%s", all.n ? ", " : "", model_family_name(m.family));
    }
    int rc = err_set(e, ERR_REQUEST,
                     "model.family: %s has no form with a score, as decoders of text with attention have (%s); choose "
                     "one of these such as llama, or train.objective: next",
                     model_family_name(c->family), str_text(&all));
    str_free(&all);
    return rc;
}

/* A reward model. */
static int check_scores(const struct model_config *c, struct err *e)
{
    if (!model_may_score(c)) return refuse_scores(c, e);
    if (c->mtp.depth)
        return err_set(e, ERR_REQUEST, "model.mtp.depth: a reward model tells nothing of further tokens; choose 0");
    if (c->tie_embeddings)
        return err_set(e, ERR_REQUEST,
                       "model.tie_embeddings: a reward model has no output matrix of tokens to share; leave it out");
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
                       " layers; leave it out, or choose %" PRId64,
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
    if (!rc) rc = rotary_check(c, e);
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

int model_check_adapter(const struct model_config *c, const struct param_table *t, struct err *e)
{
    return c->adapter ? adapter_check(c->adapter, t, e) : OK;
}
