/* SPDX-License-Identifier: Apache-2.0 */
/* ViT against the transformers library (tests/golden/make_vit.py): its directory is read, logits, loss, what was right
 * and ten steps are its own; written again, it holds the same numbers. And what is refused. */
#include "toy.h"

#include "base/fs.h"
#include "base/json.h"
#include "config/config.h"
#include "config/start_weights.h"
#include "golden/golden.h"
#include "scratch.h"
#include "verify/verify.h"

enum { B = 5, CLASSES = 7, PIXELS = 3 * 15 * 15 };
#define GOLDEN TEST_DIR "/golden/"

struct golden_case {
    struct json *root;
    struct golden batch;
    const float *pixels, *logits;
    const int32_t *label;
    struct weights *w;
    struct model_config m;
};

static void open_case(struct golden_case *c)
{
    struct err e = {0};
    struct hf_model h;
    memset(c, 0, sizeof *c);
    if (json_parse_file(&c->root, GOLDEN "vit.json", 1 << 20, &e)) fail_msg("%s", e.text);
    if (golden_open(&c->batch, GOLDEN "vit_batch.safetensors", &e)) fail_msg("%s", e.text);
    if (weights_open(&c->w, GOLDEN "vit", &e)) fail_msg("%s", e.text);
    if (weights_model(c->w, &h, &e)) fail_msg("%s", e.text);
    c->m = h.model;
    assert_int_equal(model_pixels(&c->m), PIXELS);
    assert_int_equal(c->m.seq_len, 10);
    assert_int_equal(c->m.classes, CLASSES);
    c->pixels = golden_f32(&c->batch, "pixels", (int64_t)B * PIXELS);
    c->label = golden_i32(&c->batch, "label", B);
    c->logits = golden_f32(&c->batch, "logits", (int64_t)B * CLASSES);
    assert_true(c->pixels && c->label && c->logits);
}

static void close_case(struct golden_case *c)
{
    weights_close(c->w);
    golden_close(&c->batch);
    json_free(c->root);
}

static struct engine *engine_of(struct golden_case *c, struct device *d, const char *kernels)
{
    struct engine *g;
    struct err e = {0};
    struct engine_config x =
        {.model = c->m,
         .dtype = DT_F32,
         .micro = 2, /* three microbatches, of which the last does not fill up */
         .seq = c->m.seq_len,
         .n_microbatches = 3,
         .training = true,
         .optim = {.kind = OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1},
         .kernels = kernels,
         .threads = 1};
    if (engine_new(&g, &x, d, &e)) fail_msg("%s", e.text);
    for (int s = 0; s < g->n_stages; s++) program_check(g->stage[s].train);
    if (source_load(&g->store, &g->kernels, g->stream, c->w, &e)) fail_msg("%s", e.text);
    return g;
}

static void near(double got, double want, double bound, const char *what, int step)
{
    if (!(fabs(got - want) <= bound * fabs(want))) fail_msg("%s of step %d: %.9g, wanted %.9g", what, step, got, want);
}

static void test_ten_steps(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct golden_case c;
        struct device *d;
        struct engine_report r;
        struct err e = {0};
        open_case(&c);
        assert_int_equal(device_cpu_new(&d, 1, &e), OK);
        struct engine *g = engine_of(&c, d, k ? "auto" : "ref");
        struct engine_batch b = {.pixels = c.pixels, .label = c.label, .n = B};
        b.n_trained = json_int(json_get(c.root, "trained"), -1);
        engine_evaluate(g, &b, &r);
        assert_int_equal((int64_t)r.right, json_int(json_get(c.root, "right"), -1));
        for (int s = 0; s < 10; s++) {
            assert_true(engine_step(g, &b, s, 1e-3, &r));
            near(r.loss, json_real(json_at(json_get(c.root, "losses"), (size_t)s), NAN), 1e-6, "loss", s);
            near(r.grad_norm, json_real(json_at(json_get(c.root, "grad_norms"), (size_t)s), NAN), 1e-5, "norm", s);
        }
        engine_evaluate(g, &b, &r);
        near(r.loss, json_real(json_get(c.root, "final_loss"), NAN), 1e-6, "loss", 10);
        engine_free(g);
        device_free(d);
        close_case(&c);
    }
}

static int get_param(void *ctx, const char *name, const struct region *box, enum dtype as, void *dst, struct err *e)
{
    struct weights *w = ctx;
    return weights_read(w, weights_find(w, "param", name), box, as, dst, e);
}

static void test_export(void **state)
{
    (void)state;
    struct golden_case c;
    struct err e = {0};
    open_case(&c);
    struct hf_model h = source_hf_model(&c.m, -1, -1), read;
    char *dir = scratch_new(), out[64], *a, *b;
    size_t n_a, n_b;
    snprintf(out, sizeof out, "%s/out", dir);
    struct hf_export x = {.model = &h, .dtype = DT_F32, .get = get_param, .ctx = c.w};
    if (hf_export(out, &x, &e)) fail_msg("%s", e.text);
    struct weights *again;
    if (weights_open(&again, out, &e)) fail_msg("%s", e.text);
    assert_int_equal(weights_model(again, &read, &e), OK);
    assert_true(read.model.classes == CLASSES && read.model.norm_eps == 1e-12 && read.model.qkv_bias &&
                read.model.act == 0 && read.model.image_size == 15 && read.model.patch_size == 5);
    assert_int_equal(weights_count(again), weights_count(c.w));
    for (int64_t i = 0; i < weights_count(again); i++) {
        struct ckpt_entry t = weights_at(again, i);
        struct region whole = region_whole(&t.shape);
        size_t bytes = (size_t)region_volume(&whole) * sizeof(float);
        float *p = xmalloc(bytes), *q = xmalloc(bytes);
        assert_int_equal(weights_read(again, i, &whole, DT_F32, p, &e), OK);
        assert_int_equal(get_param(c.w, t.name, &whole, DT_F32, q, &e), OK);
        assert_memory_equal(p, q, bytes);
        xfree(p);
        xfree(q);
    }
    /* Names, shapes and order in the file are theirs too: the header says all of it. */
    assert_int_equal(fs_read_all(GOLDEN "vit/model.safetensors", 1 << 20, &a, &n_a, &e), OK);
    snprintf(out, sizeof out, "%s/out/model.safetensors", dir);
    assert_int_equal(fs_read_all(out, 1 << 20, &b, &n_b, &e), OK);
    static const char *const shapes[] =
        {"\"vit.embeddings.cls_token\":{\"dtype\":\"F32\",\"shape\":[1,1,30]",
         "\"vit.embeddings.position_embeddings\":{\"dtype\":\"F32\",\"shape\":[1,10,30]",
         "projection.weight\":{\"dtype\":\"F32\",\"shape\":[30,3,5,5]"};
    for (int i = 0; i < 3; i++) {
        assert_non_null(strstr(a + 8, shapes[i]));
        if (!strstr(b + 8, shapes[i])) fail_msg("no %s in what was written: %.300s", shapes[i], b + 8);
    }
    xfree(a);
    xfree(b);
    h.model.pool = POOL_MEAN;
    assert_int_equal(hf_config_expressible(&h, &e), ERR_REQUEST);
    assert_contains(e.text, "model.pool");
    weights_close(again);
    close_case(&c);
    scratch_free(dir);
}

/* ---- configs ---- */
#define TOY                                                                                                            \
    "model.family=vit model.layers=2 model.hidden=24 model.heads=2 model.ffn=40 model.image_size=12 "                  \
    "model.patch_size=4 model.channels=2 model.classes=5 batch.global=6 batch.micro=3 run.threads=1 "                  \
    "comm.timeout_s=60 precision.recipe=fp32 "

static int resolved(struct config *c, struct arena *a, const char *more, struct err *e)
{
    char *keys[64];
    int n = 0;
    struct conf *f;
    for (char *word = strtok(arena_printf(a, TOY "%s", more), " "); word; word = strtok(NULL, " ")) keys[n++] = word;
    int rc = config_load(c, &f, a, NULL, keys, n, e);
    return rc ? rc : config_resolve(c, f, 0, 1, e);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"model.patch_size=5",
         "model.patch_size: 5 does not divide model.image_size = 12, and pixels at the edges would be in "
         "no patch; the nearest that does is 4"},
        {"model.classes=null", "model.classes: vit wants to know"},
        {"model.classes=1", "model.classes"},
        {"model.seq_len=12", "model.seq_len: 12, but a picture has 10 places"},
        {"model.kv_heads=1", "model.kv_heads: 1, but vit has as many as model.heads = 2"},
        {"model.tie_embeddings=true", "model.tie_embeddings: vit has no table"},
        {"model.moe.experts=4", "vit has no experts"},
        {"model.mla.kv_rank=4", "latent attention"},
        {"model.image_size=65536 model.patch_size=1", "more than 2^24"},
        {"model.document_mask=true", "model.document_mask: vit sees one picture"},
        {"run.sample_every=5", "run.sample_every: a model that sees pictures"},
        {"model.image_size=0", "model.image_size"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_new();
        struct config c;
        struct err e = {0};
        if (resolved(&c, a, cases[i][0], &e) != ERR_REQUEST) fail_msg("%s: not refused", cases[i][0]);
        if (!strstr(e.text, cases[i][1])) fail_msg("%s: %s", cases[i][0], e.text);
        arena_free(a);
    }
}

/* Odd sizes over every axis: ten places, of which no number of ranks has as many as another; a microbatch of three
 * pictures, or of one, which the ranks of cp share out. */
static void test_layouts(void **state)
{
    (void)state;
    static const char *const variants[] = {"model.pool=mean batch.micro=1", "model.dropout=0.1 model.qkv_bias=false",
                                           "numerics.exact_order=true model.act=gelu_pytorch_tanh"};
    for (size_t i = 0; i < (TOY_SANITIZED ? 1 : sizeof variants / sizeof *variants); i++) {
        struct arena *a = arena_new();
        struct config c;
        struct verify v;
        struct err e = {0};
        struct str out = {0};
        if (resolved(&c, a, variants[i], &e)) fail_msg("%s", e.text);
        if (verify_run(&v, &c, i ? 2 : 3, VERIFY_ALL, 2, &e)) fail_msg("%s: %s", variants[i], e.text);
        verify_print(&v, &out);
        if (!v.ok) fail_msg("%s:\n%s", variants[i], str_text(&out));
        str_free(&out);
        verify_free(&v);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ten_steps), cmocka_unit_test(test_export),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_layouts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
