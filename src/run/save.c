/* SPDX-License-Identifier: Apache-2.0 */
/* One descriptor per parameter and group, pointing straight into the buffers: nothing is copied before the writer has
 * it, where the host can reach them. Loading writes the same places and derives the compute copy. */
#include "run/save.h"

#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "run/companions.h"
#include "run/health.h"
#include "run/source.h"

static const char *const moment_name[STORE_MAX_MOMENTS] = {"m", "v"};

/* ---- bytes that the host cannot reach ---- */
struct there {
    struct stream stream;
    char *p;
};

static int to_host(void *ctx, int64_t offset, size_t bytes, void *dst, struct err *e)
{
    struct there *x = ctx;
    (void)e;
    stream_to_host(&x->stream, dst, x->p + offset, bytes);
    stream_sync(&x->stream);
    return OK;
}

static int from_host(void *ctx, int64_t offset, size_t bytes, const void *src, struct err *e)
{
    struct there *x = ctx;
    (void)e;
    stream_from_host(&x->stream, x->p + offset, src, bytes);
    stream_sync(&x->stream);
    return OK;
}

static void forget(struct ckpt_tensor *t, int64_t n)
{
    for (int64_t i = 0; i < n; i++) xfree(t[i].ctx);
    xfree(t);
}

/* What this rank holds (for loading), or the pieces it writes: contiguous rows of each parameter. */
static int64_t describe(const struct engine *g, bool pieces, struct ckpt_tensor **out)
{
    const struct store *s = &g->store;
    int groups = 1 + s->n_moments;
    struct ckpt_tensor *t = xcalloc((size_t)(g->params.n * groups) + 1, sizeof *t);
    int64_t n = 0;
    for (int what = 0; what < groups; what++)
        for (int i = 0; i < g->params.n; i++) {
            const struct param *p = &g->params.p[i];
            struct ckpt_tensor *x = &t[n++];
            int64_t row = param_row_numel(p), lo, held = store_held(s, i, &lo);
            const struct piece *q = &s->units.piece[i];
            if (pieces) lo = q->lo, held = p->counted ? q->n : 0;
            x->group = what ? moment_name[what - 1] : "master";
            x->name = p->name;
            x->dtype = DT_F32;
            x->shape = shape_of(p->nd, p->n);
            x->box = param_rows(p, lo / row, held / row);
            x->p = store_piece_state(s, i, what) + (lo - q->lo);
            if (device_is_direct(g->dev)) continue;
            static const struct ckpt_access access = {to_host, from_host};
            struct there *ctx = xcalloc(1, sizeof *ctx);
            *ctx = (struct there){{g->dev}, x->p};
            x->access = &access;
            x->ctx = ctx;
            x->p = NULL;
        }
    *out = t;
    return n;
}

static void describe_model(const struct engine *g, const struct save_info *s, struct str *extra)
{
    struct hf_model h = source_hf_model(&g->cfg.model, s->bos, s->eos);
    companions_ends(s->cfg, &h);
    struct json_out o = {.s = extra};
    json_begin_object(&o, NULL);
    hf_config_put(&o, "model", &h, g->cfg.dtype);
    changes_put_data(&s->data, &o);
    json_end_object(&o);
}

static int agree(const struct ranks *r, int rc, struct err *e)
{
    return r->world ? comm_agree(r->world, rc, e) : rc;
}

/* Begin (one rank), write (those that hold the first replica), publish (one rank). */
static int save_together(const struct engine *g, const struct ranks *r, const char *root, const struct ckpt_info *info,
                         struct err *e)
{
    struct ckpt_tensor *t;
    int rc = agree(r, r->writes ? health_check(g, e) : OK, e);
    if (rc) return err_prefix(e, "step %lld was not saved, since it would take the place of a good checkpoint", (long long)info->step);
    int64_t n = describe(g, true, &t);
    rc = agree(r, r->rank == 0 ? ckpt_save_begin(root, info->step, e) : OK, e);
    if (!rc) rc = agree(r, r->writes ? ckpt_save_rank(root, info->step, r->writer, t, n, e) : OK, e);
    if (!rc) rc = agree(r, r->rank == 0 ? ckpt_save_publish(root, r->n_writers, info, e) : OK, e);
    int64_t needed = g->params.numel * 4 * (1 + g->store.n_moments);
    if (rc && r->rank == 0) ckpt_save_abort(root, info->step, needed, e);
    if (rc) agree(r, r->rank == 0 ? rc : OK, e); /* all leave with the explanation, whoever is the first to */
    forget(t, n);
    return rc;
}

int save_checkpoint(const struct engine *g, const struct ranks *r, const struct save_info *s, struct err *e)
{
    struct ckpt_attachment files[1 + HF_BESIDE] = {{.name = "config.yaml", .p = s->config_text, .bytes = strlen(s->config_text)}};
    char *paths[HF_BESIDE] = {NULL};
    int n_files = 1;
    for (int i = 0; s->tokenizer_dir && i < HF_BESIDE; i++) {
        paths[i] = fs_join(s->tokenizer_dir, hf_beside[i]);
        if (fs_exists(paths[i])) files[n_files++] = (struct ckpt_attachment){.name = hf_beside[i], .copy_from = paths[i]};
    }
    struct str extra = {0};
    describe_model(g, s, &extra);
    struct ckpt_info info = {
        .step = s->step,
        .tokens = s->tokens,
        .seed = (int64_t)g->cfg.seed,
        .extra = str_text(&extra),
        .attachments = files,
        .n_attachments = n_files,
        .keep = to_int(s->keep),
    };
    int rc = save_together(g, r, s->root, &info, e);
    for (int i = 0; i < HF_BESIDE; i++) xfree(paths[i]);
    str_free(&extra);
    return rc;
}

void save_derive(struct engine *g)
{
    const struct store *s = &g->store;
    for (int i = 0; s->dtype != DT_F32 && i < g->params.n; i++) {
        int64_t lo, n = store_held(s, i, &lo), shift = lo - s->units.piece[i].lo;
        char *to = (char *)store_piece_param(s, i) + shift * (int64_t)dtype_bytes(s->dtype);
        g->kernels.flat->cast(g->dev->team, to, s->dtype, store_piece_state(s, i, STORE_MASTER) + shift, DT_F32, n);
    }
    exchange_publish(&g->exchange);
}

int save_check(const struct engine *g, const struct ckpt *c, struct err *e)
{
    struct ckpt_tensor *t;
    int64_t n = describe(g, false, &t);
    int rc = ckpt_check_attachments(c, e);
    if (!rc) rc = ckpt_check(c, t, n, e); /* also that it holds nothing more: a model of fewer layers is another model */
    if (rc) err_prefix(e, "cannot resume");
    forget(t, n);
    return rc;
}

int save_resume(struct engine *g, struct ckpt *c, struct err *e)
{
    struct ckpt_tensor *t;
    int64_t n = describe(g, false, &t);
    int rc = ckpt_load(c, t, n, e);
    if (rc) err_prefix(e, "cannot resume");
    forget(t, n);
    return rc;
}
