/* SPDX-License-Identifier: Apache-2.0 */
/* json_line.h: a line of .jsonl in one pass, without making a tree of it: whether it is an object, and the text of one
 * member.
 *
 * What it takes for an object the library behind base/json.h takes for the same one (tests compare them on lines of
 * every kind, whole and damaged). What is rare or wrong it leaves to that: keys with escapes, NUL, half surrogates,
 * nesting of more than 64, a byte order mark, syntax errors. Includes: base, text. Order: Local.
 */
#ifndef TUTTI_SOURCE_JSON_LINE_H
#define TUTTI_SOURCE_JSON_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

struct json_line {
    struct str text;   /* of the member, without escapes; reused from line to line */
    bool has_text;     /* the member is there, and a string (of equal keys the last one counts) */
    bool twice;        /* the member is there more than once */
    int64_t n_members; /* of the object, equal keys counted each */
};
/* True: it is an object, read as base/json.h would. False: ask that. name: of the member, without dots; NULL: none. */
bool json_line_read(struct json_line *l, const char *p, size_t n, const char *name);

#endif
