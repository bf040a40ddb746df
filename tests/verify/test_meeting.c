/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* Ranks of ep that lie across the ranks of a sequence: parts of several sequences meet on one of them, more than are
 * whole there. With a capacity, which is a sequence's, a buffer for too few of them does not hold what comes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "verify/grid_row.h"

static const struct {
    int ranks;
    const char *keys;
} layouts[] = {
    {6, "parallel.ep=3 parallel.cp=2 parallel.dp_shard=3 model.moe.experts=3"},
    {6, "parallel.ep=2 parallel.cp=3 parallel.dp_shard=2 model.moe.experts=4"},
    {6, "parallel.ep=3 parallel.tp=2 parallel.etp=1 parallel.sequence_parallel=true parallel.dp_shard=3 "
        "model.moe.experts=6"},
};

static void test_parts_of_sequences_meet(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct arena *a = arena_new();
        struct str out = {0};
        struct err e = {0};
        struct asked q = {.ranks = layouts[i].ranks};
        const char *text = arena_printf(
            a,
            "model.family=mixtral model.layers=2 model.hidden=24 model.heads=2 model.ffn=32 model.moe.ffn=20 "
            "model.moe.top_k=2 model.moe.capacity=0.6 model.vocab=67 model.seq_len=12 precision.recipe=fp32 "
            "run.threads=1 batch.global=6 batch.micro=1 optimizer.lr=1e-3 optimizer.eps=1e-5 comm.timeout_s=60 "
            "data.train=x.txt run.steps=100 %s",
            layouts[i].keys);
        q.n = add_words(q.words, 0, MOST_WORDS, a, text);
        if (!asked_may(&q, &e)) fail_msg("%s: %s", layouts[i].keys, e.text);
        if (asked_try(&q, 2, &out) != EQUAL) fail_msg("%s:\n%s", layouts[i].keys, str_text(&out));
        str_free(&out);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts_of_sequences_meet)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
