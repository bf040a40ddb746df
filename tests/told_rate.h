/* SPDX-License-Identifier: Apache-2.0 */
/* told_rate.h: the rate of the machine's registers is told instead of measured: the trainer takes seconds for it where
 * others use the machine, and only MFU, which nothing here reads, comes of it. The test says
 *
 *   suite: wraps tile_rate_registers
 */
#ifndef TUTTI_TESTS_TOLD_RATE_H
#define TUTTI_TESTS_TOLD_RATE_H

#include "kernel/cpu/tile/tile_rate.h"

double __wrap_tile_rate_registers(const struct tile_ops *o, struct team *t);
double __wrap_tile_rate_registers(const struct tile_ops *o, struct team *t)
{
    (void)o, (void)t;
    return 1e11;
}

#endif
