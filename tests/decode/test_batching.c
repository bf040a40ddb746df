/* SPDX-License-Identifier: Apache-2.0 */
/* Many prompts at once say what each says alone: whatever their lengths, however many wait, with pages taken over,
 * pages that run short, forks, stop strings and penalties; and log-probabilities are those of tokens fed one by one. */
#include "decode/written.h"

#include <math.h>

#include "decode/batching.h"
#include "decode/cache_pages.h"
#include "decode/generate_file.h"

enum { ANSWERS = 7, LONGEST = 40, MORE = 24 };

struct heard {
    int32_t ids[LONGEST + MORE];
    double logprob[LONGEST + MORE];
    int n, limit; /* limit: after so many tokens nobody listens; 0: always */
    struct str text;
    bool ended;
    enum answer_end why;
    struct answer_counts counts;
};

static bool hear_token(void *ctx, const struct answer_token *t)
{
    struct heard *h = ctx;
    h->ids[h->n] = t->id;
    h->logprob[h->n++] = t->logprob;
    str_add(&h->text, t->text, t->n);
    return h->n != h->limit;
}

static void hear_end(void *ctx, enum answer_end why, const char *rest, size_t n, const struct answer_counts *c,
                     const struct err *e)
{
    struct heard *h = ctx;
    if (why == ANSWER_FAILED) fail_msg("%s", e->text);
    assert_false(h->ended);
    h->ended = true;
    h->why = why;
    h->counts = *c;
    str_add(&h->text, rest, n);
}

static struct answer_spec spec_of(int i, const int32_t *ids, struct heard *h)
{
    *h = (struct heard){0};
    return (struct answer_spec){.ids = ids,
                                .n = 1 + (i * 13) % LONGEST,
                                .max_tokens = MORE - i,
                                .sample = {.temperature = i % 3 ? 1.3 : 0,
                                           .top_p = i % 2 ? 0.9 : 1,
                                           .top_k = i == 5 ? 7 : 0,
                                           .seed = 11 + (uint64_t)i},
                                .before = {.min_p = i == 4 ? 0.02 : 0,
                                           .repetition = i == 2 ? 1.4 : 0,
                                           .frequency = i == 6 ? 0.7 : 0},
                                .top = -1,
                                .past_end = true,
                                .token = hear_token,
                                .end = hear_end,
                                .ctx = h};
}

static void run(struct batching *a)
{
    struct err e = {0};
    for (int i = 0; batching_writing(a) + batching_waiting(a); i++) {
        if (i > 10000) fail_msg("no end");
        if (batching_step(a, &e)) fail_msg("%s", e.text);
    }
}

static void add(struct batching *a, const struct answer_spec *s)
{
    int64_t id;
    struct err e = {0};
    if (batching_add(a, s, &id, &e)) fail_msg("%s", e.text);
}

static void prompt_of(int i, int32_t ids[LONGEST])
{
    for (int k = 0; k < LONGEST; k++) ids[k] = (int32_t)(rng_u32(1, (uint64_t)(i < 4 ? 0 : i), (uint64_t)k) % 67);
}

/* Texts of more than `original` tokens turn otherwise than shorter ones. */
static struct engine_config with_lengths(int64_t original)
{
    struct engine_config c = toy_config(MODEL_LLAMA, DT_F32);
    c.model.seq_len = c.seq; /* which training goes by */
    c.model.rope_scaling = (struct rope_scaling_config){.factor = 4,
                                                        .kind = ROPE_LONG,
                                                        .original_max_position = original,
                                                        .short_factors.n = model_turned(&c.model) / 2,
                                                        .long_factors.n = model_turned(&c.model) / 2};
    for (int64_t i = 0; i < model_turned(&c.model) / 2; i++) {
        c.model.rope_scaling.short_factors.v[i] = 1 + 0.125 * (double)i;
        c.model.rope_scaling.long_factors.v[i] = 1.5 + (double)(i * i);
    }
    return c;
}

static struct engine_config with_prefixes(void)
{
    struct engine_config c = toy_config(MODEL_LLAMA, DT_F32);
    c.model.attn.prefix = c.model.document_mask = true;
    return c;
}

/* What a text is worth behind its first tokens is what training says of it, where those see each other in both
 * directions, and where angles go by the text's length. */
static void test_as_trained(void **state)
{
    (void)state;
    const struct engine_config configs[] = {with_prefixes(), with_lengths(20), with_lengths(30)};
    struct tokenizer *t = tokenizer_new_byte();
    for (int k = 0; k < 3; k++)
        for (int64_t prompt = 1; prompt <= 11; prompt += 10) {
            struct written x;
            struct engine_report r;
            struct heard h = {0};
            int64_t seq = configs[k].seq;
            int32_t targets[32], docs[32] = {0};
            double sum = 0;
            written_open_config(&x, configs[k], LONGEST + MORE);
            for (int64_t i = 0; i < seq; i++) targets[i] = i < prompt - 1 || i + 1 == seq ? -1 : x.toy.tokens[i + 1];
            struct engine_batch b = {.tokens = x.toy.tokens,
                                     .targets = targets,
                                     .positions = x.toy.positions,
                                     .docs = docs};
            b.n = 1;
            b.n_trained = seq - prompt;
            engine_evaluate(x.toy.g, &b, &r);
            struct decoding *d = written_decoding(&x, 2, 7, 0);
            struct batching *a = batching_new(d, t);
            struct answer_spec s = {.ids = x.toy.tokens,
                                    .n = seq,
                                    .sample = {.top_p = 1},
                                    .top = 0,
                                    .tell_prompt = true,
                                    .tell_from = prompt,
                                    .token = hear_token,
                                    .end = hear_end,
                                    .ctx = &h};
            add(a, &s);
            run(a);
            for (int i = 0; i < h.n; i++) sum -= h.logprob[i];
            if (!(fabs(sum / (double)(seq - prompt) - r.loss) < 1e-5))
                fail_msg("config %d, a prompt of %d: %g, trained %g", k, (int)prompt, sum / (double)(seq - prompt),
                         r.loss);
            str_free(&h.text);
            batching_free(a);
            decoding_free(d);
            written_close(&x);
        }
    tokenizer_free(t);
}

/* A prompt that does not fit into a step is refused, and so are scores of a prompt's own tokens with an answer. */
static void test_prompts_are_whole(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_new_byte();
    struct written x;
    struct heard h;
    struct err e = {0};
    const float *logits;
    int64_t id;
    int32_t ids[LONGEST];
    prompt_of(1, ids);
    written_open_config(&x, with_prefixes(), LONGEST + MORE);
    struct decoding *d = written_decoding(&x, 2, 5, 0);
    assert_int_equal(decoding_rows(d), LONGEST + MORE);
    struct batching *a = batching_new(d, t);
    struct answer_spec s = spec_of(1, ids, &h);
    s.tell_prompt = true;
    s.top = 0;
    assert_int_equal(batching_add(a, &s, &id, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "model.attn.prefix"));
    int q = decoding_open(d);
    decoding_prompt(d, q, 9);
    assert_int_equal(decoding_step(d, &(struct decoding_part){q, ids, 4, 1}, 1, &logits, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "a prompt of 9 tokens"));
    assert_int_equal(decoding_step(d, &(struct decoding_part){q, ids, 9, 1}, 1, &logits, &e), OK);
    assert_int_equal(decoding_reuse(d, decoding_open(d), ids, LONGEST), 0);
    batching_free(a);
    decoding_free(d);
    written_close(&x);
    tokenizer_free(t);
}

/* A step for which pages run short leaves what it found: those that it had taken for its first texts go back at once,
 * and each text goes on where it was. */
static void test_a_step_without_pages(void **state)
{
    (void)state;
    struct written x;
    struct err e = {0};
    const float *logits;
    int32_t ids[LONGEST];
    prompt_of(1, ids);
    written_open(&x, MODEL_LLAMA, LONGEST + MORE);
    const struct model_config *m = &x.toy.g->cfg.model;
    struct decoding *d = written_decoding(&x, 3, LONGEST + MORE,
                                          (size_t)(7 * 2 * 16 * m->kv_heads * m->head_dim * m->layers) * sizeof(float));
    assert_int_equal(decoding_pages(d), 7);
    int a = decoding_open(d), b = decoding_open(d), c = decoding_open(d);
    if (decoding_step(d, &(struct decoding_part){a, ids, LONGEST, 1}, 1, &logits, &e)) fail_msg("%s", e.text);
    if (decoding_step(d, &(struct decoding_part){b, ids, 5, 1}, 1, &logits, &e)) fail_msg("%s", e.text);
    int64_t left = decoding_pages_left(d);
    assert_int_equal(left, 7 - decoding_pages_for(d, LONGEST) - decoding_pages_for(d, 5));
    struct decoding_part two[2] = {{b, ids + 5, 20, 1}, {c, ids, LONGEST, 1}};
    assert_int_equal(decoding_step(d, two, 2, &logits, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "no page of the cache is left"));
    assert_int_equal(decoding_pages_left(d), left);
    assert_int_equal(decoding_fed(d, b), 5);
    assert_int_equal(decoding_fed(d, c), 0);
    if (decoding_step(d, two, 1, &logits, &e)) fail_msg("%s", e.text);
    assert_int_equal(decoding_fed(d, b), 25);
    decoding_free(d);
    written_close(&x);
}

/* Keys of the same tokens are others in short texts and in long ones. */
static void test_pages_by_length(void **state)
{
    (void)state;
    struct written x;
    struct err e = {0};
    const float *logits;
    int32_t ids[LONGEST];
    prompt_of(1, ids);
    written_open_config(&x, with_lengths(30), LONGEST + MORE);
    struct decoding *d = written_decoding(&x, 4, 64, 0);
    for (int k = 0; k < 4; k++) { /* a short text, the same one, a long one, the same one */
        int64_t n = k < 2 ? 20 : LONGEST, had = k < 3 ? 0 : 32;
        int s = decoding_open(d);
        assert_int_equal(decoding_reuse(d, s, ids, n), had);
        struct decoding_part p = {s, ids + had, n - had, 1};
        if (decoding_step(d, &p, 1, &logits, &e)) fail_msg("%s", e.text);
    }
    assert_int_equal(decoding_turns_alike(d, 20), 30);
    assert_true(decoding_turns_alike(d, 31) == INT64_MAX);
    decoding_free(d);
    written_close(&x);
}

static void test_together_as_alone(void **state)
{
    (void)state;
    static const struct {
        int64_t sequences, rows;
        size_t pages;
    } how[] = {{ANSWERS, 128, 0}, {3, 16, 0}, {2, 5, 6}, {ANSWERS, 64, 7}};
    struct tokenizer *t = tokenizer_new_byte();
    const struct engine_config others[] = {with_prefixes(), with_lengths(30)}; /* which many texts pass */
    for (int family = 0; family < TOY_TEXTS + 2; family++) {
        struct written x;
        struct heard alone[ANSWERS], got[ANSWERS];
        int32_t ids[ANSWERS][LONGEST];
        written_open_config(&x,
                            family < TOY_TEXTS ? toy_config((enum model_family)family, DT_F32)
                                               : others[family - TOY_TEXTS],
                            LONGEST + MORE);
        struct decoding *d = written_decoding(&x, 1, 128, 0);
        size_t page =
            (size_t)(2 * 16 * decoding_model(d)->kv_heads * decoding_model(d)->head_dim * decoding_model(d)->layers) *
            sizeof(float);
        for (int i = 0; i < ANSWERS; i++) {
            struct batching *a = batching_new(d, t);
            prompt_of(i, ids[i]);
            struct answer_spec s = spec_of(i, ids[i], &alone[i]);
            add(a, &s);
            run(a);
            assert_true(alone[i].ended && alone[i].n == MORE - i && alone[i].why == ANSWER_LENGTH);
            batching_free(a);
        }
        decoding_free(d);
        for (size_t k = 0; k < sizeof how / sizeof *how; k++) {
            d = written_decoding(&x, how[k].sequences, how[k].rows, how[k].pages * page);
            struct batching *a = batching_new(d, t);
            for (int again = 0; again < 2; again++) { /* the second time with pages of the first */
                for (int i = 0; i < ANSWERS; i++) {
                    struct answer_spec s = spec_of(i, ids[i], &got[i]);
                    add(a, &s);
                }
                run(a);
                for (int i = 0; i < ANSWERS; i++) {
                    if (got[i].n != alone[i].n || memcmp(got[i].ids, alone[i].ids, (size_t)got[i].n * sizeof(int32_t)))
                        fail_msg("family %d, way %zu, time %d: answer %d is another one than alone", family, k, again,
                                 i);
                    if (again && k == 0 && got[i].counts.prompt > 16 && family < TOY_TEXTS)
                        assert_true(got[i].counts.reused >= 16);
                    str_free(&got[i].text);
                }
            }
            assert_int_equal(decoding_pages_left(d), decoding_pages(d));
            batching_free(a);
            decoding_free(d);
        }
        for (int i = 0; i < ANSWERS; i++) str_free(&alone[i].text);
        written_close(&x);
    }
    tokenizer_free(t);
}

static void test_logprobs_of_prompts(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_new_byte();
    struct written x;
    int32_t ids[LONGEST];
    double want[LONGEST];
    written_open(&x, MODEL_LLAMA, LONGEST);
    prompt_of(0, ids);
    written_logprobs(&x, ids, LONGEST, want);
    struct decoding *d = written_decoding(&x, 3, 7, 0);
    struct batching *a = batching_new(d, t);
    for (int again = 0; again < 2; again++)
        for (int64_t from = 0; from < LONGEST; from += 13) {
            struct heard h = {0};
            struct answer_spec s = {.ids = ids,
                                    .n = LONGEST,
                                    .sample = {.top_p = 1},
                                    .top = 2,
                                    .tell_prompt = true,
                                    .tell_from = from,
                                    .token = hear_token,
                                    .end = hear_end,
                                    .ctx = &h};
            add(a, &s);
            run(a);
            assert_true(h.ended && h.why == ANSWER_LENGTH && h.n == LONGEST - from && h.counts.written == 0);
            assert_true(h.counts.reused == (again || from > 16 ? (from - 1) / 16 * 16 * (from > 0) : 0) || !again);
            for (int64_t i = 0; i < h.n; i++) {
                assert_int_equal(h.ids[i], ids[from + i]);
                if (from + i == 0) assert_true(isnan(h.logprob[0]));
                else if (!(fabs(h.logprob[i] - want[from + i]) < 1e-4))
                    fail_msg("token %d: %g, wanted %g", (int)(from + i), h.logprob[i], want[from + i]);
            }
            str_free(&h.text);
        }
    batching_free(a);
    decoding_free(d);
    written_close(&x);
    tokenizer_free(t);
}

/* The text up to a stop string and nothing of it, whichever token of it begins one; who stops listening is let go. */
static void test_ends(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_new_byte();
    struct written x;
    struct heard whole, h;
    int32_t ids[LONGEST];
    int64_t id;
    struct err e = {0};
    written_open(&x, MODEL_LLAMA, LONGEST + MORE);
    struct decoding *d = written_decoding(&x, 2, 32, 0);
    struct batching *a = batching_new(d, t);
    prompt_of(1, ids);
    struct answer_spec s = spec_of(1, ids, &whole);
    add(a, &s);
    run(a);
    for (size_t from = 0; from + 3 < whole.text.n; from++) {
        char stop[4] = {0};
        memcpy(stop, whole.text.p + from, 3);
        if (strlen(stop) < 3) continue; /* a NUL */
        const char *const stops[] = {"\x7f\x7f", stop};
        size_t at = 0; /* of its first place in the text */
        while (memcmp(whole.text.p + at, stop, 3)) at++;
        s = spec_of(1, ids, &h);
        s.stop = stops;
        s.n_stop = 2;
        add(a, &s);
        run(a);
        assert_int_equal(h.why, ANSWER_STOP);
        assert_int_equal(h.text.n, at);
        assert_memory_equal(str_text(&h.text), whole.text.p, h.text.n);
        str_free(&h.text);
        s = spec_of(1, ids, &h); /* before so many tokens it is text like any */
        s.stop = stops;
        s.n_stop = 2;
        s.min_tokens = s.max_tokens;
        add(a, &s);
        run(a);
        if (h.why == ANSWER_LENGTH) assert_int_equal(h.text.n, whole.text.n);
        else assert_memory_equal(whole.text.p + whole.text.n - 3, stop, 3); /* whole with the last one */
        str_free(&h.text);
    }
    s = spec_of(1, ids, &h);
    h.limit = 3;
    add(a, &s);
    run(a);
    assert_true(h.n == 3 && !h.ended);
    str_free(&h.text);
    s = spec_of(1, ids, &h);
    if (batching_add(a, &s, &id, &e) || batching_step(a, &e)) fail_msg("%s", e.text);
    batching_cancel(a, id);
    batching_cancel(a, id);
    assert_true(!batching_writing(a) && !h.ended);
    str_free(&h.text);
    s.n = LONGEST + MORE + 1;
    assert_int_equal(batching_add(a, &s, &id, &e), ERR_REQUEST);
    s.n = 0;
    assert_int_equal(batching_add(a, &s, &id, &e), ERR_REQUEST);
    s.n = 1;
    s.ids = (int32_t[]){67};
    assert_int_equal(batching_add(a, &s, &id, &e), ERR_REQUEST);
    str_free(&whole.text);
    assert_int_equal(decoding_pages_left(d), decoding_pages(d));
    batching_free(a);
    decoding_free(d);
    written_close(&x);
    tokenizer_free(t);
}

/* A fork goes on as its original does, both write what the other does not see, and a cut forgets. */
static void test_forks(void **state)
{
    (void)state;
    struct written x;
    int32_t ids[LONGEST];
    double want[LONGEST], other[LONGEST];
    struct err e = {0};
    written_open(&x, MODEL_LLAMA, LONGEST);
    prompt_of(0, ids);
    written_logprobs(&x, ids, LONGEST, want);
    struct decoding *d = written_decoding(&x, 3, LONGEST, 0);
    for (int64_t at = 1; at + 2 < LONGEST; at += 5) {
        const float *logits;
        int32_t wrong[2] = {5, 6};
        int s = decoding_open(d);
        (void)decoding_reuse(d, s, ids, at);
        int64_t had = decoding_fed(d, s);
        if (decoding_step(d, &(struct decoding_part){s, ids + had, at - had, 1}, 1, &logits, &e))
            fail_msg("%s", e.text);
        int f = decoding_fork(d, s);
        assert_true(f >= 0);
        struct decoding_part two[2] = {{f, wrong, 2, 1}, {s, ids + at, LONGEST - at - 1, LONGEST - at - 1}};
        if (decoding_step(d, two, 2, &logits, &e)) fail_msg("%s", e.text);
        decoding_cut(d, f, at);
        two[0] = (struct decoding_part){f, ids + at, LONGEST - at - 1, LONGEST - at - 1};
        if (decoding_step(d, two, 1, &logits, &e)) fail_msg("%s", e.text);
        for (int64_t i = at; i + 1 < LONGEST; i++) {
            const float *row = logits + (i - at) * 67;
            other[i + 1] = (double)row[ids[i + 1]] - sample_log_sum(row, 67);
            if (!(fabs(other[i + 1] - want[i + 1]) < 1e-4))
                fail_msg("forked at %d, token %d: %g, wanted %g", (int)at, (int)i, other[i + 1], want[i + 1]);
        }
        decoding_close(d, s);
        decoding_close(d, f);
    }
    assert_int_equal(decoding_pages_left(d), decoding_pages(d));
    decoding_free(d);
    written_close(&x);
}

/* Prompts of a file, told in its order, whatever is written at once; each with a seed of its own. */
static int keep_text(void *ctx, const struct many_text *t, struct err *e)
{
    (void)e;
    str_printf(ctx, "%lld %s %s %zu ", (long long)t->index, t->prompt, t->stopped, t->n);
    str_add(ctx, t->text, t->n);
    return OK;
}

static void test_prompts_of_a_file(void **state)
{
    (void)state;
    struct written x;
    struct str lines = {0}, got[3] = {0};
    struct err e = {0};
    struct tokenizer *t = tokenizer_new_byte();
    written_open(&x, MODEL_LLAMA, LONGEST + MORE);
    for (int i = 0; i < 9; i++)
        str_printf(&lines, "{\"p\":\"%.*s\"}\n", 1 + i * 4, "0123456789012345678901234567890123456789");
    char *path = fs_join(x.dir, "prompts.jsonl");
    const char *const stop[] = {"\x01"};
    if (fs_write_atomic(path, lines.p, lines.n, &e)) fail_msg("%s", e.text);
    for (int k = 0; k < 3; k++) {
        struct decoding *d = written_decoding(&x, k ? 4 : 1, k == 2 ? 9 : 64, 0);
        struct generate_file_options o = {.path = path,
                                          .template = "{{ p }}",
                                          .max_tokens = 12,
                                          .stop = stop,
                                          .n_stop = 1,
                                          .sample = {.temperature = 1, .top_p = 1, .seed = 5}};
        if (generate_file(d, t, &o, keep_text, &got[k], &e)) fail_msg("%s", e.text);
        if (k) assert_true(got[k].n == got[0].n && !memcmp(got[k].p, got[0].p, got[0].n));
        decoding_free(d);
    }
    assert_true(got[0].n > 9 * 20 && generate_file_seed(5, 0) == 5 &&
                generate_file_seed(5, 1) != generate_file_seed(5, 2));
    for (int k = 0; k < 3; k++) str_free(&got[k]);
    str_free(&lines);
    xfree(path);
    tokenizer_free(t);
    written_close(&x);
}

static int keep_apart(void *ctx, const struct many_text *t, struct err *e)
{
    struct str *to = ctx;
    (void)e;
    str_add(&to[t->index], t->text, t->n);
    return OK;
}

/* Text that is held back, because an end of it may be the beginning of what stops it, is not lost at the end. */
static void test_held_back(void **state)
{
    (void)state;
    struct written x;
    struct str got[2] = {0};
    struct err e = {0};
    const char *stops[1] = {NULL};
    struct tokenizer *t = tokenizer_new_byte();
    written_open(&x, MODEL_LLAMA, LONGEST + MORE);
    char *path = fs_join(x.dir, "prompts.jsonl"), longer[64];
    if (fs_write_atomic(path, "{\"prompt\":\"01234\"}\n", 19, &e)) fail_msg("%s", e.text);
    for (int k = 0; k < 2; k++) {
        struct decoding *d = written_decoding(&x, 1, 16, 0);
        struct generate_file_options o = {.path = path,
                                          .max_tokens = 40,
                                          .stop = stops,
                                          .n_stop = k,
                                          .sample = {.temperature = 1.5, .top_p = 1, .seed = 5}};
        if (k) snprintf(longer, sizeof longer, "%c\x01 never", got[0].p[got[0].n - 1]), stops[0] = longer;
        if (generate_file(d, t, &o, keep_apart, &got[k], &e)) fail_msg("%s", e.text);
        decoding_free(d);
    }
    assert_true(got[0].n > 0 && got[0].n == got[1].n && !memcmp(got[0].p, got[1].p, got[0].n));
    for (int k = 0; k < 2; k++) str_free(&got[k]);
    xfree(path);
    tokenizer_free(t);
    written_close(&x);
}

/* One prompt twice in a file is written twice, differently. */
static void test_seeds_of_records(void **state)
{
    (void)state;
    struct written x;
    struct str got[2] = {0};
    struct err e = {0};
    struct tokenizer *t = tokenizer_new_byte();
    const char *lines = "{\"prompt\":\"01234\"}\n{\"prompt\":\"01234\"}\n";
    written_open(&x, MODEL_LLAMA, LONGEST + MORE);
    char *path = fs_join(x.dir, "prompts.jsonl");
    struct decoding *d = written_decoding(&x, 2, 16, 0);
    struct generate_file_options o = {.path = path,
                                      .max_tokens = 40,
                                      .sample = {.temperature = 1.5, .top_p = 1, .seed = 5}};
    if (fs_write_atomic(path, lines, strlen(lines), &e) || generate_file(d, t, &o, keep_apart, got, &e))
        fail_msg("%s", e.text);
    assert_true(got[0].n != got[1].n || memcmp(got[0].p, got[1].p, got[0].n));
    for (int i = 0; i < 2; i++) str_free(&got[i]);
    decoding_free(d);
    xfree(path);
    tokenizer_free(t);
    written_close(&x);
}

/* What came before changes logits as the header says. */
static void test_before(void **state)
{
    (void)state;
    struct sampler *s = sampler_new(5);
    const int32_t ids[] = {0, 1, 2, 2};
    float logits[] = {2, -2, 3, 1, 0};
    sample_before_apply(s, &(struct sample_before){.repetition = 2, .presence = 0.25, .frequency = 0.5}, 1, ids, 4, 2,
                        logits);
    const float want[] = {1, -4, 1.5f - 0.25f - 1, 1, 0};
    for (int i = 0; i < 5; i++) assert_true(logits[i] == want[i]);
    sample_before_apply(s, &(struct sample_before){.min_p = 0.5}, 1, ids, 0, 0, logits); /* log(0.5) below 1: 0.307 */
    assert_true(logits[0] == 1 && logits[3] == 1 && isinf(logits[1]) && isinf(logits[2]) && isinf(logits[4]));
    assert_false(sample_before_changes(&(struct sample_before){.repetition = 1}));
    assert_true(sample_before_changes(&(struct sample_before){.min_p = 0.1}));
    assert_int_equal(sample_before_check(&(struct sample_before){.min_p = 1.5}, NULL), ERR_REQUEST);
    assert_int_equal(sample_before_check(&(struct sample_before){.repetition = -1}, NULL), ERR_REQUEST);
    assert_int_equal(sample_before_check(&(struct sample_before){.presence = NAN}, NULL), ERR_REQUEST);
    sampler_free(s);
}

/* Pages against a list of who owns what and which texts they hold, over random takes, shares, returns and finds. */
static void test_pages(void **state)
{
    (void)state;
    enum { PAGES = 12, STEPS = 20000 };
    struct cache_pages *p = cache_pages_new(PAGES, 2);
    int owners[PAGES] = {0}, of[PAGES];
    int32_t text[PAGES][2], chain[8];
    for (int i = 0; i < PAGES; i++) of[i] = -1;
    for (uint64_t k = 0; k < STEPS;
         k++) { /* a text of up to 4 pages is read, found as far as it is known, and let go */
        int n = 0, had = 0, length = 1 + (int)(rng_u32(3, 0, k) % 4), free_pages = 0;
        int32_t ids[8];
        for (int i = 0; i < 8; i++) ids[i] = (int32_t)(rng_u32(3, (uint64_t)i + 1, k) % 2);
        while (n < length) {
            int32_t page = cache_page_find(p, n ? chain[n - 1] : -1, ids + 2 * n);
            if (page < 0) break;
            assert_memory_equal(text[page], ids + 2 * n, sizeof text[page]);
            assert_int_equal(of[page], n ? chain[n - 1] : -1);
            chain[n++] = page;
            owners[page]++;
        }
        for (had = n; n < length; n++) {
            int32_t page = cache_page_take(p);
            assert_true(page >= 0 && owners[page]++ == 0);
            chain[n] = page;
            memcpy(text[page], ids + 2 * n, sizeof text[page]);
            of[page] = n ? chain[n - 1] : -1;
            cache_page_know(p, page, of[page], text[page]);
            assert_true(cache_page_is_known(p, page));
        }
        for (int i = 0; i < PAGES; i++) free_pages += !owners[i];
        assert_int_equal(cache_pages_left(p), free_pages);
        while (n) {
            cache_page_share(p, chain[n - 1]);
            assert_int_equal(cache_page_owners(p, chain[n - 1]), 2);
            cache_page_return(p, chain[n - 1]);
            cache_page_return(p, chain[--n]);
            owners[chain[n]]--;
        }
        if (k > 0 && length == 1 && had == 1) assert_true(cache_pages_left(p) == PAGES);
    }
    for (int i = 0; i < PAGES; i++) assert_true(cache_page_take(p) >= 0);
    assert_int_equal(cache_page_take(p), -1);
    cache_pages_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_together_as_alone),
        cmocka_unit_test(test_as_trained),
        cmocka_unit_test(test_prompts_are_whole),
        cmocka_unit_test(test_a_step_without_pages),
        cmocka_unit_test(test_pages_by_length),
        cmocka_unit_test(test_logprobs_of_prompts),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_forks),
        cmocka_unit_test(test_prompts_of_a_file),
        cmocka_unit_test(test_held_back),
        cmocka_unit_test(test_seeds_of_records),
        cmocka_unit_test(test_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
