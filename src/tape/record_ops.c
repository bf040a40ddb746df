/* SPDX-License-Identifier: Apache-2.0 */
/* One recording call per row of the kernel table: what a layer writes. Each fills the attributes of its row and
 * nothing else; shapes and mesh types are checked by tape_record. */
#include <math.h>

#include "tape/tape.h"

static tid record(struct tape *t, enum op op, struct op_attrs at, int n_in, const tid *in, const char *name)
{
    return tape_record(t, op, &at, n_in, in, DT_N, name);
}

tid op_embed(struct tape *t, tid ids_T, tid w_VD, struct vocab_attrs v, const char *name)
{
    return record(t, OP_EMBED, attrs_vocab(v), 2, (tid[]){ids_T, w_VD}, name);
}

tid op_linear(struct tape *t, tid x_TK, tid w_NK, tid bias_N, const char *name)
{
    return op_linear_partial(t, x_TK, w_NK, bias_N, false, name);
}

tid op_linear_partial(struct tape *t, tid x_TK, tid w_NK, tid bias_N, bool bias_off, const char *name)
{
    return record(t, OP_LINEAR, ATTRS(linear, .bias_off = bias_N >= 0 && bias_off, .same_rows = t->same_rows),
                  bias_N >= 0 ? 3 : 2, (tid[]){x_TK, w_NK, bias_N}, name);
}

tid op_rmsnorm(struct tape *t, tid x_TD, tid w_D, float eps, const char *name)
{
    return record(t, OP_RMSNORM, ATTRS(norm, .eps = eps), 2, (tid[]){x_TD, w_D}, name);
}

tid op_norm(struct tape *t, tid x_TD, tid w_D, struct norm_attrs a, const char *name)
{
    return record(t, OP_RMSNORM, attrs_norm(a), 2, (tid[]){x_TD, w_D}, name);
}

tid op_headnorm(struct tape *t, tid x_THA, tid w_A, struct norm_attrs a, const char *name)
{
    return record(t, OP_HEADNORM, attrs_norm(a), 2, (tid[]){x_THA, w_A}, name);
}

tid op_squares(struct tape *t, tid x_TN, const char *name)
{
    return record(t, OP_SQUARES, (struct op_attrs){0}, 1, &x_TN, name);
}

tid op_norm_by(struct tape *t, tid x_TN, tid s_T1, tid w_N, struct norm_attrs a, const char *name)
{
    return record(t, OP_NORM_BY, attrs_norm(a), 3, (tid[]){x_TN, s_T1, w_N}, name);
}

tid op_layernorm(struct tape *t, tid x_TD, tid w_D, tid b_D, float eps, const char *name)
{
    return record(t, OP_LAYERNORM, ATTRS(norm, .eps = eps), 3, (tid[]){x_TD, w_D, b_D}, name);
}

tid op_rotary(struct tape *t, tid x, tid pos_T, tid table_PA, struct rotary_attrs a, const char *name)
{
    return record(t, OP_ROTARY, attrs_rotary(a), 3, (tid[]){x, pos_T, table_PA}, name);
}

float attention_scale(const struct attention_attrs *a)
{
    return a->scale > 0 ? a->scale : 1.0f / sqrtf((float)a->head_dim);
}

tid op_attention(struct tape *t, tid q, tid k, tid v, tid doc_T, tid sink_H, struct attention_attrs a, const char *name)
{
    a.scale = attention_scale(&a);
    return record(t, OP_ATTENTION, attrs_attention(a), attention_inputs(doc_T, sink_H), (tid[]){q, k, v, doc_T, sink_H},
                  name);
}

tid op_attention_cached(struct tape *t, tid q, tid k, tid v, tid runs_SX, tid cache_k, tid cache_v, tid sink_H,
                        struct attention_attrs a, const char *name)
{
    a.scale = attention_scale(&a);
    a.same_rows = t->same_rows;
    return record(t, OP_ATTENTION_CACHED, attrs_attention(a), sink_H >= 0 ? 7 : 6,
                  (tid[]){q, k, v, runs_SX, cache_k, cache_v, sink_H}, name);
}

tid op_act(struct tape *t, tid x, enum act_kind kind, const char *name)
{
    return record(t, OP_ACT, ATTRS(act, .kind = kind), 1, (tid[]){x}, name);
}

tid op_act_limited(struct tape *t, tid x, enum act_kind kind, float limit, const char *name)
{
    return record(t, OP_ACT, ATTRS(act, .kind = kind, .cap = limit), 1, (tid[]){x}, name);
}

tid op_cap(struct tape *t, tid x, float cap, const char *name)
{
    return record(t, OP_ACT, ATTRS(act, .kind = ACT_CAP, .cap = cap), 1, (tid[]){x}, name);
}

tid op_add(struct tape *t, tid a, tid b, float dropout, uint64_t stream, tid index_T, const char *name)
{
    bool indexed = dropout > 0 && index_T >= 0;
    return record(t, OP_ADD, ATTRS(dropout, .p = dropout, .stream = stream), indexed ? 3 : 2, (tid[]){a, b, index_T},
                  name);
}

tid op_add_onto(struct tape *t, tid a, tid b, float times, const char *name)
{
    return record(t, OP_ADD, ATTRS(dropout, .times = times, .onto = true), 2, (tid[]){a, b}, name);
}

tid op_dropout(struct tape *t, tid x, float dropout, uint64_t stream, tid index_T, const char *name)
{
    if (dropout == 0) return x;
    return record(t, OP_DROPOUT, ATTRS(dropout, .p = dropout, .stream = stream), index_T >= 0 ? 2 : 1,
                  (tid[]){x, index_T}, name);
}

tid op_router(struct tape *t, tid logits_TE, tid bias_E, struct router_attrs a, const char *name)
{
    return record(t, OP_ROUTER, attrs_router(a), bias_E >= 0 ? 2 : 1, (tid[]){logits_TE, bias_E}, name);
}

tid op_load(struct tape *t, tid pick_Tk, tid target_T, struct load_attrs a, const char *name)
{
    return record(t, OP_LOAD, attrs_load(a), 2, (tid[]){pick_Tk, target_T}, name);
}

tid op_balance(struct tape *t, tid logits_TE, tid pick_Tk, tid target_T, tid load_BE, struct balance_attrs a,
               const char *name)
{
    return record(t, OP_BALANCE, attrs_balance(a), 4, (tid[]){logits_TE, pick_Tk, target_T, load_BE}, name);
}

tid op_permute(struct tape *t, tid x_TD, tid pick_Nk, struct permute_attrs a, const char *name)
{
    return record(t, OP_PERMUTE, attrs_permute(a), 2, (tid[]){x_TD, pick_Nk}, name);
}

tid op_unpermute(struct tape *t, tid y_UD, tid gate_Tk, tid row_Tk, int top_k, const char *name)
{
    return record(t, OP_UNPERMUTE, ATTRS(unpermute, .top_k = top_k), 3, (tid[]){y_UD, gate_Tk, row_Tk}, name);
}

tid op_grouped(struct tape *t, tid x_UK, tid w, tid rows_E, int64_t expected, const char *name)
{
    return record(t, OP_GROUPED, ATTRS(grouped, .expected = expected), 3, (tid[]){x_UK, w, rows_E}, name);
}

tid op_coded(struct tape *t, tid x_TK, const tid w[3], tid bias_N, tid rows_E, const struct coded_attrs *a,
             const char *name)
{
    const tid in[] = {x_TK, w[0], w[1], w[2], bias_N, rows_E};
    return record(t, OP_CODED, attrs_coded(*a), 6, in, name);
}

tid op_expert_bias(struct tape *t, tid x_UN, tid b, tid rows_E, bool bias_off, const char *name)
{
    return record(t, OP_EXPERT_BIAS, ATTRS(expert_bias, .bias_off = bias_off), 3, (tid[]){x_UN, b, rows_E}, name);
}

tid op_mla_kv(struct tape *t, tid kv, tid rope, struct mla_kv_attrs a, const char *name)
{
    return record(t, OP_MLA_KV, attrs_mla_kv(a), 2, (tid[]){kv, rope}, name);
}

tid op_join(struct tape *t, tid x_TD, tid y_TE, const char *name)
{
    return record(t, OP_JOIN, (struct op_attrs){0}, 2, (tid[]){x_TD, y_TE}, name);
}

tid op_trim(struct tape *t, tid x, struct trim_attrs a, const char *name)
{
    return record(t, OP_TRIM, attrs_trim(a), 1, (tid[]){x}, name);
}

tid op_patches(struct tape *t, tid pixels, struct patches_attrs a, enum dtype to, const char *name)
{
    struct op_attrs at = attrs_patches(a);
    return tape_record(t, OP_PATCHES, &at, 1, &pixels, to, name);
}

tid op_pool(struct tape *t, tid x_TD, struct pool_attrs a, const char *name)
{
    return record(t, OP_POOL, attrs_pool(a), 1, &x_TD, name);
}

tid op_insert(struct tape *t, tid x_TD, tid at_T, tid rows_RD, struct insert_attrs a, const char *name)
{
    return record(t, OP_INSERT, attrs_insert(a), 3, (tid[]){x_TD, at_T, rows_RD}, name);
}

/* Up to the last of the n inputs that is there; those before it may be absent. */
static int given(const tid *in, int n)
{
    while (in[n - 1] < 0) n--;
    return n;
}

tid op_conv(struct tape *t, tid x_TC, tid w_CK, tid b_C, tid doc_W, tid halo, struct conv_attrs a, const char *name)
{
    tid in[] = {x_TC, w_CK, b_C, doc_W, halo};
    return t->err.code ? TID_NONE : record(t, OP_CONV, attrs_conv(a), given(in, 5), in, name);
}

tid op_times(struct tape *t, tid dt_TH, tid decay_H, tid bias_H, struct times_attrs a, const char *name)
{
    return record(t, OP_TIMES, attrs_times(a), 3, (tid[]){dt_TH, decay_H, bias_H}, name);
}

tid op_scan(struct tape *t, tid x, tid bc, tid s, tid skip_H, tid doc_W, tid before, struct scan_attrs a,
            const char *name)
{
    tid in[] = {x, bc, s, skip_H, doc_W, before};
    return t->err.code ? TID_NONE : record(t, OP_SCAN, attrs_scan(a), given(in, 6), in, name);
}

tid op_scan_end(struct tape *t, tid x, tid bc, tid s, tid doc_W, struct scan_attrs a, const char *name)
{
    return record(t, OP_SCAN_END, attrs_scan(a), doc_W >= 0 ? 4 : 3, (tid[]){x, bc, s, doc_W}, name);
}

tid op_gated_norm(struct tape *t, tid y, tid z, tid w, struct norm_attrs a, const char *name)
{
    return record(t, OP_GATED_NORM, attrs_norm(a), w >= 0 ? 3 : 2, (tid[]){y, z, w}, name);
}

tid op_tails(struct tape *t, tid x, struct halo_attrs a, const char *name)
{
    return record(t, OP_TAILS, attrs_halo(a), 1, &x, name);
}

tid op_halo(struct tape *t, tid tails, struct halo_attrs a, const char *name)
{
    return record(t, OP_HALO, attrs_halo(a), 1, &tails, name);
}

tid op_carry(struct tape *t, tid ends, struct carry_attrs a, const char *name)
{
    return record(t, OP_CARRY, attrs_carry(a), 1, &ends, name);
}

tid op_conv_cached(struct tape *t, tid x, tid w, tid b, tid runs_SX, tid cache, const char *name)
{
    return record(t, OP_CONV_CACHED, (struct op_attrs){0}, 5, (tid[]){x, w, b, runs_SX, cache}, name);
}

tid op_scan_cached(struct tape *t, tid x, tid bc, tid s, tid runs_SX, tid cache, tid skip_H, struct scan_attrs a,
                   const char *name)
{
    return record(t, OP_SCAN_CACHED, attrs_scan(a), 6, (tid[]){x, bc, s, runs_SX, cache, skip_H}, name);
}

tid op_pick(struct tape *t, tid x_T, struct pick_attrs a, const char *name)
{
    return record(t, OP_PICK, attrs_pick(a), 1, &x_T, name);
}

tid op_distances(struct tape *t, tid w_BH, struct distances_attrs a, const char *name)
{
    return record(t, OP_DISTANCES, attrs_distances(a), 1, &w_BH, name);
}

tid op_attention_biased(struct tape *t, tid q, tid k, tid v, tid d_HR, tid place_M, struct attention_biased_attrs a,
                        const char *name)
{
    int n = place_M >= 0 ? 5 : d_HR >= 0 ? 4 : 3;
    return record(t, OP_ATTENTION_BIASED, attrs_attention_biased(a), n, (tid[]){q, k, v, d_HR, place_M}, name);
}

tid op_attention_cached_biased(struct tape *t, tid q, const tid kv[2], tid runs_SX, const tid cache[2], tid w_BH,
                               struct attention_cached_biased_attrs a, const char *name)
{
    return record(t, OP_ATTENTION_CACHED_BIASED, attrs_attention_cached_biased(a), w_BH >= 0 ? 7 : 6,
                  (tid[]){q, kv[0], kv[1], runs_SX, cache[0], cache[1], w_BH}, name);
}

tid op_adapted_squares(struct tape *t, tid w, tid a, const tid *b, struct adapted_attrs at, const char *name)
{
    tid in[2 + ADAPTED_PARTS] = {w, a};
    for (int k = 0; k < at.n_parts; k++) in[2 + k] = b[k];
    return record(t, OP_ADAPTED_SQUARES, attrs_adapted(at), 2 + at.n_parts, in, name);
}

tid op_magnitudes(struct tape *t, tid x_TN, tid s_M2, tid m_M, tid bias_N, struct adapted_attrs at, const char *name)
{
    return record(t, OP_MAGNITUDES, attrs_adapted(at), bias_N >= 0 ? 4 : 3, (tid[]){x_TN, s_M2, m_M, bias_N}, name);
}

tid op_cast(struct tape *t, tid x, enum dtype to, const char *name)
{
    if (t->err.code || tape_tensor(t, x)->dtype == to) return x;
    return tape_record(t, OP_COPY, &(struct op_attrs){0}, 1, (tid[]){x}, to, name);
}

tid op_xent_each(struct tape *t, tid logits_TV, tid target_T, tid stats_N3, tid factor_T, struct vocab_attrs v,
                 int stat_slot, const char *name)
{
    tid in[4] = {logits_TV, target_T, stats_N3, factor_T};
    if (!v.n_parts) in[2] = factor_T;
    tid stat = record(t, OP_XENT, attrs_vocab(v), v.n_parts ? 4 : 3, in, name);
    tape_bind(t, stat, stat_slot);
    return stat;
}

tid op_xent(struct tape *t, tid logits_TV, tid target_T, int stat_slot, const char *name)
{
    return op_xent_times(t, logits_TV, target_T, 0, stat_slot, name);
}

tid op_xent_times(struct tape *t, tid logits_TV, tid target_T, float times, int stat_slot, const char *name)
{
    tid stat = record(t, OP_XENT, ATTRS(vocab, .times = times), 2, (tid[]){logits_TV, target_T}, name);
    tape_bind(t, stat, stat_slot);
    return stat;
}

tid op_xent_right(struct tape *t, tid logits_TV, tid target_T, int stat_slot, const char *name)
{
    tid stat = record(t, OP_XENT, ATTRS(vocab, .right = true), 2, (tid[]){logits_TV, target_T}, name);
    tape_bind(t, stat, stat_slot);
    return stat;
}

tid op_score(struct tape *t, tid x_TV, tid target_T, int stat_slot, const char *name)
{
    tid stat = record(t, OP_XENT, ATTRS(vocab, .plain = true), 2, (tid[]){x_TV, target_T}, name);
    tape_bind(t, stat, stat_slot);
    return stat;
}

tid op_xent_part(struct tape *t, tid logits_TV, tid target_T, struct vocab_attrs v, const char *name)
{
    return record(t, OP_XENT_PART, attrs_vocab(v), 2, (tid[]){logits_TV, target_T}, name);
}

tid op_xent_join(struct tape *t, tid logits_TV, tid target_T, tid stats_N3, struct vocab_attrs v, int stat_slot,
                 const char *name)
{
    tid stat = record(t, OP_XENT, attrs_vocab(v), 3, (tid[]){logits_TV, target_T, stats_N3}, name);
    tape_bind(t, stat, stat_slot);
    return stat;
}
