/* SPDX-License-Identifier: Apache-2.0 */
/* The server from a client's side: what it answers is what the model says, whole and streamed; what is wrong is refused
 * by name; and clients that send garbage, go away in the middle, never read or come all at once stop nobody else. */
#include "serve/house.h"

#include "base/json.h"

/* The answer's JSON; fails unless the status is as wanted. */
static struct json *ask(const struct house *h, const char *path, const char *body, int wanted)
{
    int status;
    struct err e = {0};
    struct json *v;
    char *text = ask_with(h, "POST", path, "", body, &status), *start = strstr(text, "\r\n\r\n");
    if (status != wanted) fail_msg("%s: wanted %d, got %.400s", body, wanted, text);
    if (json_parse(&v, start + 4, strlen(start + 4), "answer", &e)) fail_msg("%s: %s", e.text, text);
    xfree(text);
    return v;
}

static const struct json *choice(const struct json *v, size_t i) { return json_at(json_get(v, "choices"), i); }
static const char *text_of(const struct json *v, size_t i)
{
    return json_string(json_get(choice(v, i), "text"), NULL, NULL);
}

/* Texts of all events put together, and how many there were; headers and the sizes of pieces are passed over. */
static char *streamed(const struct house *h, const char *path, const char *body, int *events)
{
    int status;
    struct str all = {0};
    char *text = ask_with(h, "POST", path, "", body, &status), *at = text;
    assert_int_equal(status, 200);
    assert_non_null(strstr(text, "data: [DONE]\n\n"));
    for (*events = 0; (at = strstr(at, "data: {")); ++*events) {
        struct json *v;
        struct err e = {0};
        char *end = strstr(at, "\n\n");
        at += 6;
        if (json_parse(&v, at, (size_t)(end - at), "event", &e)) fail_msg("%s: %.*s", e.text, (int)(end - at), at);
        const struct json *c = choice(v, 0);
        str_puts(&all, json_string(json_get(c, "text"), NULL,
                                   json_string(json_get(json_get(c, "delta"), "content"), NULL, "")));
        json_free(v);
    }
    char *out = xstrdup(str_text(&all));
    str_free(&all);
    xfree(text);
    return out;
}

#define PROMPT "0123456789 0123456789 0123456789 0123456789"

static void test_answers(void **state)
{
    (void)state;
    struct house h;
    int events;
    open_house(&h, NULL, 50);
    struct json
        *a = ask(&h, "/v1/completions", "{\"prompt\":\"" PROMPT "\",\"max_tokens\":30,\"temperature\":0}", 200),
        *b = ask(&h, "/v1/completions",
                 "{\"model\":\"toy\",\"prompt\":[\"" PROMPT "\",\"5\"],\"max_tokens\":30,\"temperature\":0,"
                 "\"n\":2,\"stop\":null,\"user\":\"me\",\"best_of\":1,\"num_beams\":1,\"use_beam_search\":false}",
                 200);
    assert_string_equal(text_of(a, 0), text_of(b, 0));
    assert_string_equal(text_of(a, 0), text_of(b, 1));
    assert_string_equal(text_of(b, 2), text_of(b, 3));
    assert_int_equal(json_size(json_get(b, "choices")), 4);
    const struct json *u = json_get(b, "usage");
    assert_int_equal(json_int(json_get(u, "prompt_tokens"), 0), 44);
    assert_int_equal(json_int(json_get(json_get(u, "prompt_tokens_details"), "cached_tokens"), 0), 32);
    char *s = streamed(&h, "/v1/completions",
                       "{\"prompt\":\"" PROMPT "\",\"max_tokens\":30,\"temperature\":0,\"stream\":true,"
                       "\"stream_options\":{\"include_usage\":true}}",
                       &events);
    assert_string_equal(s, text_of(a, 0));
    assert_true(events > 3);
    xfree(s);
    /* The same seed the same text, another seed (nearly surely) another; in a chat's stream as well. */
    const char *const drawn[] = {"{\"messages\":[{\"role\":\"user\",\"content\":\"" PROMPT
                                 "\"}],\"max_tokens\":40,\"seed\":3,\"stream\":true}",
                                 "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" PROMPT
                                 "\"}]}],\"max_tokens\":40,\"seed\":3,\"stream\":true}",
                                 "{\"messages\":[{\"role\":\"user\",\"content\":\"" PROMPT
                                 "\"}],\"max_tokens\":40,\"seed\":4,\"stream\":true}"};
    char *d[3];
    for (int i = 0; i < 3; i++) d[i] = streamed(&h, "/v1/chat/completions", drawn[i], &events);
    assert_string_equal(d[0], d[1]);
    assert_string_not_equal(d[0], d[2]);
    for (int i = 0; i < 3; i++) xfree(d[i]);
    json_free(a);
    json_free(b);
    close_house(&h);
}

static void test_logprobs(void **state)
{
    (void)state;
    struct house h;
    int32_t ids[sizeof PROMPT];
    double want[sizeof PROMPT];
    int64_t n = (int64_t)sizeof PROMPT - 1;
    open_house(&h, NULL, 50);
    for (int64_t i = 0; i < n; i++) ids[i] = PROMPT[i];
    written_logprobs(&h.x, ids, n, want);
    struct json *v =
        ask(&h, "/v1/completions", "{\"prompt\":\"" PROMPT "\",\"max_tokens\":0,\"echo\":true,\"logprobs\":2}", 200);
    const struct json *l = json_get(choice(v, 0), "logprobs"), *of = json_get(l, "token_logprobs");
    assert_string_equal(text_of(v, 0), PROMPT);
    assert_int_equal(json_size(of), n);
    assert_int_equal(json_kind(json_at(of, 0)), JSON_NULL);
    for (size_t i = 1; i < (size_t)n; i++) {
        assert_true(fabs(json_real(json_at(of, i), 1) - want[i]) < 1e-4);
        assert_int_equal(json_int(json_at(json_get(l, "text_offset"), i), -1), i);
        assert_int_equal(json_size(json_at(json_get(l, "top_logprobs"), i)), 2);
    }
    json_free(v);
    close_house(&h);
}

static void test_wrong_requests(void **state)
{
    (void)state;
    struct house h;
    int status;
    open_house(&h, "a key of ours", 50);
    static const char *const wrong[] = {"",
                                        "{",
                                        "[]",
                                        "null",
                                        "{}",
                                        "{\"prompt\":5}",
                                        "{\"prompt\":[]}",
                                        "{\"prompt\":[67]}",
                                        "{\"prompt\":[-1]}",
                                        "{\"prompt\":\"abc\"}",
                                        "{\"prompt\":\"1\",\"max_tokens\":-1}",
                                        "{\"prompt\":\"1\",\"max_tokens\":\"9\"}",
                                        "{\"prompt\":\"1\",\"temperature\":-1}",
                                        "{\"prompt\":\"1\",\"top_p\":0}",
                                        "{\"prompt\":\"1\",\"n\":17}",
                                        "{\"prompt\":\"1\",\"stop\":[\"\"]}",
                                        "{\"prompt\":\"1\",\"stop\":5}",
                                        "{\"prompt\":\"1\",\"logprobs\":99}",
                                        "{\"prompt\":\"1\",\"model\":5}",
                                        "{\"prompt\":\"1\",\"logit_bias\":{\"5\":\"1\"}}",
                                        "{\"prompt\":\"1\",\"suffix\":\"2\"}",
                                        "{\"prompt\":\"1\",\"best_of\":2}",
                                        "{\"prompt\":\"1\",\"use_beam_search\":true}",
                                        "{\"prompt\":\"1\",\"num_beams\":4}",
                                        "{\"prompt\":\"1\",\"beam_width\":4}",
                                        "{\"prompt\":\"1\",\"stream\":1}",
                                        "{\"prompt\":\"\\u0000\"}",
                                        "{\"prompt\":\"1\",\"seed\":1.5}",
                                        "{\"prompt\":[[1],\"2\",{}]}"};
    const char *with = "Authorization: Bearer a key of ours\r\n";
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *text = ask_with(&h, "POST", "/v1/completions", with, wrong[i], &status);
        if (status != 400 || !strstr(text, "\"error\":{\"message\":\"")) fail_msg("%s: %.300s", wrong[i], text);
        xfree(text);
    }
    static const char *const chats[] = {"{\"messages\":[]}",
                                        "{\"messages\":[{\"content\":\"1\"}]}",
                                        "{\"messages\":[{\"role\":\"user\",\"content\":7}]}",
                                        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
                                        "{\"messages\":[{\"role\":\"user\",\"content\":\"1\"}],\"top_logprobs\":1}",
                                        "{\"messages\":[{\"role\":\"user\",\"content\":\"1\"}],\"tools\":[{}]}"};
    for (size_t i = 0; i < sizeof chats / sizeof *chats; i++) {
        xfree(ask_with(&h, "POST", "/v1/chat/completions", with, chats[i], &status));
        if (status != 400) fail_msg("%s: %d", chats[i], status);
    }
    static const struct {
        const char *method, *path, *headers, *body;
        int status;
    } asked[] =
        {{"POST", "/v1/completions", "", "{\"prompt\":\"1\"}", 401},
         {"POST", "/v1/completions", "Authorization: Bearer a key of our\r\n", "{\"prompt\":\"1\"}", 401},
         {"GET", "/v1/models", "", NULL, 401},
         {"GET", "/metrics", "", NULL, 401},
         {"GET", "/", "", NULL, 200},
         {"GET", "/health", "", NULL, 200},
         {"GET", "/v1/models", "Authorization: Bearer a key of ours\r\n", NULL, 200},
         {"GET", "/v1/completions", "Authorization: Bearer a key of ours\r\n", NULL, 405},
         {"POST", "/v1/models", "Authorization: Bearer a key of ours\r\n", "{}", 405},
         {"PUT", "/v1/models", "Authorization: Bearer a key of ours\r\n", NULL, 405},
         {"GET", "/v1", "Authorization: Bearer a key of ours\r\n", NULL, 404},
         {"GET", "v1/models", "Authorization: Bearer a key of ours\r\n", NULL, 400},
         {"POST", "/v1/completions", "Authorization: Bearer a key of ours\r\nContent-Type: text/plain\r\n", NULL, 415},
         {"POST", "/v1/completions",
          "Authorization: Bearer a key of ours\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n", NULL,
          413}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        xfree(ask_with(&h, asked[i].method, asked[i].path, asked[i].headers, asked[i].body, &status));
        if (status != asked[i].status)
            fail_msg("%s %s: wanted %d, got %d", asked[i].method, asked[i].path, asked[i].status, status);
    }
    close_house(&h);
    struct err e = {0};
    struct service *s;
    struct service_config c = {.address = "0.0.0.0"};
    assert_int_equal(service_open(&s, &c, &e), ERR_REQUEST); /* for everybody, and no key */
}

/* ---- clients that mean ill, beside one that does not ---- */

enum { CLIENTS = 24 };
struct client {
    const struct house *h;
    int i;
    pthread_t thread;
    char *said;
};

static void *be_a_client(void *ctx)
{
    struct client *c = ctx;
    struct str s = {0};
    int fd, status;
    char byte[200];
    switch (c->i % 6) {
    case 0: /* goes away in the middle of a stream */
        fd = join(c->h);
        put_request(&s, "POST", "/v1/completions", "",
                    "{\"prompt\":\"" PROMPT "\",\"n\":16,\"max_tokens\":400,\"ignore_eos\":true,\"stream\":true}");
        send_text(fd, s.p, s.n);
        (void)recv(fd, byte, sizeof byte, 0);
        close(fd);
        break;
    case 1: /* goes away before the answer */
        fd = join(c->h);
        put_request(&s, "POST", "/v1/completions", "",
                    "{\"prompt\":\"" PROMPT "\",\"n\":16,\"max_tokens\":400,\"ignore_eos\":true}");
        send_text(fd, s.p, s.n);
        close(fd);
        break;
    case 2: /* garbage, half a request */
        fd = join(c->h);
        for (size_t k = 0; k < sizeof byte; k++) byte[k] = (char)rng_u32(9, (uint64_t)c->i, k);
        send_text(fd, byte, sizeof byte);
        close(fd);
        fd = join(c->h);
        put_request(&s, "POST", "/v1/completions", "", "{\"prompt\":\"1\"}");
        send_text(fd, s.p, s.n / 2);
        close(fd);
        break;
    case 3: /* a stream that is read late */
        fd = join(c->h);
        put_request(&s, "POST", "/v1/completions", "",
                    "{\"prompt\":\"1\",\"max_tokens\":60,\"ignore_eos\":true,\"stream\":true,\"logprobs\":20}");
        send_text(fd, s.p, s.n);
        usleep(300000);
        xfree(read_all(fd));
        break;
    default: /* means well */
        c->said = ask_with(c->h, "POST", "/v1/completions", "",
                           "{\"prompt\":\"" PROMPT "\",\"max_tokens\":30,\"temperature\":0}", &status);
        if (status != 200) xfree(c->said), c->said = NULL;
    }
    str_free(&s);
    return NULL;
}

static void test_all_at_once(void **state)
{
    (void)state;
    struct house h;
    struct client c[CLIENTS];
    open_house(&h, NULL, 400);
    struct json *v = ask(&h, "/v1/completions", "{\"prompt\":\"" PROMPT "\",\"max_tokens\":30,\"temperature\":0}", 200);
    struct str text = {0};
    struct json_out o = {.s = &text};
    json_begin_object(&o, NULL);
    json_put_string(&o, "text", text_of(v, 0)); /* as it is spelt in an answer */
    for (int i = 0; i < CLIENTS; i++) {
        c[i] = (struct client){.h = &h, .i = i};
        assert_int_equal(pthread_create(&c[i].thread, NULL, be_a_client, &c[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++) pthread_join(c[i].thread, NULL);
    for (int i = 0; i < CLIENTS; i++) {
        if (i % 6 > 3 && (!c[i].said || !strstr(c[i].said, str_text(&text) + 1)))
            fail_msg("client %d was told %.300s, not %s", i, c[i].said ? c[i].said : "nothing", str_text(&text));
        xfree(c[i].said);
    }
    while (metric(&h, "tutti_requests_lost_total") < 2 * CLIENTS / 6) usleep(10000); /* each is noticed */
    while (metric(&h, "tutti_answers_writing")) usleep(10000);
    str_free(&text);
    json_free(v);
    close_house(&h);
}

enum { UNREAD = 3 };
/* Their 48 answers fill the queue, and are never read. */
static void ask_and_not_read(const struct house *h, int fd[UNREAD])
{
    struct str s = {0};
    put_request(&s, "POST", "/v1/completions", "",
                "{\"prompt\":\"1\",\"n\":16,\"max_tokens\":400,\"ignore_eos\":true,\"stream\":true,\"logprobs\":20}");
    for (int i = 0; i < UNREAD; i++) {
        fd[i] = join(h);
        send_text(fd[i], s.p, s.n);
    }
    str_free(&s);
}

static void test_full_queue(void **state)
{
    (void)state;
    struct house h;
    int status, fd[UNREAD];
    open_house(&h, NULL, 48);
    ask_and_not_read(&h, fd);
    bool busy = false;
    int answered = 0;
    /* Or what is asked waits for its turn, and finds the queue empty after it. */
    while (metric(&h, "tutti_answers_writing") + metric(&h, "tutti_answers_waiting") < 48) usleep(5000);
    for (int k = 0; k < 200 && !busy; k++) {
        char *text = ask_with(&h, "POST", "/v1/completions", "", "{\"prompt\":\"1\",\"max_tokens\":1}", &status);
        busy = status == 429;
        if (busy) assert_non_null(strstr(text, "Retry-After: 1"));
        else if (status != 200) fail_msg("%s", text);
        else answered++;
        xfree(text);
    }
    assert_true(busy);
    for (int i = 0; i < UNREAD; i++) close(fd[i]);
    close_house(&h);
}

/* Each ends: late, lost because it is not read, or done. */
static void test_unread_answers(void **state)
{
    (void)state;
    struct house h;
    int fd[UNREAD];
    open_house_by(&h, &(struct house_rules){.queue = 48, .time_s = 2});
    ask_and_not_read(&h, fd);
    while (metric(&h, "tutti_requests_late_total") + metric(&h, "tutti_requests_lost_total") +
               metric(&h, "tutti_requests_done_total") <
           UNREAD)
        usleep(20000);
    for (int i = 0; i < UNREAD; i++) close(fd[i]);
    close_house(&h);
}

/* What may never be had is refused at once, and the memory of log-probabilities that wait is counted: of one request,
 * and of all together. */
static void test_sizes(void **state)
{
    (void)state;
    struct house h;
    int status;
    open_house_by(&h, &(struct house_rules){.queue = 20, .told_bytes = 900 << 10});
    static const struct {
        const char *body, *why;
        int status;
    } asked[] = {
        {"{\"prompt\":[\"1\",\"2\"],\"n\":11,\"max_tokens\":1}", "n: 11 answers to 2 prompts are 22", 400},
        {"{\"prompt\":[\"1\",\"2\"],\"n\":10,\"max_tokens\":1}", "\"index\":19", 200},
        {"{\"prompt\":\"1\",\"n\":4,\"max_tokens\":400,\"ignore_eos\":true,\"logprobs\":20}", "logprobs: of 4 answers",
         400},
        {"{\"prompt\":\"1\",\"n\":4,\"max_tokens\":20,\"ignore_eos\":true,\"logprobs\":20}", "top_logprobs", 200},
        {"{\"prompt\":\"1\",\"n\":4,\"max_tokens\":30,\"ignore_eos\":true,\"logprobs\":20,\"stream\":true}", "[DONE]",
         200},
        {"{\"prompt\":\"1\",\"n\":4,\"max_tokens\":400,\"ignore_eos\":true}", "\"index\":3", 200},
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        char *text = ask_with(&h, "POST", "/v1/completions", "", asked[i].body, &status);
        if (status != asked[i].status || !strstr(text, asked[i].why)) fail_msg("%s: %.600s", asked[i].body, text);
        xfree(text);
    }
    struct str s = {0};
    put_request(&s, "POST", "/v1/completions", "",
                "{\"prompt\":\"1\",\"n\":1,\"max_tokens\":400,\"ignore_eos\":true,\"logprobs\":20}");
    bool busy = false;
    for (int k = 0; k < 200 && !busy; k++) {
        long done = metric(&h, "tutti_requests_done_total");
        int fd = join(&h); /* one that takes most of the memory, for as long as it is written */
        send_text(fd, s.p, s.n);
        while (!metric(&h, "tutti_answers_writing") && metric(&h, "tutti_requests_done_total") == done) usleep(1000);
        char *text = ask_with(&h, "POST", "/v1/completions", "",
                              "{\"prompt\":\"1\",\"max_tokens\":300,\"logprobs\":20}", &status);
        busy = status == 429 && strstr(text, "log-probabilities are under way");
        if (!busy && status != 200) fail_msg("%s", text);
        xfree(text);
        xfree(read_all(fd));
    }
    assert_true(busy);
    char *text =
        ask_with(&h, "POST", "/v1/completions", "", "{\"prompt\":\"1\",\"max_tokens\":300,\"logprobs\":20}", &status);
    while (status == 429) { /* its memory is given back when the server is done with its client */
        xfree(text);
        usleep(10000);
        text = ask_with(&h, "POST", "/v1/completions", "", "{\"prompt\":\"1\",\"max_tokens\":300,\"logprobs\":20}",
                        &status);
    }
    if (status != 200) fail_msg("%s", text);
    xfree(text);
    str_free(&s);
    close_house(&h);
}

/* ---- clients that hold places ---- */

enum { HOLDERS = 40 };
struct holder {
    const struct house *h;
    atomic_bool *over;
    atomic_int *sent_away; /* how often all of them were */
    pthread_t thread;
};

/* Sends a byte of a request now and then, and comes again when it is sent away. */
static void *hold_a_place(void *ctx)
{
    struct holder *x = ctx;
    while (!atomic_load(x->over)) {
        int fd = join(x->h);
        const char *head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
        send_text(fd, head, strlen(head));
        while (!atomic_load(x->over) && send(fd, "x", 1, MSG_NOSIGNAL) == 1) usleep(100000);
        atomic_fetch_add(x->sent_away, 1);
        close(fd);
    }
    return NULL;
}

/* Twice as many as there are places send a byte now and then: who has the key gets through, again and again. */
static void test_holders(void **state)
{
    (void)state;
    struct house h;
    struct holder x[HOLDERS];
    atomic_bool over = false;
    atomic_int sent_away = 0;
    int status;
    open_house_by(&h, &(struct house_rules){.key = "a key of ours", .queue = 20, .clients = 20});
    for (int i = 0; i < HOLDERS; i++) {
        x[i] = (struct holder){.h = &h, .over = &over, .sent_away = &sent_away};
        assert_int_equal(pthread_create(&x[i].thread, NULL, hold_a_place, &x[i]), 0);
    }
    while (!atomic_load(&sent_away)) usleep(10000); /* until there is no place for all of them */
    int right = 0;
    for (int k = 0; k < 5; k++) {
        char *text = ask_with(&h, "POST", "/v1/completions", "Authorization: Bearer a key of ours\r\n",
                              "{\"prompt\":\"1\",\"max_tokens\":2}", &status);
        right += status == 200;
        xfree(text);
    }
    atomic_store(&over, true);
    for (int i = 0; i < HOLDERS; i++) pthread_join(x[i].thread, NULL);
    assert_int_equal(right, 5);
    close_house(&h);
}

/* A request is there in time or not at all, however often a byte of it comes: its head, and its body. */
static void test_slow_requests(void **state)
{
    (void)state;
    struct house h;
    static const char *const heads[] =
        {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
         "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
         "60000\r\n\r\n"};
    open_house_by(&h, &(struct house_rules){.queue = 20, .request_s = 1});
    for (int i = 0; i < 2; i++) {
        int fd = join(&h), sent = 0;
        send_text(fd, heads[i], strlen(heads[i]));
        while (send(fd, " ", 1, MSG_NOSIGNAL) == 1) { /* until it is cut off */
            usleep(100000);
            if (++sent > 600) fail_msg("a request that never comes to its end is waited for");
        }
        close(fd);
    }
    close_house(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),     cmocka_unit_test(test_logprobs),   cmocka_unit_test(test_wrong_requests),
        cmocka_unit_test(test_all_at_once), cmocka_unit_test(test_full_queue), cmocka_unit_test(test_unread_answers),
        cmocka_unit_test(test_sizes),       cmocka_unit_test(test_holders),    cmocka_unit_test(test_slow_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
