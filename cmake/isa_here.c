/* SPDX-License-Identifier: Apache-2.0 */
/* isa_here.c: its exit status is the level that this machine runs. Built and run by isa.cmake, of one file, as CMake
 * wants it. */
#include "kernel/cpuid.c"

int main(void) { return (int)cpu_isa(); }
