/* SPDX-License-Identifier: Apache-2.0 */
/* suite: alone */
/* The folder of pieces, of which every call that looks there fails in turn, says that there is nothing, gives less, is
 * interrupted, or gives another byte: a piece is right or not there, those of others stay, and the limit holds
 * afterwards, too: what could not be counted is not taken for nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "no_sync.h"
#include "remote/piece_cache.h"
#include "scratch.h"
#include "unread_calls.h"

enum { N = 70000, KEPT = 4, MORE = KEPT + 2 }; /* a block and a part of one */
static const int64_t limit = KEPT * (N + 100);

struct room {
    char *dir;
    struct piece_cache *c;
};

static struct piece_key key_of(int i)
{
    struct piece_key k;
    uint64_t a = hash64(&i, sizeof i), b = hash64(&a, sizeof a);
    memcpy(k.id, &a, 8);
    memcpy(k.id + 8, &b, 8);
    return k;
}

static void fill(unsigned char *p, int i)
{
    for (size_t j = 0; j < N; j++) p[j] = (unsigned char)((size_t)i * 31 + j * 7 + j / 251);
}

static void put(const struct room *r, int i)
{
    static unsigned char p[N];
    struct piece_key k = key_of(i);
    fill(p, i);
    piece_cache_put(r->c, &k, p, N);
}

/* 1: it is there and right, 0: it is not there, -1: other bytes. */
static int get(const struct room *r, int i)
{
    static unsigned char right[N], p[N];
    struct piece_key k = key_of(i);
    if (!piece_cache_read(r->c, &k, N, 0, N, p)) return 0;
    fill(right, i);
    return memcmp(p, right, N) ? -1 : 1;
}

/* Of what lies there, by a look of the test's own. */
static int64_t bytes_of(const char *folder)
{
    struct err e;
    char **names;
    int n;
    int64_t bytes = 0;
    if (fs_list(folder, &names, &n, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < n; i++) {
        char *path = fs_join(folder, names[i]);
        if (fs_is_dir(path)) bytes += bytes_of(path);
        else if (str_ends(path, ".piece") || strstr(path, ".tmp-")) bytes += fs_size(path);
        xfree(path);
    }
    fs_list_free(names, n);
    return bytes;
}

static void begin(const struct room *r, int n)
{
    const char *watch = fault.watch;
    struct err e;
    fault.watch = NULL;
    if (fs_remove_tree(r->dir, &e) || fs_mkdirs(r->dir, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < n; i++) put(r, i);
    fault.watch = watch;
}

static int reads(void *ctx, struct err *e)
{
    const struct room *r = ctx;
    begin(r, 3);
    int got = get(r, 1);
    fault.watch = NULL;
    if (!got) err_set(e, ERR_IO, "it is fetched again");
    if (get(r, 0) != 1 || get(r, 2) != 1) return -1;
    if (!got) put(r, 1);
    return got && get(r, 1) != 1 ? -1 : got;
}

/* One is added where there is room for it, or none; then many more are. */
static int adds(const struct room *r, int n, struct err *e)
{
    begin(r, n);
    put(r, n);
    fault.watch = NULL;
    int got = get(r, n);
    if (!got) err_set(e, ERR_IO, "it is not kept");
    for (int i = 0; i < n; i++)
        if (get(r, i) < 0) return -1;
    for (int i = 0; i < MORE; i++) {
        int64_t bytes = bytes_of(r->dir);
        if (bytes > limit)
            fail_msg("%lld bytes, %d later; %lld were to be the most", (long long)bytes, i, (long long)limit);
        put(r, 100 + i);
        if (get(r, 100 + i) != 1) return -1;
    }
    return got;
}

static int adds_with_room(void *ctx, struct err *e) { return adds(ctx, 2, e); }

static int adds_to_full(void *ctx, struct err *e) { return adds(ctx, KEPT, e); }

/* Nothing says how much there is, so all is counted. */
static int adds_uncounted(void *ctx, struct err *e)
{
    const struct room *r = ctx;
    char *used = fs_join(r->dir, "used");
    begin(r, KEPT);
    assert_int_equal(unlink(used), 0);
    xfree(used);
    put(r, KEPT);
    fault.watch = NULL;
    int got = get(r, KEPT);
    if (!got) err_set(e, ERR_IO, "it is not kept");
    for (int i = 0; i < MORE; i++) {
        if (bytes_of(r->dir) > limit) return -1;
        put(r, 100 + i);
    }
    return got;
}

static void every_call(void **state)
{
    (void)state;
    struct err e;
    struct room r = {.dir = scratch_new()};
    if (piece_cache_open(&r.c, r.dir, limit, &e)) fail_msg("%s", e.text);
    walk("a piece", ".piece", true, reads, &r, 5);
    walk("one more", r.dir, false, adds_with_room, &r, 3);
    walk("one more than there is room for", r.dir, false, adds_to_full, &r, 15);
    walk("how much there is", r.dir, false, adds_uncounted, &r, 15);
    walk_way("a piece", ".piece", FLIPS, reads, &r, 5);
    walk_way("how much there is", r.dir, FLIPS, adds_to_full, &r, 15);
    piece_cache_close(r.c);
    scratch_free(r.dir);
}

int main(void)
{
    setenv("LOG", "error", 1); /* warnings are what these tests provoke */
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_call)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
