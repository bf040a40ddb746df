/* The cpu family: which vectorised kernel serves which row and phase. A slot left out falls through to the next
 * family. */
#include "kernel/cpu/cpu.h"

const struct kernel_family kernel_family_cpu = {
    .name = "cpu",
    .slot = {0},
};
