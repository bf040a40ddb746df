/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* A model whose matrices are kept in 8 or 4 bits writes what a model writes that has the same numbers as whole weights:
 * of every family, for prompts (codes unpacked) and single tokens (codes in registers), by the reference, over tp and
 * pp. What is kept is what the ledger says. What cannot be cut is refused by name. */
#include "decode/written.h"

#include "decode/decoding_ranks.h"
#include "sanitized.h"
#include "state/packed.h"

enum { TEXT = 44, VOCAB = 67, MOST = 256 };

static const enum model_family families[] = {MODEL_LLAMA,   MODEL_MIXTRAL, MODEL_GPT2,    MODEL_MAMBA2,
                                             MODEL_GPT_OSS, MODEL_QWEN3,   MODEL_DEEPSEEK};

struct said {
    float logits[MOST][VOCAB];
    int n;
};

static void step(struct decoding *d, struct said *s, const struct decoding_part *p, int n)
{
    const float *logits;
    struct err e = {0};
    if (decoding_step(d, p, n, &logits, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < p[i].wanted; k++, logits += VOCAB) {
            assert_true(s->n < MOST);
            memcpy(s->logits[s->n++], logits, sizeof *s->logits);
        }
}

/* A prompt whose rows make codes be unpacked, then tokens alone and two at a time, which read codes in registers. */
static void say(struct decoding *d, struct said *s)
{
    int32_t a[TEXT];
    for (uint32_t i = 0; i < TEXT; i++) a[i] = (int32_t)(rng_u32(3, 1, i) % VOCAB);
    int one = decoding_open(d), two = decoding_open(d);
    s->n = 0;
    step(d, s, &(struct decoding_part){one, a, 19, 6}, 1);
    step(d, s, &(struct decoding_part){two, a + 7, 3, 3}, 1);
    for (int i = 19; i < 22; i++) step(d, s, &(struct decoding_part){one, a + i, 1, 1}, 1);
    for (int i = 22; i < 25; i++) step(d, s, (struct decoding_part[]){{one, a + i, 1, 1}, {two, a + i, 1, 1}}, 2);
    decoding_close(d, one);
    decoding_close(d, two);
}

static struct decoding_options options_of(enum packing weights, const char *kernels)
{
    return (struct decoding_options){.threads = 2,
                                     .dtype = DT_F32,
                                     .sequences = 3,
                                     .rows = 32,
                                     .weights = weights,
                                     .kernels = kernels};
}

static struct decoding *opened(struct written *x, struct device *dev, enum packing weights, const char *kernels)
{
    struct decoding *d;
    struct err e = {0};
    const struct decoding_options o = options_of(weights, kernels);
    if (decoding_new(&d, x->w, dev, &o, &e)) fail_msg("%s", e.text);
    return d;
}

/* Sums of a few hundred products of f32, in another order, through the layers of a small model. */
static void near(const struct said *got, const struct said *want, bool bits, const char *what)
{
    assert_int_equal(got->n, want->n);
    for (int i = 0; i < want->n; i++)
        for (int v = 0; v < VOCAB; v++) {
            float a = got->logits[i][v], b = want->logits[i][v];
            if (bits ? memcmp(&a, &b, sizeof a) != 0 : !(fabsf(a - b) <= 2e-4f * (1 + fabsf(b))))
                fail_msg("%s: row %d, token %d: %.9g, wanted %.9g", what, i, v, (double)a, (double)b);
        }
}

static double apart(const struct said *a, const struct said *b)
{
    double sum = 0;
    for (int i = 0; i < a->n; i++)
        for (int v = 0; v < VOCAB; v++) sum += fabs((double)a->logits[i][v] - (double)b->logits[i][v]);
    return sum / a->n / VOCAB;
}

/* Numbers of what `from` keeps become the weights of `to`, which keeps them whole. */
static void dequantise(const struct decoding *from, const struct decoding *to, struct device *dev)
{
    const struct store *a = decoding_store(from), *b = decoding_store(to);
    struct kernel_table k;
    struct stream *st;
    struct err e = {0};
    int n = 0;
    if (kernel_table_init(&k, "ref", team_size(dev->team), false, &e) || stream_new(&st, dev, "test", &e))
        fail_msg("%s", e.text);
    kernel_on(st, &k);
    for (int i = 0; i < a->table->n; i++) {
        const struct param *p = &a->table->p[i];
        if (!p->packed) continue;
        struct buffer x;
        float *v = xmalloc(to_size(p->numel) * sizeof *v);
        if (buffer_new(&x, dev, MEM_SCRATCH, to_size(p->numel) * sizeof *v, &e)) fail_msg("%s", e.text);
        packed_bring(a, st, i, x.p);
        device_to_host(st, v, &x, 0, x.bytes);
        stream_sync(st);
        store_write((struct store *)(uintptr_t)b, &k, st, i, STORE_MASTER, v);
        stream_sync(st);
        buffer_free(&x);
        xfree(v);
        n++;
    }
    assert_true(n > 0);
    stream_free(st);
}

/* Which matrices are kept so, and that the ledger has what is said. */
static void check_kept(const struct decoding *d, const struct device *dev, enum packing packing)
{
    const struct param_table *t = decoding_store(d)->table;
    size_t coded, whole;
    int64_t sum = 0;
    for (int i = 0; i < t->n; i++) {
        const struct param *p = &t->p[i];
        bool layer =
            !strncmp(p->name, "layers.", 7) && p->nd == 2 && !strstr(p->name, ".router.") && !strstr(p->name, "conv_");
        bool head = packing == PACKING_INT8 && !strcmp(p->name, "head.weight");
        if (p->packed != (layer || head)) fail_msg("%s is %skept in few bits", p->name, p->packed ? "" : "not ");
        if (p->packed) sum += packed_bytes(packing, p);
    }
    decoding_held_bytes(d, &coded, &whole);
    assert_int_equal(coded, sum);
    assert_int_equal(dev->ledger.now[MEM_PARAM], coded + whole);
}

/* 4 bits of an odd number of columns: two numbers are a byte. */
static bool refused(struct written *x, struct device *dev, enum packing packing)
{
    const struct decoding_options o = options_of(packing, "auto");
    struct decoding *d;
    struct err e = {0};
    if (decoding_new(&d, x->w, dev, &o, &e) == OK) {
        decoding_free(d);
        return false;
    }
    assert_contains(e.text, "--weights");
    assert_contains(e.text, "two numbers are a byte");
    return true;
}

static void test_families(void **state)
{
    (void)state;
    struct said *got = xcalloc(1, sizeof *got), *want = xcalloc(1, sizeof *want), *plain = xcalloc(1, sizeof *plain);
    int ran = 0, odd = 0;
    for (size_t f = 0; f < sizeof families / sizeof *families; f += SANITIZED ? 2 : 1) {
        struct written x;
        struct err e = {0};
        struct engine_config c = toy_config(families[f], DT_F32);
        if (families[f] == MODEL_MAMBA2) c.model.ssm.head_dim = 12; /* twice hidden, as their files say it */
        written_open_config(&x, c, TEXT);
        for (int p = PACKING_NF4; p < PACKING_N; p++) {
            struct device *dev, *other;
            char what[64];
            if (device_cpu_new(&dev, 2, &e) || device_cpu_new(&other, 2, &e)) fail_msg("%s", e.text);
            if (p != PACKING_INT8 && refused(&x, dev, (enum packing)p)) {
                odd++;
            } else {
                struct decoding *d = opened(&x, dev, (enum packing)p, "auto"),
                                *whole = opened(&x, other, PACKING_NONE, "auto");
                snprintf(what, sizeof what, "family %d, %s", (int)families[f], packing_row((enum packing)p)->name);
                check_kept(d, dev, (enum packing)p);
                say(whole, plain);
                dequantise(d, whole, other);
                say(whole, want);
                say(d, got);
                near(got, want, false, what);
                if (!(apart(got, plain) > (p == PACKING_INT8 ? 1e-5 : 1e-3)))
                    fail_msg("%s: rounding changes nothing", what);
                decoding_free(d);
                d = opened(&x, dev, (enum packing)p, "ref");
                say(d, got);
                near(got, want, false, "the reference");
                decoding_free(d);
                decoding_free(whole);
                ran++;
            }
            device_free(dev);
            device_free(other);
        }
        written_close(&x);
    }
    assert_true(SANITIZED || (ran >= 18 && odd >= 1));
    xfree(got);
    xfree(want);
    xfree(plain);
}

/* ---- several ranks ---- */
struct layout_job {
    struct written *x;
    int tp, pp;
    enum packing weights;
    struct said *said;
    const char *why; /* it is refused so; NULL: it is not */
};

static int run_rank(struct comm *world, void *arg, struct err *e)
{
    struct layout_job *j = arg;
    struct decoding_ranks g;
    struct weights *w;
    struct device *dev;
    struct decoding *d;
    int rc = decoding_ranks_init(&g, world, j->tp, j->pp, e);
    if (rc || weights_open(&w, j->x->dir, e) || device_cpu_new(&dev, 1, e)) fail_msg("%s", e->text);
    struct decoding_options o = options_of(j->weights, "auto");
    o.threads = 1;
    o.ranks = &g;
    rc = decoding_new(&d, w, dev, &o, e);
    if (j->why) {
        assert_int_equal(rc, ERR_REQUEST);
        assert_contains(e->text, j->why);
        rc = OK;
    } else if (rc) {
        fail_msg("%s", e->text);
    } else {
        size_t coded, whole;
        decoding_held_bytes(d, &coded, &whole);
        assert_int_equal(dev->ledger.now[MEM_PARAM], coded + whole);
        if (g.leads) say(d, j->said);
        else rc = decoding_follow(d, e);
    }
    decoding_free(d);
    device_free(dev);
    weights_close(w);
    decoding_ranks_fini(&g);
    return rc;
}

static void over(struct layout_job j)
{
    struct err e = {0};
    if (comm_run_local(j.tp * j.pp, &(struct comm_config){0}, run_rank, &j, &e))
        fail_msg("tp %d pp %d: %s", j.tp, j.pp, e.text);
}

/* Rows and columns of whole blocks on each of two ranks, and experts of them. */
static void test_layouts(void **state)
{
    (void)state;
    struct said *alone = xcalloc(1, sizeof *alone), *got = xcalloc(1, sizeof *got);
    for (int f = 0; f < 2; f++) {
        struct engine_config c = toy_config(f ? MODEL_MIXTRAL : MODEL_LLAMA, DT_F32);
        struct written x;
        c.model.hidden = 128;
        c.model.heads = 4;
        c.model.kv_heads = 2;
        c.model.head_dim = 32;
        c.model.ffn = c.model.moe.ffn = 192;
        if (!f) c.model.moe.ffn = 0, c.model.ffn = 256;
        else c.model.moe.ffn = 256;
        written_open_config(&x, c, TEXT);
        for (int p = PACKING_NF4; p < PACKING_N; p++) {
            struct device *dev;
            struct err e = {0};
            if (device_cpu_new(&dev, 2, &e)) fail_msg("%s", e.text);
            struct decoding *d = opened(&x, dev, (enum packing)p, "auto");
            say(d, alone);
            decoding_free(d);
            device_free(dev);
            over((struct layout_job){.x = &x, .tp = 2, .pp = 1, .weights = (enum packing)p, .said = got});
            near(got, alone, false, "tp 2");
            over((struct layout_job){.x = &x, .tp = 1, .pp = 2, .weights = (enum packing)p, .said = got});
            near(got, alone, true, "pp 2");
        }
        written_close(&x);
    }
    xfree(alone);
    xfree(got);
}

static void test_refused(void **state)
{
    (void)state;
    struct written x;
    written_open(&x, MODEL_LLAMA, TEXT);
    over((struct layout_job){.x = &x,
                             .tp = 3,
                             .pp = 1,
                             .weights = PACKING_NF4,
                             .why = "--weights nf4: blocks have 64 columns, and rank"});
    over((struct layout_job){.x = &x,
                             .tp = 3,
                             .pp = 1,
                             .weights = PACKING_INT8,
                             .why = "choose whole weights (without --weights)"});
    written_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
