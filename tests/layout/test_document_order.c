/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of documents for context parallelism: permutations that keep every document's tokens in order, and ranks whose
 * work is as even as their tokens let it be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "layout/document_order.h"
#include "layout/sequence.h"

enum { MOST = 16384 };

/* Lengths by kind: short ones, mixed, one of half the sequence and short ones behind it, one alone, single tokens. */
static int64_t make(int kind, int64_t seq, int32_t *docs)
{
    int32_t id = 0;
    int64_t at = 0, n_docs = 0;
    while (at < seq) {
        uint32_t dice = rng_u32(3, (uint64_t)kind, (uint64_t)id);
        int64_t n = kind == 0   ? 1 + dice % 50
                    : kind == 1 ? 1 + (int64_t)(dice % 8) * (dice % 97) * seq / 3000
                    : kind == 2 ? (id ? 1 + dice % 30 : seq / 2 + 1)
                    : kind == 3 ? seq
                                : 1;
        for (int64_t i = 0; i < n && at < seq; i++) docs[at++] = id;
        id++;
        n_docs++;
    }
    return n_docs;
}

static double busiest(const int32_t *docs, int64_t seq, int n, const int64_t *order)
{
    double pairs[64], most = 0, all = 0;
    document_pairs(docs, seq, n, order, pairs);
    for (int p = 0; p < n; p++) {
        most = pairs[p] > most ? pairs[p] : most;
        all += pairs[p];
    }
    return most / (all / n);
}

static void test_orders(void **state)
{
    (void)state;
    const int64_t seqs[] = {1, 5, 16, 100, 1001, 4096};
    int32_t *docs = xmalloc(MOST * sizeof *docs), last[MOST];
    int64_t *order = xmalloc(MOST * sizeof *order);
    char *seen = xmalloc(MOST);
    for (int kind = 0; kind < 5; kind++)
        for (int s = 0; s < 6; s++)
            for (int n = 1; n <= 8 && n <= seqs[s]; n += n < 3 ? 1 : 5) {
                int64_t seq = seqs[s];
                make(kind, seq, docs);
                document_order(docs, seq, n, order);
                for (int64_t i = 0; i < seq; i++) {
                    seen[i] = 0;
                    last[i] = -1;
                }
                for (int64_t i = 0; i < seq; i++) {
                    assert_in_range(order[i], 0, seq - 1);
                    assert_false(seen[order[i]]);
                    seen[order[i]] = 1;
                    if (last[docs[order[i]]] >= order[i])
                        fail_msg("kind %d, %lld over %d: place %lld", kind, (long long)seq, n, (long long)i);
                    last[docs[order[i]]] = (int32_t)order[i];
                }
                if (n == 1)
                    for (int64_t i = 0; i < seq; i++) assert_int_equal(order[i], i);
            }
    xfree(seen);
    xfree(order);
    xfree(docs);
}

/* Share of documents all of whose tokens one part has. */
static double whole(const int32_t *docs, int64_t seq, int n, const int64_t *order, int64_t n_docs)
{
    int *part = xmalloc((size_t)n_docs * sizeof *part);
    int64_t n_whole = 0;
    for (int64_t d = 0; d < n_docs; d++) part[d] = -1;
    for (int p = 0; p < n; p++)
        for (int64_t i = 0, rows = context_rows(seq, n, p, 1); i < rows; i++) {
            int32_t d = docs[order[context_place(seq, n, p, i)]];
            part[d] = part[d] == -1 || part[d] == p ? p : -2;
        }
    for (int64_t d = 0; d < n_docs; d++) n_whole += part[d] >= 0;
    xfree(part);
    return (double)n_whole / (double)n_docs;
}

/* Pairs of the busiest rank beside the mean: by position up to several times, by area within a tenth. */
static void test_even(void **state)
{
    (void)state;
    int32_t *docs = xmalloc(MOST * sizeof *docs);
    int64_t *order = xmalloc(MOST * sizeof *order);
    double worst_plain = 0;
    for (int kind = 0; kind < 3; kind++)
        for (int n = 2; n <= 8; n *= 2) {
            int64_t n_docs = make(kind, MOST, docs);
            document_order(docs, MOST, n, order);
            if (kind == 0) assert_true(whole(docs, MOST, n, order, n_docs) > 0.9); /* short ones are not cut */
            double plain = busiest(docs, MOST, n, NULL), even = busiest(docs, MOST, n, order);
            worst_plain = plain > worst_plain ? plain : worst_plain;
            print_message("  documents of kind %d over %d ranks: busiest / mean %.3f by position, %.3f by area\n", kind,
                          n, plain, even);
            assert_true(even < 1.1);
        }
    assert_true(worst_plain > 1.4);
    make(3, MOST, docs); /* one document: heads and tails are even as they are */
    document_order(docs, MOST, 4, order);
    for (int64_t i = 0; i < MOST; i++) assert_int_equal(order[i], i);
    xfree(order);
    xfree(docs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_orders), cmocka_unit_test(test_even)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
