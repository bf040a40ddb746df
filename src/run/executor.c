/* One action after another. A slab is taken by a microbatch's F and given back by its last backward action; the pool
 * has as many as the schedule's checker found alive at once, so taking never fails. The thread's name carries step
 * and action: a CHECK that fires, gdb and top all show it. */
#include "run/executor.h"

struct pool {
    int *owner; /* slab -> microbatch, -1 free */
    int n;
};

static int pool_of(const struct pool *p, int microbatch)
{
    for (int i = 0; i < p->n; i++)
        if (p->owner[i] == microbatch) return i;
    return -1;
}

static int pool_take(struct pool *p, int microbatch)
{
    int i = pool_of(p, -1);
    CHECK(i >= 0, "no slab is free for microbatch %d of %d slabs", microbatch, p->n);
    p->owner[i] = microbatch;
    return i;
}

/* A microbatch is a view of the batch: no copy. */
static void bind_microbatch(struct engine *g, int microbatch)
{
    int64_t tokens = g->cfg.micro * g->cfg.seq;
    size_t one = to_size(tokens) * sizeof(int32_t), field = one * to_size(g->cfg.n_microbatches);
    static const int slots[] = {SLOT_TOKENS, SLOT_TARGETS, SLOT_POSITIONS, SLOT_DOCS};
    for (int f = 0; f < 4; f++) {
        bool there = g->data.p && g->data.bytes > (size_t)f * field;
        g->slot[slots[f]] = there ? (char *)g->data.p + (size_t)f * field + (size_t)microbatch * one : NULL;
    }
}

/* ---- flow: units come before their instructions and leave after them ---- */
struct stream_of_units {
    struct engine *g;
    const struct flow *f;
    int next;          /* event */
    bool last;         /* the last action of this kind in the step */
};

static void bind_unit(struct engine *g, int unit, int slot, bool grad)
{
    const struct unit *u = &g->store.units.unit[unit];
    for (int i = u->first; i < u->first + u->n; i++)
        if (grad) g->slot[slot_grad(i)] = exchange_grad_ptr(&g->exchange, i, slot);
        else g->slot[slot_param(i)] = exchange_param_ptr(&g->exchange, i, slot);
}

static void before_instr(void *ctx, int instr)
{
    struct stream_of_units *x = ctx;
    for (; x->next < x->f->n; x->next++) {
        const struct flow_event *v = &x->f->event[x->next];
        if (v->instr != instr || v->kind >= FLOW_RELEASE) return;
        switch (v->kind) {
        case FLOW_GATHER:
            exchange_gather(&x->g->exchange, v->unit, v->slot);
            break;
        case FLOW_NEED:
            exchange_gather_wait(&x->g->exchange, v->unit);
            bind_unit(x->g, v->unit, v->slot, false);
            break;
        default:
            exchange_slot_free(&x->g->exchange, v->slot);
            bind_unit(x->g, v->unit, v->slot, true);
        }
    }
}

static void after_instr(void *ctx, int instr)
{
    struct stream_of_units *x = ctx;
    for (; x->next < x->f->n && x->f->event[x->next].instr == instr; x->next++) {
        const struct flow_event *v = &x->f->event[x->next];
        bool whole = v->slot < 0; /* whole gradients gather all microbatches; temporary ones are sent each time */
        if (v->kind == FLOW_REDUCE && (x->last || !whole)) exchange_reduce(&x->g->exchange, v->unit, v->slot);
    }
}

static void run_phase(struct stream_of_units *x, const struct program *p, enum tape_phase phase,
                      const struct program_args *a)
{
    x->next = 0; /* phases may come in any order of microbatches: find this one's first event */
    while (x->next < x->f->n && x->f->event[x->next].instr < p->begin[phase]) x->next++;
    program_run(p, phase, a);
}

void executor_run(struct engine *g, const struct schedule *s, const struct program *p, const struct flow *f,
                  const struct step_info *info, executor_look_fn *look, void *ctx)
{
    int owner[SCHEDULE_MAX_RANKS];
    struct pool pool = {owner, g->n_slabs};
    for (int i = 0; i < g->n_slabs; i++) owner[i] = -1;
    int first = -1; /* the first microbatch writes gradients, the others add */
    int n_left[ACTION_N] = {0};
    for (int64_t k = 0; k < s->rank[0].n; k++) n_left[s->rank[0].a[k].kind]++;
    bool temporary = !store_grad_is_whole(&g->store), flows = exchange_is_needed(&g->exchange);
    struct stream_of_units units = {.g = g, .f = f};
    for (int64_t k = 0; k < s->rank[0].n; k++) {
        struct action a = s->rank[0].a[k];
        char text[32];
        if (!action_is_compute((enum action_kind)a.kind)) continue; /* per stage; the flow does the same per unit */
        thread_name_set("r%d s%lld %s", g->cfg.rank, (long long)info->step, action_print(text, a));
        if (a.kind == ACTION_F && first < 0) first = a.microbatch;
        units.last = --n_left[a.kind] == 0;
        bind_microbatch(g, a.microbatch);
        int slab = a.kind == ACTION_F ? pool_take(&pool, a.microbatch) : pool_of(&pool, a.microbatch);
        CHECK(slab >= 0, "microbatch %d has no slab", a.microbatch);
        struct step_info here = *info;
        here.first_token += (uint64_t)a.microbatch * (uint64_t)(g->cfg.micro * g->cfg.seq);
        struct program_args args = {
            .kernels = &g->kernels,
            .team = g->dev->team,
            .step = &here,
            .slot = g->slot,
            .act = g->act[slab].p,
            .wgrad = g->wgrad[slab].p,
            .scratch = g->scratch.p,
            .first_microbatch = temporary || a.microbatch == first,
            .profile = g->profile,
            .before = flows ? before_instr : NULL,
            .after = flows ? after_instr : NULL,
            .flow_ctx = &units,
            .look = look,
            .look_ctx = ctx,
        };
        if (a.kind == ACTION_F) run_phase(&units, p, PHASE_F, &args);
        if (a.kind == ACTION_B || a.kind == ACTION_BW) run_phase(&units, p, PHASE_B, &args);
        if (a.kind == ACTION_W || a.kind == ACTION_BW) run_phase(&units, p, PHASE_W, &args);
        if (a.kind == ACTION_W || a.kind == ACTION_BW || s->forward_only) owner[slab] = -1;
    }
    thread_name_set("r%d s%lld", g->cfg.rank, (long long)info->step);
}
