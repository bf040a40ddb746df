/* SPDX-License-Identifier: Apache-2.0 */
/* The lowering pass of precision recipes: before each direction of a chosen product come the rows that make its
 * operands narrow, and the product is one of what they put out:
 *
 *     linear fwd qkv        becomes, with a scale per tensor from the tensor itself,
 *
 *     amax x, agree, quantise x, amax w, agree, quantise w, linear_scaled fwd qkv
 *
 *   - What is narrow is made from the original in each direction, never from what was narrow already.
 *   - It lives in scratch; x waits for backward as it was, so memory between F and B is that of the original. A
 *     tensor's largest value, four bytes, waits from F to B, and is not looked for and agreed on a second time.
 *   - Two directions that want the same of the same operand, one after the other, share it: dy of a scale per tensor.
 *     Nothing is shared once an instruction has written to the original.
 *   - A bias's gradient is the sum of dy as it was: LINEAR still makes it.
 *   - Where layers may fall back, the product as it was stands in front of its rows, and of both what its layer says is
 *     run (instr.when): what nobody else sees, since operands and results are the same.
 *   - Evaluation is quantised too, and leaves no traces in the largest values of earlier steps.
 *
 * Runs before fill.c and pieces.c, which know LINEAR_SCALED and do not cut it: blocks stay as they are. Cost:
 * O(instructions) and, for what is shared, the distance between two uses. Rejected: layers that record it (said in
 * each, and a recipe would be a change of model); narrow copies that wait for backward (a byte per element beside the
 * two that the layer keeps anyway). */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "kernel/expert_parts.h"
#include "layout/region.h"
#include "tape/lower_impl.h"

struct made { /* something that an operand became, and where it is */
    struct operand of;
    enum program_phase phase;
    int at; /* instruction of the phase's new list behind it */
    int layer;
    bool is_amax; /* q is the largest value */
    bool refill;  /* in rounds: only where there are several */
    bool kept;    /* from microbatch to microbatch: it outlives its phase */
    struct recipe_use use;
    struct operand q, descale;
};
struct pass {
    struct lower *l;
    const struct recipe_rule *rule;
    enum program_phase phase;
    struct code to;
    struct made *made;
    int n_made, room;
};
struct source { /* an operand of a product */
    enum recipe_operand which;
    struct operand o;
    struct spmd_type type;
    int slot; /* of the product's weight */
    int kept; /* number of what is made of it now, 0: it is made anew for each microbatch */
    /* Of experts' products: */
    int experts; /* 0: it is none */
    struct parts_attrs parts;
    struct operand rows; /* absent of a weight */
};

static enum recipe recipe_of(const struct pass *p, const struct instr *i)
{
    if (i->op != OP_LINEAR && i->op != OP_GROUPED) return RECIPE_BF16;
    const struct tape *t = p->l->t;
    const struct tensor *w = tape_tensor(t, tape_tensor(t, t->nodes[i->node].in[1])->root);
    bool listed = w->kind == TENSOR_EXTERNAL && w->slot < p->rule->n_slots;
    return listed ? (enum recipe)p->rule->of_slot[w->slot] : RECIPE_BF16;
}

/* ---- what is there already ---- */
static bool same_operand(const struct operand *a, const struct operand *b)
{
    return instr_same_memory(a, b) && a->offset == b->offset && a->view.nd == b->view.nd &&
           !memcmp(a->view.n, b->view.n, sizeof a->view.n) && a->view.stride == b->view.stride;
}

static bool writes(const struct instr *i, const struct operand *o)
{
    bool any = false;
    for (int k = 0; k < KERNEL_MAX_OUT; k++) any |= i->kphase == KERNEL_FWD && instr_same_memory(o, &i->out[k]);
    for (int k = 0; k < KERNEL_MAX_IN; k++) any |= i->kphase != KERNEL_FWD && instr_same_memory(o, &i->din[k]);
    return any;
}

static bool written_since(const struct pass *p, const struct made *m)
{
    for (int ph = (int)m->phase; ph <= (int)p->phase; ph++) {
        const struct code *c = ph == (int)p->phase ? &p->to : &p->l->code[ph];
        for (int i = ph == (int)m->phase ? m->at : 0; i < c->n; i++)
            if (writes(&c->p[i], &m->of)) return true;
    }
    return false;
}

/* Largest values may come from an earlier phase, what is narrow is of this one. What forward found of a round's rows is
 * not found again: backward dispatches them anew. A layer that falls back by itself leaves nothing for others. */
static const struct made *find(const struct pass *p, const struct operand *o, int layer, bool is_amax,
                               const struct recipe_use *u, bool refill)
{
    for (int i = p->n_made - 1; i >= 0; i--) {
        const struct made *m = &p->made[i];
        if (p->rule->falls_back && m->layer != layer) continue;
        if (m->is_amax != is_amax || !same_operand(&m->of, o)) continue;
        if (m->kept) { /* a weight; who makes it has run, if only with another microbatch */
            if (memcmp(&m->use, u, sizeof *u)) continue;
            return m;
        }
        if (!is_amax && m->phase != p->phase) continue;
        if (m->refill && !refill) continue; /* with one round it was not made */
        if (m->use.rotate != u->rotate || (!is_amax && memcmp(&m->use, u, sizeof *u))) continue;
        return written_since(p, m) ? NULL : m;
    }
    return NULL;
}

static void keep(struct pass *p, struct made m)
{
    GROW(p->made, p->n_made, p->room, 1);
    m.phase = p->phase;
    m.at = p->to.n;
    p->made[p->n_made++] = m;
}

/* ---- rows ---- */
static struct instr *row(struct pass *p, const struct instr *beside, enum op op)
{
    struct instr *i = lower_emit(&p->to);
    i->op = op;
    i->kphase = KERNEL_FWD;
    i->node = beside->node;
    i->again = beside->again;
    i->when = p->rule->falls_back ? WHILE_ROUNDED : ALWAYS;
    i->loop = beside->loop; /* as often as the product is run */
    i->once = beside->once;
    i->refill = beside->refill;
    return i;
}

static struct operand new_operand(struct pass *p, const struct view *v)
{
    struct operand o = {.view = *v, .place = OPERAND_NONE};
    if (v->nd)
        o.place = lower_place(p->l, TID_NONE, false, to_size(view_rows(v) * view_cols(v)) * dtype_bytes(v->dtype));
    return o;
}

/* Of a weight that is kept: values, and behind them scales. */
static bool keep_weight(struct pass *p, const struct instr *i, struct source *s, const struct recipe_use *u,
                        const struct view out[2], struct made *m)
{
    if (!p->rule->keep || !p->l->o.training || s->which != OPERAND_W || u->chance) return false;
    size_t values = (to_size(view_rows(&out[0]) * view_cols(&out[0])) * dtype_bytes(out[0].dtype) + 63) / 64 * 64,
           scales = out[1].nd ? to_size(view_rows(&out[1]) * view_cols(&out[1])) * dtype_bytes(out[1].dtype) : 0, at;
    s->kept = p->rule->keep(p->rule->ctx, s->slot, i->kphase, values, scales, &at);
    m->kept = true;
    m->q = (struct operand){.view = out[0], .place = OPERAND_SLOT, .slot = p->rule->slot_kept, .offset = at};
    m->descale = (struct operand){.view = out[1], .place = OPERAND_NONE};
    if (out[1].nd) m->descale.place = OPERAND_SLOT;
    m->descale.slot = p->rule->slot_kept;
    m->descale.offset = at + values;
    return true;
}

static struct view one_number(void) { return (struct view){.dtype = DT_F32, .nd = 1, .n = {1}, .stride = 1}; }

/* The numbers of experts are those of each one's first parameter. */
static struct view numbers_of(const struct pass *p, const struct source *s)
{
    if (!s->experts) return one_number();
    int64_t apart = p->rule->params(p->rule->ctx, s->slot) / s->experts * RECIPE_OPERANDS;
    return (struct view){.dtype = DT_F32, .nd = 2, .n = {s->experts, 1}, .stride = apart};
}

/* A number of the product's at one of the rule's slots. */
static struct operand number_at(const struct pass *p, int slot, const struct source *s)
{
    int64_t at = p->rule->number(p->rule->ctx, s->slot) + s->which;
    return (struct operand){.view = numbers_of(p, s),
                            .place = OPERAND_SLOT,
                            .slot = slot,
                            .offset = to_size(at) * sizeof(float)};
}

static uint64_t stream_of(const struct pass *p, const struct instr *i, const struct source *s)
{
    char name[160], of[96];
    const struct node *d = &p->l->t->nodes[i->node];
    if (s->experts) snprintf(of, sizeof of, "layers.%d.%s", d->layer, tape_tensor(p->l->t, d->out[0])->name);
    else snprintf(of, sizeof of, "%s", p->rule->name(p->rule->ctx, s->slot));
    snprintf(name, sizeof name, "quantise/%s/%s/%s", of, recipe_operand_name(s->which),
             i->kphase == KERNEL_BWD_IN ? "inputs" : "weights");
    return rng_stream(name);
}

static struct rotate_attrs rotation(const struct recipe_use *u)
{
    return (struct rotate_attrs){u->rotate ? ALONG_ROWS : ROTATE_NOT, rng_stream("quantise/rotation")};
}

/* The axis on which ranks have other parts of the microbatch's tensor, as they do on `axis` of one that is no expert's.
 * All rows that an expert has of it may have come to one rank; then etp alone may cut their columns. */
static enum axis apart_on(const struct pass *p, const struct source *s, enum axis axis)
{
    if (!s->experts) return axis;
    if (axis == AXIS_CP) return p->rule->experts_meet ? AXIS_N : axis;
    bool rows_apart = p->rule->experts_apart && !p->rule->experts_meet && s->which != OPERAND_W;
    return p->rule->experts_apart && !rows_apart ? AXIS_ETP : axis;
}

static bool agrees_on(const struct pass *p, const struct instr *i, const struct source *s, enum axis axis)
{
    enum spmd on = (enum spmd)s->type.on[axis];
    if (p->rule->axis[axis].n_parts < 2 || on == SPMD_I || on == SPMD_R) return false;
    CHECK(on != SPMD_P, "%s of %s is a part of a sum: there is no scale for it", recipe_operand_name(s->which),
          tape_tensor(p->l->t, p->l->t->nodes[i->node].out[0])->name);
    return true;
}

/* other: what the scale is of besides, or NULL. */
static void emit_agree(struct pass *p, const struct instr *i, const struct source *s, const struct source *other,
                       const struct operand *amax)
{
    static const enum axis axes[] = {AXIS_CP, AXIS_TP};
    for (int k = 0; k < 2; k++) {
        enum axis axis = apart_on(p, s, axes[k]);
        if (axis == AXIS_N || (!agrees_on(p, i, s, axis) && !(other && agrees_on(p, i, other, axis)))) continue;
        struct instr *a = row(p, i, OP_AGREE);
        a->kept = s->kept;
        a->at = ATTRS(sum, .over = p->rule->axis[axis]);
        a->n_in = a->n_out = 1;
        a->in[0] = a->out[0] = *amax;
    }
}

/* Tokens' rows, but experts', which have none of sequences that do not exist. */
static struct token_rows rows_of(const struct pass *p, const struct instr *i, const struct source *s)
{
    const struct recipe_rule *r = p->rule;
    const struct node *d = &p->l->t->nodes[i->node];
    if (s->experts || s->which == OPERAND_W) return (struct token_rows){0};
    return tape_token_rows(p->l->t, d->in[0], r->batch, r->tokens, r->axis[AXIS_TP]);
}

static struct instr *emit_amax(struct pass *p, const struct instr *i, const struct source *s,
                               const struct recipe_use *u, const struct operand *to, bool more)
{
    struct instr *a = row(p, i, s->experts ? OP_AMAX_PARTS : OP_AMAX);
    a->kept = s->kept;
    struct amax_attrs at = {.more = more, .rotate = rotation(u)};
    a->at = s->experts ? ATTRS(amax_parts, .amax = at, .parts = s->parts) : attrs_amax(at);
    a->n_in = s->rows.view.nd ? 2 : 1;
    a->n_out = 1;
    a->in[0] = s->o;
    a->rows = rows_of(p, i, s);
    if (s->rows.view.nd) a->in[1] = s->rows;
    a->out[0] = *to;
    return a;
}

static int slot_of(const struct tape *t, const struct instr *i)
{
    return tape_tensor(t, tape_tensor(t, t->nodes[i->node].in[1])->root)->slot;
}

/* The product that makes the rest of what is one product on one rank, in the same direction; NULL: there is none. Its
 * operands are there: of both products, one after the other, nothing else is in between (nn/attention.c). */
static const struct instr *rest_of(const struct pass *p, const struct instr *i, const struct source *s)
{
    const struct code *c = &p->l->code[p->phase];
    if (s->experts) return NULL;
    for (int k = 0; k < c->n; k++) {
        const struct instr *x = &c->p[k];
        if (x->node != i->node && x->kphase == i->kphase && x->again == i->again && recipe_quantises(recipe_of(p, x)) &&
            p->rule->whole(p->rule->ctx, slot_of(p->l->t, x)) == p->rule->whole(p->rule->ctx, s->slot))
            return x;
    }
    return NULL;
}

static struct source source_of(const struct pass *p, const struct instr *i, enum recipe_operand which, bool history);

/* The largest value that the tensor's scale follows from. */
static struct operand amax_of(struct pass *p, const struct instr *i, const struct source *s, const struct recipe_use *u,
                              bool history)
{
    const int layer = p->l->t->nodes[i->node].layer;
    const struct made *m = s->kept ? NULL : find(p, &s->o, layer, true, u, i->refill);
    if (history) {
        struct operand now = number_at(p, p->rule->slot_now, s);
        if (p->l->o.training && !i->again && !m) {
            emit_amax(p, i, s, u, &now, true);
            if (!s->kept)
                keep(p, (struct made){.of = s->o,
                                      .layer = layer,
                                      .is_amax = true,
                                      .refill = i->refill,
                                      .use = *u,
                                      .q = now});
        }
        return number_at(p, p->rule->slot_told, s);
    }
    if (m) return m->q;
    struct view one = one_number(), all = s->rows.view;
    int64_t n = s->experts ? parts_count(&s->parts, all.nd ? &all : NULL, s->o.view.n[0]) : 1;
    if (s->experts) one = (struct view){.dtype = DT_F32, .nd = 2, .n = {n, 1}, .stride = 1};
    struct operand amax = new_operand(p, &one);
    emit_amax(p, i, s, u, &amax, false);
    const struct instr *rest = s->which == OPERAND_X ? NULL : rest_of(p, i, s);
    struct source other = {.kept = 0};
    if (rest) {
        other = source_of(p, rest, s->which, history);
        other.kept = s->kept;
        emit_amax(p, rest, &other, u, &amax, true);
    }
    emit_agree(p, i, s, rest ? &other : NULL, &amax);
    if (!s->kept)
        keep(p, (struct made){.of = s->o, .layer = layer, .is_amax = true, .refill = i->refill, .use = *u, .q = amax});
    return amax;
}

/* ---- one operand ---- */
static struct quantise_attrs attrs_of(const struct pass *p, const struct instr *i, const struct source *s,
                                      const struct recipe_use *u)
{
    bool tokens = s->which != OPERAND_W;
    return (struct quantise_attrs){
        .format = u->format,
        .scaling = u->scaling,
        .power_of_two = u->power_of_two && !(u->scaling == SCALING_BLOCK && p->rule->fp32_scales),
        .up = u->up,
        .rows = u->rows,
        .cols = u->cols,
        .rotate = rotation(u),
        .chance = u->chance,
        .tokens = u->chance && tokens,
        .stream = u->chance ? stream_of(p, i, s) : 0,
    };
}

/* Words of chance are counted by the tokens of the microbatch: which one each row is, where ranks of cp share them out,
 * or else the first of a stretch, where ranks of tp do. */
static void tell_tokens(const struct pass *p, const struct source *s, struct instr *q)
{
    const struct recipe_rule *rule = p->rule;
    const int64_t n = s->o.view.n[0];
    int64_t lo = 0, hi = n;
    if (rule->axis[AXIS_TP].n_parts > 1 && s->type.on[AXIS_TP] == SPMD_S0)
        region_split(rule->tokens, rule->axis[AXIS_TP].part, rule->axis[AXIS_TP].n_parts, &lo, &hi);
    CHECK(hi - lo == n, "%lld rows of tokens [%lld, %lld)", (long long)n, (long long)lo, (long long)hi);
    if (rule->slot_index < 0) {
        edit_quantise(&q->at)->first_row = lo;
        return;
    }
    q->in[2] = (struct operand){.view = {.dtype = DT_I32, .nd = 1, .n = {n}, .stride = 1},
                                .place = OPERAND_SLOT,
                                .slot = rule->slot_index,
                                .offset = to_size(lo) * sizeof(int32_t)};
    q->n_in = 3;
}

/* Columns [at, at + n) of an operand. */
static struct operand columns(const struct operand *o, int64_t at, int64_t n)
{
    struct operand c = *o;
    c.view.n[1] = n;
    c.offset += to_size(at) * dtype_bytes(o->view.dtype);
    return c;
}

static void emit_quantise(struct pass *p, const struct instr *i, const struct source *s,
                          const struct quantise_attrs *at, const struct operand *amax, struct recipe_cols c,
                          struct made *m)
{
    struct quantise_attrs here = *at;
    struct instr *q = row(p, i, s->experts ? OP_QUANTISE_PARTS : OP_QUANTISE);
    q->kept = s->kept;
    here.first_col = c.first;
    here.whole_cols = c.whole;
    q->at = s->experts ? ATTRS(quantise_parts, .quantise = here, .parts = s->parts) : attrs_quantise(here);
    q->operand = (int)s->which;
    q->direction = i->kphase;
    q->n_out = 2;
    q->n_in = 2;
    q->in[0] = columns(&s->o, c.at, c.n);
    q->in[1] = *amax;
    q->rows = rows_of(p, i, s);
    if (s->rows.view.nd) {
        q->in[2] = s->rows;
        q->n_in = 3;
    } else if (at->chance && at->tokens) {
        tell_tokens(p, s, q);
    }
    q->out[0] = columns(&m->q, c.at, c.n);
    q->out[1] = m->descale;
}

/* Words of chance are counted over the whole matrix of one rank: as many rows as parameters lie in it. */
static int pieces_of(const struct pass *p, const struct source *s, const struct recipe_use *u,
                     struct recipe_cols out[RECIPE_MOST_COLS])
{
    out[0] = (struct recipe_cols){.n = s->o.view.n[1]};
    return u->chance && s->which == OPERAND_DY ? p->rule->cols(p->rule->ctx, s->slot, s->experts, out) : 1;
}

static struct made quantised(struct pass *p, const struct instr *i, struct source *s, const struct recipe_use *u,
                             bool history)
{
    const int layer = p->l->t->nodes[i->node].layer;
    const struct made *have = find(p, &s->o, layer, false, u, i->refill);
    if (have) return *have;
    struct made m = {.of = s->o, .layer = layer, .refill = i->refill, .use = *u};
    struct operand amax = {.place = OPERAND_NONE};
    bool from_amax = u->scaling == SCALING_TENSOR || u->scaling == SCALING_NV;
    const struct quantise_attrs at = attrs_of(p, i, s, u);
    const struct op_attrs all =
        s->experts ? ATTRS(quantise_parts, .quantise = at, .parts = s->parts) : attrs_quantise(at);
    struct view number = one_number();
    if (s->experts)
        number.n[0] = parts_count(&s->parts, s->rows.view.nd ? &s->rows.view : NULL, s->o.view.n[0]), number.nd = 2,
        number.n[1] = 1;
    struct view in[3] = {s->o.view, from_amax ? number : (struct view){0}, s->rows.view}, out[KERNEL_MAX_OUT] = {{0}};
    const char *why = op_row(s->experts ? OP_QUANTISE_PARTS : OP_QUANTISE)
                          ->infer(&all,
                                  s->experts  ? 3
                                  : from_amax ? 2
                                              : 1,
                                  in, out);
    CHECK(!why, "%s of %s: %s", recipe_operand_name(s->which),
          tape_tensor(p->l->t, p->l->t->nodes[i->node].out[0])->name, why);
    bool kept = keep_weight(p, i, s, u, out, &m);
    if (from_amax) amax = amax_of(p, i, s, u, history);
    if (!kept) {
        m.q = new_operand(p, &out[0]);
        m.descale = new_operand(p, &out[1]);
    }
    struct recipe_cols c[RECIPE_MOST_COLS];
    int n = pieces_of(p, s, u, c);
    for (int k = 0; k < n; k++) emit_quantise(p, i, s, &at, &amax, c[k], &m);
    keep(p, m);
    return m;
}

/* ---- the product ---- */
static struct spmd_type dual(struct spmd_type t)
{
    for (int a = 0; a < AXIS_N; a++) t.on[a] = (uint8_t)spmd_dual((enum spmd)t.on[a]);
    return t;
}

/* What each source has sent to each expert: DISPATCH's, of this phase if it was run again; place OPERAND_NONE: nothing
 * was dispatched. *of_rank: how many sources a rank is. */
static struct operand from_sources(const struct pass *p, const struct instr *i, int *of_rank)
{
    const struct tape *t = p->l->t;
    tid rows = tape_tensor(t, t->nodes[i->node].in[2])->root;
    const struct instr *found = NULL;
    for (int ph = 0; ph <= (p->phase > PHASE_F ? PHASE_B : PHASE_F); ph++) {
        const struct code *c = ph == (int)p->phase ? &p->to : &p->l->code[ph];
        for (int k = 0; k < c->n; k++)
            if (c->p[k].op == OP_DISPATCH && c->p[k].kphase == KERNEL_FWD && t->nodes[c->p[k].node].out[1] == rows)
                found = &c->p[k];
    }
    *of_rank = found ? source_stretches(&at_dispatch(&found->at)->order) : 1;
    return found ? found->out[2] : (struct operand){.place = OPERAND_NONE};
}

/* Of a round: behind the sums over all of them. */
static struct operand of_round(const struct instr *i)
{
    struct operand from = i->in[2];
    from.view.n[0] -= 2;
    from.offset += 2 * to_size(from.view.stride) * sizeof(int32_t);
    return from;
}

/* A part is an expert where scales are those of earlier steps, else what it has of one microbatch. */
static void make_parts(const struct pass *p, const struct instr *i, struct source *s, bool history)
{
    struct operand from = {.place = OPERAND_NONE};
    int of_rank = 1;
    if (!history) from = i->in[2].view.nd == 2 ? of_round(i) : from_sources(p, i, &of_rank);
    s->experts = to_int(view_cols(&i->in[2].view));
    s->parts = p->rule->parts(p->rule->ctx, s->slot);
    s->parts.together *= of_rank;
    if (s->which == OPERAND_W) {
        s->parts.each = s->o.view.n[0] / s->experts;
        return;
    }
    s->rows = from.place == OPERAND_NONE ? i->in[2] : from;
    s->parts.sources = from.place == OPERAND_NONE ? 0 : to_int(from.view.n[0]);
}

static struct source source_of(const struct pass *p, const struct instr *i, enum recipe_operand which, bool history)
{
    const struct tape *t = p->l->t;
    const struct node *d = &t->nodes[i->node];
    struct source s = {.which = which, .slot = tape_tensor(t, tape_tensor(t, d->in[1])->root)->slot};
    s.o = which == OPERAND_X ? i->in[0] : which == OPERAND_W ? i->in[1] : i->dout[0];
    s.type = which == OPERAND_DY ? dual(tape_tensor(t, d->out[0])->type)
                                 : tape_tensor(t, d->in[which == OPERAND_X ? 0 : 1])->type;
    s.rows.place = OPERAND_NONE;
    if (i->op == OP_GROUPED) make_parts(p, i, &s, history);
    return s;
}

static struct scale_blocks blocks_of(const struct recipe_use *u, const struct operand *descale)
{
    struct scale_blocks b = {.of = FORMAT_F16};
    if (descale->view.nd == 2 && u->scaling == SCALING_BLOCK)
        b = (struct scale_blocks){.rows = u->rows, .cols = u->cols};
    bool codes = u->scaling == SCALING_TENSOR || (u->scaling == SCALING_BLOCK && !u->power_of_two);
    if (codes) b.of = u->format;
    return b;
}

/* The bias's gradient by itself. */
static void emit_bias(struct pass *p, const struct instr *i)
{
    struct instr *b = lower_emit(&p->to);
    *b = *i;
    b->when = p->rule->falls_back ? WHILE_ROUNDED : ALWAYS;
    b->din[1] = b->acc[1] = b->in[0];
    b->din[1].place = b->acc[1].place = b->in[0].place = OPERAND_NONE;
    memset(&b->din[1].view, 0, sizeof b->din[1].view);
    memset(&b->acc[1].view, 0, sizeof b->acc[1].view);
}

static void emit_product(struct pass *p, const struct instr *was, const struct recipe_row *r)
{
    struct instr i = *was;
    const bool experts = i.op == OP_GROUPED;
    struct linear_scaled_attrs at = {.bias_off = !experts && at_linear(&i.at)->bias_off};
    struct source rows = source_of(p, was, OPERAND_X, r->history);
    if (p->rule->falls_back) {
        struct instr *without = lower_emit(&p->to);
        *without = *was;
        without->when = WHEN_FALLEN;
        i.when = WHILE_ROUNDED;
    }
    for (int o = 0; o < RECIPE_OPERANDS; o++) {
        const struct recipe_use *u = &r->use[i.kphase][o];
        if (!u->on) continue;
        struct source s = source_of(p, was, (enum recipe_operand)o, r->history);
        struct made m = quantised(p, was, &s, u, r->history);
        *(o == OPERAND_DY ? &i.dout[0] : &i.in[o]) = m.q;
        i.in[3 + o] = m.descale;
        *(o == OPERAND_X ? &at.x : o == OPERAND_W ? &at.w : &at.dy) = blocks_of(u, &m.descale);
    }
    bool bias = !experts && i.kphase == KERNEL_BWD_W && i.din[2].place != OPERAND_NONE;
    i.n_in = KERNEL_MAX_IN;
    if (experts) {
        i.op = OP_GROUPED_SCALED;
        i.at = ATTRS(grouped_scaled, .expected = at_grouped(&was->at)->expected, .x = at.x, .w = at.w, .dy = at.dy,
                     .parts = rows.parts);
        i.in[2] = rows.rows;
        *lower_emit(&p->to) = i;
        return;
    }
    i.op = OP_LINEAR_SCALED;
    i.at = attrs_linear_scaled(at);
    if (at.bias_off || i.kphase != KERNEL_FWD) i.in[2] = i.din[2] = i.acc[2] = (struct operand){.place = OPERAND_NONE};
    *lower_emit(&p->to) = i;
    if (bias) emit_bias(p, was);
}

void lower_recipe(struct lower *l)
{
    struct pass p = {.l = l, .rule = l->o.recipe};
    for (int ph = 0; ph < PHASE_N; ph++) {
        struct code *c = &l->code[ph];
        p.phase = (enum program_phase)ph;
        p.to = (struct code){0};
        for (int i = 0; i < c->n; i++) {
            enum recipe r = recipe_of(&p, &c->p[i]);
            if (recipe_quantises(r)) emit_product(&p, &c->p[i], recipe_row(r));
            else *lower_emit(&p.to) = c->p[i];
        }
        xfree(c->p);
        *c = p.to;
    }
    xfree(p.made);
}
