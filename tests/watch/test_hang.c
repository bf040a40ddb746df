/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks grouped by where they are: whose stacks count as the same and whose do not, that each rank is in one group
 * whatever its process wrote of it, and which files of a folder belong together. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/mem.h"
#include "watch/hang_groups.h"
#include "scratch.h"

/* A process that is one rank: what it says that it does, and its frames, innermost first, split at spaces. */
static void put_rank(struct str *out, int rank, const char *doing, const char *frames)
{
    char text[400], *save;
    str_printf(out, "late\nprocess %d on host, 2026-01-01 00:00:00 UTC\n\nrank %d: %s\n\n", 100 + rank, rank, doing);
    str_printf(out, "thread %d 'helper': sleeps\n    poll (poll.c:3)\n    helper_main (helper.c:7)\n\n", 200 + rank);
    str_printf(out, "thread %d 'r%d' of rank %d: sleeps\n", 100 + rank, rank, rank);
    snprintf(text, sizeof text, "%s", frames);
    for (char *f = strtok_r(text, " ", &save); f; f = strtok_r(NULL, " ", &save))
        str_printf(out, HANG_FRAME "%s (%s.c:%d)\n", f, f, 10 + rank); /* another line on each rank */
    str_puts(out, "\n");
}

static void expect(struct hang_ranks *r, const char *want)
{
    struct str out = {0};
    hang_ranks_print(r, &out);
    if (strcmp(str_text(&out), want) != 0) fail_msg("'%s', wanted '%s'", str_text(&out), want);
    str_free(&out);
    hang_ranks_free(r);
}

static struct hang_ranks *of(const char *const (*rank)[2], int n)
{
    struct hang_ranks *r = hang_ranks_new();
    for (int i = 0; i < n; i++) {
        struct str text = {0};
        if (!rank[i][0]) continue;
        put_rank(&text, i, rank[i][0], rank[i][1]);
        hang_ranks_add(r, str_text(&text));
        str_free(&text);
    }
    return r;
}

/* What a rank does while it waits differs from look to look, and so do line numbers: neither parts a group. The frames
 * that are shown are those of its first rank. */
static void waiting_is_the_same_everywhere(void **state)
{
    (void)state;
    static const char *const ranks[][2] = {
        {"step 3; in sum", "poll_all progress comm_wait reduce trainer_rank main"},
        {"step 3; in sum", "comm_wait reduce trainer_rank thread_start"},
        {"step 4; computes", "gemm run_rows engine_step trainer_rank thread_start"},
        {"step 3; in max", "spin comm_status poll_one comm_wait reduce trainer_rank thread_start"},
    };
    expect(of(ranks, 4),
           "4 ranks in 2 places\n"
           "\nranks 0, 1, 3\n"
           "  rank 0: step 3; in sum\n"
           "  rank 3: step 3; in max\n"
           "    comm_wait (comm_wait.c:10)\n    reduce (reduce.c:10)\n    trainer_rank (trainer_rank.c:10)\n"
           "\nrank 2\n"
           "  rank 2: step 4; computes\n"
           "    gemm (gemm.c:12)\n    run_rows (run_rows.c:12)\n    engine_step (engine_step.c:12)\n"
           "    trainer_rank (trainer_rank.c:12)\n");
}

/* Who waits in the same call from elsewhere is elsewhere; so is who was called by another function further out, and
 * whose stack is the beginning of another's. */
static void another_way_is_another_place(void **state)
{
    (void)state;
    static const char *const ranks[][2] = {
        {"a", "comm_wait reduce loss trainer_rank main"},
        {"b", "comm_wait gather loss trainer_rank main"},
        {"c", "comm_wait reduce save trainer_rank main"},
        {"d", "comm_wait reduce loss"},
        {"e", "comm_wait_all reduce loss trainer_rank main"}, /* no function of those that wait */
        {"f", "comm_wait reduce prefetch_next loss trainer_rank main"},
        {"g", "comm_wait gather prefetch_next loss trainer_rank main"}, /* as f, from the outermost that waits on */
    };
    struct hang_ranks *r = of(ranks, 7);
    struct str out = {0};
    hang_ranks_print(r, &out);
    static const char *const has[] = {"7 ranks in 6 places\n",
                                      "\nranks 5, 6\n  rank 5: f\n  rank 6: g\n",
                                      "\nrank 0\n",
                                      "\nrank 1\n",
                                      "\nrank 2\n",
                                      "\nrank 3\n",
                                      "\nrank 4\n"};
    for (size_t i = 0; i < sizeof has / sizeof *has; i++)
        if (!strstr(str_text(&out), has[i])) fail_msg("no '%s' in '%s'", has[i], str_text(&out));
    str_free(&out);
    hang_ranks_free(r);
}

/* The larger group comes first, whatever its functions are called; ranks that follow each other are written as such. */
static void names_of_a_group(void **state)
{
    (void)state;
    static const char *const ranks[][2] = {
        {"x", "a trainer_rank"},
        {"x", "z trainer_rank"},
        {"x", "z trainer_rank"},
        {"x", "z trainer_rank"},
        {"x", "a trainer_rank"},
        {"x", "z trainer_rank"},
        {NULL, NULL},
        {"x", "z trainer_rank"},
        {"x", "z trainer_rank"},
    };
    expect(of(ranks, 9), "8 ranks in 2 places\n"
                         "\nranks 1-3, 5, 7, 8\n  rank 1: x\n    z (z.c:11)\n    trainer_rank (trainer_rank.c:11)\n"
                         "\nranks 0, 4\n  rank 0: x\n    a (a.c:10)\n    trainer_rank (trainer_rank.c:10)\n");
}

/* A rank whose stack nobody has is in the picture, and apart; of two looks at one the later one counts; frames of a
 * thread that is no rank's are nobody's. */
static void each_rank_once(void **state)
{
    (void)state;
    struct hang_ranks *r = hang_ranks_new();
    hang_ranks_add(r, "rank 1: it did not answer\n\nthread 7 'helper': sleeps\n    poll\n");
    hang_ranks_add(r, "rank 0: step 1\n\nthread 5 'r0' of rank 0: runs\n    before\n    trainer_rank\n    main\n");
    hang_ranks_add(r, "rank 0: step 2\n\nthread 5 'r0' of rank 0: runs\n    after\n    trainer_rank\n    main\n");
    hang_ranks_add(r, "rank 2: step 2\n\nthread 6 'r2' of rank 2: runs\n    after\n    trainer_rank\n");
    hang_ranks_add(r, "rank x: no number\nrank 99999999999: too large\nthread 9 'x' of rank : runs\n    nobody\n");
    expect(r, "3 ranks in 2 places\n"
              "\nranks 0, 2\n  rank 0: step 2\n    after\n    trainer_rank\n"
              "\nrank 1\n  rank 1: it did not answer\n    (no stack)\n");
}

static void put_file(const char *dir, const char *name, int rank, int64_t older_s)
{
    struct str text = {0};
    struct err e;
    char *path = fs_join(dir, name);
    put_rank(&text, rank, "x", "comm_wait trainer_rank");
    assert_int_equal(fs_write_atomic(path, text.p, text.n, &e), OK);
    struct timespec when[2] = {{.tv_sec = 1700000000 - older_s}, {.tv_sec = 1700000000 - older_s}};
    assert_int_equal(utimensat(AT_FDCWD, path, when, 0), 0);
    str_free(&text);
    xfree(path);
}

/* Of a folder: files of this hang, none of an earlier one, and none that has another name. */
static void files_of_one_hang(void **state)
{
    (void)state;
    char *dir = scratch_new();
    struct str out = {0};
    assert_false(hang_groups(dir, 60, &out));
    assert_int_equal(out.n, 0);
    put_file(dir, "stacks-rank0.txt", 0, 59);
    put_file(dir, "stacks-rank2.txt", 2, 0);
    put_file(dir, "stacks-rank11.txt", 11, 30);
    put_file(dir, "stacks-rank3.txt", 3, 61);
    put_file(dir, "stacks-rank4.txt.old", 4, 0);
    put_file(dir, "stacks.txt", 5, 0);
    assert_true(hang_groups(dir, 60, &out));
    if (!str_starts(str_text(&out), "3 ranks in 1 place\n\nranks 0, 2, 11\n")) fail_msg("%s", str_text(&out));
    str_free(&out);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiting_is_the_same_everywhere),
        cmocka_unit_test(another_way_is_another_place),
        cmocka_unit_test(names_of_a_group),
        cmocka_unit_test(each_rank_once),
        cmocka_unit_test(files_of_one_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
