/* SPDX-License-Identifier: Apache-2.0 */
/* parquet_meta.c: parquet.thrift's FileMetaData, as far as one column needs it.
 *
 * The schema is a tree written depth first: a node says how many children follow it. Levels after Melnik et al.,
 * "Dremel" (2010): every optional or repeated node on the way to a leaf adds one to the definition level, every
 * repeated one to the repetition level. */
#include "source/parquet_meta.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "source/thrift.h"

enum { FOOTER_MAX = 512 << 20, NODES_MAX = 1 << 20, DEPTH_MAX = 64, TYPES = 8, BYTE_ARRAY = 6 };
static const char *const type_names[TYPES] = {"BOOLEAN", "INT32",  "INT64",      "INT96",
                                              "FLOAT",   "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"};

struct node {
    int64_t type, repetition, children;
    bool leaf, is_list, is_map;
    const char *name;
    size_t name_n;
};

struct footer {
    struct thrift t;
    struct parquet_meta *m;
    const char *path, *column; /* the file's; as it is asked for */
    struct node *nodes;
    int64_t n_nodes, nodes_room;
    int64_t n_leaves, leaf;        /* the column among them; -1: not there */
    int64_t wanted;                /* the column's number, whatever its name; -1: it goes by that */
    struct parquet_schema *schema; /* filled, where it is wanted; columns are not */
    int64_t leaf_type;
    int n_named;      /* leaves of the name that is wanted */
    struct str names; /* columns of bytes, for the error */
};

static int broken(const struct footer *f, const char *what, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "%s: damaged Parquet file: its footer, from byte %lld on, %s", f->path,
                   (long long)f->m->footer_at, what);
}

static void read_node(struct footer *f, struct node *n)
{
    struct thrift *t = &f->t;
    struct thrift_field i = {0};
    *n = (struct node){.leaf = false};
    while (thrift_next(t, &i)) {
        if (i.id == 1) {
            n->type = thrift_int(t, &i);
            n->leaf = true;
        } else if (i.id == 3) {
            n->repetition = thrift_int(t, &i);
        } else if (i.id == 4) {
            n->name = thrift_string(t, &i, &n->name_n);
        } else if (i.id == 5) {
            n->children = thrift_int(t, &i);
        } else if (i.id == 6) {
            int64_t kind = thrift_int(t, &i);
            n->is_list |= kind == 3;
            n->is_map |= kind == 1 || kind == 2;
        } else if (i.id == 10 && thrift_struct(t, &i)) { /* a union: its one field is the type */
            struct thrift_field u = {0};
            while (thrift_next(t, &u)) {
                n->is_list |= u.id == 3;
                n->is_map |= u.id == 2;
                thrift_skip(t, &u);
            }
        } else {
            thrift_skip(t, &i);
        }
    }
}

struct walk {
    int64_t at; /* the next node */
    int def, rep;
};

/* The node at w->at and what is below it. path: the names above it in full; brief: without what lists put between. */
static bool walk_schema(struct footer *f, struct walk *w, struct str path, struct str brief, int in_list, int depth)
{
    if (w->at >= f->n_nodes || depth > DEPTH_MAX) return false;
    const struct node *n = &f->nodes[w->at++];
    int def = w->def + (n->repetition != 0), rep = w->rep + (n->repetition == 2);
    struct str full = {0}, less = {0};
    str_printf(&full, "%s%s%.*s", str_text(&path), path.n ? "." : "", (int)n->name_n, n->name ? n->name : "");
    str_puts(&less, str_text(&brief));
    if (!in_list) str_printf(&less, "%s%.*s", brief.n ? "." : "", (int)n->name_n, n->name ? n->name : "");
    bool good = n->name_n < 4096 && n->children >= 0;
    if (good && n->leaf) {
        bool named = f->wanted >= 0 ? f->n_leaves == f->wanted
                                    : !strcmp(str_text(&full), f->column) || !strcmp(str_text(&less), f->column);
        f->n_named += named;
        if (named && f->leaf < 0) {
            f->leaf = f->n_leaves;
            f->leaf_type = n->type;
            f->m->max_def = def;
            f->m->max_rep = rep;
            f->m->column = xstrdup(str_text(&full));
        }
        if (n->type == BYTE_ARRAY && f->names.n < 300)
            str_printf(&f->names, "%s%.100s", f->names.n ? ", " : "", str_text(&less));
        f->n_leaves++;
    }
    /* Below a list its repeated node and that one's element have names that say nothing. */
    int below = n->is_list ? 2 : in_list > 0 ? in_list - 1 : 0;
    for (int64_t i = 0; good && !n->leaf && i < n->children; i++) {
        struct walk child = {w->at, def, rep};
        good = walk_schema(f, &child, full, less, below, depth + 1);
        w->at = child.at;
    }
    str_free(&full);
    str_free(&less);
    return good;
}

/* Node i and what is below it, of a schema that read_schema has seen; returns what comes behind. -1: it is no tree. */
static int64_t copy_nodes(struct footer *f, int64_t i, int def, int rep, int depth)
{
    if (i >= f->n_nodes || depth > DEPTH_MAX) return -1;
    const struct node *n = &f->nodes[i];
    struct parquet_node *to = &f->schema->node[i];
    if (i) def += n->repetition != 0;
    if (i) rep += n->repetition == 2;
    if (n->name_n >= 4096 || n->children < 0 || (!n->leaf && n->children == 0) || (n->leaf && !i)) return -1;
    *to = (struct parquet_node){.leaf = n->leaf ? f->schema->n_leaves++ : -1,
                                .def = def,
                                .rep = rep,
                                .repeated = i && n->repetition == 2,
                                .is_list = n->is_list,
                                .is_map = n->is_map,
                                .is_text = n->leaf && n->type == BYTE_ARRAY};
    to->name = xmalloc(n->name_n + 1);
    if (n->name_n) memcpy(to->name, n->name, n->name_n);
    to->name[n->name_n] = 0;
    int64_t at = i + 1;
    for (int64_t k = 0; !n->leaf && k < n->children && at >= 0; k++) at = copy_nodes(f, at, def, rep, depth + 1);
    return f->schema->node[i].after = at;
}

static int copy_schema(struct footer *f, struct err *e)
{
    f->schema->node = xcalloc(to_size(f->n_nodes) + 1, sizeof *f->schema->node);
    f->schema->n = f->n_nodes;
    if (f->n_nodes < 1 || copy_nodes(f, 0, 0, 0, 0) != f->n_nodes) return broken(f, "has a schema that is no tree", e);
    return OK;
}

static int find_column(struct footer *f, struct err *e)
{
    struct walk w = {.at = 1};
    struct str none = {0};
    bool good = f->n_nodes > 0;
    f->leaf = -1;
    for (int64_t i = 0; good && i < f->nodes[0].children; i++) {
        w.def = w.rep = 0;
        good = walk_schema(f, &w, none, none, 0, 1);
    }
    if (!good || w.at != f->n_nodes) return broken(f, "has a schema that is no tree", e);
    if (f->leaf < 0)
        return err_set(e, ERR_REQUEST,
                       "%s: this Parquet table has no column \"%s\" of text, but %s; say which is the text: column: "
                       "NAME beside its path in a config, or --column NAME",
                       f->path, f->column, f->names.n ? str_text(&f->names) : "none of text at all");
    if (f->n_named > 1 && f->wanted < 0)
        return err_set(e, ERR_REQUEST, "%s: has %d columns \"%s\"; which is the text? Write the table with one of them",
                       f->path, f->n_named, f->column);
    if (f->leaf_type != BYTE_ARRAY)
        return err_set(e, ERR_REQUEST,
                       "%s: column \"%s\" is of %s, no text; its columns of text: %s; say which is the text: column: "
                       "NAME beside its path in a config, or --column NAME",
                       f->path, f->m->column,
                       f->leaf_type >= 0 && f->leaf_type < TYPES ? type_names[f->leaf_type] : "?",
                       f->names.n ? str_text(&f->names) : "none");
    if (f->m->max_rep > 1 && f->wanted < 0)
        return err_set(e, ERR_REQUEST,
                       "%s: column \"%s\" is a list of lists; write its rows as texts, or as lists of texts", f->path,
                       f->m->column);
    return OK;
}

static void read_column_meta(struct footer *f, struct parquet_chunk *c, int64_t *type)
{
    struct thrift *t = &f->t;
    struct thrift_field i = {0};
    int64_t data = -1, dictionary = -1, packed = -1, codec = -1;
    while (thrift_next(t, &i)) {
        if (i.id == 1) *type = thrift_int(t, &i);
        else if (i.id == 4) codec = thrift_int(t, &i);
        else if (i.id == 5) c->n_values = thrift_int(t, &i);
        else if (i.id == 7) packed = thrift_int(t, &i);
        else if (i.id == 9) data = thrift_int(t, &i);
        else if (i.id == 11) dictionary = thrift_int(t, &i);
        else thrift_skip(t, &i);
    }
    c->codec = codec >= PARQUET_PLAIN && codec <= PARQUET_LZ4_RAW ? (enum parquet_codec)codec : PARQUET_LZO;
    c->begin = dictionary > 0 && dictionary < data ? dictionary : data;
    if (c->begin < 4 || packed < 0 || packed > f->m->footer_at || c->begin > f->m->footer_at - packed)
        c->wrong = "its pages lie outside of the file";
    else c->end = c->begin + packed;
    if (c->n_values < 0) c->wrong = "it has fewer than no values";
}

static void read_chunk(struct footer *f, struct parquet_chunk *c)
{
    struct thrift *t = &f->t;
    struct thrift_field i = {0};
    bool found = false, encrypted = false, elsewhere = false;
    int64_t type = -1;
    while (thrift_next(t, &i)) {
        if (i.id == 3 && thrift_struct(t, &i)) {
            read_column_meta(f, c, &type);
            found = true;
        } else {
            encrypted |= i.id == 8;
            elsewhere |= i.id == 1;
            thrift_skip(t, &i);
        }
    }
    if (encrypted) c->wrong = "it is encrypted";
    else if (elsewhere) c->wrong = "it lies in another file";
    else if (!found) c->wrong = "nothing says where it lies";
    else if (type != BYTE_ARRAY) c->wrong = "it is of another type than the schema says";
}

static void read_row_group(struct footer *f, struct parquet_chunk *c)
{
    struct thrift *t = &f->t;
    struct thrift_field i = {0}, item;
    int64_t columns = -1;
    while (thrift_next(t, &i)) {
        if (i.id == 1) {
            columns = thrift_list(t, &i, &item);
            for (int64_t k = 0; k < columns && !t->bad; k++) {
                if (k == f->leaf && thrift_struct(t, &item)) read_chunk(f, c);
                else thrift_skip(t, &item);
            }
        } else if (i.id == 3) {
            c->n_rows = thrift_int(t, &i);
        } else {
            thrift_skip(t, &i);
        }
    }
    if (c->n_rows == 0 && c->n_values == 0) c->wrong = NULL; /* nothing lies anywhere */
    if (columns != f->n_leaves) c->wrong = "its columns are not those of the schema";
    if (c->n_rows < 0 || (c->n_rows > c->n_values && !c->wrong)) c->wrong = "it has other rows than values";
    if (c->n_rows < 0) c->n_rows = 0;
}

static int read_schema(struct footer *f, const struct thrift_field *i, struct err *e)
{
    struct thrift_field item;
    int64_t n = thrift_list(&f->t, i, &item);
    if (n > NODES_MAX) return broken(f, "has a schema of more than a million columns", e);
    for (int64_t k = 0; k < n && !f->t.bad; k++) {
        if (!thrift_struct(&f->t, &item)) break;
        GROW(f->nodes, f->n_nodes, f->nodes_room, 1);
        read_node(f, &f->nodes[f->n_nodes++]);
    }
    if (f->t.bad || f->m->column || (f->schema && f->schema->node))
        return broken(f, "cannot be made out: its schema", e);
    return f->schema ? copy_schema(f, e) : find_column(f, e);
}

static int read_row_groups(struct footer *f, const struct thrift_field *i, struct err *e)
{
    struct parquet_meta *m = f->m;
    struct thrift_field item;
    if (!m->column) return broken(f, "has its row groups before its schema", e);
    int64_t n = thrift_list(&f->t, i, &item), room = 0;
    for (int64_t k = 0; k < n && !f->t.bad; k++) {
        if (!thrift_struct(&f->t, &item)) break;
        GROW(m->chunks, m->n_chunks, room, 1);
        struct parquet_chunk *c = &m->chunks[m->n_chunks++];
        *c = (struct parquet_chunk){.row = m->n_rows};
        read_row_group(f, c);
        if (c->n_rows > INT64_MAX / 4 - m->n_rows) return broken(f, "counts more rows than there are numbers", e);
        m->n_rows += c->n_rows;
    }
    return OK;
}

static int read_footer(struct footer *f, struct err *e)
{
    struct thrift *t = &f->t;
    struct thrift_field i = {0};
    int64_t rows = -1;
    int code = OK;
    while (!code && thrift_next(t, &i)) {
        if (i.id == 2) code = read_schema(f, &i, e);
        else if (i.id == 3) rows = thrift_int(t, &i);
        else if (i.id == 4 && !f->schema) code = read_row_groups(f, &i, e);
        else thrift_skip(t, &i);
    }
    if (code) return code;
    if (t->bad) return broken(f, "cannot be made out", e);
    if (f->schema) return f->schema->node ? OK : broken(f, "has no schema", e);
    if (!f->m->column) return broken(f, "has no schema", e);
    if (rows != f->m->n_rows) return broken(f, "counts other rows than its row groups have", e);
    return OK;
}

/* what: `column`, or `wanted`, or `schema`. */
static int read_file(struct footer what, struct parquet_meta *m, struct blob *b, struct err *e)
{
    *m = (struct parquet_meta){0};
    unsigned char tail[8];
    if (b->bytes < 12)
        return err_set(e, ERR_CORRUPT, "%s: %lld bytes are too few for a Parquet file; it was cut short", b->path,
                       (long long)b->bytes);
    int code = blob_read(b, b->bytes - 8, sizeof tail, tail, e);
    if (code) return code;
    if (!memcmp(tail + 4, "PARE", 4))
        return err_set(e, ERR_REQUEST, "%s: is an encrypted Parquet file; write it again without encryption", b->path);
    int64_t n =
        (int64_t)((uint32_t)tail[0] | (uint32_t)tail[1] << 8 | (uint32_t)tail[2] << 16 | (uint32_t)tail[3] << 24);
    if (memcmp(tail + 4, "PAR1", 4))
        return err_set(e, ERR_CORRUPT,
                       "%s: its end, \"PAR1\" at byte %lld, is missing, so it was cut short or overwritten", b->path,
                       (long long)b->bytes - 4);
    if (n > b->bytes - 12 || n > FOOTER_MAX)
        return err_set(e, ERR_CORRUPT, "%s: damaged Parquet file: a footer of %lld bytes, of %lld bytes in all",
                       b->path, (long long)n, (long long)b->bytes);
    m->footer_at = b->bytes - 8 - n;
    unsigned char *p = xmalloc((size_t)n + 1);
    struct footer f = what;
    f.t = (struct thrift){.p = p, .n = (size_t)n};
    f.m = m;
    f.path = b->path;
    code = blob_read(b, m->footer_at, (size_t)n, p, e);
    if (!code) code = read_footer(&f, e);
    xfree(p);
    xfree(f.nodes);
    str_free(&f.names);
    if (code) parquet_meta_fini(m);
    return code;
}

int parquet_meta_read(struct parquet_meta *m, struct blob *b, const char *column, struct err *e)
{
    return read_file((struct footer){.column = column, .wanted = -1}, m, b, e);
}

int parquet_meta_read_leaf(struct parquet_meta *m, struct blob *b, int64_t leaf, struct err *e)
{
    return read_file((struct footer){.column = "", .wanted = leaf}, m, b, e);
}

int parquet_schema_read(struct parquet_schema *s, struct blob *b, struct err *e)
{
    struct parquet_meta none;
    *s = (struct parquet_schema){0};
    int code = read_file((struct footer){.column = "", .wanted = -1, .schema = s}, &none, b, e);
    parquet_meta_fini(&none);
    if (code) parquet_schema_fini(s);
    return code;
}

void parquet_schema_fini(struct parquet_schema *s)
{
    for (int64_t i = 0; s->node && i < s->n; i++) xfree(s->node[i].name);
    xfree(s->node);
    *s = (struct parquet_schema){0};
}

void parquet_meta_fini(struct parquet_meta *m)
{
    xfree(m->chunks);
    xfree(m->column);
    *m = (struct parquet_meta){0};
}
