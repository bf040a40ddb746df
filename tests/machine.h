/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h: the config and the tokens of a small machine, for tests that build engines themselves. */
#ifndef TUTTI_TESTS_MACHINE_H
#define TUTTI_TESTS_MACHINE_H

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "config/config.h"

/* Resolves a toy with the caller's keys ("batch.global=6 ...", separated by blanks) for so many ranks.
 * Returns [4][global][seq]: tokens, targets, positions, documents (all 0); xfree it. */
static inline int32_t *machine_toy(struct config *c, struct arena *a, const char *more, int ranks)
{
    static const char toy[] =
        "model.layers=2 model.hidden=36 model.heads=3 model.ffn=52 model.vocab=67 model.seq_len=12 run.threads=1 "
        "comm.timeout_s=60 optimizer.lr=1e-2 precision.recipe=fp32 ";
    char *keys[64];
    int n = 0;
    struct conf *f;
    struct err e = {0};
    for (char *word = strtok(arena_printf(a, "%s%s", toy, more), " "); word; word = strtok(NULL, " ")) keys[n++] = word;
    if (config_load(c, &f, a, NULL, keys, n, &e) || config_resolve(c, f, 0, ranks, &e))
        fail_msg("%s: %s", more, e.text);
    int64_t all = c->batch.global * c->model.seq_len;
    int32_t *tokens = xcalloc(to_size(4 * all), sizeof *tokens);
    for (int64_t i = 0; i < 2 * all; i++) tokens[i] = (int32_t)(rng_u32(5, 1, (uint64_t)i) % 67);
    for (int64_t i = 0; i < all; i++) tokens[2 * all + i] = (int32_t)(i % c->model.seq_len);
    return tokens;
}

/* The sequences of them that data-parallel rank `part` trains on. */
static inline struct engine_batch machine_part(const struct config *c, const int32_t *tokens, int part)
{
    int64_t first, count, seq = c->model.seq_len, field = c->batch.global * seq;
    config_part(c, part, &first, &count);
    const int32_t *at = tokens + first * seq;
    return (struct engine_batch){.tokens = at,
                                 .targets = at + field,
                                 .positions = at + 2 * field,
                                 .docs = at + 3 * field,
                                 .n = count,
                                 .first = first,
                                 .n_trained = count * seq};
}

#endif
