/* SPDX-License-Identifier: Apache-2.0 */
/* fim.h: fill-in-the-middle (Bavarian et al., *Efficient training of language models to fill in the middle*, 2022):
 * some documents of a sample are cut in three at two characters, and the middle is put last, behind special tokens:
 *
 *   PSM   prefix token, prefix, suffix token, suffix, middle token, middle
 *   SPM   prefix token, suffix token, suffix, middle token, prefix, middle (the paper's variant for both in one model)
 *
 * It is done to what a sample holds of a document (the paper's context-level way), while the sample is read: each of
 * its three parts is tokenized by itself, and so many tokens are left out at the suffix's end that the document has the
 * length it had; so positions and documents stay what they are, and a middle is always whole. Where the tokenizer puts
 * a space before every text it stays before the document, and none is put where it was cut. A document with a suffix
 * too short for that is left as it is, and so is one of fewer than FIM_LEAST tokens, or whose parts would not be its
 * text again.
 *
 * Which documents, which way and where is a pure function of (seed, sample of the order, document in the sample).
 * Includes: base, tokenizer.h. Order: Local; read-only and shared, a fim_work belongs to one thread.
 */
#ifndef TUTTI_DATA_FIM_H
#define TUTTI_DATA_FIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "token/tokenizer.h"

enum { FIM_LEAST = 10 };

struct fim_rule {
    double rate;     /* of the documents; 0: none, and nothing below counts */
    double spm_rate; /* of those */
    /* The special tokens by name; all three NULL: those of a family that the tokenizer has. */
    const char *prefix, *suffix, *middle;
};
struct fim {
    const struct tokenizer *t; /* borrowed while it is used */
    double rate, spm_rate;
    int32_t prefix, suffix, middle, eos;
    bool leads; /* the tokenizer puts something before a text (a space, in SentencePiece's way) */
    uint64_t seed;
};
/* ERR_REQUEST: the tokenizer has no such tokens. */
int fim_init(struct fim *f, const struct fim_rule *rule, const struct tokenizer *t, uint64_t seed, struct err *e);

struct fim_work;
struct fim_work *fim_work_new(const struct fim *f);
void fim_work_free(struct fim_work *w); /* NULL is fine */
/* Changes ids[0..n) in place: documents are what stands between ends of text. sample: of the order; first: how many
 * documents of it came before these. */
int fim_apply(struct fim_work *w, int64_t sample, int64_t first, int32_t *ids, int64_t n, struct err *e);

#endif
