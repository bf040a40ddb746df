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
size_t arena_bytes(const struct arena *a);

/* Current and peak resident set of this process, bytes (/proc/self/status). */
size_t mem_rss(void);
size_t mem_rss_peak(void);

#endif
