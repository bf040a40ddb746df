/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices late running */
/* suite: long late */
/* The engine as a whole: what must not change the result (threads, microbatches, a second run), that models learn,
 * that decoding with a cache says what the full forward pass says, and that a NaN is found where it arose. */
#include "toy.h"

#include <stdlib.h>

#include "base/fs.h"
#include "decode/generate.h"
#include "keep/run_checkpoint.h"
#include "scratch.h"

enum { STEPS = 5 };

static void train(struct toy *t, double loss[STEPS])
{
    for (int s = 0; s < STEPS; s++) {
        struct engine_report r;
        assert_true(engine_step(t->g, &t->batch, s, 1e-2, &r));
        loss[s] = r.loss;
    }
}

/* Same seed, same bits: on every run and for every team. */
static void test_same_bits(void **state)
{
    (void)state;
    for (int v = 0; v < 8; v++) {
        struct engine_config c = toy_config(v & 1 ? MODEL_LLAMA : MODEL_GPT2, v & 2 ? DT_BF16 : DT_F32);
        c.model.dropout = v & 4 ? 0.1 : 0;
        double want[STEPS], got[STEPS];
        struct toy one, t;
        toy_open(&one, &c);
        train(&one, want);
        for (int threads = 1; threads <= 3; threads++) {
            c.threads = threads;
            toy_open(&t, &c);
            train(&t, got);
            if (memcmp(want, got, sizeof got)) fail_msg("variant %d: %d threads give other losses", v, threads);
            const struct buffer *a = &store_array(&one.g->store, STORE_MASTER)->buf,
                                *b = &store_array(&t.g->store, STORE_MASTER)->buf;
            stream_sync(one.g->stream); /* the last update may be under way */
            stream_sync(t.g->stream);
            if (memcmp(device_here(a->p), device_here(b->p), a->bytes))
                fail_msg("variant %d: %d threads give other weights", v, threads);
            toy_close(&t);
        }
        c.threads = 1;
        c.seed++;
        toy_open(&t, &c);
        train(&t, got);
        assert_true(got[0] != want[0]);
        toy_close(&t);
        toy_close(&one);
    }
}

/* Any number of microbatches: the same loss and gradient but for the order of sums; with dropout too, because masks
 * belong to tokens and not to microbatches. */
static void test_accumulation(void **state)
{
    (void)state;
    for (int v = 0; v < 8; v++) {
        struct engine_config c = toy_config(v & 1 ? MODEL_LLAMA : MODEL_GPT2, v & 2 ? DT_BF16 : DT_F32);
        double tolerance = v & 2 ? 2e-2 : 2e-6, loss_tolerance = v & 2 ? 1e-4 : 1e-6;
        c.model.dropout = v & 4 ? 0.2 : 0;
        struct engine_report want, got;
        struct toy whole, t;
        c.micro = 4;
        c.n_microbatches = 1;
        toy_open(&whole, &c);
        engine_gradients(whole.g, &whole.batch, 2, &want);
        for (int micro = 1; micro <= 2; micro++) {
            c.micro = micro;
            c.n_microbatches = 4 / micro;
            toy_open(&t, &c);
            assert_memory_equal(t.tokens, whole.tokens, 4 * 24 * 4);
            engine_gradients(t.g, &t.batch, 2, &got);
            double err = toy_relative_error(device_here(t.g->store.array[STORE_GRAD].buf.p),
                                            device_here(whole.g->store.array[STORE_GRAD].buf.p), t.g->params.numel);
            if (!(fabs(got.loss - want.loss) < loss_tolerance * want.loss) || !(err < tolerance))
                fail_msg("variant %d, microbatches of %d: loss %.9g, wanted %.9g; gradient off by %g", v, micro,
                         got.loss, want.loss, err);
            assert_true(t.g->act[0].bytes < whole.g->act[0].bytes);
            toy_close(&t);
        }
        toy_close(&whole);
    }
}

static void test_models_learn(void **state)
{
    (void)state;
    for (int v = 0; v < 8; v++) {
        struct engine_config c = toy_config(v & 1 ? MODEL_LLAMA : MODEL_GPT2, v & 2 ? DT_BF16 : DT_F32);
        if (v & 4) c.optim = (struct optim_config){.kind = OPTIM_SGD, .momentum = 0.9, .clip = 1};
        struct toy t;
        struct engine_report first, last;
        toy_open(&t, &c);
        engine_evaluate(t.g, &t.batch, &first);
        assert_true(fabs(first.loss - log(67)) < 0.2); /* nothing is known yet */
        for (int s = 0; s < 60; s++) assert_true(engine_step(t.g, &t.batch, s, v & 4 ? 0.1 : 1e-2, &last));
        engine_evaluate(t.g, &t.batch, &last);
        if (!(last.loss < 0.5 * first.loss)) fail_msg("variant %d: from %g to %g", v, first.loss, last.loss);
        toy_close(&t);
    }
}

/* ---- decoding ---- */
static float *full_logits(struct toy *t, const int32_t *ids, int64_t n)
{
    struct engine *g = t->g;
    struct err e = {0};
    struct tape *tape = tape_new();
    struct program *p;
    int32_t *pos = xcalloc((size_t)n, 4);
    for (int64_t i = 0; i < n; i++) pos[i] = (int32_t)i;
    model_record(tape, &g->cfg.model, &g->params, &g->cfg.par,
                 &(struct model_shape){.mode = MODEL_LOGITS, .dtype = DT_F32, .batch = 1, .seq = n});
    if (tape_lower(&p, tape, &g->kernels, (struct lower_options){0}, &e)) fail_msg("%s", e.text);
    size_t bytes = (size_t)(n * g->cfg.model.vocab) * 4, ints = (size_t)n * 4;
    float *logits = xmalloc(bytes);
    struct buffer scratch, data, out;
    if (buffer_new(&scratch, t->dev, MEM_SCRATCH, p->bytes[HOME_SCRATCH], &e) ||
        buffer_new(&data, t->dev, MEM_DATA, 2 * ints, &e) || buffer_new(&out, t->dev, MEM_DATA, bytes, &e))
        fail_msg("%s", e.text);
    device_from_host(g->stream, &data, 0, ids, ints);
    device_from_host(g->stream, &data, ints, pos, ints);
    g->slot[SLOT_TOKENS] = data.p;
    g->slot[SLOT_POSITIONS] = (char *)data.p + ints;
    g->slot[SLOT_LOGITS] = out.p;
    struct step_info info = {0};
    program_run(p, PHASE_F,
                &(struct program_args){.stream = g->stream, .step = &info, .slot = g->slot, .scratch = scratch.p});
    device_to_host(g->stream, logits, &out, 0, bytes);
    stream_sync(g->stream);
    buffer_free(&scratch);
    buffer_free(&data);
    buffer_free(&out);
    program_free(p);
    tape_free(tape);
    xfree(pos);
    return logits;
}

static void compare_row(const float *got, const float *want, int64_t row, int64_t V)
{
    double err = toy_relative_error(got, want + row * V, V);
    if (!(err < 1e-5)) fail_msg("logits of token %lld are off by %g", (long long)row, err);
}

/* A prompt in one piece, in pieces of odd sizes, and token by token, longer than the chunks that decoding was recorded
 * for: the logits are those of the forward pass over all of it. */
static void test_decoding_equals_forward(void **state)
{
    (void)state;
    enum { N = 150 };
    static const int64_t cuts[][8] = {{N}, {64, 64, 22}, {1, 63, 65, 21}, {70, 1, 1, 1, 77}};
    for (int family = 0; family < TOY_TEXTS; family++) {
        struct engine_config c = toy_config((enum model_family)family, DT_F32);
        c.model.max_positions = N + 10;
        c.model.dropout = 0.5; /* must be off */
        c.model.tie_embeddings = family == MODEL_GPT2;
        struct toy t;
        struct engine_report r;
        struct err e = {0};
        toy_open(&t, &c);
        for (int s = 0; s < 10; s++) engine_step(t.g, &t.batch, s, 1e-2, &r); /* weights that are not nearly zero */
        int32_t ids[N + 10];
        for (int i = 0; i < N + 10; i++) ids[i] = (int32_t)(rng_u32(1, 9, (uint64_t)i) % 67);
        float *want = full_logits(&t, ids, N);

        char *dir = scratch_new();
        struct save_info info = {.root = dir, .step = 10, .keep = 1, .config_text = "", .bos = -1, .eos = -1};
        struct ranks alone = {.mesh = mesh_single(), .n = 1, .server = -1, .writes = true, .n_writers = 1};
        if (save_checkpoint(t.g, &alone, &info, &e)) fail_msg("%s", e.text);
        struct weights *w;
        struct generator *g;
        if (weights_open(&w, dir, &e)) fail_msg("%s", e.text);
        if (generator_new(&g, w, t.dev, 1, 0, DT_F32, &e)) fail_msg("%s", e.text);
        assert_int_equal(generator_room(g), N + 10);
        const float *got;
        for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++) {
            int64_t fed = 0;
            generator_reset(g);
            for (int i = 0; i < 8 && cuts[k][i]; i++) {
                if (generator_feed(g, ids + fed, cuts[k][i], &got, &e)) fail_msg("%s", e.text);
                fed += cuts[k][i];
                compare_row(got, want, fed - 1, 67);
            }
            assert_int_equal(fed, N);
        }
        generator_reset(g);
        for (int64_t i = 0; i < N; i++) {
            if (generator_feed(g, &ids[i], 1, &got, &e)) fail_msg("%s", e.text);
            compare_row(got, want, i, 67);
        }
        assert_int_equal(generator_feed(g, ids, 11, &got, &e), ERR_REQUEST); /* the cache is full */
        assert_contains(e.text, "160 positions");
        assert_int_equal(generator_feed(g, (int32_t[]){67}, 1, &got, &e), ERR_REQUEST);
        assert_contains(e.text, "vocabulary of 67");
        assert_int_equal(generator_feed(g, ids, 0, &got, &e), ERR_REQUEST);
        generator_free(g);
        weights_close(w);
        xfree(want);
        toy_close(&t);
        scratch_free(dir);
    }
}

/* ---- numbers that break ---- */
static void test_blame(void **state)
{
    (void)state;
    for (int v = 0; v < 2; v++) {
        struct engine_config c = toy_config(v ? MODEL_LLAMA : MODEL_GPT2, v ? DT_BF16 : DT_F32);
        struct toy t;
        struct engine_report r;
        char what[256];
        toy_open(&t, &c);
        const struct buffer *m = &store_array(&t.g->store, STORE_MASTER)->buf;
        int w = param_find(&t.g->params, "layers.1.mlp.up.weight");
        float big[36 * 52], saved[36 * 52];
        struct stream *st = t.g->stream;
        store_read(&t.g->store, st, w, STORE_MASTER, saved);

        /* a finite weight whose product overflows: the operation is named */
        for (int i = 0; i < 36 * 52; i++) big[i] = 2e38f;
        store_write(&t.g->store, &t.g->kernels, st, w, STORE_MASTER, big);
        char *before = xmalloc(m->bytes);
        memcpy(before, device_here(m->p), m->bytes);
        assert_false(engine_step(t.g, &t.batch, 4, 1e-2, &r));
        assert_memory_equal(before, device_here(m->p), m->bytes); /* nothing was updated */
        for (size_t i = 0; i < t.g->store.array[STORE_ROWS].buf.bytes / 4; i++)
            assert_true(((float *)device_here(t.g->store.array[STORE_ROWS].buf.p))[i] == 0);
        engine_blame(t.g, &t.batch, 4, what, sizeof what);
        assert_contains(what, "layer 1");
        assert_contains(what, "linear");

        /* a broken weight is named itself, with the element */
        memcpy(big, saved, sizeof big);
        big[37] = NAN;
        store_write(&t.g->store, &t.g->kernels, st, w, STORE_MASTER, big);
        assert_false(engine_step(t.g, &t.batch, 5, 1e-2, &r));
        engine_blame(t.g, &t.batch, 5, what, sizeof what);
        assert_contains(what, "layers.1.mlp.up.weight");
        assert_contains(what, "element 37");

        store_write(&t.g->store, &t.g->kernels, st, w, STORE_MASTER, saved); /* and a healed model goes on */
        assert_true(engine_step(t.g, &t.batch, 6, 1e-2, &r));
        xfree(before);
        toy_close(&t);
    }
}

/* After engine_new nothing is allocated; memory asked for and not had is an error that names the category. */
static void test_ledger_is_final(void **state)
{
    (void)state;
    struct engine_config c = toy_config(MODEL_GPT2, DT_BF16);
    struct toy t;
    struct engine_report r;
    toy_open(&t, &c);
    struct ledger before = t.dev->ledger;
    for (int s = 0; s < 3; s++) engine_step(t.g, &t.batch, s, 1e-3, &r);
    engine_evaluate(t.g, &t.batch, &r);
    assert_memory_equal(&before, &t.dev->ledger, sizeof before);
    toy_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),    cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_models_learn), cmocka_unit_test(test_decoding_equals_forward),
        cmocka_unit_test(test_blame),        cmocka_unit_test(test_ledger_is_final),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
