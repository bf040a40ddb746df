/* SPDX-License-Identifier: Apache-2.0 */
/* grid.h: what crosses in the grid (test_grid.c): factors, each a list of
 * levels, each a few words of a configuration. Levels come from the tables of
 * the house, so that a new family, schedule, optimizer, recipe, codec or group
 * of operations is in it by itself; and every key of the sections that decide
 * about numbers is in some level, or in the list of those that do not
 * (grid_apart). */
#ifndef TUTTI_TESTS_VERIFY_GRID_H
#define TUTTI_TESTS_VERIFY_GRID_H

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "config/config.h"
#include "families.h"
#include "nn/recompute.h"
#include "optim/optim.h"
#include "schedule/schedule.h"
#include "tape/recipe.h"

enum grid_factor {
    GRID_FAMILY,
    GRID_LAYOUT,
    GRID_MEMORY,
    GRID_OPTIMIZER,
    GRID_PRECISION,
    GRID_CODEC,
    GRID_DATA,
    GRID_OBJECTIVE,
    GRID_SHAPE,
    GRID_FACTORS
};
static const char *const grid_factor_names[GRID_FACTORS] = {"family", "layout", "memory",    "optimizer", "precision",
                                                            "codec",  "data",   "objective", "shape"};

struct grid_level {
    const char *keys;
    int ranks; /* of a layout */
};
/* A grid: this one, or that of triples.h. */
enum { GRID_LEVELS = 96, GRID_MOST = GRID_FACTORS };
struct grid {
    int factors;
    const char *const *names;
    const int *order; /* in which levels become words: a later one may say what an earlier one has said otherwise */
    struct grid_level of[GRID_MOST][GRID_LEVELS];
    int n[GRID_MOST];
    struct arena *a;
};

static inline void grid_add(struct grid *g, int f, int ranks, const char *keys)
{
    CHECK(g->n[f] < GRID_LEVELS, "more than %d levels of %s", GRID_LEVELS, g->names[f]);
    g->of[f][g->n[f]++] = (struct grid_level){keys, ranks};
}

/* The words of "a|b|c", each behind `before`. */
static inline void grid_add_words(struct grid *g, int f, const char *before, const char *words, int from)
{
    for (int i = 0; *words; i++) {
        size_t n = strcspn(words, "|");
        if (i >= from) grid_add(g, f, 0, arena_printf(g->a, "%s%.*s", before, (int)n, words));
        words += n + (words[n] == '|');
    }
}

static inline const char *grid_choices(const char *path)
{
    const struct conf_row *r = config_rows;
    while (r->path && strcmp(r->path, path)) r++;
    CHECK(r->path && r->choices, "%s is no choice", path);
    return r->choices;
}

static const struct grid_level grid_layouts[] = {
    {"", 1},
    {"parallel.dp_shard=2", 2},
    {"parallel.dp_shard=2 parallel.zero=1", 2},
    {"parallel.dp_shard=3 parallel.zero=2", 3},
    {"parallel.dp_shard=2 parallel.zero=3", 2},
    {"parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=3", 4},
    {"parallel.dp_shard=2 parallel.zero=2 parallel.reduce=step", 2},
    {"parallel.tp=2", 2},
    {"parallel.tp=3", 3},
    {"parallel.tp=4 parallel.sequence_parallel=true", 4},
    {"parallel.tp=2 parallel.sequence_parallel=true parallel.tp_overlap=2", 2},
    {"parallel.tp=2 parallel.dp_shard=2 parallel.zero=3", 4},
    {"parallel.cp=4 parallel.cp_algorithm=two_level parallel.cp_inner=2", 4},
    {"parallel.cp=2 parallel.cp_balance=area model.document_mask=true", 2},
    {"parallel.cp=2 parallel.dp_shard=2 parallel.zero=1", 4},
    {"parallel.cp=2 parallel.tp=2 parallel.sequence_parallel=true", 4},
    {"parallel.tp=2 parallel.pp=2 parallel.sequence_parallel=true", 4},
    {"parallel.dp_shard=2 parallel.pp=2 parallel.zero=1", 4},
    {"parallel.cp=2 parallel.pp=2", 4},
    {"parallel.pp=2 parallel.schedule=interleaved parallel.chunks=2 "
     "parallel.round=3",
     2},
    {"parallel.pp=2 parallel.pp_layers=[3,1]", 2},
    {"parallel.dp_shard=2 parallel.ep=2", 2},
    {"parallel.tp=2 parallel.ep=2 parallel.etp=1", 2},
    {"parallel.servers=1 parallel.dp_shard=2", 3},
};
static const char *const grid_memory[] = {
    "",
    "memory.recompute=full",
    "memory.recompute=selective",
    "memory.recompute=full memory.recompute_layers=1",
    "memory.offload=[activations] memory.offload_least=0",
    "memory.offload=[optimizer] memory.offload_least=0",
    "memory.offload=[master] memory.offload_least=0",
    "memory.offload=[params] memory.offload_least=0",
    "memory.loss_chunk=7",
    "precision.keep_weights=true",
    "moe.buffer=0.5 moe.buffer_least=1",
};
static const char *const grid_optimizers[] = {
    "optimizer.ema=0.9",
    "optimizer.clip=0.01 optimizer.weight_decay=0",
    "optimizer.name=sgd optimizer.momentum=0.5 optimizer.nesterov=true",
    "optimizer.embeddings.name=sgd optimizer.embeddings.lr_factor=0.5",
    "optimizer.vectors.name=lion optimizer.vectors.lr_factor=3",
    "optimizer.name=adafactor optimizer.adafactor.relative=true",
};
static const char *const grid_precisions[] = {
    "precision.recipe=bf16 precision.grad=bf16",
    "precision.recipe=bf16 precision.master=none",
    "precision.recipe=bf16 precision.master=none precision.round=nearest",
    "precision.recipe=bf16 precision.layers={layers.1.*: mxfp8}",
    "precision.recipe=fp8-block precision.block_scale=fp32",
    "precision.recipe=fp8-delayed precision.history=2 precision.margin=1",
    "precision.recipe=fp32 numerics.exact_order=true",
    "precision.recipe=bf16 numerics.accumulate=hopper-bf16",
    "precision.recipe=fp32 numerics.deterministic=false comm.algorithm=ring "
    "comm.ranks_per_host=2",
};
static const char *const grid_data[] = {
    "",
    "model.document_mask=true",
    "data.reset_positions=true data.mask_boundaries=true",
    "data.pack=padded data.group=2 data.window=16",
    "data.parts=2",
};
static const char *const grid_objectives[] = {
    "",
    "train.objective=dpo batch.micro=1",
    "train.objective=reward batch.micro=1 train.reward.centre=0.1",
    "train.objective=grpo train.grpo.tokens=6 train.grpo.group=2 "
    "train.grpo.reward=true train.grpo.updates=2 "
    "train.grpo.beta=0.1",
    "train.objective=grpo train.grpo.tokens=6 train.grpo.group=4 "
    "train.grpo.reward=true train.grpo.advantage=mean "
    "train.grpo.mean=tokens",
    "adapter.kind=lora adapter.targets=['*'] adapter.rank=4",
    "adapter.kind=dora adapter.rank=4 adapter.alpha=4 adapter.stabilised=true",
    "adapter.kind=lora adapter.base=nf4 adapter.rank=4",
    "train.only=['*norm*','*.weight'] train.freeze=['*embed*']",
    "model.dropout=0.1",
};
static const char *const grid_shapes[] = {
    "",
    "model.heads=2 model.kv_heads=1 model.head_dim=16",
    "model.kv_heads=2",
    "batch.global=7",
    "batch.micro=1",
    "batch.micro=3",
    "model.seq_len=13",
    "model.layers=5 model.vocab=301",
    "model.hidden=40 model.ffn=50",
};

/* Keys of the sections that decide about numbers which are in no level, and
 * why. */
static const struct {
    const char *why, *keys;
} grid_apart[] = {
    {"numbers in a formula, the same on every rank; a run's own tests have the "
     "formula",
     "train.dpo.beta train.grpo.clip train.grpo.clip_high optimizer.eps "
     "optimizer.betas optimizer.muon.momentum "
     "optimizer.muon.nesterov optimizer.adafactor.decay_rate "
     "optimizer.adafactor.clip precision.loss_scale.initial "
     "precision.loss_scale.grow_every precision.loss_scale.least"},
    {"when, not what: schedules are functions of the step (optim/test_lr)",
     "optimizer.schedule.name optimizer.schedule.warmup_steps "
     "optimizer.schedule.min_lr "
     "optimizer.schedule.decay_steps"},
    {"looks at numbers, and changes none in three steps", "precision.telemetry precision.fallback.after "
                                                          "precision.fallback.saturated precision.fallback.error "
                                                          "train.grpo.tell_every"},
    {"an order that is no one rank's (site/test_param_server)", "parallel.server_mode parallel.staleness"},
    {"a file (engine/test_pipeline.sh, train/test_offload_files.sh, cli/test_bench, "
     "train/test_adapters.sh)",
     "parallel.schedule_file memory.offload_to comm.table adapter.from"},
    {"how long, how often, how much at once", "comm.timeout_s comm.timeout_p2p_s comm.timeout_start_s comm.progress "
                                              "comm.link_GBps comm.link_latency_us "
                                              "comm.check comm.checksum memory.limit memory.check "
                                              "train.grpo.reward_limit_s train.grpo.reward_tries "
                                              "train.grpo.reward_pause_s train.grpo.stop train.grpo.at_once"},
};

/* Base levels are the first: one rank, AdamW, fp32. */
static inline void grid_open(struct grid *g)
{
    static const int order[GRID_FACTORS] = {GRID_SHAPE,     GRID_FAMILY, GRID_LAYOUT, GRID_MEMORY,   GRID_OPTIMIZER,
                                            GRID_PRECISION, GRID_CODEC,  GRID_DATA,   GRID_OBJECTIVE};
    *g = (struct grid){.factors = GRID_FACTORS, .names = grid_factor_names, .order = order, .a = arena_new()};
    for (int i = 0; i < N_FAMILIES; i++)
        grid_add(g, GRID_FAMILY, 0, arena_printf(g->a, "model.family=%s", families[i]));
    for (size_t i = 0; i < sizeof grid_layouts / sizeof *grid_layouts; i++)
        grid_add(g, GRID_LAYOUT, grid_layouts[i].ranks, grid_layouts[i].keys);
    for (int i = 0; schedule_kind_name(i); i++) {
        if (!strcmp(schedule_kind_name(i), "onestage")) continue; /* one rank: the base */
        grid_add(g, GRID_LAYOUT, 2, arena_printf(g->a, "parallel.pp=2 parallel.schedule=%s", schedule_kind_name(i)));
    }
    int first = g->n[GRID_LAYOUT];
    grid_add_words(g, GRID_LAYOUT, "parallel.cp=2 parallel.cp_algorithm=", grid_choices("parallel.cp_algorithm"), 0);
    for (int i = first; i < g->n[GRID_LAYOUT]; i++) g->of[GRID_LAYOUT][i].ranks = 2;
    for (size_t i = 0; i < sizeof grid_memory / sizeof *grid_memory; i++) grid_add(g, GRID_MEMORY, 0, grid_memory[i]);
    for (int i = 0; recompute_groups[i].name; i++)
        grid_add(g, GRID_MEMORY, 0, arena_printf(g->a, "memory.recompute=[%s]", recompute_groups[i].name));
    for (int k = 0; k < OPTIM_KINDS; k++)
        grid_add(g, GRID_OPTIMIZER, 0, arena_printf(g->a, "optimizer.name=%s", optim_rows[k].name));
    grid_add_words(g, GRID_OPTIMIZER, "optimizer.block=16 optimizer.moments=", OPTIM_MOMENTS, 1);
    for (size_t i = 0; i < sizeof grid_optimizers / sizeof *grid_optimizers; i++)
        grid_add(g, GRID_OPTIMIZER, 0, grid_optimizers[i]);
    grid_add(g, GRID_PRECISION, 0, "precision.recipe=fp32");
    grid_add_words(g, GRID_PRECISION, "precision.recipe=", RECIPE_WORDS, 0);
    for (size_t i = 0; i < sizeof grid_precisions / sizeof *grid_precisions; i++)
        grid_add(g, GRID_PRECISION, 0, grid_precisions[i]);
    grid_add(g, GRID_CODEC, 0, "");
    grid_add_words(g, GRID_CODEC, "comm.grad=", TRAVEL_NAMES, 1);
    grid_add_words(g, GRID_CODEC, "comm.param=", TRAVEL_NAMES, 1);
    for (size_t i = 0; i < sizeof grid_data / sizeof *grid_data; i++) grid_add(g, GRID_DATA, 0, grid_data[i]);
    grid_add(g, GRID_DATA, 0, "data.pack=best_fit data.window=16");
    for (size_t i = 0; i < sizeof grid_objectives / sizeof *grid_objectives; i++)
        grid_add(g, GRID_OBJECTIVE, 0, grid_objectives[i]);
    for (size_t i = 0; i < sizeof grid_shapes / sizeof *grid_shapes; i++) grid_add(g, GRID_SHAPE, 0, grid_shapes[i]);
}

static inline void grid_close(struct grid *g) { arena_free(g->a); }

/* The words of a row; returns how many. */
static inline int grid_words(const struct grid *g, struct arena *a, const int *row, char **words, int most)
{
    int n = add_words(words, 0, most, a,
                      "model.layers=4 model.hidden=32 model.heads=4 model.ffn=48 "
                      "model.vocab=264 model.seq_len=16 "
                      "run.threads=1 batch.global=8 batch.micro=2 "
                      "optimizer.lr=1e-3 comm.timeout_s=60 "
                      "data.train=x.txt run.steps=100");
    for (int i = 0; i < g->factors; i++) {
        /* Words with blanks stand in brackets: one word. */
        const char *t = g->of[g->order[i]][row[g->order[i]]].keys;
        while (*t) {
            size_t k = 0;
            int depth = 0;
            for (; t[k] && (t[k] != ' ' || depth); k++)
                depth += (t[k] == '{' || t[k] == '[') - (t[k] == '}' || t[k] == ']');
            CHECK(n < most, "more than %d words", most);
            words[n++] = arena_printf(a, "%.*s", (int)k, t);
            t += k + (t[k] == ' ');
        }
    }
    return n;
}

/* "parallel.tp=2, optimizer.name=muon": what is not at its base. */
static inline const char *grid_say(const struct grid *g, struct arena *a, const int *row)
{
    const char *out = g->of[0][row[0]].keys;
    for (int f = 1; f < g->factors; f++)
        if (row[f]) out = arena_printf(a, "%s | %s", out, g->of[f][row[f]].keys);
    return out;
}

#endif
