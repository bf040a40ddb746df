/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences and their pages: opened, forked, cut; a page that others read, or may find, is copied before it is written.
 * The leader alone knows them. */
#include <string.h>

#include "base/mem.h"
#include "decode/decoding_impl.h"

void decoding_sequences_new(struct decoding *d)
{
    d->seq = xcalloc(to_size(d->cache.sequences), sizeof *d->seq);
    for (int64_t s = 0; s < d->cache.sequences; s++) {
        d->seq[s].text.page = xcalloc(to_size(d->cache.most), sizeof(int32_t));
        if (model_pairs(&d->model)) d->seq[s].read.page = xcalloc(to_size(d->cache.most), sizeof(int32_t));
        d->seq[s].ids = xcalloc(to_size(d->cache.most * d->cache.page), sizeof(int32_t));
    }
    d->pages = cache_pages_new(d->cache.pages, d->cache.page);
}

void decoding_sequences_free(struct decoding *d)
{
    for (int64_t s = 0; d->seq && s < d->cache.sequences; s++) {
        xfree(d->seq[s].text.page);
        xfree(d->seq[s].read.page);
        xfree(d->seq[s].ids);
    }
    xfree(d->seq);
    cache_pages_free(d->pages);
}

struct sequence *decoding_sequence(const struct decoding *d, int s)
{
    CHECK(s >= 0 && s < d->cache.sequences && d->seq[s].open, "sequence %d is not open", s);
    return &d->seq[s];
}

/* ---- pages ---- */

int64_t decoding_pages(const struct decoding *d) { return d->cache.pages; }
int64_t decoding_pages_left(const struct decoding *d) { return cache_pages_left(d->pages); }
int64_t decoding_pages_for(const struct decoding *d, int64_t positions)
{
    return (positions + d->cache.page - 1) / d->cache.page;
}

static int none_left(struct err *e)
{
    return err_set(e, ERR_REQUEST, "no page of the cache is left: fewer sequences, or shorter ones");
}

int decoding_pages_take(struct decoding *d, struct page_list *l, int64_t n, struct err *e)
{
    while (l->n < n) {
        int32_t page = cache_page_take(d->pages);
        if (page < 0) return none_left(e);
        l->page[l->n++] = page;
    }
    return OK;
}

void decoding_pages_return(struct decoding *d, struct page_list *l, int64_t n)
{
    while (l->n > n) cache_page_return(d->pages, l->page[--l->n]);
}

/* The first n of them have one owner more. */
static void share_pages(struct decoding *d, struct page_list *to, const struct page_list *from, int64_t n)
{
    for (; to->n < n; to->n++) {
        to->page[to->n] = from->page[to->n];
        cache_page_share(d->pages, to->page[to->n]);
    }
}

/* A page of its own with the same bytes. */
static int32_t copy_page(struct decoding *d, int32_t from)
{
    int32_t to = cache_page_take(d->pages);
    if (to < 0) return to;
    struct decoding_call c = {.order = DECODING_COPY, .from = from, .to = to};
    if (d->ranks) (void)decoding_tell(d->ranks, &c, NULL); /* an error stays, and the next step says it */
    decoding_copy_page(d, from, to);
    return to;
}

static void copy_kept(struct decoding *d, int from, int to)
{
    struct decoding_call c = {.order = DECODING_COPY_KEPT, .from = from, .to = to};
    if (d->ranks) (void)decoding_tell(d->ranks, &c, NULL); /* as copy_page */
    decoding_copy_kept(d, from, to);
}

/* A page that others read, or may find, is copied before it is written; one that is only known, and no page is left for
 * a copy, is forgotten instead. */
static int own_page(struct decoding *d, int32_t *page, struct err *e)
{
    bool shared = cache_page_owners(d->pages, *page) > 1;
    if (!shared && !cache_page_is_known(d->pages, *page)) return OK;
    int32_t own = copy_page(d, *page);
    if (own < 0 && shared) return none_left(e);
    if (own < 0) {
        cache_page_rewrite(d->pages, *page);
        return OK;
    }
    cache_page_return(d->pages, *page);
    *page = own;
    return OK;
}

/* Before a sequence's first page: pages of texts that turn otherwise are others. */
static int32_t before_first(const struct sequence *q) { return q->longer ? CACHE_FIRST_LONGER : -1; }

/* ---- sequences ---- */

int decoding_open(struct decoding *d)
{
    for (int s = 0; s < d->cache.sequences; s++) {
        struct sequence *q = &d->seq[s];
        if (q->open) continue;
        q->open = true;
        q->fed = q->text.n = q->known = q->n_read = q->read.n = q->least = q->prompt = 0;
        q->longer = false;
        return s;
    }
    return -1;
}

void decoding_close(struct decoding *d, int s)
{
    decoding_cut(d, s, 0);
    decoding_unread(d, &d->seq[s]);
    d->seq[s].open = false;
}

int64_t decoding_fed(const struct decoding *d, int s) { return decoding_sequence(d, s)->fed; }

void decoding_prompt(struct decoding *d, int s, int64_t n)
{
    struct sequence *q = decoding_sequence(d, s);
    CHECK(!q->fed, "a prompt is said of a sequence of %lld tokens", (long long)q->fed);
    if (model_prefixes(&d->model)) q->prompt = n;
}

int64_t decoding_whole(const struct decoding *d, int s)
{
    const struct sequence *q = decoding_sequence(d, s);
    return q->fed ? 0 : q->prompt;
}

void decoding_cut(struct decoding *d, int s, int64_t n)
{
    struct sequence *q = decoding_sequence(d, s);
    CHECK(n <= q->fed, "%lld of %lld tokens", (long long)n, (long long)q->fed);
    CHECK(!model_scans(&d->model) || n == 0 || n == q->fed, "a state of %lld tokens does not go back to %lld",
          (long long)q->fed, (long long)n);
    q->fed = n;
    decoding_pages_return(d, &q->text, decoding_pages_for(d, n));
    if (q->known > n / d->cache.page) q->known = n / d->cache.page;
    CHECK(!n || n >= q->prompt, "a prompt of %lld tokens is cut to %lld", (long long)q->prompt, (long long)n);
    if (!n) q->least = q->prompt = 0, q->longer = false;
}

int decoding_fork(struct decoding *d, int s)
{
    struct sequence *from = decoding_sequence(d, s);
    int t = decoding_open(d);
    if (t < 0) return -1;
    struct sequence *to = &d->seq[t];
    int64_t full = from->fed / d->cache.page;
    share_pages(d, &to->text, &from->text, full);
    to->fed = full * d->cache.page;
    to->known = full;
    if (from->fed > to->fed) {
        to->text.page[full] = copy_page(d, from->text.page[full]);
        if (to->text.page[full] < 0) {
            decoding_close(d, t);
            return -1;
        }
        to->text.n++;
    }
    if (model_scans(&d->model)) copy_kept(d, s, t);
    share_pages(d, &to->read, &from->read, from->read.n);
    to->n_read = from->n_read;
    to->fed = from->fed;
    to->least = from->least;
    to->prompt = from->prompt;
    to->longer = from->longer;
    memcpy(to->ids, from->ids, to_size(to->fed) * sizeof *to->ids);
    return t;
}

/* ---- texts that come again ---- */

int64_t decoding_reuse(struct decoding *d, int s, const int32_t *ids, int64_t n)
{
    struct sequence *q = decoding_sequence(d, s);
    CHECK(!q->fed, "a sequence of %lld tokens takes over pages", (long long)q->fed);
    decoding_expect(d, s, n);
    q->longer = decoding_turns_longer(d, q->least);
    bool stays = q->longer == decoding_turns_longer(d, d->room);
    for (int32_t before = before_first(q); stays && d->reuse && q->fed + d->cache.page < n;
         before = q->text.page[q->text.n++]) {
        int32_t page = cache_page_find(d->pages, before, ids + q->fed);
        if (page < 0) break;
        q->text.page[q->text.n] = page;
        memcpy(q->ids + q->fed, ids + q->fed, to_size(d->cache.page) * sizeof *ids);
        q->fed += d->cache.page;
    }
    q->known = q->text.n;
    return q->fed;
}

void decoding_forget(struct decoding *d)
{
    CHECK(cache_pages_left(d->pages) == d->cache.pages, "a sequence is open");
    cache_pages_free(d->pages);
    d->pages = cache_pages_new(d->cache.pages, d->cache.page);
}

/* ---- around a step ---- */

int decoding_make_room(struct decoding *d, struct sequence *q, int64_t n, struct err *e)
{
    int64_t at = q->fed / d->cache.page;
    int rc = q->fed % d->cache.page ? own_page(d, &q->text.page[at], e) : OK;
    return rc ? rc : decoding_pages_take(d, &q->text, decoding_pages_for(d, q->fed + n), e);
}

void decoding_went_on(struct decoding *d, const struct decoding_part *p)
{
    struct sequence *q = &d->seq[p->sequence];
    memcpy(q->ids + q->fed, p->ids, to_size(p->n) * sizeof *p->ids);
    q->fed += p->n;
    for (; d->reuse && q->known < q->fed / d->cache.page; q->known++)
        cache_page_know(d->pages, q->text.page[q->known], q->known ? q->text.page[q->known - 1] : before_first(q),
                        q->ids + q->known * d->cache.page);
}
