/* SPDX-License-Identifier: Apache-2.0 */
/* shingles.h: a text as a set of hashes of its n-grams (Broder 1997), of words or of characters of its normal form
 * "words" (normal.h). A text of fewer than n words (characters), but of one at least, has one shingle, all of it; a
 * text without words has none. Includes: base. Order: Local.
 */
#ifndef TUTTI_CURATE_SHINGLES_H
#define TUTTI_CURATE_SHINGLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum { SHINGLE_MOST = 64 };
struct shingles {
    bool chars;
    int n; /* 1 to SHINGLE_MOST */

    uint64_t *hash; /* in the text's order; a shingle that comes twice is here twice */
    size_t count, room;
    struct str text; /* the normal form */
};
/* "words:5", "chars:9": 0, or -1 for anything else. */
int shingles_parse(struct shingles *s, const char *text);
void shingles_of(struct shingles *s, const char *text, size_t n); /* replaces what was there */
void shingles_free(struct shingles *s);
/* Sorts and drops equal ones: a set. */
void shingles_settle(struct shingles *s);
/* |a and b| / |a or b| of two sets; 0 where both are empty. */
double shingles_jaccard(const struct shingles *a, const struct shingles *b);

#endif
