/* SPDX-License-Identifier: Apache-2.0 */
/* tokenfile.c: reads token files. Opening reads head, tail and checksums: 8 bytes for every 16 KiB of a table. What
 * lies behind the bytes of the tables (documents, origins) is in tokenfile_documents.c.
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
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/tokenfile_format.h"

char *tokenfile_find(const char *path)
{
    if (str_ends(path, ".tok") && !fs_absent(path) && !fs_is_dir(path)) return xstrdup(path);
    if (!fs_absent(path)) return NULL;
    struct str with_suffix = {0};
    str_printf(&with_suffix, "%s.tok", path);
    char *found = !fs_absent(with_suffix.p) && !fs_is_dir(with_suffix.p) ? xstrdup(with_suffix.p) : NULL;
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

int tokenfile_damaged(const struct tokenfile *f, const char *what, struct err *e)
{
    char text[600];
    return err_set(e, ERR_CORRUPT, "%s: damaged token file: %s; %s", f->path, what, remedy(f, text));
}

/* Bytes of a table with the zeros after them; -1 when no file is that large. */
static int64_t padded(int64_t bytes) { return bytes < 0 || bytes > INT64_MAX / 16 ? -1 : (bytes + 7) / 8 * 8; }

static int64_t n_chunks(const struct tokenfile *f, int64_t bytes) { return (bytes + f->chunk - 1) / f->chunk; }

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
        return tokenfile_damaged(f, "the head's checksum is wrong", e);
    int64_t ids = head->width == 2 ? 1 << 16 : INT32_MAX;
    if ((head->width != 2 && head->width != 4) || head->vocab < 1 || head->vocab > ids || head->eos < -1 ||
        head->eos >= head->vocab)
        return tokenfile_damaged(f, "the head contradicts itself", e);
    f->version = (int)head->version;
    f->width = (int)head->width;
    f->chunk = head->version == 1 ? TOKENFILE_CHUNK_1 : TOKENFILE_CHUNK;
    f->head = (struct tokenfile_head){head->vocab, head->eos, head->fingerprint, head->key};
    return OK;
}

/* The zeros after a table and its checksums, piece by piece. */
static int check_table(struct tokenfile *f, int t, struct err *e)
{
    enum { PIECE = 64 << 10 };
    int64_t at = f->table[t].at + f->table[t].bytes, end = f->table[t].at + padded(f->table[t].bytes);
    unsigned char zeros[8] = {0}, pad[8] = {0}, *piece = xmalloc(PIECE);
    struct hash64 h;
    hash64_init(&h);
    int code = fs_file_read(&f->file, at, to_size(end - at), pad, e);
    if (!code && memcmp(pad, zeros, sizeof pad)) code = tokenfile_damaged(f, "there are bytes between its tables", e);
    end = f->table[t].sums_at + 8 * n_chunks(f, f->table[t].bytes);
    for (at = f->table[t].sums_at; !code && at < end; at += PIECE) {
        size_t n = end - at < PIECE ? to_size(end - at) : PIECE;
        code = fs_file_read(&f->file, at, n, piece, e);
        if (!code) hash64_add(&h, piece, n);
    }
    if (!code && hash64_value(&h) != f->table[t].sums_sum) code = tokenfile_damaged(f, "the checksums are damaged", e);
    xfree(piece);
    return code;
}

/* Lays the tables and their checksums out between head and tail, which they must fill. */
static int lay_out(struct tokenfile *f, const struct tail_bytes *tail, int64_t room, struct err *e)
{
    int64_t at = (int64_t)sizeof(struct head_bytes), n_sums = 0, end = at + room;
    for (int t = 0; t < TOKENFILE_TABLES; t++) {
        int64_t bytes = tail->bytes[t], whole = padded(bytes);
        if (whole < 0 || whole > end - at) return tokenfile_damaged(f, "its size and its counts do not fit", e);
        f->table[t].at = at;
        f->table[t].bytes = bytes;
        f->table[t].first_chunk = n_sums;
        f->table[t].sums_sum = tail->sums_sum[t];
        at += whole;
        n_sums += n_chunks(f, bytes);
    }
    if (n_sums > (end - at) / 8 || at + 8 * n_sums != end)
        return tokenfile_damaged(f, "its size and its counts do not fit", e);
    for (int t = 0; t < TOKENFILE_TABLES; t++) f->table[t].sums_at = at + 8 * f->table[t].first_chunk;
    return OK;
}

/* What the counts say of the tables' bytes. */
static bool counts_fit(const struct tokenfile *f, const struct tail_bytes *t)
{
    int64_t n = t->n_tokens, docs = t->n_documents;
    bool older = f->version < 3;
    if (n < 0 || n > INT64_MAX / 64 || docs < 0 || docs > n || t->n_inputs < 0 || t->n_inputs > docs + 1) return false;
    int64_t want[TOKENFILE_TABLES] = {f->width * n,
                                      (n + 7) / 8,
                                      older ? 0 : 8 * docs,
                                      8 * docs,
                                      t->n_inputs * (int64_t)sizeof(struct input_bytes),
                                      t->bytes[TABLE_NAMES]};
    for (int i = 0; i < TOKENFILE_TABLES; i++) {
        bool may_lack = i == TABLE_MASK || (i == TABLE_ORIGINS && (!t->n_inputs || !docs));
        if (t->bytes[i] != want[i] && !(may_lack && t->bytes[i] == 0)) return false;
    }
    return (t->bytes[TABLE_NAMES] > 0) == (t->n_inputs > 0);
}

static int read_tail(struct tokenfile *f, const struct head_bytes *head, struct err *e)
{
    struct tail_bytes tail = {0};
    struct tail_bytes_2 old;
    bool older = f->version < 3;
    size_t n = older ? sizeof old : sizeof tail;
    int64_t bytes = f->file.bytes, room = bytes - (int64_t)sizeof *head - (int64_t)n;
    if (room < 0 || bytes % 8) return tokenfile_damaged(f, "it is cut short", e);
    int code = fs_file_read(&f->file, bytes - (int64_t)n, n, older ? (void *)&old : (void *)&tail, e);
    if (code) return code;
    if (memcmp(older ? old.magic : tail.magic, TOKENFILE_END, 8))
        return tokenfile_damaged(f, "its end is missing, so it was cut short or overwritten", e);
    if (older ? hash64(&old, offsetof(struct tail_bytes_2, sum)) != old.sum
              : hash64(&tail, offsetof(struct tail_bytes, sum)) != tail.sum)
        return tokenfile_damaged(f, "the tail's checksum is wrong", e);
    if (older && (old.n_tokens < 0 || old.n_tokens > room / f->width))
        return tokenfile_damaged(f, "its size and its counts do not fit", e);
    if (older)
        tail = (struct tail_bytes){.n_tokens = old.n_tokens,
                                   .n_documents = old.n_documents,
                                   .bytes = {old.n_tokens * f->width},
                                   .sums_sum = {old.sums_sum, hash64("", 0), hash64("", 0), hash64("", 0),
                                                hash64("", 0), hash64("", 0)},
                                   .head_sum = old.head_sum};
    if (tail.head_sum != head->sum || !counts_fit(f, &tail))
        return tokenfile_damaged(f, "its size and its counts do not fit", e);
    code = lay_out(f, &tail, room, e);
    if (!code && older && old.n_sums != n_chunks(f, f->table[TABLE_TOKENS].bytes))
        code = tokenfile_damaged(f, "its size and its counts do not fit", e);
    for (int t = 0; t < TOKENFILE_TABLES && !code; t++) code = check_table(f, t, e);
    f->n_tokens = tail.n_tokens;
    f->n_documents = tail.n_documents;
    f->n_inputs = tail.n_inputs;
    return code;
}

static int64_t all_chunks(const struct tokenfile *f)
{
    int64_t n = 0;
    for (int t = 0; t < TOKENFILE_TABLES; t++) n += n_chunks(f, f->table[t].bytes);
    return n;
}

int tokenfile_open(struct tokenfile *f, const char *path, struct err *e)
{
    struct fs_file file;
    int code = fs_file_open(&file, path, e);
    if (!code) return tokenfile_open_file(f, &file, e);
    *f = (struct tokenfile){0};
    return code;
}

int tokenfile_open_file(struct tokenfile *f, const struct fs_file *file, struct err *e)
{
    struct head_bytes head;
    *f = (struct tokenfile){.path = xstrdup(file->path), .file = *file};
    int code = read_head(f, &head, e);
    if (!code) code = read_tail(f, &head, e);
    if (code) {
        tokenfile_close(f);
        return code;
    }
    f->seen = xcalloc(to_size(all_chunks(f) / 64 + 1), sizeof *f->seen);
    f->checked = xcalloc(2, sizeof *f->checked);
    return OK;
}

void tokenfile_close(struct tokenfile *f)
{
    fs_file_close(&f->file);
    xfree(f->ends);
    xfree((void *)f->seen);
    xfree((void *)f->checked);
    xfree(f->made_from);
    xfree(f->path);
    *f = (struct tokenfile){0};
}

static int refuse_chunk(const struct tokenfile *f, int t, int64_t lo, int64_t hi, uint64_t found, uint64_t written,
                        struct err *e)
{
    static const char *const names[TOKENFILE_TABLES] =
        {"tokens", "the mask", "documents' ends", "documents' origins", "the list of inputs", "names of inputs"};
    char text[600], what[80];
    snprintf(what, sizeof what, "%s", names[t]);
    if (t == TABLE_TOKENS)
        snprintf(what, sizeof what, "tokens %lld to %lld", (long long)(lo / f->width), (long long)(hi / f->width));
    return err_set(e, ERR_CORRUPT,
                   "%s: damaged token file: %s, which are bytes %lld to %lld of the file, have checksum %016llx, "
                   "%016llx was written; %s",
                   f->path, what, (long long)(f->table[t].at + lo), (long long)(f->table[t].at + hi),
                   (unsigned long long)found, (unsigned long long)written, remedy(f, text));
}

/* Reads chunk c of a table, n bytes, and compares it. */
static int read_chunk(const struct tokenfile *f, int t, int64_t c, size_t n, unsigned char *out, struct err *e)
{
    double from = clock_now_s();
    int64_t lo = c * f->chunk, bit = f->table[t].first_chunk + c;
    uint64_t written;
    int code = fs_file_read(&f->file, f->table[t].at + lo, n, out, e);
    if (!code) code = fs_file_read(&f->file, f->table[t].sums_at + 8 * c, sizeof written, &written, e);
    if (code) return code;
    uint64_t found = hash64(out, n);
    if (found != written) return refuse_chunk(f, t, lo, lo + (int64_t)n, found, written, e);
    atomic_fetch_or_explicit(&f->seen[bit / 64], (uint64_t)1 << (bit % 64), memory_order_relaxed);
    atomic_fetch_add_explicit(&f->checked[0], (int64_t)n, memory_order_relaxed);
    atomic_fetch_add_explicit(&f->checked[1], (int64_t)(1e9 * (clock_now_s() - from)), memory_order_relaxed);
    return OK;
}

/* A chunk that is only partly wanted goes through a buffer the first time. */
int tokenfile_bytes(const struct tokenfile *f, enum tokenfile_table t, int64_t lo, int64_t hi, void *to, struct err *e)
{
    int64_t all = f->table[t].bytes;
    unsigned char *buffer = NULL, *out = to;
    int code = OK;
    CHECK(lo >= 0 && lo <= hi && hi <= all, "bytes [%lld, %lld) of %lld", (long long)lo, (long long)hi, (long long)all);
    for (int64_t at = lo, n; at < hi && !code; at += n, out += n) {
        int64_t c = at / f->chunk, first = c * f->chunk, end = first + f->chunk < all ? first + f->chunk : all,
                bit = f->table[t].first_chunk + c;
        n = (hi < end ? hi : end) - at;
        if (atomic_load_explicit(&f->seen[bit / 64], memory_order_relaxed) >> (bit % 64) & 1) {
            code = fs_file_read(&f->file, f->table[t].at + at, to_size(n), out, e);
        } else if (n == end - first) {
            code = read_chunk(f, t, c, to_size(n), out, e);
        } else {
            if (!buffer) buffer = xmalloc(to_size(f->chunk));
            code = read_chunk(f, t, c, to_size(end - first), buffer, e);
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
    int code = tokenfile_bytes(f, TABLE_TOKENS, at * f->width, (at + n) * f->width, raw, e);
    uint32_t highest = code ? 0 : widen(raw, f->width, n, out);
    xfree(raw);
    if (code || highest < (uint32_t)f->head.vocab) return code;
    char text[600];
    return err_set(e, ERR_CORRUPT, "%s: damaged token file: id %u among tokens %lld to %lld, the vocabulary has %d; %s",
                   f->path, highest, (long long)at, (long long)(at + n), f->head.vocab, remedy(f, text));
}

bool tokenfile_masked(const struct tokenfile *f) { return f->table[TABLE_MASK].bytes > 0; }

int tokenfile_mask(const struct tokenfile *f, int64_t at, int64_t n, unsigned char *out, struct err *e)
{
    CHECK(at >= 0 && n >= 0 && at <= f->n_tokens && n <= f->n_tokens - at, "tokens [%lld, +%lld) of %lld",
          (long long)at, (long long)n, (long long)f->n_tokens);
    if (!tokenfile_masked(f) || !n) {
        memset(out, 1, to_size(n));
        return OK;
    }
    int64_t lo = at / 8, hi = (at + n + 7) / 8;
    unsigned char *bits = xmalloc(to_size(hi - lo));
    int code = tokenfile_bytes(f, TABLE_MASK, lo, hi, bits, e);
    for (int64_t i = 0; i < n && !code; i++) out[i] = bits[(at + i) / 8 - lo] >> ((at + i) % 8) & 1;
    xfree(bits);
    return code;
}

int tokenfile_verify(const struct tokenfile *f, struct err *e)
{
    unsigned char *buffer = xmalloc(to_size(f->chunk));
    int code = OK;
    for (int t = 0; t < TOKENFILE_TABLES && !code; t++) {
        int64_t all = f->table[t].bytes;
        for (int64_t c = 0; c < n_chunks(f, all) && !code; c++) {
            int64_t n = all - c * f->chunk < f->chunk ? all - c * f->chunk : f->chunk;
            code = read_chunk(f, t, c, to_size(n), buffer, e);
        }
    }
    xfree(buffer);
    return code;
}

void tokenfile_cost(const struct tokenfile *f, int64_t *bytes, double *seconds)
{
    *bytes = atomic_load_explicit(&f->checked[0], memory_order_relaxed);
    *seconds = 1e-9 * (double)atomic_load_explicit(&f->checked[1], memory_order_relaxed);
}

int tokenfile_is_cached(const char *path, uint64_t key, struct err *e)
{
    struct tokenfile f;
    if (fs_absent(path)) return 0;
    int code = tokenfile_open(&f, path, e);
    if (code == ERR_CORRUPT) log_warn("data: %s; making it again", e->text);
    if (code) return code == ERR_CORRUPT ? 0 : code;
    bool fits = f.head.key == key;
    tokenfile_close(&f);
    return fits;
}
