/* SPDX-License-Identifier: Apache-2.0 */
/* LINEAR, GROUPED, LINEAR_SCALED and GROUPED_SCALED with the sums of accumulate.h: families that stand in front of the
 * table's where numerics.accumulate says so (kernel_table_accumulate). LINEAR_SCALED's are sums of FP8 products, scaled
 * at the end by the product of both descales, or by fma of each block's: as cuBLAS has it on an H100, to the bit
 * (tests/kernel/test_accumulate.c).
 *
 * Eight rows of the result at a time: their operands and those of one column after the other are made ready once. */
#include <math.h>
#include <string.h>

#include "kernel/expert_parts.h"
#include "kernel/ref/accumulate.h"
#include "kernel/ref/ref.h"
#include "layout/format.h"

enum { TILE_ROWS = 8 };

struct acc_side {
    struct view v;
    const struct view *scale; /* NULL: none */
    struct scale_blocks blocks;
    bool depth_dense;
};
struct acc_product {
    int64_t m, n, k;
    struct acc_side a, b;
    struct view to, acc, bias;
    bool fp8;
};

static const struct view *scale_of(const struct kernel_call *c, int i)
{
    return i < c->n_in && c->in[i].nd ? &c->in[i] : NULL;
}

static struct acc_product product_of(const struct kernel_call *c)
{
    const bool scaled = c->op == OP_LINEAR_SCALED, w = c->phase == KERNEL_BWD_W, fwd = c->phase == KERNEL_FWD;
    const struct linear_scaled_attrs none = {0}, *at = scaled ? at_linear_scaled(&c->at) : &none;
    const struct acc_side x = {c->in[0], scaled ? scale_of(c, 3) : NULL, at->x, fwd},
                          y = {c->in[1], scaled ? scale_of(c, 4) : NULL, at->w, fwd},
                          d = {c->dout[0], scaled ? scale_of(c, 5) : NULL, at->dy, !w};
    return (struct acc_product){.m = w ? c->in[1].n[0] : c->in[0].n[0],
                                .n = fwd ? c->in[1].n[0] : c->in[0].n[1],
                                .k = fwd ? c->in[0].n[1]
                                     : w ? c->in[0].n[0]
                                         : c->in[1].n[0],
                                .a = fwd ? x : d,
                                .b = w ? x : y,
                                .to = fwd ? c->out[0] : c->din[w],
                                .acc = fwd ? (struct view){0} : c->acc[w],
                                .bias = fwd && c->n_in > 2 ? c->in[2] : (struct view){0},
                                .fp8 = scaled};
}

static int lowest_of(const struct acc_side *s)
{
    if (s->blocks.of != FORMAT_F16) return format_info(s->blocks.of).lowest;
    return s->v.dtype == DT_F16 ? -14 : -126;
}

/* Depth of a lane (a row of A, a column of B), ready. */
static void make_ready(struct accumulate_term *to, const struct acc_side *s, int64_t lane, int64_t k)
{
    const int lowest = lowest_of(s);
    for (int64_t i = 0; i < k; i++)
        to[i] = accumulate_term((float)(s->depth_dense ? ref_get(&s->v, lane, i) : ref_get(&s->v, i, lane)), lowest);
}

static float descale_at(const struct acc_side *s, int64_t lane, int64_t depth)
{
    if (!s->scale) return 1;
    if (s->scale->nd == 1) return *(const float *)s->scale->p;
    const int64_t r = s->depth_dense ? lane : depth, c = s->depth_dense ? depth : lane;
    return (float)ref_get(s->scale, (s->blocks.row_at + r) / s->blocks.rows, (s->blocks.col_at + c) / s->blocks.cols);
}

/* Where the block of depth i ends; without blocks: the end. */
static int64_t block_end(const struct acc_product *p, int64_t i)
{
    int64_t end = p->k;
    for (int side = 0; side < 2; side++) {
        const struct acc_side *s = side ? &p->b : &p->a;
        if (!s->scale || s->scale->nd == 1) continue;
        int64_t each = s->depth_dense ? s->blocks.cols : s->blocks.rows;
        int64_t from = s->depth_dense ? s->blocks.col_at : s->blocks.row_at;
        int64_t e = i + each - (from + i) % each;
        if (e < end) end = e;
    }
    return end;
}

static float sum_of(const struct acc_product *p, const struct accumulate_way *way, const struct accumulate_term *a,
                    const struct accumulate_term *b, int64_t row, int64_t col)
{
    const struct accumulate_unit *u = p->fp8 ? &way->fp8 : &way->wide;
    const int promoted = p->fp8 ? way->promoted : 0;
    if (block_end(p, 0) == p->k && !(p->a.scale && p->a.scale->nd == 2) && !(p->b.scale && p->b.scale->nd == 2)) {
        float sum = accumulate_chain(u, promoted, a, b, p->k);
        return p->fp8 ? sum * (descale_at(&p->a, row, 0) * descale_at(&p->b, col, 0)) : sum;
    }
    float total = 0;
    for (int64_t i = 0, end; i < p->k; i = end) {
        end = block_end(p, i);
        float part = accumulate_chain(u, promoted, a + i, b + i, end - i);
        total = fmaf(part, descale_at(&p->a, row, i) * descale_at(&p->b, col, i), total);
    }
    return total;
}

static void some_rows(const struct kernel_call *c, const struct accumulate_way *way, int64_t i, double *mine)
{
    const struct acc_product p = product_of(c);
    struct accumulate_term *const a = (struct accumulate_term *)(void *)mine, *const b = a + TILE_ROWS * p.k;
    const int64_t first = i * TILE_ROWS, end = first + TILE_ROWS < p.m ? first + TILE_ROWS : p.m;
    for (int64_t r = first; r < end; r++) make_ready(a + (r - first) * p.k, &p.a, r, p.k);
    for (int64_t j = 0; j < p.n; j++) {
        make_ready(b, &p.b, j, p.k);
        for (int64_t r = first; r < end; r++) {
            float sum = sum_of(&p, way, a + (r - first) * p.k, b, r, j);
            if (p.bias.nd) sum += (float)ref_get(&p.bias, 0, j);
            if (p.acc.p) sum += (float)ref_get(&p.acc, r, j);
            ref_set(&p.to, r, j, (double)sum);
        }
    }
}

_Static_assert(sizeof(struct accumulate_term) == sizeof(double), "scratch is counted in doubles");
static size_t scratch(const struct kernel_call *c, int n_threads)
{
    const int64_t n = c->in[1].n[0], k = c->in[0].n[1], t = c->in[0].n[0];
    const int64_t depth = c->phase == KERNEL_FWD ? k : c->phase == KERNEL_BWD_IN ? n : t;
    return ref_scratch((TILE_ROWS + 1) * depth, n_threads);
}

static void bias_sums(const struct kernel_call *c)
{
    for (int64_t n = 0; n < c->in[1].n[0]; n++) {
        double sum = 0;
        for (int64_t t = 0; t < c->in[0].n[0]; t++) sum += ref_get(&c->dout[0], t, n);
        ref_put_grad(c, 2, 0, n, sum);
    }
}

static void run_linear(const struct kernel_call *c, ref_row_fn *rows)
{
    const struct acc_product p = product_of(c);
    if (p.to.p) ref_each_row(c, (p.m + TILE_ROWS - 1) / TILE_ROWS, (TILE_ROWS + 1) * p.k, rows);
    if (c->op == OP_LINEAR && c->phase == KERNEL_BWD_W && c->din[2].p) bias_sums(c);
}

/* ---- GROUPED: a LINEAR per expert ---- */
static void from_row(struct view *v, int64_t row, int64_t n)
{
    if (v->p) v->p = (char *)v->p + (size_t)(row * v->stride) * dtype_bytes(v->dtype);
    v->n[0] = n;
}

static void run_grouped(const struct kernel_call *c, ref_row_fn *rows)
{
    const bool w = c->phase == KERNEL_BWD_W;
    const int64_t n = c->in[1].n[0] / view_cols(&c->in[2]);
    int64_t first = 0;
    for (int64_t e = 0; e < view_cols(&c->in[2]); e++) {
        struct kernel_call one = *c;
        const int64_t here = ref_int(&c->in[2], e);
        CHECK(here >= 0 && first + here <= c->in[0].n[0], "expert %lld has too many rows", (long long)e);
        one.op = OP_LINEAR;
        one.at = ATTRS(linear, 0);
        one.n_in = 2;
        from_row(&one.in[0], first, here);
        from_row(&one.out[0], first, here);
        from_row(&one.dout[0], first, here);
        from_row(&one.din[0], first, here);
        from_row(&one.acc[0], first, here);
        from_row(&one.in[1], e * n, n);
        from_row(&one.din[1], e * n, n);
        from_row(&one.acc[1], e * n, n);
        run_linear(&one, rows);
        first += here;
    }
    const struct view *to = c->phase == KERNEL_FWD ? &c->out[0] : &c->din[0], *acc = &c->acc[0];
    for (int64_t r = first; !w && to->p && r < to->n[0]; r++)
        for (int64_t k = 0; k < to->n[1]; k++)
            ref_set(to, r, k, c->phase == KERNEL_BWD_IN && acc->p ? ref_get(acc, r, k) : 0);
}

static void one_part(const struct kernel_call *one, int64_t depth, const void *rows)
{
    (void)depth;
    run_linear(one, *(ref_row_fn *const *)rows);
}

static bool takes(const struct kernel_call *c)
{
    return c->in[0].dtype == c->in[1].dtype && (c->in[0].dtype == DT_BF16 || c->in[0].dtype == DT_F16);
}
static bool takes_none(const struct kernel_call *c)
{
    (void)c;
    return false;
}

#define WAY(i)                                                                                                         \
    static void rows_##i(const struct kernel_call *c, int64_t row, double *mine)                                       \
    {                                                                                                                  \
        some_rows(c, &accumulate_ways[i], row, mine);                                                                  \
    }                                                                                                                  \
    static void linear_##i(const struct kernel_call *c) { run_linear(c, rows_##i); }                                   \
    static void grouped_##i(const struct kernel_call *c) { run_grouped(c, rows_##i); }                                 \
    static void parts_##i(const struct kernel_call *c)                                                                 \
    {                                                                                                                  \
        ref_row_fn *const rows = rows_##i;                                                                             \
        parts_products(c, one_part, &rows);                                                                            \
    }
WAY(0)
WAY(1)
WAY(2)
WAY(3)
#define THREE(fn, takes_it)                                                                                            \
    {                                                                                                                  \
        [KERNEL_FWD] = {fn, scratch, takes_it, NULL}, [KERNEL_BWD_IN] = {fn, scratch, takes_it, NULL},                 \
        [KERNEL_BWD_W] = {fn, scratch, takes_it, NULL},                                                                \
    }
#define FAMILY(i, text, fp8)                                                                                           \
    {                                                                                                                  \
        .name = text,                                                                                                  \
        .slot = {[OP_LINEAR] = THREE(linear_##i, takes),                                                               \
                 [OP_GROUPED] = THREE(grouped_##i, takes),                                                             \
                 [OP_LINEAR_SCALED] = THREE(linear_##i, fp8),                                                          \
                 [OP_GROUPED_SCALED] = THREE(parts_##i, fp8)},                                                         \
    }

static const struct kernel_family families[ACCUMULATE_WAYS] = {
    FAMILY(0, "hopper-bf16", takes_none),
    FAMILY(1, "hopper-fp8", takes),
    FAMILY(2, "hopper-fp8-promoted", takes),
    FAMILY(3, "ampere-bf16", takes_none),
};

int kernel_table_accumulate(struct kernel_table *t, const char *way, struct err *e)
{
    if (!strcmp(way, "fp32")) return OK;
    for (int i = 0; i < ACCUMULATE_WAYS; i++) {
        if (strcmp(way, families[i].name)) continue;
        memmove(&t->chain[1], &t->chain[0], sizeof t->chain - sizeof *t->chain);
        t->chain[0] = &families[i];
        return OK;
    }
    return err_set(e, ERR_REQUEST,
                   "accumulation: wanted fp32, hopper-bf16, hopper-fp8, hopper-fp8-promoted or ampere-bf16, got %s",
                   way);
}
