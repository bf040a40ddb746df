/* SPDX-License-Identifier: Apache-2.0 */
/* codes_product.c: CODED, the products of matrices in few bits, two ways.
 *
 * Few rows, as writing token by token has them: codes are read once, made numbers in registers and multiplied
 * (codes_product.h), so a token reads codes and nothing else: rows of bf16 by integers, of f32 by floats. Columns are
 * split among the members, 256 at a time, as in gemm_few.c. Many rows: so many rows of codes as make a panel of PANEL
 * numbers are unpacked by the whole team into scratch, in x's type, and multiplied by the ordinary product (gemm.h),
 * which has then the bits that it has with whole weights. Where no function of codes_product.h fits this processor all
 * is done so, and the way says it. Of experts each has the way for its number of rows.
 *
 * Rejected: packing codes into the product's own panels (a packer for each type of codes and each row of tile.h; what
 * is saved, writing and reading a panel once more, is a few hundredths of a prompt's time).
 */
#include <string.h>

#include "kernel/codes_product.h"
#include "kernel/cpu/bits/codes_product.h"
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/tile/gemm.h"
#include "kernel/cpu/tile/tile_rows.h"
#include "kernel/formats.h"

enum { PANEL = 1 << 20, BLOCK = 1024, COLS = 256 };

static bool accepted(const struct kernel_call *c)
{
    const struct view *x = &c->in[0];
    return cpu_isa() > ISA_REF && x->n[0] > 0 && x->n[1] > 0 && c->out[0].n[1] > 0;
}

static bool in_registers(const struct kernel_call *c)
{
    return coded_registers.dot && cpu_isa() >= coded_registers.needs && c->in[0].dtype != DT_F16;
}

static bool by_integers(const struct kernel_call *c) { return coded_registers.fix && c->in[0].dtype == DT_BF16; }

/* Rows of codes in a panel: whole tiles, and one block of columns of the product's own, so that what it wants for a
 * panel is enough for the last one, which is shorter. */
static int64_t panel_rows(const struct kernel_call *c, const struct tile_ops *o)
{
    const int64_t all = c->out[0].n[1], block = o->nc < BLOCK ? o->nc : BLOCK;
    int64_t rows = PANEL / c->in[0].n[1] < block ? PANEL / c->in[0].n[1] : block;
    rows = rows / o->nr * o->nr;
    if (rows < o->nr) rows = o->nr;
    return rows < all ? rows : all;
}

static size_t panel_bytes(const struct kernel_call *c, const struct tile_ops *o)
{
    return ((size_t)(panel_rows(c, o) * c->in[0].n[1]) * dtype_bytes(c->in[0].dtype) + 63) / 64 * 64;
}

/* The product of rows [first, first + m) of x, into columns [col, col + n) of the result. */
static struct gemm product(const struct kernel_call *c, int64_t first, int64_t m, int64_t col, int64_t n,
                           const void *panel)
{
    const struct view *x = &c->in[0], *y = &c->out[0], *bias = coded_bias(c);
    const size_t each = dtype_bytes(x->dtype);
    struct gemm g = {.m = m, .n = n, .k = x->n[1]};
    g.a = (struct tile_src){x->p ? (const char *)x->p + (size_t)(first * x->stride) * each : NULL, x->dtype, x->stride,
                            true};
    g.b = (struct tile_src){panel, x->dtype, x->n[1], true};
    g.out = (struct tile_out){.c_dtype = y->dtype, .ldc = y->stride};
    if (y->p) g.out.c = (char *)y->p + (size_t)(first * y->stride + col) * each;
    if (bias && bias->p) g.out.bias = (const char *)bias->p + (size_t)col * each, g.out.bias_dtype = bias->dtype;
    return g;
}

/* ---- many rows ---- */
static void by_panels(const struct kernel_call *c, const struct tile_ops *o, int64_t expert, int64_t first, int64_t m)
{
    const int64_t n = c->out[0].n[1], step = panel_rows(c, o), k = c->in[0].n[1];
    char *panel = c->scratch;
    for (int64_t col = 0; col < n; col += step) {
        const int64_t now = n - col < step ? n - col : step;
        for (int64_t r = 0, got; r < now; r += got) {
            struct packed_args a;
            got = coded_rows(c, expert * n + col + r, now - r, &a);
            a.x = panel + (size_t)(r * k) * dtype_bytes(a.t);
            format_ops_cpu.unpack(kernel_team(c), &a);
        }
        struct gemm g = product(c, first, m, col, now, panel);
        if (gemm_is_few_rows(o, &g)) gemm_few_rows(o, &g, kernel_team(c));
        else gemm_run(o, &g, panel + panel_bytes(c, o), kernel_team(c));
    }
}

/* ---- few rows ---- */
struct few {
    const struct kernel_call *c;
    const struct tile_ops *o;
    const float *x; /* [m, K], as they lie in the call if that is f32 */
    int64_t ldx, expert, first, m;
    struct coded_fixed fixed; /* x NULL: by floats */
};

static void few_member(void *arg, int member, int n_members)
{
    const struct few *w = arg;
    const struct kernel_call *c = w->c;
    const int64_t n = c->out[0].n[1], nr = w->o->nr;
    struct packed_args a;
    struct packed_scales s;
    int64_t lo, hi;
    team_split((n + nr - 1) / nr, member, n_members, &lo, &hi);
    lo *= nr;
    hi = hi * nr < n ? hi * nr : n;
    for (int64_t j = lo; j < hi; j += COLS) {
        float y[CODED_FEW * COLS];
        const int64_t now = hi - j < COLS ? hi - j : COLS;
        for (int64_t r = 0, got; r < now; r += got) {
            got = coded_rows(c, w->expert * n + j + r, now - r, &a);
            if (j == lo && r == 0) packed_scales_init(&s, &a);
            if (w->fixed.x) coded_registers.fixed(&a, &s, &w->fixed, (int)w->m, y + r, COLS);
            else coded_registers.dot(&a, &s, w->x, w->ldx, (int)w->m, y + r, COLS);
        }
        for (int64_t i = 0; i < now; i += nr) {
            struct gemm g = product(c, w->first, w->m, j + i, nr, NULL);
            w->o->finish(y + i, COLS, (int)w->m, (int)(now - i < nr ? now - i : nr), &g.out);
        }
    }
}

/* Rows of bf16 as integers, in the call's scratch. false: a number is too large, or none. */
static bool as_integers(const struct kernel_call *c, struct few *w)
{
    const struct view *x = &c->in[0];
    const int64_t k = x->n[1];
    struct coded_fixed *f = &w->fixed;
    *f = (struct coded_fixed){.cols = coded_fixed_cols(k), .blocks = coded_fixed_cols(k) / CODED_FIXED_BLOCK};
    int16_t *ints = c->scratch;
    float *scale = (float *)(void *)(ints + w->m * f->cols);
    for (int64_t i = 0; i < w->m; i++)
        if (!coded_registers.fix(at_coded(&c->at)->packing, (const bf16 *)x->p + (w->first + i) * x->stride, k,
                                 ints + i * f->cols, scale + i * f->blocks))
            return false;
    f->x = ints;
    f->scale = scale;
    return true;
}

static void as_floats(const struct kernel_call *c, struct few *w)
{
    const struct view *x = &c->in[0];
    float *wide = c->scratch;
    w->x = (const float *)x->p + w->first * x->stride;
    w->ldx = x->stride;
    if (x->dtype == DT_F32) return;
    w->x = wide;
    w->ldx = x->n[1];
    for (int64_t i = 0; i < w->m; i++)
        for (int64_t k = 0; k < x->n[1]; k++)
            wide[i * x->n[1] + k] = bf16_to_f32(((const bf16 *)x->p)[(w->first + i) * x->stride + k]);
}

static void by_registers(const struct kernel_call *c, const struct tile_ops *o, int64_t expert, int64_t first,
                         int64_t m)
{
    struct few w = {.c = c, .o = o, .expert = expert, .first = first, .m = m};
    if (!by_integers(c) || !as_integers(c, &w)) {
        w.fixed.x = NULL;
        as_floats(c, &w);
    }
    team_run(kernel_team(c), few_member, &w);
}

/* ---- ways ---- */
static void rows_of(const struct kernel_call *c, const struct tile_ops *o, int64_t expert, int64_t first, int64_t m)
{
    if (in_registers(c) && m <= CODED_FEW) by_registers(c, o, expert, first, m);
    else by_panels(c, o, expert, first, m);
}

static void run(const struct kernel_call *c, const struct tile_ops *o)
{
    const struct view *experts = coded_experts(c), *y = &c->out[0];
    const int64_t all = c->in[0].n[0];
    if (!experts) {
        rows_of(c, o, 0, 0, all);
        return;
    }
    const int32_t *rows_E = experts->p;
    int64_t first = 0;
    for (int64_t e = 0; e < experts->n[0]; first += rows_E[e++]) {
        CHECK(rows_E[e] >= 0 && first + rows_E[e] <= all, "expert %lld has rows %lld+%d of %lld", (long long)e,
              (long long)first, (int)rows_E[e], (long long)all);
        if (rows_E[e]) rows_of(c, o, e, first, rows_E[e]);
    }
    for (; first < all; first++)
        memset((char *)y->p + (size_t)(first * y->stride) * dtype_bytes(y->dtype), 0,
               (size_t)y->n[1] * dtype_bytes(y->dtype));
}

/* Few rows as floats or integers, or a panel and what its product wants: the largest, since of experts all may come. */
static size_t scratch(const struct kernel_call *c, const struct tile_ops *o, int n_threads)
{
    const int64_t rows = c->in[0].n[0];
    const int few = (int)(rows < CODED_FEW ? rows : CODED_FEW);
    size_t wide = (size_t)(few * c->in[0].n[1]) * sizeof(float), panels = 0;
    if (coded_fixed_bytes(few, c->in[0].n[1]) > wide) wide = coded_fixed_bytes(few, c->in[0].n[1]);
    if (!in_registers(c) || rows > CODED_FEW) {
        struct gemm g = product(c, 0, rows, 0, panel_rows(c, o), NULL);
        panels = panel_bytes(c, o) + gemm_scratch_most(o, &g, n_threads);
    }
    return wide > panels ? wide : panels;
}

#define FUNCTIONS(isa, name, panels)                                                                                   \
    static void run_##isa(const struct kernel_call *c) { run(c, &tile_ops_##isa); }                                    \
    static size_t scratch_##isa(const struct kernel_call *c, int n) { return scratch(c, &tile_ops_##isa, n); }
TILE_WAYS(FUNCTIONS)

struct ways {
    const struct tile_ops *o;
    struct kernel_slot few, integers, many, experts, plain;
};
#define WAY(isa, words)                                                                                                \
    {                                                                                                                  \
        run_##isa, scratch_##isa, NULL, words, NULL, NULL                                                              \
    }
#define ROW(isa, name, panels)                                                                                         \
    {&tile_ops_##isa,                                                                                                  \
     WAY(isa, CODED_ISA ": few rows, codes in registers"),                                                             \
     WAY(isa, CODED_ISA ": few rows, codes in registers as integers"),                                                 \
     WAY(isa, name ": codes unpacked by panels"),                                                                      \
     WAY(isa, name ": by expert, codes in registers (" CODED_ISA ") where it has few rows, else unpacked by panels"),  \
     WAY(isa, name ": codes unpacked by panels, also for few rows")},
static const struct ways ways[] = {TILE_WAYS(ROW)};

const struct kernel_slot *coded_choose(const struct kernel_call *c)
{
    if (!accepted(c)) return NULL;
    const struct tile_ops *o = tile_ops_get(c->in[0].dtype == DT_F16 ? DT_F32 : c->in[0].dtype);
    const struct ways *w = ways;
    while (w->o != o && w + 1 < ways + sizeof ways / sizeof *ways) w++;
    CHECK(w->o == o, "no products by %s", o->name);
    if (!in_registers(c)) return &w->plain;
    if (coded_experts(c)) return &w->experts;
    if (c->in[0].n[0] > CODED_FEW) return &w->many;
    return by_integers(c) ? &w->integers : &w->few;
}
