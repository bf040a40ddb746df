/* SPDX-License-Identifier: Apache-2.0 */
/* signals_start.h: which signals this process was started with ignored (nohup, a shell's trap '' HUP).
 *
 * Asked before any library is set up: UCX, which Open MPI 5 loads, takes SIGHUP for itself while it is loaded, and
 * whoever asks in main hears of its handler. Where the system runs nothing that early, the answer is what main would
 * hear. Floors 0-1 only. Order: any.
 */
#ifndef TUTTI_TRAIN_SIGNALS_START_H
#define TUTTI_TRAIN_SIGNALS_START_H

#include <stdbool.h>

bool signals_start_ignored(int number);

#endif
