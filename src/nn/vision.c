/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures in texts (Liu et al. 2023, "Visual Instruction Tuning"): a tower of ViT sees them, two products with GELU
 * between turn its patches into rows of the decoder's stream, and these stand where the text has tokens for them.
 *
 *   v = norm_before([class; patches W^T (+ b)] + positions)      blocks as GPT-2's, without a mask and without a norm
 *                                                                behind the last
 *   h = embed(tokens), in places of patches down(gelu(up v))     the class's row is left out
 *
 * The tower is a model of its own numbers (tower_of) whose parameters are named vision.*; each of its layers is a unit.
 * A sample has room for model.vision.images pictures, all of which are computed; what stands in no text has no
 * gradient.
 *
 * Over tp it is cut as every block is. Over cp each rank has some tokens of every text and may want any patch: all of
 * them do the tower's work, and its weights' gradients, of each rank's own tokens, are summed as those of all weights.
 * Rejected: pictures shared out over cp (less work, but rows of the size of the stream would travel both ways). */
#include <inttypes.h>
#include <math.h>

#include "nn/layers.h"
#include "state/param_group.h"

static struct model_config tower_of(const struct model_config *c)
{
    const struct vision_config *v = &c->vision;
    struct model_config t = {.family = MODEL_VIT,
                             .layers = v->layers,
                             .hidden = v->hidden,
                             .heads = v->heads,
                             .kv_heads = v->heads,
                             .head_dim = v->hidden / v->heads,
                             .ffn = v->ffn,
                             .seq_len = vision_places(v),
                             .max_positions = vision_places(v),
                             .norm_eps = v->norm_eps,
                             .image_size = v->image_size,
                             .patch_size = v->patch_size,
                             .channels = v->channels,
                             .qkv_bias = true};
    t.adapter = c->adapter;
    return t;
}

static struct plain_block block_of(const struct model_config *c)
{
    static const enum act_kind acts[] = {ACT_GELU_ERF, ACT_GELU, ACT_GELU_QUICK}; /* words of vision.act */
    return (struct plain_block){true, acts[c->vision.act]};
}

int vision_check(const struct model_config *c, struct err *e)
{
    const struct vision_config *v = &c->vision;
    if (v->hidden % v->heads)
        return err_set(e, ERR_REQUEST, "model.vision.heads: %" PRId64 " do not divide model.vision.hidden = %" PRId64,
                       v->heads, v->hidden);
    if (v->image_size % v->patch_size)
        return err_set(e, ERR_REQUEST,
                       "model.vision.patch_size: %" PRId64 " does not divide model.vision.image_size = %" PRId64
                       ", and pixels at the edges would be in no patch",
                       v->patch_size, v->image_size);
    if (vision_patches(v) > c->seq_len)
        return err_set(e, ERR_REQUEST,
                       "model.vision.image_size: a picture is %" PRId64 " tokens, and a sample has %" PRId64
                       " (model.seq_len); choose larger patches, or longer samples",
                       vision_patches(v), c->seq_len);
    if (v->images < 1 || v->images > c->seq_len / vision_patches(v))
        return err_set(e, ERR_REQUEST,
                       "model.vision.images: wanted 1 to %" PRId64 ", which is what fits into model.seq_len = %" PRId64
                       " with %" PRId64 " tokens each; got %" PRId64,
                       c->seq_len / vision_patches(v), c->seq_len, vision_patches(v), v->images);
    if (v->token >= c->vocab)
        return err_set(e, ERR_REQUEST,
                       "model.vision.token: %" PRId64 " is not among model.vocab = %" PRId64
                       " ids; choose a larger vocabulary",
                       v->token, c->vocab);
    return OK;
}

/* ---- parameters ---- */
static int projector_layer(const struct model_config *c) { return LAYER_TOWER - to_int(c->vision.layers); }

static void declare_product(struct declare_ctx *x, const char *name, enum spmd rows, enum spmd bias, int64_t out,
                            int64_t in)
{
    layer_declare(x, (struct declare){INIT_NORMAL, 0.02, projector_layer(x->c), rows, 0}, 2, (int64_t[]){out, in},
                  "projector.%s.weight", name);
    param_set_group(&x->t->p[x->t->n - 1], PARAM_MATRICES);
    layer_declare(x, (struct declare){INIT_ZEROS, 0, projector_layer(x->c), bias, 0}, 1, &out, "projector.%s.bias",
                  name);
}

void vision_declare(struct declare_ctx *x)
{
    const struct vision_config *v = &x->c->vision;
    struct model_config tower = tower_of(x->c);
    struct declare_ctx in = {&tower, x->par, x->t, "vision."};
    double std = 0.02, std_out = 0.02 / sqrt(2.0 * (double)v->layers);
    int64_t patch[2] = {v->hidden, v->channels * v->patch_size * v->patch_size},
            places[2] = {vision_places(v), v->hidden};
    struct declare drawn = {INIT_NORMAL, std, -1, over_stream(x->par), 0}, zeros = drawn;
    zeros.init = INIT_ZEROS;
    layer_declare(&in, drawn, 2, patch, "embed.patch.weight");
    if (v->class_place) layer_declare(&in, drawn, 1, &v->hidden, "embed.class");     /* kind 0 of a table, */
    if (v->patch_bias) layer_declare(&in, zeros, 1, &v->hidden, "embed.patch.bias"); /* kind 1 */
    layer_declare(&in, drawn, 2, places, "embed.position");
    if (v->norm_before) plain_declare_norm(&in, -1, over_stream(x->par), "embed.norm");
    for (int l = 0; l < v->layers; l++) plain_declare(&in, l, block_of(x->c), std, std_out);
    declare_product(x, "up", SPMD_S0, SPMD_S0, x->c->hidden, v->hidden);
    declare_product(x, "down", SPMD_S1, SPMD_I, x->c->hidden, x->c->hidden);
}

/* ---- the tower ---- */
static struct picture_rows rows_here(const struct layer_ctx *x)
{
    return par_picture_rows(x->par, x->s->batch, x->s->seq);
}

/* The class's place, and the bias of patches, where there are such: rows of a table by the kind of a place. */
static tid add_kinds(struct layer_ctx *x, tid h_TD, tid kind_T, const struct vision_config *v)
{
    struct vocab_attrs both = {.first = v->class_place ? 0 : 1, .whole = 2, .n_parts = 2};
    int rows = v->class_place + v->patch_bias;
    if (!rows) return h_TD;
    tid table = layer_rows(x, rows, v->class_place ? "embed.class" : "embed.patch.bias");
    tid kind_TD = op_embed(x->t, kind_T, table, both, "embed.kind");
    return op_add(x->t, h_TD, kind_TD, 0, 0, TID_NONE, "embed.kinds");
}

static tid tower_embed(struct layer_ctx *x, tid pixels, const struct vision_config *v)
{
    struct patches_attrs a = {rows_here(x), v->channels, v->image_size, v->patch_size};
    tid patch[3]; /* the patches, places, kinds */
    par_patches(x->t, x->par, pixels, a, x->s->dtype, false, "patches", patch);
    tid h_TD = layer_linear(x, patch[0], layer_param(x, 1, "embed.patch.weight"), TID_NONE, false, "embed.patch");
    h_TD = add_kinds(x, h_TD, patch[2], v);
    tid place_TD =
        op_embed(x->t, patch[1], layer_param(x, 1, "embed.position"), (struct vocab_attrs){0}, "embed.position");
    h_TD = op_add(x->t, h_TD, place_TD, 0, 0, TID_NONE, "embed");
    return v->norm_before ? plain_norm(x, h_TD, "embed.norm", "embed.norm") : h_TD;
}

static tid tower_block(struct layer_ctx *x, tid h_TD, int l, struct plain_block b)
{
    uint64_t again = x->s->mode == MODEL_TRAIN ? x->s->recompute.again : 0;
    if (again) tape_recompute_begin(x->t, again);
    h_TD = plain_block(x, h_TD, l, b);
    if (again) tape_segment_end(x->t);
    return h_TD;
}

/* Two products, cut over tp as a feed-forward layer is; then whole on every rank. */
static tid project(struct layer_ctx *x, tid h_TD)
{
    tid z = layer_linear(x, region_enter(x, h_TD), layer_param(x, 1, "projector.up.weight"),
                         layer_param(x, 1, "projector.up.bias"), false, "projector.up");
    tid a = op_act(x->t, z, ACT_GELU_ERF, "projector.gelu");
    tid y = layer_linear(x, a, layer_param(x, 1, "projector.down.weight"), layer_param(x, 1, "projector.down.bias"),
                         x->par->rank[AXIS_TP] != 0, "projector.down");
    y = region_leave(x, y);
    return x->par->sequence ? par_gather(x->t, x->par, y, AXIS_TP, x->tokens) : y;
}

tid vision_rows(struct layer_ctx *x, tid pixels)
{
    const struct vision_config *v = &x->c->vision;
    struct model_config tower = tower_of(x->c);
    struct model_shape shape = *x->s;
    struct par par = *x->par;
    struct layer_ctx in = *x;
    par.size[AXIS_CP] = 1;
    par.rank[AXIS_CP] = 0;
    shape.batch *= v->images;
    shape.seq = vision_places(v);
    in.c = &tower;
    in.par = &par;
    in.s = &shape;
    in.prefix = "vision.";
    in.tokens = shape.batch * shape.seq;
    in.doc_T = in.token_W = in.index_T = in.target_T = in.factor_T = TID_NONE;
    tid h_TD = tower_embed(&in, pixels, v);
    for (int l = 0; l < v->layers; l++) h_TD = tower_block(&in, h_TD, l, block_of(x->c));
    in.prefix = "";
    return project(&in, h_TD);
}

tid vision_insert(struct layer_ctx *x, tid h_TD, tid rows_RD)
{
    struct insert_attrs a = {par_picture_rows(x->par, x->s->batch, x->s->seq)};
    tid patch_T = x->par->sequence ? par_rows(x->t, x->par, x->patch_T, AXIS_TP) : x->patch_T;
    return op_insert(x->t, h_TD, patch_T, rows_RD, a, "pictures");
}

double vision_cost(const struct model_config *c)
{
    const struct vision_config *v = &c->vision;
    double n = (double)vision_places(v), d = (double)v->hidden, h = (double)c->hidden;
    double layer = 4 * d * d + 2 * d * (double)v->ffn + 2 * n * d;
    return n * ((double)v->layers * layer + d * (double)(v->channels * v->patch_size * v->patch_size) + h * (d + h));
}

/* ---- the model ---- */
static void declare(struct declare_ctx *x)
{
    vision_declare(x);
    llama_declare(x);
}

static tid embed(struct layer_ctx *x, tid ids_T)
{
    bool decode = x->s->mode == MODEL_DECODE, sees = !decode || x->decode->pictures;
    tid rows_RD = !sees ? TID_NONE : decode ? x->pixels : vision_rows(x, x->pixels);
    tid h_TD = embed_tokens(x, ids_T);
    if (sees) h_TD = vision_insert(x, h_TD, rows_RD);
    return op_dropout(x->t, h_TD, (float)x->c->dropout, dropout_stream("embed", 0), x->index_T, "embed.dropout");
}

const struct blocks blocks_llava = {true, declare, embed, llama_block, llama_norm, NULL};
