/* SPDX-License-Identifier: Apache-2.0 */
/* save_rank.c: the files of one rank of a checkpoint that is being written.
 *
 * Boxes are streamed into boxes-RANK.safetensors, checksums are made on the way (about ten times as fast as a disk),
 * and a list of them is left beside the file. Where a save is to be incremental, boxes that are what the newest
 * checkpoint has of them are not written again: those that lie in its still-RANK-K.safetensors are had by a hard link
 * to that file when all of it is as it was, and those that are new to stand still get such a file, once, when they are
 * worth one (unchanged.c). Cost: the bytes once, two syncs per file; memory is one 8 MiB piece for tensors that the
 * host cannot read in place.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "checkpoint/ckpt.h"
#include "checkpoint/manifest.h"
#include "checkpoint/published.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/state_sum.h"
#include "checkpoint/unchanged.h"

#define PIECE_BYTES ((size_t)8 << 20)

/* A stretch under one sum. Those of tensors whose bytes the host can reach are summed by a team while one of its
 * members writes; nobody waits for another before the end. */
struct stretch {
    const struct ckpt_tensor *t;
    int64_t at;
    size_t n;
    uint64_t *sum, state;
    int i; /* of the part list's tensors */
};

/* One file: of the part list's tensors those whose box is in it. */
struct writing {
    struct manifest *part;
    const struct ckpt_tensor *const *held;
    const bool *known; /* sums that need not be made */
    int *of, n_of;     /* its tensors: positions in the part list */
    struct safetensors_spec *specs;
    struct safetensors_writer *w;
    struct stretch *stretch;
    int64_t n;
    atomic_llong next;
    int rc;
    struct err *e;
};

static size_t box_bytes(const struct ckpt_tensor *t) { return to_size(region_volume(&t->box)) * dtype_bytes(t->dtype); }

static uint64_t sum_of(const struct ckpt_tensor *t, int64_t at, size_t n, const void *p)
{
    int64_t width = (int64_t)dtype_bytes(t->dtype);
    return state_sum(&t->shape, &t->box, t->dtype, at / width, (int64_t)n / width, p);
}

/* i: of the part list's tensors. */
static int write_box(struct writing *x, int i, unsigned char *piece)
{
    const struct ckpt_tensor *t = x->held[i];
    struct manifest_box *b = &x->part->tensors[i].boxes[0];
    size_t bytes = box_bytes(t);
    if (!t->access) return safetensors_writer_put(x->w, t->p, bytes, x->e);
    for (size_t at = 0; at < bytes;) {
        size_t n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        int rc = t->access->to_host(t->ctx, (int64_t)at, n, piece, x->e);
        if (rc == OK) rc = safetensors_writer_write(x->w, piece, n, x->e);
        if (rc < 0) return rc;
        if (!x->known[i]) b->state += sum_of(t, (int64_t)at, n, piece);
        at += n;
    }
    return OK;
}

static int write_all(struct writing *x)
{
    int rc = OK;
    unsigned char *piece = xmalloc(PIECE_BYTES);
    for (int64_t k; rc == OK && (k = safetensors_writer_next(x->w)) >= 0;) rc = write_box(x, x->of[k], piece);
    xfree(piece);
    return rc;
}

static void write_and_sum(void *arg, int member, int n_members)
{
    struct writing *x = arg;
    (void)n_members;
    if (member == 0 && (x->rc = write_all(x)) < 0) atomic_store(&x->next, x->n);
    for (int64_t k; (k = atomic_fetch_add(&x->next, 1)) < x->n;) {
        struct stretch *s = &x->stretch[k];
        const unsigned char *p = (const unsigned char *)s->t->p + s->at;
        *s->sum = hash64(p, s->n);
        s->state = sum_of(s->t, s->at, s->n, p);
    }
}

/* Where the sums of a box of so many bytes go: one, or one for each chunk. */
static uint64_t *sums_of(struct manifest *part, struct manifest_box *b)
{
    if (b->bytes <= part->chunk) return &b->hash;
    b->n_chunks = (b->bytes + part->chunk - 1) / part->chunk;
    uint64_t *sums = arena_alloc(part->arena, to_size(b->n_chunks) * sizeof *sums);
    b->chunks = sums;
    return sums;
}

static void plan_sums(struct writing *x)
{
    struct manifest *part = x->part;
    int64_t room = 0, chunk = part->chunk;
    for (int k = 0; k < x->n_of; k++) room += part->tensors[x->of[k]].boxes[0].bytes / chunk + 1;
    x->stretch = xcalloc(to_size(room) + 1, sizeof *x->stretch);
    for (int k = 0; k < x->n_of; k++) {
        int i = x->of[k];
        struct manifest_box *b = &part->tensors[i].boxes[0];
        if (x->held[i]->access || !b->bytes || x->known[i]) continue;
        uint64_t *sums = sums_of(part, b);
        for (int64_t at = 0; at < b->bytes; at += chunk)
            x->stretch[x->n++] = (struct stretch){.t = x->held[i],
                                                  .at = at,
                                                  .n = to_size(b->bytes - at < chunk ? b->bytes - at : chunk),
                                                  .sum = sums++,
                                                  .i = i};
    }
}

/* Sums that the writer made; of boxes with chunks the one of these; and those of values. */
static void note_sums(struct writing *x)
{
    for (int64_t k = 0; k < x->n; k++) x->part->tensors[x->stretch[k].i].boxes[0].state += x->stretch[k].state;
    for (int k = 0; k < x->n_of; k++) {
        int i = x->of[k];
        struct manifest_box *b = &x->part->tensors[i].boxes[0];
        int64_t n = 0;
        if (x->known[i]) continue;
        if (x->held[i]->access || !b->bytes) {
            const uint64_t *sums = safetensors_writer_sums(x->w, k, &n);
            if (sums) memcpy(sums_of(x->part, b), sums, to_size(n) * sizeof *sums);
            else b->hash = safetensors_writer_hash(x->w, k);
        }
        if (b->n_chunks) b->hash = manifest_root(b->chunks, b->n_chunks);
        b->has_state = true;
    }
}

/* Who sums beside the thread that writes; NULL: it does both. A core sums faster than most disks write. */
static struct team *summing_team(void)
{
    enum { MOST = 3 };
    struct team *team;
    int cores = thread_n_cores();
    return cores > 1 && team_start(&team, cores < MOST ? cores : MOST, NULL) == OK ? team : NULL;
}

static int write_open(struct writing *x, const char *path)
{
    static const char *const metadata[] = {"format", "tutti", "tutti", TUTTI_VERSION};
    int rc = safetensors_writer_open(&x->w, path, x->specs, x->n_of, metadata, 2, x->e);
    if (rc < 0) return rc;
    safetensors_writer_chunks(x->w, x->part->chunk);
    struct team *team = x->n_of ? summing_team() : NULL;
    plan_sums(x);
    team_run(team, write_and_sum, x);
    team_free(team);
    rc = x->rc;
    if (rc == OK) note_sums(x);
    xfree(x->stretch);
    return rc;
}

/* Writes file f of the part list. */
static int write_file(const char *dir, struct manifest *part, int f, const struct ckpt_tensor *const *held,
                      const struct safetensors_spec *specs, const bool *known, struct err *e)
{
    struct manifest_file *file = &part->files[f];
    struct writing x = {.part = part, .held = held, .known = known, .e = e};
    char *path = fs_join(dir, file->name);
    x.of = xcalloc(to_size(part->n_tensors) + 1, sizeof *x.of);
    x.specs = xcalloc(to_size(part->n_tensors) + 1, sizeof *x.specs);
    for (int i = 0; i < part->n_tensors; i++) {
        if (part->tensors[i].boxes[0].file != f) continue;
        x.specs[x.n_of] = specs[i];
        x.of[x.n_of++] = i;
    }
    int rc = write_open(&x, path);
    if (x.w) {
        file->bytes = safetensors_writer_bytes(x.w);
        file->hash = safetensors_writer_header_hash(x.w);
        int closed = safetensors_writer_close(x.w, true, rc == OK ? e : NULL);
        if (rc == OK) rc = closed;
    }
    xfree(x.specs);
    xfree(x.of);
    xfree(path);
    return rc;
}

/* The part list: one entry per descriptor that holds anything; hashes are filled in by the writing. */
static void describe(struct manifest *part, const struct ckpt_tensor *t, int64_t n, const struct ckpt_tensor **held,
                     struct safetensors_spec *specs)
{
    struct arena *a = part->arena;
    part->tutti = TUTTI_VERSION;
    part->chunk = MANIFEST_CHUNK;
    part->files = arena_alloc(a, (1 + STILL_FILES_MOST) * sizeof *part->files);
    part->n_files = 1;
    part->tensors = arena_alloc(a, to_size(n) * sizeof *part->tensors + 1);
    for (int64_t i = 0; i < n; i++) {
        struct region whole = region_whole(&t[i].shape);
        CHECK(t[i].box.nd == t[i].shape.nd && region_contains(&whole, &t[i].box), "%s/%s: the box is not inside",
              t[i].group, t[i].name);
        if (region_volume(&t[i].box) == 0 && region_volume(&whole) != 0) continue;
        struct manifest_tensor *m = &part->tensors[part->n_tensors];
        *m = (struct manifest_tensor){.group = t[i].group,
                                      .name = t[i].name,
                                      .dtype = t[i].dtype,
                                      .shape = t[i].shape,
                                      .n_boxes = 1};
        m->boxes = arena_alloc(a, sizeof *m->boxes);
        m->boxes[0].box = t[i].box;
        m->boxes[0].bytes = region_volume(&t[i].box) * (int64_t)dtype_bytes(t[i].dtype);
        struct str key = {0};
        manifest_key(&key, m, &t[i].box);
        specs[part->n_tensors] = (struct safetensors_spec){.name = arena_strdup(a, key.p),
                                                           .dtype = t[i].dtype,
                                                           .shape = region_shape(&t[i].box)};
        str_free(&key);
        held[part->n_tensors++] = &t[i];
    }
}

static int save_rank(const char *root, int64_t step, int rank, const struct ckpt_tensor *t, int64_t n, bool since,
                     struct ckpt_written *written, struct err *e)
{
    char *dir = published_temporary(root, step);
    char *file = published_boxes(dir, rank, "safetensors"), *list = published_boxes(dir, rank, "json");
    struct manifest part;
    manifest_init(&part);
    const struct ckpt_tensor **held = xcalloc(to_size(n) + 1, sizeof *held);
    struct safetensors_spec *specs = xcalloc(to_size(n) + 1, sizeof *specs);
    bool *known = xcalloc(to_size(n) + 1, sizeof *known);
    struct str text = {0};
    describe(&part, t, n, held, specs);
    part.step = step;
    part.files[0].name = arena_strdup(part.arena, strrchr(file, '/') + 1);
    int fresh = since ? unchanged_plan(root, dir, rank, held, &part, known) : 0;
    int rc = write_file(dir, &part, 0, held, specs, known, e);
    if (rc == OK && fresh) rc = write_file(dir, &part, fresh, held, specs, known, e);
    if (rc == OK) {
        manifest_print(&part, &text);
        rc = fs_write_atomic(list, text.p, text.n, e);
    }
    struct ckpt_written w = {0};
    for (int f = 0; f < part.n_files; f++) *(f == 0 || f == fresh ? &w.written : &w.linked) += part.files[f].bytes;
    if (written) *written = w;
    str_free(&text);
    xfree(known);
    xfree(specs);
    xfree(held);
    manifest_fini(&part);
    xfree(list);
    xfree(file);
    xfree(dir);
    return rc;
}

int ckpt_save_rank(const char *root, int64_t step, int rank, const struct ckpt_tensor *t, int64_t n, struct err *e)
{
    return save_rank(root, step, rank, t, n, false, NULL, e);
}

int ckpt_save_rank_since(const char *root, int64_t step, int rank, const struct ckpt_tensor *t, int64_t n,
                         struct ckpt_written *written, struct err *e)
{
    return save_rank(root, step, rank, t, n, true, written, e);
}
