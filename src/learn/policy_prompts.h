/* SPDX-License-Identifier: Apache-2.0 */
/* policy_prompts.h: what a model is asked while it learns by rewards: records of .jsonl files, all in memory.
 *
 * A record has "prompt", a text, which is asked as it stands, or a list of messages; or "messages", a list without the
 * answer. Lists need a template (chat). What else a record has is the reward's. Which prompt comes when is a function
 * of (seed, k): every epoch all of them in an order of its own. Includes: base, data, token. Floor 8. Order: Local.
 */
#ifndef TUTTI_LEARN_POLICY_PROMPTS_H
#define TUTTI_LEARN_POLICY_PROMPTS_H

#include <stdatomic.h>

#include "config/config.h"
#include "token/tokenizer.h"

struct policy_prompt {
    const int32_t *ids;
    int64_t n;
    const char *record; /* as it stands in its file, without its end */
    size_t record_n;
};
struct policy_prompts;
/* Of all sources of data.train. ERR_CORRUPT, with file and record: it is of no such form, or has more than most_tokens.
 */
int policy_prompts_open(struct policy_prompts **out, const struct config *c, const struct tokenizer *t,
                        int64_t most_tokens, const atomic_int *give_up, struct err *e);
void policy_prompts_close(struct policy_prompts *p); /* NULL is fine */
int64_t policy_prompts_n(const struct policy_prompts *p);
int64_t policy_prompts_tokens(const struct policy_prompts *p);       /* of all */
uint64_t policy_prompts_fingerprint(const struct policy_prompts *p); /* of records and tokens */
/* The k-th that is asked. */
struct policy_prompt policy_prompts_at(const struct policy_prompts *p, int64_t k);

#endif
