/* SPDX-License-Identifier: Apache-2.0 */
/* From a config to paper that can be carried out: generate or read the schedule, put in its messages, have it proved,
 * deal the layers, record and lower the stages that are here, and assign every buffer. Nothing here allocates on the
 * device or computes.
 *
 * A stage's weight gradients are a phase of their own only where the schedule puts them off (a W of that stage):
 * elsewhere they run inside the backward and nothing is kept for them.
 */
#include "engine/build.h"

#include "base/mem.h"
#include "kernel/by_place.h"

enum { SENDS = 4 }; /* buffers for sending that a rank likes to have: a slow neighbour does not stop it at once */

int build_pipe_rank(const struct engine *g) { return g->cfg.axis[AXIS_PP] ? comm_rank(g->cfg.axis[AXIS_PP]) : 0; }

/* ---- the schedule ---- */
static int from_text(struct schedule **s, const struct pipeline_config *c, int ranks, int m, struct err *e)
{
    int rc = schedule_parse(s, c->text, c->what, e);
    if (rc) return rc;
    if ((*s)->n_ranks != ranks || (*s)->n_microbatches != m || (*s)->forward_only)
        return err_set(e, ERR_REQUEST,
                       "%s: a %sschedule of %d ranks and %d microbatches; this run has parallel.pp = %d and %d "
                       "microbatches (batch.global over data-parallel ranks, batch.micro at a time); choose these as "
                       "the file has them",
                       c->what, (*s)->forward_only ? "forward-only " : "", (*s)->n_ranks, (*s)->n_microbatches, ranks,
                       m);
    rc = schedule_check(*s, NULL, e);
    return rc ? err_prefix(e, "%s", c->what) : OK;
}

int build_plan(struct schedule **s, const struct pipeline_config *c, int ranks, int m, struct err *e)
{
    *s = NULL;
    int rc = OK;
    if (c->round && (c->text || (!c->kind && ranks == 1)))
        return err_set(e, ERR_REQUEST, "rounds of %d microbatches are for schedule: interleaved; choose 0", c->round);
    if (c->text) {
        rc = from_text(s, c, ranks, m, e);
    } else if (!c->kind && ranks == 1) {
        rc = schedule_limits(1, 1, m, e);
        if (!rc) *s = schedule_new_onestage(m, false);
    } else {
        rc = schedule_generate(s, c->kind ? c->kind : "1f1b", ranks, m, c->chunks, c->round, e);
    }
    if (!rc && ranks > 1 && !schedule_has(*s, ACTION_RECV_F)) schedule_add_comm(*s);
    return rc;
}

bool build_in_order(const struct schedule *s)
{
    struct schedule_peak *peak = xcalloc(to_size(s->n_ranks), sizeof *peak);
    bool fits = !schedule_check(s, peak, NULL);
    for (int r = 0; fits && r < s->n_ranks; r++) {
        int stages = 0;
        for (int i = 0; i < s->n_stages; i++) stages += schedule_has_stage(s, r, i);
        fits = stages == 1 && (peak[r].both == 1 || s->n_microbatches == 1);
    }
    xfree(peak);
    return fits;
}

/* Parameters are on the ranks of the pipeline whose stages use them. */
static void hold_params(struct engine *g)
{
    if (g->when->n_ranks == 1) return;
    int *ranks = xcalloc(to_size(g->when->n_ranks), sizeof *ranks);
    for (int i = 0; i < g->params.n; i++) {
        struct layout *l = &g->params.p[i].layout;
        *l = layout_hold_on(*l, ranks, build_holders(g, i, ranks));
    }
    param_place(&g->params, g->params.rank);
    xfree(ranks);
}

int build_schedule(struct engine *g, struct err *e)
{
    const struct pipeline_config *c = &g->cfg.pipeline;
    struct comm *pipe = g->cfg.axis[AXIS_PP];
    int rc = build_plan(&g->when, c, pipe ? comm_size(pipe) : 1, to_int(g->cfg.n_microbatches), e);
    if (rc) return rc;
    struct schedule_peak *peak = xcalloc(to_size(g->when->n_ranks), sizeof *peak);
    rc = schedule_check(g->when, peak, e);
    g->peak = peak[build_pipe_rank(g)];
    xfree(peak);
    if (rc) return rc;
    g->when_eval = schedule_new_forward(g->when);
    schedule_add_comm(g->when_eval);
    g->parts = xcalloc(to_size(g->when->n_stages), sizeof *g->parts);
    rc = stages_split(g->parts, g->when->n_stages, &g->cfg.model, g->cfg.seq, c->layers, c->n_layers, e);
    if (!rc) hold_params(g);
    return rc;
}

/* ---- stages ---- */
static bool puts_off_weights(const struct schedule *s, int rank, int stage)
{
    for (int64_t i = 0; i < s->rank[rank].n; i++)
        if (s->rank[rank].a[i].kind == ACTION_W && s->rank[rank].a[i].stage == stage) return true;
    return false;
}

bool build_puts_off(const struct engine *g)
{
    const struct action_list *l = &g->when->rank[build_pipe_rank(g)];
    for (int64_t i = 0; i < l->n; i++)
        if (l->a[i].kind == ACTION_W) return true;
    return false;
}

/* Documents stand in another order: nothing on the tape may mind. The config refuses what does, by name
 * (config_layout.c); this is what it is held to. */
static void check_places(const struct tape *t)
{
    for (int i = 0; i < t->n_nodes; i++) {
        const struct node *d = &t->nodes[i];
        bool told = d->n_in > ATTENTION_TOKEN && d->in[ATTENTION_TOKEN] >= 0;
        const char *why = d->retype ? NULL : op_by_place(d->op, &d->at, told);
        CHECK(!why, "documents are in another order, and '%s' goes by places: %s", tape_tensor(t, d->out[0])->name,
              why);
    }
}

static int new_stage(struct engine *g, struct engine_stage *s, struct err *e)
{
    struct model_shape shape = {
        .mode = MODEL_TRAIN,
        .dtype = g->cfg.dtype,
        .batch = g->cfg.micro,
        .seq = g->cfg.seq,
        .loss_rows = g->cfg.loss_rows,
        .reordered = g->cfg.documents_in_order,
        .recompute = g->cfg.recompute,
        .experts = g->cfg.experts,
        .stage = &s->part,
    };
    struct lower_options o = {.training = true,
                              .split_w = puts_off_weights(g->when, build_pipe_rank(g), s->index),
                              .tied = (g->cfg.model.tie_embeddings || g->cfg.model.mtp.depth) &&
                                      schedule_has_stage(g->when, build_pipe_rank(g), g->when->n_stages - 1),
                              .collective_scratch = par_run_scratch,
                              .pieces = g->cfg.pieces,
                              .away = g->cfg.away,
                              .n_act = g->peak.activations,
                              .n_wgrad = g->peak.both};
    s->tape = tape_new();
    model_record(s->tape, &g->cfg.model, &g->params, &g->cfg.par, &shape);
    int rc = tape_status(s->tape, e);
    if (!rc && g->cfg.documents_in_order) check_places(s->tape);
    if (!rc) rc = recipes_rule(g, s->tape, &o.recipe, e);
    if (!rc && g->cfg.training) rc = tape_lower(&s->train, s->tape, &g->kernels, o, e);
    o.training = o.split_w = false;
    if (!rc) rc = tape_lower(&s->eval, s->tape, &g->kernels, o, e);
    return rc;
}

/* Slabs of one size are shared by the stages that want it; a class is named after the first of them. */
static int class_of(const struct engine *g, int stage, enum home h)
{
    for (int i = 0; i < stage && g->cfg.training; i++) {
        const size_t *a = g->stage[i].train->bytes, *b = g->stage[stage].train->bytes;
        if (a[h] == b[h] && (h != HOME_ACT || a[HOME_AWAY] == b[HOME_AWAY])) return i;
    }
    return stage;
}

int build_stages(struct engine *g, struct err *e)
{
    int *held = xcalloc(to_size(g->when->n_stages) + 1, sizeof *held), rc = OK;
    int n = stages_on(g->when, build_pipe_rank(g), held);
    g->stage = xcalloc((size_t)n + 1, sizeof *g->stage);
    for (int i = 0; !rc && i < n; i++) {
        struct engine_stage *s = &g->stage[g->n_stages++];
        s->index = held[i];
        s->part = g->parts[held[i]];
        rc = new_stage(g, s, e);
        if (rc) break;
        s->act_class = class_of(g, i, HOME_ACT);
        s->wgrad_class = class_of(g, i, HOME_WGRAD);
    }
    xfree(held);
    return rc;
}

/* ---- all that this rank does ---- */
static int list_of(struct engine *g, struct engine_list *x, const struct schedule *s, bool training, struct err *e)
{
    const struct units *u = &g->store.units;
    bool travels = store_param_travels(&g->store), some = !travels && store_packs(&g->store),
         publishes = store_param_is_whole(&g->store) && !store_state_is_whole(&g->store);
    struct part_rule r = {.gather = travels || some,
                          .some = some,
                          .ahead = some ? -1 : fetch_ahead(&g->exchange),
                          .arrive = publishes && !travels};
    if (training) {
        r.reduce = exchange_is_active(&g->exchange);
        r.temporary = store_grad_is_temporary(&g->store);
        r.by_phase = g->peak.both > 1;
        for (int i = 0; i < g->n_stages; i++)
            r.by_phase |= puts_off_weights(g->when, build_pipe_rank(g), g->stage[i].index);
        r.every = g->exchange.exact ? g->exchange.tree.run : 0;
        r.update = !g->cfg.n_servers;
        r.publish = r.update && publishes;
    }
    const struct cut **cuts = xcalloc((size_t)g->n_stages + 1, sizeof *cuts);
    for (int i = 0; i < g->n_stages; i++) {
        struct engine_stage *at = &g->stage[i];
        struct cut *c = training ? &at->cut : &at->cut_eval;
        cut_init(c, at->index, training ? at->train : at->eval,
                 training && puts_off_weights(g->when, build_pipe_rank(g), at->index), u, &r);
        cuts[i] = c;
    }
    cut_rank(&x->parts, cuts, g->n_stages, u, &r);
    xfree(cuts);
    int rc = schedule_list(&x->list, s, build_pipe_rank(g), &x->parts, e);
    if (!rc) rc = schedule_check_list(&x->list, s, build_pipe_rank(g), &x->parts, e);
    return rc && training && g->cfg.pipeline.text ? err_prefix(e, "%s", g->cfg.pipeline.what) : rc;
}

int build_lists(struct engine *g, struct err *e)
{
    int rc = g->cfg.training ? list_of(g, &g->all, g->when, true, e) : OK;
    return rc ? rc : list_of(g, &g->all_eval, g->when_eval, false, e);
}

static void free_list(struct engine_list *x)
{
    xfree(x->parts.stage);
    xfree(x->parts.unit_name);
    xfree(x->parts.unit_stage);
    xfree(x->list.a);
}

/* ---- itineraries ---- */
static int itinerary(struct engine *g, struct itinerary *t, const struct schedule *s, const struct engine_list *all,
                     const struct stage_use *use, struct err *e)
{
    int sends = s->n_ranks > 1 ? itinerary_choose_sends(s, SENDS) : SENDS;
    if (!sends)
        return err_set(e, ERR_REQUEST,
                       "schedule %s has too many messages under way at once; put receives nearer to sends", s->kind);
    itinerary_init(t, s, build_pipe_rank(g), &all->list, &all->parts, use, g->n_stages, sends);
    return OK;
}

int build_itineraries(struct engine *g, struct err *e)
{
    struct stage_use *use = xcalloc((size_t)g->n_stages + 1, sizeof *use);
    for (int i = 0; i < g->n_stages; i++) {
        const struct engine_stage *s = &g->stage[i];
        use[i] = (struct stage_use){.stage = s->index,
                                    .act_class = s->act_class,
                                    .wgrad_class = s->wgrad_class,
                                    .joint = s->train && s->train->joint};
        if (!s->train) continue;
        use[i].in_until = program_slot_last(s->train, SLOT_STAGE_IN);
        use[i].dout_until = program_slot_last(s->train, SLOT_STAGE_DOUT);
    }
    int rc = g->cfg.training ? itinerary(g, &g->go, g->when, &g->all, use, e) : OK;
    if (!rc) rc = itinerary(g, &g->go_eval, g->when_eval, &g->all_eval, use, e);
    xfree(use);
    return rc;
}

/* A layer's parameters are in the same hands, and there may be many of them (experts): asked once per layer. */
int build_holders(void *ctx, int param, int *out)
{
    struct engine *g = ctx;
    struct holders *h = &g->holders;
    const struct param *p = &g->params.p[param];
    if (!h->rank) h->rank = xcalloc(to_size(g->when->n_ranks), sizeof *h->rank);
    if (!h->asked || p->layer < 0 || p->layer != h->layer)
        h->n = stages_holders(g->when, g->parts, &g->cfg.model, p, h->rank);
    h->asked = true;
    h->layer = p->layer;
    for (int i = 0; i < h->n; i++) out[i] = h->rank[i];
    return h->n;
}

void build_free(struct engine *g)
{
    for (int i = 0; i < g->n_stages; i++) {
        struct engine_stage *s = &g->stage[i];
        cut_fini(&s->cut);
        cut_fini(&s->cut_eval);
        program_free(s->train);
        program_free(s->eval);
        tape_free(s->tape);
    }
    free_list(&g->all);
    free_list(&g->all_eval);
    xfree(g->stage);
    xfree(g->parts);
    xfree(g->holders.rank);
    itinerary_fini(&g->go);
    itinerary_fini(&g->go_eval);
    schedule_free(g->when);
    schedule_free(g->when_eval);
}
