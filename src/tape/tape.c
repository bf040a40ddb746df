/* SPDX-License-Identifier: Apache-2.0 */
/* Recording: append a node, check it, name its outputs. Cost: nothing beside one kernel launch; no data is touched.
 * Rejected: closures per node (hidden state that cannot be printed) and recording again for every microbatch
 * (shapes are static, so one tape serves all). */
#include "tape/tape.h"

#include <stdio.h>
#include <string.h>

#include "layout/region.h"
#include "program/program.h"

struct tape *tape_new(void)
{
    struct tape *t = xcalloc(1, sizeof *t);
    t->arena = arena_new();
    t->open_segment = -1;
    t->open_wave = -1;
    t->layer = -1;
    t->stage_in = t->stage_out = TID_NONE;
    return t;
}

void tape_free(struct tape *t)
{
    if (!t) return;
    xfree(t->tensors);
    xfree(t->nodes);
    xfree(t->segments);
    xfree(t->waves);
    arena_free(t->arena);
    xfree(t);
}

int tape_status(const struct tape *t, struct err *e)
{
    if (t->err.code && e) *e = t->err;
    return t->err.code;
}

int64_t tensor_numel(const struct tensor *x)
{
    int64_t k = 1;
    for (int i = 0; i < x->nd; i++) k *= x->n[i];
    return k;
}

int64_t tensor_cols(const struct tensor *x) { return x->nd ? x->n[x->nd - 1] : 1; }

int64_t tensor_rows(const struct tensor *x)
{
    int64_t r = 1;
    for (int i = 0; i + 1 < x->nd; i++) r *= x->n[i];
    return r;
}

static struct tensor *tensor_push(struct tape *t)
{
    GROW(t->tensors, t->n_tensors, t->room_tensors, 1);
    struct tensor *x = &t->tensors[t->n_tensors];
    memset(x, 0, sizeof *x);
    x->slot = x->grad_slot = x->producer = -1;
    x->root = t->n_tensors++;
    return x;
}

static struct node *node_push(struct tape *t)
{
    GROW(t->nodes, t->n_nodes, t->room_nodes, 1);
    struct node *d = &t->nodes[t->n_nodes++];
    memset(d, 0, sizeof *d);
    for (int i = 0; i < KERNEL_MAX_IN; i++) d->in[i] = TID_NONE;
    for (int i = 0; i < KERNEL_MAX_OUT; i++) d->out[i] = TID_NONE;
    d->segment = t->open_segment;
    d->wave = t->open_wave;
    d->aside = t->open_wave >= 0 && t->aside;
    d->layer = t->layer;
    return d;
}

static void name_set(struct tensor *x, const char *name) { snprintf(x->name, sizeof x->name, "%s", name); }

tid tape_param(struct tape *t, const char *name, int slot, int grad_slot, enum dtype dtype, int nd, const int64_t *n,
               struct spmd_type type)
{
    CHECK(nd >= 1 && nd <= KERNEL_MAX_DIM, "%s has %d dims", name, nd);
    struct tensor *x = tensor_push(t);
    name_set(x, name);
    x->kind = TENSOR_EXTERNAL;
    x->dtype = dtype;
    x->nd = nd;
    for (int i = 0; i < nd; i++) x->n[i] = n[i];
    x->type = type;
    x->slot = slot;
    x->grad_slot = grad_slot;
    return x->root;
}

tid tape_input(struct tape *t, const char *name, int slot, enum dtype dtype, int nd, const int64_t *n,
               struct spmd_type type)
{
    return tape_param(t, name, slot, -1, dtype, nd, n, type);
}

static tid view_push(struct tape *t, tid x, int64_t row, int64_t rows, int64_t col, int64_t cols, const char *suffix)
{
    struct tensor *v = tensor_push(t);
    const struct tensor *of = &t->tensors[x];
    tid id = v->root;
    *v = *of;
    v->kind = TENSOR_VIEW;
    v->root = of->root;
    v->row = of->row + row;
    v->col = of->col + col;
    if (v->nd > 0) v->n[v->nd - 1] = cols;
    if (v->nd == 2) v->n[0] = rows;
    if (suffix) {
        char was[TAPE_NAME];
        memcpy(was, of->name, sizeof was);
        snprintf(v->name, sizeof v->name, "%.30s%.16s", was, suffix);
    }
    return id;
}

tid tape_cols(struct tape *t, tid x, int64_t col, int64_t n)
{
    if (t->err.code) return TID_NONE;
    const struct tensor *of = &t->tensors[x];
    CHECK(of->nd == 2 && col >= 0 && n >= 0 && col + n <= of->n[1], "columns %lld+%lld of %s", (long long)col,
          (long long)n, of->name);
    char s[48]; /* two numbers of up to 20 characters */
    snprintf(s, sizeof s, "[:,%lld:%lld]", (long long)col, (long long)(col + n));
    return view_push(t, x, 0, of->n[0], col, n, s);
}

tid tape_rows(struct tape *t, tid x, int64_t row, int64_t n)
{
    if (t->err.code) return TID_NONE;
    const struct tensor *of = &t->tensors[x];
    CHECK(of->nd <= 2 && row >= 0 && n >= 0, "rows %lld+%lld of %s", (long long)row, (long long)n, of->name);
    if (row + n > of->n[0]) {
        char type[128];
        err_set(&t->err, ERR_REQUEST, "rows %lld to %lld of %s are wanted, it has %lld (%s)", (long long)row,
                (long long)(row + n), of->name, (long long)of->n[0], spmd_print(type, of->type));
        return TID_NONE;
    }
    char s[48]; /* two numbers of up to 20 characters */
    snprintf(s, sizeof s, "[%lld:%lld]", (long long)row, (long long)(row + n));
    if (of->nd == 1) return view_push(t, x, 0, 1, row, n, s);
    return view_push(t, x, row, n, 0, of->n[1], s);
}

struct view tensor_view(const struct tape *t, tid id)
{
    struct view v = {0};
    if (id < 0) return v;
    const struct tensor *x = &t->tensors[id];
    v.dtype = x->dtype;
    v.nd = x->nd;
    for (int i = 0; i < x->nd; i++) v.n[i] = x->n[i];
    v.stride = tensor_cols(&t->tensors[x->root]);
    return v;
}

struct token_rows tape_token_rows(const struct tape *t, tid id, int64_t batch, int64_t tokens, struct axis_ranks tp)
{
    const struct tensor *x = tape_tensor(t, id);
    int64_t lo = x->row, hi, all = tensor_rows(tape_tensor(t, x->root));
    if (tp.n_parts > 1 && x->type.on[AXIS_TP] == SPMD_S0) {
        region_split(tokens, tp.part, tp.n_parts, &lo, &hi);
        CHECK(hi - lo == all, "%s: %lld rows of tokens [%lld, %lld)", x->name, (long long)all, (long long)lo,
              (long long)hi);
        lo += x->row;
        all = tokens;
    }
    CHECK(batch > 0 && all % batch == 0, "%s: %lld rows are not those of %lld sequences", x->name, (long long)all,
          (long long)batch);
    return (struct token_rows){all / batch, lo};
}

static tid record_fail(struct tape *t, enum op op, const char *name, const char *why, tid x, int axis)
{
    char type[128] = "", shape[96] = "";
    if (x >= 0) {
        const struct tensor *v = &t->tensors[x];
        spmd_print(type, v->type);
        size_t k = 0;
        for (int i = 0; i < v->nd; i++)
            k += (size_t)snprintf(shape + k, sizeof shape - k, "%s%lld", i ? "x" : "", (long long)v->n[i]);
    }
    err_set(&t->err, ERR_REQUEST, "%s '%s'%s%s got %s%s%s [%s] (%s)", op_row(op)->name, name, axis >= 0 ? " over " : "",
            axis >= 0 ? axis_name((enum axis)axis) : "", why, x >= 0 ? ": " : "", x >= 0 ? t->tensors[x].name : "",
            shape, type);
    return TID_NONE;
}

/* Elements, without overflow. */
static double view_size(const struct view *v)
{
    double n = 1;
    for (int i = 0; i < v->nd; i++) n *= (double)v->n[i];
    return n;
}

/* 2^50 elements: far more than any machine has, and sums over all tensors of a program still fit 64 bits. */
static bool is_countable(struct tape *t, enum op op, const struct view *out, const char *name)
{
    if (view_size(out) <= (double)((int64_t)1 << 50)) return true;
    err_set(&t->err, ERR_REQUEST,
            "%s '%s' makes %.3g elements, more than 2^50; choose fewer sequences at a time (batch.micro), shorter ones "
            "(model.seq_len), or more ranks to share them (parallel.cp, parallel.tp)",
            op_row(op)->name, name, view_size(out));
    return false;
}

/* Applies the row's rule on every axis; fills the outputs' types. */
static int types_infer(struct tape *t, const struct node *d, const struct op_row *row, const char *name,
                       struct spmd_type out[KERNEL_MAX_OUT])
{
    for (int a = 0; a < AXIS_N; a++) {
        enum spmd in[KERNEL_MAX_IN], o[KERNEL_MAX_OUT] = {SPMD_I, SPMD_I, SPMD_I};
        for (int i = 0; i < d->n_in; i++) in[i] = d->in[i] >= 0 ? (enum spmd)t->tensors[d->in[i]].type.on[a] : SPMD_N;
        const char *why = row->rule(&d->at, d->n_in, in, o);
        if (why) {
            record_fail(t, d->op, name, why, d->in[0], a);
            return -1;
        }
        for (int i = 0; i < row->n_out; i++) out[i].on[a] = (uint8_t)o[i];
    }
    return 0;
}

tid tape_record(struct tape *t, enum op op, const struct op_attrs *at, int n_in, const tid *in, enum dtype out_dtype,
                const char *name)
{
    if (t->err.code) return TID_NONE;
    const struct op_row *row = op_row(op);
    CHECK(n_in >= row->min_in && n_in <= row->max_in, "%s takes %d to %d inputs, got %d", row->name, row->min_in,
          row->max_in, n_in);
    CHECK(at->kind == row->attrs, "%s takes attributes of %s, got those of %s", row->name, attrs_kind_name(row->attrs),
          attrs_kind_name(at->kind));
    struct node d = {.op = op, .at = *at, .n_in = n_in, .n_out = row->n_out};
    struct view vin[KERNEL_MAX_IN] = {{0}}, vout[KERNEL_MAX_OUT] = {{0}};
    for (int i = 0; i < n_in; i++) {
        d.in[i] = in[i];
        vin[i] = tensor_view(t, in[i]);
    }
    vout[0].dtype = out_dtype;
    const char *why = row->infer(at, n_in, vin, vout);
    struct spmd_type types[KERNEL_MAX_OUT];
    memset(types, 0, sizeof types);
    if (types_infer(t, &d, row, name, types)) return TID_NONE; /* first: a forgotten collective shows in shapes too */
    if (why) return record_fail(t, op, name, why, in[0], -1);
    if (out_dtype != DT_N) vout[0].dtype = out_dtype;
    for (int i = 0; i < row->n_out; i++)
        if (!is_countable(t, op, &vout[i], name)) return TID_NONE;

    struct node *node = node_push(t);
    d.segment = node->segment;
    d.wave = node->wave;
    d.aside = node->aside;
    d.layer = node->layer;
    *node = d;
    int index = t->n_nodes - 1;
    tid first = TID_NONE;
    for (int i = 0; i < row->n_out; i++) {
        tid o;
        bool onto = op == OP_ROTARY || op == OP_EXPERT_BIAS || (op == OP_ADD && at_dropout(&d.at)->onto);
        if (i == 0 && onto) { /* the output must be its input's memory */
            o = view_push(t, in[0], 0, tensor_rows(&t->tensors[in[0]]), 0, tensor_cols(&t->tensors[in[0]]), NULL);
        } else {
            o = tensor_push(t)->root;
            struct tensor *x = &t->tensors[o];
            x->kind = TENSOR_LOCAL;
            x->dtype = vout[i].dtype;
            x->nd = vout[i].nd;
            for (int k = 0; k < x->nd; k++) x->n[k] = vout[i].n[k];
        }
        struct tensor *x = &t->tensors[o];
        x->type = types[i];
        x->producer = index;
        snprintf(x->name, sizeof x->name, i ? "%.34s.%d" : "%.46s", name, i);
        t->nodes[index].out[i] = o;
        if (i == 0) first = o;
    }
    return first;
}

void tape_bind(struct tape *t, tid x, int slot)
{
    if (t->err.code) return;
    CHECK(t->tensors[x].kind == TENSOR_LOCAL, "%s is not a fresh output", t->tensors[x].name);
    t->tensors[x].kind = TENSOR_EXTERNAL;
    t->tensors[x].slot = slot;
}

tid tape_stage_in(struct tape *t, const char *name, int slot, int grad_slot, enum dtype dtype, int nd, const int64_t *n,
                  struct spmd_type type)
{
    CHECK(t->stage_in < 0, "a stage has one input");
    t->stage_in = tape_param(t, name, slot, grad_slot, dtype, nd, n, type);
    t->tensors[t->stage_in].boundary = true;
    return t->stage_in;
}

void tape_stage_out(struct tape *t, tid x, int slot, int grad_slot)
{
    if (t->err.code) return;
    CHECK(t->stage_out < 0, "a stage has one output");
    tape_bind(t, x, slot);
    t->tensors[x].grad_slot = grad_slot;
    t->tensors[x].boundary = true;
    t->stage_out = x;
}

tid tape_retype(struct tape *t, tid x, enum axis axis, enum spmd to, const char *name)
{
    if (t->err.code) return TID_NONE;
    tid o = view_push(t, x, 0, tensor_rows(&t->tensors[x]), 0, tensor_cols(&t->tensors[x]), NULL);
    struct tensor *v = &t->tensors[o];
    v->type = spmd_with(v->type, axis, to);
    name_set(v, name);
    struct node *d = node_push(t);
    d->retype = true;
    d->axis = axis;
    d->n_in = d->n_out = 1;
    d->in[0] = x;
    d->out[0] = o;
    v->producer = t->n_nodes - 1;
    return o;
}

tid tape_collective(struct tape *t, enum op op, const struct op_attrs *at, tid x, enum spmd to, const char *name)
{
    if (t->err.code) return TID_NONE;
    const struct tensor *v = &t->tensors[x], *root = &t->tensors[v->root];
    CHECK(op_collective(op), "%s is no collective", op_row(op)->name);
    CHECK(v->nd == 2 && tensor_cols(v) == tensor_cols(root), "%s: columns of %s are not dense", op_row(op)->name,
          v->name);
    CHECK(!op_row(op)->alias_fwd || (root->kind == TENSOR_LOCAL && tensor_numel(v) == tensor_numel(root)),
          "%s: %s is not a whole tensor", op_row(op)->name, v->name);
    tid o = tape_record(t, op, at, 1, &x, DT_N, name);
    if (o >= 0) t->tensors[o].type = spmd_with(t->tensors[o].type, at_over(at)->axis, to);
    return o;
}

tid tape_collective_n(struct tape *t, enum op op, const struct op_attrs *at, int n_in, const tid *in, enum spmd to,
                      const char *name)
{
    if (t->err.code) return TID_NONE;
    CHECK(op_collective(op), "%s is no collective", op_row(op)->name);
    tid o = tape_record(t, op, at, n_in, in, DT_N, name);
    for (int i = 0; o >= 0 && i < op_row(op)->n_out; i++)
        t->tensors[o + i].type = spmd_with(t->tensors[o + i].type, at_over(at)->axis, to);
    return o;
}

void tape_segment_begin(struct tape *t, enum segment_kind kind)
{
    CHECK(t->open_segment < 0, "segments do not nest");
    GROW(t->segments, t->n_segments, t->room_segments, 1);
    t->open_segment = t->n_segments++;
    t->segments[t->open_segment] =
        (struct segment){kind, t->n_nodes, t->n_nodes, kind == SEGMENT_RECOMPUTE ? AGAIN_ALL : 0};
}

void tape_recompute_begin(struct tape *t, uint64_t again)
{
    tape_segment_begin(t, SEGMENT_RECOMPUTE);
    t->segments[t->open_segment].again = again;
}

/* Backward of a loss runs in forward, when there is no place yet for the gradient that goes to the stage before. */
static void loss_check(struct tape *t, const struct segment *s)
{
    for (int i = s->first; i < t->n_nodes && !t->err.code && t->stage_in >= 0; i++)
        for (int k = 0; k < t->nodes[i].n_in; k++) {
            tid in = t->nodes[i].in[k];
            if (in < 0 || t->tensors[in].root != t->stage_in) continue;
            record_fail(t, t->nodes[i].op, t->tensors[t->nodes[i].out[0]].name,
                        "the stage's input itself in a segment of the loss (record an operation between)", in, -1);
            return;
        }
}

void tape_segment_end(struct tape *t)
{
    CHECK(t->open_segment >= 0, "no segment is open");
    struct segment *s = &t->segments[t->open_segment];
    s->end = t->n_nodes;
    t->open_segment = -1;
    if (s->kind == SEGMENT_LOSS) loss_check(t, s);
}

void tape_waves_begin(struct tape *t)
{
    if (t->err.code) return;
    CHECK(t->open_wave < 0, "rounds do not nest");
    GROW(t->waves, t->n_waves, t->room_waves, 1);
    t->open_wave = t->n_waves++;
    t->waves[t->open_wave] = (struct wave){t->n_nodes, t->n_nodes};
    t->aside = false;
}

void tape_waves_aside(struct tape *t, bool aside) { t->aside = aside; }

void tape_waves_end(struct tape *t)
{
    if (t->err.code) return;
    CHECK(t->open_wave >= 0, "no rounds are open");
    t->waves[t->open_wave].end = t->n_nodes;
    t->open_wave = -1;
}
