/* SPDX-License-Identifier: Apache-2.0 */
/* Element types: one table of names and sizes, and the half-precision conversions that do not fit in a header.
 *
 * binary16 is converted in integers and one float multiplication, so that it needs no instruction beyond the
 * baseline and gives the same bits everywhere. Kernels that convert many values use F16C; this is the reference
 * they are compared with, and what file readers use.
 */
#include "layout/dtype.h"

#include "base/err.h"

static const struct dtype_info infos[DT_N] = {
    [DT_F32] = {"f32", "F32", 4, 1}, [DT_BF16] = {"bf16", "BF16", 2, 1}, [DT_F16] = {"f16", "F16", 2, 1},
    [DT_F64] = {"f64", "F64", 8, 1}, [DT_I32] = {"i32", "I32", 4, 0},    [DT_I64] = {"i64", "I64", 8, 0},
    [DT_U8] = {"u8", "U8", 1, 0},    [DT_U16] = {"u16", "U16", 2, 0},
};

const struct dtype_info *dtype_info(enum dtype t)
{
    CHECK((unsigned)t < DT_N, "dtype %d does not exist", (int)t);
    return &infos[t];
}

const char *dtype_name(enum dtype t) { return dtype_info(t)->name; }

int dtype_from_safetensors(const char *name, enum dtype *out)
{
    for (int t = 0; t < DT_N; t++)
        if (!strcmp(infos[t].safetensors, name)) {
            *out = (enum dtype)t;
            return 0;
        }
    return -1;
}

/* Moving binary16's exponent and mantissa into binary32's places leaves the value 2^-112 times too small,
 * subnormals included; one exact multiplication puts that right. Inf and NaN keep an all-ones exponent. */
float f16_to_f32(uint16_t v)
{
    uint32_t sign = (uint32_t)(v & 0x8000u) << 16, magnitude = (uint32_t)(v & 0x7fffu) << 13, u;
    float f;
    if ((v & 0x7c00u) == 0x7c00u) {
        u = sign | 0x7f800000u | magnitude;
    } else {
        memcpy(&f, &magnitude, 4);
        f *= 0x1p112f;
        memcpy(&u, &f, 4);
        u |= sign;
    }
    if ((u & 0x7fffffffu) > 0x7f800000u) u |= 0x400000u; /* NaN stays NaN, quiet */
    memcpy(&f, &u, 4);
    return f;
}

/* Round to nearest, ties to even; beyond 65504 + half a unit becomes infinity; NaN stays NaN (quiet).
 * Below 2^-14 the result is subnormal: adding 0.5 lines the value up so that the last kept bit is 2^-24, and
 * the addition itself does the rounding. */
uint16_t f16_from_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (u >> 13 & 0x3ffu));
    if (u >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (u < 0x38800000u) {
        float lined_up;
        memcpy(&lined_up, &u, 4);
        lined_up += 0.5f;
        memcpy(&u, &lined_up, 4);
        return (uint16_t)(sign | (u - 0x3f000000u));
    }
    u += 0xfffu + (u >> 13 & 1);
    return (uint16_t)(sign | (u - 0x38000000u) >> 13);
}
