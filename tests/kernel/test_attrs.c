/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* Attributes say whose they are: who reads those of another row, or records, or runs a row with them, is ended, with
 * both names in the message. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernel/kernel.h"
#include "tape/tape.h"

#define READER(kind, name)                                                                                             \
    static void read_##name(const struct op_attrs *at) { (void)at_##name(at); }                                        \
    static void edit_it_##name(struct op_attrs *at) { (void)edit_##name(at); }
ATTRS_EACH(READER)
#undef READER

static const struct {
    void (*read)(const struct op_attrs *at);
    void (*edit)(struct op_attrs *at);
} readers[ATTRS_N] = {
#define ENTRY(kind, name) [ATTRS_##kind] = {read_##name, edit_it_##name},
    ATTRS_EACH(ENTRY)
#undef ENTRY
};

struct wrong {
    enum attrs_kind has, wanted; /* ATTRS_NONE in wanted: what is shared by collectives, then by attention */
    enum { READ, EDIT, OVER, HEADS, RECORD, RUN } how;
    enum op op;
};

static void record(enum op op, struct op_attrs at)
{
    struct tape *t = tape_new();
    tid in[KERNEL_MAX_IN];
    for (int i = 0; i < KERNEL_MAX_IN; i++)
        in[i] = tape_input(t, "x", i, DT_F32, 2, (int64_t[]){4, 4}, spmd_all(SPMD_I));
    tape_record(t, op, &at, op_row(op)->min_in, in, DT_N, "wrong");
}

static void commit(const struct wrong *x)
{
    struct op_attrs at = {.kind = x->has};
    struct kernel_table kt;
    switch (x->how) {
    case READ: readers[x->wanted].read(&at); break;
    case EDIT: readers[x->wanted].edit(&at); break;
    case OVER: (void)at_over(&at); break;
    case HEADS: (void)at_heads(&at); break;
    case RECORD: record(x->op, at); break;
    case RUN:
        kernel_table_init(&kt, "ref", 1, false, NULL);
        kernel_run(&kt, &(struct kernel_call){.op = x->op, .at = at});
        break;
    }
}

/* True: it ended as a bug of ours does; text is its message. */
static bool ends(const struct wrong *x, char text[1000])
{
    int fd[2], status;
    assert_int_equal(pipe(fd), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGABRT, SIG_DFL);
        dup2(fd[1], 2);
        commit(x);
        _exit(0);
    }
    close(fd[1]);
    size_t n = 0;
    for (ssize_t got; n < 999 && (got = read(fd[0], text + n, 999 - n)) > 0;) n += (size_t)got;
    text[n] = 0;
    close(fd[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void test_reading_another_rows_ends(void **state)
{
    (void)state;
    char text[1000], wanted[200];
    for (int has = 0; has < ATTRS_N; has++)
        for (int want = 1; want < ATTRS_N; want++) {
            enum attrs_kind h = (enum attrs_kind)has, w = (enum attrs_kind)want;
            struct op_attrs at = {.kind = h};
            if (has == want) {
                readers[want].read(&at);
                readers[want].edit(&at);
                continue;
            }
            if (!ends(&(struct wrong){h, w, (has + want) % 2 ? READ : EDIT, OP_N}, text))
                fail_msg("%s read as %s went on", attrs_kind_name(h), attrs_kind_name(w));
            snprintf(wanted, sizeof wanted, "attributes of %s were read as those of %s", attrs_kind_name(h),
                     attrs_kind_name(w));
            if (!strstr(text, wanted)) fail_msg("wanted '%s' in '%s'", wanted, text);
        }
}

static void test_what_several_share(void **state)
{
    (void)state;
    char text[1000];
    for (int has = 0; has < ATTRS_N; has++) {
        enum attrs_kind h = (enum attrs_kind)has;
        bool over = h == ATTRS_SUM || h == ATTRS_ROWS || h == ATTRS_DISPATCH || h == ATTRS_CONTEXT;
        bool heads = h == ATTRS_ATTENTION || h == ATTRS_ATTENTION_PART || h == ATTRS_CONTEXT;
        assert_int_equal(ends(&(struct wrong){.has = h, .how = OVER}, text), !over);
        assert_int_equal(ends(&(struct wrong){.has = h, .how = HEADS}, text), !heads);
    }
    struct op_attrs at = ATTRS(context, .over = {AXIS_CP, 3, 2}, .attention = {.heads = 5, .dropout.p = 0.5f});
    assert_true(at_over(&at)->part == 2 && at_heads(&at)->heads == 5 && at_dropout_p(&at) == 0.5f);
    at = ATTRS(attention_part, .attention = {.heads = 7, .dropout.p = 0.25f}, .parts = 3);
    assert_true(at_heads(&at)->heads == 7 && at_dropout_p(&at) == 0.25f);
    at = ATTRS(norm, .eps = 1);
    assert_true(at_dropout_p(&at) == 0);
}

/* No row is recorded or run with what another has. */
static void test_rows_take_their_own(void **state)
{
    (void)state;
    char text[1000];
    for (int i = 0; i < OP_N; i++) {
        enum op op = (enum op)i;
        enum attrs_kind own = op_row(op)->attrs, other = own == ATTRS_NORM ? ATTRS_ACT : ATTRS_NORM;
        assert_int_equal(op_attrs_zero(op).kind, own);
        assert_true(ends(&(struct wrong){.has = other, .how = RECORD, .op = op}, text));
        assert_non_null(strstr(text, op_row(op)->name));
        assert_non_null(strstr(text, attrs_kind_name(other)));
        if (op_row(op)->by != BY_KERNEL) continue;
        assert_true(ends(&(struct wrong){.has = other, .how = RUN, .op = op}, text));
        assert_non_null(strstr(text, attrs_kind_name(other)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reading_another_rows_ends),
        cmocka_unit_test(test_what_several_share),
        cmocka_unit_test(test_rows_take_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
