/* SPDX-License-Identifier: Apache-2.0 */
/* hf_config.c: config.json to struct hf_model and back.
 *
 * Which keys there may be is hf_keys.c's; here those with a meaning are read one by one. What a file leaves out is what the
 * library's own config class takes for it, family by family. A config of an architecture with another model_type
 * is refused outright, also when its keys would fit: the differences are in code that is not in the file.
 */
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "checkpoint/hf.h"
#include "checkpoint/hf_keys.h"

#define CONFIG_LIMIT ((size_t)16 << 20)

static const char *const family_names[HF_N] = {[HF_GPT2] = "gpt2", [HF_LLAMA] = "llama", [HF_MIXTRAL] = "mixtral",
                                                 [HF_DEEPSEEK_V2] = "deepseek_v2", [HF_DEEPSEEK_V3] = "deepseek_v3"};

const char *hf_family_name(enum hf_family f)
{
    CHECK((unsigned)f < HF_N, "family %d", (int)f);
    return family_names[f];
}

struct hf_model hf_model_default(enum hf_family f)
{
    bool mixtral = f == HF_MIXTRAL;
    return (struct hf_model){.family = f, .norm_eps = f == HF_GPT2 || mixtral ? 1e-5 : 1e-6, .rope_theta = mixtral ? 1e6 : 10000, .bos = -1,
                             .tie = f == HF_GPT2, .init_std = 0.02, .mla.norm_eps = 1e-6};
}

/* -- reading ------------------------------------------------------------------------------------------------ */

#define SIZE_LIMIT ((int64_t)1 << 31)

static int need_size(const struct json *config, const char *key, int64_t *out, const char *what, struct err *e)
{
    return json_need_int(config, key, 1, SIZE_LIMIT, out, what, e);
}

/* An absent or null key keeps the value that is there. */
static int may_size(const struct json *config, const char *key, int64_t *out, const char *what, struct err *e)
{
    const struct json *v = json_get(config, key);
    return v && json_kind(v) != JSON_NULL ? need_size(config, key, out, what, e) : OK;
}

static int may_real(const struct json *config, const char *key, double lo, double hi, double *out, const char *what,
                    struct err *e)
{
    const struct json *v = json_get(config, key);
    if (!v || json_kind(v) == JSON_NULL) return OK;
    *out = json_real(v, lo - 1);
    if (!(*out >= lo && *out <= hi))
        return err_set(e, ERR_REQUEST, "%s: %s: wanted a number from %g to %g", what, key, lo, hi);
    return OK;
}

static int may_bool(const struct json *config, const char *key, bool *out, const char *what, struct err *e)
{
    const struct json *v = json_get(config, key);
    if (!v || json_kind(v) == JSON_NULL) return OK;
    if (json_kind(v) != JSON_BOOL) return err_set(e, ERR_REQUEST, "%s: %s: wanted true or false", what, key);
    *out = json_bool(v, false);
    return OK;
}

/* An id; negative ones mean none, as null does. */
static int read_id(const struct json *v, int64_t *id, const char *what, const char *key, struct err *e)
{
    if (json_kind(v) == JSON_INT && json_int(v, 0) <= INT32_MAX) {
        *id = json_int(v, 0) < 0 ? -1 : json_int(v, 0);
        return OK;
    }
    if (json_kind(v) != JSON_INT && json_kind(v) != JSON_REAL)
        return err_set(e, ERR_REQUEST, "%s: %s: wanted the number of a token", what, key);
    return err_set(e, ERR_REQUEST, "%s: %s: wanted the number of a token, got %.17g", what, key, json_real(v, 0));
}

static int read_token_ids(struct hf_model *m, const struct json *config, const char *what, struct err *e)
{
    const struct json *bos = json_get(config, "bos_token_id"), *eos = json_get(config, "eos_token_id");
    bool several = eos && json_kind(eos) == JSON_ARRAY;
    size_t n = several ? json_size(eos) : eos && json_kind(eos) != JSON_NULL;
    int rc = bos && json_kind(bos) != JSON_NULL ? read_id(bos, &m->bos, what, "bos_token_id", e) : OK;
    if (rc == OK && n > HF_EOS)
        rc = err_set(e, ERR_REQUEST, "%s: eos_token_id: a list of %zu; tutti keeps %d", what, n, HF_EOS);
    for (size_t i = 0; rc == OK && i < n; i++) {
        rc = read_id(several ? json_at(eos, i) : eos, &m->eos[m->n_eos], what, "eos_token_id", e);
        m->n_eos += rc == OK && m->eos[m->n_eos] >= 0;
    }
    return rc;
}

static int parse_gpt2(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                      struct err *e)
{
    (void)ignore; /* no nested keys here */
    int rc = need_size(config, "n_embd", &m->hidden, what, e);
    if (rc == OK) rc = need_size(config, "n_layer", &m->layers, what, e);
    if (rc == OK) rc = need_size(config, "n_head", &m->heads, what, e);
    if (rc == OK) rc = need_size(config, "n_positions", &m->max_pos, what, e);
    m->ffn = 4 * m->hidden;
    if (rc == OK) rc = may_size(config, "n_inner", &m->ffn, what, e);
    if (rc == OK) rc = may_real(config, "layer_norm_epsilon", 0, 1, &m->norm_eps, what, e);
    if (rc == OK) rc = may_real(config, "resid_pdrop", 0, 1, &m->dropout, what, e);
    if (rc == OK) rc = may_real(config, "embd_pdrop", 0, 1, &m->embed_dropout, what, e);
    if (rc == OK) rc = may_real(config, "attn_pdrop", 0, 1, &m->attention_dropout, what, e);
    m->kv_heads = m->heads;
    if (rc == OK && m->hidden % m->heads)
        rc = err_set(e, ERR_REQUEST, "%s: n_embd: %lld is not a multiple of n_head %lld", what, (long long)m->hidden,
                     (long long)m->heads);
    if (rc == OK) m->head_dim = m->hidden / m->heads;
    return rc;
}

static int parse_yarn(struct hf_model *m, const struct json *rope, const char *what, const char *key, struct err *e)
{
    m->yarn = true;
    m->yarn_beta_fast = 32;
    m->yarn_beta_slow = 1;
    m->rope_original_max_pos = m->max_pos;
    int rc = may_real(rope, "factor", 1, 1e6, &m->rope_factor, what, e);
    if (rc == OK) rc = may_real(rope, "beta_fast", 1e-6, 1e6, &m->yarn_beta_fast, what, e);
    if (rc == OK) rc = may_real(rope, "beta_slow", 1e-6, 1e6, &m->yarn_beta_slow, what, e);
    if (rc == OK) rc = may_real(rope, "mscale", 0, 1e6, &m->yarn_mscale, what, e);
    if (rc == OK) rc = may_real(rope, "mscale_all_dim", 0, 1e6, &m->yarn_mscale_all_dim, what, e);
    if (rc == OK) rc = may_size(rope, "original_max_position_embeddings", &m->rope_original_max_pos, what, e);
    bool truncate = true;
    if (rc == OK) rc = may_bool(rope, "truncate", &truncate, what, e);
    m->yarn_parts = !truncate;
    if (rc == OK && (m->rope_factor == 0 || !m->mla.kv_rank))
        rc = err_set(e, ERR_REQUEST, "%s: %s: yarn wants a factor, and is computed for latent attention only", what, key);
    return rc;
}

/* rope_scaling in files of transformers 4, rope_parameters (theta inside) from 5 on. */
static int parse_rope(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                      struct err *e)
{
    const struct json *rope = json_get(config, "rope_parameters"), *older = json_get(config, "rope_scaling");
    bool newer = rope && json_kind(rope) != JSON_NULL;
    const char *key = newer ? "rope_parameters" : "rope_scaling";
    if (newer && older && json_kind(older) != JSON_NULL)
        return err_set(e, ERR_REQUEST, "%s: rope_parameters and rope_scaling are both there; which one counts is not said", what);
    if (!newer) rope = older;
    int rc = may_real(config, "rope_theta", 1, 1e12, &m->rope_theta, what, e);
    if (rc < 0 || !rope || json_kind(rope) == JSON_NULL) return rc;
    rc = may_real(rope, "rope_theta", 1, 1e12, &m->rope_theta, what, e);
    if (rc < 0) return rc;
    const char *type = json_string(json_get(rope, "rope_type"), NULL, NULL);
    if (!type) type = json_string(json_get(rope, "type"), NULL, "default");
    if (json_kind(rope) != JSON_OBJECT || (strcmp(type, "default") && strcmp(type, "yarn") && strcmp(type, "llama3")))
        return err_set(e, ERR_REQUEST, "%s: %s: type %.40s is not computed here; only default, llama3 and yarn are", what,
                       key, type);
    rc = hf_keys_check_rope(rope, key, type, ignore, what, e);
    if (rc < 0 || strcmp(type, "default") == 0) return rc;
    if (strcmp(type, "yarn") == 0) return parse_yarn(m, rope, what, key, e);
    rc = may_real(rope, "factor", 1, 1e6, &m->rope_factor, what, e);
    if (rc == OK) rc = may_real(rope, "low_freq_factor", 1e-6, 1e6, &m->rope_low_freq_factor, what, e);
    if (rc == OK) rc = may_real(rope, "high_freq_factor", 1e-6, 1e6, &m->rope_high_freq_factor, what, e);
    if (rc == OK) rc = need_size(rope, "original_max_position_embeddings", &m->rope_original_max_pos, what, e);
    if (rc == OK && (m->rope_factor == 0 || m->rope_low_freq_factor == 0 ||
                     m->rope_high_freq_factor <= m->rope_low_freq_factor))
        rc = err_set(e, ERR_REQUEST, "%s: %s: llama3 wants factor, low_freq_factor < high_freq_factor", what, key);
    return rc;
}

static int parse_llama(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                      struct err *e)
{
    int rc = need_size(config, "hidden_size", &m->hidden, what, e);
    if (rc == OK) rc = need_size(config, "num_hidden_layers", &m->layers, what, e);
    if (rc == OK) rc = need_size(config, "num_attention_heads", &m->heads, what, e);
    if (rc == OK) rc = need_size(config, "intermediate_size", &m->ffn, what, e);
    if (rc == OK) rc = need_size(config, "max_position_embeddings", &m->max_pos, what, e);
    m->kv_heads = m->heads;
    if (rc == OK) rc = may_size(config, "num_key_value_heads", &m->kv_heads, what, e);
    if (rc == OK) m->head_dim = m->hidden / m->heads;
    if (rc == OK) rc = may_size(config, "head_dim", &m->head_dim, what, e);
    if (m->mla.kv_rank) m->head_dim = m->mla.rope; /* what is turned */
    if (rc == OK) rc = may_real(config, "rms_norm_eps", 0, 1, &m->norm_eps, what, e);
    if (rc == OK) rc = may_real(config, "attention_dropout", 0, 1, &m->attention_dropout, what, e);
    if (rc == OK) rc = parse_rope(m, config, ignore, what, e);
    if (rc == OK && m->heads % m->kv_heads)
        rc = err_set(e, ERR_REQUEST, "%s: num_attention_heads: %lld is not a multiple of num_key_value_heads %lld",
                     what, (long long)m->heads, (long long)m->kv_heads);
    if (rc == OK && (m->head_dim < 1 || m->head_dim % 2))
        rc = err_set(e, ERR_REQUEST, "%s: head_dim: %lld is not even, as rotary embedding needs", what,
                     (long long)m->head_dim);
    return rc;
}

static int parse_mixtral(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                      struct err *e)
{
    int rc = parse_llama(m, config, ignore, what, e);
    if (rc == OK && !json_get(config, "num_key_value_heads")) m->kv_heads = m->heads % 8 ? m->heads : 8;
    m->moe.experts = 8;
    m->moe.top_k = 2;
    m->moe.ffn = m->ffn;
    m->moe.norm_topk = true;
    m->moe.scale = 1;
    if (rc == OK) rc = may_size(config, "num_local_experts", &m->moe.experts, what, e);
    if (rc == OK) rc = may_size(config, "num_experts_per_tok", &m->moe.top_k, what, e);
    return rc;
}

/* A number that may be absent, null or 0, which all mean none. */
static int may_count(const struct json *config, const char *key, int64_t *out, const char *what, struct err *e)
{
    const struct json *v = json_get(config, key);
    if (v && json_kind(v) == JSON_INT && json_int(v, -1) == 0) {
        *out = 0;
        return OK;
    }
    return may_size(config, key, out, what, e);
}

static int parse_router(struct hf_model *m, const struct json *config, const char *what, struct err *e)
{
    bool v3 = m->family == HF_DEEPSEEK_V3;
    const char *score = json_string(json_get(config, "scoring_func"), NULL, v3 ? "sigmoid" : "softmax");
    const char *method = json_string(json_get(config, "topk_method"), NULL, v3 ? "noaux_tc" : "greedy");
    m->moe.sigmoid = !strcmp(score, "sigmoid");
    m->moe.bias = m->moe.group_pairs = !strcmp(method, "noaux_tc");
    m->moe.norm_topk = v3;
    m->moe.scale = v3 ? 2.5 : 1;
    m->moe.first_dense = v3 ? 3 : 0;
    m->moe.shared = v3 ? 1 : 2;
    m->moe.groups = v3 && !json_get(config, "n_group") ? 8 : 0;
    m->moe.top_groups = v3 && !json_get(config, "topk_group") ? 4 : 0;
    int rc = may_bool(config, "norm_topk_prob", &m->moe.norm_topk, what, e);
    if (rc == OK) rc = need_size(config, "n_routed_experts", &m->moe.experts, what, e);
    if (rc == OK) rc = need_size(config, "num_experts_per_tok", &m->moe.top_k, what, e);
    if (rc == OK) rc = need_size(config, "moe_intermediate_size", &m->moe.ffn, what, e);
    if (rc == OK) rc = may_count(config, "n_shared_experts", &m->moe.shared, what, e);
    if (rc == OK) rc = may_count(config, "first_k_dense_replace", &m->moe.first_dense, what, e);
    if (rc == OK) rc = may_real(config, "routed_scaling_factor", 1e-6, 1e6, &m->moe.scale, what, e);
    if (rc == OK && strcmp(method, "greedy")) rc = may_count(config, "n_group", &m->moe.groups, what, e);
    if (rc == OK && strcmp(method, "greedy")) rc = may_count(config, "topk_group", &m->moe.top_groups, what, e);
    if (m->moe.groups <= 1) m->moe.groups = m->moe.top_groups = 0;
    if (rc == OK) rc = may_bool(config, "tutti_group_pairs", &m->moe.group_pairs, what, e);
    m->moe.group_pairs = m->moe.groups && m->moe.group_pairs;
    if (rc == OK && (m->moe.top_k > m->moe.experts || m->moe.first_dense > m->layers ||
                     (m->moe.groups && m->moe.experts % m->moe.groups)))
        rc = err_set(e, ERR_REQUEST, "%s: n_routed_experts: %lld experts do not fit num_experts_per_tok, n_group or "
                     "first_k_dense_replace", what, (long long)m->moe.experts);
    return rc;
}

static int parse_deepseek(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                      struct err *e)
{
    m->mla.q_rank = json_get(config, "q_lora_rank") ? 0 : 1536; /* null: none */
    m->mla.kv_rank = 512;
    m->mla.nope = 128;
    m->mla.rope = 64;
    m->mla.value = 128;
    m->mla.pairs = true;
    int rc = m->family == HF_DEEPSEEK_V3 ? may_bool(config, "rope_interleave", &m->mla.pairs, what, e) : OK;
    if (rc == OK) rc = may_count(config, "q_lora_rank", &m->mla.q_rank, what, e);
    if (rc == OK) rc = may_size(config, "kv_lora_rank", &m->mla.kv_rank, what, e);
    if (rc == OK) rc = may_size(config, "qk_nope_head_dim", &m->mla.nope, what, e);
    if (rc == OK) rc = may_size(config, "qk_rope_head_dim", &m->mla.rope, what, e);
    if (rc == OK) rc = may_size(config, "v_head_dim", &m->mla.value, what, e);
    if (rc == OK) rc = may_real(config, "tutti_latent_norm_eps", 0, 1, &m->mla.norm_eps, what, e);
    if (rc == OK) rc = parse_llama(m, config, ignore, what, e);
    m->kv_heads = m->heads; /* their number is that of the queries, whatever num_key_value_heads says */
    m->head_dim = m->mla.nope + m->mla.rope;
    if (rc == OK) rc = parse_router(m, config, what, e);
    return rc;
}

int hf_config_parse(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                    struct err *e)
{
    static int (*const parse[HF_N])(struct hf_model *, const struct json *, const struct hf_ignore *, const char *,
                                    struct err *) = {
        [HF_GPT2] = parse_gpt2, [HF_LLAMA] = parse_llama, [HF_MIXTRAL] = parse_mixtral,
        [HF_DEEPSEEK_V2] = parse_deepseek, [HF_DEEPSEEK_V3] = parse_deepseek};
    const char *type;
    int rc = json_need_string(config, "model_type", &type, what, e);
    if (rc < 0) return rc;
    int family = 0;
    while (family < HF_N && strcmp(family_names[family], type)) family++;
    if (family == HF_N)
        return err_set(e, ERR_REQUEST, "%s: model_type: %.60s is not one of tutti's families: gpt2, llama, mixtral, deepseek_v2, "
                       "deepseek_v3", what, type);
    *m = hf_model_default((enum hf_family)family);
    rc = hf_keys_check(m->family, config, ignore, what, e);
    if (rc == OK) rc = need_size(config, "vocab_size", &m->vocab, what, e);
    if (rc == OK) rc = parse[family](m, config, ignore, what, e);
    if (rc == OK) rc = may_real(config, "initializer_range", 0, 10, &m->init_std, what, e);
    if (rc == OK) rc = may_bool(config, "tie_word_embeddings", &m->tie, what, e);
    if (rc == OK) rc = read_token_ids(m, config, what, e);
    /* Sizes whose products are element counts: bounded so that no shape overflows. */
    int64_t q, unused;
    if (rc == OK && (__builtin_mul_overflow(m->heads, m->head_dim, &q) || q > SIZE_LIMIT || m->layers > 100000 ||
                     __builtin_mul_overflow(q, m->ffn, &unused) || m->moe.experts > 1 << 20 || m->moe.experts * m->layers > 1 << 20 || m->moe.shared > 1 << 16 ||
                     m->mla.q_rank > 1 << 24 || m->mla.kv_rank > 1 << 24 || m->mla.rope > 1 << 20 ||
                     m->mla.nope > 1 << 20 || m->mla.value > 1 << 20 || m->moe.ffn > SIZE_LIMIT / 65536 * 4096))
        rc = err_set(e, ERR_REQUEST, "%s: sizes beyond any model", what);
    return rc;
}

int hf_config_read(struct hf_model *m, const char *dir, const struct hf_ignore *ignore, struct err *e)
{
    char *path = fs_join(dir, "config.json");
    struct json *config = NULL;
    int rc = json_parse_published_file(&config, path, CONFIG_LIMIT, e);
    if (rc == OK) rc = hf_config_parse(m, config, ignore, path, e);
    json_free(config);
    xfree(path);
    return rc;
}

/* -- writing ------------------------------------------------------------------------------------------------ */

/* Always with a point or exponent: their config classes complain of an integer where a float is declared. */
static void put_float(struct json_out *o, const char *key, double v)
{
    json_put_real(o, key, v);
    const char *text = o->s->p, *at = text + o->s->n;
    while (at > text && strchr("0123456789", at[-1])) at--;
    if (at > text && (at[-1] == ':' || at[-1] == ' ')) str_puts(o->s, ".0"); /* digits only, since the key */
}

static void put_gpt2(struct json_out *o, const struct hf_model *m)
{
    json_put_string(o, "activation_function", "gelu_new");
    json_put_int(o, "n_embd", m->hidden);
    json_put_int(o, "n_layer", m->layers);
    json_put_int(o, "n_head", m->heads);
    json_put_int(o, "n_positions", m->max_pos);
    json_put_int(o, "n_ctx", m->max_pos);
    json_put_int(o, "n_inner", m->ffn);
    put_float(o, "layer_norm_epsilon", m->norm_eps);
    put_float(o, "resid_pdrop", m->dropout);
    put_float(o, "embd_pdrop", m->embed_dropout);
    put_float(o, "attn_pdrop", m->attention_dropout);
}

static void put_yarn(struct json_out *o, const struct hf_model *m)
{
    json_put_string(o, "type", "yarn");
    json_put_string(o, "rope_type", "yarn");
    put_float(o, "factor", m->rope_factor);
    put_float(o, "beta_fast", m->yarn_beta_fast);
    put_float(o, "beta_slow", m->yarn_beta_slow);
    put_float(o, "mscale", m->yarn_mscale);
    put_float(o, "mscale_all_dim", m->yarn_mscale_all_dim);
    if (m->yarn_parts) json_put_bool(o, "truncate", false);
    json_put_int(o, "original_max_position_embeddings", m->rope_original_max_pos);
    json_end_object(o);
}

static void put_mixtral(struct json_out *o, const struct hf_model *m)
{
    json_put_int(o, "num_local_experts", m->moe.experts);
    json_put_int(o, "num_experts_per_tok", m->moe.top_k);
}

static void put_deepseek(struct json_out *o, const struct hf_model *m)
{
    bool pairs = m->family == HF_DEEPSEEK_V3;
    json_put_int(o, "n_routed_experts", m->moe.experts);
    json_put_int(o, "num_experts_per_tok", m->moe.top_k);
    json_put_int(o, "moe_intermediate_size", m->moe.ffn);
    json_put_int(o, "n_shared_experts", m->moe.shared);
    json_put_int(o, "first_k_dense_replace", m->moe.first_dense);
    json_put_int(o, "moe_layer_freq", 1);
    put_float(o, "routed_scaling_factor", m->moe.scale);
    json_put_bool(o, "norm_topk_prob", m->moe.norm_topk);
    json_put_int(o, "n_group", m->moe.groups ? m->moe.groups : 1);
    json_put_int(o, "topk_group", m->moe.groups ? m->moe.top_groups : 1);
    json_put_string(o, "scoring_func", m->moe.sigmoid ? "sigmoid" : "softmax");
    json_put_string(o, "topk_method", m->moe.bias ? "noaux_tc" : m->moe.groups ? "group_limited_greedy" : "greedy");
    if (m->mla.q_rank) json_put_int(o, "q_lora_rank", m->mla.q_rank);
    else json_put_null(o, "q_lora_rank");
    json_put_int(o, "kv_lora_rank", m->mla.kv_rank);
    json_put_int(o, "qk_nope_head_dim", m->mla.nope);
    json_put_int(o, "qk_rope_head_dim", m->mla.rope);
    json_put_int(o, "v_head_dim", m->mla.value);
    if (pairs) json_put_bool(o, "rope_interleave", m->mla.pairs);
    if (m->mla.norm_eps != 1e-6) put_float(o, "tutti_latent_norm_eps", m->mla.norm_eps);
    if (m->moe.groups && m->moe.group_pairs != m->moe.bias) json_put_bool(o, "tutti_group_pairs", m->moe.group_pairs);
}

int hf_config_expressible(const struct hf_model *m, struct err *e)
{
    if (m->family != HF_DEEPSEEK_V2 && m->family != HF_DEEPSEEK_V3) return OK;
    if (m->moe.shared == 0)
        return err_set(e, ERR_REQUEST, "%s: their code wants shared experts, this model has none", hf_family_name(m->family));
    if (m->mla.norm_eps != 1e-6)
        return err_set(e, ERR_REQUEST, "%s: their code adds 1e-6 in the norms of short vectors, this model %g (model.mla.norm_eps)",
                       hf_family_name(m->family), m->mla.norm_eps);
    if (m->family == HF_DEEPSEEK_V2)
        return m->moe.sigmoid || m->moe.norm_topk || m->moe.bias || !m->mla.pairs
                   ? err_set(e, ERR_REQUEST, "deepseek_v2: their code computes softmax scores that are not scaled to sum 1") : OK;
    if (!m->moe.sigmoid || !m->moe.bias || (m->moe.groups && !m->moe.group_pairs))
        return err_set(e, ERR_REQUEST, "deepseek_v3: their code computes sigmoid scores with a bias of choice and groups by "
                       "their two largest; this model's router is another (model.moe.score, bias, group_pairs)");
    return OK;
}

static void put_llama(struct json_out *o, const struct hf_model *m)
{
    json_put_string(o, "hidden_act", "silu");
    json_put_int(o, "hidden_size", m->hidden);
    json_put_int(o, "num_hidden_layers", m->layers);
    json_put_int(o, "num_attention_heads", m->heads);
    json_put_int(o, "num_key_value_heads", m->kv_heads);
    json_put_int(o, "head_dim", m->mla.kv_rank ? m->mla.rope : m->head_dim);
    json_put_int(o, "intermediate_size", m->ffn);
    json_put_int(o, "max_position_embeddings", m->max_pos);
    put_float(o, "rms_norm_eps", m->norm_eps);
    put_float(o, "rope_theta", m->rope_theta);
    json_put_bool(o, "attention_bias", false);
    json_put_bool(o, "mlp_bias", false);
    put_float(o, "attention_dropout", m->attention_dropout);
    if (m->rope_factor == 0) {
        json_put_null(o, "rope_scaling");
        return;
    }
    json_begin_object(o, "rope_scaling");
    if (m->yarn) {
        put_yarn(o, m);
        return;
    }
    json_put_string(o, "rope_type", "llama3");
    put_float(o, "factor", m->rope_factor);
    put_float(o, "low_freq_factor", m->rope_low_freq_factor);
    put_float(o, "high_freq_factor", m->rope_high_freq_factor);
    json_put_int(o, "original_max_position_embeddings", m->rope_original_max_pos);
    json_end_object(o);
}

static const char *torch_dtype(enum dtype t)
{
    return t == DT_BF16 ? "bfloat16" : t == DT_F16 ? "float16" : "float32";
}

void hf_config_put(struct json_out *o, const char *key, const struct hf_model *m, enum dtype dtype)
{
    static const char *const architecture[HF_N] = {"GPT2LMHeadModel", "LlamaForCausalLM", "MixtralForCausalLM",
                                                   "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"};
    json_begin_object(o, key);
    json_begin_array(o, "architectures");
    json_put_string(o, NULL, architecture[m->family]);
    json_end_array(o);
    json_put_string(o, "model_type", hf_family_name(m->family));
    json_put_int(o, "vocab_size", m->vocab);
    if (m->family == HF_GPT2)
        put_gpt2(o, m);
    else
        put_llama(o, m);
    if (m->family == HF_MIXTRAL) put_mixtral(o, m);
    if (m->mla.kv_rank) put_deepseek(o, m);
    json_put_bool(o, "tie_word_embeddings", m->tie);
    put_float(o, "initializer_range", m->init_std);
    if (m->bos >= 0)
        json_put_int(o, "bos_token_id", m->bos);
    else
        json_put_null(o, "bos_token_id"); /* absent would mean the library's default id */
    if (m->n_eos == 0) json_put_null(o, "eos_token_id");
    if (m->n_eos == 1) json_put_int(o, "eos_token_id", m->eos[0]);
    if (m->n_eos > 1) {
        json_begin_array(o, "eos_token_id");
        for (int i = 0; i < m->n_eos; i++) json_put_int(o, NULL, m->eos[i]);
        json_end_array(o);
    }
    json_put_string(o, "torch_dtype", torch_dtype(dtype));
    json_put_bool(o, "use_cache", true);
    json_end_object(o);
}
