/* SPDX-License-Identifier: Apache-2.0 */
/* ViT (Dosovitskiy et al. 2021, "An image is worth 16x16 words"; class token, LayerNorm before each half): a picture is
 * a sequence of its patches, each one product away from the stream, behind a place for its class; positions are learnt,
 * attention goes both ways, and the class is read off the first place (or off the mean of the patches).
 *
 *   x = [class; patches W^T + b] + positions        blocks as GPT-2's, without a mask
 *   logits = head LayerNorm(pool(x))                loss: cross-entropy of the label, mean over labelled pictures
 *
 * What is added to a row beside its product (the class, or b) is looked up by the row's kind in a table of two rows, so
 * that no row of the stream is moved. The stream's rows lie over cp and tp as a text's do; any number of patches is
 * legal. The head is small (a row per picture): all ranks of tp do the same, those of cp share the pictures out. */
#include <math.h>

#include "nn/layers.h"

static struct plain_block as_vit(const struct model_config *c)
{
    return (struct plain_block){c->qkv_bias, c->act ? ACT_GELU : ACT_GELU_ERF};
}

static void declare(struct declare_ctx *x)
{
    const struct model_config *c = x->c;
    double std = 0.02, std_out = 0.02 / sqrt(2.0 * c->layers);
    int64_t patch[2] = {c->hidden, c->channels * c->patch_size * c->patch_size},
            places[2] = {model_places(c), c->hidden}, head[2] = {c->classes, c->hidden};
    struct declare drawn = {INIT_NORMAL, std, -1, over_stream(x->par), 0},
                   zeros = {INIT_ZEROS, 0, -1, over_stream(x->par), 0};
    layer_declare(x, drawn, 2, patch, "embed.patch.weight");
    layer_declare(x, drawn, 1, &c->hidden, "embed.class");      /* kind 0 of the table of two rows, */
    layer_declare(x, zeros, 1, &c->hidden, "embed.patch.bias"); /* kind 1 */
    layer_declare(x, drawn, 2, places, "embed.position");
    for (int l = 0; l < c->layers; l++) plain_declare(x, l, as_vit(c), std, std_out);
    plain_declare_norm(x, -1, SPMD_I, "norm"); /* behind the pool: whole on every rank of tp */
    layer_declare(x, (struct declare){INIT_NORMAL, std, -2, SPMD_I, 0}, 2, head, "head.weight");
    layer_declare(x, (struct declare){INIT_ZEROS, 0, -2, SPMD_I, 0}, 1, &c->classes, "head.bias");
}

static struct picture_rows rows_here(const struct layer_ctx *x)
{
    return par_picture_rows(x->par, x->s->batch, model_places(x->c));
}

static tid embed(struct layer_ctx *x, tid pixels)
{
    const struct model_config *c = x->c;
    struct patches_attrs a = {rows_here(x), c->channels, c->image_size, c->patch_size};
    tid patch[3]; /* the patches, places, kinds */
    par_patches(x->t, x->par, pixels, a, x->s->dtype, true, "patches", patch);
    tid h_TD = layer_linear(x, patch[0], layer_param(x, 1, "embed.patch.weight"), TID_NONE, false, "embed.patch");
    tid kind_TD = op_embed(x->t, patch[2], layer_rows(x, 2, "embed.class"), (struct vocab_attrs){0}, "embed.kind");
    tid place_TD =
        op_embed(x->t, patch[1], layer_param(x, 1, "embed.position"), (struct vocab_attrs){0}, "embed.position");
    h_TD = op_add(x->t, op_add(x->t, h_TD, kind_TD, 0, 0, TID_NONE, "embed.kinds"), place_TD, 0, 0, TID_NONE, "embed");
    return op_dropout(x->t, h_TD, (float)c->dropout, dropout_stream("embed", 0), x->index_T, "embed.dropout");
}

static tid block(struct layer_ctx *x, tid h_TD, int l) { return plain_block(x, h_TD, l, as_vit(x->c)); }

/* One row for each picture; over cp the pictures are shared out. */
static tid pooled(struct layer_ctx *x, tid h_TD)
{
    tid y_BD = op_pool(x->t, h_TD, (struct pool_attrs){rows_here(x), (enum pool_kind)x->c->pool}, "pool");
    if (x->par->sequence) y_BD = par_reduce(x->t, x->par, y_BD, AXIS_TP);
    return par_scatter(x->t, x->par, y_BD, AXIS_CP);
}

static tid norm(struct layer_ctx *x, tid h_TD) { return plain_norm(x, pooled(x, h_TD), "norm", "norm"); }

static void head(struct layer_ctx *x, tid h_TD)
{
    tid n_BD = norm(x, h_TD), w = layer_param(x, 1, "head.weight"), b = layer_param(x, 1, "head.bias");
    if (x->s->mode == MODEL_LOGITS) {
        tid logits = op_cast(x->t, layer_linear(x, n_BD, w, b, false, "logits"), DT_F32, "logits32");
        tape_bind(x->t, logits, SLOT_LOGITS);
        return;
    }
    tid label_B = par_rows(x->t, x->par, x->target_T, AXIS_CP);
    tape_segment_begin(x->t, SEGMENT_LOSS);
    op_xent_right(x->t, layer_linear(x, n_BD, w, b, false, "logits"), label_B, SLOT_STAT, "loss");
    tape_segment_end(x->t);
}

const struct blocks blocks_vit = {false, declare, embed, block, norm, head};
