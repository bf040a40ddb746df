/* SPDX-License-Identifier: Apache-2.0 */
/* scaled.c: LINEAR_SCALED's three directions on gemm.h, and GROUPED_SCALED's, which are those of its parts: LINEAR's
 * products (linear.c) of quantised operands, which bf16 holds exactly, so that bf16 units do the work of narrower ones.
 *
 * One number per operand (or none) is a factor on the f32 sums where a tile of C is finished: free. One per block and
 * operand: the sums of each block of depth are made by themselves and added up with their scales (gemm.c), which costs
 * a pass over C's stand-in for every block of depth. Both as an H100's cuBLAS does it: the two descales are multiplied
 * first, in fp32, then with the sum. Blocks of other depths than the other operand's fall through to the reference. */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/tile/gemm.h"
#include "kernel/cpu/tile/tile_rows.h"
#include "kernel/expert_parts.h"

/* The operands of a direction: A's rows are C's rows, B's its columns. */
struct side {
    const struct view *v, *scale;
    const struct scale_blocks *blocks;
    bool depth_dense;
};

static struct side side_of(const struct kernel_call *c, bool left)
{
    static const struct view none;
    const struct linear_scaled_attrs *at = at_linear_scaled(&c->at);
    const struct view *s[3] = {c->n_in > 3 ? &c->in[3] : &none, c->n_in > 4 ? &c->in[4] : &none,
                               c->n_in > 5 ? &c->in[5] : &none};
    const struct side x = {&c->in[0], s[0], &at->x, c->phase == KERNEL_FWD};
    const struct side w = {&c->in[1], s[1], &at->w, c->phase == KERNEL_FWD};
    const struct side dy = {&c->dout[0], s[2], &at->dy, c->phase == KERNEL_BWD_IN};
    if (left) return c->phase == KERNEL_FWD ? x : dy;
    return c->phase == KERNEL_BWD_W ? x : w;
}

static bool by_blocks(const struct side *s) { return s->scale->nd == 2; }

/* What lies along depth of an operand: its columns or its rows. */
static struct gemm_scales scales_of(const struct side *s)
{
    const struct scale_blocks *b = s->blocks;
    const struct view *v = s->scale;
    struct gemm_scales out = {.p = v->p, .lanes = 1, .depth = 1};
    if (!by_blocks(s)) return out; /* one number: steps of 0 */
    if (s->depth_dense)
        return (struct gemm_scales){.p = v->p,
                                    .lane_step = v->stride,
                                    .depth_step = 1,
                                    .lanes = b->rows,
                                    .depth = b->cols,
                                    .lane_at = b->row_at,
                                    .depth_at = b->col_at};
    return (struct gemm_scales){.p = v->p,
                                .lane_step = 1,
                                .depth_step = v->stride,
                                .lanes = b->cols,
                                .depth = b->rows,
                                .lane_at = b->col_at,
                                .depth_at = b->row_at};
}

static struct tile_src source(const struct side *s)
{
    return (struct tile_src){.p = s->v->p, .dtype = s->v->dtype, .stride = s->v->stride, .depth_dense = s->depth_dense};
}

static struct tile_out target(const struct kernel_call *c)
{
    const struct view *to = c->phase == KERNEL_FWD ? &c->out[0] : &c->din[c->phase == KERNEL_BWD_W];
    const struct view *acc = c->phase == KERNEL_FWD ? NULL : &c->acc[c->phase == KERNEL_BWD_W];
    struct tile_out o = {.c = to->p, .c_dtype = to->dtype, .ldc = to->stride};
    if (acc && acc->p) {
        o.acc = acc->p;
        o.acc_dtype = acc->dtype;
        o.ldacc = acc->stride;
    }
    if (c->phase == KERNEL_FWD && c->n_in > 2 && c->in[2].nd) {
        o.bias = c->in[2].p;
        o.bias_dtype = c->in[2].dtype;
    }
    return o;
}

/* All but the values of scales: shapes alone, as the planner asks. one: what an absent scale is. */
static struct gemm product(const struct kernel_call *c, const float *one)
{
    const struct side a = side_of(c, true), b = side_of(c, false);
    const struct view *x = &c->in[0], *w = &c->in[1];
    struct gemm g = {.m = c->phase == KERNEL_BWD_W ? w->n[0] : x->n[0],
                     .n = c->phase == KERNEL_FWD ? w->n[0] : x->n[1],
                     .k = c->phase == KERNEL_FWD      ? x->n[1]
                          : c->phase == KERNEL_BWD_IN ? w->n[0]
                                                      : x->n[0],
                     .a = source(&a),
                     .b = source(&b),
                     .out = target(c),
                     .blocks = by_blocks(&a) || by_blocks(&b)};
    if (!g.blocks) {
        g.out.scaled = a.scale->nd || b.scale->nd;
        return g;
    }
    g.scale_a = scales_of(&a);
    g.scale_b = scales_of(&b);
    if (!a.scale->nd) g.scale_a.p = one;
    if (!b.scale->nd) g.scale_b.p = one;
    struct gemm_scales *single = !by_blocks(&a) ? &g.scale_a : !by_blocks(&b) ? &g.scale_b : NULL;
    if (single) { /* the same number for all blocks of the other */
        const struct gemm_scales *other = single == &g.scale_a ? &g.scale_b : &g.scale_a;
        single->depth = other->depth;
        single->depth_at = other->depth_at;
    }
    return g;
}

static bool accepted(const struct kernel_call *c)
{
    const struct view *x = &c->in[0], *w = &c->in[1];
    if (cpu_isa() <= ISA_REF || x->n[0] < 1 || x->n[1] < 1 || w->n[0] < 1) return false;
    const struct gemm g = product(c, NULL);
    return !g.blocks || (g.scale_a.depth == g.scale_b.depth && g.scale_a.depth_at == g.scale_b.depth_at);
}

/* ---- ways ---- */
static size_t scratch(const struct kernel_call *c, const struct tile_ops *o, int n_threads)
{
    const struct gemm g = product(c, NULL);
    return gemm_scratch(o, &g, n_threads);
}

/* k_whole: as struct gemm has it. */
static void run_part(const struct kernel_call *c, const struct tile_ops *o, bool few, int64_t k_whole)
{
    static const float one = 1;
    struct gemm g = product(c, &one);
    if (!g.out.c) return;
    g.k_whole = g.blocks ? 0 : k_whole;
    if (g.out.scaled) {
        const struct view *a = side_of(c, true).scale, *b = side_of(c, false).scale;
        g.out.factor = (a->nd ? *(const float *)a->p : 1) * (b->nd ? *(const float *)b->p : 1);
    }
    if (few) gemm_few_rows(o, &g, kernel_team(c));
    else gemm_run(o, &g, c->scratch, kernel_team(c));
}

static void run(const struct kernel_call *c, const struct tile_ops *o, bool few) { run_part(c, o, few, 0); }

/* ---- of experts: part by part, in rounds as one call for all of an expert's rows would (grouped.c) ---- */
static void one_part(const struct kernel_call *c, int64_t depth, const void *arg)
{
    const struct tile_ops *o = arg;
    struct gemm all = product(c, NULL);
    all.m = depth;
    bool few = c->phase == KERNEL_FWD && !all.blocks && gemm_is_few_rows(o, &all);
    run_part(c, o, few, c->phase == KERNEL_BWD_W ? depth : 0);
}

static size_t scratch_parts(const struct kernel_call *c, const struct tile_ops *o, int n_threads)
{
    const struct kernel_call whole = parts_product_whole(c);
    const struct gemm g = product(&whole, NULL);
    return gemm_scratch_most(o, &g, n_threads);
}

struct ways {
    const struct tile_ops *o;
    struct kernel_slot few, one, blocks, parts, parts_blocks;
};

#define FUNCTIONS(isa, name, panels)                                                                                   \
    static void few_##isa(const struct kernel_call *c) { run(c, &tile_ops_##isa, true); }                              \
    static void run_##isa(const struct kernel_call *c) { run(c, &tile_ops_##isa, false); }                             \
    static size_t scratch_##isa(const struct kernel_call *c, int n) { return scratch(c, &tile_ops_##isa, n); }         \
    static void parts_##isa(const struct kernel_call *c) { parts_products(c, one_part, &tile_ops_##isa); }             \
    static size_t scratch_parts_##isa(const struct kernel_call *c, int n)                                              \
    {                                                                                                                  \
        return scratch_parts(c, &tile_ops_##isa, n);                                                                   \
    }                                                                                                                  \
    static struct depth_rule depth_##isa(const struct kernel_call *c)                                                  \
    {                                                                                                                  \
        (void)c;                                                                                                       \
        return gemm_depth(&tile_ops_##isa);                                                                            \
    }
TILE_WAYS(FUNCTIONS)

#define ROW(isa, name, panels)                                                                                         \
    {&tile_ops_##isa,                                                                                                  \
     {few_##isa, NULL, NULL, name ": few rows, weights in place, scaled at the end", NULL, NULL},                      \
     {run_##isa, scratch_##isa, NULL, name ": packed " panels ", scaled at the end", NULL, NULL},                      \
     {run_##isa, scratch_##isa, NULL, name ": packed " panels ", sums of each block scaled in f32", NULL, NULL},       \
     {parts_##isa, scratch_parts_##isa, NULL,                                                                          \
      name ": by part of an expert, packed " panels ", or weights in place where it has few rows, scaled at the end",  \
      depth_##isa, NULL},                                                                                              \
     {parts_##isa, scratch_parts_##isa, NULL,                                                                          \
      name ": by part of an expert, packed " panels ", sums of each block scaled in f32", NULL, NULL}},
static const struct ways ways[] = {TILE_WAYS(ROW)};

static const struct ways *ways_of(const struct gemm *g, const struct tile_ops **o)
{
    *o = tile_ops_get(g->a.dtype == g->b.dtype ? g->a.dtype : DT_F32);
    const struct ways *w = ways;
    while (w->o != *o && w + 1 < ways + sizeof ways / sizeof *ways) w++;
    CHECK(w->o == *o, "no products by %s", (*o)->name);
    return w;
}

const struct kernel_slot *linear_scaled_choose(const struct kernel_call *c)
{
    const struct tile_ops *o;
    if (!accepted(c)) return NULL;
    const struct gemm g = product(c, NULL);
    const struct ways *w = ways_of(&g, &o);
    return g.blocks ? &w->blocks : gemm_is_few_rows(o, &g) ? &w->few : &w->one;
}

const struct kernel_slot *grouped_scaled_choose(const struct kernel_call *c)
{
    const struct kernel_call whole = parts_product_whole(c);
    const struct tile_ops *o;
    if (!accepted(&whole)) return NULL;
    const struct gemm g = product(&whole, NULL);
    const struct ways *w = ways_of(&g, &o);
    return g.blocks ? &w->parts_blocks : &w->parts;
}
