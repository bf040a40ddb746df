/* SPDX-License-Identifier: Apache-2.0 */
/* chat_forms.h: what the forms of records have in common: members that are looked at, and messages that are written
 * anew. For chat_record.c and chat_preference.c only. Order: Local. */
#ifndef TUTTI_DATA_CHAT_FORMS_H
#define TUTTI_DATA_CHAT_FORMS_H

#include "base/str.h"
#include "data/chat_record.h"

bool chat_is_text(const struct json *v);
bool chat_is_list(const struct json *v);
bool chat_is_empty(const struct json *v); /* absent, null, or a text, list or object of nothing */
/* The member, which counts as read from now on; NULL: it is absent or null. */
const struct json *chat_use(struct chat_record *r, const char *name);
/* The record's text for the system, beside its messages. NULL in *text: it has none.
 *   fails   ERR_CORRUPT: it is no text, or `first`, the messages, begin with another one */
int chat_system(struct chat_record *r, const struct json *first, const struct json **text, const char *where,
                struct err *e);

void chat_put_message(struct json_out *o, const char *role, const struct json *content);
void chat_put_text(struct json_out *o, const char *role, const char *content);
/* The messages of a list, each as it is, or of {"from", "value"} as it is written here.
 *   fails   ERR_CORRUPT: one is neither */
int chat_put_one(struct json_out *o, const struct json *m, const char *what, size_t i, const char *where,
                 struct err *e);
int chat_put_list(struct json_out *o, const struct json *list, const char *what, const char *where, struct err *e);
/* What was written is the record's messages; frees the text. A text with a NUL cannot be written anew: ERR_CORRUPT. */
int chat_take(struct chat_record *r, struct json_out *o, const char *where, struct err *e);
bool chat_same(const struct json *a, const struct json *b);

/* Forms of preferences (chat_preference.c). first: the first message that may be an answer. */
int chat_read_preference(struct chat_record *r, enum chat_side side, size_t *first, const char *where, struct err *e);

#endif
