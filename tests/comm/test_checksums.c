/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums behind messages between hosts: with them every operation gives what it gave, counted bytes grow by eight a
 * message, and one flipped bit in any message of any algorithm ends the job with the pair and the operation named.
 * Without them nobody notices. How long ranks wait is a setting per kind of operation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm/every.h"
#include "sanitized.h"

enum { RANKS = 4, N = 1003 };

static int run_everything(struct comm *c, void *arg, struct err *e)
{
    int wrong = 0;
    (void)arg;
    for (const char *const *a = comm_algorithms(); *a; a++) {
        wrong += every_run(c, *a, 130, DT_F32, COMM_SUM);
        wrong += every_run(c, *a, 1, DT_BF16, COMM_MAX);
        if (CASE_STRIDE < 3) wrong += every_run(c, *a, 70001, DT_F32, COMM_SUM);
    }
    wrong += every_same_bits(c, N, DT_F32);
    int rc = comm_status(c, e);
    return rc ? rc : wrong ? err_set(e, ERR_NUMERIC, "%d elements are wrong", wrong) : OK;
}

static void test_same_results(void **state)
{
    (void)state;
    for (int hosts = 1; hosts < 3; hosts++)
        for (int progress = 0; progress < 2; progress++) {
            struct comm_config cfg = {.timeout_s = 60,
                                      .ranks_per_host = hosts,
                                      .checksum = true,
                                      .progress = (enum comm_progress)progress};
            struct err e = {0};
            if (comm_run_local(5 - hosts, &cfg, run_everything, NULL, &e)) fail_msg("%d a host: %s", hosts, e.text);
        }
}

/* ---- one bit ---- */
struct flip {
    const char *algorithm;
    enum comm_op op;
    atomic_int left; /* messages until the one that is changed */
    atomic_int done;
    int from, to;
    char what[64];
};

static void flip_bit(void *ctx, int rank, int from, const char *what, void *p, size_t bytes)
{
    struct flip *f = ctx;
    if (atomic_fetch_sub(&f->left, 1) != 0) return;
    f->from = from;
    f->to = rank;
    snprintf(f->what, sizeof f->what, "%s", what);
    ((unsigned char *)p)[bytes / 2] ^= 1;
    atomic_store(&f->done, 1);
}

static int run_one(struct comm *c, void *arg, struct err *e)
{
    const struct flip *f = arg;
    float in[N * RANKS], out[N * RANKS];
    int me = comm_rank(c), next = (me + 1) % RANKS, last = (me + RANKS - 1) % RANKS;
    for (int i = 0; i < N * RANKS; i++) in[i] = (float)(me + i % 7);
    if (f->algorithm && comm_algorithm_set(c, f->algorithm, e)) return ERR_REQUEST;
    switch (f->op) {
    case COMM_BROADCAST: comm_broadcast(c, in, N, DT_F32, 1, "the weights"); break;
    case COMM_REDUCE: comm_reduce(c, in, out, N, DT_F32, COMM_SUM, 2, "the weights"); break;
    case COMM_ALL_REDUCE: comm_all_reduce(c, in, out, N, DT_F32, COMM_SUM, "the weights"); break;
    case COMM_REDUCE_SCATTER: comm_reduce_scatter(c, in, out, N, DT_F32, COMM_SUM, "the weights"); break;
    case COMM_ALL_GATHER: comm_all_gather(c, in, out, N, DT_F32, "the weights"); break;
    case COMM_ALL_TO_ALL: comm_all_to_all(c, in, out, N, DT_F32, "the weights"); break;
    default:
        comm_exchange(c, (struct comm_p2p[]){{true, next, in, N, DT_F32}, {false, last, out, N, DT_F32}}, 2,
                      "the weights");
    }
    comm_sync(c);
    comm_wait(c, comm_barrier(c, "all have come"));
    return comm_status(c, e);
}

static void test_one_bit(void **state)
{
    (void)state;
    int cases = 0;
    for (int a = 0; comm_algorithms()[a]; a++)
        for (int op = 0; op <= COMM_EXCHANGE; op++)
            for (int nth = 0; nth < (CASE_STRIDE < 3 ? 3 : 1); nth++) {
                struct flip f = {.algorithm = comm_algorithms()[a], .op = (enum comm_op)op, .left = nth};
                struct comm_config cfg = {.timeout_s = 60,
                                          .ranks_per_host = 1,
                                          .checksum = true,
                                          .tamper = flip_bit,
                                          .tamper_ctx = &f};
                struct err e = {0};
                char pair[80];
                int rc = comm_run_local(RANKS, &cfg, run_one, &f, &e);
                if (!atomic_load(&f.done)) {
                    if (rc) fail_msg("%s by %s: %s", comm_op_name(f.op), f.algorithm, e.text);
                    continue;
                }
                cases++;
                snprintf(pair, sizeof pair, "rank %d did not get what rank %d sent", f.to, f.from);
                if (rc != ERR_CORRUPT || !strstr(e.text, pair) || !strstr(e.text, comm_op_name(f.op)) ||
                    !strstr(e.text, "the weights"))
                    fail_msg("%s by %s, message %d: %s", comm_op_name(f.op), f.algorithm, nth, e.text);
            }
    assert_true(cases > 40 || CASE_STRIDE >= 3);
    struct flip f = {.op = COMM_ALL_REDUCE}; /* without checksums nothing is looked at */
    struct comm_config cfg = {.timeout_s = 60, .ranks_per_host = 1, .tamper = flip_bit, .tamper_ctx = &f};
    struct err e = {0};
    assert_int_equal(comm_run_local(RANKS, &cfg, run_one, &f, &e), OK);
    assert_int_equal(atomic_load(&f.done), 0);
    cfg.checksum = true; /* nor within a host */
    cfg.ranks_per_host = 0;
    assert_int_equal(comm_run_local(RANKS, &cfg, run_one, &f, &e), OK);
    assert_int_equal(atomic_load(&f.done), 0);
}

/* ---- counted, refused ---- */
static void test_counted(void **state)
{
    (void)state;
    struct comm *plain, *sums;
    struct err e;
    struct comm_config cfg = {.ranks_per_host = 2}, with = {.ranks_per_host = 2, .checksum = true};
    assert_int_equal(comm_world_null(&plain, 0, 4, &cfg, &e), OK);
    assert_int_equal(comm_world_null(&sums, 0, 4, &with, &e), OK);
    assert_int_equal(comm_algorithm_set(plain, "direct", &e), OK);
    assert_int_equal(comm_algorithm_set(sums, "direct", &e), OK);
    struct comm_traffic a = comm_predict(plain, COMM_ALL_REDUCE, 1024, DT_F32, COMM_SUM),
                        b = comm_predict(sums, COMM_ALL_REDUCE, 1024, DT_F32, COMM_SUM);
    assert_int_equal(b.messages, a.messages + 4); /* two messages to each of the two ranks of the other host */
    assert_int_equal(b.bytes, a.bytes + 4 * 8);
    comm_free(plain);
    comm_free(sums);
    with.algorithm = "native";
    assert_int_equal(comm_config_check(&with, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "comm.checksum"));
}

/* ---- how long ranks wait ---- */
enum kind { COLLECTIVE, MESSAGE, PATIENT };

static int run_late(struct comm *c, void *arg, struct err *e)
{
    enum kind kind = *(enum kind *)arg;
    float x = 0;
    if (kind == PATIENT) comm_patience(c, 0.3);
    if (comm_rank(c) == 1) {
        while (comm_status(c, NULL) == OK) clock_sleep_s(1e-3);
        return comm_status(c, e);
    }
    if (kind == MESSAGE) comm_wait(c, comm_recv(c, &x, 1, DT_F32, 1, "late"));
    else comm_wait(c, comm_all_reduce(c, &x, &x, 1, DT_F32, COMM_SUM, "late"));
    return comm_status(c, e);
}

static void test_kinds_of_waiting(void **state)
{
    (void)state;
    static const struct comm_config short_messages = {.timeout_s = 600, .timeout_p2p_s = 0.3},
                                    short_collectives = {.timeout_s = 0.3, .timeout_p2p_s = 600},
                                    long_ones = {.timeout_s = 600, .timeout_p2p_s = 600};
    static const struct {
        enum kind kind;
        const struct comm_config *cfg;
    } rows[] = {{MESSAGE, &short_messages}, {COLLECTIVE, &short_collectives}, {PATIENT, &long_ones}};
    for (int i = 0; i < 3; i++) {
        struct err e = {0};
        enum kind kind = rows[i].kind;
        assert_true(comm_run_local(2, rows[i].cfg, run_late, &kind, &e) < 0);
        if (!strstr(e.text, "rank 1 is late")) fail_msg("kind %d: %s", i, e.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_results), cmocka_unit_test(test_one_bit),
                                       cmocka_unit_test(test_counted), cmocka_unit_test(test_kinds_of_waiting)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
