/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_write.c: a token file as Megatron-Core's IndexedDatasetBuilder writes it, to the bit: first the tokens, of
 * which the lengths are kept, then the index. Both are written under other names and renamed when both are whole; an
 * older index goes first, so that no index ever stands beside tokens that are not its own. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "data/megatron.h"
#include "data/megatron_format.h"

enum { PIECE = 8 << 10, VOCAB_OF_UINT16 = 65500 };

struct export
{
    struct tokenfile *from;
    int code; /* of the type */
    bool no_eod;
    int32_t *sizes; /* tokens of each document */
    int64_t n, n_room;
    struct megatron_result *r;
    int32_t *ids;
    unsigned char *raw;
};

static char *named(const char *prefix, const char *ending)
{
    struct str s = {0};
    str_printf(&s, "%s%s", prefix, ending);
    return s.p;
}

static int choose_type(struct export *x, const char *type, struct err *e)
{
    if (!type) type = x->from->head.vocab < VOCAB_OF_UINT16 ? "uint16" : "int32";
    for (x->code = 1; x->code < MEGATRON_CODES; x->code++)
        if (!strcmp(megatron_types[x->code].name, type)) break;
    CHECK(x->code < MEGATRON_CODES, "no type %s", type);
    if (x->from->head.vocab - 1 <= megatron_types[x->code].hi) return OK;
    return err_set(e, ERR_REQUEST, "%s: its vocabulary has %d ids, %s holds %lld; choose a wider type", x->from->path,
                   x->from->head.vocab, type, (long long)megatron_types[x->code].hi + 1);
}

static void narrow(const int32_t *ids, int64_t n, int code, unsigned char *out)
{
    int width = megatron_types[code].width;
    for (int64_t i = 0; i < n; i++) {
        int64_t v = ids[i];
        memcpy(out + i * width, &v, (size_t)width); /* little-endian: its lowest bytes */
    }
}

/* Tokens [begin, end) to .bin. */
static int write_tokens(struct export *x, struct fs_writer *bin, int64_t begin, int64_t end, struct err *e)
{
    int width = megatron_types[x->code].width;
    for (int64_t at = begin, n; at < end; at += n) {
        n = end - at < PIECE ? end - at : PIECE;
        int code = tokenfile_read(x->from, at, n, x->ids, e);
        if (code) return code;
        narrow(x->ids, n, x->code, x->raw);
        code = fs_writer_write(bin, x->raw, to_size(n * width), e);
        if (code) return code;
    }
    return OK;
}

static int write_document(struct export *x, struct fs_writer *bin, int64_t i, struct err *e)
{
    int64_t begin, end;
    int32_t last;
    int code = tokenfile_document(x->from, i, &begin, &end, e);
    if (!code && end > begin) code = tokenfile_read(x->from, end - 1, 1, &last, e);
    if (code) return code;
    bool ended = end > begin && last == x->from->head.eos;
    x->r->ended += ended;
    if (ended && x->no_eod) end--;
    if (end - begin > INT32_MAX)
        return err_set(e, ERR_REQUEST, "%s: document %lld has %lld tokens; Megatron's index counts up to %d",
                       x->from->path, (long long)i, (long long)(end - begin), INT32_MAX);
    GROW(x->sizes, x->n, x->n_room, 1);
    x->sizes[x->n++] = (int32_t)(end - begin);
    x->r->tokens += end - begin;
    x->r->empty += end == begin;
    return write_tokens(x, bin, begin, end, e);
}

static int write_bin(struct export *x, const char *path, struct err *e)
{
    struct fs_writer *bin;
    int code = fs_writer_open(&bin, path, e);
    if (code) return code;
    for (int64_t i = 0; i < x->from->n_documents && !code; i++) code = write_document(x, bin, i, e);
    int closed = fs_writer_close(bin, !code, code ? NULL : e);
    return code ? code : closed;
}

static int write_head(const struct export *x, struct fs_writer *idx, struct err *e)
{
    unsigned char head[MEGATRON_HEAD];
    uint64_t version = MEGATRON_VERSION, sequences = (uint64_t)x->n, entries = (uint64_t)x->n + 1;
    memcpy(head, MEGATRON_MAGIC, 9);
    memcpy(head + 9, &version, 8);
    head[17] = (unsigned char)x->code;
    memcpy(head + 18, &sequences, 8);
    memcpy(head + 26, &entries, 8);
    return fs_writer_write(idx, head, sizeof head, e);
}

static int write_idx(struct export *x, const char *path, struct err *e)
{
    struct fs_writer *idx;
    int code = fs_writer_open(&idx, path, e);
    if (code) return code;
    code = write_head(x, idx, e);
    if (!code) code = fs_writer_write(idx, x->sizes, to_size(x->n) * sizeof *x->sizes, e);
    int64_t at = 0, width = megatron_types[x->code].width;
    for (int64_t i = 0; i < x->n && !code; at += x->sizes[i++] * width) code = fs_writer_write(idx, &at, sizeof at, e);
    for (int64_t i = 0; i <= x->n && !code; i++) code = fs_writer_write(idx, &i, sizeof i, e);
    int closed = fs_writer_close(idx, !code, code ? NULL : e);
    return code ? code : closed;
}

/* Both under their names, the index last. */
static int publish(const char *const made[2], const char *const names[2], struct err *e)
{
    if (unlink(names[1]) && errno != ENOENT) return err_errno(e, ERR_IO, errno, "%s: cannot be replaced", names[1]);
    int code = fs_rename(made[0], names[0], e);
    return code ? code : fs_rename(made[1], names[1], e);
}

int megatron_write(struct tokenfile *f, const char *prefix, const struct megatron_export *o, struct megatron_result *r,
                   const char **type, struct err *e)
{
    struct export x = {.from = f, .no_eod = o->no_eod, .r = r};
    *r = (struct megatron_result){.documents = f->n_documents};
    int code = choose_type(&x, o->type, e);
    if (!code) code = tokenfile_find_ends(f, NULL, e);
    if (code) return code;
    r->documents = f->n_documents;
    *type = megatron_types[x.code].name;
    char *names[2] = {named(prefix, ".bin"), named(prefix, ".idx")};
    char *made[2] = {named(names[0], ".tmp"), named(names[1], ".tmp")};
    x.ids = xmalloc(PIECE * sizeof *x.ids);
    x.raw = xmalloc(PIECE * 8);
    code = write_bin(&x, made[0], e);
    if (!code) code = write_idx(&x, made[1], e);
    if (!code) code = publish((const char *const *)made, (const char *const *)names, e);
    if (code) {
        unlink(made[0]);
        unlink(made[1]);
    }
    for (int i = 0; i < 2; i++) {
        xfree(names[i]);
        xfree(made[i]);
    }
    xfree(x.ids);
    xfree(x.raw);
    xfree(x.sizes);
    return code;
}
