/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures in texts against the transformers library (tests/golden/make_llava.py): its directories of both kinds of
 * towers are read, ten steps of training on texts with two, one and no pictures are the library's; written again they
 * hold the same numbers. */
#include "toy.h"

#include "base/fs.h"
#include "base/json.h"
#include "config/start_weights.h"
#include "decode/generate.h"
#include "hf_again.h"
#include "scratch.h"

enum { B = 3, S = 17, T = B * S, PICTURES = 2, EACH = 3 * 6 * 6, PATCHES = 4 };
static const char *const models[] = {"clip", "siglip"};

struct golden_case {
    struct json *root;
    int32_t tokens[T], targets[T], positions[T], patches[T];
    float pixels[B * PICTURES * EACH];
    struct weights *w;
    struct hf_model h;
};

static void read_numbers(const struct json *root, const char *key, int n, int32_t *ints, float *reals)
{
    const struct json *list = json_get(root, key);
    assert_int_equal(json_size(list), n);
    for (int i = 0; i < n && ints; i++) ints[i] = (int32_t)json_int(json_at(list, (size_t)i), -9);
    for (int i = 0; i < n && reals; i++) reals[i] = (float)json_real(json_at(list, (size_t)i), NAN);
}

static void open_case(struct golden_case *c, const char *name)
{
    struct err e = {0};
    char path[512];
    memset(c, 0, sizeof *c);
    snprintf(path, sizeof path, "%s/golden/llava/%s.json", TEST_DIR, name);
    if (json_parse_file(&c->root, path, 1 << 20, &e)) fail_msg("%s", e.text);
    read_numbers(c->root, "tokens", T, c->tokens, NULL);
    read_numbers(c->root, "targets", T, c->targets, NULL);
    read_numbers(c->root, "pixels", B * PICTURES * EACH, NULL, c->pixels);
    snprintf(path, sizeof path, "%s/golden/llava/%s", TEST_DIR, name);
    if (weights_open(&c->w, path, &e)) fail_msg("%s", e.text);
    if (weights_model(c->w, &c->h, &e)) fail_msg("%s", e.text);
    const struct vision_config *v = &c->h.model.vision;
    assert_int_equal(vision_patches(v), PATCHES);
    for (int i = 0, k = 0; i < T; i++) {
        if (i % S == 0) k = 0;
        bool is = c->tokens[i] == v->token;
        c->positions[i] = i % S;
        c->patches[i] = is ? (int32_t)(k / PATCHES * vision_places(v) + v->class_place + k % PATCHES) : -1;
        k += is;
    }
}

static void close_case(struct golden_case *c)
{
    weights_close(c->w);
    json_free(c->root);
}

static struct engine *engine_of(const struct golden_case *c, struct device *d, const char *kernels)
{
    struct engine *g;
    struct err e = {0};
    struct engine_config x =
        {.model = c->h.model,
         .dtype = DT_F32,
         .micro = strcmp(kernels, "ref") ? 1 : 2, /* of two the last does not fill up, and one more is empty */
         .seq = S,
         .n_microbatches = 3,
         .training = true,
         .optim = {.kind = OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1},
         .kernels = kernels,
         .threads = 1};
    x.model.seq_len = S;
    x.model.vision.images = PICTURES;
    if (engine_new(&g, &x, d, &e)) fail_msg("%s", e.text);
    for (int s = 0; s < g->n_stages; s++) program_check(g->stage[s].train);
    if (source_load(&g->store, &g->kernels, g->stream, c->w, &e)) fail_msg("%s", e.text);
    return g;
}

static struct engine_batch batch_of(const struct golden_case *c)
{
    struct engine_batch b = {.tokens = c->tokens,
                             .targets = c->targets,
                             .positions = c->positions,
                             .patches = c->patches,
                             .pixels = c->pixels,
                             .n = B};
    b.n_trained = json_int(json_get(c->root, "trained"), -1);
    return b;
}

static void near(double got, double want, double bound, const char *what, int step)
{
    if (!(fabs(got - want) <= bound * fabs(want))) fail_msg("%s of step %d: %.9g, wanted %.9g", what, step, got, want);
}

static void test_ten_steps(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct golden_case c;
        struct device *d;
        struct engine_report r;
        struct err e = {0};
        open_case(&c, models[k / 2]);
        assert_int_equal(device_cpu_new(&d, 1, &e), OK);
        struct engine *g = engine_of(&c, d, k % 2 ? "auto" : "ref");
        struct engine_batch b = batch_of(&c);
        for (int s = 0; s < 10; s++) {
            assert_true(engine_step(g, &b, s, 1e-3, &r));
            near(r.loss, json_real(json_at(json_get(c.root, "losses"), (size_t)s), NAN), 1e-6, "loss", s);
            near(r.grad_norm, json_real(json_at(json_get(c.root, "grad_norms"), (size_t)s), NAN), 2e-5, "norm", s);
        }
        engine_evaluate(g, &b, &r);
        near(r.loss, json_real(json_at(json_get(c.root, "losses"), 10), NAN), 1e-6, "loss", 10);
        engine_free(g);
        device_free(d);
        close_case(&c);
    }
}

/* A prompt with two pictures, then one token at a time. */
static void test_greedy(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct golden_case c;
        struct generator *g;
        struct device *d;
        struct err e = {0};
        const float *got;
        open_case(&c, models[k]);
        const struct json *text = json_get(c.root, "greedy");
        assert_int_equal(device_cpu_new(&d, 1, &e), OK);
        if (generator_new(&g, c.w, d, 1, 0, DT_F32, &e)) fail_msg("%s", e.text);
        if (generator_see(g, c.pixels, PICTURES, &e)) fail_msg("%s", e.text);
        assert_int_equal(generator_see(g, c.pixels, PICTURES, &e), ERR_REQUEST);
        if (generator_feed(g, c.tokens, 4, &got, &e)) fail_msg("%s", e.text); /* in the middle of the first */
        if (generator_feed(g, c.tokens + 4, 6, &got, &e)) fail_msg("%s", e.text);
        for (size_t i = 0; i < json_size(text); i++) {
            int32_t id = 0;
            for (int32_t v = 1; v < c.h.model.vision.token; v++) id = got[v] > got[id] ? v : id;
            if (id != json_int(json_at(text, i), -1))
                fail_msg("%s: token %zu is %d, wanted %lld", models[k], i, id,
                         (long long)json_int(json_at(text, i), -1));
            if (generator_feed(g, &id, 1, &got, &e)) fail_msg("%s", e.text);
        }
        generator_free(g);
        device_free(d);
        close_case(&c);
    }
}

static void test_export(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct golden_case c;
        struct err e = {0};
        open_case(&c, models[k]);
        struct hf_model h = source_hf_model(&c.h.model, 0, 1), read;
        char *dir = scratch_new(), out[64];
        snprintf(out, sizeof out, "%s/out", dir);
        struct weights *again = hf_again(c.w, &h, out);
        if (weights_model(again, &read, &e)) fail_msg("%s", e.text);
        assert_memory_equal(&read.model.vision, &c.h.model.vision, sizeof read.model.vision);
        assert_int_equal(read.model.hidden, c.h.model.hidden);
        assert_true(read.model.rope_theta == c.h.model.rope_theta && read.model.norm_eps == c.h.model.norm_eps);
        weights_close(again);
        h.model.vision.patch_bias = !h.model.vision.patch_bias; /* a tower that is none of theirs */
        assert_int_equal(hf_config_expressible(&h, &e), ERR_REQUEST);
        assert_non_null(strstr(e.text, "model.vision"));
        scratch_free(dir);
        close_case(&c);
    }
}

/* config.json of the clip case with one thing changed is refused with these words. */
static void refuse(const char *was, const char *is, const char *words)
{
    struct err e = {0};
    struct hf_model m;
    struct json *config;
    char *text, path[512];
    size_t n;
    struct str s = {0};
    snprintf(path, sizeof path, "%s/golden/llava/clip/config.json", TEST_DIR);
    assert_int_equal(fs_read_all(path, 1 << 16, &text, &n, &e), OK);
    char *at = strstr(text, was);
    assert_non_null(at);
    str_add(&s, text, (size_t)(at - text));
    str_puts(&s, is);
    str_puts(&s, at + strlen(was));
    assert_int_equal(json_parse_published(&config, str_text(&s), s.n, "config.json", &e), OK);
    int code = hf_config_parse(&m, config, NULL, "config.json", &e);
    if (code != ERR_REQUEST || !strstr(e.text, words))
        fail_msg("%s: wanted %s: %s", is, words, code ? e.text : "taken");
    json_free(config);
    str_free(&s);
    xfree(text);
}

static void test_refusals(void **state)
{
    (void)state;
    refuse("\"llama\"", "\"qwen2\"", "text_config.model_type: qwen2");
    refuse("clip_vision_model", "pixtral", "vision_config.model_type: pixtral");
    refuse("\"default\"", "\"full\"", "vision_feature_select_strategy: full");
    refuse(": -2", ": [-2, -5]", "vision_feature_layer");
    refuse(": -2", ": -4", "vision_feature_layer");
    refuse("quick_gelu", "relu", "hidden_act is \"relu\"");
    refuse("\"projector_hidden_act\": \"gelu\"", "\"projector_hidden_act\": \"silu\"",
           "projector_hidden_act is \"silu\"");
    refuse("\"patch_size\": 3", "\"patch_size\": 4", "does not divide");
    refuse("\"image_token_index\"", "\"image_grid_pinpoints\": 3, \"image_token_index\"", "image_grid_pinpoints is 3");
    refuse("\"num_channels\"", "\"window_size\": 3, \"num_channels\"", "window_size is 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_steps),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_export),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
