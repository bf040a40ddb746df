/* SPDX-License-Identifier: Apache-2.0 */
/* What is refused here cannot be: numbers that do not multiply to the ranks, an axis with more ranks than there are
 * things to share out, a schedule that has no such shape (config_pipeline.c), an order of sums that ranks cannot keep
 * (config_exact.c). Everything else works in any combination (tutti verify).
 *
 * The key to blame is the one whose change alone makes the layout legal, and of several the one that changes least.
 * Rejected: advice computed apart from the check (it drifts). */
#include "config/config_layout.h"

#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "data/pack.h"

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

/* What goes by a token's place, so that documents cannot be put in another order; NULL: nothing does. */
static const char *by_place(const struct config *c)
{
    if (c->model.dropout > 0) return "dropout goes by a token's place in its sequence (model.dropout)";
    if (c->model.moe.experts && c->model.moe.capacity > 0)
        return "who finds room at an expert goes by a token's place in its sequence (model.moe.capacity)";
    if (model_scans(&c->model)) return "a state goes on from the token that stands before (model.family)";
    if (recipe_quantises(c->precision.recipe) || c->precision.layers.n)
        return "scales of products in fewer bits go by tokens' places (precision.recipe)";
    return NULL;
}

bool config_cp_area(const struct config *c)
{
    if (c->parallel.cp == 1 || c->parallel.cp_balance == CP_BALANCE_POSITION) return false;
    if (c->parallel.cp_balance == CP_BALANCE_AREA) return true;
    return (config_packs(c) || model_prefixes(&c->model)) && !by_place(c);
}

static int check_balance(const struct config *c, const struct conf *f, struct err *e)
{
    const char *why = by_place(c);
    bool mask = c->train.objective != OBJECTIVE_GRPO && !model_sees(&c->model) && !model_pairs(&c->model),
         pack = mask && c->train.objective == OBJECTIVE_NEXT && !model_tells(&c->model); /* what may be */
    if (c->parallel.cp_balance != CP_BALANCE_AREA || c->parallel.cp == 1) return OK;
    if (!c->model.document_mask)
        return conf_error(f, e, "parallel.cp_balance",
                          "area is for documents that do not see each other; choose position%s%s",
                          mask ? ", or model.document_mask: true" : "", pack ? ", or data.pack: best_fit" : "");
    return why ? conf_error(f, e, "parallel.cp_balance", "%s; choose position or auto", why) : OK;
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
    if (check_balance(c, f, e)) return e->code;
    if (cp > PAR_MAX_INNER && c->parallel.cp_algorithm == CP_ALL_TO_ALL)
        return conf_error(f, e, "parallel.cp_algorithm",
                          "all_to_all exchanges heads between at most %d ranks, cp is %lld; choose two_level",
                          PAR_MAX_INNER, (long long)cp);
    return OK;
}

/* Heads of state spaces go over tp in whole groups, or a single group is on all ranks. */
static int check_groups(const struct config *c, const struct conf *f, struct err *e)
{
    const struct ssm_config *s = &c->model.ssm;
    int64_t tp = c->parallel.tp;
    if (!model_scans(&c->model) || tp <= s->groups || (s->groups == 1 && tp <= s->heads)) return OK;
    if (s->groups == 1)
        return conf_error(f, e, "parallel.tp", "%lld ranks share out %lld heads (model.ssm.heads); choose at most %lld",
                          (long long)tp, (long long)s->heads, (long long)largest_divisor(tp, s->heads));
    return conf_error(f, e, "parallel.tp",
                      "%lld ranks share out %lld groups of heads (model.ssm.groups), and a group that lies on some of "
                      "them has no norm of its own there; choose at most %lld",
                      (long long)tp, (long long)s->groups, (long long)largest_divisor(tp, s->groups));
}

/* Of encoder and decoder: axes whose parts would each want both. */
static int check_pairs(const struct config *c, const struct conf *f, struct err *e)
{
    if (!model_pairs(&c->model)) return OK;
    if (c->parallel.cp != 1)
        return conf_error(
            f, e, "parallel.cp",
            "a sample of t5 is two texts, and biases go by distances inside of each, which ranks that hold "
            "parts of samples do not compute; choose 1 (parallel.dp_shard shares out samples, parallel.tp heads)");
    if (c->parallel.pp != 1)
        return conf_error(f, e, "parallel.pp",
                          "every layer of t5's decoder reads what the encoder made, and a stage sends one stream to "
                          "the next; choose 1%s (parallel.dp_shard shares out samples, parallel.tp heads)",
                          strcmp(c->parallel.schedule, "auto") ? " and parallel.schedule: auto" : "");
    if (c->parallel.tp > c->model.heads)
        return conf_error(f, e, "parallel.tp",
                          "%lld ranks share out %lld heads of t5, and attention with a bias by distance wants one on "
                          "each; choose at most %lld",
                          (long long)c->parallel.tp, (long long)c->model.heads, (long long)c->model.heads);
    if (c->parallel.chunks > 1 || c->parallel.round || c->parallel.schedule_text)
        return conf_error(f, e,
                          c->parallel.chunks > 1 ? "parallel.chunks"
                          : c->parallel.round    ? "parallel.round"
                                                 : "parallel.schedule_file",
                          "cuts the layers into stages, and every layer of t5's decoder reads what the "
                          "encoder made; "
                          "leave it out");
    return OK;
}

/* Workers share out sequences only, and keep no state that could be shared. */
static int check_servers(const struct config *c, const struct conf *f, int n_ranks, struct err *e)
{
    static const char whole[] = "each worker of a parameter server runs the whole model on whole sequences";
    int64_t s = c->parallel.servers;
    struct optim_config optim = config_optim(c);
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
        {"precision.master", c->precision.master == MASTER_NONE, "fp32",
         "servers keep masters in fp32 and send weights rounded"},
        {"optimizer.name", optim_steps(&optim, OPTIM_ADAFACTOR), "adamw",
         "servers step pieces of matrices, and adafactor agrees on sums over whole ones"},
        {"precision.recipe", c->precision.recipe == RECIPE_FP16 && c->parallel.server_mode == SERVER_ASYNC, "bf16",
         "whether a step of fp16 is left out, and by what the loss is multiplied, all ranks agree on after each step, "
         "and "
         "those of an asynchronous server have none in common (parallel.server_mode: sync has)"},
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
        return conf_error(f, e, "parallel.ep", "%lld ranks, and the model has no experts to share out; choose 1",
                          (long long)*ep);
    if (*ep > 1 && *ep > experts)
        return conf_error(f, e, "parallel.ep",
                          "%lld ranks leave some without one of the %lld experts; the nearest that fits is %lld",
                          (long long)*ep, (long long)experts, (long long)most);
    if (ranks % *ep)
        return conf_error(f, e, "parallel.ep",
                          "ep x etp = %lld x %lld must divide the dp_shard x cp x tp = %lld ranks of a replica; "
                          "the nearest that does is %lld",
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

int config_ranks(const struct config *c)
{
    return to_int(config_dp(c) * c->parallel.tp * c->parallel.cp * c->parallel.pp + c->parallel.servers);
}

int64_t config_dp(const struct config *c) { return c->parallel.dp_replicate * c->parallel.dp_shard; }

void config_part(const struct config *c, int i, int64_t *first, int64_t *n)
{
    int64_t end;
    team_split(c->batch.global, i, to_int(config_dp(c)), first, &end);
    *n = end - *first;
}

double config_share_there(const struct config *c)
{
    return (double)c->batch.global / (double)(config_dp(c) * config_microbatches(c) * c->batch.micro);
}

double config_passes(const struct config *c)
{
    double updates = (double)c->train.grpo.updates;
    if (config_prefers(c)) return 1;
    if (c->train.objective != OBJECTIVE_GRPO || updates < 1) return 0;
    bool again =
        c->parallel.tp > 1 || c->parallel.cp > 1; /* what was written has other bits (train/trainer_policy_step.c) */
    return ((c->train.grpo.beta > 0) + updates - !again) / updates;
}

int config_resolve_degrees(struct config *c, const struct conf *f, int n_ranks, struct err *e)
{
    int rc = check_servers(c, f, n_ranks, e);
    if (!rc) rc = resolve_dense(c, f, n_ranks, e);
    if (!rc) rc = check_pairs(c, f, e);
    if (!rc) rc = check_context(c, f, e);
    if (!rc) rc = check_groups(c, f, e);
    if (!rc) rc = resolve_experts(c, f, e);
    if (!rc) rc = check_sizes(c, f, e);
    return rc;
}

int config_resolve_schedule(const struct config *c, const struct conf *f, struct err *e)
{
    const char *key;
    struct err why = {0};
    int rc = config_refuse_pipeline(c, f, e);
    if (rc || !c->numerics.exact_order) return rc;
    return config_exact(c, &key, &why) ? conf_error(f, e, key, "%s", why.text) : OK;
}
