/* SPDX-License-Identifier: Apache-2.0 */
/* Teams: every member runs once per job, barriers hold, splits cover, sleepers wake, teams are independent. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

static void splits_cover_and_are_even(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 50; n++)
        for (int k = 1; k < 12; k++) {
            int64_t at = 0;
            for (int i = 0; i < k; i++) {
                int64_t lo, hi;
                team_split(n, i, k, &lo, &hi);
                assert_int_equal(lo, at);
                assert_true(hi - lo == n / k || hi - lo == n / k + 1);
                at = hi;
            }
            assert_int_equal(at, n);
        }
}

struct job {
    int64_t slots[8]; /* one per member, written without any lock: a sanitizer sees a missing hand-over */
    int64_t rounds;
    struct team *team;
};

static void count(void *arg, int member, int n_members)
{
    struct job *j = arg;
    assert_true(member < n_members);
    j->slots[member]++;
}

static void every_member_runs_every_job(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        struct team *t = team_new(n);
        assert_int_equal(team_size(t), n);
        struct job j = {0};
        for (int i = 0; i < 2000; i++) {
            team_run(t, count, &j);
            for (int m = 0; m < n; m++) assert_int_equal(j.slots[m], i + 1); /* all are done on return */
        }
        clock_sleep_s(0.002); /* long enough for the workers to sleep */
        team_run(t, count, &j);
        for (int m = 0; m < n; m++) assert_int_equal(j.slots[m], 2001);
        team_free(t);
    }
    struct job j = {0};
    team_run(NULL, count, &j);
    assert_int_equal(j.slots[0], 1);
    assert_int_equal(team_size(NULL), 1);
    team_free(NULL);
}

/* Each round every member reads what all wrote in the round before. */
static void relay(void *arg, int member, int n_members)
{
    struct job *j = arg;
    for (int64_t r = 0; r < j->rounds; r++) {
        j->slots[member] = r;
        team_barrier(j->team);
        for (int m = 0; m < n_members; m++) assert_int_equal(j->slots[m], r);
        team_barrier(j->team);
    }
}

static void barriers_hold_everybody(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) {
        struct job j = {.rounds = 1000, .team = team_new(n)};
        team_run(j.team, relay, &j);
        team_free(j.team);
    }
}

static void *own_team(void *arg)
{
    struct job *j = arg;
    j->team = team_new(2);
    for (int i = 0; i < 500; i++) team_run(j->team, count, j);
    team_free(j->team);
    return NULL;
}

static void ranks_have_teams_of_their_own(void **state)
{
    (void)state;
    pthread_t ranks[4];
    struct job jobs[4] = {0};
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&ranks[i], NULL, own_team, &jobs[i]), 0);
    for (int i = 0; i < 4; i++) pthread_join(ranks[i], NULL);
    for (int i = 0; i < 4; i++) assert_true(jobs[i].slots[0] == 500 && jobs[i].slots[1] == 500);
}

static void note_name(void *arg, int member, int n_members)
{
    (void)n_members;
    thread_name_get(((char(*)[16])arg)[member]);
}

static void names_are_short_and_inherited(void **state)
{
    (void)state;
    char old[16], now[16], names[2][16];
    thread_name_get(old);
    thread_name_set("r%d s%d and much too long", 3, 120);
    thread_name_get(now);
    assert_string_equal(now, "r3 s120 and muc");
    struct team *t = team_new(2);
    team_run(t, note_name, names);
    team_free(t);
    assert_string_equal(names[1], "r3 w1");
    thread_name_set("%s", old);
}

static void cores_are_counted(void **state)
{
    (void)state;
    cpu_set_t was, one;
    CPU_ZERO(&one);
    assert_true(thread_n_cores() >= 1);
    assert_int_equal(sched_getaffinity(0, sizeof was, &was), 0);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &was)) CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(thread_n_cores(), 1);
    sched_setaffinity(0, sizeof was, &was);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_cover_and_are_even),     cmocka_unit_test(every_member_runs_every_job),
        cmocka_unit_test(barriers_hold_everybody),       cmocka_unit_test(ranks_have_teams_of_their_own),
        cmocka_unit_test(names_are_short_and_inherited), cmocka_unit_test(cores_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
