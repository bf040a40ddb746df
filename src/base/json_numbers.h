/* SPDX-License-Identifier: Apache-2.0 */
/* json_numbers.h: numbers of other programs' JSON that the library does not take. For json.c. Includes: base/str.h.
 * Order: Local. */
#ifndef TUTTI_BASE_JSON_NUMBERS_H
#define TUTTI_BASE_JSON_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

/* What stands in the document where there was a number without a finite value: nobody writes this one. */
#define JSON_NOT_FINITE (-1.7976931348623099e308)

/* Writes the text onto out with every such number spelt so that the library reads it; false, and nothing written, where
 * there is none. Lines stay the same lines. */
bool json_numbers_spell(struct str *out, const char *text, size_t n);

#endif
