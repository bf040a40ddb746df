/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_tests.c: what can stand behind "is". */
#include <math.h>
#include <string.h>

#include "jinja/jinja_run.h"

#define TEST(name)                                                                                                     \
    static bool is_##name(struct jrun *r, const struct jnode *at, const struct jv *v, const struct jv *arg)
#define UNUSED (void)r, (void)at, (void)v, (void)arg

TEST(defined)
{
    UNUSED;
    return v->kind != JV_UNDEFINED;
}
TEST(undefined)
{
    UNUSED;
    return v->kind == JV_UNDEFINED;
}
TEST(none)
{
    UNUSED;
    return v->kind == JV_NONE;
}
TEST(boolean)
{
    UNUSED;
    return v->kind == JV_BOOL;
}
TEST(true)
{
    UNUSED;
    return v->kind == JV_BOOL && v->b;
}
TEST(false)
{
    UNUSED;
    return v->kind == JV_BOOL && !v->b;
}
TEST(integer)
{
    UNUSED;
    return v->kind == JV_INT;
}
TEST(float)
{
    UNUSED;
    return v->kind == JV_REAL;
}
TEST(number)
{
    UNUSED;
    return jv_is_number(v);
}
TEST(string)
{
    UNUSED;
    return v->kind == JV_TEXT;
}
TEST(mapping)
{
    UNUSED;
    return v->kind == JV_MAP;
}
TEST(sequence) /* what has a length and items: Python's dicts are, and so is an undefined value */
{
    UNUSED;
    return v->kind == JV_LIST || v->kind == JV_TUPLE || v->kind == JV_TEXT || v->kind == JV_MAP ||
           v->kind == JV_UNDEFINED;
}
TEST(iterable) { return is_sequence(r, at, v, arg) || v->kind == JV_LOOP; }
TEST(callable)
{
    UNUSED;
    return v->kind == JV_MACRO || v->kind == JV_FUNCTION || v->kind == JV_METHOD;
}

static bool whole(struct jrun *r, const struct jnode *at, const struct jv *v)
{
    if (v->kind == JV_INT || v->kind == JV_BOOL) return true;
    jfail(r, at, "a %s, where an integer was wanted", jv_type(v));
    return false;
}
TEST(odd)
{
    (void)arg;
    return whole(r, at, v) && (jv_as_int(v) & 1);
}
TEST(even)
{
    (void)arg;
    return whole(r, at, v) && !(jv_as_int(v) & 1);
}
TEST(divisibleby)
{
    if (!whole(r, at, v) || !whole(r, at, &arg[0])) return false;
    int64_t by = jv_as_int(&arg[0]);
    if (!by) jfail(r, at, "division by zero");
    return by && (by == -1 || jv_as_int(v) % by == 0);
}

static bool compared(struct jrun *r, const struct jnode *at, const struct jv *v, const struct jv *arg, const char *op)
{
    bool fails = false;
    int order = jv_compare(&r->work, v, arg, &fails, 0);
    if (fails) jfail(r, at, "%s and %s have no order", jv_type(v), jv_type(arg));
    return (strchr(op, '<') && order < 0) || (strchr(op, '>') && order > 0) || (strchr(op, '=') && order == 0);
}
TEST(equal)
{
    UNUSED;
    return jv_equal(&r->work, v, &arg[0], 0);
}
TEST(unequal)
{
    UNUSED;
    return !jv_equal(&r->work, v, &arg[0], 0);
}
TEST(greater) { return compared(r, at, v, &arg[0], ">"); }
TEST(less) { return compared(r, at, v, &arg[0], "<"); }
TEST(at_least) { return compared(r, at, v, &arg[0], ">="); }
TEST(at_most) { return compared(r, at, v, &arg[0], "<="); }
TEST(same_as)
{
    UNUSED;
    bool one = v->kind == JV_NONE || v->kind == JV_BOOL;
    if (!one) jfail(r, at, "sameas is known for true, false and none only; == compares values");
    return one && v->kind == arg[0].kind && jv_equal(&r->work, v, &arg[0], 0);
}
TEST(in)
{
    if (arg[0].kind == JV_TEXT && v->kind == JV_TEXT)
        return jtext_find(&r->work, arg[0].text, 0, v->text) <= arg[0].text.n;
    struct jlist items = jitems(r, at, &arg[0]);
    for (int64_t i = 0; i < items.n && jspend(r, at, 1); i++)
        if (jv_equal(&r->work, v, &items.item[i], 0)) return true;
    return false;
}
static bool in_case(struct jrun *r, const struct jnode *at, const struct jv *v, const char *kind)
{
    int is = jtext_kind(&r->work, jstring(r, at, v), kind);
    if (is < 0) jfail(r, at, "the case of letters beyond ASCII is not known here");
    return is == 1;
}
TEST(lower)
{
    (void)arg;
    return in_case(r, at, v, "islower");
}
TEST(upper)
{
    (void)arg;
    return in_case(r, at, v, "isupper");
}

static const struct jtest_row rows[] = {
    {"defined", "", is_defined},
    {"undefined", "", is_undefined},
    {"none", "", is_none},
    {"boolean", "", is_boolean},
    {"true", "", is_true},
    {"false", "", is_false},
    {"integer", "", is_integer},
    {"float", "", is_float},
    {"number", "", is_number},
    {"string", "", is_string},
    {"mapping", "", is_mapping},
    {"sequence", "", is_sequence},
    {"iterable", "", is_iterable},
    {"callable", "", is_callable},
    {"odd", "", is_odd},
    {"even", "", is_even},
    {"lower", "", is_lower},
    {"upper", "", is_upper},
    {"divisibleby", "num", is_divisibleby},
    {"eq", "other", is_equal},
    {"equalto", "other", is_equal},
    {"ne", "other", is_unequal},
    {"gt", "other", is_greater},
    {"greaterthan", "other", is_greater},
    {"lt", "other", is_less},
    {"lessthan", "other", is_less},
    {"ge", "other", is_at_least},
    {"le", "other", is_at_most},
    {"sameas", "other", is_same_as},
    {"in", "seq", is_in},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

const struct jtest_row *jtest_find(const char *name)
{
    for (int i = 0; i < N_ROWS; i++)
        if (!strcmp(rows[i].name, name)) return &rows[i];
    return NULL;
}

const char *jtest_near(const char *name)
{
    const char *names[N_ROWS];
    for (int i = 0; i < N_ROWS; i++) names[i] = rows[i].name;
    return str_nearest(name, names, N_ROWS);
}

bool jtest_apply(struct jrun *r, const struct jnode *at, const struct jtest_row *row, const struct jv *v,
                 const struct jargs *args)
{
    struct jv arg[8];
    if (!jbind(r, at, row->name, row->params, args, arg)) return false;
    if (*row->params && jmissing(&arg[0])) {
        jfail(r, at, "the test %s needs a value to compare with", row->name);
        return false;
    }
    return row->run(r, at, v, arg) && !r->code;
}
