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

static void repair_older(unsigned char *p, size_t n, const struct head_bytes *head)
{
    struct tail_bytes_2 tail;
    memcpy(&tail, p + n - sizeof tail, sizeof tail);
    tail.head_sum = head->sum;
    size_t sums = n - sizeof tail - sizeof *head;
    if (tail.n_sums >= 0 && (uint64_t)tail.n_sums <= sums / 8)
        tail.sums_sum = hash64(p + n - sizeof tail - 8 * (size_t)tail.n_sums, 8 * (size_t)tail.n_sums);
    tail.sum = hash64(&tail, offsetof(struct tail_bytes_2, sum));
    memcpy(tail.magic, TOKENFILE_END, 8);
    memcpy(p + n - sizeof tail, &tail, sizeof tail);
}

/* Checksums of the tables' chunks as well, where their sizes fit the file. */
static void repair_tables(unsigned char *p, size_t n, struct tail_bytes *tail)
{
    size_t room = n - sizeof(struct head_bytes) - sizeof *tail, at = sizeof(struct head_bytes), sums = 0, chunks = 0;
    for (int t = 0; t < TOKENFILE_TABLES; t++) {
        if (tail->bytes[t] < 0 || (uint64_t)tail->bytes[t] > room) return;
        sums += ((size_t)tail->bytes[t] + 7) / 8 * 8;
        chunks += ((size_t)tail->bytes[t] + TOKENFILE_CHUNK - 1) / TOKENFILE_CHUNK;
    }
    if (sums + 8 * chunks > room) return;
    sums += at;
    for (int t = 0; t < TOKENFILE_TABLES; t++) {
        size_t bytes = (size_t)tail->bytes[t], first = sums;
        for (size_t from = 0; from < bytes; from += TOKENFILE_CHUNK, sums += 8) {
            uint64_t sum = hash64(p + at + from, bytes - from < TOKENFILE_CHUNK ? bytes - from : TOKENFILE_CHUNK);
            memcpy(p + sums, &sum, sizeof sum);
        }
        tail->sums_sum[t] = hash64(p + first, sums - first);
        at += (bytes + 7) / 8 * 8;
    }
}

static void repair(unsigned char *p, size_t n)
{
    struct head_bytes head;
    struct tail_bytes tail;
    if (n < sizeof head + sizeof(struct tail_bytes_2)) return;
    memcpy(&head, p, sizeof head);
    head.sum = hash64(&head, offsetof(struct head_bytes, sum));
    memcpy(p, &head, sizeof head);
    if (head.version < 3) repair_older(p, n, &head);
    if (head.version < 3 || n < sizeof head + sizeof tail) return;
    memcpy(&tail, p + n - sizeof tail, sizeof tail);
    tail.head_sum = head.sum;
    repair_tables(p, n, &tail);
    tail.sum = hash64(&tail, offsetof(struct tail_bytes, sum));
    memcpy(tail.magic, TOKENFILE_END, 8);
    memcpy(p + n - sizeof tail, &tail, sizeof tail);
}

static void read_documents(struct tokenfile *f)
{
    struct err e;
    int64_t begin, end, byte;
    if (tokenfile_find_ends(f, NULL, &e)) return;
    for (int64_t i = 0; i < f->n_documents; i++) {
        char *input = NULL;
        if (!tokenfile_document(f, i, &begin, &end, &e))
            CHECK(begin >= 0 && begin < end && end <= f->n_tokens, "document [%lld, %lld)", (long long)begin,
                  (long long)end);
        if (!tokenfile_origin(f, i, &input, &byte, &e)) CHECK(byte >= -1, "byte %lld", (long long)byte);
        xfree(input);
    }
    if (f->n_tokens && !tokenfile_document_of(f, f->n_tokens / 2, &begin, &e))
        CHECK(begin < f->n_documents, "document %lld", (long long)begin);
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
    unsigned char mask[64];
    for (int64_t at = 0; at < f.n_tokens; at += 64) {
        int64_t n = f.n_tokens - at < 64 ? f.n_tokens - at : 64;
        if (!tokenfile_mask(&f, at, n, mask, &e))
            for (int64_t i = 0; i < n; i++) CHECK(mask[i] <= 1, "a bit of %d", mask[i]);
        if (tokenfile_read(&f, at, n, ids, &e)) continue;
        for (int64_t i = 0; i < n; i++)
            CHECK(ids[i] >= 0 && ids[i] < f.head.vocab, "id %d of %d", ids[i], f.head.vocab);
    }
    (void)tokenfile_verify(&f, &e);
    read_documents(&f);
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
