/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* Texts that are written with guesses. At temperature 0 each is that without guesses, whoever guesses and however many,
 * up to the place where two logits are too near to be told apart by products of other rows. At other temperatures the
 * law of three tokens in a row, over a vocabulary of five, is the model's: by chi-square against all 125 of them.
 * Guesses that were not taken leave nothing behind, texts end where they would have, and what cannot be is refused. */
#include "decode/written.h"

#include "decode/draft.h"
#include "decode/generate.h"
#include "decode/speculative.h"
#include "sanitized.h"

enum { ROOM = 80, NEW = 40, VOCAB = 67 };
#define PROMPT "0123456789 0123456789 012"

/* Where two logits are nearer than this, either may be the larger one: products of f32 in another order differ by less
 * than a thousandth of it here. */
#define APART 1e-3f

static bool add_text(void *ctx, const char *text, size_t n)
{
    str_add(ctx, text, n);
    return true;
}

static struct generate_result write(struct decoding *d, struct decoding *draft, int64_t guesses, int64_t max_tokens,
                                    double temperature, struct str *text)
{
    struct generator *g;
    struct generate_result r;
    struct err e = {0};
    struct sample_spec spec = {.temperature = temperature, .top_p = 1, .seed = 3};
    struct tokenizer *t = tokenizer_new_byte();
    if (generator_on(&g, d, &e)) fail_msg("%s", e.text);
    if (guesses && generator_speculate(g, draft, guesses, &e)) fail_msg("%s", e.text);
    str_clear(text);
    if (generate(g, t, PROMPT, max_tokens, &spec, add_text, text, &r, &e)) fail_msg("%s", e.text);
    generator_free(g);
    tokenizer_free(t);
    assert_int_equal(decoding_pages_left(d), decoding_pages(d));
    if (draft) assert_int_equal(decoding_pages_left(draft), decoding_pages(draft));
    return r;
}

static float gap(const float *logits)
{
    int32_t top[2];
    sample_top(logits, VOCAB, 2, top);
    return logits[top[0]] - logits[top[1]];
}

/* The likeliest tokens one by one, up to the first that is not clearly the likeliest: how many bytes of text are
 * certain. A token is a byte here. */
static size_t certain(struct decoding *d)
{
    const float *logits;
    struct err e = {0};
    int32_t ids[sizeof PROMPT];
    int s = decoding_open(d);
    size_t n = 0;
    for (size_t i = 0; i + 1 < sizeof PROMPT; i++) ids[i] = PROMPT[i];
    if (decoding_step(d, &(struct decoding_part){s, ids, sizeof PROMPT - 1, 1}, 1, &logits, &e)) fail_msg("%s", e.text);
    for (; n < NEW && gap(logits) > APART; n++) {
        int32_t top;
        sample_top(logits, VOCAB, 1, &top);
        if (decoding_step(d, &(struct decoding_part){s, &top, 1, 1}, 1, &logits, &e)) fail_msg("%s", e.text);
    }
    decoding_close(d, s);
    return n;
}

static void test_likeliest_tokens(void **state)
{
    (void)state;
    size_t told = 0;
    int64_t taken = 0;
    for (int family = 0; family < TOY_TEXTS; family += CASE_STRIDE) {
        struct written x;
        struct str want = {0}, got = {0};
        written_open(&x, (enum model_family)family, ROOM);
        struct decoding *d = written_decoding(&x, 1, 32, 0), *itself = written_decoding(&x, 1, 4, 0), *other;
        struct decoding_options o = {.threads = 1, .dtype = DT_F32, .rows = 16, .model = decoding_model(d)};
        struct err e = {0};
        if (decoding_new(&other, NULL, x.toy.dev, &o, &e)) fail_msg("%s", e.text); /* random weights: mostly wrong */
        write(d, NULL, 0, NEW, 0, &want);
        size_t sure = certain(d);
        if (sure > want.n) sure = want.n;
        told += sure;
        struct decoding *const draft[] = {NULL, itself, other};
        static const int64_t guesses[] = {1, 3, 8};
        for (int i = 0; i < 9; i++) {
            struct generate_result r = write(d, draft[i / 3], guesses[i % 3], NEW, 0, &got);
            assert_true(r.tokens == NEW && got.n >= sure && r.taken <= r.guessed);
            if (sure && memcmp(got.p, want.p, sure)) fail_msg("family %d, draft %d: another text", family, i);
            if (i / 3 == 1 && sure == NEW) assert_true(r.taken == r.guessed && r.taken > 0);
            taken += i / 3 == 0 ? r.taken : 0;
        }
        str_free(&want);
        str_free(&got);
        decoding_free(d);
        decoding_free(itself);
        decoding_free(other);
        written_close(&x);
    }
    assert_true(told >= 40); /* of 160: else this test says little */
    assert_true(taken > 0);  /* something repeats in these texts, and is looked up */
}

/* Ends: at the last position of the model, or of the draft, which is shorter; after as many tokens as were wanted. */
static void test_ends(void **state)
{
    (void)state;
    struct written x;
    struct str want = {0}, got = {0};
    struct err e = {0};
    written_open(&x, MODEL_LLAMA, ROOM);
    struct decoding *d = written_decoding(&x, 1, 32, 0), *draft;
    struct decoding_options o = {.threads = 1, .dtype = DT_F32, .positions = 40};
    if (decoding_new(&draft, x.w, x.toy.dev, &o, &e)) fail_msg("%s", e.text);
    const int64_t fit = ROOM + 1 - ((int64_t)sizeof PROMPT - 1); /* the last one is not fed */
    for (int64_t most = 1; most < 2 * ROOM; most += most < 12 ? 1 : 50) {
        struct generate_result a = write(d, NULL, 0, most, 1, &want), b = write(d, draft, 5, most, 1, &got),
                               c = write(d, NULL, 7, most, 1, &want);
        assert_true(a.tokens == b.tokens && a.tokens == c.tokens);
        assert_string_equal(a.stopped, b.stopped);
        assert_string_equal(a.stopped, most > fit ? "cache full" : "length");
        assert_int_equal(a.tokens, most > fit ? fit : most);
        if (b.guessed) assert_true(b.taken * 10 >= b.guessed * 9); /* it is the model itself */
    }
    str_free(&want);
    str_free(&got);
    decoding_free(draft);
    decoding_free(d);
    written_close(&x);
}

/* ---- the law of three tokens ---- */

enum { FEW = 5, AHEAD = 3, OUTCOMES = FEW * FEW * FEW, DRAWS = 3000 / CASE_STRIDE };

static struct decoding *small_model(struct device *dev, int layers)
{
    struct model_config m = toy_model(MODEL_LLAMA);
    struct err e = {0};
    struct decoding *d;
    m.vocab = FEW;
    m.layers = layers;
    m.max_positions = 24;
    struct decoding_options o = {.threads = 1, .dtype = DT_F32, .sequences = 2, .rows = 8, .model = &m};
    if (decoding_new(&d, NULL, dev, &o, &e)) fail_msg("%s", e.text);
    return d;
}

static const int32_t begun[6] = {1, 3, 2, 1, 3, 0};

/* Of all continuations of three tokens: the product of their laws. */
static void laws_of(struct decoding *d, const struct sample_spec *spec, double *law)
{
    struct sampler *s = sampler_new(FEW);
    struct err e = {0};
    for (int i = 0; i < OUTCOMES; i++) {
        int32_t ids[6 + AHEAD] = {begun[0], begun[1],        begun[2],      begun[3], begun[4],
                                  begun[5], i / (FEW * FEW), i / FEW % FEW, i % FEW};
        const float *logits;
        double p[FEW];
        int q = decoding_open(d);
        law[i] = 1;
        if (decoding_step(d, &(struct decoding_part){q, ids, 8, AHEAD}, 1, &logits, &e)) fail_msg("%s", e.text);
        for (int k = 0; k < AHEAD; k++) {
            assert_int_equal(sample_law(s, spec, logits + (ptrdiff_t)k * FEW, p, &e), OK);
            law[i] *= p[ids[6 + k]];
        }
        decoding_close(d, q);
    }
    sampler_free(s);
}

static void draw_three(struct decoding *d, struct decoding *draft, int64_t guesses, const struct sample_spec *spec,
                       int *outcome, struct speculative_counts *c)
{
    struct speculative *s;
    struct tokens text = {0};
    struct err e = {0};
    const float *logits;
    int q = decoding_open(d);
    struct speculative_options o = {.draft = draft, .guesses = guesses, .sample = *spec};
    for (int i = 0; i < 6; i++) tokens_push(&text, begun[i]);
    if (decoding_step(d, &(struct decoding_part){q, text.ids, 5, 0}, 1, &logits, &e)) fail_msg("%s", e.text);
    if (speculative_new(&s, d, q, &o, &e)) fail_msg("%s", e.text);
    while (text.n < 6 + AHEAD) {
        int32_t next[SPECULATIVE_MOST + 1];
        int64_t n;
        if (speculative_next(s, &text, 6 + AHEAD - text.n, next, &n, &e)) fail_msg("%s", e.text);
        assert_true(n >= 1 && n <= 6 + AHEAD - text.n);
        for (int64_t i = 0; i < n; i++) tokens_push(&text, next[i]);
        assert_int_equal(decoding_fed(d, q), text.n - 1);
    }
    *outcome = (text.ids[6] * FEW + text.ids[7]) * FEW + text.ids[8];
    c->guessed += speculative_counts(s).guessed;
    c->taken += speculative_counts(s).taken;
    speculative_free(s);
    decoding_close(d, q);
    tokens_free(&text);
}

/* Outcomes of which fewer than five are to be expected are put together. */
static double chi_square(const double *law, const long *seen, int *bins)
{
    double chi = 0, want = 0, got = 0;
    *bins = 0;
    for (int i = 0; i < OUTCOMES; i++) {
        want += law[i] * DRAWS;
        got += (double)seen[i];
        if (want < 5) continue;
        chi += (got - want) * (got - want) / want;
        want = got = 0;
        ++*bins;
    }
    return chi;
}

static void test_law(void **state)
{
    (void)state;
    struct device *dev;
    struct err e = {0};
    double law[OUTCOMES];
    if (device_cpu_new(&dev, 1, &e)) fail_msg("%s", e.text);
    struct decoding *d = small_model(dev, 2), *draft = small_model(dev, 1);
    static const struct sample_spec spec[] = {{.temperature = 0.06, .top_p = 1},
                                              {.temperature = 0.1, .top_p = 0.9},
                                              {.temperature = 0.08, .top_p = 1, .top_k = 4}};
    for (int k = 0; k < 6; k++) {
        struct sample_spec of = spec[k % 3];
        struct speculative_counts c = {0};
        long seen[OUTCOMES] = {0};
        int bins;
        laws_of(d, &of, law);
        for (int i = 0; i < DRAWS; i++) {
            int outcome;
            of.seed = (uint64_t)i + 100;
            draw_three(d, k < 3 ? draft : NULL, 1 + k % 3, &of, &outcome, &c);
            seen[outcome]++;
        }
        double chi = chi_square(law, seen, &bins), most = bins + 6 * sqrt(2.0 * bins);
        if (!(chi <= most)) fail_msg("way %d: chi-square %g of %g in %d bins", k, chi, most, bins);
        double rate = (double)c.taken / (double)c.guessed;
        if (bins < 8 || !(rate > 0.05 && rate < 0.98)) fail_msg("way %d says little: %d bins, %g taken", k, bins, rate);
    }
    decoding_free(draft);
    decoding_free(d);
    device_free(dev);
}

/* ---- what is refused ---- */

static void test_refused(void **state)
{
    (void)state;
    struct written x;
    struct weights *scans;
    char path[512];
    struct speculative *s;
    struct err e = {0};
    struct device *dev;
    if (device_cpu_new(&dev, 1, &e)) fail_msg("%s", e.text);
    written_open(&x, MODEL_LLAMA, ROOM);
    snprintf(path, sizeof path, "%s/golden/families/mamba2", TEST_DIR);
    if (weights_open(&scans, path, &e)) fail_msg("%s", e.text);
    struct decoding *d = written_decoding(&x, 1, 8, 0), *few = small_model(dev, 1), *state_space;
    struct decoding_options of = {.threads = 1, .dtype = DT_F32, .positions = ROOM};
    if (decoding_new(&state_space, scans, dev, &of, &e)) fail_msg("%s", e.text);
    struct {
        struct decoding *d, *draft;
        const char *why;
    } row[] = {{state_space, NULL, "the model keeps a state"},
               {d, state_space, "the draft keeps a state"},
               {d, few, "it has 5 rows of tokens, and the model 67"}};
    for (size_t i = 0; i < 3; i++) {
        struct speculative_options o = {.draft = row[i].draft, .guesses = 2, .sample = {.top_p = 1}};
        assert_int_equal(speculative_new(&s, row[i].d, 0, &o, &e), ERR_REQUEST);
        assert_contains(e.text, row[i].why);
    }
    struct tokenizer *byte = tokenizer_new_byte(), *word;
    static const char words[] = "{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0,\"b\":1},\"unk_token\":\"a\"}}";
    if (tokenizer_parse(&word, words, sizeof words - 1, "words", &e)) fail_msg("%s", e.text);
    assert_int_equal(draft_same_tokens(byte, byte, &e), OK);
    assert_int_equal(draft_same_tokens(word, byte, &e), ERR_REQUEST);
    assert_contains(e.text, "its tokenizer has 2 tokens");
    tokenizer_free(word);
    tokenizer_free(byte);
    decoding_free(few);
    decoding_free(state_space);
    decoding_free(d);
    weights_close(scans);
    written_close(&x);
    device_free(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_likeliest_tokens), cmocka_unit_test(test_ends),
                                       cmocka_unit_test(test_law), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
