/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of config.json: every published file of our families is accepted as it is, and each of its keys is one we know;
 * any key that is not known, or has a value that is not computed, is refused by its name and value, also inside
 * rope_scaling and rope_parameters; naming it lifts the refusal of that key and of no other. */
#include "said.h"

#include "hub/hf.h"

#define PUBLISHED TEST_DIR "/checkpoint/fixtures/published"

static int parse(const char *text, const char *ignore, struct hf_model *m, struct err *out)
{
    struct json *v;
    struct err e = {0};
    struct hf_ignore list = {.keys = &ignore, .n = 1};
    assert_ok(json_parse_published(&v, text, strlen(text), "config.json", &e));
    int rc = hf_config_parse(m, v, ignore ? &list : NULL, "config.json", out);
    json_free(v);
    return rc;
}

/* The text with one more member in front. */
static char *with(const char *text, const char *member)
{
    struct str s = {0};
    str_printf(&s, "{%s,%s", member, strchr(text, '{') + 1);
    return s.p;
}

static void published_files_are_accepted(void **state)
{
    (void)state;
    struct err e = {0};
    char **names;
    int n, families = 0;
    assert_ok(fs_list(PUBLISHED, &names, &n, &e));
    assert_true(n >= 13);
    for (int i = 0; i < n; i++) {
        char *path = fs_join(PUBLISHED, names[i]), *text;
        size_t bytes;
        struct hf_model m;
        assert_ok(fs_read_all(path, 1 << 20, &text, &bytes, &e));
        const char *ignore = NULL;
        if (strstr(names[i], "fp8")) { /* its weights are not numbers that we read */
            assert_err(ERR_REQUEST, "quantization_config is an object of 4", parse(text, NULL, &m, &e));
            ignore = "quantization_config";
        }
        int rc = parse(text, ignore, &m, &e);
        if (rc) fail_msg("%s: %s", names[i], e.text);
        families |= 1 << m.family;
        /* And one key more is one too many. */
        char *more = with(text, "\"embedding_multiplier\":50.0");
        assert_err(ERR_REQUEST, "config.json: embedding_multiplier is 50", parse(more, ignore, &m, &e));
        if (!ignore) assert_ok(parse(more, "embedding_multiplier", &m, &e));
        xfree(more);
        xfree(text);
        xfree(path);
    }
    assert_int_equal(families, (1 << HF_N) - 1);
    fs_list_free(names, n);
}

#define LLAMA                                                                                                          \
    "{\"model_type\":\"llama\",\"vocab_size\":8,\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"  \
    "\"intermediate_size\":8,\"max_position_embeddings\":8}"
#define QWEN2                                                                                                          \
    "{\"model_type\":\"qwen2\",\"vocab_size\":8,\"hidden_size\":8,\"num_hidden_layers\":3,\"num_attention_heads\":2,"  \
    "\"num_key_value_heads\":2,\"intermediate_size\":8,\"max_position_embeddings\":8}"
#define DEEPSEEK                                                                                                       \
    "{\"model_type\":\"deepseek_v3\",\"vocab_size\":8,\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_"      \
    "heads\":2,"                                                                                                       \
    "\"intermediate_size\":8,\"max_position_embeddings\":8,\"n_routed_experts\":8,\"num_experts_per_tok\":1,"          \
    "\"moe_intermediate_size\":4,\"first_k_dense_replace\":0,\"n_group\":null,\"q_lora_rank\":null}"

static void others_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *base, *member, *says, *key;
    } rows[] = {
        {LLAMA, "\"use_qk_norm\":true", "use_qk_norm is true", "use_qk_norm"},
        {LLAMA, "\"layer_types\":[\"full_attention\",\"x\"]", "layer_types is a list of 2", "layer_types"},
        {LLAMA, "\"embedding_multiplier\":12", "embedding_multiplier is 12", "embedding_multiplier"},
        {LLAMA, "\"attention_multiplier\":0.5", "attention_multiplier is 0.5", "attention_multiplier"},
        {LLAMA, "\"rope_type\":\"yarn\"", "rope_type is \"yarn\"", "rope_type"},
        {DEEPSEEK, "\"attention_bias\":true", "attention_bias is true: tutti computes this model only with false",
         "attention_bias"},
        {QWEN2, "\"mlp_bias\":true", "mlp_bias is true", "mlp_bias"},
        {QWEN2, "\"attn_logit_softcapping\":50.0", "attn_logit_softcapping is 50", "attn_logit_softcapping"},
        {QWEN2, "\"hidden_act\":\"relu\"", "hidden_act is \"relu\"", "hidden_act"},
        {LLAMA, "\"sliding_window\":4096", "sliding_window is 4096", "sliding_window"},
        {LLAMA, "\"pruned_heads\":{\"0\":[1]}", "pruned_heads is an object of 1", "pruned_heads"},
        {LLAMA, "\"q_lora_rank\":4", "q_lora_rank is 4", "q_lora_rank"}, /* another family's */
        {LLAMA, "\"n_embd\":4", "n_embd is 4", "n_embd"},
        {LLAMA, "\"Hidden_size\":4", "Hidden_size is 4", "Hidden_size"},
        {DEEPSEEK, "\"scoring_func\":\"softplus\"", "scoring_func is \"softplus\"", "scoring_func"},
        {DEEPSEEK, "\"moe_layer_freq\":2", "moe_layer_freq is 2", "moe_layer_freq"},
        {DEEPSEEK, "\"index_topk\":2048", "index_topk is 2048", "index_topk"},
        {LLAMA, "\"rope_scaling\":{\"type\":\"default\",\"factor\":2.0}", "rope_scaling.factor is 2",
         "rope_scaling.factor"},
        {LLAMA, "\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.5}",
         "rope_parameters.partial_rotary_factor is 0.5: tutti computes this model only with 1",
         "rope_parameters.partial_rotary_factor"},
        {LLAMA, "\"rope_parameters\":{\"rope_theta\":1e4,\"mrope_section\":[1,1,2]}",
         "rope_parameters.mrope_section is a list of 3", "rope_parameters.mrope_section"},
        {DEEPSEEK, "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2.0,\"attention_factor\":1.5}",
         "rope_scaling.attention_factor is 1.5", "rope_scaling.attention_factor"},
        {DEEPSEEK, "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2.0,\"low_freq_factor\":1.5}",
         "rope_scaling.low_freq_factor is 1.5", "rope_scaling.low_freq_factor"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hf_model m;
        struct err e = {0};
        char *text = with(rows[i].base, rows[i].member), key[80];
        assert_ok(parse(rows[i].base, NULL, &m, &e));
        assert_err(ERR_REQUEST, rows[i].says, parse(text, NULL, &m, &e));
        snprintf(key, sizeof key, "model.ignore: [%s]", rows[i].key);
        assert_non_null(strstr(e.text, key));
        if (parse(text, rows[i].key, &m, &e)) fail_msg("%s", e.text);
        assert_int_equal(parse(text, "another_key", &m, &e), ERR_REQUEST);
        xfree(text);
    }
}

/* Published files hold numbers of any size where nothing reads them; one that is read has to fit, and says so by
 * name. */
static void numbers_count_where_they_are_used(void **state)
{
    (void)state;
    static const char *const unused[] = {"\"model_max_length\":1000000000000000019884624838656",
                                         "\"pad_token_id\":NaN",
                                         "\"temperature\":Infinity",
                                         "\"torch_dtype\":-Infinity",
                                         "\"top_k\":18446744073709551615",
                                         "\"bos_token_id\":-1",
                                         "\"eos_token_id\":[-1,3]",
                                         "\"auto_map\":{\"a\":NaN,\"a\":1}"};
    static const struct {
        const char *member, *says;
    } used[] = {
        {"\"num_key_value_heads\":1000000000000000019884624838656", "num_key_value_heads: wanted an integer from 1 to"},
        {"\"head_dim\":NaN", "head_dim: wanted an integer from 1 to 65536, got nan"},
        {"\"rope_theta\":Infinity", "rope_theta: wanted a number from 1 to 1e+12"},
        {"\"rms_norm_eps\":NaN", "rms_norm_eps: wanted a number"},
        {"\"eos_token_id\":1000000000000000019884624838656", "eos_token_id: wanted the number of a token, got 1e+30"},
        {"\"eos_token_id\":[1,2.5]", "eos_token_id: wanted the number of a token, got 2.5"},
        {"\"eos_token_id\":\"</s>\"", "eos_token_id: wanted the number of a token"},
        {"\"eos_token_id\":[1,2,3,4,5,6,7,1,2]", "eos_token_id: a list of 9; tutti keeps 8"},
        {"\"bos_token_id\":4294967296", "bos_token_id: wanted the number of a token, got 4294967296"},
        {"\"tie_word_embeddings\":1", "tie_word_embeddings: wanted true or false"},
        {"\"partial_rotary_factor\":NaN", "partial_rotary_factor is nan"},
    };
    struct hf_model m;
    struct err e = {0};
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++) {
        char *text = with(LLAMA, unused[i]);
        if (parse(text, NULL, &m, &e)) fail_msg("%s: %s", unused[i], e.text);
        xfree(text);
    }
    for (size_t i = 0; i < sizeof used / sizeof *used; i++) {
        char *text = with(LLAMA, used[i].member);
        if (parse(text, NULL, &m, &e) >= 0 || !strstr(e.text, used[i].says)) fail_msg("%s: %s", used[i].member, e.text);
        xfree(text);
    }
    char *text = with(LLAMA, "\"eos_token_id\":[-1,3,5],\"bos_token_id\":-1");
    assert_ok(parse(text, NULL, &m, &e));
    assert_true(m.bos == -1 && m.n_eos == 2 && m.eos[0] == 3 && m.eos[1] == 5);
    xfree(text);
}

static void null_is_absent(void **state)
{
    (void)state;
    struct hf_model m;
    struct err e = {0};
    char *text = with(LLAMA, "\"use_qk_norm\":null,\"sliding_window\":null,\"rope_scaling\":null,\"rope_parameters\":"
                             "null,\"mlp_bias\":null");
    assert_ok(parse(text, NULL, &m, &e));
    xfree(text);
}

/* Lists and rules of layers become patterns, and what no pattern or kernel says is refused. */
static void layers_are_patterns(void **state)
{
    (void)state;
    static const struct {
        const char *members, *local, *says; /* says: of a refusal */
        int64_t window;
    } rows[] = {
        {"\"use_sliding_window\":true", "x", NULL, 0}, /* 28 layers before the first that is local */
        {"\"use_sliding_window\":true,\"max_window_layers\":1", "o2x", NULL, 4096},
        {"\"use_sliding_window\":true,\"max_window_layers\":0,\"sliding_window\":7", "x", NULL, 7},
        {"\"max_window_layers\":0,\"sliding_window\":7", "x", NULL, 0}, /* not asked for */
        {"\"use_sliding_window\":true,\"sliding_window\":7,\"layer_types\":[\"sliding_attention\",\"full_attention\","
         "\"sliding_attention\"]",
         "xo", NULL, 7},
        {"\"use_sliding_window\":true,\"layer_types\":[\"full_attention\"]", NULL, "layer_types: wanted a list", 0},
        {"\"layer_types\":[\"full_attention\",\"full_attention\",\"chunked_attention\"]", NULL,
         "layer_types[2]: chunked_attention is not computed", 0},
        {"\"layer_types\":[\"sliding_attention\",\"full_attention\",\"full_attention\"]", NULL,
         "sliding_window says no size", 0},
        {"\"use_sliding_window\":1", NULL, "use_sliding_window: wanted true or false", 0},
        {"\"tutti\":{\"attn.window\":-1}", NULL, "tutti.attn.window: is no value", 0},
        {"\"tutti\":{\"attn.local\":\"xy\"}", NULL, "tutti.attn.local: is no value", 0},
        {"\"tutti\":{\"norm_place\":\"above\"}", NULL, "tutti.norm_place: is no value", 0},
        {"\"tutti\":{\"hidden\":8}", NULL, "tutti.hidden: is no number", 0},
        {"\"tutti\":3", NULL, "tutti: wanted an object", 0},
        {"\"max_window_layers\":-1,\"use_sliding_window\":true", NULL, "max_window_layers", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hf_model m;
        struct err e = {0};
        char *text = with(QWEN2, rows[i].members);
        int rc = parse(text, NULL, &m, &e);
        if (rows[i].says ? rc == OK || !strstr(e.text, rows[i].says) : rc != OK)
            fail_msg("%s: %s", rows[i].members, rc ? e.text : "accepted");
        if (rc == OK && (m.model.attn.window != rows[i].window || strcmp(m.model.attn.local.text, rows[i].local)))
            fail_msg("%s: %lld, %s", rows[i].members, (long long)m.model.attn.window, m.model.attn.local.text);
        xfree(text);
    }
}

/* Of a hybrid each layer is named, by letters or by words, and others are refused. */
static void hybrids_name_their_layers(void **state)
{
    (void)state;
#define NEMOTRON "{\"model_type\":\"nemotron_h\",\"vocab_size\":8,\"hidden_size\":8}"
#define PATTERN(text) "\"hybrid_override_pattern\":\"" text "\""
#define TIMES_8(text) text text text text text text text text
    static const struct {
        const char *members, *pattern, *says; /* says: of a refusal */
        int64_t layers;
    } rows[] = {
        {PATTERN("M-M*-"), "M-M*-", NULL, 5},
        {PATTERN("M-M*-") ",\"num_hidden_layers\":5", "M-M*-", NULL, 5},
        {PATTERN("M-M*-") ",\"num_hidden_layers\":6", NULL, "num_hidden_layers: 6, but hybrid_override_pattern names 5",
         0},
        {"\"layers_block_type\":[\"mamba\",\"attention\",\"mlp\"]", "M*-", NULL, 3},
        {"\"layers_block_type\":[\"linear_attention\",\"full_attention\"]," PATTERN("MM"), "M*", NULL, 2},
        {"\"layer_types\":[\"mlp\",\"linear_attention\"]", "-M", NULL, 2},
        {"\"layers_block_type\":[\"mamba\",\"moe\"]", NULL, "layers_block_type[1]: moe is not computed here", 0},
        {"\"layers_block_type\":[]", NULL, "wanted a letter for each layer", 0},
        {PATTERN("MEM*"), NULL, "experts without gates", 0},
        {PATTERN("*-*"), NULL, "no layer is a state space", 0},
        {"\"use_cache\":true", NULL, "hybrid_override_pattern: wanted a letter", 0},
        {PATTERN(TIMES_8(TIMES_8("M-*"))), "M-*", NULL, 192}, /* too long but for what is repeated */
        {PATTERN(TIMES_8(TIMES_8("M-*")) "MM"), NULL, "at most 127", 0},
        {PATTERN("M*") ",\"attention_head_dim\":7", "M*", NULL, 2},
        {PATTERN("M") ",\"mamba_num_heads\":9", NULL, "mamba_num_heads: 9 is not a multiple of n_groups 8", 0},
        {PATTERN("M") ",\"num_attention_heads\":9", NULL, "not a multiple of num_key_value_heads 8", 0},
        {PATTERN("M") ",\"mlp_hidden_act\":\"silu\"", NULL, "mlp_hidden_act is \"silu\"", 0},
        {PATTERN("M") ",\"attention_bias\":true", NULL, "attention_bias is true", 0},
        {PATTERN("M") ",\"num_nextn_predict_layers\":1", NULL, "num_nextn_predict_layers is 1", 0},
        {PATTERN("M") ",\"time_step_limit\":[0.5,0.1]", NULL, "time_step_limit: wanted two numbers", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hf_model m;
        struct err e = {0};
        char *text = with(NEMOTRON, rows[i].members);
        int rc = parse(text, NULL, &m, &e);
        if (rows[i].says ? rc == OK || !strstr(e.text, rows[i].says) : rc != OK)
            fail_msg("%s: %s", rows[i].members, rc ? e.text : "accepted");
        if (rc == OK && (m.model.layers != rows[i].layers || strcmp(m.model.pattern.text, rows[i].pattern)))
            fail_msg("%s: %lld, %s", rows[i].members, (long long)m.model.layers, m.model.pattern.text);
        if (rc == OK) assert_int_equal(m.model.head_dim, strstr(rows[i].members, "head_dim") ? 7 : 128);
        xfree(text);
    }
}

/* Gemma 3's angles by type of layer, as newer files have them. */
static void angles_by_type(void **state)
{
    (void)state;
#define GEMMA3                                                                                                         \
    "{\"model_type\":\"gemma3_text\",\"vocab_size\":8,\"hidden_size\":8,\"num_hidden_layers\":3,\"num_attention_"      \
    "heads\":2,"                                                                                                       \
    "\"num_key_value_heads\":2,\"head_dim\":4,\"intermediate_size\":8,\"max_position_embeddings\":8}"
    static const struct {
        const char *member, *says;
        double theta, near, factor;
    } rows[] = {
        {"\"hidden_act\":\"gelu\"", NULL, 1e6, 1e4, 0}, /* which nothing reads */
        {"\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8.0,\"rope_theta\":5e5},"
         "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":70.0}}",
         NULL, 5e5, 70, 8},
        {"\"rope_parameters\":{\"sliding_attention\":{\"rope_theta\":70.0}}", NULL, 1e6, 70, 0},
        {"\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":\"linear\",\"factor\":8.0}}",
         "scaled angles of local layers", 0, 0, 0},
        {"\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"},\"chunked\":{}}", "and nothing else", 0,
         0, 0},
        {"\"rope_parameters\":{\"full_attention\":3}", "is not computed here", 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hf_model m;
        struct err e = {0};
        char *text = with(GEMMA3, rows[i].member);
        int rc = parse(text, NULL, &m, &e);
        if (rows[i].says ? rc == OK || !strstr(e.text, rows[i].says) : rc != OK)
            fail_msg("%s: %s", rows[i].member, rc ? e.text : "accepted");
        if (rc == OK)
            assert_true(m.model.rope_theta == rows[i].theta && m.model.attn.local_theta == rows[i].near &&
                        m.model.rope_scaling.factor == rows[i].factor);
        xfree(text);
    }
}

/* What a file leaves out is the library's default, which is another one in each family. */
static void what_is_left_out(void **state)
{
    (void)state;
    struct hf_model m;
    struct err e = {0};
    assert_ok(parse(LLAMA, NULL, &m, &e));
    assert_true(m.model.norm_eps == 1e-6 && m.model.rope_theta == 10000);
    assert_ok(parse("{\"model_type\":\"mixtral\",\"vocab_size\":8,\"hidden_size\":64,\"num_hidden_layers\":1,\"num_"
                    "attention_heads\":16,"
                    "\"intermediate_size\":8,\"max_position_embeddings\":8}",
                    NULL, &m, &e));
    assert_true(m.model.norm_eps == 1e-5 && m.model.rope_theta == 1e6 && m.model.kv_heads == 8 &&
                m.model.moe.experts == 8);
    assert_ok(parse(DEEPSEEK, NULL, &m, &e));
    assert_true(m.model.mla.q_rank == 0 && m.model.moe.groups == 0);
    char *text =
        with(DEEPSEEK, "\"rms_norm_eps\":1e-5,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2.0,\"truncate\":false}");
    assert_ok(parse(text, NULL, &m, &e));
    assert_true(m.model.norm_eps == 1e-5 && m.model.mla.norm_eps == 1e-6 && !m.model.yarn.truncate);
    xfree(text);
    assert_ok(
        parse("{\"model_type\":\"deepseek_v3\",\"vocab_size\":8,\"hidden_size\":8,\"num_hidden_layers\":1,\"num_"
              "attention_heads\":2,"
              "\"intermediate_size\":8,\"max_position_embeddings\":8,\"n_routed_experts\":8,\"num_experts_per_tok\":1,"
              "\"moe_intermediate_size\":4,\"first_k_dense_replace\":0}",
              NULL, &m, &e));
    assert_true(m.model.mla.q_rank == 1536 && m.model.moe.groups == 8 && m.model.moe.top_groups == 4);
    text = with(LLAMA, "\"rope_parameters\":{\"rope_theta\":7.0},\"rope_scaling\":{\"type\":\"default\"}");
    assert_err(ERR_REQUEST, "rope_parameters and rope_scaling are both there", parse(text, NULL, &m, &e));
    xfree(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_files_are_accepted),
        cmocka_unit_test(others_are_refused_by_name),
        cmocka_unit_test(numbers_count_where_they_are_used),
        cmocka_unit_test(null_is_absent),
        cmocka_unit_test(layers_are_patterns),
        cmocka_unit_test(hybrids_name_their_layers),
        cmocka_unit_test(angles_by_type),
        cmocka_unit_test(what_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
