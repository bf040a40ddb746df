/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of a GPU in a build that does not simulate them: none. The build compiles either this file or
 * src/kernel/cuda/. */
#include "kernel/kernel.h"

const struct kernel_family kernel_family_cuda = {.name = "cuda-sim (not built in)"};
