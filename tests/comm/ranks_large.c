/* SPDX-License-Identifier: Apache-2.0 */
/* More elements than 32 bits count, as bytes: a broadcast from rank 0 in shared memory, or along a chain of messages
 * where no memory is shared. ranks_large RANKS-PER-HOST, under a launcher.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "comm/comm.h"
#include "sanitized.h"

static const int64_t n = ((int64_t)1 << 31) + 77;

static unsigned char value(int64_t i, int round)
{
    return (unsigned char)((uint64_t)i * 2654435761u >> 24) ^ (unsigned char)round;
}

/* Places that tell: both ends, both sides of 2^30 and 2^31, and one in every 9 MiB. */
static bool tells(int64_t i)
{
    int64_t in = i & (((int64_t)1 << 30) - 1);
    return i < 64 || i >= n - 64 || in < 8 || in >= ((int64_t)1 << 30) - 8 || i % (9 << 20) == 5;
}

static int64_t next(int64_t i)
{
    int64_t in = i & (((int64_t)1 << 30) - 1), step = i / (9 << 20) * (9 << 20) + 5;
    if (tells(i + 1)) return i + 1;
    int64_t edge = i - in + ((int64_t)1 << 30) - 8, tail = n - 64;
    if (step <= i) step += 9 << 20;
    int64_t least = step < edge ? step : edge;
    return least < tail || i >= tail ? least : tail;
}

static void fill(unsigned char *x, int round)
{
    for (int64_t i = 0; i < n; i = next(i)) x[i] = value(i, round);
}

static int check(const unsigned char *x, int round, const char *what)
{
    int seen = 0;
    for (int64_t i = 0; i < n; i = next(i), seen++)
        if (x[i] != value(i, round)) return fprintf(stderr, "%s: byte %lld is wrong\n", what, (long long)i), 1;
    return seen > 300 ? 0 : (fprintf(stderr, "only %d places looked at\n", seen), 1);
}

static int broadcast(struct comm *c, unsigned char *x, const char *algorithm, struct err *e)
{
    comm_algorithm_set(c, algorithm, e);
    if (comm_rank(c) == 0) fill(x, 1);
    comm_wait(c, comm_broadcast(c, x, n, DT_U8, 0, algorithm));
    return comm_status(c, e) || check(x, 1, algorithm);
}

int main(int argc, char **argv)
{
    struct comm *world;
    struct err e = {0};
    struct comm_config cfg = {.timeout_s = 600, .ranks_per_host = argc > 1 ? atoi(argv[1]) : 0};
    if (CASE_STRIDE > 1) return 0; /* a sanitizer's shadow of it is no better test */
    if (comm_world_mpi(&world, &cfg, &e)) return fprintf(stderr, "%s\n", e.text), 1;
    unsigned char *x = mem_pages_new((size_t)n);
    CHECK(x, "no memory");
    int wrong = broadcast(world, x, cfg.ranks_per_host == 0 ? "direct" : "chain", &e);
    if (e.text[0]) fprintf(stderr, "%s\n", e.text);
    mem_pages_free(x, (size_t)n);
    if (wrong) comm_abort(world, &e);
    comm_free(world);
    return wrong;
}
