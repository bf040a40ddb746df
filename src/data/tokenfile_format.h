/* SPDX-License-Identifier: Apache-2.0 */
/* tokenfile_format.h: the bytes of a token file's head and tail; for tokenfile*.c only. */
#ifndef TUTTI_DATA_TOKENFILE_FORMAT_H
#define TUTTI_DATA_TOKENFILE_FORMAT_H

#include <stdint.h>

#include "data/tokenfile.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are read as they lie, little-endian");

/* Version 1 had a checksum per MiB. A sample is a few KiB, and its first touch reads all that lies under the same
 * checksum. Versions 1 and 2 held tokens only. */
enum { TOKENFILE_VERSION = 3, TOKENFILE_CHUNK = 16 << 10, TOKENFILE_CHUNK_1 = 1 << 20 };
#define TOKENFILE_MAGIC "tuttitok"
#define TOKENFILE_END "tuttiend"

struct head_bytes {
    char magic[8];
    uint32_t version, width;
    int32_t vocab, eos;
    uint64_t fingerprint, key;
    unsigned char zeros[4096 - 48];
    uint64_t sum; /* hash64 of all before */
};
_Static_assert(sizeof(struct head_bytes) == 4096, "the tokens begin on a page");

struct tail_bytes {
    int64_t n_tokens, n_documents, n_inputs;
    int64_t bytes[TOKENFILE_TABLES];     /* of each table, without the zeros after it */
    uint64_t sums_sum[TOKENFILE_TABLES]; /* hash64 of each table's checksums */
    uint64_t head_sum;                   /* the head's: a head and a tail of two files do not match */
    uint64_t sum;                        /* hash64 of all before */
    char magic[8];
};
_Static_assert(sizeof(struct tail_bytes) == 144, "the tail has a fixed place");

/* Of versions 1 and 2. */
struct tail_bytes_2 {
    int64_t n_tokens, n_documents, n_sums;
    uint64_t sums_sum; /* hash64 of the checksums */
    uint64_t head_sum;
    uint64_t zero;
    uint64_t sum; /* hash64 of all before */
    char magic[8];
};
_Static_assert(sizeof(struct tail_bytes_2) == 64, "the tail has a fixed place");

/* In the table of origins, of a document of which nothing is known, also not its input. */
enum { ORIGIN_NONE = -2 };

/* An element of the table of inputs. */
struct input_bytes {
    int64_t first_document; /* that came from it */
    int64_t name_at;        /* byte in the table of names */
};

/* Bytes [lo, hi) of a table, compared on their first touch. */
int tokenfile_bytes(const struct tokenfile *f, enum tokenfile_table t, int64_t lo, int64_t hi, void *to, struct err *e);
/* ERR_CORRUPT with the file, what is wrong and what to do. */
int tokenfile_damaged(const struct tokenfile *f, const char *what, struct err *e);

#endif
