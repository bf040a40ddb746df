/* SPDX-License-Identifier: Apache-2.0 */
/* A word of the list is a bit of memory.away. */
#include "config/config_offload.h"

#include <string.h>

#include "base/str.h"
#include "config/config_codec.h"
#include "config/config_memory.h"
#include "engine/engine.h"

static const struct {
    const char *name;
    unsigned bit;
} words[] = {{"activations", AWAY_ACTIVATIONS},
             {"optimizer", AWAY_OPTIMIZER},
             {"master", AWAY_MASTER},
             {"params", AWAY_PARAMS}};
enum { WORDS = sizeof words / sizeof *words };

const char *config_offload_dir(const struct config *c)
{
    return c->memory.away && strcmp(c->memory.offload_to, "host") ? c->memory.offload_to : NULL;
}

static bool is_auto(const char *word) { return word && !strcmp(word, "auto"); }

bool config_offload_auto(const struct config *c)
{
    return c->memory.offload.n == 1 && is_auto(((const char *const *)c->memory.offload.items)[0]);
}

static int read_words(struct config *c, const struct conf *f, struct err *e)
{
    const char *const *what = c->memory.offload.items;
    c->memory.away = 0;
    for (int i = 0; i < c->memory.offload.n && !config_offload_auto(c); i++) {
        if (is_auto(what[i]))
            return conf_error(f, e, "memory.offload", "auto stands alone; leave out the other words, or it");
        int k = 0;
        while (k < WORDS && (!what[i] || strcmp(what[i], words[k].name))) k++;
        if (k == WORDS)
            return conf_error(f, e, "memory.offload",
                              "wanted any of activations, optimizer, master, params, or auto; got %s",
                              what[i] ? what[i] : "null");
        c->memory.away |= words[k].bit;
    }
    return OK;
}

/* A stretch of what is stepped has to be a stretch of every array, whatever it is a part of. *instead: what is. */
static const char *not_by_element(const struct config *c, const char **instead)
{
    static const char *const own[PARAM_GROUPS] =
        {[PARAM_EMBEDDINGS] = "optimizer.embeddings.name: adamw", [PARAM_VECTORS] = "optimizer.vectors.name: adamw"};
    struct optim_config o = config_optim(c);
    for (int g = 0; g < PARAM_GROUPS; g++) {
        const struct optim_row *r = optim_of(&o, (enum param_group)g);
        struct optim_array of[OPTIM_MAX_ARRAYS];
        int n = r->arrays(&o, (enum param_group)g, of);
        *instead = o.group[g].own ? own[g] : "optimizer.name: adamw";
        if (!r->step) return r->name;
        *instead = "optimizer.moments: bf16";
        for (int j = 0; j < n; j++)
            if (of[j].each || of[j].dtype == DT_U8) return "moments of 8 bits";
    }
    return NULL;
}

static int check_state(const struct config *c, const struct conf *f, struct err *e)
{
    struct optim_config o = config_optim(c);
    struct array_row rows[OPTIM_MAX_ROWS];
    const char *instead, *whose = not_by_element(c, &instead);
    if (c->parallel.servers)
        return conf_error(f, e, "memory.offload",
                          "optimizer, master and params are not offloaded beside parallel.servers, which share them "
                          "out; leave it out, or choose parallel.servers: 0");
    if (whose)
        return conf_error(f, e, "memory.offload",
                          "%s cannot be stepped in stretches, as what is offloaded is, and adamw, lion and sgd with "
                          "moments in fp32 or bf16 can; choose %s, or leave it out",
                          whose, instead);
    if ((c->memory.away & AWAY_OPTIMIZER) && !optim_arrays(&o, rows))
        return conf_error(f, e, "memory.offload", "sgd without momentum keeps nothing; leave optimizer out");
    bool own = c->precision.recipe == RECIPE_FP32 || c->precision.master == MASTER_NONE;
    if (own && o.ema > 0 && (c->memory.away & AWAY_PARAMS))
        return conf_error(f, e, "memory.offload",
                          "params beside optimizer.ema, which reads all of them each step where they are their own "
                          "master, as here; leave params out, or choose optimizer.ema: 0");
    if ((c->memory.away & AWAY_PARAMS) && c->adapter.base)
        return conf_error(f, e, "memory.offload",
                          "params beside adapter.base: codes of few bits are not read from there; leave params out, "
                          "or choose adapter.base: none");
    if ((c->memory.away & AWAY_PARAMS) && config_comm_param(c) != CODEC_KEPT)
        return conf_error(f, e, "memory.offload",
                          "params beside comm.param: what is read from there travels as it is; leave params out, or "
                          "choose comm.param: kept");
    if (!(c->memory.away & AWAY_MASTER)) return OK;
    if (own)
        return conf_error(f, e, "memory.offload",
                          "master: the weights are their own master here; choose precision.recipe: bf16 and "
                          "precision.master: fp32, or leave master out");
    if (o.ema > 0)
        return conf_error(f, e, "memory.offload",
                          "master beside optimizer.ema, which reads all of it each step; leave master out, or choose "
                          "optimizer.ema: 0");
    return OK;
}

/* A choice is between what would be accepted where it is asked for. */
static int find_choices(struct config *c, const struct conf *f, struct err *e)
{
    struct config one = *c;
    struct err why;
    c->memory.may = c->parallel.servers ? 0 : AWAY_ACTIVATIONS;
    for (int k = 0; k < WORDS; k++) {
        one.memory.away = words[k].bit;
        if (words[k].bit != AWAY_ACTIVATIONS && !check_state(&one, f, &why)) c->memory.may |= words[k].bit;
    }
    if (!config_offload_auto(c)) return OK;
    if (!config_recompute_auto(c))
        return conf_error(f, e, "memory.offload",
                          "auto is chosen together with what is computed again; choose memory.recompute: auto, too, or "
                          "name what is offloaded");
    if (!strcmp(c->memory.offload_to, "host"))
        return conf_error(f, e, "memory.offload",
                          "auto chooses what waits on a disk, and memory.offload_to is host, which on the cpu device "
                          "saves nothing; choose a folder there");
    return OK;
}

/* Who names a folder and leaves open what waits there lets it be chosen with what is computed again. */
static void leave_open(struct config *c, const struct conf *f)
{
    static const char *const chosen[] = {"auto"};
    bool folder = c->memory.offload_to && c->memory.offload_to[0] && strcmp(c->memory.offload_to, "host");
    if (!config_recompute_auto(c) || !folder || c->parallel.servers ||
        strcmp(conf_where(f, "memory.offload"), "default"))
        return;
    c->memory.offload = (struct conf_list){(void *)(uintptr_t)chosen, 1};
}

int config_resolve_offload(struct config *c, const struct conf *f, struct err *e)
{
    leave_open(c, f);
    int rc = read_words(c, f, e);
    if (!rc && (c->memory.away & (AWAY_OPTIMIZER | AWAY_MASTER | AWAY_PARAMS))) rc = check_state(c, f, e);
    if (rc) return rc;
    if (!c->memory.offload_to || !c->memory.offload_to[0])
        return conf_error(f, e, "memory.offload_to", "wanted host, or a folder on a fast local disk; got nothing");
    if ((config_offload_dir(c) || config_offload_auto(c)) && c->parallel.servers)
        return conf_error(f, e, "memory.offload_to",
                          "a folder beside parallel.servers, whose ranks do not look whether a disk fails; choose "
                          "host, "
                          "or parallel.zero for the state");
    return find_choices(c, f, e);
}

struct away_rule config_away(const struct config *c)
{
    return (struct away_rule){.on = (c->memory.away & AWAY_ACTIVATIONS) != 0,
                              .least_bytes = to_size(c->memory.offload_least),
                              .align = config_offload_dir(c) ? TIER_BLOCK : 1};
}

struct offload config_offload(const struct config *c)
{
    return (struct offload){.to = config_offload_dir(c) ? MEM_DISK : MEM_HOST,
                            .optimizer = (c->memory.away & AWAY_OPTIMIZER) != 0,
                            .master = (c->memory.away & AWAY_MASTER) != 0,
                            .params = (c->memory.away & AWAY_PARAMS) != 0};
}

void config_offload_text(const struct config *c, struct str *out)
{
    bool any = false;
    for (int k = 0; k < WORDS; k++) {
        if (!(c->memory.away & words[k].bit)) continue;
        str_printf(out, "%s%s", any ? ", " : "", words[k].name);
        any = true;
    }
}
