/* SPDX-License-Identifier: Apache-2.0 */
/* model_file.h: what curation learns, in a file: "TUTTIMOD", a kind and a version (u32 each), how many bytes follow
 * (u64), these, and their XXH64 (u64); little-endian. And reading numbers out of such bytes without going beyond them.
 * Includes: base. Order: Local. */
#ifndef TUTTI_CURATE_MODEL_FILE_H
#define TUTTI_CURATE_MODEL_FILE_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum model_kind { MODEL_LANGUAGE = 1, MODEL_QUALITY = 2 };

int model_file_write(const char *path, enum model_kind kind, uint32_t version, const struct str *payload,
                     struct err *e);
/* The payload, to be xfreed. what: "a language model". ERR_REQUEST: another kind or version; ERR_CORRUPT: damaged. */
int model_file_read(const char *path, enum model_kind kind, uint32_t version, const char *what, char **payload,
                    size_t *n, struct err *e);

/* Bytes that are read from the front; once there are too few, everything that is read is 0 and `ended` is set. */
struct model_bytes {
    const unsigned char *p;
    size_t n;
    bool ended;
};
uint64_t model_get(struct model_bytes *b, int bytes);             /* 1 to 8 */
const unsigned char *model_take(struct model_bytes *b, size_t n); /* NULL when there are fewer */
void model_put(struct str *out, uint64_t v, int bytes);
void model_put_real(struct str *out, float v);
float model_get_real(struct model_bytes *b);

#endif
