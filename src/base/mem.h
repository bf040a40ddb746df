/* SPDX-License-Identifier: Apache-2.0 */
/* mem.h: host memory. `malloc` lives in mem.c and nowhere else.
 *
 * Invariants
 *   1. xmalloc and friends never return NULL: out of host bookkeeping memory is fatal (message, exit 1).
 *      Big, user-sized allocations (tensors, file maps) go through device/ or fs.h and return errors.
 *   2. Memory from xmalloc is freed with xfree; arenas free everything at once.
 * Includes: base only. Order: Local.
 */
#ifndef TUTTI_BASE_MEM_H
#define TUTTI_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

void *xmalloc(size_t bytes);          /* uninitialised */
void *xcalloc(size_t n, size_t each); /* zeroed; n*each checked for overflow */
void *xrealloc(void *p, size_t bytes);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n);
void xfree(void *p); /* NULL is fine */

/* Megabytes that are soon full: from 2 MiB on they begin where a large page does and ask the system for such, since
 * waiting for thousands of small ones takes longer than to fill them. */
void *xmalloc_large(size_t bytes);       /* uninitialised; freed with xfree */
void *xcalloc_large(size_t bytes);       /* zeroed; freed with xfree_large */
void xfree_large(void *p, size_t bytes); /* NULL is fine */

/* An array that grows: a pointer from xmalloc or NULL, how many elements are in it and how many there is room for, the
 * latter an int, int64_t or size_t. GROW makes room for `more` elements behind the first n: the room doubles from 4
 * until they fit, so it is a power of two when nobody else sets it, and adding one by one costs O(n) copies in all.
 * What is behind n is not initialised. A size that no counter or memory can have is a CHECK.
 *
 *     GROW(l->item, l->n, l->room, 1);
 *     l->item[l->n++] = x;
 */
#define GROW(p, n, room, more)                                                                                         \
    do {                                                                                                               \
        if ((uint64_t)(more) > (uint64_t)(room) - (uint64_t)(n)) {                                                     \
            uint64_t grown_ = mem_grown((uint64_t)(n), (uint64_t)(more), (uint64_t)(room), sizeof *(p), sizeof(room)); \
            (p) = xrealloc((p), (size_t)grown_ * sizeof *(p));                                                         \
            (room) = (__typeof__(room))grown_;                                                                         \
        }                                                                                                              \
    } while (0)
/* The room that GROW takes, for elements of `each` bytes counted in an integer of `counter` bytes. */
uint64_t mem_grown(uint64_t n, uint64_t more, uint64_t room, size_t each, size_t counter);

/* Page-aligned memory for tensors; NULL when the system has none (the caller reports it). Zeroed by the OS. */
void *mem_pages_new(size_t bytes);
void mem_pages_free(void *p, size_t bytes);

/* Checked arithmetic for sizes that come from outside: 0 on success, -1 on overflow. */
int size_mul(size_t a, size_t b, size_t *out);
int size_add(size_t a, size_t b, size_t *out);
/* Narrowing with a CHECK. */
int to_int(int64_t v);
size_t to_size(int64_t v);

/* Arena: many small objects that die together (configs, parsed files, tapes). */
struct arena;
struct arena *arena_new(void);
void arena_free(struct arena *a);
void arena_reset(struct arena *a);
void *arena_alloc(struct arena *a, size_t bytes); /* zeroed, 16-byte aligned */
char *arena_strdup(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Current and peak resident set of this process, bytes (/proc/self/status). */
size_t mem_rss(void);
size_t mem_rss_peak(void);

#endif
