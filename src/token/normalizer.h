/* SPDX-License-Identifier: Apache-2.0 */
/* normalizer.h: the changes that a tokenizer.json asks for before text is cut: normal forms, lower case, replacements,
 * ... A normalizer is a list of steps, each of which gets what the one before it gives.
 *
 * Invariants
 *   1. The result does not depend on how a text was parted: a step keeps back what later text may change.
 *   2. What is kept back is bounded (a match, of which no more than NORMALIZER_MATCH_MAX bytes are looked at,
 *      NORMAL_MARKS_MAX code points, GRAPHEME_MAX bytes, a run of white space), except by a Replace whose expression
 *      needs the whole text (matcher.h): NORMALIZER_TEXT_MAX then.
 *   3. No step makes more of a text than token_bounds.h allows: that is an error, before it is made.
 *   4. A byte that is not valid UTF-8 passes unchanged, and what is before and behind it is normalised apart.
 * Includes: base, normal_form.h. Order: Local; a normalizer is read-only and shared, a run belongs to one thread.
 */
#ifndef TUTTI_TOKEN_NORMALIZER_H
#define TUTTI_TOKEN_NORMALIZER_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "text/normal_form.h"

enum { NORMALIZER_TEXT_MAX = 64 << 20, NORMALIZER_MATCH_MAX = 256 << 10 };

enum norm_kind {
    NORM_FORM,            /* form */
    NORM_LOWER,           /* Lowercase, letter by letter */
    NORM_STRIP_ACCENTS,   /* StripAccents: drops marks */
    NORM_BERT_CLEAN,      /* BertNormalizer's clean_text */
    NORM_BERT_CHINESE,    /* its handle_chinese_chars: spaces around ideographs */
    NORM_BERT_MARKS,      /* its strip_accents, after NFD */
    NORM_NMT,             /* Nmt: control characters dropped, odd spaces made spaces */
    NORM_PREPEND,         /* content before a text */
    NORM_STRIP,           /* white space at the left, the right end */
    NORM_REPLACE,         /* text by content */
    NORM_REPLACE_PATTERN, /* what matches by content */
    NORM_CHARSMAP,        /* Precompiled */
    NORM_BYTE_LEVEL       /* ByteLevel: the alphabet of byte_level.h */
};

struct norm_step {
    enum norm_kind kind;
    enum normal_form form;
    bool left, right;         /* STRIP */
    struct str text, content; /* owned, as is what follows */
    struct matcher *pattern;
    struct charsmap *charsmap;
};

struct normalizer {
    struct norm_step *steps;
    int n, room;
};
void norm_step_free(struct norm_step *s);
void normalizer_add(struct normalizer *z, struct norm_step step); /* takes it over */
void normalizer_free(struct normalizer *z);                       /* NULL is fine; z itself is from xcalloc */

struct normalizer_run;
struct normalizer_run *normalizer_run_new(const struct normalizer *z);
void normalizer_run_free(struct normalizer_run *r);
/* A text begins; tracked: and normalizer_origin is asked of it. */
void normalizer_begin(struct normalizer_run *r, bool tracked);
/* Adds to `out` what is certain; with `final`, all: the text ends. Fails when an expression exceeds limits, and where
 * a text grows beyond those of token_bounds.h. */
int normalizer_feed(struct normalizer_run *r, const void *p, size_t n, bool final, struct str *out, struct err *e);
/* How many characters at the beginning of what came out the reference takes for the text's first character: 1, more
 * where that became several, 0 where it was dropped. Those that came out since this was asked last. */
int64_t normalizer_origin(struct normalizer_run *r);

#endif
