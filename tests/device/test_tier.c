/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps pread pwrite */
/* The tier of files: what is put there comes back, in whatever pieces and whoever is first; every call of the system
 * that fails is an error by name, and bytes that somebody changed are found. The calls are wrapped: they fail when told
 * to, and take their time in an order drawn from a seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/check.h"
#include "child.h"
#include "device/device.h"
#include "sanitized.h"

/* ---- the calls of the system ---- */
enum ill { WELL, FAILS, NOTHING, HALF }; /* an errno; 0 bytes; half of what was asked for, and the rest later */
static _Atomic int n_calls, ill_at, ill_errno;
static _Atomic enum ill ill;
static _Atomic int slow; /* a seed; 0: calls are as fast as they are */

static size_t before(size_t n, bool *dead)
{
    int k = atomic_fetch_add(&n_calls, 1) + 1;
    if (slow && rng_u32((uint64_t)slow, 1, (uint64_t)k) % 3 == 0) clock_sleep_s(0.002);
    *dead = false;
    if (!ill_at || k < ill_at) return n;
    if (ill == HALF) return n > 8192 ? n / 2 / 4096 * 4096 : n;
    *dead = ill != WELL;
    return n;
}

ssize_t __real_pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at);

ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at)
{
    bool dead;
    n = before(n, &dead);
    if (!dead) return __real_pwrite(fd, p, n, at);
    errno = ill_errno;
    return ill == NOTHING ? 0 : -1;
}

ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
    bool dead;
    n = before(n, &dead);
    if (!dead) return __real_pread(fd, p, n, at);
    errno = ill_errno;
    return ill == NOTHING ? 0 : -1;
}

static void get_well(void)
{
    ill_at = n_calls = slow = 0;
    ill = WELL;
}

static struct tier *open_here(size_t bytes, char **at)
{
    struct tier *t;
    struct err e;
    get_well();
    if (tier_open(&t, ".", &e)) fail_msg("%s", e.text);
    *at = tier_take(t, bytes);
    if (tier_reserve(t, &e)) fail_msg("%s", e.text);
    get_well();
    return t;
}

static void close_here(struct tier *t, size_t bytes)
{
    get_well();
    tier_give(t, bytes);
    tier_close(t);
}

/* ---- bytes ---- */
/* Puts and gets of random stretches, many under way, against plain memory; each is waited for when its own memory is
 * wanted again. Stretches meet in blocks and overlap. */
static void test_random_life(void **state)
{
    (void)state;
    enum { BYTES = 5 << 20, MOVES = 250, SLOTS = 6, MOST = 1 << 20 };
    char *at, *model = xcalloc(1, BYTES), *memory = mem_pages_new(SLOTS * MOST), *want = xmalloc(SLOTS * MOST);
    struct tier *t = open_here(BYTES, &at);
    struct err e = {0};
    uint64_t last[SLOTS] = {0};
    size_t got[SLOTS] = {0};
    slow = 5;
    for (uint64_t i = 0; i < MOVES; i++) {
        uint64_t k = i % SLOTS, how = rng_u32(1, 1, i);
        size_t n = how % 3 ? 1 + rng_u32(1, 2, i) % 20000 : 1 + rng_u32(1, 2, i) % (MOST - 64),
               lo = rng_u32(1, 3, i) % (BYTES - n);
        char *p = memory + k * MOST + (how % 5 ? how % 64 : 0);
        if (how % 7 == 0) lo = lo / TIER_BLOCK * TIER_BLOCK; /* also straight from the caller's memory */
        tier_wait(t, last[k]);
        if (got[k]) assert_memory_equal(memory + k * MOST, want + k * MOST, MOST);
        got[k] = 0;
        if (how & 1 << 10) {
            for (size_t b = 0; b < n; b++) p[b] = (char)rng_u32(2, i, b / 7);
            memcpy(model + lo, p, n);
            last[k] = tier_put(t, at + lo, p, n);
        } else {
            memcpy(want + k * MOST, memory + k * MOST, MOST);
            memcpy(want + (p - memory), model + lo, n);
            last[k] = tier_get(t, p, at + lo, n);
            got[k] = n;
        }
        if (i % 97 != 50) continue;
        tier_zero(t, at + lo, n); /* after what was begun */
        memset(model + lo, 0, n);
    }
    for (int k = 0; k < SLOTS; k++) tier_wait(t, last[k]);
    if (tier_status(t, &e)) fail_msg("%s", e.text);
    tier_wait(t, tier_get(t, memory, at, BYTES));
    assert_memory_equal(memory, model, BYTES);
    struct tier_counts c = tier_counts(t);
    assert_true(c.put_bytes > 0 && c.got_bytes > 0 && c.busy_s > 0 && c.waited_s > 0);
    close_here(t, BYTES);
    mem_pages_free(memory, SLOTS * MOST);
    xfree(model);
    xfree(want);
}

/* What nobody wrote is zeros, and no call is made for it. */
static void test_fresh(void **state)
{
    (void)state;
    enum { BYTES = 3 * TIER_BLOCK + 100 };
    char *at, out[BYTES], in[10] = "somewhere";
    struct tier *t = open_here(BYTES, &at);
    memset(out, 1, BYTES);
    tier_wait(t, tier_get(t, out, at, BYTES));
    for (int i = 0; i < BYTES; i++) assert_int_equal(out[i], 0);
    assert_int_equal(n_calls, 0);
    tier_wait(t, tier_put(t, at + TIER_BLOCK + 7, in, sizeof in));
    assert_int_equal(n_calls, 1);
    tier_wait(t, tier_get(t, out, at, BYTES));
    assert_int_equal(n_calls, 2); /* of one block of the four */
    assert_memory_equal(out + TIER_BLOCK + 7, in, sizeof in);
    tier_zero(t, at, BYTES);
    tier_wait(t, tier_get(t, out, at, BYTES));
    for (int i = 0; i < BYTES; i++) assert_int_equal(out[i], 0);
    close_here(t, BYTES);
}

/* ---- what fails ---- */
/* Some work on a tier; false when something of it differs from what it must be without the tier saying so. */
static bool work(struct tier *t, char *at, size_t bytes)
{
    char *in = xmalloc(bytes), *out = xmalloc(bytes);
    for (size_t i = 0; i < bytes; i++) in[i] = (char)rng_u32(3, 1, i);
    memset(out, 1, bytes);
    uint64_t put = 0;
    for (size_t lo = 0; lo < bytes; lo += 90001)
        put = tier_put(t, at + lo, in + lo, bytes - lo < 300001 ? bytes - lo : 90001);
    tier_wait(t, tier_get(t, out, at, bytes));
    tier_wait(t, put);
    bool same = !memcmp(in, out, bytes);
    xfree(in);
    xfree(out);
    return same;
}

static void test_every_call_fails(void **state)
{
    (void)state;
    enum { BYTES = 500000 };
    static const struct {
        enum ill ill;
        int number;
        const char *says;
    } ills[] = {{FAILS, EIO, "Input/output error"}, {FAILS, ENOSPC, "No space left"}, {NOTHING, 0, "cannot"}};
    char *at;
    struct err e;
    struct tier *t = open_here(BYTES, &at);
    assert_true(work(t, at, BYTES));
    int calls = n_calls;
    close_here(t, BYTES);
    assert_true(calls > 10);
    for (int i = 0; i < 3; i++)
        for (int k = 1; k <= calls; k++) {
            t = open_here(BYTES, &at);
            ill = ills[i].ill;
            ill_errno = ills[i].number;
            ill_at = k;
            (void)work(t, at, BYTES);
            get_well();
            int rc = tier_status(t, &e);
            assert_int_equal(rc, ERR_IO);
            assert_contains(e.text, "memory.offload_to: .: cannot");
            assert_contains(e.text, ills[i].says);
            char first[sizeof e.text];
            memcpy(first, e.text, sizeof first);
            assert_false(work(t, at, BYTES)); /* the disk is well again; the run is over all the same */
            assert_int_equal(tier_status(t, &e), ERR_IO);
            assert_string_equal(e.text, first);
            close_here(t, BYTES);
        }
    for (int k = 1; k <= calls; k += 3) { /* less than was asked for is gone on with */
        t = open_here(BYTES, &at);
        ill = HALF;
        ill_at = k;
        assert_true(work(t, at, BYTES));
        assert_int_equal(tier_status(t, &e), OK);
        close_here(t, BYTES);
    }
}

/* One bit, anywhere in what was written. */
static void test_flipped(void **state)
{
    (void)state;
    enum { BYTES = 600000 };
    for (uint64_t i = 0; i < 20; i++) {
        char *at, *block = mem_pages_new(TIER_BLOCK);
        struct err e;
        struct tier *t = open_here(BYTES, &at);
        assert_true(work(t, at, BYTES));
        off_t bit = (off_t)(rng_u32(4, 1, i) % (8 * BYTES)), lo = bit / 8 / TIER_BLOCK * TIER_BLOCK;
        assert_int_equal(__real_pread(tier_file(t), block, TIER_BLOCK, lo), TIER_BLOCK);
        block[bit / 8 - lo] = (char)(block[bit / 8 - lo] ^ 1 << bit % 8);
        assert_int_equal(__real_pwrite(tier_file(t), block, TIER_BLOCK, lo), TIER_BLOCK);
        char *out = xmalloc(BYTES);
        memset(out, 1, BYTES);
        tier_wait(t, tier_get(t, out, at, BYTES));
        assert_int_equal(tier_status(t, &e), ERR_IO);
        assert_contains(e.text, "are not those that were written");
        xfree(out);
        mem_pages_free(block, TIER_BLOCK);
        close_here(t, BYTES);
    }
}

/* Timing moves what it was asked to, in whole blocks, in a file that has less room than that, or hardly any. */
static void test_time(void **state)
{
    (void)state;
    static const int64_t room[] = {600000, 100, 9 << 20};
    for (size_t i = 0; i < sizeof room / sizeof *room; i++) {
        char *at;
        struct tier *t = open_here((size_t)room[i], &at);
        assert_true(tier_time(t, 3 << 20, (5 << 20) + 7) > 0);
        struct tier_counts c = tier_counts(t);
        assert_true(c.put_bytes == 3 << 20 && c.got_bytes == (5 << 20) + TIER_BLOCK);
        assert_int_equal(tier_status(t, NULL), OK);
        close_here(t, (size_t)room[i]);
    }
}

/* Measuring leaves nothing behind: what nobody wrote is zeros still, and no bytes were moved. */
static void test_measure(void **state)
{
    (void)state;
    static const size_t room[] = {100, 600000, 9 << 20};
    for (size_t i = 0; i < sizeof room / sizeof *room; i++) {
        char *at, *out = xmalloc(room[i]);
        double put = 0, get = 0;
        struct tier *t = open_here(room[i], &at);
        tier_measure(t, &put, &get);
        assert_true(put > 0 && get > 0);
        struct tier_counts c = tier_counts(t);
        assert_true(!c.put_bytes && !c.got_bytes);
        memset(out, 1, room[i]);
        tier_wait(t, tier_get(t, out, at, room[i]));
        for (size_t k = 0; k < room[i]; k++) assert_int_equal(out[k], 0);
        assert_int_equal(tier_status(t, NULL), OK);
        xfree(out);
        close_here(t, room[i]);
    }
}

static void test_folders(void **state)
{
    (void)state;
    struct tier *t;
    struct err e;
    get_well();
    assert_int_equal(tier_open(&t, "no/such/folder", &e), ERR_REQUEST);
    assert_contains(e.text, "memory.offload_to: no/such/folder");
    assert_contains(e.text, "make it");
    assert_int_equal(tier_open(&t, "/dev/null", &e), ERR_REQUEST);
    assert_contains(e.text, "is no folder");
    assert_int_equal(tier_open(&t, "/proc", &e), ERR_REQUEST);
    assert_contains(e.text, "no file can be made");
    if (tier_open(&t, ".", &e)) fail_msg("%s", e.text); /* more than any disk has */
    (void)tier_take(t, (size_t)1 << 60);
    int rc = tier_reserve(t, &e);
    assert_int_equal(rc, ERR_REQUEST);
    assert_contains(e.text, "this rank offloads 1.0 EiB, and the disk has");
    tier_give(t, (size_t)1 << 60);
    tier_close(t);
}

/* A file that may not grow that far (ulimit -f). */
static int limited(void *p)
{
    struct tier *t;
    struct err e;
    (void)p;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, 1 << 20});
    if (tier_open(&t, ".", &e)) return 1;
    (void)tier_take(t, 4 << 20);
    return tier_reserve(t, &e) == ERR_REQUEST && strstr(e.text, "ulimit -f") ? 0 : 2;
}

static void test_limited(void **state)
{
    (void)state;
    assert_int_equal(child_end(limited, NULL), 0);
}

/* ---- a device with a tier ---- */
/* Copies on a stream without kernels are under way when the call returns; events and waits put an order there. */
static void test_device(void **state)
{
    (void)state;
    enum { BYTES = 3 << 20 };
    struct device *d;
    struct stream *copies, *compute;
    struct kernel_table *none = (struct kernel_table *)&n_calls; /* any: a stream that computes */
    struct event *ev;
    struct buffer a, b, disk;
    struct tier *t;
    struct err e;
    assert_int_equal(device_cpu_new(&d, 1, &e), OK);
    get_well();
    if (tier_open(&t, ".", &e)) fail_msg("%s", e.text);
    device_tier_set(d, t);
    assert_int_equal(stream_new(&copies, d, "copies", &e), OK);
    assert_int_equal(stream_new(&compute, d, "compute", &e), OK);
    assert_int_equal(event_new(&ev, d, &e), OK);
    assert_int_equal(buffer_new(&a, d, MEM_PARAM, BYTES, &e), OK);
    assert_int_equal(buffer_new(&b, d, MEM_PARAM, BYTES, &e), OK);
    assert_int_equal(buffer_new(&disk, d, MEM_DISK, BYTES, &e), OK);
    assert_true(d->ledger.now[MEM_DISK] == BYTES);
    assert_true(d->ledger.now[MEM_DATA] == TIER_ROOMS + BYTES / TIER_BLOCK * sizeof(uint64_t));
    assert_true(d->ledger.now_total == 2 * BYTES + d->ledger.now[MEM_DATA]);
    assert_int_equal(tier_reserve(t, &e), OK);
    char *in = xmalloc(BYTES), *out = xmalloc(BYTES);
    for (int i = 0; i < BYTES; i++) in[i] = (char)rng_u32(1, 2, (uint64_t)i);
    device_from_host(compute, &a, 0, in, BYTES);
    slow = 3;
    stream_put_away(copies, disk.p, a.p, BYTES);
    stream_bring_back(copies, b.p, disk.p, BYTES);
    event_record(ev, copies);
    event_wait(compute, ev);
    assert_memory_equal(device_peek(compute, b.p, BYTES, out), in, BYTES);
    device_to_host(copies, out, &disk, 5, BYTES - 5);
    stream_sync(copies);
    assert_memory_equal(out, in + 5, BYTES - 5);
    device_zero(copies, &disk, 100, 9000);
    memset(in + 100, 0, 9000);
    assert_memory_equal(device_peek(copies, disk.p, BYTES, out), in, BYTES);
    compute->kernels = none;
    memcpy(out, in, 20000);
    device_from_host(compute, &disk, 50000, out, 20000); /* here it is done at once */
    memset(out, 1, 20000);
    compute->kernels = NULL;
    device_to_host(copies, out, &disk, 0, BYTES);
    stream_sync(copies);
    assert_memory_equal(out + 50000, in, 20000);
    assert_int_equal(device_status(d, &e), OK);
    xfree(in);
    xfree(out);
    buffer_free(&a);
    buffer_free(&b);
    buffer_free(&disk);
    event_free(ev);
    stream_free(copies);
    stream_free(compute);
    get_well();
    device_free(d);
}

/* What becomes resident for a file is on the ledger: opened, measured and used. 1 MiB for threads, and for a system
 * that counts pages in batches. */
static int resident(void *p)
{
    enum { BYTES = 48 << 20, LEAST = 1 << 20 };
    struct device *d;
    struct buffer disk;
    struct stream *copies;
    struct tier *t;
    struct err e;
    double put, get;
    (void)p;
    if (device_cpu_new(&d, 1, &e) || stream_new(&copies, d, "copies", &e)) return 1;
    char *here = mem_pages_new(LEAST + TIER_BLOCK);
    memset(here, 1, LEAST + TIER_BLOCK);
    size_t before = mem_rss_peak();
    if (tier_open(&t, ".", &e)) return 1;
    device_tier_set(d, t);
    if (buffer_new(&disk, d, MEM_DISK, BYTES, &e) || tier_reserve(t, &e)) return 2;
    tier_measure(t, &put, &get);
    if (put <= 0 || get <= 0 || tier_counts(t).put_bytes) return 3;
    for (int way = 0; way < 2; way++)
        for (int at = 0; at < BYTES; at += LEAST) /* across blocks, so through the threads' rooms */
            if (way) stream_bring_back(copies, here + 8, (char *)disk.p + at, LEAST);
            else stream_put_away(copies, (char *)disk.p + at, here + 8, LEAST);
    stream_sync(copies);
    if (device_status(d, &e)) return 4;
    size_t grown = mem_rss_peak() - before, told = d->ledger.peak_total;
    if (grown > told + LEAST) return 5;
    if (grown + LEAST < told) return 6; /* and what is on the ledger is there */
    buffer_free(&disk);
    stream_free(copies);
    if (d->ledger.now_total) return 7;
    device_free(d);
    return 0;
}

static void test_resident(void **state)
{
    (void)state;
    get_well();
    if (SANITIZED) skip();
    assert_int_equal(child_end(resident, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_life), cmocka_unit_test(test_fresh),   cmocka_unit_test(test_every_call_fails),
        cmocka_unit_test(test_flipped),     cmocka_unit_test(test_time),    cmocka_unit_test(test_measure),
        cmocka_unit_test(test_folders),     cmocka_unit_test(test_limited), cmocka_unit_test(test_device),
        cmocka_unit_test(test_resident),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
