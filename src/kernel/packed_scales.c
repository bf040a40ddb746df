/* SPDX-License-Identifier: Apache-2.0 */
/* A scale is a product and a sum, each rounded to fp32 (layout/packing.h). */
#include "kernel/packed_rows.h"
#include "layout/bits.h"

void packed_scales_init(struct packed_scales *s, const struct packed_args *a)
{
    s->a = a;
    s->blocks = packing_row_blocks(a->packing, a->cols);
    if (a->groups) packing_map(s->map);
}

float packed_scale(const struct packed_scales *s, int64_t r, int64_t k)
{
    const struct packed_args *a = s->a;
    uint8_t code = a->scales[r * s->blocks + k];
    if (!a->groups) return float_of(code ? (uint32_t)code << 23 : 0x400000u);
    float times = s->map[code] * a->groups[(a->first + r * a->row_blocks + k) / PACKING_GROUP];
    return times + a->groups[a->n_groups - 1];
}
