/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize.h: text inputs → a token file, once.
 * Includes: base, source.h, tokenizer.h, tokenfile.h. Order: Local.
 */
#ifndef TUTTI_DATA_TOKENIZE_H
#define TUTTI_DATA_TOKENIZE_H

#include <stdatomic.h>
#include <stdint.h>

#include "data/tokenfile.h"
#include "data/tokenizer.h"

struct tokenize_result {
    int64_t bytes, tokens, documents; /* bytes of text, without what was skipped; tokens with separators */
    int64_t skipped;                  /* files passed over */
    double seconds;
};

/* Writes out_path (…/NAME.tok) from the inputs (column: see source_open), with a progress line on stderr. Until it is
 * complete nothing stands under that name, or what stood there before. */
int tokenize(const struct tokenizer *t, const char *const *inputs, int n_inputs, const char *column,
             const char *out_path, struct tokenize_result *r, struct err *e);

/* The token file of the input in cache_dir: an existing one when inputs and tokenizer are unchanged, else a new
 * one. While another process makes it, waits. When *give_up (NULL: never) becomes other than 0, ends with ERR_SIGNAL
 * and nothing is left of what was begun. *path is to be xfreed.
 *   cost  one stat per input file when nothing has changed */
int tokenize_cached(const struct tokenizer *t, const char *input, const char *column, const char *cache_dir,
                    const atomic_int *give_up, char **path, struct err *e);

#endif
