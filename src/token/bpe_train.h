/* SPDX-License-Identifier: Apache-2.0 */
/* bpe_train.h: learns a byte-level BPE vocabulary from counted pieces of text (piece_counter.h).
 *
 * Merges the most frequent neighbouring pair (the smaller ids on a tie), again and again, until the vocabulary is full
 * or no pair occurs often enough. Ids: the 256 bytes in the order of the byte alphabet, the merged tokens as they are
 * found, <|endoftext|> last.
 *
 * Invariants: 1. the same counts give the same file, bit for bit; 2. the order of the pieces does not matter; 3. memory
 * is some 30 bytes per distinct piece and 12 per byte of it.
 * Includes: base, train_style.h. Order: Local.
 */
#ifndef TUTTI_TOKEN_BPE_TRAIN_H
#define TUTTI_TOKEN_BPE_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "token/train_style.h"

enum { BPE_TRAIN_VOCAB_MIN = 257, BPE_TRAIN_VOCAB_MAX = 1 << 24 };

struct bpe_trainer;
struct bpe_trainer *bpe_trainer_new(void);
void bpe_trainer_free(struct bpe_trainer *t); /* NULL is fine */
/* Each piece once. */
void bpe_trainer_add(struct bpe_trainer *t, const unsigned char *p, size_t n, int64_t count);
int64_t bpe_trainer_pieces(const struct bpe_trainer *t); /* added so far */

/* Adds the text of the tokenizer.json; *reached: tokens, less than `vocab` when pairs ran out. A pair must occur
 * min_count times to be merged. Called once. ERR_REQUEST: nothing was added, or a vocabulary that cannot be. */
int bpe_trainer_finish(struct bpe_trainer *t, const struct train_style *style, int32_t vocab, int64_t min_count,
                       struct str *json, int32_t *reached, struct err *e);

#endif
