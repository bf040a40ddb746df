/* SPDX-License-Identifier: Apache-2.0 */
/* piece_cache.c: files of a folder, and one lock.
 *
 * Reading takes no lock: a file that is removed while it is open can be read to its end. Adding takes it for the time
 * of a rename; who finds that the limit would be passed lists the folder and removes the files with the oldest times,
 * down to 7/8 of the limit, so that the next listing is an eighth of the limit away. The count of bytes is written
 * before the rename: a crash between the two leaves it too high, never too low, and the next listing sets it right.
 * Nothing is synced: what is lost is fetched again.
 */
#include "remote/piece_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

enum { VERSION = 1, BLOCKS_MAX = 1024, FRESH_S = 10, LEFT_BEHIND_S = 3600, NAME_BYTES = 30 };
#define MAGIC "tuttipce"
#define ENDING ".piece"

struct head {
    char magic[8];
    uint32_t version, block;
    uint64_t n;
    unsigned char id[16];
    uint64_t sum; /* hash64 of all before, then of the blocks' checksums */
};
_Static_assert(sizeof(struct head) == 48, "the head has no holes");

struct piece_cache {
    char *dir, *lock, *used;
    int64_t limit;
    atomic_bool said, damage_said;
};

static int64_t blocks_of(uint64_t n) { return (int64_t)((n + PIECE_BLOCK - 1) / PIECE_BLOCK); }

static size_t file_bytes(size_t n) { return sizeof(struct head) + 8 * (size_t)blocks_of(n) + n; }

/* "DIR/ab/cdef...". */
static char *path_of(const struct piece_cache *c, const struct piece_key *k, const char *ending)
{
    struct str s = {0};
    str_printf(&s, "%s/%02x/", c->dir, k->id[0]);
    for (size_t i = 1; i < sizeof k->id; i++) str_printf(&s, "%02x", k->id[i]);
    str_puts(&s, ending);
    return s.p;
}

int piece_cache_open(struct piece_cache **out, const char *dir, int64_t limit, struct err *e)
{
    CHECK(limit > 0, "a cache of %lld bytes", (long long)limit);
    *out = NULL;
    if (fs_mkdirs(dir, e)) {
        err_prefix(e, "data.remote.cache_dir");
        return e ? (e->code = ERR_REQUEST) : ERR_REQUEST;
    }
    struct piece_cache *c = xcalloc(1, sizeof *c);
    c->dir = xstrdup(dir);
    c->lock = fs_join(dir, "lock");
    c->used = fs_join(dir, "used");
    c->limit = limit;
    *out = c;
    return OK;
}

void piece_cache_close(struct piece_cache *c)
{
    if (!c) return;
    xfree(c->dir);
    xfree(c->lock);
    xfree(c->used);
    xfree(c);
}

int64_t piece_cache_limit(const struct piece_cache *c) { return c->limit; }

/* ---- reading ---- */

static bool read_all(int fd, int64_t at, size_t n, void *out)
{
    for (size_t got = 0; got < n;) {
        ssize_t k = pread(fd, (char *)out + got, n - got, (off_t)at + (off_t)got);
        if (k <= 0 && !(k < 0 && errno == EINTR)) return false;
        got += k > 0 ? (size_t)k : 0;
    }
    return true;
}

static uint64_t head_sum(const struct head *h, const uint64_t *sums, int64_t n_sums)
{
    struct hash64 x;
    hash64_init(&x);
    hash64_add(&x, h, offsetof(struct head, sum));
    hash64_add(&x, sums, 8 * (size_t)n_sums);
    return hash64_value(&x);
}

static bool head_fits(const struct head *h, const struct piece_key *k, size_t piece_n)
{
    return !memcmp(h->magic, MAGIC, 8) && h->version == VERSION && h->block == PIECE_BLOCK && h->n == piece_n &&
           !memcmp(h->id, k->id, sizeof k->id);
}

/* The blocks of [at, at + n), each compared; one that is only partly wanted goes through a buffer. */
static bool read_blocks(int fd, const uint64_t *sums, size_t piece_n, size_t at, size_t n, unsigned char *out)
{
    int64_t data = (int64_t)(sizeof(struct head) + 8 * (size_t)blocks_of(piece_n));
    unsigned char *buffer = NULL;
    bool good = true;
    for (size_t lo = at, end = at + n; good && lo < end;) {
        size_t b = lo / PIECE_BLOCK, first = b * PIECE_BLOCK,
               m = piece_n - first < PIECE_BLOCK ? piece_n - first : PIECE_BLOCK, take = first + m - lo;
        if (take > end - lo) take = end - lo;
        bool direct = take == m;
        if (!direct && !buffer) buffer = xmalloc(PIECE_BLOCK);
        unsigned char *to = direct ? out : buffer;
        good = read_all(fd, data + (int64_t)first, m, to) && hash64(to, m) == sums[b];
        if (good && !direct) memcpy(out, buffer + (lo - first), take);
        out += take;
        lo += take;
    }
    xfree(buffer);
    return good;
}

static bool read_piece(int fd, const struct piece_key *k, size_t piece_n, size_t at, size_t n, void *out)
{
    struct head h;
    uint64_t sums[BLOCKS_MAX];
    int64_t n_sums = blocks_of(piece_n);
    return read_all(fd, 0, sizeof h, &h) && head_fits(&h, k, piece_n) &&
           read_all(fd, sizeof h, 8 * (size_t)n_sums, sums) && head_sum(&h, sums, n_sums) == h.sum &&
           read_blocks(fd, sums, piece_n, at, n, out);
}

/* Its time says when it was used last. */
static void touch(int fd)
{
    struct stat st;
    if (!fstat(fd, &st) && (double)st.st_mtim.tv_sec + FRESH_S < clock_wall_s()) (void)futimens(fd, NULL);
}

bool piece_cache_read(struct piece_cache *c, const struct piece_key *k, size_t piece_n, size_t at, size_t n, void *out)
{
    CHECK(at <= piece_n && n <= piece_n - at, "bytes [%zu, +%zu) of a piece of %zu", at, n, piece_n);
    if (blocks_of(piece_n) > BLOCKS_MAX) return false;
    char *path = path_of(c, k, ENDING);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && read_piece(fd, k, piece_n, at, n, out);
    if (good) touch(fd);
    if (fd >= 0) close(fd);
    if (fd >= 0 && !good) {
        if (!atomic_exchange(&c->damage_said, true))
            log_warn("data: %s is damaged; it was removed and is fetched again, and others like it", path);
        (void)unlink(path);
    }
    xfree(path);
    return good;
}

/* ---- adding ---- */

struct kept { /* a file of the folder */
    char *path;
    int64_t bytes;
    double used_s;
};
struct kept_list {
    struct kept *file;
    int64_t n, room, bytes;
};

static int oldest_first(const void *a, const void *b)
{
    double x = ((const struct kept *)a)->used_s, y = ((const struct kept *)b)->used_s;
    return x < y ? -1 : x > y;
}

static bool hex(const char *p, size_t n) { return strspn(p, "0123456789abcdef") >= n; }

/* A piece's name, or that of one that is being written. */
static bool is_ours(const char *name, bool *tmp)
{
    *tmp = strlen(name) > NAME_BYTES && str_starts(name + NAME_BYTES, ".tmp-");
    return strlen(name) > NAME_BYTES && hex(name, NAME_BYTES) && (*tmp || !strcmp(name + NAME_BYTES, ENDING));
}

/* What a process left that died while it wrote goes after an hour. What cannot be looked at takes room nonetheless. */
static int list_folder(struct kept_list *l, const char *folder, struct err *e)
{
    char **names;
    bool tmp;
    int n, code = fs_list(folder, &names, &n, e);
    if (code) return code;
    for (int i = 0; i < n && !code; i++) {
        struct stat st;
        if (!is_ours(names[i], &tmp)) continue;
        char *path = fs_join(folder, names[i]);
        bool seen = !lstat(path, &st);
        if (!seen && errno != ENOENT) /* which another process removed meanwhile */
            code = err_errno(e, ERR_IO, errno, "%s: cannot be looked at", path);
        if (!seen || !S_ISREG(st.st_mode)) {
            xfree(path);
            continue;
        }
        double used_s = (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec;
        if (tmp) {
            if (used_s + LEFT_BEHIND_S < clock_wall_s()) (void)unlink(path);
            xfree(path);
            continue;
        }
        GROW(l->file, l->n, l->room, 1);
        l->file[l->n++] = (struct kept){path, st.st_size, used_s};
        l->bytes += st.st_size;
    }
    fs_list_free(names, n);
    return code;
}

static int list_all(struct kept_list *l, const char *dir, struct err *e)
{
    char **names;
    int n, code = fs_list(dir, &names, &n, e);
    if (code) return code;
    for (int i = 0; i < n && !code; i++) {
        if (strlen(names[i]) != 2 || !hex(names[i], 2)) continue;
        char *folder = fs_join(dir, names[i]);
        int what = fs_what(folder, e);
        if (what == FS_FOLDER) code = list_folder(l, folder, e);
        else if (what < 0) code = what;
        xfree(folder);
    }
    fs_list_free(names, n);
    return code;
}

/* Down to `most` bytes; what is left. < 0: it cannot be told, and nothing was removed. */
static int64_t evict(struct piece_cache *c, int64_t most, struct err *e)
{
    struct kept_list l = {0};
    int code = list_all(&l, c->dir, e);
    if (l.n) qsort(l.file, (size_t)l.n, sizeof *l.file, oldest_first);
    for (int64_t i = 0; i < l.n; i++) {
        bool goes = !code && l.bytes > most;
        if (goes && (!unlink(l.file[i].path) || errno == ENOENT)) l.bytes -= l.file[i].bytes;
        xfree(l.file[i].path);
    }
    xfree(l.file);
    return code ? code : l.bytes;
}

/* The lock is held until its descriptor is closed. -1: errno says why. */
static int take_lock(const struct piece_cache *c)
{
    int fd = open(c->lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666), failed;
    if (fd < 0) return -1;
    do failed = flock(fd, LOCK_EX);
    while (failed && errno == EINTR);
    if (!failed) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* What DIR/used says, with its checksum; -1: nothing that is right. */
static int64_t read_used(int fd)
{
    uint64_t x[2];
    return read_all(fd, 0, sizeof x, x) && hash64(x, 8) == x[1] && x[0] <= INT64_MAX ? (int64_t)x[0] : -1;
}

static bool write_used(int fd, int64_t bytes)
{
    uint64_t x[2] = {(uint64_t)bytes, 0};
    x[1] = hash64(x, 8);
    return pwrite(fd, x, sizeof x, 0) == (ssize_t)sizeof x;
}

/* Gives the written piece its name, with room made for it. False: *e says why, or errno. */
static bool publish(struct piece_cache *c, const char *from, const char *to, int64_t bytes, struct err *e)
{
    int lock = take_lock(c), used = lock < 0 ? -1 : open(c->used, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    bool good = used >= 0;
    if (good) {
        int64_t now = read_used(used);
        struct stat st;
        bool there = !stat(to, &st); /* another process fetched it meanwhile */
        if (!there && (now < 0 || now + bytes > c->limit)) {
            int64_t most = c->limit / 8 * 7 < c->limit - bytes ? c->limit / 8 * 7 : c->limit - bytes;
            now = evict(c, now < 0 ? c->limit - bytes : most, e);
        }
        if (there) (void)unlink(from);
        else good = now >= 0 && write_used(used, now + bytes) && !rename(from, to);
    }
    int why = errno;
    if (used >= 0) close(used);
    if (lock >= 0) close(lock);
    errno = why;
    return good;
}

static bool write_all(int fd, const void *p, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = write(fd, (const char *)p + done, n - done);
        if (k < 0 && errno != EINTR) return false;
        done += k > 0 ? (size_t)k : 0;
    }
    return true;
}

static bool write_piece(const char *path, const struct piece_key *k, const unsigned char *p, size_t n)
{
    struct head h = {.magic = MAGIC, .version = VERSION, .block = PIECE_BLOCK, .n = n};
    uint64_t sums[BLOCKS_MAX];
    int64_t n_sums = blocks_of(n);
    memcpy(h.id, k->id, sizeof h.id);
    for (int64_t i = 0; i < n_sums; i++) {
        size_t at = (size_t)i * PIECE_BLOCK;
        sums[i] = hash64(p + at, n - at < PIECE_BLOCK ? n - at : PIECE_BLOCK);
    }
    h.sum = head_sum(&h, sums, n_sums);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return false;
    bool good = write_all(fd, &h, sizeof h) && write_all(fd, sums, 8 * (size_t)n_sums) && write_all(fd, p, n);
    int why = errno;
    if (close(fd) && good) return false;
    errno = why;
    return good;
}

void piece_cache_put(struct piece_cache *c, const struct piece_key *k, const void *p, size_t n)
{
    if (blocks_of(n) > BLOCKS_MAX || (int64_t)file_bytes(n) > c->limit) return;
    char ending[64];
    snprintf(ending, sizeof ending, ".tmp-%d-%d", (int)getpid(), (int)gettid());
    char *from = path_of(c, k, ending), *to = path_of(c, k, ENDING), *folder = xstrdup(to);
    *strrchr(folder, '/') = 0;
    struct err e = {0};
    bool there = fs_mkdirs(folder, &e) == OK,
         good = there && write_piece(from, k, p, n) && publish(c, from, to, (int64_t)file_bytes(n), &e);
    if (!good && !*e.text) err_set(&e, ERR_IO, "%s", strerror(errno));
    if (there && !good) (void)unlink(from);
    if (!good && !atomic_exchange(&c->said, true))
        log_warn("data: %s: what is fetched cannot be kept there (%s); it is fetched anew each time", c->dir, e.text);
    xfree(folder);
    xfree(from);
    xfree(to);
}

void piece_cache_drop(struct piece_cache *c, const struct piece_key *k)
{
    char *path = path_of(c, k, ENDING);
    (void)unlink(path); /* DIR/used counts it until the next look at all of them, as of a damaged one */
    xfree(path);
}
