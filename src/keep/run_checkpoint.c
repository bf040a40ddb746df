/* SPDX-License-Identifier: Apache-2.0 */
/* One descriptor per parameter and group, pointing straight into the buffers: nothing is copied before the writer has
 * it, where the host can reach them. Loading writes the same places and derives the compute copy. */
#include "keep/run_checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/companions.h"
#include "engine/health.h"
#include "engine/loading.h"
#include "config/start_weights.h"
#include "remote/remote.h"
#include "keep/resume.h"

/* ---- bytes that the host cannot reach ---- */
struct there {
    struct stream *stream;
    char *p;
};

static int to_host(void *ctx, int64_t offset, size_t bytes, void *dst, struct err *e)
{
    struct there *x = ctx;
    stream_to_host(x->stream, dst, x->p + offset, bytes);
    stream_sync(x->stream);
    return device_status(x->stream->dev, e);
}

static int from_host(void *ctx, int64_t offset, size_t bytes, const void *src, struct err *e)
{
    struct there *x = ctx;
    stream_from_host(x->stream, x->p + offset, src, bytes);
    stream_sync(x->stream);
    return device_status(x->stream->dev, e);
}

void save_forget(struct ckpt_tensor *t, int64_t n)
{
    for (int64_t i = 0; i < n; i++) xfree(t[i].ctx);
    xfree(t);
}

/* A tensor of the checkpoint: one parameter's part of an array. Of values per element contiguous rows of the
 * parameter. */
static struct ckpt_tensor tensor_of(const struct array_row *row, const struct array *at, const struct param *p,
                                    struct array_span x)
{
    struct ckpt_tensor t = {.group = row->name, .name = p->name, .dtype = at->row.dtype, .p = array_at(at, x.at)};
    t.shape = array_shape(row, p);
    if (array_of_tensors(row)) {
        t.box = (struct region){.nd = 1, .hi = {x.n}};
    } else {
        struct region rows = param_rows(p, 0, 1), one = array_box(row, p, &rows);
        int64_t each = p->held ? region_volume(&one) : 1; /* values of a row */
        rows = param_rows(p, x.lo / each, x.n / each);
        t.box = array_box(row, p, &rows);
    }
    return t;
}

/* What this rank writes, or what it holds; `own`: only what no other way of loading is for. */
static int64_t describe(const struct engine *g, bool pieces, bool own, struct ckpt_tensor **out)
{
    const struct store *s = &g->store;
    struct ckpt_tensor *t = xcalloc((size_t)g->params.n * (size_t)s->n_arrays + 1, sizeof *t);
    int64_t n = 0;
    for (int k = 0; k < s->n_arrays; k++) {
        for (int i = 0; s->array[k].row.saved && store_has(s, k) && i < g->params.n; i++) {
            const struct array *a = store_array_of(s, k, i);
            if (!store_covers(s, k, i) || (own && readers_has(g, k, i))) continue;
            struct ckpt_tensor *x = &t[n++];
            *x = tensor_of(&s->array[k].row, a, &g->params.p[i], pieces ? store_writes(s, i, k) : store_held(s, i, k));
            if (device_is_direct(a->buf.dev) && !a->row.away) continue;
            static const struct ckpt_access access = {to_host, from_host};
            struct there *ctx = xcalloc(1, sizeof *ctx);
            *ctx = (struct there){store_stream_of(s, k, i, g->stream), x->p};
            x->access = &access;
            x->ctx = ctx;
            x->p = NULL;
        }
    }
    *out = t;
    return n;
}

static void adapter_put(const struct adapter *a, struct json_out *o)
{
    json_begin_object(o, "adapter");
    json_put_string(o, "kind", a->lengths ? "dora" : "lora");
    json_put_int(o, "rank", a->rank);
    if (a->base != PACKING_NONE) json_put_string(o, "base", packing_row(a->base)->name);
    json_put_real(o, "alpha", a->alpha);
    json_put_bool(o, "stabilised", a->stabilised);
    json_put_real(o, "times", model_adapter_times(a));
    json_begin_array(o, "targets");
    for (int i = 0; i < a->n_targets; i++) json_put_string(o, NULL, a->targets[i]);
    json_end_array(o);
    json_end_object(o);
}

static void describe_model(const struct engine *g, const struct save_info *s, struct str *extra)
{
    struct hf_model h = source_hf_model(&g->cfg.model, s->bos, s->eos);
    companions_ends(s->cfg, &h);
    struct json_out o = {.s = extra};
    json_begin_object(&o, NULL);
    hf_config_put(&o, "model", &h, g->cfg.dtype);
    if (g->cfg.model.adapter) adapter_put(g->cfg.model.adapter, &o);
    changes_put_data(&s->data, &o);
    if (g->cfg.scale.first > 0) loss_scale_put(&g->scale, &o);
    if (g->left_out) json_put_int(&o, "left_out", g->left_out);
    fallback_put(&g->fallback, &o);
    if (s->skips) skips_put(s->skips, &o);
    if (s->evals) evals_put(s->evals, &o);
    char digits[17];
    if (s->reference) json_put_string(&o, "reference", hash64_print(digits, *s->reference));
    json_end_object(&o);
}

static int agree(const struct ranks *r, int rc, struct err *e) { return r->world ? comm_agree(r->world, rc, e) : rc; }

int save_is_worth(const struct engine *g, const struct ranks *r, int64_t step, struct err *e)
{
    int rc = agree(r, r->writes ? health_check(g, e) : OK, e);
    return rc ? err_prefix(e, "step %lld was not saved, since it would take the place of a good checkpoint",
                           (long long)step)
              : OK;
}

int64_t save_describe(const struct engine *g, const void *memory, struct ckpt_tensor **out)
{
    if (!memory) return describe(g, true, false, out);
    const struct snapshot *x = &g->snapshot;
    struct ckpt_tensor *t = xcalloc(to_size(x->n) + 1, sizeof *t);
    for (int64_t i = 0; i < x->n; i++) {
        const struct snapshot_part *p = &x->part[i];
        t[i] = tensor_of(&g->store.array[p->array].row, store_array_of(&g->store, p->array, p->param),
                         &g->params.p[p->param], p->span);
        t[i].p = (char *)(uintptr_t)memory + p->at;
    }
    *out = t;
    return x->n;
}

int save_abort(const struct engine *g, const struct ranks *r, const char *root, int64_t step, int rc, struct err *e)
{
    if (r->rank == 0) ckpt_save_abort(root, step, store_saved_bytes(&g->store), e);
    agree(r, r->rank == 0 ? rc : OK, e); /* all leave with the explanation, whoever is the first to */
    return rc;
}

int save_rank(const struct ckpt_info *info, const char *root, int rank, const struct ckpt_tensor *t, int64_t n,
              struct err *e)
{
    return info->incremental ? ckpt_save_rank_since(root, info->step, rank, t, n, NULL, e)
                             : ckpt_save_rank(root, info->step, rank, t, n, e);
}

/* Begin (one rank), write (those that hold the first replica), publish (one rank). */
static int save_together(const struct engine *g, const struct ranks *r, const char *root, const struct ckpt_info *info,
                         struct err *e)
{
    struct ckpt_tensor *t;
    int rc = save_is_worth(g, r, info->step, e);
    if (rc) return rc;
    int64_t n = save_describe(g, NULL, &t);
    rc = agree(r, r->rank == 0 ? ckpt_save_begin(root, info->step, e) : OK, e);
    if (!rc) rc = agree(r, r->writes ? save_rank(info, root, r->writer, t, n, e) : OK, e);
    if (!rc) rc = agree(r, r->rank == 0 ? ckpt_save_publish(root, r->n_writers, info, e) : OK, e);
    if (rc) rc = save_abort(g, r, root, info->step, rc, e);
    save_forget(t, n);
    return rc;
}

void save_words_make(struct save_words *w, const struct engine *g, const struct save_info *s)
{
    *w = (struct save_words){0};
    w->file[0] = (struct ckpt_attachment){.name = "config.yaml",
                                          .p = s->config_text,
                                          .bytes = strlen(s->config_text),
                                          .private = remote_has_secrets(s->config_text)};
    int n = 1;
    for (int i = 0; s->tokenizer_dir && i < HF_BESIDE; i++) {
        w->path[i] = fs_join(s->tokenizer_dir, hf_beside[i]);
        if (fs_exists(w->path[i]))
            w->file[n++] = (struct ckpt_attachment){.name = hf_beside[i], .copy_from = w->path[i]};
    }
    describe_model(g, s, &w->extra);
    w->info = (struct ckpt_info){
        .step = s->step,
        .tokens = s->tokens,
        .seed = (int64_t)g->cfg.seed,
        .run = s->run,
        .extra = str_text(&w->extra),
        .attachments = w->file,
        .n_attachments = n,
        .keep = to_int(s->keep),
        .keep_every = s->keep_every,
        .incremental = s->incremental,
        .in_use = s->in_use,
        .told = &w->told,
    };
}

void save_words_free(struct save_words *w)
{
    for (int i = 0; i < HF_BESIDE; i++) xfree(w->path[i]);
    str_free(&w->extra);
}

int save_checkpoint(const struct engine *g, const struct ranks *r, const struct save_info *s, struct err *e)
{
    struct save_words w;
    save_words_make(&w, g, s);
    int rc = save_together(g, r, s->root, &w.info, e);
    if (s->told) *s->told = w.told;
    save_words_free(&w);
    return rc;
}

/* The newest below root that is of the model with these tensors; else what is to be done. */
static void advise_model(const char *root, const struct ckpt_tensor *t, int64_t n, struct err *e)
{
    struct ckpt_listing *list;
    int count;
    const char *found = NULL;
    if (ckpt_list(root, &list, &count, NULL) < 0) return;
    for (int i = count - 1; i >= 0 && !found; i--) {
        struct ckpt *c;
        if (list[i].code || ckpt_open(&c, list[i].path, NULL)) continue;
        if (ckpt_check(c, t, n, NULL) == OK) found = list[i].path;
        ckpt_close(c);
    }
    size_t at = strlen(e->text);
    if (found)
        snprintf(e->text + at, sizeof e->text - at,
                 "; the nearest that is of this model is %s: choose it with "
                 "checkpoint.resume=%s",
                 found, strrchr(found, '/') + 1);
    else
        snprintf(e->text + at, sizeof e->text - at,
                 "; give the model that it is of (its config.yaml), or another run.dir, or start afresh with "
                 "checkpoint.resume=never");
    ckpt_list_free(list, count);
}

int save_check(const struct engine *g, const struct ckpt *c, const char *root, struct err *e)
{
    struct ckpt_tensor *t;
    int64_t n = describe(g, false, false, &t);
    int rc = ckpt_check_attachments(c, e), attached = rc;
    if (!rc)
        rc = ckpt_check(c, t, n, e); /* also that it holds nothing more: a model of fewer layers is another model */
    if (rc && !attached && root) advise_model(root, t, n, e);
    if (rc) err_prefix(e, "cannot resume");
    save_forget(t, n);
    return rc;
}

/* ---- loading ---- */
struct source {
    struct ckpt *c;
    const char *root;
};

/* file: where it was found; NULL: unknown. */
static int explain(const struct source *x, const char *file, int rc, struct err *e)
{
    if (!rc) return OK;
    err_prefix(e, "cannot resume");
    if (x->root && rc != ERR_REQUEST) resume_advise(x->root, ckpt_path(x->c), file, e);
    return rc;
}

static int read_part(void *ctx, const struct reading *r, enum dtype as, void *dst, struct err *e)
{
    const struct source *x = ctx;
    return explain(x, ckpt_file_of(x->c, r->tensor, r->box),
                   ckpt_read_stretch(x->c, r->tensor, r->box, r->lo, r->n, as, dst, e), e);
}

/* Arrays elsewhere, such as in another memory: each rank for itself. */
static int read_own(struct engine *g, const struct source *x, struct err *e)
{
    struct ckpt_tensor *t;
    int64_t n = describe(g, false, true, &t);
    int rc = n ? explain(x, NULL, ckpt_load(x->c, t, n, e), e) : OK;
    save_forget(t, n);
    return rc;
}

void save_needs(const struct engine *g, const struct ckpt *c, uint8_t *needs)
{
    struct ckpt_tensor *t;
    int64_t n = describe(g, false, true, &t);
    memset(needs, 0, to_size(ckpt_n_files(c)));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = ckpt_find(c, t[i].group, t[i].name);
        int boxes = at < 0 ? 0 : ckpt_at(c, at).n_boxes;
        for (int k = 0; k < boxes; k++) {
            struct region box = ckpt_box(c, at, k), part;
            if (box.nd != t[i].box.nd || !region_intersect(&box, &t[i].box, &part)) continue;
            for (int f = 0; f < ckpt_n_files(c); f++) needs[f] |= !strcmp(ckpt_file_name(c, f), ckpt_file_of(c, at, k));
        }
    }
    save_forget(t, n);
}

/* Where masters or weights wait elsewhere: a stretch at a time, by the host. */
static void derive_away(struct engine *g, int param)
{
    enum { CHUNK = 1 << 18 };
    const struct store *s = &g->store;
    struct array_span from = store_held(s, param, STORE_MASTER), to = store_piece(s, param, STORE_PARAM);
    const struct array *master = store_array(s, STORE_MASTER), *copy = &s->array[STORE_PARAM];
    struct stream *reads = store_stream(s, STORE_MASTER, g->stream), *writes = store_stream(s, STORE_PARAM, g->stream);
    float *wide = xmalloc(CHUNK * sizeof *wide);
    void *narrow = xmalloc(CHUNK * sizeof *wide);
    for (int64_t at = 0, m; at < from.n; at += m) {
        m = from.n - at < CHUNK ? from.n - at : CHUNK;
        stream_to_host(reads, wide, array_at(master, from.at + at), to_size(m) * sizeof *wide);
        stream_sync(reads);
        store_cast(&g->kernels, g->dev->team, narrow, s->dtype, wide, DT_F32, m);
        stream_from_host(writes, array_at(copy, to.at + from.lo - to.lo + at), narrow,
                         to_size(m) * dtype_bytes(s->dtype));
        stream_sync(writes);
    }
    xfree(wide);
    xfree(narrow);
}

static void derive(struct engine *g)
{
    const struct store *s = &g->store;
    bool own = array_is_here(&s->array[STORE_MASTER]),
         away = s->array[STORE_MASTER].row.away || s->array[STORE_PARAM].row.away;
    for (int i = 0; own && away && i < g->params.n; i++)
        if (!g->params.p[i].frozen) derive_away(g, i);
    for (int i = 0; own && !away && i < g->params.n; i++)
        if (!g->params.p[i].frozen) store_derive(s, g->stream, i); /* a frozen one is read to where it is */
    exchange_publish(&g->exchange);
}

/* A run whose checkpoint has none begins with its first. */
static int take_scale(struct engine *g, const struct ckpt *c, struct err *e)
{
    const struct json *extra = ckpt_extra(c);
    if (g->cfg.scale.first <= 0) return OK;
    if (!json_get(extra, "loss_scale")) {
        loss_scale_init(&g->scale, &g->cfg.scale);
        return OK;
    }
    if (!loss_scale_take(&g->scale, extra)) return OK;
    return err_set(e, ERR_CORRUPT,
                   "%s: loss_scale: wanted now, a power of two, good and skipped, counts of steps; choose another "
                   "checkpoint",
                   ckpt_path(c));
}

/* Where it is not said, as it was before it was: of a loss scale alone. */
static int take_left_out(struct engine *g, const struct ckpt *c, struct err *e)
{
    const struct json *v = ckpt_extra(c) ? json_get(ckpt_extra(c), "left_out") : NULL;
    g->left_out = v ? json_int(v, -1) : g->scale.skipped;
    if (g->left_out >= 0 && g->left_out <= ckpt_step(c)) return OK;
    return err_set(e, ERR_CORRUPT, "%s: left_out: wanted how many of its %lld steps updated nothing", ckpt_path(c),
                   (long long)ckpt_step(c));
}

int save_resume(struct engine *g, struct ckpt *c, const char *root, int rc, struct str *said, struct err *e)
{
    struct source x = {c, root};
    struct readers plan = {0};
    bool holds = !g->cfg.n_servers || g->cfg.server >= 0;
    int64_t round = loading_round(g);
    if (!rc && holds) readers_plan(&plan, g, c, round);
    if (!rc && holds) rc = read_own(g, &x, e);
    rc = loading_run(g, &plan, c, read_part, &x, rc, e);
    if (!rc && said && holds) readers_print(&plan, said);
    if (!rc && holds) derive(g);
    if (!rc && c) rc = take_scale(g, c, e);
    if (!rc && c) rc = take_left_out(g, c, e);
    if (!rc && c && g->fallback.n && fallback_take(&g->fallback, ckpt_extra(c)))
        rc = err_set(e, ERR_CORRUPT,
                     "%s: its list of layers that fell back is not of %d layers; choose another "
                     "checkpoint, or precision.fallback.after=0",
                     ckpt_path(c), g->fallback.n);
    readers_free(&plan);
    return rc;
}
