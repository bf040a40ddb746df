/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c: see blocks.h. Naming a buffer is a search in at most SLOTS blocks of one's own; following a name is a load
 * of the owner's table (a line that does not change) and an addition, once the block is mapped. Mapping costs a few
 * system calls, and a page fault per page at first touch.
 *
 * Rejected: MPI_Win_allocate_shared for every buffer, which all ranks would have to call together, and which lives in
 * /dev/shm; reading through the kernel (process_vm_readv), a system call per piece, copies, and often forbidden.
 */
#include "comm/blocks.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#define SLOTS 256
#define PAGE ((size_t)4096)
#define HUGE_FROM ((size_t)4 << 20)
#define OFFSET_BITS 48
#define OFFSET_MASK (((uint64_t)1 << OFFSET_BITS) - 1)
#define TRIAL_MARK 0x7475747469ULL

_Static_assert(SLOTS < 0xffff - 1, "slots and BLOCK_NOTHING fit 16 bits");

/* What others may see of a process; one writer. fd and bytes are there before id is. */
struct slot {
    atomic_llong id; /* 0: empty */
    atomic_llong fd, bytes;
};
struct table {
    _Alignas(64) struct slot slot[SLOTS];
};

struct own {
    char *p; /* NULL: free */
    size_t bytes;
    int fd;
};
struct seen {
    char *p;
    size_t bytes;
    int64_t id;
};

struct blocks {
    struct table *tables; /* [n] */
    struct board *board;
    int n, me;
    bool works;
    char *trial;          /* block of the trial */
    pthread_mutex_t lock; /* guards own, last_id, and this rank's table against a second writer */
    struct own own[SLOTS];
    int64_t last_id;
    struct seen *seen; /* [n * SLOTS] */
};

size_t blocks_table_bytes(int n) { return (size_t)n * sizeof(struct table); }

static size_t whole_pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static char *map(int fd, size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return NULL;
    if (bytes >= HUGE_FROM) madvise(p, bytes, MADV_HUGEPAGE); /* a wish */
    return p;
}

/* ---- one's own ---------------------------------------------------------------------------------------------- */

/* A file longer than this limit would end the process with a signal. */
static bool file_may_be(size_t bytes)
{
    struct rlimit most;
    return getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY || bytes <= most.rlim_cur;
}

static bool own_new(struct own *o, size_t bytes)
{
    if (!file_may_be(bytes)) return false;
    o->fd = memfd_create("tutti", MFD_CLOEXEC);
    if (o->fd < 0) return false;
    o->bytes = bytes;
    o->p = ftruncate(o->fd, (off_t)bytes) ? NULL : map(o->fd, bytes);
    if (!o->p) close(o->fd);
    return o->p != NULL;
}

void *blocks_memory_new(size_t bytes, int *fd)
{
    struct own o = {0};
    bool made = own_new(&o, whole_pages(bytes));
    *fd = made ? o.fd : -1;
    return made ? o.p : NULL;
}

void blocks_memory_free(void *p, size_t bytes, int fd)
{
    if (p) munmap(p, whole_pages(bytes));
    if (p && fd >= 0) close(fd);
}

static void *take_slot(struct blocks *b, size_t bytes)
{
    char *p = NULL;
    pthread_mutex_lock(&b->lock);
    int i = 0;
    while (i < SLOTS && b->own[i].p) i++;
    if (i < SLOTS && own_new(&b->own[i], whole_pages(bytes))) {
        struct slot *s = &b->tables[b->me].slot[i];
        p = b->own[i].p;
        atomic_store(&s->fd, b->own[i].fd);
        atomic_store(&s->bytes, (long long)b->own[i].bytes);
        atomic_store_explicit(&s->id, ++b->last_id, memory_order_release);
    }
    pthread_mutex_unlock(&b->lock);
    return p;
}

void *blocks_alloc(struct blocks *b, size_t bytes)
{
    return b->works && bytes >= BLOCK_LEAST && bytes <= OFFSET_MASK - PAGE ? take_slot(b, bytes) : NULL;
}

bool blocks_release(struct blocks *b, void *p)
{
    pthread_mutex_lock(&b->lock);
    int i = 0;
    while (i < SLOTS && (!p || b->own[i].p != p)) i++;
    if (i < SLOTS) {
        struct own *o = &b->own[i];
        atomic_store_explicit(&b->tables[b->me].slot[i].id, 0, memory_order_release);
        int gone = fallocate(o->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)o->bytes);
        (void)gone; /* else its pages go with the last mapping */
        munmap(o->p, o->bytes);
        close(o->fd);
        *o = (struct own){0};
    }
    pthread_mutex_unlock(&b->lock);
    return i < SLOTS;
}

uint64_t blocks_name(struct blocks *b, const void *p, size_t bytes)
{
    uint64_t name = 0;
    if (bytes == 0) return BLOCK_NOTHING;
    pthread_mutex_lock(&b->lock);
    for (int i = 0; !name && i < SLOTS; i++) {
        const struct own *o = &b->own[i];
        uintptr_t from = (uintptr_t)o->p, at = (uintptr_t)p;
        if (o->p && at >= from && at - from < o->bytes && bytes <= o->bytes - (at - from))
            name = (uint64_t)(i + 1) << OFFSET_BITS | (at - from);
    }
    pthread_mutex_unlock(&b->lock);
    return name;
}

/* ---- the others' -------------------------------------------------------------------------------------------- */

static void forget(struct seen *s)
{
    if (s->p) munmap(s->p, s->bytes);
    *s = (struct seen){0};
}

/* Another process may have this pid where pids mean something else (containers): then the file is another one too. */
static bool is_block(int fd, int64_t bytes)
{
    struct stat s;
    return fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_size == bytes;
}

void *blocks_memory_see(int64_t pid, int64_t of, size_t bytes)
{
    char path[64], *p = NULL;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)pid, (long long)of);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && is_block(fd, (int64_t)whole_pages(bytes))) p = map(fd, whole_pages(bytes));
    if (fd >= 0) close(fd);
    return p;
}

/* Maps block `id` of a slot. OK with s->p NULL: the slot held it no more when that was tried. */
static int open_block(struct blocks *b, int row, int slot, int64_t id, struct seen *s, struct err *e)
{
    struct slot *from = &b->tables[row].slot[slot];
    long long fd_there = atomic_load(&from->fd), bytes = atomic_load(&from->bytes);
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)b->board->row[row].pid, fd_there);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    *s = (struct seen){.bytes = (size_t)bytes, .id = id};
    if (fd >= 0 && is_block(fd, bytes)) s->p = map(fd, s->bytes);
    int why = errno;
    if (fd >= 0) close(fd);
    bool same = atomic_load(&from->id) == id;
    if (s->p && same) return OK;
    forget(s);
    if (!same) return OK;
    return err_set(e, ERR_IO, "%lld bytes of rank %d cannot be mapped: %s: %s", bytes, b->board->row[row].rank, path,
                   fd < 0 || why ? strerror(why) : "another file");
}

int blocks_see(struct blocks *b, int row, uint64_t name, char **p, struct err *e)
{
    *p = NULL;
    if (name == BLOCK_NOTHING) return OK;
    int slot = (int)(name >> OFFSET_BITS) - 1;
    CHECK(slot >= 0 && slot < SLOTS && row >= 0 && row < b->n, "a name of slot %d of row %d", slot, row);
    struct seen *s = &b->seen[(size_t)row * SLOTS + (size_t)slot];
    int64_t id = atomic_load_explicit(&b->tables[row].slot[slot].id, memory_order_acquire);
    int rc = OK;
    if (s->id != id) {
        forget(s);
        if (id) rc = open_block(b, row, slot, id, s, e);
    }
    if (s->p) *p = s->p + (name & OFFSET_MASK);
    return rc;
}

/* ---- all of them -------------------------------------------------------------------------------------------- */

struct blocks *blocks_new(void *tables, int n, int me, struct board *board)
{
    struct blocks *b = xcalloc(1, sizeof *b);
    *b = (struct blocks){.tables = tables, .board = board, .n = n, .me = me};
    pthread_mutex_init(&b->lock, NULL);
    b->seen = xcalloc((size_t)n * SLOTS, sizeof *b->seen);
    memset(&b->tables[me], 0, sizeof b->tables[me]);
    b->trial = take_slot(b, PAGE); /* slot 0 */
    if (b->trial) *(uint64_t *)(void *)b->trial = TRIAL_MARK + (uint64_t)me;
    return b;
}

int blocks_try(struct blocks *b, struct err *e)
{
    for (int row = 0; row < b->n; row++) {
        char *p;
        int64_t pid;
        if (atomic_load(&b->tables[row].slot[0].id) != 1)
            return err_set(e, ERR_IO, "rank %d has no anonymous files (memfd)", b->board->row[row].rank);
        if (b->board->row[row].pid_space == 0 || b->board->row[row].pid_space != b->board->row[b->me].pid_space ||
            board_died(b->board, row, &pid))
            return err_set(e, ERR_IO, "rank %d is in another space of process numbers", b->board->row[row].rank);
        int rc = blocks_see(b, row, (uint64_t)1 << OFFSET_BITS, &p, e);
        if (rc) return rc;
        if (!p || *(const uint64_t *)(const void *)p != TRIAL_MARK + (uint64_t)row)
            return err_set(e, ERR_IO, "rank %d shows other memory than its own", b->board->row[row].rank);
    }
    return OK;
}

void blocks_use(struct blocks *b, bool works) { b->works = works; }

bool blocks_work(const struct blocks *b) { return b && b->works; }

void blocks_free(struct blocks *b)
{
    if (!b) return;
    for (size_t i = 0; i < (size_t)b->n * SLOTS; i++) forget(&b->seen[i]);
    for (int i = 0; i < SLOTS; i++)
        if (b->own[i].p) blocks_release(b, b->own[i].p);
    pthread_mutex_destroy(&b->lock);
    xfree(b->seen);
    xfree(b);
}
