/* SPDX-License-Identifier: Apache-2.0 */
/* What a report reads and draws: damaged files, spikes among many points, hostile text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fs.h"
#include "said.h"
#include "report/chart.h"
#include "report/page.h"

static void put(const char *dir, const char *name, const char *text, size_t n)
{
    struct err e = {0};
    char *path = fs_join(dir, name);
    if (fs_write_atomic(path, text, n, &e)) fail_msg("%s", e.text);
    xfree(path);
}

static void reads_what_is_whole_and_counts_the_rest(void **state)
{
    (void)state;
    static const char text[] =
        "{\"step\":1,\"loss\":2.5,\"grad_norm\":1,\"lr\":0.1,\"tokens\":10,\"step_s\":2,\"peak_bytes\":7}\n"
        "{\"step\":2,\"loss\":null,\"grad_norm\":4,\"tokens\":20,\"step_s\":3,\"peak_bytes\":5}\n"
        "not json\n"
        "[1]\n"
        "{\"loss\":1}\n"
        "{\"step\":2,\"valid_loss\":3.5,\"tokens\":20}\n"
        "\n"
        "{\"step\":3,\"loss\":1.5,\"skipped\":1,\"tokens\":30,\"step_s\":1}\n"
        "{\"step\":4,\"loss\":1.2";
    struct history h;
    struct err e = {0};
    char *dir = scratch_new();
    assert_int_equal(history_read(&h, dir, &e), ERR_REQUEST);
    assert_contains(e.text, "is not the directory of a run");
    put(dir, "metrics.jsonl", text, sizeof text - 1);
    put(dir, "samples.jsonl",
        "{\"step\":2,\"prompt\":\"a\",\"text\":\"old\"}\n{\"step\":4,\"prompt\":\"a\",\"text\":\"gone\"}\n"
        "{\"step\":2,\"prompt\":\"a\",\"text\":\"new\"}\n",
        112);
    assert_int_equal(history_read(&h, dir, &e), OK);
    assert_int_equal(h.broken, 4); /* no JSON, no object, no step, cut short */
    assert_int_equal(h.not_finite, 1);
    assert_int_equal(h.steps, 3);
    assert_int_equal(h.tokens, 30);
    assert_int_equal(h.skipped, 1);
    assert_int_equal(h.peak_bytes, 7);
    assert_true(h.seconds == 6);
    assert_int_equal(h.curve[CURVE_LOSS].n, 2);
    assert_true(curve_last(&h.curve[CURVE_LOSS]) == 1.5 && h.curve[CURVE_LOSS].x[1] == 3);
    assert_true(curve_last(&h.curve[CURVE_VALID]) == 3.5 && curve_median(&h.curve[CURVE_GRAD_NORM]) == 2.5);
    assert_true(isnan(curve_last(&h.curve[CURVE_MFU])));
    assert_int_equal(h.n_samples, 1);
    assert_string_equal(h.sample[0].text, "new");
    history_free(&h);
    scratch_free(dir);
}

/* Any single byte of the file changed: it is read, and never more lines are lost than the byte touches. */
static void a_flipped_byte_costs_two_lines_at_most(void **state)
{
    (void)state;
    struct str text = {0};
    char *dir = scratch_new();
    for (int i = 1; i <= 5; i++) str_printf(&text, "{\"step\":%d,\"loss\":%d.25,\"lr\":1e-3}\n", i, i);
    for (size_t at = 0; at < text.n; at++) {
        struct history h;
        struct err e = {0};
        char was = text.p[at];
        text.p[at] = (char)(was ^ 0x15);
        put(dir, "metrics.jsonl", text.p, text.n);
        assert_int_equal(history_read(&h, dir, &e), OK);
        assert_true(h.curve[CURVE_LOSS].n >= 3);
        history_free(&h);
        text.p[at] = was;
    }
    str_free(&text);
    scratch_free(dir);
}

static void a_huge_line_is_passed_over(void **state)
{
    (void)state;
    struct history h;
    struct err e = {0};
    const size_t big = (size_t)17 << 20;
    struct str text = {0};
    char *dir = scratch_new();
    str_puts(&text, "{\"step\":1,\"loss\":1}\n");
    char *filler = xmalloc(big);
    memset(filler, 'x', big);
    str_add(&text, filler, big);
    str_puts(&text, "\n{\"step\":2,\"loss\":2}\n");
    put(dir, "metrics.jsonl", text.p, text.n);
    assert_int_equal(history_read(&h, dir, &e), OK);
    assert_int_equal(h.broken, 1);
    assert_int_equal(h.curve[CURVE_LOSS].n, 2);
    history_free(&h);
    xfree(filler);
    str_free(&text);
    scratch_free(dir);
}

static void ticks_are_round_and_inside(void **state)
{
    (void)state;
    for (int i = -40; i < 40; i++)
        for (int k = 1; k < 40; k++) {
            double t[12], lo = -0.37 * pow(1.7, i), hi = lo + pow(1.9, i) * k;
            int n = chart_ticks(lo, hi, t);
            if (!(hi > lo)) continue;
            assert_true(n >= 2 && n <= 12);
            double step = t[1] - t[0], digit = step / pow(10, floor(log10(step) + 1e-9));
            assert_true(fabs(digit - 1) < 1e-6 || fabs(digit - 2) < 1e-6 || fabs(digit - 5) < 1e-6 ||
                        fabs(digit - 10) < 1e-6);
            for (int j = 0; j < n; j++) assert_true(t[j] >= lo - 1e-6 * (hi - lo) && t[j] <= hi + 1e-6 * (hi - lo));
        }
    double t[12];
    assert_int_equal(chart_ticks(1, 1, t), 0);
}

/* Of 200,000 points one is a spike: the picture reaches its top, and is small. */
static void a_spike_among_many_points_is_drawn(void **state)
{
    (void)state;
    struct curve c = {.n = 200000};
    c.x = xmalloc(to_size(c.n) * sizeof *c.x);
    c.y = xmalloc(to_size(c.n) * sizeof *c.y);
    for (int64_t i = 0; i < c.n; i++) {
        c.x[i] = (double)i;
        c.y[i] = i == 123457 ? 100 : 1 + 0.001 * (double)(i % 7);
    }
    struct chart chart = {.title = "T", .unit = "", .n_lines = 1, .line = {{.name = "n", .curve = &c}}};
    struct str out = {0};
    chart_svg(&chart, &out);
    assert_true(out.n < 200000);
    double top = 1e9, x, y;
    for (const char *p = strstr(out.p, "points=\"") + 8; sscanf(p, "%lf,%lf ", &x, &y) == 2; p = strchr(p, ' ') + 1)
        if (y < top) top = y;
    assert_true(top < 34 + 0.05 * 230); /* the frame's upper edge and its margin */
    struct curve s = curve_smooth(&c, 0.9);
    assert_true(s.y[0] == c.y[0] && s.y[123457] > 10 && s.y[123457] < 11.1);
    curve_free(&s);
    curve_free(&c);
    str_free(&out);
}

static void odd_curves_make_no_nonsense(void **state)
{
    (void)state;
    double x[2] = {5, 5}, y[2] = {0, -3};
    static const int sizes[] = {0, 1, 2};
    for (int i = 0; i < 3; i++)
        for (int log_y = 0; log_y < 2; log_y++) {
            struct curve c = {.x = x, .y = y, .n = sizes[i]};
            struct chart chart = {.title = "T",
                                  .unit = "",
                                  .n_lines = 1,
                                  .log_y = log_y,
                                  .line = {{.name = "n", .curve = &c}}};
            struct str out = {0};
            chart_svg(&chart, &out);
            assert_true(!sizes[i] == !out.n);
            assert_null(strstr(str_text(&out), "nan"));
            assert_null(strstr(str_text(&out), "inf"));
            str_free(&out);
        }
}

/* Nothing that a run wrote becomes markup. */
static void hostile_text_stays_text(void **state)
{
    (void)state;
    static const char evil[] = "</pre><script>alert('1')</script>\"&";
    struct history_sample sample = {.step = 1, .prompt = evil, .text = evil};
    struct history_start start =
        {.time = evil, .host = evil, .cpu = evil, .version = evil, .transport = evil, .kernels = evil};
    struct history h = {.sample = &sample, .n_samples = 1, .start = &start, .n_starts = 1};
    struct page p = {.title = evil,
                     .model = evil,
                     .history = &h,
                     .config = evil,
                     .memory = {{evil, 1}},
                     .n_memory = 1,
                     .notes = {evil},
                     .n_notes = 1};
    struct str out = {0};
    page_html(&p, &out);
    assert_null(strstr(out.p, "<script"));
    assert_null(strstr(out.p, "alert('"));
    int n = 0;
    for (const char *q = out.p; (q = strstr(q, "&lt;/pre&gt;&lt;script&gt;alert(&#39;1&#39;)")); q++) n++;
    assert_int_equal(n, 2 + 1 + 2 + 6 + 1 + 1 + 1); /* title twice, model, sample, start, memory, note, config */
    str_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_is_whole_and_counts_the_rest),
        cmocka_unit_test(a_flipped_byte_costs_two_lines_at_most),
        cmocka_unit_test(a_huge_line_is_passed_over),
        cmocka_unit_test(ticks_are_round_and_inside),
        cmocka_unit_test(a_spike_among_many_points_is_drawn),
        cmocka_unit_test(odd_curves_make_no_nonsense),
        cmocka_unit_test(hostile_text_stays_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
