/* SPDX-License-Identifier: Apache-2.0 */
/* api_members.h: every member that a request may have, as a closed table. A member is done (api_request.c and
 * api_messages.c read it), or it is taken and the row says why it changes no answer, or it is refused by name; what has
 * no row is refused by name, too, so that a slip of the pen is no default.
 *
 * The rows hold every member of OpenAI's published requests and of vLLM's extensions to them; tests/serve/members.txt
 * is the list, made by scripts/serve_members.py, and tests/serve/test_members.c sends each alone.
 * null is as good as absent in all of them. Floor 11. Order: Local.
 */
#ifndef TUTTI_SERVE_API_MEMBERS_H
#define TUTTI_SERVE_API_MEMBERS_H

#include "base/err.h"
#include "base/json.h"

enum api_kind { API_TEXT = 1, API_CHAT = 2, API_BOTH = 3 }; /* /v1/completions, /v1/chat/completions */
enum api_fate {
    MEMBER_DONE,
    MEMBER_IDLE,    /* taken: `why` is why it changes no answer */
    MEMBER_REFUSED, /* `neutral`: values that ask for nothing, and are taken */
};
struct api_member {
    const char *name;
    enum api_kind of;
    enum api_fate fate;
    const char *neutral; /* with spaces between: false, 1, "none"; [] and {}: empty ones */
    const char *why;     /* or what to do instead */
};
extern const struct api_member api_members[];
extern const int api_n_members;

/* A member that may be null, which is as good as absent: NULL. */
const struct json *api_member(const struct json *o, const char *name);
/* Whether the value is one of those that ask for nothing. */
bool api_member_neutral(const char *neutral, const struct json *v);
/* ERR_REQUEST: a member that is not known, or refused, by its name. */
int api_members_check(const struct json *o, enum api_kind kind, struct err *e);

#endif
