/* SPDX-License-Identifier: Apache-2.0 */
/* Which build of attention and which panels serve a call: panels by dtype as tile.c finds best, the vector work by
 * the widest instructions at or below this CPU's level. Without any the call falls through to ref. */
#include "kernel/cpu/attention.h"

#include "kernel/cpu/build.h"

static const struct attention_build *chosen(void) { return cpu_build()->attention; }

bool attention_accepts(const struct kernel_call *c)
{
    enum dtype t = c->in[0].dtype;
    float scale = at_heads(&c->at)->scale;
    bool usual = scale > 1e-6f && scale < 1e6f; /* keeps hidden scores hidden and finite when scaled */
    return cpu_build() && (t == DT_F32 || t == DT_BF16 || t == DT_F16) && usual;
}

size_t attention_scratch(const struct kernel_call *c, int n_threads)
{
    return chosen()->scratch(c, tile_ops_get(c->in[0].dtype), n_threads);
}

void attention_run(const struct kernel_call *c)
{
    const struct tile_ops *o = tile_ops_get(c->in[0].dtype);
    if (c->op == OP_ATTENTION_CACHED) chosen()->cached(c, o);
    else if (c->phase == KERNEL_FWD) chosen()->fwd(c, o);
    else chosen()->bwd(c, o);
}
