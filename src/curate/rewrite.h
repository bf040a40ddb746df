/* SPDX-License-Identifier: Apache-2.0 */
/* rewrite.h: a document as a line of a .jsonl file. Includes: base. Order: Local. */
#ifndef TUTTI_CURATE_REWRITE_H
#define TUTTI_CURATE_REWRITE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

/* Appends p[0..n) as a JSON string; bytes that are no UTF-8 become U+FFFD. */
void rewrite_string(struct str *out, const char *p, size_t n);
/* Appends the record, a JSON object, with text[0..n) as the value of its member `column`: all else as it stands. False,
 * and nothing, where no member is spelt so. */
bool rewrite_record(struct str *out, const char *record, size_t record_n, const char *column, const char *text,
                    size_t n);
/* Appends the record's members as they stand, each behind ", ", but for `column` (of "a.b", where there is no such
 * member, a). One with a name that is among `ours` (up to a NULL) becomes original_NAME, or is left out where the
 * record has one of that name, too. */
void rewrite_others(struct str *out, const char *record, size_t record_n, const char *column, const char *const *ours);

#endif
