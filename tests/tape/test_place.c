/* SPDX-License-Identifier: Apache-2.0 */
/* Where places lie is what the plain greedy rule says, in O(n^2): the largest first, each at the lowest offset where
 * nothing lies that lives at the same time. Programs of all kinds, deep enough that many places share bytes. */
#include "toy.h"

#include <stdlib.h>

static int by_size(const void *a, const void *b)
{
    const struct place *x = *(const struct place *const *)a, *y = *(const struct place *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : x > y;
}

static size_t up(size_t n) { return (n + 63) / 64 * 64; }

static bool clash(const struct place *a, const struct place *b)
{
    return a->home == b->home && (a->home != HOME_SCRATCH || (a->first <= b->last && b->first <= a->last));
}

/* The lowest offset for x beside those before it: it is 0 or the end of one of them. */
static size_t lowest(const struct place *x, struct place *const *before, int n)
{
    size_t best = SIZE_MAX;
    for (int c = -1; c < n; c++) {
        size_t at = c < 0 ? 0 : clash(x, before[c]) ? before[c]->offset + up(before[c]->bytes) : SIZE_MAX;
        bool free = at < best;
        for (int i = 0; free && i < n; i++)
            free = !clash(x, before[i]) || before[i]->offset >= at + up(x->bytes) ||
                   before[i]->offset + up(before[i]->bytes) <= at;
        if (free) best = at;
    }
    return best;
}

static void check(const struct program *p, const char *what)
{
    struct place **todo = xcalloc((size_t)p->n_places + 1, sizeof *todo);
    size_t bytes[HOME_N] = {0};
    int n = 0, shared = 0;
    for (int i = 0; i < p->n_places; i++)
        if (p->places[i].first >= 0 && p->places[i].slot < 0) todo[n++] = &p->places[i];
    qsort(todo, (size_t)n, sizeof *todo, by_size);
    for (int i = 0; i < n; i++) {
        size_t want = lowest(todo[i], todo, i), end = want + up(todo[i]->bytes);
        if (todo[i]->offset != want)
            fail_msg("%s: place %d of %d lies at %s %zu, not at %zu", what, i, n, home_name(todo[i]->home),
                     todo[i]->offset, want);
        if (end > bytes[todo[i]->home]) bytes[todo[i]->home] = end;
        for (int j = 0; j < i; j++) shared += todo[j]->home == todo[i]->home && todo[j]->offset == todo[i]->offset;
    }
    for (int h = 0; h < HOME_N; h++) assert_int_equal(bytes[h], p->bytes[h]);
    assert_true(shared > n / 4);
    xfree(todo);
}

static void test_greedy(void **state)
{
    (void)state;
    struct kernel_table k;
    struct err e = {0};
    assert_int_equal(kernel_table_init(&k, "auto", 2, true, &e), OK);
    for (int v = 0; v < 48; v++) {
        struct engine_config c = toy_config(v & 1 ? MODEL_LLAMA : MODEL_GPT2, v & 2 ? DT_BF16 : DT_F32);
        struct model_shape s = {.mode = MODEL_TRAIN,
                                .dtype = c.dtype,
                                .batch = 2,
                                .seq = c.seq,
                                .loss_rows = v & 4 ? 16 : 0,
                                .recompute = {v & 8 ? AGAIN_ALL : 0, 0}};
        struct param_table params = {0};
        struct par par = par_single();
        char what[64];
        if (v & 16) par.size[AXIS_TP] = par.size[AXIS_ETP] = 2, par.sequence = v & 1;
        c.model.layers = 9;
        snprintf(what, sizeof what, "variant %d", v);
        struct tape *t = tape_new();
        struct program *p;
        model_declare(&c.model, &par, &params);
        model_record(t, &c.model, &params, &par, &s);
        struct lower_options o = {.training = true, .split_w = v & 32, .pieces = {v & 16 ? 2 : 0, 1, 1}};
        for (int training = 0; training < 2; training++) {
            o.training = training;
            if (tape_lower(&p, t, &k, o, &e)) fail_msg("%s", e.text);
            check(p, what);
            program_check(p);
            program_free(p);
        }
        tape_free(t);
        param_table_free(&params);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_greedy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
