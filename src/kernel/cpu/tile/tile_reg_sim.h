/* SPDX-License-Identifier: Apache-2.0 */
/* tile_reg_sim.h: AMX tile registers in plain C, for tests on machines without them. The arithmetic of TDPBF16PS
 * is the manual's: even and odd elements are summed apart by fused multiply-adds, then added together and to C;
 * subnormal inputs and results count as zero.
 */
#ifndef TUTTI_KERNEL_CPU_TILE_TILE_REG_SIM_H
#define TUTTI_KERNEL_CPU_TILE_TILE_REG_SIM_H

#include <math.h>
#include <string.h>

#include "layout/dtype.h"

struct tile_reg {
    unsigned char row[16][64];
};

static inline float sim_flush(float v) { return fpclassify(v) == FP_SUBNORMAL ? 0.0f : v; }
static inline void sim_load(struct tile_reg *t, const void *p, int64_t bytes)
{
    for (int i = 0; i < 16; i++) memcpy(t->row[i], (const char *)p + i * bytes, 64);
}
static inline void sim_store(void *p, int64_t bytes, const struct tile_reg *t)
{
    for (int i = 0; i < 16; i++) memcpy((char *)p + i * bytes, t->row[i], 64);
}
static inline void sim_dot(struct tile_reg *c, const struct tile_reg *a, const struct tile_reg *b)
{
    for (int m = 0; m < 16; m++) {
        float even[16] = {0}, odd[16] = {0}, sum[16];
        bf16 am[32], bk[32];
        memcpy(am, a->row[m], 64);
        for (int k = 0; k < 16; k++) {
            memcpy(bk, b->row[k], 64);
            float a0 = sim_flush(bf16_to_f32(am[2 * k])), a1 = sim_flush(bf16_to_f32(am[2 * k + 1]));
            for (int n = 0; n < 16; n++) {
                even[n] = sim_flush(fmaf(a0, sim_flush(bf16_to_f32(bk[2 * n])), even[n]));
                odd[n] = sim_flush(fmaf(a1, sim_flush(bf16_to_f32(bk[2 * n + 1])), odd[n]));
            }
        }
        memcpy(sum, c->row[m], 64);
        for (int n = 0; n < 16; n++) sum[n] = sim_flush(sum[n] + sim_flush(even[n] + odd[n]));
        memcpy(c->row[m], sum, 64);
    }
}

#define TILE_REGS struct tile_reg regs[8];
#define TILE_ZERO(t) memset(&regs[t], 0, sizeof regs[t])
#define TILE_LOAD(t, p, bytes) sim_load(&regs[t], p, bytes)
#define TILE_STORE(p, bytes, t) sim_store(p, bytes, &regs[t])
#define TILE_DOT(c, a, b) sim_dot(&regs[c], &regs[a], &regs[b])

#endif
