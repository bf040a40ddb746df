/* SPDX-License-Identifier: Apache-2.0 */
/* bpe_train.h: learns a byte-level BPE vocabulary from text.
 *
 * Counts the pieces of the text, then merges the most frequent neighbouring pair (the smaller ids on a tie), again and
 * again, until the vocabulary is full or no pair occurs often enough. Ids: the 256 bytes in the order of the
 * byte alphabet, the merged tokens as they are found, <|endoftext|> last.
 *
 * Invariants: 1. the same text gives the same file, bit for bit; 2. neither the parts it came in nor
 * the order of the documents matter.
 * Includes: base. Order: Local.
 */
#ifndef TUTTI_DATA_BPE_TRAIN_H
#define TUTTI_DATA_BPE_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum { BPE_TRAIN_VOCAB_MIN = 257, BPE_TRAIN_VOCAB_MAX = 1 << 24 };

struct bpe_trainer;
/* style: "gpt2" or "llama3": how text is cut into pieces. */
int bpe_trainer_new(struct bpe_trainer **t, const char *style, struct err *e);
void bpe_trainer_free(struct bpe_trainer *t);

int bpe_trainer_feed(struct bpe_trainer *t, const void *text, size_t n, struct err *e);
int bpe_trainer_end(struct bpe_trainer *t, struct err *e); /* of a document */

struct bpe_train_result {
    int64_t n_pieces, n_distinct; /* pieces counted, distinct ones */
    int32_t vocab;                /* reached; less than asked for when pairs ran out */
};
/* Adds the text of the tokenizer.json. A pair must occur min_count times to be merged. Called once. */
int bpe_trainer_finish(struct bpe_trainer *t, int32_t vocab, int64_t min_count, struct str *json,
                       struct bpe_train_result *r, struct err *e);

#endif
