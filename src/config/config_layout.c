/* SPDX-License-Identifier: Apache-2.0 */
/* What is refused here cannot be: numbers that do not multiply to the ranks, an axis with more ranks than there are
 * things to share out, a schedule that has no such shape, an order of sums that ranks cannot keep. Everything else
 * works in any combination (tutti verify).
 *
 * The key to blame is the one whose change alone makes the layout legal, and of several the one that changes least.
 * Nearest values come from trying: a schedule is made for other numbers until it can be, so what is advised is what is
 * accepted. Rejected: advice computed apart from the check (it drifts). */
#include "config/config_layout.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "engine/build.h"

/* ---- the dense view ---- */
enum { DENSE = 5 };
struct degree {
    const char *key;
    int64_t *size; /* -1: what is left */
};

static int64_t times(int64_t a, int64_t b)
{
    const int64_t many = (int64_t)1 << 40; /* sizes are at most 2^20 */
    return a * b < many ? a * b : many;
}

/* The product of the degrees that are given; `but` (or -1) is not counted. */
static int64_t product(const struct degree *d, int but)
{
    int64_t p = 1;
    for (int i = 0; i < DENSE; i++)
        if (i != but && *d[i].size > 0) p = times(p, *d[i].size);
    return p;
}

/* The divisor of n nearest to k; of two the smaller. */
static int64_t nearest_divisor(int64_t n, int64_t k)
{
    int64_t below = k < n ? k : n, above = k;
    while (n % below) below--;
    while (above < n && n % above) above++;
    return above > n || n % above || k - below <= above - k ? below : above;
}

static int64_t largest_divisor(int64_t n, int64_t most)
{
    int64_t d = most < n ? most : n;
    while (n % d) d--;
    return d;
}

/* No single degree is wrong: the inner axes keep what they can, and dp_shard takes the rest. */
static void advise_all(const struct degree *d, int64_t n_ranks, char *out, size_t room)
{
    size_t k = 0;
    for (int i = DENSE; i-- > 0;) {
        int64_t was = *d[i].size, fits = i == 0 ? n_ranks : was > 0 ? largest_divisor(n_ranks, was) : 1;
        n_ranks /= fits;
        if (fits == was || was < 0) continue;
        k += (size_t)snprintf(out + k, k < room ? room - k : 0, "%s%s: %lld", k ? ", " : "",
                              d[i].key + strlen("parallel."), (long long)fits);
    }
}

/* The degrees given do not multiply to (with one left open: do not divide) n ranks, which are `who`. */
static int refuse_product(const struct degree *d, bool open, int64_t n, const char *who, int64_t start,
                          const struct conf *f, struct err *e)
{
    const char *verb = open ? "do not divide" : "are not";
    int worst = 0, best = -1;
    int64_t advice = 0;
    double least = 0;
    for (int i = 0; i < DENSE; i++) {
        int64_t size = *d[i].size, others = product(d, i);
        if (size > *d[worst].size) worst = i;
        if (size < 1 || n % others || (open && size == 1)) continue;
        int64_t to = open ? nearest_divisor(n / others, size) : n / others;
        double change = to > size ? (double)to / (double)size : (double)size / (double)to;
        if (best >= 0 && change >= least) continue;
        best = i;
        advice = to;
        least = change;
    }
    if (best < 0) {
        char all[160] = "";
        advise_all(d, n, all, sizeof all);
        return conf_error(f, e, d[worst].key,
                          "dp_replicate x dp_shard x tp x cp x pp = %lld ranks %s %s; choose %s, or start %lld "
                          "ranks (-n)",
                          (long long)product(d, -1), verb, who, all, (long long)start);
    }
    int64_t others = product(d, best);
    char rest[64] = "";
    if (others > 1) snprintf(rest, sizeof rest, ", times %lld along the other axes,", (long long)others);
    return conf_error(f, e, d[best].key, "%lld ranks%s %s %s; choose %lld, or start %lld ranks (-n)",
                      (long long)*d[best].size, rest, verb, who, (long long)advice, (long long)start);
}

static int resolve_dense(struct config *c, const struct conf *f, int n_ranks, struct err *e)
{
    struct degree d[DENSE] = {{"parallel.dp_shard", &c->parallel.dp_shard},
                              {"parallel.dp_replicate", &c->parallel.dp_replicate},
                              {"parallel.pp", &c->parallel.pp},
                              {"parallel.cp", &c->parallel.cp},
                              {"parallel.tp", &c->parallel.tp}};
    int64_t servers = c->parallel.servers, n = n_ranks - servers;
    int left = -1;
    char who[96];
    for (int i = 1; i < DENSE; i++) /* by default dp_shard takes what is left, unless somebody else wants it */
        if (*d[i].size == -1 && !strcmp(conf_where(f, d[0].key), "default")) c->parallel.dp_shard = 1;
    for (int i = 0; i < DENSE; i++) {
        if (*d[i].size == 0) return conf_error(f, e, d[i].key, "wanted 1 or more, or -1 for what is left; got 0");
        if (*d[i].size == -1 && left >= 0)
            return conf_error(f, e, d[i].key, "only one axis can take what is left (-1), and %s does; choose 1",
                              d[left].key);
        if (*d[i].size == -1) left = i;
    }
    snprintf(who, sizeof who, "the %d there are", n_ranks);
    if (servers)
        snprintf(who, sizeof who, "the %lld workers there are (%d ranks, %lld servers)", (long long)n, n_ranks,
                 (long long)servers);
    int64_t known = product(d, -1);
    if (left < 0 ? known != n : n % known) return refuse_product(d, left >= 0, n, who, known + servers, f, e);
    if (left >= 0) *d[left].size = n / known;
    return OK;
}

/* ---- what an axis can share out ---- */
static int64_t divisor_near_root(int64_t n)
{
    int64_t best = 1;
    for (int64_t d = 1; d * d <= n; d++)
        if (n % d == 0) best = d;
    return best;
}

void config_context(const struct config *c, struct par *par)
{
    int64_t cp = c->parallel.cp, inner = 1;
    if (c->parallel.cp_algorithm == CP_ALL_TO_ALL) inner = cp;
    if (c->parallel.cp_algorithm == CP_TWO_LEVEL)
        inner = c->parallel.cp_inner ? c->parallel.cp_inner : divisor_near_root(cp);
    par->context_inner = to_int(inner);
    par->context_gather = c->parallel.cp_algorithm == CP_ALL_GATHER;
}

static int check_context(const struct config *c, const struct conf *f, struct err *e)
{
    int64_t cp = c->parallel.cp, inner = c->parallel.cp_inner, seq = c->model.seq_len;
    int64_t fits = largest_divisor(cp * c->parallel.dp_shard, seq);
    if (cp > seq)
        return conf_error(f, e, "parallel.cp",
                          "%lld ranks leave some without a token of model.seq_len = %lld; choose %lld and "
                          "parallel.dp_shard: %lld, or a longer sequence",
                          (long long)cp, (long long)seq, (long long)fits,
                          (long long)(cp * c->parallel.dp_shard / fits));
    if (inner && c->parallel.cp_algorithm != CP_TWO_LEVEL)
        return conf_error(f, e, "parallel.cp_inner",
                          "is for cp_algorithm: two_level, which has two levels; choose that, or 0");
    if (inner && cp % inner)
        return conf_error(f, e, "parallel.cp_inner", "%lld does not divide cp = %lld; the nearest that does is %lld",
                          (long long)inner, (long long)cp, (long long)nearest_divisor(cp, inner));
    if (cp > PAR_MAX_INNER && c->parallel.cp_algorithm == CP_ALL_TO_ALL)
        return conf_error(f, e, "parallel.cp_algorithm",
                          "all_to_all exchanges heads between at most %d ranks, cp is %lld; choose two_level",
                          PAR_MAX_INNER, (long long)cp);
    return OK;
}

/* Workers share out sequences only, and keep no state that could be shared. */
static int check_servers(const struct config *c, const struct conf *f, int n_ranks, struct err *e)
{
    static const char whole[] = "each worker of a parameter server runs the whole model on whole sequences";
    int64_t s = c->parallel.servers;
    const struct {
        const char *key;
        bool bad;
        const char *set, *why;
    } no[] = {
        {"parallel.tp", c->parallel.tp != 1, "1", whole},
        {"parallel.cp", c->parallel.cp != 1, "1", whole},
        {"parallel.pp", c->parallel.pp != 1, "1", whole},
        {"parallel.ep", c->parallel.ep != 1, "1", whole},
        {"parallel.dp_replicate", c->parallel.dp_replicate != 1, "1",
         "all workers of a parameter server are alike, and no shards are copied"},
        {"parallel.zero", c->parallel.zero != 0, "0", "the servers hold the state, so workers have none to share out"},
        {"precision.grad", c->precision.grad != GRAD_FP32, "fp32", "servers add up gradients in fp32"},
        {"precision.recipe", c->precision.recipe == RECIPE_FP16, "bf16",
         "servers step as soon as gradients arrive, and know no loss scale"},
        {"numerics.exact_order", c->numerics.exact_order, "false",
         "servers add up gradients worker by worker, which depends on their number"},
        {"model.moe.bias_speed", c->model.moe.bias && c->model.moe.bias_speed != 0, "0",
         "servers step parameters by gradients, and see no loads of experts"},
    };
    if (!s) return OK;
    if (s >= n_ranks)
        return conf_error(f, e, "parallel.servers",
                          "%lld of %d ranks leave no worker; choose at most %d, or start more ranks (-n)", (long long)s,
                          n_ranks, n_ranks - 1);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        char without[64] = "";
        if (strcmp(no[i].key, "numerics.exact_order")) /* which may refuse so many ranks, servers or not */
            snprintf(without, sizeof without, ", or parallel.servers: 0 (-n %lld)", (long long)(n_ranks - s));
        if (no[i].bad) return conf_error(f, e, no[i].key, "%s; choose %s%s", no[i].why, no[i].set, without);
    }
    return OK;
}

/* The expert view folds the ranks of one replica again: ep x etp x (inside of edp) = dp_shard x cp x tp. */
static int resolve_experts(struct config *c, const struct conf *f, struct err *e)
{
    int64_t tp = c->parallel.tp, experts = c->model.moe.experts, *etp = &c->parallel.etp, *ep = &c->parallel.ep;
    if (!*etp) *etp = tp;
    if (tp % *etp)
        return conf_error(f, e, "parallel.etp",
                          "%lld does not divide parallel.tp = %lld, whose ranks it shares out; the nearest that does "
                          "is %lld",
                          (long long)*etp, (long long)tp, (long long)nearest_divisor(tp, *etp));
    int64_t ranks = c->parallel.dp_shard * c->parallel.cp * tp / *etp,
            most = experts ? largest_divisor(ranks, experts) : 1;
    if (*ep == 0) return conf_error(f, e, "parallel.ep", "wanted 1 or more, or -1 for what is left; got 0");
    if (*ep == -1) *ep = most;
    if (*ep > 1 && !experts)
        return conf_error(f, e, "parallel.ep", "the model has no experts to share out; choose 1, got %lld",
                          (long long)*ep);
    if (*ep > 1 && *ep > experts)
        return conf_error(f, e, "parallel.ep",
                          "%lld ranks leave some without one of the %lld experts; the nearest ep that fits is %lld",
                          (long long)*ep, (long long)experts, (long long)most);
    if (ranks % *ep)
        return conf_error(f, e, "parallel.ep",
                          "ep x etp = %lld x %lld must divide the dp_shard x cp x tp = %lld ranks of a replica; "
                          "the nearest ep that does is %lld",
                          (long long)*ep, (long long)*etp, (long long)(ranks * *etp),
                          (long long)largest_divisor(ranks, *ep));
    return OK;
}

/* Counts per rank are kept in arrays of fixed size. What an axis gives up goes to dp_shard, so the ranks stay as
 * many. */
static int check_sizes(const struct config *c, const struct conf *f, struct err *e)
{
    int64_t shard = c->parallel.dp_shard, etp = c->parallel.etp,
            copies = etp < c->parallel.tp ? etp : 1; /* one group with ep */
    const struct {
        const char *key;
        int64_t size;
    } axis[] = {{"parallel.tp", c->parallel.tp}, {"parallel.cp", c->parallel.cp}};
    for (size_t i = 0; i < sizeof axis / sizeof *axis; i++) {
        int64_t fits = largest_divisor(axis[i].size, PAR_MAX_RANKS);
        if (axis[i].size > PAR_MAX_RANKS)
            return conf_error(f, e, axis[i].key,
                              "%lld ranks in one group, of at most %d; choose %lld and parallel.dp_shard: %lld",
                              (long long)axis[i].size, PAR_MAX_RANKS, (long long)fits,
                              (long long)(axis[i].size / fits * shard));
    }
    int64_t most = PAR_MAX_RANKS / copies, ranks = shard * c->parallel.cp * c->parallel.tp / etp;
    if (c->parallel.ep > most)
        return conf_error(f, e, "parallel.ep", "%lld ranks in one group, of at most %d; choose %lld",
                          (long long)(c->parallel.ep * copies), PAR_MAX_RANKS,
                          (long long)largest_divisor(ranks, most < c->model.moe.experts ? most : c->model.moe.experts));
    return OK;
}

int config_resolve_degrees(struct config *c, const struct conf *f, int n_ranks, struct err *e)
{
    int rc = check_servers(c, f, n_ranks, e);
    if (!rc) rc = resolve_dense(c, f, n_ranks, e);
    if (!rc) rc = check_context(c, f, e);
    if (!rc) rc = resolve_experts(c, f, e);
    if (!rc) rc = check_sizes(c, f, e);
    return rc;
}

/* ---- the pipeline ---- */
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

/* Another number of microbatches would do. */
static int refuse_batch(const struct config *c, const struct conf *f, int64_t below, int64_t above, const char *why,
                        struct err *e)
{
    int64_t dp = config_dp(c), each = dp * c->batch.micro;
    char other[48] = "";
    if (below && above) snprintf(other, sizeof other, " or %lld", (long long)(above * each));
    return conf_error(f, e, "batch.global",
                      "%s; with %lld data-parallel ranks and batch.micro = %lld that is batch.global = %lld%s", why,
                      (long long)dp, (long long)c->batch.micro, (long long)((below ? below : above) * each), other);
}

/* Another number of stages would do, on as many ranks as then come together. */
static int refuse_stages(const struct config *c, const struct conf *f, int64_t fewer, int64_t more, const char *why,
                         struct err *e)
{
    int64_t first = fewer ? fewer : more, others = config_ranks(c) / c->parallel.pp;
    char other[64] = "";
    if (fewer && more) snprintf(other, sizeof other, " or %lld (-n %lld)", (long long)more, (long long)(others * more));
    return conf_error(f, e, "parallel.pp", "%s; the nearest that fits is %lld (-n %lld)%s", why, (long long)first,
                      (long long)(others * first), other);
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
    int64_t fewer = first_that_fits(c, &s, &s.pp, s.pp - 1, 2, true),
            more = first_that_fits(c, &s, &s.pp, s.pp + 1, 2 * s.pp, true);
    if (fewer || more) return refuse_stages(c, f, fewer, more, why, e);
    return conf_error(f, e, "parallel.schedule", "%s", why);
}

static int check_pipeline(const struct config *c, const struct conf *f, struct err *e)
{
    struct numbers s = numbers_of(c);
    struct err why = {0};
    int stages;
    if (!try_numbers(c, s, &stages, &why)) return OK;
    if (!stages) return refuse_schedule(c, f, why.text, e);
    if (c->parallel.pp_layers.n) return conf_error(f, e, "parallel.pp_layers", "%s", why.text);
    if (c->parallel.schedule_text) return conf_error(f, e, "parallel.schedule_file", "%s", why.text);
    int64_t chunks = s.chunks > 1 ? first_that_fits(c, &s, &s.chunks, s.chunks - 1, 1, true) : 0;
    if (chunks)
        return conf_error(f, e, "parallel.chunks", "%s; the nearest that fits is %lld", why.text, (long long)chunks);
    int64_t pp = first_that_fits(c, &s, &s.pp, s.pp - 1, 1, true);
    char advice[64] = "";
    if (pp)
        snprintf(advice, sizeof advice, "; the nearest pp that fits is %lld (-n %lld)", (long long)pp,
                 (long long)(config_ranks(c) / s.pp * pp));
    return conf_error(f, e, "parallel.pp", "%s (%d on each of %lld ranks)%s", why.text, stages / to_int(s.pp),
                      (long long)s.pp, advice);
}

/* ---- exact order ---- */
static int64_t power_below(int64_t n)
{
    int64_t p = 1;
    while (2 * p <= n) p *= 2;
    return p;
}

/* What check_exact wants, all of it, of a layout that is advised: its degrees say how many ranks to start, so nothing
 * else has to change. */
static bool exact_fits(const struct config *c)
{
    int64_t dp = config_dp(c);
    struct err ignored;
    bool apart = c->model.moe.experts && c->parallel.etp<c->parallel.tp, pipe = c->parallel.pp> 1;
    return power_below(dp) == dp && c->parallel.cp == 1 && c->parallel.ep == 1 && !apart &&
           c->precision.grad == GRAD_FP32 && c->batch.global % (dp * c->batch.micro) == 0 &&
           !(pipe && config_microbatches(c) > 1) && !config_check_pipeline(c, &ignored);
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

/* Every rank has a subtree of the tree of microbatches (state/exact.h). *key: what to change. */
static int check_exact(const struct config *c, const char **key, struct err *e)
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
    if (c->parallel.pp > 1 && config_microbatches(c) > 1)
        return err_set(e, ERR_REQUEST,
                       "numerics.exact_order finishes a microbatch before the next begins, a pipeline has several "
                       "under way; choose 1 (-n %d), or batch.global = %lld: one microbatch a rank",
                       ranks / to_int(c->parallel.pp), (long long)(dp * m));
    return OK;
}

int config_check_exact(const struct config *c, struct err *e)
{
    const char *key;
    return c->numerics.exact_order ? check_exact(c, &key, e) : OK;
}

int config_resolve_schedule(const struct config *c, const struct conf *f, struct err *e)
{
    const char *key;
    struct err why = {0};
    int rc = check_pipeline(c, f, e);
    if (rc || !c->numerics.exact_order) return rc;
    return check_exact(c, &key, &why) ? conf_error(f, e, key, "%s", why.text) : OK;
}
