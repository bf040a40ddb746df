/* SPDX-License-Identifier: Apache-2.0 */
/* AMAX and QUANTISE of every family, at every instruction set, against scales and codes worked out here from the
 * papers' formulas: a format is the list of its values, a code the nearest of them by search, a block a pair of loops
 * over the whole tensor. To the bit, for every format, scaling and shape of block, both types, views with gaps, pieces
 * that begin inside blocks, zeros, subnormal numbers, numbers beyond the format, NaN and infinities; any number of
 * threads. */
#include "rows.h"

#include <float.h>

#include "kernel/rounded.h"
#include "layout/format.h"

/* ---- a format, as a list ---- */
struct values {
    double v[130]; /* not negative, ascending: code i */
    int n;
};

static struct values values_of(enum format f)
{
    struct format_info info = format_info(f);
    struct values out = {.n = (int)info.max_code + 1};
    for (int i = 0; i < out.n; i++) {
        int field = i >> info.fraction, low = i & ((1 << info.fraction) - 1);
        out.v[i] = field ? ldexp((1 << info.fraction) + low, field - info.bias - info.fraction)
                         : ldexp(low, 1 - info.bias - info.fraction);
    }
    assert_true(out.v[out.n - 1] == info.max);
    return out;
}

/* The value that y becomes; word: by chance. */
static double rounded(const struct values *f, double y, const uint32_t *word)
{
    double size = fabs(y);
    int at = 0;
    while (at + 1 < f->n && f->v[at + 1] <= size) at++;
    if (at + 1 < f->n) {
        double lo = f->v[at], hi = f->v[at + 1], part = (size - lo) / (hi - lo);
        bool up = word ? floor(part * 4294967296.0) + (double)*word >= 4294967296.0
                       : part > 0.5 || (part == 0.5 && at % 2 == 1);
        at += up;
    }
    return y < 0 || (y == 0 && signbit(y)) ? -f->v[at] : f->v[at];
}

/* ---- a case ---- */
struct qcase {
    struct kcase k;
    bool given; /* amax is not this tensor's own */
};

static const enum format formats[] = {FORMAT_E4M3, FORMAT_E5M2, FORMAT_E3M2, FORMAT_E2M3, FORMAT_E2M1};

/* Numbers of very different sizes, and now and then a special one. */
static void fill(struct kcase *k, const struct view *x)
{
    static const double special[] = {0, -0.0, 0x1p-133, -0x1p-126, 0x1.fcp127, 448, 464, 0x1p-9, 3, -6};
    int64_t odd = kcase_int(k, 0, 3), bad = kcase_int(k, 0, 5);
    double scale = ldexp(1, (int)kcase_int(k, -30, 30));
    if (k->seed % 6 == 1) scale = 0x1p-126; /* values times scales are subnormal, too */
    for (int64_t r = 0; r < x->n[0]; r++)
        for (int64_t c = 0; c < x->n[1]; c++) {
            double v = scale * (double)rng_normal(k->seed, 5, (uint64_t)(r * x->n[1] + c));
            if (r % 37 == 5 || kcase_int(k, 0, 9) == 0) v = ldexp(v, (int)kcase_int(k, -12, 0));
            if (odd == 0 && kcase_int(k, 0, 40) == 0) v = special[kcase_int(k, 0, 9)];
            if (odd == 1 && r % 3 == 0) v = 0;
            view_set(x, r, c, v);
        }
    if (bad == 0 && x->n[0])
        view_set(x, kcase_int(k, 0, x->n[0] - 1), kcase_int(k, 0, x->n[1] - 1),
                 kcase_int(k, 0, 1) ? (double)NAN : (double)-INFINITY);
}

static struct rotate_attrs some_rotation(struct kcase *k)
{
    struct rotate_attrs r = {.stream = 77};
    if (kcase_int(k, 0, 2) == 0) r.along = kcase_int(k, 0, 1) ? ALONG_ROWS : ALONG_COLS;
    return r;
}

static void choose_block(struct kcase *k, struct quantise_attrs *at)
{
    static const int block[][2] = {{1, 128}, {128, 1}, {128, 128}, {1, 16}, {3, 5}, {64, 8}};
    static const int nv[][2] = {{1, 16}, {16, 1}, {16, 16}};
    int64_t b = kcase_int(k, 0, 5), n = kcase_int(k, 0, 2);
    at->rows = at->scaling == SCALING_BLOCK ? block[b][0] : at->scaling == SCALING_NV ? nv[n][0] : n % 2 ? 1 : 32;
    at->cols = at->scaling == SCALING_BLOCK ? block[b][1] : at->scaling == SCALING_NV ? nv[n][1] : n % 2 ? 32 : 1;
}

static void random_case(struct qcase *q, uint64_t seed)
{
    struct kcase *k = &q->k;
    *q = (struct qcase){.k = {.op = OP_QUANTISE, .dtype = seed % 2 ? DT_F32 : DT_BF16, .seed = seed + 1000}};
    k->at = op_attrs_zero(OP_QUANTISE);
    k->step = (struct step_info){.seed = 7, .step = seed, .first_token = 96, .training = true};
    struct quantise_attrs *at = edit_quantise(&k->at);
    at->format = formats[kcase_int(k, 0, 4)];
    at->scaling = (enum scaling)kcase_int(k, 0, SCALING_N - 1);
    if (at->scaling == SCALING_NV) at->format = FORMAT_E2M1;
    at->power_of_two = kcase_int(k, 0, 1);
    at->up = kcase_int(k, 0, 1);
    choose_block(k, at);
    at->rotate = some_rotation(k);
    at->chance = kcase_int(k, 0, 2) == 0;
    at->tokens = kcase_int(k, 0, 1);
    at->stream = 3;
    bool large = seed % 8 == 3;
    int64_t rows = kcase_int(k, 1, large ? 200 : 40), cols = kcase_int(k, 1, large ? 300 : 60);
    if (kcase_int(k, 0, 1)) { /* a piece */
        at->first_row = kcase_int(k, 0, 20) * (at->rotate.along == ALONG_ROWS ? 16 : 1);
        at->first_col = kcase_int(k, 0, 20) * (at->rotate.along == ALONG_COLS ? 16 : 1);
        at->whole_cols = at->first_col + cols + kcase_int(k, 0, 9);
    }
    k->in[0] = kcase_tensor(k, k->dtype, rows, cols);
    fill(k, &k->in[0]);
    k->n_in = 1;
    bool tensor = at->scaling == SCALING_TENSOR || at->scaling == SCALING_NV;
    if (tensor || kcase_int(k, 0, 4) == 0) {
        k->in[1] = kcase_tensor(k, DT_F32, 1, 0);
        k->n_in = 2;
        q->given = kcase_int(k, 0, 2) == 0;
        view_set(&k->in[1], 0, 0, ldexp(1.5, (int)kcase_int(k, -20, 20)));
    }
    if (k->n_in == 2 && kcase_int(k, 0, 2) == 0) k->in[2] = kcase_ints(k, rows, 0, 5000), k->n_in = 3;
    kcase_outputs(k);
}

/* ---- what it must be ---- */
struct wish {
    const struct kcase *k;
    const struct quantise_attrs *at;
    struct values f;
    float *x; /* rotated, rows by cols */
    int64_t rows, cols;
    struct rounded_counts did;
};

/* What rounding did to one element, which became `got` before it is scaled back. */
static void count_one(struct wish *w, float x, float up, double became)
{
    double last = w->f.v[w->f.n - 1] + (w->f.v[w->f.n - 1] - w->f.v[w->f.n - 2]) / 2;
    rounded_add(&w->did, &(struct rounded_counts){1, (double)fabsf(x * up) > last, x != 0 && became == 0,
                                                  (became - (double)x) * (became - (double)x), (double)x * (double)x,
                                                  (double)fabsf(x)});
}

static void check_counts(const struct wish *w, const char *family, int threads)
{
    struct rounded_counts n = {0};
    struct kernel_call c = kcase_call(w->k, KERNEL_FWD);
    struct stream here = kernel_here(team_new(threads));
    c.stream = &here;
    struct kernel_call counting = rounded_call(&c, &n, 1, 0);
    rounded_count(&counting);
    team_free(here.team);
    bool far = fabs(n.moved - w->did.moved) > 1e-5 * w->did.moved + 1e-12 * w->did.squares;
    if (n.elements != w->did.elements || n.saturated != w->did.saturated || n.flushed != w->did.flushed || far ||
        fabs(n.squares - w->did.squares) > 1e-12 * w->did.squares || n.amax != w->did.amax)
        fail_msg("%s, seed %llu: counted %g elements, %g saturated, %g flushed, moved %g of %g, at most %g; they are "
                 "%g, %g, %g, %g of %g, %g",
                 family, (unsigned long long)w->k->seed, n.elements, n.saturated, n.flushed, n.moved, n.squares, n.amax,
                 w->did.elements, w->did.saturated, w->did.flushed, w->did.moved, w->did.squares, w->did.amax);
}

/* Sum over j of H[i][j] sign[j] x[j] / 4: by the definition of the matrix, (-1)^popcount(i & j). In fp32, where the
 * order of sums matters: pairs at distance 1 first, then 2, 4, 8. */
static float rotated_at(const float x[16], int i, uint32_t signs)
{
    float level[16];
    for (int j = 0; j < 16; j++)
        level[j] = (__builtin_popcount((unsigned)(i & j)) + (signs >> j & 1)) % 2 ? -x[j] : x[j];
    for (int n = 8; n >= 1; n /= 2)
        for (int j = 0; j < n; j++) level[j] = level[2 * j] + level[2 * j + 1];
    return level[0] / 4;
}

static float *rotated(const struct kcase *k, const struct rotate_attrs *at)
{
    const struct view *x = &k->in[0];
    int64_t rows = x->n[0], cols = x->n[1];
    float *out = xmalloc((size_t)(rows * cols) * sizeof *out);
    uint32_t signs = rng_u32(k->step.seed, at->stream, 0);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            int64_t place = at->along == ALONG_ROWS ? r : c, n = at->along == ALONG_ROWS ? rows : cols,
                    first = place - place % 16;
            float group[16];
            out[r * cols + c] = (float)view_get(x, r, c);
            if (at->along == ROTATE_NOT || first + 16 > n) continue;
            for (int i = 0; i < 16; i++)
                group[i] = (float)(at->along == ALONG_ROWS ? view_get(x, first + i, c) : view_get(x, r, first + i));
            out[r * cols + c] = rotated_at(group, (int)(place % 16), signs & 0xffff);
        }
    return out;
}

/* Of the block that (r, c) is in; rows 0: of all. */
static float largest(const struct wish *w, int64_t r, int64_t c, int rows, int cols)
{
    float most = 0;
    int64_t r0 = rows ? r : 0, c0 = cols ? c : 0;
    while (rows && r0 > 0 && (w->at->first_row + r0) % rows != 0) r0--;
    while (cols && c0 > 0 && (w->at->first_col + c0) % cols != 0) c0--;
    for (int64_t i = r0; i < w->rows && (!rows || i == r0 || (w->at->first_row + i) % rows != 0); i++)
        for (int64_t j = c0; j < w->cols && (!cols || j == c0 || (w->at->first_col + j) % cols != 0); j++) {
            float size = fabsf(w->x[i * w->cols + j]);
            if (isnan(size) || isnan(most)) most = NAN;
            else if (size > most) most = size;
        }
    return most;
}

/* Scales of a block, or of the tensor: what a number is multiplied by, and what its value is multiplied by after. */
struct scales {
    float up, down, descale;
    bool bad;
};

static struct scales simple(float most, float amax, bool two)
{
    struct scales s = {.bad = !isfinite(amax), .down = 1};
    s.up = amax == 0 ? 1 : most / amax;
    if (isinf(s.up)) s.up = FLT_MAX;
    if (two) {
        int e = 0;
        (void)frexp((double)s.up, &e);
        s.up = ldexpf(1, e - 1);
    }
    s.descale = 1 / s.up;
    return s;
}

static struct scales wanted_scales(const struct wish *w, float amax_tensor, int64_t r, int64_t c)
{
    const struct quantise_attrs *at = w->at;
    float max = (float)w->f.v[w->f.n - 1];
    if (at->scaling == SCALING_TENSOR) return simple(max, amax_tensor, at->power_of_two);
    float amax = largest(w, r, c, at->rows, at->cols);
    if (at->scaling == SCALING_BLOCK) {
        struct scales s = simple(max, amax, at->power_of_two);
        if (at->power_of_two) s.down = s.descale;
        return s;
    }
    if (at->scaling == SCALING_MX) { /* the scale as a code of E8M0 */
        int code = 127;
        struct scales s = {.bad = !isfinite(amax)};
        if (amax > 0 && !s.bad) {
            int most = 0, of = 0;
            (void)frexp((double)max, &most);
            (void)frexp((double)amax, &of);
            code = 127 + of - most;
            if (at->up && (double)amax / ldexp(1, code - 127) > (double)max) code++;
            code = code < 0 ? 0 : code > 254 ? 254 : code;
        }
        s.down = format_decode(FORMAT_E8M0, (uint32_t)code);
        s.up = 1 / s.down;
        return s;
    }
    struct scales t = simple(2688, amax_tensor, false), s = {.bad = t.bad || !isfinite(amax), .descale = t.descale};
    struct values e4m3 = values_of(FORMAT_E4M3);
    s.down = (float)rounded(&e4m3, (double)(amax / 6 * t.up), NULL);
    s.up = 1 / (s.down * t.descale);
    if (!(s.up < FLT_MAX)) s.up = FLT_MAX;
    return s;
}

static void check_numbers(struct wish *w, const struct view *q, const struct view *descale, const char *family)
{
    const struct quantise_attrs *at = w->at;
    const struct kcase *k = w->k;
    float amax = k->n_in > 1 ? (float)view_get(&k->in[1], 0, 0) : 0;
    bool by_tensor = at->scaling == SCALING_TENSOR || at->scaling == SCALING_NV;
    struct scales s = {0};
    for (int64_t r = 0; r < w->rows; r++)
        for (int64_t c = 0; c < w->cols; c++) {
            bool begins = c == 0 || at->cols == 0 || (at->first_col + c) % at->cols == 0;
            if (begins) s = wanted_scales(w, amax, r, c);
            float x = w->x[r * w->cols + c];
            uint64_t row = (uint64_t)(at->first_row + (k->n_in > 2 ? (int64_t)view_get(&k->in[2], 0, r) : r)) +
                           (at->tokens ? k->step.first_token : 0);
            uint64_t index =
                row * (uint64_t)(at->whole_cols ? at->whole_cols : w->cols) + (uint64_t)(at->first_col + c);
            uint32_t word = rng_u32(k->step.seed, rng_stream_at(at->stream, k->step.step), index);
            double want = (double)((float)rounded(&w->f, (double)(x * s.up), at->chance ? &word : NULL) * s.down);
            double got = view_get(q, r, c);
            bool nan = s.bad || !isfinite(x);
            bool two = at->scaling == SCALING_MX || (at->scaling == SCALING_BLOCK && at->power_of_two);
            if (!nan) count_one(w, x, s.up, got * (two ? 1 : (double)s.descale));
            if (q->dtype == DT_BF16) want = (double)bf16_to_f32(bf16_from_f32((float)want));
            bool sign = at->rotate.along == ROTATE_NOT; /* that of a sum that is 0 is the order's */
            if (nan ? !isnan(got) : got != want || (sign && signbit(got) != signbit(want)))
                fail_msg("%s %s scaling %d, %dx%d of %lldx%lld from (%lld, %lld), rotated %d, chance %d: (%lld, %lld) "
                         "is %a, not %a (%a)",
                         family, format_info(at->format).name, (int)at->scaling, at->rows, at->cols, (long long)w->rows,
                         (long long)w->cols, (long long)at->first_row, (long long)at->first_col, (int)at->rotate.along,
                         (int)at->chance, (long long)r, (long long)c, got, nan ? (double)NAN : want, (double)x);
            if (at->scaling == SCALING_BLOCK && !at->power_of_two) {
                double d = view_get(descale, (at->first_row + r) / at->rows - at->first_row / at->rows,
                                    (at->first_col + c) / at->cols - at->first_col / at->cols);
                if (s.bad ? !isnan(d) : d != (double)s.descale) fail_msg("%s: a block's descale is %a", family, d);
            }
        }
    if (!by_tensor) return;
    double d = view_get(descale, 0, 0), t = (double)simple(at->scaling == SCALING_NV ? 2688 : (float)w->f.v[w->f.n - 1],
                                                           amax, at->scaling == SCALING_TENSOR && at->power_of_two)
                                                .descale;
    if (isfinite(amax) ? d != t : !isnan(d)) fail_msg("%s: the tensor's descale is %a, not %a", family, d, t);
}

static void check_case(uint64_t seed, int ran[N_FAMILIES])
{
    struct qcase q;
    random_case(&q, seed);
    struct kcase *k = &q.k;
    const struct quantise_attrs *at = at_quantise(&k->at);
    struct wish w = {.k = k, .at = at, .f = values_of(at->format), .rows = k->in[0].n[0], .cols = k->in[0].n[1]};
    w.x = rotated(k, &at->rotate);
    if (k->n_in > 1 && !q.given) view_set(&k->in[1], 0, 0, (double)largest(&w, 0, 0, 0, 0));
    for (int f = first_family(); f < N_FAMILIES; f++)
        for (int threads = 1; threads <= 3; threads++) {
            view_spoil(&k->out[0]);
            if (k->out[1].nd) view_spoil(&k->out[1]);
            if (!kcase_forward(k, families[f], threads)) continue;
            kcase_check_gaps(k);
            w.did = (struct rounded_counts){0};
            check_numbers(&w, &k->out[0], &k->out[1], families[f]->name);
            check_counts(&w, families[f]->name, threads);
            ran[f]++;
        }
    xfree(w.x);
    kcase_free(k);
}

static void test_against_the_papers(void **state)
{
    (void)state;
    int ran[N_FAMILIES] = {0};
    for (uint64_t seed = 0; seed < 240 / CASE_STRIDE; seed++) check_case(seed, ran);
    if (first_family() == 0) assert_true(ran[0] >= 3 * 240 / CASE_STRIDE);
    if (cpu_isa() > ISA_REF) assert_true(ran[1] >= 2 * 240 / CASE_STRIDE); /* the others fall through: odd blocks */
    for (int f = first_family(); f < N_FAMILIES; f++)
        print_message("  %-8s %4d calls at %s\n", families[f]->name, ran[f], isa_name(cpu_isa()));
}

static void test_amax(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60 / CASE_STRIDE; seed++) {
        struct kcase k = {.op = OP_AMAX, .dtype = seed % 2 ? DT_F32 : DT_BF16, .seed = seed};
        k.at = ATTRS(amax, .more = seed % 3 == 1);
        k.step = (struct step_info){.seed = 7};
        edit_amax(&k.at)->rotate = some_rotation(&k);
        k.in[0] = kcase_tensor(&k, k.dtype, kcase_int(&k, 1, 70), kcase_int(&k, 1, seed % 4 == 3 ? 700 : 90));
        k.n_in = 1;
        fill(&k, &k.in[0]);
        kcase_outputs(&k);
        const struct quantise_attrs whole = {0};
        struct wish w = {.k = &k, .at = &whole, .rows = k.in[0].n[0], .cols = k.in[0].n[1]};
        w.x = rotated(&k, &at_amax(&k.at)->rotate);
        float want = largest(&w, 0, 0, 0, 0), before = kcase_int(&k, 0, 1) ? want * 2 : 0.5f;
        if (kcase_int(&k, 0, 9) == 0) before = NAN;
        if (at_amax(&k.at)->more && !(want >= before) && !isnan(want)) want = before;
        for (int f = first_family(); f < N_FAMILIES; f++)
            for (int threads = 1; threads <= 3; threads++) {
                view_set(&k.out[0], 0, 0, (double)before);
                if (!kcase_forward(&k, families[f], threads)) continue;
                float got = (float)view_get(&k.out[0], 0, 0);
                if (isnan(want) ? !isnan(got) : got != want)
                    fail_msg("%s: the largest of %lldx%lld is %a, not %a", families[f]->name, (long long)w.rows,
                             (long long)w.cols, (double)got, (double)want);
            }
        xfree(w.x);
        kcase_free(&k);
    }
}

/* What does not fit is refused in words. */
static void test_refusals(void **state)
{
    (void)state;
    struct view x = {.dtype = DT_BF16, .nd = 2, .n = {6, 40}, .stride = 40}, one = {.dtype = DT_F32, .nd = 1, .n = {1}};
    struct view half = x, in[3] = {x, one}, out[KERNEL_MAX_OUT];
    half.dtype = DT_F16;
    const struct {
        struct quantise_attrs at;
        int n_in;
        const char *word; /* NULL: taken */
    } cases[] = {
        {{.format = FORMAT_E4M3}, 2, NULL},
        {{.format = FORMAT_E4M3}, 1, "amax"},
        {{.format = FORMAT_F16}, 2, "e4m3"},
        {{.format = FORMAT_E4M3, .scaling = SCALING_BLOCK}, 1, "rows and columns"},
        {{.format = FORMAT_E4M3, .scaling = SCALING_MX, .rows = 1, .cols = 16}, 1, "32"},
        {{.format = FORMAT_E4M3, .scaling = SCALING_NV, .rows = 1, .cols = 16}, 2, "E2M1"},
        {{.format = FORMAT_E2M1, .scaling = SCALING_NV, .rows = 4, .cols = 4}, 2, "16"},
        {{.format = FORMAT_E2M1, .scaling = SCALING_NV, .rows = 1, .cols = 16}, 1, "amax"},
        {{.format = FORMAT_E4M3, .first_col = 4, .whole_cols = 43}, 2, "inside"},
        {{.format = FORMAT_E4M3, .first_col = 4, .rotate = {ALONG_COLS, 1}}, 2, "multiple of 16"},
        {{.format = FORMAT_E4M3, .scaling = SCALING_N}, 2, "scaling"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct op_attrs at = attrs_quantise(cases[i].at);
        const char *why = op_row(OP_QUANTISE)->infer(&at, cases[i].n_in, in, out);
        if (cases[i].word ? !why || !strstr(why, cases[i].word) : why != NULL)
            fail_msg("case %zu: %s", i, why ? why : "taken");
    }
    struct op_attrs at = ATTRS(quantise, .format = FORMAT_E4M3);
    in[0] = half;
    assert_non_null(op_row(OP_QUANTISE)->infer(&at, 2, in, out));
    at = op_attrs_zero(OP_AMAX);
    assert_non_null(op_row(OP_AMAX)->infer(&at, 1, in, out));
    in[0] = x;
    assert_null(op_row(OP_AMAX)->infer(&at, 1, in, out));
    enum spmd types[3] = {SPMD_R, SPMD_R, SPMD_R}, made[3];
    assert_non_null(op_row(OP_QUANTISE)->rule(&at, 1, types, made)); /* not recorded */
}

static int run_group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_amax),
        cmocka_unit_test(test_against_the_papers),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return run_for_each_isa(run_group); }
