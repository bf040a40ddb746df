/* SPDX-License-Identifier: Apache-2.0 */
/* update_program.h: an update program: a unit's update as rows over the store's arrays and a step's words, written once
 * and enqueued at every step. Of what is stepped element by element, and of averages; what travels (Muon, Adafactor)
 * and arrays that wait elsewhere (staging.h) are stepped by calls.
 *
 * Written from the same functions that enqueue: their arrays have addresses that say which array and how far into it.
 * Floors 0-3. Order: Local. */
#ifndef TUTTI_OPTIM_UPDATE_PROGRAM_H
#define TUTTI_OPTIM_UPDATE_PROGRAM_H

#include "optim/optim.h"
#include "program/program.h"

/* What a row's slots are: the store's arrays, by number, then these. */
enum { OPTIM_SLOT_WIDEN = STORE_MAX_ARRAYS, OPTIM_SLOT_WIDE_MASTER, OPTIM_SLOT_WORDS, OPTIM_SLOTS };

/* Whether the store's arrays are all where kernels reach them. */
bool optim_lowers(const struct store *s);
/* Of parameters [first, first + n), in phase F; nothing runs, nothing is touched. program_free gives it back. */
struct program *optim_lower(const struct store *s, const struct optim_config *c, const struct kernel_table *t,
                            int first, int n);
void optim_bind(void *slot[OPTIM_SLOTS], const struct store *s, const struct buffer *words);

#endif
