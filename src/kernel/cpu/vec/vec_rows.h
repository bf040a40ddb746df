/* SPDX-License-Identifier: Apache-2.0 */
/* vec_rows.h: how the vector kernels walk over a call: rows of views, split over the team, dtype as a constant.
 *
 * Rows are independent in almost every operation here, so splitting them over the team cannot change a bit.
 * Includes: vec.h, kernel.h. Order: Local.
 */
#ifndef TUTTI_KERNEL_CPU_VEC_VEC_ROWS_H
#define TUTTI_KERNEL_CPU_VEC_VEC_ROWS_H

#include "kernel/cpu/vec/vec.h"
#include "kernel/kernel.h"

VEC_INLINE void *row_at(const struct view *v, int64_t r)
{
    return (char *)v->p + (size_t)(r * v->stride) * dtype_bytes(v->dtype);
}
/* A row of a view that may be absent. */
VEC_INLINE const void *row_or_null(const struct view *v, int64_t r) { return v->p ? row_at(v, r) : NULL; }
VEC_INLINE vf v_get_or_zero(const void *p, int64_t i, int n, enum dtype t) { return p ? v_get(p, i, n, t) : vf_zero(); }

/* ---- rows by blocks: kernels whose work on an element is more than a load, a store and a few instructions read
 * numbers of any type as floats and write floats, so that their loops are compiled once and not once per type. A block
 * of f32 is the row itself; another type's goes through a buffer in the nearest cache. ---- */
enum { ROW_BLOCK = 256 };

/* How many of the elements that are left the next block takes: whole vectors, or the last few. */
static inline int64_t row_block(int64_t left)
{
    if (left >= ROW_BLOCK) return ROW_BLOCK;
    return left >= VL ? left / VL * VL : left;
}
/* Elements i .. i+n-1 of a row as floats: of the last few lanes past the end are 0. */
VEC_APART const float *row_floats(float buffer[ROW_BLOCK], const void *row, int64_t i, int64_t n, enum dtype t)
{
    if (t == DT_F32 && n >= VL) return (const float *)row + i;
    if (n < VL) vf_store(buffer, v_get(row, i, (int)n, t));
    else if (t == DT_BF16)
        for (int64_t k = 0; k < n; k += VL) vf_store(buffer + k, v_get(row, i + k, VL, DT_BF16));
    else
        for (int64_t k = 0; k < n; k += VL) vf_store(buffer + k, v_get(row, i + k, VL, DT_F16));
    return buffer;
}
static inline const float *row_floats_or_null(float buffer[ROW_BLOCK], const void *row, int64_t i, int64_t n,
                                              enum dtype t)
{
    return row ? row_floats(buffer, row, i, n, t) : NULL;
}
/* Where a block of a row is to be written as floats, in whole vectors; then row_put brings it into the row. */
static inline float *row_room(float buffer[ROW_BLOCK], void *row, int64_t i, int64_t n, enum dtype t)
{
    return t == DT_F32 && n >= VL ? (float *)row + i : buffer;
}
VEC_APART void row_put(void *row, int64_t i, int64_t n, enum dtype t, const float *from)
{
    if (n < VL) v_put(row, i, (int)n, t, vf_load(from));
    else if (t == DT_BF16)
        for (int64_t k = 0; k < n; k += VL) v_put(row, i + k, VL, DT_BF16, vf_load(from + k));
    else if (t == DT_F16)
        for (int64_t k = 0; k < n; k += VL) v_put(row, i + k, VL, DT_F16, vf_load(from + k));
    else if (from != (const float *)row + i)
        for (int64_t k = 0; k < n; k += VL) v_put(row, i + k, VL, DT_F32, vf_load(from + k));
}

static inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Scratch is handed out by bumping a pointer; with p NULL the same code counts. */
struct carve {
    char *p;
    size_t used;
};
static inline void *carve(struct carve *s, size_t bytes)
{
    void *p = s->p ? s->p + s->used : NULL;
    s->used += (bytes + 63) / 64 * 64;
    return p;
}
static inline float *carve_floats(struct carve *s, int64_t n) { return carve(s, (size_t)n * sizeof(float)); }

static inline void team_run_call(team_fn *fn, const struct kernel_call *c)
{
    team_run(kernel_team(c), fn, (void *)(uintptr_t)c);
}

/* The tensor that gives a call its rows and element type: the input, in backward the gradient that comes in (only
 * the inputs that the operation saves are there then). Cross-entropy is the root: nothing comes in. */
static inline const struct view *main_view(const struct kernel_call *c)
{
    return c->phase == KERNEL_FWD || c->op == OP_XENT ? &c->in[0] : &c->dout[0];
}

static inline bool accepts_main(const struct kernel_call *c) { return v_takes(main_view(c)->dtype); }
/* No head is here: ref's. */
static inline bool accepts_heads(const struct kernel_call *c) { return at_norm(&c->at)->heads > 0 && accepts_main(c); }

/* Defines the kernel `name` from name_rows(c, lo, hi, t), an inline function over rows lo .. hi-1 of main_view(c)
 * whose element type is t. */
#define VEC_ROW_KERNEL(name)                                                                                           \
    static void name##_member(void *arg, int member, int n_members)                                                    \
    {                                                                                                                  \
        const struct kernel_call *c = arg;                                                                             \
        int64_t lo, hi;                                                                                                \
        team_split(view_rows(main_view(c)), member, n_members, &lo, &hi);                                              \
        V_TYPED(main_view(c)->dtype, name##_rows, c, lo, hi);                                                          \
    }                                                                                                                  \
    static void name(const struct kernel_call *c) { team_run_call(name##_member, c); }

/* The same from name_rows(c, lo, hi, t) that leaves numbers to functions of their own (VEC_APART) or goes by blocks: t
 * is not a constant. */
#define VEC_BLOCK_KERNEL(name)                                                                                         \
    static void name##_member(void *arg, int member, int n_members)                                                    \
    {                                                                                                                  \
        const struct kernel_call *c = arg;                                                                             \
        int64_t lo, hi;                                                                                                \
        team_split(view_rows(main_view(c)), member, n_members, &lo, &hi);                                              \
        name##_rows(c, lo, hi, main_view(c)->dtype);                                                                   \
    }                                                                                                                  \
    static void name(const struct kernel_call *c) { team_run_call(name##_member, c); }

#endif
