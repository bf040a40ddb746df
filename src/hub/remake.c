/* SPDX-License-Identifier: Apache-2.0 */
/* remake.c: the writer asks for bytes of a box when they are due; here they are read from other checkpoints then. So
 * neither side holds a model, and both of its ends are the ones that training uses: ckpt_read compares with checksums,
 * ckpt_save_publish proves that the boxes tile every tensor. */
#include "hub/remake.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "checkpoint/convert.h"
#include "checkpoint/manifest.h"

/* -- where it goes ------------------------------------------------------------------------------------------- */

/* What an unfinished call leaves begins with a dot; anything else is somebody's. */
static int check_new(const char *out, struct err *e)
{
    char **names;
    int n, code;
    if (!fs_exists(out)) return OK;
    code = fs_list(out, &names, &n, e);
    if (code) return code;
    for (int i = 0; i < n && !code; i++)
        if (*names[i] != '.')
            code = err_set(e, ERR_REQUEST, "%s: is not empty (it holds %s); give a new directory", out, names[i]);
    fs_list_free(names, n);
    return code;
}

/* -- what goes with the tensors ------------------------------------------------------------------------------ */

struct beside {
    struct ckpt_attachment *attachments;
    int n;
    struct str extra;
};

/* Only its owner may read it: a config with secrets (ckpt_attachment.private), whose copy is no more for others. */
static bool is_private(const struct ckpt *c, const char *name)
{
    struct stat st;
    char *path = fs_join(ckpt_path(c), name);
    bool is = !stat(path, &st) && !(st.st_mode & (S_IRWXG | S_IRWXO));
    xfree(path);
    return is;
}

static int beside_read(struct beside *b, const struct ckpt *c, struct err *e)
{
    int code = OK, most = ckpt_n_attachments(c);
    b->attachments = xcalloc(to_size(most) + 1, sizeof *b->attachments);
    for (int i = 0; i < most && !code; i++) {
        char *text;
        size_t bytes;
        const char *name = ckpt_attachment_name(c, i);
        code = ckpt_attachment(c, name, &text, &bytes, e);
        if (!code)
            b->attachments[b->n++] =
                (struct ckpt_attachment){.name = name, .p = text, .bytes = bytes, .private = is_private(c, name)};
    }
    struct json_out o = {.s = &b->extra};
    if (!code && ckpt_extra(c)) json_put_value(&o, NULL, ckpt_extra(c));
    return code;
}

static void beside_free(struct beside *b)
{
    for (int i = 0; i < b->n; i++) xfree((void *)b->attachments[i].p);
    xfree(b->attachments);
    str_free(&b->extra);
}

static struct ckpt_info info_of(const struct ckpt *c, const struct beside *b)
{
    return (struct ckpt_info){.step = ckpt_step(c),
                              .tokens = ckpt_tokens(c),
                              .seed = ckpt_seed(c),
                              .extra = b->extra.n ? str_text(&b->extra) : NULL,
                              .attachments = b->attachments,
                              .n_attachments = b->n};
}

/* -- the same state in other files --------------------------------------------------------------------------- */

/* One tensor's box in one of the new files. */
struct source_box {
    struct weights *from;
    int64_t i;
    struct region box;
};

static int copy_range(void *ctx, int64_t offset, size_t bytes, void *dst, struct err *e)
{
    const struct source_box *s = ctx;
    return weights_range(s->from, s->i, &s->box, offset, bytes, dst, e);
}
static const struct ckpt_access copy_access = {.to_host = copy_range};

static int64_t tensor_bytes(struct ckpt_entry t) { return shape_numel(&t.shape) * (int64_t)dtype_bytes(t.dtype); }

/* The first row of t that lies at or behind `at` bytes from its beginning. */
static int64_t row_at(struct ckpt_entry t, int64_t at)
{
    int64_t rows = t.shape.nd ? t.shape.n[0] : 1, bytes = tensor_bytes(t);
    if (at <= 0 || !bytes) return 0;
    if (at >= bytes) return rows;
    int64_t row = bytes / rows;
    return (at + row - 1) / row;
}

/* What file k of n holds: of all bytes, one behind the other, those of its share. A tensor without dimensions or
 * without bytes lies where its beginning does. Returns how many tensors it holds some of. */
static int64_t share_of(struct weights *from, int k, int n, struct ckpt_tensor *t, struct source_box *boxes)
{
    int64_t all = 0, at = 0, lo, hi, held = 0;
    for (int64_t i = 0; i < weights_count(from); i++) all += tensor_bytes(weights_at(from, i));
    region_split(all, k, n, &lo, &hi);
    for (int64_t i = 0; i < weights_count(from); at += tensor_bytes(weights_at(from, i++))) {
        struct ckpt_entry x = weights_at(from, i);
        struct region box = region_whole(&x.shape);
        bool whole = !x.shape.nd || !region_volume(&box), here = at >= lo && (at < hi || k == n - 1);
        if (!whole) {
            box.lo[0] = row_at(x, lo - at);
            box.hi[0] = row_at(x, hi - at);
        }
        if (whole ? !here : !region_volume(&box)) continue;
        boxes[held] = (struct source_box){.from = from, .i = i, .box = box};
        t[held] = (struct ckpt_tensor){.group = x.group,
                                       .name = x.name,
                                       .dtype = x.dtype,
                                       .shape = x.shape,
                                       .box = box,
                                       .access = &copy_access,
                                       .ctx = &boxes[held]};
        held++;
    }
    return held;
}

int remake_reshard(struct weights *from, const char *out, int n_files, struct err *e)
{
    struct ckpt *c = weights_ckpt(from);
    int64_t n = weights_count(from), bytes = 0;
    CHECK(c, "what is resharded is no checkpoint of tutti");
    CHECK(n_files > 0 && n_files <= REMAKE_FILES_MOST, "%d files", n_files);
    struct ckpt_tensor *t = xcalloc(to_size(n) + 1, sizeof *t);
    struct source_box *boxes = xcalloc(to_size(n) + 1, sizeof *boxes);
    struct beside b = {0};
    for (int64_t i = 0; i < n; i++) bytes += tensor_bytes(weights_at(from, i));
    int code = check_new(out, e);
    if (!code) code = beside_read(&b, c, e);
    if (!code) {
        double told = clock_now_s();
        code = ckpt_save_begin(out, ckpt_step(c), e);
        for (int k = 0; k < n_files && !code; k++) {
            code = ckpt_save_rank(out, ckpt_step(c), k, t, share_of(from, k, n_files, t, boxes), e);
            if (code || clock_now_s() - told < 1) continue;
            log_status("%s: file %d of %d", out, k + 1, n_files);
            told = clock_now_s();
        }
        struct ckpt_info info = info_of(c, &b);
        if (!code) code = ckpt_save_publish(out, n_files, &info, e);
        if (code) ckpt_save_abort(out, ckpt_step(c), bytes, e);
        log_status_end();
    }
    beside_free(&b);
    xfree(boxes);
    xfree(t);
    return code;
}

/* -- the mean of several ------------------------------------------------------------------------------------- */

struct mean {
    struct weights *const *w;
    const double *share;
    int n;
};
struct mean_tensor {
    const struct mean *m;
    int64_t *at; /* of each checkpoint: which of its tensors */
    enum dtype dtype;
    struct region box;
};

static int mean_range(void *ctx, int64_t offset, size_t bytes, void *dst, struct err *e)
{
    const struct mean_tensor *s = ctx;
    struct region parts[REGION_STRETCH];
    int64_t size = (int64_t)dtype_bytes(s->dtype), count = (int64_t)bytes / size, filled = 0;
    int code = OK, n = region_stretch(&s->box, offset / size, count, parts);
    double *sum = xcalloc(to_size(count), sizeof *sum), *x = xmalloc(to_size(count) * sizeof *x);
    for (int p = 0; p < n && !code; p++) {
        int64_t here = region_volume(&parts[p]);
        for (int k = 0; k < s->m->n && !code; k++) {
            code = weights_read(s->m->w[k], s->at[k], &parts[p], DT_F64, x, e);
            for (int64_t i = 0; i < here && !code; i++) sum[filled + i] += s->m->share[k] * x[i];
        }
        filled += here;
    }
    if (!code) convert(dst, s->dtype, sum, DT_F64, count);
    xfree(x);
    xfree(sum);
    return code;
}
static const struct ckpt_access mean_access = {.to_host = mean_range};

/* The model of a checkpoint as text; two that print the same compute the same function of their weights. */
static int model_text(const struct weights *w, struct str *text, struct err *e)
{
    struct hf_model m;
    int code = weights_model(w, &m, e);
    struct json_out o = {.s = text};
    if (code) return code;
    json_begin_object(&o, NULL);
    hf_config_put(&o, "model", &m, DT_F32);
    json_end_object(&o);
    return OK;
}

static int same_model(const struct weights *a, const struct weights *b, struct err *e)
{
    struct str x = {0}, y = {0};
    int code = model_text(a, &x, e);
    if (!code) code = model_text(b, &y, e);
    if (!code && strcmp(str_text(&x), str_text(&y)))
        code = err_set(e, ERR_REQUEST, "%s and %s are not of one model: their sizes or formulas differ",
                       weights_path(a), weights_path(b));
    str_free(&x);
    str_free(&y);
    return code;
}

/* Finds tensor `name` in all; shapes agree, all are numbers with a point. */
static int find_all(const struct mean *m, struct mean_tensor *s, struct ckpt_entry t, struct err *e)
{
    char x[128], y[128];
    s->at = xcalloc(to_size(m->n), sizeof *s->at);
    for (int k = 0; k < m->n; k++) {
        int64_t i = weights_find_param(m->w[k], t.name);
        if (i < 0) return err_set(e, ERR_REQUEST, "%s: holds no parameter %s", weights_path(m->w[k]), t.name);
        struct ckpt_entry there = weights_at(m->w[k], i);
        if (!shape_equal(&there.shape, &t.shape) || !convertible(there.dtype, DT_F64))
            return err_set(e, ERR_REQUEST, "%s: %s is %s %s, in %s it is %s %s", weights_path(m->w[k]), t.name,
                           dtype_name(there.dtype), shape_print(x, &there.shape), weights_path(m->w[m->n - 1]),
                           dtype_name(t.dtype), shape_print(y, &t.shape));
        s->at[k] = i;
    }
    return OK;
}

int remake_average(struct weights *const *w, const double *share, int n, const char *out, struct err *e)
{
    const struct mean m = {w, share, n};
    struct ckpt *last = weights_ckpt(w[n - 1]);
    CHECK(last, "the last of them is no checkpoint of tutti");
    int64_t count = ckpt_count(last), held = 0;
    struct ckpt_tensor *t = xcalloc(to_size(count) + 1, sizeof *t);
    struct mean_tensor *s = xcalloc(to_size(count) + 1, sizeof *s);
    struct beside b = {0};
    int code = check_new(out, e);
    for (int k = 0; k + 1 < n && !code; k++) code = same_model(w[k], w[n - 1], e);
    for (int64_t i = 0; i < count && !code; i++) {
        struct ckpt_entry x = ckpt_at(last, i);
        if (strcmp(x.group, "param") && strcmp(x.group, "master")) continue;
        s[held] = (struct mean_tensor){.m = &m, .dtype = x.dtype, .box = region_whole(&x.shape)};
        code = find_all(&m, &s[held], x, e);
        t[held] = (struct ckpt_tensor){.group = x.group,
                                       .name = x.name,
                                       .dtype = x.dtype,
                                       .shape = x.shape,
                                       .box = s[held].box,
                                       .access = &mean_access,
                                       .ctx = &s[held]};
        held++;
    }
    if (!code) code = beside_read(&b, last, e);
    struct ckpt_info info = info_of(last, &b);
    if (!code) code = ckpt_save(out, &info, t, held, e);
    for (int64_t i = 0; i < held; i++) xfree(s[i].at);
    beside_free(&b);
    xfree(s);
    xfree(t);
    return code;
}
