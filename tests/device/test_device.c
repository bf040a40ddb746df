/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: bytes move where they should, bad ranges are bugs, and the null device keeps the ledger of the cpu. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "child.h"
#include "device/device.h"

static struct stream *stream_of(struct device *d)
{
    struct stream *s;
    struct err e;
    if (stream_new(&s, d, "test", &e)) fail_msg("%s", e.text);
    return s;
}

static void test_bytes_move(void **state)
{
    (void)state;
    enum { BYTES = 3 << 20 }; /* large enough for the team */
    struct device *d;
    struct err e;
    assert_int_equal(device_cpu_new(&d, 2, &e), OK);
    struct stream *s = stream_of(d);
    struct buffer a, b;
    assert_int_equal(buffer_new(&a, d, MEM_PARAM, BYTES, &e), OK);
    assert_int_equal(buffer_new(&b, d, MEM_GRAD, BYTES, &e), OK);
    unsigned char *in = xmalloc(BYTES), *out = xmalloc(BYTES);
    for (int i = 0; i < BYTES; i++) in[i] = (unsigned char)rng_u32(1, 2, (uint64_t)i);
    device_to_host(s, out, &a, 0, BYTES);
    stream_sync(s);
    for (int i = 0; i < BYTES; i++) assert_int_equal(out[i], 0); /* fresh pages are zero */
    device_from_host(s, &a, 5, in, BYTES - 5);
    device_copy(s, &b, 1, &a, 5, BYTES - 5);
    device_zero(s, &b, 100, 50);
    device_to_host(s, out, &b, 1, BYTES - 5);
    stream_sync(s);
    memset(in + 99, 0, 50);
    assert_memory_equal(out, in, BYTES - 5);
    device_zero(s, &b, 0, BYTES);
    device_to_host(s, out, &b, 0, BYTES);
    for (int i = 0; i < BYTES; i++) assert_int_equal(out[i], 0);
    xfree(in);
    xfree(out);
    buffer_free(&a);
    buffer_free(&b);
    stream_free(s);
    device_free(d);
}

/* ---- a device that cannot be touched ---- */
static void moves(struct device *d)
{
    enum { BYTES = 2 << 20, ROWS = 7 };
    struct stream *s = stream_of(d);
    struct buffer a, b;
    struct err e;
    assert_int_equal(buffer_new(&a, d, MEM_PARAM, BYTES, &e), OK);
    assert_int_equal(buffer_new(&b, d, MEM_GRAD, BYTES, &e), OK);
    unsigned char *in = xmalloc(BYTES), *out = xmalloc(BYTES), room[100];
    for (int i = 0; i < BYTES; i++) in[i] = (unsigned char)rng_u32(1, 3, (uint64_t)i);
    device_from_host(s, &a, 0, in, BYTES);
    device_copy(s, &b, 3, &a, 3, BYTES - 3);
    stream_copy(s, (char *)b.p + 10, (char *)a.p + 1000, 50);
    memmove(in + 10, in + 1000, 50);
    stream_zero(s, (char *)b.p + 200, 9);
    memset(in + 200, 0, 9);
    stream_copy_rows(s, (char *)b.p + 1000, 30, (char *)a.p + 5000, 40, 20, ROWS);
    for (int i = 0; i < ROWS; i++) memcpy(in + 1000 + 30 * i, in + 5000 + 40 * i, 20);
    memset(in, 0, 3);
    device_to_host(s, out, &b, 0, BYTES);
    stream_sync(s);
    assert_memory_equal(out, in, BYTES);
    const void *seen = device_peek(s, (char *)b.p + 77, sizeof room, room);
    assert_memory_equal(seen, in + 77, sizeof room);
    assert_int_equal(seen == room, d->untouchable);
    assert_int_equal(device_is_direct(d), !d->untouchable);
    xfree(in);
    xfree(out);
    buffer_free(&a);
    buffer_free(&b);
    stream_free(s);
    device_free(d);
}

static void test_untouchable_moves(void **state)
{
    (void)state;
    struct device *d;
    struct err e;
    assert_int_equal(device_untouchable_new(&d, 2, &e), OK);
    moves(d);
    if (getenv("TUTTI_DEVICE")) return;
    assert_int_equal(device_cpu_new(&d, 2, &e), OK);
    moves(d);
}

/* Every device opens by its kind, says whether the host may touch its bytes, and knows an address of its own from the
 * host's where the two differ. */
static void test_each_is_opened(void **state)
{
    (void)state;
    bool forced = getenv("TUTTI_DEVICE") != NULL;
    for (int k = 0; k < DEVICE_KINDS; k++) {
        struct device *d;
        struct buffer b;
        struct err e;
        char host[8] = "host";
        bool cpu = k == DEVICE_CPU || k == DEVICE_CUDA_SIM, hidden = cpu ? forced : k != DEVICE_NULL;
        assert_int_equal(device_open(&d, (enum device_kind)k, 1, &e), OK);
        assert_int_equal(buffer_new(&b, d, MEM_PARAM, 4096, &e), OK);
        assert_string_equal(d->kernels, device_kernels((enum device_kind)k));
        assert_int_equal(d->counts_only, k == DEVICE_NULL);
        if (!cpu || !forced) assert_int_equal(device_is_direct(d), cpu);
        if (k != DEVICE_NULL) assert_true(device_owns(d, b.p) && device_owns(d, (char *)b.p + 4095));
        if (hidden && strcmp(getenv("TUTTI_DEVICE") ? getenv("TUTTI_DEVICE") : "", "cpu"))
            assert_false(device_owns(d, host));
        assert_true(strlen(device_kind_name((enum device_kind)k)) > 0);
        buffer_free(&b);
        device_free(d);
    }
    assert_int_equal(device_open(&(struct device *){0}, DEVICE_CPU, 0, &(struct err){0}), ERR_REQUEST);
}

/* What a user may say, and what is refused by its name. */
static void test_words(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        int kind; /* -1: refused */
        const char *says;
    } rows[] = {{"auto", DEVICE_CPU, ""},
                {"cpu", DEVICE_CPU, ""},
                {"cuda-sim", DEVICE_CUDA_SIM, ""},
                {"null", DEVICE_NULL, ""},
                {"cuda", -1, "cuda: this program has no code for a GPU"},
                {"cuda:1", -1, "cuda:1: this program has no code for a GPU"},
                {"late", -1, "wanted auto, cpu, cuda, cuda:N or cuda-sim, got late"},
                {"", -1, "wanted auto"},
                {"CPU", -1, "got CPU"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum device_kind k;
        struct err e = {0};
        int rc = device_asked(&k, rows[i].word, &e);
        assert_int_equal(rc, rows[i].kind < 0 ? ERR_REQUEST : OK);
        if (rc) assert_non_null(strstr(e.text, rows[i].says));
        else assert_int_equal(k, rows[i].kind);
    }
}

enum touch { READS, WRITES, MIDDLE, HOST_TO_KERNEL, KERNEL_TO_HOST, LOOKS_THROUGH };

static int touch(void *arg)
{
    enum touch how = *(enum touch *)arg;
    struct device *d;
    struct buffer b;
    struct stream *s;
    struct err e;
    char host[64] = {0};
    if (device_untouchable_new(&d, 1, &e) || buffer_new(&b, d, MEM_PARAM, 1 << 20, &e)) return CHILD_LOST;
    s = stream_of(d);
    volatile char *p = b.p;
    if (how == READS) host[0] = p[0];
    if (how == WRITES) p[0] = 1;
    if (how == MIDDLE) host[0] = p[(1 << 20) - 1];
    if (how == HOST_TO_KERNEL) stream_copy(s, b.p, host, 64);
    if (how == KERNEL_TO_HOST) stream_zero(s, host, 64);
    if (how == LOOKS_THROUGH) host[0] = *(const char *)device_here((const char *)b.p + 5);
    return host[0];
}

/* A host that reads or writes where a buffer says its bytes are is ended by the system; one that hands host memory over
 * as a device's, by a CHECK. */
static void test_touching_is_fatal(void **state)
{
    (void)state;
    for (enum touch how = READS; how <= LOOKS_THROUGH; how++) {
        int end = child_end(touch, &how);
        if (how < HOST_TO_KERNEL) assert_true(end == -SIGSEGV || end == -SIGBUS);
        else assert_int_equal(end, how < LOOKS_THROUGH ? -SIGABRT : 0);
    }
}

/* A buffer of the host: on the ledger, readable in place, and the other end of copies, on a device that cannot be
 * touched too. */
static void test_host_buffers(void **state)
{
    (void)state;
    struct device *d[3];
    struct err e;
    assert_int_equal(device_untouchable_new(&d[0], 1, &e), OK);
    assert_int_equal(device_cpu_new(&d[1], 1, &e), OK);
    assert_int_equal(device_null_new(&d[2], &e), OK);
    for (int i = 0; i < 3; i++) {
        struct buffer far, near;
        struct stream *s;
        assert_int_equal(stream_new(&s, d[i], "test", &e), OK);
        assert_int_equal(buffer_new(&far, d[i], MEM_PARAM, 64, &e), OK);
        assert_int_equal(buffer_new_host(&near, d[i], MEM_DATA, 64, &e), OK);
        assert_int_equal(d[i]->ledger.now[MEM_DATA], 64);
        if (i == 2) assert_null(near.p);
        else {
            assert_false(device_faults(near.p));
            memset(near.p, 7, 64);
            device_from_host(s, &far, 0, near.p, 64);
            stream_sync(s);
            memset(near.p, 0, 64);
            device_to_host(s, near.p, &far, 0, 64);
            stream_sync(s);
            for (int k = 0; k < 64; k++) assert_int_equal(((char *)near.p)[k], 7);
        }
        buffer_free(&near);
        buffer_free(&far);
        assert_int_equal(d[i]->ledger.now_total, 0);
        stream_free(s);
        device_free(d[i]);
    }
}

/* What files take of memory: two rooms of a piece and the blocks at its ends while there are any, and a checksum of 8
 * bytes for each block of a buffer. */
static size_t beside_disk(const struct buffer *b, int n)
{
    size_t rooms = 0, sums = 0;
    for (int i = 0; i < n; i++)
        if (b[i].dev && b[i].cat == MEM_DISK && b[i].bytes) {
            rooms = 2 * ((1 << 20) + 2 * 4096);
            sums += (b[i].bytes + 4095) / 4096 * 8;
        }
    return rooms + sums;
}

/* A random life of buffers, the same on both devices; a plain model keeps its own books. */
static void live(struct device *d, struct ledger *model)
{
    enum { SLOTS = 12, MOVES = 600 };
    struct buffer b[SLOTS] = {{0}};
    struct stream *s = stream_of(d);
    struct err e;
    size_t beside = 0;
    memset(model, 0, sizeof *model);
    for (uint64_t i = 0; i < MOVES; i++) {
        int slot = (int)(rng_u32(3, 0, i) % SLOTS);
        if (b[slot].dev) {
            model->now[b[slot].cat] -= b[slot].bytes;
            buffer_free(&b[slot]);
        } else {
            enum mem_cat cat = (enum mem_cat)(rng_u32(3, 1, i) % MEM_N);
            size_t bytes = rng_u32(3, 2, i) % 5 ? rng_u32(3, 3, i) % 100000 : 0;
            assert_int_equal(buffer_new(&b[slot], d, cat, bytes, &e), OK);
            if (cat < MEM_HOST) device_zero(s, &b[slot], bytes / 2, bytes - bytes / 2);
            model->now[cat] += bytes;
        }
        model->now[MEM_DATA] += beside_disk(b, SLOTS) - beside;
        beside = beside_disk(b, SLOTS);
        model->now_total = 0;
        for (int c = 0; c < MEM_N; c++) {
            if (c < MEM_HOST) model->now_total += model->now[c];
            if (model->now[c] > model->peak[c]) model->peak[c] = model->now[c];
        }
        if (model->now_total > model->peak_total) {
            model->peak_total = model->now_total;
            memcpy(model->at_peak, model->now, sizeof model->now);
        }
        for (int c = MEM_HOST; c < MEM_N; c++)
            model->at_peak[c] = model->peak[c]; /* beside the device: the most there ever was */
    }
    for (int i = 0; i < SLOTS; i++) {
        if (b[i].dev) model->now[b[i].cat] -= b[i].bytes;
        buffer_free(&b[i]);
    }
    model->now[MEM_DATA] -= beside;
    stream_free(s);
    model->now_total = 0;
}

static void test_ledgers_are_equal(void **state)
{
    (void)state;
    struct device *cpu, *null;
    struct ledger model;
    struct err e;
    assert_int_equal(device_cpu_new(&cpu, 1, &e), OK);
    assert_int_equal(device_null_new(&null, &e), OK);
    struct tier *tier;
    if (tier_open(&tier, ".", &e)) fail_msg("%s", e.text);
    device_tier_set(cpu, tier);
    live(cpu, &model);
    assert_memory_equal(&cpu->ledger, &model, sizeof model);
    live(null, &model);
    assert_memory_equal(&null->ledger, &cpu->ledger, sizeof model);
    assert_true(model.peak_total > 0);
    device_free(cpu);
    device_free(null);
}

static void test_null_is_empty(void **state)
{
    (void)state;
    struct device *d;
    struct err e;
    assert_int_equal(device_null_new(&d, &e), OK);
    assert_true(d->counts_only);
    struct stream *s = stream_of(d);
    struct buffer b;
    assert_int_equal(buffer_new(&b, d, MEM_OPTIMIZER, (size_t)1 << 50, &e), OK); /* a pebibyte is a number */
    assert_null(b.p);
    double x = 3;
    device_from_host(s, &b, 8, &x, sizeof x);
    device_to_host(s, &x, &b, 8, sizeof x);
    assert_true(x == 0);
    buffer_free(&b);
    buffer_free(&b); /* zeroed: nothing to do */
    stream_free(s);
    device_free(d);
}

/* Both devices: an event that was never recorded has passed, one may be freed while something is enqueued behind it,
 * and the null device's streams carry their time in events. */
static void test_handles(void **state)
{
    (void)state;
    for (int null = 0; null < 2; null++) {
        struct device *d;
        struct stream *a, *b;
        struct event *never, *x;
        struct err e;
        assert_int_equal(null ? device_null_new(&d, &e) : device_cpu_new(&d, 1, &e), OK);
        assert_int_equal(stream_new(&a, d, "a", &e), OK);
        assert_int_equal(stream_new(&b, d, "b", &e), OK);
        assert_int_equal(event_new(&never, d, &e), OK);
        assert_int_equal(event_new(&x, d, &e), OK);
        event_wait(a, never);
        assert_true(a->clock_s == 0);
        a->clock_s = 2.5;
        event_record(x, a);
        a->clock_s = 4;
        event_wait(b, x);
        event_free(x);
        assert_true(b->clock_s == (null ? 2.5 : 0));
        event_wait(b, never);
        assert_true(b->clock_s == (null ? 2.5 : 0));
        event_free(never);
        event_free(NULL);
        stream_free(a);
        stream_free(b);
        stream_free(NULL);
        device_free(d);
    }
}

/* A second a piece, and one more per byte. */
static double price(void *ctx, const struct stream *s, const struct stream_work *w)
{
    (void)s;
    ++*(int *)ctx;
    return 1 + (double)w->bytes;
}

/* Work moves the clock of its stream by what its owner says; work beside a stream has an end of its own, which whoever
 * waits for it comes to. */
static void test_time_is_what_the_owner_says(void **state)
{
    (void)state;
    struct device *d;
    struct stream *a, *b;
    struct event *x;
    struct buffer buf;
    struct err e;
    int asked = 0;
    char host[8];
    assert_int_equal(device_null_new(&d, &e), OK);
    assert_int_equal(stream_new(&a, d, "a", &e), OK);
    assert_int_equal(stream_new(&b, d, "b", &e), OK);
    assert_int_equal(event_new(&x, d, &e), OK);
    assert_int_equal(buffer_new(&buf, d, MEM_DATA, 64, &e), OK);
    device_zero(a, &buf, 0, 64);
    assert_true(a->clock_s == 0); /* nothing has a price yet */
    device_cost_set(d, price, &asked);
    device_zero(a, &buf, 0, 10);
    assert_true(a->clock_s == 11 && b->clock_s == 0);
    device_from_host(a, &buf, 0, host, 4);
    device_copy(a, &buf, 32, &buf, 0, 2);
    device_to_host(a, host, &buf, 0, 1);
    assert_true(a->clock_s == 21 && asked == 4);
    event_record(x, a);
    event_wait(b, x);
    assert_true(b->clock_s == 21);
    struct stream_work w = {.kind = WORK_COLLECTIVE, .name = "all_reduce", .bytes = 99};
    uint64_t first = stream_fork(a, &w, 0), second = stream_fork(a, &w, first);
    assert_true(a->clock_s == 21);
    device_zero(a, &buf, 0, 9); /* beside them */
    assert_true(a->clock_s == 31);
    stream_join(a, first, false);
    assert_true(a->clock_s == 121);
    stream_join(b, second, false);
    assert_true(b->clock_s == 221 && a->clock_s == 121);
    buffer_free(&buf);
    event_free(x);
    stream_free(a);
    stream_free(b);
    device_free(d);
}

static void test_too_much_is_refused_in_words(void **state)
{
    (void)state;
    struct device *d;
    struct err e;
    assert_int_equal(device_cpu_new(&d, 1, &e), OK);
    struct buffer b;
    assert_int_equal(buffer_new(&b, d, MEM_ACTIVATION, (size_t)1 << 50, &e), ERR_MEMORY);
    assert_non_null(strstr(e.text, "activation"));
    assert_non_null(strstr(e.text, "available"));
    assert_true(d->ledger.now_total == 0 && d->ledger.peak_total == 0);
    buffer_free(&b);
    assert_int_equal(device_cpu_new(&(struct device *){0}, 0, &e), ERR_REQUEST);
    device_free(d);
}

static void read_beyond(struct device *d)
{
    struct buffer b;
    struct stream *s = stream_of(d);
    char host[16];
    buffer_new(&b, d, MEM_DATA, 10, NULL);
    device_to_host(s, host, &b, 4, 7);
}

static void read_huge_offset(struct device *d)
{
    struct buffer b;
    struct stream *s = stream_of(d);
    char host[16];
    buffer_new(&b, d, MEM_DATA, 10, NULL);
    device_to_host(s, host, &b, SIZE_MAX, 2);
}

static void leak(struct device *d)
{
    struct buffer b;
    buffer_new(&b, d, MEM_DATA, 10, NULL);
    device_free(d);
}

static void live_handle(struct device *d)
{
    (void)stream_of(d);
    device_free(d);
}

static void foreign_stream(struct device *d)
{
    struct device *other;
    struct buffer b;
    device_null_new(&other, NULL);
    buffer_new(&b, other, MEM_DATA, 10, NULL);
    device_zero(stream_of(d), &b, 0, 10);
}

typedef void bug_fn(struct device *d);
struct bug {
    bug_fn *fn;
};

static int on_null_device(void *arg)
{
    struct device *d;
    if (device_null_new(&d, NULL)) return CHILD_LOST;
    ((struct bug *)arg)->fn(d);
    return 0;
}

static void test_bugs_stop(void **state)
{
    (void)state;
    bug_fn *const bugs[] = {read_beyond, read_huge_offset, leak, foreign_stream, live_handle};
    for (int i = 0; i < 5; i++) {
        struct bug b = {bugs[i]};
        assert_int_equal(child_end(on_null_device, &b), -SIGABRT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_is_opened),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_untouchable_moves),
        cmocka_unit_test(test_host_buffers),
        cmocka_unit_test(test_touching_is_fatal),
        cmocka_unit_test(test_bytes_move),
        cmocka_unit_test(test_ledgers_are_equal),
        cmocka_unit_test(test_null_is_empty),
        cmocka_unit_test(test_handles),
        cmocka_unit_test(test_time_is_what_the_owner_says),
        cmocka_unit_test(test_too_much_is_refused_in_words),
        cmocka_unit_test(test_bugs_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
