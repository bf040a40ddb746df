/* SPDX-License-Identifier: Apache-2.0 */
/* An operand is counted where its product reads it; of a product of fewer bits where it is rounded, in the direction
 * that every product has it in (x, w forward; dy for the gradient of inputs). Cost of such a step: a pass over operands
 * and gradients, an element at a time, and a message of a few kilobytes. */
#include "engine/exponents.h"

#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"

int exponents_new(struct engine *g, struct err *e)
{
    struct exponents *x = &g->exponents;
    if (!g->cfg.exponents_every || !g->cfg.training) return OK;
    if (!g->dev->counts_only) x->bins = xcalloc(CLASS_N, sizeof *x->bins);
    return buffer_new(&x->on_device, g->dev, MEM_DATA, CLASS_N * sizeof *x->bins, e);
}

void exponents_free(struct engine *g)
{
    xfree(g->exponents.bins);
    buffer_free(&g->exponents.on_device);
}

bool exponents_due(const struct engine *g, int64_t step)
{
    return g->exponents.bins && (step + 1) % g->cfg.exponents_every == 0;
}

void exponents_begin(struct engine *g)
{
    device_zero(g->stream, &g->exponents.on_device, 0, g->exponents.on_device.bytes);
}

/* Whether this rank is the one that counts a tensor of this type. Experts' columns are cut over etp where that is less
 * than tp. */
static bool counts_here(const struct engine *g, struct spmd_type t, bool gradient, bool experts)
{
    const struct par *p = &g->cfg.par;
    enum axis cut = experts && par_experts_apart(p) ? AXIS_ETP : AXIS_TP;
    enum spmd on = (enum spmd)t.on[cut];
    if (gradient) on = spmd_dual(on);
    return p->size[cut] <= 1 || p->rank[cut] == 0 || (on != SPMD_I && on != SPMD_R);
}

static void count(struct engine *g, enum exponent_class k, const struct view *v, int64_t times)
{
    int64_t(*bins)[EXPONENT_BINS] = g->exponents.on_device.p;
    if (!v->p || !times) return;
    struct kernel_call c = exponents_call(v, times, bins[k]);
    kernel_enqueue(g->stream, &c);
}

/* Rows of experts that there are: of all parts, in this round. */
static int64_t rows_used(struct engine *g, const struct view *rows, bool sources)
{
    int64_t n = view_rows(rows) * view_cols(rows), used = 0, from = sources || rows->nd == 1 ? n : view_cols(rows);
    int32_t *room = xmalloc(to_size(n) * sizeof *room + 1);
    const int32_t *of = rows->p ? device_peek(g->stream, rows->p, to_size(n) * sizeof *of, room) : NULL;
    for (int64_t i = 0; of && i < from; i++) used += of[i];
    xfree(room);
    return used;
}

/* A weight is counted once for each microbatch whose rows meet it, as on one rank: where ranks of ep send rows of
 * several microbatches so often, and where those of one go to several ranks, on the first of these. */
static int64_t times_met(const struct engine *g)
{
    const struct par *p = &g->cfg.par;
    int tp = p->size[AXIS_TP], met = p->size[AXIS_EP] * par_expert_copies(p);
    if (!par_experts_apart(p)) return p->size[AXIS_EP];
    if (met % tp == 0) return met / tp;
    return tp % met || p->rank[AXIS_EDP] % (tp / met) == 0;
}

/* What a product reads or its gradient of the same rows: those of sequences that exist; of experts those that there
 * are.
 */
static struct view rows_of(struct engine *g, const struct tape *t, const struct node *d, const struct kernel_call *c,
                           const struct view *v)
{
    struct view used = *v;
    const struct par *p = &g->cfg.par;
    if (c->op == OP_LINEAR || c->op == OP_QUANTISE)
        used.n[0] = token_rows_there(tape_token_rows(t, d->in[0], g->cfg.micro, g->cfg.micro * engine_seq_here(g),
                                                     par_ranks(p, AXIS_TP)),
                                     v->n[0], g->cfg.micro, c->step->blank);
    bool sources = c->op == OP_QUANTISE_PARTS && at_quantise_parts(&c->at)->parts.sources > 0;
    if (c->op == OP_GROUPED || c->op == OP_QUANTISE_PARTS) used.n[0] = rows_used(g, &c->in[2], sources);
    return used;
}

void exponents_look(struct engine *g, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    const struct tape *t = p->tape;
    const struct node *d = &t->nodes[i->node];
    bool experts = d->op == OP_GROUPED, rounds = c->op == OP_QUANTISE || c->op == OP_QUANTISE_PARTS;
    if ((d->op != OP_LINEAR && !experts) || i->again || i->refill || (c->op != d->op && !rounds)) return;
    enum kernel_phase direction = rounds ? i->direction : c->phase;
    if (direction == KERNEL_BWD_W) return;
    bool x = counts_here(g, tape_tensor(t, d->in[0])->type, false, experts),
         dy = counts_here(g, tape_tensor(t, d->out[0])->type, true, experts);
    if (direction == KERNEL_FWD) {
        const struct view rows =
            x && (!rounds || i->operand == OPERAND_X) ? rows_of(g, t, d, c, &c->in[0]) : (struct view){0};
        int64_t times = !counts_here(g, tape_tensor(t, d->in[1])->type, false, experts) || c->round ? 0
                        : experts                                                                   ? times_met(g)
                                                                                                    : 1;
        if (!experts && c->step->blank == g->cfg.micro) times = 0;          /* nobody's rows meet it */
        if (i->kept) times *= (g->given + g->cfg.micro - 1) / g->cfg.micro; /* made once for all of them */
        count(g, CLASS_ACTIVATIONS, &rows, 1);
        if (!rounds) count(g, CLASS_WEIGHTS, &c->in[1], times);
        else if (i->operand == OPERAND_W) count(g, CLASS_WEIGHTS, &c->in[0], times);
    } else if (dy && (!rounds || i->operand == OPERAND_DY)) {
        const struct view rows = rows_of(g, t, d, c, rounds ? &c->in[0] : &c->dout[0]);
        count(g, CLASS_GRADIENTS, &rows, 1);
    }
}

void exponents_agree(struct engine *g)
{
    for (int i = 0; i < g->params.n; i++) {
        int64_t n = g->params.p[i].counted && !g->params.p[i].frozen ? g->store.units.piece[i].n : 0;
        struct view v = {.p = store_piece_grad(&g->store, i),
                         .dtype = g->store.grad_dtype,
                         .nd = 1,
                         .n = {n},
                         .stride = 1};
        if (n) count(g, CLASS_WEIGHT_GRADIENTS, &v, 1);
    }
    int64_t *all = g->exponents.bins[0];
    if (g->exponents.on_device.p) {
        device_to_host(g->stream, all, &g->exponents.on_device, 0, g->exponents.on_device.bytes);
        stream_sync(g->stream);
    }
    if (g->cfg.world)
        comm_wait(g->cfg.world, comm_all_reduce(g->cfg.world, all, all, (int64_t)CLASS_N * EXPONENT_BINS, DT_I64,
                                                COMM_SUM, "numbers by exponent"));
}
