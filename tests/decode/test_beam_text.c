/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* The likeliest text of a model by its cache: over a vocabulary of four, so wide that nothing is dropped, it is the
 * best of all texts as they are told token by token; narrower, its log-probability is that of its tokens fed one by
 * one, whatever pages were shared and copied on the way. Of models with a state and over ranks as well. A stop string
 * ends it, a file's prompts are told in order, and every page is given back. */
#include "decode/written.h"

#include <inttypes.h>
#include <stdlib.h>

#include "decode/beam_text.h"
#include "decode/decoding_ranks.h"
#include "sanitized.h"

enum { ROOM = 96, LONG = 44, VOCAB = 67, PROMPTS = 31, FEW = 4, AHEAD = 4 };

/* Sums of f32 in another order, over at most 44 tokens. */
#define NEAR 2e-3

static void prompt_of(int i, int32_t *ids, int n)
{
    for (int k = 0; k < n; k++) ids[k] = (int32_t)(rng_u32(21, (uint64_t)i, (uint64_t)k) % PROMPTS);
}

static struct beam_text find(struct decoding *d, const struct tokenizer *t, const int32_t *ids, int64_t n,
                             const struct beam_options *o)
{
    struct beam_text x = {0};
    struct err e = {0};
    if (beam_text(d, t, ids, n, o, &x, &e)) fail_msg("%s", e.text);
    assert_int_equal(decoding_pages_left(d), decoding_pages(d));
    return x;
}

/* Of the tokens that were found, fed one by one. */
static double logprob_of(struct written *x, const int32_t *prompt, int n, const struct tokens *found)
{
    int32_t ids[2 * ROOM];
    double each[2 * ROOM], sum = 0;
    memcpy(ids, prompt, (size_t)n * sizeof *ids);
    memcpy(ids + n, found->ids, (size_t)found->n * sizeof *ids);
    written_logprobs(x, ids, n + found->n, each);
    for (int64_t i = 0; i < found->n; i++) sum += each[n + i];
    return sum;
}

/* A toy that was trained a little; of the state spaces a stored model, which has the sizes that files can tell. */
static void open_model(struct written *x, enum model_family family)
{
    char path[512];
    struct err e = {0};
    if (family != MODEL_MAMBA2) {
        written_open(x, family, ROOM);
        return;
    }
    snprintf(path, sizeof path, "%s/golden/families/mamba2", TEST_DIR);
    *x = (struct written){.dir = xstrdup(path)};
    if (device_cpu_new(&x->toy.dev, 1, &e) || weights_open(&x->w, path, &e)) fail_msg("%s", e.text);
}

static void close_model(struct written *x)
{
    if (x->toy.g) {
        written_close(x);
        return;
    }
    weights_close(x->w);
    device_free(x->toy.dev);
    xfree(x->dir);
}

static void test_families(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_new_byte();
    static const enum model_family family[] = {MODEL_LLAMA, MODEL_MAMBA2, MODEL_GPT2, MODEL_MIXTRAL, MODEL_DEEPSEEK};
    for (size_t f = 0; f<5; f += CASE_STRIDE> 1 ? 4 : 1) {
        struct written x;
        int32_t ids[40];
        open_model(&x, family[f]);
        struct decoding *d = written_decoding(&x, 5, 16, 0);
        for (int i = 0; i < 3; i++) {
            int n = 3 + 17 * i;
            struct beam_options o = {.beams = 1 + 2 * i, .length_penalty = i, .max_tokens = LONG};
            prompt_of(0, ids, n);
            struct beam_text got = find(d, t, ids, n, &o), again = find(d, t, ids, n, &o);
            bool ends = !strcmp(got.stopped, "end of text");
            assert_true(got.tokens == got.ids.n - ends &&
                        fabs(got.score - got.logprob / pow((double)got.ids.n, i)) < 1e-9);
            if (!ends) assert_true(got.tokens == LONG && !strcmp(got.stopped, "length"));
            double want = logprob_of(&x, ids, n, &got.ids);
            if (!(fabs(got.logprob - want) < NEAR))
                fail_msg("family %d, %d beams: %.9g, wanted %.9g", family[f], o.beams, got.logprob, want);
            assert_true(again.ids.n == got.ids.n && again.logprob == got.logprob &&
                        !memcmp(again.ids.ids, got.ids.ids, (size_t)got.ids.n * sizeof *got.ids.ids));
            beam_text_free(&got);
            beam_text_free(&again);
        }
        decoding_free(d);
        close_model(&x);
    }
    tokenizer_free(t);
}

/* All 4^4 texts, each fed by itself. */
static double best_of_all(struct decoding *d, const int32_t *prompt, int n)
{
    double best = -INFINITY;
    struct err e = {0};
    for (int i = 0; i < FEW * FEW * FEW * FEW; i++) {
        int32_t ids[16];
        const float *logits;
        double sum = 0;
        int s = decoding_open(d);
        memcpy(ids, prompt, (size_t)n * sizeof *ids);
        for (int k = 0, rest = i; k < AHEAD; k++, rest /= FEW) ids[n + k] = rest % FEW;
        if (decoding_step(d, &(struct decoding_part){s, ids, n + AHEAD - 1, AHEAD}, 1, &logits, &e))
            fail_msg("%s", e.text);
        for (int k = 0; k < AHEAD; k++, logits += FEW) sum += (double)logits[ids[n + k]] - sample_log_sum(logits, FEW);
        if (sum > best) best = sum;
        decoding_close(d, s);
    }
    return best;
}

static void test_all_texts(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_new_byte();
    struct err e = {0};
    struct device *dev;
    if (device_cpu_new(&dev, 1, &e)) fail_msg("%s", e.text);
    for (int f = 0; f < 2; f++) {
        struct model_config m = toy_model(f ? MODEL_GPT2 : MODEL_LLAMA);
        struct decoding *d;
        m.vocab = FEW;
        struct decoding_options o = {.threads = 1, .dtype = DT_F32, .sequences = 64, .rows = 64, .model = &m};
        if (decoding_new(&d, NULL, dev, &o, &e)) fail_msg("%s", e.text);
        for (int i = 0; i<4; i += CASE_STRIDE> 1 ? 3 : 1) {
            const int32_t prompt[8] = {i, 3 - i, 1, 2, 0, i, 1, 3};
            struct beam_options b = {.beams = 64, .length_penalty = 1, .max_tokens = AHEAD};
            struct beam_text got = find(d, t, prompt, 1 + 2 * i, &b);
            double want = best_of_all(d, prompt, 1 + 2 * i);
            if (!(fabs(got.logprob - want) < 1e-4)) fail_msg("%d %d: %.9g, wanted %.9g", f, i, got.logprob, want);
            assert_true(fabs(got.score - got.logprob / AHEAD) < 1e-12);
            beam_text_free(&got);
        }
        decoding_free(d);
    }
    device_free(dev);
    tokenizer_free(t);
}

/* A stop string is not in the text, and what is before it is what was found; the model's positions end a text too. */
static void test_ends(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_new_byte();
    struct written x;
    int32_t ids[8];
    struct err e = {0};
    written_open(&x, MODEL_LLAMA, ROOM);
    struct decoding *d = written_decoding(&x, 3, 16, 0);
    prompt_of(2, ids, 8);
    struct beam_options o = {.beams = 1, .length_penalty = 1, .max_tokens = 20};
    struct beam_text whole = find(d, t, ids, 8, &o);
    for (size_t at = 1; at + 2 < whole.text.n; at += 4) { /* one beam finds the same tokens, up to there */
        char stop[3] = {whole.text.p[at], whole.text.p[at + 1], 0};
        const char *const stops[] = {"\x7f\x7f", stop};
        if (!stop[0] || !stop[1]) continue;
        size_t first = (size_t)((char *)memmem(whole.text.p, whole.text.n, stop, 2) - whole.text.p);
        o.stop = stops;
        o.n_stop = 2;
        struct beam_text got = find(d, t, ids, 8, &o);
        assert_string_equal(got.stopped, "stop string");
        assert_true(got.text.n == first && got.tokens == (int64_t)first + 2);
        assert_memory_equal(str_text(&got.text), whole.text.p, first);
        beam_text_free(&got);
    }
    o = (struct beam_options){.beams = 3, .length_penalty = 1, .max_tokens = 2 * ROOM};
    struct beam_text full = find(d, t, ids, 8, &o), none = {0};
    assert_string_equal(full.stopped, "cache full");
    assert_int_equal(full.tokens, ROOM + 1 - 8);
    o.beams = 4;
    assert_int_equal(beam_text(d, t, ids, 8, &o, &none, &e), ERR_REQUEST);
    assert_contains(e.text, "room for 1 to 3");
    o.beams = 3;
    assert_int_equal(beam_text(d, t, ids, 0, &o, &none, &e), ERR_REQUEST);
    ids[0] = VOCAB;
    assert_int_equal(beam_text(d, t, ids, 1, &o, &none, &e), ERR_REQUEST);
    assert_contains(e.text, "vocabulary");
    assert_int_equal(decoding_pages_left(d), decoding_pages(d));
    beam_text_free(&full);
    beam_text_free(&whole);
    decoding_free(d);
    /* So few pages that not every beam has one of its own. */
    size_t page = (size_t)(2 * 16 * x.toy.g->cfg.model.kv_heads * x.toy.g->cfg.model.head_dim * 2) * sizeof(float);
    d = written_decoding(&x, 8, 16, 7 * page);
    o = (struct beam_options){.beams = 8, .length_penalty = 1, .max_tokens = 60};
    ids[0] = 1;
    assert_int_equal(beam_text(d, t, ids, 8, &o, &none, &e), ERR_REQUEST);
    assert_contains(e.text, "no page of the cache is left");
    assert_int_equal(decoding_pages_left(d), decoding_pages(d));
    decoding_free(d);
    written_close(&x);
    tokenizer_free(t);
}

/* ---- a file of prompts ---- */

static int keep_text(void *ctx, const struct many_text *x, struct err *e)
{
    (void)e;
    str_printf(ctx, "%lld %s %s %lld %lld ", (long long)x->index, x->prompt, x->stopped, (long long)x->counts.prompt,
               (long long)x->counts.written);
    str_add(ctx, x->text, x->n);
    return OK;
}

static void test_prompts_of_a_file(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_new_byte();
    struct written x;
    struct str lines = {0}, got = {0}, want = {0};
    struct err e = {0};
    written_open(&x, MODEL_LLAMA, ROOM);
    struct decoding *d = written_decoding(&x, 3, 16, 0);
    struct beam_options o = {.beams = 3, .length_penalty = 1, .max_tokens = 9};
    for (int i = 0; i < 4; i++) {
        char prompt[32];
        int32_t ids[32];
        int n = snprintf(prompt, sizeof prompt, "%.*s", 1 + 8 * i, "0123456789012345678901234567890");
        for (int k = 0; k < n; k++) ids[k] = prompt[k];
        struct beam_text one = find(d, t, ids, n, &o);
        str_printf(&lines, "{\"prompt\":\"%s\"}\n", prompt);
        str_printf(&want, "%d %s length %d 9 ", i, prompt, n);
        str_add(&want, one.text.p, one.text.n);
        beam_text_free(&one);
    }
    char *path = fs_join(x.dir, "prompts.jsonl");
    if (fs_write_atomic(path, lines.p, lines.n, &e)) fail_msg("%s", e.text);
    if (beam_many(d, t, path, NULL, &o, keep_text, &got, &e)) fail_msg("%s", e.text);
    assert_true(got.n == want.n && !memcmp(got.p, want.p, got.n));
    if (fs_write_atomic(path, "{\"prompt\":\"1\"}\n{\"p\":1}\n", 24, &e)) fail_msg("%s", e.text);
    assert_true(beam_many(d, t, path, NULL, &o, keep_text, &got, &e) < 0);
    assert_contains(e.text, "prompt");
    xfree(path);
    str_free(&lines);
    str_free(&got);
    str_free(&want);
    decoding_free(d);
    written_close(&x);
    tokenizer_free(t);
}

/* ---- what others find ---- */

/* A line of golden/beams.txt (make_beams.py). */
struct told {
    char model[32];
    struct beam_options o;
    double score;
    int32_t prompt[64], found[64];
    int n_prompt, n_found;
};

static const char *numbers(const char *at, int32_t *ids, int *n)
{
    char *end;
    for (*n = 0; *n < 64; ++*n, at = end) {
        long v = strtol(at, &end, 10);
        if (end == at) break;
        ids[*n] = (int32_t)v;
    }
    return at;
}

static bool read_told(FILE *f, struct told *x)
{
    char line[1024];
    int at;
    if (!fgets(line, sizeof line, f)) return false;
    *x = (struct told){0};
    if (sscanf(line, "%31s %d %lf %" SCNd64 " %lf%n", x->model, &x->o.beams, &x->o.length_penalty, &x->o.max_tokens,
               &x->score, &at) != 5)
        fail_msg("beams.txt: %s", line);
    const char *bar = strchr(numbers(line + at, x->prompt, &x->n_prompt), '|');
    assert_non_null(bar);
    numbers(bar + 1, x->found, &x->n_found);
    return true;
}

/* The transformers library's search finds the same tokens, with the same score. */
static void test_as_transformers(void **state)
{
    (void)state;
    char path[512];
    struct told x;
    int rows = 0, ends = 0;
    struct device *dev;
    struct err e = {0};
    struct tokenizer *t = tokenizer_new_byte();
    if (device_cpu_new(&dev, 1, &e)) fail_msg("%s", e.text);
    snprintf(path, sizeof path, "%s/golden/beams.txt", TEST_DIR);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (read_told(f, &x)) {
        struct weights *w;
        struct decoding *d;
        if (SANITIZED && rows++ % 5) continue;
        snprintf(path, sizeof path, "%s/golden/families/%s", TEST_DIR, x.model);
        struct decoding_options o = {.threads = 1, .dtype = DT_F32, .sequences = x.o.beams, .rows = 16};
        if (weights_open(&w, path, &e) || decoding_new(&d, w, dev, &o, &e)) fail_msg("%s: %s", x.model, e.text);
        struct beam_text got = find(d, t, x.prompt, x.n_prompt, &x.o);
        if (got.ids.n != x.n_found || memcmp(got.ids.ids, x.found, (size_t)x.n_found * sizeof *x.found) ||
            !(fabs(got.score - x.score) < 1e-3 * (1 + fabs(x.score))))
            fail_msg("%s, %d beams, penalty %g: %d tokens, score %.9g, wanted %d, %.9g", x.model, x.o.beams,
                     x.o.length_penalty, (int)got.ids.n, got.score, x.n_found, x.score);
        ends += !strcmp(got.stopped, "end of text");
        rows += !SANITIZED;
        beam_text_free(&got);
        decoding_free(d);
        weights_close(w);
    }
    assert_true(rows >= 20 && (ends > 0 || SANITIZED));
    fclose(f);
    device_free(dev);
    tokenizer_free(t);
}

/* ---- over ranks ---- */

struct job {
    struct written *x;
    int tp, pp;
    struct beam_text *got;
};

static int run_rank(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    struct decoding_ranks g;
    struct weights *w;
    struct device *dev;
    struct decoding *d;
    int32_t ids[20];
    struct tokenizer *t = tokenizer_new_byte();
    int rc = decoding_ranks_init(&g, world, j->tp, j->pp, e);
    if (rc || weights_open(&w, j->x->dir, e) || device_cpu_new(&dev, 1, e)) fail_msg("%s", e->text);
    struct decoding_options o = {.threads = 1, .dtype = DT_F32, .sequences = 4, .rows = 16, .ranks = &g};
    if (decoding_new(&d, w, dev, &o, e)) fail_msg("%s", e->text);
    prompt_of(3, ids, 20);
    if (!g.leads) rc = decoding_follow(d, e);
    else *j->got = find(d, t, ids, 20, &(struct beam_options){.beams = 4, .length_penalty = 2, .max_tokens = LONG});
    decoding_free(d);
    device_free(dev);
    weights_close(w);
    tokenizer_free(t);
    decoding_ranks_fini(&g);
    return rc;
}

/* What is found over pp is that of one rank, to the bit; over tp, whose sums differ by rounding, what it is worth. */
static void test_ranks(void **state)
{
    (void)state;
    static const struct {
        enum model_family family;
        int tp, pp;
    } row[] = {{MODEL_LLAMA, 2, 1}, {MODEL_LLAMA, 1, 2}, {MODEL_MAMBA2, 1, 2}};
    struct tokenizer *t = tokenizer_new_byte();
    for (size_t i = 0; i < 3; i++) {
        struct written x;
        struct beam_text got = {0};
        struct err e = {0};
        int32_t ids[20];
        open_model(&x, row[i].family);
        struct job j = {.x = &x, .tp = row[i].tp, .pp = row[i].pp, .got = &got};
        if (comm_run_local(j.tp * j.pp, &(struct comm_config){0}, run_rank, &j, &e)) fail_msg("%s", e.text);
        prompt_of(3, ids, 20);
        double want = logprob_of(&x, ids, 20, &got.ids);
        if (got.ids.n < 20 || !(fabs(got.logprob - want) < NEAR))
            fail_msg("row %zu: %.9g, wanted %.9g", i, got.logprob, want);
        struct decoding *d = written_decoding(&x, 4, 16, 0);
        struct beam_text alone =
            find(d, t, ids, 20, &(struct beam_options){.beams = 4, .length_penalty = 2, .max_tokens = LONG});
        if (j.tp == 1)
            assert_true(got.logprob == alone.logprob && got.ids.n == alone.ids.n &&
                        !memcmp(got.ids.ids, alone.ids.ids, (size_t)got.ids.n * sizeof *got.ids.ids));
        beam_text_free(&alone);
        decoding_free(d);
        beam_text_free(&got);
        close_model(&x);
    }
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families),
                                       cmocka_unit_test(test_all_texts),
                                       cmocka_unit_test(test_ends),
                                       cmocka_unit_test(test_prompts_of_a_file),
                                       cmocka_unit_test(test_as_transformers),
                                       cmocka_unit_test(test_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
