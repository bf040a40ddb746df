/* SPDX-License-Identifier: Apache-2.0 */
/* word_piece.h: the longest token that a word begins with, then the longest with a prefix ("##") that its rest begins
 * with, and so on; a word that does not come out, or is too long, is the unknown token (BERT). WordLevel is the same
 * with whole words only. Includes: base, bpe.h, token_cache.h. Order: Local; read-only.
 */
#ifndef TUTTI_TOKEN_WORD_PIECE_H
#define TUTTI_TOKEN_WORD_PIECE_H

#include "base/str.h"
#include "token/bpe.h"
#include "token/token_cache.h"

struct word_piece {
    const struct piece_map *ids; /* borrowed */
    struct str prefix;           /* owned */
    int64_t longest_word;        /* in characters */
    size_t longest_token;        /* in bytes */
    int32_t unknown;
    bool whole_words; /* WordLevel */
};

void word_piece_encode(const struct word_piece *w, struct token_cache *cache, struct str *scratch,
                       const unsigned char *p, size_t n, struct tokens *out);

#endif
