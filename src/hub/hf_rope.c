/* SPDX-License-Identifier: Apache-2.0 */
/* hf_rope.c: rope_scaling in files of transformers 4, rope_parameters (theta inside) from 5 on, where Gemma 3 has an
 * object for each type of layer. */
#include "hub/hf_rope.h"

#include <string.h>

#include "hub/hf_keys.h"

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
        bool said = hf_given(config, "original_max_position_embeddings");
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

int hf_rope_check(const struct model_config *c, const struct json *config, const char *what, struct err *e)
{
    const char *key = hf_given(config, "rope_parameters") ? "rope_parameters" : "rope_scaling";
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

int hf_rope_read(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                 struct err *e)
{
    bool newer = hf_given(config, "rope_parameters");
    const char *key = newer ? "rope_parameters" : "rope_scaling";
    if (newer && hf_given(config, "rope_scaling"))
        return err_set(e, ERR_REQUEST,
                       "%s: rope_parameters and rope_scaling are both there; which one counts is not said", what);
    if (!hf_given(config, key)) return OK;
    const struct json *rope = json_get(config, key);
    if (newer && m->family == HF_GEMMA3 && (json_get(rope, "full_attention") || json_get(rope, "sliding_attention")))
        return read_rope_by_type(m, config, rope, ignore, what, e);
    return read_rope_object(m, config, rope, key, ignore, what, e);
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

void hf_rope_add(struct hf_puts *s, const struct model_config *theirs)
{
    hf_puts_add(s, (struct hf_put){150, "rope_scaling", put_rope, theirs, NULL});
    if (theirs->family == MODEL_PHI3 && model_long_rope(theirs))
        hf_puts_add(s, (struct hf_put){95, "original_max_position_embeddings", put_original, theirs, NULL});
}
