/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.h: the regular expressions that tokenizers are published with, matched here: alternatives, groups, classes,
 * greedy and possessive repetition of one character, look-ahead, (?i:...) around ASCII letters.
 *
 * The meaning is Oniguruma's to the last code point (tests/data/test_split.c compares the two), with classes by our own
 * tables. What is more than that is left to Oniguruma itself (oniguruma.h), which is some ten times slower and cannot
 * tell whether more text would change a match.
 * Includes: base. Order: Local; a pattern is read-only.
 */
#ifndef TUTTI_TOKEN_PATTERN_H
#define TUTTI_TOKEN_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct pattern;
/* *out is NULL, without an error, when the expression is more than this file does. ERR_REQUEST: a class that is not
 * known. */
int pattern_new(struct pattern **out, const char *text, size_t n, struct err *e);
void pattern_free(struct pattern *x);

enum pattern_result { PATTERN_MATCH, PATTERN_NONE, PATTERN_UNDECIDED, PATTERN_GAVE_UP };
/* The first match in the valid UTF-8 p[from..n): p[*at..*end). Unless `final`, UNDECIDED when text after p[n) could
 * change what is found; no match begins before *at then. *left: how many steps may be taken; those taken are taken off.
 */
enum pattern_result pattern_find(const struct pattern *x, const unsigned char *p, size_t n, size_t from, bool final,
                                 int64_t *left, size_t *at, size_t *end);

/* May a text be cut before the k-th of the bytes PATTERN_SEAM_BYTES that follows a character (code point `before`), and
 * both sides be searched as if the other were not there? Then every match of the whole text is one of a side, and every
 * match of a side is one of the whole text; *begins: and one begins at the cut. False also where it is not known. */
enum { PATTERN_SEAMS = 2 };
#define PATTERN_SEAM_BYTES "\n "
bool pattern_parts_before(const struct pattern *x, int k, uint32_t before, bool *begins);

#endif
