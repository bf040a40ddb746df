/* SPDX-License-Identifier: Apache-2.0 */
/* hf_own.c: one loop over the table of numbers. Older families (GPT-2, ViT, DeepSeek, Mixtral) have their experts and
 * latent vectors in keys of their own, so of them only what all decoders share is looked at. */
#include "hub/hf_own.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "hub/hf_layers.h"

static double value_of(const struct number *n, const struct model_config *c)
{
    const void *at = (const char *)c + n->row.offset;
    switch (n->row.type) {
    case CONF_INT: return (double)*(const int64_t *)at;
    case CONF_REAL: return *(const double *)at;
    case CONF_BOOL: return *(const bool *)at;
    case CONF_CHOICE: return *(const int *)at;
    default: return 0;
    }
}

/* Of these families experts are no keys. */
static bool lacks_experts(enum hf_family f)
{
    return f != HF_GPT_OSS && f != HF_MIXTRAL && f != HF_DEEPSEEK_V2 && f != HF_DEEPSEEK_V3 && f != HF_VIT &&
           f != HF_GPT2;
}

static bool looked_at(const struct hf_model *m, const struct number *n)
{
    if (n->role == NUMBER_LEARN || n->role == NUMBER_RUN || !model_decodes(&m->model)) return false;
    if (n->need == NEED_DECODER || n->need == NEED_WINDOW || n->row.type == CONF_WORD) return true;
    if (!strcmp(n->row.path, "model.moe.router_bias") || !strcmp(n->row.path, "model.moe.expert_bias")) return true;
    return lacks_experts(m->family) && !strncmp(n->row.path, "model.moe.", 10);
}

bool hf_own_has(const struct hf_model *m, const struct number *n, double *only)
{
    double has = value_of(n, &m->model);
    bool bias_said = n->row.offset == offsetof(struct model_config, attn.o_bias);
    *only = 0;
    if (!looked_at(m, n) || !number_needed(n, &m->model)) return false;
    if (n->row.type == CONF_WORD) return !hf_layers_says(m, n);
    for (const struct spelling *s = n->theirs; s < n->theirs + NUMBER_SPELLINGS && s->in; s++) {
        if (!(s->in >> m->family & 1)) continue;
        if (s->key) return false;
        *only = s->otherwise;
    }
    if (bias_said) *only = m->model.attn.qkv_bias && m->family != HF_QWEN2; /* one key for both, in most */
    if (!strcmp(n->row.path, "model.moe.ffn") && !m->model.moe.experts) return false;
    if (!strcmp(n->row.path, "model.attn.window") && hf_layers_windows(m->family)) return false;
    return has != *only;
}

/* ---- reading ---- */
static int read_member(struct hf_model *m, const char *name, const struct json *v, const char *what, struct err *e)
{
    char path[96];
    snprintf(path, sizeof path, "model.%s", name);
    const struct number *n = number_find(path);
    if (!n || !looked_at(m, n))
        return err_set(e, ERR_REQUEST, "%s: " HF_OWN ".%.60s: is no number of such a model", what, name);
    void *at = (char *)&m->model + n->row.offset;
    const char *text = json_string(v, NULL, "");
    double x = json_kind(v) == JSON_BOOL ? json_bool(v, false) : json_real(v, n->row.lo - 1);
    bool number = n->row.type == CONF_INT || n->row.type == CONF_REAL,
         fits = number ? x >= n->row.lo && x <= n->row.hi && json_kind(v) != JSON_BOOL : true;
    if (n->row.type == CONF_INT) fits = fits && json_kind(v) == JSON_INT;
    if (n->row.type == CONF_BOOL) fits = json_kind(v) == JSON_BOOL;
    if (n->row.type == CONF_CHOICE) fits = hf_word(n->row.choices, *text ? text : "?") >= 0;
    if (n->row.type == CONF_WORD) fits = !n->row.fits(text);
    if (!fits) return err_set(e, ERR_REQUEST, "%s: " HF_OWN ".%.60s: is no value of model.%.60s", what, name, name);
    switch (n->row.type) {
    case CONF_INT: *(int64_t *)at = json_int(v, 0); break;
    case CONF_REAL: *(double *)at = x; break;
    case CONF_BOOL: *(bool *)at = x != 0; break;
    case CONF_CHOICE: *(int *)at = hf_word(n->row.choices, text); break;
    default: memset(at, 0, LAYER_PATTERN_BYTES); memcpy(at, text, strlen(text));
    }
    return OK;
}

int hf_own_read(struct hf_model *m, const struct json *config, const char *what, struct err *e)
{
    const struct json *own = json_get(config, HF_OWN);
    int rc = OK;
    if (!own || json_kind(own) == JSON_NULL) return OK;
    if (json_kind(own) != JSON_OBJECT) return err_set(e, ERR_REQUEST, "%s: " HF_OWN ": wanted an object", what);
    for (void *it = json_iter(own); it && rc == OK; it = json_iter_next(own, it))
        rc = read_member(m, json_iter_key(it), json_iter_value(it), what, e);
    return rc;
}

/* ---- writing ---- */
static void put_member(struct json_out *o, const struct number *n, const struct model_config *c)
{
    const char *name = n->row.path + strlen("model."), *at = (const char *)c + n->row.offset;
    struct hf_put p = {0, name, NULL, at, n};
    if (n->row.type == CONF_WORD) json_put_string(o, name, at);
    else hf_put_value(o, &p);
}

static void put_own(struct json_out *o, const struct hf_put *p)
{
    const struct hf_model *m = p->of;
    double only;
    json_begin_object(o, p->key);
    for (const struct number *n = model_numbers; n->row.path; n++)
        if (hf_own_has(m, n, &only)) put_member(o, n, &m->model);
    json_end_object(o);
}

void hf_own_add(struct hf_puts *s, const struct hf_model *m)
{
    double only;
    for (const struct number *n = model_numbers; n->row.path; n++)
        if (hf_own_has(m, n, &only)) {
            hf_puts_add(s, (struct hf_put){905, HF_OWN, put_own, m, NULL});
            return;
        }
}
