/* SPDX-License-Identifier: Apache-2.0 */
/* BERT (Devlin et al. 2019): an encoder of text. Tokens, learnt positions and kinds of segments are added and
 * normalised; every place sees the whole sequence (with model.document_mask its document), and LayerNorm comes behind
 * each half of a block:
 *
 *   h = LayerNorm(h + attention(h))      h = LayerNorm(h + down gelu up h)
 *
 * Two heads, of which a model has one. Masked tokens (model.classes: none): logits = E LayerNorm(gelu(W h + b)) + c, E
 * the table of tokens where it is tied. Classes: logits = C dropout(tanh(W h + b)) + c, read where there is a target,
 * which is the first place of a text; a target at each token works as well. The first products of both are done at
 * every place, so that no row moves between ranks: 1 / 12 of a layer's work.
 *
 * Over tp the head of classes is the same on every rank, and that of tokens is cut by vocabulary, its bias with it. */
#include <stdio.h>

#include "nn/layers.h"

enum { HEAD = -2 }; /* what the loss's segment has gradients of (gpt2.c) */

static const struct attention_kind biased = {true, true, QK_NORM_NONE};

static void matrix(struct declare_ctx *x, int layer, enum spmd rows, enum spmd bias, int64_t out, int64_t in,
                   const char *name)
{
    layer_declare(x, (struct declare){INIT_NORMAL, 0.02, layer, rows, 0}, 2, (int64_t[]){out, in}, "%s.weight", name);
    layer_declare(x, (struct declare){INIT_ZEROS, 0, layer, bias, 0}, 1, &out, "%s.bias", name);
}

static void declare_head(struct declare_ctx *x)
{
    const struct model_config *c = x->c;
    enum spmd stream = over_stream(x->par), vocab = over_vocab(x->par);
    struct declare table = {INIT_NORMAL, 0.02, HEAD, vocab, 0};
    if (c->classes) {
        matrix(x, -1, stream, stream, c->hidden, c->hidden, "head.transform");
        matrix(x, HEAD, SPMD_I, SPMD_I, c->classes, c->hidden, "head");
        return;
    }
    matrix(x, -1, stream, stream, c->hidden, c->hidden, "head.transform");
    plain_declare_norm(x, -1, stream, "head.norm");
    if (!c->tie_embeddings) layer_declare(x, table, 2, (int64_t[]){c->vocab, c->hidden}, "head.weight");
    table.init = INIT_ZEROS;
    layer_declare(x, table, 1, &c->vocab, "head.bias");
}

static void declare_block(struct declare_ctx *x, int l)
{
    const struct model_config *c = x->c;
    char name[32];
    attention_declare(x, l, biased, 0.02, 0.02);
    snprintf(name, sizeof name, "layers.%d.norm1", l);
    plain_declare_norm(x, l, over_stream(x->par), name);
    snprintf(name, sizeof name, "layers.%d.mlp.up", l);
    matrix(x, l, SPMD_S0, SPMD_S0, c->ffn, c->hidden, name);
    snprintf(name, sizeof name, "layers.%d.mlp.down", l);
    matrix(x, l, SPMD_S1, SPMD_I, c->hidden, c->ffn, name);
    snprintf(name, sizeof name, "layers.%d.norm2", l);
    plain_declare_norm(x, l, over_stream(x->par), name);
}

static void declare(struct declare_ctx *x)
{
    const struct model_config *c = x->c;
    struct declare table = {INIT_NORMAL, 0.02, -1, over_vocab(x->par), 0}, place = table;
    place.over_tp = over_stream(x->par);
    layer_declare(x, table, 2, (int64_t[]){c->vocab, c->hidden}, "embed.token");
    layer_declare(x, place, 2, (int64_t[]){c->max_positions, c->hidden}, "embed.position");
    layer_declare(x, place, 2, (int64_t[]){c->types, c->hidden}, "embed.segment");
    plain_declare_norm(x, -1, over_stream(x->par), "embed.norm");
    for (int l = 0; l < c->layers; l++) declare_block(x, l);
    declare_head(x);
}

static tid embed(struct layer_ctx *x, tid ids_T)
{
    struct vocab_attrs whole = {0};
    tid pos_T = x->pos_T, kind_T = x->segment_T;
    if (x->par->sequence) pos_T = par_rows(x->t, x->par, pos_T, AXIS_TP);
    if (x->par->sequence) kind_T = par_rows(x->t, x->par, kind_T, AXIS_TP);
    tid token_TD = embed_tokens(x, ids_T);
    tid kind_TD = op_embed(x->t, kind_T, layer_param(x, 1, "embed.segment"), whole, "embed.segment");
    tid place_TD = op_embed(x->t, pos_T, layer_param(x, 1, "embed.position"), whole, "embed.position");
    tid h_TD = op_add(x->t, op_add(x->t, token_TD, kind_TD, 0, 0, TID_NONE, "embed.segments"), place_TD, 0, 0, TID_NONE,
                      "embed");
    h_TD = plain_norm(x, h_TD, "embed.norm", "embed.norm");
    return op_dropout(x->t, h_TD, (float)x->c->dropout, dropout_stream("embed", 0), x->index_T, "embed.dropout");
}

static enum act_kind gelu_of(const struct model_config *c) { return c->act ? ACT_GELU : ACT_GELU_ERF; }

static tid block(struct layer_ctx *x, tid h_TD, int l)
{
    float p = (float)x->c->dropout;
    char name[32];
    tid o_TD = attention_record(x, h_TD, l, biased);
    h_TD = op_add(x->t, h_TD, o_TD, p, dropout_stream("attn.o", l), x->index_T, "residual1");
    snprintf(name, sizeof name, "layers.%d.norm1", l);
    h_TD = plain_norm(x, h_TD, name, "norm1");
    tid d_TD = plain_mlp(x, h_TD, l, gelu_of(x->c));
    h_TD = op_add(x->t, h_TD, d_TD, p, dropout_stream("mlp.down", l), x->index_T, "residual2");
    snprintf(name, sizeof name, "layers.%d.norm2", l);
    return plain_norm(x, h_TD, name, "norm2");
}

static tid product(struct layer_ctx *x, tid h_TD, const char *name)
{
    tid w = layer_param(x, 1, "%s.weight", name);
    return layer_linear(x, h_TD, w, layer_param(x, 1, "%s.bias", name), false, name);
}

/* What the output matrix reads. */
static tid transformed(struct layer_ctx *x, tid h_TD)
{
    tid a_TD = op_act(x->t, product(x, h_TD, "head.transform"), gelu_of(x->c), "head.gelu");
    return plain_norm(x, a_TD, "head.norm", "head.norm");
}

static tid pooled(struct layer_ctx *x, tid h_TD)
{
    tid a_TD = op_act(x->t, product(x, h_TD, "head.transform"), ACT_TANH, "head.tanh");
    return op_dropout(x->t, a_TD, (float)x->c->dropout, dropout_stream("head", 0), x->index_T, "head.dropout");
}

static void head(struct layer_ctx *x, tid h_TD)
{
    if (!x->c->classes) {
        head_record(x, transformed(x, h_TD), layer_param(x, 1, "head.bias"));
        return;
    }
    tid a_TD = pooled(x, h_TD); /* outside of the segment, whose input is never what the stage before sends */
    if (x->par->sequence) a_TD = par_collect(x->t, x->par, a_TD, AXIS_TP, x->tokens);
    if (x->s->mode == MODEL_LOGITS) {
        tape_bind(x->t, op_cast(x->t, product(x, a_TD, "head"), DT_F32, "logits32"), SLOT_LOGITS);
        return;
    }
    tape_segment_begin(x->t, SEGMENT_LOSS);
    op_xent_right(x->t, product(x, a_TD, "head"), x->target_T, SLOT_STAT, "loss");
    tape_segment_end(x->t);
}

const struct blocks blocks_bert = {false, declare, embed, block, NULL, head};
