/* SPDX-License-Identifier: Apache-2.0 */
/* Rewards of an address, asked of a server on loopback: one that answers as it should gets the lines as they are and
 * its numbers count; every way in which one does not is an error that says which, within the limit; and a run of
 * training that meets one saves what was done, and goes on to the same numbers. */
#include "runs.h"

#include "base/clock.h"
#include "hook_server.h"
#include "learn/reward.h"

static const char lines[] = "{\"answer\":\"a\"}\n{\"answer\":\"bb\"}\n{\"answer\":\"ccc\"}\n";
#define HEAD(status, more) "HTTP/1.1 " status "\r\nConnection: close\r\n" more "\r\n"
#define FINE HEAD("200 OK", "")

static int ask_of(const struct hook_server *s, double limit_s, int64_t tries, double reward[3], struct err *e)
{
    struct reward_hook h = {.hook = s->url, .limit_s = limit_s, .tries = tries};
    *e = (struct err){0};
    return reward_ask(&h, lines, sizeof lines - 1, 3, reward, e);
}

static int no_proxies(void **state)
{
    (void)state;
    unsetenv("http_proxy");
    unsetenv("all_proxy");
    unsetenv("ALL_PROXY");
    return 0;
}

static void servers_that_answer(void **state)
{
    (void)state;
    static const struct hook_plan good[] = {
        {.head = FINE, .body = "14\n15\n16\n"},
        {.head = FINE, .body = "\r\n 14\r\n1.5e1\r\n\r\n16"},
        {.head = HEAD("200 OK", "Content-Length: 14\r\n"), .body = "[14, 15.0, 16]and what is no part of it"},
        {.head = HEAD("201 Created", "Transfer-Encoding: chunked\r\n"),
         .body = "4\r\n14\n1\r\n4\r\n5\n16\r\n0\r\n\r\n"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct hook_server s = {0};
        struct err e;
        double r[3] = {0};
        hook_start(&s, &good[i], 1);
        if (ask_of(&s, 3600, 1, r, &e)) fail_msg("%zu: %s", i, e.text);
        assert_true(r[0] == 14 && r[1] == 15 && r[2] == 16);
        size_t n = 0;
        const char *body = hook_body(&s.asked, &n);
        assert_true(body && n == sizeof lines - 1 && !memcmp(body, lines, n));
        assert_true(str_starts(str_text(&s.asked), "POST /score HTTP/1.1\r\n"));
        assert_contains(str_text(&s.asked), "Content-Type: application/jsonl\r\n");
        assert_int_equal(atomic_load(&s.n_asked) <= 1, 1);
        hook_stop(&s);
    }
}

/* The words that say how each went wrong. Limits of an hour are never reached: there the server is heard. */
static void servers_that_do_not(void **state)
{
    (void)state;
    static const struct {
        struct hook_plan plan;
        double limit_s;
        const char *words;
    } bad[] = {
        {{.head = FINE, .body = "1\n2\n"}, 3600, "2 numbers, wanted 3"},
        {{.head = FINE, .body = "1\n2\n3\n4\n"}, 3600, "4 numbers, wanted 3"},
        {{.head = FINE, .body = "[1, 2, 3, 4]"}, 3600, "a list of 4 rewards, wanted 3"},
        {{.head = FINE, .body = "[[1, 2, 3]]"}, 3600, "a list of 1 rewards, wanted 3"},
        {{.head = FINE, .body = "[1, null, 3]"}, 3600, "reward 2 of the list"},
        {{.head = FINE, .body = "{\"rewards\": [1, 2, 3]}"}, 3600, "line 1 is '{\"rewards\": [1, 2, 3]}'"},
        {{.head = FINE, .body = "1\nnan\n3\n"}, 3600, "line 2 is 'nan'"},
        {{.head = FINE, .body = ""}, 3600, "0 numbers, wanted 3"},
        {{.head = HEAD("500 Internal Server Error", ""), .body = "no \033[31mmemory"},
         3600,
         "it answered with 500: no ?[31mmemory"},
        {{.head = HEAD("404 Not Found", "Content-Length: 0\r\n"), .body = ""}, 3600, "it answered with 404"},
        {{.head = HEAD("302 Found", "Location: http://127.0.0.1:9/\r\n"), .body = "1\n2\n3\n"},
         3600,
         "it answered with 302"},
        {{.head = HEAD("204 No Content", ""), .body = ""}, 3600, "0 numbers, wanted 3"},
        /* cut off: the three numbers that came are not believed to be all */
        {{.head = HEAD("200 OK", "Content-Length: 100\r\n"), .body = "1\n2\n3\n"}, 3600, "the answer ended early"},
        {{.head = HEAD("200 OK", "Transfer-Encoding: chunked\r\n"), .body = "6\r\n1\n2\n3\n\r\n"},
         3600,
         "http://127.0.0.1"},
        {{.head = "", .body = ""}, 3600, "no answer"},
        {{.head = "1\n2\n3\n", .body = ""}, 3600, "not an answer of HTTP"},
        {{.head = FINE, .body = "1111111111\n", .endless = true}, 3600, "it answered with more than"},
        {{.head = FINE, .body = "                                ", .endless = true},
         3600,
         "it answered with more than"},
        /* no end of it within the limit */
        {{.holds = true}, 0.2, "no rewards in 0.2 s (train.grpo.reward_limit_s)"},
        {{.head = FINE, .body = "1\n2\n3\n", .holds = true}, 0.2, "no rewards in 0.2 s"},
        {{.head = FINE, .body = " ", .endless = true, .pause_ms = 5}, 0.2, "no rewards in 0.2 s"},
        {{.head = HEAD("500 Oh", ""), .body = "no more and no less than a kilobyte", .endless = true},
         0.2,
         "no rewards in 0.2 s"},
        {{.deaf = true, .holds = true}, 0.2, "no rewards in 0.2 s"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct hook_server s = {0};
        struct err e;
        double r[3];
        hook_start(&s, &bad[i].plan, 1);
        int rc = ask_of(&s, bad[i].limit_s, 1, r, &e);
        if (rc != ERR_IO || !strstr(e.text, bad[i].words)) fail_msg("%zu, '%s': %d %s", i, bad[i].words, rc, e.text);
        assert_null(strchr(e.text, '\033'));
        hook_stop(&s);
    }
}

static void nobody_is_there(void **state)
{
    (void)state;
    struct hook_server s = {0};
    struct hook_plan plan = {.head = FINE, .body = "1\n2\n3\n"};
    struct err e;
    double r[3];
    hook_start(&s, &plan, 1);
    hook_stop(&s);
    int rc = ask_of(&s, 3600, 2, r, &e);
    if (rc != ERR_IO || !strstr(e.text, "cannot connect") || !strstr(e.text, "each time it was asked"))
        fail_msg("%d %s", rc, e.text);
}

static void asked_again(void **state)
{
    (void)state;
    static const struct hook_plan plan[] = {{.head = HEAD("503 Busy", ""), .body = "later"},
                                            {.head = FINE, .body = "1\n2\n"},
                                            {.head = FINE, .body = "1\n2\n3\n"}};
    struct hook_server s = {0};
    struct err e;
    double r[3] = {0};
    hook_start(&s, plan, 3);
    if (ask_of(&s, 3600, 3, r, &e)) fail_msg("%s", e.text);
    assert_true(r[0] == 1 && r[1] == 2 && r[2] == 3);
    hook_stop(&s);
}

static void a_signal_is_heard(void **state)
{
    (void)state;
    struct hook_plan plan = {.holds = true};
    struct hook_server s = {0};
    struct err e = {0};
    double r[3];
    atomic_int give_up = 1;
    hook_start(&s, &plan, 1);
    struct reward_hook h = {.hook = s.url, .limit_s = 3600, .tries = 5, .pause_s = 3600, .give_up = &give_up};
    assert_int_equal(reward_ask(&h, lines, sizeof lines - 1, 3, r, &e), ERR_SIGNAL);
    hook_stop(&s);
}

/* ---- a run ---- */

/* Of each answer's bytes a number that is unlike for most of them. */
static void worth(const char *text, size_t n, struct str *out)
{
    for (size_t at = 0; at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        struct json *line;
        struct err e = {0};
        int count = 0;
        if (!end || json_parse(&line, text + at, (size_t)(end - text) - at, "a line", &e)) break;
        for (const char *c = json_string(json_get(line, "answer"), NULL, ""); *c; c++) count += (unsigned char)*c;
        str_printf(out, "%d\n", count % 7);
        json_free(line);
        at = (size_t)(end - text) + 1;
    }
}

static int learn(const struct folder *f, const char *name, const char *url, const char *steps, int ranks, struct err *e)
{
    char reward[128], data[160];
    struct trainer_result r;
    snprintf(reward, sizeof reward, "train.grpo.reward=%s", url);
    snprintf(data, sizeof data, "data.train=[%s/prompts.jsonl]", f->dir);
    return train_ranks(f, name, ranks,
                       KEYS(data, reward, steps, "train.objective=grpo", "train.grpo.group=4", "batch.global=8",
                            "train.grpo.tokens=12", "train.grpo.reward_tries=1", "precision.recipe=fp32",
                            "run.log_every=1", "parallel.dp_shard=-1"),
                       &r, e);
}

static bool alike(double a, double b, double within) { return fabs(a - b) <= within * (fabs(b) > 1e-6 ? fabs(b) : 1); }

/* n lines, of which numbers of the two runs are `within` of each other, relative; 0: the same. */
static void same_rewards(const struct folder *f, const char *a, const char *b, int wanted, double within)
{
    struct json *x[8], *y[8];
    int n = read_metrics(f, a, x, 8), m = read_metrics(f, b, y, 8), told = 0;
    assert_int_equal(n, m);
    for (int i = 0; i < n; i++) {
        static const char *const names[] = {"step", "loss", "grad_norm", "reward", "answer_tokens"};
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (!alike(json_real(json_get(x[i], names[k]), -1), json_real(json_get(y[i], names[k]), -1), within))
                fail_msg("%s of line %d: %.17g, %.17g", names[k], i, json_real(json_get(x[i], names[k]), -1),
                         json_real(json_get(y[i], names[k]), -1));
        told += json_real(json_get(x[i], "reward"), 0) > 0;
        json_free(x[i]);
        json_free(y[i]);
    }
    assert_true(n == wanted && told > 0);
}

/* Rank 0 of two asks, and the other learns what it was told. At the third step the server counts wrongly; at the same
 * step of a second run it hangs up. */
static void a_run_loses_nothing(void **state)
{
    (void)state;
    static const struct hook_plan fine[] = {{.head = FINE}},
                                  lies[] = {{.head = FINE}, {.head = FINE}, {.head = FINE, .body = "1\n"}},
                                  leaves[] = {{.head = FINE}, {.head = FINE}, {.head = "", .body = ""}};
    static const struct {
        const struct hook_plan *plan;
        const char *name, *words;
    } rows[] = {{lies, "lies", "1 numbers, wanted 8"}, {leaves, "leaves", "mpty reply"}};
    struct folder f;
    struct hook_server s = {.score = worth};
    struct err e;
    struct str prompts = {0};
    char path[160];
    folder_open(&f);
    for (int i = 0; i < 9; i++) str_printf(&prompts, "{\"prompt\": \"see %d: \"}\n", i);
    snprintf(path, sizeof path, "%s/prompts.jsonl", f.dir);
    assert_int_equal(fs_write_atomic(path, prompts.p, prompts.n, &e), OK);
    str_free(&prompts);
    hook_start(&s, fine, 1);
    if (learn(&f, "whole", s.url, "run.steps=4", 2, &e)) fail_msg("%s", e.text);
    hook_stop(&s);
    for (int ranks = 1; ranks <= 2; ranks++) {
        hook_start(&s, fine, 1);
        if (learn(&f, ranks == 1 ? "one" : "two", s.url, "run.steps=1", ranks, &e)) fail_msg("%s", e.text);
        hook_stop(&s);
    }
    same_rewards(&f, "one", "two", 1, 1e-5); /* sums of ranks are rounded in another order */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hook_start(&s, rows[i].plan, 3);
        int rc = learn(&f, rows[i].name, s.url, "run.steps=4", 2, &e);
        hook_stop(&s);
        if (rc != ERR_IO || !strstr(e.text, "step 2 was saved, and nothing is lost") || !strstr(e.text, rows[i].words))
            fail_msg("%s: %d %s", rows[i].name, rc, e.text);
        hook_start(&s, fine, 1);
        if (learn(&f, rows[i].name, s.url, "run.steps=4", 2, &e)) fail_msg("%s", e.text);
        hook_stop(&s);
        same_rewards(&f, "whole", rows[i].name, 4, 0);
    }
    folder_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(servers_that_answer), cmocka_unit_test(servers_that_do_not),
        cmocka_unit_test(nobody_is_there),     cmocka_unit_test(asked_again),
        cmocka_unit_test(a_signal_is_heard),   cmocka_unit_test(a_run_loses_nothing),
    };
    return cmocka_run_group_tests(tests, no_proxies, NULL);
}
