/* SPDX-License-Identifier: Apache-2.0 */
/* sample_field.h: where a field of a shard's sample lies, as people name it: an extension (cls), or a value in a .json
 * (json[meta][class], json[0]); several with commas between, the first that a sample has. And lists of extensions
 * ("jpg,png" or "jpg;png"). For format_fields.c, and the data room's samples of pictures. Includes: base. Order: Local.
 */
#ifndef TUTTI_SOURCE_SAMPLE_FIELD_H
#define TUTTI_SOURCE_SAMPLE_FIELD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/json.h"

enum { FIELD_WAYS = 8, FIELD_STEPS = 8, FIELD_WORD = 64 };
/* One place where it may be: an extension, and then steps into its JSON. */
struct field_way {
    char extension[FIELD_WORD];
    char step[FIELD_STEPS][FIELD_WORD];
    int n_steps;
};
struct sample_field {
    struct field_way way[FIELD_WAYS];
    int n;
};

/* what: whose place it is, for errors: "a label". ERR_REQUEST. */
int sample_field_read(struct sample_field *f, const char *text, const char *what, struct err *e);
/* The value there, borrowed; NULL: there is none. */
const struct json *field_way_value(const struct field_way *w, const struct json *root);
bool field_names(const char *list, const char *extension); /* letters of any size */
/* Bytes of a member's name that are its sample's key; an extension follows behind a dot. 0: the name has none. */
size_t sample_key(const char *name);

#endif
