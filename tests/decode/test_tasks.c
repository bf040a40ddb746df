/* SPDX-License-Identifier: Apache-2.0 */
/* Scores of an evaluation against the same sums made from tokens fed one by one; texts cut into windows, choices that
 * share a prompt, what is written greedily; records that are wrong are refused with their line. */
#include "decode/written.h"

#include "decode/evaluate.h"

enum { ROOM = 48, TEXTS = 5, CHOICES = 3, QUESTIONS = 6 };

static char *letters(uint64_t seed, int n)
{
    char *s = xcalloc((size_t)n + 1, 1);
    for (int i = 0; i < n; i++) s[i] = (char)('#' + rng_u32(seed, 4, (uint64_t)i) % 30); /* no space, no quote */
    return s;
}

static double nats_of(struct written *x, const char *text, int64_t from, int64_t *tokens)
{
    int64_t n = (int64_t)strlen(text);
    int32_t ids[512];
    double logprob[512], nats = 0;
    for (int64_t i = 0; i < n; i++) ids[i] = text[i];
    written_logprobs(x, ids, n, logprob);
    *tokens = 0;
    for (int64_t i = from > 1 ? from : 1; i < n; i++, ++*tokens) nats -= logprob[i];
    return nats;
}

static void close_to(double got, double want)
{
    if (!(fabs(got - want) <= 1e-4 * (1 + fabs(want)))) fail_msg("%.9g, wanted %.9g", got, want);
}

static void run_tasks(struct written *x, const char *lines, struct evaluation *v, int wanted, const char *says)
{
    struct err e = {0};
    struct tokenizer *t = tokenizer_new_byte();
    struct decoding *d = written_decoding(x, 4, 32, 0);
    char *path = fs_join(x->dir, "tasks.jsonl");
    if (fs_write_atomic(path, lines, strlen(lines), &e)) fail_msg("%s", e.text);
    int rc = evaluate(d, t, path, v, &e);
    if (rc != wanted || (says && !strstr(e.text, says))) fail_msg("%s: %d %s", lines, rc, e.text);
    assert_int_equal(decoding_pages_left(d), decoding_pages(d));
    decoding_free(d);
    tokenizer_free(t);
    xfree(path);
}

static void test_perplexity(void **state)
{
    (void)state;
    struct written x;
    struct evaluation v;
    struct str lines = {0};
    double nats = 0, per[TEXTS], n_of[TEXTS], squares = 0;
    int64_t tokens = 0, n;
    written_open(&x, MODEL_GPT2, ROOM);
    for (int i = 0; i < TEXTS; i++) {
        char *text = letters((uint64_t)i, 2 + 10 * i);
        str_printf(&lines, "{\"text\":\"%s\"}\n", text);
        per[i] = nats_of(&x, text, 0, &n);
        nats += per[i];
        tokens += n;
        n_of[i] = (double)n;
        xfree(text);
    }
    run_tasks(&x, str_text(&lines), &v, OK, NULL);
    assert_true(v.n_tasks == 1 && v.task[0].records == TEXTS && v.task[0].tokens == tokens);
    assert_string_equal(v.task[0].name, "perplexity");
    close_to(v.task[0].nats, nats);
    for (int i = 0; i < TEXTS; i++) squares += pow(per[i] - nats / (double)tokens * n_of[i], 2);
    close_to(v.task[0].nats_error, sqrt(squares * TEXTS / (TEXTS - 1)) / (double)tokens);
    double sum = 0;
    for (int i = 0; i < EVALUATE_POSITIONS; i++) sum += v.task[0].at[i].nats;
    close_to(sum, nats);
    assert_true(v.task[0].at[0].tokens == 0 && v.task[0].at[1].tokens == TEXTS &&
                v.task[0].at[2].tokens == 2 * TEXTS - 2);
    evaluation_fini(&v);
    /* Longer than the model: windows of ROOM tokens, each predicting what follows each of them, the last one filled up.
     */
    char *text = letters(77, 100), *window;
    str_clear(&lines);
    str_printf(&lines, "{\"text\":\"%s\"}\n", text);
    nats = 0;
    static const int at[][3] = {{0, ROOM + 1, 1},
                                {ROOM, ROOM + 1, 1},
                                {99 - ROOM, ROOM + 1, 2 * ROOM + 1 - (99 - ROOM)}};
    for (int i = 0; i < 3; i++) {
        window = xcalloc(ROOM + 2, 1);
        memcpy(window, text + at[i][0], (size_t)at[i][1]);
        nats += nats_of(&x, window, at[i][2], &n);
        xfree(window);
    }
    run_tasks(&x, str_text(&lines), &v, OK, NULL);
    assert_int_equal(v.task[0].tokens, 99);
    close_to(v.task[0].nats, nats);
    evaluation_fini(&v);
    xfree(text);
    str_free(&lines);
    written_close(&x);
}

static void test_choices_and_matches(void **state)
{
    (void)state;
    struct written x;
    struct evaluation v;
    struct str lines = {0};
    int right = 0, right_per_byte = 0;
    written_open(&x, MODEL_LLAMA, ROOM);
    for (int q = 0; q < QUESTIONS; q++) {
        char *prompt = letters(100 + (uint64_t)q, 20), *choice[CHOICES];
        double nats[CHOICES];
        int best = 0, best_per_byte = 0;
        str_printf(&lines, "{\"task\":\"few\",\"prompt\":\"%s\",\"answer\":%d,\"choices\":[", prompt, q % CHOICES);
        for (int i = 0; i < CHOICES; i++) {
            struct str whole = {0};
            int64_t n;
            choice[i] = letters((uint64_t)(1000 + 10 * q + i), 1 + 4 * i);
            str_printf(&lines, "%s\"%s\"", i ? "," : "", choice[i]);
            str_printf(&whole, "%s%s", prompt, choice[i]);
            nats[i] = nats_of(&x, str_text(&whole), 20, &n);
            assert_int_equal(n, 1 + 4 * i);
            if (nats[i] < nats[best]) best = i;
            if (nats[i] / (1 + 4 * i) < nats[best_per_byte] / (1 + 4 * best_per_byte)) best_per_byte = i;
            str_free(&whole);
        }
        str_puts(&lines, "]}\n");
        right += best == q % CHOICES;
        right_per_byte += best_per_byte == q % CHOICES;
        for (int i = 0; i < CHOICES; i++) xfree(choice[i]);
        xfree(prompt);
    }
    str_puts(&lines, "{\"prompt\":\"0123\",\"target\":\"no\",\"max_tokens\":5}\n");
    run_tasks(&x, str_text(&lines), &v, OK, NULL);
    assert_true(v.n_tasks == 2 && v.task[0].records == QUESTIONS && v.task[1].records == 1);
    assert_int_equal(v.task[0].right, right);
    assert_int_equal(v.task[0].right_per_byte, right_per_byte);
    assert_string_equal(v.task[1].name, "match");
    assert_int_equal(v.task[1].right, 0);
    evaluation_fini(&v);
    double error;
    assert_true(score_share(1, 4, &error) == 0.25 && fabs(error - sqrt(0.25 * 0.75 / 3)) < 1e-12);
    assert_true(score_share(1, 1, &error) == 1 && isnan(error));
    str_free(&lines);
    written_close(&x);
}

static void test_wrong_records(void **state)
{
    (void)state;
    static const struct {
        const char *line, *says;
    } wrong[] = {{"{}", "wanted one of"},
                 {"{\"text\":\"\"}", "empty"},
                 {"{\"text\":\"1\"}", "single token"},
                 {"{\"text\":\"12\",\"prompt\":\"1\"}", "wanted one of"},
                 {"{\"text\":7}", "wanted a text"},
                 {"{\"prompt\":\"1\",\"choices\":[\"2\"]}", "\"answer\""},
                 {"{\"prompt\":\"1\",\"choices\":[\"2\"],\"answer\":1}", "0 to 0"},
                 {"{\"prompt\":\"1\",\"choices\":[\"\"],\"answer\":0}", "choice 0 is empty"},
                 {"{\"choices\":[\"2\"],\"answer\":0}", "wanted one of"},
                 {"{\"prompt\":\"1\",\"target\":\"2\",\"max_tokens\":0}", "max_tokens"},
                 {"{\"prompt\":\"1\",\"target\":\"2\",\"stop\":\"\"}", "stop"},
                 {"{\"text\":\"abc\"}", "vocabulary of 67"},
                 {"", "empty"}};
    struct written x;
    struct evaluation v;
    written_open(&x, MODEL_LLAMA, ROOM);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        run_tasks(&x, wrong[i].line, &v, ERR_REQUEST, wrong[i].says);
    run_tasks(&x, "{\"text\":\"123\"}\n{\"task\":\"perplexity\",\"prompt\":\"1\",\"target\":\"2\"}\n", &v, ERR_REQUEST,
              "two kinds");
    written_close(&x);
}

/* The byte tokenizer's file with ": C" merged into one token (258, behind " C", 257), and a template that puts
 * <|endoftext|> before a text, twice where `twice`. */
static struct tokenizer *merging(bool twice)
{
    struct tokenizer *byte = tokenizer_new_byte(), *t;
    char *dir = scratch_new(), *path, *text;
    struct str s = {0};
    struct err e = {0};
    size_t n;
    assert_int_equal(tokenizer_save(byte, dir, &e), OK);
    path = fs_join(dir, "tokenizer.json");
    assert_int_equal(fs_read_all(path, 1 << 20, &text, &n, &e), OK);
    char *vocab = strchr(strstr(text, "\"vocab\""), '{') + 1, *end = strstr(vocab, "\"merges\"");
    while (*end != '}') end--;
    str_printf(&s,
               "{\"added_tokens\":[{\"id\":258,\"content\":\"<|endoftext|>\",\"special\":true}],"
               "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[%s{\"SpecialToken\":{\"id\":"
               "\"<|endoftext|>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{"
               "\"<|endoftext|>\":{\"id\":\"<|endoftext|>\",\"ids\":[258],\"tokens\":[\"<|endoftext|>\"]}}},"
               "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false},"
               "\"model\":{\"type\":\"BPE\",\"vocab\":{",
               twice ? "{\"SpecialToken\":{\"id\":\"<|endoftext|>\",\"type_id\":0}}," : "");
    str_add(&s, vocab, (size_t)(end - vocab));
    str_puts(&s, ",\"\xC4\xA0"
                 "C\":256,\":\xC4\xA0"
                 "C\":257},\"merges\":[\"\xC4\xA0 C\",\": \xC4\xA0"
                 "C\"]}}");
    if (tokenizer_parse(&t, str_text(&s), s.n, "merging", &e)) fail_msg("%s", e.text);
    str_free(&s);
    xfree(text);
    xfree(path);
    scratch_free(dir);
    tokenizer_free(byte);
    return t;
}

static void want_pair(const struct tokenizer *t, const char *prompt, const char *more, const char *wanted)
{
    struct tokens ids = {0};
    struct str got = {0};
    struct err e = {0};
    int64_t from;
    bool apart;
    if (task_pair(t, prompt, more, 258, &ids, &from, &apart, &e)) fail_msg("%s", e.text);
    for (int64_t i = 0; i < ids.n; i++) str_printf(&got, "%s%s%d", i ? " " : "", i == from ? "| " : "", ids.ids[i]);
    if (apart) str_puts(&got, " apart");
    assert_string_equal(str_text(&got), wanted);
    str_free(&got);
    tokens_free(&ids);
}

/* A continuation that merges with its prompt's end has no token of its own; what the tokenizer puts before a text is
 * there in each. */
static void test_merged_pairs(void **state)
{
    (void)state;
    struct tokenizer *t = merging(false), *two = merging(true);
    want_pair(t, "A:", " B", "258 65 58 | 32 66");
    want_pair(t, "A:", " C", "258 65 58 | 256 apart"); /* together: 258 65 257 */
    want_pair(t, "A: ", "C", "258 65 58 | 256 apart");
    want_pair(t, "A:", " CD", "258 65 257 | 68"); /* as lm-eval has it: the prompt alone has three */
    want_pair(t, "", " C", "258 | 256");
    want_pair(two, "A:", " B", "258 258 65 58 | 32 66");
    want_pair(two, "", "B", "258 258 | 66");
    tokenizer_free(two);
    tokenizer_free(t);
}

/* Spaces at a prompt's end are the continuation's; an empty prompt is the token that begins a text. */
static void test_pairs(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_new_byte();
    struct tokens ids = {0};
    struct err e = {0};
    int64_t from;
    bool apart;
    assert_int_equal(task_pair(t, "12 \n", "3", 9, &ids, &from, &apart, &e), OK);
    assert_true(ids.n == 5 && from == 2 && ids.ids[2] == ' ' && ids.ids[4] == '3');
    assert_int_equal(task_pair(t, "", "3", 9, &ids, &from, &apart, &e), OK);
    assert_true(ids.n == 2 && from == 1 && ids.ids[0] == 9);
    assert_int_equal(task_pair(t, " ", "3", -1, &ids, &from, &apart, &e), OK);
    assert_true(ids.n == 2 && from == 0 && !apart);
    assert_int_equal(task_pair(t, "1", "", 9, &ids, &from, &apart, &e), ERR_REQUEST);
    tokens_free(&ids);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_perplexity),    cmocka_unit_test(test_choices_and_matches),
        cmocka_unit_test(test_wrong_records), cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_merged_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
