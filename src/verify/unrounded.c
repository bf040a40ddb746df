/* SPDX-License-Identifier: Apache-2.0 */
/* verify_all once more, for the config in fp32: what it finds of a layout goes to the layout of that name. Costs as
 * much as the wide layouts did, and an oracle. Rejected: narrower bounds for what is rounded, which no honest run
 * keeps: a gradient that nearly cancels is off by as much as it is large. */
#include "verify/unrounded.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/config_codec.h"
#include "config/config_offload.h"
#include "config/config_optim.h"
#include "tape/recipe.h"
#include "verify/compare.h"

struct config unrounded_of(const struct config *c)
{
    struct config u = *c;
    u.precision.recipe = RECIPE_FP32;
    u.precision.grad = GRAD_FP32;
    u.precision.master = MASTER_FP32;
    u.precision.layers = (struct conf_list){0};
    u.precision.keep_weights = false;
    u.numerics.accumulate = ACCUMULATE_FP32;
    u.comm.grad = u.comm.param = TRAVEL_KEPT;
    u.memory.away &= ~(unsigned)AWAY_MASTER; /* weights in fp32 are their own */
    if (c->optimizer.ema > 0) u.memory.away &= ~(unsigned)AWAY_PARAMS;
    u.memory.limit = NULL;
    u.memory.limit_bytes = 0;
    return u;
}

bool unrounded_is_wanted(const struct config *c)
{
    const struct bounds b = bounds_of(c);
    return config_ranks(c) > 1 && bounds_rough(&b) && (b.gradient > 2e-2 || b.step > 0.25);
}

static struct verify_layout *layout_of(struct verify *v, const struct verify_layout *l)
{
    for (int i = 0; i < v->n; i++)
        if (v->layout[i].own == l->own && !strcmp(v->layout[i].layout, l->layout)) return &v->layout[i];
    return NULL;
}

/* Newton-Schulz in bf16, moments of few bits, quotients by what is next to nothing: bounds of these are the mean of
 * what chance makes, over some steps; three times as much is the most, and a lean (compare.h) has a measure of its own.
 */
static bool still_rounds(const struct config *c)
{
    struct optim_config o = config_optim(c);
    return o.moments != MOMENTS_FP32 || optim_steps(&o, OPTIM_MUON) || optim_steps(&o, OPTIM_ADAFACTOR);
}

/* The worst of all that was compared, in parts of its bound. */
static double over(const struct verify_layout *l)
{
    double totals = larger(larger(l->loss_rel_error, l->norm_rel_error), l->eval_rel_error) / l->bound_totals,
           values = larger(l->max_rel_error / l->bound, l->resume_rel_error / l->bound_resumed);
    return l->complete ? larger(larger(totals, values), l->step_rel_error / l->bound_steps) : INFINITY;
}

static void enter(struct verify *v, const struct verify *u, double most)
{
    for (int i = 0; i < u->n; i++) {
        const struct verify_layout *from = &u->layout[i];
        struct verify_layout *to = layout_of(v, from);
        bool steps = from->step_rel_error / from->bound_steps > from->max_rel_error / from->bound,
             leans = from->lean > 1;
        CHECK(to, "%s ran unrounded only", from->layout);
        to->unrounded_rel_error = larger(from->max_rel_error, from->step_rel_error);
        to->unrounded_over = over(from);
        to->unrounded_ok = to->unrounded_over <= most && from->lean <= 1;
        snprintf(to->unrounded_where, sizeof to->unrounded_where, "%s",
                 !from->complete ? from->tensor
                 : leans         ? from->lean_tensor
                 : steps         ? from->step_tensor
                                 : from->tensor);
        to->ok &= to->unrounded_ok;
        v->ok &= to->unrounded_ok;
    }
}

int unrounded_run(struct verify *v, const struct verify_asked *q, struct err *e)
{
    struct verify u = {0};
    struct verify_asked a = *q;
    struct config one = unrounded_of(q->config), own;
    struct err why = {0};
    if (q->own) own = unrounded_of(q->own);
    a.config = &one;
    a.own = q->own && unrounded_is_wanted(q->own) ? &own : NULL;
    a.trains = NULL;
    a.rounded = q->config;
    int rc = verify_all(&u, &a, &why);
    if (!rc) enter(v, &u, still_rounds(&one) ? 3 : 1);
    if (rc == ERR_REQUEST) snprintf(v->rounded_only, sizeof v->rounded_only, "%.399s", why.text);
    verify_free(&u);
    return !rc || rc == ERR_REQUEST ? OK : err_set(e, rc, "%s", why.text);
}
