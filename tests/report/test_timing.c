/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a trace went, in traces small enough to be dealt out by hand; and files that are no traces. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "report/timing.h"

#define NEAR(got, want)                                                                                                \
    do {                                                                                                               \
        if (fabs((got) - (want)) > 1e-12)                                                                              \
            fail_msg("line %d: %.12g, not %.12g", __LINE__, (double)(got), (double)(want));                            \
    } while (0)

struct lines {
    struct str s;
};

static void begin(struct lines *l, int ranks, const int *pp)
{
    str_printf(&l->s,
               "[\n{\"name\":\"tutti.trace\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"version\":1,\"ranks\":%d,"
               "\"schedule\":\"\"}},\n",
               ranks);
    for (int r = 0; r < ranks; r++)
        str_printf(&l->s,
                   "{\"name\":\"tutti.rank\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"place\":\"pp "
                   "%d\",\"pp\":%d,\"clock_error_us\":2.5}},\n",
                   r, pp[r], pp[r]);
}

/* A box of whole microseconds on a rank. */
static void box(struct lines *l, int rank, const char *cat, int from, int to, const char *args)
{
    str_printf(&l->s,
               "{\"name\":\"n\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%d,\"dur\":%d,\"args\":{%s}},"
               "\n",
               cat, rank, strcmp(cat, "comm") ? 1 : 100, from, to - from, args);
}

static void end(struct lines *l)
{
    str_puts(&l->s, "{\"name\":\"tutti.end\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{}}\n]\n");
}

static void read_lines(struct timing *t, struct lines *l)
{
    struct err e = {0};
    if (timing_parse(t, str_text(&l->s), l->s.n, "trace", &e)) fail_msg("%s", e.text);
    str_free(&l->s);
}

static double sum_of(const struct timing_rank *r)
{
    double sum = 0;
    for (int k = 0; k < TIME_N; k++) sum += r->s[k];
    return sum;
}

/* One step of two ranks that meet: rank 1 comes at 60, bytes travel until 75; then rank 0 moves bytes and steps. */
static void meeting(struct lines *l, int pp1)
{
    const int pp[] = {0, pp1};
    *l = (struct lines){0};
    begin(l, 2, pp);
    box(l, 0, "step", 0, 100, "\"step\":7");
    box(l, 0, "forward", 5, 45, "\"action\":\"0F0\"");
    box(l, 0, "layer", 6, 44, "");
    box(l, 0, "kernel", 10, 40, "\"operation\":\"linear\",\"flops\":3000000");
    box(l, 0, "call", 20, 25, "\"why\":\"start\",\"group\":\"g\",\"ticket\":3");
    box(l, 0, "call", 50, 75, "\"why\":\"wait\",\"group\":\"g\",\"ticket\":3");
    box(l, 0, "optimizer", 80, 90, "");
    box(l, 0, "comm", 20, 75, "\"id\":\"g #1\",\"group\":\"g\",\"ticket\":3");
    box(l, 1, "comm", 60, 75, "\"id\":\"g #1\",\"group\":\"g\",\"ticket\":9");
    box(l, 1, "step", 0, 80, "\"step\":7");
    box(l, 1, "call", 60, 75, "\"why\":\"wait\",\"group\":\"g\",\"ticket\":9");
    end(l);
}

static void test_kinds(void **state)
{
    (void)state;
    for (int pp = 0; pp < 2; pp++) {
        struct lines l;
        struct timing t;
        meeting(&l, pp);
        read_lines(&t, &l);
        assert_int_equal(t.n_ranks, 2);
        assert_int_equal(t.first_step, 7);
        assert_int_equal(t.last_step, 7);
        assert_true(t.ended);
        NEAR(t.clock_error_s, 2.5e-6);
        const struct timing_rank *r = t.rank;
        NEAR(r[0].step_s, 100e-6);
        NEAR(r[0].s[TIME_COMPUTE], 35e-6); /* 30 of a kernel less 5 of a call, 10 of the optimizer */
        NEAR(r[0].s[TIME_EXPOSED], 20e-6); /* 5 to start, 15 when both were there */
        NEAR(r[0].s[pp ? TIME_BUBBLE : TIME_LATE], 10e-6);
        NEAR(r[0].s[pp ? TIME_LATE : TIME_BUBBLE], 0);
        NEAR(r[0].s[TIME_OTHER], 35e-6);
        NEAR(sum_of(&r[0]), r[0].step_s);
        NEAR(r[1].s[TIME_EXPOSED], 15e-6); /* the last one to come waits for nobody */
        NEAR(r[1].s[TIME_BUBBLE] + r[1].s[TIME_LATE], 0);
        NEAR(sum_of(&r[1]), 80e-6);
        NEAR(t.mean_s[TIME_F], 35e-6); /* of the action, the call in it left out */
        NEAR(t.window_s, 40e-6);
        assert_int_equal(t.n_operations, 1);
        NEAR(t.operation[0].s, 25e-6);
        NEAR(t.operation[0].flops, 3e6);
        timing_free(&t);
    }
}

/* A message is waited for by its receiver until it is sent; two that are waited for together: the later counts. */
static void test_messages(void **state)
{
    (void)state;
    const int pp[] = {0, 1};
    struct lines l = {0};
    struct timing t;
    begin(&l, 2, pp);
    box(&l, 0, "step", 0, 100, "\"step\":2");
    box(&l, 0, "call", 10, 90, "\"why\":\"wait\",\"group\":\"pp\",\"ticket\":1");
    box(&l, 0, "comm", 5, 90, "\"id\":\"pp, 1 to 0 #1\",\"group\":\"pp\",\"ticket\":1,\"direction\":\"receive\"");
    box(&l, 0, "comm", 5, 40, "\"id\":\"pp, 0 to 1 #1\",\"group\":\"pp\",\"ticket\":1,\"direction\":\"send\"");
    box(&l, 1, "step", 0, 100, "\"step\":2");
    box(&l, 1, "comm", 70, 90, "\"id\":\"pp, 1 to 0 #1\",\"group\":\"pp\",\"ticket\":4,\"direction\":\"send\"");
    box(&l, 1, "comm", 30, 40, "\"id\":\"pp, 0 to 1 #1\",\"group\":\"pp\",\"ticket\":2,\"direction\":\"receive\"");
    end(&l);
    read_lines(&t, &l);
    NEAR(t.rank[0].s[TIME_BUBBLE], 60e-6);
    NEAR(t.rank[0].s[TIME_EXPOSED], 20e-6);
    NEAR(sum_of(&t.rank[0]), 100e-6);
    timing_free(&t);
}

/* Steps that lost events are left out, those after them count. */
static void test_dropped(void **state)
{
    (void)state;
    const int pp[] = {0};
    struct lines l = {0};
    struct timing t;
    begin(&l, 1, pp);
    box(&l, 0, "step", 0, 100, "\"step\":2");
    box(&l, 0, "step", 200, 250, "\"step\":3");
    box(&l, 0, "kernel", 210, 220, "\"operation\":\"act\"");
    str_puts(&l.s, "{\"name\":\"tutti.collected\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"dropped\":12,\"complete_"
                   "from_us\":50}},\n");
    end(&l);
    read_lines(&t, &l);
    assert_int_equal(t.dropped, 12);
    assert_int_equal(t.left_out, 1);
    assert_int_equal(t.rank[0].steps, 1);
    NEAR(t.rank[0].step_s, 50e-6);
    NEAR(t.rank[0].s[TIME_COMPUTE], 10e-6);
    timing_free(&t);
}

/* Cut anywhere behind its first line, a trace is read as far as it goes. */
static void test_cut(void **state)
{
    (void)state;
    struct lines l;
    meeting(&l, 1);
    size_t first = (size_t)(strchr(strchr(str_text(&l.s), '\n') + 1, '\n') - str_text(&l.s));
    for (size_t n = 0; n < l.s.n; n++) {
        struct timing t;
        struct err e = {0};
        int rc = timing_parse(&t, str_text(&l.s), n, "cut", &e);
        if (n + 1 < first) {
            assert_int_equal(rc, ERR_REQUEST);
            continue;
        }
        if (rc) fail_msg("cut at %zu of %zu: %s", n, l.s.n, e.text);
        assert_true(t.broken <= 1);
        assert_true(t.ended == (n + 3 >= l.s.n - 1) || n + 8 > l.s.n);
        for (int r = 0; r < t.n_ranks; r++) NEAR(sum_of(&t.rank[r]), t.rank[r].step_s);
        timing_free(&t);
    }
    str_free(&l.s);
}

static void refuse(const char *text, enum err_code code, const char *words)
{
    struct timing t;
    struct err e = {0};
    assert_int_equal(timing_parse(&t, text, strlen(text), "file", &e), code);
    if (!strstr(e.text, words)) fail_msg("'%s' does not say '%s'", e.text, words);
}

static void test_refused(void **state)
{
    (void)state;
    refuse("", ERR_REQUEST, "empty");
    refuse("loss 3\n", ERR_REQUEST, "not a trace");
    refuse("[\n{\"name\":\"x\",\"ph\":\"X\"},\n]\n", ERR_REQUEST, "not a trace");
    refuse("[\n{\"name\":\"tutti.trace\",\"args\":{\"version\":1,\"ranks\":99999999999}},\n", ERR_REQUEST,
           "not a trace");
    refuse("[\n{\"name\":\"tutti.trace\",\"args\":{\"version\":2,\"ranks\":1}},\n", ERR_REQUEST, "version 2");
    const int pp[] = {0};
    struct lines l = {0};
    begin(&l, 1, pp);
    box(&l, 0, "step", 0, 100, "\"step\":2");
    box(&l, 0, "part", 50, 90, "");
    box(&l, 0, "part", 60, 99, "");
    refuse(str_text(&l.s), ERR_CORRUPT, "cross");
    str_free(&l.s);
    struct err e = {0};
    struct timing t;
    assert_int_equal(timing_read(&t, "/nonexistent/trace.json", &e), ERR_REQUEST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds), cmocka_unit_test(test_messages), cmocka_unit_test(test_dropped),
        cmocka_unit_test(test_cut),   cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
