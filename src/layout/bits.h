/* SPDX-License-Identifier: Apache-2.0 */
/* bits.h: an fp32 number as the 32 bits that it is, and back; for the host and for a GPU. */
#ifndef TUTTI_LAYOUT_BITS_H
#define TUTTI_LAYOUT_BITS_H

#include <stdint.h>
#include <string.h>

#include "base/fn.h"

TUTTI_FN uint32_t float_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
TUTTI_FN float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

#endif
