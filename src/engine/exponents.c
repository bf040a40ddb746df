/* SPDX-License-Identifier: Apache-2.0 */
/* An operand is counted where its product reads it; of a product of fewer bits where it is rounded, in the direction
 * that every product has it in (x, w forward; dy for the gradient of inputs). Cost of such a step: a pass over operands
 * and gradients, an element at a time, and a message of a few kilobytes. */
#include "engine/exponents.h"

#include <string.h>

#include "engine/engine.h"

void exponents_new(struct engine *g)
{
    if (g->cfg.exponents_every && g->cfg.training && !g->dev->counts_only)
        g->exponents.bins = xcalloc(CLASS_N, sizeof *g->exponents.bins);
}

void exponents_free(struct engine *g) { xfree(g->exponents.bins); }

bool exponents_due(const struct engine *g, int64_t step)
{
    return g->exponents.bins && (step + 1) % g->cfg.exponents_every == 0;
}

void exponents_begin(struct engine *g) { memset(g->exponents.bins, 0, CLASS_N * sizeof *g->exponents.bins); }

/* Whether this rank is the one that counts a tensor of this type. */
static bool counts_here(const struct engine *g, struct spmd_type t, bool gradient)
{
    enum spmd on = (enum spmd)t.on[AXIS_TP];
    if (gradient) on = spmd_dual(on);
    return g->cfg.par.size[AXIS_TP] <= 1 || g->cfg.par.rank[AXIS_TP] == 0 || (on != SPMD_I && on != SPMD_R);
}

static void count(struct engine *g, enum exponent_class k, const struct view *v)
{
    if (v->p) kernel_count_exponents(g->stream, v, g->exponents.bins[k]);
}

void exponents_look(struct engine *g, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    const struct tape *t = p->tape;
    const struct node *d = &t->nodes[i->node];
    if (d->op != OP_LINEAR || i->again || (c->op != OP_LINEAR && c->op != OP_QUANTISE)) return;
    bool rounds = c->op == OP_QUANTISE;
    enum kernel_phase direction = rounds ? i->direction : c->phase;
    if (direction == KERNEL_BWD_W) return;
    bool x = counts_here(g, tape_tensor(t, d->in[0])->type, false),
         dy = counts_here(g, tape_tensor(t, d->out[0])->type, true);
    if (direction == KERNEL_FWD) {
        if (x && (!rounds || i->operand == OPERAND_X)) count(g, CLASS_ACTIVATIONS, &c->in[0]);
        if (!rounds) count(g, CLASS_WEIGHTS, &c->in[1]);
        else if (i->operand == OPERAND_W) count(g, CLASS_WEIGHTS, &c->in[0]);
    } else if (dy && (!rounds || i->operand == OPERAND_DY)) {
        count(g, CLASS_GRADIENTS, rounds ? &c->in[0] : &c->dout[0]);
    }
}

void exponents_agree(struct engine *g)
{
    for (int i = 0; i < g->params.n; i++) {
        int64_t n = g->params.p[i].counted ? g->store.units.piece[i].n : 0;
        struct view v = {.p = store_piece_grad(&g->store, i),
                         .dtype = g->store.grad_dtype,
                         .nd = 1,
                         .n = {n},
                         .stride = 1};
        if (n) count(g, CLASS_WEIGHT_GRADIENTS, &v);
    }
    int64_t *all = g->exponents.bins[0];
    if (g->cfg.world)
        comm_wait(g->cfg.world, comm_all_reduce(g->cfg.world, all, all, (int64_t)CLASS_N * EXPONENT_BINS, DT_I64,
                                                COMM_SUM, "numbers by exponent"));
}
