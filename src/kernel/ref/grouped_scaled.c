/* SPDX-License-Identifier: Apache-2.0 */
/* Fewer bits of experts: each part as a tensor by itself is done. */
#include "kernel/expert_parts.h"

#include "kernel/ref/ref.h"

void amax_parts_ref(const struct kernel_call *c) { parts_each(c, amax_ref); }
void quantise_parts_ref(const struct kernel_call *c) { parts_each(c, quantise_ref); }

static void one_product(const struct kernel_call *one, int64_t depth, const void *arg)
{
    static kernel_fn *const run[KERNEL_N_PHASES] = {linear_scaled_fwd_ref, linear_scaled_bwd_in_ref,
                                                    linear_scaled_bwd_w_ref};
    (void)depth;
    (void)arg;
    run[one->phase](one);
}

void grouped_scaled_ref(const struct kernel_call *c) { parts_products(c, one_product, NULL); }
