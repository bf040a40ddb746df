/* SPDX-License-Identifier: Apache-2.0 */
/* generate.h: text from a model with a key/value cache.
 *
 * For one text at a time; decoding.h goes on with many, and batching.h with many prompts.
 * Floor 8. Order: Local.
 */
#ifndef TUTTI_DECODE_GENERATE_H
#define TUTTI_DECODE_GENERATE_H

#include "hub/weights.h"
#include "device/device.h"
#include "decode/sampling.h"
#include "token/tokenizer.h"

struct generator;
/* room: positions the cache holds, prompt included; 0: as many as the model has. dtype DT_N: bf16. */
int generator_new(struct generator **out, struct weights *w, struct device *d, int threads, int64_t room,
                  enum dtype dtype, struct err *e);
/* On one that is there already, with a sequence that is free; borrowed. */
struct decoding;
int generator_on(struct generator **out, struct decoding *d, struct err *e);
/* Pictures of the prompts from now on, before the first (decoding.h); where one is, a prompt has "<image>". */
int generator_see(struct generator *g, const float *pixels, int64_t n, struct err *e);
/* Texts from now on are written several tokens a step (speculative.h): by the guesses of a draft, which is borrowed, or
 * of the text itself (draft NULL). ERR_REQUEST: speculative_new. */
int generator_speculate(struct generator *g, struct decoding *draft, int64_t guesses, struct err *e);
void generator_free(struct generator *g);
int64_t generator_room(const struct generator *g);

/* Feeds n tokens after those fed before (0 starts over with generator_reset); logits_V of the last one, valid until
 * the next call. ERR_REQUEST when the cache is full or an id is out of range. */
void generator_reset(struct generator *g);
int generator_feed(struct generator *g, const int32_t *ids, int64_t n, const float **logits_V, struct err *e);

/* Prompt to text, of encoder and decoder what the decoder writes to it: calls emit with each piece of valid UTF-8 as it
 * comes (return false to stop). Ends after max_tokens, at an end-of-text token, or when the cache is full. */
typedef bool generate_emit_fn(void *ctx, const char *text, size_t n);
struct generate_result {
    int64_t prompt_tokens, tokens;
    int64_t guessed, taken; /* tokens of a draft */
    double prompt_s, tokens_s;
    const char *stopped; /* "length", "end of text", "cache full", "stopped" */
};
/* The tokens that a prompt is asked with: behind what the tokenizer puts before a text; an empty one begins a document,
 * unless an encoder reads it. */
int generate_ids(const struct decoding *d, const struct tokenizer *t, const char *prompt, struct tokens *ids,
                 struct err *e);
int generate(struct generator *g, const struct tokenizer *t, const char *prompt, int64_t max_tokens,
             const struct sample_spec *spec, generate_emit_fn *emit, void *ctx, struct generate_result *r,
             struct err *e);

#endif
