/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c: a tutti checkpoint and a Hugging Face directory behind the same few functions. Two rows of a table
 * would need the same eight slots; with two kinds and no third in sight, a branch per function is shorter.
 */
#include "checkpoint/weights.h"

#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "checkpoint/hf_advise.h"

#define FILE_LIMIT ((size_t)1 << 30)
#define PIECE_ELEMENTS ((int64_t)1 << 18)

struct weights {
    struct ckpt *ckpt; /* one of the two is set */
    struct hf *hf;
    struct hf_param *params; /* hf: names live here */
    bool averaged;           /* weights_average */
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
    if (rc == ERR_REQUEST && !theirs) (void)hf_advise(path, e);
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
    *out = w;
    return OK;
}

void weights_close(struct weights *w)
{
    if (!w) return;
    ckpt_close(w->ckpt);
    hf_close(w->hf);
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

struct ckpt_entry weights_at(const struct weights *w, int64_t i)
{
    CHECK(i >= 0 && i < weights_count(w), "tensor %lld", (long long)i);
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
    if (w->averaged) return weights_find(w, "ema", name);
    int64_t i = weights_find(w, "master", name);
    return i >= 0 ? i : weights_find(w, "param", name);
}

enum dtype weights_dtype(const struct weights *w)
{
    if (w->hf) return hf_dtype(w->hf, 0);
    const struct json *model = ckpt_extra(w->ckpt) ? json_get(ckpt_extra(w->ckpt), "model") : NULL;
    const char *name = model ? json_string(json_get(model, "torch_dtype"), NULL, "") : "";
    if (strcmp(name, "bfloat16") == 0) return DT_BF16;
    return strcmp(name, "float16") == 0 ? DT_F16 : DT_F32;
}

int weights_read(struct weights *w, int64_t i, const struct region *box, enum dtype as, void *dst, struct err *e)
{
    return w->hf ? hf_read(w->hf, i, box, as, dst, e) : ckpt_read(w->ckpt, i, box, as, dst, e);
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
