/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* Attention over parts of sequences, put together, is attention over whole ones: any number of parts, groups of parts
 * as queries, lengths that nothing divides, documents, windows, dropout, grouped heads; reference and vector families,
 * one thread and three, forward and backward. */
#include "kernel/harness.h"

#include "layout/sequence.h"
#include "sanitized.h"

enum { MOST_PARTS = 5 };

struct variant {
    const char *name;
    int64_t batch, seq;
    int heads, kv, a;
    bool causal;
    int64_t window;
    int docs; /* about how many tokens in one; 0: none */
    float dropout;
    int prefix; /* tokens at the front of each document, about, that see each other */
};
static const struct variant variants[] = {
    {"odd", 2, 37, 2, 1, 12, true, 0, 0, 0, 0},       {"not causal", 1, 29, 1, 1, 8, false, 0, 0, 0, 0},
    {"window", 1, 61, 2, 2, 16, true, 9, 0, 0, 0},    {"documents", 2, 50, 2, 1, 10, true, 0, 12, 0, 0},
    {"dropout", 2, 33, 4, 2, 8, true, 0, 0, 0.3f, 0}, {"all of it", 2, 301, 2, 1, 24, true, 150, 90, 0.1f, 0},
    {"short", 3, 5, 1, 1, 4, true, 0, 0, 0, 0},       {"long", 1, 700, 1, 1, 32, true, 0, 0, 0, 0},
    {"prefixes", 2, 50, 2, 1, 10, true, 0, 12, 0, 7}, {"a long prefix", 1, 330, 2, 1, 16, true, 0, 999, 0.1f, 400},
};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

struct whole {
    struct kcase k; /* the ordinary operation, done by the reference */
};

static void make_whole(struct whole *w, const struct variant *v, enum dtype t)
{
    struct kcase *k = &w->k;
    int64_t rows = v->batch * v->seq;
    *k = (struct kcase){.op = OP_ATTENTION, .dtype = t, .seed = 11, .n_in = v->docs ? 4 : 3};
    k->at = ATTRS(attention, .heads = v->heads, .kv_heads = v->kv, .head_dim = v->a, .batch = v->batch, .seq = v->seq,
                  .scale = 0.4f, .causal = v->causal, .window = v->window, .prefix = v->prefix > 0,
                  .dropout = {v->dropout, 3});
    k->step = (struct step_info){.seed = 7, .step = 3, .first_token = 4 * (uint64_t)v->seq, .training = true};
    for (int i = 0; i < 3; i++) k->in[i] = kcase_floats(k, rows, (i ? v->kv : v->heads) * v->a, 1);
    if (v->docs) k->in[3] = kcase_ints(k, rows, 0, 0);
    for (int64_t r = 0, id = 0; v->docs && r < rows; r++) {
        if (kcase_int(k, 0, v->docs - 1) == 0) id++;
        view_set(&k->in[3], 0, r, (double)id);
    }
    for (int64_t r = 0, left = 0, was = -1; v->prefix && r < rows; r++) {
        int64_t id = (int64_t)view_get(&k->in[3], 0, r);
        if (id != was || r % v->seq == 0) left = kcase_int(k, 0, v->prefix);
        was = id;
        view_set(&k->in[3], 0, r, (double)(2 * id + (left-- > 0)));
    }
    kcase_outputs(k);
    kcase_gradients(k);
    for (int i = 0; i < 3; i++) k->acc[i].p = NULL;
    assert_true(kcase_forward(k, &kernel_family_ref, 1) && kcase_backward(k, &kernel_family_ref, 1));
}

/* Rows of parts [first, first + count) of a whole tensor, in memory of their own. */
static struct view rows_of(struct kcase *k, const struct view *v, int n, int first, int count, enum dtype t)
{
    int64_t batch = kcase_heads(k)->batch, seq = kcase_heads(k)->seq, each = context_rows(seq, n, first, count), to = 0;
    struct view p = kcase_tensor(k, t, batch * each, v->n[1]);
    for (int64_t b = 0; b < batch; b++)
        for (int r = first; r < first + count; r++)
            for (int64_t i = 0; i < context_rows(seq, n, r, 1); i++, to++)
                for (int64_t c = 0; c < v->n[1]; c++)
                    view_set(&p, to, c, view_get(v, b * seq + context_place(seq, n, r, i), c));
    return p;
}

static void expect(const char *what, const struct variant *v, int n, const struct view *got, const struct view *want,
                   double bound)
{
    double scale = fmax(view_max(want), 1);
    for (int64_t r = 0; r < view_rows(got); r++)
        for (int64_t c = 0; c < view_cols(got); c++) {
            double a = view_get(got, r, c), b = view_get(want, r, c);
            if (!(fabs(a - b) <= bound * scale))
                fail_msg("%s, %s, %d parts: (%d, %d) is %g, wanted %g", v->name, what, n, (int)r, (int)c, a, b);
        }
}

static void run(const struct kernel_table *kt, struct kernel_call *c)
{
    c->scratch_bytes = kernel_scratch(kt, c);
    char *memory = xmalloc(c->scratch_bytes + 128);
    c->scratch = memory + (64 - (uintptr_t)memory % 64);
    memset(c->scratch, 0xff, c->scratch_bytes + 64);
    kernel_run(kt, c);
    for (int i = 0; i < 64; i++) assert_int_equal(((unsigned char *)c->scratch)[c->scratch_bytes + (size_t)i], 0xff);
    xfree(memory);
    c->scratch = NULL;
}

/* All keys, part by part, for the queries of one group of parts; dk and dv add up in `dkv` by key part. */
static void check_group(const struct kernel_table *kt, struct team *team, struct whole *w, const struct variant *v,
                        int n, int group, int first, double bound, struct view dkv[][2])
{
    struct kcase *k = &w->k, x = *k;
    x.n_blocks = 0;
    struct attention_part_attrs part = {.attention = *at_attention(&k->at),
                                        .parts = n,
                                        .q_first = first,
                                        .q_count = group,
                                        .k_count = 1};
    struct stream here = kernel_here(team);
    struct kernel_call c = {.op = OP_ATTENTION_PART,
                            .step = &k->step,
                            .at = attrs_attention_part(part),
                            .n_in = k->n_in,
                            .n_out = 2,
                            .stream = &here};
    struct attention_part_attrs *at = edit_attention_part(&c.at);
    struct view q = rows_of(&x, &k->in[0], n, first, group, k->dtype),
                dout = rows_of(&x, &k->dout[0], n, first, group, k->dtype);
    struct view want_o = rows_of(&x, &k->out[0], n, first, group, DT_F32),
                want_lse = rows_of(&x, &k->out[1], n, first, group, DT_F32);
    struct view want_dq = rows_of(&x, &k->din[0], n, first, group, DT_F32),
                o_final = rows_of(&x, &k->out[0], n, first, group, k->dtype);
    struct view o = kcase_tensor(&x, DT_F32, q.n[0], q.n[1]),
                lse = kcase_tensor(&x, DT_F32, q.n[0], part.attention.heads);
    struct view dq = kcase_tensor(&x, DT_F32, q.n[0], q.n[1]);
    c.in[0] = q;
    c.in[3] = k->in[3];
    for (int step = 0; step < n; step++) { /* in a ring's order: its own first */
        int from = ((first - step) % n + n) % n;
        at->k_first = from;
        at->more = step > 0;
        for (int i = 1; i < 3; i++) c.in[i] = rows_of(&x, &k->in[i], n, from, 1, k->dtype);
        c.phase = KERNEL_FWD;
        c.out[0] = o;
        c.out[1] = lse;
        struct view shape[2] = {{0}};
        const char *why = op_row(c.op)->infer(&c.at, c.n_in, c.in, shape);
        if (why) fail_msg("%s", why);
        run(kt, &c);
    }
    expect("o", v, n, &o, &want_o, bound);
    expect("lse", v, n, &lse, &want_lse, bound);
    for (int from = 0; from < n; from++) {
        c.phase = KERNEL_BWD_IN;
        at->k_first = from;
        for (int i = 1; i < 3; i++) c.in[i] = rows_of(&x, &k->in[i], n, from, 1, k->dtype);
        c.out[0] = o_final;
        c.out[1] = want_lse;
        c.dout[0] = dout;
        c.din[0] = dq;
        c.acc[0] = dq;
        if (!from) c.acc[0].p = NULL;
        for (int i = 1; i < 3; i++) c.din[i] = c.acc[i] = dkv[from][i - 1];
        run(kt, &c);
    }
    expect("dq", v, n, &dq, &want_dq, 3 * bound);
    for (int i = 0; i < x.n_blocks; i++) xfree(x.block[i]);
}

static void check(const struct kernel_table *kt, struct team *team, struct whole *w, const struct variant *v, int n,
                  int group)
{
    struct kcase *k = &w->k, x = *k;
    double bound = k->dtype == DT_F32 ? 2e-5 : 2e-2;
    struct view dkv[MOST_PARTS][2];
    x.n_blocks = 0;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2; i++) {
            dkv[r][i] = rows_of(&x, &k->in[i + 1], n, r, 1, DT_F32);
            view_fill_zero(&dkv[r][i]);
        }
    for (int first = 0; first < n; first += group) check_group(kt, team, w, v, n, group, first, bound, dkv);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2; i++) {
            struct view want = rows_of(&x, &k->din[i + 1], n, r, 1, DT_F32);
            expect(i ? "dv" : "dk", v, n, &dkv[r][i], &want, 3 * bound);
        }
    for (int i = 0; i < x.n_blocks; i++) xfree(x.block[i]);
}

static void test_parts(void **state)
{
    (void)state;
    static const char *const names[] = {"ref", "auto", "ref"};
    for (int f = 0; f < 3; f++) /* the last: a GPU's, simulated, before the reference */
        for (int threads = 1; threads <= (f == 1 ? 3 : 1); threads += 2) {
            struct kernel_table kt;
            struct team *team = team_new(threads);
            assert_int_equal(kernel_table_init(&kt, names[f], threads, false, NULL), OK);
            if (f == 2) kt.chain[1] = kt.chain[0], kt.chain[0] = &kernel_family_cuda;
            for (int i = 0; i < N_VARIANTS; i++) {
                const struct variant *v = &variants[i];
                if ((f != 1 || CASE_STRIDE > 2) && v->seq > 100)
                    continue; /* the reference is slow, and so is all that is emulated or watched */
                for (enum dtype t = DT_F32; t <= DT_BF16; t++) {
                    struct whole w;
                    make_whole(&w, v, t);
                    for (int n = 1; n <= MOST_PARTS; n += CASE_STRIDE > 2 ? 2 : 1) check(&kt, team, &w, v, n, 1);
                    check(&kt, team, &w, v, 4, 2);
                    check(&kt, team, &w, v, 3, 3);
                    kcase_free(&w.k);
                }
            }
            team_free(team);
        }
}

/* The row's pairs are those of the whole: flops add up. */
static void test_flops_add_up(void **state)
{
    (void)state;
    struct attention_attrs heads =
        {.heads = 3, .kv_heads = 1, .head_dim = 8, .batch = 2, .seq = 45, .causal = true, .window = 13};
    struct kernel_call c = {.op = OP_ATTENTION, .at = attrs_attention(heads)};
    double whole = op_row(OP_ATTENTION)->flops(&c), sum = 0, ranks = 0;
    c.op = OP_ATTENTION_PART;
    for (int q = 0; q < 4; q++)
        for (int k = 0; k < 4; k++) {
            c.at = ATTRS(attention_part, .attention = heads, .parts = 4, .q_first = q, .q_count = 1, .k_first = k,
                         .k_count = 1);
            sum += op_row(OP_ATTENTION_PART)->flops(&c);
        }
    assert_true(fabs(sum - whole) < 1e-9 * whole);
    c.op = OP_CONTEXT;
    for (int inner = 1; inner <= 4; inner *= 2) {
        ranks = 0;
        for (int r = 0; r < 4; r++) {
            struct view in[3], out[2];
            int64_t rows = 2 * context_rows(45, 4, r, 1);
            for (int i = 0; i < 3; i++)
                in[i] = (struct view){.dtype = DT_F32, .nd = 2, .n = {rows, i ? 8 : 24}, .stride = 24};
            c.at = ATTRS(context, .over = {AXIS_CP, 4, r}, .attention = heads, .inner = inner);
            assert_null(op_row(OP_CONTEXT)->infer(&c.at, 3, in, out));
            c.out[1] = out[1];
            ranks += op_row(OP_CONTEXT)->flops(&c);
        }
        assert_true(fabs(ranks - whole) < 1e-9 * whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts), cmocka_unit_test(test_flops_add_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
