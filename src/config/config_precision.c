/* SPDX-License-Identifier: Apache-2.0 */
/* config_precision.c: what each type of numbers needs beside it, and what it cannot have. */
#include "config/config_precision.h"
#include "engine/engine.h"

#include <math.h>

/* Halving and doubling must not round. */
static int check_loss_scale(const struct config *c, const struct conf *f, struct err *e)
{
    int power;
    if (frexp(c->precision.loss_scale.initial, &power) != 0.5)
        return conf_error(f, e, "precision.loss_scale.initial", "%g is no power of two; choose %g",
                          c->precision.loss_scale.initial, ldexp(1, power - 1));
    if (c->precision.loss_scale.least > c->precision.loss_scale.initial)
        return conf_error(f, e, "precision.loss_scale.least", "%g is above precision.loss_scale.initial, %g",
                          c->precision.loss_scale.least, c->precision.loss_scale.initial);
    return OK;
}

static int check_master(const struct config *c, const struct conf *f, struct err *e)
{
    if (c->precision.master == MASTER_FP32 || config_dtype(c) == DT_BF16) return OK;
    return conf_error(f, e, "precision.master",
                      c->precision.recipe == RECIPE_FP32
                          ? "weights in fp32 are their own master; choose fp32, or precision.recipe: bf16"
                          : "weights of fp16 alone overflow and vanish where a loss scale cannot help; choose fp32, or "
                            "precision.recipe: bf16");
}

int config_check_precision(const struct config *c, const struct conf *f, struct err *e)
{
    int rc = check_loss_scale(c, f, e);
    return rc ? rc : check_master(c, f, e);
}

const char *config_accumulate_name(const struct config *c)
{
    static const char *const names[] = {"fp32", "hopper-bf16", "hopper-fp8", "hopper-fp8-promoted", "ampere-bf16"};
    return names[c->numerics.accumulate];
}

/* Tensor cores have no products of fp32, and some none of 8 bits. */
int config_check_accumulate(const struct config *c, const struct conf *f, struct err *e)
{
    const enum config_accumulate way = c->numerics.accumulate;
    if (way == ACCUMULATE_FP32) return OK;
    if (c->precision.recipe == RECIPE_FP32)
        return conf_error(f, e, "numerics.accumulate",
                          "%s is how products of 16 and 8 bits are added up, and precision.recipe is fp32; choose "
                          "fp32, or precision.recipe: bf16",
                          config_accumulate_name(c));
    const bool narrow = recipe_quantises(c->precision.recipe) || c->precision.layers.n > 0;
    if (narrow && (way == ACCUMULATE_HOPPER_BF16 || way == ACCUMULATE_AMPERE_BF16))
        return conf_error(f, e, "numerics.accumulate",
                          "%s says nothing of products of 8 bits, which precision.recipe or precision.layers makes; "
                          "choose hopper-fp8 or hopper-fp8-promoted",
                          config_accumulate_name(c));
    return OK;
}

enum dtype config_dtype(const struct config *c) { return recipe_row((enum recipe)c->precision.recipe)->dtype; }

struct loss_scale_config config_loss_scale(const struct config *c)
{
    if (c->precision.recipe != RECIPE_FP16) return (struct loss_scale_config){0};
    return (struct loss_scale_config){c->precision.loss_scale.initial, c->precision.loss_scale.least,
                                      c->precision.loss_scale.grow_every};
}
