/* SPDX-License-Identifier: Apache-2.0 */
/* Products with matrices in few bits, plainly: each number is made of its code and its scale, rounded to x's type,
 * multiplied, and summed in double. 2 T N K operations, and as many again for the numbers of each row of x. */
#include "kernel/codes_product.h"
#include "kernel/ref/ref.h"

/* Element (0, col) of what a says, in the type that is computed in. */
static double number(const struct packed_args *a, const struct packed_scales *s, const float *value, int64_t col)
{
    const float scale = packed_scale(s, 0, col / packing_row(a->packing)->block);
    double room; /* for the widest type there is */
    packed_put(&room, a->t, 0, packed_code(packing_row(a->packing)->per_byte == 1, a->codes, value, col) * scale);
    return ref_load(&room, a->t, 0);
}

/* Whose row this is, and 0 where there are no experts; -1: nobody's. */
static int64_t expert_of(const struct kernel_call *c, int64_t row)
{
    const struct view *rows = coded_experts(c);
    for (int64_t e = 0; rows && e < rows->n[0]; e++) {
        if (row < ref_int(rows, e)) return e;
        row -= ref_int(rows, e);
    }
    return rows ? -1 : 0;
}

static void coded_row(const struct kernel_call *c, int64_t t, double *mine)
{
    const int64_t e = expert_of(c, t), n_out = c->out[0].n[1];
    const struct view *bias = coded_bias(c);
    float value[PACKING_CODES];
    (void)mine;
    struct packed_args a;
    struct packed_scales s;
    packing_table(at_coded(&c->at)->packing, value);
    for (int64_t n = 0; n < n_out; n++) {
        double sum = 0;
        if (e >= 0) (void)coded_rows(c, e * n_out + n, 1, &a);
        if (e >= 0 && n == 0) packed_scales_init(&s, &a); /* of all rows the same, but for where they lie */
        for (int64_t k = 0; e >= 0 && k < a.cols; k++) sum += ref_get(&c->in[0], t, k) * number(&a, &s, value, k);
        ref_set(&c->out[0], t, n, sum + (bias ? ref_get(bias, 0, n) : 0));
    }
}

void coded_fwd_ref(const struct kernel_call *c) { ref_each_row(c, c->in[0].n[0], 0, coded_row); }
