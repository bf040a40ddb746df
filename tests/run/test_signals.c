/* SPDX-License-Identifier: Apache-2.0 */
/* The watcher of signals, in children of this process that do nothing but wait: which signals are a wish, which end the
 * process, and that it does not depend on what the process's other threads or stderr do. The program under signals is
 * in test_signals.sh. */
#include "run/toy.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "run/signals.h"

enum { STUCK = 1, SET_UP = 2, IGNORES = 4, SETS_UP_LATE = 8 };

static void *log_for_ever(void *arg)
{
    while (arg) log_line(LOG_INFO, "a line that nobody reads, so that the next one has no room");
    return NULL;
}

/* The child: says "r" when it watches, its first signal's number when it came, and ends with status 7 when it is sent a
 * byte. */
_Noreturn static void wait_in_child(int how, int say, int until)
{
    struct signals *s;
    struct err e;
    int fd[2], number = 0;
    pthread_t t;
    char c = 'r';
    if (how & IGNORES)
        for (int i = 1; i < 32; i++) signal(i, SIG_IGN);
    if (signals_open(&s, &e)) _exit(90);
    if (how & SET_UP) signals_set_up(s);
    if (how & STUCK) {
        if (pipe(fd) || dup2(fd[1], STDERR_FILENO) < 0 || pthread_create(&t, NULL, log_for_ever, s)) _exit(91);
        clock_sleep_s(0.2);
    }
    if (write(say, &c, 1) != 1) _exit(92);
    fcntl(until, F_SETFL, O_NONBLOCK);
    while (read(until, &c, 1) < 0) {
        if (!number && (number = signals_number(s))) {
            if (!signals_stop_wanted(s) || atomic_load(signals_flag(s)) != number) _exit(93);
            c = (char)number;
            if (write(say, &c, 1) != 1) _exit(94);
            if (how & SETS_UP_LATE) signals_set_up(s);
        }
        clock_sleep_s(0.002);
    }
    if (!(how & STUCK)) signals_close(s);
    _exit(7);
}

struct child {
    pid_t pid;
    int says, until;
};

static struct child start(int how)
{
    struct child c;
    int says[2], until[2];
    char got = 0;
    assert_true(!pipe(says) && !pipe(until));
    c.pid = fork();
    assert_true(c.pid >= 0);
    if (!c.pid) {
        close(until[1]);
        wait_in_child(how, says[1], until[0]);
    }
    close(says[1]);
    close(until[0]);
    c.says = says[0];
    c.until = until[1];
    assert_int_equal(read(c.says, &got, 1), 1);
    assert_int_equal(got, 'r');
    return c;
}

static void wished(const struct child *c, int number)
{
    char got = 0;
    assert_int_equal(read(c->says, &got, 1), 1);
    assert_int_equal(got, number);
}

static bool runs(const struct child *c) /* leaves it to be waited for */
{
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info.si_pid == 0;
}

/* Ends it if it still runs: 7; else how it ended. */
static int status_of(struct child *c)
{
    int status;
    if (runs(c)) assert_int_equal(write(c->until, "", 1), 1);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    close(c->says);
    close(c->until);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static const int wishes[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};
enum { N_WISHES = sizeof wishes / sizeof *wishes };

/* Each is a wish; that the same comes again, or another, within the grace time changes nothing; nor do, ever, those
 * that come again by themselves. */
static void test_wishes(void **state)
{
    (void)state;
    struct child c[N_WISHES];
    for (int i = 0; i < N_WISHES; i++) c[i] = start(SET_UP);
    double from = clock_now_s();
    for (int i = 0; i < N_WISHES; i++) {
        kill(c[i].pid, wishes[i]);
        wished(&c[i], wishes[i]);
    }
    for (int k = 0; k < 3; k++) /* 20 ms apart, and 400 */
        for (int i = 0; i < N_WISHES; i++) {
            if (clock_now_s() - from > 0.6 * SIGNALS_GRACE_S) break; /* a busy machine */
            clock_sleep_s(k ? 0.4 / N_WISHES / 2 : 0.02 / N_WISHES);
            kill(c[i].pid, wishes[i]);
            kill(c[i].pid, SIGTERM);
        }
    clock_sleep_s(SIGNALS_GRACE_S + 0.5);
    for (int i = 0; i < N_WISHES; i++)
        for (int k = 2; k < N_WISHES; k++) {
            clock_sleep_s(0.01);
            kill(c[i].pid, wishes[k]);
        }
    clock_sleep_s(0.1);
    for (int i = 0; i < N_WISHES; i++) assert_true(runs(&c[i]));
    kill(c[0].pid, SIGTERM); /* and now it means at once, with the last one's number */
    kill(c[1].pid, SIGINT);
    kill(c[2].pid, SIGTERM);
    for (int i = 0; i < 3; i++)
        for (int k = 0; runs(&c[i]); k++) {
            assert_true(k < 1000);
            clock_sleep_s(0.01);
        }
    assert_int_equal(status_of(&c[0]), 128 + SIGTERM);
    assert_int_equal(status_of(&c[1]), 128 + SIGINT);
    assert_int_equal(status_of(&c[2]), 128 + SIGTERM);
    for (int i = 3; i < N_WISHES; i++) assert_int_equal(status_of(&c[i]), 7);
}

/* nohup, and a script's background job. */
static void test_ignored(void **state)
{
    (void)state;
    struct child c = start(SET_UP | IGNORES), d = start(SET_UP | IGNORES);
    for (int i = 2; i < N_WISHES; i++) kill(c.pid, wishes[i]);
    clock_sleep_s(0.1);
    kill(c.pid, SIGINT);
    wished(&c, SIGINT);
    kill(d.pid, SIGTERM);
    wished(&d, SIGTERM);
    assert_int_equal(status_of(&c), 7);
    assert_int_equal(status_of(&d), 7);
}

/* A run that is stuck while it is set up ends soon; one that comes out of it does not. */
static void test_set_up(void **state)
{
    (void)state;
    struct child stuck = start(0), late = start(SETS_UP_LATE), quiet = start(0);
    kill(stuck.pid, SIGUSR1);
    kill(late.pid, SIGUSR1);
    double from = clock_now_s();
    wished(&stuck, SIGUSR1);
    wished(&late, SIGUSR1);
    int status;
    assert_int_equal(waitpid(stuck.pid, &status, 0), stuck.pid);
    assert_true(clock_now_s() - from > SIGNALS_SETUP_S - 0.5);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGUSR1);
    clock_sleep_s(0.3);
    assert_true(runs(&late) && runs(&quiet));
    assert_int_equal(status_of(&late), 7);
    assert_int_equal(status_of(&quiet), 7);
}

/* Every other thread of the process waits for room in stderr, or for the one that does. */
static void test_stuck_stderr(void **state)
{
    (void)state;
    struct child c = start(SET_UP | STUCK);
    kill(c.pid, SIGTERM);
    wished(&c, SIGTERM);
    clock_sleep_s(SIGNALS_GRACE_S + 0.5);
    assert_true(runs(&c));
    kill(c.pid, SIGTERM);
    for (int k = 0; runs(&c); k++) {
        assert_true(k < 1000);
        clock_sleep_s(0.01);
    }
    assert_int_equal(status_of(&c), 128 + SIGTERM);
}

/* After a wish a second signal must not kill the process on its last way; without one the signals are again what they
 * were. */
static void test_close(void **state)
{
    (void)state;
    for (int wish = 0; wish < 2; wish++) {
        pid_t pid = fork();
        if (!pid) {
            struct signals *s;
            struct err e;
            if (signals_open(&s, &e)) _exit(90);
            signals_set_up(s);
            if (wish) kill(getpid(), SIGTERM);
            while (wish && !signals_stop_wanted(s)) clock_sleep_s(0.001);
            signals_close(s);
            raise(SIGTERM);
            _exit(7);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (wish) assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        else assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wishes),       cmocka_unit_test(test_ignored), cmocka_unit_test(test_set_up),
        cmocka_unit_test(test_stuck_stderr), cmocka_unit_test(test_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
