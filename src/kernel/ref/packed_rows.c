/* SPDX-License-Identifier: Apache-2.0 */
/* Packed matrices written out plainly. A member of the team does rows: nothing is added up, so the cut changes no
 * bit. */
#include "kernel/packed_rows.h"

static void unpack_rows(void *arg, int member, int members)
{
    const struct packed_args *a = arg;
    const int64_t block = packing_row(a->packing)->block;
    const bool bytes = packing_row(a->packing)->per_byte == 1;
    struct packed_scales s;
    float value[PACKING_CODES];
    int64_t lo, hi;
    packed_scales_init(&s, a);
    packing_table(a->packing, value);
    team_split(a->rows, member, members, &lo, &hi);
    for (int64_t r = lo; r < hi; r++) {
        const uint8_t *codes = a->codes + r * packing_row_bytes(a->packing, a->cols);
        for (int64_t k = 0; k < s.blocks; k++) {
            float scale = packed_scale(&s, r, k);
            int64_t end = (k + 1) * block < a->cols ? (k + 1) * block : a->cols;
            for (int64_t c = k * block; c < end; c++)
                packed_put(a->x, a->t, r * a->cols + c, packed_code(bytes, codes, value, c) * scale);
        }
    }
}

void packed_unpack_ref(struct team *team, const struct packed_args *a)
{
    team_run(team, unpack_rows, (void *)(uintptr_t)a);
}
