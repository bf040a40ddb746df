/* SPDX-License-Identifier: Apache-2.0 */
/* The table of optimizers. AdamW: Loshchilov & Hutter, "Decoupled Weight Decay Regularization", Algorithm 2. SGD: with
 * momentum, and Nesterov's, as the field writes it (the decay is part of the gradient). Lion: Chen et al. 2023,
 * "Symbolic Discovery of Optimization Algorithms", Algorithm 2. */
#include <math.h>
#include <string.h>

#include "kernel/flat.h"
#include "kernel/update.h"
#include "optim/optim.h"
#include "state/own.h"

/* ---- adamw ---- */
static int adamw_arrays(const struct optim_config *c)
{
    (void)c;
    return 2;
}

static const char *adamw_check(const struct optim_config *c, const char **key)
{
    *key = "betas";
    if (c->moments16 && 1 - c->beta2 < 0x1p-8)
        return "second moments in bf16 (optimizer.moments) stand still: a step brings a moment less than 2^-8 of the "
               "way, and "
               "bf16 has no number so near; choose at most 0.996 for the second, or optimizer.moments: fp32";
    *key = "eps";
    return c->eps > 0 ? NULL
                      : "0 makes adamw divide 0 by 0 where no gradient ever came: embeddings of tokens that were not "
                        "seen yet; choose 1.0e-8";
}

float optim_rate(const struct optim_call *x, enum param_group group)
{
    const struct optim_group *g = &x->c->group[group];
    return (float)(g->scaled ? x->lr * g->lr_factor : x->lr);
}

static void adamw16_step(const struct optim_call *x, const struct optim_stretch *r, const struct adamw_args *a)
{
    struct adamw_factors f = adamw_factors(a);
    flat_update(x->stream, &(struct update_args){
                               .kind = UPDATE_ADAMW16,
                               .n = a->n,
                               .at = {[ADAMW16_MASTER] = {a->master, DT_F32},
                                      [ADAMW16_M] = {r->array[0], DT_BF16},
                                      [ADAMW16_V] = {r->array[1], DT_BF16},
                                      [ADAMW16_GRAD] = {(void *)(uintptr_t)a->grad, DT_F32},
                                      [ADAMW16_PARAM] = {a->param, a->param_dtype}},
                               .f = {[ADAMW16_BETA1] = a->beta1,
                                     [ADAMW16_BETA2] = a->beta2,
                                     [ADAMW16_EPS] = a->eps,
                                     [ADAMW16_DECAY] = f.decay,
                                     [ADAMW16_ROOT] = f.root_scale,
                                     [ADAMW16_STEP] = f.step,
                                     [ADAMW16_SCALE] = a->grad_scale},
                           });
}

static void adamw_step(const struct optim_call *x, const struct optim_stretch *r, const float *grad)
{
    const struct optim_config *c = x->c;
    const struct adamw_args a = {
        .n = r->n,
        .master = r->master,
        .m = (float *)(void *)r->array[0],
        .v = (float *)(void *)r->array[1],
        .grad = grad,
        .param = r->param,
        .param_dtype = x->s->dtype,
        .lr = optim_rate(x, r->group),
        .beta1 = (float)c->beta1,
        .beta2 = (float)c->beta2,
        .eps = (float)c->eps,
        .weight_decay = r->decay ? (float)c->weight_decay : 0,
        .grad_scale = x->scale,
        .bias1 = (float)(1 - pow(c->beta1, (double)(x->step + 1))),
        .bias2 = (float)(1 - pow(c->beta2, (double)(x->step + 1))),
    };
    if (c->moments16) adamw16_step(x, r, &a);
    else flat_adamw(x->stream, &a);
}

/* ---- sgd ---- */
static int sgd_arrays(const struct optim_config *c) { return c->momentum != 0; }

static void sgd_step(const struct optim_call *x, const struct optim_stretch *r, const float *grad)
{
    const struct optim_config *c = x->c;
    flat_sgd(x->stream, &(struct sgd_args){
                            .n = r->n,
                            .master = r->master,
                            .m = (float *)(void *)r->array[0],
                            .grad = grad,
                            .param = r->param,
                            .param_dtype = x->s->dtype,
                            .lr = optim_rate(x, r->group),
                            .momentum = (float)c->momentum,
                            .weight_decay = r->decay ? (float)c->weight_decay : 0,
                            .grad_scale = x->scale,
                            .nesterov = c->nesterov,
                        });
}

/* ---- lion ---- */
static int lion_arrays(const struct optim_config *c)
{
    (void)c;
    return 1;
}

static void lion_step(const struct optim_call *x, const struct optim_stretch *r, const float *grad)
{
    const struct optim_config *c = x->c;
    float lr = optim_rate(x, r->group);
    flat_update(x->stream, &(struct update_args){
                               .kind = UPDATE_LION,
                               .n = r->n,
                               .at = {[LION_MASTER] = {r->master, DT_F32},
                                      [LION_M] = {r->array[0], DT_F32},
                                      [LION_GRAD] = {(void *)(uintptr_t)grad, DT_F32},
                                      [LION_PARAM] = {r->param, x->s->dtype}},
                               .f = {[LION_LR] = lr,
                                     [LION_BETA1] = (float)c->beta1,
                                     [LION_BETA2] = (float)c->beta2,
                                     [LION_DECAY] = r->decay ? -lr * (float)c->weight_decay : 0,
                                     [LION_SCALE] = x->scale},
                           });
}

/* ---- muon ---- */
static int muon_arrays(const struct optim_config *c)
{
    (void)c;
    return 1;
}

/* ---- the table ---- */
/* clang-format off */
const struct optim_row optim_rows[OPTIM_KINDS] = {
    [OPTIM_ADAMW] = {"adamw", {{"m", "first moments"}, {"v", "second moments"}}, adamw_arrays, {"betas", "eps", NULL}, adamw_check, false, adamw_step},
    [OPTIM_SGD] = {"sgd", {{"m", "first moments"}, {NULL, NULL}}, sgd_arrays, {"momentum", "nesterov", NULL}, NULL, false, sgd_step},
    [OPTIM_LION] = {"lion", {{"m", "first moments"}, {NULL, NULL}}, lion_arrays, {"betas", NULL}, NULL, false, lion_step},
    [OPTIM_MUON] = {"muon", {{"m", "first moments"}, {NULL, NULL}}, muon_arrays, {"muon.momentum", "muon.nesterov", NULL}, NULL, true, NULL},
};
/* clang-format on */

const struct optim_row *optim_of(const struct optim_config *c, enum param_group group)
{
    return &optim_rows[c->group[group].own ? c->group[group].kind : c->kind];
}

static bool names(const struct optim_row *r, const char *key)
{
    for (int i = 0; r->keys[i]; i++)
        if (!strcmp(r->keys[i], key)) return true;
    return false;
}

bool optim_reads(const struct optim_config *c, const char *key)
{
    bool read = false, named = false;
    for (int k = 0; k < OPTIM_KINDS; k++) named |= names(&optim_rows[k], key);
    for (int g = 0; g < PARAM_GROUPS; g++) read |= names(optim_of(c, (enum param_group)g), key);
    return read || !named;
}

enum dtype optim_dtype(const struct optim_config *c) { return c->moments16 ? DT_BF16 : DT_F32; }

const char *optim_check(const struct optim_config *c, const char **key)
{
    *key = "moments";
    for (int g = 0; c->moments16 && g < PARAM_GROUPS; g++)
        if (optim_of(c, (enum param_group)g) != &optim_rows[OPTIM_ADAMW])
            return "bf16 moments are adamw's, and another optimizer steps some of the parameters; choose fp32, or "
                   "adamw for all";
    for (int g = 0; g < PARAM_GROUPS; g++) {
        const struct optim_row *r = optim_of(c, (enum param_group)g);
        const char *bad = r->check ? r->check(c, key) : NULL;
        if (bad) return bad;
    }
    return NULL;
}

int optim_arrays(const struct optim_config *c, struct array_row out[OPTIM_KINDS * OPTIM_MAX_ARRAYS])
{
    int n = 0;
    for (int g = 0; g < PARAM_GROUPS; g++) {
        const struct optim_row *r = optim_of(c, (enum param_group)g);
        for (int j = 0; j < r->n_arrays(c); j++) {
            int at = 0;
            while (at < n && strcmp(out[at].name, r->array[j].name)) at++;
            if (at == n)
                out[n++] = (struct array_row){.name = r->array[j].name,
                                              .title = r->array[j].title,
                                              .cat = MEM_OPTIMIZER,
                                              .dtype = optim_dtype(c),
                                              .shared_from = 1,
                                              .saved = true,
                                              .stepped = true};
            out[at].groups |= 1u << g;
        }
    }
    return n;
}

void optim_own(const struct optim_config *c, struct param_table *t)
{
    unsigned groups = 0;
    for (int g = 0; g < PARAM_GROUPS; g++)
        if (optim_of(c, (enum param_group)g)->whole) groups |= 1u << g;
    own_matrices(t, groups);
}

int64_t optim_bytes(const struct optim_config *c, enum param_group group)
{
    return optim_of(c, group)->n_arrays(c) * (int64_t)dtype_bytes(optim_dtype(c));
}
