/* SPDX-License-Identifier: Apache-2.0 */
/* A bound is what the layout's roundings explain and no more: each is a sentence about one source of them. */
#include "verify/bounds.h"

#include <math.h>

#include "config/config_codec.h"
#include "config/config_optim.h"
#include "config/config_recipe.h"
#include "engine/engine.h"

/* Newton-Schulz in bf16 multiplies what is small beside the largest singular value by up to 3.44^5 = 485: an element of
 * a matrix of low rank that was rounded the other way, 2^-9 of it, comes out as a part of a whole update. With equal
 * gradients the layouts' bits are equal (tests/engine/test_updates.c). */
static bool orthogonalises(const struct config *c)
{
    struct optim_config o = config_optim(c);
    return optim_of(&o, PARAM_MATRICES)->whole;
}

/* Scales are those of one rank, to the bit where what they follow from is (tests/engine/test_same_scales.c). Over tp
 * and cp sums are rounded to bf16 in another order, 2^-9 of a number, and what lies that near to the middle between two
 * codes becomes the other one: in E5M2 one of 64, in E2M1 one of 128 in each product that follows, for half a number
 * and less. Ranks of ep share out whole parts of tensors, and add up nothing. */
static bool recipe_sums(const struct config *c) { return c->parallel.tp > 1 || c->parallel.cp > 1; }

/* And where ranks cut the batch into other microbatches than one rank does, scales are of other tokens. */
static bool other_microbatches(const struct config *c)
{
    int64_t first, n;
    bool other = false;
    for (int i = 0; i < config_dp(c); i++) {
        config_part(c, i, &first, &n);
        other |= n && first % c->batch.micro;
    }
    return other;
}

/* A norm behind a layer (OLMo 2, Gemma 2 and 3) divides by how large the layer's output is, so what was rounded there
 * is not small beside the stream. Measured over one to sixteen layers, a gradient's error grows by half of the first
 * layer's with each (tests/verify/test_grid.c has four). */
static double behind(const struct config *c)
{
    bool norms = c->model.family == MODEL_OLMO2 || c->model.family == MODEL_GEMMA2 || c->model.family == MODEL_GEMMA3;
    return norms ? (1 + (double)c->model.layers) / 2 : 1;
}

/* Where scales follow from earlier steps the gradient of the second step is compared (trial.c): of weights that went
 * a step by gradients that had travelled encoded, or been summed in bf16, some of which round to other codes. Measured
 * over dp of 2 and 4, two families, 1 and 4 layers, 8 and 32 sequences of 16 and 64: 3e-2 to 8e-2 with gradients in
 * bf16, either way, where they are 3e-3 with scales of the same step. */
static bool after_a_step(const struct config *c)
{
    const struct recipe_config recipe = config_recipe(c);
    bool rounded = config_comm_grad(c) != CODEC_KEPT || c->precision.grad == GRAD_BF16;
    return recipes_history(&recipe) && rounded && config_dp(c) * c->parallel.cp > 1;
}

/* others: codes of weights or tokens that one rank has otherwise. */
static double of_recipes(const struct config *c)
{
    const struct recipe_choice *x = c->precision.layers.items;
    bool four = c->precision.recipe == RECIPE_NVFP4;
    for (int i = 0; i < c->precision.layers.n; i++) four |= x[i].recipe == RECIPE_NVFP4;
    bool others = recipe_sums(c) || other_microbatches(c) || config_comm_param(c) != CODEC_KEPT || after_a_step(c);
    return others ? (four ? 3e-1 : 1.5e-1) : 2e-3;
}

/* What travels encoded is off by up to a half step, and a tensor by less than that in the mean of its elements: at most
 * 2^-4 of an element in E4M3, 2^-3 in E5M2, 1/127 of a block's largest in int8. Terms of ranks that nearly cancel leave
 * more of it, the sum goes through once more, and gradients of weights that were rounded are another function's. */
static double of_codec(const struct config *c)
{
    static const double of[CODEC_N] =
        {[CODEC_BF16] = 1e-2, [CODEC_FP8] = 0.1, [CODEC_FP8_E5M2] = 0.2, [CODEC_INT8] = 5e-2};
    double grad = of[config_comm_grad(c)], param = of[config_comm_param(c)] * behind(c);
    return config_dp(c) * c->parallel.cp * c->parallel.tp > 1 ? grad + param : 0;
}

/* In fp32 only the order of sums differs. In bf16 too where ranks share out whole sequences, but partial products that
 * are summed over a model axis are rounded to 8 bits before the sum, which one rank does not do (fp16: to 11); so are
 * the ranks' parts of bf16 gradients. */
static double of_sums(const struct config *c)
{
    double recipe = config_quantises(c) ? of_recipes(c) : 0;
    bool sums = c->parallel.tp > 1 || c->parallel.cp > 1 || c->parallel.ep > 1;
    if (recipe > 0) return fmax(c->precision.grad == GRAD_BF16 ? 2e-2 : 0, recipe * behind(c));
    if (c->precision.recipe == RECIPE_FP32) return c->precision.grad == GRAD_BF16 ? 2e-2 : 1e-5;
    if (c->precision.grad == GRAD_BF16) return sums ? 2e-2 * behind(c) : 2e-2;
    if (c->precision.recipe == RECIPE_FP16) return sums ? 5e-3 * behind(c) : 1e-3;
    return sums ? 2e-2 * behind(c) : 1e-3;
}

/* A step is a quotient: where a gradient is small beside what Adam divides by, which is a tenth of the mean gradient at
 * least (verify.h), ten times the gradient's error is in it. */
enum { STEP_TIMES = 10 };

/* Of a sign nothing is left but which it is: with a gradient that is off by a part r of its size, about r of its
 * elements change theirs, and each is then off by two steps: 2 sqrt(r) of a whole update. */
static bool takes_signs(const struct config *c)
{
    struct optim_config o = config_optim(c);
    return optim_steps(&o, OPTIM_LION);
}

/* Adafactor divides each number of a vector by the root of its own squares, and has no eps that what is rounding would
 * drown in: about a part r of the numbers are within a gradient's error of nothing, and step another way. */
static bool divides_by_itself(const struct config *c)
{
    struct optim_config o = config_optim(c);
    return optim_steps(&o, OPTIM_ADAFACTOR);
}

/* Moments kept in fewer bits than 32: with a gradient that is off by a part r, about 2 r / d of the elements lie so
 * near to the middle between two codes, which are a part d apart, that theirs is the other one, and each of those is
 * then off by d: the square root of 2 r d in all. */
static double of_moments(const struct config *c, double r)
{
    static const double apart[] =
        {[MOMENTS_BF16] = 0x1p-8, [MOMENTS_FP8] = 0x1p-3, [MOMENTS_8BIT] = 0x1p-3}; /* MOMENTS_FP32: none */
    struct optim_config o = config_optim(c);
    return optim_reads(&o, "moments") ? sqrt(2 * r * apart[c->optimizer.moments]) : 0;
}

/* On the wire each number is rounded by itself. What is rounded within a product, weights among it, is a token's: a
 * gradient's numbers are all sums over the same tokens, and as many of them as there are err apart. Tokens of a pair of
 * answers (DPO, rewards) do not: one number weighs them all, and is off for all of them; four of those count as one
 * (measured over 758 rows of tests/verify/test_triples.c). */
static double chances_of(const struct config *c)
{
    bool inside = of_sums(c) > 1e-3 || config_comm_param(c) != CODEC_KEPT;
    bool pairs = c->train.objective == OBJECTIVE_DPO || c->train.objective == OBJECTIVE_REWARD;
    double tokens = (double)(c->batch.global * c->model.seq_len);
    return inside ? (pairs ? tokens / 4 : tokens) : INFINITY;
}

struct bounds bounds_of(const struct config *c)
{
    double sums = of_sums(c), codec = of_codec(c), value = orthogonalises(c) ? fmax(5e-2, sums) : sums;
    struct bounds b = {.gradient = sums + codec,
                       .value = value + codec,
                       .totals = value + codec,
                       .chances = chances_of(c)};
    bool rounded = b.gradient > 1e-5;
    /* Of losses and norms, to which all elements add up: codes that are others by chance are too large as often as too
     * small. */
    if (config_quantises(c)) b.totals = fmin(b.totals, (behind(c) > 1 ? 0.3 * sums : 1e-2) + codec);
    b.step = fmin(0.5, STEP_TIMES * (sums + codec));
    double narrow = fmax(of_moments(c, b.gradient), divides_by_itself(c) ? sqrt(b.gradient) : 0);
    b.step = fmax(b.step, fmin(0.5, narrow));
    b.value = fmax(b.value, fmin(0.5, narrow)); /* of what began at 0 a value is its steps */
    /* Of a matrix of low rank what is rounding beside its largest singular value becomes a whole update too; two that
     * have nothing in common are the root of two apart. */
    if (orthogonalises(c)) b.step = fmax(b.step, config_quantises(c) || codec > 0 ? M_SQRT2 : rounded ? 0.5 : 0.1);
    if (takes_signs(c) && rounded) {
        b.step = fmax(b.step, 2 * sqrt(b.gradient));
        b.value = fmax(b.value, b.step); /* of what began at 0 a value is its steps */
    }
    return b;
}

struct bounds bounds_of_loops(const struct config *c)
{
    bool plain = c->precision.recipe == RECIPE_FP32 && c->precision.grad == GRAD_FP32;
    double sums = config_quantises(c) ? 2e-1 : plain ? 1e-5 : 2e-2, value = orthogonalises(c) ? fmax(5e-2, sums) : sums;
    return (struct bounds){.gradient = sums,
                           .value = value,
                           .totals = value,
                           .chances = (double)(c->batch.global * c->model.seq_len),
                           .step = fmax(fmin(0.5, STEP_TIMES * sums), orthogonalises(c) ? 0.1 : 0)};
}

struct bounds bounds_most(struct bounds a, struct bounds b)
{
    return (struct bounds){.gradient = fmax(a.gradient, b.gradient),
                           .value = fmax(a.value, b.value),
                           .step = fmax(a.step, b.step),
                           .totals = fmax(a.totals, b.totals),
                           .chances = fmin(a.chances, b.chances)};
}
