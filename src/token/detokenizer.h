/* SPDX-License-Identifier: Apache-2.0 */
/* detokenizer.h: from the texts of tokens to text, by the steps that a tokenizer.json's `decoder` lists.
 *
 * Each step gets the tokens one after another and hands tokens on; after FUSE (or BYTE_LEVEL) there is one token that
 * goes on to the end. The result is that of the reference, with one difference: a byte token becomes its byte, whether
 * or not what comes of it is UTF-8 (the reference puts U+FFFD for each byte of a run that is not), so nothing is lost.
 * Includes: base. Order: Local; read-only and shared; a state belongs to one thread.
 */
#ifndef TUTTI_TOKEN_DETOKENIZER_H
#define TUTTI_TOKEN_DETOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum detok_kind {
    DETOK_REPLACE,         /* text by content, in each token */
    DETOK_REPLACE_PATTERN, /* what matches by content */
    DETOK_BYTES,           /* ByteFallback: "<0xE2>" is a byte */
    DETOK_FUSE,
    DETOK_STRIP,      /* text, one character: at most `start` of them from the left, `stop` from the right */
    DETOK_METASPACE,  /* text, the symbol, is a space; none in the first token if `drops_first` */
    DETOK_WORD_PIECE, /* a token that begins with text loses it; a space before any other but the first; `cleans` */
    DETOK_SUFFIX,     /* text, at the end of words, is a space, in the last token nothing */
    DETOK_BYTE_LEVEL, /* the alphabet of byte_level.h; a token with other characters stays */
    DETOK_CTC,        /* equal tokens in turn are one; text, the pad, is nothing; `cleans`: content is a space */
    DETOK_SPACES      /* no decoder: spaces between tokens */
};

struct detok_step {
    enum detok_kind kind;
    struct str text, content; /* owned, as is the matcher */
    struct matcher *pattern;
    int64_t start, stop;
    bool drops_first, cleans;
};
struct detokenizer {
    struct detok_step *steps;
    int n, room;
    size_t growth; /* bytes that the steps make of one, at most; 0 for no step */
};
/* Takes the step over. ERR_REQUEST: a step that cannot come after tokens were fused, or one that goes beyond
 * token_bounds.h; `what` names the place. */
int detok_add(struct detokenizer *d, struct detok_step step, const char *what, struct err *e);
void detok_free(struct detokenizer *d); /* NULL is fine; d itself is from xcalloc */

struct detok_state;
struct detok_state *detok_state_new(const struct detokenizer *d);
void detok_state_free(struct detok_state *s);
/* Adds what is certain of the text when this token is the next; at the end, the rest. */
void detok_push(struct detok_state *s, const char *token, size_t n, struct str *out);
void detok_end(struct detok_state *s, struct str *out);

#endif
