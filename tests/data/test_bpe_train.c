/* SPDX-License-Identifier: Apache-2.0 */
/* suite: threads */
/* Trained vocabularies: the reference's merges, the same file every time, and files that work. */
#include "data_test.h"

#include "base/json.h"
#include "sanitized.h"
#include "source/source.h"
#include "token/bpe_train.h"
#include "token/piece_counter.h"
#include "token/train_style.h"

static char *read_file(const char *path, size_t *n)
{
    char *text;
    struct err e;
    assert_ok(fs_read_all(path, 1 << 24, &text, n, &e), &e);
    return text;
}

struct result {
    int32_t vocab;
    int64_t n_pieces, runs;
};

static int add(void *arg, const unsigned char *p, size_t n, int64_t count, struct err *e)
{
    (void)e;
    bpe_trainer_add(arg, p, n, count);
    return OK;
}

/* Counted by so many threads in so much memory. */
static void train_so(const char *style, int32_t vocab, const char *text, size_t n, int n_threads, int64_t memory,
                     struct str *json, struct result *r)
{
    struct err e;
    struct source *s;
    const struct train_style *found;
    struct cut_rules rules;
    const char *splits[TRAIN_SPLITS];
    char *dir = scratch_new(), *path = put_file(dir, "text.txt", text, n), *scratch = fs_join(dir, "counting");
    assert_ok(train_style_find(&found, style, &e), &e);
    int n_splits = train_style_splits(found, splits);
    train_rules_init(&rules, splits, n_splits);
    assert_ok(source_open(&s, (const char *const *)&path, 1, NULL, &e), &e);
    struct piece_counter *c = piece_counter_new(&rules, n_threads, memory, scratch);
    assert_ok(piece_counter_read(c, s, &e), &e);
    struct bpe_trainer *t = bpe_trainer_new();
    assert_ok(piece_counter_each(c, add, t, &e), &e);
    assert_ok(bpe_trainer_finish(t, found, vocab, 2, json, &r->vocab, &e), &e);
    r->n_pieces = piece_counter_total(c);
    r->runs = piece_counter_runs(c);
    bpe_trainer_free(t);
    piece_counter_free(c);
    assert_false(fs_exists(scratch));
    source_close(s);
    train_rules_fini(&rules);
    xfree(path);
    xfree(scratch);
    scratch_free(dir);
}

static void train(const char *style, int32_t vocab, const char *text, size_t n, struct str *json, struct result *r)
{
    train_so(style, vocab, text, n, 1, 1 << 24, json, r);
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
        struct result r;
        train(styles[s], 340, text, n, &out, &r);
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
    char *fixture = read_file(FIXTURE("train.txt"), &n);
    struct str whole = {0};
    struct result r;
    /* Texts of some MiB, in which every piece is in several parts. */
    struct str text = {0};
    for (int i = 0; i < (SANITIZED ? 250 : 700); i++) {
        str_add(&text, fixture, n);
        str_printf(&text, " w%dord%d \n", i * i % 1000, i);
    }
    train("llama3", 330, text.p, text.n, &whole, &r);
    int64_t pieces = r.n_pieces;
    assert_int_equal(r.runs, 0);
    static const struct {
        int n_threads;
        int64_t memory;
    } ways[] = {{2, 1 << 24}, {5, 1 << 24}, {1, 40 << 10}, {3, 120 << 10}, {2, 1}, {7, 40}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct str again = {0};
        train_so("llama3", 330, text.p, text.n / (i > 3 ? 100 : 1), ways[i].n_threads, ways[i].memory, &again, &r);
        struct str wanted = {0};
        if (i > 3) train("llama3", 330, text.p, text.n / 100, &wanted, &(struct result){0});
        assert_string_equal(again.p, i > 3 ? wanted.p : whole.p);
        if (i <= 3) assert_int_equal(r.n_pieces, pieces);
        assert_true((r.runs > 0) == (i >= 2));
        str_free(&again);
        str_free(&wanted);
    }
    str_free(&text);
    str_free(&whole);
    xfree(fixture);
}

static void test_trained_files_work(void **state)
{
    (void)state;
    const char *const styles[] = {"gpt2", "llama3", "qwen2", "deepseek"};
    size_t n;
    char *text = read_file(FIXTURE("train.txt"), &n);
    for (int s = 0; s < 4; s++) {
        struct str json = {0}, back = {0};
        struct tokens ids = {0};
        struct result r;
        struct tokenizer *t;
        struct err e;
        train(styles[s], 330, text, n, &json, &r);
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
    const struct train_style *style;
    struct bpe_trainer *t = bpe_trainer_new();
    struct err e;
    struct str json = {0};
    int32_t reached;
    assert_err(train_style_find(&style, "gpt7", &e), &e, ERR_REQUEST, "gpt7|llama3|deepseek");
    assert_ok(train_style_find(&style, "gpt2", &e), &e);
    assert_err(bpe_trainer_finish(t, style, 1000, 2, &json, &reached, &e), &e, ERR_REQUEST, "no text");
    assert_err(bpe_trainer_finish(t, style, 256, 2, &json, &reached, &e), &e, ERR_REQUEST, "256|257");
    bpe_trainer_add(t, (const unsigned char *)"one", 3, 1);
    bpe_trainer_add(t, (const unsigned char *)" two", 4, 1);
    assert_ok(bpe_trainer_finish(t, style, 1000, 2, &json, &reached, &e), &e); /* no pair twice: the bytes alone */
    assert_int_equal(reached, 257);
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
