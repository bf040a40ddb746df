/* SPDX-License-Identifier: Apache-2.0 */
/* parquet_pages.c: pages of versions 1 and 2 (parquet.thrift's PageHeader, README's "Data Pages").
 *
 * Version 1 packs levels and values together, each kind of levels behind its length; version 2 has the levels in front,
 * never packed. Both are runs (parquet_values.h). A dictionary's page comes before the pages that point into it. */
#include "source/parquet_pages.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "source/brotli_piece.h"
#include "source/lz4_piece.h"
#include "source/snappy.h"
#include "source/thrift.h"
#include "source/unpack.h"

/* By enum parquet_codec: its name, and what unpacks a piece; NULL: what is not packed, and what is not read. */
static const struct {
    const char *name;
    const char *(*piece)(const void *p, size_t n, void *out, size_t n_out);
} codecs[] = {
    [PARQUET_PLAIN] = {"none", NULL},
    [PARQUET_SNAPPY] = {"Snappy", snappy_piece},
    [PARQUET_GZIP] = {"gzip", unpack_gzip_piece},
    [PARQUET_LZO] = {"LZO", NULL},
    [PARQUET_BROTLI] = {"Brotli", brotli_piece},
    [PARQUET_LZ4] = {"LZ4 (Hadoop's)", lz4_hadoop_piece},
    [PARQUET_ZSTD] = {"zstd", unpack_zstd_piece},
    [PARQUET_LZ4_RAW] = {"LZ4", lz4_piece},
};

enum { DATA = 0, INDEX = 1, DICTIONARY = 2, DATA_2 = 3 };
enum { HEADER_FIRST = 512, HEADER_MAX = 16 << 20 };

struct page_head {
    int64_t type, unpacked, packed, n_values, encoding, def_encoding, rep_encoding, def_bytes, rep_bytes;
    bool has_crc, is_packed;
    uint32_t crc;
};

void parquet_pages_init(struct parquet_pages *r, struct blob *b, const struct parquet_meta *m)
{
    *r = (struct parquet_pages){.blob = b, .meta = m};
    r->allowed = b->bytes > INT64_MAX / UNPACK_RATIO ? INT64_MAX : b->bytes * UNPACK_RATIO;
    if (r->allowed < UNPACK_FREE) r->allowed = UNPACK_FREE;
}

void parquet_pages_fini(struct parquet_pages *r)
{
    xfree(r->raw);
    xfree(r->page);
    xfree(r->words);
    xfree(r->dictionary.begin);
    str_free(&r->values.last);
    *r = (struct parquet_pages){0};
}

static int damaged(const struct parquet_pages *r, const char *what, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "%s: damaged Parquet file: row group %lld, the page at byte %lld: %s", r->blob->path,
                   (long long)r->chunk, (long long)r->page_at, what);
}

static int refused(const struct parquet_pages *r, const char *what, struct err *e)
{
    return err_set(e, ERR_REQUEST, "%s: row group %lld, the page at byte %lld: %s", r->blob->path, (long long)r->chunk,
                   (long long)r->page_at, what);
}

int parquet_pages_go(struct parquet_pages *r, int64_t chunk, struct err *e)
{
    const struct parquet_chunk *c = &r->meta->chunks[chunk];
    r->chunk = chunk;
    r->left = r->seen = 0;
    r->has_dictionary = false;
    if (c->wrong)
        return err_set(e, ERR_CORRUPT, "%s: damaged Parquet file: row group %lld cannot be read: %s", r->blob->path,
                       (long long)chunk, c->wrong);
    r->at = r->page_at = c->begin;
    if (c->codec != PARQUET_PLAIN && !codecs[c->codec].piece)
        return err_set(e, ERR_REQUEST,
                       "%s: row group %lld is packed by %s, which is not read; write the file again with compression "
                       "snappy, gzip, brotli, lz4, zstd or none",
                       r->blob->path, (long long)chunk, codecs[c->codec].name);
    return OK;
}

/* -- heads -------------------------------------------------------------------------------------------------- */

static void read_kind(struct thrift *t, int64_t type, struct page_head *h)
{
    struct thrift_field i = {0};
    while (thrift_next(t, &i)) {
        int64_t *to = i.id == 1                     ? &h->n_values
                      : type == DATA_2 && i.id == 4 ? &h->encoding
                      : type == DATA_2 && i.id == 5 ? &h->def_bytes
                      : type == DATA_2 && i.id == 6 ? &h->rep_bytes
                      : type != DATA_2 && i.id == 2 ? &h->encoding
                      : type == DATA && i.id == 3   ? &h->def_encoding
                      : type == DATA && i.id == 4   ? &h->rep_encoding
                                                    : NULL;
        if (to) *to = thrift_int(t, &i);
        else if (type == DATA_2 && i.id == 7) h->is_packed = thrift_bool(t, &i);
        else thrift_skip(t, &i);
    }
}

/* A head at p: its bytes; 0 where there are too few of them, or wrong ones. */
static size_t parse_head(const unsigned char *p, size_t n, struct page_head *h)
{
    struct thrift t = {.p = p, .n = n};
    struct thrift_field i = {0};
    int64_t kind = -1;
    *h =
        (struct page_head){.type = -1, .unpacked = -1, .packed = -1, .n_values = -1, .encoding = -1, .is_packed = true};
    h->def_encoding = h->rep_encoding = ENCODING_RLE;
    while (thrift_next(&t, &i)) {
        if (i.id == 1) h->type = thrift_int(&t, &i);
        else if (i.id == 2) h->unpacked = thrift_int(&t, &i);
        else if (i.id == 3) h->packed = thrift_int(&t, &i);
        else if (i.id == 4) {
            h->crc = (uint32_t)thrift_int(&t, &i);
            h->has_crc = true;
        } else if ((i.id == 5 || i.id == 7 || i.id == 8) && thrift_struct(&t, &i)) {
            kind = i.id == 5 ? DATA : i.id == 7 ? DICTIONARY : DATA_2;
            read_kind(&t, kind, h);
        } else {
            thrift_skip(&t, &i);
        }
    }
    if (t.bad || ((h->type == DATA || h->type == DICTIONARY || h->type == DATA_2) && kind != h->type)) return 0;
    return t.at;
}

static void room_for(unsigned char **p, size_t *room, size_t n)
{
    if (n <= *room) return;
    xfree(*p);
    *p = xmalloc(n);
    *room = n;
}

/* The head of the page at r->at; what follows it begins at r->at then. */
static int read_head(struct parquet_pages *r, struct page_head *h, struct err *e)
{
    const struct parquet_chunk *c = &r->meta->chunks[r->chunk];
    int64_t left = c->end - r->at;
    r->page_at = r->at;
    for (int64_t want = HEADER_FIRST;; want *= 8) {
        size_t n = (size_t)(want < left ? want : left), length;
        room_for(&r->raw, &r->raw_room, n);
        int code = blob_read(r->blob, r->at, n, r->raw, e);
        if (code) return code;
        length = parse_head(r->raw, n, h);
        if (length) {
            r->at += (int64_t)length;
            break;
        }
        if (want >= left || want >= HEADER_MAX) return damaged(r, "its head cannot be made out", e);
    }
    if (h->packed < 0 || h->packed > c->end - r->at) return damaged(r, "it ends behind its row group's end", e);
    if (h->unpacked < 0 || h->n_values < (h->type == INDEX ? -1 : 0)) return damaged(r, "it has sizes below 0", e);
    if (h->def_bytes < 0 || h->rep_bytes < 0 || h->def_bytes > h->packed || h->rep_bytes > h->packed - h->def_bytes ||
        h->def_bytes + h->rep_bytes > h->unpacked)
        return damaged(r, "its levels are longer than it is", e);
    if (h->unpacked > UNPACK_FREE && h->unpacked / UNPACK_RATIO > h->packed)
        return refused(r, "it would unpack to more than 500 times its bytes: it looks like a bomb", e);
    return OK;
}

/* -- pages -------------------------------------------------------------------------------------------------- */

/* The page's bytes, unpacked, into *out; the levels of version 2 lie in front as they are. */
static int read_page(struct parquet_pages *r, const struct page_head *h, unsigned char **out, size_t *room,
                     struct err *e)
{
    size_t n = (size_t)h->packed, all = (size_t)h->unpacked, levels = (size_t)(h->def_bytes + h->rep_bytes);
    room_for(&r->raw, &r->raw_room, n + 1);
    int code = blob_read(r->blob, r->at, n, r->raw, e);
    if (code) return code;
    r->at += h->packed;
    uint32_t crc = h->has_crc ? unpack_crc32(0, r->raw, n) : 0;
    if (crc != h->crc && h->has_crc) {
        char text[80];
        snprintf(text, sizeof text, "its checksum is %08x, %08x was written", (unsigned)crc, (unsigned)h->crc);
        return damaged(r, text, e);
    }
    enum parquet_codec codec = h->is_packed ? r->meta->chunks[r->chunk].codec : PARQUET_PLAIN;
    if (codec == PARQUET_PLAIN && n != all) return damaged(r, "it is not packed, and has two sizes all the same", e);
    room_for(out, room, all + 1);
    memcpy(*out, r->raw, levels);
    const unsigned char *p = r->raw + levels;
    unsigned char *to = *out + levels;
    const char *wrong = NULL;
    if (codec == PARQUET_PLAIN) memcpy(to, p, n - levels);
    else if (all == levels) wrong = NULL; /* nulls only: some writers pack nothing to nothing */
    else wrong = codecs[codec].piece(p, n - levels, to, all - levels);
    return wrong ? damaged(r, wrong, e) : OK;
}

static int read_dictionary(struct parquet_pages *r, const struct page_head *h, struct err *e)
{
    if (h->encoding != ENCODING_PLAIN && h->encoding != ENCODING_PLAIN_DICTIONARY)
        return damaged(r, "its dictionary has no encoding that dictionaries have", e);
    int code = read_page(r, h, &r->words, &r->words_room, e);
    if (code) return code;
    xfree(r->dictionary.begin);
    const char *wrong = parquet_dictionary_init(&r->dictionary, r->words, (size_t)h->unpacked, h->n_values);
    r->has_dictionary = !wrong;
    return wrong ? damaged(r, wrong, e) : OK;
}

static int bits(int most)
{
    int n = 0;
    while (most >> n) n++;
    return n;
}

/* Levels of version 1: behind their length. Where there are none nothing is written. */
static bool begin_levels(struct rle *levels, unsigned char **p, const unsigned char *end, int most)
{
    if (!most) return true;
    if (end - *p < 4) return false;
    size_t n = (size_t)(*p)[0] | (size_t)(*p)[1] << 8 | (size_t)(*p)[2] << 16 | (size_t)(*p)[3] << 24;
    *p += 4;
    if (n > (size_t)(end - *p)) return false;
    rle_init(levels, *p, n, bits(most));
    *p += n;
    return true;
}

static int begin_data(struct parquet_pages *r, const struct page_head *h, struct err *e)
{
    const struct parquet_meta *m = r->meta;
    int code = read_page(r, h, &r->page, &r->page_room, e);
    if (code) return code;
    unsigned char *p = r->page, *end = p + h->unpacked;
    bool good = true;
    if (h->type == DATA_2) {
        rle_init(&r->rep, p, (size_t)h->rep_bytes, bits(m->max_rep));
        rle_init(&r->def, p + h->rep_bytes, (size_t)h->def_bytes, bits(m->max_def));
        p += h->rep_bytes + h->def_bytes;
    } else {
        if ((m->max_rep && h->rep_encoding != ENCODING_RLE) || (m->max_def && h->def_encoding != ENCODING_RLE))
            return refused(r, "its levels are not written as runs (RLE); write the file again with a newer library", e);
        good = begin_levels(&r->rep, &p, end, m->max_rep) && begin_levels(&r->def, &p, end, m->max_def);
    }
    if (!good) return damaged(r, "its levels are longer than it is", e);
    if (h->n_values > m->chunks[r->chunk].n_values - r->seen)
        return damaged(r, "it has more values than its row group", e);
    r->given += h->n_values;
    if (r->given > r->allowed) return refused(r, "it has more than 500 values for a byte: it looks like a bomb", e);
    const char *wrong = parquet_values_init(&r->values, (int)h->encoding, p, (size_t)(end - p), h->n_values,
                                            r->has_dictionary ? &r->dictionary : NULL);
    if (wrong) {
        char text[200];
        snprintf(text, sizeof text, "%s (%s)", wrong, parquet_encoding_name((int)h->encoding));
        return damaged(r, text, e);
    }
    r->left = h->n_values;
    return OK;
}

/* The next page with values: 1; 0: the row group is at its end. */
static int next_page(struct parquet_pages *r, struct err *e)
{
    const struct parquet_chunk *c = &r->meta->chunks[r->chunk];
    while (r->left == 0) {
        if (r->seen == c->n_values) return 0;
        struct page_head h;
        if (r->at >= c->end) return damaged(r, "it is the last one, and its row group has more values", e);
        int code = read_head(r, &h, e);
        if (code) return code;
        if (h.type == DICTIONARY) code = read_dictionary(r, &h, e);
        else if (h.type == DATA || h.type == DATA_2) code = begin_data(r, &h, e);
        else r->at += h.packed; /* an index, or something newer that may be passed over */
        if (code) return code;
    }
    return 1;
}

int parquet_pages_next(struct parquet_pages *r, struct parquet_value *v, struct err *e)
{
    int got = next_page(r, e);
    if (got <= 0) return got;
    uint32_t rep = 0, def = 0;
    const struct parquet_meta *m = r->meta;
    if (m->max_rep && !rle_next(&r->rep, &rep)) return damaged(r, "it has fewer repetition levels than values", e);
    if (m->max_def && !rle_next(&r->def, &def)) return damaged(r, "it has fewer definition levels than values", e);
    if ((int64_t)rep > m->max_rep || (int64_t)def > m->max_def)
        return damaged(r, "a level is higher than the schema's", e);
    if (r->seen == 0 && rep) return damaged(r, "its row group begins in the middle of a row", e);
    r->left--;
    r->seen++;
    *v = (struct parquet_value){.begins_row = rep == 0,
                                .there = (int64_t)def == m->max_def,
                                .rep = (int)rep,
                                .def = (int)def};
    if (!v->there) return 1;
    const char *wrong = parquet_values_next(&r->values, &v->p, &v->n);
    if (wrong) return damaged(r, wrong, e);
    r->given += (int64_t)v->n;
    if (r->given > r->allowed)
        return refused(r, "its texts are more than 500 times the file's bytes: it looks like a bomb", e);
    return 1;
}
