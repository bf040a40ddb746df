/* SPDX-License-Identifier: Apache-2.0 */
/* layouts.h: what test_losses.c trains: families and layouts, each a list of config keys over those of a toy of odd
 * sizes. A row that is changed, or added, is recorded anew (README.md). Includes nothing. Order: Local.
 */
#ifndef TUTTI_TESTS_GOLDEN_LAYOUTS_H
#define TUTTI_TESTS_GOLDEN_LAYOUTS_H

#include <stddef.h>

enum { ROW_KEYS = 32 };
struct row {
    const char *name;
    int ranks;
    const char *key[ROW_KEYS];
};

/* clang-format off */
static const char *const toy_keys[] = {
    "model.layers=2", "model.hidden=16", "model.heads=4", "model.kv_heads=2", "model.ffn=20", "model.vocab=37", "model.seq_len=10",
    "batch.global=8", "batch.micro=2", "optimizer.lr=0.01", "optimizer.schedule.warmup_steps=4", "optimizer.clip=0.5",
    "precision.recipe=fp32", "run.steps=20", "run.threads=1", "comm.timeout_s=60",
};
/* clang-format on */

#define GPT2 "model.family=gpt2", "model.kv_heads=4", "model.tie_embeddings=true"
#define DROPS "model.dropout=0.1"
#define MIXTRAL "model.family=mixtral", "model.ffn=18", "model.moe.experts=4", "model.moe.z=0.01"
#define DEEPSEEK                                                                                                       \
    "model.family=deepseek", "model.kv_heads=4", "model.moe.experts=6", "model.moe.top_k=3", "model.moe.ffn=14",       \
        "model.moe.shared=1", "model.moe.first_dense=1", "model.moe.score=sigmoid", "model.moe.groups=3",              \
        "model.moe.top_groups=2", "model.moe.group_pairs=true", "model.moe.bias=true", "model.moe.bias_speed=0.01",    \
        "model.mla.q_rank=14", "model.mla.kv_rank=10", "model.mla.nope_dim=7", "model.mla.rope_dim=6",                 \
        "model.mla.value_dim=9"
#define FOUR "model.layers=4"
#define PP2(kind) "parallel.pp=2", "parallel.schedule=" kind

/* clang-format off */
static const struct row layout_rows[] = {
    {"llama", 1, {"model.tie_embeddings=true"}},
    {"gpt2 dropout", 1, {GPT2, DROPS}},
    {"mixtral", 1, {MIXTRAL}},
    {"deepseek", 1, {DEEPSEEK}},
    {"llama bf16", 1, {"precision.recipe=bf16"}},
    {"gpt2 bf16 gradients bf16 recompute dropout", 1, {GPT2, DROPS, "precision.recipe=bf16", "precision.grad=bf16", "memory.recompute=full"}},
    {"llama documents, scaled rope, chunks of the loss, 2 threads", 1,
     {"model.document_mask=true", "model.rope_scaling.factor=4", "model.rope_scaling.original_max_position=8", "memory.loss_chunk=7",
      "run.threads=2"}},
    {"llama sgd nesterov no clip wsd", 1,
     {"optimizer.name=sgd", "optimizer.nesterov=true", "optimizer.clip=0", "optimizer.schedule.name=wsd", "optimizer.schedule.decay_steps=6"}},
    {"mixtral recompute capacity", 1, {MIXTRAL, "memory.recompute=full", "model.moe.capacity=0.8", "model.moe.aux_scope=microbatch"}},

    {"llama dp2", 2, {NULL}},
    {"gpt2 dp3 zero1 dropout", 3, {GPT2, DROPS, "parallel.zero=1"}},
    {"llama dp4 replicate2 zero2", 4, {"parallel.zero=2", "parallel.dp_replicate=2"}},
    {"llama dp3 zero3, 7 sequences", 3, {"parallel.zero=3", "batch.global=7"}},
    {"llama dp2 zero2 reduced once", 2, {"parallel.zero=2", "parallel.reduce=step"}},
    {"gpt2 dp4 replicate2 zero3 bf16 gradients bf16", 4,
     {GPT2, "parallel.zero=3", "parallel.dp_replicate=2", "precision.recipe=bf16", "precision.grad=bf16"}},
    {"llama dp4 zero1 exact order", 4, {"parallel.zero=1", "numerics.exact_order=true"}},
    {"llama dp4 two hosts", 4, {"comm.ranks_per_host=2"}},

    {"llama tp2", 2, {"parallel.tp=2"}},
    {"gpt2 tp2 sequence dropout", 2, {GPT2, DROPS, "parallel.tp=2", "parallel.sequence_parallel=true"}},
    {"llama tp3 sequence in pieces", 3, {"parallel.tp=3", "parallel.sequence_parallel=true", "parallel.tp_overlap=2"}},
    {"llama tp2 dp2 zero3 bf16", 4, {"parallel.tp=2", "parallel.zero=3", "precision.recipe=bf16"}},

    {"llama cp2 ring", 2, {"parallel.cp=2"}},
    {"gpt2 cp3 all_gather dropout", 3, {GPT2, DROPS, "parallel.cp=3", "parallel.cp_algorithm=all_gather"}},
    {"llama cp2 all_to_all documents", 2, {"parallel.cp=2", "parallel.cp_algorithm=all_to_all", "model.document_mask=true"}},
    {"llama cp4 two_level", 4, {"parallel.cp=4", "parallel.cp_algorithm=two_level"}},
    {"llama cp2 tp2 sequence bf16", 4, {"parallel.cp=2", "parallel.tp=2", "parallel.sequence_parallel=true", "precision.recipe=bf16"}},

    {"llama pp2 naive", 2, {FOUR, PP2("naive")}},
    {"llama pp2 gpipe", 2, {FOUR, PP2("gpipe")}},
    {"gpt2 pp3 1f1b dropout", 3, {GPT2, DROPS, FOUR, "parallel.pp=3", "parallel.schedule=1f1b"}},
    {"llama pp2 interleaved", 2, {FOUR, PP2("interleaved"), "parallel.chunks=2"}},
    {"llama pp2 zbh1", 2, {FOUR, PP2("zbh1")}},
    {"llama pp2 zbh2 recompute", 2, {FOUR, PP2("zbh2"), "memory.recompute=full"}},
    {"llama pp2 zbv bf16", 2, {FOUR, PP2("zbv"), "precision.recipe=bf16"}},
    {"llama pp2 dualpipe", 2, {FOUR, PP2("dualpipe")}},
    {"llama pp2 dualpipev", 2, {FOUR, PP2("dualpipev")}},
    {"llama pp2 dp2 dualpipe zero2", 4, {FOUR, PP2("dualpipe"), "parallel.zero=2", "batch.micro=1"}},
    {"gpt2 dp2 tp2 pp2 zero1 sequence dropout", 8,
     {GPT2, DROPS, "parallel.tp=2", "parallel.pp=2", "parallel.zero=1", "parallel.sequence_parallel=true"}},

    {"mixtral dp2 ep2 zero1", 2, {MIXTRAL, "parallel.ep=2", "parallel.zero=1"}},
    {"mixtral tp2 sequence ep2 etp1", 2, {MIXTRAL, "parallel.tp=2", "parallel.sequence_parallel=true", "parallel.ep=2", "parallel.etp=1"}},
    {"mixtral tp2 dp2 ep2", 4, {MIXTRAL, "parallel.tp=2", "parallel.ep=2"}},
    {"mixtral tp4 ep2 etp2 bf16", 4, {MIXTRAL, "parallel.tp=4", "parallel.ep=2", "parallel.etp=2", "precision.recipe=bf16"}},
    {"deepseek cp2 ep2 zero3", 2, {DEEPSEEK, "parallel.cp=2", "parallel.ep=2", "parallel.zero=3"}},
    {"deepseek dp2 pp2 ep2 zero2 capacity", 4, {DEEPSEEK, "model.moe.capacity=0.6", "parallel.ep=2", "parallel.pp=2", "parallel.zero=2"}},

    {"llama 2 workers 1 server", 3, {"parallel.servers=1"}},
    {"gpt2 2 workers 2 servers bf16 dropout", 4, {GPT2, DROPS, "parallel.servers=2", "precision.recipe=bf16"}},

    {"deepseek tp2 dp2 zero2 sgd, embeddings and vectors by adamw", 4,
     {DEEPSEEK, "parallel.tp=2", "parallel.zero=2", "optimizer.name=sgd", "optimizer.momentum=0", "optimizer.embeddings.name=adamw",
      "optimizer.embeddings.lr_factor=0.5", "optimizer.vectors.name=adamw"}},
    {"llama dp2 tp2 zero2 lion bf16", 4,
     {"parallel.tp=2", "parallel.zero=2", "optimizer.name=lion", "optimizer.lr=0.001", "precision.recipe=bf16"}},
    {"mixtral tp2 dp2 ep2 zero2 muon", 4,
     {MIXTRAL, "parallel.tp=2", "parallel.ep=2", "parallel.zero=2", "optimizer.name=muon"}},
};
/* clang-format on */
enum { N_ROWS = (int)(sizeof layout_rows / sizeof layout_rows[0]) };

/* Through the trainer: text, tokens, validation, a checkpoint in the middle, and a second start from there as
 * `again`. */
struct run_row {
    const char *name;
    int ranks;
    const char *key[ROW_KEYS];
    int ranks_again;
    const char *again[8];
};
/* clang-format off */
static const struct run_row run_rows[] = {
    {"run: gpt2, then dp2 zero3", 1, {GPT2, DROPS}, 2, {"parallel.zero=3"}},
    {"run: llama dp2 tp2, then pp2 bf16", 4, {"parallel.tp=2", "precision.recipe=bf16"}, 2, {"parallel.tp=1", "parallel.pp=2"}},
    {"run: deepseek dp2 ep2, then tp2", 2, {DEEPSEEK, "parallel.ep=2", "parallel.zero=1"}, 2, {"parallel.tp=2", "parallel.ep=1", "parallel.zero=0"}},
    {"run: llama 1 worker 1 server, async", 2, {"parallel.servers=1", "parallel.server_mode=async"}, 2, {NULL}},
};
/* clang-format on */
enum { N_RUNS = (int)(sizeof run_rows / sizeof run_rows[0]) };

#endif
