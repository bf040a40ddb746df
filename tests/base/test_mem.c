/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory: alignment, zeroes, overflow, and an arena against a plain array of what it should hold. */
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"

static void arena_memory_is_aligned_zeroed_and_apart(void **state)
{
    (void)state;
    enum { N = 3000 };
    static unsigned char *p[N];
    static size_t n[N];
    struct arena *a = arena_new();
    for (int round = 0; round < 2; round++) {
        size_t total = 0;
        for (int i = 0; i < N; i++) {
            n[i] = rng_u32(1, 2, (uint64_t)i) % (i % 100 == 0 ? 100000 : 200);
            p[i] = arena_alloc(a, n[i]);
            assert_int_equal((uintptr_t)p[i] % 16, 0);
            for (size_t k = 0; k < n[i]; k++) assert_int_equal(p[i][k], 0);
            memset(p[i], i & 255, n[i]);
            total += n[i];
        }
        for (int i = 0; i < N; i++)
            for (size_t k = 0; k < n[i]; k++) assert_int_equal(p[i][k], i & 255);
        assert_true(arena_bytes(a) >= total && arena_bytes(a) <= total + 16 * N);
        arena_reset(a);
        assert_int_equal(arena_bytes(a), 0);
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
        cmocka_unit_test(arena_memory_is_aligned_zeroed_and_apart),
        cmocka_unit_test(sizes_from_outside_cannot_wrap),
        cmocka_unit_test(pages_are_zero_aligned_and_may_be_refused),
        cmocka_unit_test(resident_memory_follows_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
