/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_eval.c: expressions → values, one function per kind of node, chosen from a table.
 *
 * Where Python would raise, this fails; where jinja2 hands out an undefined value, so does this: it prints as nothing,
 * is false, has no items, and is an error where anything else is done with it.
 */
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "jinja/jinja_run.h"

/* -- limits and errors --------------------------------------------------------------------------------------- */

struct jv jfail(struct jrun *r, const struct jnode *at, const char *fmt, ...)
{
    char text[800];
    va_list args;
    if (r->code) return jv_undefined("");
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (r->work.steps > r->work.most) /* what was found wrong rests on comparisons that were cut short */
        snprintf(text, sizeof text, "more than %d steps: the template does not come to an end", JINJA_STEPS);
    r->code = err_set(r->e, ERR_CORRUPT, "%s:%d:%d: %s", r->t->name, at->line, at->column, text);
    return jv_undefined("");
}

bool jspend(struct jrun *r, const struct jnode *at, int64_t steps)
{
    if (!jwork_add(&r->work, steps)) jfail(r, at, "too many steps");
    return !r->code;
}

bool jtake(struct jrun *r, const struct jnode *at, size_t bytes)
{
    if (bytes > JINJA_MEMORY || r->work.bytes > JINJA_MEMORY - (int64_t)bytes)
        jfail(r, at, "more than %d MiB of values", JINJA_MEMORY >> 20);
    return !r->code;
}

void *jalloc(struct jrun *r, size_t bytes)
{
    r->work.bytes += (int64_t)bytes;
    return arena_alloc(r->arena, bytes);
}

/* After a node: what it took, whoever took it. */
bool jbounded(struct jrun *r, const struct jnode *at) { return jspend(r, at, 0) && jtake(r, at, 0); }

struct jv jdone(struct jrun *r, const struct jnode *at, struct jbuild *b)
{
    if (b->text.n > JINJA_BYTES) jfail(r, at, "a text of more than %d MiB", JINJA_BYTES >> 20);
    if (!jspend(r, at, (int64_t)(b->text.n / 64)) || !jtake(r, at, 2 * b->text.n)) {
        jbuild_free(b);
        return jv_undefined("");
    }
    r->work.bytes += (int64_t)(2 * b->text.n);
    return jv_text(jbuild_done(b, r->arena));
}

bool jdefined(struct jrun *r, const struct jnode *at, const struct jv *v)
{
    if (v->kind == JV_UNDEFINED) jfail(r, at, "'%.100s' is undefined", v->name ? v->name : "");
    return !r->code;
}

/* -- looking into values ------------------------------------------------------------------------------------- */

struct jlist jitems(struct jrun *r, const struct jnode *at, const struct jv *v)
{
    struct jlist none = {0};
    if (v->kind == JV_UNDEFINED) return none;
    if (v->kind == JV_LIST || v->kind == JV_TUPLE) return v->list;
    if (v->kind == JV_TEXT) {
        struct jv chars = jtext_chars(r, at, v->text);
        return r->code ? none : chars.list;
    }
    if (v->kind == JV_MAP) {
        const struct jmap *m = v->map;
        if (!jspend(r, at, m->n / 4) || !jtake(r, at, to_size(m->n) * sizeof(struct jv))) return none;
        struct jv *item = jalloc(r, to_size(m->n) * sizeof *item);
        for (int64_t i = 0; i < m->n; i++) item[i] = m->pair[i].key;
        return (struct jlist){.item = item, .n = m->n};
    }
    jfail(r, at, "a %s has no items to go through", jv_type(v));
    return none;
}

static struct jv no_such(struct jrun *r, const struct jv *v, const char *name)
{
    r->work.bytes += 100;
    return jv_undefined(arena_printf(r->arena, "%s has no '%.60s'", jv_type(v), name));
}

static struct jv loop_attribute(struct jrun *r, const struct jv *v, const char *name)
{
    const struct jloop *l = v->loop;
    int64_t i = l->at, n = l->items.n;
    const struct {
        const char *name;
        struct jv value;
    } all[] = {
        {"index", jv_int(i + 1)},
        {"index0", jv_int(i)},
        {"revindex", jv_int(n - i)},
        {"revindex0", jv_int(n - i - 1)},
        {"first", jv_bool(i == 0)},
        {"last", jv_bool(i == n - 1)},
        {"length", jv_int(n)},
        {"depth", jv_int(l->depth + 1)},
        {"depth0", jv_int(l->depth)},
        {"previtem", i > 0 ? l->items.item[i - 1] : jv_undefined("there is no previous item")},
        {"nextitem", i < n - 1 ? l->items.item[i + 1] : jv_undefined("there is no next item")},
    };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (!strcmp(name, all[k].name)) return all[k].value;
    return no_such(r, v, name);
}

static struct jv method_of(struct jrun *r, const struct jv *v, const char *name)
{
    struct jmethod *m = jalloc(r, sizeof *m);
    *m = (struct jmethod){.self = *v, .name = name};
    return (struct jv){.kind = JV_METHOD, .method = m};
}

struct jv jattribute(struct jrun *r, const struct jnode *at, const struct jv *v, const char *name)
{
    if (!jdefined(r, at, v)) return jv_undefined("");
    if (jmethod_exists(v->kind, name)) return method_of(r, v, name);
    if (v->kind == JV_LOOP) return loop_attribute(r, v, name);
    if (v->kind == JV_TUPLE && v->list.group && !strcmp(name, "grouper")) return v->list.item[0];
    if (v->kind == JV_TUPLE && v->list.group && !strcmp(name, "list")) return v->list.item[1];
    if (v->kind == JV_MAP || v->kind == JV_NAMESPACE) {
        const struct jv *found = jmap_word(&r->work, v->map, name);
        if (found) return *found;
    }
    return no_such(r, v, name);
}

/* The place of an index, negative ones counted from the end; -1: outside. */
static int64_t place(int64_t i, int64_t n)
{
    if (i < 0) i += n;
    return i >= 0 && i < n ? i : -1;
}

struct jv jitem(struct jrun *r, const struct jnode *at, const struct jv *v, const struct jv *key)
{
    if (!jdefined(r, at, v)) return jv_undefined("");
    bool number = key->kind == JV_INT || key->kind == JV_BOOL;
    if (v->kind == JV_MAP) {
        const struct jv *found = jmap_get(&r->work, v->map, key);
        if (found) return *found;
    } else if ((v->kind == JV_LIST || v->kind == JV_TUPLE) && number) {
        int64_t i = place(jv_as_int(key), v->list.n);
        return i >= 0 ? v->list.item[i] : jv_undefined("an item outside of the list");
    } else if (v->kind == JV_TEXT && number) {
        int64_t i = place(jv_as_int(key), jtext_length(&r->work, v->text));
        if (i < 0) return jv_undefined("a character outside of the text");
        return jv_text(jtext_part(v->text, jtext_at(&r->work, v->text, i), jtext_at(&r->work, v->text, i + 1)));
    }
    if (key->kind == JV_TEXT) { /* as jinja2: what is no key may be an attribute */
        char *name = jalloc(r, key->text.n + 1);
        memcpy(name, key->text.p, key->text.n);
        if (v->kind != JV_MAP || jmethod_exists(v->kind, name)) return jattribute(r, at, v, name);
        return no_such(r, v, name);
    }
    return jv_undefined("an item that is not there");
}

/* -- names, lists, parts ------------------------------------------------------------------------------------- */

static struct jv eval_const(struct jrun *r, const struct jnode *n)
{
    (void)r;
    return n->value;
}

static struct jv eval_name(struct jrun *r, const struct jnode *n)
{
    const struct jv *v = jlook(&r->work, r->frame, n->name);
    if (v) return *v;
    if (jfunction_exists(r, n->name)) return (struct jv){.kind = JV_FUNCTION, .name = n->name};
    return jv_undefined(n->name);
}

static int64_t count(const struct jnode *n)
{
    int64_t k = 0;
    for (; n; n = n->next) k++;
    return k;
}

static struct jv eval_list(struct jrun *r, const struct jnode *n)
{
    int64_t k = count(n->items), i = 0;
    if (!jtake(r, n, to_size(k) * sizeof(struct jv))) return jv_undefined("");
    struct jv list = jv_list_of(jalloc(r, to_size(k) * sizeof *list.list.item), k);
    for (const struct jnode *item = n->items; item && !r->code; item = item->next) list.list.item[i++] = jeval(r, item);
    if (n->kind == JN_TUPLE) list.kind = JV_TUPLE;
    return list;
}

static struct jv eval_map(struct jrun *r, const struct jnode *n)
{
    struct jmap *m = jalloc(r, sizeof *m);
    for (const struct jnode *pair = n->items; pair && !r->code; pair = pair->next) {
        struct jv key = jeval(r, pair->a), value = jeval(r, pair->b);
        if (key.kind == JV_LIST || key.kind == JV_MAP) return jfail(r, pair, "a %s cannot be a key", jv_type(&key));
        if (jtake(r, n, 3 * sizeof(struct jpair))) jmap_put(&r->work, r->arena, m, key, value);
    }
    return (struct jv){.kind = JV_MAP, .map = m};
}

static struct jv eval_attr(struct jrun *r, const struct jnode *n)
{
    struct jv v = jeval(r, n->a);
    return r->code ? v : jattribute(r, n, &v, n->name);
}

static struct jv eval_item(struct jrun *r, const struct jnode *n)
{
    struct jv v = jeval(r, n->a), key = jeval(r, n->b);
    return r->code ? v : jitem(r, n, &v, &key);
}

/* A bound of a slice: its value, or `otherwise`. */
static int64_t bound(struct jrun *r, const struct jnode *n, int64_t otherwise)
{
    struct jv v = n ? jeval(r, n) : jv_none();
    if (v.kind == JV_NONE || r->code) return otherwise;
    if (v.kind != JV_INT && v.kind != JV_BOOL) {
        jfail(r, n, "a slice's bound is a %s", jv_type(&v));
        return otherwise;
    }
    return jv_as_int(&v);
}

static int64_t clamp(int64_t i, int64_t lo, int64_t hi) { return i < lo ? lo : i > hi ? hi : i; }

static struct jv eval_slice(struct jrun *r, const struct jnode *n)
{
    struct jv v = jeval(r, n->a);
    int64_t step = bound(r, n->d, 1);
    if (r->code || !jdefined(r, n, &v)) return v;
    bool text = v.kind == JV_TEXT;
    if (!text && v.kind != JV_LIST && v.kind != JV_TUPLE) return jfail(r, n, "a %s cannot be sliced", jv_type(&v));
    if (step == 0 || step == INT64_MIN) return jfail(r, n, "a slice's step of %lld", (long long)step);
    bool plain = text && step == 1; /* the common one goes without a list of characters */
    struct jlist all = plain ? (struct jlist){.n = jtext_length(&r->work, v.text)} : jitems(r, n, &v);
    int64_t size = all.n, lo = step > 0 ? 0 : -1, hi = step > 0 ? size : size - 1;
    int64_t from = bound(r, n->b, step > 0 ? 0 : INT64_MAX), to = bound(r, n->c, step > 0 ? INT64_MAX : INT64_MIN);
    if (from < 0) from += size;
    if (to < 0 && to != INT64_MIN) to += size;
    from = clamp(from, lo, hi);
    to = clamp(to, lo, hi);
    if (plain && !r->code)
        return jv_text(
            jtext_part(v.text, jtext_at(&r->work, v.text, from), jtext_at(&r->work, v.text, to > from ? to : from)));
    if (r->code || !jspend(r, n, size / 4) || !jtake(r, n, to_size(size) * sizeof(struct jv))) return v;
    struct jv *item = jalloc(r, to_size(size) * sizeof *item);
    int64_t k = 0;
    struct jbuild b = {0};
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step) {
        if (text) jbuild_add(&b, all.item[i].text);
        else item[k++] = all.item[i];
        if (step > 0 ? step > size : step < -size) break; /* i + step would overflow */
    }
    if (text) return jdone(r, n, &b);
    struct jv part = jv_list_of(item, k);
    part.kind = v.kind;
    return part;
}

/* -- calls --------------------------------------------------------------------------------------------------- */

/* The names of a dict's items as arguments, behind the n that there are. */
static void spread(struct jrun *r, const struct jnode *n, const struct jmap *map, struct jv *value, const char **name,
                   int64_t *at)
{
    for (int64_t i = 0; i < map->n && jspend(r, n, 1 + *at / 8); i++) {
        const struct jv *key = &map->pair[i].key;
        if (key->kind != JV_TEXT || memchr(key->text.p, 0, key->text.n)) {
            jfail(r, n, "arguments from a dict: a key that is a %s, where a name was wanted", jv_type(key));
            return;
        }
        char *word = jalloc(r, key->text.n + 1);
        memcpy(word, key->text.p, key->text.n);
        for (int64_t k = 0; k < *at; k++)
            if (name[k] && !strcmp(name[k], word)) jfail(r, n, "the argument %.60s is given twice", word);
        value[*at] = map->pair[i].value;
        name[(*at)++] = word;
    }
}

/* Evaluates JN_ARG nodes: those with a place, also of *list, before those with a name, also of **dict. */
static struct jargs arguments(struct jrun *r, const struct jnode *first)
{
    struct jargs args = {0};
    struct jv *got = jalloc(r, to_size(count(first)) * sizeof *got), *value;
    const char **name;
    int64_t room = 0, i = 0;
    for (const struct jnode *n = first; n && !r->code; n = n->next, i++) {
        got[i] = jeval(r, n->a);
        if (n->op == '*' && !r->code) got[i].list = jitems(r, n, &got[i]);
        if (n->op == 'd' && !r->code && got[i].kind != JV_MAP)
            jfail(r, n, "arguments from a %s, where a dict was wanted", jv_type(&got[i]));
        if (!r->code) room += n->op == '*' ? got[i].list.n : n->op == 'd' ? got[i].map->n : 1;
    }
    if (r->code || !jspend(r, first, room) || !jtake(r, first, to_size(room) * (sizeof *value + sizeof *name)))
        return args;
    args.value = value = jalloc(r, to_size(room) * sizeof *value);
    args.name = name = jalloc(r, to_size(room) * sizeof *name);
    i = 0;
    for (const struct jnode *n = first; n; n = n->next, i++)
        for (int64_t k = 0; !n->name && n->op != 'd' && k < (n->op ? got[i].list.n : 1); k++)
            value[args.n++] = n->op ? got[i].list.item[k] : got[i];
    i = 0;
    for (const struct jnode *n = first; n; n = n->next, i++) {
        if (n->op == 'd') spread(r, n, got[i].map, value, name, &args.n);
        if (!n->name) continue;
        value[args.n] = got[i];
        name[args.n++] = n->name;
    }
    return args;
}

bool jbind(struct jrun *r, const struct jnode *at, const char *what, const char *params, const struct jargs *args,
           struct jv out[8])
{
    const char *name[8];
    size_t length[8];
    int n = 0;
    for (const char *p = params; *p; n++) {
        CHECK(n < 8, "%s has more than 8 parameters", what);
        name[n] = p;
        length[n] = strcspn(p, "|");
        p += length[n] + (p[length[n]] == '|');
    }
    for (int i = 0; i < 8; i++) out[i] = jv_undefined(NULL);
    for (int64_t i = 0; i < args->n; i++) {
        int k = args->name[i] ? 0 : (int)(i < n ? i : n);
        while (args->name[i] && k < n &&
               (strlen(args->name[i]) != length[k] || memcmp(args->name[i], name[k], length[k])))
            k++;
        if (k == n && args->name[i]) jfail(r, at, "%s has no argument '%.60s'", what, args->name[i]);
        else if (k == n) jfail(r, at, "%s takes %d arguments, got %lld", what, n, (long long)args->n);
        else if (!jmissing(&out[k]))
            jfail(r, at, "%s: the argument %.*s is given twice", what, (int)length[k], name[k]);
        if (r->code) return false;
        out[k] = args->value[i];
        if (jmissing(&out[k])) out[k].name = "";
    }
    return !r->code;
}

struct jv jcall(struct jrun *r, const struct jnode *at, const struct jv *callee, const struct jargs *args)
{
    if (callee->kind == JV_METHOD) return jmethod_call(r, at, callee->method, args);
    if (callee->kind == JV_FUNCTION) return jfunction_call(r, at, callee->name, args);
    if (callee->kind == JV_MACRO) return jmacro_call(r, at, callee->macro, args);
    if (callee->kind == JV_UNDEFINED) return jfail(r, at, "'%.100s' is undefined and cannot be called", callee->name);
    return jfail(r, at, "a %s cannot be called", jv_type(callee));
}

static struct jv eval_call(struct jrun *r, const struct jnode *n)
{
    struct jv callee = jeval(r, n->a);
    struct jargs args = arguments(r, n->items);
    return r->code ? callee : jcall(r, n, &callee, &args);
}

static struct jv eval_filter(struct jrun *r, const struct jnode *n)
{
    struct jv v = jeval(r, n->a);
    struct jargs args = arguments(r, n->items);
    return r->code ? v : jfilter_apply(r, n, n->filter, v, &args);
}

static struct jv eval_test(struct jrun *r, const struct jnode *n)
{
    struct jv v = jeval(r, n->a);
    struct jargs args = arguments(r, n->items);
    return r->code ? v : jv_bool(jtest_apply(r, n, n->test, &v, &args));
}

/* -- logic and arithmetic ------------------------------------------------------------------------------------- */

static struct jv eval_not(struct jrun *r, const struct jnode *n)
{
    struct jv v = jeval(r, n->a);
    return jv_bool(!jv_true(&v));
}

static struct jv eval_and(struct jrun *r, const struct jnode *n)
{
    struct jv v = jeval(r, n->a);
    return r->code || !jv_true(&v) ? v : jeval(r, n->b);
}

static struct jv eval_or(struct jrun *r, const struct jnode *n)
{
    struct jv v = jeval(r, n->a);
    return r->code || jv_true(&v) ? v : jeval(r, n->b);
}

static struct jv eval_if_else(struct jrun *r, const struct jnode *n)
{
    struct jv v = jeval(r, n->b);
    if (r->code || jv_true(&v)) return r->code ? v : jeval(r, n->a);
    return n->c ? jeval(r, n->c) : jv_undefined("the inline if-expression evaluated to false and has no else");
}

static struct jv eval_sign(struct jrun *r, const struct jnode *n)
{
    struct jv v = jeval(r, n->a);
    if (r->code || !jdefined(r, n, &v)) return v;
    if (!jv_is_number(&v)) return jfail(r, n, "a sign before a %s", jv_type(&v));
    if (n->kind == JN_POS) return v.kind == JV_REAL ? v : jv_int(jv_as_int(&v));
    if (v.kind == JV_REAL) return jv_real(-v.r);
    if (jv_as_int(&v) == INT64_MIN) return jfail(r, n, "a number beyond 64 bits");
    return jv_int(-jv_as_int(&v));
}

static struct jv eval_concat(struct jrun *r, const struct jnode *n)
{
    struct jbuild b = {0};
    for (const struct jnode *part = n->items; part && !r->code; part = part->next) {
        struct jv v = jeval(r, part);
        if (!r->code) jprint(r, part, &b, &v);
    }
    return jdone(r, n, &b);
}

static struct jv repeat(struct jrun *r, const struct jnode *n, const struct jv *v, int64_t times)
{
    size_t each = v->kind == JV_TEXT ? v->text.n : to_size(v->list.n) * sizeof(struct jv), bytes;
    if (times < 0) times = 0;
    if (size_mul(each, to_size(times), &bytes) || !jtake(r, n, bytes) || !jspend(r, n, (int64_t)(bytes / 64)) ||
        !jspend(r, n, each ? times / 4 : 0))
        return jfail(r, n, "a value repeated %lld times", (long long)times);
    if (v->kind == JV_TEXT) {
        struct jbuild b = {0};
        for (int64_t i = 0; i < times && v->text.n; i++) jbuild_add(&b, v->text);
        return jdone(r, n, &b);
    }
    struct jv all = jv_list_of(jalloc(r, bytes), v->list.n * times);
    all.kind = v->kind;
    for (int64_t i = 0; i < all.list.n; i++) all.list.item[i] = v->list.item[i % v->list.n];
    return all;
}

/* escape: as markupsafe escapes what is put to a text that is marked safe. */
static void add_escaped(struct jbuild *b, struct jtext t, bool escape)
{
    static const char marks[] = "&<>'\"", *const with[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    size_t done = 0;
    for (size_t i = 0; escape && i < t.n; i++) {
        const char *hit = t.p[i] ? strchr(marks, t.p[i]) : NULL;
        if (!hit) continue;
        jbuild_add(b, jtext_part(t, done, i));
        jbuild_bytes(b, with[hit - marks], strlen(with[hit - marks]), jtext_who(t, i));
        done = i + 1;
    }
    jbuild_add(b, jtext_part(t, done, t.n));
}

static struct jv joined(struct jrun *r, const struct jnode *n, const struct jv *a, const struct jv *b)
{
    if (a->kind == JV_TEXT) {
        struct jbuild out = {0};
        bool safe = a->text.safe || b->text.safe;
        add_escaped(&out, a->text, safe && !a->text.safe);
        add_escaped(&out, b->text, safe && !b->text.safe);
        struct jv all = jdone(r, n, &out);
        if (all.kind == JV_TEXT) all.text.safe = safe;
        return all;
    }
    int64_t size = a->list.n + b->list.n;
    if (!jspend(r, n, size / 8) || !jtake(r, n, to_size(size) * sizeof(struct jv))) return jv_undefined("");
    struct jv all = jv_list_of(jalloc(r, to_size(size) * sizeof *all.list.item), size);
    all.kind = a->kind;
    for (int64_t i = 0; i < size; i++) all.list.item[i] = i < a->list.n ? a->list.item[i] : b->list.item[i - a->list.n];
    return all;
}

/* Integers, as Python rounds: down. */
static struct jv whole(struct jrun *r, const struct jnode *n, int64_t a, int64_t b)
{
    int64_t out = 0;
    bool over = false;
    switch (n->op) {
    case '+': over = __builtin_add_overflow(a, b, &out); break;
    case '-': over = __builtin_sub_overflow(a, b, &out); break;
    case '*': over = __builtin_mul_overflow(a, b, &out); break;
    case 'd':
    case '%':
        if (b == 0) return jfail(r, n, "division by zero");
        if (b == -1) {
            over = n->op == 'd' && a == INT64_MIN;
            out = n->op == 'd' && !over ? -a : 0;
            break;
        }
        out = n->op == 'd' ? a / b - ((a % b != 0) && ((a < 0) != (b < 0))) : (a % b + b) % b;
        break;
    case '^':
        if (b < 0) return jv_real(pow((double)a, (double)b));
        for (out = 1; b > 0 && !over && jspend(r, n, 1) && !(a == 1 || (a == 0 && out == 0)); b--)
            over = __builtin_mul_overflow(out, a, &out);
        break;
    default: CHECK(false, "an operator %c on integers", n->op);
    }
    return over ? jfail(r, n, "a number beyond 64 bits") : jv_int(out);
}

static struct jv real(struct jrun *r, const struct jnode *n, double a, double b)
{
    if (strchr("/d%", n->op) && b == 0) return jfail(r, n, "division by zero");
    switch (n->op) {
    case '+': return jv_real(a + b);
    case '-': return jv_real(a - b);
    case '*': return jv_real(a * b);
    case '/': return jv_real(a / b);
    case 'd': return jv_real(floor(a / b));
    case '%': {
        double rest = fmod(a, b);
        return jv_real(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    }
    default: return jv_real(pow(a, b));
    }
}

static struct jv eval_math(struct jrun *r, const struct jnode *n)
{
    struct jv a = jeval(r, n->a), b = jeval(r, n->b);
    if (r->code || !jdefined(r, n, &a) || !jdefined(r, n, &b)) return a;
    if (jv_is_number(&a) && jv_is_number(&b)) {
        if (a.kind == JV_REAL || b.kind == JV_REAL || n->op == '/') return real(r, n, jv_as_real(&a), jv_as_real(&b));
        return whole(r, n, jv_as_int(&a), jv_as_int(&b));
    }
    bool sequence = a.kind == JV_TEXT || a.kind == JV_LIST || a.kind == JV_TUPLE;
    if (n->op == '+' && sequence && a.kind == b.kind) return joined(r, n, &a, &b);
    if (n->op == '*' && sequence && (b.kind == JV_INT || b.kind == JV_BOOL)) return repeat(r, n, &a, jv_as_int(&b));
    if (n->op == '*' && (a.kind == JV_INT || a.kind == JV_BOOL) &&
        (b.kind == JV_TEXT || b.kind == JV_LIST || b.kind == JV_TUPLE))
        return repeat(r, n, &b, jv_as_int(&a));
    if (n->op == '%' && a.kind == JV_TEXT) return jformat_percent(r, n, a.text, &b);
    return jfail(r, n, "%s %s %s: these do not go together%s", jv_type(&a),
                 n->op == 'd'   ? "//"
                 : n->op == '^' ? "**"
                                : (char[]){n->op, 0},
                 jv_type(&b), a.kind == JV_TEXT || b.kind == JV_TEXT ? "; ~ joins anything as text" : "");
}

/* -- comparisons ---------------------------------------------------------------------------------------------- */

static bool contains(struct jrun *r, const struct jnode *at, const struct jv *all, const struct jv *one)
{
    if (all->kind == JV_TEXT) {
        if (one->kind != JV_TEXT) {
            jfail(r, at, "a %s is looked for in a text", jv_type(one));
            return false;
        }
        return jtext_find(&r->work, all->text, 0, one->text) <= all->text.n;
    }
    struct jlist items = jitems(r, at, all);
    for (int64_t i = 0; i < items.n && !r->code; i++)
        if (jv_equal(&r->work, &items.item[i], one, 0)) return true;
    return false;
}

static bool against(struct jrun *r, const struct jnode *at, const struct jv *a, const struct jv *b)
{
    bool fails = false;
    if (at->op == 'i') return contains(r, at, b, a);
    if (at->op == 'n') return !contains(r, at, b, a);
    if (at->op == '=') return jv_equal(&r->work, a, b, 0);
    if (at->op == '!') return !jv_equal(&r->work, a, b, 0);
    int order = jv_compare(&r->work, a, b, &fails, 0);
    if (fails) jfail(r, at, "%s and %s have no order", jv_type(a), jv_type(b));
    return at->op == '<' ? order < 0 : at->op == '>' ? order > 0 : at->op == 'l' ? order <= 0 : order >= 0;
}

static struct jv eval_compare(struct jrun *r, const struct jnode *n)
{
    struct jv a = jeval(r, n->a);
    for (const struct jnode *next = n->items; next && !r->code; next = next->next) {
        struct jv b = jeval(r, next->a);
        if (r->code || !against(r, next, &a, &b)) return jv_bool(false);
        a = b;
    }
    return jv_bool(true);
}

/* -- the table ------------------------------------------------------------------------------------------------ */

struct jv jeval(struct jrun *r, const struct jnode *n)
{
    static struct jv (*const how[])(struct jrun *, const struct jnode *) = {
        [JN_CONST] = eval_const, [JN_NAME] = eval_name,     [JN_LIST] = eval_list,       [JN_TUPLE] = eval_list,
        [JN_MAP] = eval_map,     [JN_ATTR] = eval_attr,     [JN_ITEM] = eval_item,       [JN_SLICE] = eval_slice,
        [JN_CALL] = eval_call,   [JN_FILTER] = eval_filter, [JN_TEST] = eval_test,       [JN_NOT] = eval_not,
        [JN_NEG] = eval_sign,    [JN_POS] = eval_sign,      [JN_AND] = eval_and,         [JN_OR] = eval_or,
        [JN_MATH] = eval_math,   [JN_CONCAT] = eval_concat, [JN_COMPARE] = eval_compare, [JN_IF_ELSE] = eval_if_else,
    };
    if (!jspend(r, n, 1)) return jv_undefined("");
    if (r->depth >= JINJA_CALLS) return jfail(r, n, "more than %d calls within each other", JINJA_CALLS);
    r->depth++;
    struct jv v = how[n->kind](r, n);
    r->depth--;
    (void)jbounded(r, n);
    return r->code ? jv_undefined("") : v;
}
