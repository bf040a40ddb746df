/* SPDX-License-Identifier: Apache-2.0 */
/* test_gemm.c: the blocked product for every row of the tile table that this CPU can run, against sums in double:
 * random odd shapes (several slices of depth, blocks of columns, chunks of rows), four storage orders, element
 * types, bias, the ways to accumulate, strided C; and the same bits from one to three threads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernel/cpu/tile/gemm.h"
#include "sanitized.h"

static uint64_t drawn; /* draws of this program, in order */
static int64_t draw(int64_t n) { return (int64_t)(rng_u64(11, 2, drawn++) % (uint64_t)n); }

static void put(void *p, enum dtype t, int64_t i, float v)
{
    if (t == DT_F32) ((float *)p)[i] = v;
    else ((uint16_t *)p)[i] = t == DT_BF16 ? bf16_from_f32(v) : f16_from_f32(v);
}
static double get(const void *p, enum dtype t, int64_t i)
{
    if (t == DT_F32) return ((const float *)p)[i];
    uint16_t u = ((const uint16_t *)p)[i];
    return t == DT_BF16 ? bf16_to_f32(u) : f16_to_f32(u);
}
static void *random_new(enum dtype t, int64_t n)
{
    char *p = xmalloc((size_t)(n + 1) * dtype_bytes(t));
    for (int64_t i = 0; i < n; i++) put(p, t, i, (float)(rng_uniform(11, 3, drawn + (uint64_t)i) * 2 - 1));
    drawn += (uint64_t)n;
    return p;
}
static struct tile_src source_new(enum dtype t, bool depth_dense, int64_t lanes, int64_t depth)
{
    struct tile_src s = {.dtype = t, .depth_dense = depth_dense, .stride = (depth_dense ? depth : lanes) + draw(5)};
    s.p = random_new(t, s.stride * (depth_dense ? lanes : depth));
    return s;
}
static void source_free(struct tile_src *s) { xfree((void *)(uintptr_t)s->p); }
static double source_at(const struct tile_src *s, int64_t l, int64_t d)
{
    return get(s->p, s->dtype, s->depth_dense ? l * s->stride + d : d * s->stride + l);
}

enum acc_mode { ACC_NONE, ACC_IN_PLACE, ACC_OTHER, ACC_MODES };

static void run(const struct tile_ops *o, const struct gemm *g, struct team *team)
{
    size_t bytes = gemm_scratch(o, g, team_size(team));
    char *scratch = mem_pages_new(bytes + 64);
    memset(scratch, 0xff, bytes + 64); /* NaN: what is not written before use shows */
    gemm_run(o, g, scratch, team);
    for (int i = 0; i < 64; i++)
        if ((unsigned char)scratch[bytes + (size_t)i] != 0xff) fail_msg("%s wrote past its scratch", o->name);
    mem_pages_free(scratch, bytes + 64);
}

static void check(const struct tile_ops *o, const struct gemm *g, const void *before, const char *what)
{
    const struct tile_out *out = &g->out;
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < out->ldc; j++) {
            int64_t at = i * out->ldc + j;
            double is = get(out->c, out->c_dtype, at), want = get(before, out->c_dtype, at), size = 0;
            if (j < g->n) {
                want = out->acc == out->c ? want : out->acc ? get(out->acc, out->acc_dtype, i * out->ldacc + j) : 0;
                if (out->bias) want += get(out->bias, out->bias_dtype, j);
                for (int64_t d = 0; d < g->k; d++) want += source_at(&g->a, i, d) * source_at(&g->b, j, d);
                size = 2e-6 * (1 + sqrt((double)g->k));
                if (out->c_dtype == DT_BF16) size += fabs(want) / 250;
                if (out->c_dtype == DT_F16) size += fabs(want) / 2000;
            }
            if (!(fabs(is - want) <= size))
                fail_msg("%s %s %ldx%ldx%ld at %ld,%ld: %.9g, want %.9g", o->name, what, (long)g->m, (long)g->n,
                         (long)g->k, (long)i, (long)j, is, want);
        }
}

static void one(const struct tile_ops *o, struct team *const teams[3], enum dtype ta, enum dtype tb, int64_t m,
                int64_t n, int64_t k)
{
    const enum dtype outs[] = {DT_F32, DT_BF16, DT_F16};
    struct gemm g = {.m = m, .n = n, .k = k};
    g.a = source_new(ta, draw(2), m, k);
    g.b = source_new(tb, draw(2), n, k);
    g.out.c_dtype = outs[draw(3)];
    g.out.ldc = n + draw(4);
    const size_t each = dtype_bytes(g.out.c_dtype), c_bytes = (size_t)(m * g.out.ldc) * each;
    char *c = xmalloc(c_bytes), *one_thread = xmalloc(c_bytes);
    void *before = random_new(g.out.c_dtype, m * g.out.ldc);
    const enum acc_mode mode = (enum acc_mode)draw(ACC_MODES);
    void *other = NULL, *bias = NULL;
    g.out.c = c;
    if (mode == ACC_IN_PLACE) g.out.acc = c, g.out.acc_dtype = g.out.c_dtype, g.out.ldacc = g.out.ldc;
    if (mode == ACC_OTHER) {
        g.out.acc_dtype = outs[draw(2)];
        g.out.ldacc = n + draw(3);
        g.out.acc = other = random_new(g.out.acc_dtype, m * g.out.ldacc);
    }
    if (draw(2)) {
        g.out.bias_dtype = outs[draw(2)];
        g.out.bias = bias = random_new(g.out.bias_dtype, n);
    }
    for (int t = 0; t < 3; t++) {
        memcpy(c, before, c_bytes);
        run(o, &g, teams[t]);
        if (t == 0) {
            check(o, &g, before, mode == ACC_NONE ? "set" : mode == ACC_IN_PLACE ? "in place" : "acc");
            memcpy(one_thread, c, c_bytes);
        } else if (memcmp(one_thread, c, c_bytes)) {
            fail_msg("%s %ldx%ldx%ld: other bits from %d threads", o->name, (long)m, (long)n, (long)k, t + 1);
        }
    }
    source_free(&g.a);
    source_free(&g.b);
    xfree(c);
    xfree(one_thread);
    xfree(before);
    xfree(other);
    xfree(bias);
}

/* A Gram matrix has below its diagonal the bits of the product of its operand with itself, above it the same once more;
 * on any team. */
static void gram(const struct tile_ops *o, struct team *const teams[3], enum dtype t, int64_t m, int64_t k)
{
    const enum dtype outs[] = {DT_F32, DT_BF16, DT_F16};
    struct gemm g = {.m = m, .n = m, .k = k};
    g.a = g.b = source_new(t, draw(2), m, k);
    g.out.c_dtype = outs[draw(3)];
    g.out.ldc = m + draw(4);
    const size_t c_bytes = (size_t)(m * g.out.ldc) * dtype_bytes(g.out.c_dtype);
    char *c = random_new(g.out.c_dtype, m * g.out.ldc), *whole = xmalloc(c_bytes), *before = xmalloc(c_bytes);
    memcpy(before, c, c_bytes);
    g.out.c = memcpy(whole, c, c_bytes);
    run(o, &g, teams[0]);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = i + 1; j < m; j++)
            put(whole, g.out.c_dtype, i * g.out.ldc + j, (float)get(whole, g.out.c_dtype, j * g.out.ldc + i));
    g.out.c = c;
    g.gram = true;
    for (int i = 0; i < 3; i++) {
        memcpy(c, before, c_bytes);
        run(o, &g, teams[i]);
        if (memcmp(c, whole, c_bytes))
            fail_msg("%s: Gram matrix %ldx%ld on %d threads has other bits", o->name, (long)m, (long)k, i + 1);
    }
    source_free(&g.a);
    xfree(c);
    xfree(whole);
    xfree(before);
}

static void test_grams(void **state)
{
    (void)state;
    struct team *teams[3] = {NULL, team_new(2), team_new(3)};
    for (int r = 0; tile_ops_at(r); r++) {
        const struct tile_ops *o = tile_ops_at(r);
        if (o->needs > cpu_isa()) continue;
        for (int i = 0; i < 30 / CASE_STRIDE; i++)
            gram(o, teams, draw(2) ? DT_BF16 : DT_F32, 1 + draw(i % 3 ? 150 : 400), 1 + draw(i % 4 ? 200 : 900));
    }
    if (!TUTTI_EMULATED) gram(tile_ops_get(DT_BF16), teams, DT_BF16, 2300, 700); /* chunks of rows, blocks of columns */
    for (int t = 1; t < 3; t++) team_free(teams[t]);
}

static void test_products(void **state)
{
    (void)state;
    struct team *teams[3] = {NULL, team_new(2), team_new(3)};
    const struct {
        enum dtype a, b;
    } types[] = {
        {DT_BF16, DT_BF16}, {DT_F32, DT_F32}, {DT_F32, DT_BF16}, {DT_BF16, DT_F32}, {DT_F16, DT_F16},
    };
    for (int r = 0; tile_ops_at(r); r++) {
        const struct tile_ops *o = tile_ops_at(r);
        if (o->needs > cpu_isa()) continue;
        for (int i = 0; i < 60 / CASE_STRIDE; i++) {
            size_t t = (size_t)draw(o->panel == DT_BF16 ? 1 : 5);
            one(o, teams, types[t].a, types[t].b, 1 + draw(90), 1 + draw(110), 1 + draw(i % 3 ? 70 : 900));
        }
        one(o, teams, DT_BF16, DT_BF16, 1, 1, 1);
        one(o, teams, DT_BF16, DT_BF16, 3, o->nr, o->kc);
        one(o, teams, DT_BF16, DT_BF16, o->mr, 5, o->kc + 1);
    }
    team_free(teams[1]);
    team_free(teams[2]);
}

/* More rows, columns and depth than one chunk, block and slice: the loops around the loops. */
static void test_many_blocks(void **state)
{
    (void)state;
    if (TUTTI_EMULATED) skip(); /* 15 billion products */
    struct team *teams[3] = {NULL, team_new(2), team_new(3)};
    const struct tile_ops *const best[] = {tile_ops_get(DT_F32), tile_ops_get(DT_BF16)};
    for (int i = 0; i < 2; i++)
        for (int narrow = 0; narrow < 2; narrow++) {
            const struct tile_ops *o = best[i];
            struct gemm g = {.m = narrow ? 2500 : 700, .n = narrow ? 1100 : o->nc + 70, .k = o->kc + 40};
            enum dtype t = o->panel;
            g.a = source_new(t, true, g.m, g.k);
            g.b = source_new(t, false, g.n, g.k);
            g.out.c_dtype = narrow ? DT_BF16 : DT_F32;
            g.out.ldc = g.n;
            const size_t c_bytes = (size_t)(g.m * g.n) * dtype_bytes(g.out.c_dtype);
            char *c = xmalloc(c_bytes), *first = xmalloc(c_bytes);
            for (int team = 0; team < 3; team++) {
                g.out.c = team ? c : first;
                run(o, &g, teams[team]);
                if (team && memcmp(c, first, c_bytes)) fail_msg("%s: other bits from %d threads", o->name, team + 1);
            }
            for (int probe = 0; probe < 4000; probe++) {
                int64_t row = draw(g.m), col = draw(g.n);
                double want = 0, is = get(c, g.out.c_dtype, row * g.n + col);
                for (int64_t d = 0; d < g.k; d++) want += source_at(&g.a, row, d) * source_at(&g.b, col, d);
                if (!(fabs(is - want) <= 1e-4 + (narrow ? fabs(want) / 250 : 0)))
                    fail_msg("%s at %ld,%ld: %g, want %g", o->name, (long)row, (long)col, is, want);
            }
            source_free(&g.a);
            source_free(&g.b);
            xfree(c);
            xfree(first);
        }
    team_free(teams[1]);
    team_free(teams[2]);
}

static void test_few_rows(void **state)
{
    (void)state;
    struct team *teams[3] = {NULL, team_new(2), team_new(3)};
    for (int r = 0; tile_ops_at(r); r++) {
        const struct tile_ops *o = tile_ops_at(r);
        if (o->needs > cpu_isa()) continue;
        for (int i = 0; i < 40 / CASE_STRIDE; i++) {
            struct gemm g = {.m = 1 + draw(o->dot_rows), .n = 1 + draw(300), .k = 1 + draw(200)};
            enum dtype t = draw(2) ? DT_F32 : DT_BF16;
            g.a = source_new(t, true, g.m, g.k);
            g.b = source_new(t, true, g.n, g.k);
            assert_true(gemm_is_few_rows(o, &g));
            g.out.c_dtype = t;
            g.out.ldc = g.n + draw(3);
            void *bias = draw(2) ? random_new(t, g.n) : NULL, *before = random_new(t, g.m * g.out.ldc);
            g.out.bias = bias;
            g.out.bias_dtype = t;
            size_t bytes = (size_t)(g.m * g.out.ldc) * dtype_bytes(t);
            char *c = xmalloc(bytes), *first = xmalloc(bytes);
            for (int team = 0; team < 3; team++) {
                memcpy(c, before, bytes);
                g.out.c = c;
                gemm_few_rows(o, &g, teams[team]);
                if (!team) memcpy(first, c, bytes);
                assert_memory_equal(first, c, bytes);
            }
            check(o, &g, before, "few rows");
            source_free(&g.a);
            source_free(&g.b);
            xfree(bias);
            xfree(before);
            xfree(c);
            xfree(first);
        }
    }
    team_free(teams[1]);
    team_free(teams[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_grams),
        cmocka_unit_test(test_many_blocks),
        cmocka_unit_test(test_few_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
