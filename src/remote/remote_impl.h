/* SPDX-License-Identifier: Apache-2.0 */
/* remote_impl.h: what the files of a struct remote share: remote.c (threads and pieces), attempt.c (one thing asked of
 * a server, as often as it takes), object.c (versions, reading), fetch_piece.c (pieces over the network),
 * etag.c (what was read beside its ETag), object_list.c, upload.c (objects that are written). */
#ifndef TUTTI_REMOTE_REMOTE_IMPL_H
#define TUTTI_REMOTE_REMOTE_IMPL_H

#include <pthread.h>

#include "remote/etag.h"
#include "remote/http.h"
#include "remote/piece_cache.h"
#include "remote/remote.h"
#include "remote/s3.h"
#include "remote/url.h"

enum slot_state { SLOT_FREE, SLOT_WANTED, SLOT_BUSY, SLOT_READY, SLOT_FAILED };

struct slot { /* memory for one piece */
    enum slot_state state;
    struct object *o; /* NULL when free */
    int64_t piece;
    size_t n; /* bytes of the piece */
    unsigned char *data;
    int readers;      /* who wait for it or copy from it: it stays */
    bool done;        /* somebody read it to its end */
    uint64_t used;    /* the larger, the later */
    struct err error; /* of SLOT_FAILED */
};

struct remote {
    struct remote_options o;
    char *cache_dir; /* o.cache_dir is this */
    uint64_t salt;   /* of this struct remote only: in keys of objects that have no version */
    /* Set by remote_start, once. */
    struct piece_cache *cache; /* NULL: none */
    struct s3 s3;
    bool s3_known;
    /* lock guards what follows, and objects' closing and next; the slots' data are their owner's by their state */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct slot *slot;
    int n_slots;
    bool placed; /* the slots' data are the caller's */
    pthread_t *thread;
    int n_threads;
    bool started, stop;
    uint64_t clock;
    struct remote_counts counts;
    atomic_bool tags_differ;       /* its ETags were found to be no MD5, though they look like it */
    atomic_bool tags_hold;         /* one was found to be the MD5 of what was read */
    atomic_uint_fast64_t tags_odd; /* the first object of which it was not, twice alike: its version; 0: none */
    /* front_lock guards front: the connection of remote_look and remote_list */
    pthread_mutex_t front_lock;
    struct http *front;
};

struct object {
    struct remote *r;
    struct url url;
    struct remote_about about;
    int64_t next; /* the offset behind the last read */
    atomic_bool closing;
    pthread_mutex_t whole; /* held by who fetches it whole */
    atomic_bool sealed;    /* an answer said that its ETag is not of its bytes */
    struct etag_sum tag;
};

/* ---- remote.c ---- */
/* The cache's folder and s3's keys, at the first use of the network. */
int remote_start(struct remote *r, bool s3, struct err *e);
void remote_count(struct remote *r, int64_t requests, int64_t failed, int64_t fetched, int64_t from_cache);
size_t piece_bytes(const struct object *o, int64_t piece);

/* ---- attempt.c ---- */
/* One thing asked of a server. `body` gets what comes, and may move first and n on; `judge` says of an answer with
 * status 200, 206 or 416, or of a body that was ended, whether that was it. */
enum verdict { DONE, AGAIN, NEVER };
struct attempt {
    struct remote *r;
    const struct url *url;
    const char *query;               /* of s3's list; "" else */
    const struct remote_about *same; /* this version only; NULL: whatever there is */
    int64_t first, n;                /* bytes; n 0: all */
    const char *method;              /* of what writes: PUT, POST, DELETE; NULL: GET */
    const void *send;                /* its body */
    size_t n_send;
    const char *source, *range; /* instead of a body: an object of the store, bytes of it (s3.h); NULL */
    const atomic_bool *closing; /* NULL: never */
    int status;                 /* of the last answer, 0: none came; set by attempt() */
    bool sealed;                /* an answer said that its ETag is not of its bytes; set by attempt() */
    bool (*body)(void *arg, const struct http_reply *r, const void *p, size_t n);
    enum verdict (*judge)(void *arg, const struct http_reply *r, char why[300]);
    void *arg;
};
/* fails   with the address, the place, why, tries and seconds */
int attempt(struct http *h, struct attempt *a, struct err *e);
/* What in an answer's head contradicts the version; NULL: nothing. */
const char *attempt_other_version(const struct remote_about *about, const struct http_reply *r);

/* ---- object.c ---- */
/* remote_look, and the status of its last answer. */
int look_at(struct remote *r, const char *url, struct remote_about *about, int *status, struct err *e);

/* ---- fetch_piece.c ---- */
/* A piece: from the folder, else over the network. */
int fetch_piece(struct http *h, struct object *o, int64_t piece, unsigned char *to, struct err *e);
struct piece_key fetch_key(const struct object *o, int64_t piece);

#endif
