/* SPDX-License-Identifier: Apache-2.0 */
/* A row's part is found by counting: a product has a few. */
#include "kernel/codes_product.h"

int64_t coded_rows(const struct kernel_call *c, int64_t row, int64_t n, struct packed_args *a)
{
    const struct coded_attrs *at = at_coded(&c->at);
    const int64_t each = c->in[1].n[0] / coded_times(c), expert = row / each;
    int64_t groups = 0, before = 0, all = 0;
    int p = 0;
    for (int i = 0; i < at->n_parts; i++) all += at->part[i].n_groups;
    for (row %= each; row - before >= at->part[p].rows; p++) {
        CHECK(p + 1 < at->n_parts, "row %lld is in no part", (long long)row);
        before += at->part[p].rows;
        groups += at->part[p].n_groups;
    }
    const struct coded_part *x = &at->part[p];
    const int64_t at_row = expert * each + row, first = row - before;
    if (n > x->rows - first) n = x->rows - first;
    *a = (struct packed_args){.packing = at->packing,
                              .rows = n,
                              .cols = c->in[0].n[1],
                              .first = x->first + first * at->row_blocks,
                              .row_blocks = at->row_blocks,
                              .codes = (const uint8_t *)c->in[1].p + at_row * c->in[1].n[1],
                              .scales = (const uint8_t *)c->in[2].p + at_row * c->in[2].n[1],
                              .n_groups = x->n_groups,
                              .t = c->in[0].dtype};
    if (all) a->groups = (const float *)c->in[CODED_GROUPS].p + expert * all + groups;
    return n;
}
