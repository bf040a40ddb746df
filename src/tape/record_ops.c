/* SPDX-License-Identifier: Apache-2.0 */
/* One recording call per row of the kernel table: what a layer writes. Each fills the attributes of its row and
 * nothing else; shapes and mesh types are checked by tape_record. */
#include <math.h>

#include "tape/tape.h"

tid op_embed(struct tape *t, tid ids_T, tid w_VD, const char *name)
{
    return tape_record(t, OP_EMBED, &(struct op_attrs){0}, 2, (tid[]){ids_T, w_VD}, DT_N, name);
}

tid op_embed_part(struct tape *t, tid ids_T, tid w_VD, int64_t first, int64_t whole, const char *name)
{
    return tape_record(t, OP_EMBED, &(struct op_attrs){.first = first, .whole = whole}, 2, (tid[]){ids_T, w_VD}, DT_N,
                       name);
}

tid op_linear(struct tape *t, tid x_TK, tid w_NK, tid bias_N, const char *name)
{
    return tape_record(t, OP_LINEAR, &(struct op_attrs){0}, bias_N >= 0 ? 3 : 2, (tid[]){x_TK, w_NK, bias_N}, DT_N,
                       name);
}

tid op_linear_partial(struct tape *t, tid x_TK, tid w_NK, tid bias_N, bool bias_off, const char *name)
{
    struct op_attrs at = {.bias_off = bias_N >= 0 && bias_off};
    return tape_record(t, OP_LINEAR, &at, bias_N >= 0 ? 3 : 2, (tid[]){x_TK, w_NK, bias_N}, DT_N, name);
}

tid op_rmsnorm(struct tape *t, tid x_TD, tid w_D, float eps, const char *name)
{
    return tape_record(t, OP_RMSNORM, &(struct op_attrs){.eps = eps}, 2, (tid[]){x_TD, w_D}, DT_N, name);
}

tid op_layernorm(struct tape *t, tid x_TD, tid w_D, tid b_D, float eps, const char *name)
{
    return tape_record(t, OP_LAYERNORM, &(struct op_attrs){.eps = eps}, 3, (tid[]){x_TD, w_D, b_D}, DT_N, name);
}

tid op_rotary(struct tape *t, tid x, tid pos_T, tid table_PA, int heads, int head_dim, const char *name)
{
    return tape_record(t, OP_ROTARY, &(struct op_attrs){.heads = heads, .head_dim = head_dim}, 3,
                       (tid[]){x, pos_T, table_PA}, DT_N, name);
}

struct op_attrs attention_attrs(const struct attention_shape *s)
{
    return (struct op_attrs){
        .heads = s->heads,
        .kv_heads = s->kv_heads,
        .head_dim = s->head_dim,
        .head_first = s->head_first,
        .kv_first = s->kv_first,
        .group = s->group,
        .heads_all = s->heads_all,
        .batch = s->batch,
        .seq = s->seq,
        .scale = s->scale > 0 ? s->scale : 1.0f / sqrtf((float)s->head_dim),
        .causal = s->causal,
        .window = s->window,
        .dropout = s->dropout,
        .stream = s->stream,
    };
}

tid op_attention(struct tape *t, tid q, tid k, tid v, tid doc_T, const struct attention_shape *s, const char *name)
{
    struct op_attrs at = attention_attrs(s);
    return tape_record(t, OP_ATTENTION, &at, doc_T >= 0 ? 4 : 3, (tid[]){q, k, v, doc_T}, DT_N, name);
}

tid op_attention_cached(struct tape *t, tid q, tid k, tid v, tid pos_T, tid cache_k, tid cache_v,
                        const struct attention_shape *s, const char *name)
{
    struct op_attrs at = attention_attrs(s);
    return tape_record(t, OP_ATTENTION_CACHED, &at, 6, (tid[]){q, k, v, pos_T, cache_k, cache_v}, DT_N, name);
}

tid op_act(struct tape *t, tid x, enum act_kind kind, const char *name)
{
    return tape_record(t, OP_ACT, &(struct op_attrs){.act = kind}, 1, (tid[]){x}, DT_N, name);
}

tid op_add(struct tape *t, tid a, tid b, float dropout, uint64_t stream, tid index_T, const char *name)
{
    bool indexed = dropout > 0 && index_T >= 0;
    return tape_record(t, OP_ADD, &(struct op_attrs){.dropout = dropout, .stream = stream}, indexed ? 3 : 2,
                       (tid[]){a, b, index_T}, DT_N, name);
}

tid op_dropout(struct tape *t, tid x, float dropout, uint64_t stream, tid index_T, const char *name)
{
    if (dropout == 0) return x;
    return tape_record(t, OP_DROPOUT, &(struct op_attrs){.dropout = dropout, .stream = stream}, index_T >= 0 ? 2 : 1,
                       (tid[]){x, index_T}, DT_N, name);
}

tid op_rotary_part(struct tape *t, tid x, tid pos_T, tid table_PA, const struct op_attrs *at, const char *name)
{
    return tape_record(t, OP_ROTARY, at, 3, (tid[]){x, pos_T, table_PA}, DT_N, name);
}

tid op_moe(struct tape *t, enum op op, const struct op_attrs *at, int n_in, const tid *in, const char *name)
{
    return tape_record(t, op, at, n_in, in, DT_N, name);
}

tid op_grouped(struct tape *t, tid x_UK, tid w, tid rows_E, int64_t expected, const char *name)
{
    return tape_record(t, OP_GROUPED, &(struct op_attrs){.whole = expected}, 3, (tid[]){x_UK, w, rows_E}, DT_N, name);
}

tid op_mla_kv(struct tape *t, tid kv, tid rope, const struct op_attrs *at, const char *name)
{
    return tape_record(t, OP_MLA_KV, at, 2, (tid[]){kv, rope}, DT_N, name);
}

tid op_trim(struct tape *t, tid x, const struct op_attrs *at, const char *name)
{
    return tape_record(t, OP_TRIM, at, 1, (tid[]){x}, DT_N, name);
}

tid op_cast(struct tape *t, tid x, enum dtype to, const char *name)
{
    if (t->err.code || tape_tensor(t, x)->dtype == to) return x;
    return tape_record(t, OP_COPY, &(struct op_attrs){0}, 1, (tid[]){x}, to, name);
}

tid op_xent(struct tape *t, tid logits_TV, tid target_T, int stat_slot, const char *name)
{
    tid stat = tape_record(t, OP_XENT, &(struct op_attrs){0}, 2, (tid[]){logits_TV, target_T}, DT_N, name);
    tape_bind(t, stat, stat_slot);
    return stat;
}

tid op_xent_part(struct tape *t, tid logits_TV, tid target_T, struct vocab_part v, const char *name)
{
    return tape_record(t, OP_XENT_PART, &(struct op_attrs){.first = v.first, .whole = v.whole}, 2,
                       (tid[]){logits_TV, target_T}, DT_N, name);
}

tid op_xent_join(struct tape *t, tid logits_TV, tid target_T, tid stats_N3, struct vocab_part v, int stat_slot,
                 const char *name)
{
    struct op_attrs at = {.first = v.first, .whole = v.whole, .n_parts = v.n_parts};
    tid stat = tape_record(t, OP_XENT, &at, 3, (tid[]){logits_TV, target_T, stats_N3}, DT_N, name);
    tape_bind(t, stat, stat_slot);
    return stat;
}
