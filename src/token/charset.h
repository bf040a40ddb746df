/* SPDX-License-Identifier: Apache-2.0 */
/* charset.h: the character classes of regular expressions as Oniguruma reads them (its default syntax, UTF-8), made
 * into sets of code points with our own tables (unicode.h). For pattern.c and oniguruma.c. Includes: base, unicode.h.
 * Order: Local.
 */
#ifndef TUTTI_TOKEN_CHARSET_H
#define TUTTI_TOKEN_CHARSET_H

#include "base/err.h"
#include "text/unicode.h"

struct charset {
    struct ranges set; /* what stands in the class; `negated`: the class is everything else */
    bool negated;
    bool inner_negation; /* a negated class or && inside: with (?i) that means something that a set does not say */
};

/* Reads one class at p[*at]: "[...]", or an escape that stands for one (\p{L} \s \w \d \h and their opposites). OK with
 * *at behind it; 0 < rc: p[*at] begins none of these; ERR_REQUEST: what is in it is not known here (e says what). */
int charset_read(struct charset *c, const char *p, size_t n, size_t *at, struct err *e);
void charset_free(struct charset *c);

/* The character of an escape or of plain text at p[*at]: OK with *at behind it, 0 < rc: a metacharacter or another
 * escape. in_class: which characters are plain differs. */
int charset_char(uint32_t *code, const char *p, size_t n, size_t *at, bool in_class);

#endif
