/* SPDX-License-Identifier: Apache-2.0 */
/* Records come out sorted, from memory and from runs, merged once or in groups, distinct or not; a file of records that
 * was cut, flipped, made with another key or of another width is refused; a disk that fills up is an error, and
 * leaves nothing under a final name. */
#include "scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "curate/sorted_file.h"
#include "curate/sorter.h"
#include "sanitized.h"

static int width, keys;
static int by_key(const void *a, const void *b)
{
    const uint64_t *p = a, *q = b;
    for (int i = 0; i < keys; i++)
        if (p[i] != q[i]) return p[i] < q[i] ? -1 : 1;
    return 0;
}

/* n records of which about one in `repeat` is like an earlier one. */
static uint64_t *make(int64_t n, int words, uint64_t seed, int range)
{
    uint64_t *r = xmalloc(to_size(n) * (size_t)words * 8 + 8);
    for (int64_t i = 0; i < n * words; i++) {
        uint64_t v = rng_u64(seed, 7, (uint64_t)i);
        r[i] = range ? v % (uint64_t)range << (i % 3 * 20) : v;
    }
    return r;
}

static void sort_case(const char *dir, int64_t n, int words, int range, size_t memory, bool distinct)
{
    struct err e = {0};
    struct sorter_config c =
        {.dir = dir, .name = "s", .words = words, .key_words = words, .memory = memory, .distinct = distinct};
    uint64_t *r = make(n, words, (uint64_t)(n + words + range), range);
    struct sorter *s = sorter_new(&c);
    for (int64_t i = 0; i < n;) { /* in batches of any size */
        int64_t some = 1 + (int64_t)(rng_u32(1, 2, (uint64_t)i) % 1000);
        if (some > n - i) some = n - i;
        assert_int_equal(sorter_add(s, r + i * words, some, &e), OK);
        i += some;
    }
    assert_int_equal(sorter_finish(s, &e), OK);
    width = words, keys = words;
    qsort(r, to_size(n), (size_t)words * 8, by_key);
    const uint64_t *got;
    int more;
    int64_t at = 0;
    while ((more = sorter_next(s, &got, &e)) > 0) {
        while (distinct && at && at < n && !by_key(r + at * words, r + (at - 1) * words)) at++;
        assert_true(at < n);
        assert_memory_equal(got, r + at * words, (size_t)words * 8);
        at++;
    }
    assert_int_equal(more, 0);
    while (distinct && at && at < n && !by_key(r + at * words, r + (at - 1) * words)) at++;
    assert_int_equal(at, n);
    bool fits = to_size(n) * (size_t)words * 8 < (memory > SORTER_LEAST ? memory : SORTER_LEAST);
    assert_int_equal(sorter_runs(s) > 0, !fits);
    sorter_free(s);
    xfree(r);
    char **names;
    int left;
    assert_int_equal(fs_list(dir, &names, &left, &e), OK);
    assert_int_equal(left, 0);
    fs_list_free(names, left);
}

static void sorts(void **state)
{
    (void)state;
    char *dir = scratch_new();
    const int64_t many = 200000 / CASE_STRIDE;
    sort_case(dir, 0, 2, 0, 0, false);
    sort_case(dir, 1, 2, 0, 0, false);
    sort_case(dir, 1000, 1, 10, 0, false);
    sort_case(dir, 1000, 4, 3, 0, true);
    sort_case(dir, many, 2, 0, 0, false);   /* some runs */
    sort_case(dir, many, 2, 50, 0, true);   /* runs with much in common */
    sort_case(dir, many, 4, 2, 0, true);    /* equal ones in every run */
    sort_case(dir, 30000, 35, 4, 0, false); /* wide: more runs than are merged at once */
    scratch_free(dir);
}

/* Keys of a few words order wide records; the rest travels along. */
static void carries(void **state)
{
    (void)state;
    char *dir = scratch_new();
    struct err e = {0};
    enum { WORDS = 20, N = 5000 };
    struct sorter_config c = {.dir = dir, .name = "s", .words = WORDS, .key_words = 1, .memory = 0};
    struct sorter *s = sorter_new(&c);
    for (uint64_t i = 0; i < N; i++) {
        uint64_t r[WORDS] = {rng_permute(3, 4, N, i)};
        for (int k = 1; k < WORDS; k++) r[k] = r[0] * 1000 + (uint64_t)k;
        assert_int_equal(sorter_add(s, r, 1, &e), OK);
    }
    assert_int_equal(sorter_finish(s, &e), OK);
    const uint64_t *r;
    for (uint64_t i = 0; i < N; i++) {
        assert_int_equal(sorter_next(s, &r, &e), 1);
        for (int k = 0; k < WORDS; k++) assert_int_equal(r[k], k ? i * 1000 + (uint64_t)k : i);
    }
    assert_int_equal(sorter_next(s, &r, &e), 0);
    sorter_free(s);
    scratch_free(dir);
}

static char *write_file(const char *dir, int64_t n)
{
    struct err e = {0};
    struct sorted_writer *w;
    char *path = fs_join(dir, "file");
    assert_int_equal(sorted_create(&w, path, 3, 42, &e), OK);
    for (int64_t i = 0; i < n; i++) {
        uint64_t r[3] = {(uint64_t)i, 1, 2};
        assert_int_equal(sorted_put(w, r, &e), OK);
    }
    assert_false(fs_exists(path));
    assert_int_equal(sorted_publish(w, true, &e), OK);
    assert_true(fs_exists(path));
    return path;
}

/* Reads it all: OK, or what was wrong. */
static int read_file(const char *path, int words, uint64_t key, int64_t *n, struct err *e)
{
    struct sorted_reader *r;
    int code = sorted_open(&r, path, words, key, e), got;
    const uint64_t *record;
    *n = 0;
    if (code) return code;
    while ((got = sorted_next(r, &record, e)) > 0) {
        assert_int_equal(record[0], *n);
        ++*n;
    }
    sorted_close(r);
    return got;
}

static void damaged(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = write_file(dir, 7000), *bytes;
    struct err e = {0};
    int64_t n;
    size_t size;
    assert_int_equal(read_file(path, 3, 42, &n, &e), OK);
    assert_int_equal(n, 7000);
    assert_int_equal(read_file(path, 4, 42, &n, &e), ERR_CORRUPT);
    assert_int_equal(read_file(path, 3, 43, &n, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "other inputs"));
    assert_int_equal(fs_read_all(path, 1 << 20, &bytes, &size, &e), OK);
    for (size_t i = 0; i < 60; i++) { /* one bit anywhere */
        size_t at = i < 20 ? i * 2 : i < 40 ? size - 1 - (i - 20) : size / 40 * i % size;
        bytes[at] ^= 4;
        assert_int_equal(fs_write_atomic(path, bytes, size, &e), OK);
        assert_int_equal(read_file(path, 3, 42, &n, &e), ERR_CORRUPT);
        bytes[at] ^= 4;
    }
    for (size_t i = 0; i < 40; i++) { /* cut anywhere */
        assert_int_equal(fs_write_atomic(path, bytes, size * i / 40, &e), OK);
        assert_int_equal(read_file(path, 3, 42, &n, &e), ERR_CORRUPT);
    }
    xfree(bytes);
    xfree(path);
    scratch_free(dir);
}

static void full_disk(void **state)
{
    (void)state;
    char *dir = scratch_new();
    for (int64_t at = 1; at < 4; at++) {
        struct err e = {0};
        struct sorted_writer *w;
        char *path = fs_join(dir, "full");
        int code = sorted_create(&w, path, 3, 1, &e);
        assert_int_equal(code, OK);
        sorted_fail_at(w, at);
        for (int64_t i = 0; i < 200000 && !code; i++) {
            uint64_t r[3] = {(uint64_t)i};
            code = sorted_put(w, r, &e);
        }
        if (code) sorted_abandon(w);
        else code = sorted_publish(w, true, &e);
        assert_int_equal(code, ERR_IO);
        assert_non_null(strstr(e.text, "free some space"));
        char **names;
        int left;
        assert_int_equal(fs_list(dir, &names, &left, &e), OK);
        assert_int_equal(left, 0);
        fs_list_free(names, left);
        xfree(path);
    }
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sorts), cmocka_unit_test(carries), cmocka_unit_test(damaged),
                                       cmocka_unit_test(full_disk)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
