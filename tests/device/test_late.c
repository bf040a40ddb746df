/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps event_wait */
/* The device that is late on purpose: nothing runs before it is waited for, orders are drawn among those that are
 * allowed, and what two streams, a collective or the host do without an order is reported in words. A whole training
 * step runs on it clean, and does not when the one event between the copies of a batch and the computing stream is left
 * out. */
#include "toy.h"

#include <stdlib.h>

#include "device/order.h"
#include "told.h"

enum { STREAMS = 3, BYTES = 4096 };
struct bench {
    struct device *d;
    struct stream *s[STREAMS];
    struct buffer a, b;
    struct told told;
};

static void open_bench(struct bench *x, uint64_t seed)
{
    static const char *const name[STREAMS] = {"compute", "copies", "third"};
    struct err e;
    memset(x, 0, sizeof *x);
    assert_int_equal(device_late_new(&x->d, 1, seed, tell, &x->told, &e), OK);
    for (int i = 0; i < STREAMS; i++) assert_int_equal(stream_new(&x->s[i], x->d, name[i], &e), OK);
    assert_int_equal(buffer_new(&x->a, x->d, MEM_PARAM, BYTES, &e), OK);
    assert_int_equal(buffer_new(&x->b, x->d, MEM_GRAD, BYTES, &e), OK);
}

static void close_bench(struct bench *x)
{
    for (int i = 0; i < STREAMS; i++) stream_free(x->s[i]);
    buffer_free(&x->a);
    buffer_free(&x->b);
    device_free(x->d);
}

/* ---- when and in which order ---- */
struct entry {
    char *log;
    char c;
};

static void run_entry(struct stream *s, void *arg)
{
    struct entry *x = arg;
    char one[2] = {x->c, 0};
    (void)s;
    strcat(x->log, one);
}

static void note(struct stream *s, char *log, char c)
{
    struct entry x = {log, c};
    stream_enqueue(s, &(struct stream_work){.kind = WORK_KERNEL,
                                            .name = "note",
                                            .run = run_entry,
                                            .arg = &x,
                                            .arg_bytes = sizeof x});
}

static int at(const char *log, char c)
{
    const char *p = strchr(log, c);
    return p ? (int)(p - log) : -1;
}

/* a b c on one stream, x y z on another, z behind b: every drawn order has a < b < c and x < y and b < z; several are
 * drawn, and what nobody waits for may be missing when compute is done. */
static void test_orders(void **state)
{
    (void)state;
    enum { SEEDS = 64 };
    char seen[SEEDS][16];
    int n_seen = 0, short_ones = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct bench x;
        struct event *ev;
        char log[16] = "";
        open_bench(&x, seed);
        assert_int_equal(event_new(&ev, x.d, NULL), OK);
        event_wait(x.s[1], ev); /* never recorded */
        note(x.s[1], log, 'x');
        note(x.s[0], log, 'a');
        note(x.s[0], log, 'b');
        event_record(ev, x.s[0]);
        note(x.s[1], log, 'y');
        event_wait(x.s[1], ev);
        note(x.s[0], log, 'c');
        event_record(ev, x.s[0]); /* does not move what waits already */
        event_free(ev);
        note(x.s[1], log, 'z');
        assert_string_equal(log, "");
        stream_sync(x.s[0]);
        assert_true(at(log, 'c') >= 0);
        short_ones += strlen(log) < 6;
        stream_sync(x.s[1]);
        assert_int_equal(strlen(log), 6);
        assert_true(at(log, 'a') < at(log, 'b') && at(log, 'b') < at(log, 'c') && at(log, 'x') < at(log, 'y') &&
                    at(log, 'y') < at(log, 'z'));
        assert_true(at(log, 'b') < at(log, 'z'));
        int k = 0;
        while (k < n_seen && strcmp(seen[k], log)) k++;
        if (k == n_seen) strcpy(seen[n_seen++], log);
        assert_int_equal(x.told.n, 0);
        close_bench(&x);
    }
    assert_true(n_seen > 5);
    assert_true(short_ones > 0 && short_ones < SEEDS);
}

/* ---- races ---- */
static void test_race_is_named(void **state)
{
    (void)state;
    for (int ordered = 0; ordered < 4; ordered++) {
        struct bench x;
        struct event *ev;
        open_bench(&x, 1);
        assert_int_equal(event_new(&ev, x.d, NULL), OK);
        device_zero(x.s[0], &x.a, 100, 50);
        if (ordered == 1 || ordered == 3) event_record(ev, x.s[0]);
        if (ordered == 1) event_wait(x.s[1], ev); /* 3: recorded, and nobody waits */
        if (ordered == 2) stream_sync(x.s[0]);
        device_copy(x.s[1], &x.b, 0, &x.a, 149, 8);
        assert_int_equal(x.told.n, ordered == 0 || ordered == 3);
        if (x.told.n) {
            assert_contains(x.told.first, "zero (number 1, on compute");
            assert_contains(x.told.first, "writes to bytes 100..150 of a buffer (param, 4096 bytes)");
            assert_contains(x.told.first, "copy (number 2, on copies");
            assert_contains(x.told.first, "reads from bytes 149..157");
        }
        event_free(ev);
        close_bench(&x);
    }
}

/* Neighbours, two readers, and columns side by side are no race; one byte more is. */
static void test_what_is_no_race(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        struct bench x;
        open_bench(&x, 1);
        char *a = x.a.p, *b = x.b.p;
        device_zero(x.s[0], &x.b, 0, BYTES);
        stream_sync(x.s[0]);
        device_zero(x.s[0], &x.b, 0, 100);
        device_zero(x.s[1], &x.b, 100, 100);
        stream_copy(x.s[0], b + 300, a, 50);
        stream_copy(x.s[1], b + 400, a, 50);
        stream_copy_rows(x.s[0], b + 1000, 30, a, 30, 20, 9);
        stream_copy_rows(x.s[1], b + 1020, 30, a, 30, 10 + (size_t)more, 9);
        assert_int_equal(x.told.n, more);
        close_bench(&x);
    }
}

static void test_collectives_own_their_bytes(void **state)
{
    (void)state;
    struct bench x;
    open_bench(&x, 1);
    struct byte_span span[2] = {{x.a.p, 512, 512, 1, false, "what it sends"},
                                {x.b.p, 512, 512, 1, true, "what it receives"}};
    struct stream_work w = {.kind = WORK_COLLECTIVE,
                            .name = "all_reduce",
                            .tensor = "wq gradient",
                            .span = span,
                            .n_span = 2};
    device_zero(x.s[0], &x.a, 0, 512);
    uint64_t side = stream_fork(x.s[0], &w, 0),
             next = stream_fork(x.s[0], &w, side); /* in order on their communicator */
    stream_copy(x.s[0], (char *)x.b.p + 600, x.a.p, 100);
    assert_int_equal(x.told.n, 0);
    device_zero(x.s[0], &x.a, 500, 20);
    assert_int_equal(x.told.n, 1); /* by the second, which comes after the first */
    assert_contains(x.told.first, "all_reduce of wq gradient (number 3, on a communicator");
    assert_contains(x.told.first, "writes to bytes 500..520");
    stream_join(x.s[0], next, false);
    device_zero(x.s[0], &x.b, 0, 512);
    stream_join(x.s[0], side, false);
    assert_int_equal(x.told.n, 1);
    device_zero(x.s[1], &x.b, 0, 10); /* another stream does not know */
    assert_true(x.told.n > 1);
    close_bench(&x);

    open_bench(&x, 1); /* freed under its hands */
    span[0].p = x.a.p;
    span[1].p = x.b.p;
    side = stream_fork(x.s[0], &w, 0);
    buffer_free(&x.b);
    assert_int_equal(x.told.n, 1);
    assert_contains(x.told.first, "freeing the buffer of grad");
    close_bench(&x);
}

/* ---- the host's memory ---- */
static __attribute__((noinline)) void from_the_stack(struct bench *x)
{
    volatile char here[64];
    memset((char *)here, 3, sizeof here);
    device_from_host(x->s[0], &x->a, 0, (const char *)here, sizeof here);
}

static __attribute__((noinline)) void to_the_stack(struct bench *x)
{
    volatile char here[64];
    device_to_host(x->s[0], (char *)here, &x->a, 0, sizeof here);
}

static void test_host_memory_has_to_last(void **state)
{
    (void)state;
    struct bench x;
    char staging[64] = {1};
    unsigned char back[64] = {0};
    for (int how = 0; how < 4; how++) {
        open_bench(&x, 1);
        if (how == 0 && !TOY_SANITIZED) from_the_stack(&x);
        if (how == 1 && !TOY_SANITIZED) to_the_stack(&x);
        if (how >= 2) device_from_host(x.s[0], &x.a, 0, staging, sizeof staging);
        if (how == 2) staging[63]++;
        if (how == 3) {
            device_to_host(x.s[0], back, &x.a, 0, sizeof back);
            for (size_t i = 0; i < sizeof back; i++) assert_int_equal(back[i], 0xff); /* nothing is there yet */
        }
        stream_sync(x.s[0]);
        assert_int_equal(x.told.n, how == 2 || (how < 2 && !TOY_SANITIZED));
        if (how < 2 && x.told.n) assert_contains(x.told.first, "on the stack of a function that has returned");
        if (how == 2) assert_contains(x.told.first, "copy from the host (number 1, on compute");
        if (how == 3) assert_memory_equal(back, staging, sizeof back);
        close_bench(&x);
    }
}

/* What is enqueued on a buffer runs before the buffer goes. */
static void test_freeing_waits(void **state)
{
    (void)state;
    struct bench x;
    char in[64], out[64];
    memset(in, 5, sizeof in);
    open_bench(&x, 1);
    device_from_host(x.s[1], &x.a, 0, in, sizeof in);
    stream_sync(x.s[1]);
    device_to_host(x.s[0], out, &x.a, 0, sizeof out);
    buffer_free(&x.a);
    assert_memory_equal(in, out, sizeof in);
    assert_int_equal(x.told.n, 0);
    close_bench(&x);
}

/* ---- the checker against a plain one that forgets nothing ---- */
enum { OPS = 160, LANES = 4, SPANS = 2 };
struct plain {
    int lane;
    uint64_t clock[LANES]; /* operations of each lane that come before this one, itself included */
    struct byte_span span[SPANS];
};

static void count_race(void *ctx, const struct order_race *r)
{
    (void)r;
    ++*(int *)ctx;
}

static bool touches(const struct byte_span *s, uintptr_t byte)
{
    for (int64_t r = 0; r < s->rows; r++) {
        uintptr_t lo = (uintptr_t)s->p + (size_t)r * s->step;
        if (byte >= lo && byte < lo + s->bytes) return true;
    }
    return false;
}

static bool conflict(const struct plain *a, const struct plain *b)
{
    for (int i = 0; i < SPANS; i++)
        for (int j = 0; j < SPANS; j++)
            for (uintptr_t byte = 1000; (a->span[i].writes || b->span[j].writes) && byte < 1100; byte++)
                if (touches(&a->span[i], byte) && touches(&b->span[j], byte)) return true;
    return false;
}

static struct byte_span draw_span(uint64_t seed, uint64_t i)
{
    uint32_t u[5];
    for (uint64_t k = 0; k < 5; k++) u[k] = rng_u32(seed, 10 + k, i);
    struct byte_span s = {(const void *)(uintptr_t)(1000 + u[0] % 64), 1 + u[1] % 12, 0, 1, u[2] % 3 == 0, NULL};
    s.step = s.bytes + u[3] % 8;
    if (u[4] % 2) s.rows = 1 + u[4] / 2 % 3;
    return s;
}

static void test_checker_equals_a_plain_one(void **state)
{
    (void)state;
    int racing = 0, clean = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        static const struct order_who who = {.op = "x"};
        struct plain *done = xcalloc(OPS, sizeof *done);
        struct order_clock *clock = xcalloc(LANES, sizeof *clock);
        uint64_t mine[LANES][LANES] = {{0}};
        int races = 0, lane[LANES];
        struct order *o = order_new(count_race, &races);
        for (int l = 0; l < LANES; l++) lane[l] = order_lane_new(o);
        for (uint64_t i = 0; i < OPS; i++) {
            int l = (int)(rng_u32(seed, 1, i) % LANES), from = (int)(rng_u32(seed, 2, i) % LANES);
            if (rng_u32(seed, 3, i) % 2) { /* an event of `from` is waited for */
                order_join(&clock[l], &clock[from]);
                for (int k = 0; k < LANES; k++) mine[l][k] = mine[from][k] > mine[l][k] ? mine[from][k] : mine[l][k];
            }
            struct plain *p = &done[i];
            p->lane = l;
            mine[l][l]++;
            memcpy(p->clock, mine[l], sizeof p->clock);
            for (int k = 0; k < SPANS; k++) p->span[k] = draw_span(seed, 2 * i + (uint64_t)k);
            int want = 0, had = races;
            for (uint64_t j = 0; j < i; j++)
                want += done[j].clock[done[j].lane] > p->clock[done[j].lane] && conflict(&done[j], p);
            order_next(o, lane[l], &clock[l], &who, p->span, SPANS);
            if ((races > had) != (want > 0))
                fail_msg("seed %d, operation %d: %d races, wanted %d", (int)seed, (int)i, races - had, want);
            racing += want > 0;
            clean += want == 0;
        }
        order_free(o);
        xfree(clock);
        xfree(done);
    }
    assert_true(racing > 500 && clean > 500);
}

/* ---- a training step ---- */
static int drop; /* the wait that is left out, from 1; 0: none */
static int waits;
void __real_event_wait(struct stream *s, struct event *ev);
void __wrap_event_wait(struct stream *s, struct event *ev);
void __wrap_event_wait(struct stream *s, struct event *ev)
{
    if (++waits != drop) __real_event_wait(s, ev);
}

static void two_steps(int without, struct told *told, double loss[2])
{
    struct engine_config c = toy_config(MODEL_LLAMA, DT_F32);
    struct toy t;
    struct engine_report r;
    struct err e;
    memset(told, 0, sizeof *told);
    memset(&t, 0, sizeof t);
    waits = 0;
    drop = without;
    assert_int_equal(device_late_new(&t.dev, 1, 7, tell, told, &e), OK);
    toy_open_on(&t, &c, t.dev);
    for (int i = 0; i < 2; i++) {
        assert_true(engine_step(t.g, &t.batch, i, 1e-2, &r));
        loss[i] = r.loss;
    }
    toy_close(&t);
    drop = 0;
}

static void test_steps_are_clean(void **state)
{
    (void)state;
    struct told told;
    double loss[2], again[2];
    two_steps(0, &told, loss);
    if (told.n) fail_msg("%d: %s", told.n, told.first);
    assert_int_equal(waits, 4); /* before and after each batch */
    struct engine_config c = toy_config(MODEL_LLAMA, DT_F32);
    struct toy t;
    struct engine_report r;
    toy_open(&t, &c);
    for (int i = 0; i < 2; i++) {
        assert_true(engine_step(t.g, &t.batch, i, 1e-2, &r));
        assert_true(r.loss == loss[i]);
    }
    toy_close(&t);
    two_steps(2, &told, again); /* compute does not wait for the batch */
    assert_true(told.n > 0);
    assert_contains(told.first, "copy from the host");
    assert_contains(told.first, "on copies");
    assert_contains(told.first, "on compute");
    assert_contains(told.first, "(data, ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_race_is_named),
        cmocka_unit_test(test_what_is_no_race),
        cmocka_unit_test(test_collectives_own_their_bytes),
        cmocka_unit_test(test_host_memory_has_to_last),
        cmocka_unit_test(test_freeing_waits),
        cmocka_unit_test(test_checker_equals_a_plain_one),
        cmocka_unit_test(test_steps_are_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
