/* SPDX-License-Identifier: Apache-2.0 */
/* The first tensor that held a NaN or an infinity: the step is run once more, looking at every result, and the ranks
 * agree whose find is nearest to the cause. */
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

#include "engine/executor.h"
#include "engine/feed.h"
#include "engine/health.h"
#include "engine/tally.h"

struct blame {
    const struct engine *g;
    char *out;
    size_t n;
    bool found;
    int64_t key; /* how near to the cause, over ranks: the least is told */
};

/* A broken parameter comes first; then what broke in forward, in the earliest stage; then what broke in backward, in
 * the latest: the others only saw what was handed to them. */
enum { BLAME_PARAM, BLAME_FORWARD = 1 << 20, BLAME_BACKWARD = 3 << 20, BLAME_NOTHING = 1 << 22 };

static int64_t blame_key(const struct engine *g, const struct program *p, const struct instr *i)
{
    int stage = 0;
    for (int k = 0; k < g->n_stages; k++)
        if (g->stage[k].train == p) stage = g->stage[k].index;
    return i->kphase == KERNEL_FWD ? BLAME_FORWARD + stage : BLAME_BACKWARD - stage;
}

/* The words of the rank that is nearest to the cause go to all. */
static void blame_agree(struct engine *g, struct blame *b)
{
    struct comm *w = g->cfg.world;
    if (!w) return;
    int64_t best = b->key * comm_size(w) + comm_rank(w);
    comm_wait(w, comm_all_reduce(w, &best, &best, 1, DT_I64, COMM_MIN, "who saw it first"));
    comm_wait(w, comm_broadcast(w, b->out, (int64_t)b->n, DT_U8, (int)(best % comm_size(w)), "what was seen"));
}

static int64_t bad_element(const struct engine *g, const struct view *v)
{
    if (!v->p || !dtype_info(v->dtype)->is_float || v->dtype == DT_F64) return -1;
    int64_t rows = view_rows(v), cols = view_cols(v), width = (int64_t)dtype_bytes(v->dtype);
    for (int64_t r = 0; r < rows; r++) {
        const char *row = (const char *)v->p + r * (v->nd > 1 ? v->stride : cols) * width;
        int64_t at = tally_first_nonfinite(g, g->stream, row, v->dtype, cols);
        if (at >= 0) return r * cols + at;
    }
    return -1;
}

static void blame_look(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    static const char *const phase[KERNEL_N_PHASES] = {"forward", "backward", "weight gradient"};
    struct blame *b = ctx;
    if (b->found) return;
    const struct node *d = &p->tape->nodes[i->node];
    if (d->op != i->op && i->op != OP_LINEAR_SCALED && i->op != OP_GROUPED_SCALED)
        return; /* lowering put it in: what it read is looked at itself */
    const struct view *v = i->kphase == KERNEL_FWD ? c->out : c->din;
    int n = i->kphase == KERNEL_FWD ? c->n_out : c->n_in;
    for (int k = 0; k < n && !b->found; k++) {
        int64_t at = bad_element(b->g, &v[k]);
        if (at < 0) continue;
        b->found = true;
        b->key = blame_key(b->g, p, i);
        tid of = i->kphase == KERNEL_FWD ? d->out[k] : d->in[k];
        int used = snprintf(b->out, b->n, "%s%s (operation %s, %s", i->kphase == KERNEL_FWD ? "" : "the gradient of ",
                            tape_tensor(p->tape, of)->name, op_row(i->op)->name, phase[i->kphase]);
        if (d->layer >= 0) used += snprintf(b->out + used, b->n - (size_t)used, ", layer %d", d->layer);
        used += snprintf(b->out + used, b->n - (size_t)used, "), element %lld", (long long)at);
        if (b->g->cfg.world) snprintf(b->out + used, b->n - (size_t)used, ", on rank %d", b->g->cfg.rank);
    }
}

void engine_blame(struct engine *g, const struct engine_batch *b, int64_t step, char *out, size_t n)
{
    memset(out, 0, n);
    snprintf(out, n, "no single tensor (a sum overflows)");
    for (int i = 0; i < g->params.n; i++) {
        struct array_span mine = store_held(&g->store, i, STORE_PARAM); /* also of what others step */
        int64_t at = health_nonfinite(g, &g->store.array[STORE_PARAM], &mine, g->stream);
        if (at < 0) continue;
        int used = snprintf(out, n, "the parameter %s, element %lld", g->params.p[i].name, (long long)(at + mine.lo));
        if (g->cfg.world) snprintf(out + used, n - (size_t)used, ", on rank %d", g->cfg.rank);
        break;
    }
    struct blame look = {.g = g, .out = out, .n = n, .found = strncmp(out, "no", 2) != 0};
    look.key = look.found ? BLAME_PARAM : BLAME_NOTHING;
    int64_t n_trained; /* every rank runs again, whatever it found: the collectives must meet */
    struct step_info info = feed_info(g, b, step, true, &n_trained);
    feed_batch(g, b);
    tally_zero(g);
    recipes_begin(g);
    exchange_step_begin(&g->exchange);
    executor_run(g, true, &info, blame_look, &look);
    exchange_reduce_finish(&g->exchange);
    stream_sync(g->stream); /* the staging of the batch is the host's again, as after tally_read */
    blame_agree(g, &look);
}
