/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_methods.c: methods of texts, lists, dicts and loops, and the functions of the language. What would change a
 * value (append, update, ...) is not there, as in the reference's sandbox. */
#include <string.h>

#include "jinja/jinja_run.h"

#define METHOD(name)                                                                                                   \
    static struct jv name(struct jrun *r, const struct jnode *at, const struct jmethod *m, const struct jv *arg)
#define TEXT m->self.text

/* -- texts ---------------------------------------------------------------------------------------------------- */

static bool want_text(struct jrun *r, const struct jnode *at, const struct jmethod *m, const struct jv *arg)
{
    if (arg->kind == JV_TEXT) return true;
    jfail(r, at, "%s: an argument that is a %s, where a text was wanted", m->name,
          jmissing(arg) ? "missing one" : jv_type(arg));
    return false;
}

METHOD(strip)
{
    bool white = jmissing(&arg[0]) || arg[0].kind == JV_NONE;
    if (!white && !want_text(r, at, m, &arg[0])) return m->self;
    return jv_text(jtext_strip(&r->work, TEXT, white ? NULL : &arg[0].text, m->name[0] != 'r', m->name[0] != 'l'));
}

static bool edge_is(struct jwork *w, struct jtext t, struct jtext edge, bool end)
{
    return jwork_add(w, 1 + (int64_t)(edge.n / 64)) && edge.n <= t.n &&
           !memcmp(end ? t.p + t.n - edge.n : t.p, edge.p, edge.n);
}
METHOD(begins_or_ends)
{
    bool end = m->name[0] == 'e';
    if (!jmissing(&arg[1])) return jfail(r, at, "%s with a place is not known here; slice the text", m->name);
    if (arg[0].kind == JV_TUPLE) {
        bool any = false;
        for (int64_t i = 0; i < arg[0].list.n && jspend(r, at, 1); i++)
            any = any ||
                  (want_text(r, at, m, &arg[0].list.item[i]) && edge_is(&r->work, TEXT, arg[0].list.item[i].text, end));
        return jv_bool(any);
    }
    return want_text(r, at, m, &arg[0]) ? jv_bool(edge_is(&r->work, TEXT, arg[0].text, end)) : m->self;
}
METHOD(remove_edge)
{
    bool end = m->name[6] == 's';
    if (!want_text(r, at, m, &arg[0]) || !edge_is(&r->work, TEXT, arg[0].text, end)) return m->self;
    size_t n = arg[0].text.n;
    return jv_text(end ? jtext_part(TEXT, 0, TEXT.n - n) : jtext_part(TEXT, n, TEXT.n));
}

struct parts {
    struct jv *item;
    int64_t n, room;
};
static void put_part(struct jrun *r, const struct jnode *at, struct parts *p, struct jtext t)
{
    if (!jspend(r, at, 1) || !jtake(r, at, to_size(p->n + 1) * 3 * sizeof(struct jv))) return;
    GROW(p->item, p->n, p->room, 1);
    p->item[p->n++] = jv_text(t);
}
static struct jv parts_done(struct jrun *r, struct parts *p, bool backwards)
{
    struct jv *item = jalloc(r, to_size(p->n) * sizeof *item);
    for (int64_t i = 0; i < p->n; i++) item[i] = p->item[backwards ? p->n - 1 - i : i];
    struct jv list = jv_list_of(item, p->n);
    xfree(p->item);
    return list;
}

/* At runs of white space, from the left. */
static void split_words(struct jrun *r, const struct jnode *at, struct jtext t, int64_t most, struct parts *p)
{
    t = jtext_strip(&r->work, t, NULL, true, false);
    while (t.n && !r->code) {
        size_t end = 0;
        if (most-- == 0) {
            put_part(r, at, p, jtext_strip(&r->work, t, NULL, false, false));
            return;
        }
        while (end < t.n && !jtext_space(t, end)) end++;
        if (!jspend(r, at, 1 + (int64_t)(end / 16))) return;
        put_part(r, at, p, jtext_part(t, 0, end));
        t = jtext_strip(&r->work, jtext_part(t, end, t.n), NULL, true, false);
    }
}

static void split_at(struct jrun *r, const struct jnode *at, struct jtext t, struct jtext by, int64_t most,
                     struct parts *p)
{
    size_t from = 0, hit;
    while (most-- != 0 && !r->code && (hit = jtext_find(&r->work, t, from, by)) <= t.n) {
        put_part(r, at, p, jtext_part(t, from, hit));
        from = hit + by.n;
    }
    put_part(r, at, p, jtext_part(t, from, t.n));
}

static void split_from_end(struct jrun *r, const struct jnode *at, struct jtext t, struct jtext by, int64_t most,
                           struct parts *p)
{
    size_t end = t.n;
    while (most != 0 && !r->code && end >= by.n) {
        size_t from = end - by.n + 1;
        while (from-- > 0 && jspend(r, at, t.p[from] == *by.p ? 1 + (int64_t)(by.n / 64) : 0) &&
               memcmp(t.p + from, by.p, by.n)) {}
        if (r->code || !jspend(r, at, 1 + (int64_t)((end - from) / 16))) return;
        if (from == SIZE_MAX) break;
        put_part(r, at, p, jtext_part(t, from + by.n, end));
        end = from;
        most--;
    }
    put_part(r, at, p, jtext_part(t, 0, end));
}

METHOD(split)
{
    struct parts p = {0};
    bool words = jmissing(&arg[0]) || arg[0].kind == JV_NONE, backwards = m->name[0] == 'r';
    if (!jmissing(&arg[1]) && arg[1].kind != JV_INT)
        return jfail(r, at, "%s: how often was wanted as an integer", m->name);
    int64_t most = jmissing(&arg[1]) ? -1 : arg[1].i;
    if (!words && !want_text(r, at, m, &arg[0])) return m->self;
    if (!words && !arg[0].text.n) return jfail(r, at, "%s at an empty text", m->name);
    if (words && backwards && most >= 0) return jfail(r, at, "rsplit at white space so often is not known here");
    if (words) split_words(r, at, TEXT, most, &p);
    else if (backwards) split_from_end(r, at, TEXT, arg[0].text, most, &p);
    else split_at(r, at, TEXT, arg[0].text, most, &p);
    return parts_done(r, &p, backwards && !words);
}
METHOD(splitlines)
{
    struct parts p = {0};
    bool keep = !jmissing(&arg[0]) && jv_true(&arg[0]);
    for (size_t from = 0, next; from < TEXT.n && !r->code; from = next) {
        size_t end = jtext_line(&r->work, TEXT, from, &next);
        put_part(r, at, &p, jtext_part(TEXT, from, keep ? next : end));
    }
    return parts_done(r, &p, false);
}
METHOD(partition)
{
    struct jv *item = jalloc(r, 3 * sizeof *item);
    if (!want_text(r, at, m, &arg[0])) return m->self;
    if (!arg[0].text.n) return jfail(r, at, "partition at an empty text");
    size_t hit = jtext_find(&r->work, TEXT, 0, arg[0].text), behind = hit + arg[0].text.n;
    bool found = hit <= TEXT.n;
    item[0] = found ? jv_text(jtext_part(TEXT, 0, hit)) : m->self;
    item[1] = found ? jv_text(jtext_part(TEXT, hit, behind)) : jv_word("");
    item[2] = found ? jv_text(jtext_part(TEXT, behind, TEXT.n)) : jv_word("");
    return (struct jv){.kind = JV_TUPLE, .list = {item, 3}};
}
METHOD(change_case)
{
    static const struct {
        const char *name;
        enum jcase how;
    } cases[] = {{"upper", JCASE_UPPER},
                 {"lower", JCASE_LOWER},
                 {"title", JCASE_TITLE},
                 {"capitalize", JCASE_CAPITALIZE}};
    (void)arg;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(m->name, cases[i].name)) return jv_text(jtext_case(r, at, TEXT, cases[i].how));
    return m->self;
}
METHOD(replace)
{
    if (!want_text(r, at, m, &arg[0]) || !want_text(r, at, m, &arg[1])) return m->self;
    if (!jmissing(&arg[2]) && arg[2].kind != JV_INT) return jfail(r, at, "replace: how often was wanted as an integer");
    return jv_text(jtext_replace(r, at, TEXT, arg[0].text, arg[1].text, jmissing(&arg[2]) ? -1 : arg[2].i));
}
/* find, rfind, index: in characters. */
METHOD(find)
{
    if (!want_text(r, at, m, &arg[0])) return m->self;
    size_t hit = jtext_find(&r->work, TEXT, 0, arg[0].text), last = hit;
    while (m->name[0] == 'r' && last < TEXT.n && jspend(r, at, 1) &&
           (last = jtext_find(&r->work, TEXT, last + 1, arg[0].text)) <= TEXT.n)
        hit = last;
    if (hit <= TEXT.n) return jv_int(jtext_length(&r->work, jtext_part(TEXT, 0, hit)));
    return m->name[0] == 'i' ? jfail(r, at, "index: the text does not hold that") : jv_int(-1);
}
METHOD(count)
{
    int64_t n = 0;
    if (!want_text(r, at, m, &arg[0])) return m->self;
    if (!arg[0].text.n) return jv_int(jtext_length(&r->work, TEXT) + 1);
    for (size_t hit = 0; jspend(r, at, 1) && (hit = jtext_find(&r->work, TEXT, hit, arg[0].text)) <= TEXT.n;
         hit += arg[0].text.n)
        n++;
    return jv_int(n);
}
METHOD(join)
{
    struct jbuild b = {0};
    struct jlist l = jitems(r, at, &arg[0]);
    for (int64_t i = 0; i < l.n && jspend(r, at, 1) && b.text.n <= JINJA_BYTES; i++) {
        if (!want_text(r, at, m, &l.item[i])) break;
        if (i) jbuild_add(&b, TEXT);
        jbuild_add(&b, l.item[i].text);
    }
    return jdone(r, at, &b);
}
METHOD(is_kind)
{
    (void)arg;
    int is = jtext_kind(&r->work, TEXT, m->name);
    return is < 0 ? jfail(r, at, "%s beyond ASCII is not known here", m->name) : jv_bool(is);
}

/* -- dicts, lists, loops --------------------------------------------------------------------------------------- */

METHOD(pairs)
{
    (void)arg;
    const struct jmap *map = m->self.map;
    bool both = m->name[0] == 'i';
    if (!jspend(r, at, map->n) || !jtake(r, at, to_size(map->n) * 3 * sizeof(struct jv))) return m->self;
    struct jv *item = jalloc(r, to_size(map->n) * sizeof *item);
    for (int64_t i = 0; i < map->n; i++) {
        item[i] = m->name[0] == 'v' ? map->pair[i].value : map->pair[i].key;
        if (!both) continue;
        struct jv *two = jalloc(r, 2 * sizeof *two);
        two[0] = map->pair[i].key;
        two[1] = map->pair[i].value;
        item[i] = (struct jv){.kind = JV_TUPLE, .list = {two, 2}};
    }
    return jv_list_of(item, map->n);
}
METHOD(get)
{
    if (jmissing(&arg[0])) return jfail(r, at, "get: a key was wanted");
    const struct jv *found = jspend(r, at, m->self.map->n / 8) ? jmap_get(&r->work, m->self.map, &arg[0]) : NULL;
    return found ? *found : jmissing(&arg[1]) ? jv_none() : arg[1];
}
METHOD(list_index)
{
    bool counts = m->name[0] == 'c';
    int64_t n = 0;
    for (int64_t i = 0; i < m->self.list.n && jspend(r, at, 1); i++) {
        if (!jv_equal(&r->work, &m->self.list.item[i], &arg[0], 0)) continue;
        if (!counts) return jv_int(i);
        n++;
    }
    return counts ? jv_int(n) : jfail(r, at, "index: the list does not hold that");
}
METHOD(changed)
{
    (void)at;
    struct jv *before = m->self.loop->changed;
    bool same = !jmissing(before) && jv_equal(&r->work, before, &arg[0], 0);
    (void)r;
    *before = arg[0];
    return jv_bool(!same);
}

static const struct method {
    enum jv_kind of;
    const char *name, *params;
    struct jv (*run)(struct jrun *r, const struct jnode *at, const struct jmethod *m, const struct jv *arg);
} methods[] = {
    {JV_TEXT, "strip", "chars", strip},
    {JV_TEXT, "lstrip", "chars", strip},
    {JV_TEXT, "rstrip", "chars", strip},
    {JV_TEXT, "startswith", "prefix|start", begins_or_ends},
    {JV_TEXT, "endswith", "suffix|start", begins_or_ends},
    {JV_TEXT, "removeprefix", "prefix", remove_edge},
    {JV_TEXT, "removesuffix", "suffix", remove_edge},
    {JV_TEXT, "split", "sep|maxsplit", split},
    {JV_TEXT, "rsplit", "sep|maxsplit", split},
    {JV_TEXT, "splitlines", "keepends", splitlines},
    {JV_TEXT, "partition", "sep", partition},
    {JV_TEXT, "upper", "", change_case},
    {JV_TEXT, "lower", "", change_case},
    {JV_TEXT, "title", "", change_case},
    {JV_TEXT, "capitalize", "", change_case},
    {JV_TEXT, "replace", "old|new|count", replace},
    {JV_TEXT, "find", "sub", find},
    {JV_TEXT, "rfind", "sub", find},
    {JV_TEXT, "index", "sub", find},
    {JV_TEXT, "count", "sub", count},
    {JV_TEXT, "join", "iterable", join},
    {JV_TEXT, "isdigit", "", is_kind},
    {JV_TEXT, "isdecimal", "", is_kind},
    {JV_TEXT, "isnumeric", "", is_kind},
    {JV_TEXT, "isalpha", "", is_kind},
    {JV_TEXT, "isalnum", "", is_kind},
    {JV_TEXT, "isspace", "", is_kind},
    {JV_TEXT, "isupper", "", is_kind},
    {JV_TEXT, "islower", "", is_kind},
    {JV_MAP, "items", "", pairs},
    {JV_MAP, "keys", "", pairs},
    {JV_MAP, "values", "", pairs},
    {JV_MAP, "get", "key|default", get},
    {JV_LIST, "index", "value", list_index},
    {JV_LIST, "count", "value", list_index},
    {JV_TUPLE, "index", "value", list_index},
    {JV_TUPLE, "count", "value", list_index},
    {JV_LOOP, "changed", "value", changed},
    {JV_TEXT, "format", NULL, NULL},
    {JV_LOOP, "cycle", NULL, NULL},
};

static const struct method *find_method(enum jv_kind kind, const char *name)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].of == kind && !strcmp(methods[i].name, name)) return &methods[i];
    return NULL;
}

bool jmethod_exists(enum jv_kind kind, const char *name) { return find_method(kind, name) != NULL; }

/* What such a method would escape in its arguments. */
static bool holds_mark(struct jtext t)
{
    for (size_t i = 0; i < t.n; i++)
        if (t.p[i] && strchr("&<>'\"", t.p[i])) return true;
    return false;
}

struct jv jmethod_call(struct jrun *r, const struct jnode *at, const struct jmethod *m, const struct jargs *args)
{
    const struct method *row = find_method(m->self.kind, m->name);
    struct jv arg[8];
    for (int64_t i = 0; m->self.kind == JV_TEXT && TEXT.safe && i < args->n; i++)
        if (args->value[i].kind == JV_TEXT && holds_mark(args->value[i].text))
            return jfail(r, at, "%s of a text that is marked safe, with & < > ' or \" in it, is not known here",
                         m->name);
    if (m->self.kind == JV_TEXT && !row->run) return jformat_braces(r, at, TEXT, args);
    if (!row->run) /* loop.cycle: any number */
        return args->n ? args->value[m->self.loop->at % args->n] : jfail(r, at, "cycle: items were wanted");
    if (!jbind(r, at, m->name, row->params, args, arg)) return m->self;
    struct jv got = row->run(r, at, m, arg);
    return r->code ? jv_undefined("") : got;
}

/* -- functions ------------------------------------------------------------------------------------------------- */

typedef struct jv (*function_fn)(struct jrun *r, const struct jnode *at, const struct jargs *args);

static struct jv call_range(struct jrun *r, const struct jnode *at, const struct jargs *args)
{
    struct jv arg[8];
    int64_t v[3] = {0, 0, 1}, n = 0;
    if (!jbind(r, at, "range", "start|stop|step", args, arg)) return jv_undefined("");
    for (int i = 0; i < 3 && !jmissing(&arg[i]); i++) {
        if (arg[i].kind != JV_INT && arg[i].kind != JV_BOOL) return jfail(r, at, "range of a %s", jv_type(&arg[i]));
        v[i] = jv_as_int(&arg[i]);
    }
    if (jmissing(&arg[0])) return jfail(r, at, "range: an end was wanted");
    if (jmissing(&arg[1])) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (!v[2]) return jfail(r, at, "range with a step of 0");
    __int128 span = v[2] > 0 ? (__int128)v[1] - v[0] : (__int128)v[0] - v[1], step = v[2] > 0 ? v[2] : -(__int128)v[2];
    if (span > 0 && (span + step - 1) / step > JINJA_RANGE)
        return jfail(r, at, "a range of more than %d numbers", JINJA_RANGE);
    n = span > 0 ? (int64_t)((span + step - 1) / step) : 0;
    if (!jspend(r, at, n) || !jtake(r, at, to_size(n) * sizeof(struct jv))) return jv_undefined("");
    struct jv *item = jalloc(r, to_size(n) * sizeof *item);
    for (int64_t i = 0; i < n; i++) item[i] = jv_int(v[0] + i * v[2]);
    return jv_list_of(item, n);
}

/* dict(a=1) and namespace(a=1); of a dict, too. */
static struct jv call_dict(struct jrun *r, const struct jnode *at, const struct jargs *args)
{
    struct jmap *map = jalloc(r, sizeof *map);
    for (int64_t i = 0; i < args->n && jspend(r, at, 1); i++) {
        if (args->name[i]) {
            jmap_put(&r->work, r->arena, map, jv_word(args->name[i]), args->value[i]);
            continue;
        }
        if (args->value[i].kind != JV_MAP)
            return jfail(r, at, "a dict of a %s is not known here", jv_type(&args->value[i]));
        const struct jmap *from = args->value[i].map;
        for (int64_t k = 0; k < from->n && jspend(r, at, 1 + k / 8) && jtake(r, at, 3 * sizeof(struct jpair)); k++)
            jmap_put(&r->work, r->arena, map, from->pair[k].key, from->pair[k].value);
    }
    return (struct jv){.kind = JV_MAP, .map = map};
}
static struct jv call_namespace(struct jrun *r, const struct jnode *at, const struct jargs *args)
{
    struct jv v = call_dict(r, at, args);
    if (!r->code) v.kind = JV_NAMESPACE;
    return v;
}

static struct jv call_raise(struct jrun *r, const struct jnode *at, const struct jargs *args)
{
    struct jv arg[8];
    if (!jbind(r, at, "raise_exception", "message", args, arg)) return jv_undefined("");
    struct jtext t = jmissing(&arg[0]) ? (struct jtext){.p = ""} : jstring(r, at, &arg[0]);
    return jfail(r, at, "the template refuses: %.*s", t.n < 400 ? (int)t.n : 400, t.p);
}

static struct jv call_now(struct jrun *r, const struct jnode *at, const struct jargs *args)
{
    struct jv arg[8];
    char format[200], told[400];
    if (!jbind(r, at, "strftime_now", "format", args, arg)) return jv_undefined("");
    if (arg[0].kind != JV_TEXT || arg[0].text.n >= sizeof format)
        return jfail(r, at, "strftime_now: a short format was wanted");
    memcpy(format, arg[0].text.p, arg[0].text.n);
    format[arg[0].text.n] = 0;
    size_t n = strftime(told, sizeof told, format, r->now);
    char *own = jalloc(r, n + 1);
    return jv_text((struct jtext){.p = memcpy(own, told, n), .n = n});
}

static const struct {
    const char *name;
    function_fn run;
} functions[] = {
    {"range", call_range},           {"namespace", call_namespace}, {"dict", call_dict},
    {"raise_exception", call_raise}, {"strftime_now", call_now},
};

bool jfunction_exists(const struct jrun *r, const char *name)
{
    if (!strcmp(name, "strftime_now")) return r->now != NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!strcmp(functions[i].name, name)) return true;
    return false;
}

struct jv jfunction_call(struct jrun *r, const struct jnode *at, const char *name, const struct jargs *args)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!strcmp(functions[i].name, name)) return functions[i].run(r, at, args);
    return jfail(r, at, "the function %.60s is not known here", name);
}
