/* SPDX-License-Identifier: Apache-2.0 */
/* format.h: number formats and what a number becomes in them. Rows: formats.def. Floor 1; includes libc only. Order:
 * Local.
 *
 * Invariants
 *   1. A conversion rounds once, from the number that it is given: to the nearest value, of two equally near ones to
 *      the one with the even code; values below the smallest normal one are as far apart as there (subnormals).
 *   2. What rounds to more than max: saturated it is max; else Inf, or NaN where a format has no Inf, or max where it
 *      has neither. Infinity goes the same way.
 *   3. NaN stays NaN, quiet, with its sign and the first bits of its payload (IEEE); where there is one NaN it is that;
 *      where there is none it becomes +max, and whoever scales blocks makes the scale NaN.
 *   4. E8M0 rounds to the nearest power of two; zero and what is smaller becomes 2^-127, a negative number NaN.
 */
#ifndef TUTTI_LAYOUT_FORMAT_H
#define TUTTI_LAYOUT_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

enum format {
#define FORMAT(id, ...) FORMAT_##id,
#include "layout/formats.def"
    FORMAT_N
};
enum format_special { FORMAT_IEEE, FORMAT_ONES, FORMAT_FINITE, FORMAT_SCALE, FORMAT_TWOS };

struct format_info {
    const char *name;
    int bytes, bits, exponent, fraction, bias;
    enum format_special special;
    double max;
    /* derived, of a code without its sign: */
    uint32_t max_code;  /* the largest finite one */
    uint32_t over_code; /* what is larger becomes, not saturated */
    int lowest;         /* the exponent of the smallest normal value, and of subnormals */
    int shift;          /* where a code lies in its bytes: TF32's at the top of an fp32 */
};
static inline uint32_t format_max_code(int exponent, int fraction, enum format_special special)
{
    uint32_t ones = (1u << (exponent + fraction)) - 1;
    return special == FORMAT_IEEE                              ? ones - (1u << fraction)
           : special == FORMAT_ONES || special == FORMAT_SCALE ? ones - 1
                                                               : ones;
}
/* Inline, so that kernels fold what they ask of a row that they know. */
static inline struct format_info format_info(enum format f)
{
    switch (f) {
#define FORMAT(id, name_, bytes_, bits_, e, m, bias_, special_, max_)                                                  \
    case FORMAT_##id: {                                                                                                \
        uint32_t most = format_max_code(e, m, FORMAT_##special_);                                                      \
        bool none = FORMAT_##special_ == FORMAT_FINITE || FORMAT_##special_ == FORMAT_TWOS;                            \
        return (struct format_info){.name = name_,                                                                     \
                                    .bytes = bytes_,                                                                   \
                                    .bits = bits_,                                                                     \
                                    .exponent = e,                                                                     \
                                    .fraction = m,                                                                     \
                                    .bias = bias_,                                                                     \
                                    .special = FORMAT_##special_,                                                      \
                                    .max = max_,                                                                       \
                                    .max_code = most,                                                                  \
                                    .over_code = none ? most : most + 1,                                               \
                                    .lowest = (FORMAT_##special_ == FORMAT_SCALE ? 0 : 1) - (bias_),                   \
                                    .shift = (bytes_) == 4 ? 32 - (bits_) : 0};                                        \
    }
#include "layout/formats.def"
    case FORMAT_N: break;
    }
    return (struct format_info){.name = "?"};
}

/* The code of x, in the low bits. */
uint32_t format_encode(enum format f, double x, bool saturate);
/* The same, rounded up in size with the probability of what is cut off: with the word `random` of the 2^32 that there
 * are where the bits cut off (the first 32 of them, as a fraction of 2^32) and it add up to 2^32 or more. Who takes the
 * word rng_u32(seed, rng_stream_at(the tensor's stream, step), the element's index in the whole tensor) gets the same
 * code in every layout. */
uint32_t format_encode_random(enum format f, double x, bool saturate, uint32_t random);
float format_decode(enum format f, uint32_t code);

#endif
