/* SPDX-License-Identifier: Apache-2.0 */
/* save.c: writing a checkpoint so that nothing can be lost.
 *
 * Each rank streams its boxes into its own file and notes their checksums in a part list beside it (save_rank.c); one
 * rank then merges the lists, proves that the boxes tile every tensor, and publishes with one rename. Everything that
 * the rename makes visible was synced before it, so after a power cut a published name still means a complete
 * checkpoint.
 * The part lists go through the file system rather than through messages, so that this room needs no
 * communicator and ranks may be threads, processes or machines.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/ckpt.h"
#include "checkpoint/manifest.h"
#include "checkpoint/published.h"

#define PIECE_BYTES ((size_t)8 << 20)

static char *being_saved(const char *root, int64_t step, int rank, const char *suffix)
{
    char *dir = published_temporary(root, step), *path = published_boxes(dir, rank, suffix);
    xfree(dir);
    return path;
}

char *ckpt_boxes_path(const char *root, int64_t step, int rank) { return being_saved(root, step, rank, "safetensors"); }

char *ckpt_list_path(const char *root, int64_t step, int rank) { return being_saved(root, step, rank, "json"); }

int ckpt_save_begin(const char *root, int64_t step, struct err *e)
{
    char *dir = published_temporary(root, step);
    int rc = fs_remove_tree(dir, e);
    if (rc == OK) rc = fs_mkdirs(dir, e);
    xfree(dir);
    return rc;
}

/* -- merging the ranks' lists ------------------------------------------------------------------------------- */

/* One tensor as one rank lists it. */
struct piece {
    const struct manifest_tensor *t;
    int rank;
    int file;      /* position of the rank's first file */
    int64_t place; /* over all ranks' lists */
    int64_t first; /* place of the tensor's first mention: the merged list keeps that order */
};

static int by_name(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    int c = strcmp(x->t->group, y->t->group);
    if (!c) c = strcmp(x->t->name, y->t->name);
    return c ? c : (x->place > y->place) - (x->place < y->place);
}

static int by_first(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

static bool same_tensor(const struct manifest_tensor *a, const struct manifest_tensor *b)
{
    return strcmp(a->group, b->group) == 0 && strcmp(a->name, b->name) == 0;
}

static int same_shape(const struct piece *a, const struct piece *b, struct err *e)
{
    if (a->t->dtype == b->t->dtype && shape_equal(&a->t->shape, &b->t->shape)) return OK;
    char x[128], y[128];
    return err_set(e, ERR_CORRUPT, "%s/%s: rank %d has %s %s, rank %d has %s %s", a->t->group, a->t->name, a->rank,
                   dtype_name(a->t->dtype), shape_print(x, &a->t->shape), b->rank, dtype_name(b->t->dtype),
                   shape_print(y, &b->t->shape));
}

/* pieces [first, last) are one tensor: its boxes, rank by rank, become one entry of m. */
static int merge_tensor(struct manifest *m, const struct piece *pieces, int64_t first, int64_t last, struct err *e)
{
    struct manifest_tensor *t = &m->tensors[m->n_tensors++];
    *t = *pieces[first].t;
    t->n_boxes = 0;
    for (int64_t i = first; i < last; i++) {
        int rc = same_shape(&pieces[first], &pieces[i], e);
        if (rc < 0) return rc;
        t->n_boxes += pieces[i].t->n_boxes;
    }
    t->boxes = arena_alloc(m->arena, (size_t)t->n_boxes * sizeof *t->boxes);
    struct manifest_box *b = t->boxes;
    for (int64_t i = first; i < last; i++)
        for (int k = 0; k < pieces[i].t->n_boxes; k++) {
            *b = pieces[i].t->boxes[k];
            b++->file += pieces[i].file;
        }
    return OK;
}

static int merge(struct manifest *m, const struct manifest *parts, int n_parts, struct err *e)
{
    int64_t n = 0, at = 0;
    int file = 0;
    for (int r = 0; r < n_parts; r++) n += parts[r].n_tensors;
    struct piece *pieces = xcalloc(to_size(n) + 1, sizeof *pieces);
    for (int r = 0; r < n_parts; file += parts[r++].n_files)
        for (int i = 0; i < parts[r].n_tensors; i++, at++)
            pieces[at] = (struct piece){.t = &parts[r].tensors[i], .rank = r, .file = file, .place = at, .first = at};
    qsort(pieces, to_size(n), sizeof *pieces, by_name);
    for (int64_t i = 1; i < n; i++)
        if (same_tensor(pieces[i].t, pieces[i - 1].t)) pieces[i].first = pieces[i - 1].first;
    qsort(pieces, to_size(n), sizeof *pieces, by_first);

    int rc = OK;
    m->tensors = arena_alloc(m->arena, to_size(n) * sizeof *m->tensors + 1);
    for (int64_t i = 0, last; i < n && rc == OK; i = last) {
        for (last = i; last < n && pieces[last].first == pieces[i].first; last++) continue;
        rc = merge_tensor(m, pieces, i, last, e);
    }
    xfree(pieces);
    return rc;
}

/* -- publishing --------------------------------------------------------------------------------------------- */

/* Copies a file in pieces, hashing on the way. */
static int copy_file(struct fs_writer *w, const char *from, struct hash64 *h, struct err *e)
{
    struct fs_file f;
    int rc = fs_file_open(&f, from, e);
    if (rc < 0) return rc;
    unsigned char *piece = xmalloc(PIECE_BYTES);
    for (int64_t at = 0; at < f.bytes && rc == OK;) {
        size_t n = f.bytes - at < (int64_t)PIECE_BYTES ? to_size(f.bytes - at) : PIECE_BYTES;
        rc = fs_file_read(&f, at, n, piece, e);
        if (rc == OK) {
            hash64_add(h, piece, n);
            rc = fs_writer_write(w, piece, n, e);
        }
        at += (int64_t)n;
    }
    xfree(piece);
    fs_file_close(&f);
    return rc;
}

static int attach(const char *dir, const struct ckpt_attachment *a, struct manifest_file *f, struct err *e)
{
    char *path = fs_join(dir, a->name);
    struct fs_writer *w;
    struct hash64 h;
    hash64_init(&h);
    int rc = fs_writer_open(&w, path, e);
    if (rc == OK) {
        if (a->private) rc = fs_writer_private(w, e);
        if (rc == OK && (a->p || !a->copy_from)) {
            hash64_add(&h, a->p, a->bytes);
            rc = fs_writer_write(w, a->p, a->bytes, e);
        } else if (rc == OK) {
            rc = copy_file(w, a->copy_from, &h, e);
        }
        *f = (struct manifest_file){.name = a->name, .bytes = fs_writer_offset(w), .hash = hash64_value(&h)};
        int closed = fs_writer_close(w, true, rc == OK ? e : NULL);
        if (rc == OK) rc = closed;
    }
    xfree(path);
    return rc;
}

/* Reads the ranks' part lists into m and writes the attachments. */
static int gather(struct manifest *m, const char *dir, struct manifest *parts, int n_ranks,
                  const struct ckpt_info *info, struct err *e)
{
    size_t files = (size_t)info->n_attachments;
    for (int r = 0; r < n_ranks; r++) {
        char *list = published_boxes(dir, r, "json");
        int rc = manifest_read(&parts[r], list, true, e);
        xfree(list);
        if (rc < 0) return err_prefix(e, "rank %d has not written its part", r);
        if (parts[r].step != info->step || parts[r].n_files < 1 || parts[r].chunk != m->chunk)
            return err_set(e, ERR_CORRUPT, "rank %d wrote step %" PRId64 ", not %" PRId64, r, parts[r].step,
                           info->step);
        files += (size_t)parts[r].n_files;
    }
    m->files = arena_alloc(m->arena, files * sizeof *m->files + 1);
    for (int r = 0; r < n_ranks; r++)
        for (int k = 0; k < parts[r].n_files; k++) m->files[m->n_files++] = parts[r].files[k];
    int rc = merge(m, parts, n_ranks, e);
    for (int i = 0; i < info->n_attachments && rc == OK; i++)
        rc = attach(dir, &info->attachments[i], &m->files[m->n_files++], e);
    return rc == OK ? manifest_finish(m, dir, false, e) : rc;
}

static int seal(const struct manifest *m, const char *dir, int n_ranks, struct err *e)
{
    struct str text = {0};
    int rc = OK;
    for (int r = 0; r < n_ranks && rc == OK; r++) {
        char *list = published_boxes(dir, r, "json");
        rc = fs_remove_tree(list, e);
        xfree(list);
    }
    manifest_print(m, &text);
    char *path = fs_join(dir, MANIFEST_NAME);
    if (rc == OK) rc = fs_write_atomic(path, text.p, text.n, e); /* syncs the directory, the data files' names too */
    xfree(path);
    str_free(&text);
    return rc;
}

/* Files that have another name too are an older checkpoint's. */
static void tell(const struct manifest *m, const char *dir, struct ckpt_told *told)
{
    *told = (struct ckpt_told){0};
    told->has_state = manifest_state(m, &told->state);
    for (int i = 0; i < m->n_files; i++) {
        struct stat st;
        char *path = fs_join(dir, m->files[i].name);
        told->bytes += m->files[i].bytes;
        if (!stat(path, &st) && st.st_nlink > 1) told->linked += m->files[i].bytes;
        xfree(path);
    }
}

static int build(const char *root, const char *dir, int n_ranks, const struct ckpt_info *info, struct err *e)
{
    struct manifest m, *parts = xcalloc((size_t)n_ranks, sizeof *parts);
    struct json *extra = NULL;
    manifest_init(&m);
    m.tutti = TUTTI_VERSION;
    m.chunk = MANIFEST_CHUNK;
    m.step = info->step;
    m.tokens = info->tokens;
    m.seed = info->seed;
    m.run = info->run;
    int rc = info->extra ? json_parse(&extra, info->extra, strlen(info->extra), "extra", e) : OK;
    m.extra = extra;
    m.publication = info->publication;
    if (rc == OK && !m.publication) rc = published_next(root, &m.publication, e);
    if (rc == OK) rc = gather(&m, dir, parts, n_ranks, info, e);
    if (rc == OK) rc = seal(&m, dir, n_ranks, e);
    if (rc == OK && info->told) tell(&m, dir, info->told);
    for (int r = 0; r < n_ranks; r++) manifest_fini(&parts[r]);
    manifest_fini(&m);
    json_free(extra);
    xfree(parts);
    return rc;
}

int ckpt_save_publish(const char *root, int n_ranks, const struct ckpt_info *info, struct err *e)
{
    char *dir = published_temporary(root, info->step), *final = published_dir(root, info->step);
    char *above = fs_join(root, "..");
    int rc = fs_sync_dir(above, e); /* root's own name must outlast a power cut too */
    if (rc == OK) rc = build(root, dir, n_ranks, info, e);
    if (rc == OK) rc = info->parted ? published_replace(dir, final, e) : published_rename(dir, final, e);
    if (rc == OK) {
        /* Published. What fails from here on is worth a warning, not the run. */
        struct err later;
        if (published_set_latest(root, final, &later) < 0) log_warn("%s", later.text);
        if (published_prune(root, info->keep, info->keep_every, final, info->in_use ? atomic_load(info->in_use) : -1,
                            &later) < 0)
            log_warn("%s", later.text);
    }
    xfree(above);
    xfree(final);
    xfree(dir);
    return rc;
}

char *ckpt_temporary(const char *root, int64_t step) { return published_temporary(root, step); }

int64_t ckpt_step_of(const char *name) { return published_step(name); }

/* Before it has a name that others look for: every byte of it, as this host reads it back. */
static int verify(const char *dir, int64_t step, struct err *e)
{
    struct manifest m;
    struct ckpt *c = NULL;
    int rc = published_read(&m, dir, e);
    if (rc < 0) return rc;
    if (m.step != step) rc = err_set(e, ERR_CORRUPT, "%s: is of step %" PRId64 ", not %" PRId64, dir, m.step, step);
    manifest_fini(&m);
    if (rc == OK) rc = ckpt_open_parted(&c, dir, e);
    if (rc == OK) rc = ckpt_verify_all(c, e);
    ckpt_close(c);
    return rc;
}

int ckpt_adopt(const char *root, int64_t step, struct err *e)
{
    char *dir = published_temporary(root, step), *final = published_dir(root, step), *above = fs_join(root, "..");
    int rc = verify(dir, step, e);
    if (rc == OK) rc = fs_sync_dir(dir, e);
    if (rc == OK) rc = fs_sync_dir(above, e);
    if (rc == OK) rc = published_rename(dir, final, e);
    if (rc == OK) {
        struct err later;
        if (published_set_latest(root, final, &later) < 0) log_warn("%s", later.text);
    }
    xfree(above);
    xfree(final);
    xfree(dir);
    return rc;
}

/* -- failing ------------------------------------------------------------------------------------------------ */

/* What a person needs when a disk is full: what failed, room, need, and what is still there. */
static void explain(const char *root, int64_t step, int64_t needed, struct err *e)
{
    struct statvfs fs;
    char have[32] = "an unknown room", need[32], needs[64] = "", reason[sizeof e->text];
    if (statvfs(root, &fs) == 0) str_bytes(have, (double)fs.f_bavail * (double)fs.f_frsize);
    if (needed > 0) snprintf(needs, sizeof needs, "it needs %s, ", str_bytes(need, (double)needed));
    snprintf(reason, sizeof reason, "%s", e->text);
    char *last = published_any(root);
    err_set(e, e->code, "the checkpoint of step %" PRId64 " was not saved: %s (%sthe file system has %s free); %s%s",
            step, reason, needs, have, last ? "the last published one is intact: " : "no earlier one was published",
            last ? last : "");
    xfree(last);
}

void ckpt_save_abort(const char *root, int64_t step, int64_t needed, struct err *e)
{
    struct err trouble;
    char *dir = published_temporary(root, step);
    if (e) explain(root, step, needed, e); /* before the removal: how full it was */
    if (fs_remove_tree(dir, &trouble) < 0) log_warn("%s", trouble.text);
    xfree(dir);
}

int ckpt_save(const char *root, const struct ckpt_info *info, const struct ckpt_tensor *t, int64_t n, struct err *e)
{
    int64_t needed = 0;
    int rc = ckpt_save_begin(root, info->step, e);
    if (rc == OK && info->incremental) rc = ckpt_save_rank_since(root, info->step, 0, t, n, NULL, e);
    if (rc == OK && !info->incremental) rc = ckpt_save_rank(root, info->step, 0, t, n, e);
    if (rc == OK) rc = ckpt_save_publish(root, 1, info, e);
    for (int64_t i = 0; i < n; i++) needed += region_volume(&t[i].box) * (int64_t)dtype_bytes(t[i].dtype);
    if (rc < 0) ckpt_save_abort(root, info->step, needed, e);
    return rc;
}
