/* SPDX-License-Identifier: Apache-2.0 */
/* Where launches go. */
#include "kernel/cuda/cuda.h"
#include "kernel/cuda/sim_run.h"

void gpu_launch(const struct kernel_call *c, const struct gpu_kernel *k, int64_t x, int64_t y, int64_t z, size_t shared,
                const void *args, size_t bytes)
{
    CHECK(x >= 0 && x <= INT32_MAX && y >= 0 && y <= UINT16_MAX && z >= 0 && z <= UINT16_MAX,
          "%s in %lld x %lld x %lld blocks", k->name, (long long)x, (long long)y, (long long)z);
    struct gpu_launch l = {.kernel = k,
                           .grid = {(uint32_t)x, (uint32_t)y, (uint32_t)z},
                           .shared = shared,
                           .args = args,
                           .bytes = bytes};
    (void)c;
    sim_run(&l);
}
