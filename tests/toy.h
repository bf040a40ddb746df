/* SPDX-License-Identifier: Apache-2.0 */
/* toy.h: what the tests of the upper rooms share: small models that still have every feature, a batch for them, and
 * an engine on a device. */
#ifndef TUTTI_TESTS_TOY_H
#define TUTTI_TESTS_TOY_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "model/family_defaults.h"

#define assert_contains(text, part)                                                                                    \
    do {                                                                                                               \
        if (!strstr(text, part)) fail_msg("'%s' does not contain '%s'", (const char *)(text), part);                   \
    } while (0)

/* Whether resident memory says something about the program. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { TOY_SANITIZED = 1 }; /* shadows of everything, and freed memory held back */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
enum { TOY_SANITIZED = 1 };
#else
enum { TOY_SANITIZED = 0 };
#endif
#else
enum { TOY_SANITIZED = 0 };
#endif

/* Families before this one read text, which a toy's batch is; the layouts of ViT are test_vit.c's. */
enum { TOY_TEXTS = MODEL_VIT };

static inline bool toy_says_nothing(const void *ctx, const char *path) { return ctx && !path; }

/* Odd sizes on purpose: nothing is a multiple of a vector or a tile. */
static inline struct model_config toy_model(enum model_family family)
{
    struct model_config m = {
        .family = family,
        .layers = 2,
        .hidden = 36,
        .heads = 3,
        .kv_heads = family == MODEL_LLAMA ? 1 : 3,
        .head_dim = 12,
        .ffn = 52,
        .vocab = 67,
        .max_positions = 24,
        .norm_eps = 1e-5,
        .rope_theta = 10000,
    };
    family_defaults(&m, toy_says_nothing, NULL);
    if (family == MODEL_MIXTRAL || family == MODEL_QWEN3_MOE || family == MODEL_GPT_OSS)
        m.moe = (struct moe_config){.router_bias = family == MODEL_GPT_OSS,
                                    .expert_bias = family == MODEL_GPT_OSS,
                                    .experts = 5,
                                    .top_k = 2,
                                    .ffn = 52,
                                    .norm_topk = true,
                                    .scale = 1,
                                    .aux = 0.02,
                                    .z = 0.001};
    if (family == MODEL_VIT) {
        m.image_size = 10;
        m.patch_size = 2;
        m.channels = 3;
        m.classes = 11;
        m.qkv_bias = true;
        m.seq_len = m.max_positions = 26;
    }
    if (family == MODEL_BERT) m.types = 2;
    if (family == MODEL_LLAVA)
        m.vision = (struct vision_config){.layers = 2,
                                          .hidden = 18,
                                          .heads = 3,
                                          .ffn = 22,
                                          .image_size = 6,
                                          .patch_size = 3,
                                          .channels = 3,
                                          .norm_eps = 1e-5,
                                          .act = 2,
                                          .class_place = true,
                                          .norm_before = true,
                                          .images = 2,
                                          .token = 1};
    if (family == MODEL_NEMOTRON_H) { /* one layer of each kind */
        m.pattern = (struct layer_pattern){.text = "M*-"};
        m.layers = 3;
    }
    if (family == MODEL_MAMBA2 || family == MODEL_NEMOTRON_H)
        m.ssm = (struct ssm_config){.heads = 6, .head_dim = 5, .state = 7, .groups = 3, .conv = 4, .conv_bias = true};
    if (family != MODEL_DEEPSEEK) return m;
    m.moe = (struct moe_config){.experts = 6,
                                .top_k = 3,
                                .ffn = 20,
                                .shared = 2,
                                .first_dense = 1,
                                .score = SCORE_SIGMOID,
                                .norm_topk = true,
                                .groups = 3,
                                .top_groups = 2,
                                .group_pairs = true,
                                .scale = 1.5,
                                .aux = 0.001,
                                .bias = true,
                                .bias_speed = 0.001};
    m.mla = (struct mla_config){.q_rank = 14,
                                .kv_rank = 10,
                                .nope_dim = 7,
                                .rope_dim = 6,
                                .value_dim = 9,
                                .rope_pairs = true,
                                .norm_eps = 1e-6};
    m.head_dim = 13;
    return m;
}

static inline struct engine_config toy_config(enum model_family family, enum dtype dtype)
{
    return (struct engine_config){
        .model = toy_model(family),
        .dtype = dtype,
        .micro = 2,
        .seq = 24,
        .n_microbatches = 2,
        .training = true,
        .optim = {.kind = OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1.0},
        .seed = 7,
        .kernels = "auto",
        .threads = 1,
    };
}

struct toy {
    struct device *dev;
    struct engine *g;
    struct engine_batch batch;
    int32_t *tokens, *targets, *positions, *docs;
};

/* A batch in which the next token follows from this one most of the time, so that a model can learn it; some targets
 * are not trained; documents end in the middle of a sequence. */
static inline void toy_batch(struct toy *t, const struct engine_config *c)
{
    int64_t n = c->n_microbatches * c->micro * c->seq;
    t->tokens = xcalloc((size_t)n, 4);
    t->targets = xcalloc((size_t)n, 4);
    t->positions = xcalloc((size_t)n, 4);
    t->docs = xcalloc((size_t)n, 4);
    t->batch = (struct engine_batch){.tokens = t->tokens,
                                     .targets = t->targets,
                                     .positions = t->positions,
                                     .docs = t->docs,
                                     .n = c->n_microbatches * c->micro};
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i % c->seq;
        t->positions[i] = (int32_t)at;
        t->docs[i] = at >= c->seq / 3;
        bool start = at == 0 || rng_u32(3, 1, (uint64_t)i) % 8 == 0;
        t->tokens[i] = start ? (int32_t)(rng_u32(3, 2, (uint64_t)i) % (uint32_t)c->model.vocab)
                             : (int32_t)((t->tokens[i - 1] * 5 + 3) % c->model.vocab);
        if (i) t->targets[i - 1] = at ? t->tokens[i] : -1;
    }
    t->targets[n - 1] = 1;
    for (int64_t i = 0; i < n; i++) t->batch.n_trained += t->targets[i] >= 0;
}

static inline void toy_open_on(struct toy *t, const struct engine_config *c, struct device *dev)
{
    struct err e = {0};
    memset(t, 0, sizeof *t);
    t->dev = dev;
    if (engine_new(&t->g, c, t->dev, &e)) fail_msg("%s", e.text);
    engine_init(t->g);
    toy_batch(t, c);
}

static inline void toy_open(struct toy *t, const struct engine_config *c)
{
    struct err e = {0};
    struct device *dev;
    if (device_cpu_new(&dev, c->threads, &e)) fail_msg("%s", e.text);
    toy_open_on(t, c, dev);
}

static inline void toy_batch_free(struct toy *t)
{
    xfree(t->tokens);
    xfree(t->targets);
    xfree(t->positions);
    xfree(t->docs);
}

static inline void toy_close(struct toy *t)
{
    engine_free(t->g);
    device_free(t->dev);
    toy_batch_free(t);
}

/* A copy of the whole gradient, in the table's order. */
static inline float *toy_gradients(const struct toy *t)
{
    float *v = xmalloc(t->g->store.array[STORE_GRAD].buf.bytes);
    memcpy(v, device_here(t->g->store.array[STORE_GRAD].buf.p), t->g->store.array[STORE_GRAD].buf.bytes);
    return v;
}

static inline double toy_relative_error(const float *got, const float *want, int64_t n)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += (double)want[i] * want[i];
    }
    return norm > 0 ? sqrt(diff / norm) : sqrt(diff);
}

#endif
