/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory: alignment, zeroes, overflow, arrays that grow, and an arena against a plain array of what it should
 * hold. */
#include <limits.h>
#include <stdbool.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "child.h"

static void arena_memory_is_aligned_zeroed_and_apart(void **state)
{
    (void)state;
    enum { N = 3000 };
    static unsigned char *p[N];
    static size_t n[N];
    struct arena *a = arena_new();
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            n[i] = rng_u32(1, 2, (uint64_t)i) % (i % 100 == 0 ? 100000 : 200);
            p[i] = arena_alloc(a, n[i]);
            assert_int_equal((uintptr_t)p[i] % 16, 0);
            for (size_t k = 0; k < n[i]; k++) assert_int_equal(p[i][k], 0);
            memset(p[i], i & 255, n[i]);
        }
        for (int i = 0; i < N; i++)
            for (size_t k = 0; k < n[i]; k++) assert_int_equal(p[i][k], i & 255);
        arena_reset(a);
    }
    assert_string_equal(arena_printf(a, "%s-%05d", "x", 42), "x-00042");
    assert_string_equal(arena_strdup(a, "copy"), "copy");
    arena_free(a);
}

static void sizes_from_outside_cannot_wrap(void **state)
{
    (void)state;
    size_t out;
    assert_int_equal(size_mul(SIZE_MAX / 2, 3, &out), -1);
    assert_int_equal(size_mul(1 << 20, 1 << 20, &out), 0);
    assert_true(out == (size_t)1 << 40);
    assert_int_equal(size_add(SIZE_MAX, 1, &out), -1);
    assert_int_equal(size_add(SIZE_MAX - 1, 1, &out), 0);
    assert_int_equal(to_int(-5), -5);
    assert_true(to_size(7) == 7);
}

/* By counters of three types; the elements stay as they were, the room is a power of two. */
static void arrays_grow(void **state)
{
    (void)state;
    struct {
        double *p;
        int n, room;
    } a = {0};
    struct {
        char *p;
        size_t n, room;
    } b = {0};
    int64_t *wide = NULL, n = 0, room = 0;
    for (int i = 0; i < 3000; i++) {
        GROW(a.p, a.n, a.room, 1);
        a.p[a.n++] = i;
        GROW(b.p, b.n, b.room, (size_t)i % 7);
        for (int k = 0; k < i % 7; k++) b.p[b.n++] = (char)i;
        GROW(wide, n, room, 1);
        wide[n++] = -i;
        assert_true(a.n <= a.room && (a.room & (a.room - 1)) == 0 && a.room <= (a.n > 4 ? 2 * a.n : 4));
    }
    size_t at = 0;
    for (int i = 0; i < 3000; i++) {
        assert_true(a.p[i] == i && wide[i] == -i);
        for (int k = 0; k < i % 7; k++) assert_int_equal(b.p[at++], (char)i);
    }
    double *before = a.p;
    GROW(a.p, 0, a.room, a.room); /* enough */
    assert_ptr_equal(a.p, before);
    xfree(a.p);
    xfree(b.p);
    xfree(wide);
}

struct grown {
    uint64_t n, more, room;
    size_t each, counter;
};

static int grow(void *arg)
{
    const struct grown *g = arg;
    return mem_grown(g->n, g->more, g->room, g->each, g->counter) == 0;
}

static bool dies(uint64_t n, uint64_t more, uint64_t room, size_t each, size_t counter)
{
    struct grown g = {n, more, room, each, counter};
    return child_end(grow, &g) == -SIGABRT;
}

/* The numbers alone: nobody has memory for these. */
static void an_array_does_not_outgrow_its_counter(void **state)
{
    (void)state;
    const uint64_t int_max = INT_MAX, i64_max = INT64_MAX;
    assert_true(mem_grown(0, 1, 0, 8, sizeof(int)) == 4);
    assert_true(mem_grown(1 << 30, 1, 1 << 30, 1, sizeof(int)) == int_max);
    assert_true(mem_grown(1 << 30, 1, 1 << 30, 1, sizeof(int64_t)) == (uint64_t)1 << 31);
    assert_true(mem_grown(0, i64_max / 64, 0, 64, sizeof(int64_t)) <= i64_max / 64);
    assert_true(dies(int_max, 1, int_max, 1, sizeof(int)));
    assert_true(dies(0, i64_max / 64 + 1, 0, 64, sizeof(int64_t)));
    assert_true(dies(4, (uint64_t)-1, 4, 1, sizeof(int64_t)));
    assert_true(dies(0, 1, 0, 1, sizeof(short)));
}

static void pages_are_zero_aligned_and_may_be_refused(void **state)
{
    (void)state;
    unsigned char *p = mem_pages_new((size_t)5 << 20);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 4096, 0);
    for (size_t i = 0; i < (size_t)5 << 20; i += 4001) assert_int_equal(p[i], 0);
    mem_pages_free(p, (size_t)5 << 20);
    assert_null(mem_pages_new(SIZE_MAX / 2));
    mem_pages_free(NULL, 0);
}

static void resident_memory_follows_use(void **state)
{
    (void)state;
    size_t before = mem_rss(), bytes = (size_t)64 << 20;
    unsigned char *p = mem_pages_new(bytes);
    memset(p, 1, bytes);
    size_t during = mem_rss();
    mem_pages_free(p, bytes);
    assert_true(before > 0 && during > before + bytes / 2);
    assert_true(mem_rss_peak() + ((size_t)4 << 20) >= during); /* the system counts in batches of pages */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_memory_is_aligned_zeroed_and_apart),  cmocka_unit_test(arrays_grow),
        cmocka_unit_test(an_array_does_not_outgrow_its_counter),     cmocka_unit_test(sizes_from_outside_cannot_wrap),
        cmocka_unit_test(pages_are_zero_aligned_and_may_be_refused), cmocka_unit_test(resident_memory_follows_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
