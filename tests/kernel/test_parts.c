/* SPDX-License-Identifier: Apache-2.0 */
/* Rows on parts of what a model axis splits, put together again, are the whole row: heads of attention (also where a
 * part's query heads begin in the middle of a key head, or a part has none), a table of tokens and cross-entropy by
 * vocabulary, dropout on any choice of rows. Reference and vector families, f32 and bf16; a GPU's too for
 * the loss. */
#include "kernel/harness.h"

#include "layout/region.h"

enum { T = 14, SEQ = 7, A = 8, V = 53, D = 20 };
static const struct kernel_family *const families[] = {&kernel_family_ref, &kernel_family_cpu, &kernel_family_cuda};

static double tolerance(enum dtype t) { return t == DT_F32 ? 2e-5 : 2e-2; }

static void close_to(const char *what, const struct view *got, const struct view *want, int64_t col, double bound)
{
    for (int64_t r = 0; r < view_rows(got); r++)
        for (int64_t c = 0; c < view_cols(got); c++) {
            double a = view_get(got, r, c), b = view_get(want, r, col + c);
            if (!(fabs(a - b) <= bound * (1 + fabs(b))))
                fail_msg("%s: (%d, %d) is %g, wanted %g", what, (int)r, (int)c, a, b);
        }
}

static struct view columns(struct view v, int64_t col, int64_t n)
{
    v.p = (char *)v.p + (size_t)col * dtype_bytes(v.dtype);
    v.n[1] = n;
    return v;
}

/* Memory for gradients of the inputs; kcase_tensor takes no columns for a vector. */
static void gradients(struct kcase *k)
{
    kcase_gradients(k);
    for (int i = 0; i < k->n_in; i++)
        if (k->din[i].p && k->in[i].nd == 2 && k->in[i].n[1] == 0)
            k->din[i] = columns(kcase_tensor(k, k->in[i].dtype, k->in[i].n[0], 1), 0, 0);
}

static void add_into(struct view *sum, const struct view *v)
{
    for (int64_t r = 0; r < view_rows(v); r++)
        for (int64_t c = 0; c < view_cols(v); c++) view_set(sum, r, c, view_get(sum, r, c) + view_get(v, r, c));
}

/* ---- attention: parts have some query heads, and either the key heads they read or all ---- */
static struct kcase attention_case(enum dtype t, int heads, int kv, uint64_t seed)
{
    struct kcase k = {.op = OP_ATTENTION, .dtype = t, .seed = seed, .n_in = 3};
    k.at = ATTRS(attention, .heads = heads, .kv_heads = kv, .head_dim = A, .batch = T / SEQ, .seq = SEQ, .scale = 0.3f,
                 .causal = true, .dropout = {0.25f, 9});
    k.step = (struct step_info){.seed = 7, .step = 3, .first_token = 4 * SEQ, .training = true};
    return k;
}

static void check_heads(const struct kernel_family *f, enum dtype t, int heads, int kv, int parts)
{
    struct kcase k = attention_case(t, heads, kv, (uint64_t)(heads * 64 + kv * 8 + parts));
    for (int i = 0; i < 3; i++) k.in[i] = kcase_floats(&k, T, (i ? kv : heads) * A, 1);
    kcase_outputs(&k);
    gradients(&k);
    assert_true(kcase_forward(&k, f, 1) && kcase_backward(&k, f, 1));
    struct view dk = kcase_tensor(&k, DT_F32, T, kv * A), dv = kcase_tensor(&k, DT_F32, T, kv * A);
    view_fill_zero(&dk);
    view_fill_zero(&dv);
    for (int p = 0; p < parts; p++) {
        int64_t lo, hi;
        region_split(heads, p, parts, &lo, &hi);
        struct kcase q = attention_case(t, (int)(hi - lo), kv, 1);
        struct attention_attrs *at = edit_attention(&q.at);
        at->head_first = (int)lo;
        at->group = heads / kv;
        at->heads_all = heads;
        q.in[0] = columns(k.in[0], lo * A, (hi - lo) * A);
        q.in[1] = k.in[1];
        q.in[2] = k.in[2];
        kcase_outputs(&q);
        gradients(&q);
        q.dout[0] = columns(k.dout[0], lo * A, (hi - lo) * A);
        assert_true(kcase_forward(&q, f, 1) && kcase_backward(&q, f, 1));
        close_to("o", &q.out[0], &k.out[0], lo * A, tolerance(t));
        close_to("dq", &q.din[0], &k.din[0], lo * A, tolerance(t));
        add_into(&dk, &q.din[1]);
        add_into(&dv, &q.din[2]);
        kcase_free(&q);
    }
    close_to("sum of dk", &k.din[1], &dk, 0, 2 * tolerance(t));
    close_to("sum of dv", &k.din[2], &dv, 0, 2 * tolerance(t));
    kcase_free(&k);
}

static void test_heads(void **state)
{
    (void)state;
    static const int shape[][3] = {{6, 6, 4}, {6, 2, 4}, {6, 3, 2}, {3, 1, 4}, {8, 2, 3}, {4, 4, 1}};
    for (size_t f = 0; f < 2; f++)
        for (int t = 0; t < 2; t++)
            for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
                check_heads(families[f], kcase_dtypes[t], shape[i][0], shape[i][1], shape[i][2]);
}

/* ---- vocabulary ---- */
static void check_embed(const struct kernel_family *f, enum dtype t, int parts)
{
    struct kcase k = {.op = OP_EMBED, .dtype = t, .seed = (uint64_t)parts, .n_in = 2, .at = ATTRS(vocab, 0)};
    k.in[0] = kcase_ints(&k, T, 0, V - 1);
    k.in[1] = kcase_floats(&k, V, D, 1);
    kcase_outputs(&k);
    gradients(&k);
    assert_true(kcase_forward(&k, f, 1) && kcase_backward(&k, f, 1));
    struct view sum = kcase_tensor(&k, DT_F32, T, D);
    view_fill_zero(&sum);
    for (int p = 0; p < parts; p++) {
        int64_t lo, hi;
        region_split(V, p, parts, &lo, &hi);
        struct kcase q = {.op = OP_EMBED,
                          .dtype = t,
                          .seed = 1,
                          .n_in = 2,
                          .at = ATTRS(vocab, .first = lo, .whole = V)};
        q.in[0] = k.in[0];
        q.in[1] = k.in[1];
        q.in[1].p = (char *)k.in[1].p + (size_t)(lo * k.in[1].stride) * dtype_bytes(t);
        q.in[1].n[0] = hi - lo;
        kcase_outputs(&q);
        gradients(&q);
        q.dout[0] = k.dout[0];
        assert_true(kcase_forward(&q, f, 1) && kcase_backward(&q, f, 1));
        add_into(&sum, &q.out[0]);
        struct view want = k.din[1];
        want.p = (char *)want.p + (size_t)(lo * want.stride) * sizeof(float);
        close_to("dw", &q.din[1], &want, 0, 1e-6);
        kcase_free(&q);
    }
    close_to("sum of y", &k.out[0], &sum, 0, 0);
    kcase_free(&k);
}

static void check_xent(const struct kernel_family *f, enum dtype t, int64_t vocab, int parts, bool each)
{
    struct kcase k = {.op = OP_XENT, .dtype = t, .seed = (uint64_t)(vocab + parts), .n_in = 2, .at = ATTRS(vocab, 0)};
    k.step = (struct step_info){.loss_scale = 0.5f};
    k.in[0] = kcase_floats(&k, T, vocab, 3);
    k.in[1] = kcase_ints(&k, T, -1, vocab - 1);
    if (each) {
        *edit_vocab(&k.at) = (struct vocab_attrs){.each = T};
        k.in[k.n_in] = kcase_tensor(&k, DT_F32, T, 0);
        view_fill(&k.in[k.n_in++], 7, 8, 1);
    }
    kcase_outputs(&k);
    gradients(&k);
    assert_true(kcase_forward(&k, f, 1) && kcase_backward(&k, f, 1));
    struct view stats = kcase_tensor(&k, DT_F32, parts * T, 3);
    for (int round = 0; round < 2; round++) /* everybody's statistics, then everybody's loss and gradient */
        for (int p = 0; p < parts; p++) {
            int64_t lo, hi;
            region_split(vocab, p, parts, &lo, &hi);
            struct kcase q = {.op = round ? OP_XENT : OP_XENT_PART,
                              .dtype = t,
                              .seed = 1,
                              .n_in = 2 + round,
                              .step = k.step};
            q.at = ATTRS(vocab, .first = lo, .whole = vocab, .n_parts = parts);
            q.in[0] = columns(k.in[0], lo, hi - lo);
            q.in[1] = k.in[1];
            q.in[2] = stats;
            if (each && round) {
                edit_vocab(&q.at)->each = T;
                q.in[q.n_in++] = k.in[2];
            }
            kcase_outputs(&q);
            if (round) gradients(&q);
            assert_true(kcase_forward(&q, f, 1));
            if (!round) {
                for (int i = 0; i < T * 3; i++)
                    view_set(&stats, p * T + i / 3, i % 3, view_get(&q.out[0], i / 3, i % 3));
            } else {
                assert_true(kcase_backward(&q, f, 1));
                close_to("loss", &q.out[0], &k.out[0], 0, 1e-6);
                close_to("dlogits", &q.din[0], &k.din[0], lo, tolerance(t));
            }
            kcase_free(&q);
        }
    kcase_free(&k);
}

static void test_vocabulary(void **state)
{
    (void)state;
    for (size_t f = 0; f < 3; f++)
        for (int t = 0; t < 2; t++)
            for (int parts = 1; parts <= 5; parts++) {
                if (f < 2) check_embed(families[f], kcase_dtypes[t], parts);
                if (f == 2 && !families[f]->slot[OP_XENT][KERNEL_FWD].run) continue; /* not built in */
                for (int each = 0; each < 2; each++) check_xent(families[f], kcase_dtypes[t], V, parts, each);
                check_xent(families[f], kcase_dtypes[t], 3, parts, false); /* parts without a column */
            }
}

/* ---- dropout by index ---- */
static void check_index(const struct kernel_family *f, enum op op)
{
    struct kcase k = {.op = op, .dtype = DT_F32, .seed = 5, .n_in = op == OP_ADD ? 2 : 1};
    k.at = ATTRS(dropout, .p = 0.4f, .stream = 3);
    k.step = (struct step_info){.seed = 7, .step = 3, .first_token = 96, .training = true};
    for (int i = 0; i < k.n_in; i++) k.in[i] = kcase_floats(&k, T, D, 1);
    kcase_outputs(&k);
    gradients(&k);
    assert_true(kcase_forward(&k, f, 1) && kcase_backward(&k, f, 1));
    static const int rows[] = {9, 0, 13, 4, 5};
    struct kcase q = {.op = op, .dtype = DT_F32, .seed = 1, .n_in = k.n_in + 1, .at = k.at, .step = k.step};
    for (int i = 0; i < k.n_in; i++) q.in[i] = kcase_tensor(&q, DT_F32, 5, D);
    q.in[k.n_in] = kcase_tensor(&q, DT_I32, 5, 0);
    for (int r = 0; r < 5; r++) {
        view_set(&q.in[k.n_in], 0, r, rows[r]);
        for (int i = 0; i < k.n_in; i++)
            for (int d = 0; d < D; d++) view_set(&q.in[i], r, d, view_get(&k.in[i], rows[r], d));
    }
    kcase_outputs(&q);
    gradients(&q);
    for (int r = 0; r < 5; r++)
        for (int d = 0; d < D; d++) view_set(&q.dout[0], r, d, view_get(&k.dout[0], rows[r], d));
    assert_true(kcase_forward(&q, f, 1) && kcase_backward(&q, f, 1));
    for (int r = 0; r < 5; r++)
        for (int d = 0; d < D; d++) {
            assert_true(view_get(&q.out[0], r, d) == view_get(&k.out[0], rows[r], d));
            for (int i = 0; i < k.n_in; i++) assert_true(view_get(&q.din[i], r, d) == view_get(&k.din[i], rows[r], d));
        }
    kcase_free(&q);
    kcase_free(&k);
}

static void test_index(void **state)
{
    (void)state;
    for (size_t f = 0; f < 2; f++) {
        check_index(families[f], OP_ADD);
        check_index(families[f], OP_DROPOUT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_heads), cmocka_unit_test(test_vocabulary),
                                       cmocka_unit_test(test_index)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
