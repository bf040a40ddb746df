/* SPDX-License-Identifier: Apache-2.0 */
/* Messages beside the products that make and use them: a run of neighbouring instructions is cut into pieces of rows.
 *
 *     linear 1..R, reduce, norm 1..R, linear 1..R          becomes, in two pieces,
 *     linear 1, reduce 1, linear 2, reduce 2, norm 1, linear 1, norm 2, linear 2
 *
 * Reduce 1 travels beside linear 2, reduce 2 beside norm and linear 1: until when follows from what is touched
 * (underway.c). A run is a collective with the instructions before and after it that work row by row (op_row.row_in),
 * and goes on over further collectives: from attention's output product to the next attention's input product. It is
 * cut to where products are; without one there is nothing to travel beside. Order inside: stretch by stretch between
 * collectives, in each piece by piece. A row's numbers do not depend on the rows it is computed with, and a sum over
 * ranks not on the message it is sent in, so the bits stay.
 *
 *   reduce, enter (backward)     rows [piece] of all rows: everybody has them all
 *   gather, scatter              rows [piece] of every rank's rows (region_window): a message has a part for, or from,
 *                                everybody; instructions on all rows run once for each rank's window
 *
 * What is cut is the same on all ranks of the axis: it follows from types, sizes of all ranks' rows, and the rule.
 * Collectives of backward that travel beside weight gradients (fill.c) are left alone: those hide them at no cost.
 * Cost: weights are packed once per piece and window. Rejected: cutting in each layer (said many times, and attention
 * would end every run); one piece per rank (one receiver at a time has the whole link to itself). */
#include "layout/region.h"
#include "tape/lower_impl.h"

struct stretch {    /* a run while it is looked at */
    int first, end; /* instructions */
    bool shared;    /* rows are shared out: gather and scatter; else reduce and enter */
    enum axis axis;
    int n_parts, part;
    int64_t whole; /* rows */
    int64_t pieces;
};

static const struct operand *sent(const struct instr *c) { return c->kphase == KERNEL_FWD ? &c->in[0] : &c->dout[0]; }
/* Weights' gradients come between this collective and the first use of its result. */
static bool hidden(const struct code *c, int at)
{
    for (int i = at + 1; i < c->n; i++) {
        if (instr_touches(&c->p[i], &c->p[at])) return false;
        if (c->p[i].kphase == KERNEL_BWD_W && op_linear_like(c->p[i].op)) return true;
    }
    return false;
}

/* Whether this is a collective that can be cut, and how: a run of its own. */
static bool begins(const struct lower *l, const struct code *c, int at, struct stretch *s)
{
    const struct instr *i = &c->p[at];
    bool forward = i->kphase == KERNEL_FWD;
    bool sums = forward ? i->op == OP_REDUCE : i->op == OP_ENTER;
    bool shares = i->op == OP_GATHER || i->op == OP_SCATTER;
    const struct pieces_rule *rule = &l->o.pieces;
    if (!sums && !shares) return false;
    const struct view *v = &sent(i)->view;
    if (v->nd != 2 || (shares && at_rows(&i->at)->seq)) return false; /* rows in an order of their own */
    const struct axis_ranks *over = at_over(&i->at);
    *s = (struct stretch){.first = at,
                          .end = at + 1,
                          .shared = shares,
                          .axis = over->axis,
                          .n_parts = over->n_parts,
                          .part = over->part,
                          .whole = sums ? v->n[0] : at_rows(&i->at)->whole};
    int64_t bytes = s->whole * v->n[1] * (int64_t)dtype_bytes(v->dtype);
    int64_t rows = shares ? s->whole / s->n_parts : s->whole;
    s->pieces = rule->most;
    if (rule->least_bytes && bytes / (int64_t)rule->least_bytes < s->pieces)
        s->pieces = bytes / (int64_t)rule->least_bytes;
    if (rule->least_rows && rows / rule->least_rows < s->pieces) s->pieces = rows / rule->least_rows;
    return s->pieces > 1 && (forward || !hidden(c, at));
}

static bool same_rows(const struct stretch *a, const struct stretch *b)
{
    return a->shared == b->shared && a->axis == b->axis && a->n_parts == b->n_parts && a->whole == b->whole;
}

/* ---- instructions that work row by row ---- */
/* The tensor's rows are this rank's share of them. */
static bool on_share(const struct lower *l, const struct stretch *s, const struct instr *i)
{
    return tape_tensor(l->t, l->t->nodes[i->node].out[0])->type.on[s->axis] == SPMD_S0;
}

static int64_t rows_of(const struct stretch *s, bool share)
{
    int64_t lo, hi;
    if (!share) return s->whole;
    region_split(s->whole, s->part, s->n_parts, &lo, &hi);
    return hi - lo;
}

/* All rows of what it is a part of, so that row r means the same wherever the place is named. */
static bool covers(const struct lower *l, const struct operand *o, int64_t rows)
{
    if (!o->view.nd) return true;
    if (o->view.n[0] != rows) return false;
    return o->place < 0 || tape_tensor(l->t, l->p->places[o->place].of)->n[0] == rows;
}

static bool by_rows(const struct lower *l, const struct stretch *s, const struct instr *i)
{
    const struct op_row *row = op_row(i->op);
    bool share = s->shared && on_share(l, s, i), good = row->row_in && i->kphase != KERNEL_BWD_W && i->when == ALWAYS;
    int64_t rows = rows_of(s, share);
    bool counts = (i->op == OP_ADD || i->op == OP_DROPOUT) && at_dropout(&i->at)->p > 0;
    if (counts && !i->in[i->op == OP_ADD ? 2 : 1].view.nd) return false;
    if (!s->shared && on_share(l, s, i)) return false;
    for (int k = 0; good && k < KERNEL_MAX_IN; k++) {
        const struct operand *three[] = {&i->in[k], &i->din[k], &i->acc[k]};
        for (int j = 0; j < 3; j++) good &= row->row_in >> k & 1 ? covers(l, three[j], rows) : three[j]->place < 0;
    }
    for (int k = 0; good && k < KERNEL_MAX_OUT; k++) {
        const struct operand *two[] = {&i->out[k], &i->dout[k]};
        for (int j = 0; j < 2; j++) good &= row->row_out >> k & 1 ? covers(l, two[j], rows) : two[j]->place < 0;
    }
    return good;
}

/* The run around the collective at s->first: as far as it goes, then back to the outermost products. */
static bool extend(const struct lower *l, const struct code *c, int from, struct stretch *s)
{
    int at = s->first, last = at, product = -1;
    for (int i = at - 1; i >= from && by_rows(l, s, &c->p[i]); i--)
        if (c->p[i].op == OP_LINEAR) {
            s->first = i;
            break;
        }
    for (int i = at + 1; i < c->n; i++) {
        struct stretch more;
        if (begins(l, c, i, &more) && same_rows(s, &more)) {
            last = i;
            if (more.pieces < s->pieces) s->pieces = more.pieces;
        } else if (!by_rows(l, s, &c->p[i])) {
            break;
        } else if (c->p[i].op == OP_LINEAR) {
            product = i;
        }
    }
    s->end = 1 + (product > last ? product : last);
    return product >= 0 || s->first < at;
}

/* ---- cutting ---- */
static void window(struct operand *o, int64_t lo, int64_t hi)
{
    if (!o->view.nd) return;
    o->view.n[0] = hi - lo;
    o->offset += to_size(lo * (o->view.nd > 1 ? o->view.stride : 1)) * dtype_bytes(o->view.dtype);
}

static struct instr *copy(const struct instr *i, const struct stretch *s, int run, int piece, struct code *to)
{
    struct instr *n = lower_emit(to);
    *n = *i;
    n->run = run;
    n->piece = piece;
    n->pieces = to_int(s->pieces);
    return n;
}

static void cut_rows(const struct instr *i, const struct stretch *s, int run, int piece, int64_t lo, int64_t hi,
                     struct code *to)
{
    const struct op_row *row = op_row(i->op);
    struct instr *n = copy(i, s, run, piece, to);
    for (int k = 0; k < KERNEL_MAX_IN; k++) {
        if (!(row->row_in >> k & 1)) continue;
        window(&n->in[k], lo, hi);
        window(&n->din[k], lo, hi);
        window(&n->acc[k], lo, hi);
    }
    for (int k = 0; k < KERNEL_MAX_OUT; k++) {
        if (!(row->row_out >> k & 1)) continue;
        window(&n->out[k], lo, hi);
        window(&n->dout[k], lo, hi);
    }
}

/* A collective between this rank's rows and all ranks' rows. Operands that hold this rank's rows are cut to the piece
 * here. Those that hold all ranks' rows stay whole: parallel/run.c takes the piece out of them when it moves the
 * bytes. */
static void cut_shared(const struct instr *i, const struct stretch *s, int run, int piece, struct code *to)
{
    struct instr *n = copy(i, s, run, piece, to);
    int64_t lo, hi, own = rows_of(s, true);
    bool gathers = (i->op == OP_GATHER) == (i->kphase == KERNEL_FWD);
    region_split(own, piece, n->pieces, &lo, &hi);
    edit_rows(&n->at)->pieces = n->pieces;
    edit_rows(&n->at)->piece = piece;
    struct operand *share[] = {i->kphase == KERNEL_FWD ? (gathers ? &n->in[0] : &n->out[0])
                                                       : (gathers ? &n->dout[0] : &n->din[0]),
                               i->kphase != KERNEL_FWD && !gathers ? &n->acc[0] : NULL,
                               i->kphase != KERNEL_FWD ? (gathers ? &n->out[0] : &n->in[0]) : NULL};
    for (int k = 0; k < 3; k++)
        if (share[k]) window(share[k], lo, hi);
}

static void cut_sum(const struct instr *i, const struct stretch *s, int run, int piece, struct code *to)
{
    struct instr *n = copy(i, s, run, piece, to);
    int64_t lo, hi;
    region_split(s->whole, piece, n->pieces, &lo, &hi);
    struct operand *all[] = {&n->in[0], &n->out[0], &n->dout[0], &n->din[0], &n->acc[0]};
    for (int k = 0; k < 5; k++) window(all[k], lo, hi);
}

static void cut(const struct lower *l, const struct instr *i, const struct stretch *s, int run, int piece,
                struct code *to)
{
    int64_t lo, hi;
    int pieces = to_int(s->pieces);
    if (op_collective(i->op)) {
        (s->shared ? cut_shared : cut_sum)(i, s, run, piece, to);
    } else if (!s->shared || on_share(l, s, i)) {
        region_split(rows_of(s, s->shared), piece, pieces, &lo, &hi);
        cut_rows(i, s, run, piece, lo, hi, to);
    } else {
        for (int r = 0; r < s->n_parts; r++) {
            region_window(s->whole, r, s->n_parts, piece, pieces, &lo, &hi);
            cut_rows(i, s, run, piece, lo, hi, to);
        }
    }
}

static void cut_run(const struct lower *l, const struct code *c, const struct stretch *s, int run, struct code *to)
{
    for (int at = s->first, end; at < s->end; at = end) {
        for (end = at; end < s->end && !op_collective(c->p[end].op);) end++;
        if (end < s->end) end++; /* a stretch ends with its collective */
        for (int piece = 0; piece < s->pieces; piece++)
            for (int i = at; i < end; i++) cut(l, &c->p[i], s, run, piece, to);
    }
}

void lower_pieces(struct lower *l, struct code *c)
{
    struct code to = {0};
    int done = 0, run = 0;
    if (l->o.pieces.most < 2) return;
    CHECK(l->o.pieces.most <= PIECES_MOST, "%d pieces", l->o.pieces.most);
    for (int i = 0; i < c->n; i++) {
        struct stretch s;
        if (!begins(l, c, i, &s) || !extend(l, c, done, &s)) continue;
        for (; done < s.first; done++) *lower_emit(&to) = c->p[done];
        cut_run(l, c, &s, ++run, &to);
        done = s.end;
        i = s.end - 1;
    }
    for (; done < c->n; done++) *lower_emit(&to) = c->p[done];
    xfree(c->p);
    *c = to;
}
