/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the table of parameters are layouts: on random meshes, for every family, what follows from them fits
 * together. */
#include "toy.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "nn/model.h"
#include "state/units.h"

enum { MESHES = 40, MOST = 48 };

static int roll(uint64_t mesh, int what, int n) { return (int)(rng_u64(7, mesh, (uint64_t)what) % (uint64_t)n); }

/* A mesh that ranks_init could make: ep x etp divides what is folded, etp divides tp. */
static struct mesh random_mesh(uint64_t seed)
{
    for (int try = 0;; try += 16) {
        int d[AXIS_N], etp[] = {1, 1, 2, 3};
        for (int a = 0; a < AXIS_N; a++) d[a] = 1 + roll(seed, try + a, 3);
        d[AXIS_TP] = 1 + roll(seed, try + 9, 4);
        d[AXIS_ETP] = roll(seed, try + 10, 2) ? d[AXIS_TP] : etp[roll(seed, try + 11, 4)];
        d[AXIS_EDP] = -1;
        int n = d[AXIS_PP] * d[AXIS_DP_REPLICATE] * d[AXIS_DP_SHARD] * d[AXIS_CP] * d[AXIS_TP];
        if (n > MOST || d[AXIS_TP] % d[AXIS_ETP] ||
            d[AXIS_DP_SHARD] * d[AXIS_CP] * d[AXIS_TP] % (d[AXIS_EP] * d[AXIS_ETP]))
            continue;
        struct mesh m;
        struct err e;
        if (mesh_init(&m, n, d, &e)) fail_msg("%s", e.text);
        return m;
    }
}

static struct model_config model(uint64_t seed, enum model_family f)
{
    struct model_config c = toy_model(f);
    c.heads = 6;
    if (f == MODEL_T5) c.encoder_layers = 1, c.encoder_len = 10, c.buckets = 8, c.distance = 9;
    c.kv_heads = f == MODEL_DEEPSEEK || f == MODEL_VIT || f == MODEL_BERT || f == MODEL_T5
                     ? 6
                     : (int[]){1, 2, 3, 6}[roll(seed, 14, 4)];
    c.tie_embeddings = f != MODEL_VIT && roll(seed, 15, 2);
    return c;
}

/* Stages hold layers in turn; what is in no layer, the first and the last. */
static void on_stages(struct param_table *t, int pp)
{
    for (int i = 0; i < t->n && pp > 1; i++) {
        struct layout *l = &t->p[i].layout;
        *l = t->p[i].layer < 0 ? layout_hold_on(*l, (int[]){0, pp - 1}, 2)
                               : layout_hold_on(*l, (int[]){t->p[i].layer % pp}, 1);
        assert_int_equal(layout_check(l, NULL), OK);
    }
}

/* Adds what a rank's optimizer steps and counts to how often each element is. */
static void count(const struct param_table *t, const struct units *u, uint8_t **times)
{
    for (int i = 0; i < t->n; i++) {
        const struct param *p = &t->p[i];
        const struct piece *q = &u->piece[i];
        assert_true(q->n == 0 || (q->lo >= 0 && q->lo + q->n <= p->held));
        if (!p->counted || !q->n) continue;
        struct shape n = shape_of(p->nd, p->n);
        struct region whole = region_whole(&n),
                      mine = param_rows(p, q->lo / param_row_numel(p), q->n / param_row_numel(p));
        struct region_run run;
        for (bool more = region_run_first(&run, &mine, &mine, &whole); more; more = region_run_next(&run))
            for (int64_t k = 0; k < run.n; k++) times[i][run.b + k]++;
    }
}

/* Query heads are where the key heads are that they read. */
static void check_heads(const struct model_config *c, const struct param_table *t, int tp)
{
    if (c->family == MODEL_DEEPSEEK || model_scans(c) || c->kv_heads < tp) return;
    const struct param *q = &t->p[param_find(t, "layers.0.attn.q.weight")],
                       *k = &t->p[param_find(t, "layers.0.attn.k.weight")];
    int64_t group = c->heads / c->kv_heads;
    assert_int_equal(q->held != 0, k->held != 0);
    if (!q->held) return;
    assert_int_equal(q->ln[0] % (c->head_dim * group), 0);
    assert_int_equal(q->lo[0], k->lo[0] * group);
    assert_int_equal(q->ln[0], k->ln[0] * group);
}

/* In every replica each element is stepped and counted by one rank; pieces of a group are what its members say of each
 * other. */
static void test_every_element_once(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < MESHES; seed++) {
        struct mesh m = random_mesh(seed);
        struct model_config c = model(seed, (enum model_family)(seed % MODEL_N));
        struct param_table t = {0};
        struct par first = par_at(&m, 0);
        int replicas = m.size[AXIS_DP_REPLICATE];
        model_declare(&c, &first, &t);
        on_stages(&t, m.size[AXIS_PP]);
        uint8_t **times = xcalloc((size_t)t.n, sizeof *times);
        for (int i = 0; i < t.n; i++) times[i] = xcalloc(to_size(t.p[i].numel), 1);
        int64_t *counts = xcalloc(MOST, sizeof *counts), seen = 0;
        for (int r = 0; r < m.n_ranks; r++) {
            struct units u;
            param_place(&t, r);
            units_init(&u, &t, true);
            count(&t, &u, times);
            check_heads(&c, &t, m.size[AXIS_TP]);
            for (int i = 0; i < t.n; i++) {
                int n = t.p[i].expert ? u.n_expert_ranks : u.n_ranks;
                int64_t sum = 0, mine = 0;
                units_counts(&u, i, counts);
                for (int k = 0; k < n; k++) sum += counts[k], mine |= counts[k] == u.piece[i].n;
                assert_int_equal(sum, t.p[i].held);
                assert_true(mine);
                seen += sum;
            }
            units_fini(&u);
        }
        for (int i = 0; i < t.n; i++) {
            for (int64_t k = 0; k < t.p[i].numel; k++)
                if (times[i][k] != replicas) {
                    struct str mesh = {0};
                    mesh_print(&m, true, &mesh);
                    fail_msg("%s of %s, %s: element %lld is stepped %d times in %d replicas", t.p[i].name,
                             model_family_name(c.family), str_text(&mesh), (long long)k, times[i][k], replicas);
                }
            xfree(times[i]);
        }
        assert_true(seen > 0);
        xfree(times);
        xfree(counts);
        param_table_free(&t);
    }
}

/* Experts' letters: as the MLP's where etp is all of tp; else R along tp, and along etp what is cut there. */
static void test_types_of_experts(void **state)
{
    (void)state;
    static const struct {
        int tp, ep, etp;
        const char *down;
        bool expert;
    } rows[] = {{1, 1, 1, "dp_replicate:R dp_shard:R cp:R tp:S1 ep:S0", false},
                {2, 1, 2, "dp_replicate:R dp_shard:R cp:R tp:S1 ep:S0", false},
                {2, 2, 2, "dp_replicate:R dp_shard:R cp:R tp:S1 ep:S0", true},
                {2, 2, 1, "dp_replicate:R dp_shard:R cp:R tp:R ep:S0", true},
                {4, 2, 2, "dp_replicate:R dp_shard:R cp:R tp:R ep:S0 etp:S1", true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_config c = toy_model(MODEL_MIXTRAL);
        struct mesh m;
        struct param_table t = {0};
        char type[128];
        if (mesh_init(&m, 8, (int[AXIS_N]){1, 1, -1, 1, rows[i].tp, -1, rows[i].ep, rows[i].etp}, NULL)) fail();
        struct par par = par_at(&m, 0);
        model_declare(&c, &par, &t);
        const struct param *p = &t.p[param_find(&t, "layers.0.moe.experts.0.down.weight")];
        assert_string_equal(spmd_print(type, p->type), rows[i].down);
        assert_int_equal(p->expert, rows[i].expert);
        param_table_free(&t);
    }
}

/* What an optimizer takes a parameter to be follows from its name: the filters of a convolution have two dims and are
 * no matrix. */
static enum param_group group_by_name(const struct param *p)
{
    static const char *const outside[] = {"embed.", "vision.embed.", "head.", "score."};
    if (p->nd != 2 || strstr(p->name, ".ssm.conv_")) return PARAM_VECTORS;
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        if (str_starts(p->name, outside[i])) return PARAM_EMBEDDINGS;
    return PARAM_MATRICES;
}

static void test_groups(void **state)
{
    (void)state;
    int filters = 0, met[PARAM_GROUPS] = {0};
    for (int f = 0; f < MODEL_N; f++) {
        struct model_config c = model((uint64_t)f, (enum model_family)f);
        struct mesh m = mesh_single();
        struct param_table t = {0};
        struct par par = par_at(&m, 0);
        model_declare(&c, &par, &t);
        for (int i = 0; i < t.n; i++) {
            const struct param *p = &t.p[i];
            if (p->group != group_by_name(p))
                fail_msg("%s of %s is of group %d", p->name, model_family_name(c.family), (int)p->group);
            filters += strstr(p->name, ".ssm.conv_") && p->nd == 2;
            met[p->group]++;
        }
        param_table_free(&t);
    }
    assert_true(filters >= 6 && met[PARAM_MATRICES] && met[PARAM_EMBEDDINGS] && met[PARAM_VECTORS]);
}

/* LoRA (https://arxiv.org/abs/2106.09685, 4.1): alpha / r; rsLoRA (https://arxiv.org/abs/2312.03732): alpha / sqrt(r).
 * One rank and many ranks are wrong alike where this is. */
static void test_adapters_are_added_so_many_times(void **state)
{
    (void)state;
    struct adapter a = {.rank = 9, .alpha = 18};
    assert_true(model_adapter_times(&a) == 2);
    a.stabilised = true;
    assert_true(model_adapter_times(&a) == 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_element_once),
                                       cmocka_unit_test(test_types_of_experts), cmocka_unit_test(test_groups),
                                       cmocka_unit_test(test_adapters_are_added_so_many_times)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
