/* SPDX-License-Identifier: Apache-2.0 */
/* triples.h: seven factors of which every three levels meet (test_triples.c): how many ranks share out what, zero
 * level, schedule, recipe, family, optimizer, objective. Levels are words of a configuration, as in grid.h; each stands
 * for one mechanism, for there are far more triples than pairs. The first of each factor are those of every day, the
 * others join them in the whole. */
#ifndef TUTTI_TESTS_VERIFY_TRIPLES_H
#define TUTTI_TESTS_VERIFY_TRIPLES_H

#include "verify/grid.h"

enum triples_factor {
    TRIPLES_FAMILY,
    TRIPLES_DEGREE,
    TRIPLES_ZERO,
    TRIPLES_SCHEDULE,
    TRIPLES_RECIPE,
    TRIPLES_OPTIMIZER,
    TRIPLES_OBJECTIVE,
    TRIPLES_FACTORS
};
static const char *const triples_names[TRIPLES_FACTORS] = {"family", "degree",    "zero",     "schedule",
                                                           "recipe", "optimizer", "objective"};

/* The base is two replicas of two stages: there a zero level and a schedule may be alone. NULL: what is behind it is
 * the whole's. */
static const char *const triples_families[] = {
    "model.family=llama",
    "model.family=gpt2 model.dropout=0.1",
    "model.family=mixtral " FAMILY_EXPERTS,
    "model.family=nemotron_h model.pattern=M-*- " FAMILY_SPACES,
    NULL,
    "model.family=gemma3",
    "model.family=gpt_oss " FAMILY_EXPERTS,
    "model.family=deepseek model.mla.kv_rank=8 model.mla.nope_dim=8 model.mla.rope_dim=4 "
    "model.mla.value_dim=8 " FAMILY_EXPERTS,
    "model.family=llama model.mtp.depth=1",
    "model.family=olmo2 model.tie_embeddings=true",
};
static const struct grid_level triples_degrees[] = {
    {"parallel.dp_shard=2 parallel.pp=2", 4},
    {"parallel.dp_shard=2", 2},
    {"parallel.tp=2 parallel.dp_shard=2 parallel.sequence_parallel=true", 4},
    {"parallel.cp=2", 2},
    {"parallel.dp_shard=2 parallel.ep=2", 2},
    {NULL, 0},
    {"parallel.pp=2", 2},
    {"parallel.tp=2 parallel.pp=2", 4},
    {"parallel.cp=2 parallel.pp=2", 4},
    {"parallel.dp_replicate=2 parallel.dp_shard=2", 4},
    {"parallel.tp=2 parallel.ep=2 parallel.etp=1", 2},
};
static const char *const triples_zeros[] = {"parallel.zero=0", "parallel.zero=1", "parallel.zero=2", "parallel.zero=3"};
static const char *const triples_schedules[] = {
    "",   "parallel.schedule=interleaved", "parallel.schedule=zbh1",      "parallel.schedule=dualpipe",
    NULL, "parallel.schedule=zbv",         "parallel.schedule=dualpipev", "parallel.schedule=gpipe",
};
static const char *const triples_recipes[] = {
    "precision.recipe=fp32",
    "precision.recipe=bf16",
    "precision.recipe=fp16",
    "precision.recipe=fp8-delayed",
    NULL,
    "precision.recipe=mxfp8",
    "precision.recipe=fp8-block",
    "precision.recipe=nvfp4",
};
static const char *const triples_optimizers[] = {
    "optimizer.name=adamw",
    "optimizer.name=muon optimizer.lr=0.005",
    "optimizer.name=adafactor",
    "optimizer.block=16 optimizer.moments=8bit",
    NULL,
    "optimizer.name=sgd",
    "optimizer.name=lion",
    "optimizer.ema=0.9",
};
static const char *const triples_objectives[] = {
    "",
    "train.objective=dpo batch.micro=1",
    "adapter.kind=lora adapter.targets=['*'] adapter.rank=4",
    NULL,
    "train.objective=grpo train.grpo.tokens=6 train.grpo.group=2 train.grpo.reward=true train.grpo.updates=2 "
    "train.grpo.beta=0.1",
    "memory.recompute=full memory.offload=[optimizer] memory.offload_least=0",
};

static inline void triples_open(struct grid *g, bool whole)
{
    static const int order[TRIPLES_FACTORS] = {TRIPLES_FAMILY,    TRIPLES_DEGREE, TRIPLES_ZERO,     TRIPLES_SCHEDULE,
                                               TRIPLES_OPTIMIZER, TRIPLES_RECIPE, TRIPLES_OBJECTIVE};
    static const struct {
        const char *const *keys;
        size_t n;
    } of[TRIPLES_FACTORS] = {
#define LIST(x) x, sizeof x / sizeof *x
        [TRIPLES_FAMILY] = {LIST(triples_families)},      [TRIPLES_ZERO] = {LIST(triples_zeros)},
        [TRIPLES_SCHEDULE] = {LIST(triples_schedules)},   [TRIPLES_RECIPE] = {LIST(triples_recipes)},
        [TRIPLES_OPTIMIZER] = {LIST(triples_optimizers)}, [TRIPLES_OBJECTIVE] = {LIST(triples_objectives)},
#undef LIST
    };
    *g = (struct grid){.factors = TRIPLES_FACTORS, .names = triples_names, .order = order, .a = arena_new()};
    for (int f = 0; f < TRIPLES_FACTORS; f++)
        for (size_t i = 0; i < of[f].n && (of[f].keys[i] || whole); i++)
            if (of[f].keys[i]) grid_add(g, f, 0, of[f].keys[i]);
    for (size_t i = 0; i < sizeof triples_degrees / sizeof *triples_degrees && (triples_degrees[i].keys || whole); i++)
        if (triples_degrees[i].keys) grid_add(g, TRIPLES_DEGREE, triples_degrees[i].ranks, triples_degrees[i].keys);
}

#endif
