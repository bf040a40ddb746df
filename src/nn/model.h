/* SPDX-License-Identifier: Apache-2.0 */
/* nn/model.h: models as tables of parameters and tapes of operations. A model knows no transport, no schedule, no
 * optimizer; layers get plain values, not the config. Which numbers there are is model/numbers.def's.
 *
 *   model_declare   which parameters there are (names, global shapes, initial values, mesh types)
 *   model_record    what one stage does with one microbatch: layers [first, end), embedding before 0, head after the
 *                   last
 *
 * Names of parameters (also in checkpoints):
 *   embed.token [V,D], embed.position [P,D] (gpt2)
 *   layers.N.norm1.weight (.bias), norm1_after.weight (of what comes out)
 *   layers.N.attn.{q,k,v}.weight (.bias), attn.{q,k}_norm.weight, attn.o.weight (.bias)
 *   layers.N.attn.{q_a,q_a_norm,q_b | q, kv_a, kv_a_norm, k_rope, kv_b}.weight (latent attention)
 *   layers.N.norm2.weight (.bias), norm2_after.weight
 *   layers.N.mlp.{gate,up}.weight (.bias), mlp.down.weight (.bias)
 *   layers.N.moe.router.weight [E,D] (.bias [E]: shifts the choice only)
 *   layers.N.moe.experts.E.{gate,up,down}.weight, moe.shared.{gate,up,down}.weight
 *   layers.N.mtp.{ahead_norm,stream_norm,join,norm}.weight (of a module behind the layers, beside its block)
 *   norm.weight (.bias), head.weight [V,D] (absent when tied), or of a reward model score.weight [1,D]
 *   mamba2:      layers.N.norm1.weight, layers.N.ssm.{z,x,b,c,dt}.weight (.bias), ssm.conv_{x,b,c}.weight [channels,K]
 *                (.bias), ssm.{decay,step,skip} [heads], ssm.norm.weight, ssm.out.weight (.bias)
 *   nemotron_h:  layers.N.norm1.weight, and by what the layer is ssm.* as mamba2, attn.* without biases, or
 *                mlp.{up,down}.weight
 *   vit:         embed.patch.weight [D, C P P], embed.class [D], embed.patch.bias [D], embed.position [places,D],
 *                head.weight [classes,D] (.bias)
 *   t5:          encoder.N.* as layers.N.*, which are the decoder's; layers.N.norm_cross.weight,
 *                layers.N.cross.{q,k,v,o}.weight; embed.{encoder,decoder}_bias [buckets, heads], encoder_norm.weight
 *   bert:        embed.segment [types,D], embed.norm.weight (.bias), head.transform.weight [D,D] (.bias), then
 *                head.norm.weight (.bias) and head.bias [V], or head.weight [classes,D] (.bias)
 * Floors 0-4 (model, tape, parallel, state). Order: Same(mesh).
 */
#ifndef TUTTI_NN_MODEL_H
#define TUTTI_NN_MODEL_H

#include "nn/recompute.h"
#include "parallel/expert.h"
#include "model/batch_fields.h"
#include "model/numbers.h"
#include "parallel/parallel.h"
#include "state/param.h"
#include "tape/tape.h"

/* Whether the numbers fit together; the error names the key and the nearest legal value. */
int model_check(const struct model_config *c, struct err *e);
/* par: this rank's place, which says which box of each parameter it holds; NULL: one rank, all of it. */
void model_declare(const struct model_config *c, const struct par *par, struct param_table *t);

double model_adapter_times(const struct adapter *a); /* what its sum is multiplied by */
/* Whether the adapters that c asks for can be had; t: declared. */
int model_check_adapter(const struct model_config *c, const struct param_table *t, struct err *e);

/* Slots of a tape's externals. Parameters follow: values at SLOT_PARAM + 2 i, gradients one later. Layers are
 * counted with those of modules behind them (model_blocks). Caches of layer l
 * (decoding only) lie at slot_cache(n_params, l), keys then values; of a state space the last rows that its convolution
 * saw, then its states. */
enum {
    SLOT_BATCH, /* the batch's fields, in their order (model/batch_fields.h) */
    SLOT_TOKENS = SLOT_BATCH + BATCH_TOKENS,
    SLOT_TARGETS = SLOT_BATCH + BATCH_TARGETS,
    SLOT_POSITIONS = SLOT_BATCH + BATCH_POSITIONS,
    SLOT_DOCS = SLOT_BATCH + BATCH_DOCUMENTS,
    SLOT_PIXELS = SLOT_BATCH + BATCH_PIXELS,
    SLOT_LABEL = SLOT_BATCH + BATCH_LABEL,
    SLOT_SEGMENTS = SLOT_BATCH + BATCH_SEGMENTS,
    SLOT_FACTOR = SLOT_BATCH + BATCH_FACTOR,
    SLOT_PATCHES = SLOT_BATCH + BATCH_PATCHES,
    SLOT_ROPE = SLOT_BATCH + BATCH_FIELDS,
    SLOT_STAT,
    SLOT_AHEAD, /* i32 [2 depth, tokens]: of each depth the tokens so many places ahead, then their next ones */
    SLOT_ORDER, /* i32 [whole sequences' tokens]: which token of its sequence stands at each place */
    SLOT_INDEX, /* i32 [tokens]: which token of the microbatch each row is, where rows are sharded */
    SLOT_LOGITS,
    SLOT_STAGE_IN,   /* activations from the stage before, [tokens, hidden] in the compute dtype */
    SLOT_STAGE_DIN,  /* their gradient, for that stage */
    SLOT_STAGE_OUT,  /* activations for the stage after */
    SLOT_STAGE_DOUT, /* their gradient, from that stage */
    SLOT_PARAM
};
static inline int slot_param(int i) { return SLOT_PARAM + 2 * i; }
static inline int slot_grad(int i) { return SLOT_PARAM + 2 * i + 1; }
static inline int slot_cache(int n_params, int layer) { return SLOT_PARAM + 2 * n_params + 2 * layer; }
/* Balance of a layer's router, f64: {balance loss, z loss, picks of each expert}, sums over trained tokens. */
static inline int slot_balance(int n_params, int n_layers, int layer) { return slot_cache(n_params, n_layers) + layer; }
/* Largest values of this step, and what scales follow from (tape/recipe.h): two. */
static inline int slot_recipe(int n_params, int n_layers) { return slot_balance(n_params, n_layers, n_layers); }
/* Behind three of recipes: sums of the loss of module k, f64[2]. */
static inline int slot_ahead(int n_params, int n_layers, int k) { return slot_recipe(n_params, n_layers) + 3 + k; }
static inline int64_t balance_numel(const struct model_config *c) { return c->moe.experts ? c->moe.experts + 2 : 0; }
/* Whether the model reads a field of the batch. */
static inline bool model_takes(const struct model_config *c, enum batch_field f)
{
    if (model_looks(c) && (f == BATCH_PIXELS || f == BATCH_PATCHES)) return true;
    if (f == BATCH_PATCHES) return false;
    if (model_sees(c) || f == BATCH_PIXELS || f == BATCH_LABEL)
        return model_sees(c) && (f == BATCH_PIXELS || f == BATCH_LABEL);
    if (f == BATCH_FACTOR) return c->by_token;
    if (f == BATCH_SEGMENTS) return model_encodes(c);
    return f != BATCH_DOCUMENTS || c->document_mask;
}
/* Whether a layer has to know which token of its sequence stands at each place, where they are in another order: a
 * window reaches back so many tokens. */
static inline bool model_wants_order(const struct model_config *c) { return model_decodes(c) && c->attn.window > 0; }
/* The router sees a part of the microbatch's tokens on each rank of tp. */
static inline bool model_tokens_split(const struct par *p) { return p->sequence || par_experts_apart(p); }
enum model_mode {
    MODEL_TRAIN,  /* loss, with what backward needs; evaluation lowers the same tape without backward */
    MODEL_DECODE, /* keys and values go to caches; recorded by model_record_decode (nn/decode.h) */
    MODEL_LOGITS, /* logits of all tokens, fp32, to SLOT_LOGITS (tests, scoring) */
};
/* A stage of a pipeline: layers [first, end), the embedding before them, the head and the loss after them. */
struct model_stage {
    int first, end;
    bool embeds, heads;
};
struct model_shape {
    enum model_mode mode;
    enum dtype dtype; /* of activations and compute parameters */
    /* Of the microbatch, whole sequences (cp takes its rows of each); decoding: batch 1, seq new tokens. */
    int64_t batch, seq;
    int64_t cache_rows; /* decoding: room for this many positions */
    int64_t loss_rows;  /* tokens per chunk of the head and loss; 0: all at once */
    bool reordered;     /* tokens of documents stand in another order (layout/document_order.h) */
    struct recompute recompute;
    struct expert_room experts;      /* of dispatched rows; all zero: for the worst choice */
    const struct model_stage *stage; /* NULL: the whole model */
};
/* Records what one stage does with one microbatch: the tokens or what lies at SLOT_STAGE_IN, through its layers, to the
 * loss or SLOT_STAGE_OUT. Check tape_status afterwards. */
void model_record(struct tape *t, const struct model_config *c, const struct param_table *p, const struct par *par,
                  const struct model_shape *s);

/* Whether a stage uses a parameter; a tied embedding is used by the first and by the last. */
bool model_stage_uses(const struct model_config *c, const struct model_stage *s, const struct param *p);
/* What each layer, the embedding and the head take of a step, relative to each other: FLOPs of matrix products.
 * layer [layers]. */
void model_costs(const struct model_config *c, int64_t seq, double *layer, double *embed, double *head);
/* Columns of the table of rotary angles; 0: the family has none. */
int64_t model_rope_cols(const struct model_config *c);
/* Whether the table has two angles for each position: those of texts of at most rope_scaling.original_max_position
 * tokens, and max_positions rows behind them those of longer ones. Else those that model.seq_len wants. */
static inline bool model_turns_by_length(const struct model_config *c) { return c->by_length && model_long_rope(c); }
/* Rows of it: max_positions, and as many again where local layers have another base, or angles go by length. */
int64_t model_rope_rows(const struct model_config *c);
/* cos and sin of the rotary angles, row p: cols/2 cosines, then cols/2 sines. out [model_rope_rows, cols]. */
void model_rope_table(const struct model_config *c, float *out);

#endif
