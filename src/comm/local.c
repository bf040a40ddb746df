/* SPDX-License-Identifier: Apache-2.0 */
/* local.c: ranks that are threads of one process. They read and write each other's memory.
 *
 * A group has a meeting place (meet.h) and a channel per ordered pair of ranks. A channel is a short ring of posts: the
 * sender leaves a pointer, the receiver copies straight from the sender's buffer and ticks the post off, which is when
 * the send is complete. One copy per message, no buffering, no lock: each field has one writer.
 *
 *     post k lives in slot k % POSTS; full == k+1: posted; taken == k+1: copied
 *
 * Groups are found by their list of ranks, so that creating one needs no meeting: a rank that asks for a list gets the
 * oldest group of that list that it has not joined yet. The last member to leave frees it.
 */
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/thread.h"
#include "comm/staged.h"

#define POSTS 16

struct post {
    _Alignas(64) atomic_llong full;
    const void *p;
    size_t bytes;
    enum dtype dtype;
    const struct desc *desc;
    _Alignas(64) atomic_llong taken;
};

struct group {
    struct group *next;
    int size, n_left;
    int *ranks;
    bool *joined;
    struct meet *meet;
    struct post *post; /* [size from][size to][POSTS] */
    int64_t *pieces;   /* as struct comm has it */
};

/* What the ranks share. */
struct process {
    pthread_mutex_t lock; /* guards groups and their n_left, joined; n_ranks */
    struct group *groups;
    struct board *board;
    int n_ranks; /* still in the world */
};

/* A rank's view of a group. */
struct member {
    struct group *g;
    int64_t *sent, *received; /* [size] messages so far */
};

static struct group *group_find(struct process *p, const struct comm *c)
{
    struct group *found = NULL;
    for (struct group *g = p->groups; g; g = g->next) /* newest first */
        if (g->size == c->size && !memcmp(g->ranks, c->world_rank, (size_t)c->size * sizeof *g->ranks) &&
            !g->joined[c->rank])
            found = g;
    return found;
}

static size_t posts_bytes(int size) { return (size_t)size * (size_t)size * POSTS * sizeof(struct post); }

static struct group *group_new(const struct comm *c, struct err *e)
{
    size_t n = (size_t)c->size;
    struct group *g = xcalloc(1, sizeof *g);
    g->size = c->size;
    g->meet = mem_pages_new(staged_bytes(c->size, STAGE_LOCAL));
    g->post = mem_pages_new(posts_bytes(c->size)); /* zeroed: nothing posted */
    if (!g->meet || !g->post) {
        mem_pages_free(g->meet, staged_bytes(c->size, STAGE_LOCAL));
        mem_pages_free(g->post, posts_bytes(c->size));
        xfree(g);
        err_set(e, ERR_MEMORY, "no memory for the channels of %s (%d ranks)", c->name, c->size);
        return NULL;
    }
    staged_init(g->meet, c->size);
    g->ranks = xcalloc(n, sizeof *g->ranks);
    memcpy(g->ranks, c->world_rank, n * sizeof *g->ranks);
    g->joined = xcalloc(n, sizeof *g->joined);
    g->pieces = xcalloc(1, meet_pieces_bytes(c->size));
    return g;
}

static void group_free(struct group *g)
{
    mem_pages_free(g->meet, staged_bytes(g->size, STAGE_LOCAL));
    mem_pages_free(g->post, posts_bytes(g->size));
    xfree(g->ranks);
    xfree(g->joined);
    xfree(g->pieces);
    xfree(g);
}

static int local_join(struct comm *c, struct err *e)
{
    struct process *p = c->w->shared;
    pthread_mutex_lock(&p->lock);
    struct group *g = group_find(p, c);
    if (!g && (g = group_new(c, e))) {
        g->next = p->groups;
        p->groups = g;
    }
    if (g) g->joined[c->rank] = true;
    pthread_mutex_unlock(&p->lock);
    if (!g) return ERR_MEMORY;
    struct member *m = xcalloc(1, sizeof *m);
    m->g = g;
    m->sent = xcalloc((size_t)c->size, sizeof *m->sent);
    m->received = xcalloc((size_t)c->size, sizeof *m->received);
    c->group = m;
    c->meet = g->meet;
    c->pieces = g->pieces;
    c->stage_bytes = STAGE_LOCAL;
    return OK;
}

static void local_leave(struct comm *c)
{
    struct process *p = c->w->shared;
    struct member *m = c->group;
    pthread_mutex_lock(&p->lock);
    bool last = ++m->g->n_left == m->g->size;
    if (last) {
        struct group **at = &p->groups;
        while (*at != m->g) at = &(*at)->next;
        *at = m->g->next;
        group_free(m->g);
    }
    pthread_mutex_unlock(&p->lock);
    xfree(m->sent);
    xfree(m->received);
    xfree(m);
}

/* Groups that some members never joined, and what all ranks shared. */
static void process_free(struct process *p, int size)
{
    while (p->groups) {
        struct group *g = p->groups;
        p->groups = g->next;
        group_free(g);
    }
    mem_pages_free(p->board, board_bytes(size));
    pthread_mutex_destroy(&p->lock);
    xfree(p);
}

static void local_close(struct world *w)
{
    struct process *p = w->shared;
    board_leave(w->board, w->rank);
    pthread_mutex_lock(&p->lock);
    bool last = --p->n_ranks == 0;
    pthread_mutex_unlock(&p->lock);
    if (last) process_free(p, w->size);
}

/* ---- messages ---------------------------------------------------------------------------------------------- */

static struct post *post_at(struct group *g, int from, int to, int64_t number)
{
    return &g->post[((int64_t)from * g->size + to) * POSTS + number % POSTS];
}

static void local_start(struct comm *c, struct request *r)
{
    struct member *m = c->group;
    r->number = r->send ? m->sent[r->peer]++ : m->received[r->peer]++;
    r->done = c->w->ops->test(c, r);
}

static bool send_test(struct comm *c, struct request *r)
{
    struct post *p = post_at(((struct member *)c->group)->g, c->rank, r->peer, r->number);
    int64_t taken = atomic_load_explicit(&p->taken, memory_order_acquire);
    if (r->posted) return taken >= r->number + 1;
    if (r->number >= POSTS && taken < r->number - POSTS + 1) return false; /* the slot's last message waits */
    p->p = r->p;
    p->bytes = r->bytes;
    p->dtype = r->dtype;
    p->desc = r->desc;
    atomic_store_explicit(&p->full, r->number + 1, memory_order_release);
    r->posted = true;
    return false;
}

static bool fits(struct comm *c, const struct request *r, const struct post *p)
{
    if (p->bytes == r->bytes && p->dtype == r->dtype) return true;
    struct err e;
    char a[DESC_TEXT], b[DESC_TEXT];
    err_set(&e, ERR_IO, "rank %d sends %lld %s to rank %d, which receives %lld %s: sender %s; receiver %s",
            c->world_rank[r->peer], (long long)(p->bytes / dtype_bytes(p->dtype)), dtype_name(p->dtype),
            c->world_rank[c->rank], (long long)(r->bytes / dtype_bytes(r->dtype)), dtype_name(r->dtype),
            desc_print(a, p->desc), desc_print(b, r->desc));
    world_fail(c->w, &e);
    return false;
}

static bool recv_test(struct comm *c, struct request *r)
{
    struct post *p = post_at(((struct member *)c->group)->g, r->peer, c->rank, r->number);
    if (atomic_load_explicit(&p->full, memory_order_acquire) != r->number + 1) return false;
    struct board *b = c->w->board;
    atomic_store(&b->row[c->w->row].busy, 1); /* as meet_work.c: the sender must not give up its buffer under us */
    bool ok = !board_failed(b) && fits(c, r, p);
    if (ok && r->bytes) memcpy(r->p, p->p, r->bytes);
    atomic_store_explicit(&b->row[c->w->row].busy, 0, memory_order_release);
    if (ok) atomic_store_explicit(&p->taken, r->number + 1, memory_order_release);
    return ok;
}

static bool local_test(struct comm *c, struct request *r) { return r->send ? send_test(c, r) : recv_test(c, r); }

static bool always(const struct comm *c)
{
    (void)c;
    return true;
}

/* Small vectors are copied to where all can read them before the ranks meet: then nobody waits for a second meeting. */
static bool local_prepare(struct comm *c, struct op *o)
{
    if (o->coll.op == COMM_ALL_TO_ALL) meet_lay_out(c, o);
    o->seat_in = (uintptr_t)o->in;
    o->seat_out = (uintptr_t)o->out;
    return !staged_small(c, o) || staged_prepare(c, o);
}

static void follow_seats(struct comm *c, const struct op *o)
{
    for (int r = 0; r < c->size; r++) {
        const struct meet_seat *s = meet_seat(c->meet, o->meet, r);
        c->part[r] = (struct meeting_part){.in = (char *)(uintptr_t)s->in, .out = (char *)(uintptr_t)s->out};
        if (o->coll.op == COMM_ALL_TO_ALL) meet_laid_out(c, o, r);
    }
}

static bool local_shared(struct comm *c, struct op *o)
{
    if (staged_small(c, o)) return staged_work(c, o);
    if (o->tries == 0) follow_seats(c, o);
    return meet_work(c, o);
}

static const struct transport_ops transport_local = {
    .name = "local",
    .max_message = SIZE_MAX,
    .join = local_join,
    .leave = local_leave,
    .start = local_start,
    .test = local_test,
    .shared_may = always,
    .prepare = local_prepare,
    .shared = local_shared,
    .close = local_close,
};

/* ---- worlds ------------------------------------------------------------------------------------------------ */

/* Frees the worlds of ranks 0..r, of which the last may have no communicator yet: the others were never made. */
static void undo(struct process *p, struct comm **out, int r, struct world *w)
{
    p->n_ranks = r + 1;
    for (int i = 0; i <= r; i++) {
        if (out[i]) comm_free(out[i]);
        else world_free(w);
        out[i] = NULL;
    }
}

int comm_world_local(struct comm **out, int n, const struct comm_config *cfg, struct err *e)
{
    CHECK(n >= 1, "a world of %d ranks", n);
    int rc = comm_config_check(cfg, e);
    if (rc) return rc;
    struct board *board = mem_pages_new(board_bytes(n));
    if (!board) return err_set(e, ERR_MEMORY, "no memory for the board of %d ranks", n);
    board_init(board, n);
    struct process *p = xcalloc(1, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    p->board = board;
    p->n_ranks = n;
    int *all = xcalloc((size_t)n, sizeof *all);
    for (int r = 0; r < n; r++) all[r] = r;
    memset(out, 0, (size_t)n * sizeof *out);
    for (int r = 0; !rc && r < n; r++) {
        struct world *w = world_new(&transport_local, p, board, r, n, NULL, 0, cfg);
        rc = world_comm(&out[r], w, all, n, "world", e);
        if (!rc && board_failed(board)) rc = comm_status(out[r], e);
        if (rc) undo(p, out, r, w);
    }
    xfree(all);
    return rc;
}

struct runner {
    pthread_t thread;
    struct comm *world;
    comm_rank_fn *fn;
    void *arg;
    int rank;
};

static void *run_rank(void *arg)
{
    struct runner *r = arg;
    struct err e = {0};
    thread_name_set("r%d", r->rank);
    e.code = (enum err_code)r->fn(r->world, r->arg, &e);
    if (e.code) comm_abort(r->world, &e);
    return NULL;
}

/* Ranks leave when they return, so that others notice; the memory of worlds goes when all have. */
static void *run_and_leave(void *arg)
{
    struct runner *r = arg;
    run_rank(r);
    comm_sync(r->world);
    board_leave(r->world->w->board, r->rank);
    return NULL;
}

/* False: there is no thread for this rank, and all ranks have been told so. */
static bool start_rank(struct runner *r, int n)
{
    char limits[160];
    struct err e = {0};
    int failed = pthread_create(&r->thread, NULL, run_and_leave, r);
    if (!failed) return true;
    limit_threads_text(limits);
    err_set(&e, ERR_MEMORY,
            "the thread of rank %d of %d could not be started: %s (%s); choose fewer ranks (-n), or raise the limit",
            r->rank, n, strerror(failed), limits);
    comm_abort(r->world, &e);
    return false;
}

int comm_run_local(int n, const struct comm_config *cfg, comm_rank_fn *fn, void *arg, struct err *e)
{
    struct comm **worlds = xcalloc((size_t)n, sizeof *worlds);
    struct runner *r = xcalloc((size_t)n, sizeof *r);
    int rc = comm_world_local(worlds, n, cfg, e);
    int started = 1;
    for (int i = 0; !rc && i < n; i++) r[i] = (struct runner){.world = worlds[i], .fn = fn, .arg = arg, .rank = i};
    while (!rc && started < n && start_rank(&r[started], n)) started++;
    if (!rc) {
        char name[16];
        thread_name_get(name);
        if (started == n) run_and_leave(&r[0]); /* rank 0 is the caller's thread */
        thread_name_set("%s", name);
        for (int i = 1; i < started; i++) pthread_join(r[i].thread, NULL);
        rc = comm_status(worlds[0], e);
        for (int i = 0; i < n; i++) comm_free(worlds[i]);
    }
    xfree(worlds);
    xfree(r);
    return rc;
}
