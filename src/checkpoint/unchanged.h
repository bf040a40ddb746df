/* SPDX-License-Identifier: Apache-2.0 */
/* unchanged.h: what of a rank's boxes stands still: it is, byte for byte, what the newest checkpoint has of it.
 * Includes: ckpt.h, manifest.h. Order: Local.
 */
#ifndef TUTTI_CHECKPOINT_UNCHANGED_H
#define TUTTI_CHECKPOINT_UNCHANGED_H

#include "checkpoint/ckpt.h"
#include "checkpoint/manifest.h"

/* Boxes that stand still get a file of their own when they are at least this part of what the rank holds: a file that
 * is never written again costs one that is opened at every reading. */
enum { STILL_PART = 16 };

/* Of a file that is linked so many times in a row, every byte was compared. */
enum { STILL_TURNS = 16 };

/* For a rank's part list, whose files[0] is the file that is to be written and has room for STILL_FILES_MOST more:
 * decides for each of its tensors, held[i], in which file its box is to be (box.file). Files of the newest checkpoint
 * below root all of whose boxes stand still are linked into dir and added to the list. known[i]: its sums are filled
 * in. Returns the position of a file that is to be written beside the first, for boxes that are new to stand still; 0:
 * none. A file that cannot be linked is said, and its boxes are written. */
int unchanged_plan(const char *root, const char *dir, int rank, const struct ckpt_tensor *const *held,
                   struct manifest *part, bool *known);
enum { STILL_FILES_MOST = STILL_PART + 1 };

#endif
