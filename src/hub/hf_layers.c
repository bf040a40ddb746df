/* SPDX-License-Identifier: Apache-2.0 */
/* hf_layers.c: layer_types says it layer by layer; where a file has none, its family's rule does, which is what the
 * config class of the library would fill in. */
#include "hub/hf_layers.h"

#include <string.h>

#include "base/mem.h"

/* ---- which layers are local ---- */
enum local_rule {
    LOCAL_NONE,     /* the family has no window */
    LOCAL_ALL,      /* and says nothing by layer */
    LOCAL_BEHIND,   /* from max_window_layers on */
    LOCAL_UNTURNED, /* those that do not turn */
    LOCAL_EVERY,    /* all but each n-th, n of sliding_window_pattern */
};
static const struct local {
    enum local_rule rule;
    int64_t usual; /* of max_window_layers, or of the n */
    bool asks;     /* use_sliding_window has to be true */
    bool lists;    /* layer_types is read and written */
} windows[WINDOWS_N] = {
#define WINDOWS(id, rule, usual, asks, lists) [WINDOWS_##id] = {LOCAL_##rule, usual, asks, lists},
#include "model/families.def"
};

/* What a family's row of MODEL_TYPE says. */
static const struct local *local_of(enum hf_family f)
{
    static const enum hf_windows of[HF_N] = {
#define MODEL_TYPE(id, letters, family, type, writes, scores, settle, names, windows) [HF_##id] = WINDOWS_##windows,
#include "model/families.def"
    };
    return &windows[of[f]];
}

static int whole(const struct json *config, const char *key, int64_t least, int64_t *n, const char *what, struct err *e)
{
    return hf_given(config, key) ? json_need_int(config, key, least, 1 << 20, n, what, e) : OK;
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
    const struct local *x = local_of(m->family);
    int64_t n = x->usual;
    int rc = OK;
    if (x->rule == LOCAL_BEHIND) rc = whole(config, "max_window_layers", 0, &n, what, e);
    if (x->rule == LOCAL_EVERY && m->family == HF_GEMMA3)
        rc = whole(config,
                   hf_given(config, "sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern", 1,
                   &n, what, e);
    for (int64_t l = 0; rc == OK && l < m->model.layers; l++) {
        switch (x->rule) {
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
    const struct local *x = local_of(m->family);
    if (x->rule == LOCAL_NONE) return OK;
    const struct json *asked = json_get(config, "use_sliding_window");
    if (x->asks && hf_given(config, "use_sliding_window") && json_kind(asked) != JSON_BOOL)
        return err_set(e, ERR_REQUEST, "%s: use_sliding_window: wanted true or false", what);
    if (x->asks && !json_bool(asked, false)) c->attn.window = 0;
    bool lists = x->lists && hf_given(config, "layer_types");
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
    if (local_of(m->family)->rule != LOCAL_UNTURNED) return OK;
    int rc = hf_given(config, "no_rope_layers") ? list_of(config, "no_rope_layers", n, &list, what, e)
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
    if (rc == OK && hf_given(config, "mlp_only_layers") && json_kind(plain) != JSON_ARRAY)
        rc = err_set(e, ERR_REQUEST, "%s: mlp_only_layers: wanted a list of layers", what);
    for (size_t i = 0; rc == OK && hf_given(config, "mlp_only_layers") && i < json_size(plain); i++) {
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

/* ---- what each layer is ---- */
/* Their words for it, of the library's releases from 5.9 on and of those before. */
static const struct {
    const char *word;
    enum layer_kind kind;
} kind_words[] = {{"linear_attention", LAYER_SCAN},
                  {"mamba", LAYER_SCAN},
                  {"full_attention", LAYER_ATTENTION},
                  {"attention", LAYER_ATTENTION},
                  {"mlp", LAYER_MLP}};

/* Letters of a list of words, or NULL. */
static char *kinds_by_list(const struct json *list, const char *what, const char *key, struct err *e)
{
    size_t n = json_kind(list) == JSON_ARRAY ? json_size(list) : 0;
    char *text = xcalloc(n + 1, 1);
    for (size_t l = 0; l < n; l++) {
        const char *word = json_string(json_at(list, l), NULL, "?");
        for (size_t i = 0; i < sizeof kind_words / sizeof *kind_words; i++)
            if (!strcmp(kind_words[i].word, word)) text[l] = layer_kind_letter(kind_words[i].kind);
        if (text[l]) continue;
        (void)err_set(e, ERR_REQUEST,
                      "%s: %s[%zu]: %.40s is not computed here; only linear_attention, full_attention and mlp are",
                      what, key, l, word);
        xfree(text);
        return NULL;
    }
    return text;
}

/* A text as it stands; one that is too long, if it repeats itself, as what is repeated. */
static void take_kinds(struct layer_pattern *p, const char *text)
{
    size_t n = strlen(text), every = n;
    if (n >= LAYER_PATTERN_BYTES) {
        every = 1;
        while (every < LAYER_PATTERN_BYTES && memcmp(text, text + every, n - every) != 0) every++;
    }
    if (every < LAYER_PATTERN_BYTES) memcpy(p->text, text, every);
}

static int check_kinds(struct hf_model *m, const struct json *config, const char *text, const char *what,
                       const char *key, struct err *e)
{
    struct model_config *c = &m->model;
    struct layer_pattern p = {.text = ""};
    int64_t said = c->layers, n = (int64_t)strlen(text);
    take_kinds(&p, text);
    const char *wanted = layer_kinds_wanted(p.text);
    if (wanted) return err_set(e, ERR_REQUEST, "%s: %s: wanted %s; got '%.40s'", what, key, wanted, text);
    if (!layer_kinds_have(&p, LAYER_SCAN))
        return err_set(e, ERR_REQUEST, "%s: %s: no layer is a state space", what, key);
    if (hf_given(config, "num_hidden_layers") && said != n)
        return err_set(e, ERR_REQUEST, "%s: num_hidden_layers: %lld, but %s names %lld layers", what, (long long)said,
                       key, (long long)n);
    c->layers = n;
    c->pattern = p;
    return OK;
}

int hf_kinds_read(struct hf_model *m, const struct json *config, const char *what, struct err *e)
{
    static const char *const lists[] = {"layers_block_type",
                                        "layer_types"}; /* count before the text, as in their code */
    for (size_t i = 0; i < 2; i++) {
        if (!hf_given(config, lists[i])) continue;
        char *text = kinds_by_list(json_get(config, lists[i]), what, lists[i], e);
        int rc = text ? check_kinds(m, config, text, what, lists[i], e) : e->code;
        xfree(text);
        return rc;
    }
    const char *key = "hybrid_override_pattern";
    return check_kinds(m, config, json_string(json_get(config, key), NULL, ""), what, key, e);
}

/* ---- writing ---- */
/* Layer by layer, as their files have it. */
static void put_kinds(struct json_out *o, const struct hf_put *p)
{
    const struct model_config *c = p->of;
    char *text = xcalloc(to_size(c->layers) + 1, 1);
    for (int64_t l = 0; l < c->layers; l++) text[l] = layer_kind_letter(model_layer_kind(c, l));
    json_put_string(o, p->key, text);
    xfree(text);
}

bool hf_layers_windows(enum hf_family f) { return local_of(f)->rule != LOCAL_NONE; }

bool hf_layers_says(const struct hf_model *m, const struct number *n)
{
    const struct model_config *c = &m->model;
    const struct layer_pattern *p = (const void *)((const char *)c + n->row.offset);
    if (layer_pattern_count(p, c->layers) == c->layers) return true;
    if (p == &c->attn.local) return !c->attn.window || local_of(m->family)->lists;
    if (p == &c->attn.rope) return local_of(m->family)->rule == LOCAL_UNTURNED;
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
    const struct local *x = local_of(m->family);
    bool sparse = m->family == HF_QWEN3_MOE, kinds = m->family == HF_NEMOTRON_H;
    const struct {
        bool there;
        struct hf_put put;
    } rows[] = {
        {x->asks, {127, "use_sliding_window", put_windowed, &m->model, NULL}},
        {x->rule == LOCAL_BEHIND, {128, "max_window_layers", put_behind, &m->model, NULL}},
        {x->lists, {129, "layer_types", put_types, &m->model, NULL}},
        {x->rule == LOCAL_UNTURNED, {126, "no_rope_layers", put_turns, &m->model, NULL}},
        {sparse, {240, "decoder_sparse_step", put_one, &m->model, NULL}},
        {sparse, {241, "mlp_only_layers", put_plain, &m->model, NULL}},
        {kinds, {41, "hybrid_override_pattern", put_kinds, &m->model, NULL}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].there) hf_puts_add(s, rows[i].put);
}
