/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps comm_all_reduce stacks_take */
/* A training run of which rank 1 goes wrong in the middle, at the reduction of a gradient: it ends with what a
 * user must know first, its status is 1, and the flight recorder is in the run's folder. The program is the trainer
 * as it is; the linker puts this file between it and comm_all_reduce, and stacks_take (--wrap).
 *
 *     test_train_faults                          ranks as threads, all faults that a thread can have (cmocka)
 *     test_train_faults FAULT CONFIG KEYS...     a rank of a launcher, or alone: tests/train/mpi_train_faults.sh
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/stacks.h"
#include "base/str.h"
#include "comm/comm.h"
#include "train/trainer.h"
#include "scratch.h"

enum { CULPRIT = 1, STEP = 4, LATE_S = 5 };

static struct {
    char what[16];    /* the fault; "": none */
    atomic_int steps; /* reductions of the culprit's output layer so far */
} plan;

int64_t __real_comm_all_reduce(struct comm *c, const void *in, void *out, int64_t n, enum dtype t, enum comm_red r,
                               const char *what);
int64_t __wrap_comm_all_reduce(struct comm *c, const void *in, void *out, int64_t n, enum dtype t, enum comm_red r,
                               const char *what);

/* A thread must come back for its process to end. */
static void hang(struct comm *c)
{
    while (comm_status(c, NULL) == OK) clock_sleep_s(10e-3);
}

int64_t __wrap_comm_all_reduce(struct comm *c, const void *in, void *out, int64_t n, enum dtype t, enum comm_red r,
                               const char *what)
{
    bool mine = comm_world_rank(c, comm_rank(c)) == CULPRIT && !strcmp(what, "head.weight");
    bool now = mine && atomic_fetch_add(&plan.steps, 1) == STEP;
    if (now && !strcmp(plan.what, "operation")) return comm_broadcast(c, out, n, t, 0, what);
    if (now && !strcmp(plan.what, "count")) return __real_comm_all_reduce(c, in, out, n - 1, t, r, what);
    if (now && !strcmp(plan.what, "dtype")) return __real_comm_all_reduce(c, in, out, n, DT_I32, r, what);
    if (now && !strcmp(plan.what, "hang")) hang(c);
    if (now && !strcmp(plan.what, "exit")) _exit(0);
    if (now && !strcmp(plan.what, "kill")) raise(SIGKILL);
    return __real_comm_all_reduce(c, in, out, n, t, r, what);
}

/* On a busy machine a thread answers late: it has nearly the time that ranks wait for stacks. */
void __real_stacks_take(struct stacks *s, double within_s, struct stack **out, int *n);
void __wrap_stacks_take(struct stacks *s, double within_s, struct stack **out, int *n);
void __wrap_stacks_take(struct stacks *s, double within_s, struct stack **out, int *n)
{
    __real_stacks_take(s, within_s > 4.5 ? within_s : 4.5, out, n);
}

/* ---- a rank of a launcher ---- */
static int be_a_rank(int argc, char **argv)
{
    struct trainer_result r;
    struct err e = {0};
    snprintf(plan.what, sizeof plan.what, "%s", argv[1]);
    if (trainer_run(argv[2], argv + 3, argc - 3, 0, &r, &e) == OK) return 0;
    fprintf(stderr, "error: %s\n", e.text);
    return err_exit_status(e.code);
}

/* ---- threads ---- */
/* What is said, in this order, the first part at the beginning. */
#define DIFFER                                                                                                         \
    "ranks of dp_shard", " called different operations: rank 0: all_reduce #",                                         \
        "'head.weight' (sum 8224 f32) on dp_shard"
enum { PARTS = 6 };
static const struct row {
    const char *what, *says[PARTS];
} rows[] = {
    /* clang-format off */
    {"operation", {DIFFER, "; rank 1: broadcast #", "'head.weight' (8224 f32, root 0) on dp_shard", "; the operation differs"}},
    {"count", {DIFFER, "; rank 1: all_reduce #", "'head.weight' (sum 8223 f32) on dp_shard", "; the count differs"}},
    {"dtype", {DIFFER, "; rank 1: all_reduce #", "'head.weight' (sum 8224 i32) on dp_shard", "; the dtype differs"}},
    {"hang", {"rank 1 is late: all_reduce #", "'head.weight' (sum 8224 f32) on dp_shard", "has waited ", "(here: 0, 2); rank 1 "}},
    /* clang-format on */
};

/* For how long the first one waited who was asked. */
static void check_waited(const char *text)
{
    const char *at = strstr(text, "has waited ");
    double s = at ? strtod(at + strlen("has waited "), NULL) : 0;
    if (s < LATE_S) fail_msg("has not waited %d s: '%s'", LATE_S, text);
}

static void check_says(const struct row *row, const char *text)
{
    const char *at = text;
    for (int i = 0; i < PARTS && row->says[i]; i++) {
        at = strstr(at, row->says[i]);
        if (!at || (i == 0 && at != text)) fail_msg("%s: no '%s' at its place in '%s'", row->what, row->says[i], text);
    }
}

/* The recorder of one rank is there, and begins with the cause. */
static void check_recorder(const char *dir, const char *cause)
{
    struct err e = {0};
    char path[256], *text = NULL;
    size_t n;
    int found = 0;
    for (int r = 0; r < 3; r++) {
        snprintf(path, sizeof path, "%s/run/flight-rank%d.txt", dir, r);
        if (!fs_exists(path)) continue;
        if (fs_read_all(path, 1 << 22, &text, &n, &e)) fail_msg("%s", e.text);
        if (strncmp(text, cause, strlen(cause)) || text[strlen(cause)] != '\n') fail_msg("begins with %.300s", text);
        for (int k = 0; k < 3; k++) {
            char part[32];
            snprintf(part, sizeof part, "\nrank %d, the last ", k);
            if (!strstr(text, part)) fail_msg("no operations of rank %d in %s", k, path);
        }
        xfree(text);
        found++;
    }
    assert_int_equal(found, 1);
}

/* Who waits for whom, and where the one is that hangs. */
static void check_stacks(const char *dir)
{
    struct err e = {0};
    char path[256], *text = NULL;
    size_t n;
    snprintf(path, sizeof path, "%s/run/stacks.txt", dir);
    if (fs_read_all(path, 1 << 22, &text, &n, &e)) fail_msg("%s", e.text);
    static const char *const has[] = {" has waited ", "\n3 ranks in 2 places\n", "\nranks 0, 2\n", "comm_wait",
                                      "\nrank 1\n",   "__wrap_comm_all_reduce",  "trainer_rank"};
    const char *at = text;
    check_waited(text);
    for (size_t i = 0; i < sizeof has / sizeof *has; i++) {
        at = strstr(at, has[i]);
        if (!at) fail_msg("no '%s' at its place in %s", has[i], text);
    }
    xfree(text);
}

static void check(const struct row *row, const char *dir)
{
    char keys[16][320];
    char *list[16];
    static const char *const fixed[] = {"model.layers=1", "model.hidden=32",      "model.heads=4",
                                        "model.ffn=44",   "model.seq_len=24",     "batch.global=6",
                                        "batch.micro=1",  "run.steps=1000",       "parallel.reduce=step",
                                        "run.threads=1",  "run.tensorboard=false"};
    int n = 0;
    /* What is found only when ranks have waited for so long is not found; who is not late comes within five seconds. */
    snprintf(keys[n++], sizeof keys[0], "comm.timeout_s=%d", strcmp(row->what, "hang") ? 3600 : LATE_S);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) snprintf(keys[n++], sizeof keys[0], "%s", fixed[i]);
    snprintf(keys[n++], sizeof keys[0], "data.train=%s/text.txt", dir);
    snprintf(keys[n++], sizeof keys[0], "run.dir=%s/run", dir);
    for (int i = 0; i < n; i++) list[i] = keys[i];
    snprintf(plan.what, sizeof plan.what, "%s", row->what);
    atomic_store(&plan.steps, 0);
    struct trainer_result r;
    struct err e = {0};
    assert_int_not_equal(trainer_run(NULL, list, n, 3, &r, &e), OK);
    assert_int_equal(err_exit_status(e.code), 1);
    check_says(row, e.text);
    if (!strcmp(row->what, "hang")) check_waited(e.text);
    check_recorder(dir, e.text);
    if (!strcmp(row->what, "hang")) check_stacks(dir);
}

static void test_faults_of_threads(void **state)
{
    (void)state;
    struct err e = {0};
    struct str text = {0};
    for (int i = 0; i < 200; i++)
        str_printf(&text, "%d. The quick brown fox jumps over %d lazy dogs, and they sleep.\n", i, i * 7 % 9);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *dir = scratch_new(), path[64];
        snprintf(path, sizeof path, "%s/text.txt", dir);
        if (fs_write_atomic(path, text.p, text.n, &e)) fail_msg("%s", e.text);
        check(&rows[i], dir);
        scratch_free(dir);
    }
    str_free(&text);
}

int main(int argc, char **argv)
{
    if (argc > 2) return be_a_rank(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_faults_of_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
