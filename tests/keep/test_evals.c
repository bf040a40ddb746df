/* SPDX-License-Identifier: Apache-2.0 */
/* What evaluations come to: the best of them, how many were not better, a best one that could not be saved, and what a
 * checkpoint keeps of it, there and back; what it does not write is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/str.h"
#include "keep/evals.h"

static const struct evals_rules both = {.best = true, .patience = 2, .delta = 0.1};

static void counts_what_is_not_better(void **state)
{
    (void)state;
    struct evals x;
    evals_init(&x, &both);
    assert_true(evals_learn(&x, 10, 3.0));
    assert_true(evals_learn(&x, 20, 2.95)); /* better, by too little to go on for */
    assert_true(x.best.step == 20 && x.since == 1 && x.least == 3.0 && !evals_over(&x));
    assert_false(evals_learn(&x, 30, 2.95)); /* the earlier of two equal ones */
    assert_true(x.best.step == 20 && evals_over(&x));
    assert_true(evals_learn(&x, 40, 2.5));
    assert_true(x.since == 0 && !evals_over(&x));
    assert_false(evals_learn(&x, 50, NAN));
    assert_false(evals_learn(&x, 60, INFINITY));
    assert_true(evals_over(&x) && x.best.step == 40 && x.least == 2.5);
    evals_init(&x, &(struct evals_rules){.best = true});
    for (int i = 0; i < 100; i++) evals_learn(&x, i, 1.0 + i);
    assert_true(!evals_over(&x) && x.best.step == 0);
    evals_init(&x, &(struct evals_rules){.patience = 1});
    assert_false(evals_learn(&x, 10, 1.0));
    assert_int_equal(x.best.step, -1);
    assert_false(evals_over(&x));
}

static void one_that_is_not_saved_is_not_the_best(void **state)
{
    (void)state;
    struct evals x;
    evals_init(&x, &both);
    evals_learn(&x, 10, 3.0);
    evals_learn(&x, 20, 2.0);
    evals_unsaved(&x, 15);
    assert_int_equal(x.best.step, 20);
    evals_unsaved(&x, 20);
    assert_true(x.best.step == 10 && x.best.loss == 3.0 && x.least == 2.0);
    assert_true(evals_learn(&x, 30, 2.5));
    evals_learn(&x, 40, 2.4);
    evals_unsaved(&x, 30); /* the one before, while the next is being written */
    evals_unsaved(&x, 40);
    assert_int_equal(x.best.step, -1);
    evals_unsaved(&x, -1);
    assert_true(evals_learn(&x, 50, 9.0));
}

static void text_of(const struct evals *x, struct str *out)
{
    struct json_out o = {.s = out};
    json_begin_object(&o, NULL);
    evals_put(x, &o);
    json_end_object(&o);
}

static int read_back(struct evals *x, const char *text, struct err *e)
{
    struct json *v;
    assert_int_equal(json_parse(&v, text, strlen(text), "extra", e), OK);
    evals_init(x, &both);
    int rc = evals_take(x, v, "extra", e);
    json_free(v);
    return rc;
}

static void goes_there_and_back(void **state)
{
    (void)state;
    static const double losses[] = {NAN, 1.0 / 3, 0.3, 5};
    static const char *const bad[] = {"{\"best\":{\"step\":-2,\"valid_loss\":1}}",
                                      "{\"best\":{\"step\":3}}",
                                      "{\"best\":{\"step\":3,\"valid_loss\":\"x\"}}",
                                      "{\"best\":[]}",
                                      "{\"evaluations\":{\"step\":3}}",
                                      "{\"evaluations\":{\"step\":3,\"since\":-1}}",
                                      "{\"evaluations\":{\"step\":-3,\"since\":1}}",
                                      "{\"evaluations\":{\"step\":3,\"since\":1,\"least\":\"x\"}}",
                                      "{\"evaluations\":7}"};
    struct evals x, y;
    struct err e;
    evals_init(&x, &both);
    for (int i = 0; i < 5; i++) {
        struct str text = {0};
        text_of(&x, &text);
        assert_int_equal(read_back(&y, str_text(&text), &e), OK);
        assert_true(x.step == y.step && x.since == y.since && x.least == y.least && x.best.step == y.best.step &&
                    x.best.loss == y.best.loss);
        str_free(&text);
        if (i < 4) evals_learn(&x, 10 * i, losses[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_int_equal(read_back(&y, bad[i], &e), ERR_CORRUPT);
    assert_int_equal(read_back(&y, "{}", &e), OK);
    assert_true(y.step == -1 && y.best.step == -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_what_is_not_better),
        cmocka_unit_test(one_that_is_not_saved_is_not_the_best),
        cmocka_unit_test(goes_there_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
