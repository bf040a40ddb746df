/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of hosts and cores, for machines that this one is not: every kind of binding, every warning, and its
 * absence where nothing is wrong. */
#include "base/check.h"

#include <string.h>

#include "base/thread.h"
#include "config/config.h"
#include "site/places.h"

enum { MOST = 64 };

static void add_core(struct cores *c, int core)
{
    if (core >= 0 && core < CORES_MOST) c->word[core / 64] |= (uint64_t)1 << core % 64;
}

/* n ranks, `per` a host, of cores [first + wide * i, + wide) for rank i of the host. */
static void machine(struct places *p, struct seat *seat, int n, int per, int first, int stride, int wide, int threads)
{
    memset(seat, 0, MOST * sizeof *seat);
    *p = (struct places){.n = n, .n_hosts = (n + per - 1) / per, .seat = seat};
    for (int r = 0; r < n; r++) {
        struct seat *s = &seat[r];
        snprintf(s->host, sizeof s->host, "node%d", r / per + 1);
        s->on = r / per;
        s->threads = threads;
        s->quota = INT32_MAX;
        for (int i = 0; i < wide; i++) add_core(&s->cores, first + stride * (r % per) + i);
    }
}

static void expect(void (*fn)(const struct places *, struct str *), const struct places *p, const char *want)
{
    struct str s = {0};
    fn(p, &s);
    assert_string_equal(str_text(&s), want);
    str_free(&s);
}

static void expect_warning(const struct places *p, const char *want)
{
    struct str s = {0};
    places_warnings(p, &s);
    const char *end = strchr(str_text(&s), '\n');
    if (!want && s.n) fail_msg("warns without a reason: %s", s.p);
    if (want && (!strstr(str_text(&s), want) || !end || end[1]))
        fail_msg("wanted one warning with '%s', got '%s'", want, str_text(&s));
    str_free(&s);
}

static void test_sets(void **state)
{
    (void)state;
    struct cores a = {0}, b = {0}, both;
    struct str s = {0};
    cores_print(&a, &s);
    assert_string_equal(str_text(&s), "none");
    for (int i = 60; i < 70; i++) add_core(&a, i);
    add_core(&a, 0);
    add_core(&a, CORES_MOST - 1);
    add_core(&a, CORES_MOST); /* beyond what is counted */
    add_core(&b, 69);
    add_core(&b, 70);
    str_clear(&s);
    cores_print(&a, &s);
    assert_string_equal(str_text(&s), "0,60-69,16383");
    assert_int_equal(cores_count(&a), 12);
    assert_int_equal(cores_common(&a, &b, &both), 1);
    cores_join(&b, &a);
    assert_int_equal(cores_count(&b), 13);
    str_free(&s);
}

static void test_bindings(void **state)
{
    (void)state;
    static struct seat seat[MOST];
    struct places p;
    machine(&p, seat, 4, 2, 0, 8, 8, 8);
    expect(places_hosts, &p, "2, node1 (ranks 0-1), node2 (ranks 2-3)");
    expect(places_threads, &p, "8 per rank");
    expect(places_binding, &p, "own, rank 0: 0-7, rank 1: 8-15, rank 2: 0-7, rank 3: 8-15");
    expect_warning(&p, NULL);
    machine(&p, seat, 4, 2, 0, 0, 16, 8);
    expect(places_binding, &p, "shared, ranks 0-1: 0-15, ranks 2-3: 0-15");
    expect_warning(&p, NULL);
    machine(&p, seat, 3, 2, 0, 0, 16, 8); /* the last rank is alone on its host: that is shared as well as own */
    assert_string_equal(places_bound(&p), "shared");
    machine(&p, seat, 3, 2, 0, 8, 8, 8);
    assert_string_equal(places_bound(&p), "own");
    machine(&p, seat, 1, 1, 0, 0, 16, 4);
    expect(places_binding, &p, "own, rank 0: 0-15");
    machine(&p, seat, 4, 4, 0, 0, 8, 4);
    for (int r = 2; r < 4; r++) memset(&seat[r].cores, 0, sizeof seat[r].cores), add_core(&seat[r].cores, 40 + r / 4);
    seat[2].threads = seat[3].threads = 0;
    expect(places_binding, &p, "mixed, ranks 0-1: 0-7, ranks 2-3: 40");
    machine(&p, seat, 12, 12, 0, 1, 1, 1);
    expect(places_binding, &p,
           "own, rank 0: 0, rank 1: 1, rank 2: 2, rank 3: 3, rank 4: 4, rank 5: 5, rank 6: 6, rank 7: 7, ...");
    machine(&p, seat, 3, 1, 0, 0, 4, 4);
    seat[2].threads = 2;
    expect(places_threads, &p, "2 to 4 per rank");
    machine(&p, seat, 20, 1, 0, 0, 4, 4);
    expect(places_hosts, &p,
           "20, node1 (rank 0), node2 (rank 1), node3 (rank 2), node4 (rank 3), node5 (rank 4), node6 (rank 5), node7 "
           "(rank 6), node8 (rank 7), ...");
}

static void test_warnings(void **state)
{
    (void)state;
    static struct seat seat[MOST];
    struct places p;
    machine(&p, seat, 4, 2, 0, 6, 8, 4); /* 0-7 and 6-13 */
    assert_string_equal(places_bound(&p), "overlap");
    expect_warning(&p, "node1: ranks 0 and 1 may both use cores 6-7, and each has others");
    machine(&p, seat, 4, 2, 0, 0, 16, 16);
    expect_warning(&p, "node1: 2 ranks with 32 threads on 16 cores: they take turns; run.threads=8");
    machine(&p, seat, 4, 2, 0, 8, 8, 8);
    for (int r = 2; r < 4; r++) seat[r].quota = 4;
    expect_warning(&p,
                   "node2: 2 ranks with 16 threads on 4 cores (the cgroup's quota): they take turns; run.threads=2");
    machine(&p, seat, 4, 2, 0, 8, 8, 2);
    seat[3].threads = 12;
    expect_warning(&p, "node2: rank 3 has 12 threads on 8 cores (8-15): they take turns; run.threads=8");
    machine(&p, seat, 2, 2, 0, 1, 1, 1);
    seat[0].above = seat[1].above = 16;
    expect_warning(&p, "node1: the launcher may use 16 cores and bound its 2 ranks to 2 of them, the others stay idle; "
                       "mpirun --bind-to none, or --map-by slot:PE=8");
    machine(&p, seat, 2, 1, 0, 1, 1, 1);
    seat[0].asked = seat[1].asked = 4;
    expect_warning(&p, "node1: rank 0 may use 1 core, the job asked for 4 per task");
    machine(&p, seat, 2, 2, 0, 4, 4, 4);
    seat[0].asked = seat[1].asked = 4;
    seat[0].above = seat[1].above = 8;
    expect_warning(&p, NULL);
}

/* Ranks as threads: nobody bound anything; one thread each is what the layout needs. */
static void test_one_process(void **state)
{
    (void)state;
    static struct seat seat[MOST];
    struct places p;
    machine(&p, seat, 16, 16, 0, 0, 2, 1);
    p.one_process = true;
    expect(places_threads, &p, "1 per rank, 16 in all take turns on 2 cores");
    expect_warning(&p, NULL);
    machine(&p, seat, 4, 4, 0, 0, 16, 8);
    p.one_process = true;
    expect_warning(&p, "node1: 4 ranks with 32 threads on 16 cores: they take turns; run.threads=4");
    seat[0].asked = 64;
    seat[0].above = 64;
    seat[0].threads = seat[1].threads = seat[2].threads = seat[3].threads = 4;
    expect_warning(&p, NULL);
}

/* A launcher's cores are the rank's own, however many ranks the host has; what is for all ranks is decided by all. */
static void test_threads(void **state)
{
    (void)state;
    struct config c = {0};
    int cores = thread_n_cores();
    c.comm.algorithm = "auto";
    c.parallel.ranks_here = cores;
    assert_int_equal(config_threads(&c), 1);
    if (thread_quota_cores() == INT32_MAX) {
        c.parallel.sharers = 1;
        assert_int_equal(config_threads(&c), cores);
        c.run.threads = cores - 1;
        if (cores > 1) assert_true(config_cores_left(&c));
        c.parallel.sharers = 2;
        if (cores > 1) assert_false(config_cores_left(&c) && cores < 3);
    }
    c.run.threads = 1;
    for (int left = -1; left <= 1; left += 2) {
        c.parallel.cores_left = left;
        c.parallel.sharers = left > 0 ? cores : 1; /* what this rank has counts for nothing */
        c.comm.progress = PROGRESS_AUTO;
        assert_int_equal(config_comm(&c).progress, left > 0 ? COMM_THREAD : COMM_INLINE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets),        cmocka_unit_test(test_bindings), cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_one_process), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
