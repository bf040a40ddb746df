/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes and dtypes of attention: by heads, by parts of sequences, through the caches; and of what opens latent
 * keys and values. */
#include "kernel/attention_heads.h"
#include "kernel/cache_runs.h"
#include "kernel/ops.h"
#include "layout/region.h"
#include "layout/sequence.h"

/* Heads and columns; rows of q, and of k and v. */
static const char *infer_heads(const struct attention_attrs *at, const struct view *in)
{
    NEED(at->heads >= 0 && at->kv_heads >= (at->heads > 0) && at->head_dim > 0,
         "heads, kv_heads and head_dim must be positive");
    NEED(at->group > 0 || (at->heads > 0 && at->heads % at->kv_heads == 0), "kv_heads must divide heads");
    NEED(!at->heads || (attention_kv_of(at, 0) >= 0 && attention_kv_of(at, at->heads - 1) < at->kv_heads),
         "every query head must find its key head");
    NEED(at->window >= 0, "window must be positive, or 0 for none");
    NEED(at->cap >= 0, "the cap must be positive, or 0 for none");
    for (int i = 0; i < 3; i++) {
        NEED(is_matrix(&in[i]) && in[i].dtype == in[0].dtype && in[i].n[0] == in[i ? 1 : 0].n[0],
             "q, k and v must be float matrices of one dtype with one row per token");
        NEED(in[i].n[1] == (int64_t)(i ? at->kv_heads : at->heads) * at->head_dim,
             "q must have heads * head_dim columns, k and v kv_heads * head_dim");
    }
    return NULL;
}

static const char *infer_qkv(const struct attention_attrs *at, const struct view *in)
{
    const char *why = infer_heads(at, in);
    if (why) return why;
    NEED(in[0].n[0] == in[1].n[0], "q, k and v must be float matrices of one dtype with one row per token");
    return NULL;
}

#define SINK_WANTED "sinks must be of q's dtype, one per query head"
static bool is_sink(const struct attention_attrs *at, const struct view *in, int i)
{
    return !in[i].nd || (in[i].nd == 1 && in[i].dtype == in[0].dtype && in[i].n[0] == at->heads);
}

static const char *infer_mask(const struct attention_attrs *at, int n_in, const struct view *in)
{
    NEED(at->dropout.p >= 0 && at->dropout.p < 1, "dropout must be in [0, 1)");
    NEED(at->window == 0 || at->causal, "a window needs causal attention");
    NEED(!at->prefix || (at->causal && !at->window && n_in > ATTENTION_DOC && in[ATTENTION_DOC].nd),
         "prefixes are of causal attention without a window, and marked in the documents' ids");
    return NULL;
}

const char *infer_attention(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct attention_attrs *at = at_attention(attrs);
    const char *why = infer_qkv(at, in);
    if (why) return why;
    NEED(at->batch >= 0 && at->seq >= 0 && at->batch * at->seq == in[0].n[0], "tokens must be batch * seq");
    why = infer_mask(at, n_in, in);
    if (why) return why;
    if (n_in > ATTENTION_DOC && in[ATTENTION_DOC].nd)
        NEED(is_vector(&in[ATTENTION_DOC], DT_I32) && in[ATTENTION_DOC].n[0] == in[0].n[0],
             "document ids must be i32, one per token");
    NEED(n_in <= ATTENTION_SINK || is_sink(at, in, ATTENTION_SINK), SINK_WANTED);
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    out[1] = dense2(DT_F32, in[0].n[0], at->heads);
    return NULL;
}

static const char *infer_shared(const struct attention_attrs *at, int n_in, const struct view *in, int64_t q_rows,
                                int64_t k_rows)
{
    const char *why = infer_heads(at, in);
    if (why) return why;
    NEED(at->batch >= 0 && at->seq >= 0, "batch and seq must not be negative");
    NEED(at->batch * q_rows == in[0].n[0], "q must have the rows of its parts of every sequence");
    NEED(at->batch * k_rows == in[1].n[0], "k and v must have the rows of their parts of every sequence");
    why = infer_mask(at, n_in, in);
    if (why) return why;
    if (n_in > ATTENTION_DOC && in[ATTENTION_DOC].nd)
        NEED(is_vector(&in[ATTENTION_DOC], DT_I32) && in[ATTENTION_DOC].n[0] == at->batch * at->seq,
             "document ids must be i32, of all tokens of the microbatch in order");
    NEED(n_in <= ATTENTION_SINK || is_sink(at, in, ATTENTION_SINK), SINK_WANTED);
    if (n_in > ATTENTION_TOKEN && in[ATTENTION_TOKEN].nd)
        NEED(is_vector(&in[ATTENTION_TOKEN], DT_I32) && in[ATTENTION_TOKEN].n[0] == at->batch * at->seq &&
                 in[ATTENTION_DOC].nd && !at->prefix,
             "tokens' numbers must be i32, one per place, of documents that see nothing of each other");
    return NULL;
}

const char *infer_attention_part(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct attention_part_attrs *of = at_attention_part(attrs);
    const struct attention_attrs *at = &of->attention;
    int n = of->parts, q = of->q_first, nq = of->q_count, k = of->k_first, nk = of->k_count;
    NEED(n > 0 && q >= 0 && nq >= 0 && q + nq <= n && k >= 0 && nk >= 0 && k + nk <= n, "no such parts of a sequence");
    const char *why = infer_shared(at, n_in, in, context_rows(at->seq, n, q, nq), context_rows(at->seq, n, k, nk));
    if (why) return why;
    out[0] = dense2(DT_F32, in[0].n[0], in[0].n[1]);
    out[1] = dense2(DT_F32, in[0].n[0], at->heads);
    return NULL;
}

const char *infer_context(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct context_attrs *of = at_context(attrs);
    const struct attention_attrs *at = &of->attention;
    int n = of->over.n_parts, part = of->over.part, inner = of->inner;
    NEED(n > 0 && part >= 0 && part < n && inner > 0 && n % inner == 0, "no such rank");
    int64_t mine = context_rows(at->seq, n, part, 1), lo, hi;
    const char *why = infer_shared(at, n_in, in, mine, mine);
    if (why) return why;
    region_split(at->heads, part % inner, inner, &lo, &hi); /* lse stays where it is computed: with these heads */
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    out[1] = dense2(DT_F32, at->batch * context_rows(at->seq, n, part / inner * inner, inner), hi - lo);
    return NULL;
}

const char *infer_attention_cached(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct attention_attrs *at = at_attention(attrs);
    const char *why = infer_qkv(at, in);
    if (why) return why;
    NEED(in[3].nd == 2 && in[3].dtype == DT_I32 && in[3].n[1] > RUN_PAGES,
         "runs must be an i32 matrix: sequences by first row, rows, places before, pages");
    for (int i = 4; i < 6; i++)
        NEED(is_matrix(&in[i]) && in[i].dtype == in[0].dtype && in[i].n[1] == in[1].n[1],
             "the caches must be matrices of k's dtype and columns");
    NEED(in[4].n[0] == in[5].n[0] && in[4].n[0] > 0 && in[4].n[0] % CACHE_PAGE == 0,
         "the caches must have equal room, in whole pages");
    NEED(n_in <= CACHED_SINK || is_sink(at, in, CACHED_SINK), SINK_WANTED);
    out[0] = dense2(in[0].dtype, in[0].n[0], in[0].n[1]);
    return NULL;
}

const char *infer_mla_kv(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct mla_kv_attrs *at = at_mla_kv(attrs);
    (void)n_in;
    NEED(at->heads >= 0 && at->nope > 0 && at->nope < at->head_dim && at->value > 0 && at->value <= at->head_dim,
         "nope must be less than head_dim, value at most that");
    NEED(is_matrix(&in[0]) && in[0].n[1] == (int64_t)at->heads * (at->nope + at->value),
         "kv must be a float matrix: tokens by heads * (nope + value)");
    NEED(is_matrix(&in[1]) && in[1].dtype == in[0].dtype && in[1].n[0] == in[0].n[0] &&
             in[1].n[1] == at->head_dim - at->nope,
         "rope must be a float matrix: tokens by head_dim - nope");
    out[0] = dense2(in[0].dtype, in[0].n[0], 2 * (int64_t)at->heads * at->head_dim);
    return NULL;
}

const char *infer_trim(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct trim_attrs *at = at_trim(attrs);
    (void)n_in;
    NEED(at->heads >= 0 && at->value > 0 && at->value <= at->head_dim, "value must be from 1 to head_dim");
    NEED(is_matrix(&in[0]) && in[0].n[1] == (int64_t)at->heads * at->head_dim,
         "x must be a float matrix: tokens by heads * head_dim");
    out[0] = dense2(in[0].dtype, in[0].n[0], (int64_t)at->heads * at->value);
    return NULL;
}
