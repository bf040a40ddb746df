/* SPDX-License-Identifier: Apache-2.0 */
/* synthesise.h: `tutti data synthesise`: prompts through a generator and filters into shards.
 *
 * All prompts are looked at before the first is answered: what is bad is said before hours of generating. Then each
 * prompt is continued n_samples times, `batch` samples at once (batching.h); a part ends with the prompt that fills
 * it.
 *
 * Invariants
 *   1. Sample k of prompt i is a function of (weights, tokenizer, template, sampling options, dtype, room, seed, i, k):
 *      neither the order nor other prompts nor the batch changes it by more than the rounding of products with more
 *      rows, and an interruption by nothing: a part begins with an empty cache, and what is written beside a sample is
 *      a function of its part. (Kernels of another CPU may round otherwise.)
 *   2. Killed at any moment, the same command goes on, and the folder's parts have the same bytes
 *      (synthesis_parts.h). What is made again is at most the part that was begun.
 *   3. Memory: the generator's, for `batch` samples as long as the longest prompt allows; a frame of lines; the texts
 *      of 2 * batch samples.
 * Includes: base, curate, decode/prompts.h, decode/batching.h. Order: Local.
 */
#ifndef TUTTI_DECODE_SYNTHESISE_H
#define TUTTI_DECODE_SYNTHESISE_H

#include "curate/rules.h"
#include "layout/dtype.h"
#include "decode/sampling.h"
#include "decode/synthesis_parts.h"

struct synthesis_options {
    const char *model, *tokenizer;                  /* tokenizer NULL: the model's own */
    const char *prompts, *template, *template_name; /* see decode/prompts.h */
    const struct rules *rules;                      /* may have no filter */
    const char *out;
    int64_t n_samples, max_tokens, max_length; /* max_length: tokens of prompt and answer together */
    struct sample_spec spec;
    enum dtype dtype;
    int threads;
    int64_t batch; /* samples at once */
    int64_t part_samples;
    bool with_prompt; /* the text is the prompt and what was generated; else the latter alone */
    bool plain, skip_bad;
};
struct synthesis_result {
    struct synthesis_counts counts; /* of the whole folder, with what was done before an interruption */
    int64_t bad, parts;             /* prompts that were skipped; files there are */
    bool complete_before;
    int64_t resumed_at; /* samples that were done before */
    int64_t new_tokens; /* this time */
    double seconds;
    uint64_t weights, tokenizer; /* the weights' hash, the tokenizer's fingerprint */
    int64_t step;                /* of a checkpoint; -1 */
    struct removals removals;    /* synthesis_result_fini */
};
int synthesise(const struct synthesis_options *o, struct synthesis_result *r, struct err *e);
void synthesis_result_fini(struct synthesis_result *r);

#endif
