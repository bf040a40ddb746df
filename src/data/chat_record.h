/* SPDX-License-Identifier: Apache-2.0 */
/* chat_record.h: the forms of records (chat.h) as messages, and which of them are answers. Includes: base.
 * Order: Local. */
#ifndef TUTTI_DATA_CHAT_RECORD_H
#define TUTTI_DATA_CHAT_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "data/chat.h"

enum { CHAT_USED = 16 };
struct chat_record {
    const struct json *messages;     /* a list of objects with a role each; NULL: the record is two texts */
    const char *prompt, *completion; /* those */
    size_t prompt_n, completion_n;
    const struct json *record;   /* others of its members are the template's */
    struct json *own;            /* where messages had to be written anew */
    struct json *of_text;        /* of a list that the record holds as a text of JSON */
    const char *used[CHAT_USED]; /* members that were looked at */
    int n_used;
    bool *answer; /* per message: it is one of which a loss may be taken */
    int64_t n;
};
/* The record stays the caller's, and must stay. side: which answer of a preference; both are looked at, so a record is
 * good or bad for both sides alike. where: for errors. ERR_CORRUPT. */
int chat_record_read(struct chat_record *r, const struct json *record, enum chat_side side, const char *where,
                     struct err *e);
/* An answer that was written to what a record asks: its prompt, a text or a list of messages, or its messages, which
 * then end before the assistant's. answer stays the caller's. ERR_CORRUPT. */
int chat_record_answered(struct chat_record *r, const struct json *record, const char *answer, size_t n,
                         const char *where, struct err *e);
void chat_record_fini(struct chat_record *r);
/* The messages that a record asks with, its prompt or its messages, below its text for the system: the record's own, or
 * in *own, to be freed. Neither is looked at here. ERR_CORRUPT. */
int chat_record_asked(const struct json *record, const struct json **asked, struct json **own, const char *where,
                      struct err *e);
/* Members that say something and that nobody reads: neither the form the record is of, nor the template, whose text has
 * no such word. Each ends with a NUL. */
void chat_record_unread(const struct chat_record *r, const char *template, struct str *out);
/* Whether the template sees this member of the record under its name: any but those the forms are made of. */
bool chat_record_passes(const char *member);

#endif
