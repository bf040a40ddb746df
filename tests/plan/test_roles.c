/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks a plan calls alike: every rank is planned by itself, and is what its role says, to the byte; what a role
 * is said to be is what its ranks are. The text fits 100 columns and names sizes and work with their units. */
#include "toy.h"

#include "base/json.h"
#include "plan/plan.h"

struct planned {
    struct arena *arena;
    struct config c;
    struct plan p;
};

static void plan_of(struct planned *x, int n_ranks, const char *const *keys)
{
    struct conf *f;
    struct err e = {0};
    char *copy[40];
    int n = 0;
    x->arena = arena_new();
    for (; keys[n]; n++) copy[n] = arena_strdup(x->arena, keys[n]);
    if (config_load(&x->c, &f, x->arena, NULL, copy, n, &e) || config_resolve(&x->c, f, 0, n_ranks, &e))
        fail_msg("%s", e.text);
    if (plan_make(&x->p, &x->c, &e)) fail_msg("%s", e.text);
}

static void done(struct planned *x)
{
    plan_free(&x->p);
    arena_free(x->arena);
}

/* Tiny, and nothing comes out even but heads. */
#define ODD                                                                                                            \
    "model.vocab=131", "model.seq_len=32", "model.hidden=48", "model.heads=4", "model.kv_heads=4", "model.ffn=98",     \
        "batch.micro=1"

static const struct layout_row {
    int ranks, roles; /* roles 0: not counted by hand */
    const char *keys[24];
} layouts[] = {
    /* clang-format off */
    {1, 1, {ODD, "model.layers=2", "batch.global=4"}},
    {4, 1, {ODD, "model.layers=2", "batch.global=4", "parallel.zero=0"}},
    {5, 0, {ODD, "model.layers=2", "batch.global=10", "parallel.zero=1"}},
    {8, 0, {ODD, "model.layers=2", "batch.global=8", "parallel.zero=3"}},
    {8, 0, {ODD, "model.layers=2", "batch.global=8", "parallel.zero=2", "parallel.dp_replicate=2"}},
    {8, 0, {ODD, "model.layers=3", "batch.global=8", "parallel.zero=1", "parallel.tp=4"}},
    {12, 0, {ODD, "model.layers=5", "batch.global=12", "parallel.zero=1", "parallel.pp=3", "parallel.cp=2"}},
    {4, 2, {ODD, "model.layers=2", "batch.global=6", "parallel.servers=1"}},
    {6, 0, {ODD, "model.layers=2", "batch.global=6", "parallel.servers=3"}},
    {16, 0, {"model.family=mixtral", ODD, "model.moe.experts=6", "model.layers=4", "batch.global=8", "parallel.zero=3", "parallel.pp=2",
             "parallel.tp=2", "parallel.cp=2", "parallel.ep=2"}},
    {12, 0, {"model.family=mixtral", ODD, "model.moe.experts=6", "model.moe.ffn=98", "model.layers=2", "batch.global=12", "parallel.zero=1", "parallel.ep=3",
             "parallel.dp_replicate=2"}},
    {8, 0, {"model.family=mixtral", ODD, "model.moe.experts=6", "model.moe.ffn=98", "model.layers=2", "batch.global=8", "parallel.zero=2", "parallel.tp=4",
            "parallel.etp=1", "parallel.ep=2"}},
    /* 49 and 24 columns of a rank are blocks of a codec in two ways */
    {8, 0, {ODD, "model.vocab=132", "model.layers=2", "batch.global=8", "parallel.zero=3", "parallel.tp=2", "comm.grad=fp8"}},
    {8, 0, {"model.family=gpt2", ODD, "model.vocab=132", "model.layers=2", "batch.global=8", "parallel.zero=0", "parallel.tp=2", "comm.grad=bf16"}},
    {8, 0, {"model.family=t5", "model.encoder_layers=1", "model.encoder_len=16", "model.vocab=132", "model.seq_len=32", "model.hidden=32", "model.heads=2",
            "model.ffn=48", "model.layers=2", "batch.micro=1", "batch.global=8", "parallel.zero=3", "parallel.tp=2", "comm.grad=fp8", "comm.param=fp8",
            "data.spans.id=131"}},
    {8, 0, {"model.family=mixtral", ODD, "model.vocab=132", "model.moe.experts=6", "model.moe.ffn=98", "model.layers=2", "batch.global=8", "parallel.zero=2", "parallel.tp=2",
            "parallel.etp=2", "parallel.ep=2", "comm.grad=fp8"}},
    /* clang-format on */
};

static const struct plan_rank *role_of(const struct plan *p, int rank)
{
    const struct plan_rank *found = NULL;
    for (int i = 0; i < p->n_roles; i++)
        for (int k = 0; k < p->role[i].n_alike; k++)
            if (p->role[i].alike[k] == rank) {
                if (found) fail_msg("rank %d plays two roles", rank);
                found = &p->role[i];
            }
    if (!found) fail_msg("rank %d plays no role", rank);
    return found;
}

static void test_every_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const struct layout_row *l = &layouts[i];
        struct planned x;
        plan_of(&x, l->ranks, l->keys);
        if (l->roles) assert_int_equal(x.p.n_roles, l->roles);
        if (x.p.n_roles >= l->ranks && l->ranks > 3) fail_msg("layout %zu: a role for every rank", i);
        double flops = 0;
        int64_t params = 0;
        for (int r = 0; r < l->ranks; r++) {
            const struct plan_rank *role = role_of(&x.p, r);
            struct plan one = {.n_ranks = l->ranks};
            struct plan_rank got = {0};
            struct err e = {0};
            if (plan_rank(&got, &one, &x.c, r, NULL, &e)) fail_msg("%s", e.text);
            for (int m = 0; m < MEM_N && !role->about; m++)
                if (got.bytes[m] != role->bytes[m])
                    fail_msg("layout %zu, rank %d: %zu bytes of %s, its role (rank %d, %s) has %zu", i, r, got.bytes[m],
                             mem_cat_name((enum mem_cat)m), role->rank, role->what, role->bytes[m]);
            assert_int_equal(got.act_bytes_microbatch, role->act_bytes_microbatch);
            assert_true(got.flops == role->flops && got.server == role->server);
            assert_true(got.peak_bytes <= x.p.role[0].peak_bytes);
            flops += got.flops;
            params = one.params;
            plan_free(&one);
        }
        assert_int_equal(params, x.p.params);
        if (fabs(flops / x.p.flops_per_step - 1) > 1e-12)
            fail_msg("layout %zu: %.17g FLOPs by rank, %.17g", i, flops, x.p.flops_per_step);
        done(&x);
    }
}

/* No two roles of one place are the same: they would be one. */
static void test_distinct(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct planned x;
        plan_of(&x, layouts[i].ranks, layouts[i].keys);
        for (int a = 0; a < x.p.n_roles; a++)
            for (int b = 0; b < a; b++) {
                const struct plan_rank *p = &x.p.role[a], *q = &x.p.role[b];
                if (p->server == q->server && p->at.rank[AXIS_PP] == q->at.rank[AXIS_PP] &&
                    !memcmp(p->bytes, q->bytes, sizeof p->bytes) && !memcmp(p->comm, q->comm, sizeof p->comm) &&
                    p->serve_bytes == q->serve_bytes && p->flops == q->flops &&
                    p->act_bytes_microbatch == q->act_bytes_microbatch)
                    fail_msg("layout %zu: ranks %d and %d play the same role twice", i, p->rank, q->rank);
            }
        done(&x);
    }
}

static void check_columns(const char *text, int most)
{
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\n");
        if (n > (size_t)most) fail_msg("%zu columns: %.*s", n, (int)n, at);
        at += n + (at[n] == '\n');
    }
}

static void test_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct planned x;
        struct str text = {0};
        plan_of(&x, layouts[i].ranks, layouts[i].keys);
        plan_print(&x.p, &x.c, &text);
        check_columns(str_text(&text), 100);
        assert_contains(str_text(&text), "FLOP per step");
        assert_contains(str_text(&text), "FLOP per token");
        for (int r = 0; r < x.p.n_roles && x.p.n_roles > 1; r++)
            if (x.p.role[r].what[0]) assert_contains(str_text(&text), x.p.role[r].what);
        str_free(&text);
        done(&x);
    }
}

/* Stages first and last, servers, uneven shares, rows more and experts are named. */
static void test_names(void **state)
{
    (void)state;
    struct planned x;
    struct str text = {0};
    plan_of(&x, 3, (const char *const[]){ODD, "model.layers=4", "batch.global=4", "parallel.pp=3", NULL});
    assert_contains(role_of(&x.p, 0)->what, "embedding, layer");
    assert_true(!strncmp(role_of(&x.p, 1)->what, "layer", 5) && !strstr(role_of(&x.p, 1)->what, "head"));
    assert_contains(role_of(&x.p, 2)->what, ", head");
    done(&x);
    plan_of(&x, 4, (const char *const[]){ODD, "model.layers=2", "batch.global=6", "parallel.servers=1", NULL});
    assert_string_equal(role_of(&x.p, 3)->what, "server");
    assert_string_equal(role_of(&x.p, 1)->what, "worker");
    assert_true(role_of(&x.p, 0) == role_of(&x.p, 2));
    done(&x);
    plan_of(&x, 4,
            (const char *const[]){ODD, "model.layers=2", "batch.global=4", "parallel.tp=4",
                                  NULL}); /* 131 = 33 + 33 + 33 + 32, 98 = 25 + 25 + 24 + 24 */
    assert_string_equal(role_of(&x.p, 0)->what, "tp 0-1");
    assert_string_equal(role_of(&x.p, 2)->what, "tp 2");
    assert_string_equal(role_of(&x.p, 3)->what, "tp 3");
    done(&x);
    /* 131 rows of embedding and head over 5 ranks leave 1; 98 of gate and up 3; 48 of q, k, v, o, down and norms 3. */
    plan_of(&x, 5, (const char *const[]){ODD, "model.layers=1", "batch.global=5", "parallel.zero=1", NULL});
    assert_string_equal(role_of(&x.p, 0)->what, "a row more of 12 parameters");
    assert_string_equal(role_of(&x.p, 2)->what, "a row more of 10 parameters");
    assert_string_equal(role_of(&x.p, 4)->what, "");
    done(&x);
    plan_of(&x, 4,
            (const char *const[]){"model.family=mixtral", ODD, "model.moe.experts=6", "model.layers=1",
                                  "batch.global=4", "parallel.ep=2", NULL});
    plan_print(&x.p, &x.c, &text);
    assert_contains(str_text(&text), "ep 1    experts 3-5 on ranks 1, 3\n");
    str_free(&text);
    done(&x);
}

static void test_ranges(void **state)
{
    (void)state;
    static const struct {
        int n, most, ranks[12];
        const char *want;
    } cases[] = {{1, 0, {7}, "7"},
                 {4, 0, {0, 1, 2, 3}, "0-3"},
                 {4, 0, {0, 2, 4, 6}, "0-6:2"},
                 {4, 0, {0, 1, 8, 9}, "0-1, 8-9"},
                 {2, 0, {3, 9}, "3, 9"},
                 {5, 0, {0, 4, 5, 6, 7}, "0, 4-7"},
                 {8, 12, {0, 1, 8, 9, 16, 17, 24, 25}, "0-1 ... (8)"},
                 {8, 0, {0, 1, 8, 9, 16, 17, 24, 25}, "0-1, 8-9, 16-17, 24-25"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str got = {0};
        plan_ranks_text(cases[i].ranks, cases[i].n, cases[i].most, &got);
        assert_string_equal(str_text(&got), cases[i].want);
        str_free(&got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_rank), cmocka_unit_test(test_distinct),
                                       cmocka_unit_test(test_text), cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_ranges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
