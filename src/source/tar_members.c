/* SPDX-License-Identifier: Apache-2.0 */
#include "source/tar_members.h"

#include <archive.h>
#include <archive_entry.h>

#include "base/mem.h"

enum { BLOCK = 512 };

struct tar {
    struct archive *archive;
    struct source_buffer *bytes;
    struct str name;
    int64_t begin;   /* of the archive, or of the member that is read first, in what the file holds */
    int64_t zeros;   /* at the end of what was handed to the library */
    struct err lost; /* why its bytes could not be had */
};

static la_ssize_t give(struct archive *a, void *ctx, const void **p)
{
    struct tar *t = ctx;
    struct source_buffer *b = t->bytes;
    (void)a;
    if (b->at == b->n && !b->at_end && source_buffer_fill(b, &t->lost)) return ARCHIVE_FATAL;
    size_t n = b->n - b->at;
    *p = b->buf + b->at;
    b->at = b->n; /* the buffer does not move before the next call */
    size_t zeros = 0;
    while (zeros < n && !b->buf[b->n - 1 - zeros]) zeros++;
    t->zeros = zeros == n ? t->zeros + (int64_t)n : (int64_t)zeros;
    return (la_ssize_t)n;
}

/* Seeks; the end of the file is found when it is read. */
static la_int64_t pass(struct archive *a, void *ctx, la_int64_t n)
{
    struct tar *t = ctx;
    (void)a;
    source_buffer_seek(t->bytes, source_buffer_offset(t->bytes) + n);
    t->zeros = 0;
    return n;
}

static struct tar *open_tar(struct source_buffer *b, archive_skip_callback *skip)
{
    struct tar *t = xcalloc(1, sizeof *t);
    t->bytes = b;
    t->begin = source_buffer_offset(b);
    t->archive = archive_read_new();
    CHECK(t->archive && archive_read_support_format_tar(t->archive) == ARCHIVE_OK, "libarchive cannot read tar");
    (void)archive_read_open2(t->archive, t, NULL, give, skip, NULL); /* what fails fails again at the first member */
    return t;
}

struct tar *tar_new(struct source_buffer *b) { return open_tar(b, NULL); }

struct tar *tar_new_seeking(struct source_buffer *b)
{
    CHECK(!source_buffer_packed(b), "%s: is packed, and cannot be sought in", b->blob->path);
    return open_tar(b, pass);
}

void tar_free(struct tar *t)
{
    if (!t) return;
    archive_read_free(t->archive);
    str_free(&t->name);
    xfree(t);
}

/* What the library says, or what was wrong with the bytes it asked for. */
static int damaged(struct tar *t, int64_t at, const char *what, struct err *e)
{
    if (t->lost.code) return err_set(e, t->lost.code, "%s", t->lost.text);
    return err_set(e, ERR_CORRUPT, "%s: damaged tar archive: the member at byte %lld: %s", t->bytes->blob->path,
                   (long long)at, what ? what : "cannot be made out");
}

/* mark: where the end mark begins. What lies behind it nobody would read. */
static int at_the_end(struct tar *t, int64_t mark, struct err *e)
{
    const void *p;
    while (!t->lost.code && give(NULL, t, &p) > 0) continue;
    if (t->lost.code) return damaged(t, 0, NULL, e);
    if (t->zeros >= BLOCK && source_buffer_offset(t->bytes) - t->zeros <= mark) return 0;
    if (t->zeros >= BLOCK)
        return err_set(e, ERR_CORRUPT,
                       "%s: a tar archive whose end mark, at byte %lld, is followed by more: it was put together of "
                       "several (cat), of which the first alone would be read; name them one by one, or join them by "
                       "tar -A",
                       t->bytes->blob->path, (long long)mark);
    return err_set(e, ERR_CORRUPT, "%s: a tar archive that ends at byte %lld without its end mark: it was cut short",
                   t->bytes->blob->path, (long long)source_buffer_offset(t->bytes));
}

int tar_next(struct tar *t, struct tar_member *m, struct err *e)
{
    for (;;) {
        struct archive_entry *entry;
        int rc = archive_read_next_header(t->archive, &entry);
        int64_t at = archive_read_header_position(t->archive);
        if (rc == ARCHIVE_EOF) return at_the_end(t, t->begin + at, e);
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN) return damaged(t, at, archive_error_string(t->archive), e);
        const char *name = archive_entry_pathname(entry);
        if (archive_entry_filetype(entry) == AE_IFDIR) continue;
        str_clear(&t->name);
        str_puts(&t->name, name ? name : "");
        *m = (struct tar_member){
            .name = str_text(&t->name),
            .bytes = archive_entry_size(entry),
            .offset = at,
            .is_file = archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry),
        };
        if (m->bytes < 0) return damaged(t, at, "its size is below 0", e);
        return 1;
    }
}

int tar_read(struct tar *t, const struct tar_member *m, struct str *out, struct err *e)
{
    str_clear(out);
    char *piece = xmalloc(SOURCE_BUFFER);
    la_ssize_t n;
    int code = OK;
    while ((n = archive_read_data(t->archive, piece, SOURCE_BUFFER)) > 0 && (int64_t)out->n <= m->bytes)
        str_add(out, piece, (size_t)n);
    if (n < 0) code = damaged(t, m->offset, archive_error_string(t->archive), e);
    else if ((int64_t)out->n != m->bytes) code = damaged(t, m->offset, "it is not as long as its header says", e);
    xfree(piece);
    return code;
}

int tar_data_offset(struct tar *t, const struct tar_member *m, int64_t *offset, struct err *e)
{
    const void *p;
    size_t n = 0;
    la_int64_t at = 0;
    *offset = 0;
    if (!m->bytes) return OK;
    int rc = archive_read_data_block(t->archive, &p, &n, &at);
    if (rc != ARCHIVE_OK || !n || at) {
        if (t->lost.code || rc < ARCHIVE_WARN) return damaged(t, m->offset, archive_error_string(t->archive), e);
        return damaged(t, m->offset, "a sparse file, whose bytes do not lie one behind the other", e);
    }
    *offset = archive_filter_bytes(t->archive, -1);
    return OK;
}
