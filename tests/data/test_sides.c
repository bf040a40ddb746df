/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of texts as samples: each record's two texts stand in their places with their ends, whatever their lengths; the
 * same for any split of a batch; every record once in an epoch, and once in an evaluation. Refused with its record: a
 * side that does not fit, or is not there; with the key it is cut. */
#include "data_test.h"

#include <math.h>

#include "data/dataset.h"

enum { SEQ = 20, ENCODER = 12, GLOBAL = 4, EOS = 256, START = 7, RECORDS = 9 };
static const char *const read_[RECORDS] = {"a", "elevenbytes", "", "two words", "x", "yy", "zzz", "0123456789", "last"},
                         *const written_[RECORDS] = {"A", "", "empty", "TWO", "1234567", "b", "cc", "d", "e"};

static char *write_records(const char *dir, const char *name, const char *more)
{
    char *path = fs_join(dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < RECORDS; i++)
        if (*read_[i] && *written_[i]) /* an empty one is its own case */
            fprintf(f, "{\"id\": %d, \"en\": \"%s\", \"de\": \"%s\"}\n", i, read_[i], written_[i]);
    fprintf(f, "%s", more);
    fclose(f);
    return path;
}

static int open_pairs(struct dataset **d, const char *path, const char *target, bool cut, const char *dir,
                      struct err *e)
{
    struct tokenizer *t = tokenizer_new_byte();
    struct dataset_source source = {.path = path, .column = "en", .target = target, .weight = 1};
    struct dataset_options o = {.sources = &source,
                                .n_sources = 1,
                                .tokenizer = t,
                                .sides = {ENCODER, START, cut},
                                .seq_len = SEQ,
                                .seed = 3,
                                .shuffled = true,
                                .global_batch = GLOBAL,
                                .cache_dir = dir};
    int code = dataset_open(d, &o, e);
    tokenizer_free(t);
    return code;
}

/* The record that a row is; both texts in their places. */
static int record_of(const int32_t *ids, const int32_t *targets, const int32_t *positions, const char *const *read,
                     const char *const *written, int n)
{
    char text[2][SEQ + 1] = {{0}};
    int64_t m = 0, k = 0;
    while (m < ENCODER && positions[m] == m) m++;
    assert_true(m >= 1 && ids[m - 1] == EOS);
    for (int64_t i = 0; i < m - 1; i++) text[0][i] = (char)ids[i];
    for (int64_t i = m; i < ENCODER; i++) assert_int_equal(positions[i], -1);
    for (int64_t i = 0; i < ENCODER; i++) assert_int_equal(targets[i], -1);
    for (; k < SEQ - ENCODER && targets[ENCODER + k] >= 0; k++) {
        assert_int_equal(ids[ENCODER + k], k ? targets[ENCODER + k - 1] : START);
        if (targets[ENCODER + k] != EOS) text[1][k] = (char)targets[ENCODER + k];
    }
    assert_true(k >= 1 && targets[ENCODER + k - 1] == EOS);
    for (int64_t i = 0; i < SEQ - ENCODER; i++) assert_int_equal(positions[ENCODER + i], i);
    for (int64_t i = k; i < SEQ - ENCODER; i++) assert_true(targets[ENCODER + i] == -1 && ids[ENCODER + i] >= 0);
    for (int i = 0; i < n; i++)
        if (!strcmp(read[i], text[0]) && !strcmp(written[i], text[1])) return i;
    fail_msg("no record reads '%s' and writes '%s'", text[0], text[1]);
    return -1;
}

static void test_samples(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = write_records(dir, "pairs.jsonl", "");
    struct dataset *d;
    struct err e;
    struct batch b, half;
    int seen[RECORDS] = {0}, evaluated[RECORDS] = {0};
    assert_ok(open_pairs(&d, path, "de", false, dir, &e), &e);
    assert_int_equal(dataset_n_samples(d), 7);
    assert_int_equal(dataset_eval_tokens(d), 16 + 7);
    assert_true(fabs(dataset_padding(d, 0) - (1 - (30.0 + 16 + 14) / (7 * SEQ))) < 1e-12);
    batch_init(&b, GLOBAL, SEQ);
    batch_init(&half, GLOBAL / 2, SEQ);
    for (int64_t step = 0; step < 7; step++) { /* four epochs */
        int64_t targets = 0, padded = 0;
        assert_ok(dataset_batch(d, step, GLOBAL, 0, &b, &e), &e);
        assert_ok(dataset_batch(d, step, GLOBAL, 2, &half, &e), &e);
        assert_memory_equal(b.tokens + 2 * SEQ, half.tokens, 2 * SEQ * sizeof *half.tokens);
        assert_memory_equal(b.targets + 2 * SEQ, half.targets, 2 * SEQ * sizeof *half.tokens);
        assert_memory_equal(b.positions + 2 * SEQ, half.positions, 2 * SEQ * sizeof *half.tokens);
        for (int64_t row = 0; row < GLOBAL; row++) {
            int64_t at = row * SEQ;
            int i = record_of(b.tokens + at, b.targets + at, b.positions + at, read_, written_, RECORDS);
            seen[i]++;
            targets += (int64_t)strlen(written_[i]) + 1;
            padded += SEQ - (int64_t)strlen(read_[i]) - (int64_t)strlen(written_[i]) - 2;
        }
        assert_true(b.n_trained == targets && b.n_padded == padded);
    }
    for (int64_t i = 0; i < dataset_eval_batches(d, GLOBAL, 0); i++) {
        assert_ok(dataset_eval_batch(d, i, GLOBAL, 0, 0, &b, &e), &e);
        for (int64_t row = 0; row < GLOBAL && i * GLOBAL + row < 7; row++) {
            int64_t at = row * SEQ;
            evaluated[record_of(b.tokens + at, b.targets + at, b.positions + at, read_, written_, RECORDS)]++;
        }
    }
    for (int i = 0; i < RECORDS; i++) {
        int want = *read_[i] && *written_[i];
        assert_true(seen[i] == 4 * want && evaluated[i] == want);
    }
    batch_fini(&b);
    batch_fini(&half);
    dataset_close(d);
    xfree(path);
    scratch_free(dir);
}

static void test_cut_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *more, *target, *why;
    } cases[] = {
        {"{\"en\": \"abcdefghijkl\", \"de\": \"x\"}\n", "de",
         "record 8 (byte 256): what is read has 13 tokens with its end, and there is room for 12"},
        {"{\"en\": \"x\", \"de\": \"ABCDEFGH\"}\n", "de",
         "record 8 (byte 256): what is written has 9 tokens with its end, and there is room for 8"},
        {"{\"en\": \"x\", \"de\": \"\"}\n{\"en\": \"\", \"de\": \"y\"}\n", "de", "record 8 (byte 256) has one"},
        {"{\"en\": \"x\", \"de\": \"\"}\n", "de", "8 texts to be read and 7 to be written"},
        {"{\"en\": \"x\"}\n", "de", "\"de\""},
        {"", "fr", "\"fr\""},
        {"", NULL, "is one text, and other sources are pairs of texts"},
    };
    static const char *const long_read[] = {"abcdefghijk", "x"}, *const long_written[] = {"x", "ABCDEFG"};
    char *dir = scratch_new();
    struct dataset *d;
    struct err e;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = write_records(dir, "case.jsonl", cases[i].more);
        assert_int_not_equal(open_pairs(&d, path, cases[i].target, false, dir, &e), OK);
        if (!strstr(e.text, cases[i].why)) fail_msg("%s: wanted %s", e.text, cases[i].why);
        if (i < 2) { /* cut before the end */
            struct batch b;
            int found = 0;
            assert_ok(open_pairs(&d, path, "de", true, dir, &e), &e);
            batch_init(&b, 8, SEQ);
            assert_ok(dataset_batch(d, 0, 8, 0, &b, &e), &e);
            for (int64_t at_ = 0; at_ < 8 * SEQ; at_ += SEQ) {
                const char *read[8] = {long_read[i]}, *written[8] = {long_written[i]};
                int n = 1;
                for (int k = 0; k < RECORDS; k++)
                    if (*read_[k] && *written_[k]) read[n] = read_[k], written[n++] = written_[k];
                found += !record_of(b.tokens + at_, b.targets + at_, b.positions + at_, read, written, n);
            }
            assert_int_equal(found, 1);
            batch_fini(&b);
            dataset_close(d);
        }
        xfree(path);
    }
    scratch_free(dir);
}

/* Both sides are texts: each begins with what the tokenizer puts before one. */
static void test_what_stands_before(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = put_text(dir, "p.jsonl", "{\"en\": \"a b\", \"de\": \"b a\"}\n");
    struct tokenizer *t;
    struct err e;
    struct dataset *d;
    struct batch b;
    assert_ok(tokenizer_open(&t, FIXTURE("llama3.json"), &e), &e);
    struct dataset_source source = {.path = path, .column = "en", .target = "de", .weight = 1};
    struct dataset_options o = {.sources = &source,
                                .n_sources = 1,
                                .tokenizer = t,
                                .sides = {ENCODER, START, false},
                                .seq_len = SEQ,
                                .cache_dir = dir};
    assert_ok(dataset_open(&d, &o, &e), &e);
    batch_init(&b, 1, SEQ);
    assert_ok(dataset_batch(d, 0, 1, 0, &b, &e), &e);
    int32_t begin = tokenizer_begin(t)->ids[0];
    assert_true(b.tokens[0] == begin && b.tokens[1] != begin);
    assert_true(b.tokens[ENCODER] == START && b.targets[ENCODER] == begin && b.tokens[ENCODER + 1] == begin);
    batch_fini(&b);
    dataset_close(d);
    tokenizer_free(t);
    xfree(path);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_samples), cmocka_unit_test(test_cut_or_refused),
                                       cmocka_unit_test(test_what_stands_before)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
