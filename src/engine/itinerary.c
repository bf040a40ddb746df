/* SPDX-License-Identifier: Apache-2.0 */
/* One walk over the rank's actions with a clock of list positions: take at first use, give back after last use, lowest
 * free index first (optimal for intervals that are met in order of their beginning). Receives are posted one action
 * ahead, so that data travels beside the action before; where the peer sends in another order than this rank needs,
 * everything it sends earlier is posted first and waits in its buffer.
 *
 * Sends are the one thing whose end depends on somebody else's speed: how many buffers they take turns in is decided
 * before (dry_run.c). Cost: O(actions of the rank).
 *
 * Rejected: an output buffer in every slab (no waiting at all, but one more activation per live microbatch), and
 * allocating when a message comes (the plan would not know how much).
 */
#include "engine/itinerary.h"

#include <string.h>

#include "base/mem.h"
#include "schedule/part_uses.h"

enum {
    SENDING = 1 << 24, /* while building: buffers for sending count from here */
};

struct inbox { /* what one peer sends here, in its order, named as this rank receives it */
    struct action *a;
    int64_t n, room, posted;
};

struct free_list { /* owner[i]: in use */
    bool *used;
    int n, room;
};

struct build {
    const struct schedule *s;
    int rank;
    const struct stage_use *use;
    int n_use;
    struct itinerary *t;
    int *here;                                /* [stages] which of the stages held here; -1: it is elsewhere */
    struct inbox *inbox;                      /* [ranks] */
    int64_t *place[2];                        /* [stage here, microbatch] -> index in the inbox of RECV_F, RECV_B */
    int *in, *din, *out, *dout, *act, *wgrad; /* [stage here, microbatch] -> buffer or slab, -1 */
    struct free_list keep, *acts, *wgrads;
    struct sending {
        bool filled, sent; /* written and not sent yet; sent at least once */
    } * sending;
    int n_send, room_send, next_send;
    const struct action_list *list;
    struct units_held *units; /* NULL: none are looked at */
};

static int64_t key(const struct build *b, int stage, int microbatch)
{
    CHECK(b->here[stage] >= 0, "stage %d is not on rank %d", stage, b->rank);
    return (int64_t)b->here[stage] * b->s->n_microbatches + microbatch;
}

static int take(struct free_list *f)
{
    int i = 0;
    while (i < f->n && f->used[i]) i++;
    GROW(f->used, i, f->room, 1);
    if (i == f->n) f->n++;
    f->used[i] = true;
    return i;
}

static void give(struct free_list *f, int *i)
{
    CHECK(*i >= 0 && *i < f->n && f->used[*i], "giving back %d of %d", *i, f->n);
    f->used[*i] = false;
    *i = -1;
}

static struct step *push(struct itinerary *t, enum step_kind kind, struct action a)
{
    GROW(t->step, t->n, t->room, 1);
    struct step *x = &t->step[t->n++];
    *x = (struct step){.kind = kind,
                       .a = a,
                       .stage = -1,
                       .act = -1,
                       .wgrad = -1,
                       .in = -1,
                       .din = -1,
                       .out = -1,
                       .dout = -1,
                       .buffer = -1,
                       .unit = -1,
                       .slot = -1};
    return x;
}

/* ---- messages ---- */
/* Whether rank r holds a stage beside one that is here: nobody else sends anything. */
static bool is_neighbour(const struct build *b, int r)
{
    for (int i = 0; i < b->n_use; i++)
        for (int next = b->use[i].stage - 1; next <= b->use[i].stage + 1; next += 2)
            if (next >= 0 && next < b->s->n_stages && schedule_has_stage(b->s, r, next)) return true;
    return false;
}

static void read_inboxes(struct build *b)
{
    const struct schedule *s = b->s;
    for (int r = 0; r < s->n_ranks; r++)
        for (int64_t i = 0, n = is_neighbour(b, r) ? s->rank[r].n : 0; i < n; i++) {
            struct action a = s->rank[r].a[i];
            bool forward = a.kind == ACTION_SEND_F;
            if ((!forward && a.kind != ACTION_SEND_B) || a.peer != b->rank) continue;
            a = action_of(forward ? ACTION_RECV_F : ACTION_RECV_B, forward ? a.stage + 1 : a.stage - 1, a.microbatch);
            a.peer = (uint16_t)r;
            struct inbox *x = &b->inbox[r];
            GROW(x->a, x->n, x->room, 1);
            b->place[!forward][key(b, a.stage, a.microbatch)] = x->n;
            x->a[x->n++] = a;
        }
}

static void post_until(struct build *b, struct action recv)
{
    struct inbox *x = &b->inbox[recv.peer];
    int64_t at = b->place[recv.kind == ACTION_RECV_B][key(b, recv.stage, recv.microbatch)];
    for (; x->posted <= at; x->posted++) {
        struct action a = x->a[x->posted];
        int *to = a.kind == ACTION_RECV_F ? b->in : b->dout, buffer = take(&b->keep);
        to[key(b, a.stage, a.microbatch)] = buffer;
        push(b->t, STEP_POST, a)->buffer = buffer;
    }
}

/* Another part of the same backward or forward. */
static bool goes_on(struct action a, struct action next)
{
    return a.part != ACTION_WHOLE && next.part != ACTION_WHOLE && a.stage == next.stage &&
           a.microbatch == next.microbatch && (a.kind == ACTION_F) == (next.kind == ACTION_F) &&
           (a.kind == ACTION_W) == (next.kind == ACTION_W);
}

/* Messages that the next computing action after position i waits for. */
static void post_ahead(struct build *b, const struct action_list *l, int64_t i)
{
    struct action a = l->a[i];
    for (i++; i < l->n && (!action_is_compute((enum action_kind)l->a[i].kind) || goes_on(a, l->a[i])); i++)
        if (l->a[i].kind == ACTION_RECV_F || l->a[i].kind == ACTION_RECV_B) post_until(b, l->a[i]);
}

/* A buffer to write and then send; its last message must have been taken. */
static int take_sending(struct build *b, struct action a)
{
    int i = 0;
    while (i < b->n_send && b->sending[(b->next_send + i) % b->n_send].filled) i++;
    i = i < b->n_send ? (b->next_send + i) % b->n_send : b->n_send; /* all wait for a late SEND: one more */
    if (i == b->n_send) {
        GROW(b->sending, b->n_send, b->room_send, 1);
        b->sending[b->n_send++] = (struct sending){0};
    }
    b->next_send = (i + 1) % b->n_send;
    b->sending[i].filled = true;
    if (b->sending[i].sent) push(b->t, STEP_CLEAR, a)->buffer = SENDING + i;
    return SENDING + i;
}

static void send(struct build *b, struct action a)
{
    int buffer = (a.kind == ACTION_SEND_F ? b->out : b->din)[key(b, a.stage, a.microbatch)];
    CHECK(buffer >= SENDING, "nothing to send");
    push(b->t, STEP_SEND, a)->buffer = buffer;
    b->sending[buffer - SENDING] = (struct sending){.filled = false, .sent = true};
}

/* ---- units ---- */
struct held {         /* a unit */
    int param, grad;  /* slots, -1 none */
    bool wanted;      /* gathered, or published, and not waited for yet */
    int64_t reduced;  /* times */
    int64_t last;     /* step of its last REDUCE */
    int stage, phase; /* that added to its gradient last; stage: which of those here */
};
struct temporary { /* a slot for a unit's gradient */
    bool open;     /* written, or still to be */
    int64_t until; /* else taken while no unit was completed after this part; -1: free */
};
struct units_held {
    const struct rank_parts *p;
    struct part_uses uses;
    struct held *unit;
    struct free_list params;
    struct temporary *grad;
    int n_grads, room_grads;
    int64_t part, window; /* parts computed so far; the window they are in */
};

static void units_init(struct units_held *h, const struct rank_parts *p)
{
    *h = (struct units_held){.p = p, .window = -1};
    part_uses_init(&h->uses, p);
    h->unit = xcalloc((size_t)p->n_units + 1, sizeof *h->unit);
    for (int u = 0; u < p->n_units; u++)
        h->unit[u] = (struct held){.param = -1, .grad = -1, .wanted = p->rule.arrive, .last = -1};
}

static void units_fini(struct units_held *h)
{
    part_uses_fini(&h->uses);
    xfree(h->unit);
    xfree(h->params.used);
    xfree(h->grad);
}

static void push_unit(struct build *b, enum step_kind kind, struct action a, int unit, int slot)
{
    struct step *x = push(b->t, kind, a);
    x->unit = unit;
    x->slot = slot;
}

static int take_temporary(struct units_held *h)
{
    int i = 0;
    while (i < h->n_grads && (h->grad[i].open || h->grad[i].until >= 0)) i++;
    GROW(h->grad, i, h->room_grads, 1);
    if (i == h->n_grads) h->n_grads++;
    h->grad[i] = (struct temporary){.open = true, .until = -1};
    return i;
}

/* What a part reads is there, what it writes has a place. */
static void part_needs(struct build *b, struct action a, const struct stage_parts *g, int phase, int part)
{
    struct units_held *h = b->units;
    int64_t window = h->p->rule.temporary ? parts_window(h->p, a, phase) : 0;
    for (int i = 0; i < h->n_grads && window != h->window; i++) h->grad[i].until = -1;
    h->window = window;
    int n;
    const int *use = part_uses_of(&h->uses, g, phase, part, &n);
    for (int writes = 0; writes < 2; writes++)
        for (int i = 0; i < n; i++) {
            const struct part_use *x = &g->use[use[i]];
            struct held *u = &h->unit[x->unit];
            if (x->writes != writes) continue;
            if (!writes && u->wanted) {
                push_unit(b, STEP_NEED, a, x->unit, u->param);
                u->wanted = false;
            } else if (writes && h->p->rule.temporary && u->grad < 0) {
                u->grad = take_temporary(h);
                push_unit(b, STEP_OPEN, a, x->unit, u->grad);
            }
            if (!writes) continue;
            u->stage = b->here[a.stage];
            u->phase = phase;
        }
    h->part++;
}

static void units_before(struct build *b, struct action a)
{
    if (!b->units) return;
    const struct stage_parts *g = parts_stage(b->units->p, a.stage);
    for (int second = 0; second < 2; second++) {
        int phase, first, last;
        if (!parts_range(g, a, second, &phase, &first, &last)) continue;
        for (int part = first; part <= last; part++) part_needs(b, a, g, phase, part);
    }
}

static void reduce_unit(struct build *b, struct action a)
{
    struct units_held *h = b->units;
    struct held *u = &h->unit[a.part];
    push_unit(b, STEP_REDUCE, a, a.part, u->grad);
    struct step *x = &b->t->step[b->t->n - 1];
    x->stage = u->stage;
    x->phase = u->phase;
    x->last = true;
    x->nth = u->reduced++;
    if (u->last >= 0) b->t->step[u->last].last = false;
    u->last = b->t->n - 1;
    for (int i = 0; i < h->n_grads; i++)
        if (!h->grad[i].open && h->grad[i].until >= 0 && h->grad[i].until < h->part) h->grad[i].until = -1;
    if (u->grad >= 0) h->grad[u->grad] = (struct temporary){.until = h->part};
    u->grad = -1;
}

static void units_move(struct build *b, struct action a)
{
    struct held *u = &b->units->unit[a.part];
    if (a.kind == ACTION_UPDATE || a.kind == ACTION_PUBLISH) {
        if (b->t->update < 0) b->t->update = b->t->n;
        push_unit(b, a.kind == ACTION_UPDATE ? STEP_UPDATE : STEP_PUBLISH, a, a.part, -1);
    } else if (a.kind == ACTION_REDUCE) {
        reduce_unit(b, a);
    } else if (a.kind == ACTION_GATHER) {
        u->param = take(&b->units->params);
        u->wanted = true;
        push_unit(b, STEP_GATHER, a, a.part, u->param);
    } else {
        push_unit(b, STEP_RELEASE, a, a.part, u->param);
        give(&b->units->params, &u->param);
    }
}

/* ---- computing ---- */
static const struct stage_use *use_of(const struct build *b, int stage)
{
    CHECK(b->here[stage] >= 0, "stage %d is not on rank %d", stage, b->rank);
    return &b->use[b->here[stage]];
}

/* The buffer for what crosses to a neighbouring stage: kept there when it is on this rank. */
static int crossing(struct build *b, struct action a, int to_stage, int *kept)
{
    if (to_stage < 0 || to_stage >= b->s->n_stages) return -1;
    if (schedule_rank_of(b->s, to_stage, a.microbatch) != b->rank) return take_sending(b, a);
    return kept[key(b, to_stage, a.microbatch)] = take(&b->keep);
}

/* Which phases an action computes the first and the last part of. Without parts every action is whole. */
struct ends {
    bool begins[PHASE_N], ends[PHASE_N];
    bool first, last; /* of all that the action names */
};
static struct ends ends_of(const struct build *b, struct action a)
{
    struct ends x = {.first = true, .last = true};
    const bool phases[PHASE_N] = {a.kind == ACTION_F, a.kind == ACTION_B || a.kind == ACTION_BW,
                                  a.kind == ACTION_W || a.kind == ACTION_BW};
    if (!b->units) {
        memcpy(x.begins, phases, sizeof phases);
        memcpy(x.ends, phases, sizeof phases);
        return x;
    }
    const struct stage_parts *g = parts_stage(b->units->p, a.stage);
    for (int second = 0; second < 2; second++) {
        int phase, first, last;
        if (!parts_range(g, a, second, &phase, &first, &last)) continue;
        x.begins[phase] = first == 0;
        x.ends[phase] = last == g->n[phase] - 1;
    }
    if (!g->n[PHASE_W]) { /* its work is in B */
        x.begins[PHASE_W] = x.begins[PHASE_B];
        x.ends[PHASE_W] = x.ends[PHASE_B];
    }
    x.first = x.begins[PHASE_F] || x.begins[PHASE_B] || (a.kind == ACTION_W && x.begins[PHASE_W]);
    x.last = x.ends[PHASE_F] || x.ends[PHASE_W] || (a.kind == ACTION_B && x.ends[PHASE_B]);
    return x;
}

static struct step *push_run(struct build *b, struct action a, const struct stage_use *u, const struct ends *x)
{
    int64_t k = key(b, a.stage, a.microbatch);
    struct step *y = push(b->t, STEP_RUN, a);
    y->stage = (int)(u - b->use);
    y->act = b->act[k];
    y->wgrad = b->wgrad[k];
    y->in = b->in[k];
    y->begins = x->first;
    y->ends = x->last;
    return y;
}

static void run_forward(struct build *b, struct action a, const struct stage_use *u)
{
    int64_t k = key(b, a.stage, a.microbatch);
    struct ends x = ends_of(b, a);
    if (x.begins[PHASE_F]) {
        b->out[k] = crossing(b, a, a.stage + 1, b->in);
        if (!b->s->forward_only) {
            b->act[k] = take(&b->acts[u->act_class]);
            b->wgrad[k] = take(&b->wgrads[u->wgrad_class]);
        }
    }
    units_before(b, a);
    push_run(b, a, u, &x)->out = b->out[k];
    if (x.ends[PHASE_F] && b->in[k] >= 0 && (b->s->forward_only || u->in_until == PHASE_F)) give(&b->keep, &b->in[k]);
}

static void run_backward(struct build *b, struct action a, const struct stage_use *u)
{
    int64_t k = key(b, a.stage, a.microbatch);
    struct ends x = ends_of(b, a);
    bool inputs = x.ends[PHASE_B], weights = x.ends[PHASE_W];
    if (x.begins[PHASE_B]) b->din[k] = crossing(b, a, a.stage - 1, b->dout);
    units_before(b, a);
    struct step *y = push_run(b, a, u, &x);
    y->dout = b->dout[k];
    y->din = a.kind != ACTION_W ? b->din[k] : -1;
    if (b->in[k] >= 0 && ((inputs && u->in_until == PHASE_B) || (weights && u->in_until == PHASE_W)))
        give(&b->keep, &b->in[k]);
    if (b->dout[k] >= 0 && ((inputs && u->dout_until == PHASE_B) || (weights && u->dout_until == PHASE_W)))
        give(&b->keep, &b->dout[k]);
    if (u->joint ? weights : inputs) give(&b->acts[u->act_class], &b->act[k]);
    if (weights) give(&b->wgrads[u->wgrad_class], &b->wgrad[k]);
}

static void walk(struct build *b)
{
    const struct action_list *l = b->list;
    for (int64_t i = 0; i < l->n; i++) {
        struct action a = l->a[i];
        switch (a.kind) {
        case ACTION_RECV_F:
        case ACTION_RECV_B:
            post_until(b, a);
            push(b->t, STEP_ARRIVE, a)->buffer =
                (a.kind == ACTION_RECV_F ? b->in : b->dout)[key(b, a.stage, a.microbatch)];
            break;
        case ACTION_SEND_F:
        case ACTION_SEND_B: send(b, a); break;
        case ACTION_F:
            if (ends_of(b, a).first) post_ahead(b, l, i);
            run_forward(b, a, use_of(b, a.stage));
            break;
        case ACTION_RECOMPUTE:
            if (!b->units) break; /* inside the backward that it serves */
            /* fall through */
        case ACTION_B:
        case ACTION_W:
        case ACTION_BW:
            if (ends_of(b, a).first) post_ahead(b, l, i);
            run_backward(b, a, use_of(b, a.stage));
            break;
        default:
            if (b->units) units_move(b, a);
        }
    }
}

static void number(int *buffer, int n_keep)
{
    if (*buffer >= SENDING) *buffer += n_keep - SENDING;
}

static int *sizes(struct free_list *f, int n)
{
    int *out = xcalloc((size_t)n + 1, sizeof *out);
    for (int i = 0; i < n; i++) {
        out[i] = f[i].n;
        xfree(f[i].used);
    }
    xfree(f);
    return out;
}

void itinerary_init(struct itinerary *t, const struct schedule *s, int rank, const struct action_list *l,
                    const struct rank_parts *p, const struct stage_use *use, int n_use, int n_send)
{
    size_t keys = to_size(n_use) * to_size(s->n_microbatches) + 1;
    struct build b =
        {.s = s, .rank = rank, .use = use, .n_use = n_use, .t = t, .n_send = n_send, .list = l ? l : &s->rank[rank]};
    struct units_held units;
    if (l) {
        units_init(&units, p);
        b.units = &units;
    }
    int **of[] = {&b.in, &b.din, &b.out, &b.dout, &b.act, &b.wgrad};
    *t = (struct itinerary){.update = -1};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        *of[i] = xmalloc(keys * sizeof(int));
        memset(*of[i], 0xff, keys * sizeof(int));
    }
    for (int i = 0; i < 2; i++) b.place[i] = xcalloc(keys, sizeof **b.place);
    b.here = xmalloc(to_size(s->n_stages) * sizeof *b.here);
    for (int i = 0; i < s->n_stages; i++) b.here[i] = -1;
    for (int i = 0; i < n_use; i++) b.here[use[i].stage] = i;
    b.inbox = xcalloc(to_size(s->n_ranks), sizeof *b.inbox);
    GROW(b.sending, 0, b.room_send, n_send);
    for (int i = 0; i < n_send; i++) b.sending[i] = (struct sending){0};
    for (int i = 0; i < n_use; i++) {
        if (use[i].act_class >= t->n_act) t->n_act = use[i].act_class + 1;
        if (use[i].wgrad_class >= t->n_wgrad) t->n_wgrad = use[i].wgrad_class + 1;
    }
    b.acts = xcalloc((size_t)t->n_act + 1, sizeof *b.acts);
    b.wgrads = xcalloc((size_t)t->n_wgrad + 1, sizeof *b.wgrads);
    read_inboxes(&b);
    walk(&b);
    if (t->update < 0) t->update = t->n;
    if (l) {
        t->n_param_slots = units.params.n;
        t->n_grad_slots = units.n_grads;
        units_fini(&units);
    }
    t->n_keep = b.keep.n;
    for (int i = 0; i < b.n_send; i++) t->n_send += b.sending[i].sent; /* taken in turn: the first ones */
    for (int64_t i = 0; i < t->n; i++) {
        int *field[] = {&t->step[i].in, &t->step[i].din, &t->step[i].out, &t->step[i].dout, &t->step[i].buffer};
        for (int k = 0; k < 5; k++) number(field[k], t->n_keep);
    }
    t->act = sizes(b.acts, t->n_act);
    t->wgrad = sizes(b.wgrads, t->n_wgrad);
    for (int r = 0; r < s->n_ranks; r++) xfree(b.inbox[r].a);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) xfree(*of[i]);
    for (int i = 0; i < 2; i++) xfree(b.place[i]);
    xfree(b.here);
    xfree(b.inbox);
    xfree(b.sending);
    xfree(b.keep.used);
}

void itinerary_fini(struct itinerary *t)
{
    xfree(t->step);
    xfree(t->act);
    xfree(t->wgrad);
    *t = (struct itinerary){0};
}

/* ---- telling ---- */
void itinerary_print(const struct itinerary *t, struct str *out)
{
    static const char *const name[] = {"post", "arrive",  "clear", "run",    "send",   "gather",
                                       "need", "release", "open",  "reduce", "update", "publish"};
    char text[32];
    for (int64_t i = 0; i < t->n; i++) {
        const struct step *x = &t->step[i];
        str_printf(out, "%5lld %-7s %-10s", (long long)i, name[x->kind], action_print(text, x->a));
        if (x->unit >= 0) str_printf(out, " unit %d", x->unit);
        if (x->slot >= 0) str_printf(out, " slot %d", x->slot);
        if (x->kind == STEP_REDUCE && x->last) str_puts(out, " last");
        if (x->buffer >= 0) str_printf(out, " buffer %d", x->buffer);
        if (x->act >= 0) str_printf(out, " slab %d", x->act);
        if (x->in >= 0) str_printf(out, " in %d", x->in);
        if (x->out >= 0) str_printf(out, " out %d", x->out);
        if (x->dout >= 0) str_printf(out, " dout %d", x->dout);
        if (x->din >= 0) str_printf(out, " din %d", x->din);
        str_putc(out, '\n');
    }
    str_printf(out, "buffers between stages: %d kept, %d for sending\n", t->n_keep, t->n_send);
}
