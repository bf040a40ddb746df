/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.h: element types, and bf16/fp16 conversion. Floor 1; includes base only. Order: Local. */
#ifndef TUTTI_LAYOUT_DTYPE_H
#define TUTTI_LAYOUT_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype { DT_F32, DT_BF16, DT_F16, DT_F64, DT_I32, DT_I64, DT_U8, DT_U16, DT_N };

struct dtype_info {
    const char *name;        /* "f32" */
    const char *safetensors; /* "F32" */
    size_t bytes;
    int is_float;
};
const struct dtype_info *dtype_info(enum dtype t);
static inline size_t dtype_bytes(enum dtype t)
{
    static const uint8_t b[DT_N] = {4, 2, 2, 8, 4, 8, 1, 2};
    return b[t];
}
const char *dtype_name(enum dtype t);
int dtype_from_safetensors(const char *name, enum dtype *out); /* 0, or -1 for an unknown name */

typedef uint16_t bf16; /* raw bits; arithmetic is always in float */

static inline float bf16_to_f32(bf16 v)
{
    uint32_t u = (uint32_t)v << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
/* Round to nearest, ties to even; NaN stays NaN (quiet). */
static inline bf16 bf16_from_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (bf16)((u >> 16) | 0x40);
    return (bf16)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}
float f16_to_f32(uint16_t v);
uint16_t f16_from_f32(float f);

#endif
