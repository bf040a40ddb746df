/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes per parameter of weights, masters, gradients and optimizer state for combinations of recipe, master, type of
 * gradients and moments, optimizer, average and zero level: what the plan counts is what a table says. That training
 * allocates what is planned, engine/test_updates.c shows for the same kinds of state. And Newton-Schulz is counted. */
#include <math.h>

#include "config/config.h"
#include "optim/muon.h"
#include "site/site.h"
#include "toy.h"

enum { VECTORS = 5 * 64, RANKS = 2 };
static const char *const toy_keys[] = {
    "model.layers=2", "model.hidden=64", "model.heads=4",        "model.kv_heads=2",
    "model.ffn=128",  "model.vocab=96",  "model.seq_len=16",     "batch.global=2",
    "batch.micro=1",  "run.threads=1",   "parallel.dp_shard=-1",
};

/* Bytes of a parameter; of optimizer state for matrices (blocks of 32: 8 / 32 of scales), and for norms. */
static const struct row {
    const char *key[5];
    double param, master, grad, matrix, vector;
    bool factors;
} rows[] = {
    {{"precision.recipe=fp32"}, 4, 0, 4, 8, 8, false},
    {{"precision.recipe=bf16"}, 2, 4, 4, 8, 8, false},
    {{"precision.recipe=fp16"}, 2, 4, 4, 8, 8, false},
    {{"precision.grad=bf16"}, 2, 4, 2, 8, 8, false},
    {{"precision.grad=bf16", "optimizer.moments=bf16"}, 2, 4, 2, 4, 4, false},
    {{"precision.grad=bf16", "optimizer.moments=bf16", "precision.master=none"}, 2, 0, 2, 4, 4, false},
    {{"optimizer.moments=fp8", "optimizer.block=32"}, 2, 4, 4, 3.25, 8, false},
    {{"optimizer.moments=8bit", "optimizer.block=32"}, 2, 4, 4, 2.25, 8, false},
    {{"optimizer.moments=8bit", "optimizer.block=32", "precision.master=none", "precision.grad=bf16"},
     2,
     0,
     2,
     2.25,
     8,
     false},
    {{"optimizer.ema=0.9"}, 2, 4, 4, 12, 12, false},
    {{"optimizer.ema=0.9", "precision.recipe=fp32"}, 4, 0, 4, 12, 12, false},
    {{"optimizer.name=sgd"}, 2, 4, 4, 4, 4, false},
    {{"optimizer.name=sgd", "optimizer.momentum=0", "precision.recipe=fp32"}, 4, 0, 4, 0, 0, false},
    {{"optimizer.name=sgd", "precision.master=none"}, 2, 0, 4, 4, 4, false},
    {{"optimizer.name=lion"}, 2, 4, 4, 4, 4, false},
    {{"optimizer.name=lion", "optimizer.ema=0.99", "precision.master=none"}, 2, 0, 4, 8, 8, false},
    {{"optimizer.name=adafactor"}, 2, 4, 4, 0, 4, true},
    {{"optimizer.name=adafactor", "precision.master=none", "precision.grad=bf16"}, 2, 0, 2, 0, 4, true},
};

static void resolve(struct config *c, struct arena *a, const struct row *row, int zero)
{
    char *all[32];
    int k = 0;
    struct err e = {0};
    struct conf *f;
    for (size_t i = 0; i < sizeof toy_keys / sizeof *toy_keys; i++) all[k++] = arena_strdup(a, toy_keys[i]);
    for (int i = 0; i < 5 && row->key[i]; i++) all[k++] = arena_strdup(a, row->key[i]);
    all[k++] = arena_printf(a, "parallel.zero=%d", zero);
    if (config_load(c, &f, a, NULL, all, k, &e)) fail_msg("%s", e.text);
    if (config_resolve(c, f, 0, RANKS, &e)) fail_msg("%s", e.text);
}

static void equal(const struct row *r, int zero, const char *what, size_t got, double want)
{
    if ((double)got != want)
        fail_msg("%s %s, zero %d: %s takes %zu bytes, wanted %g", r->key[0], r->key[1] ? r->key[1] : "", zero, what,
                 got, want);
}

static void test_bytes_per_parameter(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int zero = 0; zero <= 3; zero++) {
            const struct row *r = &rows[i];
            struct arena *a = arena_new();
            struct config c;
            struct site s;
            struct err e = {0};
            resolve(&c, a, r, zero);
            if (site_open(&s, &(struct site_config){.config = &c, .kind = SITE_COUNTS, .rank = 0, .n = RANKS}, &e))
                fail_msg("%s", e.text);
            const struct param_table *t = &s.engine->params;
            const size_t *peak = s.dev->ledger.peak;
            double n = (double)t->numel, factors = 0, state_of = zero ? RANKS : 1;
            for (int k = 0; k < t->n; k++) factors += t->p[k].nd > 1 ? 4 * (double)(t->p[k].n[0] + t->p[k].n[1]) : 0;
            equal(r, zero, "weights", peak[MEM_PARAM], r->param * n / (zero == 3 ? RANKS : 1));
            equal(r, zero, "master", peak[MEM_MASTER], r->master * n / state_of);
            equal(r, zero, "grad", peak[MEM_GRAD], r->grad * n / (zero >= 2 ? RANKS : 1));
            equal(r, zero, "optimizer", peak[MEM_OPTIMIZER],
                  ((n - VECTORS) * r->matrix + VECTORS * r->vector) / state_of + (r->factors ? factors : 0));
            site_close(&s);
            arena_free(a);
        }
}

/* Five iterations of three products, of every matrix of the layers; half of the work on each of two owners. */
static void test_newton_schulz_is_counted(void **state)
{
    (void)state;
    static const struct row muon = {{"optimizer.name=muon"}, 0, 0, 0, 0, 0, false};
    double sum[4] = {0}, want = 0;
    for (int zero = 0; zero < 2; zero++)
        for (int rank = 0; rank < RANKS; rank++) {
            struct arena *a = arena_new();
            struct config c;
            struct site s;
            struct err e = {0};
            resolve(&c, a, &muon, zero);
            if (site_open(&s, &(struct site_config){.config = &c, .kind = SITE_COUNTS, .rank = rank, .n = RANKS}, &e))
                fail_msg("%s", e.text);
            sum[2 * zero + rank] = muon_flops(s.engine->tools.muon);
            site_close(&s);
            arena_free(a);
        }
    /* q and o 64 x 64, k and v 32 x 64, gate, up and down 128 x 64 (by their shorter side k and longer l) */
    const double k[] = {64, 64, 32, 32, 64, 64, 64}, l[] = {64, 64, 64, 64, 128, 128, 128};
    for (int i = 0; i < 7; i++)
        want += 2 * 5 * (2 * k[i] * k[i] * l[i] + 2 * k[i] * k[i] * k[i] + 2 * k[i] * k[i] * l[i]);
    assert_true(sum[0] == want && sum[1] == want);
    assert_true(sum[2] + sum[3] == want && sum[2] > 0.4 * want && sum[3] > 0.4 * want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes_per_parameter),
                                       cmocka_unit_test(test_newton_schulz_is_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
