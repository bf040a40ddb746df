/* SPDX-License-Identifier: Apache-2.0 */
/* room_main.c: the program of a room's tests: one process runs one of them.
 *
 *   kernel_tests                     their names
 *   kernel_tests test_gemm           that test
 *   kernel_tests test_gemm '*odd*'   of it the functions whose names match; a test that takes arguments takes these
 *
 * ROOM_TABLE is the file that cmake makes: a line PLAIN(name) or TAKES(name) each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define PLAIN(name) int main_of_##name(void);
#define TAKES(name) int main_of_##name(int, char **);
#include ROOM_TABLE
#undef PLAIN
#undef TAKES

static const struct {
    const char *name;
    int (*plain)(void);
    int (*takes)(int, char **);
} tests[] = {
#define PLAIN(name) {#name, main_of_##name, NULL},
#define TAKES(name) {#name, NULL, main_of_##name},
#include ROOM_TABLE
};
enum { N_TESTS = sizeof tests / sizeof *tests };

/* The filter that matches nothing is a mistake of whoever typed it, not a test that passed: the linker calls __wrap_
 * where tests call cmocka. Names may have '*' and '?' in them, as cmocka's filter. */
static const char *filter;

static bool matches(const char *pattern, const char *name)
{
    if (*pattern == '*') return matches(pattern + 1, name) || (*name && matches(pattern, name + 1));
    if (!*pattern || !*name) return *pattern == *name;
    return (*pattern == '?' || *pattern == *name) && matches(pattern + 1, name + 1);
}

int __real__cmocka_run_group_tests(const char *, const struct CMUnitTest *, const size_t, CMFixtureFunction,
                                   CMFixtureFunction);
int __wrap__cmocka_run_group_tests(const char *, const struct CMUnitTest *, const size_t, CMFixtureFunction,
                                   CMFixtureFunction);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *of, const size_t n,
                                   CMFixtureFunction begin, CMFixtureFunction end)
{
    bool any = !filter;
    for (size_t i = 0; i < n && !any; i++) any = matches(filter, of[i].name);
    if (any) return __real__cmocka_run_group_tests(name, of, n, begin, end);
    fprintf(stderr, "no function '%s'; there are:\n", filter);
    for (size_t i = 0; i < n; i++) fprintf(stderr, "%s\n", of[i].name);
    return 2;
}

int main(int argc, char **argv)
{
    for (int i = 0; argc > 1 && i < N_TESTS; i++) {
        if (strcmp(argv[1], tests[i].name)) continue;
        if (tests[i].takes) return tests[i].takes(argc - 1, argv + 1);
        if (argc > 2) cmocka_set_test_filter(filter = argv[2]);
        return tests[i].plain();
    }
    fprintf(stderr, argc > 1 ? "no test '%s'; there are:\n" : "which test? There are:\n", argc > 1 ? argv[1] : "");
    for (int i = 0; i < N_TESTS; i++) fprintf(stderr, "%s\n", tests[i].name);
    return 2;
}
