/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_unpack.c: any bytes as a packed file: unpacked, or refused with words that name the file; the same bytes
 * whatever the size of the reads. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "source/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static uint64_t read_through(struct blob *blob, size_t step, int *code)
{
    struct hash64 h;
    hash64_init(&h);
    struct unpack *u = unpack_new(blob);
    char *buf = xmalloc(step);
    struct err e = {0};
    size_t got = 1;
    int64_t all = 0;
    for (*code = OK; !*code && got && all < 1 << 22; all += (int64_t)got) {
        *code = unpack_read(u, buf, step, &got, &e);
        CHECK(got <= step, "%zu bytes in room for %zu", got, step);
        hash64_add(&h, buf, got);
        CHECK(!*code || strstr(e.text, "the file"), "an error without its place: %s", e.text);
    }
    unpack_free(u);
    xfree(buf);
    return hash64_value(&h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    int fd = memfd_create("fuzz", 0), large, small;
    CHECK(fd >= 0 && write(fd, data, n) == (ssize_t)n, "no file to write to");
    struct blob *blob;
    struct err e;
    CHECK(!blob_of_descriptor(&blob, "the file", fd, &e), "no file to read");
    uint64_t a = read_through(blob, 1 << 22, &large), b = read_through(blob, 61, &small);
    CHECK(large || small || a == b, "other bytes in other reads");
    blob_close(blob);
    return 0;
}
