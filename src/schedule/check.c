/* SPDX-License-Identifier: Apache-2.0 */
/* The proof that a schedule can run.
 *
 * Three passes. (1) Every action by itself: in range, on its rank, with the right peer, not issued twice. (2) Every
 * (stage, microbatch): nothing is missing. (3) A dry run: each rank issues its next action as soon as what it needs
 * is done; when nobody can move, the lists either ended or wait for each other, and the circle is printed. Because
 * every action waits for a fixed set of others and nothing is ever taken back, one dry run decides for all speeds of
 * ranks and links. Sends are taken to be buffered and matched by key, as the executor posts them.
 *
 * Cost: O(actions) memory and O(actions + sweeps x ranks) time.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "schedule/parts.h"

/* All that is known while checking. Keys are (kind, stage, microbatch); a BW sets B and W. */
struct check {
    const struct schedule *s;
    bool has_comm;
    uint8_t *issued; /* [ACTION_N][stages][microbatches]: stands in some list */
    uint8_t *done;   /* the same shape: dry run has passed it */
    int64_t *pc;     /* [ranks] next index */
    bool has_gather;
    uint8_t *whole; /* [ranks][stages] parameters: enum whole */
    uint8_t *grads; /* [ranks][stages] weight gradients: enum grads */
    bool has_reduce;
    uint8_t *stepped;                 /* [ranks][stages] parameters: enum stepped */
    bool *updates;                    /* [ranks] an UPDATE was met */
    struct schedule_peak *now, *peak; /* [ranks] */
};

enum whole { PARAMS_SHARDED, PARAMS_WHOLE };
enum grads { GRADS_NONE, GRADS_OWN, GRADS_REDUCED };
enum stepped { STEPPED_NOT, STEPPED_HERE, STEPPED_EVERYWHERE };

static uint8_t *key(const struct check *c, uint8_t *set, int kind, int stage, int microbatch)
{
    int64_t i = ((int64_t)kind * c->s->n_stages + stage) * c->s->n_microbatches + microbatch;
    return &set[i];
}

/* Puts a into the set, a BW as its two halves; false: some of it was there. */
static bool mark(const struct check *c, uint8_t *set, struct action a)
{
    int first = a.kind == ACTION_BW ? ACTION_B : a.kind, last = a.kind == ACTION_BW ? ACTION_W : a.kind;
    bool is_new = true;
    for (int k = first; k <= last; k++) {
        uint8_t *here = key(c, set, k, a.stage, a.microbatch);
        is_new &= !*here;
        *here = 1;
    }
    return is_new;
}

static int fail(struct err *e, int rank, int64_t index, struct action a, const char *why)
{
    char name[32];
    return err_set(e, ERR_REQUEST, "rank %d, action %lld (%s): %s", rank, (long long)index, action_print(name, a), why);
}

/* The rank at the other end of a message, or -1 where there is nobody. */
static int other_end(const struct schedule *s, struct action a)
{
    int step = a.kind == ACTION_RECV_F || a.kind == ACTION_SEND_B ? -1 : 1, stage = a.stage + step;
    return stage < 0 || stage >= s->n_stages ? -1 : schedule_rank_of(s, stage, a.microbatch);
}

/* What is wrong with this action by itself; NULL: nothing. Marks it as issued. */
static const char *check_alone(struct check *c, int rank, struct action a)
{
    const struct schedule *s = c->s;
    if (a.kind >= ACTION_N) return "no such kind of action";
    if (a.stage >= s->n_stages) return "the pipeline has no such stage";
    if (a.microbatch >= s->n_microbatches) return "the step has no such microbatch";
    if (action_has_microbatch((enum action_kind)a.kind)) {
        if (schedule_rank_of(s, a.stage, a.microbatch) != rank) return "this stage is placed on another rank";
    } else if (!schedule_has_stage(s, rank, a.stage)) {
        return "this stage is placed on another rank";
    }
    if (s->forward_only && a.kind != ACTION_F && a.kind != ACTION_RECV_F && a.kind != ACTION_SEND_F &&
        a.kind != ACTION_GATHER && a.kind != ACTION_RELEASE)
        return "a forward-only schedule has no such action";
    if (action_has_peer((enum action_kind)a.kind)) {
        int other = other_end(s, a);
        if (other < 0) return "the pipeline ends here: there is nobody to talk to";
        if (other == rank) return "both ends are on this rank: no message is needed";
        if (other != a.peer) return "the other end is on another rank than @ says";
    }
    if (!action_has_microbatch((enum action_kind)a.kind)) return NULL; /* may come again; the dry run looks closer */
    return mark(c, c->issued, a) ? NULL : "issued twice";
}

static int check_nothing_missing(struct check *c, struct err *e)
{
    const struct schedule *s = c->s;
    for (int stage = 0; stage < s->n_stages; stage++)
        for (int m = 0; m < s->n_microbatches; m++) {
            int here = schedule_rank_of(s, stage, m);
            bool from_before = c->has_comm && stage > 0 && schedule_rank_of(s, stage - 1, m) != here;
            bool from_after = c->has_comm && stage + 1 < s->n_stages && schedule_rank_of(s, stage + 1, m) != here;
            const bool wanted[ACTION_N] = {
                [ACTION_F] = true,
                [ACTION_B] = !s->forward_only,
                [ACTION_W] = !s->forward_only,
                [ACTION_RECV_F] = from_before,
                [ACTION_SEND_B] = from_before && !s->forward_only,
                [ACTION_SEND_F] = from_after,
                [ACTION_RECV_B] = from_after && !s->forward_only,
            };
            for (int k = 0; k < ACTION_N; k++)
                if (wanted[k] && !*key(c, c->issued, k, stage, m))
                    return err_set(e, ERR_REQUEST, "rank %d never issues %d%s%d", here, stage,
                                   action_name((enum action_kind)k), m);
        }
    return OK;
}

/* The first thing a still waits for; false: it can start. */
static bool waits_for(const struct check *c, struct action a, struct action *what)
{
    struct action needed[2];
    bool crosses[2];
    int n = schedule_needs(c->s, a, c->has_comm, needed, crosses);
    for (int i = 0; i < n; i++)
        if (!*key(c, c->done, needed[i].kind, needed[i].stage, needed[i].microbatch)) {
            *what = needed[i];
            return true;
        }
    return false;
}

/* Gradients may be reduced microbatch by microbatch: then another REDUCE comes. */
static bool reduced_later(const struct schedule *s, int rank, int64_t i, int stage)
{
    for (; i < s->rank[rank].n; i++)
        if (s->rank[rank].a[i].kind == ACTION_REDUCE && s->rank[rank].a[i].stage == stage) return true;
    return false;
}

static const char *check_update(struct check *c, int rank, struct action a)
{
    int64_t here = (int64_t)rank * c->s->n_stages + a.stage;
    if (a.kind == ACTION_PUBLISH) {
        if (c->stepped[here] == STEPPED_NOT) return "nothing to publish: UPDATE comes first";
        if (c->stepped[here] == STEPPED_EVERYWHERE) return "published twice";
        c->stepped[here] = STEPPED_EVERYWHERE;
        return NULL;
    }
    if (c->stepped[here] != STEPPED_NOT) return "updated twice";
    if (c->has_reduce && c->grads[here] == GRADS_OWN)
        return "the stage's gradient is not reduced yet: REDUCE comes first";
    c->stepped[here] = STEPPED_HERE;
    c->updates[rank] = true;
    return NULL;
}

/* Rules that hold along one rank's own list. Returns what is broken, or NULL. */
static const char *check_in_place(struct check *c, int rank, struct action a)
{
    const struct schedule *s = c->s;
    int64_t here = (int64_t)rank * s->n_stages + a.stage;
    if (a.kind == ACTION_UPDATE || a.kind == ACTION_PUBLISH) return check_update(c, rank, a);
    if (c->updates[rank]) return "comes after an UPDATE: the norm of all gradients lies between";
    switch (a.kind) {
    case ACTION_GATHER:
        if (c->whole[here] == PARAMS_WHOLE) return "already gathered: RELEASE comes first";
        c->whole[here] = PARAMS_WHOLE;
        return NULL;
    case ACTION_RELEASE:
        if (c->whole[here] != PARAMS_WHOLE) return "nothing to release: GATHER comes first";
        c->whole[here] = PARAMS_SHARDED;
        return NULL;
    case ACTION_REDUCE:
        if (c->grads[here] == GRADS_REDUCED) return "reduced twice";
        if (c->grads[here] == GRADS_NONE) return "no weight gradient of this stage was made before";
        c->grads[here] = GRADS_REDUCED;
        return NULL;
    case ACTION_W:
    case ACTION_BW:
        if (c->grads[here] == GRADS_REDUCED && !reduced_later(s, rank, c->pc[rank], a.stage))
            return "its stage was already reduced: this gradient would be lost";
        c->grads[here] = GRADS_OWN;
        break;
    case ACTION_RECOMPUTE:
        if (*key(c, c->done, ACTION_B, a.stage, a.microbatch)) return "comes after the backward it serves";
        break;
    default: break;
    }
    bool reads = action_is_compute((enum action_kind)a.kind) &&
                 a.kind != ACTION_W; /* weight gradients are made of inputs and gradients */
    if (c->has_gather && reads && c->whole[here] != PARAMS_WHOLE)
        return "the stage's parameters are not whole: GATHER comes first";
    if ((a.kind == ACTION_B || a.kind == ACTION_BW) && *key(c, c->issued, ACTION_RECOMPUTE, a.stage, a.microbatch) &&
        !*key(c, c->done, ACTION_RECOMPUTE, a.stage, a.microbatch))
        return "RECOMPUTE comes first";
    return NULL;
}

static void count_memory(struct check *c, int rank, struct action a)
{
    struct schedule_peak *now = &c->now[rank], *peak = &c->peak[rank];
    switch (a.kind) {
    case ACTION_GATHER:
        if (++now->whole > peak->whole) peak->whole = now->whole;
        return;
    case ACTION_RELEASE: now->whole--; return;
    case ACTION_F: now->activations++; break;
    case ACTION_BW: now->activations--; break;
    case ACTION_B:
        now->activations--;
        now->wgrads++;
        break;
    case ACTION_W: now->wgrads--; break;
    default: return;
    }
    now->both = now->activations + now->wgrads;
    if (now->activations > peak->activations) peak->activations = now->activations;
    if (now->wgrads > peak->wgrads) peak->wgrads = now->wgrads;
    if (now->both > peak->both) peak->both = now->both;
    if (c->s->forward_only) now->activations--;
}

/* Rank r cannot go on: follow who waits for whom until a rank comes up again. */
static int stuck(const struct check *c, int r, struct err *e)
{
    const struct schedule *s = c->s;
    struct str t = {0};
    uint8_t *seen = xcalloc(to_size(s->n_ranks), 1);
    for (int hops = 0; hops < 8; hops++) {
        const struct action_list *l = &s->rank[r];
        char name[32];
        struct action what;
        struct action a = l->a[c->pc[r]];
        if (!waits_for(c, a, &what)) break; /* cannot happen: the dry run would have moved it */
        int other = schedule_rank_of(s, what.stage, what.microbatch);
        str_printf(&t, "%srank %d, action %lld (%s): waits for %d%s%d", hops ? "; " : "", r, (long long)c->pc[r],
                   action_print(name, a), what.stage, action_name((enum action_kind)what.kind), what.microbatch);
        if (other == r) {
            str_printf(&t, ", which stands later in its own list");
            break;
        }
        str_printf(&t, " of rank %d", other);
        seen[r] = 1;
        if (seen[other]) {
            str_printf(&t, ": a circle");
            break;
        }
        r = other;
    }
    int rc = err_set(e, ERR_REQUEST, "%s", str_text(&t));
    str_free(&t);
    xfree(seen);
    return rc;
}

static int dry_run(struct check *c, struct err *e)
{
    const struct schedule *s = c->s;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->n_ranks; r++)
            for (struct action what; c->pc[r] < s->rank[r].n; c->pc[r]++, moved = true) {
                struct action a = s->rank[r].a[c->pc[r]];
                if (waits_for(c, a, &what)) break;
                const char *why = check_in_place(c, r, a);
                if (why) return fail(e, r, c->pc[r], a, why);
                count_memory(c, r, a);
                mark(c, c->done, a);
            }
    }
    for (int r = 0; r < s->n_ranks; r++)
        if (c->pc[r] < s->rank[r].n) return stuck(c, r, e);
    return OK;
}

int schedule_check(const struct schedule *s, struct schedule_peak *peak, struct err *e)
{
    if (schedule_has_parts(
            s)) { /* what stands inside a stage is checked by who knows the model (schedule_check_list) */
        struct schedule *whole = schedule_join(s);
        int bad = schedule_check(whole, peak, e);
        schedule_free(whole);
        return bad;
    }
    size_t keys = (size_t)ACTION_N * to_size(s->n_stages) * to_size(s->n_microbatches);
    size_t places = to_size(s->n_ranks) * to_size(s->n_stages), ranks = to_size(s->n_ranks);
    struct check c = {
        .s = s,
        .issued = xcalloc(keys, 1),
        .done = xcalloc(keys, 1),
        .pc = xcalloc(ranks, sizeof *c.pc),
        .has_gather = schedule_has(s, ACTION_GATHER),
        .whole = xcalloc(places, 1),
        .grads = xcalloc(places, 1),
        .has_reduce = schedule_has(s, ACTION_REDUCE),
        .stepped = xcalloc(places, 1),
        .updates = xcalloc(ranks, sizeof *c.updates),
        .now = xcalloc(ranks, sizeof *c.now),
        .peak = xcalloc(ranks, sizeof *c.peak),
    };
    for (int k = ACTION_RECV_F; k <= ACTION_SEND_B; k++) c.has_comm |= schedule_has(s, (enum action_kind)k);
    int rc = OK;
    for (int r = 0; r < s->n_ranks && !rc; r++)
        for (int64_t i = 0; i < s->rank[r].n && !rc; i++) {
            const char *why = check_alone(&c, r, s->rank[r].a[i]);
            if (why) rc = fail(e, r, i, s->rank[r].a[i], why);
        }
    if (!rc) rc = check_nothing_missing(&c, e);
    if (!rc) rc = dry_run(&c, e);
    if (peak) memcpy(peak, c.peak, ranks * sizeof *peak);
    xfree(c.issued);
    xfree(c.done);
    xfree(c.pc);
    xfree(c.whole);
    xfree(c.grads);
    xfree(c.stepped);
    xfree(c.updates);
    xfree(c.now);
    xfree(c.peak);
    return rc;
}
