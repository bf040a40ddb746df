/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads: every operation against its closed form, for sizes from 0 to large, odd counts and in place;
 * groups; counted against predicted bytes; and what happens when ranks disagree, leave or come late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/comm.h"

enum { MAX_RANKS = 5 };
static const int64_t sizes[] = {0, 1, 2, 3, 7, 64, 1000, 4097, 300001};

struct trial {
    int64_t n;
    int wrong; /* by rank 0 .. n, counted with atomics: any element that is not what it should be */
};

static void bad(struct trial *t) { __atomic_fetch_add(&t->wrong, 1, __ATOMIC_RELAXED); }

/* Small whole numbers: sums are exact in fp32. */
static float value(int rank, int64_t i) { return (float)((rank + 1) * (i % 13 + 1)); }

static float sum_to(int ranks, int64_t i) { return (float)(ranks * (ranks + 1) / 2 * (i % 13 + 1)); }

static int run_all_reduce(struct comm *c, void *arg, struct err *e)
{
    struct trial *t = arg;
    int rank = comm_rank(c), size = comm_size(c);
    float *in = xmalloc((size_t)t->n * 4 + 4), *out = xmalloc((size_t)t->n * 4 + 4);
    for (int64_t i = 0; i < t->n; i++) in[i] = value(rank, i);
    comm_wait(c, comm_all_reduce(c, in, out, t->n, DT_F32, COMM_SUM, "apart"));
    for (int64_t i = 0; i < t->n; i++)
        if (out[i] != sum_to(size, i)) bad(t);
    comm_wait(c, comm_all_reduce(c, in, out, t->n, DT_F32, COMM_MAX, "max"));
    for (int64_t i = 0; i < t->n; i++)
        if (out[i] != value(size - 1, i)) bad(t);
    comm_wait(c, comm_all_reduce(c, in, in, t->n, DT_F32, COMM_AVG, "in place"));
    for (int64_t i = 0; i < t->n; i++)
        if (in[i] != sum_to(size, i) / (float)size) bad(t);
    xfree(in);
    xfree(out);
    return comm_status(c, e);
}

/* Uneven pieces: rank p owns p elements more than n. */
static int run_scatter_gather(struct comm *c, void *arg, struct err *e)
{
    struct trial *t = arg;
    int rank = comm_rank(c), size = comm_size(c);
    int64_t counts[MAX_RANKS], total = 0, mine = 0;
    for (int p = 0; p < size; p++) {
        if (p == rank) mine = total;
        total += counts[p] = t->n + p;
    }
    float *all = xmalloc((size_t)total * 4 + 4), *piece = xmalloc((size_t)counts[rank] * 4 + 4);
    for (int round = 0; round < 2; round++) { /* apart, then in place */
        for (int64_t i = 0; i < total; i++) all[i] = value(rank, i);
        float *to = round ? all + mine : piece;
        comm_wait(c, comm_reduce_scatter_v(c, all, to, counts, DT_F32, COMM_SUM, "scatter"));
        for (int64_t i = 0; i < counts[rank]; i++)
            if (to[i] != sum_to(size, mine + i)) bad(t);
        comm_wait(c, comm_all_gather_v(c, to, all, counts, DT_F32, "gather"));
        for (int64_t i = 0; i < total; i++)
            if (all[i] != sum_to(size, i)) bad(t);
    }
    xfree(all);
    xfree(piece);
    return comm_status(c, e);
}

static int run_rest(struct comm *c, void *arg, struct err *e)
{
    struct trial *t = arg;
    int rank = comm_rank(c), size = comm_size(c);
    int64_t n = t->n;
    float *a = xmalloc((size_t)(n * size) * 4 + 4), *b = xmalloc((size_t)(n * size) * 4 + 4);
    for (int root = 0; root < size; root++) {
        for (int64_t i = 0; i < n; i++) a[i] = value(rank, i);
        comm_wait(c, comm_reduce(c, a, b, n, DT_F32, COMM_SUM, root, "reduce"));
        for (int64_t i = 0; rank == root && i < n; i++)
            if (b[i] != sum_to(size, i)) bad(t);
        comm_wait(c, comm_broadcast(c, a, n, DT_F32, root, "broadcast"));
        for (int64_t i = 0; i < n; i++)
            if (a[i] != value(root, i)) bad(t);
    }
    for (int p = 0; p < size; p++)
        for (int64_t i = 0; i < n; i++) a[p * n + i] = (float)(100 * rank + p);
    comm_wait(c, comm_all_to_all(c, a, b, n, DT_F32, "all to all"));
    for (int p = 0; p < size; p++)
        for (int64_t i = 0; i < n; i++)
            if (b[p * n + i] != (float)(100 * p + rank)) bad(t);
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    for (int64_t i = 0; i < n; i++) a[i] = value(rank, i);
    struct comm_p2p ring[2] = {{true, next, a, n, DT_F32}, {false, last, b, n, DT_F32}};
    comm_wait(c, comm_exchange(c, ring, 2, "ring"));
    for (int64_t i = 0; i < n; i++)
        if (b[i] != value(last, i)) bad(t);
    comm_wait(c, comm_barrier(c, "end"));
    xfree(a);
    xfree(b);
    return comm_status(c, e);
}

static void every_size(comm_rank_fn *fn)
{
    for (int progress = 0; progress < 2; progress++)
        for (int ranks = 1; ranks <= MAX_RANKS; ranks++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                struct comm_config cfg = {.timeout_s = 60, .progress = (enum comm_progress)progress};
                struct trial t = {.n = sizes[s]};
                struct err e = {0};
                if (comm_run_local(ranks, &cfg, fn, &t, &e)) fail_msg("%d ranks, n %d: %s", ranks, (int)t.n, e.text);
                if (t.wrong) fail_msg("%d ranks, n %d: %d elements are wrong", ranks, (int)t.n, t.wrong);
            }
}

static void test_all_reduce(void **state)
{
    (void)state;
    every_size(run_all_reduce);
}

static void test_scatter_gather(void **state)
{
    (void)state;
    every_size(run_scatter_gather);
}

static void test_rest(void **state)
{
    (void)state;
    every_size(run_rest);
}

/* 2 x 2 ranks: sums along one axis, along the other, and what a null world says it costs. */
static int run_groups(struct comm *c, void *arg, struct err *e)
{
    struct trial *t = arg;
    int degrees[AXIS_N];
    for (int a = 0; a < AXIS_N; a++) degrees[a] = 1;
    degrees[AXIS_DP_REPLICATE] = degrees[AXIS_DP_SHARD] = 2;
    degrees[AXIS_EDP] = -1;
    struct mesh m;
    struct comm *inner, *outer;
    int rc = mesh_init(&m, 4, degrees, e);
    struct mesh_axis shard = mesh_axis(&m, AXIS_DP_SHARD), replicate = mesh_axis(&m, AXIS_DP_REPLICATE);
    if (!rc) rc = comm_split(&inner, c, &shard, 1, e);
    if (!rc) rc = comm_split(&outer, c, &replicate, 1, e);
    if (rc) return rc;
    int64_t v = comm_rank(c), w = v;
    comm_wait(inner, comm_all_reduce(inner, &v, &v, 1, DT_I64, COMM_SUM, "inner"));
    comm_wait(outer, comm_all_reduce(outer, &w, &w, 1, DT_I64, COMM_SUM, "outer"));
    if (comm_size(c) == 4 && strcmp(comm_transport(c), "null")) {
        if (v != (comm_rank(c) < 2 ? 1 : 5) || w != (comm_rank(c) % 2 ? 4 : 2)) bad(t);
    }
    float x[10] = {0};
    comm_wait(inner, comm_all_reduce(inner, x, x, 10, DT_F32, COMM_SUM, "x"));
    if (comm_rank(c) == 0) t->n = comm_traffic(inner).bytes * 1000 + comm_traffic(inner).messages;
    rc = comm_status(c, e);
    comm_free(inner);
    comm_free(outer);
    return rc;
}

static void test_groups_and_counts(void **state)
{
    (void)state;
    struct trial real = {0}, paper = {0};
    struct err e = {0};
    struct comm *null;
    if (comm_run_local(4, &(struct comm_config){.timeout_s = 60}, run_groups, &real, &e)) fail_msg("%s", e.text);
    assert_int_equal(real.wrong, 0);
    assert_int_equal(comm_world_null(&null, 0, 4, NULL, &e), OK);
    assert_int_equal(run_groups(null, &paper, &e), OK);
    comm_free(null);
    assert_true(real.n > 0);
    assert_int_equal(real.n, paper.n);
}

/* ---- disagreement ---- */
enum fault { WRONG_OPERATION, WRONG_COUNT, WRONG_DTYPE, WRONG_MESSAGE, LEAVES, FAILS, SLEEPS, BEHIND, N_FAULTS };
static const char *const wanted[N_FAULTS] = {"the operation differs",
                                             "the count differs",
                                             "the dtype differs",
                                             "rank 1 sends 8 f32 to rank 0, which receives 4 f32",
                                             "rank 1 left before",
                                             "rank 1: the disk is gone",
                                             "rank 1 is late",
                                             "rank 1 is late"};

/* Until another rank has found it too late. */
static void sleep_through(struct comm *c)
{
    while (comm_status(c, NULL) == OK) clock_sleep_s(1e-3);
}

/* Rank 0 waits for 2, and alone waits too long, since 2 is patient; 2 waits for 1. Nobody but the last may be named. */
static int run_behind(struct comm *c, struct err *e)
{
    float x[8];
    if (comm_rank(c) == 1) sleep_through(c);
    if (comm_rank(c) == 2) comm_patience(c, 600);
    if (comm_rank(c) != 1) comm_wait(c, comm_recv(c, x, 8, DT_F32, comm_rank(c) ? 1 : 2, "activation"));
    return comm_status(c, e);
}

static int run_fault(struct comm *c, void *arg, struct err *e)
{
    enum fault f = *(enum fault *)arg;
    float x[8] = {0}, y[32];
    bool odd = comm_rank(c) == 1;
    if (f == BEHIND) return run_behind(c, e);
    if (f == WRONG_MESSAGE) {
        if (odd) comm_wait(c, comm_send(c, x, 8, DT_F32, 0, "gradient of wq"));
        if (comm_rank(c) == 0) comm_wait(c, comm_recv(c, x, 4, DT_F32, 1, "gradient of wq"));
        return comm_status(c, e);
    }
    if (odd && f == LEAVES) return OK;
    if (odd && f == FAILS) return err_set(e, ERR_IO, "the disk is gone");
    if (odd && f == SLEEPS) sleep_through(c);
    int64_t ticket;
    if (odd && f == WRONG_OPERATION) ticket = comm_all_gather(c, x, y, 8, DT_F32, "gradient of wq");
    else if (odd && f == WRONG_COUNT) ticket = comm_all_reduce(c, x, x, 7, DT_F32, COMM_SUM, "gradient of wq");
    else if (odd && f == WRONG_DTYPE) ticket = comm_all_reduce(c, x, x, 8, DT_I32, COMM_SUM, "gradient of wq");
    else ticket = comm_all_reduce(c, x, x, 8, DT_F32, COMM_SUM, "gradient of wq");
    comm_wait(c, ticket);
    return comm_status(c, e);
}

static void test_faults(void **state)
{
    (void)state;
    for (int f = 0; f < N_FAULTS; f++) {
        struct err e = {0};
        enum fault fault = (enum fault)f;
        /* What is found at once would not be in time; who is late is, when the two others are long there. */
        struct comm_config cfg = {.timeout_s = f < SLEEPS ? 600 : 3};
        int rc = comm_run_local(3, &cfg, run_fault, &fault, &e);
        assert_true(rc < 0);
        if (!strstr(e.text, wanted[f])) fail_msg("fault %d: '%s' does not say '%s'", f, e.text, wanted[f]);
        if (!strstr(e.text, "rank 1")) fail_msg("fault %d: '%s' does not name rank 1", f, e.text);
        if (f < LEAVES && !strstr(e.text, "gradient of wq")) fail_msg("fault %d: '%s' names no tensor", f, e.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce),        cmocka_unit_test(test_scatter_gather), cmocka_unit_test(test_rest),
        cmocka_unit_test(test_groups_and_counts), cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
