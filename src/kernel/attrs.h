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

#include "layout/format.h"
#include "layout/spmd.h"

enum op {
    OP_EMBED,
    OP_LINEAR,
    OP_RMSNORM,
    OP_LAYERNORM,
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
    OP_MLA_KV,
    OP_TRIM,
    OP_PATCHES,
    OP_POOL,
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
    OP_N,
    OP_FIRST_COLLECTIVE = OP_ENTER
};

/* ---- the vocabulary ----
 *   EMBED      ids_T i32, w_VD                                     y_TD
 *   XENT       logits_TV, target_T i32 [, stats_{N*T,3} f32]       stat_2 f64 += {sum of nats, trained tokens [,
 * right]} XENT_PART  logits_TV, target_T i32                             stats_T3 f32 (max, sum of exp(x - max),
 * target's logit) EMBED: with part of the table other ids give zero rows and no gradient. XENT adds into stat: the
 * caller zeroes it (once a step, or once a microbatch). Its backward writes dlogits = (softmax(logits) -
 * onehot(target)) * step->loss_scale, zeros where target is -1 (not trained); the loss is the root, so dout[0] is not
 * read, and stat is not needed. With stats, logits are some columns of the vocabulary on each of N ranks, and stats are
 * all ranks' XENT_PART, rank after rank: combined in rank order, so that every rank finds the same bits. right, without
 * stats: stat_3, the third is += trained tokens whose target has the largest logit, of equal ones the first. */
struct vocab_attrs {
    int64_t first, whole; /* the part's first id, and all ids; whole 0: the part is all */
    int n_parts;          /* XENT: in stats */
    bool right;           /* XENT: count them */
};

/* ---- products ----
 *   LINEAR     x_TK, w_NK [, bias_N]                               y_TN = x w^T + bias
 *   GROUPED    x_UK, w_(E*N),K, rows_E                             y_UN: expert e's rows times its N rows of w
 * GROUPED: rows beyond the sum of rows_E are zero, forward and backward. In rounds rows_E is [2,E]: rows in this round,
 *   and in all of them, by which a product is done as if it had all at once. */
struct linear_attrs {
    bool bias_off; /* a part of a sum over ranks: only one of them adds the bias; the tape leaves it out of the forward
                      call elsewhere */
    bool gram; /* both operands are one matrix, nothing is added: the result is its own transpose, of which half need be
                      computed */
};
struct grouped_attrs {
    int64_t expected; /* rows that hold tokens, for counting FLOPs; 0: all */
};

/* ---- norms ----
 *   RMSNORM    x_TD, w_D                                           y_TD, rstd_T f32
 *   LAYERNORM  x_TD, w_D, b_D                                      y_TD, stat_T2 f32 (mean, rstd) */
struct norm_attrs {
    float eps;
};

/* ---- element by element ----
 *   ACT        x_TF (gelu, gelu_erf) or x_T,2F (swiglu: gate | up) y_TF
 *   ADD        a_TD, b_TD [, index_T i32]                          y_TD = a + dropout(b)
 *   DROPOUT    x_TD [, index_T i32]                                y_TD
 *   COPY       x                                                   y = x, cast to y's dtype; no attributes
 * ADD, DROPOUT: index_T says which token of the microbatch a row is; absent: rows are tokens in order.
 * COPY takes the dtype of y from out[0].dtype as the caller set it before infer. */
enum act_kind {
    ACT_GELU /* tanh form, "gelu_new" */,
    ACT_SWIGLU,
    ACT_GELU_ERF /* x times the normal distribution */,
    ACT_N
};
struct act_attrs {
    enum act_kind kind;
};
struct dropout_attrs {
    float p;         /* probability of zero; kept values are multiplied by 1/(1-p) */
    uint64_t stream; /* of random numbers */
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
 *   ATTENTION         q_T,HA  k_T,GA  v_T,GA [, doc_T i32]         o_T,HA, lse_TH f32
 *   ATTENTION_CACHED  q_T,HA  k_T,GA  v_T,GA, pos_T i32, cache_k_C,GA, cache_v_C,GA   o_T,HA   (no backward)
 *   ATTENTION_PART    q  k  v [, doc_W i32]                        o f32, lse f32
 *   CONTEXT           q  k  v [, doc_W i32]                        o, lse: over all ranks' keys (parallel/context.h),
 * S0 on cp ATTENTION: T = batch * seq, row t = b * S + s; query head h reads key head h / (H/G); lse is in nats.
 * ATTENTION_CACHED: pos are consecutive and pos[0] counts the tokens cached before; k and v go to the cache's rows
 *   pos[t] first, then query t sees rows 0..pos[t] (and the window).
 * ATTENTION_PART: some rows of every sequence against some others. seq is the whole sequence, doc_W has batch * seq ids
 *   in the sequence's order. o and lse are those of the keys in the call; with `more` they hold the result of other
 *   keys already and become the result of both; a query that has seen nothing has o = 0, lse = -inf. Backward (not on
 *   tapes) takes the final o (q's dtype) and lse of all keys and gives these keys' share of din, which are f32 and may
 *   be accumulated. */
struct attention_attrs {
    int heads, kv_heads, head_dim;
    int head_first, kv_first, group, heads_all; /* some of the model's heads (attention_heads.h): the first of each
                                                   kind, query heads per key head, query heads of the model; group 0:
                                                   all */
    int64_t batch, seq;
    float scale; /* on q.k */
    bool causal;
    int64_t window; /* 0 off; else query i sees keys in (i - window, i] */
    struct dropout_attrs dropout;
};
struct attention_part_attrs { /* q and k have the rows of some of `parts` (layout/sequence.h), one after the other */
    struct attention_attrs attention;
    int parts, q_first, q_count, k_first, k_count;
    bool more; /* o and lse hold something */
};

/* ---- latent attention ----
 *   MLA_KV     kv_T,H*(nope+value), rope_T,(A-nope)                k | v, both T,HA: k is nope | rope, v padded with 0
 *   TRIM       x_T,HA                                              y_T,H*value: the first `value` columns of a head */
struct mla_kv_attrs {
    int heads, head_dim, nope, value; /* columns of a head without rotation, of a value */
};
struct trim_attrs {
    int heads, head_dim, value;
};

/* ---- pictures ----
 *   PATCHES    pixels_B,(C*I*I) f32                                x_T,(C*P*P), place_T i32, kind_T i32   (no backward)
 *   POOL       x_TD                                                y_BD
 * A picture is a sequence: place 0 is for its class, place 1 + i for patch i of P x P pixels, line by line; C channels.
 * PATCHES: rows of patches as a convolution's weight [N, C, P, P] wants them, row of the class all zeros; kind is 0
 *   for the class, 1 for a patch. It takes the dtype of x as COPY does.
 * POOL: the row of the class, or the mean of the patches. Of rows that are not here nothing is added: with some rows
 *   of the sequences y is a part of a sum. */
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

/* ---- experts ----
 *   ROUTER     logits_TE [, bias_E]                                gate_Tk f32, pick_Tk i32
 *   LOAD       pick_Tk i32, target_T i32                           load_B,(E+1) f32: picks per expert, trained tokens
 *   BALANCE    logits_TE, pick_Tk, target_T, load_B,(E+1)          stat_(E+2) f64 += {balance, z, picks per expert}
 *   PERMUTE    x_TD, pick_Nk i32                                   y_UD, row_Tk i32 (-1: dropped), rows_E i32
 *   UNPERMUTE  y_UD, gate_Tk, row_Tk                               z_TD = sum over k of gate times row of y
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
struct permute_attrs {
    int experts, top_k;
    int64_t capacity;        /* rows of one expert for one sequence; 0: no limit */
    struct tokens_at tokens; /* first: x's first row among the picks */
    int parts;
};
struct unpermute_attrs {
    int top_k;
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
 *   DISPATCH, COMBINE in rounds: z has room for some rows, and rows_E' is [2,E'], from_n,(E+2) (parallel/waves.h) */
struct axis_ranks {
    enum axis axis;
    int n_parts, part; /* the axis's size, this rank's coordinate */
};
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
 * bias. Gradients are those of what was quantised. That of the bias is not this row's: LINEAR makes it (din[1] absent)
 * from the dout that was not quantised. */
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
 * the other. In rounds `rows` is [2,E], as GROUPED has it. */
struct parts_attrs {
    int64_t each; /* of a weight: rows of a part; 0: `rows` says */
    int sources;  /* ranks that rows are from; 0: rows_E */
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
    X(ROUTER, router)                                                                                                  \
    X(LOAD, load)                                                                                                      \
    X(BALANCE, balance)                                                                                                \
    X(PERMUTE, permute)                                                                                                \
    X(UNPERMUTE, unpermute)                                                                                            \
    X(SUM, sum)                                                                                                        \
    X(ROWS, rows)                                                                                                      \
    X(DISPATCH, dispatch)                                                                                              \
    X(CONTEXT, context)                                                                                                \
    X(AMAX, amax)                                                                                                      \
    X(QUANTISE, quantise)                                                                                              \
    X(LINEAR_SCALED, linear_scaled)                                                                                    \
    X(AMAX_PARTS, amax_parts)                                                                                          \
    X(QUANTISE_PARTS, quantise_parts)                                                                                  \
    X(GROUPED_SCALED, grouped_scaled)

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
_Noreturn void attrs_wrong(enum attrs_kind has, enum attrs_kind wanted);

#define ATTRS_PAIR(kind_, name)                                                                                        \
    static inline struct op_attrs attrs_##name(struct name##_attrs a)                                                  \
    {                                                                                                                  \
        return (struct op_attrs){.kind = ATTRS_##kind_, .as.name = a};                                                 \
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
