/* SPDX-License-Identifier: Apache-2.0 */
/* test_attention.c: blocked attention against the reference: every build with every panel format this CPU can run
 * (the simulated AMX panels too), head sizes that fit no vector, sequences around block edges, grouped heads, windows,
 * documents, dropout, strided rows; gradients in all ways to accumulate; teams of 1 to 3 to the bit. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "kernel/cache_runs.h"
#include "kernel/cpu/build.h"
#include "kernel/cpu/tile/tile_rows.h"
#include "kernel/cpuid.h"
#include "kernel/vec_call.h"
#include "sanitized.h"

static const struct step_info step = {.seed = 5, .step = 2, .first_token = 0, .training = true};

/* The build and panels under test; the slot's functions have no room for them. */
static const struct attention_build *build;
static enum isa build_needs;
static const struct tile_ops *ops;
static void run_build(const struct kernel_call *c)
{
    if (c->op == OP_ATTENTION_CACHED && c->in[0].n[0] <= ATTN_FEW) build->few(c);
    else if (c->op == OP_ATTENTION_CACHED) build->cached(c, ops);
    else if (c->phase == KERNEL_FWD) build->fwd(c, ops);
    else build->bwd(c, ops);
}
static size_t scratch_build(const struct kernel_call *c, int n_threads)
{
    if (c->op == OP_ATTENTION_CACHED && c->in[0].n[0] <= ATTN_FEW) return build->few_scratch(c, n_threads);
    return build->scratch(c, ops, n_threads);
}
static const struct kernel_slot slot = {.run = run_build, .scratch = scratch_build};

/* Products of heads, queries, keys and head size that simulated tiles do where a sanitizer watches each of their
 * bytes. */
enum { SIMULATED_WORK = SANITIZED ? 2000000 : INT32_MAX };

/* Combination i of build and panels for dtype t; false past the end. *usable: this CPU can run it, in reasonable time
 * for so much work. */
static bool combination(int i, enum dtype t, double work, bool *usable)
{
    int n_builds = 0;
    while (cpu_build_at(n_builds)) n_builds++;
    if (!n_builds || !tile_ops_at(i / n_builds)) return false;
    const struct cpu_build *b = cpu_build_at(i % n_builds);
    ops = tile_ops_at(i / n_builds);
    build = b->attention;
    build_needs = b->needs;
    bool simulated = !strncmp(ops->name, "amx-sim", 7);
    bool fast =
        !simulated || (!TUTTI_EMULATED && work <= SIMULATED_WORK); /* by an emulated processor they take minutes */
    *usable = fast && cpu_isa() >= b->needs && cpu_isa() >= ops->needs && (ops->panel == DT_F32 || t == DT_BF16);
    return true;
}

struct variant {
    const char *name;
    int batch, seq, heads, kv_heads, head_dim;
    bool causal;
    int window, docs; /* docs: about how many tokens in one; 0: none */
    float dropout;
    int prefix; /* tokens at the front of each document that see each other */
};
static const struct variant variants[] = {
    {"one token", 1, 1, 1, 1, 4, true, 0, 0, 0, 0},
    {"odd head", 2, 33, 2, 1, 6, true, 0, 0, 0, 0},
    {"block edges", 1, 129, 1, 1, 16, true, 0, 0, 0, 0},
    {"many blocks", 1, 300, 2, 2, 64, true, 0, 0, 0, 0},
    {"grouped", 2, 70, 6, 2, 40, true, 0, 0, 0, 0},
    {"wide head", 1, 65, 1, 1, 96, true, 0, 0, 0, 0},
    {"head 80", 1, 50, 2, 2, 80, true, 0, 0, 0, 0},
    {"not causal", 1, 150, 2, 1, 20, false, 0, 0, 0, 0},
    {"window", 1, 400, 1, 1, 24, true, 37, 0, 0, 0},
    {"window of one", 1, 70, 1, 1, 8, true, 1, 0, 0, 0},
    {"documents", 2, 200, 2, 2, 24, true, 0, 30, 0, 0},
    {"documents in order", 1, 400, 2, 1, 19, true, 0, 90, 0,
     0}, /* queries that see nothing in a block that others see */
    {"documents both ways", 1, 290, 1, 1, 10, false, 0, 70, 0, 0},
    {"dropout", 2, 81, 2, 2, 24, true, 0, 0, 0.3f, 0},
    {"all of it", 1, 260, 4, 2, 34, true, 90, 60, 0.1f, 0},
    {"prefix", 1, 300, 2, 1, 20, true, 0, 1000, 0, 140}, /* over blocks of queries, and into later blocks of keys */
    {"prefixes", 2, 270, 2, 2, 17, true, 0, 100, 0.1f, 33},
};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

static struct kernel_call call_of(const struct variant *v, enum dtype t)
{
    struct kernel_call c = {.op = OP_ATTENTION, .phase = KERNEL_FWD, .step = &step, .n_out = 2};
    c.n_in = v->docs ? 4 : 3;
    c.at = ATTRS(attention, .heads = v->heads, .kv_heads = v->kv_heads, .head_dim = v->head_dim, .batch = v->batch,
                 .seq = v->seq, .scale = 1.0f / sqrtf((float)v->head_dim), .causal = v->causal, .window = v->window,
                 .prefix = v->prefix > 0, .dropout = {v->dropout, 77});
    int64_t rows = (int64_t)v->batch * v->seq;
    for (int i = 0; i < 3; i++) {
        c.in[i] = (struct view){.dtype = t, .nd = 2, .n = {rows, (int64_t)(i ? v->kv_heads : v->heads) * v->head_dim}};
        view_alloc(&c.in[i], 7 + i);
        view_random(&c.in[i], 100 + (uint64_t)i, 1.5);
    }
    if (v->docs) {
        c.in[3] = (struct view){.dtype = DT_I32, .nd = 1, .n = {rows}};
        view_alloc(&c.in[3], 0);
        int32_t id = 0;
        for (int64_t r = 0, begin = 0; r < rows; r++) {
            bool next = rng_uniform(9, 1, (uint64_t)r) < 1.0 / v->docs;
            if (next) id = (id + 1) % (v->docs > 80 ? 80 : 3); /* short ones come back: equal is what counts */
            begin = next || r % v->seq == 0 ? r : begin;
            ((int32_t *)c.in[3].p)[r] =
                v->prefix ? 2 * id + ((r - begin) % 200 < v->prefix) : id; /* behind others, too */
        }
    }
    const char *why = op_row(OP_ATTENTION)->infer(&c.at, c.n_in, c.in, c.out);
    if (why) fail_msg("%s", why);
    view_alloc(&c.out[0], 3);
    view_alloc(&c.out[1], 1);
    return c;
}

static double work_of(const struct kernel_call *c)
{
    const struct attention_attrs *at = at_attention(&c->at);
    double queries = (double)c->in[0].n[0] / (at->batch ? at->batch : 1),
           keys = (double)c->in[c->op == OP_ATTENTION_CACHED ? 4 : 1].n[0];
    return queries * keys * at->heads * at->head_dim;
}

/* A sanitizer sees every other variant, each with every fourth combination, other ones each time; the normal build runs
 * all with all. */
enum { VARIANT_STEP = SANITIZED ? 2 : 1, CASE_SHARE = SANITIZED ? 4 : 1 };

static void compare(const struct kernel_call *c, const struct variant *v, enum dtype t)
{
    bool usable;
    int n_run = 0, first = v->head_dim + v->seq + (int)c->phase + (int)t;
    struct kernel_call want = call_reference(c);
    for (int i = 0; combination(i, t, work_of(c), &usable); i++) {
        if (!usable || (i + first) % CASE_SHARE) continue;
        n_run++;
        double tol = t == DT_BF16 ? (ops->panel == DT_BF16 ? 0.02 : 0.01) : 2e-5;
        if (c->phase != KERNEL_FWD) tol *= 3;
        double e = call_compare(c, &want, &slot, tol, t == DT_BF16 ? 0x1p-7 : 2e-5);
        if (!(e <= 1))
            fail_msg("%s, %s, panels %s, build %s, phase %d: error %.3g of the tolerance", v->name, dtype_name(t),
                     ops->name, isa_name(build_needs), (int)c->phase, e);
    }
    call_free(&want);
    if (cpu_isa() > ISA_REF && CASE_SHARE == 1) assert_true(n_run > 0);
}

static void forward_matches_reference(void **state)
{
    (void)state;
    for (int i = 0; i < N_VARIANTS; i += VARIANT_STEP)
        for (int t = DT_F32; t <= DT_BF16; t++) {
            struct kernel_call c = call_of(&variants[i], t);
            compare(&c, &variants[i], t);
            call_free(&c);
        }
}

static void backward_matches_reference(void **state)
{
    (void)state;
    for (int i = 0; i < N_VARIANTS; i += VARIANT_STEP)
        for (int t = DT_F32; t <= DT_BF16; t++) {
            struct kernel_call c = call_of(&variants[i], t);
            slot_run(&kernel_family_ref.slot[OP_ATTENTION][KERNEL_FWD], &c, NULL);
            call_backward(&c, KERNEL_BWD_IN, i % ACC_N, 5);
            compare(&c, &variants[i], t);
            call_free(&c);
        }
}

/* A query that sees nothing in a block that others see, at many scales: hidden scores must not meet each other. */
static void hidden_scores_stay_hidden_at_any_scale(void **state)
{
    (void)state;
    struct variant v = {"two documents", 1, 256, 1, 1, 8, true, 0, 90, 0, 0};
    struct kernel_call c = call_of(&v, DT_F32);
    for (int i = 0; i < 256; i++) ((int32_t *)c.in[3].p)[i] = i >= 200; /* the block of queries 192.. holds both */
    for (int s = 0; s < 12; s++) {
        edit_attention(&c.at)->scale = 0.03f * (float)(s * s + 1);
        compare(&c, &v, DT_F32);
    }
    call_free(&c);
}

/* Scores of several hundred: exponentials must neither overflow nor lose the largest. */
static void large_scores_stay_finite(void **state)
{
    (void)state;
    struct variant v = {"large scores", 1, 200, 1, 1, 16, true, 0, 0, 0, 0};
    struct kernel_call c = call_of(&v, DT_F32);
    view_random(&c.in[0], 100, 30);
    view_random(&c.in[1], 101, 30);
    struct kernel_call want = call_reference(&c);
    bool usable;
    for (int i = 0; combination(i, DT_F32, work_of(&c), &usable); i++)
        if (usable) assert_true(call_compare(&c, &want, &slot, 2e-3, 1e-4) <= 1); /* scores of 1000 err by 1e-4 */
    call_free(&want);
    call_free(&c);
}

/* A cache filled by `first` tokens, then n more in one call: outputs and cache as ref leaves them. */
static void cached_case(enum dtype t, int64_t first, int64_t n, int heads, int kv_heads, int head_dim, int window,
                        bool both)
{
    struct kernel_call c = {.op = OP_ATTENTION_CACHED, .phase = KERNEL_FWD, .step = &step, .n_in = 6, .n_out = 1};
    c.at = ATTRS(attention, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim, .scale = 0.3f, .causal = true,
                 .window = window);
    int64_t pages = (first + n + 15) / 16;
    for (int i = 0; i < 6; i++) {
        int64_t cols = (int64_t)(i ? kv_heads : heads) * head_dim;
        c.in[i] = (struct view){.dtype = t, .nd = 2, .n = {i < 4 ? n : 16 * pages + 32, cols}};
        if (i == 3) c.in[i] = (struct view){.dtype = DT_I32, .nd = 2, .n = {1, RUN_PAGES + pages}};
        view_alloc(&c.in[i], 2 + i);
        if (i != 3) view_random(&c.in[i], 200 + (uint64_t)i, 1);
    }
    int32_t *run = c.in[3].p;
    run[RUN_FIRST] = 0;
    run[RUN_ROWS] = (int32_t)n;
    run[RUN_PAST] = (int32_t)first;
    run[RUN_BOTH] = both;
    for (int64_t i = 0; i < pages; i++) /* in order after the first two, or backwards */
        run[RUN_PAGES + i] = (int32_t)(first % 2 ? pages + 1 - i : i + 2);
    const char *why = op_row(c.op)->infer(&c.at, c.n_in, c.in, c.out);
    if (why) fail_msg("%s", why);
    view_alloc(&c.out[0], 3);
    struct kernel_call want = call_fresh(&c);
    slot_run(&kernel_family_ref.slot[c.op][KERNEL_FWD], &want, NULL);
    bool usable;
    for (int i = 0; combination(i, t, work_of(&c), &usable); i++) {
        if (!usable) continue;
        struct kernel_call got = call_fresh(&c);
        struct team *team = team_new(1 + i % 3);
        slot_run(&slot, &got, team);
        team_free(team);
        double e = view_error(&got.out[0], &want.out[0], t == DT_BF16 ? 0.02 : 2e-5, t == DT_BF16 ? 0x1p-7 : 2e-5);
        if (!(e <= 1) || !view_guarded(&got.out[0]))
            fail_msg("cached %s first %d n %d A %d panels %s: error %.3g of the tolerance", dtype_name(t), (int)first,
                     (int)n, head_dim, ops->name, e);
        assert_true(view_same_bits(&got.in[4], &want.in[4]) && view_same_bits(&got.in[5], &want.in[5]));
        call_free(&got);
    }
    call_free(&want);
    call_free(&c);
}

static void cached_matches_reference(void **state)
{
    (void)state;
    for (int t = DT_F32; t <= DT_BF16; t++) {
        cached_case(t, 0, 1, 2, 1, 6, 0, false);
        cached_case(t, 130, 1, 4, 2, 64, 0, false);
        cached_case(t, 77, 3, 3, 3, 80, 20, false);
        cached_case(t, 0, 70, 2, 2, 24, 0, false);
        cached_case(t, 150, 64, 4, 2, 34, 0, false);
        cached_case(t, 90, 129, 1, 1, 16, 50, false);
        cached_case(t, 0, 5, 2, 1, 12, 0, true); /* prompts that see themselves in both directions, short and long */
        cached_case(t, 0, 141, 4, 2, 20, 0, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_matches_reference),
        cmocka_unit_test(backward_matches_reference),
        cmocka_unit_test(hidden_scores_stay_hidden_at_any_scale),
        cmocka_unit_test(large_scores_stay_finite),
        cmocka_unit_test(cached_matches_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
