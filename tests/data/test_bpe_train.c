/* SPDX-License-Identifier: Apache-2.0 */
/* Trained vocabularies: the reference's merges, the same file every time, and files that work. */
#include "data_test.h"

#include "base/json.h"
#include "data/bpe_train.h"

static char *read_file(const char *path, size_t *n)
{
    char *text;
    struct err e;
    assert_ok(fs_read_all(path, 1 << 24, &text, n, &e), &e);
    return text;
}

static void train(const char *style, int32_t vocab, const char *text, size_t n, size_t part, struct str *json,
                  struct bpe_train_result *r)
{
    struct bpe_trainer *t;
    struct err e;
    assert_ok(bpe_trainer_new(&t, style, &e), &e);
    for (size_t at = 0; at < n; at += part)
        assert_ok(bpe_trainer_feed(t, text + at, n - at < part ? n - at : part, &e), &e);
    assert_ok(bpe_trainer_end(t, &e), &e);
    assert_ok(bpe_trainer_finish(t, vocab, 2, json, r, &e), &e);
    bpe_trainer_free(t);
}

static void test_merges_of_the_reference(void **state)
{
    (void)state;
    const char *const styles[] = {"gpt2", "llama3"};
    struct json *wanted, *got;
    struct err e;
    size_t n;
    char *text = read_file(FIXTURE("train.txt"), &n);
    assert_ok(json_parse_file(&wanted, FIXTURE("train.merges.json"), 1 << 20, &e), &e);
    for (int s = 0; s < 2; s++) {
        struct str out = {0};
        struct bpe_train_result r;
        train(styles[s], 340, text, n, n, &out, &r);
        assert_int_equal(r.vocab, 340);
        assert_ok(json_parse(&got, out.p, out.n, "trained", &e), &e);
        const struct json *a = json_get(json_get(got, "model"), "merges"), *b = json_get(wanted, styles[s]);
        assert_int_equal(json_size(b), 340 - 257);
        assert_int_equal(json_size(a), json_size(b));
        for (size_t i = 0; i < json_size(b); i++)
            assert_string_equal(json_string(json_at(a, i), NULL, "?"), json_string(json_at(b, i), NULL, "!"));
        json_free(got);
        str_free(&out);
    }
    json_free(wanted);
    xfree(text);
}

static void test_same_file_however_it_came(void **state)
{
    (void)state;
    size_t n;
    char *text = read_file(FIXTURE("train.txt"), &n);
    struct str whole = {0};
    struct bpe_train_result r;
    train("llama3", 330, text, n, n, &whole, &r);
    for (size_t part = 1; part < 100; part += 33) {
        struct str again = {0};
        train("llama3", 330, text, n, part, &again, &r);
        assert_string_equal(again.p, whole.p);
        str_free(&again);
    }
    str_free(&whole);
    xfree(text);
}

static void test_trained_files_work(void **state)
{
    (void)state;
    const char *const styles[] = {"gpt2", "llama3"};
    size_t n;
    char *text = read_file(FIXTURE("train.txt"), &n);
    for (int s = 0; s < 2; s++) {
        struct str json = {0}, back = {0};
        struct tokens ids = {0};
        struct bpe_train_result r;
        struct tokenizer *t;
        struct err e;
        train(styles[s], 330, text, n, n, &json, &r);
        assert_ok(tokenizer_parse(&t, json.p, json.n, "trained", &e), &e);
        assert_int_equal(tokenizer_vocab(t), 330);
        assert_int_equal(tokenizer_eos(t), 329);
        assert_ok(tokenizer_encode(t, text, n, &ids, &e), &e);
        assert_true(ids.n < (int64_t)n * 2 / 3); /* it has learned something */
        tokenizer_decode(t, ids.ids, ids.n, true, &back);
        assert_int_equal(back.n, n);
        assert_memory_equal(back.p, text, n);
        tokens_free(&ids);
        str_free(&json);
        str_free(&back);
        tokenizer_free(t);
    }
    xfree(text);
}

static void test_requests_that_cannot_be_met(void **state)
{
    (void)state;
    struct bpe_trainer *t;
    struct bpe_train_result r;
    struct err e;
    struct str json = {0};
    assert_err(bpe_trainer_new(&t, "gpt7", &e), &e, ERR_REQUEST, "gpt7|llama3");
    assert_ok(bpe_trainer_new(&t, "gpt2", &e), &e);
    assert_err(bpe_trainer_finish(t, 1000, 2, &json, &r, &e), &e, ERR_REQUEST, "no text");
    assert_err(bpe_trainer_finish(t, 256, 2, &json, &r, &e), &e, ERR_REQUEST, "256|257");
    assert_ok(bpe_trainer_feed(t, "one two", 7, &e), &e);
    assert_ok(bpe_trainer_end(t, &e), &e);
    assert_ok(bpe_trainer_finish(t, 1000, 2, &json, &r, &e), &e); /* no pair occurs twice: the bytes alone */
    assert_int_equal(r.vocab, 257);
    assert_int_equal(r.n_pieces, 2);
    str_free(&json);
    bpe_trainer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges_of_the_reference),
        cmocka_unit_test(test_same_file_however_it_came),
        cmocka_unit_test(test_trained_files_work),
        cmocka_unit_test(test_requests_that_cannot_be_met),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
