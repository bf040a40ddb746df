/* SPDX-License-Identifier: Apache-2.0 */
/* A server under load: 64 clients at once, each doing the same thing again and again. Some ask and read, whole and as a
 * stream; some read late or hardly ever, go away in the middle, send garbage, bodies that are too large or nested too
 * deep, headers without end. Those that mean well are answered, rightly, all the while. Afterwards nothing is left:
 * every request is counted among those at an end, every page is given back, no file is open that was not before, and
 * memory has not grown with the number of requests.
 *
 *     test_load [ROUNDS]      each client's; by default few */
#include "serve/house.h"

#include <dirent.h>

#include "base/json.h"
#include "sanitized.h"

enum { CLIENTS = 64, KINDS = 8, ROUNDS = 5, BODY = 1 << 16, GROWTH_MIB = 48 };
#define PROMPT "0123456789 0123456789 0123456789"
#define TELL "{\"prompt\":\"" PROMPT "\",\"max_tokens\":0,\"echo\":true,\"logprobs\":0}"

struct client {
    const struct house *h;
    const double *want; /* log-probabilities of the prompt */
    int i, rounds;
    pthread_t thread;
    atomic_int *right; /* answers that were as they had to be */
    char wrong[200];
};

static void say_wrong(struct client *c, const char *what, const char *text)
{
    if (!c->wrong[0]) snprintf(c->wrong, sizeof c->wrong, "%s: %.150s", what, text);
}

/* ---- what clients do ---- */

static void expect_logprobs(struct client *c, const char *text)
{
    const char *body = strstr(text, "\r\n\r\n");
    struct json *v = NULL;
    struct err e = {0};
    if (!body || json_parse(&v, body + 4, strlen(body + 4), "answer", &e)) {
        say_wrong(c, "no JSON", text);
        return;
    }
    const struct json *of = json_get(json_get(json_at(json_get(v, "choices"), 0), "logprobs"), "token_logprobs");
    bool same = json_size(of) == sizeof PROMPT - 1;
    for (size_t i = 1; same && i + 1 < sizeof PROMPT; i++)
        same = fabs(json_real(json_at(of, i), 1) - c->want[i]) < 1e-3; /* products of other rows: rounding */
    if (same) atomic_fetch_add(c->right, 1);
    else say_wrong(c, "other log-probabilities", text);
    json_free(v);
}

static void ask_whole(struct client *c)
{
    int status;
    char *text = ask_with(c->h, "POST", "/v1/completions", "", TELL, &status);
    if (status == 200) expect_logprobs(c, text);
    else if (status != 429) say_wrong(c, "not answered", text);
    xfree(text);
}

static int begin_stream(struct client *c, int tokens)
{
    struct str s = {0}, body = {0};
    int fd = join(c->h);
    str_printf(&body, "{\"prompt\":\"%d" PROMPT "\",\"max_tokens\":%d,\"ignore_eos\":true,\"stream\":true,\"n\":2}",
               c->i, tokens);
    put_request(&s, "POST", "/v1/completions", "", str_text(&body));
    send_text(fd, s.p, s.n);
    str_free(&s);
    str_free(&body);
    return fd;
}

static void ask_stream(struct client *c)
{
    char *text = read_all(begin_stream(c, 8));
    if (!strncmp(text, "HTTP/1.1 200", 12)) {
        if (strstr(text, "data: [DONE]\n\n") && !strstr(text, "\"error\"")) atomic_fetch_add(c->right, 1);
        else say_wrong(c, "a stream that is cut", text + strlen(text) / 2);
    } else if (strncmp(text, "HTTP/1.1 429", 12)) {
        say_wrong(c, "a stream that is refused", text);
    }
    xfree(text);
}

static void read_slowly(struct client *c)
{
    int fd = begin_stream(c, 120);
    char bytes[64];
    for (int k = 0; k < 6 && recv(fd, bytes, sizeof bytes, 0) > 0; k++) usleep(20000);
    close(fd);
}

static void go_away(struct client *c)
{
    struct str s = {0};
    int fd = begin_stream(c, 300);
    char byte;
    if (c->rounds % 2) (void)recv(fd, &byte, 1, 0);
    close(fd);
    put_request(&s, "POST", "/v1/completions", "", TELL); /* before the request is there */
    fd = join(c->h);
    send_text(fd, s.p, s.n * (size_t)(c->rounds % 5) / 5);
    close(fd);
    str_free(&s);
}

static void send_garbage(struct client *c)
{
    char bytes[3000];
    for (size_t k = 0; k < sizeof bytes; k++)
        bytes[k] = (char)rng_u32(9, (uint64_t)(c->i * 1000 + c->rounds), (uint64_t)k);
    memcpy(bytes, "POST /v1/completions HTTP/1.1\r\n", c->rounds % 3 ? 31 : 0);
    int fd = join(c->h);
    send_text(fd, bytes, sizeof bytes);
    shutdown(fd, SHUT_WR);
    char *text = read_all(fd);
    if (strstr(text, " 200 ")) say_wrong(c, "garbage is answered", text);
    xfree(text);
}

/* A body larger than the server takes, said or not said beforehand; one that is nested for nothing. */
static void send_much(struct client *c)
{
    struct str s = {0}, body = {0};
    bool deep = c->rounds % 2;
    for (int k = 0; k < (deep ? BODY / 2 : 4 * BODY); k++) str_putc(&body, deep ? '[' : 'a');
    put_request(&s, "POST", "/v1/completions", "", str_text(&body));
    int fd = join(c->h);
    send_text(fd, s.p, s.n);
    char *text = read_all(fd);
    if (*text && strncmp(text, deep ? "HTTP/1.1 400" : "HTTP/1.1 413", 12)) say_wrong(c, "much", text);
    xfree(text);
    str_free(&s);
    str_free(&body);
}

static void send_headers(struct client *c)
{
    struct str s = {0};
    str_puts(&s, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n");
    for (int k = 0; k < 20000; k++) str_printf(&s, "X-%d: %d\r\n", k, c->i);
    str_puts(&s, "\r\n");
    int fd = join(c->h);
    send_text(fd, s.p, s.n);
    char *text = read_all(fd);
    if (!strncmp(text, "HTTP/1.1 200", 12)) say_wrong(c, "headers without end", text);
    xfree(text);
    str_free(&s);
}

static void *be_a_client(void *ctx)
{
    static void (*const does[KINDS])(struct client *) = {ask_whole, ask_stream,   read_slowly, go_away,
                                                         ask_whole, send_garbage, send_much,   send_headers};
    struct client *c = ctx;
    for (; c->rounds > 0; c->rounds--) does[c->i % KINDS](c);
    return NULL;
}

/* ---- what is left ---- */

static int open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    if (!d) return -1;
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static long resident_mib(void)
{
    long pages = 0, all;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%ld %ld", &all, &pages) != 2) pages = 0;
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE) >> 20;
}

static int run_clients(const struct house *h, const double *want, int rounds)
{
    struct client c[CLIENTS];
    atomic_int right = 0;
    for (int i = 0; i < CLIENTS; i++) {
        c[i] = (struct client){.h = h, .want = want, .i = i, .rounds = rounds, .right = &right};
        assert_int_equal(pthread_create(&c[i].thread, NULL, be_a_client, &c[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++) pthread_join(c[i].thread, NULL);
    for (int i = 0; i < CLIENTS; i++)
        if (c[i].wrong[0]) fail_msg("client %d: %s", i, c[i].wrong);
    return atomic_load(&right);
}

static long at_an_end(const struct house *h)
{
    static const char *const how[] = {"refused", "busy", "done", "lost", "late", "failed"};
    long n = 0;
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        char name[64];
        snprintf(name, sizeof name, "tutti_requests_%s_total", how[i]);
        n += metric(h, name);
    }
    return n;
}

/* Streams that nobody reads end when the server sees that; the test's timeout is the limit. */
static void wait_for_quiet(const struct house *h, int files)
{
    while (metric(h, "tutti_answers_writing") || metric(h, "tutti_answers_waiting") ||
           metric(h, "tutti_requests_total") != at_an_end(h) || open_files() > files)
        usleep(20000);
}

static int rounds_wanted = SANITIZED ? 2 : ROUNDS;

static void test_load(void **state)
{
    (void)state;
    struct house h;
    int32_t ids[sizeof PROMPT];
    double want[sizeof PROMPT];
    open_house(&h, NULL, 40);
    for (size_t i = 0; i + 1 < sizeof PROMPT; i++) ids[i] = PROMPT[i];
    written_logprobs(&h.x, ids, sizeof PROMPT - 1, want);
    int files = open_files(), right = 0;
    long before = 0;
    for (int again = 0; again < 2; again++) { /* the first time stacks, heaps and programs get their size */
        right += run_clients(&h, want, rounds_wanted);
        wait_for_quiet(&h, files);
        assert_int_equal(metric(&h, "tutti_cache_pages_free"), metric(&h, "tutti_cache_pages"));
        assert_int_equal(metric(&h, "tutti_requests_failed_total"), 0);
        if (!again) before = resident_mib();
    }
    long after = resident_mib();
    if (!TOY_SANITIZED && after > before + GROWTH_MIB) fail_msg("memory: %ld MiB, then %ld MiB", before, after);
    struct client c = {.h = &h, .want = want, .i = 0, .rounds = 1, .right = &(atomic_int){0}};
    ask_whole(&c);
    if (c.wrong[0] || atomic_load(c.right) != 1) fail_msg("afterwards: %s", c.wrong);
    assert_true(right > 0);
    print_message("%d rounds: %ld requests, %ld done, %ld busy, %ld lost, %ld refused, %d right; %ld MiB, then %ld\n",
                  rounds_wanted, metric(&h, "tutti_requests_total"), metric(&h, "tutti_requests_done_total"),
                  metric(&h, "tutti_requests_busy_total"), metric(&h, "tutti_requests_lost_total"),
                  metric(&h, "tutti_requests_refused_total"), right, before, after);
    close_house(&h);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_load)};
    if (argc > 1) rounds_wanted = atoi(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
