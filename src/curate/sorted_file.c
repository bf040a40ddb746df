/* SPDX-License-Identifier: Apache-2.0 */
/* sorted_file.c: one block in memory on either side. Writing costs a copy and a checksum; reading the same. */
#include "curate/sorted_file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"

static const char magic[16] = "tutti records 1\n";
struct head {
    char magic[16];
    uint64_t words, key;
};
struct tail {
    uint64_t n, check;
};

/* Records in one block. */
static int64_t per_block(int words) { return SORTED_BLOCK / (8 * words) > 0 ? SORTED_BLOCK / (8 * words) : 1; }

static uint64_t check_of(const struct head *h, uint64_t n)
{
    struct hash64 c;
    hash64_init(&c);
    hash64_add(&c, h, sizeof *h);
    hash64_add(&c, &n, sizeof n);
    return hash64_value(&c);
}

static struct head head_of(int words, uint64_t key)
{
    struct head h = {.words = (uint64_t)words, .key = key};
    memcpy(h.magic, magic, sizeof magic);
    return h;
}

/* ---- writing ------------------------------------------------------------------------------------------------- */

struct sorted_writer {
    struct fs_writer *file;
    char *path, *part;
    struct head head;
    int words;
    int64_t n, in_block, block_room;
    uint64_t *block;
};

static void writer_free(struct sorted_writer *w)
{
    xfree(w->path);
    xfree(w->part);
    xfree(w->block);
    xfree(w);
}

int sorted_create(struct sorted_writer **out, const char *path, int words, uint64_t key, struct err *e)
{
    CHECK(words >= 1 && words <= SORTED_WORDS_MAX, "records of %d words", words);
    struct sorted_writer *w = xcalloc(1, sizeof *w);
    struct str part = {0};
    str_printf(&part, "%s.part", path);
    w->path = xstrdup(path);
    w->part = part.p;
    w->words = words;
    w->head = head_of(words, key);
    w->block_room = per_block(words);
    w->block = xmalloc(to_size(w->block_room) * (size_t)words * 8);
    *out = w;
    int code = fs_writer_open(&w->file, w->part, e);
    if (!code) code = fs_writer_write(w->file, &w->head, sizeof w->head, e);
    if (code) {
        sorted_abandon(w);
        *out = NULL;
    }
    return code;
}

static int write_block(struct sorted_writer *w, struct err *e)
{
    size_t n = to_size(w->in_block) * (size_t)w->words * 8;
    if (!n) return OK;
    uint64_t check = hash64(w->block, n);
    w->in_block = 0;
    int code = fs_writer_write(w->file, w->block, n, e);
    return code ? code : fs_writer_write(w->file, &check, sizeof check, e);
}

int sorted_put(struct sorted_writer *w, const uint64_t *record, struct err *e)
{
    memcpy(w->block + w->in_block * w->words, record, (size_t)w->words * 8);
    w->n++;
    return ++w->in_block == w->block_room ? write_block(w, e) : OK;
}

int sorted_publish(struct sorted_writer *w, bool sync, struct err *e)
{
    int code = write_block(w, e);
    struct tail tail = {.n = (uint64_t)w->n, .check = check_of(&w->head, (uint64_t)w->n)};
    if (!code) code = fs_writer_write(w->file, &tail, sizeof tail, e);
    struct err late;
    int closed = fs_writer_close(w->file, sync && !code, code ? &late : e);
    w->file = NULL;
    if (!code) code = closed;
    if (!code && sync) code = fs_rename(w->part, w->path, e);
    else if (!code && rename(w->part, w->path)) code = err_set(e, ERR_IO, "%s: cannot be renamed", w->part);
    if (code) unlink(w->part);
    writer_free(w);
    return code;
}

void sorted_abandon(struct sorted_writer *w)
{
    if (!w) return;
    struct err e;
    if (w->file) fs_writer_close(w->file, false, &e);
    unlink(w->part);
    writer_free(w);
}

void sorted_fail_at(struct sorted_writer *w, int64_t n) { fs_writer_fail_at(w->file, n); }

/* ---- reading ------------------------------------------------------------------------------------------------- */

struct sorted_reader {
    struct fs_file file;
    int words;
    int64_t n, left;      /* of all; not yet in a block */
    int64_t at, in_block; /* records of the block handed out; in it */
    int64_t offset;       /* of the next block */
    int64_t block_room;
    uint64_t *block; /* and its checksum */
};

int64_t sorted_count(const struct sorted_reader *r) { return r->n; }

void sorted_close(struct sorted_reader *r)
{
    if (!r) return;
    fs_file_close(&r->file);
    xfree(r->block);
    xfree(r);
}

/* Bytes of a file of n records; -1: more than a file has. */
static int64_t bytes_of(uint64_t n, int words)
{
    uint64_t each = (uint64_t)words * 8, per = (uint64_t)per_block(words);
    if (n > INT64_MAX / 2 / each) return -1;
    return (int64_t)(sizeof(struct head) + sizeof(struct tail) + n * each + (n + per - 1) / per * 8);
}

static int look(struct sorted_reader *r, uint64_t key, struct err *e)
{
    const char *path = r->file.path;
    struct head h, want = head_of(r->words, key);
    struct tail t;
    int64_t least = (int64_t)(sizeof h + sizeof t);
    if (r->file.bytes < least)
        return err_set(e, ERR_CORRUPT, "%s: has %lld bytes, fewer than the %lld of an empty file of records", path,
                       (long long)r->file.bytes, (long long)least);
    int code = fs_file_read(&r->file, 0, sizeof h, &h, e);
    if (!code) code = fs_file_read(&r->file, r->file.bytes - (int64_t)sizeof t, sizeof t, &t, e);
    if (code) return code;
    if (memcmp(h.magic, magic, sizeof magic))
        return err_set(e, ERR_CORRUPT, "%s: is no file of records of tutti", path);
    if (h.words != want.words)
        return err_set(e, ERR_CORRUPT, "%s: its records have %llu words; %d were wanted", path,
                       (unsigned long long)h.words, r->words);
    if (h.key != want.key) return err_set(e, ERR_CORRUPT, "%s: belongs to other inputs or options; remove it", path);
    if (t.check != check_of(&h, t.n) || bytes_of(t.n, r->words) != r->file.bytes)
        return err_set(e, ERR_CORRUPT,
                       "%s: has %lld bytes, which do not fit the count at its end: it was cut or damaged", path,
                       (long long)r->file.bytes);
    r->n = r->left = (int64_t)t.n;
    r->offset = (int64_t)sizeof h;
    return OK;
}

int sorted_open(struct sorted_reader **out, const char *path, int words, uint64_t key, struct err *e)
{
    struct sorted_reader *r = xcalloc(1, sizeof *r);
    r->words = words;
    r->file.fd = -1;
    int code = fs_file_open(&r->file, path, e);
    if (!code) code = look(r, key, e);
    if (code) {
        sorted_close(r);
        r = NULL;
    } else {
        r->block_room = per_block(words);
        r->block = xmalloc(to_size(r->block_room) * (size_t)words * 8 + 8);
    }
    *out = r;
    return code;
}

static int read_block(struct sorted_reader *r, struct err *e)
{
    int64_t n = r->left < r->block_room ? r->left : r->block_room;
    size_t bytes = to_size(n) * (size_t)r->words * 8;
    int code = fs_file_read(&r->file, r->offset, bytes + 8, r->block, e);
    if (code) return code;
    if (hash64(r->block, bytes) != r->block[n * r->words])
        return err_set(e, ERR_CORRUPT, "%s: the %zu bytes at %lld differ from their checksum", r->file.path, bytes,
                       (long long)r->offset);
    r->offset += (int64_t)bytes + 8;
    r->left -= n;
    r->in_block = n;
    r->at = 0;
    return OK;
}

int sorted_next(struct sorted_reader *r, const uint64_t **record, struct err *e)
{
    if (r->at == r->in_block) {
        if (!r->left) return 0;
        int code = read_block(r, e);
        if (code) return code;
    }
    *record = r->block + r->at++ * r->words;
    return 1;
}
