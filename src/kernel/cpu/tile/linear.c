/* SPDX-License-Identifier: Apache-2.0 */
/* linear.c: LINEAR's three directions on gemm.h. With x_TK, w_NK, y_TN:
 *
 *     forward        y_TN  = x w^T + bias       rows T, columns N, depth K; both operands dense in depth
 *     backward in    dx_TK = acc + dy w         rows T, columns K, depth N
 *     backward w     dw_NK = acc + dy^T x       rows N, columns K, depth T; both dense across depth
 *                    db_N  = acc + columns of dy summed
 *
 * Packing brings each storage order into the same panels at nearly the same speed, so no operand is ever transposed in
 * memory. Panels are f32 or bf16 as tile_ops_get() decides by CPU; mixed and f16 inputs go through f32. The
 * forward product of a few tokens reads the weights in place instead (gemm_few.c). Each is a way of its own per row of
 * tile.c.
 *
 * dw always sums in f32 on top of acc inside the product, never in a second pass.
 */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/tile/gemm.h"
#include "kernel/cpu/tile/tile_rows.h"

static bool is_float(enum dtype t) { return t == DT_F32 || t == DT_BF16 || t == DT_F16; }

/* Without a depth (a rank of tp that has no head) there is no product, but the gradient of the bias has to be summed in
 * the same order as on the ranks that have one: they hold the same bias, and each makes its own step of it. */
static bool bias_alone(const struct kernel_call *c) { return c->phase == KERNEL_BWD_W && c->in[0].n[1] == 0; }

static bool accepted(const struct kernel_call *c)
{
    const struct view *x = &c->in[0], *w = &c->in[1];
    return cpu_isa() > ISA_REF && x->nd == 2 && w->nd == 2 && x->n[0] > 0 && (x->n[1] > 0 || bias_alone(c)) &&
           w->n[0] > 0 && is_float(x->dtype) && is_float(w->dtype) && is_float(c->out[0].dtype);
}

static struct tile_src source(const struct view *v, bool depth_dense)
{
    return (struct tile_src){.p = v->p, .dtype = v->dtype, .stride = v->stride, .depth_dense = depth_dense};
}

/* acc of the same place must be the same rows: a row length of its own would be another tensor. */
static struct tile_out target(const struct view *to, const struct view *acc, const struct view *bias)
{
    struct tile_out o = {.c = to->p, .c_dtype = to->dtype, .ldc = to->stride};
    if (acc && acc->p) {
        o.acc = acc->p;
        o.acc_dtype = acc->dtype;
        o.ldacc = acc->stride;
        CHECK(acc->p != to->p || (acc->dtype == to->dtype && acc->stride == to->stride),
              "a gradient accumulates onto itself in another shape");
    }
    if (bias && bias->p) {
        o.bias = bias->p;
        o.bias_dtype = bias->dtype;
    }
    return o;
}

static struct gemm forward(const struct kernel_call *c)
{
    const struct view *x = &c->in[0], *w = &c->in[1];
    return (struct gemm){.m = x->n[0],
                         .n = w->n[0],
                         .k = x->n[1],
                         .a = source(x, true),
                         .b = source(w, true),
                         .out = target(&c->out[0], NULL, c->n_in > 2 ? &c->in[2] : NULL),
                         .gram = at_linear(&c->at)->gram};
}
static struct gemm backward_in(const struct kernel_call *c)
{
    const struct view *dy = &c->dout[0], *w = &c->in[1];
    return (struct gemm){.m = c->in[0].n[0],
                         .n = w->n[1],
                         .k = w->n[0],
                         .a = source(dy, true),
                         .b = source(w, false),
                         .out = target(&c->din[0], &c->acc[0], NULL)};
}
static struct gemm backward_w(const struct kernel_call *c)
{
    const struct view *dy = &c->dout[0], *x = &c->in[0];
    return (struct gemm){.m = c->in[1].n[0],
                         .n = x->n[1],
                         .k = x->n[0],
                         .a = source(dy, false),
                         .b = source(x, false),
                         .out = target(&c->din[1], &c->acc[1], NULL),
                         .gram = at_linear(&c->at)->gram};
}

static struct gemm product(const struct kernel_call *c)
{
    return c->phase == KERNEL_FWD ? forward(c) : c->phase == KERNEL_BWD_IN ? backward_in(c) : backward_w(c);
}

/* Columns of dy are split among the members, so each sum has one order. */
struct bias_job {
    const struct kernel_call *c;
    const struct tile_ops *o;
};
static void bias_member(void *arg, int member, int n_members)
{
    const struct bias_job *job = arg;
    const struct kernel_call *c = job->c;
    const struct view *dy = &c->dout[0], *db = &c->din[2], *acc = &c->acc[2];
    int64_t lo, hi;
    team_split(c->in[1].n[0], member, n_members, &lo, &hi);
    for (int64_t j = lo; j < hi; j += TILE_SUM_COLS) {
        float sum[TILE_SUM_COLS] = {0};
        const int cols = (int)(hi - j < TILE_SUM_COLS ? hi - j : TILE_SUM_COLS);
        const char *from = (const char *)dy->p + (size_t)j * dtype_bytes(dy->dtype);
        job->o->add_rows(sum, from, dy->dtype, dy->stride, c->in[0].n[0], cols);
        float *to = (float *)db->p + j;
        const float *add = acc->p ? (const float *)acc->p + j : NULL;
        for (int i = 0; i < cols; i++) to[i] = add ? add[i] + sum[i] : sum[i];
    }
}

/* ---- ways ---- */
static void fwd(const struct kernel_call *c, const struct tile_ops *o)
{
    struct gemm g = forward(c);
    gemm_run(o, &g, c->scratch, kernel_team(c));
}
static void fwd_few(const struct kernel_call *c, const struct tile_ops *o)
{
    struct gemm g = forward(c);
    gemm_few_rows(o, &g, kernel_team(c));
}
static void bwd_in(const struct kernel_call *c, const struct tile_ops *o)
{
    struct gemm g = backward_in(c);
    if (c->din[0].p) gemm_run(o, &g, c->scratch, kernel_team(c));
}
static void bwd_w(const struct kernel_call *c, const struct tile_ops *o)
{
    struct gemm g = backward_w(c);
    for (int i = 1; i <= 2; i++)
        CHECK((!c->din[i].p || c->din[i].dtype == DT_F32) && (!c->acc[i].p || c->acc[i].dtype == DT_F32),
              "weight gradients are f32, not %s", dtype_name(c->din[i].dtype));
    if (c->din[1].p && !bias_alone(c)) gemm_run(o, &g, c->scratch, kernel_team(c));
    if (c->din[2].p) team_run(kernel_team(c), bias_member, &(struct bias_job){c, o});
}
static size_t scratch(const struct kernel_call *c, const struct tile_ops *o, int n_threads)
{
    struct gemm g = product(c);
    return bias_alone(c) ? 0 : gemm_scratch(o, &g, n_threads);
}

struct ways {
    const struct tile_ops *o;
    struct kernel_slot few, packed[KERNEL_N_PHASES], widened[KERNEL_N_PHASES];
};

#define FUNCTIONS(isa, name, panels)                                                                                   \
    static void fwd_few_##isa(const struct kernel_call *c) { fwd_few(c, &tile_ops_##isa); }                            \
    static void fwd_##isa(const struct kernel_call *c) { fwd(c, &tile_ops_##isa); }                                    \
    static void bwd_in_##isa(const struct kernel_call *c) { bwd_in(c, &tile_ops_##isa); }                              \
    static void bwd_w_##isa(const struct kernel_call *c) { bwd_w(c, &tile_ops_##isa); }                                \
    static size_t scratch_##isa(const struct kernel_call *c, int n) { return scratch(c, &tile_ops_##isa, n); }
TILE_WAYS(FUNCTIONS)

#define PACKED(isa, words)                                                                                             \
    {                                                                                                                  \
        {fwd_##isa, scratch_##isa, NULL, words, NULL, NULL}, {bwd_in_##isa, scratch_##isa, NULL, words, NULL, NULL},   \
        {                                                                                                              \
            bwd_w_##isa, scratch_##isa, NULL, words, NULL, NULL                                                        \
        }                                                                                                              \
    }
#define ROW(isa, name, panels)                                                                                         \
    {&tile_ops_##isa,                                                                                                  \
     {fwd_few_##isa, NULL, NULL, name ": few rows, weights in place", NULL, NULL},                                     \
     PACKED(isa, name ": packed " panels),                                                                             \
     PACKED(isa, name ": widened " panels)},
static const struct ways ways[] = {TILE_WAYS(ROW)};

const struct kernel_slot *linear_choose(const struct kernel_call *c)
{
    if (!accepted(c)) return NULL;
    struct gemm g = product(c);
    const struct tile_ops *o = tile_ops_get(g.a.dtype == g.b.dtype ? g.a.dtype : DT_F32);
    const struct ways *w = ways;
    while (w->o != o && w + 1 < ways + sizeof ways / sizeof *ways) w++;
    CHECK(w->o == o, "no products by %s", o->name);
    if (c->phase == KERNEL_FWD && !at_linear(&c->at)->same_rows && gemm_is_few_rows(o, &g)) return &w->few;
    bool as_they_are = o->panel == DT_BF16 || (g.a.dtype == DT_F32 && g.b.dtype == DT_F32);
    return as_they_are ? &w->packed[c->phase] : &w->widened[c->phase];
}
