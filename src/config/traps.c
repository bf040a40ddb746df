/* SPDX-License-Identifier: Apache-2.0 */
/* traps.c: a table of keys that do nothing where another key has some value, and a handful of comparisons.
 *
 * A key counts as given when it was given and is not its default: the config.yaml of a run gives all of them.
 */
#include "config/traps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/config_memory.h"
#include "config/config_recipe.h"
#include "config/key.h"
#include "data/energon_mix.h"
#include "remote/remote.h"

enum { MANY_PASSES = 100 };

/* ---- keys without effect ---- */
static bool no_experts(const struct config *c) { return c->model.moe.experts == 0; }
static bool no_dispatch(const struct config *c)
{
    return no_experts(c) || (c->parallel.ep == 1 && c->parallel.etp >= c->parallel.tp);
}
static bool worst_room(const struct config *c) { return no_dispatch(c) || c->moe.buffer == 0; }
static bool no_from(const struct config *c) { return !c->from.dir; }
static bool is_constant(const struct config *c) { return c->optimizer.schedule == LR_CONSTANT; }
static bool no_decay(const struct config *c) { return c->optimizer.schedule != LR_WSD; }
static bool no_tp(const struct config *c) { return c->parallel.tp == 1; }
static bool no_cp(const struct config *c) { return c->parallel.cp == 1; }
static bool no_pp(const struct config *c)
{
    return c->parallel.pp == 1 && !strcmp(c->parallel.schedule, "auto") && !c->parallel.schedule_file;
}
static bool no_servers(const struct config *c) { return c->parallel.servers == 0; }
static bool no_sample(const struct config *c) { return c->run.sample_every == 0; }
static bool no_samples(const struct config *c) { return no_sample(c) && !c->run.samples.n; }
static bool no_preference(const struct config *c) { return c->train.objective != OBJECTIVE_DPO; }
static bool no_score(const struct config *c) { return c->train.objective != OBJECTIVE_REWARD; }
static bool no_rewards(const struct config *c) { return c->train.objective != OBJECTIVE_GRPO; }
static bool stops_never(const struct config *c) { return c->run.stop_early == 0; }
static bool no_eval(const struct config *c) { return c->run.eval_every == 0; }
static bool no_fewer_bits(const struct config *c) { return !config_quantises(c); }
static bool no_looks(const struct config *c)
{
    return no_fewer_bits(c) || !c->precision.telemetry || c->parallel.servers;
}
static bool no_fallback(const struct config *c) { return no_looks(c) || c->precision.fallback.after == 0; }
static bool no_scale(const struct config *c) { return c->precision.recipe != RECIPE_FP16; }
static bool has_master(const struct config *c) { return c->precision.master == MASTER_FP32; }
static bool no_blocks(const struct config *c) { return c->optimizer.moments < MOMENTS_FP8; }
static bool keeps_all(const struct config *c) { return !c->memory.chosen.again && !config_recompute_auto(c); }
static bool no_offload(const struct config *c) { return c->memory.offload.n == 0; }
static bool no_latent(const struct config *c) { return c->model.mla.kv_rank == 0; }
static bool no_gathers(const struct config *c) { return no_tp(c) || !c->parallel.sequence_parallel; }
static bool no_sharing(const struct config *c)
{
    return !c->parallel.servers && (c->parallel.zero == 0 || c->parallel.dp_shard * c->parallel.cp == 1);
}
static bool no_sums(const struct config *c)
{
    return !c->parallel.servers && config_dp(c) * c->parallel.cp * c->parallel.tp == 1;
}
static bool copies_nothing(const struct config *c) { return !c->checkpoint.copy_to; }
static bool saves_at_once(const struct config *c) { return !c->checkpoint.async; }
static bool keeps_all_saved(const struct config *c) { return !c->checkpoint.keep; }
static bool no_trace(const struct config *c) { return !c->run.trace; }

static const struct {
    const char *key;
    bool (*idle)(const struct config *c);
    const char *since;
} idle[] = {
    /* clang-format off */
    {"run.log_experts", no_experts, "model.moe.experts is 0"},
    {"optimizer.schedule.min_lr", is_constant, "the schedule is constant"},
    {"optimizer.schedule.decay_steps", no_decay, "only the schedule wsd has a final decay"},
    {"parallel.sequence_parallel", no_tp, "parallel.tp is 1"},
    {"parallel.cp_algorithm", no_cp, "parallel.cp is 1"}, {"parallel.cp_inner", no_cp, "parallel.cp is 1"},
    {"parallel.cp_balance", no_cp, "parallel.cp is 1"},
    {"parallel.chunks", no_pp, "parallel.pp is 1"},
    {"parallel.server_mode", no_servers, "parallel.servers is 0"}, {"parallel.staleness", no_servers, "parallel.servers is 0"},
    {"comm.grad", no_sums, "gradients are added up on one rank"},
    {"comm.param", no_sharing, "no parameter travels where parallel.zero or parallel.dp_shard share out none"},
    {"run.sample_prompt", no_sample, "run.sample_every is 0"},
    {"run.sample_tokens", no_samples, "run.sample_every is 0 and run.samples is empty"},
    {"run.sample_temperature", no_samples, "run.sample_every is 0 and run.samples is empty"},
    {"train.dpo.beta", no_preference, "train.objective is not dpo"},
    {"train.reward.centre", no_score, "train.objective is not reward"},
    {"train.grpo.reward", no_rewards, "train.objective is not grpo"},
    {"train.grpo.group", no_rewards, "train.objective is not grpo"},
    {"train.grpo.tokens", no_rewards, "train.objective is not grpo"},
    {"run.stop_early_delta", stops_never, "run.stop_early is 0"}, {"run.eval_batches", no_eval, "run.eval_every is 0"},
    {"precision.keep_weights", no_fewer_bits, "no product has fewer bits (precision.recipe)"},
    {"precision.telemetry", no_fewer_bits, "no product has fewer bits (precision.recipe)"},
    {"precision.fallback.after", no_looks, "nobody looks at rounding (precision.recipe, precision.telemetry)"},
    {"precision.fallback.saturated", no_fallback, "no layer falls back"},
    {"precision.fallback.error", no_fallback, "no layer falls back"},
    {"precision.loss_scale.initial", no_scale, "precision.recipe is not fp16"},
    {"precision.loss_scale.grow_every", no_scale, "precision.recipe is not fp16"},
    {"precision.loss_scale.least", no_scale, "precision.recipe is not fp16"},
    {"optimizer.block", no_blocks, "optimizer.moments are not in blocks"},
    {"precision.round", has_master, "precision.master is fp32"},
    {"memory.recompute_layers", keeps_all, "memory.recompute is none"},
    {"memory.offload_least", no_offload, "memory.offload is empty"},
    {"memory.offload_to", no_offload, "memory.offload is empty"},
    {"moe.buffer", no_dispatch, "no rows are sent to other ranks' experts"},
    {"moe.buffer_least", worst_room, "there is room for the worst choice"},
    {"checkpoint.busy", saves_at_once, "checkpoint.async is false"},
    {"checkpoint.copy_keep", copies_nothing, "checkpoint.copy_to is not set"},
    {"checkpoint.keep_every", keeps_all_saved, "checkpoint.keep is 0: all are kept"},
    {"run.trace_steps", no_trace, "run.trace names no file"},
    /* clang-format on */
};

struct given {
    const struct conf *f;
    struct config mine, plain;
};

static void say_no_effect(struct given *x, const char *key, const char *since)
{
    char shown[64];
    const struct conf_row *r = key_row(key);
    const void *v = key_value(r, &x->mine);
    if (key_given(x->f, r, v) && !key_same(r, v, key_value(r, &x->plain)))
        log_warn("%s: %s: %s has no effect: %s", conf_where(x->f, r->path), r->path, key_show(r, v, shown), since);
}

/* Keys that only some optimizers read, from their table. */
static void say_optimizer(struct given *x)
{
    struct optim_config o = config_optim(&x->mine);
    char key[64], since[96];
    for (int k = 0; k < OPTIM_KINDS; k++)
        for (int i = 0; optim_rows[k].keys[i]; i++) {
            snprintf(key, sizeof key, "optimizer.%s", optim_rows[k].keys[i]);
            snprintf(since, sizeof since, "it is of %s, and optimizer.name is %s", optim_rows[k].name,
                     optim_rows[o.kind].name);
            if (!optim_reads(&o, optim_rows[k].keys[i])) say_no_effect(x, key, since);
        }
}

/* Numbers of the model from theirs; those that follow from others where they are left out are always there. */
static void say_numbers(struct given *x)
{
    for (const struct number *n = model_numbers; n->row.path; n++)
        if (!number_needed(n, &x->mine.model) && strcmp(n->row.otherwise, "null"))
            say_no_effect(x, n->row.path, number_idle(n));
}

/* Words of memory.recompute for what this model, or layout, does not have. */
static void say_recompute(const struct config *c, const struct conf *f)
{
    static const struct {
        const char *word;
        bool (*idle)(const struct config *c);
        const char *since;
    } words[] = {
        {"experts", no_experts, "model.moe.experts is 0"},
        {"latent", no_latent, "this model has no latent attention (model.mla.kv_rank)"},
        {"gathers", no_gathers, "nothing is gathered over tp without parallel.sequence_parallel"},
    };
    for (int i = 0; i < c->memory.recompute.n; i++)
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            if (!strcmp(((const char *const *)c->memory.recompute.items)[i], words[k].word) && words[k].idle(c))
                log_warn("%s: memory.recompute: %s has no effect: %s", conf_where(f, "memory.recompute"), words[k].word,
                         words[k].since);
}

static void say_idle(const struct config *c, const struct conf *f)
{
    struct given x = {.f = f, .mine = *c};
    struct err ignored;
    struct arena *a = arena_new();
    int rc = config_load(&x.plain, NULL, a, NULL, NULL, 0, &ignored);
    for (size_t i = 0; !rc && i < sizeof idle / sizeof *idle; i++)
        if (idle[i].idle(c)) say_no_effect(&x, idle[i].key, idle[i].since);
    if (!rc) say_numbers(&x);
    if (!rc) say_optimizer(&x);
    say_recompute(c, f);
    if (!rc && no_from(c) && c->from.ignore.n)
        log_warn("%s: model.ignore has no effect: model.from names nothing", conf_where(f, "model.ignore"));
    arena_free(a);
}

/* ---- text ---- */
static bool same_file(const char *a, const char *b)
{
    char *x = realpath(a, NULL), *y = realpath(b, NULL);
    bool same = strcmp(x ? x : a, y ? y : b) == 0;
    free(x);
    free(y);
    return same;
}

/* Of Megatron-Energon: training and validation take different parts of it. */
static bool has_parts(const char *path) { return energon_is(path) || energon_mix_is(path); }

static void say_validation(const struct config *c, const struct conf *f)
{
    const struct config_source *train = c->data.train.items, *valid = c->data.valid.items;
    if (c->run.eval_every && !c->data.valid.n)
        log_warn("%s: run.eval_every: nothing is validated: data.valid names no text", conf_where(f, "run.eval_every"));
    if (!c->run.eval_every && c->data.valid.n)
        log_warn("%s: data.valid: is not read: run.eval_every is 0; choose the steps between validations",
                 conf_where(f, "data.valid"));
    for (int i = 0; c->run.eval_every && i < c->data.valid.n; i++)
        for (int k = 0; k < c->data.train.n; k++)
            if (same_file(valid[i].path, train[k].path) && !has_parts(valid[i].path)) {
                char *path = remote_hidden(valid[i].path);
                log_warn("%s: data.valid: %s is trained on, too: its loss says nothing about text that is new",
                         conf_where(f, "data.valid"), path);
                xfree(path);
            }
}

static void say_steps(const struct config *c, const struct conf *f, int64_t samples)
{
    double passes = samples ? (double)c->run.steps * (double)c->batch.global / (double)samples : 0;
    if (passes > MANY_PASSES)
        log_warn("data: %lld steps go through this text %.0f times; more text, or fewer steps (run.steps), teach more "
                 "than its words by heart",
                 (long long)c->run.steps, passes);
    if (c->optimizer.warmup_steps > c->run.steps)
        log_warn("%s: optimizer.schedule.warmup_steps: %lld are more than run.steps = %lld: the learning rate ends "
                 "before it reaches optimizer.lr",
                 conf_where(f, "optimizer.schedule.warmup_steps"), (long long)c->optimizer.warmup_steps,
                 (long long)c->run.steps);
    if (c->optimizer.schedule == LR_WSD && !c->optimizer.decay_steps)
        log_warn("%s: optimizer.schedule.name: wsd without its decay: optimizer.schedule.decay_steps is 0",
                 conf_where(f, "optimizer.schedule.name"));
    if (c->optimizer.lr == 0) log_warn("%s: optimizer.lr is 0: nothing is learnt", conf_where(f, "optimizer.lr"));
    if (c->batch.global < config_dp(c))
        log_warn("%s: batch.global: %lld sequences for %lld data-parallel ranks: %lld of these have nothing to do",
                 conf_where(f, "batch.global"), (long long)c->batch.global, (long long)config_dp(c),
                 (long long)(config_dp(c) - c->batch.global));
}

void traps_say(const struct config *c, const struct conf *f, int64_t samples)
{
    say_idle(c, f);
    say_validation(c, f);
    say_steps(c, f, samples);
}

int traps_check(const struct config *c, const struct conf *f, struct err *e)
{
    const char *slash = c->run.trace ? strrchr(c->run.trace, '/') : NULL;
    if (!c->run.trace) return OK;
    if (fs_is_dir(c->run.trace))
        return conf_error(f, e, "run.trace", "%s: is a directory; a file was wanted", c->run.trace);
    if (!slash || slash == c->run.trace) return OK;
    char *dir = xstrndup(c->run.trace, (size_t)(slash - c->run.trace));
    size_t n = strlen(c->run.dir);
    while (n > 1 && c->run.dir[n - 1] == '/') n--;
    bool inside = strlen(dir) == n && !strncmp(dir, c->run.dir, n); /* made when the run begins */
    int rc =
        fs_is_dir(dir) || inside ? OK : conf_error(f, e, "run.trace", "%s: there is no folder %s", c->run.trace, dir);
    xfree(dir);
    return rc;
}
