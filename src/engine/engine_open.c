/* SPDX-License-Identifier: Apache-2.0 */
/* Making an engine and giving it back: all that its steps need is allocated here (what there must be, build.c says), on
 * a device that computes, counts, or only as far as paper goes. */
#include "engine/engine.h"

#include <string.h>

#include "engine/balance.h"
#include "layout/sequence.h"
#include "engine/build.h"
#include "engine/feed.h"
#include "engine/tally.h"
#include "optim/adafactor.h"
#include "optim/muon.h"
#include "data/prefetch.h"
#include "kernel/flat.h"
#include "optim/staging.h"
#include "state/packed.h"

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }
static int max_int(int a, int b) { return a > b ? a : b; }

/* Parameters, who holds what of them, and what travels when. */
static bool is_server(const struct engine_config *c) { return c->n_servers && c->server >= 0; }

/* What the store has beside its own arrays: the optimizers', and state that nobody steps. */
static int rows_of(const struct engine *g, struct array_row rows[STORE_MAX_ARRAYS])
{
    int n = optim_arrays(&g->cfg.optim, rows);
    n += recipes_rows(g, rows + n);
    CHECK(n + g->cfg.n_state <= STORE_MAX_ARRAYS - STORE_ROWS, "%d arrays", n + g->cfg.n_state);
    for (int i = 0; g->cfg.offload.optimizer && i < n; i++)
        if (!rows[i].averages) rows[i].away = g->cfg.offload.to;
    for (int i = 0; i < g->cfg.n_state; i++) rows[n++] = g->cfg.state[i];
    return n;
}

/* Arrays on another device are worked on by the same kernels. */
static int make_store(struct engine *g, const struct store_config *c, struct err *e)
{
    int rc = store_new_shared(&g->store, &g->params, g->dev, c, e);
    for (int i = 0; !rc && i < g->store.n_arrays; i++)
        if (g->store.array[i].own && !g->store.array[i].row.away) kernel_on(g->store.array[i].own, &g->kernels);
    return rc;
}

/* What kernels of whole arrays want, at most: a parameter's norm, where it is not finite. */
static size_t room_of(const struct engine *g)
{
    int64_t n = 1;
    size_t most = 0;
    for (int i = 0; i < g->params.n; i++)
        if (g->params.p[i].numel > n) n = g->params.p[i].numel;
    struct kernel_call c = sum_squares_call(NULL, NULL, n);
    most = max_size(most, kernel_scratch(&g->kernels, &c));
    for (int t = DT_F32; t <= DT_F64; t++) {
        c = find_nonfinite_call(NULL, NULL, (enum dtype)t, n);
        most = max_size(most, kernel_scratch(&g->kernels, &c));
    }
    return most;
}

/* Whoever asks on one stream waits before another does. */
static void give_room(const struct engine *g, struct stream *s)
{
    s->room = g->room.p;
    s->room_bytes = g->room.bytes;
}

static int new_room(struct engine *g, struct err *e)
{
    size_t bytes = g->cfg.training ? room_of(g) : 0;
    int rc = bytes ? buffer_new(&g->room, g->dev, MEM_SCRATCH, bytes, e) : OK;
    give_room(g, g->stream);
    for (int i = 0; i < g->store.n_arrays; i++)
        if (g->store.array[i].own && !g->store.array[i].row.away) give_room(g, g->store.array[i].own);
    return rc;
}

/* A server's shard: as at zero 3, and nobody to exchange it with but the workers. */
static int new_shard(struct engine *g, struct err *e)
{
    struct array_row rows[STORE_MAX_ARRAYS];
    struct store_config c =
        {.dtype = g->cfg.dtype, .training = true, .rows = rows, .n_rows = rows_of(g, rows), .zero = 3, .shared = true};
    int rc = make_store(g, &c, e);
    if (!rc) rc = muon_new(&g->tools.muon, &g->store, &g->cfg.optim, g->stream, NULL, e);
    if (!rc) rc = tally_buffers(g, e);
    if (!rc) rc = new_room(g, e);
    return rc ? rc : exchange_init(&g->exchange, &g->store, &(struct exchange_config){.stream = g->stream}, e);
}

/* A weight of both ends of the model has gradients in two parts of a stage; where gradients of weights are put off,
 * each part's leave by themselves. */
static bool leaves_twice(const struct engine *g)
{
    bool both_ends = g->cfg.model.tie_embeddings || g->cfg.model.mtp.depth;
    return both_ends && g->when && build_puts_off(g);
}

static struct store_config store_of(const struct engine *g, struct array_row rows[STORE_MAX_ARRAYS])
{
    return (struct store_config){
        .stateless = g->cfg.n_servers > 0,
        .no_master = g->cfg.no_master,
        .master_away = g->cfg.offload.master ? g->cfg.offload.to : 0,
        .param_away = g->cfg.offload.params ? g->cfg.offload.to : 0,
        .dtype = g->cfg.dtype,
        .training = g->cfg.training,
        .rows = rows,
        .n_rows = rows_of(g, rows),
        .zero = g->cfg.zero,
        .shared = !g->cfg.n_servers,
        .grad = g->cfg.grad_dtype,
        .many = g->cfg.n_microbatches > 1 || g->n_stages > 1 || leaves_twice(g),
        .once = g->cfg.reduce_once || g->cfg.exact_order,
    };
}

static int size_of(const struct comm *c) { return c ? comm_size(c) : 1; }

/* Groups are those of the mesh that the layouts are on: what one rank sends as a piece, another takes as one. */
static void check_groups(const struct engine *g)
{
    const struct units *u = &g->store.units;
    const struct mesh *m = &g->params.mesh;
    bool experts = u->n_expert_ranks > 1;
    CHECK(u->n_ranks == size_of(g->cfg.shard) && (!experts || u->n_expert_ranks == size_of(g->cfg.expert)) &&
              (!u->shared || m->size[AXIS_DP_REPLICATE] == size_of(g->cfg.replicate)) &&
              m->size[AXIS_PP] == size_of(g->cfg.axis[AXIS_PP]) && m->size[AXIS_TP] == size_of(g->cfg.axis[AXIS_TP]),
          "groups of %d (experts %d, replicas %d) ranks on a mesh of %d (%d, %d)", size_of(g->cfg.shard),
          size_of(g->cfg.expert), size_of(g->cfg.replicate), u->n_ranks, u->n_expert_ranks, m->size[AXIS_DP_REPLICATE]);
}

static int new_store(struct engine *g, struct err *e)
{
    struct array_row rows[STORE_MAX_ARRAYS];
    struct store_config c = store_of(g, rows);
    CHECK(!g->cfg.exact_order || build_in_order(g->when), "exact_order with several microbatches alive");
    int rc = make_store(g, &c, e);
    if (rc) return rc;
    check_groups(g);
    rc = exchange_init(&g->exchange, &g->store,
                       &(struct exchange_config){
                           .stream = g->stream,
                           .shard = g->cfg.shard,
                           .host_shard = g->cfg.host.shard,
                           .host_replicate = g->cfg.host.replicate,
                           .expert = g->cfg.expert,
                           .replicate = g->cfg.replicate,
                           .exact = g->cfg.exact_order,
                           .sums = g->cfg.workers,
                           .n_microbatches = g->cfg.n_microbatches,
                           .grad = g->cfg.comm_grad,
                           .param = g->cfg.comm_param,
                       },
                       e);
    g->exchange.across[AXIS_TP] = g->cfg.axis[AXIS_TP];
    return rc;
}

/* n buffers of one size, after those that are there. */
static int push_buffers(struct engine *g, struct buffer *list, int *have, int n, enum mem_cat cat, size_t bytes,
                        struct err *e)
{
    int rc = OK;
    for (int i = 0; !rc && i < n; i++) {
        rc = buffer_new(&list[*have], g->dev, cat, bytes, e);
        *have += !rc;
    }
    return rc;
}

int64_t engine_seq_here(const struct engine *g)
{
    return context_rows(g->cfg.seq, g->cfg.par.size[AXIS_CP], g->cfg.par.rank[AXIS_CP], 1);
}

int64_t engine_crossing(const struct engine *g)
{
    int64_t lo = 0, hi = g->cfg.micro * engine_seq_here(g);
    if (g->cfg.par.sequence) par_share(&g->cfg.par, AXIS_TP, hi, &lo, &hi);
    return (hi - lo) * g->cfg.model.hidden;
}

/* Slabs, class after class, and the buffers between stages. */
static int new_slabs(struct engine *g, struct err *e)
{
    enum mem_cat away = g->cfg.offload.to ? g->cfg.offload.to : MEM_HOST;
    int rc = OK, n_act = 0, n_wgrad = 0,
        n = max_int(g->go.n_keep + g->go.n_send, g->go_eval.n_keep + g->go_eval.n_send);
    for (int c = 0; c < g->go.n_act; c++) n_act += g->go.act[c];
    for (int c = 0; c < g->go.n_wgrad; c++) n_wgrad += g->go.wgrad[c];
    g->act = xcalloc((size_t)n_act + 1, sizeof *g->act);
    g->away = xcalloc((size_t)n_act + 1, sizeof *g->away);
    g->wgrad = xcalloc((size_t)n_wgrad + 1, sizeof *g->wgrad);
    g->act_at = xcalloc((size_t)g->n_stages + 1, sizeof *g->act_at);
    g->wgrad_at = xcalloc((size_t)g->n_stages + 1, sizeof *g->wgrad_at);
    for (int i = 0; !rc && i < g->n_stages; i++) { /* classes are numbered by their first stage */
        const struct engine_stage *s = &g->stage[i];
        if (!s->train) continue;
        if (s->act_class == i) {
            g->act_at[i] = g->n_act;
            rc = push_buffers(g, g->away, &g->n_away, g->go.act[i], away, s->train->bytes[HOME_AWAY], e);
            if (rc) return rc;
            rc = push_buffers(g, g->act, &g->n_act, g->go.act[i], MEM_ACTIVATION, s->train->bytes[HOME_ACT], e);
        }
        if (!rc && s->wgrad_class == i) {
            g->wgrad_at[i] = g->n_wgrad;
            rc = push_buffers(g, g->wgrad, &g->n_wgrad, g->go.wgrad[i], MEM_WGRAD, s->train->bytes[HOME_WGRAD], e);
        }
    }
    size_t crossing = to_size(engine_crossing(g)) * dtype_bytes(g->cfg.dtype);
    g->crossing = xcalloc((size_t)n + 1, sizeof *g->crossing);
    g->ticket = xcalloc((size_t)n + 1, sizeof *g->ticket);
    if (!rc) rc = push_buffers(g, g->crossing, &g->n_crossing, g->go.n_keep, MEM_ACTIVATION, crossing, e);
    if (!rc) rc = push_buffers(g, g->crossing, &g->n_crossing, n - g->go.n_keep, MEM_COMM, crossing, e);
    return rc;
}

static int new_buffers(struct engine *g, struct err *e)
{
    size_t scratch = 0;
    for (int i = 0; i < g->n_stages; i++) {
        const struct engine_stage *s = &g->stage[i];
        scratch =
            max_size(scratch, max_size(s->train ? s->train->bytes[HOME_SCRATCH] : 0, s->eval->bytes[HOME_SCRATCH]));
    }
    int rc =
        exchange_slots(&g->exchange, max_int(g->go.n_param_slots, g->go_eval.n_param_slots), g->go.n_grad_slots, e);
    if (!rc) rc = copies_init(&g->copies, &g->store, g->cfg.axis[AXIS_PP], build_holders, g, e);
    if (!rc) rc = buffer_new(&g->data, g->dev, MEM_DATA, feed_bytes(g), e);
    if (!rc) rc = buffer_new_host(&g->staging, g->dev, MEM_DATA, g->data.bytes, e);
    g->shown = xcalloc(to_size(g->cfg.n_microbatches * PAIRS_N), sizeof *g->shown);
    if (!rc && model_prefixes(&g->cfg.model) && g->staging.p)
        g->marked = xcalloc(to_size(g->cfg.n_microbatches * g->cfg.micro * g->cfg.seq), sizeof *g->marked);
    if (!rc && g->cfg.documents_in_order && g->staging.p)
        g->order = xcalloc(to_size(g->cfg.n_microbatches * g->cfg.micro * g->cfg.seq), sizeof *g->order);
    if (!rc && g->cfg.batches_ahead)
        rc = buffer_new_host(&g->ahead, g->dev, MEM_DATA,
                             prefetch_bytes(g->cfg.n_microbatches * g->cfg.micro, g->cfg.seq,
                                            model_pixels(&g->cfg.model), g->cfg.batches_ahead),
                             e);
    if (!rc && g->cfg.object_bytes) rc = buffer_new_host(&g->objects, g->dev, MEM_DATA, g->cfg.object_bytes, e);
    if (!rc && model_rope_cols(&g->cfg.model))
        rc = buffer_new(&g->rope, g->dev, MEM_DATA,
                        to_size(model_rope_rows(&g->cfg.model) * model_rope_cols(&g->cfg.model)) * sizeof(float), e);
    bool apart = g->cfg.par.sequence || g->cfg.par.size[AXIS_CP] > 1;
    bool indexed = apart && (g->cfg.model.dropout > 0 || g->recipes.chance);
    if (!rc && indexed)
        rc = buffer_new(&g->index, g->dev, MEM_DATA, to_size(g->cfg.micro * engine_seq_here(g)) * sizeof(int32_t), e);
    if (!rc && balance_bytes(&g->cfg)) rc = buffer_new(&g->balance, g->dev, MEM_DATA, balance_bytes(&g->cfg), e);
    if (!rc) rc = recipes_buffers(g, e);
    if (!rc) rc = telemetry_new(g, e);
    if (!rc) fallback_new(g);
    if (!rc) rc = exponents_new(g, e);
    if (!rc) rc = tally_buffers(g, e);
    if (!rc) rc = new_slabs(g, e);
    if (!rc) rc = buffer_new(&g->scratch, g->dev, MEM_SCRATCH, scratch, e);
    if (!rc) rc = new_room(g, e);
    return rc;
}

static void bind(struct engine *g)
{
    g->n_slots = slot_recipe(g->params.n, to_int(model_blocks(&g->cfg.model))) + 3 + to_int(g->cfg.model.mtp.depth);
    g->slot = xcalloc((size_t)g->n_slots, sizeof *g->slot);
    g->written = xcalloc((size_t)g->n_slots, 1);
    g->slot[SLOT_ROPE] = g->rope.p;
    g->slot[SLOT_STAT] = g->stat.p;
    g->slot[SLOT_INDEX] = g->index.p;
    if (g->index.p) {
        int64_t here = engine_seq_here(g), n = g->cfg.micro * here;
        int32_t *index = xcalloc(to_size(n), sizeof *index);
        for (int64_t i = 0; i < n; i++) index[i] = (int32_t)(i / here * g->cfg.seq + feed_place(g, i % here));
        device_from_host(g->stream, &g->index, 0, index, g->index.bytes);
        stream_sync(g->stream);
        xfree(index);
    }
    balance_bind(g);
    recipes_bind(g);
    for (int i = 0; i < g->params.n; i++) {
        g->slot[slot_param(i)] = exchange_param_ptr(&g->exchange, i, -1);
        g->slot[slot_grad(i)] = exchange_grad_ptr(&g->exchange, i, -1);
    }
    if (g->rope.p) {
        float *table = xmalloc(g->rope.bytes);
        model_rope_table(&g->cfg.model, table);
        device_from_host(g->stream, &g->rope, 0, table, g->rope.bytes);
        stream_sync(g->stream);
        xfree(table);
    }
}

/* What of the groups is the data plane. */
static void put_on_device(const struct engine_config *c, const struct device *d)
{
    struct comm *const group[] = {c->shard, c->expert, c->replicate, c->model_group, c->cp_inner, c->cp_outer};
    for (size_t i = 0; i < sizeof group / sizeof *group; i++) comm_on(group[i], d);
    for (int a = 0; a < AXIS_N; a++) comm_on(c->axis[a], d);
    CHECK(!c->axis[AXIS_PP] == !c->host.pp && !c->axis[AXIS_TP] == !c->host.tp && !c->expert == !c->host.expert,
          "ranks without their hosts");
}

/* The rank's place and its table of parameters. */
static int begin(struct engine **out, const struct engine_config *c, struct device *d, struct err *e)
{
    struct engine *g = *out = xcalloc(1, sizeof *g);
    g->cfg = *c;
    g->dev = d;
    loss_scale_init(&g->scale, &c->scale);
    if (!c->par.size[0]) g->cfg.par = par_single();
    memcpy(g->collectives.axis, c->axis, sizeof g->collectives.axis);
    g->collectives.inner = c->cp_inner;
    g->collectives.outer = c->cp_outer;
    put_on_device(c, d);
    int rc = model_check(&c->model, e);
    if (!rc) model_declare(&c->model, &g->cfg.par, &g->params);
    if (!rc) rc = model_check_adapter(&c->model, &g->params, e);
    if (!rc && c->training) rc = param_freeze(&g->params, &c->freeze, e);
    if (!rc && c->training && c->model.adapter) rc = packed_mark(&g->params, c->model.adapter->base, e);
    if (!rc && c->training) optim_own(&c->optim, &g->params);
    if (!rc) rc = stream_new(&g->stream, d, "compute", e);
    if (!rc) rc = stream_new(&g->feeding, d, "copies", e);
    if (!rc) rc = event_new(&g->fed, d, e);
    if (!rc) rc = event_new(&g->used, d, e);
    if (!rc) rc = event_new(&g->decided, d, e);
    if (!rc && c->away.on) rc = away_run_init(&g->putting_away, g->feeding, e);
    if (!rc && c->world) comm_stream_on(c->world, g->stream);
    if (!rc) rc = buffer_new_host(&g->trace_ring, d, MEM_DATA, c->trace_bytes, e);
    return rc;
}

/* Done, or nothing at all. */
static int finish(struct engine **out, int rc)
{
    if (!rc) return OK;
    engine_free(*out);
    *out = NULL;
    return rc;
}

int engine_new_paper(struct engine **out, const struct engine_config *c, struct device *d, struct err *e)
{
    CHECK(d->counts_only, "paper on a device with bytes");
    int rc = begin(out, c, d, e);
    struct engine *g = *out;
    if (!rc && is_server(c)) return finish(out, new_shard(g, e));
    if (!rc) rc = build_schedule(g, e);
    struct array_row rows[STORE_MAX_ARRAYS];
    struct store_config sc = store_of(g, rows);
    if (!rc) rc = store_new_shared(&g->store, &g->params, d, &sc, e);
    return finish(out, rc);
}

/* Not a worker, whose servers do it. */
static bool steps(const struct engine *g) { return g->cfg.training && !g->cfg.n_servers; }

/* After all buffers: their addresses stay. On paper nothing would run them. */
static void write_updates(struct engine *g)
{
    if (g->dev->counts_only || !optim_lowers(&g->store)) return;
    g->update = xcalloc(to_size(g->store.units.n) + 1, sizeof *g->update);
    for (int u = 0; u < g->store.units.n; u++) {
        const struct unit *x = &g->store.units.unit[u];
        g->update[u] = optim_lower(&g->store, &g->cfg.optim, &g->kernels, x->first, x->n);
    }
    optim_bind(g->update_slot, &g->store, &g->words);
}

static int make_tools(struct engine *g, struct err *e)
{
    const struct adafactor_groups groups = {g->cfg.shard, g->cfg.expert, g->cfg.axis[AXIS_TP]};
    int rc = muon_new(&g->tools.muon, &g->store, &g->cfg.optim, g->stream, g->cfg.axis[AXIS_TP], e);
    return rc ? rc : adafactor_new(&g->tools.adafactor, &g->store, &g->cfg.optim, g->stream, &groups, e);
}

/* Who writes checkpoints beside the steps copies the state there first. */
static int make_snapshot(struct engine *g, struct err *e)
{
    if (!g->cfg.snapshots) return OK;
    snapshot_init(&g->snapshot, &g->store, SNAPSHOT_WRITTEN);
    return buffer_new_host(&g->snapshot_room, g->dev, MEM_HOST, g->snapshot.bytes, e);
}

int engine_new(struct engine **out, const struct engine_config *c, struct device *d, struct err *e)
{
    int rc = begin(out, c, d, e);
    struct engine *g = *out;
    if (!rc) rc = kernel_table_of(&g->kernels, d, c->kernels, c->threads, e);
    if (!rc && c->accumulate) rc = kernel_table_accumulate(&g->kernels, c->accumulate, e);
    if (!rc) kernel_on(g->stream, &g->kernels);
    if (!rc && is_server(c)) {
        rc = new_shard(g, e);
        return finish(out, rc ? rc : make_snapshot(g, e));
    }
    if (!rc) rc = build_schedule(g, e);
    if (!rc) rc = build_stages(g, e);
    if (!rc) rc = new_store(g, e);
    if (!rc && steps(g)) rc = make_tools(g, e);
    if (!rc && steps(g)) rc = staging_new(&g->tools.staging, &g->store, g->stream, e);
    if (!rc) rc = build_lists(g, e);
    if (!rc) rc = build_itineraries(g, e);
    if (!rc) rc = new_buffers(g, e);
    if (!rc) rc = reference_new(g, e);
    if (!rc) rc = make_snapshot(g, e);
    if (!rc) bind(g);
    if (!rc && steps(g)) write_updates(g);
    return finish(out, rc);
}

static void free_buffers(struct buffer *list, int n)
{
    for (int i = 0; i < n; i++) buffer_free(&list[i]);
    xfree(list);
}

void engine_free(struct engine *g)
{
    if (!g) return;
    free_buffers(g->act, g->n_act);
    free_buffers(g->away, g->n_away);
    free_buffers(g->wgrad, g->n_wgrad);
    free_buffers(g->crossing, g->n_crossing);
    xfree(g->act_at);
    xfree(g->wgrad_at);
    xfree(g->ticket);
    buffer_free(&g->scratch);
    buffer_free(&g->room);
    buffer_free(&g->data);
    buffer_free(&g->rope);
    buffer_free(&g->stat);
    buffer_free(&g->norm);
    buffer_free(&g->words);
    buffer_free(&g->known);
    buffer_free(&g->told);
    buffer_free(&g->staging);
    buffer_free(&g->ahead);
    buffer_free(&g->objects);
    buffer_free(&g->snapshot_room);
    reference_free(g);
    snapshot_free(&g->snapshot);
    buffer_free(&g->index);
    buffer_free(&g->balance);
    buffer_free(&g->trace_ring);
    xfree(g->load);
    xfree(g->order);
    xfree(g->marked);
    xfree(g->shown);
    recipes_free(g);
    telemetry_free(g);
    fallback_free(g);
    exponents_free(g);
    away_run_fini(&g->putting_away);
    for (int u = 0; g->update && u < g->store.units.n; u++) program_free(g->update[u]);
    xfree(g->update);
    muon_free(g->tools.muon);
    adafactor_free(g->tools.adafactor);
    staging_free(g->tools.staging);
    exchange_fini(&g->exchange);
    copies_fini(&g->copies);
    build_free(g);
    store_free(&g->store);
    param_table_free(&g->params);
    if (g->cfg.world && g->stream) comm_stream_off(g->cfg.world, g->stream);
    event_free(g->fed);
    event_free(g->used);
    event_free(g->decided);
    stream_free(g->feeding);
    stream_free(g->stream);
    xfree(g->written);
    xfree(g->slot);
    xfree(g);
}
