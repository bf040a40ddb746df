/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* Dealing layers beside trying every way: there is a result whenever there is a legal way, its dearest stage is as
 * cheap as any, and no way as cheap is more even. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/deal.h"
#include "sanitized.h"

enum { MOST = 9 };

struct trial {
    int stages, layers;
    int64_t cost[MOST], first, last;
    bool any;
    int64_t dearest, squares; /* of the best way */
};

static int64_t stage_cost(const struct trial *t, int s, int begin, int end)
{
    int64_t c = (s == 0 ? t->first : 0) + (s == t->stages - 1 ? t->last : 0);
    for (int i = begin; i < end; i++) c += t->cost[i];
    return c;
}

/* Every way to go on from stage s at layer `begin`. */
static void try_all(struct trial *t, int s, int begin, int64_t dearest, int64_t squares)
{
    if (s == t->stages) {
        bool better =
            begin == t->layers && (!t->any || dearest < t->dearest || (dearest == t->dearest && squares < t->squares));
        if (!better) return;
        t->any = true;
        t->dearest = dearest;
        t->squares = squares;
        return;
    }
    bool end_of_pipe = s == 0 || s == t->stages - 1;
    for (int end = begin + !end_of_pipe; end <= t->layers; end++) {
        int64_t c = stage_cost(t, s, begin, end);
        try_all(t, s + 1, end, c > dearest ? c : dearest, squares + c * c);
    }
}

static void compare(struct trial *t)
{
    int64_t n[MOST + 3], dearest = 0, squares = 0;
    try_all(t, 0, 0, 0, 0);
    assert_int_equal(deal_possible(t->layers, t->stages), t->any);
    if (!t->any) return;
    deal_layers(n, t->stages, t->cost, t->layers, t->first, t->last);
    int begin = 0;
    for (int s = 0; s < t->stages; s++) {
        assert_true(n[s] >= deal_least(s, t->stages));
        int64_t c = stage_cost(t, s, begin, begin + (int)n[s]);
        begin += (int)n[s];
        dearest = c > dearest ? c : dearest;
        squares += c * c;
    }
    assert_int_equal(begin, t->layers);
    assert_int_equal(dearest, t->dearest);
    assert_int_equal(squares, t->squares);
}

static void test_every_way(void **state)
{
    (void)state;
    uint64_t k = 0;
    for (int layers = 1; layers <= MOST; layers++)
        for (int stages = 1; stages <= layers + 3 && stages <= MOST + 2; stages++)
            for (int kind = 0; kind < 12; kind++) {
                struct trial t = {.stages = stages, .layers = layers};
                for (int i = 0; i < layers; i++) /* alike, two kinds, or any, also free ones */
                    t.cost[i] = kind < 4   ? 10
                                : kind < 8 ? (i < layers / 3 ? 3 : 10)
                                           : (int64_t)(rng_u32(5, 1, k++) % 12);
                t.first = kind % 4 == 1 || kind % 4 == 3 ? (int64_t)(rng_u32(5, 1, k++) % 40) : 0;
                t.last = kind % 4 >= 2 ? (int64_t)(rng_u32(5, 1, k++) % 60) : 0;
                compare(&t);
            }
}

static void expect(int stages, int layers, int64_t cost, int64_t last, const int64_t *want)
{
    int64_t *each = xcalloc((size_t)layers, sizeof *each), *n = xcalloc((size_t)stages, sizeof *n);
    for (int i = 0; i < layers; i++) each[i] = cost;
    deal_layers(n, stages, each, layers, 0, last);
    for (int s = 0; s < stages; s++) assert_int_equal(n[s], want[s]);
    xfree(each);
    xfree(n);
}

/* Of equal ways the one with fewest layers at the end, where the head is. */
static void test_known(void **state)
{
    (void)state;
    expect(4, 30, 5, 0, (int64_t[]){8, 8, 7, 7});
    expect(4, 30, 5, 20, (int64_t[]){9, 9, 8, 4});
    expect(4, 30, 5, 19, (int64_t[]){9, 8, 8, 5});
    expect(7, 5, 5, 1000, (int64_t[]){0, 1, 1, 1, 1, 1, 0});
    expect(2, 3, 5, 0, (int64_t[]){2, 1});
    expect(1, 3, 5, 7, (int64_t[]){3});
}

/* Many layers, dealt in no time whatever the head weighs. */
static void test_large(void **state)
{
    (void)state;
    enum { LAYERS = 5000 };
    static const int stages[] = {2, 64, 1000, 4000, LAYERS + 2};
    static const int64_t heads[] = {0, 7, 1000000, 50000000};
    int64_t *cost = xcalloc(LAYERS, sizeof *cost), *n = xcalloc(LAYERS + 2, sizeof *n);
    for (int i = 0; i < LAYERS; i++) cost[i] = i < 300 ? 9000 : 20000;
    double begin = clock_thread_s();
    for (int i = 0; i < 5; i++)
        for (int h = 0; h < 4; h += CASE_STRIDE) {
            int64_t sum = 0;
            deal_layers(n, stages[i], cost, LAYERS, 0, heads[h]);
            for (int s = 0; s < stages[i]; s++) sum += n[s];
            assert_int_equal(sum, LAYERS);
        }
    assert_true(clock_thread_s() - begin < 20);
    xfree(cost);
    xfree(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_way), cmocka_unit_test(test_known),
                                       cmocka_unit_test(test_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
