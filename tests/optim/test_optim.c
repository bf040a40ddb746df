/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices untouchable */
/* Updates against the formulas in double precision, and learning rates against their closed forms. */
#include "toy.h"

enum { ROWS = 31, COLS = 17, BIAS = 23, N = ROWS * COLS + BIAS, STEPS = 12 };

struct bench {
    struct param_table t;
    struct device *d;
    struct kernel_table k;
    struct store s;
    struct stream *st;
};

static void open_bench(struct bench *b, enum dtype dtype, const struct optim_config *c, int threads)
{
    struct err e = {0};
    memset(b, 0, sizeof *b);
    param_add(&b->t, "w", param_alone(2, (int64_t[]){ROWS, COLS}), INIT_NORMAL, 0.5, -1);
    param_add(&b->t, "b", param_alone(1, (int64_t[]){BIAS}), INIT_NORMAL, 0.5, -1);
    assert_int_equal(device_cpu_new(&b->d, threads, &e), OK);
    assert_int_equal(kernel_table_init(&b->k, "auto", threads, false, &e), OK);
    struct array_row rows[OPTIM_MAX_ROWS];
    assert_int_equal(store_new(&b->s, &b->t, b->d, dtype, true, rows, optim_arrays(c, rows), &e), OK);
    assert_int_equal(stream_new(&b->st, b->d, "test", &e), OK);
    kernel_on(b->st, &b->k);
    store_init(&b->s, &b->k, b->st, 1);
}

static void close_bench(struct bench *b)
{
    store_free(&b->s);
    stream_free(b->st);
    device_free(b->d);
    param_table_free(&b->t);
}

static void set_gradients(struct bench *b, int step)
{
    float *g = device_here(b->s.array[STORE_GRAD].buf.p);
    for (int i = 0; i < N; i++) g[i] = 0.3f * rng_normal(2, (uint64_t)step, (uint64_t)i);
}

static double norm_of(const float *g)
{
    double sum = 0;
    for (int i = 0; i < N; i++) sum += (double)g[i] * g[i];
    return sqrt(sum);
}

struct truth {
    double w[N], m[N], v[N];
};

/* Loshchilov & Hutter 2019, Algorithm 2; the update of PyTorch's AdamW. */
static void adamw_exact(struct truth *x, const float *grad, const struct optim_config *c, double lr, int t,
                        double scale)
{
    for (int i = 0; i < N; i++) {
        double g = grad[i] * scale, decay = i < ROWS * COLS ? c->weight_decay : 0;
        x->m[i] = c->beta1 * x->m[i] + (1 - c->beta1) * g;
        x->v[i] = c->beta2 * x->v[i] + (1 - c->beta2) * g * g;
        double m = x->m[i] / (1 - pow(c->beta1, t)), v = x->v[i] / (1 - pow(c->beta2, t));
        x->w[i] -= lr * (m / (sqrt(v) + c->eps) + decay * x->w[i]);
    }
}

static void sgd_exact(struct truth *x, const float *grad, const struct optim_config *c, double lr, int t, double scale)
{
    for (int i = 0; i < N; i++) {
        double g = grad[i] * scale + (i < ROWS * COLS ? c->weight_decay : 0) * x->w[i];
        x->m[i] = t == 1 ? g : c->momentum * x->m[i] + g;
        x->w[i] -= lr * (c->momentum == 0 ? g : c->nesterov ? g + c->momentum * x->m[i] : x->m[i]);
    }
}

/* Chen et al. 2023, Algorithm 2. */
static void lion_exact(struct truth *x, const float *grad, const struct optim_config *c, double lr, int t, double scale)
{
    (void)t;
    for (int i = 0; i < N; i++) {
        double g = grad[i] * scale, along = c->beta1 * x->m[i] + (1 - c->beta1) * g;
        x->w[i] -= lr * ((along > 0) - (along < 0) + (i < ROWS * COLS ? c->weight_decay : 0) * x->w[i]);
        x->m[i] = c->beta2 * x->m[i] + (1 - c->beta2) * g;
    }
}

static void step_exact(struct truth *x, const float *grad, const struct optim_config *c, double lr, int t, double scale)
{
    static void (*const step[OPTIM_KINDS])(struct truth *, const float *, const struct optim_config *, double, int,
                                           double) = {
        [OPTIM_ADAMW] = adamw_exact,
        [OPTIM_SGD] = sgd_exact,
        [OPTIM_LION] = lion_exact,
    };
    step[c->kind](x, grad, c, lr, t, scale);
}

/* Global norm of the gradients of this one rank. */
static double norm_here(struct bench *b)
{
    struct buffer sum;
    double here;
    assert_int_equal(buffer_new(&sum, b->st->dev, MEM_SCRATCH, sizeof here, NULL), OK); /* zeroed */
    optim_sum_squares(&b->s, b->st, sum.p);
    device_to_host(b->st, &here, &sum, 0, sizeof here);
    stream_sync(b->st);
    buffer_free(&sum);
    return sqrt(here);
}

static void check_updates(const struct optim_config *c, enum dtype dtype, int threads)
{
    struct bench b;
    static struct truth x;
    memset(&x, 0, sizeof x);
    open_bench(&b, dtype, c, threads);
    const float *w = device_here(store_array(&b.s, STORE_MASTER)->buf.p);
    for (int i = 0; i < N; i++) x.w[i] = w[i];
    int clipped = 0;
    for (int t = 1; t <= STEPS; t++) {
        double lr = 0.01 + 0.002 * t;
        set_gradients(&b, t);
        if (t > STEPS / 2)
            for (int i = 0; i < N; i++)
                ((float *)device_here(b.s.array[STORE_GRAD].buf.p))[i] *= 0.01f; /* below the limit: no clipping */
        double norm = norm_here(&b), want = norm_of(device_here(b.s.array[STORE_GRAD].buf.p));
        assert_true(fabs(norm - want) < 1e-9 * want);
        double scale = c->clip > 0 && norm > c->clip ? c->clip / norm : 1;
        clipped += scale < 1;
        step_exact(&x, device_here(b.s.array[STORE_GRAD].buf.p), c, lr, t, scale);
        optim_step(&b.s, b.st, c, NULL, lr, t - 1, norm);
        for (int i = 0; i < N; i++)
            if (!(fabs(w[i] - x.w[i]) < 2e-6 + 2e-6 * fabs(x.w[i])))
                fail_msg("step %d, element %d: %.9g, wanted %.9g", t, i, (double)w[i], x.w[i]);
    }
    assert_int_equal(clipped, c->clip > 0 ? STEPS / 2 : 0);
    for (int i = 0; i < N && dtype == DT_BF16; i++)
        assert_int_equal(((bf16 *)device_here(b.s.array[STORE_PARAM].buf.p))[i], bf16_from_f32(w[i]));
    close_bench(&b);
}

static void test_updates(void **state)
{
    (void)state;
    const struct optim_config all[] = {
        {.kind = OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1},
        {.kind = OPTIM_ADAMW, .beta1 = 0, .beta2 = 0.99, .eps = 1e-3, .weight_decay = 0, .clip = 0},
        {.kind = OPTIM_SGD, .momentum = 0, .weight_decay = 0.2, .clip = 1},
        {.kind = OPTIM_SGD, .momentum = 0.9, .weight_decay = 0.2, .clip = 0},
        {.kind = OPTIM_SGD, .momentum = 0.9, .nesterov = true, .clip = 1},
        {.kind = OPTIM_LION, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.3, .clip = 1},
        {.kind = OPTIM_LION, .beta1 = 0.5, .beta2 = 0.9, .clip = 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int threads = 1; threads <= 3; threads++) {
            check_updates(&all[i], DT_F32, threads);
            check_updates(&all[i], DT_BF16, threads);
        }
    struct array_row rows[OPTIM_MAX_ROWS];
    assert_int_equal(optim_arrays(&all[0], rows), 2);
    assert_int_equal(optim_arrays(&all[2], rows), 0);
    assert_int_equal(optim_arrays(&all[3], rows), 1);
}

/* Moments in bf16 are those of fp32 but for their rounding: 2^-9 of each a step, which decays as they do. */
static void test_narrow_moments(void **state)
{
    (void)state;
    const struct optim_config c =
        {.kind = OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .moments = MOMENTS_BF16};
    struct optim_config bad = c, mixed = c;
    struct bench b;
    struct truth x = {{0}, {0}, {0}};
    const char *key;
    open_bench(&b, DT_BF16, &c, 2);
    float *w = device_here(store_array(&b.s, STORE_MASTER)->buf.p);
    for (int i = 0; i < N; i++) x.w[i] = w[i];
    for (int t = 1; t <= STEPS; t++) {
        set_gradients(&b, t);
        adamw_exact(&x, device_here(b.s.array[STORE_GRAD].buf.p), &c, 0.01, t, 1);
        optim_step(&b.s, b.st, &c, NULL, 0.01, t - 1, 1);
        for (int i = 0; i < N; i++) {
            double m = bf16_to_f32(((bf16 *)device_here(b.s.array[STORE_ROWS].buf.p))[i]),
                   v = bf16_to_f32(((bf16 *)device_here(b.s.array[STORE_ROWS + 1].buf.p))[i]);
            assert_true(fabs(m - x.m[i]) < 0x1p-9 * 10 * 0.4 && fabs(v - x.v[i]) < 0x1p-9 * 20 * fabs(x.v[i]) + 1e-12);
            if (!(fabs(w[i] - x.w[i]) < t * 0.01 * 0.03)) fail_msg("step %d: %.9g, %.9g", t, (double)w[i], x.w[i]);
        }
    }
    assert_int_equal(b.s.array[STORE_ROWS].buf.bytes, N * 2);
    assert_int_equal(optim_bytes(&c, PARAM_MATRICES), 4);
    close_bench(&b);
    assert_null(optim_check(&c, &key));
    bad.beta2 = 0.999;
    assert_contains(optim_check(&bad, &key), "stand still");
    assert_string_equal(key, "betas");
    mixed.kind = OPTIM_LION;
    assert_contains(optim_check(&mixed, &key), "moments of fewer bits are adamw's");
}

/* Each group by its own optimizer and rate, with arrays for its parameters only; who is not stepped stays as it is. */
static void test_groups(void **state)
{
    (void)state;
    struct optim_config c = {.kind = OPTIM_SGD, .momentum = 0, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip = 1};
    c.group[PARAM_VECTORS] = (struct optim_group){.own = true, .kind = OPTIM_ADAMW, .scaled = true, .lr_factor = 0.25};
    struct optim_config adamw = c, sgd = c;
    adamw.kind = OPTIM_ADAMW;
    for (int frozen = 0; frozen < 3; frozen++) {
        struct bench b;
        struct truth x = {{0}, {0}, {0}}, y;
        open_bench(&b, DT_BF16, &c, 2);
        b.t.p[0].stepped = frozen != 1;
        b.t.p[0].decay = b.t.p[1].decay; /* nothing but the group tells them apart */
        c.group[PARAM_VECTORS].lr_factor = frozen == 2 ? 0 : 0.25;
        assert_int_equal(b.s.n_arrays, STORE_ROWS + 2);
        for (int k = STORE_ROWS; k < b.s.n_arrays; k++) assert_int_equal(b.s.array[k].buf.bytes, BIAS * sizeof(float));
        const float *w = device_here(store_array(&b.s, STORE_MASTER)->buf.p);
        for (int i = 0; i < N; i++) x.w[i] = w[i];
        for (int t = 1; t <= STEPS; t++) {
            set_gradients(&b, t);
            double norm = norm_here(&b), scale = fmin(1.0, 1 / (norm + 1e-6));
            y = x;
            const float *g = device_here(b.s.array[STORE_GRAD].buf.p);
            if (frozen != 1) sgd_exact(&x, g, &sgd, 0.1, t, scale);
            adamw_exact(&y, g, &adamw, frozen == 2 ? 0 : 0.025, t, scale);
            for (int i = ROWS * COLS; i < N; i++) x.w[i] = y.w[i], x.m[i] = y.m[i], x.v[i] = y.v[i];
            optim_step(&b.s, b.st, &c, NULL, 0.1, t - 1, norm);
        }
        for (int i = 0; i < N; i++)
            if (!(fabs(w[i] - x.w[i]) < 1e-6)) fail_msg("element %d: %.9g, exact %.9g", i, w[i], x.w[i]);
        close_bench(&b);
    }
}

/* The names that configs choose from are the table's. */
static void test_names(void **state)
{
    (void)state;
    char all[64] = "";
    for (int k = 0; k < OPTIM_KINDS; k++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", k ? "|" : "", optim_rows[k].name);
    assert_string_equal(all, OPTIM_NAMES);
}

/* Teams of any size give the same norm and the same weights. */
static void test_threads_change_nothing(void **state)
{
    (void)state;
    struct optim_config c =
        {.kind = OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1};
    struct bench a, b;
    open_bench(&a, DT_BF16, &c, 1);
    open_bench(&b, DT_BF16, &c, 3);
    for (int t = 0; t < 3; t++) {
        set_gradients(&a, t);
        set_gradients(&b, t);
        double x = norm_here(&a), y = norm_here(&b);
        assert_true(x == y);
        optim_step(&a.s, a.st, &c, NULL, 0.1, t, x);
        optim_step(&b.s, b.st, &c, NULL, 0.1, t, y);
    }
    assert_memory_equal(device_here(a.s.array[STORE_MASTER].buf.p), device_here(b.s.array[STORE_MASTER].buf.p), N * 4);
    assert_memory_equal(device_here(a.s.array[STORE_PARAM].buf.p), device_here(b.s.array[STORE_PARAM].buf.p), N * 2);
    close_bench(&a);
    close_bench(&b);
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want))) fail_msg("%.15g, wanted %.15g", got, want);
}

static void test_schedules(void **state)
{
    (void)state;
    enum { ALL = 111, WARM = 10, TAIL = 21 };
    const double pi = acos(-1.0), lr = 0.8, min = 0.08;
    struct lr_config c = {.lr = lr, .min_lr = min, .warmup_steps = WARM, .decay_steps = TAIL, .steps = ALL};
    for (int kind = LR_CONSTANT; kind <= LR_WSD; kind++) {
        c.kind = (enum lr_kind)kind;
        for (int s = 0; s < WARM; s++) near(lr_at(&c, s), lr * (s + 1) / WARM);
        near(lr_at(&c, WARM), lr);
        near(lr_at(&c, ALL - 1), kind == LR_CONSTANT ? lr : min);
        near(lr_at(&c, ALL + 5), kind == LR_CONSTANT ? lr : min); /* a run that goes on keeps the last */
    }
    for (int s = WARM; s < ALL; s++) {
        double x = (double)(s - WARM) / (ALL - WARM - 1);
        c.kind = LR_CONSTANT;
        near(lr_at(&c, s), lr);
        c.kind = LR_LINEAR;
        near(lr_at(&c, s), lr + (min - lr) * x);
        c.kind = LR_COSINE;
        near(lr_at(&c, s), min + (lr - min) * (1 + cos(pi * x)) / 2);
        c.kind = LR_WSD;
        near(lr_at(&c, s), s < ALL - TAIL ? lr : lr + (min - lr) * (s - (ALL - TAIL)) / (TAIL - 1.0));
    }
    c = (struct lr_config){.kind = LR_COSINE, .lr = lr, .min_lr = min, .steps = 1}; /* no span to divide by */
    assert_true(isfinite(lr_at(&c, 0)));
    c = (struct lr_config){.kind = LR_LINEAR, .lr = lr, .min_lr = min, .warmup_steps = 5, .steps = 5};
    for (int s = 0; s < 5; s++) near(lr_at(&c, s), lr * (s + 1) / 5);
    c = (struct lr_config){.kind = LR_WSD, .lr = lr, .min_lr = min, .decay_steps = 1, .steps = 9};
    near(lr_at(&c, 7), lr);
    near(lr_at(&c, 8), min);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_updates), cmocka_unit_test(test_narrow_moments),         cmocka_unit_test(test_groups),
        cmocka_unit_test(test_names),   cmocka_unit_test(test_threads_change_nothing), cmocka_unit_test(test_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
