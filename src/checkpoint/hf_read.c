/* SPDX-License-Identifier: Apache-2.0 */
/* hf_read.c: a directory of Hugging Face as a source of our parameters.
 *
 * Opening matches every parameter with a tensor of the files, in both directions: one that is missing, one whose
 * shape differs and one that nothing asks for are all refused, because each means that the config says something
 * else than the weights, and training or generating would go on with a silently different model. Reading a box
 * cuts it out of slabs of the file (stored.c), transposing in cache-sized tiles where the two conventions differ. Their
 * files carry no checksums: what is checked is that header, sizes and model agree.
 */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "checkpoint/convert.h"
#include "checkpoint/hf.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/stored.h"

#define MAX_LISTED 5

struct hf {
    char *dir;
    struct hf_model model;
    struct safetensors *files;
    int64_t n;
    struct hf_param *params;
    const struct safetensors_entry **entries; /* per parameter */
};

/* Files of a bare model (GPT2Model) leave the prefix out. */
static const struct safetensors_entry *find_entry(const struct hf *h, const struct hf_param *p)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s", p->prefixed ? hf_prefix(h->model.family) : "", p->theirs);
    const struct safetensors_entry *t = safetensors_find(h->files, name);
    return t || !p->prefixed ? t : safetensors_find(h->files, p->theirs);
}

static void list(struct str *s, int64_t *n, const char *name, const char *text)
{
    if ((*n)++ < MAX_LISTED) str_printf(s, "%s%.120s %s", s->n ? "; " : "", name, text);
}

static void match_params(struct hf *h, bool *used, struct str *s, int64_t *n_bad)
{
    char x[128], y[128], text[320];
    for (int64_t i = 0; i < h->n; i++) {
        const struct hf_param *p = &h->params[i];
        const struct safetensors_entry *t = h->entries[i] = find_entry(h, p);
        bool again = i > 0 && t && t == h->entries[i - 1]; /* the next part of a fused tensor */
        if (!t) {
            list(s, n_bad, p->theirs, "is missing");
            continue;
        }
        used[t - safetensors_at(h->files, 0)] = true;
        if (again) continue;
        if (!shape_equal(&t->shape, &p->file_shape)) {
            snprintf(text, sizeof text, "is %s, config.json makes it %s", shape_print(x, &t->shape),
                     shape_print(y, &p->file_shape));
            list(s, n_bad, t->name, text);
        } else if (t->dtype < 0 || !dtype_info((enum dtype)t->dtype)->is_float) {
            snprintf(text, sizeof text, "has type %.20s; F32, BF16 or F16 is wanted", t->dtype_text);
            list(s, n_bad, t->name, text);
        }
    }
}

static int match(struct hf *h, struct err *e)
{
    struct str s = {0};
    int64_t n_bad = 0, n_files = safetensors_count(h->files);
    bool *used = xcalloc(to_size(n_files) + 1, sizeof *used);
    match_params(h, used, &s, &n_bad);
    for (int64_t i = 0; i < n_files; i++) {
        const char *name = safetensors_at(h->files, i)->name;
        if (!used[i] && !hf_is_ignored(&h->model, name)) list(&s, &n_bad, name, "has no place in this model");
    }
    xfree(used);
    int rc = OK;
    if (n_bad)
        rc = err_set(e, ERR_REQUEST, "%s: config.json and weights do not agree, %lld tensors differ: %s%s", h->dir,
                     (long long)n_bad, s.p, n_bad > MAX_LISTED ? "; ..." : "");
    str_free(&s);
    return rc;
}

int hf_open(struct hf **out, const char *dir, const struct hf_ignore *ignore, struct err *e)
{
    struct hf *h = xcalloc(1, sizeof *h);
    h->dir = xstrdup(dir);
    *out = NULL;
    int rc = hf_config_read(&h->model, dir, ignore, e);
    if (rc == OK) rc = safetensors_open(&h->files, dir, e);
    if (rc == OK && safetensors_count(h->files) == 0) rc = err_set(e, ERR_REQUEST, "%s: holds no tensors", dir);
    if (rc == OK) {
        h->n = hf_n_params(&h->model);
        h->params = xcalloc(to_size(h->n), sizeof *h->params);
        h->entries = xcalloc(to_size(h->n), sizeof *h->entries);
        for (int64_t i = 0; i < h->n; i++) h->params[i] = hf_param_at(&h->model, i);
        rc = match(h, e);
    }
    if (rc < 0) hf_close(h);
    else *out = h;
    return rc;
}

void hf_close(struct hf *h)
{
    if (!h) return;
    safetensors_close(h->files);
    xfree(h->params);
    xfree(h->entries);
    xfree(h->dir);
    xfree(h);
}

const struct hf_model *hf_model_get(const struct hf *h) { return &h->model; }

const char *hf_path(const struct hf *h) { return h->dir; }

int64_t hf_find(const struct hf *h, const char *name)
{
    for (int64_t i = 0; i < h->n; i++)
        if (strcmp(h->params[i].name, name) == 0) return i;
    return -1;
}

enum dtype hf_dtype(const struct hf *h, int64_t i)
{
    CHECK(i >= 0 && i < h->n, "parameter %lld", (long long)i);
    return (enum dtype)h->entries[i]->dtype;
}

struct reading {
    const struct hf_param *p;
    const struct region *box;
    struct region theirs; /* the same in their tensor */
    void *dst;
    enum dtype as, from;
};

static void take(void *ctx, const struct region *slab, const void *p)
{
    struct reading *x = ctx;
    struct region shared;
    if (region_intersect(slab, &x->theirs, &shared)) convert_box(x->dst, x->as, &x->theirs, p, x->from, slab, &shared);
}

/* Some of their rows become columns of ours. A slab has one row at least, and all of its columns but when a row is
 * huge. */
static void take_transposed(void *ctx, const struct region *slab, const void *p)
{
    struct reading *x = ctx;
    struct region shared;
    if (!region_intersect(slab, &x->theirs, &shared)) return;
    int64_t stride = slab->hi[1] - slab->lo[1], ins = x->box->hi[1] - x->box->lo[1];
    int64_t from = (shared.lo[0] - slab->lo[0]) * stride + shared.lo[1] - slab->lo[1];
    int64_t to = (shared.lo[1] - x->theirs.lo[1]) * ins + shared.lo[0] - x->theirs.lo[0];
    convert_transposed((unsigned char *)x->dst + to_size(to) * dtype_bytes(x->as), x->as, ins,
                       (const unsigned char *)p + to_size(from) * dtype_bytes(x->from), x->from, stride,
                       shared.hi[0] - shared.lo[0], shared.hi[1] - shared.lo[1]);
}

int hf_read(struct hf *h, int64_t i, const struct region *box, enum dtype as, void *dst, struct err *e)
{
    CHECK(i >= 0 && i < h->n, "parameter %lld", (long long)i);
    const struct hf_param *p = &h->params[i];
    const struct safetensors_entry *t = h->entries[i];
    struct region whole = region_whole(&p->shape);
    CHECK(box->nd == whole.nd && region_contains(&whole, box), "%s: the box asked for is not inside", p->name);
    if (!convertible((enum dtype)t->dtype, as))
        return err_set(e, ERR_REQUEST, "%s: %s does not convert to %s", h->dir, t->name, dtype_name(as));
    if (region_volume(box) == 0) return OK;
    struct stored f = {.file = h->files,
                       .t = t,
                       .box = region_whole(&p->their_shape),
                       .width = dtype_bytes((enum dtype)t->dtype)};
    struct reading x = {p, box, box->nd ? *box : whole, dst, as, (enum dtype)t->dtype};
    if (p->transposed) {
        x.theirs.lo[0] = box->lo[1], x.theirs.hi[0] = box->hi[1];
        x.theirs.lo[1] = p->offset + box->lo[0], x.theirs.hi[1] = p->offset + box->hi[0];
    } else {
        x.theirs.lo[0] += p->offset, x.theirs.hi[0] += p->offset;
    }
    return stored_each(&f, &x.theirs, p->transposed ? take_transposed : take, &x, e);
}
