/* SPDX-License-Identifier: Apache-2.0 */
/* sums_body.h: sums of gradients, included by the flat_<isa>.c files. Plain loops that compilers vectorise: memory sets
 * their pace.
 *
 * The tree of a few parts is walked per block of elements with a binary counter, in a stack of partial blocks that
 * stays in the first cache. Exact squares: each thread adds into 64-bit bins, four banks of them so that neighbours
 * with one exponent do not wait for each other's store; before a bin can overflow (2^16 squares below 2^48) the banks
 * are emptied into words of 32 bits. Cost of these: about 1 ns per element and core, where the plain sum of squares
 * runs at memory speed. Rejected: one long fixed-point number (three adds and a carry per element), and pre-rounding in
 * two passes (an all-reduce more). */
#ifndef TUTTI_KERNEL_CPU_VEC_SUMS_BODY_H
#define TUTTI_KERNEL_CPU_VEC_SUMS_BODY_H

#include <string.h>

#include "base/mem.h"
#include "kernel/flat_ops.h"
#include "kernel/kernel.h"

/* ---- into ---- */
struct sums_into {
    void *to;
    const void *from;
    enum dtype t, f;
    int64_t n;
    bool add;
};

static void sums_into_bf16(const struct sums_into *a, int64_t lo, int64_t hi)
{
    bf16 *to = a->to;
    const float *wide = a->from;
    const bf16 *narrow = a->from;
    if (a->f == DT_F32 && !a->add)
        for (int64_t i = lo; i < hi; i++) to[i] = bf16_from_f32(wide[i]);
    else if (a->f == DT_F32)
        for (int64_t i = lo; i < hi; i++) to[i] = bf16_from_f32(bf16_to_f32(to[i]) + wide[i]);
    else
        for (int64_t i = lo; i < hi; i++) to[i] = bf16_from_f32(bf16_to_f32(to[i]) + bf16_to_f32(narrow[i]));
}

static void sums_into_member(void *arg, int member, int members)
{
    const struct sums_into *a = arg;
    size_t width = dtype_bytes(a->t);
    int64_t lo, hi;
    team_split(a->n, member, members, &lo, &hi);
    if (a->t == a->f && !a->add) {
        if (lo < hi)
            memcpy((char *)a->to + (size_t)lo * width, (const char *)a->from + (size_t)lo * width,
                   (size_t)(hi - lo) * width);
    } else if (a->t == DT_F32) {
        float *to = a->to;
        const float *from = a->from;
        for (int64_t i = lo; i < hi; i++) to[i] += from[i];
    } else {
        sums_into_bf16(a, lo, hi);
    }
}

static void sum_into_vec(struct team *team, void *to, enum dtype t, const void *from, enum dtype f, int64_t n, bool add)
{
    flat_sum_check(t, f);
    struct sums_into a = {to, from, t, f, n, add};
    if (n) team_run(team, sums_into_member, &a);
}

/* ---- tree ---- */
enum { SUMS_BLOCK = 1024 };
struct sums_tree {
    float *to;
    const float *part;
    int n_parts;
    int64_t n;
};

static void sums_tree_member(void *arg, int member, int members)
{
    const struct sums_tree *t = arg;
    float level[FLAT_TREE_DEPTH][SUMS_BLOCK];
    int64_t lo, hi;
    team_split(t->n, member, members, &lo, &hi);
    for (int64_t a = lo; a < hi; a += SUMS_BLOCK) {
        int64_t m = hi - a < SUMS_BLOCK ? hi - a : SUMS_BLOCK;
        for (int p = 0; p < t->n_parts; p++) { /* level k waits for the sibling subtree of 2^k parts */
            float sum[SUMS_BLOCK];
            memcpy(sum, t->part + p * t->n + a, (size_t)m * sizeof *sum);
            int k = 0;
            for (; p >> k & 1; k++)
                for (int64_t i = 0; i < m; i++) sum[i] = level[k][i] + sum[i];
            memcpy(p + 1 < t->n_parts ? level[k] : t->to + a, sum, (size_t)m * sizeof *sum);
        }
    }
}

static void sum_tree_vec(struct team *team, float *to, const float *part, int n_parts, int64_t n)
{
    flat_tree_check(n_parts);
    struct sums_tree t = {to, part, n_parts, n};
    if (n) team_run(team, sums_tree_member, &t);
}

/* ---- parts, one after the other ---- */
struct sums_parts {
    void *to;
    const void *part;
    enum dtype t;
    int n_parts;
    int64_t n;
};

static float sums_get(const void *p, int64_t i, enum dtype t)
{
    if (t == DT_F32) return ((const float *)p)[i];
    return t == DT_BF16 ? bf16_to_f32(((const bf16 *)p)[i]) : f16_to_f32(((const uint16_t *)p)[i]);
}

static void sums_put(void *p, int64_t i, enum dtype t, float v)
{
    if (t == DT_F32) ((float *)p)[i] = v;
    else if (t == DT_BF16) ((bf16 *)p)[i] = bf16_from_f32(v);
    else ((uint16_t *)p)[i] = f16_from_f32(v);
}

static void sums_parts_member(void *arg, int member, int members)
{
    const struct sums_parts *x = arg;
    int64_t lo, hi;
    team_split(x->n, member, members, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        float sum = sums_get(x->part, i, x->t);
        for (int p = 1; p < x->n_parts; p++) sum += sums_get(x->part, p * x->n + i, x->t);
        sums_put(x->to, i, x->t, sum);
    }
}

static void sum_parts_vec(struct team *team, void *to, enum dtype t, const void *part, int n_parts, int64_t n)
{
    struct sums_parts x = {to, part, t, n_parts, n};
    if (n) team_run(team, sums_parts_member, &x);
}

/* ---- exact squares ---- */
enum { SUMS_BANKS = 4, SUMS_BURST = 1 << 16 };
struct sums_squares {
    const float *x;
    int64_t n, *word; /* [members][FLAT_SQUARES_WORDS] */
};

static void sums_burst(const float *x, int64_t n, int64_t *word)
{
    uint64_t bin[SUMS_BANKS][FLAT_SQUARES_BINS];
    memset(bin, 0, sizeof bin);
    for (int64_t i = 0; i < n; i++) {
        uint64_t m;
        uint32_t e = flat_square(x[i], &m);
        bin[i % SUMS_BANKS][e] += m;
    }
    for (int b = 0; b < SUMS_BANKS; b++)
        for (int e = 0; e < FLAT_SQUARES_BINS; e++) {
            word[2 * e] += (int64_t)(bin[b][e] & 0xffffffff);
            word[2 * e + 1] += (int64_t)(bin[b][e] >> 32);
        }
}

static void sums_squares_member(void *arg, int member, int members)
{
    const struct sums_squares *a = arg;
    int64_t lo, hi;
    team_split(a->n, member, members, &lo, &hi);
    for (int64_t i = lo; i < hi; i += SUMS_BURST)
        sums_burst(a->x + i, hi - i < SUMS_BURST ? hi - i : SUMS_BURST, a->word + (int64_t)member * FLAT_SQUARES_WORDS);
}

static void squares_vec(struct team *team, const float *x, int64_t n, int64_t word[FLAT_SQUARES_WORDS])
{
    int members = team_size(team);
    struct sums_squares a = {x, n, xcalloc((size_t)members * FLAT_SQUARES_WORDS, sizeof *a.word)};
    team_run(team, sums_squares_member, &a);
    for (int i = 0; i < members * FLAT_SQUARES_WORDS; i++) word[i % FLAT_SQUARES_WORDS] += a.word[i];
    xfree(a.word);
}

#endif
