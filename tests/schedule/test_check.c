/* SPDX-License-Identifier: Apache-2.0 */
/* Passes, text and the checker: every schedule passes, nearly every damaged one does not, and a second opinion decides
 * which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "schedule/schedule.h"

struct dice {
    uint64_t seed, at;
};
static int roll(struct dice *d, int n) { return (int)(rng_u64(d->seed, 1, d->at++) % (uint64_t)n); }

/* ---- a second opinion: ranks with mailboxes, played by hand ------------------------------------------------- */

enum { BIG = 12 }; /* stages and microbatches of the damaged schedules stay below */

struct player {
    bool input[BIG][BIG], output_grad[BIG][BIG]; /* what has arrived for (stage, microbatch) */
    bool forward[BIG][BIG], backward[BIG][BIG], weight[BIG][BIG];
};

/* One rank tries its next action. 1: done, 0: must wait, -1: it makes no sense. `mail` is what is under way: [0]
 * activations for, [1] gradients for (stage, microbatch). */
static int play(const struct schedule *s, int rank, struct action a, struct player *all, bool mail[2][BIG][BIG])
{
    int g = a.stage, m = a.microbatch, last = s->n_stages - 1;
    struct player *me = &all[rank];
    if (schedule_rank_of(s, g, m) != rank) return -1;
    bool remote_before = g > 0 && schedule_rank_of(s, g - 1, m) != rank;
    bool remote_after = g < last && schedule_rank_of(s, g + 1, m) != rank;
    switch (a.kind) {
    case ACTION_F:
        if (me->forward[g][m]) return -1;
        if (g > 0 && !(remote_before ? me->input[g][m] : me->forward[g - 1][m])) return 0;
        return me->forward[g][m] = true;
    case ACTION_B:
    case ACTION_BW:
        if (me->backward[g][m]) return -1;
        if (!me->forward[g][m]) return 0;
        if (g < last && !(remote_after ? me->output_grad[g][m] : me->backward[g + 1][m])) return 0;
        if (a.kind == ACTION_BW && me->weight[g][m]) return -1;
        if (a.kind == ACTION_BW) me->weight[g][m] = true;
        return me->backward[g][m] = true;
    case ACTION_W:
        if (me->weight[g][m]) return -1;
        if (!me->backward[g][m]) return 0;
        return me->weight[g][m] = true;
    case ACTION_SEND_F:
        if (!remote_after || a.peer != schedule_rank_of(s, g + 1, m)) return -1;
        if (!me->forward[g][m]) return 0;
        if (mail[0][g + 1][m] || all[a.peer].input[g + 1][m]) return -1;
        return mail[0][g + 1][m] = true;
    case ACTION_SEND_B:
        if (!remote_before || a.peer != schedule_rank_of(s, g - 1, m)) return -1;
        if (!me->backward[g][m]) return 0;
        if (mail[1][g - 1][m] || all[a.peer].output_grad[g - 1][m]) return -1;
        return mail[1][g - 1][m] = true;
    case ACTION_RECV_F:
        if (!remote_before || a.peer != schedule_rank_of(s, g - 1, m) || me->input[g][m]) return -1;
        if (!mail[0][g][m]) return 0;
        mail[0][g][m] = false;
        return me->input[g][m] = true;
    case ACTION_RECV_B:
        if (!remote_after || a.peer != schedule_rank_of(s, g + 1, m) || me->output_grad[g][m]) return -1;
        if (!mail[1][g][m]) return 0;
        mail[1][g][m] = false;
        return me->output_grad[g][m] = true;
    default: return -1;
    }
}

/* Whether a lowered schedule runs to its end, leaves no mail and did everything. */
static bool plays(const struct schedule *s)
{
    struct player *all = xcalloc(to_size(s->n_ranks), sizeof *all);
    bool mail[2][BIG][BIG] = {{{false}}}, good = true;
    int64_t pc[BIG] = {0};
    for (bool moved = true; moved && good;) {
        moved = false;
        for (int r = 0; r < s->n_ranks && good; r++)
            if (pc[r] < s->rank[r].n) { /* one action at a time, round robin: not the checker's order */
                int what = play(s, r, s->rank[r].a[pc[r]], all, mail);
                good = what >= 0;
                pc[r] += what > 0;
                moved |= what > 0;
            }
    }
    for (int r = 0; r < s->n_ranks; r++) good &= pc[r] == s->rank[r].n;
    for (int g = 0; g < s->n_stages; g++)
        for (int m = 0; m < s->n_microbatches; m++)
            good &= !mail[0][g][m] && !mail[1][g][m] && all[schedule_rank_of(s, g, m)].weight[g][m];
    xfree(all);
    return good;
}

/* ---- all schedules ------------------------------------------------------------------------------------------ */

typedef void visit_fn(struct schedule *s, void *arg);

static void each_schedule(visit_fn *fn, void *arg)
{
    for (int k = 0; schedule_kind_name(k); k++)
        for (int p = 1; p <= 4; p++)
            for (int m = 1; m <= 10; m++)
                for (int v = 0; v <= 3; v++) {
                    struct schedule *s;
                    if (schedule_generate(&s, schedule_kind_name(k), p, m, v, 0, NULL)) continue;
                    fn(s, arg);
                    schedule_free(s);
                }
}

static void must_pass(const struct schedule *s)
{
    struct err e = {0};
    if (schedule_check(s, NULL, &e)) fail_msg("%s p %d m %d: %s", s->kind, s->n_ranks, s->n_microbatches, e.text);
}

static struct schedule *copy(const struct schedule *s)
{
    struct str t = {0};
    struct schedule *back;
    struct err e = {0};
    schedule_print(s, &t);
    if (schedule_parse(&back, str_text(&t), "copy", &e)) fail_msg("%s\n%s", e.text, str_text(&t));
    str_free(&t);
    return back;
}

static double makespan(const struct schedule *s)
{
    struct schedule_timeline t;
    schedule_simulate(s, &(struct schedule_cost){1, 1.5, 0.75, 0.3, NULL, NULL, 0}, &t);
    double v = t.makespan;
    schedule_timeline_fini(&t);
    return v;
}

static void visit_passes(struct schedule *s, void *arg)
{
    int *n = arg;
    (*n)++;
    must_pass(s);
    struct schedule *same = copy(s), *lowered = copy(s), *full = copy(s), *split = copy(s);
    assert_true(schedule_equal(s, same));

    schedule_add_comm(lowered);
    must_pass(lowered);
    assert_true(plays(lowered));
    assert_true(makespan(lowered) == makespan(s)); /* messages take the same time whether written down or not */

    struct schedule_peak a[8], b[8];
    schedule_check(s, a, NULL);
    schedule_split_backward(split);
    must_pass(split);
    schedule_fuse_backward(split);
    schedule_fuse_backward(same);
    assert_true(schedule_equal(split, same));

    schedule_add_moves(full, (struct schedule_moves){.gather = *n % 2,
                                                     .reduce = *n % 3,
                                                     .each = *n % 5 > 2,
                                                     .recompute = *n % 7 < 4,
                                                     .update = *n % 11 < 8,
                                                     .publish = *n % 11 < 8 && *n % 13 < 6});
    schedule_add_comm(full);
    must_pass(full);
    schedule_check(full, b, NULL);
    for (int r = 0; r < s->n_ranks; r++) assert_true(b[r].activations <= a[r].activations);
    struct schedule *again = copy(full);
    assert_true(schedule_equal(full, again));
    for (struct schedule **x = (struct schedule *[]){same, lowered, full, split, again, NULL}; *x; x++)
        schedule_free(*x);
}

static void test_passes(void **state)
{
    (void)state;
    int n = 0;
    each_schedule(visit_passes, &n);
    assert_true(n > 300);
}

/* What a rank does besides, told by whole stages: FSDP through gradient accumulation and a pipeline with chunks. */
static void test_moves(void **state)
{
    (void)state;
    static const struct {
        const char *kind;
        int p, chunks;
        struct schedule_moves m;
        const char *text;
    } rows[] = {
        {"onestage",
         1,
         1,
         {.gather = true},
         "0GATHER 0F0 0RELEASE 0GATHER 0BW0 0RELEASE 0GATHER 0F1 0RELEASE 0GATHER 0BW1 0RELEASE"},
        {"onestage", 1, 1, {.reduce = true, .recompute = true}, "0F0 0RECOMPUTE0 0BW0 0F1 0RECOMPUTE1 0BW1 0REDUCE"},
        {"onestage", 1, 1, {.reduce = true, .each = true}, "0F0 0BW0 0REDUCE 0F1 0BW1 0REDUCE"},
        {"interleaved",
         2,
         2,
         {.reduce = true, .gather = true},
         "0GATHER 0F0 0RELEASE 0GATHER 0F1 0RELEASE 2GATHER 2F0 2RELEASE 2GATHER 2F1 2RELEASE 2GATHER 2BW0 2RELEASE "
         "2GATHER 2BW1 2RELEASE 2REDUCE 0GATHER 0BW0 0RELEASE 0GATHER 0BW1 0RELEASE 0REDUCE"},
        {"onestage",
         1,
         1,
         {.reduce = true, .update = true, .publish = true},
         "0F0 0BW0 0F1 0BW1 0REDUCE 0UPDATE 0PUBLISH"},
        {"interleaved",
         2,
         2,
         {.update = true, .publish = true},
         "0F0 0F1 2F0 2F1 2BW0 2BW1 0BW0 0BW1 0UPDATE 0PUBLISH 2UPDATE 2PUBLISH"},
        {"zbh1", 2, 1, {.reduce = true, .recompute = true}, "0F0 0F1 0RECOMPUTE0 0B0 0W0 0RECOMPUTE1 0B1 0W1 0REDUCE"},
    };
    struct str t = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct schedule *s;
        assert_int_equal(schedule_generate(&s, rows[i].kind, rows[i].p, 2, rows[i].chunks, 0, NULL), OK);
        schedule_add_moves(s, rows[i].m);
        must_pass(s);
        schedule_print_rank(s, 0, &t);
        assert_string_equal(str_text(&t), rows[i].text);
        str_clear(&t);
        schedule_free(s);
    }
    str_free(&t);
}

static struct schedule *parse(const char *text)
{
    struct schedule *s;
    struct err e = {0};
    if (schedule_parse(&s, text, "t", &e)) fail_msg("%s", e.text);
    return s;
}

/* The same stage by stage and kind by kind: what a fused backward takes may be less than its halves, and what is
 * computed again counts in the backward, or in the RECOMPUTE that stands for it. */
static void test_each_stage(void **state)
{
    (void)state;
    static const struct schedule_stage_cost each[] = {{1, 2, 1, 0.5, 0, 0}, {2, 1, 4, 0, 4.5, 0}};
    struct schedule *s = parse("schedule x ranks 2 stages 2 microbatches 2\nplace 0 1\n"
                               "rank 0: 0F0 0F1 0B0 0W0 0BW1\nrank 1: 1F0 1BW0 1F1 1B1 1W1\n");
    struct schedule_timeline t;
    /* Rank 1: F 1-3, BW -7.5, F -9.5, B -10.5, W -14.5; rank 0: 0-2, B 7.5-10, W -11, BW -14.5 */
    schedule_simulate(s, &(struct schedule_cost){.each = each}, &t);
    assert_true(t.at[1][1].end_s == 7.5 && t.at[1][3].end_s == 10.5 && t.at[1][4].end_s == 14.5);
    assert_true(t.at[0][2].start_s == 7.5 && t.at[0][3].end_s == 11 && t.at[0][4].end_s == 14.5);
    assert_true(t.makespan == 14.5 && t.ideal == 13.5 && t.cost.f == 1.5 && t.cost.w == 2.5 && !t.cost.each);
    schedule_timeline_fini(&t);
    schedule_free(s);
    s = parse("schedule x ranks 1 stages 1 microbatches 1\nplace 0\nrank 0: 0F0 0RECOMPUTE0 0BW0\n");
    schedule_simulate(s, &(struct schedule_cost){.each = each}, &t);
    assert_true(t.at[0][1].end_s == 1.5 && t.makespan == 4.5);
    schedule_timeline_fini(&t);
    schedule_free(s);
}

/* A stage that costs more holds up the others: two stages, of which the second takes twice as long. */
static void test_stage_costs(void **state)
{
    (void)state;
    struct schedule *s;
    struct schedule_timeline t;
    const double stage[] = {1, 2};
    assert_int_equal(schedule_generate(&s, "gpipe", 2, 3, 1, 0, NULL), OK);
    schedule_simulate(s, &(struct schedule_cost){.f = 1, .b = 1, .w = 1, .stage = stage}, &t);
    assert_true(t.ideal == 18 && t.makespan == 1 + 6 + 12 + 2 && t.idle[1] == 3);
    schedule_timeline_fini(&t);
    schedule_free(s);
}

/* Nobody updates before the last rank has computed; an update holds its rank up, a publishing leaves behind it. */
static void test_updates(void **state)
{
    (void)state;
    static const struct schedule_stage_cost each[] = {{1, 1, 1, 0, 0, 0.5}, {1, 1, 1, 0, 0, 2}};
    struct schedule *s = parse("schedule x ranks 2 stages 2 microbatches 1\nplace 0 1\n"
                               "rank 0: 0F0 0BW0 0UPDATE 0PUBLISH\nrank 1: 1F0 1BW0 1UPDATE 1PUBLISH\n");
    struct schedule_timeline t;
    schedule_simulate(s, &(struct schedule_cost){.each = each}, &t);
    assert_true(t.at[0][1].end_s == 6 && t.at[1][1].end_s == 4);
    assert_true(t.at[0][2].start_s == 6 && t.at[0][2].end_s == 6.5 && t.at[0][3].start_s == 6.5);
    assert_true(t.at[1][2].start_s == 6 && t.at[1][2].end_s == 8 && t.at[1][3].end_s == 8);
    assert_true(t.makespan == 8 && t.ideal == 5 && t.idle[0] == 8 - 3.5 && t.cost.update == 1.25);
    schedule_timeline_fini(&t);
    schedule_simulate(s, &(struct schedule_cost){.f = 1, .b = 1, .w = 1, .update = 3}, &t);
    assert_true(t.makespan == 9 && t.ideal == 6);
    schedule_timeline_fini(&t);
    schedule_simulate(s, &(struct schedule_cost){.f = 1, .b = 1, .w = 1}, &t); /* as if there were none */
    assert_true(t.makespan == 6 && t.ideal == 3);
    schedule_timeline_fini(&t);
    schedule_free(s);
}

/* ---- damage -------------------------------------------------------------------------------------------------- */

struct damage {
    struct dice d;
    int n, refused, harmless;
};

static void remove_at(struct action_list *l, int64_t i)
{
    memmove(&l->a[i], &l->a[i + 1], to_size(--l->n - i) * sizeof *l->a);
}

static void insert_at(struct schedule *s, int r, int64_t i, struct action a)
{
    schedule_push(s, r, a);
    struct action_list *l = &s->rank[r];
    memmove(&l->a[i + 1], &l->a[i], to_size(l->n - 1 - i) * sizeof *l->a);
    l->a[i] = a;
}

/* One random injury to a lowered schedule. */
static void injure(struct schedule *s, struct dice *d)
{
    int r = roll(d, s->n_ranks);
    struct action_list *l = &s->rank[r];
    int64_t i = roll(d, (int)l->n), j = roll(d, (int)l->n);
    struct action a = l->a[i];
    switch (roll(d, 6)) {
    case 0: remove_at(l, i); break;
    case 1: insert_at(s, r, j, a); break;
    case 2: l->a[i].microbatch = (uint16_t)roll(d, s->n_microbatches); break;
    case 3: l->a[i].stage = (uint16_t)roll(d, s->n_stages); break;
    case 4:
        remove_at(l, i);
        insert_at(s, roll(d, s->n_ranks), 0, a);
        break;
    default: /* move within the list: the only kind that may do no harm */
        remove_at(l, i);
        insert_at(s, r, j < l->n ? j : l->n, a);
        break;
    }
}

static void visit_damage(struct schedule *s, void *arg)
{
    struct damage *g = arg;
    if (s->n_stages >= BIG || s->n_microbatches >= BIG) return;
    schedule_add_comm(s);
    for (int i = 0; i < 30; i++) {
        struct schedule *hurt = copy(s);
        struct err e = {0};
        injure(hurt, &g->d);
        bool plays_on = plays(hurt), passes = schedule_check(hurt, NULL, &e) == OK;
        if (plays_on != passes) {
            struct str t = {0};
            schedule_print(hurt, &t);
            fail_msg("it %s, but the checker says: %s\n%s", plays_on ? "runs" : "does not run",
                     passes ? "fine" : e.text, str_text(&t));
        }
        if (!passes) assert_true(strlen(e.text) > 10);
        g->n++;
        g->refused += !passes;
        g->harmless += passes;
        schedule_free(hurt);
    }
}

static void test_damage(void **state)
{
    (void)state;
    struct damage g = {.d = {7, 0}};
    each_schedule(visit_damage, &g);
    print_message("%d damaged schedules: %d refused, %d harmless\n", g.n, g.refused, g.harmless);
    assert_true(g.n > 5000 && g.refused > g.n / 2 && g.harmless > 100);
}

static void expect_error(const char *text, const char *want)
{
    struct schedule *s;
    struct err e = {0};
    int rc = schedule_parse(&s, text, "file", &e);
    if (!rc) rc = schedule_check(s, NULL, &e);
    schedule_free(s);
    assert_int_equal(rc, ERR_REQUEST);
    assert_string_equal(e.text, want);
}

#define TWO "schedule x ranks 2 stages 2 microbatches 1\nplace 0 1\n"
#define ONE "schedule x ranks 1 stages 1 microbatches 2\nplace 0\n"

/* The message names the action and what to do. */
static void expect_csv(const char *text, const char *want)
{
    struct schedule *s;
    struct err e = {0};
    struct str t = {0};
    if (schedule_parse(&s, text, "t.csv", &e)) str_puts(&t, e.text);
    else schedule_print(s, &t);
    assert_string_equal(str_text(&t), want);
    if (!e.code) schedule_free(s);
    str_free(&t);
}

/* Tables: idle cells, spreadsheet quotes, PyTorch's letters, two ways; what is wrong with a cell is said with its
 * line. */
static void test_csv(void **state)
{
    (void)state;
    expect_csv("0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n", "schedule csv ranks 2 stages 2 microbatches 2\nplace 0 1\n"
                                                       "rank 0: 0F0 0F1 0BW0 0BW1\nrank 1: 1F0 1BW0 1F1 1BW1\n");
    expect_csv("# by hand\r\n\"0F0\", 0I0 , 0F1, 0B1, 0W0 # done\n",
               "schedule csv ranks 1 stages 1 microbatches 2\nplace 0\nrank 0: 0F0 0B0 0F1 0BW1 0W0\n");
    expect_csv("0F0,1F1,0B0,1B1\n1F0,0F1,1B0,0B1\n",
               "schedule csv ranks 2 stages 2 microbatches 2 way_from 1\nplace 0 1\nplace 1 0\n"
               "rank 0: 0F0 1F1 0BW0 1BW1\nrank 1: 1F0 0F1 1BW0 0BW1\n");
    expect_csv("0F0\n1F0\n", "schedule csv ranks 2 stages 2 microbatches 1 forward_only\nplace 0 1\n"
                             "rank 0: 0F0\nrank 1: 1F0\n");
    expect_csv("0F0,0X0\n", "t.csv:1: '0X0': wanted F, B, I, W or BW after the stage");
    expect_csv("0F0\n\n0F\n", "t.csv:3: '0F': wanted a microbatch and nothing after it");
    expect_csv("0F0,F1\n", "t.csv:1: 'F1': wanted a stage, a kind and a microbatch, as in 2F0");
    expect_csv(",,,\n", "t.csv: no action in it");
    expect_csv("0F0,1F0,2F0\n3F0,4F0\n", "5 stages do not divide over 2 ranks: choose 4 or 6 stages");
}

/* A table of a generator's schedule is that schedule. */
static void test_csv_round(void **state)
{
    (void)state;
    for (int i = 1; schedule_kind_name(i); i++) {
        struct schedule *s, *again;
        struct err e = {0};
        struct str t = {0};
        char name[32];
        if (schedule_generate(&s, schedule_kind_name(i), 4, 8, 0, 0, &e)) fail_msg("%s", e.text);
        for (int r = 0; r < s->n_ranks; r++)
            for (int64_t k = 0; k < s->rank[r].n; k++)
                str_printf(&t, "%s%s", action_print(name, s->rank[r].a[k]), k + 1 < s->rank[r].n ? "," : "\n");
        if (schedule_parse(&again, str_text(&t), "round.csv", &e)) fail_msg("%s: %s", s->kind, e.text);
        snprintf(again->kind, sizeof again->kind, "%s", s->kind);
        if (!schedule_equal(s, again)) fail_msg("%s does not come back", s->kind);
        schedule_free(s);
        schedule_free(again);
        str_free(&t);
    }
}

static void test_messages(void **state)
{
    (void)state;
    expect_error(TWO "rank 0: 0F0 0BW0\nrank 1: 1F0", "rank 1 never issues 1B0");
    expect_error(TWO "rank 0: 0F0 0BW0\nrank 1: 1BW0 1F0",
                 "rank 0, action 1 (0BW0): waits for 1B0 of rank 1; rank 1, action 0 (1BW0): waits for 1F0, which "
                 "stands later in its own list");
    expect_error(TWO "rank 0: 0F0 0BW0 0F0\nrank 1: 1F0 1BW0", "rank 0, action 2 (0F0): issued twice");
    expect_error(TWO "rank 0: 0F0 0BW0 1F0\nrank 1: 1BW0",
                 "rank 0, action 2 (1F0): this stage is placed on another rank");
    expect_error(TWO "rank 0: 0F0 0SF0@1 0RB0@1 0BW0\nrank 1: 1RF0@0 1F0 1BW0", "rank 1 never issues 1SB0");
    expect_error(TWO "rank 0: 0F0 0SF0@0 0RB0@1 0BW0\nrank 1: 1RF0@0 1F0 1BW0 1SB0@0",
                 "rank 0, action 1 (0SF0@0): the other end is on another rank than @ says");
    expect_error(TWO "rank 0: 0F0 0RB0@1 0SF0@1 0BW0\nrank 1: 1RF0@0 1F0 1BW0 1SB0@0",
                 "rank 0, action 1 (0RB0@1): waits for 1SB0 of rank 1; rank 1, action 0 (1RF0@0): waits for 0SF0 of "
                 "rank 0: a circle");
    expect_error(ONE "rank 0: 0F0 0BW0 0REDUCE 0F1 0BW1",
                 "rank 0, action 4 (0BW1): its stage was already reduced: this gradient would be lost");
    expect_error(ONE "rank 0: 0GATHER 0F0 0BW0 0RELEASE 0F1 0BW1",
                 "rank 0, action 4 (0F1): the stage's parameters are not whole: GATHER comes first");
    expect_error(ONE "rank 0: 0F0 0BW0 0RECOMPUTE0 0F1 0BW1", "rank 0, action 1 (0BW0): RECOMPUTE comes first");
    expect_error(ONE "rank 0: 0F0 0OFFLOAD0 0BW0 0F1 0BW1 0RELOAD0", /* nothing would carry it out */
                 "file:3: '0OFFLOAD0': no such kind of action; there are F, B, W, BW, RF, SF, RB, SB, GATHER, RELEASE, "
                 "REDUCE, RECOMPUTE, UPDATE, PUBLISH");
    expect_error(ONE "rank 0: 0F0.1 0F0 0BW0 0F1 0BW1", "rank 0, action 1 (0F0): issued twice");
    expect_error(ONE "rank 0: 0F0 0BW0 0REDUCE 0F1 0BW1 0REDUCE 0REDUCE", "rank 0, action 6 (0REDUCE): reduced twice");
    expect_error(ONE "rank 0: 0F0 0BW0 0UPDATE 0F1 0BW1",
                 "rank 0, action 3 (0F1): comes after an UPDATE: the norm of all gradients lies between");
    expect_error(ONE "rank 0: 0F0 0BW0 0F1 0BW1 0UPDATE 0REDUCE",
                 "rank 0, action 4 (0UPDATE): the stage's gradient is not reduced yet: REDUCE comes first");
    expect_error(ONE "rank 0: 0F0 0BW0 0F1 0BW1 0UPDATE 0UPDATE", "rank 0, action 5 (0UPDATE): updated twice");
    expect_error(ONE "rank 0: 0F0 0BW0 0F1 0BW1 0PUBLISH 0UPDATE",
                 "rank 0, action 4 (0PUBLISH): nothing to publish: UPDATE comes first");
    expect_error(ONE "rank 0: 0F0 0BW0 0F1 0BW1 0UPDATE 0PUBLISH 0PUBLISH",
                 "rank 0, action 6 (0PUBLISH): published twice");
    expect_error("schedule x ranks 1 stages 1 microbatches 1 forward_only\nplace 0\nrank 0: 0F0 0UPDATE",
                 "rank 0, action 1 (0UPDATE): a forward-only schedule has no such action");
    expect_error("schedule x ranks 1 stages 1 microbatches 1 forward_only\nplace 0\nrank 0: 0F0 0BW0",
                 "rank 0, action 1 (0BW0): a forward-only schedule has no such action");
    expect_error(ONE "rank 0: 0F0 0X0",
                 "file:3: '0X0': no such kind of action; there are F, B, W, BW, RF, SF, RB, SB, GATHER, "
                 "RELEASE, REDUCE, RECOMPUTE, UPDATE, PUBLISH");
    expect_error(ONE "rank 0: 0F7", "file:3: wanted a stage and microbatch of this schedule, got '0F7'");
    expect_error(ONE "rank 1: 0F0", "file:3: wanted 'rank I:' for every rank, in order, got '1:'");
    expect_error("schedule x ranks 2 stages 3 microbatches 1\nplace 0 1 0",
                 "file:1: 3 stages do not divide over 2 ranks: choose 2 or 4 stages");
    expect_error("", "file:1: wanted 'schedule KIND ranks R stages S microbatches M', got ''");
}

/* Text from outside may be anything. */
static void test_rubbish(void **state)
{
    (void)state;
    struct schedule *s;
    struct str t = {0};
    struct dice d = {11, 0};
    assert_int_equal(schedule_generate(&s, "dualpipe", 2, 4, 0, 0, NULL), OK);
    schedule_add_comm(s);
    schedule_print(s, &t);
    schedule_free(s);
    int parsed = 0;
    for (int i = 0; i < 20000; i++) {
        char *text = xstrdup(str_text(&t));
        for (int k = 1 + roll(&d, 3); k > 0; k--) text[roll(&d, (int)t.n)] = "0129FBWS@.:# \nrank\t\x80-"[roll(&d, 21)];
        if (roll(&d, 4) == 0) text[roll(&d, (int)t.n)] = 0;
        struct err e = {0};
        if (!schedule_parse(&s, text, "rubbish", &e)) {
            parsed++;
            schedule_check(s, NULL, &e);
            schedule_free(s);
        } else {
            assert_null(s);
            assert_true(str_starts(e.text, "rubbish:"));
        }
        xfree(text);
    }
    assert_true(parsed > 100);
    str_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passes),   cmocka_unit_test(test_moves),      cmocka_unit_test(test_stage_costs),
        cmocka_unit_test(test_updates),  cmocka_unit_test(test_each_stage), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_messages), cmocka_unit_test(test_csv),        cmocka_unit_test(test_csv_round),
        cmocka_unit_test(test_rubbish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
