/* SPDX-License-Identifier: Apache-2.0 */
/* Where texts end, with a model that has ends: its own, its tokenizer's, tokens that a request names. Each is made the
 * likeliest token of all by a bias, so that an answer is known to the token: an end is never drawn before min_tokens,
 * always at it; whoever goes past the end gets it as a token like any, from min_tokens on. */
#include "decode/written.h"

#include "decode/batching.h"

enum { VOCAB = 260, OWN = 3, STOP = 5, MOST = 12, AT_ONCE = 4 };

struct heard {
    int32_t ids[MOST];
    int n;
    bool ended;
    enum answer_end why;
    int64_t written;
};

static bool hear_token(void *ctx, const struct answer_token *t)
{
    struct heard *h = ctx;
    assert_true(h->n < MOST);
    h->ids[h->n++] = t->id;
    return true;
}

static void hear_end(void *ctx, enum answer_end why, const char *rest, size_t n, const struct answer_counts *c,
                     const struct err *e)
{
    struct heard *h = ctx;
    (void)rest, (void)n;
    if (why == ANSWER_FAILED) fail_msg("%s", e->text);
    h->ended = true;
    h->why = why;
    h->written = c->written;
}

struct world {
    struct written x;
    struct tokenizer *t;
    struct decoding *d;
    struct batching *a;
    int32_t end; /* the tokenizer's */
};

static void world_open(struct world *w)
{
    struct engine_config c = toy_config(MODEL_LLAMA, DT_F32);
    c.model.vocab = VOCAB;
    w->t = tokenizer_new_byte();
    w->end = tokenizer_eos(w->t);
    assert_true(w->end > STOP && w->end < VOCAB);
    written_open_ends(&w->x, c, 40, OWN);
    w->d = written_decoding(&w->x, AT_ONCE, 16, 0);
    w->a = batching_new(w->d, w->t);
}

static void world_close(struct world *w)
{
    batching_free(w->a);
    decoding_free(w->d);
    written_close(&w->x);
    tokenizer_free(w->t);
}

static bool ends(const struct world *w, int32_t id) { return id == OWN || id == w->end; }

static const int32_t prompt[] = {7, 8, 9}, stop_id[] = {STOP};

struct row {
    const struct answer_bias *bias;
    int n_bias;
    bool past, stops; /* stops: STOP ends it */
};

/* An answer of the row for each of so many min_tokens, at once: others beside it change nothing. */
static void answer_all(const struct world *w, const struct row *r, int first, double temperature, struct heard *h)
{
    for (int k = 0; k < AT_ONCE; k++) {
        int64_t id;
        struct err e = {0};
        h[k] = (struct heard){0};
        struct answer_spec s = {.ids = prompt,
                                .n = 3,
                                .max_tokens = MOST,
                                .min_tokens = first + k,
                                .sample = {.temperature = temperature, .top_p = 1, .seed = (uint64_t)k},
                                .bias = r->bias,
                                .n_bias = r->n_bias,
                                .stop_id = stop_id,
                                .n_stop_ids = r->stops,
                                .past_end = r->past,
                                .top = -1,
                                .token = hear_token,
                                .end = hear_end,
                                .ctx = &h[k]};
        if (batching_add(w->a, &s, &id, &e)) fail_msg("%s", e.text);
    }
    while (batching_writing(w->a) + batching_waiting(w->a)) {
        struct err e = {0};
        if (batching_step(w->a, &e)) fail_msg("%s", e.text);
    }
}

static void before_and_at_min_tokens(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    const struct answer_bias own[] = {{OWN, 1000}}, its[] = {{w.end, 1000}}, both[] = {{OWN, 1000}, {w.end, 2000}},
                             more[] = {{OWN, 2000}, {w.end, 1000}, {STOP, 3000}}, stop[] = {{STOP, 1000}};
    const struct row rows[] = {{own, 1, false, false},  {its, 1, false, false}, {both, 2, false, false},
                               {more, 3, false, true},  {stop, 1, false, true}, {stop, 1, true, true},
                               {own, 1, true, false},   {its, 1, true, false},  {both, 2, true, false},
                               {stop, 1, false, false}, {stop, 1, true, false}};
    struct heard heard[AT_ONCE];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int first = 0; first <= MOST; first += AT_ONCE)
            for (int hot = 0; hot < 2; hot++) {
                int last = first + AT_ONCE > MOST + 1 ? MOST - AT_ONCE + 1 : first;
                bool text = !rows[i].stops && rows[i].bias == stop, goes_on = rows[i].past && !rows[i].stops;
                answer_all(&w, &rows[i], last, hot ? 1.5 : 0, heard);
                for (int k = 0; k < AT_ONCE; k++) {
                    const struct heard *h = &heard[k];
                    int least = last + k, n = text || goes_on ? MOST : least;
                    assert_true(h->ended);
                    if (h->n != n || h->written != n)
                        fail_msg("row %zu, at least %d: %d tokens, %lld counted", i, least, h->n,
                                 (long long)h->written);
                    assert_int_equal(h->why, n == MOST ? ANSWER_LENGTH : ANSWER_END_OF_TEXT);
                    for (int j = 0; j < h->n; j++) {
                        bool end = ends(&w, h->ids[j]) || (rows[i].stops && h->ids[j] == STOP);
                        if (text ? h->ids[j] != STOP : end != (goes_on && j >= least))
                            fail_msg("row %zu, at least %d: token %d is %d", i, least, j, h->ids[j]);
                    }
                }
            }
    world_close(&w);
}

/* Nothing makes logits others than the wait for min_tokens: half of all tokens end the text, and each is as likely. */
static void without_a_bias(void **state)
{
    (void)state;
    enum { HALF = VOCAB / 2, SEEDS = 8 };
    struct world w;
    int32_t half[HALF];
    int64_t id, least_ended = 0;
    world_open(&w);
    for (int i = 0; i < HALF; i++) half[i] = 2 * i;
    for (int past = 0; past < 2; past++)
        for (int seed = 0; seed < SEEDS; seed++) {
            struct heard h = {0};
            struct err e = {0};
            struct answer_spec s = {.ids = prompt,
                                    .n = 3,
                                    .max_tokens = MOST,
                                    .min_tokens = 8,
                                    .sample = {.temperature = 1e3, .top_p = 1, .seed = (uint64_t)seed},
                                    .stop_id = half,
                                    .n_stop_ids = HALF,
                                    .past_end = past,
                                    .top = -1,
                                    .token = hear_token,
                                    .end = hear_end,
                                    .ctx = &h};
            if (batching_add(w.a, &s, &id, &e)) fail_msg("%s", e.text);
            while (!h.ended)
                if (batching_step(w.a, &e)) fail_msg("%s", e.text);
            assert_true(h.n >= 8);
            for (int j = 0; j < h.n; j++) assert_int_equal(h.ids[j] % 2, 1);
            least_ended += h.why == ANSWER_END_OF_TEXT;
        }
    assert_true(least_ended > SEEDS);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(before_and_at_min_tokens), cmocka_unit_test(without_a_bias)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
