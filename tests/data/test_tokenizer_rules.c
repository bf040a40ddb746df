/* SPDX-License-Identifier: Apache-2.0 */
/* Rules and vocabularies as they are read in batches: results out of order, tokens that are not of letters, added
 * tokens that take a model's text, ids with holes, a Unigram's texts that agree in many bytes. */
#include "data_test.h"

#include "token/bpe.h"
#include "token/byte_level.h"

/* A vocabulary of all bytes and what follows them, with rules. */
static int parse(const char *more, const char *merges, const char *added, struct tokenizer **t, struct err *e)
{
    struct str s = {0}, letter = {0};
    str_printf(&s,
               "{\"added_tokens\":[%s],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":"
               "false,"
               "\"add_prefix_space\":false},\"model\":{\"type\":\"BPE\",\"vocab\":{",
               added);
    for (int i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)i;
        str_clear(&letter);
        byte_level_write(&letter, &byte, 1);
        str_printf(&s, "%s\"%s%s\":%d", i ? "," : "", !strcmp(letter.p, "\"") || !strcmp(letter.p, "\\") ? "\\" : "",
                   letter.p, i);
    }
    str_printf(&s, "%s},\"merges\":[%s]}}", more, merges);
    int code = tokenizer_parse(t, s.p, s.n, "x.json", e);
    str_free(&s);
    str_free(&letter);
    return code;
}

static void good(const char *more, const char *merges, const char *added, const char *text, int n, const int *want)
{
    struct tokenizer *t;
    struct err e = {0};
    struct tokens ids = {0};
    assert_ok(parse(more, merges, added, &t, &e), &e);
    assert_ok(tokenizer_encode(t, text, strlen(text), &ids, &e), &e);
    assert_int_equal(ids.n, n);
    for (int i = 0; i < n; i++) assert_int_equal(ids.ids[i], want[i]);
    for (int32_t id = 0; id < tokenizer_vocab(t); id++) {
        size_t piece_n;
        const char *piece = tokenizer_piece(t, id, &piece_n);
        if (piece_n) assert_int_equal(tokenizer_find(t, piece, piece_n), id);
    }
    tokens_free(&ids);
    tokenizer_free(t);
}

static void bad(const char *more, const char *merges, const char *added, const char *words)
{
    struct tokenizer *t;
    struct err e = {0};
    int code = parse(more, merges, added, &t, &e);
    if (!code) fail_msg("\"%s\" was read", merges);
    if (!strstr(e.text, words)) fail_msg("\"%s\" is not in \"%s\"", words, e.text);
}

static void test_results_in_any_order(void **state)
{
    (void)state;
    const char *vocab = ",\"abcdefghi\":256,\"cd\":257,\"ab\":258,\"abcd\":259,\"ef\":260,\"gh\":261,\"abcdef\":262,"
                        "\"ghi\":263,\"bc\":264";
    good(vocab, "\"a b\",\"c d\",\"e f\",\"g h\",\"ab cd\",\"gh i\",\"abcd ef\",[\"abcdef\",\"ghi\"]", "", "abcdefghi",
         1, (int[]){256});
    /* The lowest rank is first; a pair given twice has the later one. */
    good(vocab, "\"a b\",\"b c\"", "", "abc", 2, (int[]){258, 'c'});
    good(vocab, "\"a b\",\"b c\",\"a b\"", "", "abc", 2, (int[]){'a', 264});
    /* Ids with holes, in no order of the file. */
    good(",\"cd\":999,\"ab\":400", "\"a b\",\"c d\"", "", "abcd", 2, (int[]){400, 999});
}

static void test_ids_in_another_order_than_the_file(void **state)
{
    (void)state;
    struct tokenizer *t;
    struct err e = {0};
    assert_ok(parse(",\"cde\":258,\"cd\":257,\"ab\":256", "\"a b\",\"c d\",\"cd e\"", "", &t, &e), &e);
    assert_string_equal(tokenizer_piece(t, 256, NULL), "ab");
    assert_string_equal(tokenizer_piece(t, 257, NULL), "cd");
    assert_string_equal(tokenizer_piece(t, 258, NULL), "cde");
    assert_int_equal(tokenizer_find(t, "cd", 2), 257);
    tokenizer_free(t);
}

static void test_rules_that_name_no_token(void **state)
{
    (void)state;
    const char *vocab = ",\"ab\":256,\"c d\":257,\"\xC3\x83\xC2\xA9\":258";
    bad(vocab, "\"a b\",\"a zz\"", "", "model.merges[1]: \"a\" + \"zz\": the right part is not in model.vocab");
    bad(vocab, "\"zz a\"", "", "the left part");
    bad(vocab, "\"a b\",\"a c\"", "", "model.merges[1]: \"a\" + \"c\": the result is not in model.vocab");
    bad(vocab, "[\"c d\",\"a\"]", "", "the left part"); /* a token, but not of letters */
    bad(vocab, "[\"a\",\"c d\"]", "", "the left part");
    bad(vocab, "\"a b\",\"a b c\"", "", "model.merges[1]: wanted");
    good(vocab, "\"a b\",\"\xC3\x83 \xC2\xA9\"", "", "ab\xC3\xA9", 2, (int[]){256, 258});
}

/* An added token takes the place and keeps the model's letters as its text: then no rule can name those bytes. */
static void test_added_tokens_with_letters(void **state)
{
    (void)state;
    const char *vocab = ",\"\xC4\xA0"
                        "a\":256,\"\xC4\xA0"
                        "ab\":257",
               *added = "{\"id\":256,\"content\":\"\xC4\xA0"
                        "a\"}";
    good(vocab,
         "\"\xC4\xA0 a\",\"\xC4\xA0"
         "a b\"",
         "", " ab", 1, (int[]){257});
    bad(vocab, "\"\xC4\xA0 a\"", added, "the result");
    bad(vocab,
        "\"\xC4\xA0"
        "a b\"",
        added, "the left part");
    /* Of ASCII both are the same. */
    good(",\"ab\":256,\"abc\":257", "\"a b\",\"ab c\"", "{\"id\":256,\"content\":\"ab\"}", "xabc", 3,
         (int[]){'x', 256, 'c'});
}

static void test_more_rules_than_a_batch(void **state)
{
    (void)state;
    struct str vocab = {0}, merges = {0};
    int n = 0;
    for (int a = 'a'; a <= 'z'; a++) /* results are named in the vocabulary's order, then backwards */
        for (int b = 'a'; b <= 'z'; b++) str_printf(&vocab, ",\"%c%c\":%d", a, b, 256 + n++);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n; i++) {
            int k = pass ? n - 1 - i : i;
            str_printf(&merges, "%s\"%c %c\"", pass + i ? "," : "", 'a' + k / 26, 'a' + k % 26);
        }
    good(vocab.p, merges.p, "", "zzaz", 2, (int[]){256 + 675, 256 + 25});
    good(vocab.p, merges.p, "", "baz", 2, (int[]){256 + 26, 'z'});
    str_puts(&merges, ",\"a A\"");
    bad(vocab.p, merges.p, "", "model.merges[1352]: \"a\" + \"A\": the result");
    str_free(&vocab);
    str_free(&merges);
}

static void unigram(const char *vocab, const char *text, int n, const int *want)
{
    struct str s = {0};
    struct tokenizer *t;
    struct err e = {0};
    struct tokens ids = {0};
    str_printf(&s,
               "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true}],\"model\":{\"type\":\"Unigram\","
               "\"unk_id\":0,\"vocab\":[[\"<unk>\",0]%s]}}",
               vocab);
    assert_ok(tokenizer_parse(&t, s.p, s.n, "x.json", &e), &e);
    assert_ok(tokenizer_encode(t, text, strlen(text), &ids, &e), &e);
    assert_int_equal(ids.n, n);
    for (int i = 0; i < n; i++) assert_int_equal(ids.ids[i], want[i]);
    tokens_free(&ids);
    tokenizer_free(t);
    str_free(&s);
}

static void test_texts_that_agree(void **state)
{
    (void)state;
    struct str vocab = {0}, text = {0};
    int want[40];
    for (int i = 0; i < 40; i++) { /* all of one head, backwards; then shorter ones */
        str_printf(&vocab, ",[\"abcdefgh%02d\",-1]", 39 - i);
        str_printf(&text, "abcdefgh%02d", i);
        want[i] = 40 - i;
    }
    str_puts(&vocab, ",[\"abcdefgh\",-1],[\"abcd\",-9],[\"a\",-9]");
    unigram(vocab.p, text.p, 40, want);
    unigram(vocab.p, "abcdefghabcda", 3, (int[]){41, 42, 43});
    /* The last of equal texts counts. */
    unigram(",[\"ab\",-1],[\"a\",-3],[\"ab\",-2]", "aba", 2, (int[]){3, 2});
    str_free(&vocab);
    str_free(&text);
}

/* Pairs that share a left side and, some of them, all bits of their hashes that a place has: only the right side says
 * which is there. */
static void test_rules_with_one_left_side(void **state)
{
    (void)state;
    enum { RULES = 100000, ASKED = 1500000 };
    struct bpe b;
    bpe_init(&b, RULES);
    for (int32_t i = 0; i < RULES; i++) bpe_put(&b, 7, i, i, RULES + i);
    for (int32_t i = 0; i < RULES; i++) {
        const struct bpe_rule *r = bpe_get(&b, 7, i);
        assert_true(r && bpe_rank(&b, r) == i && r->product == RULES + i);
        assert_null(bpe_get(&b, 8, i));
    }
    for (int32_t i = RULES; i < ASKED; i++) assert_null(bpe_get(&b, 7, i));
    bpe_fini(&b);
}

static void test_a_decoder_that_replaces_nothing(void **state)
{
    (void)state;
    struct tokenizer *t;
    struct err e = {0};
    static const char text[] = "{\"decoder\":{\"type\":\"Replace\",\"content\":\"aaaa\"},\"model\":{\"type\":"
                               "\"WordLevel\",\"unk_token\":\"u\",\"vocab\":{\"u\":0}}}";
    assert_true(tokenizer_parse(&t, text, strlen(text), "x.json", &e) != OK);
    assert_non_null(strstr(e.text, "decoder.Replace"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_in_any_order),
        cmocka_unit_test(test_rules_that_name_no_token),
        cmocka_unit_test(test_added_tokens_with_letters),
        cmocka_unit_test(test_more_rules_than_a_batch),
        cmocka_unit_test(test_ids_in_another_order_than_the_file),
        cmocka_unit_test(test_texts_that_agree),
        cmocka_unit_test(test_rules_with_one_left_side),
        cmocka_unit_test(test_a_decoder_that_replaces_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
