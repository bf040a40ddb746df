/* SPDX-License-Identifier: Apache-2.0 */
/* suite: threads */
/* Learning Unigram vocabularies: the same file for any number of threads, whose scores are probabilities and whose
 * pieces are words of the text, and that finds the words a text is made of. Seeds against all substrings counted
 * plainly. */
#include <math.h>

#include "base/json.h"
#include "base/rng.h"
#include "data_test.h"
#include "sanitized.h"
#include "token/unigram_train.h"
#include "token/unigram_words.h"

/* Words of 20 stems and 5 endings, the first more often. */
static void add_words(struct unigram_trainer *t, int n)
{
    static const char *const stems[] = {"walk",
                                        "talk",
                                        "jump",
                                        "cook",
                                        "look",
                                        "play",
                                        "work",
                                        "start",
                                        "paint",
                                        "count",
                                        "print",
                                        "learn",
                                        "stress",
                                        "\xC3\xBC"
                                        "ber",
                                        "\xE4\xB8\x96\xE7\x95\x8C"};
    static const char *const endings[] = {"", "s", "ed", "ing", "er"};
    for (int i = 0; i < n; i++) {
        char word[64];
        snprintf(word, sizeof word, " %s%s%s", stems[i % 15], endings[i / 15 % 5], i >= 75 ? stems[i / 75 % 15] : "");
        unigram_trainer_add(t, (const unsigned char *)word, strlen(word), 1 + 3000 / (1 + i % 15 + i / 15));
    }
}

static void learn(int n_words, int32_t vocab, int n_threads, struct str *json, int32_t *reached)
{
    struct err e;
    struct unigram_trainer *t = unigram_trainer_new();
    add_words(t, n_words);
    unigram_trainer_add(t, (const unsigned char *)" bad\xFFutf8", 9, 5); /* left out */
    assert_ok(unigram_trainer_finish(t, vocab, n_threads, json, reached, &e), &e);
    unigram_trainer_free(t);
}

static double score_of(const struct json *vocab, const char *piece)
{
    for (size_t i = 0; i < json_size(vocab); i++)
        if (!strcmp(json_string(json_at(json_at(vocab, i), 0), NULL, ""), piece))
            return json_real(json_at(json_at(vocab, i), 1), NAN);
    return NAN;
}

static void test_finds_the_words(void **state)
{
    (void)state;
    struct str json = {0};
    struct json *root;
    struct err e;
    int32_t reached;
    learn(1000, 340, 2, &json, &reached);
    assert_int_equal(reached, 340);
    assert_ok(json_parse(&root, json.p, json.n, "trained", &e), &e);
    const struct json *vocab = json_get(json_get(root, "model"), "vocab");
    assert_int_equal(json_size(vocab), 339); /* the end of text is an added token */
    assert_string_equal(json_string(json_at(json_at(vocab, 0), 0), NULL, ""), "<unk>");
    assert_string_equal(json_string(json_at(json_at(vocab, 256), 0), NULL, ""), "<0xFF>");
    double sum = 0, before = 0;
    for (size_t i = 257; i < json_size(vocab); i++) {
        double score = json_real(json_at(json_at(vocab, i), 1), NAN);
        assert_true(score <= before);
        before = score;
        sum += exp(score);
    }
    assert_true(sum > 0.9 && sum < 1.1); /* what pruning left out of the last round lacks */
    const char *const whole[] = {"\xE2\x96\x81walk",
                                 "\xE2\x96\x81talk",
                                 "\xE2\x96\x81jump",
                                 "\xE2\x96\x81walking",
                                 "\xE2\x96\x81\xE4\xB8\x96\xE7\x95\x8C",
                                 "w",
                                 "k"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (!(score_of(vocab, whole[i]) < 0)) fail_msg("\"%s\" is no token", whole[i]);
    assert_true(isnan(score_of(vocab, "\xE2\x96\x81"
                                      "bad")));
    json_free(root);
    str_free(&json);
}

static void test_any_number_of_threads(void **state)
{
    (void)state;
    struct str one = {0};
    int32_t reached;
    learn(1000, 400, 1, &one, &reached);
    for (int n = 2; n < 8; n += CASE_STRIDE) {
        struct str many = {0};
        learn(1000, 400, n, &many, &reached);
        assert_string_equal(many.p, one.p);
        str_free(&many);
    }
    str_free(&one);
}

static void test_requests_that_cannot_be_met(void **state)
{
    (void)state;
    struct err e;
    struct str json = {0};
    int32_t reached;
    struct unigram_trainer *t = unigram_trainer_new();
    assert_err(unigram_trainer_finish(t, 1000, 1, &json, &reached, &e), &e, ERR_REQUEST, "no text");
    unigram_trainer_free(t);
    t = unigram_trainer_new();
    add_words(t, 100);
    assert_err(unigram_trainer_finish(t, 270, 1, &json, &reached, &e), &e, ERR_REQUEST, "270|characters|least");
    unigram_trainer_free(t);
    learn(40, 100000, 1, &json, &reached); /* fewer substrings than tokens wanted */
    assert_true(reached < 1000);
    str_free(&json);
}

/* Words of three letters, so that much is alike. */
static void test_seeds_are_the_substrings(void **state)
{
    (void)state;
    for (uint64_t k = 0; k < 40 / CASE_STRIDE; k++) {
        struct unigram_words w = {.n_chars = 3};
        for (int i = 0; i < 12; i++) {
            int32_t n = 1 + (int32_t)(rng_u32(k, 1, (uint64_t)i) % 22);
            GROW(w.words, w.n_words, w.words_room, 1);
            w.words[w.n_words++] = (struct unigram_word){w.n, 1 + rng_u32(k, 2, (uint64_t)i) % 5, n};
            for (int32_t j = 0; j <= n; j++) {
                GROW(w.text, w.n, w.room, 1);
                w.text[w.n++] = j == n ? END : (int32_t)(rng_u32(k, 3 + (uint64_t)i, (uint64_t)j) % 3);
            }
        }
        int64_t n;
        struct unigram_token_draft *seeds = unigram_seeds(&w, 1 << 20, NULL, &n);
        for (int64_t i = 0; i < n; i++) { /* each once, in order, with its true frequency */
            if (i) assert_true(unigram_order(&w, &seeds[i - 1], &seeds[i]) < 0);
            assert_in_range(seeds[i].n, 2, UNIGRAM_TOKEN_MAX);
            double frequency = 0;
            for (int64_t m = 0; m < w.n_words; m++)
                for (int32_t j = 0; j + seeds[i].n <= w.words[m].n; j++)
                    if (!memcmp(w.text + w.words[m].at + j, w.text + seeds[i].at, (size_t)seeds[i].n * sizeof *w.text))
                        frequency += (double)w.words[m].count;
            assert_true(seeds[i].score == frequency * seeds[i].n);
            assert_true(frequency >= 2);
        }
        /* Every substring that occurs at all is a beginning of a seed that is as frequent, or too rare, or too long. */
        for (int64_t m = 0; m < w.n_words; m++) {
            struct unigram_token_draft whole = {.at = w.words[m].at, .n = w.words[m].n};
            bool found = whole.n < 2 || whole.n > UNIGRAM_TOKEN_MAX || w.words[m].count < 2;
            for (int64_t i = 0; i < n && !found; i++) found = unigram_order(&w, &seeds[i], &whole) == 0;
            assert_true(found);
        }
        struct unigram_token_draft *few = unigram_seeds(&w, 5, NULL, &n);
        double least = INFINITY;
        for (int64_t i = 0; i < n; i++)
            if (few[i].score < least) least = few[i].score;
        assert_true(n <= 5);
        xfree(few);
        xfree(seeds);
        xfree(w.text);
        xfree(w.words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_the_words),
        cmocka_unit_test(test_any_number_of_threads),
        cmocka_unit_test(test_requests_that_cannot_be_met),
        cmocka_unit_test(test_seeds_are_the_substrings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
