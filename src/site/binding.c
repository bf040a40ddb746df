/* SPDX-License-Identifier: Apache-2.0 */
#include "site/binding.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"

enum { SHOWN = 8 };

/* ---- choose ---- */

static bool same(const struct cores *a, const struct cores *b) { return !memcmp(a, b, sizeof *a); }

static int check_apart(const struct places *p, int host, struct err *e)
{
    for (int i = 0; i < p->n; i++)
        for (int k = i + 1; k < p->n; k++) {
            const struct seat *a = &p->seat[i], *b = &p->seat[k];
            struct cores both;
            if (a->on != host || b->on != host || same(&a->cores, &b->cores)) continue;
            if (!cores_common(&a->cores, &b->cores, &both)) continue;
            struct str s = {0};
            cores_print(&both, &s);
            int code = err_set(e, ERR_REQUEST,
                               "run.bind: on %s ranks %d and %d may both use cores %s, and each has others: bind all "
                               "alike or none in the launcher, or run.bind=none",
                               a->host, i, k, str_text(&s));
            str_free(&s);
            return code;
        }
    return OK;
}

/* Cores [lo, hi) of those that the rank's group shares; fewer cores than ranks: one, in turn. */
static void deal(struct binding_rank *r, const struct topology *t, int place, int of)
{
    int64_t lo, hi;
    if (t->n >= of) team_split(t->n, place, of, &lo, &hi);
    else lo = place % t->n, hi = lo + 1;
    r->node = t->core[lo].node;
    for (int64_t i = lo; i < hi; i++) {
        bool seen = t->core[i].node < 0;
        for (int k = 0; k < t->core[i].n; k++) cores_add(&r->share, t->core[i].pu[k]);
        for (int64_t k = lo; k < i; k++) seen = seen || t->core[k].node == t->core[i].node;
        r->n_nodes += !seen;
    }
    /* A thread for each core before any core gets a second one. */
    int at = 0;
    for (int k = 0; k < TOPOLOGY_THREADS && at < r->n_threads; k++)
        for (int64_t i = lo; i < hi && at < r->n_threads; i++)
            if (k < t->core[i].n) r->pu[at++] = t->core[i].pu[k];
    for (int i = 0, own = at; at < r->n_threads; i++) r->pu[at++] = r->pu[i % own];
}

static int copy_within(struct topology *out, const struct topology *t, const struct cores *allowed, const char *host,
                       struct err *e)
{
    *out = *t;
    out->core = xmalloc((size_t)t->n * sizeof *out->core);
    memcpy(out->core, t->core, (size_t)t->n * sizeof *out->core);
    topology_within(out, allowed);
    if (out->n) return OK;
    return err_set(e, ERR_REQUEST, "run.bind: %s: none of the cores that a rank may use is among those of the machine",
                   host);
}

/* A rank's share: of the cores that it may use, its part among the ranks that may use the same ones. */
static int choose_one(struct binding *b, const struct topology *t, const struct places *p, int rank, struct err *e)
{
    const struct seat *s = &p->seat[rank];
    struct binding_rank *r = &b->of[b->n++];
    struct topology mine;
    int place = 0, of = 0;
    *r = (struct binding_rank){.rank = rank, .n_threads = s->threads};
    r->pu = xcalloc((size_t)s->threads, sizeof *r->pu);
    for (int k = 0; k < p->n; k++) {
        if (p->seat[k].on != s->on || !same(&p->seat[k].cores, &s->cores)) continue;
        place += k < rank;
        of++;
    }
    int code = copy_within(&mine, t, &s->cores, s->host, e);
    if (!code) deal(r, &mine, place, of);
    b->turns_ranks = b->turns_ranks || (!code && mine.n < of);
    b->turns_threads = b->turns_threads || cores_count(&r->share) < s->threads;
    for (int i = 0; i < r->n_threads && (b->how != BIND_CORE || !i); i++) r->pu[i] = -1;
    topology_free(&mine);
    return code;
}

int binding_choose(struct binding *b, enum bind how, const struct topology *t, const struct places *p, int host,
                   struct err *e)
{
    struct cores all = {0};
    *b = (struct binding){.how = how, .n_nodes = t->n_nodes};
    b->of = xcalloc((size_t)p->n + 1, sizeof *b->of);
    int code = check_apart(p, host, e);
    for (int r = 0; r < p->n && !code; r++) {
        if (p->seat[r].on != host) continue;
        cores_join(&all, &p->seat[r].cores);
        code = choose_one(b, t, p, r, e);
    }
    b->cores = cores_count(&all);
    if (code) binding_free(b);
    return code;
}

void binding_free(struct binding *b)
{
    for (int i = 0; i < b->n; i++) xfree(b->of[i].pu);
    xfree(b->of);
    *b = (struct binding){0};
}

const struct binding_rank *binding_of(const struct binding *b, int rank)
{
    for (int i = 0; i < b->n; i++)
        if (b->of[i].rank == rank) return &b->of[i];
    return NULL;
}

/* ---- apply ---- */

struct applying {
    const struct binding_rank *r;
    int failed[1]; /* errno of a member that the system refused; the last one's stays */
};

static void apply_member(void *arg, int member, int n)
{
    struct applying *a = arg;
    struct cores one = {0};
    (void)n;
    int pu = member < a->r->n_threads ? a->r->pu[member] : -1;
    if (pu >= 0) cores_add(&one, pu);
    if (!cores_bind(pu >= 0 ? &one : &a->r->share)) __atomic_store_n(a->failed, errno, __ATOMIC_RELAXED);
}

int binding_apply(const struct binding *b, int rank, struct team *team, struct err *e)
{
    struct applying a = {.r = binding_of(b, rank)};
    if (b->how == BIND_NONE || !a.r) return OK;
    team_run(team, apply_member, &a);
    if (!a.failed[0]) return OK;
    return err_set(e, ERR_REQUEST, "run.bind: the system does not let rank %d choose its cores: %s; run.bind=none",
                   rank, strerror(a.failed[0]));
}

/* ---- tell ---- */

static const char *name(enum bind how) { return how == BIND_NONE ? "none" : how == BIND_RANK ? "rank" : "core"; }

static void put_nodes(const struct binding_rank *r, struct str *out)
{
    if (r->n_nodes == 1) str_printf(out, "memory node %d", r->node);
    else if (r->n_nodes > 1) str_printf(out, "%d memory nodes from %d on", r->n_nodes, r->node);
    else str_puts(out, "no memory node known");
}

void binding_line(const struct binding *b, struct str *out)
{
    str_puts(out, name(b->how));
    for (int i = 0; i < b->n; i++) {
        if (i == SHOWN) {
            str_puts(out, ", ...");
            return;
        }
        str_printf(out, ", rank %d: ", b->of[i].rank);
        cores_print(&b->of[i].share, out);
        str_puts(out, " (");
        put_nodes(&b->of[i], out);
        str_putc(out, ')');
    }
}

void binding_warnings(const struct binding *b, struct str *out)
{
    if (b->how == BIND_NONE) return;
    if (b->turns_ranks)
        str_printf(out, "run.bind: %d ranks share %d hardware threads: some of them take turns on a core\n", b->n,
                   b->cores);
    else if (b->turns_threads)
        str_puts(out, "run.bind: a rank has more threads than hardware threads: they take turns; fewer run.threads\n");
    for (int i = 0; i < b->n; i++)
        if (b->of[i].n_nodes > 1) {
            str_printf(out,
                       "run.bind: rank %d has cores of %d memory nodes; as many ranks a host as it has memory nodes, "
                       "or "
                       "a multiple of them, keeps memory near\n",
                       b->of[i].rank, b->of[i].n_nodes);
            return;
        }
}

void binding_map(const struct binding *b, struct str *out)
{
    str_printf(out, "run.bind: %s; %d rank%s on %d hardware threads, %d memory node%s\n", name(b->how), b->n,
               b->n == 1 ? "" : "s", b->cores, b->n_nodes, b->n_nodes == 1 ? "" : "s");
    for (int i = 0; i < b->n; i++) {
        const struct binding_rank *r = &b->of[i];
        str_printf(out, "rank %d: cores ", r->rank);
        cores_print(&r->share, out);
        str_puts(out, ", ");
        put_nodes(r, out);
        str_printf(out, ", %d thread%s", r->n_threads, r->n_threads == 1 ? "" : "s");
        if (b->how == BIND_CORE && r->n_threads > 1) {
            str_puts(out, ": its own anywhere there, the others on");
            for (int k = 1; k < r->n_threads; k++) str_printf(out, " %d", r->pu[k]);
        }
        str_putc(out, '\n');
    }
    binding_warnings(b, out);
}

void binding_put(const struct binding *b, struct json_out *o)
{
    json_put_string(o, "bind", name(b->how));
    json_put_int(o, "cores", b->cores);
    json_put_int(o, "memory_nodes", b->n_nodes);
    json_begin_array(o, "ranks");
    for (int i = 0; i < b->n; i++) {
        struct str cores = {0};
        const struct binding_rank *r = &b->of[i];
        cores_print(&r->share, &cores);
        json_begin_object(o, NULL);
        json_put_int(o, "rank", r->rank);
        json_put_string(o, "cores", str_text(&cores));
        json_put_int(o, "memory_node", r->node);
        json_put_int(o, "memory_nodes", r->n_nodes);
        json_begin_array(o, "threads");
        for (int k = 0; k < r->n_threads; k++) {
            if (r->pu[k] >= 0) json_put_int(o, NULL, r->pu[k]);
            else json_put_null(o, NULL);
        }
        json_end_array(o);
        json_end_object(o);
        str_free(&cores);
    }
    json_end_array(o);
}
