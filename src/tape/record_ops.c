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
    return record(t, OP_LINEAR, ATTRS(linear, .bias_off = bias_N >= 0 && bias_off), bias_N >= 0 ? 3 : 2,
                  (tid[]){x_TK, w_NK, bias_N}, name);
}

tid op_rmsnorm(struct tape *t, tid x_TD, tid w_D, float eps, const char *name)
{
    return record(t, OP_RMSNORM, ATTRS(norm, .eps = eps), 2, (tid[]){x_TD, w_D}, name);
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

tid op_attention(struct tape *t, tid q, tid k, tid v, tid doc_T, struct attention_attrs a, const char *name)
{
    a.scale = attention_scale(&a);
    return record(t, OP_ATTENTION, attrs_attention(a), doc_T >= 0 ? 4 : 3, (tid[]){q, k, v, doc_T}, name);
}

tid op_attention_cached(struct tape *t, tid q, tid k, tid v, tid pos_T, tid cache_k, tid cache_v,
                        struct attention_attrs a, const char *name)
{
    a.scale = attention_scale(&a);
    return record(t, OP_ATTENTION_CACHED, attrs_attention(a), 6, (tid[]){q, k, v, pos_T, cache_k, cache_v}, name);
}

tid op_act(struct tape *t, tid x, enum act_kind kind, const char *name)
{
    return record(t, OP_ACT, ATTRS(act, .kind = kind), 1, (tid[]){x}, name);
}

tid op_add(struct tape *t, tid a, tid b, float dropout, uint64_t stream, tid index_T, const char *name)
{
    bool indexed = dropout > 0 && index_T >= 0;
    return record(t, OP_ADD, ATTRS(dropout, .p = dropout, .stream = stream), indexed ? 3 : 2, (tid[]){a, b, index_T},
                  name);
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

tid op_mla_kv(struct tape *t, tid kv, tid rope, struct mla_kv_attrs a, const char *name)
{
    return record(t, OP_MLA_KV, attrs_mla_kv(a), 2, (tid[]){kv, rope}, name);
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

tid op_cast(struct tape *t, tid x, enum dtype to, const char *name)
{
    if (t->err.code || tape_tensor(t, x)->dtype == to) return x;
    return tape_record(t, OP_COPY, &(struct op_attrs){0}, 1, (tid[]){x}, to, name);
}

tid op_xent(struct tape *t, tid logits_TV, tid target_T, int stat_slot, const char *name)
{
    tid stat = record(t, OP_XENT, ATTRS(vocab, 0), 2, (tid[]){logits_TV, target_T}, name);
    tape_bind(t, stat, stat_slot);
    return stat;
}

tid op_xent_right(struct tape *t, tid logits_TV, tid target_T, int stat_slot, const char *name)
{
    tid stat = record(t, OP_XENT, ATTRS(vocab, .right = true), 2, (tid[]){logits_TV, target_T}, name);
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
