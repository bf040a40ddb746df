/* SPDX-License-Identifier: Apache-2.0 */
/* The whole list of a rank: what the pass puts in, what the checker refuses and by which words, and a second opinion on
 * thousands of damaged lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "schedule/parts.h"

/* A stage of three units (embedding, layer, head), each read by a part of F and of B; the head's gradient is made in F
 * as a loss segment makes it, the layer is computed again. Stage s has units 3 s to 3 s + 2. */
enum { UNITS = 3, USES = 9, MOST = 2 };
struct model {
    struct rank_parts p;
    struct stage_parts stage[MOST];
    struct part_use use[MOST][USES];
    bool again[MOST][4];
    const char *name[MOST * UNITS];
    int unit_stage[MOST * UNITS];
};

static void model_init(struct model *m, int n_stages, int first_stage, int step, bool split_w, struct part_rule rule)
{
    static const char *const names[MOST * UNITS] = {"embed", "layer", "head", "embed'", "layer'", "head'"};
    *m = (struct model){.p = {.stage = m->stage,
                              .n_stages = n_stages,
                              .n_units = UNITS * n_stages,
                              .unit_name = m->name,
                              .unit_stage = m->unit_stage,
                              .rule = rule}};
    memcpy(m->name, names, sizeof names);
    for (int s = 0; s < n_stages; s++) {
        for (int k = 0; k < UNITS; k++) m->unit_stage[UNITS * s + k] = first_stage + s * step;
        int u = UNITS * s, w = split_w ? ACTION_W : ACTION_B;
        const struct part_use use[USES] = {{ACTION_F, u, false, false, 0, 0},
                                           {ACTION_F, u + 1, false, false, 1, 1},
                                           {ACTION_F, u + 2, false, false, 2, 2},
                                           {ACTION_F, u + 2, true, false, 2, 2},
                                           {ACTION_B, u + 1, false, false, 0, 1},
                                           {w, u + 1, true, false, split_w ? 0 : 1, split_w ? 0 : 1},
                                           {w, u, true, false, split_w ? 1 : 2, split_w ? 1 : 2},
                                           {ACTION_B, u, false, false, 2, 2},
                                           {ACTION_F, u + 1, false, false, 1, 1}};
        memcpy(m->use[s], use, sizeof use);
        m->again[s][0] = true;
        m->stage[s] = (struct stage_parts){.stage = first_stage + s * step,
                                           .n = {3, 3, split_w ? 2 : 0},
                                           .again = m->again[s],
                                           .use = m->use[s],
                                           .n_use = USES - 1};
    }
}

#define ONE "schedule x ranks 1 stages 1 microbatches 2\nplace 0\nrank 0: "
static struct schedule *parse(const char *text)
{
    struct schedule *s;
    struct err e = {0};
    if (schedule_parse(&s, text, "t", &e)) fail_msg("%s\n%s", e.text, text);
    return s;
}

/* What comes of a list: its text, or why it is refused. */
static const char *comes(const struct model *m, const char *head, const char *list, struct str *out)
{
    struct str t = {0};
    struct err e = {0};
    struct action_list l;
    str_printf(&t, "%s%s", head, list);
    struct schedule *s = parse(str_text(&t));
    str_clear(out);
    int rc = schedule_list(&l, s, 0, &m->p, &e);
    if (!rc) rc = schedule_check_list(&l, s, 0, &m->p, &e);
    if (rc) str_puts(out, e.text);
    else schedule_print_list(&l, out);
    xfree(l.a);
    schedule_free(s);
    str_free(&t);
    return str_text(out);
}

static const struct part_rule plain = {0}, zero0 = {.reduce = true},
                              zero3 = {.reduce = true, .gather = true, .temporary = true},
                              exact = {.reduce = true, .every = 1}, steps = {.reduce = true, .update = true},
                              zero1 = {.reduce = true, .arrive = true, .update = true, .publish = true};
#define PLAIN0 "0F0 0RECOMPUTE0.0 0BW0.1 0BW0.2"
#define PLAIN1 "0F1 0RECOMPUTE1.0 0BW1.1 0BW1.2"
#define Z3(m)                                                                                                          \
    "0GATHER.0 0GATHER.1 0F" m ".0 0RELEASE.0 0GATHER.2 0F" m ".1 0RELEASE.1 0F" m ".2 0RELEASE.2 0REDUCE.2 "          \
    "0GATHER.0 0GATHER.1 0RECOMPUTE" m ".0 0BW" m ".1 0RELEASE.1 0REDUCE.1 0BW" m ".2 0RELEASE.0 0REDUCE.0"

static void test_pass(void **state)
{
    (void)state;
    struct model m;
    struct str t = {0};
    const char *list = "0F0 0BW0 0F1 0BW1";
    model_init(&m, 1, 0, 1, false, plain);
    assert_string_equal(comes(&m, ONE, list, &t), PLAIN0 " " PLAIN1);
    model_init(&m, 1, 0, 1, false, zero0);
    assert_string_equal(comes(&m, ONE, list, &t),
                        PLAIN0 " 0F1 0REDUCE.2 0RECOMPUTE1.0 0BW1.1 0REDUCE.1 0BW1.2 0REDUCE.0");
    model_init(&m, 1, 0, 1, false, exact);
    assert_string_equal(comes(&m, ONE, list, &t), "0F0 0REDUCE.2 0RECOMPUTE0.0 0BW0.1 0REDUCE.1 0BW0.2 0REDUCE.0 "
                                                  "0F1 0REDUCE.2 0RECOMPUTE1.0 0BW1.1 0REDUCE.1 0BW1.2 0REDUCE.0");
    model_init(&m, 1, 0, 1, false, zero3);
    assert_string_equal(comes(&m, ONE, list, &t), Z3("0") " " Z3("1"));
    model_init(&m, 1, 0, 1, true, zero0);
    assert_string_equal(comes(&m, ONE, "0F0 0F1 0B0 0B1 0W0 0W1", &t),
                        "0F0 0F1 0REDUCE.2 0RECOMPUTE0.0 0B0.1 0B0.2 0RECOMPUTE1.0 0B1.1 0B1.2 0W0 0W1.0 0REDUCE.1 "
                        "0W1.1 0REDUCE.0");
    str_free(&t);
}

/* A layer's norms in B, its products in W: what each phase adds leaves after it, put in or named by whole stages. */
static void test_by_phase(void **state)
{
    (void)state;
    struct part_rule rule = {.reduce = true, .temporary = true, .by_phase = true};
    const char *want = "0F0 0REDUCE.2 0F1 0REDUCE.2 0RECOMPUTE0.0 0B0.1 0REDUCE.1 0B0.2 0RECOMPUTE1.0 0B1.1 0REDUCE.1 "
                       "0B1.2 0W0.0 0REDUCE.1 0W0.1 0REDUCE.0 0W1.0 0REDUCE.1 0W1.1 0REDUCE.0",
               *named = "0F0 0REDUCE 0F1 0REDUCE 0B0 0REDUCE 0B1 0REDUCE 0W0 0REDUCE 0W1 0REDUCE";
    struct model m;
    struct str t = {0};
    model_init(&m, 1, 0, 1, true, rule);
    m.use[0][USES - 1] = (struct part_use){ACTION_B, 1, true, false, 1, 1};
    m.stage[0].n_use = USES;
    assert_string_equal(comes(&m, ONE, "0F0 0F1 0B0 0B1 0W0 0W1", &t), want);
    assert_string_equal(comes(&m, ONE, named, &t),
                        "0F0 0REDUCE.2 0F1 0REDUCE.2 0RECOMPUTE0.0 0B0.1 0B0.2 0REDUCE.1 0RECOMPUTE1.0 0B1.1 0B1.2 "
                        "0REDUCE.1 0W0 0REDUCE.0 0REDUCE.1 0W1 0REDUCE.0 0REDUCE.1");
    assert_string_equal(comes(&m, ONE, "0F0 0REDUCE 0F1 0REDUCE 0B0 0B1 0REDUCE 0W0 0REDUCE 0W1 0REDUCE", &t),
                        "rank 0, action 8 (0B1.1): the gradient of unit 1 (layer ...) that action 5 (0B0.1) completed "
                        "is still there: REDUCE comes first");
    assert_string_equal(comes(&m, ONE,
                              "0F0 0REDUCE 0F1 0REDUCE 0B0 0REDUCE 0REDUCE 0B1 0REDUCE 0W0 0REDUCE 0W1 "
                              "0REDUCE",
                              &t),
                        "rank 0, action 8 (0REDUCE.0): no gradient of unit 0 (embed ...) was made before");
    str_free(&t);
}

#define REDUCED "0F0 0RECOMPUTE0.0 0BW0.1 0BW0.2 0F1 0REDUCE.2 0RECOMPUTE1.0 0BW1.1 0REDUCE.1 0BW1.2 0REDUCE.0"

/* Parameters are stepped when everything else was done, and go out one by one. */
static void test_update(void **state)
{
    (void)state;
    struct model m;
    struct str t = {0};
    const char *list = "0F0 0BW0 0F1 0BW1";
    model_init(&m, 1, 0, 1, false, steps);
    assert_string_equal(comes(&m, ONE, list, &t), REDUCED " 0UPDATE.0 0UPDATE.1 0UPDATE.2");
    model_init(&m, 1, 0, 1, false, zero1);
    assert_string_equal(comes(&m, ONE, list, &t),
                        REDUCED " 0UPDATE.0 0PUBLISH.0 0UPDATE.1 0PUBLISH.1 0UPDATE.2 0PUBLISH.2");
    /* What a file says stands: by stage, or in another order. */
    assert_string_equal(comes(&m, ONE, "0F0 0BW0 0F1 0BW1 0UPDATE 0PUBLISH", &t),
                        REDUCED " 0UPDATE.0 0UPDATE.1 0UPDATE.2 0PUBLISH.0 0PUBLISH.1 0PUBLISH.2");
    assert_string_equal(comes(&m, ONE,
                              "0F0 0BW0 0F1 0BW1 0UPDATE.2 0UPDATE.1 0PUBLISH.2 0PUBLISH.1 0UPDATE.0 0PUBLISH.0", &t),
                        REDUCED " 0UPDATE.2 0UPDATE.1 0PUBLISH.2 0PUBLISH.1 0UPDATE.0 0PUBLISH.0");
    m.unit_stage[1] = -1; /* held by nobody here */
    assert_string_equal(comes(&m, ONE, list, &t), REDUCED " 0UPDATE.0 0PUBLISH.0 0UPDATE.2 0PUBLISH.2");
    /* A unit of two stages is updated once, by the first. */
    model_init(&m, 2, 0, 1, false, steps);
    for (int i = 0; i < USES; i++) m.use[1][i].unit -= m.use[1][i].unit == UNITS ? UNITS : 0;
    m.unit_stage[UNITS] = -1;
    assert_string_equal(comes(&m, "schedule x ranks 1 stages 2 microbatches 1\nplace 0 0\nrank 0: ",
                              "0F0 1F0 1BW0 1REDUCE 0BW0 0REDUCE 1UPDATE 0UPDATE", &t),
                        "0F0 1F0 1RECOMPUTE0.0 1BW0.1 1BW0.2 1REDUCE.4 1REDUCE.5 0RECOMPUTE0.0 0BW0.1 0BW0.2 0REDUCE.0 "
                        "0REDUCE.1 0REDUCE.2 1UPDATE.4 1UPDATE.5 0UPDATE.0 0UPDATE.1 0UPDATE.2");
    str_free(&t);
}

/* A file may say all of it, or some, by unit or by stage. What it says is kept. */
static void test_written(void **state)
{
    (void)state;
    struct model m;
    struct str t = {0};
    model_init(&m, 1, 0, 1, false, zero3);
    assert_string_equal(comes(&m, ONE, Z3("0") " " Z3("1"), &t), Z3("0") " " Z3("1"));
    assert_string_equal(comes(&m, ONE, "0GATHER 0F0 0BW0 0F1 0BW1 0RELEASE", &t),
                        "0GATHER.0 0GATHER.1 0GATHER.2 0F0 0REDUCE.2 0RECOMPUTE0.0 0BW0.1 0REDUCE.1 0BW0.2 0REDUCE.0 "
                        "0F1 0REDUCE.2 0RECOMPUTE1.0 0BW1.1 0REDUCE.1 0BW1.2 0RELEASE.0 0RELEASE.1 0RELEASE.2 "
                        "0REDUCE.0");
    model_init(&m, 1, 0, 1, false, zero0);
    assert_string_equal(comes(&m, ONE, "0F0 0BW0 0F1 0RECOMPUTE1 0BW1 0REDUCE", &t),
                        PLAIN0 " " PLAIN1 " 0REDUCE.0 0REDUCE.1 0REDUCE.2");
    /* Two stages of one rank that share nothing: each has its own. */
    model_init(&m, 2, 0, 1, false, zero0);
    assert_string_equal(comes(&m, "schedule x ranks 1 stages 2 microbatches 1\nplace 0 0\nrank 0: ",
                              "0F0 1F0 1BW0 0BW0", &t),
                        "0F0 0REDUCE.2 1F0 1REDUCE.5 1RECOMPUTE0.0 1BW0.1 1REDUCE.4 1BW0.2 1REDUCE.3 0RECOMPUTE0.0 "
                        "0BW0.1 0REDUCE.1 0BW0.2 0REDUCE.0");
    /* A unit that two stages share is reduced with the later one, also where the file names stages. */
    for (int i = 0; i < USES; i++) m.use[1][i].unit -= m.use[1][i].unit == UNITS ? UNITS : 0;
    assert_string_equal(comes(&m, "schedule x ranks 1 stages 2 microbatches 1\nplace 0 0\nrank 0: ",
                              "0F0 1F0 1BW0 1REDUCE 0BW0 0REDUCE", &t),
                        "0F0 1F0 1RECOMPUTE0.0 1BW0.1 1BW0.2 1REDUCE.4 1REDUCE.5 0RECOMPUTE0.0 0BW0.1 0BW0.2 0REDUCE.0 "
                        "0REDUCE.1 0REDUCE.2");
    str_free(&t);
}

/* Every kind of mistake is refused, with rank, action and unit. */
static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const struct part_rule *rule;
        const char *list, *want;
    } rows[] = {
        {&zero3, "0GATHER.0 0GATHER.1 0F0.0 0RELEASE.0 0RELEASE.1 0GATHER.2 0F0.1 0F0.2 0RELEASE.2 0BW0 0F1 0BW1",
         "rank 0, action 4 (0RELEASE.1): nothing has read unit 1 (layer ...) since action 1 (0GATHER.1): RELEASE comes "
         "too early"},
        {&zero3, "0GATHER 0F0 0RECOMPUTE0.0 0RELEASE.1 0BW0.1 0BW0.2 0F1 0BW1 0RELEASE",
         "rank 0, action 7 (0BW0.1): it reads unit 1 (layer ...), which action 6 (0RELEASE.1) gave back: RELEASE comes "
         "too early"},
        {&zero3, "0GATHER.0 0F0.0 0F0.1 0F0.2 0BW0 0F1 0BW1 0RELEASE",
         "rank 0, action 1 (0F0): it reads unit 1 (layer ...), which is not whole here: GATHER comes first"},
        {&zero3, "0GATHER 0F0 0GATHER.1 0BW0 0F1 0BW1 0RELEASE",
         "rank 0, action 5 (0GATHER.1): unit 1 (layer ...) was gathered by action 1 (0GATHER.1): RELEASE comes first"},
        {&zero3, "0GATHER 0F0 0BW0 0F1 0BW1 0RELEASE.0 0RELEASE.1",
         "rank 0, at the end: unit 2 (head ...), gathered by action 2 (0GATHER.2), is never released"},
        {&zero0, "0GATHER 0F0 0BW0 0F1 0BW1 0RELEASE",
         "rank 0, action 0 (0GATHER.0): parameters are whole here: there is nothing to gather or to release; leave it "
         "out, or choose parallel.zero=3 or memory.offload=[params]"},
        {&zero0, "0F0 0BW0 0F1 0BW1 0REDUCE.0 0REDUCE.1 0REDUCE.2 0REDUCE.1",
         "rank 0, action 11 (0REDUCE.1): the gradient of unit 1 (layer ...) was reduced by action 9 (0REDUCE.1): once "
         "is all"},
        {&zero0, "0F0 0BW0 0F1 0BW1 0REDUCE.0 0REDUCE.1",
         "rank 0, at the end: the gradient of unit 2 (head ...), to which action 4 (0F1) added, is never reduced"},
        {&zero0, "0F0 0BW0 0REDUCE.1 0F1 0BW1 0REDUCE.0 0REDUCE.2",
         "rank 0, action 7 (0BW1.1): it adds to the gradient of unit 1 (layer ...), which action 4 (0REDUCE.1) "
         "reduced: REDUCE comes too early, this would be lost"},
        {&zero0, "0REDUCE.1 0F0 0BW0 0F1 0BW1 0REDUCE.0 0REDUCE.1 0REDUCE.2",
         "rank 0, action 0 (0REDUCE.1): no gradient of unit 1 (layer ...) was made before"},
        {&zero3, "0F0 0BW0 0F1 0BW1 0REDUCE",
         "rank 0, action 23 (0F1.2): the gradient of unit 2 (head ...) that action 7 (0F0.2) completed is still there: "
         "REDUCE comes first"},
        {&exact, "0F0 0BW0 0F1 0BW1 0REDUCE",
         "rank 0, action 4 (0F1): the gradient of unit 2 (head ...) that action 0 (0F0) completed is still there: "
         "REDUCE comes first"},
        {&plain, "0F0 0BW0 0F1 0BW1 0REDUCE",
         "rank 0, action 8 (0REDUCE.0): gradients are not reduced here (no other rank adds to them): leave it out"},
        {&plain, "0F0 0BW0.1 0RECOMPUTE0.0 0BW0.2 0F1 0BW1", "rank 0, action 1 (0BW0.1): comes before 0RECOMPUTE0.0"},
        {&plain, "0F0 0RECOMPUTE0.0 0BW0.1 0BW0.2 0RECOMPUTE0.0 0F1 0BW1",
         "rank 0, action 4 (0RECOMPUTE0.0): comes again, or after what it serves: parts come in order, each once"},
        {&plain, "0F0 0BW0.0 0BW0.1 0BW0.2 0F1 0BW1",
         "rank 0, action 1 (0BW0): this part computes forward once more: it is a RECOMPUTE, which comes before its "
         "backward"},
        {&plain, "0F0 0RECOMPUTE0.0 0RECOMPUTE0.1 0BW0.2 0F1 0BW1",
         "rank 0, action 2 (0RECOMPUTE0.1): this part is backward itself, not a RECOMPUTE"},
        {&plain, "0F0 0RECOMPUTE0.0 0F1 0BW0.1 0BW0.2 0BW1",
         "rank 0, action 2 (0F1): another phase is not over: its parts share scratch memory and stay together"},
        {&plain, "0F0.0 0F0.2 0F0.1 0BW0 0F1 0BW1", "rank 0, action 1 (0F0.2): comes before 0F0.1"},
        {&plain, "0F0 0BW0.0 0F1 0BW1",
         "rank 0, action 1 (0BW0.0): this part computes forward once more: it is a RECOMPUTE, which comes before "
         "its backward"},
        {&plain, "0F0 0BW0 0F1 0RECOMPUTE1.0 0BW1.1", "rank 0, at the end: 2 of 3 parts of 0B1 were computed"},
        {&plain, "0F0 0BW0 0F1 0BW1.7", "rank 0, action 3 (0BW1.7): there are parts 0 to 2"},
        {&zero3, "0F0 0GATHER.9 0BW0 0F1 0BW1",
         "rank 0, action 1 (0GATHER.9): stage 0 has no unit 9 to gather; tutti explain CONFIG schedule lists them"},
        {&zero0, "0F0 0BW0 0F1 0BW1 0UPDATE",
         "rank 0, action 11 (0UPDATE.0): parameters are stepped by their servers: leave it out"},
        {&steps, "0F0 0BW0 0F1 0BW1 0UPDATE 0PUBLISH",
         "rank 0, action 14 (0PUBLISH.0): nothing is published here: no rank steps a piece for others that keep the "
         "whole (zero 1 and 2 do); leave it out"},
        {&steps, "0F0 0BW0 0F1 0BW1 0UPDATE.0 0UPDATE.1", "rank 0, at the end: unit 2 (head ...) is never updated"},
        {&steps, "0F0 0BW0 0F1 0BW1 0UPDATE 0UPDATE.1",
         "rank 0, action 14 (0UPDATE.1): unit 1 (layer ...) was updated by action 12 (0UPDATE.1): once is all"},
        {&steps, "0F0 0BW0 0F1 0BW1 0REDUCE.0 0REDUCE.1 0UPDATE.0 0REDUCE.2 0UPDATE.1 0UPDATE.2",
         "rank 0, action 11 (0REDUCE.2): comes after action 10 (0UPDATE.0): the norm of all gradients lies between "
         "what "
         "makes them and the first update"},
        {&steps, "0F0 0BW0 0REDUCE.0 0REDUCE.1 0REDUCE.2 0UPDATE 0F1 0BW1",
         "rank 0, action 10 (0F1): comes after action 7 (0UPDATE.0): the norm of all gradients lies between what makes "
         "them and the first update"},
        {&steps, "0F0 0BW0 0F1 0BW1 0REDUCE.0 0REDUCE.1 0UPDATE",
         "rank 0, action 12 (0UPDATE.2): the gradient of unit 2 (head ...), to which action 4 (0F1) added, is not "
         "reduced yet: REDUCE comes first"},
        {&zero1, "0F0 0BW0 0F1 0BW1 0UPDATE.0 0PUBLISH.1 0UPDATE.1 0UPDATE.2",
         "rank 0, action 12 (0PUBLISH.1): unit 1 (layer ...) is not updated yet: UPDATE comes first"},
        {&zero1, "0F0 0BW0 0F1 0BW1 0UPDATE 0PUBLISH.0 0PUBLISH.2",
         "rank 0, at the end: unit 1 (layer ...), updated by action 12 (0UPDATE.1), is never published"},
        {&zero1, "0F0 0BW0 0F1 0BW1 0UPDATE 0PUBLISH 0PUBLISH.2",
         "rank 0, action 17 (0PUBLISH.2): unit 2 (head ...) was published by action 16 (0PUBLISH.2): once is all"},
        {&zero1, "0F0 0BW0 0F1 0BW1 0UPDATE 0PUBLISH.7",
         "rank 0, action 5 (0PUBLISH.7): stage 0 has no unit 7 to publish; tutti explain CONFIG schedule lists them"},
        {&plain, "0F0 0RECOMPUTE0 0F1 0BW0 0BW1",
         "rank 0: 0RECOMPUTE0 is not followed by the whole backward of stage 0, microbatch 0, which it serves layer by "
         "layer; move it there, or leave it out"},
    };
    struct model m;
    struct str t = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model_init(&m, 1, 0, 1, false, *rows[i].rule);
        assert_string_equal(comes(&m, ONE, rows[i].list, &t), rows[i].want);
    }
    model_init(&m, 1, 0, 1, false, plain);
    m.again[0][0] = false;
    assert_string_equal(comes(&m, ONE, "0F0 0RECOMPUTE0 0BW0 0F1 0BW1", &t),
                        "rank 0, action 1 (0RECOMPUTE0): stage 0 keeps what backward needs: nothing is computed again; "
                        "leave it out, or choose memory.recompute: full");
    str_free(&t);
}

/* ---- a second opinion: memory played by hand ---- */
static bool plays(const struct action_list *l, const struct model *m, int n_microbatches)
{
    bool whole[UNITS] = {false}, used[UNITS] = {false};
    int added[UNITS] = {0}, at[2][PART_PHASES] = {{0}};
    bool open = false;
    int open_m = -1, open_ph = -1, stepped[UNITS] = {0};
    bool steps_now = false;
    const struct part_rule *r = &m->p.rule;
    for (int64_t i = 0; i < l->n; i++) {
        struct action a = l->a[i];
        int u = a.part, ph = a.kind == ACTION_F ? 0 : 1;
        if (!action_is_compute((enum action_kind)a.kind)) {
            if (u >= UNITS) return false;
            if (a.kind == ACTION_UPDATE || a.kind == ACTION_PUBLISH) {
                if (added[u] != 99 || stepped[u]++ != (a.kind == ACTION_PUBLISH)) return false;
                steps_now = true;
                continue;
            }
            if (steps_now) return false;
            if (a.kind == ACTION_GATHER && (whole[u] || !r->gather)) return false;
            if (a.kind == ACTION_RELEASE && (!whole[u] || !used[u])) return false;
            if (a.kind == ACTION_REDUCE && added[u] != (r->temporary ? 1 : n_microbatches)) return false;
            if (a.kind == ACTION_REDUCE) added[u] = r->temporary ? 0 : 99;
            if (a.kind == ACTION_GATHER) used[u] = false;
            if (a.kind != ACTION_REDUCE) whole[u] = a.kind == ACTION_GATHER;
            continue;
        }
        if (steps_now) return false;
        int first = a.part == ACTION_WHOLE ? 0 : a.part, last = a.part == ACTION_WHOLE ? 2 : a.part;
        for (int k = first; k <= last; k++) {
            if (open && (open_m != a.microbatch || open_ph != ph)) return false;
            if (at[a.microbatch][ph] != k || (ph == 1 && at[a.microbatch][0] != 3)) return false;
            if (ph == 1 && (k == 0) != (a.kind == ACTION_RECOMPUTE)) return false;
            at[a.microbatch][ph]++;
            open = k < 2;
            open_m = a.microbatch;
            open_ph = ph;
            int reads = ph == 0 ? k
                        : k < 2 ? 1
                                : 0,
                writes = ph == 0  ? (k == 2 ? 2 : -1)
                         : k == 1 ? 1
                         : k == 2 ? 0
                                  : -1;
            if (r->gather && !whole[reads]) return false;
            used[reads] = true;
            if (writes >= 0 && (r->temporary ? added[writes] != 0 : added[writes] >= n_microbatches)) return false;
            if (writes >= 0) added[writes]++;
        }
    }
    for (int v = 0; v < UNITS; v++)
        if (whole[v] || added[v] != (r->temporary ? 0 : 99) || stepped[v] != r->update + r->publish) return false;
    for (int k = 0; k < n_microbatches; k++)
        if (at[k][0] != 3 || at[k][1] != 3) return false;
    return !open;
}

static void test_damage(void **state)
{
    (void)state;
    int refused = 0, harmless = 0;
    uint64_t dice = 0;
    for (int round = 0; round < 20000; round++) {
        struct model m;
        struct action_list l;
        struct err e = {0};
        struct str t = {0};
        struct schedule *s = parse(ONE "0F0 0BW0 0F1 0BW1");
        model_init(&m, 1, 0, 1, false, round % 3 == 0 ? zero3 : round % 3 == 1 ? zero0 : zero1);
        assert_int_equal(schedule_list(&l, s, 0, &m.p, &e), OK);
        assert_true(plays(&l, &m, 2));
        int i = (int)(rng_u64(5, 1, dice++) % (uint64_t)l.n), j = (int)(rng_u64(5, 1, dice++) % (uint64_t)l.n);
        struct action a = l.a[i];
        switch (rng_u64(5, 1, dice++) % 4) {
        case 0: /* another place */
            memmove(&l.a[i], &l.a[i + 1], (size_t)(l.n - 1 - i) * sizeof a);
            memmove(&l.a[j + 1], &l.a[j], (size_t)(l.n - 1 - j) * sizeof a);
            l.a[j] = a;
            break;
        case 1: /* gone */ memmove(&l.a[i], &l.a[i + 1], (size_t)(--l.n - i) * sizeof a); break;
        case 2: /* another one in its place */ l.a[i] = l.a[j]; break;
        default: /* another unit or part */ l.a[i].part = (uint16_t)(rng_u64(5, 1, dice++) % 4);
        }
        bool good = plays(&l, &m, 2), passes = schedule_check_list(&l, s, 0, &m.p, &e) == OK;
        if (good != passes) {
            schedule_print_list(&l, &t);
            fail_msg("it %s, but the checker says: %s\n%s", good ? "runs" : "does not run", passes ? "fine" : e.text,
                     str_text(&t));
        }
        if (!passes) assert_true(!strncmp(e.text, "rank 0, a", 9));
        refused += !passes;
        harmless += passes;
        xfree(l.a);
        schedule_free(s);
    }
    print_message("%d refused, %d harmless\n", refused, harmless);
    assert_true(refused > 5000 && harmless > 500);
}

/* For those who do not know the model, parts are their phase. */
static void test_join(void **state)
{
    (void)state;
    struct schedule *s =
        parse("schedule x ranks 2 stages 2 microbatches 1\nplace 0 1\n"
              "rank 0: 0GATHER.0 0F0.0 0RELEASE.0 0F0.1 0SF0@1 0RECOMPUTE0.0 0RB0@1 0BW0.1 0REDUCE.0 0BW0.2\n"
              "rank 1: 1RF0@0 1F0 1BW0 1SB0@0\n");
    struct err e = {0};
    struct str t = {0};
    struct schedule *j = schedule_join(s);
    assert_true(schedule_has_parts(s) && !schedule_has_parts(j));
    schedule_print_rank(j, 0, &t);
    assert_string_equal(str_text(&t), "0F0 0SF0@1 0RB0@1 0BW0");
    if (schedule_check(s, NULL, &e)) fail_msg("%s", e.text);
    struct model m;
    struct action_list l;
    model_init(&m, 1, 0, 1, false, zero3);
    s->rank[0].a[3].part = 2; /* the message is sent before part 1 of what it brings */
    assert_int_equal(schedule_list(&l, s, 0, &m.p, &e), OK);
    assert_int_equal(schedule_check_list(&l, s, 0, &m.p, &e), ERR_REQUEST);
    xfree(l.a);
    str_free(&t);
    schedule_free(j);
    schedule_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pass),    cmocka_unit_test(test_by_phase), cmocka_unit_test(test_update),
        cmocka_unit_test(test_written), cmocka_unit_test(test_refused),  cmocka_unit_test(test_damage),
        cmocka_unit_test(test_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
