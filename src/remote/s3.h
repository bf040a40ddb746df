/* SPDX-License-Identifier: Apache-2.0 */
/* s3.h: requests to a store that speaks S3's protocol, made of s3://BUCKET/KEY and the environment, as the programs of
 * such stores have it:
 *
 *   AWS_ENDPOINT_URL_S3, else AWS_ENDPOINT_URL      where the store is; default https://s3.REGION.amazonaws.com
 *   AWS_REGION, else AWS_DEFAULT_REGION             default us-east-1
 *   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY        requests are signed with them; without both they are anonymous
 *   AWS_SESSION_TOKEN                               goes with temporary keys
 *   AWS_S3_ADDRESSING_STYLE                         path (default): HOST/BUCKET/KEY; virtual: BUCKET.HOST/KEY
 *
 * A bucket whose name is no label of a host's name (capitals, dots, underscores) stands in the path always. Files with
 * profiles and roles of machines are not read. Includes: base. Order: Local.
 */
#ifndef TUTTI_REMOTE_S3_H
#define TUTTI_REMOTE_S3_H

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

struct s3 {
    char *endpoint;                     /* "https://host:port/base", without a slash at its end */
    char *host;                         /* of it, as the header Host has it */
    char *base;                         /* of it: "/base" or "" */
    char *region, *id, *secret, *token; /* id NULL: anonymous; token may be NULL */
    bool virtual_hosts;                 /* the bucket is part of the host's name */
};

/* ERR_REQUEST where the environment contradicts itself. Free it in any case. */
int s3_from_environment(struct s3 *s, struct err *e);
void s3_free(struct s3 *s);

/* What a request needs: its address, and the lines of its head. */
struct s3_get {
    struct str url;
    struct str line[7];
    const char *header[7];
    int n_headers;
};
/* query: encoded, "" without. unix_s: the time, which a signature holds for some minutes. Free it with s3_get_free. */
void s3_get_make(struct s3_get *g, const struct s3 *s, const char *bucket, const char *key, const char *query,
                 double unix_s);
/* The same for another method and a body, whose SHA-256 `payload` is, in text. source: instead of a body an object of
 * the store, "/BUCKET/KEY", encoded; range: bytes of it, "bytes=0-99". Both may be NULL. */
struct s3_body {
    const char *payload, *source, *range;
};
void s3_make(struct s3_get *g, const struct s3 *s, const char *method, const struct s3_body *body, const char *bucket,
             const char *key, const char *query, double unix_s);
void s3_get_free(struct s3_get *g);

/* Between <NAME> and </NAME>, with its entities as characters; NULL: not there. xfree it. For answers of errors. */
char *s3_element(const char *xml, const char *name);

#endif
