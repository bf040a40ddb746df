/* SPDX-License-Identifier: Apache-2.0 */
/* unigram_words.h: words as symbols, tokens as a trie over them, and the seeds; for unigram_train.c. Order: Local. */
#ifndef TUTTI_TOKEN_UNIGRAM_WORDS_H
#define TUTTI_TOKEN_UNIGRAM_WORDS_H

#include <stdint.h>

#include "base/err.h"
#include "base/thread.h"

enum { UNIGRAM_TOKEN_MAX = 16, UNIGRAM_WORD_MAX = 256 }; /* characters */

/* All words one after the other, each followed by END. A symbol is the rank of its character, the most frequent first.
 */
enum { END = -1 };
struct unigram_words {
    int32_t *text;
    int64_t n, room;
    struct unigram_word {
        int64_t at, count;
        int32_t n;
    } * words;
    int64_t n_words, words_room;
    uint32_t *chars; /* code point of a symbol */
    int32_t n_chars;
};

struct unigram_token_draft {
    int64_t at; /* of its symbols in words.text, or ~symbol for a single character */
    int32_t n;
    double score; /* frequency times length; later the logarithm of its probability */
};

/* The most promising substrings of at least two characters, at most `most`, in the order of their symbols. xfree it. */
struct unigram_token_draft *unigram_seeds(const struct unigram_words *w, int64_t most, struct team *team, int64_t *n);
/* Orders by symbols; a beginning comes before what it begins. */
int unigram_order(const struct unigram_words *w, const struct unigram_token_draft *a,
                  const struct unigram_token_draft *b);
static inline int32_t unigram_symbol(const struct unigram_words *w, const struct unigram_token_draft *t, int32_t i)
{
    return t->at < 0 ? (int32_t)~t->at : w->text[t->at + i];
}

#endif
