/* SPDX-License-Identifier: Apache-2.0 */
/* What the reference means, in cases whose answer is known without it: central differences cannot see a mask that
 * is off by one, because backward would follow it. */
#include "harness.h"

#include "layout/sequence.h"

enum { H = 4, G = 2, A = 3, B = 2, S = 9 };

static void attention_case(struct kcase *k, bool causal, int64_t window, bool documents)
{
    *k = (struct kcase){.op = OP_ATTENTION, .dtype = DT_F32, .seed = 5, .n_in = documents ? 4 : 3};
    k->at = ATTRS(attention, .heads = H, .kv_heads = G, .head_dim = A, .batch = B, .seq = S, .scale = 0.7f,
                  .causal = causal, .window = window);
    for (int i = 0; i < 3; i++) k->in[i] = kcase_floats(k, B * S, (i ? G : H) * A, 1);
    if (documents) {
        k->in[3] = kcase_tensor(k, DT_I32, B * S, 0);
        for (int64_t t = 0; t < B * S; t++) view_set(&k->in[3], 0, t, (double)(t / 4));
    }
    kcase_outputs(k);
}

/* Queries of zero see all visible keys alike: o is the mean of their values, lse the log of their number. */
static void test_masks_one_by_one(void **state)
{
    (void)state;
    for (int variant = 0; variant < 16; variant++) {
        bool causal = variant & 1, documents = variant & 2;
        int64_t window = causal ? (variant >> 2) * 2 : 0; /* 0 2 4 6 */
        struct kcase k;
        attention_case(&k, causal, window, documents);
        view_fill_zero(&k.in[0]);
        assert_true(kcase_forward(&k, &kernel_family_ref, 1));
        for (int64_t t = 0; t < B * S; t++)
            for (int h = 0; h < H; h++)
                for (int a = 0; a < A; a++) {
                    double sum = 0, n = 0;
                    for (int64_t u = t / S * S; u < t / S * S + S; u++) {
                        bool visible =
                            (!causal || u <= t) && (window == 0 || t - u < window) && (!documents || u / 4 == t / 4);
                        if (!visible) continue;
                        sum += view_get(&k.in[2], u, h / (H / G) * A + a);
                        n++;
                    }
                    assert_true(fabs(view_get(&k.out[0], t, h * A + a) - sum / n) < 1e-6);
                    assert_true(fabs(view_get(&k.out[1], t, h) - log(n)) < 1e-6);
                }
        kcase_free(&k);
    }
}

/* Feeding a sequence to the cache in pieces gives what attention gives over the whole. */
static void test_cache_is_attention_in_pieces(void **state)
{
    (void)state;
    static const int64_t piece[] = {3, 1, 1, 4};
    for (int64_t window = 0; window < 5; window += 2) {
        struct kcase whole, k;
        attention_case(&whole, true, window, false);
        assert_true(kcase_forward(&whole, &kernel_family_ref, 1));
        k = (struct kcase){.op = OP_ATTENTION_CACHED, .dtype = DT_F32, .seed = 6, .n_in = 6, .at = whole.at};
        struct view cache_k = kcase_floats(&k, CACHE_PAGE, G * A, 9), cache_v = kcase_floats(&k, CACHE_PAGE, G * A, 9);
        int64_t at = 0;
        for (size_t p = 0; p < sizeof piece / sizeof *piece; at += piece[p++]) {
            for (int i = 0; i < 3; i++) {
                k.in[i] = whole.in[i];
                k.in[i].n[0] = piece[p];
                k.in[i].p = (float *)whole.in[i].p + at * whole.in[i].stride;
            }
            k.in[3] = kcase_tensor(&k, DT_I32, 1, RUN_PAGES + 1);
            view_set(&k.in[3], 0, RUN_FIRST, 0);
            view_set(&k.in[3], 0, RUN_ROWS, (double)piece[p]);
            view_set(&k.in[3], 0, RUN_PAST, (double)at);
            view_set(&k.in[3], 0, RUN_BOTH, 0);
            view_set(&k.in[3], 0, RUN_PAGES, 0);
            k.in[4] = cache_k;
            k.in[5] = cache_v;
            kcase_outputs(&k);
            assert_true(kcase_forward(&k, &kernel_family_ref, 1));
            for (int64_t t = 0; t < piece[p]; t++)
                for (int64_t c = 0; c < H * A; c++)
                    assert_true(fabs(view_get(&k.out[0], t, c) - view_get(&whole.out[0], at + t, c)) < 1e-6);
        }
        assert_int_equal(at, S);
        kcase_free(&k);
        kcase_free(&whole);
    }
}

/* The same with a bias by distance, in pages that are not in order; and what was read is seen whole, by tokens of any
 * place, but for keys that are not there. A query that no key is there for is 0. */
static void test_biased_cache_is_biased_attention(void **state)
{
    (void)state;
    enum { N = 2 * CACHE_PAGE + 3, HEADS = 2, COLS = HEADS * A, READ = CACHE_PAGE + 5, BUCKETS = 6 };
    static const int64_t piece[] = {5, 1, CACHE_PAGE, 1, 12};
    struct kcase far = {.op = OP_DISTANCES, .dtype = DT_F32, .seed = 8, .n_in = 1}, own = far, read = far, k = far;
    far.at = ATTRS(distances, .q_seq = N, .k_seq = N, .most = 9);
    far.in[0] = kcase_floats(&far, BUCKETS, HEADS, 1);
    kcase_outputs(&far);
    assert_true(kcase_forward(&far, &kernel_family_ref, 1));
    own.op = read.op = OP_ATTENTION_BIASED;
    own.at = ATTRS(attention_biased, .batch = 1, .q_seq = N, .k_seq = N, .sample = N, .heads = HEADS, .head_dim = A,
                   .heads_all = HEADS, .causal = true);
    read.at = ATTRS(attention_biased, .batch = 1, .q_seq = N, .k_seq = READ + 7, .sample = N, .heads = HEADS,
                    .head_dim = A, .heads_all = HEADS);
    for (int i = 0; i < 3; i++) own.in[i] = kcase_floats(&own, N, COLS, 1);
    for (int i = 0; i < 3; i++) read.in[i] = i ? kcase_floats(&read, READ + 7, COLS, 1) : own.in[0];
    own.in[3] = far.out[0];
    own.n_in = 4;
    read.n_in = 5; /* without a bias */
    read.in[4] = kcase_ints(&read, READ + 7, 0, 3);
    for (int64_t j = READ; j < READ + 7; j++) view_set(&read.in[4], 0, j, -1);
    kcase_outputs(&own);
    kcase_outputs(&read);
    assert_true(kcase_forward(&own, &kernel_family_ref, 1) && kcase_forward(&read, &kernel_family_ref, 2));
    k = (struct kcase){.op = OP_ATTENTION_CACHED_BIASED, .dtype = DT_F32, .seed = 6};
    k.at = ATTRS(attention_cached_biased, .heads = HEADS, .head_dim = A, .most = 9);
    struct view cache[2] = {kcase_floats(&k, 6 * CACHE_PAGE, COLS, 9), kcase_floats(&k, 6 * CACHE_PAGE, COLS, 9)};
    for (int64_t j = 0; j < READ; j++) /* in pages 5 and 1 */
        for (int64_t c = 0; c < COLS; c++)
            for (int i = 0; i < 2; i++)
                view_set(&cache[i], (j < CACHE_PAGE ? 5 : 1) * CACHE_PAGE + j % CACHE_PAGE, c,
                         view_get(&read.in[1 + i], j, c));
    for (size_t p = 0, at = 0; p < sizeof piece / sizeof *piece; at += (size_t)piece[p++])
        for (int reads = 0; reads < 2; reads++) {
            static const int32_t page[2][3] = {{3, 0, 4}, {5, 1, 2}};
            k.in[3] = kcase_tensor(&k, DT_I32, 1, RUN_PAGES + 3);
            view_set(&k.in[3], 0, RUN_FIRST, 0);
            view_set(&k.in[3], 0, RUN_ROWS, (double)piece[p]);
            view_set(&k.in[3], 0, RUN_PAST, reads ? READ : (double)at);
            view_set(&k.in[3], 0, RUN_STATE, 0);
            for (int i = 0; i < 3; i++) view_set(&k.in[3], 0, RUN_PAGES + i, page[reads][i]);
            for (int i = 0; i < 3; i++) {
                k.in[i] = own.in[i];
                k.in[i].n[0] = piece[p];
                k.in[i].p = (float *)own.in[i].p + (int64_t)at * own.in[i].stride;
                if (i && reads) k.in[i] = (struct view){0};
            }
            k.in[4] = cache[0];
            k.in[5] = cache[1];
            k.in[6] = far.in[0];
            k.n_in = reads ? 6 : 7;
            kcase_outputs(&k);
            assert_true(kcase_forward(&k, &kernel_family_ref, 2));
            const struct view *want = reads ? &read.out[0] : &own.out[0];
            for (int64_t t = 0; t < piece[p]; t++)
                for (int64_t c = 0; c < COLS; c++)
                    assert_true(fabs(view_get(&k.out[0], t, c) - view_get(want, (int64_t)at + t, c)) < 1e-6);
        }
    for (int64_t j = 0; j < READ; j++) view_set(&read.in[4], 0, j, -1);
    assert_true(kcase_forward(&read, &kernel_family_ref, 1));
    for (int64_t t = 0; t < N; t++) assert_true(view_get(&read.out[0], t, 3) == 0);
    for (int i = 0; i < 4; i++) kcase_free((struct kcase *[]){&k, &read, &own, &far}[i]);
}

/* Turned queries and keys know only how far apart they are; position 0 turns nothing; lengths stay. */
static void test_rotary_is_relative(void **state)
{
    (void)state;
    enum { HEAD = 6, POSITIONS = 40 };
    struct kcase k = {.op = OP_ROTARY, .dtype = DT_F32, .seed = 2, .n_in = 3};
    k.at = ATTRS(rotary, .heads = 1, .head_dim = HEAD);
    k.in[0] = kcase_tensor(&k, DT_F32, POSITIONS, HEAD);
    k.in[1] = kcase_tensor(&k, DT_I32, POSITIONS, 0);
    k.in[2] = kcase_tensor(&k, DT_F32, POSITIONS, HEAD);
    for (int64_t p = 0; p < POSITIONS; p++) {
        view_set(&k.in[1], 0, p, (double)p);
        for (int64_t i = 0; i < HEAD; i++) view_set(&k.in[0], p, i, (double)(i * i) / 7 - 1); /* the same vector */
        for (int64_t i = 0; i < HEAD / 2; i++) {
            view_set(&k.in[2], p, i, cos(0.1 * (double)(p * (i + 1))));
            view_set(&k.in[2], p, HEAD / 2 + i, sin(0.1 * (double)(p * (i + 1))));
        }
    }
    kcase_outputs(&k);
    assert_true(kcase_forward(&k, &kernel_family_ref, 1));
    double x1 = -1, x2 = 9.0 / 7 - 1; /* columns 0 and 3 are a pair; at position 2 it turns by 0.2 */
    assert_true(fabs(view_get(&k.out[0], 2, 0) - (x1 * cos(0.2) - x2 * sin(0.2))) < 1e-6);
    assert_true(fabs(view_get(&k.out[0], 2, 3) - (x2 * cos(0.2) + x1 * sin(0.2))) < 1e-6);
    double by_distance[POSITIONS];
    for (int64_t p = 0; p < POSITIONS; p++)
        for (int64_t q = 0; q <= p; q++) {
            double dot = 0;
            for (int64_t i = 0; i < HEAD; i++) dot += view_get(&k.out[0], p, i) * view_get(&k.out[0], q, i);
            if (q == 0) by_distance[p] = dot;
            assert_true(fabs(dot - by_distance[p - q]) < 1e-5);
        }
    for (int64_t i = 0; i < HEAD; i++) assert_true(view_get(&k.out[0], 0, i) == view_get(&k.in[0], 0, i));
    kcase_free(&k);
}

struct point {
    double x, up, y;
};

/* Values from tables of tanh, the logistic function and the normal distribution. */
static void test_activations(void **state)
{
    (void)state;
    static const struct point gelu[] = {{0, 0, 0}, {1, 0, 0.84119199}, {-1, 0, -0.15880801}, {3, 0, 2.99636261}};
    static const struct point by_erf[] = {{0, 0, 0}, {1, 0, 0.84134475}, {-1, 0, -0.15865525}, {3, 0, 2.99595031}};
    static const struct point turns[] = {{0, 0, 0}, {1, 0, 0.76159416}, {-1, 0, -0.76159416}, {3, 0, 0.99505475}};
    static const struct point swiglu[] = {{0, 5, 0}, {1, 2, 1.46211716}, {-2, 3, -0.71521754}, {30, -1, -30}};
    static const struct point geglu[] = {{0, 5, 0}, {1, 2, 1.68238398}, {-1, 3, -0.47642403}, {3, -1, -2.99636261}};
    static const struct point cap[] = {{0, 0, 0}, {2, 0, 1.52318831}, {-1, 0, -0.92423431}, {90, 0, 2}}; /* of 2 */
    static const struct point quick[] = {{0, 0, 0}, {1, 0, 0.84579577}, {-1, 0, -0.15420423}, {3, 0, 2.98192869}};
    /* of 2: g to 2, u to [-2, 2], g s(1.702 g) (u + 1) */
    static const struct point clamped[] = {{0, 5, 0}, {1, 0, 0.84579577}, {1, -1, 0}, {5, 9, 5.80697587}};
    static const struct point relu2[] = {{0, 0, 0}, {1, 0, 1}, {-2, 0, 0}, {1.5, 0, 2.25}};
    static const struct point relu[] = {{0, 0, 0}, {1.5, 0, 1.5}, {-1, 0, 0}, {30, 0, 30}};
    static const struct point times[] = {{0, 0, 0}, {1.5, 0, 3}, {-1, 0, -2}, {30, 0, 60}}; /* by 2 */
    static const struct point *const tables[ACT_N] = {gelu,  swiglu,  by_erf, turns, geglu, cap,
                                                      quick, clamped, relu2,  relu,  times};
    for (int act = 0; act < ACT_N; act++)
        for (int i = 0; i < 4; i++) {
            struct point p = tables[act][i];
            bool gated = act_gated((enum act_kind)act);
            struct kcase k = {.op = OP_ACT,
                              .dtype = DT_F32,
                              .n_in = 1,
                              .at = ATTRS(act, .kind = (enum act_kind)act, .cap = 2)};
            k.in[0] = kcase_tensor(&k, DT_F32, 1, gated ? 2 : 1);
            view_set(&k.in[0], 0, 0, p.x);
            if (gated) view_set(&k.in[0], 0, 1, p.up);
            kcase_outputs(&k);
            assert_true(kcase_forward(&k, &kernel_family_ref, 1));
            assert_true(fabs(view_get(&k.out[0], 0, 0) - p.y) < 1e-6);
            kcase_free(&k);
        }
}

/* What is no number stays none: a loss that is NaN says so, and is not trained on with zeros. */
static void test_activations_of_nan(void **state)
{
    (void)state;
    static const struct kernel_family *const families[] = {&kernel_family_ref, &kernel_family_cpu, &kernel_family_cuda};
    for (int act = 0; act < ACT_N; act++)
        for (int f = 0; f < 3; f++) {
            if (f == 2 && !families[f]->slot[OP_ACT][KERNEL_FWD].run) continue; /* it is not built in */
            bool gated = act_gated((enum act_kind)act);
            struct kcase k = {.op = OP_ACT,
                              .dtype = DT_F32,
                              .n_in = 1,
                              .at = ATTRS(act, .kind = (enum act_kind)act, .cap = 2)};
            k.in[0] = kcase_tensor(&k, DT_F32, 1, gated ? 32 : 16);
            for (int64_t i = 0; i < view_cols(&k.in[0]); i++) view_set(&k.in[0], 0, i, i == 3 ? NAN : 1);
            kcase_outputs(&k);
            assert_true(kcase_forward(&k, families[f], 1));
            for (int64_t i = 0; i < 16; i++)
                if (isnan(view_get(&k.out[0], 0, i)) != (i == 3))
                    fail_msg("activation %d, family %d: number %d of 16 is %g", act, f, (int)i,
                             view_get(&k.out[0], 0, i));
            kcase_free(&k);
        }
}

/* Pixel (y, x) of channel c of picture b is 1000 b + 100 c + 10 y + x: patch 3 of 2 x 2 pixels of 4 x 4 begins at (2,
 * 2). Over two parts the first has the head and the tail of the five places. */
static void test_patches(void **state)
{
    (void)state;
    static const int64_t place[2][3] = {{0, 1, 4}, {2, 3, -1}};
    for (int part = -1; part < 2; part++) {
        struct picture_rows rows = {2, 5, part < 0 ? 1 : 2, part < 0 ? 0 : part, 0, part < 0 ? 10 : part ? 4 : 6};
        struct kcase k = {.op = OP_PATCHES, .dtype = DT_F32, .n_in = 1, .at = ATTRS(patches, rows, 2, 4, 2)};
        k.in[0] = kcase_tensor(&k, DT_F32, 2, 32);
        for (int64_t b = 0; b < 2; b++)
            for (int64_t i = 0; i < 32; i++)
                view_set(&k.in[0], b, i, (double)(1000 * b + i / 16 * 100 + i % 16 / 4 * 10 + i % 4));
        k.out[0].dtype = DT_F32;
        kcase_outputs(&k);
        assert_true(kcase_forward(&k, &kernel_family_ref, 1));
        int64_t each = rows.rows / 2;
        for (int64_t t = 0; t < rows.rows; t++) {
            int64_t at = part < 0 ? t % 5 : place[part][t % each], p = at - 1;
            assert_int_equal(((int32_t *)k.out[1].p)[t], at);
            assert_int_equal(((int32_t *)k.out[2].p)[t], at > 0);
            for (int64_t i = 0; i < 8; i++) {
                int64_t y = p / 2 * 2 + i % 4 / 2, x = p % 2 * 2 + i % 2;
                double want = at ? (double)(t / each * 1000 + i / 4 * 100 + y * 10 + x) : 0;
                assert_true(view_get(&k.out[0], t, i) == want);
            }
        }
        kcase_free(&k);
    }
}

/* Of three places the class, or the mean of the other two; of a stretch of rows what is there of them. */
static void test_pool(void **state)
{
    (void)state;
    static const double x[6] = {1, 2, 4, 8, 16, 32};
    static const double want[2][2][2] = {{{1, 8}, {3, 24}}, {{0, 8}, {3, 8}}}; /* all rows; rows 1 to 4 */
    for (int some = 0; some < 2; some++)
        for (int kind = 0; kind < POOL_N; kind++) {
            struct picture_rows rows = {2, 3, 1, 0, some, some ? 4 : 6};
            struct kcase k = {.op = OP_POOL, .dtype = DT_F32, .n_in = 1, .at = ATTRS(pool, rows, (enum pool_kind)kind)};
            k.in[0] = kcase_tensor(&k, DT_F32, rows.rows, 1);
            for (int64_t t = 0; t < rows.rows; t++) view_set(&k.in[0], t, 0, x[t + some]);
            kcase_outputs(&k);
            assert_true(kcase_forward(&k, &kernel_family_ref, 1));
            for (int b = 0; b < 2; b++) assert_true(view_get(&k.out[0], b, 0) == want[some][kind][b]);
            kcase_free(&k);
        }
}

/* Two texts of three tokens, two rows for each: row 1 of the second text's stands in its first place. */
static void test_insert(void **state)
{
    (void)state;
    static const int at[6] = {-1, 0, 1, 1, -1, -1};
    static const double want[6] = {0, 10, 11, 13, 4, 5}, back[6] = {1, 0, 0, 0, 1, 1}, rows[4] = {1, 1, 0, 1};
    struct kcase k = {.op = OP_INSERT, .dtype = DT_F32, .n_in = 3};
    k.at = attrs_insert((struct insert_attrs){{2, 3, 1, 0, 0, 6}});
    k.in[0] = kcase_tensor(&k, DT_F32, 6, 1);
    k.in[1] = kcase_tensor(&k, DT_I32, 6, 0);
    k.in[2] = kcase_tensor(&k, DT_F32, 4, 1);
    for (int64_t t = 0; t < 6; t++) view_set(&k.in[0], t, 0, (double)t);
    for (int64_t t = 0; t < 6; t++) view_set(&k.in[1], 0, t, at[t]);
    for (int64_t r = 0; r < 4; r++) view_set(&k.in[2], r, 0, 10 + (double)r);
    kcase_outputs(&k);
    kcase_gradients(&k);
    assert_true(kcase_forward(&k, &kernel_family_ref, 1));
    for (int64_t t = 0; t < 6; t++) view_set(&k.dout[0], t, 0, 1);
    assert_true(kcase_backward(&k, &kernel_family_ref, 1));
    for (int64_t t = 0; t < 6; t++) assert_true(view_get(&k.out[0], t, 0) == want[t]);
    for (int64_t t = 0; t < 6; t++) assert_true(view_get(&k.din[0], t, 0) == back[t]);
    for (int64_t r = 0; r < 4; r++) assert_true(view_get(&k.din[2], r, 0) == rows[r]);
    kcase_free(&k);
}

static const struct kernel_family *const all[] = {&kernel_family_ref, &kernel_family_cpu, &kernel_family_cuda};

/* The first of equal logits wins, one that is not a number is never right, and what is not trained is not counted. */
static void test_right(void **state)
{
    (void)state;
    static const double x[5][3] = {{1, 2, 3}, {3, 3, 1}, {3, 3, 1}, {0, NAN, 0}, {9, 1, 1}};
    static const int target[5] = {2, 0, 1, 0, -1};
    static const int right[5] = {1, 1, 0, 0, 0};
    for (int t = 0; t < 5; t++) {
        struct kcase k = {.op = OP_XENT, .dtype = DT_F32, .n_in = 2, .at = ATTRS(vocab, .right = true)};
        k.in[0] = kcase_tensor(&k, DT_F32, 1, 3);
        k.in[1] = kcase_tensor(&k, DT_I32, 1, 0);
        for (int i = 0; i < 3; i++) view_set(&k.in[0], 0, i, x[t][i]);
        view_set(&k.in[1], 0, 0, target[t]);
        kcase_outputs(&k);
        for (size_t f = 0; f < sizeof all / sizeof *all; f++) {
            view_fill_zero(&k.out[0]);
            if (!kcase_forward(&k, all[f], 1)) continue;
            assert_true(view_get(&k.out[0], 0, 2) == right[t]);
        }
        kcase_free(&k);
    }
}

/* Equal logits cost log V each; a certain one nothing; large logits do not overflow; -1 is not counted. */
static void test_loss(void **state)
{
    (void)state;
    enum { V = 50 };
    struct kcase k = {.op = OP_XENT, .dtype = DT_F32, .n_in = 2, .at = ATTRS(vocab, 0)};
    k.in[0] = kcase_tensor(&k, DT_F32, 4, V);
    k.in[1] = kcase_tensor(&k, DT_I32, 4, 0);
    view_fill_zero(&k.in[0]);
    for (int64_t v = 0; v < V; v++) view_set(&k.in[0], 1, v, 10000);
    view_set(&k.in[0], 2, 7, 5000);
    static const int target[] = {3, 49, 7, -1};
    for (int64_t t = 0; t < 4; t++) view_set(&k.in[1], 0, t, target[t]);
    kcase_outputs(&k);
    for (size_t f = 0; f < sizeof all / sizeof *all; f++) {
        if (!kcase_forward(&k, all[f], 1)) continue;
        assert_true(fabs(view_get(&k.out[0], 0, 0) - 2 * log(V)) < (f ? 1e-6 : 1e-9));
        assert_true(view_get(&k.out[0], 0, 1) == 3);
    }
    kcase_free(&k);
}

/* Of columns that are taken as they are: what is trained, its sign turned, and the gradient is there alone. */
static void test_scores(void **state)
{
    (void)state;
    static const double x[3][2] = {{0.5, 7}, {NAN, -2}, {3, 3}};
    static const int target[3] = {0, 1, -1};
    static const double back[3][2] = {{-0.25, 0}, {0, -0.25}, {0, 0}};
    struct kcase k = {.op = OP_XENT, .dtype = DT_F32, .n_in = 2, .at = ATTRS(vocab, .plain = true)};
    k.in[0] = kcase_tensor(&k, DT_F32, 3, 2);
    k.in[1] = kcase_tensor(&k, DT_I32, 3, 0);
    k.step.loss_scale = 0.25f;
    for (int i = 0; i < 6; i++) view_set(&k.in[0], i / 2, i % 2, x[i / 2][i % 2]);
    for (int t = 0; t < 3; t++) view_set(&k.in[1], 0, t, target[t]);
    kcase_outputs(&k);
    kcase_gradients(&k);
    for (size_t f = 0; f < sizeof all / sizeof *all; f++) {
        const struct kernel_family *of = all[f];
        view_fill_zero(&k.out[0]);
        if (f == 2 && !of->slot[OP_XENT][KERNEL_FWD].run) continue; /* not built in */
        assert_true(kcase_forward(&k, of, 1) && kcase_backward(&k, of, 1));
        assert_true(view_get(&k.out[0], 0, 0) == 2 - 0.5 && view_get(&k.out[0], 0, 1) == 2);
        for (int i = 0; i < 6; i++) assert_true(view_get(&k.din[0], i / 2, i % 2) == back[i / 2][i % 2]);
    }
    kcase_free(&k);
}

/* With weights 1 and biases 0, rows come out with mean square 1, and for LayerNorm mean 0. */
static void test_norms(void **state)
{
    (void)state;
    for (int centred = 0; centred < 2; centred++) {
        enum { D = 31 };
        struct kcase k = {.op = centred ? OP_LAYERNORM : OP_RMSNORM, .dtype = DT_F32, .seed = 8, .n_in = 2 + centred};
        k.at = ATTRS(norm, .eps = 1e-12f);
        k.in[0] = kcase_floats(&k, 5, D, 3);
        for (int i = 1; i < k.n_in; i++) {
            k.in[i] = kcase_tensor(&k, DT_F32, D, 0);
            for (int64_t d = 0; d < D; d++) view_set(&k.in[i], 0, d, i == 1);
        }
        kcase_outputs(&k);
        assert_true(kcase_forward(&k, &kernel_family_ref, 1));
        for (int64_t t = 0; t < 5; t++) {
            double sum = 0, squares = 0;
            for (int64_t d = 0; d < D; d++) {
                double y = view_get(&k.out[0], t, d);
                sum += y;
                squares += y * y;
                double x = view_get(&k.in[0], t, d);
                double mean = centred ? view_get(&k.out[1], t, 0) : 0;
                double rstd = centred ? view_get(&k.out[1], t, 1) : view_get(&k.out[1], 0, t);
                assert_true(fabs((x - mean) * rstd - y) < 1e-5); /* the saved statistics are the ones used */
            }
            assert_true(fabs(squares / D - 1) < 1e-5);
            if (centred) assert_true(fabs(sum) < 1e-4);
        }
        kcase_free(&k);
    }
}

/* A capacity by counting, pick by pick: an expert takes a token when fewer than its number chose it before, at an
 * earlier choice, or at this one and an earlier place of the sequence. */
static bool taken(const struct view *pick, int64_t seq, int64_t capacity, int64_t t, int j)
{
    int64_t before = 0, first = t / seq * seq;
    for (int i = 0; i <= j; i++)
        for (int64_t u = first; u < (i < j ? first + seq : t); u++)
            before += view_get(pick, u, i) == view_get(pick, t, j);
    return before < capacity;
}

/* Rows of each expert by head and tail of each sequence, where a part's rows are shared out over two ranks; with a
 * capacity those that are taken. */
static void check_stretches(const struct kcase *k)
{
    const struct permute_attrs *at = at_permute(&k->at);
    int64_t rows[16][16] = {{0}};
    for (int64_t t = 0; t < k->in[0].n[0]; t++)
        for (int j = 0; j < at->top_k; j++) {
            int64_t place = at->at + t, stretch = 2 * (place / at->rows) + (place % at->rows >= at->head);
            if (view_get(&k->out[1], t, j) >= 0) rows[(int)view_get(&k->in[1], at->tokens.first + t, j)][stretch]++;
        }
    assert_int_equal(k->out[2].n[1], 2 * at->order.sequences);
    for (int64_t e = 0; e < at->experts; e++)
        for (int64_t s = 0; s < k->out[2].n[1]; s++) assert_int_equal((int64_t)view_get(&k->out[2], e, s), rows[e][s]);
}

/* Whoever holds a sequence's tokens, ranks of cp and of tp or one rank alone: the same copies are dropped, and a rank's
 * rows are its own. */
static void test_capacity_is_of_the_sequence(void **state)
{
    (void)state;
    enum { EXPERTS = 3, CHOICES = 2, CAPACITY = 4 };
    int dropped = 0;
    for (int cp = 1; cp <= 4; cp++)
        for (int part = 0; part < cp; part++)
            for (int half = 0; half < 2; half++) { /* of a rank's tokens, as tp would */
                struct kcase k = {.op = OP_PERMUTE, .dtype = DT_F32, .seed = 3, .n_in = 2};
                struct choice choice = {{B, S, 0}, EXPERTS, CHOICES};
                struct view in_order = kcase_picks(&k, B * S, choice);
                int64_t place[B * S], n = 0, before = B * context_rows(S, cp, 0, part),
                                      rows = B * context_rows(S, cp, part, 1);
                for (int r = 0; r < cp; r++)
                    for (int64_t s = 0; s < B; s++)
                        for (int64_t i = 0; i < context_rows(S, cp, r, 1); i++)
                            place[n++] = s * S + context_place(S, cp, r, i);
                int64_t cut = rows / 2, own = half ? rows - cut : cut;
                choice.tokens.first = before + (half ? cut : 0);
                int64_t lo, hi;
                context_chunk(S, cp, part, false, &lo, &hi);
                k.at = ATTRS(permute, EXPERTS, CHOICES, CAPACITY, choice.tokens, .parts = cp, .order = {B, cp, 2},
                             .at = half ? cut : 0, .rows = rows / B, .head = hi - lo);
                k.in[0] = kcase_floats(&k, own, 5, 1);
                k.in[1] = kcase_tensor(&k, DT_I32, B * S, CHOICES);
                for (int64_t t = 0; t < n; t++)
                    for (int j = 0; j < CHOICES; j++) view_set(&k.in[1], t, j, view_get(&in_order, place[t], j));
                kcase_outputs(&k);
                assert_true(kcase_forward(&k, &kernel_family_ref, 1));
                check_stretches(&k);
                for (int64_t t = 0; t < own; t++)
                    for (int j = 0; j < CHOICES; j++) {
                        int64_t row = (int64_t)view_get(&k.out[1], t, j), from = place[choice.tokens.first + t];
                        bool wanted = taken(&in_order, S, CAPACITY, from, j);
                        assert_int_equal(row >= 0, wanted);
                        dropped += !wanted;
                        for (int64_t d = 0; row >= 0 && d < 5; d++)
                            assert_true(view_get(&k.out[0], row, d) == view_get(&k.in[0], t, d));
                    }
                kcase_free(&k);
            }
    assert_true(dropped > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_capacity_is_of_the_sequence),
        cmocka_unit_test(test_masks_one_by_one),
        cmocka_unit_test(test_cache_is_attention_in_pieces),
        cmocka_unit_test(test_biased_cache_is_biased_attention),
        cmocka_unit_test(test_rotary_is_relative),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_activations_of_nan),
        cmocka_unit_test(test_patches),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_insert),
        cmocka_unit_test(test_right),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_norms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
