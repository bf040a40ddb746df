/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines by a table: every kind of row, in any order; what is refused, with which words; help that says all rows
 * and the defaults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"

struct request {
    const char *file, *out, *style;
    int64_t count;
    double share;
    bool loud;
    int own;
    struct cli_words more;
    struct cli_keys keys;
};

static const char *read_own(void *into, const char *text)
{
    ((struct request *)into)->own = (int)strlen(text);
    return strcmp(text, "bad") ? NULL : "anything but bad";
}

#define AT(field) offsetof(struct request, field)
static const struct cli_option options[] = {
    {"--out", "PATH", CLI_TEXT, AT(out), .needed = true, .help = "where to"},
    {"--style", "S", CLI_CHOICE, AT(style), .choices = "plain|round|square", .help = "how it looks"},
    {"--count", "N", CLI_INT, AT(count), .lo = -2, .hi = 100, .help = "how\nmany"},
    {"--share", "X", CLI_REAL, AT(share), .least = 0, .most = 0.5, .help = "of all"},
    {"--loud", NULL, CLI_FLAG, AT(loud), .help = "louder"},
    {"--own", "O", CLI_OWN, .read = read_own, .help = "its own"},
    {"--old", NULL, CLI_FLAG, AT(loud), .help = NULL},
};
static const struct cli_word words[] = {{.name = "FILE", .at = AT(file)}};
static const struct cli_word lists[] = {{.name = "FILE", .at = AT(file)},
                                        {.name = "MORE", .at = AT(more), .many = true}};
static const struct cli_table one = {.command = "t",
                                     .usage = "FILE",
                                     .about = "About.\n",
                                     CLI_OPTIONS(options),
                                     CLI_WORDS(words)};
static const struct cli_table many = {.command = "t",
                                      .usage = "FILE MORE...",
                                      .about = "About.\n",
                                      CLI_OPTIONS(options),
                                      CLI_WORDS(lists)};
static const struct cli_table keyed = {.command = "t",
                                       .usage = "FILE",
                                       .about = "",
                                       CLI_OPTIONS(options),
                                       CLI_WORDS(words),
                                       .takes_keys = true,
                                       .keys = AT(keys)};
static const struct request defaults = {.style = "round", .count = 7, .share = 0.25};

/* The words of a line, with what goes to stdout or stderr (fd) in said. */
static bool reads(const struct cli_table *t, const char *line, struct request *q, int *status, int fd, char said[4096])
{
    static char copy[512], *argv[40];
    int argc = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *save, *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) argv[argc++] = w;
    FILE *f = tmpfile();
    fflush(NULL);
    int was = dup(fd);
    dup2(fileno(f), fd);
    *q = defaults;
    bool go = cli_read(t, argc, argv, q, status);
    fflush(NULL);
    dup2(was, fd);
    close(was);
    rewind(f);
    said[fread(said, 1, 4095, f)] = 0;
    fclose(f);
    return go;
}

static void test_all_kinds_in_any_order(void **state)
{
    (void)state;
    struct request q;
    int status;
    char said[4096];
    assert_true(
        reads(&one, "t --count -2 in --loud --out=o --style square --share=0.5 --own abc", &q, &status, 2, said));
    assert_string_equal(said, "");
    assert_string_equal(q.file, "in");
    assert_string_equal(q.out, "o");
    assert_string_equal(q.style, "square");
    assert_true(q.count == -2 && q.share == 0.5 && q.loud && q.own == 3);
    assert_true(reads(&one, "t --out a --out=b - --count 1", &q, &status, 2, said));
    assert_string_equal(q.out, "b");
    assert_string_equal(q.file, "-");
    assert_string_equal(q.style, "round");
    assert_true(reads(&many, "t a --out o b --loud c -- --help -x", &q, &status, 2, said));
    assert_string_equal(q.file, "a");
    assert_int_equal(q.more.n, 4);
    const char *const want[] = {"b", "c", "--help", "-x"};
    for (int i = 0; i < 4; i++) assert_string_equal(q.more.p[i], want[i]);
    assert_true(reads(&keyed, "t run.steps=3 in --out=o model.layers=2", &q, &status, 2, said));
    assert_int_equal(q.keys.n, 2);
    assert_string_equal(q.keys.p[1], "model.layers=2");
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const struct cli_table *t;
        const char *line, *said;
    } rows[] = {
        {&one, "t in", "--out PATH is needed"},
        {&one, "t --out o", "which FILE?"},
        {&many, "t in --out o", "which MORE?"},
        {&one, "t a b --out o", "one argument too many: b"},
        {&one, "t a --out", "--out wants a value"},
        {&one, "t a --loud=1 --out o", "--loud takes no value"},
        {&one, "t a --out o --stile plain", "there is no option --stile; did you mean '--style'?"},
        {&one, "t a --out o --zzzzzzzzz", "there is no option --zzzzzzzzz (see"},
        {&one, "t a --out o --style flat", "--style: wanted plain, round or square, got 'flat'"},
        {&one, "t a --out o --style pla", "--style: wanted plain, round or square, got 'pla'"},
        {&one, "t a --out o --count 101", "--count: wanted a whole number from -2 to 100, got '101'"},
        {&one, "t a --out o --count 9999999999999999999999", "--count: wanted a whole number"},
        {&one, "t a --out o --count 3x", "--count: wanted a whole number"},
        {&one, "t a --out o --count=", "--count: wanted a whole number"},
        {&one, "t a --out o --share nan", "--share: wanted a number from 0 to 0.5, got 'nan'"},
        {&one, "t a --out o --own bad", "--own: wanted anything but bad, got 'bad'"},
        {&keyed, "t a --out o --run.steps=3", "a key has no dashes"},
        {&keyed, "t a --out o run.steps 3", "run.steps: a key and its value are one word: run.steps=3"},
        {&keyed, "t a --out o -n4", "write -n 4"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct request q;
        int status = 0;
        char said[4096];
        assert_false(reads(rows[i].t, rows[i].line, &q, &status, 2, said));
        assert_int_equal(status, 2);
        if (!strstr(said, rows[i].said)) fail_msg("%s: '%s' is not in: %s", rows[i].line, rows[i].said, said);
        assert_non_null(strstr(said, "(see tutti t --help)\n"));
    }
}

static void test_help_is_the_table(void **state)
{
    (void)state;
    struct request q;
    int status = 7;
    char said[4096];
    assert_false(reads(&one, "t --nonsense --help", &q, &status, 1, said));
    assert_int_equal(status, 0);
    assert_string_equal(said, "usage: tutti t FILE\n\nAbout.\n\n"
                              "  --out PATH  where to\n"
                              "  --style S   plain, round or square: how it looks (default round)\n"
                              "  --count N   how\n"
                              "              many (default 7)\n"
                              "  --share X   of all (default 0.25)\n"
                              "  --loud      louder\n"
                              "  --own O     its own\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_kinds_in_any_order),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_help_is_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
