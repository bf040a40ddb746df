/* SPDX-License-Identifier: Apache-2.0 */
/* case.h: one call of a kernel row and its tensors, each in memory of its own with a pattern in its gaps, drawn from
 * the case's seed in the order of the calls below. */
#ifndef TUTTI_TESTS_KERNEL_CASES_CASE_H
#define TUTTI_TESTS_KERNEL_CASES_CASE_H

#include <stdio.h>

#include "base/mem.h"
#include "kernel/cases/numbers.h"

enum { KCASE_BLOCKS = 96, KCASE_GUARD = 64 };

struct kcase {
    enum op op;
    enum dtype dtype;
    uint64_t seed, drawn;
    bool large; /* every sixth case: beyond the blocks of blocked kernels */
    struct op_attrs at;
    struct step_info step;
    int n_in, n_out;
    struct view in[KERNEL_MAX_IN], out[KERNEL_MAX_OUT];
    struct view dout[KERNEL_MAX_OUT], din[KERNEL_MAX_IN], acc[KERNEL_MAX_IN];
    void *block[KCASE_BLOCKS];
    int n_blocks;
};

static const enum dtype kcase_dtypes[] = {DT_F32, DT_BF16, DT_F16};

/* An integer in [lo, hi], the next of the case's own sequence. */
static inline int64_t kcase_int(struct kcase *k, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(rng_u64(k->seed, rng_stream("kcase/int"), k->drawn++) % (uint64_t)(hi - lo + 1));
}

/* Memory of a view whose shape is set: a fresh block, an odd offset, the pattern in every gap. */
static inline void kcase_memory(struct kcase *k, struct view *v)
{
    size_t each = dtype_bytes(v->dtype), offset = each * (size_t)kcase_int(k, 0, 3);
    size_t span = view_rows(v) ? (size_t)((view_rows(v) - 1) * v->stride + view_cols(v)) : 0;
    assert_true(k->n_blocks < KCASE_BLOCKS);
    char *p = xmalloc(offset + span * each + 1);
    memset(p, 0xa5, offset + span * each);
    k->block[k->n_blocks++] = p;
    v->p = p + offset;
}

/* A tensor with n0 rows (0 dims: n1 = 0 makes a vector of n0), sometimes strided. */
static inline struct view kcase_tensor(struct kcase *k, enum dtype t, int64_t n0, int64_t n1)
{
    struct view v = {.dtype = t, .nd = n1 ? 2 : 1, .n = {n0, n1}};
    v.stride = view_cols(&v) + (n1 && kcase_int(k, 0, 2) ? kcase_int(k, 1, 9) : 0);
    kcase_memory(k, &v);
    return v;
}

static inline struct view kcase_floats(struct kcase *k, int64_t n0, int64_t n1, double scale)
{
    struct view v = kcase_tensor(k, k->dtype, n0, n1);
    view_fill(&v, k->seed, rng_stream("kcase/float") + k->drawn++, scale);
    return v;
}

static inline struct view kcase_ints(struct kcase *k, int64_t n, int64_t lo, int64_t hi)
{
    struct view v = kcase_tensor(k, DT_I32, n, 0);
    for (int64_t i = 0; i < n; i++) view_set(&v, 0, i, (double)kcase_int(k, lo, hi));
    return v;
}

/* The same values in memory of their own. */
static inline struct view kcase_clone(struct kcase *k, const struct view *v)
{
    struct view w = *v;
    kcase_memory(k, &w);
    view_copy(&w, v);
    return w;
}

static inline void kcase_free(struct kcase *k)
{
    for (int i = 0; i < k->n_blocks; i++) xfree(k->block[i]);
    memset(k, 0, sizeof *k);
}

static inline void kcase_check_gaps(const struct kcase *k)
{
    for (int i = 0; i < k->n_out; i++) view_check_gap(&k->out[i], op_row(k->op)->name);
    for (int i = 0; i < k->n_in; i++) view_check_gap(&k->din[i], op_row(k->op)->name);
    for (int i = 0; i < k->n_in; i++) view_check_gap(&k->in[i], op_row(k->op)->name);
}

static inline char *kcase_text(char out[200], const struct kcase *k)
{
    int n =
        snprintf(out, 200, "%s %s seed %llu:", op_row(k->op)->name, dtype_name(k->dtype), (unsigned long long)k->seed);
    for (int i = 0; i < k->n_in; i++)
        n += snprintf(out + n, (size_t)(200 - n), " [%lld%s%.0lld]", (long long)k->in[i].n[0],
                      k->in[i].nd > 1 ? "," : "", (long long)(k->in[i].nd > 1 ? k->in[i].n[1] : 0));
    return out;
}

static inline void kcase_tokens(struct kcase *k, int64_t *t, int64_t *d)
{
    *t = k->large ? kcase_int(k, 34, 140) : kcase_int(k, 1, 33);
    *d = k->large ? kcase_int(k, 76, 400) : kcase_int(k, 1, 75);
}

#endif
