/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c: attention's ways: a build with panels. Panels by dtype as tile.c finds best, the vector work by the
 * widest instructions at or below this CPU's level; without any the call falls through to ref. A few tokens against a
 * cache need no panels, and are a way of their own. */
#include "kernel/cpu/attention/attention.h"

#include "base/isa_built.h"
#include "kernel/cpu/build.h"
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/tile/tile_rows.h"

struct ways {
    const struct attention_build *build;
    const struct tile_ops *o;
    struct kernel_slot fwd, bwd, cached, few;
};

/* The pairs that cpu_build and tile_ops_get give. */
#if defined(__x86_64__)
#define PAIRS(WAY)                                                                                                     \
    IF_AMX(WAY(avx512bf16, amx, "avx512-bf16", ", amx panels"))                                                        \
    IF_AVX512BF16(WAY(avx512bf16, avx512bf16, "avx512-bf16", ""))                                                      \
    IF_AVX512BF16(WAY(avx512bf16, avx512, "avx512-bf16", ", avx512 panels"))                                           \
    IF_AVX512(WAY(avx512, avx512, "avx512", ""))                                                                       \
    WAY(avx2, avx2, "avx2", "")
#elif defined(__aarch64__)
#define PAIRS(WAY)                                                                                                     \
    IF_NEONBF16(WAY(neonbf16, neonbf16, "neon-bf16", ""))                                                              \
    IF_NEONBF16(WAY(neonbf16, neon, "neon-bf16", ", neon panels"))                                                     \
    WAY(neon, neon, "neon", "")
#else
#define PAIRS(WAY)
#endif

#define NAMED(stem, isa, panels) stem##_##isa##_##panels
#define FUNCTIONS(isa, panels, name, of)                                                                               \
    static void NAMED(fwd, isa, panels)(const struct kernel_call *c) { attention_##isa.fwd(c, &tile_ops_##panels); }   \
    static void NAMED(bwd, isa, panels)(const struct kernel_call *c) { attention_##isa.bwd(c, &tile_ops_##panels); }   \
    static void NAMED(cached, isa, panels)(const struct kernel_call *c)                                                \
    {                                                                                                                  \
        attention_##isa.cached(c, &tile_ops_##panels);                                                                 \
    }                                                                                                                  \
    static size_t NAMED(scratch, isa, panels)(const struct kernel_call *c, int n_threads)                              \
    {                                                                                                                  \
        return attention_##isa.scratch(c, &tile_ops_##panels, n_threads);                                              \
    }                                                                                                                  \
    static void NAMED(few, isa, panels)(const struct kernel_call *c) { attention_##isa.few(c); }                       \
    static size_t NAMED(few_scratch, isa, panels)(const struct kernel_call *c, int n_threads)                          \
    {                                                                                                                  \
        return attention_##isa.few_scratch(c, n_threads);                                                              \
    }
PAIRS(FUNCTIONS)

#define ROW(isa, panels, name, of)                                                                                     \
    {&attention_##isa,                                                                                                 \
     &tile_ops_##panels,                                                                                               \
     {NAMED(fwd, isa, panels), NAMED(scratch, isa, panels), NULL, name of, NULL, NULL},                                \
     {NAMED(bwd, isa, panels), NAMED(scratch, isa, panels), NULL, name of, NULL, NULL},                                \
     {NAMED(cached, isa, panels), NAMED(scratch, isa, panels), NULL, name of, NULL, NULL},                             \
     {NAMED(few, isa, panels), NAMED(few_scratch, isa, panels), NULL, name ": few tokens, the cache in place", NULL,   \
      NULL}},
static const struct ways ways[] = {PAIRS(ROW){.build = NULL}};

static bool accepted(const struct kernel_call *c)
{
    enum dtype t = c->in[0].dtype;
    bool biased = c->op == OP_ATTENTION_BIASED;
    if (biased && (c->n_in > 4 || t == DT_F32))
        return false; /* scores that are not scaled are large: in f32 it is the
                         plain one, which sums in double */
    float scale = biased ? 1 : at_heads(&c->at)->scale;
    bool usual = scale > 1e-6f && scale < 1e6f; /* keeps hidden scores hidden and finite when scaled */
    return cpu_build() && (t == DT_F32 || t == DT_BF16 || t == DT_F16) && usual;
}

const struct kernel_slot *attention_choose(const struct kernel_call *c)
{
    if (!accepted(c)) return NULL;
    const struct attention_build *build = cpu_build()->attention;
    const struct tile_ops *o = tile_ops_get(c->in[0].dtype);
    const struct ways *w = ways;
    while (w->build && (w->build != build || w->o != o)) w++;
    CHECK(w->build, "no attention with panels of %s", o->name);
    if (c->op == OP_ATTENTION_CACHED)
        return c->in[0].n[0] <= ATTN_FEW && !at_heads(&c->at)->same_rows ? &w->few : &w->cached;
    return c->phase == KERNEL_FWD ? &w->fwd : &w->bwd;
}
