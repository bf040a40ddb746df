/* SPDX-License-Identifier: Apache-2.0 */
/* Both roles in one file, because every message here has its two ends side by side. What travels are the routes of
 * site/param_server_routes.c. Workers keep no clocks: who may go on is decided by the servers, each from the pushes it
 * has seen, and all of them decide alike since they see the same clocks. A worker that wants to stop says with its push
 * after which step: far enough ahead that nobody can have passed it. Rejected: a key-value store per tensor (a message
 * per tensor and server), and servers as threads of the workers (then nothing is taken off them). */
#include "site/param_server.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "engine/tally.h"
#include "site/param_server_routes.h"

enum { HEAD_NATS, HEAD_TOKENS, HEAD_NORM, HEAD_STOP, HEAD_RIGHT }; /* push */
/* Answer. */
enum { BACK_STALE, BACK_MEAN, BACK_MAX, BACK_N, BACK_MEET, BACK_OVER, BACK_NATS, BACK_COUNT, BACK_RIGHT, HEAD };

struct client { /* what a server knows of a worker */
    double head[HEAD], back[HEAD];
    struct buffer landing;
    struct param_server_way push, pull;
    bool posted;    /* its next push is being received, */
    int64_t words;  /* and what is said with it */
    int64_t clock;  /* steps done */
    int64_t pulled; /* updates made when it last pulled */
    double nats, tokens, right;
    bool waits;
};

struct param_server {
    struct param_server_config c;
    struct engine *g;
    int n_workers, n_servers, me; /* me: which server, -1 a worker */
    struct comm *world, *servers;
    struct comm *post, *words; /* everybody; async: what is said with it, between hosts */
    struct param_server_routes routes;
    struct param_server_way push, pull; /* of all workers; async: a worker's own */
    struct client *client;              /* async server: [n_workers] */
    int64_t updates, stop_at;           /* stop_at: 0 not known */
    int64_t left_out;                   /* updates that were none: a push of which nothing is trained */
    double stale_sum;
    int64_t stale_max, stale_n;
    bool over;
};

static bool serves(const struct param_server *v) { return v->me >= 0; }

static int new_groups(struct param_server *v, struct err *e)
{
    int n = v->n_workers + v->n_servers, *list = xcalloc((size_t)n, sizeof *list), rc = OK;
    for (int s = 0; s < v->n_servers; s++) list[s] = v->n_workers + s;
    if (serves(v) && v->n_servers > 1) rc = comm_split_list(&v->servers, v->world, list, v->n_servers, "servers", e);
    for (int i = 0; i < n; i++) list[i] = i;
    if (!rc) rc = comm_split_list(&v->post, v->world, list, n, "post", e);
    if (!rc && v->c.async) rc = comm_split_list(&v->words, v->world, list, n, "post hosts", e);
    comm_on(v->post, v->g->dev);
    xfree(list);
    return rc;
}

/* One for all where all step together; else one for each worker and direction. */
static int new_ways(struct param_server *v, struct err *e)
{
    struct engine *g = v->g;
    int rc = OK, all = v->c.async ? comm_rank(v->world) : -1;
    if (serves(v)) v->client = xcalloc((size_t)v->n_workers, sizeof *v->client);
    if (!serves(v) || !v->c.async) {
        rc = param_server_way_new(&v->push, &v->routes, v->post, g, true, all, NULL, e);
        return rc ? rc : param_server_way_new(&v->pull, &v->routes, v->post, g, false, all, NULL, e);
    }
    for (int w = 0; !rc && w < v->n_workers; w++) {
        struct client *c = &v->client[w];
        rc = buffer_new(&c->landing, g->dev, MEM_COMM, to_size(g->store.units.shard_numel) * 4, e);
        if (!rc) rc = param_server_way_new(&c->push, &v->routes, v->post, g, true, w, &c->landing, e);
        if (!rc) rc = param_server_way_new(&c->pull, &v->routes, v->post, g, false, w, NULL, e);
    }
    return rc;
}

int param_server_new(struct param_server **out, const struct param_server_config *c, struct engine *g,
                     const struct ranks *r, struct err *e)
{
    struct param_server *v = xcalloc(1, sizeof *v);
    *out = NULL;
    *v = (struct param_server){.c = *c,
                               .g = g,
                               .n_workers = r->n - r->n_servers,
                               .n_servers = r->n_servers,
                               .me = r->server,
                               .world = r->world};
    if (c->async) g->exchange.sums = NULL; /* each worker counts its own */
    param_server_routes_open(&v->routes, g, r);
    int rc = new_groups(v, e);
    if (!rc) rc = new_ways(v, e);
    if (rc) param_server_free(v);
    else *out = v;
    return rc;
}

void param_server_free(struct param_server *v)
{
    if (!v) return;
    param_server_way_free(&v->push);
    param_server_way_free(&v->pull);
    for (int w = 0; v->client && w < v->n_workers; w++) {
        if (v->client[w].posted) route_run_end(v->client[w].push.run); /* the world failed: nothing arrives any more */
        param_server_way_free(&v->client[w].push);
        param_server_way_free(&v->client[w].pull);
        buffer_free(&v->client[w].landing);
    }
    param_server_routes_close(&v->routes);
    comm_free(v->servers);
    comm_free(v->words);
    comm_free(v->post);
    xfree(v->client);
    xfree(v);
}

/* ---- sync ---- */
static void travel(struct param_server_way *x, const char *what)
{
    route_run_begin(x->run, what);
    route_run_end(x->run);
}

void param_server_begin(struct param_server *v, int64_t step)
{
    bool each = v->c.async && serves(v);
    for (int w = 0; each && w < v->n_workers; w++) route_run_begin(v->client[w].pull.run, "pull");
    for (int w = 0; each && w < v->n_workers; w++) route_run_end(v->client[w].pull.run);
    if (!each) travel(&v->pull, "pull");
    for (int w = 0; serves(v) && w < v->n_workers; w++) v->client[w].clock = step;
    v->updates = v->c.async ? step * v->n_workers : step;
    v->left_out = v->g->left_out * v->n_workers;
    for (int w = 0; serves(v) && w < v->n_workers; w++) v->client[w].pulled = v->updates;
}

bool param_server_step(struct param_server *v, const struct engine_batch *b, int64_t step, double lr,
                       struct engine_report *r)
{
    enum { LOSS, NATS, TOKENS, RIGHT, SEQUENCES, PADDED, PAIRS, N_SEEN = PAIRS + PAIRS_N };
    double seen[N_SEEN] = {0}, norm = 0;
    if (!serves(v)) {
        engine_gradients(v->g, b, step, r);
        seen[LOSS] = r->loss;
        seen[NATS] = r->nats;
        seen[TOKENS] = (double)r->tokens;
        seen[RIGHT] = r->right;
        seen[SEQUENCES] = (double)r->sequences;
        seen[PADDED] = (double)r->padded;
        for (int k = 0; k < PAIRS_N; k++) seen[PAIRS + k] = (double)r->pairs[k];
    }
    comm_wait(v->world, comm_broadcast(v->world, seen, N_SEEN, DT_F64, 0, "loss"));
    travel(&v->push, "push");
    if (serves(v)) {
        double squares = tally_squares(v->g);
        if (v->servers)
            comm_wait(v->servers,
                      comm_all_reduce(v->servers, &squares, &squares, 1, DT_F64, COMM_SUM, "gradient norm"));
        v->g->store.grad_times = v->g->scale.now;
        norm = sqrt(squares) / v->g->scale.now;
    }
    comm_wait(v->world, comm_broadcast(v->world, &norm, 1, DT_F64, v->n_workers, "gradient norm"));
    *r = (struct engine_report){.loss = seen[LOSS],
                                .nats = seen[NATS],
                                .tokens = (int64_t)seen[TOKENS],
                                .right = seen[RIGHT],
                                .sequences = (int64_t)seen[SEQUENCES],
                                .padded = (int64_t)seen[PADDED],
                                .grad_norm = norm,
                                .loss_scale = v->g->scale.now};
    for (int k = 0; k < PAIRS_N; k++) r->pairs[k] = (int64_t)seen[PAIRS + k];
    if (engine_untrained(v->g, r)) { /* all ranks were told so */
        engine_leave_out(v->g, r, SKIP_UNTRAINED);
        return true;
    }
    bool finite = isfinite(r->loss) && isfinite(norm), goes_on = finite;
    if (v->g->cfg.scale.first > 0) { /* all ranks were told the same, and do the same */
        r->skip = finite ? SKIP_NONE : isfinite(r->loss) ? SKIP_GRADIENT : SKIP_LOSS;
        goes_on = loss_scale_after(&v->g->scale, &v->g->cfg.scale, finite);
    }
    if (!finite && goes_on) v->g->left_out++;
    if (!finite) return goes_on;
    double from = clock_now_s();
    if (serves(v)) optim_step(&v->g->store, v->g->stream, &v->c.optim, &v->g->tools, lr, step - v->g->left_out, norm);
    if (serves(v)) trace_add(v->g->trace, TRACE_OPTIMIZER, "update parameters", step, from, clock_now_s());
    travel(&v->pull, "pull");
    return true;
}

/* ---- async ---- */
static bool meets_after(const struct param_server *v, int64_t step)
{
    return step == v->c.steps || step == v->stop_at || (v->c.eval_every && step % v->c.eval_every == 0) ||
           (v->c.checkpoint_every && step % v->c.checkpoint_every == 0);
}

int param_server_push(struct param_server *v, const struct engine_batch *b, int64_t step, bool stop,
                      struct engine_report *r, struct staleness *s, bool *meet, struct err *e)
{
    double head[HEAD] = {0}, *back = xcalloc((size_t)v->n_servers * HEAD, sizeof *back);
    int64_t *ticket = xcalloc((size_t)v->n_servers * 2, sizeof *ticket);
    engine_gradients(v->g, b, step, r);
    bool trains = r->tokens > 0, finite = !trains || (isfinite(r->loss) && isfinite(r->grad_norm));
    head[HEAD_NATS] = r->nats;
    head[HEAD_TOKENS] = (double)r->tokens;
    head[HEAD_NORM] = r->grad_norm;
    if (!trains) {
        r->skip = SKIP_UNTRAINED;
        r->grad_norm = NAN;
    }
    head[HEAD_RIGHT] = r->right;
    head[HEAD_STOP] =
        stop ? (double)(step + v->c.staleness + 2) : 0; /* others are at most staleness + 1 ahead of `step` */
    for (int k = 0; finite && k < v->n_servers; k++) {
        int peer = v->n_workers + k;
        ticket[2 * k] = comm_send(v->words, head, HEAD, DT_F64, peer, "push: loss and clock");
        ticket[2 * k + 1] = comm_recv(v->words, back + k * HEAD, HEAD, DT_F64, peer, "pull: who goes on");
    }
    if (finite) route_run_begin(v->push.run, "push");
    if (finite) route_run_begin(v->pull.run, "pull");
    for (int k = 0; finite && k < 2 * v->n_servers; k++) comm_wait(v->words, ticket[k]);
    if (finite) route_run_end(v->push.run);
    if (finite) route_run_end(v->pull.run);
    *s = (struct staleness){.mean = back[BACK_MEAN], .max = (int64_t)back[BACK_MAX], .n = (int64_t)back[BACK_N]};
    if (back[BACK_MEET] != 0) { /* all workers' losses of the step */
        r->nats = back[BACK_NATS];
        r->tokens = (int64_t)back[BACK_COUNT];
        r->right = back[BACK_RIGHT];
        r->loss = r->tokens ? r->nats / (double)r->tokens : NAN;
        if (r->tokens) r->skip = SKIP_NONE;
    }
    *meet = back[BACK_MEET] != 0;
    v->over = back[BACK_OVER] != 0;
    xfree(back);
    xfree(ticket);
    if (!finite)
        return err_set(e, ERR_NUMERIC,
                       "step %lld: loss %g, gradient norm %g of this worker: not finite; nothing was pushed. "
                       "Lower optimizer.lr, raise warmup_steps, or set optimizer.clip",
                       (long long)step + 1, r->loss, r->grad_norm);
    return OK;
}

static void post_receive(struct param_server *v, int w)
{
    struct client *c = &v->client[w];
    c->words = comm_recv(v->words, c->head, HEAD, DT_F64, w, "push: loss and clock");
    route_run_begin(c->push.run, "push");
    c->posted = true;
}

static void apply(struct param_server *v, int w, int64_t *tokens)
{
    struct client *c = &v->client[w];
    struct store *store = &v->g->store;
    double stale = (double)(v->updates - c->pulled), lr = lr_at(&v->c.lr, c->clock) / v->n_workers;
    device_copy(v->g->stream, &store->array[STORE_GRAD].buf, 0, &c->landing, 0, c->landing.bytes);
    if (c->head[HEAD_TOKENS] > 0)
        optim_step(store, v->g->stream, &v->c.optim, &v->g->tools, lr, v->updates - v->left_out, c->head[HEAD_NORM]);
    else v->g->left_out = ++v->left_out / v->n_workers; /* as a checkpoint counts them, in steps */
    v->updates++;
    c->clock++;
    c->waits = true;
    c->nats = c->head[HEAD_NATS];
    c->tokens = c->head[HEAD_TOKENS];
    c->right = c->head[HEAD_RIGHT];
    *tokens += (int64_t)c->tokens;
    c->back[BACK_STALE] = stale;
    v->stale_sum += stale;
    v->stale_max = (int64_t)stale > v->stale_max ? (int64_t)stale : v->stale_max;
    v->stale_n++;
    int64_t stop = (int64_t)c->head[HEAD_STOP];
    if (stop && (!v->stop_at || stop < v->stop_at)) v->stop_at = stop;
}

static void answer(struct param_server *v, int w, bool meet, bool over)
{
    struct client *c = &v->client[w];
    c->back[BACK_MEAN] = v->stale_n ? v->stale_sum / (double)v->stale_n : 0;
    c->back[BACK_MAX] = (double)v->stale_max;
    c->back[BACK_N] = (double)v->stale_n;
    c->back[BACK_MEET] = meet;
    c->back[BACK_OVER] = over;
    c->back[BACK_NATS] = c->back[BACK_COUNT] = c->back[BACK_RIGHT] = 0;
    for (int i = 0; meet && i < v->n_workers; i++) {
        c->back[BACK_NATS] += v->client[i].nats;
        c->back[BACK_COUNT] += v->client[i].tokens;
        c->back[BACK_RIGHT] += v->client[i].right;
    }
    int64_t said = comm_send(v->words, c->back, HEAD, DT_F64, w, "answer: who goes on");
    travel(&c->pull, "answer");
    comm_wait(v->words, said);
    c->pulled = v->updates;
    c->waits = false;
    if (w == 0) v->stale_sum = 0, v->stale_max = v->stale_n = 0; /* reported by worker 0 */
    if (!meet) post_receive(v, w);
}

/* Everyone who may go on is answered; true when all stand where all meet. */
static bool release(struct param_server *v)
{
    int64_t slowest = v->client[0].clock;
    bool all = true;
    for (int w = 1; w < v->n_workers; w++) slowest = v->client[w].clock < slowest ? v->client[w].clock : slowest;
    for (int w = 0; w < v->n_workers; w++) all &= v->client[w].waits && v->client[w].clock == slowest;
    if (all && meets_after(v, slowest)) {
        v->over = slowest == v->c.steps || slowest == v->stop_at;
        for (int w = 0; w < v->n_workers; w++) answer(v, w, true, v->over);
        return true;
    }
    for (int w = 0; w < v->n_workers; w++) {
        struct client *c = &v->client[w];
        if (c->waits && !meets_after(v, c->clock) && c->clock - slowest <= v->c.staleness) answer(v, w, false, false);
    }
    return false;
}

int64_t param_server_until_meeting(struct param_server *v, int64_t *tokens, struct err *e)
{
    for (int w = 0; w < v->n_workers; w++) post_receive(v, w);
    for (;;) {
        bool moved = false;
        for (int w = 0; w < v->n_workers; w++) {
            struct client *c = &v->client[w];
            if (!c->posted || !comm_done(v->words, c->words) || !route_run_done(c->push.run)) continue;
            route_run_end(c->push.run);
            c->posted = false;
            if (comm_status(v->world, e)) return e->code;
            apply(v, w, tokens);
            moved = true;
            if (release(v)) return v->client[0].clock;
        }
        if (comm_status(v->world, e)) return e->code;
        if (!moved) clock_sleep_s(50e-6);
    }
}

bool param_server_is_over(const struct param_server *v) { return v->over; }

struct comm *param_server_group(const struct param_server *v, int i)
{
    struct comm *own[] = {v->servers, v->post, v->words};
    const struct param_server_way *way[] = {&v->push, &v->pull};
    int n = 0;
    for (int k = 0; k < 3; k++)
        if (own[k] && n++ == i) return own[k];
    for (int k = 0; k < 2; k++) {
        struct comm *c;
        for (int j = 0; way[k]->run && (c = route_run_group(way[k]->run, j)); j++)
            if (n++ == i) return c;
    }
    return NULL;
}

int64_t param_server_traffic(const struct param_server *v)
{
    int64_t n = 0;
    struct comm *c;
    for (int i = 0; (c = param_server_group(v, i)); i++) n += comm_traffic(c).bytes;
    return n;
}

/* On a null communicator every message is there at once, so each worker has pushed when a server first looks. */
int param_server_dry_step(struct param_server *v, int64_t *sent, struct err *e)
{
    struct engine_batch nothing = {0};
    struct engine_report report;
    struct staleness stale;
    bool meet;
    int64_t tokens = 0, rc = OK;
    param_server_begin(v, 0);
    int64_t before = param_server_traffic(v);
    if (!v->c.async) param_server_step(v, &nothing, 0, 0, &report);
    else if (serves(v)) rc = param_server_until_meeting(v, &tokens, e);
    else rc = param_server_push(v, &nothing, 0, false, &report, &stale, &meet, e);
    *sent = param_server_traffic(v) - before;
    return rc < 0 ? (int)rc : OK;
}
