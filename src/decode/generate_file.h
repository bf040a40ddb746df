/* SPDX-License-Identifier: Apache-2.0 */
/* generate_file.h: what a model writes after each prompt of a file, many at once, told in the file's order.
 * Floor 8. Order: Local.
 */
#ifndef TUTTI_DECODE_GENERATE_FILE_H
#define TUTTI_DECODE_GENERATE_FILE_H

#include "decode/batching.h"

struct generate_file_options {
    const char *path, *template; /* as prompts_options */
    int64_t max_tokens;
    struct sample_spec sample; /* the seed is mixed with the prompt's number: each is written as if it were alone */
    struct sample_before before;
    const char *const *stop;
    int n_stop;
};
struct many_text {
    int64_t index; /* of the prompt in the file, from 0 */
    const char *prompt, *text;
    size_t n; /* bytes of text, which may hold NUL */
    const char *stopped;
    struct answer_counts counts;
};
typedef int many_text_fn(void *ctx, const struct many_text *t, struct err *e); /* an error ends all */
int generate_file(struct decoding *d, const struct tokenizer *t, const struct generate_file_options *o,
                  many_text_fn *tell, void *ctx, struct err *e);
uint64_t generate_file_seed(uint64_t seed, int64_t index);

#endif
