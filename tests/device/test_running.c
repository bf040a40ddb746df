/* SPDX-License-Identifier: Apache-2.0 */
/* suite: threads */
/* The device that runs by itself, as a GPU does: what is enqueued runs though nobody waits for it, in the order that
 * streams and events ask for, beside the host; a collective begins when its stream comes to it and holds up what was
 * put behind it; races are reported as by the device that is late on purpose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "device/device.h"
#include "device/order.h"
#include "told.h"

enum { SEEDS = 20 };

struct note {
    atomic_int *n; /* notes so far */
    char *log, c;
};

static void run_note(struct stream *s, void *arg)
{
    struct note *x = arg;
    (void)s;
    x->log[atomic_load(x->n)] = x->c; /* there is one thread of the device's */
    atomic_fetch_add(x->n, 1);
}

static void note(struct stream *s, atomic_int *n, char *log, char c)
{
    struct note x = {n, log, c};
    stream_enqueue(s, &(struct stream_work){.kind = WORK_KERNEL,
                                            .name = "note",
                                            .run = run_note,
                                            .arg = &x,
                                            .arg_bytes = sizeof x});
}

static struct device *open_one(uint64_t seed, struct told *told)
{
    struct device *d;
    struct err e;
    memset(told, 0, sizeof *told);
    assert_int_equal(device_running_new(&d, 2, seed, tell, told, &e), OK);
    return d;
}

static struct stream *stream_of(struct device *d, const char *name)
{
    struct stream *s;
    struct err e;
    assert_int_equal(stream_new(&s, d, name, &e), OK);
    return s;
}

/* Until it is so: nobody waits for the device but this loop, which does not ask it for anything. */
static void until(atomic_int *n, int most)
{
    while (atomic_load(n) < most) clock_sleep_s(1e-4);
}

static void test_nobody_has_to_wait(void **state)
{
    (void)state;
    struct told told;
    struct device *d = open_one(1, &told);
    struct stream *s = stream_of(d, "compute");
    atomic_int n = 0;
    char log[8] = "";
    assert_false(stream_nudge(s));
    assert_true(stream_begins(s));
    for (int i = 0; i < 5; i++) note(s, &n, log, (char)('a' + i));
    until(&n, 5);
    assert_string_equal(log, "abcde");
    stream_free(s);
    device_free(d);
}

/* a b c on one stream, x y z on another, z behind b. */
static void test_orders(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct told told;
        struct device *d = open_one(seed, &told);
        struct stream *s = stream_of(d, "compute"), *other = stream_of(d, "copies");
        struct event *ev;
        struct err e;
        atomic_int n = 0;
        char log[8] = "";
        assert_int_equal(event_new(&ev, d, &e), OK);
        note(other, &n, log, 'x');
        note(s, &n, log, 'a');
        note(s, &n, log, 'b');
        event_record(ev, s);
        note(other, &n, log, 'y');
        event_wait(other, ev);
        note(other, &n, log, 'z');
        note(s, &n, log, 'c');
        event_free(ev);
        stream_sync(s);
        stream_sync(other);
        assert_int_equal(strlen(log), 6);
        assert_true(strchr(log, 'a') < strchr(log, 'b') && strchr(log, 'b') < strchr(log, 'c'));
        assert_true(strchr(log, 'x') < strchr(log, 'y') && strchr(log, 'y') < strchr(log, 'z'));
        assert_true(strchr(log, 'b') < strchr(log, 'z'));
        stream_free(other);
        stream_free(s);
        device_free(d);
        assert_int_equal(told.n, 0);
    }
}

/* ---- work beside a stream ---- */
struct act {
    atomic_int *n; /* how many have begun */
    int *began, name;
    atomic_bool *over;
};

static void begin(void *arg)
{
    const struct act *a = arg;
    a->began[atomic_load(a->n)] = a->name;
    atomic_fetch_add(a->n, 1);
}

static bool done(void *arg) { return atomic_load(((const struct act *)arg)->over); }

static void never(void *arg)
{
    (void)arg;
    fail_msg("a device that runs by itself waits for nobody");
}

/* Sides 0 and 2 are of one queue, 1 of another: all begin by themselves, those of a queue in order; what follows the
 * join waits for its side, and the host for what follows. */
static void test_sides(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct told told;
        struct device *d = open_one(seed, &told);
        struct stream *s = stream_of(d, "compute");
        atomic_int n = 0, noted = 0;
        atomic_bool over = false;
        int began[3], queue[2], at[3];
        char log[4] = "";
        uint64_t side[3];
        for (int i = 0; i < 3; i++) {
            struct act a = {&n, began, i, &over};
            struct side_work w = {begin, done, never, &queue[i % 2]};
            side[i] =
                stream_fork(s, &(struct stream_work){.name = "side", .side = &w, .arg = &a, .arg_bytes = sizeof a}, 0);
        }
        stream_reach(s, side[2]);
        assert_true(atomic_load(&n) >= 2);
        until(&n, 3);
        for (int i = 0; i < 3; i++) at[began[i]] = i;
        assert_true(at[0] < at[2]);
        note(s, &noted, log, 'a');
        stream_join(s, side[2], false);
        note(s, &noted, log, 'b');
        until(&noted, 1);
        for (int i = 0; i < 10; i++) clock_sleep_s(1e-4);
        assert_int_equal(atomic_load(&noted), 1); /* it is held up */
        atomic_store(&over, true);
        stream_sync(s);
        assert_string_equal(log, "ab");
        stream_join(s, side[0], false);
        stream_join(s, side[1], false);
        stream_free(s);
        device_free(d);
    }
}

/* ---- copies ---- */
static void test_copies(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    struct told told;
    struct device *d = open_one(3, &told);
    struct stream *s = stream_of(d, "compute");
    struct buffer a, b;
    struct err e;
    static unsigned char in[N], out[N];
    for (int i = 0; i < N; i++) in[i] = (unsigned char)(i * 7);
    assert_int_equal(buffer_new(&a, d, MEM_DATA, N, &e), OK);
    assert_int_equal(buffer_new(&b, d, MEM_DATA, N, &e), OK);
    assert_true(device_faults(a.p));
    for (int i = 0; i < 50; i++) {
        device_zero(s, &b, 0, N);
        device_from_host(s, &a, 0, in, N);
        device_copy(s, &b, 0, &a, N / 2, N / 2);
        device_copy(s, &b, N / 2, &a, 0, N / 2);
        device_to_host(s, out, &b, 0, N);
        stream_sync(s);
        assert_memory_equal(out, in + N / 2, N / 2);
        assert_memory_equal(out + N / 2, in, N / 2);
    }
    buffer_free(&a);
    buffer_free(&b);
    stream_free(s);
    device_free(d);
    assert_int_equal(told.n, 0);
}

static void test_races_are_told(void **state)
{
    (void)state;
    struct told told;
    struct device *d = open_one(1, &told);
    struct stream *s = stream_of(d, "compute"), *other = stream_of(d, "copies");
    struct buffer a, b;
    struct err e;
    assert_int_equal(buffer_new(&a, d, MEM_DATA, 256, &e), OK);
    assert_int_equal(buffer_new(&b, d, MEM_DATA, 256, &e), OK);
    device_zero(s, &a, 0, 256);
    device_copy(other, &b, 0, &a, 0, 8);
    assert_int_equal(told.n, 1);
    if (!strstr(told.first, "a race: zero")) fail_msg("%s", told.first);
    buffer_free(&a);
    buffer_free(&b);
    stream_free(other);
    stream_free(s);
    device_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_has_to_wait),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_sides),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_races_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
