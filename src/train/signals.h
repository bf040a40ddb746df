/* SPDX-License-Identifier: Apache-2.0 */
/* signals.h: signals that would end the process become a wish that the trainer reads between steps.
 *
 *   SIGINT SIGTERM SIGHUP SIGUSR1 SIGUSR2 SIGXCPU   finish the step, save, stop. What was ignored at the start (nohup)
 *                                                   stays ignored, but for SIGINT and SIGTERM: shells ignore SIGINT for
 *                                                   what they start behind them, and whoever sends it by hand means it
 *   a second SIGINT or SIGTERM                      ends the process at once with status 128 + its number, if it comes
 *                                                   more than SIGNALS_GRACE_S after the first one: launchers, batch
 *                                                   systems and people signal the same process twice and mean one
 *                                                   request. The others never do (SIGXCPU comes every second)
 *   SIGQUIT (Ctrl-\)                                what signals_on_quit says; the run goes on
 *   the launcher's process is gone                  as SIGTERM, within about a second (signals_launched)
 *
 * While the run is set up there is nothing to save: whoever waits or works for long there reads signals_flag; if the
 * wish was not heard for SIGNALS_SETUP_S, the watcher ends the process with 128 + the signal's number.
 *
 * Signals are blocked in all threads and read by one watcher, so no code runs in signal context and nothing global is
 * written. The watcher never waits for stderr. Open before any other thread is started. Order: Local; one per process.
 */
#ifndef TUTTI_TRAIN_SIGNALS_H
#define TUTTI_TRAIN_SIGNALS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"

#define SIGNALS_GRACE_S 1.0
#define SIGNALS_SETUP_S 3.0

struct signals;
int signals_open(struct signals **s, struct err *e);
/* Once a stop was wanted the signals stay blocked: the process is about to end, and a second one must not make that a
 * failure. */
void signals_close(struct signals *s);
/* Called for each SIGQUIT by the watcher, which must not wait; value: what sigqueue brought with it, else 0. Before
 * that, and with NULL, they are passed over. */
typedef void signals_quit_fn(void *ctx, int value);
void signals_on_quit(struct signals *s, signals_quit_fn *fn, void *ctx);
/* Whether this process says what it will do: one of several is enough. Yes, until told otherwise. */
void signals_speak(struct signals *s, bool speaks);
/* This process has a launcher (mpirun, srun), which is its parent now: a run must not go on for ever after that was
 * killed. */
void signals_launched(struct signals *s);
/* The set-up is over: from now on a wish ends with a save. Every thread that shares s may say so. */
void signals_set_up(struct signals *s);
bool signals_stop_wanted(const struct signals *s);       /* NULL: never */
int signals_number(const struct signals *s);             /* which one, 0 none */
const atomic_int *signals_flag(const struct signals *s); /* becomes other than 0 with the first one; NULL for NULL */
const char *signals_name(int number);                    /* "SIGTERM" */

#endif
