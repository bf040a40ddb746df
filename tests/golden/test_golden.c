/* SPDX-License-Identifier: Apache-2.0 */
/* The golden files agree with themselves: the stored loss follows from the stored logits and targets, the first
 * gradient norm from the stored gradients, the first step's sizes from the optimizer's rule. So a test that
 * fails against them points at tutti, not at a damaged file or at this reader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/mem.h"
#include "golden/golden.h"

static const char *const models[] = {"gpt2_tied", "gpt2_untied", "llama_gqa", "llama3_rope", "llama_docs"};
enum { N_MODELS = sizeof models / sizeof models[0] };

struct fixture {
    struct json *root; /* golden.json */
    const struct json *model;
    struct golden g;
    int64_t B, T, V;
};

static int64_t config_int(const struct fixture *f, const char *key)
{
    return json_int(json_get(json_get(f->model, "config"), key), -1);
}

static void fixture_open(struct fixture *f, const char *name)
{
    struct err e = {0};
    char path[1000];
    if (json_parse_file(&f->root, TEST_DIR "/golden/golden.json", 1 << 20, &e) != OK) fail_msg("%s", e.text);
    f->model = json_get(json_get(f->root, "models"), name);
    assert_non_null(f->model);
    snprintf(path, sizeof path, "%s/golden/%s.safetensors", TEST_DIR, name);
    if (golden_open(&f->g, path, &e) != OK) fail_msg("%s", e.text);
    f->B = config_int(f, "batch"), f->T = config_int(f, "seq_len"), f->V = config_int(f, "vocab");
}

static void fixture_close(struct fixture *f)
{
    golden_close(&f->g);
    json_free(f->root);
}

static double scalar(const struct json *object, const char *key)
{
    assert_non_null(json_get(object, key));
    return json_real(json_get(object, key), NAN);
}

static double nats(const float *logits_V, int64_t V, int32_t target)
{
    double sum = 0;
    for (int64_t v = 0; v < V; v++) sum += exp((double)logits_V[v] - logits_V[target]);
    return log(sum);
}

static void test_loss_follows_from_logits(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        struct fixture f = {0};
        fixture_open(&f, models[m]);
        const int32_t *tokens = golden_i32(&f.g, "tokens", f.B * f.T);
        const int32_t *targets = golden_i32(&f.g, "targets", f.B * f.T);
        const float *logits = golden_f32(&f.g, "logits", f.B * f.T * f.V);
        assert_non_null(tokens);
        assert_non_null(targets);
        assert_non_null(logits);
        double sum = 0;
        int64_t trained = 0;
        for (int64_t i = 0; i < f.B * f.T; i++) {
            assert_in_range(tokens[i], 0, f.V - 1);
            if (targets[i] == -1) continue;
            assert_in_range(targets[i], 0, f.V - 1);
            sum += nats(logits + i * f.V, f.V, targets[i]);
            trained++;
        }
        assert_int_equal(trained, json_int(json_get(f.model, "trained_tokens"), -1));
        assert_true(trained < f.B * f.T); /* ignored targets are part of the case */
        double loss = scalar(f.model, "loss");
        assert_true(fabs(sum / (double)trained - loss) < 1e-6 * loss);
        assert_true(loss == json_real(json_at(json_get(f.model, "losses"), 0), NAN));
        assert_true(scalar(f.model, "final_loss") < 0.5 * loss);
        fixture_close(&f);
    }
}

/* Every init.X has a grad.X and a final.X of its shape; |all gradients| is the first stored norm; and a first
 * AdamW step of lr moves no element further than ten steps of it plus decay allow. */
static void test_parameters_and_first_norm(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        struct fixture f = {0};
        fixture_open(&f, models[m]);
        double square = 0;
        int n_params = 0;
        for (void *it = json_iter(f.g.header); it; it = json_iter_next(f.g.header, it)) {
            const char *name = json_iter_key(it);
            if (strncmp(name, "init.", 5)) continue;
            char other[200];
            struct golden_array init;
            assert_int_equal(golden_find(&f.g, name, &init, NULL), OK);
            snprintf(other, sizeof other, "grad.%s", name + 5);
            const float *grad = golden_f32(&f.g, other, init.n), *start = init.p;
            snprintf(other, sizeof other, "final.%s", name + 5);
            const float *final = golden_f32(&f.g, other, init.n);
            assert_non_null(grad);
            assert_non_null(final);
            for (int64_t i = 0; i < init.n; i++) {
                square += (double)grad[i] * grad[i];
                double furthest = 10 * 1e-2 * (2.5 + 0.1 * (1 + fabs((double)start[i])));
                assert_true(fabs((double) final[i] - start[i]) < furthest);
            }
            n_params++;
        }
        int64_t layers = config_int(&f, "layers");
        bool gpt2 = !strcmp(json_string(json_get(json_get(f.model, "config"), "family"), NULL, ""), "gpt2");
        bool tied = json_bool(json_get(json_get(f.model, "config"), "tie_embeddings"), false);
        assert_int_equal(n_params, (gpt2 ? 4 + 16 * layers : 2 + 9 * layers) + !tied);
        double norm = json_real(json_at(json_get(f.model, "grad_norms"), 0), NAN);
        assert_true(fabs(sqrt(square) - norm) < 1e-6 * norm);
        assert_true(norm > 1); /* so that clipping is part of the case */
        fixture_close(&f);
    }
}

static void test_reader_refuses(void **state)
{
    (void)state;
    struct fixture f = {0};
    struct err e = {0};
    struct golden_array a;
    fixture_open(&f, "llama_docs");
    assert_non_null(golden_i32(&f.g, "docs", f.B * f.T));
    assert_null(golden_i32(&f.g, "docs", f.B * f.T + 1));
    assert_null(golden_f32(&f.g, "docs", f.B * f.T));
    assert_int_equal(golden_find(&f.g, "grad.nothing", &a, &e), ERR_REQUEST);
    fixture_close(&f);
    struct golden g;
    assert_int_not_equal(golden_open(&g, TEST_DIR "/golden/golden.json", &e), OK); /* no safetensors file */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss_follows_from_logits),
        cmocka_unit_test(test_parameters_and_first_norm),
        cmocka_unit_test(test_reader_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
