/* SPDX-License-Identifier: Apache-2.0 */
/* Ten steps of each optimizer against those of other people's code (make_torch.py wrote torch_steps.txt): a wide
 * matrix, a tall one and a vector. */
#include "optim/adafactor.h"
#include "optim/muon.h"
#include "toy.h"

enum { STEPS = 10, N = 12 * 20 + 20 * 12 + 20 };
static const int64_t shapes[3][2] = {{12, 20}, {20, 12}, {20, 0}};

static float value(int64_t factor, int64_t i, int64_t t)
{
    return (float)((double)((i * i * 31 + i * factor + t * 15485863 + 13) % 2003 - 1001) / 1001);
}

/* Weights of one optimizer, out of its line. */
static bool read_line(const char *name, float *out)
{
    char word[64];
    FILE *f = fopen(TEST_DIR "/optim/torch_steps.txt", "r");
    bool found = false;
    assert_non_null(f);
    while (!found && fscanf(f, "%63s", word) == 1) found = !strcmp(word, name);
    for (int i = 0; found && i < N; i++) {
        uint32_t bits;
        assert_int_equal(fscanf(f, "%8x", &bits), 1);
        memcpy(&out[i], &bits, 4);
    }
    fclose(f);
    return found;
}

static void fill(float *to, bool weights, int t)
{
    int64_t at = 0;
    for (int s = 0; s < 3; s++) {
        int64_t cols = shapes[s][1] ? shapes[s][1] : shapes[s][0], n = shapes[s][1] ? shapes[s][0] * cols : cols;
        for (int64_t i = 0; i < n; i++)
            to[at + i] =
                weights
                    ? (float)((double)((((at + i) * (at + i) * 31 + (at + i) * 7919 + 13) % 2003 - 1001)) / 1001 / 2)
                : i / cols % 8 != 3 ? value(104729, at + i, t)
                                    : 0;
        at += n;
    }
}

/* Largest difference of a weight. */
static double difference(const struct optim_config *c, double lr, const char *name)
{
    struct param_table t = {0};
    struct device *d;
    struct kernel_table k;
    struct store s;
    struct stream *st;
    struct optim_tools tools = {0};
    struct err e = {0};
    struct array_row rows[OPTIM_MAX_ROWS];
    float want[N], first[N];
    double most = 0;
    if (!read_line(name, want)) fail_msg("torch_steps.txt has no %s", name);
    param_add(&t, "wide", param_alone(2, shapes[0]), INIT_ZEROS, 0, 0);
    param_add(&t, "tall", param_alone(2, shapes[1]), INIT_ZEROS, 0, 0);
    param_add(&t, "vector", param_alone(1, shapes[2]), INIT_ZEROS, 0, 0);
    assert_int_equal(device_cpu_new(&d, 2, &e), OK);
    assert_int_equal(kernel_table_init(&k, "auto", 2, false, &e), OK);
    assert_int_equal(store_new(&s, &t, d, DT_F32, true, rows, optim_arrays(c, rows), &e), OK);
    assert_int_equal(stream_new(&st, d, "test", &e), OK);
    kernel_on(st, &k);
    store_init(&s, &k, st, 1);
    assert_int_equal(adafactor_new(&tools.adafactor, &s, c, st, &(struct adafactor_groups){NULL, NULL, NULL}, &e), OK);
    assert_int_equal(muon_new(&tools.muon, &s, c, st, NULL, &e), OK);
    float *w = device_here(s.array[STORE_PARAM].buf.p);
    fill(first, true, 0);
    memcpy(w, first, sizeof first);
    for (int step = 1; step <= STEPS; step++) {
        fill(device_here(s.array[STORE_GRAD].buf.p), false, step);
        optim_step(&s, st, c, &tools, lr, step - 1, 1);
    }
    stream_sync(st);
    for (int i = 0; i < N; i++) {
        most = fmax(most, fabs((double)w[i] - want[i]));
        assert_true(i % 20 == 3 || fabs((double)w[i] - first[i]) > 0);
    }
    muon_free(tools.muon);
    adafactor_free(tools.adafactor);
    store_free(&s);
    stream_free(st);
    device_free(d);
    param_table_free(&t);
    return most;
}

/* All but Muon run in fp32 on both sides. Muon's products round to 8 bits, and not in the same places: PyTorch's add
 * one term before they round where ours round twice. An update's elements are of size lr / 5, ten of them 0.04 at most.
 */
static void test_steps_equal_others(void **state)
{
    (void)state;
    const struct optim_config adamw = {.kind = OPTIM_ADAMW,
                                       .beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .eps = 1e-8,
                                       .weight_decay = 0.1},
                              sgd = {.kind = OPTIM_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1},
                              lion = {.kind = OPTIM_LION, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1};
    const struct optim_config factored = {.kind = OPTIM_ADAFACTOR,
                                          .weight_decay = 0.1,
                                          .decay_rate = 0.8,
                                          .update_clip = 1};
    struct optim_config relative = factored;
    relative.relative = true;
    struct optim_config muon = adamw, plain, bits = adamw, fp8 = adamw;
    bits.moments = MOMENTS_8BIT;
    fp8.moments = MOMENTS_FP8;
    bits.block = fp8.block = 256;
    muon.kind = OPTIM_MUON;
    muon.group[PARAM_EMBEDDINGS] = muon.group[PARAM_VECTORS] = (struct optim_group){.own = true, .kind = OPTIM_ADAMW};
    muon.muon_momentum = 0.95;
    muon.muon_nesterov = true;
    const struct {
        const struct optim_config *c;
        double lr, bound;
        const char *name;
    } all[] = {{&adamw, 0.02, 1e-6, "adamw"},
               {&sgd, 0.02, 2e-6, "sgd"},
               {&lion, 0.002, 1e-6, "lion"},
               {&factored, 0.02, 2e-6, "adafactor"},
               {&relative, 0.02, 2e-6, "adafactor-relative"},
               {&bits, 0.02, 4e-4, "adamw-8bit"},
               {&fp8, 0.02, 1e-6, "adamw-fp8"},
               {&muon, 0.02, 2e-3, "muon"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        double got = difference(all[i].c, all[i].lr, all[i].name);
        print_message("%s: %.3g\n", all[i].name, got);
        if (!(got < all[i].bound)) fail_msg("%s: a weight is %.3g off, bound %g", all[i].name, got, all[i].bound);
    }
    assert_true(difference(&adamw, 0.02, "adamw-8bit") > 1.5e-3); /* they are not one another */
    assert_true(difference(&bits, 0.02, "adamw-fp8") > 4e-3);
    plain = muon; /* and these numbers would see it */
    plain.muon_nesterov = false;
    assert_true(difference(&plain, 0.02, "muon") > 1e-2);
    plain = muon;
    plain.weight_decay = 0.2;
    assert_true(difference(&plain, 0.02, "muon") > 5e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps_equal_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
