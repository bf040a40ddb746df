/* SPDX-License-Identifier: Apache-2.0 */
/* conf_values.c: what stands behind a key becomes a C value, or a sentence that says what was wanted, in which range,
 * and what stands there. Text means itself: no hexadecimal, no infinities, and a quoted number is text. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf_scope.h"

/* A decimal number and nothing else: no hexadecimal, no inf, no trailing letters. */
static bool parse_number(const struct conf_node *v, double *out)
{
    if (v->kind != CONF_NODE_SCALAR || v->quoted || !*v->text) return false;
    if (v->text[strspn(v->text, "0123456789+-.eE")]) return false;
    char *end;
    *out = strtod(v->text, &end);
    return !*end && isfinite(*out);
}

static bool parse_integer(const struct conf_node *v, int64_t *out)
{
    if (v->kind != CONF_NODE_SCALAR || v->quoted || !*v->text) return false;
    char *end;
    if (!v->text[strspn(v->text, "0123456789+-")]) {
        errno = 0;
        *out = strtoll(v->text, &end, 10);
        return !*end && errno == 0;
    }
    double real; /* 1e6: written as a fraction, and a whole number all the same */
    if (!parse_number(v, &real) || real != floor(real) || fabs(real) > 0x1p53) return false;
    *out = (int64_t)real;
    return true;
}

static bool has_range(const struct conf_row *row) { return row->lo != 0 || row->hi != 0; }

#define UNBOUNDED 1e15 /* a limit this far out is not worth a word */

static const char *range_text(const struct conf_row *row, char out[96])
{
    if (!has_range(row)) out[0] = 0;
    else if (row->hi >= UNBOUNDED) snprintf(out, 96, " of at least %.10g", row->lo);
    else if (row->lo <= -UNBOUNDED) snprintf(out, 96, " of at most %.10g", row->hi);
    else snprintf(out, 96, " from %.10g to %.10g", row->lo, row->hi);
    return out;
}

static int wrong_type(const struct source *s, const struct scope *sc, const struct conf_row *row,
                      const struct conf_node *v, const char *wanted)
{
    char got[64];
    return conf_refuse(s, v->line, sc->label, row->path, "wanted %s, got %s%s", wanted, conf_node_show(v, got),
                       v->kind == CONF_NODE_SCALAR && v->quoted ? " in quotes" : "");
}

static int out_of_range(const struct source *s, const struct scope *sc, const struct conf_row *row,
                        const struct conf_node *v, const char *noun)
{
    char range[96], wanted[128];
    snprintf(wanted, sizeof wanted, "%s%s", noun, range_text(row, range));
    return wrong_type(s, sc, row, v, wanted);
}

static int set_bool(const struct source *s, const struct scope *sc, const struct conf_row *row,
                    const struct conf_node *v)
{
    bool scalar = v->kind == CONF_NODE_SCALAR && !v->quoted, yes = scalar && !strcmp(v->text, "true");
    if (!yes && !(scalar && !strcmp(v->text, "false"))) return wrong_type(s, sc, row, v, "true or false");
    *(bool *)(void *)(sc->target + row->offset) = yes;
    return OK;
}

static int set_int(const struct source *s, const struct scope *sc, const struct conf_row *row,
                   const struct conf_node *v)
{
    int64_t n;
    if (!parse_integer(v, &n) || (has_range(row) && ((double)n < row->lo || (double)n > row->hi)))
        return out_of_range(s, sc, row, v, "an integer");
    *(int64_t *)(void *)(sc->target + row->offset) = n;
    return OK;
}

static int set_real(const struct source *s, const struct scope *sc, const struct conf_row *row,
                    const struct conf_node *v)
{
    double x;
    if (!parse_number(v, &x) || (has_range(row) && (x < row->lo || x > row->hi)))
        return out_of_range(s, sc, row, v, "a number");
    *(double *)(void *)(sc->target + row->offset) = x;
    return OK;
}

static int set_string(const struct source *s, const struct scope *sc, const struct conf_row *row,
                      const struct conf_node *v)
{
    if (v->kind != CONF_NODE_SCALAR) return wrong_type(s, sc, row, v, "text");
    *(const char **)(void *)(sc->target + row->offset) = v->text;
    return OK;
}

static int set_word(const struct source *s, const struct scope *sc, const struct conf_row *row,
                    const struct conf_node *v)
{
    const char *wanted = v->kind == CONF_NODE_SCALAR ? row->fits(v->text) : row->fits("");
    if (wanted) return wrong_type(s, sc, row, v, wanted);
    CHECK(strlen(v->text) < (size_t)row->n, "%s: %s does not fit into %d bytes", row->path, v->text, row->n);
    memset(sc->target + row->offset, 0, (size_t)row->n); /* so that equal texts are equal bytes */
    memcpy(sc->target + row->offset, v->text, strlen(v->text));
    return OK;
}

/* The choices as words in the arena; returns how many. */
static int split_choices(const char *choices, const char ***words, struct arena *a)
{
    int n = 1;
    for (const char *p = choices; *p; p++) n += *p == '|';
    *words = arena_alloc(a, (size_t)n * sizeof **words);
    char *copy = arena_strdup(a, choices);
    for (int i = 0; i < n; i++) {
        (*words)[i] = copy;
        copy += strcspn(copy, "|");
        if (*copy) *copy++ = 0;
    }
    return n;
}

bool conf_chooses_null(const struct conf_row *row, const struct conf_node *v)
{
    if (row->type != CONF_CHOICE || v->kind != CONF_NODE_SCALAR || strcmp(v->text, "null") != 0) return false;
    for (const char *p = row->choices; *p; p += strcspn(p, "|"), p += *p == '|')
        if (strcspn(p, "|") == 4 && !strncmp(p, "null", 4)) return true;
    return false;
}

static int set_choice(const struct source *s, const struct scope *sc, const struct conf_row *row,
                      const struct conf_node *v)
{
    const char **words;
    int n = split_choices(row->choices, &words, s->arena);
    for (int i = 0; i < n && v->kind == CONF_NODE_SCALAR; i++) {
        if (strcmp(v->text, words[i]) != 0) continue;
        *(int *)(void *)(sc->target + row->offset) = i;
        return OK;
    }
    struct str wanted = {0};
    for (int i = 0; i < n; i++) str_printf(&wanted, "%s%s", i == 0 ? "" : i + 1 < n ? ", " : " or ", words[i]);
    const char *near = v->kind == CONF_NODE_SCALAR ? str_nearest(v->text, words, n) : NULL;
    char got[64];
    int code = conf_refuse(s, v->line, sc->label, row->path, "wanted %s; got %s%s%s%s", str_text(&wanted),
                           conf_node_show(v, got), near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    str_free(&wanted);
    return code;
}

static int set_reals(const struct source *s, const struct scope *sc, const struct conf_row *row,
                     const struct conf_node *v)
{
    char wanted[160], range[96];
    snprintf(wanted, sizeof wanted, "a list of %d numbers%s", row->n, range_text(row, range));
    if (v->kind != CONF_NODE_LIST || v->n != row->n) return wrong_type(s, sc, row, v, wanted);
    double *out = (double *)(void *)(sc->target + row->offset);
    for (const struct conf_node *item = v->first; item; item = item->next, out++)
        if (!parse_number(item, out) || (has_range(row) && (*out < row->lo || *out > row->hi)))
            return wrong_type(s, sc, row, item, wanted);
    return OK;
}

static int set_numbers(const struct source *s, const struct scope *sc, const struct conf_row *row,
                       const struct conf_node *v)
{
    char wanted[160], range[96];
    struct conf_numbers *out = (struct conf_numbers *)(void *)(sc->target + row->offset);
    snprintf(wanted, sizeof wanted, "a list of at most %d numbers%s", CONF_NUMBERS_MOST, range_text(row, range));
    if (v->kind != CONF_NODE_LIST || v->n > CONF_NUMBERS_MOST) return wrong_type(s, sc, row, v, wanted);
    *out = (struct conf_numbers){.n = v->n};
    int i = 0;
    for (const struct conf_node *item = v->first; item; item = item->next, i++)
        if (!parse_number(item, &out->v[i]) || (has_range(row) && (out->v[i] < row->lo || out->v[i] > row->hi)))
            return wrong_type(s, sc, row, item, wanted);
    return OK;
}

/* A member of a point; NULL. */
static const struct conf_node *member(const struct conf_node *point, const char *name)
{
    for (const struct conf_node *m = point->first; m; m = m->next)
        if (!strcmp(m->key, name)) return m;
    return NULL;
}

static int set_point(const struct source *s, const struct scope *sc, const struct conf_row *row,
                     const struct conf_node *v, const struct conf_point *before, struct conf_point *out)
{
    char wanted[160], range[96];
    const char *dot = strrchr(row->path, '.'), *name = dot ? dot + 1 : row->path;
    snprintf(wanted, sizeof wanted, "points such as {step: 100, %s: 0.5}, a number%s", name, range_text(row, range));
    const struct conf_node *step = v->kind == CONF_NODE_MAP ? member(v, "step") : NULL,
                           *value = v->kind == CONF_NODE_MAP ? member(v, name) : NULL;
    if (!step || !value || v->n != 2) return wrong_type(s, sc, row, v, wanted);
    if (!parse_number(value, &out->value) || (has_range(row) && (out->value < row->lo || out->value > row->hi)))
        return out_of_range(s, sc, row, value, "a number");
    if (!parse_integer(step, &out->step) || out->step < 0)
        return wrong_type(s, sc, row, step, "a step: a whole number from 0 on");
    if (!before || out->step > before->step) return OK;
    return conf_refuse(s, step->line, sc->label, row->path, "step %lld after step %lld; steps rise",
                       (long long)out->step, (long long)before->step);
}

static int set_points(const struct source *s, const struct scope *sc, const struct conf_row *row,
                      const struct conf_node *v)
{
    struct conf_points *out = (struct conf_points *)(void *)(sc->target + row->offset);
    char wanted[160], range[96];
    *out = (struct conf_points){0};
    if (v->kind == CONF_NODE_SCALAR) {
        if (parse_number(v, &out->value) && !(has_range(row) && (out->value < row->lo || out->value > row->hi)))
            return OK;
        return out_of_range(s, sc, row, v, "a number");
    }
    snprintf(wanted, sizeof wanted, "a number%s, or a list of points", range_text(row, range));
    if (v->kind != CONF_NODE_LIST || !v->n) return wrong_type(s, sc, row, v, wanted);
    struct conf_point *p = arena_alloc(s->arena, (size_t)v->n * sizeof *p);
    for (const struct conf_node *item = v->first; item; item = item->next, out->n++) {
        int code = set_point(s, sc, row, item, out->n ? &p[out->n - 1] : NULL, &p[out->n]);
        if (code) return code;
    }
    out->p = p;
    return OK;
}

typedef int set_fn(const struct source *, const struct scope *, const struct conf_row *, const struct conf_node *);

static set_fn *const setters[] = {
    [CONF_BOOL] = set_bool,     [CONF_INT] = set_int,       [CONF_REAL] = set_real,
    [CONF_STRING] = set_string, [CONF_CHOICE] = set_choice, [CONF_WORD] = set_word,
    [CONF_REALS] = set_reals,   [CONF_POINTS] = set_points, [CONF_NUMBERS] = set_numbers,
};

int conf_set_scalar(const struct source *s, const struct scope *sc, const struct conf_row *row,
                    const struct conf_node *v)
{
    CHECK(row->type < CONF_LIST, "%s is no single value", row->path);
    return setters[row->type](s, sc, row, v);
}
