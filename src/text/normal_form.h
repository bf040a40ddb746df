/* SPDX-License-Identifier: Apache-2.0 */
/* normal_form.h: Unicode's normal forms NFC, NFD, NFKC and NFKD, of a whole text or as it streams; grapheme clusters.
 *
 * The tables are those of libutf8proc (named in normal_form.c only), cut back to Unicode 9, which is what the
 * `tokenizers` library has: a code point that Unicode 9 did not have is left as it is, and nothing is composed or
 * ordered across it. Unicode promises that the others do not change, so any version of libutf8proc gives the same
 * bytes.
 *
 * Invariants
 *   1. Time is linear in the text, also for long runs of marks.
 *   2. However the text is parted, the result is the same, as long as no character is followed by more than
 *      NORMAL_MARKS_MAX code points of marks; longer runs are normalised in parts of that length (so that memory is
 *      bounded), wherever the text is parted.
 * Includes: base. Order: Local.
 */
#ifndef TUTTI_TEXT_NORMAL_FORM_H
#define TUTTI_TEXT_NORMAL_FORM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

enum normal_form { NORMAL_NFC, NORMAL_NFD, NORMAL_NFKC, NORMAL_NFKD };
enum { NORMAL_MARKS_MAX = 4096 };

/* Adds the normal form of the valid UTF-8 text p[0..n). */
void normal_form(struct str *out, enum normal_form form, const unsigned char *p, size_t n);

/* The same for the beginning of a text. Unless `final`, what text after p[n) may change is left: returns the bytes that
 * are done; the caller brings the rest again, with more behind it. */
size_t normal_form_part(struct str *out, enum normal_form form, const unsigned char *p, size_t n, bool final);

/* The same, and tells of the characters of the result how the reference counts them: change 0 is one for one of the
 * text, 1 one more than the text had, -n one in place of 1 + n. Ends with the first call that returns false. */
typedef bool normal_form_told_fn(void *arg, int change);
size_t normal_form_part_told(struct str *out, enum normal_form form, const unsigned char *p, size_t n, bool final,
                             normal_form_told_fn *told, void *arg);

/* Where the first extended grapheme cluster ("what a reader takes for one character") of the valid UTF-8 p[0..n), n >
 * 0, ends. Unless `final`, 0: text after p[n) may belong to it. Longer ones are taken to end after GRAPHEME_MAX bytes.
 */
enum { GRAPHEME_MAX = 1024 };
size_t grapheme_end(const unsigned char *p, size_t n, bool final);

#endif
