/* SPDX-License-Identifier: Apache-2.0 */
/* object_list.c: a prefix of a bucket as a folder: pages of ListObjectsV2, up to the last.
 *
 * What ends a list is counted in what is new: a name that comes again closes a circle, of however many pages; pages
 * with next to nothing new in them, and more names than anybody takes in, are a list without an end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "remote/remote_impl.h"
#include "remote/s3_list.h"
#include "remote/seen.h"

enum { PAGE_MAX = 16 << 20, PAGES_FREE = 100, NAMES_A_PAGE = 10 };

struct page {
    struct attempt a;
    struct str xml;
    bool too_long;
};

static bool page_body(void *arg, const struct http_reply *r, const void *p, size_t n)
{
    struct page *g = arg;
    if (r->got == 0) str_clear(&g->xml);
    g->too_long = g->xml.n + n > PAGE_MAX;
    if (!g->too_long) str_add(&g->xml, p, n);
    return !g->too_long;
}

static enum verdict page_judge(void *arg, const struct http_reply *r, char why[300])
{
    const struct page *g = arg;
    if (r->status != 200) snprintf(why, 300, "HTTP %d", r->status);
    else if (g->too_long) snprintf(why, 300, "a page of the list is longer than 16 MiB");
    if (r->status != 200 || g->too_long) return NEVER;
    bool whole = r->length < 0 || (int64_t)g->xml.n == r->length;
    if (whole) return DONE;
    if (!*why) snprintf(why, 300, "the answer was cut short");
    return AGAIN;
}

static int list_page(struct remote *r, const struct url *bucket, const char *prefix, struct s3_list *l, struct err *e)
{
    struct str query = {0};
    struct page g = {0};
    if (l->next) {
        str_puts(&query, "continuation-token=");
        url_encode(&query, l->next, strlen(l->next), false);
        str_putc(&query, '&');
    }
    str_puts(&query, "encoding-type=url&list-type=2&prefix=");
    url_encode(&query, prefix, strlen(prefix), false);
    g.a = (struct attempt){.r = r, .url = bucket, .query = query.p, .body = page_body, .judge = page_judge, .arg = &g};
    int code = attempt(r->front, &g.a, e);
    char what[200];
    snprintf(what, sizeof what, "s3://%.60s/%.120s", bucket->bucket, prefix);
    if (!code) code = s3_list_add(l, str_text(&g.xml), g.xml.n, what, e);
    str_free(&g.xml);
    str_free(&query);
    return code;
}

/* All pages, as long as they bring something new. */
static int list_pages(struct remote *r, const struct url *bucket, const char *prefix, struct s3_list *l, struct err *e)
{
    struct seen seen = {0};
    int64_t pages = 0;
    int code = OK;
    do {
        int64_t before = l->n;
        code = list_page(r, bucket, prefix, l, e);
        for (int64_t i = before; !code && i < l->n; i++)
            if (!seen_add(&seen, l->entry[i].key))
                code = err_set(e, ERR_IO, "%s: the list of its objects goes round in a circle: %.200s comes again",
                               bucket->shown, l->entry[i].key);
        if (!code && l->n > r->o.list_most)
            code = err_set(e, ERR_IO, "%s: the list of its objects has more than %lld, or does not end", bucket->shown,
                           (long long)r->o.list_most);
        if (!code && l->next && ++pages > PAGES_FREE + l->n / NAMES_A_PAGE)
            code = err_set(e, ERR_IO, "%s: the list of its objects does not end: %lld pages brought %lld names",
                           bucket->shown, (long long)pages, (long long)l->n);
    } while (!code && l->next);
    seen_free(&seen);
    return code;
}

/* As a folder's: '/' is below every other byte, so that what is in a folder comes before what its name begins. */
static int by_parts(const void *a, const void *b)
{
    const unsigned char *p = (const unsigned char *)((const struct remote_entry *)a)->url,
                        *q = (const unsigned char *)((const struct remote_entry *)b)->url;
    while (*p && *p == *q) p++, q++;
    int x = *p == '/' ? 1 : *p ? *p + 1 : 0, y = *q == '/' ? 1 : *q ? *q + 1 : 0;
    return x - y;
}

/* Of a key behind the prefix: no part of it begins with a dot, and it is no mark of a folder. */
static bool taken(const struct s3_entry *x, size_t prefix)
{
    const char *name = x->key + prefix;
    size_t n = strlen(x->key);
    return n > prefix && x->bytes > 0 && x->key[n - 1] != '/' && *name != '.' && !strstr(name, "/.");
}

static void put_entry(struct remote_list *l, const char *bucket, const struct s3_entry *x)
{
    struct str url = {0};
    const char *tag = x->etag + (*x->etag == '"');
    str_printf(&url, "s3://%s/%s", bucket, x->key);
    GROW(l->entry, l->n, l->room, 1);
    struct remote_entry *to = &l->entry[l->n++];
    *to = (struct remote_entry){.url = url.p, .about.bytes = x->bytes};
    snprintf(to->about.etag, sizeof to->about.etag, "%.*s", (int)strcspn(tag, "\""), tag);
}

int remote_list(struct remote *r, const char *url, struct remote_list *out, struct err *e)
{
    struct url u, bucket = {0};
    struct s3_list l = {0};
    struct str prefix = {0};
    *out = (struct remote_list){0};
    int code = url_parse(&u, url, e);
    if (!code && !u.s3) code = err_set(e, ERR_REQUEST, "%s: only s3:// has lists of objects", u.shown);
    if (!code) code = remote_start(r, true, e);
    if (!code) {
        str_puts(&prefix, u.key);
        if (*u.key && !str_ends(u.key, "/")) str_putc(&prefix, '/');
        bucket = (struct url){.s3 = true, .shown = u.shown, .bucket = u.bucket, .key = ""};
        pthread_mutex_lock(&r->front_lock);
        if (!r->front) r->front = http_new();
        code = list_pages(r, &bucket, str_text(&prefix), &l, e);
        pthread_mutex_unlock(&r->front_lock);
    }
    for (int64_t i = 0; !code && i < l.n; i++) {
        if (strncmp(l.entry[i].key, str_text(&prefix), prefix.n))
            code = err_set(e, ERR_IO, "%s: the list of its objects has %.200s, which is not in it", u.shown,
                           l.entry[i].key);
        else if (taken(&l.entry[i], prefix.n)) put_entry(out, u.bucket, &l.entry[i]);
    }
    if (!code && out->n) qsort(out->entry, (size_t)out->n, sizeof *out->entry, by_parts);
    if (code) remote_list_free(out);
    s3_list_free(&l);
    str_free(&prefix);
    url_free(&u);
    return code;
}

void remote_list_free(struct remote_list *l)
{
    for (int64_t i = 0; i < l->n; i++) xfree(l->entry[i].url);
    xfree(l->entry);
    *l = (struct remote_list){0};
}
