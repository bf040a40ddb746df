/* SPDX-License-Identifier: Apache-2.0 */
/* decode.h: recording a model that goes on with several sequences whose keys and values are in pages.
 *
 * What a step reads beside tokens and positions: SLOT_RUNS, i32 [sequences, RUN_PAGES + most], whose rows are whose
 * (kernel/cache_runs.h), and SLOT_WANTED, i32 [wanted], the rows whose logits go, in fp32, to SLOT_LOGITS
 * [wanted, vocabulary]. Keys and values of layer l lie at slot_cache(n_params, l) and one later, [rows, key heads *
 * head size] in the compute dtype.
 * Of encoder and decoder (t5) a step is the decoder's, and SLOT_READS, as SLOT_RUNS, says where the keys and values of
 * what the encoder made lie, in the same caches: of a run RUN_PAST of them, in pages of their own.
 * Floors as model.h. Order: Same(mesh).
 */
#ifndef TUTTI_NN_DECODE_H
#define TUTTI_NN_DECODE_H

#include "nn/model.h"

/* Slots that training uses for what decoding has not. */
enum { SLOT_RUNS = SLOT_DOCS, SLOT_WANTED = SLOT_INDEX, SLOT_READS = SLOT_SEGMENTS };

struct decode_shape {
    enum dtype dtype;
    int64_t tokens, wanted;          /* rows of a step; those whose logits are wanted: over tp each rank has the
                                        logits of its part of the vocabulary */
    int64_t cache_rows;              /* of a layer's keys */
    int64_t sequences, most;         /* in a step; pages that one may have */
    int64_t pictures;                /* rows that pictures are, of a model that has them in its texts */
    const struct model_stage *stage; /* NULL: the whole model */
};
/* Matrices in few bits (state/packed.h): codes at slot_param, scales at slot_grad, and here the scales of scales. */
static inline int slot_groups(int n_params, int layers, int i) { return slot_cache(n_params, layers) + i; }
/* Records a step. Check tape_status afterwards. */
void model_record_decode(struct tape *t, const struct model_config *c, const struct param_table *p,
                         const struct par *par, const struct decode_shape *s);

/* What pictures in texts become, c->vision.images of them at SLOT_PIXELS: rows of the stream at SLOT_LOGITS, in dtype,
 * which a step takes at SLOT_PIXELS, and at SLOT_PATCHES, i32 [tokens], which of them each token is, or -1. */
void model_record_pictures(struct tape *t, const struct model_config *c, const struct param_table *p,
                           const struct par *par, enum dtype dtype);

/* What the encoder makes of one text of n tokens at SLOT_TOKENS: keys and values of each of the decoder's layers l, at
 * slot_cache(n_params, l) and one later, [n, heads * head size] in dtype. Of a model of encoder and decoder. */
void model_record_reading(struct tape *t, const struct model_config *c, const struct param_table *p,
                          const struct par *par, enum dtype dtype, int64_t n);

/* Columns of a layer's keys on a rank of tp, and of its values: those of its heads. */
int64_t model_cache_cols(const struct model_config *c, const struct par *par);

#endif
