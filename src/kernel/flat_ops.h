/* SPDX-License-Identifier: Apache-2.0 */
/* flat_ops.h: sums, norms, casts and updates of arrays as a family of the CPU has them: loops over memory, and the
 * constants and orders of summation that all of them share. Their rows (flat.h, update.h) come to these by
 * array_slots_body.h.
 *
 * Invariants
 *   1. A sum of squares is formed per block of FLAT_BLOCK elements in FLAT_LANES interleaved fp64 lanes (element i
 *      of the block adds into lane i % FLAT_LANES), folded by flat_fold; block sums are added in order.
 *   2. Exact squares: the square of a float is an integer below 2^48 times a power of 4, so squares are added up per
 *      power of two of the float, in integers, and no partition of the elements changes the result. Word 2e holds the
 *      low 32 bits (and what carried out of them), word 2e + 1 the rest, of the sum over floats with exponent bits e.
 *   3. Every family computes AdamW from these factors with the fused operations that ref/flat.c spells out, so all
 *      families agree to the bit.
 * Includes: flat.h, update.h. Order: Local.
 */
#ifndef TUTTI_KERNEL_FLAT_OPS_H
#define TUTTI_KERNEL_FLAT_OPS_H

#include <math.h>
#include <string.h>

#include "kernel/flat.h"
#include "kernel/update.h"

struct adamw_args { /* all arrays of n elements; param in param_dtype (may be NULL or equal to master) */
    int64_t n;
    float *master, *m, *v;
    const float *grad;
    void *param;
    enum dtype param_dtype;
    float lr, beta1, beta2, eps, weight_decay;
    float grad_scale;   /* clipping and loss-scale factor, multiplies grad */
    float bias1, bias2; /* 1 - beta^t */
};
struct sgd_args {
    int64_t n;
    float *master, *m; /* m NULL when momentum == 0 */
    const float *grad;
    void *param;
    enum dtype param_dtype;
    float lr, momentum, weight_decay, grad_scale;
    bool nesterov;
};
struct flat_ops { /* attrs.h says what each computes */
    const char *name;
    void (*adamw)(struct team *team, const struct adamw_args *a);
    void (*sgd)(struct team *team, const struct sgd_args *a);
    /* Blocks of 4096 elements, block sums added in order; the same for any team. */
    void (*sum_squares)(struct team *team, const float *x, int64_t n, double *sum);
    int64_t (*find_nonfinite)(struct team *team, const void *x, enum dtype dtype, int64_t n);
    void (*cast)(struct team *team, void *dst, enum dtype to, const void *src, enum dtype from, int64_t n);
    /* Elementwise, so neither the split over threads nor the length changes a bit. */
    void (*sum_into)(struct team *team, void *to, enum dtype t, const void *from, enum dtype f, int64_t n, bool add);
    void (*sum_tree)(struct team *team, float *to, const float *part, int n_parts, int64_t n);
    void (*sum_parts)(struct team *team, void *to, enum dtype t, const void *part, int n_parts, int64_t n);
    void (*squares)(struct team *team, const float *x, int64_t n, int64_t word[FLAT_SQUARES_WORDS]);
    void (*update)(struct team *team, const struct update_args *a); /* all but adamw and sgd */
};
extern const struct flat_ops flat_ops_ref, flat_ops_cpu;
void update_ref(struct team *team, const struct update_args *a);

enum { FLAT_TREE_DEPTH = 16 }; /* a tree has fewer parts than 2 to the power of it */

/* What sum_into can do. */
static inline void flat_sum_check(enum dtype t, enum dtype f)
{
    CHECK((t == DT_F32 && f == DT_F32) || (t == DT_BF16 && (f == DT_F32 || f == DT_BF16)), "%s into %s", dtype_name(f),
          dtype_name(t));
}
static inline void flat_tree_check(int n_parts)
{
    CHECK(n_parts > 0 && n_parts < 1 << FLAT_TREE_DEPTH && !(n_parts & (n_parts - 1)), "a tree of %d", n_parts);
}

static inline double flat_fold(double lane[FLAT_LANES])
{
    for (int half = FLAT_LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

/* adamw_step's, and 1 - beta. */
struct adamw_factors {
    float new1, new2;
    float decay, root_scale, step;
};
static inline struct adamw_factors adamw_factors(const struct adamw_args *a)
{
    struct adamw_step s = adamw_step_of(a->lr, a->weight_decay, a->bias1, a->bias2);
    return (struct adamw_factors){
        .new1 = 1.0f - a->beta1,
        .new2 = 1.0f - a->beta2,
        .decay = s.decay,
        .root_scale = s.root_scale,
        .step = s.step,
    };
}

#endif
