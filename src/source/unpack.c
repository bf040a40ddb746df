/* SPDX-License-Identifier: Apache-2.0 */
/* unpack.c: zlib's and zstd's streams, one buffer in front of them. */
#include "source/unpack.h"

#include <stdbool.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/mem.h"

enum { BUFFER = 64 << 10 };
enum format { UNKNOWN, PLAIN, GZIP, ZSTD };
static const char *const names[] = {"", "", "gzip", "zstd"};

struct unpack {
    const char *path;
    struct blob *blob;
    enum format format;
    unsigned char *buf;
    size_t at, n; /* read from the file and not yet unpacked: buf[at..n) */
    int64_t taken, given;
    bool at_end;   /* the file has no more */
    bool in_piece; /* between the first byte of a packed piece and its last */
    z_stream gzip;
    ZSTD_DStream *zstd;
};

struct unpack *unpack_new(struct blob *blob)
{
    struct unpack *u = xcalloc(1, sizeof *u);
    u->path = blob->path;
    u->blob = blob;
    u->buf = xmalloc(BUFFER);
    return u;
}

void unpack_free(struct unpack *u)
{
    if (!u) return;
    if (u->format == GZIP) inflateEnd(&u->gzip);
    ZSTD_freeDStream(u->zstd);
    xfree(u->buf);
    xfree(u);
}

struct unpack *unpack_plain(struct blob *blob, int64_t at)
{
    struct unpack *u = unpack_new(blob);
    u->format = PLAIN;
    u->taken = at;
    return u;
}

int64_t unpack_taken(const struct unpack *u) { return u->taken; }

const char *unpack_format(const struct unpack *u) { return names[u->format]; }

static long long place(const struct unpack *u) { return (long long)(u->taken - (int64_t)(u->n - u->at)); }

static int read_some(struct unpack *u, void *p, size_t room, size_t *got, struct err *e)
{
    int code = blob_some(u->blob, u->taken, room, p, got, e);
    u->taken += (int64_t)*got;
    u->at_end = !code && !*got;
    return code;
}

/* At least `want` bytes into the buffer, where the file has them. */
static int fill(struct unpack *u, size_t want, struct err *e)
{
    if (u->n - u->at >= want) return OK;
    memmove(u->buf, u->buf + u->at, u->n - u->at);
    u->n -= u->at;
    u->at = 0;
    while (u->n < want && !u->at_end) {
        size_t got = 0;
        int code = read_some(u, u->buf + u->n, BUFFER - u->n, &got, e);
        if (code) return code;
        u->n += got;
    }
    return OK;
}

static enum format format_of(const unsigned char *p, size_t n)
{
    static const unsigned char zstd[] = {0x28, 0xB5, 0x2F, 0xFD}, skipped[] = {0x2A, 0x4D, 0x18};
    if (n >= 3 && p[0] == 0x1F && p[1] == 0x8B && p[2] == 8) return GZIP; /* 8: deflate, the only method there is */
    if (n >= 4 && !memcmp(p, zstd, 4)) return ZSTD;
    if (n >= 4 && (p[0] & 0xF0) == 0x50 && !memcmp(p + 1, skipped, 3)) return ZSTD; /* a frame to be skipped */
    return PLAIN;
}

static int begin(struct unpack *u, struct err *e)
{
    int code = fill(u, 4, e);
    if (code) return code;
    u->format = format_of(u->buf + u->at, u->n - u->at);
    if (u->format == GZIP) CHECK(inflateInit2(&u->gzip, 15 + 16) == Z_OK, "memory for gzip");
    if (u->format == ZSTD) {
        u->zstd = ZSTD_createDStream();
        CHECK(u->zstd, "memory for zstd");
    }
    return OK;
}

static int damaged(const struct unpack *u, const char *why, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "%s: its %s data are damaged before byte %lld: %s", u->path, names[u->format],
                   place(u), why);
}

/* One call of a library: from buf[at..n) into p[0..*given); both may be nothing. */
static int gzip_step(struct unpack *u, void *p, size_t room, size_t *given, struct err *e)
{
    u->gzip.next_in = u->buf + u->at;
    u->gzip.avail_in = (uInt)(u->n - u->at);
    u->gzip.next_out = p;
    u->gzip.avail_out = (uInt)room;
    int rc = inflate(&u->gzip, Z_NO_FLUSH);
    u->at = u->n - u->gzip.avail_in;
    *given = room - u->gzip.avail_out;
    u->in_piece = rc != Z_STREAM_END;
    if (rc == Z_STREAM_END) inflateReset(&u->gzip);
    else if (rc != Z_OK && rc != Z_BUF_ERROR) return damaged(u, u->gzip.msg ? u->gzip.msg : "no gzip", e);
    return OK;
}

static int zstd_step(struct unpack *u, void *p, size_t room, size_t *given, struct err *e)
{
    ZSTD_inBuffer in = {u->buf, u->n, u->at};
    ZSTD_outBuffer out = {p, room, 0};
    size_t rc = ZSTD_decompressStream(u->zstd, &out, &in);
    u->at = in.pos;
    *given = out.pos;
    u->in_piece = rc != 0;
    if (!ZSTD_isError(rc)) return OK;
    if (strstr(ZSTD_getErrorName(rc), "memory"))
        return err_set(e, ERR_REQUEST,
                       "%s: was packed to be unpacked with more than 128 MiB of memory (zstd --long); pack it again "
                       "without: zstd -d --long=31 FILE -c | zstd > OTHER.zst",
                       u->path);
    return damaged(u, ZSTD_getErrorName(rc), e);
}

/* Between pieces: is there another? What follows must be one, or zeros up to the end. */
static int next_piece(struct unpack *u, bool *more, struct err *e)
{
    for (;;) {
        int code = fill(u, 4, e);
        if (code) return code;
        *more = u->n > u->at;
        if (!*more || format_of(u->buf + u->at, u->n - u->at) == u->format) return OK;
        while (u->at < u->n && u->buf[u->at] == 0) u->at++;
        if (u->at < u->n) return damaged(u, "something else follows", e);
    }
}

static int unpack_some(struct unpack *u, void *p, size_t room, size_t *got, struct err *e)
{
    size_t most = room < ((size_t)1 << 30) ? room : (size_t)1 << 30; /* zlib counts in 32 bits */
    for (;;) {
        bool more = true;
        int code = u->in_piece ? fill(u, 1, e) : next_piece(u, &more, e);
        if (code || !more) return code;
        bool dry = u->at == u->n;
        code = u->format == GZIP ? gzip_step(u, p, most, got, e) : zstd_step(u, p, most, got, e);
        if (code || *got) return code;
        if (dry && u->in_piece)
            return err_set(e, ERR_CORRUPT, "%s: ends at byte %lld in the middle of its %s data; it was cut short",
                           u->path, (long long)u->taken, names[u->format]);
    }
}

int unpack_read(struct unpack *u, void *p, size_t room, size_t *got, struct err *e)
{
    *got = 0;
    int code = u->format == UNKNOWN ? begin(u, e) : OK;
    if (code) return code;
    if (u->format != PLAIN) {
        code = unpack_some(u, p, room, got, e);
        u->given += (int64_t)*got;
        if (!code && u->given > UNPACK_FREE && u->given / UNPACK_RATIO > u->taken)
            code =
                err_set(e, ERR_REQUEST,
                        "%s: its %s data have unpacked to %lld MiB from %lld KiB, more than %d times as much: it looks "
                        "like a bomb; unpack it by hand if it is none",
                        u->path, names[u->format], (long long)(u->given >> 20), (long long)(u->taken >> 10),
                        UNPACK_RATIO);
        return code;
    }
    if (u->at == u->n) return u->at_end ? OK : read_some(u, p, room, got, e);
    *got = u->n - u->at < room ? u->n - u->at : room;
    memcpy(p, u->buf + u->at, *got);
    u->at += *got;
    return OK;
}

/* -- pieces in memory --------------------------------------------------------------------------------------- */

const char *unpack_gzip_piece(const void *p, size_t n, void *out, size_t n_out)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)p, .next_out = out};
    if (n > UINT32_MAX || n_out > UINT32_MAX) return "a piece of more than 4 GiB";
    z.avail_in = (uInt)n;
    z.avail_out = (uInt)n_out;
    CHECK(inflateInit2(&z, 15 + 32) == Z_OK, "memory for gzip");
    int rc;
    do rc = inflate(&z, Z_FINISH);
    while (rc == Z_STREAM_END && z.avail_in && z.avail_out && inflateReset(&z) == Z_OK);
    bool whole = rc == Z_STREAM_END && !z.avail_out;
    inflateEnd(&z);
    return whole ? NULL : "its gzip data are damaged, or not as long as they should be";
}

const char *unpack_zstd_piece(const void *p, size_t n, void *out, size_t n_out)
{
    return ZSTD_decompress(out, n_out, p, n) == n_out ? NULL
                                                      : "its zstd data are damaged, or not as long as they should be";
}

uint32_t unpack_crc32(uint32_t before, const void *p, size_t n) { return (uint32_t)crc32_z(before, p, n); }
