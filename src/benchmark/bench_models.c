/* SPDX-License-Identifier: Apache-2.0 */
#include "benchmark/bench_models.h"

#include <string.h>

#include "base/err.h"
#include "base/rng.h"

static const struct bench_model models[] = {
    /* clang-format off */
    {"gpt2-124m", {"model.family=gpt2", "model.layers=12", "model.hidden=768", "model.heads=12", "model.vocab=50257",
                   "model.tie_embeddings=true", "model.max_positions=1024"}},
    {"gpt2-355m", {"model.family=gpt2", "model.layers=24", "model.hidden=1024", "model.heads=16", "model.vocab=50257",
                   "model.tie_embeddings=true", "model.max_positions=1024"}},
    {"llama-110m", {"model.family=llama", "model.layers=12", "model.hidden=768", "model.heads=12", "model.kv_heads=4",
                    "model.ffn=2048", "model.vocab=32000"}},
    {"tiny", {"model.family=llama", "model.layers=4", "model.hidden=256", "model.heads=8", "model.kv_heads=4",
              "model.ffn=704", "model.vocab=257"}},
    /* clang-format on */
};

const struct bench_model *bench_model(const char *name)
{
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        if (!strcmp(models[m].name, name)) return &models[m];
    CHECK(0, "%s is among the choices and no model", name);
    return NULL;
}

int64_t bench_fill(int32_t *memory, const struct config *c)
{
    int64_t seq = c->model.seq_len, n = c->batch.global * seq;
    int64_t read = model_pairs(&c->model) ? c->model.encoder_len : 0; /* by an encoder: no targets */
    for (int64_t i = 0; i < n; i++) {
        memory[i] = (int32_t)(rng_u32(1, 1, (uint64_t)i) % (uint64_t)c->model.vocab);
        memory[n + i] = i % seq < read ? -1 : (int32_t)(rng_u32(1, 2, (uint64_t)i) % (uint64_t)c->model.vocab);
        memory[2 * n + i] = (int32_t)(i % seq);
        memory[3 * n + i] = 0;
    }
    return seq - read;
}

int bench_device(const struct config *c, struct err *e)
{
    if (config_device(c) == DEVICE_CPU) return OK;
    return err_set(e, ERR_REQUEST, "run.device: nothing that %s takes is a speed; choose cpu", c->run.device);
}
