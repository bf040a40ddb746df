/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_filters.c: what can stand behind "|". Where jinja2 hands out a generator, this hands out the list of it. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/jinja_run.h"

#define FILTER(name)                                                                                                   \
    static struct jv name(struct jrun *r, const struct jnode *at, struct jv v, const struct jv *arg,                   \
                          const struct jargs *args)
#define UNUSED (void)r, (void)at, (void)arg, (void)args

/* -- arguments ----------------------------------------------------------------------------------------------- */

static bool flag(const struct jv *arg) { return !jmissing(arg) && jv_true(arg); }

static int64_t number(struct jrun *r, const struct jnode *at, const struct jv *arg, int64_t otherwise)
{
    if (jmissing(arg) || arg->kind == JV_NONE) return otherwise;
    if (arg->kind != JV_INT && arg->kind != JV_BOOL) {
        jfail(r, at, "an argument that is a %s, where an integer was wanted", jv_type(arg));
        return otherwise;
    }
    return jv_as_int(arg);
}

static struct jtext text(struct jrun *r, const struct jnode *at, const struct jv *arg, const char *otherwise)
{
    if (jmissing(arg)) return (struct jtext){.p = otherwise, .n = strlen(otherwise)};
    return jstring(r, at, arg);
}

static struct jv *room_for(struct jrun *r, const struct jnode *at, int64_t n)
{
    static struct jv *const none = NULL;
    if (!jspend(r, at, n) || !jtake(r, at, to_size(n) * sizeof(struct jv))) return none;
    return jalloc(r, to_size(n) * sizeof(struct jv));
}

/* -- text ---------------------------------------------------------------------------------------------------- */

FILTER(trim)
{
    (void)args;
    bool white = jmissing(&arg[0]) || arg[0].kind == JV_NONE;
    struct jtext chars = text(r, at, &arg[0], "");
    return jv_text(jtext_strip(&r->work, jstring(r, at, &v), white ? NULL : &chars, true, true));
}
FILTER(upper)
{
    UNUSED;
    return jv_text(jtext_case(r, at, jstring(r, at, &v), JCASE_UPPER));
}
FILTER(lower)
{
    UNUSED;
    return jv_text(jtext_case(r, at, jstring(r, at, &v), JCASE_LOWER));
}
FILTER(title)
{
    UNUSED;
    return jv_text(jtext_case(r, at, jstring(r, at, &v), JCASE_WORDS));
}
FILTER(capitalize)
{
    UNUSED;
    return jv_text(jtext_case(r, at, jstring(r, at, &v), JCASE_CAPITALIZE));
}
FILTER(safe)
{
    UNUSED;
    v = jv_text(jstring(r, at, &v));
    v.text.safe = true;
    return v;
}
FILTER(wordcount)
{
    UNUSED;
    struct jtext t = jstring(r, at, &v);
    int64_t n = 0;
    bool inside = false;
    for (size_t i = 0; i < t.n && jspend(r, at, i % 8 == 0); i++) {
        unsigned char c = (unsigned char)t.p[i];
        bool word = c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (c >= 0x80) return jfail(r, at, "wordcount beyond ASCII is not known here");
        n += word && !inside;
        inside = word;
    }
    return jv_int(n);
}
FILTER(string)
{
    UNUSED;
    return jv_text(jstring(r, at, &v));
}
FILTER(replace)
{
    (void)args;
    if (jmissing(&arg[0]) || jmissing(&arg[1])) return jfail(r, at, "replace needs what to replace, and with what");
    return jv_text(jtext_replace(r, at, jstring(r, at, &v), jstring(r, at, &arg[0]), jstring(r, at, &arg[1]),
                                 number(r, at, &arg[2], -1)));
}
FILTER(indent)
{
    (void)args;
    struct jbuild b = {0};
    struct jtext t = jstring(r, at, &v), by = {.p = ""};
    if (!jmissing(&arg[0]) && arg[0].kind == JV_TEXT) {
        by = arg[0].text;
    } else {
        int64_t width = number(r, at, &arg[0], 4);
        char *spaces = jalloc(r, 1001);
        if (width < 0 || width > 1000) return jfail(r, at, "an indent of %lld", (long long)width);
        by = (struct jtext){.p = memset(spaces, ' ', (size_t)width), .n = (size_t)width};
    }
    bool first = flag(&arg[1]), blank = flag(&arg[2]), begin = true;
    for (size_t from = 0, next; from < t.n && b.text.n <= JINJA_BYTES; from = next) {
        size_t end = jtext_line(&r->work, t, from, &next);
        if (!begin) jbuild_puts(&b, "\n");
        if (begin ? first : (end > from || blank)) jbuild_add(&b, by);
        jbuild_add(&b, jtext_part(t, from, end));
        begin = false;
    }
    if (t.n && jtext_ends_line(t)) { /* what a newline at the end begins is a line, too */
        jbuild_puts(&b, "\n");
        if (blank) jbuild_add(&b, by);
    }
    if (!t.n && first) jbuild_add(&b, by);
    return jdone(r, at, &b);
}
FILTER(tojson)
{
    (void)args;
    struct jbuild b = {0};
    bool lines = !jmissing(&arg[1]) && arg[1].kind != JV_NONE, apart = !jmissing(&arg[2]) && arg[2].kind != JV_NONE;
    struct jjson_style s = {.ascii = flag(&arg[0]), .lines = lines, .sorted = flag(&arg[3])};
    s.between = (struct jtext){.p = lines ? "," : ", ", .n = lines ? 1 : 2};
    s.colon = (struct jtext){.p = ": ", .n = 2};
    if (lines && arg[1].kind == JV_TEXT) {
        s.indent = arg[1].text;
    } else if (lines) {
        int64_t n = number(r, at, &arg[1], 0);
        char *spaces = jalloc(r, 101);
        if (n > 100) return jfail(r, at, "an indent of %lld", (long long)n);
        s.indent = (struct jtext){.p = memset(spaces, ' ', 100), .n = n < 0 ? 0 : (size_t)n};
    }
    if (apart) {
        struct jlist two = jitems(r, at, &arg[2]);
        if (two.n != 2 || two.item[0].kind != JV_TEXT || two.item[1].kind != JV_TEXT)
            return jfail(r, at, "tojson: separators=(between items, behind keys) was wanted");
        s.between = two.item[0].text;
        s.colon = two.item[1].text;
    }
    jprint_json(r, at, &b, &v, &s);
    return jdone(r, at, &b);
}

/* -- one of several ------------------------------------------------------------------------------------------- */

FILTER(default_value)
{
    UNUSED;
    bool take = v.kind == JV_UNDEFINED || (flag(&arg[1]) && !jv_true(&v));
    return !take ? v : jmissing(&arg[0]) ? jv_word("") : arg[0];
}
FILTER(first)
{
    UNUSED;
    struct jlist l = jitems(r, at, &v);
    return l.n ? l.item[0] : jv_undefined("the first item of nothing");
}
FILTER(last)
{
    UNUSED;
    struct jlist l = jitems(r, at, &v);
    return l.n ? l.item[l.n - 1] : jv_undefined("the last item of nothing");
}
FILTER(length)
{
    UNUSED;
    if (v.kind == JV_TEXT) return jv_int(jtext_length(&r->work, v.text));
    if (v.kind == JV_MAP) return jv_int(v.map->n);
    if (v.kind == JV_UNDEFINED) return jv_int(0);
    if (v.kind == JV_LIST || v.kind == JV_TUPLE) return jv_int(v.list.n);
    return jfail(r, at, "a %s has no length", jv_type(&v));
}

/* -- numbers -------------------------------------------------------------------------------------------------- */

FILTER(absolute)
{
    UNUSED;
    if (v.kind == JV_REAL) return jv_real(fabs(v.r));
    if (v.kind != JV_INT && v.kind != JV_BOOL) return jfail(r, at, "abs of a %s", jv_type(&v));
    if (jv_as_int(&v) == INT64_MIN) return jfail(r, at, "a number beyond 64 bits");
    return jv_int(llabs(jv_as_int(&v)));
}
/* A text as a number; false where it is none. */
static bool reads(struct jwork *w, struct jtext t, bool whole, struct jv *out)
{
    char own[64], *end;
    t = jtext_strip(w, t, NULL, true, true);
    if (!t.n || t.n >= sizeof own || memchr(t.p, 'x', t.n) || memchr(t.p, 'X', t.n)) return false;
    memcpy(own, t.p, t.n);
    own[t.n] = 0;
    *out = whole ? jv_int(strtoll(own, &end, 10)) : jv_real(strtod(own, &end));
    return !*end;
}
FILTER(as_int)
{
    (void)args;
    struct jv other = jmissing(&arg[0]) ? jv_int(0) : arg[0], got;
    if (!jmissing(&arg[1]) && number(r, at, &arg[1], 10) != 10) return jfail(r, at, "int of another base than 10");
    if (v.kind == JV_INT || v.kind == JV_BOOL) return jv_int(jv_as_int(&v));
    if (v.kind == JV_TEXT) {
        if (reads(&r->work, v.text, true, &got)) return got;
        if (!reads(&r->work, v.text, false, &v)) return other;
    }
    if (v.kind == JV_REAL && fabs(v.r) < 9e18) return jv_int((int64_t)v.r);
    return other;
}
FILTER(as_float)
{
    (void)args;
    struct jv other = jmissing(&arg[0]) ? jv_real(0) : arg[0], got;
    (void)r, (void)at;
    if (jv_is_number(&v)) return jv_real(jv_as_real(&v));
    return v.kind == JV_TEXT && reads(&r->work, v.text, false, &got) ? got : other;
}
FILTER(round_off)
{
    (void)args;
    int64_t digits = number(r, at, &arg[0], 0);
    struct jtext how = text(r, at, &arg[1], "common");
    if (!jv_is_number(&v)) return jfail(r, at, "round of a %s", jv_type(&v));
    if (digits < 0 || digits > 15) return jfail(r, at, "round to %lld digits", (long long)digits);
    double x = jv_as_real(&v), scale = pow(10, (double)digits);
    if (jtext_same(how, "ceil")) return jv_real(ceil(x * scale) / scale);
    if (jtext_same(how, "floor")) return jv_real(floor(x * scale) / scale);
    char printed[400];
    if (!jspend(r, at, 16)) return v;
    snprintf(printed, sizeof printed, "%.*f", (int)digits, x); /* as Python: of the exact value, ties to even */
    return jv_real(strtod(printed, NULL));
}

/* -- lists ---------------------------------------------------------------------------------------------------- */

/* What `attribute` ("a", "a.b", 0) picks out of an item; missing: the item. */
static struct jv pick(struct jrun *r, const struct jnode *at, struct jv item, const struct jv *attribute)
{
    if (jmissing(attribute) || attribute->kind == JV_NONE) return item;
    if (attribute->kind != JV_TEXT) return jitem(r, at, &item, attribute);
    struct jtext rest = attribute->text, dot = {.p = ".", .n = 1};
    for (size_t from = 0; from <= rest.n && !r->code;) {
        size_t end = jtext_find(&r->work, rest, from, dot);
        if (end > rest.n) end = rest.n;
        struct jv key = jv_text(jtext_part(rest, from, end));
        item = jitem(r, at, &item, &key);
        from = end + 1;
    }
    return item;
}

FILTER(join)
{
    (void)args;
    struct jbuild b = {0};
    struct jtext between = text(r, at, &arg[0], "");
    struct jlist l = jitems(r, at, &v);
    for (int64_t i = 0; i < l.n && jspend(r, at, 1) && b.text.n <= JINJA_BYTES; i++) {
        struct jv item = pick(r, at, l.item[i], &arg[1]);
        if (i) jbuild_add(&b, between);
        if (!r->code) jprint(r, at, &b, &item);
    }
    return jdone(r, at, &b);
}
FILTER(list)
{
    UNUSED;
    struct jlist l = jitems(r, at, &v);
    return jv_list_of(l.item, l.n);
}
FILTER(items)
{
    UNUSED;
    if (v.kind == JV_UNDEFINED) return jv_list_of(NULL, 0);
    if (v.kind != JV_MAP) return jfail(r, at, "items of a %s; a dict was wanted", jv_type(&v));
    struct jmethod m = {.self = v, .name = "items"};
    return jmethod_call(r, at, &m, &(struct jargs){0});
}
FILTER(reverse)
{
    UNUSED;
    struct jlist l = jitems(r, at, &v);
    if (v.kind == JV_TEXT) {
        struct jbuild b = {0};
        for (int64_t i = l.n - 1; i >= 0; i--) jbuild_add(&b, l.item[i].text);
        return jdone(r, at, &b);
    }
    struct jv *item = room_for(r, at, l.n);
    for (int64_t i = 0; item && i < l.n; i++) item[i] = l.item[l.n - 1 - i];
    return item ? jv_list_of(item, l.n) : v;
}
FILTER(sum)
{
    (void)args;
    struct jlist l = jitems(r, at, &v);
    struct jv total = jmissing(&arg[1]) ? jv_int(0) : arg[1];
    for (int64_t i = 0; i < l.n && jspend(r, at, 1); i++) {
        struct jv item = pick(r, at, l.item[i], &arg[0]);
        int64_t whole;
        if (!jv_is_number(&item) || !jv_is_number(&total)) return jfail(r, at, "sum of a %s", jv_type(&item));
        if (item.kind == JV_REAL || total.kind == JV_REAL) total = jv_real(jv_as_real(&total) + jv_as_real(&item));
        else if (__builtin_add_overflow(jv_as_int(&total), jv_as_int(&item), &whole))
            return jfail(r, at, "a number beyond 64 bits");
        else total = jv_int(whole);
    }
    return total;
}

/* What is compared for an item: a part of it, in lower case unless case counts. */
static struct jv key_of(struct jrun *r, const struct jnode *at, struct jv item, const struct jv *attribute, bool cased)
{
    struct jv key = pick(r, at, item, attribute);
    if (key.kind == JV_TEXT && !cased) key = jv_text(jtext_case(r, at, key.text, JCASE_LOWER));
    return key;
}

static struct jv extreme(struct jrun *r, const struct jnode *at, struct jv v, const struct jv *arg, int sign)
{
    struct jlist l = jitems(r, at, &v);
    if (!l.n) return jv_undefined("the least or largest item of nothing");
    struct jv best = l.item[0], best_key = key_of(r, at, best, &arg[1], flag(&arg[0]));
    for (int64_t i = 1; i < l.n && jspend(r, at, 1); i++) {
        struct jv key = key_of(r, at, l.item[i], &arg[1], flag(&arg[0]));
        bool fails = false;
        if (sign * jv_compare(&r->work, &key, &best_key, &fails, 0) > 0) {
            best = l.item[i];
            best_key = key;
        }
        if (fails) return jfail(r, at, "%s and %s have no order", jv_type(&key), jv_type(&best_key));
    }
    return best;
}
FILTER(least)
{
    (void)args;
    return extreme(r, at, v, arg, -1);
}
FILTER(largest)
{
    (void)args;
    return extreme(r, at, v, arg, 1);
}

/* Stable; descending, too. */
static struct jv in_order(struct jrun *r, const struct jnode *at, struct jsorted *all, int64_t n, bool descending)
{
    struct jv *item = room_for(r, at, n);
    if (!item || !jsort(r, at, all, n, descending)) return jv_undefined("");
    for (int64_t i = 0; i < n; i++) item[i] = all[i].value;
    return jv_list_of(item, n);
}
FILTER(sort)
{
    (void)args;
    struct jlist l = jitems(r, at, &v);
    if (!jspend(r, at, l.n) || !jtake(r, at, to_size(l.n) * sizeof(struct jsorted))) return v;
    struct jsorted *all = jalloc(r, to_size(l.n) * sizeof *all);
    for (int64_t i = 0; i < l.n && !r->code; i++)
        all[i] = (struct jsorted){.key = key_of(r, at, l.item[i], &arg[2], flag(&arg[1])), .value = l.item[i]};
    return in_order(r, at, all, l.n, flag(&arg[0]));
}
FILTER(dictsort)
{
    (void)args;
    struct jtext by = text(r, at, &arg[1], "key");
    bool values = jtext_same(by, "value");
    if (v.kind != JV_MAP || (!values && !jtext_same(by, "key")))
        return jfail(r, at, "dictsort of a dict by key or value");
    struct jv none = jv_undefined(NULL), pairs = items(r, at, v, NULL, NULL);
    if (r->code || !jtake(r, at, to_size(pairs.list.n) * sizeof(struct jsorted))) return v;
    struct jsorted *all = jalloc(r, to_size(pairs.list.n) * sizeof *all);
    for (int64_t i = 0; i < pairs.list.n && !r->code; i++)
        all[i] = (struct jsorted){.key = key_of(r, at, pairs.list.item[i].list.item[values], &none, flag(&arg[0])),
                                  .value = pairs.list.item[i]};
    return in_order(r, at, all, pairs.list.n, flag(&arg[2]));
}
FILTER(unique)
{
    (void)args;
    struct jlist l = jitems(r, at, &v);
    struct jv *item = room_for(r, at, l.n), *key = room_for(r, at, l.n);
    int64_t n = 0;
    for (int64_t i = 0; key && i < l.n && jspend(r, at, n + 1); i++) {
        struct jv k = key_of(r, at, l.item[i], &arg[1], flag(&arg[0]));
        bool seen = false;
        for (int64_t m = 0; m < n && !seen; m++) seen = jv_equal(&r->work, &key[m], &k, 0);
        if (seen) continue;
        key[n] = k;
        item[n++] = l.item[i];
    }
    return jv_list_of(item, n);
}

FILTER(batch)
{
    (void)args;
    struct jlist l = jitems(r, at, &v);
    int64_t each = number(r, at, &arg[0], 0), n = each > 0 ? (l.n + each - 1) / each : 0;
    bool fill = !jmissing(&arg[1]) && arg[1].kind != JV_NONE;
    if (each < 1) return jfail(r, at, "batch of %lld", (long long)each);
    struct jv *row = room_for(r, at, n);
    for (int64_t i = 0; row && i < n && !r->code; i++) {
        int64_t have = l.n - i * each < each ? l.n - i * each : each, size = fill ? each : have;
        struct jv *item = room_for(r, at, size);
        for (int64_t k = 0; item && k < size; k++) item[k] = k < have ? l.item[i * each + k] : arg[1];
        row[i] = jv_list_of(item, size);
    }
    return row ? jv_list_of(row, n) : v;
}
/* Sorted by a part of each, those with equal ones in one list; (part, list) is what comes out. */
FILTER(groupby)
{
    (void)args;
    struct jlist l = jitems(r, at, &v);
    struct jv *item = room_for(r, at, l.n), *group = room_for(r, at, l.n);
    bool cased = flag(&arg[2]);
    int64_t n = 0;
    if (jmissing(&arg[0])) return jfail(r, at, "groupby: an attribute was wanted");
    if (r->code || !jtake(r, at, to_size(l.n) * (sizeof(struct jsorted) + 2 * sizeof(struct jv)))) return v;
    struct jsorted *all = jalloc(r, to_size(l.n) * sizeof *all);
    for (int64_t i = 0; i < l.n && !r->code; i++) {
        struct jv key = pick(r, at, l.item[i], &arg[0]);
        if (key.kind == JV_UNDEFINED && !jmissing(&arg[1])) key = arg[1];
        if (key.kind == JV_TEXT && !cased) key = jv_text(jtext_case(r, at, key.text, JCASE_LOWER));
        all[i] = (struct jsorted){.key = key, .value = l.item[i]};
    }
    if (r->code || !jsort(r, at, all, l.n, false)) return v;
    for (int64_t i = 0, k; i < l.n && !r->code; i = k) {
        struct jv *two = jalloc(r, 2 * sizeof *two), part = pick(r, at, all[i].value, &arg[0]);
        for (k = i; k < l.n && (k == i || jv_equal(&r->work, &all[i].key, &all[k].key, 0)); k++) item[k] = all[k].value;
        two[0] = part.kind == JV_UNDEFINED && !jmissing(&arg[1]) ? arg[1] : part;
        two[1] = jv_list_of(item + i, k - i);
        group[n++] = (struct jv){.kind = JV_TUPLE, .list = {.item = two, .n = 2, .group = true}};
    }
    return jv_list_of(group, n);
}

/* -- map, select, reject -------------------------------------------------------------------------------------- */

static struct jargs behind(const struct jargs *args, int64_t n)
{
    return (struct jargs){.value = args->value + n, .name = args->name + n, .n = args->n - n};
}

/* The word that args[i] is; NULL after an error. */
static const char *word(struct jrun *r, const struct jnode *at, const struct jargs *args, int64_t i)
{
    if (i >= args->n || args->name[i] || args->value[i].kind != JV_TEXT) {
        jfail(r, at, "the name of a filter, a test or an attribute was wanted");
        return NULL;
    }
    char *own = jalloc(r, args->value[i].text.n + 1);
    return memcpy(own, args->value[i].text.p, args->value[i].text.n);
}

FILTER(map)
{
    (void)arg;
    struct jlist l = jitems(r, at, &v);
    struct jv *item = room_for(r, at, l.n);
    bool by_attribute = args->n && args->name[0] && !strcmp(args->name[0], "attribute");
    struct jv other = jv_undefined(NULL);
    for (int64_t i = 1; by_attribute && i < args->n; i++) {
        if (!args->name[i] || strcmp(args->name[i], "default"))
            return jfail(r, at, "map(attribute=, default=) was wanted");
        other = args->value[i];
    }
    const char *name = by_attribute || r->code ? NULL : word(r, at, args, 0);
    const struct jfilter_row *row = name ? jfilter_find(name) : NULL;
    if (name && !row) return jfail(r, at, "the filter '%.60s' is not known here", name);
    struct jargs rest = behind(args, args->n ? 1 : 0);
    for (int64_t i = 0; item && i < l.n && jspend(r, at, 1); i++) {
        item[i] = row ? jfilter_apply(r, at, row, l.item[i], &rest) : pick(r, at, l.item[i], &args->value[0]);
        if (!row && item[i].kind == JV_UNDEFINED && !jmissing(&other)) item[i] = other;
    }
    return item ? jv_list_of(item, l.n) : v;
}

/* by_attribute: the test is of a part of each item. */
static struct jv choose(struct jrun *r, const struct jnode *at, struct jv v, const struct jargs *args,
                        bool by_attribute, bool wanted)
{
    struct jlist l = jitems(r, at, &v);
    struct jv *item = room_for(r, at, l.n), attribute = jv_undefined(NULL);
    int64_t n = 0, used = by_attribute;
    if (by_attribute && !args->n) return jfail(r, at, "the name of an attribute was wanted");
    if (by_attribute) attribute = args->value[0];
    const char *name = args->n > used ? word(r, at, args, used) : NULL;
    const struct jtest_row *row = name ? jtest_find(name) : NULL;
    if (name && !row) return jfail(r, at, "the test '%.60s' is not known here", name);
    struct jargs rest = behind(args, args->n > used ? used + 1 : used);
    for (int64_t i = 0; item && i < l.n && jspend(r, at, 1); i++) {
        struct jv part = pick(r, at, l.item[i], &attribute);
        bool is = row ? jtest_apply(r, at, row, &part, &rest) : jv_true(&part);
        if (is == wanted) item[n++] = l.item[i];
    }
    return item ? jv_list_of(item, n) : v;
}
FILTER(select_by)
{
    (void)arg;
    return choose(r, at, v, args, false, true);
}
FILTER(reject)
{
    (void)arg;
    return choose(r, at, v, args, false, false);
}
FILTER(select_attribute)
{
    (void)arg;
    return choose(r, at, v, args, true, true);
}
FILTER(reject_attribute)
{
    (void)arg;
    return choose(r, at, v, args, true, false);
}

/* -- the table ------------------------------------------------------------------------------------------------ */

static const struct jfilter_row rows[] = {
    {"abs", "", absolute},
    {"batch", "linecount|fill_with", batch},
    {"capitalize", "", capitalize},
    {"count", "", length},
    {"d", "default_value|boolean", default_value},
    {"default", "default_value|boolean", default_value},
    {"dictsort", "case_sensitive|by|reverse", dictsort},
    {"first", "", first},
    {"float", "default", as_float},
    {"groupby", "attribute|default|case_sensitive", groupby},
    {"indent", "width|first|blank", indent},
    {"int", "default|base", as_int},
    {"items", "", items},
    {"join", "d|attribute", join},
    {"last", "", last},
    {"length", "", length},
    {"list", "", list},
    {"lower", "", lower},
    {"map", NULL, map},
    {"max", "case_sensitive|attribute", largest},
    {"min", "case_sensitive|attribute", least},
    {"reject", NULL, reject},
    {"rejectattr", NULL, reject_attribute},
    {"replace", "old|new|count", replace},
    {"reverse", "", reverse},
    {"round", "precision|method", round_off},
    {"safe", "", safe},
    {"select", NULL, select_by},
    {"selectattr", NULL, select_attribute},
    {"sort", "reverse|case_sensitive|attribute", sort},
    {"string", "", string},
    {"sum", "attribute|start", sum},
    {"title", "", title},
    {"tojson", "ensure_ascii|indent|separators|sort_keys", tojson},
    {"trim", "chars", trim},
    {"unique", "case_sensitive|attribute", unique},
    {"upper", "", upper},
    {"wordcount", "", wordcount},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

const struct jfilter_row *jfilter_find(const char *name)
{
    for (int i = 0; i < N_ROWS; i++)
        if (!strcmp(rows[i].name, name)) return &rows[i];
    return NULL;
}

const char *jfilter_near(const char *name)
{
    const char *names[N_ROWS];
    for (int i = 0; i < N_ROWS; i++) names[i] = rows[i].name;
    return str_nearest(name, names, N_ROWS);
}

struct jv jfilter_apply(struct jrun *r, const struct jnode *at, const struct jfilter_row *row, struct jv v,
                        const struct jargs *args)
{
    struct jv arg[8];
    if (row->params && !jbind(r, at, row->name, row->params, args, arg)) return v;
    struct jv got = row->run(r, at, v, arg, args);
    return r->code ? jv_undefined("") : got;
}
