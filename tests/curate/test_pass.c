/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps write */
/* A pass: what it writes and where that comes from, the same bytes for any number of threads; killed at every call that
 * writes, and on a disk that is full at every one, it goes on to the same bytes; what is not the same pass is refused.
 */
#include "data/data_test.h"

#include <errno.h>
#include <sys/wait.h>

#include "curate/clean_pass.h"
#include "curate/clean_progress.h"
#include "sanitized.h"

/* The n-th write(2) from now: the process dies there (as by a kill), or the disk is full. */
static struct {
    int at, n;
    bool full;
} trouble;
ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n)
{
    if (!trouble.at || fd <= 2 || ++trouble.n != trouble.at) return __real_write(fd, p, n);
    if (!trouble.full) {
        if (n > 1) (void)!__real_write(fd, p, n / 2);
        _exit(77);
    }
    errno = ENOSPC;
    return -1;
}

static const char rules_text[] =
    "rules:\n  - length: {min_chars: 30, max_chars: 5000}\n  - gopher_quality: {min_words: 5}\n";

static struct rules *some_rules(const char *text)
{
    struct rules *r;
    struct err e;
    assert_ok(rules_parse(&r, text, strlen(text), "r.yaml", &e), &e);
    return r;
}

/* Documents of all sizes, by a seed: words that pass, and ones that do not. */
static char *some_input(const char *dir, const char *name, int n, uint64_t seed)
{
    static const char *const words[] = {"the", "house", "and", "to", "river", "...", "#", "of", "\xC3\xA9t\xC3\xA9",
                                        "7"};
    struct str text = {0};
    for (int i = 0; i < n; i++) {
        str_puts(&text, "{\"id\": 1, \"text\": \"");
        for (uint32_t k = 0, len = 1 + dice(&seed) % (dice(&seed) % 9 ? 40 : 900); k < len; k++)
            str_printf(&text, "%s ", words[dice(&seed) % 10]);
        str_puts(&text, "\"}\n");
    }
    char *path = put_file(dir, name, text.p, text.n);
    str_free(&text);
    return path;
}

static int run(const struct rules *rules, char *const *inputs, int n, const char *out, int threads, int64_t part,
               struct pass_result *r, struct err *e)
{
    struct pass_options o = {.rules = rules,
                             .inputs = (const char *const *)inputs,
                             .n_inputs = n,
                             .out = out,
                             .threads = threads,
                             .part_bytes = part,
                             .most_bytes = 6000,
                             .plain = true};
    return pass_run(&o, r, e);
}

/* Names and bytes of all that a pass wrote, progress too. */
static uint64_t digest(const char *out)
{
    char **names;
    int n;
    struct err e;
    struct str all = {0};
    assert_ok(fs_list(out, &names, &n, &e), &e);
    for (int i = 0; i < n; i++) {
        if (!strcmp(names[i], ".lock")) continue;
        char *path = fs_join(out, names[i]), *text;
        size_t bytes;
        assert_ok(fs_read_all(path, 1 << 28, &text, &bytes, &e), &e);
        str_puts(&all, names[i]);
        str_add(&all, text, bytes);
        xfree(text);
        xfree(path);
    }
    fs_list_free(names, n);
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < all.n; i++) h = (h ^ (unsigned char)all.p[i]) * 1099511628211u;
    str_free(&all);
    return h;
}

static uint64_t digest_of_run(const struct rules *rules, char *const *inputs, int n, const char *dir, int threads)
{
    static int number;
    char name[40];
    struct pass_result r;
    struct err e;
    snprintf(name, sizeof name, "out-%d", number++);
    char *out = fs_join(dir, name);
    assert_ok(run(rules, inputs, n, out, threads, 20000, &r, &e), &e);
    assert_true(r.parts > 1 && r.parts <= r.counts.bytes / 20000 + 1);
    assert_int_equal(r.threads, threads);
    pass_result_fini(&r);
    uint64_t d = digest(out);
    xfree(out);
    return d;
}

static void test_threads(void **state)
{
    (void)state;
    char *dir = scratch_new(), *in[] = {some_input(dir, "a.jsonl", 300, 1), some_input(dir, "b.jsonl", 40, 2)};
    struct rules *rules = some_rules(rules_text);
    uint64_t one = digest_of_run(rules, in, 2, dir, 1);
    for (int threads = 2; threads <= 5; threads += CASE_STRIDE)
        assert_true(digest_of_run(rules, in, 2, dir, threads) == one);
    rules_free(rules);
    xfree(in[0]);
    xfree(in[1]);
    scratch_free(dir);
}

/* Packed parts, too, which are frames of a group each: more than one, and more documents than one has. */
static void test_packed(void **state)
{
    (void)state;
    char *dir = scratch_new(), *in[] = {some_input(dir, "a.jsonl", 4000, 7)},
         *out[2] = {fs_join(dir, "1"), fs_join(dir, "3")};
    struct rules *rules = some_rules("rules: [length]\n");
    for (int i = 0; i < 2; i++) {
        struct pass_options o = {.rules = rules,
                                 .inputs = (const char *const *)in,
                                 .n_inputs = 1,
                                 .out = out[i],
                                 .threads = 1 + 2 * i,
                                 .part_bytes = 1 << 20,
                                 .most_bytes = 1 << 20};
        struct pass_result r;
        struct err e;
        assert_ok(pass_run(&o, &r, &e), &e);
        assert_int_equal(r.counts.kept, 4000);
        pass_result_fini(&r);
    }
    assert_true(digest(out[0]) == digest(out[1]));
    rules_free(rules);
    xfree(in[0]);
    xfree(out[0]);
    xfree(out[1]);
    scratch_free(dir);
}

/* Other members of records are kept: those with our names as original_..., once; never the text as it was. */
static void test_other_members(void **state)
{
    (void)state;
    char *dir = scratch_new(), *text, *out = fs_join(dir, "out"), *again = fs_join(dir, "again");
    char *in[] = {put_text(dir, "a.jsonl",
                           "{\"id\": 12345678901234567890, \"text\": \"long enough to stay\", \"meta\": {\"a\": [1, "
                           "\"}\"]}, \"source\": \"cc\", \"te\\u0078t\": \"the last one counts\", \"k\\n\": 1.50}\n")};
    struct rules *rules = some_rules("rules: [{length: {min_chars: 3}}]\n");
    struct pass_result r;
    struct err e;
    struct str wanted = {0};
    size_t n;
    char *first[1];
    assert_ok(run(rules, in, 1, out, 1, 1 << 20, &r, &e), &e);
    pass_result_fini(&r);
    first[0] = fs_join(out, "part-00000.jsonl");
    assert_ok(fs_read_all(first[0], 1 << 20, &text, &n, &e), &e);
    str_printf(&wanted,
               "{\"text\": \"the last one counts\", \"source\": \"%s\", \"document\": 0, \"offset\": 0, \"bytes\": 19, "
               "\"id\": 12345678901234567890, \"meta\": {\"a\": [1, \"}\"]}, \"original_source\": \"cc\", \"k\\n\": "
               "1.50}\n",
               in[0]);
    assert_string_equal(text, wanted.p);
    xfree(text);
    assert_ok(run(rules, first, 1, again, 1, 1 << 20, &r, &e), &e);
    pass_result_fini(&r);
    char *second = fs_join(again, "part-00000.jsonl");
    assert_ok(fs_read_all(second, 1 << 20, &text, &n, &e), &e);
    str_clear(&wanted);
    str_printf(&wanted,
               "{\"text\": \"the last one counts\", \"source\": \"%s\", \"document\": 0, \"offset\": 0, \"bytes\": 19, "
               "\"original_document\": 0, \"original_offset\": 0, \"original_bytes\": 19, "
               "\"id\": 12345678901234567890, \"meta\": {\"a\": [1, \"}\"]}, \"original_source\": \"cc\", \"k\\n\": "
               "1.50}\n",
               first[0]);
    assert_string_equal(text, wanted.p);
    str_free(&wanted);
    xfree(text);
    xfree(first[0]);
    xfree(second);
    xfree(in[0]);
    xfree(out);
    xfree(again);
    rules_free(rules);
    scratch_free(dir);
}

/* Tables keep their other columns of texts: of csv all of them, of Parquet those that hold texts. */
static void test_other_columns(void **state)
{
    (void)state;
    char *dir = scratch_new(), *text, *out = fs_join(dir, "out");
    char *in[] = {put_text(dir, "a.csv",
                           "id,text,\"no, \"\"te\"\"\",source,last\r\n"
                           "7,\"long enough,\nto stay\",\"a \"\"b\"\"\",cc,\xFF\r\n"
                           "8,short\n"
                           "9,also long enough,x,,\n"),
                  xstrdup(TEST_DIR "/data/fixtures/parquet/snappy-1-PLAIN.parquet")};
    struct rules *rules = some_rules("rules: [{length: {min_chars: 11}}]\n");
    struct pass_result r;
    struct err e;
    size_t n;
    assert_ok(run(rules, in, 2, out, 1, 1 << 20, &r, &e), &e);
    pass_result_fini(&r);
    char *part = fs_join(out, "part-00000.jsonl");
    assert_ok(fs_read_all(part, 1 << 20, &text, &n, &e), &e);
    static const char *const wanted[] = {
        "{\"text\": \"long enough,\\nto stay\", ",
        "\"bytes\": 20, \"id\": \"7\", \"no, \\\"te\\\"\": \"a \\\"b\\\"\", \"original_source\": \"cc\", \"last\": "
        "\"\xEF\xBF\xBD\"}\n",
        "\"bytes\": 16, \"id\": \"9\", \"no, \\\"te\\\"\": \"x\", \"original_source\": \"\", \"last\": \"\"}\n",
        /* rows 0 and 23 of make_sources.py's table */
        "{\"text\": \"prefix-000 \xC3\xA9\\n\", ",
        ", \"tags\": [], \"message\": {\"role\":\"user\"}}\n",
        ", \"tags\": [\"t23.0\",\"t23.1\",null], \"message\": {\"role\":\"user\",\"content\":\"c23\"}}\n",
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!strstr(text, wanted[i])) fail_msg("no %s in %s", wanted[i], text);
    assert_null(strstr(text, "short"));
    xfree(text);
    xfree(part);
    xfree(in[0]);
    xfree(in[1]);
    xfree(out);
    rules_free(rules);
    scratch_free(dir);
}

static void test_lines(void **state)
{
    (void)state;
    char *dir = scratch_new(), *text;
    char *in[] = {put_text(dir, "a.jsonl",
                           "{\"text\": \"short\"}\n{\"text\": \"a \\\"text\\\" that\\nis \\\\ long "
                           "enough \\u0000 for \\u00e9\"}\n"),
                  put_text(dir, "b.txt", "a text with a byte\xFF that is of no character, and long enough")};
    struct rules *rules = some_rules("rules: [{length: {min_chars: 10}}]\n");
    char *out = fs_join(dir, "out");
    struct pass_result r;
    struct err e;
    size_t n;
    assert_ok(run(rules, in, 2, out, 2, 1 << 20, &r, &e), &e);
    char *path = fs_join(out, "part-00000.jsonl");
    assert_ok(fs_read_all(path, 1 << 20, &text, &n, &e), &e);
    struct str wanted = {0};
    str_printf(&wanted,
               "{\"text\": \"a \\\"text\\\" that\\nis \\\\ long enough \\u0000 for \xC3\xA9\", \"source\": \"%s\", "
               "\"document\": 1, \"offset\": 18, \"bytes\": 39}\n",
               in[0]);
    str_printf(&wanted,
               "{\"text\": \"a text with a byte\xEF\xBF\xBD that is of no character, and long enough\", "
               "\"source\": \"%s\", \"document\": 0, \"offset\": 0, \"bytes\": 60}\n",
               in[1]);
    assert_string_equal(text, str_text(&wanted));
    assert_int_equal(r.counts.documents, 3);
    assert_int_equal(r.counts.kept, 2);
    assert_int_equal(r.counts.not_utf8, 1);
    assert_int_equal(r.removals.use[0].dropped, 1);
    assert_int_equal(r.removals.use[0].rule[1].dropped, 1);
    assert_int_equal(r.removals.use[0].dropped_bytes, 5);
    assert_int_equal(r.removals.use[0].gone.n, 1);
    assert_string_equal(r.removals.use[0].gone.s[0].text, "short");
    pass_result_fini(&r);
    str_free(&wanted);
    xfree(text);
    xfree(path);
    xfree(out);
    rules_free(rules);
    xfree(in[0]);
    xfree(in[1]);
    scratch_free(dir);
}

/* Runs to the end in a child that may die; its exit status. */
static int run_in_child(const struct rules *rules, char *const *in, const char *out, int at, bool full)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct pass_result r;
        struct err e = {0};
        trouble.at = at;
        trouble.full = full;
        int code = run(rules, in, 1, out, 1, 1500, &r, &e);
        if (!code) pass_result_fini(&r);
        _exit(code == OK ? 0 : code == ERR_IO && strstr(e.text, out) ? 5 : 99);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void run_with_trouble(bool full)
{
    char *dir = scratch_new(), *in[] = {some_input(dir, "a.jsonl", 60, 3)}, *whole = fs_join(dir, "whole");
    struct rules *rules = some_rules(rules_text);
    struct pass_result r;
    struct err e;
    assert_ok(run(rules, in, 1, whole, 2, 1500, &r, &e), &e);
    pass_result_fini(&r);
    uint64_t wanted = digest(whole);
    int at = 1, ended;
    for (;; at++) {
        char name[40];
        snprintf(name, sizeof name, "out-%d", at);
        char *out = fs_join(dir, name);
        ended = run_in_child(rules, in, out, at, full);
        if (ended != 0) {
            assert_int_equal(ended, full ? 5 : 77);
            if (at % 3 == 0) (void)run_in_child(rules, in, out, 3, full);
            assert_ok(run(rules, in, 1, out, 2, 1500, &r, &e), &e);
            pass_result_fini(&r);
            struct str left = {0};
            str_printf(&left, "%s/.part-00000.jsonl.tmp", out);
            assert_false(fs_exists(left.p));
            str_free(&left);
        }
        assert_true(digest(out) == wanted);
        xfree(out);
        if (!ended) break;
    }
    assert_true(at > 8);
    rules_free(rules);
    xfree(whole);
    xfree(in[0]);
    scratch_free(dir);
}

static void test_killed(void **state)
{
    (void)state;
    run_with_trouble(false);
}

static void test_full_disk(void **state)
{
    (void)state;
    run_with_trouble(true);
}

/* How far it is, with any byte of it another one, is never gone on with: it would leave documents out, or pass them
 * twice. */
static void no_other_byte(struct rules *rules, char *const *in, const char *out)
{
    struct pass_result r;
    struct err e;
    char *path = fs_join(out, PROGRESS_FILE), *text;
    size_t n;
    assert_ok(fs_read_all(path, 1 << 20, &text, &n, &e), &e);
    for (size_t i = 0; i < n; i += 1 + n / 500) {
        text[i] = (char)(text[i] ^ 1);
        assert_ok(fs_write_atomic(path, text, n, &e), &e);
        assert_err(run(rules, in, 1, out, 1, 5000, &r, &e), &e, ERR_CORRUPT, PROGRESS_FILE "|damaged|delete");
        text[i] = (char)(text[i] ^ 1);
    }
    assert_ok(fs_write_atomic(path, text, n, &e), &e);
    xfree(text);
    xfree(path);
}

static void test_refused(void **state)
{
    (void)state;
    char *dir = scratch_new(), *in[] = {some_input(dir, "a.jsonl", 60, 3), some_input(dir, "b.jsonl", 5, 4)};
    char *out = fs_join(dir, "out"), *other = fs_join(dir, "other");
    struct rules *rules = some_rules(rules_text), *others = some_rules("rules: [length]");
    struct pass_result r;
    struct err e;
    assert_ok(run(rules, in, 1, out, 1, 5000, &r, &e), &e);
    assert_false(r.complete_before);
    int64_t kept = r.counts.kept;
    pass_result_fini(&r);
    assert_ok(run(rules, in, 1, out, 1, 5000, &r, &e), &e);
    assert_true(r.complete_before);
    assert_int_equal(r.counts.kept, kept);
    pass_result_fini(&r);
    assert_err(run(others, in, 1, out, 1, 5000, &r, &e), &e, ERR_REQUEST, "other rules|delete this one");
    assert_err(run(rules, in, 2, out, 1, 5000, &r, &e), &e, ERR_REQUEST, "other inputs");
    assert_err(run(rules, in, 1, out, 1, 6000, &r, &e), &e, ERR_REQUEST, "other sizes");
    xfree(put_text(out, "part-00000.jsonl", "cut"));
    assert_err(run(rules, in, 1, out, 1, 5000, &r, &e), &e, ERR_REQUEST, "part-00000.jsonl|has 3 bytes");
    no_other_byte(rules, in, out);
    xfree(put_text(out, PROGRESS_FILE, "{\"schema\": 1}"));
    assert_err(run(rules, in, 1, out, 1, 5000, &r, &e), &e, ERR_CORRUPT, PROGRESS_FILE "|damaged|delete");
    xfree(put_text(other, "mine.txt", "not yours"));
    assert_err(run(rules, in, 1, other, 1, 5000, &r, &e), &e, ERR_REQUEST, "mine.txt|another folder");
    rules_free(rules);
    rules_free(others);
    xfree(out);
    xfree(other);
    xfree(in[0]);
    xfree(in[1]);
    scratch_free(dir);
}

/* Records that cannot be used are an error with their place; or they are passed over, counted, and listed beside the
 * parts, all of them also after a kill. */
static void test_bad(void **state)
{
    (void)state;
    char *dir = scratch_new(), *some = some_input(dir, "some.jsonl", 60, 3), *text, *list;
    size_t n;
    struct err e;
    struct str s = {0};
    assert_ok(fs_read_all(some, 1 << 20, &text, &n, &e), &e);
    str_puts(&s, "{\"text\": \"a\xFF\"}\n");
    str_add(&s, text, n);
    str_puts(&s, "{\"text\": 3}\nno record\n{\"text\": \"long enough to be kept as the last one of all\"}\n");
    char *in = put_file(dir, "a.jsonl", s.p, s.n), *out[] = {fs_join(dir, "whole"), fs_join(dir, "killed")};
    struct rules *rules = some_rules("rules: [{length: {min_chars: 10}}]\n");
    struct pass_options o = {.rules = rules,
                             .inputs = (const char *const *)&in,
                             .n_inputs = 1,
                             .out = out[0],
                             .threads = 2,
                             .part_bytes = 1500,
                             .most_bytes = 6000,
                             .plain = true};
    struct pass_result r;
    assert_err(pass_run(&o, &r, &e), &e, ERR_CORRUPT, "a.jsonl:1");
    o.skip_bad = true;
    assert_err(pass_run(&o, &r, &e), &e, ERR_REQUEST, "another --skip-bad");
    assert_ok(fs_remove_tree(out[0], &e), &e);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        o.out = out[1];
        trouble.at = 8;
        (void)pass_run(&o, &r, &e);
        _exit(99);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 77);
    for (int i = 0; i < 2; i++) {
        o.out = out[i];
        assert_ok(pass_run(&o, &r, &e), &e);
        assert_int_equal(r.bad, 3);
        assert_true(r.counts.documents == 61 && (r.resumed_at > 0) == (i == 1));
        pass_result_fini(&r);
        char *path = fs_join(out[i], ".clean.skipped");
        assert_ok(fs_read_all(path, 1 << 20, &list, &n, &e), &e);
        assert_non_null(strstr(list, "a.jsonl:1"));
        assert_non_null(strstr(list, "a.jsonl:62"));
        assert_non_null(strstr(list, "a.jsonl:63"));
        xfree(path);
        xfree(list);
    }
    assert_true(digest(out[0]) == digest(out[1]));
    rules_free(rules);
    str_free(&s);
    xfree(text);
    xfree(some);
    xfree(in);
    xfree(out[0]);
    xfree(out[1]);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_packed),  cmocka_unit_test(test_other_members),
        cmocka_unit_test(test_other_columns), cmocka_unit_test(test_lines),   cmocka_unit_test(test_killed),
        cmocka_unit_test(test_full_disk),     cmocka_unit_test(test_refused), cmocka_unit_test(test_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
