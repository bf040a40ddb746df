/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps clock_now_s */
/* The watcher of signals, in children of this process that do nothing but wait: which signals are a wish, which end the
 * process, and that it does not depend on what the process's other threads or stderr do. Its clock is this file's, and
 * stands still until a test turns it. The program under signals is in test_signals.sh. */
#include "toy.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/signals.h"

enum { STUCK = 1, SET_UP = 2, IGNORES = 4, SETS_UP_LATE = 8 };

static atomic_llong *now_ms; /* of all children; shared memory */
double __wrap_clock_now_s(void);
double __wrap_clock_now_s(void) { return 1e-3 * (double)atomic_load(now_ms); }
static void clock_is(double s) { atomic_store(now_ms, (long long)(1e3 * s + 0.5)); }

static void has_heard(void *ctx, int value)
{
    const int *say = ctx;
    if (value || write(*say, "q", 1) != 1) _exit(95);
}

static void *log_for_ever(void *arg)
{
    while (arg) log_line(LOG_INFO, "a line that nobody reads, so that the next one has no room");
    return NULL;
}

/* The child: says "r" when it watches, its first signal's number when it came, "q" for each SIGQUIT, and ends with
 * status 7 when it is sent a byte. */
__attribute__((noreturn)) static void wait_in_child(int how, int say, int until)
{
    struct signals *s;
    struct err e;
    int fd[2], number = 0;
    pthread_t t;
    char c = 'r';
    if (how & IGNORES)
        for (int i = 1; i < 32; i++) signal(i, SIG_IGN);
    if (signals_open(&s, &e)) _exit(90);
    signals_on_quit(s, has_heard, &say);
    if (how & SET_UP) signals_set_up(s);
    if (how & STUCK) {
        if (pipe(fd) || dup2(fd[1], STDERR_FILENO) < 0 || pthread_create(&t, NULL, log_for_ever, s)) _exit(91);
        struct pollfd room = {.fd = fd[1], .events = POLLOUT};
        while (poll(&room, 1, 0) > 0) clock_sleep_s(0.001);
    }
    if (write(say, &c, 1) != 1) _exit(92);
    fcntl(until, F_SETFL, O_NONBLOCK);
    while (read(until, &c, 1) < 0) {
        if (!number && (number = signals_number(s))) {
            if (!signals_stop_wanted(s) || atomic_load(signals_flag(s)) != number) _exit(93);
            c = (char)number;
            if (how & SETS_UP_LATE) signals_set_up(s);
            if (write(say, &c, 1) != 1) _exit(94);
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

static void says(const struct child *c, int what)
{
    char got = 0;
    assert_int_equal(read(c->says, &got, 1), 1);
    assert_int_equal(got, what);
}

static bool pending(const struct child *c)
{
    char path[64], line[128];
    unsigned long long set = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)c->pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) && sscanf(line, "ShdPnd: %llx", &set) != 1) continue;
    fclose(f);
    return set != 0;
}

/* The watcher has looked at all that was sent, and at the clock since it was set: it waits again. The first answer is
 * given amid whatever it was at, the second behind it. */
static void settled(const struct child *c)
{
    while (pending(c)) clock_sleep_s(0.001);
    for (int i = 0; i < 2; i++) {
        kill(c->pid, SIGQUIT);
        says(c, 'q');
    }
}

static void wished(const struct child *c, int number)
{
    says(c, number);
    settled(c);
}

static void until_over(const struct child *c) /* leaves it to be waited for */
{
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOWAIT), 0);
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
    clock_is(100);
    for (int i = 0; i < N_WISHES; i++) c[i] = start(SET_UP);
    for (int i = 0; i < N_WISHES; i++) {
        kill(c[i].pid, wishes[i]);
        wished(&c[i], wishes[i]);
    }
    for (int k = 0; k < 3; k++) {
        clock_is(100 + k * 0.45 * SIGNALS_GRACE_S);
        for (int i = 0; i < N_WISHES; i++) {
            kill(c[i].pid, wishes[i]);
            kill(c[i].pid, SIGTERM);
            settled(&c[i]);
        }
    }
    clock_is(100 + SIGNALS_GRACE_S + 0.5);
    for (int i = 0; i < N_WISHES; i++)
        for (int k = 2; k < N_WISHES; k++) {
            kill(c[i].pid, wishes[k]);
            settled(&c[i]);
        }
    for (int i = 0; i < N_WISHES; i++) assert_true(runs(&c[i]));
    kill(c[0].pid, SIGTERM); /* and now it means at once, with the last one's number */
    kill(c[1].pid, SIGINT);
    kill(c[2].pid, SIGTERM);
    for (int i = 0; i < 3; i++) until_over(&c[i]);
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
    settled(&c);
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
    clock_is(100);
    struct child stuck = start(0), late = start(SETS_UP_LATE), quiet = start(0);
    kill(stuck.pid, SIGUSR1);
    kill(late.pid, SIGUSR1);
    wished(&stuck, SIGUSR1);
    wished(&late, SIGUSR1);
    clock_is(100 + SIGNALS_SETUP_S - 0.01);
    settled(&stuck);
    assert_true(runs(&stuck));
    clock_is(100 + SIGNALS_SETUP_S + 0.01);
    until_over(&stuck);
    assert_int_equal(status_of(&stuck), 128 + SIGUSR1);
    settled(&late);
    settled(&quiet);
    assert_true(runs(&late) && runs(&quiet));
    assert_int_equal(status_of(&late), 7);
    assert_int_equal(status_of(&quiet), 7);
}

/* Every other thread of the process waits for room in stderr, or for the one that does. */
static void test_stuck_stderr(void **state)
{
    (void)state;
    clock_is(100);
    struct child c = start(SET_UP | STUCK);
    kill(c.pid, SIGTERM);
    wished(&c, SIGTERM);
    clock_is(100 + SIGNALS_GRACE_S + 0.5);
    settled(&c);
    assert_true(runs(&c));
    kill(c.pid, SIGTERM);
    until_over(&c);
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
    now_ms = mmap(NULL, sizeof *now_ms, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (now_ms == MAP_FAILED) return perror("mmap"), 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wishes),       cmocka_unit_test(test_ignored), cmocka_unit_test(test_set_up),
        cmocka_unit_test(test_stuck_stderr), cmocka_unit_test(test_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
