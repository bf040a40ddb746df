/* SPDX-License-Identifier: Apache-2.0 */
/* object.c: what a server says of an object, by a request for its first byte: that also tells whether it gives parts,
 * and it works where an address is signed for GET and for nothing else. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "remote/remote_impl.h"

struct look {
    struct attempt a;
    struct remote_about *about;
};

static bool look_body(void *arg, const struct http_reply *r, const void *p, size_t n)
{
    (void)arg, (void)p, (void)n;
    return r->status == 206; /* a whole object is not wanted now */
}

static void keep_version(struct remote_about *b, const struct http_reply *r)
{
    const char *tag = r->etag;
    b->weak = !strncmp(tag, "W/", 2);
    if (b->weak) tag += 2;
    if (*tag == '"') tag++;
    snprintf(b->etag, sizeof b->etag, "%.*s", (int)strcspn(tag, "\"\r\n"), tag);
    snprintf(b->changed, sizeof b->changed, "%s", r->changed);
}

static enum verdict look_judge(void *arg, const struct http_reply *r, char why[300])
{
    struct look *l = arg;
    struct remote_about *b = l->about;
    *b = (struct remote_about){.bytes = r->status == 200 ? r->length : r->total, .whole = r->status == 200};
    keep_version(b, r);
    if (r->status == 416 && r->total == 0) return DONE; /* of nothing there is no first byte */
    if (r->status == 416) snprintf(why, 300, "HTTP 416: its server gives not even its first byte");
    else if (b->bytes < 0)
        snprintf(why, 300,
                 "its server says neither how large it is nor gives parts of it; download it, and name the file");
    else if (r->status == 206 && r->first != 0)
        snprintf(why, 300, "its server answers with other bytes than were asked for");
    return *why ? NEVER : DONE;
}

/* A whole object has to be kept, since each of its parts comes only with all of it. */
static int check_whole(const struct remote *r, const struct url *u, const struct remote_about *b, struct err *e)
{
    char bytes[32], limit[32];
    int64_t most = r->cache ? piece_cache_limit(r->cache) : 0;
    if (!b->whole || b->bytes <= r->o.piece || b->bytes + b->bytes / 64 <= most) return OK;
    return err_set(e, ERR_REQUEST,
                   "%s: its server gives no parts of it (it ignores Range), so that it would have to be kept whole: "
                   "%s, "
                   "and data.remote.cache_limit is %s; raise that, or download it and name the file",
                   u->shown, str_bytes(bytes, (double)b->bytes), most ? str_bytes(limit, (double)most) : "0");
}

int remote_look(struct remote *r, const char *url, struct remote_about *about, struct err *e)
{
    int status;
    return look_at(r, url, about, &status, e);
}

int look_at(struct remote *r, const char *text, struct remote_about *about, int *status, struct err *e)
{
    struct url u;
    *status = 0;
    *about = (struct remote_about){0};
    int code = url_parse(&u, text, e);
    if (!code) code = remote_start(r, u.s3, e);
    if (!code && !u.s3 && str_ends(u.shown, "/"))
        code = err_set(e, ERR_REQUEST,
                       "%s: is a folder of a web server, which gives no list of its files; name the files, or s3://",
                       u.shown);
    if (!code) {
        struct look l = {.about = about};
        l.a =
            (struct attempt){.r = r, .url = &u, .query = "", .n = 1, .body = look_body, .judge = look_judge, .arg = &l};
        pthread_mutex_lock(&r->front_lock);
        if (!r->front) r->front = http_new();
        code = attempt(r->front, &l.a, e);
        *status = l.a.status;
        pthread_mutex_unlock(&r->front_lock);
    }
    if (!code) code = check_whole(r, &u, about, e);
    url_free(&u);
    return code;
}

uint64_t remote_version(const char *url, const struct remote_about *b)
{
    struct hash64 h;
    hash64_init(&h);
    hash64_add(&h, url, strlen(url) + 1);
    hash64_add(&h, b->etag, strlen(b->etag) + 1);
    if (!*b->etag) hash64_add(&h, b->changed, strlen(b->changed) + 1);
    hash64_add(&h, &b->bytes, sizeof b->bytes);
    return hash64_value(&h);
}

int object_open(struct object **out, struct remote *r, const char *url, const struct remote_about *about, struct err *e)
{
    struct url u;
    *out = NULL;
    int code = url_parse(&u, url, e);
    if (!code) code = remote_start(r, u.s3, e);
    if (code) {
        url_free(&u);
        return code;
    }
    struct object *o = xcalloc(1, sizeof *o);
    o->r = r;
    o->url = u;
    o->about = *about;
    pthread_mutex_init(&o->whole, NULL);
    etag_begin(o);
    *out = o;
    return OK;
}

int64_t object_bytes(const struct object *o) { return o->about.bytes; }

const char *object_name(const struct object *o) { return o->url.shown; }
