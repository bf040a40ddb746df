/* SPDX-License-Identifier: Apache-2.0 */
/* fold_neon.c: fold.h for 64-bit Arm. The vectors are those of fold_portable.c; halves are converted by
 * instructions. */
#include <arm_neon.h>

#define VBYTES 16
#define FOLD_TABLE fold_neon
#define FOLD_NAME "neon"
typedef float f16_vf __attribute__((vector_size(VBYTES)));
static inline f16_vf f16_load(const void *p) { return (f16_vf)vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
static inline void f16_store(void *p, f16_vf v) { vst1_u8(p, vreinterpret_u8_f16(vcvt_f16_f32((float32x4_t)v))); }
#include "comm/fold_body.h"
