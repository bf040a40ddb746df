/* SPDX-License-Identifier: Apache-2.0 */
/* Families of decoders against the transformers library (tests/golden/make_families.py): their directories are read,
 * ten steps of training, the last logits and a greedy text are the library's; written again, they hold the same
 * numbers, and so does a model of the family llama that says the family's numbers itself. */
#include "toy.h"

#include "base/fs.h"
#include "base/json.h"
#include "config/start_weights.h"
#include "decode/generate.h"
#include "hf_again.h"
#include "sanitized.h"
#include "scratch.h"

static const char *const models[] = {"llama_bias",    "llama_dynamic", "llama_yarn", "mistral",    "qwen2",
                                     "qwen3",         "qwen3_moe",     "smollm3",    "olmo2",      "phi3",
                                     "phi3_long",     "phi3_short",    "gemma2",     "gemma3",     "gpt_oss",
                                     "gpt_oss_mxfp4", "mamba2",        "mamba2_one", "nemotron_h", "nemotron_h_one"};
enum { N_MODELS = sizeof models / sizeof *models, B = 2, S = 19, T = B * S, PROMPT = 7 };

struct golden_case {
    const char *name;
    struct json *root;
    int32_t tokens[T], targets[T], positions[T];
    struct weights *w;
    struct hf_model h;
};

static void read_ints(const struct json *root, const char *key, int32_t *out)
{
    const struct json *list = json_get(root, key);
    assert_int_equal(json_size(list), T);
    for (int i = 0; i < T; i++) out[i] = (int32_t)json_int(json_at(list, (size_t)i), -9);
}

static void open_case(struct golden_case *c, const char *name)
{
    struct err e = {0};
    char path[512];
    memset(c, 0, sizeof *c);
    c->name = name;
    snprintf(path, sizeof path, "%s/golden/families/%s.json", TEST_DIR, name);
    if (json_parse_file(&c->root, path, 1 << 20, &e)) fail_msg("%s", e.text);
    read_ints(c->root, "tokens", c->tokens);
    read_ints(c->root, "targets", c->targets);
    for (int i = 0; i < T; i++) c->positions[i] = i % S;
    snprintf(path, sizeof path, "%s/golden/families/%s", TEST_DIR, name);
    if (weights_open(&c->w, path, &e)) fail_msg("%s", e.text);
    if (weights_model(c->w, &c->h, &e)) fail_msg("%s", e.text);
}

static void close_case(struct golden_case *c)
{
    weights_close(c->w);
    json_free(c->root);
}

static void near(const struct golden_case *c, double got, double want, double bound, const char *what, int step)
{
    if (!(fabs(got - want) <= bound * fabs(want)))
        fail_msg("%s: %s of step %d: %.9g, wanted %.9g", c->name, what, step, got, want);
}

static struct engine *engine_of(const struct golden_case *c, struct device *d, const char *kernels)
{
    struct engine *g;
    struct err e = {0};
    struct engine_config x =
        {.model = c->h.model,
         .dtype = DT_F32,
         .micro = 1,
         .seq = S,
         .n_microbatches = 2,
         .training = true,
         .optim = {.kind = OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1, .clip = 1},
         .kernels = kernels,
         .threads = 1};
    x.optim.eps = json_real(json_get(json_get(c->root, "optimizer"), "eps"), NAN);
    x.model.seq_len = S;
    x.model.moe.aux = 0;
    if (x.model.max_positions < S || model_scans(&x.model)) x.model.max_positions = S;
    if (engine_new(&g, &x, d, &e)) fail_msg("%s", e.text);
    for (int s = 0; s < g->n_stages; s++) program_check(g->stage[s].train);
    if (source_load(&g->store, &g->kernels, g->stream, c->w, &e)) fail_msg("%s", e.text);
    return g;
}

static void ten_steps(const char *name, const char *kernels)
{
    struct golden_case c;
    struct device *d;
    struct engine_report r;
    struct err e = {0};
    open_case(&c, name);
    assert_int_equal(device_cpu_new(&d, 1, &e), OK);
    struct engine *g = engine_of(&c, d, kernels);
    struct engine_batch b = {.tokens = c.tokens, .targets = c.targets, .positions = c.positions, .n = B};
    b.n_trained = json_int(json_get(c.root, "trained"), -1);
    for (int s = 0; s < 10; s++) {
        assert_true(engine_step(g, &b, s, 1e-3, &r));
        near(&c, r.loss, json_real(json_at(json_get(c.root, "losses"), (size_t)s), NAN), 1e-6, "loss", s);
        near(&c, r.grad_norm, json_real(json_at(json_get(c.root, "grad_norms"), (size_t)s), NAN), 2e-5, "norm", s);
    }
    engine_evaluate(g, &b, &r);
    near(&c, r.loss, json_real(json_at(json_get(c.root, "losses"), 10), NAN), 1e-6, "loss", 10);
    engine_free(g);
    device_free(d);
    close_case(&c);
}

static void test_ten_steps(void **state)
{
    (void)state;
    for (int k = 0; k<2 * N_MODELS; k += CASE_STRIDE> 1 ? 3 : 1) ten_steps(models[k / 2], k % 2 ? "auto" : "ref");
}

static int32_t largest(const float *v, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) best = v[i] > v[best] ? i : best;
    return (int32_t)best;
}

/* A prompt at once, and token by token through the caches; the last logits of a whole sequence in two pieces. */
static void test_decoding(void **state)
{
    (void)state;
    for (int k = 0; k < N_MODELS; k++) {
        struct golden_case c;
        struct generator *g;
        struct device *d;
        struct err e = {0};
        const float *got;
        open_case(&c, models[k]);
        const struct json *text = json_get(c.root, "greedy"), *last = json_get(c.root, "last_logits");
        int64_t vocab = c.h.model.vocab;
        assert_int_equal(device_cpu_new(&d, 1, &e), OK);
        if (generator_new(&g, c.w, d, 1, 0, DT_F32, &e)) fail_msg("%s", e.text);
        if (generator_feed(g, c.tokens, PROMPT, &got, &e)) fail_msg("%s", e.text);
        for (size_t i = 0; i < json_size(text); i++) {
            int32_t id = largest(got, vocab);
            if (id != json_int(json_at(text, i), -1))
                fail_msg("%s: token %zu is %d, wanted %lld", c.name, i, id, (long long)json_int(json_at(text, i), -1));
            if (generator_feed(g, &id, 1, &got, &e)) fail_msg("%s", e.text);
        }
        if (json_size(text)) {
            double worst = 0, most = 0;
            generator_reset(g);
            if (generator_feed(g, c.tokens, 11, &got, &e)) fail_msg("%s", e.text);
            if (generator_feed(g, c.tokens + 11, S - 11, &got, &e)) fail_msg("%s", e.text);
            for (int64_t v = 0; v < vocab; v++) {
                double want = json_real(json_at(last, (size_t)v), NAN);
                worst = fmax(worst, fabs((double)got[v] - want));
                most = fmax(most, fabs(want));
            }
            if (!(worst < 1e-5 * most)) fail_msg("%s: logits are off by %g of %g", c.name, worst, most);
        }
        generator_free(g);
        device_free(d);
        close_case(&c);
    }
}

static void same_numbers(const struct model_config *a, const struct model_config *b, const char *what)
{
    for (const struct number *n = model_numbers; n->row.path; n++) {
        const char *x = (const char *)a + n->row.offset, *y = (const char *)b + n->row.offset;
        size_t bytes = n->row.type == CONF_WORD      ? LAYER_PATTERN_BYTES
                       : n->row.type == CONF_BOOL    ? sizeof(bool)
                       : n->row.type == CONF_CHOICE  ? sizeof(int)
                       : n->row.type == CONF_NUMBERS ? sizeof(struct conf_numbers)
                                                     : 8;
        if (number_needed(n, b) && memcmp(x, y, bytes)) fail_msg("%s: %s came back as another", what, n->row.path);
    }
}

static void test_export(void **state)
{
    (void)state;
    for (int k = 0; k < N_MODELS; k++) {
        struct golden_case c;
        struct err e = {0};
        open_case(&c, models[k]);
        struct hf_model h = source_hf_model(&c.h.model, 0, 1), read;
        char *dir = scratch_new(), out[64];
        snprintf(out, sizeof out, "%s/out", dir);
        struct weights *again = hf_again(c.w, &h, out);
        if (weights_model(again, &read, &e)) fail_msg("%s: %s", c.name, e.text);
        same_numbers(&read.model, &c.h.model, c.name);
        weights_close(again);
        scratch_free(dir);
        close_case(&c);
    }
}

/* ---- gpt-oss: experts that are parts of one tensor ---- */
static struct hf *opened(const char *dir)
{
    struct hf *h;
    struct err e = {0};
    if (hf_open(&h, dir, NULL, &e)) fail_msg("%s", e.text);
    return h;
}

/* A box is what the whole parameter has there, wherever it begins: in alternate columns, in the middle of a block. */
static void test_boxes_of_experts(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt_oss", "gpt_oss_mxfp4"};
    static float whole[4096], box[4096];
    for (int k = 0; k < 2; k++) {
        char path[512];
        struct err e = {0};
        snprintf(path, sizeof path, "%s/golden/families/%s", TEST_DIR, names[k]);
        struct hf *h = opened(path);
        for (int64_t i = 0; i < hf_n_params(hf_model_get(h)); i++) {
            struct hf_param p = hf_param_at(hf_model_get(h), i);
            struct region all = region_whole(&p.shape), b = all;
            int64_t n = p.shape.n[0], m = p.shape.nd > 1 ? p.shape.n[1] : 1, cut = p.shape.nd > 1 ? 5 : 0;
            assert_true(n * m <= 4096 && n > 2);
            if (hf_read(h, i, &all, DT_F32, whole, &e)) fail_msg("%s", e.text);
            b.lo[0] = 1, b.hi[0] = n > 4 ? n - 1 : n;
            if (cut) b.lo[1] = cut, b.hi[1] = m > 40 ? 39 : m - 2; /* across an end of a block of 32 */
            if (hf_read(h, i, &b, DT_F32, box, &e)) fail_msg("%s", e.text);
            int64_t wide = cut ? b.hi[1] - b.lo[1] : 1;
            for (int64_t r = b.lo[0]; r < b.hi[0]; r++)
                for (int64_t c = 0; c < wide; c++)
                    if (memcmp(&box[(r - 1) * wide + c], &whole[r * m + cut + c], sizeof(float)))
                        fail_msg("%s: %s: (%d, %d) is %g, the whole has %g", names[k], p.name, (int)r, (int)(cut + c),
                                 (double)box[(r - 1) * wide + c], (double)whole[r * m + cut + c]);
        }
        hf_close(h);
    }
}

/* The MXFP4 model with one text of config.json or of the weights' header changed to another of its length. */
static void test_wrong_codes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *file, *was, *is, *said;
    } cases[] = {
        {"config.json", "\"intermediate_size\": 32", "\"intermediate_size\": 64", "no MXFP4 blocks"},
        {"config.json", "\"intermediate_size\": 32", "\"intermediate_size\": 33", "blocks of 32"},
        {"config.json", "\"mxfp4\"", "\"gptq4\"", "quant_method gptq4"},
        {"config.json", "\"rope_scaling\": {", "\"rope_scaling\": null, \"no\": {", "no is an object"},
        {"config.json", "\"swiglu_limit\": 1.0", "\"swiglu_alpha\": 1.0", "swiglu_alpha is 1"},
        {"model.safetensors", "mlp.experts.down_proj_scales", "mlp.experts.down_proj_scalez", "_scales"},
        {"model.safetensors", "mlp.experts.down_proj_blocks", "mlp.experts.down_proj_blockz", "is missing"},
    };
    static const char *const files[] = {"config.json", "model.safetensors"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *dir = scratch_new(), from[512], to[512], *text;
        struct err e = {0};
        struct hf *h = NULL;
        for (int k = 0; k < 2; k++) {
            size_t n, was = strlen(cases[i].was), is = strlen(cases[i].is);
            struct str out = {0};
            snprintf(from, sizeof from, "%s/golden/families/gpt_oss_mxfp4/%s", TEST_DIR, files[k]);
            snprintf(to, sizeof to, "%s/%s", dir, files[k]);
            if (fs_read_all(from, 1 << 20, &text, &n, &e)) fail_msg("%s", e.text);
            char *at = strcmp(files[k], cases[i].file) ? NULL : memmem(text, n, cases[i].was, was);
            assert_true(at || strcmp(files[k], cases[i].file));
            str_add(&out, text, at ? (size_t)(at - text) : n);
            if (at) str_add(&out, cases[i].is, is);
            if (at) str_add(&out, at + was, n - was - (size_t)(at - text));
            if (fs_write_atomic(to, out.p, out.n, &e)) fail_msg("%s", e.text);
            str_free(&out);
            xfree(text);
        }
        if (hf_open(&h, dir, NULL, &e) != ERR_REQUEST || !strstr(e.text, cases[i].said))
            fail_msg("%s: wanted a refusal with %s, got %s", cases[i].is, cases[i].said, h ? "none" : e.text);
        hf_close(h);
        scratch_free(dir);
    }
}

/* What is read of a family are numbers: the same ones under the name llama make the same model, and another name on the
 * way out is refused where the family's files cannot say them. */
static void test_numbers_make_the_family(void **state)
{
    (void)state;
    for (int k = 0; k < N_MODELS; k++) {
        struct golden_case c;
        struct device *d;
        struct engine_report r;
        struct err e = {0};
        open_case(&c, models[k]);
        if (model_scans(&c.h.model)) { /* no blocks of llama */
            close_case(&c);
            continue;
        }
        bool plain = c.h.family == HF_LLAMA;
        c.h.model.family = MODEL_LLAMA;
        assert_int_equal(device_cpu_new(&d, 1, &e), OK);
        struct engine *g = engine_of(&c, d, "auto");
        struct engine_batch b = {.tokens = c.tokens, .targets = c.targets, .positions = c.positions, .n = B};
        b.n_trained = json_int(json_get(c.root, "trained"), -1);
        engine_evaluate(g, &b, &r);
        near(&c, r.loss, json_real(json_at(json_get(c.root, "losses"), 0), NAN), 1e-6, "loss", 0);
        engine_free(g);
        device_free(d);
        struct hf_model h = source_hf_model(&c.h.model, 0, 1);
        h.family = HF_LLAMA;
        struct str text = {0}; /* a checkpoint's own description says what no key of Llama does */
        struct json *root;
        struct hf_model read;
        hf_config_put(&(struct json_out){.s = &text}, NULL, &h, DT_F32);
        if (json_parse(&root, text.p, text.n, "config.json", &e)) fail_msg("%s", e.text);
        if (hf_config_parse(&read, root, NULL, "config.json", &e)) fail_msg("%s: %s\n%s", c.name, e.text, text.p);
        same_numbers(&read.model, &c.h.model, c.name);
        json_free(root);
        str_free(&text);
        bool says = hf_config_expressible(&h, &e) == OK;
        if (says != (plain)) fail_msg("%s as llama: %s", c.name, says ? "said" : e.text);
        close_case(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_steps),
        cmocka_unit_test(test_decoding),
        cmocka_unit_test(test_export),
        cmocka_unit_test(test_boxes_of_experts),
        cmocka_unit_test(test_wrong_codes_are_refused),
        cmocka_unit_test(test_numbers_make_the_family),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
