/* SPDX-License-Identifier: Apache-2.0 */
/* hf_numbers.c: one loop reads them all and one writes them all; what a number is called, may be and is where it is
 * left out stands in its row (model/numbers.def). What follows from several numbers is hf_config.c's. */
#include "hub/hf_numbers.h"

#include <string.h>

#include "model/family_letters.h"

#define MORE(field, to, ...)                                                                                           \
    {                                                                                                                  \
        .row = {.path = #field, .type = CONF_REAL, .offset = offsetof(struct hf_model, field), .hi = to}, .theirs = {  \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
const struct number hf_more_numbers[] = {
    MORE(embed_dropout, 1, {G, "embd_pdrop", 110, SPELT_ZERO, 0.1}, {PH, "embd_pdrop", 137, SPELT_ZERO, 0}),
    MORE(attention_dropout, 1, {G, "attn_pdrop", 120, SPELT_ZERO, 0.1},
         {ALL & ~G & ~V & ~B & ~MB & ~T, "attention_dropout", 140, SPELT_ZERO, 0},
         {V, "attention_probs_dropout_prob", 120, SPELT_ZERO, 0},
         {B, "attention_probs_dropout_prob", 120, SPELT_ZERO, 0.1}),
    MORE(init_std, 10, {ALL & ~MB, "initializer_range", 910, SPELT_ZERO, 0.02},
         {MB, "initializer_range", 910, SPELT_ZERO, 0.1}),
    {.row = {.path = NULL}},
};

#define EACH_SPELLING(s, n)                                                                                            \
    for (const struct spelling *s = (n)->theirs; s < (n)->theirs + NUMBER_SPELLINGS && s->in; s++)

bool hf_given(const struct json *object, const char *key)
{
    const struct json *v = json_get(object, key);
    return v && json_kind(v) != JSON_NULL;
}

const struct number *hf_number_spelt(const char *key, unsigned in)
{
    static const struct number *const tables[] = {model_numbers, hf_more_numbers};
    for (int t = 0; t < 2; t++)
        for (const struct number *n = tables[t]; n->row.path; n++) EACH_SPELLING(s, n)
    if (s->in & in && s->key && !strcmp(s->key, key)) return n;
    return NULL;
}

/* ---- reading ---- */
int hf_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    int i = 0;
    for (const char *w = words; w; w = strchr(w, '|') ? strchr(w, '|') + 1 : NULL, i++)
        if (!strncmp(w, word, n) && (w[n] == 0 || w[n] == '|')) return i;
    return -1;
}

static void set(void *at, enum conf_type type, double v)
{
    if (type == CONF_INT) *(int64_t *)at = (int64_t)v;
    if (type == CONF_REAL) *(double *)at = v;
    if (type == CONF_BOOL) *(bool *)at = v != 0;
    if (type == CONF_CHOICE) *(int *)at = (int)v;
}

static int read_real(const struct json *v, const char *key, double lo, double hi, double *out, const char *what,
                     struct err *e)
{
    *out = json_real(v, lo - 1);
    if (*out >= lo && *out <= hi) return OK;
    return err_set(e, ERR_REQUEST, "%s: %s: wanted a number from %g to %g", what, key, lo, hi);
}

static int read_bool(const struct json *v, const char *key, bool *out, const char *what, struct err *e)
{
    if (json_kind(v) != JSON_BOOL) return err_set(e, ERR_REQUEST, "%s: %s: wanted true or false", what, key);
    *out = json_bool(v, false);
    return OK;
}

static int read_numbers(const struct json *v, const char *key, const struct conf_row *r, struct conf_numbers *out,
                        const char *what, struct err *e)
{
    size_t n = v && json_kind(v) == JSON_ARRAY ? json_size(v) : 0;
    *out = (struct conf_numbers){.n = (int64_t)n};
    if (n < 1 || n > CONF_NUMBERS_MOST)
        return err_set(e, ERR_REQUEST, "%s: %s: wanted a list of 1 to %d numbers", what, key, CONF_NUMBERS_MOST);
    for (size_t i = 0; i < n; i++) {
        int rc = read_real(json_at(v, i), key, r->lo, r->hi, &out->v[i], what, e);
        if (rc) return rc;
    }
    return OK;
}

/* The least that a file may say: in a range that begins at 0, 0 mostly means that there is none, and is not said. */
static double least(const struct conf_row *r, const struct spelling *s)
{
    if (s->how & SPELT_ZERO) return 0;
    return r->lo == 0 ? 1 : r->lo;
}

static int read_number(void *at, const struct number *n, const struct spelling *s, const struct json *object,
                       const char *what, struct err *e)
{
    const struct conf_row *r = &n->row;
    const struct json *v = object && s->key ? json_get(object, s->key) : NULL;
    bool null = v && json_kind(v) == JSON_NULL;
    if ((!v || null) && !(object && s->how & SPELT_NEEDED)) {
        if (!(s->how & SPELT_ASIDE)) set(at, r->type, null && s->how & SPELT_NONE_IF_NULL ? 0 : s->otherwise);
        return OK;
    }
    switch (r->type) {
    case CONF_INT: return json_need_int(object, s->key, (int64_t)least(r, s), (int64_t)r->hi, at, what, e);
    case CONF_REAL: return read_real(v, s->key, least(r, s), r->hi, at, what, e);
    case CONF_BOOL: return read_bool(v, s->key, at, what, e);
    case CONF_NUMBERS: return read_numbers(v, s->key, r, at, what, e);
    default: break;
    }
    int word =
        hf_word(r->choices, json_string(v, NULL, "?")); /* another was refused, or is passed over by wish: hf_keys.c */
    *(int *)at = word >= 0 ? word : (int)s->otherwise;
    return OK;
}

int hf_numbers_read(void *base, const struct number *rows, const struct json *object, unsigned in, const char *what,
                    struct err *e)
{
    for (const struct number *n = rows; n->row.path; n++) EACH_SPELLING(s, n)
        {
            int rc = s->in & in && !(s->how & SPELT_WRITTEN)
                         ? read_number((char *)base + n->row.offset, n, s, object, what, e)
                         : OK;
            if (rc) return rc;
        }
    return OK;
}

/* ---- writing ---- */
/* Always with a point or exponent: their config classes complain of an integer where a float is declared. */
static void put_float(struct json_out *o, const char *key, double v)
{
    json_put_real(o, key, v);
    const char *text = o->s->p, *at = text + o->s->n;
    while (at > text && strchr("0123456789", at[-1])) at--;
    if (at > text && (at[-1] == ':' || at[-1] == ' ')) str_puts(o->s, ".0"); /* digits only, since the key */
}

static void put_word(struct json_out *o, const char *key, const char *words, int i)
{
    struct str s = {0};
    for (; i > 0; i--) words = strchr(words, '|') + 1;
    str_add(&s, words, strcspn(words, "|"));
    json_put_string(o, key, s.p);
    str_free(&s);
}

static void put_numbers(struct json_out *o, const char *key, const struct conf_numbers *v)
{
    json_begin_array(o, key);
    for (int64_t i = 0; i < v->n; i++) put_float(o, NULL, v->v[i]);
    json_end_array(o);
}

/* A real number of ours that their class declares as an integer. */
static bool is_whole_there(const struct hf_put *p)
{
    double v = *(const double *)p->of;
    return !strcmp(p->key, "query_pre_attn_scalar") && v == (double)(int64_t)v;
}

void hf_put_value(struct json_out *o, const struct hf_put *p)
{
    switch (p->number->row.type) {
    case CONF_INT: json_put_int(o, p->key, *(const int64_t *)p->of); break;
    case CONF_REAL:
        if (is_whole_there(p)) json_put_int(o, p->key, (int64_t) * (const double *)p->of);
        else put_float(o, p->key, *(const double *)p->of);
        break;
    case CONF_BOOL: json_put_bool(o, p->key, *(const bool *)p->of); break;
    case CONF_NUMBERS: put_numbers(o, p->key, p->of); break;
    default: put_word(o, p->key, p->number->row.choices, *(const int *)p->of);
    }
}

static void put_null(struct json_out *o, const struct hf_put *p) { json_put_null(o, p->key); }

static double value(const struct number *n, const void *at)
{
    switch (n->row.type) {
    case CONF_INT: return (double)*(const int64_t *)at;
    case CONF_REAL: return *(const double *)at;
    case CONF_BOOL: return *(const bool *)at;
    case CONF_WORD: return 0; /* hf_layers.c's */
    case CONF_NUMBERS: return (double)((const struct conf_numbers *)at)->n;
    default: return *(const int *)at;
    }
}

void hf_puts_add(struct hf_puts *s, struct hf_put p)
{
    CHECK(s->n < HF_PUTS, "%d keys of config.json", HF_PUTS);
    int i = s->n++;
    for (; i > 0 && s->p[i - 1].at > p.at; i--) s->p[i] = s->p[i - 1];
    s->p[i] = p;
}

void hf_puts_add_numbers(struct hf_puts *s, const void *base, const struct number *rows, unsigned in)
{
    for (const struct number *n = rows; n->row.path; n++) EACH_SPELLING(x, n)
        {
            const void *at = (const char *)base + n->row.offset;
            bool none = x->how & SPELT_NULL_IF_NONE && value(n, at) == 0;
            if (!(x->in & in) || !x->at || (x->how & SPELT_UNUSUAL && value(n, at) == x->otherwise)) continue;
            hf_puts_add(s, (struct hf_put){x->at, x->key, none ? put_null : hf_put_value, at, n});
        }
}

void hf_puts_write(const struct hf_puts *s, struct json_out *o)
{
    for (int i = 0; i < s->n; i++) s->p[i].put(o, &s->p[i]);
}
