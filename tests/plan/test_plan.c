/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long addresses */
/* The law of the plan: what the null device counts is what training allocates, byte for byte and category by category,
 * and the FLOPs are those that the run's own profile adds up. */
#include "toy.h"

#include "base/clock.h"
#include "base/json.h"
#include "plan/plan.h"

struct planned {
    struct arena *arena;
    struct config c;
    struct plan p;
};

static void plan_of(struct planned *x, int n, const char *const *keys)
{
    struct conf *f;
    struct err e = {0};
    char *copy[32];
    x->arena = arena_new();
    for (int i = 0; i < n; i++) copy[i] = arena_strdup(x->arena, keys[i]);
    if (config_load(&x->c, &f, x->arena, NULL, copy, n, &e)) fail_msg("%s", e.text);
    if (config_resolve(&x->c, f, 0, 1, &e)) fail_msg("%s", e.text);
    if (plan_make(&x->p, &x->c, &e)) fail_msg("%s", e.text);
}

/* Trains two steps and an evaluation for real and compares the books. */
static void check_law(int n, const char *const *keys)
{
    struct planned x;
    plan_of(&x, n, keys);
    struct engine_config ec = config_engine(&x.c);
    struct program_profile profile;
    struct engine_report r;
    struct toy t;
    struct device *d;
    struct err e = {0};
    if (device_open(&d, config_device(&x.c), ec.threads, &e)) fail_msg("%s", e.text);
    toy_open_on(&t, &ec, d);
    const int32_t *docs = t.batch.docs;
    t.batch.docs = NULL; /* each sequence is one document, as a plan has it */
    engine_step(t.g, &t.batch, 0, 1e-3, &r);
    memset(&profile, 0, sizeof profile);
    t.g->profile = &profile;
    engine_step(t.g, &t.batch, 1, 1e-3, &r);
    t.g->profile = NULL;
    t.batch.docs = docs;
    engine_evaluate(t.g, &t.batch, &r);
    for (int c = 0; c < MEM_N; c++)
        if (t.dev->ledger.at_peak[c] != x.p.role[0].bytes[c] || t.dev->ledger.now[c] != x.p.role[0].bytes[c])
            fail_msg("%s ...: %s: planned %zu, allocated %zu", keys[0], mem_cat_name((enum mem_cat)c),
                     x.p.role[0].bytes[c], t.dev->ledger.at_peak[c]);
    assert_int_equal(t.dev->ledger.peak_total, x.p.role[0].peak_bytes);
    assert_int_equal(t.g->params.numel, x.p.params);
    int64_t state = 0;
    for (int i = 0; i < t.g->params.n; i++)
        state += t.g->params.p[i].numel * optim_bytes(&ec.optim, t.g->params.p[i].group);
    assert_int_equal(x.p.role[0].bytes[MEM_OPTIMIZER], state);
    if (!ec.optim.group[PARAM_VECTORS].own)
        assert_int_equal(state, (ec.optim.kind == OPTIM_ADAMW ? 8 : 4) * x.p.params);
    double flops = 0;
    for (int op = 0; op < OP_N; op++)
        for (int ph = 0; ph < KERNEL_N_PHASES; ph++) flops += profile.flops[op][ph];
    if (!(fabs(flops / x.p.flops_per_step - 1) < 1e-12))
        fail_msg("%s ...: planned %.17g FLOPs, ran %.17g", keys[0], x.p.flops_per_step, flops);
    toy_close(&t);
    plan_free(&x.p);
    arena_free(x.arena);
}

#define LAW(...)                                                                                                       \
    do {                                                                                                               \
        const char *const keys[] = {__VA_ARGS__};                                                                      \
        check_law((int)(sizeof keys / sizeof *keys), keys);                                                            \
    } while (0)
#define TINY "model.vocab=131", "model.seq_len=40", "model.layers=2", "model.hidden=48", "model.heads=4"

static void test_law(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        char team[32];
        snprintf(team, sizeof team, "run.threads=%d", threads);
        LAW("model.family=gpt2", TINY, "batch.global=4", "batch.micro=2", team);
        LAW("model.family=gpt2", TINY, "batch.global=4", "batch.micro=1", "precision.recipe=fp32", team);
        LAW("model.family=llama", TINY, "model.kv_heads=2", "batch.global=6", "batch.micro=3", team);
        LAW("model.family=llama", TINY, "model.kv_heads=1", "batch.global=2", "batch.micro=2", "memory.recompute=full",
            "model.dropout=0.1", team);
        LAW("model.family=gpt2", TINY, "model.tie_embeddings=true", "batch.global=3", "batch.micro=1",
            "model.dropout=0.2", "memory.loss_chunk=17", "optimizer.name=sgd", team);
        LAW("model.family=llama", "model.vocab=257", "model.seq_len=33", "model.layers=3", "model.hidden=42",
            "model.heads=3", "model.ffn=71", "batch.global=5", "batch.micro=5", "model.document_mask=true", team);
        LAW("model.family=gpt_oss", TINY, "model.kv_heads=2", "model.head_dim=6", "model.attn.window=9",
            "model.moe.experts=5", "model.moe.top_k=2", "batch.global=4", "batch.micro=2", team);
        LAW("model.family=gpt2", TINY, "batch.global=2", "batch.micro=1", "optimizer.name=sgd", "optimizer.momentum=0",
            "optimizer.vectors.name=adamw", team);
        LAW("model.family=llama", TINY, "run.kernels=ref", "batch.global=2", "batch.micro=1", team);
        LAW("model.family=llama", "model.vocab=2000", "model.seq_len=256", "model.layers=2", "model.hidden=256",
            "model.heads=8", "model.kv_heads=2", "batch.global=2", "batch.micro=1", team);
        LAW("model.family=llama", TINY, "model.kv_heads=2", "batch.global=4", "batch.micro=2",
            "memory.offload=activations", team);
        LAW("model.family=gpt2", TINY, "batch.global=4", "batch.micro=2", "memory.offload=[activations]",
            "memory.offload_least=0", "memory.recompute=full", team);
    }
    if (!kernel_family_cuda.slot[OP_RMSNORM][KERNEL_FWD].run) return; /* a build without the simulator */
    LAW("model.family=gpt2", TINY, "batch.global=4", "batch.micro=2", "run.device=cuda-sim", "run.threads=1");
    LAW("model.family=llama", TINY, "model.kv_heads=1", "batch.global=2", "batch.micro=2", "memory.recompute=full",
        "model.dropout=0.1", "run.device=cuda-sim", "run.threads=2");
}

/* Pieces of objects behind addresses are data: of token files that are read while it trains, of texts not. */
static void test_objects(void **state)
{
    (void)state;
    static const struct {
        const char *train, *valid, *every;
        size_t tables; /* of pieces */
    } cases[] = {
        {"data.train=[here.tok]", "data.valid=[]", "run.eval_every=0", 0},
        {"data.train=[s3://b/t.jsonl]", "data.valid=[]", "run.eval_every=0", 0},
        {"data.train=[s3://b/t.tok, s3://b/u.tok]", "data.valid=[s3://b/v.tok]", "run.eval_every=0", 1},
        {"data.train=['https://h/t.tok?sig=1']", "data.valid=[]", "run.eval_every=0", 1},
        {"data.train=[s3://b/t.tok, here.tok]", "data.valid=[s3://b/v.tok]", "run.eval_every=5", 2},
    };
    size_t without = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const keys[] = {"model.family=gpt2",
                                    TINY,
                                    "batch.global=4",
                                    "batch.micro=2",
                                    "run.threads=1",
                                    cases[i].train,
                                    cases[i].valid,
                                    cases[i].every,
                                    "data.remote.connections=3"};
        int n = (int)(sizeof keys / sizeof *keys);
        struct planned x;
        plan_of(&x, n, keys);
        size_t data = x.p.role[0].bytes[MEM_DATA];
        if (!i) without = data;
        assert_int_equal(data - without, cases[i].tables * (2 * 3 + 2) << 20);
        plan_free(&x.p);
        arena_free(x.arena);
        check_law(n, keys);
    }
}

static void big(int64_t params, int per_param, int n, const char *const *keys)
{
    struct planned x;
    double from = clock_thread_s();
    plan_of(&x, n, keys);
    double took = clock_thread_s() - from;
    if (took > 30) fail_msg("planning took %.1f s", took);
    assert_int_equal(x.p.params, params);
    size_t state = x.p.role[0].bytes[MEM_PARAM] + x.p.role[0].bytes[MEM_MASTER] + x.p.role[0].bytes[MEM_GRAD] +
                   x.p.role[0].bytes[MEM_OPTIMIZER];
    assert_int_equal(state, (size_t)params * (size_t)per_param);
    assert_true(x.p.role[0].peak_bytes > state);
    plan_free(&x.p);
    arena_free(x.arena);
}
#define BIG(params, per_param, ...)                                                                                    \
    do {                                                                                                               \
        const char *const keys[] = {__VA_ARGS__};                                                                      \
        big(params, per_param, (int)(sizeof keys / sizeof *keys), keys);                                               \
    } while (0)
#define LLAMA3 "model.family=llama", "model.vocab=128256", "model.seq_len=8192", "model.kv_heads=8"

/* Hundreds of billions of parameters are planned without any of them: 18 bytes each in bf16, 16 in fp32. */
static void test_big_models(void **state)
{
    (void)state;
    BIG(8030261248, 18, LLAMA3, "model.layers=32", "model.hidden=4096", "model.heads=32", "model.ffn=14336");
    BIG(70553706496, 18, LLAMA3, "model.layers=80", "model.hidden=8192", "model.heads=64", "model.ffn=28672");
    BIG(405853388800, 18, LLAMA3, "model.layers=126", "model.hidden=16384", "model.heads=128", "model.ffn=53248",
        "memory.recompute=full");
    BIG(6738415616, 16, "model.family=llama", "model.vocab=32000", "model.seq_len=4096", "model.layers=32",
        "model.hidden=4096", "model.heads=32", "model.ffn=11008", "precision.recipe=fp32");
    BIG(124439808, 18, "model.family=gpt2", "model.vocab=50257", "model.seq_len=1024", "model.layers=12",
        "model.hidden=768", "model.heads=12", "model.tie_embeddings=true");
}

/* The same numbers as text and as one JSON object with the fields that programs rely on. */
static void test_printing(void **state)
{
    (void)state;
    struct planned x;
    struct str text = {0}, json = {0};
    struct json *o;
    struct err e = {0};
    plan_of(&x, 6, (const char *const[]){"model.family=gpt2", TINY});
    plan_print(&x.p, &x.c, &text);
    plan_json(&x.p, &x.c, NULL, &json);
    if (json_parse(&o, str_text(&json), json.n, "plan", &e)) fail_msg("%s", e.text);
    const struct json *bytes = json_get(o, "bytes");
    int64_t sum = 0;
    for (int c = 0; c < MEM_N; c++) {
        int64_t v = json_int(json_get(bytes, mem_cat_name((enum mem_cat)c)), -1);
        assert_int_equal(v, x.p.role[0].bytes[c]);
        sum += v;
        char number[32];
        snprintf(number, sizeof number, "%lld", (long long)v);
        if (v) assert_contains(str_text(&text), number);
    }
    assert_int_equal(sum, json_int(json_get(o, "peak_bytes"), -1));
    assert_int_equal(json_int(json_get(o, "params"), -1), x.p.params);
    assert_true(json_real(json_get(o, "flops_per_step"), 0) == x.p.flops_per_step);
    assert_true(json_real(json_get(o, "flops_per_token"), 0) == x.p.flops_per_token);
    assert_int_equal(json_size(json_get(o, "ranks")), 1);
    assert_int_equal(json_int(json_get(json_get(json_get(o, "comm"), "tp"), "bytes"), -1), 0);
    json_free(o);
    str_free(&text);
    str_free(&json);
    plan_free(&x.p);
    arena_free(x.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_law),
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_big_models),
        cmocka_unit_test(test_printing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
