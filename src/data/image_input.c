/* SPDX-License-Identifier: Apache-2.0 */
/* image_input.c: which shards and folders an index is of, before anything of them is read, and the key that changes
 * when one of them does. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/image_index_impl.h"

#define LABELS_USUAL "cls,json[label],txt"

static bool is_tar(const char *path) { return str_ends(path, ".tar"); }

/* Of a folder, only its .tar files; what is named is one, whatever its name. */
static void keep_shards(struct source_list *l, const char *input)
{
    int64_t kept = 0;
    const char *first = NULL;
    for (int64_t i = 0; i < l->n && !first; i++)
        if (!l->files[i].named && !is_tar(l->files[i].path)) first = l->files[i].path;
    if (first) log_info("data: %s: what is no .tar shard in it is passed over: %s", input, first);
    for (int64_t i = 0; i < l->n; i++) {
        struct source_file f = l->files[i];
        if (f.named || is_tar(f.path)) {
            l->files[kept++] = f;
            continue;
        }
        if (f.object) xfree(f.object->url);
        xfree(f.object);
        xfree(f.path);
    }
    l->n = kept;
}

static int read_set(struct image_input *in, struct image_set *set, const struct energon_ref *ref,
                    const struct image_index_options *o, struct err *e)
{
    struct energon *g = &set->energon;
    int code = energon_read(g, ref, e);
    if (code) return code;
    if (!image_input_joined(in) && !energon_trains(g->type))
        return err_set(e, ERR_REQUEST,
                       "%s: holds samples of the type %s, and this model trains on pictures with classes (wanted "
                       "ImageClassificationSample)",
                       ref->folder, g->type);
    if (!image_input_joined(in) && (!g->image || (!g->label && !o->label)))
        return err_set(e, ERR_REQUEST, "%s: its field_map names no %s; wanted {image: jpg, label: cls}", ref->folder,
                       g->image ? "label" : "image");
    set->folder = ref->folder;
    set->nonmatch = ref->nonmatch;
    set->first = in->list->n;
    set->scan =
        (struct image_scan_options){.image = g->image,
                                    .label = o->label && (g->label || !image_input_joined(in)) ? o->label : g->label,
                                    .classes = o->classes,
                                    .no_image = !g->image};
    set->scan.no_label = !set->scan.label;
    for (int64_t i = 0; i < g->n && !code; i++) code = source_list_add(in->list, g->shards[i].path, e);
    return code;
}

static int read_energon(struct image_input *in, const struct energon_leaf *leaf, const struct image_index_options *o,
                        struct err *e)
{
    bool image = false, label = false;
    int code = OK;
    in->has_energon = true;
    in->subset = leaf->subset;
    in->n_sets = leaf->n_refs;
    in->set = xcalloc((size_t)leaf->n_refs, sizeof *in->set);
    for (int i = 0; i < in->n_sets && !code; i++) {
        code = read_set(in, &in->set[i], &leaf->ref[i], o, e);
        image |= !in->set[i].scan.no_image;
        label |= !in->set[i].scan.no_label;
    }
    if (code) return code;
    if (!image || !label)
        return err_set(e, ERR_REQUEST, "%s: no field_map of the folders that are joined names a%s", leaf->name,
                       image ? " label" : "n image");
    if (image_input_joined(in) && (in->subset.from > 0 || in->subset.to < 1))
        return err_set(e, ERR_REQUEST,
                       "%s: a subset in percent of what is joined: how much that is shows when all is read; wanted "
                       "samples, such as [0, 1000]",
                       leaf->name);
    return OK;
}

int image_input_list(struct image_input *in, const struct image_index_options *o, struct err *e)
{
    in->list->options = o->remote;
    if (o->energon) return read_energon(in, o->energon, o, e);
    if (!remote_is(o->path) && energon_is(o->path)) {
        struct energon_ref ref = {.folder = o->path, .part = o->part};
        return read_energon(in, &(struct energon_leaf){&ref, 1, ENERGON_ALL, 1, 0, o->path}, o, e);
    }
    in->n_sets = 1;
    in->set = xcalloc(1, sizeof *in->set);
    in->set->scan = (struct image_scan_options){.label = o->label ? o->label : LABELS_USUAL, .classes = o->classes};
    int code = source_list_add(in->list, o->path, e);
    if (code) return code;
    char *shown = remote_hidden(o->path);
    keep_shards(in->list, shown);
    if (!in->list->n)
        code = err_set(e, ERR_REQUEST, "%s: holds no tar shard; pictures are read from .tar files (WebDataset)", shown);
    xfree(shown);
    return code;
}

void image_input_fini(struct image_input *in)
{
    for (int i = 0; i < in->n_sets; i++) {
        if (in->set[i].energon.arena) energon_free(&in->set[i].energon);
        sample_keys_free(&in->set[i].keys);
        xfree(in->set[i].found);
    }
    xfree(in->set);
}

static void hash_text(struct hash64 *h, const char *text)
{
    hash64_add(h, text ? text : "", text ? strlen(text) + 1 : 1);
}

/* Of a folder of Energon's: what it gives, and what is left out. */
static void hash_set(struct hash64 *h, const struct image_set *set)
{
    int64_t about[] = {set->first, set->nonmatch};
    hash64_add(h, about, sizeof about);
    hash_text(h, set->scan.label);
    hash_text(h, set->scan.image);
    for (int64_t i = 0; i < set->energon.n; i++) {
        const struct energon_shard *s = &set->energon.shards[i];
        hash64_add(h, &s->n_excluded, sizeof s->n_excluded);
        for (int64_t k = 0; k < s->n_excluded; k++) hash_text(h, s->excluded[k]);
    }
}

uint64_t image_input_key(const struct image_input *in, const struct image_index_options *o)
{
    const struct source_list *l = in->list;
    struct hash64 h;
    uint64_t about[] = {IMAGE_INDEX_VERSION, (uint64_t)o->classes, o->skip_bad,
                        o->skip_bad ? (uint64_t)o->limits.max_pixels : 0, (uint64_t)in->n_sets};
    double range[] = {in->subset.from, in->subset.to, (double)in->subset.first, (double)in->subset.last};
    hash64_init(&h);
    hash64_add(&h, about, sizeof about);
    hash64_add(&h, range, sizeof range);
    for (int i = 0; i < in->n_sets; i++) hash_set(&h, &in->set[i]);
    for (int64_t i = 0; i < l->n; i++) {
        const struct source_file *f = &l->files[i];
        char *real = f->object ? NULL : realpath(f->path, NULL);
        hash_text(&h, real ? real : f->path);
        hash64_add(&h, &f->bytes, sizeof f->bytes);
        hash64_add(&h, &f->changed_ns, sizeof f->changed_ns);
        free(real);
    }
    return hash64_value(&h);
}
