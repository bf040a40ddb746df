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
 * forward product of a few tokens reads the weights in place instead (gemm_few.c).
 *
 * dw always sums in f32 on top of acc inside the product, never in a second pass.
 */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"

static bool is_float(enum dtype t) { return t == DT_F32 || t == DT_BF16 || t == DT_F16; }

/* Without a depth (a rank of tp that has no head) there is no product, but the gradient of the bias has to be summed in
 * the same order as on the ranks that have one: they hold the same bias, and each makes its own step of it. */
static bool bias_alone(const struct kernel_call *c) { return c->phase == KERNEL_BWD_W && c->in[0].n[1] == 0; }

bool linear_accepts(const struct kernel_call *c)
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
                         .out = target(&c->out[0], NULL, c->n_in > 2 ? &c->in[2] : NULL)};
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
                         .out = target(&c->din[1], &c->acc[1], NULL)};
}

static const struct tile_ops *ops_for(const struct gemm *g)
{
    return tile_ops_get(g->a.dtype == g->b.dtype ? g->a.dtype : DT_F32);
}
static size_t scratch_for(struct gemm g, int n_threads) { return gemm_scratch(ops_for(&g), &g, n_threads); }
static void run(struct gemm g, const struct kernel_call *c) { gemm_run(ops_for(&g), &g, c->scratch, c->team); }

const char *linear_path(const struct kernel_call *c)
{
    struct gemm g = c->phase == KERNEL_FWD ? forward(c) : c->phase == KERNEL_BWD_IN ? backward_in(c) : backward_w(c);
    const bool widened = ops_for(&g)->panel == DT_F32 && (g.a.dtype != DT_F32 || g.b.dtype != DT_F32);
    if (c->phase == KERNEL_FWD && gemm_is_few_rows(ops_for(&g), &g)) return "few rows: weights read in place";
    if (!widened) return g.a.dtype == DT_F32 ? "packed f32 panels" : "packed bf16 panels";
    return "packed f32 panels, inputs widened: no faster product of this type here";
}

size_t linear_fwd_scratch(const struct kernel_call *c, int n_threads)
{
    struct gemm g = forward(c);
    return gemm_is_few_rows(ops_for(&g), &g) ? 0 : scratch_for(g, n_threads);
}
void linear_fwd_cpu(const struct kernel_call *c)
{
    struct gemm g = forward(c);
    if (gemm_is_few_rows(ops_for(&g), &g)) gemm_few_rows(ops_for(&g), &g, c->team);
    else run(g, c);
}

size_t linear_bwd_in_scratch(const struct kernel_call *c, int n_threads)
{
    return scratch_for(backward_in(c), n_threads);
}
void linear_bwd_in_cpu(const struct kernel_call *c)
{
    if (c->din[0].p) run(backward_in(c), c);
}

/* Columns of dy are split among the members, so each sum has one order. */
static void bias_member(void *arg, int member, int n_members)
{
    const struct kernel_call *c = arg;
    const struct view *dy = &c->dout[0], *db = &c->din[2], *acc = &c->acc[2];
    const struct tile_ops *o = tile_ops_get(dy->dtype);
    int64_t lo, hi;
    team_split(c->in[1].n[0], member, n_members, &lo, &hi);
    for (int64_t j = lo; j < hi; j += TILE_SUM_COLS) {
        float sum[TILE_SUM_COLS] = {0};
        const int cols = (int)(hi - j < TILE_SUM_COLS ? hi - j : TILE_SUM_COLS);
        const char *from = (const char *)dy->p + (size_t)j * dtype_bytes(dy->dtype);
        o->add_rows(sum, from, dy->dtype, dy->stride, c->in[0].n[0], cols);
        float *to = (float *)db->p + j;
        const float *add = acc->p ? (const float *)acc->p + j : NULL;
        for (int i = 0; i < cols; i++) to[i] = add ? add[i] + sum[i] : sum[i];
    }
}

size_t linear_bwd_w_scratch(const struct kernel_call *c, int n_threads)
{
    return bias_alone(c) ? 0 : scratch_for(backward_w(c), n_threads);
}
void linear_bwd_w_cpu(const struct kernel_call *c)
{
    for (int i = 1; i <= 2; i++)
        CHECK((!c->din[i].p || c->din[i].dtype == DT_F32) && (!c->acc[i].p || c->acc[i].dtype == DT_F32),
              "weight gradients are f32, not %s", dtype_name(c->din[i].dtype));
    if (c->din[1].p && !bias_alone(c)) run(backward_w(c), c);
    if (c->din[2].p) team_run(c->team, bias_member, (void *)(uintptr_t)c);
}
