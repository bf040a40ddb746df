/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* A unit whose gradients leave in two phases of one microbatch (zero bubbles over dp) is reduced twice: over replicas,
 * with what travels encoded, in bf16, in one order of sums, and in every schedule that one microbatch a rank has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "drawn.h"
#include "verify/grid_row.h"

static const struct {
    int dp;
    const char *keys;
} ways[] = {
    {2, "parallel.zero=2"},
    {2, "parallel.zero=3 precision.recipe=bf16 precision.grad=bf16"},
    {2, "parallel.zero=2 comm.grad=fp8"},
    {2, "parallel.zero=2 numerics.exact_order=true"},
    {4, "parallel.dp_replicate=2 parallel.zero=2"},
    {4, "parallel.dp_replicate=2 parallel.zero=3 comm.grad=int8"},
    {4, "parallel.dp_replicate=2 parallel.zero=2 numerics.exact_order=true"},
    {4, "parallel.dp_replicate=2 parallel.zero=1 comm.grad=bf16"},
    {2, "parallel.zero=2 model.family=mixtral model.moe.experts=4 model.moe.top_k=2 model.moe.ffn=16"},
};

static void test_two_phases_of_one_microbatch(void **state)
{
    (void)state;
    int run = 0, with_w = 0;
    for (int k = 0; schedule_kind_name(k); k++)
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            if (!drawn_here((int64_t)i + k, 2)) continue; /* every day half of them, of each schedule and way */
            struct arena *a = arena_new();
            struct str out = {0};
            struct err e = {0};
            const char *kind = schedule_kind_name(k);
            struct asked q = {.ranks = 2 * ways[i].dp};
            const char *text = arena_printf(
                a,
                "model.family=llama model.layers=4 model.hidden=32 model.heads=4 model.ffn=48 model.vocab=264 "
                "model.seq_len=16 precision.recipe=fp32 run.threads=1 batch.global=%d batch.micro=2 optimizer.lr=1e-3 "
                "comm.timeout_s=60 data.train=x.txt run.steps=100 parallel.dp_shard=2 parallel.pp=2 "
                "parallel.schedule=%s %s",
                2 * ways[i].dp, kind, ways[i].keys);
            q.n = add_words(q.words, 0, MOST_WORDS, a, text);
            if (asked_may(&q, &e)) {
                enum outcome_of_row is = asked_try(&q, 2, &out);
                run++;
                with_w += !strncmp(kind, "zb", 2);
                if (is != EQUAL) fail_msg("%s, %s:\n%s", kind, ways[i].keys, str_text(&out));
            }
            str_free(&out);
            arena_free(a);
        }
    print_message("%d layouts, %d of zero bubbles\n", run, with_w);
    const int n = (int)(sizeof ways / sizeof *ways);
    assert_true(with_w >= (drawn_whole() ? 2 * n : n - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_phases_of_one_microbatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
