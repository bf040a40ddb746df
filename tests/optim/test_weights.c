/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept instead of, and beside, masters: weights of 16 bits that are rounded by chance, and averages. */
#include "kernel/update.h"
#include "toy.h"

enum { ROWS = 24, COLS = 40, N = ROWS * COLS };

struct bench {
    struct param_table t;
    struct device *d;
    struct kernel_table k;
    struct store s;
    struct stream *st;
};

/* Two matrices of the same weights and gradients. */
static void open_bench(struct bench *b, const struct optim_config *c, bool no_master)
{
    struct err e = {0};
    struct array_row rows[OPTIM_MAX_ROWS];
    memset(b, 0, sizeof *b);
    param_add(&b->t, "one", param_alone(2, (int64_t[]){ROWS, COLS}), INIT_ONES, 0, -1);
    param_add(&b->t, "other", param_alone(2, (int64_t[]){ROWS, COLS}), INIT_ONES, 0, -1);
    assert_int_equal(device_cpu_new(&b->d, 2, &e), OK);
    assert_int_equal(kernel_table_init(&b->k, "auto", 2, false, &e), OK);
    struct store_config sc = {.dtype = DT_BF16,
                              .training = true,
                              .no_master = no_master,
                              .rows = rows,
                              .n_rows = optim_arrays(c, rows)};
    assert_int_equal(store_new_shared(&b->s, &b->t, b->d, &sc, &e), OK);
    assert_int_equal(stream_new(&b->st, b->d, "test", &e), OK);
    kernel_on(b->st, &b->k);
    store_init(&b->s, &b->k, b->st, 1);
    float *g = device_here(b->s.array[STORE_GRAD].buf.p);
    for (int i = 0; i < 2 * N; i++) g[i] = 1;
}

static void close_bench(struct bench *b)
{
    store_free(&b->s);
    stream_free(b->st);
    device_free(b->d);
    param_table_free(&b->t);
}

static void read_weights(struct bench *b, int which, float *out)
{
    for (int p = 0; p < 2; p++) store_read(&b->s, b->st, p, which, out + p * N);
}

/* Sixteen steps down by an eighth of what lies between two weights. */
static void test_small_updates_add_up_by_chance(void **state)
{
    (void)state;
    enum { STEPS = 16 };
    for (int way = 0; way < 2; way++) {
        const struct optim_config c = {.kind = OPTIM_SGD, .nearest = way == 1, .seed = 5};
        struct bench b;
        float w[2 * N], before[2 * N];
        double sum = 0;
        int unlike = 0, again = 0, moved = 0;
        uint32_t last = 0; /* which of the first 32 went down */
        open_bench(&b, &c, true);
        assert_null(b.s.array[STORE_MASTER].buf.dev);
        read_weights(&b, STORE_MASTER, before);
        for (int s = 0; s < STEPS; s++) {
            uint32_t here = 0;
            optim_step(&b.s, b.st, &c, NULL, 0x1p-8 / 8, s, 1);
            read_weights(&b, STORE_MASTER, w);
            for (int i = 0; i < 32; i++) here |= (uint32_t)(w[i] != before[i]) << i;
            moved += here != 0;
            again += here == last && here != 0;
            last = here;
            memcpy(before, w, sizeof w);
        }
        for (int i = 0; i < N; i++) unlike += w[i] != w[N + i];
        for (int i = 0; i < 2 * N; i++) sum += (double)w[i] / (2 * N);
        close_bench(&b);
        if (way) {
            assert_true(fabs(sum - 1) < 1e-9 && moved == 0);
            continue;
        }
        assert_true(fabs(1 - sum - STEPS * 0x1p-11) < 0.2 * STEPS * 0x1p-11);
        assert_true(unlike > N / 4); /* each tensor has numbers of its own, */
        assert_int_equal(again, 0);  /* and each step */
    }
}

static void test_average_is_of_the_new_weights(void **state)
{
    (void)state;
    for (int no_master = 0; no_master < 2; no_master++) {
        const struct optim_config c = {.kind = OPTIM_SGD, .ema = 0.75, .seed = 5};
        struct bench b;
        float w[2 * N], ema[2 * N];
        double want[2 * N];
        open_bench(&b, &c, no_master);
        int which = store_find(&b.s, "ema");
        assert_true(which > 0);
        read_weights(&b, which, ema);
        for (int i = 0; i < 2 * N; i++) assert_true(ema[i] == 1); /* it begins as the weights */
        for (int i = 0; i < 2 * N; i++) want[i] = 1;
        for (int s = 0; s < 5; s++) {
            optim_step(&b.s, b.st, &c, NULL, 0.0625, s, 1);
            read_weights(&b, STORE_MASTER, w);
            read_weights(&b, which, ema);
            for (int i = 0; i < 2 * N; i++) {
                want[i] = 0.75 * want[i] + 0.25 * (double)w[i];
                assert_true(fabs(want[i] - (double)ema[i]) < 1e-6);
            }
        }
        assert_true(w[0] < 0.7f && ema[0] > w[0] + 0.1f);
        close_bench(&b);
    }
}

/* A model that learns by small steps: with masters, without and by chance, without and to nearest. */
static void test_nearest_stalls_and_chance_does_not(void **state)
{
    (void)state;
    enum { STEPS = 120 };
    double first[3], last[3];
    for (int way = 0; way < 3; way++) {
        struct engine_config c = toy_config(MODEL_LLAMA, DT_BF16);
        struct engine_report r = {0};
        struct toy t;
        c.no_master = way > 0;
        c.optim = (struct optim_config){.kind = OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .seed = 3};
        c.optim.nearest = way == 2;
        toy_open(&t, &c);
        for (int s = 0; s < STEPS; s++) {
            engine_step(t.g, &t.batch, s, 1e-5, &r);
            if (!s) first[way] = r.loss;
        }
        last[way] = r.loss;
        toy_close(&t);
        print_message("%d: %.4f to %.4f\n", way, first[way], last[way]);
    }
    double master = first[0] - last[0];
    assert_true(master > 0.04);
    assert_true(fabs(first[1] - last[1] - master) < 0.15 * master);
    assert_true(first[2] - last[2] < 0.5 * master);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_small_updates_add_up_by_chance),
                                       cmocka_unit_test(test_average_is_of_the_new_weights),
                                       cmocka_unit_test(test_nearest_stalls_and_chance_does_not)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
