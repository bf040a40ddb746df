/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-token prediction (DeepSeek-V3, section 2.2): behind the model stand `depth` modules, one after the other.
 * Module k has, of each token, what the one before it made of it (of the first: what the head reads) and the token k
 * places ahead, and predicts the token after that with the model's own table of tokens and output matrix:
 *
 *   h_k = block_k(W_k [norm(embed(token ahead by k)), norm(h_(k-1))])     loss_k: logits of norm_k(h_k)
 *
 * Each loss is multiplied by weight / depth and is a mean over the tokens that the model's own loss is over, as in the
 * paper. What is ahead of each token is a field of its own, made where whole sequences are (engine/feed.c), so the
 * ranks of cp need no message for it. A token whose k places ahead are in another document, or behind the end, is not
 * trained there; it stands behind all that are, and no key of theirs.
 *
 * Order of the two halves of W, and that h_(k-1) has gone through the norm before the head, are as in the published
 * weights and who runs them. Parameters are those of a layer numbered behind the model's, with mtp.* beside them. */
#include "nn/layers.h"

void mtp_declare(struct declare_ctx *x, int layer, double std)
{
    int64_t D = x->c->hidden;
    enum param_init init = x->c->norm_plus_one ? INIT_ZEROS : INIT_ONES;
    struct declare gain = {init, 0, layer, over_stream(x->par), 0},
                   join = {INIT_NORMAL, std, layer, over_stream(x->par), 0};
    layer_declare(x, gain, 1, &D, "layers.%d.mtp.ahead_norm.weight", layer);
    layer_declare(x, gain, 1, &D, "layers.%d.mtp.stream_norm.weight", layer);
    layer_declare(x, join, 2, (int64_t[]){D, 2 * D}, "layers.%d.mtp.join.weight", layer);
    layer_declare(x, gain, 1, &D, "layers.%d.mtp.norm.weight", layer);
}

static tid normed(struct layer_ctx *x, tid h_TD, int layer, const char *name)
{
    return op_norm(x->t, h_TD, layer_param(x, 1, "layers.%d.mtp.%s.weight", layer, name), norm_of(x->c), name);
}

/* From what the head read to what the module's head reads. */
static tid module(struct layer_ctx *x, tid h_TD, tid ahead_T, int layer)
{
    tid e_TD = normed(x, embed_tokens(x, ahead_T), layer, "ahead_norm");
    tid both = op_join(x->t, e_TD, normed(x, h_TD, layer, "stream_norm"), "mtp.both");
    tid w = layer_param(x, 1, "layers.%d.mtp.join.weight", layer);
    return llama_block(x, layer_linear(x, both, w, TID_NONE, false, "mtp.join"), layer);
}

void mtp_record(struct layer_ctx *x, tid h_TD, uint64_t again)
{
    int64_t T = x->tokens, depth = x->c->mtp.depth, all = 2 * depth * T;
    struct spmd_type type = x->t->err.code ? (struct spmd_type){0} : tape_tensor(x->t, x->pos_T)->type;
    tid ahead = tape_input(x->t, "ahead", SLOT_AHEAD, DT_I32, 1, &all, type);
    for (int k = 0; k < depth; k++) {
        int layer = to_int(x->c->layers) + k;
        x->target_T = tape_rows(x->t, ahead, (2 * k + 1) * T, T);
        x->stat_slot = slot_ahead(x->params->n, to_int(model_blocks(x->c)), k);
        x->loss_times = (float)(x->c->mtp.weight / (double)depth);
        x->t->layer = layer;
        if (again) tape_recompute_begin(x->t, again);
        h_TD = module(x, h_TD, tape_rows(x->t, ahead, 2 * k * T, T), layer);
        if (again) tape_segment_end(x->t);
        x->t->layer = -1;
        h_TD = normed(x, h_TD, layer, "norm");
        head_record(x, h_TD, TID_NONE);
    }
}
