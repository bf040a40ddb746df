/* SPDX-License-Identifier: Apache-2.0 */
/* rules.c: the table of filters read from YAML, opened, and applied in order. */
#include "curate/rules.h"

#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"

struct file {
    struct conf_list rules;
};

static const struct filter *const filters[] = {
#define FILTER(name) &filter_##name,
#include "curate/filters.def"
#undef FILTER
};
enum { N_FILTERS = sizeof filters / sizeof *filters };
static const struct conf_kind *const kinds[] = {
#define FILTER(name) &filter_##name.kind,
#include "curate/filters.def"
#undef FILTER
    NULL};

static const struct conf_row rows[] = {
    {.path = "rules",
     .type = CONF_LIST,
     .offset = offsetof(struct file, rules),
     .kinds = kinds,
     .doc = "filters, in the order in which documents go through them"},
    {.path = NULL},
};

static const struct filter *filter_of(const struct conf_kind *kind)
{
    for (int i = 0; i < N_FILTERS; i++)
        if (&filters[i]->kind == kind) return filters[i];
    bug(__FILE__, __LINE__, "filter", "no filter of the kind %s", kind->name);
}

void findings_removed(struct findings *f, const char *p, size_t n)
{
    f->n_removed++;
    size_t room = f->removed.n < FILTER_SHOWN ? FILTER_SHOWN - f->removed.n : 0;
    if (!room) return;
    if (f->removed.n) str_putc(&f->removed, '\n');
    str_add(&f->removed, p, n < room ? n : room);
}

static uint64_t key_of(const struct rules *r)
{
    struct str text = {0};
    struct hash64 h;
    rules_print(r, &text);
    hash64_init(&h);
    hash64_add(&h, str_text(&text), text.n);
    for (int i = 0; i < r->n; i++) hash64_add(&h, &r->use[i].key, sizeof r->use[i].key);
    str_free(&text);
    return hash64_value(&h);
}

static int open_all(struct rules *r, const struct file *f, const struct conf *c, struct err *e)
{
    r->use = arena_alloc(r->arena, (size_t)f->rules.n * sizeof *r->use);
    int code = OK;
    for (int i = 0; i < f->rules.n && !code; i++) {
        const struct conf_of_kind *item = (const struct conf_of_kind *)f->rules.items + i;
        char path[40];
        snprintf(path, sizeof path, "rules[%d].", i);
        struct use *u = &r->use[r->n++];
        *u = (struct use){.filter = filter_of(item->kind), .options = item->value};
        u->where = arena_printf(r->arena, "%s: %s", conf_where(c, path), item->kind->name);
        if (u->filter->open) code = u->filter->open(u, e);
    }
    return code;
}

int rules_parse(struct rules **out, const char *text, size_t n, const char *name, struct err *e)
{
    *out = NULL;
    struct arena *a = arena_new();
    struct rules *r = arena_alloc(a, sizeof *r);
    struct file f = {{0}};
    r->arena = a;
    struct conf *c = conf_new(rows, &f, a);
    int code = conf_read_text(c, text, n, name, e);
    if (!code) code = conf_finish(c, e);
    if (!code && f.rules.n == 0)
        code =
            err_set(e, ERR_REQUEST, "%s: rules: has no filter; `tutti data clean --help` tells which there are", name);
    if (!code) code = open_all(r, &f, c, e);
    if (code) {
        rules_free(r);
        return code;
    }
    r->key = key_of(r);
    *out = r;
    return OK;
}

int rules_read(struct rules **r, const char *path, struct err *e)
{
    enum { MOST = 1 << 20 };
    char *text;
    size_t n;
    *r = NULL;
    int code = fs_read_all(path, MOST, &text, &n, e);
    if (code) return code;
    code = rules_parse(r, text, n, path, e);
    xfree(text);
    return code;
}

void rules_free(struct rules *r)
{
    if (!r) return;
    for (int i = 0; i < r->n; i++)
        if (r->use[i].filter->close) r->use[i].filter->close(&r->use[i]);
    arena_free(r->arena);
}

void rules_print(const struct rules *r, struct str *out)
{
    struct conf_of_kind *items = xcalloc((size_t)r->n, sizeof *items);
    for (int i = 0; i < r->n; i++)
        items[i] =
            (struct conf_of_kind){.kind = &r->use[i].filter->kind, .value = (void *)(uintptr_t)r->use[i].options};
    struct file f = {.rules = {.items = items, .n = r->n}};
    conf_print(rows, &f, out);
    xfree(items);
}

void rules_tell(struct str *out)
{
    str_puts(out, "\nFilters and their options (docs/curation.md says more of each):\n");
    for (int i = 0; i < N_FILTERS; i++) {
        const struct filter *f = filters[i];
        str_printf(out, "\n%s: %s%s%s%s\n", f->kind.name, f->kind.doc, *f->source ? " (" : "", f->source,
                   *f->source ? ")" : "");
        conf_print_help(f->kind.rows, out);
    }
}

int rules_judge_one(const struct rules *r, int i, struct document *d, struct removals *t)
{
    const struct use *u = &r->use[i];
    struct findings *f = removals_begin(t, i, d);
    int rule = u->filter->judge(u, d, f);
    CHECK(rule < u->filter->n_rules, "rule %d of %s", rule, u->filter->kind.name);
    removals_end(t, i, d, rule);
    return rule;
}

int rules_judge(const struct rules *r, struct document *d, struct removals *t)
{
    for (int i = 0; i < r->n; i++)
        if (rules_judge_one(r, i, d, t) >= 0) return i;
    return FILTER_KEEPS;
}
