/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long addresses */
/* suite: wraps config_comm tile_rate_registers clock_gettime time */
/* run.elastic: ranks die, at every operation between the first and the last, and the run goes on: with a spare in the
 * dead one's place the files are those of an undisturbed run, bit for bit; with fewer ranks the losses are. A rank is
 * told to die by the settings of its world, which the linker lets this file write (--wrap=config_comm).
 *
 *     test_elastic                       ranks as threads (cmocka)
 *     test_elastic PLAN CONFIG KEYS...   a rank of a launcher: tests/train/mpi_elastic.sh
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "comm/comm.h"
#include "config/config.h"
#include "watch/run_view.h"
#include "runs.h"
#include "told_rate.h"
#include "sanitized.h"

/* The n-th operation of a rank (in all worlds together, or the n-th of a name) is its last one. */
enum { DEATHS = 4, RANKS = 8, ANY = -1 };
static struct {
    struct death {
        int rank;
        int64_t n;        /* from 1 */
        const char *what; /* NULL: any */
    } death[DEATHS];
    int n_deaths;
    atomic_llong asked[DEATHS]; /* operations that counted for it */
    atomic_llong ops[RANKS];    /* all */
} plan;

/* What happens to the machine at the moment of a death. */
static struct {
    time_t jumps_s;     /* its wall clock */
    const char *spoils; /* a file gets other bytes */
} beside;
static atomic_llong ahead_s;

int __real_clock_gettime(clockid_t which, struct timespec *t);
int __wrap_clock_gettime(clockid_t which, struct timespec *t);
int __wrap_clock_gettime(clockid_t which, struct timespec *t)
{
    int rc = __real_clock_gettime(which, t);
    if (which == CLOCK_REALTIME) t->tv_sec += (time_t)atomic_load(&ahead_s);
    return rc;
}

time_t __real_time(time_t *t);
time_t __wrap_time(time_t *t);
time_t __wrap_time(time_t *t)
{
    time_t now = __real_time(NULL) + (time_t)atomic_load(&ahead_s);
    if (t) *t = now;
    return now;
}

static bool dies(void *ctx, int world_rank, enum comm_op op, const char *what)
{
    (void)ctx;
    (void)op;
    bool yes = false;
    atomic_fetch_add(&plan.ops[world_rank], 1);
    for (int i = 0; i < plan.n_deaths; i++) {
        const struct death *d = &plan.death[i];
        if ((d->rank != ANY && d->rank != world_rank) || (d->what && (!what || !strstr(what, d->what)))) continue;
        yes |= atomic_fetch_add(&plan.asked[i], 1) + 1 == d->n;
    }
    if (yes) atomic_store(&ahead_s, (long long)beside.jumps_s);
    if (yes && beside.spoils) (void)fs_write_atomic(beside.spoils, "model: [\n", 9, NULL);
    return yes;
}

struct comm_config __real_config_comm(const struct config *c);
struct comm_config __wrap_config_comm(const struct config *c);
struct comm_config __wrap_config_comm(const struct config *c)
{
    struct comm_config cc = __real_config_comm(c);
    cc.dies = dies;
    return cc;
}

static void plan_none(void)
{
    plan.n_deaths = 0;
    for (int i = 0; i < DEATHS; i++) atomic_store(&plan.asked[i], 0);
    for (int i = 0; i < RANKS; i++) atomic_store(&plan.ops[i], 0);
}

static void plan_death(int rank, int64_t n, const char *what)
{
    plan.death[plan.n_deaths++] = (struct death){rank, n, what};
}

/* ---- a rank of a launcher ---- */
/* "MEMBER:N:WHAT" or "-", several with "," between: whatever rank that process is by then. */
static int be_a_rank(int argc, char **argv)
{
    struct trainer_result r;
    struct err e = {0};
    const char *own = getenv("PMIX_RANK");
    for (char *p = argv[1], *save = NULL; (p = strtok_r(p, ",", &save)); p = NULL) {
        char *n = strchr(p, ':'), *what = n ? strchr(n + 1, ':') : NULL;
        if (n && own && atoi(p) == atoi(own)) plan_death(ANY, atoll(n + 1), what && what[1] ? what + 1 : NULL);
    }
    int rc = trainer_run(argv[2], argv + 3, argc - 3, 0, &r, &e);
    if (rc && r.rank == 0 && !r.told) fprintf(stderr, "tutti: %s\n", e.text);
    return err_exit_status(rc);
}

/* ---- threads ---- */
#define ELASTIC                                                                                                        \
    "run.elastic=true", "model.layers=1", "checkpoint.every=2", "checkpoint.keep=0", "run.eval_every=3",               \
        "run.eval_batches=1", "run.tensorboard=false", "run.steps=6", "batch.global=8", "batch.micro=1",               \
        "comm.timeout_s=60"

static int run(const struct folder *f, const char *name, int ranks, const char *const *more, struct err *e)
{
    char valid[128], cache[128];
    const char *keys[48] = {ELASTIC, valid, cache};
    int n = 0;
    snprintf(cache, sizeof cache, "data.cache_dir=%s/cache", f->dir);
    snprintf(valid, sizeof valid, "data.valid=%s", f->text);
    while (keys[n]) n++;
    for (int i = 0; more && more[i]; i++) keys[n++] = more[i];
    struct trainer_result r;
    int rc = train_ranks(f, name, ranks, keys, &r, e);
    if (!rc && r.steps != 6) fail_msg("%s: %lld steps", name, (long long)r.steps);
    return rc;
}

static void run_ok(const struct folder *f, const char *name, int ranks, const char *const *more)
{
    struct err e = {0};
    if (run(f, name, ranks, more, &e)) fail_msg("%s: %s", name, e.text);
}

/* The last checkpoints hold the same bytes. */
static void same_end(const struct folder *f, const char *a, const char *b, int files)
{
    for (int i = 0; i < files; i++) {
        char file[80];
        snprintf(file, sizeof file, "checkpoints/step-00000006/boxes-%05d.safetensors", i);
        same_file(f, a, b, file);
    }
}

/* Each step is there once, in order, and its loss is the other run's, up to `bound` parts of it. */
static void same_losses(const struct folder *f, const char *a, const char *b, double bound)
{
    struct json *x[64], *y[64];
    int n = read_metrics(f, a, x, 64), m = read_metrics(f, b, y, 64);
    assert_int_equal(n, m);
    for (int i = 0; i < n; i++) {
        const char *key = json_get(x[i], "loss") ? "loss" : "valid_loss";
        double p = json_real(json_get(x[i], key), -1), q = json_real(json_get(y[i], key), -2);
        if (json_int(json_get(x[i], "step"), -1) != json_int(json_get(y[i], "step"), -2))
            fail_msg("line %d of %s and %s is of another step", i + 1, a, b);
        if (!(fabs(p - q) <= bound * fabs(p))) fail_msg("line %d of %s and %s: %.9g, %.9g", i + 1, a, b, p, q);
        json_free(x[i]);
        json_free(y[i]);
    }
}

/* The last line of starts.jsonl: the caller frees it. Lines in all: *n. */
static struct json *last_start(const struct folder *f, const char *name, int *n)
{
    size_t bytes;
    char *text = read_file(f, name, "starts.jsonl", &bytes), *line = text;
    struct json *j;
    struct err e = {0};
    *n = 0;
    for (char *p = text, *end; (end = strchr(p, '\n')); p = end + 1) line = p, ++*n;
    if (json_parse(&j, line, strcspn(line, "\n"), "starts.jsonl", &e)) fail_msg("%s", e.text);
    xfree(text);
    return j;
}

static void clean(const struct folder *f, const char *name)
{
    char path[256];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    if (fs_remove_tree(path, &e)) fail_msg("%s", e.text);
}

/* A rank dies at its k-th operation, for k from the first to the last: while the run is set up, loads, trains, reduces,
 * compares, validates, saves, ends. A spare takes its place, and nobody sees it in what the run leaves. */
static void at_every_moment(const char *const *more, int ranks, int files, int cases)
{
    struct folder f;
    folder_open(&f);
    plan_none();
    run_ok(&f, "plain", ranks, more);
    int64_t ops[RANKS];
    for (int r = 0; r < RANKS; r++) ops[r] = atomic_load(&plan.ops[r]);
    for (int r = 0; r < ranks - 1; r++) assert_true(ops[r] > 30);
    for (int i = 0; i < cases; i += CASE_STRIDE) {
        int rank = i % (ranks - 1), n;
        int64_t k = 1 + (ops[rank] - 1) * i / (cases - 1);
        plan_none();
        plan_death(rank, k, NULL);
        struct err e = {0};
        if (run(&f, "struck", ranks, more, &e)) fail_msg("rank %d at operation %lld: %s", rank, (long long)k, e.text);
        same_end(&f, "plain", "struck", files);
        same_losses(&f, "plain", "struck", 0);
        struct json *j = last_start(&f, "struck", &n);
        const struct json *lost = json_get(j, "lost");
        if (json_int(json_get(j, "epoch"), -1) == 2) {
            assert_int_equal(json_size(lost), 1);
            assert_int_equal(json_int(json_at(lost, 0), -1), rank);
            assert_int_equal(json_int(json_get(j, "spares"), -1), 0);
            assert_true(json_real(json_get(j, "going_on_s"), -1) >= 0);
            size_t length;
            char says[32];
            snprintf(says, sizeof says, "rank %d is gone", rank);
            if (!strstr(json_string(json_get(j, "lost_why"), &length, ""), says)) fail_msg("no '%s'", says);
        } else if (k < ops[rank] - 3) { /* at its very end the others may be through already */
            fail_msg("rank %d at operation %lld of %lld: nobody went on", rank, (long long)k, (long long)ops[rank]);
        }
        json_free(j);
        clean(&f, "struck");
    }
    folder_close(&f);
}

static void test_at_every_moment(void **state)
{
    (void)state;
    at_every_moment(KEYS("run.spares=1"), 4, 3, 8);
}

static void test_sharded_parameters(void **state)
{
    (void)state;
    at_every_moment(KEYS("run.spares=1", "parallel.zero=3"), 3, 2, 4);
}

/* Servers hold the state, workers the gradients. */
static void test_parameter_server(void **state)
{
    (void)state;
    at_every_moment(KEYS("run.spares=1", "parallel.servers=1"), 4, 1, 4);
}

/* ---- several ---- */
static void test_two_at_once(void **state)
{
    (void)state;
    struct folder f;
    int n;
    folder_open(&f);
    const char *const *keys = KEYS("run.spares=2");
    plan_none();
    run_ok(&f, "plain", 5, keys);
    plan_none();
    plan_death(0, 60, NULL);
    plan_death(2, 60, NULL);
    run_ok(&f, "struck", 5, keys);
    same_end(&f, "plain", "struck", 3);
    same_losses(&f, "plain", "struck", 0);
    struct json *j = last_start(&f, "struck", &n);
    assert_true(n >= 2 && json_int(json_get(j, "spares"), -1) == 0);
    json_free(j);
    folder_close(&f);
}

/* The second one dies while the others take up what the first one's death interrupted: when they agree on a checkpoint,
 * and when they read it. */
static void test_during_recovery(void **state)
{
    static const char *const moments[] = {"which checkpoint", "what the data is", "planned bytes"};
    (void)state;
    struct folder f;
    int n;
    folder_open(&f);
    const char *const *keys = KEYS("run.spares=2");
    plan_none();
    run_ok(&f, "plain", 5, keys);
    for (size_t i = 0; i < sizeof moments / sizeof *moments; i++) {
        plan_none();
        plan_death(1, 3, "stop? data? waited?"); /* before the third step */
        plan_death(0, i == 0 ? 1 : 2, moments[i]);
        run_ok(&f, "struck", 5, keys);
        same_end(&f, "plain", "struck", 3);
        same_losses(&f, "plain", "struck", 0);
        struct json *j = last_start(&f, "struck", &n);
        assert_int_equal(json_int(json_get(j, "spares"), -1), 0);
        if (json_int(json_get(j, "epoch"), -1) == 3) { /* each death is told once */
            assert_int_equal(json_size(json_get(j, "lost")), 1);
            assert_int_equal(json_int(json_at(json_get(j, "lost"), 0), -1), 0);
        }
        json_free(j);
        clean(&f, "struck");
    }
    folder_close(&f);
}

/* The wall clock jumps an hour ahead or back when a rank dies, and another one waits for it by a thread of its own:
 * nobody waits for an hour, nothing that stays or is chosen depends on it, and who watches is told that the run is
 * finished. */
static void test_clocks_that_jump(void **state)
{
    (void)state;
    struct folder f;
    folder_open(&f);
    const char *const *keys =
        KEYS("run.spares=1", "comm.progress=thread", "checkpoint.keep=2", "checkpoint.every_s=0.2");
    plan_none();
    run_ok(&f, "plain", 4, keys);
    for (int hour = -1; hour <= 1; hour += 2) {
        char dir[200];
        struct run_view *p;
        struct err e;
        plan_none();
        plan_death(1, 4, "stop? data? waited?");
        beside.jumps_s = 3600 * hour;
        run_ok(&f, "struck", 4, keys);
        same_end(&f, "plain", "struck", 3);
        same_losses(&f, "plain", "struck", 0);
        snprintf(dir, sizeof dir, "%s/struck", f.dir);
        assert_int_equal(run_view_open(&p, dir, &e), OK);
        for (int look = 0; look < 2; look++) {
            assert_int_equal(run_view_look(p, &e), OK);
            assert_int_equal(p->state, RUN_VIEW_FINISHED);
            atomic_store(&ahead_s, 0); /* and back again */
        }
        assert_true(p->silent_s >= 0 && p->silent_s < 7200);
        double before = p->silent_s;
        atomic_store(&ahead_s, 7200); /* who looks on does not see two hours pass */
        assert_int_equal(run_view_look(p, &e), OK);
        assert_true(p->silent_s >= before && p->silent_s < before + 3600);
        run_view_close(p);
        atomic_store(&ahead_s, 0);
        beside.jumps_s = 0;
        clean(&f, "struck");
    }
    folder_close(&f);
}

/* Somebody edits the config while the run goes on: what is opened again is the run that was started. */
static void test_config_changed_meanwhile(void **state)
{
    (void)state;
    struct folder f;
    struct str text = {0};
    struct err e;
    struct trainer_result r;
    char path[160], dir[160];
    folder_open(&f);
    snprintf(path, sizeof path, "%s/c.yaml", f.dir);
    snprintf(dir, sizeof dir, "run.dir=%s/run", f.dir);
    str_printf(&text,
               "model: {layers: 1, hidden: 32, heads: 4, kv_heads: 2, ffn: 44, seq_len: 24}\n"
               "data: {train: %s}\nbatch: {global: 8, micro: 1}\n"
               "run: {steps: 6, threads: 1, elastic: true, spares: 1, tensorboard: false}\n"
               "checkpoint: {every: 2}\ncomm: {timeout_s: 60}\n",
               f.text);
    if (fs_write_atomic(path, text.p, text.n, &e)) fail_msg("%s", e.text);
    str_free(&text);
    plan_none();
    plan_death(1, 4, "stop? data? waited?");
    beside.spoils = path;
    char *keys[] = {dir};
    int rc = trainer_run(path, keys, 1, 4, &r, &e);
    beside.spoils = NULL;
    if (rc) fail_msg("%s", e.text);
    assert_int_equal(r.steps, 6);
    int n;
    struct json *j = last_start(&f, "run", &n);
    assert_int_equal(json_int(json_get(j, "epoch"), -1), 2);
    json_free(j);
    assert_int_equal(trainer_run(path, keys, 1, 4, &r, &e), ERR_REQUEST); /* the next start reads what it says now */
    folder_close(&f);
}

/* ---- with fewer ---- */
static void check_fewer(const struct folder *f, const char *const *keys, int ranks, int at_work, int spares)
{
    int n;
    plan_none();
    run_ok(f, "plain", ranks, keys);
    plan_none();
    plan_death(ranks - 2, 3, "stop? data? waited?");
    run_ok(f, "struck", ranks, keys);
    same_losses(f, "plain", "struck", 2e-4);
    struct json *j = last_start(f, "struck", &n);
    assert_int_equal(n, 2);
    assert_int_equal(json_int(json_get(j, "ranks"), -1), at_work);
    assert_int_equal(json_int(json_get(j, "spares"), -1), spares);
    assert_int_equal(json_int(json_get(j, "step"), -1), 2);
    json_free(j);
    clean(f, "plain");
    clean(f, "struck");
}

/* The batch stays as it is, and fewer ranks take more of it. */
static void test_with_fewer(void **state)
{
    (void)state;
    struct folder f;
    folder_open(&f);
    check_fewer(&f, KEYS("precision.recipe=fp32"), 4, 3, 0);
    check_fewer(&f, KEYS("precision.recipe=fp32", "parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=1"),
                4, 3, 0);
    check_fewer(&f, KEYS("precision.recipe=fp32", "parallel.tp=2"), 4, 2, 1); /* three are no whole copies */
    check_fewer(&f, KEYS("precision.recipe=fp32", "parallel.pp=2", "model.layers=2"), 4, 2, 1);
    check_fewer(&f, KEYS("precision.recipe=fp32"), 2, 1, 0);
    folder_close(&f);
}

/* A replica drops out whole: what is left shares out its state over as many ranks as was asked for. */
static void test_replica_drops_out(void **state)
{
    (void)state;
    struct folder f;
    int n;
    const char *const *keys =
        KEYS("precision.recipe=fp32", "parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=1");
    folder_open(&f);
    plan_none();
    run_ok(&f, "plain", 4, keys);
    plan_none();
    plan_death(1, 3, "stop? data? waited?");
    plan_death(2, 3, "stop? data? waited?");
    run_ok(&f, "struck", 4, keys);
    same_losses(&f, "plain", "struck", 2e-4);
    struct json *j = last_start(&f, "struck", &n);
    assert_string_equal(json_string(json_get(j, "mesh"), NULL, ""), "dp_shard 2");
    json_free(j);
    folder_close(&f);
}

/* State that was shared out over all ranks stays shared out over those that are left: whole on each it might not fit.
 */
static void test_stays_shared_out(void **state)
{
    (void)state;
    struct folder f;
    int n;
    static const char *const degrees[][2] = {{"parallel.dp_replicate=1", "parallel.dp_shard=4"},
                                             {"parallel.dp_replicate=2", "parallel.dp_shard=2"}}; /* 2 and 3: nothing */
    folder_open(&f);
    for (int i = 0; i < 2; i++) {
        const char *const *keys = KEYS("precision.recipe=fp32", "parallel.zero=1", degrees[i][0], degrees[i][1]);
        plan_none();
        run_ok(&f, "plain", 4, keys);
        plan_none();
        plan_death(2, 3, "stop? data? waited?");
        run_ok(&f, "struck", 4, keys);
        same_losses(&f, "plain", "struck", 2e-4);
        struct json *j = last_start(&f, "struck", &n);
        assert_string_equal(json_string(json_get(j, "mesh"), NULL, ""), "dp_shard 3");
        json_free(j);
        clean(&f, "plain");
        clean(&f, "struck");
    }
    folder_close(&f);
}

static void refuses(const struct folder *f, int ranks, const char *const *keys, const char *says)
{
    struct err e = {0};
    if (run(f, "no", ranks, keys, &e) == OK) fail_msg("'%s' was expected", says);
    if (!strstr(e.text, says)) fail_msg("no '%s' in '%s'", says, e.text);
}

static void test_ends_by_name(void **state)
{
    (void)state;
    struct folder f;
    folder_open(&f);
    plan_none();
    refuses(&f, 2, KEYS("run.elastic=false", "run.spares=1"), "run.spares: nobody takes in a spare");
    refuses(&f, 2, KEYS("run.spares=2"), "run.spares: 2 of the 2 ranks");
    refuses(&f, 2, KEYS("run.least_ranks=3"), "run.least_ranks: 3");
    refuses(&f, 2, KEYS("checkpoint.every=0"), "run.elastic");
    refuses(&f, 2, KEYS("checkpoint.resume=never"), "checkpoint.resume");
    refuses(&f, 2, KEYS("comm.check=true"), "comm.check");
    plan_none();
    plan_death(1, 2, "stop? data? waited?");
    refuses(&f, 3, KEYS("run.least_ranks=3"), "rank 1 is gone");
    plan_none();
    plan_death(1, 2, "stop? data? waited?");
    refuses(&f, 4, KEYS("parallel.tp=4"), "there is no layout of 1 to 3 ranks");
    plan_none(); /* nobody is left */
    plan_death(0, 2, "stop? data? waited?");
    plan_death(1, 2, "stop? data? waited?");
    struct err e = {0};
    int rc = run(&f, "none", 2, NULL, &e); /* who dies second may do so before or after it knows of the other */
    if (rc && !strstr(e.text, "gone")) fail_msg("'%s'", e.text);
    folder_close(&f);
}

int main(int argc, char **argv)
{
    if (argc > 2) return be_a_rank(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_every_moment),
        cmocka_unit_test(test_sharded_parameters),
        cmocka_unit_test(test_stays_shared_out),
        cmocka_unit_test(test_parameter_server),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_clocks_that_jump),
        cmocka_unit_test(test_config_changed_meanwhile),
        cmocka_unit_test(test_during_recovery),
        cmocka_unit_test(test_with_fewer),
        cmocka_unit_test(test_replica_drops_out),
        cmocka_unit_test(test_ends_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
