/* load.c: reading any box of any tensor from whatever boxes the files hold.
 *
 * A request is cut with every stored box of the tensor; what they share is copied, converted on the way. Files
 * are mapped when first needed. The first touch of a stored box compares its checksum, whole, even when only a
 * corner is wanted: damage is found where it is read, and a box is seldom larger than what one rank held. The
 * pages of a box are given back after use, so loading a model does not keep a second copy of it in memory.
 * Cost: each stored byte that is touched is read twice (checksum, copy), the second time from cache.
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

#define PIECE_BYTES ((int64_t)8 << 20)
#define MAX_LISTED 5

struct ckpt {
    char *dir;
    struct manifest m;
    struct safetensors **files; /* NULL until needed */
    bool **verified;            /* per tensor and box */
};

int ckpt_open(struct ckpt **out, const char *path, struct err *e)
{
    *out = NULL;
    char *dir;
    int rc = ckpt_resolve(path, &dir, e);
    if (rc < 0) return rc;
    struct ckpt *c = xcalloc(1, sizeof *c);
    c->dir = dir;
    rc = published_read(&c->m, dir, e);
    if (rc < 0) {
        xfree(c->dir);
        xfree(c);
        return rc;
    }
    c->files = xcalloc((size_t)c->m.n_files + 1, sizeof *c->files);
    c->verified = xcalloc((size_t)c->m.n_tensors + 1, sizeof *c->verified);
    for (int i = 0; i < c->m.n_tensors; i++)
        c->verified[i] = xcalloc((size_t)c->m.tensors[i].n_boxes + 1, sizeof **c->verified);
    *out = c;
    return OK;
}

void ckpt_close(struct ckpt *c)
{
    if (!c) return;
    for (int i = 0; i < c->m.n_files; i++) safetensors_close(c->files[i]);
    for (int i = 0; i < c->m.n_tensors; i++) xfree(c->verified[i]);
    xfree(c->files);
    xfree(c->verified);
    manifest_fini(&c->m);
    xfree(c->dir);
    xfree(c);
}

const char *ckpt_path(const struct ckpt *c)
{
    return c->dir;
}

int64_t ckpt_step(const struct ckpt *c)
{
    return c->m.step;
}

int64_t ckpt_tokens(const struct ckpt *c)
{
    return c->m.tokens;
}

int64_t ckpt_seed(const struct ckpt *c)
{
    return c->m.seed;
}

const char *ckpt_writer(const struct ckpt *c)
{
    return c->m.tutti;
}

const struct json *ckpt_extra(const struct ckpt *c)
{
    return c->m.extra;
}

char *ckpt_attachment_path(const struct ckpt *c, const char *name)
{
    for (int i = 0; i < c->m.n_files; i++)
        if (strcmp(c->m.files[i].name, name) == 0) return fs_join(c->dir, name);
    return NULL;
}

int64_t ckpt_count(const struct ckpt *c)
{
    return c->m.n_tensors;
}

struct ckpt_entry ckpt_at(const struct ckpt *c, int64_t i)
{
    CHECK(i >= 0 && i < c->m.n_tensors, "tensor %" PRId64 " of %d", i, c->m.n_tensors);
    const struct manifest_tensor *t = &c->m.tensors[i];
    return (struct ckpt_entry){
        .group = t->group, .name = t->name, .dtype = t->dtype, .shape = t->shape, .n_boxes = t->n_boxes};
}

int64_t ckpt_find(const struct ckpt *c, const char *group, const char *name)
{
    return manifest_find(&c->m, group, name);
}

/* -- stored boxes ------------------------------------------------------------------------------------------- */

static int open_file(struct ckpt *c, int file, struct err *e)
{
    if (c->files[file]) return OK;
    char *path = fs_join(c->dir, c->m.files[file].name);
    int rc = safetensors_open(&c->files[file], path, e);
    xfree(path);
    return rc;
}

/* The bytes of stored box k of tensor i, checked against the manifest. */
static int stored_box(struct ckpt *c, int64_t i, int k, const struct safetensors_entry **out, struct err *e)
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
    if (!s) {
        rc = err_set(e, ERR_CORRUPT, "%s: tensor %.200s is not in the file; use another checkpoint", file, key.p);
    } else if (s->dtype != (int)t->dtype || !shape_equal(&s->shape, &extent)) {
        rc = err_set(e, ERR_CORRUPT,
                     "%s: tensor %.200s: type or shape is not what the manifest says; use another checkpoint", file,
                     key.p);
    } else if (!c->verified[i][k]) {
        uint64_t found = hash64(s->p, s->bytes);
        if (found != b->hash)
            rc = err_set(e, ERR_CORRUPT,
                         "%s: tensor %.200s: its bytes have checksum %016" PRIx64 ", %016" PRIx64
                         " was written: the file is damaged; use another checkpoint",
                         file, key.p, found, b->hash);
        else
            c->verified[i][k] = true;
    }
    str_free(&key);
    *out = s;
    return rc;
}

int ckpt_read(struct ckpt *c, int64_t i, const struct region *box, enum dtype as, void *dst, struct err *e)
{
    CHECK(i >= 0 && i < c->m.n_tensors, "tensor %" PRId64 " of %d", i, c->m.n_tensors);
    const struct manifest_tensor *t = &c->m.tensors[i];
    struct region whole = region_whole(&t->shape);
    CHECK(box->nd == whole.nd && region_contains(&whole, box), "%s/%s: the box asked for is not inside", t->group,
          t->name);
    if (!convertible(t->dtype, as))
        return err_set(e, ERR_REQUEST, "%s: %s/%s: is stored as %s, which does not convert to %s", c->dir, t->group,
                       t->name, dtype_name(t->dtype), dtype_name(as));
    for (int k = 0; k < t->n_boxes; k++) {
        const struct manifest_box *b = &t->boxes[k];
        struct region part;
        const struct safetensors_entry *s;
        if (!region_intersect(box, &b->box, &part)) continue;
        int rc = stored_box(c, i, k, &s, e);
        if (rc < 0) return rc;
        convert_box(dst, as, box, s->p, t->dtype, &b->box, &part);
        safetensors_forget(c->files[b->file], s);
    }
    return OK;
}

/* -- a whole state ------------------------------------------------------------------------------------------ */

static void list(struct str *s, int *n, const char *what, const char *group, const char *name)
{
    if ((*n)++ >= MAX_LISTED) return;
    if (s->n) str_puts(s, "; ");
    str_printf(s, "%s/%s ", group, name);
    str_puts(s, what);
}

static bool is_wanted(const struct ckpt_tensor *want, int64_t n, const struct manifest_tensor *t)
{
    bool group = false;
    for (int64_t i = 0; i < n; i++) {
        if (strcmp(want[i].group, t->group)) continue;
        group = true;
        if (strcmp(want[i].name, t->name) == 0) return true;
    }
    return !group; /* a group that nobody asks for may stay in the file */
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

/* -- verifying ---------------------------------------------------------------------------------------------- */

static int verify_file(struct ckpt *c, int file, struct err *e)
{
    const struct manifest_file *f = &c->m.files[file];
    uint64_t found;
    int rc = OK;
    char *path = fs_join(c->dir, f->name);
    if (str_ends(f->name, ".safetensors")) {
        rc = open_file(c, file, e);
        size_t bytes = 0;
        const unsigned char *p = rc < 0 ? NULL : safetensors_header(c->files[file], 0, &bytes);
        found = hash64(p, bytes);
    } else {
        struct fs_map map;
        rc = fs_map_open(&map, path, e);
        found = rc < 0 ? 0 : hash64(map.p, map.bytes);
        if (rc == OK) fs_map_close(&map);
    }
    if (rc == OK && found != f->hash)
        rc = err_set(e, ERR_CORRUPT, "%s: checksum %016" PRIx64 ", %016" PRIx64 " was written: damaged", path, found,
                     f->hash);
    xfree(path);
    return rc;
}

int64_t ckpt_verify(struct ckpt *c, ckpt_problem_fn *bad, void *ctx)
{
    int64_t n_bad = 0;
    struct err e;
    for (int i = 0; i < c->m.n_files; i++)
        if (verify_file(c, i, &e) < 0) {
            n_bad++;
            bad(ctx, e.text);
        }
    for (int i = 0; i < c->m.n_tensors; i++)
        for (int k = 0; k < c->m.tensors[i].n_boxes; k++) {
            const struct safetensors_entry *s;
            if (!c->files[c->m.tensors[i].boxes[k].file]) continue; /* the file itself was told already */
            c->verified[i][k] = false;
            if (stored_box(c, i, k, &s, &e) < 0) {
                n_bad++;
                bad(ctx, e.text);
            } else {
                safetensors_forget(c->files[c->m.tensors[i].boxes[k].file], s);
            }
        }
    return n_bad;
}
