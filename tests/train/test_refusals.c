/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* Every layout that is refused, before anything starts: the refusal begins with the key to change, gives the reason,
 * and what it advises is accepted. Beside them layouts that look odd and are legal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/cli.h"
#include "config/config.h"
#include "config/config_optim.h"
#include "config/needs.h"

#define DENSE "model.layers=4 model.hidden=32 model.heads=4 model.seq_len=8 batch.global=8 batch.micro=1 "
#define CHUNKS "model.vocab=1048576 memory.check=false "
#define EXPERTS DENSE "model.family=mixtral model.moe.experts=5 "
#define BIAS                                                                                                           \
    DENSE "model.family=deepseek model.moe.experts=4 model.moe.bias=true model.mla.kv_rank=4 model.mla.nope_dim=4 "    \
          "model.mla.rope_dim=2 model.mla.value_dim=4 "
#define EXACT DENSE "numerics.exact_order=true "
#define HYBRID                                                                                                         \
    "model.family=nemotron_h model.hidden=32 model.heads=4 model.seq_len=8 batch.global=8 batch.micro=1 "              \
    "model.ssm.heads=6 model.ssm.groups=3 model.ssm.head_dim=4 model.ssm.state=4 "
#define PIPE "parallel.schedule="
#define SERVERS DENSE "parallel.servers=1 "
#define LAYERS DENSE "precision.layers="
#define BLOCKS                                                                                                         \
    "model.layers=1 model.hidden=192 model.heads=12 model.ffn=192 model.seq_len=96 batch.global=4 batch.micro=1 "

struct refusal {
    const char *keys;
    int ranks;
    const char *key, *reason; /* what the text begins with, after the place; a part of it */
    const char *cure;         /* more keys; NULL: there is none but another number of ranks */
    int cure_ranks;           /* 0: the same */
};

/* clang-format off */
static const struct refusal refusals[] = {
    /* degrees and ranks */
    {DENSE "parallel.cp=3", 4, "parallel.cp", "3 ranks do not divide the 4 there are; choose 2, or start 3", "parallel.cp=2", 0},
    {DENSE "parallel.cp=3", 4, "parallel.cp", "start 3", "", 3},
    {DENSE "parallel.tp=2 parallel.cp=3", 4, "parallel.cp", "times 2 along the other axes", "parallel.cp=2", 0},
    {DENSE "parallel.tp=3", 8, "parallel.tp", "choose 2, or start 3", "parallel.tp=2", 0},
    {DENSE "parallel.pp=3", 4, "parallel.pp", "choose 2", "parallel.pp=2", 0},
    {DENSE "parallel.dp_replicate=3", 4, "parallel.dp_replicate", "choose 2", "parallel.dp_replicate=2", 0},
    {DENSE "parallel.dp_shard=3", 4, "parallel.dp_shard", "choose 4, or start 3", "parallel.dp_shard=4", 0},
    {DENSE "parallel.dp_shard=2 parallel.tp=3", 4, "parallel.tp", "choose 2, or start 6", "parallel.tp=2", 0},
    {DENSE "parallel.dp_shard=2 parallel.tp=3", 4, "parallel.tp", "start 6", "", 6},
    {DENSE "parallel.tp=3 parallel.pp=3", 4, "parallel.pp", "choose tp: 2, pp: 2, or start 9", "parallel.tp=2 parallel.pp=2", 0},
    {DENSE "parallel.tp=2", 1, "parallel.tp", "start 2 ranks (-n)", "", 2},
    {DENSE "parallel.tp=0", 4, "parallel.tp", "wanted 1 or more, or -1", "parallel.tp=1", 0},
    {DENSE "parallel.tp=-1 parallel.cp=-1", 4, "parallel.tp", "parallel.cp does; choose 1", "parallel.tp=1", 0},
    {DENSE "parallel.tp=8192", 8192, "parallel.tp", "at most 4096; choose 4096 and", "parallel.tp=4096", 0},
    {DENSE "parallel.dp_shard=1 parallel.tp=8192", 8192, "parallel.tp", "parallel.dp_shard: 2", "parallel.tp=4096 parallel.dp_shard=2", 0},
    {DENSE "parallel.dp_shard=1 parallel.cp=9", 9, "parallel.cp", "choose 3 and parallel.dp_shard: 3", "parallel.cp=3 parallel.dp_shard=3", 0},
    {EXPERTS "parallel.ep=128 parallel.tp=128 parallel.etp=64 model.moe.experts=128", 16384, "parallel.ep", "at most 4096",
     "parallel.ep=64", 0},
    /* optimizers */
    {DENSE "optimizer.eps=0", 1, "optimizer.eps", "choose 1.0e-8", "optimizer.eps=1e-8", 0},
    {DENSE "optimizer.name=sgd optimizer.vectors.name=adamw optimizer.eps=0", 1, "optimizer.eps", "0 by 0", "optimizer.vectors.name=same", 0},
    /* context */
    {DENSE "parallel.cp=9", 9, "parallel.cp", "without a token of model.seq_len = 8; choose 3 and", "parallel.cp=3", 0},
    {DENSE "parallel.cp=4 parallel.cp_inner=2", 4, "parallel.cp_inner", "two_level", "parallel.cp_algorithm=two_level", 0},
    {DENSE "parallel.cp=4 parallel.cp_inner=2", 4, "parallel.cp_inner", "or 0", "parallel.cp_inner=0", 0},
    {DENSE "parallel.cp=4 parallel.cp_algorithm=two_level parallel.cp_inner=3", 4, "parallel.cp_inner", "nearest that does is 2", "parallel.cp_inner=2", 0},
    {DENSE "parallel.cp=6 parallel.cp_algorithm=two_level parallel.cp_inner=9", 6, "parallel.cp_inner", "nearest that does is 6", "parallel.cp_inner=6", 0},
    {DENSE "parallel.cp=2048 parallel.cp_algorithm=all_to_all model.seq_len=4096", 2048, "parallel.cp_algorithm", "at most 1024", "parallel.cp_algorithm=two_level", 0},
    /* hybrids */
    {HYBRID "model.pattern=M-M* model.layers=3", 1, "model.layers", "model.pattern names 4 layers", "model.layers=4", 0},
    {HYBRID "model.pattern=M-M* model.layers=3", 1, "model.layers", "or choose 4", "model.layers=7", 0},
    {HYBRID "model.pattern=-*", 1, "model.pattern", "no state space", "model.pattern=-*M", 0},
    {HYBRID "parallel.tp=4", 4, "parallel.tp", "4 ranks share out 3 groups", "parallel.tp=2", 0},
    {HYBRID "model.kv_heads=3", 1, "model.kv_heads", "nearest that does is 2", "model.kv_heads=2", 0},
    {HYBRID "parallel.cp=2 model.document_mask=true parallel.cp_balance=area", 2, "parallel.cp_balance", "a state goes on", "parallel.cp_balance=auto", 0},
    /* experts */
    {EXPERTS "parallel.ep=3", 4, "parallel.ep", "nearest that does is 2", "parallel.ep=2", 0},
    {EXPERTS "parallel.ep=8", 8, "parallel.ep", "5 experts; the nearest that fits is 4", "parallel.ep=4", 0},
    {EXPERTS "parallel.ep=0", 4, "parallel.ep", "or -1", "parallel.ep=-1", 0},
    {EXPERTS "parallel.tp=4 parallel.etp=3", 4, "parallel.etp", "does not divide parallel.tp = 4", "parallel.etp=2", 0},
    {EXPERTS "parallel.tp=2 parallel.etp=4", 4, "parallel.etp", "nearest that does is 2", "parallel.etp=2", 0},
    {EXPERTS "parallel.tp=4 parallel.etp=2 parallel.ep=4", 4, "parallel.ep", "ep x etp = 4 x 2 must divide", "parallel.ep=2", 0},
    {EXPERTS "parallel.tp=2 parallel.ep=4", 4, "parallel.ep", "ep x etp = 4 x 2", "parallel.ep=2", 0},
    {DENSE "parallel.ep=2", 2, "parallel.ep", "no experts", "parallel.ep=1", 0},
    /* pipelines */
    {DENSE PIPE "gpip parallel.pp=4", 4, "parallel.schedule", "did you mean 'gpipe'", PIPE "gpipe", 0},
    {DENSE PIPE "onestage parallel.pp=4", 4, "parallel.schedule", "choose 1f1b", PIPE "1f1b", 0},
    {DENSE PIPE "1f1b parallel.pp=4 parallel.chunks=2", 4, "parallel.chunks", "choose 1", "parallel.chunks=1", 0},
    {DENSE PIPE "interleaved parallel.pp=2 parallel.chunks=1", 2, "parallel.chunks", "choose 2", "parallel.chunks=2", 0},
    {DENSE PIPE "interleaved parallel.pp=2 parallel.chunks=4", 2, "parallel.chunks", "nearest that fits is 3", "parallel.chunks=3", 0},
    {DENSE PIPE "interleaved parallel.pp=2 parallel.round=9", 2, "parallel.round", "choose 1 to 8", "parallel.round=8", 0},
    {DENSE PIPE "gpipe parallel.pp=2 parallel.round=4", 2, "parallel.round", "choose 0", "parallel.round=0", 0},
    {DENSE "parallel.pp=1 parallel.round=4", 1, "parallel.round", "choose 0", "parallel.round=0", 0},
    {DENSE PIPE "dualpipe parallel.pp=3", 3, "parallel.pp", "the nearest that fits is 2 (-n 2) or 4", "parallel.pp=2", 2},
    {DENSE PIPE "dualpipe parallel.pp=4 batch.global=3", 4, "batch.global", "choose 8", "batch.global=8", 0},
    {DENSE PIPE "dualpipe parallel.pp=4 batch.global=18 batch.micro=2", 4, "batch.global", "choose 16 or 20", "batch.global=20", 0},
    {DENSE PIPE "zbv parallel.pp=4", 4, "parallel.pp", "4 layers are too few for 8 stages", "parallel.pp=3", 3},
    {DENSE "parallel.pp=8", 8, "parallel.pp", "nearest that fits is 6", "parallel.pp=6", 6},
    {DENSE "parallel.pp=2 parallel.pp_layers=[1,1,2]", 2, "parallel.pp_layers", "3 numbers of layers for 2 stages", "parallel.pp_layers=[2,2]", 0},
    {DENSE "parallel.pp=2 parallel.pp_layers=[1,1]", 2, "parallel.pp_layers", "2 layers together, the model has 4", "parallel.pp_layers=[1,3]", 0},
    {DENSE "parallel.pp=3 parallel.pp_layers=[2,0,2]", 3, "parallel.pp_layers", "only the first (embedding) and the last (head) may", "parallel.pp_layers=[0,2,2]", 0},
    {DENSE "parallel.tp_overlap=9", 1, "parallel.tp_overlap", "from 2 to 8", "parallel.tp_overlap=8", 0},
    {DENSE "batch.micro=9", 1, "batch.micro", "choose at most 8", "batch.micro=8", 0},
    {DENSE "batch.global=16777216", 1, "batch.micro", "choose at least 1024", "batch.micro=1024", 0},
    /* recipes of fewer bits */
    {LAYERS "{\"layers.0.*\":fp32}", 1, "precision.layers[0].recipe", "fp32 in some layers of a model in bf16", "precision.layers={\"layers.0.*\":bf16}", 0},
    {LAYERS "{\"layers.0.*\":fp8-current} precision.recipe=fp32", 1, "precision.layers[0].recipe", "fp8-current in some layers of a model in fp32", "precision.recipe=bf16", 0},
    {LAYERS "{\"layers.0.*\":bf16} precision.recipe=fp16", 1, "precision.layers[0].recipe", "bf16 in some layers of a model in fp16", "precision.recipe=bf16", 0},
    {SERVERS "precision.recipe=fp8-delayed", 3, "precision.recipe", "no steps in common; choose fp8-current, or parallel.servers: 0", "precision.recipe=fp8-current", 0},
    {SERVERS "precision.layers={\"layers.0.*\":bf16,\"layers.1.*\":fp8-delayed,\"layers.2.*\":mxfp8}", 3, "precision.layers[1].recipe", "give these layers fp8-current, or choose parallel.servers: 0", "parallel.servers=0", 0},
    {DENSE "precision.recipe=fp8-current parallel.tp=2 parallel.tp_overlap=2", 2, "parallel.tp_overlap", "not cut into pieces", "parallel.tp_overlap=off", 0},
    {BLOCKS "precision.recipe=mxfp8 parallel.tp=4 parallel.dp_shard=1", 4, "parallel.tp", "blocks of 32 of the ", "parallel.tp=2", 2},
    {BLOCKS "precision.recipe=mxfp8 parallel.tp=4 parallel.dp_shard=1", 4, "parallel.tp", "each with 48 of them", "precision.recipe=fp8-current", 0},
    {BLOCKS "precision.recipe=fp8-block parallel.tp=2", 2, "parallel.tp", "blocks of 128 of the ", "parallel.tp=1", 1},
    {BLOCKS "precision.recipe=mxfp8 parallel.cp=2", 2, "parallel.cp", "blocks of 32 of the tokens", "parallel.cp=1", 1},
    {BLOCKS "precision.recipe=mxfp8 parallel.cp=4 model.seq_len=128", 4, "parallel.cp", "choose 2 (-n 2)", "parallel.cp=2", 2},
    {BLOCKS "precision.layers={\"*.attn.*\":mxfp8} parallel.tp=4 parallel.dp_shard=1", 4, "parallel.tp", "or precision.recipe: fp8-current and precision.layers: {}", "precision.layers={\"*.attn.*\":fp8-current}", 0},
    {DENSE "precision.layers={\"*\":fp8-current} parallel.tp=2 parallel.tp_overlap=2", 2, "parallel.tp_overlap", "and precision.layers: {}", "parallel.tp_overlap=off", 0},
    /* servers */
    {DENSE "parallel.servers=4", 4, "parallel.servers", "at most 3", "parallel.servers=3", 0},
    {SERVERS "parallel.dp_shard=4", 4, "parallel.dp_shard", "3 workers there are (4 ranks, 1 servers); choose 3, or start 5", "parallel.dp_shard=3", 0},
    {SERVERS "parallel.dp_shard=4", 4, "parallel.dp_shard", "start 5", "", 5},
    {SERVERS "parallel.server_mode=async run.trace=t.json", 4, "run.trace", "no steps in common; choose parallel.server_mode: sync", "parallel.server_mode=sync", 0},
    {SERVERS "parallel.tp=3", 4, "parallel.tp", "whole model", "parallel.tp=1", 0},
    {SERVERS "parallel.cp=3", 4, "parallel.cp", "whole sequences", "parallel.cp=1", 0},
    {SERVERS "parallel.pp=3", 4, "parallel.pp", "or parallel.servers: 0 (-n 3)", "parallel.servers=0", 3},
    {EXPERTS "parallel.servers=1 parallel.ep=3", 4, "parallel.ep", "whole model", "parallel.ep=1", 0},
    {SERVERS "parallel.dp_replicate=3", 4, "parallel.dp_replicate", "alike", "parallel.dp_replicate=1", 0},
    {SERVERS "parallel.zero=1", 4, "parallel.zero", "none to share out", "parallel.zero=0", 0},
    {SERVERS "precision.grad=bf16", 4, "precision.grad", "fp32", "precision.grad=fp32", 0},
    {SERVERS "numerics.exact_order=true", 4, "numerics.exact_order", "choose false", "numerics.exact_order=false", 0},
    {BIAS "parallel.servers=1", 4, "model.moe.bias_speed", "no loads", "model.moe.bias_speed=0", 0},
    /* what travels in fewer bits */
    /* sums of floats in another order than the ranks' */
    {DENSE "comm.algorithm=ring", 4, "comm.algorithm", "ring adds floats in an order of its own", "numerics.deterministic=false", 0},
    {DENSE "comm.algorithm=halving", 3, "comm.algorithm", "choose numerics.deterministic: false, or direct, gather or auto", "comm.algorithm=direct", 0},
    {DENSE "comm.algorithm=tree", 4, "comm.algorithm", "promises that of the ranks", "comm.algorithm=gather", 0},
    {DENSE "comm.algorithm=two_level", 4, "comm.algorithm", "or direct, gather or auto", "comm.algorithm=auto", 0},
    {DENSE "comm.algorithm=native", 4, "comm.algorithm", "native adds floats", "", 2}, /* two have one order */
    {DENSE "comm.grad=fp32 precision.grad=bf16", 2, "comm.grad", "wider than what is sent, bf16 (precision.grad)", "comm.grad=kept", 0},
    {DENSE "comm.param=fp32 precision.recipe=bf16", 2, "comm.param", "wider than what is sent, bf16 (precision.recipe)", "comm.param=kept", 0},
    {DENSE "comm.param=fp32 precision.recipe=fp16", 2, "comm.param", "wider than what is sent, f16 (precision.recipe)", "comm.param=int8", 0},
    {DENSE "comm.param=bf16 precision.recipe=fp16", 2, "comm.param", "as wide as what is sent, fp16 (precision.recipe)", "comm.param=fp8", 0},
    {SERVERS "comm.grad=int8", 3, "comm.grad", "a parameter server and comes from it is not encoded", "comm.grad=kept", 0},
    {SERVERS "comm.param=fp8 precision.recipe=bf16", 3, "comm.param", "parallel.servers: 0", "parallel.servers=0", 0},
    {SERVERS "comm.grad=bf16 comm.param=fp8-e5m2", 3, "comm.grad", "choose kept and comm.param: kept", "comm.grad=kept comm.param=kept", 0},
    {EXACT "comm.grad=bf16", 2, "comm.grad", "the bits of one rank", "comm.grad=kept", 0},
    {EXACT "comm.param=int8 precision.recipe=bf16", 2, "comm.param", "the bits of one rank", "numerics.exact_order=false", 0},
    {EXACT "comm.grad=bf16 comm.param=bf16 precision.recipe=fp32", 2, "comm.grad", "choose kept and comm.param: kept", "comm.grad=kept comm.param=kept", 0},
    {DENSE "comm.param=fp8 precision.recipe=fp32 parallel.zero=1", 2, "comm.param", "their own masters, and at zero 1", "parallel.zero=3", 0},
    {DENSE "comm.param=int8 precision.recipe=fp32 parallel.zero=2", 2, "comm.param", "their own masters, and at zero 2", "precision.recipe=bf16", 0},
    {DENSE "comm.param=fp8 precision.recipe=bf16 precision.master=none parallel.zero=1", 2, "comm.param", "or precision.master: fp32", "precision.master=fp32", 0},
    {DENSE "comm.param=bf16 precision.recipe=fp32 parallel.zero=2 parallel.cp=2", 2, "comm.param", "their own masters", "comm.param=kept", 0},
    /* exact order */
    {EXACT, 3, "parallel.dp_shard", "choose parallel.dp_shard: 2 (-n 2), or parallel.dp_shard: 4 (-n 4), or numerics", "", 4},
    {EXACT "parallel.dp_replicate=6", 6, "parallel.dp_replicate", "dp_replicate: 4 (-n 4), or parallel.dp_replicate: 8 (-n 8), or", "parallel.dp_replicate=4", 4},
    {EXACT "parallel.dp_shard=3 parallel.dp_replicate=2 parallel.tp=2", 12, "parallel.dp_shard", "choose parallel.dp_shard: 2 (-n 8), or parallel.dp_shard: 4 (-n 16)", "parallel.dp_shard=4", 16},
    {EXACT "parallel.dp_shard=3 parallel.dp_replicate=3", 9, "parallel.dp_replicate", "dp_replicate: 2 and parallel.dp_shard: 2 (-n 4)", "parallel.dp_shard=2 parallel.dp_replicate=2", 4},
    {EXACT "batch.global=6", 3, "parallel.dp_shard", "choose parallel.dp_shard: 2 (-n 2), or numerics", "", 2},
    {EXACT "batch.global=7", 3, "parallel.dp_shard", "choose parallel.dp_shard: 1 (-n 1), or numerics", "", 1},
    {EXACT "batch.global=7 batch.micro=2", 3, "parallel.dp_shard", "data-parallel ranks, got 3; choose numerics.exact_order: false", "numerics.exact_order=false", 0},
    {EXACT "parallel.dp_shard=1 parallel.pp=2", 2, "parallel.pp", "choose 1 (-n 1), or batch", "parallel.pp=1", 1},
    {EXACT "batch.global=12 batch.micro=5", 2, "batch.micro", "nearest that fits is 6", "batch.micro=6", 0},
    {EXACT "parallel.pp=2 batch.global=6 parallel.dp_shard=4", 8, "batch.global", "got 6 sequences; choose 4", "batch.global=4", 0},
    {EXACT "parallel.cp=2", 2, "parallel.cp", "sums over parts of them; choose 1", "parallel.cp=1", 0},
    {EXACT "parallel.cp=2", 2, "parallel.cp", "numerics.exact_order: false", "numerics.exact_order=false", 0},
    {EXACT PIPE "gpipe", 1, "parallel.schedule", "gpipe does not; choose auto, or", PIPE "auto", 0},
    {EXACT PIPE "interleaved parallel.chunks=2", 2, "parallel.schedule", "choose auto and parallel.chunks: 0", PIPE "auto parallel.chunks=0", 0},
    {EXACT PIPE "dualpipev parallel.pp=2", 2, "parallel.pp", "choose 1 and parallel.schedule: auto (-n 1), or", "parallel.pp=1 " PIPE "auto", 1},
    {EXACT PIPE "interleaved parallel.pp=2", 2, "parallel.pp", "or batch.global: 1 and parallel.schedule: auto", "batch.global=1 " PIPE "auto", 0},
    {EXACT PIPE "zbv parallel.pp=2 batch.global=1", 2, "parallel.schedule", "zbv does not", PIPE "auto", 0},
    {EXACT PIPE "1f1b parallel.pp=2", 2, "parallel.pp", "choose 1 (-n 1)", "parallel.pp=1", 1},
    {EXPERTS "numerics.exact_order=true parallel.ep=2", 2, "parallel.ep", "choose 1", "parallel.ep=1", 0},
    {EXPERTS "numerics.exact_order=true parallel.tp=2 parallel.etp=1", 4, "parallel.etp", "choose 2", "parallel.etp=2", 0},
    {EXPERTS "numerics.exact_order=true parallel.tp=4 parallel.etp=2", 4, "parallel.etp", "choose 4", "parallel.etp=4", 0},
    {EXACT "precision.grad=bf16", 2, "precision.grad", "choose fp32", "precision.grad=fp32", 0},
    {EXACT "batch.micro=3", 2, "batch.micro", "nearest that fits is 2", "batch.micro=2", 0},
    {EXACT "batch.micro=4", 4, "batch.micro", "nearest that fits is 2", "batch.micro=2", 0},
    {EXACT "batch.global=6", 4, "batch.global", "choose 4 or 8", "batch.global=8", 0},
    {EXACT "parallel.pp=2", 2, "parallel.pp", "batch.global: 1 (one", "batch.global=1", 0},
    {DENSE "model.family=t5 model.encoder_len=4 parallel.tp=8", 8, "parallel.tp", "share out 4 heads of t5", "parallel.tp=4", 0},
    {EXACT "parallel.pp=2", 2, "parallel.pp", "choose 1", "parallel.pp=1", 0},
    /* chunks of the loss: of 64 tokens where the vocabulary is that large */
    {DENSE CHUNKS "model.seq_len=65536 batch.micro=32 batch.global=480", 1, "batch.micro", "choose at most 15 (or", "batch.micro=15", 0},
    {DENSE CHUNKS "model.seq_len=2097152 batch.global=1", 1, "model.seq_len", "choose at most 1048575", "model.seq_len=1048575", 0},
    {DENSE CHUNKS "model.seq_len=4194304 batch.global=2 batch.micro=2 parallel.cp=2", 2, "model.seq_len", "choose at most 1048574", "model.seq_len=1048574", 0},
};

/* Patterns that name what cannot be had: the cure is another pattern, which only the reader can choose. */
static const struct refusal patterns[] = {
    {DENSE "adapter.kind=lora adapter.targets=[q_proj]", 1, "adapter.targets", "choose some of [q, k, v, o, ", "adapter.targets=[q,o]", 0},
    {DENSE "adapter.kind=lora adapter.base=nf4 parallel.tp=2", 2, "adapter.base", "choose adapter.base: none, or parallel.tp: 1 (-n 1)", "parallel.tp=1", 1},
    {DENSE "train.freeze=[layers.9.*]", 1, "train.freeze", "choose names such as ", "train.freeze=[layers.1.*]", 0},
    {LAYERS "{\"layers.9.*\":fp8-current}", 1, "precision.layers[0].layers", "'layers.9.*' names no matrix of a layer; one is layers.", "precision.layers={\"layers.3.*\":fp8-current}", 0},
    {LAYERS "{\"layers.*\":mxfp8,\"layers.0.mlp.dwn.weight\":bf16}", 1, "precision.layers[1].layers", "one is layers.0.mlp.down.weight", "precision.layers={\"layers.0.mlp.down.weight\":bf16}", 0},
    {LAYERS "{\"layers.0.attn.norm.weight\":bf16}", 1, "precision.layers[0].layers", "names no matrix of a layer", "precision.layers={}", 0},
    {LAYERS "{\"*.q.weight\":fp8-current}", 1, "precision.layers[0].layers", "'*.q.weight' names 1 of the 3 parameters that make one product, layers.0.attn.q.weight", "precision.layers={\"*.[qkv].weight\":fp8-current}", 0},
    {LAYERS "{\"layers.1.mlp.up.weight\":fp8-current}", 1, "precision.layers[0].layers", "1 of the 2", "precision.layers={\"layers.1.mlp.[gu]*.weight\":fp8-current}", 0},
    {LAYERS "{\"head*\":fp8-current} model.tie_embeddings=false", 1, "precision.layers[0].layers", "names the head or a router, which stay in bf16", "precision.layers={\"*\":fp8-current}", 0},
    {EXPERTS "precision.layers={\"*.router.*\":fp8-current}", 1, "precision.layers[0].layers", "the head or a router", "precision.layers={\"*.attn.*\":fp8-current}", 0},
    {EXPERTS "precision.layers={\"*.experts.0.*\":fp8-current}", 1, "precision.layers[0].layers", "names 2 of the 10 parameters that make one product", "precision.layers={\"*.experts.*\":fp8-current}", 0},
    {EXPERTS "precision.recipe=mxfp8 parallel.cp=2 model.hidden=64 model.heads=4 model.kv_heads=4 model.moe.ffn=64 model.seq_len=128", 2, "parallel.ep", "ep x etp = 1 of them send their rows to one rank of an expert", "parallel.ep=2", 0},
    {EXPERTS "precision.recipe=mxfp8 parallel.cp=2 model.hidden=64 model.heads=4 model.kv_heads=4 model.moe.ffn=64 model.seq_len=128", 2, "parallel.ep", "ep x etp that is a multiple of 2 has them", "precision.layers={\"*.experts.*\":fp8-delayed}", 0},
    {EXPERTS "precision.layers={\"*.experts.*\":nvfp4} parallel.cp=2 parallel.tp=2 parallel.etp=1 parallel.ep=2 model.hidden=32 model.moe.ffn=32", 4, "parallel.etp", "cp x tp shares out the tokens of a microbatch over 4 ranks", "parallel.ep=4", 0},
    {EXPERTS "precision.recipe=fp8-current parallel.cp=4 parallel.ep=2 model.seq_len=16", 4, "parallel.ep", "cp shares out the tokens of a microbatch over 4 ranks, ep x etp = 2 of them", "parallel.ep=1", 0},
    {EXPERTS "precision.layers={\"*.experts.*\":nvfp4} parallel.tp=2 parallel.etp=1 model.hidden=32 model.moe.ffn=32", 2, "parallel.etp", "ep x etp = 1 of them send their rows to one rank of an expert", "parallel.etp=2", 0},
    {EXPERTS "precision.layers={\"*.experts.*\":nvfp4} parallel.tp=2 parallel.etp=1 model.hidden=32 model.moe.ffn=32", 2, "parallel.etp", "ep x etp that is a multiple of 2 has them", "parallel.ep=2", 0},
    {EXPERTS "precision.layers={\"*.experts.*\":mxfp8} parallel.tp=4 parallel.etp=2 parallel.ep=4 model.hidden=64 model.heads=4 model.kv_heads=4 model.moe.ffn=96 model.moe.experts=4", 8, "parallel.etp", "ranks of etp meet", "parallel.etp=1", 0},
    {EXPERTS "precision.recipe=mxfp8 parallel.ep=2 moe.buffer=0.3 moe.buffer_least=1 model.hidden=32 model.ffn=32 model.moe.ffn=32", 2, "moe.buffer", "whose scales follow from all of them", "moe.buffer=0", 0},
    {EXPERTS "precision.recipe=mxfp8 parallel.ep=2 moe.buffer=0.3 moe.buffer_least=1 model.hidden=32 model.ffn=32 model.moe.ffn=32", 2, "moe.buffer", "fp8-delayed has them before", "precision.layers={\"*.experts.*\":fp8-delayed}", 0},
};
/* clang-format on */

/* ---- what is advised, followed ---- */
struct advice { /* one piece of it */
    char keys[256];
    int ranks; /* 0: as many as there were */
};
enum { PIECES = 8 };

static int word_len(const char *at) { return (int)strcspn(at, " ,;?'"); }
static bool begins(const char *at, const char *with) { return !strncmp(at, with, strlen(with)); }

/* "3" (for key), "tp: 3", "parallel.tp: 3" or "batch.global = 8": one key and value to the end of out; where it
 * ends. */
static const char *read_pair(const char *at, const char *key, char *out, size_t room)
{
    int len = word_len(at);
    char name[64];
    snprintf(name, sizeof name, "%s", key);
    if (len > 1 && at[len - 1] == ':') {
        snprintf(name, sizeof name, "%s%.*s", memchr(at, '.', (size_t)len) ? "" : "parallel.", len - 1, at);
        at += len + 1;
    } else if (begins(at + len, " = ")) {
        snprintf(name, sizeof name, "%.*s", len, at);
        at += len + 3;
    }
    len = word_len(at);
    snprintf(out, room, " %s=%.*s", name, len - (at[len - 1] == ':'), at);
    return at + len;
}

static bool names_key(const char *at)
{
    int len = word_len(at);
    return len > 1 && at[len - 1] == ':';
}

/* "3 or 5", "3 (-n 3) or parallel.tp: 5 and parallel.cp: 2 (-n 10), or numerics.exact_order: false". Ends where it goes
 * on in words. */
static int read_list(const char *at, const char *key, struct advice *p, int n)
{
    for (bool more = true; more && !begins(at, "start ") && !begins(at, "a longer") && !begins(at, "a narrower") &&
                           !begins(at, "that");) {
        struct advice *x = &p[n++];
        assert_true(n <= PIECES);
        *x = (struct advice){0};
        at = read_pair(at, key, x->keys, sizeof x->keys);
        for (int skip; (skip = begins(at, " and ") ? 5 : begins(at, ", ") ? 2 : 0) && names_key(at + skip);)
            at = read_pair(at + skip, key, x->keys + strlen(x->keys), sizeof x->keys - strlen(x->keys));
        if (sscanf(at, " (-n %d)", &x->ranks) == 1) at = strchr(at, ')') + 1;
        int skip = begins(at, " or ") ? 4 : begins(at, ", or ") ? 5 : 0;
        at += skip;
        more = skip > 0;
    }
    return n;
}

/* Everything that the text says could be done; of an explanation that ends in advice the end. */
static int read_advice(const char *text, const char *key, struct advice *p)
{
    static const char *const before[] =
        {"the nearest that does is ", "the nearest that fits is ", "did you mean '", "choose at most ",
         "choose at least ",          "choose that, or ",          "choose ",        "wanted 1 or more, or "};
    int n = 0, ranks;
    const char *at = NULL, *start = strstr(text, "start ");
    for (size_t i = 0; !at && i < sizeof before / sizeof *before; i++)
        if ((at = strstr(text, before[i]))) at += strlen(before[i]);
    if (at) n = read_list(at, key, p, 0);
    if (start && sscanf(start, "start %d ranks (-n)", &ranks) == 1) p[n++] = (struct advice){.ranks = ranks};
    return n;
}

/* Loads and resolves; keys are separated by blanks. */
static int resolve(struct config *c, struct arena *a, const char *keys, const char *more, int ranks, struct err *e)
{
    char *all[64];
    int n = 0;
    struct conf *f;
    const char *const part[] = {keys, more};
    for (int i = 0; i < 2; i++)
        for (char *word = strtok(arena_strdup(a, part[i]), " "); word; word = strtok(NULL, " ")) all[n++] = word;
    int rc = config_load(c, &f, a, NULL, all, n, e);
    return rc ? rc : config_resolve(c, f, 257, ranks, e);
}

static void check_refusals(const struct refusal *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct refusal *r = &rows[i];
        struct arena *a = arena_new();
        struct config c;
        struct err e = {0};
        char start[96];
        int rc = resolve(&c, a, r->keys, "", r->ranks, &e);
        const char *text = strstr(e.text, ": ");
        snprintf(start, sizeof start, ": %s: ", r->key);
        if (rc != ERR_REQUEST || !text || strncmp(text, start, strlen(start)) || !strstr(e.text, r->reason))
            fail_msg("'%s' on %d ranks: wanted %s: ...%s..., got %d '%s'", r->keys, r->ranks, r->key, r->reason, rc,
                     e.text);
        int ranks = r->cure_ranks ? r->cure_ranks : r->ranks;
        if (resolve(&c, a, r->keys, r->cure, ranks, &e))
            fail_msg("'%s' with the advised '%s' on %d ranks is refused: %s", r->keys, r->cure, ranks, e.text);
        assert_int_equal(config_ranks(&c), ranks);
        arena_free(a);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    check_refusals(refusals, sizeof refusals / sizeof *refusals);
    check_refusals(patterns, sizeof patterns / sizeof *patterns);
}

static void test_no_tokenizer(void **state)
{
    (void)state;
    for (int advised = 0; advised < 2; advised++) {
        struct arena *a = arena_new();
        struct config c;
        struct conf *f;
        struct err e = {0};
        char *keys[] = {arena_strdup(a, "model.layers=1"), arena_strdup(a, "model.vocab=50304")};
        if (config_load(&c, &f, a, NULL, keys, 1 + advised, &e)) fail_msg("%s", e.text);
        int rc = config_resolve(&c, f, 0, 1, &e);
        if (advised && rc) fail_msg("%s", e.text);
        if (!advised) assert_int_equal(rc, ERR_REQUEST);
        if (!advised && !strstr(e.text, "model.vocab: there is no tokenizer to ask (data.tokenizer); choose 50304"))
            fail_msg("%s", e.text);
        arena_free(a);
    }
}

/* Whatever a refusal advises is accepted by who follows it to the letter: with these keys, on so many ranks, and
 * nothing else. */
static void test_advice(void **state)
{
    (void)state;
    int followed = 0, without = 0;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        struct arena *a = arena_new();
        struct config c;
        struct err e = {0};
        struct advice p[PIECES];
        resolve(&c, a, r->keys, "", r->ranks, &e);
        int n = read_advice(e.text, r->key, p);
        without += n == 0;
        for (int k = 0; k < n; k++) {
            struct err again = {0};
            int ranks = p[k].ranks ? p[k].ranks : r->ranks;
            if (getenv("TELL")) print_message("%s\n    -> %s -n %d\n", e.text, p[k].keys, ranks);
            if (resolve(&c, a, r->keys, p[k].keys, ranks, &again))
                fail_msg("'%s' on %d ranks says '%s'; with '%s' on %d ranks it says '%s'", r->keys, r->ranks, e.text,
                         p[k].keys, ranks, again.text);
            followed++;
        }
        arena_free(a);
    }
    assert_true(followed > 100 && without < 8);
}

/* A schedule of one's own must be for this run. */
static void test_schedule_file(void **state)
{
    (void)state;
    static const char text[] = "0F0,0B0\n1F0,1B0\n";
    struct arena *a = arena_new();
    struct config c;
    struct err e = {0};
    char path[] = "/tmp/tutti-schedule-XXXXXX", keys[256];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof text - 1), (ssize_t)sizeof text - 1);
    close(fd);
    snprintf(keys, sizeof keys, DENSE "parallel.pp=2 parallel.schedule_file=%s", path);
    assert_int_equal(resolve(&c, a, keys, "", 2, &e), ERR_REQUEST);
    if (!strstr(e.text, ": parallel.schedule_file: ") ||
        !strstr(e.text, "1 microbatches; this run has parallel.pp = 2 and 8"))
        fail_msg("%s", e.text);
    if (resolve(&c, a, keys, "batch.global=1", 2, &e)) fail_msg("%s", e.text);
    remove(path);
    assert_true(resolve(&c, a, keys, "", 2, &e) != OK && strstr(e.text, "parallel.schedule_file"));
    arena_free(a);
}

struct legal {
    const char *keys;
    int ranks;
    int64_t dp_shard, tp, cp, ep;
};

static const struct legal legals[] = {
    {DENSE "parallel.tp=-1", 4, 1, 4, 1, 1}, /* dp_shard gives way when it is not asked for */
    {DENSE "parallel.cp=-1 parallel.tp=2", 4, 1, 2, 2, 1},
    {DENSE "parallel.dp_replicate=-1 parallel.cp=2", 4, 1, 1, 2, 1},
    {DENSE "parallel.tp=40", 40, 1, 40, 1, 1}, /* more ranks than columns */
    {DENSE "parallel.cp=8", 8, 1, 1, 8, 1},    /* a token each */
    {EXPERTS "parallel.ep=-1", 8, 8, 1, 1, 4}, /* as many as there are experts for */
    {EXPERTS "parallel.ep=-1 parallel.tp=2", 8, 4, 2, 1, 4},
    {EXPERTS "parallel.ep=-1 parallel.tp=2 parallel.etp=1", 6, 3, 2, 1, 3},
    {EXPERTS "parallel.ep=4 parallel.cp=4 model.moe.capacity=0.5", 4, 1, 1, 4, 4},
    {EXPERTS "parallel.tp=4 parallel.etp=1 model.moe.capacity=0.5 parallel.pp=2", 8, 1, 4, 1, 1},
    {EXPERTS "parallel.ep=-1 parallel.tp=4 parallel.etp=2", 8, 2, 4, 1, 4},
    {DENSE "parallel.ep=-1", 4, 4, 1, 1, 1},
    {EXPERTS "parallel.ep=128 parallel.tp=64 model.moe.experts=256", 8192, 128, 64, 1, 128}, /* no group has them all */
};

static void test_legal(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof legals / sizeof *legals; i++) {
        const struct legal *l = &legals[i];
        struct arena *a = arena_new();
        struct config c;
        struct err e = {0};
        if (resolve(&c, a, l->keys, "", l->ranks, &e)) fail_msg("'%s' on %d ranks: %s", l->keys, l->ranks, e.text);
        if (c.parallel.dp_shard != l->dp_shard || c.parallel.tp != l->tp || c.parallel.cp != l->cp ||
            c.parallel.ep != l->ep)
            fail_msg("'%s' on %d ranks: dp_shard %d tp %d cp %d ep %d", l->keys, l->ranks, (int)c.parallel.dp_shard,
                     (int)c.parallel.tp, (int)c.parallel.cp, (int)c.parallel.ep);
        arena_free(a);
    }
}

/* ---- what train refuses, plan refuses ---- */
/* What a command says on stderr in its last line; its status in *rc. */
static char *said_by(int (*command)(int, char **), const char *name, const char *keys, const char *dir, int ranks,
                     int *rc, struct arena *a)
{
    char *all[64] = {arena_strdup(a, name)}, path[300], *text = arena_alloc(a, 8192);
    int n = 1, kept[2] = {dup(1), dup(2)};
    snprintf(path, sizeof path, "%s/c.yaml", dir);
    all[n++] = arena_strdup(a, path);
    all[n++] = arena_strdup(a, "-n");
    all[n++] = arena_printf(a, "%d", ranks);
    if (command == cmd_train) all[n++] = arena_strdup(a, "--crowd"); /* what is refused is the config */
    all[n++] = arena_printf(a, "run.dir=%s/run", dir);
    for (char *word = strtok(arena_strdup(a, keys), " "); word; word = strtok(NULL, " ")) {
        for (char *p = word; (p = strchr(p, '~'));) *p = ' ';
        all[n++] = word;
    }
    snprintf(path, sizeof path, "%s/said", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600), out = open("/dev/null", O_WRONLY);
    fflush(stdout);
    dup2(out, 1);
    dup2(fd, 2);
    *rc = command(n, all);
    fflush(stdout);
    dup2(kept[0], 1);
    dup2(kept[1], 2);
    ssize_t got = pread(fd, text, 8191, 0);
    const int fds[] = {fd, out, kept[0], kept[1]};
    for (int i = 0; i < 4; i++) close(fds[i]);
    while (got > 0 && text[got - 1] == '\n') got--;
    text[got < 0 ? 0 : got] = 0;
    char *line = strrchr(text, '\n');
    return line ? line + 1 : text;
}

static void test_train_and_plan(void **state)
{
    (void)state;
    static const struct refusal more[] = {
        {DENSE "memory.limit=100kB", 1, "memory.limit", "a rank, and this one needs", NULL, 0},
        {DENSE "memory.limit=300kB parallel.tp=2", 2, "memory.limit", "a rank, and this one needs", NULL, 0},
        {DENSE "run.trace=nowhere/t.json", 1, "run.trace", "there is no folder", NULL, 0},
        {DENSE "data.train=[{path:~t.txt,label:~x}]", 1, "data.train", "tells no classes", NULL, 0},
        {DENSE "model.family=bert model.classes=3 data.train=t.txt", 1, "data.train", "has no label", NULL, 0},
        {DENSE "train.objective=dpo", 1, "data.train", "written by a template", NULL, 0},
        {DENSE "data.valid=60%", 1, "data.valid", "choose 50% or less", NULL, 0},
        {DENSE "data.valid=[5%,t.txt]", 1, "data.valid", "stands alone", NULL, 0},
        {DENSE "data.valid=[{path:~5%,chat:~plain}]", 1, "data.valid", "choose 5% alone", NULL, 0},
        {DENSE "adapter.rank=4", 1, "adapter.rank", "adapter.kind is none", NULL, 0},
    };
    char dir[] = "/tmp/tutti-refusals-XXXXXX", path[100], command[120];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/c.yaml", dir);
    FILE *f = fopen(path, "w");
    fprintf(f, "data: {train: %s}\nrun: {threads: 1, steps: 1}\n", path);
    assert_int_equal(fclose(f), 0);
    const int n = sizeof refusals / sizeof *refusals, all = n + (int)(sizeof more / sizeof *more);
    for (int i = 0; i < all; i++) {
        const struct refusal *r = i < n ? &refusals[i] : &more[i - n];
        struct arena *a = arena_new();
        int trains, plans;
        if (strlen(r->keys) > 900) continue;
        char *train = said_by(cmd_train, "train", r->keys, dir, r->ranks, &trains, a),
             *plan = said_by(cmd_plan, "plan", r->keys, dir, r->ranks, &plans, a);
        if (trains != 2 || plans != 2 || !strstr(train, plan + strlen("tutti: ")) || /* ranks say who they are */
            !strstr(plan, r->reason) || !strstr(plan, r->key))
            fail_msg("'%s' on %d ranks:\ntrain (%d): %s\nplan (%d): %s", r->keys, r->ranks, trains, train, plans, plan);
        arena_free(a);
    }
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

/* ---- keys and their switches ---- */
#define TOLD 0
#define REFUSED 1

/* With `off` a key that has this need is idle, with `on` it is read. */
static const struct switched {
    enum key_need need;
    const char *off, *on;
    int refused; /* where the key is given and its switch is not */
} switches[] = {
    {WANTS_OPTIMIZER, "optimizer.name=x", "", TOLD}, /* by each key: optimizer_off */
    {WANTS_FROM, "", "model.from=there", TOLD},
    {WANTS_TEXT, "model.family=vit", "", TOLD},
    {WANTS_SAMPLES, "train.objective=grpo", "", TOLD},
    {WANTS_PACKED, "", "data.pack=best_fit", TOLD},
    {WANTS_PACKED, "data.pack=padded", "data.pack=padded data.group=2", TOLD},
    {WANTS_BY_STEP, "data.train=[{path:a,weight:2}]", "data.train=[{path:a,weight:[{step:0,weight:1}]}]", TOLD},
    {WANTS_FIM, "", "data.fim.rate=0.5", TOLD},
    {WANTS_HIDDEN, "", "model.family=bert", REFUSED},
    {WANTS_HIDDEN, "model.family=bert model.classes=3", "model.family=bert", REFUSED},
    {WANTS_PAIRS, "", "model.family=t5", REFUSED},
    {WANTS_SIDES, "", "model.family=t5 data.train=[{path:a,target:b}]", TOLD},
    {WANTS_CLASSES, "", "model.family=bert model.classes=3", REFUSED},
    {WANTS_PICTURES, "", "model.family=vit", TOLD},
    {WANTS_PICTURES, "", "model.family=llava", TOLD},
    {WANTS_BOXES, "model.family=vit data.image.crop=center", "model.family=vit", TOLD},
    {WANTS_VALIDATION, "", "run.eval_every=2", TOLD},
    {WANTS_DPO, "", "train.objective=dpo", REFUSED},
    {WANTS_SCORE, "", "train.objective=reward", REFUSED},
    {WANTS_REWARDS, "", "train.objective=grpo", REFUSED},
    {WANTS_ADAPTER, "", "adapter.kind=dora", REFUSED},
    {WANTS_BLOCKS, "optimizer.moments=bf16", "optimizer.moments=8bit", TOLD},
    {WANTS_DECAY, "optimizer.schedule.name=constant", "", TOLD},
    {WANTS_WSD, "", "optimizer.schedule.name=wsd", TOLD},
    {WANTS_FP8_BLOCK, "precision.recipe=mxfp8", "precision.layers={\"*\":fp8-block}", TOLD},
    {WANTS_HISTORY, "precision.recipe=fp8-current", "precision.recipe=fp8-delayed", TOLD},
    {WANTS_FEWER_BITS, "", "precision.recipe=mxfp8", TOLD},
    {WANTS_LOOKS, "precision.recipe=mxfp8 precision.telemetry=0", "precision.recipe=mxfp8", TOLD},
    {WANTS_FALLBACK, "precision.recipe=mxfp8 precision.fallback.after=0", "precision.recipe=mxfp8", TOLD},
    {WANTS_NO_MASTER, "", "precision.master=none", TOLD},
    {WANTS_FP16, "", "precision.recipe=fp16", TOLD},
    {WANTS_SHARED, "", "parallel.dp_shard=2", TOLD},
    {WANTS_TP, "", "parallel.tp=2", TOLD},
    {WANTS_CP, "", "parallel.cp=2", TOLD},
    {WANTS_TWO_LEVEL, "parallel.cp=4", "parallel.cp=4 parallel.cp_algorithm=two_level", TOLD},
    {WANTS_STAGES, "", "parallel.pp=2", TOLD},
    {WANTS_EXPERTS, "", "model.moe.experts=4", TOLD},
    {WANTS_SERVERS, "", "parallel.servers=1", TOLD},
    {WANTS_ASYNC_SERVERS, "parallel.servers=1", "parallel.servers=1 parallel.server_mode=async", TOLD},
    {WANTS_RANKS, "", "parallel.tp=2", TOLD},
    {WANTS_SUMS, "", "parallel.cp=2", TOLD},
    {WANTS_SHARING, "parallel.dp_shard=2", "parallel.dp_shard=2 parallel.zero=1", TOLD},
    {WANTS_RECOMPUTE, "", "memory.recompute=auto", TOLD},
    {WANTS_OFFLOAD, "", "memory.offload=[master]", TOLD},
    {WANTS_DISPATCH, "model.moe.experts=4 parallel.etp=1", "model.moe.experts=4 parallel.ep=2", TOLD},
    {WANTS_WAVES, "model.moe.experts=4 parallel.ep=2 moe.buffer=0", "model.moe.experts=4 parallel.ep=2", TOLD},
    {WANTS_KEPT_FEW, "checkpoint.keep=0", "", TOLD},
    {WANTS_SAVES_BESIDE, "", "checkpoint.async=true", TOLD},
    {WANTS_RETRIES, "checkpoint.retries=0", "", TOLD},
    {WANTS_COPIES, "", "checkpoint.copy_to=there", TOLD},
    {WANTS_IN_MEMORY, "", "checkpoint.memory_every=2", TOLD},
    {WANTS_SAMPLE, "run.samples=[a]", "run.sample_every=500", TOLD},
    {WANTS_WRITES, "", "run.samples=[a]", TOLD},
    {WANTS_STOP_EARLY, "", "run.stop_early=2", TOLD},
    {WANTS_SPIKES, "run.on_nan=rewind", "run.on_spike=stop", TOLD},
    {WANTS_REWINDS, "run.on_spike=stop", "run.on_nan=rewind", TOLD},
    {WANTS_TRACE, "", "run.trace=t.json", TOLD},
    {WANTS_ELASTIC, "", "run.elastic=true", TOLD},
    {WANTS_STATUS, "", "run.status_port=8080", TOLD},
};

static void load(struct config *c, struct conf **f, struct arena *a, const char *keys, const char *more)
{
    char *all[32];
    int n = 0;
    struct err e = {0};
    const char *const part[] = {"parallel.dp_shard=1", keys, more};
    for (int i = 0; i < 3; i++)
        for (char *word = strtok(arena_strdup(a, part[i]), " "); word; word = strtok(NULL, " "))
            if (strcmp(strchr(word, '=') + 1, "x")) all[n++] = word;
    for (int i = 0; i < n; i++)
        for (char *p = all[i]; (p = strchr(p, ':'));) /* YAML wants a space there, and words are parted by spaces */
            if (strchr("{[", all[i][strcspn(all[i], "=") + 1])) {
                char *spaced = arena_alloc(a, strlen(all[i]) + 2);
                memcpy(spaced, all[i], (size_t)(p + 1 - all[i]));
                spaced[p + 1 - all[i]] = ' ';
                strcpy(spaced + (p + 2 - all[i]), p + 1);
                p = spaced + (p + 2 - all[i]);
                all[i] = spaced;
            } else {
                p++;
            }
    if (config_load(c, f, a, NULL, all, n, &e)) fail_msg("'%s' '%s': %s", keys, more, e.text);
}

/* A value that the row takes. */
static void give(struct config *c, struct arena *a, const struct conf_row *r, char out[128])
{
    static const char *const values[] = {"3",  "0.5",        "true",          "[0.5, 0.25]", "[0.5, 0.5, 0.5]",
                                         "20", "[adapters]", "{\"*\": bf16}", "text"};
    struct err e;
    (void)c;
    for (size_t i = 0; i <= sizeof values / sizeof *values; i++) {
        struct config other;
        struct conf *f;
        char *key = out;
        if (i < sizeof values / sizeof *values) snprintf(out, 128, "%s=%s", r->path, values[i]);
        else snprintf(out, 128, "%s=%.*s", r->path, (int)strcspn(r->choices ? r->choices : "", "|"), r->choices);
        if (!config_load(&other, &f, a, NULL, &key, 1, &e)) return;
    }
    fail_msg("%s: no value was found", r->path);
}

/* An optimizer that does not read the key, and one that does. */
static bool optimizer_off(const struct conf_row *r, char off[64], char on[64])
{
    const char *key = r->path + strlen("optimizer.");
    *off = *on = 0;
    for (int k = 0; k < OPTIM_KINDS; k++) {
        bool reads = false;
        for (int i = 0; optim_rows[k].keys[i]; i++) reads |= !strcmp(optim_rows[k].keys[i], key);
        char *to = reads ? on : off;
        if (optim_rows[k].whole) continue; /* beside it is another */
        if (!*to) snprintf(to, 64, "optimizer.name=%s", optim_rows[k].name);
    }
    return *on != 0;
}

static void check_switch(const struct conf_row *r, const char *off, const char *on, int refused)
{
    struct arena *a = arena_new();
    struct config c;
    struct conf *f;
    char why[NEEDS_WHY] = "", given[128];
    struct err e = {0};
    give(&c, a, r, given);
    load(&c, &f, a, off, "");
    if (needs_meant(&c, f, r)) fail_msg("%s is meant, and was not given", r->path);
    load(&c, &f, a, off, strchr(given, ' ') ? "" : given);
    if (strchr(given, ' ') && conf_override(f, given, &e)) fail_msg("%s", e.text);
    if (!needs_idle(&c, r, why) || !*why) fail_msg("'%s %s': %s is not idle", off, given, r->path);
    if (!needs_meant(&c, f, r)) fail_msg("'%s %s': %s is given on purpose", off, given, r->path);
    int rc = needs_check(&c, f, &e);
    if ((rc == ERR_REQUEST) != (refused == REFUSED)) fail_msg("'%s %s': code %d %s", off, given, rc, e.text);
    if (rc && (!strstr(e.text, r->path) || !strstr(e.text, why))) fail_msg("%s", e.text);
    load(&c, &f, a, on, "");
    if (conf_override(f, given, &e)) fail_msg("%s", e.text);
    if (needs_idle(&c, r, why)) fail_msg("'%s %s': %s is idle: %s", on, given, r->path, why);
    if (needs_check(&c, f, &e)) fail_msg("'%s %s': %s", on, given, e.text);
    arena_free(a);
}

/* Every key says what it needs, and every need is tried with its switch off and on. */
static void test_switches(void **state)
{
    (void)state;
    int keys = 0;
    for (const struct conf_row *r = config_rows; r->path; r++) {
        int tried = 0;
        char off[64], on[64];
        if (r->need == WANTS_UNSAID) fail_msg("%s does not say what it needs", r->path);
        if ((r->need == WANTS_NUMBER) != (number_find(r->path) != NULL)) fail_msg("%s is no number", r->path);
        if (r->need == WANTS_NOTHING || r->need == WANTS_NUMBER) continue;
        for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
            if ((int)switches[i].need != r->need) continue;
            bool own = r->need == WANTS_OPTIMIZER;
            if (own && !optimizer_off(r, off, on)) continue;
            if (own && !strncmp(r->path, "optimizer.muon.", 15)) snprintf(on, sizeof on, "optimizer.name=muon");
            check_switch(r, own ? off : switches[i].off, own ? on : switches[i].on, switches[i].refused);
            tried++;
        }
        if (!tried && r->need != WANTS_OPTIMIZER) fail_msg("%s: its need is not tried", r->path);
        keys += tried > 0;
    }
    assert_true(keys > 90);
}

/* A switch that somebody turned off leaves its keys where they are; and a config that the program printed means none of
 * its defaults. */
static void test_turned_off(void **state)
{
    (void)state;
    struct arena *a = arena_new();
    struct config c, again;
    struct conf *f;
    struct err e = {0};
    struct str printed = {0};
    char why[NEEDS_WHY], *off[] = {(char *)(uintptr_t) "adapter.rank=8"};
    load(&c, &f, a, "adapter.kind=none adapter.rank=4 train.objective=next train.grpo.clip=0.1", "");
    if (needs_check(&c, f, &e)) fail_msg("%s", e.text);
    load(&c, &f, a, DENSE, "");
    config_print(&c, &printed);
    assert_int_equal(config_load_text(&again, &f, a, "config.yaml", str_text(&printed), printed.n, NULL, 0, &e), OK);
    for (const struct conf_row *r = config_rows; r->path; r++)
        if (needs_meant(&again, f, r) && needs_idle(&again, r, why)) fail_msg("%s: %s", r->path, why);
    assert_int_equal(config_load_text(&again, &f, a, "config.yaml", str_text(&printed), printed.n, off, 1, &e), OK);
    const struct conf_row *rank = config_rows;
    while (strcmp(rank->path, "adapter.rank")) rank++;
    assert_true(needs_meant(&again, f, rank) && needs_idle(&again, rank, why));
    str_free(&printed);
    arena_free(a);
}

/* A learning rate that nobody names is by what is trained, and its end a tenth of it; one that is named stays. */
static void test_learning_rates(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        double lr, end;
        bool told;
    } rows[] = {
        {"", 3e-4, 3e-5, true},
        {"model.from=there", 2e-5, 2e-6, true},
        {"adapter.kind=lora", 2e-4, 2e-5, true},
        {"model.from=there adapter.kind=dora", 2e-4, 2e-5, true},
        {"train.objective=dpo", 1e-6, 1e-7, true},
        {"model.from=there train.objective=dpo adapter.kind=lora", 1e-5, 1e-6, true},
        {"train.objective=grpo train.grpo.reward=x train.grpo.tokens=4 checkpoint.every=500", 1e-6, 1e-7, true},
        {"model.from=there train.objective=reward", 2e-5, 2e-6, true},
        {"train.objective=dpo optimizer.lr=3e-4", 3e-4, 3e-5, false},
        {"optimizer.lr=1e-2", 1e-2, 3e-5, false},
        {"optimizer.lr=1e-5", 1e-5, 1e-6, false},
        {"optimizer.lr=1e-5 optimizer.schedule.min_lr=1e-5", 1e-5, 1e-5, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena *a = arena_new();
        struct config c;
        struct err e = {0};
        struct conf *f;
        char said[128], *all[16], *words = arena_strdup(a, rows[i].keys);
        int n = 0;
        all[n++] = arena_strdup(a, "model.heads=2");
        for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) all[n++] = word;
        if (config_load(&c, &f, a, NULL, all, n, &e) || config_resolve(&c, f, 257, 1, &e))
            fail_msg("%s: %s", rows[i].keys, e.text);
        if (fabs(c.optimizer.lr / rows[i].lr - 1) > 1e-9 || fabs(c.optimizer.min_lr / rows[i].end - 1) > 1e-9)
            fail_msg("'%s': %g to %g, wanted %g to %g", rows[i].keys, c.optimizer.lr, c.optimizer.min_lr, rows[i].lr,
                     rows[i].end);
        const char *why = config_lr_usual(&c, f, said);
        assert_int_equal(why != NULL, rows[i].told);
        if (why && !strstr(why, "optimizer.lr names another")) fail_msg("%s", why);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_no_tokenizer),   cmocka_unit_test(test_advice),
        cmocka_unit_test(test_schedule_file),  cmocka_unit_test(test_legal),          cmocka_unit_test(test_switches),
        cmocka_unit_test(test_learning_rates), cmocka_unit_test(test_train_and_plan), cmocka_unit_test(test_turned_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
