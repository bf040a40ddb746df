/* tokenfile.c: reads token files. Opening costs three page faults whatever the size. */
#include "data/tokenfile.h"

#include <string.h>
#include <sys/mman.h>

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

static int damaged(struct err *e, const char *path, const char *what)
{
    return err_set(e, ERR_CORRUPT, "%s: damaged token file: %s; tokenize the text again", path, what);
}

/* Bytes of the tokens with the zeros after them; -1 when no file is that large. */
static int64_t body_bytes(int64_t n_tokens, int width)
{
    if (n_tokens < 0 || n_tokens > INT64_MAX / 8) return -1;
    return (n_tokens * width + 7) / 8 * 8;
}

static int64_t n_chunks(int64_t n_tokens, int width)
{
    return (n_tokens * width + TOKENFILE_CHUNK - 1) / TOKENFILE_CHUNK;
}

static int read_head(struct tokenfile *f, struct err *e)
{
    struct head_bytes head;
    if (f->map.bytes < sizeof head || memcmp(f->map.p, TOKENFILE_MAGIC, 8))
        return err_set(e, ERR_CORRUPT, "%s: is not a token file (`tutti data tokenize` makes them)", f->path);
    memcpy(&head, f->map.p, sizeof head);
    if (head.version != TOKENFILE_VERSION)
        return err_set(e, ERR_CORRUPT,
                       "%s: token file of version %u, this program reads version %d; tokenize the text again", f->path,
                       head.version, TOKENFILE_VERSION);
    if (hash64(&head, offsetof(struct head_bytes, sum)) != head.sum)
        return damaged(e, f->path, "the head's checksum is wrong");
    int64_t ids = head.width == 2 ? 1 << 16 : INT32_MAX;
    if ((head.width != 2 && head.width != 4) || head.vocab < 1 || head.vocab > ids || head.eos < -1 ||
        head.eos >= head.vocab)
        return damaged(e, f->path, "the head contradicts itself");
    f->width = (int)head.width;
    f->head = (struct tokenfile_head){head.vocab, head.eos, head.fingerprint, head.key};
    return OK;
}

static const struct tail_bytes *tail_of(const struct tokenfile *f)
{
    return (const struct tail_bytes *)(f->map.p + f->map.bytes - sizeof(struct tail_bytes));
}

static int read_tail(struct tokenfile *f, struct err *e)
{
    struct head_bytes *head = (struct head_bytes *)f->map.p;
    struct tail_bytes tail;
    if (f->map.bytes < sizeof *head + sizeof tail || f->map.bytes % 8) return damaged(e, f->path, "it is cut short");
    memcpy(&tail, tail_of(f), sizeof tail);
    if (memcmp(tail.magic, TOKENFILE_END, 8))
        return damaged(e, f->path, "its end is missing, so it was cut short or overwritten");
    if (hash64(&tail, offsetof(struct tail_bytes, sum)) != tail.sum)
        return damaged(e, f->path, "the tail's checksum is wrong");
    int64_t body = body_bytes(tail.n_tokens, f->width);
    int64_t rest = (int64_t)f->map.bytes - (int64_t)sizeof *head - (int64_t)sizeof tail;
    if (tail.head_sum != head->sum || body < 0 || body > rest || tail.n_sums != n_chunks(tail.n_tokens, f->width) ||
        tail.n_sums != (rest - body) / 8 || tail.n_documents < 0 || tail.n_documents > tail.n_tokens)
        return damaged(e, f->path, "its size and its counts do not fit");
    const unsigned char *sums = f->map.p + sizeof *head + body;
    if (hash64(sums, to_size(tail.n_sums) * 8) != tail.sums_sum)
        return damaged(e, f->path, "the checksums are damaged");
    f->n_tokens = tail.n_tokens;
    f->n_documents = tail.n_documents;
    f->tokens = f->map.p + sizeof *head;
    return OK;
}

int tokenfile_open(struct tokenfile *f, const char *path, struct err *e)
{
    *f = (struct tokenfile){.path = xstrdup(path)};
    int code = fs_map_open(&f->map, path, e);
    if (!code) code = read_head(f, e);
    if (!code) code = read_tail(f, e);
    if (code) tokenfile_close(f);
    return code;
}

void tokenfile_close(struct tokenfile *f)
{
    fs_map_close(&f->map);
    xfree(f->path);
    *f = (struct tokenfile){0};
}

int tokenfile_read(const struct tokenfile *f, int64_t at, int64_t n, int32_t *out, struct err *e)
{
    CHECK(at >= 0 && n >= 0 && at <= f->n_tokens && n <= f->n_tokens - at, "tokens [%lld, +%lld) of %lld",
          (long long)at, (long long)n, (long long)f->n_tokens);
    uint32_t highest = 0;
    if (f->width == 2) {
        const uint16_t *p = (const uint16_t *)(const void *)f->tokens + at;
        for (int64_t i = 0; i < n; i++) {
            out[i] = p[i];
            highest = p[i] > highest ? p[i] : highest;
        }
    } else {
        const uint32_t *p = (const uint32_t *)(const void *)f->tokens + at;
        for (int64_t i = 0; i < n; i++) {
            out[i] = (int32_t)p[i];
            highest = p[i] > highest ? p[i] : highest;
        }
    }
    if (highest < (uint32_t)f->head.vocab) return OK;
    return err_set(
        e, ERR_CORRUPT,
        "%s: damaged token file: id %u among tokens %lld to %lld, the vocabulary has %d; tokenize the text again",
        f->path, highest, (long long)at, (long long)(at + n), f->head.vocab);
}

void tokenfile_forget(const struct tokenfile *f, int64_t at, int64_t n)
{
    const uintptr_t around = 64 << 10; /* the kernel maps up to this much around a fault */
    uintptr_t lo = (uintptr_t)(f->tokens + at * f->width) & ~(around - 1);
    uintptr_t hi = ((uintptr_t)(f->tokens + (at + n) * f->width) + around - 1) & ~(around - 1);
    uintptr_t first = (uintptr_t)f->map.p, last = (first + f->map.bytes + 4095) & ~(uintptr_t)4095;
    if (lo < first) lo = first;
    if (hi > last) hi = last;
    (void)madvise((void *)lo, hi - lo, MADV_DONTNEED);
}

int tokenfile_verify(const struct tokenfile *f, struct err *e)
{
    int64_t bytes = f->n_tokens * f->width, chunks = n_chunks(f->n_tokens, f->width);
    const unsigned char *sums = f->tokens + body_bytes(f->n_tokens, f->width);
    for (int64_t i = 0; i < chunks; i++) {
        int64_t at = i * TOKENFILE_CHUNK, n = bytes - at < TOKENFILE_CHUNK ? bytes - at : TOKENFILE_CHUNK;
        uint64_t wanted;
        memcpy(&wanted, sums + 8 * i, 8);
        uint64_t got = hash64(f->tokens + at, to_size(n));
        tokenfile_forget(f, at / f->width, n / f->width);
        if (got != wanted)
            return err_set(e, ERR_CORRUPT,
                           "%s: damaged token file: checksum of tokens %lld to %lld is wrong; tokenize the text again",
                           f->path, (long long)(at / f->width), (long long)((at + n) / f->width));
    }
    return OK;
}
