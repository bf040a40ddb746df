/* SPDX-License-Identifier: Apache-2.0 */
/* split.h: pre-tokenisation. Cuts text into the pieces inside which a model works; no token crosses a cut.
 *
 * A split is a list of stages, each of which cuts the pieces of the one before it and may change them: regular
 * expressions (Hugging Face's Split, with all its behaviours), sets of characters, SentencePiece's meta symbol for
 * spaces. No stage: text is one piece. Regular expressions mean what Oniguruma means (matcher.h), as in the reference.
 *
 * Invariants
 *   1. The pieces, joined, are the text, unless a stage drops or changes some of it (split_keeps_text).
 *   2. Where text arrives in parts, the pieces do not depend on how it was parted.
 *   3. No piece of the first stage is longer than SPLIT_PIECE_MAX; longer ones are cut there (the one departure from
 *      the reference implementation, which needs the whole document in memory), except where the whole text is needed.
 * Includes: base, unicode.h. Order: Local; a split is read-only and shared, a split_work belongs to one thread.
 */
#ifndef TUTTI_TOKEN_SPLIT_H
#define TUTTI_TOKEN_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "text/unicode.h"

enum { SPLIT_PIECE_MAX = 256 << 10 };

/* The two expressions that matter, as published with the models. */
extern const char *const SPLIT_GPT2;
extern const char *const SPLIT_LLAMA3;

/* What becomes of a match and of what is between matches. */
enum split_behavior {
    SPLIT_ISOLATED,      /* each is a piece */
    SPLIT_REMOVED,       /* matches are dropped */
    SPLIT_CONTIGUOUS,    /* matches next to each other are one piece */
    SPLIT_WITH_PREVIOUS, /* a match belongs to what is before it */
    SPLIT_WITH_NEXT      /* a match belongs to what is behind it */
};

/* Where a meta symbol is put before a text that does not begin with one. */
enum split_prepend { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS }; /* FIRST: where the document begins */

struct split;
struct joins;
struct split *split_new(void);
void split_free(struct split *s); /* NULL is fine */
/* -- stages; `what` names their place in errors; ERR_REQUEST: too many, or an expression that matcher.h refuses ---- */
/* A regular expression, Isolated. */
int split_add(struct split *s, const char *pattern, size_t n, const char *what, struct err *e);
/* The same by Oniguruma, also where pattern.h could do it: the test of their equality. */
int split_add_general(struct split *s, const char *pattern, size_t n, const char *what, struct err *e);
/* inverted: what is between matches counts as match, and the other way round. */
int split_add_pattern(struct split *s, const char *pattern, size_t n, enum split_behavior b, bool inverted,
                      const char *what, struct err *e);
/* Every character of the set is a match. */
int split_add_set(struct split *s, const struct ranges *set, enum split_behavior b, const char *what, struct err *e);
/* Spaces become `symbol`; cuts before each symbol if `cuts`. */
int split_add_metaspace(struct split *s, uint32_t symbol, enum split_prepend prepend, bool cuts, const char *what,
                        struct err *e);
/* A space is put before a piece that does not begin with one. Not as the first stage: that is cut_rules.prefix_space.
 */
int split_add_prefix(struct split *s, const char *what, struct err *e);
/* Cuts into pieces of so many characters, the last shorter; 1 to SPLIT_FIXED_MAX. */
int split_add_fixed(struct split *s, int64_t chars, const char *what, struct err *e);
enum { SPLIT_FIXED_MAX = SPLIT_PIECE_MAX / 4 };
/* Cuts where the script changes (script_runs.h); what is of any script goes with what is before it, and is dropped at a
 * text's beginning. */
int split_add_scripts(struct split *s, const char *what, struct err *e);
/* Every byte is written as a character of the alphabet of byte_level.h. */
int split_add_alphabet(struct split *s, const char *what, struct err *e);
/* Cuts where no merge reaches across (char_bpe.h), so that a text without other cuts need not be held whole. Also a
 * metaspace stage that does not cut does so then. Borrowed. */
int split_add_joins(struct split *s, const struct joins *j, const char *what, struct err *e);

int split_n_stages(const struct split *s);
bool split_keeps_text(const struct split *s);
/* The first stage needs the whole text: split_run hands out nothing before `final`. */
bool split_needs_whole_text(const struct split *s);
/* May a text be cut before the k-th byte of PATTERN_SEAM_BYTES, which follows a character, and both sides be split
 * apart, into the very pieces of the whole? False also where it is not known. */
bool split_parts_before(const struct split *s, int k, uint32_t before);
enum { SPLIT_TEXT_MAX = 64 << 20 }; /* and no text may be longer then */

struct split_work;
struct split_work *split_work_new(const struct split *s);
void split_work_free(struct split_work *w);
/* What split_run gets next is the beginning of a text. */
void split_begin(struct split_work *w);
/* So many characters of what split_run gets next come from where the document begins: PREPEND_FIRST asks for that. */
void split_origin(struct split_work *w, int64_t chars);
/* And it is not any more: something else stood there. */
void split_goes_on(struct split_work *w);

typedef void split_piece_fn(void *arg, const unsigned char *p, size_t n);

/* Cuts the valid UTF-8 text p[0..n) and hands each piece to fn. Unless `final`, stops before the first piece that
 * text after p[n) could change. *used: bytes of the pieces handed out; the caller brings the rest again. */
int split_run(const struct split *s, struct split_work *w, const unsigned char *p, size_t n, bool final,
              split_piece_fn *fn, void *arg, size_t *used, struct err *e);

#endif
