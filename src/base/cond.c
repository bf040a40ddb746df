/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cond.h"

#include <time.h>

#include "base/clock.h"
#include "base/err.h"

void cond_init(pthread_cond_t *c)
{
    pthread_condattr_t how;
    CHECK(!pthread_condattr_init(&how) && !pthread_condattr_setclock(&how, CLOCK_MONOTONIC) &&
              !pthread_cond_init(c, &how),
          "no condition to be had");
    pthread_condattr_destroy(&how);
}

void cond_wait_s(pthread_cond_t *c, pthread_mutex_t *held, double s)
{
    double at = clock_now_s() + s;
    struct timespec until = {.tv_sec = (time_t)at};
    until.tv_nsec = (long)((at - (double)until.tv_sec) * 1e9);
    (void)pthread_cond_timedwait(c, held, &until);
}
