/* SPDX-License-Identifier: Apache-2.0 */
/* Ids against the reference's stored ids; streaming; loss-free decoding; saving. */
#include "data_test.h"

#include "base/json.h"
#include "token/tokenizer.h"

static const char *const fixtures[] = {"gpt2", "llama3", "prefix", "digits", "literal", "added"};
enum { N_FIXTURES = sizeof fixtures / sizeof *fixtures };

static struct tokenizer *open_fixture(const char *name)
{
    struct tokenizer *t;
    struct err e;
    char path[500];
    snprintf(path, sizeof path, "%s%s.json", FIXTURE(""), name);
    assert_ok(tokenizer_open(&t, path, &e), &e);
    return t;
}

static struct json *open_cases(const char *name)
{
    struct json *root;
    struct err e;
    char path[500];
    snprintf(path, sizeof path, "%s%s.cases.json", FIXTURE(""), name);
    assert_ok(json_parse_file(&root, path, 1 << 20, &e), &e);
    return root;
}

static void encode(const struct tokenizer *t, const char *text, size_t n, struct tokens *out)
{
    struct err e;
    out->n = 0;
    assert_ok(tokenizer_encode(t, text, n, out, &e), &e);
}

/* In parts of at most `part` bytes. */
static void encode_parts(struct encoder *c, const char *text, size_t n, size_t part, struct tokens *out)
{
    struct err e;
    out->n = 0;
    for (size_t at = 0; at < n; at += part)
        assert_ok(encoder_feed(c, text + at, n - at < part ? n - at : part, out, &e), &e);
    assert_ok(encoder_end(c, out, &e), &e);
}

static void assert_same(const struct tokens *a, const struct tokens *b, const char *name, const char *text)
{
    if (a->n != b->n || (a->n && memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids))) {
        for (int64_t i = 0; i < a->n; i++) fprintf(stderr, "%d ", a->ids[i]);
        fprintf(stderr, " wanted ");
        for (int64_t i = 0; i < b->n; i++) fprintf(stderr, "%d ", b->ids[i]);
        fail_msg("\n%s: ids differ for \"%s\"", name, text);
    }
}

static void test_reference_ids(void **state)
{
    (void)state;
    /* Of pre-tokenizers alone, each piece a word: what they make cannot always be put together again. */
    static const char *const cutters[] = {"fixed", "fixed_first", "scripts", "scripts_words"};
    for (int f = 0; f < N_FIXTURES + 4; f++) {
        const char *name = f < N_FIXTURES ? fixtures[f] : cutters[f - N_FIXTURES];
        struct tokenizer *t = open_fixture(name);
        struct json *cases = open_cases(name);
        struct encoder *c = encoder_new(t);
        struct tokens got = {0}, wanted = {0};
        assert_true(json_size(cases) > 50);
        for (size_t i = 0; i < json_size(cases); i++) {
            size_t n;
            const char *text = json_string(json_at(json_at(cases, i), 0), &n, NULL);
            const struct json *ids = json_at(json_at(cases, i), 1);
            wanted.n = 0;
            for (size_t k = 0; k < json_size(ids); k++) tokens_push(&wanted, (int32_t)json_int(json_at(ids, k), -1));
            encode(t, text, n, &got);
            assert_same(&got, &wanted, name, text);
            for (size_t part = 1; part < 8; part++) {
                encode_parts(c, text, n, part, &got);
                assert_same(&got, &wanted, name, text);
            }
        }
        tokens_free(&got);
        tokens_free(&wanted);
        encoder_free(c);
        json_free(cases);
        tokenizer_free(t);
    }
}

/* Text that mixes everything, bad bytes included. */
static void random_text(struct str *s, uint64_t *seed, size_t n)
{
    static const char *const bits[] = {"the ",
                                       " and",
                                       "don't",
                                       "12345",
                                       "\r\n",
                                       "\n\n",
                                       "   ",
                                       "\t",
                                       "\xC3\xA9",
                                       "\xF0\x9F\x98\x80",
                                       "\xE2\x80\x83",
                                       "<|endoftext|>",
                                       "<|endof",
                                       "\xE4\xBD\xA0\xE5\xA5\xBD",
                                       ".",
                                       "!?",
                                       "\xFF",
                                       "\xE2\x82",
                                       "\xC0\x80",
                                       "\xED\xA0\x80",
                                       "\xF4\x90",
                                       "<mask>",
                                       "<pad>",
                                       "<ab",
                                       "c>",
                                       "one",
                                       "x",
                                       "'LL",
                                       "\xCC\x81"};
    while (s->n < n) {
        const char *bit = bits[dice(seed) % (sizeof bits / sizeof *bits)];
        for (uint32_t i = dice(seed) % 3; i < 3; i++) str_puts(s, bit);
    }
}

static void test_parts_do_not_matter(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int f = 0; f < N_FIXTURES; f++) {
        struct tokenizer *t = open_fixture(fixtures[f]);
        struct encoder *c = encoder_new(t);
        struct tokens whole = {0}, parts = {0};
        for (int round = 0; round < 60; round++) {
            struct str s = {0};
            random_text(&s, &seed, 1 + dice(&seed) % 3000);
            encode(t, s.p, s.n, &whole);
            encode_parts(c, s.p, s.n, 1 + dice(&seed) % 50, &parts);
            assert_same(&parts, &whole, fixtures[f], s.p);
            str_free(&s);
        }
        tokens_free(&whole);
        tokens_free(&parts);
        encoder_free(c);
        tokenizer_free(t);
    }
}

static void test_nothing_is_lost(void **state)
{
    (void)state;
    const char *const names[] = {"gpt2", "llama3", "digits"};
    uint64_t seed = 11;
    for (int f = 0; f < 4; f++) {
        struct tokenizer *t = f < 3 ? open_fixture(names[f]) : tokenizer_new_byte();
        for (int round = 0; round < 60; round++) {
            struct str s = {0}, back = {0};
            struct tokens ids = {0};
            random_text(&s, &seed, 1 + dice(&seed) % 2000);
            for (size_t i = 0; i < s.n && round % 2; i++) /* every second text: random bytes */
                s.p[i] = (char)dice(&seed);
            encode(t, s.p, s.n, &ids);
            tokenizer_decode(t, ids.ids, ids.n, true, &back);
            assert_int_equal(back.n, s.n);
            assert_memory_equal(str_text(&back), s.p, s.n);
            str_free(&s);
            str_free(&back);
            tokens_free(&ids);
        }
        tokenizer_free(t);
    }
}

/* Pieces longer than the buffer, and long runs that need the heap: linear time, no loss, parts do not matter. */
static void test_very_long_pieces(void **state)
{
    (void)state;
    const char *const fill[] = {"a", " ", "\n", "the", "\xC3\xA9", "\xFF", "\xE2\x80\x83"};
    struct tokenizer *t = open_fixture("llama3");
    struct encoder *c = encoder_new(t);
    for (size_t f = 0; f < sizeof fill / sizeof *fill; f++) {
        struct str s = {0}, back = {0};
        struct tokens whole = {0}, parts = {0};
        str_puts(&s, "x ");
        while (s.n < 700000) str_puts(&s, fill[f]);
        str_puts(&s, "end");
        encode(t, s.p, s.n, &whole);
        encode_parts(c, s.p, s.n, 9973, &parts);
        assert_same(&parts, &whole, "llama3", fill[f]);
        tokenizer_decode(t, whole.ids, whole.n, true, &back);
        assert_int_equal(back.n, s.n);
        assert_memory_equal(back.p, s.p, s.n);
        str_free(&s);
        str_free(&back);
        tokens_free(&whole);
        tokens_free(&parts);
    }
    encoder_free(c);
    tokenizer_free(t);
}

static void test_byte(void **state)
{
    (void)state;
    struct err e;
    struct tokenizer *t;
    assert_ok(tokenizer_open(&t, "byte", &e), &e);
    assert_int_equal(tokenizer_kind(t), TOKENIZER_BYTE);
    assert_int_equal(tokenizer_vocab(t), 257);
    assert_int_equal(tokenizer_eos(t), 256);
    assert_int_equal(tokenizer_bos(t), -1);
    struct tokens ids = {0};
    const char text[] = "A\xFF\x00<|endoftext|>";
    encode(t, text, sizeof text - 1, &ids);
    assert_int_equal(ids.n, sizeof text - 1);
    for (int64_t i = 0; i < ids.n; i++) assert_int_equal(ids.ids[i], (unsigned char)text[i]);
    struct str shown = {0};
    tokenizer_decode(t, (int32_t[]){72, 256, 105}, 3, true, &shown);
    assert_string_equal(shown.p, "H<|endoftext|>i");
    str_clear(&shown);
    tokenizer_decode(t, (int32_t[]){72, 256, 105, -1, 257, 1 << 30}, 6, false, &shown);
    assert_string_equal(shown.p, "Hi");
    str_free(&shown);
    tokens_free(&ids);
    tokenizer_free(t);
}

static void test_ends(void **state)
{
    (void)state;
    struct tokenizer *t = open_fixture("gpt2");
    assert_int_equal(tokenizer_eos(t), 0);
    assert_true(tokenizer_is_special(t, 0));
    assert_int_equal(tokenizer_bos(t), -1);
    tokenizer_free(t);
    t = open_fixture("llama3");
    size_t n;
    assert_string_equal(tokenizer_piece(t, tokenizer_eos(t), &n), "<|end_of_text|>");
    assert_int_equal(n, strlen("<|end_of_text|>"));
    assert_string_equal(tokenizer_piece(t, tokenizer_bos(t), NULL), "<|begin_of_text|>");
    tokenizer_free(t);
}

static struct tokenizer *open_case(const char *dir, const char *text, const char *config)
{
    struct tokenizer *t;
    struct err e;
    char *path = fs_join(dir, "tokenizer.json"), *beside = fs_join(dir, "tokenizer_config.json");
    assert_ok(fs_write_atomic(path, text, strlen(text), &e), &e);
    if (config) assert_ok(fs_write_atomic(beside, config, strlen(config), &e), &e);
    assert_ok(tokenizer_open(&t, dir, &e), &e);
    xfree(path);
    xfree(beside);
    return t;
}

/* What comes before a text, and what is called bos, by the library (make_begins.py). */
static void test_begins(void **state)
{
    (void)state;
    struct json *root;
    struct err e;
    char *dir = scratch_new();
    assert_ok(json_parse_file(&root, FIXTURE("begins.cases.json"), 1 << 24, &e), &e);
    const struct json *cases = json_get(root, "cases"), *texts = json_get(root, "tokenizers");
    assert_true(json_size(cases) > 100);
    for (size_t i = 0; i < json_size(cases); i++) {
        const struct json *c = json_at(cases, i), *before = json_get(c, "before");
        const char *text = json_string(json_at(texts, (size_t)json_int(json_get(c, "tokenizer"), -1)), NULL, ""),
                   *config = json_string(json_get(c, "config"), NULL, "");
        struct tokenizer *t = open_case(dir, text, config), *again;
        struct tokens ids = {0};
        assert_ok(tokenizer_encode_text(t, "a b", 3, &ids, &e), &e);
        bool same = ids.n == (int64_t)json_size(before) + 2 && tokenizer_bos(t) == json_int(json_get(c, "bos"), -1);
        for (size_t k = 0; k < json_size(before); k++) same = same && ids.ids[k] == json_int(json_at(before, k), -1);
        if (!same) fail_msg("%s: %s: %d tokens, bos %d", text, config, (int)ids.n, tokenizer_bos(t));
        /* From files that were compared with checksums: what the model has counts where they do not say. */
        assert_ok(tokenizer_parse_files(&again, text, strlen(text), config, strlen(config), 4, 4, "case", &e), &e);
        assert_int_equal(tokenizer_bos(again), tokenizer_bos(t));
        assert_int_equal(tokenizer_begin(again)->n, json_size(before));
        /* What was made of texts before something stood before them is not gone on with. */
        assert_int_equal(tokenizer_key(t) == tokenizer_fingerprint(t), !json_size(before));
        tokens_free(&ids);
        tokenizer_free(t);
        tokenizer_free(again);
    }
    json_free(root);
    scratch_free(dir);
}

/* Where no tokenizer_config.json is. */
static void test_bos_of_others(void **state)
{
    (void)state;
    static const char model[] =
        "{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0,\"<s>\":1,\"</s>\":2,\"<bos>\":3},"
        "\"unk_token\":\"a\"},\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"added_tokens\":[{\"id\":1,"
        "\"content\":\"<s>\",\"special\":true},{\"id\":2,\"content\":\"</s>\",\"special\":true}]%s}";
    static const struct {
        const char *more, *name, *beside;
        int bos, start;
    } cases[] = {
        {"", NULL, NULL, 1, 1}, /* by name */
        {"", "config.json", "{\"bos_token_id\":3}", 3, 3},
        {"", "config.json", "{\"bos_token_id\":null}", -1, 2}, /* there is none: an end stands before what is scored */
        {"", "tokenizer_config.json", "{\"bos_token\":null}", -1, 2},
        {"", "tokenizer_config.json", "{\"bos_token\":\"\"}", -1, 2},
        {"", "tokenizer_config.json", "{\"tokenizer_class\":\"LlamaTokenizerFast\"}", 1, 1},
        {"", "tokenizer_config.json", "{\"tokenizer_class\":\"GemmaTokenizer\"}", 3, 3},
        {"", "tokenizer_config.json", "{\"tokenizer_class\":\"Qwen2Tokenizer\"}", -1, 2},
        {",\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"<bos>\",3],\"sep\":[\"</s>\",2]}", NULL, NULL, 3,
         3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *dir = scratch_new();
        struct str text = {0};
        struct err e;
        str_printf(&text, model, cases[i].more);
        if (cases[i].name) {
            char *path = fs_join(dir, cases[i].name);
            assert_ok(fs_write_atomic(path, cases[i].beside, strlen(cases[i].beside), &e), &e);
            xfree(path);
        }
        struct tokenizer *t = open_case(dir, str_text(&text), NULL);
        if (tokenizer_bos(t) != cases[i].bos || tokenizer_start(t, 4) != cases[i].start)
            fail_msg("%s: %d, %d", cases[i].beside, tokenizer_bos(t), tokenizer_start(t, 4));
        tokenizer_free(t);
        str_free(&text);
        scratch_free(dir);
    }
}

static void test_save_and_side_files(void **state)
{
    (void)state;
    struct err e;
    char *dir = scratch_new();
    for (int f = -1; f < N_FIXTURES; f++) {
        struct tokenizer *t = f < 0 ? tokenizer_new_byte() : open_fixture(fixtures[f]), *back;
        assert_ok(tokenizer_save(t, dir, &e), &e);
        assert_ok(tokenizer_open(&back, dir, &e), &e);
        assert_int_equal(tokenizer_kind(back), tokenizer_kind(t));
        assert_int_equal(tokenizer_vocab(back), tokenizer_vocab(t));
        assert_int_equal(tokenizer_eos(back), tokenizer_eos(t));
        assert_int_equal(tokenizer_bos(back), tokenizer_bos(t));
        assert_true(tokenizer_fingerprint(back) == tokenizer_fingerprint(t));
        tokenizer_free(t);
        tokenizer_free(back);
    }
    /* The configuration beside a file names its ends: as text, as an object, by id. */
    struct tokenizer *t = open_fixture("prefix");
    assert_ok(tokenizer_save(t, dir, &e), &e);
    int32_t mask = tokenizer_find(t, "<mask>", 6), pad = tokenizer_find(t, "<pad>", 5);
    tokenizer_free(t);
    xfree(
        put_text(dir, "tokenizer_config.json", "{\"eos_token\": {\"content\": \"<mask>\"}, \"bos_token\": \"<pad>\"}"));
    assert_ok(tokenizer_open(&t, dir, &e), &e);
    assert_int_equal(tokenizer_eos(t), mask);
    assert_int_equal(tokenizer_bos(t), pad);
    tokenizer_free(t);
    xfree(put_text(dir, "tokenizer_config.json", "{}"));
    char config[100];
    snprintf(config, sizeof config, "{\"eos_token_id\": [%d, 7], \"bos_token_id\": null}", pad);
    xfree(put_text(dir, "config.json", config));
    assert_ok(tokenizer_open(&t, dir, &e), &e);
    assert_int_equal(tokenizer_eos(t), pad);
    assert_int_equal(tokenizer_bos(t), -1);
    tokenizer_free(t);
    xfree(put_text(dir, "config.json", "{oops"));
    assert_true(tokenizer_open(&t, dir, &e) < 0);
    assert_non_null(strstr(e.text, "config.json"));
    scratch_free(dir);
}

static void test_streaming_decoder(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_new_byte();
    struct decoder d = {.t = t};
    struct str out = {0};
    const unsigned char text[] = "a\xC3\xA9\xF0\x9F\x98\x80z";
    const size_t shown_after[] = {1, 1, 3, 3, 3, 3, 7, 8};
    for (size_t i = 0; i < 8; i++) {
        decoder_push(&d, text[i], &out);
        assert_int_equal(out.n, shown_after[i]);
    }
    decoder_push(&d, 256, &out); /* special: not shown */
    decoder_push(&d, 0xF0, &out);
    decoder_push(&d, 0x9F, &out);
    decoder_push(&d, 'q', &out); /* never became a character: two replacements */
    decoder_push(&d, 0xE2, &out);
    decoder_end(&d, &out);
    assert_string_equal(out.p, "a\xC3\xA9\xF0\x9F\x98\x80z\xEF\xBF\xBD\xEF\xBF\xBDq\xEF\xBF\xBD");
    str_free(&out);
    tokenizer_free(t);
}

/* "\u0000" in a vocabulary: the tokens are there, NUL and all, and not taken for each other. */
static void test_nul_in_keys(void **state)
{
    (void)state;
    struct tokenizer *t = open_fixture("added");
    int32_t nul = tokenizer_find(t, "a\0b", 3);
    size_t n;
    assert_int_equal(nul, 301);
    assert_memory_equal(tokenizer_piece(t, nul, &n), "a\0b", 3);
    assert_int_equal(n, 3);
    assert_memory_equal(tokenizer_piece(t, 300, &n), "\0", 2);
    assert_int_equal(n, 1);
    struct tokens ids = {0};
    struct str back = {0};
    encode(t, "a\0b\0", 4, &ids); /* text with NUL is bytes as any other */
    assert_int_equal(ids.n, 4);
    tokenizer_decode(t, ids.ids, ids.n, true, &back);
    assert_int_equal(back.n, 4);
    assert_memory_equal(back.p, "a\0b\0", 4);
    str_free(&back);
    tokens_free(&ids);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_ids),
        cmocka_unit_test(test_parts_do_not_matter),
        cmocka_unit_test(test_nothing_is_lost),
        cmocka_unit_test(test_very_long_pieces),
        cmocka_unit_test(test_byte),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_begins),
        cmocka_unit_test(test_bos_of_others),
        cmocka_unit_test(test_save_and_side_files),
        cmocka_unit_test(test_streaming_decoder),
        cmocka_unit_test(test_nul_in_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
