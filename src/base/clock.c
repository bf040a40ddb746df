/* SPDX-License-Identifier: Apache-2.0 */
/* clock.c: seconds as doubles. 53 bits hold a wall time to a quarter of a microsecond and a monotonic time far
 * finer, which is all that tutti measures; integer nanoseconds were rejected because every user divides anyway.
 */
#include "base/clock.h"

#include <errno.h>
#include <time.h>

static double seconds(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double clock_now_s(void) { return seconds(CLOCK_MONOTONIC); }

double clock_wall_s(void) { return seconds(CLOCK_REALTIME); }

double clock_thread_s(void) { return seconds(CLOCK_THREAD_CPUTIME_ID); }

void clock_sleep_s(double s)
{
    if (!(s > 0)) return;
    struct timespec left = {.tv_sec = (time_t)s};
    left.tv_nsec = (long)((s - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) && errno == EINTR) continue; /* a signal does not shorten a sleep */
}
