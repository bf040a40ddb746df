/* SPDX-License-Identifier: Apache-2.0 */
/* prompts.h: the records of a file as prompts: a template over each record's members, or its member `prompt`.
 *
 * A prompt is bad, and told with file and line, where the record has no such member, the template fails for it or puts
 * out something undefined, where it is empty or holds a NUL, and where it has more tokens than there is room for.
 * Includes: base, jinja/jinja.h, source/source.h, token/tokenizer.h. Order: Local.
 */
#ifndef TUTTI_DECODE_PROMPTS_H
#define TUTTI_DECODE_PROMPTS_H

#include "base/err.h"
#include "base/str.h"
#include "source/source.h"
#include "token/tokenizer.h"

struct prompts_options {
    const char *path;     /* of records: .jsonl, packed or not */
    const char *template; /* its text; NULL: the member `prompt` */
    const char *name;     /* of the template, for errors */
    const struct tokenizer *tokenizer;
    int64_t most_tokens, vocab; /* of the model: a token that is not below it is an error always */
    bool skip_bad;
    void (*tell_bad)(void *ctx, const char *what); /* of each that is skipped; NULL: nobody */
    void *tell_ctx;
};
struct prompts;
int prompts_open(struct prompts **p, const struct prompts_options *o, struct err *e);
void prompts_close(struct prompts *p); /* NULL is fine */

/* The next good prompt: 1 with its text, valid until the next call; 0: there are no more; < 0. */
int prompts_next(struct prompts *p, const char **text, struct err *e);
/* Where it comes from; the path is borrowed. */
void prompts_where(const struct prompts *p, struct source_place *place);
/* Which one it is: records before it in the file that are objects, the bad prompts among them counted. */
int64_t prompts_index(const struct prompts *p);
int64_t prompts_n_bad(const struct prompts *p);
int64_t prompts_tokens(const struct prompts *p); /* of the last good prompt */
uint64_t prompts_key(const struct prompts *p);   /* as source_key */

#endif
