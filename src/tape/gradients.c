/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients while they are gathered: which tensors have one, and where a contribution to it goes.
 *
 * The gradient of a tensor is a place, held until the tensor's producer has consumed it. A second contribution adds
 * in place unless somebody else still reads those bytes (another tensor that shares the gradient through an
 * addition, or a deferred weight gradient); then it goes to a new place, reading the old one as `acc`. A part of a
 * tensor (a view) contributes to its box of the place; boxes say what is written. */
#include <string.h>

#include "tape/lower_impl.h"

/* Backward goes no further than to what follows from something that is trained: below frozen layers there is none. */
void grad_find(struct lower *l)
{
    const struct tape *t = l->t;
    for (int i = 0; i < t->n_tensors; i++)
        l->moves[i] = t->tensors[i].kind == TENSOR_EXTERNAL && t->tensors[i].grad_slot >= 0;
    for (int i = 0; i < t->n_nodes; i++) {
        const struct node *d = &t->nodes[i];
        const struct op_row *row = op_row(d->op);
        bool any = false, together = false;
        for (int k = 0; k < d->n_in; k++) {
            bool passes = d->retype || ((row->grad_in | row->weight_in) >> k & 1);
            bool moves = passes && d->in[k] >= 0 && l->moves[tape_tensor(t, d->in[k])->root];
            any |= moves;
            together |= moves && (row->grad_in >> k & 1) && d->op != OP_ADD;
        }
        for (int k = 0; together && k < d->n_in; k++) { /* a kernel makes all of them (q, k and v), or none */
            tid root = (row->grad_in >> k & 1) && d->in[k] >= 0 ? tape_tensor(t, d->in[k])->root : -1;
            if (root >= 0 && tape_tensor(t, root)->kind == TENSOR_LOCAL) l->moves[root] = true;
        }
        for (int k = 0; any && k < d->n_out; k++) l->moves[tape_tensor(t, d->out[k])->root] = true;
    }
}

bool grad_wanted(const struct lower *l, tid x)
{
    if (x < 0) return false;
    const struct tensor *root = tape_tensor(l->t, tape_tensor(l->t, x)->root);
    if (root->kind != TENSOR_LOCAL) return root->grad_slot >= 0;
    if (!l->moves[root->root]) return false;
    const struct node *made = root->producer >= 0 ? &l->t->nodes[root->producer] : NULL;
    return !made || made->retype || op_row(made->op)->has_backward; /* of what is only cut or counted nothing follows */
}

static bool box_meets(const struct box *a, const struct box *b)
{
    return a->row < b->row + b->rows && b->row < a->row + a->rows && a->col < b->col + b->cols &&
           b->col < a->col + a->cols;
}

static struct box box_of(const struct tape *t, tid x)
{
    const struct tensor *v = tape_tensor(t, x);
    return (struct box){v->row, tensor_rows(v), v->col, tensor_cols(v)};
}

static int64_t box_area(const struct box *b) { return b->rows * b->cols; }

/* What is already written of root's gradient where x lies: none, exactly x, or all of it. */
static bool grad_written(const struct grad *g, const struct box *b, const char *name)
{
    int64_t area = 0;
    bool met = false;
    for (int i = 0; i < g->n_boxes; i++)
        if (box_meets(&g->boxes[i], b)) {
            met = true;
            area += box_area(&g->boxes[i]);
        }
    if (!met) return false;
    /* Later contributions must cover whole earlier ones, or lie inside one of them. */
    bool inside = false;
    for (int i = 0; i < g->n_boxes; i++)
        inside |= g->boxes[i].row <= b->row && g->boxes[i].row + g->boxes[i].rows >= b->row + b->rows &&
                  g->boxes[i].col <= b->col && g->boxes[i].col + g->boxes[i].cols >= b->col + b->cols;
    CHECK(inside || area == box_area(b), "gradient of %s is written in pieces that overlap", name);
    return true;
}

static void grad_add_box(struct lower *l, struct grad *g, struct box b)
{
    if (g->n_boxes == g->room) {
        g->room = g->room ? 2 * g->room : 4;
        struct box *more = arena_alloc(l->arena, sizeof *more * (size_t)g->room);
        if (g->n_boxes) memcpy(more, g->boxes, sizeof *more * (size_t)g->n_boxes);
        g->boxes = more;
    }
    g->boxes[g->n_boxes++] = b;
}

static void grad_hold(struct lower *l, struct grad *g, int place)
{
    if (g->place >= 0) l->p->places[g->place].holders--;
    g->place = place;
    l->p->places[place].holders++;
}

bool grad_place_is_read(const struct lower *l, int place)
{
    return l->p->places[place].holders > 1 || l->p->places[place].pinned;
}

void grad_begin(struct lower *l, tid root, int place)
{
    grad_hold(l, &l->grad[root], place);
    grad_add_box(l, &l->grad[root], box_of(l->t, root));
}

/* Where a contribution to x's gradient goes. */
void grad_contribute(struct lower *l, tid x, struct operand *din, struct operand *acc)
{
    const struct tensor *v = tape_tensor(l->t, x);
    const struct tensor *root = tape_tensor(l->t, v->root);
    *din = *acc = lower_shape(l, x);
    if (root->kind == TENSOR_EXTERNAL && !root->boundary) {
        CHECK(root->grad_slot >= 0, "%s wants no gradient", root->name);
        *din = lower_operand(l, x, OPERAND_SLOT);
        din->slot = root->grad_slot;
        return;
    }
    struct grad *g = &l->grad[v->root];
    struct box b = box_of(l->t, x);
    if (g->place < 0) grad_hold(l, g, lower_place_of(l, v->root, true));
    if (!grad_written(g, &b, root->name)) {
        grad_add_box(l, g, b);
        *din = lower_operand(l, x, g->place);
        return;
    }
    *acc = lower_operand(l, x, g->place);
    if (grad_place_is_read(l, g->place)) {
        CHECK(box_area(&b) == tensor_numel(root), "a part of the shared gradient of %s is added to", root->name);
        grad_hold(l, g, lower_place_of(l, v->root, true));
    }
    *din = lower_operand(l, x, g->place);
}

bool grad_hand_on(struct lower *l, tid x, int place)
{
    const struct tensor *v = tape_tensor(l->t, x), *root = tape_tensor(l->t, v->root);
    bool whole = tensor_numel(v) == tensor_numel(root); /* itself, or under another mesh type */
    bool activation = root->kind == TENSOR_LOCAL || root->boundary;
    if (!whole || !activation || l->grad[v->root].place >= 0) return false;
    grad_begin(l, v->root, place);
    return true;
}

void grad_release(struct lower *l, tid root)
{
    struct grad *g = &l->grad[root];
    if (g->place >= 0) l->p->places[g->place].holders--;
    g->place = -1;
    g->n_boxes = 0;
}

/* Every element of the gradient that a producer is about to read was written. */
void grad_check(const struct lower *l, tid root)
{
    const struct grad *g = &l->grad[root];
    int64_t area = 0;
    for (int i = 0; i < g->n_boxes; i++) area += box_area(&g->boxes[i]);
    CHECK(g->place < 0 || area == tensor_numel(tape_tensor(l->t, root)),
          "part of the output %s is never used, so its gradient has a hole", tape_tensor(l->t, root)->name);
}

/* Where the gradient of a weight goes: f32, its slot's. */
struct operand grad_of_weight(const struct lower *l, tid x)
{
    const struct tensor *w = tape_tensor(l->t, x);
    CHECK(w->grad_slot >= 0, "%s is used as a weight but has no gradient slot", w->name);
    struct operand o = lower_operand(l, x, OPERAND_SLOT);
    o.view.dtype = DT_F32;
    o.offset = to_size(w->row * o.view.stride + w->col) * dtype_bytes(DT_F32);
    o.slot = w->grad_slot;
    return o;
}
