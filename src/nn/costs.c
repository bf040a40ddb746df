/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a model take of a step, relative to each other, so that stages of a pipeline can be cut alike:
 * multiplications of each layer, of the embedding and of the head for a token. Matrices are counted in the table of
 * parameters; attention and state spaces multiply beside them. */
#include <string.h>

#include "nn/layers.h"

/* Of an expert's matrices a token sees top_k / experts. */
static double share_used(const struct model_config *c, const struct param *p)
{
    return strstr(p->name, ".moe.experts.") ? (double)c->moe.top_k / c->moe.experts : 1;
}

/* Of a layer with experts, or without: declared as a model of its own, so that a deep model need not be. */
static double layer_cost(const struct model_config *c, int64_t seq, bool moe, int64_t window, enum layer_kind kind)
{
    struct model_config one = *c;
    struct param_table t = {0};
    double s = (double)seq, w = window > 0 && window < seq ? (double)window : s;
    double pairs = model_both_ways(c) ? s * s : w * (w + 1) / 2 + (s - w) * w; /* that attention looks at */
    double cost = kind == LAYER_SCAN  ? 2.5 * (double)c->ssm.heads * (double)(c->ssm.head_dim * c->ssm.state)
                  : kind == LAYER_MLP ? 0
                                      : 2 * pairs / s * (double)c->heads * c->head_dim;
    if (kind != LAYER_BOTH && model_mixes(c)) one.pattern = (struct layer_pattern){.text = {layer_kind_letter(kind)}};
    one.layers = 1;
    one.mtp.depth = 0;
    one.moe.first_dense = !moe;
    one.moe.sparse = (struct layer_pattern){.text = ""};
    model_declare(&one, NULL, &t);
    for (int i = 0; i < t.n; i++)
        if (t.p[i].layer == 0 && t.p[i].nd >= 2) cost += (double)t.p[i].numel * share_used(c, &t.p[i]);
    param_table_free(&t);
    return cost;
}

void model_costs(const struct model_config *c, int64_t seq, double *layer, double *embed, double *head)
{
    double of[LAYER_KINDS][2][2] = {{{0}}}; /* with experts or without, local or not */
    for (int l = 0; l < c->layers; l++) {
        if (model_pairs(c)) {
            layer[l] = pairs_layer_cost(c, seq, l);
            continue;
        }
        int64_t window = model_window(c, l);
        enum layer_kind kind = model_layer_kind(c, l);
        double *cost = &of[kind][model_layer_is_moe(c, l)][window > 0];
        if (*cost <= 0) *cost = layer_cost(c, seq, model_layer_is_moe(c, l), window, kind);
        layer[l] = *cost;
    }
    double D = (double)c->hidden;
    *embed = model_looks(c)  ? (double)c->vision.images * vision_cost(c) / (double)seq
             : model_sees(c) ? (double)(c->channels * c->patch_size * c->patch_size) * D
                             : 0; /* a table is looked up */
    *head = model_sees(c)    ? (double)c->classes * D / (double)seq
            : model_tells(c) ? (double)c->classes * D
                             : (double)model_outputs(c) * D;
    if (model_encodes(c)) *head += D * D;
    if (model_pairs(c)) *head *= 1 - (double)c->encoder_len / (double)seq;
    double next = *head;
    for (int64_t l = c->layers; l < model_blocks(c); l++)
        *head += next + 2 * D * D + layer_cost(c, seq, model_layer_is_moe(c, l), model_window(c, l), LAYER_BOTH);
}
