/* SPDX-License-Identifier: Apache-2.0 */
/* Preferences, of DPO and of reward models: the loss of a pair beside a plain computation of its formula, its factors
 * beside central differences of that, a step's gradient beside central differences of the loss of the whole model, and
 * the reference's file, of which nothing is believed that is damaged or of other data. */
#include "toy.h"

#include "base/fs.h"
#include "learn/preference.h"
#include "scratch.h"

/* Rafailov et al. 2023, equation 7, as it is written. */
static double plain(double beta, const double *nats, const double *ref)
{
    double chosen = exp(-nats[0]) / exp(-ref[0]), rejected = exp(-nats[1]) / exp(-ref[1]);
    double h = beta * log(chosen) - beta * log(rejected);
    return -log(1 / (1 + exp(-h)));
}

static void pair_is_the_formula(void **state)
{
    (void)state;
    static const double cases[][5] = {{0.1, 3, 4, 3, 4}, {0.1, 1, 9, 2, 8},     {0.5, 9, 1, 8, 2},
                                      {2, 1, 3, 4, 1},   {0.3, 2.5, 2.5, 9, 1}, {1, 7, 0.25, 1, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double beta = cases[i][0], *nats = cases[i] + 1, *ref = cases[i] + 3, step = 1e-5;
        struct preference_sums s = {0};
        double factor[2];
        preference_pair(beta, nats, ref, &s, factor);
        assert_true(fabs(s.loss - plain(beta, nats, ref)) < 1e-12 && s.pairs == 1);
        assert_true(fabs(s.chosen - beta * (ref[0] - nats[0])) < 1e-12);
        assert_true(fabs(s.rejected - beta * (ref[1] - nats[1])) < 1e-12);
        assert_int_equal(s.right, s.chosen > s.rejected);
        for (int k = 0; k < 2; k++) {
            double up[2] = {nats[0], nats[1]}, down[2] = {nats[0], nats[1]};
            up[k] += step;
            down[k] -= step;
            double slope = (plain(beta, up, ref) - plain(beta, down, ref)) / (2 * step);
            if (fabs(slope - factor[k]) > 1e-9) fail_msg("case %zu: %.12g, wanted %.12g", i, factor[k], slope);
        }
    }
    struct preference_sums far = {0};
    double factor[2];
    preference_pair(1, (double[]){2000, 0}, (double[]){0, 2000}, &far, factor);
    assert_true(far.loss == 4000 && factor[0] == 1 && factor[1] == -1);
    preference_pair(1, (double[]){0, 2000}, (double[]){2000, 0}, &far, factor);
    assert_true(far.loss == 4000 && factor[0] == 0 && factor[1] == 0 && far.right == 1 && far.pairs == 2);
}

/* Ouyang et al. 2022, equation 1, and what Eisenstein et al. 2023 add; nats are scores, their sign turned. */
static double plain_reward(double centre, const double *nats)
{
    return -log(1 / (1 + exp(nats[0] - nats[1]))) + centre * pow(-nats[0] - nats[1], 2);
}

static void rewards_are_the_formula(void **state)
{
    (void)state;
    static const double cases[][3] = {{0, -1, 2}, {0, 3, -0.5}, {0.01, 0.25, 4}, {0.5, -2, -1.5}, {2, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double centre = cases[i][0], *nats = cases[i] + 1, step = 1e-5;
        struct preference_sums s = {0};
        double factor[2];
        preference_rewards(centre, nats, &s, factor);
        assert_true(fabs(s.loss - plain_reward(centre, nats)) < 1e-12 && s.pairs == 1 && s.scored);
        assert_true(s.chosen == -nats[0] && s.rejected == -nats[1]);
        assert_int_equal(s.right, -nats[0] > -nats[1]);
        for (int k = 0; k < 2; k++) {
            double up[2] = {nats[0], nats[1]}, down[2] = {nats[0], nats[1]};
            up[k] += step;
            down[k] -= step;
            double slope = (plain_reward(centre, up) - plain_reward(centre, down)) / (2 * step);
            if (fabs(slope - factor[k]) > 1e-8) fail_msg("case %zu: %.12g, wanted %.12g", i, factor[k], slope);
        }
    }
}

/* ---- a model ---- */
enum { PAIRS = 3 };

/* Of a reward model with this much centring where it is 0 or more; else of beta. */
static double loss_of(struct toy *t, double beta, double centre, const double *ref, double *nats, double *factor)
{
    struct engine_report r;
    struct preference_sums s = {0};
    double sum = 0;
    engine_evaluate(t->g, &t->batch, &r);
    engine_sequence_nats(t->g, nats);
    for (int p = 0; p < PAIRS; p++) {
        if (centre < 0) preference_pair(beta, nats + 2 * p, ref + 2 * p, &s, factor + 2 * p);
        else preference_rewards(centre, nats + 2 * p, &s, factor + 2 * p);
        sum += centre < 0 ? plain(beta, nats + 2 * p, ref + 2 * p) : plain_reward(centre, nats + 2 * p);
    }
    for (int i = 0; i < 2 * PAIRS; i++) factor[i] /= PAIRS;
    assert_true(fabs(sum - s.loss) < 1e-9);
    return sum / PAIRS;
}

/* The last token of each sequence of some length is scored. */
static void aim_scores(struct toy *t, int64_t seq)
{
    t->batch.n_trained = t->batch.n;
    for (int64_t i = 0; i < t->batch.n * seq; i++) t->targets[i] = -1;
    for (int64_t s = 0; s < t->batch.n; s++) t->targets[s * seq + seq - 1 - s % 5] = 0;
}

static void check_gradient(enum model_family family, double centre)
{
    enum { N = 2 * PAIRS };
    struct engine_config c = toy_config(family, DT_F32);
    struct toy t;
    struct engine_report r;
    double ref[N], nats[N], factor[N], all = 0;
    c.micro = 1;
    c.n_microbatches = N;
    c.by_sequence = true;
    c.model.scores = centre >= 0;
    if (c.model.scores) c.model.tie_embeddings = false;
    toy_open(&t, &c);
    if (c.model.scores) aim_scores(&t, c.seq);
    assert_int_equal(engine_n_sequences(t.g), N);
    engine_evaluate(t.g, &t.batch, &r);
    engine_sequence_nats(t.g, nats);
    for (int i = 0; i < N; i++) all += nats[i];
    assert_true(fabs(all - r.nats) < 1e-9 * fabs(all));
    for (int i = 0; i < N; i++) ref[i] = nats[i] + (i % 3 - 1) * 2.5;
    loss_of(&t, 0.4, centre, ref, nats, factor);
    engine_weigh(t.g, factor);
    engine_gradients(t.g, &t.batch, 0, &r);
    engine_weigh(t.g, NULL);
    float *grad = toy_gradients(&t), *at = device_here(t.g->store.array[STORE_PARAM].buf.p);
    int64_t n = (int64_t)(t.g->store.array[STORE_GRAD].buf.bytes / sizeof(float));
    assert_int_equal(t.g->store.array[STORE_PARAM].buf.bytes, n * (int64_t)sizeof(float));
    float *kept = xmalloc(to_size(n) * sizeof *kept);
    memcpy(kept, at, to_size(n) * sizeof *kept);
    for (int way = 0; way < 4; way++) { /* along the gradient, and along others */
        double want = 0, step = way ? 2e-3 : centre < 0 ? 1e-3 : 1e-4, norm = 0, loss[2];
        float *to = xmalloc(to_size(n) * sizeof *to);
        for (int64_t i = 0; i < n; i++) {
            to[i] = way ? (float)(rng_u32(11, (uint64_t)way, (uint64_t)i) % 3) - 1 : grad[i];
            norm += (double)to[i] * to[i];
        }
        for (int64_t i = 0; i < n; i++) {
            to[i] = (float)(to[i] / sqrt(norm));
            want += (double)to[i] * grad[i];
        }
        for (int side = 0; side < 2; side++) {
            for (int64_t i = 0; i < n; i++) at[i] = kept[i] + (float)((side ? -step : step) * to[i] * 10);
            loss[side] = loss_of(&t, 0.4, centre, ref, nats, factor);
        }
        memcpy(at, kept, to_size(n) * sizeof *kept);
        double got = (loss[0] - loss[1]) / (20 * step);
        if (fabs(got - want) > 2e-3 * fabs(want) + 2e-5)
            fail_msg("way %d: differences say %.9g, the gradient %.9g", way, got, want);
        xfree(to);
    }
    xfree(kept);
    xfree(grad);
    toy_close(&t);
}

static void gradient_is_that_of_the_loss(void **state)
{
    (void)state;
    check_gradient(MODEL_LLAMA, -1);
    check_gradient(MODEL_LLAMA, 0);
    check_gradient(MODEL_GPT2, 0.3);
    check_gradient(MODEL_GEMMA2, 0);
}

/* ---- the reference's file ---- */
static void assert_read(const char *dir, struct reference *r, int code, const char *words)
{
    struct err e = {0};
    int rc = reference_read(dir, r, &e);
    if (rc != code || (words && !strstr(e.text, words)))
        fail_msg("%d, wanted %d '%s': %s", rc, code, words ? words : "", e.text);
}

static void file_is_believed_whole_only(void **state)
{
    (void)state;
    double train[3] = {1, 2.5, 1e-9}, valid[2] = {-1, 7}, back[5];
    struct reference r = {train, valid, 3, 2, 11, 12}, got = {back, back + 3, 3, 2, 11, 12}, other = got;
    struct err e;
    char *dir = scratch_new(), *path = fs_join(dir, "reference.bin"), *text;
    size_t n;
    assert_read(dir, &got, ERR_REQUEST, "is not there");
    assert_int_equal(reference_write(dir, &r, &e), OK);
    assert_read(dir, &got, OK, NULL);
    assert_memory_equal(back, train, sizeof train);
    assert_memory_equal(back + 3, valid, sizeof valid);
    other.of_train = 13;
    assert_read(dir, &other, ERR_REQUEST, "is of other data");
    other = got;
    other.n_valid = 1;
    assert_read(dir, &other, ERR_REQUEST, "this run has 3 and 1");
    assert_int_equal(fs_read_all(path, 1 << 20, &text, &n, &e), OK);
    for (size_t i = 0; i < n; i++) { /* any byte, and any length */
        text[i] ^= 16;
        assert_int_equal(fs_write_atomic(path, text, n, &e), OK);
        assert_int_not_equal(reference_read(dir, &got, &e), OK);
        text[i] ^= 16;
        if (i % 5) continue;
        assert_int_equal(fs_write_atomic(path, text, i, &e), OK);
        assert_read(dir, &got, ERR_CORRUPT, i < 40 ? "is no list" : "is damaged");
    }
    xfree(text);
    text = xcalloc(n + 8, 1);
    assert_int_equal(fs_write_atomic(path, text, n + 8, &e), OK);
    assert_read(dir, &got, ERR_CORRUPT, "is no list");
    xfree(text);
    xfree(path);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pair_is_the_formula),
        cmocka_unit_test(rewards_are_the_formula),
        cmocka_unit_test(gradient_is_that_of_the_loss),
        cmocka_unit_test(file_is_believed_whole_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
