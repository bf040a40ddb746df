/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives on a device that is late on purpose, and on one that runs by itself: they begin when their stream comes
 * to them, long after the call, in one of the orders that are allowed, and a wait puts the stream behind them, not the
 * host. Three ranks with two groups and two kinds of work between end with the right sums whatever the seed; whoever
 * leaves out a wait is told so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "comm/comm.h"
#include "device/device.h"

enum { RANKS = 3, N = 64, ROUNDS = 300 }; /* more rounds than a communicator has operations under way */

enum broken { NOTHING, NO_WAIT, NO_EVENT };
struct job {
    enum broken broken;
    uint64_t seed;
    int races[RANKS];
    char first[RANKS][1000];
    bool right[RANKS];
    bool running; /* the device runs by itself */
};

struct rank {
    struct job *j;
    int rank;
};

static void tell(void *ctx, const char *text)
{
    struct rank *r = ctx;
    if (!r->j->races[r->rank]++) snprintf(r->j->first[r->rank], sizeof r->j->first[0], "%s", text);
}

/* x is everybody's sum, then y the same by another group, from another stream's copy of x; and so on. */
static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct rank me = {.j = arg, .rank = comm_rank(world)};
    struct device *d;
    struct stream *s, *other;
    struct event *here, *there;
    struct buffer x, y;
    struct comm *a, *b;
    int all[RANKS] = {0, 1, 2};
    float v[N], w[N], want = 0;
    int rounds = me.j->broken ? 2 : ROUNDS;
    int rc = (me.j->running ? device_running_new : device_late_new)(&d, 1, me.j->seed * RANKS + (uint64_t)me.rank, tell,
                                                                    &me, e);
    if (rc) return rc;
    stream_new(&s, d, "compute", e);
    stream_new(&other, d, "copies", e);
    event_new(&here, d, e);
    event_new(&there, d, e);
    buffer_new(&x, d, MEM_DATA, sizeof v, e);
    buffer_new(&y, d, MEM_DATA, sizeof w, e);
    comm_split_list(&a, world, all, RANKS, "a", e);
    comm_split_list(&b, world, all, RANKS, "b", e);
    comm_on(a, d);
    comm_on(b, d);
    comm_stream_on(world, s);
    bool right = true;
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < N; k++) v[k] = (float)(me.rank + 1);
        device_from_host(s, &x, 0, v, sizeof v);
        int64_t sum = comm_all_reduce(a, x.p, x.p, N, DT_F32, COMM_SUM, "x");
        if (me.j->broken != NO_WAIT) comm_wait(a, sum);
        event_record(here, s);
        if (me.j->broken != NO_EVENT) event_wait(other, here);
        device_copy(other, &y, 0, &x, 0, sizeof v);
        event_record(there, other);
        event_wait(s, there);
        comm_wait(b, comm_all_reduce(b, y.p, y.p, N, DT_F32, COMM_MAX, "y"));
        double host = 1; /* hosts talk meanwhile: what a device has not begun goes on while its host waits */
        if (i % 3 == 0) comm_wait(world, comm_all_reduce(world, &host, &host, 1, DT_F64, COMM_SUM, "hosts"));
        device_to_host(s, w, &y, 0, sizeof w);
        stream_sync(s);
        want = 6;
        for (int k = 0; k < N && me.j->broken == NOTHING; k++) right &= w[k] == want;
    }
    me.j->right[me.rank] = right;
    rc = comm_status(world, e);
    comm_stream_off(world, s);
    stream_free(other);
    stream_free(s);
    event_free(here);
    event_free(there);
    comm_free(a);
    comm_free(b);
    buffer_free(&x);
    buffer_free(&y);
    device_free(d);
    return rc;
}

/* ---- what the device promises whoever forks ---- */
struct act {
    int name, *began, *n;
    const bool *over;
};

static void begin(void *arg)
{
    const struct act *a = arg;
    a->began[(*a->n)++] = a->name;
}

static bool done(void *arg) { return *((const struct act *)arg)->over; }

static void wait(void *arg) { *(bool *)(uintptr_t)((const struct act *)arg)->over = true; }

/* Sides 0 and 2 are of one queue, 1 of another. Nothing begins at its fork; those of a queue begin in order, others as
 * chance has it; what follows a join waits for its side. */
static void test_order_of_beginnings(void **state)
{
    (void)state;
    bool other_first = false, other_last = false;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct device *d;
        struct stream *s;
        struct err e;
        struct buffer b;
        char got[8], zero[8] = {0};
        int began[3], n = 0, queue[2];
        bool over = false;
        uint64_t side[3];
        assert_int_equal(device_late_new(&d, 1, seed, NULL, NULL, &e), OK);
        assert_int_equal(stream_new(&s, d, "compute", &e), OK);
        assert_int_equal(buffer_new(&b, d, MEM_DATA, sizeof got, &e), OK);
        for (int i = 0; i < 3; i++) {
            struct act a = {i, began, &n, &over};
            struct side_work w = {begin, done, wait, &queue[i % 2]};
            device_from_host(s, &b, 0, zero, sizeof zero);
            side[i] =
                stream_fork(s, &(struct stream_work){.name = "side", .side = &w, .arg = &a, .arg_bytes = sizeof a}, 0);
            assert_int_equal(n, 0);
        }
        stream_join(s, side[2], false);
        device_to_host(s, got, &b, 0, sizeof got);
        while (stream_nudge(s)) continue; /* all but what the join holds up */
        assert_true(n == 3 && !over && (unsigned char)got[0] == 0xff);
        stream_sync(s);
        assert_true(over && got[0] == 0);
        int at[3];
        for (int i = 0; i < 3; i++) at[began[i]] = i;
        assert_true(at[0] < at[2]);
        other_first |= at[1] == 0;
        other_last |= at[1] == 2;
        stream_join(s, side[0], false);
        stream_join(s, side[1], false);
        stream_free(s);
        buffer_free(&b);
        device_free(d);
    }
    assert_true(other_first && other_last);
}

/* ---- ranks ---- */
static void play(struct job *j)
{
    struct err e = {0};
    struct comm_config c = {.timeout_s = 600, .progress = j->seed % 2 ? COMM_INLINE : COMM_THREAD};
    if (comm_run_local(RANKS, &c, rank_main, j, &e)) fail_msg("%s", e.text);
}

static void test_sums_are_right(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct job j = {.seed = seed, .running = seed > 5};
        play(&j);
        for (int r = 0; r < RANKS; r++) {
            if (j.races[r]) fail_msg("seed %d: %s", (int)seed, j.first[r]);
            assert_true(j.right[r]);
        }
    }
}

static void test_a_wait_is_missing(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        enum broken b = k % 2 ? NO_WAIT : NO_EVENT;
        struct job j = {.seed = 1, .broken = b, .running = k > 1};
        play(&j);
        for (int r = 0; r < RANKS; r++) {
            assert_true(j.races[r] > 0);
            if (!strstr(j.first[r], b == NO_WAIT ? "all_reduce of x" : "copies")) fail_msg("%s", j.first[r]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_beginnings),
        cmocka_unit_test(test_sums_are_right),
        cmocka_unit_test(test_a_wait_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
