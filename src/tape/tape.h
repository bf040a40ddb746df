/* SPDX-License-Identifier: Apache-2.0 */
/* tape.h: WHAT one (stage, microbatch) computes: a list of coarse operations over tensors on paper.
 *
 * Recording checks shapes (op_row.infer) and mesh types (op_row.rule) and computes nothing. Lowering (program.h)
 * turns a tape into instructions for forward, backward-input and backward-weight with every byte placed; a program
 * then runs once per microbatch. Shapes are the same for every microbatch, so one tape serves them all.
 *
 * Invariants
 *   1. A tensor is produced by one node, or is external: a slot that the caller binds when running (parameters,
 *      inputs, constants, caches).
 *   2. A view names columns or rows of another tensor; a view of a view is a view of the root.
 *   3. In-place operations (ROTARY, ADD onto) make their output an alias of their input.
 *   4. Errors of shape or type are found here, with the operation, the tensor and the axis in the text. They are
 *      the model's fault, not the user's: the first one sticks, later calls do nothing, tape_status() tells.
 * Order: Same(mesh): every rank of a stage records the same tape. Floors 0-2.
 */
#ifndef TUTTI_TAPE_TAPE_H
#define TUTTI_TAPE_TAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "kernel/kernel.h"
#include "layout/spmd.h"

typedef int tid; /* a tensor on a tape; negative: none */
enum { TID_NONE = -1, TAPE_NAME = 48 };

enum tensor_kind { TENSOR_LOCAL, TENSOR_EXTERNAL, TENSOR_VIEW };

struct tensor {
    char name[TAPE_NAME];
    enum tensor_kind kind;
    enum dtype dtype;
    int nd;
    int64_t n[KERNEL_MAX_DIM];
    struct spmd_type type;
    int slot;         /* EXTERNAL: index into the bindings given when running */
    int grad_slot;    /* EXTERNAL parameters: slot of the fp32 gradient, else -1 */
    bool boundary;    /* EXTERNAL: passes between stages; grad_slot holds an activation's gradient in its own dtype */
    tid root;         /* VIEW: the tensor whose memory this is; itself otherwise */
    int64_t row, col; /* VIEW: first row and column in the root */
    int producer;     /* node, -1 for externals */
};

/* A change of mesh type: where a collective stands. On axes of size 1 the tensor is the same memory (retype); on others
 * the operation is a collective row. */
struct node {
    enum op op;
    bool retype; /* not a kernel: out[0] is in[0] under another mesh type (see parallel/) */
    enum axis axis;
    struct op_attrs at;
    int n_in, n_out;
    tid in[KERNEL_MAX_IN];
    tid out[KERNEL_MAX_OUT];
    int segment; /* index, -1 outside */
    int wave;    /* index, -1: not between a dispatch and its combine that are done in rounds */
    bool aside;  /* and done once, beside the first round */
    int layer;   /* label for printing and tracing, -1 none */
};

/* Nodes [first, end), from a DISPATCH to its COMBINE, that are run as often as there are rounds of rows; how many
 * rounds is data (program.h). Their outputs hold one round's, so backward makes them again, round by round, unless
 * there was one round only. */
struct wave {
    int first, end;
};

/* RECOMPUTE: what the operations `again` put out is not kept from forward; backward computes it once more from what is
 * kept, before it reads it. LOSS: backward of these nodes runs inside forward, at once (the loss is a root: its
 * gradient is a known constant), so that logits live for one chunk. None of them reads the stage's input itself. */
enum segment_kind { SEGMENT_RECOMPUTE, SEGMENT_LOSS };
struct segment {
    enum segment_kind kind;
    int first, end; /* nodes [first, end) */
    uint64_t again; /* RECOMPUTE: bit 1 << op */
};
#define AGAIN_ALL (~(uint64_t)0) /* then the inputs of the segment are all that is kept */
_Static_assert(OP_STORE <= 64, "operations that are recorded are bits of a word");

struct tape {
    struct arena *arena;
    struct tensor *tensors;
    int n_tensors, room_tensors;
    struct node *nodes;
    int n_nodes, room_nodes;
    struct segment *segments;
    int n_segments, room_segments;
    int open_segment; /* -1 none */
    struct wave *waves;
    int n_waves, room_waves;
    int open_wave; /* -1 none */
    bool aside;
    bool same_rows;          /* products and cached attention recorded now have it (kernel/attrs.h) */
    int n_changes;           /* of mesh type, recorded so far (parallel/) */
    int layer;               /* label given to nodes recorded now */
    tid stage_in, stage_out; /* TID_NONE: the model begins, ends here */
    struct err err;          /* sticks */
};

/* Create. */
struct tape *tape_new(void);
void tape_free(struct tape *t);
int tape_status(const struct tape *t, struct err *e); /* OK, or the first recording error */

/* Externals. n_slots used = 1 + the largest slot. */
tid tape_input(struct tape *t, const char *name, int slot, enum dtype dtype, int nd, const int64_t *n,
               struct spmd_type type);
tid tape_param(struct tape *t, const char *name, int slot, int grad_slot, enum dtype dtype, int nd, const int64_t *n,
               struct spmd_type type);

/* Views of columns [col, col+n) or rows [row, row+n) of a 2-D tensor. */
tid tape_cols(struct tape *t, tid x, int64_t col, int64_t n);
tid tape_rows(struct tape *t, tid x, int64_t row, int64_t n);

/* Record one operation. `in` may hold TID_NONE for absent optional inputs. Returns the first output; the others
 * follow (out + 1, ...). out_dtype: DT_N takes what the row infers (COPY reads it). */
tid tape_record(struct tape *t, enum op op, const struct op_attrs *at, int n_in, const tid *in, enum dtype out_dtype,
                const char *name);
/* x, just produced, lives in an external slot: a program's result (logits of a decoding step, sums of losses). */
void tape_bind(struct tape *t, tid x, int slot);
/* A collective over an axis of several ranks: at says which (at_over), and what moves; the output is `to` on that
 * axis and as x is on the others. x is a whole tensor or rows of one. The caller, parallel/, owns the rules. */
tid tape_collective(struct tape *t, enum op op, const struct op_attrs *at, tid x, enum spmd to, const char *name);
/* The same for a row with several inputs; all outputs are `to` on the axis. */
tid tape_collective_n(struct tape *t, enum op op, const struct op_attrs *at, int n_in, const tid *in, enum spmd to,
                      const char *name);
/* The ends of a pipeline stage. The input's values lie at slot; backward leaves its gradient at grad_slot, whole. The
 * output, just produced, is written to slot; backward starts from the gradient that lies at grad_slot. At most one of
 * each on a tape; something must come between them. */
tid tape_stage_in(struct tape *t, const char *name, int slot, int grad_slot, enum dtype dtype, int nd, const int64_t *n,
                  struct spmd_type type);
void tape_stage_out(struct tape *t, tid x, int slot, int grad_slot);
/* The same memory under another type on one axis (the caller, parallel/, owns the rules). */
tid tape_retype(struct tape *t, tid x, enum axis axis, enum spmd to, const char *name);

void tape_segment_begin(struct tape *t, enum segment_kind kind); /* RECOMPUTE: of everything */
/* RECOMPUTE of these operations only. One that works in its input's memory is computed again if that input is. */
void tape_recompute_begin(struct tape *t, uint64_t again);
void tape_segment_end(struct tape *t);
/* Rounds of rows: parallel/expert.c begins them before its dispatch and ends them after its combine. They do not nest,
 * but may lie in a segment. aside: nodes recorded now are done once, beside the first round. */
void tape_waves_begin(struct tape *t);
void tape_waves_aside(struct tape *t, bool aside);
void tape_waves_end(struct tape *t);

/* Inspect. */
static inline const struct tensor *tape_tensor(const struct tape *t, tid x) { return &t->tensors[x]; }
int64_t tensor_numel(const struct tensor *x);
int64_t tensor_cols(const struct tensor *x);
int64_t tensor_rows(const struct tensor *x);
struct view tensor_view(const struct tape *t, tid x); /* shape and stride; p NULL */
/* Of what a product of layers reads, whole or some rows of it: of `batch` sequences that have `tokens` rows on this
 * rank of cp, which ranks of tp may share out. What the product makes has the same rows. */
struct token_rows; /* program/program.h */
struct token_rows tape_token_rows(const struct tape *t, tid x, int64_t batch, int64_t tokens, struct axis_ranks tp);
void tape_print(const struct tape *t, struct str *out);

/* ---- the operations, one call each (record_ops.c) ---- */
/* v: which rows of the vocabulary w has; of a part of them the result is a part of the sum over the ranks. */
tid op_embed(struct tape *t, tid ids_T, tid w_VD, struct vocab_attrs v, const char *name);
tid op_linear(struct tape *t, tid x_TK, tid w_NK, tid bias_N, const char *name);
/* A product that is a part of a sum over ranks: one of them adds the bias, bias_off on the others. */
tid op_linear_partial(struct tape *t, tid x_TK, tid w_NK, tid bias_N, bool bias_off, const char *name);
tid op_rmsnorm(struct tape *t, tid x_TD, tid w_D, float eps, const char *name);
tid op_norm(struct tape *t, tid x_TD, tid w_D, struct norm_attrs a, const char *name);
/* The same of each of a.heads heads; of none where this rank has none. */
tid op_headnorm(struct tape *t, tid x_THA, tid w_A, struct norm_attrs a, const char *name);
/* The norm of rows whose columns lie on several ranks, in two halves: what is summed over them, and the rest. */
tid op_squares(struct tape *t, tid x_TN, const char *name);
tid op_norm_by(struct tape *t, tid x_TN, tid s_T1, tid w_N, struct norm_attrs a, const char *name);
tid op_layernorm(struct tape *t, tid x_TD, tid w_D, tid b_D, float eps, const char *name);
tid op_rotary(struct tape *t, tid x, tid pos_T, tid table_PA, struct rotary_attrs a, const char *name);
/* a.scale 0: 1 / sqrt(head_dim), which attention_scale returns. */
/* doc_T, sink_H: TID_NONE: there are none. */
tid op_attention(struct tape *t, tid q, tid k, tid v, tid doc_T, tid sink_H, struct attention_attrs a,
                 const char *name);
tid op_attention_cached(struct tape *t, tid q, tid k, tid v, tid runs_SX, tid cache_k, tid cache_v, tid sink_H,
                        struct attention_attrs a, const char *name);
float attention_scale(const struct attention_attrs *a);
tid op_act(struct tape *t, tid x, enum act_kind kind, const char *name);
tid op_act_limited(struct tape *t, tid x, enum act_kind kind, float limit, const char *name);
tid op_cap(struct tape *t, tid x, float cap, const char *name); /* cap tanh(x / cap) */
/* index_T: which token of the microbatch each row is; TID_NONE: rows are tokens in order. Read by dropout only. */
tid op_add(struct tape *t, tid a, tid b, float dropout, uint64_t stream, tid index_T, const char *name);
/* a becomes a + times b, where it lies; it may be columns of a wider tensor, which nobody has read yet. */
tid op_add_onto(struct tape *t, tid a, tid b, float times, const char *name);
tid op_dropout(struct tape *t, tid x, float dropout, uint64_t stream, tid index_T, const char *name);
/* The sums {nats, trained tokens} are added into the f64[2] bound at stat_slot. */
tid op_xent(struct tape *t, tid logits_TV, tid target_T, int stat_slot, const char *name);
/* The same, its gradient multiplied by `times`; 0: it is not. */
tid op_xent_times(struct tape *t, tid logits_TV, tid target_T, float times, int stat_slot, const char *name);
/* With v.each: the nats of each token lie behind the sums, and rows of the gradient are multiplied by factor_T.
 * stats_N3: as op_xent_join, where v.n_parts. */
tid op_xent_each(struct tape *t, tid logits_TV, tid target_T, tid stats_N3, tid factor_T, struct vocab_attrs v,
                 int stat_slot, const char *name);
/* op_xent with a third sum, the tokens whose target has the largest logit: f64[3]. */
tid op_xent_right(struct tape *t, tid logits_TV, tid target_T, int stat_slot, const char *name);
/* Scores as they are: {-x of the targets' columns, trained tokens}. */
tid op_score(struct tape *t, tid x_TV, tid target_T, int stat_slot, const char *name);
/* The same where logits are columns [first, first + V') of `whole`, on one of n_parts ranks: statistics of the part,
 * then the loss from everybody's, collected one part after the other. */
tid op_xent_part(struct tape *t, tid logits_TV, tid target_T, struct vocab_attrs v, const char *name);
tid op_xent_join(struct tape *t, tid logits_TV, tid target_T, tid stats_N3, struct vocab_attrs v, int stat_slot,
                 const char *name);
/* bias_E: TID_NONE where there is none. The picks are the output after the gates. */
tid op_router(struct tape *t, tid logits_TE, tid bias_E, struct router_attrs a, const char *name);
tid op_load(struct tape *t, tid pick_Tk, tid target_T, struct load_attrs a, const char *name);
tid op_balance(struct tape *t, tid logits_TE, tid pick_Tk, tid target_T, tid load_BE, struct balance_attrs a,
               const char *name);
tid op_permute(struct tape *t, tid x_TD, tid pick_Nk, struct permute_attrs a, const char *name);
tid op_unpermute(struct tape *t, tid y_UD, tid gate_Tk, tid row_Tk, int top_k, const char *name);
/* expected: rows that hold tokens when the choice is even, for counting; 0: all. */
tid op_grouped(struct tape *t, tid x_UK, tid w, tid rows_E, int64_t expected, const char *name);
/* codes_NC, scales_NB, groups: of a matrix in few bits; groups, bias_N, rows_E: TID_NONE where there are none. */
tid op_coded(struct tape *t, tid x_TK, const tid w[3], tid bias_N, tid rows_E, const struct coded_attrs *a,
             const char *name);
tid op_expert_bias(struct tape *t, tid x_UN, tid b, tid rows_E, bool bias_off, const char *name); /* onto x */
tid op_mla_kv(struct tape *t, tid kv, tid rope, struct mla_kv_attrs a, const char *name);
tid op_join(struct tape *t, tid x_TD, tid y_TE, const char *name);
tid op_trim(struct tape *t, tid x, struct trim_attrs a, const char *name);
/* to: of the patches. Then come the places, then the kinds. */
tid op_patches(struct tape *t, tid pixels, struct patches_attrs a, enum dtype to, const char *name);
tid op_pool(struct tape *t, tid x_TD, struct pool_attrs a, const char *name);
tid op_insert(struct tape *t, tid x_TD, tid at_T, tid rows_RD, struct insert_attrs a, const char *name);
/* State spaces; b_C, doc_W, halo, before, w: TID_NONE where there is none. */
tid op_conv(struct tape *t, tid x_TC, tid w_CK, tid b_C, tid doc_W, tid halo, struct conv_attrs a, const char *name);
tid op_times(struct tape *t, tid dt_TH, tid decay_H, tid bias_H, struct times_attrs a, const char *name);
tid op_scan(struct tape *t, tid x, tid bc, tid s, tid skip_H, tid doc_W, tid before, struct scan_attrs a,
            const char *name);
tid op_scan_end(struct tape *t, tid x, tid bc, tid s, tid doc_W, struct scan_attrs a, const char *name);
tid op_gated_norm(struct tape *t, tid y, tid z, tid w, struct norm_attrs a, const char *name);
tid op_tails(struct tape *t, tid x, struct halo_attrs a, const char *name);
tid op_halo(struct tape *t, tid tails, struct halo_attrs a, const char *name);
tid op_carry(struct tape *t, tid ends, struct carry_attrs a, const char *name);
tid op_conv_cached(struct tape *t, tid x, tid w, tid b, tid runs_SX, tid cache, const char *name);
tid op_scan_cached(struct tape *t, tid x, tid bc, tid s, tid runs_SX, tid cache, tid skip_H, struct scan_attrs a,
                   const char *name);
/* Encoder and decoder: rows, then which tokens they were; d_HR: TID_NONE where there is no bias. */
tid op_pick(struct tape *t, tid x_T, struct pick_attrs a, const char *name);
tid op_distances(struct tape *t, tid w_BH, struct distances_attrs a, const char *name);
/* d_HR, place_M may be TID_NONE. */
tid op_attention_biased(struct tape *t, tid q, tid k, tid v, tid d_HR, tid place_M, struct attention_biased_attrs a,
                        const char *name);
/* kv: keys, values that come with the tokens, or TID_NONE both; cache: keys, values. w_BH: TID_NONE: no bias. */
tid op_attention_cached_biased(struct tape *t, tid q, const tid kv[2], tid runs_SX, const tid cache[2], tid w_BH,
                               struct attention_cached_biased_attrs a, const char *name);
/* Rows' lengths; b: as many as parts. bias_N: TID_NONE where there is none. */
tid op_adapted_squares(struct tape *t, tid w, tid a, const tid *b, struct adapted_attrs at, const char *name);
tid op_magnitudes(struct tape *t, tid x_TN, tid s_M2, tid m_M, tid bias_N, struct adapted_attrs at, const char *name);
tid op_cast(struct tape *t, tid x, enum dtype to, const char *name);

#endif
