/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* test_vec_rows.c: every vector kernel, in both builds, against the reference: random values, odd widths, strided
 * rows, fp32 and bf16, gradients that start from nothing, in place and from elsewhere, teams of 1 to 3. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "kernel/cpu/build.h"
#include "kernel/cpuid.h"
#include "kernel/vec_call.h"

static const struct step_info step = {.seed = 11, .step = 3, .first_token = 37, .training = true, .loss_scale = 0.25f};

/* The tolerance of one result: a bf16 result may round the other way (one unit, 2^-7 at most), a float sum has a few
 * roundings. */
static double rtol_of(enum dtype t) { return t == DT_BF16 ? 0x1.02p-7 : 4e-6; }

struct shape {
    int64_t t, d;
};
static const struct shape shapes[] = {{1, 1}, {3, 7}, {5, 16}, {2, 33}, {67, 64}, {130, 95}, {9, 768}, {1, 1000}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static struct view matrix(enum dtype t, int64_t rows, int64_t cols)
{
    return (struct view){.dtype = t, .nd = 2, .n = {rows, cols}};
}
static struct view vector(enum dtype t, int64_t n) { return (struct view){.dtype = t, .nd = 1, .n = {n}}; }

/* Allocates the inputs (shapes set by the caller) and the outputs, fills the inputs, runs ref forward. */
static void call_forward(struct kernel_call *c, double size, int64_t gap)
{
    c->step = &step;
    c->phase = KERNEL_FWD;
    for (int i = 0; i < c->n_in; i++) {
        if (c->in[i].p) continue;
        view_alloc(&c->in[i], gap);
        view_random(&c->in[i], 20 + (uint64_t)i, size);
    }
    const struct op_row *row = op_row(c->op);
    const char *why = row->infer(&c->at, c->n_in, c->in, c->out);
    if (why) fail_msg("%s: %s", row->name, why);
    c->n_out = row->n_out;
    for (int i = 0; i < c->n_out; i++) {
        view_alloc(&c->out[i], c->op == OP_ROTARY ? c->in[0].stride - c->in[0].n[1] : gap);
        if (c->op == OP_XENT) memset(c->out[i].p, 0, 16);
    }
    slot_run(&kernel_family_ref.slot[c->op][KERNEL_FWD], c, NULL);
    if (c->op == OP_XENT) memset(c->out[0].p, 0, 16);
}

/* Build i; NULL: there are no more that this CPU runs. */
static const struct cpu_build *build(int i)
{
    const struct cpu_build *b = cpu_build_at(i);
    return b && b->needs <= cpu_isa() ? b : NULL;
}

/* All builds, one phase, all ways to accumulate. */
static void check(const struct kernel_call *forward, enum kernel_phase phase, double atol)
{
    for (int mode = 0; mode < (phase == KERNEL_FWD ? 1 : ACC_N); mode++) {
        struct kernel_call c = call_fresh(forward);
        if (phase != KERNEL_FWD) call_backward(&c, phase, mode, 3);
        enum dtype t = phase == KERNEL_BWD_W ? DT_F32 : c.op == OP_EMBED ? c.in[1].dtype : c.in[0].dtype;
        if (c.op == OP_COPY) t = phase == KERNEL_FWD ? c.out[0].dtype : c.din[0].dtype;
        struct kernel_call want = call_reference(&c);
        for (int b = 0; build(b); b++) {
            const struct kernel_slot *s = cpu_build_slot(build(b), c.op, phase);
            assert_true(s->accepts(&c));
            double e = call_compare(&c, &want, s, atol, rtol_of(t));
            if (!(e <= 1))
                fail_msg("%s %s phase %d acc %d %s [%lld %lld]: error %.3g of the tolerance", s->way,
                         op_row(c.op)->name, (int)phase, mode, dtype_name(t), (long long)c.in[0].n[0],
                         (long long)c.in[0].n[1], e);
        }
        call_free(&want);
        call_free(&c);
    }
}

static void norms_match_reference(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++)
        for (int t = DT_F32; t <= DT_BF16; t++)
            for (int op = OP_RMSNORM; op <= OP_LAYERNORM; op++) {
                struct kernel_call c = {.op = op, .at = ATTRS(norm, .eps = 1e-5f), .n_in = op == OP_RMSNORM ? 2 : 3};
                c.in[0] = matrix(t, shapes[i].t, shapes[i].d);
                c.in[1] = c.in[2] = vector(t, shapes[i].d);
                call_forward(&c, 1.5, 5);
                double d = (double)shapes[i].d;
                check(&c, KERNEL_FWD, 3e-6);
                check(&c, KERNEL_BWD_IN, d < 3 ? 1e-2 : 1e-5 * sqrt(d)); /* one column: 0 = a difference of equals */
                check(&c, KERNEL_BWD_W, 1e-5 * sqrt((double)shapes[i].t));
                call_free(&c);
            }
}

static void activations_match_reference(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++)
        for (int t = DT_F32; t <= DT_BF16; t++)
            for (int act = 0; act < ACT_N; act++) {
                struct kernel_call c = {.op = OP_ACT, .at = ATTRS(act, .kind = act, .cap = 2), .n_in = 1};
                c.in[0] = matrix(t, shapes[i].t, act_gated((enum act_kind)act) ? 2 * shapes[i].d : shapes[i].d);
                call_forward(&c, 4, 2);
                check(&c, KERNEL_FWD, 1e-7);
                check(&c, KERNEL_BWD_IN, 4e-6);
                call_free(&c);
            }
}

static void activations_survive_extremes(void **state)
{
    (void)state;
    static const float extreme[] = {-INFINITY, -1e30f, -300, -88, -20, -0.0f, 0, 1e-30f, 20, 88, 300, 1e30f};
    enum { N = sizeof extreme / sizeof *extreme };
    struct kernel_call c = {.op = OP_ACT, .at = ATTRS(act, ACT_GELU), .n_in = 1};
    c.in[0] = matrix(DT_F32, 1, N);
    view_alloc(&c.in[0], 0);
    for (int i = 1; i < N; i++) view_set(&c.in[0], 0, i, (double)extreme[i]);
    view_set(&c.in[0], 0, 0, -500); /* gelu(-inf) is a limit, not a value: the formula gives NaN in ref as well */
    call_forward(&c, 1, 0);
    check(&c, KERNEL_FWD, 1e-7);
    view_set(&c.in[0], 0, N - 1, 0); /* the slope's x^3 overflows past 1e12 */
    view_set(&c.in[0], 0, 1, 0);
    check(&c, KERNEL_BWD_IN, 4e-6);
    call_free(&c);
}

static void residuals_and_dropout_match_reference(void **state)
{
    (void)state;
    static const float rates[] = {0, 0.1f, 0.9f};
    for (int i = 0; i < N_SHAPES; i++)
        for (int t = DT_F32; t <= DT_BF16; t++)
            for (int p = 0; p < 3; p++) {
                struct kernel_call c = {.op = OP_ADD, .at = ATTRS(dropout, .p = rates[p], .stream = 99), .n_in = 2};
                c.in[0] = c.in[1] = matrix(t, shapes[i].t, shapes[i].d);
                call_forward(&c, 1, 1);
                check(&c, KERNEL_FWD, 1e-6);
                check(&c, KERNEL_BWD_IN, 1e-6);
                call_free(&c);
                struct kernel_call d = {.op = OP_DROPOUT, .at = c.at, .n_in = 1};
                d.in[0] = matrix(t, shapes[i].t, shapes[i].d);
                call_forward(&d, 1, 1);
                check(&d, KERNEL_FWD, 1e-6);
                check(&d, KERNEL_BWD_IN, 1e-6);
                call_free(&d);
            }
}

static void embedding_matches_reference(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++)
        for (int t = DT_F32; t <= DT_BF16; t++) {
            struct kernel_call c = {.op = OP_EMBED, .at = ATTRS(vocab, 0), .n_in = 2};
            c.in[0] = vector(DT_I32, shapes[i].t);
            c.in[1] = matrix(t, 11, shapes[i].d);
            call_forward(&c, 11, 3);
            check(&c, KERNEL_FWD, 0);
            check(&c, KERNEL_BWD_W, 1e-5);
            call_free(&c);
        }
}

static void rotary_matches_reference(void **state)
{
    (void)state;
    static const int sizes[][2] = {{1, 2}, {3, 6}, {2, 64}, {5, 80}, {1, 34}}; /* heads, head size */
    for (int i = 0; i < 5; i++)
        for (int t = DT_F32; t <= DT_BF16; t++) {
            struct kernel_call c = {.op = OP_ROTARY,
                                    .at = ATTRS(rotary, .heads = sizes[i][0], .head_dim = sizes[i][1]),
                                    .n_in = 3};
            c.in[0] = matrix(t, 13, (int64_t)sizes[i][0] * sizes[i][1]);
            c.in[1] = vector(DT_I32, 13);
            c.in[2] = matrix(DT_F32, 10, sizes[i][1]);
            call_forward(&c, 10, 6);
            check(&c, KERNEL_FWD, 1e-4);
            check(&c, KERNEL_BWD_IN, 1e-4);
            call_free(&c);
        }
}

static void cross_entropy_matches_reference(void **state)
{
    (void)state;
    static const struct shape sizes[] = {{1, 1}, {7, 5}, {4, 16}, {9, 257}, {3, 5003}, {2, 50257}};
    for (int i = 0; i < 6; i++)
        for (int t = DT_F32; t <= DT_BF16; t++) {
            struct kernel_call c = {.op = OP_XENT, .at = ATTRS(vocab, 0), .n_in = 2};
            c.in[0] = matrix(t, sizes[i].t, sizes[i].d);
            c.in[1] = vector(DT_I32, sizes[i].t);
            view_alloc(&c.in[1], 0);
            view_random(&c.in[1], 5, (double)sizes[i].d);
            if (sizes[i].t > 1) ((int32_t *)c.in[1].p)[1] = -1;
            call_forward(&c, 3, 4);
            check(&c, KERNEL_FWD, 1e-5);
            check(&c, KERNEL_BWD_IN, 1e-6);
            call_free(&c);
        }
}

static void cross_entropy_backward_may_overwrite_logits(void **state)
{
    (void)state;
    struct kernel_call c = {.op = OP_XENT, .at = ATTRS(vocab, 0), .n_in = 2};
    c.in[0] = matrix(DT_BF16, 6, 300);
    c.in[1] = vector(DT_I32, 6);
    call_forward(&c, 300, 4);
    call_backward(&c, KERNEL_BWD_IN, ACC_NONE, 4);
    for (int b = 0; build(b); b++) {
        const struct kernel_slot *s = cpu_build_slot(build(b), OP_XENT, KERNEL_BWD_IN);
        struct kernel_call apart = call_fresh(&c), within = call_fresh(&c);
        slot_run(s, &apart, NULL);
        xfree(within.din[0].p);
        within.din[0] = within.in[0];
        slot_run(s, &within, NULL);
        assert_true(view_same_bits(&apart.din[0], &within.din[0]));
        memset(&within.din[0], 0, sizeof within.din[0]);
        call_free(&apart);
        call_free(&within);
    }
    call_free(&c);
}

static void copy_casts(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++)
        for (int from = DT_F32; from <= DT_BF16; from++)
            for (int to = DT_F32; to <= DT_BF16; to++) {
                struct kernel_call c = {.op = OP_COPY, .n_in = 1};
                c.in[0] = (struct view){.dtype = from, .nd = 3, .n = {2, shapes[i].t, shapes[i].d}};
                c.out[0].dtype = to;
                call_forward(&c, 1, 2);
                check(&c, KERNEL_FWD, 0);
                check(&c, KERNEL_BWD_IN, 1e-6);
                call_free(&c);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_match_reference),
        cmocka_unit_test(activations_match_reference),
        cmocka_unit_test(activations_survive_extremes),
        cmocka_unit_test(residuals_and_dropout_match_reference),
        cmocka_unit_test(embedding_matches_reference),
        cmocka_unit_test(rotary_matches_reference),
        cmocka_unit_test(cross_entropy_matches_reference),
        cmocka_unit_test(cross_entropy_backward_may_overwrite_logits),
        cmocka_unit_test(copy_casts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
