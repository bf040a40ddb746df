/* SPDX-License-Identifier: Apache-2.0 */
/* parts_sweep.h: a folder of parts, part-00000.jsonl ... beside a file of progress, when its maker starts: what another
 * start left unfinished goes. A part is hidden (".part-...tmp") until it is whole. Includes: base. Order: Local; under
 * the folder's lock. */
#ifndef TUTTI_CURATE_PARTS_SWEEP_H
#define TUTTI_CURATE_PARTS_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* The path of a part; hidden: while it is written. plain: not packed. xfree it. */
char *parts_path(const char *folder, int64_t part, bool plain, bool hidden);
/* Removes hidden parts and what writers of the file `progress` left. *other: a name that is no maker's of parts, or
 * NULL; xfree it. */
int parts_sweep(const char *folder, const char *progress, char **other, struct err *e);

#endif
