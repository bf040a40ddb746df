/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* fp16 and its loss scale: which steps are left out and what they leave as it was, that gradients are divided by the
 * scale before they are clipped, that a run that goes on decides as one that was not interrupted, on several ranks too,
 * and how a run ends whose scale falls too low. */
#include "runs.h"

#include "engine/scale.h"

static void scale_halves_doubles_and_ends(void **state)
{
    (void)state;
    const struct loss_scale_config c = {.first = 8, .least = 2, .grow_every = 3};
    struct loss_scale s;
    loss_scale_init(&s, &c);
    for (int i = 0; i < 2; i++) assert_true(loss_scale_after(&s, &c, true));
    assert_true(loss_scale_after(&s, &c, false)); /* the count of good ones begins anew */
    assert_true(s.now == 4 && s.good == 0 && s.skipped == 1);
    for (int i = 0; i < 2; i++) assert_true(loss_scale_after(&s, &c, true) && s.now == 4);
    assert_true(loss_scale_after(&s, &c, true) && s.now == 8 && s.good == 0);
    for (int i = 0; i < 2; i++) assert_true(loss_scale_after(&s, &c, false));
    assert_true(s.now == 2);
    assert_false(loss_scale_after(&s, &c, false)); /* 1 is less than the least */
    assert_true(s.now == 2 && s.skipped == 4);
    s.now = LOSS_SCALE_MOST;
    for (int i = 0; i < 7; i++) assert_true(loss_scale_after(&s, &c, true));
    assert_true(s.now == LOSS_SCALE_MOST);
}

static void scale_is_read_as_it_was_written(void **state)
{
    (void)state;
    static const char *const bad[] = {"{}",
                                      "{\"loss_scale\":{\"now\":3,\"good\":0,\"skipped\":0}}",
                                      "{\"loss_scale\":{\"now\":0,\"good\":0,\"skipped\":0}}",
                                      "{\"loss_scale\":{\"now\":1e30,\"good\":0,\"skipped\":0}}",
                                      "{\"loss_scale\":{\"now\":2,\"good\":-1,\"skipped\":0}}",
                                      "{\"loss_scale\":{\"now\":2,\"good\":0}}"};
    struct loss_scale s = {0x1p-20, 17, 123456789012}, back = {1, 2, 3};
    struct str text = {0};
    struct json_out o = {.s = &text};
    struct err e = {0};
    struct json *d;
    json_begin_object(&o, NULL);
    loss_scale_put(&s, &o);
    json_end_object(&o);
    assert_int_equal(json_parse(&d, str_text(&text), text.n, "text", &e), OK);
    assert_int_equal(loss_scale_take(&back, d), 0);
    json_free(d);
    str_free(&text);
    assert_true(back.now == s.now && back.good == s.good && back.skipped == s.skipped);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(json_parse(&d, bad[i], strlen(bad[i]), "text", &e), OK);
        assert_int_equal(loss_scale_take(&back, d), -1);
        json_free(d);
    }
    assert_true(back.now == s.now);
}

/* Masters of a toy. */
static float *masters(const struct toy *t)
{
    const struct buffer *b = &store_array(&t->g->store, STORE_MASTER)->buf;
    float *v = xmalloc(b->bytes);
    memcpy(v, device_here(b->p), b->bytes);
    return v;
}

static struct engine_config fp16(double first)
{
    struct engine_config c = toy_config(MODEL_LLAMA, DT_F16);
    c.optim = (struct optim_config){.kind = OPTIM_SGD, .clip = 0.01};
    c.scale = (struct loss_scale_config){.first = first, .least = 0x1p-20, .grow_every = 1000};
    return c;
}

static void overflowing_steps_change_nothing_but_the_scale(void **state)
{
    (void)state;
    struct engine_config c = fp16(0x1p32);
    struct toy t;
    struct engine_report r;
    toy_open(&t, &c);
    float *before = masters(&t);
    size_t bytes = store_array(&t.g->store, STORE_MASTER)->buf.bytes;
    int left_out = 0;
    for (; left_out < 40; left_out++) {
        double now = t.g->scale.now;
        assert_true(engine_step(t.g, &t.batch, left_out, 0.1, &r));
        assert_true(r.loss_scale == now && isfinite(r.loss));
        float *after = masters(&t);
        bool same = !memcmp(before, after, bytes);
        xfree(after);
        assert_int_equal(same, r.skip != SKIP_NONE);
        if (!r.skip) break;
        assert_int_equal(r.skip, SKIP_GRADIENT);
        assert_false(isfinite(r.grad_norm));
        assert_true(t.g->scale.now == now / 2);
    }
    assert_in_range(left_out, 1, 30);
    assert_int_equal(t.g->scale.skipped, left_out);
    assert_int_equal(t.g->scale.good, 1);
    xfree(before);
    toy_close(&t);
}

/* All that is kept from step to step, as bytes. */
static char *kept(const struct toy *t, size_t *n)
{
    const struct store *s = &t->g->store;
    char *v = NULL;
    *n = 0;
    for (int k = 0; k < s->n_arrays; k++) {
        const struct buffer *b = &s->array[k].buf;
        if (k == STORE_GRAD || !b->bytes) continue;
        v = xrealloc(v, *n + b->bytes);
        memcpy(v + *n, device_here(b->p), b->bytes);
        *n += b->bytes;
    }
    return v;
}

/* Weights, moments, factors and averages, in the midst of a run. */
static void no_optimizer_goes_by_a_step_that_is_left_out(void **state)
{
    (void)state;
    static const struct optim_config rows[] = {
        {.kind = OPTIM_SGD, .momentum = 0.9},
        {.kind = OPTIM_ADAMW},
        {.kind = OPTIM_ADAMW, .moments = MOMENTS_BF16},
        {.kind = OPTIM_ADAMW, .moments = MOMENTS_FP8, .block = 4},
        {.kind = OPTIM_ADAMW, .moments = MOMENTS_8BIT, .block = 4},
        {.kind = OPTIM_LION},
        {.kind = OPTIM_ADAMW, .group = {[PARAM_MATRICES] = {.own = true, .kind = OPTIM_MUON}}, .muon_momentum = 0.95},
        {.kind = OPTIM_ADAFACTOR, .decay_rate = 0.8, .update_clip = 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct engine_config c = fp16(64);
        struct toy t;
        struct engine_report r;
        size_t n;
        c.optim = rows[i];
        c.optim.clip = 1;
        c.optim.ema = 0.75;
        c.optim.beta1 = 0.9;
        c.optim.beta2 = 0.95;
        c.optim.eps = 1e-8;
        toy_open(&t, &c);
        for (int s = 0; s < 2; s++) assert_true(engine_step(t.g, &t.batch, s, 0.01, &r) && !r.skip);
        char *before = kept(&t, &n);
        t.g->scale.now = LOSS_SCALE_MOST;
        assert_true(engine_step(t.g, &t.batch, 2, 0.01, &r) && r.skip == SKIP_GRADIENT);
        char *after = kept(&t, &n);
        if (memcmp(before, after, n)) fail_msg("row %zu", i);
        t.g->scale.now = 64;
        assert_true(engine_step(t.g, &t.batch, 3, 0.01, &r) && !r.skip);
        xfree(after);
        after = kept(&t, &n);
        if (!memcmp(before, after, n)) fail_msg("row %zu steps nothing", i);
        xfree(before);
        xfree(after);
        toy_close(&t);
    }
}

/* One step of SGD, clipped to a hundredth of the gradient: what is made of it does not depend on the scale, and is near
 * to fp32's. */
static void gradients_are_unscaled_before_they_are_clipped(void **state)
{
    (void)state;
    static const double scales[] = {0x1p4, 0x1p7, 0x1p10, 0}; /* 0: fp32 */
    float *after[4], *before = NULL;
    double norm[4];
    int64_t n = 0;
    for (int i = 0; i < 4; i++) {
        struct engine_config c = fp16(scales[i]);
        struct toy t;
        struct engine_report r;
        if (!scales[i]) c.dtype = DT_F32;
        toy_open(&t, &c);
        n = (int64_t)(store_array(&t.g->store, STORE_MASTER)->buf.bytes / 4);
        if (i == 0) before = masters(&t);
        assert_true(engine_step(t.g, &t.batch, 0, 1, &r) && !r.skip);
        norm[i] = r.grad_norm;
        after[i] = masters(&t);
        double moved = 0;
        for (int64_t k = 0; k < n; k++) {
            after[i][k] -= before[k];
            moved += (double)after[i][k] * after[i][k];
        }
        assert_true(fabs(sqrt(moved) - 0.01) < 1e-4); /* clipped to this, with a learning rate of 1 */
        toy_close(&t);
    }
    for (int i = 0; i < 3; i++) {
        assert_true(fabs(norm[i] - norm[3]) < 0.02 * norm[3]);
        assert_true(toy_relative_error(after[i], after[3], n) < 0.02);
        xfree(after[i]);
    }
    xfree(after[3]);
    xfree(before);
}

/* A field of all lines of steps in metrics.jsonl, one after the other. */
static void field(const struct folder *f, const char *name, const char *key, struct str *out)
{
    char path[200], want[40], *text = NULL;
    size_t n;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", f->dir, name);
    snprintf(want, sizeof want, "\"%s\":", key);
    if (fs_read_all(path, 1 << 20, &text, &n, &e)) fail_msg("%s", e.text);
    for (const char *at = text; (at = strstr(at, want)); at++) {
        at += strlen(want);
        str_printf(out, "%.*s ", (int)strcspn(at, ",}"), at);
    }
    xfree(text);
}

static void going_on_decides_as_going_through(void **state)
{
    (void)state;
    static const char *const whole[] = {"precision.recipe=fp16",
                                        "precision.loss_scale.initial=16777216",
                                        "precision.loss_scale.grow_every=3",
                                        "optimizer.schedule.name=constant",
                                        "checkpoint.every=0",
                                        "run.steps=16",
                                        NULL};
    static const char *const part[] = {"precision.recipe=fp16",
                                       "precision.loss_scale.initial=16777216",
                                       "precision.loss_scale.grow_every=3",
                                       "optimizer.schedule.name=constant",
                                       "checkpoint.every=0",
                                       "run.steps=8",
                                       NULL};
    static const char *const keys[] = {"loss", "grad_norm", "loss_scale", "skipped", "skipped_so_far", "tokens"};
    struct folder f;
    struct trainer_result r;
    struct err e;
    folder_open(&f);
    train_ok(&f, "whole", whole);
    train_ok(&f, "parts", part);
    train_ok(&f, "parts", whole);
    if (train_ranks(&f, "ranks", 2, whole, &r, &e)) fail_msg("%s", e.text);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct str a = {0}, b = {0}, c = {0};
        field(&f, "whole", keys[i], &a);
        field(&f, "parts", keys[i], &b);
        field(&f, "ranks", keys[i], &c);
        assert_string_equal(str_text(&a), str_text(&b));
        if (i > 1) assert_string_equal(str_text(&a), str_text(&c)); /* the same steps on two ranks */
        if (i == 3) assert_contains(str_text(&a), "1 ");
        if (i == 3) assert_contains(str_text(&a), "0 0 ");
        str_free(&a);
        str_free(&b);
        str_free(&c);
    }
    folder_close(&f);
}

/* Two workers, one or two servers: the steps and scales of two ranks without, through a stop and on. */
static void servers_leave_out_the_same_steps(void **state)
{
    (void)state;
    static const char *const fields[] = {"loss_scale", "skipped", "skipped_so_far", "tokens", "loss", "grad_norm"};
#define FP16(...)                                                                                                      \
    KEYS("precision.recipe=fp16", "precision.loss_scale.initial=16777216", "precision.loss_scale.grow_every=3",        \
         "optimizer.schedule.name=constant", "checkpoint.every=0", __VA_ARGS__)
    struct folder f;
    struct trainer_result plain, one, two, parts;
    struct err e;
    folder_open(&f);
    if (train_ranks(&f, "plain", 2, FP16("run.steps=16"), &plain, &e)) fail_msg("%s", e.text);
    if (train_ranks(&f, "one", 3, FP16("run.steps=16", "parallel.servers=1"), &one, &e)) fail_msg("%s", e.text);
    if (train_ranks(&f, "two", 4, FP16("run.steps=16", "parallel.servers=2"), &two, &e)) fail_msg("%s", e.text);
    for (int steps = 8; steps <= 16; steps += 8) {
        char key[32];
        snprintf(key, sizeof key, "run.steps=%d", steps);
        if (train_ranks(&f, "parts", 3, FP16(key, "parallel.servers=1"), &parts, &e)) fail_msg("%s", e.text);
    }
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        struct str a = {0}, b = {0}, c = {0}, d = {0};
        field(&f, "plain", fields[i], &a);
        field(&f, "one", fields[i], &b);
        field(&f, "two", fields[i], &c);
        field(&f, "parts", fields[i], &d);
        assert_string_equal(str_text(&b), str_text(&d));
        if (i < 4) assert_string_equal(str_text(&a), str_text(&b));
        if (i < 4) assert_string_equal(str_text(&a), str_text(&c));
        if (i == 1) assert_contains(str_text(&a), "1 ");
        str_free(&a);
        str_free(&b);
        str_free(&c);
        str_free(&d);
    }
    assert_true(fabs(one.loss - plain.loss) < 1e-3 * plain.loss && fabs(two.loss - plain.loss) < 1e-3 * plain.loss);
    folder_close(&f);
}

static void a_scale_that_falls_too_low_ends_the_run(void **state)
{
    (void)state;
    static const char *const keys[] = {"precision.recipe=fp16", "precision.loss_scale.initial=4294967296",
                                       "precision.loss_scale.least=1073741824", NULL};
    static const char *const odd[] = {"precision.recipe=fp16", "precision.loss_scale.initial=1000", NULL};
    static const char *const served[] = {"precision.recipe=fp16", "parallel.servers=1", "parallel.server_mode=async",
                                         NULL};
    static const char *const low_served[] = {"precision.recipe=fp16", "precision.loss_scale.initial=4294967296",
                                             "precision.loss_scale.least=1073741824", "parallel.servers=1", NULL};
    struct folder f;
    struct trainer_result r;
    struct err e;
    folder_open(&f);
    assert_int_equal(train_ranks(&f, "low", 2, keys, &r, &e), ERR_NUMERIC);
    assert_contains(e.text, "step 3:");
    assert_contains(e.text, "precision.loss_scale.least");
    assert_contains(e.text, "3 of 3 steps were left out");
    assert_contains(e.text, "on rank ");
    assert_contains(e.text, "element");
    assert_int_equal(train(&f, "odd", odd, &r, &e), ERR_REQUEST);
    assert_contains(e.text, "no power of two; choose 512");
    assert_int_equal(train_ranks(&f, "served", 2, served, &r, &e), ERR_REQUEST);
    assert_contains(e.text, "parallel.server_mode: sync has");
    assert_int_equal(train_ranks(&f, "low_served", 3, low_served, &r, &e), ERR_NUMERIC);
    assert_contains(e.text, "step 3:");
    assert_contains(e.text, "3 of 3 steps were left out");
    folder_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scale_halves_doubles_and_ends),
        cmocka_unit_test(scale_is_read_as_it_was_written),
        cmocka_unit_test(overflowing_steps_change_nothing_but_the_scale),
        cmocka_unit_test(no_optimizer_goes_by_a_step_that_is_left_out),
        cmocka_unit_test(gradients_are_unscaled_before_they_are_clipped),
        cmocka_unit_test(going_on_decides_as_going_through),
        cmocka_unit_test(servers_leave_out_the_same_steps),
        cmocka_unit_test(a_scale_that_falls_too_low_ends_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
