/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long addresses */
/* A plan of 16,384 ranks on a laptop: 405 billion parameters, tp 8, cp 16, pp 16, dp 8, sequences of 131,072 tokens.
 * One rank of each role is built and stepped on the null device in seconds; what they hold adds up to the model.
 *
 * Planning is linear in layers, and quick: processor time of this process is measured, so that a busy machine does not
 * matter. */
#include "toy.h"

#include <time.h>

#include "base/clock.h"
#include "drawn.h"
#include "plan/plan.h"

static void test_405b(void **state)
{
    (void)state;
    static const char *const keys[] = {"model.family=llama",    "model.layers=126",
                                       "model.hidden=16384",    "model.heads=128",
                                       "model.kv_heads=8",      "model.ffn=53248",
                                       "model.vocab=128256",    "model.seq_len=131072",
                                       "batch.global=128",      "batch.micro=1",
                                       "precision.recipe=bf16", "memory.recompute=full",
                                       "parallel.tp=8",         "parallel.cp=16",
                                       "parallel.pp=16",        "parallel.dp_shard=8",
                                       "parallel.zero=1",       "parallel.sequence_parallel=true",
                                       "run.threads=1"};
    enum { N = (int)(sizeof keys / sizeof *keys) };
    struct arena *a = arena_new();
    struct config c;
    struct conf *f;
    struct plan p;
    struct err e = {0};
    char *copy[N];
    for (int i = 0; i < N; i++) copy[i] = arena_strdup(a, keys[i]);
    if (config_load(&c, &f, a, NULL, copy, N, &e) || config_resolve(&c, f, 0, 16384, &e)) fail_msg("%s", e.text);
    double from = clock_thread_s();
    if (plan_make(&p, &c, &e)) fail_msg("%s", e.text);
    double took = clock_thread_s() - from;
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
    print_message("  %d roles of 16,384 ranks in %.2f s, peak %.1f GiB\n", p.n_roles, took,
                  (double)p.role[0].peak_bytes / (1 << 30));
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
    if (config_load(&c, &f, a, NULL, copy, n, &e) || config_resolve(&c, f, 0, n_ranks, &e) || plan_make(&p, &c, &e))
        fail_msg("%s", e.text);
    double took = (double)(clock() - from) / CLOCKS_PER_SEC;
    if (params) *params = p.params;
    plan_free(&p);
    arena_free(a);
    return took;
}

struct layout_row {
    const char *what;
    int ranks;
    const char *key[6];
};

static double layers_cpu_s(const struct layout_row *l, int layers, int times)
{
    const char *keys[24] = {"model.family=llama", "model.vocab=512", "model.seq_len=64", "model.hidden=64",
                            "model.heads=4",      "batch.global=16", "batch.micro=1",    "run.threads=1"};
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

static const struct layout_row layouts[] = {
    {"one rank", 1, {NULL}},
    {"zero 3", 8, {"parallel.zero=3"}},
    {"zero 2", 8, {"parallel.zero=2", "precision.grad=bf16", "memory.recompute=full"}},
    {"tp", 2, {"parallel.tp=2", "parallel.sequence_parallel=true"}},
    {"zero bubble", 4, {"parallel.pp=4", "parallel.schedule=zbv"}},
};
enum { N_LAYOUTS = (int)(sizeof layouts / sizeof *layouts) };

/* Eight times the layers take eight times as long, or on a machine whose caches are in use by others up to twice that;
 * what is quadratic takes 64 times. */
static void test_linear_in_layers(void **state)
{
    (void)state;
    if (TOY_SANITIZED) return; /* how time grows is the normal build's: 100 layers below have every path */
    for (int i = 0; i < N_LAYOUTS; i++) {
        if (!drawn_here(i, 2)) continue; /* every day half of them */
        double one = layers_cpu_s(&layouts[i], 100, 3), eight = layers_cpu_s(&layouts[i], 800, 3);
        print_message("  %-16s 100 layers %.3f s, 800 layers %.3f s: %.1f times\n", layouts[i].what, one, eight,
                      eight / one);
        if (eight > 24 * one)
            fail_msg("%s: 100 layers take %.3f s to plan, 800 take %.3f s", layouts[i].what, one, eight);
    }
}

static void test_100_layers(void **state)
{
    (void)state;
    for (int i = 0; i < N_LAYOUTS; i++) {
        double took = layers_cpu_s(&layouts[i], 100, TOY_SANITIZED ? 1 : 2);
        if (took > 0.2 * SLOWER) fail_msg("%s: 100 layers take %.3f s to plan, wanted 0.2 s", layouts[i].what, took);
    }
}

#define DEEPSEEK                                                                                                       \
    "model.family=deepseek", "model.layers=61", "model.hidden=7168", "model.ffn=18432", "model.seq_len=4096",          \
        "model.mla.q_rank=1536", "model.mla.kv_rank=512", "model.mla.nope_dim=128", "model.mla.rope_dim=64",           \
        "model.mla.value_dim=128", "model.moe.top_k=8", "model.moe.ffn=2048", "model.moe.shared=1",                    \
        "model.moe.score=sigmoid", "model.moe.bias=true", "batch.micro=1", "run.threads=1"

/* DeepSeek-V3 and a mixture of experts of the size of Kimi K2 on 1,024 ranks, V3 also without a pipeline; a dense model
 * of 10^12. */
static void test_big(void **state)
{
    (void)state;
    static const char *const v3[] = {DEEPSEEK,
                                     "model.heads=128",
                                     "model.vocab=129280",
                                     "model.moe.experts=256",
                                     "model.moe.first_dense=3",
                                     "model.moe.groups=8",
                                     "model.moe.top_groups=4",
                                     "model.moe.group_pairs=true",
                                     "batch.global=3840",
                                     "parallel.pp=16",
                                     "parallel.ep=64",
                                     "parallel.zero=1",
                                     NULL};
    static const char *const v3_fsdp[] = {DEEPSEEK,
                                          "model.heads=128",
                                          "model.vocab=129280",
                                          "model.moe.experts=256",
                                          "model.moe.first_dense=3",
                                          "model.moe.groups=8",
                                          "model.moe.top_groups=4",
                                          "model.moe.group_pairs=true",
                                          "batch.global=1024",
                                          "parallel.ep=64",
                                          "parallel.zero=3",
                                          NULL};
    static const char *const k2[] = {DEEPSEEK,
                                     "model.heads=64",
                                     "model.vocab=163840",
                                     "model.moe.experts=384",
                                     "model.moe.first_dense=1",
                                     "batch.global=1024",
                                     "parallel.pp=16",
                                     "parallel.ep=64",
                                     "parallel.zero=1",
                                     NULL};
    static const char *const dense[] = {"model.family=llama",
                                        "model.vocab=128256",
                                        "model.seq_len=8192",
                                        "model.layers=128",
                                        "model.hidden=25600",
                                        "model.heads=160",
                                        "model.kv_heads=8",
                                        "model.ffn=86016",
                                        "batch.global=2048",
                                        "batch.micro=1",
                                        "memory.recompute=full",
                                        "run.threads=1",
                                        "parallel.tp=8",
                                        "parallel.pp=16",
                                        "parallel.sequence_parallel=true",
                                        "parallel.zero=1",
                                        NULL};
    static const struct {
        const char *what;
        int ranks;
        const char *const *keys;
        int64_t params;
    } model[] = {{"DeepSeek-V3, pp 16 x ep 64", 1024, v3, 671026419200},
                 {"DeepSeek-V3, zero 3, ep 64", 256, v3_fsdp, 671026419200},
                 {"1 T of experts, pp 16 x ep 64", 1024, k2, 1026408232448},
                 {"1 T dense, tp 8 x pp 16", 4096, dense, 1028305740800}};
    const size_t stride = TOY_SANITIZED ? 3 : 1; /* experts, and dense */
    for (size_t i = 0; i < sizeof model / sizeof *model; i += stride) {
        if (!drawn_half(i, stride)) continue;
        int64_t params;
        /* What others do slows a processor's seconds, too: beside them it may be 200 times what a small plan takes. */
        double small = layers_cpu_s(&layouts[0], 100, 2), took = plan_cpu_s(model[i].ranks, model[i].keys, &params);
        double most = 5.0 * SLOWER > 200 * small ? 5.0 * SLOWER : 200 * small;
        print_message("  %-30s %.2f s\n", model[i].what, took);
        assert_int_equal(params, model[i].params);
        if (took > most) fail_msg("%s takes %.1f s to plan, wanted %.1f s", model[i].what, took, most);
    }
}

/* ---- sizes that cannot be ---- */
static int resolve(const char *const *keys, int n, bool plan, struct err *e)
{
    struct arena *a = arena_new();
    struct config c;
    struct conf *f;
    struct plan p;
    char *copy[32];
    for (int i = 0; i < n; i++) copy[i] = arena_strdup(a, keys[i]);
    int rc = config_load(&c, &f, a, NULL, copy, n, e);
    if (!rc) rc = config_resolve(&c, f, 0, 1, e);
    if (!rc && plan) {
        rc = plan_make(&p, &c, e);
        if (!rc) plan_free(&p);
    }
    arena_free(a);
    return rc;
}

/* Said by name before anything is allocated, and what is advised is accepted. */
static void test_refused_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *key[8], *says, *instead; /* instead: of the last key */
    } row[] = {
        {{"model.family=mixtral", "model.layers=1000", "model.moe.experts=65536"},
         "model.moe.experts: 65536 experts in 1000 layers",
         "model.moe.experts=1390"},
        {{"model.layers=10000", "model.ffn=16777216", "model.hidden=1048576"},
         "model.hidden: 1048576, with 10000 layers",
         NULL},
        {{"model.family=mixtral", "model.layers=20", "model.moe.experts=65536", "model.moe.ffn=16777216",
          "model.hidden=1048576"},
         "more than 2^53",
         NULL},
        {{"batch.global=16777216", "model.seq_len=16777216", "batch.micro=16777216"},
         "batch.micro: makes rows of a microbatch",
         NULL},
        {{"batch.micro=1", "model.seq_len=1048576", "memory.loss_chunk=1"},
         "choose at least 65",
         "memory.loss_chunk=65"},
        {{"batch.global=16777216", "batch.micro=4000", "model.seq_len=16777216", "memory.loss_chunk=16777216",
          "model.hidden=16384"},
         "more than 2^50",
         NULL},
        {{"batch.global=16777216", "model.layers=3000", "model.seq_len=16777216", "memory.loss_chunk=16777216",
          "model.hidden=1024", "batch.micro=1024"},
         "more than 2^60",
         NULL},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const char *keys[16] = {"model.vocab=512", "model.heads=4", "run.threads=1", "model.family=llama"};
        struct err e = {0};
        int n = 4;
        for (int k = 0; k < 8 && row[i].key[k]; k++) keys[n++] = row[i].key[k];
        size_t rss = mem_rss();
        clock_t from = clock();
        assert_int_equal(resolve(keys, n, true, &e), ERR_REQUEST);
        assert_contains(e.text, row[i].says);
        double took = (double)(clock() - from) / CLOCKS_PER_SEC;
        if (took > 4.0 * SLOWER) fail_msg("%s: refused after %.1f s", row[i].says, took);
        if (!TOY_SANITIZED && mem_rss() > rss + ((size_t)1 << 30))
            fail_msg("%s: refused after %zu bytes", row[i].says, mem_rss() - rss);
        if (!row[i].instead) continue;
        keys[n - 1] = row[i].instead;
        if (resolve(keys, n, false, &e)) fail_msg("%s is advised and refused: %s", row[i].instead, e.text);
    }
}

/* ---- a word while it takes long ---- */
struct heard {
    int n, of;
};

static void hear(void *ctx, int done, int of)
{
    struct heard *h = ctx;
    assert_int_equal(done, h->n++);
    h->of = of;
}

static void test_watched(void **state)
{
    (void)state;
    struct arena *a = arena_new();
    struct config c;
    struct conf *f;
    struct plan p;
    struct err e = {0};
    struct heard h = {0};
    const char *keys[] = {"model.family=llama", "model.vocab=512", "model.hidden=64",
                          "model.layers=8",     "batch.micro=1",   "parallel.pp=4"};
    char *copy[6];
    for (int i = 0; i < 6; i++) copy[i] = arena_strdup(a, keys[i]);
    if (config_load(&c, &f, a, NULL, copy, 6, &e) || config_resolve(&c, f, 0, 8, &e)) fail_msg("%s", e.text);
    if (plan_make_watched(&p, &c, &(struct plan_watch){hear, &h}, &e)) fail_msg("%s", e.text);
    assert_int_equal(h.n, 4); /* a word before each of four stages */
    assert_int_equal(h.of, 4);
    plan_free(&p);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_405b),          cmocka_unit_test(test_linear_in_layers),
                                       cmocka_unit_test(test_100_layers),    cmocka_unit_test(test_big),
                                       cmocka_unit_test(test_refused_sizes), cmocka_unit_test(test_watched)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
