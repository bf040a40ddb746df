/* SPDX-License-Identifier: Apache-2.0 */
/* data_test.h: what the data room's tests share: scratch.h, files, fixtures. */
#ifndef TESTS_DATA_TEST_H
#define TESTS_DATA_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "scratch.h"
#include "token/tokenizer.h"

#define FIXTURE(name) TEST_DIR "/data/fixtures/" name

/* OK, or the error's text in the test's output. */
#define assert_ok(call, e)                                                                                             \
    do {                                                                                                               \
        int code_ = (call);                                                                                            \
        if (code_) fail_msg("%s: %d: %s", #call, code_, (e)->text);                                                    \
    } while (0)

/* Fails with the code, and says all of the words ("a|b|c"). */
static inline void check_error(int got, const struct err *e, int wanted, const char *words)
{
    if (got != wanted) fail_msg("code %d, wanted %d: %s", got, wanted, got ? e->text : "(no error)");
    char copy[512];
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, "|"); word; word = strtok(NULL, "|"))
        if (!strstr(e->text, word)) fail_msg("the error does not say \"%s\": %s", word, e->text);
}
#define assert_err(call, e, code, words) check_error((call), (e), (code), (words))

/* Writes dir/name (making directories) and returns its path, to be xfreed. */
static inline char *put_file(const char *dir, const char *name, const void *p, size_t n)
{
    char *path = fs_join(dir, name), *slash = strrchr(path, '/');
    struct err e;
    *slash = 0;
    assert_ok(fs_mkdirs(path, &e), &e);
    *slash = '/';
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

static inline char *put_text(const char *dir, const char *name, const char *text)
{
    return put_file(dir, name, text, strlen(text));
}

/* A small linear congruential generator, so that tests are the same every time. */
static inline uint32_t dice(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

#endif
