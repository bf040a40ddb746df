/* SPDX-License-Identifier: Apache-2.0 */
/* s3_list.h: a page of an answer to ListObjectsV2. Includes: base. Order: Local. */
#ifndef TUTTI_REMOTE_S3_LIST_H
#define TUTTI_REMOTE_S3_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct s3_entry {
    char *key, *etag; /* the tag as it stands, "" without */
    int64_t bytes;
};
struct s3_list {
    struct s3_entry *entry;
    int64_t n, room;
    char *next; /* the token that the next page is asked for with; NULL: this was the last */
};

/* Adds the page's objects to the list; keys are decoded, since they are asked for in encoding-type=url.
 *   fails   ERR_IO: it is no such answer, or was cut short. what: for the text. */
int s3_list_add(struct s3_list *l, const char *xml, size_t n, const char *what, struct err *e);
void s3_list_free(struct s3_list *l);

/* A page of an answer to ListMultipartUploads. */
struct s3_upload {
    char *key, *id;
};
struct s3_uploads {
    struct s3_upload *upload;
    int64_t n, room;
    bool more; /* there are others: ask again when these are gone */
};
/* Begin with {0}; free it in any case. fails   as s3_list_add */
int s3_uploads_read(struct s3_uploads *l, const char *xml, size_t n, const char *what, struct err *e);
void s3_uploads_free(struct s3_uploads *l);

#endif
