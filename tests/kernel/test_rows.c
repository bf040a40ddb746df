/* SPDX-License-Identifier: Apache-2.0 */
/* Every row of every family held against the reference: forward outputs and all gradients within the stated part of the
 * largest element. What else holds of each is in test_rows_itself.c.
 *
 * A family is run slot by slot; slots that are empty or do not accept a call are left out (they fall through to
 * the next family in use, too). A case and its reference are made once for all families. */
#include "drawn.h"
#include "rows.h"

/* What the reference says of a case. */
struct wanted {
    struct view out[KERNEL_MAX_OUT], din[KERNEL_MAX_IN], before[2], after[2]; /* of caches */
    double sizes; /* output 0 with all values of V positive, its largest; 0: output 0 is no sum over keys */
};

/* Of a part attention's result is f32, and its probabilities are bf16 on the way into a matrix product: the error is a
 * part of what is summed, also where values of both signs leave little of the sum (a head of one column has no other to
 * be measured by). */
static bool sums_over_keys(const struct kcase *k) { return k->op == OP_ATTENTION_PART && k->dtype == DT_BF16; }

static double sum_of_sizes(struct kcase *k)
{
    struct view *v = &k->in[2], keep = kcase_clone(k, v);
    for (int64_t r = 0; r < view_rows(v); r++)
        for (int64_t c = 0; c < view_cols(v); c++) view_set(v, r, c, fabs(view_get(v, r, c)));
    assert_true(forward_ref(k));
    double sizes = view_max(&k->out[0]);
    view_copy(v, &keep);
    return sizes;
}

static void ask_reference(struct kcase *k, struct wanted *w)
{
    *w = (struct wanted){0};
    if (op_row(k->op)->changes_in) clone_all(k, w->before, &k->in[4], 2);
    if (sums_over_keys(k)) w->sizes = sum_of_sizes(k);
    assert_true(forward_ref(k));
    clone_all(k, w->out, k->out, k->n_out);
    if (op_row(k->op)->changes_in) clone_all(k, w->after, &k->in[4], 2);
    if (!op_row(k->op)->has_backward) return;
    assert_true(kcase_backward(k, &kernel_family_ref, 1));
    clone_all(k, w->din, k->din, k->n_in);
}

static int forward(struct kcase *k, const struct wanted *w, const struct kernel_family *f)
{
    bool cached = op_row(k->op)->changes_in;
    for (int i = 0; cached && i < 2; i++)
        if (w->before[i].p) view_copy(&k->in[4 + i], &w->before[i]);
    for (int i = 0; i < k->n_out; i++) view_spoil(&k->out[i]);
    if (!kcase_forward(k, f, 2)) return 0;
    kcase_check_gaps(k);
    double largest = view_max(&w->out[0]), part = w->sizes > largest && largest > 0 ? w->sizes / largest : 1;
    for (int i = 0; i < k->n_out; i++) near(k, &k->out[i], &w->out[i], f->name, "output", i, i ? 1 : part);
    for (int i = 0; cached && i < 2; i++)
        if (!w->after[i].p) continue;
        else if (k->op == OP_SCAN_CACHED) near(k, &k->in[4 + i], &w->after[i], f->name, "cache", i, 1);
        else same(k, &k->in[4 + i], &w->after[i], f->name, "cache", i);
    return 1;
}

static int backward(struct kcase *k, const struct wanted *w, const struct kernel_family *f)
{
    int ran = 0;
    for (int i = 0; i < k->n_out; i++) view_copy(&k->out[i], &w->out[i]);
    for (int phase = KERNEL_BWD_IN; phase <= KERNEL_BWD_W; phase++) {
        for (int i = 0; i < k->n_in; i++)
            if (k->din[i].p) view_spoil(&k->din[i]);
        if (!kcase_backward_phase(k, (enum kernel_phase)phase, f, 2)) continue;
        ran++;
        kcase_check_gaps(k);
        unsigned mask = phase == KERNEL_BWD_W ? op_row(k->op)->weight_in : op_row(k->op)->grad_in;
        for (int i = 0; i < k->n_in; i++)
            if (k->din[i].p && mask >> i & 1 && !(negligible(&w->din[i]) && negligible(&k->din[i])))
                near(k, &k->din[i], &w->din[i], f->name, "gradient", i, 1);
    }
    return ran;
}

static void test_against_reference(void **state)
{
    (void)state;
    int ran[N_FAMILIES] = {0};
    for (int op = 0; op < OP_FIRST_COLLECTIVE; op++)
        for (int t = 0; t < 3; t++)
            for (uint64_t seed = 0; seed < CASES; seed++) {
                if (!drawn_here((int64_t)seed, 2)) continue; /* every day half of them */
                struct kcase k;
                struct wanted w;
                kcase_random(&k, (enum op)op, kcase_dtypes[t], seed);
                ask_reference(&k, &w);
                for (int f = first_family(); f < N_FAMILIES; f++) {
                    ran[f] += forward(&k, &w, families[f]);
                    if (op_row((enum op)op)->has_backward) ran[f] += backward(&k, &w, families[f]);
                }
                kcase_free(&k);
            }
    for (int f = first_family(); f < N_FAMILIES; f++)
        print_message("  %-24s %5d calls at %s\n", families[f]->name, ran[f], isa_name(cpu_isa()));
    if (first_family() == 0) assert_true(ran[0] > OP_FIRST_COLLECTIVE * 3 * drawn_number(CASES, 2));
}

static int run_group(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return run_for_each_isa(run_group); }
