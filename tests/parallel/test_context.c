/* SPDX-License-Identifier: Apache-2.0 */
/* suite: touches */
/* Attention over context-parallel ranks, as threads, is attention of one rank: every algorithm, any number of ranks and
 * heads, lengths that nothing divides, documents, also in an order of even work, windows, dropout, f32 and bf16,
 * gradients that are added to others.
 * The null device counts what the ranks send, to the byte. */
#include "kernel/harness.h"

#include "comm/comm.h"
#include "kernel/attention_heads.h"
#include "layout/document_order.h"
#include "layout/sequence.h"
#include "parallel/context.h"

struct variant {
    const char *name;
    int64_t batch, seq;
    int heads, kv, a;
    int64_t window;
    int docs;
    float dropout;
    bool sink, ordered; /* ordered: documents in the order of layout/document_order.h */
};
static const struct variant variants[] = {
    {"plain", 2, 37, 4, 2, 8, 0, 0, 0, false, false},
    {"one key head", 1, 23, 3, 1, 8, 0, 0, 0, false, false},
    {"documents", 2, 40, 2, 2, 8, 0, 9, 0, false, false},
    {"window", 1, 50, 2, 2, 16, 12, 0, 0, false, false},
    {"dropout", 2, 21, 6, 2, 4, 0, 6, 0.2f, false, false},
    {"fewer heads than ranks", 1, 30, 2, 1, 8, 0, 0, 0, false, false},
    {"sinks", 2, 29, 3, 1, 8, 0, 0, 0, true, false},
    {"sinks and windows", 1, 33, 4, 2, 8, 7, 5, 0, true, false},
    {"documents in order", 2, 60, 2, 2, 8, 0, 25, 0, false, true},
    {"windows of documents in order", 2, 150, 2, 1, 8, 6, 40, 0, false, true},
    {"the same beside sinks", 1, 170, 3, 3, 4, 20, 60, 0, true, true},
};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

struct layout_row {
    int n, inner;
    bool gather;
};
static const struct layout_row layouts[] = {{2, 1, false}, {3, 1, false}, {5, 1, false}, {2, 1, true},
                                            {4, 1, true},  {2, 2, false}, {4, 4, false}, {3, 3, false},
                                            {4, 2, false}, {6, 2, false}, {6, 3, true}};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

struct job {
    struct kcase *k; /* the whole, forward and backward done */
    const struct variant *v;
    struct layout_row l;
    enum dtype t;
    double bound;
    bool dry;
    int64_t *order; /* [batch * seq]: which token of its sequence stands at each place */
    struct comm_traffic sent[8];
    double d_sink[8][8]; /* each rank's part, by head */
};

static struct view rows_of(struct kcase *x, const struct job *j, const struct view *v, int r, enum dtype t)
{
    const struct kcase *k = j->k;
    const int n = j->l.n;
    const struct attention_attrs *at = at_attention(&k->at);
    int64_t seq = at->seq, each = context_rows(seq, n, r, 1), to = 0;
    struct view p = kcase_tensor(x, t, at->batch * each, v->n[1]);
    for (int64_t b = 0; b < at->batch; b++)
        for (int64_t i = 0; i < each; i++, to++)
            for (int64_t c = 0; c < v->n[1]; c++)
                view_set(&p, to, c, view_get(v, b * seq + j->order[b * seq + context_place(seq, n, r, i)], c));
    return p;
}

static int differ(const struct job *j, const char *what, const struct view *got, const struct view *want, double bound,
                  struct err *e)
{
    double scale = fmax(view_max(want), 1);
    for (int64_t r = 0; r < view_rows(got); r++)
        for (int64_t c = 0; c < view_cols(got); c++) {
            double a = view_get(got, r, c), b = view_get(want, r, c);
            if (!(fabs(a - b) <= bound * scale))
                return err_set(e, ERR_NUMERIC, "%s, %s, cp %d inner %d gather %d: (%d, %d) is %g, wanted %g",
                               j->v->name, what, j->l.n, j->l.inner, j->l.gather, (int)r, (int)c, a, b);
        }
    return OK;
}

static void groups(struct comm *world, const struct layout_row *l, struct par_run *x)
{
    int rank = comm_rank(world), list[8], n = 0;
    memset(x, 0, sizeof *x);
    x->axis[AXIS_CP] = world;
    if (l->inner == 1 || l->inner == l->n) return;
    for (int i = 0; i < l->inner; i++) list[n++] = rank / l->inner * l->inner + i;
    assert_int_equal(comm_split_list(&x->inner, world, list, n, "cp.inner", NULL), OK);
    n = 0;
    for (int o = 0; o < l->n / l->inner; o++) list[n++] = o * l->inner + rank % l->inner;
    assert_int_equal(comm_split_list(&x->outer, world, list, n, "cp.outer", NULL), OK);
}

static void run(struct par_run *x, struct stream *s, const struct kernel_table *kt, struct kernel_call *c)
{
    c->scratch_bytes = par_run_scratch(kt, c);
    char *memory = xmalloc(c->scratch_bytes + 128);
    if (!kt->dry) {
        memset(memory, 0xff, c->scratch_bytes + 128);
        c->scratch = memory + (64 - (uintptr_t)memory % 64);
    }
    assert_int_equal(par_run_carrier(x).begin(x, s, c), 0); /* done at once */
    for (int i = 0; !kt->dry && i < 64; i++)
        if (((unsigned char *)c->scratch)[c->scratch_bytes + (size_t)i] != 0xff) CHECK(false, "scratch overrun");
    xfree(memory);
}

static void forget_pointers(struct kernel_call *c)
{
    for (int i = 0; i < KERNEL_MAX_IN; i++) c->in[i].p = c->din[i].p = c->acc[i].p = NULL;
    for (int i = 0; i < KERNEL_MAX_OUT; i++) c->out[i].p = c->dout[i].p = NULL;
}

/* Documents, and which token is where, as they stand. */
static void put_in_order(struct kcase *x, const struct job *j, struct kernel_call *c)
{
    int64_t rows = j->v->batch * j->v->seq;
    c->in[ATTENTION_DOC] = kcase_ints(x, rows, 0, 0);
    c->in[ATTENTION_TOKEN] = kcase_ints(x, rows, 0, 0);
    c->n_in = ATTENTION_TOKEN + 1;
    for (int64_t i = 0; i < rows; i++) {
        int64_t token = j->order[i], from = i / j->v->seq * j->v->seq;
        view_set(&c->in[ATTENTION_DOC], 0, i, view_get(&j->k->in[ATTENTION_DOC], 0, from + token));
        view_set(&c->in[ATTENTION_TOKEN], 0, i, (double)token);
    }
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    const struct kcase *k = j->k;
    struct kcase x = *k;
    int n = j->l.n, r = comm_rank(world), rc = OK;
    struct kernel_table kt;
    struct par_run groups_here;
    struct device *d;
    struct stream *stream;
    struct comm_traffic sum;
    x.n_blocks = 0;
    kernel_table_init(&kt, "auto", 1, j->dry, NULL);
    groups(world, &j->l, &groups_here);
    if (j->dry ? device_null_new(&d, e) : device_cpu_new(&d, 1, e)) return e->code;
    if (stream_new(&stream, d, "test", e)) return e->code;
    kernel_on(stream, &kt);
    struct kernel_call c = {.op = OP_CONTEXT, .phase = KERNEL_FWD, .step = &k->step, .n_in = k->n_in, .n_out = 2};
    c.at = ATTRS(context, .over = {AXIS_CP, n, r}, .attention = *at_attention(&k->at), .inner = j->l.inner,
                 .gather = j->l.gather);
    for (int i = 0; i < 3; i++) c.in[i] = rows_of(&x, j, &k->in[i], r, j->t);
    c.in[3] = k->in[3];
    if (j->v->ordered) put_in_order(&x, j, &c);
    c.in[ATTENTION_SINK] = k->in[ATTENTION_SINK];
    const char *why = op_row(OP_CONTEXT)->infer(&c.at, c.n_in, c.in, c.out);
    if (why) return err_set(e, ERR_NUMERIC, "%s", why);
    for (int i = 0; i < 2; i++) {
        if (!c.out[i].n[1]) continue;
        struct view v = kcase_tensor(&x, c.out[i].dtype, c.out[i].n[0], c.out[i].n[1]);
        c.out[i].p = v.p;
        c.out[i].stride = v.stride;
    }
    struct view want_o = rows_of(&x, j, &k->out[0], r, DT_F32);
    struct kernel_call back = c;
    if (j->dry) forget_pointers(&c);
    run(&groups_here, stream, &kt, &c);
    if (!j->dry) rc = differ(j, "o", &c.out[0], &want_o, j->bound, e);
    back.phase = KERNEL_BWD_IN;
    back.dout[0] = rows_of(&x, j, &k->dout[0], r, j->t);
    for (int i = 0; i < 3; i++) {
        back.din[i] = kcase_tensor(&x, j->t, back.in[i].n[0], back.in[i].n[1]);
        back.acc[i] = back.din[i];
        back.acc[i].p = NULL;
        if (i == 2 || (i == 0 && j->v->docs)) { /* adds to a gradient that is there, in place and elsewhere */
            view_fill(&back.din[i], 5, (uint64_t)i, 1);
            back.acc[i] = i ? back.din[i] : kcase_clone(&x, &back.din[i]);
        }
    }
    if (j->v->sink) { /* adds on one rank, begins on the others */
        struct view *to = &back.din[ATTENTION_SINK], *acc = &back.acc[ATTENTION_SINK];
        *to = *acc = kcase_tensor(&x, DT_F32, j->v->heads, 0);
        for (int h = 0; h < j->v->heads; h++) view_set(to, 0, h, r ? NAN : 2);
        if (r) acc->p = NULL;
    }
    struct view before[3];
    for (int i = 0; i < 3; i++)
        if (back.acc[i].p) before[i] = kcase_clone(&x, &back.acc[i]);
    struct kernel_call dry = back;
    if (j->dry) forget_pointers(&dry);
    run(&groups_here, stream, &kt, j->dry ? &dry : &back);
    for (int i = 0; i < 3 && !rc && !j->dry; i++) {
        struct view want = rows_of(&x, j, &k->din[i], r, DT_F32);
        for (int64_t row = 0; back.acc[i].p && row < view_rows(&want); row++)
            for (int64_t col = 0; col < view_cols(&want); col++)
                view_set(&want, row, col, view_get(&want, row, col) + view_get(&before[i], row, col));
        rc = differ(j, i == 0 ? "dq" : i == 1 ? "dk" : "dv", &back.din[i], &want, 4 * j->bound, e);
    }
    for (int h = 0; j->v->sink && !j->dry && h < j->v->heads; h++)
        j->d_sink[r][h] = view_get(&back.din[ATTENTION_SINK], 0, h);
    sum = comm_traffic(world);
    comm_wait(world, comm_barrier(world, "before groups are freed"));
    for (int i = 0; i < 2; i++) {
        struct comm *g = i ? groups_here.outer : groups_here.inner;
        if (!g) continue;
        struct comm_traffic t = comm_traffic(g);
        sum.bytes += t.bytes;
        sum.messages += t.messages;
        sum.operations += t.operations;
        comm_free(g);
    }
    if (j->dry && (sum.bytes != j->sent[r].bytes || sum.messages != j->sent[r].messages))
        rc = err_set(e, ERR_NUMERIC,
                     "%s, cp %d inner %d gather %d: rank %d sent %lld bytes, the null device counts %lld", j->v->name,
                     n, j->l.inner, j->l.gather, r, (long long)j->sent[r].bytes, (long long)sum.bytes);
    j->sent[r] = sum;
    for (int i = 0; i < x.n_blocks; i++) xfree(x.block[i]);
    stream_free(stream);
    device_free(d);
    return rc;
}

static void make_whole(struct kcase *k, const struct variant *v, enum dtype t)
{
    int64_t rows = v->batch * v->seq;
    *k = (struct kcase){.op = OP_ATTENTION, .dtype = t, .seed = 21, .n_in = v->sink ? 5 : v->docs ? 4 : 3};
    k->at = ATTRS(attention, .heads = v->heads, .kv_heads = v->kv, .head_dim = v->a, .batch = v->batch, .seq = v->seq,
                  .scale = 0.4f, .causal = true, .window = v->window, .dropout = {v->dropout, 3});
    k->step = (struct step_info){.seed = 7, .step = 3, .first_token = 4 * (uint64_t)v->seq, .training = true};
    for (int i = 0; i < 3; i++) k->in[i] = kcase_floats(k, rows, (i ? v->kv : v->heads) * v->a, 1);
    if (v->docs) k->in[3] = kcase_ints(k, rows, 0, 0);
    for (int64_t r = 0, id = 0; v->docs && r < rows; r++)
        view_set(&k->in[3], 0, r, (double)(id += kcase_int(k, 0, v->docs - 1) == 0));
    if (v->sink) k->in[ATTENTION_SINK] = kcase_floats(k, v->heads, 0, 1.5);
    kcase_outputs(k);
    kcase_gradients(k);
    for (int i = 0; i < 3; i++) k->acc[i].p = NULL;
    assert_true(kcase_forward(k, &kernel_family_ref, 1) && kcase_backward(k, &kernel_family_ref, 1));
}

/* Of n ranks; *moved: tokens that are not at their own places, added. */
static int64_t *order_for(const struct kcase *k, const struct variant *v, int n, int64_t *moved)
{
    int64_t *order = xcalloc((size_t)(v->batch * v->seq), sizeof *order);
    for (int64_t i = 0; i < v->batch * v->seq; i++) order[i] = i % v->seq;
    for (int64_t b = 0; v->ordered && b < v->batch; b++) {
        document_order((const int32_t *)k->in[ATTENTION_DOC].p + b * v->seq, false, v->seq, n, order + b * v->seq);
        for (int64_t i = 0; i < v->seq; i++) *moved += order[b * v->seq + i] != i;
    }
    return order;
}

static void test_equals_one_rank(void **state)
{
    (void)state;
    for (int i = 0; i < N_VARIANTS; i++)
        for (enum dtype t = DT_F32; t <= DT_BF16; t++) {
            struct kcase k;
            int64_t moved = 0;
            make_whole(&k, &variants[i], t);
            for (int l = 0; l < N_LAYOUTS; l++) {
                struct job j = {.k = &k,
                                .v = &variants[i],
                                .l = layouts[l],
                                .t = t,
                                .bound = t == DT_F32 ? 1e-5 : 3e-2};
                struct err e = {0};
                j.order = order_for(&k, &variants[i], layouts[l].n, &moved);
                if (comm_run_local(layouts[l].n, &(struct comm_config){0}, rank_main, &j, &e)) fail_msg("%s", e.text);
                for (int h = 0; variants[i].sink && h < variants[i].heads; h++) {
                    double sum = -2, want = view_get(&k.din[ATTENTION_SINK], 0, h); /* 2 was there */
                    for (int r = 0; r < layouts[l].n; r++) sum += j.d_sink[r][h];
                    if (!(fabs(sum - want) <= 8 * j.bound))
                        fail_msg("%s, layout %d: sink %d has gradient %g, wanted %g", variants[i].name, l, h, sum,
                                 want);
                }
                j.dry = true;
                for (int r = 0; r < layouts[l].n; r++) {
                    struct comm *w;
                    assert_int_equal(comm_world_null(&w, r, layouts[l].n, &(struct comm_config){0}, &e), OK);
                    if (rank_main(w, &j, &e)) fail_msg("%s", e.text);
                    comm_free(w);
                }
                xfree(j.order);
            }
            assert_true((moved > 0) == variants[i].ordered);
            kcase_free(&k);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equals_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
