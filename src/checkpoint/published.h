/* SPDX-License-Identifier: Apache-2.0 */
/* published.h: the directory of published checkpoints, seen from inside this room: names, completeness, the
 * `latest` link, removal of the oldest. Outside, use ckpt.h.
 * Order: Local.
 */
#ifndef TUTTI_CHECKPOINT_PUBLISHED_H
#define TUTTI_CHECKPOINT_PUBLISHED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "checkpoint/manifest.h"

char *published_dir(const char *root, int64_t step);                  /* root/step-00000500; xfree it */
char *published_temporary(const char *root, int64_t step);            /* root/.tmp-step-00000500; xfree it */
char *published_boxes(const char *dir, int rank, const char *suffix); /* dir/boxes-RANK.suffix; xfree it */
/* Reads dir's manifest and compares the sizes of its files; manifest_fini(m) after OK.
 *   fails   ERR_CORRUPT: damaged, or a file is missing; ERR_REQUEST: a newer format; ERR_IO: could not be looked at */
int published_read(struct manifest *m, const char *dir, struct err *e);
/* Gives a finished temporary directory its published name, in one step even when that name is taken: a checkpoint that
 * can be read is replaced, one that cannot is moved aside. */
int published_rename(const char *temporary, const char *final, struct err *e);
/* The same whatever the one of that name is. */
int published_replace(const char *temporary, const char *final, struct err *e);
/* Reads dir's manifest alone. */
int published_manifest(struct manifest *m, const char *dir, struct err *e);
/* Points root/latest to dir (a child of root). */
int published_set_latest(const char *root, const char *dir, struct err *e);
/* Where root/latest points: the name, xfree it; NULL: there is no such link. ERR_IO: it cannot be looked at. */
int published_latest(const char *root, char **name, struct err *e);
/* step-00000500: 500; -1: not the name of a published checkpoint. */
int64_t published_step(const char *name);
/* More than any publication below root. */
int published_next(const char *root, int64_t *publication, struct err *e);
/* Removes complete ones, never `newest`: of the `keep` last published (0: all) none, and none whose step is a multiple
 * of keep_every (0: no such rule), nor that of step in_use (-1: none), nor the one that newest names as the best.
 * Another run's are neither counted nor removed. */
int published_prune(const char *root, int keep, int64_t keep_every, const char *newest, int64_t in_use, struct err *e);
/* Whether two checkpoints have one file of that name, by a hard link. */
bool published_shared(const char *dir, const char *other, const char *file);
/* The others of its directory that have dir's file, too: "step-00000010, step-00000020"; NULL: none; xfree it. */
char *published_sharers(const char *dir, const char *file);
/* The newest complete one, whatever else is there; NULL: none; xfree it. For messages. */
char *published_any(const char *root);

#endif
