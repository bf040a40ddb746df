/* SPDX-License-Identifier: Apache-2.0 */
/* unigram.h: of all ways to put a piece together from tokens, the one with the largest sum of scores (Kudo 2018), as
 * SentencePiece's Unigram models have it (T5, ALBERT, XLM-R).
 *
 * Exactly the reference's result: sums in double precision from the left, on a tie the earlier token wins; an unknown
 * character costs 10 more than the worst token; unknown characters next to each other are one unknown token, or their
 * bytes.
 * Includes: base, bpe.h. Order: Local; struct unigram is read-only and shared, a work belongs to one thread.
 */
#ifndef TUTTI_TOKEN_UNIGRAM_H
#define TUTTI_TOKEN_UNIGRAM_H

#include "token/bpe.h"

struct unigram_token {
    const unsigned char *p; /* borrowed */
    size_t n;
    double score; /* finite */
};
struct unigram;
/* tokens[0..n): by id; of equal texts the last counts. ids: text -> id (the last of equal ones), borrowed. unknown < n.
 */
struct unigram *unigram_new(const struct unigram_token *tokens, int32_t n, const struct piece_map *ids, int32_t unknown,
                            bool byte_fallback);
void unigram_free(struct unigram *u); /* NULL is fine */

struct unigram_work;
struct unigram_work *unigram_work_new(void);
void unigram_work_free(struct unigram_work *w);
/* A piece is valid UTF-8, or one byte that is none, which becomes its byte's token. */
void unigram_encode(const struct unigram *u, struct unigram_work *w, const unsigned char *p, size_t n,
                    struct tokens *out);

#endif
