/* SPDX-License-Identifier: Apache-2.0 */
/* Which build of the vector kernels serves this CPU: asked at every call (a table look-up against a call that moves
 * whole tensors), so the table of the family stays constant data. */
#include "kernel/cpu/vec_family.h"

#include "kernel/cpu/build.h"

static const struct kernel_slot *chosen(const struct kernel_call *c)
{
    const struct cpu_build *b = cpu_build();
    if (!b) return NULL;
    const struct kernel_slot *s = &b->vec->slot[c->op][c->phase];
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

void vec_run(const struct kernel_call *c) { chosen(c)->run(c); }
