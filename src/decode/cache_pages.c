/* SPDX-License-Identifier: Apache-2.0 */
/* Pages in two lists: never used or forgotten (a stack), and free but known (oldest first); known ones by a hash of
 * their tokens and of the page before, in chains. Every call is O(tokens of a page). */
#include "decode/cache_pages.h"

#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"

struct page {
    int owners;
    bool known;
    uint64_t born, before_born; /* numbers that no two lives of pages share; that of the page before, 0: none */
    int32_t chain;              /* next of its hash's chain, -1 */
    int32_t older, newer;       /* in the list of free and known pages, -1 */
    uint64_t key;
};

struct cache_pages {
    int64_t n, places, n_buckets, left;
    uint64_t births;
    struct page *page;
    int32_t *ids, *bucket, *blank; /* tokens [n, places]; first of a chain; stack of pages without a text */
    int64_t n_blank;
    int32_t oldest, newest;
};

struct cache_pages *cache_pages_new(int64_t n_pages, int64_t places)
{
    CHECK(n_pages > 0 && n_pages <= INT32_MAX && places > 0, "%lld pages of %lld", (long long)n_pages,
          (long long)places);
    struct cache_pages *p = xcalloc(1, sizeof *p);
    p->n = p->left = p->n_blank = n_pages;
    p->places = places;
    p->n_buckets = 2 * n_pages + 1;
    p->page = xcalloc(to_size(n_pages), sizeof *p->page);
    p->ids = xcalloc(to_size(n_pages * places), sizeof *p->ids);
    p->blank = xcalloc(to_size(n_pages), sizeof *p->blank);
    p->bucket = xcalloc(to_size(p->n_buckets), sizeof *p->bucket);
    for (int64_t i = 0; i < p->n_buckets; i++) p->bucket[i] = -1;
    for (int64_t i = 0; i < n_pages; i++) p->blank[i] = (int32_t)(n_pages - 1 - i); /* page 0 first */
    p->oldest = p->newest = -1;
    return p;
}

void cache_pages_free(struct cache_pages *p)
{
    if (!p) return;
    xfree(p->page);
    xfree(p->ids);
    xfree(p->blank);
    xfree(p->bucket);
    xfree(p);
}

int64_t cache_pages_left(const struct cache_pages *p) { return p->left; }
int cache_page_owners(const struct cache_pages *p, int32_t page) { return p->page[page].owners; }

bool cache_page_is_known(const struct cache_pages *p, int32_t page) { return p->page[page].known; }

static void unlink_free(struct cache_pages *p, int32_t i)
{
    struct page *x = &p->page[i];
    if (x->older >= 0) p->page[x->older].newer = x->newer;
    else p->oldest = x->newer;
    if (x->newer >= 0) p->page[x->newer].older = x->older;
    else p->newest = x->older;
}

static uint64_t key_of(const struct cache_pages *p, uint64_t before_born, const int32_t *ids)
{
    struct hash64 h;
    hash64_init(&h);
    hash64_add(&h, &before_born, sizeof before_born);
    hash64_add(&h, ids, to_size(p->places) * sizeof *ids);
    return hash64_value(&h);
}

static void forget(struct cache_pages *p, int32_t i)
{
    struct page *x = &p->page[i];
    int32_t *at = &p->bucket[x->key % (uint64_t)p->n_buckets];
    while (*at != i) at = &p->page[*at].chain;
    *at = x->chain;
    x->known = false;
}

void cache_page_rewrite(struct cache_pages *p, int32_t page)
{
    struct page *x = &p->page[page];
    CHECK(x->owners == 1, "page %d has %d owners", page, x->owners);
    if (x->known) forget(p, page);
    x->born = ++p->births;
}

int32_t cache_page_take(struct cache_pages *p)
{
    int32_t i;
    if (p->n_blank) {
        i = p->blank[--p->n_blank];
    } else if ((i = p->oldest) >= 0) {
        unlink_free(p, i);
        forget(p, i);
    } else {
        return -1;
    }
    p->page[i] = (struct page){.owners = 1, .born = ++p->births, .chain = -1};
    p->left--;
    return i;
}

void cache_page_share(struct cache_pages *p, int32_t page)
{
    CHECK(p->page[page].owners > 0, "page %d is nobody's", page);
    p->page[page].owners++;
}

void cache_page_return(struct cache_pages *p, int32_t page)
{
    struct page *x = &p->page[page];
    CHECK(x->owners > 0, "page %d is returned once too often", page);
    if (--x->owners) return;
    p->left++;
    if (!x->known) {
        p->blank[p->n_blank++] = page;
        return;
    }
    x->older = p->newest;
    x->newer = -1;
    if (p->newest >= 0) p->page[p->newest].newer = page;
    else p->oldest = page;
    p->newest = page;
}

static int32_t find(const struct cache_pages *p, uint64_t key, uint64_t before_born, const int32_t *ids)
{
    for (int32_t i = p->bucket[key % (uint64_t)p->n_buckets]; i >= 0; i = p->page[i].chain)
        if (p->page[i].key == key && p->page[i].before_born == before_born &&
            !memcmp(p->ids + i * p->places, ids, to_size(p->places) * sizeof *ids))
            return i;
    return -1;
}

/* No page is born at either of the ends. */
static uint64_t born_before(const struct cache_pages *p, int32_t before)
{
    if (before == CACHE_FIRST_LONGER) return UINT64_MAX;
    return before < 0 ? 0 : p->page[before].born;
}

/* Of two equal texts the first to come is known, and the other's page is only its owner's. */
void cache_page_know(struct cache_pages *p, int32_t page, int32_t before, const int32_t *ids)
{
    struct page *x = &p->page[page];
    CHECK(x->owners > 0 && !x->known, "page %d is known", page);
    uint64_t born = born_before(p, before), key = key_of(p, born, ids);
    if ((before >= 0 && !p->page[before].known) || find(p, key, born, ids) >= 0) return;
    int32_t *at = &p->bucket[key % (uint64_t)p->n_buckets];
    x->key = key;
    x->known = true;
    x->before_born = born;
    x->chain = *at;
    *at = page;
    memcpy(p->ids + page * p->places, ids, to_size(p->places) * sizeof *ids);
}

int32_t cache_page_find(struct cache_pages *p, int32_t before, const int32_t *ids)
{
    uint64_t born = born_before(p, before);
    int32_t i = find(p, key_of(p, born, ids), born, ids);
    if (i < 0) return -1;
    if (p->page[i].owners++ == 0) {
        unlink_free(p, i);
        p->left--;
    }
    return i;
}
