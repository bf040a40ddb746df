/* SPDX-License-Identifier: Apache-2.0 */
/* One process of several, whose buffers the others see: ranks_blocks WHAT, under a launcher.
 *
 *     all      every operation with all buffers in blocks, with some ranks' in ordinary memory, in blocks that are
 *              freed and made again, after a fork; then the same with config.staged, which must give the same bits
 *     kill     the last rank kills itself while the others are in a large operation
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/every.h"

enum where { HERE, BLOCKS, MIXED, HALF }; /* HALF: inputs in blocks, outputs not, on the first rank only */

static char *take(struct comm *c, size_t bytes, bool block)
{
    return block ? comm_pages_new(c, bytes) : xmalloc(bytes);
}

static void give(struct comm *c, char *p, size_t bytes, bool block)
{
    if (block) comm_pages_free(c, p, bytes);
    else xfree(p);
}

/* Returns how many operations ran in one pass, or -1: something was wrong. */
static int64_t run(struct comm *c, enum where where, int64_t n, enum dtype t, enum comm_red r)
{
    size_t bytes = (size_t)(n + 64 * comm_size(c) + 64) * dtype_bytes(t) + ((size_t)128 << 10);
    bool first = comm_rank(c) == 0, in_block = where != HERE && !(where == MIXED && first),
         out_block = in_block && !(where == HALF && first);
    char *in = take(c, bytes, in_block), *out = take(c, bytes, out_block);
    int64_t before = comm_one_pass(c);
    int wrong = where == HERE ? every_run(c, "direct", n, t, r) : every_run_in(c, "direct", n, t, r, in + 8, out + 24);
    give(c, in, bytes, in_block);
    give(c, out, bytes, out_block);
    return wrong ? -1 : comm_one_pass(c) - before;
}

/* Sizes from nothing to several chunks, each in new memory: slots are used again, by other sizes. */
static int run_sizes(struct comm *c, bool visible, struct err *e)
{
    static const int64_t sizes[] = {0, 1, 5, 2049, 16384, 70001, 300007};
    for (int where = HERE; where <= HALF; where++)
        for (int i = 0; i < 7 + EVERY_DTYPES; i++) {
            int64_t n = i < 7 ? sizes[i] : 20011 + i;
            enum dtype t = i < 7 ? DT_F32 : every_dtype[i - 7];
            int64_t ran = run(c, (enum where)where, n, t, (enum comm_red)(i % COMM_RED_N));
            /* all_reduce twice, reduce and broadcast per root, pieces eight times, all_to_all twice */
            int64_t want = where == BLOCKS && visible && n >= 16384 ? 2 + 2 * comm_size(c) + 8 + 2 : 0;
            if (ran < 0) return err_set(e, ERR_NUMERIC, "case %d, %lld elements: wrong", where, (long long)n);
            if (where == HALF ? ran > want + 2 * comm_size(c) + 8 : ran != want)
                return err_set(e, ERR_NUMERIC, "case %d, %lld elements of %s: %lld operations in one pass, not %lld",
                               where, (long long)n, dtype_name(t), (long long)ran, (long long)want);
        }
    return comm_status(c, e);
}

/* A child sees what its parent has and does not disturb it by ending. */
static int run_fork(struct comm *c, struct err *e)
{
    enum { N = 100000 };
    float *x = (float *)comm_pages_new(c, N * sizeof *x), want = 0;
    for (int p = 0; p < comm_size(c); p++) want += (float)(p + 1);
    for (int i = 0; i < N; i++) x[i] = (float)(comm_rank(c) + 1);
    pid_t child = fork();
    if (child == 0) _exit(x[N - 1] == (float)(comm_rank(c) + 1) ? 0 : 1);
    int status = 1;
    if (waitpid(child, &status, 0) != child || status) return err_set(e, ERR_NUMERIC, "the child saw something else");
    comm_wait(c, comm_all_reduce(c, x, x, N, DT_F32, COMM_SUM, "after a fork"));
    for (int i = 0; i < N; i++)
        if (x[i] != want)
            return err_set(e, ERR_NUMERIC, "[%d] is %g, not %g, after a fork", i, (double)x[i], (double)want);
    comm_pages_free(c, x, N * sizeof *x);
    return comm_status(c, e);
}

/* The bits of a sum that does not add exactly. */
static uint64_t sum_bits(struct comm *c)
{
    enum { N = 50021 };
    float *x = (float *)comm_pages_new(c, N * sizeof *x);
    for (int i = 0; i < N; i++) x[i] = 1.0f / (float)(3 + i % 97 + 31 * comm_rank(c));
    comm_wait(c, comm_all_reduce(c, x, x, N, DT_F32, COMM_AVG, "bits"));
    uint64_t bits = 0;
    for (int i = 0; i < N; i++) {
        uint32_t b;
        memcpy(&b, &x[i], sizeof b);
        bits = bits * 1000003 + b;
    }
    comm_pages_free(c, x, N * sizeof *x);
    return bits;
}

static int run_all(struct comm *c, const struct comm_config *cfg, struct err *e)
{
    struct comm_config staged = *cfg;
    staged.staged = true;
    staged.progress = cfg->progress == COMM_THREAD ? COMM_INLINE : COMM_THREAD;
    bool visible = comm_pages_shared(c);
    if (!visible) return err_set(e, ERR_NUMERIC, "these processes do not see each other's memory");
    uint64_t bits = sum_bits(c);
    int rc = run_sizes(c, true, e);
    if (!rc) rc = run_fork(c, e);
    if (!rc && comm_configure(c, &staged, e)) staged.progress = COMM_INLINE, rc = comm_configure(c, &staged, e);
    if (!rc && comm_pages_shared(c)) rc = err_set(e, ERR_NUMERIC, "seen although config.staged");
    if (!rc) rc = run_sizes(c, false, e);
    if (!rc && every_same_bits(c, 70001, DT_F32)) rc = err_set(e, ERR_NUMERIC, "other bits by other algorithms");
    if (!rc && sum_bits(c) != bits) rc = err_set(e, ERR_NUMERIC, "other bits through stages");
    return rc;
}

static void die_at_work(struct comm *c)
{
    enum { N = 8 << 20 };
    float *x = (float *)comm_pages_new(c, N * sizeof *x);
    memset(x, 0, N * sizeof *x);
    for (int i = 0;; i++) {
        if (i == 5 && comm_rank(c) == comm_size(c) - 1 && fork() == 0) { /* kills its parent a little later */
            usleep(30000);
            kill(getppid(), SIGKILL);
            _exit(0);
        }
        comm_wait(c, comm_all_reduce(c, x, x, N, DT_F32, COMM_SUM, "gradient"));
        if (comm_status(c, NULL)) return;
    }
}

int main(int argc, char **argv)
{
    struct comm *world;
    struct err e = {0};
    if (argc < 2) return 2;
    struct comm_config cfg = {.timeout_s = 1000}; /* longer than a script lets us run: who is killed is known before */
    int rc = comm_world_mpi(&world, &cfg, &e);
    if (rc) return fprintf(stderr, "%s\n", e.text), 2;
    if (!strcmp(argv[1], "kill")) die_at_work(world), rc = comm_status(world, &e);
    else rc = comm_agree(world, run_all(world, &cfg, &e), &e);
    if (rc) comm_abort(world, &e);
    if (comm_rank(world) == 0) fprintf(stderr, "%d ranks over %s: passed\n", comm_size(world), comm_mpi_name());
    comm_free(world);
    return 0;
}
