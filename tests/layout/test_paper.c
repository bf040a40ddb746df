/* SPDX-License-Identifier: Apache-2.0 */
/* Dtypes, shapes, boxes, meshes and layouts: what can be said without moving anything. */
#include "layout/dtype.h"
#include "world.h"

#include <math.h>

static void test_dtypes(void **state)
{
    (void)state;
    for (int t = 0; t < DT_N; t++) {
        const struct dtype_info *i = dtype_info((enum dtype)t);
        enum dtype back;
        assert_int_equal(i->bytes, dtype_bytes((enum dtype)t));
        assert_int_equal(dtype_from_safetensors(i->safetensors, &back), 0);
        assert_int_equal(back, t);
        assert_string_equal(dtype_name((enum dtype)t), i->name);
    }
    enum dtype none;
    assert_int_equal(dtype_from_safetensors("F8", &none), -1);
}

/* The nearest binary16 by search over all of them, ties to even. */
static uint16_t nearest_f16(float f)
{
    uint16_t best = 0;
    double best_distance = INFINITY;
    for (uint32_t v = 0; v <= 0x7c00; v++) {
        double x = v == 0x7c00 ? 65536.0 : (double)f16_to_f32((uint16_t)v), d = fabs(fabs((double)f) - x);
        if (d < best_distance || (d == best_distance && !(v & 1))) {
            best = (uint16_t)v;
            best_distance = d;
        }
    }
    return (uint16_t)(best | (signbit(f) ? 0x8000 : 0));
}

static void test_f16(void **state)
{
    (void)state;
    assert_true(f16_to_f32(0x3c00) == 1.0f && f16_to_f32(0x7bff) == 65504.0f && f16_to_f32(0x0001) == 0x1p-24f);
    assert_true(isinf(f16_to_f32(0xfc00)) && isnan(f16_to_f32(0x7e01)) && isnan(f16_to_f32(f16_from_f32(NAN))));
    for (uint32_t v = 0; v < 0x10000; v++)
        if (!isnan(f16_to_f32((uint16_t)v))) assert_int_equal(f16_from_f32(f16_to_f32((uint16_t)v)), v);
    for (uint64_t i = 0; i < 300; i++) {
        float x = rng_normal(5, 1, i) * ldexpf(1.0f, (int)(rng_u32(5, 2, i) % 36) - 26);
        assert_int_equal(f16_from_f32(x), nearest_f16(x));
    }
    for (uint32_t v = 0; v < 0x7bff; v += 11) { /* exactly between two neighbours */
        float middle = (f16_to_f32((uint16_t)v) + f16_to_f32((uint16_t)(v + 1))) / 2;
        assert_int_equal(f16_from_f32(middle), v + (v & 1));
    }
    assert_true(bf16_to_f32(bf16_from_f32(1.00390625f)) == 1.0f); /* a tie goes to even */
    assert_true(bf16_to_f32(bf16_from_f32(1.01171875f)) == 1.015625f);
    assert_true(isnan(bf16_to_f32(bf16_from_f32(NAN))) && isinf(bf16_to_f32(bf16_from_f32(3.4e38f))));
}

static void test_shapes(void **state)
{
    (void)state;
    char text[128];
    struct shape s = SHAPE_OF(50257, 768), none = shape_of(0, NULL);
    int64_t n, bytes;
    assert_string_equal(shape_print(text, &s), "[50257, 768]");
    assert_int_equal(shape_numel(&s), 50257 * 768);
    assert_int_equal(shape_numel(&none), 1);
    struct shape huge = SHAPE_OF(INT64_C(1) << 40, 0, INT64_C(1) << 40), negative = SHAPE_OF(-1),
                 wide = SHAPE_OF(INT64_C(1) << 61);
    assert_int_equal(shape_measure(&huge, 1, &n, &bytes), -1);
    assert_int_equal(shape_measure(&negative, 1, &n, &bytes), -1);
    assert_int_equal(shape_measure(&wide, 8, &n, &bytes), -1);
    assert_int_equal(shape_measure(&wide, 2, &n, &bytes), 0);
    assert_int_equal(bytes, INT64_C(1) << 62);
}

static struct region random_box(struct dice *d, int nd, int limit)
{
    struct region r = {.nd = nd};
    for (int k = 0; k < nd; k++) {
        int a = roll(d, limit), b = roll(d, limit + 1);
        r.lo[k] = a < b ? a : b;
        r.hi[k] = a < b ? b : a;
    }
    return r;
}

/* Subtraction against counting points. */
static void test_subtract(void **state)
{
    (void)state;
    struct dice d = {3, 0};
    for (int round = 0; round < 4000; round++) {
        int nd = 1 + roll(&d, 3);
        struct region a = random_box(&d, nd, 6), b = random_box(&d, nd, 6), rest[2 * SHAPE_MAX_DIMS], common;
        int n = region_subtract(&a, &b, rest);
        bool meets = region_intersect(&a, &b, &common);
        int64_t sum = meets ? region_volume(&common) : 0;
        assert_true(n <= 2 * nd);
        for (int i = 0; i < n; i++) {
            struct region overlap;
            sum += region_volume(&rest[i]);
            assert_true(region_contains(&a, &rest[i]) && region_volume(&rest[i]) > 0);
            assert_false(region_intersect(&rest[i], &b, &overlap));
            for (int j = 0; j < i; j++) assert_false(region_intersect(&rest[i], &rest[j], &overlap));
            if (i) assert_true(region_compare(&rest[i - 1], &rest[i]) < 0);
        }
        assert_int_equal(sum, region_volume(&a));
    }
}

/* Runs visit each element of the box once, at the right offsets, and are as long as they can be. */
static void test_runs(void **state)
{
    (void)state;
    struct dice d = {4, 0};
    for (int round = 0; round < 3000; round++) {
        int nd = roll(&d, 4);
        struct shape s = {.nd = nd};
        for (int k = 0; k < nd; k++) s.n[k] = 6;
        struct region a = random_box(&d, nd, 6), b = random_box(&d, nd, 6), box;
        if (!region_intersect(&a, &b, &box)) continue;
        struct region_run run;
        int64_t seen = 0, end_a = -1, end_b = -1;
        for (bool more = region_run_first(&run, &box, &a, &b); more; more = region_run_next(&run)) {
            for (int64_t i = 0; i < run.n; i++) {
                assert_int_equal(global_index(&s, &a, run.a + i), global_index(&s, &box, seen));
                assert_int_equal(global_index(&s, &b, run.b + i), global_index(&s, &box, seen));
                seen++;
            }
            assert_false(run.a == end_a && run.b == end_b); /* else the two runs were one */
            end_a = run.a + run.n;
            end_b = run.b + run.n;
        }
        assert_int_equal(seen, region_volume(&box));
    }
}

static void test_split(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 40; n++)
        for (int k = 1; k < 12; k++) {
            int64_t at = 0, lo, hi;
            for (int i = 0; i < k; i++, at = hi) {
                region_split(n, i, k, &lo, &hi);
                assert_int_equal(lo, at);
                assert_true(hi - lo == n / k || hi - lo == n / k + 1);
            }
            assert_int_equal(at, n);
        }
}

static void test_mesh(void **state)
{
    (void)state;
    struct mesh m;
    struct err e;
    int degrees[AXIS_N] = {2, 1, -1, 2, 2, -1, 4, 1};
    assert_int_equal(mesh_init(&m, 32, degrees, &e), OK);
    assert_int_equal(m.size[AXIS_DP_SHARD], 4);
    assert_int_equal(m.size[AXIS_EDP], 4);
    /* Both views name every rank, and agree on pp. */
    for (int v = MESH_DENSE; v <= MESH_EXPERT; v++)
        for (int r = 0; r < 32; r++) {
            int coord[AXIS_N];
            for (int a = 0; a < AXIS_N; a++) coord[a] = mesh_coord(&m, (enum axis)a, r);
            assert_int_equal(mesh_rank(&m, (enum mesh_view)v, coord), r);
            assert_int_equal(coord[AXIS_PP], r / 16);
        }
    struct mesh_axis fsdp[2] = {mesh_axis(&m, AXIS_DP_SHARD), mesh_axis(&m, AXIS_CP)}, outer, inner;
    int group[8];
    assert_int_equal(mesh_group(fsdp, 2, 21, group), 8);
    for (int i = 0; i < 8; i++) assert_int_equal(group[i], 16 + 1 + 2 * i);
    char text[48];
    mesh_axis_factor(fsdp[0], 2, &outer, &inner);
    assert_string_equal(mesh_axis_print(text, outer), "dp_shard/2");
    assert_string_equal(mesh_axis_print(text, inner), "dp_shard%2");
    for (int r = 0; r < 32; r++)
        assert_int_equal(mesh_axis_coord(outer, r) * 2 + mesh_axis_coord(inner, r), mesh_axis_coord(fsdp[0], r));
    struct str t = {0};
    mesh_print(&m, true, &t);
    assert_string_equal(str_text(&t), "32 ranks: pp 2 x dp_shard 4 x cp 2 x tp 2; experts: edp 4 x ep 4");
    str_free(&t);
    mesh_print(&m, false, &t); /* nothing is said of experts that there are not */
    assert_string_equal(str_text(&t), "32 ranks: pp 2 x dp_shard 4 x cp 2 x tp 2");
    str_free(&t);
}

static void expect_refusal(int n_ranks, const int degrees[AXIS_N], const char *want)
{
    struct mesh m;
    struct err e = {0};
    assert_int_equal(mesh_init(&m, n_ranks, degrees, &e), ERR_REQUEST);
    assert_string_equal(e.text, want);
}

static void test_mesh_errors(void **state)
{
    (void)state;
    expect_refusal(8, (const int[AXIS_N]){1, 1, -1, 1, 3, -1, 1, 1},
                   "dp_shard (what is left) x tp 3 = 3 ranks or a multiple, but there are 8; choose tp 2 or 4");
    expect_refusal(8, (const int[AXIS_N]){1, 1, 2, 1, 2, -1, 1, 1},
                   "dp_shard 2 x tp 2 = 4 ranks, but there are 8; choose pp 2, or dp_replicate 2, or dp_shard 4, or cp "
                   "2, or tp 4");
    expect_refusal(1, (const int[AXIS_N]){1, 1, -1, 1, 2, -1, 1, 1},
                   "dp_shard (what is left) x tp 2 = 2 ranks or a multiple, but there is 1; choose tp 1");
    expect_refusal(8, (const int[AXIS_N]){1, -1, -1, 1, 1, -1, 1, 1},
                   "dp_replicate and dp_shard are both -1; only one can be what is left: give one a size");
    expect_refusal(8, (const int[AXIS_N]){1, 1, -1, 0, 1, -1, 1, 1},
                   "cp: wanted a size of 1 or more, or -1 for what is left; got 0");
    expect_refusal(8, (const int[AXIS_N]){2, 1, -1, 1, 1, -1, 8, 1},
                   "pp 2 x edp (what is left) x ep 8 = 16 ranks or a multiple, but there are 8; choose pp 1, or ep 4");
}

static void test_layouts(void **state)
{
    (void)state;
    struct mesh m;
    struct err e;
    int degrees[AXIS_N] = {4, 1, 2, 1, 2, -1, 1, 1};
    assert_int_equal(mesh_init(&m, 16, degrees, NULL), OK);
    struct layout all = layout_on(&m, MESH_DENSE, SHAPE_OF(7, 3), SPMD_I);
    struct layout l = layout_with(layout_with(all, AXIS_TP, SPMD_S0), AXIS_DP_SHARD, SPMD_S0);
    struct layout tied = layout_with(layout_hold_on(l, (int[]){0, 3}, 2), AXIS_PP, SPMD_R);
    struct str t = {0};
    char text[256];
    layout_print(&tied, &t);
    assert_string_equal(str_text(&t), "[7, 3] pp{0,3}:R tp:S0 dp_shard:S0");
    str_free(&t);
    /* tp cuts 7 into 4 and 3; dp_shard cuts those into 2, 2 and 2, 1. */
    static const char *const want[4] = {"[0:2, 0:3]", "[4:6, 0:3]", "[2:4, 0:3]", "[6:7, 0:3]"};
    int first = 0;
    for (int r = 0; r < 16; r++) {
        bool holds = r < 4 || r >= 12;
        assert_int_equal(layout_holds(&tied, r), holds);
        struct region box = holds ? layout_box(&tied, r) : (struct region){0};
        if (holds) assert_string_equal(region_print(text, &box), want[r % 4]);
        first += layout_is_first(&tied, r);
    }
    assert_int_equal(first, 4);
    struct region corner = {2, {4, 0}, {5, 1}};
    int holders[16];
    assert_int_equal(layout_holders(&tied, &corner, holders), 2);
    assert_int_equal(holders[0], 1);
    assert_int_equal(holders[1], 13);
    struct layout other = layout_with(layout_with(all, AXIS_DP_SHARD, SPMD_S0), AXIS_TP, SPMD_S0);
    assert_false(layout_equal(&other, &l)); /* the order of cuts is part of a layout */
    assert_int_equal(layout_check(&tied, &e), OK);
    struct layout bad = l;
    bad.place[4].type = SPMD_S2;
    assert_int_equal(layout_check(&bad, &e), ERR_REQUEST);
    assert_string_equal(e.text, "dp_shard:S2: [7, 3] has no dim 2; choose S0 to S1");
    bad = l;
    bad.n_places--;
    assert_int_equal(layout_check(&bad, &e), ERR_REQUEST);
    bad = tied;
    bad.only[1] = 4;
    assert_int_equal(layout_check(&bad, &e), ERR_REQUEST);
}

static void expect_box(const struct layout *l, int rank, const char *want)
{
    char text[256] = "nothing";
    if (layout_holds(l, rank)) {
        struct region box = layout_box(l, rank);
        region_print(text, &box);
    }
    assert_string_equal(text, want);
}

/* Heads stay whole; one coordinate has it all; two axes cut at once, which is not the same as one after the other. */
static void test_units_owners_joined(void **state)
{
    (void)state;
    struct mesh m;
    struct err e;
    struct str t = {0};
    assert_int_equal(mesh_init(&m, 12, (const int[AXIS_N]){1, 1, 2, 2, 3, -1, 4, 1}, NULL), OK);
    struct layout l = layout_on(&m, MESH_DENSE, SHAPE_OF(20, 3), SPMD_R);
    struct layout heads = layout_with_unit(l, AXIS_TP, SPMD_S0, 4); /* 5 heads over 3 */
    expect_box(&heads, 0, "[0:8, 0:3]");
    expect_box(&heads, 1, "[8:16, 0:3]");
    expect_box(&heads, 2, "[16:20, 0:3]");
    struct layout rows = layout_with_joined(heads, AXIS_DP_SHARD, AXIS_CP, SPMD_S0);
    layout_print(&rows, &t);
    assert_string_equal(str_text(&t), "[20, 3] pp:R dp_replicate:R tp:S0*4 dp_shard+:S0");
    str_free(&t);
    int64_t counts[4];
    assert_int_equal(layout_last_cut(&rows, 2 + 3 * 1, counts), 4); /* 4 rows over 4 */
    for (int i = 0; i < 4; i++) assert_int_equal(counts[i], 1);
    expect_box(&rows, 2 + 3 * 3, "[19:20, 0:3]");
    struct layout ten = layout_on(&m, MESH_DENSE, SHAPE_OF(10), SPMD_R), two;
    two = layout_with(layout_with(ten, AXIS_DP_SHARD, SPMD_S0), AXIS_CP, SPMD_S0);
    ten = layout_with_joined(ten, AXIS_DP_SHARD, AXIS_CP, SPMD_S0);
    expect_box(&ten, 3, "[3:6]");
    expect_box(&two, 3, "[3:5]");
    assert_int_equal(layout_check(&ten, &e), OK);

    struct layout expert =
        layout_with(layout_hold_at(layout_on(&m, MESH_EXPERT, SHAPE_OF(6), SPMD_I), AXIS_EP, 2), AXIS_EDP, SPMD_S0);
    layout_print(&expert, &t);
    assert_string_equal(str_text(&t), "[6] ep{2}:I edp:S0");
    str_free(&t);
    for (int r = 0; r < 12; r++) {
        assert_int_equal(layout_holds(&expert, r), r % 4 == 2);
        assert_int_equal(layout_is_first(&expert, r), r % 4 == 2);
    }
    expect_box(&expert, 6, "[2:4]");
    assert_int_equal(layout_holders(&expert, &(struct region){1, {2}, {3}}, NULL), 1);
    struct layout other =
        layout_with(layout_hold_at(layout_on(&m, MESH_EXPERT, SHAPE_OF(6), SPMD_I), AXIS_EP, 1), AXIS_EDP, SPMD_S0);
    assert_false(layout_equal(&expert, &other));
    struct layout bad = heads;
    bad.place[bad.n_places - 1].unit = 3;
    assert_false(layout_equal(&bad, &heads));
    assert_int_equal(layout_check(&bad, &e), ERR_REQUEST);
    assert_string_equal(e.text, "tp:S0 of [20, 3] in units of 3: they leave a rest; choose a divisor");
    bad = expert;
    bad.place[bad.n_places - 1].owner = 1;
    assert_int_equal(layout_check(&bad, &e), ERR_REQUEST);
    assert_string_equal(e.text, "edp: held by coordinate 0 alone: wanted one of 0 to 2, on an axis at I or R");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units_owners_joined),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_subtract),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_mesh),
        cmocka_unit_test(test_mesh_errors),
        cmocka_unit_test(test_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
