/* SPDX-License-Identifier: Apache-2.0 */
/* hf_config.c: config.json to struct hf_model and back.
 *
 * Numbers go by their table (hf_numbers.c), which keys there may be else is hf_keys.c's; here is what follows from
 * several at once. What a file leaves out is what the library's own config class takes for it, family by family. A
 * config of an architecture with another model_type is refused outright, also when its keys would fit: the differences
 * are in code that is not in the file.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "checkpoint/hf.h"
#include "checkpoint/hf_keys.h"
#include "checkpoint/hf_llava.h"
#include "checkpoint/hf_layers.h"
#include "checkpoint/hf_numbers.h"
#include "checkpoint/hf_own.h"
#include "kernel/kernel.h"

#define CONFIG_LIMIT ((size_t)16 << 20)
#define SIZE_LIMIT ((int64_t)1 << 31)
enum {
    MAMBA_POSITIONS = 1 << 20
}; /* a state is as large after any text, and T5's distances have a bucket each: the
      longest that a run takes by itself */
#define BERT_UNMASKS "BertForMaskedLM"
#define BERT_TELLS "BertForSequenceClassification"

/* ours: the family that computes it; scores: the name of a reward model, NULL: there is none. */
static const struct hf_row {
    const char *name, *architecture;
    enum model_family ours;
    const char *scores;
} families[HF_N] = {
    [HF_GPT2] = {"gpt2", "GPT2LMHeadModel", MODEL_GPT2, "GPT2ForSequenceClassification"},
    [HF_LLAMA] = {"llama", "LlamaForCausalLM", MODEL_LLAMA, "LlamaForSequenceClassification"},
    [HF_MIXTRAL] = {"mixtral", "MixtralForCausalLM", MODEL_MIXTRAL, "MixtralForSequenceClassification"},
    [HF_DEEPSEEK_V2] = {"deepseek_v2", "DeepseekV2ForCausalLM", MODEL_DEEPSEEK, "DeepseekV2ForSequenceClassification"},
    [HF_DEEPSEEK_V3] = {"deepseek_v3", "DeepseekV3ForCausalLM", MODEL_DEEPSEEK, "DeepseekV3ForSequenceClassification"},
    [HF_VIT] = {"vit", "ViTForImageClassification", MODEL_VIT, NULL},
    [HF_BERT] = {"bert", BERT_UNMASKS, MODEL_BERT, NULL},
    [HF_MISTRAL] = {"mistral", "MistralForCausalLM", MODEL_MISTRAL, "MistralForSequenceClassification"},
    [HF_QWEN2] = {"qwen2", "Qwen2ForCausalLM", MODEL_QWEN2, "Qwen2ForSequenceClassification"},
    [HF_QWEN3] = {"qwen3", "Qwen3ForCausalLM", MODEL_QWEN3, "Qwen3ForSequenceClassification"},
    [HF_QWEN3_MOE] = {"qwen3_moe", "Qwen3MoeForCausalLM", MODEL_QWEN3_MOE, "Qwen3MoeForSequenceClassification"},
    [HF_SMOLLM3] = {"smollm3", "SmolLM3ForCausalLM", MODEL_SMOLLM3, "SmolLM3ForSequenceClassification"},
    [HF_OLMO2] = {"olmo2", "Olmo2ForCausalLM", MODEL_OLMO2, "Olmo2ForSequenceClassification"},
    [HF_PHI3] = {"phi3", "Phi3ForCausalLM", MODEL_PHI3, "Phi3ForSequenceClassification"},
    [HF_GEMMA2] = {"gemma2", "Gemma2ForCausalLM", MODEL_GEMMA2, "Gemma2ForSequenceClassification"},
    [HF_GEMMA3] = {"gemma3_text", "Gemma3ForCausalLM", MODEL_GEMMA3, "Gemma3TextForSequenceClassification"},
    [HF_GPT_OSS] = {"gpt_oss", "GptOssForCausalLM", MODEL_GPT_OSS, "GptOssForSequenceClassification"},
    [HF_MAMBA2] = {"mamba2", "Mamba2ForCausalLM", MODEL_MAMBA2, NULL},
    [HF_LLAVA] = {"llava", "LlavaForConditionalGeneration", MODEL_LLAVA, NULL},
    [HF_NEMOTRON_H] = {"nemotron_h", "NemotronHForCausalLM", MODEL_NEMOTRON_H, NULL},
    [HF_T5] = {"t5", "T5ForConditionalGeneration", MODEL_T5, NULL},
};

const char *hf_family_name(enum hf_family f)
{
    CHECK((unsigned)f < HF_N, "family %d", (int)f);
    return families[f].name;
}

struct hf_model hf_model_default(enum hf_family f)
{
    struct hf_model m = {.family = f, .model.family = families[f].ours, .bos = -1};
    struct err none;
    (void)hf_numbers_read(&m.model, model_numbers, NULL, 1u << f, "", &none);
    (void)hf_numbers_read(&m, hf_more_numbers, NULL, 1u << f, "", &none);
    for (const struct number *n = model_numbers; n->row.path; n++)
        if (n->row.type == CONF_WORD)
            memcpy((char *)&m.model + n->row.offset, n->row.otherwise, strlen(n->row.otherwise));
    return m;
}

/* -- reading ------------------------------------------------------------------------------------------------ */

static bool is_given(const struct json *object, const char *key)
{
    const struct json *v = json_get(object, key);
    return v && json_kind(v) != JSON_NULL;
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

/* Of encoder and decoder: theirs begins with padding where nothing is said, which is 0 where that is not said either.
 */
static int read_start(struct hf_model *m, const struct json *config, const char *what, struct err *e)
{
    const char *key = is_given(config, "decoder_start_token_id") ? "decoder_start_token_id" : "pad_token_id";
    int rc = is_given(config, key) ? read_id(json_get(config, key), &m->start, what, key, e) : OK;
    if (rc == OK && (m->start < 0 || m->start >= m->model.vocab))
        rc = err_set(e, ERR_REQUEST, "%s: %s: %lld is not among vocab_size %lld tokens", what, key, (long long)m->start,
                     (long long)m->model.vocab);
    return rc;
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
    if (rc == OK && m->family == HF_T5) rc = read_start(m, config, what, e);
    return rc;
}

static int settle_gpt2(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                       struct err *e)
{
    struct model_config *c = &m->model;
    (void)config, (void)ignore; /* no nested keys here */
    if (!c->ffn) c->ffn = 4 * c->hidden;
    c->kv_heads = c->heads;
    c->head_dim = c->hidden / c->heads;
    if (c->hidden % c->heads)
        return err_set(e, ERR_REQUEST, "%s: n_embd: %lld is not a multiple of n_head %lld", what, (long long)c->hidden,
                       (long long)c->heads);
    return OK;
}

enum { PHI3_ORIGINAL = 4096 }; /* what their class takes where a file has no original_max_position_embeddings */

/* Phi-3's files have the original length beside the object, and what is inside of it counts for nothing there. The
 * factor is the ratio of two lengths where it is not said. */
static int settle_longrope(struct hf_model *m, const struct json *config, const char *what, const char *key,
                           struct err *e)
{
    struct model_config *c = &m->model;
    struct rope_scaling_config *r = &c->rope_scaling;
    int64_t original = PHI3_ORIGINAL;
    if (m->family == HF_PHI3) {
        bool said = is_given(config, "original_max_position_embeddings");
        int rc = said ? json_need_int(config, "original_max_position_embeddings", 2, 1 << 24, &original, what, e) : OK;
        if (rc) return rc;
        r->original_max_position = original;
    }
    if (!r->original_max_position) r->original_max_position = c->max_positions;
    if (r->original_max_position < 2)
        return err_set(e, ERR_REQUEST, "%s: %s: original_max_position_embeddings: wanted 2 or more", what, key);
    if (r->factor == 0) r->factor = (double)c->max_positions / (double)r->original_max_position;
    return OK;
}

/* A number for each pair that turns, which is known when all is read. */
static int check_factors(const struct model_config *c, const struct json *config, const char *what, struct err *e)
{
    const char *key = is_given(config, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    int64_t pairs = model_turned(c) / 2;
    static const char *const names[] = {"short_factor", "long_factor"};
    const struct conf_numbers *const lists[] = {&c->rope_scaling.short_factors, &c->rope_scaling.long_factors};
    for (int i = 0; model_long_rope(c) && i < 2; i++)
        if (lists[i]->n != pairs)
            return err_set(e, ERR_REQUEST,
                           "%s: %s.%s: %lld numbers; the %lld columns of a head that turn are %lld pairs", what, key,
                           names[i], (long long)lists[i]->n, (long long)(2 * pairs), (long long)pairs);
    return OK;
}

static int check_scaling(struct hf_model *m, unsigned in, const struct json *config, const char *what, const char *key,
                         struct err *e)
{
    struct model_config *c = &m->model;
    if (in == IN_LONGROPE) return settle_longrope(m, config, what, key, e);
    const struct rope_scaling_config *r = &c->rope_scaling;
    if (in == IN_YARN && !r->original_max_position) c->rope_scaling.original_max_position = c->max_positions;
    if (in == IN_DYNAMIC || in == IN_LINEAR) c->rope_scaling.original_max_position = c->max_positions;
    if (in == IN_YARN && c->yarn.factor == 0) return err_set(e, ERR_REQUEST, "%s: %s: yarn wants a factor", what, key);
    if ((in == IN_DYNAMIC || in == IN_LINEAR) && r->factor < 1)
        return err_set(e, ERR_REQUEST, "%s: %s: linear and dynamic want a factor of 1 or more", what, key);
    if (in == IN_LLAMA3 && (r->factor == 0 || r->low_freq_factor == 0 || r->high_freq_factor <= r->low_freq_factor))
        return err_set(e, ERR_REQUEST, "%s: %s: llama3 wants factor, low_freq_factor < high_freq_factor", what, key);
    return OK;
}

/* The angles of one object. */
static int read_rope_object(struct hf_model *m, const struct json *config, const struct json *rope, const char *key,
                            const struct hf_ignore *ignore, const char *what, struct err *e)
{
    static const struct {
        const char *type;
        unsigned in;
    } kinds[] = {{"default", IN_DEFAULT}, {"llama3", IN_LLAMA3},   {"yarn", IN_YARN},
                 {"linear", IN_LINEAR},   {"dynamic", IN_DYNAMIC}, {"longrope", IN_LONGROPE}};
    const char *type = json_string(json_get(rope, "rope_type"), NULL, NULL);
    if (!type) type = json_string(json_get(rope, "type"), NULL, "default");
    unsigned in = 0;
    for (size_t i = 0; json_kind(rope) == JSON_OBJECT && i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(type, kinds[i].type)) in = kinds[i].in;
    bool phi3 = m->family == HF_PHI3, older = !strcmp(type, "su") || !strcmp(type, "yarn"); /* names for the same */
    if (phi3 && in != IN_DEFAULT) in = older ? IN_LONGROPE : in & IN_LONGROPE;
    if (!in)
        return err_set(e, ERR_REQUEST, "%s: %s: type %.40s is not computed here; only %s", what, key, type,
                       phi3 ? "default and longrope are" : "default, linear, dynamic, llama3, yarn and longrope are");
    int rc = hf_keys_check_rope(m->family, rope, key, in, ignore, what, e);
    if (rc == OK) rc = hf_numbers_read(&m->model, model_numbers, rope, in, what, e);
    return rc == OK ? check_scaling(m, in, config, what, key, e) : rc;
}

/* Gemma 3 in files of transformers 5: an object for each type of layer. That of local layers is a base and nothing
 * else. */
static int read_rope_by_type(struct hf_model *m, const struct json *config, const struct json *rope,
                             const struct hf_ignore *ignore, const char *what, struct err *e)
{
    const struct json *all = json_get(rope, "full_attention"), *near = json_get(rope, "sliding_attention");
    struct hf_model local = *m;
    if (json_size(rope) != (size_t)(all != NULL) + (near != NULL))
        return err_set(e, ERR_REQUEST,
                       "%s: rope_parameters: wanted full_attention and sliding_attention, and nothing else", what);
    int rc = all ? read_rope_object(m, config, all, "rope_parameters.full_attention", ignore, what, e) : OK;
    local.model.rope_theta = local.model.attn.local_theta;
    if (rc == OK && near)
        rc = read_rope_object(&local, config, near, "rope_parameters.sliding_attention", ignore, what, e);
    if (rc == OK && (local.model.rope_scaling.factor > 0 || local.model.yarn.factor > 0))
        return err_set(e, ERR_REQUEST,
                       "%s: rope_parameters.sliding_attention: scaled angles of local layers are not computed here",
                       what);
    m->model.attn.local_theta = local.model.rope_theta;
    return rc;
}

/* rope_scaling in files of transformers 4, rope_parameters (theta inside) from 5 on. */
static int read_rope(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                     struct err *e)
{
    bool newer = is_given(config, "rope_parameters");
    const char *key = newer ? "rope_parameters" : "rope_scaling";
    if (newer && is_given(config, "rope_scaling"))
        return err_set(e, ERR_REQUEST,
                       "%s: rope_parameters and rope_scaling are both there; which one counts is not said", what);
    if (!is_given(config, key)) return OK;
    const struct json *rope = json_get(config, key);
    if (newer && m->family == HF_GEMMA3 && (json_get(rope, "full_attention") || json_get(rope, "sliding_attention")))
        return read_rope_by_type(m, config, rope, ignore, what, e);
    return read_rope_object(m, config, rope, key, ignore, what, e);
}

static int settle_llama(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                        struct err *e)
{
    struct model_config *c = &m->model;
    if (!c->kv_heads) c->kv_heads = c->heads;
    if (!c->head_dim) c->head_dim = c->hidden / c->heads;
    c->attn.o_bias = c->attn.qkv_bias && m->family != HF_QWEN2; /* attention_bias is of all its products */
    int rc = read_rope(m, config, ignore, what, e);
    if (c->rope_part == 1) c->rope_part = 0;
    int64_t turned = model_turned(c);
    if (rc == OK && c->heads % c->kv_heads)
        rc = err_set(e, ERR_REQUEST, "%s: num_attention_heads: %lld is not a multiple of num_key_value_heads %lld",
                     what, (long long)c->heads, (long long)c->kv_heads);
    if (rc == OK && (turned < 1 || turned % 2))
        rc = err_set(e, ERR_REQUEST, "%s: head_dim: of a head %lld columns turn, and rotary embedding turns pairs",
                     what, (long long)turned);
    return rc == OK ? hf_layers_read(m, config, what, e) : rc;
}

static int settle_mixtral(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore,
                          const char *what, struct err *e)
{
    if (!json_get(config, "num_key_value_heads") && m->model.heads % m->model.kv_heads)
        m->model.kv_heads = m->model.heads;
    m->model.moe.ffn = m->model.ffn;
    return settle_llama(m, config, ignore, what, e);
}

/* Published weights of experts are MXFP4 codes, read as what they stand for (mxfp4.h). */
static int settle_gpt_oss(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore,
                          const char *what, struct err *e)
{
    const struct json *packed = json_get(config, "quantization_config");
    const char *method = packed ? json_string(json_get(packed, "quant_method"), NULL, "?") : "";
    if (is_given(config, "quantization_config") && strcmp(method, "mxfp4"))
        return err_set(e, ERR_REQUEST, "%s: quantization_config: quant_method %.40s is not read here; only mxfp4 is",
                       what, method);
    if (!is_given(config, "rope_scaling") && !is_given(config, "rope_parameters"))
        return err_set(e, ERR_REQUEST,
                       "%s: rope_scaling: is not there, and what their code takes then differs by release; say it: "
                       "published files have yarn, and {\"rope_type\": \"default\"} is none",
                       what);
    m->model.moe.ffn = m->model.ffn;
    return settle_llama(m, config, ignore, what, e);
}

/* topk_method says several things at once; groups count where it chooses by them. */
static int settle_router(struct hf_model *m, const struct json *config, const char *what, struct err *e)
{
    struct moe_config *x = &m->model.moe;
    const char *method =
        json_string(json_get(config, "topk_method"), NULL, m->family == HF_DEEPSEEK_V3 ? "noaux_tc" : "greedy");
    x->bias = !strcmp(method, "noaux_tc");
    if (!is_given(config, "tutti_group_pairs")) x->group_pairs = x->bias;
    if (x->groups <= 1 || !strcmp(method, "greedy")) x->groups = x->top_groups = 0;
    x->group_pairs = x->groups && x->group_pairs;
    if (x->top_k <= x->experts && x->first_dense <= m->model.layers && (!x->groups || x->experts % x->groups == 0))
        return OK;
    return err_set(e, ERR_REQUEST,
                   "%s: n_routed_experts: %lld experts do not fit num_experts_per_tok, n_group or "
                   "first_k_dense_replace",
                   what, (long long)x->experts);
}

static int settle_deepseek(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore,
                           const char *what, struct err *e)
{
    struct model_config *c = &m->model;
    int rc = settle_llama(m, config, ignore, what, e);
    c->kv_heads = c->heads; /* their number is that of the queries, whatever num_key_value_heads says */
    c->head_dim = c->mla.nope_dim + c->mla.rope_dim;
    return rc == OK ? settle_router(m, config, what, e) : rc;
}

/* num_labels may be left out where labels have names. */
static int settle_vit(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                      struct err *e)
{
    struct model_config *c = &m->model;
    const struct json *names = json_get(config, "id2label");
    bool named = names && json_kind(names) == JSON_OBJECT;
    (void)ignore; /* no nested keys here */
    if (named && c->classes && json_size(names) != (size_t)c->classes)
        return err_set(e, ERR_REQUEST, "%s: id2label: names %zu labels, num_labels is %lld", what, json_size(names),
                       (long long)c->classes);
    if (!c->classes) c->classes = named ? (int64_t)json_size(names) : 2; /* two are their default */
    if (c->classes < 2)
        return err_set(e, ERR_REQUEST, "%s: id2label: of one label (a regression) no class is told; wanted 2 or more",
                       what);
    if (c->hidden % c->heads)
        return err_set(e, ERR_REQUEST, "%s: hidden_size: %lld is not a multiple of num_attention_heads %lld", what,
                       (long long)c->hidden, (long long)c->heads);
    if (c->image_size % c->patch_size)
        return err_set(e, ERR_REQUEST,
                       "%s: patch_size: %lld does not divide image_size %lld; tutti cuts pictures into whole patches",
                       what, (long long)c->patch_size, (long long)c->image_size);
    c->kv_heads = c->heads;
    c->head_dim = c->hidden / c->heads;
    c->seq_len = c->max_positions = model_places(c);
    return OK;
}

static bool is_architecture(const struct json *config, const char *name)
{
    const struct json *list = json_get(config, "architectures");
    for (size_t i = 0; list && json_kind(list) == JSON_ARRAY && i < json_size(list); i++)
        if (!strcmp(json_string(json_at(list, i), NULL, ""), name)) return true;
    return false;
}

/* A decoder with a score instead of an output matrix stands in the architecture's name, too. */
static int settle_scores(struct hf_model *m, const struct json *config, const char *what, struct err *e)
{
    const char *name = families[m->family].scores;
    const struct json *names = json_get(config, "id2label"), *n = json_get(config, "num_labels");
    if (!name || !is_architecture(config, name)) return OK;
    bool named = names && json_kind(names) == JSON_OBJECT;
    int64_t labels = named ? (int64_t)json_size(names) : n ? json_int(n, 2) : 2; /* two are their default */
    if (labels != 1)
        return err_set(e, ERR_REQUEST, "%s: id2label: %s of %lld labels; what is computed here is a score, one label",
                       what, name, (long long)labels);
    const struct json *pad = json_get(config, "pad_token_id");
    bool is_end = pad && m->n_eos && json_kind(pad) == JSON_INT && json_int(pad, -1) == m->eos[0];
    m->model.score_at = is_end ? SCORE_AT_TEXT : SCORE_AT_END;
    m->model.scores = true;
    m->model.tie_embeddings = false; /* there is nothing to share it with */
    return OK;
}

/* What it tells stands in the architecture's name: numbers of labels are in files of every kind. */
static int settle_bert(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                       struct err *e)
{
    struct model_config *c = &m->model;
    const struct json *names = json_get(config, "id2label"), *list = json_get(config, "architectures");
    bool named = names && json_kind(names) == JSON_OBJECT, tells = is_architecture(config, BERT_TELLS);
    (void)ignore; /* no nested keys here */
    if (list && !tells && !is_architecture(config, BERT_UNMASKS) && !is_architecture(config, "BertForPreTraining"))
        return err_set(e, ERR_REQUEST,
                       "%s: architectures: %.60s is not computed here; " BERT_UNMASKS " and " BERT_TELLS " are", what,
                       json_kind(list) == JSON_ARRAY ? json_string(json_at(list, 0), NULL, "?") : "no list");
    if (tells && named && c->classes && json_size(names) != (size_t)c->classes)
        return err_set(e, ERR_REQUEST, "%s: id2label: names %zu labels, num_labels is %lld", what, json_size(names),
                       (long long)c->classes);
    if (!tells) c->classes = 0;
    else if (!c->classes) c->classes = named ? (int64_t)json_size(names) : 2; /* two are their default */
    if (tells && c->classes < 2)
        return err_set(e, ERR_REQUEST, "%s: id2label: of one label (a regression) no class is told; wanted 2 or more",
                       what);
    if (tells) c->tie_embeddings = false; /* there is nothing to share it with */
    if (c->hidden % c->heads)
        return err_set(e, ERR_REQUEST, "%s: hidden_size: %lld is not a multiple of num_attention_heads %lld", what,
                       (long long)c->hidden, (long long)c->heads);
    c->kv_heads = c->heads;
    c->head_dim = c->hidden / c->heads;
    return OK;
}

/* Their layers are each stack's: the decoder's are as many as the encoder's where nothing is said. Any length of text
 * will do. */
static int settle_t5(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                     struct err *e)
{
    struct model_config *c = &m->model;
    const struct json *said = json_get(config, "num_decoder_layers");
    int64_t decoder = c->encoder_layers;
    (void)ignore; /* no nested keys here */
    if (said && json_kind(said) != JSON_NULL) {
        int rc = json_need_int(config, "num_decoder_layers", 1, 10000, &decoder, what, e);
        if (rc) return rc;
    }
    c->layers = c->encoder_layers + decoder;
    if (c->layers > 10000)
        return err_set(e, ERR_REQUEST, "%s: num_decoder_layers: with num_layers more than 10000 layers", what);
    c->kv_heads = c->heads;
    c->max_positions = MAMBA_POSITIONS;
    return OK;
}

/* Two limits of steps; no number that is finite: there is none. */
static int read_steps(struct ssm_config *s, const struct json *config, const char *what, struct err *e)
{
    const struct json *list = json_get(config, "time_step_limit");
    if (!list || json_kind(list) == JSON_NULL) return OK;
    double lo = json_real(json_at(list, 0), NAN), hi = json_real(json_at(list, 1), NAN);
    bool two = json_kind(list) == JSON_ARRAY && json_size(list) == 2;
    if (!two || !(lo >= 0 && lo <= 1e6) || hi <= lo)
        return err_set(e, ERR_REQUEST,
                       "%s: time_step_limit: wanted two numbers, the first of 0 to 1e6, the second larger", what);
    s->step_least = lo;
    s->step_most = hi <= 1e6 ? hi : 0;
    return OK;
}

static int settle_mamba2(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore,
                         const char *what, struct err *e)
{
    struct model_config *c = &m->model;
    double expand = json_real(json_get(config, "expand"), 2);
    (void)ignore;               /* no nested keys here */
    c->heads = c->kv_heads = 1; /* there is no attention */
    c->head_dim = c->hidden;
    c->ffn = 0;
    c->max_positions = MAMBA_POSITIONS;
    if (!(fabs(expand * (double)c->hidden - (double)c->ssm.heads * (double)c->ssm.head_dim) < 0.5))
        return err_set(e, ERR_REQUEST, "%s: expand: %g x hidden_size %lld is not num_heads %lld x head_dim %lld", what,
                       expand, (long long)c->hidden, (long long)c->ssm.heads, (long long)c->ssm.head_dim);
    if (c->ssm.heads % c->ssm.groups)
        return err_set(e, ERR_REQUEST, "%s: num_heads: %lld is not a multiple of n_groups %lld", what,
                       (long long)c->ssm.heads, (long long)c->ssm.groups);
    return read_steps(&c->ssm, config, what, e);
}

/* Of a hybrid the layers are as many as its pattern names. */
static int settle_nemotron_h(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore,
                             const char *what, struct err *e)
{
    struct model_config *c = &m->model;
    (void)ignore; /* no nested keys here */
    int rc = hf_kinds_read(m, config, what, e);
    if (rc) return rc;
    if (!c->kv_heads) c->kv_heads = c->heads;
    if (c->heads % c->kv_heads)
        return err_set(e, ERR_REQUEST, "%s: num_attention_heads: %lld is not a multiple of num_key_value_heads %lld",
                       what, (long long)c->heads, (long long)c->kv_heads);
    if (c->ssm.heads % c->ssm.groups)
        return err_set(e, ERR_REQUEST, "%s: mamba_num_heads: %lld is not a multiple of n_groups %lld", what,
                       (long long)c->ssm.heads, (long long)c->ssm.groups);
    return read_steps(&c->ssm, config, what, e);
}

/* Sizes whose products are element counts: bounded so that no shape overflows. */
static int check_sizes(const struct model_config *c, const char *what, struct err *e)
{
    bool fits = c->heads * c->head_dim <= SIZE_LIMIT && c->moe.experts * c->layers <= 1 << 20;
    for (const struct number *n = model_numbers; n->row.path; n++) /* also those that follow from others */
        fits = fits &&
               (n->row.type != CONF_INT || (double)*(const int64_t *)((const char *)c + n->row.offset) <= n->row.hi);
    return fits ? OK : err_set(e, ERR_REQUEST, "%s: sizes beyond any model", what);
}

static int refuse_family(const char *type, const char *what, struct err *e)
{
    struct str all = {0};
    for (int f = 0; f < HF_N; f++) str_printf(&all, "%s%s", f ? ", " : "", families[f].name);
    int rc = err_set(e, ERR_REQUEST, "%s: model_type: %.60s is not one of tutti's families: %s", what, type, all.p);
    str_free(&all);
    return rc;
}

int hf_text_read(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                 struct err *e)
{
    static int (*const settle[MODEL_N])(struct hf_model *, const struct json *, const struct hf_ignore *, const char *,
                                        struct err *) = {[MODEL_GPT2] = settle_gpt2,
                                                         [MODEL_MIXTRAL] = settle_mixtral,
                                                         [MODEL_DEEPSEEK] = settle_deepseek,
                                                         [MODEL_GPT_OSS] = settle_gpt_oss,
                                                         [MODEL_VIT] = settle_vit,
                                                         [MODEL_BERT] = settle_bert,
                                                         [MODEL_MAMBA2] = settle_mamba2,
                                                         [MODEL_NEMOTRON_H] = settle_nemotron_h,
                                                         [MODEL_T5] = settle_t5};
    unsigned in = 1u << m->family;
    int rc = hf_keys_check(m->family, config, ignore, what, e);
    if (rc == OK) rc = hf_numbers_read(&m->model, model_numbers, config, in, what, e);
    if (rc == OK) rc = hf_numbers_read(m, hf_more_numbers, config, in, what, e);
    if (rc == OK) rc = (settle[m->model.family] ? settle[m->model.family] : settle_llama)(m, config, ignore, what, e);
    if (rc == OK) rc = hf_own_read(m, config, what, e);
    if (rc == OK) rc = check_factors(&m->model, config, what, e);
    if (rc == OK) rc = read_token_ids(m, config, what, e);
    if (rc == OK) rc = settle_scores(m, config, what, e);
    return rc;
}

int hf_config_parse(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                    struct err *e)
{
    const char *type;
    int rc = json_need_string(config, "model_type", &type, what, e);
    if (rc < 0) return rc;
    int family = 0;
    while (family < HF_N && strcmp(families[family].name, type)) family++;
    if (family == HF_N) return refuse_family(type, what, e);
    *m = hf_model_default((enum hf_family)family);
    rc = family == HF_LLAVA ? hf_llava_read(m, config, ignore, what, e) : hf_text_read(m, config, ignore, what, e);
    return rc == OK ? check_sizes(&m->model, what, e) : rc;
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

/* No groups are one of all experts; the size of a head is of what is turned. */
static struct model_config in_their_words(const struct model_config *c)
{
    struct model_config t = *c;
    if (!t.moe.groups) t.moe.groups = t.moe.top_groups = 1;
    t.head_dim = c->mla.kv_rank ? c->mla.rope_dim : c->head_dim;
    if (t.attn.scale_dim <= 0) t.attn.scale_dim = (double)c->head_dim;
    if (t.attn.local_theta <= 0) t.attn.local_theta = c->rope_theta;
    return t;
}

/* Longrope's numbers as the object has them: what follows from others is left out, since older releases of Phi-3's
 * code take an object of the type and two lists only. */
static struct rope_scaling_config long_scaling(const struct model_config *c)
{
    struct rope_scaling_config r = c->rope_scaling;
    if (r.factor == (double)c->max_positions / (double)r.original_max_position) r.factor = 0;
    if (c->family == MODEL_PHI3) r.original_max_position = 0; /* beside it */
    return r;
}

static void put_original(struct json_out *o, const struct hf_put *p)
{
    json_put_int(o, p->key, ((const struct model_config *)p->of)->rope_scaling.original_max_position);
}

static void put_rope(struct json_out *o, const struct hf_put *p)
{
    struct model_config theirs = *(const struct model_config *)p->of;
    const struct model_config *c = &theirs;
    static const unsigned in[] = {IN_LLAMA3, IN_LINEAR, IN_DYNAMIC, IN_LONGROPE};
    static const char *const types[] = {"llama3", "linear", "dynamic", "longrope"};
    bool yarn = c->yarn.factor > 0;
    struct hf_puts puts = {.n = 0};
    if (!yarn && c->rope_scaling.factor == 0) {
        if (c->family != MODEL_GPT_OSS) {
            json_put_null(o, p->key);
            return;
        }
        json_begin_object(o, p->key); /* null would be YaRN to some releases of their code */
        json_put_string(o, "rope_type", "default");
        json_end_object(o);
        return;
    }
    bool only = c->family == MODEL_PHI3; /* the type and nothing of it under another name */
    if (model_long_rope(c)) theirs.rope_scaling = long_scaling(c);
    hf_puts_add_numbers(&puts, c, model_numbers, yarn ? IN_YARN : in[c->rope_scaling.kind]);
    json_begin_object(o, p->key);
    const char *type = yarn ? "yarn" : types[c->rope_scaling.kind];
    if (yarn || c->rope_scaling.kind != ROPE_LLAMA3) json_put_string(o, "type", type); /* older releases read this */
    if (!only) json_put_string(o, "rope_type", type);
    hf_puts_write(&puts, o);
    json_end_object(o);
}

static void put_steps(struct json_out *o, const struct hf_put *p)
{
    const struct ssm_config *s = &((const struct model_config *)p->of)->ssm;
    json_begin_array(o, p->key);
    json_put_real(o, NULL, s->step_least);
    json_put_real(o, NULL, s->step_most);
    json_end_array(o);
}

/* Their inner width is a multiple of hidden; another is said in a checkpoint's own description only. */
static void put_expand(struct json_out *o, const struct hf_put *p)
{
    const struct model_config *c = p->of;
    int64_t inner = c->ssm.heads * c->ssm.head_dim;
    if (inner % c->hidden) json_put_real(o, p->key, (double)inner / (double)c->hidden);
    else json_put_int(o, p->key, inner / c->hidden);
}

static void put_decoder_layers(struct json_out *o, const struct hf_put *p)
{
    const struct model_config *c = p->of;
    json_put_int(o, p->key, c->layers - c->encoder_layers);
}

static void put_start(struct json_out *o, const struct hf_put *p)
{
    json_put_int(o, p->key, ((const struct hf_model *)p->of)->start);
}

static void put_method(struct json_out *o, const struct hf_put *p)
{
    const struct moe_config *x = &((const struct model_config *)p->of)->moe;
    json_put_string(o, p->key, x->bias ? "noaux_tc" : x->groups > 1 ? "group_limited_greedy" : "greedy");
}

static void put_pairs(struct json_out *o, const struct hf_put *p)
{
    json_put_bool(o, p->key, ((const struct model_config *)p->of)->moe.group_pairs);
}

/* A decoder's number that their files do not name is what their code has. */
static int decoder_expressible(const struct hf_model *m, struct err *e)
{
    double only;
    bool scaled = m->model.rope_scaling.factor > 0 || m->model.yarn.factor > 0;
    if (m->family == HF_PHI3 && scaled && !model_long_rope(&m->model))
        return err_set(e, ERR_REQUEST,
                       "phi3: their code scales positions by longrope only (model.rope_scaling, model.yarn)");
    for (const struct number *n = model_numbers; n->row.path; n++)
        if (hf_own_has(m, n, &only))
            return err_set(e, ERR_REQUEST, "%s: their code has no key for %s, and another value there than this model",
                           hf_family_name(m->family), n->row.path);
    return OK;
}

int hf_config_expressible(const struct hf_model *m, struct err *e)
{
    if (m->family == HF_LLAVA && !hf_llava_tower(m))
        return err_set(e, ERR_REQUEST,
                       "llava: their towers are CLIP's (a place for the class, a norm before, no bias of patches) and "
                       "SigLIP's (none, none, a bias); this model's is neither (model.vision)");
    int rc = model_decodes(&m->model) ? decoder_expressible(m, e) : OK;
    if (rc) return rc;
    if (m->model.scores && !families[m->family].scores)
        return err_set(e, ERR_REQUEST, "%s: their code has no form with a score", hf_family_name(m->family));
    if (m->model.scores && m->model.score_at == SCORE_AT_TEXT && !m->n_eos)
        return err_set(e, ERR_REQUEST,
                       "model.score_at: text: their code passes over what is the padding's, which would be the end of "
                       "text; this model names none");
    if (m->family == HF_VIT && m->model.pool)
        return err_set(e, ERR_REQUEST,
                       "vit: their code reads the class off its own place, this model off the mean of the patches "
                       "(model.pool)");
    if (m->family == HF_MAMBA2 && m->model.ssm.heads * m->model.ssm.head_dim % m->model.hidden)
        return err_set(e, ERR_REQUEST,
                       "mamba2: their inner width is a whole multiple of hidden, this model's %lld is not "
                       "(model.ssm.heads)",
                       (long long)(m->model.ssm.heads * m->model.ssm.head_dim));
    if (m->family == HF_NEMOTRON_H && m->model.tie_embeddings)
        return err_set(e, ERR_REQUEST,
                       "nemotron_h: their code has an output matrix of its own, whatever tie_word_embeddings says, "
                       "this model has none (model.tie_embeddings)");
    if (model_both_ways(&m->model) && !model_pairs(&m->model) && m->model.head_dim * m->model.heads != m->model.hidden)
        return err_set(e, ERR_REQUEST,
                       "%s: their code has heads of hidden / heads columns, this model of %lld (model.head_dim)",
                       hf_family_name(m->family), (long long)m->model.head_dim);
    if (m->family != HF_DEEPSEEK_V2 && m->family != HF_DEEPSEEK_V3) return OK;
    if (m->model.moe.shared == 0)
        return err_set(e, ERR_REQUEST, "%s: their code wants shared experts, this model has none",
                       hf_family_name(m->family));
    if (m->model.mla.norm_eps != 1e-6)
        return err_set(e, ERR_REQUEST,
                       "%s: their code adds 1e-6 in the norms of short vectors, this model %g (model.mla.norm_eps)",
                       hf_family_name(m->family), m->model.mla.norm_eps);
    if (m->family == HF_DEEPSEEK_V2)
        return m->model.moe.score == SCORE_SIGMOID || m->model.moe.norm_topk || m->model.moe.bias ||
                       !m->model.mla.rope_pairs
                   ? err_set(e, ERR_REQUEST,
                             "deepseek_v2: their code computes softmax scores that are not scaled to sum 1")
                   : OK;
    if (m->model.moe.score != SCORE_SIGMOID || !m->model.moe.bias || (m->model.moe.groups && !m->model.moe.group_pairs))
        return err_set(e, ERR_REQUEST,
                       "deepseek_v3: their code computes sigmoid scores with a bias of choice and groups by "
                       "their two largest; this model's router is another (model.moe.score, bias, group_pairs)");
    return OK;
}

static const char *torch_dtype(enum dtype t) { return t == DT_BF16 ? "bfloat16" : t == DT_F16 ? "float16" : "float32"; }

static void put_ids(struct json_out *o, const struct hf_model *m)
{
    if (m->bos >= 0) json_put_int(o, "bos_token_id", m->bos);
    else json_put_null(o, "bos_token_id"); /* absent would mean the library's default id */
    if (m->n_eos == 0) json_put_null(o, "eos_token_id");
    if (m->n_eos == 1) json_put_int(o, "eos_token_id", m->eos[0]);
    if (m->n_eos > 1) {
        json_begin_array(o, "eos_token_id");
        for (int i = 0; i < m->n_eos; i++) json_put_int(o, NULL, m->eos[i]);
        json_end_array(o);
    }
}

/* The one label that makes a score of what would be classes. Their code reads it at the last token that is not the
 * padding's; where that has no id, it takes one text at a time. */
static void put_label(struct json_out *o, const struct hf_model *m)
{
    json_begin_object(o, "id2label");
    json_put_string(o, "0", "LABEL_0");
    json_end_object(o);
    json_begin_object(o, "label2id");
    json_put_int(o, "LABEL_0", 0);
    json_end_object(o);
    if (m->model.score_at == SCORE_AT_TEXT && m->n_eos) json_put_int(o, "pad_token_id", m->eos[0]);
    else json_put_null(o, "pad_token_id");
}

void hf_config_put(struct json_out *o, const char *key, const struct hf_model *m, enum dtype dtype)
{
    const struct hf_row *f = &families[m->family];
    if (m->family == HF_LLAVA) hf_llava_put(o, key, m, f->architecture, torch_dtype(dtype));
    else hf_config_put_as(o, key, m, f->architecture, f->name, dtype);
}

void hf_config_put_as(struct json_out *o, const char *key, const struct hf_model *m, const char *architecture,
                      const char *type, enum dtype dtype)
{
    struct model_config theirs = in_their_words(&m->model);
    struct hf_puts puts = {.n = 0};
    hf_keys_add(&puts, 1u << m->family);
    hf_puts_add_numbers(&puts, &theirs, model_numbers, 1u << m->family);
    hf_puts_add_numbers(&puts, m, hf_more_numbers, 1u << m->family);
    bool writes = !model_both_ways(&m->model), told = m->family == HF_BERT && m->model.classes;
    hf_layers_add(&puts, m);
    hf_own_add(&puts, m);
    if (m->family == HF_T5) {
        hf_puts_add(&puts, (struct hf_put){41, "num_decoder_layers", put_decoder_layers, &theirs, NULL});
        hf_puts_add(&puts, (struct hf_put){1000, "decoder_start_token_id", put_start, m, NULL});
        hf_puts_add(&puts, (struct hf_put){1001, "pad_token_id", put_start, m, NULL});
    }
    if (m->family == HF_MAMBA2) hf_puts_add(&puts, (struct hf_put){51, "expand", put_expand, &theirs, NULL});
    if (model_scans(&m->model) && (m->model.ssm.step_least > 0 || m->model.ssm.step_most > 0))
        hf_puts_add(&puts,
                    (struct hf_put){m->family == HF_MAMBA2 ? 64 : 89, "time_step_limit", put_steps, &theirs, NULL});
    if (writes && m->family != HF_GPT2 && !model_scans(&m->model))
        hf_puts_add(&puts, (struct hf_put){150, "rope_scaling", put_rope, &theirs, NULL});
    if (m->family == HF_PHI3 && model_long_rope(&m->model))
        hf_puts_add(&puts, (struct hf_put){95, "original_max_position_embeddings", put_original, &theirs, NULL});
    if (m->model.mla.kv_rank) hf_puts_add(&puts, (struct hf_put){310, "topk_method", put_method, &theirs, NULL});
    bool otherwise = m->model.moe.groups && m->model.moe.group_pairs != m->model.moe.bias;
    if (m->model.mla.kv_rank && otherwise)
        hf_puts_add(&puts, (struct hf_put){390, "tutti_group_pairs", put_pairs, &theirs, NULL});
    json_begin_object(o, key);
    json_begin_array(o, "architectures");
    json_put_string(o, NULL, told ? BERT_TELLS : m->model.scores ? families[m->family].scores : architecture);
    json_end_array(o);
    json_put_string(o, "model_type", type);
    hf_puts_write(&puts, o);
    if (writes || m->family == HF_T5) put_ids(o, m);
    if (m->model.scores) put_label(o, m);
    json_put_string(o, "torch_dtype", torch_dtype(dtype));
    if (writes) json_put_bool(o, "use_cache", true);
    json_end_object(o);
}
