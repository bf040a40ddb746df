/* SPDX-License-Identifier: Apache-2.0 */
#include "source/source_buffer.h"

#include <string.h>

#include "base/mem.h"

void source_buffer_init(struct source_buffer *b, struct blob *blob, int64_t listed)
{
    *b = (struct source_buffer){.blob = blob, .unpack = unpack_new(blob), .listed = listed, .room = SOURCE_BUFFER};
    b->buf = xmalloc(b->room);
}

void source_buffer_fini(struct source_buffer *b)
{
    unpack_free(b->unpack);
    xfree(b->buf);
    *b = (struct source_buffer){0};
}

/* What a packed file lacks may have been cut off, or never been there: only its last byte tells. */
static bool at_its_end(const struct source_buffer *b)
{
    char byte;
    size_t got = 0;
    struct err e;
    return !blob_some(b->blob, unpack_taken(b->unpack), 1, &byte, &got, &e) && !got;
}

int source_buffer_fill(struct source_buffer *b, struct err *e)
{
    if (b->at > 0) {
        memmove(b->buf, b->buf + b->at, b->n - b->at);
        b->n -= b->at;
        b->begin += (int64_t)b->at;
        b->at = 0;
    }
    if (b->n == b->room) {
        if (b->room >= SOURCE_RECORD_MAX)
            return err_set(e, ERR_REQUEST, "%s:%lld: a line of more than %d MiB", b->blob->path,
                           (long long)source_buffer_line_number(b) + 1, SOURCE_RECORD_MAX >> 20);
        GROW(b->buf, b->n, b->room, 1);
    }
    size_t got;
    int code = unpack_read(b->unpack, b->buf + b->n, b->room - b->n, &got, e);
    int64_t taken = unpack_taken(b->unpack);
    bool ends = (code == ERR_CORRUPT || (!code && got == 0)) && taken < b->listed;
    if (ends && !code && !at_its_end(b))
        return err_set(e, ERR_IO,
                       "%s: a read at byte %lld of %lld gave nothing, and the next one something: its disk or network "
                       "cannot be relied on; start again",
                       b->blob->path, (long long)taken, (long long)b->listed);
    if (ends && at_its_end(b))
        return err_set(e, ERR_IO,
                       "%s: ends at byte %lld; it had %lld bytes when it was listed, so something cut it short "
                       "meanwhile",
                       b->blob->path, (long long)taken, (long long)b->listed);
    if (code) return code;
    b->at_end = got == 0;
    b->n += got;
    return OK;
}

int source_buffer_begin(struct source_buffer *b, struct err *e)
{
    int code;
    do code = source_buffer_fill(b, e); /* what is packed comes in small parts */
    while (!code && !b->at_end && b->n < b->room);
    return code;
}

void source_buffer_seek(struct source_buffer *b, int64_t at)
{
    CHECK(!source_buffer_packed(b), "%s: is packed, and has no places to begin at", b->blob->path);
    unpack_free(b->unpack);
    b->unpack = unpack_plain(b->blob, at);
    b->from = b->begin = at;
    b->at = b->n = 0;
    b->at_end = false;
    b->line = 0;
}

int source_buffer_line(struct source_buffer *b, size_t *n, struct err *e)
{
    size_t searched = 0;
    for (;;) {
        char *newline = memchr(b->buf + b->at + searched, '\n', b->n - b->at - searched);
        if (newline || (b->at_end && b->at < b->n)) {
            *n = newline ? (size_t)(newline - b->buf) - b->at : b->n - b->at;
            return 1;
        }
        if (b->at_end) return 0;
        searched = b->n - b->at;
        int code = source_buffer_fill(b, e);
        if (code) return code;
    }
}

void source_buffer_pass(struct source_buffer *b, size_t n)
{
    b->at += n;
    b->at += b->at < b->n;
    b->line++;
}

int source_buffer_drop_line(struct source_buffer *b, struct err *e)
{
    for (;;) {
        char *newline = memchr(b->buf + b->at, '\n', b->n - b->at);
        b->at = newline ? (size_t)(newline - b->buf) + 1 : b->n;
        if (newline || b->at_end) {
            b->line++;
            return OK;
        }
        int code = source_buffer_fill(b, e);
        if (code) return code;
    }
}

int64_t source_buffer_offset(const struct source_buffer *b) { return b->begin + (int64_t)b->at; }

int64_t source_buffer_taken(const struct source_buffer *b) { return unpack_taken(b->unpack) - b->from; }

bool source_buffer_packed(const struct source_buffer *b) { return *unpack_format(b->unpack); }

int64_t source_buffer_line_number(const struct source_buffer *b)
{
    int64_t lines = b->line;
    char *piece = xmalloc(SOURCE_BUFFER);
    size_t got = 1;
    struct err e;
    for (int64_t at = 0; at < b->from && got; at += (int64_t)got) {
        int64_t left = b->from - at;
        if (blob_some(b->blob, at, left < SOURCE_BUFFER ? (size_t)left : SOURCE_BUFFER, piece, &got, &e)) break;
        for (char *p = piece; (p = memchr(p, '\n', got - (size_t)(p - piece))); p++) lines++;
    }
    xfree(piece);
    return lines;
}
