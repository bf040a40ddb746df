/* SPDX-License-Identifier: Apache-2.0 */
/* energon.c: JSON is read as the YAML that it also is: one kind of tree for both. */
#include "data/energon.h"

#include <stdlib.h>
#include <string.h>

#include "base/conf_yaml.h"
#include "base/fs.h"
#include "base/str.h"
#include "source/brace.h"

#define META ".nv-meta"
enum { META_BYTES = 64 << 20 };

static char *meta_path(const char *folder, const char *name)
{
    char *meta = fs_join(folder, META), *path = fs_join(meta, name);
    xfree(meta);
    return path;
}

bool energon_is(const char *folder)
{
    char *path = meta_path(folder, "dataset.yaml");
    bool is = fs_exists(path);
    xfree(path);
    return is;
}

static const struct conf_node *member(const struct conf_node *v, const char *key)
{
    if (!v || v->kind != CONF_NODE_MAP) return NULL;
    for (const struct conf_node *m = v->first; m; m = m->next)
        if (!strcmp(m->key, key)) return conf_node_is_null(m) ? NULL : m;
    return NULL;
}

static const char *text_of(const struct conf_node *v) { return v && v->kind == CONF_NODE_SCALAR ? v->text : NULL; }

/* The first of the names that is there. */
static int read_tree(struct energon *g, const char *folder, const char *name, const char *or_name, const char **path,
                     struct conf_node **root, struct err *e)
{
    char *p = meta_path(folder, name), *text;
    size_t n;
    if (!fs_exists(p) && or_name) {
        char *other = meta_path(folder, or_name);
        if (fs_exists(other)) {
            xfree(p);
            p = other;
        } else {
            xfree(other);
        }
    }
    *path = arena_strdup(g->arena, p);
    *root = NULL;
    xfree(p);
    int code = fs_read_all(*path, META_BYTES, &text, &n, e);
    if (code) return err_prefix(e, "%s: a dataset of Megatron-Energon", folder);
    code = conf_yaml_read(root, text, n, *path, g->arena, e);
    xfree(text);
    if (!code && (!*root || (*root)->kind != CONF_NODE_MAP))
        code = err_set(e, ERR_CORRUPT, "%s: wanted a map of names, as Megatron-Energon writes it", *path);
    return code;
}

static int read_type(struct energon *g, const char *folder, struct err *e)
{
    struct conf_node *root;
    const char *path;
    int code = read_tree(g, folder, "dataset.yaml", NULL, &path, &root, e);
    if (code) return code;
    const struct conf_node *type = member(root, "sample_type"), *map = member(root, "field_map"),
                           *loader = member(root, "sample_loader");
    g->type = text_of(member(type ? type : root, "__class__"));
    if (!g->type) return err_set(e, ERR_CORRUPT, "%s: says no __class__ of its samples (sample_type)", path);
    if (loader)
        return err_set(e, ERR_REQUEST,
                       "%s:%d: sample_loader: its samples are made by Python code, which nothing here runs; write a "
                       "field_map, such as {image: jpg, label: cls}",
                       path, loader->line);
    g->image = text_of(member(map, "image"));
    g->label = text_of(member(map, "label"));
    if (!map) return err_set(e, ERR_CORRUPT, "%s: has no field_map, such as {image: jpg, label: cls}", path);
    return OK;
}

/* Every name of a list of names in braces. */
struct names {
    char **p;
    int64_t n;
};

static int each_name(const struct conf_node *list, const char *path, const char *what,
                     int (*take)(void *ctx, const char *name, struct err *e), void *ctx, struct err *e)
{
    int code = OK;
    if (!list) return OK;
    if (list->kind != CONF_NODE_LIST)
        return err_set(e, ERR_CORRUPT, "%s:%d: %s: wanted a list of names", path, list->line, what);
    for (const struct conf_node *i = list->first; i && !code; i = i->next) {
        struct names all = {0};
        const char *pattern = text_of(i);
        if (!pattern) return err_set(e, ERR_CORRUPT, "%s:%d: %s: wanted a name", path, i->line, what);
        code = brace_expand(pattern, &all.p, &all.n, e);
        if (code) return err_prefix(e, "%s:%d: %s", path, i->line, what);
        for (int64_t k = 0; k < all.n && !code; k++) code = take(ctx, all.p[k], e);
        if (code) err_prefix(e, "%s:%d: %s", path, i->line, what);
        brace_free(all.p, all.n);
    }
    return code;
}

struct taking {
    struct energon *g;
    const char *folder;
};

/* Shards lie below the folder: a name that leaves it is refused. */
static int take_shard(void *ctx, const char *name, struct err *e)
{
    struct taking *t = ctx;
    struct energon *g = t->g;
    if (name[0] == '/' || str_starts(name, "../") || strstr(name, "/../"))
        return err_set(e, ERR_REQUEST, "%s: lies outside of the dataset's folder", name);
    GROW(g->shards, g->n, g->room, 1);
    g->shards[g->n++] = (struct energon_shard){.path = fs_join(t->folder, name), .samples = -1};
    return OK;
}

static struct energon_shard *shard_of(struct energon *g, const char *folder, const char *name, size_t n)
{
    size_t before = strlen(folder) + 1;
    for (int64_t i = 0; i < g->n; i++) {
        const char *own = g->shards[i].path + before;
        if (strlen(own) == n && !memcmp(own, name, n)) return &g->shards[i];
    }
    return NULL;
}

/* "shard.tar", or "shard.tar/17"; what is of other parts says nothing here. */
static int take_excluded(void *ctx, const char *name, struct err *e)
{
    struct taking *t = ctx;
    const char *slash = strrchr(name, '/');
    struct energon_shard *s = shard_of(t->g, t->folder, name, strlen(name));
    if (s) {
        xfree(s->path);
        xfree(s->excluded);
        memmove(s, s + 1, (size_t)(t->g->shards + t->g->n - 1 - s) * sizeof *s);
        t->g->n--;
        return OK;
    }
    s = slash ? shard_of(t->g, t->folder, name, (size_t)(slash - name)) : NULL;
    if (!s) return OK;
    char *end;
    long long number = strtoll(slash + 1, &end, 10);
    if (*end || end == slash + 1 || number < 0)
        return err_set(e, ERR_CORRUPT, "%s: wanted SHARD, or SHARD/NUMBER of a sample", name);
    GROW(s->excluded, s->n_excluded, s->room, 1);
    s->excluded[s->n_excluded++] = number;
    return OK;
}

static int read_split(struct energon *g, const char *folder, const char *part, struct err *e)
{
    struct conf_node *root;
    const char *path;
    struct taking t = {g, folder};
    int code = read_tree(g, folder, "split.yaml", "split.json", &path, &root, e);
    if (code) return code;
    const struct conf_node *parts = member(root, "split_parts"), *shards = member(parts, part);
    if (!parts) return err_set(e, ERR_CORRUPT, "%s: has no split_parts", path);
    if (!shards) return err_set(e, ERR_REQUEST, "%s:%d: split_parts: has no part \"%s\"", path, parts->line, part);
    code = each_name(shards, path, part, take_shard, &t, e);
    if (!code) code = each_name(member(root, "exclude"), path, "exclude", take_excluded, &t, e);
    if (!code && !g->n) code = err_set(e, ERR_REQUEST, "%s:%d: the part \"%s\" has no shard", path, shards->line, part);
    return code;
}

static int read_counts(struct energon *g, const char *folder, struct err *e)
{
    struct conf_node *root;
    const char *path;
    int code = read_tree(g, folder, ".info.json", ".info.yaml", &path, &root, e);
    if (code) return code;
    const struct conf_node *counts = member(root, "shard_counts");
    if (!counts || counts->kind != CONF_NODE_MAP)
        return err_set(e, ERR_CORRUPT, "%s: has no shard_counts; prepare the folder again (energon prepare)", path);
    for (const struct conf_node *m = counts->first; m; m = m->next) {
        struct energon_shard *s = shard_of(g, folder, m->key, strlen(m->key));
        const char *text = text_of(m);
        char *end = NULL;
        long long n = text ? strtoll(text, &end, 10) : -1;
        if (n < 0 || *end || end == text)
            return err_set(e, ERR_CORRUPT, "%s:%d: shard_counts: wanted a number of samples", path, m->line);
        if (s) s->samples = n;
    }
    for (int64_t i = 0; i < g->n; i++)
        if (g->shards[i].samples < 0)
            return err_set(e, ERR_CORRUPT,
                           "%s: shard_counts: says nothing of %s, which split.yaml names; prepare the folder again "
                           "(energon prepare)",
                           path, g->shards[i].path);
    return OK;
}

int energon_read(struct energon *g, const char *folder, const char *part, struct err *e)
{
    *g = (struct energon){.arena = arena_new()};
    int code = read_type(g, folder, e);
    if (!code) code = read_split(g, folder, part, e);
    return code ? code : read_counts(g, folder, e);
}

void energon_free(struct energon *g)
{
    for (int64_t i = 0; i < g->n; i++) {
        xfree(g->shards[i].path);
        xfree(g->shards[i].excluded);
    }
    xfree(g->shards);
    arena_free(g->arena);
    *g = (struct energon){0};
}
