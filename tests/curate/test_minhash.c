/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures against what their theory says: places agree as often as sets overlap, independently of each other; bands
 * find pairs with the chance of the S-curve, and verified pairs with that of minhash_found; every way of computing
 * minima gives the same ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "curate/minhash.h"
#include "curate/shingles.h"
#include "kernel/cpuid.h"
#include "sanitized.h"

/* Two sets of hashes with `both` in common and `own` more in each; and their signatures. */
struct pair {
    uint32_t a[MINHASH_MOST], b[MINHASH_MOST];
    int agree; /* places */
    bool in_band;
};
static void sign_pair(const struct minhash *m, uint64_t number, int both, int own, struct pair *p)
{
    int n = both + own;
    uint64_t *x = xmalloc((size_t)(both + 2 * own) * sizeof *x);
    for (int i = 0; i < both + 2 * own; i++) x[i] = rng_u64(11, number, (uint64_t)i);
    minhash_sign(m, x, (size_t)n, p->a);
    memcpy(x + both, x + n, (size_t)own * sizeof *x); /* b: the same `both`, others behind */
    minhash_sign(m, x, (size_t)n, p->b);
    xfree(x);
    uint64_t packed[2][MINHASH_MOST / 4];
    minhash_pack(m, p->a, packed[0]);
    minhash_pack(m, p->b, packed[1]);
    p->agree = minhash_agree(m, packed[0], packed[1]);
    p->in_band = false;
    for (int i = 0; i < m->bands; i++) p->in_band = p->in_band || minhash_band(m, p->a, i) == minhash_band(m, p->b, i);
}

/* Five standard deviations of n draws of chance p, and a pair. */
static double slack(double p, int n) { return 5 * sqrt(p * (1 - p) * n) + 1.5; }

static void curve(void **state)
{
    (void)state;
    struct minhash m;
    enum { PAIRS = 1500 / CASE_STRIDE };
    const double threshold = 0.8;
    minhash_init(&m, 16, 8, 1);
    printf("  s      band  theory   verified  theory\n");
    for (int both = 20; both <= 240; both += 20) {
        int own = (240 - both) / 2, in_band = 0, found = 0;
        double s = both / (both + 2.0 * own), mean = 0, square = 0;
        for (int i = 0; i < PAIRS; i++) {
            struct pair p;
            sign_pair(&m, (uint64_t)(both * 10000 + i), both, own, &p);
            in_band += p.in_band;
            found += p.in_band && minhash_similarity(&m, p.agree) >= threshold;
            double got = minhash_similarity(&m, p.agree);
            mean += got / PAIRS;
            square += (got - s) * (got - s) / PAIRS;
        }
        double band = minhash_chance(s, 16, 8), verified = s < 1 ? minhash_found(s, 16, 8, threshold) : 1;
        printf("  %.3f  %.3f %.3f    %.3f     %.3f\n", s, (double)in_band / PAIRS, band, (double)found / PAIRS,
               verified);
        assert_true(fabs(in_band - band * PAIRS) <= slack(band, PAIRS));
        assert_true(fabs(found - verified * PAIRS) <= slack(verified, PAIRS));
        /* The estimate's mean, and its variance: s (1 - s) / k where places are independent. */
        double variance = s * (1 - s) / m.k;
        assert_true(fabs(mean - s) <= 5 * sqrt(variance / PAIRS) + 1e-12);
        assert_true(fabs(square - variance) <= 5 * variance * sqrt(2.0 / PAIRS) + 1e-12);
    }
    minhash_fini(&m);
}

static void choice(void **state)
{
    (void)state;
    int bands, rows;
    for (int t = 1; t <= 20; t++)
        for (int k = 1; k <= 256; k *= 2) {
            double s = t / 20.0;
            minhash_choose(s, k, &bands, &rows);
            assert_true(bands >= 1 && rows >= 1 && bands * rows <= k);
            assert_true(rows == 1 || minhash_chance(s, bands, rows) >= MINHASH_WANTED);
            if (rows < k) assert_true(t == 20 || minhash_chance(s, k / (rows + 1), rows + 1) < MINHASH_WANTED);
        }
    minhash_choose(0.8, 128, &bands, &rows);
    assert_int_equal(bands * 100 + rows, 1608);
    /* minhash_found by another way: all that shares a band, where the threshold is nothing; nothing at 0. */
    for (int i = 1; i < 10; i++)
        assert_true(fabs(minhash_found(i / 10.0, 5, 3, 0) - minhash_chance(i / 10.0, 5, 3)) < 1e-12);
    /* One band of one row and the estimate 1: the similarity itself. */
    assert_true(fabs(minhash_found(0.3, 1, 1, 1) - 0.3) < 1e-12);
}

static void same_minima(void **state)
{
    (void)state;
    struct minhash m;
    static uint64_t x[700];
    static uint32_t plain[300], other[300];
    for (int i = 0; i < 700; i++) x[i] = rng_u64(5, 6, (uint64_t)i);
    minhash_init(&m, 100, 3, 9);
    for (size_t n = 1; n <= 700; n = n * 3 / 2 + 1) {
        memset(plain, 0xFF, sizeof plain);
        for (size_t i = 0; i < n; i++)
            for (int h = 0; h < 300; h++) {
                uint32_t v = (uint32_t)x[i] * m.a[h] + (uint32_t)(x[i] >> 32) * m.b[h];
                if (v < plain[h]) plain[h] = v;
            }
        minhash_sign(&m, x, n, other);
        assert_memory_equal(plain, other, sizeof plain);
        memset(other, 0xFF, sizeof other);
        minhash_fold_portable(other, m.a, m.b, 300, x, n);
        assert_memory_equal(plain, other, sizeof plain);
    }
    minhash_fini(&m);
}

static size_t count_of(const char *kind, const char *text, uint64_t *first)
{
    struct shingles s = {0};
    assert_int_equal(shingles_parse(&s, kind), 0);
    shingles_of(&s, text, strlen(text));
    size_t n = s.count;
    if (n) *first = s.hash[0];
    shingles_free(&s);
    return n;
}

static double jaccard(const char *kind, const char *a, const char *b)
{
    struct shingles p = {0}, q = {0};
    assert_int_equal(shingles_parse(&p, kind), 0);
    shingles_parse(&q, kind);
    shingles_of(&p, a, strlen(a));
    shingles_of(&q, b, strlen(b));
    shingles_settle(&p);
    shingles_settle(&q);
    double s = shingles_jaccard(&p, &q);
    shingles_free(&p);
    shingles_free(&q);
    return s;
}

static void shingle_sets(void **state)
{
    (void)state;
    uint64_t a = 0, b = 0;
    assert_int_equal(count_of("words:3", "one two three four five", &a), 3);
    assert_int_equal(count_of("words:3", "ONE, two... \"three\"", &b), 1);
    assert_int_equal(a, b);
    assert_int_equal(count_of("words:3", "zero one two three", &b), 2);
    assert_int_not_equal(a, b);
    assert_int_equal(count_of("words:3", "three two one", &b), 1);
    assert_int_not_equal(a, b); /* the order counts */
    assert_int_equal(count_of("words:5", "one two", &a), 1);
    assert_int_equal(count_of("words:5", "one, two", &b), 1);
    assert_int_equal(a, b);
    assert_int_equal(count_of("words:5", "... !", &b), 0);
    assert_int_equal(count_of("words:2", "\xE4\xB8\xAD\xE6\x96\x87\xE5\xAD\x97", &b), 2); /* three ideographs */
    assert_int_equal(count_of("chars:4", "Abc  de", &b), 3);                              /* of "abc de" */
    assert_true(jaccard("words:1", "a b c d", "c d e f") == 2.0 / 6);
    assert_true(jaccard("words:2", "a b c d", "x b c y") == 1.0 / 5);
    assert_true(jaccard("chars:2", "abcd", "bcde") == 2.0 / 4);
    struct shingles s;
    const char *wrong[] = {"", "words", "words:", "words:0", "words:65", "word:3", "words:3x", "chars:-1", "words: 3"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_int_equal(shingles_parse(&s, wrong[i]), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(curve), cmocka_unit_test(choice), cmocka_unit_test(same_minima),
                                       cmocka_unit_test(shingle_sets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
