/* SPDX-License-Identifier: Apache-2.0 */
/* fetch_piece.c: a piece of an object: from the folder, else by a request for its bytes; of a server that gives no
 * parts by one for all of them, of which every piece goes into the folder as it passes. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "remote/remote_impl.h"
#include "remote/sha256.h"

struct piece_key fetch_key(const struct object *o, int64_t piece)
{
    struct str text = {0};
    unsigned char sum[SHA256_BYTES];
    struct piece_key k;
    const struct remote_about *b = &o->about;
    if (o->url.s3) str_printf(&text, "%s\n", o->r->s3.endpoint);
    str_printf(&text, "%s\n%s\n%s\n%lld\n%lld\n%lld\n", o->url.text, b->etag, *b->etag ? "" : b->changed,
               (long long)b->bytes, (long long)o->r->o.piece, (long long)piece);
    if (!*b->etag && !*b->changed) str_printf(&text, "%llx\n", (unsigned long long)o->r->salt);
    sha256(text.p, text.n, sum);
    memcpy(k.id, sum, sizeof k.id);
    str_free(&text);
    return k;
}

/* ---- by parts ---- */

struct part {
    struct attempt a;
    unsigned char *to;
    int64_t size;      /* of the part */
    const char *wrong; /* what is wrong with it for good */
    bool ignored;      /* all of it came, not the part */
    bool confused;     /* another part came */
};

/* The head of an answer against what was asked for. */
static void check_part(struct part *p, const struct http_reply *r)
{
    p->wrong = attempt_other_version(p->a.same, r);
    p->confused = r->status == 206 && r->first != p->a.first;
    if (r->status == 200 && p->a.same->whole) { /* a small one that always comes whole: from its first byte again */
        p->to -= p->a.first;
        p->a.first = 0;
        p->a.n = p->size;
    }
    p->ignored = r->status == 200 && p->a.first > 0;
}

static bool part_body(void *arg, const struct http_reply *r, const void *bytes, size_t n)
{
    struct part *p = arg;
    if (r->got == 0) check_part(p, r);
    if (p->wrong || p->ignored || p->confused) return false;
    size_t take = n < (size_t)p->a.n ? n : (size_t)p->a.n;
    memcpy(p->to, bytes, take);
    p->to += take;
    p->a.first += (int64_t)take;
    p->a.n -= (int64_t)take;
    return take == n; /* more than was asked for: of a whole object the rest is not wanted */
}

static enum verdict part_judge(void *arg, const struct http_reply *r, char why[300])
{
    struct part *p = arg;
    if (r->got == 0 && !p->wrong) check_part(p, r);
    if (p->wrong) snprintf(why, 300, "it has changed since its reading began: %s; start again", p->wrong);
    else if (p->ignored) snprintf(why, 300, "its server gave parts before, and now gives only the whole (HTTP 200)");
    else if (p->confused) snprintf(why, 300, "its server answers with bytes from %lld on", (long long)r->first);
    else if (r->status == 416) snprintf(why, 300, "it has changed since its reading began: it ends before (HTTP 416)");
    if (p->wrong || p->ignored || p->confused || r->status == 416) return NEVER;
    if (p->a.n == 0) return DONE;
    if (!*why) snprintf(why, 300, "the answer was cut short by %lld bytes", (long long)p->a.n);
    return AGAIN;
}

static int fetch_part(struct http *h, struct object *o, int64_t first, size_t n, unsigned char *to, struct err *e)
{
    struct part p = {.to = to, .size = (int64_t)n};
    p.a = (struct attempt){.r = o->r,
                           .url = &o->url,
                           .query = "",
                           .same = &o->about,
                           .first = first,
                           .n = (int64_t)n,
                           .closing = &o->closing,
                           .body = part_body,
                           .judge = part_judge,
                           .arg = &p};
    int code = attempt(h, &p.a, e);
    if (p.a.sealed) atomic_store(&o->sealed, true);
    return code;
}

/* All of an object, which is one piece: its bytes are compared before anybody has them. */
static int fetch_only(struct http *h, struct object *o, size_t n, unsigned char *to, bool *keep, struct err *e)
{
    char first[MD5_TEXT], second[MD5_TEXT];
    int code = fetch_part(h, o, 0, n, to, e);
    *keep = !code && etag_fits(o, to, n, first);
    if (code || *keep) return code;
    code = fetch_part(h, o, 0, n, to, e);
    *keep = !code && etag_fits(o, to, n, second);
    return code || *keep ? code : etag_settle(o, first, second, e);
}

/* ---- whole ---- */

struct whole {
    struct attempt a;
    struct object *o;
    unsigned char *buffer, *to; /* of one piece; where `piece` is wanted */
    int64_t piece;
    int64_t at;   /* bytes of this answer so far */
    int64_t kept; /* pieces that are in the folder */
    const char *wrong;
};

/* The buffer holds the piece that ends at w->at. */
static void keep_piece(struct whole *w)
{
    int64_t piece = (w->at - 1) / w->o->r->o.piece;
    size_t n = piece_bytes(w->o, piece);
    struct piece_key k = fetch_key(w->o, piece);
    if (piece == w->piece) memcpy(w->to, w->buffer, n);
    if (piece < w->kept) return;
    piece_cache_put(w->o->r->cache, &k, w->buffer, n);
    w->kept = piece + 1;
}

static bool whole_body(void *arg, const struct http_reply *r, const void *bytes, size_t n)
{
    struct whole *w = arg;
    const unsigned char *p = bytes;
    if (r->got == 0) {
        w->at = 0;
        w->wrong = attempt_other_version(w->a.same, r);
    }
    while (!w->wrong && n) {
        if (w->at == w->a.same->bytes) {
            w->wrong = "it is longer";
            break;
        }
        int64_t piece = w->at / w->o->r->o.piece, in = w->at % w->o->r->o.piece;
        size_t room = piece_bytes(w->o, piece) - (size_t)in, take = n < room ? n : room;
        memcpy(w->buffer + in, p, take);
        w->at += (int64_t)take;
        p += take;
        n -= take;
        if (take == room) keep_piece(w);
    }
    return !w->wrong;
}

static enum verdict whole_judge(void *arg, const struct http_reply *r, char why[300])
{
    struct whole *w = arg;
    if (r->status == 416) w->wrong = "HTTP 416";
    if (w->wrong) {
        snprintf(why, 300, "it has changed since its reading began: %s; start again", w->wrong);
        return NEVER;
    }
    if (w->at == w->a.same->bytes) return DONE;
    if (!*why) snprintf(why, 300, "the answer was cut short by %lld bytes", (long long)(w->a.same->bytes - w->at));
    return AGAIN;
}

static int fetch_whole(struct http *h, struct object *o, int64_t piece, unsigned char *to, struct err *e)
{
    struct whole w = {.o = o, .buffer = xmalloc(to_size(o->r->o.piece)), .to = to, .piece = piece};
    w.a = (struct attempt){.r = o->r,
                           .url = &o->url,
                           .query = "",
                           .same = &o->about,
                           .closing = &o->closing,
                           .body = whole_body,
                           .judge = whole_judge,
                           .arg = &w};
    int code = attempt(h, &w.a, e);
    if (w.a.sealed) atomic_store(&o->sealed, true);
    xfree(w.buffer);
    return code;
}

/* ---- a piece ---- */

static bool from_cache(const struct object *o, const struct piece_key *k, size_t n, unsigned char *to)
{
    if (!o->r->cache || !piece_cache_read(o->r->cache, k, n, 0, n, to)) return false;
    remote_count(o->r, 0, 0, 0, (int64_t)n);
    return true;
}

int fetch_piece(struct http *h, struct object *o, int64_t piece, unsigned char *to, struct err *e)
{
    size_t n = piece_bytes(o, piece);
    struct piece_key k = fetch_key(o, piece);
    if (from_cache(o, &k, n, to)) return OK;
    if (!o->about.whole || o->about.bytes <= o->r->o.piece) {
        bool only = o->about.bytes <= o->r->o.piece, keep = true;
        int code = only ? fetch_only(h, o, n, to, &keep, e) : fetch_part(h, o, piece * o->r->o.piece, n, to, e);
        if (!code && keep && o->r->cache) piece_cache_put(o->r->cache, &k, to, n);
        return code;
    }
    pthread_mutex_lock(&o->whole); /* who waited for another finds the piece there */
    int code = from_cache(o, &k, n, to) ? OK : fetch_whole(h, o, piece, to, e);
    pthread_mutex_unlock(&o->whole);
    return code;
}
