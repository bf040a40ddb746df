/* SPDX-License-Identifier: Apache-2.0 */
/* beam_text.h: the likeliest text that a model goes on with after a prompt (decode/beam.h), one or those of a file.
 *
 * Hypotheses are sequences of one decoding: those that came from the same one read the same pages and own their last
 * page alone (decoding_fork); those that nobody goes on from give theirs back before others are made. Models that keep
 * a state of the whole text have it copied. Over ranks the first one calls this. Floor 8. Order: Local.
 */
#ifndef TUTTI_DECODE_BEAM_TEXT_H
#define TUTTI_DECODE_BEAM_TEXT_H

#include "decode/decoding.h"
#include "decode/generate_file.h"
#include "token/tokens.h"

struct beam_options {
    int beams; /* at most as many as the decoding has sequences and rows */
    double length_penalty;
    int64_t max_tokens;
    const char *const *stop; /* texts that end a hypothesis, which what is written does not contain */
    int n_stop;
};
struct beam_text { /* all zero: nothing yet */
    struct str text;
    struct tokens ids;     /* with the one that ended it */
    double logprob, score; /* of its tokens together, with the one that ended it; by length */
    int64_t tokens;        /* without an end of a text */
    double prompt_s, tokens_s;
    const char *stopped; /* "end of text", "stop string", "length", "cache full" */
};
/* After the n tokens of a prompt, at least one. ERR_REQUEST: they are not the model's, or too many. */
int beam_text(struct decoding *d, const struct tokenizer *t, const int32_t *ids, int64_t n,
              const struct beam_options *o, struct beam_text *out, struct err *e);
void beam_text_free(struct beam_text *x);

/* After each prompt of a file, told in its order; template: NULL, or what makes a prompt of a record. */
int beam_many(struct decoding *d, const struct tokenizer *t, const char *path, const char *template,
              const struct beam_options *o, many_text_fn *tell, void *ctx, struct err *e);

#endif
