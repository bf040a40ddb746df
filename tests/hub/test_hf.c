/* SPDX-License-Identifier: Apache-2.0 */
/* Models in the form of Hugging Face: fixtures written by its library are read element by element, what is
 * exported is read back, and what tutti cannot compute is refused by name. */
#include "said.h"

#include "base/json.h"
#include "checkpoint/convert.h"
#include "hub/hf.h"
#include "hub/hf_generation.h"
#include "hub/hf_same.h"
#include "hub/hf_tokenizer_keys.h"
#include "checkpoint/safetensors.h"
#include "hub/weights.h"

#define FIXTURES TEST_DIR "/checkpoint/fixtures/"

/* The rule of fixtures/make.py: element i of their tensor `name`. */
static float fixture_value(const char *name, int64_t i)
{
    int64_t sum = 0;
    for (const char *c = name; *c; c++) sum += (unsigned char)*c;
    return (float)((7 * sum + 3 * i) % 127 - 63) / 64;
}

/* What our element (o, i) of parameter p must be, by the definition in hf.h. */
static float wanted_value(const struct hf_model *m, const struct hf_param *p, int64_t o, int64_t i)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s", p->prefixed ? hf_prefix(m->family) : "", p->theirs);
    int64_t cols = p->their_shape.nd > 1 ? p->their_shape.n[1] : 1;
    return fixture_value(name, p->transposed ? i * cols + p->offset + o : (p->offset + o) * cols + i);
}

static void check_elements(struct hf *h, struct dice *d)
{
    struct err e;
    const struct hf_model *m = hf_model_get(h);
    for (int64_t k = 0; k < hf_n_params(m); k++) {
        struct hf_param p = hf_param_at(m, k);
        assert_int_equal(hf_find(h, p.name), k);
        for (int round = 0; round < 4; round++) {
            struct region box = region_whole(&p.shape);
            for (int a = 0; a < box.nd && round; a++) { /* the whole, then parts of it */
                box.lo[a] = roll(d, p.shape.n[a] + 1);
                box.hi[a] = box.lo[a] + roll(d, p.shape.n[a] - box.lo[a] + 1);
            }
            size_t n = (size_t)region_volume(&box);
            float *x = xcalloc(n + 1, sizeof *x);
            bf16 *half = xcalloc(n + 1, sizeof *half);
            assert_ok(hf_read(h, k, &box, DT_F32, x, &e));
            assert_ok(hf_read(h, k, &box, DT_BF16, half, &e));
            int64_t cols = box.nd > 1 ? box.hi[1] - box.lo[1] : 1;
            for (size_t i = 0; i < n; i++) {
                int64_t row = box.lo[0] + (int64_t)i / cols, col = box.nd > 1 ? box.lo[1] + (int64_t)i % cols : 0;
                float wanted = wanted_value(m, &p, row, col);
                if (x[i] != wanted) fail_msg("%s[%zu]: %g, wanted %g", p.name, i, (double)x[i], (double)wanted);
                if (half[i] != bf16_from_f32(wanted)) fail_msg("%s[%zu] as bf16", p.name, i);
            }
            xfree(half);
            xfree(x);
        }
    }
}

static void gpt2_is_read(void **state)
{
    (void)state;
    struct err e;
    struct hf *h;
    struct dice d = {.seed = 1};
    assert_ok(hf_open(&h, FIXTURES "gpt2", NULL, &e));
    const struct hf_model *m = hf_model_get(h);
    const struct hf_model wanted = {.family = HF_GPT2,
                                    .model = {.family = MODEL_GPT2,
                                              .layers = 2,
                                              .hidden = 8,
                                              .heads = 2,
                                              .kv_heads = 2,
                                              .head_dim = 4,
                                              .ffn = 32,
                                              .vocab = 11,
                                              .max_positions = 6,
                                              .norm_eps = 1e-5,
                                              .tie_embeddings = true,
                                              .dropout = 0.1},
                                    .embed_dropout = 0.1,
                                    .attention_dropout = 0.1,
                                    .init_std = 0.02,
                                    .bos = 50256,
                                    .eos = {50256},
                                    .n_eos = 1};
    assert_true(hf_same(m, &wanted));
    assert_int_equal(hf_n_params(m), 2 + 2 * 16 + 2);
    assert_int_equal(hf_find(h, "head.weight"), -1);
    assert_int_equal(hf_dtype(h, 0), DT_F32);
    check_elements(h, &d);
    /* One by hand: k of layer 1, output 2, input 5, is c_attn[5, 8 + 2] of 24 columns. */
    struct region one = {.nd = 2, .lo = {2, 5}, .hi = {3, 6}};
    float x;
    assert_ok(hf_read(h, hf_find(h, "layers.1.attn.k.weight"), &one, DT_F32, &x, &e));
    assert_true(x == fixture_value("transformer.h.1.attn.c_attn.weight", 5 * 24 + 10));
    hf_close(h);
}

static void llama_is_read(void **state)
{
    (void)state;
    struct err e;
    struct hf *h;
    struct dice d = {.seed = 2};
    assert_ok(hf_open(&h, FIXTURES "llama", NULL, &e)); /* six files and an index */
    const struct hf_model *m = hf_model_get(h);
    const struct hf_model wanted = {.family = HF_LLAMA,
                                    .model = {.family = MODEL_LLAMA,
                                              .layers = 2,
                                              .hidden = 12,
                                              .heads = 3,
                                              .kv_heads = 1,
                                              .head_dim = 4,
                                              .ffn = 20,
                                              .vocab = 13,
                                              .max_positions = 32,
                                              .norm_eps = 1e-6,
                                              .rope_theta = 500000,
                                              .rope_scaling = {.factor = 8,
                                                               .low_freq_factor = 1,
                                                               .high_freq_factor = 4,
                                                               .original_max_position = 16}},
                                    .init_std = 0.02,
                                    .bos = 1,
                                    .eos = {2},
                                    .n_eos = 1};
    assert_true(hf_same(m, &wanted));
    assert_int_equal(hf_n_params(m), 1 + 2 * 9 + 2);
    assert_int_equal(hf_dtype(h, 0), DT_BF16);
    check_elements(h, &d);
    hf_close(h);
    assert_ok(hf_open(&h, FIXTURES "llama-tied", NULL, &e));
    assert_true(hf_model_get(h)->model.tie_embeddings);
    assert_int_equal(hf_find(h, "head.weight"), -1);
    assert_int_equal(hf_dtype(h, 0), DT_F16);
    check_elements(h, &d);
    hf_close(h);
}

static int get_from_hf(void *ctx, const char *name, const struct region *box, enum dtype as, void *dst, struct err *e)
{
    return hf_read(ctx, hf_find(ctx, name), box, as, dst, e);
}

static int two_files(void *ctx, const char *name, char **text, size_t *n, struct err *e)
{
    (void)ctx, (void)e;
    bool has = str_starts(name, "tokenizer");
    *text = has ? xstrdup("{}") : NULL;
    *n = has ? 2 : 0;
    return OK;
}

/* Out and in again: the same tensors in their form, byte for byte, and the same config. */
static void round_trip(void **state)
{
    (void)state;
    static const char *const names[] = {FIXTURES "gpt2", FIXTURES "llama", FIXTURES "llama-tied"};
    static const enum dtype types[] = {DT_F32, DT_BF16, DT_F16};
    static const int64_t limits[] = {0, 700};
    for (size_t k = 0; k < 6; k++) {
        struct err e;
        struct hf *h, *again;
        struct safetensors *a, *b;
        char *dir = scratch_new(), *out = fs_join(dir, "out"), *copy = fs_join(out, "tokenizer_config.json");
        char *absent = fs_join(out, "merges.txt");
        assert_ok(hf_open(&h, names[k / 2], NULL, &e));
        struct hf_export x = {.model = hf_model_get(h),
                              .dtype = types[k / 2],
                              .get = get_from_hf,
                              .ctx = h,
                              .file = two_files,
                              .shard_bytes = limits[k % 2]};
        assert_ok(hf_export(out, &x, &e));
        assert_ok(hf_open(&again, out, NULL, &e));
        assert_true(hf_same(hf_model_get(h), hf_model_get(again)));
        assert_ok(safetensors_open(&a, names[k / 2], &e));
        assert_ok(safetensors_open(&b, out, &e));
        assert_int_equal(safetensors_count(a), safetensors_count(b));
        assert_true((safetensors_n_files(b) > 1) == (k % 2));
        for (int64_t i = 0; i < safetensors_count(a); i++) {
            const struct safetensors_entry *t = safetensors_at(a, i), *u = safetensors_at(b, i);
            assert_string_equal(t->name, u->name);
            assert_int_equal(t->dtype, u->dtype);
            assert_true(shape_equal(&t->shape, &u->shape));
            unsigned char *x1 = xmalloc(t->bytes + 1), *x2 = xmalloc(u->bytes + 1);
            assert_ok(safetensors_read(a, t, 0, t->bytes, x1, &e));
            assert_ok(safetensors_read(b, u, 0, u->bytes, x2, &e));
            assert_int_equal(t->bytes, u->bytes);
            assert_memory_equal(x1, x2, t->bytes);
            xfree(x1);
            xfree(x2);
        }
        assert_true(fs_size(copy) == 2 && !fs_exists(absent));
        assert_err(ERR_REQUEST, "not empty", hf_export(out, &x, &e));
        safetensors_close(a);
        safetensors_close(b);
        hf_close(again);
        hf_close(h);
        xfree(copy);
        xfree(absent);
        xfree(out);
        scratch_free(dir);
    }
}

/* Big enough for several bands of rows: the ffn's and the embedding's 11 MB do not fit in one. */
static int counted(void *ctx, const char *name, const struct region *box, enum dtype as, void *dst, struct err *e)
{
    (void)ctx;
    (void)e;
    assert_int_equal(as, DT_F32);
    float *out = dst;
    int64_t k = 0;
    for (int64_t i = box->lo[0]; i < box->hi[0]; i++)
        for (int64_t j = box->nd > 1 ? box->lo[1] : 0; j < (box->nd > 1 ? box->hi[1] : 1); j++)
            out[k++] = (float)((i * 31 + j * 7 + (int64_t)strlen(name)) % 1000);
    return OK;
}

static void bands_of_rows(void **state)
{
    (void)state;
    struct err e;
    struct hf *h;
    char *dir = scratch_new(), *out = fs_join(dir, "out/");
    struct hf_model m = hf_model_default(HF_GPT2);
    struct model_config *c = &m.model;
    c->layers = 1, c->hidden = 96, c->heads = c->kv_heads = 3, c->head_dim = 32;
    c->ffn = 30011, c->vocab = 25013, c->max_positions = 7;
    struct hf_export x = {.model = &m, .dtype = DT_F32, .get = counted};
    assert_ok(hf_export(out, &x, &e));
    assert_ok(hf_open(&h, out, NULL, &e));
    for (int64_t k = 0; k < hf_n_params(&m); k++) {
        struct hf_param p = hf_param_at(&m, k);
        struct region whole = region_whole(&p.shape);
        size_t bytes = (size_t)region_volume(&whole) * 4;
        float *wanted = xmalloc(bytes), *got = xmalloc(bytes);
        assert_ok(counted(NULL, p.name, &whole, DT_F32, wanted, &e));
        assert_ok(hf_read(h, k, &whole, DT_F32, got, &e));
        assert_memory_equal(got, wanted, bytes);
        xfree(wanted);
        xfree(got);
    }
    hf_close(h);
    xfree(out);
    scratch_free(dir);
}

/* part: what the refusal must say; NULL: it must be accepted. */
static void config_is(const char *text, const char *part)
{
    struct err e = {0};
    struct json *v;
    struct hf_model m;
    assert_ok(json_parse(&v, text, strlen(text), "config.json", &e));
    int rc = hf_config_parse(&m, v, NULL, "config.json", &e);
    if (!part != (rc == OK) || (part && !strstr(e.text, part))) fail_msg("%s: code %d, '%s'", text, rc, e.text);
    json_free(v);
}

#define LLAMA                                                                                                          \
    "{\"model_type\":\"llama\",\"vocab_size\":8,\"hidden_size\":8,\"num_hidden_layers\":1,"                            \
    "\"num_attention_heads\":2,\"intermediate_size\":8,\"max_position_embeddings\":8"
#define PHI3                                                                                                           \
    "{\"model_type\":\"phi3\",\"vocab_size\":8,\"hidden_size\":8,\"num_hidden_layers\":1,"                             \
    "\"num_attention_heads\":2,\"intermediate_size\":8,\"max_position_embeddings\":8"
#define LONG_BY(few, many)                                                                                             \
    ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":" few ",\"long_factor\":" many "}}"
#define GPT2 "{\"model_type\":\"gpt2\",\"vocab_size\":8,\"n_embd\":8,\"n_layer\":1,\"n_head\":2,\"n_positions\":8"

static void what_is_not_computed_is_refused(void **state)
{
    (void)state;
    config_is(LLAMA "}", NULL);
    config_is(LLAMA LONG_BY("[1,2]", "[1.5,2]"), NULL);
    config_is(PHI3 ",\"partial_rotary_factor\":0.5" LONG_BY("[1]", "[2]"), NULL);
    config_is(PHI3 ",\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,1],\"long_factor\":[1,1]}}", NULL);
    config_is(GPT2 "}", NULL);
    config_is(LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5000.0}}", NULL);
    config_is(LLAMA ",\"attention_bias\":true,\"mlp_bias\":true,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}",
              NULL);
    config_is(LLAMA ",\"attention_bias\":false,\"sliding_window\":null,\"rope_scaling\":null,\"head_dim\":null}", NULL);
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"{\"model_type\":\"roberta\",\"vocab_size\":8}", "model_type: roberta"},
        {"{\"vocab_size\":8}", "model_type"},
        {LLAMA ",\"sliding_window\":4096}", "sliding_window"},
        {LLAMA ",\"hidden_act\":\"gelu\"}", "hidden_act"},
        {LLAMA ",\"quantization_config\":{}}", "quantization_config"},
        {LLAMA ",\"partial_rotary_factor\":0.5}", "partial_rotary_factor"},
        {LLAMA ",\"num_key_value_heads\":3}", "num_key_value_heads"},
        {LLAMA ",\"head_dim\":3}", "head_dim"},
        {LLAMA ",\"rms_norm_eps\":-1}", "rms_norm_eps"},
        {LLAMA ",\"rope_scaling\":{\"type\":\"yarn\"}}", "yarn wants a factor"},
        {LLAMA ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":0.5}}", "factor: wanted a number from 1"},
        {LLAMA ",\"rope_parameters\":{\"rope_type\":\"longrope\",\"factor\":4.0}}", "short_factor: wanted a list"},
        {LLAMA ",\"rope_parameters\":{\"rope_type\":\"su\",\"factor\":4.0}}", "rope_parameters: type su"},
        {LLAMA LONG_BY("[1,2,3]", "[1,2]"), "rope_scaling.short_factor: 3 numbers; the 4 columns"},
        {LLAMA LONG_BY("[1,2]", "[1]"), "rope_scaling.long_factor: 1 numbers"},
        {LLAMA LONG_BY("[1,0]", "[1,2]"), "short_factor: wanted a number from 1e-06"},
        {LLAMA LONG_BY("[1,2]", "2"), "long_factor: wanted a list of 1 to 128 numbers"},
        {PHI3 ",\"original_max_position_embeddings\":1" LONG_BY("[1,2]", "[1,2]"), "original_max_position_embeddings"},
        {PHI3 ",\"partial_rotary_factor\":0.5" LONG_BY("[1,2]", "[1,2]"),
         "the 2 columns of a head that turn are 1 pairs"},
        {PHI3 ",\"partial_rotary_factor\":0.75}", "of a head 3 columns turn"},
        {PHI3 ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}", "only default and longrope are"},
        {LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":4.0}}", "original_max_position_embeddings"},
        {GPT2 ",\"activation_function\":\"relu\"}", "activation_function"},
        {GPT2 ",\"activation_function\":\"gelu\"}", "activation_function"},
        {GPT2 ",\"scale_attn_weights\":false}", "scale_attn_weights"},
        {GPT2 ",\"scale_attn_by_inverse_layer_idx\":true}", "scale_attn_by_inverse_layer_idx"},
        {GPT2 ",\"add_cross_attention\":true}", "add_cross_attention"},
        {"{\"model_type\":\"gpt2\",\"vocab_size\":8,\"n_embd\":9,\"n_layer\":1,\"n_head\":2,\"n_positions\":8}",
         "n_embd"},
        {"{\"model_type\":\"gpt2\",\"vocab_size\":0,\"n_embd\":8,\"n_layer\":1,\"n_head\":2,\"n_positions\":8}",
         "vocab_size"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) config_is(rows[i].text, rows[i].part);
}

static void put(const char *dir, const char *name, const char *text)
{
    struct err e;
    char *path = fs_join(dir, name);
    assert_ok(fs_write_atomic(path, text, strlen(text), &e));
    xfree(path);
}

static int empty_source(void *ctx, int64_t i, int64_t row, int64_t n, void *dst, struct err *e)
{
    (void)row, (void)e;
    const struct safetensors_spec *t = (struct safetensors_spec *)ctx + i;
    memset(dst, 0, (size_t)(n * (shape_numel(&t->shape) / t->shape.n[0])) * dtype_bytes(t->dtype));
    return OK;
}

/* Config and weights that do not belong together. */
static void disagreement_is_refused(void **state)
{
    (void)state;
    struct err e;
    struct hf *h;
    char *dir = scratch_new();
    put(dir, "config.json", LLAMA "}");
    assert_err(ERR_REQUEST, "neither model.safetensors", hf_open(&h, dir, NULL, &e));
    struct safetensors_spec wrong[] = {{"model.embed_tokens.weight", DT_F32, {2, {9, 8}}}};
    assert_ok(safetensors_write_set(dir, "model", wrong, 1, 1 << 20, empty_source, wrong, &e));
    assert_err(ERR_REQUEST, "model.embed_tokens.weight is [9, 8], config.json makes it [8, 8]",
               hf_open(&h, dir, NULL, &e));
    assert_err(ERR_REQUEST, "layers.0.input_layernorm.weight is missing", hf_open(&h, dir, NULL, &e));
    struct safetensors_spec more[] = {{"model.embed_tokens.weight", DT_I32, {2, {8, 8}}},
                                      {"model.layers.0.self_attn.q_proj.bias", DT_F32, {1, {8}}}};
    assert_ok(safetensors_write_set(dir, "model", more, 2, 1 << 20, empty_source, more, &e));
    assert_err(ERR_REQUEST, "has type I32", hf_open(&h, dir, NULL, &e));
    scratch_free(dir);
}

/* The biases that a Qwen-like file would bring: everything else fits, and still it is refused. */
static void leftovers_are_refused(void **state)
{
    (void)state;
    struct err e;
    struct hf *h;
    char *dir = scratch_new();
    put(dir, "config.json", LLAMA ",\"tie_word_embeddings\":true}");
    struct hf_model m;
    assert_ok(hf_config_read(&m, dir, NULL, &e));
    struct safetensors_spec specs[32];
    char names[32][128];
    int64_t n = hf_n_params(&m);
    for (int64_t i = 0; i < n; i++) {
        struct hf_param p = hf_param_at(&m, i);
        snprintf(names[i], sizeof names[i], "%s", p.theirs); /* without the prefix: a bare model's files */
        specs[i] = (struct safetensors_spec){names[i], DT_F32, p.their_shape};
    }
    specs[n] = (struct safetensors_spec){"layers.0.self_attn.rotary_emb.inv_freq", DT_F32, {1, {2}}};
    specs[n + 1] = (struct safetensors_spec){"lm_head.weight", DT_F32, {2, {8, 8}}};
    assert_ok(safetensors_write_set(dir, "model", specs, n + 2, 1 << 20, empty_source, specs, &e));
    assert_ok(hf_open(&h, dir, NULL, &e));
    hf_close(h);
    specs[n + 2] = (struct safetensors_spec){"layers.0.self_attn.q_proj.bias", DT_F32, {1, {8}}};
    assert_ok(safetensors_write_set(dir, "model", specs, n + 3, 1 << 20, empty_source, specs, &e));
    assert_err(ERR_REQUEST, "layers.0.self_attn.q_proj.bias has no place in this model", hf_open(&h, dir, NULL, &e));
    scratch_free(dir);
}

/* ---- tensors that should be another one once more ---- */
/* Element i of a tensor; ctx names those that have other values than the first of the file, "lm_head.weight". */
struct copies {
    const struct safetensors_spec *specs;
    const char *others;
};
static int copy_source(void *ctx, int64_t i, int64_t row, int64_t n, void *dst, struct err *e)
{
    const struct copies *x = ctx;
    const struct safetensors_spec *t = &x->specs[i];
    int64_t each = shape_numel(&t->shape) / t->shape.n[0];
    (void)e;
    for (int64_t k = 0; k < n * each; k++) {
        float v = (float)(row * each + k + 1);
        if (x->others && strstr(x->others, t->name) && row * each + k == 17) v = -v;
        if (t->dtype == DT_F32) ((float *)dst)[k] = v;
        else ((bf16 *)dst)[k] = bf16_from_f32(v);
    }
    return OK;
}

/* A model of that config in dir, with more tensors beside its own; head and table are of other values than the rest. */
static void put_model(const char *dir, const char *config, const struct safetensors_spec *more, int n_more,
                      const char *others)
{
    struct err e;
    struct hf_model m;
    struct safetensors_spec specs[64];
    char names[64][128];
    put(dir, "config.json", config);
    assert_ok(hf_config_read(&m, dir, NULL, &e));
    int64_t n = 0;
    for (int64_t i = 0; i < hf_n_params(&m) && n + n_more < 64; i++) {
        struct hf_param p = hf_param_at(&m, i);
        snprintf(names[n], sizeof names[n], "%s%s", p.prefixed ? hf_prefix(m.family) : "", p.theirs);
        if (n && !strcmp(names[n], names[n - 1])) continue; /* parts of one tensor are neighbours */
        specs[n] = (struct safetensors_spec){names[n], DT_F32, p.file_shape};
        n++;
    }
    for (int i = 0; i < n_more; i++) specs[n + i] = more[i];
    struct copies x = {specs, others};
    assert_ok(safetensors_write_set(dir, "model", specs, n + n_more, 1 << 20, copy_source, &x, &e));
}

#define T5                                                                                                             \
    "{\"model_type\":\"t5\",\"vocab_size\":8,\"d_model\":8,\"num_layers\":1,\"num_heads\":2,\"d_kv\":4,\"d_ff\":8"
static const struct safetensors_spec head = {"lm_head.weight", DT_F32, {2, {8, 8}}},
                                     half_head = {"lm_head.weight", DT_BF16, {2, {8, 8}}};

/* The output matrix is what the files hold, and whether what goes into it is divided is said by a key of its own, or
 * where that is absent by tie_word_embeddings: all that transformers 4 and 5 write. */
static void the_output_matrix_is_that_of_the_files(void **state)
{
    (void)state;
    static const struct {
        const char *says, *others;
        const struct safetensors_spec *head;
        bool tied, scaled;
    } rows[] = {
        {T5 "}", NULL, NULL, true, true},
        {T5 "}", NULL, &head, true, true},
        {T5 "}", NULL, &half_head, true, true},
        {T5 "}", "lm_head.weight", &head, false, true},
        {T5 ",\"tie_word_embeddings\":null}", NULL, NULL, true, true},
        {T5 ",\"tie_word_embeddings\":true,\"scale_decoder_outputs\":true}", NULL, NULL, true, true},
        {T5 ",\"tie_word_embeddings\":true,\"scale_decoder_outputs\":false}", NULL, NULL, true, false},
        {T5 ",\"tie_word_embeddings\":true,\"scale_decoder_outputs\":false}", "lm_head.weight", &head, false, false},
        {T5 ",\"tie_word_embeddings\":true,\"scale_decoder_outputs\":true}", "lm_head.weight", &head, false, true},
        {T5 ",\"tie_word_embeddings\":false}", NULL, NULL, false, false}, /* its own, since the config makes it one */
        {LLAMA ",\"tie_word_embeddings\":true}", NULL, &head, true, false},
        {LLAMA ",\"tie_word_embeddings\":true}", "lm_head.weight", &head, false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        struct hf *h, *again;
        char *dir = scratch_new(), *out = fs_join(dir, "out");
        put_model(dir, rows[i].says, rows[i].head, rows[i].head != NULL, rows[i].others);
        if (hf_open(&h, dir, NULL, &e)) fail_msg("row %zu: %s", i, e.text);
        const struct hf_model *m = hf_model_get(h);
        if (m->model.tie_embeddings != rows[i].tied || model_scales_head(&m->model) != rows[i].scaled)
            fail_msg("row %zu: tied %d, scaled %d", i, m->model.tie_embeddings, model_scales_head(&m->model));
        assert_true((hf_find(h, "head.weight") < 0) == rows[i].tied);
        struct hf_export x = {.model = m, .dtype = DT_F32, .get = get_from_hf, .ctx = h};
        assert_ok(hf_export(out, &x, &e)); /* and so it is written again */
        assert_ok(hf_open(&again, out, NULL, &e));
        assert_true(hf_same(m, hf_model_get(again)));
        hf_close(again);
        hf_close(h);
        xfree(out);
        scratch_free(dir);
    }
}

/* Of two that their releases choose from, none is chosen in silence. */
static void copies_are_compared(void **state)
{
    (void)state;
    struct err e = {0};
    struct hf *h;
    static const struct safetensors_spec tables[] = {{"encoder.embed_tokens.weight", DT_F32, {2, {8, 8}}},
                                                     {"decoder.embed_tokens.weight", DT_BF16, {2, {8, 8}}}},
                                         short_one = {"encoder.embed_tokens.weight", DT_F32, {2, {7, 8}}};
    char *dir = scratch_new();
    put_model(dir, T5 "}", tables, 2, NULL);
    assert_ok(hf_open(&h, dir, NULL, &e));
    hf_close(h);
    for (int i = 0; i < 2; i++) {
        put_model(dir, T5 "}", tables, 2, tables[i].name);
        assert_err(ERR_REQUEST, tables[i].name, hf_open(&h, dir, NULL, &e));
        assert_non_null(strstr(e.text, "is not shared.weight once more"));
    }
    const struct safetensors_spec stray = {"visual.lm_head.weight", DT_F32, {2, {8, 8}}};
    put_model(dir, LLAMA ",\"tie_word_embeddings\":true}", &stray, 1, NULL);
    assert_err(ERR_REQUEST, "visual.lm_head.weight has no place in this model", hf_open(&h, dir, NULL, &e));
    put_model(dir, T5 "}", &short_one, 1, NULL);
    assert_err(ERR_REQUEST, "encoder.embed_tokens.weight is not shared.weight", hf_open(&h, dir, NULL, &e));
    scratch_free(dir);
}

/* Ends of texts that generation_config.json names count too; how it draws tokens is only said. */
static void generation_is_read_and_said(void **state)
{
    (void)state;
    static const struct {
        const char *config, *generation, *says; /* says: of a refusal */
        int n;
        int64_t eos[4];
    } rows[] = {
        {LLAMA ",\"eos_token_id\":2}", "{\"eos_token_id\":[2,5,7]}", NULL, 3, {2, 5, 7}},
        {LLAMA ",\"eos_token_id\":[3,2]}", "{\"eos_token_id\":5}", NULL, 3, {3, 2, 5}},
        {LLAMA "}", "{\"eos_token_id\":[6,-1]}", NULL, 1, {6}},
        {LLAMA ",\"eos_token_id\":2}", "{\"eos_token_id\":null}", NULL, 1, {2}},
        {LLAMA ",\"eos_token_id\":2}", NULL, NULL, 1, {2}},
        {LLAMA ",\"eos_token_id\":2}",
         "{\"eos_token_id\":\"</s>\"}",
         "eos_token_id: wanted the number of a token",
         0,
         {0}},
        {LLAMA ",\"eos_token_id\":[0,1,2,3,4]}", "{\"eos_token_id\":[5,6,7,1000,1001]}", "more than 8", 0, {0}},
        {LLAMA "}", "{\"eos_token_id\":[6", "generation_config.json", 0, {0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        struct hf *h;
        char *dir = scratch_new();
        put_model(dir, rows[i].config, NULL, 0, NULL);
        if (rows[i].generation) put(dir, "generation_config.json", rows[i].generation);
        int rc = hf_open(&h, dir, NULL, &e);
        if (rows[i].says ? !rc || !strstr(e.text, rows[i].says) : rc) fail_msg("row %zu: %d %s", i, rc, e.text);
        if (!rc) {
            const struct hf_model *m = hf_model_get(h);
            assert_int_equal(m->n_eos, rows[i].n);
            assert_memory_equal(m->eos, rows[i].eos, (size_t)m->n_eos * sizeof *m->eos);
            hf_close(h);
        }
        scratch_free(dir);
    }
    static const struct {
        const char *text, *said;
    } wishes[] = {
        {"{\"bos_token_id\":1,\"eos_token_id\":2,\"max_new_tokens\":2048,\"transformers_version\":\"5.0\"}", ""},
        {"{\"do_sample\":true,\"temperature\":0.6,\"top_p\":0.9,\"top_k\":0}",
         "do_sample true, temperature 0.6, top_p 0.9"},
        {"{\"temperature\":0.6,\"top_p\":0.9,\"repetition_penalty\":1.05}", "repetition_penalty 1.05"},
        {"{\"num_beams\":1,\"length_penalty\":1.0,\"suppress_tokens\":[],\"forced_eos_token_id\":null}", ""},
        {"{\"num_beams\":4,\"suppress_tokens\":[1,2],\"a_new_one\":3}",
         "num_beams 4, suppress_tokens a list of 2, a_new_one 3 (a key that tutti does not know)"},
    };
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        struct err e = {0};
        struct str s = {0};
        assert_ok(hf_generation_unfollowed(wishes[i].text, strlen(wishes[i].text), "g", &s, &e));
        assert_string_equal(str_text(&s), wishes[i].said);
        str_free(&s);
    }
}

/* What tokenizer_config.json says otherwise than tokenizer.json is said; the same, and what no id hangs on, is not. */
static void tokenizers_that_say_otherwise_are_told(void **state)
{
    (void)state;
    static const char tokens[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"<pad>\":1}},\"added_tokens\":[{\"id\":2,\"content\":\"<end>"
        "\"}],"
        "\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":true},\"pre_tokenizer\":{\"type\":\"Sequence\","
        "\"pretokenizers\":[{\"type\":\"Split\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]}}";
    static const struct {
        const char *config, *said;
    } rows[] = {
        {"{\"eos_token\":\"<end>\",\"model_max_length\":1000000000000000019884624838656,\"legacy\":false}", ""},
        {"{\"add_prefix_space\":false,\"do_lower_case\":true,\"strip_accents\":null}", ""},
        {"{\"add_prefix_space\":true}", "add_prefix_space true"},
        {"{\"do_lower_case\":false,\"split_special_tokens\":true}", "do_lower_case false, split_special_tokens true"},
        {"{\"tokenize_chinese_chars\":true}", ""}, /* there is no such step to turn on or off */
        {"{\"added_tokens_decoder\":{\"2\":{\"content\":\"<end>\"}},\"additional_special_tokens\":[\"<pad>\"]}", ""},
        {"{\"added_tokens_decoder\":{\"7\":{\"content\":\"<new>\"}}}",
         "added_tokens_decoder has a token that tokenizer.json has not: <new>"},
        {"{\"additional_special_tokens\":[{\"content\":\"<end>\"},\"<x>\"]}",
         "additional_special_tokens has a token that tokenizer.json has not: <x>"},
        {"{\"a_new_key\":[1],\"another\":null,\"a_third\":false}",
         "a_new_key a list of 1 (a key that tutti does not know)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        struct str s = {0};
        assert_ok(hf_tokenizer_unfollowed(rows[i].config, strlen(rows[i].config), tokens, strlen(tokens), &s, &e));
        assert_string_equal(str_text(&s), rows[i].said);
        str_free(&s);
    }
}

/* Their classes have a default beyond small vocabularies and then make no model: a file says which, or null. */
static void padding_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *config, *says;
    } rows[] = {
        {LLAMA "}", "\"pad_token_id\": null"},
        {LLAMA ",\"pad_token_id\":3}", "\"pad_token_id\": 3"},
        {LLAMA ",\"pad_token_id\":null}", "\"pad_token_id\": null"},
        {LLAMA ",\"pad_token_id\":8}", "\"pad_token_id\": null"}, /* of 8 tokens */
        {LLAMA ",\"pad_token_id\":-1}", "\"pad_token_id\": null"},
        {PHI3 "}", "\"pad_token_id\": null"},
        {PHI3 ",\"pad_token_id\":7}", "\"pad_token_id\": 7"},
        {GPT2 ",\"pad_token_id\":1}", "\"pad_token_id\": 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        struct hf *h;
        char *dir = scratch_new(), *out = fs_join(dir, "out"), *config = fs_join(out, "config.json"), *text;
        size_t n;
        put_model(dir, rows[i].config, NULL, 0, NULL);
        assert_ok(hf_open(&h, dir, NULL, &e));
        struct hf_export x = {.model = hf_model_get(h), .dtype = DT_F32, .get = get_from_hf, .ctx = h};
        assert_ok(hf_export(out, &x, &e));
        assert_ok(fs_read_all(config, 1 << 20, &text, &n, &e));
        if (!strstr(text, rows[i].says)) fail_msg("row %zu: no %s in %s", i, rows[i].says, text);
        xfree(text);
        hf_close(h);
        xfree(config);
        xfree(out);
        scratch_free(dir);
    }
}

/* An index may name an output matrix that its files leave out, where it is the embedding. */
static void an_index_may_name_a_shared_head(void **state)
{
    (void)state;
    struct err e = {0};
    struct hf *h;
    char *dir = scratch_new(), *from = fs_join(dir, "model.safetensors"), *to = fs_join(dir, "a.safetensors");
    put_model(dir, LLAMA ",\"tie_word_embeddings\":true}", NULL, 0, NULL);
    assert_ok(fs_rename(from, to, &e));
    put(dir, "model.safetensors.index.json",
        "{\"weight_map\":{\"lm_head.weight\":\"a.safetensors\",\"model.norm.weight\":\"a.safetensors\"}}");
    assert_ok(hf_open(&h, dir, NULL, &e));
    hf_close(h);
    put(dir, "config.json", LLAMA ",\"tie_word_embeddings\":false}");
    assert_err(ERR_REQUEST, "lm_head.weight is missing, though the index names it in a.safetensors",
               hf_open(&h, dir, NULL, &e));
    xfree(from);
    xfree(to);
    scratch_free(dir);
}

/* One view over both forms. */
static void weights_of_both_kinds(void **state)
{
    (void)state;
    struct err e;
    struct weights *w;
    struct hf_model m;
    char *dir = scratch_new();
    assert_err(ERR_REQUEST, "no such checkpoint", weights_open(&w, "/nowhere", &e));
    assert_ok(weights_open(&w, FIXTURES "llama", &e));
    assert_null(weights_ckpt(w));
    char *text;
    size_t n;
    assert_ok(weights_file(w, "tokenizer.json", &text, &n, &e));
    assert_null(text);
    assert_ok(weights_model(w, &m, &e));
    int64_t i = weights_find(w, "param", "layers.1.attn.k.weight");
    struct ckpt_entry entry = weights_at(w, i);
    assert_string_equal(entry.name, "layers.1.attn.k.weight");
    struct region all = region_whole(&entry.shape);
    float x[4 * 12];
    assert_ok(weights_read(w, i, &all, DT_F32, x, &e));

    struct str extra = {0};
    struct json_out o = {.s = &extra};
    json_begin_object(&o, NULL);
    hf_config_put(&o, "model", &m, DT_BF16);
    json_end_object(&o);
    const struct ckpt_attachment tokenizer = {.name = "tokenizer.json", .p = "{}", .bytes = 2};
    struct ckpt_info info = {.step = 1, .extra = extra.p, .attachments = &tokenizer, .n_attachments = 1};
    struct ckpt_tensor t =
        {.group = "param", .name = "layers.1.attn.k.weight", .dtype = DT_F32, .shape = entry.shape, .box = all, .p = x};
    assert_ok(ckpt_save(dir, &info, &t, 1, &e));
    weights_close(w);
    str_free(&extra);

    struct hf_model again;
    assert_ok(weights_open(&w, dir, &e));
    assert_ok(weights_model(w, &again, &e));
    assert_true(hf_same(&m, &again));
    assert_ok(weights_file(w, "tokenizer.json", &text, &n, &e));
    assert_string_equal(text, "{}");
    float y[4 * 12];
    assert_ok(weights_read(w, weights_find(w, "param", t.name), &all, DT_F32, y, &e));
    assert_memory_equal(x, y, sizeof x);
    xfree(text);
    weights_close(w);
    scratch_free(dir);
}

/* Adapters of a kind that this program does not know are not taken for one that it does. */
static void adapters_of_another_kind(void **state)
{
    (void)state;
    const struct {
        const char *extra;
        int code;
    } cases[] = {{"{}", OK},
                 {"{\"adapter\": {\"kind\": \"lora\", \"times\": 2}}", OK},
                 {"{\"adapter\": {\"kind\": \"dora\", \"times\": 2}}", OK},
                 {"{\"adapter\": {\"kind\": \"vera\", \"times\": 2}}", ERR_REQUEST},
                 {"{\"adapter\": {\"times\": 2}}", ERR_REQUEST}};
    struct err e;
    float x = 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *dir = scratch_new();
        struct weights *w;
        struct ckpt_info info = {.step = 1, .extra = cases[i].extra};
        struct ckpt_tensor t = {.group = "param", .name = "a.weight", .dtype = DT_F32, .shape = SHAPE_OF(1), .p = &x};
        t.box = region_whole(&t.shape);
        assert_ok(ckpt_save(dir, &info, &t, 1, &e));
        assert_ok(weights_open(&w, dir, &e));
        assert_int_equal(weights_merge(w, &e), cases[i].code);
        if (cases[i].code) assert_non_null(strstr(e.text, "adapters of kind"));
        weights_close(w);
        scratch_free(dir);
    }
}

int main(void)
{
    setenv("LOG", "error", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_is_read),
        cmocka_unit_test(llama_is_read),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(bands_of_rows),
        cmocka_unit_test(what_is_not_computed_is_refused),
        cmocka_unit_test(disagreement_is_refused),
        cmocka_unit_test(leftovers_are_refused),
        cmocka_unit_test(the_output_matrix_is_that_of_the_files),
        cmocka_unit_test(copies_are_compared),
        cmocka_unit_test(generation_is_read_and_said),
        cmocka_unit_test(padding_is_said),
        cmocka_unit_test(tokenizers_that_say_otherwise_are_told),
        cmocka_unit_test(an_index_may_name_a_shared_head),
        cmocka_unit_test(weights_of_both_kinds),
        cmocka_unit_test(adapters_of_another_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
