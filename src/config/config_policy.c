/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_policy.h"

#include <string.h>

#include "config/advise.h"
#include "config/config_recipe.h"
#include "data/pack.h"

static bool writes_not(const struct config *c) { return model_both_ways(&c->model); }
static bool looks(const struct config *c) { return model_looks(&c->model); }
static bool drops(const struct config *c) { return c->model.dropout > 0; }
static bool has_experts(const struct config *c) { return c->model.moe.experts > 0; }
static bool has_latent(const struct config *c) { return c->model.mla.kv_rank > 0; }
static bool wants_experts(const struct config *c) { return has_experts(c) && model_wants_experts(&c->model); }
static bool has_recipe(const struct config *c) { return recipe_quantises(c->precision.recipe); }
static bool has_layers(const struct config *c) { return c->precision.layers.n > 0; }
static int64_t of_group(const struct config *c) { return c->train.grpo.group; }
static int64_t of_updates(const struct config *c) { return c->train.grpo.updates; }
static bool sums_otherwise(const struct config *c) { return c->numerics.accumulate != 0; }
static bool scales(const struct config *c) { return c->precision.recipe == RECIPE_FP16; }
static bool has_states(const struct config *c) { return model_scans(&c->model); }
static bool serves(const struct config *c) { return c->parallel.servers > 0; }
static bool skips_bad(const struct config *c) { return c->data.skip_bad; }
static bool validates(const struct config *c) { return c->data.valid.n > 0; }
static bool witnessed(const struct config *c) { return c->run.replay_every > 0; }
static bool begins_late(const struct config *c) { return c->data.prefix_rate > 0; }
static bool rearranges(const struct config *c) { return c->data.fim.rate > 0; }
static bool masks(const struct config *c) { return c->model.document_mask; }
static bool no_reward(const struct config *c) { return !c->train.grpo.reward || !*c->train.grpo.reward; }
static bool no_groups(const struct config *c) { return c->batch.global % c->train.grpo.group != 0; }
static bool cuts(const struct config *c, int64_t every) { return every % c->train.grpo.updates != 0; }
static bool saves_amid(const struct config *c) { return cuts(c, c->checkpoint.every); }
static bool keeps_amid(const struct config *c) { return cuts(c, c->checkpoint.memory_every); }
static bool ends_amid(const struct config *c) { return cuts(c, c->run.steps); }
static bool moves(const struct config *c, const char *word)
{
    const char *const *what = c->memory.offload.items;
    for (int i = 0; i < c->memory.offload.n; i++)
        if (what[i] && !strcmp(what[i], word)) return true;
    return false;
}
static bool moves_params(const struct config *c) { return moves(c, "params"); }
static bool moves_any(const struct config *c) { return moves(c, "auto"); }
static bool packs(const struct config *c) { return c->data.pack == PACK_BEST_FIT; }
static bool groups(const struct config *c) { return c->data.group != 0; }
static bool packed(const struct config *c) { return c->adapter.base != 0; }
static bool in_fewer_bits(const struct config *c) { return c->comm.param != 0; }
static bool looks_ahead(const struct config *c) { return c->model.mtp.depth > 0; }

#define AMID "checkpoints are of whole batches of answers (train.grpo.updates)"
static const struct {
    const char *key;
    bool (*is)(const struct config *c);
    const char *why;
} refused[] = {
    {"model.mtp.depth", looks_ahead,
     "answers are weighed one by one, and modules for further tokens have no part in that; choose 0"},
    {"train.grpo.reward", no_reward, "what are answers worth? name a command or an address"},
    {"model.family", looks, "prompts with pictures are not answered in training; choose a decoder such as llama"},
    {"model.family", writes_not, "rewards are of answers that a model writes; choose a decoder such as llama"},
    {"model.dropout", drops, "what writes an answer and what learns from it must compute the same; choose 0"},
    {"model.family", wants_experts,
     "what balances experts would be weighed with every answer's advantage, also where that is negative; choose a "
     "decoder such as llama"},
    {"model.moe.experts", has_experts,
     "what balances experts would be weighed with every answer's advantage, also where that is negative; choose 0"},
    {"model.family", has_latent,
     "latent attention writes and learns by different products; choose a decoder such as llama"},
    {"data.pack", packs, "a sequence is one answer; choose joined, or leave it out"},
    {"data.group", groups, "a sequence is one answer; choose 0"},
    {"model.document_mask", masks, "a sequence is one answer; leave it out"},
    {"precision.recipe", has_recipe,
     "in fewer bits what writes an answer and what learns from it do not compute the same; choose bf16 or fp32"},
    {"precision.layers", has_layers,
     "in fewer bits what writes an answer and what learns from it do not compute the same; leave it out"},
    {"precision.recipe", scales, "a scaled loss beside rewards was not tried; choose bf16 or fp32"},
    {"model.family", has_states, "state spaces write and learn by different sums; choose a decoder such as llama"},
    {"adapter.base", packed, "answers are written with whole weights; choose none"},
    {"numerics.accumulate", sums_otherwise, "answers are written with sums in fp32; choose fp32"},
    {"comm.param", in_fewer_bits, "answers are written with the weights as they are stepped; choose kept"},
    {"memory.offload", moves_params,
     "weights that wait elsewhere cannot be brought to what writes answers; leave params out"},
    {"memory.offload", moves_any,
     "weights that wait elsewhere cannot be brought to what writes answers; choose activations, or leave it out"},
    {"parallel.servers", serves, "workers of a parameter server have no step in common; choose 0"},
    {"data.skip_bad", skips_bad, "prompts are read whole, and a bad one is an error; choose false"},
    {"data.valid", validates, "rewards are told of every step's own answers (metrics.jsonl); leave it out"},
    {"data.prefix_rate", begins_late, "the prompt of an answer is what it is; choose 0"},
    {"data.fim.rate", rearranges, "answers are not rearranged; choose 0"},
    {"run.replay_every", witnessed, "a part of a batch is not computed again by another rank; choose 0"},
};

static const struct multiple multiples[] = {
    {"batch.global", no_groups, of_group, "a step is whole groups of train.grpo.group answers"},
    {"checkpoint.every", saves_amid, of_updates, AMID},
    {"checkpoint.memory_every", keeps_amid, of_updates, AMID},
    {"run.steps", ends_amid, of_updates, AMID},
};

int config_resolve_policy(struct config *c, const struct conf *f, struct err *e)
{
    if (c->train.objective != OBJECTIVE_GRPO) return OK;
    if (c->train.grpo.tokens > c->model.seq_len)
        return conf_error(f, e, "train.grpo.tokens",
                          "beside train.objective: grpo: answers have no room in model.seq_len; choose at most %lld",
                          (long long)c->model.seq_len);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].is(c))
            return conf_error(f, e, refused[i].key, "beside train.objective: grpo: %s", refused[i].why);
    int rc = advise_multiples(c, f, multiples, sizeof multiples / sizeof *multiples, "grpo", e);
    if (rc) return rc;
    c->model.by_token = true;
    return OK;
}
