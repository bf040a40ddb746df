/* SPDX-License-Identifier: Apache-2.0 */
/* config_run.c: what a run does beside its steps hangs on other keys: on ranks with steps in common, on checkpoints, on
 * evaluations. */
#include "config/config_run.h"

#include <string.h>

/* Ranks of an asynchronous server have no steps in common. */
static bool is_asynchronous(const struct config *c)
{
    return c->parallel.servers && c->parallel.server_mode == SERVER_ASYNC;
}

static int check_asynchronous(const struct config *c, const struct conf *f, struct err *e)
{
    if (!is_asynchronous(c)) return OK;
    if (c->run.trace)
        return conf_error(f, e, "run.trace",
                          "ranks of an asynchronous server have no steps in common; choose parallel.server_mode: sync");
    if (c->checkpoint.async || c->checkpoint.every_s > 0)
        return conf_error(f, e, c->checkpoint.async ? "checkpoint.async" : "checkpoint.every_s",
                          "ranks of an asynchronous server have no steps in common, at whose end they could agree; "
                          "choose parallel.server_mode: sync, or %s",
                          c->checkpoint.async ? "false" : "0");
    return OK;
}

/* Others than this machine's own programs bring a secret. */
static int check_status(const struct config *c, const struct conf *f, struct err *e)
{
    const char *at = c->run.status_address;
    if (!strncmp(at, "127.", 4) || !strcmp(at, "::1") || !c->run.status_port || c->run.status_token) return OK;
    return conf_error(f, e, "run.status_address",
                      "%s can be reached by others: give run.status_token a file with a secret, or leave it at "
                      "127.0.0.1 and come through ssh -L",
                      at);
}

/* Workers of a parameter server. */
static int check_workers(const struct config *c, const struct conf *f, struct err *e)
{
    if (!c->parallel.servers) return OK;
    if (c->run.exponents_every)
        return conf_error(f, e, "run.exponents_every",
                          "workers of a parameter server do not add up what they counted; choose 0, or "
                          "parallel.servers: 0");
    if (c->run.on_nan != NAN_STOP || c->run.on_spike != SPIKE_IGNORE || c->run.skip.n)
        return conf_error(f, e,
                          c->run.skip.n               ? "run.skip"
                          : c->run.on_nan != NAN_STOP ? "run.on_nan"
                                                      : "run.on_spike",
                          "workers and servers of a parameter server do not go back together; leave it out, or choose "
                          "parallel.servers: 0");
    return OK;
}

/* Parameters that are not trained. */
static int check_frozen(const struct config *c, const struct conf *f, const struct conf_list *l, const char *key,
                        struct err *e)
{
    for (int i = 0; i < l->n; i++)
        if (!((const char *const *)l->items)[i]) return conf_error(f, e, key, "wanted names of parameters, got null");
    if (l->n && (recipe_quantises(c->precision.recipe) || c->precision.layers.n))
        return conf_error(f, e, key,
                          "products of frozen matrices have no recipe of few bits; leave it out, or choose "
                          "precision.recipe: bf16 and precision.layers: {}");
    if (l->n && c->parallel.servers)
        return conf_error(f, e, key,
                          "a parameter server steps all that there is; leave it out, or choose parallel.servers: 0");
    return OK;
}

static int check_elastic(const struct config *c, const struct conf *f, struct err *e)
{
    if (!c->run.elastic && c->run.spares)
        return conf_error(f, e, "run.spares",
                          "nobody takes in a spare where run.elastic is false; choose 0, or run.elastic: true");
    if (!c->run.elastic) return OK;
    if (!c->checkpoint.every && !c->checkpoint.memory_every && c->checkpoint.every_s <= 0)
        return conf_error(f, e, "run.elastic",
                          "who goes on does so from a checkpoint, and checkpoint.every: 0 makes none before the end; "
                          "choose checkpoint.every: 100");
    if (strcmp(c->checkpoint.resume, "auto"))
        return conf_error(f, e, "checkpoint.resume",
                          "%s: who goes on does so from the newest checkpoint, and run.elastic is true; choose auto, "
                          "or run.elastic: false",
                          c->checkpoint.resume);
    if (c->comm.check)
        return conf_error(f, e, "comm.check",
                          "operations between hosts are not compared where run.elastic is true; choose false");
    return OK;
}

/* The first key that hangs on evaluations; NULL: none does. */
static const char *wants_evaluations(const struct config *c)
{
    return c->checkpoint.best  ? "checkpoint.best"
           : c->run.stop_early ? "run.stop_early"
           : c->run.samples.n  ? "run.samples"
                               : NULL;
}

static int check_evaluations(const struct config *c, const struct conf *f, struct err *e)
{
    const char *key = wants_evaluations(c);
    const int64_t n = c->checkpoint.average, keep = c->checkpoint.keep;
    bool alone = is_asynchronous(c);
    if (n == 1) return conf_error(f, e, "checkpoint.average", "one checkpoint has no mean; choose 2 or more, or 0");
    if (n > 1 && keep && keep < n)
        return conf_error(f, e, "checkpoint.average",
                          "%lld checkpoints, and checkpoint.keep keeps %lld; choose checkpoint.keep: %lld",
                          (long long)n, (long long)keep, (long long)n);
    if (n && alone)
        return conf_error(f, e, "checkpoint.average",
                          "ranks of an asynchronous server have no common end; choose parallel.server_mode: sync, or "
                          "0");
    if (!key) return OK;
    if (!c->run.eval_every)
        return conf_error(f, e, key,
                          "goes by evaluations, and run.eval_every: 0 makes none; choose run.eval_every: 100");
    if (!c->data.valid.n) return conf_error(f, e, key, "goes by evaluations, and data.valid names no text; name some");
    if (alone)
        return conf_error(f, e, key,
                          "ranks of an asynchronous server have no steps in common, at whose end they could agree; "
                          "choose "
                          "parallel.server_mode: sync, or leave it out");
    return OK;
}

/* Texts of a run's checkpoints. */
static int check_samples(const struct config *c, const struct conf *f, struct err *e)
{
    long long every = c->checkpoint.every, wanted = c->run.sample_every;
    if (!wanted || (every && wanted % every == 0)) return OK;
    if (!every)
        return conf_error(f, e, "run.sample_every",
                          "a checkpoint writes the text, and checkpoint.every: 0 makes none before the end; "
                          "choose checkpoint.every: %lld",
                          wanted);
    return conf_error(f, e, "run.sample_every",
                      "a checkpoint writes the text, and there is one every %lld steps "
                      "(checkpoint.every), not every %lld; choose %lld",
                      every, wanted, (wanted + every - 1) / every * every);
}

enum device_kind config_device(const struct config *c)
{
    enum device_kind k;
    struct err e;
    CHECK(!device_asked(&k, c->run.device, &e), "%s", e.text);
    return k;
}

static int check_device(const struct config *c, const struct conf *f, struct err *e)
{
    enum device_kind k;
    struct err why;
    return device_asked(&k, c->run.device, &why) ? conf_error(f, e, "run.device", "%s", why.text) : OK;
}

int config_check_run(const struct config *c, const struct conf *f, struct err *e)
{
    if (strcmp(c->run.kernels, "auto") && strcmp(c->run.kernels, "ref"))
        return conf_error(f, e, "run.kernels", "wanted auto or ref, got %s", c->run.kernels);
    int rc = check_device(c, f, e);
    if (!rc) rc = check_asynchronous(c, f, e);
    if (!rc) rc = check_status(c, f, e);
    if (!rc) rc = check_workers(c, f, e);
    if (!rc) rc = check_frozen(c, f, &c->train.only, "train.only", e);
    if (!rc) rc = check_frozen(c, f, &c->train.freeze, "train.freeze", e);
    if (!rc && c->checkpoint.memory_every && c->parallel.servers)
        rc = conf_error(f, e, "checkpoint.memory_every",
                        "a parameter server's state is kept on disk only; choose 0, or parallel.servers: 0");
    if (!rc) rc = check_elastic(c, f, e);
    if (!rc) rc = check_evaluations(c, f, e);
    return rc ? rc : check_samples(c, f, e);
}
