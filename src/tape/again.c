/* SPDX-License-Identifier: Apache-2.0 */
/* What of forward backward must have again: of a recompute segment what is computed once more, of a wave what each
 * round makes or reads. Decided from the last node to the first, since what runs again reads, too. */
#include "tape/lower_impl.h"

/* The node that wrote the bytes which x lies in: behind views, and behind nodes that hand their input's memory on
 * (ENTER). -1: none did. */
static int maker_of(const struct tape *t, tid x)
{
    int i = tape_tensor(t, tape_tensor(t, x)->root)->producer;
    while (i >= 0 && !t->nodes[i].retype && op_row(t->nodes[i].op)->alias_fwd)
        i = tape_tensor(t, tape_tensor(t, t->nodes[i].in[0])->root)->producer;
    return i;
}

/* What it puts out goes to others: the next stage, or sums that are told. It is theirs when backward comes, and what is
 * added up is added once; so all that the node puts out is kept. */
static bool is_told(const struct tape *t, const struct node *d)
{
    bool any = false;
    for (int k = 0; k < d->n_out; k++) any |= tape_tensor(t, tape_tensor(t, d->out[k])->root)->kind == TENSOR_EXTERNAL;
    return any && !d->retype;
}

/* Whether a node of a recompute segment may run again: its operation is one of those, or it works in the memory of one
 * that is; what has its input's values costs nothing. */
static bool may_run_again(const struct lower *l, const struct segment *s, int index)
{
    const struct node *d = &l->t->nodes[index];
    int maker = maker_of(l->t, d->out[0]);
    if (is_told(l->t, d)) return false;
    if (lower_in_wave(l, index)) return s->again >> OP_COMBINE & 1; /* all of it, or nothing */
    if (!d->retype && op_row(d->op)->alias_fwd) return true;
    if (node_is_alias(l->t, d) && maker >= s->first) d = &l->t->nodes[maker];
    return s->again >> d->op & 1;
}

/* Backward reads the values of in[k]: itself, or to make a round's again. */
static bool reads_in(const struct lower *l, int index, int k)
{
    const struct node *d = &l->t->nodes[index];
    const struct op_row *row = op_row(d->op);
    return ((row->save_in | row->save_in_w) >> k & 1) || (k == 0 && d->op == OP_DISPATCH && lower_in_wave(l, index));
}

/* Node i's outputs are read by backward, of nodes up to `end`, or by what runs again of them. */
static bool is_read(const struct lower *l, int i, int first, int end, const bool *needed)
{
    const struct tape *t = l->t;
    const struct node *d = &t->nodes[i];
    for (int o = 0; o < d->n_out; o++) {
        tid root = tape_tensor(t, d->out[o])->root;
        if (!d->retype && (op_row(d->op)->save_out >> o & 1)) return true;
        for (int j = i + 1; j < end; j++) {
            const struct node *c = &t->nodes[j];
            for (int k = 0; k < c->n_in; k++)
                if (c->in[k] >= 0 && tape_tensor(t, c->in[k])->root == root &&
                    ((!c->retype && reads_in(l, j, k)) || needed[j - first]))
                    return true;
            /* in-place: an alias written later makes its root's producer needed */
            if (!c->retype && node_is_alias(t, c) && tape_tensor(t, c->out[0])->root == root && needed[j - first])
                return true;
        }
    }
    return false;
}

/* Which nodes of a recompute segment must run again: those of its operations whose outputs backward inside the segment
 * reads; a wave, from its combine on, as one. */
void again_in_segment(const struct lower *l, const struct segment *s, bool *needed)
{
    for (int i = s->end - 1; i >= s->first; i--) {
        int wave = lower_in_wave(l, i) ? l->t->nodes[i].wave : -1;
        if (!may_run_again(l, s, i) || (wave >= 0 && i + 1 < l->t->waves[wave].end)) continue;
        if (!is_read(l, i, s->first, s->end, needed)) continue;
        needed[i - s->first] = true;
        for (int j = i; wave >= 0 && j >= l->t->waves[wave].first; j--)
            if (lower_in_wave(l, j)) needed[j - s->first] = true;
    }
}

/* Which nodes of a wave a round of backward must have again: those whose outputs it reads. */
void again_in_round(const struct lower *l, const struct wave *w, bool *needed)
{
    for (int i = w->end - 1; i >= w->first; i--)
        needed[i - w->first] = lower_in_wave(l, i) && is_read(l, i, w->first, w->end, needed);
}
