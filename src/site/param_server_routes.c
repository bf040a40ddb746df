/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes come from layouts, ends from the store: nothing here knows in which order parameters are packed. */
#include "site/param_server_routes.h"

#include "base/mem.h"

static void declare(struct param_table *t, const struct engine *g, const struct mesh *m)
{
    struct par first = par_at(m, 0);
    model_declare(&g->cfg.model, &first, t);
    optim_own(&g->cfg.optim, t);
}

void param_server_routes_open(struct param_server_routes *x, const struct engine *g, const struct ranks *r)
{
    struct mesh servers = ranks_servers(r->n_servers);
    *x = (struct param_server_routes){.n_workers = r->n - r->n_servers, .n_servers = r->n_servers};
    declare(&x->workers, g, &r->mesh);
    declare(&x->servers, g, &servers);
}

void param_server_routes_close(struct param_server_routes *x)
{
    param_table_free(&x->workers);
    param_table_free(&x->servers);
}

/* The ranks of a layout as holders, numbered from `first` on. */
static int holders_of(const struct layout *l, int first, struct holding *out)
{
    int n = 0;
    for (int r = 0; r < l->n_ranks; r++)
        if (layout_holds(l, r)) out[n++] = (struct holding){.holder = first + r, .box = layout_box(l, r)};
    return n;
}

static int route_of(struct route **out, const struct param_server_routes *x, int param, bool push, int worker,
                    struct err *e)
{
    struct layout cut = param_stepped(&x->servers.p[param]);
    struct holding *own = xcalloc(to_size(x->n_servers), sizeof *own),
                   *all = xcalloc(to_size(x->n_workers), sizeof *all);
    int n_own = holders_of(&cut, x->n_workers, own), n_all = holders_of(&x->workers.p[param].layout, 0, all);
    if (worker >= 0) {
        CHECK(worker < n_all && all[worker].holder == worker, "worker %d holds nothing", worker);
        all[0] = all[worker];
        n_all = 1;
    }
    for (int i = 0; push && i < n_all; i++) all[i].term = i;
    int rc =
        push ? route_new_holdings(out, all, n_all, own, n_own, e) : route_new_holdings(out, own, n_own, all, n_all, e);
    xfree(own);
    xfree(all);
    return rc;
}

/* Where this rank has its box. */
static struct route_end end_of(const struct param_server_routes *x, const struct engine *g, int param, bool push,
                               const struct buffer *landing)
{
    int which = push ? STORE_GRAD : STORE_PARAM, me = g->params.rank;
    const struct array *a = &g->store.array[which];
    struct array_span held = store_held(&g->store, param, which);
    struct layout l = g->cfg.server >= 0 ? param_stepped(&x->servers.p[param]) : x->workers.p[param].layout;
    struct route_end end = {landing ? landing : &a->buf, to_size(held.at) * dtype_bytes(a->row.dtype),
                            layout_holds(&l, me) ? layout_box(&l, me) : (struct region){.nd = g->params.p[param].nd}};
    CHECK(region_volume(&end.box) == held.n, "%s is not where its layout says", g->params.p[param].name);
    return end;
}

int param_server_way_new(struct param_server_way *w, const struct param_server_routes *x, struct comm *c,
                         struct engine *g, bool push, int worker, const struct buffer *landing, struct err *e)
{
    bool serves = g->cfg.server >= 0, sends = push != serves;
    struct route_tensor *t = xcalloc(to_size(g->params.n) + 1, sizeof *t);
    int rc = OK;
    *w = (struct param_server_way){.route = xcalloc(to_size(g->params.n) + 1, sizeof *w->route)};
    for (int i = 0; i < g->params.n && !rc; i++) {
        rc = route_of(&w->route[i], x, i, push, worker, e);
        if (rc) break;
        struct route_end here = end_of(x, g, i, push, landing);
        t[i] = (struct route_tensor){.route = w->route[w->n++], .dtype = push ? DT_F32 : g->store.dtype};
        *(sends ? &t[i].from : &t[i].to) = here;
    }
    if (!rc) rc = route_run_new(&w->run, c, g->stream, t, w->n, worker >= 0 ? NULL : push ? "push" : "pull", e);
    xfree(t);
    if (rc) param_server_way_free(w);
    return rc;
}

void param_server_way_free(struct param_server_way *w)
{
    route_run_free(w->run);
    for (int i = 0; i < w->n; i++) route_free(w->route[i]);
    xfree(w->route);
    *w = (struct param_server_way){0};
}
