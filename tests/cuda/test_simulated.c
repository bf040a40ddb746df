/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator of a GPU's blocks (kernel/cuda/sim.h): kernels that are right have the right numbers and the same bits
 * in every order; each planted fault is told by kernel, thread and line, or makes numbers wrong, or others in some
 * order. What is asked of a launch that no GPU grants is refused; products are added as the dial says. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "child.h"
#include "cuda/faults.h"
#include "kernel/cuda/sim_run.h"
#include "layout/dtype.h"

enum { BLOCKS = 3, MOST = 4096, SEEDS = 6 };

#define DECLARE(frame, fault) void frame##_##fault##_simulated(const void *args);
FAULTS_EACH(DECLARE)
enum frame { rows, lanes, copies, product, move };
#define ROW(frame, fault)                                                                                              \
    {frame,                                                                                                            \
     fault,                                                                                                            \
     {.name = #frame "_" #fault, .threads = FAULT_THREADS_##frame, .simulated = frame##_##fault##_simulated}},
static const struct row {
    enum frame frame;
    enum fault fault;
    struct gpu_kernel kernel;
} table[] = {FAULTS_EACH(ROW)};
enum { ROWS = sizeof table / sizeof *table };

/* What the simulator says of it; "": it makes numbers wrong, or others in another order. */
static const char *const said[FAULTS] = {
    [BARRIER_IN_A_BRANCH] = "it waits at this barrier",
    [ENDS_EARLY] = "has ended",
    [BEHIND_SHARED] = "behind its",
    [HALF_A_WARP] = "its warp waits for thread",
    [NOT_IN_ITS_MASK] = "is of others",
    [MASK_OF_MORE] = "its warp waits for thread",
    [NOT_ALIGNED] = "no multiple of 16",
    [NO_COMMIT] = "a copy not waited for",
    [NO_WAIT] = "a copy not waited for",
    [LAST_NOT_WAITED] = "a copy not waited for",
    [LOAD_NOT_ALIGNED] = "no multiple of 16",
};

static size_t shared_of(enum frame f)
{
    static const size_t bytes[] =
        {[rows] = (TILE + THREADS / 32) * 4, [copies] = 2 * TILE * 4, [product] = (256 + 128) * 2, [move] = 0};
    return bytes[f];
}

/* bf16 numbers, of sizes that an fp32 sum rounds. */
static float x_of(int i) { return ldexpf((float)((i * 37 + i / 7) % 64 - 31), -5 - i % 13); }

struct result {
    float y[MOST];
};

static void launch(const struct row *r, struct sim_order o, struct result *to)
{
    static _Thread_local _Alignas(16) float x[MOST];
    for (int i = 0; i < MOST; i++) x[i] = x_of(i);
    memset(to, 0, sizeof *to);
    static _Thread_local _Alignas(16) float y[MOST];
    memset(y, 0, sizeof y);
    struct fault_args a = {x, y, r->frame == move ? 700 * 4 : 3 * TILE};
    struct gpu_launch l = {.kernel = &r->kernel,
                           .grid = {r->frame == product ? 1
                                    : r->frame == move  ? 11
                                                        : BLOCKS,
                                    1, 1},
                           .shared = shared_of(r->frame),
                           .args = &a,
                           .bytes = sizeof a};
    sim_order_set(&o);
    sim_run(&l);
    sim_order_set(NULL);
    memcpy(to->y, y, sizeof y);
}

/* In double, of what a kernel of the frame makes at i; *n: how many there are. */
static double wanted(enum frame f, int i, int *n)
{
    double sum = 0;
    switch (f) {
    case rows:
        *n = BLOCKS;
        for (int k = 0; k < 3 * TILE; k++) sum += (double)x_of(i * 3 * TILE + k);
        return sum;
    case lanes:
        *n = BLOCKS;
        for (int k = 0; k < 32; k++) sum += (double)x_of(i * 32 + k);
        return sum;
    case copies:
        *n = BLOCKS * THREADS;
        for (int k = 0; k < 3 * TILE; k += THREADS)
            sum += (double)x_of(i / THREADS * 3 * TILE + k / TILE * TILE + TILE - 1 - k % TILE - i % THREADS);
        return sum;
    case product:
        *n = 128;
        for (int k = 0; k < 16; k++) sum += (double)x_of(i / 8 * 16 + k) * (double)x_of(256 + k * 8 + i % 8);
        return sum;
    case move: *n = 2800; return (double)x_of(i);
    }
    return 0;
}

static bool right(enum frame f, const struct result *r)
{
    int n = 1;
    for (int i = 0; i < n; i++) {
        double want = wanted(f, i, &n);
        if (!((double)r->y[i] - want < 1e-4 && want - (double)r->y[i] < 1e-4)) return false;
    }
    return true;
}

struct
try {
    const struct row *row;
    int pipe; /* where stderr goes */
};

/* 0: right in every order, with the same bits; 1: not so. */
static int in_all_orders(void *arg)
{
    const struct try *t = arg;
    static _Thread_local struct result first, now;
    if (t->pipe >= 0) dup2(t->pipe, 2);
    for (int way = 0; way < SIM_WAYS; way++)
        for (uint64_t seed = 1; seed <= (way >= SIM_RANDOM ? SEEDS : 1); seed++) {
            launch(t->row, (struct sim_order){(enum sim_way)way, seed}, &now);
            if (!right(t->row->frame, &now)) return 1;
            if (way + (int)seed == 1) first = now;
            else if (memcmp(&first, &now, sizeof now)) return 1;
        }
    return 0;
}

static void test_right_kernels(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++)
        if (table[i].fault == NONE && in_all_orders(&(struct try){&table[i], -1})) fail_msg("%s", table[i].kernel.name);
}

static void test_planted_faults(void **state)
{
    (void)state;
    int told = 0, seen = 0;
    for (int i = 0; i < ROWS; i++) {
        if (table[i].fault == NONE) continue;
        char text[4096] = "";
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        int rc = child_end(in_all_orders, &(struct try){&table[i], ends[1]});
        close(ends[1]);
        ssize_t n = read(ends[0], text, sizeof text - 1);
        text[n > 0 ? n : 0] = 0;
        close(ends[0]);
        const char *want = said[table[i].fault], *name = table[i].kernel.name;
        if (want && (rc != -SIGABRT || !strstr(text, want) || !strstr(text, name) || !strstr(text, ", line ")))
            fail_msg("%s ends with %d: %s", name, rc, text);
        if (!want && rc != 1) fail_msg("%s: nothing is wrong in any order (%d) %s", name, rc, text);
        told += want != NULL;
        seen++;
    }
    print_message("  %d faults, %d of them told by thread and line\n", seen, told);
    assert_true(seen == FAULTS - 1 && told == 11);
}

/* ---- what is asked of a launch ---- */
static int bad_launch(void *arg)
{
    const struct gpu_launch *l = arg;
    sim_run(l);
    return 0;
}

static void test_launches(void **state)
{
    (void)state;
    const struct gpu_kernel *good = &table[0].kernel;
    struct gpu_kernel odd = *good, many = *good;
    struct fault_args a = {NULL, NULL, 0};
    odd.threads = 48;
    many.threads = 2048;
    const struct gpu_launch bad[] = {{good, {1, 1, 1}, GPU_SHARED_MOST + 1, &a, sizeof a},
                                     {&odd, {1, 1, 1}, 4096, &a, sizeof a},
                                     {&many, {1, 1, 1}, 4096, &a, sizeof a},
                                     {good, {1, 1, 1}, 4096, &a, GPU_ARGS_MOST + 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(child_end(bad_launch, (void *)(uintptr_t)&bad[i]), -SIGABRT);
    struct sim_counts before = sim_counted();
    const struct gpu_launch none = {good, {0, 5, 5}, 4096, &a, sizeof a};
    sim_run(&none);
    assert_int_equal(sim_counted().blocks, before.blocks);
}

/* The result of one product of the right kernel, as its bits. */
static int first_of_product(void *arg)
{
    struct result r;
    const struct row *p = arg;
    launch(p, (struct sim_order){SIM_FORWARD, 1}, &r);
    unsigned char sum = 0, b[sizeof(float)];
    for (int i = 0; i < 128; i++) {
        memcpy(b, &r.y[i], sizeof b);
        for (size_t k = 0; k < sizeof b; k++) sum = (unsigned char)(31 * sum + b[k]);
    }
    return sum % 249;
}

/* Sums of products as tensor cores make them cut bits off: other bits than an fp32 sum's, near to the same numbers; a
 * way that there is none of is refused. */
static void test_products(void **state)
{
    (void)state;
    const struct row *p = NULL;
    static const char *const ways[] = {"ampere-bf16", "hopper-bf16"};
    for (int i = 0; i < ROWS; i++)
        if (table[i].frame == product && table[i].fault == NONE) p = &table[i];
    int plain = child_end(first_of_product, (void *)(uintptr_t)p);
    assert_true(plain >= 0);
    for (int i = 0; i < 2; i++) {
        setenv("TUTTI_SIM_PRODUCTS", ways[i], 1);
        assert_int_not_equal(child_end(first_of_product, (void *)(uintptr_t)p), plain);
        assert_int_equal(in_all_orders(&(struct try){p, -1}), 0);
    }
    setenv("TUTTI_SIM_PRODUCTS", "volta", 1);
    assert_int_equal(child_end(first_of_product, (void *)(uintptr_t)p), -SIGABRT);
    unsetenv("TUTTI_SIM_PRODUCTS");
    setenv("TUTTI_SIM_ORDER", "sideways", 1);
    assert_int_equal(child_end(bad_launch, (void *)(uintptr_t) & (struct gpu_launch){&p->kernel, {1, 1, 1}, 0, "", 1}),
                     -SIGABRT);
    unsetenv("TUTTI_SIM_ORDER");
}

/* Several threads of the host launch beside each other. */
static void *beside(void *arg) { return in_all_orders(&(struct try){arg, -1}) ? arg : NULL; }

static void test_ranks_are_threads(void **state)
{
    (void)state;
    enum { RANKS = 4 };
    pthread_t rank[RANKS];
    int at[RANKS] = {0};
    for (int r = 0, k = 0; r < RANKS; k++)
        if (table[k].fault == NONE) at[r++] = k; /* each another kernel */
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&rank[r], NULL, beside, (void *)(uintptr_t)&table[at[r]]), 0);
    for (int r = 0; r < RANKS; r++) {
        void *wrong;
        pthread_join(rank[r], &wrong);
        assert_null(wrong);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_kernels), cmocka_unit_test(test_planted_faults),    cmocka_unit_test(test_launches),
        cmocka_unit_test(test_products),      cmocka_unit_test(test_ranks_are_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
