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

void executor_run(struct engine *g, const struct schedule *s, const struct program *p, const struct step_info *info,
                  executor_look_fn *look, void *ctx)
{
    int owner[SCHEDULE_MAX_RANKS];
    struct pool pool = {owner, g->n_slabs};
    for (int i = 0; i < g->n_slabs; i++) owner[i] = -1;
    bool first_done = false; /* the first microbatch writes gradients, the others add */
    int first = -1;
    for (int64_t k = 0; k < s->rank[0].n; k++) {
        struct action a = s->rank[0].a[k];
        char text[32];
        thread_name_set("s%lld %s", (long long)info->step, action_print(text, a));
        if (!action_is_compute((enum action_kind)a.kind)) continue; /* collectives of axes of size 1 */
        if (a.kind == ACTION_F && !first_done) {
            first = a.microbatch;
            first_done = true;
        }
        bind_microbatch(g, a.microbatch);
        int slab = a.kind == ACTION_F ? pool_take(&pool, a.microbatch) : pool_of(&pool, a.microbatch);
        CHECK(slab >= 0, "microbatch %d has no slab", a.microbatch);
        struct step_info here = *info;
        here.first_token = (uint64_t)a.microbatch * (uint64_t)(g->cfg.micro * g->cfg.seq);
        struct program_args args = {
            .kernels = &g->kernels,
            .team = g->dev->team,
            .step = &here,
            .slot = g->slot,
            .act = g->act[slab].p,
            .wgrad = g->wgrad[slab].p,
            .scratch = g->scratch.p,
            .first_microbatch = a.microbatch == first,
            .profile = g->profile,
            .after = look,
            .after_ctx = ctx,
        };
        if (a.kind == ACTION_F) program_run(p, PHASE_F, &args);
        if (a.kind == ACTION_B || a.kind == ACTION_BW) program_run(p, PHASE_B, &args);
        if (a.kind == ACTION_W || a.kind == ACTION_BW) program_run(p, PHASE_W, &args);
        if (a.kind == ACTION_W || a.kind == ACTION_BW || s->forward_only) owner[slab] = -1;
    }
    thread_name_set("s%lld", (long long)info->step);
}
