/* SPDX-License-Identifier: Apache-2.0 */
/* token_bounds.h: what a stranger's tokenizer.json may ask for. A file of a few lines can describe more work than any
 * machine does (a text doubled forty times); here is how much it may, for every reader of it.
 *
 * After every step of the normalizer a text has at most GROWTH_MAX times its bytes and GROWTH_FLAT more; a decoder's
 * steps, taken together, make at most GROWTH_MAX bytes of one. The largest that is published: NFKC makes 33 bytes of
 * three.
 * Order: Local.
 */
#ifndef TUTTI_TOKEN_TOKEN_BOUNDS_H
#define TUTTI_TOKEN_TOKEN_BOUNDS_H

enum {
    GROWTH_MAX = 64,
    GROWTH_FLAT = 4 << 10,
    CHAIN_MAX = 64,             /* steps of a normalizer, of a decoder: each goes over the whole text */
    NEEDLE_MAX = 4 << 10,       /* bytes that a Replace looks for, or that a charsmap has for one character */
    MATCH_STEPS = 256,          /* what a byte of a text earns a regular expression, */
    MATCH_SAVED = 256 << 20,    /* and how much is kept: digits by threes go to the end of a run */
    TEMPLATE_MAX = 64,          /* members of a template */
    SPLIT_CHANGES_MAX = 3,      /* stages of a pre_tokenizer that write pieces anew, each up to fivefold */
    SPELT_PATTERN_MAX = 4 << 20 /* bytes of a regular expression whose classes are spelt out */
};

#endif
