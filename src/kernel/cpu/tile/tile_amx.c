/* SPDX-License-Identifier: Apache-2.0 */
/* tile_amx.c: bf16 panels on AMX. The loops are tile_mul_amx.h's, tested everywhere through tile_sim.c; what only
 * an AMX machine can test is this file: the configuration below and six names for six instructions.
 *
 * begin() loads a configuration of eight registers of 16 rows x 64 bytes; end() gives the tile state back, so
 * that context switches of threads outside matmuls do not carry 8 KiB more. The operating system's permission was
 * asked for by kernel/cpuid.c, or the level would be below ISA_AMX.
 *
 * Block sizes, reasoned and not measured here: a tile of 32 x 32 needs 64 bytes a cycle of A and B, so a panel of B
 * should be in L1 (depth 512 at most); but every slice of depth reads and writes C, which at this rate costs as
 * much as it saves once C is larger than L2. Depth 1024 (panels of 64 KiB, from L2) takes the usual hidden sizes
 * and 1024 tokens in one slice. 256 x 1024 of A are 512 KiB of an L2 of 2 MiB.
 */
#include <immintrin.h>

/* gcc's tile load does not say that it reads memory; what was stored before has to be there. */
#define TILE_REGS __asm__ volatile("" : : : "memory");
#define TILE_ZERO(t) _tile_zero(t)
#define TILE_LOAD(t, p, bytes) _tile_loadd(t, p, bytes)
#define TILE_STORE(p, bytes, t) _tile_stored(t, p, bytes)
#define TILE_DOT(c, a, b) _tile_dpbf16ps(c, a, b)
#include "kernel/cpu/tile/tile_mul_amx.h"
#include "kernel/cpu/tile/tile_pack_amx.h"
#include "kernel/cpu/tile/tile_rows.h"

static inline __m512 tile_dot_bf16(__m512 s, __m512i a, __m512i b)
{
    return _mm512_dpbf16_ps(s, (__m512bh)a, (__m512bh)b);
}
#include "kernel/cpu/tile/tile_dot512.h"

struct tile_config { /* as LDTILECFG reads it: Intel SDM vol. 1, 18.3 */
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "LDTILECFG reads 64 bytes");

/* A constant and not a local: gcc's intrinsic admits to reading its first eight bytes only, so that stores to the
 * rest of a local were dropped as dead. */
static const struct tile_config eight_tiles = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

static void begin(void) { _tile_loadconfig(&eight_tiles); }
static void end(void) { _tile_release(); }

static void dot(float *y, int64_t ldy, const void *x, int64_t ldx, const void *w, int64_t ldw, enum dtype t, int m,
                int64_t n, int64_t depth)
{
    if (t == DT_F32) dot512(y, ldy, x, ldx, w, ldw, DT_F32, m, n, depth);
    else dot512(y, ldy, x, ldx, w, ldw, DT_BF16, m, n, depth);
}

static void promote(float *sum, const float *part, const float *a, const float *b, int rows, bool first)
{
    promote512(sum, part, a, b, rows, first, NR_AMX);
}

/* clang-format off */
const struct tile_ops tile_ops_amx = {
    .name = "amx", .needs = ISA_AMX, .panel = DT_BF16,
    .mr = MR_AMX, .nr = NR_AMX, .group_a = 32, .group_b = 2, .step = STEP_AMX,
    .mc = 256, .kc = 1024, .nc = 2048, .dot_rows = 8,
    .pack_a = pack_a_amx, .pack_b = pack_b_amx, .mul = mul_amx, .finish = finish512, .promote = promote, .dot = dot,
    .add_rows = add_rows512, .spin = spin_amx,
    .begin = begin, .end = end,
};
/* clang-format on */
