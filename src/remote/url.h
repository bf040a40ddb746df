/* SPDX-License-Identifier: Apache-2.0 */
/* url.h: addresses of objects: http://, https:// and s3://BUCKET/KEY.
 *
 * An address may hold what nobody else should see: a user and a password, or a query that is signed. Messages,
 * metrics and files therefore get `shown`, never `text`.
 * Includes: base. Order: Local.
 */
#ifndef TUTTI_REMOTE_URL_H
#define TUTTI_REMOTE_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

struct url {
    char *text;  /* as it was given */
    char *shown; /* without user, password, query and fragment; of s3:// all of it */
    bool s3;
    char *bucket, *key; /* of s3://, as they are, not encoded; a key of "" is the whole bucket */
};

bool url_is(const char *path); /* begins with one of the three schemes */
/* ERR_REQUEST, with the reason, where no request could be made of it. Free it in any case. */
int url_parse(struct url *u, const char *text, struct err *e);
void url_free(struct url *u);

/* Adds n bytes, percent-encoded but for letters, digits, "-._~" and, where wanted, "/". */
void url_encode(struct str *out, const char *p, size_t n, bool keep_slash);
/* The other way, in place; what is no %XX stays. */
void url_decode(char *p);

#endif
