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

int main(int argc, char **argv)
{
    for (int i = 0; argc > 1 && i < N_TESTS; i++) {
        if (strcmp(argv[1], tests[i].name)) continue;
        if (tests[i].takes) return tests[i].takes(argc - 1, argv + 1);
        if (argc > 2) cmocka_set_test_filter(argv[2]);
        return tests[i].plain();
    }
    fprintf(stderr, argc > 1 ? "no test '%s'; there are:\n" : "which test? There are:\n", argc > 1 ? argv[1] : "");
    for (int i = 0; i < N_TESTS; i++) fprintf(stderr, "%s\n", tests[i].name);
    return 2;
}
