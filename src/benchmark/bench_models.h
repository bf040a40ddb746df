/* SPDX-License-Identifier: Apache-2.0 */
/* bench_models.h: models of known sizes that benchmarks are made with, as keys of a config. */
#ifndef TUTTI_BENCHMARK_BENCH_MODELS_H
#define TUTTI_BENCHMARK_BENCH_MODELS_H

#include "config/config.h"

enum { BENCH_MODEL_KEYS = 10 };
struct bench_model {
    const char *name;
    const char *keys[BENCH_MODEL_KEYS]; /* up to the first NULL */
};
#define BENCH_MODELS "gpt2-124m|gpt2-355m|llama-110m|tiny"
/* One of these names; a CHECK where it is none. */
const struct bench_model *bench_model(const char *name);

/* Refuses a device whose times are no speed: what is simulated, what only counts. */
int bench_device(const struct config *c, struct err *e);
/* A step's batch of random tokens: [4][global][seq] of tokens, targets (-1 where an encoder reads), positions and
 * documents, which is one. How many of a sequence are trained. */
int64_t bench_fill(int32_t *memory, const struct config *c);

#endif
