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

char *published_dir(const char *root, int64_t step);           /* root/step-00000500; xfree it */
char *published_temporary(const char *root, int64_t step);     /* root/.tmp-step-00000500; xfree it */
/* Reads dir's manifest and compares the sizes of its files; manifest_fini(m) after OK. */
int published_read(struct manifest *m, const char *dir, struct err *e);
/* Gives a finished temporary directory its published name, in one step even when that name is taken. */
int published_rename(const char *temporary, const char *final, struct err *e);
/* Points root/latest to dir (a child of root). */
int published_set_latest(const char *root, const char *dir, struct err *e);
/* One more than any publication below root. */
int published_next(const char *root, int64_t *publication, struct err *e);
/* Removes the earliest publications until `keep` complete ones are left; never `newest`. */
int published_prune(const char *root, int keep, const char *newest, struct err *e);
/* The published checkpoint that `latest` names or else the last by name; NULL: none; xfree it. For messages. */
char *published_any(const char *root);

#endif
