/* SPDX-License-Identifier: Apache-2.0 */
#include "site/choose.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "config/config_codec.h"
#include "config/config_layout.h"
#include "config/config_memory.h"
#include "config/config_offload.h"
#include "site/site.h"

#define FLOPS_PER_BYTE 100.0
#define FLOPS_PER_BYTE_OF_DISK 1000.0
enum { GROUPS = 16 };

/* ---- what a candidate costs ---- */
/* What a step puts away and brings back, beside its work or after it. */
struct travel {
    double beside, after;
};

static struct travel travel_of(const struct engine *g)
{
    struct travel t = {0};
    double times = (double)g->cfg.n_microbatches;
    for (int s = 0; s < g->n_stages; s++)
        if (g->stage[s].train) t.beside += 2 * times * (double)g->stage[s].train->bytes[HOME_AWAY];
    for (int k = 0; k < g->store.n_arrays; k++) {
        const struct array *a = &g->store.array[k];
        bool weights = k == STORE_PARAM, stepped = !weights || !array_is_here(&g->store.array[STORE_MASTER]);
        if (!a->row.away) continue;
        if (weights) t.beside += 2 * times * (double)a->buf.bytes;
        t.after += (stepped ? 2 : 1) * (double)a->buf.bytes; /* a copy is written and not read */
    }
    return t;
}

/* The table of state/exchange.h, for parameters that n ranks share out. */
static double sent_of(const struct engine *g, bool expert, int n)
{
    const struct store *s = &g->store;
    double grads = 0, params = 0, times = (double)g->cfg.n_microbatches;
    for (int i = 0; i < g->params.n; i++) {
        const struct codec_rows row = {.rows = 1, .cols = g->params.p[i].held};
        if (g->params.p[i].expert != expert || !row.cols) continue;
        if (!g->params.p[i].frozen) grads += (double)codec_bytes(g->cfg.comm_grad, &row, s->grad_dtype);
        params += (double)codec_bytes(g->cfg.comm_param, &row, s->dtype);
    }
    double back = s->zero == 0 ? grads : s->zero == 3 ? 2 * times * params : params;
    return ((s->many && !s->once ? times : 1) * grads + back) * (n - 1) / n;
}

double choose_work(const struct choose_cost *x) { return x->work + FLOPS_PER_BYTE * x->sent; }

struct choose_cost choose_cost_of(const struct engine *g)
{
    struct choose_cost c = {.bytes = (double)g->dev->ledger.peak_total, .flops = engine_flops_step(g)};
    const struct units *u = &g->store.units;
    if (u->table) c.sent = sent_of(g, false, u->n_ranks) + sent_of(g, true, u->n_expert_ranks);
    struct travel t = travel_of(g);
    c.moved = t.beside + t.after;
    c.work = FLOPS_PER_BYTE * c.moved + FLOPS_PER_BYTE_OF_DISK * t.after;
    if (FLOPS_PER_BYTE_OF_DISK * t.beside > c.flops) c.work += FLOPS_PER_BYTE_OF_DISK * t.beside - c.flops;
    return c;
}

/* ---- how long a step is ---- */
static struct schedule_stage_cost stage_of(const struct program *p)
{
    struct schedule_stage_cost c = {0};
    double *const phase[PHASE_N] = {&c.f, &c.b, &c.w};
    for (int ph = 0; ph < PHASE_N; ph++)
        for (int i = p->begin[ph]; i < p->begin[ph + 1]; i++) {
            const struct instr *x = &p->code[i];
            double work = x->flops + FLOPS_PER_BYTE * instr_bytes(x);
            if (x->when != WHEN_FALLEN) *(x->again ? &c.again : phase[ph]) += work;
        }
    return c;
}

void choose_stages_of(const struct engine *g, struct schedule_stage_cost *each)
{
    for (int i = 0; i < g->n_stages; i++) {
        struct schedule_stage_cost *x = &each[g->stage[i].index];
        if (!g->stage[i].train) continue;
        struct schedule_stage_cost c = stage_of(g->stage[i].train);
        *x = (struct schedule_stage_cost){.f = fmax(x->f, c.f),
                                          .b = fmax(x->b, c.b),
                                          .w = fmax(x->w, c.w),
                                          .again = fmax(x->again, c.again)};
    }
}

double choose_step(const struct schedule *s, const struct schedule_stage_cost *each)
{
    struct schedule_timeline t;
    schedule_simulate(s, &(struct schedule_cost){.each = each}, &t);
    double step = t.makespan;
    schedule_timeline_fini(&t);
    return step;
}

/* From what each rank of w (NULL: one) knows of its stages; the same on all of them. A rank without stages, a server,
 * is told. */
static int agree_step(struct comm *w, const struct engine *g, struct choose_cost *c, struct err *e)
{
    const struct schedule *s = g ? g->when : NULL;
    int64_t n = s ? s->n_stages : 0;
    if (w) comm_wait(w, comm_all_reduce(w, &n, &n, 1, DT_I64, COMM_MAX, "stages"));
    struct schedule_stage_cost *each = xcalloc(to_size(n) + 1, sizeof *each);
    if (g) choose_stages_of(g, each);
    int64_t values = n * (int64_t)(sizeof *each / sizeof(double));
    if (w) comm_wait(w, comm_all_reduce(w, each, each, values, DT_F64, COMM_MAX, "work of stages"));
    int rc = w ? comm_status(w, e) : OK;
    if (!rc && s) c->step = choose_step(s, each);
    xfree(each);
    return rc;
}

int choose_together(void *world, const struct config *c, struct choose_cost *out, struct err *e)
{
    struct comm *w = world;
    struct site s;
    struct comm_config link = config_comm(c);
    struct param_server_config serve = {.async = c->parallel.server_mode == SERVER_ASYNC, .steps = 1};
    int rank = w ? comm_rank(w) : 0, n = w ? comm_size(w) : 1;
    link.link_GBps = link.link_latency_s = 0;
    int rc = site_open(&s,
                       &(struct site_config){.config = c,
                                             .kind = SITE_COUNTS,
                                             .rank = rank,
                                             .n = n,
                                             .link = &link,
                                             .serve = &serve},
                       e);
    bool open = !rc;
    *out = open ? choose_cost_of(s.engine) : (struct choose_cost){0};
    if (w) rc = comm_agree(w, rc, e);
    if (!rc) rc = agree_step(w, s.engine, out, e);
    if (!rc && w) {
        int64_t values = sizeof *out / sizeof(double);
        comm_wait(w, comm_all_reduce(w, out, out, values, DT_F64, COMM_MAX, "bytes and work of a candidate"));
        rc = comm_status(w, e);
    }
    if (open) site_close(&s);
    return rc;
}

/* ---- the search ---- */
struct search {
    struct config c;
    choose_measure *measure;
    void *ctx;
    struct chosen *out;
    double limit;
    unsigned away;  /* of candidates that are tried now */
    int zero, best; /* of those, too; which of all tried fits at the least work, -1: none yet */
    int rc;
    struct err *e;
};

static bool better(const struct choice *a, const struct choice *b)
{
    double x = choose_work(&a->cost), y = choose_work(&b->cost);
    return x != y ? x < y : a->cost.bytes < b->cost.bytes;
}

/* Measures once; the index of what was tried. -1 after an error, or when there is no room for more. */
static int try(struct search *s, uint64_t again, int64_t layers, uint64_t rest)
{
    struct recompute r = {again, layers, layers ? rest : 0};
    for (int i = 0; i < s->out->n; i++) {
        const struct recompute *x = &s->out->tried[i].r;
        bool same = x->again == r.again && x->layers == r.layers && x->rest == r.rest;
        if (same && s->out->tried[i].away == s->away && s->out->tried[i].zero == s->zero) return i;
    }
    if (s->rc || s->out->n == CHOOSE_MOST) return -1;
    struct choice *x = &s->out->tried[s->out->n];
    s->c.memory.chosen = x->r = r;
    s->c.memory.away = x->away = s->away;
    s->c.parallel.zero = x->zero = s->zero;
    s->rc = s->measure(s->ctx, &s->c, &x->cost, s->e);
    if (s->rc) return -1;
    x->cost.work += x->cost.step - s->out->tried[0].cost.step; /* that of nothing computed again */
    if (x->cost.bytes <= s->limit && (s->best < 0 || better(x, &s->out->tried[s->best]))) s->best = s->out->n;
    return s->out->n++;
}

static bool fits(const struct search *s, int i) { return i >= 0 && s->out->tried[i].cost.bytes <= s->limit; }

/* The fewest layers of each stage with which it fits, with `rest` in the others; all of them do. */
static void fewest_layers(struct search *s, uint64_t again, uint64_t rest)
{
    int64_t lo = 1, hi = s->c.model.layers;
    while (lo < hi && !s->rc) {
        int64_t mid = lo + (hi - lo) / 2;
        int i = try(s, again, mid, rest);
        if (i < 0) return;
        if (fits(s, i)) hi = mid;
        else lo = mid + 1;
    }
}

/* Groups that save bytes here, those first that save most for their work; returns how many. */
static int groups_by_worth(struct search *s, int none, uint64_t *out)
{
    double worth[GROUPS];
    int n = 0;
    for (const struct recompute_group *g = recompute_groups; g->name && n < GROUPS; g++) {
        int i = try(s, g->again, 0, 0);
        if (i < 0) return n;
        double saves = s->out->tried[none].cost.bytes - s->out->tried[i].cost.bytes;
        if (saves <= 0) continue;
        double costs = s->out->tried[i].cost.work - s->out->tried[none].cost.work; /* others travel anyway */
        double w = saves / (costs > 0 ? costs + 1 : 1);
        int at = n++;
        for (; at > 0 && worth[at - 1] < w; at--) {
            worth[at] = worth[at - 1];
            out[at] = out[at - 1];
        }
        worth[at] = w;
        out[at] = g->again;
    }
    return n;
}

static void search_again(struct search *s)
{
    uint64_t group[GROUPS], all = 0;
    int none = try(s, 0, 0, 0);
    if (none < 0 || fits(s, none)) return;
    bool dear = s->best >= 0 && choose_work(&s->out->tried[none].cost) >= choose_work(&s->out->tried[s->best].cost);
    if (dear && !(s->away & AWAY_ACTIVATIONS)) return;
    if ((s->away || (s->zero && config_zero_auto(&s->c))) && !fits(s, try(s, AGAIN_ALL, 0, 0))) return;
    int n = groups_by_worth(s, none, group);
    for (int i = 0; i < n && !s->rc; i++) {
        if (fits(s, try(s, all | group[i], 0, 0))) {
            fewest_layers(s, all | group[i], all);
            break;
        }
        all |= group[i];
    }
    if (fits(s, try(s, AGAIN_ALL, 0, 0))) fewest_layers(s, AGAIN_ALL, all);
}

/* What may wait on disk, from little to all; the same twice where there is less to choose from. */
static const unsigned sets[] = {AWAY_ACTIVATIONS, AWAY_OPTIMIZER | AWAY_MASTER,
                                AWAY_ACTIVATIONS | AWAY_OPTIMIZER | AWAY_MASTER,
                                AWAY_OPTIMIZER | AWAY_MASTER | AWAY_PARAMS,
                                AWAY_ACTIVATIONS | AWAY_OPTIMIZER | AWAY_MASTER | AWAY_PARAMS};
enum { SETS = sizeof sets / sizeof *sets };

static void search_sets(struct search *s)
{
    unsigned asked = s->away;
    search_again(s);
    for (int i = 0; i < SETS && config_offload_auto(&s->c) && !s->rc; i++) {
        s->away = sets[i] & s->c.memory.may;
        if (s->away) search_again(s);
    }
    s->away = asked;
}

static void search(struct search *s)
{
    unsigned levels = config_zero_auto(&s->c) ? s->c.parallel.may_zero : 1u << s->zero;
    if (try(s, 0, 0, 0) < 0 || fits(s, 0)) return; /* who keeps all waits for nothing */
    for (int level = 0; level <= 3 && !s->rc; level++) {
        s->zero = level;
        if (levels & 1u << level) search_sets(s);
    }
}

/* ---- what would fit ---- */
/* With one key changed. */
static bool would_fit(struct search *s, struct choose_cost *x)
{
    s->rc = s->measure(s->ctx, &s->c, x, s->e);
    return !s->rc && x->bytes <= s->limit;
}

/* The least change that makes it fit, tried on paper: fewer sequences at a time cost least, then the zero levels; "":
 * none of them does. */
static void what_would(struct search *s, const struct config *c, const struct choice *least, char out[128])
{
    struct choose_cost x;
    char bytes[32];
    out[0] = 0;
    s->c.memory.chosen = (struct recompute){.again = AGAIN_ALL};
    s->c.memory.away = least->away;
    s->c.parallel.zero = least->zero;
    for (int64_t micro = c->batch.micro / 2; micro >= 1 && !s->rc && !out[0]; micro /= 2) {
        s->c.batch.micro = micro;
        if (config_microbatches(&s->c) > SCHEDULE_MAX_MICROBATCHES) break;
        if (would_fit(s, &x))
            snprintf(out, 128, "batch.micro=%lld fits (%s)", (long long)micro, str_bytes(bytes, x.bytes));
    }
    s->c.batch.micro = c->batch.micro;
    bool shared = c->parallel.dp_shard * c->parallel.cp > 1 && !c->parallel.servers && !config_zero_auto(c);
    for (int64_t zero = c->parallel.zero + 1; zero <= 3 && shared && !s->rc && !out[0]; zero++) {
        s->c.parallel.zero = zero;
        if (config_codec_fits(&s->c) && would_fit(s, &x))
            snprintf(out, 128, "parallel.zero=%lld fits (%s)", (long long)zero, str_bytes(bytes, x.bytes));
    }
    s->c.parallel.zero = least->zero;
    if (config_offload_auto(c) || c->memory.away) return;
    for (int i = 0; i < SETS && !s->rc && !out[0]; i++) {
        struct str what = {0};
        s->c.memory.away = sets[i] & c->memory.may;
        if (!s->c.memory.away || !would_fit(s, &x)) continue;
        config_offload_text(&s->c, &what);
        snprintf(out, 128, "memory.offload=[%s] to a folder fits (%s)", str_text(&what), str_bytes(bytes, x.bytes));
        str_free(&what);
    }
    s->c.memory.away = c->memory.away;
}

int choose_recompute(struct config *c, choose_measure *measure, void *ctx, struct chosen *out, struct err *e)
{
    *out = (struct chosen){.taken = -1};
    if (!config_recompute_auto(c)) return OK;
    struct search s = {.c = *c,
                       .measure = measure,
                       .ctx = ctx,
                       .out = out,
                       .limit = c->memory.limit_bytes,
                       .away = c->memory.away,
                       .zero = to_int(c->parallel.zero),
                       .best = -1,
                       .e = e};
    search(&s);
    if (s.rc) return s.rc;
    out->taken = s.best;
    if (out->taken >= 0) {
        c->memory.chosen = out->tried[out->taken].r;
        c->memory.away = out->tried[out->taken].away;
        c->parallel.zero = out->tried[out->taken].zero;
        return OK;
    }
    const struct choice *smallest = out->tried;
    for (int i = 0; i < out->n; i++)
        if (out->tried[i].cost.bytes < smallest->cost.bytes) smallest = &out->tried[i];
    double least = smallest->cost.bytes;
    char want[32], have[32], more[32], fits_text[128];
    what_would(&s, c, smallest, fits_text);
    if (s.rc) return s.rc;
    return err_set(e, ERR_REQUEST,
                   "memory.limit: %s a rank, and at least %s is needed even where layers are computed again "
                   "(memory.recompute: auto)%s%s: %s more. %s%sOtherwise choose more ranks to share the model "
                   "(parallel.tp, parallel.pp%s); tutti plan tells what it is for",
                   str_bytes(have, s.limit), str_bytes(want, least),
                   config_offload_auto(c) ? " and all that may wait on disk does (memory.offload: auto)" : "",
                   config_zero_auto(c) ? ", at the zero level that needs least" : "", str_bytes(more, least - s.limit),
                   fits_text, fits_text[0] ? ". " : "", config_zero_auto(c) ? "" : ", parallel.zero");
}

const char *choose_text(const struct recompute *r, char out[CHOOSE_TEXT])
{
    char what[96], rest[96];
    bool more = r->rest && r->again != AGAIN_ALL; /* the rest everywhere, and more in some layers */
    recompute_text(more ? r->again & ~r->rest : r->again, what);
    recompute_text(r->rest, rest);
    if (!r->again) snprintf(out, CHOOSE_TEXT, "nothing");
    else if (!r->layers) snprintf(out, CHOOSE_TEXT, "%s", what);
    else if (!r->rest) snprintf(out, CHOOSE_TEXT, "%s in %lld layers", what, (long long)r->layers);
    else if (more) snprintf(out, CHOOSE_TEXT, "%s, %s in %lld layers", rest, what, (long long)r->layers);
    else snprintf(out, CHOOSE_TEXT, "%s in %lld layers, else %s", what, (long long)r->layers, rest);
    return out;
}
