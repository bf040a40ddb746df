/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of mesh type: what they turn into what, that they are the same memory on an axis of size 1, and that they
 * refuse what they are not for. */
#include "toy.h"

static const int64_t shape[2] = {4, 6};

static struct tape *tape_with(tid *x, enum spmd over_tp)
{
    struct tape *t = tape_new();
    struct spmd_type type = spmd_with(spmd_all(SPMD_I), AXIS_DP_SHARD, SPMD_V);
    *x = tape_input(t, "x", 0, DT_F32, 2, shape, spmd_with(type, AXIS_TP, over_tp));
    return t;
}

struct change {
    tid (*call)(struct tape *t, const struct par *p, tid x, enum axis a);
    const char *name;
    enum spmd from, to;
};
static const struct change changes[] = {{par_enter, "par_enter", SPMD_I, SPMD_R},
                                        {par_reduce, "par_reduce", SPMD_P, SPMD_I}};

static void test_types(void **state)
{
    (void)state;
    struct par par = par_single();
    for (int a = 0; a < AXIS_N; a++) assert_true(par.size[a] == 1 && par.rank[a] == 0);
    for (size_t i = 0; i < 2; i++)
        for (int from = 0; from < SPMD_N; from++) {
            tid x, y;
            struct err e = {0};
            struct tape *t = tape_with(&x, (enum spmd)from);
            y = changes[i].call(t, &par, x, AXIS_TP);
            if (from == (int)changes[i].from) {
                if (tape_status(t, &e)) fail_msg("%s", e.text);
                const struct tensor *v = tape_tensor(t, y);
                assert_int_equal(v->type.on[AXIS_TP], changes[i].to);
                assert_int_equal(v->type.on[AXIS_DP_SHARD], SPMD_V); /* other axes are left alone */
                assert_int_equal(v->root, x);
                assert_true(v->n[0] == 4 && v->n[1] == 6 && v->dtype == DT_F32);
                const struct node *d = &t->nodes[t->n_nodes - 1];
                assert_true(d->retype && d->axis == AXIS_TP && d->in[0] == x && d->out[0] == y);
            } else {
                assert_int_equal(tape_status(t, &e), ERR_REQUEST);
                assert_true(y < 0);
                assert_contains(e.text, changes[i].name);
                assert_contains(e.text, "over tp");
                assert_contains(e.text, spmd_name(changes[i].from));
            }
            tape_free(t);
        }
}

/* Each one's conjugate undoes it in backward: the dual of what goes out is what comes back, turned by the other. */
static void test_conjugates(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const struct change *f = &changes[i], *g = &changes[1 - i];
        assert_int_equal(spmd_dual(f->to), g->from);
        assert_int_equal(spmd_dual(f->from), g->to);
    }
}

/* No instruction, no byte: with and without the pair a program is the same. */
static void test_costs_nothing(void **state)
{
    (void)state;
    struct kernel_table k;
    struct par par = par_single();
    struct err e = {0};
    assert_int_equal(kernel_table_init(&k, "auto", 1, true, &e), OK);
    size_t bytes[2];
    int code[2];
    for (int with = 0; with < 2; with++) {
        tid x;
        struct tape *t = tape_with(&x, SPMD_I);
        tid y = op_act(t, x, ACT_GELU, "a");
        if (with) y = par_enter(t, &par, y, AXIS_TP);
        op_act(t, y, ACT_GELU, "b");
        struct program *p;
        if (tape_lower(&p, t, &k, (struct lower_options){0}, &e)) fail_msg("%s", e.text);
        bytes[with] = p->bytes[HOME_SCRATCH];
        code[with] = p->begin[PHASE_N];
        program_free(p);
        tape_free(t);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_int_equal(code[0], code[1]);
    assert_int_equal(code[0], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_conjugates),
        cmocka_unit_test(test_costs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
