/* SPDX-License-Identifier: Apache-2.0 */
/* suite: measures */
/* Runs from config to checkpoint, in this process: stopping and resuming changes no bit, the files say what they
 * promise, and what goes wrong leaves the last checkpoint as it was. Signals and kills are in test_stop.sh. */
#include "runs.h"

#include <signal.h>
#include <sys/resource.h>

#include "data/dataset.h"

/* Everything but times and bytes is the same (more threads take more scratch). */
static void same_metrics(const struct folder *f, const char *a, const char *b, int lines)
{
    static const char *const fields[] = {"step", "loss", "grad_norm", "lr", "tokens", "skipped", "valid_loss"};
    struct json *x[64], *y[64];
    int n = read_metrics(f, a, x, 64), m = read_metrics(f, b, y, 64);
    assert_int_equal(n, lines);
    assert_int_equal(m, lines);
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
            double v = json_real(json_get(x[i], fields[k]), -1), w = json_real(json_get(y[i], fields[k]), -1);
            if (v != w) fail_msg("line %d: %s is %.17g in %s and %.17g in %s", i + 1, fields[k], v, a, w, b);
        }
        json_free(x[i]);
        json_free(y[i]);
    }
}

/* Eight steps at once, against five and then three more from the checkpoint: weights, moments and metrics. */
static void test_resume_is_bit_identical(void **state)
{
    (void)state;
    struct folder f;
    folder_open(&f);
    for (int v = 0; v < 8; v++) {
        const char *recipe = v & 1 ? "precision.recipe=fp32" : "precision.recipe=bf16";
        const char *optimizer = v & 2 ? "optimizer.name=sgd" : "optimizer.name=adamw";
        const char *family = v & 4 ? "model.family=gpt2" : "model.family=llama";
        const char *heads = v & 4 ? "model.kv_heads=4" : "model.kv_heads=2", *drop = "model.dropout=0.1";
        char straight[16], halves[16], from[128];
        snprintf(straight, sizeof straight, "straight%d", v);
        snprintf(halves, sizeof halves, "halves%d", v);
        struct trainer_result r = train_ok(&f, straight, KEYS(recipe, optimizer, family, heads, drop));
        assert_int_equal(r.first_step, 0);
        assert_int_equal(r.steps, 8);
        assert_int_equal(r.tokens, 8 * 4 * 24);
        assert_true(isfinite(r.loss) && !r.stopped);

        /* its checkpoint of step 5, started from another directory */
        snprintf(from, sizeof from, "checkpoint.resume=%s/%s/checkpoints/step-00000005", f.dir, straight);
        r = train_ok(&f, halves, KEYS(recipe, optimizer, family, heads, drop, from));
        assert_int_equal(r.first_step, 5);
        same_file(&f, straight, halves, "checkpoints/step-00000008/boxes-00000.safetensors");

        /* stopped after five by its own steps, then asked to go on; a constant rate knows no end */
        const char *flat = "optimizer.schedule.name=constant";
        snprintf(straight, sizeof straight, "flat%d", v);
        snprintf(halves, sizeof halves, "twice%d", v);
        train_ok(&f, straight, KEYS(recipe, optimizer, family, heads, drop, flat));
        r = train_ok(&f, halves, KEYS(recipe, optimizer, family, heads, drop, flat, "run.steps=5"));
        assert_int_equal(r.steps, 5);
        r = train_ok(&f, halves, KEYS(recipe, optimizer, family, heads, drop, flat));
        assert_int_equal(r.first_step, 5);
        same_file(&f, straight, halves, "checkpoints/step-00000008/boxes-00000.safetensors");
        same_metrics(&f, straight, halves, 8);
        r = train_ok(&f, halves, KEYS(recipe, optimizer, family, heads, drop, flat)); /* nothing is left to do */
        assert_int_equal(r.first_step, 8);
        same_metrics(&f, straight, halves, 8);
    }
    folder_close(&f);
}

/* A run again, with another number of threads: the same lines. From its own config.yaml: the same again. */
static void test_runs_repeat(void **state)
{
    (void)state;
    struct folder f;
    folder_open(&f);
    struct trainer_result r;
    struct err e = {0};
    train_ok(&f, "a", NULL);
    train_ok(&f, "b", KEYS("run.threads=2"));
    same_metrics(&f, "a", "b", 8);
    same_file(&f, "a", "b", "checkpoints/step-00000008/boxes-00000.safetensors");
    char config[128], dir[128];
    snprintf(config, sizeof config, "%s/a/config.yaml", f.dir);
    snprintf(dir, sizeof dir, "run.dir=%s/c", f.dir);
    char *keys[] = {dir};
    if (trainer_run(config, keys, 1, 1, &r, &e)) fail_msg("%s", e.text);
    same_metrics(&f, "a", "c", 8);
    train_ok(&f, "d", KEYS("run.seed=2"));
    train_ok(&f, "e", KEYS("data.seed=2"));
    struct json *a[64], *d[64], *g[64];
    assert_int_equal(read_metrics(&f, "a", a, 64) + read_metrics(&f, "d", d, 64) + read_metrics(&f, "e", g, 64), 24);
    assert_true(json_real(json_get(a[0], "loss"), 0) != json_real(json_get(d[0], "loss"), 0));
    assert_true(json_real(json_get(a[0], "loss"), 0) != json_real(json_get(g[0], "loss"), 0));
    for (int i = 0; i < 8; i++) {
        json_free(a[i]);
        json_free(d[i]);
        json_free(g[i]);
    }
    folder_close(&f);
}

static void test_metrics_fields(void **state)
{
    (void)state;
    static const char *const fields[] = {"step",   "loss",         "grad_norm", "lr",         "tokens",
                                         "step_s", "tokens_per_s", "mfu",       "peak_bytes", "skipped"};
    struct folder f;
    struct json *line[64];
    char valid[128];
    folder_open(&f);
    snprintf(valid, sizeof valid, "data.valid=%s", f.text);
    struct trainer_result r = train_ok(&f, "m", KEYS(valid, "run.eval_every=4", "run.eval_batches=2"));
    assert_int_equal(read_metrics(&f, "m", line, 64), 10); /* 8 steps, validation after 4 and 8 */
    int64_t step = 0;
    for (int i = 0; i < 10; i++) {
        if (i == 4 || i == 9) {
            double loss = json_real(json_get(line[i], "valid_loss"), -1);
            assert_true(loss > 0 && loss < 7);
            if (i == 9) assert_true(fabs(loss - r.valid_loss) < 1e-8 * loss);
            assert_null(json_get(line[i], "loss"));
        } else {
            step++;
            for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
                if (!json_get(line[i], fields[k])) fail_msg("no field %s", fields[k]);
            double want = step <= 3 ? 0.01 * (double)step / 3
                                    : 3e-5 + 0.5 * (0.01 - 3e-5) * (1 + cos(acos(-1.0) * (double)(step - 4) / 4));
            assert_true(fabs(json_real(json_get(line[i], "lr"), 0) - want) < 1e-12);
            assert_int_equal(json_int(json_get(line[i], "tokens"), -1), step * 4 * 24);
            double s = json_real(json_get(line[i], "step_s"), 0),
                   rate = json_real(json_get(line[i], "tokens_per_s"), 0);
            assert_true(s > 0 && fabs(rate * s / 96 - 1) < 1e-4);
            assert_true(json_real(json_get(line[i], "mfu"), 0) > 0 && json_real(json_get(line[i], "grad_norm"), 0) > 0);
            assert_true(json_int(json_get(line[i], "peak_bytes"), 0) > 0);
            assert_int_equal(json_int(json_get(line[i], "skipped"), -1), 0);
        }
        assert_int_equal(json_int(json_get(line[i], "step"), -1), step);
        json_free(line[i]);
    }
    folder_close(&f);
}

/* sequential: sample i is tokens [i S, i S + S] of the stream. A model that is evaluated by hand on those tokens has
 * the loss that the first step reports. */
static void test_sequential_order(void **state)
{
    (void)state;
    enum { S = 24, G = 4 };
    struct folder f;
    struct json *line[64];
    folder_open(&f);
    train_ok(&f, "seq",
             KEYS("data.order=sequential", "precision.recipe=fp32", "optimizer.lr=0", "optimizer.schedule.min_lr=0"));
    int n = read_metrics(&f, "seq", line, 64);
    size_t bytes;
    char *text = read_file(&f, ".", "text.txt", &bytes);
    struct engine_config c = {.model = {.family = MODEL_LLAMA,
                                        .layers = 2,
                                        .hidden = 32,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .head_dim = 8,
                                        .ffn = 44,
                                        .vocab = 257,
                                        .max_positions = S,
                                        .norm_eps = 1e-5,
                                        .rope_theta = 10000},
                              .dtype = DT_F32,
                              .micro = 2,
                              .seq = S,
                              .n_microbatches = 2,
                              .seed = 1,
                              .kernels = "auto",
                              .threads = 1};
    struct device *d;
    struct engine *g;
    struct err e = {0};
    assert_int_equal(device_cpu_new(&d, 1, &e), OK);
    if (engine_new(&g, &c, d, &e)) fail_msg("%s", e.text);
    engine_init(g);
    for (int s = 0; s < n; s++) { /* the learning rate is 0: the weights stay */
        int32_t tokens[S * G], targets[S * G], positions[S * G];
        for (int i = 0; i < S * G; i++) {
            tokens[i] = (unsigned char)text[s * S * G + i];
            targets[i] = (unsigned char)text[s * S * G + i + 1];
            positions[i] = i % S;
        }
        struct engine_batch b = {.tokens = tokens,
                                 .targets = targets,
                                 .positions = positions,
                                 .n = G,
                                 .n_trained = S * G};
        struct engine_report r;
        engine_evaluate(g, &b, &r);
        double loss = json_real(json_get(line[s], "loss"), 0);
        if (!(fabs(loss - r.loss) < 1e-6)) fail_msg("step %d: loss %.9g, of those tokens %.9g", s + 1, loss, r.loss);
        json_free(line[s]);
    }
    engine_free(g);
    device_free(d);
    xfree(text);
    folder_close(&f);
}

/* ---- what goes wrong ---- */
static void refused(const struct folder *f, const char *name, const char *const *keys, int code,
                    const char *const *words)
{
    struct trainer_result r;
    struct err e;
    int rc = train(f, name, keys, &r, &e);
    if (rc != code) fail_msg("%s: code %d, wanted %d: %s", name, rc, code, e.text);
    for (; *words; words++) assert_contains(e.text, *words);
}

static void test_not_finite(void **state)
{
    (void)state;
    struct folder f;
    folder_open(&f);
    train_ok(&f, "nan", KEYS("run.steps=5"));
    refused(&f, "nan",
            KEYS("optimizer.lr=1000000", "optimizer.schedule.warmup_steps=0", "precision.recipe=fp32",
                 "optimizer.weight_decay=1000000", "run.steps=300"),
            ERR_NUMERIC, KEYS("not finite", "optimizer.lr", "step ", "first seen in", "checkpoint is of step 5"));
    /* nothing of the broken state was saved, and the run goes on from what there is */
    struct json *line[320];
    int n = read_metrics(&f, "nan", line, 320);
    for (int i = 0; i < n; i++) {
        assert_int_equal(json_kind(json_get(line[i], "loss")), JSON_REAL);
        json_free(line[i]);
    }
    assert_int_equal(train_ok(&f, "nan", KEYS("run.steps=7")).first_step, 5);
    folder_close(&f);
}

static void test_other_model(void **state)
{
    (void)state;
    struct folder f;
    folder_open(&f);
    train_ok(&f, "x", KEYS("run.steps=2"));
    refused(&f, "x", KEYS("model.hidden=64"), ERR_REQUEST,
            KEYS("cannot resume", "embed.token", "[257, 32]", "[257, 64]"));
    refused(&f, "x", KEYS("model.layers=3"), ERR_REQUEST, KEYS("cannot resume", "layers.2."));
    refused(&f, "x", KEYS("model.layers=1"), ERR_REQUEST, KEYS("cannot resume", "layers.1."));
    refused(&f, "x", KEYS("model.family=gpt2", "model.kv_heads=4"), ERR_REQUEST, KEYS("cannot resume"));
    assert_int_equal(train_ok(&f, "x", KEYS("run.steps=3")).first_step, 2);
    assert_int_equal(train_ok(&f, "x", KEYS("run.steps=3", "checkpoint.resume=never")).first_step, 0);
    folder_close(&f);
}

/* A disk that takes no more: the save fails, the checkpoint before it stays whole, and room brings the run back. */
static void test_full_disk(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    struct rlimit was, tight;
    folder_open(&f);
    train_ok(&f, "full", KEYS("run.steps=4"));
    train_ok(&f, "want", KEYS("run.steps=8", "checkpoint.every=4"));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    tight = was;
    tight.rlim_cur = 100000; /* less than the boxes, more than metrics and token file */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    int rc = train(&f, "full", KEYS("run.steps=8", "checkpoint.retries=2", "checkpoint.retry_s=0.01"), &r, &e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(rc, ERR_IO);
    assert_contains(e.text, "boxes-00000.safetensors");
    assert_contains(e.text, "step-00000004");
    char *left;
    snprintf(e.text, sizeof e.text, "%s/full/checkpoints", f.dir);
    left = fs_join(e.text, "step-00000005");
    assert_false(fs_exists(left));
    xfree(left);
    struct trainer_result again = train_ok(&f, "full", KEYS("run.steps=8"));
    assert_int_equal(again.first_step, 4);
    folder_close(&f);
}

/* What a run writes beside its metrics does not end it either: it is said, waits, and at the end it is an error. */
static void test_full_disk_of_exponents(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    folder_open(&f);
    char *dir = fs_join(f.dir, "run"), *link = fs_join(dir, "exponents.jsonl"),
         *last = fs_join(dir, "checkpoints/step-00000004");
    assert_int_equal(fs_mkdirs(dir, &e), OK);
    assert_int_equal(symlink("/dev/full", link), 0);
    assert_int_equal(train(&f, "run", KEYS("run.steps=4", "run.exponents_every=1"), &r, &e), ERR_IO);
    assert_contains(e.text, "exponents.jsonl");
    assert_true(fs_exists(last));
    xfree(dir);
    xfree(link);
    xfree(last);
    folder_close(&f);
}

/* ---- memory ---- */
/* A thousand steps leave the process as large as the first hundred did. */
static void test_no_growth(void **state)
{
    (void)state;
    struct folder f;
    if (TOY_SANITIZED) skip();
    folder_open(&f);
    const char *const quiet = "run.log_every=100000";
    train_ok(&f, "grow", KEYS("run.steps=300", "checkpoint.every=50", quiet));
    size_t before = mem_rss();
    train_ok(&f, "grow", KEYS("run.steps=1300", "checkpoint.every=100", quiet));
    size_t after = mem_rss();
    if (after > before + (512 << 10)) fail_msg("resident memory grew from %zu to %zu bytes", before, after);
    folder_close(&f);
}

int main(void)
{
    setenv("LOG", "error", 0);
    signal(SIGXFSZ, SIG_IGN); /* as the program does: a file too large is an error, not the end */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume_is_bit_identical),
        cmocka_unit_test(test_runs_repeat),
        cmocka_unit_test(test_metrics_fields),
        cmocka_unit_test(test_sequential_order),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_other_model),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_full_disk_of_exponents),
        cmocka_unit_test(test_no_growth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
