/* SPDX-License-Identifier: Apache-2.0 */
/* tokenfile_format.h: the bytes of a token file's head and tail; for tokenfile.c and tokenfile_write.c only. */
#ifndef TUTTI_DATA_TOKENFILE_FORMAT_H
#define TUTTI_DATA_TOKENFILE_FORMAT_H

#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are read as they lie, little-endian");

/* Version 1 had a checksum per MiB. A sample is a few KiB, and its first touch reads all that lies under the same
 * checksum. */
enum { TOKENFILE_VERSION = 2, TOKENFILE_CHUNK = 16 << 10, TOKENFILE_CHUNK_1 = 1 << 20 };
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
    int64_t n_tokens, n_documents, n_sums;
    uint64_t sums_sum; /* hash64 of the checksums */
    uint64_t head_sum; /* the head's: a head and a tail of two files do not match */
    uint64_t zero;
    uint64_t sum; /* hash64 of all before */
    char magic[8];
};
_Static_assert(sizeof(struct tail_bytes) == 64, "the tail has a fixed place");

#endif
