/* SPDX-License-Identifier: Apache-2.0 */
/* beside_data.h: what is written beside data and is none: one table of names, which the walk through folders goes by
 * (source_list.c) and whose names their writers take from here.
 *
 * A row is a name, with * for any letters, and where a name alone may also be somebody's own data, the bytes that such
 * a file begins with. A file found in a folder that is of a row is passed over, and that is told; named by a person it
 * is read like any other. Whoever writes a new kind of file where data lie gives it a row here (or a name that begins
 * with a dot, which no walk gives): tests/data/test_beside.sh runs the commands and reads what they leave.
 *
 * Includes: libc. Order: Local.
 */
#ifndef TUTTI_SOURCE_BESIDE_DATA_H
#define TUTTI_SOURCE_BESIDE_DATA_H

#include <stdbool.h>
#include <stddef.h>

#define BESIDE_DEDUP_RESULT "dedup.json"
#define BESIDE_DEDUP_SCHEMA "tutti.dedup.1"
#define BESIDE_DEDUP_WORK "dedup.work"
#define BESIDE_DEDUP_LOCK "dedup.lock"
#define BESIDE_DEDUP_LIST "removed-%05lld.jsonl"
#define BESIDE_DEDUP_REMOVAL "{\"step\": \"" /* as each of its lines begins */
#define BESIDE_SKIPPED ".skipped"            /* behind the name of what was made without them */
#define BESIDE_UNFINISHED ".part"            /* behind the name that a file gets when it is whole */

struct beside {
    const char *name;
    const char *begins; /* NULL: the name says it all */
    bool folder;
    const char *is; /* "the report of tutti data dedup" */
};
enum { BESIDE_BYTES = 64 }; /* of a file's beginning, that its row may ask for */

/* The row of this name, without its folder; NULL: it is data. */
const struct beside *beside_of(const char *name, bool folder);
/* A file of the row begins so; white space counts for nothing. */
bool beside_begins(const struct beside *b, const char *p, size_t n);

#endif
