/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long addresses */
/* Every algorithm, operation, dtype and reduction, for odd numbers of ranks and elements. Alone: ranks as threads, on
 * one host and pretending to be on several, and programs on paper. Under mpirun: the same checks between processes
 * (argument: ranks that share a host). */
#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "comm/every.h"
#include "sanitized.h"

static int run_everything(struct comm *c, void *arg, struct err *e)
{
    static const int64_t sizes[] = {0, 1, 5, 130, 4099};
    int wrong = 0;
    (void)arg;
    for (const char *const *a = comm_algorithms(); *a; a++) {
        for (int i = 0; i < EVERY_DTYPES; i++)
            wrong += every_run(c, *a, sizes[1 + i % 4], every_dtype[i], (enum comm_red)(i % COMM_RED_N));
        for (int i = 0; i < 5; i++) wrong += every_run(c, *a, sizes[i], DT_F32, COMM_SUM);
        for (int r = 0; r < COMM_RED_N; r++) wrong += every_run(c, *a, 33, DT_I32, (enum comm_red)r);
        wrong += every_run(c, *a, 70001, DT_F32, COMM_SUM); /* several chunks and segments */
        if (comm_status(c, e)) return comm_status(c, e);
    }
    for (int i = 0; i < 3; i++) wrong += every_same_bits(c, 1003, every_dtype[i]);
    int rc = comm_status(c, e);
    return rc ? rc : wrong ? err_set(e, ERR_NUMERIC, "%d elements are wrong", wrong) : OK;
}

static void test_threads(void **state)
{
    (void)state;
    for (int hosts = 0; hosts < 3; hosts++) /* ranks per host: all, 1, 2 */
        for (int ranks = 1; ranks <= (CASE_STRIDE < 3 ? 6 : 4); ranks++) {
            struct comm_config cfg = {.timeout_s = 60,
                                      .ranks_per_host = hosts,
                                      .progress = (enum comm_progress)(ranks % 2)};
            struct err e = {0};
            if (comm_run_local(ranks, &cfg, run_everything, NULL, &e)) fail_msg("%d ranks: %s", ranks, e.text);
        }
}

/* What goes over the wire, against the costs in the algorithms' headers. */
static void test_costs(void **state)
{
    (void)state;
    static const struct {
        const char *algorithm;
        enum comm_op op;
        int64_t bytes, messages; /* of rank 0 of 4 for 4096 bytes */
    } rows[] = {
        {"direct", COMM_ALL_REDUCE, 6144, 6},    {"ring", COMM_ALL_REDUCE, 6144, 6},
        {"ring", COMM_REDUCE_SCATTER, 3072, 3},  {"ring", COMM_ALL_GATHER, 3072, 3},
        {"halving", COMM_ALL_REDUCE, 6144, 4},   {"tree", COMM_BROADCAST, 8192, 2},
        {"tree", COMM_ALL_REDUCE, 8192, 2},      {"chain", COMM_BROADCAST, 4096, 1},
        {"pairwise", COMM_ALL_TO_ALL, 3072, 3},  {"direct", COMM_ALL_TO_ALL, 3072, 3},
        {"gather", COMM_ALL_REDUCE, 12288, 2},   {"gather", COMM_ALL_GATHER, 3072, 2},
        {"two_level", COMM_ALL_REDUCE, 6144, 4},
    };
    struct comm *c;
    struct err e;
    struct comm_config cfg = {.ranks_per_host = 2};
    assert_int_equal(comm_world_null(&c, 0, 4, &cfg, &e), OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(comm_algorithm_set(c, rows[i].algorithm, &e), OK);
        struct comm_traffic t = comm_predict(c, rows[i].op, 1024, DT_F32, COMM_SUM);
        if (t.bytes != rows[i].bytes || t.messages != rows[i].messages)
            fail_msg("%s by %s: %lld bytes in %lld messages, not %lld in %lld", comm_op_name(rows[i].op),
                     rows[i].algorithm, (long long)t.bytes, (long long)t.messages, (long long)rows[i].bytes,
                     (long long)rows[i].messages);
    }
    assert_int_equal(comm_algorithm_set(c, "rings", &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "did you mean 'ring'"));
    comm_free(c);
}

static int64_t sent_bytes, sent_messages; /* of rank 1, counted by the real run */

static int run_counted(struct comm *c, void *arg, struct err *e)
{
    (void)arg;
    for (const char *const *a = comm_algorithms(); *a; a++)
        if (every_run(c, *a, 97, DT_F32, COMM_SUM)) return err_set(e, ERR_NUMERIC, "wrong");
    if (comm_rank(c) == 1) sent_bytes = comm_traffic(c).bytes, sent_messages = comm_traffic(c).messages;
    return comm_status(c, e);
}

/* A null rank that makes the same calls counts what the real one counted. */
static void test_predicted_is_counted(void **state)
{
    (void)state;
    struct err e = {0};
    struct comm *null;
    assert_int_equal(comm_run_local(3, NULL, run_counted, NULL, &e), OK);
    assert_int_equal(comm_world_null(&null, 1, 3, NULL, &e), OK);
    FILE *quiet = stderr;
    stderr = fopen("/dev/null", "w"); /* nothing moves, so every element is "wrong" */
    for (const char *const *a = comm_algorithms(); *a; a++) every_run(null, *a, 97, DT_F32, COMM_SUM);
    fclose(stderr);
    stderr = quiet;
    assert_true(sent_bytes > 0);
    assert_int_equal(comm_traffic(null).bytes, sent_bytes);
    assert_int_equal(comm_traffic(null).messages, sent_messages);
    comm_free(null);
}

/* A rank that only counts plans an operation once: what differs in counts, root, messages or algorithm alone is another
 * one, though a reader sees one row. */
static void repeated(struct comm *c, int which)
{
    static const int64_t even[4] = {10, 10, 10, 10}, odd[4] = {0, 40, 0, 0}, other[4] = {40, 0, 0, 0};
    struct err e;
    switch (which) {
    case 0: comm_wait(c, comm_all_gather_v(c, NULL, NULL, even, DT_F32, "x")); return;
    case 1: comm_wait(c, comm_all_gather_v(c, NULL, NULL, odd, DT_F32, "x")); return;
    case 2: comm_wait(c, comm_all_gather_v(c, NULL, NULL, other, DT_F32, "x")); return;
    case 3: comm_wait(c, comm_broadcast(c, NULL, 40, DT_F32, 0, "x")); return;
    case 4: comm_wait(c, comm_broadcast(c, NULL, 40, DT_F32, 1, "x")); return;
    case 5: comm_wait(c, comm_send(c, NULL, 40, DT_F32, 2, "x")); return;
    case 6: comm_wait(c, comm_recv(c, NULL, 40, DT_F32, 2, "x")); return;
    case 7: comm_wait(c, comm_all_to_all_v(c, NULL, NULL, even, odd, DT_F32, "x")); return;
    case 8: comm_wait(c, comm_all_to_all_v(c, NULL, NULL, odd, even, DT_F32, "x")); return;
    case 9: comm_wait(c, comm_reduce_scatter_v(c, NULL, NULL, odd, DT_F32, COMM_SUM, "x")); return;
    default:
        assert_int_equal(comm_algorithm_set(c, "ring", &e), OK);
        comm_wait(c, comm_all_gather_v(c, NULL, NULL, even, DT_F32, "x"));
        assert_int_equal(comm_algorithm_set(c, NULL, &e), OK);
    }
}

static void test_planned_once(void **state)
{
    (void)state;
    enum { WAYS = 11, TIMES = 3 };
    struct comm *c, *all;
    struct err e;
    struct comm_config cfg = {.link_GBps = 1, .link_latency_s = 1e-3, .ranks_per_host = 1};
    struct comm_traffic want = {0};
    double link_s = 0;
    assert_int_equal(comm_world_null(&all, 1, 4, &cfg, &e), OK);
    for (int w = 0; w < WAYS; w++) {
        assert_int_equal(comm_world_null(&c, 1, 4, &cfg, &e), OK);
        repeated(c, w);
        want.operations += TIMES * comm_traffic(c).operations;
        want.messages += TIMES * comm_traffic(c).messages;
        want.bytes += TIMES * comm_traffic(c).bytes;
        link_s += TIMES * comm_times(c).link_s;
        comm_free(c);
    }
    for (int i = 0; i < TIMES; i++)
        for (int w = 0; w < WAYS; w++) repeated(all, w);
    struct comm_traffic got = comm_traffic(all), rows = {0};
    assert_int_equal(got.operations, want.operations);
    assert_int_equal(got.messages, want.messages);
    assert_int_equal(got.bytes, want.bytes);
    assert_true(fabs(comm_times(all).link_s - link_s) < 1e-9);
    int n;
    const struct comm_tally *t = comm_tally(all, &n);
    for (int i = 0; i < n; i++) {
        rows.operations += t[i].traffic.operations;
        rows.bytes += t[i].traffic.bytes;
        for (int j = 0; j < i; j++)
            assert_false(t[i].op == t[j].op && t[i].n == t[j].n && !strcmp(t[i].algorithm, t[j].algorithm));
    }
    assert_int_equal(rows.operations, want.operations);
    assert_int_equal(rows.bytes, want.bytes);
    comm_free(all);
}

/* The plan of a step: a row per distinct operation, which add up to the ledger; times follow the link that is named. */
static void test_tally(void **state)
{
    (void)state;
    struct comm *c;
    struct err e;
    struct comm_config cfg = {.link_GBps = 1, .link_latency_s = 1e-3, .ranks_per_host = 1};
    int n;
    assert_int_equal(comm_world_null(&c, 1, 4, &cfg, &e), OK);
    for (int i = 0; i < 3; i++) {
        comm_wait(c, comm_reduce_scatter(c, NULL, NULL, 1000, DT_F32, COMM_SUM, "a"));
        comm_wait(c, comm_all_gather(c, NULL, NULL, 1000, DT_BF16, "a"));
    }
    comm_wait(c, comm_all_gather(c, NULL, NULL, 1000, DT_BF16, "b"));
    comm_wait(c, comm_send(c, NULL, 500000, DT_F32, 2, "c"));
    const struct comm_tally *t = comm_tally(c, &n);
    assert_int_equal(n, 4);
    assert_string_equal(t[0].what, "a");
    assert_int_equal(t[0].op, COMM_REDUCE_SCATTER);
    assert_int_equal(t[0].traffic.operations, 3);
    assert_int_equal(t[0].traffic.bytes, 3 * 3 * 4000);
    assert_int_equal(t[0].traffic.messages, 9);
    assert_true(t[0].seconds > 9e-3 && t[0].seconds < 9e-3 + 4 * 36e-6);
    assert_int_equal(t[3].op, COMM_EXCHANGE);
    assert_true(t[3].seconds > 2.9e-3 && t[3].seconds < 3.1e-3);
    struct comm_traffic all = {0};
    for (int i = 0; i < n; i++) all.bytes += t[i].traffic.bytes, all.messages += t[i].traffic.messages;
    assert_int_equal(all.bytes, comm_traffic(c).bytes);
    assert_int_equal(all.messages, comm_traffic(c).messages);
    comm_free(c);
}

/* A null rank in the place of this one counts what this one sent. */
static int same_count(struct comm *world, const struct comm_config *cfg, struct err *e)
{
    struct comm *null;
    struct comm_traffic sent = comm_traffic(world), said;
    int rc = comm_world_null(&null, comm_rank(world), comm_size(world), cfg, e);
    if (rc) return rc;
    FILE *quiet = stderr;
    stderr = fopen("/dev/null", "w"); /* nothing moves, so every element is "wrong" */
    run_everything(null, NULL, e);
    fclose(stderr);
    stderr = quiet;
    said = comm_traffic(null);
    comm_free(null);
    bool same = sent.bytes == said.bytes && sent.messages == said.messages && sent.operations == said.operations;
    if (same) return OK;
    return err_set(e, ERR_NUMERIC, "sent %lld bytes in %lld messages, predicted %lld in %lld", (long long)sent.bytes,
                   (long long)sent.messages, (long long)said.bytes, (long long)said.messages);
}

/* One process of several, started by a launcher. */
static int launched(int ranks_per_host)
{
    struct comm *world;
    struct err e = {0};
    struct comm_config cfg = {.timeout_s = 60, .ranks_per_host = ranks_per_host};
    int rc = comm_world_mpi(&world, &cfg, &e);
    if (rc) {
        fprintf(stderr, "%s\n", e.text);
        return err_exit_status(rc);
    }
    rc = run_everything(world, NULL, &e);
    if (!cfg.ranks_per_host) cfg.ranks_per_host = comm_ranks_here(world);
    if (!rc) rc = same_count(world, &cfg, &e);
    rc = comm_agree(world, rc, &e);
    if (rc) comm_abort(world, &e);
    if (comm_rank(world) == 0)
        fprintf(stderr, "%d ranks over %s, %d a host: %s\n", comm_size(world), comm_mpi_name(), comm_ranks_here(world),
                rc ? e.text : "passed");
    comm_free(world);
    return rc ? 1 : 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_predicted_is_counted),
        cmocka_unit_test(test_tally),
        cmocka_unit_test(test_planned_once),
    };
    if (comm_launched()) return launched(argc > 1 ? atoi(argv[1]) : 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
