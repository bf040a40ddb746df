/* SPDX-License-Identifier: Apache-2.0 */
/* written.h: a small trained model of a family as weights, for tests of what models write. */
#ifndef TUTTI_TESTS_WRITTEN_H
#define TUTTI_TESTS_WRITTEN_H

#include "toy.h"

#include "decode/decoding.h"
#include "keep/run_checkpoint.h"
#include "scratch.h"

struct written {
    struct toy toy;
    char *dir;
    struct weights *w;
};

/* eos: the token that ends its texts; -1: none. */
static inline void written_open_ends(struct written *x, struct engine_config c, int64_t positions, int32_t eos)
{
    struct engine_report r;
    struct err e = {0};
    c.model.max_positions = positions;
    toy_open(&x->toy, &c);
    for (int s = 0; s < 10; s++)
        engine_step(x->toy.g, &x->toy.batch, s, 1e-2, &r); /* weights that are not nearly zero */
    x->dir = scratch_new();
    struct save_info info = {.root = x->dir, .step = 10, .keep = 1, .config_text = "", .bos = -1, .eos = eos};
    struct ranks alone = {.mesh = mesh_single(), .n = 1, .server = -1, .writes = true, .n_writers = 1};
    if (save_checkpoint(x->toy.g, &alone, &info, &e)) fail_msg("%s", e.text);
    if (weights_open(&x->w, x->dir, &e)) fail_msg("%s", e.text);
}

static inline void written_open_config(struct written *x, struct engine_config c, int64_t positions)
{
    written_open_ends(x, c, positions, -1);
}

static inline void written_open(struct written *x, enum model_family family, int64_t positions)
{
    written_open_config(x, toy_config(family, DT_F32), positions);
}

static inline void written_close(struct written *x)
{
    weights_close(x->w);
    toy_close(&x->toy);
    scratch_free(x->dir);
}

static inline struct decoding *written_decoding(struct written *x, int64_t sequences, int64_t rows, size_t cache_bytes)
{
    struct decoding *d;
    struct err e = {0};
    struct decoding_options o = {.threads = 1,
                                 .dtype = DT_F32,
                                 .sequences = sequences,
                                 .rows = rows,
                                 .cache_bytes = cache_bytes};
    if (decoding_new(&d, x->w, x->toy.dev, &o, &e)) fail_msg("%s", e.text);
    return d;
}

/* What a text's token i + 1 is worth after tokens 0 .. i, fed one by one: an oracle for everything that feeds many. */
static inline void written_logprobs(struct written *x, const int32_t *ids, int64_t n, double *logprob)
{
    struct decoding *d = written_decoding(x, 1, 1, 0);
    const float *logits;
    struct err e = {0};
    int s = decoding_open(d);
    int64_t vocab = decoding_model(d)->vocab;
    for (int64_t i = 0; i + 1 < n; i++) {
        double sum = 0;
        if (decoding_step(d, &(struct decoding_part){s, ids + i, 1, 1}, 1, &logits, &e)) fail_msg("%s", e.text);
        for (int64_t v = 0; v < vocab; v++) sum += exp((double)logits[v]);
        logprob[i + 1] = (double)logits[ids[i + 1]] - log(sum);
    }
    decoding_free(d);
}

#endif
