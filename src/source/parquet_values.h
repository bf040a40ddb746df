/* SPDX-License-Identifier: Apache-2.0 */
/* parquet_values.h: the encodings of Parquet ("Parquet encoding definitions"), read value by value in constant memory.
 *
 * Nothing is decoded ahead: a page that claims more values than its bytes hold fails at the first that is not there.
 * Includes: base. Order: Local.
 */
#ifndef TUTTI_SOURCE_PARQUET_VALUES_H
#define TUTTI_SOURCE_PARQUET_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum parquet_encoding {
    ENCODING_PLAIN = 0,
    ENCODING_PLAIN_DICTIONARY = 2,
    ENCODING_RLE = 3,
    ENCODING_BIT_PACKED = 4,
    ENCODING_DELTA_BINARY_PACKED = 5,
    ENCODING_DELTA_LENGTH_BYTE_ARRAY = 6,
    ENCODING_DELTA_BYTE_ARRAY = 7,
    ENCODING_RLE_DICTIONARY = 8,
    ENCODING_BYTE_STREAM_SPLIT = 9
};

/* Runs of one number, and numbers packed in bits: levels, and indices of a dictionary. */
struct rle {
    const unsigned char *p, *end;
    int width; /* bits of a number, 0 to 32 */
    bool packed;
    uint64_t left, run; /* numbers of the run still to come, and of a packed one those behind */
    uint32_t value;
};
void rle_init(struct rle *r, const void *p, size_t n, int width);
bool rle_next(struct rle *r, uint32_t *value); /* false: the bytes are at their end, or wrong */

/* DELTA_BINARY_PACKED. */
struct delta {
    const unsigned char *p, *end; /* behind the last miniblock that was begun */
    uint64_t left;                /* numbers still to come */
    uint64_t per_mini, n_mini, mini, in_mini;
    const unsigned char *widths, *packed; /* of the block; of the miniblock */
    uint64_t value, least;
    bool first;
};
bool delta_init(struct delta *d, const void *p, size_t n);
bool delta_next(struct delta *d, int64_t *value);

struct parquet_dictionary {
    const unsigned char *p; /* its page */
    uint32_t *begin;        /* of value i, behind its length; n of them */
    int64_t n;
};

/* Byte arrays of a page. */
struct parquet_values {
    enum parquet_encoding encoding;
    const unsigned char *p, *end;
    struct rle indices;
    const struct parquet_dictionary *dictionary;
    struct delta lengths, prefixes;
    struct str last; /* the value before, of DELTA_BYTE_ARRAY */
};
/* NULL, or why these bytes cannot be read. most: there are at most so many. `last` is kept, to be used
 * again. */
const char *parquet_values_init(struct parquet_values *v, int encoding, const void *p, size_t n, int64_t most,
                                const struct parquet_dictionary *d);
/* The next value; it stays until the next call. NULL, or what is wrong with it. */
const char *parquet_values_next(struct parquet_values *v, const char **p, size_t *n);
const char *parquet_encoding_name(int encoding);

/* The values of a dictionary's page, which stays where it is. NULL, or what is wrong. xfree(d->begin). */
const char *parquet_dictionary_init(struct parquet_dictionary *d, const void *p, size_t n, int64_t n_values);

#endif
