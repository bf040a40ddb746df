/* SPDX-License-Identifier: Apache-2.0 */
/* mem.c: host memory: the one file that calls malloc.
 *
 * The x-functions serve bookkeeping (names, tables, parsed files): kilobytes, whose absence nobody can handle,
 * so they end the process with a sentence instead of a NULL. Tensors are user-sized: mem_pages_new may fail
 * and the caller says what did not fit. They are whole pages from mmap, zeroed by the system; sizes of 4 MiB
 * and more ask for transparent huge pages, which spares address translation in matrix kernels.
 *
 * The arena is a list of blocks that double in size up to 1 MiB; an allocation is an add and a compare, and
 * everything is freed at once. Blocks come from malloc, so a sanitizer still sees an arena that leaks.
 */
#include "base/mem.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"

static __attribute__((noreturn)) void out_of_memory(size_t bytes)
{
    fprintf(stderr,
            "tutti: out of host memory (a request of %zu bytes failed); close other programs or use a machine with "
            "more memory\n",
            bytes);
    _Exit(1);
}

void *xmalloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p) out_of_memory(bytes);
    return p;
}

void *xcalloc(size_t n, size_t each)
{
    size_t bytes;
    if (size_mul(n, each, &bytes)) out_of_memory(SIZE_MAX);
    void *p = calloc(bytes ? bytes : 1, 1);
    if (!p) out_of_memory(bytes);
    return p;
}

void *xrealloc(void *p, size_t bytes)
{
    void *q = realloc(p, bytes ? bytes : 1);
    if (!q) out_of_memory(bytes);
    return q;
}

char *xstrdup(const char *s) { return xstrndup(s, strlen(s)); }

char *xstrndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *copy = xmalloc(len + 1);
    memcpy(copy, s, len);
    copy[len] = 0;
    return copy;
}

void xfree(void *p) { free(p); }

#define LARGE_PAGE ((size_t)2 << 20)

void *xmalloc_large(size_t bytes)
{
    void *p = NULL;
    if (bytes < LARGE_PAGE) return xmalloc(bytes);
    if (posix_memalign(&p, LARGE_PAGE, bytes)) out_of_memory(bytes);
    (void)madvise(p, bytes / LARGE_PAGE * LARGE_PAGE, MADV_HUGEPAGE); /* a wish: failure changes speed only */
    return p;
}

void *xcalloc_large(size_t bytes)
{
    if (bytes < LARGE_PAGE) return xcalloc(bytes, 1);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) out_of_memory(bytes);
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

void xfree_large(void *p, size_t bytes)
{
    if (bytes < LARGE_PAGE) xfree(p);
    else if (p) munmap(p, bytes);
}

#define GROW_FIRST ((uint64_t)4)

uint64_t mem_grown(uint64_t n, uint64_t more, uint64_t room, size_t each, size_t counter)
{
    uint64_t most = (counter < sizeof(int64_t) ? (uint64_t)INT_MAX : (uint64_t)INT64_MAX) / each, want;
    CHECK(counter >= sizeof(int), "the room of an array counted in %zu bytes", counter);
    CHECK(!__builtin_add_overflow(n, more, &want) && want <= most,
          "an array of %llu elements of %zu bytes and %llu more", (unsigned long long)n, each,
          (unsigned long long)more);
    if (!room) room = GROW_FIRST;
    while (room < want) room = room > most / 2 ? most : 2 * room;
    return room;
}

#define HUGE_FROM ((size_t)4 << 20)

void *mem_pages_new(size_t bytes)
{
    void *p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (bytes >= HUGE_FROM) madvise(p, bytes, MADV_HUGEPAGE); /* a wish: failure changes speed only */
    return p;
}

void mem_pages_free(void *p, size_t bytes)
{
    if (p) munmap(p, bytes ? bytes : 1);
}

int size_mul(size_t a, size_t b, size_t *out) { return __builtin_mul_overflow(a, b, out) ? -1 : 0; }

int size_add(size_t a, size_t b, size_t *out) { return __builtin_add_overflow(a, b, out) ? -1 : 0; }

int to_int(int64_t v)
{
    CHECK(v >= INT_MIN && v <= INT_MAX, "%lld does not fit an int", (long long)v);
    return (int)v;
}

size_t to_size(int64_t v)
{
    CHECK(v >= 0, "a size of %lld", (long long)v);
    return (size_t)v;
}

#define ARENA_FIRST ((size_t)4096)
#define ARENA_LARGEST ((size_t)1 << 20)
#define ARENA_ALIGN ((size_t)16)

struct arena_block {
    struct arena_block *next;
    size_t room, used; /* bytes after the header */
};

struct arena {
    struct arena_block *blocks; /* the newest first; only the newest has free room worth trying */
};

#define BLOCK_HEAD ((sizeof(struct arena_block) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN)

struct arena *arena_new(void) { return xcalloc(1, sizeof(struct arena)); }

void arena_reset(struct arena *a)
{
    for (struct arena_block *b = a->blocks, *next; b; b = next) {
        next = b->next;
        xfree(b);
    }
    *a = (struct arena){0};
}

void arena_free(struct arena *a)
{
    if (!a) return;
    arena_reset(a);
    xfree(a);
}

static struct arena_block *arena_grow(struct arena *a, size_t bytes)
{
    size_t room = a->blocks ? a->blocks->room * 2 : ARENA_FIRST;
    if (room > ARENA_LARGEST) room = ARENA_LARGEST;
    if (room < bytes) room = bytes;
    struct arena_block *b = xmalloc(BLOCK_HEAD + room);
    *b = (struct arena_block){.next = a->blocks, .room = room};
    a->blocks = b;
    return b;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    size_t want;
    if (size_add(bytes ? bytes : 1, ARENA_ALIGN - 1, &want) || want > SIZE_MAX - BLOCK_HEAD - ARENA_ALIGN)
        out_of_memory(bytes);
    want = want / ARENA_ALIGN * ARENA_ALIGN;
    struct arena_block *b = a->blocks;
    if (!b || b->room - b->used < want) b = arena_grow(a, want);
    void *p = (char *)b + BLOCK_HEAD + b->used;
    b->used += want;
    return memset(p, 0, want);
}

char *arena_strdup(struct arena *a, const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(arena_alloc(a, n), s, n);
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    CHECK(n >= 0, "bad format '%s'", fmt);
    char *p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

/* A line such as "VmRSS:     1234 kB" of /proc/self/status; 0 where the system has no such file. */
static size_t status_bytes(const char *key)
{
    FILE *f = fopen("/proc/self/status", "r");
    if (!f) return 0;
    char line[256];
    size_t kib = 0, n = strlen(key);
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, n) != 0) continue;
        kib = strtoull(line + n, NULL, 10);
        break;
    }
    fclose(f);
    return kib * 1024;
}

size_t mem_rss(void) { return status_bytes("VmRSS:"); }

size_t mem_rss_peak(void) { return status_bytes("VmHWM:"); }
