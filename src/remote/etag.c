/* SPDX-License-Identifier: Apache-2.0 */
/* etag.c: a sum runs along with the reader. An MD5 is 0.5 GB/s, which no text is read at; memory: one state an object.
 * Rejected: sums of pieces, which no store gives; reading everything to its end before anybody has the first byte. */
#include "remote/etag.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "remote/remote_impl.h"

bool etag_is_md5(const char *etag)
{
    size_t digits = strspn(etag, "0123456789abcdef");
    return digits == MD5_TEXT - 1 && (!etag[digits] || !strcmp(etag + digits, "\""));
}

static bool is_compared(const struct object *o)
{
    const struct remote_about *b = &o->about;
    return !o->r->o.own_sums && etag_is_md5(b->etag) && !b->weak && !atomic_load(&o->sealed) &&
           !atomic_load(&o->r->tags_differ);
}

void etag_begin(struct object *o)
{
    pthread_mutex_init(&o->tag.lock, NULL);
    if (is_compared(o) && o->about.bytes) o->tag.sum = md5_new();
}

void etag_end(struct object *o)
{
    md5_free(o->tag.sum);
    pthread_mutex_destroy(&o->tag.lock);
}

static bool fits(struct object *o, const char sum[MD5_TEXT])
{
    bool same = !strcmp(sum, o->about.etag);
    if (same) atomic_store(&o->r->tags_hold, true);
    return same;
}

bool etag_fits(struct object *o, const void *p, size_t n, char sum[MD5_TEXT])
{
    return !is_compared(o) || !md5_text(sum, p, n) || fits(o, sum);
}

static void drop_pieces(struct object *o)
{
    for (int64_t piece = 0; o->r->cache && piece * o->r->o.piece < o->about.bytes; piece++) {
        struct piece_key k = fetch_key(o, piece);
        piece_cache_drop(o->r->cache, &k);
    }
}

int etag_settle(struct object *o, const char first[MD5_TEXT], const char second[MD5_TEXT], struct err *e)
{
    struct remote *r = o->r;
    pthread_mutex_lock(&o->tag.lock);
    md5_free(o->tag.sum); /* once is enough */
    o->tag.sum = NULL;
    pthread_mutex_unlock(&o->tag.lock);
    drop_pieces(o);
    if (strcmp(first, second))
        return err_set(e, ERR_IO,
                       "%s: came with other bytes than its ETag says, which is their MD5 (%s; got %s, then %s); "
                       "nothing "
                       "of it is kept; start again, and where that helps nothing, look at the store",
                       o->url.shown, o->about.etag, first, second);
    if (atomic_load(&r->tags_hold))
        return err_set(e, ERR_IO,
                       "%s: the store keeps other bytes than its ETag says, which is their MD5 (%s; got %s, twice); "
                       "put "
                       "it there once more",
                       o->url.shown, o->about.etag, first);
    uint_fast64_t none = 0, mine = remote_version(o->url.text, &o->about);
    if (!atomic_compare_exchange_strong(&r->tags_odd, &none, mine)) {
        if (none != mine) atomic_store(&r->tags_differ, true);
        return OK;
    }
    log_warn("%s: its ETag %s looks like the MD5 of its bytes and is not (%s, twice): the store keeps it damaged, or "
             "its "
             "ETags are other numbers",
             o->url.shown, o->about.etag, first);
    return OK;
}

/* ---- once more, beside the folder ---- */

struct again {
    struct attempt a;
    struct md5 *sum;
    int64_t got;
};

static bool again_body(void *arg, const struct http_reply *r, const void *p, size_t n)
{
    struct again *g = arg;
    if (r->got == 0) { /* from its first byte */
        md5_free(g->sum);
        g->sum = md5_new();
        g->got = 0;
    }
    md5_add(g->sum, p, n);
    g->got += (int64_t)n;
    return true;
}

static enum verdict again_judge(void *arg, const struct http_reply *r, char why[300])
{
    const struct again *g = arg;
    const char *other = attempt_other_version(g->a.same, r);
    if (other) snprintf(why, 300, "it has changed since its reading began: %s; start again", other);
    else if (g->got != g->a.same->bytes) snprintf(why, 300, "the answer was cut short");
    return other ? NEVER : *why ? AGAIN : DONE;
}

static int sum_again(struct object *o, char sum[MD5_TEXT], struct err *e)
{
    struct again g = {0};
    struct http *h = http_new();
    g.a = (struct attempt){.r = o->r,
                           .url = &o->url,
                           .query = "",
                           .same = &o->about,
                           .closing = &o->closing,
                           .body = again_body,
                           .judge = again_judge,
                           .arg = &g};
    int code = attempt(h, &g.a, e);
    if (g.a.sealed) atomic_store(&o->sealed, true);
    http_free(h);
    if (!code) md5_end(g.sum, sum);
    else md5_free(g.sum);
    return code;
}

int etag_add(struct object *o, int64_t at, size_t n, const void *p, struct err *e)
{
    struct etag_sum *t = &o->tag;
    char first[MD5_TEXT] = "", second[MD5_TEXT];
    pthread_mutex_lock(&t->lock);
    if (t->sum && at <= t->at && at + (int64_t)n > t->at) {
        md5_add(t->sum, (const char *)p + (t->at - at), n - to_size(t->at - at));
        t->at = at + (int64_t)n;
    }
    if (t->sum && t->at == o->about.bytes) {
        md5_end(t->sum, first);
        t->sum = NULL;
    }
    pthread_mutex_unlock(&t->lock);
    if (!*first || !is_compared(o) || fits(o, first)) return OK;
    int code = sum_again(o, second, e);
    return code || !is_compared(o) ? code : etag_settle(o, first, second, e);
}
