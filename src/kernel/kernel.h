/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h: the table of coarse operations. One row per operation (ops.c), one implementation per family.
 *
 * A row says: how many inputs and outputs, their shapes, which inputs are weights, what backward needs, FLOPs,
 * bytes, and the rule of mesh types. The tape, the gradient checks, the planner, the tracer and the docs all read
 * this table. A family (ref: plain loops, the executable specification; cpu: vectorised; onednn) fills slots;
 * an empty slot falls through to the next family, and ref fills them all.
 *
 * Invariants
 *   1. Kernels return void and cannot fail: shapes were checked when the operation was recorded.
 *   2. `backward input` writes din[i] = acc[i] + d(loss)/d(in[i]) for the inputs that are not weights;
 *      acc[i].p == NULL means 0; acc[i].p == din[i].p means accumulate in place; else acc is another buffer.
 *      `backward weight` does the same for weights, in fp32 always.
 *   3. The same call gives the same bits, whatever the number of threads or their timing.
 *   4. Nothing allocates: scratch comes with the call, its size from kernel_scratch().
 *   5. Every in/out pointer may be unaligned beyond its element size; rows may be strided, the last dim is dense.
 *   6. din[0] may be the same memory as dout[0] or in[0] only where the row says so (inplace_bwd).
 * Floors 0-1 and device only.
 */
#ifndef TUTTI_KERNEL_KERNEL_H
#define TUTTI_KERNEL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/thread.h"
#include "device/device.h"
#include "layout/dtype.h"
#include "layout/spmd.h"

enum { KERNEL_MAX_IN = 6, KERNEL_MAX_OUT = 3, KERNEL_MAX_DIM = 4 };

/* The rows. Legend: T tokens of the microbatch (B sequences x S positions, flattened), D hidden, K in-features,
 * N out-features, H query heads, G key/value heads, A head size, F ffn width, V vocabulary.
 *
 *   op           inputs                                            outputs
 *   EMBED        ids_T i32, w_VD                                   y_TD
 *   LINEAR       x_TK, w_NK [, bias_N]                             y_TN = x w^T + bias
 *   RMSNORM      x_TD, w_D                                         y_TD, rstd_T f32
 *   LAYERNORM    x_TD, w_D, b_D                                    y_TD, stat_T2 f32 (mean, rstd)
 *   ROTARY       x_T,(n*A), pos_T i32, table_PA f32                y = x rotated by position (same memory as x)
 *   ATTENTION    q_T,HA  k_T,GA  v_T,GA [, doc_T i32]              o_T,HA, lse_TH f32
 *   ACT          x_TF (gelu) or x_T,2F (swiglu: gate | up)         y_TF
 *   ADD          a_TD, b_TD [, index_T i32]                        y_TD = a + dropout(b)
 *   DROPOUT      x_TD [, index_T i32]                              y_TD
 *   XENT         logits_TV, target_T i32 [, stats_{N*T,3} f32]     stat_2 f64 += {sum of nats, trained tokens}
 *   XENT_PART    logits_TV, target_T i32                           stats_T3 f32 (max, sum of exp(x - max), target's
 *                                                                  logit)
 *   ATTENTION_CACHED  q_T,HA  k_T,GA  v_T,GA, pos_T i32, cache_k_C,GA, cache_v_C,GA   o_T,HA   (no backward)
 *   ATTENTION_PART  q  k  v [, doc_W i32]                          o f32, lse f32 (below)
 *   COPY         x                                                 y = x, cast to y's dtype
 *
 * Experts: E of them, k chosen per token, U rows of a buffer of which the first `used` hold tokens. S sequences.
 *   ROUTER       logits_TE [, bias_E]                              gate_Tk f32, pick_Tk i32
 *   LOAD         pick_Tk i32, target_T i32                         load_S,(E+1) f32: picks per expert, trained tokens
 *   BALANCE      logits_TE, pick_Tk, target_T, load_S,(E+1)        stat_(E+2) f64 += {balance, z, picks per expert}
 *   PERMUTE      x_TD, pick_Nk i32                                 y_UD, row_Tk i32 (-1: dropped), rows_E i32
 *   GROUPED      x_UK, w_(E*N),K, rows_E                           y_UN: expert e's rows times its N rows of w
 *   UNPERMUTE    y_UD, gate_Tk, row_Tk                             z_TD = sum over k of gate times row of y
 *   MLA_KV       kv_T,H*(nope+value), rope_T,(A-nope)              k | v, both T,HA: k is nope | rope, v padded with 0
 *   TRIM         x_T,HA                                            y_T,H*value: the first `value` columns of a head
 *
 * Collectives: N ranks of one axis of the mesh; rows are cut by region_split, or, with context.parts, as the tokens of
 * `batch` sequences of `seq` are shared out over cp (op_rows_here). Run by parallel/, not by a family.
 *   op           forward                                           backward
 *   ENTER        x_TK unchanged                     (I -> R)       dx = sum of the ranks' dy
 *   REDUCE       y_TN = sum of the ranks' x_TN      (P -> I)       dx = dy
 *   GATHER       y_TK = all ranks' rows x_tK        (S0 -> R)      dx = this rank's rows of the sum of dy
 *   SCATTER      y_tN = this rank's rows of the sum (P -> S0)      dx = all ranks' rows dy
 *   SPREAD       y_tK = this rank's rows of x_TK    (I -> S0)      dx = all ranks' rows dy
 *   DISPATCH     y_UD, rows_E i32 -> z_WD, rows_E' i32, from_nE' i32: rows to the ranks of their experts
 *                (parallel/expert.h)
 *   COMBINE      z_WD, rows_E i32, from_nE' i32 -> y_UD: and back; the backward of one is the other
 *   COLLECT      y_TK = all ranks' rows x_tK        (S0 -> I)      dx = this rank's rows of dy
 *   CONTEXT      o, lse of q k v [, doc_W]: attention over all ranks' keys (parallel/context.h), S0 on cp
 *
 * Copies: not on tapes, and of all bytes of a place.
 *   STORE        y = x, where y lies in another memory (MEM_HOST)
 *   FETCH        y = x, where x does
 *
 * Dtypes: x, y, q, k, v and the weights of one call share one float type (f32, bf16, f16), gradients of activations
 * too; statistics and tables are f32, ids and positions i32. Tensors of T are 2-D, COPY takes any rank.
 *   XENT adds into stat: the caller zeroes it (once a step, or once a microbatch). Its backward writes
 *     dlogits = (softmax(logits) - onehot(target)) * step->loss_scale, zeros where target is -1; the loss is the
 *     root, so dout[0] is not read, and stat is not needed.
 *     target -1: not trained. With stats, logits are some columns of the vocabulary on each of N ranks, and stats are
 *     all ranks' XENT_PART, rank after rank: combined in rank order, so that every rank finds the same bits.
 *   ADD, DROPOUT: index_T says which token of the microbatch a row is; absent: rows are tokens in order.
 *   EMBED: with part of the table (first, whole), other ids give zero rows and no gradient.
 *   COPY takes the dtype of y from out[0].dtype as the caller set it before infer.
 *   ROTARY's y keeps x's stride, so a column slice of a wider tensor is rotated where it lies. Pairs are columns
 *     (i, i + A/2) of a head; row p of the table holds A/2 cosines, then A/2 sines. Backward turns the other way.
 *   ATTENTION: row t = b * S + s; query head h reads key head h / (H/G); lse is in nats.
 *   ATTENTION_PART: some rows of every sequence against some others (at.context). seq is the whole sequence, doc_W has
 *     batch * seq ids in the sequence's order. o and lse are those of the keys in the call; with context.more they hold
 *     the result of other keys already and become the result of both; a query that has seen nothing has o = 0,
 *     lse = -inf. Backward (not on tapes) takes the final o (q's dtype) and lse of all keys and gives these keys' share
 *     of din, which are f32 and may be accumulated.
 *     rotary_dim > 0 turns only columns [rotary_at, rotary_at + rotary_dim) of each head, and the table has rotary_dim
 *     columns; rotary_pairs: pairs are columns (2i, 2i+1) of what is turned.
 *   ROUTER: score = softmax or logistic of the logits; the k largest of score + bias are chosen, largest first, of
 *   equal
 *     ones the lower index (with groups: only inside the top_groups groups whose largest one, or whose two largest
 *     together, are largest). gate = gate_scale * score (/ their sum with norm_topk). The bias has no gradient (Wang et
 *     al. 2024, "Auxiliary-loss-free load balancing").
 *   LOAD, BALANCE: only tokens whose target is not -1 count. Token t of the call is number moe.first + t of the
 *     microbatch of batch x seq tokens. BALANCE adds, per token t of sequence s with n_s trained tokens and picks f_se,
 *     moe.aux * E/k * sum_e f_se/n_s p_te, where p are the scores scaled to sum 1 (Shazeer et al. 2017; Fedus et al.
 *     2021; DeepSeek-V3, eq. 17-20), and moe.z * lse(logits_t)^2 (Zoph et al. 2022). It is a root like XENT: its
 *     backward is times step->loss_scale, so both are means over trained tokens.
 *   PERMUTE: rows of expert 0 first, and so on; inside an expert by choice, then by token. Rows from `used` on are
 *   zero.
 *     N = T, unless moe.capacity > 0: of one sequence an expert takes the first so many, by choice, then by place in
 *     the sequence, and drops the rest. That takes the picks of whole sequences: N = batch * seq, of which x is rows
 *     moe.first on. context.parts > 1: these rows are as layout/sequence.h shares them out, part after part; else in
 *     order.
 *   GROUPED: rows beyond the sum of rows_E are zero, forward and backward. at.whole: rows expected, for counting FLOPs.
 *   ATTENTION_CACHED: pos are consecutive and pos[0] counts the tokens cached before; k and v go to the cache's
 *     rows pos[t] first, then query t sees rows 0..pos[t] (and the window).
 */
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
    OP_ENTER, /* collectives from here on */
    OP_REDUCE,
    OP_GATHER,
    OP_SCATTER,
    OP_SPREAD,
    OP_COLLECT,
    OP_DISPATCH,
    OP_COMBINE,
    OP_CONTEXT,
    OP_STORE, /* copies to and from another memory; lowering puts them in (tape/offload.c), layers do not */
    OP_FETCH,
    OP_N,
    OP_FIRST_COLLECTIVE = OP_ENTER
};

enum act_kind { ACT_GELU /* tanh form, "gelu_new" */, ACT_SWIGLU, ACT_N };

enum moe_score { SCORE_SOFTMAX, SCORE_SIGMOID };
struct moe_attrs {
    int experts, top_k;
    enum moe_score score;
    bool norm_topk;         /* the chosen scores are scaled to sum 1 */
    int groups, top_groups; /* 0: no groups */
    bool group_pairs;       /* a group counts by its two largest scores, else by its largest */
    float gate_scale;
    float aux, z;     /* coefficients of BALANCE's two losses */
    int64_t capacity; /* rows of one expert for one sequence; 0: no limit */
    int copies;       /* DISPATCH, COMBINE: ranks that each get the rows of an expert, one behind the other; 0: 1 */
    int64_t first;    /* number of the first token in the microbatch; PERMUTE: its row among the picks */
};

/* Attributes; an operation reads its own and leaves the rest zero. */
struct op_attrs {
    float eps;                     /* norms */
    int heads, kv_heads, head_dim; /* ATTENTION; ROTARY: heads = heads to rotate (q and k together) */
    int head_first, kv_first, group,
        heads_all;      /* ATTENTION on some of the model's heads (attention_heads.h): the first
                of each kind, query heads per key head, query heads of the model; group 0: all */
    int64_t batch, seq; /* ATTENTION: T = batch * seq */
    float scale;        /* ATTENTION: on q.k */
    bool causal;
    int64_t window; /* ATTENTION: 0 off; else query i sees keys in (i - window, i] */
    enum act_kind act;
    float dropout;   /* ADD, DROPOUT, ATTENTION: probability of zero; kept values times 1/(1-p) */
    uint64_t stream; /* random stream of this dropout */
    bool bias_off;   /* LINEAR with a partial product: only rank 0 of the axis adds the bias; the
                        tape leaves it out of the forward call elsewhere */
    struct {         /* sequences shared out over `parts` (layout/sequence.h); ATTENTION_PART, CONTEXT: */
        int parts;
        int q_first, q_count, k_first, k_count; /* q and k have the rows of these parts, one after the other; */
        bool more;                              /* o and lse hold something; */
        int inner;                              /* CONTEXT: ranks that exchange heads (1: none), the others rows; */
        bool gather;                            /* rows travel all at once instead of around a ring */
    } context;
    int rotary_dim, rotary_at; /* ROTARY: part of a head; 0: all of it */
    bool rotary_pairs;
    int nope, value; /* MLA_KV, TRIM: columns of a head without rotation, of a value */
    struct moe_attrs moe;
    enum axis axis;    /* collectives: of the mesh, */
    int n_parts, part; /* its size, this rank's coordinate, */
    int64_t whole;     /* and the rows of all ranks together; */
    int pieces, piece; /* GATHER, SCATTER: only piece `piece` of each rank's rows (region_window); pieces 0: all.
                          The side that has all ranks' rows is given whole. */
    int64_t first;     /* EMBED, XENT on a part of the vocabulary: its first id; whole: all ids (0: the part is
                          all); XENT: n_parts in stats */
};

/* What changes from step to step while shapes stay. */
struct step_info {
    uint64_t seed;        /* run.seed */
    uint64_t step;        /* optimizer step, from 0 */
    uint64_t first_token; /* global index, in this step, of the microbatch's first token: dropout's index base */
    bool training;        /* false: dropout is the identity */
    float loss_scale;     /* XENT: d(loss)/d(sum of nats): 1 / global count of trained tokens, times fp16 scale */
};

/* A window on memory for one call. p == NULL: absent, or the null device. Absent for good: all zero (nd == 0). */
struct view {
    void *p;
    enum dtype dtype;
    int nd;
    int64_t n[KERNEL_MAX_DIM];
    int64_t stride; /* elements from one row (all dims but the last) to the next; = n[nd-1] when dense */
};
static inline int64_t view_rows(const struct view *v)
{
    int64_t r = 1;
    for (int i = 0; i + 1 < v->nd; i++) r *= v->n[i];
    return r;
}
static inline int64_t view_cols(const struct view *v) { return v->nd ? v->n[v->nd - 1] : 1; }

enum kernel_phase { KERNEL_FWD, KERNEL_BWD_IN, KERNEL_BWD_W, KERNEL_N_PHASES };

struct kernel_slot;
struct kernel_call {
    enum op op;
    enum kernel_phase phase;
    struct op_attrs at;
    const struct step_info *step;
    int n_in, n_out;
    struct view in[KERNEL_MAX_IN];    /* backward: p set for those the row saves */
    struct view out[KERNEL_MAX_OUT];  /* backward: p set for those the row saves */
    struct view dout[KERNEL_MAX_OUT]; /* backward: gradients of outputs; p NULL where no gradient exists */
    struct view din[KERNEL_MAX_IN];   /* backward: where to write; p NULL: not wanted (not all of a phase's) */
    struct view acc[KERNEL_MAX_IN];   /* backward: invariant 2 */
    void *scratch;                    /* 64-byte aligned */
    size_t scratch_bytes;
    struct team *team;
    const char *what;                 /* whose result it is, for messages; NULL: nobody's */
    const struct kernel_slot *kernel; /* chosen before (kernel_find); NULL: found when it runs */
};
typedef void kernel_fn(const struct kernel_call *c);

/* ---- the row: everything about an operation that is not an implementation ---- */
/* Families have slots for kernels only. */
enum op_by {
    BY_KERNEL,
    BY_RANKS, /* a collective: parallel/, between the ranks of at.axis */
    BY_COPIES /* to and from another memory: tape/away.h */
};
struct op_row {
    const char *name;
    int min_in, max_in, n_out;
    uint8_t weight_in;       /* bit i: in[i] is a weight; its gradient is computed by backward-weight */
    uint8_t grad_in;         /* bit i: in[i] gets a gradient from backward-input */
    uint8_t save_in;         /* bit i: backward-input needs the values of in[i] */
    uint8_t save_in_w;       /* bit i: backward-weight needs the values of in[i] */
    uint8_t save_out;        /* bit i: backward needs the values of out[i] */
    uint8_t row_in, row_out; /* bit i: in[i], out[i] have one row per token, and forward and backward-input make a row
                              * of what they write from the same row of what they read: any rows may be done by
                              * themselves (ADD and DROPOUT: where index_T says which token a row is). 0: not so */
    bool inplace_fwd;        /* out[0] may (and for ROTARY must) share in[0]'s memory when nobody else needs in[0] */
    bool inplace_bwd;        /* din[0] may share dout[0]'s memory (ROTARY, DROPOUT, ADD: dout is read before din[0]
                              * is written, element by element), or in[0]'s (XENT) */
    bool has_backward;
    enum op_by by;  /* who carries it out */
    bool travels;   /* it is begun in its turn and finished before the first instruction that touches its bytes, which
                       are its own until then (tape/underway.c); work that needs nothing of it goes on beside it */
    bool alias_fwd; /* out[0] is in[0]'s memory, and nothing runs forward (ENTER) */
    bool alias_bwd; /* din[0] is dout[0]'s memory, and nothing runs backward (REDUCE) */
    /* Output shapes and dtypes from the inputs, p = NULL; a text for the user when they do not fit, else NULL. */
    const char *(*infer)(const struct op_attrs *at, int n_in, const struct view *in, struct view *out);
    /* Floating-point operations (a multiply-add is 2) and bytes moved of the call's phase. Only what the
     * mathematics needs: masked pairs of attention and scores computed a second time in backward do not count. */
    double (*flops)(const struct kernel_call *c);
    double (*bytes)(const struct kernel_call *c);
    /* Mesh types on one axis; returns NULL, or why the inputs do not fit ("x partial"). */
    const char *(*rule)(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out);
};
const struct op_row *op_row(enum op op);
static inline bool op_collective(enum op op) { return op_row(op)->by == BY_RANKS; }
/* Of at->whole rows, those of rank `part`: how the rows of collectives are cut. */
int64_t op_rows_here(const struct op_attrs *at, int part);

/* ---- families ---- */
struct kernel_slot {
    kernel_fn *run;
    size_t (*scratch)(const struct kernel_call *c, int n_threads); /* NULL: none needed */
    bool (*accepts)(const struct kernel_call *c);                  /* NULL: every call; else fall through */
    const char *(*path)(const struct kernel_call *c); /* which of its ways it takes, in words; NULL: it has one */
};
struct kernel_family {
    const char *name;
    struct kernel_slot slot[OP_N][KERNEL_N_PHASES];
    void (*library)(char out[32]); /* whose code it calls, such as "oneDNN 3.1.1"; NULL: tutti's own */
};

/* Flat operations outside the tape: optimizer updates, norms of gradients, initialisation. */
struct adamw_args { /* all arrays of n elements; param in param_dtype (may be NULL or equal to master) */
    int64_t n;
    float *master, *m, *v;
    const float *grad;
    void *param;
    enum dtype param_dtype;
    float lr, beta1, beta2, eps, weight_decay;
    float grad_scale;   /* clipping and loss-scale factor, multiplies grad */
    float bias1, bias2; /* 1 - beta^t */
};
struct sgd_args {
    int64_t n;
    float *master, *m; /* m NULL when momentum == 0 */
    const float *grad;
    void *param;
    enum dtype param_dtype;
    float lr, momentum, weight_decay, grad_scale;
    bool nesterov;
};
struct update_args; /* update.h */
enum { FLAT_SQUARES_BINS = 256, FLAT_SQUARES_WORDS = 2 * FLAT_SQUARES_BINS };
struct flat_ops {
    const char *name;
    void (*adamw)(struct team *team, const struct adamw_args *a);
    void (*sgd)(struct team *team, const struct sgd_args *a);
    /* Adds to *sum the sum of squares in fp64: blocks of 4096 elements, block sums added in order; the same for any
     * team. */
    void (*sum_squares)(struct team *team, const float *x, int64_t n, double *sum);
    /* Index of the first NaN or Inf, -1 if none. */
    int64_t (*find_nonfinite)(struct team *team, const void *x, enum dtype dtype, int64_t n);
    void (*cast)(struct team *team, void *dst, enum dtype to, const void *src, enum dtype from, int64_t n);
    /* Sums of gradients. All are elementwise and run in fp32, so neither the split over threads nor the length changes
     * a bit. */
    /* to[i] = from[i], or to[i] + from[i] when add, rounded once to to's type. f32 into f32 or bf16, bf16 into bf16. */
    void (*sum_into)(struct team *team, void *to, enum dtype t, const void *from, enum dtype f, int64_t n, bool add);
    /* to[i] = the n_parts (a power of two) values part[p * n + i], summed along the binary tree that halves
     * 0..n_parts-1 down to neighbours. to may be one of the parts. */
    void (*sum_tree)(struct team *team, float *to, const float *part, int n_parts, int64_t n);
    /* The same from the first part to the last, rounded once; f32, bf16 or f16. to overlaps no part. */
    void (*sum_parts)(struct team *team, void *to, enum dtype t, const void *part, int n_parts, int64_t n);
    /* Adds n squares to words without any rounding: flat.h. */
    void (*squares)(struct team *team, const float *x, int64_t n, int64_t word[FLAT_SQUARES_WORDS]);
    void (*update)(struct team *team, const struct update_args *a); /* the rows of update.h */
};

/* A device's kernels: a chain of families and the flat operations. For the null device nothing runs, but
 * scratch sizes are those of the chain it stands for (so predicted bytes equal allocated bytes). */
struct kernel_table {
    const struct kernel_family *chain[4]; /* tried in order; the last is ref */
    const struct flat_ops *flat;
    int n_threads;
    bool dry;        /* count, do not run */
    const char *isa; /* "amx", "avx512-bf16", "avx512", "avx2", "ref": what was found and chosen */
};
/* name: "auto" (best for this CPU, see cpuid.h) or "ref". n_threads: the largest team that will run the calls. */
int kernel_table_init(struct kernel_table *t, const char *name, int n_threads, bool dry, struct err *e);
/* The slot that would take this call, NULL if the operation has no such phase: for printing, scratch and running.
 * Shapes, dtypes and attributes decide, never pointers: the null device must find the same slot. */
const struct kernel_slot *kernel_find(const struct kernel_table *t, const struct kernel_call *c, const char **family);
/* The libraries of its families: "oneDNN 3.1.1", or "" where all is tutti's own. */
void kernel_libraries(const struct kernel_table *t, char out[32]);
size_t kernel_scratch(const struct kernel_table *t, const struct kernel_call *c);
/* At once, on c->team, on memory that the caller can touch: what stands behind kernel_enqueue, and for host memory. */
void kernel_run(const struct kernel_table *t, const struct kernel_call *c);

/* ---- on a stream (entry.c): the door to a device's bytes ---- */
/* What is enqueued on s runs by t (borrowed) from now on. A stream without a table copies only. */
void kernel_on(struct stream *s, const struct kernel_table *t);
/* Addresses are of s's device: translated here where it is untouchable, and host memory is refused with a CHECK.
 * c->team is s's from here on; the call and its step are copied where they have to last. */
void kernel_enqueue(struct stream *s, struct kernel_call *c);
/* The table's flat operations likewise. Those that return a value wait for s; on the null device it is 0 (-1: none
 * found). */
void flat_adamw(struct stream *s, const struct adamw_args *a);
void flat_sgd(struct stream *s, const struct sgd_args *a);
void flat_sum_squares(struct stream *s, const float *x, int64_t n, double *sum);
double flat_sum_squares_now(struct stream *s, const float *x, int64_t n);
int64_t flat_find_nonfinite(struct stream *s, const void *x, enum dtype dtype, int64_t n);
void flat_cast(struct stream *s, void *dst, enum dtype to, const void *src, enum dtype from, int64_t n);
void flat_sum_into(struct stream *s, void *to, enum dtype t, const void *from, enum dtype f, int64_t n, bool add);
void flat_sum_tree(struct stream *s, float *to, const float *part, int n_parts, int64_t n);
void flat_sum_parts(struct stream *s, void *to, enum dtype t, const void *part, int n_parts, int64_t n);
void flat_squares(struct stream *s, const float *x, int64_t n, int64_t *word);

extern const struct kernel_family kernel_family_ref;
extern const struct kernel_family kernel_family_cpu;
extern const struct kernel_family kernel_family_onednn;
extern const struct flat_ops flat_ops_ref;
extern const struct flat_ops flat_ops_cpu;

#endif
