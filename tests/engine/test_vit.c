/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* ViT against the transformers library (tests/golden/make_vit.py): its directory is read, logits, loss, what was right
 * and ten steps are its own; written again, it holds the same numbers. And what is refused. */
#include "encoder.h"

enum { B = 5, CLASSES = 7, PIXELS = 3 * 15 * 15 };

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

static void test_ten_steps(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct golden_case c;
        open_case(&c);
        struct engine_batch b = {.pixels = c.pixels, .label = c.label, .n = B};
        encoder_ten_steps(&c.m, c.m.seq_len, c.w, b, c.root, k ? "auto" : "ref");
        close_case(&c);
    }
}

static double loss_of(struct golden_case *c)
{
    struct device *d;
    struct engine_report r;
    struct err e = {0};
    struct engine_batch b = {.pixels = c->pixels, .label = c->label, .n = B, .n_trained = B - 1};
    assert_int_equal(device_cpu_new(&d, 1, &e), OK);
    struct engine *g = encoder_engine(&c->m, c->m.seq_len, c->w, d, "ref");
    engine_evaluate(g, &b, &r);
    engine_free(g);
    device_free(d);
    return r.loss;
}

/* What a config may choose is another model: layouts of it are held against itself only. */
static void test_choices(void **state)
{
    (void)state;
    struct golden_case c;
    struct param_table with = {0}, without = {0};
    open_case(&c);
    double usual = loss_of(&c);
    c.m.pool = POOL_MEAN;
    double mean = loss_of(&c);
    assert_true(fabs(mean - usual) > 1e-3);
    model_declare(&c.m, NULL, &with);
    c.m.qkv_bias = false;
    model_declare(&c.m, NULL, &without);
    assert_int_equal(with.n - without.n, 3 * c.m.layers);
    assert_true(param_find(&without, "layers.0.attn.q.bias") < 0);
    param_table_free(&with);
    param_table_free(&without);
    close_case(&c);
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
    struct weights *again = hf_again(c.w, &h, out);
    assert_int_equal(weights_model(again, &read, &e), OK);
    assert_true(read.model.classes == CLASSES && read.model.norm_eps == 1e-12 && read.model.qkv_bias &&
                read.model.act == 0 && read.model.image_size == 15 && read.model.patch_size == 5);
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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) encoder_refused(TOY, cases[i][0], cases[i][1]);
}

/* Odd sizes over every axis: ten places, of which no number of ranks has as many as another; a microbatch of three
 * pictures, or of one, which the ranks of cp share out. */
static void test_layouts(void **state)
{
    (void)state;
    static const char *const variants[] = {"model.pool=mean batch.micro=1", "model.dropout=0.1 model.qkv_bias=false",
                                           "numerics.exact_order=true model.act=gelu_pytorch_tanh"};
    for (size_t i = 0; i < (TOY_SANITIZED ? 1 : sizeof variants / sizeof *variants); i++)
        encoder_verify(TOY, variants[i], i ? 2 : 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ten_steps), cmocka_unit_test(test_choices),
                                       cmocka_unit_test(test_export), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_layouts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
