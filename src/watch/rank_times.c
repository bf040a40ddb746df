/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0 keeps a window of all ranks' times and judges when it is full. Medians of a window stand for a rank, and the
 * median of the others' for what is usual, so one slow rank does not move its own yardstick. Rejected: deviations from
 * the mean (one slow rank hides itself in it), single steps (a page that is swapped in, a log that rotates), step times
 * (all ranks have the same), waits alone (who waits least may only be last in a pipeline). */
#include "watch/rank_times.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/append.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "keep/file_tail.h"

const char *const rank_times_names[RANK_TIME_N] = {"step_s", "forward_s", "backward_s", "update_s", "wait_s"};

#define SLOWER 1.15      /* by the medians of a window */
#define SLOWER_ONCE 1.08 /* in a single step */
#define NEARLY_ALL 0.8   /* of the steps */
#define MATTERS 0.05     /* of a step */
#define MATTERS_S 1e-3   /* and of a step's seconds: less is what a scheduler gives one thread and takes from another */
#define BY_WORK 1.5      /* where work is alike only by its FLOPs */
#define LINK_SLOWER 3.0
#define LINK_LEAST_S 50e-6
#define WAITS_MUCH 0.1 /* of a step, the rank that waits least */
enum { PROBE_BYTES = 64 << 10, PROBE_ROUNDS = 7, PROBES_MORE = 9, HOST = 64 };
#define PROBE_PAUSE_S 5e-3 /* longer than a core is given away for */

/* ---- figures ---- */
static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorts v. */
static double median(double *v, int n)
{
    if (!n) return 0;
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static double computed(const double *of)
{
    return of[RANK_TIME_FORWARD] + of[RANK_TIME_BACKWARD] + of[RANK_TIME_UPDATE];
}

/* The median over r's peers, without r; of a rank without any: over all others, by work. */
static double others(const double *of, int n, int r, const double *work, const int *peers, double *room)
{
    int k = 0;
    for (int i = 0; i < n; i++)
        if (i != r && peers[i] == peers[r]) room[k++] = of[i];
    for (int i = 0; !k && i < n; i++)
        if (i != r && work[i] > 0) room[k++] = of[i] / work[i] * work[r];
    return median(room, k);
}

static bool has_peers(int n, int r, const int *peers)
{
    for (int i = 0; i < n; i++)
        if (i != r && peers[i] == peers[r]) return true;
    return false;
}

struct rank_times_verdict rank_times_judge(const double *seconds, int window, int n, const double *work,
                                           const int *peers)
{
    struct rank_times_verdict v = {.window = window};
    double *room = xcalloc((size_t)(n > window ? n : window) + 1, sizeof *room), *own = xcalloc((size_t)n, sizeof *own),
           *wait = xcalloc((size_t)n, sizeof *wait), *once = xcalloc((size_t)n, sizeof *once), most = 0;
    for (int i = 0; i < window; i++) room[i] = seconds[(int64_t)i * n * RANK_TIME_N + RANK_TIME_STEP];
    double step_s = median(room, window);
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < window; i++) room[i] = computed(seconds + ((int64_t)i * n + r) * RANK_TIME_N);
        own[r] = median(room, window);
        for (int i = 0; i < window; i++) room[i] = seconds[((int64_t)i * n + r) * RANK_TIME_N + RANK_TIME_WAIT];
        wait[r] = median(room, window);
    }
    for (int r = 0; r < n; r++) {
        double usual = others(own, n, r, work, peers, room), waited = others(wait, n, r, work, peers, room),
               more = own[r] - usual, factor = has_peers(n, r, peers) ? SLOWER : BY_WORK;
        int slower = 0;
        if (usual <= 0 || own[r] < factor * usual || more < MATTERS * step_s || more < MATTERS_S || more <= most)
            continue;
        if (has_peers(n, r, peers) && waited - wait[r] < more / 3) continue; /* nobody waits for it */
        for (int i = 0; i < window; i++) {
            for (int k = 0; k < n; k++) once[k] = computed(seconds + ((int64_t)i * n + k) * RANK_TIME_N);
            slower += once[r] > SLOWER_ONCE * others(once, n, r, work, peers, room);
        }
        if (slower < NEARLY_ALL * window) continue;
        most = more;
        v = (struct rank_times_verdict){RANK_TIME_COMPUTE, r, own[r], usual, waited - wait[r], slower, window};
    }
    xfree(room);
    xfree(own);
    xfree(wait);
    xfree(once);
    return v;
}

struct rank_times_verdict rank_times_judge_links(const double *round_trip, int n)
{
    struct rank_times_verdict v = {0};
    double *room = xcalloc((size_t)n + 1, sizeof *room);
    for (int r = 0; r < n; r++) {
        int k = 0;
        for (int i = 0; i < n; i++)
            if (i != r && round_trip[i] > 0) room[k++] = round_trip[i];
        double usual = median(room, k);
        bool slow = k > 1 && round_trip[r] > LINK_SLOWER * usual && round_trip[r] - usual > LINK_LEAST_S;
        if (slow && round_trip[r] > v.own_s)
            v = (struct rank_times_verdict){RANK_TIME_LINK, r, round_trip[r], usual, 0, 0, 0};
    }
    xfree(room);
    return v;
}

/* ---- a rank ---- */
struct rank_times {
    const struct ranks *ranks;
    const struct engine *g;
    int n, me, seen; /* steps in the window */
    int *peers;
    double *work;
    double *window; /* rank 0: [RANK_TIME_WINDOW][n][RANK_TIME_N] */
    float *here;    /* [n][RANK_TIME_N] of a step */
    char (*host)[HOST];
    double waited_s, spent_s[ENGINE_SPENT_N]; /* as far as was told */
    bool first;                               /* the first step touches every page */
    struct rank_times_verdict suspect, told;  /* of links: seen once; what was said last */
    struct append file;
    bool writes;
};

static bool is_done(void *after, const char *line, size_t n)
{
    struct json *v;
    if (json_parse(&v, line, n, "rank-times.jsonl", NULL)) return false;
    int64_t step = json_int(json_get(v, "step"), -1);
    json_free(v);
    return step >= 0 && step <= *(int64_t *)after;
}

static int open_file(struct rank_times *p, const char *dir, int64_t after, struct err *e)
{
    int64_t cut;
    char *path = fs_join(dir, "rank-times.jsonl");
    int rc = file_tail_cut(path, is_done, &after, &cut, e); /* of a run that begins: all of it */
    if (!rc) rc = append_open(&p->file, path, e);
    p->writes = !rc;
    xfree(path);
    return rc;
}

int rank_times_open(struct rank_times **out, const struct ranks *r, const struct engine *g, const char *dir,
                    int64_t after, struct err *e)
{
    int n = r->world ? comm_size(r->world) : 1, me = r->world ? comm_rank(r->world) : 0, rc = OK;
    struct rank_times *p = xcalloc(1, sizeof *p);
    *p = (struct rank_times){.ranks = r, .g = g, .n = n, .me = me, .first = true};
    p->peers = xcalloc((size_t)n, sizeof *p->peers);
    p->work = xcalloc((size_t)n, sizeof *p->work);
    p->here = xcalloc((size_t)n * RANK_TIME_N, sizeof *p->here);
    p->host = xcalloc((size_t)n, sizeof *p->host);
    if (me == 0) p->window = xcalloc((size_t)RANK_TIME_WINDOW * (size_t)n * RANK_TIME_N, sizeof *p->window);
    p->peers[me] = g->cfg.par.rank[AXIS_PP];
    p->work[me] = engine_flops_step(g);
    char mine[HOST] = "";
    gethostname(mine, sizeof mine - 1);
    snprintf(p->host[me], HOST, "%s", mine);
    if (r->world) {
        comm_wait(r->world, comm_all_gather(r->world, &p->peers[me], p->peers, 1, DT_I32, "who has the same work"));
        comm_wait(r->world, comm_all_gather(r->world, &p->work[me], p->work, 1, DT_F64, "how much work"));
        comm_wait(r->world, comm_all_gather(r->world, mine, p->host, HOST, DT_U8, "hosts"));
        rc = comm_status(r->world, e);
    }
    if (!rc && dir && me == 0) rc = open_file(p, dir, after, e);
    *out = p;
    return rc;
}

int rank_times_close(struct rank_times *p, struct err *e)
{
    if (!p) return OK;
    int rc = p->writes ? append_close(&p->file, e) : OK;
    xfree(p->peers);
    xfree(p->work);
    xfree(p->window);
    xfree(p->here);
    xfree(p->host);
    xfree(p);
    return rc;
}

/* ---- of one step ---- */
static void spread(struct rank_times *p, struct rank_times_step *all)
{
    double *room = xcalloc((size_t)p->n, sizeof *room);
    all->n = p->n;
    for (int k = 0; k < RANK_TIME_N; k++) {
        for (int r = 0; r < p->n; r++) room[r] = (double)p->here[r * RANK_TIME_N + k];
        double middle = median(room, p->n);
        all->of[k] = (struct rank_times_spread){room[0], middle, room[p->n - 1]};
    }
    for (int r = 0; r < p->n; r++) {
        const float *x = &p->here[r * RANK_TIME_N];
        room[r] = (double)(x[RANK_TIME_FORWARD] + x[RANK_TIME_BACKWARD] + x[RANK_TIME_UPDATE]);
    }
    for (; all->n_slowest < RANK_TIME_NAMED && all->n_slowest < p->n; all->n_slowest++) {
        int worst = 0;
        for (int r = 1; r < p->n; r++)
            if (room[r] > room[worst]) worst = r;
        all->slowest[all->n_slowest] = worst;
        room[worst] = -1;
    }
    xfree(room);
}

static int write_step(struct rank_times *p, int64_t step, struct err *e)
{
    struct str line = {0};
    struct json_out o = {.s = &line};
    json_begin_object(&o, NULL);
    json_put_int(&o, "step", step);
    for (int k = 0; k < RANK_TIME_N; k++) {
        json_begin_array(&o, rank_times_names[k]);
        for (int r = 0; r < p->n; r++) json_put_real_digits(&o, NULL, (double)p->here[r * RANK_TIME_N + k], 5);
        json_end_array(&o);
    }
    json_end_object(&o);
    str_putc(&line, '\n');
    int rc = append_add(&p->file, line.p, line.n, e);
    str_free(&line);
    return rc;
}

/* ---- links ---- */
/* A message there and an answer back, the least of some. One side begins. */
static double ping(struct comm *w, int peer, bool begins, void *bytes)
{
    double least = INFINITY;
    for (int i = 0; i < PROBE_ROUNDS; i++) {
        double from = clock_now_s();
        if (begins) comm_wait(w, comm_send(w, bytes, PROBE_BYTES, DT_U8, peer, "how fast is this link?"));
        comm_wait(w, comm_recv(w, bytes, PROBE_BYTES, DT_U8, peer, "how fast is this link?"));
        if (!begins) comm_wait(w, comm_send(w, bytes, PROBE_BYTES, DT_U8, peer, "how fast is this link?"));
        double took = clock_now_s() - from;
        if (i && took < least) least = took;
    }
    return least;
}

/* Ranks that are the k-th of their hosts lie in a ring, so that messages leave the host; on one host all do. Returns
 * the ring's size and this rank's place in it. */
static int ring_of(const struct rank_times *p, int *ring, int *at)
{
    struct comm *w = p->ranks->world;
    int nth = 0, n = 0;
    bool one = true;
    for (int r = 0; r < p->n; r++) one &= comm_host(w, r) == comm_host(w, 0);
    for (int r = 0; r < p->me; r++) nth += comm_host(w, r) == comm_host(w, p->me);
    for (int r = 0; r < p->n; r++) {
        int of = 0;
        for (int k = 0; k < r; k++) of += comm_host(w, k) == comm_host(w, r);
        if (!one && of != nth) continue;
        if (r == p->me) *at = n;
        ring[n++] = r;
    }
    return n;
}

/* The least of the messages with both neighbours: a rank is slow when all of its are. Of an odd ring the last link goes
 * by itself. */
static void probe(struct rank_times *p, double *round_trip)
{
    struct comm *w = p->ranks->world;
    int *ring = xcalloc((size_t)p->n, sizeof *ring), at = 0, n = ring_of(p, ring, &at);
    char *bytes = xcalloc(PROBE_BYTES, 1);
    double least = INFINITY;
    comm_wait(w, comm_barrier(w, "links"));
    for (int turn = 0; n > 2 && turn < 3; turn++)
        for (int i = 0; i < n; i++) { /* link i joins the i-th and the one after it */
            bool its_turn = n % 2 && i == n - 1 ? turn == 2 : i % 2 == turn;
            if (!its_turn || (at != i && at != (i + 1) % n)) continue;
            double took = ping(w, at == i ? ring[(i + 1) % n] : ring[i], at == i, bytes);
            if (took < least) least = took;
        }
    if (!isfinite(least)) least = 0;
    comm_wait(w, comm_all_gather(w, &least, round_trip, 1, DT_F64, "links"));
    xfree(bytes);
    xfree(ring);
}

/* Some take longer than others, by more than what does not matter. */
static bool uneven(const double *round_trip, int n)
{
    double least = INFINITY, most = 0;
    for (int r = 0; r < n; r++) {
        if (round_trip[r] < least) least = round_trip[r];
        if (round_trip[r] > most) most = round_trip[r];
    }
    return most > LINK_LEAST_S && most > 1.5 * least;
}

/* A rank that shares its cores is sometimes kept from them for every message of a probe, which makes it look slow, or
 * the others as slow as the one that is: what is uneven is looked at again, and the least of all counts. All ranks know
 * the same times, so all do the same. */
static int probe_until_sure(struct rank_times *p, double *least, struct err *e)
{
    double *now = xcalloc((size_t)p->n, sizeof *now);
    probe(p, least);
    int rc = comm_status(p->ranks->world, e);
    for (int i = 0; i < PROBES_MORE && !rc && uneven(least, p->n); i++) {
        clock_sleep_s(PROBE_PAUSE_S);
        probe(p, now);
        rc = comm_status(p->ranks->world, e);
        for (int r = 0; r < p->n; r++)
            if (now[r] < least[r]) least[r] = now[r];
    }
    xfree(now);
    return rc;
}

/* ---- who is slow ---- */
static void say(struct rank_times *p, const struct rank_times_verdict *v, struct str *said)
{
    if (!v->cause || (v->cause == p->told.cause && v->rank == p->told.rank)) return;
    p->told = *v;
    if (v->cause == RANK_TIME_COMPUTE)
        str_printf(said,
                   "rank %d (%s) is slow: it computes %.4g ms a step, ranks with the same work %.4g ms (medians of %d "
                   "steps; it was the slower in %d of them), and the others wait %.4g ms longer than it does: look at "
                   "its processor (clock, heat, other programs)",
                   v->rank, p->host[v->rank], 1e3 * v->own_s, 1e3 * v->others_s, v->window, v->steps, 1e3 * v->waits_s);
    else
        str_printf(said,
                   "rank %d (%s) has a slow link: 64 KiB to its neighbours and back take at least %.4g ms, between the "
                   "others %.4g ms, twice in a row; no rank computes longer than the others: look at its network",
                   v->rank, p->host[v->rank], 1e3 * v->own_s, 1e3 * v->others_s);
}

/* All wait, and it is no rank's computing. */
static bool all_wait(const struct rank_times *p)
{
    double least = INFINITY, step_s, *room = xcalloc(RANK_TIME_WINDOW, sizeof *room);
    for (int r = 0; r < p->n; r++) {
        for (int i = 0; i < RANK_TIME_WINDOW; i++)
            room[i] = p->window[((int64_t)i * p->n + r) * RANK_TIME_N + RANK_TIME_WAIT];
        double wait = median(room, RANK_TIME_WINDOW);
        if (wait < least) least = wait;
    }
    for (int i = 0; i < RANK_TIME_WINDOW; i++) room[i] = p->window[(int64_t)i * p->n * RANK_TIME_N + RANK_TIME_STEP];
    step_s = median(room, RANK_TIME_WINDOW);
    xfree(room);
    return least > WAITS_MUCH * step_s;
}

/* A window is full. */
static int judge(struct rank_times *p, struct rank_times_verdict *v, struct str *said, struct err *e)
{
    struct comm *w = p->ranks->world;
    int64_t asks = 0;
    if (p->me == 0) {
        *v = rank_times_judge(p->window, RANK_TIME_WINDOW, p->n, p->work, p->peers);
        asks = !v->cause && all_wait(p);
    }
    comm_wait(w, comm_broadcast(w, &asks, 1, DT_I64, 0, "are links looked at?"));
    int rc = comm_status(w, e);
    if (!rc && asks) {
        double *round_trip = xcalloc((size_t)p->n, sizeof *round_trip);
        rc = probe_until_sure(p, round_trip, e);
        struct rank_times_verdict now = rank_times_judge_links(round_trip, p->n);
        bool again = now.cause && p->suspect.cause && now.rank == p->suspect.rank;
        p->suspect = now;
        if (again && p->me == 0) *v = now;
        xfree(round_trip);
    } else {
        p->suspect.cause = RANK_TIME_NOBODY;
    }
    if (p->me == 0 && !rc) {
        bool was = p->told.cause != RANK_TIME_NOBODY;
        say(p, v, said);
        if (!v->cause && was && !p->suspect.cause) {
            str_printf(said, "rank %d is no longer slower than the others", p->told.rank);
            p->told.cause = RANK_TIME_NOBODY;
        }
    }
    return rc;
}

void rank_times_begin(struct rank_times *p)
{
    if (!p) return;
    memcpy(p->spent_s, p->g->spent_s, sizeof p->spent_s);
    p->waited_s = p->ranks->world ? comm_waited_s(p->ranks->world) : 0;
}

int rank_times_step(struct rank_times *p, int64_t step, double step_s, struct rank_times_step *all,
                    struct rank_times_verdict *verdict, struct str *said, struct err *e)
{
    struct comm *w = p->ranks->world;
    float mine[RANK_TIME_N];
    int rc = OK;
    *all = (struct rank_times_step){0};
    *verdict = (struct rank_times_verdict){0};
    double waited = w ? comm_waited_s(w) : 0;
    mine[RANK_TIME_STEP] = (float)step_s;
    mine[RANK_TIME_FORWARD] = (float)(p->g->spent_s[ENGINE_FORWARD] - p->spent_s[ENGINE_FORWARD]);
    mine[RANK_TIME_BACKWARD] = (float)(p->g->spent_s[ENGINE_BACKWARD] - p->spent_s[ENGINE_BACKWARD]);
    mine[RANK_TIME_UPDATE] = (float)(p->g->spent_s[ENGINE_UPDATE] - p->spent_s[ENGINE_UPDATE]);
    mine[RANK_TIME_WAIT] = (float)(waited - p->waited_s);
    memcpy(p->here, mine, sizeof mine);
    if (w) {
        comm_wait(w, comm_all_gather(w, mine, p->here, RANK_TIME_N, DT_F32, "how long ranks took"));
        rc = comm_status(w, e);
    }
    if (rc) return rc;
    if (p->me == 0) spread(p, all);
    if (p->writes) rc = write_step(p, step, e);
    bool counts = !p->first && p->n > 1;
    p->first = false;
    if (!counts) return rc;
    for (int64_t i = 0; p->window && i < (int64_t)p->n * RANK_TIME_N; i++)
        p->window[(int64_t)p->seen * p->n * RANK_TIME_N + i] = (double)p->here[i];
    if (++p->seen < RANK_TIME_WINDOW) return rc;
    p->seen = 0;
    int judged = judge(p, verdict, said, rc ? NULL : e);
    return rc ? rc : judged;
}
