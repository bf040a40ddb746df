/* SPDX-License-Identifier: Apache-2.0 */
/* etag.h: whether what was read of an object is what its ETag says. In S3's protocol an ETag of 32 digits is the MD5 of
 * the bytes, unless they are encrypted with a key (an answer says so). What is read from front to back is compared at
 * its end, whether it came over the network or from the folder; an object of one piece as soon as it has come. Where it
 * does not fit, it is fetched once more:
 *
 *   now it fits              what came first was wrong. One piece: nobody has seen it. Else an error; nothing is kept
 *   other bytes once more    an error; nothing is kept
 *   the same bytes           the store keeps it so, or its ETags are other numbers. An error where one of them was
 *                            found to be an MD5; else a warning, and nothing is kept. Two such objects: they are other
 *                            numbers
 *
 * Not compared: what is read in places (Parquet, token files) and has several pieces; objects that were written in
 * parts, whose ETags end with their number.
 * Includes: base, remote_impl.h's types by name. Order: Local; any number of threads.
 */
#ifndef TUTTI_REMOTE_ETAG_H
#define TUTTI_REMOTE_ETAG_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "remote/sha256.h"

struct object;

bool etag_is_md5(const char *etag); /* it looks like one; a quotation mark may end it */

/* Of what was read from front to back. lock guards the rest */
struct etag_sum {
    pthread_mutex_t lock;
    struct md5 *sum; /* NULL: nothing is compared, or not any more */
    int64_t at;      /* so many bytes are in it */
};
void etag_begin(struct object *o);
void etag_end(struct object *o);
/* Bytes [at, at + n) were read. ERR_IO: they were the last ones, and do not fit. */
int etag_add(struct object *o, int64_t at, size_t n, const void *p, struct err *e);

/* All of an object: whether it fits, or nothing can be said; else sum is its MD5. */
bool etag_fits(struct object *o, const void *p, size_t n, char sum[MD5_TEXT]);
/* Two sums, neither of which fits. OK: said, and gone on with. */
int etag_settle(struct object *o, const char first[MD5_TEXT], const char second[MD5_TEXT], struct err *e);

#endif
