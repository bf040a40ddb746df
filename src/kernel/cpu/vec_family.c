/* SPDX-License-Identifier: Apache-2.0 */
/* Which build of the vector kernels serves this CPU: asked at every call (a table look-up against a call that moves
 * whole tensors), so the table of the family stays constant data. */
#include "kernel/cpu/vec_family.h"

#include "kernel/cpuid.h"

static const struct kernel_slot *chosen(const struct kernel_call *c)
{
    enum isa isa = cpu_isa();
    if (isa < ISA_AVX2) return NULL;
    const struct kernel_family *f = isa >= ISA_AVX512_BF16 ? &kernel_vec_avx512bf16
                                    : isa >= ISA_AVX512    ? &kernel_vec_avx512
                                                           : &kernel_vec_avx2;
    const struct kernel_slot *s = &f->slot[c->op][c->phase];
    return s->run ? s : NULL;
}

bool vec_accepts(const struct kernel_call *c)
{
    const struct kernel_slot *s = chosen(c);
    return s && (!s->accepts || s->accepts(c));
}

size_t vec_scratch(const struct kernel_call *c, int n_threads)
{
    const struct kernel_slot *s = chosen(c);
    return s && s->scratch ? s->scratch(c, n_threads) : 0;
}

void vec_run(const struct kernel_call *c)
{
    chosen(c)->run(c);
}
