/* SPDX-License-Identifier: Apache-2.0 */
/* Generators against the published figures: bubbles and memory as formulas, small cases as text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"
#include "schedule/schedule.h"

#define MAX_RANKS 16

struct figures {
    struct schedule_timeline t;
    struct schedule_peak peak[MAX_RANKS];
};

static struct schedule *make_rounds(const char *kind, int p, int m, int v, int round)
{
    struct schedule *s;
    struct err e = {0};
    if (schedule_generate(&s, kind, p, m, v, round, &e)) fail_msg("%s: %s", kind, e.text);
    return s;
}

static struct schedule *make(const char *kind, int p, int m, int v) { return make_rounds(kind, p, m, v, 0); }

static struct figures measure_rounds(const char *kind, int p, int m, int v, int round, struct schedule_cost c)
{
    struct schedule *s = make_rounds(kind, p, m, v, round);
    struct figures f = {0};
    struct err e = {0};
    if (schedule_check(s, f.peak, &e)) fail_msg("%s p %d m %d v %d round %d: %s", kind, p, m, v, round, e.text);
    struct schedule_timeline t;
    schedule_simulate(s, &c, &t);
    f.t = t;
    f.t.at = NULL; /* the figures only */
    schedule_timeline_fini(&t);
    schedule_free(s);
    return f;
}

static struct figures measure(const char *kind, int p, int m, int v, struct schedule_cost c)
{
    return measure_rounds(kind, p, m, v, 0, c);
}

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-9 * (1 + fabs(want))) fail_msg("got %.12g, wanted %.12g", got, want);
}

static const struct schedule_cost costs[] = {{1, 1, 1, 0, NULL, NULL, 0},
                                             {2, 3, 1, 0, NULL, NULL, 0},
                                             {1, 2, 0.5, 0, NULL, NULL, 0},
                                             {3, 1, 1, 0, NULL, NULL, 0}};
enum { N_COSTS = sizeof costs / sizeof costs[0] };

/* (p-1)/m for both; the difference is memory. */
static void test_gpipe_and_1f1b(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 20; m++)
            for (int k = 0; k < N_COSTS; k++) {
                struct figures g = measure("gpipe", p, m, 1, costs[k]), o = measure("1f1b", p, m, 1, costs[k]);
                near(g.t.bubble_ratio, (double)(p - 1) / m);
                near(o.t.bubble_ratio, (double)(p - 1) / m);
                near(o.t.ideal, m * (costs[k].f + costs[k].b + costs[k].w));
                for (int r = 0; r < p; r++) {
                    assert_int_equal(g.peak[r].activations, m);
                    assert_int_equal(o.peak[r].activations, p - r < m ? p - r : m);
                    assert_int_equal(o.peak[r].wgrads, 0);
                }
            }
}

/* (p-1)/(v m), and p (1 + (p-1)/(p v)) microbatches of a whole rank on the first one. */
static void test_interleaved(void **state)
{
    (void)state;
    for (int p = 1; p <= 6; p++)
        for (int v = 2; v <= 4; v++)
            for (int rounds = 1; rounds <= 4; rounds++)
                for (int k = 0; k < N_COSTS; k++) {
                    int m = rounds * p;
                    struct figures f = measure("interleaved", p, m, v, costs[k]);
                    near(f.t.bubble_ratio, (double)(p - 1) / (v * m));
                    for (int r = 0; r < p; r++) {
                        int want = 2 * (p - 1 - r) + (v - 1) * p + 1;
                        assert_int_equal(f.peak[r].activations, want < m * v ? want : m * v);
                    }
                    if (rounds > 1) near((double)f.peak[0].activations / v, p * (1 + (p - 1.0) / (p * v)));
                }
}

static void expect_text(const char *kind, int p, int m, int v, const char *want)
{
    struct schedule *s = make(kind, p, m, v);
    struct str t = {0};
    schedule_print(s, &t);
    assert_string_equal(str_text(&t), want);
    str_free(&t);
    schedule_free(s);
}

static int min(int a, int b) { return a < b ? a : b; }

/* Any number of microbatches in rounds of any size. No round shorter than p: the bubble is (p-1)/(v m), which nothing
 * can be below. A last round of n < p: besides at most the time of the p - n places that nobody takes, in each chunk.
 * Memory is that of whole rounds, (v-1) N + 2(p-1-r) + 1 stages on rank r, and never more. */
static void test_rounds(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int v = 2; v <= 4; v++)
            for (int m = 1; m <= 24; m++)
                for (int size = 1; size <= m; size++) {
                    struct schedule_cost c = costs[(p + v + m + size) % N_COSTS];
                    struct figures f = measure_rounds("interleaved", p, m, v, size, c);
                    double step = (c.f + c.b + c.w) / v; /* forward and backward of a stage */
                    int last = m % size ? m % size : size, missing = last < p ? p - last : 0;
                    double least = fmax((p - 1) * step, (p * v + m - 1) * step - f.t.ideal);
                    near(f.t.ideal, m * v * step);
                    double idle = f.t.makespan - f.t.ideal;
                    if (size < p && m > size)
                        missing = (m / size) * (p - size) + (m % size ? missing : 0); /* in every round */
                    assert_true(idle >= least - 1e-9 && idle <= (p - 1 + v * missing) * step + 1e-9);
                    if (!missing) near(f.t.bubble_ratio, (double)(p - 1) / (v * m));
                    if (m <= p && size == m)
                        near(f.t.makespan, (p * v + m - 1) * step); /* a microbatch and m-1 behind it */
                    for (int r = 0; r < p; r++) {
                        int most = min(m * v, 2 * (p - 1 - r) + (v - 1) * (size > p ? size : p) + 1);
                        assert_true(f.peak[r].activations <= most);
                        if (size >= p && m >= 2 * size) assert_int_equal(f.peak[r].activations, most);
                        assert_int_equal(f.peak[r].wgrads, 0);
                    }
                }
}

/* Without a word rounds are as long as the pipeline, and what is asked for is what is made. */
static void test_default_round(void **state)
{
    (void)state;
    for (int p = 1; p <= 6; p++)
        for (int m = 1; m <= 13; m++) {
            struct schedule *a = make("interleaved", p, m, 2), *b = make_rounds("interleaved", p, m, 2, min(p, m));
            struct schedule *all = make_rounds("interleaved", p, m, 2, m);
            assert_true(schedule_equal(a, b));
            if (p > 1) assert_true(schedule_equal(a, all) == (m <= p));
            schedule_free(a);
            schedule_free(b);
            schedule_free(all);
        }
    expect_text("interleaved", 2, 3, 2,
                "schedule interleaved ranks 2 stages 4 microbatches 3\nplace 0 1 0 1\n"
                "rank 0: 0F0 0F1 2F0 2F1 0F2 2BW0 2BW1 2F2 0BW0 0BW1 2BW2 0BW2\n"
                "rank 1: 1F0 1F1 3F0 3BW0 3F1 3BW1 1F2 1BW0 1BW1 3F2 3BW2 1BW2\n");
}

static void test_naive(void **state)
{
    (void)state;
    for (int p = 1; p <= 5; p++)
        for (int m = 1; m <= 5; m++) {
            struct figures f = measure("naive", p, m, 1, costs[1]);
            near(f.t.makespan, 6.0 * p * m);
            assert_int_equal(f.peak[0].activations, 1);
        }
}

static void test_zero_bubble(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 4 * p; m++) {
            struct figures h1 = measure("zbh1", p, m, 1, costs[0]), h2 = measure("zbh2", p, m, 1, costs[0]);
            struct figures v = measure("zbv", p, m, 2, costs[0]);
            if (m <= p) { /* too few to fill: all the zero-bubble schedules take the same time */
                near(h1.t.makespan, 2.0 * (m + p - 1) + 1);
                near(h2.t.makespan, 2.0 * (m + p - 1) + 1);
            } else {
                near(h1.t.makespan - h1.t.ideal, p - 1); /* (p-1)(F+B-W) */
            }
            if (m >= 2 * p) {
                near(h2.t.period_bubble_ratio, 0); /* (p-1)(F+B-2W) */
                near(v.t.period_bubble_ratio, 0);
            }
            for (int r = 0; r < p; r++) {
                if (m >= p) assert_int_equal(h1.peak[r].activations, p - r);
                assert_true(h1.peak[r].both <= p);
                if (m >= 2 * p) {
                    assert_int_equal(h2.peak[r].activations, 2 * (p - r) - 1);
                    assert_int_equal(v.peak[r].activations, 2 * p); /* halves: p microbatches, on every rank */
                }
                assert_true(h2.peak[r].both <= 2 * p - 1 && v.peak[r].both <= 2 * p);
            }
        }
}

/* The published bubble counts a forward and a backward side by side as one block; apart they do no worse. */
static void test_dualpipe(void **state)
{
    (void)state;
    for (int p = 2; p <= 8; p += 2)
        for (int m = 2 * p; m <= 4 * p; m += 2)
            for (int k = 0; k < 2; k++) {
                struct schedule_cost c = costs[k];
                double both = c.f + c.b + c.w, published = both + c.b + c.w - 3 * c.w;
                struct figures d = measure("dualpipe", p, m, 1, c), v = measure("dualpipev", p, m, 2, c);
                assert_true(d.t.makespan - d.t.ideal <= (p / 2 - 1) * published + 1e-9);
                assert_true(v.t.makespan - v.t.ideal <= (p - 1) * published / 2 + 1e-9);
                assert_true(d.t.bubble_ratio < (p - 1.0) / m); /* better than 1f1b */
                if (k == 0) { /* F = B = W, a forward hidden behind the backward beside it: F&B + B - 3W = 1 */
                    near(d.t.makespan - d.t.ideal, p / 2 - 1);
                    near(v.t.makespan - v.t.ideal, (p - 1) / 2.0);
                }
                for (int r = 0; r < p; r++) {
                    assert_int_equal(d.peak[r].activations, p + 1);
                    assert_int_equal(v.peak[r].activations, 2 * p + 1);
                }
            }
}

/* A message costs GPipe one latency per hop down and one per hop back. */
static void test_latency(void **state)
{
    (void)state;
    for (int p = 1; p <= 6; p++) {
        struct figures f = measure("gpipe", p, 7, 1, (struct schedule_cost){1, 1, 1, 0.25, NULL, NULL, 0});
        near(f.t.makespan, 3.0 * (7 + p - 1) + 2 * 0.25 * (p - 1));
    }
}

static void test_golden(void **state)
{
    (void)state;
    expect_text("1f1b", 2, 3, 1,
                "schedule 1f1b ranks 2 stages 2 microbatches 3\nplace 0 1\n"
                "rank 0: 0F0 0F1 0BW0 0F2 0BW1 0BW2\n"
                "rank 1: 1F0 1BW0 1F1 1BW1 1F2 1BW2\n");
    expect_text("interleaved", 2, 2, 2,
                "schedule interleaved ranks 2 stages 4 microbatches 2\nplace 0 1 0 1\n"
                "rank 0: 0F0 0F1 2F0 2F1 2BW0 2BW1 0BW0 0BW1\n"
                "rank 1: 1F0 1F1 3F0 3BW0 3F1 3BW1 1BW0 1BW1\n");
    expect_text("zbh1", 2, 3, 1,
                "schedule zbh1 ranks 2 stages 2 microbatches 3\nplace 0 1\n"
                "rank 0: 0F0 0F1 0B0 0W0 0F2 0B1 0W1 0B2 0W2\n"
                "rank 1: 1F0 1B0 1F1 1B1 1W0 1F2 1B2 1W1 1W2\n");
    expect_text("zbv", 1, 2, 2,
                "schedule zbv ranks 1 stages 2 microbatches 2\nplace 0 0\n"
                "rank 0: 0F0 1F0 1B0 1W0 0F1 0B0 0W0 1F1 1B1 1W1 0B1 0W1\n");
    expect_text("dualpipe", 2, 4, 1,
                "schedule dualpipe ranks 2 stages 2 microbatches 4 way_from 2\nplace 0 1\nplace 1 0\n"
                "rank 0: 0F0 1F2 0F1 1BW2 1F3 0BW0 1BW3 0B1 0W1\n"
                "rank 1: 0F2 1F0 0F3 1BW0 1F1 0BW2 1BW1 0B3 0W3\n");
}

static void test_onestage(void **state)
{
    (void)state;
    for (int split = 0; split < 2; split++)
        for (int m = 1; m < 40; m += 7) {
            struct schedule *s = schedule_new_onestage(m, split);
            struct schedule_peak peak;
            schedule_add_moves(s, (struct schedule_moves){.reduce = true});
            assert_int_equal(schedule_check(s, &peak, NULL), OK);
            assert_int_equal(peak.both, 1);
            assert_int_equal(peak.activations, 1);
            assert_int_equal(peak.wgrads, split);
            assert_int_equal(s->rank[0].n, (split ? 3 : 2) * m + 1);
            assert_int_equal(s->rank[0].a[s->rank[0].n - 1].kind, ACTION_REDUCE);
            schedule_free(s);
        }
}

static void expect_refusal(const char *kind, int p, int m, int v, const char *want)
{
    struct schedule *s;
    struct err e = {0};
    assert_int_equal(schedule_generate(&s, kind, p, m, v, 0, &e), ERR_REQUEST);
    assert_null(s);
    assert_string_equal(e.text, want);
}

static void expect_round_refusal(const char *kind, int p, int m, int round, const char *want)
{
    struct schedule *s;
    struct err e = {0};
    assert_int_equal(schedule_generate(&s, kind, p, m, 0, round, &e), ERR_REQUEST);
    assert_null(s);
    assert_string_equal(e.text, want);
}

static void test_refusals(void **state)
{
    (void)state;
    expect_refusal("chimera", 2, 2, 0,
                   "no schedule 'chimera'; there are onestage, naive, gpipe, 1f1b, interleaved, zbh1, zbh2, zbv, "
                   "dualpipe, dualpipev");
    expect_refusal("interleave", 2, 2, 0,
                   "no schedule 'interleave'; did you mean 'interleaved'?; there are onestage, naive, gpipe, 1f1b, "
                   "interleaved, zbh1, zbh2, zbv, dualpipe, dualpipev");
    expect_round_refusal("interleaved", 4, 6, 7,
                         "interleaved: rounds of 7 microbatches, and there are 6; choose 1 to 6");
    expect_round_refusal("1f1b", 4, 6, 4,
                         "1f1b: rounds of 4 microbatches; it has no rounds, only interleaved has; choose 0");
    expect_refusal("1f1b", 4, 6, 2, "1f1b: 2 chunks per rank; choose 1");
    expect_refusal("dualpipe", 3, 6, 0, "dualpipe: 3 stages; the two directions need an even number: choose 2 or 4");
    expect_refusal("dualpipe", 4, 6, 0, "dualpipe: 6 microbatches on 4 stages; choose 8 or more");
    expect_refusal("onestage", 2, 6, 0, "onestage runs on 1 rank, not 2; choose 1f1b");
    expect_refusal("gpipe", 2, 0, 0, "gpipe: 2 stages, 0 microbatches: choose 1 or more");
    expect_refusal("gpipe", 1 << 20, 1, 0, "1048576 pipeline ranks: choose 1 to 4096");
}

/* The pictures show every action that computes, once; the JSON says what the figures are. */
static void test_pictures(void **state)
{
    (void)state;
    struct schedule *s = make("zbv", 2, 5, 0);
    struct schedule_peak peak[2];
    struct schedule_timeline t;
    struct str svg = {0}, json = {0}, text = {0};
    schedule_add_comm(s);
    assert_int_equal(schedule_check(s, peak, NULL), OK);
    schedule_simulate(s, &(struct schedule_cost){1, 1, 1, 0, NULL, NULL, 0}, &t);
    schedule_svg(s, &t, &svg);
    int boxes = 0;
    for (const char *p = str_text(&svg); (p = strstr(p, "<title>")); p++) boxes++;
    assert_int_equal(boxes, 3 * 4 * 5);
    assert_true(str_ends(str_text(&svg), "</svg>\n"));

    schedule_json(s, &t, peak, &json);
    struct json *root;
    struct err e = {0};
    if (json_parse(&root, str_text(&json), json.n, "json", &e)) fail_msg("%s", e.text);
    assert_string_equal(json_string(json_get(root, "kind"), NULL, ""), "zbv");
    assert_int_equal(json_int(json_get(root, "stages"), 0), 2);
    assert_int_equal(json_int(json_get(root, "microbatches"), 0), 5);
    assert_int_equal(json_int(json_get(root, "chunks"), 0), 2);
    near(json_real(json_get(root, "ideal"), 0), 15);
    near(json_real(json_get(root, "makespan"), 0), t.makespan);
    near(json_real(json_get(root, "bubble_ratio"), -1), t.bubble_ratio);
    assert_int_equal(json_int(json_at(json_get(root, "peak_activations"), 1), 0), peak[1].activations);
    assert_int_equal(json_size(json_get(root, "actions")), 2);
    json_free(root);

    assert_int_equal(schedule_draw(s, &t, 20, &text), -1);
    assert_int_equal(text.n, 0);
    assert_int_equal(schedule_draw(s, &t, 300, &text), OK);
    int letters = 0;
    for (const char *p = str_text(&text); *p; p++) letters += *p == 'F' || *p == 'B' || *p == 'W';
    assert_int_equal(letters, 3 * 4 * 5);
    str_free(&svg);
    str_free(&json);
    str_free(&text);
    schedule_timeline_fini(&t);
    schedule_free(s);
}

/* The numbers of <text class="..."> in a picture; returns how many. */
static int numbers(const char *svg, const char *class, double *out, int room)
{
    char mark[32];
    int n = 0;
    snprintf(mark, sizeof mark, "class=\"%s\"", class);
    for (const char *p = svg; (p = strstr(p, mark)) && n < room; p++) out[n++] = strtod(strchr(p, '>') + 1, NULL);
    return n;
}

/* What ranks idle adds up to the bubble; the axis has few ticks, from 0 to the end or later; both are in the
 * picture. */
static void test_idle_and_axis(void **state)
{
    (void)state;
    static const double unit[] = {1e-9, 1, 0.37, 6e5};
    for (int k = 0; schedule_kind_name(k); k++)
        for (int u = 0; u < 4; u++) {
            int p = k ? 4 : 1, m = 8 + 4 * u;
            struct schedule *s = make(schedule_kind_name(k), p, m, 0);
            struct schedule_timeline t;
            struct str svg = {0};
            double tick[64], idle[64], sum = 0;
            schedule_simulate(s, &(struct schedule_cost){2 * unit[u], 3 * unit[u], unit[u], unit[u] / 4, NULL, NULL, 0},
                              &t);
            schedule_svg(s, &t, &svg);
            for (int r = 0; r < p; r++) sum += t.idle[r];
            near(sum / (p * t.ideal), t.bubble_ratio); /* every rank has the same work */
            near(t.idle_share, t.bubble_ratio / (1 + t.bubble_ratio));
            int n = numbers(str_text(&svg), "tick", tick, 64);
            assert_true(n >= 6 && n <= 18);
            for (int i = 0; i < n; i++) assert_true(fabs(tick[i] - i * tick[1]) < 1e-5 * tick[n - 1]);
            assert_true(tick[n - 1] >= t.makespan * (1 - 1e-5) && tick[n - 2] < t.makespan);
            assert_int_equal(numbers(str_text(&svg), "idle", idle, 64), p);
            for (int r = 0; r < p; r++) assert_true(fabs(idle[r] - 100 * t.idle[r] / t.makespan) <= 0.051);
            str_free(&svg);
            schedule_timeline_fini(&t);
            schedule_free(s);
        }
}

/* Ranks with unlike work idle unlike; a schedule that takes no time has a picture too. */
static void test_uneven_idle(void **state)
{
    (void)state;
    struct schedule *s;
    struct err e = {0};
    struct schedule_timeline t;
    struct str svg = {0};
    double idle[4];
    const char *text = "schedule mine ranks 2 stages 4 microbatches 1\nplace 0 1 1 1\nrank 0: 0F0 0BW0\n"
                       "rank 1: 1F0 2F0 3F0 3BW0 2BW0 1BW0\n";
    if (schedule_parse(&s, text, "text", &e)) fail_msg("%s", e.text);
    assert_int_equal(schedule_check(s, NULL, &e), OK);
    schedule_simulate(s, &(struct schedule_cost){1, 1, 1, 0, NULL, NULL, 0}, &t);
    near(t.idle[0] + t.ideal / 3, t.makespan); /* a third of the work of the other */
    near(t.idle[1], t.makespan - t.ideal);
    schedule_svg(s, &t, &svg);
    assert_int_equal(numbers(str_text(&svg), "idle", idle, 4), 2);
    assert_true(idle[0] > idle[1]);
    schedule_timeline_fini(&t);
    str_clear(&svg);
    schedule_simulate(s, &(struct schedule_cost){0, 0, 0, 0, NULL, NULL, 0}, &t);
    schedule_svg(s, &t, &svg);
    assert_true(str_ends(str_text(&svg), "</svg>\n") && !strstr(str_text(&svg), "nan"));
    schedule_timeline_fini(&t);
    str_free(&svg);
    schedule_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpipe_and_1f1b), cmocka_unit_test(test_interleaved),   cmocka_unit_test(test_naive),
        cmocka_unit_test(test_rounds),         cmocka_unit_test(test_default_round), cmocka_unit_test(test_zero_bubble),
        cmocka_unit_test(test_dualpipe),       cmocka_unit_test(test_latency),       cmocka_unit_test(test_golden),
        cmocka_unit_test(test_onestage),       cmocka_unit_test(test_refusals),      cmocka_unit_test(test_pictures),
        cmocka_unit_test(test_idle_and_axis),  cmocka_unit_test(test_uneven_idle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
