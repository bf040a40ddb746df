/* SPDX-License-Identifier: Apache-2.0 */
/* load.c: reading any box of any tensor from whatever boxes the files hold.
 *
 * A request is cut with every stored box of the tensor; what they share is copied, converted on the way. The first
 * touch of a file compares its header's checksum, the first touch of a chunk of a stored box the chunk's
 * (stored_box.c): damage is found where it is read, and a rank reads what it holds, in whole chunks. Big boxes of
 * checkpoints that were written before there were chunks are read through once first. A few files are open at a time:
 * ranks that are threads share the process's descriptors.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "checkpoint/ckpt.h"
#include "checkpoint/convert.h"
#include "checkpoint/manifest.h"
#include "checkpoint/published.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/stored_box.h"

#define PIECE_BYTES ((int64_t)8 << 20)
#define MAX_LISTED 5
#define ATTACHMENT_LIMIT ((size_t)1 << 30)
enum { MAX_OPEN = 8 };

struct ckpt {
    char *dir;
    struct manifest m;
    struct safetensors **files; /* NULL until needed */
    int recent[MAX_OPEN];       /* the files that may have a descriptor, newest first; -1: none */
    bool ***seen;               /* per tensor, box and chunk: was compared; NULL until needed */
    uint8_t *sees;              /* [file][n_ranks] who can read it; NULL: all */
    int n_ranks;
};

/* Takes over dir. */
static int open_at(struct ckpt **out, char *dir, bool parted, struct err *e)
{
    struct ckpt *c = xcalloc(1, sizeof *c);
    c->dir = dir;
    int rc = parted ? published_manifest(&c->m, dir, e) : published_read(&c->m, dir, e);
    if (rc < 0) {
        xfree(c->dir);
        xfree(c);
        return rc;
    }
    c->files = xcalloc((size_t)c->m.n_files + 1, sizeof *c->files);
    for (int i = 0; i < MAX_OPEN; i++) c->recent[i] = -1;
    c->seen = xcalloc((size_t)c->m.n_tensors + 1, sizeof *c->seen);
    for (int i = 0; i < c->m.n_tensors; i++)
        c->seen[i] = xcalloc((size_t)c->m.tensors[i].n_boxes + 1, sizeof **c->seen);
    *out = c;
    return OK;
}

int ckpt_open(struct ckpt **out, const char *path, struct err *e)
{
    *out = NULL;
    char *dir;
    int rc = ckpt_resolve(path, &dir, e);
    return rc < 0 ? rc : open_at(out, dir, false, e);
}

int ckpt_open_parted(struct ckpt **out, const char *path, struct err *e)
{
    *out = NULL;
    return open_at(out, xstrdup(path), true, e);
}

void ckpt_close(struct ckpt *c)
{
    if (!c) return;
    xfree(c->sees);
    for (int i = 0; i < c->m.n_files; i++) safetensors_close(c->files[i]);
    for (int i = 0; i < c->m.n_tensors; i++) {
        for (int k = 0; k < c->m.tensors[i].n_boxes; k++) xfree(c->seen[i][k]);
        xfree(c->seen[i]);
    }
    xfree(c->files);
    xfree(c->seen);
    manifest_fini(&c->m);
    xfree(c->dir);
    xfree(c);
}

const char *ckpt_path(const struct ckpt *c) { return c->dir; }

/* ---- files that lie on several hosts ---- */
int ckpt_n_files(const struct ckpt *c) { return c->m.n_files; }

const char *ckpt_file_name(const struct ckpt *c, int file) { return c->m.files[file].name; }

const char *ckpt_file_of(const struct ckpt *c, int64_t i, int k)
{
    return c->m.files[c->m.tensors[i].boxes[k].file].name;
}

bool ckpt_shared(const char *path, const char *other, const char *file) { return published_shared(path, other, file); }

enum held ckpt_file_here(const struct ckpt *c, int file, struct err *why)
{
    char *path = fs_join(c->dir, c->m.files[file].name);
    int64_t bytes;
    int rc = fs_look(path, &bytes, why);
    xfree(path);
    return rc ? HELD_UNKNOWN : bytes == c->m.files[file].bytes ? HELD_KNOWN : HELD_NONE;
}

void ckpt_seen_by(struct ckpt *c, const uint8_t *sees, int n)
{
    size_t bytes = (size_t)c->m.n_files * (size_t)n;
    xfree(c->sees);
    c->n_ranks = n;
    c->sees = xmalloc(bytes + 1);
    memcpy(c->sees, sees, bytes);
}

bool ckpt_file_seen(const struct ckpt *c, int file, int rank)
{
    if (!c->sees) return true;
    return rank < c->n_ranks && c->sees[(size_t)file * (size_t)c->n_ranks + (size_t)rank];
}

int64_t ckpt_file_bytes(const struct ckpt *c, int file) { return c->m.files[file].bytes; }

bool ckpt_sees(const struct ckpt *c, int64_t i, int k, int rank)
{
    if (!c->sees) return true;
    return rank < c->n_ranks && c->sees[(size_t)c->m.tensors[i].boxes[k].file * (size_t)c->n_ranks + (size_t)rank];
}

int64_t ckpt_step(const struct ckpt *c) { return c->m.step; }

int64_t ckpt_tokens(const struct ckpt *c) { return c->m.tokens; }

int64_t ckpt_seed(const struct ckpt *c) { return c->m.seed; }

int64_t ckpt_publication(const struct ckpt *c) { return c->m.publication; }

uint64_t ckpt_run(const struct ckpt *c) { return c->m.run; }

uint64_t ckpt_hash(const struct ckpt *c) { return c->m.hash; }

bool ckpt_state(const struct ckpt *c, uint64_t *state) { return manifest_state(&c->m, state); }

bool ckpt_tensor_state(const struct ckpt *c, int64_t i, uint64_t *state)
{
    return manifest_tensor_state(&c->m.tensors[i], state);
}

const char *ckpt_writer(const struct ckpt *c) { return c->m.tutti; }

const struct json *ckpt_extra(const struct ckpt *c) { return c->m.extra; }

int64_t ckpt_count(const struct ckpt *c) { return c->m.n_tensors; }

struct ckpt_entry ckpt_at(const struct ckpt *c, int64_t i)
{
    CHECK(i >= 0 && i < c->m.n_tensors, "tensor %" PRId64 " of %d", i, c->m.n_tensors);
    const struct manifest_tensor *t = &c->m.tensors[i];
    return (struct ckpt_entry){.group = t->group,
                               .name = t->name,
                               .dtype = t->dtype,
                               .shape = t->shape,
                               .n_boxes = t->n_boxes};
}

int64_t ckpt_find(const struct ckpt *c, const char *group, const char *name)
{
    return manifest_find(&c->m, group, name);
}

/* -- stored boxes ------------------------------------------------------------------------------------------- */

/* The file is the newest of those that may have a descriptor; the oldest gives its own back. */
static void use(struct ckpt *c, int file)
{
    int at = 0;
    while (at < MAX_OPEN - 1 && c->recent[at] != file) at++;
    if (c->recent[at] >= 0 && c->recent[at] != file) safetensors_rest(c->files[c->recent[at]]);
    memmove(c->recent + 1, c->recent, (size_t)at * sizeof *c->recent);
    c->recent[0] = file;
}

static int damaged(const char *path, uint64_t found, uint64_t written, struct err *e)
{
    return err_set(e, ERR_CORRUPT,
                   "%s: checksum %016" PRIx64 ", %016" PRIx64 " was written: damaged; use another checkpoint", path,
                   found, written);
}

static int open_file(struct ckpt *c, int file, struct err *e)
{
    if (c->files[file]) {
        use(c, file);
        return OK;
    }
    char *path = fs_join(c->dir, c->m.files[file].name);
    size_t bytes;
    int rc = safetensors_open(&c->files[file], path, e);
    uint64_t found = rc < 0 ? 0 : safetensors_header(c->files[file], 0, &bytes);
    if (rc == OK && found != c->m.files[file].hash) {
        rc = damaged(path, found, c->m.files[file].hash, e);
        safetensors_close(c->files[file]);
        c->files[file] = NULL;
    }
    if (rc == OK) use(c, file);
    xfree(path);
    return rc;
}

/* Stored box k of tensor i, with the checksums there are for its parts. */
static int stored_box(struct ckpt *c, int64_t i, int k, struct stored_box *out, struct err *e)
{
    const struct manifest_tensor *t = &c->m.tensors[i];
    const struct manifest_box *b = &t->boxes[k];
    int rc = open_file(c, b->file, e);
    if (rc < 0) return rc;
    const char *file = safetensors_file(c->files[b->file], 0);
    struct str key = {0};
    struct shape extent = region_shape(&b->box);
    manifest_key(&key, t, &b->box);
    const struct safetensors_entry *s = safetensors_find(c->files[b->file], key.p);
    if (!s) rc = err_set(e, ERR_CORRUPT, "%s: tensor %.200s is not in the file; use another checkpoint", file, key.p);
    else if (s->dtype != (int)t->dtype || !shape_equal(&s->shape, &extent))
        rc = err_set(e, ERR_CORRUPT,
                     "%s: tensor %.200s: type or shape is not what the manifest says; use another checkpoint", file,
                     key.p);
    str_free(&key);
    if (rc < 0) return rc;
    bool *seen = c->seen[i][k];
    if (!seen) seen = c->seen[i][k] = xcalloc(to_size(b->n_chunks) + 1, sizeof *seen);
    *out = (struct stored_box){.file = c->files[b->file],
                               .t = s,
                               .box = b->box,
                               .width = dtype_bytes(t->dtype),
                               .seen = seen,
                               .chunk = b->n_chunks ? c->m.chunk : b->bytes,
                               .sums = b->n_chunks ? b->chunks : &b->hash};
    return OK;
}

/* The same for reading a part: one sum for more bytes than a buffer should hold is compared beforehand. */
static int checked_box(struct ckpt *c, int64_t i, int k, struct stored_box *out, struct err *e)
{
    const struct manifest_box *b = &c->m.tensors[i].boxes[k];
    int rc = stored_box(c, i, k, out, e);
    if (rc < 0 || b->n_chunks || b->bytes <= MANIFEST_CHUNK) return rc;
    out->sums = NULL;
    if (!out->seen[0]) rc = stored_verify(out, &b->hash, e);
    if (rc == OK) out->seen[0] = true;
    return rc;
}

struct target { /* what is filled, and what of it one stored box holds */
    void *dst;
    enum dtype as, from;
    const struct region *box, *part;
};

static void fill(void *ctx, const struct region *slab, const void *p)
{
    struct target *x = ctx;
    struct region shared;
    if (region_intersect(slab, x->part, &shared)) convert_box(x->dst, x->as, x->box, p, x->from, slab, &shared);
}

static int not_convertible(const struct ckpt *c, const struct manifest_tensor *t, enum dtype as, struct err *e)
{
    return err_set(e, ERR_REQUEST, "%s: %s/%s: is stored as %s, which does not convert to %s", c->dir, t->group,
                   t->name, dtype_name(t->dtype), dtype_name(as));
}

int ckpt_read(struct ckpt *c, int64_t i, const struct region *box, enum dtype as, void *dst, struct err *e)
{
    CHECK(i >= 0 && i < c->m.n_tensors, "tensor %" PRId64 " of %d", i, c->m.n_tensors);
    const struct manifest_tensor *t = &c->m.tensors[i];
    struct region whole = region_whole(&t->shape);
    CHECK(box->nd == whole.nd && region_contains(&whole, box), "%s/%s: the box asked for is not inside", t->group,
          t->name);
    if (!convertible(t->dtype, as)) return not_convertible(c, t, as, e);
    for (int k = 0; k < t->n_boxes; k++) {
        const struct manifest_box *b = &t->boxes[k];
        struct region part;
        struct stored_box f;
        if (!region_intersect(box, &b->box, &part)) continue;
        int rc = checked_box(c, i, k, &f, e);
        struct target x = {dst, as, t->dtype, box, &part};
        if (rc == OK) rc = stored_each(&f, &part, fill, &x, e);
        if (rc < 0) return rc;
    }
    return OK;
}

/* -- every byte once ----------------------------------------------------------------------------------------- */

struct region ckpt_box(const struct ckpt *c, int64_t i, int k) { return c->m.tensors[i].boxes[k].box; }

/* Whole chunks, and whole elements. */
int64_t ckpt_stretch(const struct ckpt *c, int64_t i, int k, bool *alone)
{
    const struct manifest_box *b = &c->m.tensors[i].boxes[k];
    int64_t width = (int64_t)dtype_bytes(c->m.tensors[i].dtype), n = MANIFEST_CHUNK / width;
    *alone = !b->n_chunks && b->bytes > MANIFEST_CHUNK;
    if (b->n_chunks) {
        int64_t unit = c->m.chunk;
        while (unit % width) unit += c->m.chunk;
        n = unit * (unit < MANIFEST_CHUNK ? MANIFEST_CHUNK / unit : 1) / width;
    }
    return n < b->bytes / width ? n : b->bytes / width;
}

int ckpt_read_stretch(struct ckpt *c, int64_t i, int k, int64_t lo, int64_t n, enum dtype as, void *dst, struct err *e)
{
    const struct manifest_tensor *t = &c->m.tensors[i];
    struct stored_box f;
    if (!convertible(t->dtype, as)) return not_convertible(c, t, as, e);
    int rc = checked_box(c, i, k, &f, e);
    if (rc < 0) return rc;
    int64_t width = (int64_t)f.width;
    void *p = t->dtype == as ? dst : xmalloc(to_size(n * width));
    rc = stored_stretch(&f, lo * width, n * width, p, e);
    if (p == dst) return rc;
    if (rc == OK) convert(dst, as, p, t->dtype, n);
    xfree(p);
    return rc;
}

/* -- a whole state ------------------------------------------------------------------------------------------ */

static void list(struct str *s, int *n, const char *what, const char *group, const char *name)
{
    if ((*n)++ >= MAX_LISTED) return;
    if (s->n) str_puts(s, "; ");
    str_printf(s, "%s/%s ", group, name);
    str_puts(s, what);
}

/* A group that nobody asks for may stay in the file, and so may what it has of parameters whose first group is asked
 * for: an optimizer that is no longer theirs left it. */
static bool is_wanted(const struct ckpt_tensor *want, int64_t n, const struct manifest_tensor *t)
{
    bool group = false, known = false;
    for (int64_t i = 0; i < n; i++) {
        bool same = strcmp(want[i].group, t->group) == 0, name = strcmp(want[i].name, t->name) == 0;
        if (same && name) return true;
        group |= same;
        known |= name && strcmp(want[i].group, want[0].group) == 0;
    }
    return !group || (known && strcmp(t->group, want[0].group) != 0);
}

/* whole: what the checkpoint has beyond `want` counts as a difference too. */
static int check(const struct ckpt *c, const struct ckpt_tensor *want, int64_t n, bool whole, struct err *e)
{
    struct str s = {0};
    int n_bad = 0;
    int64_t n_found = 0;
    for (int64_t i = 0; i < n; i++) {
        int k = manifest_find(&c->m, want[i].group, want[i].name);
        if (k < 0) {
            list(&s, &n_bad, "is not in it", want[i].group, want[i].name);
            continue;
        }
        const struct manifest_tensor *t = &c->m.tensors[k];
        n_found++;
        if (shape_equal(&t->shape, &want[i].shape) && convertible(t->dtype, want[i].dtype)) continue;
        char x[128], y[128], text[320];
        snprintf(text, sizeof text, "is %s %s in the checkpoint, %s %s in the model", dtype_name(t->dtype),
                 shape_print(x, &t->shape), dtype_name(want[i].dtype), shape_print(y, &want[i].shape));
        list(&s, &n_bad, text, want[i].group, want[i].name);
    }
    /* Only when something is left over is it worth looking for what. */
    for (int k = 0; whole && k < c->m.n_tensors && n_found < c->m.n_tensors; k++)
        if (!is_wanted(want, n, &c->m.tensors[k]))
            list(&s, &n_bad, "is in the checkpoint only", c->m.tensors[k].group, c->m.tensors[k].name);
    int rc = OK;
    if (n_bad)
        rc = err_set(e, ERR_REQUEST, "%s: a checkpoint of another model: %d of its tensors differ: %s%s", c->dir, n_bad,
                     s.p, n_bad > MAX_LISTED ? "; ..." : "");
    str_free(&s);
    return rc;
}

int ckpt_check(const struct ckpt *c, const struct ckpt_tensor *want, int64_t n, struct err *e)
{
    return check(c, want, n, true, e);
}

/* Bands of rows of the box go through a piece of host memory to a device. */
static int load_through(struct ckpt *c, int64_t i, const struct ckpt_tensor *t, struct err *e)
{
    int64_t rows = t->box.nd ? t->box.hi[0] - t->box.lo[0] : 1;
    int64_t row_bytes = region_volume(&t->box) / rows * (int64_t)dtype_bytes(t->dtype);
    int64_t band = row_bytes < PIECE_BYTES ? PIECE_BYTES / row_bytes : 1;
    if (band > rows) band = rows;
    unsigned char *piece = xmalloc(to_size(band * row_bytes));
    int rc = OK;
    for (int64_t at = 0; at < rows && rc == OK; at += band) {
        struct region part = t->box;
        int64_t n = rows - at < band ? rows - at : band;
        if (part.nd) {
            part.lo[0] += at;
            part.hi[0] = part.lo[0] + n;
        }
        rc = ckpt_read(c, i, &part, t->dtype, piece, e);
        if (rc == OK) rc = t->access->from_host(t->ctx, at * row_bytes, to_size(n * row_bytes), piece, e);
    }
    xfree(piece);
    return rc;
}

int ckpt_load(struct ckpt *c, const struct ckpt_tensor *t, int64_t n, struct err *e)
{
    int rc = check(c, t, n, false, e);
    for (int64_t i = 0; i < n && rc == OK; i++) {
        if (region_volume(&t[i].box) == 0) continue;
        int64_t k = ckpt_find(c, t[i].group, t[i].name);
        rc = t[i].access ? load_through(c, k, &t[i], e) : ckpt_read(c, k, &t[i].box, t[i].dtype, t[i].p, e);
    }
    return rc;
}

/* -- attachments -------------------------------------------------------------------------------------------- */

int ckpt_attachment(const struct ckpt *c, const char *name, char **text, size_t *n, struct err *e)
{
    *text = NULL;
    *n = 0;
    const struct manifest_file *f = NULL;
    for (int i = 0; i < c->m.n_files && !f; i++)
        if (strcmp(c->m.files[i].name, name) == 0) f = &c->m.files[i];
    if (!f) return OK;
    char *path = fs_join(c->dir, name);
    int rc = fs_read_all(path, ATTACHMENT_LIMIT, text, n, e);
    uint64_t found = rc < 0 ? 0 : hash64(*text, *n);
    if (rc == OK && (found != f->hash || (int64_t)*n != f->bytes)) {
        rc = damaged(path, found, f->hash, e);
        xfree(*text);
        *text = NULL;
        *n = 0;
    }
    xfree(path);
    return rc;
}

static bool is_attachment(const struct manifest_file *f) { return !str_ends(f->name, ".safetensors"); }

int ckpt_n_attachments(const struct ckpt *c)
{
    int n = 0;
    for (int i = 0; i < c->m.n_files; i++) n += is_attachment(&c->m.files[i]);
    return n;
}

const char *ckpt_attachment_name(const struct ckpt *c, int i)
{
    for (int k = 0; k < c->m.n_files; k++)
        if (is_attachment(&c->m.files[k]) && i-- == 0) return c->m.files[k].name;
    CHECK(false, "there is no attachment %d", i);
    return NULL;
}

int ckpt_check_attachments(const struct ckpt *c, struct err *e)
{
    int rc = OK;
    for (int i = 0; i < c->m.n_files && rc == OK; i++) {
        char *text;
        size_t n;
        if (!is_attachment(&c->m.files[i])) continue;
        rc = ckpt_attachment(c, c->m.files[i].name, &text, &n, e);
        xfree(text);
    }
    return rc;
}

/* -- verifying ---------------------------------------------------------------------------------------------- */

static int verify_file(struct ckpt *c, int file, struct err *e)
{
    const struct manifest_file *f = &c->m.files[file];
    char *text;
    size_t n;
    if (!is_attachment(f)) return open_file(c, file, e);
    int rc = ckpt_attachment(c, f->name, &text, &n, e);
    xfree(text);
    return rc;
}

static int verify_box(struct ckpt *c, int64_t i, int k, struct err *e)
{
    const struct manifest_box *b = &c->m.tensors[i].boxes[k];
    struct stored_box f;
    int rc = stored_box(c, i, k, &f, e);
    if (rc == OK && !b->n_chunks) f.sums = NULL; /* its one sum is compared below */
    return rc == OK ? stored_verify(&f, b->n_chunks && c->m.version > 1 ? NULL : &b->hash, e) : rc;
}

int ckpt_verify_file(struct ckpt *c, int file, struct err *e)
{
    int rc = verify_file(c, file, e);
    for (int i = 0; i < c->m.n_tensors && rc == OK; i++)
        for (int k = 0; k < c->m.tensors[i].n_boxes && rc == OK; k++)
            if (c->m.tensors[i].boxes[k].file == file) rc = verify_box(c, i, k, e);
    return rc;
}

int ckpt_verify_all(struct ckpt *c, struct err *e)
{
    int rc = OK;
    for (int i = 0; i < c->m.n_files && rc == OK; i++) rc = ckpt_verify_file(c, i, e);
    return rc;
}

/* A file that several checkpoints have is damaged in all of them. */
static void tell_problem(const struct ckpt *c, int file, const struct err *e, ckpt_problem_fn *bad, void *ctx)
{
    struct str text = {0};
    char *sharers = published_sharers(c->dir, c->m.files[file].name);
    str_puts(&text, e->text);
    if (sharers) str_printf(&text, "; the same file (a hard link) is in %s, which it damages too", sharers);
    bad(ctx, str_text(&text));
    str_free(&text);
    xfree(sharers);
}

int64_t ckpt_verify(struct ckpt *c, ckpt_problem_fn *bad, void *ctx)
{
    int64_t n_bad = 0;
    struct err e;
    for (int i = 0; i < c->m.n_files; i++)
        if (verify_file(c, i, &e) < 0) {
            n_bad++;
            tell_problem(c, i, &e, bad, ctx);
        }
    for (int i = 0; i < c->m.n_tensors; i++)
        for (int k = 0; k < c->m.tensors[i].n_boxes; k++) {
            if (!c->files[c->m.tensors[i].boxes[k].file]) continue; /* the file itself was told already */
            if (verify_box(c, i, k, &e) < 0) {
                n_bad++;
                tell_problem(c, c->m.tensors[i].boxes[k].file, &e, bad, ctx);
            }
        }
    return n_bad;
}
