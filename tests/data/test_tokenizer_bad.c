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

/* One whose every search is in order, but goes back thousands of times for every letter: all searches together are
 * stopped, by either matcher; a text for which that is little is cut. */
static void test_searches_together_are_bounded(void **state)
{
    (void)state;
    enum { LETTERS = 40000, FEW = 200 };
    static const char pattern[] = "a?a?a?a?a?a?a?a?a?a?a?a?a?[bc]|a";
    char *text = xmalloc(LETTERS);
    struct err e;
    memset(text, 'a', LETTERS);
    for (int general = 0; general < 2; general++) {
        struct split *s = split_new();
        if (general) assert_ok(split_add_general(s, pattern, strlen(pattern), "x", &e), &e);
        else assert_ok(split_add(s, pattern, strlen(pattern), "x", &e), &e);
        assert_int_equal(split_needs_whole_text(s), general);
        struct split_work *w = split_work_new(s);
        int pieces = 0;
        size_t used;
        assert_ok(split_run(s, w, (unsigned char *)text, FEW, true, count_piece, &pieces, &used, &e), &e);
        assert_int_equal(pieces, FEW);
        assert_err(split_run(s, w, (unsigned char *)text, LETTERS, true, count_piece, &pieces, &used, &e), &e,
                   ERR_REQUEST, "gave up");
        split_work_free(w);
        split_free(s);
    }
    xfree(text);
}

/* -- files that ask for more work than there is ---------------------------------------------------------------- */

/* [{STEP},{STEP},...] in a Sequence. */
static char *sequence(const char *members, const char *step, int n)
{
    struct str s = {0};
    str_printf(&s, "{\"type\":\"Sequence\",\"%s\":[", members);
    for (int i = 0; i < n; i++) str_printf(&s, "%s%s", i ? "," : "", step);
    str_puts(&s, "]}");
    return s.p;
}

#define DOUBLES(kind) "{\"type\":\"Replace\",\"pattern\":{\"" kind "\":\"a\"},\"content\":\"aa\"}"

/* Encodes under a normalizer; its error. */
static int normalise(const char *normalizer, const char *text, size_t n, int64_t *n_ids, struct err *e)
{
    struct tokenizer *t;
    struct draft d = {.normalizer = normalizer};
    assert_ok(parse(&d, &t, e), e);
    struct tokens ids = {0};
    int code = tokenizer_encode(t, text, n, &ids, e);
    *n_ids = ids.n;
    tokens_free(&ids);
    tokenizer_free(t);
    return code;
}

/* A text that is doubled 25 times would be 2 GiB: it is stopped at the step that goes beyond the bound. What stays
 * within 64 times is made. */
static void test_growth_is_bounded(void **state)
{
    (void)state;
    static const char *const doubles[] = {DOUBLES("String"), DOUBLES("Regex"), DOUBLES("String") "," DOUBLES("Regex")};
    char text[64];
    struct err e;
    int64_t n = 0;
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) {
        char *six = sequence("normalizers", doubles[i], i < 2 ? 6 : 3), *many = sequence("normalizers", doubles[i], 25);
        assert_ok(normalise(six, text, sizeof text, &n, &e), &e);
        assert_int_equal(n, 64 * sizeof text);
        assert_err(normalise(many, text, sizeof text, &n, &e), &e, ERR_REQUEST, "normalizer, step 8 of|64 times");
        xfree(six);
        xfree(many);
    }
    /* One step is enough where what it puts is long; it is not written first. */
    enum { LONG = 1 << 20 };
    char *content = xmalloc(LONG + 1);
    memset(content, 'b', LONG);
    content[LONG] = 0;
    static const char *const steps[] = {"{\"type\":\"Prepend\",\"prepend\":\"%s\"}",
                                        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"%s\"}",
                                        "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a|$\"},\"content\":\"%s\"}"};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct str step = {0};
        str_puts(&step, "");
        for (const char *p = steps[i]; *p; p++) {
            if (p[0] == '%') str_puts(&step, content), p++;
            else str_putc(&step, *p);
        }
        assert_err(normalise(step.p, text, sizeof text, &n, &e), &e, ERR_REQUEST, "normalizer, step 1 of 1|64 times");
        assert_err(normalise(step.p,
                             "\xFF"
                             "a",
                             2, &n, &e),
                   &e, ERR_REQUEST, "normalizer, step 1 of 1");
        str_free(&step);
    }
    xfree(content);
}

/* The same for each text of many, not for all together: a text that is in order passes after one that was not. */
static void test_growth_is_of_a_text(void **state)
{
    (void)state;
    struct tokenizer *t;
    struct err e;
    struct draft d = {.normalizer = "{\"type\":\"Prepend\",\"prepend\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
                      .added = "{\"id\":256,\"content\":\"<x>\",\"special\":true}"};
    assert_ok(parse(&d, &t, &e), &e);
    struct str text = {0};
    for (int i = 0; i < 2000; i++) str_puts(&text, "<x>b");
    struct tokens ids = {0};
    assert_ok(tokenizer_encode(t, text.p, text.n, &ids, &e), &e);
    assert_int_equal(ids.n, 2000 * 42);
    tokens_free(&ids);
    str_free(&text);
    tokenizer_free(t);
}

static void refused(const char *normalizer, const char *pre_tokenizer, const char *words)
{
    struct tokenizer *t;
    struct err e;
    struct draft d = {.normalizer = normalizer, .pre_tokenizer = pre_tokenizer};
    int code = parse(&d, &t, &e);
    assert_err(code, &e, code == ERR_CORRUPT ? ERR_CORRUPT : ERR_REQUEST, words);
    assert_null(t);
}

/* Steps that each go over the whole text, texts to look for, patterns that become long: as many as anybody needs. */
static void test_steps_are_bounded(void **state)
{
    (void)state;
    static const char lower[] = "{\"type\":\"Lowercase\"}", bert[] = "{\"type\":\"BertNormalizer\"}";
    char *fits = sequence("normalizers", lower, 64), *more = sequence("normalizers", lower, 65),
         *berts = sequence("normalizers", bert, 13), *inner = sequence("normalizers", lower, 33), *nested;
    struct err e;
    int64_t n;
    assert_ok(normalise(fits, "A", 1, &n, &e), &e);
    nested = sequence("normalizers", inner, 2);
    refused(more, NULL, "normalizer|more than 64 steps");
    refused(berts, NULL, "normalizer|more than 64 steps");
    refused(nested, NULL, "normalizer|more than 64 steps");
    char *changes = sequence("pretokenizers", "{\"type\":\"Metaspace\",\"replacement\":\"_\"}", 4);
    refused(NULL, changes, "pre_tokenizer|more than 3 steps that change");
    char *all[] = {fits, more, berts, inner, nested, changes};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) xfree(all[i]);
    struct str long_text = {0}, boundaries = {0};
    str_puts(&long_text, "{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"String\":\"");
    str_puts(&boundaries, "{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"Regex\":\"");
    for (int i = 0; i < 4097; i++) {
        str_putc(&long_text, 'a');
        str_puts(&boundaries, "\\\\b");
    }
    str_puts(&long_text, "\"}}");
    str_puts(&boundaries, "\"}}");
    refused(long_text.p, NULL, "normalizer.Replace|4096 bytes");
    refused(boundaries.p, NULL, "regular expression|too many classes");
    str_free(&long_text);
    str_free(&boundaries);
}

/* A tokenizer of words with this after its model. */
static int parse_words(const char *rest, struct err *e)
{
    struct str s = {0};
    struct tokenizer *t;
    str_printf(&s, "{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"b\":1}},%s}", rest);
    int code = tokenizer_parse(&t, s.p, s.n, "x.json", e);
    if (!code) tokenizer_free(t);
    str_free(&s);
    return code;
}

static void test_decoders_are_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *step;
        int n, bad; /* fits; does not */
        const char *words;
    } cases[] = {{DOUBLES("String"), 6, 7, "decoder|64"},
                 {DOUBLES("Regex"), 6, 40, "decoder|64"},
                 {"{\"type\":\"Fuse\"}," DOUBLES("String"), 6, 7, "decoder|64"},
                 {"{\"type\":\"ByteFallback\"}", 64, 65, "decoder|more than 64 steps"}};
    struct err e;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int bad = 0; bad < 2; bad++) {
            char *steps = sequence("decoders", cases[i].step, bad ? cases[i].bad : cases[i].n);
            struct str rest = {0};
            str_printf(&rest, "\"decoder\":%s", steps);
            int code = parse_words(rest.p, &e);
            if (bad) assert_err(code, &e, ERR_REQUEST, cases[i].words);
            else assert_ok(code, &e);
            str_free(&rest);
            xfree(steps);
        }
}

static void test_templates_are_bounded(void **state)
{
    (void)state;
    static const char head[] = "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
                               "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}",
                      one[] = ",{\"SpecialToken\":{\"id\":\"a\",\"type_id\":0}}";
    struct err e;
    for (int members = 1; members < 65; members += 63)
        for (int ids = 1; ids < 18; ids += 16) {
            struct str s = {0};
            str_puts(&s, head);
            for (int i = 0; i < members; i++) str_puts(&s, one);
            str_puts(&s, "],\"special_tokens\":{\"a\":{\"id\":\"a\",\"ids\":[0");
            for (int i = 1; i < ids; i++) str_puts(&s, ",0");
            str_puts(&s, "]}}}");
            int code = parse_words(s.p, &e);
            if (members > 1) assert_err(code, &e, ERR_CORRUPT, "post_processor|64 members");
            else if (ids > 1) assert_err(code, &e, ERR_CORRUPT, "special_tokens|16 ids");
            else assert_ok(code, &e);
            str_free(&s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_draft_is_good),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_tokenizer_at_all),   cmocka_unit_test(test_files),
        cmocka_unit_test(test_nul_in_the_text),       cmocka_unit_test(test_runaway_pattern),
        cmocka_unit_test(test_growth_is_bounded),     cmocka_unit_test(test_growth_is_of_a_text),
        cmocka_unit_test(test_steps_are_bounded),     cmocka_unit_test(test_decoders_are_bounded),
        cmocka_unit_test(test_templates_are_bounded), cmocka_unit_test(test_searches_together_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
