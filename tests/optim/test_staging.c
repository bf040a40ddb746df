/* SPDX-License-Identifier: Apache-2.0 */
/* What waits elsewhere is stepped as what is here: the same bits of weights, masters and moments after several steps,
 * in more stretches than there are slots, whose ends meet neither blocks nor parameters; also on a device that is late
 * on purpose, which knows who waited for nobody. */
#include "kernel/flat_ops.h"
#include "optim/staging.h"
#include "toy.h"

enum { STEPS = 3, BIAS = 777, ROWS = 701, COLS = 1500, TAIL = 5, N = BIAS + ROWS * COLS + TAIL };

struct bench {
    struct param_table t;
    struct device *d;
    struct kernel_table k;
    struct store s;
    struct stream *st;
    struct staging *staging;
};

struct variant {
    enum optim_kind kind;
    enum optim_moments moments;
    enum dtype grad;
    enum { OPTIMIZER = 1, MASTER = 2, PARAMS = 4, ROUNDS = 8 /* no master: weights are rounded by chance */ } away;
};

static struct optim_config config_of(const struct variant *v)
{
    return (struct optim_config){.kind = v->kind,
                                 .seed = 5,
                                 .moments = v->moments,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 1e-8,
                                 .weight_decay = 0.1,
                                 .momentum = 0.9,
                                 .clip = 1};
}

/* late: the seed of its order; 0: a device that does all at once, with files. */
static void open_bench(struct bench *b, const struct variant *v, bool away, uint64_t late)
{
    struct err e = {0};
    struct optim_config c = config_of(v);
    struct array_row rows[OPTIM_MAX_ROWS];
    memset(b, 0, sizeof *b);
    param_add(&b->t, "a", param_alone(1, (int64_t[]){BIAS}), INIT_NORMAL, 0.5, -1); /* the rest begins in a block */
    param_add(&b->t, "w", param_alone(2, (int64_t[]){ROWS, COLS}), INIT_NORMAL, 0.5, -1);
    param_add(&b->t, "z", param_alone(1, (int64_t[]){TAIL}), INIT_NORMAL, 0.5, -1);
    if (late ? device_late_new(&b->d, 1, late, NULL, NULL, &e) : device_cpu_new(&b->d, 1, &e)) fail_msg("%s", e.text);
    struct tier *tier;
    if (tier_open(&tier, ".", &e)) fail_msg("%s", e.text);
    device_tier_set(b->d, tier);
    assert_int_equal(kernel_table_init(&b->k, "auto", 1, false, &e), OK);
    int n = optim_arrays(&c, rows);
    for (int i = 0; away && (v->away & OPTIMIZER) && i < n; i++) rows[i].away = MEM_DISK;
    const struct store_config how = {.dtype = DT_BF16,
                                     .training = true,
                                     .master_away = away && (v->away & MASTER) ? MEM_DISK : 0,
                                     .param_away = away && (v->away & PARAMS) ? MEM_DISK : 0,
                                     .no_master = (v->away & ROUNDS) != 0,
                                     .rows = rows,
                                     .n_rows = n,
                                     .grad = v->grad};
    if (store_new_shared(&b->s, &b->t, b->d, &how, &e)) fail_msg("%s", e.text);
    assert_int_equal(stream_new(&b->st, b->d, "test", &e), OK);
    kernel_on(b->st, &b->k);
    if (staging_new(&b->staging, &b->s, b->st, &e)) fail_msg("%s", e.text);
    assert_true(away == (b->staging != NULL) && away == (b->d->ledger.now[MEM_DISK] > 0));
    assert_int_equal(tier_reserve(tier, &e), OK);
    store_init(&b->s, &b->k, b->st, 1);
}

static void close_bench(struct bench *b)
{
    assert_int_equal(device_status(b->d, NULL), OK);
    staging_free(b->staging);
    store_free(&b->s);
    stream_free(b->st);
    device_free(b->d);
    param_table_free(&b->t);
}

static void step(struct bench *b, const struct variant *v, int i, const float *g)
{
    struct optim_config c = config_of(v);
    struct optim_tools tools = {.staging = b->staging};
    void *narrow = xmalloc(N * sizeof *g);
    flat_ops_ref.cast(NULL, narrow, v->grad, g + i, DT_F32, N);
    device_from_host(b->st, &b->s.array[STORE_GRAD].buf, 0, narrow, N * dtype_bytes(v->grad));
    optim_step(&b->s, b->st, &c, &tools, 1e-2, i, 2 /* clipped */);
    stream_sync(b->st);
    xfree(narrow);
}

static void *bytes_of(struct bench *b, int which, size_t *n)
{
    const struct array *a = &b->s.array[which];
    *n = a->buf.bytes;
    char *p = xmalloc(*n);
    struct stream *st = store_stream(&b->s, which, b->st);
    device_to_host(st, p, &a->buf, 0, *n);
    stream_sync(st);
    return p;
}

static void compare(struct bench *here, struct bench *away, const struct variant *v, uint64_t late)
{
    for (int k = 0; k < here->s.n_arrays; k++) {
        size_t n, m;
        if (k == STORE_GRAD || !array_is_here(&here->s.array[k])) continue;
        char *p = bytes_of(here, k, &n), *q = bytes_of(away, k, &m);
        assert_true(n == m && n >= N * sizeof(uint16_t));
        for (size_t i = 0; i < n; i++)
            if (p[i] != q[i])
                fail_msg("optimizer %d, seed %llu: %s differs in byte %zu of %zu", (int)v->kind,
                         (unsigned long long)late, here->s.array[k].row.name, i, n);
        xfree(p);
        xfree(q);
    }
}

static void test_as_here(void **state)
{
    (void)state;
    static const struct variant of[] = {
        {OPTIM_ADAMW, MOMENTS_FP32, DT_F32, OPTIMIZER | MASTER},
        {OPTIM_ADAMW, MOMENTS_BF16, DT_BF16, OPTIMIZER | MASTER},
        {OPTIM_ADAMW, MOMENTS_FP32, DT_BF16, OPTIMIZER},
        {OPTIM_ADAMW, MOMENTS_FP32, DT_F32, MASTER},
        {OPTIM_LION, MOMENTS_FP32, DT_F32, OPTIMIZER | MASTER},
        {OPTIM_SGD, MOMENTS_FP32, DT_F32, OPTIMIZER | MASTER},
        {OPTIM_ADAMW, MOMENTS_FP32, DT_F32, OPTIMIZER | MASTER | PARAMS},
        {OPTIM_ADAMW, MOMENTS_FP32, DT_F32, PARAMS},
        {OPTIM_ADAMW, MOMENTS_BF16, DT_BF16, OPTIMIZER | PARAMS | ROUNDS},
    };
    assert_true(N > 4 * STORE_WIDEN);
    float *g = xmalloc((N + STEPS) * sizeof *g);
    for (int i = 0; i < N + STEPS; i++) g[i] = 0.3f * rng_normal(2, 1, (uint64_t)i);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct bench here, away;
        open_bench(&here, &of[i], false, 0);
        for (int k = 0; k < STEPS; k++) step(&here, &of[i], k, g);
        for (uint64_t late = 0; late < (i < 2 || (of[i].away & PARAMS) ? 3 : 1); late++) {
            open_bench(&away, &of[i], true, late);
            for (int k = 0; k < STEPS; k++) step(&away, &of[i], k, g);
            compare(&here, &away, &of[i], late);
            close_bench(&away);
        }
        close_bench(&here);
    }
    xfree(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_here)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
