/* SPDX-License-Identifier: Apache-2.0 */
/* traps.c: keys that do nothing where another key has some value (needs.h), and a handful of comparisons. */
#include "config/traps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/config_data.h"
#include "config/needs.h"
#include "data/energon_mix.h"
#include "remote/remote.h"

enum { MANY_PASSES = 100 };

/* ---- keys without effect ---- */
static bool no_experts(const struct config *c) { return c->model.moe.experts == 0; }
static bool no_latent(const struct config *c) { return c->model.mla.kv_rank == 0; }
static bool no_gathers(const struct config *c) { return c->parallel.tp == 1 || !c->parallel.sequence_parallel; }

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
    if (!c->run.eval_every && config_held(c) > 0)
        log_warn("%s: data.valid: %s of the text is held out and not read: run.eval_every is 0; choose the steps "
                 "between "
                 "validations",
                 conf_where(f, "data.valid"), valid->path);
    else if (!c->run.eval_every && c->data.valid.n)
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

/* Schedules of which a part, or the peak, is never there. */
static void say_schedule(const struct config *c, const struct conf *f)
{
    long long warmup = c->optimizer.warmup_steps, decay = c->optimizer.decay_steps, steps = c->run.steps;
    bool wsd = c->optimizer.schedule == LR_WSD, constant = c->optimizer.schedule == LR_CONSTANT;
    const struct lr_config lr = config_lr(c);
    if (warmup > steps)
        log_warn("%s: optimizer.schedule.warmup_steps: %lld are more than run.steps = %lld: the learning rate ends "
                 "before it reaches optimizer.lr",
                 conf_where(f, "optimizer.schedule.warmup_steps"), warmup, steps);
    if (warmup == steps && steps > 1 && !constant)
        log_warn("%s: optimizer.schedule.warmup_steps: %lld are all of run.steps: what the schedule does after them "
                 "never comes",
                 conf_where(f, "optimizer.schedule.warmup_steps"), warmup);
    if (wsd && !decay)
        log_warn("%s: optimizer.schedule.name: wsd without its decay: optimizer.schedule.decay_steps is 0",
                 conf_where(f, "optimizer.schedule.name"));
    if (wsd && decay > steps)
        log_warn("%s: optimizer.schedule.decay_steps: %lld are more than run.steps = %lld: the decay has begun before "
                 "the first step, and the learning rate never reaches optimizer.lr",
                 conf_where(f, "optimizer.schedule.decay_steps"), decay, steps);
    else if (wsd && decay && warmup <= steps && warmup + decay > steps)
        log_warn("%s: optimizer.schedule.decay_steps: %lld and a warm-up of %lld are more than run.steps = %lld: the "
                 "decay begins inside the warm-up, and after that the learning rate goes on from %.3g, not from %.3g",
                 conf_where(f, "optimizer.schedule.decay_steps"), decay, warmup, steps, lr_at(&lr, warmup), lr.lr);
    if (!constant && lr.lr > 0 && lr.min_lr >= lr.lr)
        log_warn("%s: optimizer.schedule.min_lr: is optimizer.lr: after the warm-up the learning rate stays what it is",
                 conf_where(f, "optimizer.schedule.min_lr"));
}

static void say_steps(const struct config *c, const struct conf *f, int64_t samples)
{
    double passes = samples ? (double)c->run.steps * (double)c->batch.global / (double)samples : 0;
    if (passes > MANY_PASSES)
        log_warn("data: %lld steps go through this text %.0f times; more text, or fewer steps (run.steps), teach more "
                 "than its words by heart",
                 (long long)c->run.steps, passes);
    say_schedule(c, f);
    if (c->optimizer.lr == 0) log_warn("%s: optimizer.lr is 0: nothing is learnt", conf_where(f, "optimizer.lr"));
    if (c->batch.global < config_dp(c))
        log_warn("%s: batch.global: %lld sequences for %lld data-parallel ranks: %lld of these have nothing to do",
                 conf_where(f, "batch.global"), (long long)c->batch.global, (long long)config_dp(c),
                 (long long)(config_dp(c) - c->batch.global));
}

void traps_say(const struct config *c, const struct conf *f, int64_t samples)
{
    needs_say(c, f);
    say_recompute(c, f);
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
