/* SPDX-License-Identifier: Apache-2.0 */
/* upload.c: objects that are written. One that fits into a part is one PUT; a larger one is begun (POST ?uploads), gets
 * its parts (PUT ?partNumber&uploadId), and exists when it is completed (POST ?uploadId with the list of parts and
 * their ETags); one that fails is given up (DELETE ?uploadId), since stores charge for what lies about. A store may
 * answer a completion with 200 and an error in the body: that is tried again like one in the head. What the store has
 * already is copied there (x-amz-copy-source), whole or, above what it copies at once, part by part. What a process
 * that was killed left of an object in parts is found by its list of uploads.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "remote/remote_impl.h"
#include "remote/s3_list.h"
#include "remote/seen.h"
#include "remote/sha256.h"

enum { ANSWER_MAX = 1 << 20, PARTS_MOST = 9000 };
static const int64_t part_least = (int64_t)16 << 20;

struct writing {
    struct remote *r;
    struct url url;
    struct str said; /* the answer's body */
    char etag[200];
    bool sealed;                /* the ETag is not of the bytes */
    bool doubt;                 /* what the store says it has is not what it was given */
    const char *wanted;         /* an element that the answer must have; NULL: none */
    const char *source, *range; /* of what is copied within the store; NULL */
};

static bool on_answer(void *arg, const struct http_reply *r, const void *p, size_t n)
{
    struct writing *w = arg;
    if (r->got == 0) str_clear(&w->said);
    if (w->said.n + n <= ANSWER_MAX) str_add(&w->said, p, n);
    return w->said.n + n <= ANSWER_MAX;
}

static enum verdict judge(void *arg, const struct http_reply *r, char why[300])
{
    struct writing *w = arg;
    memcpy(w->etag, r->etag, sizeof w->etag);
    w->sealed = r->sealed;
    if (!w->wanted) return DONE;
    char *found = s3_element(str_text(&w->said), w->wanted), *code = s3_element(str_text(&w->said), "Code");
    enum verdict v = found ? DONE : AGAIN;
    if (!found && code) snprintf(why, 300, "HTTP %d, and in it %.100s", r->status, code);
    else if (!found) snprintf(why, 300, "the answer was cut short");
    xfree(found);
    xfree(code);
    return v;
}

static int ask(struct writing *w, const char *method, const char *query, const void *p, size_t n, const char *wanted,
               struct err *e)
{
    struct attempt a = {.r = w->r,
                        .url = &w->url,
                        .query = query,
                        .method = method,
                        .send = p,
                        .n_send = n,
                        .source = w->source,
                        .range = w->range,
                        .body = on_answer,
                        .judge = judge,
                        .arg = w};
    w->wanted = wanted;
    str_clear(&w->said);
    pthread_mutex_lock(&w->r->front_lock);
    if (!w->r->front) w->r->front = http_new();
    int rc = attempt(w->r->front, &a, e);
    pthread_mutex_unlock(&w->r->front_lock);
    return rc;
}

/* Of bytes that were just given: whether the store's ETag, where it is an MD5, is theirs. */
static void compare_tag(struct writing *w, const void *p, size_t n)
{
    char mine[MD5_TEXT];
    const char *tag = w->etag + (*w->etag == '"');
    if (!etag_is_md5(tag) || w->sealed || atomic_load(&w->r->tags_differ) || !md5_text(mine, p, n)) return;
    w->doubt |= strncmp(tag, mine, MD5_TEXT - 1) != 0;
}

/* What the store has, beside what it was given. */
static int read_back(struct writing *w, const char *url, remote_source_fn *source, void *ctx, int64_t bytes,
                     struct err *e)
{
    enum { PIECE = 8 << 20 };
    struct remote_about about;
    struct object *o = NULL;
    char *mine = xmalloc(PIECE), *theirs = xmalloc(PIECE);
    int rc = remote_look(w->r, url, &about, e);
    bool same = !rc && about.bytes == bytes;
    if (same) rc = object_open(&o, w->r, url, &about, e);
    for (int64_t at = 0; !rc && same && at < bytes; at += PIECE) {
        size_t n = to_size(bytes - at < PIECE ? bytes - at : PIECE);
        rc = source(ctx, at, n, mine, e);
        if (!rc) rc = object_read(o, at, n, theirs, e);
        same = !rc && !memcmp(mine, theirs, n);
    }
    object_close(o);
    xfree(mine);
    xfree(theirs);
    if (!rc && !same) {
        ask(w, "DELETE", "", NULL, 0, NULL, NULL);
        rc = err_set(e, ERR_IO, "%s: the store has other bytes than it was given; it was removed again", w->url.shown);
    }
    if (!rc) atomic_store(&w->r->tags_differ, true); /* another kind of number, then */
    return rc;
}

static int begin(struct writing *w, struct remote *r, const char *url, struct err *e)
{
    *w = (struct writing){.r = r};
    int rc = url_parse(&w->url, url, e);
    if (!rc && !w->url.s3)
        rc = err_set(e, ERR_REQUEST, "%s: only what s3:// names can be written; http:// has no agreed way to",
                     w->url.shown);
    return rc ? rc : remote_start(r, true, e);
}

static void end(struct writing *w)
{
    str_free(&w->said);
    url_free(&w->url);
}

/* ---- an object in parts ---- */

struct parts {
    struct str id;   /* of the upload, encoded */
    struct str list; /* of parts and their ETags, in XML */
};

/* Bytes [at, at + n) of an object of the store as a part; its answer has the ETag in its body. */
static int copy_part(struct writing *w, const char *from, const char *query, int64_t at, size_t n, struct err *e)
{
    char range[80];
    snprintf(range, sizeof range, "bytes=%" PRId64 "-%" PRId64, at, at + (int64_t)n - 1);
    w->source = from;
    w->range = range;
    int rc = ask(w, "PUT", query, NULL, 0, "ETag", e);
    w->source = w->range = NULL;
    char *tag = rc ? NULL : s3_element(str_text(&w->said), "ETag");
    if (tag) snprintf(w->etag, sizeof w->etag, "%s", tag);
    xfree(tag);
    return rc;
}

/* from: instead of source. */
static int put_parts(struct writing *w, struct parts *x, const char *from, remote_source_fn *source, void *ctx,
                     int64_t bytes, int64_t part, void *buffer, struct err *e)
{
    int rc = OK, number = 1;
    str_puts(&x->list, "<CompleteMultipartUpload>");
    for (int64_t at = 0; at < bytes && !rc; at += part, number++) {
        char query[64];
        struct str q = {0};
        size_t n = to_size(bytes - at < part ? bytes - at : part);
        snprintf(query, sizeof query, "partNumber=%d&uploadId=", number);
        str_printf(&q, "%s%s", query, str_text(&x->id));
        if (from) rc = copy_part(w, from, q.p, at, n, e);
        else rc = source(ctx, at, n, buffer, e);
        if (!rc && !from) rc = ask(w, "PUT", q.p, buffer, n, NULL, e);
        if (!rc && !from) compare_tag(w, buffer, n);
        if (!rc && !*w->etag) rc = err_set(e, ERR_IO, "%s: the store gave no ETag for part %d", w->url.shown, number);
        str_printf(&x->list, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", number, w->etag);
        str_free(&q);
    }
    str_puts(&x->list, "</CompleteMultipartUpload>");
    return rc;
}

static int put_large(struct writing *w, const char *from, remote_source_fn *source, void *ctx, int64_t bytes,
                     int64_t part, void *buffer, struct err *e)
{
    struct parts x = {0};
    struct str query = {0};
    int rc = ask(w, "POST", "uploads=", NULL, 0, "UploadId", e);
    if (rc) return rc;
    char *id = s3_element(str_text(&w->said), "UploadId");
    url_encode(&x.id, id, strlen(id), false);
    str_printf(&query, "uploadId=%s", str_text(&x.id));
    rc = put_parts(w, &x, from, source, ctx, bytes, part, buffer, e);
    if (!rc) rc = ask(w, "POST", query.p, x.list.p, x.list.n, "ETag", e);
    if (rc) ask(w, "DELETE", query.p, NULL, 0, NULL, NULL);
    xfree(id);
    str_free(&query);
    str_free(&x.id);
    str_free(&x.list);
    return rc;
}

/* ---- */

int remote_put(struct remote *r, const char *url, remote_source_fn *source, void *ctx, int64_t bytes, struct err *e)
{
    struct writing w;
    int64_t part = bytes / PARTS_MOST + 1 > part_least ? bytes / PARTS_MOST + 1 : part_least;
    int rc = begin(&w, r, url, e);
    void *buffer = xmalloc(to_size(bytes < part ? bytes : part) + 1);
    if (!rc && bytes > part) {
        rc = put_large(&w, NULL, source, ctx, bytes, part, buffer, e);
    } else if (!rc) {
        rc = bytes ? source(ctx, 0, to_size(bytes), buffer, e) : OK;
        if (!rc) rc = ask(&w, "PUT", "", buffer, to_size(bytes), NULL, e);
        if (!rc) compare_tag(&w, buffer, to_size(bytes));
    }
    xfree(buffer);
    if (!rc && w.doubt) rc = read_back(&w, url, source, ctx, bytes, e);
    end(&w);
    return rc;
}

int remote_copy(struct remote *r, const char *from, const char *to, int64_t bytes, struct err *e)
{
    struct writing w;
    struct url there = {0};
    struct str source = {0};
    int64_t most = r->o.copy_most;
    int rc = begin(&w, r, to, e);
    if (!rc) rc = url_parse(&there, from, e);
    if (!rc && !there.s3) rc = err_set(e, ERR_REQUEST, "%s: is in no store", there.shown);
    if (!rc) {
        str_printf(&source, "/%s/", there.bucket);
        url_encode(&source, there.key, strlen(there.key), true);
    }
    if (!rc && bytes > most) {
        rc = put_large(&w, source.p, NULL, NULL, bytes, bytes / PARTS_MOST + 1 > most ? bytes / PARTS_MOST + 1 : most,
                       NULL, e);
    } else if (!rc) {
        w.source = source.p;
        rc = ask(&w, "PUT", "", NULL, 0, "ETag", e);
    }
    str_free(&source);
    url_free(&there);
    end(&w);
    return rc;
}

/* ---- uploads that nobody goes on with ---- */

static int give_up(struct writing *w, const struct url *bucket, const struct s3_upload *u, struct err *e)
{
    struct str query = {0};
    struct url of = {.s3 = true, .shown = bucket->shown, .bucket = bucket->bucket, .key = u->key};
    struct url before = w->url;
    str_puts(&query, "uploadId=");
    url_encode(&query, u->id, strlen(u->id), false);
    w->url = of;
    int rc = ask(w, "DELETE", query.p, NULL, 0, NULL, e);
    w->url = before;
    str_free(&query);
    return rc;
}

int remote_tidy(struct remote *r, const char *url, int64_t *n, struct err *e)
{
    enum { PAGES = 1000 }; /* each is of what is still there */
    struct writing w;
    struct str query = {0}, prefix = {0};
    struct seen seen = {0};
    bool more = true;
    *n = 0;
    int rc = begin(&w, r, url, e);
    struct url bucket = {.s3 = true, .shown = w.url.shown, .bucket = w.url.bucket, .key = ""}, object = w.url;
    if (!rc) {
        str_puts(&prefix, w.url.key);
        if (*w.url.key && !str_ends(w.url.key, "/")) str_putc(&prefix, '/');
        str_puts(&query, "encoding-type=url&prefix=");
        url_encode(&query, str_text(&prefix), prefix.n, false);
        str_puts(&query, "&uploads=");
    }
    for (int page = 0; !rc && more && page < PAGES; page++) {
        struct s3_uploads l = {0};
        w.url = bucket;
        rc = ask(&w, NULL, query.p, NULL, 0, "IsTruncated", e);
        if (!rc) rc = s3_uploads_read(&l, str_text(&w.said), w.said.n, w.url.shown, e);
        more = !rc && l.more && l.n;
        for (int64_t i = 0; !rc && i < l.n; i++) {
            if (strncmp(l.upload[i].key, str_text(&prefix), prefix.n)) continue;
            if (!seen_add(&seen, l.upload[i].id))
                rc = err_set(e, ERR_IO, "%s: an upload that was given up is in the list again", w.url.shown);
            else rc = give_up(&w, &bucket, &l.upload[i], e);
            *n += !rc;
        }
        s3_uploads_free(&l);
    }
    w.url = object;
    seen_free(&seen);
    str_free(&prefix);
    str_free(&query);
    end(&w);
    return rc;
}

int remote_remove(struct remote *r, const char *url, struct err *e)
{
    struct writing w;
    int rc = begin(&w, r, url, e);
    if (!rc) rc = ask(&w, "DELETE", "", NULL, 0, NULL, e);
    end(&w);
    return rc;
}

static int get(struct remote *r, const char *url, size_t limit, char **text, size_t *n, int *status, struct err *e)
{
    struct remote_about about;
    struct object *o = NULL;
    *text = NULL;
    int rc = look_at(r, url, &about, status, e);
    if (!rc && (about.bytes < 0 || (uint64_t)about.bytes > limit))
        rc = err_set(e, ERR_REQUEST, "%s: %" PRId64 " bytes, at most %zu are read", url, about.bytes, limit);
    if (!rc) rc = object_open(&o, r, url, &about, e);
    if (rc) return rc;
    *n = to_size(about.bytes);
    *text = xcalloc(*n + 1, 1);
    rc = *n ? object_read(o, 0, *n, *text, e) : OK;
    object_close(o);
    if (rc) {
        xfree(*text);
        *text = NULL;
    }
    return rc;
}

int remote_get(struct remote *r, const char *url, size_t limit, char **text, size_t *n, struct err *e)
{
    int status;
    return get(r, url, limit, text, n, &status, e);
}

enum held remote_hold(struct remote *r, const char *url, size_t limit, char **text, size_t *n, struct err *e)
{
    int status, rc = get(r, url, limit, text, n, &status, e);
    return !rc ? HELD_KNOWN : rc == ERR_REQUEST && status == 404 ? HELD_NONE : HELD_UNKNOWN;
}
