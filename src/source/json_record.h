/* SPDX-License-Identifier: Apache-2.0 */
/* json_record.h: the bytes of one JSON value as a record: an object whose member `column` is its text, or where whole
 * records are wanted the object itself. For format_jsonl.c and format_json.c. Includes: base, json_line.h,
 * record_format.h. Order: Local.
 */
#ifndef TUTTI_SOURCE_JSON_RECORD_H
#define TUTTI_SOURCE_JSON_RECORD_H

#include "source/json_line.h"
#include "source/record_format.h"

struct json_record {
    struct json_line line; /* the record, and the text in it, where one pass is enough; */
    struct json *record;   /* else all of it */
};
void json_record_fini(struct json_record *r);

/* p[0, n) as *out, whose offset is set: 1; 0: its text is empty or null, which is no document. where: "t.jsonl:12".
 *   fails   ERR_CORRUPT: no JSON, no object, no text, or the member twice */
int json_record_take(struct json_record *r, const struct record_file *f, const char *where, const char *p, size_t n,
                     struct record *out, struct err *e);
/* The value could be such a record: it is JSON, an object, and has a text (or null), where one is wanted. */
bool json_record_fits(const struct record_file *f, const char *p, size_t n);

#endif
