/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c: a tutti checkpoint and a Hugging Face directory behind the same few functions. Two rows of a table
 * would need the same eight slots; with two kinds and no third in sight, a branch per function is shorter.
 */
#include "hub/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "checkpoint/convert.h"
#include "checkpoint/foreign_model.h"
#include "checkpoint/packed_read.h"
#include "hub/peft.h"

#define FILE_LIMIT ((size_t)1 << 30)
#define PIECE_ELEMENTS ((int64_t)1 << 18)

struct weights {
    struct ckpt *ckpt; /* one of the two is set */
    struct hf *hf;
    struct hf_param *params;    /* hf: names live here */
    struct packed_read *packed; /* matrices that the checkpoint has in few bits: tensors behind its own; NULL: none */
    bool averaged;              /* weights_average */
    double times;               /* weights_merge: what adapters are multiplied by; 0: they are left out */
    bool lengths;               /* and rows have lengths of their own (DoRA) */
    struct peft *peft;          /* weights_attach: these, */
    bool chosen;                /* or none, whatever the checkpoint has */
};

int weights_open(struct weights **out, const char *path, struct err *e)
{
    return weights_open_ignoring(out, path, NULL, e);
}

int weights_open_ignoring(struct weights **out, const char *path, const struct hf_ignore *ignore, struct err *e)
{
    struct weights *w = xcalloc(1, sizeof *w);
    char *config = fs_join(path, "config.json");
    bool theirs = fs_exists(config); /* also one that cannot be read: what is wrong with it is to be said */
    int rc = theirs ? hf_open(&w->hf, path, ignore, e) : ckpt_open(&w->ckpt, path, e);
    if (rc == ERR_REQUEST && !theirs) (void)foreign_model(path, e);
    xfree(config);
    *out = NULL;
    if (rc < 0) {
        xfree(w);
        return rc;
    }
    if (w->hf) {
        int64_t n = hf_n_params(hf_model_get(w->hf));
        w->params = xcalloc(to_size(n), sizeof *w->params);
        for (int64_t i = 0; i < n; i++) w->params[i] = hf_param_at(hf_model_get(w->hf), i);
    }
    if (w->ckpt) rc = packed_read_open(&w->packed, w->ckpt, weights_dtype(w), e);
    if (rc) weights_close(w);
    else *out = w;
    return rc;
}

void weights_close(struct weights *w)
{
    if (!w) return;
    packed_read_close(w->packed);
    ckpt_close(w->ckpt);
    hf_close(w->hf);
    peft_close(w->peft);
    xfree(w->params);
    xfree(w);
}

struct ckpt *weights_ckpt(const struct weights *w) { return w->ckpt; }

const char *weights_path(const struct weights *w) { return w->hf ? hf_path(w->hf) : ckpt_path(w->ckpt); }

int weights_model(const struct weights *w, struct hf_model *m, struct err *e)
{
    if (w->hf) {
        *m = *hf_model_get(w->hf);
        return OK;
    }
    const struct json *extra = ckpt_extra(w->ckpt), *model = extra ? json_get(extra, "model") : NULL;
    if (!model)
        return err_set(e, ERR_REQUEST, "%s: its manifest does not say what the model is (extra.model is absent)",
                       ckpt_path(w->ckpt));
    int rc = hf_config_parse(m, model, NULL, "manifest.json: extra.model", e);
    return rc == OK ? OK : err_prefix(e, "%s", ckpt_path(w->ckpt));
}

int weights_file(const struct weights *w, const char *name, char **text, size_t *n, struct err *e)
{
    *text = NULL;
    *n = 0;
    if (w->ckpt) return ckpt_attachment(w->ckpt, name, text, n, e);
    char *path = fs_join(hf_path(w->hf), name);
    int rc = fs_exists(path) ? fs_read_all(path, FILE_LIMIT, text, n, e) : OK;
    xfree(path);
    return rc;
}

int64_t weights_count(const struct weights *w)
{
    return w->hf ? hf_n_params(hf_model_get(w->hf)) : ckpt_count(w->ckpt);
}

int64_t weights_count_all(const struct weights *w) { return weights_count(w) + packed_read_count(w->packed); }

/* Of those that it has in few bits; -1: tensor i is another. */
static int64_t packed_of(const struct weights *w, int64_t i)
{
    return w->packed && i >= weights_count(w) ? i - weights_count(w) : -1;
}

struct ckpt_entry weights_at(const struct weights *w, int64_t i)
{
    CHECK(i >= 0 && i < weights_count_all(w), "tensor %lld", (long long)i);
    if (packed_of(w, i) >= 0) return packed_read_at(w->packed, packed_of(w, i));
    if (w->ckpt) return ckpt_at(w->ckpt, i);
    return (struct ckpt_entry){.group = "param",
                               .name = w->params[i].name,
                               .dtype = hf_dtype(w->hf, i),
                               .shape = w->params[i].shape,
                               .n_boxes = 1};
}

int64_t weights_find(const struct weights *w, const char *group, const char *name)
{
    if (w->ckpt) return ckpt_find(w->ckpt, group, name);
    return strcmp(group, "param") ? -1 : hf_find(w->hf, name);
}

int weights_average(struct weights *w, struct err *e)
{
    for (int64_t i = 0, n = w->ckpt ? ckpt_count(w->ckpt) : 0; i < n; i++)
        if (!strcmp(ckpt_at(w->ckpt, i).group, "ema")) {
            w->averaged = true;
            return OK;
        }
    return err_set(e, ERR_REQUEST, "%s holds no averaged weights: it was not trained with optimizer.ema",
                   weights_path(w));
}

int64_t weights_find_param(const struct weights *w, const char *name)
{
    int64_t i = w->averaged ? weights_find(w, "ema", name) : -1; /* what is not trained has no average */
    if (i >= 0) return i;
    i = weights_find(w, "master", name);
    if (i < 0) i = weights_find(w, "param", name);
    if (i >= 0 || !w->packed) return i;
    i = packed_read_find(w->packed, name);
    return i >= 0 ? weights_count(w) + i : -1;
}

enum dtype weights_dtype(const struct weights *w)
{
    if (w->hf) return hf_dtype(w->hf, 0);
    const struct json *model = ckpt_extra(w->ckpt) ? json_get(ckpt_extra(w->ckpt), "model") : NULL;
    const char *name = model ? json_string(json_get(model, "torch_dtype"), NULL, "") : "";
    if (strcmp(name, "bfloat16") == 0) return DT_BF16;
    return strcmp(name, "float16") == 0 ? DT_F16 : DT_F32;
}

/* ---- adapters ---- */
int weights_merge(struct weights *w, struct err *e)
{
    const struct json *extra = w->ckpt ? ckpt_extra(w->ckpt) : NULL, *a = extra ? json_get(extra, "adapter") : NULL;
    if (!a || w->chosen) return OK;
    const char *kind = json_string(json_get(a, "kind"), NULL, "");
    w->lengths = !strcmp(kind, "dora");
    if (!w->lengths && strcmp(kind, "lora"))
        return err_set(e, ERR_REQUEST,
                       "%s: has adapters of kind \"%.40s\", which this program cannot merge; it can lora and dora",
                       weights_path(w), kind);
    w->times = json_real(json_get(a, "times"), 0);
    if (!isfinite(w->times)) return err_set(e, ERR_CORRUPT, "%s: extra.adapter.times is no number", weights_path(w));
    return OK;
}

/* The adapter's matrix beside tensor i, a matrix of weights; -1: it has none. */
static int64_t adapter_of(const struct weights *w, int64_t i, char which)
{
    if (!w->ckpt || w->times == 0) return -1;
    struct ckpt_entry t = weights_at(w, i);
    char name[128];
    size_t n = strlen(t.name), end = strlen(".weight");
    if (t.shape.nd != 2 || n <= end || n > 100 || strcmp(t.name + n - end, ".weight")) return -1;
    snprintf(name, sizeof name, "%.*s.lora_%c", (int)(n - end), t.name, which);
    return weights_find(w, t.group, name);
}

static int read_plain(struct weights *w, int64_t i, const struct region *box, enum dtype as, void *dst, struct err *e)
{
    if (packed_of(w, i) >= 0) return packed_read_box(w->packed, packed_of(w, i), box, as, dst, e);
    return w->hf ? hf_read(w->hf, i, box, as, dst, e) : ckpt_read(w->ckpt, i, box, as, dst, e);
}

/* What is added to a matrix, from the first row and column of what is read on: a [r, of rows `stride` long], b [, r].
 */
struct added {
    const float *a, *b;
    int64_t stride, r;
    double times;
    const float *lengths; /* of each row; NULL: as they are */
    bool whole;           /* all of the length, else what is added to that of W */
};

static double length_of(const double *x, int64_t n)
{
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += x[i] * x[i];
    return sqrt(squares);
}

/* Rows of W + times B A at their lengths, in double: x holds W's. */
static void add_rows(double *x, int64_t rows, int64_t cols, const struct added *d)
{
    for (int64_t n = 0; n < rows; n++, x += cols) {
        double was = d->lengths && !d->whole ? length_of(x, cols) : 0;
        for (int64_t k = 0; k < d->r; k++) {
            double by = d->times * (double)d->b[n * d->r + k];
            for (int64_t m = 0; m < cols; m++) x[m] += by * (double)d->a[k * d->stride + m];
        }
        double is = d->lengths ? length_of(x, cols) : 0;
        for (int64_t m = 0; m < cols && is > 0; m++) x[m] *= (was + (double)d->lengths[n]) / is;
    }
}

/* The columns that a sum is made of: a length is of whole rows. */
static struct region wide_of(const struct weights *w, int64_t i, const struct region *box, bool lengths)
{
    struct region wide = *box;
    if (lengths) wide.lo[1] = 0, wide.hi[1] = weights_at(w, i).shape.n[1];
    return wide;
}

/* A box of W with what is added, rounded once; d begins where wide_of it does. */
static int read_sum(struct weights *w, int64_t i, const struct added *d, const struct region *box, enum dtype as,
                    void *dst, struct err *e)
{
    const struct region wide = wide_of(w, i, box, d->lengths);
    int64_t rows = box->hi[0] - box->lo[0], cols = box->hi[1] - box->lo[1], all = wide.hi[1] - wide.lo[1];
    double *sum = xmalloc(to_size(rows * all + 1) * sizeof *sum);
    int rc = read_plain(w, i, &wide, DT_F64, sum, e);
    if (!rc) add_rows(sum, rows, all, d);
    for (int64_t n = 0; n < rows && !rc && cols < all; n++)
        memmove(sum + n * cols, sum + n * all + box->lo[1] - wide.lo[1], to_size(cols) * sizeof *sum);
    if (!rc) convert(dst, as, sum, DT_F64, rows * cols);
    xfree(sum);
    return rc;
}

static int read_attached(struct weights *w, int64_t i, const struct peft_matrix *m, const struct region *box,
                         enum dtype as, void *dst, struct err *e)
{
    const struct region wide = wide_of(w, i, box, m->lengths);
    int64_t r = peft_rank(w->peft);
    struct added d = {.a = m->a + wide.lo[1],
                      .b = m->b + box->lo[0] * r,
                      .stride = weights_at(w, i).shape.n[1],
                      .r = r,
                      .times = peft_times(w->peft),
                      .lengths = m->lengths ? m->lengths + box->lo[0] : NULL,
                      .whole = true};
    return read_sum(w, i, &d, box, as, dst, e);
}

int weights_attach(struct weights *w, const char *dir, struct err *e)
{
    struct hf_model m;
    int rc = weights_model(w, &m, e);
    w->chosen = true;
    w->times = 0;
    return rc || !dir ? rc : peft_open(&w->peft, dir, w, &m, e);
}

/* The same with the checkpoint's own; m: of lengths, else -1. */
static int read_merged(struct weights *w, int64_t i, int64_t a, int64_t b, int64_t m, const struct region *box,
                       enum dtype as, void *dst, struct err *e)
{
    struct shape sa = ckpt_at(w->ckpt, a).shape, sb = ckpt_at(w->ckpt, b).shape, sw = weights_at(w, i).shape;
    bool fits = sa.nd == 2 && sb.nd == 2 && sa.n[0] == sb.n[1] && sa.n[1] == sw.n[1] && sb.n[0] == sw.n[0];
    if (fits && m >= 0) fits = ckpt_at(w->ckpt, m).shape.nd == 1 && ckpt_at(w->ckpt, m).shape.n[0] == sw.n[0];
    if (!fits)
        return err_set(e, ERR_CORRUPT, "%s: the adapter of %s does not have its shape", weights_path(w),
                       weights_at(w, i).name);
    const struct region wide = wide_of(w, i, box, m >= 0);
    int64_t rows = box->hi[0] - box->lo[0], cols = wide.hi[1] - wide.lo[1], r = sa.n[0];
    struct region box_a = {.nd = 2, .lo = {0, wide.lo[1]}, .hi = {r, wide.hi[1]}},
                  box_b = {.nd = 2, .lo = {box->lo[0], 0}, .hi = {box->hi[0], r}},
                  box_m = {.nd = 1, .lo = {box->lo[0]}, .hi = {box->hi[0]}};
    float *va = xmalloc(to_size(r * cols + rows * r + rows + 1) * sizeof *va), *vb = va + r * cols, *vm = vb + rows * r;
    int rc = ckpt_read(w->ckpt, a, &box_a, DT_F32, va, e);
    if (!rc) rc = ckpt_read(w->ckpt, b, &box_b, DT_F32, vb, e);
    if (!rc && m >= 0) rc = ckpt_read(w->ckpt, m, &box_m, DT_F32, vm, e);
    struct added d = {.a = va, .b = vb, .stride = cols, .r = r, .times = w->times, .lengths = m >= 0 ? vm : NULL};
    if (!rc) rc = read_sum(w, i, &d, box, as, dst, e);
    xfree(va);
    return rc;
}

int weights_read(struct weights *w, int64_t i, const struct region *box, enum dtype as, void *dst, struct err *e)
{
    struct peft_matrix own;
    if (w->peft && peft_find(w->peft, weights_at(w, i).name, &own)) return read_attached(w, i, &own, box, as, dst, e);
    int64_t a = adapter_of(w, i, 'a'), b = adapter_of(w, i, 'b'), m = w->lengths ? adapter_of(w, i, 'm') : -1;
    if (a < 0 || b < 0) return read_plain(w, i, box, as, dst, e);
    if (w->lengths && m < 0)
        return err_set(e, ERR_CORRUPT, "%s: the adapter of %s has no lengths", weights_path(w), weights_at(w, i).name);
    return read_merged(w, i, a, b, m, box, as, dst, e);
}

int weights_lengths(struct weights *w, int64_t i, int64_t first, int64_t n, double *out, struct err *e)
{
    int64_t cols = weights_at(w, i).shape.n[1];
    double *row = xmalloc(to_size(cols + 1) * sizeof *row);
    int rc = OK;
    for (int64_t r = 0; r < n && !rc; r++) {
        struct region box = {.nd = 2, .lo = {first + r, 0}, .hi = {first + r + 1, cols}};
        rc = weights_read(w, i, &box, DT_F64, row, e);
        if (!rc) out[r] = length_of(row, cols);
    }
    xfree(row);
    return rc;
}

int weights_range(struct weights *w, int64_t i, const struct region *box, int64_t offset, size_t bytes, void *dst,
                  struct err *e)
{
    struct region parts[REGION_STRETCH];
    enum dtype type = weights_at(w, i).dtype;
    int64_t size = (int64_t)dtype_bytes(type);
    int code = OK, n = region_stretch(box, offset / size, (int64_t)bytes / size, parts);
    char *to = dst;
    for (int k = 0; k < n && !code; k++) {
        code = weights_read(w, i, &parts[k], type, to, e);
        to += region_volume(&parts[k]) * size;
    }
    return code;
}

int weights_scan(struct weights *w, int64_t i, weights_scan_fn *fn, void *ctx, struct err *e)
{
    struct ckpt_entry t = weights_at(w, i);
    struct region band = region_whole(&t.shape);
    int64_t rows = t.shape.nd ? t.shape.n[0] : 1, all = region_volume(&band);
    if (all == 0) return OK;
    int64_t row = all / rows, step = row < PIECE_ELEMENTS ? PIECE_ELEMENTS / row : 1;
    if (step > rows) step = rows;
    bool real = dtype_info(t.dtype)->is_float;
    double *x = xmalloc(to_size(step * row) * sizeof *x);
    int rc = OK;
    if (!real)
        rc = err_set(e, ERR_REQUEST, "%s: %s/%s holds %s, not numbers with a point", weights_path(w), t.group, t.name,
                     dtype_name(t.dtype));
    for (int64_t at = 0; at < rows && rc == OK; at += step) {
        int64_t n = rows - at < step ? rows - at : step;
        if (t.shape.nd) {
            band.lo[0] = at;
            band.hi[0] = at + n;
        }
        rc = weights_read(w, i, &band, DT_F64, x, e);
        if (rc == OK) fn(ctx, x, n * row);
    }
    xfree(x);
    return rc;
}
