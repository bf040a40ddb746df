/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs that a mask shows, counted in closed form, beside every pair of the sequence asked for itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "layout/document_ids.h"
#include "layout/mask_pairs.h"

enum { MOST = 40 };

/* As attention has it (kernel/ref/attention.c): query i, key j. */
static bool sees(const int32_t *ids, struct mask m, int64_t i, int64_t j)
{
    bool prefix = ids && m.marked && document_in_prefix(ids[j]);
    if (ids && (m.marked ? document_of_marked(ids[i]) != document_of_marked(ids[j]) : ids[i] != ids[j])) return false;
    if (!m.causal || prefix) return true;
    return j <= i && (m.window == 0 || j > i - m.window);
}

static uint32_t drawn(int64_t at, uint32_t below) { return rng_u32(1, rng_stream("mask"), (uint64_t)at) % below; }

static void all_pairs(void **state)
{
    (void)state;
    int64_t at = 0;
    for (int trial = 0; trial < 2000; trial++) {
        int32_t docs[MOST], targets[MOST], ids[MOST];
        int64_t seq = 1 + drawn(at++, MOST), want = 0;
        struct mask m = {.causal = drawn(at++, 4) > 0};
        m.marked = m.causal && drawn(at++, 3) == 0;
        m.window = m.causal && !m.marked ? drawn(at++, 12) : 0;
        bool one = !m.marked && drawn(at++, 4) == 0;
        for (int64_t i = 0; i < seq; i++) {
            docs[i] = i && drawn(at++, 5) ? docs[i - 1] : (int32_t)i;
            targets[i] = drawn(at++, 3) ? -1 : 1;
        }
        document_mark(docs, targets, seq, ids);
        const int32_t *of = one ? NULL : m.marked ? ids : docs;
        for (int64_t i = 0; i < seq; i++)
            for (int64_t j = 0; j < seq; j++) want += sees(of, m, i, j);
        if (mask_pairs(of, seq, m) != want)
            fail_msg("trial %d: %lld pairs, wanted %lld", trial, (long long)mask_pairs(of, seq, m), (long long)want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_pairs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
