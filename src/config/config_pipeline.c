/* SPDX-License-Identifier: Apache-2.0 */
/* Which pipelines can be. Nearest values come from trying: a schedule is made for other numbers until it can be, and
 * its layers are dealt, so what is advised is what is accepted. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "config/config_layout.h"
#include "engine/build.h"

int64_t config_microbatches(const struct config *c)
{
    int64_t dp = config_dp(c), part = (c->batch.global + dp - 1) / dp;
    return (part + c->batch.micro - 1) / c->batch.micro;
}

struct pipeline_config config_pipeline(const struct config *c)
{
    return (struct pipeline_config){
        .kind = strcmp(c->parallel.schedule, "auto") ? c->parallel.schedule : NULL,
        .chunks = to_int(c->parallel.chunks),
        .round = to_int(c->parallel.round),
        .text = c->parallel.schedule_text,
        .what = c->parallel.schedule_file,
        .layers = c->parallel.pp_layers.n ? c->parallel.pp_layers.items : NULL,
        .n_layers = c->parallel.pp_layers.n,
    };
}

/* The numbers that a schedule is made from. */
struct numbers {
    int64_t pp, chunks, microbatches;
};

static struct numbers numbers_of(const struct config *c)
{
    return (struct numbers){c->parallel.pp, c->parallel.chunks, config_microbatches(c)};
}

/* Makes the schedule and deals the layers, to see whether it can be. *stages: of the schedule, 0 if there is none. */
static int try_numbers(const struct config *c, struct numbers with, int *stages, struct err *e)
{
    struct pipeline_config p = config_pipeline(c);
    struct schedule *s = NULL;
    p.chunks = to_int(with.chunks);
    *stages = 0;
    int rc = build_plan(&s, &p, to_int(with.pp), to_int(with.microbatches), e);
    if (!rc) {
        struct model_stage *parts = xcalloc(to_size(s->n_stages), sizeof *parts);
        *stages = s->n_stages;
        rc = stages_split(parts, s->n_stages, &c->model, c->model.seq_len, p.layers, p.n_layers, e);
        xfree(parts);
    }
    schedule_free(s);
    return rc;
}

int config_check_pipeline(const struct config *c, struct err *e)
{
    int stages;
    return try_numbers(c, numbers_of(c), &stages, e);
}

/* The value of one of the numbers in s, going from `from` to `to`, with which there is a schedule, and, with `dealt`,
 * the layers can be dealt to its stages; 0: none. Restores the number. */
static int64_t first_that_fits(const struct config *c, struct numbers *s, int64_t *number, int64_t from, int64_t to,
                               bool dealt)
{
    struct err ignored;
    int64_t was = *number, found = 0;
    int stages;
    for (int64_t v = from, step = from < to ? 1 : -1; !found && (to - v) * step >= 0; v += step) {
        *number = v;
        if (!try_numbers(c, *s, &stages, &ignored) || (!dealt && stages)) found = v;
    }
    *number = was;
    return found;
}

/* The length of what a schedule says without its advice: that is a number of microbatches or stages, which are no
 * keys. */
static int before_advice(const char *why)
{
    const char *end = strstr(why, "choose");
    int64_t n = (int64_t)(end ? (size_t)(end - why) : strlen(why));
    while (n && strchr(":; ", why[n - 1])) n--;
    return to_int(n);
}

/* Another number of microbatches would do. */
static int refuse_batch(const struct config *c, const struct conf *f, int64_t below, int64_t above, const char *why,
                        struct err *e)
{
    int64_t dp = config_dp(c), each = dp * c->batch.micro;
    char other[48] = "";
    if (below && above) snprintf(other, sizeof other, " or %lld", (long long)(above * each));
    return conf_error(f, e, "batch.global",
                      "%.*s: with %lld data-parallel ranks and batch.micro = %lld there are %lld; choose %lld%s",
                      before_advice(why), why, (long long)dp, (long long)c->batch.micro,
                      (long long)config_microbatches(c), (long long)((below ? below : above) * each), other);
}

/* Another number of stages would do, on as many ranks as then come together. */
static int refuse_stages(const struct config *c, const struct conf *f, int64_t fewer, int64_t more, const char *why,
                         struct err *e)
{
    int64_t first = fewer ? fewer : more, others = config_ranks(c) / c->parallel.pp;
    char other[64] = "";
    if (fewer && more) snprintf(other, sizeof other, " or %lld (-n %lld)", (long long)more, (long long)(others * more));
    return conf_error(f, e, "parallel.pp", "%.*s; the nearest that fits is %lld (-n %lld)%s", before_advice(why), why,
                      (long long)first, (long long)(others * first), other);
}

/* There is no such schedule: of which number is there another one? */
static int refuse_schedule(const struct config *c, const struct conf *f, const char *why, struct err *e)
{
    struct numbers s = numbers_of(c);
    int64_t m = s.microbatches;
    if (c->parallel.schedule_text)
        return conf_error(f, e, c->parallel.round ? "parallel.round" : "parallel.schedule_file", "%s", why);
    struct numbers own = {s.pp, 0, m}; /* the schedule's own number of chunks */
    if (s.chunks && first_that_fits(c, &own, &own.microbatches, m, m, false))
        return conf_error(f, e, "parallel.chunks", "%s", why);
    struct config with = *c; /* the schedule's own rounds */
    with.parallel.round = 0;
    if (c->parallel.round && first_that_fits(&with, &s, &s.microbatches, m, m, false))
        return conf_error(f, e, "parallel.round", "%s", why);
    int64_t below = first_that_fits(c, &s, &s.microbatches, m - 1, 1, false);
    int64_t above = first_that_fits(c, &s, &s.microbatches, m + 1, m + 4 * s.pp, false);
    if (below || above) return refuse_batch(c, f, below, above, why, e);
    int64_t fewer = s.pp > 2 ? first_that_fits(c, &s, &s.pp, s.pp - 1, 2, true) : 0,
            more = first_that_fits(c, &s, &s.pp, s.pp + 1, 2 * s.pp, true);
    if (s.pp == 1) {
        char other[64] = "";
        if (more)
            snprintf(other, sizeof other, ", or parallel.pp: %lld (-n %lld)", (long long)more,
                     (long long)(config_ranks(c) * more));
        return conf_error(f, e, "parallel.schedule", "%.*s; choose auto%s", before_advice(why), why, other);
    }
    if (fewer || more) return refuse_stages(c, f, fewer, more, why, e);
    return conf_error(f, e, "parallel.schedule", "%s", why);
}

int config_refuse_pipeline(const struct config *c, const struct conf *f, struct err *e)
{
    struct numbers s = numbers_of(c);
    struct err why = {0};
    int stages;
    if (!try_numbers(c, s, &stages, &why)) return OK;
    if (!stages) return refuse_schedule(c, f, why.text, e);
    if (c->parallel.pp_layers.n) return conf_error(f, e, "parallel.pp_layers", "%s; leave it out", why.text);
    if (c->parallel.schedule_text) return conf_error(f, e, "parallel.schedule_file", "%s", why.text);
    int64_t chunks = s.chunks > 1 ? first_that_fits(c, &s, &s.chunks, s.chunks - 1, 1, true) : 0;
    if (chunks)
        return conf_error(f, e, "parallel.chunks", "%.*s; the nearest that fits is %lld", before_advice(why.text),
                          why.text, (long long)chunks);
    int64_t pp = first_that_fits(c, &s, &s.pp, s.pp - 1, 1, true);
    char advice[64] = "";
    if (pp)
        snprintf(advice, sizeof advice, "; the nearest that fits is %lld (-n %lld)", (long long)pp,
                 (long long)(config_ranks(c) / s.pp * pp));
    return conf_error(f, e, "parallel.pp", "%.*s (%d on each of %lld ranks)%s", before_advice(why.text), why.text,
                      stages / to_int(s.pp), (long long)s.pp, advice);
}
