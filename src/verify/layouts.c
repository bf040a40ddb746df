/* SPDX-License-Identifier: Apache-2.0 */
/* Degrees are walked from the innermost question outwards: how many ranks, how many of them along tp, how the rest is
 * shared between replicas and shards, what the shards share. */
#include "config/config_blocks.h"
#include "verify/layouts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/config_codec.h"
#include "config/config_offload.h"
#include "config/config_recipe.h"
#include "verify/verify.h"

static void push(struct layouts *l, struct layout_try t)
{
    GROW(l->at, l->n, l->room, 1);
    l->at[l->n++] = t;
}

/* Whether a schedule takes so many ranks and microbatches, and the model so many stages. */
static bool fits(const struct config *c, const struct layout_try *t, const char *kind)
{
    struct config with = *c;
    struct err e;
    layouts_apply(t, &with);
    with.parallel.schedule = kind;
    return config_check_pipeline(&with, &e) == OK;
}

/* Layers dealt by hand, the first stage as many as it can have: [3, 1] of four. */
static void deal_unevenly(struct layout_try *t, int64_t layers, int stages)
{
    t->n_layers = stages;
    for (int i = 0; i < stages; i++) t->layers[i] = i ? 1 : layers - (stages - 1);
}

/* What a schedule may be asked for beside its kind: more stages on each rank than it has by itself, rounds of another
 * length, layers dealt by hand; each where it can be. */
static void ways_of(struct layouts *l, const struct config *c, struct layout_try t)
{
    struct layout_try more = t, round = t, dealt = t;
    more.chunks = 3;
    round.round = t.pp + 1;
    if (fits(c, &more, t.schedule)) push(l, more);
    if (fits(c, &round, t.schedule)) push(l, round);
    for (int each = 1; each <= 2 && t.pp * each <= LAYOUT_MOST_STAGES && t.pp * each < c->model.layers; each++) {
        deal_unevenly(&dealt, c->model.layers, t.pp * each);
        if (!fits(c, &dealt, t.schedule)) continue;
        push(l, dealt);
        break;
    }
}

/* Every schedule where nothing else is shared out; in the other layouts they take turns, but for dualpipe with zero
 * levels. */
static void pipelines(struct layouts *l, const struct config *c, struct layout_try t)
{
    struct config with = *c;
    struct err e;
    layouts_apply(&t, &with);
    if (config_check_blocks(&with, &e)) return; /* blocks of moments would lie on two ranks */
    if (t.pp == 1) {
        push(l, t);
        return;
    }
    int n = 0, at = 0;
    const char *kind[32];
    for (int i = 0; schedule_kind_name(i) && n < 32; i++)
        if (fits(c, &t, schedule_kind_name(i))) kind[n++] = schedule_kind_name(i);
    bool all = t.zero == 0 && t.tp == 1 && t.cp == 1, shared = t.zero > 0 && t.tp == 1 && t.cp == 1;
    if (n) at = l->n % n;
    for (int i = 0; i < n; i++) { /* where stages are held twice and shared out as well, both are tried in every run */
        bool twice = shared && !strncmp(kind[i], "dualpipe", strlen("dualpipe"));
        if (!all && !twice && i != at) continue;
        t.schedule = kind[i];
        push(l, t);
        if (all && t.dp_replicate * t.dp_shard == 1) ways_of(l, c, t);
    }
}

/* Whether `parts` ranks that cut n groups of `unit` columns cut them between blocks. */
static bool cuts_between(int64_t n, int64_t unit, int parts, int64_t block)
{
    for (int64_t i = 1; i < parts; i++)
        if ((n / parts * i + (i < n % parts ? i : n % parts)) * unit % block) return false;
    return true;
}

/* A base in few bits is refused where columns are cut inside of a block (state/packed.c). */
static bool base_fits(const struct config *c)
{
    const struct model_config *m = &c->model;
    if (!c->adapter.base) return true;
    const int64_t block = packing_row((enum packing)c->adapter.base)->block;
    int tp = to_int(c->parallel.tp), etp = to_int(c->parallel.etp);
    bool split = m->mla.kv_rank || m->kv_heads >= tp;
    int64_t groups = split && !m->mla.kv_rank ? m->kv_heads : m->heads,
            wide = (m->mla.kv_rank ? m->mla.value_dim : m->head_dim) * (m->heads / groups);
    bool fits = cuts_between(groups, wide, tp, block) && cuts_between(m->ffn, 1, tp, block);
    return fits && (!m->moe.experts || (cuts_between(m->moe.ffn, 1, etp, block) &&
                                        cuts_between(m->moe.shared * m->moe.ffn, 1, tp, block)));
}

/* Experts folded over the ranks of a replica in every way: whole or by columns over tp or a part of it, shared out over
 * ep or not. */
static void expert_layouts(struct layouts *l, const struct config *c, struct layout_try t)
{
    int ranks = t.dp_shard * t.cp * t.tp, tp = t.tp;
    bool exact = c->numerics.exact_order;
    for (t.etp = 1; c->model.moe.experts && !exact && t.etp <= tp; t.etp++)
        for (t.ep = 1; t.ep <= ranks / t.etp && t.ep <= c->model.moe.experts; t.ep++) {
            bool plain = t.ep == 1 && t.etp == tp;
            struct config with = *c;
            struct err e;
            layouts_apply(&t, &with);
            if (plain || tp % t.etp || ranks / t.etp % t.ep) continue;
            if (c->adapter.kind && t.etp > 1 && t.etp < tp) continue; /* refused (nn/adapter.c) */
            if (!base_fits(&with)) continue;
            if (!config_check_recipe(&with, &e)) pipelines(l, c, t);
        }
}

/* Every algorithm of attention where cp is alone; else they take turns, and zero levels 1 and 2 are tried where cp is
 * alone. */
static void contexts(struct layouts *l, const struct config *c, struct layout_try t)
{
    enum { ALGORITHMS = CP_TWO_LEVEL + 1 };
    bool alone = t.tp == 1 && t.pp == 1 && t.dp_shard * t.dp_replicate == 1, all = alone && t.zero == 0;
    if (t.cp > 1 && !alone && t.zero % 3) return;
    for (int i = 0; i < (t.cp > 1 && all ? ALGORITHMS : 1); i++) {
        t.cp_algorithm = t.cp == 1 ? CP_RING : all ? i : (t.cp + t.tp + t.pp + t.zero) % ALGORITHMS;
        pipelines(l, c, t);
    }
}

static void data_layouts(struct layouts *l, const struct config *c, struct layout_try t, int dp)
{
    for (t.dp_replicate = 1; t.dp_replicate <= dp; t.dp_replicate++)
        for (t.zero = 0; t.zero <= 3; t.zero++) {
            if (dp % t.dp_replicate || (t.zero > 0 && dp == t.dp_replicate && t.cp == 1)) continue;
            t.dp_shard = dp / t.dp_replicate;
            struct config with = *c;
            struct err e;
            layouts_apply(&t, &with);
            if (config_check_exact(&with, &e) || !config_codec_fits(&with)) continue;
            if (!base_fits(&with)) continue;
            if (!config_check_recipe(&with, &e)) contexts(l, c, t); /* experts may want ep beside cp */
            if (t.cp == 1 || t.zero % 3 == 0) expert_layouts(l, c, t);
        }
}

void layouts_enumerate(struct layouts *l, const struct config *c, int max_ranks)
{
    *l = (struct layouts){0};
    for (int n = 1; n <= max_ranks; n++)
        for (int tp = 1; tp <= n; tp++)
            for (int pp = 1; pp <= n / tp; pp++)
                for (int cp = 1; cp <= n / tp / pp && cp <= c->model.seq_len; cp++)
                    for (int sequence = 0; sequence <= (tp > 1); sequence++)
                        if (n % (tp * pp * cp) == 0 && (pp * cp == 1 || !model_pairs(&c->model))) /* refused */
                            data_layouts(l, c, (struct layout_try){.tp = tp, .cp = cp, .pp = pp, .sequence = sequence},
                                         n / tp / pp / cp);
    bool moved = c->model.moe.bias && c->model.moe.bias_speed != 0; /* servers know no loads */
    bool scaled = c->precision.recipe == RECIPE_FP16;               /* nor the loss scale */
    struct optim_config o = config_optim(c);                        /* have masters, and pieces of matrices */
    bool alone = c->precision.master == MASTER_NONE || optim_steps(&o, OPTIM_ADAFACTOR);
    struct recipe_config recipe = config_recipe(c);                            /* nor all ranks' largest values */
    bool all = !c->train.only.n && !c->train.freeze.n && !c->adapter.kind;     /* they step all that there is */
    bool away = c->memory.away & (AWAY_OPTIMIZER | AWAY_MASTER | AWAY_PARAMS); /* which they share out */
    bool plain = all && !away && !moved && !scaled && !alone && !recipes_history(&recipe) && !c->numerics.exact_order &&
                 c->precision.grad == GRAD_FP32 && c->train.objective == OBJECTIVE_NEXT;
    bool coded = config_comm_grad(c) != CODEC_KEPT || config_comm_param(c) != CODEC_KEPT; /* to servers nothing is */
    for (int n = 2; plain && !coded && n <= max_ranks; n++)
        for (int s = 1; s < n; s++)
            push(l, (struct layout_try){.dp_replicate = 1, .dp_shard = n - s, .tp = 1, .cp = 1, .pp = 1, .servers = s});
}

unsigned layout_axes(const struct layout_try *t)
{
    bool dp = t->dp_replicate * t->dp_shard > 1 && !t->servers; /* a parameter server's workers are part of it */
    return (t->tp > 1 ? VERIFY_TP : 0U) | (t->cp > 1 ? VERIFY_CP : 0U) | (t->pp > 1 ? VERIFY_PP : 0U) |
           (t->ep > 1 ? VERIFY_EP : 0U) | (t->servers ? VERIFY_SERVERS : 0U) | (dp ? VERIFY_DP : 0U);
}

void layouts_free(struct layouts *l)
{
    xfree(l->at);
    *l = (struct layouts){0};
}

void layouts_apply(const struct layout_try *t, struct config *c)
{
    c->parallel.dp_replicate = t->dp_replicate;
    c->parallel.dp_shard = t->dp_shard;
    c->parallel.zero = t->zero;
    c->parallel.tp = t->tp;
    c->parallel.cp = t->cp;
    c->parallel.cp_algorithm = t->cp_algorithm;
    c->parallel.cp_inner = 0;
    c->parallel.pp = t->pp;
    c->parallel.ep = t->ep ? t->ep : 1;
    c->parallel.etp = t->etp ? t->etp : t->tp;
    c->parallel.servers = t->servers;
    c->parallel.sequence_parallel = t->sequence;
    c->parallel.schedule_text = c->parallel.schedule_file = NULL;
    c->parallel.schedule = t->schedule ? t->schedule : "auto";
    c->parallel.chunks = t->chunks;
    c->parallel.round = t->round;
    c->parallel.pp_layers = (struct conf_list){t->n_layers ? (void *)(uintptr_t)t->layers : NULL, t->n_layers};
    c->parallel.ranks_here = config_ranks(c);
}

void layout_name(const struct config *c, char *out, size_t n)
{
    size_t k = (size_t)snprintf(out, n, "dp%" PRId64, config_dp(c));
    if (c->parallel.dp_replicate > 1 && k < n)
        k += (size_t)snprintf(out + k, n - k, " replicate%" PRId64, c->parallel.dp_replicate);
    if (k < n) k += (size_t)snprintf(out + k, n - k, " zero%" PRId64, c->parallel.zero);
    if (c->parallel.tp > 1 && k < n)
        k += (size_t)snprintf(out + k, n - k, " tp%" PRId64 "%s", c->parallel.tp,
                              c->parallel.sequence_parallel ? "+seq" : "");
    if (c->parallel.ep > 1 && k < n) k += (size_t)snprintf(out + k, n - k, " ep%" PRId64, c->parallel.ep);
    if (c->model.moe.experts && c->parallel.etp < c->parallel.tp && k < n)
        k += (size_t)snprintf(out + k, n - k, " etp%" PRId64, c->parallel.etp);
    if (c->parallel.servers && k < n) k += (size_t)snprintf(out + k, n - k, " servers%" PRId64, c->parallel.servers);
    static const char *const algorithm[] = {"ring", "gather", "a2a", "two"};
    if (c->parallel.cp > 1 && k < n)
        k += (size_t)snprintf(out + k, n - k, " cp%" PRId64 ":%s", c->parallel.cp, algorithm[c->parallel.cp_algorithm]);
    if (c->parallel.pp > 1 && k < n)
        k += (size_t)snprintf(out + k, n - k, " pp%" PRId64 ":%s", c->parallel.pp, c->parallel.schedule);
    if (c->parallel.chunks && k < n) k += (size_t)snprintf(out + k, n - k, " chunks%" PRId64, c->parallel.chunks);
    if (c->parallel.round && k < n) k += (size_t)snprintf(out + k, n - k, " round%" PRId64, c->parallel.round);
    const int64_t *layers = c->parallel.pp_layers.items;
    for (int i = 0; i < c->parallel.pp_layers.n && k < n; i++)
        k += (size_t)snprintf(out + k, n - k, "%s%" PRId64, i ? "," : " layers", layers[i]);
}
