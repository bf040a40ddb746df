/* SPDX-License-Identifier: Apache-2.0 */
/* The head: what the last of the stream becomes. Logits of the next token, or a score; in training their loss. */
#include "nn/layers.h"

/* By itself: its gradient is there after the forward pass, the norm's before it only after the backward. */
void head_declare(struct declare_ctx *x)
{
    const struct model_config *c = x->c;
    struct declare head = {INIT_NORMAL, 0.02, -2, c->scores ? SPMD_I : over_vocab(x->par), 0};
    int64_t n[2] = {model_outputs(c), c->hidden};
    if (c->scores) layer_declare(x, head, 2, n, "score.weight");
    else if (!c->tie_embeddings) layer_declare(x, head, 2, n, "head.weight");
}

static tid record_logits(struct layer_ctx *x, tid h_CD, tid w_VD, tid b_V)
{
    tid logits_CV = layer_linear(x, h_CD, w_VD, b_V, false, "logits");
    bool capped = model_decodes(x->c) && x->c->logit_cap > 0;
    return capped ? op_cap(x->t, logits_CV, (float)x->c->logit_cap, "logits.cap") : logits_CV;
}

/* Nats of a chunk of tokens; over tp each rank has the logits of its part of the vocabulary, and only three numbers per
 * token travel. */
static void record_chunk(struct layer_ctx *x, tid h_CD, tid w_VD, tid b_V, int64_t row, int64_t n)
{
    int slot = x->stat_slot;
    tid logits_CV = record_logits(x, h_CD, w_VD, b_V), target_C = tape_rows(x->t, x->target_T, row, n);
    bool each = x->c->by_token;
    tid factor_C = each ? tape_rows(x->t, x->factor_T, row, n) : TID_NONE;
    struct vocab_attrs v = {0};
    if (x->par->size[AXIS_TP] == 1) {
        v.each = x->tokens;
        v.at = row;
        if (each) op_xent_each(x->t, logits_CV, target_C, TID_NONE, factor_C, v, slot, "loss");
        else op_xent_times(x->t, logits_CV, target_C, x->loss_times, slot, "loss");
        return;
    }
    v = vocab_here(x->c, x->par);
    v.times = x->loss_times;
    tid stats_C3 = op_xent_part(x->t, logits_CV, target_C, v, "loss.part");
    int64_t rows = x->t->err.code ? 0 : tensor_rows(tape_tensor(x->t, stats_C3)) * v.n_parts;
    tid stats_N3 = par_collect(x->t, x->par, stats_C3, AXIS_TP, rows);
    if (!each) {
        op_xent_join(x->t, logits_CV, target_C, stats_N3, v, slot, "loss");
        return;
    }
    v.each = x->tokens;
    v.at = row;
    op_xent_each(x->t, logits_CV, target_C, stats_N3, factor_C, v, slot, "loss");
}

/* A reward model's head, the same on every rank of tp. */
static tid record_scores(struct layer_ctx *x, tid h_TD)
{
    return layer_linear(x, h_TD, layer_param(x, 1, "score.weight"), TID_NONE, false, "score");
}

/* Every token has a score; those of targets count. */
static void record_score_loss(struct layer_ctx *x, tid h_TD)
{
    if (x->par->sequence) h_TD = par_collect(x->t, x->par, h_TD, AXIS_TP, x->tokens);
    tape_segment_begin(x->t, SEGMENT_LOSS);
    op_score(x->t, record_scores(x, h_TD), x->target_T, x->stat_slot, "loss");
    tape_segment_end(x->t);
}

/* Head and loss in chunks of rows: logits live for one chunk, forward and backward at once. */
static void record_loss(struct layer_ctx *x, tid h_TD, tid w_VD, tid b_V)
{
    int64_t tokens = x->tokens;
    int64_t chunk = x->s->loss_rows > 0 && x->s->loss_rows < tokens ? x->s->loss_rows : tokens;
    if (x->par->size[AXIS_TP] > 1) h_TD = region_enter(x, h_TD);
    for (int64_t row = 0; row < tokens; row += chunk) {
        int64_t n = tokens - row < chunk ? tokens - row : chunk;
        tape_segment_begin(x->t, SEGMENT_LOSS);
        record_chunk(x, tape_rows(x->t, h_TD, row, n), w_VD, b_V, row, n);
        tape_segment_end(x->t);
    }
}

void head_record(struct layer_ctx *x, tid h_TD, tid b_V)
{
    bool scores = x->c->scores, trains = x->s->mode == MODEL_TRAIN;
    if (scores && trains) {
        record_score_loss(x, h_TD);
        return;
    }
    tid w_VD = scores ? TID_NONE : layer_param(x, 1, "%s", x->c->tie_embeddings ? "embed.token" : "head.weight");
    if (trains) {
        record_loss(x, h_TD, w_VD, b_V);
        return;
    }
    if (x->s->mode == MODEL_DECODE) {
        tid wanted_R = tape_input(x->t, "wanted", SLOT_WANTED, DT_I32, 1, &x->decode->wanted, type_tokens(SPMD_V));
        h_TD = op_embed(x->t, wanted_R, h_TD, (struct vocab_attrs){0}, "wanted");
        if (x->par->size[AXIS_TP] > 1 && !scores) h_TD = par_enter(x->t, x->par, h_TD, AXIS_TP);
    }
    tid logits = scores ? record_scores(x, h_TD) : record_logits(x, h_TD, w_VD, b_V);
    if (x->t->err.code) return;
    if (x->s->dtype != DT_F32) logits = op_cast(x->t, logits, DT_F32, "logits32");
    tape_bind(x->t, logits, SLOT_LOGITS);
}
