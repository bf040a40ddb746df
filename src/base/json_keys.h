/* SPDX-License-Identifier: Apache-2.0 */
/* json_keys.h: object keys that hold NUL. JSON allows "\u0000" in a key, jansson does not; so such keys are spelt
 * without NUL before it sees them, and read back as what they were. For json.c only. Includes: str.h.
 */
#ifndef TUTTI_BASE_JSON_KEYS_H
#define TUTTI_BASE_JSON_KEYS_H

#include <stdbool.h>

#include "base/str.h"

/* Writes the document with the keys that hold NUL spelt otherwise; false (out untouched) when there is nothing to do.
 * Lines stay what they are; a document that is not valid JSON stays invalid. */
bool json_keys_spell(struct str *out, const char *text, size_t n);
/* Adds the key that `spelt` (as the library hands it out) stands for. */
void json_keys_read(struct str *out, const char *spelt);

#endif
