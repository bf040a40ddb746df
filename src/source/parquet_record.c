/* SPDX-License-Identifier: Apache-2.0 */
/* parquet_record.c: every leaf has the value that comes next; a group is written by asking its first leaf how deep that
 * value lies: above the group's own level the group is null, above its list's the list is empty. All leaves of a group
 * have to say the same, or the file contradicts itself. */
#include "source/parquet_record.h"

#include <stdbool.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "source/parquet_pages.h"
#include "source/record_format.h"

enum { LEAVES_MOST = 256 };

struct leaf { /* of texts */
    struct parquet_meta meta;
    struct parquet_pages pages;
    struct parquet_value v; /* what comes next */
    bool at_end;
};
struct parquet_record {
    struct blob *blob;
    struct parquet_schema schema;
    struct leaf *leaf; /* by number of the schema's leaves; those that are passed over have no pages */
    bool *taken;       /* by node: it and all below are read */
    int64_t first;     /* the first leaf that is */
    int64_t chunk, row;
    struct json_out out;
};

static const struct parquet_node *node_of(const struct parquet_record *r, int64_t i) { return &r->schema.node[i]; }

/* ---- what is read ---- */

/* What lies below node i: leaves with and without texts, lists, maps. */
struct contents {
    int64_t texts, others, other; /* other: the first of them; -1 */
    bool list, map;
};
static struct contents contents_of(const struct parquet_record *r, int64_t i)
{
    struct contents c = {.other = -1};
    for (int64_t k = i; k < node_of(r, i)->after; k++) {
        const struct parquet_node *n = node_of(r, k);
        c.list |= n->repeated;
        c.map |= n->is_map;
        if (n->leaf < 0) continue;
        if (n->is_text) c.texts++;
        else if (!c.others++) c.other = k;
    }
    return c;
}

static int take_column(struct parquet_record *r, int64_t i, struct err *e)
{
    const struct parquet_node *n = node_of(r, i);
    struct contents c = contents_of(r, i);
    if (c.texts && c.list && (c.map || c.others))
        return err_set(e, ERR_REQUEST,
                       "%s: column \"%s\" has a list with %s%s, which records are not read with; write the table again "
                       "without it, or as text",
                       r->blob->path, n->name,
                       c.map ? "a map" : "a column that is no text: ", c.map ? "" : node_of(r, c.other)->name);
    if (!c.texts || c.others || c.map) return OK;
    for (int64_t k = i; k < n->after; k++) {
        r->taken[k] = true;
        int64_t leaf = node_of(r, k)->leaf;
        if (leaf < 0) continue;
        int code = parquet_meta_read_leaf(&r->leaf[leaf].meta, r->blob, leaf, e);
        if (code) return code;
        parquet_pages_init(&r->leaf[leaf].pages, r->blob, &r->leaf[leaf].meta);
        if (r->first < 0) r->first = leaf;
    }
    return OK;
}

int parquet_record_open(struct parquet_record **out, struct blob *b, struct err *e)
{
    struct parquet_record *r = xcalloc(1, sizeof *r);
    r->blob = b;
    r->first = -1;
    int code = parquet_schema_read(&r->schema, b, e);
    if (!code && r->schema.n_leaves > LEAVES_MOST)
        code = err_set(e, ERR_REQUEST, "%s: has %lld columns; records are read of at most %d", b->path,
                       (long long)r->schema.n_leaves, LEAVES_MOST);
    if (!code) {
        r->leaf = xcalloc(to_size(r->schema.n_leaves) + 1, sizeof *r->leaf);
        r->taken = xcalloc(to_size(r->schema.n), sizeof *r->taken);
        for (int64_t i = 1; i < r->schema.n && !code; i = node_of(r, i)->after) code = take_column(r, i, e);
    }
    if (code || r->first < 0) {
        parquet_record_close(r);
        r = NULL;
    }
    *out = r;
    return code;
}

void parquet_record_close(struct parquet_record *r)
{
    if (!r) return;
    for (int64_t i = 0; r->leaf && i < r->schema.n_leaves; i++) {
        parquet_pages_fini(&r->leaf[i].pages);
        parquet_meta_fini(&r->leaf[i].meta);
    }
    parquet_schema_fini(&r->schema);
    xfree(r->leaf);
    xfree(r->taken);
    xfree(r);
}

const struct parquet_meta *parquet_record_meta(const struct parquet_record *r) { return &r->leaf[r->first].meta; }

/* ---- rows ---- */

static int broken(const struct parquet_record *r, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "%s: damaged Parquet file: row group %lld, row %lld: its columns have other lists",
                   r->blob->path, (long long)r->chunk, (long long)r->row);
}

static int next_value(struct leaf *l, struct err *e)
{
    int got = parquet_pages_next(&l->pages, &l->v, e);
    l->at_end = !got;
    return got < 0 ? got : OK;
}

int parquet_record_go(struct parquet_record *r, int64_t chunk, struct err *e)
{
    int code = OK;
    r->chunk = chunk;
    r->row = 0;
    for (int64_t i = 0; i < r->schema.n_leaves && !code; i++) {
        struct leaf *l = &r->leaf[i];
        if (!l->pages.blob) continue;
        code = parquet_pages_go(&l->pages, chunk, e);
        if (!code) code = next_value(l, e);
    }
    return code;
}

static struct leaf *first_leaf(struct parquet_record *r, int64_t i)
{
    while (node_of(r, i)->leaf < 0) i++;
    return &r->leaf[node_of(r, i)->leaf];
}

/* All leaves below node i: whether the value that comes next of each begins at this repetition. */
static bool all_at(struct parquet_record *r, int64_t i, int rep)
{
    for (int64_t k = i; k < node_of(r, i)->after; k++) {
        if (node_of(r, k)->leaf < 0) continue;
        const struct leaf *l = &r->leaf[node_of(r, k)->leaf];
        if (l->at_end || l->v.rep != rep) return false;
    }
    return true;
}

/* Goes over the one value that each leaf below has for what is not there; all of them lie as deep. */
static int pass(struct parquet_record *r, int64_t i, struct err *e)
{
    int def = first_leaf(r, i)->v.def, code = OK;
    for (int64_t k = i; k < node_of(r, i)->after && !code; k++) {
        if (node_of(r, k)->leaf < 0) continue;
        struct leaf *l = &r->leaf[node_of(r, k)->leaf];
        code = l->at_end || l->v.def != def ? broken(r, e) : next_value(l, e);
    }
    return code;
}

static void put_quoted(struct str *out, const char *p, size_t n)
{
    str_putc(out, '"');
    for (size_t i = 0, from = 0; i <= n; i++) {
        bool plain = i < n && (unsigned char)p[i] >= 0x20 && p[i] != '"' && p[i] != '\\';
        if (plain) continue;
        str_add(out, p + from, i - from);
        from = i + 1;
        if (i < n) str_printf(out, "\\u%04x", (unsigned char)p[i]);
    }
    str_putc(out, '"');
}

/* What stands before a value. key: the member's; NULL in a list. */
static void put_key(struct json_out *o, const char *key)
{
    if (o->need_comma) str_putc(o->s, ',');
    o->need_comma = true;
    if (!key) return;
    put_quoted(o->s, key, strlen(key));
    str_putc(o->s, ':');
}

static int put_null(struct parquet_record *r, int64_t i, const char *key, struct err *e)
{
    if (!key) put_key(&r->out, NULL);
    if (!key) str_puts(r->out.s, "null");
    return pass(r, i, e);
}

static int put_leaf(struct parquet_record *r, int64_t i, const char *key, struct err *e)
{
    struct leaf *l = &r->leaf[node_of(r, i)->leaf];
    if (!l->v.there) return put_null(r, i, key, e);
    put_key(&r->out, key);
    put_quoted(r->out.s, l->v.p, l->v.n);
    return next_value(l, e);
}

static int put_node(struct parquet_record *r, int64_t i, const char *key, struct err *e);

static int put_members(struct parquet_record *r, int64_t i, const char *key, struct err *e)
{
    int code = OK;
    put_key(&r->out, key);
    str_putc(r->out.s, '{');
    r->out.need_comma = false;
    for (int64_t k = i + 1; k < node_of(r, i)->after && !code; k = node_of(r, k)->after)
        if (r->taken[k]) code = put_node(r, k, node_of(r, k)->name, e);
    str_putc(r->out.s, '}');
    r->out.need_comma = true;
    return code;
}

/* An item of the list whose repeated node is i: that node itself, or the one thing in it. */
static int put_item(struct parquet_record *r, int64_t i, bool wrapped, struct err *e)
{
    const struct parquet_node *n = node_of(r, i);
    if (n->leaf >= 0) return put_leaf(r, i, NULL, e);
    bool only = node_of(r, i + 1)->after == n->after, itself = !strcmp(n->name, "array");
    return wrapped && only && !itself ? put_node(r, i + 1, NULL, e) : put_members(r, i, NULL, e);
}

/* i: the repeated node. */
static int put_list(struct parquet_record *r, int64_t i, const char *key, bool wrapped, struct err *e)
{
    const struct parquet_node *n = node_of(r, i);
    struct leaf *l = first_leaf(r, i);
    int code = OK;
    put_key(&r->out, key);
    str_putc(r->out.s, '[');
    r->out.need_comma = false;
    if (l->v.def < n->def) code = pass(r, i, e);
    else
        for (bool more = true; more && !code;) {
            code = put_item(r, i, wrapped, e);
            more = !code && !l->at_end && l->v.rep == n->rep;
            if (more && !all_at(r, i, n->rep)) code = broken(r, e);
            if (!code && r->out.s->n > SOURCE_RECORD_MAX)
                code = err_set(e, ERR_REQUEST, "%s: row group %lld, row %lld: a record of more than %d MiB",
                               r->blob->path, (long long)r->chunk, (long long)r->row, SOURCE_RECORD_MAX >> 20);
        }
    str_putc(r->out.s, ']');
    r->out.need_comma = true;
    return code;
}

static int put_node(struct parquet_record *r, int64_t i, const char *key, struct err *e)
{
    const struct parquet_node *n = node_of(r, i);
    struct leaf *l = first_leaf(r, i);
    if (l->at_end) return broken(r, e);
    if (n->repeated) return put_list(r, i, key, false, e);
    if (l->v.def < n->def) return put_null(r, i, key, e);
    if (n->leaf >= 0) return put_leaf(r, i, key, e);
    bool list = n->is_list && node_of(r, i + 1)->repeated && node_of(r, i + 1)->after == n->after;
    return list ? put_list(r, i + 1, key, true, e) : put_members(r, i, key, e);
}

int parquet_record_next(struct parquet_record *r, struct str *out, struct err *e)
{
    bool any = false, all = true;
    for (int64_t i = 0; i < r->schema.n_leaves; i++) {
        const struct leaf *l = &r->leaf[i];
        if (!l->pages.blob) continue;
        any |= !l->at_end;
        all &= !l->at_end && l->v.rep == 0;
    }
    if (!any) return 0;
    if (!all) return broken(r, e);
    str_clear(out);
    r->out = (struct json_out){.s = out};
    int code = put_members(r, 0, NULL, e);
    r->row++;
    return code ? code : 1;
}
