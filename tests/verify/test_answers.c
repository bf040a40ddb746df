/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of runs that learn by rewards and by preferences: what their tokens and answers are weighed by has either
 * sign, every layout equals one rank, and of rewards the log-probabilities of answers are the same bits when they are
 * written and when they are learned wherever a rank holds whole layers, and within rounding over tp and cp. */
#include "toy_layouts.h"

#define REWARDS "train.objective=grpo", "train.grpo.reward=false", "train.grpo.group=2", "train.grpo.tokens=9"

static const char *const variants[][6] = {
    {REWARDS, "train.grpo.beta=0.1"},
    {REWARDS, "precision.recipe=bf16"},
    {REWARDS, "adapter.kind=lora"},
    {REWARDS, "adapter.kind=dora", "adapter.targets=[q, o, down]"},
    {"train.objective=dpo", "batch.global=6", "batch.micro=1"},
    {"train.objective=reward", "batch.global=6", "batch.micro=1"},
};

static int n_of(const char *const keys[6])
{
    int n = 0;
    while (n < 6 && keys[n]) n++;
    return n;
}

static bool sums_elsewhere(const struct verify_layout *l)
{
    return strstr(l->layout, " tp") || strstr(l->layout, " cp");
}

static void check_answers(const struct verify *v, bool fp32)
{
    int whole = 0, cut = 0;
    for (int i = 0; i < v->n; i++) {
        const struct verify_layout *l = &v->layout[i];
        bool elsewhere = sums_elsewhere(l);
        whole += !elsewhere;
        cut += elsewhere;
        assert_true(l->answers_identical);
        /* twice, eight answers of at least a token */
        assert_true(l->answer_tokens >= 16 && l->answer_tokens <= 2 * 8 * 9);
        if (!elsewhere) assert_true(l->answers_unlike == 0 && l->answers_most == 0);
        assert_true(l->answers_most <= (fp32 ? 1e-5 : 0.125));
    }
    assert_true(whole >= 5 + 8 && cut >= 6); /* zero levels and schedules; tp, and the algorithms of cp */
}

static void every_layout(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i += CASE_STRIDE) {
        if (!drawn_half(i, CASE_STRIDE)) continue; /* every day half of them */
        struct arena *a = arena_new();
        struct config c;
        struct verify v;
        bool rewards = strstr(variants[i][0], "grpo");
        resolve(&c, a, variants[i], n_of(variants[i]));
        double eps = c.optimizer.eps;
        verified(&v, &c, i || SANITIZED ? 2 : 3, VERIFY_ALL, 2, arena_printf(a, "variant %zu", i), 0, 1);
        assert_true(v.eps > 100 * eps); /* raised to a part of the gradients' size: they are not all 0 */
        if (rewards) check_answers(&v, !strstr(arena_printf(a, "%s", variants[i][4]), "bf16"));
        for (int k = 0; k < v.n; k++) assert_null(strstr(v.layout[k].layout, "servers"));
        for (int k = 0; !rewards && k < v.n; k++) assert_int_equal(v.layout[k].answer_tokens, 0);
        verify_free(&v);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_layout)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
