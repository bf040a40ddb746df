/* SPDX-License-Identifier: Apache-2.0 */
/* run_name.h: the name of a run: a number of 16 digits that is drawn when the run begins, stands in run.dir/name and in
 * the manifest of every checkpoint that it writes. By it a run knows its own, wherever they lie: nothing of another
 * name is fetched, counted or removed.
 *
 *   begins afresh, or from a checkpoint elsewhere                a new name
 *   goes on from its own, lost its disk and fetched a copy       the name stays
 *   goes on from what an older tutti wrote, which names no run   a new name, once
 *
 * Floor 8. Order: Local, rank 0.
 */
#ifndef TUTTI_KEEP_RUN_NAME_H
#define TUTTI_KEEP_RUN_NAME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/held.h"
#include "checkpoint/ckpt.h"

/* The number in a file of 16 digits and an end of line. what it names is said in errors.
 *   HELD_UNKNOWN   ERR_IO, or ERR_CORRUPT: it holds something else */
enum held digits_read(const char *path, const char *what, uint64_t *number, struct err *why);
/* Draws one, other than 0, and writes it there. */
int digits_draw(const char *path, uint64_t *number, struct err *e);

/* run.dir/name; HELD_NONE: the run has none yet. */
enum held run_name_read(const char *run_dir, uint64_t *name, struct err *why);
/* Whether this run may go on from a checkpoint of its own directory, without having been told to.
 *   fails   ERR_REQUEST: it names another run */
int run_name_check(const char *run_dir, const struct ckpt *c, struct err *e);
/* What the run is called from now on, when it is known what it goes on from. */
struct run_begins {
    const struct ckpt *from; /* NULL: afresh, or from memory */
    bool chosen, own;        /* as in struct resume */
    uint64_t fetched;        /* the run whose copy it goes on from; 0: none was fetched */
};
int run_name_settle(const char *run_dir, const struct run_begins *b, uint64_t *name, struct err *e);

#endif
