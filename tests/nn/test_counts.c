/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter counts of published models, FLOPs per token, names, and what model_check refuses. */
#include "toy.h"

struct published {
    const char *name;
    int64_t params;
    struct model_config c;
};
#define LLAMA(l, h, n_heads, kv, f, v)                                                                                 \
    {                                                                                                                  \
        .family = MODEL_LLAMA, .layers = l, .hidden = h, .heads = n_heads, .kv_heads = kv,                             \
        .head_dim = (h) / (n_heads), .ffn = f, .vocab = v, .max_positions = 8192, .norm_eps = 1e-5,                    \
        .rope_theta = 10000                                                                                            \
    }
#define GPT2(l, h, n_heads, seq)                                                                                       \
    {                                                                                                                  \
        .family = MODEL_GPT2, .layers = l, .hidden = h, .heads = n_heads, .kv_heads = n_heads,                         \
        .head_dim = (h) / (n_heads), .ffn = 4 * (h), .vocab = 50257, .max_positions = seq, .tie_embeddings = true,     \
        .norm_eps = 1e-5                                                                                               \
    }
#define MLA(l, h, n_heads, f, v, q)                                                                                    \
    .family = MODEL_DEEPSEEK, .layers = l, .hidden = h, .heads = n_heads, .kv_heads = n_heads, .head_dim = 192,        \
    .ffn = f, .vocab = v, .max_positions = 4096, .norm_eps = 1e-6, .rope_theta = 10000,                                \
    .mla = {q, 512, 128, 64, 128, true, 1e-6}
/* Trainable values: counts of Llama 2 that include the rotary tables are larger by 64 per layer. */
/* clang-format off */
static const struct published models[] = {
    {"Llama-2-7B", 6738415616, LLAMA(32, 4096, 32, 32, 11008, 32000)},
    {"Llama-2-13B", 13015864320, LLAMA(40, 5120, 40, 40, 13824, 32000)},
    {"Llama-2-70B", 68976648192, LLAMA(80, 8192, 64, 8, 28672, 32000)},
    {"Llama-3.1-8B", 8030261248, LLAMA(32, 4096, 32, 8, 14336, 128256)},
    {"Llama-3.1-70B", 70553706496, LLAMA(80, 8192, 64, 8, 28672, 128256)},
    {"Llama-3.1-405B", 405853388800, LLAMA(126, 16384, 128, 8, 53248, 128256)},
    {"Mixtral-8x7B", 46702792704,
     {.family = MODEL_MIXTRAL, .layers = 32, .hidden = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128, .ffn = 14336,
      .vocab = 32000, .max_positions = 8192, .norm_eps = 1e-5, .rope_theta = 1e6,
      .moe = {.experts = 8, .top_k = 2, .ffn = 14336, .norm_topk = true, .scale = 1}}},
    {"DeepSeek-V2-Lite", 15706484224,
     {MLA(27, 2048, 16, 10944, 102400, 0),
      .moe = {.experts = 64, .top_k = 6, .ffn = 1408, .shared = 2, .first_dense = 1, .scale = 1}}},
    /* without the layer that predicts further tokens; the biases of choice are counted */
    {"DeepSeek-V3", 671026419200,
     {MLA(61, 7168, 128, 18432, 129280, 1536),
      .moe = {.experts = 256, .top_k = 8, .ffn = 2048, .shared = 1, .first_dense = 3, .score = SCORE_SIGMOID, .norm_topk = true,
              .groups = 8, .top_groups = 4, .group_pairs = true, .scale = 2.5, .bias = true}}},
    {"GPT-2 124M", 124439808, GPT2(12, 768, 12, 1024)},
    {"GPT-2 1.5B", 1557611200, GPT2(48, 1600, 25, 1024)},
    {"GPT-3 175B, tied, learned positions", 174604259328, GPT2(96, 12288, 96, 2048)},
};
/* clang-format on */

static void test_published_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct param_table t = {0};
        struct err e = {0};
        if (model_check(&models[i].c, &e)) fail_msg("%s: %s", models[i].name, e.text);
        model_declare(&models[i].c, NULL, &t);
        if (t.numel != models[i].params)
            fail_msg("%s: %lld parameters, published %lld", models[i].name, (long long)t.numel,
                     (long long)models[i].params);
        param_table_free(&t);
    }
}

/* 6 N per token for the matrices and 6 L H A (S + 1) for causal attention (Kaplan et al. 2020; Chowdhery et al. 2022,
 * appendix B, halved for the mask), and the program agrees. */
static void test_flops(void **state)
{
    (void)state;
    for (int family = 0; family < MODEL_DEEPSEEK; family++) { /* there values are padded to keys: more than the law */
        struct engine_config c = toy_config((enum model_family)family, DT_F32);
        struct device *d;
        struct engine *g;
        struct err e = {0};
        c.model.hidden = 1024;
        c.model.heads = 8;
        c.model.kv_heads = family == MODEL_LLAMA ? 2 : 8;
        c.model.head_dim = 128;
        c.model.ffn = 3000;
        c.model.vocab = 4001;
        c.seq = c.model.max_positions = 512;
        assert_int_equal(device_null_new(&d, &e), OK);
        if (engine_new(&g, &c, d, &e)) fail_msg("%s", e.text);
        int64_t L = c.model.layers, D = 1024, HA = 1024, GA = (int64_t)c.model.kv_heads * 128, F = 3000,
                V = 4001; /* ffn and vocabulary */
        int64_t mlp = family == MODEL_GPT2 ? 2 : 3;
        if (family == MODEL_MIXTRAL) F = 2 * c.model.moe.ffn; /* two of the experts */
        double router = family == MODEL_MIXTRAL ? 6.0 * (double)(L * D * 5) : 0;
        double want =
            6.0 * (double)(L * (D * (2 * HA + 2 * GA) + mlp * D * F) + V * D) + 6.0 * (double)(L * HA * 513) + router;
        double program = engine_flops_model(g) / (double)(c.seq * c.micro * c.n_microbatches);
        if (!(program >= want * 0.999 && program < want * 1.02))
            fail_msg("the program has %g, the law %g", program, want);
        engine_free(g);
        device_free(d);
    }
}

static void test_names(void **state)
{
    (void)state;
    static const char *const gpt2[] = {"embed.token",
                                       "embed.position",
                                       "layers.1.norm1.weight",
                                       "layers.1.norm2.bias",
                                       "layers.0.attn.q.weight",
                                       "layers.0.attn.k.bias",
                                       "layers.0.attn.o.bias",
                                       "layers.1.mlp.up.weight",
                                       "layers.1.mlp.down.bias",
                                       "norm.bias",
                                       "head.weight"};
    static const char *const llama[] = {"embed.token",
                                        "layers.1.norm1.weight",
                                        "layers.0.attn.v.weight",
                                        "layers.1.mlp.gate.weight",
                                        "layers.1.mlp.down.weight",
                                        "norm.weight"};
    struct param_table t = {0};
    struct model_config c = toy_model(MODEL_GPT2);
    model_declare(&c, NULL, &t);
    for (size_t i = 0; i < sizeof gpt2 / sizeof *gpt2; i++) assert_true(param_find(&t, gpt2[i]) >= 0);
    int q = param_find(&t, "layers.1.attn.q.weight");
    assert_int_equal(param_find(&t, "layers.1.attn.k.weight"), q + 1); /* one buffer, one matrix product */
    assert_int_equal(param_find(&t, "layers.1.attn.v.weight"), q + 2);
    param_table_free(&t);
    c = toy_model(MODEL_LLAMA);
    c.tie_embeddings = true;
    model_declare(&c, NULL, &t);
    for (size_t i = 0; i < sizeof llama / sizeof *llama; i++) assert_true(param_find(&t, llama[i]) >= 0);
    assert_true(param_find(&t, "head.weight") < 0 && param_find(&t, "layers.0.attn.q.bias") < 0);
    assert_int_equal(t.p[param_find(&t, "layers.0.attn.k.weight")].n[0], 12);
    param_table_free(&t);
}

static void refuse(struct model_config c, const char *key, const char *remedy)
{
    struct err e = {0};
    assert_int_equal(model_check(&c, &e), ERR_REQUEST);
    assert_contains(e.text, key);
    assert_contains(e.text, remedy);
}

static void test_refusals(void **state)
{
    (void)state;
    struct model_config c = toy_model(MODEL_LLAMA);
    c.heads = 12;
    c.kv_heads = 5;
    refuse(c, "model.kv_heads", "nearest that does is 4");
    c.kv_heads = 24;
    refuse(c, "model.kv_heads", "nearest that does is 12");
    c = toy_model(MODEL_LLAMA);
    c.head_dim = 13;
    refuse(c, "model.head_dim", "even");
    c.head_dim = 0;
    refuse(c, "model.heads", "model.hidden");
    c = toy_model(MODEL_GPT2);
    c.vocab = 1;
    refuse(c, "model.vocab", "at least 2");
    c.vocab = (int64_t)1 << 40;
    refuse(c, "model.vocab", "32 bits");
    c = toy_model(MODEL_GPT2);
    c.dropout = 1;
    refuse(c, "model.dropout", "< 1");
}

/* Llama 3.1's rotary frequencies: kept, stretched eightfold, or between. Position 0 turns nothing. */
static void test_rope_table(void **state)
{
    (void)state;
    struct model_config c = toy_model(MODEL_LLAMA);
    c.head_dim = 128;
    c.max_positions = 3;
    c.rope_theta = 500000;
    static float plain[3 * 128], scaled[3 * 128];
    model_rope_table(&c, plain);
    c.rope_scaling = (struct rope_scaling_config){.factor = 8,
                                                  .low_freq_factor = 1,
                                                  .high_freq_factor = 4,
                                                  .original_max_position = 8192};
    model_rope_table(&c, scaled);
    for (int i = 0; i < 64; i++) {
        assert_true(plain[i] == 1 && plain[64 + i] == 0);
        double freq = pow(500000, -2.0 * i / 128), wave = 2 * acos(-1.0) / freq, want = freq;
        assert_true(fabs(plain[2 * 128 + 64 + i] - sin(2 * freq)) < 1e-6);
        if (wave > 8192) want = freq / 8;
        else if (wave > 2048) want = freq * ((8192 / wave - 1) / 3 + (1 - (8192 / wave - 1) / 3) / 8);
        assert_true(fabs(scaled[128 + i] - cos(want)) < 1e-6);
        assert_true(fabs(scaled[128 + 64 + i] - sin(want)) < 1e-6 * want + 1e-9);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_counts), cmocka_unit_test(test_flops),      cmocka_unit_test(test_names),
        cmocka_unit_test(test_refusals),         cmocka_unit_test(test_rope_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
