/* SPDX-License-Identifier: Apache-2.0 */
/* tokenfile.c: reads token files. Opening reads head, tail and checksums: 8 bytes for every 16 KiB of tokens.
 *
 * The checksums are not kept: opening compares them as a whole with the tail's checksum of them, and one is read again
 * when its chunk is. What is kept is a bit per chunk, set by whoever compared it first; two threads that meet in a
 * chunk both compare it. Rejected: a map of the file (fs_read.c says why), and comparing a chunk at every read, which
 * for samples of 1 KiB would read 16 times what is used. Smaller chunks make opening slower, larger ones the first
 * touch.
 */
#include "data/tokenfile.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/tokenfile_format.h"

char *tokenfile_find(const char *path)
{
    if (str_ends(path, ".tok") && fs_exists(path) && !fs_is_dir(path)) return xstrdup(path);
    if (fs_exists(path)) return NULL;
    struct str with_suffix = {0};
    str_printf(&with_suffix, "%s.tok", path);
    char *found = fs_exists(with_suffix.p) && !fs_is_dir(with_suffix.p) ? xstrdup(with_suffix.p) : NULL;
    str_free(&with_suffix);
    return found;
}

/* What to do about a damaged file. */
static const char *remedy(const struct tokenfile *f, char out[600])
{
    if (f->made_from)
        snprintf(out, 600, "remove it and start again: it is a cache, and is made anew from %.500s", f->made_from);
    else snprintf(out, 600, "tokenize the text again");
    return out;
}

static int damaged(struct err *e, const struct tokenfile *f, const char *what)
{
    char text[600];
    return err_set(e, ERR_CORRUPT, "%s: damaged token file: %s; %s", f->path, what, remedy(f, text));
}

/* Bytes of the tokens with the zeros after them; -1 when no file is that large. */
static int64_t body_bytes(int64_t n_tokens, int width)
{
    if (n_tokens < 0 || n_tokens > INT64_MAX / 8) return -1;
    return (n_tokens * width + 7) / 8 * 8;
}

static int64_t n_chunks(const struct tokenfile *f, int64_t n_tokens)
{
    return (n_tokens * f->width + f->chunk - 1) / f->chunk;
}

static int read_head(struct tokenfile *f, struct head_bytes *head, struct err *e)
{
    bool holds = f->file.bytes >= (int64_t)sizeof *head;
    int code = holds ? fs_file_read(&f->file, 0, sizeof *head, head, e) : OK;
    if (code) return code;
    if (!holds || memcmp(head->magic, TOKENFILE_MAGIC, 8))
        return err_set(e, ERR_CORRUPT, "%s: is not a token file (`tutti data tokenize` makes them)", f->path);
    if (head->version < 1 || head->version > TOKENFILE_VERSION)
        return err_set(e, ERR_CORRUPT,
                       "%s: token file of version %u, this program reads versions 1 to %d; tokenize the text again",
                       f->path, head->version, TOKENFILE_VERSION);
    if (hash64(head, offsetof(struct head_bytes, sum)) != head->sum)
        return damaged(e, f, "the head's checksum is wrong");
    int64_t ids = head->width == 2 ? 1 << 16 : INT32_MAX;
    if ((head->width != 2 && head->width != 4) || head->vocab < 1 || head->vocab > ids || head->eos < -1 ||
        head->eos >= head->vocab)
        return damaged(e, f, "the head contradicts itself");
    f->width = (int)head->width;
    f->chunk = head->version == 1 ? TOKENFILE_CHUNK_1 : TOKENFILE_CHUNK;
    f->head = (struct tokenfile_head){head->vocab, head->eos, head->fingerprint, head->key};
    return OK;
}

/* The zeros after the tokens and the checksums after those, piece by piece. */
static int check_sums(struct tokenfile *f, const struct tail_bytes *tail, struct err *e)
{
    enum { PIECE = 64 << 10 };
    int64_t at = (int64_t)sizeof(struct head_bytes) + tail->n_tokens * f->width, end = f->sums_at + 8 * tail->n_sums;
    unsigned char zeros[8] = {0}, pad[8] = {0}, *piece = xmalloc(PIECE);
    struct hash64 h;
    hash64_init(&h);
    int code = fs_file_read(&f->file, at, to_size(f->sums_at - at), pad, e);
    if (!code && memcmp(pad, zeros, sizeof pad))
        code = damaged(e, f, "there are bytes between the tokens and the checksums");
    for (at = f->sums_at; !code && at < end; at += PIECE) {
        size_t n = end - at < PIECE ? to_size(end - at) : PIECE;
        code = fs_file_read(&f->file, at, n, piece, e);
        if (!code) hash64_add(&h, piece, n);
    }
    if (!code && hash64_value(&h) != tail->sums_sum) code = damaged(e, f, "the checksums are damaged");
    xfree(piece);
    return code;
}

static int read_tail(struct tokenfile *f, const struct head_bytes *head, struct err *e)
{
    struct tail_bytes tail;
    int64_t bytes = f->file.bytes;
    if (bytes < (int64_t)sizeof *head + (int64_t)sizeof tail || bytes % 8) return damaged(e, f, "it is cut short");
    int code = fs_file_read(&f->file, bytes - (int64_t)sizeof tail, sizeof tail, &tail, e);
    if (code) return code;
    if (memcmp(tail.magic, TOKENFILE_END, 8))
        return damaged(e, f, "its end is missing, so it was cut short or overwritten");
    if (hash64(&tail, offsetof(struct tail_bytes, sum)) != tail.sum)
        return damaged(e, f, "the tail's checksum is wrong");
    int64_t body = body_bytes(tail.n_tokens, f->width), rest = bytes - (int64_t)sizeof *head - (int64_t)sizeof tail;
    if (tail.head_sum != head->sum || body < 0 || body > rest || tail.n_sums != n_chunks(f, tail.n_tokens) ||
        tail.n_sums != (rest - body) / 8 || tail.n_documents < 0 || tail.n_documents > tail.n_tokens)
        return damaged(e, f, "its size and its counts do not fit");
    f->n_tokens = tail.n_tokens;
    f->n_documents = tail.n_documents;
    f->sums_at = (int64_t)sizeof *head + body;
    f->sums_sum = tail.sums_sum;
    return check_sums(f, &tail, e);
}

int tokenfile_open(struct tokenfile *f, const char *path, struct err *e)
{
    struct head_bytes head;
    *f = (struct tokenfile){.path = xstrdup(path)};
    int code = fs_file_open(&f->file, path, e);
    if (!code) code = read_head(f, &head, e);
    if (!code) code = read_tail(f, &head, e);
    if (code) {
        tokenfile_close(f);
        return code;
    }
    f->seen = xcalloc(to_size(n_chunks(f, f->n_tokens) / 64 + 1), sizeof *f->seen);
    f->checked = xcalloc(2, sizeof *f->checked);
    return OK;
}

void tokenfile_close(struct tokenfile *f)
{
    fs_file_close(&f->file);
    xfree((void *)f->seen);
    xfree((void *)f->checked);
    xfree(f->made_from);
    xfree(f->path);
    *f = (struct tokenfile){0};
}

/* Reads chunk c, n bytes, and compares it. */
static int read_chunk(const struct tokenfile *f, int64_t c, size_t n, unsigned char *out, struct err *e)
{
    double from = clock_now_s();
    int64_t at = (int64_t)sizeof(struct head_bytes) + c * f->chunk;
    uint64_t written;
    int code = fs_file_read(&f->file, at, n, out, e);
    if (!code) code = fs_file_read(&f->file, f->sums_at + 8 * c, sizeof written, &written, e);
    if (code) return code;
    uint64_t found = hash64(out, n);
    char text[600];
    if (found != written)
        return err_set(e, ERR_CORRUPT,
                       "%s: damaged token file: tokens %lld to %lld, which are bytes %lld to %lld of the file, have "
                       "checksum %016llx, %016llx was written; %s",
                       f->path, (long long)(c * f->chunk / f->width),
                       (long long)((c * f->chunk + (int64_t)n) / f->width), (long long)at, (long long)at + (long long)n,
                       (unsigned long long)found, (unsigned long long)written, remedy(f, text));
    atomic_fetch_or_explicit(&f->seen[c / 64], (uint64_t)1 << (c % 64), memory_order_relaxed);
    atomic_fetch_add_explicit(&f->checked[0], (int64_t)n, memory_order_relaxed);
    atomic_fetch_add_explicit(&f->checked[1], (int64_t)(1e9 * (clock_now_s() - from)), memory_order_relaxed);
    return OK;
}

/* Bytes [lo, hi) of the tokens. A chunk that is only partly wanted goes through a buffer the first time. */
static int read_bytes(const struct tokenfile *f, int64_t lo, int64_t hi, unsigned char *out, struct err *e)
{
    int64_t all = f->n_tokens * f->width;
    unsigned char *buffer = NULL;
    int code = OK;
    for (int64_t at = lo, n; at < hi && !code; at += n, out += n) {
        int64_t c = at / f->chunk, first = c * f->chunk, end = first + f->chunk < all ? first + f->chunk : all;
        n = (hi < end ? hi : end) - at;
        if (atomic_load_explicit(&f->seen[c / 64], memory_order_relaxed) >> (c % 64) & 1) {
            code = fs_file_read(&f->file, (int64_t)sizeof(struct head_bytes) + at, to_size(n), out, e);
        } else if (n == end - first) {
            code = read_chunk(f, c, to_size(n), out, e);
        } else {
            if (!buffer) buffer = xmalloc(to_size(f->chunk));
            code = read_chunk(f, c, to_size(end - first), buffer, e);
            if (!code) memcpy(out, buffer + (at - first), to_size(n));
        }
    }
    xfree(buffer);
    return code;
}

/* To int32; returns the highest. */
static uint32_t widen(const void *raw, int width, int64_t n, int32_t *out)
{
    uint32_t highest = 0;
    if (width == 2) {
        const uint16_t *p = raw;
        for (int64_t i = 0; i < n; i++) {
            out[i] = p[i];
            highest = p[i] > highest ? p[i] : highest;
        }
    } else {
        const uint32_t *p = raw;
        for (int64_t i = 0; i < n; i++) {
            out[i] = (int32_t)p[i];
            highest = p[i] > highest ? p[i] : highest;
        }
    }
    return highest;
}

int tokenfile_read(const struct tokenfile *f, int64_t at, int64_t n, int32_t *out, struct err *e)
{
    CHECK(at >= 0 && n >= 0 && at <= f->n_tokens && n <= f->n_tokens - at, "tokens [%lld, +%lld) of %lld",
          (long long)at, (long long)n, (long long)f->n_tokens);
    unsigned char *raw = xmalloc(to_size(n * f->width) + 1);
    int code = read_bytes(f, at * f->width, (at + n) * f->width, raw, e);
    uint32_t highest = code ? 0 : widen(raw, f->width, n, out);
    xfree(raw);
    if (code || highest < (uint32_t)f->head.vocab) return code;
    char text[600];
    return err_set(e, ERR_CORRUPT, "%s: damaged token file: id %u among tokens %lld to %lld, the vocabulary has %d; %s",
                   f->path, highest, (long long)at, (long long)(at + n), f->head.vocab, remedy(f, text));
}

int tokenfile_verify(const struct tokenfile *f, struct err *e)
{
    int64_t all = f->n_tokens * f->width;
    unsigned char *buffer = xmalloc(to_size(f->chunk));
    int code = OK;
    for (int64_t c = 0; c < n_chunks(f, f->n_tokens) && !code; c++) {
        int64_t n = all - c * f->chunk < f->chunk ? all - c * f->chunk : f->chunk;
        code = read_chunk(f, c, to_size(n), buffer, e);
    }
    xfree(buffer);
    return code;
}

void tokenfile_cost(const struct tokenfile *f, int64_t *bytes, double *seconds)
{
    *bytes = atomic_load_explicit(&f->checked[0], memory_order_relaxed);
    *seconds = 1e-9 * (double)atomic_load_explicit(&f->checked[1], memory_order_relaxed);
}
