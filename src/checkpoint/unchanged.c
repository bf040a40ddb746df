/* SPDX-License-Identifier: Apache-2.0 */
/* unchanged.c: each box is compared with the sums that the newest checkpoint's manifest has of the same box of the same
 * tensor, chunk by chunk, and no further than to the first that differs: of a tensor that is trained one chunk is
 * summed, which would have been summed anyway. What stands still is told by its bytes, so frozen weights, moments of
 * what is not stepped and a state that is saved twice are all one case, and nobody has to say which they are.
 *
 * A file is shared by a hard link: both checkpoints own it, either may be removed first, and a copy of a directory is
 * complete. It is then the only one there is, so each time it is linked one of STILL_TURNS parts of its bytes is read
 * and compared, in turns, and a file that is damaged, not of its size, or whose header has another sum is not taken:
 * memory has what it should hold, and it is written again. Rejected: reading all of it each time, which costs about
 * what writing it would.
 * Rejected: a pool of files beside the checkpoints, named by their sums, which needs a count of who uses what; and
 * links into a file some of whose boxes changed, which would keep bytes that nothing reads.
 */
#include "checkpoint/unchanged.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"
#include "checkpoint/published.h"
#include "checkpoint/safetensors.h"

struct unchanged {
    const char *root, *dir;
    int rank;
    const struct ckpt_tensor *const *held;
    struct manifest *part;
    char *from; /* directory of the newest checkpoint */
    struct manifest newest;
    const struct manifest_box **was; /* per tensor: the same box there, when it stands still; NULL: it does not */
    atomic_int next;
};

/* -- what stands still --------------------------------------------------------------------------------------- */

static const struct manifest_box *box_there(const struct unchanged *s, const struct manifest_tensor *t)
{
    int k = manifest_find(&s->newest, t->group, t->name);
    const struct manifest_tensor *there = k < 0 ? NULL : &s->newest.tensors[k];
    if (!there || there->dtype != t->dtype || !shape_equal(&there->shape, &t->shape) || !t->boxes[0].bytes) return NULL;
    for (int i = 0; i < there->n_boxes; i++)
        if (region_equal(&there->boxes[i].box, &t->boxes[0].box) && there->boxes[i].has_state) return &there->boxes[i];
    return NULL;
}

/* The sum of each of its chunks; a box without chunks has one. */
static bool same_bytes(const struct unchanged *s, int i, const struct manifest_box *b, unsigned char *piece)
{
    const struct ckpt_tensor *t = s->held[i];
    int64_t chunk = s->newest.chunk;
    if ((b->bytes > chunk) != (b->n_chunks > 0)) return false;
    for (int64_t at = 0; at < b->bytes; at += chunk) {
        size_t n = to_size(b->bytes - at < chunk ? b->bytes - at : chunk);
        const unsigned char *p = t->access ? piece : (const unsigned char *)t->p + at;
        if (t->access && t->access->to_host(t->ctx, at, n, piece, NULL) < 0) return false; /* the writer will tell */
        if (hash64(p, n) != (b->n_chunks ? b->chunks[at / chunk] : b->hash)) return false;
    }
    return true;
}

static void look_at(struct unchanged *s, int i, unsigned char *piece)
{
    const struct manifest_box *b = box_there(s, &s->part->tensors[i]);
    s->was[i] = b && same_bytes(s, i, b, piece) ? b : NULL;
}

/* Those that the host can reach, by a team; the others have one stream, which is the calling thread's. */
static void look_together(void *arg, int member, int n_members)
{
    struct unchanged *s = arg;
    unsigned char *piece = member ? NULL : xmalloc(to_size(s->newest.chunk) + 1);
    (void)n_members;
    for (int i = 0; member == 0 && i < s->part->n_tensors; i++)
        if (s->held[i]->access) look_at(s, i, piece);
    for (int i; (i = atomic_fetch_add(&s->next, 1)) < s->part->n_tensors;)
        if (!s->held[i]->access) look_at(s, i, NULL);
    xfree(piece);
}

static void take_sums(struct unchanged *s, bool *known)
{
    for (int i = 0; i < s->part->n_tensors; i++) {
        struct manifest_box *b = &s->part->tensors[i].boxes[0];
        const struct manifest_box *was = s->was[i];
        if (!was) continue;
        known[i] = true;
        b->hash = was->hash;
        b->state = was->state;
        b->has_state = true;
        b->n_chunks = was->n_chunks;
        if (!was->n_chunks) continue;
        uint64_t *sums = arena_alloc(s->part->arena, to_size(was->n_chunks) * sizeof *sums);
        memcpy(sums, was->chunks, to_size(was->n_chunks) * sizeof *sums);
        b->chunks = sums;
    }
}

/* -- files ---------------------------------------------------------------------------------------------------- */

/* still-00003-1.safetensors: of rank 3, whose number of it *k is. */
static bool is_own(const struct unchanged *s, const char *name, int *k)
{
    int rank, end = 0;
    return sscanf(name, "still-%d-%d.safetensors%n", &rank, k, &end) == 2 && !name[end] && end && rank == s->rank;
}

static bool all_still(const struct unchanged *s, int file)
{
    int there = 0, here = 0;
    for (int i = 0; i < s->newest.n_tensors; i++)
        for (int k = 0; k < s->newest.tensors[i].n_boxes; k++) there += s->newest.tensors[i].boxes[k].file == file;
    for (int i = 0; i < s->part->n_tensors; i++) here += s->was[i] && s->was[i]->file == file;
    return there && here == there;
}

/* One chunk of a box, of the file's entry for it. */
static int check_chunk(const struct unchanged *s, struct safetensors *file, const struct manifest_tensor *t,
                       const struct manifest_box *b, int64_t c, unsigned char *piece, struct err *e)
{
    struct str key = {0};
    manifest_key(&key, t, &b->box);
    const struct safetensors_entry *entry = safetensors_find(file, key.p);
    int64_t chunk = s->newest.chunk, at = c * chunk, n = b->bytes - at < chunk ? b->bytes - at : chunk;
    int rc = OK;
    if (!entry || (int64_t)entry->bytes != b->bytes)
        rc = err_set(e, ERR_CORRUPT, "%s: %.200s is not what the manifest says", safetensors_file(file, 0), key.p);
    if (!rc) rc = safetensors_read(file, entry, at, to_size(n), piece, e);
    if (!rc && hash64(piece, to_size(n)) != (b->n_chunks ? b->chunks[c] : b->hash))
        rc = err_set(e, ERR_CORRUPT, "%s: %.200s: bytes %" PRId64 " to %" PRId64 " are damaged",
                     safetensors_file(file, 0), key.p, entry->at + at, entry->at + at + n);
    str_free(&key);
    return rc;
}

/* This time's part of the bytes: every STILL_TURNS-th chunk, beginning with another one at each publication. */
static int check_turn(const struct unchanged *s, int f, struct safetensors *file, struct err *e)
{
    unsigned char *piece = xmalloc(to_size(s->newest.chunk) + 1);
    int64_t turn = s->newest.publication % STILL_TURNS, n = 0;
    int rc = OK;
    for (int i = 0; i < s->newest.n_tensors; i++)
        for (int k = 0; k < s->newest.tensors[i].n_boxes; k++) {
            const struct manifest_box *b = &s->newest.tensors[i].boxes[k];
            int64_t chunks = b->n_chunks ? b->n_chunks : 1;
            for (int64_t c = 0; b->file == f && b->bytes && c < chunks && !rc; c++)
                if (n++ % STILL_TURNS == turn) rc = check_chunk(s, file, &s->newest.tensors[i], b, c, piece, e);
        }
    xfree(piece);
    return rc;
}

static int check_file(const struct unchanged *s, int f, const char *path, struct err *e)
{
    const struct manifest_file *wanted = &s->newest.files[f];
    struct safetensors *file;
    int64_t bytes;
    size_t n;
    int rc = fs_look(path, &bytes, e);
    if (rc == OK && bytes != wanted->bytes) rc = err_set(e, ERR_CORRUPT, "%s: is not of its size any more", path);
    if (rc < 0 || (rc = safetensors_open(&file, path, e)) < 0) return rc;
    if (safetensors_header(file, 0, &n) != wanted->hash)
        rc = err_set(e, ERR_CORRUPT, "%s: its header was changed", path);
    if (rc == OK) rc = check_turn(s, f, file, e);
    safetensors_close(file);
    return rc;
}

static bool link_file(const struct unchanged *s, int f)
{
    struct err why;
    const char *name = s->newest.files[f].name;
    char *from = fs_join(s->from, name), *to = fs_join(s->dir, name);
    int rc = check_file(s, f, from, &why);
    if (rc == OK) rc = fs_link(from, to, &why);
    if (rc < 0) log_warn("%s is written again: %s", name, why.text);
    xfree(from);
    xfree(to);
    return rc == OK;
}

static void link_files(struct unchanged *s, int *next_k)
{
    for (int f = 0, k; f < s->newest.n_files && s->part->n_files <= STILL_PART; f++) {
        const struct manifest_file *file = &s->newest.files[f];
        if (!is_own(s, file->name, &k)) continue;
        if (k >= *next_k) *next_k = k + 1;
        if (!all_still(s, f) || !link_file(s, f)) continue;
        for (int i = 0; i < s->part->n_tensors; i++)
            if (s->was[i] && s->was[i]->file == f) s->part->tensors[i].boxes[0].file = s->part->n_files;
        s->part->files[s->part->n_files++] =
            (struct manifest_file){arena_strdup(s->part->arena, file->name), file->bytes, file->hash};
    }
}

static int new_file(struct unchanged *s, int k)
{
    int64_t still = 0, all = 0;
    for (int i = 0; i < s->part->n_tensors; i++) {
        const struct manifest_box *b = &s->part->tensors[i].boxes[0];
        all += b->bytes;
        if (s->was[i] && !b->file) still += b->bytes;
    }
    if (!still || still < all / STILL_PART) return 0;
    int file = s->part->n_files++;
    s->part->files[file].name = arena_printf(s->part->arena, "still-%05d-%d.safetensors", s->rank, k);
    for (int i = 0; i < s->part->n_tensors; i++)
        if (s->was[i] && !s->part->tensors[i].boxes[0].file) s->part->tensors[i].boxes[0].file = file;
    return file;
}

int unchanged_plan(const char *root, const char *dir, int rank, const struct ckpt_tensor *const *held,
                   struct manifest *part, bool *known)
{
    enum { MOST = 4 };
    struct unchanged s =
        {.root = root, .dir = dir, .rank = rank, .held = held, .part = part, .from = published_any(root)};
    int next_k = 1, fresh = 0;
    if (!s.from || published_manifest(&s.newest, s.from, NULL) < 0) {
        xfree(s.from);
        return 0;
    }
    if (s.newest.version == MANIFEST_VERSION && s.newest.chunk == part->chunk) {
        struct team *team = NULL;
        int cores = thread_n_cores();
        s.was = xcalloc(to_size(part->n_tensors) + 1, sizeof *s.was);
        if (cores > 1 && team_start(&team, cores < MOST ? cores : MOST, NULL) < 0) team = NULL;
        team_run(team, look_together, &s);
        team_free(team);
        take_sums(&s, known);
        link_files(&s, &next_k);
        fresh = new_file(&s, next_k);
        xfree(s.was);
    }
    manifest_fini(&s.newest);
    xfree(s.from);
    return fresh;
}
