/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize_run.h: source → token file on several threads, going on where a run before was stopped.
 * Includes: base, source.h, tokenizer.h, tokenize.h. Order: Local.
 */
#ifndef TUTTI_DATA_TOKENIZE_RUN_H
#define TUTTI_DATA_TOKENIZE_RUN_H

#include <stdatomic.h>

#include "base/str.h"
#include "data/tokenfile.h"
#include "data/tokenize.h"
#include "source/bad_list.h"
#include "source/source.h"
#include "token/text_parts.h"

struct tokenize_run {
    const struct tokenizer *tokenizer;
    struct source *source; /* nothing read yet */
    int32_t vocab;         /* ids are below: the tokenizer's, and of conversations that of pictures */
    const char *out_path;  /* work is kept in out_path.work from work_from bytes of input on */
    uint64_t key;          /* of inputs and tokenizer */
    int64_t work_from;
    const struct parts_sizes *sizes; /* NULL: the usual */
    int n_threads;
    struct str *told;          /* the source's context for tokenize_tell; NULL: it tells nobody */
    struct bad_list *bad;      /* where bad records go, in order; NULL: nowhere */
    const atomic_int *give_up; /* see tokenize_cached; NULL: never */
};
/* For source_options.tell_bad, with run.told as its context. */
void tokenize_tell(void *told, const char *what);
/* Adds all documents to the writer, whose lock keeps others away from the work. Fills *r. On failure what was done is
 * kept in the work file, and *e says so; tokenize_run_done removes it. */
int tokenize_run(const struct tokenize_run *run, struct tokenfile_writer *w, struct tokenize_result *r, struct err *e);
/* The caller wants to end, and this takes long: ERR_SIGNAL, else OK. */
int tokenize_given_up(const atomic_int *give_up, struct err *e);
void tokenize_run_done(const struct tokenize_run *run); /* removes the work */
/* For who runs otherwise (chat_tokenize.c). The work's name, to be xfreed; says of a failure that it is kept. */
char *tokenize_work_path(const struct tokenize_run *run);
void tokenize_say_kept(const struct tokenize_run *run, struct err *e);

#endif
