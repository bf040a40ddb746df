/* SPDX-License-Identifier: Apache-2.0 */
/* The table of optimizers. AdamW: Loshchilov & Hutter, "Decoupled Weight Decay Regularization", Algorithm 2. SGD: with
 * momentum, and Nesterov's, as the field writes it (the decay is part of the gradient). Lion: Chen et al. 2023,
 * "Symbolic Discovery of Optimization Algorithms", Algorithm 2. */
#include <math.h>
#include <string.h>

#include "optim/optim.h"
#include "state/own.h"
#include "state/param_group.h"

/* Most optimizers have one array. */
static int first_moments(const struct optim_config *c, enum param_group group, struct optim_array out[OPTIM_MAX_ARRAYS])
{
    (void)c, (void)group;
    out[0] = (struct optim_array){"m", "first moments", DT_F32, 0, false};
    return 1;
}

/* ---- adamw ---- */
static int adamw_arrays(const struct optim_config *c, enum param_group group, struct optim_array out[OPTIM_MAX_ARRAYS])
{
    bool fp8 = c->moments == MOMENTS_FP8;
    if (optim_blocks(c, group)) {
        out[0] = (struct optim_array){fp8 ? "m_fp8" : "m_8bit", "first moments", DT_U8, 0, false};
        out[1] = (struct optim_array){fp8 ? "v_fp16" : "v_8bit", "second moments", fp8 ? DT_F16 : DT_U8, 0, false};
        out[2] = (struct optim_array){"m_scale", "scales of first moments", DT_F32, c->block, false};
        out[3] = (struct optim_array){"v_scale", "scales of second moments", DT_F32, c->block, false};
        return 4;
    }
    out[0] = (struct optim_array){"m", "first moments", c->moments == MOMENTS_BF16 ? DT_BF16 : DT_F32, 0, false};
    out[1] = (struct optim_array){"v", "second moments", out[0].dtype, 0, false};
    return 2;
}

static const char *adamw_check(const struct optim_config *c, const char **key)
{
    *key = "betas";
    if (c->moments == MOMENTS_BF16 && 1 - c->beta2 < 0x1p-8)
        return "second moments in bf16 (optimizer.moments) stand still: a step brings a moment less than 2^-8 of the "
               "way, and "
               "bf16 has no number so near; choose at most 0.996 for the second, or optimizer.moments: fp32";
    *key = "eps";
    return c->eps > 0 ? NULL
                      : "0 makes adamw divide 0 by 0 where no gradient ever came: embeddings of tokens that were not "
                        "seen yet; choose 1.0e-8";
}

double optim_rate(const struct optim_call *x, enum param_group group)
{
    const struct optim_group *g = &x->c->group[group];
    return g->scaled ? g->lr_factor : 1;
}

static struct update_operand f32(const void *p) { return (struct update_operand){(void *)(uintptr_t)p, DT_F32}; }

static void adamw_step(const struct optim_call *x, const struct optim_stretch *r, const float *grad)
{
    const struct optim_config *c = x->c;
    const float decay = r->decay ? (float)c->weight_decay : 0;
    optim_update(x, r->param,
                 (struct update_args){
                     .kind = UPDATE_ADAMW,
                     .n = r->n,
                     .at = {[ADAMW_MASTER] = f32(r->master),
                            [ADAMW_M] = f32(r->array[0]),
                            [ADAMW_V] = f32(r->array[1]),
                            [ADAMW_GRAD] = f32(grad),
                            [ADAMW_PARAM] = {r->copy, x->s->dtype}},
                     .f = {[ADAMW_BETA1] = (float)c->beta1,
                           [ADAMW_BETA2] = (float)c->beta2,
                           [ADAMW_EPS] = (float)c->eps,
                           [ADAMW_DECAY] = decay},
                     .g = {[BY_RATE] = optim_rate(x, r->group), [BY_BETA1] = c->beta1, [BY_BETA2] = c->beta2},
                 });
}

/* Moments of fewer bits. */
static struct update_args adamw_narrow(const struct optim_call *x, const struct optim_stretch *r, enum update_kind kind)
{
    const struct optim_config *c = x->c;
    return (struct update_args){
        .kind = kind,
        .n = r->n,
        .f = {[ADAMW16_BETA1] = (float)c->beta1,
              [ADAMW16_BETA2] = (float)c->beta2,
              [ADAMW16_EPS] = (float)c->eps,
              [ADAMW16_DECAY] = r->decay ? (float)c->weight_decay : 0},
        .g = {[BY_RATE] = optim_rate(x, r->group), [BY_BETA1] = c->beta1, [BY_BETA2] = c->beta2},
    };
}

static void adamw16_step(const struct optim_call *x, const struct optim_stretch *r, const float *grad)
{
    struct update_args u = adamw_narrow(x, r, UPDATE_ADAMW16);
    u.at[ADAMW16_MASTER] = f32(r->master);
    u.at[ADAMW16_M] = (struct update_operand){r->array[0], DT_BF16};
    u.at[ADAMW16_V] = (struct update_operand){r->array[1], DT_BF16};
    u.at[ADAMW16_GRAD] = f32(grad);
    u.at[ADAMW16_PARAM] = (struct update_operand){r->copy, x->s->dtype};
    optim_update(x, r->param, u);
}

static void adamw8_step(const struct optim_call *x, const struct optim_stretch *r, const float *grad)
{
    bool fp8 = x->c->moments == MOMENTS_FP8;
    struct update_args u = adamw_narrow(x, r, UPDATE_ADAMW8);
    u.at[ADAMW8_MASTER] = f32(r->master);
    u.at[ADAMW8_M] = (struct update_operand){r->array[0], DT_U8};
    u.at[ADAMW8_V] = (struct update_operand){r->array[1], fp8 ? DT_F16 : DT_U8};
    u.at[ADAMW8_M_SCALE] = f32(r->array[2]);
    u.at[ADAMW8_V_SCALE] = f32(r->array[3]);
    u.at[ADAMW8_GRAD] = f32(grad);
    u.at[ADAMW8_PARAM] = (struct update_operand){r->copy, x->s->dtype};
    u.flag = fp8;
    u.blocks = (struct update_blocks){.cols = r->cols, .block = r->block};
    optim_update(x, r->param, u);
}

static void adamw_any_step(const struct optim_call *x, const struct optim_stretch *r, const float *grad)
{
    if (r->block) adamw8_step(x, r, grad);
    else if (x->c->moments == MOMENTS_BF16) adamw16_step(x, r, grad);
    else adamw_step(x, r, grad);
}

/* ---- sgd ---- */
static int sgd_arrays(const struct optim_config *c, enum param_group group, struct optim_array out[OPTIM_MAX_ARRAYS])
{
    return c->momentum != 0 ? first_moments(c, group, out) : 0;
}

static void sgd_step(const struct optim_call *x, const struct optim_stretch *r, const float *grad)
{
    const struct optim_config *c = x->c;
    optim_update(x, r->param,
                 (struct update_args){
                     .kind = UPDATE_SGD,
                     .n = r->n,
                     .at = {[SGD_MASTER] = f32(r->master),
                            [SGD_M] = f32(r->array[0]),
                            [SGD_GRAD] = f32(grad),
                            [SGD_PARAM] = {r->copy, x->s->dtype}},
                     .f = {[SGD_MOMENTUM] = (float)c->momentum, [SGD_DECAY] = r->decay ? (float)c->weight_decay : 0},
                     .g = {[BY_RATE] = optim_rate(x, r->group)},
                     .flag = c->nesterov,
                 });
}

/* ---- lion ---- */
static void lion_step(const struct optim_call *x, const struct optim_stretch *r, const float *grad)
{
    const struct optim_config *c = x->c;
    optim_update(x, r->param,
                 (struct update_args){
                     .kind = UPDATE_LION,
                     .n = r->n,
                     .at = {[LION_MASTER] = f32(r->master),
                            [LION_M] = f32(r->array[0]),
                            [LION_GRAD] = f32(grad),
                            [LION_PARAM] = {r->copy, x->s->dtype}},
                     .f = {[LION_BETA1] = (float)c->beta1,
                           [LION_BETA2] = (float)c->beta2,
                           [LION_DECAY] = (float)c->weight_decay},
                     .g = {[BY_RATE] = optim_rate(x, r->group)},
                     .flag = r->decay,
                 });
}

/* ---- adafactor ---- */
static int adafactor_arrays(const struct optim_config *c, enum param_group group,
                            struct optim_array out[OPTIM_MAX_ARRAYS])
{
    (void)c;
    out[0] = (struct optim_array){"v", "second moments", DT_F32, 0, false};
    if (param_group_is_matrices(group))
        out[0] = (struct optim_array){"factors", "factors of second moments", DT_F32, 0, true};
    return 1;
}

/* ---- the table ---- */
/* clang-format off */
const struct optim_row optim_rows[OPTIM_KINDS] = {
    [OPTIM_ADAMW] = {"adamw", adamw_arrays, {"betas", "eps", NULL}, adamw_check, false, adamw_any_step},
    [OPTIM_SGD] = {"sgd", sgd_arrays, {"momentum", "nesterov", NULL}, NULL, false, sgd_step},
    [OPTIM_LION] = {"lion", first_moments, {"betas", NULL}, NULL, false, lion_step},
    [OPTIM_MUON] = {"muon", first_moments, {"muon.momentum", "muon.nesterov", NULL}, NULL, true, NULL},
    [OPTIM_ADAFACTOR] = {"adafactor", adafactor_arrays, {"adafactor.decay_rate", "adafactor.clip", "adafactor.relative", NULL}, NULL, false, NULL},
};
/* clang-format on */

const struct optim_row *optim_of(const struct optim_config *c, enum param_group group)
{
    return &optim_rows[c->group[group].own ? c->group[group].kind : c->kind];
}

bool optim_steps(const struct optim_config *c, enum optim_kind kind)
{
    bool any = false;
    for (int g = 0; g < PARAM_GROUPS; g++) any |= optim_of(c, (enum param_group)g) == &optim_rows[kind];
    return any;
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

const char *optim_check(const struct optim_config *c, const char **key)
{
    *key = "moments";
    for (int g = 0; c->moments != MOMENTS_FP32 && g < PARAM_GROUPS; g++)
        if (optim_of(c, (enum param_group)g) != &optim_rows[OPTIM_ADAMW])
            return "moments of fewer bits are adamw's, and another optimizer steps some of the parameters; choose "
                   "fp32, or "
                   "adamw for all";
    for (int g = 0; g < PARAM_GROUPS; g++) {
        const struct optim_row *r = optim_of(c, (enum param_group)g);
        const char *bad = r->check ? r->check(c, key) : NULL;
        if (bad) return bad;
    }
    return NULL;
}

int optim_arrays(const struct optim_config *c, struct array_row out[OPTIM_MAX_ROWS])
{
    int n = 0;
    for (int g = 0; g < PARAM_GROUPS; g++) {
        struct optim_array of[OPTIM_MAX_ARRAYS];
        int k = optim_of(c, (enum param_group)g)->arrays(c, (enum param_group)g, of);
        for (int j = 0; j < k; j++) {
            int at = 0;
            while (at < n && strcmp(out[at].name, of[j].name)) at++;
            if (at == n)
                out[n++] = (struct array_row){.name = of[j].name,
                                              .title = of[j].title,
                                              .cat = MEM_OPTIMIZER,
                                              .dtype = of[j].dtype,
                                              .block = of[j].factors ? ARRAY_FACTORS
                                                       : of[j].each  ? ARRAY_ROW_BLOCK
                                                                     : ARRAY_ELEMENT,
                                              .each = of[j].each,
                                              .shared_from = 1,
                                              .saved = true,
                                              .stepped = true};
            CHECK(out[at].dtype == of[j].dtype, "%s is of two types", of[j].name);
            out[at].groups |= 1u << g;
        }
    }
    if (c->ema > 0)
        out[n++] = (struct array_row){.name = "ema",
                                      .title = "averaged weights",
                                      .cat = MEM_OPTIMIZER,
                                      .dtype = DT_F32,
                                      .shared_from = 1,
                                      .saved = true,
                                      .stepped = true,
                                      .averages = true,
                                      .groups = PARAM_ALL_GROUPS};
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
    struct optim_array of[OPTIM_MAX_ARRAYS];
    int n = optim_of(c, group)->arrays(c, group, of);
    int64_t bytes = c->ema > 0 ? 4 : 0;
    for (int j = 0; j < n; j++) bytes += of[j].each || of[j].factors ? 0 : (int64_t)dtype_bytes(of[j].dtype);
    return bytes;
}
