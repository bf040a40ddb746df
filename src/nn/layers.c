/* SPDX-License-Identifier: Apache-2.0 */
/* What layers are made of: the rows that they declare, the tensors and products of them on a tape, the embedding of
 * tokens, and the way into and out of a region that tp splits. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "nn/adapter.h"
#include "nn/layers.h"
#include "state/param_group.h"

struct spmd_type type_tokens(enum spmd over_cp)
{
    struct spmd_type t = spmd_all(SPMD_I);
    t = spmd_with(t, AXIS_DP_REPLICATE, SPMD_V);
    t = spmd_with(t, AXIS_DP_SHARD, SPMD_V);
    return spmd_with(t, AXIS_CP, over_cp);
}

/* Replicated over the data axes: the gradient is a sum over them. */
static struct layout weight_over(const struct mesh *m, struct shape n, const struct declare *d)
{
    struct layout l = layout_on(m, MESH_DENSE, n, SPMD_I);
    l = layout_with(layout_with(layout_with(l, AXIS_DP_REPLICATE, SPMD_R), AXIS_DP_SHARD, SPMD_R), AXIS_CP, SPMD_R);
    return d->unit && spmd_is_shard(d->over_tp) ? layout_with_unit(l, AXIS_TP, d->over_tp, d->unit)
                                                : layout_with(l, AXIS_TP, d->over_tp);
}

static void print_name(char name[PARAM_NAME], const char *prefix, const char *fmt, va_list ap)
{
    size_t n = (size_t)snprintf(name, PARAM_NAME, "%s", prefix);
    vsnprintf(name + n, PARAM_NAME - n, fmt, ap);
}

void layer_declare(struct declare_ctx *x, struct declare d, int nd, const int64_t *n, const char *fmt, ...)
{
    char name[PARAM_NAME];
    va_list ap;
    va_start(ap, fmt);
    print_name(name, x->prefix, fmt, ap);
    va_end(ap);
    bool tower = x->prefix[0] && d.layer >= 0; /* its layers are units of their own, before all others */
    int i = param_add(x->t, name, weight_over(&x->t->mesh, shape_of(nd, n), &d), d.init, d.std,
                      tower ? LAYER_TOWER - d.layer : d.layer);
    if (tower && nd >= 2) param_set_group(&x->t->p[i], PARAM_MATRICES);
}

struct vocab_attrs vocab_here(const struct model_config *c, const struct par *p)
{
    int64_t lo, hi;
    par_share(p, AXIS_TP, c->vocab, &lo, &hi);
    return (struct vocab_attrs){.first = lo, .whole = c->vocab, .n_parts = p->size[AXIS_TP]};
}

enum spmd over_vocab(const struct par *p) { return p->size[AXIS_TP] > 1 ? SPMD_S0 : SPMD_I; }

/* The root of hidden, as a number of the compute dtype: theirs is one. */
static float embed_scale(const struct layer_ctx *x)
{
    float root = sqrtf((float)x->c->hidden);
    if (!model_decodes(x->c) || !x->c->scale_embedding) return 0;
    if (x->s->dtype == DT_F32) return root;
    return x->s->dtype == DT_BF16 ? bf16_to_f32(bf16_from_f32(root)) : f16_to_f32(f16_from_f32(root));
}

tid embed_tokens(struct layer_ctx *x, tid ids_T)
{
    struct vocab_attrs all = {.scale = embed_scale(x)}, here = vocab_here(x->c, x->par);
    here.scale = all.scale;
    tid w_VD = layer_param(x, 1, "embed.token");
    if (x->par->size[AXIS_TP] == 1) return op_embed(x->t, ids_T, w_VD, all, "embed.token");
    return region_leave(x, op_embed(x->t, ids_T, w_VD, here, "embed.token"));
}

/* What the stage before sends is the stage's own from here on: entering changes what is done with its gradient. Where
 * norms stand behind what they are of (BERT, OLMo-2), a stage's first layer enters with nothing between. */
static tid own_stream(struct layer_ctx *x, tid h_TD)
{
    if (x->t->err.code) return h_TD;
    const struct tensor *h = tape_tensor(x->t, h_TD);
    if (tape_tensor(x->t, h->root)->kind == TENSOR_LOCAL) return h_TD;
    return tape_record(x->t, OP_COPY, &(struct op_attrs){0}, 1, &h_TD, h->dtype, "stage.own");
}

tid region_enter(struct layer_ctx *x, tid h_TD)
{
    if (x->par->sequence) return par_gather(x->t, x->par, h_TD, AXIS_TP, x->tokens);
    return par_enter(x->t, x->par, x->par->size[AXIS_TP] > 1 ? own_stream(x, h_TD) : h_TD, AXIS_TP);
}

tid region_leave(struct layer_ctx *x, tid partial_TD)
{
    if (x->par->sequence) return par_scatter(x->t, x->par, partial_TD, AXIS_TP);
    return par_reduce(x->t, x->par, partial_TD, AXIS_TP);
}

static const struct param *param_named(const struct layer_ctx *x, const char *name)
{
    int i = param_find(x->params, name);
    CHECK(i >= 0, "the model declares no parameter %s", name);
    return &x->params->p[i];
}

tid layer_param(struct layer_ctx *x, int span, const char *fmt, ...)
{
    char name[PARAM_NAME];
    va_list ap;
    va_start(ap, fmt);
    print_name(name, x->prefix, fmt, ap);
    va_end(ap);
    const struct param *p = param_named(x, name);
    int i = (int)(p - x->params->p);
    int64_t n[PARAM_MAX_DIM];
    for (int k = 0; k < p->nd; k++) n[k] = p->ln[k];
    for (int k = 1; k < span; k++) {
        const struct param *q = p + k;
        CHECK(q->nd == p->nd && (p->nd < 2 || q->ln[1] == p->ln[1]) && spmd_equal(q->type, p->type),
              "%s and %s do not form one matrix", p->name, q->name);
        if (q->frozen != p->frozen && !x->t->err.code)
            err_set(&x->t->err, ERR_REQUEST,
                    "train.freeze, train.only: %s is frozen and %s is not, and one product makes both; freeze both, or "
                    "neither",
                    p->frozen ? p->name : q->name, p->frozen ? q->name : p->name);
        n[0] += q->ln[0];
    }
    for (int a = 0; a < AXIS_N && !x->t->err.code; a++)
        if (p->type.on[a] == SPMD_V)
            err_set(&x->t->err, ERR_REQUEST, "%s over %s: a parameter does not differ by rank: whole, cut or partial",
                    p->name, axis_name((enum axis)a));
    if (x->param_tid[i] < 0 || span > 1)
        x->param_tid[i] =
            tape_param(x->t, p->name, slot_param(i), p->frozen ? -1 : slot_grad(i), x->s->dtype, p->nd, n, p->type);
    return x->param_tid[i];
}

tid layer_linear(struct layer_ctx *x, tid h, tid w, tid bias, bool bias_off, const char *name)
{
    tid own = adapter_bias(x, w, bias), y = coded_record(x, h, w, own, bias_off, TID_NONE, 0, name);
    if (y < 0) y = op_linear_partial(x->t, h, w, own, bias_off, name);
    return adapter_record(x, h, w, y,
                          &(struct adapter_how){.rows_E = TID_NONE,
                                                .bias = own == bias ? TID_NONE : bias,
                                                .bias_off = bias_off});
}

tid layer_grouped(struct layer_ctx *x, tid h, tid w, tid rows_E, int64_t expected, const char *name)
{
    tid y = coded_record(x, h, w, TID_NONE, false, rows_E, expected, name);
    if (y < 0) y = op_grouped(x->t, h, w, rows_E, expected, name);
    return adapter_record(x, h, w, y, &(struct adapter_how){.rows_E = rows_E, .expected = expected, .bias = TID_NONE});
}

tid layer_rows(struct layer_ctx *x, int span, const char *name)
{
    char whole[PARAM_NAME];
    snprintf(whole, sizeof whole, "%s%s", x->prefix, name);
    const struct param *p = param_named(x, whole);
    int i = (int)(p - x->params->p);
    for (int k = 0; k < span; k++) {
        const struct param *q = p + k;
        CHECK(q->nd == 1 && q->ln[0] == p->ln[0] && spmd_equal(q->type, p->type), "%s is no row beside %s", q->name,
              p->name);
    }
    return tape_param(x->t, p->name, slot_param(i), p->frozen ? -1 : slot_grad(i), x->s->dtype, 2,
                      (int64_t[]){span, p->ln[0]}, p->type);
}
