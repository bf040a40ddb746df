/* SPDX-License-Identifier: Apache-2.0 */
/* vec_rows.h: how the vector kernels walk over a call: rows of views, split over the team, dtype as a constant.
 *
 * Rows are independent in almost every operation here, so splitting them over the team cannot change a bit.
 * Includes: vec.h, kernel.h. Order: Local.
 */
#ifndef TUTTI_KERNEL_CPU_VEC_ROWS_H
#define TUTTI_KERNEL_CPU_VEC_ROWS_H

#include "kernel/cpu/vec.h"
#include "kernel/kernel.h"

VEC_INLINE void *row_at(const struct view *v, int64_t r)
{
    return (char *)v->p + (size_t)(r * v->stride) * dtype_bytes(v->dtype);
}
/* A row of a view that may be absent. */
VEC_INLINE const void *row_or_null(const struct view *v, int64_t r) { return v->p ? row_at(v, r) : NULL; }
VEC_INLINE vf v_get_or_zero(const void *p, int64_t i, int n, enum dtype t) { return p ? v_get(p, i, n, t) : vf_zero(); }

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
    team_run(c->team, fn, (void *)(uintptr_t)c);
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

#endif
