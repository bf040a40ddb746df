/* SPDX-License-Identifier: Apache-2.0 */
/* The row of products with matrices in few bits (attrs.h). Its rule of mesh types is the ordinary product's, since
 * codes and scales are cut as the matrix is; scales of scales are of the whole matrix, on every rank. */
#include "kernel/codes_product.h"
#include "kernel/ops.h"

static bool is_bytes(const struct view *v) { return v->nd == 2 && v->dtype == DT_U8 && v->stride == v->n[1]; }

static bool has(int n_in, const struct view *in, int i) { return i < n_in && in[i].nd; }

/* Of an expert, or of all: what the parts make together. */
static const char *infer_parts(const struct coded_attrs *a, int64_t rows, int64_t blocks, int64_t *groups)
{
    int64_t all = 0;
    *groups = 0;
    NEED(a->packing > PACKING_NONE && a->packing < PACKING_N, "there is no such packing");
    NEED(a->n_parts > 0 && a->n_parts <= CODED_PARTS, "a product has one matrix or a few");
    for (int p = 0; p < a->n_parts; p++) {
        const struct coded_part *x = &a->part[p];
        NEED(x->rows >= 0 && x->first >= 0 && x->n_groups >= 0, "a part has no negative rows, blocks or groups");
        all += x->rows;
        *groups += x->n_groups;
        int64_t last = x->first + (x->rows ? (x->rows - 1) * a->row_blocks + blocks - 1 : 0);
        NEED(!packing_row(a->packing)->grouped || !x->rows || !blocks || last / PACKING_GROUP + 1 < x->n_groups,
             "a part needs a scale for each of its groups, and their mean");
    }
    NEED(all == rows, "the parts' rows must be those of the codes");
    return NULL;
}

const char *infer_coded(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct coded_attrs *at = at_coded(attrs);
    bool experts = has(n_in, in, CODED_ROWS), bias = has(n_in, in, CODED_BIAS);
    NEED(in[0].nd == 2 && is_float(in[0].dtype), "x must be a float matrix: tokens by in-features");
    NEED(is_bytes(&in[1]) && is_bytes(&in[2]) && in[1].n[0] == in[2].n[0],
         "codes and scales must be dense matrices of bytes with as many rows");
    NEED(!experts || (in[CODED_ROWS].nd == 1 && in[CODED_ROWS].dtype == DT_I32 && in[CODED_ROWS].n[0] > 0),
         "rows must be i32, one number per expert");
    int64_t experts_n = experts ? in[CODED_ROWS].n[0] : 1, n = in[1].n[0] / experts_n, groups;
    NEED(n * experts_n == in[1].n[0], "codes must have as many rows for each expert");
    const char *why = infer_parts(at, n, in[2].n[1], &groups);
    if (why) return why;
    NEED(in[1].n[1] == packing_row_bytes(at->packing, in[0].n[1]), "x's columns and those of the codes differ");
    NEED(in[2].n[1] == packing_row_blocks(at->packing, in[0].n[1]) && in[2].n[1] <= at->row_blocks,
         "a row must have a scale for each of its blocks");
    NEED(has(n_in, in, CODED_GROUPS) == (groups > 0) &&
             (!groups || (in[CODED_GROUPS].nd == 1 && in[CODED_GROUPS].dtype == DT_F32 &&
                          in[CODED_GROUPS].n[0] == groups * experts_n)),
         "scales of scales must be f32, as many as all parts have");
    NEED(!bias || !experts, "experts' biases are a row of their own");
    NEED(!bias || (in[CODED_BIAS].nd == 1 && in[CODED_BIAS].dtype == in[0].dtype && in[CODED_BIAS].n[0] == n),
         "bias must be a vector of x's dtype, one element per out-feature");
    out[0] = dense2(in[0].dtype, in[0].n[0], n);
    return NULL;
}

double flops_coded(const struct kernel_call *c)
{
    int64_t expected = at_coded(&c->at)->expected;
    double rows = (double)(expected ? expected : view_rows(&c->in[0])), n = (double)c->out[0].n[1];
    return 2 * rows * n * (double)view_cols(&c->in[0]) + (coded_bias(c) ? (double)view_rows(&c->in[0]) * n : 0);
}

const char *rule_coded(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    bool experts = n_in > CODED_ROWS && in[CODED_ROWS] != SPMD_N, bias = n_in > CODED_BIAS && in[CODED_BIAS] != SPMD_N;
    const enum spmd groups = n_in > CODED_GROUPS ? in[CODED_GROUPS] : SPMD_N;
    if (in[1] != in[2]) return "codes and scales are cut differently";
    if (groups != SPMD_N && groups != SPMD_I && groups != SPMD_R) return "scales of scales must be whole on every rank";
    if (experts) return rule_grouped(at, 3, (enum spmd[]){in[0], in[1], in[CODED_ROWS]}, out);
    return rule_linear(at, bias ? 3 : 2, (enum spmd[]){in[0], in[1], bias ? in[CODED_BIAS] : SPMD_N}, out);
}
