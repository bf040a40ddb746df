/* SPDX-License-Identifier: Apache-2.0 */
/* GROUPED over some of the experts' rows at a time, cut where the slot says that it may, has the bits of one call for
 * all of them: results row by row, also of experts with few rows, and weight gradients that go on from round to round.
 * Cut elsewhere they are rounded otherwise, and the plain loops round once a call. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernel/kernel.h"

enum { E = 4, K = 19, N = 23 };
static const int64_t whole_E[E] = {3701, 0, 5, 2048};
enum { ROWS = 3701 + 0 + 5 + 2048 };

static struct view matrix(enum dtype t, int64_t rows, int64_t cols, uint64_t stream)
{
    struct view v = {.dtype = t, .nd = 2, .n = {rows, cols}, .stride = cols};
    v.p = xcalloc(to_size(rows * cols), dtype_bytes(t));
    for (int64_t i = 0; stream && i < rows * cols; i++) {
        float x = (float)(rng_u32(3, stream, (uint64_t)i) % 2001) * 0.001f - 1;
        if (t == DT_F32) ((float *)v.p)[i] = x;
        else ((bf16 *)v.p)[i] = bf16_from_f32(x);
    }
    return v;
}

struct grouped {
    struct view x, w, dy, y, dx, dw;
};

static struct view rows_of(struct view v, int64_t first, int64_t n)
{
    v.p = (char *)v.p + to_size(first * v.stride) * dtype_bytes(v.dtype);
    v.n[0] = n;
    return v;
}

/* Rows [lo, hi) of all, the three directions; adds to dw but in the first. */
static void run(const struct kernel_table *t, const struct grouped *g, int64_t lo, int64_t hi)
{
    int32_t rows[2 * E];
    int64_t first = 0;
    for (int e = 0; e < E; first += whole_E[e++]) {
        int64_t a = first > lo ? first : lo, b = first + whole_E[e] < hi ? first + whole_E[e] : hi;
        rows[e] = (int32_t)(b > a ? b - a : 0);
        rows[E + e] = (int32_t)whole_E[e];
    }
    struct kernel_call c = {.op = OP_GROUPED, .n_in = 3, .n_out = 1, .at = ATTRS(grouped, 0)};
    c.in[0] = rows_of(g->x, lo, hi - lo);
    c.in[1] = g->w;
    c.in[2] = (struct view){.p = rows, .dtype = DT_I32, .nd = 2, .n = {2, E}, .stride = E};
    c.out[0] = rows_of(g->y, lo, hi - lo);
    c.dout[0] = rows_of(g->dy, lo, hi - lo);
    c.din[0] = rows_of(g->dx, lo, hi - lo);
    c.din[1] = g->dw;
    if (lo) c.acc[1] = g->dw;
    struct stream here = kernel_here(team_new(1));
    c.stream = &here;
    for (int ph = 0; ph < KERNEL_N_PHASES; ph++) {
        c.phase = (enum kernel_phase)ph;
        c.scratch_bytes = kernel_scratch(t, &c);
        c.scratch = c.scratch_bytes ? mem_pages_new(c.scratch_bytes) : NULL;
        kernel_run(t, &c);
        if (c.scratch) mem_pages_free(c.scratch, c.scratch_bytes);
    }
    team_free(here.team);
}

static struct grouped new_grouped(enum dtype t)
{
    return (struct grouped){matrix(t, ROWS, K, 1), matrix(t, E * N, K, 2), matrix(t, ROWS, N, 3),
                            matrix(t, ROWS, N, 0), matrix(t, ROWS, K, 0),  matrix(DT_F32, E * N, K, 0)};
}

static void free_grouped(struct grouped *g)
{
    struct view *all[] = {&g->x, &g->w, &g->dy, &g->y, &g->dx, &g->dw};
    for (int i = 0; i < 6; i++) xfree(all[i]->p);
}

static bool same(const struct view *a, const struct view *b)
{
    return !memcmp(a->p, b->p, to_size(a->n[0] * a->n[1]) * dtype_bytes(a->dtype));
}

static struct depth_rule rule_of(const struct kernel_table *t, enum dtype dtype)
{
    struct grouped g = new_grouped(dtype);
    struct kernel_call c = {.op = OP_GROUPED, .phase = KERNEL_BWD_W, .n_in = 3, .n_out = 1, .at = ATTRS(grouped, 0)};
    c.in[0] = g.x;
    c.in[1] = g.w;
    c.in[2] = (struct view){.dtype = DT_I32, .nd = 2, .n = {2, E}, .stride = E};
    c.out[0] = c.dout[0] = g.y;
    c.din[1] = g.dw;
    const struct kernel_slot *s = kernel_find(t, &c, NULL);
    free_grouped(&g);
    return s->depth ? s->depth(&c) : (struct depth_rule){0, 0};
}

static void check(const char *kernels, enum dtype dtype)
{
    struct kernel_table t;
    struct err e = {0};
    assert_int_equal(kernel_table_init(&t, kernels, 1, false, &e), OK);
    struct depth_rule rule = rule_of(&t, dtype);
    struct grouped one = new_grouped(dtype), cut = new_grouped(dtype), off = new_grouped(dtype);
    int64_t slice = depth_slice(rule, whole_E[0]), last = ROWS - whole_E[3] + depth_slice(rule, whole_E[3]);
    int64_t at[] = {0, slice, 2 * slice, whole_E[0], last < ROWS ? last : ROWS - whole_E[3], ROWS};
    run(&t, &one, 0, ROWS);
    for (int i = 0; i < 5; i++) run(&t, &cut, at[i], at[i + 1]);
    run(&t, &off, 0, slice / 2 + 3);
    run(&t, &off, slice / 2 + 3, whole_E[0] + 2); /* in the middle of five rows */
    run(&t, &off, whole_E[0] + 2, ROWS);
    assert_true(same(&one.y, &cut.y) && same(&one.dx, &cut.dx));
    assert_true(same(&one.y, &off.y) && same(&one.dx, &off.dx));
    if (rule.most) assert_true(rule.most <= 1536 && slice < whole_E[0]); /* moe.buffer_least says so many rows */
    if (rule.most && !same(&one.dw, &cut.dw)) fail_msg("%s %s: other bits", kernels, dtype_name(dtype));
    for (int64_t i = 0; i < (int64_t)E * N * K; i++) {
        float want = ((float *)one.dw.p)[i], a = ((float *)cut.dw.p)[i], b = ((float *)off.dw.p)[i];
        if (fabsf(a - want) > 1e-4f || fabsf(b - want) > 1e-4f) fail_msg("%g and %g, wanted %g", a, b, want);
    }
    free_grouped(&one);
    free_grouped(&cut);
    free_grouped(&off);
}

static void test_rounds(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) check(i % 2 ? "ref" : "auto", i / 2 ? DT_BF16 : DT_F32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
