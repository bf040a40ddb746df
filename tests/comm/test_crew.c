/* SPDX-License-Identifier: Apache-2.0 */
/* Members and seats of a crew, by what a transport says of who is gone: a spare takes the seat of a dead member and
 * nobody else moves, without one the others close up in their order; each death is told once; and the verdict is that
 * of the worst that anybody brought. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "comm/crew_impl.h"

enum { MOST = 8 };

/* What the transport finds at the end of an epoch. */
struct found {
    bool gone[MOST]; /* by member */
    int others;      /* flags that the others brought */
    int fails;       /* of the transport itself */
};

static int over(struct crew *c, int *flags, bool *gone, struct err *e)
{
    const struct found *f = c->shared;
    if (f->fails) return err_set(e, f->fails, "the transport failed");
    memcpy(gone, f->gone, (size_t)c->began);
    *flags &= f->others;
    return OK;
}

static const struct crew_ops ops = {.over = over};

static void seats(const struct crew *c, char *out)
{
    for (int s = 0; s < crew_size(c); s++) out += sprintf(out, "%d", crew_member(c, s));
    *out = 0;
}

/* An epoch of `at_work` ranks in which these members ("13") are gone by its end; what is told of it, and the seats. */
static void epoch(struct crew *c, struct found *f, int at_work, const char *gone, const char *want)
{
    struct err e = {0};
    enum crew_verdict v;
    const int *lost;
    int n, before = crew_epoch(c);
    char is[MOST + 1], told[MOST + 1] = "";
    f->others = 2; /* all go on, and are not done */
    for (const char *m = gone; *m; m++) f->gone[*m - '0'] = true;
    c->at_work = at_work;
    assert_int_equal(crew_over(c, ERR_LOST, &(struct err){.text = "rank 1 is gone"}, &v, &lost, &n, &e), OK);
    assert_int_equal(v, CREW_ON);
    for (int i = 0; i < n; i++) snprintf(told + i, 2, "%d", lost[i]);
    assert_string_equal(told, gone); /* those before are not told again */
    assert_string_equal(crew_cause(c), "rank 1 is gone");
    assert_int_equal(crew_epoch(c), before + 1);
    seats(c, is);
    assert_string_equal(is, want);
}

static void test_seats(void **state)
{
    (void)state;
    static const struct {
        int began, at_work;
        const char *gone[3], *seats[3];
        int then_at_work[3];
    } rows[] = {
        {5, 3, {"1"}, {"0324"}, {3}},                /* the first spare, to that very seat */
        {5, 3, {"1", "3"}, {"0324", "042"}, {3, 3}}, /* who sat there before does not matter */
        {6, 4, {"02"}, {"4153"}, {4}},               /* two at once: spares in their order */
        {6, 4, {"0125"}, {"43"}, {4}},               /* a spare too, and more than there are spares for */
        {4, 4, {"1"}, {"023"}, {4}},                 /* none: close up */
        {4, 3, {"3"}, {"012"}, {3}},                 /* a spare alone */
        {6, 3, {"4", "0", "1"}, {"01235", "3125", "352"}, {3, 3, 3}}, /* a spare that is gone is not seated */
        {3, 2, {"0", "1"}, {"21", "2"}, {2, 2}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct found f = {0};
        struct crew *c = crew_new(&ops, &f, rows[i].began - 1, rows[i].began);
        for (int k = 0; k < 3 && rows[i].gone[k]; k++)
            epoch(c, &f, rows[i].then_at_work[k], rows[i].gone[k], rows[i].seats[k]);
        crew_free(c);
    }
}

/* This member's seat moves with the others'. */
static void test_own_seat(void **state)
{
    (void)state;
    struct found f = {0};
    struct crew *c = crew_new(&ops, &f, 3, 4);
    assert_int_equal(crew_seat(c), 3);
    epoch(c, &f, 3, "0", "312");
    assert_int_equal(crew_seat(c), 0);
    assert_int_equal(crew_began(c), 4);
    assert_int_equal(crew_size(c), 3);
    crew_free(c);
}

static void test_verdicts(void **state)
{
    (void)state;
    enum { DONE = 1, ON = 2 };
    static const struct {
        int rc, others;
        enum crew_verdict v;
    } rows[] = {
        {OK, DONE | ON, CREW_DONE},
        {OK, ON, CREW_ON},
        {OK, 0, CREW_ENDS},
        {ERR_LOST, DONE | ON, CREW_ON},
        {ERR_LOST, ON, CREW_ON},
        {ERR_LOST, 0, CREW_ENDS},
        {ERR_IO, DONE | ON, CREW_ENDS},
        {ERR_REQUEST, ON, CREW_ENDS},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct found f = {.others = rows[i].others};
        struct crew *c = crew_new(&ops, &f, 0, 2);
        struct err e = {0}, why = {.text = "why"};
        enum crew_verdict v;
        const int *lost;
        int n;
        c->at_work = 2;
        assert_int_equal(crew_over(c, rows[i].rc, &why, &v, &lost, &n, &e), OK);
        if (v != rows[i].v) fail_msg("row %zu: verdict %d", i, (int)v);
        assert_int_equal(n, 0);
        assert_string_equal(crew_cause(c), rows[i].rc ? "why" : "");
        f.fails = ERR_STOPPED;
        assert_int_equal(crew_over(c, OK, &why, &v, &lost, &n, &e), ERR_STOPPED);
        crew_free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seats), cmocka_unit_test(test_own_seat),
                                       cmocka_unit_test(test_verdicts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
