/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of speed, fed by hand: no share above 1 whatever the ceiling was measured as, and a line's mean is that of
 * its interval. */
#include "toy.h"

#include "watch/speed.h"

static void test_mean_of_the_interval(void **state)
{
    (void)state;
    struct speed s;
    double rate, mfu;
    speed_init(&s, 1000);
    assert_true(fabs(speed_step(&s, 400, 60, 1) - 0.4) < 1e-12);
    assert_true(fabs(speed_step(&s, 400, 60, 4) - 0.1) < 1e-12);
    assert_true(fabs(speed_step(&s, 400, 60, 0.5) - 0.8) < 1e-12); /* the last one is not the mean */
    speed_mean(&s, &rate, &mfu);
    assert_true(fabs(rate - 180 / 5.5) < 1e-12 && fabs(mfu - 1200 / 5.5 / 1000) < 1e-12);
    speed_step(&s, 400, 60, 2);
    speed_mean(&s, &rate, &mfu); /* what came before the last line is over */
    assert_true(fabs(rate - 30) < 1e-12 && fabs(mfu - 0.2) < 1e-12);
    assert_false(s.raised);
}

/* A ceiling that a busy machine gave: 1,000 times too low, a little too low, right. */
static void test_never_above_one(void **state)
{
    (void)state;
    for (double ceiling = 1; ceiling <= 1e5; ceiling *= 1.37) {
        struct speed s;
        double rate, mfu, fastest = 0;
        speed_init(&s, ceiling);
        for (int i = 0; i < 300; i++) {
            double step_s = 0.01 + rng_u32(1, 1, (uint64_t)i) / 4294967296.0, share = speed_step(&s, 100, 10, step_s);
            fastest = fmax(fastest, 100 / step_s);
            assert_true(share > 0 && share <= 1);
            assert_true(s.ceiling >= ceiling && s.ceiling >= fastest && s.ceiling <= fmax(ceiling, fastest));
            assert_true(s.raised == (s.ceiling > 1.05 * ceiling) || s.ceiling <= 1.05 * 1.05 * ceiling);
            if (i % 7 == 6) {
                speed_mean(&s, &rate, &mfu);
                assert_true(mfu > 0 && mfu <= 1);
            }
        }
    }
}

static void test_nothing_to_divide(void **state)
{
    (void)state;
    struct speed s;
    double rate, mfu;
    speed_init(&s, 0);
    speed_mean(&s, &rate, &mfu);
    assert_true(rate == 0 && mfu == 0);
    assert_true(speed_step(&s, 100, 10, 0) == 0);
    assert_true(speed_step(&s, 0, 10, 1) == 0);
    speed_mean(&s, &rate, &mfu);
    assert_true(rate == 20 && mfu <= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean_of_the_interval),
        cmocka_unit_test(test_never_above_one),
        cmocka_unit_test(test_nothing_to_divide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
