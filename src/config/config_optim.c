/* SPDX-License-Identifier: Apache-2.0 */
/* config_optim.c: what an optimizer can do is its own to say (optim/rows.c); a learning rate that nobody asked for is
 * by what is trained, its end is not above its peak, and a warm-up that nobody asked for not longer than the run. */
#include "config/config_optim.h"

#include <stdio.h>
#include <string.h>

#include "config/config_blocks.h"

static bool by_policy(const struct config *c) { return c->train.objective == OBJECTIVE_GRPO; }
static bool by_preference(const struct config *c) { return c->train.objective == OBJECTIVE_DPO; }
static bool goes_on(const struct config *c) { return c->from.dir != NULL; }
static bool from_nothing(const struct config *c) { return !c->from.dir; }

static int check_blocks(const struct config *c, const struct conf *f, struct err *e)
{
    struct err why = {0};
    return config_check_blocks(c, &why) ? conf_error(f, e, "optimizer.block", "%s", why.text) : OK;
}

int config_check_optim(const struct config *c, const struct conf *f, struct err *e)
{
    struct optim_config o = config_optim(c);
    char path[64];
    const char *key, *bad = optim_check(&o, &key);
    for (int g = 0; g < PARAM_GROUPS; g++)
        if (g != PARAM_MATRICES && optim_of(&o, (enum param_group)g)->whole)
            return conf_error(f, e, g == PARAM_EMBEDDINGS ? "optimizer.embeddings.name" : "optimizer.vectors.name",
                              "%s steps the matrices of layers only; choose adamw",
                              optim_of(&o, (enum param_group)g)->name);
    if (!bad) return check_blocks(c, f, e);
    snprintf(path, sizeof path, "optimizer.%s", key);
    return conf_error(f, e, path, "%s", bad);
}

/* What an optimizer's peak is where nobody says: by what is trained, as it is usual elsewhere for AdamW. */
static const struct usual {
    bool (*is)(const struct config *c);
    double lr, with_adapters;
    const char *what;
} usual[] = {
    {by_policy, 1e-6, 1e-5, "train.objective: grpo"},
    {by_preference, 1e-6, 1e-5, "train.objective: dpo"},
    {goes_on, 2e-5, 2e-4, "weights that were trained before (model.from)"},
    {from_nothing, 3e-4, 2e-4, "weights that are trained from nothing"},
};

static const struct usual *usual_of(const struct config *c)
{
    const struct usual *u = usual;
    while (!u->is(c)) u++;
    return u;
}

const char *config_lr_usual(const struct config *c, const struct conf *f, char out[128])
{
    bool given = strcmp(conf_where(f, "optimizer.lr"), "default") != 0;
    if (given) return NULL;
    snprintf(out, 128, "%g, the default for %s%s; optimizer.lr names another", c->optimizer.lr,
             c->adapter.kind ? "adapters and " : "", usual_of(c)->what);
    return out;
}

/* Where the schedule ends: not above its peak, and a tenth of a peak that is lower than usual. */
static int resolve_end(struct config *c, const struct conf *f, struct err *e)
{
    if (c->optimizer.schedule == LR_CONSTANT) return OK; /* it has no end */
    if (!strcmp(conf_where(f, "optimizer.schedule.min_lr"), "default")) {
        if (c->optimizer.min_lr > c->optimizer.lr / 10) c->optimizer.min_lr = c->optimizer.lr / 10;
    } else if (c->optimizer.min_lr > c->optimizer.lr) {
        return conf_error(f, e, "optimizer.schedule.min_lr", "%g is above optimizer.lr; choose at most %g",
                          c->optimizer.min_lr, c->optimizer.lr);
    }
    return OK;
}

int config_resolve_lr(struct config *c, const struct conf *f, struct err *e)
{
    const struct usual *u = usual_of(c);
    if (!strcmp(conf_where(f, "optimizer.lr"), "default")) c->optimizer.lr = c->adapter.kind ? u->with_adapters : u->lr;
    int rc = resolve_end(c, f, e);
    if (!rc && c->optimizer.warmup_steps > c->run.steps &&
        !strcmp(conf_where(f, "optimizer.schedule.warmup_steps"), "default"))
        c->optimizer.warmup_steps = c->run.steps / 10;
    return rc;
}

/* Choices are optimizer.name's after "same". Where that steps whole matrices only, the same is AdamW. */
static struct optim_group group_of(const struct config *c, const struct config_group *g)
{
    bool whole = optim_rows[c->optimizer.name].whole;
    return (struct optim_group){.own = g->name > 0 || whole,
                                .kind = g->name > 0 ? (enum optim_kind)(g->name - 1) : OPTIM_ADAMW,
                                .scaled = g->lr_factor != 1,
                                .lr_factor = g->lr_factor};
}

struct optim_config config_optim(const struct config *c)
{
    return (struct optim_config){
        .kind = (enum optim_kind)c->optimizer.name,
        .group = {[PARAM_EMBEDDINGS] = group_of(c, &c->optimizer.embeddings),
                  [PARAM_VECTORS] = group_of(c, &c->optimizer.vectors)},
        .beta1 = c->optimizer.betas[0],
        .beta2 = c->optimizer.betas[1],
        .eps = c->optimizer.eps,
        .weight_decay = c->optimizer.weight_decay,
        .momentum = c->optimizer.momentum,
        .nesterov = c->optimizer.nesterov,
        .ema = c->optimizer.ema,
        .nearest = c->precision.round == ROUND_NEAREST,
        .seed = (uint64_t)c->run.seed,
        .moments = (enum optim_moments)c->optimizer.moments,
        .block = c->optimizer.block,
        .muon_momentum = c->optimizer.muon.momentum,
        .muon_nesterov = c->optimizer.muon.nesterov,
        .clip = c->optimizer.clip,
        .decay_rate = c->optimizer.adafactor.decay_rate,
        .update_clip = c->optimizer.adafactor.clip,
        .relative = c->optimizer.adafactor.relative,
    };
}

struct lr_config config_lr(const struct config *c)
{
    return (struct lr_config){
        .kind = (enum lr_kind)c->optimizer.schedule,
        .lr = c->optimizer.lr,
        .min_lr = c->optimizer.min_lr,
        .warmup_steps = c->optimizer.warmup_steps,
        .decay_steps = c->optimizer.decay_steps,
        .steps = c->run.steps,
    };
}
