/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* Every row of every family held against itself in other conditions.
 *
 *   acc          absent, in place, in another buffer: the same gradient on top of what was there
 *   in place     din shares memory with dout (or with the logits) where the row allows it: the same bits
 *   wanted       a gradient that is not wanted is not needed for the others: the same bits
 *   linear       backward of 2 dy1 + dy2 is 2 backward(dy1) + backward(dy2)
 *   threads      1, 2 and 3 threads: the same bits
 *   rows         some rows by themselves, then the others, where the table says so: the same bits */
#include "drawn.h"
#include "rows.h"

static bool fills(const struct kernel_family *f, enum op op, enum kernel_phase phase)
{
    return f->slot[op][phase].run || f->slot[op][phase].choose;
}

/* acc in three forms. `before` is what was there; the sum is compared with tolerance because it rounds once more. */
static void accumulates(struct kcase *k, const struct kernel_family *f, const struct view *plain)
{
    for (int form = 0; form < 2; form++) {
        struct view before[KERNEL_MAX_IN] = {0};
        for (int i = 0; i < k->n_in; i++) {
            if (!k->din[i].p) continue;
            view_fill(&k->din[i], k->seed, 50 + (uint64_t)i, 0.7);
            before[i] = kcase_clone(k, &k->din[i]);
            k->acc[i] = form ? before[i] : k->din[i];
            if (form) view_spoil(&k->din[i]);
        }
        kcase_backward(k, f, 2);
        kcase_check_gaps(k);
        for (int i = 0; i < k->n_in; i++) {
            unsigned mask = (fills(f, k->op, KERNEL_BWD_IN) ? op_row(k->op)->grad_in : 0u) |
                            (fills(f, k->op, KERNEL_BWD_W) ? op_row(k->op)->weight_in : 0u);
            if (!k->din[i].p || !(mask >> i & 1)) continue;
            struct view sum = kcase_clone(k, &before[i]);
            for (int64_t r = 0; r < view_rows(&sum); r++)
                for (int64_t c = 0; c < view_cols(&sum); c++)
                    view_set(&sum, r, c, view_get(&before[i], r, c) + view_get(&plain[i], r, c));
            near(k, &k->din[i], &sum, f->name, form ? "acc elsewhere" : "acc in place", i, 1);
        }
    }
    memset(k->acc, 0, sizeof k->acc);
}

/* dout (XENT: the logits) and din[0] in one place. */
static void shares_memory(struct kcase *k, const struct kernel_family *f, const struct view *plain)
{
    struct view *shared = k->op == OP_XENT ? &k->in[0] : &k->dout[0];
    struct view din0 = k->din[0], kept = kcase_clone(k, shared);
    k->din[0] = *shared;
    kcase_backward_phase(k, KERNEL_BWD_IN, f, 2);
    for (int i = 0; i < k->n_in; i++)
        if (k->din[i].p) same(k, &k->din[i], &plain[i], f->name, "in place", i);
    view_copy(shared, &kept);
    k->din[0] = din0;
}

static void only_what_is_wanted(struct kcase *k, const struct kernel_family *f, const struct view *plain)
{
    struct view all[KERNEL_MAX_IN];
    memcpy(all, k->din, sizeof all);
    for (int i = 0; i < k->n_in; i++) {
        if (!all[i].p) continue;
        for (int j = 0; j < k->n_in; j++) k->din[j].p = j == i ? all[j].p : NULL;
        view_spoil(&k->din[i]);
        kcase_backward(k, f, 2);
        same(k, &k->din[i], &plain[i], f->name, "alone", i);
        memcpy(k->din, all, sizeof all);
    }
}

/* A quarter of each in parts of 64, up to one half: sums of a few of them round in no type, so that what cancels in a
 * sum over them cancels the same way in both. */
static void in_parts_of_64(struct view *v)
{
    for (int64_t r = 0; r < view_rows(v); r++)
        for (int64_t c = 0; c < view_cols(v); c++) {
            double x = view_get(v, r, c);
            view_set(v, r, c, (double)(int)(fmax(-2, fmin(2, x)) * 16) / 64);
        }
}

static void is_linear(struct kcase *k, const struct kernel_family *f)
{
    struct view kept = kcase_clone(k, &k->dout[0]), plain[KERNEL_MAX_IN] = {0}, first[KERNEL_MAX_IN] = {0}, dy2 = kept;
    in_parts_of_64(&k->dout[0]);
    struct view dy1 = kcase_clone(k, &k->dout[0]);
    kcase_backward(k, f, 1);
    clone_all(k, plain, k->din, k->n_in);
    kcase_memory(k, &dy2);
    view_fill(&dy2, k->seed, 77, 1);
    in_parts_of_64(&dy2);
    view_copy(&k->dout[0], &dy2);
    kcase_backward(k, f, 1);
    clone_all(k, first, k->din, k->n_in);
    for (int64_t r = 0; r < view_rows(&dy1); r++)
        for (int64_t c = 0; c < view_cols(&dy1); c++)
            view_set(&k->dout[0], r, c, 2 * view_get(&dy1, r, c) + view_get(&dy2, r, c));
    kcase_backward(k, f, 1);
    for (int i = 0; i < k->n_in; i++) {
        if (!k->din[i].p) continue;
        for (int64_t r = 0; r < view_rows(&first[i]); r++)
            for (int64_t c = 0; c < view_cols(&first[i]); c++)
                view_set(&first[i], r, c, view_get(&first[i], r, c) + 2 * view_get(&plain[i], r, c));
        if (negligible(&first[i]) && negligible(&k->din[i])) continue;
        near(k, &k->din[i], &first[i], f->name, "linear in dy", i, 4);
    }
    view_copy(&k->dout[0], &kept);
}

/* A family that fills backward must accept all it is asked here, or nothing: else there is nothing to compare. */
static bool takes_backward(struct kcase *k, const struct kernel_family *f)
{
    const struct op_row *row = op_row(k->op);
    for (int phase = KERNEL_BWD_IN; phase <= KERNEL_BWD_W; phase++) {
        if (!(phase == KERNEL_BWD_W ? row->weight_in : row->grad_in)) continue;
        struct kernel_call c = kcase_call(k, (enum kernel_phase)phase);
        if (!kernel_way(f, &c)) return false;
    }
    return row->has_backward;
}

static void cut_view(struct view *v, int64_t lo, int64_t hi)
{
    if (!v->nd) return;
    if (v->p) v->p = (char *)v->p + to_size(lo * (v->nd > 1 ? v->stride : 1)) * dtype_bytes(v->dtype);
    v->n[0] = hi - lo;
}

static void run_rows(const struct kcase *k, enum kernel_phase phase, const struct kernel_family *f, int64_t lo,
                     int64_t hi)
{
    const struct op_row *row = op_row(k->op);
    struct kernel_call c = kcase_call(k, phase);
    if (k->op == OP_ROTARY && phase == KERNEL_FWD) c.in[0] = c.out[0];
    for (int i = 0; i < KERNEL_MAX_IN; i++) {
        if (!(row->row_in >> i & 1)) continue;
        cut_view(&c.in[i], lo, hi);
        cut_view(&c.din[i], lo, hi);
        cut_view(&c.acc[i], lo, hi);
    }
    for (int i = 0; i < KERNEL_MAX_OUT; i++) {
        if (!(row->row_out >> i & 1)) continue;
        cut_view(&c.out[i], lo, hi);
        cut_view(&c.dout[i], lo, hi);
    }
    assert_true(kcase_run(&c, f, 2));
}

/* Where to cut, 0: nowhere. A few rows are multiplied in another way, which adds in another order; the library's order
 * is its own. */
static int64_t cut_at(const struct kcase *k, const struct kernel_family *f)
{
    int64_t rows = k->in[0].n[0], at = rows / 3;
    bool counts = (k->op == OP_ADD || k->op == OP_DROPOUT) && at_dropout(&k->at)->p > 0;
    if (!op_row(k->op)->row_in || rows < 3 || (counts && !k->in[k->op == OP_ADD ? 2 : 1].p)) return 0;
    if (k->op != OP_LINEAR || f == &kernel_family_ref) return at;
    return f == &kernel_family_onednn || rows < 66 ? 0 : at < 33 ? 33 : at;
}

static int by_rows(enum op op, enum dtype dtype, uint64_t seed, const struct kernel_family *f)
{
    struct kcase k;
    struct view out[KERNEL_MAX_OUT] = {0}, din[KERNEL_MAX_IN] = {0};
    kcase_random(&k, op, dtype, seed);
    int64_t at = cut_at(&k, f), rows = k.in[0].n[0];
    int ran = 0;
    if (at && kcase_forward(&k, f, 2)) {
        clone_all(&k, out, k.out, k.n_out);
        for (int i = 0; i < k.n_out; i++) view_spoil(&k.out[i]);
        if (op == OP_ROTARY) view_copy(&k.out[0], &k.in[0]);
        run_rows(&k, KERNEL_FWD, f, at, rows);
        run_rows(&k, KERNEL_FWD, f, 0, at);
        for (int i = 0; i < k.n_out; i++) same(&k, &k.out[i], &out[i], f->name, "output by rows", i);
        ran++;
    }
    if (at) assert_true(forward_ref(&k));
    if (at && takes_backward(&k, f) && kcase_backward_phase(&k, KERNEL_BWD_IN, f, 2)) {
        clone_all(&k, din, k.din, k.n_in);
        for (int i = 0; i < k.n_in; i++)
            if (k.din[i].p && op_row(op)->grad_in >> i & 1) view_spoil(&k.din[i]);
        run_rows(&k, KERNEL_BWD_IN, f, at, rows);
        run_rows(&k, KERNEL_BWD_IN, f, 0, at);
        for (int i = 0; i < k.n_in; i++)
            if (k.din[i].p) same(&k, &k.din[i], &din[i], f->name, "gradient by rows", i);
        ran++;
    }
    kcase_free(&k);
    return ran;
}

static void test_by_rows(void **state)
{
    (void)state;
    for (int fam = first_family(); fam < N_FAMILIES; fam++) {
        int ran = 0;
        for (int op = 0; op < OP_FIRST_COLLECTIVE; op++)
            for (int t = 0; t < 3; t++)
                for (uint64_t seed = 0; seed < CASES / 3; seed++)
                    if (drawn_here((int64_t)seed, 2)) ran += by_rows((enum op)op, kcase_dtypes[t], seed, families[fam]);
        if (fam == 0)
            assert_true(
                ran > 9 * drawn_number(CASES / 3, 2)); /* LINEAR, two norms, ROTARY, ACT, ADD, DROPOUT, MLA_KV, TRIM */
    }
}

static void against_itself(enum op op, enum dtype dtype, uint64_t seed, const struct kernel_family *f)
{
    struct kcase k;
    struct view plain[KERNEL_MAX_IN] = {0}, out[KERNEL_MAX_OUT] = {0}, kept = {0};
    kcase_random(&k, op, dtype, seed);
    if (op_row(op)->changes_in) kept = kcase_clone(&k, &k.in[4]);
    for (int threads = 1; threads <= 3 && kcase_forward(&k, f, threads); threads++) {
        if (kept.p) view_copy(&k.in[4], &kept); /* what was written is where it goes on from */
        if (threads == 1) clone_all(&k, out, k.out, k.n_out);
        for (int i = 0; i < k.n_out; i++) same(&k, &k.out[i], &out[i], f->name, "output by other threads", i);
    }
    assert_true(forward_ref(&k));
    if (takes_backward(&k, f)) {
        for (int threads = 1; threads <= 3; threads++) {
            kcase_backward(&k, f, threads);
            if (threads == 1) clone_all(&k, plain, k.din, k.n_in);
            for (int i = 0; i < k.n_in; i++)
                if (k.din[i].p) same(&k, &k.din[i], &plain[i], f->name, "gradient by other threads", i);
        }
        accumulates(&k, f, plain);
        only_what_is_wanted(&k, f, plain);
        if (op_row(op)->inplace_bwd && k.din[0].p) shares_memory(&k, f, plain);
        if (!kcase_is_root(op)) is_linear(&k, f);
    }
    kcase_free(&k);
}

/* XENT's forward adds to what the caller left in stat. */
static void test_loss_accumulates(void **state)
{
    (void)state;
    for (int fam = first_family(); fam < N_FAMILIES; fam++)
        for (uint64_t seed = 0; seed < 6; seed++) {
            struct kcase k;
            kcase_random(&k, OP_XENT, DT_F32, seed);
            if (kcase_forward(&k, families[fam], 2)) {
                double nats = view_get(&k.out[0], 0, 0), tokens = view_get(&k.out[0], 0, 1);
                view_set(&k.out[0], 0, 0, 10);
                view_set(&k.out[0], 0, 1, 3);
                struct kernel_call c = kcase_call(&k, KERNEL_FWD);
                assert_true(kcase_run(&c, families[fam], 2));
                assert_true(fabs(view_get(&k.out[0], 0, 0) - nats - 10) < 1e-9);
                assert_true(view_get(&k.out[0], 0, 1) == tokens + 3);
            }
            kcase_free(&k);
        }
}

static void test_against_itself(void **state)
{
    (void)state;
    for (int fam = first_family(); fam < N_FAMILIES; fam++)
        for (int op = 0; op < OP_FIRST_COLLECTIVE; op++)
            for (int t = 0; t < 3; t++)
                for (uint64_t seed = 0; seed < CASES / 3; seed++)
                    if (drawn_here((int64_t)seed, 2)) against_itself((enum op)op, kcase_dtypes[t], seed, families[fam]);
}

static int run_group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_itself),
        cmocka_unit_test(test_by_rows),
        cmocka_unit_test(test_loss_accumulates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return run_for_each_isa(run_group); }
