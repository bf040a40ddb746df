/* SPDX-License-Identifier: Apache-2.0 */
/* relaunch.h: a job that is started again when it dies, with a pause that grows and a limit that progress resets.
 *
 *   status 0     it is done, or was stopped and has saved
 *   status 2     the request is wrong: another start would say the same
 *   126, 127     there is no such program
 *   all others, and the end by a signal: it died, and is started again
 *
 * Signals that reach the launcher go on to the job, which saves and stops; then it is not started again. The job is in
 * a process group of its own, and gets SIGTERM when its launcher dies. Floor 10.
 */
#ifndef TUTTI_TRAIN_RELAUNCH_H
#define TUTTI_TRAIN_RELAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define RELAUNCH_AGAIN                                                                                                 \
    75 /* what mail programs mean by "try again": stopped by a signal before its last step, or given up on */

struct relaunch {
    char *const *argv;      /* the job, NULL-terminated */
    const char *run_dir;    /* where its steps are seen; NULL: nobody knows */
    int64_t restarts;       /* in a row without a step that was not there before */
    double pause_s, most_s; /* before the first of them, doubled each time, and at most */
    double quiet_s;         /* without a new step the job is killed; 0: never */
};
/* Runs it to the end; *status is the exit status for the caller. fails: ERR_IO, it could not be started. Local; no
 * other thread. */
int relaunch_run(const struct relaunch *l, int *status, struct err *e);

#endif
