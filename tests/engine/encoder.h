/* SPDX-License-Identifier: Apache-2.0 */
/* encoder.h: what the tests of models that see both ways share (ViT, BERT): an engine with weights of the transformers
 * library, its ten AdamW steps, configs on layouts. */
#ifndef TUTTI_TESTS_ENGINE_ENCODER_H
#define TUTTI_TESTS_ENGINE_ENCODER_H

#include "toy.h"

#include "base/fs.h"
#include "base/json.h"
#include "config/config.h"
#include "config/start_weights.h"
#include "golden/golden.h"
#include "hf_again.h"
#include "scratch.h"
#include "verify/verify.h"

#define GOLDEN TEST_DIR "/golden/"

/* What the library's two models of a family were given and gave: tests/golden/NAME.json, NAME_batch.safetensors, and
 * each model's directory. */
struct encoder_case {
    struct json *root;
    struct golden batch;
    struct weights *w[2];
    struct model_config m[2];
};

static inline void encoder_case_open(struct encoder_case *c, const char *name, const char *const models[2])
{
    struct err e = {0};
    char path[256];
    memset(c, 0, sizeof *c);
    snprintf(path, sizeof path, GOLDEN "%s.json", name);
    if (json_parse_file(&c->root, path, 1 << 20, &e)) fail_msg("%s", e.text);
    snprintf(path, sizeof path, GOLDEN "%s_batch.safetensors", name);
    if (golden_open(&c->batch, path, &e)) fail_msg("%s", e.text);
    for (int k = 0; k < 2; k++) {
        struct hf_model h;
        snprintf(path, sizeof path, GOLDEN "%s", models[k]);
        if (weights_open(&c->w[k], path, &e) || weights_model(c->w[k], &h, &e)) fail_msg("%s", e.text);
        c->m[k] = h.model;
    }
}

static inline void encoder_case_close(struct encoder_case *c)
{
    for (int k = 0; k < 2; k++) weights_close(c->w[k]);
    golden_close(&c->batch);
    json_free(c->root);
}

/* Three microbatches of two sequences, for five of them: the last does not fill up. */
static inline struct engine *encoder_engine(const struct model_config *m, int64_t seq, struct weights *w,
                                            struct device *d, const char *kernels)
{
    struct engine *g;
    struct err e = {0};
    struct engine_config x =
        {.model = *m,
         .dtype = DT_F32,
         .micro = 2,
         .seq = seq,
         .n_microbatches = 3,
         .training = true,
         .optim = {.kind = OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1},
         .kernels = kernels,
         .threads = 1};
    if (engine_new(&g, &x, d, &e)) fail_msg("%s", e.text);
    for (int s = 0; s < g->n_stages; s++) program_check(g->stage[s].train);
    if (source_load(&g->store, &g->kernels, g->stream, w, &e)) fail_msg("%s", e.text);
    return g;
}

static inline void encoder_near(double got, double want, double bound, const char *what, int step)
{
    if (!(fabs(got - want) <= bound * fabs(want))) fail_msg("%s of step %d: %.9g, wanted %.9g", what, step, got, want);
}

/* The library's ten steps; case_: its object in the stored results. Tells classes: how many are right before them. */
static inline void encoder_ten_steps(const struct model_config *m, int64_t seq, struct weights *w,
                                     struct engine_batch b, const struct json *case_, const char *kernels)
{
    struct device *d;
    struct engine_report r;
    struct err e = {0};
    assert_int_equal(device_cpu_new(&d, 1, &e), OK);
    struct engine *g = encoder_engine(m, seq, w, d, kernels);
    double lr = json_real(json_get(case_, "lr"), 1e-3);
    b.n_trained = json_int(json_get(case_, "trained"), -1);
    engine_evaluate(g, &b, &r);
    if (model_tells(m)) assert_int_equal((int64_t)r.right, json_int(json_get(case_, "right"), -1));
    for (int s = 0; s < 10; s++) {
        assert_true(engine_step(g, &b, s, lr, &r));
        encoder_near(r.loss, json_real(json_at(json_get(case_, "losses"), (size_t)s), NAN), 1e-6, "loss", s);
        encoder_near(r.grad_norm, json_real(json_at(json_get(case_, "grad_norms"), (size_t)s), NAN), 1e-5, "norm", s);
    }
    engine_evaluate(g, &b, &r);
    encoder_near(r.loss, json_real(json_get(case_, "final_loss"), NAN), 1e-6, "loss", 10);
    engine_free(g);
    device_free(d);
}

/* A config of these keys, and more. */
static inline int encoder_config(struct config *c, struct arena *a, const char *toy, const char *more, struct err *e)
{
    char *keys[64];
    int n = 0;
    struct conf *f;
    for (char *word = strtok(arena_printf(a, "%s%s", toy, more), " "); word; word = strtok(NULL, " ")) keys[n++] = word;
    int rc = config_load(c, &f, a, NULL, keys, n, e);
    return rc ? rc : config_resolve(c, f, 0, 1, e);
}

static inline void encoder_refused(const char *toy, const char *more, const char *why)
{
    struct arena *a = arena_new();
    struct config c;
    struct err e = {0};
    if (encoder_config(&c, a, toy, more, &e) != ERR_REQUEST) fail_msg("%s: not refused", more);
    if (!strstr(e.text, why)) fail_msg("%s: %s", more, e.text);
    arena_free(a);
}

/* Every layout of up to n ranks against one. */
static inline void encoder_verify(const char *toy, const char *more, int n)
{
    struct arena *a = arena_new();
    struct config c;
    struct verify v;
    struct err e = {0};
    struct str out = {0};
    if (encoder_config(&c, a, toy, more, &e)) fail_msg("%s", e.text);
    if (verify_run(&v, &c, n, VERIFY_ALL, 2, &e)) fail_msg("%s: %s", more, e.text);
    verify_print(&v, &out);
    if (!v.ok) fail_msg("%s:\n%s", more, str_text(&out));
    str_free(&out);
    verify_free(&v);
    arena_free(a);
}

#endif
