/* SPDX-License-Identifier: Apache-2.0 */
/* Where a document may be cut: at every seam of many hard texts the pieces, and the ids, of both sides are those of the
 * whole, for every expression of splits.json, for sequences of them, and for tokenizers with added tokens. And
 * published expressions have seams at all. */
#include "data_test.h"

#include "base/json.h"
#include "base/rng.h"
#include "sanitized.h"
#include "text/utf8.h"
#include "token/pattern.h"
#include "token/seam.h"
#include "token/split.h"

struct ends {
    size_t at[4096];
    int n;
    size_t from;
};

static void take(void *arg, const unsigned char *p, size_t n)
{
    struct ends *e = arg;
    (void)p;
    assert_true(e->n < 4096);
    e->at[e->n] = (e->n ? e->at[e->n - 1] : e->from) + n;
    e->n++;
}

static void cut(const struct split *s, const unsigned char *text, size_t from, size_t to, struct ends *out)
{
    struct split_work *w = split_work_new(s);
    struct err e;
    size_t used;
    int before = out->n;
    out->from = from;
    if (from < to) assert_ok(split_run(s, w, text + from, to - from, true, take, out, &used, &e), &e);
    assert_true(out->n >= before);
    split_work_free(w);
}

/* A row of numbers. */
struct rng {
    uint64_t seed, i;
};
static uint64_t below(struct rng *r, uint64_t n) { return rng_u64(r->seed, 0, r->i++) % n; }

/* Words of characters that expressions tell apart. */
static size_t draw(struct rng *r, unsigned char *out, size_t n)
{
    static const char *const words[] = {"a",
                                        "B",
                                        "the",
                                        " ",
                                        "\n",
                                        "\r\n",
                                        "\t",
                                        "  ",
                                        "12",
                                        "7",
                                        "'s",
                                        "'",
                                        "!",
                                        "...",
                                        "//",
                                        "\xC3\xA9",
                                        "e\xCC\x81",
                                        "\xE4\xB8\x96",
                                        "\xE3\x80\x82",
                                        "\xC2\xA0",
                                        "\xE2\x80\xA8",
                                        "_",
                                        "x y",
                                        "\xF0\x9F\x98\x80",
                                        "{\n",
                                        ";\n",
                                        ")\n\n",
                                        " \n",
                                        "\v",
                                        "\xEF\xBC\x8C"};
    size_t at = 0;
    while (at + 8 < n) {
        const char *word = words[below(r, sizeof words / sizeof *words)];
        memcpy(out + at, word, strlen(word));
        at += strlen(word);
    }
    return at;
}

/* Every seam that the split has in the text; their number. */
static int64_t check_split(const struct split *s, const unsigned char *text, size_t n, const char *what)
{
    struct ends whole = {.n = 0};
    cut(s, text, 0, n, &whole);
    int64_t found = 0;
    for (size_t at = 1; at < n; at++) {
        const char *byte = text[at] ? strchr(PATTERN_SEAM_BYTES, text[at]) : NULL;
        size_t back = 1;
        while (back < at && (text[at - back] & 0xC0) == 0x80) back++;
        int len;
        if (!byte || !split_parts_before(s, (int)(byte - PATTERN_SEAM_BYTES), utf8_code(text + at - back, &len)))
            continue;
        struct ends parts = {.n = 0};
        cut(s, text, 0, at, &parts);
        if (parts.n == 0 || parts.at[parts.n - 1] != at) fail_msg("%s: no cut at the seam %zu", what, at);
        struct ends right = {.n = 0};
        cut(s, text, at, n, &right);
        bool same = parts.n + right.n == whole.n;
        for (int i = 0; same && i < parts.n; i++) same = whole.at[i] == parts.at[i];
        for (int i = 0; same && i < right.n; i++) same = whole.at[parts.n + i] == right.at[i];
        if (!same) fail_msg("%s: parted at %zu of \"%.*s\" it has other pieces", what, at, (int)n, (const char *)text);
        found++;
    }
    return found;
}

static void test_seams_of_expressions(void **state)
{
    (void)state;
    struct json *root;
    struct err e;
    struct rng r = {.seed = 5};
    assert_ok(json_parse_file(&root, FIXTURE("splits.json"), 1 << 22, &e), &e);
    const struct json *patterns = json_get(root, "patterns");
    int with_seams = 0;
    for (size_t i = 0; i < json_size(patterns); i++) {
        size_t n, m;
        const char *a = json_string(json_get(json_at(patterns, i), "pattern"), &n, NULL);
        const char *b =
            json_string(json_get(json_at(patterns, (i * 7 + 3) % json_size(patterns)), "pattern"), &m, NULL);
        int64_t found = 0;
        for (int stages = 1; stages <= 2; stages++) {
            struct split *s = split_new();
            assert_ok(split_add(s, a, n, "test", &e), &e);
            if (stages == 2) assert_ok(split_add(s, b, m, "test", &e), &e);
            for (int k = 0; k < 60 / CASE_STRIDE; k++) {
                unsigned char text[80];
                found += check_split(s, text, draw(&r, text, sizeof text), a);
            }
            split_free(s);
        }
        with_seams += found > 0;
    }
    assert_true(with_seams > 5);
    json_free(root);
}

/* What looks ahead at the very byte behind a cut would see an end of the text there instead. */
static void test_seams_and_what_looks_ahead(void **state)
{
    (void)state;
    struct rng r = {.seed = 8};
    struct err e;
    static const char *const patterns[] = {"[a-z]+(?=\\n)|[a-z]|\\s|[^\\sa-z]+", "[a-z]+(?! )|[a-z]|\\s|[^\\sa-z]+",
                                           "[a-z]+(?=\\s\\S)|[a-z]|\\s|[^\\sa-z]+"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        struct split *s = split_new();
        assert_ok(split_add(s, patterns[i], strlen(patterns[i]), "test", &e), &e);
        for (int k = 0; k < 200 / CASE_STRIDE; k++) {
            unsigned char text[80];
            check_split(s, text, draw(&r, text, sizeof text), patterns[i]);
        }
        split_free(s);
    }
}

static void test_published_expressions_have_seams(void **state)
{
    (void)state;
    struct err e;
    const char *const published[] = {SPLIT_GPT2, SPLIT_LLAMA3};
    for (size_t i = 0; i < 2; i++) {
        struct split *s = split_new();
        assert_ok(split_add(s, published[i], strlen(published[i]), "test", &e), &e);
        assert_true(split_parts_before(s, 0, 'x'));
        assert_true(split_parts_before(s, 1, 'x'));
        assert_true(split_parts_before(s, 0, 0x4E16));
        assert_true(split_parts_before(s, 1, ';'));
        assert_int_equal(split_parts_before(s, 0, ';'),
                         i == 0); /* Llama 3 keeps line feeds with the signs before them */
        assert_false(split_parts_before(s, 0, '\n'));
        split_free(s);
    }
}

static struct tokenizer *open_fixture(const char *path)
{
    struct tokenizer *t;
    struct err e;
    assert_ok(tokenizer_open(&t, path, &e), &e);
    return t;
}

static void check_ids(const struct tokenizer *t, const struct seams *seams, const unsigned char *text, size_t n)
{
    struct tokens whole = {0};
    struct err e;
    assert_ok(tokenizer_encode(t, (const char *)text, n, &whole, &e), &e);
    for (size_t at = 1; at < n; at++) {
        if (!seam_at(seams, text, at)) continue;
        struct tokens parts = {0};
        assert_ok(tokenizer_encode(t, (const char *)text, at, &parts, &e), &e);
        assert_ok(tokenizer_encode(t, (const char *)text + at, n - at, &parts, &e), &e);
        assert_int_equal(parts.n, whole.n);
        assert_memory_equal(parts.ids, whole.ids, (size_t)whole.n * sizeof *whole.ids);
        tokens_free(&parts);
    }
    tokens_free(&whole);
}

/* Added tokens and bytes that are no text among the words. */
static void test_seams_of_tokenizers(void **state)
{
    (void)state;
    const char *const files[] = {FIXTURE("gpt2.json"),
                                 FIXTURE("llama3.json"),
                                 FIXTURE("added.json"),
                                 FIXTURE("digits.json"),
                                 FIXTURE("prefix.json"),
                                 FIXTURE("literal.json"),
                                 "byte"};
    struct rng r = {.seed = 6};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        struct tokenizer *t = open_fixture(files[f]);
        struct seams seams;
        seams_find(&seams, t);
        assert_int_equal(seams.everywhere, !strcmp(files[f], "byte"));
        for (int k = 0; k < 300 / CASE_STRIDE; k++) {
            unsigned char text[120];
            size_t n = draw(&r, text, 90), m;
            int32_t vocab = tokenizer_vocab(t), id = vocab - 1 - (int32_t)below(&r, 8);
            const char *piece = tokenizer_piece(t, id, &m); /* the last ids are the added tokens */
            size_t at = below(&r, n);
            if (m < 24) {
                memmove(text + at + m, text + at, n - at);
                memcpy(text + at, piece, m);
                n += m;
            }
            if (k % 3 == 0) text[below(&r, n)] = (unsigned char)below(&r, 256);
            check_ids(t, &seams, text, n);
        }
        tokenizer_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seams_of_expressions),
        cmocka_unit_test(test_seams_and_what_looks_ahead),
        cmocka_unit_test(test_published_expressions_have_seams),
        cmocka_unit_test(test_seams_of_tokenizers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
