/* SPDX-License-Identifier: Apache-2.0 */
/* document.h: a document on its way through the filters: its text, where it came from, and its lines and words, which
 * are found once and shared by all filters until one of them changes the text.
 *
 * Characters are code points; a byte that belongs to none counts as one (the filter `unicode` mends such bytes). A line
 * ends at LF; a CR before it belongs to the end. Words are counted in one of two ways (enum word_kind).
 * A document is one thread's. Memory is kept from document to document.
 * Includes: base, text/utf8.h. Order: Local.
 */
#ifndef TUTTI_CURATE_DOCUMENT_H
#define TUTTI_CURATE_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum word_kind {
    WORDS_SPACES, /* what lies between white space, as Gopher and C4 count */
    WORDS_MARKS,  /* as linguists' tokenizers count: letters and digits together, each mark alone, each ideograph
                     alone */
    N_WORD_KINDS
};

/* A line or a word: bytes text[at .. at + n), in characters. */
struct span {
    uint32_t at, n, chars;
};
struct spans {
    struct span *p;
    size_t n, room;
    bool found; /* in the text as it is now */
};

/* A set of 64-bit values with a count and the place of the first of each; for filters, by document_table. */
struct key_slot {
    uint64_t key;
    uint32_t count, first;
};
struct key_table {
    struct key_slot *slot;
    size_t mask, room;
};

/* Where a document comes from: the file and its place there (source/source.h), and which of the pass it is. */
struct origin {
    const char *source;
    int64_t number, offset, index;
};

struct document {
    struct str text;
    struct origin origin;
    int64_t bytes_read; /* of its text before any filter */
    bool changed;
    struct str notes; /* what filters say of it, as members of a JSON object with a comma before each */

    int64_t n_chars; /* -1: not counted yet */
    struct spans lines, words[N_WORD_KINDS];
    struct str spare;       /* what a filter writes before document_replace */
    struct key_table table; /* of document_table */
    uint64_t *hashes;       /* of document_hashes */
    size_t n_hashes_room;
    float *numbers; /* of document_numbers */
    size_t n_numbers_room;
};

enum { DOCUMENT_MOST = 1 << 30 }; /* bytes that a piece can count */

void document_free(struct document *d);
/* Another text and origin; n < DOCUMENT_MOST. */
void document_set(struct document *d, const char *text, size_t n, const struct origin *origin);
/* The text becomes what is in d->spare, which is empty then. */
void document_replace(struct document *d);

int64_t document_chars(struct document *d);
const struct spans *document_lines(struct document *d);
const struct spans *document_words(struct document *d, enum word_kind kind);
static inline const char *span_text(const struct document *d, const struct span *p) { return d->text.p + p->at; }

/* Characters of p[0..n). */
int64_t count_chars(const char *p, size_t n);
/* The character at p[0..n), n >= 1: its bytes in *len; 0xFFFD and 1 for a byte that belongs to none. */
uint32_t char_at(const char *p, size_t n, int *len);

/* An empty table for up to n keys, valid until the next call. */
struct key_table *document_table(struct document *d, size_t n);
/* Room for n numbers each, valid until the next call. */
uint64_t *document_hashes(struct document *d, size_t n);
float *document_numbers(struct document *d, size_t n);
/* The key's slot, which was empty when its count is 0: the caller counts. Key 0 is changed to 1. */
struct key_slot *table_slot(struct key_table *t, uint64_t key);

#endif
