/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_write.h: the text of a tokenizer.json, for the byte tokenizer and for trained ones.
 * Includes: base. Order: Local.
 */
#ifndef TUTTI_TOKEN_TOKENIZER_WRITE_H
#define TUTTI_TOKEN_TOKENIZER_WRITE_H

#include <stdint.h>

#include "base/str.h"

struct token_text {
    const unsigned char *p;
    size_t n;
};

struct merge_pair {
    int32_t left, right;
};

struct tokenizer_draft {
    const struct token_text *pieces; /* by id */
    int32_t n_pieces;
    const struct merge_pair *merges; /* by rank */
    int32_t n_merges;
    /* Expressions, in turn: SPLIT_GPT2 alone is ByteLevel's own, else Split steps before it. */
    const char *const *splits;
    int n_splits;
    const char *eos; /* the end-of-text token; its id is n_pieces */
};

void tokenizer_write(struct str *out, const struct tokenizer_draft *d);

/* A Unigram model over U+2581 words: <unk>, a token per byte for what no token covers, the list. */
struct tokenizer_scored {
    size_t at; /* of its UTF-8, with a NUL behind it, in `texts` */
    double score;
};
void tokenizer_write_unigram(struct str *out, const char *texts, const struct tokenizer_scored *list, int64_t n,
                             const char *eos);

#endif
