/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a model's sizes are ones that anything can be made from, before anything is: a table with a row per expert
 * and layer, and counts of elements in 64 bits. One layer of each kind is declared, and multiplied in floating point,
 * which does not overflow. */
#include "nn/layers.h"

enum { MTP_ROWS = 4 };        /* of a module, beside its block (mtp.c) */
enum { MOST_ROWS = 1 << 22 }; /* of the table of parameters: 1 GB of it */
#define MOST_ELEMENTS                                                                                                  \
    9007199254740992.0 /* 2^53: bytes of all that is kept per element still fit, and JSON prints it exactly */

struct one_layer {
    double rows, elements;
};

/* Of the layer, or of all that is outside of layers. */
static struct one_layer count(const struct model_config *c, bool moe, bool outside, enum layer_kind kind)
{
    struct model_config one = *c;
    struct param_table t = {0};
    struct one_layer n = {0};
    one.layers = 1;
    one.encoder_layers = 0; /* a decoder's, which is the larger one */
    one.mtp.depth = 0;
    one.moe.first_dense = !moe;
    one.moe.sparse = (struct layer_pattern){.text = ""};
    if (model_mixes(c)) one.pattern = (struct layer_pattern){.text = {layer_kind_letter(kind)}};
    model_declare(&one, NULL, &t);
    for (int i = 0; i < t.n; i++) {
        if ((t.p[i].layer < 0) != outside) continue;
        n.rows++;
        n.elements += (double)t.p[i].numel;
    }
    param_table_free(&t);
    return n;
}

/* Of a layer without experts; of layers of several kinds, their mean. */
static struct one_layer count_dense(const struct model_config *c)
{
    struct one_layer mean = {0}, of[LAYER_KINDS] = {{0}};
    if (!model_mixes(c)) return count(c, false, false, LAYER_BOTH);
    for (int64_t l = 0; l < c->layers; l++) {
        enum layer_kind k = model_layer_kind(c, l);
        if (of[k].rows <= 0) of[k] = count(c, false, false, k);
        mean.rows += of[k].rows / (double)c->layers;
        mean.elements += of[k].elements / (double)c->layers;
    }
    return mean;
}

int model_check_size(const struct model_config *c, struct err *e)
{
    int moe = to_int(model_moe_layers(c)), dense = to_int(c->layers) - moe;
    bool first = !dense; /* which kind to look at for what is outside */
    struct one_layer rest = count(c, first, true, LAYER_SCAN), d = dense ? count_dense(c) : (struct one_layer){0},
                     m = moe ? count(c, true, false, LAYER_BOTH) : (struct one_layer){0};
    for (int64_t l = c->layers; l < model_blocks(c); l++) {
        bool has = model_layer_is_moe(c, l);
        struct one_layer more = has && !moe      ? count(c, true, false, LAYER_BOTH)
                                : !has && !dense ? count(c, false, false, LAYER_BOTH)
                                : has            ? m
                                                 : d;
        rest.rows += more.rows + MTP_ROWS;
        rest.elements += more.elements + 2.0 * (double)c->hidden * (double)c->hidden + 3.0 * (double)c->hidden;
    }
    double rows = rest.rows + dense * d.rows + moe * m.rows;
    double elements = rest.elements + dense * d.elements + moe * m.elements;
    if (rows > MOST_ROWS) {
        double each = (m.rows - d.rows) / c->moe.experts,
               fits = (MOST_ROWS - rest.rows - dense * d.rows) / moe / (each > 3 ? each : 3) - 8;
        return err_set(e, ERR_REQUEST,
                       "model.moe.experts: %d experts in %d layers make %.0f parameter tensors, more than the %d that "
                       "a model may have; choose at most %d experts, or fewer layers",
                       to_int(c->moe.experts), moe, rows, MOST_ROWS, fits > 1 ? (int)fits : 1);
    }
    if (elements > MOST_ELEMENTS)
        return err_set(e, ERR_REQUEST,
                       "model.hidden: %lld, with %d layers, makes %.3g parameters, more than 2^53, the most that can "
                       "be counted; choose smaller sizes",
                       (long long)c->hidden, to_int(c->layers), elements);
    return OK;
}
