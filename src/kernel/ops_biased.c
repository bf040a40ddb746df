/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of encoder and decoder: shapes, costs, mesh types.
 *
 * Types: heads are columns of q, k and v (S1), columns of the table and rows of distances (S0). Where tokens differ by
 * rank (V) every rank has all distances and its tokens' part of their gradient, so they are R, and so is the table.
 * Rows of sequences that are cut over an axis are refused: who shares tokens out says so before (config). */
#include "kernel/buckets.h"
#include "kernel/cache_runs.h"
#include "kernel/ops.h"

static bool is_rows(const struct view *v, int64_t rows, int64_t cols)
{
    return is_matrix(v) && v->n[0] == rows && v->n[1] == cols;
}

const char *infer_pick(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct pick_attrs *at = at_pick(attrs);
    (void)n_in;
    NEED(at->batch >= 0 && at->first >= 0 && at->n > 0 && at->first + at->n <= at->seq,
         "the places must lie inside a sequence");
    NEED(in[0].nd == 1 && in[0].dtype == DT_I32 && in[0].n[0] == at->batch * at->seq,
         "x must be i32, one per token of whole sequences");
    out[0] = out[1] = dense1(DT_I32, at->batch * at->n);
    return NULL;
}

const char *infer_distances(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct distances_attrs *at = at_distances(attrs);
    (void)n_in;
    NEED(at->q_seq > 0 && at->k_seq > 0, "sequences must have tokens");
    NEED(is_rows(&in[0], in[0].n[0], in[0].n[1]) && in[0].n[0] >= (at->both_ways ? 4 : 2),
         "w must be a float matrix: buckets by heads, with two buckets or more each way");
    NEED(at->most > in[0].n[0] / (at->both_ways ? 4 : 2), "the farthest distance must lie beyond the near ones");
    out[0] = dense2(DT_F32, in[0].n[1], distances_cols(at->q_seq, at->k_seq));
    return NULL;
}

const char *infer_attention_biased(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct attention_biased_attrs *at = at_attention_biased(attrs);
    int64_t cols = (int64_t)at->heads * at->head_dim;
    NEED(at->heads > 0 && at->head_dim > 0 && at->batch >= 0 && at->q_seq > 0 && at->k_seq > 0,
         "heads, head_dim and sequences must be positive");
    NEED(!at->causal || at->q_seq == at->k_seq, "causal attention is of the keys of the same tokens");
    NEED(at->dropout.p >= 0 && at->dropout.p < 1, "dropout must be in [0, 1)");
    NEED(is_rows(&in[0], at->batch * at->q_seq, cols), "q must be a float matrix: batch * q_seq by heads * head_dim");
    for (int i = 1; i < 3; i++)
        NEED(is_rows(&in[i], at->batch * at->k_seq, cols) && in[i].dtype == in[0].dtype,
             "k and v must be matrices of q's dtype: batch * k_seq by heads * head_dim");
    NEED(n_in < 4 || !in[3].nd ||
             (in[3].dtype == DT_F32 && is_rows(&in[3], at->heads, distances_cols(at->q_seq, at->k_seq))),
         "the bias must be f32: heads by distances");
    NEED(n_in < 5 || (in[4].nd == 1 && in[4].dtype == DT_I32 && in[4].n[0] == at->batch * at->k_seq),
         "places must be i32, one per key");
    out[0] = dense2(in[0].dtype, in[0].n[0], cols);
    out[1] = dense2(DT_F32, in[0].n[0], at->heads);
    return NULL;
}

const char *infer_attention_cached_biased(const struct op_attrs *attrs, int n_in, const struct view *in,
                                          struct view *out)
{
    const struct attention_cached_biased_attrs *at = at_attention_cached_biased(attrs);
    int64_t cols = (int64_t)at->heads * at->head_dim;
    NEED(at->heads > 0 && at->head_dim > 0, "heads and head_dim must be positive");
    NEED(is_rows(&in[0], in[0].n[0], cols), "q must be a float matrix: tokens by heads * head_dim");
    NEED(!in[1].nd == !in[2].nd, "k and v must both be there, or none of them");
    for (int i = 1; i < 3 && in[1].nd; i++)
        NEED(is_rows(&in[i], in[0].n[0], cols) && in[i].dtype == in[0].dtype, "k and v must be as q is");
    NEED(in[3].nd == 2 && in[3].dtype == DT_I32 && in[3].n[1] > RUN_PAGES,
         "runs must be an i32 matrix: sequences by first row, rows, places before, pages");
    for (int i = 4; i < 6; i++)
        NEED(is_rows(&in[i], in[4].n[0], cols) && in[i].dtype == in[0].dtype,
             "the caches must be matrices of q's dtype and columns, with equal room");
    NEED(in[4].n[0] > 0 && in[4].n[0] % CACHE_PAGE == 0, "the caches must have room in whole pages");
    if (n_in > 6) {
        NEED(in[1].nd, "a bias by distance is of keys that come with the tokens");
        NEED(is_rows(&in[6], in[6].n[0], at->heads) && in[6].n[0] >= 2, "w must be a float matrix: buckets by heads");
        NEED(at->most > in[6].n[0] / 2, "the farthest distance must lie beyond the near ones");
    }
    out[0] = dense2(in[0].dtype, in[0].n[0], cols);
    return NULL;
}

/* Places are data: counted as if the cache were full. */
double flops_attention_cached_biased(const struct kernel_call *c)
{
    return (double)c->in[0].n[0] * (double)c->in[0].n[1] * (double)c->in[4].n[0] * 4;
}

/* As of attention: two products forward, four backward, of the pairs that are seen. */
double flops_attention_biased(const struct kernel_call *c)
{
    const struct attention_biased_attrs *at = at_attention_biased(&c->at);
    double q = (double)at->q_seq, pairs = at->causal ? q * (q + 1) / 2 : q * (double)at->k_seq;
    return (double)at->batch * at->heads * pairs * ((c->phase == KERNEL_FWD ? 4.0 : 8.0) * at->head_dim + 5);
}

const char *rule_pick(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    (void)at;
    (void)n_in;
    if (in[0] != SPMD_I && in[0] != SPMD_R && in[0] != SPMD_V) return "sequences must be whole";
    out[0] = out[1] = in[0];
    return NULL;
}

const char *rule_distances(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    (void)at;
    (void)n_in;
    if (in[0] != SPMD_I && in[0] != SPMD_R && in[0] != SPMD_S1) return "the table can be split by heads (S1) only";
    out[0] = in[0] == SPMD_S1 ? SPMD_S0 : in[0];
    return NULL;
}

const char *rule_attention_biased(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    static const enum spmd bias_of[][2] = {{SPMD_I, SPMD_I}, {SPMD_R, SPMD_R}, {SPMD_S1, SPMD_S0}, {SPMD_V, SPMD_R}};
    (void)at;
    if (in[1] != in[0] || in[2] != in[0])
        return "q, k and v must have one type: all split by heads (S1), or all R, I or V";
    for (int i = 0; i < 4; i++) {
        if (bias_of[i][0] != in[0]) continue;
        if (n_in > 3 && in[3] != SPMD_N && in[3] != bias_of[i][1])
            return "the bias must be split as the heads are (S0 with S1), R where tokens differ by rank, else as q is";
        bool whole = n_in < 5 || in[4] == SPMD_I || in[4] == SPMD_R;
        if (!whole && (in[4] != SPMD_V || in[0] != SPMD_V))
            return "places must be whole, or V where tokens differ by rank";
        out[0] = out[1] = in[0];
        return NULL;
    }
    return "q must be whole, split by heads (S1), or of other sequences on each rank (V)";
}

const char *rule_attention_cached_biased(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    static const enum spmd table_of[][2] = {{SPMD_I, SPMD_I}, {SPMD_R, SPMD_R}, {SPMD_S1, SPMD_S1}, {SPMD_V, SPMD_R}};
    (void)at;
    bool alike = (in[1] == in[0] || in[1] == SPMD_N) && (in[2] == in[0] || in[2] == SPMD_N);
    if (!alike || in[4] != in[0] || in[5] != in[0])
        return "q, k, v and the caches must have one type: all split by heads (S1), or all R, I or V";
    for (int i = 0; i < 4; i++) {
        if (table_of[i][0] != in[0]) continue;
        if (in[3] != SPMD_I && in[3] != SPMD_R && (in[3] != SPMD_V || in[0] != SPMD_V)) return "runs must be whole";
        if (n_in > 6 && in[6] != table_of[i][1])
            return "the table must be split as the heads are (S1), R where tokens differ by rank, else as q is";
        out[0] = in[0];
        return NULL;
    }
    return "q must be whole, split by heads (S1), or of other sequences on each rank (V)";
}
