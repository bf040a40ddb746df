/* SPDX-License-Identifier: Apache-2.0 */
/* Groups are made before anything that may fail on one rank alone, so that ranks can agree on what failed. */
#include "site/site.h"

#include <string.h>

#include "config/afford.h"
#include "config/config_offload.h"
#include "keep/memckpt.h"

int site_join(struct site *s, const struct site_config *x, struct err *e)
{
    bool alone = x->kind == SITE_WORKS || x->n == 1;
    *s = (struct site){0};
    int rc = alone ? OK : comm_world_null(&s->counted, x->rank, x->n, x->link, e);
    return rc ? rc : ranks_init(&s->ranks, x->kind == SITE_WORKS ? x->world : s->counted, x->config, e);
}

/* What was planned, before a page of it is touched. Who counts may count beyond it (plan.h refuses it at the end). */
static int within_limit(const struct site *s, const struct site_config *x, struct err *e)
{
    const struct ledger *l = &s->dev->ledger;
    return x->kind == SITE_WORKS ? afford_limit(x->config, l->at_peak, l->peak_total, e) : OK;
}

static int open_tier(struct site *s, const char *dir, struct err *e)
{
    struct tier *t;
    int rc = dir ? tier_open(&t, dir, e) : OK;
    if (!rc && dir) device_tier_set(s->dev, t);
    return rc;
}

/* All that is offloaded has its place: there is room for it, or the run does not begin. */
static int reserve(struct site *s, struct err *e)
{
    struct tier *t = s->dev->tier;
    int rc = t ? tier_reserve(t, e) : OK;
    if (!rc && t) tier_measure(t, &s->tier_put, &s->tier_get);
    return rc || !t ? rc : tier_status(t, e);
}

/* Checkpoints in memory: nothing is taken yet, it must fit beside the rest. */
static void hold_kept(struct site *s, const struct config *c)
{
    int n = s->ranks.n, n_hosts = 1;
    if (!c->checkpoint.memory_every || !s->ranks.writes) return;
    if (c->comm.ranks_per_host) n_hosts = n > c->comm.ranks_per_host ? 2 : 1;
    else
        for (int r = 0; s->ranks.world && r < n; r++)
            if (comm_host(s->ranks.world, r) > 0) n_hosts = 2;
    struct ckpt_tensor *t;
    int64_t count = save_describe(s->engine, NULL, &t), bytes = 0;
    for (int64_t i = 0; i < count; i++) bytes += region_volume(&t[i].box) * (int64_t)dtype_bytes(t[i].dtype);
    save_forget(t, count);
    s->kept = to_size(memckpt_bytes(bytes, n_hosts));
    device_hold(s->dev, MEM_KEPT, s->kept);
}

/* Its groups are made by all ranks, or by none: rc is what this one has come to. */
static int make_rollout(struct site *s, const struct config *c, int rc, struct err *e)
{
    if (c->train.objective != OBJECTIVE_GRPO) return rc;
    if (s->ranks.world) rc = comm_agree(s->ranks.world, rc, e);
    if (rc) return rc;
    int64_t at_once = c->train.grpo.at_once < c->batch.global ? c->train.grpo.at_once : c->batch.global;
    return rollout_new(&s->rollout,
                       &(struct rollout_config){.engine = s->engine,
                                                .ranks = &s->ranks,
                                                .positions = c->model.seq_len + 1,
                                                .sequences = at_once},
                       e);
}

int site_build(struct site *s, const struct site_config *x, struct err *e)
{
    struct engine_config ec = config_engine(x->config);
    ranks_engine(&s->ranks, &ec);
    enum device_kind asked = config_device(x->config);
    if (x->kind == SITE_WORKS && asked == DEVICE_NULL)
        return err_set(e, ERR_REQUEST, "run.device: null only counts; use tutti plan, or choose cpu");
    int rc = device_open(&s->dev, x->kind == SITE_WORKS ? asked : DEVICE_NULL, ec.threads, e);
    if (rc) return rc;
    if (s->dev->counts_only) s->dev->kernels = device_kernels(asked); /* it stands for that one */
    if (x->kind == SITE_WORKS) {
        ranks_device(&s->ranks, s->dev);
        s->dev->any_size = !x->config->memory.check;
        if ((rc = open_tier(s, config_offload_dir(x->config), e))) return rc;
    }
    if (x->kind == SITE_PAPER) return engine_new_paper(&s->engine, &ec, s->dev, e);
    rc = engine_new(&s->engine, &ec, s->dev, e);
    if (!rc) hold_kept(s, x->config);
    rc = make_rollout(s, x->config, rc, e);
    if (!rc) rc = within_limit(s, x, e);
    return rc ? rc : reserve(s, e);
}

int site_serve(struct site *s, const struct site_config *x, struct err *e)
{
    if (!x->serve || !s->ranks.n_servers) return OK;
    struct param_server_config c = *x->serve;
    c.optim = config_optim(x->config);
    c.lr = config_lr(x->config);
    int rc = param_server_new(&s->serve, &c, s->engine, &s->ranks, e);
    return rc ? rc : within_limit(s, x, e);
}

int site_open(struct site *s, const struct site_config *x, struct err *e)
{
    int rc = site_join(s, x, e);
    bool joined = !rc;
    if (!rc) rc = site_build(s, x, e);
    if (!rc) rc = site_serve(s, x, e);
    if (joined && x->kind == SITE_WORKS && x->world) rc = comm_agree(x->world, rc, e);
    if (rc) site_close(s);
    return rc;
}

void site_close(struct site *s)
{
    param_server_free(s->serve);
    rollout_free(s->rollout);
    engine_free(s->engine);
    ranks_fini(&s->ranks);
    comm_free(s->counted);
    if (s->dev && s->kept) device_let_go(s->dev, MEM_KEPT, s->kept);
    if (s->dev) device_free(s->dev);
    *s = (struct site){0};
}
