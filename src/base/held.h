/* SPDX-License-Identifier: Apache-2.0 */
/* held.h: what a place holds, for whoever looked there: a file, a run's folder, memory of hosts, copies elsewhere.
 *
 * "It could not be read" is not "it is not there": who takes the one for the other begins afresh beside what there is,
 * writes over it, or goes on from something older. So there is a third answer, and it is the one that stops.
 *
 *   HELD_NONE      it was looked at, and there is nothing: begin
 *   HELD_KNOWN     it was read: go on from it
 *   HELD_UNKNOWN   it could not be looked at, or not wholly: a reason in words comes along. Nothing is begun, written
 *                  over, pruned or chosen instead of it; another place that is known to be whole may be gone on from
 *
 * It is the first one, so that what nobody has looked at is not "none".
 * Includes: base. Order: Local.
 */
#ifndef TUTTI_BASE_HELD_H
#define TUTTI_BASE_HELD_H

#include "base/err.h"

enum held { HELD_UNKNOWN, HELD_NONE, HELD_KNOWN };

/* Whether there is something at a path of this host. *why (may be NULL): of HELD_UNKNOWN, ERR_IO. */
enum held held_path(const char *path, struct err *why);

#endif
