/* SPDX-License-Identifier: Apache-2.0 */
/* What T5 writes against the transformers library (tests/golden/make_t5_written.py), as first published and 1.1: to
 * prompts of several lengths the same tokens with the same log-probabilities, one at a time, many at once with all that
 * comes and goes between, by beams, over ranks, and in few rows. A prompt is read once and its pages are shared by
 * forks; every page comes back. What is refused. */
#include "engine/encoder.h"

#include "kernel/cache_runs.h"
#include "decode/batching.h"
#include "decode/beam_text.h"
#include "decode/decoding_ranks.h"
#include "decode/generate.h"

enum { MOST = 64, NEW = 24, TEXTS = 4 };
/* newer: with the config.json that transformers 5 writes of it, which says of every output matrix that it is the
 * embedding; whether what goes into it is divided is said by a key of its own there. */
static const struct {
    const char *folder, *name;
    bool newer;
} models[] = {{"t5", "t5", false},        {"t5_v11", "t5_v11", false}, {"t5", "t5", true},
              {"t5_v11", "t5_v11", true}, {"t5", "t5_unscaled", true}, {"t5_v11", "t5_v11_scaled", true}};
enum { MODELS = sizeof models / sizeof *models };

struct text {
    int32_t prompt[MOST], said[NEW];
    double logprob[NEW];
    int64_t n;
};
struct written_case {
    struct weights *w;
    struct device *dev;
    struct text text[TEXTS];
    char *copy; /* a folder; NULL: the stored one is read */
};

static char *copied(const char *folder, const char *config)
{
    struct err e = {0};
    char *dir = scratch_new(), *from = fs_join(folder, "model.safetensors"), *to = fs_join(dir, "model.safetensors"),
         *path = fs_join(dir, "config.json"), *bytes;
    size_t n;
    if (fs_read_all(from, 1 << 24, &bytes, &n, &e) || fs_write_atomic(to, bytes, n, &e) ||
        fs_write_atomic(path, config, strlen(config), &e))
        fail_msg("%s", e.text);
    xfree(bytes);
    xfree(from);
    xfree(to);
    xfree(path);
    return dir;
}

static void open_case(struct written_case *c, int k)
{
    struct err e = {0};
    struct json *root;
    char path[256];
    memset(c, 0, sizeof *c);
    if (json_parse_file(&root, GOLDEN "t5_written.json", 1 << 20, &e)) fail_msg("%s", e.text);
    snprintf(path, sizeof path, GOLDEN "%s", models[k].folder);
    char *copy = models[k].newer
                     ? copied(path, json_string(json_get(json_get(root, "configs"), models[k].name), NULL, ""))
                     : NULL;
    if (weights_open(&c->w, copy ? copy : path, &e) || device_cpu_new(&c->dev, 1, &e)) fail_msg("%s", e.text);
    c->copy = copy;
    const struct json *list = json_get(root, models[k].name);
    assert_int_equal(json_size(list), TEXTS);
    for (int i = 0; i < TEXTS; i++) {
        const struct json *one = json_at(list, (size_t)i), *ids = json_get(one, "prompt");
        struct text *t = &c->text[i];
        t->n = (int64_t)json_size(ids);
        assert_true(t->n > 0 && t->n <= MOST && json_size(json_get(one, "said")) == NEW);
        for (int64_t j = 0; j < t->n; j++) t->prompt[j] = (int32_t)json_int(json_at(ids, (size_t)j), -1);
        for (size_t j = 0; j < NEW; j++) {
            t->said[j] = (int32_t)json_int(json_at(json_get(one, "said"), j), -1);
            t->logprob[j] = json_real(json_at(json_get(one, "logprobs"), j), NAN);
        }
    }
    json_free(root);
}

static void close_case(struct written_case *c)
{
    weights_close(c->w);
    device_free(c->dev);
    if (c->copy) scratch_free(c->copy);
}

static struct decoding *open_decoding(struct written_case *c, int64_t sequences, int64_t rows, size_t cache_bytes)
{
    struct decoding *d;
    struct err e = {0};
    struct decoding_options o = {.threads = 1,
                                 .dtype = DT_F32,
                                 .sequences = sequences,
                                 .rows = rows,
                                 .positions = MOST,
                                 .cache_bytes = cache_bytes};
    if (decoding_new(&d, c->w, c->dev, &o, &e)) fail_msg("%s", e.text);
    return d;
}

/* Of words w0 to w60, without an end of text. */
static struct tokenizer *open_words(void)
{
    struct tokenizer *t;
    struct str json = {0};
    struct err e = {0};
    str_puts(&json,
             "{\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"w1\","
             "\"vocab\":{");
    for (int i = 0; i < 61; i++) str_printf(&json, "%s\"w%d\":%d", i ? "," : "", i, i);
    str_puts(&json, "}}}");
    if (tokenizer_parse(&t, json.p, json.n, "words", &e)) fail_msg("%s", e.text);
    assert_int_equal(tokenizer_eos(t), -1);
    str_free(&json);
    return t;
}

static double logprob_in(const float *logits, int64_t vocab, int32_t id)
{
    return (double)logits[id] - sample_log_sum(logits, vocab);
}

static void near(double got, double want, const char *what, int i)
{
    if (!(fabs(got - want) <= 2e-5 * (1 + fabs(want)))) fail_msg("%s %d: %.9g, wanted %.9g", what, i, got, want);
}

static int32_t likeliest(const float *logits, int64_t vocab)
{
    int32_t id;
    sample_top(logits, vocab, 1, &id);
    return id;
}

/* ---- one at a time ---- */
/* All texts side by side, a token of each in a step; what they begin with comes all at once to the last one. */
static void test_by_steps(void **state)
{
    (void)state;
    for (int k = 0; k < MODELS; k++) {
        struct written_case c;
        const float *logits;
        struct err e = {0};
        open_case(&c, k);
        struct decoding *d = open_decoding(&c, TEXTS + 1, 32, 0);
        int64_t vocab = decoding_model(d)->vocab;
        int seq[TEXTS];
        assert_true(decoding_reads(d) && decoding_start(d) == 0);
        int32_t start = decoding_start(d);
        for (int i = 0; i < TEXTS; i++) {
            seq[i] = decoding_open(d);
            assert_int_equal(decoding_step(d, &(struct decoding_part){seq[i], &start, 1, 1}, 1, &logits, &e),
                             ERR_REQUEST);
            assert_int_equal(decoding_read(d, seq[i], NULL, c.text[i].prompt, c.text[i].n, &e), OK);
        }
        for (int j = 0; j < NEW; j++) {
            struct decoding_part part[TEXTS];
            for (int i = 0; i < TEXTS; i++) {
                const int32_t *before = j ? &c.text[i].said[j - 1] : &start;
                part[i] = (struct decoding_part){seq[i], before, 1, 1};
            }
            if (decoding_step(d, part, TEXTS, &logits, &e)) fail_msg("%s", e.text);
            for (int i = 0; i < TEXTS; i++, logits += vocab) {
                assert_int_equal(likeliest(logits, vocab), c.text[i].said[j]);
                near(logprob_in(logits, vocab, c.text[i].said[j]), c.text[i].logprob[j], models[k].name, i * 100 + j);
            }
        }
        int32_t whole[NEW] = {start}; /* many rows of one sequence in a step */
        memcpy(whole + 1, c.text[2].said, sizeof whole - sizeof *whole);
        int s = decoding_open(d);
        assert_int_equal(decoding_read(d, s, NULL, c.text[1].prompt, c.text[1].n, &e), OK); /* another text first */
        assert_int_equal(decoding_read(d, s, NULL, c.text[2].prompt, c.text[2].n, &e), OK);
        if (decoding_step(d, &(struct decoding_part){s, whole, NEW, NEW}, 1, &logits, &e)) fail_msg("%s", e.text);
        for (int j = 0; j < NEW; j++)
            near(logprob_in(logits + j * vocab, vocab, c.text[2].said[j]), c.text[2].logprob[j], "whole", j);
        for (int i = 0; i < TEXTS; i++) decoding_close(d, seq[i]);
        decoding_close(d, s);
        assert_int_equal(decoding_pages_left(d), decoding_pages(d));
        decoding_free(d);
        close_case(&c);
    }
}

/* A fork goes on from what was read for the first, also after that is closed; cut back, it writes the same again. */
static void test_forks(void **state)
{
    (void)state;
    struct written_case c;
    const float *logits;
    struct err e = {0};
    open_case(&c, 0);
    struct decoding *d = open_decoding(&c, 2, 32, 0);
    const struct text *t = &c.text[3];
    int64_t vocab = decoding_model(d)->vocab, left;
    int32_t begin[20] = {0};
    memcpy(begin + 1, t->said, 19 * sizeof *begin);
    int a = decoding_open(d);
    assert_int_equal(decoding_read(d, a, NULL, t->prompt, t->n, &e), OK);
    if (decoding_step(d, &(struct decoding_part){a, begin, 20, 1}, 1, &logits, &e)) fail_msg("%s", e.text);
    left = decoding_pages_left(d);
    int b = decoding_fork(d, a);
    assert_true(b >= 0 && left - decoding_pages_left(d) == 1); /* the page that is not full */
    decoding_close(d, a);
    for (int again = 0; again < 2; again++) {
        for (int j = 20; j < NEW; j++) {
            if (decoding_step(d, &(struct decoding_part){b, &t->said[j - 1], 1, 1}, 1, &logits, &e))
                fail_msg("%s", e.text);
            near(logprob_in(logits, vocab, t->said[j]), t->logprob[j], "fork", j);
        }
        decoding_cut(d, b, 20);
    }
    decoding_close(d, b);
    assert_int_equal(decoding_pages_left(d), decoding_pages(d));
    decoding_free(d);
    close_case(&c);
}

/* ---- many ---- */
struct heard {
    int32_t id[NEW];
    double logprob[NEW];
    int n, ended;
    enum answer_end why;
    int64_t prompt;
};

static bool hear(void *ctx, const struct answer_token *t)
{
    struct heard *h = ctx;
    assert_true(h->n < NEW && !t->prompt);
    h->id[h->n] = t->id;
    h->logprob[h->n++] = t->logprob;
    return true;
}

static void hear_end(void *ctx, enum answer_end why, const char *rest, size_t n, const struct answer_counts *c,
                     const struct err *e)
{
    struct heard *h = ctx;
    (void)rest, (void)n, (void)e;
    h->ended++;
    h->why = why;
    h->prompt = c->prompt;
}

/* Twice as many as there are sequences, in few rows, over ranks, from pages that hold two of them. A prompt that ends
 * with the text's end is not given another. */
static void answer_all(struct written_case *c, struct decoding *d)
{
    struct tokenizer *words = open_words();
    struct batching *a = batching_new(d, words);
    struct heard heard[3 * TEXTS] = {{.n = 0}};
    struct err e = {0};
    int64_t id;
    for (int i = 0; i < 3 * TEXTS; i++) {
        const struct text *t = &c->text[i % TEXTS];
        struct answer_spec s = {.ids = t->prompt,
                                .n = t->n,
                                .max_tokens = NEW - i % 3,
                                .sample = {.top_p = 1},
                                .top = 0,
                                .past_end = true,
                                .token = hear,
                                .end = hear_end,
                                .ctx = &heard[i]};
        if (batching_add(a, &s, &id, &e)) fail_msg("%s", e.text);
        s.tell_prompt = true;
        assert_int_equal(batching_add(a, &s, &id, &e), ERR_REQUEST);
        assert_contains(e.text, "an encoder reads it");
    }
    for (int step = 0; batching_writing(a) + batching_waiting(a); step++) {
        if (batching_step(a, &e)) fail_msg("%s", e.text);
        assert_true(step < 3 * TEXTS * (NEW + 2));
    }
    for (int i = 0; i < 3 * TEXTS; i++) {
        const struct text *t = &c->text[i % TEXTS];
        assert_true(heard[i].ended == 1 && heard[i].why == ANSWER_LENGTH && heard[i].n == NEW - i % 3 &&
                    heard[i].prompt == t->n);
        for (int j = 0; j < heard[i].n; j++) {
            assert_int_equal(heard[i].id[j], t->said[j]);
            near(heard[i].logprob[j], t->logprob[j], "answer", i * 100 + j);
        }
    }
    batching_free(a);
    tokenizer_free(words);
    assert_int_equal(decoding_pages_left(d), decoding_pages(d));
}

static void test_answers(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct written_case c;
        open_case(&c, k);
        size_t page = 2 * (size_t)CACHE_PAGE * 3 * 21 * sizeof(float); /* of three layers, 3 heads of 7 */
        struct decoding *d = open_decoding(&c, 5, 3, 9 * page);
        assert_int_equal(decoding_pages(d), 9);
        answer_all(&c, d);
        decoding_free(d);
        close_case(&c);
    }
}

struct shared {
    struct written_case c;
    int tp;
};

static int run_rank(struct comm *world, void *arg, struct err *e)
{
    struct shared *x = arg;
    struct decoding_ranks ranks;
    struct decoding *d;
    struct weights *w;
    struct device *dev;
    int rc = decoding_ranks_init(&ranks, world, x->tp, 1, e);
    if (!rc) rc = weights_open(&w, GOLDEN "t5_v11", e);
    if (!rc) rc = device_cpu_new(&dev, 1, e);
    if (rc) return rc;
    ranks_device(&ranks.ranks, dev);
    struct decoding_options o =
        {.threads = 1, .dtype = DT_F32, .sequences = 3, .rows = 8, .positions = MOST, .ranks = &ranks};
    rc = decoding_new(&d, w, dev, &o, e);
    if (!rc && ranks.leads) answer_all(&x->c, d);
    else if (!rc) rc = decoding_follow(d, e);
    decoding_free(d);
    device_free(dev);
    weights_close(w);
    decoding_ranks_fini(&ranks);
    return rc;
}

static void test_ranks(void **state)
{
    (void)state;
    struct comm_config config = {.timeout_s = 60};
    struct err e = {0};
    struct shared x = {.tp = 2};
    open_case(&x.c, 1);
    if (comm_run_local(2, &config, run_rank, &x, &e)) fail_msg("%s", e.text);
    close_case(&x.c);
}

/* ---- the likeliest text ---- */
/* One beam is the likeliest token each time; of several the log-probability is that of the tokens, fed one by one. */
static void test_beams(void **state)
{
    (void)state;
    struct written_case c;
    struct err e = {0};
    open_case(&c, 1);
    struct tokenizer *words = open_words();
    struct decoding *d = open_decoding(&c, 4, 16, 0);
    int64_t vocab = decoding_model(d)->vocab;
    const struct text *t = &c.text[2];
    for (int beams = 1; beams <= 4; beams += 3) {
        struct beam_options o = {.beams = beams, .length_penalty = 1, .max_tokens = 9};
        struct beam_text x = {0};
        double sum = 0;
        const float *logits;
        int32_t before = decoding_start(d);
        if (beam_text(d, words, t->prompt, t->n, &o, &x, &e)) fail_msg("%s", e.text);
        assert_int_equal(decoding_pages_left(d), decoding_pages(d));
        int s = decoding_open(d);
        assert_int_equal(decoding_read(d, s, NULL, t->prompt, t->n, &e), OK);
        for (int64_t j = 0; j < x.ids.n; j++) {
            if (decoding_step(d, &(struct decoding_part){s, &before, 1, 1}, 1, &logits, &e)) fail_msg("%s", e.text);
            before = x.ids.ids[j];
            sum += logprob_in(logits, vocab, before);
            if (beams == 1) assert_int_equal(before, t->said[j]);
        }
        decoding_close(d, s);
        near(x.logprob, sum, "beams", beams);
        beam_text_free(&x);
    }
    tokenizer_free(words);
    decoding_free(d);
    close_case(&c);
}

/* ---- a text ---- */
static bool keep(void *ctx, const char *text, size_t n)
{
    str_add(ctx, text, n);
    return true;
}

/* The prompt's end is put behind it, once, and what is written ends where the model's end comes. */
static void test_text(void **state)
{
    (void)state;
    struct written_case c;
    struct err e = {0};
    struct str text = {0};
    const float *logits;
    open_case(&c, 0);
    struct tokenizer *t = tokenizer_new_byte();
    struct decoding *d = open_decoding(&c, 1, 16, 0);
    int32_t prompt[] = {65, 12, 7}, start = 0, big = 61;
    struct generator *g;
    struct generate_result r;
    struct sample_spec spec = {.top_p = 1};
    int s = decoding_open(d);
    assert_int_equal(decoding_read(d, s, NULL, prompt, 3, &e), ERR_REQUEST);
    assert_contains(e.text, "token 65 is not below the model's vocabulary of 61");
    assert_int_equal(decoding_read(d, s, t, prompt + 1, 2, &e), ERR_REQUEST); /* the end of its text is 256 */
    assert_contains(e.text, "token 256 is not below");
    assert_int_equal(decoding_read(d, s, NULL, prompt + 1, 0, &e), ERR_REQUEST);
    int32_t *many = xcalloc(MOST + 1, sizeof *many);
    assert_int_equal(decoding_read(d, s, NULL, many, MOST + 1, &e), ERR_REQUEST);
    assert_contains(e.text, "there is room for 64 positions");
    assert_int_equal(decoding_read(d, s, NULL, many, MOST, &e), OK);
    assert_int_equal(decoding_step(d, &(struct decoding_part){s, &big, 1, 1}, 1, &logits, &e), ERR_REQUEST);
    assert_int_equal(decoding_step(d, &(struct decoding_part){s, &start, 1, 1}, 1, &logits, &e), OK);
    decoding_close(d, s);
    assert_int_equal(decoding_pages_left(d), decoding_pages(d));
    assert_int_equal(generator_on(&g, d, &e), OK);
    assert_int_equal(generator_speculate(g, NULL, 2, &e), ERR_REQUEST);
    assert_contains(e.text, "is an encoder with a decoder (t5)");
    assert_int_equal(generate(g, t, "x", 5, &spec, keep, &text, &r, &e), ERR_REQUEST);
    struct tokenizer *words = open_words();
    struct str said = {0}, asked = {0};
    for (int64_t i = 0; i < c.text[1].n; i++) str_printf(&asked, "%sw%d", i ? " " : "", c.text[1].prompt[i]);
    for (int j = 0; j < 6; j++) str_printf(&said, "%sw%d", j ? " " : "", c.text[1].said[j]);
    for (int again = 0; again < 2; again++) { /* the second text, of another prompt's pages, is as the first */
        str_clear(&text);
        assert_int_equal(generate(g, words, str_text(&asked), 6, &spec, keep, &text, &r, &e), OK);
        assert_string_equal(str_text(&text), str_text(&said));
        assert_true(r.tokens == 6 && r.prompt_tokens == c.text[1].n && !strcmp(r.stopped, "length"));
        assert_int_equal(generate(g, words, "w5 w6 w7", 3, &spec, keep, &text, &r, &e), OK);
    }
    generator_free(g);
    xfree(many);
    str_free(&text);
    str_free(&said);
    str_free(&asked);
    tokenizer_free(words);
    tokenizer_free(t);
    decoding_free(d);
    close_case(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_by_steps), cmocka_unit_test(test_forks),
                                       cmocka_unit_test(test_answers),  cmocka_unit_test(test_ranks),
                                       cmocka_unit_test(test_beams),    cmocka_unit_test(test_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
