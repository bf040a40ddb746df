/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks play one role.
 *
 * A cell is a place in the pipeline and, where shares of tp or cp are uneven, a place there: its ranks compute the
 * same. What they keep of the state differs along the data axes by rows: n rows over R ranks leave n % R ranks with a
 * row more. So the remainders of the cell's parameters, read off the tables of its first rank, cut its ranks into
 * classes that are alike to the byte; the first rank of each is planned. Of many classes (many different remainders)
 * the later ones are taken together: they differ by single rows.
 *
 * Cost: a plan per class, O(ranks) besides. Rejected: planning every rank (seconds for a thousand of them), and calling
 * the first half of the ranks one role and the second another, which was never true. */
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/config_codec.h"

enum {
    CLASSES_MOST = 4,
    SERVERS_EACH = 64
}; /* up to so many servers each is looked at, of more the first and the last */

struct search {
    struct plan *p;
    const struct config *c;
    struct mesh mesh;
    const struct plan_watch *watch;
    struct arena *arena;
    int tps, cps; /* places along tp and cp that are looked at: all, or 1 */
    int done, of;
};

static bool uneven(const struct config *c)
{
    int64_t tp = c->parallel.tp, of[] = {c->model.heads, c->model.kv_heads, c->model.ffn, c->model.vocab};
    if (c->model.moe.experts && c->model.moe.ffn % c->parallel.etp) return true;
    if (model_sees(&c->model)) of[3] = c->parallel.sequence_parallel ? c->batch.micro * c->model.seq_len : tp;
    for (int i = 0; i < 4; i++)
        if (of[i] % tp) return true;
    return false;
}

/* Ranks of cp with unlike rows, or unlike heads where some exchange them. */
static bool uneven_context(const struct config *c)
{
    struct par par = {.context_inner = 1};
    config_context(c, &par);
    return c->parallel.cp > 1 &&
           (c->model.seq_len % (2 * c->parallel.cp) || c->model.kv_heads % (c->parallel.tp * par.context_inner));
}

static struct plan_rank *add_role(struct plan *p, const int *ranks, int n)
{
    GROW(p->role, p->n_roles, p->room, 1);
    struct plan_rank *r = &p->role[p->n_roles++];
    *r = (struct plan_rank){.n_alike = n};
    r->alike = xmalloc(sizeof *r->alike * (size_t)n);
    memcpy(r->alike, ranks, sizeof *ranks * (size_t)n);
    return r;
}

/* The same memory and work, to the byte; and traffic, but for what a rank's position in a group decides (a message more
 * or less where elements do not come out even). */
static bool same_figures(const struct plan_rank *a, const struct plan_rank *b)
{
    double x = plan_sent_bytes(a), y = plan_sent_bytes(b);
    bool sends = a->server ? a->serve_bytes == b->serve_bytes : fabs(x - y) <= 0.01 * fmax(x, y);
    return sends && a->flops == b->flops && a->peak_bytes == b->peak_bytes &&
           a->act_bytes_microbatch == b->act_bytes_microbatch && !memcmp(a->bytes, b->bytes, sizeof a->bytes);
}

static int ascending(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* The last role turned out to be one of those since `from`: one role. */
static void merge_last(struct plan *p, int from)
{
    struct plan_rank *b = &p->role[p->n_roles - 1];
    for (struct plan_rank *a = &p->role[from]; a < b; a++) {
        if (!same_figures(a, b)) continue;
        a->alike = xrealloc(a->alike, sizeof *a->alike * (size_t)(a->n_alike + b->n_alike));
        memcpy(a->alike + a->n_alike, b->alike, sizeof *b->alike * (size_t)b->n_alike);
        a->n_alike += b->n_alike;
        a->about |= b->about;
        if (a->rows_more != b->rows_more) a->rows_more = 0; /* rows of what no buffer here depends on */
        qsort(a->alike, (size_t)a->n_alike, sizeof *a->alike, ascending);
        xfree(b->alike);
        p->n_roles--;
        return;
    }
}

static int bounds_passed(const struct plan_bounds *b, int i)
{
    int n = 0;
    while (n < b->n && i >= b->at[n]) n++;
    return n;
}

/* Parameters of which the i-th rank has a row more than the last. */
static int rows_more(const struct plan_bounds *b, int i)
{
    int n = 0;
    for (int k = bounds_passed(b, i); k < b->n; k++) n += b->count[k];
    return n;
}

static int shard_of(const struct search *s, int rank)
{
    return mesh_coord(&s->mesh, AXIS_DP_SHARD, rank) * s->mesh.size[AXIS_CP] + mesh_coord(&s->mesh, AXIS_CP, rank);
}

static int expert_of(const struct search *s, int rank)
{
    return mesh_coord(&s->mesh, AXIS_EDP, rank) % (s->mesh.size[AXIS_EDP] / s->mesh.size[AXIS_DP_REPLICATE]);
}

/* Matrices with an owner make every rank of a shard its own kind (state/own.h), and the ranks of tp that compute them.
 */
static bool owns(const struct config *c)
{
    struct optim_config o = config_optim(c);
    return optim_of(&o, PARAM_MATRICES)->whole && !c->parallel.servers;
}

/* A codec's blocks follow the columns of the whole parameter (state/coded.h): what tp and etp cut between two multiples
 * of a block is more blocks on one rank than on another. */
static bool coded(const struct config *c)
{
    return config_comm_grad(c) != CODEC_KEPT || config_comm_param(c) != CODEC_KEPT;
}

/* Ranks with one number hold equally much. */
static int64_t class_of(const struct search *s, const struct plan_cuts *cuts, int rank)
{
    int64_t experts = s->c->model.moe.experts, ffn = experts ? s->c->model.moe.ffn : 0;
    int64_t k = owns(s->c) ? shard_of(s, rank) : bounds_passed(&cuts->dense, shard_of(s, rank));
    if (!experts) return k;
    if (owns(s->c))
        k = (k * s->mesh.size[AXIS_EDP] + expert_of(s, rank)) * s->mesh.size[AXIS_EP] +
            mesh_coord(&s->mesh, AXIS_EP, rank);
    else k = k * (cuts->expert.n + 1) + bounds_passed(&cuts->expert, expert_of(s, rank));
    k = 2 * k + (mesh_coord(&s->mesh, AXIS_EP, rank) < experts % s->mesh.size[AXIS_EP]);
    if (coded(s->c)) return k * s->mesh.size[AXIS_ETP] + mesh_coord(&s->mesh, AXIS_ETP, rank);
    return 2 * k + (mesh_coord(&s->mesh, AXIS_ETP, rank) < ffn % s->mesh.size[AXIS_ETP]);
}

/* "layers 0-3, 8-11" */
static void tell_layers(const struct plan_stages *g, struct str *out)
{
    if (g->embeds) str_puts(out, "embedding");
    if (g->n_layers) {
        str_printf(out, "%slayer%s ", g->embeds ? ", " : "", g->n_layers > 1 ? "s" : "");
        plan_ranks_text(g->layer, g->n_layers, 24, out);
    }
    if (g->heads) str_printf(out, "%shead", g->embeds || g->n_layers ? ", " : "");
    if (!out->n) str_puts(out, "no layers");
}

/* "; tp 1-7": where the ranks of a role are along an axis, unless they are everywhere. */
static void tell_axis(const struct search *s, const struct plan_rank *r, enum axis a, struct str *out)
{
    int size = s->mesh.size[a], *met = xcalloc((size_t)size, sizeof *met), n = 0;
    for (int i = 0; i < r->n_alike; i++) met[mesh_coord(&s->mesh, a, r->alike[i])] = 1;
    for (int i = 0; i < size; i++)
        if (met[i]) met[n++] = i;
    if (n < size) {
        str_printf(out, "%s%s ", out->n ? "; " : "", axis_name(a));
        plan_ranks_text(met, n, 24, out);
    }
    xfree(met);
}

static void tell_role(const struct search *s, const struct plan_stages *stages, struct plan_rank *r)
{
    struct str t = {0};
    if (s->c->parallel.pp > 1) tell_layers(stages, &t);
    else if (s->c->parallel.servers) str_puts(&t, "worker");
    if (s->tps > 1) tell_axis(s, r, AXIS_TP, &t);
    if (s->cps > 1 || (owns(s->c) && s->c->parallel.cp > 1)) tell_axis(s, r, AXIS_CP, &t);
    if (owns(s->c) && s->c->parallel.dp_shard > 1) tell_axis(s, r, AXIS_DP_SHARD, &t);
    if (r->rows_more)
        str_printf(&t, "%sa row more of %d parameter%s", t.n ? "; " : "", r->rows_more, r->rows_more > 1 ? "s" : "");
    snprintf(r->what, sizeof r->what, "%s", str_text(&t));
    str_free(&t);
}

static void say(struct search *s)
{
    if (s->watch) s->watch->say(s->watch->ctx, s->done, s->of);
    s->done++;
}

/* Deals the ranks of a cell into classes; of each, in `of`, its members. Returns how many classes there are. */
static int deal(const struct search *s, const struct plan_cuts *cuts, const int *ranks, int n, int *of)
{
    int64_t key[CLASSES_MOST];
    int n_classes = 0;
    for (int i = 0; i < n; i++) {
        int64_t k = class_of(s, cuts, ranks[i]);
        int at = 0;
        while (at < n_classes && at < CLASSES_MOST && key[at] != k) at++;
        if (at == n_classes && at < CLASSES_MOST) key[n_classes++] = k;
        of[i] = at < CLASSES_MOST ? at : CLASSES_MOST; /* beyond: taken with the last class */
    }
    return n_classes;
}

/* Plans the first rank of each class of a cell. `from`: the first role of its place in the pipeline. */
static int plan_cell(struct search *s, struct plan_cuts *cuts, const int *ranks, int n, int from, struct err *e)
{
    struct plan *p = s->p;
    struct plan_rank first = {0};
    say(s);
    int rc = plan_rank(&first, p, s->c, ranks[0], cuts, e);
    if (rc) return rc;
    int *of = xcalloc((size_t)n, sizeof *of), *members = xcalloc((size_t)n, sizeof *members);
    int n_classes = deal(s, cuts, ranks, n, of);
    for (int k = 0; !rc && k < n_classes; k++) {
        int m = 0;
        bool about = false;
        for (int i = 0; i < n; i++) {
            bool beyond = k == CLASSES_MOST - 1 && of[i] == CLASSES_MOST;
            about |= beyond;
            if (of[i] == k || beyond) members[m++] = ranks[i];
        }
        struct plan_rank *r = add_role(p, members, m), kept = *r;
        if (k) rc = plan_rank(r, p, s->c, members[0], NULL, e);
        else *r = first;
        r->alike = kept.alike;
        r->n_alike = kept.n_alike;
        r->about = about;
        r->rows_more =
            rows_more(&cuts->dense, shard_of(s, members[0])) + rows_more(&cuts->expert, expert_of(s, members[0]));
        if (!rc) merge_last(p, from);
    }
    xfree(of);
    xfree(members);
    return rc;
}

static int plan_workers(struct search *s, struct err *e)
{
    int n = s->mesh.n_ranks, *ranks = xcalloc((size_t)n, sizeof *ranks), rc = OK;
    for (int stage = 0; !rc && stage < s->mesh.size[AXIS_PP]; stage++) {
        struct plan_cuts cuts = {.arena = s->arena};
        int from = s->p->n_roles;
        for (int cell = 0; !rc && cell < s->tps * s->cps; cell++) {
            int m = 0;
            for (int r = 0; r < n; r++)
                if (mesh_coord(&s->mesh, AXIS_PP, r) == stage &&
                    (s->tps == 1 || mesh_coord(&s->mesh, AXIS_TP, r) == cell % s->tps) &&
                    (s->cps == 1 || mesh_coord(&s->mesh, AXIS_CP, r) == cell / s->tps))
                    ranks[m++] = r;
            rc = plan_cell(s, &cuts, ranks, m, from, e);
        }
        for (int i = from; !rc && i < s->p->n_roles; i++) tell_role(s, &cuts.stages, &s->p->role[i]);
    }
    xfree(ranks);
    return rc;
}

static int plan_servers(struct search *s, struct err *e)
{
    struct plan *p = s->p;
    int servers = to_int(s->c->parallel.servers), first = p->n_ranks - servers, from = p->n_roles, rc = OK;
    bool each = servers <= SERVERS_EACH;
    int *ranks = xcalloc((size_t)servers + 1, sizeof *ranks), roles = each || servers < 2 ? servers : 2;
    for (int i = 0; !rc && i < roles; i++) {
        int n = each ? 1 : i ? servers - servers / 2 : servers / 2;
        for (int k = 0; k < n; k++) ranks[k] = first + (each ? i : i * (servers / 2) + k);
        struct plan_rank *r = add_role(p, ranks, n), kept = *r;
        say(s);
        rc = plan_rank(r, p, s->c, i && !each ? p->n_ranks - 1 : ranks[0], NULL, e);
        r->alike = kept.alike;
        r->n_alike = kept.n_alike;
        r->about = !each;
        snprintf(r->what, sizeof r->what, "server");
        if (!rc) merge_last(p, from);
    }
    xfree(ranks);
    return rc;
}

static int by_need(const void *a, const void *b)
{
    const struct plan_rank *x = a, *y = b;
    if (x->peak_bytes != y->peak_bytes) return x->peak_bytes < y->peak_bytes ? 1 : -1;
    return x->rank - y->rank;
}

int plan_make(struct plan *p, const struct config *c, struct err *e) { return plan_make_watched(p, c, NULL, e); }

int plan_make_watched(struct plan *p, const struct config *c, const struct plan_watch *w, struct err *e)
{
    *p = (struct plan){.n_ranks = config_ranks(c)};
    struct search s = {.p = p,
                       .c = c,
                       .watch = w,
                       .arena = arena_new(),
                       .tps = uneven(c) || owns(c) || coded(c) ? to_int(c->parallel.tp) : 1,
                       .cps = uneven_context(c) ? to_int(c->parallel.cp) : 1};
    int servers = to_int(c->parallel.servers), rc = ranks_mesh(&s.mesh, c, p->n_ranks - servers, e);
    s.of = to_int(c->parallel.pp) * s.tps * s.cps + (servers <= SERVERS_EACH ? servers : 2);
    if (!rc) rc = plan_workers(&s, e);
    if (!rc) rc = plan_servers(&s, e);
    for (int i = 0; !rc && i < p->n_roles; i++) {
        p->flops_per_step += p->role[i].flops * p->role[i].n_alike;
        p->flops_per_token += p->role[i].flops_token * p->role[i].n_alike;
    }
    if (!rc) qsort(p->role, (size_t)p->n_roles, sizeof *p->role, by_need);
    else plan_free(p);
    arena_free(s.arena);
    return rc;
}
