/* A plan of 16,384 ranks on a laptop: 405 billion parameters, tp 8, cp 16, pp 16, dp 8, sequences of 131,072 tokens. One rank of each
 * role is built and stepped on the null device in seconds; what they hold adds up to the model.
 *
 * Planning is linear in layers, and quick: processor time of this process is measured, so that a busy machine does not matter. */
#include "run/toy.h"

#include <time.h>

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

/* ---- processor time ---- */
enum { SLOWER = TOY_SANITIZED ? 12 : 1 };

/* Seconds of processor time that a plan takes on n ranks; keys end with NULL. */
static double plan_cpu_s(int n_ranks, const char *const *keys, int64_t *params)
{
    struct arena *a = arena_new();
    struct config c;
    struct conf *f;
    struct plan p;
    struct err e = {0};
    char *copy[32];
    int n = 0;
    for (; keys[n]; n++) copy[n] = arena_strdup(a, keys[n]);
    clock_t from = clock();
    if (config_load(&c, &f, a, NULL, copy, n, &e) || config_resolve(&c, f, 0, n_ranks, &e) || plan_make(&p, &c, &e)) fail_msg("%s", e.text);
    double took = (double)(clock() - from) / CLOCKS_PER_SEC;
    if (params) *params = p.params;
    plan_free(&p);
    arena_free(a);
    return took;
}

struct layout {
    const char *what;
    int ranks;
    const char *key[6];
};

static double layers_cpu_s(const struct layout *l, int layers, int times)
{
    const char *keys[24] = {"model.family=llama", "model.vocab=512", "model.seq_len=64", "model.hidden=64", "model.heads=4",
                            "batch.global=16", "batch.micro=1", "run.threads=1"};
    char count[32];
    int n = 8;
    double least = 1e9;
    snprintf(count, sizeof count, "model.layers=%d", layers);
    keys[n++] = count;
    for (int i = 0; i < 6 && l->key[i]; i++) keys[n++] = l->key[i];
    for (int i = 0; i < times; i++) {
        double took = plan_cpu_s(l->ranks, keys, NULL);
        least = took < least ? took : least;
    }
    return least;
}

static const struct layout layouts[] = {
    {"one rank", 1, {NULL}},
    {"recompute", 1, {"memory.recompute=full"}},
    {"zero 3", 8, {"parallel.zero=3"}},
    {"zero 2 in bf16", 8, {"parallel.zero=2", "precision.grad=bf16"}},
    {"tp", 2, {"parallel.tp=2", "parallel.sequence_parallel=true"}},
    {"pp", 4, {"parallel.pp=4"}},
    {"zero bubble", 4, {"parallel.pp=4", "parallel.schedule=zbv"}},
};
enum { N_LAYOUTS = (int)(sizeof layouts / sizeof *layouts) };

/* Four times the layers take four times as long; what is quadratic takes sixteen times. */
static void test_linear_in_layers(void **state)
{
    (void)state;
    for (int i = 0; i < N_LAYOUTS; i++) {
        double one = layers_cpu_s(&layouts[i], 250, 3), four = layers_cpu_s(&layouts[i], 1000, 2);
        print_message("  %-16s 250 layers %.3f s, 1,000 layers %.3f s: %.1f times\n", layouts[i].what, one, four, four / one);
        if (four > 7 * one) fail_msg("%s: 250 layers take %.3f s to plan, 1,000 take %.3f s", layouts[i].what, one, four);
    }
}

static void test_100_layers(void **state)
{
    (void)state;
    for (int i = 0; i < N_LAYOUTS; i++) {
        double took = layers_cpu_s(&layouts[i], 100, 3);
        if (took > 0.2 * SLOWER) fail_msg("%s: 100 layers take %.3f s to plan, wanted 0.2 s", layouts[i].what, took);
    }
}

#define DEEPSEEK                                                                                                                     \
    "model.family=deepseek", "model.layers=61", "model.hidden=7168", "model.ffn=18432", "model.seq_len=4096", "model.mla.q_rank=1536", \
        "model.mla.kv_rank=512", "model.mla.nope_dim=128", "model.mla.rope_dim=64", "model.mla.value_dim=128", "model.moe.top_k=8",  \
        "model.moe.ffn=2048", "model.moe.shared=1", "model.moe.score=sigmoid", "model.moe.bias=true", "batch.micro=1",               \
        "run.threads=1"

/* DeepSeek-V3 and a mixture of experts of the size of Kimi K2 on 1,024 ranks, V3 also without a pipeline; a dense model of 10^12. */
static void test_big(void **state)
{
    (void)state;
    static const char *const v3[] = {DEEPSEEK, "model.heads=128", "model.vocab=129280", "model.moe.experts=256", "model.moe.first_dense=3",
                                     "model.moe.groups=8", "model.moe.top_groups=4", "model.moe.group_pairs=true", "batch.global=15360",
                                     "parallel.pp=16", "parallel.ep=64", "parallel.zero=1", NULL};
    static const char *const v3_fsdp[] = {DEEPSEEK, "model.heads=128", "model.vocab=129280", "model.moe.experts=256",
                                          "model.moe.first_dense=3", "model.moe.groups=8", "model.moe.top_groups=4",
                                          "model.moe.group_pairs=true", "batch.global=2048", "parallel.ep=64", "parallel.zero=3", NULL};
    static const char *const k2[] = {DEEPSEEK, "model.heads=64", "model.vocab=163840", "model.moe.experts=384", "model.moe.first_dense=1",
                                     "batch.global=4096", "parallel.pp=16", "parallel.ep=64", "parallel.zero=1", NULL};
    static const char *const dense[] = {"model.family=llama", "model.vocab=128256", "model.seq_len=8192", "model.layers=128",
                                        "model.hidden=25600", "model.heads=160", "model.kv_heads=8", "model.ffn=86016",
                                        "batch.global=2048", "batch.micro=1", "memory.recompute=full", "run.threads=1", "parallel.tp=8",
                                        "parallel.pp=16", "parallel.sequence_parallel=true", "parallel.zero=1", NULL};
    static const struct {
        const char *what;
        int ranks;
        const char *const *keys;
        int64_t params;
    } model[] = {{"DeepSeek-V3, pp 16 x ep 64", 1024, v3, 671026419200},
                 {"DeepSeek-V3, zero 3, ep 64", 256, v3_fsdp, 671026419200},
                 {"1 T of experts, pp 16 x ep 64", 1024, k2, 1026408232448},
                 {"1 T dense, tp 8 x pp 16", 4096, dense, 1028305740800}};
    for (size_t i = 0; i < sizeof model / sizeof *model; i++) {
        int64_t params;
        double took = plan_cpu_s(model[i].ranks, model[i].keys, &params);
        print_message("  %-30s %.2f s\n", model[i].what, took);
        assert_int_equal(params, model[i].params);
        if (took > 5.0 * SLOWER) fail_msg("%s takes %.1f s to plan, wanted 5 s", model[i].what, took);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_405b), cmocka_unit_test(test_linear_in_layers), cmocka_unit_test(test_100_layers),
                                       cmocka_unit_test(test_big)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
