/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder is read while ranks go on: what it prints of a rank is what that rank did, one operation after
 * the other up to one moment, however fast its ring of records turns meanwhile. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/str.h"
#include "comm/board.h"

enum { ROWS = 2, BUSY = 1, PRINTS = 60 };

struct shared {
    struct board *b;
    atomic_bool stop;
};

static void *goes_on(void *arg)
{
    struct shared *s = arg;
    struct desc d = {.op = COMM_BARRIER, .to = DESC_NOBODY, .from = DESC_NOBODY};
    snprintf(d.group, sizeof d.group, "world");
    snprintf(d.what, sizeof d.what, "step");
    while (!atomic_load(&s->stop)) {
        d.seq++;
        int64_t record = board_queue(s->b, BUSY, &d);
        board_mark(s->b, BUSY, record, RECORD_RUNNING);
        board_mark(s->b, BUSY, record, RECORD_DONE);
    }
    return NULL;
}

/* The records of the row: numbers that follow on each other, the last one the row's count. */
static void one_moment(const char *text)
{
    const char *p = strstr(text, "\nrank 1, the last ");
    long long n = 0, all = 0, seq, shown = 0;
    assert_non_null(p);
    assert_int_equal(sscanf(p, "\nrank 1, the last %lld of %lld", &n, &all), 2);
    assert_true(n == (all < BOARD_RECORDS ? all : BOARD_RECORDS));
    while ((p = strstr(p + 1, "barrier #"))) {
        seq = atoll(p + strlen("barrier #"));
        if (seq != all - n + ++shown) fail_msg("record %lld of %lld..%lld is #%lld", shown, all - n + 1, all, seq);
    }
    assert_int_equal(shown, n);
}

static void test_printed_meanwhile(void **state)
{
    (void)state;
    struct shared s = {.b = xcalloc(1, board_bytes(ROWS))};
    pthread_t thread;
    board_init(s.b, ROWS);
    assert_int_equal(pthread_create(&thread, NULL, goes_on, &s), 0);
    for (int i = 0; i < PRINTS; i++) {
        struct str text = {0};
        board_print(s.b, &text);
        one_moment(str_text(&text));
        str_free(&text);
        assert_int_equal(board_rank(s.b, BUSY), 1);
    }
    atomic_store(&s.stop, true);
    pthread_join(thread, NULL);
    xfree(s.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_printed_meanwhile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
