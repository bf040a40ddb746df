/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* T5 against the transformers library (tests/golden/make_t5.py, make_t5_pairs.py), as first published and 1.1: its
 * directories are read, loss and ten steps are its own, also of texts that end before their places do, distances fall
 * into its buckets; written again they hold the same numbers. What is refused; layouts. */
#include "encoder.h"

#include "kernel/buckets.h"

enum { B = 5, ENCODER = 13, SEQ = 24 };

static const char *const names[2] = {"t5", "t5_v11"};

static void open_case(struct encoder_case *c)
{
    encoder_case_open(c, "t5", names);
    for (int k = 0; k < 2; k++) {
        c->m[k].encoder_len = ENCODER;
        assert_int_equal(c->m[k].layers, 5);
        assert_int_equal(c->m[k].encoder_layers, 2);
        assert_int_equal(c->m[k].head_dim, 7);
        assert_int_equal(c->m[k].feed_forward, k ? FEED_FORWARD_GATED : FEED_FORWARD_RELU);
        assert_int_equal(c->m[k].tie_embeddings, !k);
    }
}

static void test_buckets(void **state)
{
    (void)state;
    struct encoder_case c;
    open_case(&c);
    const struct json *list = json_get(c.root, "buckets");
    assert_int_equal(json_size(list), 6);
    for (size_t i = 0; i < json_size(list); i++) {
        const struct json *one = json_at(list, i), *of = json_get(one, "of");
        struct distances_attrs a = {.most = json_int(json_get(one, "most"), -1),
                                    .both_ways = json_bool(json_get(one, "both"), false)};
        int64_t n = json_int(json_get(one, "n"), -1);
        assert_int_equal(json_size(of), 401);
        for (int64_t d = -200; d <= 200; d++)
            if (bucket_of(&a, n, d) != json_int(json_at(of, (size_t)(d + 200)), -1))
                fail_msg("list %zu, distance %d: bucket %d", i, (int)d, (int)bucket_of(&a, n, d));
    }
    encoder_case_close(&c);
}

static void test_ten_steps(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct encoder_case c;
        bool v11 = k & 1;
        int32_t positions[B * SEQ] = {0};
        open_case(&c);
        struct engine_batch b = {.tokens = golden_i32(&c.batch, "tokens", B * SEQ),
                                 .targets = golden_i32(&c.batch, "targets", B * SEQ),
                                 .positions = positions,
                                 .n = B};
        assert_true(b.tokens && b.targets);
        encoder_ten_steps(&c.m[v11], SEQ, c.w[v11], b, json_get(c.root, names[v11]), k / 2 ? "auto" : "ref");
        encoder_case_close(&c);
    }
}

/* Pairs of texts of different lengths: what is behind an end is seen by nobody. */
static void test_pairs(void **state)
{
    (void)state;
    struct golden g;
    struct json *root;
    struct err e = {0};
    if (json_parse_file(&root, GOLDEN "t5_pairs.json", 1 << 20, &e)) fail_msg("%s", e.text);
    if (golden_open(&g, GOLDEN "t5_pairs.safetensors", &e)) fail_msg("%s", e.text);
    for (int k = 0; k < 4; k++) {
        struct encoder_case c;
        bool v11 = k & 1;
        open_case(&c);
        c.m[v11].pads = true;
        struct engine_batch b = {.tokens = golden_i32(&g, "tokens", B * SEQ),
                                 .targets = golden_i32(&g, "targets", B * SEQ),
                                 .positions = golden_i32(&g, "positions", B * SEQ),
                                 .n = B};
        assert_true(b.tokens && b.targets && b.positions);
        encoder_ten_steps(&c.m[v11], SEQ, c.w[v11], b, json_get(root, names[v11]), k / 2 ? "auto" : "ref");
        encoder_case_close(&c);
    }
    golden_close(&g);
    json_free(root);
}

static void test_export(void **state)
{
    (void)state;
    static const char *const theirs[2][4] = {{"\"relu\"", "\"num_decoder_layers\": 3", "\"tie_word_embeddings\": true",
                                              "\"num_layers\": 2"},
                                             {"\"gated-gelu\"", "\"num_decoder_layers\": 3",
                                              "\"tie_word_embeddings\": false", "\"d_kv\": 7"}};
    struct encoder_case c;
    open_case(&c);
    for (int k = 0; k < 2; k++) {
        struct err e = {0};
        struct hf_model h = source_hf_model(&c.m[k], -1, -1), read;
        char *dir = scratch_new(), out[64], path[96], *text;
        size_t n;
        snprintf(out, sizeof out, "%s/out", dir);
        struct weights *again = hf_again(c.w[k], &h, out);
        assert_int_equal(weights_model(again, &read, &e), OK);
        assert_true(read.model.layers == 5 && read.model.encoder_layers == 2 && read.model.buckets == 8 &&
                    read.model.distance == 9 && read.model.norm_eps == 1e-6 && read.model.tie_embeddings == !k);
        snprintf(path, sizeof path, "%s/config.json", out);
        assert_int_equal(fs_read_all(path, 1 << 20, &text, &n, &e), OK);
        for (int i = 0; i < 4; i++) assert_contains(text, theirs[k][i]);
        xfree(text);
        weights_close(again);
        scratch_free(dir);
    }
    encoder_case_close(&c);
}

/* ---- configs ---- */
#define TOY                                                                                                            \
    "model.family=t5 model.layers=3 model.encoder_layers=1 model.hidden=24 model.heads=4 model.head_dim=5 "            \
    "model.ffn=40 model.vocab=67 model.seq_len=20 model.buckets=8 model.distance=9 batch.global=6 batch.micro=3 "      \
    "run.threads=1 comm.timeout_s=60 precision.recipe=fp32 "

static void test_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"model.kv_heads=2", "model.kv_heads: 2, but t5 has as many as model.heads = 4"},
        {"model.encoder_layers=3", "model.encoder_layers: 3 of model.layers = 3; encoder and decoder want one each"},
        {"model.layers=1 model.encoder_layers=0", "model.encoder_layers: 0 of model.layers = 1"},
        {"model.buckets=9", "model.buckets: 9, half of which"},
        {"model.distance=4", "model.distance: 4 is not beyond the distances"},
        {"model.document_mask=true", "model.document_mask: a span"},
        {"model.seq_len=5", "model.seq_len: 5 places hold no text"},
        {"model.encoder_len=19", "model.encoder_len: 19: no text leaves the encoder so many tokens"},
        {"model.moe.experts=4", "t5 has no experts"},
        {"parallel.chunks=2", "parallel.chunks: cuts the layers into stages"},
        {"data.fim.rate=0.5", "data.fim.rate: is of models that write on"},
        {"data.pack=best_fit", "data.pack: spans are taken out of joined documents"},
        {"data.parts=2", "data.parts: spans are taken out of samples of one part"},
        {"data.spans.id=67", "data.spans.id: 67 is not among model.vocab = 67"},
        {"data.spans.start=67", "data.spans.start: 67 is not among model.vocab = 67"},
        {"data.train=[{\"path\":\"x\",\"target\":\"y\"}] data.spans.rate=0.2",
         "data.spans.rate: no spans are taken out of pairs"},
        {"data.train=[{\"path\":\"x\",\"target\":\"y\"},z]",
         "data.train: z is one text a record, and other sources are pairs"},
        {"data.train=[x] data.valid=[{\"path\":\"y\",\"target\":\"z\"}]",
         "data.valid: y is pairs of texts, and data.train has texts"},
        {"data.train=[{\"path\":\"x\",\"target\":\"y\"}] model.encoder_len=19",
         "model.encoder_len: 19 of model.seq_len = 20 places"},
        {"data.train=[{\"path\":\"x\",\"target\":\"y\"}] data.pack=padded", "data.pack: a sample is one pair of texts"},
        {"data.cut_pairs=true", "data.cut_pairs: no source is pairs of texts"},
        {"model.family=llama model.head_dim=6 data.train=[{\"path\":\"x\",\"target\":\"y\"}]",
         "data.train: target is of a model of"},
        {"data.mlm.rate=0.2", "data.mlm.rate: has no effect: only a model that tells hidden tokens"},
        {"model.family=llama model.head_dim=6 data.spans.rate=0.2", "only a model of encoder and decoder reads it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) encoder_refused(TOY, cases[i][0], cases[i][1]);
}

/* Both kinds over every axis that there is; one head on one of two ranks, dropout in all its places. */
static void test_layouts(void **state)
{
    (void)state;
    static const char *const variants[] = {"model.tie_embeddings=true model.feed_forward=relu model.dropout=0.1",
                                           "batch.micro=2 numerics.exact_order=true model.layers=4 "
                                           "model.encoder_layers=2",
                                           "data.train=[{\"path\":\"x\",\"target\":\"y\"}] model.dropout=0.1"};
    for (size_t i = TOY_SANITIZED ? 2 : 0; i < (sizeof variants / sizeof *variants); i++)
        encoder_verify(TOY, variants[i], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_buckets), cmocka_unit_test(test_ten_steps),
                                       cmocka_unit_test(test_pairs),   cmocka_unit_test(test_export),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_layouts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
