/* SPDX-License-Identifier: Apache-2.0 */
/* fold_avx2.c: fold.h for AVX2 with F16C. */
#include <immintrin.h>

#define VBYTES 32
#define FOLD_TABLE fold_avx2
#define FOLD_NAME "avx2"
typedef float f16_vf __attribute__((vector_size(VBYTES)));
static inline f16_vf f16_load(const void *p) { return (f16_vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
static inline void f16_store(void *p, f16_vf v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#include "comm/fold_body.h"
