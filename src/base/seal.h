/* SPDX-License-Identifier: Apache-2.0 */
/* seal.h: a JSON object whose last member is a checksum of all before it, so that a byte that a disk changed is told
 * from one that was written, whatever the member says.
 *
 *   {"format":"...", ...,
 *   "xxh64":"of every byte before the comma that precedes this member"}
 *
 * Includes: base. Order: Local.
 */
#ifndef TUTTI_BASE_SEAL_H
#define TUTTI_BASE_SEAL_H

#include "base/err.h"
#include "base/str.h"

/* Ends the object in `text`, which is open and has a member already. */
void seal_add(struct str *text);
/* what: its path; remedy: what to do when it is not what was written, NULL: the caller says it. ERR_CORRUPT. */
int seal_check(const char *text, size_t n, const char *what, const char *remedy, struct err *e);

#endif
