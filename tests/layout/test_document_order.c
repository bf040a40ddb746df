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
#include "layout/document_ids.h"
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

/* Marked ids: a document's first tokens, as many as its dice say, are its prefix. */
static void mark(int32_t *docs, int64_t seq, int kind)
{
    int32_t *targets = xmalloc((size_t)seq * sizeof *targets), *marked = xmalloc((size_t)seq * sizeof *marked);
    for (int64_t i = 0, left = 0; i < seq; i++) {
        if (!i || docs[i] != docs[i - 1])
            left = rng_u32(4, (uint64_t)kind, (uint64_t)docs[i]) % (kind == 7 ? 3000 : 40) + (kind == 8 ? MOST / 2 : 0);
        targets[i] = left-- > 0 ? -1 : 5;
    }
    document_mark(docs, targets, seq, marked);
    for (int64_t i = 0; i < seq; i++) docs[i] = marked[i];
    xfree(targets);
    xfree(marked);
}

static double busiest(const int32_t *docs, bool marked, int64_t seq, int n, const int64_t *order)
{
    double pairs[64], most = 0, all = 0;
    document_pairs(docs, marked, seq, n, order, pairs);
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
    int32_t *docs = xmalloc(MOST * sizeof *docs), last[2 * MOST];
    int64_t *order = xmalloc(MOST * sizeof *order);
    char *seen = xmalloc(MOST);
    for (int kind = 0; kind < 8; kind++) /* the last three with prefixes */
        for (int s = 0; s < 6; s++)
            for (int n = 1; n <= 8 && n <= seqs[s]; n += n < 3 ? 1 : 5) {
                int64_t seq = seqs[s];
                bool marked = kind > 4;
                make(kind % 5, seq, docs);
                if (marked) mark(docs, seq, kind);
                document_order(docs, marked, seq, n, order);
                for (int64_t i = 0; i < 2 * seq; i++) {
                    seen[i / 2] = 0;
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
            document_order(docs, false, MOST, n, order);
            if (kind == 0) assert_true(whole(docs, MOST, n, order, n_docs) > 0.9); /* short ones are not cut */
            double plain = busiest(docs, false, MOST, n, NULL), even = busiest(docs, false, MOST, n, order);
            worst_plain = plain > worst_plain ? plain : worst_plain;
            print_message("  documents of kind %d over %d ranks: busiest / mean %.3f by position, %.3f by area\n", kind,
                          n, plain, even);
            assert_true(even < 1.1);
        }
    assert_true(worst_plain > 1.4);
    for (int kind = 1; kind <= 3; kind++) /* with prefixes: also one document, which has two kinds of tokens then */
        for (int n = 2; n <= 8; n *= 2) {
            make(kind, MOST, docs);
            mark(docs, MOST, kind == 3 ? 8 : 7); /* the one document: half of it */
            document_order(docs, true, MOST, n, order);
            double plain = busiest(docs, true, MOST, n, NULL), even = busiest(docs, true, MOST, n, order);
            print_message("  with prefixes, kind %d over %d ranks: %.3f by position, %.3f by area\n", kind, n, plain,
                          even);
            assert_true(even < 1.1 && even <= plain);
        }
    make(3, MOST, docs); /* one document: heads and tails are even as they are */
    document_order(docs, false, MOST, 4, order);
    for (int64_t i = 0; i < MOST; i++) assert_int_equal(order[i], i);
    xfree(order);
    xfree(docs);
}

/* Which tokens are a prefix, and how many keys each sees: counted pair by pair. */
static void test_marks(void **state)
{
    (void)state;
    static const int32_t docs[] = {4, 4, 4, 4, 7, 7, 9, 9, 9}, targets[] = {-1, -1, 3, -1, 5, 6, -1, -1, -1};
    static const int32_t want[] = {9, 9, 9, 8, 15, 14, 19, 19, 19}, alone[] = {1, 1, 1, 0, 0, 0, 0, 0, 0};
    int32_t got[9];
    double pairs[1];
    int64_t seen = 0;
    document_mark(docs, targets, 9, got);
    assert_memory_equal(got, want, sizeof want);
    for (int i = 0; i < 9; i++)
        for (int j = 0; j < 9; j++)
            seen += docs[i] == docs[j] && (document_in_prefix(got[j]) || (!document_in_prefix(got[i]) && j <= i));
    document_pairs(got, true, 9, 1, NULL, pairs);
    assert_true(pairs[0] == (double)seen);
    document_mark(NULL, targets, 9, got);
    assert_memory_equal(got, alone, sizeof alone);
}

/* Without ids a sequence is one document: as it stands, and with as many pairs. */
static void test_without_documents(void **state)
{
    (void)state;
    enum { SEQ = 97 };
    int32_t *zeros = xcalloc(SEQ, sizeof *zeros);
    int64_t a[SEQ], b[SEQ];
    double pairs[2][4];
    for (int n = 1; n <= 4; n++) {
        document_order(NULL, false, SEQ, n, a);
        document_order(zeros, false, SEQ, n, b);
        assert_memory_equal(a, b, sizeof a);
        document_pairs(NULL, false, SEQ, n, a, pairs[0]);
        document_pairs(zeros, false, SEQ, n, b, pairs[1]);
        for (int p = 0; p < n; p++) assert_true(pairs[0][p] == pairs[1][p]);
    }
    xfree(zeros);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_orders), cmocka_unit_test(test_marks),
                                       cmocka_unit_test(test_without_documents), cmocka_unit_test(test_even)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
