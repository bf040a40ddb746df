/* SPDX-License-Identifier: Apache-2.0 */
/* needs.c: a table of what must be so, which rows of keys name. Rejected: a list of keys beside their table, as it was:
 * a key that was not on it (adapter.rank without adapter.kind) changed nothing, and nobody said so. */
#include "config/needs.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/config_memory.h"
#include "config/config_recipe.h"
#include "config/key.h"
#include "data/pack.h"
#include "media/view.h"
#include "engine/engine.h"

static bool no_from(const struct config *c) { return !c->from.dir; }
static bool no_text(const struct config *c) { return model_sees(&c->model); }
static bool no_rewards(const struct config *c) { return c->train.objective != OBJECTIVE_GRPO; }
static bool has_rewards(const struct config *c) { return c->train.objective == OBJECTIVE_GRPO; }
static bool no_packing(const struct config *c) { return c->data.pack != PACK_BEST_FIT && !c->data.group; }
static bool no_points(const struct config *c)
{
    const struct config_source *s = c->data.train.items;
    for (int i = 0; i < c->data.train.n; i++)
        if (s[i].weight.n) return false;
    return true;
}
static bool no_fim(const struct config *c) { return !(c->data.fim.rate > 0); }
static bool no_hidden(const struct config *c) { return !model_unmasks(&c->model); }
static bool no_pairs(const struct config *c) { return !model_pairs(&c->model); }
static bool no_sides(const struct config *c) { return !config_sides(c); }
static bool no_classes(const struct config *c) { return model_sees(&c->model) || !model_tells(&c->model); }
static bool no_pictures(const struct config *c) { return !model_sees(&c->model) && !model_looks(&c->model); }
static bool no_boxes(const struct config *c) { return no_pictures(c) || c->data.image.crop != CROP_RANDOM; }
static bool no_eval(const struct config *c) { return c->run.eval_every == 0; }
static bool no_preference(const struct config *c) { return c->train.objective != OBJECTIVE_DPO; }
static bool no_score(const struct config *c) { return c->train.objective != OBJECTIVE_REWARD; }
static bool no_adapter(const struct config *c) { return c->adapter.kind == ADAPTER_NONE; }
static bool no_blocks(const struct config *c) { return c->optimizer.moments < MOMENTS_FP8; }
static bool is_constant(const struct config *c) { return c->optimizer.schedule == LR_CONSTANT; }
static bool no_wsd(const struct config *c) { return c->optimizer.schedule != LR_WSD; }
static bool has_recipe(const struct config *c, enum recipe recipe)
{
    const struct recipe_choice *x = c->precision.layers.items;
    bool any = c->precision.recipe == (int)recipe;
    for (int i = 0; i < c->precision.layers.n; i++) any |= x[i].recipe == (int)recipe;
    return any;
}
static bool no_fp8_block(const struct config *c) { return !has_recipe(c, RECIPE_FP8_BLOCK); }
static bool no_history(const struct config *c) { return !has_recipe(c, RECIPE_FP8_DELAYED); }
static bool no_fewer_bits(const struct config *c) { return !config_quantises(c); }
static bool no_looks(const struct config *c)
{
    return no_fewer_bits(c) || !c->precision.telemetry || c->parallel.servers;
}
static bool no_fallback(const struct config *c) { return no_looks(c) || c->precision.fallback.after == 0; }
static bool has_master(const struct config *c) { return c->precision.master == MASTER_FP32; }
static bool no_scale(const struct config *c) { return c->precision.recipe != RECIPE_FP16; }
static bool shares_nothing(const struct config *c) { return c->parallel.dp_shard * c->parallel.cp == 1; }
static bool no_tp(const struct config *c) { return c->parallel.tp == 1; }
static bool no_cp(const struct config *c) { return c->parallel.cp == 1; }
static bool one_level(const struct config *c) { return no_cp(c) || c->parallel.cp_algorithm != CP_TWO_LEVEL; }
static bool no_stages(const struct config *c)
{
    return c->parallel.pp == 1 && !strcmp(c->parallel.schedule, "auto") && !c->parallel.schedule_file;
}
static bool no_experts(const struct config *c) { return c->model.moe.experts == 0; }
static bool no_servers(const struct config *c) { return c->parallel.servers == 0; }
static bool in_step(const struct config *c) { return no_servers(c) || c->parallel.server_mode != SERVER_ASYNC; }
static bool is_alone(const struct config *c) { return config_ranks(c) == 1; }
static bool no_sums(const struct config *c)
{
    return !c->parallel.servers && config_dp(c) * c->parallel.cp * c->parallel.tp == 1;
}
static bool no_sharing(const struct config *c)
{
    return !c->parallel.servers && (c->parallel.zero == 0 || c->parallel.dp_shard * c->parallel.cp == 1);
}
static bool keeps_all(const struct config *c) { return !c->memory.chosen.again && !config_recompute_auto(c); }
static bool no_offload(const struct config *c) { return c->memory.offload.n == 0; }
static bool no_dispatch(const struct config *c)
{
    return no_experts(c) || (c->parallel.ep == 1 && c->parallel.etp >= c->parallel.tp);
}
static bool worst_room(const struct config *c) { return no_dispatch(c) || c->moe.buffer == 0; }
static bool keeps_all_saved(const struct config *c) { return !c->checkpoint.keep; }
static bool saves_at_once(const struct config *c) { return !c->checkpoint.async; }
static bool tries_once(const struct config *c) { return c->checkpoint.retries == 0; }
static bool copies_nothing(const struct config *c) { return !c->checkpoint.copy_to; }
static bool not_in_memory(const struct config *c) { return c->checkpoint.memory_every == 0; }
static bool no_sample(const struct config *c) { return c->run.sample_every == 0; }
static bool no_samples(const struct config *c) { return no_sample(c) && !c->run.samples.n; }
static bool stops_never(const struct config *c) { return c->run.stop_early == 0; }
static bool no_spikes(const struct config *c) { return c->run.on_spike == SPIKE_IGNORE; }
static bool rewinds_never(const struct config *c)
{
    return c->run.on_nan != NAN_REWIND && c->run.on_spike != SPIKE_REWIND;
}
static bool no_trace(const struct config *c) { return !c->run.trace; }
static bool not_elastic(const struct config *c) { return !c->run.elastic; }
static bool no_status(const struct config *c) { return !c->run.status_port; }

enum gravity {
    TELLS,     /* a key too many */
    FORGOTTEN, /* refused where the switch was never named: without it another training begins than was meant */
    REFUSES    /* of another kind of model */
};

static const struct need {
    bool (*idle)(const struct config *c);
    const char *why;
    const char *key; /* the switch, where it is one key */
    const char *on;  /* FORGOTTEN and REFUSES: what to choose for it */
    enum gravity gravity;
} needs[WANTS_N] = {
    /* clang-format off */
    [WANTS_FROM] = {no_from, "model.from names nothing", "model.from"},
    [WANTS_TEXT] = {no_text, "this model sees pictures and reads no text"},
    [WANTS_SAMPLES] = {has_rewards, "with train.objective: grpo samples are answers, which the model writes"},
    [WANTS_PACKED] = {no_packing, "data.pack is not best_fit, and data.group is 0", "data.pack"},
    [WANTS_BY_STEP] = {no_points, "no source has a weight by step (data.train[].weight)"},
    [WANTS_FIM] = {no_fim, "data.fim.rate is 0", "data.fim.rate"},
    [WANTS_HIDDEN] = {no_hidden, "only a model that tells hidden tokens reads it", "model.family", "bert, without model.classes", REFUSES},
    [WANTS_PAIRS] = {no_pairs, "only a model of encoder and decoder reads it", "model.family", "t5", REFUSES},
    [WANTS_SIDES] = {no_sides, "no source is pairs of texts (data.train[].target)"},
    [WANTS_CLASSES] = {no_classes, "only a model that tells classes of texts reads it", "model.family", "bert, with model.classes", REFUSES},
    [WANTS_PICTURES] = {no_pictures, "this model sees no pictures", "model.family"},
    [WANTS_BOXES] = {no_boxes, "no box of a picture is drawn by chance (data.image.crop)"},
    [WANTS_VALIDATION] = {no_eval, "run.eval_every is 0", "run.eval_every"},
    [WANTS_DPO] = {no_preference, "train.objective is not dpo", "train.objective", "dpo", FORGOTTEN},
    [WANTS_SCORE] = {no_score, "train.objective is not reward", "train.objective", "reward", FORGOTTEN},
    [WANTS_REWARDS] = {no_rewards, "train.objective is not grpo", "train.objective", "grpo", FORGOTTEN},
    [WANTS_ADAPTER] = {no_adapter, "adapter.kind is none, so all weights are trained", "adapter.kind", "lora", FORGOTTEN},
    [WANTS_BLOCKS] = {no_blocks, "optimizer.moments are not in blocks", "optimizer.moments"},
    [WANTS_DECAY] = {is_constant, "the schedule is constant", "optimizer.schedule.name"},
    [WANTS_WSD] = {no_wsd, "only the schedule wsd has a final decay", "optimizer.schedule.name"},
    [WANTS_FP8_BLOCK] = {no_fp8_block, "no product is in fp8-block (precision.recipe)", "precision.recipe"},
    [WANTS_HISTORY] = {no_history, "no product is in fp8-delayed (precision.recipe)", "precision.recipe"},
    [WANTS_FEWER_BITS] = {no_fewer_bits, "no product has fewer bits (precision.recipe)", "precision.recipe"},
    [WANTS_LOOKS] = {no_looks, "nobody looks at rounding (precision.recipe, precision.telemetry)", "precision.recipe"},
    [WANTS_FALLBACK] = {no_fallback, "no layer falls back", "precision.recipe"},
    [WANTS_NO_MASTER] = {has_master, "precision.master is fp32", "precision.master"},
    [WANTS_FP16] = {no_scale, "precision.recipe is not fp16", "precision.recipe"},
    [WANTS_SHARED] = {shares_nothing, "parallel.dp_shard and parallel.cp are 1: nobody shares state"},
    [WANTS_TP] = {no_tp, "parallel.tp is 1"},
    [WANTS_CP] = {no_cp, "parallel.cp is 1"},
    [WANTS_TWO_LEVEL] = {one_level, "it is of parallel.cp_algorithm: two_level, on more than one rank of parallel.cp"},
    [WANTS_STAGES] = {no_stages, "parallel.pp is 1"},
    [WANTS_EXPERTS] = {no_experts, "model.moe.experts is 0"},
    [WANTS_SERVERS] = {no_servers, "parallel.servers is 0"},
    [WANTS_ASYNC_SERVERS] = {in_step, "no parameter server is asynchronous (parallel.servers, parallel.server_mode)"},
    [WANTS_RANKS] = {is_alone, "there is one rank"},
    [WANTS_SUMS] = {no_sums, "gradients are added up on one rank"},
    [WANTS_SHARING] = {no_sharing, "no parameter travels where parallel.zero or parallel.dp_shard share out none"},
    [WANTS_RECOMPUTE] = {keeps_all, "memory.recompute is none", "memory.recompute"},
    [WANTS_OFFLOAD] = {no_offload, "memory.offload is empty", "memory.offload"},
    [WANTS_DISPATCH] = {no_dispatch, "no rows are sent to other ranks' experts"},
    [WANTS_WAVES] = {worst_room, "there is room for the worst choice"},
    [WANTS_KEPT_FEW] = {keeps_all_saved, "checkpoint.keep is 0: all are kept"},
    [WANTS_SAVES_BESIDE] = {saves_at_once, "checkpoint.async is false", "checkpoint.async"},
    [WANTS_RETRIES] = {tries_once, "checkpoint.retries is 0"},
    [WANTS_COPIES] = {copies_nothing, "checkpoint.copy_to is not set", "checkpoint.copy_to"},
    [WANTS_IN_MEMORY] = {not_in_memory, "checkpoint.memory_every is 0", "checkpoint.memory_every"},
    [WANTS_SAMPLE] = {no_sample, "run.sample_every is 0", "run.sample_every"},
    [WANTS_WRITES] = {no_samples, "run.sample_every is 0 and run.samples is empty"},
    [WANTS_STOP_EARLY] = {stops_never, "run.stop_early is 0", "run.stop_early"},
    [WANTS_SPIKES] = {no_spikes, "run.on_spike is ignore", "run.on_spike"},
    [WANTS_REWINDS] = {rewinds_never, "the run never goes back (run.on_nan, run.on_spike)"},
    [WANTS_TRACE] = {no_trace, "run.trace names no file", "run.trace"},
    [WANTS_ELASTIC] = {not_elastic, "run.elastic is false", "run.elastic"},
    [WANTS_STATUS] = {no_status, "run.status_port is 0", "run.status_port"},
    /* clang-format on */
};

/* "it is of adamw and lion, and optimizer.name is sgd" */
static bool optimizer_idle(const struct config *c, const char *key, char why[NEEDS_WHY])
{
    struct optim_config o = config_optim(c);
    struct str all = {0};
    if (optim_reads(&o, key)) return false;
    for (int k = 0; k < OPTIM_KINDS; k++)
        for (int i = 0; optim_rows[k].keys[i]; i++)
            if (!strcmp(optim_rows[k].keys[i], key)) str_printf(&all, "%s%s", all.n ? " and " : "", optim_rows[k].name);
    snprintf(why, NEEDS_WHY, "it is of %s, and optimizer.name is %s", str_text(&all), optim_rows[o.kind].name);
    str_free(&all);
    return true;
}

bool needs_idle(const struct config *c, const struct conf_row *r, char why[NEEDS_WHY])
{
    const struct need *n = &needs[r->need];
    if (r->need == WANTS_NUMBER) {
        const struct number *x = number_find(r->path);
        snprintf(why, NEEDS_WHY, "%s", number_idle(x));
        return !number_needed(x, &c->model);
    }
    if (r->need == WANTS_OPTIMIZER) return optimizer_idle(c, r->path + strlen("optimizer."), why);
    if (!n->idle || !n->idle(c)) return false;
    snprintf(why, NEEDS_WHY, "%s", n->why);
    return true;
}

static const void *value_of(const struct conf_row *r, const struct config *c) { return (const char *)c + r->offset; }

/* Its default, printed or not. */
static bool is_usual(const struct config *c, const struct conf_row *r)
{
    struct config plain;
    struct arena *a = arena_new();
    struct conf_row only[] = {*r, {0}};
    struct str mine = {0}, usual = {0};
    (void)conf_new(only, &plain, a);
    conf_print(only, c, &mine);
    conf_print(only, &plain, &usual);
    bool same = !strcmp(str_text(&mine), str_text(&usual));
    str_free(&mine);
    str_free(&usual);
    arena_free(a);
    return same;
}

static bool is_named(const struct conf *f, const char *key) { return strcmp(conf_where(f, key), "default") != 0; }

bool needs_meant(const struct config *c, const struct conf *f, const struct conf_row *r)
{
    const char *where = conf_where(f, r->path), *key = needs[r->need].key;
    if (!strcmp(where, "default")) return false;
    if (r->type != CONF_LIST && !key_given(f, r, value_of(r, c))) return false; /* null: it follows from others */
    if (!strcmp(where, "command line") || (key && !is_named(f, key))) return true;
    bool number = r->type == CONF_INT || r->type == CONF_REAL;
    bool follows = number && !strcmp(r->otherwise, "null"); /* a printed config says what became of it */
    return !follows && !is_usual(c, r);
}

int needs_check(const struct config *c, const struct conf *f, struct err *e)
{
    char why[NEEDS_WHY];
    for (const struct conf_row *r = config_rows; r->path; r++) {
        const struct need *n = &needs[r->need];
        bool refuses = n->gravity == REFUSES || (n->gravity == FORGOTTEN && !is_named(f, n->key));
        if (refuses && needs_meant(c, f, r) && needs_idle(c, r, why))
            return conf_error(f, e, r->path, "has no effect: %s; choose %s: %s, or leave it out", why, n->key, n->on);
    }
    return OK;
}

static void say_idle(const struct config *c, const struct conf *f, const struct conf_row *r, const char *why)
{
    char shown[64] = "";
    if (r->type != CONF_LIST) key_show(r, value_of(r, c), shown);
    log_warn("%s: %s%s%s has no effect: %s", conf_where(f, r->path), r->path, *shown ? ": " : "", shown, why);
}

/* Keys of a source of data. */
static void say_items(const struct conf *f, const char *list, const struct conf_list *l)
{
    char key[64];
    const struct config_source *s = l->items;
    for (int i = 0; i < l->n; i++) {
        snprintf(key, sizeof key, "%s[%d].train_on", list, i);
        if (!s[i].chat && s[i].train_on != 0)
            log_warn("%s: %s has no effect: the source has no chat, and all of it is trained on", conf_where(f, key),
                     key);
        snprintf(key, sizeof key, "%s[%d].date", list, i);
        if (!s[i].chat && s[i].date)
            log_warn("%s: %s has no effect: the source has no chat, whose template might ask for it",
                     conf_where(f, key), key);
    }
}

void needs_say(const struct config *c, const struct conf *f)
{
    char why[NEEDS_WHY];
    for (const struct conf_row *r = config_rows; r->path; r++)
        if (needs_meant(c, f, r) && needs_idle(c, r, why)) say_idle(c, f, r, why);
    say_items(f, "data.train", &c->data.train);
    say_items(f, "data.valid", &c->data.valid);
}
