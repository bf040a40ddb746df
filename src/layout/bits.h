/* SPDX-License-Identifier: Apache-2.0 */
/* bits.h: an fp32 number as the 32 bits that it is, and back. */
#ifndef TUTTI_LAYOUT_BITS_H
#define TUTTI_LAYOUT_BITS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

#endif
