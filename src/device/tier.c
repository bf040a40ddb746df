/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of requests, cut into pieces, that a few threads take in order: the first one that meets none before it. A
 * piece is moved with one call of the system, from or into the caller's memory where that lies on blocks, else through
 * a thread's own aligned memory. Ends of a request inside a block read that block first.
 *
 * Cost: a hash of every byte (XXH64, some 10 GB/s), a copy of what does not lie on blocks, 8 bytes of memory for 4096
 * of the file. Rejected: io_uring (another library; two threads keep a disk's queue filled with pieces of 1 MiB); a map
 * of the file (a disk that fails would be a SIGBUS, and the pages would count as this process's memory); one file per
 * array (more to reserve, nothing gained). */
#include "device/tier.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"

enum { RING = 512, MEASURED = 8 << 20 };

struct request { /* a piece: at most TIER_PIECE bytes of the file and what shares their blocks */
    int64_t at;
    char *memory;
    size_t bytes;
    bool put;
    enum { WAITS, MOVES, DONE } state;
};

struct tier {
    int fd;
    char *dir;
    bool direct;
    int64_t taken, live; /* bytes */
    bool reserved;
    uint64_t *sum; /* by block; 0: never written. Of requests' own blocks, which nobody else touches meanwhile */
    char *bounce[TIER_THREADS]; /* TIER_ROOM each, once something is reserved */
    pthread_t thread[TIER_THREADS];
    int n_threads;
    /* The lock guards what follows. */
    pthread_mutex_t lock;
    pthread_cond_t more, done;
    struct request ring[RING];
    uint64_t begun, ended; /* requests 1..ended are done */
    bool stop;
    struct err failed;
    struct tier_counts counts;
};

static size_t whole_blocks(size_t bytes) { return (bytes + TIER_BLOCK - 1) / TIER_BLOCK * TIER_BLOCK; }
static int64_t place_of(const void *at) { return (int64_t)((uintptr_t)at & ~DEVICE_IN_FILE); }
static struct request *slot(struct tier *t, uint64_t number) { return &t->ring[number % RING]; }

/* 0 says that nothing was written. */
static uint64_t sum_of(const void *block)
{
    uint64_t h = hash64(block, TIER_BLOCK);
    return h ? h : 1;
}

/* ---- the file ---- */
static void fail(struct tier *t, enum err_code code, int errno_value, const char *what, int64_t at, size_t n)
{
    pthread_mutex_lock(&t->lock);
    if (!t->failed.code && errno_value)
        err_errno(&t->failed, code, errno_value,
                  "memory.offload_to: %s: cannot %s %zu bytes at %lld of what is offloaded", t->dir, what, n,
                  (long long)at);
    else if (!t->failed.code)
        err_set(&t->failed, code,
                "memory.offload_to: %s: the %zu bytes at %lld of what is offloaded are not those that were written: "
                "%s. "
                "The disk or its cable is failing, or somebody wrote to the file; nothing computed from them was saved",
                t->dir, n, (long long)at, what);
    pthread_mutex_unlock(&t->lock);
}

static bool has_failed(struct tier *t)
{
    pthread_mutex_lock(&t->lock);
    bool failed = t->failed.code != OK;
    pthread_mutex_unlock(&t->lock);
    return failed;
}

/* All of it or false. */
static bool move(struct tier *t, char *p, size_t n, int64_t at, bool put)
{
    double from = clock_now_s();
    bool good = true;
    for (size_t k = 0; good && k < n;) {
        ssize_t m = put ? pwrite(t->fd, p + k, n - k, at + (int64_t)k) : pread(t->fd, p + k, n - k, at + (int64_t)k);
        if (m < 0 && errno == EINTR) continue;
        if (m < 0) fail(t, ERR_IO, errno, put ? "write" : "read", at + (int64_t)k, n - k);
        else if (m == 0) fail(t, ERR_IO, put ? ENOSPC : ENODATA, put ? "write" : "read", at + (int64_t)k, n - k);
        good = m > 0;
        if (good) k += (size_t)m;
    }
    pthread_mutex_lock(&t->lock);
    t->counts.busy_s += clock_now_s() - from;
    pthread_mutex_unlock(&t->lock);
    return good;
}

/* n bytes of whole blocks at `at`, into p. What was never written is zeros; a stretch of what was is one call. */
static bool read_blocks(struct tier *t, char *p, int64_t at, size_t n)
{
    int64_t first = at / TIER_BLOCK, blocks = (int64_t)n / TIER_BLOCK;
    for (int64_t i = 0, k; i < blocks; i = k) {
        bool there = t->sum[first + i] != 0;
        for (k = i + 1; k < blocks && (t->sum[first + k] != 0) == there;) k++;
        char *to = p + i * TIER_BLOCK;
        size_t m = (size_t)(k - i) * TIER_BLOCK;
        if (!there) memset(to, 0, m);
        else if (!move(t, to, m, at + i * TIER_BLOCK, false)) return false;
        for (int64_t j = i; there && j < k; j++)
            if (sum_of(p + j * TIER_BLOCK) != t->sum[first + j]) {
                fail(t, ERR_IO, 0, "their checksum differs", at + j * TIER_BLOCK, TIER_BLOCK);
                return false;
            }
    }
    return true;
}

static bool write_blocks(struct tier *t, char *p, int64_t at, size_t n)
{
    for (size_t k = 0; k < n; k += TIER_BLOCK) t->sum[(at + (int64_t)k) / TIER_BLOCK] = sum_of(p + k);
    return move(t, p, n, at, true);
}

/* ---- a request ---- */
static void run(struct tier *t, const struct request *r, char *bounce)
{
    int64_t lo = r->at / TIER_BLOCK * TIER_BLOCK;
    size_t head = (size_t)(r->at - lo), n = whole_blocks(head + r->bytes), tail = n - head - r->bytes;
    bool fits = !head && !tail && (uintptr_t)r->memory % TIER_BLOCK == 0;
    char *p = fits ? r->memory : bounce;
    bool good = !has_failed(t);
    if (r->put) {
        if (good && head) good = read_blocks(t, p, lo, TIER_BLOCK);
        if (good && tail && (!head || n > TIER_BLOCK))
            good = read_blocks(t, p + n - TIER_BLOCK, lo + (int64_t)n - TIER_BLOCK, TIER_BLOCK);
        if (good && !fits) memcpy(p + head, r->memory, r->bytes);
        if (good) (void)write_blocks(t, p, lo, n);
        return;
    }
    good = good && read_blocks(t, p, lo, n);
    if (!good) memset(r->memory, 0, r->bytes);
    else if (!fits) memcpy(r->memory, p + head, r->bytes);
}

static bool meet(int64_t a, size_t n, int64_t b, size_t m) { return a < b + (int64_t)m && b < a + (int64_t)n; }

static bool in_order(const struct request *a, const struct request *b)
{
    int64_t lo = a->at / TIER_BLOCK, hi = (a->at + (int64_t)a->bytes - 1) / TIER_BLOCK, from = b->at / TIER_BLOCK,
            to = (b->at + (int64_t)b->bytes - 1) / TIER_BLOCK;
    bool file = (a->put || b->put) && lo <= to && from <= hi;
    return file || ((!a->put || !b->put) &&
                    meet((int64_t)(uintptr_t)a->memory, a->bytes, (int64_t)(uintptr_t)b->memory, b->bytes));
}

/* The first that can begin; 0: none. The caller holds the lock. */
static uint64_t pick(struct tier *t)
{
    for (uint64_t i = t->ended + 1; i <= t->begun; i++) {
        bool free = slot(t, i)->state == WAITS;
        for (uint64_t k = t->ended + 1; free && k < i; k++)
            free = slot(t, k)->state == DONE || !in_order(slot(t, k), slot(t, i));
        if (free) return i;
    }
    return 0;
}

struct member {
    struct tier *t;
    int number;
};

static void *serve(void *arg)
{
    struct member me = *(struct member *)arg;
    struct tier *t = me.t;
    xfree(arg);
    thread_name_set("tier %d", me.number);
    pthread_mutex_lock(&t->lock);
    for (;;) {
        uint64_t i = pick(t);
        if (!i && t->stop) break;
        if (!i) {
            pthread_cond_wait(&t->more, &t->lock);
            continue;
        }
        struct request *r = slot(t, i), here = *r;
        r->state = MOVES;
        pthread_mutex_unlock(&t->lock);
        run(t, &here, t->bounce[me.number]);
        pthread_mutex_lock(&t->lock);
        r->state = DONE;
        while (t->ended < t->begun && slot(t, t->ended + 1)->state == DONE) t->ended++;
        pthread_cond_broadcast(&t->done);
        pthread_cond_broadcast(&t->more); /* what met this one can begin */
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void wait_until(struct tier *t, uint64_t number)
{
    double from = clock_now_s();
    bool waited = t->ended < number;
    while (t->ended < number) pthread_cond_wait(&t->done, &t->lock);
    if (waited) t->counts.waited_s += clock_now_s() - from;
}

static uint64_t begin(struct tier *t, int64_t at, char *memory, size_t bytes, bool put)
{
    CHECK(t->reserved && bytes && at >= 0 && at + (int64_t)bytes <= t->taken, "bytes %lld..%lld of %lld on disk",
          (long long)at, (long long)at + (long long)bytes, (long long)t->taken);
    pthread_mutex_lock(&t->lock);
    for (size_t k = 0; k < bytes;) {
        size_t n = TIER_PIECE - (size_t)((at + (int64_t)k) % TIER_PIECE);
        if (n > bytes - k) n = bytes - k;
        if (t->begun - t->ended == RING) wait_until(t, t->begun - RING / 2);
        *slot(t, ++t->begun) = (struct request){.at = at + (int64_t)k, .memory = memory + k, .bytes = n, .put = put};
        k += n;
    }
    *(put ? &t->counts.put_bytes : &t->counts.got_bytes) += (int64_t)bytes;
    uint64_t number = t->begun;
    pthread_cond_broadcast(&t->more);
    pthread_mutex_unlock(&t->lock);
    return number;
}

uint64_t tier_put(struct tier *t, void *at, const void *src, size_t bytes)
{
    return begin(t, place_of(at), (char *)(uintptr_t)src, bytes, true);
}

uint64_t tier_get(struct tier *t, void *dst, const void *at, size_t bytes)
{
    return begin(t, place_of(at), dst, bytes, false);
}

void tier_wait(struct tier *t, uint64_t request)
{
    pthread_mutex_lock(&t->lock);
    wait_until(t, request);
    pthread_mutex_unlock(&t->lock);
}

/* Whole blocks are forgotten, the ends are written. */
void tier_zero(struct tier *t, void *at, size_t bytes)
{
    static const char zeros[TIER_BLOCK] = {0};
    int64_t lo = place_of(at), hi = lo + (int64_t)bytes, from = (lo + TIER_BLOCK - 1) / TIER_BLOCK * TIER_BLOCK,
            to = hi / TIER_BLOCK * TIER_BLOCK;
    if (from > hi) from = hi;
    if (to < from) to = from;
    uint64_t last = 0;
    if (lo < from) last = begin(t, lo, (char *)(uintptr_t)zeros, (size_t)(from - lo), true);
    if (to < hi) last = begin(t, to, (char *)(uintptr_t)zeros, (size_t)(hi - to), true);
    pthread_mutex_lock(&t->lock);
    wait_until(t, last > t->begun ? last : t->begun);
    for (int64_t b = from / TIER_BLOCK; b < to / TIER_BLOCK; b++) t->sum[b] = 0;
    pthread_mutex_unlock(&t->lock);
}

int tier_status(struct tier *t, struct err *e)
{
    pthread_mutex_lock(&t->lock);
    struct err failed = t->failed;
    pthread_mutex_unlock(&t->lock);
    if (failed.code && e) *e = failed;
    return failed.code;
}

struct tier_counts tier_counts(struct tier *t)
{
    pthread_mutex_lock(&t->lock);
    struct tier_counts c = t->counts;
    pthread_mutex_unlock(&t->lock);
    return c;
}

/* ---- opening and space ---- */
/* A file without a name. */
static int open_in(const char *dir, int flags)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
    char *path = fs_join(dir, "tutti-offload-XXXXXX"); /* file systems that know no files without one */
    fd = mkostemp(path, O_CLOEXEC | flags);
    int why = errno;
    if (fd >= 0) (void)unlink(path);
    xfree(path);
    errno = why;
    return fd;
}

/* Some file systems open a file for direct I/O and then take none. */
static int open_direct(const char *dir)
{
    char *aligned = mem_pages_new(TIER_BLOCK);
    int fd = aligned ? open_in(dir, O_DIRECT) : -1;
    if (fd >= 0 &&
        (pwrite(fd, aligned, TIER_BLOCK, 0) != TIER_BLOCK || pread(fd, aligned, TIER_BLOCK, 0) != TIER_BLOCK)) {
        close(fd);
        fd = -1;
    }
    if (aligned) mem_pages_free(aligned, TIER_BLOCK);
    return fd;
}

static int open_file(struct tier *t, const char *dir, struct err *e)
{
    struct stat s;
    if (stat(dir, &s))
        return err_errno(e, ERR_REQUEST, errno,
                         "memory.offload_to: %s: this folder is for what is offloaded; make it, on a fast local disk",
                         dir);
    if (!S_ISDIR(s.st_mode)) return err_set(e, ERR_REQUEST, "memory.offload_to: %s is no folder", dir);
    t->fd = open_direct(dir);
    t->direct = t->fd >= 0;
    if (t->fd < 0) t->fd = open_in(dir, 0);
    if (t->fd >= 0) return OK;
    return err_errno(e, errno == ENOSPC ? ERR_IO : ERR_REQUEST, errno,
                     "memory.offload_to: %s: no file can be made in this folder", dir);
}

static int start_threads(struct tier *t, struct err *e)
{
    char limits[160];
    for (; t->n_threads < TIER_THREADS; t->n_threads++) {
        struct member *m = xmalloc(sizeof *m);
        *m = (struct member){t, t->n_threads};
        int rc = pthread_create(&t->thread[t->n_threads], NULL, serve, m);
        if (!rc) continue;
        xfree(m);
        limit_threads_text(limits);
        return err_errno(e, ERR_MEMORY, rc, "a thread for memory.offload_to (%s)", limits);
    }
    return OK;
}

int tier_open(struct tier **out, const char *dir, struct err *e)
{
    struct tier *t = *out = xcalloc(1, sizeof *t);
    t->fd = -1;
    t->dir = xstrdup(dir);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->more, NULL);
    pthread_cond_init(&t->done, NULL);
    int rc = open_file(t, dir, e);
    if (!rc) rc = start_threads(t, e);
    if (!rc) return OK;
    tier_close(t);
    *out = NULL;
    return rc;
}

void tier_close(struct tier *t)
{
    if (!t) return;
    CHECK(!t->live, "%lld bytes on disk are still somebody's", (long long)t->live);
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->more);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->n_threads; i++) pthread_join(t->thread[i], NULL);
    for (int i = 0; i < TIER_THREADS; i++)
        if (t->bounce[i]) mem_pages_free(t->bounce[i], TIER_ROOM);
    if (t->fd >= 0) close(t->fd);
    pthread_cond_destroy(&t->more);
    pthread_cond_destroy(&t->done);
    pthread_mutex_destroy(&t->lock);
    xfree(t->sum);
    xfree(t->dir);
    xfree(t);
}

bool tier_is_direct(const struct tier *t) { return t->direct; }
const char *tier_dir(const struct tier *t) { return t->dir; }
int tier_file(const struct tier *t) { return t->fd; }

void *tier_take(struct tier *t, size_t bytes)
{
    CHECK(!t->reserved, "%zu bytes on disk that nobody reserved", bytes);
    void *p = (void *)(DEVICE_IN_FILE | (uintptr_t)t->taken);
    t->taken += (int64_t)whole_blocks(bytes);
    t->live += (int64_t)bytes;
    return p;
}

void tier_give(struct tier *t, size_t bytes) { t->live -= (int64_t)bytes; }

/* Every block exists afterwards; an errno. */
static int fill(struct tier *t)
{
    int rc = fallocate(t->fd, 0, 0, t->taken) ? errno : 0;
    if (rc != EOPNOTSUPP && rc != ENOSYS) return rc;
    memset(t->bounce[0], 0, TIER_PIECE); /* a file system that has to be written to */
    for (int64_t at = 0; at < t->taken;) {
        size_t n = t->taken - at < TIER_PIECE ? (size_t)(t->taken - at) : TIER_PIECE;
        ssize_t m = pwrite(t->fd, t->bounce[0], n, at);
        if (m < 0 && errno == EINTR) continue;
        if (m <= 0) return m ? errno : ENOSPC;
        at += m;
    }
    return 0;
}

static int take_rooms(struct tier *t, struct err *e)
{
    for (int i = 0; i < TIER_THREADS; i++) {
        t->bounce[i] = mem_pages_new(TIER_ROOM);
        if (!t->bounce[i]) return err_set(e, ERR_MEMORY, "no memory for what is on its way to memory.offload_to");
    }
    return OK;
}

int tier_reserve(struct tier *t, struct err *e)
{
    struct statvfs s;
    char want[32], have[32], more[32];
    t->reserved = true;
    if (!t->taken) return OK;
    int rc = take_rooms(t, e);
    if (rc) return rc;
    rc = fill(t);
    if (!rc) t->sum = xcalloc(to_size(t->taken / TIER_BLOCK), sizeof *t->sum);
    if (!rc) return OK;
    if (rc != ENOSPC && rc != EFBIG && rc != EDQUOT)
        return err_errno(e, ERR_IO, rc, "memory.offload_to: %s: no space of %s could be reserved", t->dir,
                         str_bytes(want, (double)t->taken));
    double room = fstatvfs(t->fd, &s) ? 0 : (double)s.f_bavail * (double)s.f_frsize, lacks = (double)t->taken - room;
    if (lacks > 0)
        return err_set(e, ERR_REQUEST,
                       "memory.offload_to: %s: this rank offloads %s, and the disk has %s left (ranks share it): %s "
                       "more are needed; choose another folder, or offload less (memory.offload)",
                       t->dir, str_bytes(want, (double)t->taken), str_bytes(have, room), str_bytes(more, lacks));
    return err_errno(e, ERR_REQUEST, rc,
                     "memory.offload_to: %s: this rank offloads %s in one file; choose another folder, raise the limit "
                     "(ulimit -f, quota), or offload less (memory.offload)",
                     t->dir, str_bytes(want, (double)t->taken));
}

/* So many bytes from the start of the file on, around again at its end: pieces from and to the threads' own rooms,
 * which they do not need for whole blocks in whole pages. Waits. */
static void pass(struct tier *t, int64_t bytes, bool put)
{
    uint64_t last = 0;
    int room = 0;
    for (int64_t left = t->taken ? bytes : 0, at = 0, m; left > 0;
         left -= m, at += m, room = (room + 1) % TIER_THREADS) {
        if (at == t->taken) at = 0;
        m = left < TIER_PIECE ? (int64_t)whole_blocks(to_size(left)) : TIER_PIECE;
        if (m > t->taken - at) m = t->taken - at;
        last = begin(t, at, t->bounce[room], to_size(m), put);
    }
    tier_wait(t, last);
}

double tier_time(struct tier *t, int64_t put, int64_t get)
{
    double from = clock_now_s();
    pass(t, put, true);
    pass(t, get, false);
    return clock_now_s() - from;
}

void tier_measure(struct tier *t, double *put, double *get)
{
    int64_t n = t->taken < MEASURED ? t->taken : MEASURED;
    *put = *get = 0;
    if (!n) return;
    for (int i = 0; i < TIER_THREADS; i++) memset(t->bounce[i], 1, TIER_ROOM);
    double from = clock_now_s(), then;
    pass(t, n, true);
    then = clock_now_s();
    *put = (double)n / (then - from + 1e-9);
    pass(t, n, false);
    *get = (double)n / (clock_now_s() - then + 1e-9);
    tier_zero(t, (void *)DEVICE_IN_FILE, to_size(n));
    pthread_mutex_lock(&t->lock);
    t->counts = (struct tier_counts){0};
    pthread_mutex_unlock(&t->lock);
}
