/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize.h: text inputs → a token file, once.
 * Includes: base, source.h, tokenizer.h, tokenfile.h. Order: Local.
 */
#ifndef TUTTI_DATA_TOKENIZE_H
#define TUTTI_DATA_TOKENIZE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "data/chat.h"
#include "data/tokenfile.h"
#include "source/source.h"
#include "token/tokenizer.h"

/* How inputs are read (source.h has the words). */
struct tokenize_input {
    const char *column;
    const struct remote_options *remote;
    bool skip_bad;          /* and list them in out_path.skipped */
    struct chat_rules chat; /* template_name NULL: texts; else records of conversations (chat.h), and no column */
    /* What the input of tokenize_cached is a name for: these shards, whose samples have fields (source.h). NULL: it is
     * read itself. */
    const char *const *shards;
    int n_shards;
    const struct source_fields *fields;
};
enum { SKIPPED_TEXT = 240 };
struct tokenize_result {
    int64_t bytes, tokens, documents; /* bytes of text, without what was skipped; tokens with separators */
    int64_t trained;                  /* of conversations: tokens of which a loss is taken */
    int64_t bytes_before;             /* of the text, tokenized by a run before this one that was stopped */
    int64_t skipped;                  /* files passed over */
    char skipped_text[SKIPPED_TEXT];  /* the first of them, and why */
    int64_t bad;                      /* bad records skipped */
    double seconds;
};

/* Writes out_path (…/NAME.tok) from the inputs, read as `how` says (NULL: as usual), on n_threads, with a progress
 * line on stderr: the same bytes for any number of threads. Until it is complete nothing stands under that name, or
 * what stood there before. What is done of larger inputs is kept in out_path.work meanwhile: killed, stopped, or out of
 * disk, it goes on from there when it is called again with the same inputs and tokenizer. Memory: some 16 MiB a thread.
 */
int tokenize(const struct tokenizer *t, const char *const *inputs, int n_inputs, const struct tokenize_input *how,
             const char *out_path, int n_threads, struct tokenize_result *r, struct err *e);

/* The token file of the input in cache_dir: an existing one when inputs and tokenizer are unchanged, else a new
 * one, made on all cores. While another process makes it, waits. When *give_up (NULL: never) becomes other than 0, ends
 * with ERR_SIGNAL; of what was begun nothing is left but the work that the next call goes on with. *path is to be
 * xfreed.
 *   cost  one stat per input file when nothing has changed */
int tokenize_cached(const struct tokenizer *t, const char *input, const struct tokenize_input *how,
                    const char *cache_dir, const atomic_int *give_up, char **path, struct err *e);

#endif
