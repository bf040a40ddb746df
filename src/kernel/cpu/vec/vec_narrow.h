/* SPDX-License-Identifier: Apache-2.0 */
/* vec_narrow.h: rounding to bf16 without instructions made for it, bit for bit bf16_from_f32. Included by vec.h
 * only. */
#ifndef TUTTI_KERNEL_CPU_VEC_VEC_NARROW_H
#define TUTTI_KERNEL_CPU_VEC_VEC_NARROW_H

/* Lane i: bf16(even[i]) in the low half, bf16(odd[i]) in the high half: one unit of a panel (tile.h). */
VEC_INLINE vi vf_pair_bf16(vf even, vf odd) { return vi_or(vf_to_bf16(even), vi_shl(vf_to_bf16(odd), 16)); }
/* VL, or the first n, elements rounded to bf16. */
VEC_INLINE void vf_narrow_bf16(uint16_t *p, vf a) { vi_store_u16(p, vf_to_bf16(a)); }
VEC_INLINE void vf_narrow_bf16_n(uint16_t *p, vf a, int n) { vi_store_u16_n(p, vf_to_bf16(a), n); }

#endif
