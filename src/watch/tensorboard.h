/* SPDX-License-Identifier: Apache-2.0 */
/* tensorboard.h: scalars in the event files that TensorBoard reads.
 *
 * One writer owns one file, DIR/events.out.tfevents.<seconds>.<host>. Nothing is ever appended to a file of an
 * earlier writer: a resumed run opens a new one, and the viewer joins all files of the directory. A reader may
 * look at the file at any time: it sees whole records, and at most one broken one at the end, which it skips
 * until the rest arrives.
 *
 * Invariants
 *   1. The first record carries the file version "brain.Event:2"; every record is framed with two checksums.
 *   2. The first failure is kept: later calls write nothing and tb_flush and tb_close report it. So a full disk
 *      costs the plot, and the caller decides whether it costs the run.
 *
 * Includes: base only. Order: Local; one thread at a time.
 */
#ifndef TUTTI_WATCH_TENSORBOARD_H
#define TUTTI_WATCH_TENSORBOARD_H

#include <stdint.h>

#include "base/err.h"

struct tb;

/* Makes the directory if needed and a new file in it. On failure *out is NULL. */
int tb_open(struct tb **out, const char *dir, struct err *e);
/* The path of the file, borrowed: its name holds the time and the host, so who wants to read the file, as tests do,
 * asks. */
const char *tb_path(const struct tb *tb);

/* One point of the curve `tag` (UTF-8, "train/loss": the part before the slash groups curves). The format keeps
 * values as 32-bit floats; NaN and infinities are legal. Buffered. */
void tb_scalar(struct tb *tb, const char *tag, int64_t step, double value);
/* Training goes on at `step`: the viewer forgets what earlier files say of this step and later ones. */
void tb_restart(struct tb *tb, int64_t step);

/* Hands what is buffered to the system; the first failure so far, if any. */
int tb_flush(struct tb *tb, struct err *e);
/* Flushes, closes and frees, also on failure. NULL is fine. */
int tb_close(struct tb *tb, struct err *e);

#endif
