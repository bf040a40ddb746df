/* SPDX-License-Identifier: Apache-2.0 */
/* fold_avx512.c: fold.h for AVX-512. */
#include <immintrin.h>

#define VBYTES 64
#define FOLD_TABLE fold_avx512
#define FOLD_NAME "avx512"
typedef float f16_vf __attribute__((vector_size(VBYTES)));
static inline f16_vf f16_load(const void *p) { return (f16_vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline void f16_store(void *p, f16_vf v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#include "comm/fold_body.h"
