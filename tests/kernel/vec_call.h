/* SPDX-License-Identifier: Apache-2.0 */
/* vec_call.h: builds one kernel call with random data behind it, runs it through any family, and compares.
 *
 * Every 2-D tensor gets a row stride wider than its columns and a guard after its last row; the gap and the guard
 * hold a pattern that no kernel may touch. For tests of the vectorised kernels against ref.
 */
#ifndef TESTS_KERNEL_VEC_CALL_H
#define TESTS_KERNEL_VEC_CALL_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernel/kernel.h"

enum acc_mode { ACC_NONE, ACC_IN_PLACE, ACC_OTHER, ACC_N };
enum { GUARD_BYTES = 64, GUARD = 0xA5 };

static inline int64_t view_bytes(const struct view *v)
{
    return view_rows(v) * v->stride * (int64_t)dtype_bytes(v->dtype);
}

/* Memory for a view: stride widened by `gap`, all bytes set to the pattern. */
static inline void view_alloc(struct view *v, int64_t gap)
{
    v->stride = view_cols(v) + (v->nd > 1 ? gap : 0);
    size_t bytes = (size_t)view_bytes(v) + GUARD_BYTES;
    v->p = xmalloc(bytes);
    memset(v->p, GUARD, bytes);
}

static inline double view_get(const struct view *v, int64_t r, int64_t i)
{
    int64_t at = r * v->stride + i;
    switch (v->dtype) {
    case DT_F32: return ((const float *)v->p)[at];
    case DT_BF16: return bf16_to_f32(((const bf16 *)v->p)[at]);
    case DT_F64: return ((const double *)v->p)[at];
    case DT_I32: return ((const int32_t *)v->p)[at];
    default: return f16_to_f32(((const uint16_t *)v->p)[at]);
    }
}
static inline void view_set(const struct view *v, int64_t r, int64_t i, double x)
{
    int64_t at = r * v->stride + i;
    switch (v->dtype) {
    case DT_F32: ((float *)v->p)[at] = (float)x; return;
    case DT_BF16: ((bf16 *)v->p)[at] = bf16_from_f32((float)x); return;
    case DT_F64: ((double *)v->p)[at] = x; return;
    case DT_I32: ((int32_t *)v->p)[at] = (int32_t)x; return;
    default: ((uint16_t *)v->p)[at] = f16_from_f32((float)x);
    }
}

/* Normal numbers times `size`; i32 views get integers in [0, size). */
static inline void view_random(const struct view *v, uint64_t stream, double size)
{
    for (int64_t r = 0; r < view_rows(v); r++)
        for (int64_t i = 0; i < view_cols(v); i++) {
            uint64_t k = (uint64_t)(r * view_cols(v) + i);
            if (v->dtype == DT_I32) view_set(v, r, i, floor(rng_uniform(3, stream, k) * size));
            else view_set(v, r, i, (double)rng_normal(3, stream, k) * size);
        }
}

static inline struct view view_copy(const struct view *v)
{
    struct view c = *v;
    if (!v->p) return c;
    size_t bytes = (size_t)view_bytes(v) + GUARD_BYTES;
    c.p = xmalloc(bytes);
    memcpy(c.p, v->p, bytes);
    return c;
}
static inline int view_same_bits(const struct view *a, const struct view *b)
{
    return !memcmp(a->p, b->p, (size_t)view_bytes(a) + GUARD_BYTES);
}

/* Gap between rows and guard untouched? */
static inline int view_guarded(const struct view *v)
{
    const unsigned char *p = v->p;
    size_t each = dtype_bytes(v->dtype), row = (size_t)v->stride * each, used = (size_t)view_cols(v) * each;
    for (int64_t r = 0; r < view_rows(v); r++)
        for (size_t i = used; i < row; i++)
            if (p[(size_t)r * row + i] != GUARD) return 0;
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (p[(size_t)view_bytes(v) + i] != GUARD) return 0;
    return 1;
}

/* Largest |a - want| / (atol + rtol |want|); above 1 is a failure. */
static inline double view_error(const struct view *a, const struct view *want, double atol, double rtol)
{
    double worst = 0;
    for (int64_t r = 0; r < view_rows(a); r++)
        for (int64_t i = 0; i < view_cols(a); i++) {
            double w = view_get(want, r, i), d = fabs(view_get(a, r, i) - w) / (atol + rtol * fabs(w));
            if (!(d <= worst)) worst = d; /* NaN counts */
        }
    return worst;
}

static inline void slot_run(const struct kernel_slot *s, struct kernel_call *c, struct team *team)
{
    struct stream here = kernel_here(team);
    c->stream = &here;
    c->scratch_bytes = s->scratch ? s->scratch(c, team_size(team)) : 0;
    c->scratch = NULL;
    size_t pages = (c->scratch_bytes + 4096 + 4095) / 4096 * 4096;
    c->scratch = mem_pages_new(pages);
    memset(c->scratch, 0x7f, c->scratch_bytes); /* leftovers of earlier calls, not zeros */
    memset((char *)c->scratch + c->scratch_bytes, GUARD, 64);
    s->run(c);
    for (int i = 0; i < 64; i++)
        CHECK(((unsigned char *)c->scratch)[c->scratch_bytes + (size_t)i] == GUARD, "wrote past its scratch");
    c->stream = NULL;
    mem_pages_free(c->scratch, pages);
}

/* A call whose tensors the caller owns: call_free releases all of them. */
static inline void call_free(struct kernel_call *c)
{
    for (int i = 0; i < KERNEL_MAX_IN; i++) {
        if (c->acc[i].p != c->din[i].p) xfree(c->acc[i].p);
        xfree(c->din[i].p);
        xfree(c->in[i].p);
    }
    for (int i = 0; i < KERNEL_MAX_OUT; i++) {
        xfree(c->out[i].p);
        xfree(c->dout[i].p);
    }
}

/* Fresh outputs (forward) or input gradients (backward) for the same inputs. */
static inline struct kernel_call call_fresh(const struct kernel_call *c)
{
    struct kernel_call f = *c;
    for (int i = 0; i < KERNEL_MAX_IN; i++) {
        f.in[i] = view_copy(&c->in[i]);
        f.din[i] = view_copy(&c->din[i]);
        f.acc[i] = c->acc[i].p == c->din[i].p ? f.din[i] : view_copy(&c->acc[i]);
    }
    for (int i = 0; i < KERNEL_MAX_OUT; i++) {
        f.out[i] = view_copy(&c->out[i]);
        f.dout[i] = view_copy(&c->dout[i]);
    }
    return f;
}

/* Prepares the backward half of a call whose forward ran: dout random, din for the wanted inputs, acc by mode. */
static inline void call_backward(struct kernel_call *c, enum kernel_phase phase, enum acc_mode mode, int64_t gap)
{
    const struct op_row *row = op_row(c->op);
    c->phase = phase;
    for (int i = 0; i < 1 && c->op != OP_XENT; i++) {
        c->dout[i] = c->out[i];
        view_alloc(&c->dout[i], gap);
        view_random(&c->dout[i], 50 + (uint64_t)i, 1);
    }
    int wanted = phase == KERNEL_BWD_IN ? row->grad_in : row->weight_in;
    for (int i = 0; i < c->n_in; i++) {
        if (!(wanted >> i & 1)) continue;
        c->din[i] = c->in[i];
        if (phase == KERNEL_BWD_W) c->din[i].dtype = DT_F32;
        view_alloc(&c->din[i], gap);
        if (mode == ACC_IN_PLACE) {
            view_random(&c->din[i], 60 + (uint64_t)i, 1);
            c->acc[i] = c->din[i];
        } else if (mode == ACC_OTHER) {
            c->acc[i] = c->din[i];
            view_alloc(&c->acc[i], gap + 1);
            view_random(&c->acc[i], 60 + (uint64_t)i, 1);
        }
    }
}

/* What ref makes of a call. */
static inline struct kernel_call call_reference(const struct kernel_call *c)
{
    struct kernel_call want = call_fresh(c);
    slot_run(&kernel_family_ref.slot[c->op][c->phase], &want, NULL);
    return want;
}

/* Runs `c` through `slot` with teams of 1, 2 and 3: results within tolerance of `want` (call_reference), the same
 * bits for every team, nothing else written. Returns the worst error, in units of the tolerance. */
static inline double call_compare(const struct kernel_call *c, const struct kernel_call *want,
                                  const struct kernel_slot *slot, double atol, double rtol)
{
    struct kernel_call first = call_fresh(c);
    double worst = 0;
    for (int n = 1; n <= 3; n++) {
        struct kernel_call got = n == 1 ? first : call_fresh(c);
        struct team *team = team_new(n);
        slot_run(slot, &got, team);
        team_free(team);
        for (int i = 0; i < KERNEL_MAX_IN + KERNEL_MAX_OUT; i++) {
            bool is_out = i >= KERNEL_MAX_IN;
            int k = is_out ? i - KERNEL_MAX_IN : i;
            if (is_out ? c->phase != KERNEL_FWD || !c->out[k].p : c->phase == KERNEL_FWD || !c->din[k].p) continue;
            const struct view *g = is_out ? &got.out[k] : &got.din[k];
            double e = view_error(g, is_out ? &want->out[k] : &want->din[k], atol, rtol);
            if (!(e <= worst)) worst = e;
            if (!view_guarded(g)) worst = INFINITY;
            if (!view_same_bits(g, is_out ? &first.out[k] : &first.din[k])) worst = INFINITY;
        }
        if (n > 1) call_free(&got);
    }
    call_free(&first);
    return worst;
}

#endif
