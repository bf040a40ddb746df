/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long addresses */
/* Pictures of layouts say all there is: every expert is named, every rank is drawn or in a band, once, and what a band
 * calls alike is alike, rank by rank. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "explain/layout_books.h"
#include "explain/layout_fold.h"
#include "explain/layout_picture.h"

#define TINY                                                                                                           \
    "model.layers=2 model.hidden=24 model.heads=12 model.kv_heads=3 model.ffn=40 model.seq_len=16 model.vocab=257 "    \
    "batch.micro=1 "
#define MOE "model.family=mixtral " TINY "model.moe.top_k=1 model.moe.ffn=8 "

struct opened {
    struct arena *a;
    struct config c;
};

static void open_config(struct opened *o, const char *keys, int ranks)
{
    char *all[64];
    int n = 0;
    struct conf *f;
    struct err e = {0};
    o->a = arena_new();
    for (char *word = strtok(arena_strdup(o->a, keys), " "); word; word = strtok(NULL, " ")) all[n++] = word;
    if (config_load(&o->c, &f, o->a, NULL, all, n, &e) || config_resolve(&o->c, f, 257, ranks, &e))
        fail_msg("%s: %s", keys, e.text);
}

static void picture(struct str *out, const char *keys, int ranks)
{
    struct opened o;
    struct err e = {0};
    open_config(&o, keys, ranks);
    if (layout_picture(&o.c, ranks, out, &e)) fail_msg("%s: %s", keys, e.text);
    if (strstr(str_text(out), "nan") || strstr(str_text(out), "\"-")) fail_msg("%s: a box of no size", keys);
    arena_free(o.a);
}

/* Marks the experts that rows of this matrix name; each at most once. */
static void named(const char *svg, const char *matrix, int experts, char *seen)
{
    char end[32];
    snprintf(end, sizeof end, ": %s<", matrix);
    memset(seen, 0, (size_t)experts);
    for (const char *p = svg; (p = strstr(p, ">expert")); p++) {
        int from, to, of, used = 0;
        bool range = sscanf(p, ">experts %d to %d of %d%n", &from, &to, &of, &used) == 3;
        if (!range) {
            if (sscanf(p, ">expert %d of %d%n", &from, &of, &used) != 2) fail_msg("%.40s", p);
            to = from;
        }
        if (strncmp(p + used, end, strlen(end))) continue;
        assert_int_equal(of, experts);
        for (int k = from; k <= to; k++) assert_true(k < experts && !seen[k]++);
    }
}

static void test_experts(void **state)
{
    (void)state;
    char seen[300];
    for (int experts = 1; experts <= 300; experts++)
        for (int ep = 1; ep <= 4; ep++) {
            struct str svg = {0};
            char keys[512];
            if (ep > experts || (experts > 24 && ep != experts % 4 + 1)) continue;
            snprintf(keys, sizeof keys, MOE "model.moe.experts=%d parallel.ep=%d parallel.zero=%d batch.global=4",
                     experts, ep, experts % 4);
            picture(&svg, keys, ep);
            for (int m = 0; m < 3; m++) {
                static const char *const matrix[] = {"gate", "up", "down"};
                named(str_text(&svg), matrix[m], experts, seen);
                for (int k = 0; k < experts; k++)
                    if (!seen[k])
                        fail_msg("expert %d of %d: %s is not in the picture of ep %d", k, experts, matrix[m], ep);
            }
            str_free(&svg);
        }
}

/* Layers are all named too: "layer 3", "layers 4 to 9". */
static void test_layers(void **state)
{
    (void)state;
    static const int layers[] = {1, 5, 21, 22, 57, 126};
    for (int i = 0; i < 6; i++)
        for (int pp = 1; pp <= 4; pp += 3) {
            struct str svg = {0};
            char keys[512];
            int next = 0, n = layers[i];
            snprintf(keys, sizeof keys, TINY "model.layers=%d parallel.pp=%d batch.global=4", n, n + 2 < pp ? 1 : pp);
            picture(&svg, keys, n + 2 < pp ? 1 : pp);
            for (const char *p = str_text(&svg); (p = strstr(p, ">layer")); p++) {
                int from, to;
                if (sscanf(p, ">layers %d to %d<", &from, &to) != 2) {
                    if (sscanf(p, ">layer %d<", &from) != 1) continue;
                    to = from;
                }
                assert_int_equal(from, next);
                next = to + 1;
            }
            assert_int_equal(next, n);
            str_free(&svg);
        }
}

static int by_first(const void *a, const void *b)
{
    const int *x = a, *y = b;
    return (x[0] > y[0]) - (x[0] < y[0]);
}

static void test_ranks(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *keys;
    } all[] =
        {{1, TINY "batch.global=1"},
         {16, TINY "parallel.tp=2 batch.global=8"},
         {17, TINY "batch.global=40 parallel.zero=3"},
         {60, TINY "parallel.tp=3 parallel.pp=4 batch.global=40 parallel.zero=2"},
         {96, TINY "parallel.tp=12 parallel.cp=4 batch.global=3"},
         {40, TINY "parallel.servers=20 batch.global=40"},
         {70, MOE "model.moe.experts=5 parallel.ep=5 parallel.zero=1 batch.global=71"},
         {1000, TINY "parallel.dp_replicate=25 parallel.tp=4 batch.global=1000"},
         {16384, TINY
          "model.layers=14 parallel.tp=8 parallel.pp=16 parallel.zero=1 batch.global=1024 parallel.schedule=interleaved"
          " model.layers=126 parallel.chunks=8"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct str svg = {0};
        int range[512][2], n = 0, next = 0;
        picture(&svg, all[i].keys, all[i].ranks);
        for (const char *p = str_text(&svg); (p = strstr(p, "data-ranks=\"")) && n < 512; p++, n++)
            assert_int_equal(sscanf(p, "data-ranks=\"%d %d\"", &range[n][0], &range[n][1]), 2);
        qsort(range, (size_t)n, sizeof *range, by_first);
        for (int k = 0; k < n; k++) {
            assert_int_equal(range[k][0], next);
            assert_true(range[k][1] >= range[k][0]);
            next = range[k][1] + 1;
        }
        assert_int_equal(next, all[i].ranks);
        if (all[i].ranks <= 16) assert_int_equal(n, all[i].ranks);
        str_free(&svg);
    }
}

static bool near(double a, double b) { return fabs(a - b) <= 0.02 * fmax(a, b); }

/* Every rank of a band holds what the rank at its place in the group before holds. Folds as the picture does, into
 * few. */
static void check_bands(const char *keys, int ranks, int room)
{
    struct opened o;
    struct library l;
    struct layout_fold f = {0};
    struct err e = {0};
    const struct book *a, *b;
    enum axis dense[MESH_VIEW_MAX];
    struct fold_axis axis[MESH_VIEW_MAX];
    bool *unlike[MESH_VIEW_MAX];
    open_config(&o, keys, ranks);
    library_init(&l, &o.c, ranks);
    if (library_get(&l, 0, &a, &e)) fail_msg("%s", e.text);
    int n = mesh_view_axes(MESH_DENSE, dense), alike = 0;
    for (int i = 0; i < n; i++) {
        struct mesh_axis m = mesh_axis(&l.mesh, dense[i]);
        unlike[i] = xcalloc((size_t)m.size, sizeof **unlike);
        if (library_unlike(&l, dense[i], unlike[i], &e)) fail_msg("%s", e.text);
        axis[i] = (struct fold_axis){.size = m.size, .stride = m.stride, .unlike = unlike[i], .data = i == 1 || i == 2};
    }
    fold_add(&f, axis, n, 0, room);
    for (int k = 0; k < f.n; k++) {
        const struct fold_item *item = &f.item[k];
        if (item->axis < 0 || !item->alike) continue;
        int each = (item->last - item->first + 1) / item->groups;
        for (int r = item->first; r <= item->last; r++, alike++) {
            if (library_get(&l, r, &a, &e) || library_get(&l, item->first - each + (r - item->first) % each, &b, &e))
                fail_msg("%s", e.text);
            if (!near(a->held, b->held) || !near(a->kept, b->kept) || !near((double)a->n_seqs, (double)b->n_seqs) ||
                !near((double)a->positions, (double)b->positions))
                fail_msg("%s: rank %d is not like rank %d: %g and %g elements, %g and %g kept, %d and %d sequences",
                         keys, r, b->rank, a->held, b->held, a->kept, b->kept, (int)a->n_seqs, (int)b->n_seqs);
        }
    }
    if (!alike) fail_msg("%s: no band of ranks that are alike", keys);
    for (int i = 0; i < n; i++) xfree(unlike[i]);
    fold_free(&f);
    library_free(&l);
    arena_free(o.a);
}

#define WIDE                                                                                                           \
    "model.layers=6 model.hidden=480 model.heads=12 model.kv_heads=3 model.ffn=960 model.seq_len=64 model.vocab=9600 " \
    "batch.micro=1 "

static void test_alike(void **state)
{
    (void)state;
    check_bands(WIDE "parallel.tp=4 batch.global=33 parallel.zero=1", 32,
                8); /* kv heads 1, 2, 2, 1; sequences 5, 4, ... */
    check_bands(WIDE "parallel.tp=5 batch.global=40 parallel.zero=3", 40, 12); /* heads 3, 3, 2, 2, 2 */
    check_bands(WIDE "parallel.pp=6 parallel.tp=2 batch.global=48", 48, 8);
    check_bands(WIDE "parallel.pp=4 model.layers=13 parallel.zero=2 batch.global=40", 32, 8);
    check_bands(WIDE "parallel.cp=8 parallel.zero=1 batch.global=4", 32, 6);
    check_bands("model.family=mixtral " WIDE "model.moe.experts=5 model.moe.ffn=960 parallel.ep=4 batch.global=32", 32,
                20);
}

/* Any axes, any kinds of ranks, any room: items tile the ranks; a band called alike has nobody in it who is not. */
static void test_fold(void **state)
{
    (void)state;
    uint64_t k = 0;
    for (int i = 0; i < 2000; i++) {
        struct layout_fold f = {0};
        struct fold_axis axis[4];
        bool unlike[4][32];
        int n = 1, room = 1 + (int)(rng_u32(3, 1, k++) % 20), first = (int)(rng_u32(3, 1, k++) % 5), next = first;
        for (int a = 3; a >= 0; a--) {
            int size = 1 + (int)(rng_u32(3, 1, k++) % (i % 2 ? 6 : 30));
            for (int c = 0; c < size; c++) unlike[a][c] = rng_u32(3, 1, k++) % 8 == 0;
            axis[a] = (struct fold_axis){.size = size, .stride = n, .data = a < 2, .unlike = unlike[a]};
            n *= size;
        }
        fold_add(&f, axis, 4, first, room);
        assert_true(f.drawn <= room && f.drawn >= 1);
        assert_true(n > room || f.drawn == n);
        for (int j = 0; j < f.n; j++) {
            const struct fold_item *item = &f.item[j];
            assert_int_equal(item->first, next);
            next = item->last + 1;
            if (item->axis < 0) {
                assert_int_equal(item->first, item->last);
                continue;
            }
            const struct fold_axis *a = &axis[item->axis];
            assert_int_equal(next - item->first, item->groups * a->stride);
            bool alike = true;
            for (int r = item->first - first; r < next - first; r += a->stride)
                alike = alike && !a->unlike[r / a->stride % a->size];
            assert_int_equal(item->alike, alike);
        }
        assert_int_equal(next, first + n);
        fold_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fold), cmocka_unit_test(test_experts),
                                       cmocka_unit_test(test_layers), cmocka_unit_test(test_ranks),
                                       cmocka_unit_test(test_alike)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
