/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps board_queue tile_rate_registers exp expf log logf pow tanh sin cos sincos */
/* suite: unwatched sanitizers */
/* What ranks say to each other: every operation that a rank of a row of layouts.h asks a communicator for, in three
 * steps, an evaluation and the set-up before them: group, operation, numbers, type, sizes, what for, in the order of
 * each group. A change of how a step is carried out that sends other messages, or in another order, shows here even
 * where no number changes.
 *
 *   no argument     that a row says the same twice, that all ranks of a group say the same, that a change is seen (the
 * test) print           all rows' messages, for scripts/golden.sh against FILE    compare with such a print; a row that
 * it does not have is named, not compared
 */
#include <pthread.h>

#include "comm/board.h"
#include "golden/rows.h"

enum { SAID_STEPS = 3, MOST_RANKS = 8, MOST_GROUPS = 24 };

/* What one rank said on one group. */
struct said {
    char group[DESC_GROUP];
    struct str text;
    int64_t n;
};
static struct {
    pthread_mutex_t lock;
    struct said said[MOST_RANKS][MOST_GROUPS];
} heard = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct said *said_on(int rank, const char *group)
{
    for (int i = 0; i < MOST_GROUPS; i++) {
        struct said *s = &heard.said[rank][i];
        if (!s->group[0]) snprintf(s->group, sizeof s->group, "%s", group);
        if (!strcmp(s->group, group)) return s;
    }
    fail_msg("more than %d groups", MOST_GROUPS);
    return NULL;
}

int64_t __real_board_queue(struct board *b, int row, const struct desc *d);
int64_t __wrap_board_queue(struct board *b, int row, const struct desc *d);
int64_t __wrap_board_queue(struct board *b, int row, const struct desc *d)
{
    char text[DESC_TEXT];
    int rank = b->row[row].rank;
    assert_in_range(rank, 0, MOST_RANKS - 1);
    pthread_mutex_lock(&heard.lock);
    struct said *s = said_on(rank, d->group);
    s->n++;
    str_printf(&s->text, "%s counts %llx by %d\n", desc_print(text, d), (unsigned long long)d->counts, d->algorithm);
    pthread_mutex_unlock(&heard.lock);
    return __real_board_queue(b, row, d);
}

static int by_group(const void *a, const void *b)
{
    return strcmp(((const struct said *)a)->group, ((const struct said *)b)->group);
}

/* Everything heard, rank after rank, group after group; forgets it. */
static void tell_heard(struct str *out)
{
    for (int rank = 0; rank < MOST_RANKS; rank++) {
        struct said *s = heard.said[rank];
        int n = 0;
        while (n < MOST_GROUPS && s[n].group[0]) n++;
        qsort(s, (size_t)n, sizeof *s, by_group);
        for (int i = 0; i < n; i++) {
            str_printf(out, "rank %d %s: %lld\n%s", rank, s[i].group, (long long)s[i].n, str_text(&s[i].text));
            str_free(&s[i].text);
            s[i] = (struct said){0};
        }
    }
}

static void messages_of(const struct row *r, struct str *out)
{
    struct row_run x;
    row_begin(&x, r, NULL, SAID_STEPS);
    row_run(&x, r->name);
    row_end(&x);
    str_printf(out, "row %s\n", r->name);
    tell_heard(out);
}

static void all_messages(struct tables *t)
{
    for (int i = 0; i < N_ROWS; i++) {
        struct str s = {0};
        messages_of(&layout_rows[i], &s);
        judge(t, layout_rows[i].name, &s);
    }
}

/* The same row twice. */
static void test_the_same_twice(void **state)
{
    (void)state;
    for (int i = 0; i < N_ROWS; i++) {
        if (!drawn_here(i, 8)) continue;
        struct str once = {0}, again = {0};
        messages_of(&layout_rows[i], &once);
        messages_of(&layout_rows[i], &again);
        assert_string_equal(str_text(&once), str_text(&again));
        assert_true(layout_rows[i].ranks == 1 || strstr(str_text(&once), "\nrank 1 "));
        str_free(&once);
        str_free(&again);
    }
}

/* Ranks of a group say the same, but to whom an exchange goes. */
static void compare_ranks(const char *name)
{
    int compared = 0;
    for (int i = 0; i < MOST_GROUPS && heard.said[0][i].group[0]; i++) {
        const struct said *one = &heard.said[0][i], *two = said_on(1, one->group);
        if (!two->n || strstr(str_text(&one->text), "exchange")) continue;
        if (strcmp(str_text(&one->text), str_text(&two->text))) fail_msg("%s: ranks 0 and 1 of %s", name, one->group);
        compared++;
    }
    assert_true(compared > 0);
}

/* And a number of one message that is another is seen. */
static void test_what_is_said(void **state)
{
    (void)state;
    struct str s = {0}, other = {0};
    int i = 0;
    while (layout_rows[i].ranks != 2) i++;
    const char *name = layout_rows[i].name;
    struct row_run x;
    row_begin(&x, &layout_rows[i], NULL, SAID_STEPS);
    row_run(&x, name);
    row_end(&x);
    compare_ranks(name);
    str_printf(&s, "row %s\n", name);
    tell_heard(&s);
    str_puts(&other, str_text(&s));
    char *type = strstr(other.p, " f32)");
    assert_non_null(type);
    type[-1] = type[-1] == '1' ? '2' : '1';
    struct tables t = {.want = str_text(&s), .whole = true};
    judge(&t, name, &other);
    assert_int_equal(t.differ, 1);
    str_free(&s);
}

/* print, against FILE */
static int by_hand(int argc, char **argv)
{
    struct tables t = {0};
    char *table = argc > 2 ? read_table(argv[2]) : NULL;
    t.want = table;
    all_messages(&t);
    if (table) printf("%d rows' messages compared, %d differ\n", t.compared, t.differ);
    else printf("%s", str_text(&t.all));
    str_free(&t.all);
    xfree(table);
    return t.differ ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc > 1) return by_hand(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_twice),
        cmocka_unit_test(test_what_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
