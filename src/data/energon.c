/* SPDX-License-Identifier: Apache-2.0 */
#include "data/energon.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/str.h"
#include "data/energon_yaml.h"
#include "source/brace.h"

#define META ".nv-meta"

static char *meta_path(const char *folder, const char *name)
{
    char *meta = fs_join(folder, META), *path = fs_join(meta, name);
    xfree(meta);
    return path;
}

bool energon_is(const char *folder)
{
    char *path = meta_path(folder, "dataset.yaml");
    bool is = !fs_absent(path);
    xfree(path);
    return is;
}

/* ---- what a sample is ---- */

/* The types that Megatron-Energon has, with their fields. */
enum trains { NOTHING, CLASSES, TEXTS }; /* a model here that sees: of classes (vit), of texts (llava) */
static const struct {
    const char *name, *fields; /* between spaces */
    const char *holds;
    enum trains trains;
} types[] = {
    {"ImageClassification", " image label label_name ", "pictures with their classes", CLASSES},
    {"Captioning", " image caption ", "pictures with texts about them", TEXTS},
    {"VQA", " image context answers answer_weights ", "pictures with questions and answers", TEXTS},
    {"Image", " image ", "pictures without a class", NOTHING},
    {"MultiChoiceVQA", " image context choices correct_choice_idx ",
     "pictures with questions and answers to choose from", NOTHING},
    {"VQAOCR", " image context text answers answer_weights words_boxes words_text ",
     "pictures of texts with questions and answers", NOTHING},
    {"OCR",
     " image text block_boxes block_classes block_text lines_boxes lines_text words_boxes words_text chars_boxes "
     "chars_text ",
     "pictures of texts", NOTHING},
    {"Interleaved", " sequence ", "pictures and texts in turn", NOTHING},
    {"SimilarityInterleaved", " images texts audio video similarity_matrix matched_text_indices ",
     "pictures and texts in turn", NOTHING},
    {"VidQA", " video context answers answer_weights ", "videos with questions and answers", NOTHING},
    {"Text", " text ", "texts without a picture", NOTHING},
    {"Crude", "", "what Python code of its user makes samples of (a cooker)", NOTHING},
};
enum { TYPES = sizeof types / sizeof *types };

/* "VQASample", or "VQAWebdataset" of older versions; TYPES: another one. */
static int type_of(const char *name)
{
    static const char *const ends[] = {"Sample", "Webdataset"};
    int t = 0;
    for (; t < TYPES; t++) {
        size_t n = strlen(types[t].name);
        if (strncmp(name, types[t].name, n) != 0) continue;
        if (!strcmp(name + n, ends[0]) || !strcmp(name + n, ends[1])) break;
    }
    return t;
}

bool energon_trains(const char *type)
{
    int t = type_of(type);
    return t < TYPES && types[t].trains == CLASSES;
}

bool energon_tells(const char *type)
{
    int t = type_of(type);
    return t < TYPES && types[t].trains == TEXTS;
}

/* Of a type that is known, a field that it does not have is a mistake there, too. */
static int check_fields(const struct energon *g, const struct conf_node *map, const char *path, struct err *e)
{
    int t = type_of(g->type);
    for (const struct conf_node *m = map->first; t < TYPES && m; m = m->next) {
        char word[80];
        snprintf(word, sizeof word, " %.70s ", m->key);
        if (!strstr(types[t].fields, word))
            return err_set(e, ERR_CORRUPT, "%s:%d: field_map: %.60s has no field \"%.60s\"; it has%s", path,
                           m->key_line, g->type, m->key, types[t].fields);
        if (!energon_text(m))
            return err_set(e, ERR_CORRUPT, "%s:%d: field_map: %s: wanted an extension, such as jpg", path, m->line,
                           m->key);
    }
    return OK;
}

static int read_type(struct energon *g, const struct energon_ref *ref, struct conf_node **root, struct err *e)
{
    char *joined = meta_path(ref->folder, ref->dataset ? ref->dataset : "dataset.yaml");
    const char *path = arena_strdup(g->arena, joined);
    xfree(joined);
    int code = energon_tree(path, g->arena, root, e);
    if (code == ERR_IO) return err_prefix(e, "%s: a dataset of Megatron-Energon", ref->folder);
    if (code) return code;
    const struct conf_node *type = energon_member(*root, "sample_type"), *map = energon_member(*root, "field_map"),
                           *loader = energon_member(*root, "sample_loader");
    g->type = energon_text(energon_member(type ? type : *root, "__class__"));
    if (!g->type) return err_set(e, ERR_CORRUPT, "%s: says no __class__ of its samples (sample_type)", path);
    if (loader)
        return err_set(e, ERR_REQUEST,
                       "%s:%d: sample_loader: its samples are made by Python code, which nothing here runs; write a "
                       "field_map, such as {image: jpg, label: cls}",
                       path, loader->line);
    int t = type_of(g->type);
    if (!map && t < TYPES && types[t].trains == NOTHING)
        return err_set(e, ERR_REQUEST, "%s: is of the type %s, %s; no model here trains on those yet", path, g->type,
                       types[t].holds);
    if (!map || map->kind != CONF_NODE_MAP)
        return err_set(e, ERR_CORRUPT, "%s: has no field_map, such as %s", path,
                       t == TYPES || types[t].trains != TEXTS ? "{image: jpg, label: cls}"
                       : strstr(types[t].fields, "caption")   ? "{image: jpg, caption: txt}"
                                                              : "{image: jpg, context: \"json[question]\", "
                                                                "answers: \"json[answers]\"}");
    g->image = energon_text(energon_member(map, "image"));
    g->label = energon_text(energon_member(map, "label"));
    g->caption = energon_text(energon_member(map, "caption"));
    g->context = energon_text(energon_member(map, "context"));
    g->answers = energon_text(energon_member(map, "answers"));
    g->weights = energon_text(energon_member(map, "answer_weights"));
    return check_fields(g, map, path, e);
}

/* ---- its shards ---- */

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
        const char *pattern = energon_text(i);
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
    if (name[0] == '/' || !strcmp(name, "..") || str_starts(name, "../") || strstr(name, "/../") ||
        str_ends(name, "/.."))
        return err_set(e, ERR_REQUEST, "%s: lies outside of the dataset's folder", name);
    GROW(g->shards, g->n, g->room, 1);
    g->shards[g->n++] =
        (struct energon_shard){.path = fs_join(t->folder, name), .name = arena_strdup(g->arena, name), .samples = -1};
    return OK;
}

/* The first of that name from s on: a part may name one several times. NULL: there is none. */
static struct energon_shard *shard_of(struct energon *g, struct energon_shard *s, const char *name, size_t n)
{
    for (; s && s < g->shards + g->n; s++)
        if (strlen(s->name) == n && !memcmp(s->name, name, n)) return s;
    return NULL;
}

static void shard_free(struct energon_shard *s)
{
    for (int64_t i = 0; i < s->n_excluded; i++) xfree(s->excluded[i]);
    xfree(s->excluded);
    xfree(s->path);
}

/* "shard.tar", or "shard.tar/KEY", whose key may have slashes, too; what is of other parts says nothing here. */
static int take_excluded(void *ctx, const char *name, struct err *e)
{
    struct energon *g = ((struct taking *)ctx)->g;
    struct energon_shard *s = shard_of(g, g->shards, name, strlen(name));
    bool whole = s != NULL;
    (void)e;
    for (; s; s = shard_of(g, s, name, strlen(name))) {
        shard_free(s);
        memmove(s, s + 1, (size_t)(g->shards + g->n - 1 - s) * sizeof *s);
        g->n--;
    }
    for (const char *slash = strchr(name, '/'); slash && !whole; slash = strchr(slash + 1, '/'))
        for (s = shard_of(g, g->shards, name, (size_t)(slash - name)); s;
             s = shard_of(g, s + 1, name, (size_t)(slash - name))) {
            GROW(s->excluded, s->n_excluded, s->room, 1);
            s->excluded[s->n_excluded++] = xstrdup(slash + 1);
            whole = true; /* and no longer name is one */
        }
    return OK;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

bool energon_excludes(const struct energon_shard *s, const char *key)
{
    return s->n_excluded && bsearch(&key, s->excluded, (size_t)s->n_excluded, sizeof *s->excluded, by_text);
}

/* The first of the names that is there. */
static const char *either(struct energon *g, const char *folder, const char *name, const char *other)
{
    char *a = meta_path(folder, name), *b = meta_path(folder, other);
    const char *path = arena_strdup(g->arena, fs_absent(a) && !fs_absent(b) ? b : a);
    xfree(a);
    xfree(b);
    return path;
}

/* What dataset.yaml says of itself goes before what a reference says. */
static int read_split(struct energon *g, const struct energon_ref *ref, const struct conf_node *dataset, struct err *e)
{
    struct conf_node *root;
    const char *own = energon_text(energon_member(dataset, "split_config")),
               *own_part = energon_text(energon_member(dataset, "split_part")), *part = own_part ? own_part : ref->part;
    const char *name = own ? own : ref->split;
    const char *path = either(g, ref->folder, name ? name : "split.yaml", name ? name : "split.json");
    struct taking t = {g, ref->folder};
    int code = energon_tree(path, g->arena, &root, e);
    if (code == ERR_IO) return err_prefix(e, "%s: a dataset of Megatron-Energon", ref->folder);
    if (code) return code;
    const struct conf_node *parts = energon_member(root, "split_parts"), *shards = energon_member(parts, part);
    if (!parts) return err_set(e, ERR_CORRUPT, "%s: has no split_parts", path);
    if (!shards) return err_set(e, ERR_REQUEST, "%s:%d: split_parts: has no part \"%s\"", path, parts->line, part);
    code = each_name(shards, path, part, take_shard, &t, e);
    if (!code) code = each_name(energon_member(root, "exclude"), path, "exclude", take_excluded, &t, e);
    if (!code && !g->n) code = err_set(e, ERR_REQUEST, "%s:%d: the part \"%s\" has no shard", path, shards->line, part);
    for (int64_t i = 0; i < g->n; i++)
        if (g->shards[i].n_excluded)
            qsort(g->shards[i].excluded, (size_t)g->shards[i].n_excluded, sizeof *g->shards[i].excluded, by_text);
    return code;
}

static int read_counts(struct energon *g, const char *folder, struct err *e)
{
    struct conf_node *root;
    const char *path = either(g, folder, ".info.json", ".info.yaml");
    int code = energon_tree(path, g->arena, &root, e);
    if (code == ERR_IO) return err_prefix(e, "%s: a dataset of Megatron-Energon", folder);
    if (code) return code;
    const struct conf_node *counts = energon_member(root, "shard_counts");
    if (!counts || counts->kind != CONF_NODE_MAP)
        return err_set(e, ERR_CORRUPT, "%s: has no shard_counts; prepare the folder again (energon prepare)", path);
    for (const struct conf_node *m = counts->first; m; m = m->next) {
        const char *text = energon_text(m);
        char *end = NULL;
        long long n = text ? strtoll(text, &end, 10) : -1;
        if (n < 0 || *end || end == text)
            return err_set(e, ERR_CORRUPT, "%s:%d: shard_counts: wanted a number of samples", path, m->line);
        for (struct energon_shard *s = shard_of(g, g->shards, m->key, strlen(m->key)); s;
             s = shard_of(g, s + 1, m->key, strlen(m->key)))
            s->samples = n;
    }
    for (int64_t i = 0; i < g->n; i++)
        if (g->shards[i].samples < 0)
            return err_set(e, ERR_CORRUPT,
                           "%s: shard_counts: says nothing of %s, which split.yaml names; prepare the folder again "
                           "(energon prepare)",
                           path, g->shards[i].path);
    return OK;
}

int energon_read(struct energon *g, const struct energon_ref *ref, struct err *e)
{
    struct conf_node *dataset;
    *g = (struct energon){.arena = arena_new()};
    int code = read_type(g, ref, &dataset, e);
    if (!code) code = read_split(g, ref, dataset, e);
    return code ? code : read_counts(g, ref->folder, e);
}

void energon_free(struct energon *g)
{
    for (int64_t i = 0; i < g->n; i++) shard_free(&g->shards[i]);
    xfree(g->shards);
    arena_free(g->arena);
    *g = (struct energon){0};
}

/* As theirs: in doubles, cut to whole samples. */
int energon_subset_of(const struct energon_subset *s, int64_t n, const char *name, int64_t *lo, int64_t *hi,
                      struct err *e)
{
    int64_t last = s->last < 0 ? n : s->last, all = last - s->first;
    if (s->first > last || last > n)
        return err_set(e, ERR_REQUEST, "%s: a subset of samples %lld to %lld of %lld", name, (long long)s->first,
                       (long long)last, (long long)n);
    *lo = s->first + (int64_t)((double)all * s->from);
    *hi = s->first + (int64_t)((double)all * s->to);
    if (*lo < *hi) return OK;
    return err_set(e, ERR_REQUEST, "%s: a subset without a sample: [%lld, %lld) of %lld", name, (long long)*lo,
                   (long long)*hi, (long long)n);
}
