/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* What is not trained, and adapters beside it: every layout equals one rank, the bytes planned are those allocated and
 * sent, and frozen parameters have nothing but their weights, to the byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "families.h"
#include "plan/plan.h"
#include "sanitized.h"
#include "verify/thinned.h"
#include "verify/layouts.h"
#include "verify/verify.h"

enum { MAX_KEYS = 16 };

static int resolve(struct config *c, struct arena *a, const char *const *keys, struct err *e)
{
    static const char *const toy[] = {"model.layers=2",     "model.hidden=36",      "model.heads=3",
                                      "model.ffn=26",       "model.vocab=67",       "model.seq_len=10",
                                      "run.threads=1",      "comm.timeout_s=60",    "batch.global=4",
                                      "batch.micro=2",      "parallel.dp_shard=-1", "optimizer.lr=1e-3",
                                      "optimizer.eps=1e-5", "precision.recipe=fp32"};
    char *all[64];
    int k = 0;
    struct conf *f;
    for (size_t i = 0; i < sizeof toy / sizeof *toy; i++) all[k++] = arena_strdup(a, toy[i]);
    for (int i = 0; i < MAX_KEYS && keys[i]; i++) all[k++] = arena_strdup(a, keys[i]);
    int rc = config_load(c, &f, a, NULL, all, k, e);
    return rc ? rc : config_resolve(c, f, 0, strstr(keys[1] ? keys[1] : "", "servers") ? 2 : 1, e);
}

static const char *const cases[][MAX_KEYS] = {
    {"train.freeze=[embed.token, layers.0.*, '*norm*']", "model.kv_heads=1"},
    {"adapter.kind=lora", "adapter.rank=3", "adapter.targets=[q, v, o, gate, down, head]", "precision.grad=bf16",
     "precision.recipe=bf16"},
    {"adapter.kind=lora", "adapter.rank=2", "adapter.stabilised=true",
     "adapter.targets=[k, up, down, '*.experts.*.gate', router]", "train.only=['*norm*']", "model.family=mixtral",
     "model.kv_heads=1", "model.moe.experts=5"},
    {"adapter.kind=lora", "adapter.targets=[layers.1.*]", "model.family=gpt2", "model.tie_embeddings=true",
     "model.dropout=0.1", "memory.recompute=full"},
    {"adapter.kind=lora", "adapter.rank=3", "adapter.base=nf4", "adapter.targets=[q, o, gate, down]", "model.heads=6",
     "model.kv_heads=3", "model.head_dim=32", "model.ffn=192", "model.seq_len=6", "precision.recipe=bf16"},
    {"adapter.kind=lora", "adapter.rank=2", "adapter.base=mxfp4", "adapter.targets=[k, '*.experts.*.up', down]",
     "train.only=['*norm*']", "model.family=mixtral", "model.kv_heads=1", "model.head_dim=32", "model.ffn=96",
     "model.moe.experts=3", "model.seq_len=6"},
    {"adapter.kind=dora", "adapter.rank=3", "adapter.targets=[q, v, o, gate, down, head]", "model.kv_heads=1",
     "optimizer.lr=3e-2"},
    {"adapter.kind=dora", "adapter.targets=[layers.1.*]", "model.family=gpt2", "train.only=['*.bias']",
     "memory.recompute=full", "precision.recipe=bf16"},
    {"adapter.kind=dora", "adapter.rank=2", "adapter.base=mxfp4", "adapter.targets=[k, v, o, up]", "model.heads=6",
     "model.kv_heads=3", "model.head_dim=32", "model.ffn=192", "model.seq_len=6", "precision.recipe=bf16"},
};

/* The tower's names begin with another word than what its layers ask for. */
#define LOOKS                                                                                                          \
    "model.family=llava", "model.kv_heads=1", "model.head_dim=6", "model.vision.layers=2", "model.vision.hidden=15",   \
        "model.vision.heads=3", "model.vision.ffn=14", "model.vision.image_size=6", "model.vision.patch_size=3",       \
        "data.pack=padded"
static const char *const pictures[][MAX_KEYS] = {
    {"adapter.kind=lora", "adapter.rank=3", LOOKS, "train.only=['projector.*']"},
    {"adapter.kind=dora", "adapter.rank=2", "adapter.targets=['vision.*', 'projector.*', o]", LOOKS},
};

static void test_pictures(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i += CASE_STRIDE) {
        struct arena *a = arena_new();
        struct config c;
        struct verify v;
        struct err e = {0};
        struct str out = {0};
        if (resolve(&c, a, pictures[i], &e)) fail_msg("case %zu: %s", i, e.text);
        if (verify_run(&v, &c, 2, VERIFY_TP | VERIFY_DP, 2, &e)) fail_msg("case %zu: %s", i, e.text);
        verify_print(&v, &out);
        if (!v.ok) fail_msg("case %zu:\n%s", i, str_text(&out));
        str_free(&out);
        verify_free(&v);
        arena_free(a);
    }
}

/* Beside every matrix of every family, or, with lengths, of all but experts. */
static void test_every_family_has_them(void **state)
{
    (void)state;
    for (int i = 0; i < N_FAMILIES; i++)
        for (int lengths = 0; lengths < 2; lengths++) {
            struct arena *a = arena_new();
            char *keys[MAX_KEYS] = {lengths ? "adapter.kind=dora" : "adapter.kind=lora", "adapter.targets=['*']"};
            add_family(keys, 2, MAX_KEYS, a, families[i]);
            struct config c;
            struct plan p;
            struct err e = {0};
            int rc = resolve(&c, a, (const char *const *)keys, &e);
            bool experts = c.model.moe.experts > 0;
            if (!rc) rc = plan_make(&p, &c, &e);
            if (lengths && experts ? !strstr(e.text, "matrices of experts") : rc)
                fail_msg("%s, %s: %s", families[i], keys[0], e.text);
            if (!rc) plan_free(&p);
            arena_free(a);
        }
}

static void test_every_layout_equals_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += CASE_STRIDE) {
        if (!drawn_half(i, CASE_STRIDE)) continue; /* every day half of them */
        struct arena *a = arena_new();
        struct config c;
        struct verify v;
        struct err e = {0};
        struct str out = {0};
        if (resolve(&c, a, cases[i], &e)) fail_msg("case %zu: %s", i, e.text);
        if (thinned_run(&v, &c, 3, VERIFY_ALL, 3, (int)i / 2, (int)drawn_number(sizeof cases / sizeof *cases, 2), &e))
            fail_msg("case %zu: %s", i, e.text);
        verify_print(&v, &out);
        if (!v.ok) fail_msg("case %zu:\n%s", i, str_text(&out));
        assert_non_null(strstr(str_text(&out), "zero3"));
        assert_non_null(strstr(str_text(&out), "tp3+seq"));
        assert_non_null(strstr(str_text(&out), "pp2"));
        str_free(&out);
        verify_free(&v);
        arena_free(a);
    }
}

/* ---- bytes ---- */
static struct plan planned(const char *const *keys, int shard, int zero, struct arena *a)
{
    struct config c;
    struct plan p;
    struct err e = {0};
    if (resolve(&c, a, keys, &e)) fail_msg("%s", e.text);
    c.parallel.dp_shard = c.parallel.ranks_here = shard;
    c.parallel.zero = zero;
    if (plan_make(&p, &c, &e)) fail_msg("%s", e.text);
    return p;
}

/* One layer of two is trained: all else has 2 bytes for each parameter, shared out at zero 3, and nothing of it is
 * sent. */
static void test_frozen_parameters_have_their_weights_only(void **state)
{
    (void)state;
    static const char *const keys[] = {"train.only=[layers.1.attn.*]",
                                       "model.hidden=32",
                                       "model.heads=4",
                                       "model.ffn=64",
                                       "model.vocab=128",
                                       "precision.recipe=bf16",
                                       NULL};
    const int64_t trained = 4 * 32 * 32;
    for (int zero = 0; zero <= 3; zero++)
        for (int n = 1; n <= 2; n++) {
            struct arena *a = arena_new();
            struct plan p = planned(keys, n, zero, a);
            const size_t *b = p.role[0].bytes;
            assert_int_equal(b[MEM_PARAM], 2 * p.params / (zero == 3 ? n : 1));
            assert_int_equal(b[MEM_MASTER], 4 * trained / (zero >= 1 ? n : 1));
            assert_int_equal(b[MEM_GRAD], 4 * trained / (zero >= 2 ? n : 1));
            assert_int_equal(b[MEM_OPTIMIZER], 8 * trained / (zero >= 1 ? n : 1));
            int64_t sent = p.role[0].comm[AXIS_DP_SHARD].bytes, most = (4 + 4 + 4) * trained * 4;
            if (zero < 3 && n > 1 && sent > most) fail_msg("zero %d sends %lld bytes", zero, (long long)sent);
            plan_free(&p);
            arena_free(a);
        }
}

static void check_planned(const char *const *keys)
{
    struct arena *a = arena_new();
    struct config c;
    struct verify v;
    struct layouts all;
    struct err e = {0};
    if (resolve(&c, a, keys, &e)) fail_msg("%s", e.text);
    if (verify_run(&v, &c, 2, VERIFY_ALL, 1, &e)) fail_msg("%s", e.text);
    layouts_enumerate(&all, &c, 2);
    assert_int_equal(all.n, v.n);
    for (int i = 0; i < v.n; i++) {
        struct plan p;
        int64_t sent = 0;
        layouts_apply(&all.at[i], &c);
        if (plan_make(&p, &c, &e)) fail_msg("%s: %s", v.layout[i].layout, e.text);
        const struct plan_rank *first = p.role;
        while (first->rank != 0) first++;
        for (int x = 0; x < AXIS_N; x++) sent += first->comm[x].bytes;
        if (v.layout[i].peak_bytes != (int64_t)first->peak_bytes || v.layout[i].comm_bytes != sent)
            fail_msg("%s: %lld bytes allocated, %zu planned; %lld sent, %lld planned", v.layout[i].layout,
                     (long long)v.layout[i].peak_bytes, first->peak_bytes, (long long)v.layout[i].comm_bytes,
                     (long long)sent);
        plan_free(&p);
    }
    assert_true(v.n > 5);
    layouts_free(&all);
    verify_free(&v);
    arena_free(a);
}

static void test_planned_is_counted(void **state)
{
    (void)state;
    check_planned(cases[1]);
    check_planned(cases[6]);
}

/* Matrices of layers have half a byte for each number, a byte for 64 of them and 4 for 256 of these and their mean; of
 * all of them one layer's at a time has numbers. */
static void test_a_base_in_few_bits_is_small(void **state)
{
    (void)state;
    static const char *const keys[] = {"adapter.kind=lora",   "adapter.base=nf4",      "adapter.rank=2",
                                       "adapter.targets=[q]", "precision.recipe=bf16", "model.layers=3",
                                       "model.hidden=128",    "model.heads=2",         "model.kv_heads=2",
                                       "model.ffn=192",       "model.vocab=4096",      NULL};
    const int64_t square = 128 * 128, wide = 128 * 192, layer = 4 * square + 3 * wide, norms = 7 * 128,
                  table = 2 * 4096 * 128, adapters = 3 * 512;
    const int64_t groups = 3 * (4 * (1 + 1) + 3 * (2 + 1)) * 4;
    for (int zero = 0; zero <= 3; zero++)
        for (int n = 1; n <= 2; n++) {
            struct arena *a = arena_new();
            struct plan p = planned(keys, n, zero, a);
            int64_t shared = zero == 3 ? n : 1;
            int64_t want = (3 * layer / 2 + 3 * layer / 64 + 2 * (norms + table + adapters)) / shared + groups;
            assert_int_equal(p.role[0].bytes[MEM_PARAM], want);
            if (shared == 1) assert_int_equal(p.role[0].bytes[MEM_COMM] >= (size_t)(2 * (layer + 256)), 1);
            if (n == 1) assert_int_equal(p.role[0].bytes[MEM_COMM], 2 * (layer + 256));
            plan_free(&p);
            arena_free(a);
        }
}

/* ---- refusals ---- */
static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *const keys[4];
        const char *says;
    } bad[] = {
        {{"train.freeze=[layers.7.*]"}, "train.freeze: layers.7.* fits no parameter"},
        {{"train.only=['*.moe.*']"}, "train.only: *.moe.* fits no parameter"},
        {{"train.freeze=['*']"}, "nothing is left to train"},
        {{"train.freeze=[layers.0.attn.q.weight]"}, "one product makes both"},
        {{"train.freeze=[head.weight]", "parallel.servers=1"}, "parallel.servers: 0"},
        {{"adapter.kind=lora", "adapter.targets=[q_proj]"}, "adapter.targets: q_proj fits no matrix"},
        {{"adapter.kind=lora", "adapter.targets=[embed.token]"}, "fits no matrix"},
        {{"adapter.kind=lora", "adapter.targets=[]"}, "wanted names of matrices"},
        {{"adapter.kind=lora", "parallel.servers=1"}, "parallel.servers: 0"},
        {{"adapter.kind=lora", "precision.recipe=mxfp8"}, "precision.recipe: bf16"},
        {{"adapter.base=nf4"}, "adapter.kind: lora"},
        {{"adapter.kind=dora", "adapter.targets=[up]", "model.family=mixtral", "model.moe.experts=2"},
         "matrices of experts have no lengths"},
        {{"adapter.kind=lora", "adapter.base=nf4", "comm.param=bf16", "precision.recipe=fp32"}, "comm.param"},
        {{"adapter.kind=lora", "adapter.base=nf4", "memory.offload=[params]"}, "memory.offload"},
        {{"adapter.kind=lora", "adapter.base=nf4", "model.ffn=27"}, "has 27 columns"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct arena *a = arena_new();
        struct config c;
        struct plan p;
        struct err e = {0};
        int rc = resolve(&c, a, bad[i].keys, &e);
        if (!rc) rc = plan_make(&p, &c, &e);
        if (rc != ERR_REQUEST || !strstr(e.text, bad[i].says)) fail_msg("%s: %d, %s", bad[i].keys[0], rc, e.text);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_layout_equals_one_rank),
        cmocka_unit_test(test_pictures),
        cmocka_unit_test(test_every_family_has_them),
        cmocka_unit_test(test_frozen_parameters_have_their_weights_only),
        cmocka_unit_test(test_a_base_in_few_bits_is_small),
        cmocka_unit_test(test_planned_is_counted),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
