/* SPDX-License-Identifier: Apache-2.0 */
/* chat_tokenize.h: a source of whole records → a token file with a loss mask. Includes: base, chat.h, tokenize_run.h.
 * Order: Local. Called by tokenize.c. */
#ifndef TUTTI_DATA_CHAT_TOKENIZE_H
#define TUTTI_DATA_CHAT_TOKENIZE_H

#include "data/chat.h"
#include "data/tokenize_run.h"

/* As tokenize_run, of a source opened with whole_records; the same file for any number of threads. skip_bad: records
 * that are no conversations are listed and passed over. Stopped or killed, it goes on as that does. */
int chat_tokenize(const struct chat *c, bool skip_bad, const struct tokenize_run *run, struct tokenfile_writer *w,
                  struct tokenize_result *r, struct err *e);

#endif
