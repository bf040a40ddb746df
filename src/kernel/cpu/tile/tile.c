/* SPDX-License-Identifier: Apache-2.0 */
/* tile.c: which row of functions serves which CPU and type, and products of whole blocks.
 *
 * The choice is a table read from the top: the first row whose panels suit the source and whose level the CPU has.
 * Panels of bf16 pay on AMX (8 times f32) and where vdpbf16ps runs at the rate of a multiply-add (AMD: twice
 * f32). On Intel without usable tiles vdpbf16ps was seen at half that rate, slower than widening to f32, so
 * there bf16 goes through f32 panels.
 */
#include "kernel/cpu/tile/tile.h"

#include "base/isa_built.h"
#include "kernel/cpu/tile/tile_rows.h"

/* clang-format off */
static const struct tile_choice {
    const struct tile_ops *ops;
    bool not_intel; /* pays on other makers' CPUs only */
} choices[] = {
#if defined(__x86_64__)
    IF_AMX({&tile_ops_amx, false},)
    IF_AVX512BF16({&tile_ops_avx512bf16, true},)
    IF_AVX512({&tile_ops_avx512, false},)
    {&tile_ops_avx2, false},
#elif defined(__aarch64__)
    IF_NEONBF16({&tile_ops_neonbf16, false},)
    {&tile_ops_neon, false},
#endif
    {&tile_ops_portable, false},
};
/* clang-format on */

static bool made_by_intel(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_is("intel");
#else
    return false;
#endif
}

const struct tile_ops *tile_ops_get(enum dtype t)
{
    const bool intel = made_by_intel();
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        const struct tile_ops *o = choices[i].ops;
        if (o->panel == DT_BF16 && t != DT_BF16) continue;
        if (choices[i].not_intel && intel) continue;
        if (o->needs <= cpu_isa()) return o;
    }
    return &tile_ops_portable;
}

const struct tile_ops *tile_ops_at(int i)
{
    /* clang-format off */
    static const struct tile_ops *const all[] = {
        &tile_ops_portable,
        &tile_ops_sim,
#if defined(__x86_64__)
        IF_AVX512(&tile_ops_sim512,)
        &tile_ops_avx2,
        IF_AVX512(&tile_ops_avx512,)
        IF_AVX512BF16(&tile_ops_avx512bf16,)
        IF_AMX(&tile_ops_amx,)
#elif defined(__aarch64__)
        &tile_ops_neon,
        IF_NEONBF16(&tile_ops_neonbf16,)
#endif
    };
    /* clang-format on */
    return i >= 0 && (size_t)i < sizeof all / sizeof all[0] ? all[i] : NULL;
}

void tile_block(const struct tile_ops *o, float *c, int64_t ldc, const void *a, const void *b, int64_t m, int64_t n,
                int64_t depth, bool add)
{
    const int64_t pad = tile_depth(o, depth);
    const size_t a_step = tile_a_step(o, depth), b_step = tile_b_step(o, depth);
    for (int64_t j = 0; j < n; j += o->nr, b = (const char *)b + b_step) {
        const int cols = (int)(n - j < o->nr ? n - j : o->nr);
        const char *ai = a;
        for (int64_t i = 0; i < m; i += o->mr, ai += a_step) {
            const int rows = (int)(m - i < o->mr ? m - i : o->mr);
            float *cij = c + i * ldc + j;
            if (cols == o->nr) {
                o->mul(cij, ldc, ai, b, pad, rows, add);
                continue;
            }
            float edge[TILE_MAX_MR * TILE_MAX_NR] __attribute__((aligned(64)));
            o->mul(edge, o->nr, ai, b, pad, rows, false);
            for (int r = 0; r < rows; r++)
                for (int k = 0; k < cols; k++)
                    cij[r * ldc + k] = add ? cij[r * ldc + k] + edge[r * o->nr + k] : edge[r * o->nr + k];
        }
    }
}
