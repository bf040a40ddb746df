/* SPDX-License-Identifier: Apache-2.0 */
/* vec_narrow_bf16.h: rounding to bf16 with AVX-512-BF16's conversions: to nearest even like bf16_from_f32, but numbers
 * below 2^-126 become zero. Included by vec.h only; the flat operations, which promise ref's bits, do without.
 */
#ifndef TUTTI_KERNEL_CPU_VEC_VEC_NARROW_BF16_H
#define TUTTI_KERNEL_CPU_VEC_VEC_NARROW_BF16_H

/* Lane i: bf16(even[i]) in the low half, bf16(odd[i]) in the high half: one unit of a panel (tile.h). */
VEC_INLINE vi vf_pair_bf16(vf even, vf odd)
{
    const __m512i weave =
        _mm512_set_epi32(0x1f000f, 0x1e000e, 0x1d000d, 0x1c000c, 0x1b000b, 0x1a000a, 0x190009, 0x180008, 0x170007,
                         0x160006, 0x150005, 0x140004, 0x130003, 0x120002, 0x110001, 0x100000);
    return _mm512_permutexvar_epi16(weave, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}
/* VL, or the first n, elements rounded to bf16. */
VEC_INLINE void vf_narrow_bf16(uint16_t *p, vf a) { _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(a)); }
VEC_INLINE void vf_narrow_bf16_n(uint16_t *p, vf a, int n)
{
    _mm256_mask_storeu_epi16(p, vm_first(n), (__m256i)_mm512_cvtneps_pbh(a));
}

#endif
