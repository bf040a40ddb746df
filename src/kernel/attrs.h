/* SPDX-License-Identifier: Apache-2.0 */
/* attrs.h: the rows of the operation table: what each computes, and the attributes that it has.
 *
 * Every row (ops.c) names one struct of attributes, or none. struct op_attrs holds one of them and says which: made by
 * ATTRS(norm, .eps = 1e-5f), read by at_ and changed by edit_ with the struct's name, which CHECK that it is there.
 * Nothing else touches the union, so a kernel that reads what its row does not have ends there and then, with both
 * names.
 *
 * Legend: T tokens of the microbatch (B sequences x S positions, flattened), D hidden, K in-features, N out-features,
 * H query heads, G key/value heads, A head size, F ffn width, V vocabulary. Experts: E of them, k chosen per token, U
 * rows of a buffer of which the first `used` hold tokens.
 *
 * Dtypes: x, y, q, k, v and the weights of one call share one float type (f32, bf16, f16), gradients of activations
 * too; statistics and tables are f32, ids and positions i32. Tensors of T are 2-D, COPY takes any rank.
 * Floors 0-1 only. Order: Local.
 */
#ifndef TUTTI_KERNEL_ATTRS_H
#define TUTTI_KERNEL_ATTRS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernel/act_kind.h"
#include "layout/codec.h"
#include "layout/dtype.h"
#include "layout/format.h"
#include "layout/packing.h"
#include "layout/spmd.h"

enum op {
    OP_EMBED,
    OP_LINEAR,
    OP_RMSNORM,
    OP_LAYERNORM,
    OP_HEADNORM,
    OP_SQUARES,
    OP_NORM_BY,
    OP_ROTARY,
    OP_ATTENTION,
    OP_ACT,
    OP_ADD,
    OP_DROPOUT,
    OP_XENT,
    OP_XENT_PART,
    OP_ATTENTION_CACHED,
    OP_ATTENTION_PART,
    OP_COPY,
    OP_ROUTER,
    OP_LOAD,
    OP_BALANCE,
    OP_PERMUTE,
    OP_GROUPED,
    OP_UNPERMUTE,
    OP_EXPERT_BIAS,
    OP_MLA_KV,
    OP_TRIM,
    OP_JOIN,
    OP_PATCHES,
    OP_POOL,
    OP_INSERT,
    OP_CONV,
    OP_TIMES,
    OP_SCAN,
    OP_SCAN_END,
    OP_GATED_NORM,
    OP_CONV_CACHED,
    OP_SCAN_CACHED,
    OP_CODED,
    OP_TAILS,
    OP_HALO,
    OP_CARRY,
    OP_PICK, /* of encoder and decoder, whose tokens are one sample */
    OP_DISTANCES,
    OP_ATTENTION_BIASED,
    OP_ATTENTION_CACHED_BIASED,
    OP_ADAPTED_SQUARES, /* of matrices that are a direction and lengths */
    OP_MAGNITUDES,
    OP_ENTER, /* collectives from here to CONTEXT */
    OP_REDUCE,
    OP_GATHER,
    OP_SCATTER,
    OP_SPREAD,
    OP_COLLECT,
    OP_DISPATCH,
    OP_COMBINE,
    OP_CONTEXT,
    OP_STORE, /* what lowering puts in and layers do not: copies to and from another memory (tape/offload.c) */
    OP_FETCH,
    OP_AMAX, /* and what recipes of fewer bits compute with */
    OP_QUANTISE,
    OP_LINEAR_SCALED,
    OP_AGREE,      /* a collective, in place */
    OP_AMAX_PARTS, /* the same for experts' products, part by part */
    OP_QUANTISE_PARTS,
    OP_GROUPED_SCALED,
    OP_CAST, /* what works on whole arrays, beside tapes: from here to EXPONENTS */
    OP_SUM_INTO,
    OP_SUM_TREE,
    OP_SUM_PARTS,
    OP_SUM_SQUARES,
    OP_EXACT_SQUARES,
    OP_FIND_NONFINITE,
    OP_ENCODE, /* and number formats */
    OP_DECODE,
    OP_UNPACK,
    OP_ROUNDED, /* what telemetry counts */
    OP_ROUNDED_PARTS,
    OP_EXPONENTS,
    OP_LOSSES, /* and what a step decides from them */
    OP_CLIP,
    OP_ADAMW, /* updates, in the order of enum update_kind */
    OP_SGD,
    OP_LION,
    OP_MOMENTUM,
    OP_UNIT,
    OP_BLEND,
    OP_ADAMW16,
    OP_ADAMW8,
    OP_APPLY,
    OP_AVERAGE,
    OP_ROUND,
    OP_FACTOR_SUMS,
    OP_FACTOR_KEEP,
    OP_FACTOR_MEAN,
    OP_FACTOR_SIZE,
    OP_FACTOR_APPLY,
    OP_N,
    OP_FIRST_COLLECTIVE = OP_ENTER,
    OP_FIRST_ARRAY = OP_CAST,
    OP_FIRST_UPDATE = OP_ADAMW
};

/* Ranks of one axis of the mesh. */
struct axis_ranks {
    enum axis axis;
    int n_parts, part; /* the axis's size, this rank's coordinate */
};

/* ---- the vocabulary ----
 *   EMBED      ids_T i32, w_VD                                  y_TD
 *   XENT       logits_TV, target_T i32 [, stats_{N*T,3} f32]    stat_2 f64 += {sum of nats, trained tokens [, right]}
 *   XENT_PART  logits_TV, target_T i32                          stats_T3 f32 (max, sum of exp(x - max), target's logit)
 * EMBED: with part of the table other ids give zero rows and no gradient.
 * XENT adds into stat: the caller zeroes it (once a step, or once a microbatch). Its backward writes dlogits =
 *   (softmax(logits) - onehot(target)) * step->loss_scale, zeros where target is -1 (not trained); the loss is the
 *   root, so dout[0] is not read, and stat is not needed.
 *   With stats, logits are some columns of the vocabulary on each of N ranks, and stats are all ranks' XENT_PART, rank
 *     after rank: combined in rank order, so that every rank finds the same bits.
 *   right, without stats: stat_3, the third is += trained tokens whose target has the largest logit, of equal ones the
 *     first.
 *   each, without right: stat_{2+each}, behind the two each token's own nats, this call's from the at-th on (0: not
 *     trained), and the last input is factor_T f32, by which each row of dlogits is multiplied.
 *   plain, by itself: no softmax; a token's "nats" are -its target's column, what a model says of a text, less its
 *     sign, and dlogits = -onehot(target) * step->loss_scale. */
struct vocab_attrs {
    int64_t first, whole; /* the part's first id, and all ids; whole 0: the part is all */
    float scale;          /* EMBED: rows are multiplied by it; 0: they are not */
    int n_parts;          /* XENT: in stats */
    bool right;           /* XENT: count them */
    bool plain;           /* XENT: columns are taken as they are */
    float times;          /* XENT: the gradient is multiplied by it; 0: it is not */
    int64_t each, at;     /* XENT: tokens whose nats are told one by one, and which is the first here; each 0: none */
};

/* ---- products ----
 *   LINEAR     x_TK, w_NK [, bias_N]                               y_TN = x w^T + bias
 *   GROUPED    x_UK, w_(E*N),K, rows_E                             y_UN: expert e's rows times its N rows of w
 * GROUPED: rows beyond the sum of rows_E are zero, forward and backward. In rounds rows_E is DISPATCH's [2+n,E]: rows
 *   in this round, and in all of them, by which a product is done as if it had all at once. */
struct linear_attrs {
    bool bias_off; /* a part of a sum over ranks: only one of them adds the bias; the tape leaves it out of the forward
                      call elsewhere */
    bool gram; /* both operands are one matrix, nothing is added: the result is its own transpose, of which half need be
                  computed */
    bool same_rows; /* a row of y has the same bits whatever rows are beside it, one or many */
};
struct grouped_attrs {
    int64_t expected; /* rows that hold tokens, for counting FLOPs; 0: all */
};

/* ---- products with matrices in few bits (layout/packing.h), which nobody trains ----
 *   CODED      x_TK, codes_N,(bytes of K) u8, scales_NB u8 [, groups f32] [, bias_N] [, rows_E]       y_TN
 * What LINEAR computes, or with rows_E (and without a bias) GROUPED, with w the numbers of codes and scales, rounded to
 * x's type. The N rows, of each expert the same, are `n_parts` matrices one after the other, whose blocks are numbered
 * each by itself; groups are those of all parts, of the first expert's first, as each of the whole matrix has them. */
enum { CODED_PARTS = 8, CODED_GROUPS = 3, CODED_BIAS = 4, CODED_ROWS = 5 };
struct coded_part {
    int64_t rows;     /* here */
    int64_t first;    /* the number of the first block here in the matrix */
    int64_t n_groups; /* fp32 values, the mean included; 0: the packing has none */
};
struct coded_attrs {
    enum packing packing;
    int64_t row_blocks; /* of a row of the whole matrices */
    int n_parts;
    struct coded_part part[CODED_PARTS];
    bool bias_off;    /* as LINEAR's */
    int64_t expected; /* as GROUPED's */
};

/* ---- norms ----
 *   RMSNORM    x_TD, w_D                                           y_TD, rstd_T f32
 *   HEADNORM   x_T,(n*A), w_A                                      y_T,(n*A), rstd_Tn f32
 *   LAYERNORM  x_TD, w_D, b_D                                      y_TD, stat_T2 f32 (mean, rstd)
 *   SQUARES    x_TN                                                s_T1 f32: the sum of a row's squares
 *   NORM_BY    x_TN, s_T1 f32, w_N                                 y_TN = x w / sqrt(s / whole + eps)
 * HEADNORM: RMSNORM of each head by itself, all by the same weights. SQUARES and NORM_BY: RMSNORM of rows whose columns
 * lie on several ranks, with the ranks' sums added up between the two. */
struct norm_attrs {
    float eps;
    float plus;    /* RMSNORM, HEADNORM: rows are multiplied by plus + w; Gemma's weights are what is added to 1 */
    int heads;     /* HEADNORM */
    int64_t whole; /* NORM_BY: columns of all ranks */
};

/* ---- element by element ----
 *   ACT        x_TF (gelu, gelu_erf, gelu_quick, tanh, cap, relu, relu2, times) or x_T,2F (gate | up)    y_TF
 *   ADD        a_TD, b_TD [, index_T i32]                          y_TD = a + dropout(b)
 *   DROPOUT    x_TD [, index_T i32]                                y_TD
 *   COPY       x                                                   y = x, cast to y's dtype; no attributes
 * ACT's kinds: act_kind.h.
 * ADD, DROPOUT: index_T says which token of the microbatch a row is; absent: rows are tokens in order.
 * COPY takes the dtype of y from out[0].dtype as the caller set it before infer. */
struct act_attrs {
    enum act_kind kind;
    float cap; /* ACT_CAP, ACT_CLAMPED, ACT_TIMES */
};
struct dropout_attrs {
    float p;         /* probability of zero; kept values are multiplied by 1/(1-p) */
    uint64_t stream; /* of random numbers */
    float times;     /* ADD: b counts so often; 0: once */
    bool onto;       /* ADD: y is a's memory, which may be columns of something wider (an adapter's sum) */
};

/* ---- rotation ----
 *   ROTARY     x_T,(n*A), pos_T i32, table_PA f32                  y = x rotated by position (same memory as x)
 * y keeps x's stride, so a column slice of a wider tensor is rotated where it lies. Pairs are columns (i, i + A/2) of a
 * head; row p of the table holds A/2 cosines, then A/2 sines. Backward turns the other way. */
struct rotary_attrs {
    int heads, head_dim; /* heads to turn (q and k together) */
    int at, dim;         /* dim > 0: only columns [at, at + dim) of each head are turned, the table has dim columns */
    bool pairs;          /* pairs are columns (2i, 2i+1) of what is turned */
};

/* ---- attention ----
 *   ATTENTION         q_T,HA  k_T,GA  v_T,GA [, doc_T i32 [, sink_H]]     o_T,HA, lse_TH f32
 *   ATTENTION_CACHED  q_T,HA  k_T,GA  v_T,GA, runs_SX i32, cache_k_C,GA,
 *                     cache_v_C,GA [, sink_H]                             o_T,HA   (no backward)
 *   ATTENTION_PART    q  k  v [, doc_W i32 [, sink_H [, token_W i32]]]    o f32, lse f32 (attention_heads.h: token_W)
 *   CONTEXT           as ATTENTION_PART                                   o, lse: over all ranks' keys
 *                                                                         (parallel/context.h), S0 on cp
 * ATTENTION: T = batch * seq, row t = b * S + s; query head h reads key head h / (H/G); lse is in nats.
 * ATTENTION_CACHED: new tokens of several sequences against what is cached of each; runs says whose rows are whose and
 *   where their pages lie (kernel/cache_runs.h). k and v go to the caches' rows first; causal, but for runs whose rows
 *   see each other (a prompt that is a prefix).
 * ATTENTION_PART: some rows of every sequence against some others. seq is the whole sequence, doc_W has batch * seq ids
 *   as they stand in it. o and lse are those of the keys in the call; with `more` they hold the result of other keys
 *   already and become the result of both; a query that has seen nothing has o = 0, lse = -inf. Backward (not on tapes)
 *   takes the final o (q's dtype) and lse of all keys and gives these keys' share of din, which are f32 and may be
 *   accumulated.
 * doc: ids of documents, which do not see each other; with `prefix` marked ones (layout/document_ids.h), which are
 *   there.
 * sink_H: a score per head that is in every softmax of the head and has no value, so that the probabilities of keys sum
 *   to less than 1 (gpt-oss; Xiao et al. 2023). lse counts it. Where a sink is there the documents may be absent. Its
 *   gradient, f32, is made with those of q, k and v (op_row.weight_by_in): dsink_h = - sum over queries of exp(sink_h -
 *   lse) do . o. Of the calls of ATTENTION_PART that make one result a single one has the sink, forward the first (more
 *   is false), so that it is in the softmax once. */
enum { ATTENTION_DOC = 3, ATTENTION_SINK = 4, CACHED_SINK = 6 };
static inline int attention_inputs(int doc, int sink) /* tape's numbers of tensors, negative: none */
{
    return sink >= 0 ? ATTENTION_SINK + 1 : doc >= 0 ? ATTENTION_DOC + 1 : ATTENTION_DOC;
}
struct attention_attrs {
    int heads, kv_heads, head_dim;
    /* Some of the model's heads (attention_heads.h): the first of each kind, query heads per key head, query heads of
     * the model; group 0: all. */
    int head_first, kv_first, group, heads_all;
    int64_t batch, seq;
    float scale; /* on q.k */
    float cap;   /* > 0: scores s become cap tanh(s / cap), before the mask (Gemma 2) */
    bool causal;
    bool prefix;    /* causal, and keys of a document's prefix are seen by all of it: ids are marked */
    int64_t window; /* 0 off; else query i sees keys in (i - window, i] */
    struct dropout_attrs dropout;
    bool same_rows; /* ATTENTION_CACHED: a row of o has the bits that ATTENTION gives it among the rows of its
                       sequence */
};
struct attention_part_attrs { /* q and k have the rows of some of `parts` (layout/sequence.h), one after the other */
    struct attention_attrs attention;
    int parts, q_first, q_count, k_first, k_count;
    bool more; /* o and lse hold something */
};

/* ---- latent attention ----
 *   MLA_KV     kv_T,H*(nope+value), rope_T,(A-nope)                k | v, both T,HA: k is nope | rope, v padded with 0
 *   TRIM       x_T,HA                                              y_T,H*value: the first `value` columns of a head
 * ---- two tensors of one token ----
 *   JOIN       x_TD, y_TE                                          z_T(D+E): x's columns, then y's */
struct mla_kv_attrs {
    int heads, head_dim, nope, value; /* columns of a head without rotation, of a value */
};
struct trim_attrs {
    int heads, head_dim, value;
};

/* ---- pictures ----
 *   PATCHES    pixels_B,(C*I*I) f32                                x_T,(C*P*P), place_T i32, kind_T i32   (no backward)
 *   POOL       x_TD                                                y_BD
 *   INSERT     x_TD, at_T i32, rows_RD                             y_TD
 * A picture is a sequence: place 0 is for its class, place 1 + i for patch i of P x P pixels, line by line; C channels.
 *   A sequence as long as there are patches has no place for a class.
 * PATCHES: rows of patches as a convolution's weight [N, C, P, P] wants them, row of the class all zeros; kind is 0
 *   for the class, 1 for a patch. It takes the dtype of x as COPY does.
 * POOL: the row of the class, or the mean of the patches. Of rows that are not here nothing is added: with some rows
 *   of the sequences y is a part of a sum.
 * INSERT: a row of x whose `at` is a >= 0 becomes row a of those R / batch of `rows` that belong to its sequence; each
 *   of them is wanted at most once. The gradient of a row that is replaced goes to what replaces it. */
struct picture_rows { /* rows [first, first + rows) of those that part `part` of `parts` has (layout/sequence.h) */
    int64_t batch, seq;
    int parts, part;
    int64_t first, rows;
};
struct patches_attrs {
    struct picture_rows at;
    int64_t channels, image, patch; /* C, I, P; P divides I */
};
enum pool_kind { POOL_CLASS, POOL_MEAN, POOL_N };
struct pool_attrs {
    struct picture_rows at;
    enum pool_kind kind;
};
struct insert_attrs {
    struct picture_rows at; /* rows of texts: seq is a text's tokens */
};

/* ---- encoder and decoder (Raffel et al. 2020, "Exploring the Limits of Transfer Learning": T5) ----
 *   PICK              x_T i32                                      y_N i32, index_N i32   (no backward)
 *   DISTANCES         w_BH                                         d_HR f32
 *   ATTENTION_BIASED  q_N,HA  k_M,HA  v_M,HA [, d_HR f32 or none [, place_M i32]]   o_N,HA, lse_NH f32
 *   ATTENTION_CACHED_BIASED  q_T,HA  k_T,HA and v_T,HA or none of both, runs_SX i32, cache_k_C,HA, cache_v_C,HA
 *                     [, w_BH]                                     o_T,HA   (no backward)
 * PICK: places [first, first + n) of each of batch sequences of seq tokens; index says which token of T a row was.
 * DISTANCES: row h has what head h adds to a score, by distance: column r is that of keys r - (q_seq - 1) places behind
 *   the query, R = q_seq + k_seq - 1, read off one of B buckets of distances (kernel/buckets.h). So a bias of every
 *   pair is held as one number a distance.
 * ATTENTION_BIASED: scores are q.k, not scaled, plus the bias by distance where there is one; the k_seq keys of a
 *   sequence need not be as many as its q_seq queries, nor be of the same rows (causal: they are). lse is in nats.
 *   A key whose place is negative is not there: nobody sees it, and it has no gradient (padding). A query that sees no
 *   key has o = 0, lse = inf. Dropout counts pairs by sequence, head of the model, query, key; a sequence of the step
 *   has `sample` tokens.
 * ATTENTION_CACHED_BIASED: as ATTENTION_CACHED, scores as here: new tokens of several sequences against what is cached
 *   of each, causal, with the bias of w's buckets, of keys before. Without k and v nothing is stored, and the tokens
 *   of a run see all of the `past` keys that it has, whatever the tokens' own places. */
struct pick_attrs {
    int64_t batch, seq, first, n;
};
struct distances_attrs {
    int64_t q_seq, k_seq;
    int64_t most;   /* distances from here on share the last bucket */
    bool both_ways; /* half of the buckets are of keys behind the query; else keys behind share the first one */
};
struct attention_biased_attrs {
    int64_t batch, q_seq, k_seq, sample;
    int heads, head_dim, head_first, heads_all; /* some of the model's heads */
    bool causal;
    struct dropout_attrs dropout;
};
struct attention_cached_biased_attrs {
    int heads, head_dim;
    int64_t most; /* as distances_attrs; not read without w */
};

/* ---- a direction and lengths (Liu et al. 2024, "DoRA: Weight-Decomposed Low-Rank Adaptation", equation 5) ----
 *   ADAPTED_SQUARES  w_NK, a_(P*r),K, b_1 n_1,r [, ... b_P]        s_M2 f32   (no backward)
 *   MAGNITUDES       x_TN, s_M2 f32, m_M [, bias_N]                y_TN
 * Of the N rows that a product has, P stretches of n_p rows each have an adapter, M rows in all. ADAPTED_SQUARES: the
 * sums of squares of each such row of w, and of w + times b a; of the columns that are here. MAGNITUDES: a column of
 * such a row is multiplied by (sqrt(s_0) + m) / sqrt(s_1), where m is what was added to the row's length by training;
 * one of another row is what it was. Then the bias is added. Lengths that follow from w, a and b are constants in
 * backward (section 4.3). Where s_1 is 0 there is no direction: the column is what it was. */
enum { ADAPTED_PARTS = 5 };
struct adapted_part {
    int64_t first, n; /* rows of w, columns of x */
};
struct adapted_attrs {
    float times; /* ADAPTED_SQUARES */
    int n_parts;
    struct adapted_part part[ADAPTED_PARTS];
    bool bias_off; /* MAGNITUDES: as LINEAR's */
};

/* ---- state spaces (Dao and Gu 2024, "Transformers are SSMs": Mamba-2) ----
 *   CONV         x_TC, w_CK [, b_C] [, doc_W i32] [, halo_RC]       y_TC = silu(b + sum over k of w_k x_(t-K+1+k))
 *   TIMES        dt_TH, decay_H, bias_H                             s_T,2H f32: steps, then log decays
 *   SCAN         x_T,(H*A), bc_T,2(G*N), s_T,2H f32, skip_H [, doc_W] [, h_R,(H*A*N) f32]    y_T,(H*A)
 *   SCAN_END     x_T,(H*A), bc_T,2(G*N), s_T,2H f32 [, doc_W]       e_R,(H*A*N + H) f32
 *   GATED_NORM   y_TI, z_TI [, w_I]                                 o_TI = w g / rms(g), g = y silu(z); rstd_Tn f32
 *   CONV_CACHED  x_TC, w_CK, b_C or none, runs_SX i32, cache_(slots),(K-1)*C          y_TC             (no backward)
 *   SCAN_CACHED  x, bc, s, runs_SX i32, cache_(slots),(H*A*N) f32, skip_H             y_T,(H*A)        (no backward)
 *   TAILS        x_TC                                               t_(R*(K-1)),C
 *   HALO         t_(n*R*(K-1)),C                                    halo_R*(K-1),C
 *   CARRY        e_(n*R),(H*A*N + H) f32                            h_R,(H*A*N) f32
 *
 * TIMES: step = clamp(softplus(dt + bias), lo, hi), log decay = -exp(decay) step, of each head.
 *
 * SCAN: the state of a head, A x N, is h_t = exp(log decay) h_(t-1) + step x_t b_t^T, and y_t = h_t c_t + skip x_t;
 *   head h reads b and c of group h / (H/G). It is 0 at first, or h where that is given, and 0 again at each document's
 *   first token. Sums over tokens, and the state, are f32. Backward makes the states again, chunk by chunk.
 *
 * Rows are those of one part of every sequence (layout/sequence.h), in pieces (kernel/pieces.h): of one part there is
 * one piece of each sequence, of more parts two, the head and the tail. R counts them, sequence by sequence; CONV's
 * halo is the K - 1 rows before each. doc_W: document ids of all tokens of the microbatch, in order.
 *
 * SCAN_END: the state behind each piece's last token if it was 0 before the first; then, of each head, what a state
 *   before the piece would be multiplied by, 0 where a document begins in between.
 *
 * TAILS: the last K - 1 rows of each piece, zeros before them where it is shorter.
 * HALO: of all parts' tails, part after part, the rows before each piece of this one; zeros before the sequence's
 *   beginning.
 *
 * CARRY: of all parts' ends, part after part, the state before each piece of this one: with e_p, d_p of piece p of a
 *   sequence, h_(p+1) = d_p h_p + e_p, in the sequence's order.
 *
 * GATED_NORM: `heads` groups of columns are normalised each by itself; w is of all of them. Without w o is g.
 *
 * CONV_CACHED, SCAN_CACHED: new tokens of several sequences after what each of them has had (kernel/cache_runs.h),
 *   which is a row of the cache: the last K - 1 rows of x, and the state. They are written. A sequence that had nothing
 *   begins from zeros, whatever is there. */
struct sequence_rows {
    int64_t batch, seq;
    int parts, part; /* rows here are of part `part` of `parts`, of every sequence */
};
struct conv_attrs {
    struct sequence_rows at;
};
struct times_attrs {
    float lo, hi; /* steps are held to [lo, hi] */
};
struct scan_attrs {
    struct sequence_rows at;
    int heads, head_dim, groups, state; /* H, A, G, N of this rank */
};
struct halo_attrs { /* TAILS, HALO */
    struct sequence_rows at;
    int before; /* rows before each piece, K - 1 */
};
struct carry_attrs {
    struct sequence_rows at;
    int heads;
};

/* ---- experts ----
 *   ROUTER     logits_TE [, bias_E]                                gate_Tk f32, pick_Tk i32
 *   LOAD       pick_Tk i32, target_T i32                           load_B,(E+1) f32: picks per expert, trained tokens
 *   BALANCE    logits_TE, pick_Tk, target_T, load_B,(E+1)          stat_(E+2) f64 += {balance, z, picks per expert}
 *   PERMUTE    x_TD, pick_Nk i32                                   y_UD, row_Tk i32 (-1: dropped), rows_E i32 or
 *                                                                  rows_Es i32: by the s stretches of source_order
 *   UNPERMUTE  y_UD, gate_Tk, row_Tk                               z_TD = sum over k of gate times row of y
 *   EXPERT_BIAS  x_UN, b_(E*N), rows_E                             y_UN = x + its expert's b (same memory as x)
 * ROUTER: score = softmax or logistic of the logits; the k largest of score + bias are chosen, largest first, of equal
 *   ones the lower index (with groups: only inside the top_groups groups whose largest one, or whose two largest
 *   together, are largest). gate = gate_scale * score (/ their sum with norm_topk). The bias has no gradient (Wang et
 *   al. 2024, "Auxiliary-loss-free load balancing").
 * LOAD, BALANCE: only tokens whose target is not -1 count. BALANCE adds, per token t of sequence s with n_s trained
 *   tokens and picks f_se, aux * E/k * sum_e f_se/n_s p_te, where p are the scores scaled to sum 1 (Shazeer et al.
 *   2017; Fedus et al. 2021; DeepSeek-V3, eq. 17-20), and z * lse(logits_t)^2 (Zoph et al. 2022). It is a root like
 *   XENT: its backward is times step->loss_scale, so both are means over trained tokens.
 * PERMUTE: rows of expert 0 first, and so on; inside an expert by token. Rows from `used` on are zero.
 *   N = T, unless capacity > 0: of one sequence an expert takes the first so many, by choice, then by place in the
 *   sequence, and drops the rest. That takes the picks of whole sequences: N = batch * seq, of which x is rows first
 *   on. parts > 1: these rows are as layout/sequence.h shares them out, part after part; else in order. */
struct tokens_at { /* row t is token first + t of the microbatch of batch x seq */
    int64_t batch, seq, first;
};
enum moe_score { SCORE_SOFTMAX, SCORE_SIGMOID };
struct router_attrs {
    int experts, top_k;
    enum moe_score score;
    bool norm_topk;         /* the chosen scores are scaled to sum 1 */
    int groups, top_groups; /* 0: no groups */
    bool group_pairs;       /* a group counts by its two largest scores, else by its largest */
    float gate_scale;
    struct tokens_at tokens; /* for those who write choices down: a choice depends on its row alone */
};
struct load_attrs {
    int experts, top_k;
    struct tokens_at tokens;
};
struct balance_attrs {
    int experts, top_k;
    enum moe_score score;
    float aux, z; /* coefficients of the two losses */
    struct tokens_at tokens;
};
/* Tokens of one microbatch, of ranks that share out its sequences as layout/sequence.h does: `parts` parts, and the
 * rows that a part has of all sequences over `each` neighbours (region_split). A rank's rows are counted by stretch: of
 * the first sequence the head, then the tail, then those of the next one. */
struct source_order {
    int sequences; /* of a microbatch; 0: a rank's rows are one stretch, and ranks follow each other */
    int parts, each;
};
static inline int source_stretches(const struct source_order *o) { return o->sequences ? 2 * o->sequences : 1; }

struct permute_attrs {
    int experts, top_k;
    int64_t capacity;        /* rows of one expert for one sequence; 0: no limit */
    struct tokens_at tokens; /* first: x's first row among the picks */
    int parts;
    struct source_order order; /* sequences > 0: rows_E is [E, stretches]; */
    int64_t at, rows, head;    /* x's first row among its part's, which has `rows` of a sequence, first `head` ones;
                                  rows 0: not told, and all sequences exist (step_info.blank) */
};
struct unpermute_attrs {
    int top_k;
};
/* EXPERT_BIAS: rows as GROUPED has them. Rows beyond the sum of rows_E stay as they are. The sum of a gradient goes on
 * from acc row by row in f32, so that rounds give the bits of one call. */
struct expert_bias_attrs {
    bool bias_off; /* as LINEAR's */
};

/* ---- collectives ----
 * Ranks of one axis of the mesh. Run by parallel/, not by a family.
 *   op           forward                                           backward
 *   ENTER        x_TK unchanged                     (I -> R)       dx = sum of the ranks' dy
 *   REDUCE       y_TN = sum of the ranks' x_TN      (P -> I)       dx = dy
 *   GATHER       y_TK = all ranks' rows x_tK        (S0 -> R)      dx = this rank's rows of the sum of dy
 *   SCATTER      y_tN = this rank's rows of the sum (P -> S0)      dx = all ranks' rows dy
 *   SPREAD       y_tK = this rank's rows of x_TK    (I -> S0)      dx = all ranks' rows dy
 *   COLLECT      y_TK = all ranks' rows x_tK        (S0 -> I)      dx = this rank's rows of dy
 *   DISPATCH     y_UD, rows_E i32 -> z_WD, rows_E' i32, from_nE' i32: rows to the ranks of their experts
 *                (parallel/expert.h)
 *   COMBINE      z_WD, rows_E i32, from_nE' i32 -> y_UD: and back; the backward of one is the other
 *   DISPATCH, COMBINE in rounds: z has room for some rows, rows_E' is [2+n,E'] (of the round, of all, and of the
 *                round from each rank), and from_n,(E+2) (parallel/waves.h)
 *                with s stretches (source_order): rows_E,s, from_(n*s),E', in rounds from_n,(E*s+2) */
struct sum_attrs { /* ENTER, REDUCE, AGREE */
    struct axis_ranks over;
};
struct rows_attrs { /* GATHER, SCATTER, SPREAD, COLLECT */
    struct axis_ranks over;
    int64_t whole;      /* the rows of all ranks together, cut by region_split; */
    int64_t batch, seq; /* seq > 0: those of `batch` sequences of `seq`, shared out as layout/sequence.h does */
    int pieces, piece;  /* GATHER, SCATTER: only piece `piece` of each rank's rows (region_window); pieces 0: all. The
                           side that has all ranks' rows is given whole. */
};
struct dispatch_attrs { /* DISPATCH, COMBINE */
    struct axis_ranks over;
    int64_t whole; /* rows of the buffer that comes out */
    int experts;
    int copies;                /* ranks that each get the rows of an expert, one behind the other; 0: 1 */
    bool waves;                /* rows come in rounds, as many as there is room for at a time (tape.h, waves) */
    int64_t slice, slice_step; /* of the depth_rule of the experts' weight gradients; lowering fills it in */
    int together;              /* rounds end between parts (parts_attrs) of so many ranks; 0: by that rule; the same */
    struct source_order order; /* in which an expert's rows lie; rows_E has a number for each stretch of a rank */
};
struct context_attrs {
    struct axis_ranks over;
    struct attention_attrs attention;
    int inner;   /* ranks that exchange heads (1: none), the others rows */
    bool gather; /* rows travel all at once instead of around a ring */
};

/* ---- copies of all bytes of a place, not on tapes; no attributes ----
 *   STORE        y = x, where y lies in another memory (MEM_HOST, MEM_DISK)
 *   FETCH        y = x, where x does */

/* ---- fewer bits ----
 *   AMAX           x_RC                                            amax_1 f32 = the largest |x|
 *   QUANTISE       x_RC [, amax_1 f32] [, index_R i32]             q_RC, descale f32
 *   AGREE          amax_1 f32, in place                            the largest of the ranks'
 *   LINEAR_SCALED  x_TK, w_NK, bias_N, sx, sw, sdy                 y_TN = (x w^T) sx sw + bias
 * What each number becomes, with the papers: kernel/quantise.h. x is f32 or bf16. A NaN makes amax NaN, Inf makes it
 * Inf; `more`: amax holds one already, and the larger stays.
 *
 * QUANTISE: q has x's dtype and holds the values of codes, which bf16 holds exactly: q times descale is what x became.
 *   TENSOR     scale from amax_1 (of this tensor, or of earlier ones). q is the codes' values, descale_1
 *   BLOCK      scale from each block's largest. Powers of two: q is scaled back and there is no descale; else q is the
 *              codes' values and descale a matrix with one number per block
 *   MX         blocks of 32 along rows or along columns, scales in E8M0; q is scaled back, no descale
 *   NV         blocks of 16 or 16 x 16, scales in E4M3 under one of the tensor, from amax_1; q is code times the
 *              block's scale (6 significant bits), descale_1 the tensor's
 * Where there is no descale out[1] is absent. Blocks, and the groups that are rotated, are cut by the index in the
 * whole tensor, of which x is rows first_row on and columns first_col on: a piece's block at an edge is its part of it.
 * Saturates; what is not finite is not hidden: a block (TENSOR: an element, and with amax all of them) that has it is
 * NaN. By chance (`chance`): the word of rng_stream_at(stream, step) at the element's index in the whole tensor, so
 * that every layout rounds alike; with `tokens` rows are counted from step->first_token, and index_R says which row of
 * the microbatch each is (absent: in order).
 *
 * LINEAR_SCALED: x, w and dout are QUANTISE's q, in each direction as that direction wants them; sx, sw, sdy are their
 *   descales: absent (1), one number, or one per block (`x`, `w`, `dy` say of which size). Forward uses sx and sw,
 *   backward input sdy and sw, backward weight sdy and sx. Sums are of f32, times the descale(s), on top of acc or
 *   bias. Gradients are those of what was quantised. That of the bias is not this row's: LINEAR makes it (din[1]
 *   absent) from the dout that was not quantised. */
enum scaling { SCALING_TENSOR, SCALING_BLOCK, SCALING_MX, SCALING_NV, SCALING_N };
/* Sixteen neighbours at a time, in one column (ALONG_ROWS: down the rows) or one row (ALONG_COLS), are multiplied by
 * the orthonormal Hadamard matrix times signs: bits of word 0 of `stream`. Products along that dim stay the same when
 * both operands are rotated. What is left over at the end of the dim is not rotated. */
enum rotate_along { ROTATE_NOT, ALONG_ROWS, ALONG_COLS };
struct rotate_attrs {
    enum rotate_along along;
    uint64_t stream;
};
struct amax_attrs {
    bool more;
    struct rotate_attrs rotate; /* first, then the largest of what comes out */
};
struct quantise_attrs {
    enum format format;
    enum scaling scaling;
    bool power_of_two; /* TENSOR, BLOCK: scales are */
    bool up;           /* MX: scales are rounded up, so that nothing saturates (Mishra et al. 2025) */
    int rows, cols;    /* of a block; not TENSOR's */
    struct rotate_attrs rotate;
    bool chance, tokens;
    uint64_t stream;
    int64_t first_row, first_col;
    int64_t whole_cols; /* 0: x's */
};
struct scale_blocks { /* element (r, c) has descale[(row_at + r) / rows][(col_at + c) / cols]; rows 0: one for all */
    int rows, cols, row_at, col_at;
    enum format of; /* what the operand has values of, for numerics.accumulate; F16: not said (scaled back) */
};
struct linear_scaled_attrs {
    bool bias_off; /* as LINEAR's */
    struct scale_blocks x, w, dy;
};
/* ---- fewer bits, of experts ----
 *   AMAX_PARTS      x_UK [, rows]                                  amax_P f32
 *   QUANTISE_PARTS  x_UK [, amax_P] [, rows]                       q_UK, descale
 *   GROUPED_SCALED  x_UK, w_(E*N),K, rows, sx, sw, sdy             y_UN
 * What AMAX, QUANTISE and GROUPED do, part by part (kernel/expert_parts.h): each part is a tensor of its own, with a
 * scale of its own, and its blocks and rotated groups begin at its first row. A weight's parts are its experts (`each`
 * rows). Those of rows are given by `rows`: GROUPED's rows_E, where a part is an expert; or DISPATCH's from_nE, where
 * it is what an expert has of one rank, or of `together` neighbours that share out the tokens of one microbatch, expert
 * after expert and inside one rank after rank: a microbatch's rows for it, in the order that one rank has. Numbers of
 * parts (amax_P; descale by tensor) are a matrix of one column. Blocks' descales follow each other, part by part. What
 * lies behind the last part is left alone in q, and is zero in y and dx. GROUPED_SCALED: sx and sdy have one number per
 * part of rows, sw one per expert, or blocks as LINEAR_SCALED has. Parts of one expert are added to its dw one after
 * the other. In rounds `rows` is as GROUPED has it, or its rows by rank. */
struct parts_attrs {
    int64_t each; /* of a weight: rows of a part; 0: `rows` says */
    int sources;  /* ranks that rows are from, or stretches of them (source_order); 0: rows_E */
    int together; /* of them, next to each other, have tokens of one microbatch: one part; 0: 1 */
    /* By chance: rows are counted apart for each microbatch and expert of the model. */
    int experts, expert, source; /* all of them, the first one here; which microbatch is this rank's */
    int64_t tokens, apart;       /* of a microbatch, from one microbatch's first token to the next one's */
};
struct amax_parts_attrs {
    struct amax_attrs amax;
    struct parts_attrs parts;
};
struct quantise_parts_attrs {
    struct quantise_attrs quantise;
    struct parts_attrs parts;
};
struct grouped_scaled_attrs {
    int64_t expected; /* as GROUPED's */
    struct scale_blocks x, w, dy;
    struct parts_attrs parts;
};

/* ---- whole arrays ----
 *   CAST            x_n                                  y_n of type `to`
 *   SUM_INTO        x_n                                  y_n: x, or y + x (`add`); in f32, rounded once. f32 into f32
 *                                                        or bf16, bf16 into bf16
 *   SUM_TREE        parts_Pn f32                         y_n f32: summed along the binary tree that halves 0..P-1 (P a
 *                                                        power of two) down to neighbours; y may be one of the parts
 *   SUM_PARTS       parts_Pn                             y_n: from the first part to the last in f32, rounded once
 *   SUM_SQUARES     x_n f32                              sum_1 f64 += squares, by blocks and lanes (kernel/flat_ops.h)
 *   EXACT_SQUARES   x_n f32                              words i64 += squares without any rounding (the same)
 *   FIND_NONFINITE  x_n                                  at_1 i64: of the first NaN or Inf, -1: there is none
 *   ENCODE          x_n                                  codes_B u8, as kernel/codec_rows.h says
 *   DECODE          codes_PB u8                          x_n: (add ? x : 0) + ((part 0 + part 1) + ...) in f32,
 *                                                        rounded once
 *   UNPACK          codes_RB u8, scales_Rb u8 [, groups f32]
 *                                                        x_RC of type `to` (kernel/packed_rows.h)
 *   ROUNDED         what a QUANTISE read and made        counts_{1,6} f64 += (kernel/rounded.h)
 *   ROUNDED_PARTS   the same of a QUANTISE_PARTS         counts_{E,6} f64 +=
 *   LOSSES          x_RC f64                             n_1 of type `to` += rows that begin with a NaN or Inf
 *   CLIP            words_W f64, squares, n_1            norm, scale and whether it goes on among the words
 *                                                        (kernel/words.h); squares are SUM_SQUARES' or EXACT_SQUARES',
 *                                                        n is LOSSES', of their type
 *   EXPONENTS       x                                    bins i64 += `times` its numbers, by exponent (exponent_bins.h)
 * No tape has them: they are for sums of gradients, norms, what travels, and what is looked at. Forward alone. The same
 * bits for any number of threads; those of ref in every family. */
struct array_attrs {
    enum dtype to; /* of what is written */
    bool add;
};
struct codec_attrs {
    enum codec codec;
    struct codec_rows shape;
    enum dtype to; /* DECODE: x's */
    bool add;      /* DECODE */
};
struct packed_attrs { /* of a box of a matrix, whose columns begin at a block */
    enum packing packing;
    int64_t rows, cols;
    int64_t first, row_blocks; /* the number of the box's first block in the matrix, and how many a row of it has */
    enum dtype to;
};
struct exponents_attrs {
    int64_t times;
};
struct clip_attrs {
    double most; /* of the norm; 0: it is not clipped */
};

/* ---- updates ----
 * What an optimizer does to its arrays, element by element: operands, their order and factors are kernel/update.h's.
 * Operands that are read are inputs, also where they are written; those that are only written are outputs. */
enum { UPDATE_FACTORS = 8, UPDATE_NUMBERS = 3 };
struct update_blocks {
    int64_t cols, block; /* n elements are whole rows of so many columns, each cut into blocks */
    int64_t whole;       /* elements of the whole tensor */
};
struct update_chance {
    uint64_t seed, stream; /* of words (base/rng.h) */
    /* The elements are some of a box of a matrix, row after row of `cols`: element 0 is the box's element `at`. The box
     * begins at element `first` of the whole, whose rows have `wide`. An element takes the word of its index in the
     * whole. */
    int64_t at, cols, first, wide;
};
struct update_attrs {
    int kind; /* enum update_kind */
    float f[UPDATE_FACTORS];
    double g[UPDATE_NUMBERS]; /* what makes factors of a step's words (update_by) */
    bool by_words;            /* they do: words are the last input */
    bool flag; /* MOMENTUM, SGD: Nesterov's; ADAMW8: fp8, not the map; LION, APPLY: it decays; FACTOR_APPLY: the rate is
                  relative */
    enum dtype to[3]; /* of outputs */
    struct update_blocks blocks;
    struct update_chance chance;
};

/* ---- the one that a call has ---- */
/* X(KIND, name): the constant, the struct, and what makes, reads and changes it. */
#define ATTRS_EACH(X)                                                                                                  \
    X(VOCAB, vocab)                                                                                                    \
    X(LINEAR, linear)                                                                                                  \
    X(GROUPED, grouped)                                                                                                \
    X(NORM, norm)                                                                                                      \
    X(ACT, act)                                                                                                        \
    X(DROPOUT, dropout)                                                                                                \
    X(ROTARY, rotary)                                                                                                  \
    X(ATTENTION, attention)                                                                                            \
    X(ATTENTION_PART, attention_part)                                                                                  \
    X(MLA_KV, mla_kv)                                                                                                  \
    X(TRIM, trim)                                                                                                      \
    X(PATCHES, patches)                                                                                                \
    X(POOL, pool)                                                                                                      \
    X(INSERT, insert)                                                                                                  \
    X(CONV, conv)                                                                                                      \
    X(TIMES, times)                                                                                                    \
    X(SCAN, scan)                                                                                                      \
    X(CODED, coded)                                                                                                    \
    X(HALO, halo)                                                                                                      \
    X(CARRY, carry)                                                                                                    \
    X(ROUTER, router)                                                                                                  \
    X(LOAD, load)                                                                                                      \
    X(BALANCE, balance)                                                                                                \
    X(PERMUTE, permute)                                                                                                \
    X(UNPERMUTE, unpermute)                                                                                            \
    X(EXPERT_BIAS, expert_bias)                                                                                        \
    X(SUM, sum)                                                                                                        \
    X(ROWS, rows)                                                                                                      \
    X(DISPATCH, dispatch)                                                                                              \
    X(CONTEXT, context)                                                                                                \
    X(AMAX, amax)                                                                                                      \
    X(QUANTISE, quantise)                                                                                              \
    X(LINEAR_SCALED, linear_scaled)                                                                                    \
    X(AMAX_PARTS, amax_parts)                                                                                          \
    X(QUANTISE_PARTS, quantise_parts)                                                                                  \
    X(GROUPED_SCALED, grouped_scaled)                                                                                  \
    X(PICK, pick)                                                                                                      \
    X(DISTANCES, distances)                                                                                            \
    X(ATTENTION_BIASED, attention_biased)                                                                              \
    X(ATTENTION_CACHED_BIASED, attention_cached_biased)                                                                \
    X(ADAPTED, adapted)                                                                                                \
    X(ARRAY, array)                                                                                                    \
    X(CODEC, codec)                                                                                                    \
    X(PACKED, packed)                                                                                                  \
    X(EXPONENTS, exponents)                                                                                            \
    X(CLIP, clip)                                                                                                      \
    X(UPDATE, update)

#define ATTRS_KIND(kind, name) ATTRS_##kind,
enum attrs_kind { ATTRS_NONE, ATTRS_EACH(ATTRS_KIND) ATTRS_N };
#undef ATTRS_KIND

#define ATTRS_MEMBER(kind, name) struct name##_attrs name;
struct op_attrs {
    enum attrs_kind kind;
    union {
        ATTRS_EACH(ATTRS_MEMBER)
    } as; /* named in this file only (tests/floors/floors.txt) */
};
#undef ATTRS_MEMBER

const char *attrs_kind_name(enum attrs_kind k);
/* Ends the process: the attributes are those of another row. */
__attribute__((noreturn)) void attrs_wrong(enum attrs_kind has, enum attrs_kind wanted);

#define ATTRS_PAIR(kind_, name)                                                                                        \
    static inline struct op_attrs attrs_##name(struct name##_attrs a)                                                  \
    {                                                                                                                  \
        struct op_attrs at;                                                                                            \
        __builtin_memset(&at, 0, sizeof at);                                                                           \
        at.kind = ATTRS_##kind_;                                                                                       \
        at.as.name = a;                                                                                                \
        return at;                                                                                                     \
    }                                                                                                                  \
    static inline const struct name##_attrs *at_##name(const struct op_attrs *at)                                      \
    {                                                                                                                  \
        if (__builtin_expect(at->kind != ATTRS_##kind_, 0)) attrs_wrong(at->kind, ATTRS_##kind_);                      \
        return &at->as.name;                                                                                           \
    }                                                                                                                  \
    static inline struct name##_attrs *edit_##name(struct op_attrs *at) { return (struct name##_attrs *)at_##name(at); }
ATTRS_EACH(ATTRS_PAIR)
#undef ATTRS_PAIR

/* ATTRS(norm, .eps = 1e-5f) */
#define ATTRS(name, ...) attrs_##name((struct name##_attrs){__VA_ARGS__})

/* What several kinds have. */
/* Heads, sequences and mask: ATTENTION, ATTENTION_CACHED, ATTENTION_PART, CONTEXT. */
static inline const struct attention_attrs *at_heads(const struct op_attrs *at)
{
    if (at->kind == ATTRS_ATTENTION_PART) return &at->as.attention_part.attention;
    if (at->kind == ATTRS_CONTEXT) return &at->as.context.attention;
    return at_attention(at);
}
const struct axis_ranks *at_over(const struct op_attrs *at); /* collectives */
float at_dropout_p(const struct op_attrs *at);               /* 0 where a row drops nothing */
/* The row's kind, all of it zero. */
struct op_attrs op_attrs_zero(enum op op);

#endif
