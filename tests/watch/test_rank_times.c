/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps engine_new world_new tile_rate_registers rank_times_begin rank_times_step */
/* Who holds up the others: one rank that computes longer is named, one whose link is slow is named, and on a machine
 * that keeps now this rank from its core, now that one, nobody is. First the judgement alone, on made-up times with
 * noise of several kinds over many seeds; then runs as they are, in which the linker puts this file before engine_new
 * (to make one rank's computing longer), world_new (to make one rank's messages take longer) and the functions that
 * read what ranks computed (to make it the same for all, where another program on the machine must not be what is
 * found). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "comm/comm.h"
#include "engine/engine.h"
#include "told_rate.h"
#include "watch/rank_times.h"
#include "train/trainer.h"
#include "sanitized.h"
#include "scratch.h"

struct transport_ops; /* of comm/impl.h, whose names are others' here */
struct board;
struct world;

/* ---- the judgement ---- */
enum { RANKS = 6, W = RANK_TIME_WINDOW };

struct noise {
    double all, bursts, times; /* each rank and step: up to that share more; so often a burst of so many times */
};

static double chance(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}

/* A window in which rank `slow` computes `factor` times as long. All meet at the end of a step. */
static void fill(double *v, uint64_t seed, int slow, double factor, struct noise n)
{
    uint64_t s = seed * 7919 + 1;
    for (int i = 0; i < W; i++) {
        double most = 0;
        for (int r = 0; r < RANKS; r++) {
            double *x = v + ((int64_t)i * RANKS + r) * RANK_TIME_N;
            double c = 20e-3 * (1 + n.all * chance(&s)) * (r == slow ? factor : 1);
            if (chance(&s) < n.bursts) c *= n.times;
            x[RANK_TIME_FORWARD] = 0.3 * c;
            x[RANK_TIME_BACKWARD] = 0.6 * c;
            x[RANK_TIME_UPDATE] = 0.1 * c;
            if (c > most) most = c;
        }
        for (int r = 0; r < RANKS; r++) {
            double *x = v + ((int64_t)i * RANKS + r) * RANK_TIME_N;
            double c = x[RANK_TIME_FORWARD] + x[RANK_TIME_BACKWARD] + x[RANK_TIME_UPDATE];
            x[RANK_TIME_STEP] = most + 1e-3;
            x[RANK_TIME_WAIT] = most + 1e-3 - c;
        }
    }
}

static void test_judgement(void **state)
{
    (void)state;
    static const struct noise noises[] = {{0, 0, 1}, {0.1, 0, 1}, {0.3, 0.05, 3}, {1.0, 0.1, 5}, {0.05, 0.3, 10}};
    static double v[W * RANKS * RANK_TIME_N];
    double work[RANKS];
    int peers[RANKS] = {0}, alone[RANKS], named = 0, tried = 0;
    for (int r = 0; r < RANKS; r++) work[r] = 1e9, alone[r] = r;
    for (size_t k = 0; k < sizeof noises / sizeof *noises; k++)
        for (uint64_t seed = 0; seed < 400; seed++) {
            fill(v, seed, -1, 1, noises[k]);
            struct rank_times_verdict x = rank_times_judge(v, W, RANKS, work, peers);
            if (x.cause) fail_msg("noise %zu, seed %d: rank %d is innocent", k, (int)seed, x.rank);
            fill(v, seed, 4, 2, noises[k]);
            x = rank_times_judge(v, W, RANKS, work, peers);
            if (x.cause && x.rank != 4) fail_msg("noise %zu, seed %d: rank %d, not 4", k, (int)seed, x.rank);
            if (k < 3) named += x.cause == RANK_TIME_COMPUTE, tried++;
        }
    assert_true(named >= tried * 99 / 100);
    fill(v, 1, 4, 1.05, noises[0]); /* too little to matter */
    assert_int_equal(rank_times_judge(v, W, RANKS, work, peers).cause, RANK_TIME_NOBODY);
    fill(v, 1, 4, 2, noises[0]); /* twice the others, and less than a scheduler's doing; then of longer steps */
    for (int i = 0; i < W * RANKS * RANK_TIME_N; i++) v[i] *= 0.04;
    assert_int_equal(rank_times_judge(v, W, RANKS, work, peers).cause, RANK_TIME_NOBODY);
    for (int i = 0; i < W * RANKS * RANK_TIME_N; i++) v[i] *= 2;
    assert_int_equal(rank_times_judge(v, W, RANKS, work, peers).rank, 4);
    fill(v, 1, 4, 1.3, noises[0]); /* by its work it may take as long */
    work[4] = 1.3e9;
    assert_int_equal(rank_times_judge(v, W, RANKS, work, alone).cause, RANK_TIME_NOBODY);
    fill(v, 1, 4, 3, noises[0]);
    assert_int_equal(rank_times_judge(v, W, RANKS, work, alone).rank, 4);
    for (int i = 0; i < W; i++) /* it computes longer, and nobody waits for it */
        for (int r = 0; r < RANKS; r++) v[((int64_t)i * RANKS + r) * RANK_TIME_N + RANK_TIME_WAIT] = 1e-3;
    work[4] = 1e9;
    assert_int_equal(rank_times_judge(v, W, RANKS, work, peers).cause, RANK_TIME_NOBODY);
}

static void test_links(void **state)
{
    (void)state;
    const double slow[] = {1e-4, 1.2e-4, 2e-3, 0.9e-4}, even[] = {1e-4, 1.9e-4, 2e-4, 0.9e-4},
                 tiny[] = {1e-6, 1e-6, 20e-6, 1e-6}, two[] = {1e-3, 1e-3}, unknown[] = {0, 0, 2e-3, 0};
    struct rank_times_verdict v = rank_times_judge_links(slow, 4);
    assert_int_equal(v.cause, RANK_TIME_LINK);
    assert_int_equal(v.rank, 2);
    assert_int_equal(rank_times_judge_links(even, 4).cause, RANK_TIME_NOBODY);
    assert_int_equal(rank_times_judge_links(tiny, 4).cause, RANK_TIME_NOBODY); /* too little to matter */
    assert_int_equal(rank_times_judge_links(two, 2).cause, RANK_TIME_NOBODY);  /* of two none is the one */
    assert_int_equal(rank_times_judge_links(unknown, 4).cause, RANK_TIME_NOBODY);
}

/* ---- runs ---- */
static struct {
    int computes, links; /* the slow rank; -1: none */
    bool even;           /* ranks computed as long as each other, whatever this machine let them do */
} plan = {-1, -1, false};
static _Thread_local struct engine *here; /* this rank's */

int __real_engine_new(struct engine **out, const struct engine_config *c, struct device *d, struct err *e);
int __wrap_engine_new(struct engine **out, const struct engine_config *c, struct device *d, struct err *e);
struct world *__real_world_new(const struct transport_ops *ops, void *shared, struct board *board, int rank, int size,
                               const int *host, int sharers, const struct comm_config *cfg);
struct world *__wrap_world_new(const struct transport_ops *ops, void *shared, struct board *board, int rank, int size,
                               const int *host, int sharers, const struct comm_config *cfg);
static void watch(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    const struct engine *g = ctx;
    (void)p, (void)i;
    if (g->cfg.rank == plan.computes && c->op == OP_RMSNORM && c->phase == KERNEL_FWD)
        clock_sleep_s(SANITIZED ? 30e-3 : 3e-3); /* what the others compute takes longer there, too */
}

int __wrap_engine_new(struct engine **out, const struct engine_config *c, struct device *d, struct err *e)
{
    int rc = __real_engine_new(out, c, d, e);
    if (rc || d->counts_only) return rc;
    (*out)->watch = watch;
    (*out)->watch_ctx = *out;
    here = *out;
    return OK;
}

void __real_rank_times_begin(struct rank_times *p);
void __wrap_rank_times_begin(struct rank_times *p);
int __real_rank_times_step(struct rank_times *p, int64_t step, double step_s, struct rank_times_step *all,
                           struct rank_times_verdict *verdict, struct str *said, struct err *e);
int __wrap_rank_times_step(struct rank_times *p, int64_t step, double step_s, struct rank_times_step *all,
                           struct rank_times_verdict *verdict, struct str *said, struct err *e);
static _Thread_local double began[ENGINE_SPENT_N];

void __wrap_rank_times_begin(struct rank_times *p)
{
    memcpy(began, here->spent_s, sizeof began);
    __real_rank_times_begin(p);
}

int __wrap_rank_times_step(struct rank_times *p, int64_t step, double step_s, struct rank_times_step *all,
                           struct rank_times_verdict *verdict, struct str *said, struct err *e)
{
    for (int k = 0; k < ENGINE_SPENT_N && plan.even; k++) here->spent_s[k] = began[k] + 1e-3;
    return __real_rank_times_step(p, step, step_s, all, verdict, said, e);
}

struct world *__wrap_world_new(const struct transport_ops *ops, void *shared, struct board *board, int rank, int size,
                               const int *host, int sharers, const struct comm_config *cfg)
{
    struct comm_config mine = cfg ? *cfg : (struct comm_config){0};
    if (rank == plan.links) mine.link_latency_s = 4e-3;
    return __real_world_new(ops, shared, board, rank, size, host, sharers, &mine);
}

static char *metrics_of(const char *dir, const char *name)
{
    char path[256], *text;
    size_t n;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/run/%s", dir, name);
    if (fs_read_all(path, 4 << 20, &text, &n, &e)) fail_msg("%s", e.text);
    return text;
}

static char *train(int steps, int ranks)
{
    struct str text = {0};
    struct err e = {0};
    struct trainer_result r;
    char *dir = scratch_new(), path[256], keys[32][320], *list[32];
    static const char *const fixed[] = {"model.layers=1",        "model.hidden=16",     "model.heads=2",
                                        "model.ffn=20",          "model.seq_len=16",    "batch.micro=1",
                                        "checkpoint.every=0",    "run.threads=1",       "comm.timeout_s=60",
                                        "run.tensorboard=false", "run.compare_every=0", "run.rank_times=true"};
    int n = 0;
    for (int i = 0; i < 200; i++) str_printf(&text, "%d. The quick brown fox jumps over %d dogs.\n", i, i * 7 % 9);
    snprintf(path, sizeof path, "%s/text.txt", dir);
    if (fs_write_atomic(path, text.p, text.n, &e)) fail_msg("%s", e.text);
    str_free(&text);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) snprintf(keys[n++], sizeof keys[0], "%s", fixed[i]);
    snprintf(keys[n++], sizeof keys[0], "batch.global=%d", ranks);
    snprintf(keys[n++], sizeof keys[0], "run.steps=%d", steps);
    snprintf(keys[n++], sizeof keys[0], "data.train=%s/text.txt", dir);
    snprintf(keys[n++], sizeof keys[0], "run.dir=%s/run", dir);
    for (int i = 0; i < n; i++) list[i] = keys[i];
    if (trainer_run(NULL, list, n, ranks, &r, &e)) fail_msg("%s", e.text);
    return dir;
}

/* The straggler that metrics name first; its cause in *cause. -1: nobody. */
static int64_t straggler(const char *dir, char cause[16])
{
    char *text = metrics_of(dir, "metrics.jsonl"), *end;
    int64_t rank = -1;
    for (char *at = text; rank < 0 && (end = strchr(at, '\n')); at = end + 1) {
        struct json *v;
        if (json_parse(&v, at, (size_t)(end - at), "metrics", NULL)) fail_msg("a line that is no JSON");
        const struct json *s = json_get(v, "straggler");
        if (s) rank = json_int(json_get(s, "rank"), -1);
        if (s) snprintf(cause, 16, "%s", json_string(json_get(s, "cause"), NULL, ""));
        json_free(v);
    }
    xfree(text);
    return rank;
}

/* Times of all ranks are there, in order of steps, and a step's parts take no more than the step. */
static void check_times(const char *dir, int steps, size_t ranks)
{
    char *text = metrics_of(dir, "rank-times.jsonl"), *at = text, *end;
    for (int64_t step = 1; step <= steps; step++, at = end + 1) {
        struct json *v;
        end = strchr(at, '\n');
        assert_non_null(end);
        assert_int_equal(json_parse(&v, at, (size_t)(end - at), "times", NULL), OK);
        assert_int_equal(json_int(json_get(v, "step"), -1), step);
        for (int k = 0; k < RANK_TIME_N; k++) assert_int_equal(json_size(json_get(v, rank_times_names[k])), ranks);
        for (size_t r = 0; r < ranks; r++) {
            double step_s = json_real(json_at(json_get(v, "step_s"), r), 0), sum = 0;
            for (int k = RANK_TIME_FORWARD; k < RANK_TIME_N; k++)
                sum += json_real(json_at(json_get(v, rank_times_names[k]), r), 0);
            assert_true(json_real(json_at(json_get(v, "forward_s"), r), 0) > 0);
            if (sum > 1.001 * step_s + 1e-6) fail_msg("parts of a step take %g s of its %g s", sum, step_s);
        }
        json_free(v);
    }
    assert_int_equal(*at, 0);
    xfree(text);
    text = metrics_of(dir, "metrics.jsonl");
    assert_non_null(strstr(text, "\"slowest\""));
    xfree(text);
}

static void test_slow_computing(void **state)
{
    (void)state;
    char cause[16] = "";
    plan.computes = 2;
    char *dir = train(W + 2, 3);
    plan.computes = -1;
    int64_t rank = straggler(dir, cause);
    if (rank != 2 || strcmp(cause, "compute")) fail_msg("rank %d, %s", (int)rank, cause);
    check_times(dir, W + 2, 3);
    scratch_free(dir);
}

/* A machine that keeps all ranks from their cores for longer than the link takes hides it: then nobody is named, and it
 * is tried again. Whoever is named is the one. */
static void test_slow_link(void **state)
{
    (void)state;
    char cause[16] = "";
    int64_t rank = -1;
    plan.links = 1;
    plan.even = true;
    for (int tries = 0; tries < 12 && rank < 0; tries++) {
        char *dir = train(2 * W + 2, 4);
        rank = straggler(dir, cause);
        scratch_free(dir);
    }
    plan.links = -1;
    plan.even = false;
    if (rank != 1 || strcmp(cause, "link")) fail_msg("rank %d, %s", (int)rank, cause);
}

/* Four ranks that compute alike, on what cores there are: none waits for another's computing, and links are as quick as
 * each other however late their messages are. */
static void test_nobody(void **state)
{
    (void)state;
    char cause[16] = "";
    plan.even = true;
    char *dir = train(2 * W + 2, 4);
    plan.even = false;
    if (straggler(dir, cause) >= 0) fail_msg("an innocent rank is named");
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_judgement), cmocka_unit_test(test_links),
                                       cmocka_unit_test(test_slow_computing), cmocka_unit_test(test_slow_link),
                                       cmocka_unit_test(test_nobody)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
