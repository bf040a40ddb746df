/* SPDX-License-Identifier: Apache-2.0 */
/* hf_export.c: our parameters as a directory that Hugging Face's libraries load.
 *
 * Neighbouring parameters that are parts of one tensor of theirs become one output tensor; a band of its rows is
 * put together from boxes of ours, transposed where needed. Everything is written beside the target and renamed,
 * so an export that fails leaves nothing that looks like a model. Cost: each weight is read once; a band of a
 * transposed tensor is a band of columns of ours, so reading strides through the source, from memory or cache.
 */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/convert.h"
#include "hub/hf.h"
#include "checkpoint/safetensors.h"

/* One tensor of theirs: parameters [first, first + n) of ours. */
struct fused {
    int64_t first, n;
};

struct plan {
    const struct hf_export *x;
    struct hf_param *params;
    struct fused *groups;
    struct safetensors_spec *specs;
    char (*names)[128];
    int64_t n;
};

/* Modules for further tokens share the model's tables; who reads them wants the tables in each once more. */
static void plan_copies(struct plan *p, int64_t n_params)
{
    const struct model_config *m = &p->x->model->model;
    for (int64_t l = m->layers; l < model_blocks(m); l++)
        for (int i = 0; i < HF_MTP_COPIES; i++) {
            const char *ours = m->tie_embeddings ? hf_mtp_copies[0][1] : hf_mtp_copies[i][1];
            int64_t k = 0;
            while (k < n_params && strcmp(p->params[k].name, ours) != 0) k++;
            CHECK(k < n_params, "the model has no %s", ours);
            snprintf(p->names[p->n], sizeof *p->names, "%slayers.%lld.%s", hf_prefix(p->x->model->family), (long long)l,
                     hf_mtp_copies[i][0]);
            p->specs[p->n] = (struct safetensors_spec){.name = p->names[p->n],
                                                       .dtype = p->x->dtype,
                                                       .shape = p->params[k].file_shape};
            p->groups[p->n++] = (struct fused){.first = k, .n = 1};
        }
}

static void plan_make(struct plan *p, const struct hf_export *x)
{
    int64_t n = hf_n_params(x->model), room = n + HF_MTP_COPIES * x->model->model.mtp.depth;
    *p = (struct plan){.x = x};
    p->params = xcalloc(to_size(n), sizeof *p->params);
    p->groups = xcalloc(to_size(room), sizeof *p->groups);
    p->specs = xcalloc(to_size(room), sizeof *p->specs);
    p->names = xcalloc(to_size(room), sizeof *p->names);
    for (int64_t i = 0; i < n; i++) {
        p->params[i] = hf_param_at(x->model, i);
        if (i > 0 && strcmp(p->params[i].theirs, p->params[i - 1].theirs) == 0) {
            p->groups[p->n - 1].n++;
            continue;
        }
        const struct hf_param *q = &p->params[i];
        snprintf(p->names[p->n], sizeof *p->names, "%s%s", q->prefixed ? hf_prefix(x->model->family) : "", q->theirs);
        p->specs[p->n] = (struct safetensors_spec){.name = p->names[p->n], .dtype = x->dtype, .shape = q->file_shape};
        p->groups[p->n++] = (struct fused){.first = i, .n = 1};
    }
    plan_copies(p, n);
}

static void plan_free(struct plan *p)
{
    xfree(p->params);
    xfree(p->groups);
    xfree(p->specs);
    xfree(p->names);
}

/* Those of rows [row, row + n) of theirs that one transposed part has: columns of ours. */
static int get_transposed(const struct plan *p, const struct hf_param *q, int64_t row, int64_t n, unsigned char *dst,
                          struct err *e)
{
    size_t element = dtype_bytes(p->x->dtype);
    int64_t outs = q->shape.n[0], ins = q->shape.nd > 1 ? q->shape.n[1] : 1, all = q->their_shape.n[1];
    int64_t lo = row > q->first ? row : q->first, hi = row + n < q->first + ins ? row + n : q->first + ins;
    if (lo >= hi) return OK;
    int64_t rows = hi - lo;
    struct region box = {.nd = q->shape.nd, .lo = {0, lo - q->first}, .hi = {outs, hi - q->first}};
    unsigned char *piece = xmalloc(to_size(outs * rows) * element);
    int rc = p->x->get(p->x->ctx, q->name, &box, p->x->dtype, piece, e);
    dst += to_size((lo - row) * all + q->offset) * element;
    if (rc == OK && q->step == 1) convert_transposed(dst, p->x->dtype, all, piece, p->x->dtype, rows, outs, rows);
    for (int64_t k = 0; rc == OK && q->step > 1 && k < rows * outs; k++)
        memcpy(dst + to_size(k % rows * all + k / rows * q->step) * element, piece + to_size(k) * element, element);
    xfree(piece);
    return rc;
}

/* The part of rows [row, row + n) of theirs that lies in q: whole rows of ours. */
static int get_rows(const struct plan *p, const struct hf_param *q, int64_t row, int64_t n, unsigned char *dst,
                    struct err *e)
{
    struct region theirs = region_whole(&q->their_shape), mine = theirs, box;
    theirs.lo[0] = row;
    theirs.hi[0] = row + n;
    mine.lo[0] = q->offset;
    mine.hi[0] = q->offset + q->shape.n[0];
    if (!region_intersect(&theirs, &mine, &box)) return OK;
    int64_t skipped = (box.lo[0] - row) * (q->shape.nd > 1 ? q->shape.n[1] : 1);
    box.lo[0] -= q->offset;
    box.hi[0] -= q->offset;
    return p->x->get(p->x->ctx, q->name, &box, p->x->dtype, dst + to_size(skipped) * dtype_bytes(p->x->dtype), e);
}

static int source(void *ctx, int64_t i, int64_t row, int64_t n_rows, void *dst, struct err *e)
{
    const struct plan *p = ctx;
    int rc = OK;
    for (int64_t k = 0; k < p->groups[i].n && rc == OK; k++) {
        const struct hf_param *q = &p->params[p->groups[i].first + k];
        int64_t each = q->their_shape.n[0] / q->file_shape.n[0]; /* rows of the matrix in one of the file's */
        rc = q->transposed ? get_transposed(p, q, row * each, n_rows * each, dst, e)
                           : get_rows(p, q, row * each, n_rows * each, dst, e);
    }
    return rc;
}

static int write_text(const char *dir, const char *name, const struct str *text, struct err *e)
{
    char *path = fs_join(dir, name);
    int rc = fs_write_atomic(path, str_text(text), text->n, e);
    xfree(path);
    return rc;
}

static int write_configs(const char *dir, const struct hf_export *x, struct err *e)
{
    struct str text = {0};
    struct json_out o = {.s = &text, .pretty = true};
    hf_config_put(&o, NULL, x->model, x->dtype);
    str_putc(&text, '\n');
    int rc = write_text(dir, "config.json", &text, e);
    bool pairs = model_pairs(&x->model->model);
    if (rc || (model_both_ways(&x->model->model) && !pairs)) { /* nothing is generated */
        str_free(&text);
        return rc;
    }
    str_clear(&text);
    o = (struct json_out){.s = &text, .pretty = true};
    json_begin_object(&o, NULL);
    if (x->model->bos >= 0) json_put_int(&o, "bos_token_id", x->model->bos);
    if (x->model->n_eos > 0) {
        json_begin_array(&o, "eos_token_id");
        for (int i = 0; i < x->model->n_eos; i++) json_put_int(&o, NULL, x->model->eos[i]);
        json_end_array(&o);
    }
    if (pairs) json_put_int(&o, "decoder_start_token_id", x->model->start);
    if (pairs) json_put_int(&o, "pad_token_id", x->model->start);
    else if (x->model->pad >= 0) json_put_int(&o, "pad_token_id", x->model->pad);
    json_end_object(&o);
    str_putc(&text, '\n');
    if (rc == OK) rc = write_text(dir, "generation_config.json", &text, e);
    str_free(&text);
    return rc;
}

const char *const hf_beside[HF_BESIDE + 1] =
    {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",      "vocab.json",
     "merges.txt",     "tokenizer.model",       "chat_template.jinja",     "generation_config.json", NULL};

/* The tokenizer's files, from where the weights come from: what is written is what was compared there. */
static int write_tokenizer(const char *dir, const struct hf_export *x, struct err *e)
{
    bool none = !x->file;
    int rc = OK;
    for (int i = 0; x->file && hf_beside[i] && rc == OK; i++) {
        char *text, *path = fs_join(dir, hf_beside[i]);
        size_t n;
        rc = x->file(x->ctx, hf_beside[i], &text, &n, e);
        if (rc == OK && text) rc = fs_write_atomic(path, text, n, e);
        none = none || (i == 0 && !text);
        xfree(text);
        xfree(path);
    }
    if (rc == OK && none && !model_sees(&x->model->model))
        log_warn("no tokenizer.json is at hand: the exported model has none; put one beside it to use it with text");
    return rc;
}

static int claim(const char *dir, struct err *e)
{
    char **names;
    int n;
    if (!fs_exists(dir)) return OK;
    if (!fs_is_dir(dir)) return err_set(e, ERR_REQUEST, "%s: is a file; export into a new directory", dir);
    int rc = fs_list(dir, &names, &n, e);
    if (rc < 0) return rc;
    fs_list_free(names, n);
    if (n > 0) return err_set(e, ERR_REQUEST, "%s: is not empty; export into a new directory", dir);
    return fs_remove_tree(dir, e);
}

int hf_export(const char *dir, const struct hf_export *x, struct err *e)
{
    struct str temporary = {0};
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--;
    str_add(&temporary, dir, n);
    char *final = xstrdup(temporary.p);
    str_puts(&temporary, ".partial");
    int rc = hf_config_expressible(x->model, e);
    if (rc == OK) rc = claim(final, e);
    if (rc == OK) rc = fs_remove_tree(temporary.p, e);
    if (rc == OK) rc = fs_mkdirs(temporary.p, e);
    if (rc == OK) {
        struct plan p;
        plan_make(&p, x);
        rc = safetensors_write_set(temporary.p, "model", p.specs, p.n, x->shard_bytes ? x->shard_bytes : HF_SHARD_BYTES,
                                   source, &p, e);
        plan_free(&p);
        if (rc == OK) rc = write_configs(temporary.p, x, e);
        if (rc == OK) rc = write_tokenizer(temporary.p, x, e);
        if (rc == OK) rc = fs_rename(temporary.p, final, e);
        if (rc < 0) fs_remove_tree(temporary.p, NULL);
    }
    xfree(final);
    str_free(&temporary);
    return rc;
}
