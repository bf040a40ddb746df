/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* Experts' rows in fewer bits, of every family at every instruction set. QUANTISE_PARTS: each part has the bits that
 * the reference of QUANTISE gives a copy of it alone; rows by chance are counted by microbatch and expert.
 * GROUPED_SCALED: three directions against loops in double over codes times descales, with parts and experts that have
 * no rows, gradients on top of others, and rows that are nobody's. Any number of threads gives the same bits. */
#include "rows.h"

#include "kernel/expert_parts.h"

enum { MOST_PARTS = 24 };
static const struct use {
    struct quantise_attrs x, w; /* of rows (x and dy), of a weight; along: what is summed over */
    bool amax;
} forward[] = {
    {{.format = FORMAT_E4M3, .scaling = SCALING_TENSOR}, {.format = FORMAT_E4M3, .scaling = SCALING_TENSOR}, true},
    {{.format = FORMAT_E4M3, .scaling = SCALING_BLOCK, .rows = 1, .cols = 16, .power_of_two = true},
     {.format = FORMAT_E4M3, .scaling = SCALING_BLOCK, .rows = 16, .cols = 16, .power_of_two = true},
     false},
    {{.format = FORMAT_E4M3, .scaling = SCALING_BLOCK, .rows = 1, .cols = 16},
     {.format = FORMAT_E4M3, .scaling = SCALING_BLOCK, .rows = 16, .cols = 16},
     false},
    {{.format = FORMAT_E4M3, .scaling = SCALING_MX, .rows = 1, .cols = 32, .up = true},
     {.format = FORMAT_E4M3, .scaling = SCALING_MX, .rows = 1, .cols = 32, .up = true},
     false},
    {{.format = FORMAT_E2M1, .scaling = SCALING_NV, .rows = 1, .cols = 16, .chance = true, .stream = 77},
     {.format = FORMAT_E2M1, .scaling = SCALING_NV, .rows = 16, .cols = 16},
     true},
};
/* What rows are summed over: down the rows. */
static const struct quantise_attrs down[] = {
    {.format = FORMAT_E5M2, .scaling = SCALING_TENSOR},
    {.format = FORMAT_E4M3, .scaling = SCALING_BLOCK, .rows = 16, .cols = 1, .power_of_two = true},
    {.format = FORMAT_E4M3, .scaling = SCALING_BLOCK, .rows = 16, .cols = 1},
    {.format = FORMAT_E4M3, .scaling = SCALING_MX, .rows = 32, .cols = 1, .up = true},
    {.format = FORMAT_E2M1,
     .scaling = SCALING_NV,
     .rows = 16,
     .cols = 1,
     .rotate = {ALONG_ROWS, 5},
     .chance = true,
     .stream = 78},
};

struct buffers { /* of one case */
    struct kernel_table t;
    struct team *team;
    struct step_info step;
    uint64_t seed;
    int64_t experts, sources, together, rows, k, n;
    int32_t count[MOST_PARTS]; /* source by expert */
    struct view table;
};

static struct view matrix(enum dtype t, int64_t rows, int64_t cols)
{
    struct view v = {.dtype = t, .nd = 2, .n = {rows, cols}, .stride = cols};
    v.p = xcalloc(to_size(rows * cols) + 16, dtype_bytes(t));
    return v;
}

static struct view numbers(struct buffers *b, int64_t rows, int64_t cols, uint64_t which)
{
    struct view v = matrix(DT_BF16, rows, cols);
    for (int64_t i = 0; i < rows * cols; i++)
        ((bf16 *)v.p)[i] = bf16_from_f32(rng_normal(b->seed, which, (uint64_t)i) * (i % 7 ? 1.0f : 8.0f));
    return v;
}

static double get(const struct view *v, int64_t r, int64_t c)
{
    int64_t at = r * v->stride + c;
    return v->dtype == DT_BF16 ? (double)bf16_to_f32(((const bf16 *)v->p)[at]) : (double)((const float *)v->p)[at];
}

static void run(struct buffers *b, struct kernel_call *c)
{
    const char *family;
    c->step = &b->step;
    struct stream here = kernel_here(b->team);
    c->stream = &here;
    c->scratch_bytes = kernel_scratch(&b->t, c);
    c->scratch = aligned_alloc(64, (c->scratch_bytes + 127) / 64 * 64);
    c->kernel = kernel_find(&b->t, c, &family);
    kernel_run(&b->t, c);
    c->stream = NULL;
    free(c->scratch);
}

static void make_case(struct buffers *b, uint64_t seed)
{
    b->seed = seed;
    b->step = (struct step_info){.seed = 3, .step = seed, .first_token = 4 * 48, .training = true, .loss_scale = 1};
    b->experts = 1 + (int64_t)(rng_u32(seed, 1, 0) % 4);
    b->sources = seed % 3 ? 1 + (int64_t)(rng_u32(seed, 1, 1) % 3) : 0;
    b->together = seed % 3 == 2 ? 2 : 1; /* ranks that share out the tokens of one microbatch */
    b->sources *= b->together;
    b->k = seed % 2 ? 48 : 33;
    b->n = seed % 2 ? 32 : 21;
    b->rows = 5;
    int64_t sources = b->sources ? b->sources : 1;
    for (int64_t i = 0; i < sources * b->experts; i++) {
        b->count[i] = rng_u32(seed, 2, (uint64_t)i) % 4 ? (int32_t)(rng_u32(seed, 3, (uint64_t)i) % 90) : 0;
        b->rows += b->count[i];
    }
    b->table = (struct view){.p = b->count, .dtype = DT_I32, .nd = b->sources ? 2 : 1, .stride = b->experts};
    b->table.n[0] = b->sources ? b->sources : b->experts;
    b->table.n[1] = b->sources ? b->experts : 0;
}

/* What an expert has of one microbatch. */
static int64_t rows_of(const struct buffers *b, int64_t batch, int64_t e)
{
    int64_t n = 0;
    for (int64_t k = 0; k < b->together; k++) n += b->count[(batch * b->together + k) * b->experts + e];
    return n;
}

static int64_t batches_of(const struct buffers *b) { return b->sources ? b->sources / b->together : 1; }

static struct parts_attrs parts_of(const struct buffers *b, bool weight)
{
    struct parts_attrs p = {.sources = to_int(b->sources), .experts = 9, .expert = 2, .tokens = 48, .apart = 96};
    p.source = batches_of(b) > 1;
    p.together = b->together > 1 ? to_int(b->together) : 0;
    if (weight) p = (struct parts_attrs){.each = b->n};
    return p;
}

/* ---- rounding ---- */
struct rounded {
    struct view q, descale, amax;
    struct scale_blocks blocks;
};

static struct rounded round_parts(struct buffers *b, const struct view *x, const struct quantise_attrs *at, bool weight)
{
    struct rounded r = {0};
    struct kernel_call c = {.op = OP_AMAX_PARTS,
                            .n_in = 2,
                            .n_out = 1,
                            .in = {*x, weight ? (struct view){0} : b->table}};
    struct view out[KERNEL_MAX_OUT] = {{0}};
    c.at = ATTRS(amax_parts, .amax = {.rotate = at->rotate}, .parts = parts_of(b, weight));
    assert_null(op_row(c.op)->infer(&c.at, c.n_in, c.in, out));
    r.amax = out[0];
    r.amax.p = xcalloc(to_size(out[0].n[0]) + 1, sizeof(float));
    c.out[0] = r.amax;
    run(b, &c);
    c = (struct kernel_call){.op = OP_QUANTISE_PARTS, .n_in = 3, .n_out = 2, .in = {*x, r.amax, c.in[1]}};
    c.at = ATTRS(quantise_parts, .quantise = *at, .parts = parts_of(b, weight));
    const char *why = op_row(c.op)->infer(&c.at, c.n_in, c.in, out);
    if (why) fail_msg("%s", why);
    r.q = matrix(DT_BF16, out[0].n[0], out[0].n[1]);
    if (out[1].nd) r.descale = matrix(DT_F32, out[1].n[0], out[1].n[1]);
    c.out[0] = r.q;
    c.out[1] = r.descale;
    run(b, &c);
    if (at->scaling == SCALING_BLOCK && !at->power_of_two)
        r.blocks = (struct scale_blocks){at->rows, at->cols, 0, 0, 0};
    return r;
}

static void rounded_free(struct rounded *r)
{
    xfree(r->q.p);
    xfree(r->descale.p);
    xfree(r->amax.p);
}

/* A part alone, by the reference; its codes times descales in double, too. */
static void check_part(struct buffers *b, const struct rounded *r, const struct view *x, struct quantise_attrs at,
                       int64_t index, int64_t first, int64_t rows, int64_t blocks, int64_t counted, double *value)
{
    struct view copy = matrix(DT_BF16, rows, x->n[1]), q = matrix(DT_BF16, rows, x->n[1]), d = {0};
    float amax = 0, one[1];
    struct kernel_table ref;
    struct err e = {0};
    if (kernel_table_init(&ref, "ref", 1, false, &e)) fail_msg("%s", e.text);
    memcpy(copy.p, (const bf16 *)x->p + first * x->stride, to_size(rows * x->n[1]) * sizeof(bf16));
    struct view number = {.p = &amax, .dtype = DT_F32, .nd = 1, .n = {1}, .stride = 1};
    struct kernel_call c = {.op = OP_AMAX, .n_in = 1, .n_out = 1, .in = {copy}, .out = {number}, .step = &b->step};
    c.at = ATTRS(amax, .rotate = at.rotate);
    kernel_run(&ref, &c);
    assert_true(((const float *)r->amax.p)[index] == amax);
    if (at.chance) at.first_row = counted;
    if (r->descale.nd && r->blocks.rows) d = matrix(DT_F32, (rows + at.rows - 1) / at.rows, r->descale.n[1]);
    else if (r->descale.nd) d = (struct view){.p = one, .dtype = DT_F32, .nd = 1, .n = {1}, .stride = 1};
    c = (struct kernel_call){.op = OP_QUANTISE, .n_in = 2, .n_out = 2, .in = {copy, number}, .out = {q, d}};
    c.at = attrs_quantise(at);
    c.step = &b->step;
    kernel_run(&ref, &c);
    const bf16 *got = (const bf16 *)r->q.p + first * r->q.stride;
    if (memcmp(got, q.p, to_size(rows * x->n[1]) * sizeof(bf16)))
        fail_msg("seed %d, part %d", (int)b->seed, (int)index);
    const float *scale = (const float *)r->descale.p + (r->blocks.rows ? blocks * r->descale.stride : index);
    size_t numbers_of = r->blocks.rows ? to_size(view_rows(&d) * view_cols(&d)) : 1;
    if (d.nd) assert_memory_equal(scale, d.p, numbers_of * sizeof(float));
    for (int64_t i = 0; i < rows * x->n[1]; i++) {
        int64_t row = i / x->n[1], col = i % x->n[1];
        double s = !d.nd ? 1 : r->blocks.rows ? get(&d, row / at.rows, col / at.cols) : (double)one[0];
        value[first * x->n[1] + i] = get(&q, row, col) * s;
    }
    if (r->blocks.rows) xfree(d.p);
    xfree(copy.p);
    xfree(q.p);
}

/* What the operand is worth: codes times descales. */
static double *check_parts(struct buffers *b, const struct rounded *r, const struct view *x,
                           const struct quantise_attrs *at, bool weight)
{
    double *value = xcalloc(to_size(x->n[0] * x->n[1]) + 1, sizeof *value);
    int64_t sources = weight ? 1 : batches_of(b), first = 0, blocks = 0;
    const struct parts_attrs p = parts_of(b, weight);
    for (int64_t e = 0; e < b->experts; e++)
        for (int64_t s = 0; s < sources; s++) {
            int64_t rows = weight ? b->n : rows_of(b, s, e);
            /* microbatch 4 here, each of a source two further on; expert 2 is the first of 9 here; 48 tokens */
            int64_t counted = ((4 + (p.sources ? s - p.source : 0) * 2) * 9 + 2 + e) * 48;
            if (rows)
                check_part(b, r, x, *at, e * sources + s, first, rows, at->rows == 1 ? first : blocks, counted, value);
            first += rows;
            if (at->rows) blocks += (rows + at->rows - 1) / at->rows;
        }
    return value;
}

/* ---- products ---- */
static void close_to(const struct buffers *b, const struct view *got, int64_t r, int64_t c, double want, double size)
{
    double x = get(got, r, c), bound = (got->dtype == DT_BF16 ? 0x1p-8 * fabs(want) : 0) + 2e-6 * size + 1e-30;
    if (!(fabs(x - want) <= bound)) fail_msg("seed %d: [%d][%d] is %g, not %g", (int)b->seed, (int)r, (int)c, x, want);
}

static int64_t expert_of(const struct buffers *b, int64_t row)
{
    for (int64_t e = 0; e < b->experts; e++)
        for (int64_t s = 0; s < batches_of(b); s++) {
            if (row < rows_of(b, s, e)) return e;
            row -= rows_of(b, s, e);
        }
    return -1;
}

static struct kernel_call product(struct buffers *b, enum kernel_phase phase, const struct rounded *x,
                                  const struct rounded *w, const struct rounded *dy)
{
    struct kernel_call c = {.op = OP_GROUPED_SCALED, .phase = phase, .n_in = 6, .n_out = 1};
    struct grouped_scaled_attrs at = {.parts = parts_of(b, false)};
    c.in[0] = x ? x->q : (struct view){.dtype = DT_BF16, .nd = 2, .n = {b->rows, b->k}, .stride = b->k};
    c.in[1] = w ? w->q : (struct view){.dtype = DT_BF16, .nd = 2, .n = {b->experts * b->n, b->k}, .stride = b->k};
    c.in[2] = b->table;
    if (x) c.in[3] = x->descale, at.x = x->blocks;
    if (w) c.in[4] = w->descale, at.w = w->blocks;
    if (dy) c.in[5] = dy->descale, at.dy = dy->blocks, c.dout[0] = dy->q;
    c.at = attrs_grouped_scaled(at);
    struct view out[KERNEL_MAX_OUT];
    const char *why = op_row(c.op)->infer(&c.at, c.n_in, c.in, out);
    if (why) fail_msg("%s", why);
    c.out[0] = out[0];
    return c;
}

static void same_by_threads(struct buffers *b, struct kernel_call *c, const struct view *out)
{
    size_t bytes = to_size(view_rows(out) * view_cols(out)) * dtype_bytes(out->dtype);
    void *first = xmalloc(bytes + 1);
    struct team *mine = b->team;
    memcpy(first, out->p, bytes);
    b->team = NULL;
    if (c->acc[0].p || c->acc[1].p) return xfree(first), (void)(b->team = mine); /* on top of itself */
    run(b, c);
    b->team = mine;
    assert_memory_equal(first, out->p, bytes);
    xfree(first);
}

static void check_forward(struct buffers *b, const struct use *u)
{
    struct view x = numbers(b, b->rows, b->k, 4), w = numbers(b, b->experts * b->n, b->k, 5);
    struct rounded xq = round_parts(b, &x, &u->x, false), wq = round_parts(b, &w, &u->w, true);
    double *xv = check_parts(b, &xq, &x, &u->x, false), *wv = check_parts(b, &wq, &w, &u->w, true);
    struct kernel_call c = product(b, KERNEL_FWD, &xq, &wq, NULL);
    struct view y = c.out[0] = matrix(DT_BF16, b->rows, b->n);
    memset(y.p, 0x7f, to_size(b->rows * b->n) * sizeof(bf16));
    run(b, &c);
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t j = 0; j < b->n; j++) {
            int64_t e = expert_of(b, r);
            double sum = 0, size = 0;
            for (int64_t k = 0; e >= 0 && k < b->k; k++) {
                double one = xv[r * b->k + k] * wv[(e * b->n + j) * b->k + k];
                sum += one, size += fabs(one);
            }
            close_to(b, &y, r, j, sum, size);
        }
    same_by_threads(b, &c, &y);
    xfree(xv), xfree(wv), xfree(x.p), xfree(w.p), xfree(y.p);
    rounded_free(&xq), rounded_free(&wq);
}

static void check_inputs(struct buffers *b, const struct use *u, bool more)
{
    struct quantise_attrs at_w = u->w;
    if (at_w.scaling == SCALING_MX) at_w.rows = 32, at_w.cols = 1;
    struct view dy = numbers(b, b->rows, b->n, 6), w = numbers(b, b->experts * b->n, b->k, 5);
    struct rounded dq = round_parts(b, &dy, &u->x, false), wq = round_parts(b, &w, &at_w, true);
    double *dv = check_parts(b, &dq, &dy, &u->x, false), *wv = check_parts(b, &wq, &w, &at_w, true);
    struct kernel_call c = product(b, KERNEL_BWD_IN, NULL, &wq, &dq);
    struct view dx = c.din[0] = matrix(DT_BF16, b->rows, b->k), acc = numbers(b, b->rows, b->k, 8);
    if (more) c.acc[0] = acc;
    run(b, &c);
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t k = 0; k < b->k; k++) {
            int64_t e = expert_of(b, r);
            double sum = more ? get(&acc, r, k) : 0, size = fabs(sum);
            for (int64_t j = 0; e >= 0 && j < b->n; j++) {
                double one = dv[r * b->n + j] * wv[(e * b->n + j) * b->k + k];
                sum += one, size += fabs(one);
            }
            close_to(b, &dx, r, k, sum, size);
        }
    same_by_threads(b, &c, &dx);
    xfree(dv), xfree(wv), xfree(dy.p), xfree(w.p), xfree(dx.p), xfree(acc.p);
    rounded_free(&dq), rounded_free(&wq);
}

static void check_weights(struct buffers *b, const struct quantise_attrs *at, bool more)
{
    struct view dy = numbers(b, b->rows, b->n, 6), x = numbers(b, b->rows, b->k, 4);
    struct rounded dq = round_parts(b, &dy, at, false), xq = round_parts(b, &x, at, false);
    double *dv = check_parts(b, &dq, &dy, at, false), *xv = check_parts(b, &xq, &x, at, false);
    struct kernel_call c = product(b, KERNEL_BWD_W, &xq, NULL, &dq);
    struct view dw = c.din[1] = matrix(DT_F32, b->experts * b->n, b->k);
    for (int64_t i = 0; i < b->experts * b->n * b->k; i++) ((float *)dw.p)[i] = 0.5f;
    if (more) c.acc[1] = dw; /* in place */
    run(b, &c);
    for (int64_t i = 0; i < b->experts * b->n; i++)
        for (int64_t k = 0; k < b->k; k++) {
            double sum = more ? 0.5 : 0, size = sum;
            for (int64_t r = 0; r < b->rows; r++) {
                double one = expert_of(b, r) == i / b->n ? dv[r * b->n + i % b->n] * xv[r * b->k + k] : 0;
                sum += one, size += fabs(one);
            }
            close_to(b, &dw, i, k, sum, size);
        }
    same_by_threads(b, &c, &dw);
    xfree(dv), xfree(xv), xfree(dy.p), xfree(x.p), xfree(dw.p);
    rounded_free(&dq), rounded_free(&xq);
}

static void check_all(const char *kernels, int threads)
{
    struct buffers b = {.team = threads > 1 ? team_new(threads) : NULL};
    struct err e = {0};
    if (kernel_table_init(&b.t, kernels, threads, false, &e)) fail_msg("%s", e.text);
    for (uint64_t seed = 1; seed <= 18; seed += CASE_STRIDE) {
        make_case(&b, seed);
        for (size_t i = seed % 2; i < sizeof forward / sizeof *forward; i += 2) {
            check_forward(&b, &forward[i]);
            check_inputs(&b, &forward[i], seed % 4 > 1);
            check_weights(&b, &down[i], seed % 4 > 1);
        }
    }
    team_free(b.team);
}

static void test_ref(void **state)
{
    (void)state;
    check_all("ref", 1);
}

static void test_fast(void **state)
{
    (void)state;
    check_all("auto", 3);
}

/* What products add up as hardware does: every way takes parts too, and is near. */
static void test_accumulate(void **state)
{
    (void)state;
    struct buffers b = {0};
    struct err e = {0};
    if (kernel_table_init(&b.t, "auto", 1, false, &e)) fail_msg("%s", e.text);
    if (kernel_table_accumulate(&b.t, "hopper-fp8", &e)) fail_msg("%s", e.text);
    make_case(&b, 7);
    struct view x = numbers(&b, b.rows, b.k, 4), w = numbers(&b, b.experts * b.n, b.k, 5);
    struct rounded xq = round_parts(&b, &x, &forward[0].x, false), wq = round_parts(&b, &w, &forward[0].w, true);
    double *xv = check_parts(&b, &xq, &x, &forward[0].x, false), *wv = check_parts(&b, &wq, &w, &forward[0].w, true);
    struct kernel_call c = product(&b, KERNEL_FWD, &xq, &wq, NULL);
    struct view y = c.out[0] = matrix(DT_BF16, b.rows, b.n);
    const char *family;
    kernel_find(&b.t, &c, &family);
    assert_string_equal(family, "hopper-fp8");
    run(&b, &c);
    for (int64_t r = 0; r < b.rows; r++)
        for (int64_t j = 0; j < b.n; j++) {
            int64_t e_of = expert_of(&b, r);
            double sum = 0, size = 0;
            for (int64_t k = 0; e_of >= 0 && k < b.k; k++) {
                double one = xv[r * b.k + k] * wv[(e_of * b.n + j) * b.k + k];
                sum += one, size += fabs(one);
            }
            double got = get(&y, r, j);
            if (fabs(got - sum) > 1e-2 * size + 1e-30) fail_msg("[%d][%d] is %g, not %g", (int)r, (int)j, got, sum);
        }
    xfree(xv), xfree(wv), xfree(x.p), xfree(w.p), xfree(y.p);
    rounded_free(&xq), rounded_free(&wq);
}

static int run_group(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ref), cmocka_unit_test(test_fast),
                                       cmocka_unit_test(test_accumulate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return run_for_each_isa(run_group); }
