/* SPDX-License-Identifier: Apache-2.0 */
/* test_carry.c: a row that a device has no kernel for, carried to the host: every row and phase gives the bits of the
 * reference from addresses that fault where they are touched, also where operands share memory, and writes nothing
 * between its rows. Whole trainings on a device without a kernel: golden/test_losses (bare). */
#include "rows.h"

#include "kernel/flat.h"
#include "kernel/update.h"

enum { CARRIED_CASES = 12 };

struct there {
    struct device *d;
    struct stream *s;
    struct kernel_table t;
};

static void open_there(struct there *x, const char *chain)
{
    struct err e;
    assert_int_equal(device_open(&x->d, DEVICE_BARE, 2, &e), OK);
    assert_int_equal(stream_new(&x->s, x->d, "compute", &e), OK);
    assert_int_equal(kernel_table_of(&x->t, x->d, chain, 2, &e), OK);
    kernel_on(x->s, &x->t);
}

static void close_there(struct there *x)
{
    stream_free(x->s);
    device_free(x->d);
}

/* The same bytes by an address that faults. */
static void hide(struct view *v, int n)
{
    for (int i = 0; i < n; i++)
        if (v[i].p) v[i].p = (void *)((uintptr_t)v[i].p | DEVICE_FAULTS);
}

static void enqueue(struct there *x, struct kernel_call *c)
{
    hide(c->in, KERNEL_MAX_IN);
    hide(c->out, KERNEL_MAX_OUT);
    hide(c->dout, KERNEL_MAX_OUT);
    hide(c->din, KERNEL_MAX_IN);
    hide(c->acc, KERNEL_MAX_IN);
    c->scratch_bytes = kernel_scratch(&x->t, c);
    assert_int_equal(c->scratch_bytes, 0);
    kernel_enqueue(x->s, c);
}

static void all_same(struct kcase *k, const struct view *got, const struct view *want, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (got[i].p) same(k, &got[i], &want[i], "carried", what, i);
}

/* Inputs that a call changes are as they were before it runs again. */
static void forward(struct there *x, struct kcase *k, struct view out[KERNEL_MAX_OUT])
{
    struct view before[KERNEL_MAX_IN] = {{0}}, after[KERNEL_MAX_IN] = {{0}};
    bool changes = op_row(k->op)->changes_in;
    if (changes) clone_all(k, before, k->in, k->n_in);
    assert_true(kcase_forward(k, &kernel_family_ref, 1));
    clone_all(k, out, k->out, k->n_out);
    if (changes) clone_all(k, after, k->in, k->n_in);
    for (int i = 0; changes && i < k->n_in; i++)
        if (before[i].p) view_copy(&k->in[i], &before[i]);
    for (int i = 0; i < k->n_out; i++) view_spoil(&k->out[i]);
    struct kernel_call c = kcase_call(k, KERNEL_FWD);
    if (k->op == OP_ROTARY) { /* in place */
        view_copy(&k->out[0], &k->in[0]);
        c.in[0] = c.out[0];
    }
    if (kcase_is_root(k->op)) view_fill_zero(&k->out[0]);
    enqueue(x, &c);
    kcase_check_gaps(k);
    all_same(k, k->out, out, k->n_out, "output");
    if (changes) all_same(k, k->in, after, k->n_in, "input");
}

static void backward(struct there *x, struct kcase *k, enum kernel_phase phase, const struct view *out)
{
    struct view din[KERNEL_MAX_IN] = {{0}};
    for (int i = 0; i < k->n_out; i++) view_copy(&k->out[i], &out[i]);
    for (int i = 0; i < k->n_in; i++)
        if (k->din[i].p) view_spoil(&k->din[i]);
    if (!kcase_backward_phase(k, phase, &kernel_family_ref, 1)) return;
    clone_all(k, din, k->din, k->n_in);
    for (int i = 0; i < k->n_in; i++)
        if (k->din[i].p) view_spoil(&k->din[i]);
    struct kernel_call c = kcase_call(k, phase);
    assert_true(hide_unsaved(&c));
    enqueue(x, &c);
    kcase_check_gaps(k);
    all_same(k, k->din, din, k->n_in, "gradient");
}

static void test_every_row_has_the_bits_of_ref(void **state)
{
    (void)state;
    struct there x;
    open_there(&x, "ref");
    for (int op = 0; op < OP_FIRST_COLLECTIVE; op++)
        for (int t = 0; t < 3; t++)
            for (uint64_t seed = 0; seed < CARRIED_CASES; seed++) {
                struct kcase k;
                struct view out[KERNEL_MAX_OUT];
                kcase_random(&k, (enum op)op, kcase_dtypes[t], seed);
                forward(&x, &k, out);
                backward(&x, &k, KERNEL_BWD_IN, out);
                backward(&x, &k, KERNEL_BWD_W, out);
                kcase_free(&k);
            }
    close_there(&x);
}

/* Which family takes a call is what a plan prints; what nobody computes has no way. */
static void test_it_is_named(void **state)
{
    (void)state;
    struct there x;
    for (int i = 0; i < 2; i++) {
        open_there(&x, i ? "auto" : "ref");
        struct kernel_call c = cast_call(NULL, DT_BF16, NULL, DT_F32, 4);
        const char *family = NULL;
        const struct kernel_slot *s = kernel_find(&x.t, &c, &family);
        assert_true(kernel_is_carried(s));
        assert_string_equal(family, "carried");
        assert_string_equal(s->way, i ? "on the host: auto" : "on the host: ref");
        c.phase = KERNEL_BWD_IN;
        assert_null(kernel_find(&x.t, &c, NULL));
        close_there(&x);
    }
}

/* ---- operands that share memory ---- */
enum { N = 300 };

static void fill(float *v, int n)
{
    for (int i = 0; i < n; i++) v[i] = (float)(i * 37 % 101 - 50) * 0.125f;
}

static void test_shared_memory_stays_shared(void **state)
{
    (void)state;
    struct there x;
    struct kernel_table ref;
    struct err e;
    float want[4 * N], got[4 * N];
    assert_int_equal(kernel_table_init(&ref, "ref", 1, false, &e), OK);
    open_there(&x, "ref");
    for (int i = 0; i < 4; i++) {
        for (int there = 0; there < 2; there++) {
            float *v = there ? got : want;
            fill(v, 4 * N);
            struct update_args a = {.kind = UPDATE_SGD,
                                    .n = N,
                                    .f = {[SGD_LR] = 0.5f, [SGD_SCALE] = 2, [SGD_MOMENTUM] = 0.5f}};
            a.at[SGD_MASTER] = a.at[SGD_PARAM] = (struct update_operand){v, DT_F32};
            a.at[SGD_M] = (struct update_operand){v + N, DT_F32};
            a.at[SGD_GRAD] = (struct update_operand){v + 2 * N, DT_F32};
            struct kernel_call c = i == 0   ? sum_tree_call(v + N, v, 4, N) /* to one of the parts */
                                   : i == 1 ? sum_into_call(v, DT_F32, v + N / 2, DT_F32, N / 2, true)
                                   : i == 2 ? cast_call(v, DT_BF16, v + 2 * N, DT_F32, N)
                                            : update_call(&a);
            if (there) enqueue(&x, &c);
            else kernel_run(&ref, &c);
        }
        assert_memory_equal(want, got, sizeof want);
    }
    close_there(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_has_the_bits_of_ref),
        cmocka_unit_test(test_it_is_named),
        cmocka_unit_test(test_shared_memory_stays_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
