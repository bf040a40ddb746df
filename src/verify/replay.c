/* SPDX-License-Identifier: Apache-2.0 */
/* A router row is told by its place: the microbatch's first token, its sequence, and where in the sequence a row of
 * this rank of cp and tp stands. To give a token other experts the router's kernel runs for that row once more with
 * biases that leave it no choice, since biases decide who is chosen and do not touch the gates. */
#include "verify/replay.h"

#include <string.h>

#include "base/mem.h"
#include "engine/feed.h"

void replay_init(struct replay *x, const struct config *c, int steps)
{
    memset(x, 0, sizeof *x);
    x->runs = steps + 1;
    x->layers = model_blocks(&c->model);
    x->tokens = c->batch.global * c->model.seq_len;
    x->top_k = c->model.moe.top_k;
    if (c->model.moe.experts) x->pick = xcalloc(to_size(x->runs * x->layers * x->tokens * x->top_k), sizeof *x->pick);
}

void replay_free(struct replay *x)
{
    xfree(x->pick);
    x->pick = NULL;
}

static bool among(const int32_t *list, int64_t n, int32_t e)
{
    for (int64_t i = 0; i < n; i++)
        if (list[i] == e) return true;
    return false;
}

/* In whatever order. */
static bool same_choice(const int32_t *a, const int32_t *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!among(b, n, a[i])) return false;
    return true;
}

/* On the host: the row's logits come here, its gates and choices go back. */
static void give(const struct engine *g, const struct kernel_call *c, int64_t row, const int32_t *want)
{
    enum { MOST = 1 << 16, BIAS = 1 << 20 };
    int experts = at_router(&c->at)->experts;
    float *bias = xcalloc((size_t)experts, sizeof *bias);
    for (int k = 0; k < at_router(&c->at)->top_k; k++) bias[want[k]] = (float)(BIAS - k);
    CHECK(experts < MOST, "%d experts", experts);
    struct kernel_call one = *c;
    struct stream *s = g->stream;
    struct view *rows[] = {&one.in[0], &one.out[0], &one.out[1]};
    void *there[3];
    for (int i = 0; i < 3; i++) {
        size_t bytes = to_size(view_cols(rows[i])) * dtype_bytes(rows[i]->dtype);
        there[i] = (char *)rows[i]->p + to_size(row * rows[i]->stride) * dtype_bytes(rows[i]->dtype);
        rows[i]->p = xmalloc(bytes);
        rows[i]->n[0] = 1;
        if (i == 0) stream_to_host(s, rows[i]->p, there[i], bytes);
    }
    stream_sync(s);
    one.n_in = 2;
    one.in[1] = (struct view){.p = bias, .dtype = DT_F32, .nd = 1, .n = {experts}, .stride = experts};
    edit_router(&one.at)->groups = 0;
    one.kernel = NULL; /* another call than the one it was chosen for */
    struct kernel_table host = kernel_table_host(&g->kernels);
    one.scratch_bytes = kernel_scratch(&host, &one);
    one.scratch = xmalloc(one.scratch_bytes + 1);
    kernel_run(&host, &one);
    for (int i = 0; i < 3; i++) {
        if (i > 0) stream_from_host(s, there[i], rows[i]->p, to_size(view_cols(rows[i])) * dtype_bytes(rows[i]->dtype));
    }
    stream_sync(s);
    for (int i = 0; i < 3; i++) xfree(rows[i]->p);
    xfree(one.scratch);
    xfree(bias);
}

/* Which of the global batch's tokens row `row` of the router is; -1: none, the sequence is there to fill a
 * microbatch. */
static int64_t token_of(const struct replay_watch *w, const struct kernel_call *c, int64_t row)
{
    const struct tokens_at *at = &at_router(&c->at)->tokens;
    int64_t here = at->first + row, seq = w->g->cfg.seq,
            sequence = (int64_t)c->step->first_token / seq + here / at->seq;
    if (sequence < w->first || sequence >= w->first + w->n) return -1;
    return sequence * seq + feed_token(w->g, sequence - w->first, here % at->seq);
}

static void look(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    struct replay_watch *w = ctx;
    struct replay *x = w->replay;
    if (c->op != OP_ROUTER || c->phase != KERNEL_FWD || !x->pick) return;
    int64_t run = c->step->training ? (int64_t)c->step->step : x->runs - 1, k = x->top_k, routed = 0, elsewhere = 0;
    const struct par *par = &w->g->cfg.par;
    bool counts = !i->again &&
                  (par->rank[AXIS_TP] == 0 || model_tokens_split(par)); /* else all ranks of tp route the same tokens */
    CHECK(run < x->runs, "step %lld was not written down", (long long)run);
    size_t bytes = to_size((c->out[1].n[0] - 1) * c->out[1].stride + k) * sizeof(int32_t);
    int32_t *room = device_is_direct(w->g->dev) ? NULL : xmalloc(bytes);
    const int32_t *picks = device_peek(w->g->stream, c->out[1].p, bytes, room);
    for (int64_t row = 0; row < c->in[0].n[0]; row++) {
        int64_t token = token_of(w, c, row);
        if (token < 0) continue;
        int32_t *known = x->pick + ((run * x->layers + p->tape->nodes[i->node].layer) * x->tokens + token) * k;
        const int32_t *chosen = picks + row * c->out[1].stride;
        if (x->record) memcpy(known, chosen, to_size(k) * sizeof *known);
        bool same = same_choice(chosen, known, k);
        routed++;
        elsewhere += !same;
        if (!same && x->force) give(w->g, c, row, known);
    }
    xfree(room);
    if (counts) atomic_fetch_add(&x->routed, routed);
    if (counts) atomic_fetch_add(&x->elsewhere, elsewhere);
}

void replay_watch(struct replay_watch *w, struct replay *x, struct engine *g, int64_t first, int64_t n)
{
    *w = (struct replay_watch){x, g, first, n};
    g->watch = x->pick ? look : NULL;
    g->watch_ctx = w;
}
