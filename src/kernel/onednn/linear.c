/* SPDX-License-Identifier: Apache-2.0 */
/* linear.c: LINEAR's three directions through oneDNN: the fallback where tutti's own kernels do not reach, and the
 * yardstick that `tutti bench gemm` holds them against.
 *
 * C's longer side is cut into slices, at most 16 and none under 256 wide, and the members of the team run the
 * slices one by one, single-threaded. The cut depends on the shape alone, and so do the bits: a library that
 * picks its blocking by shape and thread count would give other bits for other teams. acc that lies elsewhere is
 * copied first, then the product adds to it.
 */
#include <stdio.h>

#include "kernel/kernel.h"
#include "kernel/onednn/lib.h"
#include "kernel/onednn/matmul.h"

enum { MOST_SLICES = 16, LEAST_WIDTH = 256 };

static struct matmul forward(const struct kernel_call *c)
{
    const struct view *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    struct matmul m = {.m = x->n[0],
                       .n = w->n[0],
                       .k = x->n[1],
                       .a = x->p,
                       .a_t = x->dtype,
                       .a_rs = x->stride,
                       .a_cs = 1,
                       .b = w->p,
                       .b_t = w->dtype,
                       .b_rs = 1,
                       .b_cs = w->stride,
                       .c = y->p,
                       .c_t = y->dtype,
                       .ldc = y->stride};
    if (c->n_in > 2) {
        m.has_bias = true;
        m.bias = c->in[2].p;
        m.bias_t = c->in[2].dtype;
    }
    return m;
}
static struct matmul backward_in(const struct kernel_call *c)
{
    const struct view *dy = &c->dout[0], *w = &c->in[1], *dx = &c->din[0];
    return (struct matmul){.m = c->in[0].n[0],
                           .n = w->n[1],
                           .k = w->n[0],
                           .a = dy->p,
                           .a_t = dy->dtype,
                           .a_rs = dy->stride,
                           .a_cs = 1,
                           .b = w->p,
                           .b_t = w->dtype,
                           .b_rs = w->stride,
                           .b_cs = 1,
                           .c = dx->p,
                           .c_t = dx->dtype,
                           .ldc = dx->stride,
                           .add = c->acc[0].p != NULL};
}
static struct matmul backward_w(const struct kernel_call *c)
{
    const struct view *dy = &c->dout[0], *x = &c->in[0], *dw = &c->din[1];
    return (struct matmul){.m = c->in[1].n[0],
                           .n = x->n[1],
                           .k = x->n[0],
                           .a = dy->p,
                           .a_t = dy->dtype,
                           .a_rs = 1,
                           .a_cs = dy->stride,
                           .b = x->p,
                           .b_t = x->dtype,
                           .b_rs = x->stride,
                           .b_cs = 1,
                           .c = dw->p,
                           .c_t = DT_F32,
                           .ldc = dw->stride,
                           .add = c->acc[1].p != NULL};
}
static struct matmul product_of(const struct kernel_call *c)
{
    return c->phase == KERNEL_FWD ? forward(c) : c->phase == KERNEL_BWD_IN ? backward_in(c) : backward_w(c);
}

/* ---- slices ---- */
static int64_t n_slices(const struct matmul *m)
{
    int64_t side = m->m > m->n ? m->m : m->n, n = side / LEAST_WIDTH;
    return n < 1 ? 1 : n > MOST_SLICES ? MOST_SLICES : n;
}
static const void *at(const void *p, enum dtype t, int64_t i)
{
    return p ? (const char *)p + (size_t)i * dtype_bytes(t) : NULL;
}
static struct matmul slice_of(const struct matmul *whole, int64_t i)
{
    struct matmul m = *whole;
    int64_t lo, hi;
    const bool by_rows = m.m > m.n;
    team_split(by_rows ? m.m : m.n, (int)i, (int)n_slices(whole), &lo, &hi);
    if (by_rows) {
        m.m = hi - lo;
        m.a = at(m.a, m.a_t, lo * m.a_rs);
    } else {
        m.n = hi - lo;
        m.b = at(m.b, m.b_t, lo * m.b_cs);
        m.bias = at(m.bias, m.bias_t, lo);
    }
    m.c = (void *)(uintptr_t)at(m.c, m.c_t, by_rows ? lo * m.ldc : lo);
    return m;
}

/* The first slice is the widest and the last the narrowest; only those two sizes occur. With and without adding is
 * counted, because scratch is asked for before pointers are known. */
static int64_t scratch_each(const struct matmul *whole)
{
    int64_t most = 0;
    for (int variant = 0; variant < 4; variant++) {
        struct matmul m = slice_of(whole, variant & 1 ? n_slices(whole) - 1 : 0);
        m.add = variant & 2;
        int64_t bytes = matmul_scratch(&m);
        if (bytes < 0) return -1;
        if (bytes > most) most = bytes;
    }
    return (most + 63) / 64 * 64;
}

static bool linear_accepts_onednn(const struct kernel_call *c)
{
    const struct view *x = &c->in[0], *w = &c->in[1];
    if (x->nd != 2 || w->nd != 2 || x->n[0] < 1 || x->n[1] < 1 || w->n[0] < 1) return false;
    struct matmul m = product_of(c);
    return scratch_each(&m) >= 0;
}

static size_t linear_scratch_onednn(const struct kernel_call *c, int n_threads)
{
    struct matmul m = product_of(c);
    return (size_t)scratch_each(&m) * (size_t)n_threads;
}

struct job {
    const struct kernel_call *c;
    struct matmul whole;
    size_t each;
};

static void member_run(void *arg, int member, int n_members)
{
    const struct job *j = arg;
    int64_t lo, hi;
    team_split(n_slices(&j->whole), member, n_members, &lo, &hi);
    int before = matmul_alone_begin();
    for (int64_t i = lo; i < hi; i++) {
        struct matmul m = slice_of(&j->whole, i);
        matmul_run(&m, (char *)j->c->scratch + (size_t)member * j->each);
    }
    matmul_alone_end(before);
}

static float element(const void *p, enum dtype t, int64_t i)
{
    if (t == DT_F32) return ((const float *)p)[i];
    uint16_t u = ((const uint16_t *)p)[i];
    return t == DT_BF16 ? bf16_to_f32(u) : f16_to_f32(u);
}
static void element_set(void *p, enum dtype t, int64_t i, float v)
{
    if (t == DT_F32) ((float *)p)[i] = v;
    else ((uint16_t *)p)[i] = t == DT_BF16 ? bf16_from_f32(v) : f16_from_f32(v);
}

/* acc elsewhere: brought to where the product adds. */
static void bring(const struct view *to, const struct view *acc)
{
    if (!acc->p || acc->p == to->p) return;
    for (int64_t r = 0; r < view_rows(to); r++)
        for (int64_t i = 0; i < view_cols(to); i++)
            element_set(to->p, to->dtype, r * to->stride + i, element(acc->p, acc->dtype, r * acc->stride + i));
}

static void linear_run_onednn(const struct kernel_call *c)
{
    struct job j = {.c = c, .whole = product_of(c)};
    if (!j.whole.c) return; /* this gradient is not wanted */
    if (c->phase == KERNEL_BWD_IN) bring(&c->din[0], &c->acc[0]);
    if (c->phase == KERNEL_BWD_W) bring(&c->din[1], &c->acc[1]);
    j.each = (size_t)scratch_each(&j.whole);
    team_run(kernel_team(c), member_run, &j);
}

static void linear_bwd_w_onednn(const struct kernel_call *c)
{
    linear_run_onednn(c);
    if (!c->din[2].p) return;
    const struct view *dy = &c->dout[0];
    for (int64_t n = 0; n < c->in[1].n[0]; n++) {
        double sum = 0;
        for (int64_t t = 0; t < c->in[0].n[0]; t++) sum += element(dy->p, dy->dtype, t * dy->stride + n);
        if (c->acc[2].p) sum += ((const float *)c->acc[2].p)[n];
        ((float *)c->din[2].p)[n] = (float)sum;
    }
}

static void library(char out[32])
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(out, 32, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

const struct kernel_family kernel_family_onednn = {
    .name = "onednn",
    .library = library,
    .slot =
        {
            [OP_LINEAR] = {[KERNEL_FWD] = {linear_run_onednn, linear_scratch_onednn, linear_accepts_onednn, NULL},
                           [KERNEL_BWD_IN] = {linear_run_onednn, linear_scratch_onednn, linear_accepts_onednn, NULL},
                           [KERNEL_BWD_W] = {linear_bwd_w_onednn, linear_scratch_onednn, linear_accepts_onednn, NULL}},
        },
};
