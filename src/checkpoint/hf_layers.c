/* SPDX-License-Identifier: Apache-2.0 */
/* hf_layers.c: layer_types says it layer by layer; where a file has none, its family's rule does, which is what the
 * config class of the library would fill in. */
#include "checkpoint/hf_layers.h"

#include <string.h>

#include "base/mem.h"

static unsigned bit(enum hf_family f) { return 1u << f; }

/* ---- which layers are local ---- */
enum local_rule {
    LOCAL_NONE,     /* the family has no window */
    LOCAL_ALL,      /* and says nothing by layer */
    LOCAL_BEHIND,   /* from max_window_layers on */
    LOCAL_UNTURNED, /* those that do not turn */
    LOCAL_EVERY,    /* all but each n-th, n of sliding_window_pattern */
};
static const struct {
    enum local_rule rule;
    int64_t usual; /* of max_window_layers, or of the n */
    bool asks;     /* use_sliding_window has to be true */
    bool lists;    /* layer_types is read and written */
} rules[HF_N] = {
    [HF_MISTRAL] = {LOCAL_ALL, 0, false, false},    [HF_QWEN2] = {LOCAL_BEHIND, 28, true, true},
    [HF_QWEN3] = {LOCAL_BEHIND, 28, true, true},    [HF_QWEN3_MOE] = {LOCAL_ALL, 0, true, false},
    [HF_SMOLLM3] = {LOCAL_UNTURNED, 0, true, true}, [HF_PHI3] = {LOCAL_ALL, 0, false, false},
    [HF_GEMMA2] = {LOCAL_EVERY, 2, false, true},    [HF_GEMMA3] = {LOCAL_EVERY, 6, false, true},
    [HF_GPT_OSS] = {LOCAL_EVERY, 2, false, true},
};

static bool given(const struct json *config, const char *key)
{
    const struct json *v = json_get(config, key);
    return v && json_kind(v) != JSON_NULL;
}

static int whole(const struct json *config, const char *key, int64_t least, int64_t *n, const char *what, struct err *e)
{
    return given(config, key) ? json_need_int(config, key, least, 1 << 20, n, what, e) : OK;
}

static int list_of(const struct json *config, const char *key, int64_t layers, const struct json **list,
                   const char *what, struct err *e)
{
    *list = json_get(config, key);
    if (json_kind(*list) == JSON_ARRAY && json_size(*list) == (size_t)layers) return OK;
    return err_set(e, ERR_REQUEST, "%s: %s: wanted a list of num_hidden_layers = %lld", what, key, (long long)layers);
}

static int local_by_list(bool *has, int64_t n, const struct json *config, const char *what, struct err *e)
{
    const struct json *list;
    int rc = list_of(config, "layer_types", n, &list, what, e);
    for (int64_t l = 0; rc == OK && l < n; l++) {
        const char *type = json_string(json_at(list, (size_t)l), NULL, "?");
        has[l] = !strcmp(type, "sliding_attention");
        if (!has[l] && strcmp(type, "full_attention"))
            rc = err_set(e, ERR_REQUEST,
                         "%s: layer_types[%lld]: %.40s is not computed here; only full_attention and sliding_attention "
                         "are",
                         what, (long long)l, type);
    }
    return rc;
}

static int local_by_rule(bool *has, const struct hf_model *m, const struct json *config, const char *what,
                         struct err *e)
{
    int64_t n = rules[m->family].usual;
    int rc = OK;
    if (rules[m->family].rule == LOCAL_BEHIND) rc = whole(config, "max_window_layers", 0, &n, what, e);
    if (rules[m->family].rule == LOCAL_EVERY && m->family == HF_GEMMA3)
        rc = whole(config,
                   given(config, "sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern", 1,
                   &n, what, e);
    for (int64_t l = 0; rc == OK && l < m->model.layers; l++) {
        switch (rules[m->family].rule) {
        case LOCAL_BEHIND: has[l] = l >= n; break;
        case LOCAL_UNTURNED: has[l] = !layer_pattern_has(&m->model.attn.rope, l); break;
        case LOCAL_EVERY: has[l] = (l + 1) % n != 0; break;
        default: has[l] = true;
        }
    }
    return rc;
}

static int pattern_of(const bool *has, int64_t n, struct layer_pattern *p, const char *what, const char *key,
                      struct err *e)
{
    if (layer_pattern_of(has, n, p)) return OK;
    return err_set(e, ERR_REQUEST, "%s: %s: layers change too often for a pattern of %d characters (5xo)", what, key,
                   LAYER_PATTERN_BYTES - 1);
}

static int read_local(struct hf_model *m, bool *has, const struct json *config, const char *what, struct err *e)
{
    struct model_config *c = &m->model;
    if (rules[m->family].rule == LOCAL_NONE) return OK;
    const struct json *asked = json_get(config, "use_sliding_window");
    if (rules[m->family].asks && given(config, "use_sliding_window") && json_kind(asked) != JSON_BOOL)
        return err_set(e, ERR_REQUEST, "%s: use_sliding_window: wanted true or false", what);
    if (rules[m->family].asks && !json_bool(asked, false)) c->attn.window = 0;
    bool lists = rules[m->family].lists && given(config, "layer_types");
    int rc = lists ? local_by_list(has, c->layers, config, what, e) : local_by_rule(has, m, config, what, e);
    bool any = false;
    for (int64_t l = 0; l < c->layers; l++) any |= has[l];
    if (rc == OK && lists && any && !c->attn.window)
        return err_set(e, ERR_REQUEST, "%s: layer_types: has sliding_attention, and sliding_window says no size", what);
    if (!any) c->attn.window = 0;
    if (rc || !c->attn.window) return rc;
    return pattern_of(has, c->layers, &c->attn.local, what, "layer_types", e);
}

/* ---- which layers turn ---- */
static int read_rope(struct hf_model *m, bool *has, const struct json *config, const char *what, struct err *e)
{
    const struct json *list = NULL;
    int64_t every = 4, n = m->model.layers;
    if (m->family != HF_SMOLLM3) return OK;
    int rc = given(config, "no_rope_layers") ? list_of(config, "no_rope_layers", n, &list, what, e)
                                             : whole(config, "no_rope_layer_interval", 1, &every, what, e);
    for (int64_t l = 0; rc == OK && l < n; l++) { /* 1: it does, whatever the key's name says */
        const struct json *v = list ? json_at(list, (size_t)l) : NULL;
        has[l] = list ? json_int(v, 0) == 1 : (l + 1) % every != 0;
        if (v && (json_kind(v) != JSON_INT || json_int(v, -1) < 0 || json_int(v, -1) > 1))
            rc = err_set(e, ERR_REQUEST, "%s: no_rope_layers[%lld]: wanted 0 or 1", what, (long long)l);
    }
    return rc ? rc : pattern_of(has, n, &m->model.attn.rope, what, "no_rope_layers", e);
}

/* ---- which layers have experts ---- */
static int read_sparse(struct hf_model *m, bool *has, const struct json *config, const char *what, struct err *e)
{
    int64_t step = 1, n = m->model.layers;
    if (m->family != HF_QWEN3_MOE) return OK;
    int rc = whole(config, "decoder_sparse_step", 1, &step, what, e);
    for (int64_t l = 0; rc == OK && l < n; l++) has[l] = (l + 1) % step == 0;
    const struct json *plain = json_get(config, "mlp_only_layers");
    if (rc == OK && given(config, "mlp_only_layers") && json_kind(plain) != JSON_ARRAY)
        rc = err_set(e, ERR_REQUEST, "%s: mlp_only_layers: wanted a list of layers", what);
    for (size_t i = 0; rc == OK && given(config, "mlp_only_layers") && i < json_size(plain); i++) {
        int64_t l = json_int(json_at(plain, i), -1);
        if (l < 0 || l >= n)
            rc = err_set(e, ERR_REQUEST, "%s: mlp_only_layers[%zu]: wanted a layer from 0 to %lld", what, i,
                         (long long)n - 1);
        else has[l] = false;
    }
    return rc ? rc : pattern_of(has, n, &m->model.moe.sparse, what, "mlp_only_layers", e);
}

int hf_layers_read(struct hf_model *m, const struct json *config, const char *what, struct err *e)
{
    bool *has = xcalloc(to_size(m->model.layers) + 1, sizeof *has);
    int rc = read_rope(m, has, config, what, e);
    if (rc == OK) rc = read_local(m, has, config, what, e);
    if (rc == OK) rc = read_sparse(m, has, config, what, e);
    xfree(has);
    return rc;
}

/* ---- writing ---- */
bool hf_layers_windows(enum hf_family f) { return rules[f].rule != LOCAL_NONE; }

bool hf_layers_says(const struct hf_model *m, const struct number *n)
{
    const struct model_config *c = &m->model;
    const struct layer_pattern *p = (const void *)((const char *)c + n->row.offset);
    if (layer_pattern_count(p, c->layers) == c->layers) return true;
    if (p == &c->attn.local) return !c->attn.window || rules[m->family].lists;
    if (p == &c->attn.rope) return m->family == HF_SMOLLM3;
    return m->family == HF_QWEN3_MOE && !c->moe.first_dense;
}

static void put_types(struct json_out *o, const struct hf_put *p)
{
    const struct model_config *c = p->of;
    json_begin_array(o, p->key);
    for (int64_t l = 0; l < c->layers; l++)
        json_put_string(o, NULL, model_window(c, l) > 0 ? "sliding_attention" : "full_attention");
    json_end_array(o);
}

static void put_turns(struct json_out *o, const struct hf_put *p)
{
    const struct model_config *c = p->of;
    json_begin_array(o, p->key);
    for (int64_t l = 0; l < c->layers; l++) json_put_int(o, NULL, model_layer_turns(c, l));
    json_end_array(o);
}

static void put_plain(struct json_out *o, const struct hf_put *p)
{
    const struct model_config *c = p->of;
    json_begin_array(o, p->key);
    for (int64_t l = 0; l < c->layers; l++)
        if (!model_layer_is_moe(c, l)) json_put_int(o, NULL, l);
    json_end_array(o);
}

static void put_windowed(struct json_out *o, const struct hf_put *p)
{
    json_put_bool(o, p->key, ((const struct model_config *)p->of)->attn.window > 0);
}

/* For releases of the library that do not read layer_types. */
static void put_behind(struct json_out *o, const struct hf_put *p)
{
    const struct model_config *c = p->of;
    int64_t l = 0;
    while (l < c->layers && !model_window(c, l)) l++;
    json_put_int(o, p->key, l);
}

static void put_one(struct json_out *o, const struct hf_put *p) { json_put_int(o, p->key, 1); }

void hf_layers_add(struct hf_puts *s, const struct hf_model *m)
{
    static const struct {
        unsigned in;
        struct hf_put put;
    } rows[] = {
#define WINDOWS (1u << HF_QWEN2 | 1u << HF_QWEN3 | 1u << HF_SMOLLM3)
        {WINDOWS | 1u << HF_QWEN3_MOE, {127, "use_sliding_window", put_windowed, NULL, NULL}},
        {1u << HF_QWEN2 | 1u << HF_QWEN3, {128, "max_window_layers", put_behind, NULL, NULL}},
        {WINDOWS | 1u << HF_GEMMA2 | 1u << HF_GEMMA3 | 1u << HF_GPT_OSS, {129, "layer_types", put_types, NULL, NULL}},
        {1u << HF_SMOLLM3, {126, "no_rope_layers", put_turns, NULL, NULL}},
        {1u << HF_QWEN3_MOE, {240, "decoder_sparse_step", put_one, NULL, NULL}},
        {1u << HF_QWEN3_MOE, {241, "mlp_only_layers", put_plain, NULL, NULL}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hf_put p = rows[i].put;
        p.of = &m->model;
        if (rows[i].in & bit(m->family)) hf_puts_add(s, p);
    }
}
