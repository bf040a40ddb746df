/* SPDX-License-Identifier: Apache-2.0 */
/* What pipelines and experts do at once: messages to both neighbours that cross, larger than any buffer, waited for in
 * any order, while all_to_all_v with uneven and empty pieces runs in another group of the same ranks. Nothing may wait
 * for what another rank does later. Alone: ranks as threads; under mpirun: processes (argument: ranks that share a
 * host). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/mem.h"
#include "comm/comm.h"

enum { ROUNDS = 12, BIG = 200001 };

static float value(int from, int to, int round, int64_t i)
{
    return (float)(from * 1000 + to * 100 + round) + (float)(i % 7) / 8;
}

/* Experts: what `from` sends to `to` in a round; nothing at all from rank 1 in some rounds. */
static int64_t tokens(int from, int to, int round)
{
    const int64_t key[] = {from, to, round};
    return from == 1 && round % 3 == 0 ? 0 : (int64_t)(hash64(key, sizeof key) % 3000);
}

struct stage {
    struct comm *pipe, *experts;
    int me, n;
    float *to[2], *from[2]; /* [BIG] previous and next */
    float *in, *out;        /* experts */
    int64_t *send, *recv;
    int wrong;
};

static int neighbour(const struct stage *s, int side) { return (s->me + (side ? 1 : s->n - 1)) % s->n; }

static int64_t dispatch(struct stage *s, int round)
{
    float *p = s->in;
    for (int r = 0; r < s->n; r++) {
        s->send[r] = tokens(s->me, r, round);
        s->recv[r] = tokens(r, s->me, round);
        for (int64_t i = 0; i < s->send[r]; i++) *p++ = value(s->me, r, round, i);
    }
    return comm_all_to_all_v(s->experts, s->in, s->out, s->send, s->recv, DT_F32, "dispatch");
}

static void check_dispatch(struct stage *s, int round)
{
    const float *p = s->out;
    for (int r = 0; r < s->n; r++)
        for (int64_t i = 0; i < tokens(r, s->me, round); i++) s->wrong += *p++ != value(r, s->me, round, i);
}

/* Sends first and receives later, on every rank: activations one way, gradients the other. */
static void cross(struct stage *s, int round)
{
    int64_t n = round % 2 ? BIG : 3, sent[2], got[2];
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < n; i++) s->to[side][i] = value(s->me, neighbour(s, side), round + side, i);
        sent[side] = comm_send(s->pipe, s->to[side], n, DT_F32, neighbour(s, side), "out");
    }
    int64_t experts = dispatch(s, round);
    if (round % 3 == 1) comm_wait(s->experts, experts);
    /* What a neighbour sent to its previous one comes from our next one, and the other way round; with two ranks both
     * come from the same, in the order in which they were sent. */
    for (int k = 0; k < 2; k++) {
        int side = 1 - k;
        got[side] = comm_recv(s->pipe, s->from[side], n, DT_F32, neighbour(s, side), "in");
    }
    for (int k = 0; k < 2; k++) {
        int side = round % 2 ? k : 1 - k;
        comm_wait(s->pipe, got[side]);
        for (int64_t i = 0; i < n; i++)
            s->wrong += s->from[side][i] != value(neighbour(s, side), s->me, round + 1 - side, i);
    }
    comm_wait(s->experts, experts);
    check_dispatch(s, round);
    for (int side = 0; side < 2; side++) comm_wait(s->pipe, sent[side]);
}

/* A pipeline's steady state: what comes in is handed on, as pairs. */
static void relay(struct stage *s, int round)
{
    int next = s->me + 1, last = s->me - 1;
    for (int64_t i = 0; s->me == 0 && i < BIG; i++) s->from[0][i] = value(0, 0, round, i);
    if (last >= 0) comm_wait(s->pipe, comm_recv(s->pipe, s->from[0], BIG, DT_F32, last, "relay"));
    if (next < s->n) {
        struct comm_p2p pair[2] = {{true, next, s->from[0], BIG, DT_F32}, {false, next, s->from[1], 5, DT_F32}};
        int64_t both = comm_exchange(s->pipe, pair, 2, "relay");
        if (last >= 0) comm_wait(s->pipe, comm_send(s->pipe, s->from[0], 5, DT_F32, last, "back"));
        comm_wait(s->pipe, both);
    } else if (last >= 0) {
        comm_wait(s->pipe, comm_send(s->pipe, s->from[0], 5, DT_F32, last, "back"));
    }
    for (int64_t i = 0; i < BIG; i++) s->wrong += s->from[0][i] != value(0, 0, round, i);
}

static int run_stage(struct comm *world, void *arg, struct err *e)
{
    struct stage s = {.me = comm_rank(world), .n = comm_size(world)};
    int *all = xcalloc((size_t)s.n, sizeof *all);
    (void)arg;
    for (int r = 0; r < s.n; r++) all[r] = r;
    int rc = comm_split_list(&s.pipe, world, all, s.n, "pp", e);
    if (!rc) rc = comm_split_list(&s.experts, world, all, s.n, "ep", e);
    for (int side = 0; side < 2; side++) {
        s.to[side] = xcalloc(BIG, sizeof *s.to[side]);
        s.from[side] = xcalloc(BIG, sizeof *s.from[side]);
    }
    s.in = xcalloc(3000 * (size_t)s.n, sizeof *s.in);
    s.out = xcalloc(3000 * (size_t)s.n, sizeof *s.out);
    s.send = xcalloc((size_t)s.n, sizeof *s.send);
    s.recv = xcalloc((size_t)s.n, sizeof *s.recv);
    for (int round = 0; !rc && round < ROUNDS; round++) {
        if (s.n > 1) cross(&s, round);
        relay(&s, round);
        rc = comm_status(world, e);
    }
    comm_free(s.experts);
    comm_free(s.pipe);
    xfree(all);
    for (int side = 0; side < 2; side++) xfree(s.to[side]), xfree(s.from[side]);
    xfree(s.in);
    xfree(s.out);
    xfree(s.send);
    xfree(s.recv);
    return rc ? rc : s.wrong ? err_set(e, ERR_NUMERIC, "%d elements are wrong", s.wrong) : OK;
}

static void test_threads(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 5; ranks++)
        for (int progress = 0; progress < 2; progress++) {
            struct comm_config cfg = {.timeout_s = 600,
                                      .progress = (enum comm_progress)progress,
                                      .ranks_per_host = ranks % 3};
            struct err e = {0};
            if (comm_run_local(ranks, &cfg, run_stage, NULL, &e)) fail_msg("%d ranks: %s", ranks, e.text);
        }
}

static int launched(int ranks_per_host)
{
    struct comm *world;
    struct err e = {0};
    int rc = comm_world_mpi(&world, &(struct comm_config){.timeout_s = 600, .ranks_per_host = ranks_per_host}, &e);
    for (int progress = 0; !rc && progress < 2; progress++) {
        struct comm_config cfg = {.timeout_s = 600, .progress = (enum comm_progress)progress};
        rc = comm_configure(world, &cfg, &e);
        if (!rc) rc = comm_agree(world, run_stage(world, NULL, &e), &e);
    }
    if (rc) fprintf(stderr, "%s\n", e.text);
    if (rc && world) comm_abort(world, &e);
    comm_free(world);
    return rc ? 1 : 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads)};
    if (comm_launched()) return launched(argc > 1 ? atoi(argv[1]) : 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
