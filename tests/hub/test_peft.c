/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters in peft's form: keys that change numbers are refused by name, whatever way an adapter began; an adapter of
 * the output matrix is read beside the matrix that peft saves with it, which is compared with the base's; what has no
 * place is called what it is. */
#include "said.h"

#include <math.h>

#include "hub/hf.h"
#include "hub/peft.h"
#include "hub/peft_keys.h"
#include "checkpoint/safetensors.h"

static void put(const char *dir, const char *name, const char *text)
{
    struct err e;
    char *path = fs_join(dir, name);
    assert_ok(fs_write_atomic(path, text, strlen(text), &e));
    xfree(path);
}

#define LLAMA(tied)                                                                                                    \
    "{\"model_type\":\"llama\",\"vocab_size\":8,\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"  \
    "\"intermediate_size\":8,\"max_position_embeddings\":8,\"tie_word_embeddings\":" tied "}"
#define ADAPTER "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4"

/* Elements of a tensor: small whole numbers, which every type holds; `changed`: another one in the middle of it. */
struct numbers {
    const struct safetensors_spec *specs;
    const char *changed;
};
static float number_of(int64_t k) { return (float)(k % 13 - 6); }
static int source(void *ctx, int64_t i, int64_t row, int64_t n, void *dst, struct err *e)
{
    const struct numbers *x = ctx;
    const struct safetensors_spec *t = &x->specs[i];
    int64_t each = shape_numel(&t->shape) / t->shape.n[0];
    (void)e;
    for (int64_t k = 0; k < n * each; k++) {
        float v = number_of(row * each + k) + (x->changed && !strcmp(x->changed, t->name) && row * each + k == 19);
        if (t->dtype == DT_F32) ((float *)dst)[k] = v;
        else ((bf16 *)dst)[k] = bf16_from_f32(v);
    }
    return OK;
}

static void put_base(const char *dir, const char *config)
{
    struct err e;
    struct hf_model m;
    struct safetensors_spec specs[16];
    char names[16][128];
    put(dir, "config.json", config);
    assert_ok(hf_config_read(&m, dir, NULL, &e));
    int64_t n = hf_n_params(&m);
    assert_true(n <= 16);
    for (int64_t i = 0; i < n; i++) {
        struct hf_param p = hf_param_at(&m, i);
        snprintf(names[i], sizeof names[i], "%s%s", p.prefixed ? hf_prefix(m.family) : "", p.theirs);
        specs[i] = (struct safetensors_spec){names[i], DT_F32, p.file_shape};
    }
    struct numbers x = {specs, NULL};
    assert_ok(safetensors_write_set(dir, "model", specs, n, 1 << 20, source, &x, &e));
}

static void put_adapter(const char *dir, const char *config, const struct safetensors_spec *specs, int n,
                        const char *changed)
{
    struct err e;
    struct numbers x = {specs, changed};
    assert_ok(fs_mkdirs(dir, &e));
    put(dir, "adapter_config.json", config);
    assert_ok(safetensors_write_set(dir, "adapter_model", specs, n, 1 << 20, source, &x, &e));
}

#define Q "base_model.model.model.layers.0.self_attn.q_proj"
#define HEAD "base_model.model.lm_head"
static const struct safetensors_spec pair[] = {{Q ".lora_A.weight", DT_F32, {2, {2, 8}}},
                                               {Q ".lora_B.weight", DT_F32, {2, {8, 2}}}};

/* ---- keys ---- */
static void keys_that_change_numbers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *more, *says; /* says: of a refusal */
    } rows[] = {
        {"", NULL},
        {",\"init_lora_weights\":true", NULL},
        {",\"init_lora_weights\":false", NULL},
        {",\"init_lora_weights\":\"gaussian\"", NULL},
        {",\"init_lora_weights\":\"orthogonal\"", NULL},
        {",\"init_lora_weights\":\"eva\",\"eva_config\":{\"rho\":2}", NULL},
        {",\"init_lora_weights\":\"pissa\"", "init_lora_weights: pissa: an adapter that began so"},
        {",\"init_lora_weights\":\"pissa_niter_4\"", "init_lora_weights: pissa_niter_4"},
        {",\"init_lora_weights\":\"olora\"", "init_lora_weights: olora"},
        {",\"init_lora_weights\":\"corda\"", "init_lora_weights: corda"},
        {",\"init_lora_weights\":\"loftq\"", "init_lora_weights: loftq"},
        {",\"init_lora_weights\":\"lora_ga\"", "init_lora_weights: lora_ga"},
        {",\"init_lora_weights\":\"a_new_one\"", "init_lora_weights: a_new_one"},
        {",\"init_lora_weights\":7", "init_lora_weights"},
        {",\"target_parameters\":[\"experts\"]", "target_parameters: adapters of tensors that hold all experts"},
        {",\"target_parameters\":[]", NULL},
        {",\"rank_pattern\":{\"q\":3}", "rank_pattern: matrices have ranks of their own"},
        {",\"rank_pattern\":{}", NULL},
        {",\"bias\":\"all\"", "bias: the model's own biases"},
        {",\"bias\":\"none\"", NULL},
        {",\"alora_invocation_tokens\":[1]", "alora_invocation_tokens: adapters are switched on"},
        {",\"ensure_weight_tying\":true", "ensure_weight_tying"},
        {",\"a_new_key\":1", "a_new_key: tutti does not know this key"},
        {",\"a_new_key\":null", NULL},
        {",\"use_dora\":true", "is missing beside its other half"},
        {",\"use_dora\":1", "use_dora: wanted true or false"},
        {",\"use_rslora\":\"true\"", "use_rslora: wanted true or false"},
        {",\"use_rslora\":null", NULL},
        {",\"lora_bias\":true", "lora_bias: adapters have biases"},
        {",\"modules_to_save\":[\"score\"]", "modules_to_save: whole matrices"},
        {",\"trainable_token_indices\":[1]", "trainable_token_indices: rows of the embedding"},
        {",\"alpha_pattern\":{\"q\":3}", "alpha_pattern: matrices have factors of their own"},
        {",\"alpha_pattern\":{}", NULL},
        {",\"layer_replication\":[[0,1]]", "layer_replication: layers of the base stand"},
        {",\"use_qalora\":true", "use_qalora: inputs are pooled"},
        {",\"use_bdlora\":{\"nblocks\":2}", "use_bdlora: A and B are blocks"},
        {",\"arrow_config\":{\"top_k\":2}", "arrow_config: a router chooses"},
        {",\"kasa_config\":{\"beta\":1}", "kasa_config: adapters have singular values"},
        {",\"monteclora_config\":{\"n\":1}", "monteclora_config: adapters are drawn"},
        {",\"velora_config\":{\"n\":1}", "velora_config: backward takes"},
        {",\"megatron_config\":{\"n\":1}", "megatron_config: the layers are Megatron's"},
        {",\"layers_to_transform\":[0],\"target_modules\":\"all-linear\",\"task_type\":\"CAUSAL_LM\"", NULL},
    };
    char *dir = scratch_new(), *base = fs_join(dir, "base"), *adapter = fs_join(dir, "adapter");
    struct err e = {0};
    assert_ok(fs_mkdirs(base, &e));
    put_base(base, LLAMA("false"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct weights *w;
        struct str config = {0};
        str_printf(&config, ADAPTER "%s}", rows[i].more);
        put_adapter(adapter, config.p, pair, 2, NULL);
        assert_ok(weights_open(&w, base, &e));
        int rc = weights_attach(w, adapter, &e);
        if (rows[i].says ? !rc || !strstr(e.text, rows[i].says) : rc)
            fail_msg("%s: %d %s", rows[i].more, rc, rc ? e.text : "");
        weights_close(w);
        str_free(&config);
    }
    xfree(base);
    xfree(adapter);
    scratch_free(dir);
}

/* What the file's numbers make of an adapter: alpha over r, of rsLoRA over its root. */
static void factors(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        double times; /* 0: refused */
    } rows[] = {
        {"\"r\":2,\"lora_alpha\":4", 2},
        {"\"r\":2,\"lora_alpha\":0.5", 0.25},
        {"\"r\":2,\"lora_alpha\":16,\"use_rslora\":false", 8},
        {"\"r\":2,\"lora_alpha\":16,\"use_rslora\":true", 16 / 1.4142135623730951},
        {"\"r\":2,\"lora_alpha\":0", 0},
        {"\"r\":2,\"lora_alpha\":-4", 0},
        {"\"r\":2,\"lora_alpha\":\"4\"", 0},
        {"\"r\":2", 0},
        {"\"lora_alpha\":4", 0},
        {"\"r\":\"2\",\"lora_alpha\":4", 0},
        {"\"r\":3,\"lora_alpha\":4", 0}, /* its tensors are of 2 */
    };
    char *dir = scratch_new(), *base = fs_join(dir, "base"), *adapter = fs_join(dir, "adapter");
    struct err e = {0};
    struct hf_model m;
    struct weights *w;
    assert_ok(fs_mkdirs(base, &e));
    put_base(base, LLAMA("false"));
    assert_ok(hf_config_read(&m, base, NULL, &e));
    assert_ok(weights_open(&w, base, &e));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct peft *p = NULL;
        struct str config = {0};
        str_printf(&config, "{\"peft_type\":\"LORA\",%s}", rows[i].config);
        put_adapter(adapter, config.p, pair, 2, NULL);
        int rc = peft_open(&p, adapter, w, &m, &e);
        double times = rc ? 0 : peft_times(p);
        if (fabs(times - rows[i].times) > 1e-12) fail_msg("%s: %.17g: %s", rows[i].config, times, rc ? e.text : "");
        if (!rc) peft_close(p);
        str_free(&config);
    }
    weights_close(w);
    xfree(base);
    xfree(adapter);
    scratch_free(dir);
}

/* ---- the output matrix, and what has no place ---- */
static void heads_are_read_beside_their_matrix(void **state)
{
    (void)state;
    static const struct {
        const char *base;
        struct safetensors_spec more[3];
        const char *changed, *says;
    } rows[] = {
        {LLAMA("false"),
         {{HEAD ".lora_A.weight", DT_F32, {2, {2, 8}}}, {HEAD ".lora_B.weight", DT_F32, {2, {8, 2}}}},
         NULL,
         NULL},
        {LLAMA("false"),
         {{HEAD ".base_layer.weight", DT_F32, {2, {8, 8}}},
          {HEAD ".lora_A.weight", DT_F32, {2, {2, 8}}},
          {HEAD ".lora_B.weight", DT_F32, {2, {8, 2}}}},
         NULL,
         NULL},
        {LLAMA("false"), {{HEAD ".base_layer.weight", DT_BF16, {2, {8, 8}}}}, NULL, NULL},
        {LLAMA("false"),
         {{HEAD ".base_layer.weight", DT_F32, {2, {8, 8}}}},
         HEAD ".base_layer.weight",
         "is another than head.weight of"},
        {LLAMA("false"), {{HEAD ".base_layer.weight", DT_F32, {2, {9, 8}}}}, NULL, "is another than head.weight of"},
        {LLAMA("false"), {{"base_model.model.model.embed_tokens.weight", DT_F32, {2, {8, 8}}}}, NULL, NULL},
        {LLAMA("false"),
         {{"base_model.model.model.embed_tokens.weight", DT_F32, {2, {8, 8}}}},
         "base_model.model.model.embed_tokens.weight",
         "is another than embed.token of"},
        {LLAMA("true"),
         {{HEAD ".lora_A.weight", DT_F32, {2, {2, 8}}}, {HEAD ".lora_B.weight", DT_F32, {2, {8, 2}}}},
         NULL,
         "an adapter of the output matrix, which is the embedding in this model"},
        {LLAMA("false"),
         {{"base_model.model.model.embed_tokens.lora_embedding_A", DT_F32, {2, {2, 8}}}},
         NULL,
         "an adapter of a table of tokens"},
        {LLAMA("false"),
         {{"base_model.model.model.layers.0.mlp.experts.lora_A.weight", DT_F32, {2, {8, 8}}}},
         NULL,
         "an adapter of all experts in one tensor"},
        {LLAMA("false"),
         {{"base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight", DT_F32, {2, {2, 8}}}},
         NULL,
         "has no matrix in this model: an adapter of another base"},
    };
    char *dir = scratch_new(), *base = fs_join(dir, "base"), *adapter = fs_join(dir, "adapter");
    struct err e = {0};
    assert_ok(fs_mkdirs(base, &e));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct weights *w;
        struct safetensors_spec specs[5] = {pair[0], pair[1]};
        int n = 2;
        for (int k = 0; k < 3 && rows[i].more[k].name; k++) specs[n++] = rows[i].more[k];
        put_base(base, rows[i].base);
        put_adapter(adapter, ADAPTER "}", specs, n, rows[i].changed);
        assert_ok(weights_open(&w, base, &e));
        int rc = weights_attach(w, adapter, &e);
        if (rows[i].says ? !rc || !strstr(e.text, rows[i].says) : rc)
            fail_msg("row %zu: %d %s", i, rc, rc ? e.text : "");
        bool adapts = !rc && strstr(specs[n - 1].name, "lm_head.lora_B");
        float got[64];
        struct region all = {.nd = 2, .hi = {8, 8}};
        if (!rc) assert_ok(weights_read(w, weights_find_param(w, "head.weight"), &all, DT_F32, got, &e));
        for (int64_t r = 0; r < 8 && !rc; r++)
            for (int64_t c = 0; c < 8; c++) {
                float sum = 0;
                for (int64_t k = 0; k < 2; k++) sum += number_of(2 * r + k) * number_of(8 * k + c);
                assert_true(got[8 * r + c] == number_of(8 * r + c) + (adapts ? 2 * sum : 0));
            }
        weights_close(w);
    }
    xfree(base);
    xfree(adapter);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keys_that_change_numbers_are_refused),
                                       cmocka_unit_test(factors), cmocka_unit_test(heads_are_read_beside_their_matrix)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
