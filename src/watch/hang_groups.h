/* SPDX-License-Identifier: Apache-2.0 */
/* hang_groups.h: ranks grouped by where they are, from the files that each process wrote (hang.h). A file:
 *
 *     WHY / process PID on HOST, TIME UTC / empty
 *     rank N: what it waits for                          a line for each rank of the process
 *     thread TID 'NAME' of rank N: STATE                 "of rank N": the thread that is the rank
 *         function (file:line)                           innermost first
 *
 * Files of other writers are read with care: lines that are none of these are passed over. Floor 0 only. Order: Local.
 */
#ifndef TUTTI_WATCH_HANG_GROUPS_H
#define TUTTI_WATCH_HANG_GROUPS_H

#include <stdbool.h>

#include "base/str.h"

#define HANG_FILE "stacks-rank%d.txt"
#define HANG_SUMMARY "stacks.txt"
#define HANG_RANK "rank "
#define HANG_FRAME "    "

/* Appends the groups of all ranks whose files in dir are at most so much older than the newest of them, largest group
 * first; false: there are none. */
bool hang_groups(const char *dir, double recent_s, struct str *out);
/* The same of one text after the other, for tests: adds what is in text to the ranks so far. */
struct hang_ranks;
struct hang_ranks *hang_ranks_new(void);
void hang_ranks_add(struct hang_ranks *r, const char *text);
void hang_ranks_print(struct hang_ranks *r, struct str *out);
void hang_ranks_free(struct hang_ranks *r);

#endif
