/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_tokenize_work.c: any bytes as a work file: what is not believed is made anew, what is handed out fits together.
 * The first byte of the input says whether checksums are put right first, and how wide tokens are: without that no
 * mutant would get past them.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "data/tokenize_work.h"
#include "data/tokenize_work_format.h"

enum { KEY = 7, N_LOTS = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Head and records, as far as their sizes fit. */
static void repair(unsigned char *p, size_t n, uint32_t width)
{
    struct work_head head;
    struct work_record_head r;
    if (n < sizeof head) return;
    memcpy(&head, p, sizeof head);
    memcpy(head.magic, WORK_MAGIC, 8);
    head.version = WORK_VERSION;
    head.width = width;
    head.key = KEY;
    head.sum = hash64(&head, offsetof(struct work_head, sum));
    memcpy(p, &head, sizeof head);
    uint64_t before = head.sum;
    for (size_t at = sizeof head; n - at >= sizeof r;) {
        memcpy(&r, p + at, sizeof r);
        const int64_t counts[] = {r.n_begins, r.n_ids, r.n_ends, r.told_bytes};
        for (int i = 0; i < 4; i++)
            if (counts[i] < 0 || (uint64_t)counts[i] > n) return;
        size_t body = (size_t)r.n_begins * sizeof(struct part_begin) + ((size_t)r.n_ids * width + 3) / 4 * 4 +
                      (size_t)r.n_ends * 4 + (size_t)r.told_bytes;
        body = (body + 7) / 8 * 8;
        if (body > n - at - sizeof r) return;
        r.before = before;
        r.body_sum = hash64(p + at + sizeof r, body);
        before = r.sum = hash64(&r, offsetof(struct work_record_head, sum));
        memcpy(p + at, &r, sizeof r);
        at += sizeof r + body;
    }
}

static int look(void *arg, const struct work_piece *p, struct err *e)
{
    uint64_t *sum = arg; /* of what was read: that it can be */
    (void)e;
    for (int64_t i = 0; i < p->n_ids; i++) *sum += (uint64_t)p->ids[i];
    for (int64_t i = 0; i < p->n_ends; i++)
        CHECK(p->ends[i] <= p->n_ids && (i == 0 || p->ends[i - 1] <= p->ends[i]), "end %lld", (long long)i);
    for (int64_t i = 0; i < p->n_begins; i++) *sum += (uint64_t)p->begins[i].file;
    for (const char *at = p->told; at < p->told + p->told_bytes; at += strlen(at) + 1) *sum += (unsigned char)*at;
    return OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1) return 0;
    uint32_t width = data[0] & 2 ? 4 : 2;
    unsigned char *copy = xmalloc(n);
    memcpy(copy, data + 1, n - 1);
    if (data[0] & 1) repair(copy, n - 1, width);
    int fd = memfd_create("work", 0);
    CHECK(fd >= 0 && write(fd, copy, n - 1) == (ssize_t)(n - 1), "no file in memory");
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct work *w;
    struct err e;
    uint64_t sum = 0;
    if (!work_open(&w, path, KEY, (int)width, N_LOTS, &e)) {
        if (work_replay(w, look, &sum, &e)) CHECK(*e.text, "refused without a reason");
        int32_t id = 3;
        int64_t lot = 0;
        while (lot + 1 < N_LOTS && work_lot(w, lot)->done) lot++;
        const struct work_piece more = {.lot = lot, .seq = work_lot(w, lot)->n, .ids = &id, .n_ids = 1};
        CHECK(work_lot(w, lot)->done || !work_add(w, &more, &e), "%s", e.text);
        CHECK(!work_replay(w, look, &sum, &e), "%s", e.text);
        work_close(w, false);
    }
    close(fd);
    xfree(copy);
    return 0;
}
