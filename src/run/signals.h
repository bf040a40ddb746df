/* signals.h: Ctrl-C and SIGTERM become a wish that the trainer reads between steps.
 *
 * The first signal asks to finish the step, save and stop; a second one ends the process at once. The signals are
 * blocked in all threads and read by one watcher, so no code runs in signal context and nothing global is written.
 * Open before any other thread is started. Order: Local; one per process.
 */
#ifndef TUTTI_RUN_SIGNALS_H
#define TUTTI_RUN_SIGNALS_H

#include <stdbool.h>

#include "base/err.h"

struct signals;
int signals_open(struct signals **s, struct err *e);
void signals_close(struct signals *s);
/* Whether this process says what it will do: one of several is enough. Yes, until told otherwise. */
void signals_speak(struct signals *s, bool speaks);
bool signals_stop_wanted(const struct signals *s); /* NULL: never */
int signals_number(const struct signals *s);       /* which one, 0 none */

#endif
