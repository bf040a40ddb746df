/* SPDX-License-Identifier: Apache-2.0 */
/* normal.h: the form in which two texts are compared, and its words.
 *
 *   bytes   the text as it is
 *   space   each run of white space (Unicode property White_Space) is one space; none at the ends
 *   words   words with one space between them: letters, digits and combining marks (general categories L, N, M) in
 *           lower case, everything else separates. A character of a script written without spaces (Han, kana, Thai,
 *           Lao, Khmer, Myanmar) is a word by itself. Bytes that are no UTF-8 separate
 *
 * Lower case is that of the letters of Latin, Greek, Cyrillic and Armenian that have a one-to-one pair in Unicode up to
 * U+0586 and in Latin Extended Additional; other letters stay. Invariant: the normal form of a normal form is itself.
 * Includes: base, text/utf8.h, text/unicode.h. Order: Local.
 */
#ifndef TUTTI_CURATE_NORMAL_H
#define TUTTI_CURATE_NORMAL_H

#include <stdint.h>

#include "base/str.h"

enum normal_kind { NORMAL_BYTES, NORMAL_SPACE, NORMAL_WORDS, N_NORMAL_KINDS };
const char *normal_name(enum normal_kind k);
int normal_find(const char *name); /* -1: no such kind */

/* Appends the normal form of text[0..n) to out. */
void normal_add(enum normal_kind k, const char *text, size_t n, struct str *out);
uint32_t normal_lower(uint32_t code);
/* What the character at text[0..n), n >= 1, is in the form "words"; its bytes in *length (1 for what is no UTF-8). */
enum normal_letter { LETTER_NONE, LETTER_IN_WORD, LETTER_ALONE };
enum normal_letter normal_letter(const char *text, size_t n, size_t *length);

#endif
