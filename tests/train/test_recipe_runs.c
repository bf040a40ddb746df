/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices untouchable */
/* Recipes of fewer bits in whole runs: going on with another one, and what is not finite. */
#include "runs.h"

#define FEW "checkpoint.every=2", "optimizer.schedule.name=constant"

static void refused(const struct folder *f, const char *name, const char *const *keys, const char *const *says)
{
    struct trainer_result r;
    struct err e;
    uint64_t before = tree(f, name);
    if (train(f, name, keys, &r, &e) != ERR_REQUEST) fail_msg("code %d: %s", e.code, e.text);
    for (; *says; says++) assert_contains(e.text, *says);
    assert_true(tree(f, name) == before);
}

/* Histories that a checkpoint does not have are refused by name, whatever is allowed; what is advised goes on. A run
 * that needs none leaves them behind. */
static void test_another_recipe(void **state)
{
    (void)state;
    struct folder f;
    char from[200];
    folder_open(&f);
    snprintf(from, sizeof from, "model.from=%s/a/checkpoints/step-00000002", f.dir);
    train_ok(&f, "a", KEYS(FEW, "run.steps=2"));
    const char *const says[] = {"cannot resume from",
                                "with fp8-delayed: it is of a run in bf16 and has no histories of largest values",
                                "choose precision.recipe: fp8-current", from, NULL};
    refused(&f, "a", KEYS(FEW, "run.steps=4", "precision.recipe=fp8-delayed"), says);
    refused(&f, "a", KEYS(FEW, "run.steps=4", "precision.recipe=fp8-delayed", "checkpoint.allow_changes=all"), says);
    refused(&f, "a", KEYS(FEW, "run.steps=4", "precision.layers={\"layers.0.*\":fp8-delayed}"), says);
    assert_int_equal(train_ok(&f, "b", KEYS(FEW, "run.steps=2", "precision.recipe=fp8-delayed", from)).first_step, 0);
    assert_int_equal(train_ok(&f, "a", KEYS(FEW, "run.steps=4", "precision.recipe=fp8-current")).first_step, 2);

    refused(&f, "b", KEYS(FEW, "run.steps=4", "precision.recipe=fp8-delayed", "precision.history=3", from),
            KEYS("histories of 16 steps", "precision.history is 3"));
    assert_int_equal(train_ok(&f, "b", KEYS(FEW, "run.steps=4", "precision.layers={\"layers.0.*\":fp8-delayed}", from))
                         .first_step,
                     2);
    assert_int_equal(train_ok(&f, "b", KEYS(FEW, "run.steps=6", "precision.recipe=bf16", from)).first_step, 4);
    const char *const again[] = {"it is of a run in bf16", NULL};
    refused(&f, "b", KEYS(FEW, "run.steps=8", "precision.recipe=fp8-delayed", from), again);
    folder_close(&f);
}

/* ---- what is not finite ---- */
static const enum recipe recipes[] = {RECIPE_FP8_DELAYED, RECIPE_FP8_CURRENT, RECIPE_FP8_BLOCK, RECIPE_MXFP8,
                                      RECIPE_NVFP4};
enum { N_RECIPES = sizeof recipes / sizeof *recipes };

/* One element behind the activation of layer 1 (x of a product), or its gradient (dy of another), is broken. */
struct plant {
    enum kernel_phase phase;
    bool done;
};

static void plant(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    struct plant *n = ctx;
    if (n->done || c->op != OP_ACT || c->phase != n->phase || p->tape->nodes[i->node].layer != 1) return;
    const struct view *v = c->phase == KERNEL_FWD ? &c->out[0] : &c->din[0];
    n->done = true;
    ((bf16 *)device_here((void *)(uintptr_t)v->p))[3] = bf16_from_f32(NAN);
}

static struct engine_config config_of(enum recipe r)
{
    static const struct recipe_choice all[N_RECIPES] = {{"layers.*", RECIPE_FP8_DELAYED},
                                                        {"layers.*", RECIPE_FP8_CURRENT},
                                                        {"layers.*", RECIPE_FP8_BLOCK},
                                                        {"layers.*", RECIPE_MXFP8},
                                                        {"layers.*", RECIPE_NVFP4}};
    struct engine_config c = toy_config(MODEL_LLAMA, DT_BF16);
    int k = 0;
    while (recipes[k] != r) k++;
    c.precision = (struct recipe_config){.recipe = r, .choice = &all[k], .n_choices = 1, .history = 4};
    return c;
}

/* A NaN in one operand is no number of the format's: it reaches the loss, from dy the gradients; and the next step is
 * that of a model that never saw it. */
static void test_planted(void **state)
{
    (void)state;
    for (int v = 0; v < 2 * N_RECIPES; v++) {
        struct engine_config c = config_of(recipes[v / 2]);
        struct plant n = {v & 1 ? KERNEL_BWD_IN : KERNEL_FWD, false};
        struct engine_report r;
        struct toy t;
        toy_open(&t, &c);
        assert_true(engine_step(t.g, &t.batch, 0, 1e-2, &r));
        t.g->watch = plant;
        t.g->watch_ctx = &n;
        assert_false(engine_step(t.g, &t.batch, 1, 1e-2, &r));
        assert_true(n.done && !isfinite(r.grad_norm));
        if (isfinite(r.loss) != (v & 1)) fail_msg("%s: loss %g", recipe_row(recipes[v / 2])->name, r.loss);
        t.g->watch = NULL;
        assert_true(engine_step(t.g, &t.batch, 1, 1e-2, &r));
        toy_close(&t);
    }
}

static void fill(struct toy *t, const char *param, float with)
{
    int w = param_find(&t->g->params, param);
    float *v = xmalloc(to_size(t->g->params.p[w].numel) * sizeof *v);
    for (int64_t i = 0; i < t->g->params.p[w].numel; i++) v[i] = with;
    store_write(&t->g->store, &t->g->kernels, t->g->stream, w, STORE_MASTER, v);
    xfree(v);
}

/* Who is named: what put an infinity out that was rounded then, and the product of finite operands that overflows. */
static void test_blamed(void **state)
{
    (void)state;
    for (int v = 0; v < N_RECIPES; v++) {
        struct engine_config c = config_of(recipes[v]);
        struct engine_report r;
        struct toy t;
        char what[256];
        toy_open(&t, &c);
        fill(&t, "layers.1.norm2.weight", 3e38f);
        assert_false(engine_step(t.g, &t.batch, 0, 1e-2, &r));
        engine_blame(t.g, &t.batch, 0, what, sizeof what);
        if (!strstr(what, "norm") || !strstr(what, "forward, layer 1)"))
            fail_msg("%s: %s", recipe_row(recipes[v])->name, what);
        if (recipes[v] == RECIPE_FP8_DELAYED) { /* what is finite and larger than in earlier steps saturates */
            toy_close(&t);
            continue;
        }
        fill(&t, "layers.1.norm2.weight", 1e5f);
        fill(&t, "layers.1.mlp.up.weight", 2e38f);
        assert_false(engine_step(t.g, &t.batch, 0, 1e-2, &r));
        engine_blame(t.g, &t.batch, 0, what, sizeof what);
        if (!strstr(what, "operation linear_scaled, forward, layer 1)"))
            fail_msg("%s: %s", recipe_row(recipes[v])->name, what);
        toy_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_another_recipe), cmocka_unit_test(test_planted),
                                       cmocka_unit_test(test_blamed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
