/* SPDX-License-Identifier: Apache-2.0 */
/* tutti checkpoint import and export: from and to the form of Hugging Face.
 *
 * Neither holds a model: import hands the writer an access function that reads rows of their files when they are
 * due, export hands the other writer one that reads boxes of ours. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/weights.h"
#include "cli/cmd_checkpoint.h"

/* -- import ------------------------------------------------------------------------------------------------- */

struct lazy {
    struct weights *w;
    int64_t i;
};

/* Bytes [offset, offset + bytes) of a tensor: the rows that hold them are read, the rest of those rows is dropped. */
static int read_range(void *ctx, int64_t offset, size_t bytes, void *dst, struct err *e)
{
    const struct lazy *l = ctx;
    struct ckpt_entry t = weights_at(l->w, l->i);
    struct region box = region_whole(&t.shape);
    int64_t rows = t.shape.nd ? t.shape.n[0] : 1;
    int64_t row_bytes = region_volume(&box) / rows * (int64_t)dtype_bytes(t.dtype);
    int64_t first = offset / row_bytes, last = (offset + (int64_t)bytes + row_bytes - 1) / row_bytes;
    if (t.shape.nd) {
        box.lo[0] = first;
        box.hi[0] = last;
    }
    unsigned char *piece = xmalloc(to_size((last - first) * row_bytes));
    int rc = weights_read(l->w, l->i, &box, t.dtype, piece, e);
    if (rc == OK) memcpy(dst, piece + (offset - first * row_bytes), bytes);
    xfree(piece);
    return rc;
}
static const struct ckpt_access lazy_access = {.to_host = read_range};

static int import_weights(struct weights *w, const char *out, struct err *e)
{
    struct hf_model model;
    int rc = weights_model(w, &model, e);
    if (rc < 0) return rc;
    struct str extra = {0};
    struct json_out o = {.s = &extra};
    json_begin_object(&o, NULL);
    hf_config_put(&o, "model", &model, weights_dtype(w));
    json_put_string(&o, "imported_from", weights_path(w));
    json_end_object(&o);

    struct ckpt_attachment attachments[HF_BESIDE];
    char *paths[HF_BESIDE];
    int n_attachments = 0;
    for (int k = 0; k < HF_BESIDE; k++) {
        paths[k] = fs_join(weights_path(w), hf_beside[k]);
        if (fs_exists(paths[k]))
            attachments[n_attachments++] = (struct ckpt_attachment){.name = hf_beside[k], .copy_from = paths[k]};
    }
    int64_t n = weights_count(w);
    struct ckpt_tensor *t = xcalloc(to_size(n), sizeof *t);
    struct lazy *lazy = xcalloc(to_size(n), sizeof *lazy);
    for (int64_t i = 0; i < n; i++) {
        struct ckpt_entry x = weights_at(w, i);
        lazy[i] = (struct lazy){.w = w, .i = i};
        t[i] = (struct ckpt_tensor){.group = x.group,
                                    .name = x.name,
                                    .dtype = x.dtype,
                                    .shape = x.shape,
                                    .box = region_whole(&x.shape),
                                    .access = &lazy_access,
                                    .ctx = &lazy[i]};
    }
    struct ckpt_info info = {.extra = extra.p, .attachments = attachments, .n_attachments = n_attachments};
    rc = ckpt_clean(out, e);
    if (rc == OK) rc = ckpt_save(out, &info, t, n, e);
    for (int k = 0; k < HF_BESIDE; k++) xfree(paths[k]);
    xfree(lazy);
    xfree(t);
    str_free(&extra);
    return rc;
}

int checkpoint_import(int argc, char **argv)
{
    const char *path[2];
    struct err e;
    struct weights *w;
    struct cli_ignore ignore;
    int status = cli_take_ignore(CHECKPOINT_COMMAND, &argc, argv, &ignore);
    if (!status) status = checkpoint_words(argc, argv, 2, path, "import HF_DIR OUT [--ignore KEY,KEY]");
    int rc = OK;
    if (!status) rc = weights_open_ignoring(&w, path[0], &ignore.list, &e);
    if (!status && !rc && weights_ckpt(w)) {
        rc = err_set(&e, ERR_REQUEST, "%s: is a checkpoint of tutti already; a folder with a config.json was wanted",
                     path[0]);
        weights_close(w);
    }
    char *config = status ? NULL : fs_join(path[0], "config.json");
    if (rc && !fs_exists(config)) err_prefix(&e, "not a Hugging Face model");
    xfree(config);
    cli_ignore_fini(&ignore);
    if (status || rc < 0) return status ? status : cli_fail(&e);
    rc = import_weights(w, path[1], &e);
    if (rc == OK) log_info("%s: %" PRId64 " tensors imported into %s", path[0], weights_count(w), path[1]);
    weights_close(w);
    return rc < 0 ? cli_fail(&e) : 0;
}

/* -- export ------------------------------------------------------------------------------------------------- */

static int get_param(void *ctx, const char *name, const struct region *box, enum dtype as, void *dst, struct err *e)
{
    struct weights *w = ctx;
    return weights_read(w, weights_find_param(w, name), box, as, dst, e);
}

static int get_file(void *ctx, const char *name, char **text, size_t *n, struct err *e)
{
    return weights_file(ctx, name, text, n, e);
}

/* Every parameter of the model is there, with its shape, before the first byte is written. */
static int check_params(const struct weights *w, const struct hf_model *m, struct err *e)
{
    char x[128], y[128];
    for (int64_t k = 0; k < hf_n_params(m); k++) {
        struct hf_param p = hf_param_at(m, k);
        int64_t i = weights_find_param(w, p.name);
        if (i < 0) return err_set(e, ERR_REQUEST, "%s: holds no parameter %s", weights_path(w), p.name);
        struct ckpt_entry t = weights_at(w, i);
        if (!shape_equal(&t.shape, &p.shape))
            return err_set(e, ERR_REQUEST, "%s: %s is %s, the model makes it %s", weights_path(w), p.name,
                           shape_print(x, &t.shape), shape_print(y, &p.shape));
    }
    return OK;
}

static int read_dtype(const char *name, enum dtype *out)
{
    static const enum dtype types[] = {DT_F32, DT_BF16, DT_F16};
    for (int i = 0; name && i < 3; i++)
        if (strcmp(dtype_name(types[i]), name) == 0) {
            *out = types[i];
            return 0;
        }
    return name ? cli_usage(CHECKPOINT_COMMAND, "--dtype: wanted f32, bf16 or f16, got '%s'", name) : 0;
}

int checkpoint_export(int argc, char **argv)
{
    const char *path[2], *dtype = NULL, *shard = "0";
    struct err e;
    struct weights *w;
    struct hf_model model;
    struct hf_export x = {.model = &model, .get = get_param, .file = get_file};
    if (checkpoint_option(&argc, argv, "--dtype", &dtype) < 0) return 2;
    if (checkpoint_option(&argc, argv, "--shard-bytes", &shard) < 0) return 2;
    if (cli_int(CHECKPOINT_COMMAND, "--shard-bytes", shard, 0, INT64_MAX, &x.shard_bytes)) return 2;
    static const char usage[] = "export CHECKPOINT OUT [--dtype f32|bf16|f16] [--shard-bytes N]";
    int status = checkpoint_words(argc, argv, 2, path, usage);
    if (status || read_dtype(dtype, &x.dtype)) return 2;
    if (weights_open(&w, path[0], &e) < 0) return cli_fail(&e);
    int rc = weights_model(w, &model, &e);
    if (rc == OK) rc = check_params(w, &model, &e);
    if (rc == OK) {
        x.ctx = w;
        if (!dtype) x.dtype = weights_dtype(w);
        rc = hf_export(path[1], &x, &e);
    }
    if (rc == OK) log_info("%s: exported to %s as %s", weights_path(w), path[1], dtype_name(x.dtype));
    weights_close(w);
    return rc < 0 ? cli_fail(&e) : 0;
}
