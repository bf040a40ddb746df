/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering: walk the nodes once forward and once backward, emitting one instruction per kernel call. Backward needs
 * no rules of its own: which inputs and outputs an instruction reads follows from the operation's row, where its
 * gradients go follows from who contributed before.
 *
 * The gradient of a tensor is a place, held until the tensor's producer has consumed it. A second contribution adds
 * in place unless somebody else still reads those bytes (another tensor that shares the gradient through an
 * addition, or a deferred weight gradient); then it goes to a new place, reading the old one as `acc`.
 *
 * Cost: O(nodes) instructions; placement (place.c) is O(places^2). Rejected: reference counting at run time (sizes
 * would not be known before the run) and a static graph compiler (nothing to gain beside a GEMM). */
#include <string.h>

#include "tape/lower.h"

/* ---- lists ---- */
struct instr *lower_emit(struct code *c)
{
    GROW(c->p, c->n, c->room, 1);
    struct instr *i = &c->p[c->n++];
    memset(i, 0, sizeof *i);
    for (int k = 0; k < KERNEL_MAX_IN; k++) i->in[k].place = i->din[k].place = i->acc[k].place = OPERAND_NONE;
    for (int k = 0; k < KERNEL_MAX_OUT; k++) i->out[k].place = i->dout[k].place = OPERAND_NONE;
    i->scratch = -1;
    return i;
}

static struct instr *emit(struct lower *l, enum tape_phase phase) { return lower_emit(&l->code[phase]); }

int lower_place(struct lower *l, tid of, bool grad, size_t bytes)
{
    struct program *p = l->p;
    GROW(p->places, p->n_places, l->room_places, 1);
    p->places[p->n_places] =
        (struct place){.bytes = bytes, .of = of, .grad = grad, .first = -1, .last = -1, .slot = -1};
    return p->n_places++;
}

static size_t root_bytes(const struct tape *t, tid root)
{
    const struct tensor *x = tape_tensor(t, root);
    return to_size(tensor_numel(x)) * dtype_bytes(x->dtype);
}

/* ---- operands ---- */
static struct operand operand_at(const struct lower *l, tid x, int place)
{
    struct operand o = {.view = tensor_view(l->t, x), .place = place};
    const struct tensor *v = tape_tensor(l->t, x);
    o.offset = to_size(v->row * o.view.stride + v->col) * dtype_bytes(v->dtype);
    return o;
}

/* The values of x: an external slot or the place its root was written to. */
static struct operand operand_value(const struct lower *l, tid x)
{
    if (x < 0) return (struct operand){.place = OPERAND_NONE};
    const struct tensor *root = tape_tensor(l->t, tape_tensor(l->t, x)->root);
    struct operand o = operand_at(l, x, l->value[root->root]);
    if (root->kind == TENSOR_EXTERNAL) {
        o.place = OPERAND_SLOT;
        o.slot = root->slot;
    } else {
        CHECK(o.place >= 0, "%s is read before it is written", root->name);
    }
    return o;
}

static struct operand operand_shape(const struct lower *l, tid x)
{
    struct operand o = {.place = OPERAND_NONE};
    if (x >= 0) o.view = tensor_view(l->t, x);
    return o;
}

/* The output is the input's memory (ROTARY). */
static bool node_is_alias(const struct tape *t, const struct node *d)
{
    tid o = d->out[0];
    return tape_tensor(t, o)->root != o;
}

/* ---- forward ---- */
/* Partial values are read by their reduction only, so the sum takes their memory. */
static bool reduces_in_place(const struct lower *l, const struct node *d)
{
    const struct op_row *row = op_row(d->op);
    const struct tensor *x = tape_tensor(l->t, d->in[0]), *root = tape_tensor(l->t, x->root);
    return row->by == BY_RANKS && row->inplace_fwd && root->kind == TENSOR_LOCAL &&
           tensor_numel(x) == tensor_numel(root);
}

static struct instr *emit_forward(struct lower *l, enum tape_phase phase, int index, bool again)
{
    const struct node *d = &l->t->nodes[index];
    if (d->retype) return NULL;
    if (op_row(d->op)->alias_fwd) { /* the same values; only its gradient is its own */
        l->value[d->out[0]] = l->value[tape_tensor(l->t, d->in[0])->root];
        return NULL;
    }
    struct instr *i = emit(l, phase);
    i->op = d->op;
    i->kphase = KERNEL_FWD;
    i->node = index;
    i->again = again;
    i->at = d->at;
    i->n_in = d->n_in;
    i->n_out = d->n_out;
    for (int k = 0; k < d->n_in; k++) i->in[k] = operand_value(l, d->in[k]);
    for (int k = 0; k < d->n_out; k++) {
        const struct tensor *root = tape_tensor(l->t, tape_tensor(l->t, d->out[k])->root);
        if (root->kind == TENSOR_LOCAL && root->root == d->out[k])
            l->value[root->root] = reduces_in_place(l, d)
                                       ? i->in[0].place
                                       : lower_place(l, root->root, false, root_bytes(l->t, root->root));
        i->out[k] = operand_value(l, d->out[k]);
    }
    return i;
}

/* ---- gradients ---- */
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

static bool place_is_read_later(const struct lower *l, int place)
{
    return l->p->places[place].holders > 1 || l->p->places[place].pinned;
}

/* Where a contribution to x's gradient goes. */
static void contribute(struct lower *l, tid x, struct operand *din, struct operand *acc)
{
    const struct tensor *v = tape_tensor(l->t, x);
    const struct tensor *root = tape_tensor(l->t, v->root);
    *din = *acc = operand_shape(l, x);
    if (root->kind == TENSOR_EXTERNAL && !root->boundary) {
        CHECK(root->grad_slot >= 0, "%s wants no gradient", root->name);
        *din = operand_at(l, x, OPERAND_SLOT);
        din->slot = root->grad_slot;
        return;
    }
    struct grad *g = &l->grad[v->root];
    struct box b = box_of(l->t, x);
    if (g->place < 0) grad_hold(l, g, lower_place(l, v->root, true, root_bytes(l->t, v->root)));
    if (!grad_written(g, &b, root->name)) {
        grad_add_box(l, g, b);
        *din = operand_at(l, x, g->place);
        return;
    }
    *acc = operand_at(l, x, g->place);
    if (place_is_read_later(l, g->place)) {
        CHECK(box_area(&b) == tensor_numel(root), "a part of the shared gradient of %s is added to", root->name);
        grad_hold(l, g, lower_place(l, v->root, true, root_bytes(l->t, v->root)));
    }
    *din = operand_at(l, x, g->place);
}

/* x's gradient is that of `from` (an addition's output): no copy if x has none yet. Returns false if it has. */
static bool contribute_alias(struct lower *l, tid x, int place)
{
    const struct tensor *v = tape_tensor(l->t, x), *root = tape_tensor(l->t, v->root);
    bool whole = tensor_numel(v) == tensor_numel(root); /* itself, or under another mesh type */
    bool activation = root->kind == TENSOR_LOCAL || root->boundary;
    if (!whole || !activation || l->grad[v->root].place >= 0) return false;
    grad_hold(l, &l->grad[v->root], place);
    grad_add_box(l, &l->grad[v->root], box_of(l->t, v->root));
    return true;
}

static void grad_release(struct lower *l, tid root)
{
    struct grad *g = &l->grad[root];
    if (g->place >= 0) l->p->places[g->place].holders--;
    g->place = -1;
    g->n_boxes = 0;
}

static bool wants_gradient(const struct lower *l, tid x)
{
    if (x < 0) return false;
    const struct tensor *root = tape_tensor(l->t, tape_tensor(l->t, x)->root);
    return root->kind == TENSOR_LOCAL || root->grad_slot >= 0;
}

static void operands_backward(const struct lower *l, const struct node *d, struct instr *i, uint8_t save_in,
                              uint8_t save_out)
{
    for (int k = 0; k < d->n_in; k++)
        i->in[k] = (save_in >> k & 1) && d->in[k] >= 0 ? operand_value(l, d->in[k]) : operand_shape(l, d->in[k]);
    for (int k = 0; k < d->n_out; k++)
        i->out[k] = (save_out >> k & 1) ? operand_value(l, d->out[k]) : operand_shape(l, d->out[k]);
    i->dout[0] = operand_shape(l, d->out[0]);
    const struct tensor *out = tape_tensor(l->t, d->out[0]);
    if (l->grad[out->root].place >= 0) i->dout[0] = operand_at(l, d->out[0], l->grad[out->root].place);
}

static struct instr *emit_backward(struct lower *l, enum tape_phase phase, int index, enum kernel_phase kphase)
{
    const struct node *d = &l->t->nodes[index];
    const struct op_row *row = op_row(d->op);
    struct instr *i = emit(l, phase);
    i->op = d->op;
    i->kphase = kphase;
    i->node = index;
    i->at = d->at;
    i->n_in = d->n_in;
    i->n_out = d->n_out;
    operands_backward(l, d, i, kphase == KERNEL_BWD_IN ? row->save_in : row->save_in_w, row->save_out);
    return i;
}

/* Every element of the gradient that a producer is about to read was written. */
static void check_coverage(const struct lower *l, tid root)
{
    const struct grad *g = &l->grad[root];
    int64_t area = 0;
    for (int i = 0; i < g->n_boxes; i++) area += box_area(&g->boxes[i]);
    CHECK(g->place < 0 || area == tensor_numel(tape_tensor(l->t, root)),
          "part of the output %s is never used, so its gradient has a hole", tape_tensor(l->t, root)->name);
}

static void backward_inputs(struct lower *l, enum tape_phase phase, int index)
{
    const struct node *d = &l->t->nodes[index];
    const struct op_row *row = op_row(d->op);
    tid out_root = tape_tensor(l->t, d->out[0])->root;
    uint8_t want = 0;
    for (int k = 0; k < d->n_in; k++)
        if ((row->grad_in >> k & 1) && wants_gradient(l, d->in[k])) want |= (uint8_t)(1 << k);
    if (d->op == OP_ADD) {
        int place = l->grad[out_root].place;
        bool whole = d->out[0] == out_root;
        if (whole && (want & 1) && contribute_alias(l, d->in[0], place)) want &= (uint8_t)~1;
        if (whole && at_dropout(&d->at)->p == 0 && (want & 2) && contribute_alias(l, d->in[1], place))
            want &= (uint8_t)~2;
    }
    if (!want) return;
    struct instr *i = emit_backward(l, phase, index, KERNEL_BWD_IN);
    int at = l->code[phase].n - 1;
    for (int k = 0; k < d->n_in; k++) {
        if (!(want >> k & 1)) continue;
        tid root = tape_tensor(l->t, d->in[k])->root;
        struct operand din, acc = operand_shape(l, d->in[k]);
        if (node_is_alias(l->t, d) && k == 0) {
            din = i->dout[0]; /* the output is the input's memory; so is its gradient */
        } else if (d->op == OP_XENT && k == 0 && d->in[0] == root && l->grad[root].place < 0) {
            grad_hold(l, &l->grad[root], l->value[root]); /* logits become their own gradient */
            grad_add_box(l, &l->grad[root], box_of(l->t, root));
            din = operand_at(l, root, l->value[root]);
        } else if (row->inplace_bwd && k == 0 && d->in[0] == root && l->grad[root].place < 0 && d->out[0] == out_root &&
                   !place_is_read_later(l, l->grad[out_root].place)) {
            (void)contribute_alias(l, d->in[0], l->grad[out_root].place);
            din = i->dout[0];
        } else {
            contribute(l, d->in[k], &din, &acc);
        }
        i = &l->code[phase].p[at];
        i->din[k] = din;
        i->acc[k] = acc;
    }
}

static void backward_weights(struct lower *l, enum tape_phase phase, int index)
{
    const struct node *d = &l->t->nodes[index];
    const struct op_row *row = op_row(d->op);
    uint8_t want = 0;
    for (int k = 0; k < d->n_in; k++)
        if ((row->weight_in >> k & 1) && wants_gradient(l, d->in[k])) want |= (uint8_t)(1 << k);
    if (!want) return;
    struct instr *i = emit_backward(l, phase, index, KERNEL_BWD_W);
    for (int k = 0; k < d->n_in; k++) {
        if (!(want >> k & 1)) continue;
        const struct tensor *w = tape_tensor(l->t, d->in[k]);
        CHECK(w->grad_slot >= 0, "%s is used as a weight but has no gradient slot", w->name);
        i->din[k] = operand_at(l, d->in[k], OPERAND_SLOT);
        i->din[k].view.dtype = DT_F32;
        i->din[k].offset = to_size(w->row * i->din[k].view.stride + w->col) * dtype_bytes(DT_F32);
        i->din[k].slot = w->grad_slot;
    }
    if (phase == PHASE_W && i->dout[0].place >= 0) l->p->places[i->dout[0].place].pinned = true;
}

/* The collective that made the input of this node, right before it: its backward can travel while the weight gradient,
 * which needs nothing of it, is computed. -1: none. */
static int collective_before(const struct lower *l, int index)
{
    const struct node *d = &l->t->nodes[index];
    if (index == 0 || !op_row(d->op)->weight_in) return -1;
    const struct node *c = &l->t->nodes[index - 1];
    bool makes = !c->retype && op_collective(c->op) && !op_row(c->op)->alias_bwd && c->out[0] == d->in[0];
    return makes && c->segment == d->segment ? index - 1 : -1;
}

/* Where W is put off: this node's weight gradients are made in B all the same. Of a segment that is computed once more
 * as a whole, all are: its inputs would otherwise live from B to W for every microbatch, and making them a third time
 * takes the gradients, too, which is a whole backward. */
static bool weights_at_once(const struct lower *l, int index)
{
    const struct node *d = &l->t->nodes[index];
    const struct op_row *row = op_row(d->op);
    const struct segment *s = d->segment >= 0 ? &l->t->segments[d->segment] : NULL;
    if (s && s->kind == SEGMENT_RECOMPUTE && (s->again >> OP_LINEAR & 1)) return true;
    if (l->o.w_together) return false;
    if (d->op == OP_EMBED) return !l->o.tied;
    if (d->op == OP_RMSNORM || d->op == OP_LAYERNORM) return true;
    for (int k = 0; k < d->n_in; k++)
        if ((row->save_in_w >> k & 1) && d->in[k] >= 0 && l->again[tape_tensor(l->t, d->in[k])->root]) return true;
    return false;
}

static void emit_node_backward(struct lower *l, enum tape_phase phase, int index, bool split_w)
{
    const struct node *d = &l->t->nodes[index];
    if (d->retype || l->done[index]) return;
    const struct op_row *row = op_row(d->op);
    tid out_root = tape_tensor(l->t, d->out[0])->root;
    const struct tensor *result = tape_tensor(l->t, out_root);
    bool is_loss = result->kind == TENSOR_EXTERNAL && !result->boundary;
    if (!is_loss && l->grad[out_root].place < 0) return; /* nobody used the output, or not for gradients */
    CHECK(row->has_backward, "%s has no backward", row->name);
    if (row->alias_bwd) {
        bool first = contribute_alias(l, d->in[0], l->grad[out_root].place);
        CHECK(first, "%s: %s is read by others too", row->name, tape_tensor(l->t, d->in[0])->name);
        grad_release(l, out_root);
        return;
    }
    if (!is_loss && d->out[0] == out_root) check_coverage(l, out_root);
    if (split_w &&
        !weights_at_once(l, index)) { /* weights first on paper: the gradient they read must not be added to in place */
        backward_weights(l, PHASE_W, index);
        backward_inputs(l, phase, index);
    } else {
        int ahead = collective_before(l, index);
        backward_inputs(l, phase, index);
        if (ahead >= 0) {
            emit_node_backward(l, phase, ahead, false);
            l->done[ahead] = true;
        }
        backward_weights(l, phase, index);
    }
    if (!is_loss && d->out[0] == out_root) grad_release(l, out_root);
}

/* ---- segments ---- */
/* Whether a node of a recompute segment may run again: its operation is one of those, or it works in the memory of one
 * that is; what has its input's values costs nothing. */
static bool may_run_again(const struct lower *l, const struct segment *s, int index)
{
    const struct node *d = &l->t->nodes[index];
    int maker = tape_tensor(l->t, tape_tensor(l->t, d->out[0])->root)->producer;
    if (!d->retype && op_row(d->op)->alias_fwd) return true;
    if (node_is_alias(l->t, d) && maker >= s->first) d = &l->t->nodes[maker];
    return s->again >> d->op & 1;
}

/* Which nodes of a recompute segment must run again: those of its operations whose outputs backward inside the segment
 * reads. */
static void recompute_needed(const struct lower *l, const struct segment *s, bool *needed)
{
    const struct tape *t = l->t;
    for (int i = s->end - 1; i >= s->first; i--) {
        const struct node *d = &t->nodes[i];
        if (!may_run_again(l, s, i)) continue;
        for (int j = s->first; j < s->end && !needed[i - s->first]; j++) {
            const struct node *c = &t->nodes[j];
            const struct op_row *row = op_row(c->op);
            for (int o = 0; o < d->n_out; o++) {
                tid root = tape_tensor(t, d->out[o])->root;
                if (!c->retype && j == i && (row->save_out >> o & 1)) needed[i - s->first] = true;
                for (int k = 0; k < c->n_in; k++) {
                    bool reads = c->in[k] >= 0 && tape_tensor(t, c->in[k])->root == root && j > i;
                    bool saved = !c->retype && ((row->save_in | row->save_in_w) >> k & 1);
                    if (reads && (saved || needed[j - s->first])) needed[i - s->first] = true;
                }
                /* in-place: an alias written later makes its root's producer needed */
                if (j > i && !c->retype && node_is_alias(t, c) && tape_tensor(t, c->out[0])->root == root &&
                    needed[j - s->first])
                    needed[i - s->first] = true;
            }
        }
    }
}

static void emit_recompute(struct lower *l, const struct segment *s)
{
    bool *needed = xcalloc((size_t)(s->end - s->first), sizeof *needed);
    recompute_needed(l, s, needed);
    for (int i = s->first; i < s->end; i++)
        if (needed[i - s->first]) {
            const struct node *d = &l->t->nodes[i];
            for (int k = 0; k < d->n_out; k++) l->again[tape_tensor(l->t, d->out[k])->root] = true;
            emit_forward(l, PHASE_B, i, true);
        }
    xfree(needed);
}

static void lower_forward(struct lower *l)
{
    const struct tape *t = l->t;
    for (int i = 0; i < t->n_nodes; i++) {
        emit_forward(l, PHASE_F, i, false);
        int s = t->nodes[i].segment;
        if (l->o.training && s >= 0 && t->segments[s].kind == SEGMENT_LOSS && i + 1 == t->segments[s].end)
            for (int j = i; j >= t->segments[s].first; j--) emit_node_backward(l, PHASE_F, j, false);
    }
}

/* The gradient of the stage's output comes from the next stage: nothing is added to those bytes in place, because a
 * deferred weight gradient may read them and because they may be the input's gradient of nobody else. */
static void begin_at_output(struct lower *l)
{
    tid out = l->t->stage_out;
    if (out < 0) return;
    int place = lower_place(l, out, true, root_bytes(l->t, out));
    l->p->places[place].slot = tape_tensor(l->t, out)->grad_slot;
    l->p->places[place].pinned = true;
    grad_hold(l, &l->grad[out], place);
    grad_add_box(l, &l->grad[out], box_of(l->t, out));
}

/* What has gathered as the input's gradient goes where the stage before will look for it. */
static void end_at_input(struct lower *l)
{
    tid in = l->t->stage_in;
    if (in < 0) return;
    int place = l->grad[in].place;
    CHECK(place >= 0, "the input of the stage is not used");
    check_coverage(l, in);
    CHECK(!l->p->places[place].pinned && l->p->places[place].holders == 1, "the gradient of %s is somebody else's too",
          tape_tensor(l->t, in)->name);
    l->p->places[place].slot = tape_tensor(l->t, in)->grad_slot;
}

static void lower_backward(struct lower *l)
{
    const struct tape *t = l->t;
    begin_at_output(l);
    for (int i = t->n_nodes - 1; i >= 0; i--) {
        int s = t->nodes[i].segment;
        if (s >= 0 && t->segments[s].kind == SEGMENT_LOSS) continue;
        if (s >= 0 && t->segments[s].kind == SEGMENT_RECOMPUTE && i + 1 == t->segments[s].end)
            emit_recompute(l, &t->segments[s]);
        emit_node_backward(l, PHASE_B, i, l->o.split_w);
    }
    end_at_input(l);
}

/* ---- the program ---- */
void instr_call(const struct instr *i, struct kernel_call *c)
{
    memset(c, 0, sizeof *c);
    c->op = i->op;
    c->phase = i->kphase;
    c->at = i->at;
    c->n_in = i->n_in;
    c->n_out = i->n_out;
    for (int k = 0; k < KERNEL_MAX_IN; k++) {
        c->in[k] = i->in[k].view;
        c->din[k] = i->din[k].view;
        c->acc[k] = i->acc[k].view;
    }
    for (int k = 0; k < KERNEL_MAX_OUT; k++) {
        c->out[k] = i->out[k].view;
        c->dout[k] = i->dout[k].view;
    }
}

/* The longest list is most of a deep model's memory: each phase's is gone as soon as it was copied. */
static void concatenate(struct lower *l)
{
    struct program *p = l->p;
    int n = 0;
    for (int ph = 0; ph < PHASE_N; ph++) {
        p->begin[ph] = n;
        n += l->code[ph].n;
    }
    p->begin[PHASE_N] = n;
    p->code = xrealloc(l->code[0].p, sizeof *p->code * (size_t)(n ? n : 1));
    l->code[0].p = NULL;
    for (int ph = 1; ph < PHASE_N; ph++) {
        struct code *c = &l->code[ph];
        if (c->n) memcpy(p->code + p->begin[ph], c->p, sizeof *p->code * (size_t)c->n);
        for (int i = 0; i < c->n; i++)
            if (c->p[i].until) p->code[p->begin[ph] + i].until += p->begin[ph];
        xfree(c->p);
        c->p = NULL;
    }
}

/* A collective's gradient that is added to another's lands in scratch first; a piece that is dealt out to all ranks'
 * rows lies in scratch anyhow and is added from there. */
static size_t collective_scratch(const struct lower *l, const struct kernel_table *kt, const struct instr *i,
                                 const struct kernel_call *c)
{
    size_t bytes = l->o.collective_scratch ? l->o.collective_scratch(kt, c) : 0;
    bool dealt = c->op == OP_SCATTER && at_rows(&c->at)->pieces;
    if (i->acc[0].place != OPERAND_NONE && !dealt)
        bytes += to_size(view_rows(&c->din[0]) * view_cols(&c->din[0])) * dtype_bytes(c->din[0].dtype);
    return bytes;
}

int instr_inputs(const struct instr *i)
{
    return i->op == OP_LINEAR && i->kphase == KERNEL_FWD && at_linear(&i->at)->bias_off ? 2 : i->n_in;
}

/* The call as program_run makes it, but for addresses. */
static void running_call(const struct instr *i, struct kernel_call *c)
{
    instr_call(i, c);
    c->n_in = instr_inputs(i);
    for (int k = 0; k < i->n_in && i->kphase == KERNEL_BWD_W; k++)
        if (i->din[k].place == OPERAND_SLOT) c->acc[k] = c->din[k];
}

const char *instr_path(const struct instr *i)
{
    struct kernel_call c;
    running_call(i, &c);
    return i->kernel && i->kernel->path ? i->kernel->path(&c) : "";
}

static void choose_kernel(struct instr *i, const struct kernel_table *kt)
{
    struct kernel_call c;
    if (op_row(i->op)->by != BY_KERNEL) return;
    running_call(i, &c);
    i->kernel = kernel_find(kt, &c, &i->family);
}

static void count_and_scratch(struct lower *l, const struct kernel_table *kt)
{
    struct program *p = l->p;
    for (int ph = 0; ph < PHASE_N; ph++)
        for (int k = p->begin[ph]; k < p->begin[ph + 1]; k++) {
            struct instr *i = &p->code[k];
            struct kernel_call c;
            instr_call(i, &c);
            i->flops = op_row(i->op)->flops ? op_row(i->op)->flops(&c) : 0;
            p->flops[ph] += i->flops;
            if (!i->again) p->flops_model += i->flops;
            choose_kernel(i, kt);
            enum op_by by = op_row(i->op)->by;
            size_t bytes = by == BY_KERNEL  ? kernel_scratch(kt, &c)
                           : by == BY_RANKS ? collective_scratch(l, kt, i, &c)
                                            : 0;
            if (bytes) i->scratch = lower_place(l, TID_NONE, false, bytes);
        }
}

/* The sum of all places bounds every offset; 2^60 leaves room for slabs beside each other on a ledger. */
static int check_bytes(const struct program *p, struct err *e)
{
    double sum = 0;
    for (int i = 0; i < p->n_places; i++) sum += (double)p->places[i].bytes;
    if (sum <= (double)((int64_t)1 << 60)) return OK;
    return err_set(e, ERR_REQUEST,
                   "one microbatch takes %.3g bytes, more than 2^60; choose fewer sequences at a time (batch.micro), "
                   "shorter ones (model.seq_len), or more ranks to share them (parallel.cp, parallel.tp)",
                   sum);
}

int program_new(struct program **out, const struct tape *t, const struct kernel_table *kt, struct lower_options o,
                struct err *e)
{
    *out = NULL;
    if (tape_status(t, e)) return e ? e->code : t->err.code;
    struct lower l = {.t = t, .o = o, .arena = arena_new()};
    l.p = xcalloc(1, sizeof *l.p);
    l.p->tape = t;
    l.value = arena_alloc(l.arena, sizeof *l.value * (size_t)(t->n_tensors + 1));
    l.grad = arena_alloc(l.arena, sizeof *l.grad * (size_t)(t->n_tensors + 1));
    for (int i = 0; i < t->n_tensors; i++) {
        l.value[i] = l.grad[i].place = -1;
        const struct tensor *x = tape_tensor(t, i);
        if (x->slot >= l.p->n_slots) l.p->n_slots = x->slot + 1;
        if (x->grad_slot >= l.p->n_slots) l.p->n_slots = x->grad_slot + 1;
    }
    l.again = arena_alloc(l.arena, (size_t)t->n_tensors + 1);
    l.done = arena_alloc(l.arena, (size_t)t->n_nodes + 1);
    lower_forward(&l);
    if (o.training) lower_backward(&l);
    lower_fill(&l.code[PHASE_B]);
    for (int ph = 0; ph < PHASE_N; ph++) lower_pieces(&l, &l.code[ph]);
    if (o.training && o.away.on) lower_offload(&l);
    concatenate(&l);
    count_and_scratch(&l, kt);
    program_finish_late(l.p);
    int rc = check_bytes(l.p, e);
    if (!rc) program_place(l.p, o.split_w ? o.n_act : 0, o.split_w ? o.n_wgrad : 0);
    arena_free(l.arena);
    if (rc) program_free(l.p);
    else *out = l.p;
    return rc;
}

void program_free(struct program *p)
{
    if (!p) return;
    xfree(p->code);
    xfree(p->places);
    xfree(p);
}
