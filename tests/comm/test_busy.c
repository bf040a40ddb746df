/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps sched_yield board_left */
/* Who is late, on a machine that is busy or stands still: a rank that waits says so however long a turn on the
 * processor takes to come, and time in which the job itself was stopped is nobody's fault. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm/board.h"
#include "comm/comm.h"

#define TURN_S 12e-3 /* four others that compute, three milliseconds each */

static volatile bool crowded;

int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
    if (crowded) clock_sleep_s(TURN_S);
    return 0;
}

/* Rank 0 waits for 2, which waits for 1, patiently, which does nothing until that is found. */
static int run_behind(struct comm *c, void *arg, struct err *e)
{
    float x[8];
    (void)arg;
    while (comm_rank(c) == 1 && comm_status(c, NULL) == OK) clock_sleep_s(1e-3);
    if (comm_rank(c) == 2) comm_patience(c, 600);
    if (comm_rank(c) != 1) comm_wait(c, comm_recv(c, x, 8, DT_F32, comm_rank(c) ? 1 : 2, "activation"));
    return comm_status(c, e);
}

static void test_who_waits_says_so(void **state)
{
    (void)state;
    struct err e = {0};
    crowded = true;
    int rc = comm_run_local(3, &(struct comm_config){.timeout_s = 3}, run_behind, NULL, &e);
    crowded = false;
    assert_true(rc < 0);
    if (!strstr(e.text, "rank 1 is late") || !strstr(e.text, "through ranks that wait as well")) fail_msg("%s", e.text);
}

/* The others wait for the last rank, which has work for a fifth of the time that they would. */
static int run_long(struct comm *c, void *arg, struct err *e)
{
    bool asks = *(bool *)arg; /* instead of waiting */
    for (int i = 0; comm_rank(c) == comm_size(c) - 1 && i < 20; i++) clock_sleep_s(50e-3);
    int64_t ticket = comm_barrier(c, "after work");
    while (asks && !comm_done(c, ticket)) clock_sleep_s(50e-6);
    comm_wait(c, ticket);
    return comm_status(c, e);
}

static pid_t start(enum comm_progress progress, bool asks)
{
    pid_t job = fork();
    if (job) return job;
    struct err e = {0};
    int rc = comm_run_local(3, &(struct comm_config){.timeout_s = 5, .progress = progress}, run_long, &asks, &e);
    if (rc) fprintf(stderr, "%s\n", e.text);
    _exit(rc != 0);
}

/* Ranks that wait, whose thread waits, and that ask now and then. */
static void test_a_stopped_job_goes_on(void **state)
{
    (void)state;
    pid_t job[] = {start(COMM_INLINE, false), start(COMM_THREAD, false), start(COMM_INLINE, true)};
    int status[3];
    clock_sleep_s(0.3);
    for (int i = 0; i < 3; i++) kill(job[i], SIGSTOP);
    clock_sleep_s(5.5); /* longer than anybody waits */
    for (int i = 0; i < 3; i++) kill(job[i], SIGCONT);
    for (int i = 0; i < 3; i++) waitpid(job[i], &status[i], 0);
    for (int i = 0; i < 3; i++)
        if (!WIFEXITED(status[i]) || WEXITSTATUS(status[i])) fail_msg("job %d: status %#x", i, (unsigned)status[i]);
}

/* Who is not there yet may come, see it through and leave while it is looked for: between the look for who is missing
 * and that for who has left. */
static atomic_bool armed, comes;
static bool came_and_left;

bool __real_board_left(struct board *b, int row);
bool __wrap_board_left(struct board *b, int row);
bool __wrap_board_left(struct board *b, int row)
{
    if (row == 1 && atomic_exchange(&armed, false)) {
        atomic_store(&comes, true);
        for (int i = 0; i < 60000 && !__real_board_left(b, row); i++) clock_sleep_s(1e-3);
        came_and_left = __real_board_left(b, row);
    }
    return __real_board_left(b, row);
}

static int run_in_between(struct comm *c, void *arg, struct err *e)
{
    (void)arg;
    while (comm_rank(c) == 1 && !atomic_load(&comes)) clock_sleep_s(1e-3);
    comm_wait(c, comm_barrier(c, "the end"));
    return comm_status(c, e);
}

static void test_who_comes_and_leaves_is_not_missing(void **state)
{
    (void)state;
    struct err e = {0};
    atomic_store(&armed, true);
    int rc = comm_run_local(2, &(struct comm_config){.timeout_s = 600}, run_in_between, NULL, &e);
    if (rc) fail_msg("%s", e.text);
    assert_true(came_and_left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_comes_and_leaves_is_not_missing),
        cmocka_unit_test(test_who_waits_says_so),
        cmocka_unit_test(test_a_stopped_job_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
