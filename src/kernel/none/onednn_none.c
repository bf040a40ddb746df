/* SPDX-License-Identifier: Apache-2.0 */
/* The oneDNN family of a build without oneDNN: no slot is filled, so every call falls through to the next family.
 * The build compiles either this file or src/kernel/onednn/. */
#include "kernel/kernel.h"

const struct kernel_family kernel_family_onednn = {.name = "onednn (not built in)"};
