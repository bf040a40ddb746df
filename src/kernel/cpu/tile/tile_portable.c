/* SPDX-License-Identifier: Apache-2.0 */
/* tile_portable.c: f32 panels in plain C: tiles of 4 x 16 that any compiler vectorises with what it may assume.
 * There so that tile_ops_get() never fails; also the yardstick for the packing of the others.
 */
#include "kernel/cpu/tile/tile_plain.h"
#include "kernel/cpu/tile/tile_rows.h"

enum { MR = 4, NR = 16 };

static void mul(float *c, int64_t ldc, const void *ap, const void *bp, int64_t depth_pad, int rows, bool add)
{
    const float *a = ap, *b = bp;
    float s[MR][NR] = {{0}};
    for (int64_t d = 0; d < depth_pad; d++, a += MR, b += NR)
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NR; j++) s[i][j] += a[i] * b[j];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < NR; j++) c[i * ldc + j] = add ? c[i * ldc + j] + s[i][j] : s[i][j];
}
static void pack_a(void *dst, struct tile_src s, int64_t lanes, int64_t depth)
{
    plain_pack(dst, s, lanes, depth, DT_F32, MR, 1, 1);
}
static void pack_b(void *dst, struct tile_src s, int64_t lanes, int64_t depth)
{
    plain_pack(dst, s, lanes, depth, DT_F32, NR, 1, 1);
}
static double spin(int64_t n)
{
    float a[MR] = {0}, b[NR] = {0}, c[MR * NR];
    for (int64_t i = 0; i < n; i++) {
        mul(c, NR, a, b, 1, MR, false);
        __asm__ volatile("" : : "r"(c) : "memory"); /* the result counts as used */
    }
    return (double)n * MR * NR * 2;
}
static void nothing(void) {}

static void promote(float *sum, const float *part, const float *a, const float *b, int rows, bool first)
{
    plain_promote(sum, part, a, b, rows, first, NR);
}

/* clang-format off */
const struct tile_ops tile_ops_portable = {
    .name = "portable", .needs = ISA_REF, .panel = DT_F32,
    .mr = MR, .nr = NR, .group_a = 1, .group_b = 1, .step = 1,
    .mc = 64, .kc = 256, .nc = 1024, .dot_rows = 8,
    .pack_a = pack_a, .pack_b = pack_b, .mul = mul, .finish = plain_finish, .promote = promote, .dot = plain_dots,
    .add_rows = plain_add_rows, .spin = spin,
    .begin = nothing, .end = nothing,
};
/* clang-format on */
