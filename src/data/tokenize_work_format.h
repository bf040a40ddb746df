/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize_work_format.h: the bytes of a work file; for tokenize_work.c, its fuzzer and tests only. Little-endian, as
 * it lies.
 */
#ifndef TUTTI_DATA_TOKENIZE_WORK_FORMAT_H
#define TUTTI_DATA_TOKENIZE_WORK_FORMAT_H

#include <stdint.h>

#include "token/text_parts.h"

#define WORK_MAGIC "tuttiwrk"
enum { WORK_VERSION = 2, COUNT_MAX = 1 << 28 };

struct work_head {
    char magic[8];
    uint32_t version, width;
    uint64_t key, sum; /* sum: of all before */
};

struct work_record_head {
    uint64_t before;  /* `sum` of the record before, or of the file's head */
    int64_t lot, seq; /* which record of which lot */
    struct parts_place after;
    int64_t n_begins, n_ids, n_ends, told_bytes, skipped;
    uint32_t open, done;
    char skipped_text[240];
    uint64_t body_sum; /* of the ids and ends */
    uint64_t sum;      /* of all before */
};

#endif
