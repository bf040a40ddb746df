/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long addresses */
/* Data parallelism at every zero level, with one microbatch and several, gradients in fp32 and bf16, reduced per
 * microbatch and per step: the levels have the same bits, the papers' bytes per parameter, the papers' traffic, and
 * what is planned is what is allocated and sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "layout/region.h"
#include "plan/plan.h"
#include "verify/counting.h"
#include "verify/verify.h"
#include "sanitized.h"
#include "verify/thinned.h"

enum { MAX_KEYS = 8 };
struct made {
    struct arena *arena;
    struct config c;
};

static void make(struct made *m, const char *const *keys)
{
    static const char *const toy[] = {"model.layers=2", "model.hidden=36",   "model.heads=3",
                                      "model.ffn=52",   "model.vocab=67",    "model.seq_len=12",
                                      "run.threads=1",  "comm.timeout_s=60", "batch.global=12",
                                      "batch.micro=1",  "optimizer.lr=1e-3", "precision.recipe=fp32"};
    char *all[32];
    int k = 0;
    struct err e = {0};
    struct conf *f;
    m->arena = arena_new();
    for (size_t i = 0; i < sizeof toy / sizeof *toy; i++) all[k++] = arena_strdup(m->arena, toy[i]);
    for (int i = 0; i < MAX_KEYS && keys[i]; i++) all[k++] = arena_strdup(m->arena, keys[i]);
    if (config_load(&m->c, &f, m->arena, NULL, all, k, &e)) fail_msg("%s", e.text);
    if (config_resolve(&m->c, f, 0, 1, &e)) fail_msg("%s", e.text);
}

static void layout(struct made *m, int replicate, int shard, int zero)
{
    m->c.parallel.dp_replicate = replicate;
    m->c.parallel.dp_shard = shard;
    m->c.parallel.ranks_here = replicate * shard;
    m->c.parallel.zero = zero;
}

static struct plan planned(struct made *m, int replicate, int shard, int zero)
{
    struct plan p;
    struct err e = {0};
    layout(m, replicate, shard, zero);
    if (plan_make(&p, &m->c, &e)) fail_msg("%s", e.text);
    return p;
}

/* ---- bits ---- */
static const char *const bits[][MAX_KEYS] = {
    {"model.family=llama"},
    {"model.family=gpt2", "model.tie_embeddings=true", "batch.global=11", "model.dropout=0.1"},
    {"model.family=llama", "parallel.reduce=step"},
    {"model.family=llama", "precision.grad=bf16", "batch.global=11"},
    {"model.family=llama", "precision.grad=bf16", "parallel.reduce=step"},
    {"model.family=gpt2", "precision.recipe=bf16", "model.tie_embeddings=true"},
    {"model.family=llama", "batch.micro=3", "precision.grad=bf16", "precision.recipe=bf16"},
};

/* The layout that differs from this one by being zero 0. */
static const struct verify_layout *at_zero0(const struct verify *v, const char *name)
{
    char wanted[96];
    snprintf(wanted, sizeof wanted, "%s", name);
    char *zero = strstr(wanted, "zero");
    assert_non_null(zero);
    zero[4] = '0';
    for (int i = 0; i < v->n; i++)
        if (!strcmp(v->layout[i].layout, wanted)) return &v->layout[i];
    return NULL;
}

static void test_zero_levels_have_the_same_bits(void **state)
{
    (void)state;
    const size_t stride =
        CASE_STRIDE == 2 ? 3 : CASE_STRIDE; /* a sanitizer of addresses: reduced by microbatch, in bf16 */
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i += stride) {
        if (!drawn_half(i, stride)) continue; /* every day half of them */
        struct made m;
        struct verify v;
        struct err e = {0};
        make(&m, bits[i]);
        int most = drawn_here((int64_t)i, 3) ? 4 : 3; /* four ranks: a third of them, that a commit draws */
        if (verify_run(&v, &m.c, most, VERIFY_DP | VERIFY_TP, 2, &e)) fail_msg("%s", e.text);
        int compared = 0;
        for (int k = 0; k < v.n; k++) {
            const struct verify_layout *zero0 = at_zero0(&v, v.layout[k].layout);
            if (!zero0 || zero0 == &v.layout[k]) continue;
            if (v.layout[k].bits != zero0->bits)
                fail_msg("%s %s: %s and %s have other bits", bits[i][0], bits[i][1] ? bits[i][1] : "", zero0->layout,
                         v.layout[k].layout);
            compared++;
        }
        assert_true(compared >= (most == 4 ? 3 + 3 + 6 : 3 + 3)); /* dp2; dp3; dp4 with 1 and 2 replicas; and in tp */
        verify_free(&v);
        arena_free(m.arena);
    }
}

/* ---- bytes ---- */
/* Elements of the largest rank's pieces: rows of every parameter. */
static int64_t pieces(const struct config *c, int n)
{
    struct param_table t = {0};
    int64_t sum = 0, lo, hi;
    model_declare(&c->model, NULL, &t);
    for (int i = 0; i < t.n; i++) {
        region_split(t.p[i].n[0], 0, n, &lo, &hi);
        sum += (hi - lo) * (t.p[i].numel / t.p[i].n[0]);
    }
    param_table_free(&t);
    return sum;
}

static int64_t state_bytes(const struct plan *p)
{
    const size_t *b = p->role[0].bytes;
    return (int64_t)(b[MEM_PARAM] + b[MEM_MASTER] + b[MEM_GRAD] + b[MEM_OPTIMIZER]);
}

/* ZeRO (Rajbhandari et al. 2020), figure 1: 16; 4 + 12/N; 2 + 14/N; 16/N, to the byte, with several microbatches. */
static void test_state_bytes(void **state)
{
    (void)state;
    static const char *const even[] = {"precision.recipe=bf16",
                                       "precision.grad=bf16",
                                       "model.hidden=48",
                                       "model.heads=4",
                                       "model.ffn=120",
                                       "model.vocab=240",
                                       NULL};
    static const char *const odd[] = {"precision.recipe=bf16", "precision.grad=bf16", NULL};
    for (int uneven = 0; uneven < 2; uneven++)
        for (int n = 1; n <= 4; n++)
            for (int zero = 0; zero <= 3; zero++) {
                struct made m;
                make(&m, uneven ? odd : even);
                struct plan p = planned(&m, 1, n, zero);
                int64_t psi = p.params, own = pieces(&m.c, n);
                int64_t whole[4] = {16, 4, 2, 0}, shared[4] = {0, 12, 14, 16};
                assert_true(p.microbatches > 1);
                assert_int_equal(state_bytes(&p), whole[zero] * psi + shared[zero] * own);
                if (!uneven) { /* 1, 2, 3 and 4 divide every row count: the paper's formula */
                    assert_int_equal(psi % n, 0);
                    assert_int_equal(state_bytes(&p), whole[zero] * psi + shared[zero] * psi / n);
                }
                plan_free(&p);
                arena_free(m.arena);
            }
}

/* ---- traffic ---- */
static int64_t sent(const struct plan *p, enum axis a) { return p->role[0].comm[a].bytes; }

enum { ONCE = 2 * 64 * 256 }; /* embedding and head are read in one phase: zero 3 gathers them once, the rest twice */

/* One microbatch, equal widths: 2, 2, 2, 3 times psi (N-1)/N; so zero 3 sends 1.5 times what zero 0 does, and no more.
 * What is left are the sums of losses and norms. */
static void test_zero3_sends_half_more(void **state)
{
    (void)state;
    static const char *const keys[] = {"model.hidden=64", "model.heads=4",  "model.ffn=128",
                                       "model.vocab=256", "batch.global=4", NULL};
    static const int64_t times[4] = {2, 2, 2, 3};
    for (int shard = 2; shard <= 4; shard += 2)
        for (int zero = 0; zero <= 3; zero++) {
            struct made m;
            make(&m, keys);
            m.c.batch.micro = 4 / shard;
            struct plan p = planned(&m, 1, shard, zero);
            int64_t elements = times[zero] * p.params - (zero == 3 ? ONCE : 0);
            int64_t small = sent(&p, AXIS_DP_SHARD) - 4 * elements * (shard - 1) / shard;
            if (small < 0 || small > 512) fail_msg("dp%d zero%d: %lld bytes too many", shard, zero, (long long)small);
            plan_free(&p);
            arena_free(m.arena);
        }
}

/* Every row of exchange.h's table, and replicas: the pieces, once a step, at every level. */
static void test_traffic(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++) {
        int zero = i % 4, replicate = i / 4 % 2 + 1, step = i / 8 % 2, narrow = i / 16;
        const char *const keys[] = {"model.hidden=64",
                                    "model.heads=4",
                                    "model.ffn=128",
                                    "model.vocab=256",
                                    "batch.global=24",
                                    step ? "parallel.reduce=step" : "parallel.reduce=microbatch",
                                    narrow ? "precision.grad=bf16" : "precision.recipe=bf16",
                                    narrow ? "precision.recipe=bf16" : NULL};
        struct made m;
        make(&m, keys);
        struct plan p = planned(&m, replicate, 4, zero);
        int64_t k = p.microbatches, g = (narrow ? 2 : 4) * p.params, w = 2 * p.params, w3 = k * (2 * w - 2 * ONCE);
        int64_t once[4] = {2 * g, g + w, g + w, g + w3}, each[4] = {(k + 1) * g, k * g + w, k * g + w, k * g + w3};
        assert_int_equal(k, 6 / replicate);
        int64_t small = sent(&p, AXIS_DP_SHARD) - (step ? once : each)[zero] * 3 / 4;
        if (small < 0 || small > 512) fail_msg("case %d: %lld bytes too many over dp_shard", i, (long long)small);
        small = sent(&p, AXIS_DP_REPLICATE) - (replicate == 2 ? 2 * (g / 4) / 2 : 0);
        if (small < 0 || small > 512) fail_msg("case %d: %lld bytes too many over dp_replicate", i, (long long)small);
        plan_free(&p);
        arena_free(m.arena);
    }
}

/* ---- planned = counted ---- */

static void check_counts(const char *const *keys, int replicate, int shard, int zero)
{
    struct made m;
    struct err e = {0};
    make(&m, keys);
    struct plan p = planned(&m, replicate, shard, zero);
    struct counting x = {.c = &m.c};
    struct comm_config cc = config_comm(&m.c);
    if (comm_run_local(p.n_ranks, &cc, count, &x, &e)) fail_msg("%s", e.text);
    for (int c = 0; c < MEM_N; c++) assert_int_equal(x.bytes[c], p.role[0].bytes[c]);
    for (int a = 0; a < AXIS_N; a++) {
        assert_int_equal(x.sent[a].bytes, p.role[0].comm[a].bytes);
        assert_int_equal(x.sent[a].messages, p.role[0].comm[a].messages);
    }
    plan_free(&p);
    arena_free(m.arena);
}

static void test_planned_is_counted(void **state)
{
    (void)state;
    static const char *const exact[MAX_KEYS] = {"numerics.exact_order=true", "batch.global=24"};
    for (int zero = 0; zero <= 3; zero++) {
        for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
            check_counts(bits[i], 1, 3, zero);
            check_counts(bits[i], 2, 2, zero);
            check_counts(bits[i], 3, 1, zero);
        }
        check_counts(exact, 1, 4, zero);
        check_counts(exact, 4, 2, zero);
        check_counts(exact, 1, 8, zero);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zero_levels_have_the_same_bits),
        cmocka_unit_test(test_state_bytes),
        cmocka_unit_test(test_zero3_sends_half_more),
        cmocka_unit_test(test_traffic),
        cmocka_unit_test(test_planned_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
