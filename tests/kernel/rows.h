/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h: what the tests of every row of every family share: the families, and how near results must be. */
#ifndef TUTTI_TESTS_KERNEL_ROWS_H
#define TUTTI_TESTS_KERNEL_ROWS_H

#include "each_isa.h"
#include "harness.h"
#include "sanitized.h"

enum { CASES = 30 / CASE_STRIDE };

/* The reference knows no instruction sets: it is tested in the first child only. */
static const struct kernel_family *const families[] = {&kernel_family_ref, &kernel_family_cpu, &kernel_family_onednn,
                                                       &kernel_family_cuda};
enum { N_FAMILIES = sizeof families / sizeof *families };
static inline int first_family(void) { return cpu_isa() == ISA_REF ? 0 : 1; }

/* Parts of the largest element. fp32: sums in another order and polynomial exp. bf16: a rounded operand has 8 bits,
 * attention and gradients round intermediate matrices once more. fp32 results of bf16 operands: products are exact,
 * but probabilities and their gradients are bf16 on the way into a matrix product. */
static inline double tolerance(enum dtype of_call, enum dtype of_result)
{
    if (of_call == DT_F32) return 5e-5;
    if (of_call == DT_F16) return 4e-3;
    return of_result == DT_F32 ? 4e-3 : 2e-2;
}

/* The coarsest float type that a call reads or writes activations in (COPY has two). */
static inline enum dtype precision(const struct kcase *k)
{
    enum dtype y = k->out[0].dtype;
    return k->dtype == DT_BF16 || y == DT_BF16 ? DT_BF16 : k->dtype == DT_F16 || y == DT_F16 ? DT_F16 : DT_F32;
}

static inline void near(const struct kcase *k, const struct view *got, const struct view *want, const char *family,
                        const char *what, int i, double factor)
{
    char text[200];
    double d = view_distance(got, want), limit = factor * tolerance(precision(k), got->dtype);
    if (!(d <= limit))
        fail_msg("%s %s, %s %d: differs by %.3g of the largest, %.3g allowed", family, kcase_text(text, k), what, i, d,
                 limit);
}

static inline void same(const struct kcase *k, const struct view *got, const struct view *want, const char *family,
                        const char *what, int i)
{
    char text[200];
    if (!view_same_bits(got, want)) fail_msg("%s %s, %s %d: other bits", family, kcase_text(text, k), what, i);
}

/* Copies of n tensors, so that a second run can be compared. */
static inline void clone_all(struct kcase *k, struct view *to, const struct view *from, int n)
{
    for (int i = 0; i < n; i++)
        if (from[i].p) to[i] = kcase_clone(k, &from[i]);
}

/* An activation's largest element must not drown in cancellation: attention's dk of a key nobody sees is 0. */
static inline bool negligible(const struct view *v) { return view_max(v) < 1e-6; }

/* Saved outputs of the reference, so that backward is compared on equal terms. */
static inline bool forward_ref(struct kcase *k) { return kcase_forward(k, &kernel_family_ref, 1); }

/* What a result must replace: cheaper than random numbers, other than any result. */
static inline void view_spoil(const struct view *v)
{
    int64_t n = view_cols(v);
    for (int64_t r = 0; r < view_rows(v); r++)
        for (int64_t c = 0; c < n; c++) view_set(v, r, c, (double)((r * n + c) * 7 % 31 - 15) * 0.75 + 0.1);
}

#endif
