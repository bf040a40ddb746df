/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_tokenfile.c: any bytes as a token file: refused with words, or readable from end to end without touching a byte
 * outside. The first byte of the input says whether the checksums of head and tail are put right first: without that
 * no mutant would get past them.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "data/tokenfile.h"
#include "data/tokenfile_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void repair(unsigned char *p, size_t n)
{
    if (n < sizeof(struct head_bytes) + sizeof(struct tail_bytes)) return;
    struct head_bytes head;
    struct tail_bytes tail;
    memcpy(&head, p, sizeof head);
    memcpy(&tail, p + n - sizeof tail, sizeof tail);
    head.sum = hash64(&head, offsetof(struct head_bytes, sum));
    tail.head_sum = head.sum;
    size_t sums = n - sizeof tail - sizeof head;
    if (tail.n_sums >= 0 && (uint64_t)tail.n_sums <= sums / 8)
        tail.sums_sum = hash64(p + n - sizeof tail - 8 * (size_t)tail.n_sums, 8 * (size_t)tail.n_sums);
    tail.sum = hash64(&tail, offsetof(struct tail_bytes, sum));
    memcpy(tail.magic, TOKENFILE_END, 8);
    memcpy(p, &head, sizeof head);
    memcpy(p + n - sizeof tail, &tail, sizeof tail);
}

static void read_through(const char *path)
{
    struct tokenfile f;
    struct err e = {0};
    if (tokenfile_open(&f, path, &e)) {
        CHECK(strstr(e.text, path), "an error without its place: %s", e.text);
        return;
    }
    int32_t ids[64];
    for (int64_t at = 0; at < f.n_tokens; at += 64) {
        int64_t n = f.n_tokens - at < 64 ? f.n_tokens - at : 64;
        if (tokenfile_read(&f, at, n, ids, &e)) continue;
        for (int64_t i = 0; i < n; i++)
            CHECK(ids[i] >= 0 && ids[i] < f.head.vocab, "id %d of %d", ids[i], f.head.vocab);
    }
    (void)tokenfile_verify(&f, &e);
    tokenfile_close(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1) return 0;
    unsigned char *copy = xmalloc(n);
    memcpy(copy, data + 1, n - 1);
    if (data[0] & 1) repair(copy, n - 1);
    int fd = memfd_create("fuzz", 0);
    CHECK(fd >= 0 && write(fd, copy, n - 1) == (ssize_t)(n - 1), "no file to write to");
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    read_through(path);
    close(fd);
    xfree(copy);
    return 0;
}
