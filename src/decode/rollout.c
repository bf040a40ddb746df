/* SPDX-License-Identifier: Apache-2.0 */
/* Weights travel as they are stepped: each rank's pieces to all ranks, which all hold all of them. Cost: the bytes of
 * the weights, once a batch of answers, and as many again for as long as the run lasts. Rejected: writing with the
 * training's own programs, which compute whole sequences for each token. */
#include "decode/rollout.h"

#include <string.h>

#include "base/mem.h"
#include "layout/dtype.h"
#include "decode/batching.h"
#include "state/route_run.h"

struct rollout {
    struct rollout_config c;
    struct rollout_ends ends;
    struct decoding *d;
    struct batching *a;
    struct kernel_table kernels; /* for losses of tokens, in the host's memory */
    struct comm *post;           /* everybody, on the device; NULL: alone */
    struct route **route;        /* [n_routes] by parameter */
    int n_routes;
    struct route_run *way;
    void *row; /* a row of logits as training has it */
};

/* ---- weights ---- */

static int whole_everywhere(const struct param *p, int n_ranks, struct holding *to)
{
    for (int r = 0; r < n_ranks; r++) to[r] = (struct holding){.holder = r, .box = region_whole(&p->layout.shape)};
    return n_ranks;
}

/* Where this rank's part of a parameter lies, and which layout says so. */
static struct layout source_of(const struct engine *g, int param, struct route_end *from)
{
    const struct store *s = &g->store;
    const struct param *p = &g->params.p[param];
    struct layout l = s->units.shared ? param_stepped(p) : p->layout;
    struct array_span here = store_piece(s, param, STORE_PARAM);
    const struct array *a = &s->array[STORE_PARAM];
    bool holds = layout_holds(&l, g->params.rank);
    *from = (struct route_end){&a->buf, to_size(here.at) * dtype_bytes(a->row.dtype),
                               holds ? layout_box(&l, g->params.rank) : (struct region){.nd = p->nd}};
    return l;
}

static struct route_end copy_of(const struct rollout *x, int param)
{
    const struct store *s = decoding_store(x->d);
    const struct array *a = &s->array[STORE_PARAM];
    return (struct route_end){&a->buf, to_size(store_held(s, param, STORE_PARAM).at) * dtype_bytes(a->row.dtype),
                              region_whole(&s->table->p[param].layout.shape)};
}

static int plan_route(struct rollout *x, int param, struct route_tensor *t, struct err *e)
{
    const struct engine *g = x->c.engine;
    int n = x->c.ranks->n;
    struct holding *from = xcalloc(to_size(n), sizeof *from), *to = xcalloc(to_size(n), sizeof *to);
    struct layout l = source_of(g, param, &t->from);
    int n_from = layout_holdings(&l, from), n_to = whole_everywhere(&g->params.p[param], n, to);
    int rc = route_new_holdings(&x->route[param], from, n_from, to, n_to, e);
    if (!rc) x->n_routes++;
    t->route = x->route[param];
    t->dtype = g->store.dtype;
    t->to = copy_of(x, param);
    xfree(from);
    xfree(to);
    return rc;
}

static int plan_way(struct rollout *x, struct err *e)
{
    const struct engine *g = x->c.engine;
    int n = x->c.ranks->n, *list = xcalloc(to_size(n), sizeof *list);
    for (int i = 0; i < n; i++) list[i] = i;
    int rc = comm_split_list(&x->post, x->c.ranks->world, list, n, "answers", e);
    xfree(list);
    if (rc) return rc;
    comm_on(x->post, g->dev);
    struct route_tensor *t = xcalloc(to_size(g->params.n), sizeof *t);
    x->route = xcalloc(to_size(g->params.n), sizeof *x->route);
    for (int i = 0; !rc && i < g->params.n; i++) rc = plan_route(x, i, &t[i], e);
    if (!rc) rc = route_run_new(&x->way, x->post, g->stream, t, g->params.n, NULL, e);
    xfree(t);
    return rc;
}

int rollout_take_weights(struct rollout *x, struct err *e)
{
    struct engine *g = x->c.engine;
    decoding_forget(x->d);
    if (!x->post) {
        for (int i = 0; i < g->params.n; i++) {
            struct route_end from, to = copy_of(x, i);
            (void)source_of(g, i, &from);
            stream_copy(g->stream, (char *)to.buf->p + to.at, (const char *)from.buf->p + from.at,
                        to_size(g->params.p[i].numel) * dtype_bytes(g->store.dtype));
        }
    } else {
        route_run_begin(x->way, COMM_AT("weights for answers"));
        route_run_end(x->way);
    }
    stream_sync(g->stream);
    return x->post ? comm_status(x->post, e) : OK;
}

/* ---- create ---- */

int rollout_new(struct rollout **out, const struct rollout_config *c, struct err *e)
{
    struct rollout *x = xcalloc(1, sizeof *x);
    const struct engine_config *g = &c->engine->cfg;
    struct decoding_options o = {.threads = g->threads,
                                 .dtype = g->dtype,
                                 .sequences = c->sequences,
                                 .positions = c->positions,
                                 .rows = c->sequences > 128 ? c->sequences : 128,
                                 .wanted = c->sequences,
                                 .kernels = g->kernels,
                                 .model = &g->model};
    x->c = *c;
    *out = NULL;
    int rc = decoding_new(&x->d, NULL, c->engine->dev, &o, e);
    if (c->ranks->world) rc = comm_agree(c->ranks->world, rc, e);
    if (!rc) rc = kernel_table_init(&x->kernels, g->kernels, g->threads, c->engine->dev->counts_only, e);
    if (!rc && c->ranks->world) rc = plan_way(x, e);
    x->row = xmalloc(to_size(g->model.vocab) * sizeof(float));
    if (rc) rollout_free(x);
    else *out = x;
    return rc;
}

void rollout_end_at(struct rollout *x, const struct rollout_ends *ends)
{
    x->ends = *ends;
    x->a = batching_new(x->d, ends->tokenizer);
}

void rollout_free(struct rollout *x)
{
    if (!x) return;
    batching_free(x->a);
    route_run_free(x->way);
    for (int i = 0; i < x->n_routes; i++) route_free(x->route[i]);
    xfree(x->route);
    comm_free(x->post);
    decoding_free(x->d);
    xfree(x->row);
    xfree(x);
}

/* ---- answers ---- */

struct writing {
    struct rollout *x;
    struct rollout_answer *a;
    int64_t id, left; /* of answering; tokens that it may still have */
    bool done;
    struct err err;
};

/* What training's loss has of this token after these logits. */
static double nats_of(struct rollout *x, const float *logits_V, int32_t id)
{
    enum dtype type = x->c.engine->cfg.dtype;
    int64_t vocab = x->c.engine->cfg.model.vocab;
    double stat[2] = {0}, scratch[8] __attribute__((aligned(64)));
    struct step_info info = {0};
    struct stream here = kernel_here(x->c.engine->dev->team);
    struct kernel_call c = {.op = OP_XENT,
                            .phase = KERNEL_FWD,
                            .at = ATTRS(vocab, 0),
                            .step = &info,
                            .n_in = 2,
                            .n_out = 1,
                            .scratch = scratch,
                            .scratch_bytes = sizeof scratch,
                            .stream = &here};
    if (type == DT_BF16)
        for (int64_t v = 0; v < vocab; v++) ((uint16_t *)x->row)[v] = bf16_from_f32(logits_V[v]);
    else if (type == DT_F16)
        for (int64_t v = 0; v < vocab; v++) ((uint16_t *)x->row)[v] = f16_from_f32(logits_V[v]);
    else memcpy(x->row, logits_V, to_size(vocab) * sizeof *logits_V);
    c.in[0] = (struct view){.p = x->row, .dtype = type, .nd = 2, .n = {1, vocab}, .stride = vocab};
    c.in[1] = (struct view){.p = &id, .dtype = DT_I32, .nd = 1, .n = {1}, .stride = 1};
    c.out[0] = (struct view){.p = stat, .dtype = DT_F64, .nd = 1, .n = {2}, .stride = 2};
    CHECK(kernel_scratch(&x->kernels, &c) <= sizeof scratch, "the loss of one token needs more");
    kernel_run(&x->kernels, &c);
    return stat[0];
}

static bool ends(const struct rollout *x, int64_t id)
{
    for (int i = 0; i < x->ends.n_eos; i++)
        if (x->ends.eos[i] == id) return true;
    return id == tokenizer_eos(x->ends.tokenizer);
}

static bool take_token(void *ctx, const struct answer_token *t)
{
    struct writing *w = ctx;
    struct rollout_answer *a = w->a;
    a->ids[a->n] = t->id;
    a->nats[a->n++] = nats_of(w->x, t->logits_V, t->id);
    a->ended = ends(w->x, t->id);
    w->done = a->ended;
    return !a->ended;
}

static void take_end(void *ctx, enum answer_end why, const char *rest, size_t n, const struct answer_counts *c,
                     const struct err *e)
{
    struct writing *w = ctx;
    (void)c;
    (void)rest;
    (void)n;
    w->a->ended = why == ANSWER_STOP;
    w->done = true;
    if (why == ANSWER_FAILED) w->err = *e;
}

static int begin(struct writing *w, const struct writing *all, int64_t max_tokens, struct err *e)
{
    struct rollout *x = w->x;
    struct rollout_answer *a = w->a;
    struct answer_spec s = {.ids = a->prompt,
                            .n = a->n_prompt,
                            .max_tokens = max_tokens,
                            .sample = {.temperature = 1, .top_p = 1, .seed = a->seed},
                            .stop = x->ends.stop,
                            .n_stop = x->ends.n_stop,
                            .top = -1,
                            .past_end = true,
                            .after = a->like >= 0 ? all[a->like].id : 0,
                            .token = take_token,
                            .end = take_end,
                            .ctx = w};
    a->n = 0;
    a->ended = false;
    return batching_add(x->a, &s, &w->id, e);
}

int rollout_write(struct rollout *x, struct rollout_answer *a, int64_t n, int64_t max_tokens, const atomic_int *give_up,
                  struct err *e)
{
    struct writing *w = xcalloc(to_size(n) + 1, sizeof *w);
    int rc = OK;
    for (int64_t i = 0; !rc && i < n; i++) {
        w[i] = (struct writing){.x = x, .a = &a[i]};
        rc = begin(&w[i], w, max_tokens, e);
    }
    while (!rc && batching_writing(x->a) + batching_waiting(x->a) > 0) {
        rc = batching_step(x->a, e);
        if (!rc && give_up && atomic_load(give_up)) rc = err_set(e, ERR_SIGNAL, "stopped while answers were written");
    }
    for (int64_t i = 0; i < n; i++) {
        if (!w[i].done && w[i].id) batching_cancel(x->a, w[i].id);
        if (!rc && w[i].err.code) {
            *e = w[i].err;
            rc = e->code;
        }
    }
    xfree(w);
    return rc;
}
