/* SPDX-License-Identifier: Apache-2.0 */
/* AMAX_PARTS and QUANTISE_PARTS: part by part by this CPU's kernels for one tensor. How many rows a part has is known
 * only when it runs, and these kernels leave some shapes to the reference, whose bits they have: so may a part be. */
#include "base/isa_built.h"
#include "kernel/cpu/build.h"
#include "kernel/cpu/cpu.h"
#include "kernel/expert_parts.h"

static void one_part(const struct kernel_call *one, const struct kernel_family *f)
{
    const struct kernel_slot *s = kernel_way(f, one);
    if (!s) s = kernel_way(&kernel_family_ref, one);
    s->run(one);
}

static size_t scratch(const struct kernel_call *c, const struct kernel_family *f, int n_threads)
{
    const struct kernel_call one = parts_whole(c);
    const struct kernel_slot *s = &f->slot[one.op][one.phase];
    return s->scratch ? s->scratch(&one, n_threads) : 0;
}

#if defined(__x86_64__)
#define PARTS_WAYS(WAY) IF_AVX512(WAY(avx512)) WAY(avx2)
#elif defined(__aarch64__)
#define PARTS_WAYS(WAY) WAY(neon)
#else
#define PARTS_WAYS(WAY)
#endif

#define FUNCTIONS(isa)                                                                                                 \
    static void one_##isa(const struct kernel_call *one) { one_part(one, &kernel_quantise_##isa); }                    \
    static void run_##isa(const struct kernel_call *c) { parts_each(c, one_##isa); }                                   \
    static size_t scratch_##isa(const struct kernel_call *c, int n) { return scratch(c, &kernel_quantise_##isa, n); }
PARTS_WAYS(FUNCTIONS)

struct way {
    const struct kernel_family *f;
    struct kernel_slot slot;
};
#define ROW(isa) {&kernel_quantise_##isa, {run_##isa, scratch_##isa, NULL, #isa ": part by part", NULL, NULL}},
static const struct way ways[] = {PARTS_WAYS(ROW){NULL, {NULL, NULL, NULL, NULL, NULL, NULL}}};

const struct kernel_slot *parts_choose(const struct kernel_call *c)
{
    const struct cpu_build *b = cpu_build();
    const struct way *w = ways;
    if (!b || c->in[0].n[0] < 1 || c->in[0].n[1] < 1) return NULL;
    while (w->f && w->f != b->part[BUILD_QUANTISE]) w++;
    return w->f ? &w->slot : NULL;
}
