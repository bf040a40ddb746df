/* SPDX-License-Identifier: Apache-2.0 */
/* hf_config.c: config.json to struct hf_model.
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
#include "hub/hf_config_impl.h"
#include "hub/hf_keys.h"
#include "hub/hf_layers.h"
#include "hub/hf_llava.h"
#include "hub/hf_numbers.h"
#include "hub/hf_own.h"
#include "hub/hf_rope.h"

#define CONFIG_LIMIT ((size_t)16 << 20)
#define SIZE_LIMIT ((int64_t)1 << 31)
enum {
    MAMBA_POSITIONS = 1 << 20
}; /* a state is as large after any text, and T5's distances have a bucket each: the
      longest that a run takes by itself */

/* clang-format off */
const struct hf_row hf_rows[HF_N] = {
#define MODEL_TYPE(id, letters, family, type, writes, scores, ...) [HF_##id] = {type, writes, MODEL_##family, scores},
#include "model/families.def"
};
/* clang-format on */

const char *hf_family_name(enum hf_family f)
{
    CHECK((unsigned)f < HF_N, "family %d", (int)f);
    return hf_rows[f].name;
}

struct hf_model hf_model_default(enum hf_family f)
{
    struct hf_model m = {.family = f, .model.family = hf_rows[f].ours, .bos = -1, .pad = -1};
    struct err none;
    (void)hf_numbers_read(&m.model, model_numbers, NULL, 1u << f, "", &none);
    (void)hf_numbers_read(&m, hf_more_numbers, NULL, 1u << f, "", &none);
    for (const struct number *n = model_numbers; n->row.path; n++)
        if (n->row.type == CONF_WORD)
            memcpy((char *)&m.model + n->row.offset, n->row.otherwise, strlen(n->row.otherwise));
    return m;
}

int hf_token_id(const struct json *v, int64_t *id, const char *what, const char *key, struct err *e)
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
    const char *key = hf_given(config, "decoder_start_token_id") ? "decoder_start_token_id" : "pad_token_id";
    int rc = hf_given(config, key) ? hf_token_id(json_get(config, key), &m->start, what, key, e) : OK;
    if (rc == OK && (m->start < 0 || m->start >= m->model.vocab))
        rc = err_set(e, ERR_REQUEST, "%s: %s: %lld is not among vocab_size %lld tokens", what, key, (long long)m->start,
                     (long long)m->model.vocab);
    return rc;
}

/* No number of ours follows from it (but where a score is read: settle_scores), so one that is none is none. */
static void read_pad(struct hf_model *m, const struct json *config)
{
    const struct json *v = json_get(config, "pad_token_id");
    int64_t id = v && json_kind(v) == JSON_INT ? json_int(v, -1) : -1;
    m->pad = id >= 0 && id < m->model.vocab ? id : -1;
}

static int read_token_ids(struct hf_model *m, const struct json *config, const char *what, struct err *e)
{
    const struct json *bos = json_get(config, "bos_token_id"), *eos = json_get(config, "eos_token_id");
    bool several = eos && json_kind(eos) == JSON_ARRAY;
    size_t n = several ? json_size(eos) : eos && json_kind(eos) != JSON_NULL;
    int rc = hf_given(config, "bos_token_id") ? hf_token_id(bos, &m->bos, what, "bos_token_id", e) : OK;
    if (rc == OK && n > HF_EOS)
        rc = err_set(e, ERR_REQUEST, "%s: eos_token_id: a list of %zu; tutti keeps %d", what, n, HF_EOS);
    for (size_t i = 0; rc == OK && i < n; i++) {
        rc = hf_token_id(several ? json_at(eos, i) : eos, &m->eos[m->n_eos], what, "eos_token_id", e);
        m->n_eos += rc == OK && m->eos[m->n_eos] >= 0;
    }
    if (rc == OK) read_pad(m, config);
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

static int settle_llama(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                        struct err *e)
{
    struct model_config *c = &m->model;
    if (!c->kv_heads) c->kv_heads = c->heads;
    if (!c->head_dim) c->head_dim = c->hidden / c->heads;
    c->attn.o_bias = c->attn.qkv_bias && m->family != HF_QWEN2; /* attention_bias is of all its products */
    int rc = hf_rope_read(m, config, ignore, what, e);
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
    m->model.moe.ffn = m->model.ffn;
    return settle_llama(m, config, ignore, what, e);
}

/* Published weights of experts are MXFP4 codes, read as what they stand for (mxfp4.h). */
static int settle_gpt_oss(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore,
                          const char *what, struct err *e)
{
    const struct json *packed = json_get(config, "quantization_config");
    const char *method = packed ? json_string(json_get(packed, "quant_method"), NULL, "?") : "";
    if (hf_given(config, "quantization_config") && strcmp(method, "mxfp4"))
        return err_set(e, ERR_REQUEST, "%s: quantization_config: quant_method %.40s is not read here; only mxfp4 is",
                       what, method);
    if (!hf_given(config, "rope_scaling") && !hf_given(config, "rope_parameters"))
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
    if (!hf_given(config, "tutti_group_pairs")) x->group_pairs = x->bias;
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
    int64_t said = c->head_dim;
    c->kv_heads = c->heads; /* their number is that of the queries, whatever num_key_value_heads says */
    int rc = settle_llama(m, config, ignore, what, e);
    if (rc == OK && m->family == HF_DEEPSEEK_V3 && said && said != c->mla.rope_dim)
        rc = err_set(e, ERR_REQUEST,
                     "%s: head_dim: %lld: their code makes angles for so many columns of a head, and qk_rope_head_dim "
                     "%lld turn",
                     what, (long long)said, (long long)c->mla.rope_dim);
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
    const char *name = hf_rows[m->family].scores;
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
    const char *unmasks = hf_rows[m->family].architecture;
    bool named = names && json_kind(names) == JSON_OBJECT, tells = is_architecture(config, BERT_TELLS);
    (void)ignore; /* no nested keys here */
    if (list && !tells && !is_architecture(config, unmasks) && !is_architecture(config, "BertForPreTraining"))
        return err_set(e, ERR_REQUEST, "%s: architectures: %.60s is not computed here; %s and " BERT_TELLS " are", what,
                       json_kind(list) == JSON_ARRAY ? json_string(json_at(list, 0), NULL, "?") : "no list", unmasks);
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

/* As a word that says no more than it must. */
static void set_head_scale(struct model_config *c, bool scaled)
{
    c->head_scale = scaled == c->tie_embeddings ? HEAD_SCALE_TIED : scaled ? HEAD_SCALE_ALWAYS : HEAD_SCALE_NEVER;
}

void hf_untie(struct hf_model *m)
{
    bool scaled = model_scales_head(&m->model);
    m->model.tie_embeddings = false;
    if (model_pairs(&m->model)) set_head_scale(&m->model, scaled);
}

/* Whether logits are of the stream divided by the root of its width: from release 5 on a key of its own says so, and
 * tie_word_embeddings beside it is true whatever the files hold; before, it was what tie_word_embeddings said. */
static int read_head_scale(struct model_config *c, const struct json *config, const char *what, struct err *e)
{
    const char *key = "scale_decoder_outputs";
    const struct json *v = json_get(config, key);
    if (!hf_given(config, key)) return OK;
    if (json_kind(v) != JSON_BOOL) return err_set(e, ERR_REQUEST, "%s: %s: wanted true or false", what, key);
    set_head_scale(c, json_bool(v, false));
    return OK;
}

/* Newer files say feed_forward_proj once more in its parts, and their code goes by these. */
static int check_feed_forward(const struct model_config *c, const struct json *config, const char *what, struct err *e)
{
    bool gated = c->feed_forward == FEED_FORWARD_GATED;
    const char *act = gated ? "gelu_new" : "relu", *said = json_string(json_get(config, "dense_act_fn"), NULL, "?");
    if (hf_given(config, "dense_act_fn") && strcmp(said, act))
        return err_set(e, ERR_REQUEST, "%s: dense_act_fn: %.40s, and feed_forward_proj makes it %s", what, said, act);
    if (hf_given(config, "is_gated_act") && json_bool(json_get(config, "is_gated_act"), !gated) != gated)
        return err_set(e, ERR_REQUEST, "%s: is_gated_act: is not what feed_forward_proj says", what);
    return OK;
}

/* Their layers are each stack's: the decoder's are as many as the encoder's where nothing is said. Any length of text
 * will do. */
static int settle_t5(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                     struct err *e)
{
    struct model_config *c = &m->model;
    int64_t decoder = c->encoder_layers;
    (void)ignore; /* no nested keys here */
    if (hf_given(config, "num_decoder_layers")) {
        int rc = json_need_int(config, "num_decoder_layers", 1, 10000, &decoder, what, e);
        if (rc) return rc;
    }
    c->layers = c->encoder_layers + decoder;
    if (c->layers > 10000)
        return err_set(e, ERR_REQUEST, "%s: num_decoder_layers: with num_layers more than 10000 layers", what);
    c->kv_heads = c->heads;
    c->max_positions = MAMBA_POSITIONS;
    int rc = check_feed_forward(c, config, what, e);
    return rc ? rc : read_head_scale(c, config, what, e);
}

/* Two limits of steps; no number that is finite: there is none. */
static int read_steps(struct ssm_config *s, const struct json *config, const char *what, struct err *e)
{
    const struct json *list = json_get(config, "time_step_limit");
    if (!hf_given(config, "time_step_limit")) return OK;
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
    for (int f = 0; f < HF_N; f++) str_printf(&all, "%s%s", f ? ", " : "", hf_rows[f].name);
    int rc = err_set(e, ERR_REQUEST, "%s: model_type: %.60s is not one of tutti's families: %s", what, type, all.p);
    str_free(&all);
    return rc;
}

/* What follows from several numbers of a family. */
typedef int settle_fn(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                      struct err *e);

int hf_text_read(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                 struct err *e)
{
    static settle_fn *const settle[HF_N] = {
#define MODEL_TYPE(id, letters, family, type, writes, scores, settle, ...) [HF_##id] = settle_##settle,
#include "model/families.def"
    };
    unsigned in = 1u << m->family;
    int rc = hf_keys_check(m->family, config, ignore, what, e);
    if (rc == OK) rc = hf_numbers_read(&m->model, model_numbers, config, in, what, e);
    if (rc == OK) rc = hf_numbers_read(m, hf_more_numbers, config, in, what, e);
    if (rc == OK) rc = settle[m->family](m, config, ignore, what, e);
    if (rc == OK) rc = hf_own_read(m, config, what, e);
    if (rc == OK) rc = hf_rope_check(&m->model, config, what, e);
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
    while (family < HF_N && strcmp(hf_rows[family].name, type)) family++;
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
