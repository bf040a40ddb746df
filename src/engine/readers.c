/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks that hold the same are a group along the axes of copies in a layout. What they hold lies alike on all of
 * them, one stretch of elements, so parts are stretches too and a message goes from one array straight into the other,
 * packed nowhere. A route per parameter and array, some dozens under way at once: they end in the order in which all
 * ranks began them. Rejected: one rank reads and broadcasts (the others' disks and links wait), and reading first
 * whatever lies on a rank's own disk (a checkpoint is on a file system that all see). */
#include "engine/readers.h"

#include "base/mem.h"
#include "state/route_run.h"

enum { UNDER_WAY = 32 };

/* Ranks that hold the same of a parameter's array, the first of `parts` of them that read, and where this rank is among
 * them. */
struct holders_of {
    int *rank;
    int n, me, first, parts;
    struct array_span span; /* what each of them holds */
    int64_t row;            /* elements that stay together */
};

static bool is_shared(const struct engine *g, int param, int which)
{
    const struct store *s = &g->store;
    const struct param *p = &g->params.p[param];
    return g->cfg.world && !g->cfg.n_servers && s->array[which].row.saved &&
           s->array[which].row.block == ARRAY_ELEMENT && store_has(s, which) &&
           store_array(s, which)->buf.dev == g->dev && array_covers(&s->array[which].row, p) &&
           store_held(s, param, which).n;
}

/* Ranks along the axes of copies. Of those along pp some do not hold the parameter. */
static void find_holders(const struct engine *g, const struct layout *l, struct holders_of *h)
{
    struct mesh_axis along[LAYOUT_MAX_PLACES];
    int k = 0, n = 0, me = g->params.rank;
    for (int i = 0; i < l->n_places; i++)
        if ((l->place[i].type == SPMD_I || l->place[i].type == SPMD_R) && !l->place[i].owner)
            along[k++] = l->place[i].on;
    h->n = mesh_group(along, k, me, NULL);
    h->rank = xcalloc(to_size(h->n), sizeof *h->rank);
    mesh_group(along, k, me, h->rank);
    for (int i = 0; i < h->n; i++)
        if (layout_holds(l, h->rank[i])) h->rank[n++] = h->rank[i];
    h->n = n;
    for (int i = 0; i < n; i++)
        if (h->rank[i] == me) h->me = i;
}

static struct holders_of holders_of(const struct engine *g, int param, int which)
{
    const struct store *s = &g->store;
    const struct param *p = &g->params.p[param];
    struct layout l = s->array[which].whole ? p->layout : param_stepped(p);
    struct holders_of h = {.span = store_held(s, param, which), .row = param_row_numel(p)};
    find_holders(g, &l, &h);
    int64_t parts = h.span.n * (int64_t)dtype_bytes(store_array(s, which)->row.dtype) / READERS_LEAST,
            rows = h.span.n / h.row;
    parts = parts < 1 ? 1 : parts < rows ? parts : rows;
    h.parts = parts < h.n ? to_int(parts) : h.n;
    h.first = (param + which) % h.n;
    return h;
}

/* The holder that reads part i, and which elements of the span that is. */
static int reader(const struct holders_of *h, int i) { return (h->first + i) % h->n; }

static struct region part_of(const struct holders_of *h, int i)
{
    struct region r = {.nd = 1};
    region_split(h->span.n / h->row, i, h->parts, &r.lo[0], &r.hi[0]);
    r.lo[0] *= h->row;
    r.hi[0] *= h->row;
    return r;
}

/* Which part the holder reads; -1: none. */
static int part_read_by(const struct holders_of *h, int holder)
{
    int i = (holder - h->first + h->n) % h->n;
    return i < h->parts ? i : -1;
}

struct array_span readers_part(const struct engine *g, int param, int which)
{
    struct array_span all = store_held(&g->store, param, which);
    if (!is_shared(g, param, which)) return all;
    struct holders_of h = holders_of(g, param, which);
    int i = part_read_by(&h, h.me);
    struct region part = i < 0 ? (struct region){.nd = 1} : part_of(&h, i);
    xfree(h.rank);
    return (struct array_span){all.lo + part.lo[0], part.hi[0] - part.lo[0], all.at + part.lo[0]};
}

/* What this rank wants of everybody, and what everybody wants of this rank. */
static int route_of(struct route **out, const struct holders_of *h, struct err *e)
{
    struct holding *from = xcalloc(to_size(h->parts), sizeof *from), *to = xcalloc(to_size(h->n), sizeof *to);
    int n = 0, mine = part_read_by(h, h->me);
    for (int i = 0; i < h->parts; i++)
        from[i] = (struct holding){.holder = h->rank[reader(h, i)], .box = part_of(h, i)};
    for (int i = 0; i < h->n; i++) {
        if (i == h->me) to[n++] = (struct holding){.holder = h->rank[i], .box = {.nd = 1, .hi = {h->span.n}}};
        else if (mine >= 0) to[n++] = (struct holding){.holder = h->rank[i], .box = part_of(h, mine)};
    }
    int rc = route_new_holdings(out, from, h->parts, to, n, e);
    xfree(from);
    xfree(to);
    return rc;
}

struct under_way {
    struct route *route;
    struct route_run *run;
};

static void end(struct under_way *u)
{
    if (u->run) route_run_end(u->run);
    route_run_free(u->run);
    route_free(u->route);
    *u = (struct under_way){0};
}

static int begin(struct under_way *u, struct engine *g, struct comm *c, int param, int which, struct err *e)
{
    const struct array *a = store_array(&g->store, which);
    struct holders_of h = holders_of(g, param, which);
    struct route_end here = {&a->buf, to_size(h.span.at) * dtype_bytes(a->row.dtype), {.nd = 1, .hi = {h.span.n}}};
    int rc = h.n > 1 ? route_of(&u->route, &h, e) : OK;
    if (!rc && u->route)
        rc = route_run_new(&u->run, c, g->stream, &(struct route_tensor){u->route, a->row.dtype, here, here}, 1, e);
    if (u->run) CHECK(route_run_bytes(u->run) == 0, "%s is packed on its way", g->params.p[param].name);
    if (u->run) route_run_begin(u->run, g->params.p[param].name);
    xfree(h.rank);
    return rc;
}

int readers_share(struct engine *g, struct err *e)
{
    struct under_way list[UNDER_WAY] = {{0}};
    struct comm *c = NULL;
    int n = g->cfg.world ? comm_size(g->cfg.world) : 1, *all, rc, next = 0;
    if (n == 1 || g->cfg.n_servers || g->dev->counts_only) return OK;
    all = xcalloc(to_size(n), sizeof *all);
    for (int i = 0; i < n; i++) all[i] = i;
    rc = comm_split_list(&c, g->cfg.world, all, n, "checkpoint", e);
    xfree(all);
    if (!rc) comm_on(c, g->dev);
    for (int which = 0; !rc && which < g->store.n_arrays; which++)
        for (int i = 0; !rc && i < g->params.n; i++) {
            if (!is_shared(g, i, which)) continue;
            end(&list[next]);
            rc = begin(&list[next], g, c, i, which, e);
            next = (next + 1) % UNDER_WAY;
        }
    for (int i = 0; i < UNDER_WAY; i++) end(&list[(next + i) % UNDER_WAY]);
    if (!rc) rc = comm_status(g->cfg.world, e);
    comm_free(c);
    return rc;
}
