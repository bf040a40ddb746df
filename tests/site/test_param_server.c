/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices untouchable */
/* suite: long addresses */
/* suite: waits */
/* The parameter server with ranks as threads: what is planned is what is sent and allocated, in both modes, for several
 * servers with unlike shards and for every staleness; a worker never begins a step more than the bound ahead of the
 * slowest, though it gets as far; staleness is measured right where it is known; a rank that hangs, fails or leaves is
 * named. */
#include "toy.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fs.h"
#include "plan/plan.h"
#include "site/param_server.h"
#include "sanitized.h"
#include "scratch.h"

enum { MOST = 8, STEPS = 6 };

static void make(struct config *c, struct arena *a, int ranks, const char *const *keys)
{
    static const char *const toy[] = {"model.layers=2",  "model.hidden=36",      "model.heads=3",
                                      "model.ffn=50",    "model.vocab=67",       "model.seq_len=12",
                                      "batch.global=12", "batch.micro=1",        "run.threads=1",
                                      "run.steps=6",     "comm.progress=inline", "optimizer.lr=1e-3"};
    char *all[32];
    int k = 0;
    struct err e = {0};
    struct conf *f;
    for (size_t i = 0; i < sizeof toy / sizeof *toy; i++) all[k++] = arena_strdup(a, toy[i]);
    for (int i = 0; keys[i]; i++) all[k++] = arena_strdup(a, keys[i]);
    if (config_load(c, &f, a, NULL, all, k, &e)) fail_msg("%s", e.text);
    if (config_resolve(c, f, 0, ranks, &e)) fail_msg("%s", e.text);
    c->parallel.ranks_here = ranks;
}

/* What goes wrong, with which rank, before which step. */
enum fault { NOTHING, HANGS, FAILS, LEAVES };

struct job { /* of all ranks */
    const struct config *c;
    bool lead; /* rank 0 is slow: it takes a step when the others can go no further */
    enum fault fault;
    int culprit;
    double timeout_s; /* 0: 3600 */
    const char *dump_dir;
    atomic_int begun[MOST]; /* steps that each worker has begun */
    atomic_int ahead;       /* most steps that a worker began beyond the slowest */
    atomic_int ended;
    int64_t sent[MOST];
    struct staleness first; /* what rank 0 hears with its first step */
    size_t bytes[MOST][MEM_N];
};

struct rank {
    struct job *j;
    struct ranks r;
    struct engine *g;
    struct param_server *v;
    struct device *d;
    int64_t step, tokens;
};

static bool is_async(const struct rank *k) { return k->j->c->parallel.server_mode == SERVER_ASYNC; }
static int n_workers(const struct rank *k) { return k->r.n - k->r.n_servers; }

static int slowest(const struct rank *k)
{
    int least = atomic_load(&k->j->begun[0]);
    for (int w = 1; w < n_workers(k); w++)
        if (atomic_load(&k->j->begun[w]) < least) least = atomic_load(&k->j->begun[w]);
    return least;
}

/* The slow worker waits until the others stand where they may go no further, and gives them time to go on all the
 * same. */
static void dawdle(const struct rank *k)
{
    int64_t most = k->step + k->j->c->parallel.staleness + 1;
    if (most > k->j->c->run.steps) most = k->j->c->run.steps;
    for (int w = 1; w < n_workers(k); w++)
        while (atomic_load(&k->j->begun[w]) < most && comm_status(k->r.world, NULL) == OK) clock_sleep_s(1e-3);
    clock_sleep_s(10e-3);
}

/* A server knows that a worker's step is done at the earliest when the worker has begun it, so what `begun` says of the
 * slowest is no less than what servers know. */
static void begin_step(const struct rank *k)
{
    int me = k->r.rank, ahead = (int)k->step - slowest(k), most = atomic_load(&k->j->ahead);
    if (k->j->lead && me == 0) dawdle(k);
    while (ahead > most && !atomic_compare_exchange_weak(&k->j->ahead, &most, ahead)) continue;
    atomic_store(&k->j->begun[me], (int)k->step + 1);
}

/* Some time in the middle of the run; true: this rank does not come back. */
static int go_wrong(const struct rank *k, bool *gone, struct err *e)
{
    *gone = k->j->fault != NOTHING && k->r.rank == k->j->culprit && k->step == 2;
    if (!*gone) return OK;
    while (k->j->fault == HANGS && comm_status(k->r.world, NULL) == OK) clock_sleep_s(10e-3);
    return k->j->fault == FAILS ? err_set(e, ERR_IO, "the disk is gone") : OK;
}

static int worker_step(struct rank *k, const struct toy *t, bool *meet, struct err *e)
{
    struct engine_report report;
    struct staleness s;
    if (!is_async(k)) {
        param_server_step(k->v, &t->batch, k->step, 1e-3, &report);
        return comm_status(k->r.world, e);
    }
    int rc = param_server_push(k->v, &t->batch, k->step, false, &report, &s, meet, e);
    if (!rc) rc = comm_status(k->r.world, e);
    if (!rc && k->r.rank == 0 && k->step == 0) k->j->first = s;
    return rc;
}

static int work(struct rank *k, const struct toy *t, struct err *e)
{
    int rc = OK;
    bool gone = false, meet = false;
    for (; !rc && k->step < k->j->c->run.steps; k->step++) {
        if ((rc = go_wrong(k, &gone, e)) || gone) return rc;
        begin_step(k);
        rc = worker_step(k, t, &meet, e);
    }
    if (!rc && is_async(k) && !meet) rc = err_set(e, ERR_IO, "the last step is no meeting");
    return rc;
}

/* A server of the asynchronous kind that goes wrong serves until its first meeting, after step 2. */
static int serve(struct rank *k, struct err *e)
{
    struct engine_report report;
    int rc = OK;
    bool gone = false;
    while (!rc && k->step < k->j->c->run.steps) {
        if ((rc = go_wrong(k, &gone, e)) || gone) return rc;
        if (is_async(k)) {
            k->step = param_server_until_meeting(k->v, &k->tokens, e);
            rc = k->step < 0 ? (int)k->step : OK;
        } else {
            param_server_step(k->v, NULL, k->step++, 1e-3, &report);
            rc = comm_status(k->r.world, e);
        }
    }
    return rc;
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct rank k = {.j = arg};
    struct engine_config ec = config_engine(k.j->c);
    struct toy t = {0};
    int rc = ranks_init(&k.r, world, k.j->c, e);
    if (rc) return rc;
    ranks_engine(&k.r, &ec);
    struct param_server_config sc = {.async = is_async(&k),
                                     .staleness = k.j->c->parallel.staleness,
                                     .optim = ec.optim,
                                     .lr = config_lr(k.j->c),
                                     .steps = k.j->c->run.steps,
                                     .eval_every = k.j->fault && k.j->culprit >= n_workers(&k) ? 2 : 0};
    bool serves = k.r.server >= 0;
    rc = device_cpu_new(&k.d, 1, e);
    if (!rc) rc = engine_new(&k.g, &ec, k.d, e);
    if (!rc) rc = param_server_new(&k.v, &sc, k.g, &k.r, e);
    if (!rc && !serves) toy_batch(&t, &ec);
    if (!rc) {
        engine_init(k.g);
        param_server_begin(k.v, 0);
        int64_t before = param_server_traffic(k.v);
        rc = serves ? serve(&k, e) : work(&k, &t, e);
        k.j->sent[k.r.rank] = param_server_traffic(k.v) - before;
        memcpy(k.j->bytes[k.r.rank], k.d->ledger.at_peak, sizeof k.j->bytes[0]);
    }
    atomic_fetch_add(&k.j->ended, 1);
    param_server_free(k.v);
    engine_free(k.g);
    ranks_fini(&k.r);
    device_free(k.d);
    toy_batch_free(&t);
    return rc;
}

static int run(struct job *j, struct err *e)
{
    struct comm_config cc = config_comm(j->c);
    cc.timeout_s = j->timeout_s > 0 ? j->timeout_s : 3600;
    cc.dump_dir = j->dump_dir;
    return comm_run_local(config_ranks(j->c), &cc, rank_main, j, e);
}

/* ---- planned = counted ---- */
static void check_counts(int ranks, const char *const *keys)
{
    struct arena *a = arena_new();
    struct config c;
    struct plan p;
    struct err e = {0};
    make(&c, a, ranks, keys);
    struct job j = {.c = &c};
    if (plan_make(&p, &c, &e)) fail_msg("%s", e.text);
    if (run(&j, &e)) fail_msg("%s", e.text);
    int alike = 0;
    for (int i = 0; i < p.n_roles; i++) {
        const struct plan_rank *r = &p.role[i];
        alike += r->n_alike;
        assert_true(r->serve_bytes > 0);
        if (j.sent[r->rank] != STEPS * r->serve_bytes)
            fail_msg("%s %s: rank %d of %d sent %lld bytes in %d steps, planned %lld for each", keys[0], keys[1],
                     r->rank, ranks, (long long)j.sent[r->rank], STEPS, (long long)r->serve_bytes);
        for (int m = 0; m < MEM_N; m++)
            if (j.bytes[r->rank][m] != r->bytes[m])
                fail_msg("%s %s: rank %d of %d allocated %zu bytes of %s, planned %zu", keys[0], keys[1], r->rank,
                         ranks, j.bytes[r->rank][m], mem_cat_name((enum mem_cat)m), r->bytes[m]);
    }
    assert_int_equal(alike, ranks);
    plan_free(&p);
    arena_free(a);
}

static void test_planned_is_counted(void **state)
{
    (void)state;
    static const char *const modes[] = {"parallel.server_mode=sync", "parallel.server_mode=async"};
    static const char *const servers[] = {"parallel.servers=1", "parallel.servers=2", "parallel.servers=3",
                                          "parallel.servers=4"};
    static const char *const stale[] = {"parallel.staleness=0", "parallel.staleness=1", "parallel.staleness=4"};
    static const char *const recipes[] = {"precision.recipe=fp32", "precision.recipe=bf16"};
    for (int m = 0; m < 2; m++)
        for (int s = 0; s < 4; s++)
            for (int k = 0; k < (m ? 3 : 1); k++)
                check_counts(s + 1 + (s == 1 ? 1 : 3),
                             (const char *const[]){modes[m], servers[s], stale[k], recipes[(m + s + k) % 2], NULL});
    for (int m = 0; m < 2; m++)
        check_counts(5, (const char *const[]){modes[m], servers[1], "comm.algorithm=tree",
                                              "numerics.deterministic=false", "batch.global=7", NULL});
}

/* ---- the bound ---- */
static void test_nobody_runs_further_ahead(void **state)
{
    (void)state;
    static const char *const stale[] = {"parallel.staleness=0", "parallel.staleness=1", "parallel.staleness=4"};
    static const int bound[] = {0, 1, 4};
    for (int i = 0; i < 3; i++) {
        struct arena *a = arena_new();
        struct config c;
        struct err e = {0};
        make(&c, a, 5, (const char *const[]){"parallel.servers=2", "parallel.server_mode=async", stale[i], NULL});
        struct job j = {.c = &c, .lead = true};
        if (run(&j, &e)) fail_msg("%s", e.text);
        assert_int_equal(atomic_load(&j.ahead), bound[i]); /* no further, and no less: the others are not held back */
        /* Before the slow worker's first update the two others have made bound each, and have one more on the way. */
        assert_in_range(j.first.max, 2 * bound[i], 2 * (bound[i] + 1));
        assert_in_range(j.first.n, 2 * bound[i] + 1, 2 * (bound[i] + 1) + 1);
        assert_true(j.first.mean <= (double)j.first.max && j.first.mean * (double)j.first.n >= (double)j.first.max);
        arena_free(a);
    }
}

/* ---- trouble ---- */
static void check_fault(enum fault fault, int culprit, const char *mode, const char *dir)
{
    static const char *const says[] = {[HANGS] = "rank %d is late",
                                       [FAILS] = "rank %d: the disk is gone",
                                       [LEAVES] = "rank %d left before the others were done"};
    struct arena *a = arena_new();
    struct config c;
    struct err e = {0};
    char want[64];
    make(&c, a, 5, (const char *const[]){"parallel.servers=2", mode, NULL});
    /* Who fails or leaves is known at once: else the others would wait for longer than this test may take. Who hangs is
     * late after a time in which the others come on a busy machine too. */
    struct job j = {.c = &c, .fault = fault, .culprit = culprit, .dump_dir = dir};
    j.timeout_s = fault != HANGS ? 3600 : SANITIZED ? 6 : 3;
    assert_true(run(&j, &e) < 0);
    snprintf(want, sizeof want, says[fault], culprit);
    if (strncmp(e.text, want, strlen(want))) fail_msg("%s: '%s' does not begin with '%s'", mode, e.text, want);
    assert_int_equal(atomic_load(&j.ended), 5);
    arena_free(a);
}

/* The recorder says first what happened, then what every rank is doing. */
static void check_recorder(const char *dir)
{
    static const char *const parts[] = {"rank 1 is late",      "\nrank 0 ",           "\nrank 4 ",
                                        "\nrank 0, the last ", "\nrank 4, the last ", "RUNNING"};
    struct err e = {0};
    char path[256], *text = NULL, *at;
    size_t n;
    for (int r = 0; r < 5 && !text; r++) {
        snprintf(path, sizeof path, "%s/flight-rank%d.txt", dir, r);
        if (fs_exists(path) && fs_read_all(path, 1 << 22, &text, &n, &e)) fail_msg("%s", e.text);
    }
    assert_non_null(text);
    at = text;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        at = strstr(at, parts[i]);
        if (!at) fail_msg("no '%s' after what comes before it in:\n%.2000s", parts[i], text);
    }
    xfree(text);
}

static void test_trouble_is_named(void **state)
{
    (void)state;
    static const char *const modes[] = {"parallel.server_mode=sync", "parallel.server_mode=async"};
    char *dir = scratch_new();
    for (int m = 0; m < 2; m++)
        for (int f = HANGS; f <= LEAVES; f++)
            for (int culprit = 0; culprit < 5; culprit += culprit == 1 ? 2 : 1) { /* two workers, two servers */
                bool keep = f == HANGS && culprit == 1;
                check_fault((enum fault)f, culprit, modes[m], keep ? dir : NULL);
                if (keep) check_recorder(dir);
            }
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planned_is_counted),
        cmocka_unit_test(test_nobody_runs_further_ahead),
        cmocka_unit_test(test_trouble_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
