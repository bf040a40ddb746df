/* SPDX-License-Identifier: Apache-2.0 */
/* hf_read.c: a directory of Hugging Face as a source of our parameters.
 *
 * Opening matches every parameter with a tensor of the files, in both directions: one that is missing, one whose
 * shape differs and one that nothing asks for are all refused, because each means that the config says something
 * else than the weights, and training or generating would go on with a silently different model. Reading a box
 * cuts it out of slabs of the file (stored_box.c), transposing in cache-sized tiles where the two conventions differ.
 * Their files carry no checksums: what is checked is that header, sizes and model agree.
 */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/convert.h"
#include "hub/hf.h"
#include "hub/hf_copies.h"
#include "hub/hf_generation.h"
#include "hub/mxfp4.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/stored_box.h"

#define MAX_LISTED 5

struct hf {
    char *dir;
    struct hf_model model;
    struct safetensors *files;
    int64_t n;
    struct hf_param *params;
    const struct safetensors_entry **entries; /* per parameter; of codes (mxfp4.h): their blocks, */
    const struct safetensors_entry **scales;  /* and their scales; else NULL */
};

/* Early files of BERT call what a norm multiplies with gamma, and what it adds beta. */
static const struct safetensors_entry *find_named(const struct hf *h, const char *name)
{
    static const char *const older[2][2] = {{"LayerNorm.weight", "gamma"}, {"LayerNorm.bias", "beta"}};
    const struct safetensors_entry *t = safetensors_find(h->files, name);
    for (int i = 0; !t && i < 2; i++) {
        char other[128];
        if (!str_ends(name, older[i][0])) continue;
        snprintf(other, sizeof other, "%.*s.%s", (int)(strrchr(name, '.') - name), name, older[i][1]);
        t = safetensors_find(h->files, other);
    }
    return t;
}

/* Files of a bare model (GPT2Model) leave the prefix out. */
static const struct safetensors_entry *find_entry(const struct hf *h, const struct hf_param *p)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s", p->prefixed ? hf_prefix(h->model.family) : "", p->theirs);
    const struct safetensors_entry *t = find_named(h, name);
    static const char inner[] = "vision_model."; /* transformers 5 leaves it out */
    char *tower = t ? NULL : strstr(name, inner);
    if (tower) {
        memmove(tower, tower + strlen(inner), strlen(tower + strlen(inner)) + 1);
        t = find_named(h, name);
    }
    return t || !p->prefixed ? t : find_named(h, p->theirs);
}

/* Codes instead: NAME_blocks and NAME_scales. */
static const struct safetensors_entry *find_codes(const struct hf *h, const struct hf_param *p, const char *end)
{
    struct hf_param q = *p;
    if (!p->first && !p->transposed) return NULL;
    snprintf(q.theirs, sizeof q.theirs, "%.80s_%s", p->theirs, end);
    return find_entry(h, &q);
}

static void list(struct str *s, int64_t *n, const char *name, const char *text)
{
    if ((*n)++ < MAX_LISTED) str_printf(s, "%s%.120s %s", s->n ? "; " : "", name, text);
}

/* What is wrong with codes and scales; NULL: nothing. */
static const char *codes_wrong(const struct hf *h, int64_t i)
{
    const struct safetensors_entry *codes = h->entries[i], *scales = h->scales[i];
    const struct shape *s = &h->params[i].file_shape;
    if (!scales) return "has no _scales beside it";
    if (s->nd != 3 || s->n[1] % MXFP4_BLOCK) return "is of blocks of 32 values, and config.json makes no such rows";
    struct shape want = {.nd = 4, .n = {s->n[0], s->n[2], s->n[1] / MXFP4_BLOCK, MXFP4_BLOCK / 2}};
    bool fits = shape_equal(&codes->shape, &want);
    want.nd = 3;
    fits = fits && shape_equal(&scales->shape, &want);
    return fits && codes->dtype == DT_U8 && scales->dtype == DT_U8
               ? NULL
               : "and its _scales are no MXFP4 blocks of that tensor";
}

static void match_params(struct hf *h, bool *used, struct str *s, int64_t *n_bad)
{
    char x[128], y[128], text[320];
    for (int64_t i = 0; i < h->n; i++) {
        const struct hf_param *p = &h->params[i];
        const struct safetensors_entry *t = find_entry(h, p), *codes = t ? NULL : find_codes(h, p, "blocks");
        if (codes) {
            h->scales[i] = find_codes(h, p, "scales");
            t = codes;
        }
        h->entries[i] = t;
        bool again = i > 0 && t && t == h->entries[i - 1]; /* the next part of a fused tensor */
        if (!t) {
            snprintf(x, sizeof x, "%s%s", p->prefixed ? hf_prefix(h->model.family) : "", p->theirs);
            const char *file = safetensors_promised(h->files, x);
            snprintf(text, sizeof text, "is missing%s%.100s", file ? ", though the index names it in " : "",
                     file ? file : "");
            list(s, n_bad, p->theirs, text);
            continue;
        }
        used[t - safetensors_at(h->files, 0)] = true;
        if (h->scales[i]) used[h->scales[i] - safetensors_at(h->files, 0)] = true;
        if (again) continue;
        if (codes) {
            const char *wrong = codes_wrong(h, i);
            if (wrong) list(s, n_bad, codes->name, wrong);
            continue;
        }
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

/* Their library keeps the number of modules for further tokens and writes none: then there is none. */
static void settle_modules(struct hf *h)
{
    struct model_config *m = &h->model.model;
    char start[96];
    bool any = false;
    snprintf(start, sizeof start, "%slayers.%lld.", hf_prefix(h->model.family), (long long)m->layers);
    for (int64_t i = 0; m->mtp.depth && !any && i < safetensors_count(h->files); i++)
        any = !strncmp(safetensors_at(h->files, i)->name, start, strlen(start));
    if (!any) m->mtp.depth = 0;
}

/* The parameter of that name in a model that shares no table. */
static struct hf_param param_named(const struct hf_model *m, const char *name)
{
    struct hf_model whole = *m;
    struct hf_param p = {.name = ""};
    whole.model.tie_embeddings = false;
    for (int64_t i = 0, n = hf_n_params(&whole); i < n && strcmp(p.name, name) != 0; i++) p = hf_param_at(&whole, i);
    CHECK(!strcmp(p.name, name), "the model has no %s", name);
    return p;
}

/* Files that say that the output matrix is the embedding, and hold one beside it that is not: it counts, as in releases
 * of their library from 5 on. Those write it of every T5, whatever its matrix. */
static int settle_head(struct hf *h, struct err *e)
{
    struct hf_param head, table;
    bool same = false;
    if (!h->model.model.tie_embeddings) return OK;
    head = param_named(&h->model, "head.weight");
    table = param_named(&h->model, "embed.token");
    const struct safetensors_entry *a = find_entry(h, &head), *b = find_entry(h, &table);
    int rc = a && b ? hf_same_values(h->files, a, b, &same, e) : OK;
    if (rc || !a || !b || same) return rc;
    if (!model_pairs(&h->model.model))
        log_warn("%s: config.json says that %s is the embedding, and the files hold another one: that counts here, as "
                 "in transformers 5; transformers 4 passes it over",
                 h->dir, a->name);
    hf_untie(&h->model);
    return OK;
}

int hf_open(struct hf **out, const char *dir, const struct hf_ignore *ignore, struct err *e)
{
    struct hf *h = xcalloc(1, sizeof *h);
    h->dir = xstrdup(dir);
    *out = NULL;
    int rc = hf_config_read(&h->model, dir, ignore, e);
    if (rc == OK) rc = hf_generation_ends(&h->model, dir, e);
    if (rc == OK) rc = safetensors_open(&h->files, dir, e);
    if (rc == OK && safetensors_count(h->files) == 0) rc = err_set(e, ERR_REQUEST, "%s: holds no tensors", dir);
    if (rc == OK) rc = settle_head(h, e);
    if (rc == OK) rc = hf_copies_check(&h->model, h->files, h->dir, e);
    if (rc == OK) {
        settle_modules(h);
        h->n = hf_n_params(&h->model);
        h->params = xcalloc(to_size(h->n), sizeof *h->params);
        h->entries = xcalloc(to_size(h->n), sizeof *h->entries);
        h->scales = xcalloc(to_size(h->n), sizeof *h->scales);
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
    xfree(h->scales);
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
    return h->scales[i] ? DT_BF16 : (enum dtype)h->entries[i]->dtype; /* bf16 holds what codes stand for */
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
 * huge. Of columns that alternate with another's these are picked out first. */
static void take_transposed(void *ctx, const struct region *slab, const void *p)
{
    struct reading *x = ctx;
    struct region shared;
    if (!region_intersect(slab, &x->theirs, &shared)) return;
    int64_t stride = slab->hi[1] - slab->lo[1], ins = x->theirs.hi[0] - x->theirs.lo[0], step = x->p->step;
    int64_t rows = shared.hi[0] - shared.lo[0], o = (shared.lo[1] - x->theirs.lo[1] + step - 1) / step;
    int64_t first = x->theirs.lo[1] + o * step, cols = first < shared.hi[1] ? (shared.hi[1] - first - 1) / step + 1 : 0;
    int64_t to = o * ins + shared.lo[0] - x->theirs.lo[0];
    size_t each = dtype_bytes(x->from);
    const unsigned char *from =
        (const unsigned char *)p + to_size((shared.lo[0] - slab->lo[0]) * stride + first - slab->lo[1]) * each;
    unsigned char *picked = step > 1 && cols ? xmalloc(to_size(rows * cols) * each) : NULL;
    for (int64_t k = 0; picked && k < rows * cols; k++)
        memcpy(picked + to_size(k) * each, from + to_size(k / cols * stride + k % cols * step) * each, each);
    if (cols)
        convert_transposed((unsigned char *)x->dst + to_size(to) * dtype_bytes(x->as), x->as, ins,
                           picked ? picked : from, x->from, picked ? cols : stride, rows, cols);
    xfree(picked);
}

/* ---- codes ---- */
/* Their rows are ours: row `offset + step * o` of the expert's, of blocks. */
struct decoding {
    const struct hf_param *p;
    int64_t first, step, outs; /* their row of the first of ours; how far apart; how many */
    int64_t lo, n;             /* columns of ours */
    unsigned char *scales;     /* of rows first .. of theirs, of the blocks that the columns are in */
    struct region blocks;      /* whose they are */
    void *dst;
    enum dtype as;
    float *row;
};

static void take_scales(void *ctx, const struct region *slab, const void *p)
{
    struct decoding *x = ctx;
    struct region shared;
    if (region_intersect(slab, &x->blocks, &shared)) convert_box(x->scales, DT_U8, &x->blocks, p, DT_U8, slab, &shared);
}

static void take_codes(void *ctx, const struct region *slab, const void *p)
{
    struct decoding *x = ctx;
    int64_t stride = slab->hi[1] - slab->lo[1], blocks = x->blocks.hi[1] - x->blocks.lo[1];
    int64_t lo = slab->lo[1] * 2 > x->lo ? slab->lo[1] * 2 : x->lo, end = x->lo + x->n;
    if (slab->hi[1] * 2 < end) end = slab->hi[1] * 2;
    for (int64_t r = slab->lo[0]; r < slab->hi[0] && lo < end; r++) {
        int64_t o = (r - x->first) / x->step;
        if (r < x->first || (r - x->first) % x->step || o >= x->outs) continue;
        mxfp4_decode(x->row, (const unsigned char *)p + (r - slab->lo[0]) * stride - slab->lo[1],
                     x->scales + (r - x->first) * blocks - x->blocks.lo[1], lo, end - lo);
        convert((unsigned char *)x->dst + to_size(o * x->n + lo - x->lo) * dtype_bytes(x->as), x->as, x->row, DT_F32,
                end - lo);
    }
}

static int read_codes(struct hf *h, int64_t i, const struct region *box, enum dtype as, void *dst, struct err *e)
{
    const struct hf_param *p = &h->params[i];
    int64_t ins = p->shape.n[1], outs = p->their_shape.n[1], experts = p->their_shape.n[0] / ins;
    struct decoding x = {.p = p,
                         .first = p->first / ins * outs + p->offset + p->step * box->lo[0],
                         .step = p->step,
                         .outs = box->hi[0] - box->lo[0],
                         .lo = box->lo[1],
                         .n = box->hi[1] - box->lo[1],
                         .dst = dst,
                         .as = as};
    int64_t last = x.first + (x.outs - 1) * x.step, end = x.lo + x.n;
    x.blocks = (struct region){.nd = 2,
                               .lo = {x.first, x.lo / MXFP4_BLOCK},
                               .hi = {last + 1, (end + MXFP4_BLOCK - 1) / MXFP4_BLOCK}};
    struct region codes = {.nd = 2, .lo = {x.first, x.lo / 2}, .hi = {last + 1, (end + 1) / 2}};
    struct stored_box s = {.file = h->files,
                           .t = h->scales[i],
                           .box = {.nd = 2, .hi = {experts * outs, ins / MXFP4_BLOCK}},
                           .width = 1};
    struct stored_box c = {.file = h->files,
                           .t = h->entries[i],
                           .box = {.nd = 2, .hi = {experts * outs, ins / 2}},
                           .width = 1};
    x.scales = xmalloc(to_size(region_volume(&x.blocks)));
    x.row = xmalloc(to_size(x.n) * sizeof *x.row);
    int rc = stored_each(&s, &x.blocks, take_scales, &x, e);
    if (rc == OK) rc = stored_each(&c, &codes, take_codes, &x, e);
    xfree(x.scales);
    xfree(x.row);
    return rc;
}

int hf_read(struct hf *h, int64_t i, const struct region *box, enum dtype as, void *dst, struct err *e)
{
    CHECK(i >= 0 && i < h->n, "parameter %lld", (long long)i);
    const struct hf_param *p = &h->params[i];
    const struct safetensors_entry *t = h->entries[i];
    struct region whole = region_whole(&p->shape);
    CHECK(box->nd == whole.nd && region_contains(&whole, box), "%s: the box asked for is not inside", p->name);
    if (!convertible(hf_dtype(h, i), as))
        return err_set(e, ERR_REQUEST, "%s: %s does not convert to %s", h->dir, t->name, dtype_name(as));
    if (region_volume(box) == 0) return OK;
    if (h->scales[i]) return read_codes(h, i, box, as, dst, e);
    struct stored_box f = {.file = h->files,
                           .t = t,
                           .box = region_whole(&p->their_shape),
                           .width = dtype_bytes((enum dtype)t->dtype)};
    struct reading x = {p, box, box->nd ? *box : whole, dst, as, (enum dtype)t->dtype};
    if (p->transposed) {
        x.theirs = region_whole(&p->their_shape);
        x.theirs.lo[0] = p->first + (box->nd > 1 ? box->lo[1] : 0);
        x.theirs.hi[0] = p->first + (box->nd > 1 ? box->hi[1] : 1);
        x.theirs.lo[1] = p->offset + p->step * box->lo[0];
        x.theirs.hi[1] = p->offset + p->step * (box->hi[0] - 1) + 1;
    } else {
        x.theirs.lo[0] += p->offset, x.theirs.hi[0] += p->offset;
    }
    return stored_each(&f, &x.theirs, p->transposed ? take_transposed : take, &x, e);
}
