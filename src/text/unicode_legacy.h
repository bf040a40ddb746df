/* SPDX-License-Identifier: Apache-2.0 */
/* unicode_legacy.h: the sets that some steps of the `tokenizers` library go by and that are not those of unicode.h: the
 * library's normal forms are Unicode 9's, its marks and punctuation come from tables of other ages. Made and checked by
 * scripts/make_unicode_legacy.py.
 * Includes: unicode.h. Order: Local.
 */
#ifndef TUTTI_TEXT_UNICODE_LEGACY_H
#define TUTTI_TEXT_UNICODE_LEGACY_H

#include "text/unicode.h"

enum unicode_legacy {
    LEGACY_YOUNG,       /* not assigned in Unicode 9: normal forms leave it as it is */
    LEGACY_CONTROL,     /* what BertNormalizer's clean_text drops (U+0000 and U+FFFD too) */
    LEGACY_NONSPACING,  /* what its strip_accents drops of decomposed text */
    LEGACY_MARK,        /* what StripAccents drops */
    LEGACY_PUNCTUATION, /* where Punctuation and BertPreTokenizer cut */
    N_LEGACY
};

struct unicode_set {
    const struct range *r; /* in order */
    int n;
};
extern const struct unicode_set unicode_legacy[N_LEGACY];

/* The letters first, first + step, ..., last become lower case by adding `difference`. U+0130 is not in the table: it
 * becomes two characters, i and U+0307. */
struct lower_run {
    uint32_t first, last;
    int32_t step, difference;
};
extern const struct lower_run unicode_lower[];
extern const int unicode_n_lower;

bool unicode_in(enum unicode_legacy set, uint32_t code);
/* The lower-case letter of `code`, itself for what has none; for U+0130 itself. */
uint32_t unicode_lower_of(uint32_t code);

#endif
