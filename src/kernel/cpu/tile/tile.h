/* SPDX-License-Identifier: Apache-2.0 */
/* tile.h: small matrix products on blocks that fit a core's caches, one row of functions per instruction set.
 *
 * A product C_MN (+)= A_MD B_DN ("depth" D is the dimension summed over) runs in two steps: A and B are packed
 * into panels, then C's tiles of mr x nr are computed by a micro-kernel that reads panels only. LINEAR's matmul
 * (gemm.h) and blocked attention use the same pieces.
 *
 *   panels   A is cut into panels of mr rows, B into panels of nr columns ("lanes" in both cases). Lane l of
 *            depth d lies at element ((d / g) * lanes + l) * g + d % g of its panel; g is the panel's group:
 *            1 for f32, 2 for bf16 (pairs, as the dot-product instructions want them), 32 for the left operand
 *            of AMX (a tile is 16 rows of 64 bytes). Missing lanes and depth up to the next multiple of
 *            `step` are zero, so a micro-kernel never looks at an edge of A or B.
 *   sources  f32, bf16 or f16 in either storage order. Panels of bf16 are made from bf16 (exact) or f32
 *            (rounded to nearest even); panels of f32 from anything (exact).
 *
 * Invariants
 *   1. Products are summed in f32, in an order fixed by the depth alone: never by M, N, or the place in a block.
 *   2. Nothing allocates; panels are the caller's, 64-byte aligned. Sources and C need element alignment only.
 * Includes: base, layout/dtype.h, kernel/cpuid.h. Order: Local; any thread.
 */
#ifndef TUTTI_KERNEL_CPU_TILE_TILE_H
#define TUTTI_KERNEL_CPU_TILE_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/cpuid.h"
#include "layout/dtype.h"

enum { TILE_MAX_MR = 32, TILE_MAX_NR = 32 };

/* One operand in memory. "Lane" is a row of A or a column of B. */
struct tile_src {
    const void *p;
    enum dtype dtype;
    int64_t stride;   /* elements between neighbours in the dimension that is not dense */
    bool depth_dense; /* true: (lane l, depth d) at p[l * stride + d]; false: at p[d * stride + l] */
};
/* The same operand, seen from (lane, depth) on. */
static inline struct tile_src tile_at(struct tile_src s, int64_t lane, int64_t depth)
{
    int64_t off = s.depth_dense ? lane * s.stride + depth : depth * s.stride + lane;
    s.p = (const char *)s.p + (size_t)off * dtype_bytes(s.dtype);
    return s;
}

/* Where a finished block goes: c = cast(sum * factor + bias + acc). Views of f32, bf16 or f16; NULL: absent. acc may be
 * c. */
struct tile_out {
    bool scaled;  /* by factor */
    float factor; /* 1 where it is not */
    void *c;
    const void *acc;
    const void *bias; /* one value per column */
    enum dtype c_dtype, acc_dtype, bias_dtype;
    int64_t ldc, ldacc; /* elements from row to row */
};

struct tile_ops {
    const char *name; /* "avx512-bf16" */
    enum isa needs;   /* the least level that can run these functions */
    enum dtype panel; /* element of the panels: DT_F32 or DT_BF16 */
    int mr, nr;       /* tile of C */
    int group_a, group_b, step;
    int64_t mc, kc, nc; /* block sizes for gemm.h: rows of A in L2, depth, columns of B (see gemm.c) */
    int dot_rows;       /* up to so many rows of C `dot` is the faster way, at most TILE_DOT_ROWS */

    /* Packs lanes x depth of s into consecutive panels. */
    void (*pack_a)(void *dst, struct tile_src s, int64_t lanes, int64_t depth);
    void (*pack_b)(void *dst, struct tile_src s, int64_t lanes, int64_t depth);
    /* One tile: c[0..rows) x [0..nr) = or += A panel * B panel; rows in 1..mr, all nr columns are written.
     * depth_pad is a multiple of step, > 0. With `add` the product is summed first, from zero, and added then: the same
     * bits as a product by itself, and one addition. */
    void (*mul)(float *c, int64_t ldc, const void *a, const void *b, int64_t depth_pad, int rows, bool add);
    /* rows x cols of sums at t (row length ldt) to o. */
    void (*finish)(const float *t, int64_t ldt, int rows, int cols, const struct tile_out *o);
    /* sum[i][j] = fma(part[i][j], a[i] * b[j], sum[i][j]), or part * (a * b) where `first`; rows x nr, both of row
     * length nr. Descales of blocks. */
    void (*promote)(float *sum, const float *part, const float *a, const float *b, int rows, bool first);
    /* Products straight from memory, for few rows, reading w once: y_MN (ldy) = x_MD w_ND^T, depth dense in both,
     * both of dtype t (f32 or bf16). m <= TILE_DOT_ROWS. */
    void (*dot)(float *y, int64_t ldy, const void *x, int64_t ldx, const void *w, int64_t ldw, enum dtype t, int m,
                int64_t n, int64_t depth);
    /* sum[j] += p[r * stride + j] over rows r in order of groups of eight; cols <= TILE_SUM_COLS. Bias gradients. */
    void (*add_rows)(float *sum, const void *p, enum dtype t, int64_t stride, int64_t rows, int cols);
    /* n times the same multiply-adds on registers alone; returns their operations. The ceiling, for benchmarks. */
    double (*spin)(int64_t n);
    /* Around any number of mul calls on one thread (AMX: load and release the tile configuration). */
    void (*begin)(void);
    void (*end)(void);
};
enum { TILE_DOT_ROWS = 32, TILE_SUM_COLS = 1024 };

/* The fastest row at this CPU's level for sources of dtype t (bf16 may still pick f32 panels). Never NULL. */
const struct tile_ops *tile_ops_get(enum dtype t);
/* All rows compiled in, fastest last; for tests and benchmarks. NULL past the end. A row whose `needs` is above
 * cpu_isa() must not be run. */
const struct tile_ops *tile_ops_at(int i);

static inline int64_t tile_depth(const struct tile_ops *o, int64_t depth)
{
    return (depth + o->step - 1) / o->step * o->step;
}
/* Bytes of packed blocks, multiples of 64. */
static inline size_t tile_a_bytes(const struct tile_ops *o, int64_t rows, int64_t depth)
{
    size_t b = (size_t)((rows + o->mr - 1) / o->mr * o->mr * tile_depth(o, depth)) * dtype_bytes(o->panel);
    return (b + 63) / 64 * 64;
}
static inline size_t tile_b_bytes(const struct tile_ops *o, int64_t cols, int64_t depth)
{
    size_t b = (size_t)((cols + o->nr - 1) / o->nr * o->nr * tile_depth(o, depth)) * dtype_bytes(o->panel);
    return (b + 63) / 64 * 64;
}
/* One panel further, in bytes. */
static inline size_t tile_a_step(const struct tile_ops *o, int64_t depth)
{
    return (size_t)(o->mr * tile_depth(o, depth)) * dtype_bytes(o->panel);
}
static inline size_t tile_b_step(const struct tile_ops *o, int64_t depth)
{
    return (size_t)(o->nr * tile_depth(o, depth)) * dtype_bytes(o->panel);
}

/* A whole block: C_mn f32 (ldc) = or += A_panels B_panels, any m, n > 0; writes nothing outside m x n. The caller
 * has called o->begin (once for many blocks) and calls o->end. */
void tile_block(const struct tile_ops *o, float *c, int64_t ldc, const void *a, const void *b, int64_t m, int64_t n,
                int64_t depth, bool add);

/* The same where n is whole tiles, from panels that lie a_step and b_step bytes apart: they may be deeper than `depth`.
 */
static inline void tile_panels(const struct tile_ops *o, float *c, int64_t ldc, const void *a, size_t a_step,
                               const void *b, size_t b_step, int64_t m, int64_t n, int64_t depth, bool add)
{
    int64_t pad = tile_depth(o, depth);
    for (int64_t j = 0; j < n; j += o->nr, b = (const char *)b + b_step) {
        const char *ai = a;
        for (int64_t i = 0; i < m; i += o->mr, ai += a_step)
            o->mul(c + i * ldc + j, ldc, ai, b, pad, (int)(m - i < o->mr ? m - i : o->mr), add);
    }
}

#endif
