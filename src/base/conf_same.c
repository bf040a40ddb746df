/* SPDX-License-Identifier: Apache-2.0 */
/* conf_same.c: two texts are the same value when their row reads both to the same C value. So 1.0e4 is 10000, and 10 is
 * not 100, whatever the one text begins or ends with. Rejected: comparing texts number by number, which needs a rule
 * for where in a text a number begins, and every such rule takes the tail of one number for another. */
#include <string.h>

#include "base/conf_scope.h"

/* What a value may need at most. */
union value {
    bool yes;
    int64_t whole;
    double real;
    const char *text;
    int choice;
    struct conf_numbers numbers;
    struct conf_points points;
};

/* The value behind `text` in *out, as reading a file would give it; false: the row does not take it. */
static bool read_value(const struct conf_row *row, const char *text, void *out, struct arena *a)
{
    struct err e = {0};
    struct source s = {.arena = a, .name = "value", .e = &e};
    struct conf_row here = *row;
    struct conf_node *v;
    here.offset = 0;
    struct scope sc = {.rows = &here, .n_rows = 1, .target = out, .label = ""};
    if (conf_yaml_read(&v, text, strlen(text), "value", a, &e)) return false;
    bool null = !v || (conf_node_is_null(v) && !conf_chooses_null(row, v));
    if (!null) return conf_set_scalar(&s, &sc, &here, v) == OK;
    bool absent = !row->otherwise || !*row->otherwise || !strcmp(row->otherwise, "null");
    return absent || read_value(row, row->otherwise, out, a); /* null asks for the default, and nothing is all zeros */
}

static bool same_points(const struct conf_points *a, const struct conf_points *b)
{
    bool same = a->n == b->n && (a->n || a->value == b->value);
    for (int i = 0; same && i < a->n; i++) same = a->p[i].step == b->p[i].step && a->p[i].value == b->p[i].value;
    return same;
}

static bool same_doubles(const double *a, const double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (a[i] != b[i]) return false;
    return true;
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

static bool same_value(const struct conf_row *row, const void *a, const void *b)
{
    const union value *x = a, *y = b;
    switch (row->type) {
    case CONF_BOOL: return x->yes == y->yes;
    case CONF_INT: return x->whole == y->whole;
    case CONF_REAL: return x->real == y->real;
    case CONF_STRING: return same_text(x->text, y->text);
    case CONF_CHOICE: return x->choice == y->choice;
    case CONF_WORD: return !strcmp(a, b);
    case CONF_REALS: return same_doubles(a, b, row->n);
    case CONF_NUMBERS: return x->numbers.n == y->numbers.n && same_doubles(x->numbers.v, y->numbers.v, x->numbers.n);
    case CONF_POINTS: return same_points(&x->points, &y->points);
    case CONF_LIST: break;
    }
    bug(__FILE__, __LINE__, "conf_same", "%s is no single value", row->path);
}

bool conf_same(const struct conf_row *row, const char *a, const char *b)
{
    if (!strcmp(a, b)) return true;
    struct arena *arena = arena_new();
    size_t n = sizeof(union value) + (size_t)(row->n > 0 ? row->n : 0) * sizeof(double);
    void *x = arena_alloc(arena, n), *y = arena_alloc(arena, n); /* zeros */
    bool same = read_value(row, a, x, arena) && read_value(row, b, y, arena) && same_value(row, x, y);
    arena_free(arena);
    return same;
}
