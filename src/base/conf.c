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

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf_yaml.h"
#include "base/fs.h"

#define CONFIG_BYTES ((size_t)1 << 20)
#define COMMAND_LINE "command line"

/* What was set for a row, and where. */
struct setting {
    const char *where;   /* "tiny.yaml:7", "command line"; NULL: never set */
    int source;          /* which file or override set it: two settings by one source are a mistake */
    struct scope *items; /* CONF_LIST: n scopes */
};

struct scope {
    const struct conf_row *rows;
    int n_rows;
    char *target;
    const char *label;        /* "" or "data.train[1]." */
    struct setting *settings; /* one per row */
};

struct conf {
    struct arena *arena;
    struct scope root;
    const char *name; /* the file that was read last, for "required key missing" */
    int n_sources;
};

/* What is being read now; passed down instead of being a field so that nothing outlives the call. */
struct source {
    struct arena *arena;
    const char *name;
    bool has_lines; /* a file; the command line has none */
    int number;
    struct err *e;
};

static const char *where_of(const struct source *s, int line)
{
    return s->has_lines ? arena_printf(s->arena, "%s:%d", s->name, line) : s->name;
}

/* "tiny.yaml:7: model.layers: " and then the text. */
static int refuse(const struct source *s, int line, const char *label, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
static int refuse(const struct source *s, int line, const char *label, const char *path, const char *fmt, ...)
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

/* ---- scalars ---- */

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
    return refuse(s, v->line, sc->label, row->path, "wanted %s, got %s%s", wanted, conf_node_show(v, got),
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

/* A row one of whose choices is called null means it by that word, and not the default. */
static bool chooses_null(const struct conf_row *row, const struct conf_node *v)
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
    int code = refuse(s, v->line, sc->label, row->path, "wanted %s; got %s%s%s%s", str_text(&wanted),
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
            return refuse(s, v->line, "", row->path, "an item is %s here, got %s", text, conf_node_show(v, got));
        }
        code = apply_row(s, sc, only, v);
    }
    const struct conf_row *missing = code ? NULL : missing_row(sc);
    if (missing) code = refuse(s, v->line, sc->label, missing->path, "is required (%s)", missing->doc);
    return code;
}

static int set_list(const struct source *s, const struct scope *sc, const struct conf_row *row,
                    const struct conf_node *v)
{
    bool one = v->kind != CONF_NODE_LIST; /* a single item stands for a list of itself */
    int n = one ? 1 : v->n;
    struct conf_list list = {.n = n, .items = arena_alloc(s->arena, (size_t)n * row->item_bytes)};
    struct scope *items = arena_alloc(s->arena, (size_t)n * sizeof *items);
    const struct conf_node *item = one ? v : v->first;
    for (int i = 0; i < n; i++, item = item->next) {
        scope_init(&items[i], row->item, (char *)list.items + (size_t)i * row->item_bytes,
                   arena_printf(s->arena, "%s%s[%d].", sc->label, row->path, i), s->arena);
        int code = set_item(s, &items[i], row, item);
        if (code) return code;
    }
    *(struct conf_list *)(void *)(sc->target + row->offset) = list;
    sc->settings[row - sc->rows].items = items;
    return OK;
}

typedef int set_fn(const struct source *, const struct scope *, const struct conf_row *, const struct conf_node *);

static set_fn *const setters[] = {
    [CONF_BOOL] = set_bool,     [CONF_INT] = set_int,     [CONF_REAL] = set_real, [CONF_STRING] = set_string,
    [CONF_CHOICE] = set_choice, [CONF_REALS] = set_reals, [CONF_LIST] = set_list,
};

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
    else CHECK(!setters[row->type](&s, sc, row, v), "%s: its default '%s': %s", row->path, row->otherwise, e.text);
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
        return refuse(s, v->line, sc->label, row->path, "given twice, first at %s; keep one of the two", p->where);
    int code = OK;
    if (!conf_node_is_null(v) || chooses_null(row, v)) {
        code = setters[row->type](s, sc, row, v);
    } else if (row->otherwise) {
        set_default(sc, row, s->arena); /* `key: null` asks for the default */
    } else {
        code = refuse(s, v->line, sc->label, row->path, "is required and has no default (%s)", row->doc);
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
    if (near) return refuse(s, line, sc->label, path, "unknown key; did you mean %s%s?", prefix, near);
    for (int i = 0; i < sc->n_rows; i++) { /* the right key in the wrong section */
        const char *dot = strrchr(sc->rows[i].path, '.');
        if (!strcmp(dot ? dot + 1 : sc->rows[i].path, key))
            return refuse(s, line, sc->label, path, "unknown key; did you mean %s?", sc->rows[i].path);
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
    int code = refuse(s, line, sc->label, path, "unknown key; known here: %s", str_text(&all));
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
    return refuse(s, v->line, sc->label, path, "is a section (it holds keys), got %s", conf_node_show(v, got));
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
