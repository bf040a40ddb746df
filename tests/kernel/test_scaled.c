/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* LINEAR_SCALED of every family, at every instruction set, against loops in double: three directions; scales absent,
 * one or one per block, blocks that begin before the operand does and that differ between operands; bias, gradients on
 * top of others in place and elsewhere, few rows and many, both types. Bounds are of the result's type: what fp32 sums
 * may differ, and half a step of bf16 where that is stored. Any number of threads gives the same bits. */
#include "rows.h"

struct scase {
    struct kcase k;
    enum kernel_phase phase;
};

/* The scale of operand i (3: x, 4: w, 5: dy), whose shape is rows by cols. */
static void choose_scale(struct scase *s, int i, struct scale_blocks *b, int64_t rows, int64_t cols, int64_t how,
                         bool along_rows, int depth, int depth_at)
{
    struct kcase *k = &s->k;
    if (how == 0) return;
    if (how == 1) {
        k->in[i] = kcase_tensor(k, DT_F32, 1, 0);
        view_set(&k->in[i], 0, 0, 0.37 * (double)i);
        return;
    }
    int lanes = kcase_int(k, 0, 1) ? 1 : (int)kcase_int(k, 2, 40), at = (int)kcase_int(k, 0, lanes - 1);
    *b = along_rows ? (struct scale_blocks){.rows = depth, .cols = lanes, .row_at = depth_at, .col_at = at}
                    : (struct scale_blocks){.rows = lanes, .cols = depth, .row_at = at, .col_at = depth_at};
    int64_t n0 = (b->row_at + rows + b->rows - 1) / b->rows, n1 = (b->col_at + cols + b->cols - 1) / b->cols;
    k->in[i] = kcase_tensor(k, DT_F32, n0, n1);
    for (int64_t r = 0; r < n0; r++)
        for (int64_t c = 0; c < n1; c++)
            view_set(&k->in[i], r, c, exp2((double)rng_normal(k->seed, 9, (uint64_t)(r * n1 + c))));
}

static void random_case(struct scase *s, uint64_t seed)
{
    struct kcase *k = &s->k;
    *s = (struct scase){.k = {.op = OP_LINEAR_SCALED, .dtype = seed % 3 == 2 ? DT_F32 : DT_BF16, .seed = seed + 5000}};
    s->phase = (enum kernel_phase)kcase_int(k, 0, 2);
    k->at = op_attrs_zero(OP_LINEAR_SCALED);
    struct linear_scaled_attrs *at = edit_linear_scaled(&k->at);
    bool large = seed % 4 == 3;
    int64_t t = kcase_int(k, 1, large ? 150 : 40), in = kcase_int(k, 1, large ? 700 : 60),
            out = kcase_int(k, 1, large ? 150 : 60);
    k->in[0] = kcase_floats(k, t, in, 1);
    k->in[1] = kcase_floats(k, out, in, 0.3);
    if (kcase_int(k, 0, 1)) k->in[2] = kcase_floats(k, out, 0, 0.5);
    k->n_in = 6;
    int depth = kcase_int(k, 0, 1) ? 128 : (int)kcase_int(k, 1, 50), depth_at = (int)kcase_int(k, 0, depth - 1);
    if (kcase_int(k, 0, 1)) depth_at = 0;
    /* what lies along depth: of x its columns forward, its rows in backward weight; and so on */
    int64_t how[3] = {kcase_int(k, 0, 3), kcase_int(k, 0, 3), kcase_int(k, 0, 3)};
    bool uneven = kcase_int(k, 0, 9) == 0; /* only the reference takes it */
    choose_scale(s, 3, &at->x, t, in, how[0], s->phase == KERNEL_BWD_W, depth, depth_at);
    choose_scale(s, 4, &at->w, out, in, how[1], s->phase == KERNEL_BWD_IN,
                 uneven && s->phase == KERNEL_FWD ? depth + 1 : depth, depth_at);
    choose_scale(s, 5, &at->dy, t, out, how[2], s->phase == KERNEL_BWD_W, depth, depth_at);
    kcase_outputs(k);
    k->dout[0] = k->out[0];
    kcase_memory(k, &k->dout[0]);
    view_fill(&k->dout[0], k->seed, 3, 1);
    k->din[0] = kcase_tensor(k, k->dtype, t, in);
    k->din[1] = kcase_tensor(k, DT_F32, out, in);
}

static double scale_at(const struct kcase *k, int i, const struct scale_blocks *b, int64_t r, int64_t c)
{
    const struct view *v = &k->in[i];
    if (!v->nd) return 1;
    if (v->nd == 1) return view_get(v, 0, 0);
    return view_get(v, (b->row_at + r) / b->rows, (b->col_at + c) / b->cols);
}

/* An operand with its scales, as one matrix of doubles. */
static double *whole(const struct kcase *k, const struct view *v, int i, const struct scale_blocks *b)
{
    double *out = xmalloc((size_t)(v->n[0] * v->n[1]) * sizeof *out);
    for (int64_t r = 0; r < v->n[0]; r++)
        for (int64_t c = 0; c < v->n[1]; c++) out[r * v->n[1] + c] = view_get(v, r, c) * scale_at(k, i, b, r, c);
    return out;
}

static void wanted(const struct scase *s, const struct view *to, const struct view *acc)
{
    const struct kcase *k = &s->k;
    const struct linear_scaled_attrs *at = at_linear_scaled(&k->at);
    double *x = whole(k, &k->in[0], 3, &at->x), *w = whole(k, &k->in[1], 4, &at->w),
           *dy = whole(k, &k->dout[0], 5, &at->dy);
    int64_t t = k->in[0].n[0], in = k->in[0].n[1], out = k->in[1].n[0];
    for (int64_t r = 0; r < to->n[0]; r++)
        for (int64_t c = 0; c < to->n[1]; c++) {
            double sum = acc ? view_get(acc, r, c) : 0;
            if (s->phase == KERNEL_FWD && k->in[2].nd) sum += view_get(&k->in[2], 0, c);
            if (s->phase == KERNEL_FWD)
                for (int64_t i = 0; i < in; i++) sum += x[r * in + i] * w[c * in + i];
            else if (s->phase == KERNEL_BWD_IN)
                for (int64_t i = 0; i < out; i++) sum += dy[r * out + i] * w[i * in + c];
            else
                for (int64_t i = 0; i < t; i++) sum += dy[i * out + r] * x[i * in + c];
            view_set(to, r, c, sum);
        }
    xfree(x);
    xfree(w);
    xfree(dy);
}

/* acc: 0 none, 1 in place, 2 elsewhere. */
static int check(struct scase *s, const struct kernel_family *f, int threads, int form, const struct view *want,
                 const struct view *before, const struct view *other)
{
    struct kcase *k = &s->k;
    int i = s->phase == KERNEL_BWD_W;
    struct view *to = s->phase == KERNEL_FWD ? &k->out[0] : &k->din[i];
    memset(k->acc, 0, sizeof k->acc);
    view_spoil(to);
    if (form == 1) view_copy(to, before);
    if (form) k->acc[i] = form == 1 ? *to : *before;
    struct view din[2] = {k->din[0], k->din[1]};
    struct kernel_call c = kcase_call(k, s->phase);
    if (!kcase_run(&c, f, threads)) return 0;
    kcase_check_gaps(k);
    k->din[0] = din[0], k->din[1] = din[1];
    double bound =
               to->dtype == DT_F32 ? 2e-6 * sqrt((double)(k->in[0].n[1] + k->in[0].n[0] + k->in[1].n[0])) : 0x1.1p-8,
           far = view_distance(to, want);
    if (!(far <= bound))
        fail_msg("%s at %s, phase %d, %lldx%lldx%lld %s, form %d: differs by %g of the largest", f->name,
                 isa_name(cpu_isa()), (int)s->phase, (long long)k->in[0].n[0], (long long)k->in[1].n[0],
                 (long long)k->in[0].n[1], dtype_name(k->dtype), form, far);
    if (threads == 1) view_copy(other, to);
    else if (!view_same_bits(other, to)) fail_msg("%s: other bits with %d threads", f->name, threads);
    return 1;
}

static void test_against_double(void **state)
{
    (void)state;
    int ran[N_FAMILIES] = {0}, refused = 0;
    for (uint64_t seed = 0; seed < 90 / CASE_STRIDE; seed++) {
        struct scase s;
        random_case(&s, seed);
        struct kcase *k = &s.k;
        const struct view *to = s.phase == KERNEL_FWD ? &k->out[0] : &k->din[s.phase == KERNEL_BWD_W];
        struct view want = kcase_clone(k, to), before = kcase_clone(k, to), other = kcase_clone(k, to);
        view_fill(&before, k->seed, 8, 2);
        for (int form = 0; form < (s.phase == KERNEL_FWD ? 1 : 3); form++) {
            wanted(&s, &want, form ? &before : NULL);
            for (int f = first_family(); f < N_FAMILIES; f++)
                for (int threads = 1; threads <= 3; threads += form ? 3 : 1) {
                    int took = check(&s, families[f], threads, form, &want, &before, &other);
                    ran[f] += took;
                    refused += families[f] == &kernel_family_cpu && !took;
                }
        }
        kcase_free(k);
    }
    print_message("  ref %d, cpu %d (falls through %d) at %s\n", ran[0], ran[1], refused, isa_name(cpu_isa()));
    if (cpu_isa() > ISA_REF) assert_true(ran[1] > 8 * refused);
}

/* What lies outside of bf16's exact numbers is not there: a code of each 8-bit format, times a power of two, is a bf16;
 * so is a product of E2M1 and E4M3. */
static void test_codes_are_exact_in_bf16(void **state)
{
    (void)state;
    static const enum format f[] = {FORMAT_E4M3, FORMAT_E5M2, FORMAT_E3M2, FORMAT_E2M3, FORMAT_E2M1};
    for (size_t i = 0; i < sizeof f / sizeof *f; i++)
        for (uint32_t code = 0; code < 1u << format_info(f[i]).bits; code++)
            for (int e = -100; e <= 100; e += 20) {
                float v = format_decode(f[i], code) * ldexpf(1, e);
                if (isfinite(v)) assert_true(bf16_to_f32(bf16_from_f32(v)) == v);
            }
    for (uint32_t a = 0; a < 16; a++)
        for (uint32_t b = 0; b < 127; b++) {
            float v = format_decode(FORMAT_E2M1, a) * format_decode(FORMAT_E4M3, b);
            assert_true(bf16_to_f32(bf16_from_f32(v)) == v);
        }
}

static int run_group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_double),
        cmocka_unit_test(test_codes_are_exact_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return run_for_each_isa(run_group); }
