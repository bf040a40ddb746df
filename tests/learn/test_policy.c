/* SPDX-License-Identifier: Apache-2.0 */
/* Learning by rewards, as numbers: advantages beside plain computations, a token's factor beside central differences of
 * its loss; and hooks that are asked: those that answer, and all that do not as they should. */
#include "toy.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "learn/policy.h"
#include "learn/reward.h"

static void advantages_are_by_group(void **state)
{
    (void)state;
    double reward[8] = {1, 3, 5, 7, 0.1, 0.1, 0.1, 0.1}, a[8];
    struct policy_rules r = {.low = 0.2, .high = 0.2};
    policy_advantages(&r, reward, 8, 4, a);
    double std = sqrt((9.0 + 1 + 1 + 9) / 3) + 1e-4;
    for (int i = 0; i < 4; i++) assert_true(fabs(a[i] - (reward[i] - 4) / std) < 1e-12);
    for (int i = 4; i < 8; i++) assert_true(a[i] == 0); /* also where the mean is not to the bit that number */
    r.plain_advantage = true;
    policy_advantages(&r, reward, 8, 4, a);
    for (int i = 0; i < 4; i++) assert_true(fabs(a[i] - (reward[i] - 4)) < 1e-12);
    policy_advantages(&r, reward, 8, 8, a);
    assert_true(fabs(a[0] - (1 - 16.4 / 8)) < 1e-12);
}

/* Equation 3 of the paper, as it is written, of one token with weight 1. */
static double plain(const struct policy_rules *r, double now, double old, double ref, double a)
{
    double ratio = exp(-now) / exp(-old), low = 1 - r->low, high = 1 + r->high, of = exp(-ref) / exp(-now);
    double held = ratio < low ? low : ratio > high ? high : ratio;
    double least = ratio * a < held * a ? ratio * a : held * a;
    return -(least - r->beta * (of - log(of) - 1));
}

static void factors_are_slopes(void **state)
{
    (void)state;
    static const double nats[][3] = {{1, 1, 1}, {0.7, 1, 1.3}, {1.5, 1, 0.2}, {0.9, 1, 2}, {1.1, 1, 1}, {3, 1, 1}};
    struct policy_rules rules[] = {{0.2, 0.2, 0, false, false, 0},
                                   {0.2, 0.28, 0.04, false, false, 0},
                                   {0.1, 0.5, 1, false, false, 0}};
    int clipped = 0;
    for (size_t q = 0; q < sizeof rules / sizeof *rules; q++)
        for (size_t i = 0; i < sizeof nats / sizeof *nats; i++)
            for (double a = -2; a <= 2; a += 1) {
                const struct policy_rules *r = &rules[q];
                struct policy_sums s = {0};
                struct policy_token t = {nats[i][0], nats[i][1], nats[i][2], a, 0.5};
                double got = policy_token(r, &t, &s), step = 1e-5,
                       slope = (plain(r, t.now + step, t.old, t.ref, a) - plain(r, t.now - step, t.old, t.ref, a)) /
                               (2 * step);
                assert_true(fabs(s.loss - 0.5 * plain(r, t.now, t.old, t.ref, a)) < 1e-12 && s.tokens == 1);
                if (fabs(got - 0.5 * slope) > 1e-8)
                    fail_msg("%zu %zu %g: %.12g, wanted %.12g", q, i, a, got, 0.5 * slope);
                clipped += (int)s.clipped;
            }
    assert_true(clipped > 5);
}

/* ---- hooks ---- */
static const char lines[] = "{\"answer\":\"a\"}\n{\"answer\":\"bb\"}\n{\"answer\":\"ccc\"}\n";

static int ask(const char *hook, double limit_s, int64_t tries, double reward[3], struct err *e)
{
    struct reward_hook h = {.hook = hook, .limit_s = limit_s, .tries = tries};
    *e = (struct err){0};
    return reward_ask(&h, lines, sizeof lines - 1, 3, reward, e);
}

static void hooks_that_answer(void **state)
{
    (void)state;
    static const char *const good[] = {
        "awk '{ print length($0) }'",
        "cat >/dev/null; printf ' 14\\r\\n\\n1.5e1\\n16.0'", /* spaces, an empty line, no last end */
        "printf '14\\n15\\n16\\n'",                          /* reads nothing */
        "cat >/dev/null; echo '[14, 15.0, 16]'",
    };
    struct err e;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        double r[3] = {0};
        if (ask(good[i], 600, 1, r, &e)) fail_msg("%s: %s", good[i], e.text);
        assert_true(r[0] == 14 && r[1] == 15 && r[2] == 16);
    }
}

static void hooks_that_do_not(void **state)
{
    (void)state;
    static const struct {
        const char *hook, *words;
    } bad[] = {
        {"echo 1; echo 2", "2 numbers, wanted 3"},
        {"echo 1; echo 2; echo 3; echo 4", "4 numbers, wanted 3"},
        {"echo 1; echo nan; echo 3", "line 2 is 'nan': wanted a finite number"},
        {"echo 1; echo inf; echo 3", "line 2 is 'inf'"},
        {"echo 1; echo 1e999; echo 3", "line 2 is '1e999'"},
        {"echo 1; echo; echo 2 3; echo 4", "line 3 is '2 3'"},
        {"echo 1; printf '\\033[31m\\n'", "line 2 is '?[31m'"},
        {"printf '1\\n2\\0\\n3\\n'", "line 2 is"},
        {"echo '[1, 2]'", "a list of 2 rewards, wanted 3"},
        {"echo '[1, 2, \"3\"]'", "reward 3 of the list"},
        {"echo '[1, 2'", "the list of rewards"},
        {":", "0 numbers, wanted 3"},
        {"echo 1; echo 2; echo 3; exit 3", "it exits with 3"},
        {"kill -9 $$", "it was ended by signal 9"},
        {"/no/such/command", "there is no such command"},
        {"yes 1", "it put out more than"},
    };
    struct err e;
    double r[3];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int rc = ask(bad[i].hook, 600, 1, r, &e);
        if (rc != ERR_IO || !strstr(e.text, bad[i].words)) fail_msg("%s: %d %s", bad[i].hook, rc, e.text);
    }
}

/* Its children end with it, and what it holds open keeps nobody waiting. */
static void hooks_that_hang(void **state)
{
    (void)state;
    static const char *const hang[] = {"sleep 1000", "cat >/dev/null; sleep 1000 & wait",
                                       "echo 1; echo 2; echo 3; exec >&-; sleep 1000", "trap '' TERM; sleep 1000"};
    struct err e;
    double r[3];
    for (size_t i = 0; i < sizeof hang / sizeof *hang; i++) {
        int rc = ask(hang[i], 0.1, 1, r, &e);
        if (rc != ERR_IO || !strstr(e.text, "no rewards in 0.1 s")) fail_msg("%s: %d %s", hang[i], rc, e.text);
    }
    atomic_int give_up = 1;
    struct reward_hook h = {.hook = "sleep 1000", .limit_s = 3600, .tries = 5, .pause_s = 3600, .give_up = &give_up};
    assert_int_equal(reward_ask(&h, lines, sizeof lines - 1, 3, r, &e), ERR_SIGNAL);
}

static void hooks_are_asked_again(void **state)
{
    (void)state;
    char file[] = "/tmp/tutti-reward-XXXXXX", hook[256];
    struct err e;
    double r[3] = {0};
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    close(fd);
    snprintf(hook, sizeof hook, "echo >>%s; [ $(wc -l <%s) = 3 ] && awk '{ print NR }'", file, file);
    if (ask(hook, 600, 3, r, &e)) fail_msg("%s", e.text);
    assert_true(r[0] == 1 && r[2] == 3);
    assert_int_equal(ask(hook, 600, 2, r, &e), ERR_IO);
    assert_contains(e.text, "each time it was asked");
    unlink(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(advantages_are_by_group), cmocka_unit_test(factors_are_slopes),
        cmocka_unit_test(hooks_that_answer),       cmocka_unit_test(hooks_that_do_not),
        cmocka_unit_test(hooks_that_hang),         cmocka_unit_test(hooks_are_asked_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
