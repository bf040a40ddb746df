/* SPDX-License-Identifier: Apache-2.0 */
/* The model is recorded on paper, as every rank of tp and cp would, and its products asked whether they fit: what is
 * refused here is what the engine would refuse, and what is advised was tried. */
#include "config/config_recipe.h"
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

enum { TELEMETRY_EVERY = 100 }; /* the default */

struct recipe_config config_recipe(const struct config *c)
{
    return (struct recipe_config){.recipe = (enum recipe)c->precision.recipe,
                                  .choice = c->precision.layers.items,
                                  .n_choices = c->precision.layers.n,
                                  .fp32_scales = c->precision.block_scale == 1,
                                  .keep_weights = c->precision.keep_weights,
                                  .history = c->precision.history,
                                  .margin = c->precision.margin,
                                  .look_every = c->parallel.servers ? 0 : c->precision.telemetry,
                                  .fallback = {.after = c->parallel.servers ? 0 : c->precision.fallback.after,
                                               .saturated = c->precision.fallback.saturated,
                                               .error = c->precision.fallback.error}};
}

bool config_quantises(const struct config *c)
{
    const struct recipe_choice *x = c->precision.layers.items;
    bool any = recipe_quantises((enum recipe)c->precision.recipe);
    for (int i = 0; i < c->precision.layers.n; i++) any |= recipe_quantises((enum recipe)x[i].recipe);
    return any;
}

/* The whole model on one rank of the mesh; whether its products can be chosen, and fit. *choice: the pattern that does
 * not, -1: none; *axis as products_fit has it. */
static int try_rank(const struct config *c, const struct par *par, int *choice, enum axis *axis, struct err *e)
{
    struct param_table params = {0};
    struct products all = {0};
    struct recipe_config rule = config_recipe(c);
    struct model_shape shape = {.mode = MODEL_TRAIN,
                                .dtype = config_dtype(c),
                                .batch = c->batch.micro,
                                .seq = c->model.seq_len,
                                .loss_rows = config_loss_rows(c),
                                .experts = {c->moe.buffer, c->moe.buffer_least, config_quantises(c)}};
    struct tape *t = tape_new();
    model_declare(&c->model, par, &params);
    model_record(t, &c->model, &params, par, &shape);
    *axis = AXIS_N;
    int rc = tape_status(t, e);
    if (!rc) rc = products_choose(&all, t, &params, &c->model, &rule, false, choice, e);
    if (!rc) *choice = -1;
    if (!rc) rc = products_fit(&all, t, &params, par, c->model.seq_len, axis, e);
    products_free(&all);
    param_table_free(&params);
    tape_free(t);
    return rc;
}

/* Ranks of tp and cp differ in what they hold; along the other axes they are alike: the first of dp_shard stands for
 * all. */
static int try_layout(const struct config *c, int *choice, enum axis *axis, struct err *e)
{
    int rc = OK, tp = to_int(c->parallel.tp), cp = to_int(c->parallel.cp), etp = to_int(c->parallel.etp),
        ep = to_int(c->parallel.ep), shard = to_int(c->parallel.dp_shard);
    if (etp < 1 || tp % etp) etp = tp; /* nearest_degree asks for others than it was given for */
    if (shard < 1 || shard * cp * tp % (ep * etp)) ep = shard = 1;
    for (int i = 0; !rc && i < tp * cp; i++) {
        struct par par = par_single();
        par.sequence = c->parallel.sequence_parallel && tp > 1;
        par.size[AXIS_TP] = tp;
        par.size[AXIS_ETP] = etp;
        par.size[AXIS_CP] = cp;
        par.size[AXIS_DP_SHARD] = shard;
        par.size[AXIS_EP] = ep;
        par.size[AXIS_EDP] = shard * tp * cp / (ep * etp);
        par.rank[AXIS_TP] = i % tp;
        par.rank[AXIS_ETP] = i % etp;
        par.rank[AXIS_CP] = i / tp;
        par.rank[AXIS_EP] = i / etp % ep;
        par.rank[AXIS_EDP] = i / etp / ep;
        config_context(c, &par);
        rc = try_rank(c, &par, choice, axis, e);
    }
    return rc;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The degree nearest to the one that does not fit. */
static int64_t nearest_degree(const struct config *c, enum axis axis)
{
    struct config with = *c;
    int64_t *size = axis == AXIS_CP ? &with.parallel.cp : &with.parallel.tp, was = *size;
    struct err ignored = {0};
    int choice;
    enum axis other;
    for (int64_t d = was - 1; d > 1; d--) {
        *size = d;
        if (was % d == 0 && !try_layout(&with, &choice, &other, &ignored)) return d;
    }
    return 1;
}

/* The number of ranks that share out experts (AXIS_EP) or cut their columns (AXIS_ETP) nearest to the one that does not
 * fit; 0: none does. */
static int64_t nearest_of_experts(const struct config *c, enum axis of)
{
    struct config with = *c;
    struct err ignored = {0};
    const bool ep = of == AXIS_EP;
    const int64_t tp = c->parallel.tp, all = c->parallel.dp_shard * c->parallel.cp * tp,
                  most = ep ? least(c->model.moe.experts, all) : tp;
    int64_t *size = ep ? &with.parallel.ep : &with.parallel.etp, was = *size;
    int choice;
    enum axis axis;
    for (int64_t by = 1; by < most; by++)
        for (int side = -1; side <= 1; side += 2) {
            *size = was + side * by;
            int64_t met = with.parallel.ep * with.parallel.etp;
            if (*size < 1 || *size > most || (!ep && tp % *size) || all % met) continue;
            if (ep && *size > 1 && met % c->parallel.cp) continue;
            if (!try_layout(&with, &choice, &axis, &ignored)) return *size;
        }
    return 0;
}

/* Whether a recipe with a scale per tensor would fit instead. */
static bool one_scale_fits(const struct config *c)
{
    struct config with = *c;
    struct err ignored = {0};
    int choice;
    enum axis axis;
    with.precision.recipe = RECIPE_FP8_CURRENT;
    with.precision.layers.n = 0;
    return !try_layout(&with, &choice, &axis, &ignored);
}

static int check_choices(const struct config *c, const struct conf *f, struct err *e)
{
    const struct recipe_choice *x = c->precision.layers.items;
    enum dtype dtype = recipe_row((enum recipe)c->precision.recipe)->dtype;
    char path[64];
    for (int i = 0; i < c->precision.layers.n; i++) {
        enum dtype own = recipe_row((enum recipe)x[i].recipe)->dtype;
        snprintf(path, sizeof path, "precision.layers[%d].recipe", i);
        if (own == DT_BF16 && dtype == DT_BF16) continue;
        if (own == dtype && !recipe_quantises((enum recipe)x[i].recipe)) continue;
        const char *model = recipe_row((enum recipe)c->precision.recipe)->name;
        char fit[80];
        snprintf(fit, sizeof fit, "give these layers %s, or choose",
                 dtype == DT_BF16 ? "bf16 or a recipe of fewer bits" : model);
        return conf_error(f, e, path,
                          "%s in some layers of a model in %s: between products all layers have one type, and recipes "
                          "of fewer bits have bf16; %s precision.layers: {}",
                          recipe_row((enum recipe)x[i].recipe)->name, model,
                          own == DT_BF16 ? "choose precision.recipe: bf16, or" : fit);
    }
    return OK;
}

/* Who asks for scales from earlier steps: precision.recipe (-1), or one of precision.layers. */
static int who_has_history(const struct config *c)
{
    int k = c->precision.layers.n - 1;
    const struct recipe_choice *x = c->precision.layers.items;
    if (recipe_row((enum recipe)c->precision.recipe)->history) return -1;
    while (k > 0 && !recipe_row((enum recipe)x[k].recipe)->history) k--;
    return k;
}

static int check_companions(const struct config *c, const struct conf *f, struct err *e)
{
    struct recipe_config rule = config_recipe(c);
    if (recipes_history(&rule) && c->parallel.servers) {
        int who = who_has_history(c);
        char path[64] = "precision.recipe";
        if (who >= 0) snprintf(path, sizeof path, "precision.layers[%d].recipe", who);
        return conf_error(f, e, path,
                          "fp8-delayed has scales from all ranks' earlier steps, and workers of a parameter server "
                          "have no steps in common; %s parallel.servers: 0",
                          who >= 0 ? "give these layers fp8-current, or choose" : "choose fp8-current, or");
    }
    if (c->parallel.servers && c->precision.telemetry && c->precision.telemetry != TELEMETRY_EVERY)
        return conf_error(f, e, "precision.telemetry",
                          "workers of a parameter server do not add up what rounding did; choose 0, or "
                          "parallel.servers: 0");
    if (strcmp(c->parallel.tp_overlap, "auto") && strcmp(c->parallel.tp_overlap, "off"))
        return conf_error(f, e, "parallel.tp_overlap",
                          "products of fewer bits are not cut into pieces, whose scales would be other ones; choose "
                          "off, or %s",
                          c->precision.layers.n ? "precision.recipe: bf16 and precision.layers: {}"
                                                : "precision.recipe: bf16");
    return OK;
}

int config_check_recipe(const struct config *c, struct err *e)
{
    int choice;
    enum axis axis;
    return config_quantises(c) ? try_layout(c, &choice, &axis, e) : OK;
}

int config_resolve_recipe(const struct config *c, const struct conf *f, struct err *e)
{
    char path[64];
    struct err why = {0};
    int choice = -1, rc = check_choices(c, f, e);
    enum axis axis;
    if (rc) return rc;
    if (config_quantises(c)) rc = check_companions(c, f, e);
    if (rc || (!config_quantises(c) && !c->precision.layers.n)) return rc;
    if (!try_layout(c, &choice, &axis, &why)) return OK;
    if (axis == AXIS_ETP) {
        int64_t fits = nearest_of_experts(c, AXIS_ETP);
        return fits
                   ? conf_error(f, e, "parallel.etp", "%s; choose %lld", why.text, (long long)fits)
                   : conf_error(f, e, "parallel.etp", "%s; choose precision.layers: {\"*.experts.*\": bf16}", why.text);
    }
    if (axis == AXIS_EP) return conf_error(f, e, "moe.buffer", "%s; choose 0 (room for all rows at once)", why.text);
    if (axis == AXIS_CP) { /* of experts in blocks: where their rows meet, cp may stay */
        int64_t fits = nearest_of_experts(c, AXIS_EP);
        if (fits) return conf_error(f, e, "parallel.ep", "%s; choose %lld", why.text, (long long)fits);
    }
    if (axis < AXIS_N) {
        int64_t fits = nearest_degree(c, axis);
        bool cp = axis == AXIS_CP;
        return conf_error(f, e, cp ? "parallel.cp" : "parallel.tp", "%s; choose %lld (-n %lld)%s%s", why.text,
                          (long long)fits, (long long)(config_ranks(c) / (cp ? c->parallel.cp : c->parallel.tp) * fits),
                          one_scale_fits(c) ? ", or precision.recipe: fp8-current" : "",
                          one_scale_fits(c) && c->precision.layers.n ? " and precision.layers: {}" : "");
    }
    snprintf(path, sizeof path, choice >= 0 ? "precision.layers[%d].layers" : "precision.recipe", choice);
    return conf_error(f, e, path, "%s", why.text);
}
