/* A plan of 16,384 ranks on a laptop: 405 billion parameters, tp 8, cp 16, pp 16, dp 8, sequences of 131,072 tokens. One rank of each
 * role is built and stepped on the null device in seconds; what they hold adds up to the model. */
#include "run/toy.h"

#include "base/clock.h"
#include "plan/plan.h"

static void test_405b(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "model.family=llama", "model.layers=126", "model.hidden=16384", "model.heads=128", "model.kv_heads=8", "model.ffn=53248",
        "model.vocab=128256", "model.seq_len=131072", "batch.global=128", "batch.micro=1", "precision.recipe=bf16",
        "memory.recompute=full", "parallel.tp=8", "parallel.cp=16", "parallel.pp=16", "parallel.dp_shard=8", "parallel.zero=1",
        "parallel.sequence_parallel=true", "run.threads=1"};
    enum { N = (int)(sizeof keys / sizeof *keys) };
    struct arena *a = arena_new();
    struct config c;
    struct conf *f;
    struct plan p;
    struct err e = {0};
    char *copy[N];
    for (int i = 0; i < N; i++) copy[i] = arena_strdup(a, keys[i]);
    if (config_load(&c, &f, a, NULL, copy, N, &e) || config_resolve(&c, f, 0, 16384, &e)) fail_msg("%s", e.text);
    double from = clock_now_s();
    if (plan_make(&p, &c, &e)) fail_msg("%s", e.text);
    double took = clock_now_s() - from;
    assert_true(p.params == 405853388800);
    int64_t ranks = 0;
    double held = 0;
    bool stage[16] = {false};
    for (int i = 0; i < p.n_roles; i++) {
        const struct plan_rank *r = &p.role[i];
        ranks += r->n_alike;
        held += (double)r->bytes[MEM_PARAM] * r->n_alike;
        stage[r->at.rank[AXIS_PP]] = true;
        assert_true(r->peak_bytes <= p.role[0].peak_bytes);
        assert_true(r->comm[AXIS_PP].bytes > 0 && r->comm[AXIS_DP_SHARD].bytes > 0 && r->comm[AXIS_CP].bytes > 0 &&
                    r->comm[AXIS_TP].bytes > 0);
    }
    for (int s = 0; s < 16; s++) assert_true(stage[s]);
    assert_true(ranks == 16384);
    /* cp x dp copies of the model in bf16; norms are on every rank of tp. */
    assert_true(fabs(held / (2.0 * 16 * 8) / (double)p.params - 1) < 1e-3);
    print_message("  %d roles of 16,384 ranks in %.2f s, peak %.1f GiB\n", p.n_roles, took, (double)p.role[0].peak_bytes / (1 << 30));
    plan_free(&p);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_405b)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
