/* SPDX-License-Identifier: Apache-2.0 */
/* tokenfile_write.c: writes token files front to back in constant memory (but for 8 bytes of checksum per MiB).
 *
 * Whatever is only known at the end stands at the end, so nothing is ever written twice. States:
 *
 *   create → append, end of document ... → publish    final name, whole
 *                                     → abandon    nothing left
 *   killed anywhere                                PATH.tmp is left, and overwritten by the next attempt
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/tokenfile.h"
#include "data/tokenfile_format.h"

struct tokenfile_writer {
    char *path, *temporary, *lock_path;
    struct fs_lock lock;
    struct fs_writer *file;
    struct head_bytes head;
    int64_t n_tokens, n_documents;
    unsigned char *chunk; /* narrowed tokens, written and summed when full */
    size_t chunk_n;
    uint64_t *sums;
    int64_t n_sums, sums_room;
};

static char *with_suffix(const char *path, const char *suffix)
{
    struct str s = {0};
    str_printf(&s, "%s%s", path, suffix);
    return s.p;
}

static void writer_free(struct tokenfile_writer *w)
{
    if (w->lock_path) {
        unlink(w->lock_path);
        fs_lock_release(&w->lock);
    }
    xfree(w->path);
    xfree(w->temporary);
    xfree(w->lock_path);
    xfree(w->chunk);
    xfree(w->sums);
    xfree(w);
}

int tokenfile_create(struct tokenfile_writer **out, bool *busy, const char *path, const struct tokenfile_head *head,
                     struct err *e)
{
    *out = NULL;
    struct tokenfile_writer *w = xcalloc(1, sizeof *w);
    char *lock_path = with_suffix(path, ".lock");
    int code = fs_lock_take(&w->lock, lock_path, e);
    *busy = w->lock.busy;
    if (code) {
        xfree(lock_path);
        xfree(w);
        return code;
    }
    w->lock_path = lock_path;
    w->path = xstrdup(path);
    w->temporary = with_suffix(path, ".tmp");
    w->chunk = xmalloc(TOKENFILE_CHUNK);
    w->head = (struct head_bytes){
        .version = TOKENFILE_VERSION,
        .width = head->vocab <= 1 << 16 ? 2 : 4,
        .vocab = head->vocab,
        .eos = head->eos,
        .fingerprint = head->fingerprint,
        .key = head->key,
    };
    memcpy(w->head.magic, TOKENFILE_MAGIC, 8);
    w->head.sum = hash64(&w->head, offsetof(struct head_bytes, sum));
    code = fs_writer_open(&w->file, w->temporary, e);
    if (!code) code = fs_writer_write(w->file, &w->head, sizeof w->head, e);
    if (code) {
        tokenfile_abandon(w);
        return code;
    }
    *out = w;
    return OK;
}

static int flush(struct tokenfile_writer *w, struct err *e)
{
    if (w->chunk_n == 0) return OK;
    GROW(w->sums, w->n_sums, w->sums_room, 1);
    w->sums[w->n_sums++] = hash64(w->chunk, w->chunk_n);
    int code = fs_writer_write(w->file, w->chunk, w->chunk_n, e);
    w->chunk_n = 0;
    return code;
}

int tokenfile_append(struct tokenfile_writer *w, const int32_t *ids, int64_t n, struct err *e)
{
    size_t width = w->head.width;
    while (n > 0) {
        int64_t room = (int64_t)((TOKENFILE_CHUNK - w->chunk_n) / width), step = n < room ? n : room;
        if (width == 2) {
            uint16_t *p = (uint16_t *)(void *)(w->chunk + w->chunk_n);
            for (int64_t i = 0; i < step; i++) p[i] = (uint16_t)ids[i];
        } else {
            memcpy(w->chunk + w->chunk_n, ids, to_size(step) * 4);
        }
        w->chunk_n += to_size(step) * width;
        w->n_tokens += step;
        ids += step;
        n -= step;
        int code = w->chunk_n == TOKENFILE_CHUNK ? flush(w, e) : OK;
        if (code) return code;
    }
    return OK;
}

int tokenfile_end_document(struct tokenfile_writer *w, struct err *e)
{
    w->n_documents++;
    return tokenfile_append(w, &w->head.eos, 1, e);
}

static int write_end(struct tokenfile_writer *w, struct err *e)
{
    int code = flush(w, e);
    static const char zeros[8];
    size_t pad = (size_t)(-(w->n_tokens * (int64_t)w->head.width) & 7);
    if (!code) code = fs_writer_write(w->file, zeros, pad, e);
    if (!code) code = fs_writer_write(w->file, w->sums, to_size(w->n_sums) * 8, e);
    struct tail_bytes tail = {
        .n_tokens = w->n_tokens,
        .n_documents = w->n_documents,
        .n_sums = w->n_sums,
        .sums_sum = hash64(w->sums, to_size(w->n_sums) * 8),
        .head_sum = w->head.sum,
    };
    tail.sum = hash64(&tail, offsetof(struct tail_bytes, sum));
    memcpy(tail.magic, TOKENFILE_END, 8);
    return code ? code : fs_writer_write(w->file, &tail, sizeof tail, e);
}

int tokenfile_publish(struct tokenfile_writer *w, struct err *e)
{
    int code = write_end(w, e);
    int closed = fs_writer_close(w->file, !code, code ? NULL : e);
    w->file = NULL;
    if (!code) code = closed;
    if (!code) code = fs_rename(w->temporary, w->path, e);
    if (code) unlink(w->temporary);
    writer_free(w);
    return code;
}

void tokenfile_abandon(struct tokenfile_writer *w)
{
    if (!w) return;
    if (w->file) fs_writer_close(w->file, false, NULL);
    unlink(w->temporary);
    writer_free(w);
}

int64_t tokenfile_written(const struct tokenfile_writer *w) { return w->n_tokens; }

void tokenfile_fail_at(struct tokenfile_writer *w, int64_t n) { fs_writer_fail_at(w->file, n); }
