/* SPDX-License-Identifier: Apache-2.0 */
/* draft.h: a smaller model beside a larger one, to guess what that writes (decode/speculative.h). It must read the same
 * tokens: the same number of them, each for the same bytes. Floor 8. Order: Local.
 */
#ifndef TUTTI_DECODE_DRAFT_H
#define TUTTI_DECODE_DRAFT_H

#include "decode/model_job.h"

struct draft {
    struct weights *weights;
    struct decoding *decoding;
};
/* For the model at work, on its device; o: positions, dtype, threads and one sequence.
 *   fails   ERR_REQUEST: another vocabulary; whatever weights_open and decoding_new fail with */
int draft_open(struct draft *x, const char *path, const struct hf_ignore *ignore, const struct model_at_work *m,
               const struct decoding_options *o, struct err *e);
void draft_close(struct draft *x);

/* ERR_REQUEST, with the first token in which they differ. */
int draft_same_tokens(const struct tokenizer *draft, const struct tokenizer *model, struct err *e);

#endif
