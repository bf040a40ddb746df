/* SPDX-License-Identifier: Apache-2.0 */
/* piece_counts.c: a hash table, sorted runs, and a merge by a heap.
 *
 * A run is records of (bytes, count, the bytes themselves) and a checksum of all of them at its end. So that a merge
 * never has too many files open, RUNS_MAX runs of a table are merged into one. Cost: one hash and one compare per piece
 * of text; every distinct piece of a full table is written and read once per level of merging.
 */
#include "token/piece_counts.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/piece_hash.h"

enum { RUNS_MAX = 32, READ_BYTES = 256 << 10, PIECE_MAX = 1 << 28 };

struct entry {
    size_t at; /* of its bytes in the pool */
    int64_t count;
    uint32_t n, hash;
};

struct piece_counts {
    char *scratch;
    int64_t bytes; /* at most */
    struct str pool;
    struct entry *entries;
    int64_t n, room;
    int32_t *slots; /* index into entries; -1: empty */
    uint64_t mask;
    int runs[RUNS_MAX + 1]; /* numbers of the runs on disk */
    int n_runs, next_run;
    int64_t n_written;
};

static char *run_path(const struct piece_counts *c, int number)
{
    struct str s = {0};
    str_printf(&s, "%s.%d", c->scratch, number);
    return s.p;
}

static void remove_run(const struct piece_counts *c, int number)
{
    char *path = run_path(c, number);
    unlink(path);
    xfree(path);
}

struct piece_counts *piece_counts_new(int64_t bytes, const char *scratch)
{
    struct piece_counts *c = xcalloc(1, sizeof *c);
    c->bytes = bytes;
    c->scratch = xstrdup(scratch);
    return c;
}

static void forget(struct piece_counts *c)
{
    str_free(&c->pool);
    xfree(c->entries);
    xfree(c->slots);
    c->entries = NULL;
    c->slots = NULL;
    c->n = c->room = 0;
    c->mask = 0;
}

void piece_counts_free(struct piece_counts *c)
{
    if (!c) return;
    for (int i = 0; i < c->n_runs; i++) remove_run(c, c->runs[i]);
    forget(c);
    xfree(c->scratch);
    xfree(c);
}

int64_t piece_counts_runs(const struct piece_counts *c) { return c->n_written; }

/* -- counting ----------------------------------------------------------------------------------------------- */

static int32_t *slot_of(const struct piece_counts *c, const unsigned char *p, size_t n, uint32_t hash)
{
    for (uint64_t at = hash & c->mask;; at = (at + 1) & c->mask) {
        int32_t i = c->slots[at];
        if (i < 0) return &c->slots[at];
        const struct entry *x = &c->entries[i];
        if (x->hash == hash && x->n == n && !memcmp(c->pool.p + x->at, p, n)) return &c->slots[at];
    }
}

static void grow(struct piece_counts *c)
{
    GROW(c->entries, c->n, c->room, 1);
    if (c->slots && 2 * (uint64_t)c->n <= c->mask) return;
    c->mask = c->slots ? 2 * c->mask + 1 : 4095;
    c->slots = xrealloc(c->slots, (c->mask + 1) * sizeof *c->slots);
    memset(c->slots, 0xFF, (c->mask + 1) * sizeof *c->slots);
    for (int64_t i = 0; i < c->n; i++) {
        uint64_t at = c->entries[i].hash & c->mask;
        while (c->slots[at] >= 0) at = (at + 1) & c->mask;
        c->slots[at] = (int32_t)i;
    }
}

/* With the pools doubling, what is held is at most about twice what is in use. */
static int64_t held(const struct piece_counts *c)
{
    return (int64_t)c->pool.room + c->room * (int64_t)sizeof *c->entries + (int64_t)(c->mask + 1) * 4;
}

static int spill(struct piece_counts *c, struct err *e);

int piece_counts_add(struct piece_counts *c, const unsigned char *p, size_t n, int64_t count, struct err *e)
{
    if (!c->slots) grow(c);
    uint32_t hash = (uint32_t)(piece_hash(p, n) >> 32);
    int32_t *slot = slot_of(c, p, n, hash);
    if (*slot >= 0) {
        c->entries[*slot].count += count;
        return OK;
    }
    CHECK(n <= PIECE_MAX && c->n < INT32_MAX / 2, "a piece of %zu bytes, %lld pieces", n, (long long)c->n);
    *slot = (int32_t)c->n;
    c->entries[c->n++] = (struct entry){.at = c->pool.n, .count = count, .n = (uint32_t)n, .hash = hash};
    str_add(&c->pool, p, n);
    bool doubles = c->n == c->room || 2 * (uint64_t)c->n > c->mask || c->pool.n + 64 > c->pool.room;
    if (doubles && 2 * held(c) > c->bytes && c->n > 1) return spill(c, e);
    grow(c);
    return OK;
}

/* -- runs --------------------------------------------------------------------------------------------------- */

struct run_out {
    struct fs_writer *w;
    struct hash64 sum;
};

static int write_record(void *arg, const unsigned char *p, size_t n, int64_t count, struct err *e)
{
    struct run_out *r = arg;
    unsigned char head[12];
    uint32_t length = (uint32_t)n;
    memcpy(head, &length, 4);
    memcpy(head + 4, &count, 8);
    hash64_add(&r->sum, head, sizeof head);
    hash64_add(&r->sum, p, n);
    int code = fs_writer_write(r->w, head, sizeof head, e);
    return code ? code : fs_writer_write(r->w, p, n, e);
}

typedef int fill_fn(struct piece_counts *c, piece_counts_fn *fn, void *arg, struct err *e);

/* A new run with what `fill` hands out. */
static int write_run(struct piece_counts *c, fill_fn *fill, int *number, struct err *e)
{
    struct run_out r = {.w = NULL};
    *number = c->next_run++;
    char *path = run_path(c, *number);
    hash64_init(&r.sum);
    int code = fs_writer_open(&r.w, path, e);
    if (!code) code = fill(c, write_record, &r, e);
    uint64_t sum = hash64_value(&r.sum);
    if (!code) code = fs_writer_write(r.w, &sum, sizeof sum, e);
    int closed = r.w ? fs_writer_close(r.w, false, code ? NULL : e) : OK;
    if (!code) code = closed;
    if (code) unlink(path);
    xfree(path);
    c->n_written += !code;
    return code;
}

struct key {
    const unsigned char *p;
    uint32_t n;
    int32_t entry;
};

static int compare(const unsigned char *a, size_t n, const unsigned char *b, size_t m)
{
    int order = memcmp(a, b, n < m ? n : m);
    return order ? order : (n > m) - (n < m);
}

static int by_bytes(const void *x, const void *y)
{
    const struct key *a = x, *b = y;
    return compare(a->p, a->n, b->p, b->n);
}

static struct key *sorted(const struct piece_counts *c)
{
    struct key *keys = xmalloc((size_t)(c->n + 1) * sizeof *keys);
    for (int64_t i = 0; i < c->n; i++)
        keys[i] = (struct key){(const unsigned char *)c->pool.p + c->entries[i].at, c->entries[i].n, (int32_t)i};
    if (c->n) qsort(keys, (size_t)c->n, sizeof *keys, by_bytes);
    return keys;
}

static int hand_out_table(struct piece_counts *c, piece_counts_fn *fn, void *arg, struct err *e)
{
    struct key *keys = sorted(c);
    int code = OK;
    for (int64_t i = 0; i < c->n && !code; i++)
        code = fn(arg, keys[i].p, keys[i].n, c->entries[keys[i].entry].count, e);
    xfree(keys);
    return code;
}

/* -- merging ------------------------------------------------------------------------------------------------ */

/* One of what is merged: a table, or a run that is read through a buffer. */
struct stream {
    const struct piece_counts *table; /* NULL: a run */
    struct key *keys;
    int64_t next;
    struct fs_file file;
    int64_t at; /* of the next record in the file */
    unsigned char *buf;
    size_t buf_n, buf_room;
    int64_t buf_at; /* where in the file the buffer begins */
    struct hash64 sum;
    const unsigned char *p; /* the piece it stands at */
    size_t n;
    int64_t count;
};

/* n bytes of the run at s->at; NULL with an error. */
static const unsigned char *run_bytes(struct stream *s, size_t n, struct err *e)
{
    int64_t end = s->file.bytes - 8;
    if (s->at + (int64_t)n > end) {
        err_set(e, ERR_CORRUPT, "%s: ends at byte %lld in the middle of a piece; something changed it", s->file.path,
                (long long)s->file.bytes);
        return NULL;
    }
    if (s->at < s->buf_at || s->at + (int64_t)n > s->buf_at + (int64_t)s->buf_n) {
        size_t want = n > READ_BYTES ? n : READ_BYTES;
        if ((int64_t)want > end - s->at) want = (size_t)(end - s->at);
        GROW(s->buf, 0, s->buf_room, want);
        if (fs_file_read(&s->file, s->at, want, s->buf, e)) return NULL;
        s->buf_at = s->at;
        s->buf_n = want;
    }
    return s->buf + (s->at - s->buf_at);
}

/* Moves to the next piece. 1; 0: there is none; < 0. */
static int advance(struct stream *s, struct err *e)
{
    if (s->table) {
        if (s->next == s->table->n) return 0;
        const struct key *k = &s->keys[s->next++];
        s->p = k->p;
        s->n = k->n;
        s->count = s->table->entries[k->entry].count;
        return 1;
    }
    if (s->at == s->file.bytes - 8) {
        uint64_t sum;
        int code = fs_file_read(&s->file, s->at, 8, &sum, e);
        if (code) return code;
        if (sum == hash64_value(&s->sum)) return 0;
        return err_set(e, ERR_CORRUPT, "%s: its checksum is wrong; something changed it", s->file.path);
    }
    const unsigned char *head = run_bytes(s, 12, e);
    uint32_t n = 0;
    if (head) memcpy(&n, head, 4);
    if (head) head = run_bytes(s, 12 + (size_t)n, e);
    if (!head) return e->code;
    memcpy(&s->count, head + 4, 8);
    hash64_add(&s->sum, head, 12 + (size_t)n);
    s->p = head + 12;
    s->n = n;
    s->at += 12 + (int64_t)n;
    return 1;
}

static void stream_close(struct stream *s)
{
    xfree(s->keys);
    xfree(s->buf);
    if (!s->table) fs_file_close(&s->file);
}

static void sift(struct stream **heap, int n, int i)
{
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && compare(heap[child + 1]->p, heap[child + 1]->n, heap[child]->p, heap[child]->n) < 0)
            child++;
        if (compare(heap[i]->p, heap[i]->n, heap[child]->p, heap[child]->n) <= 0) return;
        struct stream *swap = heap[i];
        heap[i] = heap[child];
        heap[child] = swap;
    }
}

static int merge(struct stream *streams, int n, piece_counts_fn *fn, void *arg, struct err *e)
{
    struct stream **heap = xmalloc((size_t)(n + 1) * sizeof *heap);
    struct str piece = {0};
    int live = 0, code = OK;
    for (int i = 0; i < n && code >= 0; i++)
        if ((code = advance(&streams[i], e)) > 0) heap[live++] = &streams[i];
    if (code > 0) code = OK;
    for (int i = live / 2; i-- > 0 && !code;) sift(heap, live, i);
    while (live && !code) {
        str_clear(&piece);
        str_add(&piece, heap[0]->p, heap[0]->n);
        int64_t count = 0;
        while (live && code >= 0 &&
               !compare(heap[0]->p, heap[0]->n, (const unsigned char *)str_text(&piece), piece.n)) {
            count += heap[0]->count;
            code = advance(heap[0], e);
            if (code == 0) heap[0] = heap[--live];
            if (live) sift(heap, live, 0);
        }
        code = code < 0 ? code : fn(arg, (const unsigned char *)str_text(&piece), piece.n, count, e);
    }
    str_free(&piece);
    xfree(heap);
    return code;
}

/* Streams of a table's runs, from streams[*n] on. */
static int open_runs(const struct piece_counts *c, struct stream *streams, int *n, struct err *e)
{
    for (int i = 0; i < c->n_runs; i++) {
        struct stream *s = &streams[(*n)++];
        *s = (struct stream){.file = {.fd = -1}};
        hash64_init(&s->sum);
        char *path = run_path(c, c->runs[i]);
        int code = fs_file_open(&s->file, path, e);
        if (!code && s->file.bytes < 8) code = err_set(e, ERR_CORRUPT, "%s: is cut short", path);
        xfree(path);
        if (code) return code;
    }
    return OK;
}

static int hand_out_runs(struct piece_counts *c, piece_counts_fn *fn, void *arg, struct err *e)
{
    struct stream streams[RUNS_MAX + 1];
    int n = 0, code = open_runs(c, streams, &n, e);
    if (!code) code = merge(streams, n, fn, arg, e);
    for (int i = 0; i < n; i++) stream_close(&streams[i]);
    return code;
}

static int spill(struct piece_counts *c, struct err *e)
{
    int number, code = write_run(c, hand_out_table, &number, e);
    if (code) return code;
    c->runs[c->n_runs++] = number;
    forget(c);
    if (c->n_runs < RUNS_MAX) return OK;
    code = write_run(c, hand_out_runs, &number, e);
    if (code) return code;
    for (int i = 0; i < c->n_runs; i++) remove_run(c, c->runs[i]);
    c->runs[0] = number;
    c->n_runs = 1;
    return OK;
}

int piece_counts_merge(struct piece_counts *const *all, int n_all, piece_counts_fn *fn, void *arg, struct err *e)
{
    struct stream *streams = xcalloc((size_t)n_all * (RUNS_MAX + 1), sizeof *streams);
    int n = 0, code = OK;
    for (int i = 0; i < n_all && !code; i++) {
        code = open_runs(all[i], streams, &n, e);
        if (all[i]->n) streams[n++] = (struct stream){.table = all[i], .keys = sorted(all[i])};
    }
    if (!code) code = merge(streams, n, fn, arg, e);
    for (int i = 0; i < n; i++) stream_close(&streams[i]);
    xfree(streams);
    return code;
}
