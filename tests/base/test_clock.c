/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps clock_gettime nanosleep */
/* Waits last as long as they were asked to: on a condition whatever the wall clock says meanwhile, a sleep whatever
 * signals interrupt it. The wall clock and the sleep are wrapped here. */
#include <errno.h>
#include <math.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cond.h"

static long ahead_s; /* of the wall clock, as the program sees it */

int __real_clock_gettime(clockid_t which, struct timespec *t);
int __wrap_clock_gettime(clockid_t which, struct timespec *t);
int __wrap_clock_gettime(clockid_t which, struct timespec *t)
{
    int rc = __real_clock_gettime(which, t);
    if (which == CLOCK_REALTIME) t->tv_sec += ahead_s;
    return rc;
}

static struct {
    double slept_s;
    int calls, interrupted; /* those that are to come to half of their time */
} naps;

int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
    double s = (double)t->tv_sec + 1e-9 * (double)t->tv_nsec;
    assert_in_range(t->tv_nsec, 0, 999999999);
    if (naps.calls++ >= naps.interrupted) return naps.slept_s += s, 0;
    naps.slept_s += s / 2;
    left->tv_sec = (time_t)(s / 2);
    left->tv_nsec = (long)((s / 2 - (double)left->tv_sec) * 1e9);
    errno = EINTR;
    return -1;
}

static void test_sleep(void **state)
{
    (void)state;
    static const double s[] = {0.01, 1e-6, 0.999, 1, 3.25, 100};
    for (int interrupted = 0; interrupted < 3; interrupted++)
        for (size_t i = 0; i < sizeof s / sizeof *s; i++) {
            naps.slept_s = 0;
            naps.calls = 0;
            naps.interrupted = interrupted;
            clock_sleep_s(s[i]);
            assert_int_equal(naps.calls, interrupted + 1);
            if (fabs(naps.slept_s - s[i]) > 1e-8) fail_msg("slept %.9f s, not %.9f", naps.slept_s, s[i]);
        }
    naps.calls = 0;
    clock_sleep_s(-1);
    clock_sleep_s(0);
    assert_int_equal(naps.calls, 0);
}

static void test_clocks_run(void **state)
{
    (void)state;
    double a = clock_now_s(), b, used = clock_thread_s();
    do b = clock_now_s();
    while (b == a);
    assert_true(b > a);
    while (clock_thread_s() == used) continue;
    assert_true(clock_thread_s() > used);
    assert_true(clock_wall_s() > 1.6e9);
}

/* An hour ahead would make a wait one of an hour, an hour behind none at all: then they are too many. */
static void test_wall_clock_jumps(void **state)
{
    (void)state;
    for (ahead_s = -3600; ahead_s <= 3600; ahead_s += 3600) {
        pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        pthread_cond_t never;
        int waits = 0;
        cond_init(&never);
        pthread_mutex_lock(&lock);
        double until = clock_now_s() + 0.1;
        do {
            cond_wait_s(&never, &lock, 0.01);
            waits++;
        } while (clock_now_s() < until);
        pthread_mutex_unlock(&lock);
        pthread_cond_destroy(&never);
        assert_in_range(waits, 1, 50);
    }
    ahead_s = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sleep), cmocka_unit_test(test_clocks_run),
                                       cmocka_unit_test(test_wall_clock_jumps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
