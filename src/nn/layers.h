/* layers.h: what the layers of the families share; private to nn/.
 *
 * Shape letters: T tokens of the microbatch, D hidden, H query heads, G key/value heads, A head size, F ffn width,
 * V vocabulary, P positions, C a chunk of tokens.
 */
#ifndef TUTTI_NN_LAYERS_H
#define TUTTI_NN_LAYERS_H

#include "nn/model.h"

struct layer_ctx {
    struct tape *t;
    const struct model_config *c;
    const struct param_table *params;
    const struct par *par;
    const struct model_shape *s;
    tid *param_tid; /* by parameter, -1 not on the tape yet */
    tid pos_T, doc_T, rope_PA;
};

struct family {
    const char *name;
    bool uses_rope;
    void (*declare)(const struct model_config *c, struct param_table *t);
    tid (*embed)(struct layer_ctx *x, tid ids_T);
    tid (*block)(struct layer_ctx *x, tid h_TD, int layer);
    tid (*norm)(struct layer_ctx *x, tid h_TD);
};
extern const struct family family_gpt2, family_llama;

/* A parameter as a tensor, its name printf-style; span > 1: this and the following ones as one matrix (rows one after
 * the other). */
tid layer_param(struct layer_ctx *x, int span, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A row of the table of parameters: initial values are normal with `std`, or all zeros or ones. */
struct declare {
    enum param_init init;
    double std;
    int layer;
    enum spmd over_tp;
};
void layer_declare(struct param_table *t, struct declare d, int nd, const int64_t *n, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* attention.c: q, k, v projections as one matrix, rotary if the family has it, attention, output projection;
 * prefix is "layers.N.attn". Returns the projected output, summed over tp. */
tid attention_record(struct layer_ctx *x, tid h_TD, int layer, bool bias, bool rope);
void attention_declare(const struct model_config *c, struct param_table *t, int layer, bool bias, double std,
                       double std_out);
/* The random stream of a dropout, from where it stands. */
uint64_t dropout_stream(const char *what, int layer);

#endif
