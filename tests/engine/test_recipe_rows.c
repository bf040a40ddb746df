/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices untouchable */
/* What the pass of recipes puts around a product, seen while a step runs: each operand of each direction is the
 * original tensor of this product, in the format and blocks that the recipe's publication says (written out again
 * here), with the scale of its own largest value; and the product is that of what was rounded. */
#include "toy.h"

#include "base/fs.h"
#include "kernel/kernel.h"

enum { MOST = 4096 };
struct copy { /* of a matrix */
    const void *at;
    int64_t rows, cols;
    float *v;
};
struct rounded { /* a QUANTISE that ran */
    const void *q;
    struct copy from;
    struct quantise_attrs at;
};
struct watch {
    const struct engine *g;
    enum recipe recipe;
    struct rounded seen[MOST];
    int n_seen, products;
    struct copy x[MOST], dy[MOST]; /* by node: of the forward pass, of the first direction backward */
};

static float value(const struct view *v, int64_t r, int64_t c)
{
    const char *p = device_here((void *)(uintptr_t)v->p);
    int64_t at = r * v->stride + c;
    return v->dtype == DT_BF16 ? bf16_to_f32(((const bf16 *)(const void *)p)[at])
                               : ((const float *)(const void *)p)[at];
}

static struct copy copy_of(const struct view *v)
{
    struct copy c = {.at = v->p, .rows = v->n[0], .cols = v->n[1]};
    c.v = xmalloc(to_size(c.rows * c.cols) * sizeof *c.v);
    for (int64_t i = 0; i < c.rows * c.cols; i++) c.v[i] = value(v, i / c.cols, i % c.cols);
    return c;
}

static void same_copy(const struct copy *a, const struct copy *b, const char *what)
{
    if (a->at != b->at || a->rows != b->rows || a->cols != b->cols ||
        memcmp(a->v, b->v, to_size(a->rows * a->cols) * sizeof *a->v))
        fail_msg("%s is not the original", what);
}

/* The publications, once more. */
static const struct said {
    enum recipe recipe;
    enum kernel_phase phase;
    char operand; /* x, w, d */
    enum format format;
    int rows, cols;
    bool chance, rotated;
} all_said[] = {
    {RECIPE_FP8_CURRENT, KERNEL_FWD, 'x', FORMAT_E4M3, 0, 0, false, false},
    {RECIPE_FP8_CURRENT, KERNEL_FWD, 'w', FORMAT_E4M3, 0, 0, false, false},
    {RECIPE_FP8_CURRENT, KERNEL_BWD_IN, 'd', FORMAT_E5M2, 0, 0, false, false},
    {RECIPE_FP8_CURRENT, KERNEL_BWD_IN, 'w', FORMAT_E4M3, 0, 0, false, false},
    {RECIPE_FP8_CURRENT, KERNEL_BWD_W, 'd', FORMAT_E5M2, 0, 0, false, false},
    {RECIPE_FP8_CURRENT, KERNEL_BWD_W, 'x', FORMAT_E4M3, 0, 0, false, false},
    {RECIPE_FP8_BLOCK, KERNEL_FWD, 'x', FORMAT_E4M3, 1, 128, false, false},
    {RECIPE_FP8_BLOCK, KERNEL_FWD, 'w', FORMAT_E4M3, 128, 128, false, false},
    {RECIPE_FP8_BLOCK, KERNEL_BWD_IN, 'd', FORMAT_E4M3, 1, 128, false, false},
    {RECIPE_FP8_BLOCK, KERNEL_BWD_IN, 'w', FORMAT_E4M3, 128, 128, false, false},
    {RECIPE_FP8_BLOCK, KERNEL_BWD_W, 'd', FORMAT_E4M3, 128, 1, false, false},
    {RECIPE_FP8_BLOCK, KERNEL_BWD_W, 'x', FORMAT_E4M3, 128, 1, false, false},
    {RECIPE_MXFP8, KERNEL_FWD, 'x', FORMAT_E4M3, 1, 32, false, false},
    {RECIPE_MXFP8, KERNEL_FWD, 'w', FORMAT_E4M3, 1, 32, false, false},
    {RECIPE_MXFP8, KERNEL_BWD_IN, 'd', FORMAT_E4M3, 1, 32, false, false},
    {RECIPE_MXFP8, KERNEL_BWD_IN, 'w', FORMAT_E4M3, 32, 1, false, false},
    {RECIPE_MXFP8, KERNEL_BWD_W, 'd', FORMAT_E4M3, 32, 1, false, false},
    {RECIPE_MXFP8, KERNEL_BWD_W, 'x', FORMAT_E4M3, 32, 1, false, false},
    {RECIPE_NVFP4, KERNEL_FWD, 'x', FORMAT_E2M1, 1, 16, false, false},
    {RECIPE_NVFP4, KERNEL_FWD, 'w', FORMAT_E2M1, 16, 16, false, false},
    {RECIPE_NVFP4, KERNEL_BWD_IN, 'd', FORMAT_E2M1, 1, 16, true, false},
    {RECIPE_NVFP4, KERNEL_BWD_IN, 'w', FORMAT_E2M1, 16, 16, false, false},
    {RECIPE_NVFP4, KERNEL_BWD_W, 'd', FORMAT_E2M1, 16, 1, true, true},
    {RECIPE_NVFP4, KERNEL_BWD_W, 'x', FORMAT_E2M1, 16, 1, false, true},
};

static const struct said *said_of(enum recipe r, enum kernel_phase phase, char operand)
{
    for (size_t i = 0; i < sizeof all_said / sizeof *all_said; i++)
        if (all_said[i].recipe == r && all_said[i].phase == phase && all_said[i].operand == operand)
            return &all_said[i];
    return NULL;
}

/* What a scale per tensor makes of the original: its own largest value becomes the format's. */
static void check_tensor(const struct rounded *r, const struct view *q, const struct view *descale)
{
    float most = 0;
    for (int64_t i = 0; i < r->from.rows * r->from.cols; i++) most = fmaxf(most, fabsf(r->from.v[i]));
    float s = most > 0 ? (float)format_info(r->at.format).max / most : 1;
    assert_true(value(descale, 0, 0) == 1.0f / s);
    for (int64_t i = 0; i < r->from.rows * r->from.cols; i++) {
        float want = format_decode(r->at.format, format_encode(r->at.format, (double)(r->from.v[i] * s), true));
        float got = value(q, i / r->from.cols, i % r->from.cols);
        if (got != want) fail_msg("element %lld: %g, wanted %g", (long long)i, (double)got, (double)want);
    }
}

/* How far a format may move a number, as a share of it and of the largest beside it. */
static void check_blocks(const struct rounded *r, const struct view *q, const struct view *descale)
{
    float scale = descale->nd ? value(descale, 0, 0) : 1;
    double most = 0, moved = 0, norm = 0;
    bool four = r->at.format == FORMAT_E2M1;
    for (int64_t i = 0; i < r->from.rows * r->from.cols; i++) {
        double x = (double)r->from.v[i], got = (double)(value(q, i / r->from.cols, i % r->from.cols) * scale);
        moved += (got - x) * (got - x);
        norm += x * x;
        most = fmax(most, fabs(x));
    }
    double error = norm > 0 ? sqrt(moved / norm) : 0;
    if (!r->at.rotate.along && error > (four ? 0.25 : 0.04)) fail_msg("moved by %g", error);
    if (!four && norm > 0 && error == 0 && most > 0 && r->from.rows * r->from.cols > 64) fail_msg("not rounded at all");
}

static const struct rounded *rounded_at(const struct watch *w, const void *q)
{
    for (int i = w->n_seen - 1; i >= 0; i--)
        if (w->seen[i].q == q) return &w->seen[i];
    fail_msg("an operand is not what QUANTISE put out");
    return NULL;
}

static void check_operand(struct watch *w, const struct kernel_call *c, const struct instr *i, char operand)
{
    const struct tape *t = w->g->stage[0].tape;
    const struct view *q = operand == 'x'   ? &c->in[0]
                           : operand == 'w' ? &c->in[1]
                                            : &c->dout[0],
                      *descale = &c->in[operand == 'x'   ? 3
                                        : operand == 'w' ? 4
                                                         : 5];
    const struct said *s = said_of(w->recipe, c->phase, operand);
    if (!s) return;
    const struct rounded *r = rounded_at(w, q->p);
    assert_true(r->at.format == s->format && r->at.chance == s->chance);
    assert_true((r->at.rotate.along == ALONG_ROWS) == s->rotated);
    if (s->rows) assert_true(r->at.rows == s->rows && r->at.cols == s->cols);
    else assert_true(r->at.scaling == SCALING_TENSOR);
    if (s->rows) check_blocks(r, q, descale);
    else check_tensor(r, q, descale);
    if (operand == 'w') assert_ptr_equal(r->from.at, w->g->slot[tape_tensor(t, t->nodes[i->node].in[1])->slot]);
    struct copy *first = operand == 'x' ? &w->x[i->node] : operand == 'd' ? &w->dy[i->node] : NULL;
    if (first && first->v) same_copy(&r->from, first, operand == 'x' ? "x" : "dy");
    else if (first) *first = r->from;
}

/* The product itself, of what was rounded, in double. */
static void check_forward(const struct kernel_call *c)
{
    double sx = c->in[3].nd == 1 ? (double)value(&c->in[3], 0, 0) : 1,
           sw = c->in[4].nd == 1 ? (double)value(&c->in[4], 0, 0) : 1;
    for (int64_t t = 0; t < c->in[0].n[0]; t += 7)
        for (int64_t n = 0; n < c->in[1].n[0]; n += 5) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < c->in[0].n[1]; k++) {
                double one = (double)value(&c->in[0], t, k) * sx * (double)value(&c->in[1], n, k) * sw;
                sum += one;
                size += fabs(one);
            }
            if (c->in[2].nd) sum += (double)value(&c->in[2], 0, n);
            if (fabs((double)value(&c->out[0], t, n) - sum) > 4e-3 * fabs(sum) + 1e-5 * size + 1e-12)
                fail_msg("y[%lld][%lld] is %g, not %g", (long long)t, (long long)n, (double)value(&c->out[0], t, n),
                         sum);
        }
}

static void look(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    struct watch *w = ctx;
    (void)p;
    if (c->op == OP_QUANTISE) {
        assert_true(w->n_seen < MOST);
        w->seen[w->n_seen++] =
            (struct rounded){.q = c->out[0].p, .from = copy_of(&c->in[0]), .at = *at_quantise(&c->at)};
    }
    if (c->op != OP_LINEAR_SCALED) return;
    w->products++;
    check_operand(w, c, i, 'x');
    check_operand(w, c, i, 'w');
    check_operand(w, c, i, 'd');
    if (c->phase == KERNEL_FWD) check_forward(c);
}

static struct engine_config config_of(enum model_family family, enum recipe r)
{
    struct engine_config c = toy_config(family, DT_BF16);
    c.model.layers = 3;
    c.n_microbatches = 1;
    c.precision = (struct recipe_config){.recipe = r, .history = 4};
    return c;
}

static void test_operands(void **state)
{
    (void)state;
    static const enum recipe recipes[] = {RECIPE_FP8_CURRENT, RECIPE_FP8_BLOCK, RECIPE_MXFP8, RECIPE_NVFP4};
    for (int v = 0; v < 8; v++) {
        struct engine_config c = config_of(v & 1 ? MODEL_GPT2 : MODEL_LLAMA, recipes[v / 2]);
        struct watch *w = xcalloc(1, sizeof *w);
        struct engine_report r;
        struct toy t;
        if (v == 3) c.recompute.again = AGAIN_ALL;
        toy_open(&t, &c);
        *w = (struct watch){.g = t.g, .recipe = recipes[v / 2]};
        t.g->watch = v == 3 ? NULL : look;
        t.g->watch_ctx = w;
        engine_step(t.g, &t.batch, 0, 1e-3, &r);
        assert_true(isfinite(r.loss) && isfinite(r.grad_norm) && r.grad_norm > 0);
        int layers = recipes[v / 2] == RECIPE_FP8_CURRENT ? 1 : recipes[v / 2] == RECIPE_NVFP4 ? 2 : 3;
        if (t.g->watch) assert_int_equal(w->products, layers * 4 * 3);
        for (int i = 0; i < w->n_seen; i++) xfree(w->seen[i].from.v);
        toy_close(&t);
        xfree(w);
    }
}

/* A bias's gradient is of what was not rounded: that of bf16, where nothing before it was rounded either. */
static void test_bias(void **state)
{
    (void)state;
    float *want = NULL;
    for (int q = 0; q < 2; q++) {
        struct engine_config c = config_of(MODEL_GPT2, RECIPE_BF16);
        struct recipe_choice last = {"layers.2.mlp.down.weight", RECIPE_MXFP8};
        struct engine_report r;
        struct toy t;
        c.precision.choice = &last;
        c.precision.n_choices = q;
        toy_open(&t, &c);
        engine_gradients(t.g, &t.batch, 0, &r);
        int b = param_find(&t.g->params, "layers.2.mlp.down.bias");
        float *got = toy_gradients(&t);
        int64_t at = t.g->params.p[b].offset, n = t.g->params.p[b].numel;
        if (!q) want = got;
        double error = toy_relative_error(got + at, want + at, n);
        if (error > 2e-2) fail_msg("the bias's gradient moved by %g", error);
        if (q) xfree(got);
        toy_close(&t);
    }
    xfree(want);
}

/* The docs show the rows as they are. */
static void test_docs(void **state)
{
    (void)state;
    struct str table = {0};
    struct err e = {0};
    char *page;
    size_t n;
    if (fs_read_all(TEST_DIR "/../docs/precision.md", 1 << 20, &page, &n, &e)) fail_msg("%s", e.text);
    recipe_print_table(&table);
    assert_true(table.n > 400);
    if (!strstr(page, str_text(&table))) fail_msg("docs/precision.md does not have\n%s", str_text(&table));
    xfree(page);
    str_free(&table);
}

/* ---- histories ---- */
static void test_history(void **state)
{
    (void)state;
    float h[3] = {0};
    assert_true(recipes_told(h, 3, 0, 448) == 448); /* a scale of 1 */
    recipes_enter(h, 3, 2);
    recipes_enter(h, 3, 5);
    assert_true(recipes_told(h, 3, 0, 448) == 5 && h[0] == 5 && h[1] == 2);
    recipes_enter(h, 3, 1);
    recipes_enter(h, 3, 1);
    assert_true(recipes_told(h, 3, 0, 448) == 5 && recipes_told(h, 3, 2, 448) == 20);
    recipes_enter(h, 3, INFINITY);
    recipes_enter(h, 3, NAN);
    assert_true(recipes_told(h, 3, 0, 448) == 5);
    recipes_enter(h, 3, 1);
    assert_true(recipes_told(h, 3, 0, 448) == 1);
}

/* The scale of a step follows from the steps before it, not from itself. */
static void look_delayed(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    float *told = ctx;
    const struct tape *t = p->tape;
    if (c->op != OP_QUANTISE || i->node < 0) return;
    const struct tensor *w = tape_tensor(t, t->nodes[i->node].in[1]);
    bool first = !strcmp(w->name, "layers.0.attn.q.weight") && at_quantise(&c->at)->format == FORMAT_E4M3;
    if (first && c->in[0].n[0] == tensor_rows(w)) *told = *(const float *)device_here(c->in[1].p);
}

static float largest_weight(const struct toy *t)
{
    float most = 0, v[4096];
    for (int k = 0; k < 3; k++) {
        static const char *const names[] = {"layers.0.attn.q.weight", "layers.0.attn.k.weight",
                                            "layers.0.attn.v.weight"};
        int i = param_find(&t->g->params, names[k]);
        store_read(&t->g->store, t->g->stream, i, STORE_MASTER, v);
        for (int64_t j = 0; j < t->g->params.p[i].numel; j++)
            most = fmaxf(most, fabsf(bf16_to_f32(bf16_from_f32(v[j]))));
    }
    return most;
}

static void test_delayed(void **state)
{
    (void)state;
    struct engine_config c = config_of(MODEL_LLAMA, RECIPE_FP8_DELAYED);
    struct engine_report r;
    struct toy t;
    float told = 0, most[5] = {0};
    toy_open(&t, &c);
    t.g->watch = look_delayed;
    t.g->watch_ctx = &told;
    for (int s = 0; s < 5; s++) {
        most[s] = largest_weight(&t);
        engine_step(t.g, &t.batch, s, 5e-2, &r);
        float want = 0;
        for (int k = 0; k < s; k++) want = fmaxf(want, most[k]);
        if (told != (s ? want : 448)) fail_msg("step %d: %g, wanted %g", s, (double)told, (double)want);
    }
    engine_evaluate(t.g, &t.batch, &r); /* reads histories, and adds nothing to them */
    float want = fmaxf(fmaxf(most[1], most[2]), fmaxf(most[3], most[4]));
    assert_true(told == want);
    toy_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_operands), cmocka_unit_test(test_bias),
                                       cmocka_unit_test(test_history), cmocka_unit_test(test_delayed),
                                       cmocka_unit_test(test_docs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
