/* SPDX-License-Identifier: Apache-2.0 */
/* Which product gets which recipe, from names; and whether blocks of a layout are those of one rank: a boundary between
 * ranks that lies inside a block would give other scales. */
#include "engine/recipes.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "layout/sequence.h"

/* ---- products ---- */
static int param_of_slot(int slot) { return (slot - SLOT_PARAM) / 2; }

static int param_named(const struct param_table *params, const struct param *like, const char *suffix)
{
    char name[PARAM_NAME];
    snprintf(name, sizeof name, "layers.%d.%s", like->layer, suffix);
    return param_find(params, name);
}

/* q, k and v are one product on one rank, and so they have one scale everywhere: also where tp has more ranks than
 * there are key heads, and k and v are a product of their own. */
static void find_whole(struct product *x, const struct param_table *params)
{
    const struct param *p = &params->p[x->first];
    int q = p->layer < 0 ? -1 : param_named(params, p, "attn.q.weight"),
        k = p->layer < 0 ? -1 : param_named(params, p, "attn.k.weight");
    bool attention = q >= 0 && k == q + 1 && x->first >= q && x->first < q + 3;
    x->whole = attention ? q : x->first;
    x->n_whole = attention ? 3 : x->n;
}

static bool push(struct products *out, int *room, const struct tape *t, int node, const struct param_table *params)
{
    const struct node *d = &t->nodes[node];
    if (d->retype || (d->op != OP_LINEAR && d->op != OP_GROUPED)) return false;
    const struct tensor *w = tape_tensor(t, tape_tensor(t, d->in[1])->root);
    if (w->kind != TENSOR_EXTERNAL || w->grad_slot < 0) return false;
    struct product x = {.node = node, .first = param_of_slot(w->slot), .recipe = RECIPE_BF16};
    for (int64_t rows = 0; x.n == 0 || rows < w->n[0]; x.n++) rows += params->p[x.first + x.n].ln[0];
    x.experts = d->op == OP_GROUPED;
    x.layers = d->layer >= 0 && !strstr(params->p[x.first].name, ".router.");
    find_whole(&x, params);
    GROW(out->p, out->n, *room, 1);
    out->p[out->n++] = x;
    return true;
}

/* How many of the product's parameters a pattern names. */
static int named(const struct product *x, const struct param_table *params, const char *pattern)
{
    int n = 0;
    for (int k = 0; k < x->n_whole; k++) n += fnmatch(pattern, params->p[x->whole + k].name, 0) == 0;
    return n;
}

static int choose(struct product *x, const struct tape *t, const struct param_table *params,
                  const struct model_config *m, const struct recipe_config *c, bool *used, int *choice, struct err *e)
{
    const struct node *d = &t->nodes[x->node];
    if (!x->layers) return OK;
    x->recipe = recipe_leaves_layer(c->recipe, d->layer, to_int(m->layers)) ? RECIPE_BF16 : c->recipe;
    for (int k = 0; k < c->n_choices; k++) {
        int n = named(x, params, c->choice[k].layers);
        *choice = k;
        if (n && n < x->n_whole)
            return err_set(e, ERR_REQUEST,
                           "'%s' names %d of the %d parameters that make one product, %s and those behind it; name all "
                           "of them, or none",
                           c->choice[k].layers, n, x->n_whole, params->p[x->whole].name);
        if (!n) continue;
        used[k] = true;
        x->recipe = (enum recipe)c->choice[k].recipe;
    }
    return OK;
}

/* What a pattern that no product of a layer fits may have been meant for. */
static const char *nearest(const struct products *all, const struct param_table *params, const char *pattern)
{
    const char **names = xcalloc(to_size(all->n) + 1, sizeof *names);
    int n = 0;
    for (int i = 0; i < all->n; i++)
        if (all->p[i].layers) names[n++] = params->p[all->p[i].first].name;
    const char *near = n ? str_nearest(pattern, names, n) : NULL;
    if (!near && n) near = names[0];
    xfree(names);
    return near ? near : "nothing";
}

static int refuse_unused(const struct products *all, const struct param_table *params, const char *pattern,
                         struct err *e)
{
    bool fixed = false;
    for (int i = 0; i < all->n; i++) fixed |= named(&all->p[i], params, pattern) > 0 && !all->p[i].layers;
    if (fixed) return err_set(e, ERR_REQUEST, "'%s' names the head or a router, which stay in bf16", pattern);
    return err_set(e, ERR_REQUEST, "'%s' names no matrix of a layer; one is %s", pattern,
                   nearest(all, params, pattern));
}

int products_choose(struct products *out, const struct tape *t, const struct param_table *params,
                    const struct model_config *m, const struct recipe_config *c, bool partly, int *choice,
                    struct err *e)
{
    int room = 0, rc = OK;
    bool *used = xcalloc((size_t)c->n_choices + 1, sizeof *used);
    *out = (struct products){0};
    for (int i = 0; !rc && i < t->n_nodes; i++)
        if (push(out, &room, t, i, params)) rc = choose(&out->p[out->n - 1], t, params, m, c, used, choice, e);
    for (int k = 0; !rc && !partly && k < c->n_choices; k++) {
        *choice = k;
        if (!used[k]) rc = refuse_unused(out, params, c->choice[k].layers, e);
    }
    xfree(used);
    return rc;
}

void products_free(struct products *p)
{
    xfree(p->p);
    *p = (struct products){0};
}

/* ---- blocks and boundaries ---- */
struct fit {
    const struct tape *t;
    const struct param_table *params;
    const struct par *par;
    int64_t seq;
    const struct product *x;
    enum axis *axis;
    struct err *e;
};

static int refuse(const struct fit *f, enum axis a, const char *what, int64_t each, int64_t has)
{
    *f->axis = a;
    return err_set(f->e, ERR_REQUEST,
                   "%s: blocks of %lld of %s would be cut where ranks of %s meet, each with %lld of them, and scales "
                   "would not be those of one rank",
                   f->params->p[f->x->first].name, (long long)each, what, axis_name(a), (long long)has);
}

/* Parameters of one product, or columns of what it makes, of this rank: each a whole number of blocks. */
static int fit_params(const struct fit *f, enum axis over, int64_t each)
{
    for (int k = 0; k < f->x->n; k++) {
        int64_t n = f->params->p[f->x->first + k].ln[0];
        if (n % each) return refuse(f, over, "the out-features", each, n);
    }
    return OK;
}

static int fit_tokens(const struct fit *f, struct spmd_type type, int64_t rows, int64_t each)
{
    const struct par *p = f->par;
    for (int half = 0; half < 2 && p->size[AXIS_CP] > 1 && type.on[AXIS_CP] == SPMD_S0; half++) {
        int64_t lo, hi;
        context_chunk(f->seq, p->size[AXIS_CP], p->rank[AXIS_CP], half, &lo, &hi);
        if (f->seq % each || lo % each || hi % each) return refuse(f, AXIS_CP, "the tokens", each, hi - lo);
    }
    if (p->size[AXIS_TP] > 1 && type.on[AXIS_TP] == SPMD_S0 && rows % each)
        return refuse(f, AXIS_TP, "the tokens", each, rows);
    return OK;
}

static struct spmd_type dual_of(struct spmd_type t)
{
    for (int a = 0; a < AXIS_N; a++) t.on[a] = (uint8_t)spmd_dual((enum spmd)t.on[a]);
    return t;
}

/* The first operation of a kind at or before a product. */
static const struct node *before(const struct fit *f, enum op op)
{
    for (int i = f->x->node; i >= 0; i--)
        if (f->t->nodes[i].op == op) return &f->t->nodes[i];
    return NULL;
}

/* A round takes all that an expert has of a microbatch, in which a token meets it once. */
static int fit_rounds(const struct fit *f)
{
    const struct node *permute = before(f, OP_PERMUTE), *dispatch = before(f, OP_DISPATCH);
    if (f->t->nodes[f->x->node].wave < 0 || !permute || !dispatch) return OK;
    int64_t room = at_dispatch(&dispatch->at)->whole, most = at_permute(&permute->at)->tokens.batch * f->seq;
    if (most <= room) return OK;
    *f->axis = AXIS_EP;
    return err_set(f->e, ERR_REQUEST,
                   "%s and the other experts in %s: a round has room for %lld rows, and an expert may have %lld of one "
                   "microbatch, whose scales follow from all of them (fp8-delayed has them before: precision.layers: "
                   "{\"*.experts.*\": fp8-delayed}); moe.buffer_least: %lld has room",
                   f->params->p[f->x->first].name, recipe_row(f->x->recipe)->name, (long long)room, (long long)most,
                   (long long)most);
}

/* Nothing depends on which of an expert's rows are neighbours: no block lies across them, nothing is rotated or drawn.
 */
static bool in_any_order(const struct recipe_row *r)
{
    bool any = true;
    for (int ph = 0; ph < KERNEL_N_PHASES; ph++)
        for (int o = 0; o < RECIPE_OPERANDS; o++) {
            const struct recipe_use *u = &r->use[ph][o];
            if (u->on && o != OPERAND_W) any &= u->rows <= 1 && !u->rotate && !u->chance;
        }
    return any;
}

/* A scale that follows from the tensor itself, or blocks down the rows, want an expert's rows of one microbatch
 * together, where several ranks share out its tokens: all of them send to one rank of each expert, which puts them in
 * the order of one rank (kernel/attrs.h, source_order), or (a scale for all of a tensor) each has every expert and they
 * agree. */
static int fit_experts(const struct fit *f)
{
    const struct par *p = f->par;
    const struct recipe_row *r = recipe_row(f->x->recipe);
    const char *name = f->params->p[f->x->first].name;
    const bool any_order = in_any_order(r);
    int tp = par_experts_apart(p) ? p->size[AXIS_TP] : 1, cp = p->size[AXIS_CP];
    int met = p->size[AXIS_EP] * par_expert_copies(p);
    if (met % (tp * cp) && !(any_order && met == 1)) {
        *f->axis = tp > 1 ? AXIS_ETP : AXIS_CP;
        return err_set(f->e, ERR_REQUEST,
                       "%s and the other experts in %s: %s shares out the tokens of a microbatch over %d ranks, ep x "
                       "etp = %d of them send their rows to one rank of an expert, and scales would not be those of "
                       "one rank; ep x etp that is %sa multiple of %d has them, as has fp8-delayed (precision.layers: "
                       "{\"*.experts.*\": fp8-delayed})",
                       name, r->name,
                       tp == 1   ? "cp"
                       : cp == 1 ? "tp"
                                 : "cp x tp",
                       tp * cp, met, any_order ? "1 or " : "", tp * cp);
    }
    return fit_rounds(f);
}

static int fit_use(const struct fit *f, enum recipe_operand o, const struct recipe_use *u)
{
    const struct node *d = &f->t->nodes[f->x->node];
    tid of = o == OPERAND_X ? d->in[0] : o == OPERAND_W ? d->in[1] : d->out[0];
    const struct tensor *v = tape_tensor(f->t, of);
    struct spmd_type type = o == OPERAND_DY ? dual_of(v->type) : v->type;
    int64_t rows = u->rotate && u->rows < 16 ? 16 : u->rows, cols = u->cols;
    bool apart = f->x->experts && par_experts_apart(f->par); /* columns are cut over etp */
    enum axis cut = apart ? AXIS_ETP : AXIS_TP;
    bool tp = f->par->size[cut] > 1;
    if (tp && !apart && type.on[cut] == SPMD_P) {
        *f->axis = AXIS_TP;
        return err_set(f->e, ERR_REQUEST,
                       "%s is whole on every rank of tp, and each has a part of its gradient only: there is no scale "
                       "for "
                       "the sum",
                       f->params->p[f->x->first].name);
    }
    int rc = OK;
    if (f->x->n < f->x->n_whole && rows > 1 && o == OPERAND_W) rc = fit_params(f, AXIS_TP, rows);
    if (!rc && f->x->n < f->x->n_whole && cols > 1 && o == OPERAND_DY) rc = fit_params(f, AXIS_TP, cols);
    if (!rc && rows > 1 && o != OPERAND_W && !f->x->experts) rc = fit_tokens(f, type, v->n[0], rows);
    if (!rc && tp && rows > 1 && o == OPERAND_W && type.on[cut] == SPMD_S0) rc = fit_params(f, cut, rows);
    if (!rc && tp && cols > 1 && type.on[cut] == SPMD_S1 && o == OPERAND_DY) rc = fit_params(f, cut, cols);
    if (!rc && tp && cols > 1 && type.on[cut] == SPMD_S1 && o != OPERAND_DY && v->n[1] % cols)
        rc = refuse(f, cut, "the in-features", cols, v->n[1]);
    return rc;
}

int products_fit(const struct products *p, const struct tape *t, const struct param_table *params,
                 const struct par *par, int64_t seq, enum axis *axis, struct err *e)
{
    struct fit f = {.t = t, .params = params, .par = par, .seq = seq, .axis = axis, .e = e};
    int rc = OK;
    for (int i = 0; !rc && i < p->n; i++) {
        const struct recipe_row *r = recipe_row(p->p[i].recipe);
        f.x = &p->p[i];
        if (f.x->experts && recipe_quantises(f.x->recipe) && !r->history) rc = fit_experts(&f);
        for (int ph = 0; ph < KERNEL_N_PHASES; ph++)
            for (int o = 0; !rc && o < RECIPE_OPERANDS; o++)
                if (r->use[ph][o].on) rc = fit_use(&f, (enum recipe_operand)o, &r->use[ph][o]);
    }
    return rc;
}
