/* SPDX-License-Identifier: Apache-2.0 */
/* remote.h: objects behind http://, https:// and s3:// addresses, read in places; those of s3:// written too.
 *
 *   owner   remote_new → (remote_list) → remote_look → object_open → object_read, ... → object_close
 *           → remote_free
 *
 * A struct remote has a few threads that fetch pieces (by default 1 MiB each) over as many connections, memory for a
 * bounded number of pieces, and a folder that keeps what was fetched (piece_cache.h). An object that is read from front
 * to back is fetched ahead of its reader; parts of one long read are fetched side by side.
 *
 * Invariants
 *   1. The bytes that are handed out are all of one version of the object: the one that remote_look saw, told by its
 *      ETag, else by its time of change, and by its size. Another one is an error, never a mixture.
 *   2. What may pass (no connection, HTTP 408, 425, 429, 500, 502, 503, 504, a stall, an answer cut short) is tried
 *      again, with growing pauses of random length and those that the server asks for, at most `tries` times and
 *      give_up_s seconds for each piece; what was got before is kept.
 *   3. An error says address (without what is secret in it), offset, HTTP status, tries and seconds.
 *   4. Memory is remote_bytes; no thread and no connection is begun before the first piece is wanted.
 * Includes: base. Order: Local; any number of threads.
 */
#ifndef TUTTI_REMOTE_REMOTE_H
#define TUTTI_REMOTE_REMOTE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/held.h"

struct remote_options {
    int connections;
    int tries;
    double connect_s, stall_s, give_up_s;
    double pause_s;            /* before the second try; doubled before each further one, up to 20 s */
    int64_t piece;             /* bytes */
    const char *cache_dir;     /* NULL: $XDG_CACHE_HOME/tutti/objects, else ~/.cache/tutti/objects */
    int64_t cache_limit;       /* bytes; 0: nothing is kept */
    int64_t list_most;         /* objects of a list that are taken in; 0: 5,000,000 */
    int64_t copy_most;         /* bytes that a store is asked to copy at once; 0: 5 GiB, which S3 allows */
    bool own_sums;             /* who reads has checksums of his own: ETags are not compared with bytes (etag.h) */
    const atomic_int *give_up; /* other than 0: whatever waits ends with ERR_SIGNAL; NULL: never */
};
struct remote_options remote_defaults(void);

struct remote;
/* NULL: the defaults. Texts are copied. Nothing can fail yet: see remote_look. */
struct remote *remote_new(const struct remote_options *o);
void remote_free(struct remote *r);                   /* all its objects are closed; NULL is fine */
int64_t remote_bytes(const struct remote_options *o); /* of pieces in memory, at most */

size_t remote_memory(const struct remote *r); /* the same, of this one */
/* Pieces are in the caller's memory from now on, remote_memory of it, until remote_free. Nobody reads; what is under
 * way is waited for. */
void remote_place(struct remote *r, void *memory);

bool remote_is(const char *path); /* an address, not a path */
/* ERR_REQUEST, with the reason, where no request could be made of an address: it names no bucket, no host. */
int remote_check(const char *url, struct err *e);
char *remote_shown(const char *url); /* of it, what everybody may see; xfree it */
/* text, a printed config for example, with what everybody may see of the addresses in it; of a path all; xfree it. An
 * address ends at white space or a quotation mark. */
char *remote_hidden(const char *text);
bool remote_has_secrets(const char *text); /* remote_hidden leaves something out */

/* An object's version. */
struct remote_about {
    int64_t bytes;
    char etag[200];   /* "" without; without quotes and W/ */
    bool weak;        /* of the ETag */
    char changed[64]; /* Last-Modified; "" where it was not said */
    bool whole;       /* its server gives no parts: it is fetched whole, into the cache */
};
/* Asks the server.
 *   fails   ERR_REQUEST: no such object, forbidden, a server that cannot be used so; ERR_IO: it cannot be reached */
int remote_look(struct remote *r, const char *url, struct remote_about *about, struct err *e);
/* A number that changes when the object does. */
uint64_t remote_version(const char *url, const struct remote_about *about);

/* What lies below s3://BUCKET/PREFIX/, each object once: names in the order in which a folder of the same names is read
 * (each part of a name in byte order). Passed over: empty objects, and names with a part that begins with a dot.
 *   fails   ERR_IO where a list names an object twice, has more than list_most, or comes in pages with hardly anything
 *           new in them: it would never end */
struct remote_entry {
    char *url;
    struct remote_about about;
};
struct remote_list {
    struct remote_entry *entry;
    int64_t n, room;
};
int remote_list(struct remote *r, const char *url, struct remote_list *l, struct err *e);
void remote_list_free(struct remote_list *l);

/* -- one object ---------------------------------------------------------------------------------------------- */

struct object;
/* No request is made. */
int object_open(struct object **o, struct remote *r, const char *url, const struct remote_about *about, struct err *e);
void object_close(struct object *o); /* NULL is fine; nobody reads it */
/* Bytes [at, at + n), which the object has.
 *   fails   ERR_IO, ERR_SIGNAL; the next call tries anew. ERR_IO of the last bytes: all that was read of it, from front
 *           to back, is not what its ETag is the MD5 of (etag.h) */
int object_read(struct object *o, int64_t at, size_t n, void *out, struct err *e);
int64_t object_bytes(const struct object *o);
const char *object_name(const struct object *o); /* for messages */

/* -- writing, s3:// alone ------------------------------------------------------------------------------------ */

/* Bytes [at, at + n) of what is written; asked for in order, each part once. */
typedef int remote_source_fn(void *ctx, int64_t at, size_t n, void *out, struct err *e);
/* Makes the object, all of it or none: readers see it when the last byte is there. In parts where it is large, each of
 * which is tried again for itself; a store compares every part with its SHA-256, and what it says it has (an ETag that
 * is an MD5) is compared with what it was given: where that is another, the object is read back, and `source` is asked
 * again. Memory: one part of 16 MiB, or a 9,000th of it. What a failure leaves is removed, as far as the store can be
 * reached.
 *   fails   as object_read; what source fails with */
int remote_put(struct remote *r, const char *url, remote_source_fn *source, void *ctx, int64_t bytes, struct err *e);
/* The object `from` of the same store, of so many bytes, once more as `to`, without a byte of it passing here. Fails as
 * remote_put; a store may not know how. */
int remote_copy(struct remote *r, const char *from, const char *to, int64_t bytes, struct err *e);
/* Gives up all objects below a prefix that were begun in parts and are not there: of processes that were killed. *n:
 * how many. Nobody may be writing there. */
int remote_tidy(struct remote *r, const char *url, int64_t *n, struct err *e);
/* An object that is not there: OK. */
int remote_remove(struct remote *r, const char *url, struct err *e);
/* Whether there is such an object, and then all of it: at most `limit` bytes, NUL-terminated; xfree *text.
 *   HELD_NONE      the store says so of this key (HTTP 404)
 *   HELD_UNKNOWN   any other answer, or none: *e */
enum held remote_hold(struct remote *r, const char *url, size_t limit, char **text, size_t *n, struct err *e);
/* The same of one that is there. */
int remote_get(struct remote *r, const char *url, size_t limit, char **text, size_t *n, struct err *e);

struct remote_counts {
    int64_t requests, failed;    /* requests; those of them that were tried again */
    int64_t fetched, from_cache; /* bytes over the network; from the folder */
    double waited_s;             /* of readers, for pieces */
};
struct remote_counts remote_counts(struct remote *r);
/* A line of it on stderr, where anything was asked for. */
void remote_say(struct remote *r);

#endif
