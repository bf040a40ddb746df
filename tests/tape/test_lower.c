/* SPDX-License-Identifier: Apache-2.0 */
/* What lowering may not change: deferring weight gradients, recomputing, and cutting the loss into chunks leave the
 * gradients as they are; and what it must keep small: bytes from forward to backward, and backward's scratch. */
#include "toy.h"

/* ---- deferred weight gradients: F0 F1 B0 B1 W0 W1 with two slabs, by hand ---- */
static void run_phase(struct toy *t, const struct program *p, enum program_phase phase, int m, void *const slab[HOME_N],
                      const struct step_info *info)
{
    struct engine *g = t->g;
    int64_t tokens = g->cfg.micro * g->cfg.seq;
    struct step_info here = *info;
    here.first_token = (uint64_t)(m * tokens);
    g->slot[SLOT_TOKENS] = t->tokens + m * tokens;
    g->slot[SLOT_TARGETS] = t->targets + m * tokens;
    g->slot[SLOT_POSITIONS] = t->positions + m * tokens;
    g->slot[SLOT_DOCS] = t->docs + m * tokens;
    program_run(p, phase,
                &(struct program_args){.stream = g->stream,
                                       .step = &here,
                                       .slot = g->slot,
                                       .act = slab[HOME_ACT],
                                       .wgrad = slab[HOME_WGRAD],
                                       .scratch = slab[HOME_SCRATCH],
                                       .written = g->written});
}

static void *garbage_new(size_t bytes)
{
    char *p = mem_pages_new(bytes ? bytes : 1);
    assert_non_null(p);
    memset(p, 0xff, bytes); /* NaN, so that reading what was not written shows */
    return p;
}

static void run_split(struct toy *t, enum program_phase order[], int microbatch[], int n)
{
    struct program *p;
    struct err e = {0};
    if (tape_lower(&p, t->g->stage[0].tape, &t->g->kernels, (struct lower_options){.training = true, .split_w = true},
                   &e))
        fail_msg("%s", e.text);
    void *slab[2][HOME_N];
    for (int m = 0; m < 2; m++)
        for (int h = 0; h < HOME_N; h++) slab[m][h] = h == HOME_SCRATCH && m ? slab[0][h] : garbage_new(p->bytes[h]);
    struct step_info info = {.seed = t->g->cfg.seed,
                             .step = 3,
                             .training = true,
                             .loss_scale = (float)(1.0 / (double)t->batch.n_trained)};
    memset(t->g->store.array[STORE_GRAD].buf.p, 0xff, t->g->store.array[STORE_GRAD].buf.bytes);
    memset(t->g->written, 0, (size_t)t->g->n_slots);
    for (int i = 0; i < n; i++) run_phase(t, p, order[i], microbatch[i], slab[microbatch[i]], &info);
    for (int m = 0; m < 2; m++)
        for (int h = 0; h < HOME_N; h++)
            if (!(h == HOME_SCRATCH && m)) mem_pages_free(slab[m][h], p->bytes[h] ? p->bytes[h] : 1);
    program_free(p);
}

static void test_deferred_weights(void **state)
{
    (void)state;
    enum program_phase order[] = {PHASE_F, PHASE_F, PHASE_B, PHASE_B, PHASE_W, PHASE_W};
    int microbatch[] = {0, 1, 0, 1, 0, 1};
    for (int v = 0; v < 16; v++) {
        struct engine_config c = toy_config(v & 1 ? MODEL_LLAMA : MODEL_GPT2, v & 2 ? DT_BF16 : DT_F32);
        c.model.dropout = v & 4 ? 0.2 : 0;
        c.recompute.again = v & 8 ? AGAIN_ALL : 0;
        c.model.document_mask = v & 8;
        struct toy t;
        struct engine_report r;
        toy_open(&t, &c);
        engine_gradients(t.g, &t.batch, 3, &r);
        float *want = toy_gradients(&t);
        run_split(&t, order, microbatch, 6);
        for (int i = 0; i < t.g->params.n; i++) {
            const struct param *p = &t.g->params.p[i];
            if (memcmp(store_grad_ptr(&t.g->store, i), want + p->offset, (size_t)p->numel * 4))
                fail_msg("variant %d: the gradient of %s changes by %g when it is deferred", v, p->name,
                         toy_relative_error(store_grad_ptr(&t.g->store, i), want + p->offset, p->numel));
        }
        xfree(want);
        toy_close(&t);
    }
}

/* With tied embeddings the two contributions to one matrix change their order: equal but for rounding. */
static void test_deferred_weights_tied(void **state)
{
    (void)state;
    enum program_phase order[] = {PHASE_F, PHASE_B, PHASE_F, PHASE_B, PHASE_W, PHASE_W};
    int microbatch[] = {0, 0, 1, 1, 0, 1};
    struct engine_config c = toy_config(MODEL_GPT2, DT_F32);
    c.model.tie_embeddings = true;
    struct toy t;
    struct engine_report r;
    toy_open(&t, &c);
    engine_gradients(t.g, &t.batch, 3, &r);
    float *want = toy_gradients(&t);
    run_split(&t, order, microbatch, 6);
    assert_true(toy_relative_error(t.g->store.array[STORE_GRAD].buf.p, want, t.g->params.numel) < 1e-6);
    xfree(want);
    toy_close(&t);
}

/* An addition hands its gradient on: without dropout backward has no instruction for the residual stream, also where
 * a branch comes through a change of mesh type; the embeddings' sum neither. */
static void test_additions_cost_nothing_backward(void **state)
{
    (void)state;
    for (int v = 0; v < 4; v++) {
        struct engine_config c = toy_config(v & 1 ? MODEL_LLAMA : MODEL_GPT2, DT_F32);
        c.model.dropout = v & 2 ? 0.1 : 0;
        struct toy t;
        toy_open(&t, &c);
        int adds = 0;
        for (int i = t.g->stage[0].train->begin[PHASE_B]; i < t.g->stage[0].train->begin[PHASE_W]; i++)
            adds += t.g->stage[0].train->code[i].op == OP_ADD;
        assert_int_equal(adds, v & 2 ? 2 * c.model.layers : 0);
        toy_close(&t);
    }
}

/* x from a product, y from another, z = x + y, and a loss on a third. */
static struct tape *three_products(tid *y)
{
    struct spmd_type type = spmd_all(SPMD_I);
    int64_t n[2] = {8, 8};
    struct tape *t = tape_new();
    tid w1 = tape_param(t, "w1", 1, 2, DT_F32, 2, n, type), w2 = tape_param(t, "w2", 3, 4, DT_F32, 2, n, type);
    tid x = op_linear(t, tape_input(t, "in", 0, DT_F32, 2, n, type), w1, TID_NONE, "x");
    *y = op_linear(t, x, w2, TID_NONE, "y");
    tid z = op_add(t, x, *y, 0, 0, TID_NONE, "z");
    tape_segment_begin(t, SEGMENT_LOSS);
    op_xent(t, op_linear(t, z, w1, TID_NONE, "logits"), tape_input(t, "targets", 5, DT_I32, 1, n, type), 6, "loss");
    tape_segment_end(t);
    return t;
}

/* A device whose own family has no kernel for a row of the tape: it is named, with the phase and the type; what is not
 * lowered need not be there, and a family before the last may lack what it likes. */
static void test_a_kernel_that_a_device_lacks(void **state)
{
    (void)state;
    struct kernel_family own = kernel_family_ref;
    struct kernel_table k;
    struct program *p;
    struct err e = {0};
    tid y;
    struct tape *t = three_products(&y);
    assert_int_equal(kernel_table_init(&k, "ref", 1, true, &e), OK);
    k.device = "toy";
    k.chain[0] = &own;
    own.slot[OP_LINEAR][KERNEL_BWD_W] = (struct kernel_slot){0};
    assert_int_equal(tape_lower(&p, t, &k, (struct lower_options){.training = true}, &e), ERR_REQUEST);
    assert_null(p);
    assert_string_equal(e.text,
                        "'logits': the toy device has no kernel for linear, the gradient of its weights, in f32");
    if (tape_lower(&p, t, &k, (struct lower_options){.training = false}, &e)) fail_msg("%s", e.text);
    program_free(p);
    k.chain[1] = &kernel_family_ref;
    if (tape_lower(&p, t, &k, (struct lower_options){.training = true}, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < p->begin[PHASE_N]; i++)
        assert_true(op_row(p->code[i].op)->by != BY_KERNEL || p->code[i].kernel);
    program_free(p);
    tape_free(t);
}

/* z = x + x w^T: x and the product share z's gradient, so what the product adds to x's must go elsewhere while the
 * product still reads it. */
static void test_shared_gradient_is_not_overwritten(void **state)
{
    (void)state;
    struct kernel_table k;
    struct err e = {0};
    tid y;
    struct tape *t = three_products(&y);
    assert_int_equal(kernel_table_init(&k, "auto", 1, true, &e), OK);
    struct program *p;
    if (tape_lower(&p, t, &k, (struct lower_options){.training = true}, &e)) fail_msg("%s", e.text);
    bool seen = false;
    for (int i = p->begin[PHASE_B]; i < p->begin[PHASE_W]; i++) {
        const struct instr *c = &p->code[i];
        if (c->kphase != KERNEL_BWD_IN || t->nodes[c->node].out[0] != y) continue;
        seen = true;
        assert_int_equal(c->acc[0].place, c->dout[0].place);
        assert_true(c->din[0].place >= 0 && c->din[0].place != c->dout[0].place);
    }
    assert_true(seen);
    program_check(p);
    program_free(p);
    tape_free(t);
}

/* ---- recompute ---- */
static void test_recompute_is_bit_identical(void **state)
{
    (void)state;
    for (int v = 0; v < 8; v++) {
        struct engine_config c = toy_config(v & 1 ? MODEL_LLAMA : MODEL_GPT2, v & 2 ? DT_BF16 : DT_F32);
        c.model.dropout = v & 4 ? 0.3 : 0;
        struct toy keep, again;
        struct engine_report r, s;
        toy_open(&keep, &c);
        c.recompute.again = AGAIN_ALL;
        toy_open(&again, &c);
        engine_gradients(keep.g, &keep.batch, 5, &r);
        engine_gradients(again.g, &again.batch, 5, &s);
        assert_memory_equal(&r.loss, &s.loss, sizeof r.loss);
        assert_memory_equal(keep.g->store.array[STORE_GRAD].buf.p, again.g->store.array[STORE_GRAD].buf.p,
                            keep.g->store.array[STORE_GRAD].buf.bytes);
        assert_true(again.g->act[0].bytes < keep.g->act[0].bytes / 2);
        assert_true(engine_flops_step(again.g) > 1.2 * engine_flops_step(keep.g));
        assert_true(engine_flops_model(again.g) == engine_flops_model(keep.g));
        toy_close(&keep);
        toy_close(&again);
    }
}

/* Dropout must do something, and depend on the step. */
static void test_dropout_acts(void **state)
{
    (void)state;
    for (int family = 0; family < TOY_TEXTS; family++) {
        struct engine_config c = toy_config((enum model_family)family, DT_F32);
        struct toy t;
        struct engine_report a, b, again, off;
        c.model.dropout = 0.3;
        toy_open(&t, &c);
        engine_gradients(t.g, &t.batch, 0, &a);
        engine_gradients(t.g, &t.batch, 1, &b);
        engine_gradients(t.g, &t.batch, 0, &again);
        engine_evaluate(t.g, &t.batch, &off);
        assert_true(a.loss == again.loss && a.grad_norm == again.grad_norm);
        assert_true(a.loss != b.loss && a.loss != off.loss);
        toy_close(&t);
    }
}

/* ---- bytes ---- */
static void plan_options(size_t bytes[HOME_N], const struct model_config *c, const struct model_shape *s,
                         struct lower_options o)
{
    struct kernel_table k;
    struct err e = {0};
    struct param_table p = {0};
    struct par par = par_single();
    struct tape *t = tape_new();
    struct program *g;
    assert_int_equal(kernel_table_init(&k, "auto", 2, true, &e), OK);
    model_declare(c, NULL, &p);
    model_record(t, c, &p, &par, s);
    if (tape_lower(&g, t, &k, o, &e)) fail_msg("%s", e.text);
    memcpy(bytes, g->bytes, sizeof g->bytes);
    program_free(g);
    tape_free(t);
    param_table_free(&p);
}

static void plan_program(size_t bytes[HOME_N], const struct model_config *c, const struct model_shape *s, bool split_w)
{
    plan_options(bytes, c, s, (struct lower_options){.training = true, .split_w = split_w});
}

static struct model_config gpt2_small(int layers)
{
    return (struct model_config){.family = MODEL_GPT2,
                                 .layers = layers,
                                 .hidden = 768,
                                 .heads = 12,
                                 .kv_heads = 12,
                                 .head_dim = 64,
                                 .ffn = 3072,
                                 .vocab = 50257,
                                 .max_positions = 1024,
                                 .tie_embeddings = true,
                                 .norm_eps = 1e-5};
}

/* Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022: 34 s b h bytes for a
 * layer without its attention matrix, of which dropout masks are 3 s b h; masks from a counter cost nothing. */
static void test_activation_bytes(void **state)
{
    (void)state;
    for (int v = 0; v < 4; v++) {
        struct model_shape s = {.mode = MODEL_TRAIN,
                                .dtype = DT_BF16,
                                .batch = v & 1 ? 4 : 1,
                                .seq = 1024,
                                .loss_rows = 1024};
        size_t a[HOME_N], b[HOME_N];
        struct model_config c = gpt2_small(3), d = gpt2_small(4);
        c.dropout = d.dropout = v & 2 ? 0.1 : 0;
        plan_program(a, &c, &s, false);
        plan_program(b, &d, &s, false);
        double per = (double)(b[HOME_ACT] - a[HOME_ACT]) / (double)(s.seq * s.batch * c.hidden);
        if (!(per <= 34) || !(per >= 16)) fail_msg("a block keeps %g s b h bytes (dropout %g)", per, c.dropout);
        s.recompute.again = AGAIN_ALL;
        plan_program(a, &c, &s, false);
        plan_program(b, &d, &s, false);
        assert_int_equal(b[HOME_ACT] - a[HOME_ACT], 2 * s.seq * s.batch * c.hidden); /* the block's input */
    }
}

/* What is kept where weights' gradients are put off, p microbatches under way: within 10 % of what p microbatches keep
 * where they are not, whatever is computed once more. Norms that waited for W would keep their inputs and the gradients
 * of their outputs, a quarter more. */
static void test_put_off_bytes(void **state)
{
    (void)state;
    static const uint64_t again[] = {0, AGAIN_ALL, (uint64_t)1 << OP_ATTENTION,
                                     (uint64_t)1 << OP_RMSNORM | (uint64_t)1 << OP_LAYERNORM, (uint64_t)1 << OP_ACT};
    struct model_config llama = {.family = MODEL_LLAMA,
                                 .layers = 8,
                                 .hidden = 4096,
                                 .heads = 32,
                                 .kv_heads = 32,
                                 .head_dim = 128,
                                 .ffn = 11008,
                                 .vocab = 32000,
                                 .max_positions = 4096,
                                 .rope_theta = 10000,
                                 .norm_eps = 1e-5};
    for (int v = 0; v < 2; v++)
        for (size_t k = 0; k < sizeof again / sizeof *again; k++) {
            struct model_config c = v ? gpt2_small(12) : llama;
            struct model_shape s = {.mode = MODEL_TRAIN,
                                    .dtype = DT_BF16,
                                    .batch = 1,
                                    .seq = c.max_positions,
                                    .loss_rows = 256};
            struct lower_options o = {.training = true, .split_w = true, .n_act = 4, .n_wgrad = 4};
            size_t fused[HOME_N], off[HOME_N];
            s.recompute.again = again[k];
            plan_program(fused, &c, &s, false);
            plan_options(off, &c, &s, o);
            double ratio = (double)(off[HOME_ACT] + off[HOME_WGRAD]) / (double)fused[HOME_ACT];
            if (ratio > 1.1) fail_msg("model %d, again %zu: %.3f of what is kept without W", v, k, ratio);
            if (off[HOME_SCRATCH] > fused[HOME_SCRATCH] + fused[HOME_SCRATCH] / 10) fail_msg("scratch grew");
        }
}

/* Gradients of activations live from first to last use: a deeper model needs no more scratch. */
static void test_backward_scratch(void **state)
{
    (void)state;
    for (int v = 0; v < 4; v++) {
        struct model_shape s = {.mode = MODEL_TRAIN, .dtype = DT_BF16, .batch = 1, .seq = 1024, .loss_rows = 256};
        size_t a[HOME_N], b[HOME_N];
        struct model_config c = gpt2_small(6), d = gpt2_small(12);
        c.vocab = d.vocab = 512; /* so that the head does not decide */
        c.dropout = d.dropout = v & 1 ? 0.1 : 0;
        s.recompute.again = v & 2 ? AGAIN_ALL : 0;
        plan_program(a, &c, &s, false);
        plan_program(b, &d, &s, false);
        assert_int_equal(a[HOME_SCRATCH], b[HOME_SCRATCH]);
        assert_true(s.recompute.again || b[HOME_SCRATCH] < b[HOME_ACT] / 2);
    }
}

/* Logits live for one chunk. */
static void test_loss_chunks_bound_logits(void **state)
{
    (void)state;
    struct model_shape s = {.mode = MODEL_TRAIN, .dtype = DT_BF16, .batch = 1, .seq = 1024};
    struct model_config c = gpt2_small(1);
    size_t whole[HOME_N], chunk[HOME_N];
    plan_program(whole, &c, &s, false);
    s.loss_rows = 128;
    plan_program(chunk, &c, &s, false);
    size_t logits = (size_t)c.vocab * 2;
    assert_true(whole[HOME_SCRATCH] >= 1024 * logits);
    assert_true(chunk[HOME_SCRATCH] < 400 * logits);
    assert_true(chunk[HOME_ACT] <= whole[HOME_ACT]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deferred_weights),
        cmocka_unit_test(test_deferred_weights_tied),
        cmocka_unit_test(test_additions_cost_nothing_backward),
        cmocka_unit_test(test_a_kernel_that_a_device_lacks),
        cmocka_unit_test(test_shared_gradient_is_not_overwritten),
        cmocka_unit_test(test_recompute_is_bit_identical),
        cmocka_unit_test(test_dropout_acts),
        cmocka_unit_test(test_activation_bytes),
        cmocka_unit_test(test_put_off_bytes),
        cmocka_unit_test(test_backward_scratch),
        cmocka_unit_test(test_loss_chunks_bound_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
