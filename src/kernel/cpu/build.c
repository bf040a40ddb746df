/* SPDX-License-Identifier: Apache-2.0 */
/* The table of builds: per architecture, since only its own files are compiled, and of those perhaps not all
 * (base/isa_built.h). On a third one it is empty and everything falls through to ref. AVX-512's bf16 conversions lose
 * what is smaller than 2^-126, so the flat operations and conversions of formats, which promise ref's bits, do without
 * them; Arm's do not. */
#include "kernel/cpu/build.h"

#include "base/isa_built.h"
#include "kernel/cpu/cpu.h"

#define PARTS(isa, quantise)                                                                                           \
    {                                                                                                                  \
        &kernel_vec_act_##isa, &kernel_vec_norm_##isa, &kernel_vec_move_##isa, &kernel_vec_scan_##isa,                 \
            &kernel_quantise_##quantise                                                                                \
    }

/* clang-format off */
static const struct cpu_build builds[] = {
#if defined(__x86_64__)
    {ISA_AVX2, PARTS(avx2, avx2), &flat_ops_avx2, &attention_avx2, &format_ops_avx2},
    IF_AVX512({ISA_AVX512, PARTS(avx512, avx512), &flat_ops_avx512, &attention_avx512, &format_ops_avx512},)
    IF_AVX512BF16({ISA_AVX512_BF16, PARTS(avx512bf16, avx512), &flat_ops_avx512, &attention_avx512bf16, &format_ops_avx512},)
#elif defined(__aarch64__)
    {ISA_NEON, PARTS(neon, neon), &flat_ops_neon, &attention_neon, &format_ops_neon},
    IF_NEONBF16({ISA_NEON_BF16, PARTS(neonbf16, neon), &flat_ops_neonbf16, &attention_neonbf16, &format_ops_neon},)
#endif
    {ISA_N, {NULL}, NULL, NULL, NULL}, /* no level is this high */
};
/* clang-format on */
enum { N_BUILDS = (int)(sizeof builds / sizeof *builds) - 1 };

const struct cpu_build *cpu_build(void)
{
    for (int i = N_BUILDS - 1; i >= 0; i--)
        if (builds[i].needs <= cpu_isa()) return &builds[i];
    return NULL;
}

const struct cpu_build *cpu_build_at(int i) { return i >= 0 && i < N_BUILDS ? &builds[i] : NULL; }

const struct kernel_slot *cpu_build_slot(const struct cpu_build *b, enum op op, enum kernel_phase phase)
{
    for (int i = 0; i < BUILD_PARTS; i++)
        if (b->part[i]->slot[op][phase].run) return &b->part[i]->slot[op][phase];
    return NULL;
}

const struct kernel_slot *vec_choose(const struct kernel_call *c)
{
    const struct cpu_build *b = cpu_build();
    return b ? cpu_build_slot(b, c->op, c->phase) : NULL;
}
