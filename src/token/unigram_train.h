/* SPDX-License-Identifier: Apache-2.0 */
/* unigram_train.h: learns a Unigram vocabulary (Kudo 2018) from counted words (piece_counter.h).
 *
 * A word is a space and what follows up to the next (UNIGRAM_SPLIT); the space is U+2581 in the tokens. Seeds are the
 * substrings of words that are nodes of the suffix tree; then expectation and maximisation in turn with pruning of the
 * tokens whose loss is the least, until the vocabulary is as small as wanted. Ids: <unk>, the 256 bytes, for what no
 * token covers, the tokens by descending score, <|endoftext|>.
 *
 * Invariants: the same counts give the same file, bit for bit, for any number of threads.
 * Memory: some 16 bytes per character of the distinct words and 30 per word; 150 per seed and thread.
 * Includes: base. Order: Local.
 */
#ifndef TUTTI_TOKEN_UNIGRAM_TRAIN_H
#define TUTTI_TOKEN_UNIGRAM_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

#define UNIGRAM_SPLIT " [^ ]*|[^ ]+"

struct unigram_trainer;
struct unigram_trainer *unigram_trainer_new(void);
void unigram_trainer_free(struct unigram_trainer *t); /* NULL is fine */
/* Each word once. Bytes that are no UTF-8 are left out. */
void unigram_trainer_add(struct unigram_trainer *t, const unsigned char *p, size_t n, int64_t count);
int64_t unigram_trainer_words(const struct unigram_trainer *t);

/* Adds the text of the tokenizer.json; *reached: tokens, less than `vocab` where there are no more substrings.
 *   fails   ERR_REQUEST: no words, more than 2^31 characters in distinct words, or a vocabulary too small for the
 *           characters; ERR_MEMORY: threads */
int unigram_trainer_finish(struct unigram_trainer *t, int32_t vocab, int n_threads, struct str *json, int32_t *reached,
                           struct err *e);

#endif
