/* SPDX-License-Identifier: Apache-2.0 */
/* Which layouts can add gradients up in one order (numerics.exact_order): those in which every rank has a subtree of
 * the tree of microbatches (state/exact.h). A layout that is advised passes all of the same checks, so following the
 * advice is enough. */
#include <stdio.h>

#include "config/config_layout.h"
#include "engine/build.h"

static int64_t power_below(int64_t n)
{
    int64_t p = 1;
    while (2 * p <= n) p *= 2;
    return p;
}

static bool schedule_in_order(const struct config *c)
{
    struct pipeline_config p = config_pipeline(c);
    struct schedule *s = NULL;
    struct err ignored;
    bool fits = !build_plan(&s, &p, to_int(c->parallel.pp), to_int(config_microbatches(c)), &ignored);
    fits = fits && build_in_order(s);
    schedule_free(s);
    return fits;
}

/* Takes tutti's own schedule where the one asked for keeps no order, and says what else changes: "" or
 * " and parallel.schedule: auto and parallel.chunks: 0". named: the schedule, too. */
static const char *own_schedule(struct config *with, bool named, char out[96])
{
    bool chunks = with->parallel.chunks > 0, round = with->parallel.round > 0;
    out[0] = 0;
    if (schedule_in_order(with)) return out;
    with->parallel.schedule = "auto";
    with->parallel.chunks = with->parallel.round = 0;
    snprintf(out, 96, "%s%s%s", named ? " and parallel.schedule: auto" : "", chunks ? " and parallel.chunks: 0" : "",
             round ? " and parallel.round: 0" : "");
    return out;
}

/* What config_exact wants, all of it, of a layout that is advised: its degrees say how many ranks to start, so nothing
 * else has to change. */
static bool exact_fits(const struct config *c)
{
    int64_t dp = config_dp(c);
    struct err ignored;
    bool apart = c->model.moe.experts && c->parallel.etp<c->parallel.tp, pipe = c->parallel.pp> 1;
    return power_below(dp) == dp && c->parallel.cp == 1 && c->parallel.ep == 1 && !apart &&
           c->precision.grad == GRAD_FP32 && c->batch.global % (dp * c->batch.micro) == 0 &&
           !(pipe && config_microbatches(c) > 1) && !config_check_pipeline(c, &ignored) && schedule_in_order(c);
}

/* Both data-parallel degrees as powers of two, the next ones above, or the nearest ones below with which the batch can
 * be halved. */
static bool halving_degrees(const struct config *c, bool above, struct config *with)
{
    int64_t *const degree[] = {&with->parallel.dp_replicate, &with->parallel.dp_shard};
    *with = *c;
    for (int i = 0; i < 2; i++) {
        int64_t below = power_below(*degree[i]);
        if (below != *degree[i]) *degree[i] = above ? 2 * below : below;
    }
    while (!above && !exact_fits(with) && config_dp(with) > 1) *degree[*degree[0] > *degree[1] ? 0 : 1] /= 2;
    return exact_fits(with);
}

/* " parallel.dp_shard: 2 (-n 2), or": what differs, and the ranks that then have to be started. */
static void advise_degrees(const struct config *c, const struct config *with, char *out, size_t n)
{
    size_t k = 0;
    if (with->parallel.dp_replicate != c->parallel.dp_replicate)
        k += (size_t)snprintf(out, n, " parallel.dp_replicate: %lld", (long long)with->parallel.dp_replicate);
    if (with->parallel.dp_shard != c->parallel.dp_shard)
        k += (size_t)snprintf(out + k, n - k, "%s parallel.dp_shard: %lld", k ? " and" : "",
                              (long long)with->parallel.dp_shard);
    snprintf(out + k, n - k, " (-n %d), or", config_ranks(with));
}

static int refuse_halving(const struct config *c, struct err *e)
{
    struct config with;
    char below[128] = "", above[128] = "";
    if (halving_degrees(c, false, &with)) advise_degrees(c, &with, below, sizeof below);
    if (halving_degrees(c, true, &with)) advise_degrees(c, &with, above, sizeof above);
    return err_set(e, ERR_REQUEST,
                   "numerics.exact_order halves the batch: wanted a power of two data-parallel ranks, got %lld; choose"
                   "%s%s numerics.exact_order: false",
                   (long long)config_dp(c), below, above);
}

/* The number of sequences nearest to batch.micro with which the batch can be halved; 0: there is none. */
static int64_t halving_micro(const struct config *c)
{
    struct config with = *c;
    for (int64_t d = 1; d < c->batch.global; d++)
        for (int up = 0; up < 2; up++) {
            int64_t m = with.batch.micro = up ? c->batch.micro + d : c->batch.micro - d;
            if (m >= 1 && m <= c->batch.global && exact_fits(&with)) return m;
        }
    return 0;
}

/* The batch has to be a multiple of `unit`. */
static int refuse_unequal(const struct config *c, int64_t unit, struct err *e)
{
    struct config with = *c;
    int64_t below = c->batch.global / unit * unit, fits[2], n = 0;
    for (int up = 0; up < 2; up++) {
        with.batch.global = below + (up || !below ? unit : 0);
        if (up && !below) with.batch.global += unit;
        if (exact_fits(&with)) fits[n++] = with.batch.global;
    }
    with.batch.global = unit;
    if (!n) fits[n++] = unit; /* a microbatch on each rank */
    char other[32] = "";
    if (n > 1) snprintf(other, sizeof other, " or %lld", (long long)fits[1]);
    return err_set(e, ERR_REQUEST,
                   "numerics.exact_order wants as many microbatches of %lld on each of %lld data-parallel ranks, got "
                   "%lld sequences; choose %lld%s",
                   (long long)c->batch.micro, (long long)config_dp(c), (long long)c->batch.global, (long long)fits[0],
                   other);
}

/* Several microbatches are under way. */
static int refuse_pipeline(const struct config *c, struct err *e)
{
    struct config one = *c, few = *c;
    char also_one[96], also_few[96];
    one.parallel.pp = 1;
    few.batch.global = config_dp(c) * c->batch.micro;
    own_schedule(&one, true, also_one);
    own_schedule(&few, true, also_few);
    return err_set(e, ERR_REQUEST,
                   "numerics.exact_order finishes a microbatch before the next begins, a pipeline has several under "
                   "way; choose 1%s (-n %d), or batch.global: %lld%s (one microbatch a rank)",
                   also_one, config_ranks(&one), (long long)few.batch.global, also_few);
}

static int refuse_order(const struct config *c, const char **key, struct err *e)
{
    struct config with = *c;
    char also[96];
    *key = c->parallel.schedule_text ? "parallel.schedule_file" : "parallel.schedule";
    if (c->parallel.schedule_text)
        return err_set(e, ERR_REQUEST,
                       "numerics.exact_order finishes a microbatch on a rank's one stage before the next begins, and "
                       "this schedule does not; leave it out, or choose numerics.exact_order: false");
    own_schedule(&with, false, also);
    return err_set(e, ERR_REQUEST,
                   "numerics.exact_order finishes a microbatch on a rank's one stage before the next begins, and %s "
                   "does not; choose auto%s, or numerics.exact_order: false",
                   c->parallel.schedule, also);
}

int config_exact(const struct config *c, const char **key, struct err *e)
{
    int64_t dp = config_dp(c), m = c->batch.micro, n = c->batch.global, tp = c->parallel.tp;
    int ranks = config_ranks(c);
    *key = power_below(c->parallel.dp_replicate) != c->parallel.dp_replicate ? "parallel.dp_replicate"
                                                                             : "parallel.dp_shard";
    if (power_below(dp) != dp) return refuse_halving(c, e);
    *key = "parallel.cp";
    if (c->parallel.cp > 1)
        return err_set(e, ERR_REQUEST,
                       "numerics.exact_order adds up gradients of whole sequences in one order, and ranks of cp have "
                       "sums over parts of them; choose 1 (-n %d), or numerics.exact_order: false",
                       ranks / to_int(c->parallel.cp));
    *key = "parallel.ep";
    if (c->parallel.ep > 1)
        return err_set(e, ERR_REQUEST,
                       "numerics.exact_order adds up gradients of whole microbatches in one order, and over ep an "
                       "expert sums over those of all ranks at once; choose 1, or numerics.exact_order: false");
    *key = "parallel.etp";
    if (c->model.moe.experts && c->parallel.etp < tp)
        return err_set(e, ERR_REQUEST,
                       "numerics.exact_order adds up gradients of whole sequences in one order, and with etp below tp "
                       "ranks of tp have sums over parts of them; choose %lld, or numerics.exact_order: false",
                       (long long)tp);
    *key = "precision.grad";
    if (c->precision.grad != GRAD_FP32)
        return err_set(e, ERR_REQUEST,
                       "bf16 rounds sums where ranks meet, which numerics.exact_order cannot allow; choose fp32");
    *key = "batch.micro";
    int64_t micro = n % (dp * m) ? halving_micro(c) : m;
    if (n % m && micro)
        return err_set(e, ERR_REQUEST,
                       "numerics.exact_order wants equal microbatches: %lld does not divide batch.global = "
                       "%lld; the nearest that fits is %lld",
                       (long long)m, (long long)n, (long long)micro);
    if (n % (dp * m) && micro)
        return err_set(e, ERR_REQUEST,
                       "numerics.exact_order wants as many microbatches of %lld on each of %lld data-parallel ranks, "
                       "which have %lld sequences; the nearest that fits is %lld",
                       (long long)m, (long long)dp, (long long)(n / dp), (long long)micro);
    *key = "batch.global";
    if (n % (dp * m)) return refuse_unequal(c, dp * m, e);
    *key = "parallel.pp";
    if (c->parallel.pp > 1 && config_microbatches(c) > 1) return refuse_pipeline(c, e);
    return schedule_in_order(c) ? OK : refuse_order(c, key, e);
}

int config_check_exact(const struct config *c, struct err *e)
{
    const char *key;
    return c->numerics.exact_order ? config_exact(c, &key, e) : OK;
}
