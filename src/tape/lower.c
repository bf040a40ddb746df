/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering: walk the nodes once forward and once backward, emitting one instruction per kernel call. Backward needs
 * no rules of its own: which inputs and outputs an instruction reads follows from the operation's row, where its
 * gradients go follows from who contributed before.
 *
 * What it decides stands in files beside: where gradients gather (gradients.c), what runs again (again.c). That rows
 * read what they should is proved each time (values.c).
 *
 * Cost: O(nodes) instructions; placement (place.c) is O(places^2). Rejected: reference counting at run time (sizes
 * would not be known before the run) and a static graph compiler (nothing to gain beside a GEMM). */
#include <string.h>

#include "tape/lower_impl.h"

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

static struct instr *emit(struct lower *l, enum program_phase phase)
{
    struct instr *i = lower_emit(&l->code[phase]);
    i->loop = phase == PHASE_W ? 0 : l->loop;
    i->once = i->loop && l->aside;
    return i;
}

int lower_place(struct lower *l, tid of, bool grad, size_t bytes)
{
    struct program *p = l->p;
    GROW(p->places, p->n_places, l->room_places, 1);
    p->places[p->n_places] =
        (struct place){.bytes = bytes, .of = of, .grad = grad, .first = -1, .last = -1, .slot = -1};
    return p->n_places++;
}

int lower_place_of(struct lower *l, tid root, bool grad)
{
    const struct tensor *x = tape_tensor(l->t, root);
    return lower_place(l, root, grad, to_size(tensor_numel(x)) * dtype_bytes(x->dtype));
}

/* ---- operands ---- */
struct operand lower_operand(const struct lower *l, tid x, int place)
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
    struct operand o = lower_operand(l, x, l->value[root->root]);
    if (root->kind == TENSOR_EXTERNAL) {
        o.place = OPERAND_SLOT;
        o.slot = root->slot;
    } else {
        CHECK(o.place >= 0, "%s is read before it is written", root->name);
    }
    return o;
}

struct operand lower_shape(const struct lower *l, tid x)
{
    struct operand o = {.place = OPERAND_NONE};
    if (x >= 0) o.view = tensor_view(l->t, x);
    return o;
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

enum how { HOW_FIRST, HOW_AGAIN, HOW_REFILL /* into the places that hold the last round's */ };

static struct instr *emit_forward(struct lower *l, enum program_phase phase, int index, enum how how)
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
    i->again = how == HOW_AGAIN;
    i->refill = how == HOW_REFILL;
    i->at = d->at;
    i->n_in = d->n_in;
    i->n_out = d->n_out;
    for (int k = 0; k < d->n_in; k++) i->in[k] = operand_value(l, d->in[k]);
    for (int k = 0; k < d->n_out; k++) {
        const struct tensor *root = tape_tensor(l->t, tape_tensor(l->t, d->out[k])->root);
        if (root->kind == TENSOR_LOCAL && root->root == d->out[k] && how != HOW_REFILL)
            l->value[root->root] = reduces_in_place(l, d) ? i->in[0].place : lower_place_of(l, root->root, false);
        i->out[k] = operand_value(l, d->out[k]);
    }
    return i;
}

/* ---- backward ---- */
static void operands_backward(const struct lower *l, const struct node *d, struct instr *i, uint8_t save_in,
                              uint8_t save_out)
{
    for (int k = 0; k < d->n_in; k++)
        i->in[k] = (save_in >> k & 1) && d->in[k] >= 0 ? operand_value(l, d->in[k]) : lower_shape(l, d->in[k]);
    for (int k = 0; k < d->n_out; k++)
        i->out[k] = (save_out >> k & 1) ? operand_value(l, d->out[k]) : lower_shape(l, d->out[k]);
    i->dout[0] = lower_shape(l, d->out[0]);
    const struct tensor *out = tape_tensor(l->t, d->out[0]);
    if (l->grad[out->root].place >= 0) i->dout[0] = lower_operand(l, d->out[0], l->grad[out->root].place);
}

static struct instr *emit_backward(struct lower *l, enum program_phase phase, int index, enum kernel_phase kphase)
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

static void backward_inputs(struct lower *l, enum program_phase phase, int index)
{
    const struct node *d = &l->t->nodes[index];
    const struct op_row *row = op_row(d->op);
    tid out_root = tape_tensor(l->t, d->out[0])->root;
    uint8_t want = 0;
    for (int k = 0; k < d->n_in; k++)
        if ((row->grad_in >> k & 1) && grad_wanted(l, d->in[k])) want |= (uint8_t)(1 << k);
    if (d->op == OP_ADD) {
        int place = l->grad[out_root].place;
        bool whole = d->out[0] == out_root;
        if (whole && (want & 1) && grad_hand_on(l, d->in[0], place)) want &= (uint8_t)~1;
        if (whole && at_dropout(&d->at)->p == 0 && (want & 2) && grad_hand_on(l, d->in[1], place)) want &= (uint8_t)~2;
    }
    if (!want) return;
    struct instr *i = emit_backward(l, phase, index, KERNEL_BWD_IN);
    int at = l->code[phase].n - 1;
    for (int k = 0; k < d->n_in; k++) {
        if (!(want >> k & 1)) continue;
        tid root = tape_tensor(l->t, d->in[k])->root;
        struct operand din, acc = lower_shape(l, d->in[k]);
        if (row->weight_by_in >> k & 1) {
            din = grad_of_weight(l, d->in[k]);
        } else if (node_is_alias(l->t, d) && k == 0) {
            din = i->dout[0]; /* the output is the input's memory; so is its gradient */
        } else if (d->op == OP_XENT && k == 0 && d->in[0] == root && l->grad[root].place < 0) {
            grad_begin(l, root, l->value[root]); /* logits become their own gradient */
            din = lower_operand(l, root, l->value[root]);
        } else if (row->inplace_bwd && k == 0 && d->in[0] == root && l->grad[root].place < 0 && d->out[0] == out_root &&
                   !grad_place_is_read(l, l->grad[out_root].place)) {
            (void)grad_hand_on(l, d->in[0], l->grad[out_root].place);
            din = i->dout[0];
        } else {
            grad_contribute(l, d->in[k], &din, &acc);
        }
        i = &l->code[phase].p[at];
        i->din[k] = din;
        i->acc[k] = acc;
    }
}

static void backward_weights(struct lower *l, enum program_phase phase, int index)
{
    const struct node *d = &l->t->nodes[index];
    const struct op_row *row = op_row(d->op);
    uint8_t want = 0;
    for (int k = 0; k < d->n_in; k++)
        if ((row->weight_in >> k & 1) && grad_wanted(l, d->in[k])) want |= (uint8_t)(1 << k);
    if (!want) return;
    struct instr *i = emit_backward(l, phase, index, KERNEL_BWD_W);
    for (int k = 0; k < d->n_in; k++) {
        if (!(want >> k & 1)) continue;
        i->din[k] = grad_of_weight(l, d->in[k]);
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
    if (lower_in_wave(l, index)) return true; /* a round's inputs are gone with the next one's */
    if (s && s->kind == SEGMENT_RECOMPUTE && (s->again >> OP_LINEAR & 1)) return true;
    if (d->op == OP_EMBED) return !l->o.tied;
    if (d->op == OP_RMSNORM || d->op == OP_LAYERNORM || d->op == OP_HEADNORM || d->op == OP_NORM_BY) return true;
    if (d->op == OP_CONV || d->op == OP_TIMES || d->op == OP_SCAN || d->op == OP_GATED_NORM) return true;
    for (int k = 0; k < d->n_in; k++)
        if ((row->save_in_w >> k & 1) && d->in[k] >= 0 && l->again[tape_tensor(l->t, d->in[k])->root]) return true;
    return false;
}

static void emit_node_backward(struct lower *l, enum program_phase phase, int index, bool split_w)
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
        bool first = grad_hand_on(l, d->in[0], l->grad[out_root].place);
        CHECK(first, "%s: %s is read by others too", row->name, tape_tensor(l->t, d->in[0])->name);
        grad_release(l, out_root);
        return;
    }
    if (!is_loss && d->out[0] == out_root) grad_check(l, out_root);
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
static bool segment_moves(const struct lower *l, const struct segment *s)
{
    bool any = false;
    for (int i = s->first; i < s->end; i++)
        for (int k = 0; k < l->t->nodes[i].n_out; k++) any |= l->moves[tape_tensor(l->t, l->t->nodes[i].out[k])->root];
    return any;
}

static void emit_recompute(struct lower *l, const struct segment *s)
{
    if (!segment_moves(l, s)) return; /* all of it and before it is frozen */
    bool *needed = xcalloc((size_t)(s->end - s->first), sizeof *needed);
    again_in_segment(l, s, needed);
    for (int i = s->first; i < s->end; i++)
        if (needed[i - s->first]) {
            const struct node *d = &l->t->nodes[i];
            for (int k = 0; k < d->n_out; k++) l->again[tape_tensor(l->t, d->out[k])->root] = true;
            lower_at_node(l, i);
            emit_forward(l, PHASE_B, i, HOW_AGAIN);
        }
    lower_at_node(l, -1);
    xfree(needed);
}

/* What backward of a round reads of its forward. An operation that a recompute segment makes again, without the
 * combine, is made in every round; else there is what the last round left. */
static void emit_refill(struct lower *l, const struct wave *w)
{
    bool *needed = xcalloc((size_t)(w->end - w->first), sizeof *needed);
    again_in_round(l, w, needed);
    for (int i = w->first; i < w->end; i++) {
        const struct node *d = &l->t->nodes[i];
        const struct segment *s = d->segment >= 0 ? &l->t->segments[d->segment] : NULL;
        bool again = s && s->kind == SEGMENT_RECOMPUTE && (s->again >> d->op & 1) && !(s->again >> OP_COMBINE & 1);
        if (needed[i - w->first]) emit_forward(l, PHASE_B, i, again ? HOW_AGAIN : HOW_REFILL);
    }
    xfree(needed);
}

static void lower_forward(struct lower *l)
{
    const struct tape *t = l->t;
    for (int i = 0; i < t->n_nodes; i++) {
        lower_at_node(l, i);
        emit_forward(l, PHASE_F, i, HOW_FIRST);
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
    int place = lower_place_of(l, out, true);
    l->p->places[place].slot = tape_tensor(l->t, out)->grad_slot;
    l->p->places[place].pinned = true;
    grad_begin(l, out, place);
}

/* What has gathered as the input's gradient goes where the stage before will look for it. */
static void end_at_input(struct lower *l)
{
    tid in = l->t->stage_in;
    if (in < 0) return;
    int place = l->grad[in].place;
    CHECK(place >= 0, "the input of the stage is not used");
    grad_check(l, in);
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
        int wave = t->nodes[i].wave;
        lower_at_node(l, i);
        if (wave >= 0 && i + 1 == t->waves[wave].end) emit_refill(l, &t->waves[wave]);
        emit_node_backward(l, PHASE_B, i, l->o.split_w);
    }
    lower_at_node(l, -1);
    end_at_input(l);
}

/* ---- the program ---- */
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

/* What each is about: of a copy whose bytes it moves, of others what their node puts out. */
static void name_all(struct program *p, const struct tape *t)
{
    for (int k = 0; k < p->begin[PHASE_N]; k++) {
        struct instr *i = &p->code[k];
        bool copy = op_row(i->op)->by == BY_COPIES;
        i->what = tape_tensor(t, copy ? p->places[i->out[0].place].of : t->nodes[i->node].out[0])->name;
        i->layer = t->nodes[i->node].layer;
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

int tape_lower(struct program **out, const struct tape *t, const struct kernel_table *kt, struct lower_options o,
               struct err *e)
{
    *out = NULL;
    if (tape_status(t, e)) return e ? e->code : t->err.code;
    struct lower l = {.t = t, .o = o, .arena = arena_new(), .wave = -1};
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
    l.moves = arena_alloc(l.arena, (size_t)t->n_tensors + 1);
    grad_find(&l);
    lower_forward(&l);
    if (o.training) lower_backward(&l);
    lower_check_values(&l);
    if (o.recipe) lower_recipe(&l);
    lower_fill(&l.code[PHASE_B]);
    for (int ph = 0; ph < PHASE_N; ph++) lower_pieces(&l, &l.code[ph]);
    if (o.training && o.away.on) lower_offload(&l);
    concatenate(&l);
    name_all(l.p, t);
    int rc = lower_choose(&l, kt, e);
    if (!rc) lower_depth_rules(l.p);
    program_finish_late(l.p);
    if (!rc) rc = check_bytes(l.p, e);
    if (!rc) program_place(l.p, o.split_w ? o.n_act : 0, o.split_w ? o.n_wgrad : 0);
    arena_free(l.arena);
    if (rc) program_free(l.p);
    else *out = l.p;
    return rc;
}
