/* SPDX-License-Identifier: Apache-2.0 */
/* place.h: where a program's bytes lie and how long: what who makes a program asks for when its lists are there, in
 * this order: until when what travels may be under way, then lifetimes, homes and offsets.
 * Order: Local. Floors 0-2.
 */
#ifndef TUTTI_PROGRAM_PLACE_H
#define TUTTI_PROGRAM_PLACE_H

#include "program/program.h"

bool instr_same_memory(const struct operand *a, const struct operand *b);
/* Whether an instruction touches what a row that travels reads or writes. */
bool instr_touches(const struct instr *i, const struct instr *travels);
/* Sets until when each row that travels may be under way; `until` beyond its own place is the latest. */
void program_finish_late(struct program *p);
/* Makes what instructions of a loop share with others live as long as the loop. */
void program_loops_live(struct program *p);
/* Lifetimes, homes, offsets. With n_wgrad > 0: how many microbatches are between F and B, and between F and W, at
 * worst; one slab for both where that is smaller. */
void program_place(struct program *p, int64_t n_act, int64_t n_wgrad);

#endif
