/* SPDX-License-Identifier: Apache-2.0 */
/* One training step on the null device, then reading its books. */
#include "plan/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "run/serve.h"

/* Steps rank `rank` of n on the null device and reads its books. */
static int plan_rank(struct plan_rank *r, struct plan *p, const struct config *c, int rank, struct err *e)
{
    struct device *d = NULL;
    struct engine *g = NULL;
    struct comm *world = NULL;
    struct ranks ranks = {0};
    struct engine_config ec = config_engine(c);
    struct comm_config cc = config_comm(c);
    cc.link_GBps = cc.link_latency_s = 0;
    int rc = device_null_new(&d, e);
    if (!rc && p->n_ranks > 1) rc = comm_world_null(&world, rank, p->n_ranks, &cc, e);
    if (!rc) rc = ranks_init(&ranks, world, c, e);
    if (!rc) ranks_engine(&ranks, &ec);
    if (!rc) rc = engine_new(&g, &ec, d, e);
    struct serve *serve = NULL;
    struct serve_config sc = {.async = c->parallel.server_mode == SERVER_ASYNC, .optim = ec.optim, .lr = config_lr(c), .steps = 1};
    if (!rc && ranks.n_servers) rc = serve_new(&serve, &sc, g, &ranks, e);
    if (!rc) engine_init(g);
    if (!rc && serve) rc = serve_dry_step(serve, &r->serve_bytes, e);
    if (!rc) {
        struct engine_batch nothing = {0};
        struct engine_report report;
        if (!serve) engine_step(g, &nothing, 0, 0, &report);
        p->params = g->params.numel;
        p->microbatches = ec.n_microbatches;
        p->tokens_per_step = c->batch.global * c->model.seq_len;
        p->flops_per_token += engine_flops_model(g) * (double)r->n_alike / (double)(ec.n_microbatches * ec.micro * ec.seq * config_dp(c));
        r->flops = engine_flops_step(g);
        r->at = ranks.par;
        r->rank = rank;
        memcpy(r->bytes, d->ledger.at_peak, sizeof r->bytes);
        r->peak_bytes = d->ledger.peak_total;
        r->act_bytes_microbatch = g->n_act ? (int64_t)g->act[0].bytes : 0;
        ranks_traffic(&ranks, r->comm);
        struct comm_traffic copies = copies_traffic(&g->copies); /* between stages with the same parameters */
        r->comm[AXIS_PP].bytes += copies.bytes;
        r->comm[AXIS_PP].messages += copies.messages;
        r->comm[AXIS_PP].operations += copies.operations;
    }
    serve_free(serve);
    engine_free(g);
    ranks_fini(&ranks);
    comm_free(world);
    if (d) device_free(d);
    return rc;
}

static bool uneven(const struct config *c)
{
    int64_t tp = c->parallel.tp, of[] = {c->model.heads, c->model.kv_heads, c->model.ffn, c->model.vocab};
    if (c->model.moe.experts && c->model.moe.ffn % c->parallel.etp) return true;
    for (int i = 0; i < 4; i++)
        if (of[i] % tp) return true;
    return false;
}

/* Ranks of cp with unlike rows, or unlike heads where some exchange them. */
static bool uneven_context(const struct config *c)
{
    struct par par = {.context_inner = 1};
    config_context(c, &par);
    return c->parallel.cp > 1 && (c->model.seq_len % (2 * c->parallel.cp) ||
                                  c->model.kv_heads % (c->parallel.tp * par.context_inner));
}

static int by_need(const void *a, const void *b)
{
    const struct plan_rank *x = a, *y = b;
    if (x->peak_bytes != y->peak_bytes) return x->peak_bytes < y->peak_bytes ? 1 : -1;
    return x->rank - y->rank;
}

/* Up to here every server is looked at, since each may hold a row more or less of some parameter; of more than that the first
 * and the last. */
enum { SERVERS_EACH = 64 };

static int servers_list(int first, int n, struct plan_rank *out)
{
    bool each = n <= SERVERS_EACH;
    int roles = each || n < 2 ? n : 2;
    for (int i = 0; i < roles; i++)
        out[i] = each ? (struct plan_rank){.rank = first + i, .n_alike = 1}
                      : (struct plan_rank){.rank = first + (i ? n - 1 : 0), .n_alike = i ? n - n / 2 : n / 2};
    return roles;
}

/* The ranks that play other roles than their neighbours: their numbers, and how many are like each. */
static int roles_list(const struct config *c, int n_ranks, struct plan_rank *out)
{
    int tp = to_int(c->parallel.tp), pp = to_int(c->parallel.pp), servers = to_int(c->parallel.servers);
    int tps = uneven(c) ? tp : 1, cps = uneven_context(c) ? to_int(c->parallel.cp) : 1, inner = (n_ranks - servers) / pp, n = 0;
    for (int stage = 0; stage < pp; stage++)
        for (int i = 0; i < tps * cps; i++) {
            int apart = tp * cps, data = inner / apart, first = stage * inner + i / tps * tp + i % tps;
            int alike = tps > 1 ? data : data * tp;
            out[n++] = (struct plan_rank){.rank = first, .n_alike = data > 1 ? alike / 2 : alike};
            if (data > 1) out[n++] = (struct plan_rank){.rank = first + (data - 1) * apart, .n_alike = alike - alike / 2};
        }
    return n + servers_list(n_ranks - servers, servers, out + n);
}

/* Neighbours that turned out to be the same: servers with equal shards. */
static void merge_servers(struct plan *p, int first_server)
{
    int n = 0;
    for (int i = 0; i < p->n_roles; i++) {
        struct plan_rank *r = &p->role[i], *before = n ? &p->role[n - 1] : NULL;
        bool same = before && before->rank >= first_server && r->serve_bytes == before->serve_bytes &&
                    !memcmp(r->bytes, before->bytes, sizeof r->bytes);
        if (same) before->n_alike += r->n_alike;
        else p->role[n++] = *r;
    }
    p->n_roles = n;
}

int plan_make(struct plan *p, const struct config *c, struct err *e)
{
    return plan_make_watched(p, c, NULL, e);
}

int plan_make_watched(struct plan *p, const struct config *c, const struct plan_watch *w, struct err *e)
{
    *p = (struct plan){.n_ranks = config_ranks(c)};
    p->role = xcalloc(to_size(2 * c->parallel.pp * c->parallel.tp * c->parallel.cp + SERVERS_EACH), sizeof *p->role);
    p->n_roles = roles_list(c, p->n_ranks, p->role);
    int rc = OK;
    for (int i = 0; !rc && i < p->n_roles; i++) {
        if (w) w->say(w->ctx, i, p->n_roles);
        rc = plan_rank(&p->role[i], p, c, p->role[i].rank, e);
        p->flops_per_step += p->role[i].flops * p->role[i].n_alike;
    }
    if (!rc) merge_servers(p, p->n_ranks - to_int(c->parallel.servers));
    if (!rc) qsort(p->role, (size_t)p->n_roles, sizeof *p->role, by_need);
    else plan_free(p);
    return rc;
}

void plan_free(struct plan *p)
{
    xfree(p->role);
    *p = (struct plan){0};
}

static void print_roles(const struct plan *p, struct str *out)
{
    char a[32], b[32], m[32];
    if (p->n_roles < 2) return;
    str_puts(out, "\nroles (a rank of each, how many are like it):\n");
    str_printf(out, "  %8s %8s %6s %4s %12s %12s %14s\n", "rank", "alike", "stage", "tp", "peak", "microbatch", "sent per step");
    for (int i = 0; i < p->n_roles; i++) {
        const struct plan_rank *r = &p->role[i];
        double sent = (double)r->serve_bytes;
        for (int x = 0; x < AXIS_N; x++) sent += (double)r->comm[x].bytes;
        str_printf(out, "  %8d %8d %6d %4d %12s %12s %14s\n", r->rank, r->n_alike, r->at.rank[AXIS_PP], r->at.rank[AXIS_TP],
                   str_bytes(a, (double)r->peak_bytes), str_bytes(m, (double)r->act_bytes_microbatch), str_bytes(b, sent));
    }
}

/* What two keys cost here (state/exchange.h, state/exact.h). */
static void print_choices(const struct plan *p, const struct config *c, struct str *out)
{
    char a[32];
    int64_t each = p->microbatches, runs = each / exact_run(each);
    int levels = 0;
    while ((int64_t)1 << levels < runs) levels++;
    if (c->numerics.exact_order && levels)
        str_printf(out, "  exact_order holds %d more gradients, %s, for microbatches that wait for their neighbours\n", levels,
                   str_bytes(a, (double)p->role[0].bytes[MEM_GRAD] * levels / (levels + 1)));
    else if (!c->numerics.exact_order && c->parallel.reduce == REDUCE_MICROBATCH && c->parallel.dp_shard > 1 && each > 1 &&
             !c->parallel.servers)
        str_printf(out, "  gradients are added up over dp_shard %" PRId64 " times a step; parallel.reduce=step: once, and whole "
                        "meanwhile\n", each);
}

void plan_print(const struct plan *p, const struct config *c, struct str *out)
{
    char a[32], b[32];
    str_printf(out, "model       %s, %d layers, hidden %" PRId64 ", vocabulary %" PRId64 "\n",
               model_family_name((enum model_family)c->model.family), (int)c->model.layers, c->model.hidden,
               c->model.vocab);
    str_printf(out, "parameters  %" PRId64 " (%s)\n", p->params, str_count(a, (double)p->params));
    str_printf(out, "step        %" PRId64 " sequences x %" PRId64 " tokens in %" PRId64 " microbatches of %" PRId64 "\n",
               c->batch.global, c->model.seq_len, p->microbatches, c->batch.micro);
    str_printf(out, "FLOPs       %s per step, %s per token\n", str_count(a, p->flops_per_step),
               str_count(b, p->flops_per_token));
    const struct plan_rank *most = &p->role[0];
    str_printf(out, "\nbytes of the rank that needs most (of %d):\n", p->n_ranks);
    for (int i = 0; i < MEM_N; i++) {
        double per = (double)most->bytes[i] / (double)p->params;
        if (most->bytes[i])
            str_printf(out, "  %-11s %16zu  %10s  %6.2f per parameter\n", mem_cat_name((enum mem_cat)i), most->bytes[i],
                       str_bytes(a, (double)most->bytes[i]), per);
    }
    str_printf(out, "  %-11s %16zu  %10s\n", "peak", most->peak_bytes,
               str_bytes(a, (double)most->peak_bytes));
    for (int x = 0; x < AXIS_N; x++)
        if (most->comm[x].operations)
            str_printf(out, "  sent over %-12s %16" PRId64 " bytes in %" PRId64 " messages per step\n",
                       axis_name((enum axis)x), most->comm[x].bytes, most->comm[x].messages);
    print_choices(p, c, out);
    if (most->serve_bytes) str_printf(out, "  sent to or from servers  %16" PRId64 " bytes per step\n", most->serve_bytes);
    print_roles(p, out);
}

static void json_bytes(const struct plan_rank *r, struct json_out *o)
{
    json_begin_object(o, "bytes");
    for (int i = 0; i < MEM_N; i++) json_put_int(o, mem_cat_name((enum mem_cat)i), (int64_t)r->bytes[i]);
    json_end_object(o);
    json_put_int(o, "peak_bytes", (int64_t)r->peak_bytes);
}

/* Every axis is there; those of size 1 with zeros. */
static void json_comm(const struct plan_rank *r, struct json_out *o)
{
    json_begin_object(o, "comm");
    for (int a = 0; a < AXIS_N; a++) {
        json_begin_object(o, axis_name((enum axis)a));
        json_put_int(o, "bytes", r->comm[a].bytes);
        json_put_int(o, "messages", r->comm[a].messages);
        json_end_object(o);
    }
    json_end_object(o);
}

void plan_json(const struct plan *p, struct str *out)
{
    struct json_out o = {.s = out};
    json_begin_document(&o, "plan", 1);
    json_put_int(&o, "params", p->params);
    json_put_real(&o, "flops_per_step", p->flops_per_step);
    json_put_real(&o, "flops_per_token", p->flops_per_token);
    json_put_int(&o, "tokens_per_step", p->tokens_per_step);
    json_bytes(&p->role[0], &o);
    json_comm(&p->role[0], &o);
    json_begin_array(&o, "ranks");
    for (int i = 0; i < p->n_roles; i++) {
        const struct plan_rank *r = &p->role[i];
        json_begin_object(&o, NULL);
        json_put_int(&o, "rank", r->rank);
        json_put_int(&o, "alike", r->n_alike);
        json_put_int(&o, "stage", r->at.rank[AXIS_PP]);
        json_put_int(&o, "tp", r->at.rank[AXIS_TP]);
        json_put_int(&o, "server_bytes", r->serve_bytes);
        json_put_int(&o, "microbatches", p->microbatches);
        json_put_int(&o, "activation_bytes_per_microbatch", r->act_bytes_microbatch);
        json_bytes(r, &o);
        json_comm(r, &o);
        json_end_object(&o);
    }
    json_end_array(&o);
    json_end_object(&o);
    str_putc(out, '\n');
}
