/* SPDX-License-Identifier: Apache-2.0 */
/* layers.h: what the layers of the families share; private to nn/.
 *
 * Shape letters: T tokens of the microbatch, D hidden, H query heads, G key/value heads, A head size, F ffn width,
 * V vocabulary, P positions, C a chunk of tokens.
 */
#ifndef TUTTI_NN_LAYERS_H
#define TUTTI_NN_LAYERS_H

#include "nn/decode.h"

/* Layers of parameters of a tower before the model: this, and below it (state/param.h: neighbours are units). */
enum { LAYER_TOWER = -3 };

/* Of encoder and decoder (t5.c): what one stack has while the other's layers are recorded. */
struct pair_streams {
    tid encoder_bias, decoder_bias; /* by head and distance */
    tid decoder_ND, decoder_index;  /* its embedded tokens, and which of the step's they are */
    tid memory_MD;                  /* what the encoder made, inside of the region that tp splits */
    tid place_M;                    /* of what the encoder reads: negative where nothing is; TID_NONE: all is there */
};

struct layer_ctx {
    struct tape *t;
    const struct model_config *c;
    const struct param_table *params;
    const struct par *par;
    const struct model_shape *s;
    int64_t tokens; /* of the microbatch on this rank: its rows of every sequence */
    tid *param_tid; /* by parameter, -1 not on the tape yet */
    tid pos_T, doc_T, target_T, factor_T, segment_T, rope_PA;
    tid token_W;         /* which token of its sequence stands at each place; TID_NONE: they are in order */
    tid patch_T, pixels; /* of texts with pictures */
    struct pair_streams pair;
    int stat_slot;                     /* where the loss recorded now adds its sums, */
    float loss_times;                  /* and what its gradient is multiplied by; 0: it is not */
    tid near_rope_PA;                  /* the angles of local layers; TID_NONE: as the others */
    tid runs_SX, reads_SX;             /* decoding: whose rows are whose (kernel/cache_runs.h); what of it was read */
    const struct decode_shape *decode; /* NULL: not decoding */
    const char *prefix;                /* of the names of parameters: "vision." in the tower (vision.c), else "" */
    tid index_T; /* which token each row of the stream is, for dropout; TID_NONE: rows are tokens in order */
};

/* Where rows of the table of parameters go, and this rank's place, which says what it holds of each. */
struct declare_ctx {
    const struct model_config *c;
    const struct par *par;
    struct param_table *t;
    const char *prefix; /* as layer_ctx's */
};

/* What computes a family (BLOCKS of model/families.def). */
struct blocks {
    bool uses_rope;
    void (*declare)(struct declare_ctx *x);
    tid (*embed)(struct layer_ctx *x, tid ids_T);
    tid (*block)(struct layer_ctx *x, tid h_TD, int layer);
    tid (*norm)(struct layer_ctx *x, tid h_TD);
    void (*head)(struct layer_ctx *x, tid h_TD); /* NULL: the next token of each; else instead of norm, to the loss */
};
#define BLOCKS(id, code) extern const struct blocks blocks_##code;
#include "model/families.def"

const struct blocks *blocks_of(const struct model_config *c); /* model.c */

/* layers.c: a parameter as a tensor, its name printf-style; span > 1: this and the following ones as one matrix (rows
 * one after the other). */
tid layer_param(struct layer_ctx *x, int span, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Vectors that follow each other as the rows of a matrix. */
tid layer_rows(struct layer_ctx *x, int span, const char *name);
/* A layer's product with a matrix of the model, and what its adapters add (adapter.h). */
tid layer_linear(struct layer_ctx *x, tid h, tid w, tid bias, bool bias_off, const char *name);
tid layer_grouped(struct layer_ctx *x, tid h, tid w, tid rows_E, int64_t expected, const char *name);
/* in_codes.c: which matrices of the table w, a tensor of layer_param's, is made of: one after the other, as often as
 * there are experts (rows_E; TID_NONE: it is none of experts). */
struct matrices {
    int first, n, times; /* n of an expert, or of all; experts, or 1 */
};
struct matrices matrices_of(const struct layer_ctx *x, tid w, tid rows_E);
/* in_codes.c: the same of a matrix that is kept in few bits, when decoding; TID_NONE: w is none. */
tid coded_record(struct layer_ctx *x, tid h, tid w, tid bias, bool bias_off, tid rows_E, int64_t expected,
                 const char *name);
/* A row of the table of parameters: initial values are normal with `std`, or all zeros or ones. over_tp: S0 or S1, the
 * dim that tp splits, in whole units; I, the same on all ranks; R, the same, but each rank's gradient is only a part of
 * the sum. */
struct declare {
    enum param_init init;
    double std;
    int layer;
    enum spmd over_tp;
    int64_t unit; /* indices of the dim that tp splits which stay together (a head's, a group's); 0: 1 */
};
struct share {
    int64_t lo, hi;
};
void layer_declare(struct declare_ctx *x, struct declare d, int nd, const int64_t *n, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* rotary.c: whether there can be such angles; and their table onto the tape, to x->rope_PA. */
int rotary_check(const struct model_config *c, struct err *e);
void rotary_record(struct layer_ctx *x);
/* What yarn multiplies the angles' cosines and sines with, and the scores of attention. */
double yarn_angles(const struct model_config *c);
double yarn_scores(const struct model_config *c);

/* size.c: sizes that can be counted and held in a table; c has passed the other checks. */
int model_check_size(const struct model_config *c, struct err *e);

/* Parameters used on the residual stream itself: norms, positions. Where the stream's tokens are sharded (sequence
 * parallelism) each rank's gradient is a part of the sum. */
static inline enum spmd over_stream(const struct par *p) { return p->sequence ? SPMD_R : SPMD_I; }

/* Of what there is of each token: tokens differ along the data axes, and cp shares out those of every sequence;
 * everything else is the same on every rank. */
struct spmd_type type_tokens(enum spmd over_cp);

/* The table of tokens is shared out over tp by vocabulary: its rows on this rank, and how embedding and head use it. */
struct vocab_attrs vocab_here(const struct model_config *c, const struct par *p);
enum spmd over_vocab(const struct par *p);        /* S0, or I on one rank */
tid embed_tokens(struct layer_ctx *x, tid ids_T); /* onto the stream */

/* The way into and out of a region that tp splits, and how the stream lies outside of it: whole on every rank (enter,
 * reduce), or sharded over tokens (gather, scatter). */
tid region_enter(struct layer_ctx *x, tid h_TD);
tid region_leave(struct layer_ctx *x, tid partial_TD);

/* The heads of this rank: query heads [lo, hi) and the key heads they read. Key heads are split along tp while there is
 * one for every rank, and query heads then go in the groups that read one; else all ranks hold all key heads. */
struct heads {
    struct share q, kv;
    bool kv_split;
    int64_t together; /* query heads that stay together */
};
struct heads heads_here(const struct model_config *c, const struct par *p);

/* attention.c: q, k, v projections as one matrix, their norms, rotary where the layer turns, attention, output
 * projection; prefix is "layers.N.attn". Returns the projected output, summed over tp. */
struct attention_kind {
    bool qkv_bias, o_bias; /* the products that have one */
    enum qk_norm norm;
};
struct attention_kind attention_of(const struct model_config *c); /* as model.attn says: of llama.c's blocks */
tid attention_record(struct layer_ctx *x, tid h_TD, int layer, struct attention_kind kind);
void attention_declare(struct declare_ctx *x, int layer, struct attention_kind kind, double std, double std_out);
/* A norm of the root of squares, as the model's are. */
struct norm_attrs norm_of(const struct model_config *c);
/* mla.c: latent attention instead. */
tid mla_record(struct layer_ctx *x, tid h_TD, int layer);
void mla_declare(struct declare_ctx *x, int layer, double std, double std_out);
/* mamba.c: a state space, from what is normalised to what is added to the stream. */
void mamba_declare(struct declare_ctx *x, int layer, double std, double std_out);
tid mamba_record(struct layer_ctx *x, tid h_TD, int layer);
/* mlp.c: gate, up, down with the model's gate; prefix is "layers.N.mlp". Takes what region_enter gives, returns a
 * partial sum. */
void mlp_declare(struct declare_ctx *x, int layer, const char *name, int64_t ffn, bool bias, double std,
                 double std_out);
tid mlp_record(struct layer_ctx *x, tid h_TD, int layer, const char *name, bool bias);
/* The two halves of mlp_record: gate and up, then down. moe.c records its experts between them. */
tid mlp_up(struct layer_ctx *x, tid h_TD, int layer, const char *name, bool bias);
tid mlp_down(struct layer_ctx *x, tid a_TF, int layer, const char *name, bool bias);
tid gate_act(struct layer_ctx *x, tid z_T2F, const char *prefix); /* prefix: of the activation's name */
/* moe.c: experts instead, from the stream to the stream. */
void moe_declare(struct declare_ctx *x, int layer, double std, double std_out);
tid moe_record(struct layer_ctx *x, tid h_TD, int layer);
/* gpt2.c: a block with LayerNorm before each half and an MLP of two products with biases, as GPT-2 and ViT have it. */
struct plain_block {
    bool qkv_bias;
    enum act_kind act;
};
void plain_declare_norm(struct declare_ctx *x, int layer, enum spmd over_tp, const char *prefix);
void plain_declare(struct declare_ctx *x, int layer, struct plain_block b, double std, double std_out);
tid plain_norm(struct layer_ctx *x, tid h_TD, const char *prefix, const char *label);
tid plain_block(struct layer_ctx *x, tid h_TD, int layer, struct plain_block b);
tid plain_mlp(struct layer_ctx *x, tid h_TD, int layer, enum act_kind act); /* its second half: from stream to stream */
/* head.c: the table of tokens as output matrix (or head.weight) and the loss of x->target_T, or the logits; b_V:
 * TID_NONE: it has no bias. */
void head_record(struct layer_ctx *x, tid h_TD, tid b_V);
/* Of a decoder: head.weight, where it is not the table of tokens, or a reward model's score.weight. */
void head_declare(struct declare_ctx *x);
/* mtp.c: the modules that predict further tokens; h_TD: what the head reads; again: nn/recompute.h. */
void mtp_declare(struct declare_ctx *x, int layer, double std);
void mtp_record(struct layer_ctx *x, tid h_TD, uint64_t again);
/* llama.c: a block of attention, MLP or experts, and norms around them. */
void llama_declare(struct declare_ctx *x);
tid llama_embed(struct layer_ctx *x, tid ids_T);
tid llama_block(struct layer_ctx *x, tid h_TD, int layer);
tid llama_norm(struct layer_ctx *x, tid h_TD);
/* vision.c: what a model that has pictures in its texts has more than its decoder. */
void vision_declare(struct declare_ctx *x);
/* The pictures' patches as rows of the stream, of every sequence as many; then in the places of the text that are
 * theirs. */
tid vision_rows(struct layer_ctx *x, tid pixels);
tid vision_insert(struct layer_ctx *x, tid h_TD, tid rows_RD);
/* Of a picture: what its tower takes, as model_costs counts. */
double vision_cost(const struct model_config *c);
int vision_check(const struct model_config *c, struct err *e);
/* t5.c: from the encoder's stream to the decoder's, before the decoder's first layer. */
tid pairs_between(struct layer_ctx *x, tid h_TD);
/* The whole encoder over one text, and what the decoder's layers take of it, to their slots (decode.h). */
void pairs_read(struct layer_ctx *x, tid ids_T);
/* Of a layer, per token of a sample, as model_costs counts. */
double pairs_layer_cost(const struct model_config *c, int64_t seq, int layer);
/* Attention between q, k and v of this rank's heads, through the caches when decoding; scale 0: 1 / sqrt(head_dim). */
tid attention_between(struct layer_ctx *x, tid q, tid k, tid v, int layer, double scale);
/* The random stream of a dropout, from where it stands. */
uint64_t dropout_stream(const char *what, int layer);

#endif
