/* SPDX-License-Identifier: Apache-2.0 */
/* moments.h: an optimizer's moments in few bits, in blocks that have a scale each: a value is its code's times the
 * scale, and the largest of a block has the largest code.
 *
 *   8 bits   the dynamic map (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization", section 1.3): seven
 *            decades below 1, each with twice the values of the one below, evenly spaced, and 0 and 1. First moments
 *            have a sign and 1 to 64 values in a decade, second ones none and 2 to 128.
 *   fp8      E4M3 for first moments, fp16 for second ones (Peng et al. 2023, FP8-LM)
 *
 * Codes of the map are in the order of an exponent and a fraction, not in that of the values: k = n + j is the j-th of
 * n values of a decade, n a power of two; 0 is 0. With a sign in bit 7, and 0x80 is 1; without one, 1 is 1.
 *
 * A second moment that is not 0 never becomes 0: a step divides by its root (Li et al. 2023, section 3.2).
 *
 * Blocks are cut in rows of a matrix, by column: a row of c columns has ceil(c / block) of them, the last of what is
 * left. So whoever cuts rows cuts no block. For the host and for a GPU. Includes: libc. Order: Local.
 */
#ifndef TUTTI_KERNEL_MOMENTS_H
#define TUTTI_KERNEL_MOMENTS_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fn.h"

enum { MOMENTS_BLOCK = 2048 /* the longest */, MOMENT_DECADES = 7 };

struct moment_map {
    /* Of a decade: its first code, above what it begins, and value = step * code + base. */
    float n[MOMENT_DECADES], at[MOMENT_DECADES], step[MOMENT_DECADES], base[MOMENT_DECADES];
    float inverse[MOMENT_DECADES], shift[MOMENT_DECADES]; /* code = inverse * value - shift, rounded */
    float top;                                            /* above it is 1 */
};

TUTTI_FN void moment_map_init(struct moment_map *m, bool has_sign)
{
    double unit = 1e-6, last = 0, first = 0;
    for (int e = 0; e < MOMENT_DECADES; e++, unit *= 10) {
        double n = (has_sign ? 1 : 2) << e, step = 0.9 * unit / n, base = unit * (0.45 / n - 0.8);
        first = step * n + base;
        m->n[e] = (float)n;
        m->at[e] = (float)((last + first) / 2); /* half way from the decade below, or from 0 */
        m->step[e] = (float)step;
        m->base[e] = (float)base;
        m->inverse[e] = (float)(1 / step);
        m->shift[e] = (float)(base / step);
        last = step * (2 * n - 1) + base;
    }
    m->top = (float)((last + 1) / 2);
}

/* The code of y >= 0, at most 255; 256: it is 1. */
TUTTI_FN uint32_t moment_code(const struct moment_map *m, float y)
{
    int e = MOMENT_DECADES - 1;
    if (y > m->top) return 256;
    while (e >= 0 && !(y > m->at[e])) e--;
    if (e < 0) return 0;
    float k = rintf(fmaf(m->inverse[e], y, -m->shift[e])), most = 2 * m->n[e] - 1;
    k = k < most ? k : most;
    return (uint32_t)(k > m->n[e] ? k : m->n[e]);
}

TUTTI_FN float moment_value(const struct moment_map *m, uint32_t k)
{
    int e = MOMENT_DECADES - 1;
    while (e >= 0 && (float)k < m->n[e]) e--;
    return e < 0 ? 0 : fmaf(m->step[e], (float)k, m->base[e]);
}

TUTTI_FN uint8_t moment_encode_signed(const struct moment_map *m, float y)
{
    uint32_t k = moment_code(m, fabsf(y));
    if (k > 255) return y > 0 ? 0x80 : 0xff;
    return (uint8_t)(k && y < 0 ? k | 0x80 : k);
}
TUTTI_FN float moment_decode_signed(const struct moment_map *m, uint8_t code)
{
    float v = moment_value(m, code & 0x7f);
    return code == 0x80 ? 1 : code & 0x80 ? -v : v;
}
TUTTI_FN uint8_t moment_encode_unsigned(const struct moment_map *m, float y)
{
    uint32_t k = moment_code(m, y);
    return (uint8_t)(k > 255 ? 1 : k);
}
TUTTI_FN float moment_decode_unsigned(const struct moment_map *m, uint8_t code)
{
    return code == 1 ? 1 : moment_value(m, code);
}

/* A block's scale, and what its values are multiplied by, from the largest of them and the largest that a code has; 0
 * where all are too small to be divided by. */
struct moment_scale {
    float scale, inverse;
};
TUTTI_FN struct moment_scale moment_scale_of(float largest, float range)
{
    struct moment_scale s = {0, 0};
    if (!(largest >= FLT_MIN * 65536)) return s;
    s.scale = largest / range;
    s.inverse = range / largest;
    return s;
}
enum { MOMENT_RANGE_MAP = 1, MOMENT_RANGE_E4M3 = 448, MOMENT_RANGE_F16 = 65504 };
/* What a second moment above 0 is at least, of the map and in fp16. */
TUTTI_FN float moment_least(const struct moment_map *m) { return m->at[0] * 1.5f; }
#define MOMENT_LEAST_F16 0x1p-24f

#endif
