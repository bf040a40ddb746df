/* SPDX-License-Identifier: Apache-2.0 */
#include "source/parquet_values.h"

#include <string.h>

#include "base/mem.h"

enum { VALUE_MAX = 256 << 20 };

static bool read_varint(const unsigned char **p, const unsigned char *end, uint64_t *v)
{
    *v = 0;
    for (int shift = 0; shift < 64 && *p < end; shift += 7) {
        unsigned b = *(*p)++;
        *v |= (uint64_t)(b & 0x7F) << shift;
        if (!(b & 0x80)) return true;
    }
    return false;
}

static uint64_t unzigzag(uint64_t v) { return v >> 1 ^ (0 - (v & 1)); }

static uint32_t read_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Number i of those packed in `width` bits, lowest bit first; the caller has seen that its bytes are there. */
static uint64_t packed_number(const unsigned char *p, uint64_t i, unsigned width)
{
    uint64_t bit = i * width, v = 0;
    p += bit / 8;
    unsigned skip = bit % 8, have = 0;
    while (have < width + skip) {
        uint64_t byte = *p++;
        if (have < skip) v = byte >> skip;
        else v |= byte << (have - skip);
        have += 8;
    }
    return width < 64 ? v & (((uint64_t)1 << width) - 1) : v;
}

/* -- runs --------------------------------------------------------------------------------------------------- */

void rle_init(struct rle *r, const void *p, size_t n, int width)
{
    *r = (struct rle){.p = p, .end = (const unsigned char *)p + n, .width = width};
}

static bool begin_run(struct rle *r)
{
    uint64_t head;
    if (!read_varint(&r->p, r->end, &head)) return false;
    r->packed = head & 1;
    r->run = 0;
    if (r->packed) {
        if (head >> 1 > UINT64_MAX / 64) return false;
        r->left = (head >> 1) * 8;
        return true;
    }
    size_t n = (size_t)(r->width + 7) / 8;
    if ((size_t)(r->end - r->p) < n) return false;
    r->left = head >> 1;
    r->value = 0;
    for (size_t i = 0; i < n; i++) r->value |= (uint32_t)r->p[i] << 8 * i;
    r->p += n;
    return true;
}

bool rle_next(struct rle *r, uint32_t *value)
{
    while (!r->left) {
        if (r->packed) r->p += r->run * (uint64_t)r->width / 8;
        r->packed = false;
        if (!begin_run(r)) return false;
    }
    r->left--;
    if (!r->packed) {
        *value = r->value;
        return true;
    }
    uint64_t bits = (r->run + 1) * (uint64_t)r->width;
    if ((bits + 7) / 8 > (uint64_t)(r->end - r->p)) return false;
    *value = (uint32_t)packed_number(r->p, r->run++, (unsigned)r->width);
    return true;
}

/* -- differences -------------------------------------------------------------------------------------------- */

bool delta_init(struct delta *d, const void *p, size_t n)
{
    uint64_t block, first;
    *d = (struct delta){.p = p, .end = (const unsigned char *)p + n, .first = true};
    if (!read_varint(&d->p, d->end, &block) || !read_varint(&d->p, d->end, &d->n_mini) ||
        !read_varint(&d->p, d->end, &d->left) || !read_varint(&d->p, d->end, &first))
        return false;
    if (!d->n_mini || d->n_mini > 4096 || !block || block > 1 << 24 || block % d->n_mini || block / d->n_mini % 8)
        return false;
    d->per_mini = block / d->n_mini;
    d->mini = d->n_mini;
    d->in_mini = d->per_mini;
    d->value = unzigzag(first);
    return true;
}

/* The next miniblock, and the head of the next block where one begins. */
static bool next_mini(struct delta *d)
{
    d->in_mini = 0;
    if (++d->mini >= d->n_mini) {
        uint64_t least;
        if (!read_varint(&d->p, d->end, &least) || (uint64_t)(d->end - d->p) < d->n_mini) return false;
        d->least = unzigzag(least);
        d->widths = d->p;
        d->p += d->n_mini;
        d->mini = 0;
    }
    unsigned width = d->widths[d->mini];
    uint64_t bytes = d->per_mini * width / 8;
    if (width > 64 || bytes > (uint64_t)(d->end - d->p)) return false;
    d->packed = d->p;
    d->p += bytes;
    return true;
}

bool delta_next(struct delta *d, int64_t *value)
{
    if (!d->left) return false;
    d->left--;
    if (!d->first) {
        if (d->in_mini == d->per_mini && !next_mini(d)) return false;
        d->value += d->least + packed_number(d->packed, d->in_mini++, d->widths[d->mini]);
    }
    d->first = false;
    *value = (int64_t)d->value;
    return true;
}

/* Goes over the numbers that begin at p to the bytes behind them, whose place is *after. */
static bool delta_pass(struct delta *d, const unsigned char *p, const unsigned char *end, int64_t most,
                       const unsigned char **after)
{
    int64_t value;
    struct delta over;
    if (!delta_init(d, p, (size_t)(end - p)) || d->left > (uint64_t)most) return false;
    over = *d;
    while (over.left)
        if (!delta_next(&over, &value)) return false;
    *after = over.p;
    return true;
}

/* -- byte arrays -------------------------------------------------------------------------------------------- */

const char *parquet_encoding_name(int encoding)
{
    static const char *const names[] =
        {"PLAIN",          "GROUP_VAR_INT",       "PLAIN_DICTIONARY",        "RLE",
         "BIT_PACKED",     "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
         "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"};
    return encoding >= 0 && encoding < (int)(sizeof names / sizeof *names) ? names[encoding] : "unknown";
}

const char *parquet_dictionary_init(struct parquet_dictionary *d, const void *page, size_t n, int64_t n_values)
{
    const unsigned char *p = page;
    *d = (struct parquet_dictionary){.p = p};
    if (n_values < 0 || (uint64_t)n_values > n / 4 || n > UINT32_MAX)
        return "its dictionary has more values than bytes";
    d->begin = xmalloc((size_t)n_values * sizeof *d->begin + 1);
    for (size_t at = 0; d->n < n_values; d->n++) {
        if (n - at < 4) return "a value of its dictionary lies behind its end";
        size_t length = read_u32(p + at);
        at += 4;
        if (length > n - at) return "a value of its dictionary lies behind its end";
        d->begin[d->n] = (uint32_t)at;
        at += length;
    }
    return NULL;
}

const char *parquet_values_init(struct parquet_values *v, int encoding, const void *p, size_t n, int64_t most,
                                const struct parquet_dictionary *d)
{
    v->encoding = (enum parquet_encoding)encoding;
    v->p = p;
    v->end = v->p + n;
    v->dictionary = d;
    str_clear(&v->last);
    const unsigned char *after = v->p;
    switch (encoding) {
    case ENCODING_PLAIN: return NULL;
    case ENCODING_PLAIN_DICTIONARY:
    case ENCODING_RLE_DICTIONARY:
        if (!d) return "it needs a dictionary, and there is none";
        if (!n) return NULL; /* nulls only: rle_next fails where a value is asked for */
        if (v->p[0] > 32) return "its indices are of more than 32 bits";
        rle_init(&v->indices, v->p + 1, n - 1, v->p[0]);
        return NULL;
    case ENCODING_DELTA_LENGTH_BYTE_ARRAY:
        if (!delta_pass(&v->lengths, v->p, v->end, most, &after)) return "its lengths cannot be made out";
        v->p = after;
        return NULL;
    case ENCODING_DELTA_BYTE_ARRAY:
        if (!delta_pass(&v->prefixes, v->p, v->end, most, &after)) return "its prefixes' lengths cannot be made out";
        v->p = after;
        if (!delta_pass(&v->lengths, v->p, v->end, most, &after)) return "its suffixes' lengths cannot be made out";
        v->p = after;
        return NULL;
    default: return "its encoding is not one of texts";
    }
}

/* `length` bytes at v->p. */
static const char *take(struct parquet_values *v, uint64_t length, const char **p, size_t *n)
{
    if (length > (uint64_t)(v->end - v->p)) return "a value lies behind the page's end";
    *p = (const char *)v->p;
    *n = (size_t)length;
    v->p += length;
    return NULL;
}

static const char *next_by_prefix(struct parquet_values *v, const char **p, size_t *n)
{
    int64_t prefix, length;
    if (!delta_next(&v->prefixes, &prefix) || !delta_next(&v->lengths, &length))
        return "it has fewer values than it says";
    if (prefix < 0 || (uint64_t)prefix > v->last.n || length < 0)
        return "a value's prefix is longer than the value before";
    const char *suffix, *wrong = take(v, (uint64_t)length, &suffix, n);
    if (wrong) return wrong;
    if ((uint64_t)prefix + *n > VALUE_MAX) return "a value of more than 256 MiB";
    v->last.n = (size_t)prefix;
    str_add(&v->last, suffix, *n);
    *p = str_text(&v->last);
    *n = v->last.n;
    return NULL;
}

const char *parquet_values_next(struct parquet_values *v, const char **p, size_t *n)
{
    uint32_t index;
    int64_t length;
    switch (v->encoding) {
    case ENCODING_PLAIN:
        if (v->end - v->p < 4) return "it has fewer values than it says";
        length = read_u32(v->p);
        v->p += 4;
        return take(v, (uint64_t)length, p, n);
    case ENCODING_PLAIN_DICTIONARY:
    case ENCODING_RLE_DICTIONARY:
        if (v->p == v->end || !rle_next(&v->indices, &index)) return "it has fewer values than it says";
        if (index >= (uint64_t)v->dictionary->n) return "it points behind its dictionary's end";
        *p = (const char *)v->dictionary->p + v->dictionary->begin[index];
        *n = read_u32((const unsigned char *)*p - 4);
        return NULL;
    case ENCODING_DELTA_LENGTH_BYTE_ARRAY:
        if (!delta_next(&v->lengths, &length)) return "it has fewer values than it says";
        if (length < 0) return "a value has a length below 0";
        return take(v, (uint64_t)length, p, n);
    default: return next_by_prefix(v, p, n);
    }
}
