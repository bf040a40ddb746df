/* SPDX-License-Identifier: Apache-2.0 */
/* quantise.h: the arithmetic of scales, which every family shares: from the largest number of a tensor or block to what
 * numbers are multiplied by before they are rounded, and after.
 *
 * Of a tensor or block of fp32 numbers x with the largest |x| = amax, in a format with the largest value MAX:
 *
 *   TENSOR, BLOCK   s = MAX / amax, one rounding; 1 where amax is 0; the largest fp32 where that is beyond fp32; of
 *                   powers of two the largest that is not above. code = round(x * s); descale = 1 / s. (Micikevicius et
 *                   al. 2022; Transformer Engine; DeepSeek-V3, section 3.3, whose s is our descale)
 *   MX              X = 2^(floor(log2 amax) - exponent of MAX), from 2^-127 to 2^127; code = round(x / X), which
 *                   saturates between MAX and 2^(exponent + 1) (OCP Microscaling Formats 1.0, section 6.3). Up: X = the
 *                   power of two not below amax / MAX (Mishra et al. 2025).
 *   NV              S = 448 * 6 / amax of the tensor, s_b = e4m3(amax of the block / 6 * S); code = round(x *
 *                   1 / (s_b / S)); descale = 1 / S (Nvidia 2025, "Pretraining Large Language Models with NVFP4",
 *                   appendix). A block whose s_b is 0 is 0.
 *
 * Every operation is one of fp32, rounded to nearest: all families agree to the bit. The product x * s is rounded to
 * fp32 and then to the format, as it is on GPUs.
 * Includes: attrs.h, format.h, rng.h. Order: Local.
 */
#ifndef TUTTI_KERNEL_QUANTISE_H
#define TUTTI_KERNEL_QUANTISE_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "kernel/attrs.h"
#include "layout/dtype.h"
#include "layout/bits.h"

/* q = value(round(x * up)) * down. What is not finite makes both NaN. */
struct block_scale {
    float up, down;
    float descale; /* q * descale is what x became; 1 where q is scaled back */
};

/* Rounding sizes (fp32 bits without sign) to a format's values, as fp32: normal ones by their last bits, those below
 * the smallest normal one by an addition of a power of two that is taken away again. */
struct quantise_rounding {
    int cut;               /* bits of fp32's fraction that the format lacks */
    uint32_t lowest, most; /* the smallest normal value and the largest */
    float align;
};

/* What all blocks of a call share. */
struct quantise_rule {
    const struct quantise_attrs *at;
    struct quantise_rounding to;
    float most;                /* the format's */
    struct block_scale tensor; /* TENSOR: used as it is; NV: its `up` is S */
};

static inline struct quantise_rounding quantise_rounding(enum format format)
{
    const struct format_info f = format_info(format);
    const int cut = 23 - f.fraction;
    return (struct quantise_rounding){cut, (uint32_t)(f.lowest + 127) << 23, float_bits((float)f.max),
                                      float_of((uint32_t)(f.lowest + cut + 127) << 23)};
}

/* The value nearest to x >= 0, at most the format's largest. */
static inline float quantise_nearest(const struct quantise_rounding *f, float x)
{
    uint32_t u = float_bits(x), half = (1u << (f->cut - 1)) - 1;
    if (u < f->lowest) { /* no addition: it must not be fused with the product that x is */
        const float step = f->align * 0x1p-23f;
        return rintf(x / step) * step;
    }
    u = (u + (u >> f->cut & 1) + half) & ~((1u << f->cut) - 1);
    return float_of(u < f->most ? u : f->most);
}

static inline struct block_scale quantise_none(void) { return (struct block_scale){NAN, NAN, NAN}; }

/* MAX / amax by TENSOR's rule. Powers of two: the fraction is cut off; s is not subnormal, MAX being at least 6. */
static inline float quantise_factor(float most, float amax, bool power_of_two)
{
    if (amax == 0) return 1;
    float s = most / amax;
    if (s > FLT_MAX) s = FLT_MAX;
    return power_of_two ? float_of(float_bits(s) & 0xff800000u) : s;
}

/* 2^e, e from -127 to 127. */
static inline float quantise_power(int e) { return e > -127 ? float_of((uint32_t)(e + 127) << 23) : 0x1p-127f; }

static inline struct block_scale quantise_mx(float most, float amax, bool up)
{
    int shift = amax < 0x1p-126f ? 64 : 0; /* of subnormal ones */
    uint32_t u = float_bits(shift ? amax * 0x1p64f : amax), m = float_bits(most);
    int e = (int)(u >> 23) - (int)(m >> 23) - shift + (up && (u & 0x7fffff) > (m & 0x7fffff));
    if (amax == 0) e = 0;
    e = e < -127 ? -127 : e > 127 ? 127 : e;
    return (struct block_scale){quantise_power(-e), quantise_power(e), 1};
}

/* s_tensor: 448 * 6 / amax of the tensor by TENSOR's rule. */
static inline struct block_scale quantise_nv(float s_tensor, float amax)
{
    const struct quantise_rounding e4m3 = quantise_rounding(FORMAT_E4M3);
    float s = quantise_nearest(&e4m3, amax / 6.0f * s_tensor);
    float up = 1.0f / (s * (1.0f / s_tensor));
    return (struct block_scale){up < FLT_MAX ? up : FLT_MAX, amax == 0 ? 1 : s, 1};
}

enum { QUANTISE_NV_MOST = 448 * 6 };

/* amax: of the tensor; NULL: not asked for. */
static inline struct quantise_rule quantise_rule(const struct quantise_attrs *at, const float *amax)
{
    struct quantise_rule r = {at, quantise_rounding(at->format), (float)format_info(at->format).max, {1, 1, 1}};
    if (!amax || (at->scaling != SCALING_TENSOR && at->scaling != SCALING_NV)) return r;
    float most = at->scaling == SCALING_NV ? (float)QUANTISE_NV_MOST : r.most;
    float s = quantise_factor(most, *amax, at->scaling == SCALING_TENSOR && at->power_of_two);
    r.tensor = *amax < INFINITY ? (struct block_scale){s, 1, 1.0f / s} : quantise_none();
    return r;
}

/* Of a block; not TENSOR's. */
static inline struct block_scale quantise_block(const struct quantise_rule *r, float amax)
{
    const struct quantise_attrs *at = r->at;
    if (!(amax < INFINITY) || isnan(r->tensor.up)) return quantise_none();
    if (at->scaling == SCALING_MX) return quantise_mx(r->most, amax, at->up);
    if (at->scaling == SCALING_NV) return quantise_nv(r->tensor.up, amax);
    float s = quantise_factor(r->most, amax, at->power_of_two), back = 1.0f / s;
    return at->power_of_two ? (struct block_scale){s, back, 1} : (struct block_scale){s, 1, back};
}

/* ---- rotation ---- */
enum { ROTATE_GROUP = 16 };

/* Bit i: the i-th of a group changes its sign. */
static inline uint32_t rotate_signs(const struct rotate_attrs *at, uint64_t seed)
{
    return rng_u32(seed, at->stream, 0) & 0xffff;
}

/* Sylvester's matrix of order 16 by sums and differences at distance 1, 2, 4, 8, divided by 4. */
static inline void rotate_group(float v[ROTATE_GROUP], uint32_t signs)
{
    for (int i = 0; i < ROTATE_GROUP; i++)
        if (signs >> i & 1) v[i] = -v[i];
    for (int d = 1; d < ROTATE_GROUP; d *= 2)
        for (int i = 0; i < ROTATE_GROUP; i++)
            if (!(i & d)) {
                float a = v[i], b = v[i + d];
                v[i] = a + b;
                v[i + d] = a - b;
            }
    for (int i = 0; i < ROTATE_GROUP; i++) v[i] *= 0.25f;
}

/* The larger as AMAX means it: a NaN stays. a, b are not negative. */
static inline float amax_of(float a, float b) { return isnan(a) || a > b ? a : b; }

/* The index of a row's first element, for words of chance. */
static inline uint64_t quantise_index(const struct quantise_attrs *at, uint64_t first_token, int64_t cols, int64_t row)
{
    uint64_t whole = (uint64_t)(at->whole_cols ? at->whole_cols : cols);
    return ((at->tokens ? first_token : 0) + (uint64_t)(at->first_row + row)) * whole + (uint64_t)at->first_col;
}

#endif
