/* SPDX-License-Identifier: Apache-2.0 */
/* Broken and unsupported tokenizer files: refused, with words that say what and where. */
#include "data_test.h"

#include <sys/stat.h>

#include "token/split.h"

/* A whole small file, from which each case takes or changes something. */
struct draft {
    const char *normalizer, *pre_tokenizer, *model_head, *extra_vocab, *merges, *added;
};

static void build(struct str *s, const struct draft *d)
{
    str_printf(s, "{\"added_tokens\":[%s],\"normalizer\":%s,\"pre_tokenizer\":%s,\"model\":{%s\"vocab\":{",
               d->added ? d->added : "", d->normalizer ? d->normalizer : "null",
               d->pre_tokenizer ? d->pre_tokenizer : "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}",
               d->model_head ? d->model_head : "\"type\":\"BPE\",");
    struct tokenizer *byte = tokenizer_new_byte();
    char *dir = scratch_new(), *path, *text, *vocab, *end;
    struct err e;
    size_t n;
    assert_ok(tokenizer_save(byte, dir, &e), &e);
    path = fs_join(dir, "tokenizer.json");
    assert_ok(fs_read_all(path, 1 << 20, &text, &n, &e), &e);
    vocab = strchr(strstr(text, "\"vocab\""), '{') + 1;
    end = strstr(vocab, "\"merges\"");
    while (*end != '}') end--;
    str_add(s, vocab, (size_t)(end - vocab));
    str_printf(s, "%s},\"merges\":[%s]}}", d->extra_vocab ? d->extra_vocab : "", d->merges ? d->merges : "");
    xfree(text);
    xfree(path);
    scratch_free(dir);
    tokenizer_free(byte);
}

static int parse(const struct draft *d, struct tokenizer **t, struct err *e)
{
    struct str s = {0};
    build(&s, d);
    int code = tokenizer_parse(t, s.p, s.n, "x.json", e);
    str_free(&s);
    return code;
}

static void test_the_draft_is_good(void **state)
{
    (void)state;
    struct tokenizer *t;
    struct err e;
    struct draft d = {.extra_vocab = ",\"th\":256,\"the\":257,\"he\":258",
                      .merges = "\"t h\",[\"th\",\"e\"],[\"h\",\"e\"]",
                      .added = "{\"id\":259,\"content\":\"<|endoftext|>\",\"special\":true}"};
    assert_ok(parse(&d, &t, &e), &e);
    struct tokens ids = {0};
    assert_ok(tokenizer_encode(t, "the he", 6, &ids, &e), &e);
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.ids[0], 257);
    assert_int_equal(ids.ids[1], ' ');
    assert_int_equal(ids.ids[2], 258);
    tokens_free(&ids);
    tokenizer_free(t);
}

static void test_refused(void **state)
{
    (void)state;
#define SPLIT_STEP(fields)                                                                                             \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\"," fields                                            \
    "},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}"
    static const struct {
        struct draft d;
        int code;
        const char *words;
    } cases[] = {
        {{.normalizer = "{\"type\":\"Uppercase\"}"}, ERR_REQUEST, "x.json|normalizer|Uppercase|not supported"},
        {{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFX\"}]}"}, ERR_REQUEST, "normalizer|NFX"},
        {{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":7}"}, ERR_CORRUPT, "normalizer|list"},
        {{.normalizer = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"x\"}"},
         ERR_CORRUPT,
         "Replace|not empty"},
        {{.normalizer = "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"x\"}"},
         ERR_REQUEST,
         "regular expression"},
        {{.normalizer = "{\"type\":\"Prepend\"}"}, ERR_CORRUPT, "Prepend"},
        {{.normalizer = "{\"type\":\"Precompiled\"}"}, ERR_CORRUPT, "precompiled_charsmap"},
        {{.normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"####\"}"}, ERR_CORRUPT, "base64"},
        {{.normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"/////wAAAAA=\"}"}, ERR_CORRUPT, "trie"},
        {{.model_head = "\"type\":\"Neural\","}, ERR_REQUEST, "model.type|Neural"},
        {{.model_head = "\"type\":\"Unigram\","}, ERR_CORRUPT, "model.vocab|list of [token, score]"},
        {{.model_head = "\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","}, ERR_CORRUPT, "unk_token|[UNK]"},
        {{.model_head = "\"type\":\"WordLevel\","}, ERR_CORRUPT, "unk_token|(none)"},
        {{.model_head = "\"dropout\":0.1,"}, ERR_REQUEST, "dropout"},
        {{.model_head = "\"unk_token\":\"<unk>\",", .pre_tokenizer = "null"}, ERR_CORRUPT, "unk_token|<unk>"},
        {{.pre_tokenizer = "{\"type\":\"UnicodeWords\"}"}, ERR_REQUEST, "pre_tokenizer|UnicodeWords"},
        {{.pre_tokenizer = "{\"type\":\"FixedLength\",\"length\":0}"}, ERR_CORRUPT, "FixedLength.length|0 characters"},
        {{.pre_tokenizer = "{\"type\":\"FixedLength\",\"length\":70000}"}, ERR_CORRUPT, "FixedLength.length|65536"},
        {{.pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":{}}"}, ERR_CORRUPT, "pre_tokenizer|list"},
        {{.pre_tokenizer = "{\"type\":\"Metaspace\",\"replacement\":\"__\"}"},
         ERR_CORRUPT,
         "replacement|one character"},
        {{.pre_tokenizer = "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}"},
         ERR_REQUEST,
         "prepend_scheme|last"},
        {{.pre_tokenizer = "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":false}"},
         ERR_CORRUPT,
         "add_prefix_space"},
        {{.pre_tokenizer = SPLIT_STEP("\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Dropped\"")},
         ERR_REQUEST,
         "behavior|Dropped"},
        {{.pre_tokenizer = SPLIT_STEP("\"pattern\":{\"Regex\":\"(a\"},\"behavior\":\"Isolated\"")},
         ERR_REQUEST,
         "(a|regular expression"},
        {{.pre_tokenizer = SPLIT_STEP("\"pattern\":{\"Regex\":\"(?i:[a-z&&[^b]])\"},\"behavior\":\"Isolated\"")},
         ERR_REQUEST,
         "&&|(?i)"},
        {{.pre_tokenizer = SPLIT_STEP("\"pattern\":{\"Regex\":\"\\\\X\"},\"behavior\":\"Isolated\"")},
         ERR_REQUEST,
         "\\X|Unicode"},
        {{.pre_tokenizer = SPLIT_STEP("\"pattern\":{\"Regex\":\"\\\\p{Wancho}\"},\"behavior\":\"Isolated\"")},
         ERR_REQUEST,
         "Wancho"},
        {{.pre_tokenizer = SPLIT_STEP("\"pattern\":{\"Regex\":\"[[:graph:]]\"},\"behavior\":\"Isolated\"")},
         ERR_REQUEST,
         "graph"},
        {{.pre_tokenizer = SPLIT_STEP("\"pattern\":{\"Regex\":\"(?W)a\"},\"behavior\":\"Isolated\"")},
         ERR_REQUEST,
         "option W"},
        {{.pre_tokenizer = SPLIT_STEP("\"pattern\":{\"Regex\":\"\\\\p{C}\"},\"behavior\":\"Isolated\"")},
         ERR_REQUEST,
         "property {C}"},
        {{.pre_tokenizer = SPLIT_STEP("\"pattern\":{},\"behavior\":\"Isolated\"")}, ERR_CORRUPT, "pattern"},
        {{.extra_vocab = ",\"th\":-1"}, ERR_CORRUPT, "model.vocab|\"th\""},
        {{.extra_vocab = ",\"th\":99999999999"}, ERR_CORRUPT, "model.vocab|\"th\""},
        {{.extra_vocab = ",\"th\":\"seven\""}, ERR_CORRUPT, "model.vocab|\"th\""},
        {{.extra_vocab = ",\"th\":65"}, ERR_CORRUPT, "id 65|two tokens"},
        {{.merges = "\"th\""}, ERR_CORRUPT, "merges[0]|left right"},
        {{.merges = "\"t h e\""}, ERR_CORRUPT, "merges[0]"},
        {{.merges = "[\"t\"]"}, ERR_CORRUPT, "merges[0]"},
        {{.merges = "17"}, ERR_CORRUPT, "merges[0]"},
        {{.merges = "\"t h\""}, ERR_CORRUPT, "merges[0]|the result|model.vocab"},
        {{.merges = "\"tt h\""}, ERR_CORRUPT, "merges[0]|the left part"},
        {{.merges = "\"t hh\""}, ERR_CORRUPT, "merges[0]|the right part"},
        {{.added = "{\"id\":300}"}, ERR_CORRUPT, "added_tokens|content"},
        {{.added = "7"}, ERR_CORRUPT, "added_tokens|content"},
        {{.added = "{\"id\":300,\"content\":\"\"}"}, ERR_CORRUPT, "added_tokens|content"},
        {{.added = "{\"id\":300,\"content\":\"x\"}"}, ERR_CORRUPT, "\"x\"|300|another"},
        {{.added = "{\"id\":65,\"content\":\"<x>\"}"}, ERR_CORRUPT, "<x>|65"},
        {{.added = "{\"id\":256,\"content\":\"<x>\"},{\"id\":256,\"content\":\"<y>\"}"}, ERR_CORRUPT, "256|<y>"},
        {{.added = "{\"id\":256,\"content\":\"<x>\"},{\"id\":257,\"content\":\"<x>\"}"}, ERR_CORRUPT, "<x>|256|257"},
        {{.added = "{\"id\":300,\"content\":\"<x>\"}"}, ERR_REQUEST, "<x>|300|256"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t;
        struct err e;
        int code = parse(&cases[i].d, &t, &e);
        if (code != cases[i].code) print_message("case %zu\n", i);
        assert_err(code, &e, cases[i].code, cases[i].words);
        assert_null(t);
    }
}

static void test_no_tokenizer_at_all(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "x.json"},
        {"{", "x.json"},
        {"[1,2]", "root|object"},
        {"{}", "model|object"},
        {"\"text\"", "root"},
        {"{\"model\":7}", "model"},
        {"{\"model\":{\"vocab\":{}}}", "model.vocab|empty"},
        {"{\"model\":{\"vocab\":{}},\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}", "model.vocab|empty"},
        {"{\"model\":{\"merges\":[]},\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}", "model.vocab"},
        {"{\"model\":{\"vocab\":{\"a\":0}},\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}", "model.merges"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\",1e400]]}}", "model.vocab[0]|score"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\",NaN]]}}", "model.vocab[0]|score"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\"]]}}", "model.vocab[0]|score"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",-1]]}}", "unk_id|0 to 0"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":null,\"vocab\":[[\"a\",-1]]}}", "unk_id"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[]}}", "empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t;
        struct err e;
        int code = tokenizer_parse(&t, cases[i].text, strlen(cases[i].text), "x.json", &e);
        assert_true(code == ERR_CORRUPT || code == ERR_REQUEST);
        assert_err(code, &e, code, cases[i].words);
    }
}

/* A NUL in the text is a mistake in it, not its end: what follows is not looked for behind a copy that stops there. */
static void test_nul_in_the_text(void **state)
{
    (void)state;
    struct tokenizer *t;
    struct err e;
    static const char text[] = "{\"model\":{}}\0 \\u0000\\u0000";
    assert_err(tokenizer_parse(&t, text, sizeof text - 1, "x.json", &e), &e, ERR_CORRUPT, "x.json|not valid JSON");
}

static void test_files(void **state)
{
    (void)state;
    struct tokenizer *t;
    struct err e;
    char *dir = scratch_new(), *path;
    assert_err(tokenizer_open(&t, "/nowhere/tokenizer.json", &e), &e, ERR_REQUEST, "/nowhere/tokenizer.json|byte");
    assert_err(tokenizer_open(&t, dir, &e), &e, ERR_REQUEST, "tokenizer.json");
    path = put_text(dir, "tokenizer.json", "");
    assert_true(tokenizer_open(&t, path, &e) < 0);
    xfree(path);
    path = put_file(dir, "tokenizer.json", "\0\1\2\3", 4);
    assert_err(tokenizer_open(&t, path, &e), &e, ERR_CORRUPT, "tokenizer.json");
    assert_int_equal(truncate(path, (off_t)1 << 40),
                     0); /* a hole of a terabyte: refused before anything is allocated */
    assert_true(tokenizer_open(&t, path, &e) < 0);
    assert_non_null(strstr(e.text, "tokenizer.json"));
    xfree(path);
    scratch_free(dir);
}

static void count_piece(void *arg, const unsigned char *p, size_t n)
{
    (void)p;
    (void)n;
    ++*(int *)arg;
}

/* An expression that backtracks without end is stopped with an error. */
static void test_runaway_pattern(void **state)
{
    (void)state;
    struct split *s = split_new();
    struct err e;
    const char *pattern = "(?:(?:a|aa)+)+[bc]";
    assert_ok(split_add(s, pattern, strlen(pattern), "x", &e), &e);
    struct split_work *w = split_work_new(s);
    unsigned char text[201];
    memset(text, 'a', sizeof text);
    int pieces = 0;
    size_t used;
    assert_err(split_run(s, w, text, sizeof text, true, count_piece, &pieces, &used, &e), &e, ERR_REQUEST, "gave up");
    split_work_free(w);
    split_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_draft_is_good),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_tokenizer_at_all), cmocka_unit_test(test_files),
        cmocka_unit_test(test_nul_in_the_text),     cmocka_unit_test(test_runaway_pattern),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
