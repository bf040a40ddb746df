/* vec_narrow.h: bf16 for matrix products, without instructions made for it. Included by vec.h only. */
#ifndef TUTTI_KERNEL_CPU_VEC_NARROW_H
#define TUTTI_KERNEL_CPU_VEC_NARROW_H

/* Lane i: bf16(even[i]) in the low half, bf16(odd[i]) in the high half: one unit of a panel (tile.h). */
VEC_INLINE vi vf_pair_bf16(vf even, vf odd) { return vi_or(vf_to_bf16(even), vi_shl(vf_to_bf16(odd), 16)); }
VEC_INLINE void vf_narrow_bf16(uint16_t *p, vf a) { vi_store_u16(p, vf_to_bf16(a)); }

#endif
