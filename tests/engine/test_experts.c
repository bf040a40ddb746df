/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices untouchable */
/* Models with experts against the transformers library (tests/golden/make_experts.py): its directories are read, logits
 * of decoding through caches, the loss and every gradient are its own; written again, they hold the same numbers. And
 * what a training run adds: losses of balance, biases that move, tokens that are dropped. */
#include "toy.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/fs.h"
#include "base/json.h"
#include "engine/balance.h"
#include "decode/generate.h"
#include "config/start_weights.h"
#include "scratch.h"

static const char *const models[] = {"mixtral",           "deepseek_v2",      "deepseek_v3",
                                     "deepseek_v3_parts", "deepseek_v2_yarn", "deepseek_v3_mtp"};
enum { N_MODELS = sizeof models / sizeof *models, B = 2, S = 13, T = B * S, V = 37 };

struct golden_case {
    struct json *root;
    int32_t tokens[T], targets[T], positions[T];
    double logits[T * V], loss;
    struct weights *w, *grad;
    struct model_config m;
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
    snprintf(path, sizeof path, "%s/golden/experts/%s.json", TEST_DIR, name);
    if (json_parse_file(&c->root, path, 1 << 20, &e)) fail_msg("%s", e.text);
    read_ints(c->root, "tokens", c->tokens);
    read_ints(c->root, "targets", c->targets);
    for (int i = 0; i < T; i++) c->positions[i] = i % S;
    for (int i = 0; i < T * V; i++) c->logits[i] = json_real(json_at(json_get(c->root, "logits"), (size_t)i), NAN);
    c->loss = json_real(json_get(c->root, "loss"), NAN);
    snprintf(path, sizeof path, "%s/golden/experts/%s", TEST_DIR, name);
    if (weights_open(&c->w, path, &e)) fail_msg("%s", e.text);
    snprintf(path, sizeof path, "%s/golden/experts/%s.grad", TEST_DIR, name);
    if (weights_open(&c->grad, path, &e)) fail_msg("%s", e.text);
    struct hf_model h;
    assert_int_equal(weights_model(c->w, &h, &e), OK);
    c->m = h.model;
    c->m.mtp.weight = json_real(json_get(c->root, "mtp_weight"), 0);
    assert_int_equal(c->m.mtp.depth,
                     json_size(json_get(c->root, "mtp_loss"))); /* what config.json says of others has no weights */
}

static void close_case(struct golden_case *c)
{
    weights_close(c->w);
    weights_close(c->grad);
    json_free(c->root);
}

static void test_decoding(void **state)
{
    (void)state;
    for (int k = 0; k < N_MODELS; k++) {
        struct golden_case c;
        struct generator *g;
        struct device *d;
        struct err e = {0};
        open_case(&c, models[k]);
        assert_int_equal(device_cpu_new(&d, 1, &e), OK);
        if (generator_new(&g, c.w, d, 1, 0, DT_F32, &e)) fail_msg("%s", e.text);
        double worst = 0, largest = 0;
        for (int b = 0; b < B; b++) {
            generator_reset(g);
            for (int s = 0; s < S; s++) {
                const float *got;
                if (generator_feed(g, &c.tokens[b * S + s], 1, &got, &e)) fail_msg("%s", e.text);
                for (int v = 0; v < V; v++) {
                    worst = fmax(worst, fabs((double)got[v] - c.logits[(b * S + s) * V + v]));
                    largest = fmax(largest, fabs(c.logits[(b * S + s) * V + v]));
                }
            }
        }
        if (!(worst < 2e-5 * largest)) fail_msg("%s: logits are off by %g of %g", models[k], worst, largest);
        generator_free(g);
        device_free(d);
        close_case(&c);
    }
}

static struct engine *trained_engine(struct golden_case *c, struct device *d, const char *kernels, bool recompute)
{
    struct engine *g;
    struct err e = {0};
    struct engine_config x = {.model = c->m,
                              .dtype = DT_F32,
                              .micro = B,
                              .seq = S,
                              .n_microbatches = 1,
                              .training = true,
                              .recompute = {recompute ? AGAIN_ALL : 0, 0},
                              .optim = {.kind = OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
                              .kernels = kernels,
                              .threads = 1};
    if (engine_new(&g, &x, d, &e)) fail_msg("%s", e.text);
    for (int s = 0; s < g->n_stages; s++) program_check(g->stage[s].train);
    if (source_load(&g->store, &g->kernels, g->stream, c->w, &e)) fail_msg("%s", e.text);
    return g;
}

static struct engine_batch batch_of(const struct golden_case *c)
{
    struct engine_batch b = {.tokens = c->tokens, .targets = c->targets, .positions = c->positions, .n = B};
    for (int i = 0; i < T; i++) b.n_trained += c->targets[i] >= 0;
    return b;
}

static void test_gradients(void **state)
{
    (void)state;
    for (int k = 0; k < N_MODELS * 3; k++) {
        struct golden_case c;
        struct device *d;
        struct engine_report r;
        struct err e = {0};
        open_case(&c, models[k % N_MODELS]);
        assert_int_equal(device_cpu_new(&d, 1, &e), OK);
        struct engine *g = trained_engine(&c, d, k < N_MODELS ? "ref" : "auto", k >= 2 * N_MODELS);
        struct engine_batch b = batch_of(&c);
        engine_gradients(g, &b, 0, &r);
        if (!(fabs(r.loss - c.loss) < 1e-6 * c.loss))
            fail_msg("%s: loss %.9g, wanted %.9g", models[k % N_MODELS], r.loss, c.loss);
        for (int i = 0; i < c.m.mtp.depth; i++) {
            double want = json_real(json_at(json_get(c.root, "mtp_loss"), (size_t)i), NAN);
            if (!(fabs(r.ahead[i] - want) < 1e-6 * want))
                fail_msg("%s: loss of module %d %.9g, wanted %.9g", models[k % N_MODELS], i, r.ahead[i], want);
        }
        for (int i = 0; i < g->params.n; i++) {
            const struct param *p = &g->params.p[i];
            struct shape shape = shape_of(p->nd, p->n);
            struct region whole = region_whole(&shape);
            float *want = xmalloc((size_t)p->numel * sizeof *want);
            const float *got = device_here(store_grad_ptr(&g->store, i));
            int64_t at = weights_find(c.grad, "param", p->name);
            if (at < 0) fail_msg("no %s", p->name);
            assert_int_equal(weights_read(c.grad, at, &whole, DT_F32, want, &e), OK);
            double worst = 0, largest = 1e-6;
            for (int64_t n = 0; n < p->numel; n++) {
                worst = fmax(worst, fabs((double)got[n] - (double)want[n]));
                largest = fmax(largest, fabs((double)want[n]));
            }
            if (!(worst < 1e-4 * largest))
                fail_msg("%s: gradient of %s is off by %g of %g", models[k % N_MODELS], p->name, worst, largest);
            xfree(want);
        }
        engine_free(g);
        device_free(d);
        close_case(&c);
    }
}

static int get_param(void *ctx, const char *name, const struct region *box, enum dtype as, void *dst, struct err *e)
{
    struct weights *w = ctx;
    return weights_read(w, weights_find(w, "param", name), box, as, dst, e);
}

static void test_export(void **state)
{
    (void)state;
    for (int k = 0; k < N_MODELS; k++) {
        struct golden_case c;
        struct err e = {0};
        open_case(&c, models[k]);
        struct hf_model h = source_hf_model(&c.m, 0, 1);
        char *dir = scratch_new(), out[64];
        snprintf(out, sizeof out, "%s/out", dir);
        struct hf_export x = {.model = &h, .dtype = DT_F32, .get = get_param, .ctx = c.w};
        if (hf_export(out, &x, &e)) fail_msg("%s", e.text);
        struct weights *again;
        struct hf_model read;
        if (weights_open(&again, out, &e)) fail_msg("%s", e.text);
        assert_int_equal(weights_model(again, &read, &e), OK);
        assert_int_equal(read.family, h.family);
        assert_memory_equal(models[k], hf_family_name(read.family), strlen(hf_family_name(read.family)));
        struct model_config m = read.model;
        assert_memory_equal(&m.mla, &c.m.mla, sizeof m.mla);
        assert_true(m.moe.top_groups == c.m.moe.top_groups && m.moe.scale == c.m.moe.scale &&
                    m.moe.bias == c.m.moe.bias && m.moe.first_dense == c.m.moe.first_dense &&
                    m.yarn.factor == c.m.yarn.factor);
        assert_int_equal(weights_count(again), weights_count(c.w));
        for (int64_t i = 0; i < weights_count(again); i++) {
            struct ckpt_entry t = weights_at(again, i);
            struct region whole = region_whole(&t.shape);
            size_t bytes = (size_t)region_volume(&whole) * 4;
            float *a = xmalloc(bytes), *b = xmalloc(bytes);
            assert_int_equal(weights_read(again, i, &whole, DT_F32, a, &e), OK);
            assert_int_equal(get_param(c.w, t.name, &whole, DT_F32, b, &e), OK);
            assert_memory_equal(a, b, bytes);
            xfree(a);
            xfree(b);
        }
        h.model.moe.bias = false; /* a router that their code does not have */
        h.model.moe.shared = 0;
        if (k > 0) assert_int_equal(hf_config_expressible(&h, &e), ERR_REQUEST);
        weights_close(again);
        close_case(&c);
        scratch_free(dir);
    }
}

/* The losses and the load of a router, from the definition: one sequence at a time. */
static void test_balance_is_its_definition(void **state)
{
    (void)state;
    struct golden_case c;
    struct device *d;
    struct engine_report r, plain;
    struct err e = {0};
    open_case(&c, "mixtral");
    assert_int_equal(device_cpu_new(&d, 1, &e), OK);
    c.m.moe.aux = 0.5;
    c.m.moe.z = 0.25;
    struct engine *g = trained_engine(&c, d, "auto", false);
    struct engine_batch b = batch_of(&c);
    engine_gradients(g, &b, 0, &r);
    double sum = 0;
    for (int l = 0; l < c.m.layers; l++)
        for (int x = 0; x < c.m.moe.experts; x++) sum += balance_load(g, l)[x];
    assert_true(sum == (double)(b.n_trained * c.m.moe.top_k * c.m.layers)); /* untrained tokens do not count */
    assert_true(r.balance_loss >= 0.5 * 2 * 0.9 && r.balance_loss < 0.5 * 2 * c.m.moe.experts);
    assert_true(r.z_loss > 0);
    assert_true(fabs(r.loss - c.loss) < 1e-5 * c.loss); /* reported apart */

    /* The gradient is the slope of loss + balance + z. */
    int i = param_find(&g->params, "layers.1.moe.router.weight");
    const struct param *p = &g->params.p[i];
    float *w = xmalloc((size_t)p->numel * 4), *was = xmalloc((size_t)p->numel * 4),
          *grad = device_here(store_grad_ptr(&g->store, i));
    double slope = 0;
    store_read(&g->store, g->stream, i, STORE_MASTER, was);
    for (int64_t n = 0; n < p->numel; n++) slope += (double)grad[n] * (double)grad[n];
    double step = 1e-3 / sqrt(slope), total[2];
    for (int s = 0; s < 2; s++) {
        for (int64_t n = 0; n < p->numel; n++) w[n] = was[n] + (s ? -1 : 1) * (float)step * grad[n];
        store_write(&g->store, &g->kernels, g->stream, i, STORE_MASTER, w);
        engine_evaluate(g, &b, &plain);
        total[s] = plain.loss + plain.balance_loss + plain.z_loss;
    }
    double measured = (total[0] - total[1]) / (2 * step);
    if (!(fabs(measured - slope) < 2e-2 * slope)) fail_msg("slope %g, the gradient says %g", measured, slope);
    xfree(w);
    xfree(was);
    engine_free(g);
    device_free(d);
    close_case(&c);
}

/* Biases move by their speed against the load's error, and the optimizer leaves them alone otherwise. */
static void test_bias_moves(void **state)
{
    (void)state;
    struct engine_config c = toy_config(MODEL_DEEPSEEK, DT_F32);
    c.model.moe.bias_speed = 0.125;
    struct toy t;
    struct engine_report r;
    toy_open(&t, &c);
    int i = param_find(&t.g->params, "layers.1.moe.router.bias");
    float before[6], after[6];
    assert_true(param_find(&t.g->params, "layers.0.moe.router.bias") < 0); /* the first layer is dense */
    store_read(&t.g->store, t.g->stream, i, STORE_MASTER, before);
    for (int s = 0; s < 3; s++) {
        assert_true(engine_step(t.g, &t.batch, s, 1e-2, &r));
        store_read(&t.g->store, t.g->stream, i, STORE_MASTER, after);
        const double *load = balance_load(t.g, 1);
        double mean = 0;
        for (int x = 0; x < 6; x++) mean += load[x] / 6;
        assert_null(balance_load(t.g, 0));
        for (int x = 0; x < 6; x++) {
            float want = before[x] + (load[x] > mean ? -0.125f : load[x] < mean ? 0.125f : 0);
            assert_true(after[x] == want);
            before[x] = after[x];
        }
    }
    assert_true(balance_worst(t.g) >= 1);
    toy_close(&t);
}

/* A capacity below the mean drops tokens, deterministically, and the buffers are smaller; one that holds all drops
 * none. */
static void test_capacity(void **state)
{
    (void)state;
    double loss[3];
    size_t act[3];
    for (int v = 0; v < 3; v++) {
        struct engine_config c = toy_config(MODEL_MIXTRAL, DT_F32);
        c.model.moe.capacity = v == 0 ? 0 : v == 1 ? 5 : 0.5;
        struct toy t;
        struct engine_report r;
        toy_open(&t, &c);
        for (int s = 0; s < 2; s++) engine_step(t.g, &t.batch, s, 1e-2, &r);
        loss[v] = r.loss;
        act[v] = t.g->stage[0].train->bytes[HOME_ACT];
        toy_close(&t);
    }
    assert_true(loss[0] == loss[1]);
    assert_true(loss[0] != loss[2]);
    assert_true(act[2] < act[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoding),   cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_export),     cmocka_unit_test(test_balance_is_its_definition),
        cmocka_unit_test(test_bias_moves), cmocka_unit_test(test_capacity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
