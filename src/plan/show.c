/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as text, in lines of at most 100 columns, and as JSON. Sizes are binary (KiB, MiB), work is FLOP with decimal
 * prefixes (base/str.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "config/config_feed.h"
#include "config/config_memory.h"
#include "config/config_offload.h"
#include "engine/readers.h"
#include "layout/region.h"
#include "plan/plan.h"

/* One stretch: "5", "0-3", "0-14:2". */
static void put_stretch(int first, int n, int step, struct str *out)
{
    str_printf(out, "%s%d", out->n ? ", " : "", first);
    if (n > 1) str_printf(out, "-%d", first + (n - 1) * step);
    if (n > 1 && step > 1) str_printf(out, ":%d", step);
}

void plan_ranks_text(const int *ranks, int n, int most, struct str *out)
{
    struct str all = {0};
    for (int i = 0, k; i < n; i += k) {
        int step = i + 1 < n ? ranks[i + 1] - ranks[i] : 1;
        for (k = 1; i + k < n && ranks[i + k] - ranks[i + k - 1] == step; k++) continue;
        if (k == 2 && step > 1) k = 1; /* two are no pattern */
        size_t before = all.n;
        put_stretch(ranks[i], k, step, &all);
        char left[32];
        snprintf(left, sizeof left, " ... (%d)", n);
        if (most && i && (int)(all.n + (i + k < n ? strlen(left) : 0)) > most) { /* cut: the rest is not said */
            str_printf(out, "%.*s%s", (int)before, str_text(&all), left);
            str_free(&all);
            return;
        }
    }
    str_puts(out, str_text(&all));
    str_free(&all);
}

static double state_bytes(const struct plan_rank *r)
{
    return (double)(r->bytes[MEM_PARAM] + r->bytes[MEM_MASTER] + r->bytes[MEM_GRAD] + r->bytes[MEM_OPTIMIZER]);
}

enum { RANKS_WIDE = 18, WHAT_WIDE = 32 };

static void print_role(const struct plan_rank *r, struct str *out)
{
    char flops[32], state[32], act[32], peak[32], sent[32];
    struct str ranks = {0};
    plan_ranks_text(r->alike, r->n_alike, RANKS_WIDE, &ranks);
    str_printf(out, "  %-*s %-*s", RANKS_WIDE, str_text(&ranks), WHAT_WIDE, *r->what ? r->what : "the others");
    if ((int)ranks.n > RANKS_WIDE || (int)strlen(r->what) > WHAT_WIDE)
        str_printf(out, "\n  %*s", RANKS_WIDE + 1 + WHAT_WIDE, "");
    str_printf(out, " %10s %8s %8s %8s %8s\n", str_flops(flops, r->flops), str_bytes(state, state_bytes(r)),
               str_bytes(act, (double)(r->bytes[MEM_ACTIVATION] + r->bytes[MEM_WGRAD])),
               str_bytes(peak, (double)r->peak_bytes), str_bytes(sent, plan_sent_bytes(r)));
    str_free(&ranks);
}

static void print_roles(const struct plan *p, struct str *out)
{
    bool about = false;
    if (p->n_ranks == 1) return;
    if (p->n_roles == 1) {
        str_printf(out, "\nall %d ranks are alike\n", p->n_ranks);
        return;
    }
    str_printf(out, "\nroles: %d ranks of %d kinds; figures of one rank, the first of its line; of a step\n",
               p->n_ranks, p->n_roles);
    str_printf(out, "  %-*s %-*s %10s %8s %8s %8s %8s\n", RANKS_WIDE, "ranks", WHAT_WIDE, "what they are", "work",
               "state", "activ.", "peak", "sends");
    for (int i = 0; i < p->n_roles; i++) {
        print_role(&p->role[i], out);
        about |= p->role[i].about;
    }
    str_puts(out, "  state: parameters, master copies, gradients, optimizer; activ.: what waits for backward\n");
    if (about)
        str_puts(out, "  of more than four ways to share out rows the last are one line: these ranks differ by single "
                      "rows\n");
}

/* Ranks that are alike in amounts, and hold other experts. */
static void print_experts(const struct plan *p, const struct config *c, struct str *out)
{
    enum { MOST = 8 };
    struct mesh m;
    int64_t experts = c->model.moe.experts, lo, hi;
    int ep = to_int(c->parallel.ep), n = p->n_ranks - to_int(c->parallel.servers);
    if (!experts || ep < 2 || ranks_mesh(&m, c, n, &(struct err){0})) return;
    int *ranks = xcalloc((size_t)n, sizeof *ranks);
    str_printf(out, "\nexperts: the %" PRId64 " of a layer, over the %d ranks of ep\n", experts, ep);
    for (int i = 0; i < ep; i++) {
        struct str t = {0};
        int k = 0;
        if (ep > MOST && i == MOST - 1) {
            str_printf(out, "  ... and so on\n");
            i = ep - 1;
        }
        for (int r = 0; r < n; r++)
            if (mesh_coord(&m, AXIS_EP, r) == i) ranks[k++] = r;
        region_split(experts, i, ep, &lo, &hi);
        plan_ranks_text(ranks, k, 48, &t);
        str_printf(out, "  ep %-4d expert%s %" PRId64, i, hi - lo > 1 ? "s" : "", lo);
        if (hi - lo > 1) str_printf(out, "-%" PRId64, hi - 1);
        str_printf(out, " on rank%s %s\n", k > 1 ? "s" : "", str_text(&t));
        str_free(&t);
    }
    xfree(ranks);
}

/* What two keys cost here (state/exchange.h, state/exact.h). */
static void print_choices(const struct plan *p, const struct config *c, struct str *out)
{
    char a[32];
    int64_t each = p->microbatches, runs = each / exact_run(each);
    int levels = 0;
    while ((int64_t)1 << levels < runs) levels++;
    if (c->numerics.exact_order && levels)
        str_printf(out, "  exact_order holds %d more gradients, %s, for microbatches that wait for their neighbours\n",
                   levels, str_bytes(a, (double)p->role[0].bytes[MEM_GRAD] * levels / (levels + 1)));
    else if (!c->numerics.exact_order && c->parallel.reduce == REDUCE_MICROBATCH && c->parallel.dp_shard > 1 &&
             each > 1 && !c->parallel.servers)
        str_printf(out,
                   "  gradients are added up over dp_shard %" PRId64
                   " times a step; with parallel.reduce=step once, and\n"
                   "  until then each rank holds all of them\n",
                   each);
}

static void print_model(const struct plan *p, const struct config *c, struct str *out)
{
    char a[32], b[32];
    int64_t dp = config_dp(c);
    str_printf(out, "model       %s, %d layers, hidden %" PRId64 ", %s %" PRId64 "\n",
               model_family_name((enum model_family)c->model.family), (int)c->model.layers, c->model.hidden,
               model_tells(&c->model) ? "classes" : "vocabulary",
               model_tells(&c->model) ? c->model.classes : c->model.vocab);
    str_printf(out, "parameters  %" PRId64 " (%s)\n", p->params, str_count(a, (double)p->params));
    str_printf(out, "step        %" PRId64 " sequences x %" PRId64 " tokens in %" PRId64 " microbatch%s of %" PRId64,
               c->batch.global, c->model.seq_len, p->microbatches, p->microbatches > 1 ? "es" : "", c->batch.micro);
    if (dp > 1) str_printf(out, " on each of %" PRId64 " data-parallel ranks", dp);
    str_printf(out, "\nwork        %s per step (recomputation counted), %s per token (without)\n",
               str_flops(a, p->flops_per_step), str_flops(b, p->flops_per_token));
    if (p->role[0].optimizer_flops > 0)
        str_printf(out, "optimizer   %s per step on rank %d for products of whole matrices, beside that\n",
                   str_flops(a, p->role[0].optimizer_flops), p->role[0].rank);
}

/* What comes and goes beside the buffers: bounded, however large model and data are. */
static void print_beside(const struct config *c, struct str *out)
{
    char a[32];
    str_printf(out, "  %-18s %16" PRId64 " %10s at most, for a moment, before the first step%s\n", "and to go on",
               (int64_t)READERS_MOST, str_bytes(a, READERS_MOST),
               c->memory.limit_bytes > 0 ? ", as far as it fits below memory.limit" : "");
}

void plan_print(const struct plan *p, const struct config *c, struct str *out)
{
    char a[32];
    const struct plan_rank *most = &p->role[0];
    print_model(p, c, out);
    str_puts(out, "\nbytes of memory");
    if (p->n_ranks > 1) str_printf(out, " of rank %d, which needs most of %d", most->rank, p->n_ranks);
    str_puts(out, ":\n");
    for (int i = 0; i < MEM_N; i++) {
        double per = (double)most->bytes[i] / (double)p->params;
        if (most->bytes[i] && i < MEM_HOST)
            str_printf(out, "  %-18s %16zu %10s %8.2f per parameter\n", mem_cat_name((enum mem_cat)i), most->bytes[i],
                       str_bytes(a, (double)most->bytes[i]), per);
    }
    str_printf(out, "  %-18s %16zu %10s\n", "peak", most->peak_bytes, str_bytes(a, (double)most->peak_bytes));
    static const char *const beside[] = {"and in the host's", "and on disk"};
    for (int i = MEM_HOST; i <= MEM_DISK; i++)
        if (most->bytes[i]) {
            bool snapshot = i == MEM_HOST && c->checkpoint.async;
            bool away = c->memory.away && (config_offload_dir(c) ? MEM_DISK : MEM_HOST) == i;
            str_printf(out, "  %-18s %16zu %10s of ", beside[i - MEM_HOST], most->bytes[i],
                       str_bytes(a, (double)most->bytes[i]));
            if (away) config_offload_text(c, out);
            str_printf(out, "%s%s%s, beside the peak\n", away ? " (memory.offload)" : "",
                       away && snapshot ? " and " : "",
                       snapshot ? "the state while it is saved (checkpoint.async)" : "");
        }
    if (most->bytes[MEM_KEPT])
        str_printf(out, "  %-18s %16zu %10s in %s and at a partner\n", "and kept", most->bytes[MEM_KEPT],
                   str_bytes(a, (double)most->bytes[MEM_KEPT]), c->checkpoint.memory_dir);
    print_beside(c, out);
    if (p->n_ranks > 1) str_puts(out, "bytes that it sends in a step:\n");
    for (int x = 0; x < AXIS_N; x++)
        if (most->comm[x].operations)
            str_printf(out, "  over %-13s %16" PRId64 " %10s in %" PRId64 " messages\n", axis_name((enum axis)x),
                       most->comm[x].bytes, str_bytes(a, (double)most->comm[x].bytes), most->comm[x].messages);
    if (most->serve_bytes)
        str_printf(out, "  %-18s %16" PRId64 " %10s\n", most->server ? "to workers" : "to servers", most->serve_bytes,
                   str_bytes(a, (double)most->serve_bytes));
    print_choices(p, c, out);
    print_roles(p, out);
    print_experts(p, c, out);
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

static void json_role(const struct plan_rank *r, const struct plan *p, struct json_out *o)
{
    struct str ranks = {0};
    plan_ranks_text(r->alike, r->n_alike, 0, &ranks);
    json_begin_object(o, NULL);
    json_put_int(o, "rank", r->rank);
    json_put_int(o, "alike", r->n_alike);
    json_put_string(o, "alike_ranks", str_text(&ranks));
    json_put_string(o, "what", r->what);
    json_put_int(o, "stage", r->at.rank[AXIS_PP]);
    json_put_int(o, "tp", r->at.rank[AXIS_TP]);
    json_put_real(o, "flops_per_step", r->flops);
    json_put_int(o, "server_bytes", r->serve_bytes);
    json_put_int(o, "microbatches", p->microbatches);
    json_put_int(o, "activation_bytes_per_microbatch", r->act_bytes_microbatch);
    json_bytes(r, o);
    json_comm(r, o);
    json_end_object(o);
    str_free(&ranks);
}

static void json_choice(const struct config *c, const struct choice *x, const struct choice *none, struct json_out *o)
{
    struct config set = *c;
    struct str away = {0};
    char text[CHOOSE_TEXT];
    json_put_string(o, "what", choose_text(&x->r, text));
    json_put_int(o, "layers", x->r.layers);
    json_put_real(o, "peak_bytes", x->cost.bytes);
    json_put_real(o, "flops_ratio", x->cost.flops / none->cost.flops);
    if (c->parallel.pp > 1) json_put_real(o, "step_ratio", x->cost.step / none->cost.step);
    if (config_zero_auto(c)) {
        json_put_int(o, "zero", x->zero);
        json_put_real(o, "sent_step_bytes", x->cost.sent);
    }
    if (!config_offload_auto(c)) return;
    set.memory.away = x->away;
    config_offload_text(&set, &away);
    json_put_string(o, "offload", str_text(&away));
    json_put_real(o, "offload_step_bytes", x->cost.moved);
    str_free(&away);
}

static void json_chosen(const struct config *c, const struct chosen *x, struct json_out *o)
{
    json_begin_object(o, "recompute");
    json_put_real(o, "limit_bytes", c->memory.limit_bytes);
    json_begin_object(o, "chosen");
    json_choice(c, &x->tried[x->taken], x->tried, o);
    json_end_object(o);
    json_begin_array(o, "tried");
    for (int i = 0; i < x->n; i++) {
        json_begin_object(o, NULL);
        json_choice(c, &x->tried[i], x->tried, o);
        json_end_object(o);
    }
    json_end_array(o);
    json_end_object(o);
}

void plan_json(const struct plan *p, const struct config *c, const struct chosen *x, struct str *out)
{
    struct json_out o = {.s = out};
    json_begin_document(&o, "plan", 1);
    json_put_int(&o, "params", p->params);
    json_put_real(&o, "flops_per_step", p->flops_per_step);
    json_put_real(&o, "flops_per_token", p->flops_per_token);
    if (p->role[0].optimizer_flops > 0) json_put_real(&o, "optimizer_flops_per_step", p->role[0].optimizer_flops);
    json_put_int(&o, "tokens_per_step", p->tokens_per_step);
    json_bytes(&p->role[0], &o);
    json_comm(&p->role[0], &o);
    json_put_int(&o, "remote_bytes", config_remote_bytes(c));
    json_put_int(&o, "loading_bytes", READERS_MOST);
    if (x && x->n) json_chosen(c, x, &o);
    json_begin_array(&o, "ranks");
    for (int i = 0; i < p->n_roles; i++) json_role(&p->role[i], p, &o);
    json_end_array(&o);
    json_end_object(&o);
    str_putc(out, '\n');
}
