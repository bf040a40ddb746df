/* SPDX-License-Identifier: Apache-2.0 */
/* seen.h: which names have come already, in lists that a server gives in pages: one that comes again means that the
 * list goes in a circle, wherever it closes. 16 bytes a name (base/hash.h: wide enough to stand for it), at most twice
 * that.
 * Includes: base. Order: Local.
 */
#ifndef TUTTI_REMOTE_SEEN_H
#define TUTTI_REMOTE_SEEN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/hash.h"

struct seen { /* begin with {0} */
    struct hash128 *slot;
    size_t n, room;
};
/* False: it was there. */
bool seen_add(struct seen *s, const char *name);
void seen_free(struct seen *s);

#endif
