/* Collectives of backward travel while weight gradients are computed: in the program, between the beginning of each and the
 * first instruction that needs it, lie the weight products of its layer; and nothing else uses its bytes meanwhile. */
#include "run/toy.h"

#include "nn/model.h"
#include "parallel/run.h"

static struct program *lower(struct tape **t, struct param_table *p, bool sequence, bool recompute)
{
    struct model_config m = toy_model(MODEL_LLAMA);
    struct par par = par_single();
    struct kernel_table kt;
    struct program *program;
    struct err e = {0};
    m.kv_heads = 3;
    par.size[AXIS_TP] = 2;
    par.sequence = sequence;
    model_declare(&m, &par, p);
    *t = tape_new();
    struct model_shape s = {.mode = MODEL_TRAIN, .dtype = DT_F32, .batch = 2, .seq = 8, .recompute = recompute};
    model_record(*t, &m, p, &par, &s);
    if (kernel_table_init(&kt, "auto", 1, true, &e)) fail_msg("%s", e.text);
    if (program_new(&program, *t, &kt, (struct lower_options){.training = true, .collective_scratch = par_run_scratch}, &e))
        fail_msg("%s", e.text);
    program_check(program);
    return program;
}

static void test_weights_beside_messages(void **state)
{
    (void)state;
    for (int v = 0; v < 4; v++) {
        struct tape *t;
        struct param_table params = {0};
        struct program *p = lower(&t, &params, v & 1, v & 2);
        int hidden = 0;
        for (int i = p->begin[PHASE_B]; i < p->begin[PHASE_W]; i++) {
            const struct instr *c = &p->code[i];
            if (!op_row(c->op)->collective || c->kphase != KERNEL_BWD_IN) continue;
            double flops = 0;
            assert_true(c->until > i && c->until <= p->begin[PHASE_W]);
            for (int k = i + 1; k < c->until; k++) {
                flops += p->code[k].kphase == KERNEL_BWD_W ? p->code[k].flops : 0;
                if (p->code[k].kphase == KERNEL_BWD_IN && op_row(p->code[k].op)->collective) continue;
                assert_true(p->code[k].din[0].place != c->din[0].place || c->din[0].place < 0);
            }
            bool enters = c->op == OP_ENTER || c->op == OP_GATHER;
            if (enters && t->nodes[c->node].layer >= 0) hidden += flops > 0;
        }
        assert_int_equal(hidden, 2 * 2); /* into attention and into the MLP of two layers */
        program_free(p);
        tape_free(t);
        param_table_free(&params);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_weights_beside_messages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
