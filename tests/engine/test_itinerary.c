/* SPDX-License-Identifier: Apache-2.0 */
/* The paper between schedule and executor: one use of a buffer at a time, messages received in the order they are sent,
 * no circle of waiting, and layers dealt over stages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/itinerary.h"
#include "engine/stages.h"

enum { MAX = 128 };

static struct schedule *make_rounds(const char *kind, int p, int m, int v, int round)
{
    struct schedule *s;
    struct err e = {0};
    if (schedule_generate(&s, kind, p, m, v, round, &e)) fail_msg("%s: %s", kind, e.text);
    if (p > 1) schedule_add_comm(s);
    return s;
}

static struct schedule *make(const char *kind, int p, int m, int v) { return make_rounds(kind, p, m, v, 0); }

static int uses(const struct schedule *s, int rank, struct stage_use *use)
{
    int n = 0;
    for (int i = 0; i < s->n_stages; i++)
        if (schedule_has_stage(s, rank, i))
            use[n++] = (struct stage_use){.stage = i, .in_until = PHASE_W, .dout_until = PHASE_W};
    return n;
}

/* Follows what each buffer holds: a RUN must find its own input there, written once and not overwritten. */
static void check_contents(const struct schedule *s, const struct itinerary *t, int rank)
{
    struct action holds[MAX] = {{0}};
    bool full[MAX] = {false}, busy[MAX] = {false}; /* something to read; a message under way */
    assert_true(t->n_keep + t->n_send <= MAX);
    for (int64_t i = 0; i < t->n; i++) {
        const struct step *x = &t->step[i];
        struct action a = x->a;
        switch (x->kind) {
        case STEP_POST:
            assert_true(x->buffer < t->n_keep && !busy[x->buffer]);
            holds[x->buffer] = a;
            busy[x->buffer] = true;
            full[x->buffer] = false;
            break;
        case STEP_ARRIVE:
            assert_true(busy[x->buffer] && action_equal(holds[x->buffer], a));
            busy[x->buffer] = false;
            full[x->buffer] = true;
            break;
        case STEP_CLEAR:
            assert_true(x->buffer >= t->n_keep);
            busy[x->buffer] = false;
            break;
        case STEP_SEND:
            assert_true(x->buffer >= t->n_keep && full[x->buffer] && !busy[x->buffer]);
            busy[x->buffer] = true;
            full[x->buffer] = false;
            break;
        default:
            if (x->in >= 0) {
                assert_true(full[x->in] && !busy[x->in] && holds[x->in].microbatch == a.microbatch);
                assert_int_equal(holds[x->in].stage, a.stage);
            }
            if (x->dout >= 0) assert_true(full[x->dout] && !busy[x->dout] && holds[x->dout].microbatch == a.microbatch);
            const int out[] = {x->out, x->din}, to[] = {a.stage + 1, a.stage - 1};
            for (int k = 0; k < 2; k++) {
                if (out[k] < 0) continue;
                assert_true(!busy[out[k]]);
                holds[out[k]] = action_of(k ? ACTION_RECV_B : ACTION_RECV_F, to[k], a.microbatch);
                full[out[k]] = true;
            }
            assert_true(a.kind != ACTION_F || (x->in >= 0) == (a.stage > 0));
            assert_true(a.kind != ACTION_F || (x->out >= 0) == (a.stage + 1 < s->n_stages));
        }
    }
    (void)rank;
}

static const struct {
    const char *kind;
    int p, m, v, round;
} all[] = {{"naive", 3, 4, 2, 0},       {"gpipe", 4, 6, 1, 0},       {"1f1b", 4, 9, 1, 0},
           {"interleaved", 3, 6, 3, 0}, {"zbh1", 4, 9, 1, 0},        {"interleaved", 4, 7, 2, 0},
           {"interleaved", 4, 9, 3, 5}, {"interleaved", 4, 7, 2, 2}, {"interleaved", 3, 2, 2, 0},
           {"zbh2", 3, 8, 1, 0},        {"zbv", 4, 9, 2, 0},         {"zbv", 1, 3, 2, 0},
           {"dualpipe", 4, 8, 1, 0},    {"dualpipe", 6, 14, 1, 0},   {"dualpipev", 4, 8, 2, 0},
           {"gpipe", 2, 40, 2, 0},      {"onestage", 1, 5, 1, 0}};

/* Slabs are as many as the checker says; no generator needs more buffers for sending than it is given. */
static void test_generators(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int forward = 0; forward < 2; forward++) {
            struct schedule *s = make_rounds(all[i].kind, all[i].p, all[i].m, all[i].v, all[i].round);
            struct schedule_peak peak[16];
            struct err e = {0};
            if (forward) {
                struct schedule *f = schedule_new_forward(s);
                schedule_free(s);
                s = f;
                if (s->n_ranks > 1) schedule_add_comm(s);
            }
            if (schedule_check(s, peak, &e)) fail_msg("%s: %s", all[i].kind, e.text);
            int sends = itinerary_choose_sends(s, 1);
            assert_true(sends >= 1 && sends <= (strcmp(all[i].kind, "gpipe") ? 5 : 32));
            for (int r = 0; r < s->n_ranks; r++) {
                struct stage_use use[MAX];
                struct itinerary t;
                int n = uses(s, r, use);
                itinerary_init(&t, s, r, NULL, NULL, use, n, sends);
                if (!forward) {
                    assert_int_equal(t.act[0], peak[r].activations);
                    assert_int_equal(t.wgrad[0], peak[r].both);
                }
                assert_true(t.n_send <= sends);
                check_contents(s, &t, r);
                itinerary_fini(&t);
            }
            schedule_free(s);
        }
}

static struct schedule *parse(const char *text)
{
    struct schedule *s;
    struct err e = {0};
    if (schedule_parse(&s, text, "test", &e)) fail_msg("%s", e.text);
    return s;
}

/* Rank 1 wants its messages in another order than rank 0 sends them: it receives them in rank 0's order all the
 * same. */
static void test_other_order(void **state)
{
    (void)state;
    struct schedule *s = parse("schedule mine ranks 2 stages 2 microbatches 3\nplace 0 1\n"
                               "rank 0: 0F0 0F1 0F2 0BW0 0BW1 0BW2\n"
                               "rank 1: 1F2 1F0 1F1 1BW2 1BW1 1BW0\n");
    schedule_add_comm(s);
    assert_int_equal(schedule_check(s, NULL, NULL), OK);
    struct stage_use use[MAX];
    struct itinerary t;
    itinerary_init(&t, s, 1, NULL, NULL, use, uses(s, 1, use), itinerary_choose_sends(s, 1));
    int order[3], n = 0;
    for (int64_t i = 0; i < t.n; i++)
        if (t.step[i].kind == STEP_POST) order[n++] = t.step[i].a.microbatch;
    assert_int_equal(n, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(order[i], i);
    assert_int_equal(t.n_keep, 3);
    check_contents(s, &t, 1);
    itinerary_fini(&t);
    itinerary_init(&t, s, 0, NULL, NULL, use, uses(s, 0, use), itinerary_choose_sends(s, 1));
    n = 0;
    for (int64_t i = 0; i < t.n; i++)
        if (t.step[i].kind == STEP_POST) order[n++] = t.step[i].a.microbatch;
    for (int i = 0; i < 3; i++) assert_int_equal(order[i], 2 - i); /* as rank 1 sends them */
    check_contents(s, &t, 0);
    itinerary_fini(&t);
    schedule_free(s);
}

/* With one buffer for sending, both ranks would wait for each other: found on paper, and more are given. */
static void test_circle_of_sends(void **state)
{
    (void)state;
    static const int stages[2][2] = {{0, 2}, {1, 3}};
    struct schedule *s = schedule_new("mine", 2, 4, 8);
    for (int r = 0; r < 2; r++) {
        for (int k = 0; k < 2; k++)
            for (int m = 0; m < 8; m++) schedule_push(s, r, action_of(ACTION_F, stages[r][k], m));
        for (int k = 1; k >= 0; k--)
            for (int m = 0; m < 8; m++) schedule_push(s, r, action_of(ACTION_BW, stages[r][k], m));
    }
    schedule_add_comm(s);
    assert_int_equal(schedule_check(s, NULL, NULL), OK);
    int sends = itinerary_choose_sends(s, 1);
    assert_true(sends > 1 && sends <= 8);
    schedule_free(s);
}

/* ---- layers over stages ---- */
static struct model_config model(int layers, int64_t vocab)
{
    return (struct model_config){.family = MODEL_LLAMA,
                                 .layers = layers,
                                 .hidden = 64,
                                 .heads = 4,
                                 .kv_heads = 4,
                                 .head_dim = 16,
                                 .ffn = 172,
                                 .vocab = vocab,
                                 .max_positions = 32};
}

static void expect_split(int layers, int64_t vocab, int n_stages, const char *want)
{
    struct model_config c = model(layers, vocab);
    struct model_stage part[MAX];
    struct err e = {0};
    struct str t = {0};
    if (stages_split(part, n_stages, &c, 32, NULL, 0, &e)) str_printf(&t, "%s", e.text);
    for (int i = 0; !e.code && i < n_stages; i++) {
        str_printf(&t, "%s%d", i ? " " : "", part[i].end - part[i].first);
        assert_true(part[i].embeds == (i == 0) && part[i].heads == (i == n_stages - 1));
        assert_int_equal(part[i].first, i ? part[i - 1].end : 0);
    }
    assert_string_equal(str_text(&t), want);
    str_free(&t);
}

static void test_split(void **state)
{
    (void)state;
    expect_split(8, 4, 4, "2 2 2 2");
    expect_split(30, 4, 4, "8 8 7 7");
    expect_split(30, 3200, 4, "9 8 8 5"); /* a head as dear as four layers */
    expect_split(5, 4, 3, "2 2 1");
    expect_split(4, 100000, 3, "2 2 0"); /* the last stage has enough to do with the head */
    expect_split(1, 4, 1, "1");
    expect_split(5, 4, 7, "0 1 1 1 1 1 0"); /* the ends may be empty, no others */
    expect_split(5, 4, 6, "1 1 1 1 1 0");
    expect_split(1, 4, 2, "1 0");
    expect_split(3, 4, 6,
                 "3 layers are too few for 6 stages, of which only the first (embedding) and the last (head) may have "
                 "none; choose at most 5 stages");
    struct model_config llama = model(126, 4); /* Llama 3 405B on 16 ranks with 8 stages each */
    struct model_stage stage[128];
    struct err why = {0};
    assert_int_equal(stages_split(stage, 128, &llama, 32, NULL, 0, &why), OK);
    for (int s = 0; s < 128; s++) assert_int_equal(stage[s].end - stage[s].first, s > 0 && s < 127);
    struct model_config some = model(6, 4); /* three plain layers, then three of eight times the width for each token */
    struct model_stage half[2];
    some.moe.experts = 16;
    some.moe.top_k = 8;
    some.moe.ffn = some.ffn;
    some.moe.first_dense = 3;
    assert_int_equal(stages_split(half, 2, &some, 32, NULL, 0, &why), OK);
    assert_int_equal(half[0].end, 4);
    struct model_config c = model(5, 4);
    struct model_stage part[4];
    struct err e = {0};
    assert_int_equal(stages_split(part, 3, &c, 32, (int64_t[]){0, 5, 0}, 3, &e), OK);
    assert_true(part[1].first == 0 && part[1].end == 5 && part[2].heads);
    assert_int_equal(stages_split(part, 3, &c, 32, (int64_t[]){1, 2}, 2, &e), ERR_REQUEST);
    assert_int_equal(stages_split(part, 3, &c, 32, (int64_t[]){1, 2, 3}, 3, &e), ERR_REQUEST);
    assert_int_equal(stages_split(part, 4, &c, 32, (int64_t[]){1, 0, 3, 1}, 4, &e), ERR_REQUEST);
}

/* A tied embedding is held by both ends, everything by both directions of dualpipe. */
static void test_holders(void **state)
{
    (void)state;
    struct model_config c = model(4, 4);
    c.tie_embeddings = true;
    struct param_table t = {0};
    struct model_stage part[4];
    int out[4];
    struct err e = {0};
    model_declare(&c, NULL, &t);
    assert_int_equal(stages_split(part, 4, &c, 32, NULL, 0, &e), OK);
    struct schedule *s = make("1f1b", 4, 8, 1), *d = make("dualpipe", 4, 8, 1);
    const struct param *embed = &t.p[param_find(&t, "embed.token")],
                       *norm = &t.p[param_find(&t, "layers.1.norm1.weight")];
    assert_int_equal(stages_holders(s, part, &c, embed, out), 2);
    assert_true(out[0] == 0 && out[1] == 3);
    assert_int_equal(stages_holders(s, part, &c, norm, out), 1);
    assert_int_equal(out[0], 1);
    assert_int_equal(stages_holders(d, part, &c, norm, out), 2);
    assert_true(out[0] == 1 && out[1] == 2);
    schedule_free(s);
    schedule_free(d);
    param_table_free(&t);
}

/* The dry run costs as much as there are actions: four times the ranks, four times as long (once sixteen, and more).
 * Processor time. */
static double dry_run_s(int ranks)
{
    struct schedule *s;
    struct err e = {0};
    double least = 1e9;
    if (schedule_generate(&s, "1f1b", ranks, 256, 0, 0, &e)) fail_msg("%s", e.text);
    schedule_add_comm(s);
    for (int i = 0; i < 3; i++) {
        clock_t from = clock();
        assert_true(itinerary_choose_sends(s, 4) > 0);
        double took = (double)(clock() - from) / CLOCKS_PER_SEC;
        least = took < least ? took : least;
    }
    schedule_free(s);
    return least;
}

static void test_dry_run_is_linear(void **state)
{
    (void)state;
    double one = dry_run_s(32), four = dry_run_s(128);
    if (four > 9 * one) fail_msg("32 ranks take %.4f s, 128 take %.4f s", one, four);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generators), cmocka_unit_test(test_other_order), cmocka_unit_test(test_circle_of_sends),
        cmocka_unit_test(test_split),      cmocka_unit_test(test_holders),     cmocka_unit_test(test_dry_run_is_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
