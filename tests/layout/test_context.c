/* SPDX-License-Identifier: Apache-2.0 */
/* Every token is held once, rows map to positions in order, and counted pairs are those that a loop counts. */
#include "layout/sequence.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 64 };

static void test_every_token_once(void **state)
{
    (void)state;
    for (int n = 1; n <= 6; n++)
        for (int64_t seq = 0; seq <= 40; seq++) {
            int seen[MOST] = {0};
            for (int r = 0; r < n; r++) {
                int64_t last = -1, rows = context_rows(seq, n, r, 1);
                for (int64_t i = 0; i < rows; i++) {
                    int64_t at = context_place(seq, n, r, i);
                    assert_true(at > last && at < seq); /* ascending */
                    seen[last = at]++;
                }
                assert_true(seq < n || rows > 0);
            }
            for (int64_t i = 0; i < seq; i++) assert_int_equal(seen[i], 1);
            assert_int_equal(context_rows(seq, n, 0, n), seq);
        }
}

static double loop(int64_t q0, int64_t q1, int64_t k0, int64_t k1, bool causal, int64_t window)
{
    double sum = 0;
    for (int64_t i = q0; i < q1; i++)
        for (int64_t j = k0; j < k1; j++) sum += (!causal || j <= i) && (!window || j > i - window);
    return sum;
}

static void test_pairs(void **state)
{
    (void)state;
    for (int64_t q0 = 0; q0 < 8; q0++)
        for (int64_t q1 = q0; q1 < 12; q1 += 2)
            for (int64_t k0 = 0; k0 < 9; k0++)
                for (int64_t k1 = k0; k1 < 12; k1 += 3) {
                    for (int64_t w = 0; w < 14; w++)
                        assert_true(context_pairs(q0, q1, k0, k1, true, w) == loop(q0, q1, k0, k1, true, w));
                    assert_true(context_pairs(q0, q1, k0, k1, false, 0) == loop(q0, q1, k0, k1, false, 0));
                }
}

/* Heads and tails balance: no part has more than a chunk's remainder above the mean. */
static void test_balance(void **state)
{
    (void)state;
    enum { SEQ = 1024, N = 8 };
    double each = context_pairs(0, SEQ, 0, SEQ, true, 0) / N;
    for (int r = 0; r < N; r++) {
        double mine = 0;
        for (int tail = 0; tail < 2; tail++) {
            int64_t lo, hi;
            context_chunk(SEQ, N, r, tail, &lo, &hi);
            mine += context_pairs(lo, hi, 0, SEQ, true, 0);
        }
        assert_true(mine == each);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_token_once), cmocka_unit_test(test_pairs),
                                       cmocka_unit_test(test_balance)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
