/* SPDX-License-Identifier: Apache-2.0 */
/* Fill-in-the-middle: what was cut can be put together again, lengths stay, rates are what was asked for, cuts fall
 * inside of tokens, the same arguments give the same samples, tokenizers without its tokens are refused. */
#include "data_test.h"

#include "data/fim.h"

#define KIND(name) TEST_DIR "/data/kinds/" name

enum { N = 400, DOCUMENTS = 4 };

/* A tokenizer.json with fill-in-the-middle tokens of that spelling behind all others: of the fixture's BPE 1100, 1101,
 * 1102; NULL: without. */
static struct tokenizer *open_file(const char *path, const char *prefix, const char *suffix, const char *middle)
{
    const char *names[] = {prefix, suffix, middle};
    struct str text = {0};
    char *json;
    size_t n;
    struct err e;
    struct tokenizer *t;
    assert_ok(fs_read_all(path, 8 << 20, &json, &n, &e), &e);
    assert_ok(tokenizer_parse(&t, json, n, "fim", &e), &e);
    int first = tokenizer_vocab(t);
    char *end = strstr(json, "],\"normalizer\"");
    assert_non_null(end);
    str_add(&text, json, (size_t)(end - json));
    for (int i = 0; prefix && i < 3; i++)
        str_printf(&text,
                   ",{\"id\":%d,\"content\":\"%s\",\"special\":true,\"single_word\":false,\"lstrip\":false,"
                   "\"rstrip\":false,\"normalized\":false}",
                   first + i, names[i]);
    str_puts(&text, end);
    tokenizer_free(t);
    assert_ok(tokenizer_parse(&t, text.p, text.n, "fim", &e), &e);
    xfree(json);
    str_free(&text);
    return t;
}

static struct tokenizer *open_with(const char *prefix, const char *suffix, const char *middle)
{
    return open_file(FIXTURE("gpt2.json"), prefix, suffix, middle);
}

static const char *const words[] = {"quick",  "brown", "stretches", "jumping", "naïve",
                                    "größer", "the",   "lazily",    "of",      "你好"};

/* DOCUMENTS documents of N tokens in all, each but the last ended. */
static void fill(const struct tokenizer *t, uint64_t seed, int32_t *ids)
{
    struct str text = {0};
    struct tokens out = {0};
    struct err e;
    for (int i = 0; i < 4 * N; i++) str_printf(&text, "%s%s", words[dice(&seed) % 10], dice(&seed) % 9 ? " " : ".\n");
    assert_ok(tokenizer_encode(t, text.p, text.n, &out, &e), &e);
    assert_true(out.n >= N);
    memcpy(ids, out.ids, N * sizeof *ids);
    for (int i = 1; i < DOCUMENTS; i++) ids[i * N / DOCUMENTS] = tokenizer_eos(t);
    tokens_free(&out);
    str_free(&text);
}

static struct str text_of(const struct tokenizer *t, const int32_t *ids, int64_t n)
{
    struct str s = {0};
    tokenizer_decode(t, ids, n, true, &s);
    return s;
}

static int64_t find(const int32_t *ids, int64_t n, int32_t id)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] == id) return i;
    return -1;
}

/* Document of n tokens, before and after. 0: as it was; 1: PSM; 2: SPM. Its parts in order are a beginning of the text
 * and the middle's end is where the suffix begins. *inside counts middles that begin within a token of before. */
static int check_document(const struct tokenizer *t, const int32_t *before, const int32_t *after, int64_t n)
{
    if (!memcmp(before, after, (size_t)n * 4)) return 0;
    int64_t suffix = find(after, n, 1101), middle = find(after, n, 1102);
    assert_int_equal(after[0], 1100);
    assert_true(suffix > 0 && middle > suffix);
    struct str whole = text_of(t, before, n), joined = {0}, s;
    if (suffix > 1 || (suffix == 1 && middle == 2)) { /* an empty prefix and an empty suffix: either way is the same */
        s = text_of(t, after + 1, suffix - 1);
        str_add(&joined, str_text(&s), s.n);
        str_free(&s);
    }
    s = text_of(t, after + middle + 1, n - middle - 1);
    str_add(&joined, str_text(&s), s.n); /* SPM: the prefix, too */
    str_free(&s);
    s = text_of(t, after + suffix + 1, middle - suffix - 1);
    str_add(&joined, str_text(&s), s.n);
    str_free(&s);
    assert_true(joined.n <= whole.n);
    assert_memory_equal(str_text(&joined), whole.p, joined.n);
    str_free(&joined);
    str_free(&whole);
    return suffix == 1 ? 2 : 1;
}

static void test_parts(void **state)
{
    (void)state;
    struct tokenizer *t = open_with("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>");
    struct fim f;
    struct err e;
    int32_t before[N], after[N], again[N];
    int kinds[3] = {0}, all = 0;
    assert_ok(fim_init(&f, &(struct fim_rule){.rate = 0.5, .spm_rate = 0.25}, t, 7, &e), &e);
    struct fim_work *w = fim_work_new(&f), *other = fim_work_new(&f);
    for (int64_t k = 0; k < 300; k++) {
        fill(t, (uint64_t)k, before);
        memcpy(after, before, sizeof before);
        memcpy(again, before, sizeof before);
        assert_ok(fim_apply(w, k, 0, after, N, &e), &e);
        assert_ok(fim_apply(other, k, 0, again, N, &e), &e);
        assert_memory_equal(after, again, sizeof after);
        for (int i = 0; i < DOCUMENTS; i++, all++) {
            int from = i * N / DOCUMENTS + (i > 0), to = (i + 1) * N / DOCUMENTS;
            if (to < N) assert_int_equal(after[to], tokenizer_eos(t));
            kinds[check_document(t, before + from, after + from, to - from)]++;
        }
    }
    double done = kinds[1] + kinds[2]; /* a little below the rate: where the suffix is too short nothing is done */
    if (done / all < 0.38 || done / all > 0.52) fail_msg("%g of the documents, wanted 0.5", done / all);
    if (kinds[2] / done < 0.18 || kinds[2] / done > 0.34) fail_msg("%g of them SPM, wanted 0.25", kinds[2] / done);
    /* Another sample, another seed: others. */
    memcpy(after, before, sizeof before);
    memcpy(again, before, sizeof before);
    f.rate = 1;
    assert_ok(fim_apply(w, 1, 0, after, N, &e), &e);
    assert_ok(fim_apply(w, 2, 0, again, N, &e), &e);
    assert_memory_not_equal(after, again, sizeof after);
    /* Documents one by one are what they are together. */
    memcpy(again, before, sizeof before);
    for (int i = 0; i < DOCUMENTS; i++) {
        int from = i * N / DOCUMENTS + (i > 0), to = (i + 1) * N / DOCUMENTS;
        assert_ok(fim_apply(w, 1, i, again + from, to - from, &e), &e);
    }
    assert_memory_equal(after, again, sizeof after);
    fim_work_free(w);
    fim_work_free(other);
    tokenizer_free(t);
}

static void test_tokens(void **state)
{
    (void)state;
    struct fim f;
    struct err e;
    struct tokenizer *byte = tokenizer_new_byte(), *none = open_with(NULL, NULL, NULL),
                     *deepseek = open_with("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
                     *own = open_with("<A>", "<B>", "<C>");
    assert_ok(fim_init(&f, &(struct fim_rule){.rate = 0}, byte, 1, &e), &e);
    assert_err(fim_init(&f, &(struct fim_rule){.rate = 0.5}, byte, 1, &e), &e, ERR_REQUEST,
               "data.fim|no special tokens|data.fim.rate: 0");
    assert_err(fim_init(&f, &(struct fim_rule){.rate = 0.5}, none, 1, &e), &e, ERR_REQUEST, "no special tokens");
    assert_ok(fim_init(&f, &(struct fim_rule){.rate = 0.5}, deepseek, 1, &e), &e);
    assert_true(f.prefix == 1100 && f.suffix == 1101 && f.middle == 1102);
    assert_err(fim_init(&f, &(struct fim_rule){.rate = 0.5}, own, 1, &e), &e, ERR_REQUEST, "no special tokens");
    assert_ok(fim_init(&f, &(struct fim_rule){0.5, 0, "<A>", "<C>", "<B>"}, own, 1, &e), &e);
    assert_true(f.suffix == 1102);
    assert_err(fim_init(&f, &(struct fim_rule){0.5, 0, "<A>", "<C>", NULL}, own, 1, &e), &e, ERR_REQUEST,
               "named together");
    assert_err(fim_init(&f, &(struct fim_rule){0.5, 0, "<A>", "<C>", "<D>"}, own, 1, &e), &e, ERR_REQUEST,
               "no token \"<D>\"");
    tokenizer_free(byte);
    tokenizer_free(none);
    tokenizer_free(deepseek);
    tokenizer_free(own);
}

/* Documents of one text are cut at different places, and seldom at the same character twice. */
static void test_places(void **state)
{
    (void)state;
    struct tokenizer *t = open_with("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>");
    struct fim f;
    struct err e;
    int32_t one[N], ids[2 * N];
    int same = 0, empty = 0, done = 0;
    assert_ok(fim_init(&f, &(struct fim_rule){.rate = 1, .spm_rate = 0}, t, 3, &e), &e);
    struct fim_work *w = fim_work_new(&f);
    fill(t, 5, one);
    for (int64_t k = 0; k < 100; k++) {
        memcpy(ids, one, 90 * sizeof *ids);
        ids[90] = tokenizer_eos(t);
        memcpy(ids + 91, one, 90 * sizeof *ids);
        assert_ok(fim_apply(w, k, 0, ids, 181, &e), &e);
        same += !memcmp(ids, ids + 91, 90 * sizeof *ids);
        done += ids[0] == 1100;
        empty += ids[0] == 1100 && ids[89] == 1102;
    }
    assert_true(done > 80);
    assert_true(same < 5);
    assert_true(empty < 10);
    fim_work_free(w);
    tokenizer_free(t);
}

/* Tokens that are not how the tokenizer would spell the text become fewer: then nothing is done. */
static void test_other_spelling(void **state)
{
    (void)state;
    static const char letters[] = "the quick brown the quick brown the quick brown ";
    enum { LETTERS = sizeof letters - 1 };
    struct tokenizer *t = open_with("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>");
    struct fim f;
    struct err e;
    int32_t before[LETTERS], after[LETTERS];
    assert_ok(fim_init(&f, &(struct fim_rule){.rate = 1}, t, 3, &e), &e);
    struct fim_work *w = fim_work_new(&f);
    for (int i = 0; i < LETTERS; i++) assert_true((before[i] = tokenizer_find(t, &letters[i], 1)) >= 0);
    for (int64_t k = 0; k < 50; k++) {
        memcpy(after, before, sizeof before);
        assert_ok(fim_apply(w, k, 0, after, LETTERS, &e), &e);
        assert_memory_equal(after, before, sizeof before);
    }
    fim_work_free(w);
    tokenizer_free(t);
}

/* What the tokenizer puts before a text stays before it, and what is behind is cut as if it were not there. */
static void test_what_stands_before(void **state)
{
    (void)state;
    struct tokenizer *t = open_file(FIXTURE("llama3.json"), "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>");
    const struct tokens *begin = tokenizer_begin(t);
    struct fim f;
    struct err e;
    enum { TEXT = 90, ALL = 2 * TEXT + 3 };
    int32_t before[N], led[ALL], plain[ALL];
    int done = 0;
    assert_int_equal(begin->n, 1);
    assert_ok(fim_init(&f, &(struct fim_rule){.rate = 0.5, .spm_rate = 0.5}, t, 3, &e), &e);
    struct fim_work *w = fim_work_new(&f);
    fill(t, 5, before);
    for (int64_t k = 0; k < 40; k++) {
        for (int i = 0; i < 2; i++) {
            led[i * (TEXT + 2)] = begin->ids[0];
            memcpy(led + i * (TEXT + 2) + 1, before, TEXT * sizeof *led);
            memcpy(plain + i * (TEXT + 1), before, TEXT * sizeof *led);
        }
        led[TEXT + 1] = plain[TEXT] = tokenizer_eos(t);
        assert_ok(fim_apply(w, k, 0, led, ALL, &e), &e);
        assert_ok(fim_apply(w, k, 0, plain, ALL - 2, &e), &e);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(led[i * (TEXT + 2)], begin->ids[0]);
            assert_memory_equal(led + i * (TEXT + 2) + 1, plain + i * (TEXT + 1), TEXT * sizeof *led);
            done += plain[i * (TEXT + 1)] == f.prefix;
        }
        assert_int_equal(led[TEXT + 1], tokenizer_eos(t));
    }
    assert_true(done > 20);
    fim_work_free(w);
    tokenizer_free(t);
}

static bool is_led(const struct tokenizer *t, int32_t id)
{
    size_t n;
    const char *piece = tokenizer_piece(t, id, &n);
    return (n >= 3 && !memcmp(piece, "\xE2\x96\x81", 3)) || (n && *piece == ' ');
}

/* The prefix, the middle and the suffix of what was done, in that order. Returns how many. */
static int64_t in_order(const struct fim *f, const int32_t *ids, int64_t n, int32_t *out)
{
    int64_t suffix = find(ids, n, f->suffix), middle = find(ids, n, f->middle), psm = suffix > 1, k = 0;
    assert_true(suffix > 0 && middle > suffix);
    for (int64_t i = 1; psm && i < suffix; i++) out[k++] = ids[i];
    for (int64_t i = middle + 1; i < n; i++) out[k++] = ids[i];
    for (int64_t i = suffix + 1; i < middle; i++) out[k++] = ids[i];
    return k;
}

/* A tokenizer that puts a space before a text puts none where a document is cut, keeps the one before the document,
 * and gives none to a piece from the middle of a document. */
static void test_led(void **state)
{
    (void)state;
    static const char *const files[] = {KIND("llama2.json"), KIND("mistral.json"), FIXTURE("prefix.json")};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct tokenizer *t = open_file(files[i], "<PRE>", "<SUF>", "<MID>");
        struct fim f;
        struct err e;
        int32_t ids[N], before[N], after[N], parts[N];
        int done = 0, from_middle = 0;
        assert_ok(fim_init(&f, &(struct fim_rule){.rate = 1, .spm_rate = 0.5}, t, 3, &e), &e);
        struct fim_work *w = fim_work_new(&f);
        fill(t, 11, ids);
        for (int d = 1; d < DOCUMENTS; d++) ids[d * N / DOCUMENTS] = ids[1];
        for (int64_t k = 0; k < 120; k++) {
            int64_t from = k % 2 ? k : 0, n = N / 2;
            memcpy(before, ids + from, (size_t)n * sizeof *ids);
            memcpy(after, before, (size_t)n * sizeof *ids);
            assert_ok(fim_apply(w, k, 0, after, n, &e), &e);
            if (!memcmp(after, before, (size_t)n * sizeof *ids)) continue;
            done++;
            from_middle += !is_led(t, before[0]);
            int64_t all = in_order(&f, after, n, parts);
            struct str whole = text_of(t, before, n), again = text_of(t, parts, all);
            if (again.n > whole.n || memcmp(again.p, whole.p, again.n))
                fail_msg("%s, %lld: cut and joined:\n%s\nit was:\n%s", files[i], (long long)k, str_text(&again),
                         str_text(&whole));
            assert_int_equal(is_led(t, parts[0]), is_led(t, before[0]));
            str_free(&whole);
            str_free(&again);
        }
        if (done < 60 || !from_middle) fail_msg("%s: %d done, %d from a middle", files[i], done, from_middle);
        fim_work_free(w);
        tokenizer_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts),  cmocka_unit_test(test_tokens),
                                       cmocka_unit_test(test_places), cmocka_unit_test(test_other_spelling),
                                       cmocka_unit_test(test_led),    cmocka_unit_test(test_what_stands_before)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
