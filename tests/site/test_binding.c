/* SPDX-License-Identifier: Apache-2.0 */
/* Cores for ranks and threads, on machines that are not here; and that threads are where it says, on this one. */
#include "base/check.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "site/binding.h"

enum { MOST = 64 };

static struct topology machine(const char *text)
{
    struct topology t;
    struct err e;
    if (topology_read(&t, text, &e)) fail_msg("%s: %s", text ? text : "here", e.text);
    return t;
}

/* n ranks of one host that may all use all of t. */
static struct places everybody(const struct topology *t, int n, int threads)
{
    struct places p = {.n = n, .n_hosts = 1, .seat = xcalloc((size_t)n, sizeof *p.seat)};
    for (int r = 0; r < n; r++) {
        p.seat[r] = (struct seat){.host = "node1", .threads = threads};
        topology_cores(t, &p.seat[r].cores);
    }
    return p;
}

static struct binding chosen(enum bind how, const struct topology *t, const struct places *p, int host)
{
    struct binding b;
    struct err e;
    if (binding_choose(&b, how, t, p, host, &e)) fail_msg("%s", e.text);
    return b;
}

static void expect(void (*fn)(const struct binding *, struct str *), const struct binding *b, const char *want)
{
    struct str s = {0};
    fn(b, &s);
    assert_string_equal(str_text(&s), want);
    str_free(&s);
}

static void near_memory(void **unused)
{
    (void)unused;
    struct topology t = machine("synthetic:package:2 numa:2 core:4 pu:2");
    struct places p = everybody(&t, 8, 4);
    struct binding b = chosen(BIND_CORE, &t, &p, 0);
    assert_int_equal(b.n, 8);
    for (int r = 0; r < 8; r++) {
        const struct binding_rank *of = binding_of(&b, r);
        assert_int_equal(of->n_nodes, 1);
        assert_int_equal(of->node, r / 2);
        assert_int_equal(cores_count(&of->share), 4);
        /* two cores: a thread on each before any gets a second one; the rank's own is anywhere there */
        const int want[4] = {-1, 4 * r + 2, 4 * r + 1, 4 * r + 3};
        assert_memory_equal(of->pu, want, sizeof want);
    }
    expect(binding_warnings, &b, "");
    binding_free(&b);
    places_free(&p);
    p = everybody(&t, 3, 2);
    b = chosen(BIND_RANK, &t, &p, 0);
    expect(binding_line, &b,
           "rank, rank 0: 0-11 (2 memory nodes from 0 on), rank 1: 12-21 (2 memory nodes from 1 on), rank 2: 22-31 (2 "
           "memory nodes from 2 on)");
    expect(binding_warnings, &b,
           "run.bind: rank 0 has cores of 2 memory nodes; as many ranks a host as it has memory nodes, or a multiple "
           "of "
           "them, keeps memory near\n");
    for (int i = 0; i < 2; i++) assert_int_equal(b.of[1].pu[i], -1);
    binding_free(&b);
    places_free(&p);
    topology_free(&t);
}

/* Whatever the machine and however many ranks and threads: shares are disjoint where there are cores enough, sizes
 * differ by one core, together they are all, and threads lie in them and apart while that is possible. */
static void any_machine(void **unused)
{
    (void)unused;
    for (uint64_t round = 0; round < 300; round++) {
        char text[96];
        uint64_t d[5];
        for (int i = 0; i < 5; i++) d[i] = rng_u32(9, round, (uint64_t)i);
        int pus = 1 + (int)(d[2] % 3);
        snprintf(text, sizeof text, "synthetic:package:%d numa:%d core:%d pu:%d", 1 + (int)(d[0] % 2),
                 1 + (int)(d[1] % 2), 1 + (int)(d[3] % 7), pus);
        int n = 1 + (int)(d[4] % 9), threads = 1 + (int)(d[4] / 9 % 7);
        struct topology t = machine(text);
        struct places p = everybody(&t, n, threads);
        struct binding b = chosen(BIND_CORE, &t, &p, 0);
        struct cores all = {0}, whole;
        int least = MOST, most = 0;
        topology_cores(&t, &whole);
        for (int r = 0; r < n; r++) {
            const struct binding_rank *of = &b.of[r];
            struct cores seen = {0};
            int size = cores_count(&of->share) / pus;
            if (t.n >= n) assert_int_equal(cores_common(&all, &of->share, NULL), 0);
            cores_join(&all, &of->share);
            least = size < least ? size : least;
            most = size > most ? size : most;
            assert_int_equal(of->n_threads, threads);
            assert_int_equal(of->pu[0], -1);
            for (int k = 1; k < threads; k++) {
                assert_true(cores_has(&of->share, of->pu[k]));
                if (threads <= size * pus) assert_false(cores_has(&seen, of->pu[k]));
                cores_add(&seen, of->pu[k]);
            }
        }
        if (t.n < n ? most != 1 : most - least > 1)
            fail_msg("%s, %d ranks: shares of %d to %d cores", text, n, least, most);
        if (t.n >= n) assert_memory_equal(&all, &whole, sizeof all);
        assert_int_equal(b.turns_ranks, t.n < n);
        binding_free(&b);
        places_free(&p);
        topology_free(&t);
    }
}

/* A launcher's masks are kept; ranks that share one divide it; other hosts are not looked at. */
static void bound_by_a_launcher(void **unused)
{
    (void)unused;
    struct topology t = machine("synthetic:package:2 core:4 pu:1");
    struct places p = everybody(&t, 6, 2);
    struct err e;
    struct binding b;
    for (int r = 0; r < 6; r++) p.seat[r].cores = (struct cores){0};
    for (int r = 0; r < 4; r++) /* ranks 0, 1 on the first package, 2, 3 on the second */
        for (int c = 0; c < 4; c++) cores_add(&p.seat[r].cores, r / 2 * 4 + c);
    p.seat[4].on = p.seat[5].on = 1;
    cores_add(&p.seat[4].cores, 0);
    cores_add(&p.seat[5].cores, 0);
    cores_add(&p.seat[5].cores, 1);
    b = chosen(BIND_RANK, &t, &p, 0);
    expect(binding_line, &b,
           "rank, rank 0: 0-1 (memory node 0), rank 1: 2-3 (memory node 0), rank 2: 4-5 (memory node 0), rank 3: 6-7 "
           "(memory node 0)");
    assert_null(binding_of(&b, 4));
    binding_free(&b);
    assert_int_equal(binding_choose(&b, BIND_RANK, &t, &p, 1, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "ranks 4 and 5 may both use cores 0, and each has others"));
    p.seat[4].cores = p.seat[5].cores;
    p.seat[4].cores.word[0] = p.seat[5].cores.word[0] = (uint64_t)1 << 40; /* a core that the machine does not have */
    assert_int_equal(binding_choose(&b, BIND_RANK, &t, &p, 1, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "none of the cores"));
    places_free(&p);
    topology_free(&t);
}

static void more_than_there_are(void **unused)
{
    (void)unused;
    struct topology t = machine("synthetic:core:2 pu:1");
    struct places p = everybody(&t, 3, 1);
    struct binding b = chosen(BIND_RANK, &t, &p, 0);
    expect(binding_warnings, &b, "run.bind: 3 ranks share 2 hardware threads: some of them take turns on a core\n");
    binding_free(&b);
    places_free(&p);
    p = everybody(&t, 1, 3);
    b = chosen(BIND_CORE, &t, &p, 0);
    expect(binding_warnings, &b,
           "run.bind: a rank has more threads than hardware threads: they take turns; fewer run.threads\n");
    binding_free(&b);
    places_free(&p);
    topology_free(&t);
}

/* ---- on this machine ---- */

struct look {
    struct cores of[MOST];
};

static void look(void *arg, int member, int n)
{
    (void)n;
    assert_true(cores_of(0, &((struct look *)arg)->of[member]));
}

static void *bound_thread(void *unused)
{
    (void)unused;
    struct topology t = machine(NULL);
    struct cores mine;
    struct look seen = {0};
    struct err e;
    assert_true(cores_of(0, &mine));
    struct places p = everybody(&t, 1, 3);
    p.seat[0].cores = mine;
    struct team *team = team_new(3);
    for (enum bind how = BIND_NONE; how <= BIND_CORE; how++) {
        struct binding b = chosen(how, &t, &p, 0);
        if (binding_apply(&b, 0, team, &e)) fail_msg("%s", e.text);
        team_run(team, look, &seen);
        for (int i = 0; i < 3; i++) {
            struct cores want = how ? b.of[0].share : mine;
            if (how == BIND_CORE && i) {
                want = (struct cores){0};
                cores_add(&want, b.of[0].pu[i]);
            }
            assert_memory_equal(&seen.of[i], &want, sizeof want);
        }
        binding_free(&b);
    }
    /* A core that is not there. */
    struct binding b = chosen(BIND_RANK, &t, &p, 0);
    b.of[0].share = (struct cores){0};
    cores_add(&b.of[0].share, CORES_MOST - 1);
    assert_int_equal(binding_apply(&b, 0, team, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "run.bind=none"));
    binding_free(&b);
    team_free(team);
    places_free(&p);
    topology_free(&t);
    return NULL;
}

static void threads_are_there(void **unused)
{
    (void)unused;
    pthread_t thread; /* one of its own: what it binds dies with it */
    assert_int_equal(pthread_create(&thread, NULL, bound_thread, NULL), 0);
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_memory),         cmocka_unit_test(any_machine),
        cmocka_unit_test(bound_by_a_launcher), cmocka_unit_test(more_than_there_are),
        cmocka_unit_test(threads_are_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
