/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* Every refusal of a configuration says what to do, and that works: of all pairs of the grid (grid.h) that may not
 * meet, every way that the refusal names is gone (advice.h); where the next refusal follows, its first, and so on,
 * until the configuration is taken, a few times at most and never back to where it was. What is taken is trained then:
 * one of each kind of refusals, and by default as many kinds as a commit draws.
 *
 *   TUTTI_GRID        "all": of every kind one is trained
 *   TUTTI_GRID_LOUD   each refusal is told, with where its ways lead */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "advice.h"
#include "base/hash.h"
#include "covering.h"
#include "drawn.h"
#include "verify/grid_row.h"

enum { MOST_STEPS = 6, MOST_KINDS = 1024, DRAWN = 12 };

struct seen {
    uint64_t kind[MOST_KINDS];
    int n;
};

struct walk {
    struct grid g;
    struct seen kinds, wrong;
    struct str said;
    int refused, ways, trained, unlike, longest;
    bool all;
    uint64_t seed;
};

/* false: it was there. */
static bool add_seen(struct seen *s, uint64_t kind)
{
    for (int i = 0; i < s->n; i++)
        if (s->kind[i] == kind) return false;
    CHECK(s->n < MOST_KINDS, "more than %d kinds", MOST_KINDS);
    s->kind[s->n++] = kind;
    return true;
}

/* Of a text without its numbers and names of tensors. */
static uint64_t kind_of(const char *text)
{
    char out[sizeof((struct err *)NULL)->text];
    size_t n = 0;
    for (; *text && n + 1 < sizeof out; text++)
        if (!strchr("0123456789", *text)) out[n++] = *text;
    return hash64(out, n);
}

static uint64_t state_of(const struct asked *q)
{
    uint64_t all = hash64(&q->ranks, sizeof q->ranks);
    for (int i = 0; i < q->n; i++) all += hash64(q->words[i], strlen(q->words[i])); /* in any order */
    return all;
}

/* Whether the configuration is taken, after what its refusals advise first; q as it is then. */
static bool leads_on(struct asked *q, struct arena *a, struct str *path)
{
    uint64_t been[MOST_STEPS + 1];
    for (int step = 0; step <= MOST_STEPS; step++) {
        struct err e = {0};
        struct advice advice;
        char why[200] = "";
        been[step] = state_of(q);
        for (int i = 0; i < step; i++)
            if (been[i] == been[step]) return str_puts(path, "    and that is where it was: it goes round\n"), false;
        if (asked_may(q, &e)) return true;
        str_printf(path, "    %s\n", e.text);
        if (!advice_read(e.text, &advice, why)) return str_printf(path, "    says nothing to do: %s\n", why), false;
        q->n = advice_follow(&advice.way[0], a, q->words, q->n, 2 * MOST_WORDS, &q->ranks);
    }
    str_printf(path, "    and after %d steps it is refused still\n", MOST_STEPS);
    return false;
}

static void tell(struct walk *w, const char *of, const char *text, const char *path)
{
    if (add_seen(&w->wrong, kind_of(text))) str_printf(&w->said, "%s\n  %s\n%s", of, text, path);
}

/* All ways of a refusal. */
static void follow(struct walk *w, const struct asked *q, const char *of, const char *text)
{
    struct arena *a = arena_new();
    struct advice advice;
    char why[200] = "";
    w->refused++;
    bool told = getenv("TUTTI_GRID_LOUD") != NULL, is_new = add_seen(&w->kinds, kind_of(text));
    if (told) fprintf(stderr, "%s\n  %s\n", of, text);
    if (!advice_read(text, &advice, why)) tell(w, of, text, arena_printf(a, "    says nothing to do: %s\n", why));
    for (int i = 0; i < advice.n && !*why; i++) {
        struct asked after = *q;
        struct str path = {0};
        str_printf(&path, "  way %d of %d\n", i + 1, advice.n);
        after.n = advice_follow(&advice.way[i], a, after.words, after.n, 2 * MOST_WORDS, &after.ranks);
        w->ways++;
        bool taken = leads_on(&after, a, &path);
        if (told) fprintf(stderr, "%s", str_text(&path));
        if (!taken) tell(w, of, arena_printf(a, "%d: %s", i, text), str_text(&path));
        if (taken && is_new && i == 0 && (w->all || (hash64(text, strlen(text)) ^ w->seed) % MOST_KINDS < DRAWN * 8)) {
            struct str out = {0};
            w->trained++;
            enum outcome_of_row is = asked_try(&after, 1, &out);
            w->unlike += is != EQUAL;
            if (is == BROKEN)
                tell(w, of, text, arena_printf(a, "  what it advises does not train:\n%s", str_text(&out)));
            str_free(&out);
        }
        str_free(&path);
    }
    arena_free(a);
}

static bool may(void *ctx, const int *row)
{
    struct walk *w = ctx;
    struct arena *a = arena_new();
    struct asked q;
    struct err e = {0};
    asked_row(&q, &w->g, a, row);
    bool taken = asked_may(&q, &e);
    if (!taken) follow(w, &q, grid_say(&w->g, a, row), e.text);
    arena_free(a);
    return taken;
}

static void refused(void *ctx, const int *row, const int *factor) { (void)ctx, (void)row, (void)factor; }

static void test_what_is_advised_works(void **state)
{
    (void)state;
    struct walk w = {.seed = drawn_seed()};
    const char *what = getenv("TUTTI_GRID");
    struct covering_factor factor[GRID_FACTORS];
    int row[GRID_FACTORS] = {0};
    w.all = what && !strcmp(what, "all");
    grid_open(&w.g);
    for (int f = 0; f < GRID_FACTORS; f++) factor[f] = (struct covering_factor){w.g.n[f], 0};
    struct covering c =
        {.factor = factor, .n = GRID_FACTORS, .strength = 2, .seed = 1, .may = may, .refused = refused, .ctx = &w};
    covering_open(&c);
    while (covering_next(&c, row)) continue;
    covering_close(&c);
    grid_close(&w.g);
    print_message("%d refusals of %d kinds, %d ways, %d trained, of which %d round more than their bounds\n", w.refused,
                  w.kinds.n, w.ways, w.trained, w.unlike);
    if (w.said.n) {
        fputs(str_text(&w.said), stderr);
        fail_msg("%d kinds of refusals advise what does not work", w.wrong.n);
    }
    str_free(&w.said);
}

/* The reader itself: what is no advice is not read as some. */
static void test_what_can_be_followed(void **state)
{
    (void)state;
    static const struct {
        const char *text, *before, *after;
        int ways, way, ranks;
    } cases[] = {
        {"command line: parallel.cp: no; choose 2 (-n 4), or precision.recipe: bf16 and precision.layers: {}",
         "a=1 parallel.cp=3", "a=1 parallel.cp=2", 2, 0, 4},
        {"command line: parallel.cp: no; choose 2 (-n 4), or precision.recipe: bf16 and precision.layers: {}",
         "a=1 parallel.cp=3", "a=1 parallel.cp=3 precision.recipe=bf16 precision.layers={}", 2, 1, 3},
        {"command line: memory.offload: no; leave params out", "memory.offload=[optimizer,params,master]",
         "memory.offload=[optimizer,master]", 1, 0, 3},
        {"x.yaml:3: data.pack: no; choose padded, or leave it out", "data.pack=joined a=1", "a=1", 2, 1, 3},
        {"default: precision.layers[0].recipe: no; give these layers fp8-current, or choose parallel.servers: 0",
         "precision.layers={layers.1.*: mxfp8}", "precision.layers={layers.1.*: fp8-current}", 2, 0, 3},
        {"default: batch.micro: no; the nearest that fits is 3", "batch.micro=4", "batch.micro=3", 1, 0, 3},
        {"default: parallel.tp: no; choose 2, or start 4 ranks (-n)", "parallel.tp=4", "parallel.tp=4", 2, 1, 4},
        {"default: parallel.tp: no; choose at most that", NULL, NULL, 0, 0, 0},
        {"default: model.family: no; choose a decoder", NULL, NULL, 0, 0, 0},
        {"default: memory.offload: no; leave out one of the two", NULL, NULL, 0, 0, 0},
        {"default: parallel.pp_layers: the stages have 4 layers together, the model has 5", NULL, NULL, 0, 0, 0},
        {"layers: no; choose 2", NULL, NULL, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_new();
        struct advice advice;
        char why[200] = "", *words[MOST_WORDS];
        struct str got = {0};
        int ranks = 3;
        bool reads = advice_read(cases[i].text, &advice, why);
        if (reads != (cases[i].ways > 0)) fail_msg("%s: %s", cases[i].text, why);
        if (reads) {
            assert_int_equal(advice.n, cases[i].ways);
            int n = 0;
            for (char *w = strtok(arena_strdup(a, cases[i].before), " "); w; w = strtok(NULL, " ")) {
                if (n && words[n - 1][strlen(words[n - 1]) - 1] == ':')
                    words[n - 1] = arena_printf(a, "%s %s", words[n - 1], w);
                else words[n++] = w;
            }
            n = advice_follow(&advice.way[cases[i].way], a, words, n, MOST_WORDS, &ranks);
            for (int k = 0; k < n; k++) str_printf(&got, "%s%s", k ? " " : "", words[k]);
            assert_string_equal(str_text(&got), cases[i].after);
            assert_int_equal(ranks, cases[i].ranks);
        }
        str_free(&got);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_can_be_followed),
        cmocka_unit_test(test_what_is_advised_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
