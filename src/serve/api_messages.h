/* SPDX-License-Identifier: Apache-2.0 */
/* api_messages.h: a chat's request to the tokens that the model is asked with, by its template. What a message has and
 * the template may read goes to it as it is; what it cannot read is refused by name where an answer would have to know
 * of it. Floor 11. Order: Local.
 */
#ifndef TUTTI_SERVE_API_MESSAGES_H
#define TUTTI_SERVE_API_MESSAGES_H

#include "data/chat.h"

/* o: the request, whose members are known (api_members.h). chat NULL: the model has no template. ERR_REQUEST. */
int api_messages_read(const struct json *o, const struct chat *chat, struct tokens *prompt, struct err *e);

#endif
