/* SPDX-License-Identifier: Apache-2.0 */
/* Weight gradients beside messages: in backward, a weight's gradient can be computed any time after its output's
 * gradient is there, so it waits for a collective that would travel alone.
 *
 *     sequence parallelism, one layer, before            after
 *     gather dy | down', Wdown, act', gate_up'           gather dy, Wqkv of the layer above | down', act', gate_up'
 *     scatter dx, Wgate_up | norm'                       scatter dx, Wdown | norm'
 *     gather dy | o', Wo, attention', qkv'               gather dy, Wgate_up | o', attention', qkv'
 *     scatter dx, Wqkv | norm'                           scatter dx, Wo | norm'
 *
 * (| is where the message is waited for.) From the last instruction to the first: a collective with nothing beside it
 * takes the nearest weight gradient before it; the collective that loses that one, if any did, takes the next. A weight
 * gradient that still lies beside no collective joins the next one; an expert's does not, whose operands are large.
 * What moves later keeps its operands longer: mostly what backward of the layer holds anyway. Nothing moves past an
 * instruction that writes what it reads. Order between gradients of one weight stays, so bits stay. Cost:
 * O(instructions x distance). */
#include "base/mem.h"
#include "tape/lower_impl.h"

static bool is_filler(const struct instr *i)
{
    bool product = op_linear_like(i->op) || i->op == OP_GROUPED || i->op == OP_GROUPED_SCALED;
    return i->when != WHEN_FALLEN && product && i->kphase == KERNEL_BWD_W;
}

static bool reads(const struct instr *i, const struct operand *o)
{
    bool any = instr_same_memory(o, &i->dout[0]);
    for (int k = 0; k < i->n_in; k++) any |= instr_same_memory(o, &i->in[k]) || instr_same_memory(o, &i->din[k]);
    return any;
}

/* Filler w may be computed after instruction `to`. */
static bool movable(const struct code *c, int w, int to)
{
    if (c->p[w].loop != c->p[to].loop || c->p[w].once != c->p[to].once) return false; /* as often as it was run */
    for (int i = w + 1; i <= to; i++) {
        const struct instr *x = &c->p[i];
        for (int k = 0; k < KERNEL_MAX_OUT; k++)
            if (x->kphase == KERNEL_FWD && reads(&c->p[w], &x->out[k])) return false;
        for (int k = 0; k < KERNEL_MAX_IN; k++)
            if (reads(&c->p[w], &x->din[k])) return false;
    }
    return true;
}

static bool travels(const struct instr *i) { return op_row(i->op)->travels; }

/* over[i]: something is under way at i. */
static void mark_travel(const struct code *c, bool *over)
{
    for (int i = 0; i < c->n; i++)
        for (int k = i + 1; travels(&c->p[i]) && k < c->n && !instr_touches(&c->p[k], &c->p[i]); k++) over[k] = true;
}

static bool has_filler(const struct code *c, int at, const bool *moves)
{
    for (int i = at + 1; i < c->n && !instr_touches(&c->p[i], &c->p[at]); i++)
        if (is_filler(&c->p[i]) && !moves[i]) return true;
    return false;
}

/* moves[i]: this filler goes behind the next collective. */
static void assign(const struct code *c, const bool *over, bool *moves)
{
    int next = -1;
    bool alone = false;
    for (int i = c->n - 1; i >= 0; i--) {
        if (travels(&c->p[i])) {
            next = i;
            alone = !has_filler(c, i, moves);
        } else if (is_filler(&c->p[i]) && next >= 0 && (alone || (!over[i] && op_linear_like(c->p[i].op))) &&
                   movable(c, i, next)) {
            moves[i] = true;
            alone = false;
        }
    }
}

void lower_fill(struct code *c)
{
    bool *over = xcalloc((size_t)c->n + 1, sizeof *over), *moves = xcalloc((size_t)c->n + 1, sizeof *moves);
    struct code to = {0};
    mark_travel(c, over);
    assign(c, over, moves);
    for (int i = 0, from = 0; i < c->n; i++) {
        if (!moves[i]) *lower_emit(&to) = c->p[i];
        for (; travels(&c->p[i]) && from < i; from++)
            if (moves[from]) *lower_emit(&to) = c->p[from];
    }
    xfree(over);
    xfree(moves);
    xfree(c->p);
    *c = to;
}
