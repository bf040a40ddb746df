/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps clock_gettime */
/* Waits on a condition last as long as they were asked to, whatever the wall clock says meanwhile. The wall clock is
 * wrapped here. */
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
        for (double until = clock_now_s() + 0.1; clock_now_s() < until; waits++) cond_wait_s(&never, &lock, 0.01);
        pthread_mutex_unlock(&lock);
        pthread_cond_destroy(&never);
        assert_in_range(waits, 1, 50);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wall_clock_jumps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
