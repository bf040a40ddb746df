/* SPDX-License-Identifier: Apache-2.0 */
/* What an encoder of text is trained on: hidden tokens against the same samples unhidden, in what shares, the same for
 * any split of a batch, others in every epoch; and texts with classes: rows, labels, segments; what is refused. */
#include "data_test.h"

#include <math.h>

#include "data/dataset.h"

enum { SEQ = 24, GLOBAL = 6, EOS = 256, MASK = 300, STEPS = 40 };

static int open_by(struct tokenizer *t, struct dataset **d, const char *path, struct dataset_options o,
                   const char *label, const char *dir, struct err *e)
{
    struct dataset_source source = {.path = path, .weight = 1, .label = label};
    o.sources = &source;
    o.n_sources = 1;
    o.tokenizer = t;
    o.seq_len = SEQ;
    o.shuffled = true;
    o.global_batch = GLOBAL;
    o.cache_dir = dir;
    return dataset_open(d, &o, e);
}

static int open_with(struct dataset **d, const char *path, struct dataset_options o, const char *label, const char *dir,
                     struct err *e)
{
    struct tokenizer *t = tokenizer_new_byte();
    int code = open_by(t, d, path, o, label, dir, e);
    tokenizer_free(t);
    return code;
}

static struct dataset *hiding(const char *path, enum pack_kind kind, double rate, uint64_t seed, const char *dir)
{
    struct dataset *d;
    struct err e;
    struct dataset_options o = {.pack = kind, .seed = seed, .mlm = {rate, 0.8, 0.1, NULL, MASK}};
    o.reset_positions = o.mask_boundaries = kind != PACK_JOINED;
    assert_ok(open_with(&d, path, o, NULL, dir, &e), &e);
    return d;
}

static void check_hidden(const char *path, enum pack_kind kind, const char *dir)
{
    struct dataset *h = hiding(path, kind, 0.4, 5, dir), *plain = hiding(path, kind, 0, 5, dir);
    struct batch a, b, part;
    struct err e;
    int64_t n[4] = {0}, all = 0; /* masked, kept, changed; not chosen */
    batch_init(&a, GLOBAL, SEQ);
    batch_init(&b, GLOBAL, SEQ);
    batch_init(&part, 2, SEQ);
    for (int64_t step = 0; step < STEPS; step++) {
        int64_t trained = 0;
        assert_ok(dataset_batch(h, step, GLOBAL, 0, &a, &e), &e);
        assert_ok(dataset_batch(plain, step, GLOBAL, 0, &b, &e), &e);
        assert_ok(dataset_batch(h, step, GLOBAL, 3, &part, &e), &e);
        assert_memory_equal(part.tokens, a.tokens + 3 * SEQ, 2 * SEQ * sizeof(int32_t));
        assert_memory_equal(part.targets, a.targets + 3 * SEQ, 2 * SEQ * sizeof(int32_t));
        for (int64_t i = 0; i < GLOBAL * SEQ; i++) {
            bool chosen = a.targets[i] >= 0, can = b.tokens[i] != EOS;
            assert_int_equal(a.positions[i], b.positions[i]);
            assert_int_equal(a.segments[i], 0);
            all += can;
            trained += chosen;
            if (!chosen) assert_int_equal(a.tokens[i], b.tokens[i]);
            else assert_true(can && a.targets[i] == b.tokens[i]);
            n[!chosen ? 3 : a.tokens[i] == MASK ? 0 : a.tokens[i] == b.tokens[i] ? 1 : 2]++;
        }
        assert_int_equal(a.n_trained, trained);
    }
    /* Within five standard deviations; by chance a token is sometimes what it was. */
    double chosen = (double)(n[0] + n[1] + n[2]), off = 5 * sqrt(0.25 * (double)all);
    assert_true(fabs(chosen - 0.4 * (double)all) < off);
    assert_true(fabs((double)n[0] - 0.8 * chosen) < off && fabs((double)n[1] - 0.1 * chosen) < off);
    assert_true(n[2] > 0 && fabs((double)n[2] - 0.1 * chosen) < off);
    batch_fini(&part);
    batch_fini(&b);
    batch_fini(&a);
    dataset_close(plain);
    dataset_close(h);
}

/* The seed decides what is hidden in training, and nothing of evaluation; an epoch hides others. */
static void check_seeds(const char *path, const char *dir)
{
    struct dataset *one = hiding(path, PACK_PADDED, 0.4, 5, dir), *other = hiding(path, PACK_PADDED, 0.4, 6, dir);
    struct batch a, b;
    struct err e;
    batch_init(&a, GLOBAL, SEQ);
    batch_init(&b, GLOBAL, SEQ);
    assert_ok(dataset_eval_batch(one, 0, GLOBAL, 1, 0, &a, &e), &e);
    assert_ok(dataset_eval_batch(other, 0, GLOBAL, 1, 0, &b, &e), &e);
    assert_true(a.n_trained > 0 && a.n_trained == b.n_trained);
    assert_memory_equal(a.tokens, b.tokens, GLOBAL * SEQ * sizeof(int32_t));
    assert_memory_equal(a.targets, b.targets, GLOBAL * SEQ * sizeof(int32_t));
    int64_t epoch = 0, samples = dataset_n_samples(one), first = -1, again = -1, k = 0;
    for (; again < 0; k++) { /* one sample in two epochs */
        int source;
        int64_t sample;
        dataset_where(one, k, &source, &epoch, &sample);
        if (sample == 0 && first < 0) first = k;
        else if (sample == 0) again = k;
        assert_true(k < 3 * samples);
    }
    assert_ok(dataset_batch(one, first / GLOBAL, GLOBAL, 0, &a, &e), &e);
    assert_ok(dataset_batch(one, again / GLOBAL, GLOBAL, 0, &b, &e), &e);
    assert_memory_not_equal(a.targets + first % GLOBAL * SEQ, b.targets + again % GLOBAL * SEQ, SEQ * sizeof(int32_t));
    batch_fini(&b);
    batch_fini(&a);
    dataset_close(other);
    dataset_close(one);
}

static void test_hidden(void **state)
{
    (void)state;
    char *dir = scratch_new(), text[4096], *at = text;
    for (int i = 0; i < 60; i++)
        at += sprintf(at, "{\"text\": \"%.*s number %d\"}\n", 3 + i % 17, "a text of some length", i);
    char *path = put_text(dir, "t.jsonl", text);
    check_hidden(path, PACK_JOINED, dir);
    check_hidden(path, PACK_BEST_FIT, dir);
    check_seeds(path, dir);
    xfree(path);
    scratch_free(dir);
}

/* ---- classes ---- */
static int classes(struct dataset **d, const char *path, const char *dir, struct err *e)
{
    struct dataset_options o = {.pack = PACK_PADDED,
                                .seed = 3,
                                .classes = 3,
                                .reset_positions = true,
                                .mask_boundaries = true};
    return open_with(d, path, o, "label", dir, e);
}

static void test_classes(void **state)
{
    (void)state;
    char *dir = scratch_new();
    char *path = put_text(dir, "c.jsonl",
                          "{\"text\": \"ab\", \"label\": 2}\n{\"text\": \"c\", \"label\": 0}\n{\"text\": \"def\", "
                          "\"label\": -1}\n"
                          "{\"label\": 1, \"text\": \"a text that is longer than a sample has places\"}\n");
    static const int32_t want[4] = {2, 0, -1, 1};
    int rows[4] = {0};
    struct dataset *d;
    struct batch b;
    struct err e;
    assert_ok(classes(&d, path, dir, &e), &e);
    assert_int_equal(dataset_n_samples(d), 5); /* the long one is two */
    batch_init(&b, 5, SEQ);
    assert_ok(dataset_batch(d, 0, 5, 0, &b, &e), &e);
    assert_int_equal(b.n_trained, 4);
    for (int64_t r = 0; r < 5; r++) {
        const int32_t *t = b.tokens + r * SEQ, *y = b.targets + r * SEQ;
        int text = t[0] == 'a' && t[2] == EOS ? 0 : t[0] == 'c' ? 1 : t[0] == 'd' ? 2 : 3;
        rows[text]++;
        assert_int_equal(y[0], want[text]);
        for (int64_t i = 1; i < SEQ; i++) assert_int_equal(y[i], -1);
        int64_t n = text == 0 ? 2 : text == 1 ? 1 : text == 2 ? 3 : SEQ;
        if (text == 3) continue;
        assert_int_equal(t[n], EOS);
        for (int64_t i = 0; i < SEQ; i++) /* what is behind the end is padding: documents of their own */
            assert_true(b.documents[r * SEQ + i] == (i <= n ? 0 : (int32_t)(i - n)) && b.segments[r * SEQ + i] == 0);
    }
    assert_true(rows[0] == 1 && rows[1] == 1 && rows[2] == 1 && rows[3] == 2);
    batch_fini(&b);
    dataset_close(d);
    xfree(path);
    static const char *const bad[][2] = {
        {"{\"text\": \"a\", \"label\": 0}\n{\"text\": \"b\", \"label\": 3}\n",
         "bad.jsonl:2: \"label\": wanted a class"},
        {"{\"text\": \"ab\"}\n", "bad.jsonl:1: \"label\": wanted a class, a whole number from 0 to 2"},
        {"{\"text\": \"ab\", \"label\": 1.5}\n", "wanted a class"},
        {"{\"text\": \"ab\", \"label\": \"1\"}\n", "wanted a class"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        path = put_text(dir, "bad.jsonl", bad[i][0]);
        assert_int_equal(classes(&d, path, dir, &e), ERR_REQUEST);
        if (!strstr(e.text, bad[i][1])) fail_msg("%s", e.text);
        xfree(path);
    }
    path = put_text(dir, "plain.txt", "a text\n");
    assert_int_equal(classes(&d, path, dir, &e), ERR_REQUEST);
    if (!strstr(e.text, "labels are members of .jsonl records")) fail_msg("%s", e.text);
    xfree(path);
    scratch_free(dir);
}

/* A tokenizer with special tokens: what begins a text, and the second of a pair. */
static void test_pairs(void **state)
{
    (void)state;
    struct tokenizer *t;
    struct err e;
    struct mlm m;
    assert_ok(tokenizer_open(&t, "byte", &e), &e);
    assert_int_equal(mlm_init(&m, &(struct mlm_rule){0.1, 0.8, 0.1, NULL, -1}, t, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "data.mlm.token: the tokenizer has no token \"[MASK]\""));
    assert_int_equal(mlm_init(&m, &(struct mlm_rule){0.1, 0.8, 0.1, "<hide>", -1}, t, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "\"<hide>\""));
    assert_ok(mlm_init(&m, &(struct mlm_rule){0.1, 0.8, 0.1, NULL, 400}, t, &e), &e);
    assert_int_equal(m.id, 400);
    tokenizer_free(t);

    char *dir = scratch_new(), *json;
    size_t n;
    assert_ok(fs_read_all(TEST_DIR "/data/kinds/bert.json", 1 << 24, &json, &n, &e), &e);
    char *path = put_file(dir, "tokenizer.json", json, n);
    xfree(put_text(dir, "tokenizer_config.json", "{\"eos_token\": \"[SEP]\"}"));
    xfree(json);
    assert_ok(tokenizer_open(&t, path, &e), &e);
    xfree(path);
    int32_t cls = tokenizer_find(t, "[CLS]", 5), sep = tokenizer_find(t, "[SEP]", 5);
    path = put_text(dir, "pairs.jsonl", "{\"text\": \"a [SEP] b\", \"label\": 1}\n");
    struct dataset_options o = {.pack = PACK_PADDED, .classes = 2, .reset_positions = true, .mask_boundaries = true};
    struct dataset *d;
    struct batch b;
    assert_ok(open_by(t, &d, path, o, "label", dir, &e), &e);
    batch_init(&b, 1, SEQ);
    assert_ok(dataset_batch(d, 0, GLOBAL, 0, &b, &e), &e);
    assert_true(b.tokens[0] == cls && b.tokens[2] == sep && b.tokens[4] == sep && b.tokens[5] == sep);
    for (int i = 0; i < SEQ; i++) assert_int_equal(b.segments[i], i == 3 || i == 4); /* padding is of none */
    assert_int_equal(b.targets[0], 1);
    dataset_close(d);
    /* Of all that is hidden neither what begins a text nor what ends one is. */
    struct dataset_options hides = {.pack = PACK_JOINED, .mlm = {1, 1, 0, "[MASK]", -1}};
    char *texts = put_text(dir, "texts.jsonl",
                           "{\"text\": \"a b\"}\n{\"text\": \"b a b a b a b a b a b a b a b a b a b a b a b a\"}\n");
    assert_ok(open_by(t, &d, texts, hides, NULL, dir, &e), &e);
    assert_ok(dataset_batch(d, 0, 1, 0, &b, &e), &e);
    assert_true(b.tokens[0] == cls && b.tokens[3] == sep && b.tokens[4] == cls);
    for (int i = 0; i < SEQ; i++) assert_int_equal(b.targets[i] >= 0, b.tokens[i] != cls && b.tokens[i] != sep);
    batch_fini(&b);
    dataset_close(d);
    xfree(texts);
    o.begin = "[NONE]";
    assert_int_equal(open_by(t, &d, path, o, "label", dir, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "data.begin: the tokenizer has no token \"[NONE]\""));
    xfree(path);
    tokenizer_free(t);
    scratch_free(dir);
}

/* Beginnings that are no targets: of that share of the documents, every place as likely, in any split of a batch; the
 * rest is as it was. */
static void check_prompts(const char *path, enum pack_kind kind, const char *dir)
{
    struct dataset *d[2];
    struct batch a, b, part;
    struct err e;
    int64_t documents = 0, cut = 0, whole = 0;
    double at = 0;
    for (int i = 0; i < 2; i++) {
        struct dataset_options o = {.pack = kind, .seed = 5, .prefix_rate = i ? 0 : 0.5};
        o.reset_positions = o.mask_boundaries = kind != PACK_JOINED;
        assert_ok(open_with(&d[i], path, o, NULL, dir, &e), &e);
    }
    batch_init(&a, GLOBAL, SEQ);
    batch_init(&b, GLOBAL, SEQ);
    batch_init(&part, 2, SEQ);
    for (int64_t step = 0; step < STEPS; step++) {
        int64_t trained = 0;
        assert_ok(dataset_batch(d[0], step, GLOBAL, 0, &a, &e), &e);
        assert_ok(dataset_batch(d[1], step, GLOBAL, 0, &b, &e), &e);
        assert_ok(dataset_batch(d[0], step, GLOBAL, 3, &part, &e), &e);
        assert_memory_equal(part.targets, a.targets + 3 * SEQ, 2 * SEQ * sizeof(int32_t));
        assert_memory_equal(a.tokens, b.tokens, GLOBAL * SEQ * sizeof(int32_t));
        for (int64_t i = 0; i < GLOBAL * SEQ; i++) {
            bool begins = i % SEQ == 0 || a.documents[i] != a.documents[i - 1];
            trained += a.targets[i] >= 0;
            if (a.targets[i] != b.targets[i]) assert_true(a.targets[i] == -1 && (begins || a.targets[i - 1] == -1));
            if (!begins) continue;
            int64_t n = 0, hidden = 0;
            for (int64_t j = i; j < (i / SEQ + 1) * SEQ && a.documents[j] == a.documents[i]; j++) {
                n += b.targets[j] >= 0;
                hidden += b.targets[j] >= 0 && a.targets[j] < 0;
            }
            assert_true(hidden < n || !n);
            whole += n >= 2;
            cut += hidden > 0;
            documents += hidden > 0 && n > 2;
            if (hidden && n > 2) at += (double)(hidden - 1) / (double)(n - 2);
        }
        assert_int_equal(a.n_trained, trained);
    }
    assert_true(whole > 100 && fabs((double)cut - 0.5 * (double)whole) < 5 * sqrt(0.25 * (double)whole));
    assert_true(fabs(at / (double)documents - 0.5) < 5 * sqrt(1.0 / 4 / (double)documents));
    batch_fini(&part);
    batch_fini(&b);
    batch_fini(&a);
    for (int i = 0; i < 2; i++) dataset_close(d[i]);
}

static void test_prompts(void **state)
{
    (void)state;
    char *dir = scratch_new(), text[4096], *at = text;
    for (int i = 0; i < 60; i++)
        at += sprintf(at, "{\"text\": \"%.*s number %d\"}\n", 3 + i % 17, "a text of some length", i);
    char *path = put_text(dir, "t.jsonl", text);
    check_prompts(path, PACK_JOINED, dir);
    check_prompts(path, PACK_BEST_FIT, dir);
    xfree(path);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hidden), cmocka_unit_test(test_classes),
                                       cmocka_unit_test(test_prompts), cmocka_unit_test(test_pairs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
