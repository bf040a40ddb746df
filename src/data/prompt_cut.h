/* SPDX-License-Identifier: Apache-2.0 */
/* prompt_cut.h: texts as prompts and their continuations, for training with prefixes (Raffel et al. 2020, section
 * 3.2.3, "prefix language modeling"): the beginning of a document, up to a place in it, is not trained.
 *
 * Which documents of a sample, and where, is a pure function of (seed, sample, document in the sample). Every place is
 * as likely as another; a token at least is a prompt, and one is trained. What a sample has of a document counts as a
 * document. One that has a target missing before its last place was arranged on purpose, and stays. Order: Local.
 */
#ifndef TUTTI_DATA_PROMPT_CUT_H
#define TUTTI_DATA_PROMPT_CUT_H

#include <stdint.h>

/* rate: of documents. Targets of their beginnings become -1; returns how many. documents: ids of n places, a document a
 * run of one. */
int64_t prompt_cut(double rate, uint64_t seed, int64_t sample, const int32_t *documents, int32_t *targets, int64_t n);

#endif
