/* SPDX-License-Identifier: Apache-2.0 */
/* A clock for tests that promise "within seconds" on machines that do other things as well: fair_clock FILE PID
 * keeps a number of milliseconds in FILE until process PID, which started it, ends, then removes it.
 *
 * It lives as a rank that waits does: it yields and naps, again and again, and counts what a round takes, of a round
 * that was held up only the first MOST_MS. On a quiet machine that is the time; on a crowded one it goes slower, as
 * those it is held against do.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MOST_MS 4.0 /* a quiet machine takes 1.1 */

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    int f = argc == 3 ? open(argv[1], O_WRONLY | O_CREAT, 0600) : -1;
    if (f < 0) return perror("fair_clock FILE PID"), 2;
    pid_t parent = atoi(argv[2]);
    double fair_ms = 0, last_ms = now_ms();
    char text[24];
    while (getppid() == parent) {
        int n = snprintf(text, sizeof text, "%012.0f\n",
                         fair_ms); /* always as long, so a reader sees an old or a new one */
        if (pwrite(f, text, (size_t)n, 0) != n) break;
        sched_yield();
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        double round_ms = now_ms() - last_ms;
        last_ms += round_ms;
        fair_ms += round_ms < MOST_MS ? round_ms : MOST_MS;
    }
    unlink(argv[1]);
    return 0;
}
