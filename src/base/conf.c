/* SPDX-License-Identifier: Apache-2.0 */
/* conf.c: one table turns YAML into a C struct, and every refusal into a sentence.
 *
 * Idea: a scope is a table of rows plus the struct that they fill. The whole configuration is one scope; each
 * item of a list is another, with the item's table. Walking the YAML tree, a key's full path either names a row
 * (its value is converted and stored), or begins one (a section: go on inside), or is refused with the nearest
 * known path. Later sources overwrite earlier ones row by row; a list is replaced whole. Each row remembers the
 * place its value came from, for errors that are found much later.
 *
 * Cost: keys times rows string comparisons, a few thousand. Rejected: a generated parser (a build step), and a
 * string-keyed store that is asked at run time (typing errors would surface in the middle of a run).
 */
#include "base/conf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf_scope.h"
#include "base/fs.h"

#define CONFIG_BYTES ((size_t)1 << 20)
#define COMMAND_LINE "command line"

struct conf {
    struct arena *arena;
    struct scope root;
    const char *name; /* the file that was read last, for "required key missing" */
    int n_sources;
};

static const char *where_of(const struct source *s, int line)
{
    return s->has_lines ? arena_printf(s->arena, "%s:%d", s->name, line) : s->name;
}

int conf_refuse(const struct source *s, int line, const char *label, const char *path, const char *fmt, ...)
{
    char text[700];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_set(s->e, ERR_REQUEST, "%s: %s%s: %s", where_of(s, line), label, path, text);
}

static void scope_init(struct scope *sc, const struct conf_row *rows, void *target, const char *label, struct arena *a)
{
    int n = 0;
    while (rows[n].path) n++;
    *sc = (struct scope){.rows = rows, .n_rows = n, .target = target, .label = label};
    sc->settings = arena_alloc(a, (size_t)n * sizeof *sc->settings);
}

static const struct conf_row *find_row(const struct scope *sc, const char *path)
{
    for (int i = 0; i < sc->n_rows; i++)
        if (!strcmp(sc->rows[i].path, path)) return &sc->rows[i];
    return NULL;
}

/* Does any row lie inside section `path`? */
static bool is_section(const struct scope *sc, const char *path)
{
    size_t n = strlen(path);
    for (int i = 0; i < sc->n_rows; i++)
        if (!strncmp(sc->rows[i].path, path, n) && sc->rows[i].path[n] == '.') return true;
    return false;
}

/* ---- lists and maps ---- */

static int apply_map(const struct source *s, struct scope *sc, const char *prefix, const struct conf_node *map);
static int apply_row(const struct source *s, struct scope *sc, const struct conf_row *row, const struct conf_node *v);
static void fill_defaults(struct scope *sc, struct arena *a);

/* The first required row of a scope that nothing has set, or NULL. */
static const struct conf_row *missing_row(const struct scope *sc)
{
    for (int i = 0; i < sc->n_rows; i++)
        if (!sc->rows[i].otherwise && !sc->settings[i].where) return &sc->rows[i];
    return NULL;
}

static int set_item(const struct source *s, struct scope *sc, const struct conf_row *row, const struct conf_node *v)
{
    fill_defaults(sc, s->arena);
    int code;
    if (v->kind == CONF_NODE_MAP) {
        code = apply_map(s, sc, "", v);
    } else {
        const struct conf_row *only = row->item_short ? find_row(sc, row->item_short) : NULL;
        if (!only || v->kind == CONF_NODE_LIST || conf_node_is_null(v)) {
            char got[64];
            const char *text = only ? "text or a map" : "a map";
            return conf_refuse(s, v->line, "", row->path, "an item is %s here, got %s", text, conf_node_show(v, got));
        }
        code = apply_row(s, sc, only, v);
    }
    const struct conf_row *missing = code ? NULL : missing_row(sc);
    if (missing) code = conf_refuse(s, v->line, sc->label, missing->path, "is required (%s)", missing->doc);
    return code;
}

/* Whether a map's first key is a row's name: then it is one item, and no map of pairs. */
static bool find_named(const struct conf_row *rows, const struct conf_node *first)
{
    bool any = false;
    for (; first && rows->path; rows++) any |= !strcmp(rows->path, first->key);
    return any;
}

/* A member of a map as an item of two rows. */
static int set_pair(const struct source *s, struct scope *sc, const struct conf_node *v)
{
    struct conf_node key = {.kind = CONF_NODE_SCALAR, .quoted = true, .text = v->key, .line = v->key_line};
    fill_defaults(sc, s->arena);
    int code = apply_row(s, sc, &sc->rows[0], &key);
    return code ? code : apply_row(s, sc, &sc->rows[1], v);
}

/* The kind called `name`, or NULL after refusing with the nearest name. */
static const struct conf_kind *find_kind(const struct source *s, const struct conf_row *row, const char *label,
                                         const char *name, int line)
{
    int n = 0;
    for (; row->kinds[n]; n++)
        if (!strcmp(row->kinds[n]->name, name)) return row->kinds[n];
    const char **names = arena_alloc(s->arena, (size_t)n * sizeof *names);
    struct str all = {0};
    for (int i = 0; i < n; i++) {
        names[i] = row->kinds[i]->name;
        str_printf(&all, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = str_nearest(name, names, n);
    if (near) conf_refuse(s, line, "", label, "there is no '%.100s'; did you mean %s?", name, near);
    else conf_refuse(s, line, "", label, "there is no '%.100s'; there are %s", name, str_text(&all));
    str_free(&all);
    return NULL;
}

/* An item of one of several kinds: its name, or a map of its name alone to its keys. */
static int set_of_kind(const struct source *s, struct scope *sc, const struct conf_row *row, const char *label,
                       struct conf_of_kind *item, const struct conf_node *v)
{
    char got[64];
    bool map = v->kind == CONF_NODE_MAP && v->n == 1, scalar = v->kind == CONF_NODE_SCALAR && !conf_node_is_null(v);
    if (!map && !scalar)
        return conf_refuse(s, v->line, "", label,
                           "an item is a name, or one name with its keys (name: {key: value}), got %s%s",
                           conf_node_show(v, got), v->kind == CONF_NODE_MAP ? "; are its keys indented?" : "");
    const struct conf_node *body = map ? v->first : NULL;
    const char *name = map ? body->key : v->text;
    item->kind = find_kind(s, row, label, name, map ? body->key_line : v->line);
    if (!item->kind) return ERR_REQUEST;
    item->value = arena_alloc(s->arena, item->kind->bytes);
    scope_init(sc, item->kind->rows, item->value, arena_printf(s->arena, "%s.%s.", label, name), s->arena);
    fill_defaults(sc, s->arena);
    if (body && conf_node_is_null(body)) body = NULL;
    if (body && body->kind != CONF_NODE_MAP)
        return conf_refuse(s, body->line, "", label, "%s has keys ({key: value}), got %s", name,
                           conf_node_show(body, got));
    int code = body ? apply_map(s, sc, "", body) : OK;
    const struct conf_row *missing = code ? NULL : missing_row(sc);
    if (missing) code = conf_refuse(s, v->line, sc->label, missing->path, "is required (%s)", missing->doc);
    return code;
}

static int set_kinds(const struct source *s, const struct scope *sc, const struct conf_row *row,
                     const struct conf_node *v)
{
    bool one = v->kind != CONF_NODE_LIST;
    int n = one ? 1 : v->n, code = OK;
    struct conf_of_kind *list = arena_alloc(s->arena, (size_t)n * sizeof *list);
    struct scope *items = arena_alloc(s->arena, (size_t)n * sizeof *items);
    const struct conf_node *item = one ? v : v->first;
    for (int i = 0; i < n && !code; i++, item = item->next)
        code =
            set_of_kind(s, &items[i], row, arena_printf(s->arena, "%s%s[%d]", sc->label, row->path, i), &list[i], item);
    if (code) return code;
    *(struct conf_list *)(void *)(sc->target + row->offset) = (struct conf_list){.items = list, .n = n};
    sc->settings[row - sc->rows].items = items;
    return OK;
}

static int set_list(const struct source *s, const struct scope *sc, const struct conf_row *row,
                    const struct conf_node *v)
{
    if (row->kinds) return set_kinds(s, sc, row, v);
    bool one = v->kind != CONF_NODE_LIST; /* a single item stands for a list of itself */
    bool pairs = row->item_pairs && v->kind == CONF_NODE_MAP && !find_named(row->item, v->first);
    int n = one && !pairs ? 1 : v->n;
    struct conf_list list = {.n = n, .items = arena_alloc(s->arena, (size_t)n * row->item_bytes)};
    struct scope *items = arena_alloc(s->arena, (size_t)n * sizeof *items);
    const struct conf_node *item = one && !pairs ? v : v->first;
    for (int i = 0; i < n; i++, item = item->next) {
        scope_init(&items[i], row->item, (char *)list.items + (size_t)i * row->item_bytes,
                   arena_printf(s->arena, "%s%s[%d].", sc->label, row->path, i), s->arena);
        int code = pairs ? set_pair(s, &items[i], item) : set_item(s, &items[i], row, item);
        if (code) return code;
    }
    *(struct conf_list *)(void *)(sc->target + row->offset) = list;
    sc->settings[row - sc->rows].items = items;
    return OK;
}

static int set_value(const struct source *s, const struct scope *sc, const struct conf_row *row,
                     const struct conf_node *v)
{
    return row->type == CONF_LIST ? set_list(s, sc, row, v) : conf_set_scalar(s, sc, row, v);
}

static void set_absent(const struct scope *sc, const struct conf_row *row)
{
    char *at = sc->target + row->offset;
    if (row->type == CONF_STRING) *(const char **)(void *)at = NULL;
    if (row->type == CONF_INT) *(int64_t *)(void *)at = 0;
    if (row->type == CONF_REAL) *(double *)(void *)at = 0;
}

/* Stores a row's default. A default that its own row refuses is our bug. */
static void set_default(struct scope *sc, const struct conf_row *row, struct arena *a)
{
    struct err e = {0};
    struct source s = {.arena = a, .name = "default", .e = &e};
    struct conf_node *v;
    CHECK(!conf_yaml_read(&v, row->otherwise, strlen(row->otherwise), "default", a, &e), "%s: %s", row->path, e.text);
    struct conf_node nothing = {.kind = CONF_NODE_SCALAR, .text = ""};
    if (!v) v = &nothing;
    if (conf_node_is_null(v)) set_absent(sc, row);
    else CHECK(!set_value(&s, sc, row, v), "%s: its default '%s': %s", row->path, row->otherwise, e.text);
}

static void fill_defaults(struct scope *sc, struct arena *a)
{
    for (int i = 0; i < sc->n_rows; i++)
        if (sc->rows[i].otherwise) set_default(sc, &sc->rows[i], a);
}

static int apply_row(const struct source *s, struct scope *sc, const struct conf_row *row, const struct conf_node *v)
{
    struct setting *p = &sc->settings[row - sc->rows];
    if (p->where && p->source == s->number)
        return conf_refuse(s, v->line, sc->label, row->path, "given twice, first at %s; keep one of the two", p->where);
    int code = OK;
    if (!conf_node_is_null(v) || conf_chooses_null(row, v)) {
        code = set_value(s, sc, row, v);
    } else if (row->otherwise) {
        set_default(sc, row, s->arena); /* `key: null` asks for the default */
    } else {
        code = conf_refuse(s, v->line, sc->label, row->path, "is required and has no default (%s)", row->doc);
    }
    p->where = where_of(s, v->line);
    p->source = s->number;
    return code;
}

/* An unknown key: the nearest known path, or what there is in this section. `path` is the whole of what was asked
 * for. */
static int refuse_key(const struct source *s, const struct scope *sc, const char *prefix, const char *key,
                      const char *path, int line)
{
    size_t n_prefix = strlen(prefix);
    const char **here = arena_alloc(s->arena, (size_t)sc->n_rows * sizeof *here);
    int n_here = 0;
    for (int i = 0; i < sc->n_rows; i++) {
        const char *p = sc->rows[i].path;
        if (strncmp(p, prefix, n_prefix) != 0) continue;
        size_t len = strcspn(p + n_prefix, ".");
        char *word = arena_alloc(s->arena, len + 1);
        memcpy(word, p + n_prefix, len);
        bool known = false;
        for (int k = 0; k < n_here; k++) known = known || !strcmp(here[k], word);
        if (!known) here[n_here++] = word;
    }
    const char *near = str_nearest(key, here, n_here);
    if (near) return conf_refuse(s, line, sc->label, path, "unknown key; did you mean %s%s?", prefix, near);
    for (int i = 0; i < sc->n_rows; i++) { /* the right key in the wrong section */
        const char *dot = strrchr(sc->rows[i].path, '.');
        if (!strcmp(dot ? dot + 1 : sc->rows[i].path, key))
            return conf_refuse(s, line, sc->label, path, "unknown key; did you mean %s?", sc->rows[i].path);
    }
    if (!n_here) { /* a section that does not exist: what there is in the one around it */
        char *outer = arena_strdup(s->arena, prefix), *name, *dot;
        outer[n_prefix - 1] = 0; /* without its last dot */
        dot = strrchr(outer, '.');
        name = dot ? dot + 1 : outer;
        return refuse_key(s, sc, dot ? arena_printf(s->arena, "%.*s", (int)(name - outer), outer) : "", name, path,
                          line);
    }
    struct str all = {0};
    for (int i = 0; i < n_here; i++) str_printf(&all, "%s%s", i ? ", " : "", here[i]);
    int code = conf_refuse(s, line, sc->label, path, "unknown key; known here: %s", str_text(&all));
    str_free(&all);
    return code;
}

/* One key with its full path: a row, a section, or a mistake. */
static int apply_key(const struct source *s, struct scope *sc, const char *prefix, const char *key, int line,
                     const struct conf_node *v)
{
    const char *path = arena_printf(s->arena, "%s%s", prefix, key);
    const struct conf_row *row = find_row(sc, path);
    if (row) return apply_row(s, sc, row, v);
    if (!is_section(sc, path)) return refuse_key(s, sc, prefix, key, path, line);
    if (conf_node_is_null(v)) return OK; /* a section with nothing in it */
    if (v->kind == CONF_NODE_MAP) return apply_map(s, sc, arena_printf(s->arena, "%s.", path), v);
    char got[64];
    return conf_refuse(s, v->line, sc->label, path, "is a section (it holds keys), got %s", conf_node_show(v, got));
}

static int apply_map(const struct source *s, struct scope *sc, const char *prefix, const struct conf_node *map)
{
    int code = OK;
    for (const struct conf_node *m = map->first; m && !code; m = m->next)
        code = apply_key(s, sc, prefix, m->key, m->key_line, m);
    return code;
}

/* ---- the interface ---- */

struct conf *conf_new(const struct conf_row *rows, void *target, struct arena *a)
{
    struct conf *c = arena_alloc(a, sizeof *c);
    c->arena = a;
    c->name = "configuration";
    scope_init(&c->root, rows, target, "", a);
    fill_defaults(&c->root, a);
    return c;
}

int conf_read_text(struct conf *c, const char *text, size_t n, const char *name, struct err *e)
{
    if (n > CONFIG_BYTES)
        return err_set(e, ERR_REQUEST, "%s: has %zu bytes; a configuration has at most %zu", name, n, CONFIG_BYTES);
    c->name = arena_strdup(c->arena, name);
    struct source s = {.arena = c->arena, .name = c->name, .has_lines = true, .number = ++c->n_sources, .e = e};
    struct conf_node *root;
    int code = conf_yaml_read(&root, text, n, c->name, c->arena, e);
    if (code || !root || conf_node_is_null(root)) return code;
    char got[64];
    if (root->kind != CONF_NODE_MAP)
        return err_set(e, ERR_REQUEST, "%s:%d: wanted keys with values (key: value), got %s", name, root->line,
                       conf_node_show(root, got));
    return apply_map(&s, &c->root, "", root);
}

int conf_read_file(struct conf *c, const char *path, struct err *e)
{
    char *text;
    size_t n;
    int code = fs_read_all(path, CONFIG_BYTES, &text, &n, e);
    if (code) return code;
    code = conf_read_text(c, text, n, path, e);
    xfree(text);
    return code;
}

/* What follows `key=` is YAML where YAML is needed (quotes, a list or map in brackets) and else taken as it is:
 * nobody should have to quote a path for us after having quoted it for the shell. */
static int override_value(const struct conf *c, const char *value, struct conf_node **v, struct err *e)
{
    if (*value && strchr("[{\"'", *value)) {
        struct err inner = {0};
        int code = conf_yaml_read(v, value, strlen(value), COMMAND_LINE, c->arena, &inner);
        const char *problem = strstr(inner.text, ": "); /* without the place: there is one line only */
        return code ? err_set(e, code, COMMAND_LINE ": %.200s%s", value, problem) : OK;
    }
    *v = arena_alloc(c->arena, sizeof **v);
    (*v)->text = arena_strdup(c->arena, value);
    return OK;
}

int conf_override(struct conf *c, const char *key_equals_value, struct err *e)
{
    const char *equals = strchr(key_equals_value, '=');
    if (!equals || equals == key_equals_value)
        return err_set(e, ERR_REQUEST, COMMAND_LINE ": '%s': wanted key=value, such as run.steps=100",
                       key_equals_value);
    for (const char *p = key_equals_value; *p;) {
        int len = str_utf8(p, NULL);
        if (!len) return err_set(e, ERR_REQUEST, COMMAND_LINE ": '%s': not text in UTF-8", key_equals_value);
        p += len;
    }
    char *path = arena_alloc(c->arena, (size_t)(equals - key_equals_value) + 1);
    memcpy(path, key_equals_value, (size_t)(equals - key_equals_value));
    struct conf_node *v;
    int code = override_value(c, equals + 1, &v, e);
    if (code) return code;

    struct source s = {.arena = c->arena, .name = COMMAND_LINE, .number = ++c->n_sources, .e = e};
    char *dot = strrchr(path, '.');
    const char *key = path, *prefix = "";
    if (dot) {
        key = arena_strdup(c->arena, dot + 1);
        dot[1] = 0;
        prefix = path;
    }
    return apply_key(&s, &c->root, prefix, key, 0, v);
}

int conf_finish(struct conf *c, struct err *e)
{
    const struct conf_row *row = missing_row(&c->root);
    if (!row) return OK;
    return err_set(e, ERR_REQUEST, "%s: %s: is required and has no default (%s)", c->name, row->path, row->doc);
}

/* "data.train[1].path" in the items of data.train; plain paths in the scope itself. */
static const char *where_in(const struct scope *sc, const char *path)
{
    for (int i = 0; i < sc->n_rows; i++) {
        const struct conf_row *row = &sc->rows[i];
        const struct setting *p = &sc->settings[i];
        size_t n = strlen(row->path);
        if (strncmp(row->path, path, n) != 0) continue;
        const char *own = p->where ? p->where : row->otherwise ? "default" : "nowhere";
        if (!path[n]) return own;
        if (path[n] != '[' || row->type != CONF_LIST) continue;
        char *end;
        long k = strtol(path + n + 1, &end, 10);
        int n_items = ((const struct conf_list *)(const void *)(sc->target + row->offset))->n;
        if (*end != ']' || k < 0 || k >= n_items || !p->items) return own;
        const char *inner = end[1] == '.' ? where_in(&p->items[k], end + 2) : "default";
        if (strcmp(inner, "default") != 0) return inner;
        for (int j = 0; j < p->items[k].n_rows; j++)
            if (p->items[k].settings[j].where) return p->items[k].settings[j].where;
        return own;
    }
    return "default";
}

const char *conf_where(const struct conf *c, const char *path) { return where_in(&c->root, path); }

int conf_error(const struct conf *c, struct err *e, const char *path, const char *fmt, ...)
{
    char text[800];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_set(e, ERR_REQUEST, "%s: %s: %s", conf_where(c, path), path, text);
}
