/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* The reference family's backward against central differences, for every row and dtype-independent attribute.
 *
 * L = sum over outputs of dout * y, in double from f32 outputs. Along a random direction u of one input,
 * (L(x + hu) - L(x - hu)) / 2h must equal <din, u>. Step 1e-2: truncation about h^2, noise about 1e-7 / h; the
 * bound of 2e-3 of the gradient's norm leaves room for curvature only. */
#include "harness.h"
#include "sanitized.h"

enum { CASES = 24 / CASE_STRIDE };
static const double h = 1e-2, bound = 2e-3;

static double loss(struct kcase *k)
{
    assert_true(kcase_forward(k, &kernel_family_ref, 1));
    if (k->op == OP_XENT && at_vocab(&k->at)->each) {
        double weighed = 0;
        for (int64_t t = 0; t < view_rows(&k->in[0]); t++)
            weighed += view_get(&k->out[0], 0, 2 + at_vocab(&k->at)->at + t) * view_get(&k->in[2], 0, t);
        return weighed * (double)k->step.loss_scale;
    }
    if (k->op == OP_XENT) return view_get(&k->out[0], 0, 0) * (double)k->step.loss_scale;
    if (k->op == OP_BALANCE)
        return (view_get(&k->out[0], 0, 0) + view_get(&k->out[0], 0, 1)) * (double)k->step.loss_scale;
    double sum = 0;
    for (int64_t r = 0; r < view_rows(&k->out[0]); r++)
        for (int64_t c = 0; c < view_cols(&k->out[0]); c++)
            sum += view_get(&k->out[0], r, c) * view_get(&k->dout[0], r, c);
    return sum;
}

static void shift(const struct view *x, const struct view *from, const struct view *u, double by)
{
    for (int64_t r = 0; r < view_rows(x); r++)
        for (int64_t c = 0; c < view_cols(x); c++) view_set(x, r, c, view_get(from, r, c) + by * view_get(u, r, c));
}

/* One direction of one input: dense (single < 0) or one element. */
static void check_direction(struct kcase *k, int i, const struct view *x0, const struct view *u)
{
    char text[200];
    double exact = 0, norm = 0;
    for (int64_t r = 0; r < view_rows(u); r++)
        for (int64_t c = 0; c < view_cols(u); c++) {
            double g = view_get(&k->din[i], r, c);
            exact += g * view_get(u, r, c);
            norm += g * g;
        }
    shift(&k->in[i], x0, u, h);
    double up = loss(k);
    shift(&k->in[i], x0, u, -h);
    double down = loss(k);
    view_copy(&k->in[i], x0);
    double measured = (up - down) / (2 * h);
    if (!(fabs(measured - exact) <= bound * (fabs(exact) + sqrt(norm)) + 1e-5))
        fail_msg("%s input %d: slope %.6g, gradient says %.6g", kcase_text(text, k), i, measured, exact);
}

static void check_case(enum op op, uint64_t seed)
{
    struct kcase k;
    kcase_random(&k, op, DT_F32, seed);
    if (op == OP_COPY) { /* differences need f32 on both sides */
        k.out[0] = k.dout[0] = k.in[0];
        kcase_memory(&k, &k.out[0]);
        kcase_memory(&k, &k.dout[0]);
        view_fill(&k.dout[0], seed, 1, 1);
    }
    loss(&k);
    assert_true(kcase_backward(&k, &kernel_family_ref, 1));
    kcase_check_gaps(&k);
    for (int i = 0; i < k.n_in; i++) {
        if (!k.din[i].p) continue;
        struct view x0 = kcase_clone(&k, &k.in[i]), u = kcase_clone(&k, &k.in[i]);
        for (int trial = 0; trial < 3; trial++) {
            view_fill(&u, seed, 100 + (uint64_t)trial, 1 / sqrt((double)(view_rows(&u) * view_cols(&u))));
            check_direction(&k, i, &x0, &u);
        }
        for (int trial = 0; trial < 3; trial++) {
            view_fill_zero(&u);
            view_set(&u, kcase_int(&k, 0, view_rows(&u) - 1), kcase_int(&k, 0, view_cols(&u) - 1), 1);
            check_direction(&k, i, &x0, &u);
        }
    }
    kcase_free(&k);
}

static void test_every_row(void **state)
{
    (void)state;
    for (int op = 0; op < OP_FIRST_COLLECTIVE; op++)
        for (uint64_t seed = 0; op_row((enum op)op)->has_backward && seed < CASES; seed++)
            check_case((enum op)op, seed);
}

/* Sequences by themselves draw what all of them in one call draw, and have the same result. */
static void test_dropout_of_sequences(void **state)
{
    (void)state;
    int several = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct kcase k;
        kcase_random(&k, OP_ATTENTION_BIASED, DT_F32, seed);
        struct attention_biased_attrs *at = edit_attention_biased(&k.at);
        at->dropout = (struct dropout_attrs){.p = 0.4f, .stream = 5};
        assert_true(kcase_forward(&k, &kernel_family_ref, 1));
        struct view y = kcase_clone(&k, &k.out[0]);
        several += at->batch > 1;
        for (int64_t b = 0; b < at->batch; b++) {
            struct kernel_call c = kcase_call(&k, KERNEL_FWD);
            struct step_info step = k.step;
            struct view *v[] = {&c.in[0], &c.in[1], &c.in[2], &c.out[0], &c.out[1]};
            for (int i = 0; i < 5; i++) {
                v[i]->n[0] /= at->batch;
                v[i]->p = (float *)v[i]->p + b * v[i]->n[0] * v[i]->stride;
            }
            if (c.n_in > 4) c.in[4].n[0] /= at->batch;
            if (c.n_in > 4) c.in[4].p = (int32_t *)c.in[4].p + b * c.in[4].n[0];
            edit_attention_biased(&c.at)->batch = 1;
            step.first_token += (uint64_t)(b * at->sample);
            c.step = &step;
            assert_true(kcase_run(&c, &kernel_family_ref, 2));
        }
        assert_true(view_same_bits(&k.out[0], &y));
        kcase_free(&k);
    }
    assert_true(several > 3);
}

/* Two halves of a microbatch draw what the whole draws. */
static void test_dropout_is_the_counter(void **state)
{
    (void)state;
    struct kcase whole;
    for (uint64_t seed = 0; seed < 12; seed++) {
        kcase_random(&whole, OP_ADD, DT_F32, seed);
        edit_dropout(&whole.at)->p = 0.4f;
        assert_true(kcase_forward(&whole, &kernel_family_ref, 1));
        struct view y = kcase_clone(&whole, &whole.out[0]);
        int64_t n = whole.in[0].n[0], half = n / 2;
        for (int part = 0; part < 2; part++) {
            struct kernel_call c = kcase_call(&whole, KERNEL_FWD);
            struct step_info step = whole.step;
            int64_t first = part ? half : 0, rows = part ? n - half : half;
            struct view *v[] = {&c.in[0], &c.in[1], &c.out[0]};
            for (int i = 0; i < 3; i++) {
                v[i]->p = (float *)v[i]->p + first * v[i]->stride;
                v[i]->n[0] = rows;
            }
            step.first_token += (uint64_t)first;
            c.step = &step;
            assert_true(kcase_run(&c, &kernel_family_ref, 1));
        }
        assert_true(view_same_bits(&whole.out[0], &y));
        kcase_free(&whole);
    }
}

/* About p of the elements are dropped, another step drops others, and evaluation drops none. */
static void test_dropout_rate(void **state)
{
    (void)state;
    struct kcase k = {.op = OP_DROPOUT, .dtype = DT_F32, .seed = 3};
    k.at = ATTRS(dropout, .p = 0.3f, .stream = 11);
    k.step = (struct step_info){.seed = 1, .training = true};
    k.in[0] = kcase_tensor(&k, DT_F32, 200, 100);
    k.n_in = 1;
    for (int64_t r = 0; r < 200; r++)
        for (int64_t c = 0; c < 100; c++) view_set(&k.in[0], r, c, 1);
    kcase_outputs(&k);
    int64_t zeros[2] = {0}, both = 0;
    static bool dropped[200][100];
    for (int step = 0; step < 2; step++) {
        k.step.step = (uint64_t)step;
        assert_true(kcase_forward(&k, &kernel_family_ref, 1));
        for (int64_t r = 0; r < 200; r++)
            for (int64_t c = 0; c < 100; c++) {
                bool zero = view_get(&k.out[0], r, c) == 0;
                if (!zero) assert_true(fabs(view_get(&k.out[0], r, c) - 1 / 0.7) < 1e-6);
                zeros[step] += zero;
                both += step && zero && dropped[r][c];
                dropped[r][c] = zero;
            }
        assert_in_range(zeros[step], 6000 - 330, 6000 + 330); /* 5 standard deviations of 65 */
    }
    assert_in_range(both, 1800 - 210, 1800 + 210);
    k.step.training = false;
    assert_true(kcase_forward(&k, &kernel_family_ref, 1));
    assert_true(view_distance(&k.out[0], &k.in[0]) == 0);
    kcase_free(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row),
        cmocka_unit_test(test_dropout_is_the_counter),
        cmocka_unit_test(test_dropout_of_sequences),
        cmocka_unit_test(test_dropout_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
