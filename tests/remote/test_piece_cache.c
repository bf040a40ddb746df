/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of pieces: what is put is got, whatever is damaged is not there, the limit holds, what was used longest
 * ago goes first, and processes that add, read and are killed at any moment do not harm each other. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "remote/piece_cache.h"
#include "sanitized.h"
#include "scratch.h"

enum { N = 150000 }; /* two blocks and a part of one */

static struct piece_key key_of(int i)
{
    struct piece_key k;
    uint64_t a = hash64(&i, sizeof i), b = hash64(&a, sizeof a);
    memcpy(k.id, &a, 8);
    memcpy(k.id + 8, &b, 8);
    return k;
}

static void fill(unsigned char *p, int i, size_t n)
{
    for (size_t j = 0; j < n; j++) p[j] = (unsigned char)((size_t)i * 31 + j * 7 + j / 251);
}

static struct piece_cache *open_cache(const char *dir, int64_t limit)
{
    struct piece_cache *c;
    struct err e;
    if (piece_cache_open(&c, dir, limit, &e)) fail_msg("%s", e.text);
    return c;
}

static char *file_of(const char *dir, int i)
{
    struct str s = {0};
    struct piece_key k = key_of(i);
    str_printf(&s, "%s/%02x/", dir, k.id[0]);
    for (int j = 1; j < 16; j++) str_printf(&s, "%02x", k.id[j]);
    str_puts(&s, ".piece");
    return s.p;
}

static void put(struct piece_cache *c, int i)
{
    static unsigned char p[N];
    struct piece_key k = key_of(i);
    fill(p, i, N);
    piece_cache_put(c, &k, p, N);
}

/* All of it, and parts that begin and end anywhere: right, or not there. */
static bool get(struct piece_cache *c, int i)
{
    static unsigned char right[N], p[N];
    struct piece_key k = key_of(i);
    fill(right, i, N);
    if (!piece_cache_read(c, &k, N, 0, N, p)) return false;
    assert_memory_equal(p, right, N);
    static const size_t parts[][2] = {{0, 1},      {65535, 2},  {65536, 65536}, {70000, 79999},
                                      {149999, 1}, {3, 149990}, {5, 0}};
    for (size_t j = 0; j < sizeof parts / sizeof *parts; j++) {
        if (!piece_cache_read(c, &k, N, parts[j][0], parts[j][1], p)) return false; /* another process made room */
        assert_memory_equal(p, right + parts[j][0], parts[j][1]);
    }
    return true;
}

/* Of what lies there: pieces and their bytes. */
static int64_t folder_bytes(const char *dir, int *n)
{
    char **names, **files;
    int n_names, n_files;
    int64_t bytes = 0;
    *n = 0;
    assert_int_equal(fs_list(dir, &names, &n_names, NULL), OK);
    for (int i = 0; i < n_names; i++) {
        char *sub = fs_join(dir, names[i]);
        if (fs_is_dir(sub)) {
            assert_int_equal(fs_list(sub, &files, &n_files, NULL), OK);
            for (int j = 0; j < n_files; j++) {
                char *f = fs_join(sub, files[j]);
                if (str_ends(f, ".piece")) {
                    bytes += fs_size(f);
                    ++*n;
                }
                xfree(f);
            }
            fs_list_free(files, n_files);
        }
        xfree(sub);
    }
    fs_list_free(names, n_names);
    return bytes;
}

static void age(const char *dir, int i, int seconds)
{
    char *f = file_of(dir, i);
    struct timespec t = {.tv_sec = (time_t)clock_wall_s() - seconds}, both[2] = {t, t};
    assert_int_equal(utimensat(AT_FDCWD, f, both, 0), 0);
    xfree(f);
}

static void damage(void **state)
{
    (void)state;
    char *dir = scratch_new();
    struct piece_cache *c = open_cache(dir, 10 << 20);
    assert_false(get(c, 1));
    put(c, 1);
    assert_true(get(c, 1));
    struct piece_key k = key_of(1);
    unsigned char p[10];
    assert_false(piece_cache_read(c, &k, N - 1, 0, 10, p)); /* another size under this key: as if it were damaged */
    assert_false(get(c, 1));
    /* A byte changed, or the file cut short, at many places: never other bytes than were put. */
    char *file = file_of(dir, 1);
    int seen = 0;
    for (int64_t at = 0; at < N; at += at < 80 ? CASE_STRIDE : 9973 * CASE_STRIDE)
        for (int cut = 0; cut < 2; cut++) {
            put(c, 1);
            if (cut) {
                assert_int_equal(truncate(file, at), 0);
            } else {
                FILE *f = fopen(file, "r+b");
                assert_non_null(f);
                fseek(f, at, SEEK_SET);
                int was = fgetc(f);
                fseek(f, at, SEEK_SET);
                fputc(was ^ 0x40, f);
                fclose(f);
            }
            assert_false(get(c, 1));
            assert_false(fs_exists(file));
            seen++;
        }
    assert_true(seen > 10);
    xfree(file);
    piece_cache_close(c);
    scratch_free(dir);
}

static void limit(void **state)
{
    (void)state;
    char *dir = scratch_new();
    int n;
    struct piece_cache *c = open_cache(dir, 10 * (N + 100)), *other = open_cache(dir, 10 * (N + 100));
    char *mine = fs_join(dir, "keep.piece");
    assert_int_equal(fs_write_atomic(mine, "x", 1, NULL), OK);
    for (int i = 0; i < 8; i++) put(i % 2 ? c : other, i);
    for (int i = 0; i < 8; i++) age(dir, i, 1000 - i);
    assert_true(get(c, 0)); /* used now */
    for (int i = 8; i < 14; i++) {
        put(c, i);
        assert_true(folder_bytes(dir, &n) <= 10 * (N + 100));
    }
    assert_true(get(c, 0));
    assert_false(get(c, 1));
    for (int i = 8; i < 14; i++) assert_true(get(other, i));
    assert_true(fs_exists(mine));
    /* A count that is not there, or not right, is made anew. */
    char *used = fs_join(dir, "used");
    assert_int_equal(truncate(used, 3), 0);
    for (int i = 20; i < 40; i++) put(c, i);
    assert_true(folder_bytes(dir, &n) <= 10 * (N + 100));
    assert_true(n >= 8);
    /* A piece larger than the folder is not kept. */
    struct piece_cache *small = open_cache(dir, 1000);
    put(small, 50);
    assert_false(get(small, 50));
    assert_true(folder_bytes(dir, &n) > 0);
    piece_cache_close(small);
    piece_cache_close(c);
    piece_cache_close(other);
    xfree(used);
    xfree(mine);
    scratch_free(dir);
}

/* Where nothing can be written it is as if there were no folder. */
static void not_writable(void **state)
{
    (void)state;
    char *dir = scratch_new();
    struct piece_cache *c = open_cache(dir, 10 << 20);
    struct piece_key k = key_of(1);
    char sub[8];
    snprintf(sub, sizeof sub, "%02x", k.id[0]);
    char *blocked = fs_join(dir, sub);
    assert_int_equal(fs_write_atomic(blocked, "x", 1, NULL), OK); /* a file where a folder would be */
    put(c, 1);
    assert_false(get(c, 1));
    put(c, 2);
    assert_true(get(c, 2));
    piece_cache_close(c);
    struct err e;
    assert_int_equal(piece_cache_open(&c, blocked, 1 << 20, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "data.remote.cache_dir"));
    xfree(blocked);
    scratch_free(dir);
}

/* Processes that put and get the same pieces and are killed while they do. */
static void processes(void **state)
{
    (void)state;
    char *dir = scratch_new();
    enum { CHILDREN = 4, PIECES = 24 };
    int rounds = SANITIZED ? 2 : 6;
    for (int round = 0; round < rounds; round++) {
        pid_t child[CHILDREN];
        for (int i = 0; i < CHILDREN; i++) {
            child[i] = fork();
            if (child[i]) continue;
            struct piece_cache *c = open_cache(dir, 12 * (N + 100));
            for (uint64_t j = (uint64_t)(i * 7 + round);; j++) {
                int which = (int)(hash64(&j, sizeof j) % PIECES);
                if (!get(c, which)) put(c, which);
            }
        }
        clock_sleep_s(0.15 + 0.01 * round);
        for (int i = 0; i < CHILDREN; i++) kill(child[i], SIGKILL);
        for (int i = 0; i < CHILDREN; i++) waitpid(child[i], NULL, 0);
        struct piece_cache *c = open_cache(dir, 12 * (N + 100));
        int n, there = 0;
        for (int i = 0; i < PIECES; i++) there += get(c, i);
        assert_true(there > 0);
        put(c, 100 + round);
        assert_true(folder_bytes(dir, &n) <= 12 * (N + 100));
        piece_cache_close(c);
    }
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(damage), cmocka_unit_test(limit),
                                       cmocka_unit_test(not_writable), cmocka_unit_test(processes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
