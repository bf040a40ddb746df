/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of backward travel while weight gradients are computed: in the program, between the beginning of each and
 * the first instruction that needs it, lie the weight products of its layer; and nothing else uses its bytes meanwhile.
 * So do rows that go to experts, beside the shared one. In pieces, forward does too: products lie beside all but the
 * last of each run, and no two pieces meet in a byte. */
#include "toy.h"

#include "layout/region.h"
#include "nn/model.h"
#include "parallel/run.h"

struct variant {
    bool sequence, recompute, split_w, experts;
    int pieces;
};

static struct program *lower(struct tape **t, struct param_table *p, struct variant v)
{
    struct model_config m = toy_model(v.experts ? MODEL_DEEPSEEK : MODEL_LLAMA);
    struct par par = par_single();
    struct kernel_table kt;
    struct program *program;
    struct err e = {0};
    m.kv_heads = 3;
    par.size[v.experts ? AXIS_EP : AXIS_TP] = 2;
    par.size[AXIS_ETP] = par.size[AXIS_TP];
    if (v.experts) par.size[AXIS_DP_SHARD] = 2; /* the ranks that ep is over */
    par.sequence = v.sequence;
    model_declare(&m, &par, p);
    *t = tape_new();
    struct model_shape s = {.mode = MODEL_TRAIN,
                            .dtype = DT_F32,
                            .batch = 2,
                            .seq = 8,
                            .recompute = {v.recompute ? AGAIN_ALL : 0, 0}};
    model_record(*t, &m, p, &par, &s);
    if (kernel_table_init(&kt, "auto", 1, true, &e)) fail_msg("%s", e.text);
    struct lower_options o = {.training = true,
                              .split_w = v.split_w,
                              .collective_scratch = par_run_scratch,
                              .pieces = {.most = v.pieces}};
    if (tape_lower(&program, *t, &kt, o, &e)) fail_msg("%s", e.text);
    program_check(program);
    return program;
}

static void test_weights_beside_messages(void **state)
{
    (void)state;
    for (int v = 0; v < 4; v++) {
        struct tape *t;
        struct param_table params = {0};
        struct program *p = lower(&t, &params, (struct variant){.sequence = v & 1, .recompute = v & 2});
        int hidden = 0, gathered = 0;
        for (int i = p->begin[PHASE_B]; i < p->begin[PHASE_W]; i++) {
            const struct instr *c = &p->code[i];
            if (!op_collective(c->op) || c->kphase != KERNEL_BWD_IN) continue;
            double flops = 0;
            assert_true(c->until > i && c->until <= p->begin[PHASE_W]);
            for (int k = i + 1; k < c->until; k++) {
                flops += p->code[k].kphase == KERNEL_BWD_W ? p->code[k].flops : 0;
                if (p->code[k].kphase == KERNEL_BWD_IN && op_collective(p->code[k].op)) continue;
                assert_true(p->code[k].din[0].place != c->din[0].place || c->din[0].place < 0);
            }
            bool enters = c->op == OP_ENTER || c->op == OP_GATHER;
            if (enters && t->nodes[c->node].layer >= 0) hidden += flops > 0;
            if (c->op == OP_SCATTER) gathered += flops > 0;
        }
        assert_int_equal(hidden, 2 * 2); /* into attention and into the MLP of two layers */
        if (v == 1)
            assert_int_equal(gathered,
                             2 * 2); /* but the first of backward, which nothing comes before; and the embedding's */
        program_free(p);
        tape_free(t);
        param_table_free(&params);
    }
}

/* Rows travel to the experts and back beside the two halves of the shared one, their gradients beside weight
 * gradients. */
static void test_shared_expert_beside_rows(void **state)
{
    (void)state;
    for (int recompute = 0; recompute < 2; recompute++) {
        struct tape *t;
        struct param_table params = {0};
        struct program *p = lower(&t, &params, (struct variant){.experts = true, .recompute = recompute});
        int forward = 0, backward = 0, all = 0;
        for (int i = 0; i < p->begin[PHASE_N]; i++) {
            const struct instr *c = &p->code[i];
            if (c->op != OP_DISPATCH && c->op != OP_COMBINE) continue;
            int dense = 0, weights = 0;
            for (int k = i + 1; k < c->until; k++) {
                dense += p->code[k].op == OP_LINEAR && p->code[k].kphase == KERNEL_FWD;
                weights += p->code[k].kphase == KERNEL_BWD_W && p->code[k].flops > 0;
            }
            all++;
            forward += c->kphase == KERNEL_FWD && dense > 0;
            backward += c->kphase == KERNEL_BWD_IN && weights > 0;
        }
        assert_int_equal(backward, 2);
        assert_int_equal(all, recompute ? 6 : 4);
        assert_int_equal(forward, recompute ? 3 : 2); /* coming back once more, there is no second half to compute */
        program_free(p);
        tape_free(t);
        param_table_free(&params);
    }
}

/* ---- pieces ---- */
struct bytes { /* rows of a place: [from + i * step, + n) for i < rows */
    size_t from, step, n;
    int64_t rows;
};

static struct bytes rows_of(const struct operand *o, int64_t lo, int64_t hi)
{
    size_t each = dtype_bytes(o->view.dtype), step = to_size(o->view.nd > 1 ? o->view.stride : 1) * each;
    return (struct bytes){o->offset + to_size(lo) * step, step,
                          to_size(o->view.nd > 1 ? view_cols(&o->view) : 1) * each, hi - lo};
}

/* What an instruction's operand really is: of a piece that is given all ranks' rows, the windows. */
static int bytes_of(const struct instr *i, const struct operand *o, struct bytes *out)
{
    int n = 0;
    const struct rows_attrs *at = i->at.kind == ATTRS_ROWS ? at_rows(&i->at) : NULL;
    if (!at || !at->pieces || o->view.n[0] != at->whole) {
        out[n++] = rows_of(o, 0, o->view.n[0]);
        return n;
    }
    for (int r = 0; r < at->over.n_parts; r++) {
        int64_t lo, hi;
        region_window(at->whole, r, at->over.n_parts, at->piece, at->pieces, &lo, &hi);
        out[n++] = rows_of(o, lo, hi);
    }
    return n;
}

static bool bytes_meet(const struct bytes *a, const struct bytes *b)
{
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t k = 0; k < b->rows; k++) {
            size_t x = a->from + to_size(i) * a->step, y = b->from + to_size(k) * b->step;
            if (x < y + b->n && y < x + a->n) return true;
        }
    return false;
}

static int operands(const struct instr *i, const struct operand **out)
{
    int n = 0;
    for (int k = 0; k < KERNEL_MAX_IN; k++) {
        out[n++] = &i->in[k];
        out[n++] = &i->din[k];
        out[n++] = &i->acc[k];
    }
    for (int k = 0; k < KERNEL_MAX_OUT; k++) {
        out[n++] = &i->out[k];
        out[n++] = &i->dout[k];
    }
    int kept = 0;
    for (int k = 0; k < n; k++)
        if (out[k]->place >= 0) out[kept++] = out[k];
    return kept;
}

enum { MAX_OPERANDS = 3 * KERNEL_MAX_IN + 2 * KERNEL_MAX_OUT };

static bool instrs_meet(const struct instr *a, const struct instr *b)
{
    const struct operand *of_a[MAX_OPERANDS], *of_b[MAX_OPERANDS];
    int n = operands(a, of_a), m = operands(b, of_b);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < m; k++) {
            struct bytes x[4], y[4];
            if (of_a[i]->place != of_b[k]->place) continue;
            int n_x = bytes_of(a, of_a[i], x), n_y = bytes_of(b, of_b[k], y);
            for (int p = 0; p < n_x; p++)
                for (int q = 0; q < n_y; q++)
                    if (bytes_meet(&x[p], &y[q])) return true;
        }
    return false;
}

static void check_pieces(const struct program *p, const struct variant *v, const struct tape *t)
{
    int cut = 0, beside = 0;
    for (int i = 0; i < p->begin[PHASE_N]; i++) {
        const struct instr *c = &p->code[i];
        if (!op_collective(c->op) || !c->run) continue;
        double flops = 0;
        for (int k = i + 1; k < c->until; k++) {
            flops += p->code[k].flops;
            if (instrs_meet(c, &p->code[k]))
                fail_msg("%s %d/%d at %d is under way until %d and meets %s at %d", op_row(c->op)->name, c->piece + 1,
                         c->pieces, i, c->until, op_row(p->code[k].op)->name, k);
        }
        assert_int_equal(c->pieces, v->pieces);
        if (t->nodes[c->node].layer < 0) continue;
        cut++;
        beside += flops > 0;
    }
    /* Forward: both of a layer's sums, and the two gathers under sequence parallelism; what recomputation needs of
     * them, and backward where its weights wait, come on top. */
    assert_true(cut >= 2 * (v->sequence ? 4 : 2) * v->pieces);
    assert_true(beside >= cut * (v->pieces - 1) / v->pieces / (v->sequence ? 2 : 1));
}

static void test_pieces(void **state)
{
    (void)state;
    for (int k = 0; k < 16; k++) {
        struct variant v = {.sequence = k & 1, .recompute = k & 2, .split_w = k & 4, .pieces = k & 8 ? 3 : 2},
                       plain = v;
        struct tape *t, *t0;
        struct param_table params = {0}, params0 = {0};
        plain.pieces = 0;
        struct program *p = lower(&t, &params, v), *p0 = lower(&t0, &params0, plain);
        check_pieces(p, &v, t);
        for (int ph = 0; ph < PHASE_N; ph++) assert_true(p->flops[ph] == p0->flops[ph]);
        assert_true(p->flops_model == p0->flops_model);
        assert_int_equal(p->bytes[HOME_ACT], p0->bytes[HOME_ACT]);
        program_free(p);
        program_free(p0);
        tape_free(t);
        tape_free(t0);
        param_table_free(&params);
        param_table_free(&params0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_weights_beside_messages),
                                       cmocka_unit_test(test_shared_expert_beside_rows), cmocka_unit_test(test_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
