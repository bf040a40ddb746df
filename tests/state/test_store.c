/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices untouchable */
/* Initial values, buffers and their bytes. */
#include "toy.h"

#include "base/thread.h"
#include "device/device.h"
#include "state/packed.h"
#include "state/store.h"

static int add(struct param_table *t, const char *name, int64_t rows, int64_t cols, enum param_init init)
{
    return param_add(t, name, param_alone(cols ? 2 : 1, (int64_t[]){rows, cols}), init, 0.02, -1);
}

/* clang-format off */
static const struct array_row moments[] = {
    {.name = "m", .title = "first moments", .cat = MEM_OPTIMIZER, .dtype = DT_F32, .shared_from = 1, .saved = true, .stepped = true, .groups = PARAM_ALL_GROUPS},
    {.name = "v", .title = "second moments", .cat = MEM_OPTIMIZER, .dtype = DT_F32, .shared_from = 1, .saved = true, .stepped = true, .groups = PARAM_ALL_GROUPS},
};
/* clang-format on */

static void test_table(void **state)
{
    (void)state;
    struct param_table t = {0};
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        assert_int_equal(add(&t, name, i + 1, i % 2 ? 3 : 0, INIT_NORMAL), i);
    }
    int64_t at = 0;
    for (int i = 0; i < t.n; i++) { /* no padding; matrices decay, vectors do not */
        assert_int_equal(t.p[i].offset, at);
        assert_int_equal(t.p[i].numel, (i + 1) * (i % 2 ? 3 : 1));
        assert_int_equal(t.p[i].decay, i % 2);
        at += t.p[i].numel;
    }
    assert_int_equal(t.numel, at);
    assert_int_equal(param_find(&t, "p42"), 42);
    assert_int_equal(param_find(&t, "p100"), -1);
    for (int i = 0; i < t.n; i++) assert_int_equal(param_find(&t, t.p[i].name), i);
    param_table_free(&t);
}

/* What other stages hold takes no room here, and what lies behind it moves up; of several holders the first counts. */
static void test_stages(void **state)
{
    (void)state;
    enum { N = 200 };
    struct param_table t = {0};
    int64_t numel = 0;
    if (mesh_init(&t.mesh, 3, (int[AXIS_N]){3, 1, 1, 1, 1, 1, 1, 1}, NULL)) fail();
    for (int i = 0; i < N; i++) {
        char name[16];
        struct layout l = layout_on(&t.mesh, MESH_DENSE, i % 2 ? SHAPE_OF(i + 1, 3) : SHAPE_OF(i + 1), SPMD_I);
        snprintf(name, sizeof name, "p%d", i);
        if (i % 3 == 1) l = layout_hold_on(l, (int[]){1}, 1);
        if (i % 3 == 2) l = layout_hold_on(l, (int[]){0, 2}, 2);
        param_add(&t, name, l, INIT_NORMAL, 0.02, -1);
        numel += t.p[i].numel;
    }
    for (int rank = 0; rank < 3; rank++) {
        int64_t at = 0;
        param_place(&t, rank);
        for (int i = 0; i < N; i++) {
            const struct param *p = &t.p[i];
            bool here = i % 3 == 0 || (i % 3 == 1) == (rank == 1);
            assert_int_equal(p->offset, at);
            assert_int_equal(p->held, here ? p->numel : 0);
            assert_int_equal(p->counted, here && rank == (i % 3 == 1));
            assert_int_equal(p->ln[0], here ? p->n[0] : 0);
            at += p->held;
        }
        assert_int_equal(t.held, at);
        assert_int_equal(t.numel, numel);
    }
    param_table_free(&t);
}

/* Element i is f(seed, name, i): not of the piece it is made in, the team, or where the parameter stands. */
static void test_init_is_a_function_of_seed_name_index(void **state)
{
    (void)state;
    enum { N = 10007 };
    static float whole[N], piece[N], other[N];
    struct param_table t = {0}, u = {0};
    add(&t, "w", N, 1, INIT_NORMAL);
    add(&u, "before", 33, 7, INIT_ONES);
    add(&u, "w", 1, N, INIT_NORMAL);
    add(&u, "v", 1, N, INIT_NORMAL);
    struct team *team = team_new(3);
    param_init_fill(&t.p[0], 5, 0, N, whole, NULL);
    for (int64_t lo = 0; lo < N; lo += 1234) {
        int64_t n = N - lo < 1234 ? N - lo : 1234;
        param_init_fill(&u.p[1], 5, lo, n, piece + lo, team);
    }
    assert_memory_equal(whole, piece, sizeof whole);
    param_init_fill(&u.p[2], 5, 0, N, other, team);
    int same = 0;
    for (int i = 0; i < N; i++) same += other[i] == whole[i];
    assert_true(same < 5);
    param_init_fill(&t.p[0], 6, 0, N, other, team);
    same = 0;
    for (int i = 0; i < N; i++) same += other[i] == whole[i];
    assert_true(same < 5);
    double sum = 0, square = 0;
    for (int i = 0; i < N; i++) {
        sum += whole[i];
        square += (double)whole[i] * whole[i];
    }
    assert_true(fabs(sum / N) < 0.02 * 4 / sqrt(N));
    assert_true(fabs(sqrt(square / N) / 0.02 - 1) < 4 / sqrt(2.0 * N));
    team_free(team);
    param_table_free(&t);
    param_table_free(&u);
}

static void test_compute_copy_is_the_cast_master(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        struct param_table t = {0};
        struct device *d;
        struct store s, f;
        struct kernel_table k;
        struct err e = {0};
        add(&t, "a", 37, 41, INIT_NORMAL);
        add(&t, "b", 53, 0, INIT_ONES);
        add(&t, "c", 19, 0, INIT_ZEROS);
        assert_int_equal(device_cpu_new(&d, threads, &e), OK);
        assert_int_equal(kernel_table_init(&k, "auto", threads, false, &e), OK);
        assert_int_equal(store_new(&s, &t, d, DT_BF16, true, moments, 2, &e), OK);
        assert_int_equal(store_new(&f, &t, d, DT_F32, true, moments, 1, &e), OK);
        struct stream *st;
        assert_int_equal(stream_new(&st, d, "test", &e), OK);
        kernel_on(st, &k);
        store_init(&s, &k, st, 11);
        store_init(&f, &k, st, 11);
        assert_memory_equal(device_here(s.array[STORE_MASTER].buf.p), device_here(f.array[STORE_PARAM].buf.p),
                            (size_t)t.numel * 4);
        assert_ptr_equal(store_array(&f, STORE_MASTER), &f.array[STORE_PARAM]);
        assert_ptr_equal(store_array(&s, STORE_MASTER), &s.array[STORE_MASTER]);
        float *master = device_here(s.array[STORE_MASTER].buf.p);
        bf16 *copy = device_here(s.array[STORE_PARAM].buf.p);
        for (int64_t i = 0; i < t.numel; i++) assert_int_equal(copy[i], bf16_from_f32(master[i]));
        for (int64_t i = 0; i < 2 * t.numel; i++)
            assert_true(((float *)device_here(s.array[STORE_ROWS + i / t.numel].buf.p))[i % t.numel] == 0);
        assert_true(((float *)device_here(store_array(&f, STORE_MASTER)->buf.p))[t.p[1].offset] == 1 &&
                    master[t.p[2].offset] == 0);

        float in[53], out[53]; /* what is written is what is read, and reaches the copy */
        for (int i = 0; i < 53; i++) in[i] = 0.1f * (float)i - 1.3f;
        store_write(&s, &k, st, 1, STORE_MASTER, in);
        store_read(&s, st, 1, STORE_MASTER, out);
        assert_memory_equal(in, out, sizeof in);
        for (int i = 0; i < 53; i++) assert_int_equal(copy[t.p[1].offset + i], bf16_from_f32(in[i]));
        assert_true(master[t.p[2].offset] == 0 &&
                    master[t.p[1].offset - 1] == ((float *)device_here(f.array[STORE_PARAM].buf.p))[t.p[1].offset - 1]);
        store_write(&s, &k, st, 1, STORE_ROWS + 1, in);
        store_read(&s, st, 1, STORE_ROWS + 1, out);
        assert_memory_equal(in, out, sizeof in);
        store_read(&s, st, 1, STORE_ROWS, out);
        assert_true(out[7] == 0);
        store_free(&s);
        store_free(&f);
        stream_free(st);
        device_free(d);
        param_table_free(&t);
    }
}

/* ---- packed matrices ---- */
enum { PACKED_ROWS = 21, PACKED_COLS = 200 };

struct numbers {
    float v[PACKED_ROWS * PACKED_COLS];
};

static int read_numbers(void *ctx, int64_t first, int64_t n, float *out, struct err *e)
{
    const struct numbers *x = ctx;
    (void)e;
    memcpy(out, x->v + first * PACKED_COLS, (size_t)(n * PACKED_COLS) * sizeof *out);
    return OK;
}

/* What comes back of a matrix is each number as near as its block's codes allow: half of the widest gap of nf4 (0.31 of
 * the largest), of mxfp4's (2 of scales of which the largest has more than 3). And rows and norms beside it are theirs.
 */
static void test_packed_matrices_come_back(void **state)
{
    (void)state;
    static struct numbers x;
    static float back[PACKED_ROWS * PACKED_COLS];
    /* Of the largest of a block: half of the widest gap between two codes, twice where a scale is a power of two. */
    static const float apart[PACKING_N] = {[PACKING_NF4] = 0.17f, [PACKING_MXFP4] = 0.34f, [PACKING_INT8] = 0.008f};
    for (int kind = PACKING_NF4; kind < PACKING_N; kind++) {
        const int64_t block = packing_row((enum packing)kind)->block;
        struct param_table t = {0};
        struct device *d;
        struct store s;
        struct kernel_table k;
        struct stream *st;
        struct buffer to;
        struct err e = {0};
        add(&t, "layers.0.norm.weight", 64, 0, INIT_ONES);
        int at = add(&t, "layers.0.a.weight", PACKED_ROWS, PACKED_COLS, INIT_NORMAL);
        add(&t, "layers.0.router.weight", PACKED_ROWS, PACKED_COLS, INIT_NORMAL);
        int encoder = add(&t, "encoder.0.a.weight", PACKED_ROWS, PACKED_COLS, INIT_NORMAL);
        for (int i = 0; i < t.n; i++) t.p[i].layer = 0;
        int embedding = add(&t, "embed.token", PACKED_ROWS, PACKED_COLS, INIT_NORMAL);
        for (int i = 0; i < t.n; i++) {
            t.p[i].frozen = true;
            t.p[i].stepped = false;
            if (t.p[i].nd == 2) t.p[i].group = PARAM_MATRICES; /* as those of layers are */
        }
        assert_int_equal(packed_mark(&t, (enum packing)kind, &e), OK);
        assert_true(t.p[at].packed && !t.p[0].packed && !t.p[at + 1].packed);
        assert_true(t.p[encoder].packed && !t.p[embedding].packed); /* by the layer, whatever it is called */
        for (int i = 0; i < PACKED_ROWS * PACKED_COLS; i++)
            x.v[i] = (float)(i * 7919 % 10007 - 5003) * (i % 5 ? 1e-4f : 2e-6f) * (float)(1 + i / PACKED_COLS % 4);
        assert_int_equal(device_cpu_new(&d, 2, &e), OK);
        assert_int_equal(kernel_table_init(&k, "auto", 2, false, &e), OK);
        assert_int_equal(store_new(&s, &t, d, DT_F32, true, moments, 2, &e), OK);
        assert_int_equal(stream_new(&st, d, "test", &e), OK);
        assert_int_equal(buffer_new(&to, d, MEM_SCRATCH, sizeof back, &e), OK);
        kernel_on(st, &k);
        assert_int_equal(packed_fill(&s, st, at, read_numbers, &x, &e), OK);
        packed_bring(&s, st, at, to.p);
        device_to_host(st, back, &to, 0, sizeof back);
        stream_sync(st);
        for (int64_t r = 0; r < PACKED_ROWS; r++)
            for (int64_t c = 0; c < PACKED_COLS; c++) {
                int64_t from = c / block * block, end = from + block < PACKED_COLS ? from + block : PACKED_COLS;
                float largest = 0, was = x.v[r * PACKED_COLS + c], is = back[r * PACKED_COLS + c];
                for (int64_t j = from; j < end; j++) largest = fmaxf(largest, fabsf(x.v[r * PACKED_COLS + j]));
                if (fabsf(was - is) > apart[kind] * largest)
                    fail_msg("%s: row %d, column %d: %g came back as %g, largest %g",
                             packing_row((enum packing)kind)->name, (int)r, (int)c, (double)was, (double)is,
                             (double)largest);
            }
        x.v[7 * PACKED_COLS + 5] = NAN;
        assert_int_equal(packed_fill(&s, st, at, read_numbers, &x, &e), ERR_REQUEST);
        assert_non_null(strstr(e.text, "not finite (row 7, column 5)"));
        buffer_free(&to);
        store_free(&s);
        stream_free(st);
        device_free(d);
        param_table_free(&t);
    }
}

static size_t bytes_of(int64_t n, enum dtype dtype, bool training, size_t now[MEM_N])
{
    struct param_table t = {0};
    struct device *d;
    struct store s;
    struct err e = {0};
    add(&t, "w", n, 1000, INIT_NORMAL);
    assert_int_equal(device_null_new(&d, &e), OK);
    assert_int_equal(store_new(&s, &t, d, dtype, training, moments, 2, &e), OK);
    memcpy(now, d->ledger.now, sizeof d->ledger.now);
    size_t total = d->ledger.now_total;
    store_free(&s);
    assert_int_equal(d->ledger.now_total, 0);
    device_free(d);
    param_table_free(&t);
    return total;
}

/* Rajbhandari et al., "ZeRO", 2020: 7.5 billion parameters with Adam at 16 bytes are 120 GB; with fp32 gradients
 * beside bf16 parameters (2+4+4+4+4) 340 billion are 6,120 GB. */
static void test_bytes_per_parameter(void **state)
{
    (void)state;
    size_t now[MEM_N];
    assert_int_equal(bytes_of(340000000, DT_BF16, true, now), 6120000000000u);
    assert_int_equal(now[MEM_PARAM], 680000000000u);
    assert_int_equal(now[MEM_MASTER], 1360000000000u);
    assert_int_equal(now[MEM_GRAD], 1360000000000u);
    assert_int_equal(now[MEM_OPTIMIZER], 2720000000000u);
    assert_int_equal(bytes_of(7500000, DT_F32, true, now), 120000000000u);
    assert_int_equal(now[MEM_MASTER], 0);
    assert_int_equal(bytes_of(7500000, DT_BF16, false, now), 15000000000u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_init_is_a_function_of_seed_name_index),
        cmocka_unit_test(test_compute_copy_is_the_cast_master),
        cmocka_unit_test(test_packed_matrices_come_back),
        cmocka_unit_test(test_bytes_per_parameter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
