/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of shape and of mesh type are found while recording, on one rank, with the operation, the tensor and the
 * axis in the text; every collective that is left out of a block is found, and every wrong layout of a parameter. */
#include "nn/decode.h"
#include "toy.h"

#include "program/program.h"
#include "tape/lower.h"

enum { T = 6, D = 8, F = 12 };
static const int64_t shape_TD[2] = {T, D}, shape_FD[2] = {F, D}, shape_DF[2] = {D, F}, shape_D[1] = {D};

static struct spmd_type tokens_type(void)
{
    struct spmd_type t = spmd_with(spmd_all(SPMD_I), AXIS_DP_SHARD, SPMD_V);
    return spmd_with(t, AXIS_CP, SPMD_V);
}

static struct spmd_type weight_type(enum spmd over_tp)
{
    struct spmd_type t = spmd_with(spmd_all(SPMD_I), AXIS_DP_SHARD, SPMD_R);
    return spmd_with(spmd_with(t, AXIS_CP, SPMD_R), AXIS_TP, over_tp);
}

static tid x_input(struct tape *t) { return tape_input(t, "x", 0, DT_F32, 2, shape_TD, tokens_type()); }

static tid weight(struct tape *t, const char *name, const int64_t *n, enum spmd over_tp)
{
    return tape_param(t, name, 1, 2, DT_F32, n == shape_D ? 1 : 2, n, weight_type(over_tp));
}

/* A feed-forward half as the models record it; `omit` leaves one collective out (0: none), `twice` repeats it. */
enum { ENTER = 1, REDUCE = 2 };
static void record_mlp(struct tape *t, int omit, int twice)
{
    struct par par = par_single();
    tid h = x_input(t);
    tid n = op_rmsnorm(t, h, weight(t, "norm.weight", shape_D, SPMD_I), 1e-5f, "norm");
    if (omit != ENTER) n = par_enter(t, &par, n, AXIS_TP);
    if (twice == ENTER) n = par_enter(t, &par, n, AXIS_TP);
    tid up = op_linear(t, n, weight(t, "up.weight", shape_FD, SPMD_S0), TID_NONE, "up");
    tid act = op_act(t, up, ACT_GELU, "gelu");
    tid down = op_linear(t, act, weight(t, "down.weight", shape_DF, SPMD_S1), TID_NONE, "down");
    if (omit != REDUCE) down = par_reduce(t, &par, down, AXIS_TP);
    if (twice == REDUCE) down = par_reduce(t, &par, down, AXIS_TP);
    op_add(t, h, down, 0, 0, TID_NONE, "residual");
}

static void check_status(struct tape *t, const char *const *words)
{
    struct err e = {0};
    assert_int_equal(tape_status(t, &e), words ? ERR_REQUEST : OK);
    for (; words && *words; words++) assert_contains(e.text, *words);
    tape_free(t);
}

static void test_forgotten_collectives(void **state)
{
    (void)state;
    struct tape *t = tape_new();
    record_mlp(t, 0, 0);
    check_status(t, NULL);
    t = tape_new();
    record_mlp(t, ENTER, 0);
    check_status(t, (const char *[]){"linear", "'up'", "over tp", "x is invariant", "norm", "6x8", NULL});
    t = tape_new();
    record_mlp(t, REDUCE, 0);
    check_status(t, (const char *[]){"add", "'residual'", "over tp", "b is partial", NULL});
    t = tape_new();
    record_mlp(t, 0, ENTER);
    check_status(t, (const char *[]){"par_enter over tp", "wants I, got", "tp:R", NULL});
    t = tape_new();
    record_mlp(t, 0, REDUCE);
    check_status(t, (const char *[]){"par_reduce over tp", "wants P, got", NULL});
}

static void test_data_axes(void **state)
{
    (void)state;
    struct tape *t = tape_new();
    struct spmd_type wrong = spmd_with(weight_type(SPMD_I), AXIS_CP, SPMD_I);
    tid w = tape_param(t, "w", 1, 2, DT_F32, 2, shape_FD, wrong);
    op_linear(t, x_input(t), w, TID_NONE, "product");
    check_status(t, (const char *[]){"linear 'product' over cp", "must be replicated", NULL});
}

static void test_shapes(void **state)
{
    (void)state;
    struct tape *t = tape_new();
    op_linear(t, x_input(t), weight(t, "w", shape_DF, SPMD_I), TID_NONE, "odd");
    check_status(t, (const char *[]){"linear 'odd'", "in-features", "x [6x8]", NULL});

    t = tape_new();
    op_rmsnorm(t, x_input(t), tape_param(t, "w", 1, 2, DT_F32, 1, (int64_t[]){D + 1}, weight_type(SPMD_I)), 1e-5f,
               "n1");
    check_status(t, (const char *[]){"rmsnorm 'n1'", "x [6x8]", NULL});

    t = tape_new();
    tid y = tape_input(t, "y", 3, DT_BF16, 2, shape_TD, tokens_type());
    op_add(t, x_input(t), y, 0, 0, TID_NONE, "sum");
    check_status(t, (const char *[]){"add 'sum'", NULL});

    t = tape_new();
    tid q = x_input(t);
    struct attention_attrs s = {.batch = 1, .seq = T, .heads = 3, .kv_heads = 2, .head_dim = 4, .causal = true};
    op_attention(t, q, q, q, TID_NONE, TID_NONE, s, "attend");
    check_status(t, (const char *[]){"attention 'attend'", NULL});
}

/* A loss over the input of its stage, or over rows of it, would lose the gradient that goes to the stage before. */
static void test_loss_of_a_stages_input(void **state)
{
    (void)state;
    for (int between = 0; between < 2; between++) {
        struct tape *t = tape_new();
        tid x = tape_stage_in(t, "in", 0, 3, DT_F32, 2, shape_TD, tokens_type()), w = weight(t, "w", shape_FD, SPMD_I);
        if (between) x = op_act(t, x, ACT_GELU, "gelu");
        tape_segment_begin(t, SEGMENT_LOSS);
        tid y = op_linear(t, tape_rows(t, x, 0, 3), w, TID_NONE, "logits");
        op_xent(t, y, tape_input(t, "targets", 5, DT_I32, 1, (int64_t[]){3}, tokens_type()), 6, "loss");
        tape_segment_end(t);
        check_status(t,
                     between ? NULL : (const char *[]){"linear 'logits'", "the stage's input itself", "in[0:3]", NULL});
    }
}

/* The first error stays; what comes after it records nothing. */
static void test_sticky(void **state)
{
    (void)state;
    struct tape *t = tape_new();
    struct par par = par_single();
    tid x = x_input(t);
    op_linear(t, x, weight(t, "w", shape_DF, SPMD_I), TID_NONE, "first");
    int nodes = t->n_nodes;
    tid z = op_act(t, x, ACT_GELU, "second");
    assert_true(z < 0);
    z = par_enter(t, &par, z, AXIS_TP);
    z = op_dropout(t, z, 0.5f, 1, TID_NONE, "third");
    z = tape_cols(t, z, 0, 4);
    assert_true(op_cast(t, z, DT_BF16, "fourth") < 0);
    assert_int_equal(t->n_nodes, nodes);
    struct program *p;
    struct kernel_table k;
    struct err e = {0};
    assert_int_equal(kernel_table_init(&k, "auto", 1, true, &e), OK);
    assert_int_equal(tape_lower(&p, t, &k, (struct lower_options){0}, &e), ERR_REQUEST);
    assert_null(p);
    assert_contains(e.text, "'first'");
    check_status(t, (const char *[]){"'first'", NULL});
}

static struct tape *record_model(const struct model_config *c, const struct param_table *p, enum model_mode mode,
                                 bool recompute, int64_t loss_rows)
{
    struct tape *t = tape_new();
    struct par par = par_single();
    if (mode == MODEL_DECODE) {
        model_record_decode(t, c, p, &par,
                            &(struct decode_shape){.dtype = DT_F32,
                                                   .tokens = 9,
                                                   .wanted = 3,
                                                   .cache_rows = 48,
                                                   .sequences = 2,
                                                   .most = 3});
        return t;
    }
    model_record(t, c, p, &par,
                 &(struct model_shape){.mode = mode,
                                       .dtype = DT_F32,
                                       .batch = 2,
                                       .seq = 9,
                                       .recompute = {recompute ? AGAIN_ALL : 0, 0},
                                       .loss_rows = loss_rows});
    return t;
}

/* Parameters that are used as one matrix lie alike. */
static int rows_of_matrix(const struct model_config *c, const char *name)
{
    if (strstr(name, "experts.0.gate")) return 2 * c->moe.experts;
    if (strstr(name, "experts.0.down")) return c->moe.experts;
    if (strstr(name, "shared.gate") || (c->family != MODEL_GPT2 && strstr(name, "mlp.gate"))) return 2;
    return strstr(name, "attn.q") && !c->mla.kv_rank ? 3 : 1;
}

/* A parameter that lies on an axis in any other way than the model says is refused, whichever parameter and axis. */
static void test_every_wrong_layout(void **state)
{
    (void)state;
    static const enum spmd letters[] = {SPMD_I, SPMD_R, SPMD_S0, SPMD_S1, SPMD_V, SPMD_P};
    for (int family = 0; family < TOY_TEXTS; family++) {
        struct model_config c = toy_model((enum model_family)family);
        struct param_table p = {0};
        struct err e = {0};
        model_declare(&c, NULL, &p);
        for (int i = 0; i < p.n; i += rows_of_matrix(&c, p.p[i].name)) {
            int rows = rows_of_matrix(&c, p.p[i].name);
            struct spmd_type right = p.p[i].type;
            for (int a = 0; a < AXIS_N; a++)
                for (size_t l = 0; l < sizeof letters / sizeof *letters; l++) {
                    if (letters[l] == (enum spmd)right.on[a]) continue;
                    for (int k = 0; k < rows; k++) p.p[i + k].type = spmd_with(right, (enum axis)a, letters[l]);
                    struct tape *t = record_model(&c, &p, MODEL_TRAIN, false, 0);
                    if (tape_status(t, &e) == OK)
                        fail_msg("%s: %s as %s over %s is not refused", model_family_name(c.family), p.p[i].name,
                                 spmd_name(letters[l]), axis_name((enum axis)a));
                    assert_contains(e.text, axis_name((enum axis)a));
                    tape_free(t);
                }
            for (int k = 0; k < rows; k++) p.p[i + k].type = right;
        }
        struct tape *t = record_model(&c, &p, MODEL_TRAIN, false, 0);
        if (tape_status(t, &e)) fail_msg("%s", e.text);
        tape_free(t);
        param_table_free(&p);
    }
}

/* Every program of every model: no two living places overlap, every place has a life, each operand lies inside its
 * place, and the numbers that print are those of the program. */
/* Products are computed once more, so that none of their weights' gradients is put off. */
static bool has_product_again(const struct program *p)
{
    for (int i = 0; i < p->begin[PHASE_N]; i++)
        if (p->code[i].again && p->code[i].op == OP_LINEAR) return true;
    return false;
}

static void check_program(const struct tape *t, const struct kernel_table *k, struct lower_options o)
{
    struct program *p;
    struct err e = {0};
    if (tape_lower(&p, t, k, o, &e)) fail_msg("%s", e.text);
    program_check(p);
    for (int i = 0; i < p->begin[PHASE_N]; i++) {
        const struct instr *c = &p->code[i];
        for (int n = 0; n < c->n_in; n++) {
            int at = c->in[n].place;
            if (at < 0) continue;
            assert_true(p->places[at].first <= i && i <= p->places[at].last);
            const struct view *v = &c->in[n].view;
            size_t end =
                c->in[n].offset + to_size((view_rows(v) - 1) * v->stride + view_cols(v)) * dtype_bytes(v->dtype);
            assert_true(end <= p->places[at].bytes);
        }
    }
    for (int i = 0; i < p->n_places; i++)
        if (p->places[i].first >= 0)
            assert_true(p->places[i].offset + p->places[i].bytes <= p->bytes[p->places[i].home]);
    if (!o.training) assert_int_equal(p->bytes[HOME_ACT] + p->bytes[HOME_WGRAD], 0);
    if (o.training && o.split_w) {
        bool puts_off = p->begin[PHASE_W] < p->begin[PHASE_N];
        assert_true(puts_off != has_product_again(p));
        assert_true(puts_off ? p->joint || p->bytes[HOME_WGRAD] > 0 : p->bytes[HOME_WGRAD] == 0);
    }
    if (!o.split_w) assert_int_equal(p->bytes[HOME_WGRAD], 0);
    struct str text = {0};
    program_print(p, &text);
    char want[64];
    snprintf(want, sizeof want, "act %zu,", p->bytes[HOME_ACT]);
    assert_contains(str_text(&text), want);
    str_free(&text);
    program_free(p);
}

/* One slab for activations and what W needs is taken where all slabs together are smaller so; no two living places
 * overlap in it either. */
static bool check_joint(const struct tape *t, const struct kernel_table *k, int64_t n_act, int64_t n_wgrad)
{
    struct lower_options o = {.training = true, .split_w = true};
    struct program *apart, *p;
    struct err e = {0};
    check_program(t, k, (struct lower_options){.training = true, .split_w = true, .n_act = n_act, .n_wgrad = n_wgrad});
    if (tape_lower(&apart, t, k, o, &e)) fail_msg("%s", e.text);
    o.n_act = n_act;
    o.n_wgrad = n_wgrad;
    if (tape_lower(&p, t, k, o, &e)) fail_msg("%s", e.text);
    assert_false(apart->joint);
    size_t two = to_size(n_act) * apart->bytes[HOME_ACT] + to_size(n_wgrad) * apart->bytes[HOME_WGRAD];
    if (p->joint) assert_true(p->bytes[HOME_WGRAD] == 0 && to_size(n_wgrad) * p->bytes[HOME_ACT] < two);
    else assert_true(p->bytes[HOME_ACT] == apart->bytes[HOME_ACT] && p->bytes[HOME_WGRAD] == apart->bytes[HOME_WGRAD]);
    assert_int_equal(p->bytes[HOME_SCRATCH], apart->bytes[HOME_SCRATCH]);
    bool joint = p->joint;
    program_free(p);
    program_free(apart);
    return joint;
}

static void test_all_programs(void **state)
{
    (void)state;
    struct kernel_table k;
    struct err e = {0};
    assert_int_equal(kernel_table_init(&k, "auto", 2, true, &e), OK);
    for (int v = 0; v < 64; v++) {
        struct model_config c = toy_model((enum model_family)(v % TOY_TEXTS));
        c.tie_embeddings = v & 2;
        c.dropout = v & 4 ? 0.1 : 0;
        c.document_mask = v & 8;
        struct param_table p = {0};
        model_declare(&c, NULL, &p);
        struct tape *t = record_model(&c, &p, MODEL_TRAIN, v & 16, v & 2 ? 7 : 0);
        if (tape_status(t, &e)) fail_msg("%s", e.text);
        for (int o = 0; o < 4; o++)
            check_program(t, &k, (struct lower_options){.training = o & 1, .split_w = (o & 3) == 3});
        bool joint = check_joint(t, &k, 4, 4);
        if (!(v & 16)) assert_true(joint); /* with recomputation nothing dies in B that lived before it */
        check_joint(t, &k, 1, 4);
        check_joint(t, &k, 3, 100);
        struct str text = {0};
        tape_print(t, &text);
        assert_contains(str_text(&text), v & 16 ? "recompute" : "loss");
        assert_contains(str_text(&text), "over tp");
        str_free(&text);
        tape_free(t);
        for (int mode = MODEL_DECODE; mode <= MODEL_LOGITS; mode++) {
            t = record_model(&c, &p, (enum model_mode)mode, false, 0);
            if (tape_status(t, &e)) fail_msg("%s", e.text);
            check_program(t, &k, (struct lower_options){0});
            tape_free(t);
        }
        param_table_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forgotten_collectives),
        cmocka_unit_test(test_data_axes),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_loss_of_a_stages_input),
        cmocka_unit_test(test_sticky),
        cmocka_unit_test(test_every_wrong_layout),
        cmocka_unit_test(test_all_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
