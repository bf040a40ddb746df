/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* test_gemm_tile.c: every row of the tile table that this CPU can run: panels hold each element exactly where
 * tile.h says and zeros elsewhere, products match sums in double, what is added to C is summed by itself first, nothing
 * outside C is touched. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernel/cpu/tile/tile.h"

static float random_value(int64_t i) { return (float)(rng_uniform(7, 1, (uint64_t)i) * 2 - 1); }

static void put(void *p, enum dtype t, int64_t i, float v)
{
    if (t == DT_F32) ((float *)p)[i] = v;
    else ((uint16_t *)p)[i] = t == DT_BF16 ? bf16_from_f32(v) : f16_from_f32(v);
}
static float get(const void *p, enum dtype t, int64_t i)
{
    if (t == DT_F32) return ((const float *)p)[i];
    uint16_t u = ((const uint16_t *)p)[i];
    return t == DT_BF16 ? bf16_to_f32(u) : f16_to_f32(u);
}

static struct tile_src source_new(enum dtype t, bool depth_dense, int64_t lanes, int64_t depth)
{
    struct tile_src s = {.dtype = t, .depth_dense = depth_dense, .stride = (depth_dense ? depth : lanes) + 3};
    int64_t n = s.stride * (depth_dense ? lanes : depth);
    void *p = xmalloc((size_t)n * dtype_bytes(t));
    for (int64_t i = 0; i < n; i++) put(p, t, i, random_value(i + depth * 1000));
    s.p = p;
    return s;
}
static float source_at(const struct tile_src *s, int64_t l, int64_t d)
{
    return get(s->p, s->dtype, s->depth_dense ? l * s->stride + d : d * s->stride + l);
}

static void check_panels(const struct tile_ops *o, const struct tile_src *s, const void *panels, int64_t lanes,
                         int64_t depth, int width, int group)
{
    int64_t pad = tile_depth(o, depth);
    for (int64_t l = 0; l < (lanes + width - 1) / width * width; l++)
        for (int64_t d = 0; d < pad; d++) {
            float want = l < lanes && d < depth ? source_at(s, l, d) : 0;
            if (o->panel == DT_BF16) want = bf16_to_f32(bf16_from_f32(want));
            int64_t at = (l / width) * width * pad + ((d / group) * width + l % width) * group + d % group;
            float is = get(panels, o->panel, at);
            if (is != want) fail_msg("%s: lane %ld depth %ld: %g, want %g", o->name, (long)l, (long)d, is, want);
        }
}

static const struct {
    int64_t m, n, depth;
} shapes[] = {
    {1, 1, 1}, {14, 32, 16}, {13, 31, 17}, {15, 33, 63}, {32, 32, 64}, {47, 50, 65}, {29, 96, 130}, {64, 65, 31},
};
static const struct {
    enum dtype a, b;
} types[] = {
    {DT_F32, DT_F32}, {DT_BF16, DT_BF16}, {DT_F32, DT_BF16}, {DT_BF16, DT_F32}, {DT_F16, DT_F16},
};

static void one_block(const struct tile_ops *o, enum dtype ta, enum dtype tb, bool a_dense, bool b_dense, int64_t m,
                      int64_t n, int64_t depth)
{
    struct tile_src a = source_new(ta, a_dense, m, depth), b = source_new(tb, b_dense, n, depth);
    size_t a_bytes = tile_a_bytes(o, m, depth), b_bytes = tile_b_bytes(o, n, depth);
    void *pa = mem_pages_new(a_bytes), *pb = mem_pages_new(b_bytes);
    memset(pa, 0xff, a_bytes);
    memset(pb, 0xff, b_bytes);
    o->pack_a(pa, a, m, depth);
    o->pack_b(pb, b, n, depth);
    check_panels(o, &a, pa, m, depth, o->mr, o->group_a);
    check_panels(o, &b, pb, n, depth, o->nr, o->group_b);

    int64_t ldc = n + 2;
    float *c = xmalloc((size_t)(m * ldc) * sizeof *c), *alone = xmalloc((size_t)(m * ldc) * sizeof *c);
    for (int add = 0; add <= 1; add++) {
        for (int64_t i = 0; i < m * ldc; i++) c[i] = 0.5f;
        o->begin();
        tile_block(o, c, ldc, pa, pb, m, n, depth, add);
        o->end();
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < ldc; j++) {
                double want = j < n && !add ? 0 : 0.5;
                for (int64_t d = 0; j < n && d < depth; d++) {
                    float x = source_at(&a, i, d), y = source_at(&b, j, d);
                    if (o->panel == DT_BF16) x = bf16_to_f32(bf16_from_f32(x)), y = bf16_to_f32(bf16_from_f32(y));
                    want += (double)x * y;
                }
                if (fabs(c[i * ldc + j] - want) > 1e-5 * (1 + sqrt((double)depth)))
                    fail_msg("%s: %ldx%ldx%ld add %d at %ld,%ld: %g, want %g", o->name, (long)m, (long)n, (long)depth,
                             add, (long)i, (long)j, c[i * ldc + j], want);
                /* what is added on is summed by itself first */
                if (j < n && add && c[i * ldc + j] != 0.5f + alone[i * ldc + j])
                    fail_msg("%s: %ldx%ldx%ld at %ld,%ld: %.9g, alone %.9g", o->name, (long)m, (long)n, (long)depth,
                             (long)i, (long)j, c[i * ldc + j], alone[i * ldc + j]);
            }
        memcpy(alone, c, (size_t)(m * ldc) * sizeof *c);
    }
    xfree(alone);
    mem_pages_free(pa, a_bytes);
    mem_pages_free(pb, b_bytes);
    xfree(c);
    xfree((void *)(uintptr_t)a.p);
    xfree((void *)(uintptr_t)b.p);
}

static void test_blocks(void **state)
{
    (void)state;
    for (int r = 0; tile_ops_at(r); r++) {
        const struct tile_ops *o = tile_ops_at(r);
        if (o->needs > cpu_isa()) continue;
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            if (o->panel == DT_BF16 && types[t].a == DT_F16) continue;
            for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
                for (int order = 0; order < 4; order++)
                    one_block(o, types[t].a, types[t].b, order & 1, order & 2, shapes[s].m, shapes[s].n,
                              shapes[s].depth);
        }
    }
}

static void test_dot(void **state)
{
    (void)state;
    for (int r = 0; tile_ops_at(r); r++) {
        const struct tile_ops *o = tile_ops_at(r);
        if (o->needs > cpu_isa()) continue;
        for (int ti = 0; ti < 2; ti++)
            for (int m = 1; m <= TILE_DOT_ROWS; m++)
                for (int64_t n = 1; n <= 9; n += 4)
                    for (int64_t depth = 1; depth < 200; depth += 33) {
                        enum dtype t = ti ? DT_BF16 : DT_F32;
                        struct tile_src x = source_new(t, true, m, depth), w = source_new(t, true, n, depth);
                        float y[TILE_DOT_ROWS * 12];
                        for (int i = 0; i < TILE_DOT_ROWS * 12; i++) y[i] = -1;
                        o->dot(y, 12, x.p, x.stride, w.p, w.stride, t, m, n, depth);
                        for (int i = 0; i < TILE_DOT_ROWS; i++)
                            for (int64_t j = 0; j < 12; j++) {
                                double want = 0;
                                for (int64_t d = 0; d < depth && i < m && j < n; d++)
                                    want += (double)source_at(&x, i, d) * source_at(&w, j, d);
                                if (i >= m || j >= n) want = -1;
                                if (fabs(y[i * 12 + j] - want) > 1e-4) fail_msg("%s dot %d,%ld", o->name, i, (long)j);
                            }
                        xfree((void *)(uintptr_t)x.p);
                        xfree((void *)(uintptr_t)w.p);
                    }
    }
}

static void test_finish(void **state)
{
    (void)state;
    const enum dtype all[] = {DT_F32, DT_BF16, DT_F16};
    float t[5 * 40], bias[32], acc[5 * 40];
    for (int i = 0; i < 200; i++) t[i] = random_value(i), acc[i] = bf16_to_f32(bf16_from_f32(random_value(i + 500)));
    for (int i = 0; i < 32; i++) bias[i] = random_value(i + 900);
    t[3] = NAN;
    for (int r = 0; tile_ops_at(r); r++) {
        const struct tile_ops *o = tile_ops_at(r);
        if (o->needs > cpu_isa()) continue;
        for (int ct = 0; ct < 3; ct++)
            for (int cols = 1; cols <= o->nr; cols += 3)
                for (int mode = 0; mode < 4; mode++) {
                    char c[5 * 33 * 4];
                    memset(c, 0x11, sizeof c);
                    struct tile_out out = {.c = c, .c_dtype = all[ct], .ldc = 33};
                    if (mode & 1) out.bias = bias;
                    if (mode & 2) out.acc = acc, out.ldacc = 40;
                    o->finish(t, 40, 5, cols, &out);
                    for (int i = 0; i < 5; i++)
                        for (int j = 0; j < 33; j++) {
                            char want[4];
                            memset(want, 0x11, 4);
                            float v = t[i * 40 + j];
                            if (mode & 1 && j < cols) v += bias[j];
                            if (mode & 2) v += acc[i * 40 + j];
                            if (j < cols) put(want, all[ct], 0, v);
                            size_t each = dtype_bytes(all[ct]);
                            if (memcmp(want, c + (size_t)(i * 33 + j) * each, each))
                                fail_msg("%s: finish to %s at %d,%d", o->name, dtype_name(all[ct]), i, j);
                        }
                }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_dot),
        cmocka_unit_test(test_finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
