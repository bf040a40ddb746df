/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* BERT against the transformers library (tests/golden/make_bert.py), with both heads: its directories are read, loss,
 * what was right and ten steps are its own; written again they hold the same numbers. What is refused; layouts;
 * batches. */
#include "encoder.h"

#include "data/dataset.h"

enum { B = 5, SEQ = 11 };

static const char *const names[2] = {"bert", "bert_told"};

static void open_case(struct encoder_case *c)
{
    encoder_case_open(c, "bert", names);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(c->m[k].types, 3);
        assert_int_equal(c->m[k].classes, k ? 4 : 0);
        assert_int_equal(c->m[k].tie_embeddings, !k);
    }
}

static void test_ten_steps(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct encoder_case c;
        bool told = k & 1;
        int32_t targets[B * SEQ], positions[B * SEQ];
        open_case(&c);
        const int32_t *label = golden_i32(&c.batch, "label", B), *hidden = golden_i32(&c.batch, "hidden", B * SEQ);
        struct engine_batch b = {.tokens = golden_i32(&c.batch, "tokens", B * SEQ),
                                 .segments = golden_i32(&c.batch, "segments", B * SEQ),
                                 .targets = targets,
                                 .positions = positions,
                                 .n = B};
        assert_true(b.tokens && b.segments && label && hidden);
        for (int i = 0; i < B * SEQ; i++) {
            positions[i] = i % SEQ;
            targets[i] = !told ? hidden[i] : i % SEQ ? -1 : label[i / SEQ];
        }
        encoder_ten_steps(&c.m[told], SEQ, c.w[told], b, json_get(c.root, names[told]), k / 2 ? "auto" : "ref");
        encoder_case_close(&c);
    }
}

/* The file's header with the names of early files, which are as long. */
static void rename_norms(char *header)
{
    static const char *const pairs[2][2] = {{"LayerNorm.weight\"", "LayerNorm.gamma\" "},
                                            {"LayerNorm.bias\"", "LayerNorm.beta\""}};
    for (int i = 0; i < 2; i++) {
        int n = 0;
        for (char *at = header; (at = strstr(at, pairs[i][0])); n++) memcpy(at, pairs[i][1], strlen(pairs[i][1]));
        assert_true(n >= 5);
    }
}

static void test_export(void **state)
{
    (void)state;
    static const char *const theirs[2][2] = {{"\"BertForMaskedLM\"", "\"cls.predictions.bias\""},
                                             {"\"BertForSequenceClassification\"", "\"bert.pooler.dense.weight\""}};
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
        assert_true(read.model.types == 3 && read.model.classes == (k ? 4 : 0) && read.model.max_positions == 13 &&
                    read.model.norm_eps == 1e-12 && read.model.tie_embeddings == !k);
        snprintf(path, sizeof path, "%s/config.json", out);
        assert_int_equal(fs_read_all(path, 1 << 20, &text, &n, &e), OK);
        assert_contains(text, theirs[k][0]);
        xfree(text);
        snprintf(path, sizeof path, "%s/model.safetensors", out);
        assert_int_equal(fs_read_all(path, 1 << 20, &text, &n, &e), OK);
        assert_contains(text + 8, theirs[k][1]);
        weights_close(again);
        rename_norms(text + 8);
        assert_int_equal(fs_write_atomic(path, text, n, &e), OK);
        xfree(text);
        if (weights_open(&again, out, &e)) fail_msg("%s", e.text);
        assert_int_equal(weights_count(again), weights_count(c.w[k]));
        weights_close(again);
        scratch_free(dir);
    }
    encoder_case_close(&c);
}

/* ---- configs ---- */
#define TOY                                                                                                            \
    "model.family=bert model.layers=2 model.hidden=24 model.heads=2 model.ffn=40 model.vocab=67 model.seq_len=10 "     \
    "model.types=3 batch.global=6 batch.micro=3 run.threads=1 comm.timeout_s=60 precision.recipe=fp32 "

static void test_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"model.kv_heads=1", "model.kv_heads: 1, but bert has as many as model.heads = 2"},
        {"model.classes=1", "model.classes"},
        {"model.classes=3 model.tie_embeddings=true", "model.tie_embeddings: a model that tells classes"},
        {"model.moe.experts=4", "bert has no experts"},
        {"model.mla.kv_rank=4", "latent attention"},
        {"run.sample_every=5", "run.sample_every: bert reads both ways"},
        {"data.fim.rate=0.5", "data.fim.rate: is of models that write"},
        {"data.mlm.mask=0.8 data.mlm.random=0.3", "data.mlm.mask: 0.8, with data.mlm.random 0.3"},
        {"data.mlm.id=67", "data.mlm.id: 67 is not among model.vocab = 67"},
        {"data.begin=CLS", "only a model that tells classes of texts reads it"},
        {"model.classes=3 data.mlm.rate=0.2", "data.mlm.rate: has no effect: only a model that tells hidden tokens"},
        {"model.classes=3 data.pack=best_fit", "data.pack: a sample of a model that tells classes is one text"},
        {"model.classes=3 data.parts=2", "data.parts: a sample of a model that tells classes is one text"},
        {"data.pack=padded model.document_mask=false", "model.document_mask: false, but with data.pack: padded places"},
        {"model.family=llama model.types=1 data.mlm.rate=0.1",
         "data.mlm.rate: has no effect: only a model that tells hidden tokens"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) encoder_refused(TOY, cases[i][0], cases[i][1]);
}

/* Both heads, tied or not, over every axis; ten places, of which no number of ranks but two and five has as many as
 * another; documents that see nothing but themselves, both ways. */
static void test_layouts(void **state)
{
    (void)state;
    static const char *const variants[] = {"model.tie_embeddings=true model.dropout=0.1",
                                           "model.classes=5 batch.micro=2",
                                           "model.document_mask=true numerics.exact_order=true",
                                           "model.classes=5 model.dropout=0.1 model.act=gelu_pytorch_tanh"};
    for (size_t i = 0; i < (TOY_SANITIZED ? 2 : sizeof variants / sizeof *variants); i++)
        encoder_verify(TOY, variants[i], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ten_steps), cmocka_unit_test(test_export),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_layouts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
