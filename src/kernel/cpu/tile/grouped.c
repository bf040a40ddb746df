/* SPDX-License-Identifier: Apache-2.0 */
/* grouped.c: GROUPED's three directions: one product of gemm.h per expert, one after the other, each on the whole team.
 *
 * With x_UK sorted by expert, rows_E rows each, and w_(E*N),K:
 *
 *     forward        y  = x_e w_e^T      rows of the expert, N columns, depth K
 *     backward in    dx = acc + dy_e w_e
 *     backward w     dw_e = acc + dy_e^T x_e, depth rows of the expert; an expert without tokens gets acc, or zeros
 *
 * In rounds an expert's rows come in several calls. Each does with them what one call for all would: the way for few
 * rows is taken by how many there are in all, and a weight gradient goes on from slice to slice of the whole depth.
 *
 * How many rows an expert has is known only when it runs, so scratch is sized for the worst: all rows to one
 * (gemm_scratch_most). Rejected: all experts' tiles in one list over the team (better for experts of a few tokens each,
 * but the packed block of weights would not be shared; measured in docs/benchmarks.md).
 */
#include <string.h>

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/tile/gemm.h"
#include "kernel/cpu/tile/tile_rows.h"

static bool is_float(enum dtype t) { return t == DT_F32 || t == DT_BF16 || t == DT_F16; }

static bool accepted(const struct kernel_call *c)
{
    return cpu_isa() > ISA_REF && c->in[0].n[0] > 0 && c->in[0].n[1] > 0 && c->in[1].n[0] > 0 &&
           is_float(c->in[0].dtype) && is_float(c->out[0].dtype);
}

static int64_t out_features(const struct kernel_call *c) { return c->in[1].n[0] / view_cols(&c->in[2]); }

static struct tile_src source(const struct view *v, int64_t row, bool depth_dense)
{
    const char *p = v->p ? (const char *)v->p + (size_t)(row * v->stride) * dtype_bytes(v->dtype) : NULL;
    return (struct tile_src){.p = p, .dtype = v->dtype, .stride = v->stride, .depth_dense = depth_dense};
}

static struct tile_out target(const struct view *to, const struct view *acc, int64_t row)
{
    struct tile_out o = {.c_dtype = to->dtype, .ldc = to->stride};
    if (to->p) o.c = (char *)to->p + (size_t)(row * to->stride) * dtype_bytes(to->dtype);
    if (acc && acc->p) {
        o.acc = (const char *)acc->p + (size_t)(row * acc->stride) * dtype_bytes(acc->dtype);
        o.acc_dtype = acc->dtype;
        o.ldacc = acc->stride;
    }
    return o;
}

/* The product of expert e, whose rows are [first, first + rows). */
static struct gemm product(const struct kernel_call *c, int64_t e, int64_t first, int64_t rows)
{
    int64_t n = out_features(c), k = c->in[1].n[1];
    switch (c->phase) {
    case KERNEL_FWD:
        return (struct gemm){.m = rows,
                             .n = n,
                             .k = k,
                             .a = source(&c->in[0], first, true),
                             .b = source(&c->in[1], e * n, true),
                             .out = target(&c->out[0], NULL, first)};
    case KERNEL_BWD_IN:
        return (struct gemm){.m = rows,
                             .n = k,
                             .k = n,
                             .a = source(&c->dout[0], first, true),
                             .b = source(&c->in[1], e * n, false),
                             .out = target(&c->din[0], &c->acc[0], first)};
    default:
        return (struct gemm){.m = n,
                             .n = k,
                             .k = rows,
                             .a = source(&c->dout[0], first, false),
                             .b = source(&c->in[0], first, false),
                             .out = target(&c->din[1], &c->acc[1], e * n)};
    }
}

static size_t scratch(const struct kernel_call *c, const struct tile_ops *o, int n_threads)
{
    struct gemm g = product(c, 0, 0, c->in[0].n[0]);
    return gemm_scratch_most(o, &g, n_threads);
}

/* Rows [first, end) of a result get nothing: acc, or zeros. */
static void nothing(const struct view *to, const struct view *acc, int64_t first, int64_t end)
{
    size_t bytes = (size_t)view_cols(to) * dtype_bytes(to->dtype);
    for (int64_t r = first; r < end; r++) {
        char *p = (char *)to->p + (size_t)(r * to->stride) * dtype_bytes(to->dtype);
        if (!acc || !acc->p) memset(p, 0, bytes);
        else if (acc->p != to->p)
            memcpy(p, (const char *)acc->p + (size_t)(r * acc->stride) * dtype_bytes(acc->dtype), bytes);
    }
}

static void run(const struct kernel_call *c, const struct tile_ops *o)
{
    const int32_t *rows_E = c->in[2].p;
    const int32_t *whole_E = c->in[2].nd == 2 ? rows_E + c->in[2].stride : rows_E;
    int64_t first = 0, n = out_features(c);
    bool weights = c->phase == KERNEL_BWD_W;
    const struct view *to = weights ? &c->din[1] : c->phase == KERNEL_FWD ? &c->out[0] : &c->din[0];
    const struct view *acc = weights ? &c->acc[1] : c->phase == KERNEL_FWD ? NULL : &c->acc[0];
    if (!to->p) return;
    for (int64_t e = 0; e < view_cols(&c->in[2]); first += rows_E[e++]) {
        CHECK(rows_E[e] >= 0 && first + rows_E[e] <= c->in[0].n[0], "expert %lld has rows %lld+%d of %lld",
              (long long)e, (long long)first, (int)rows_E[e], (long long)c->in[0].n[0]);
        if (rows_E[e] == 0) {
            if (weights) nothing(to, acc, e * n, (e + 1) * n);
            continue;
        }
        struct gemm g = product(c, e, first, rows_E[e]);
        struct gemm all = product(c, e, first, whole_E[e]);
        if (weights) g.k_whole = whole_E[e];
        if (c->phase == KERNEL_FWD && gemm_is_few_rows(o, &all)) gemm_few_rows(o, &g, kernel_team(c));
        else gemm_run(o, &g, c->scratch, kernel_team(c));
    }
    if (!weights) nothing(to, acc, first, c->in[0].n[0]);
}

/* ---- ways ---- */
struct ways {
    const struct tile_ops *o;
    struct kernel_slot fwd, bwd;
};

#define FUNCTIONS(isa, name, panels)                                                                                   \
    static void run_##isa(const struct kernel_call *c) { run(c, &tile_ops_##isa); }                                    \
    static size_t scratch_##isa(const struct kernel_call *c, int n) { return scratch(c, &tile_ops_##isa, n); }         \
    static struct depth_rule depth_##isa(const struct kernel_call *c)                                                  \
    {                                                                                                                  \
        (void)c;                                                                                                       \
        return gemm_depth(&tile_ops_##isa);                                                                            \
    }
TILE_WAYS(FUNCTIONS)

#define BY_EXPERT(name, panels) name ": by expert, packed " panels
#define ROW(isa, name, panels)                                                                                         \
    {&tile_ops_##isa,                                                                                                  \
     {run_##isa, scratch_##isa, NULL, BY_EXPERT(name, panels) ", or weights in place where it has few rows",           \
      depth_##isa, NULL},                                                                                              \
     {run_##isa, scratch_##isa, NULL, BY_EXPERT(name, panels), depth_##isa, NULL}},
static const struct ways ways[] = {TILE_WAYS(ROW)};

const struct kernel_slot *grouped_choose(const struct kernel_call *c)
{
    if (!accepted(c)) return NULL;
    struct gemm g = product(c, 0, 0, c->in[0].n[0]);
    const struct tile_ops *o = tile_ops_get(g.a.dtype == g.b.dtype ? g.a.dtype : DT_F32);
    const struct ways *w = ways;
    while (w->o != o && w + 1 < ways + sizeof ways / sizeof *ways) w++;
    CHECK(w->o == o, "no products by %s", o->name);
    return c->phase == KERNEL_FWD ? &w->fwd : &w->bwd;
}
