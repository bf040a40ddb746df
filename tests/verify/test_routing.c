/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices untouchable */
/* suite: long sanitizers */
/* Models with experts in bf16, in every layout of up to two ranks: routers repeat what one rank's chose, and how often
 * they would not have is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "verify/verify.h"

static void resolve(struct config *c, struct arena *a, const char *const *keys)
{
    static const char *const toy[] = {"model.layers=2",     "model.hidden=36",      "model.heads=3",
                                      "model.ffn=26",       "model.vocab=67",       "model.seq_len=10",
                                      "run.threads=1",      "comm.timeout_s=60",    "batch.global=5",
                                      "batch.micro=2",      "parallel.dp_shard=-1", "optimizer.lr=1e-3",
                                      "optimizer.eps=1e-5", "precision.recipe=fp32"};
    char *all[64];
    int k = 0;
    struct err e = {0};
    struct conf *f;
    for (size_t i = 0; i < sizeof toy / sizeof *toy; i++) all[k++] = arena_strdup(a, toy[i]);
    for (int i = 0; keys[i]; i++) all[k++] = arena_strdup(a, keys[i]);
    if (config_load(c, &f, a, NULL, all, k, &e)) fail_msg("%s", e.text);
    if (config_resolve(c, f, 0, 1, &e)) fail_msg("%s", e.text);
}

#define MIXTRAL "model.family=mixtral", "model.kv_heads=1", "model.moe.experts=5"
#define DEEPSEEK                                                                                                       \
    "model.family=deepseek", "model.moe.experts=6", "model.moe.top_k=3", "model.moe.ffn=14", "model.moe.shared=1",     \
        "model.moe.first_dense=1", "model.moe.score=sigmoid", "model.moe.groups=3", "model.moe.top_groups=2",          \
        "model.moe.group_pairs=true", "model.moe.bias=true", "model.mla.q_rank=14", "model.mla.kv_rank=10",            \
        "model.mla.nope_dim=7", "model.mla.rope_dim=6", "model.mla.value_dim=9"

/* In bf16 some tokens would go elsewhere, and from there on nothing could be compared: their choice is repeated, and
 * counted. */
static void test_bf16(void **state)
{
    (void)state;
    static const char *const keys[][24] = {{MIXTRAL, "precision.recipe=bf16", "batch.global=6", "model.seq_len=40",
                                            "memory.recompute=full"},
                                           {DEEPSEEK, "precision.recipe=bf16", "model.moe.capacity=0.8",
                                            "batch.global=4"}};
    int64_t elsewhere = 0;
    for (int i = 0; i < 2; i++) {
        struct arena *a = arena_new();
        struct config c;
        struct verify v;
        struct err e = {0};
        struct str out = {0};
        resolve(&c, a, keys[i]);
        if (verify_run(&v, &c, 2, VERIFY_ALL, 2, &e)) fail_msg("%s", e.text);
        verify_print(&v, &out);
        if (!v.ok || !v.replayed) fail_msg("%s", str_text(&out));
        for (int k = 0; k < v.n; k++) {
            const struct verify_layout *l = &v.layout[k];
            /* the layers with experts, of 2 steps and an evaluation, and of the step after for those that hand over */
            int64_t each = (i == 0 ? 2 : 1) * c.batch.global * c.model.seq_len;
            if (l->routed != 3 * each && l->routed != 4 * each)
                fail_msg("%s: %lld choices of %lld", l->layout, (long long)l->routed, (long long)each);
            if (l->elsewhere * 10 > l->routed)
                fail_msg("%s: %lld of %lld choices", l->layout, (long long)l->elsewhere, (long long)l->routed);
            elsewhere += l->elsewhere;
        }
        str_free(&out);
        verify_free(&v);
        arena_free(a);
    }
    print_message("  %lld choices went elsewhere\n", (long long)elsewhere);
    assert_true(elsewhere > 0); /* else this shows nothing */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
