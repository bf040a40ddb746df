/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_preference.h"

#include <string.h>

#include "config/advise.h"
#include "config/config_recipe.h"
#include "data/chat.h"
#include "data/pack.h"

static bool is_given(const struct conf *f, const char *key) { return strcmp(conf_where(f, key), "default") != 0; }

static bool fits_not(const struct config *c) { return model_both_ways(&c->model); }
static bool drops(const struct config *c) { return c->model.dropout > 0; }
static bool has_experts(const struct config *c) { return c->model.moe.experts > 0; }
static bool wants_experts(const struct config *c) { return has_experts(c) && model_wants_experts(&c->model); }
static bool has_recipe(const struct config *c) { return recipe_quantises(c->precision.recipe); }
static bool has_layers(const struct config *c) { return c->precision.layers.n > 0; }
static int64_t of_two(const struct config *c) { return (void)c, 2; }
static bool serves(const struct config *c) { return c->parallel.servers > 0; }
static bool skips_bad(const struct config *c) { return c->data.skip_bad; }
static bool witnessed(const struct config *c) { return c->run.replay_every > 0; }
static bool begins_late(const struct config *c) { return c->data.prefix_rate > 0; }
static bool rearranges(const struct config *c) { return c->data.fim.rate > 0; }
static bool in_groups(const struct config *c) { return c->data.group > 0; }
static bool in_parts(const struct config *c) { return c->data.parts > 1; }
static bool packs(const struct config *c) { return c->data.pack != PACK_PADDED; }
static bool several(const struct config *c) { return c->batch.micro != 1; }
static bool is_odd(const struct config *c) { return c->batch.global % 2 != 0; }
static bool writes(const struct config *c) { return c->train.objective == OBJECTIVE_REWARD && c->run.sample_every > 0; }
static bool samples(const struct config *c) { return c->train.objective == OBJECTIVE_REWARD && c->run.samples.n > 0; }
static bool trains_on(const struct config *c)
{
    const struct conf_list *lists[] = {&c->data.train, &c->data.valid};
    bool other = false;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < lists[k]->n; i++)
            other |= ((const struct config_source *)lists[k]->items)[i].train_on != CHAT_ANSWERS;
    return c->train.objective == OBJECTIVE_REWARD && other;
}
static bool looks_ahead(const struct config *c) { return c->model.mtp.depth > 0; }

static const struct {
    const char *key;
    bool (*is)(const struct config *c);
    const char *why;
} refused[] = {
    {"model.mtp.depth", looks_ahead,
     "answers are weighed one by one, and modules for further tokens have no part in that; choose 0"},
    {"model.family", fits_not, "preferences are of answers that a model writes; choose a decoder such as llama"},
    {"model.dropout", drops,
     "a pair's loss is taken in a pass of its own, before the one that learns, and both must compute the same; choose "
     "0"},
    {"model.family", wants_experts,
     "what balances experts is weighed by a sequence's factor, which is negative for rejected answers; choose a "
     "decoder "
     "such as llama"},
    {"model.moe.experts", has_experts,
     "what balances experts is weighed by a sequence's factor, which is negative for rejected answers; choose 0"},
    {"precision.recipe", has_recipe,
     "in fewer bits the pass that measures and the one that learns do not compute the same; choose bf16, fp16 or fp32"},
    {"precision.layers", has_layers,
     "in fewer bits the pass that measures and the one that learns do not compute the same; leave it out"},
    {"parallel.servers", serves, "workers of a parameter server do not wait for both answers of a pair; choose 0"},
    {"data.skip_bad", skips_bad, "a record that is skipped would part the pairs behind it; choose false"},
    {"data.prefix_rate", begins_late, "the prompt of an answer is what it is; choose 0"},
    {"data.fim.rate", rearranges, "answers are not rearranged; choose 0"},
    {"data.group", in_groups, "sequences are pairs; choose 0"},
    {"data.parts", in_parts, "a sequence is an answer; choose 1"},
    {"data.pack", packs, "a sequence is one answer; choose padded, or leave it out"},
    {"batch.micro", several, "the gradient of each answer has a factor of its own; choose 1, or leave it out"},
    {"data.train", trains_on, "train_on: a score is read at an answer's last token alone; leave it out"},
    {"run.sample_every", writes, "a reward model writes no text; choose 0"},
    {"run.samples", samples, "a reward model writes no text; leave it out"},
    {"run.replay_every", witnessed, "steps on preferences are not computed a second time by others; choose 0"},
};

static const struct multiple multiples[] = {
    {"batch.global", is_odd, of_two, "counts answers, and a pair is two"},
};

/* The table of tokens is nobody's output matrix: what a family has by itself is not asked for. */
void config_resolve_score(struct config *c, const struct conf *f)
{
    c->model.scores = c->train.objective == OBJECTIVE_REWARD;
    if (c->model.scores && !is_given(f, "model.tie_embeddings")) c->model.tie_embeddings = false;
}

int config_resolve_preference(struct config *c, const struct conf *f, struct err *e)
{
    const char *objective = c->train.objective == OBJECTIVE_DPO ? "dpo" : "reward";
    if (!config_prefers(c)) return OK;
    if (!is_given(f, "data.pack")) c->data.pack = PACK_PADDED;
    if (!is_given(f, "batch.micro")) c->batch.micro = 1;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].is(c))
            return conf_error(f, e, refused[i].key, "beside train.objective: %s: %s", objective, refused[i].why);
    return advise_multiples(c, f, multiples, sizeof multiples / sizeof *multiples, objective, e);
}
