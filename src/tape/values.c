/* SPDX-License-Identifier: Apache-2.0 */
/* Whether what is read is what should be: every row of backward, and every row that runs a second time, finds in its
 * operands what its node read and wrote when forward ran it first. A program that leaves a row out of what it computes
 * again, or turns something twice in place, is found here, on paper, whatever the layout; with numbers nothing would
 * notice but a worse model.
 *
 * Each write to a place is remembered as (node, output, box). What lies in a box is then the list of writes that reach
 * it, from the last one that covers it whole on: those in place (ROTARY) change what was there and cover nothing. Two
 * boxes hold the same where their lists are equal. Gradients that take the bytes of values (XENT) are writes, too, and
 * equal to nothing.
 *
 * Runs on what lower.c emitted, before other passes put their rows in. Cost: a write and as many comparisons per
 * operand as its place was written to, which is a handful. Rejected: to compare numbers with those of a run that
 * computes nothing again (it is done, in tests: of the layouts and models that are tried). */
#include "tape/lower_impl.h"

struct write {
    int by; /* node * KERNEL_MAX_OUT + output; negative: a gradient's, which no value is */
    bool in_place;
    struct box box;
};
struct writes {
    struct write *p;
    int n, room;
};
struct seen {     /* an operand as its node met it first */
    int place, n; /* writes to the place until then; place negative: it lay in a slot, or nowhere */
};
struct values {
    const struct lower *l;
    struct writes *of;     /* [places] */
    struct seen *in, *out; /* [nodes * KERNEL_MAX_IN], [nodes * KERNEL_MAX_OUT] */
    bool *ran;             /* [nodes] */
    int n_writes;
};

static struct box box_of(const struct operand *o)
{
    int64_t stride = o->view.stride > 0 ? o->view.stride : 1, at = (int64_t)(o->offset / dtype_bytes(o->view.dtype));
    return (struct box){at / stride, view_rows(&o->view), at % stride, view_cols(&o->view)};
}

static bool meets(const struct box *a, const struct box *b)
{
    return a->row < b->row + b->rows && b->row < a->row + a->rows && a->col < b->col + b->cols &&
           b->col < a->col + a->cols;
}

static bool covers(const struct box *a, const struct box *b)
{
    return a->row <= b->row && a->row + a->rows >= b->row + b->rows && a->col <= b->col &&
           a->col + a->cols >= b->col + b->cols;
}

/* The last of the first n writes from which on a box's content counts. */
static int begins(const struct writes *w, int n, const struct box *b)
{
    while (n > 0 && (w->p[n - 1].in_place || !covers(&w->p[n - 1].box, b))) n--;
    return n > 0 ? n - 1 : 0;
}

static int next(const struct writes *w, int at, int n, const struct box *b)
{
    while (at < n && !meets(&w->p[at].box, b)) at++;
    return at;
}

/* What lies in the box after n writes to one place, and after m to another. */
static bool same_content(const struct writes *a, int n, const struct writes *b, int m, const struct box *box)
{
    int i = next(a, begins(a, n, box), n, box), j = next(b, begins(b, m, box), m, box);
    for (; i < n && j < m && a->p[i].by == b->p[j].by; i = next(a, i + 1, n, box), j = next(b, j + 1, m, box)) {}
    return i == n && j == m;
}

static void note(const struct values *v, const struct operand *o, struct seen *s)
{
    *s = (struct seen){o->place, o->place >= 0 ? v->of[o->place].n : 0};
}

static void write(struct values *v, const struct operand *o, int by, bool in_place)
{
    if (o->place < 0) return;
    struct writes *w = &v->of[o->place];
    GROW(w->p, w->n, w->room, 1);
    w->p[w->n++] = (struct write){by, in_place, box_of(o)};
}

static void expect(const struct values *v, const struct instr *i, const struct operand *o, const struct seen *first,
                   const char *which, int k)
{
    if (o->place < 0 || first->place < 0) return;
    const struct box box = box_of(o);
    const struct node *d = &v->l->t->nodes[i->node];
    CHECK(same_content(&v->of[first->place], first->n, &v->of[o->place], v->of[o->place].n, &box),
          "%s of '%s' finds other values in its %s %d than forward had there: what made them was not computed again, "
          "or "
          "was twice",
          i->kphase == KERNEL_FWD ? "a second run" : "backward", tape_tensor(v->l->t, d->out[0])->name, which, k);
}

static void forward_row(struct values *v, const struct instr *i)
{
    const struct node *d = &v->l->t->nodes[i->node];
    struct seen *in = v->in + (int64_t)i->node * KERNEL_MAX_IN, *out = v->out + (int64_t)i->node * KERNEL_MAX_OUT;
    bool first = !v->ran[i->node];
    for (int k = 0; k < i->n_in; k++)
        if (first) note(v, &i->in[k], &in[k]);
        else expect(v, i, &i->in[k], &in[k], "input", k);
    for (int k = 0; k < i->n_out; k++) {
        CHECK(first || i->refill || i->out[k].place != OPERAND_SLOT,
              "a second run of '%s' would write what forward has told already", tape_tensor(v->l->t, d->out[k])->name);
        write(v, &i->out[k], i->node * KERNEL_MAX_OUT + k, k == 0 && node_is_alias(v->l->t, d));
        if (first) note(v, &i->out[k], &out[k]);
    }
    v->ran[i->node] = true;
}

static void backward_row(struct values *v, const struct instr *i)
{
    struct seen *in = v->in + (int64_t)i->node * KERNEL_MAX_IN, *out = v->out + (int64_t)i->node * KERNEL_MAX_OUT;
    for (int k = 0; k < i->n_in; k++) expect(v, i, &i->in[k], &in[k], "input", k);
    for (int k = 0; k < i->n_out; k++) expect(v, i, &i->out[k], &out[k], "output", k);
    for (int k = 0; k < i->n_in; k++) write(v, &i->din[k], -1 - v->n_writes++, false);
}

void lower_check_values(const struct lower *l)
{
    size_t nodes = (size_t)l->t->n_nodes, places = (size_t)l->p->n_places;
    struct values v = {.l = l};
    v.of = xcalloc(places + 1, sizeof *v.of);
    v.in = xcalloc(nodes * KERNEL_MAX_IN + 1, sizeof *v.in);
    v.out = xcalloc(nodes * KERNEL_MAX_OUT + 1, sizeof *v.out);
    v.ran = xcalloc(nodes + 1, sizeof *v.ran);
    for (int ph = 0; ph < PHASE_N; ph++)
        for (int k = 0; k < l->code[ph].n; k++) {
            const struct instr *i = &l->code[ph].p[k];
            if (i->kphase == KERNEL_FWD) forward_row(&v, i);
            else backward_row(&v, i);
        }
    for (size_t k = 0; k < places; k++) xfree(v.of[k].p);
    xfree(v.of);
    xfree(v.in);
    xfree(v.out);
    xfree(v.ran);
}
