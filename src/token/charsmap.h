/* SPDX-License-Identifier: Apache-2.0 */
/* charsmap.h: SentencePiece's normalisation rules as tokenizer.json carries them ("precompiled_charsmap"): a trie over
 * the texts to replace (a double array, 4 bytes a unit) and the texts that replace them, each ended by a NUL.
 *
 * Includes: base. Order: Local; read-only.
 */
#ifndef TUTTI_TOKEN_CHARSMAP_H
#define TUTTI_TOKEN_CHARSMAP_H

#include <stddef.h>

#include "base/err.h"

struct charsmap;
/* From its base64 text. ERR_CORRUPT: no base64, sizes that do not fit, replacements that are not UTF-8. */
int charsmap_new(struct charsmap **m, const char *base64, size_t n, const char *what, struct err *e);
void charsmap_free(struct charsmap *m); /* NULL is fine */

/* The replacement of the *shortest* text in the map that p[0..n) begins with, which is what the reference takes, for
 * all of p[0..n); NULL when there is none. *out_n gets its bytes. */
const char *charsmap_find(const struct charsmap *m, const unsigned char *p, size_t n, size_t *out_n);

#endif
