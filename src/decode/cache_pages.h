/* SPDX-License-Identifier: Apache-2.0 */
/* cache_pages.h: which pages of a key/value cache belong to which sequence, and which hold a text that comes again.
 *
 * A page is `places` rows of every layer's caches. Sequences own pages by counting: several may read one page, and only
 * who is alone may write. A page that is full is known by the tokens of its text from the beginning on: by its own
 * tokens and by the page before it, compared in full, so that a chance or made likeness of a hash is never taken for
 * equality. A known page that nobody owns stays until its room is needed; the one unused for longest goes first.
 * (Kwon et al. 2023, "PagedAttention".)
 *
 * Invariants
 *   1. Pages left + pages that are owned = all pages (known pages that nobody owns are left).
 *   2. A page is found only while the page before it is the very one that it was written after.
 * Includes: base. Order: Local.
 */
#ifndef TUTTI_DECODE_CACHE_PAGES_H
#define TUTTI_DECODE_CACHE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

struct cache_pages;
struct cache_pages *cache_pages_new(int64_t n_pages, int64_t places);
void cache_pages_free(struct cache_pages *p); /* NULL is fine */

int64_t cache_pages_left(const struct cache_pages *p); /* that can be had now */
/* One that nobody owns, owned once from now on; -1: there is none. */
int32_t cache_page_take(struct cache_pages *p);
void cache_page_share(struct cache_pages *p, int32_t page);
/* At the last owner's return it is free. Of a sequence's pages return the last first: then it is the first to go. */
void cache_page_return(struct cache_pages *p, int32_t page);
/* Whether others may find it, now or later: then its bytes stay as they are. */
bool cache_page_is_known(const struct cache_pages *p, int32_t page);
int cache_page_owners(const struct cache_pages *p, int32_t page);
/* Its only owner writes over it: nobody finds it any longer, nor a page that was written after it. */
void cache_page_rewrite(struct cache_pages *p, int32_t page);

/* `before` of a text's first page: -1, or this of texts whose first pages hold something else for the same tokens. */
enum { CACHE_FIRST_LONGER = -2 };
/* A page is full: these are its tokens, `before` is the page before it, or what stands for none. */
void cache_page_know(struct cache_pages *p, int32_t page, int32_t before, const int32_t *ids);
/* The page with these tokens after `before`, owned once more; -1: there is none. */
int32_t cache_page_find(struct cache_pages *p, int32_t before, const int32_t *ids);

#endif
