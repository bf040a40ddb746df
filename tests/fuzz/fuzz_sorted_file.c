/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_sorted_file.c: any bytes as a work file of records, and as one whose checksums are right: read to the end or
 * refused, never more records than the bytes hold. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "curate/sorted_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void read_all(const char *path, int words, uint64_t key, size_t n)
{
    struct sorted_reader *r;
    struct err e;
    const uint64_t *record;
    if (sorted_open(&r, path, words, key, &e)) return;
    int64_t count = sorted_count(r), got = 0;
    CHECK(count >= 0 && (uint64_t)count * (uint64_t)words * 8 <= n, "%lld records in %zu bytes", (long long)count, n);
    while (sorted_next(r, &record, &e) > 0) {
        for (int i = 0; i < words; i++) got += record[i] == UINT64_MAX; /* reads all of it */
        count--;
    }
    CHECK(count >= 0 && got >= 0, "more records than there are");
    sorted_close(r);
}

static bool write_file(const char *path, const uint8_t *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    bool good = f && fwrite(p, 1, n, f) == n;
    return f && !fclose(f) && good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/tutti-fuzz-sorted-%d", (int)getpid());
    if (!write_file(path, data, n)) return 0;
    read_all(path, 3, 42, n);
    read_all(path, SORTED_WORDS_MAX, 0, n);
    if (n >= 48) { /* the same with a head, and a checksum of head and count that is right */
        uint8_t *mended = xmalloc(n);
        memcpy(mended, data, n);
        memcpy(mended, "tutti records 1\n\3\0\0\0\0\0\0\0\52\0\0\0\0\0\0\0", 32);
        struct hash64 h;
        hash64_init(&h);
        hash64_add(&h, mended, 32);
        hash64_add(&h, mended + n - 16, 8);
        uint64_t check = hash64_value(&h);
        memcpy(mended + n - 8, &check, 8);
        if (write_file(path, mended, n)) read_all(path, 3, 42, n);
        xfree(mended);
    }
    unlink(path);
    return 0;
}
