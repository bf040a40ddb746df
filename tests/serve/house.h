/* SPDX-License-Identifier: Apache-2.0 */
/* house.h: a served model on a thread of its own, and a client of it that speaks over a socket, for tests of serve. */
#ifndef TUTTI_TESTS_SERVE_HOUSE_H
#define TUTTI_TESTS_SERVE_HOUSE_H

#include "decode/written.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "serve/service.h"

enum { HOUSE_LONG_S = 3600 };
struct house {
    struct written x;
    struct decoding *d;
    struct tokenizer *t;
    struct chat *chat;
    struct service *s;
    pthread_t thread;
    atomic_bool stop;
};

static inline bool stopped(void *ctx) { return atomic_load((atomic_bool *)ctx); }

static inline void *serve(void *ctx)
{
    struct house *h = ctx;
    struct err e = {0};
    if (service_run(h->s, stopped, &h->stop, 5, &e)) fail_msg("%s", e.text);
    return NULL;
}

struct house_rules {
    const char *key, *template; /* template NULL: the contents, with spaces between */
    /* time_s 0: longer than a test may take, for whoever is answered in the end. */
    int queue, time_s, clients, request_s;
    size_t told_bytes;
};

static inline void open_house_by(struct house *h, const struct house_rules *r)
{
    struct err e = {0};
    memset(h, 0, sizeof *h);
    written_open(&h->x, MODEL_LLAMA, 512);
    h->d = written_decoding(&h->x, 4, 64, 0);
    h->t = tokenizer_new_byte();
    char *path = fs_join(h->x.dir, "chat.jinja");
    const char *text = r->template ? r->template : "{% for m in messages %}{{ m.content }} {% endfor %}";
    if (fs_write_atomic(path, text, strlen(text), &e) ||
        chat_open(&h->chat, &(struct chat_rules){.template_name = path}, h->t, &e))
        fail_msg("%s", e.text);
    xfree(path);
    struct service_config c = {.decoding = h->d,
                               .tokenizer = h->t,
                               .chat = h->chat,
                               .model = "toy",
                               .address = "127.0.0.1",
                               .key = r->key,
                               .queue = r->queue,
                               .told_bytes = r->told_bytes,
                               .max_tokens = 400,
                               .max_body = 1 << 16,
                               .time_s = r->time_s ? r->time_s : HOUSE_LONG_S,
                               .clients = r->clients ? r->clients : 200,
                               .request_s = r->request_s,
                               .idle_s = HOUSE_LONG_S};
    if (service_open(&h->s, &c, &e)) fail_msg("%s", e.text);
    assert_int_equal(pthread_create(&h->thread, NULL, serve, h), 0);
}

static inline void open_house(struct house *h, const char *key, int queue)
{
    open_house_by(h, &(struct house_rules){.key = key, .queue = queue});
}

static inline void close_house(struct house *h)
{
    atomic_store(&h->stop, true);
    pthread_join(h->thread, NULL);
    service_close(h->s);
    assert_int_equal(decoding_pages_left(h->d), decoding_pages(h->d)); /* nobody's answer is left behind */
    decoding_free(h->d);
    chat_close(h->chat);
    tokenizer_free(h->t);
    written_close(&h->x);
}

/* ---- a client ---- */

static inline int join(const struct house *h)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)service_port(h->s)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval most = {.tv_sec = HOUSE_LONG_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    if (connect(fd, (struct sockaddr *)(void *)&to, sizeof to)) fail_msg("cannot connect");
    return fd;
}

static inline void send_text(int fd, const char *text, size_t n)
{
    while (n) {
        ssize_t k = send(fd, text, n, MSG_NOSIGNAL);
        if (k <= 0) return; /* closed on us: what came back says why */
        text += k;
        n -= (size_t)k;
    }
}

static inline void put_request(struct str *s, const char *method, const char *path, const char *headers,
                               const char *body)
{
    str_printf(s, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s", method, path, headers);
    if (body) str_printf(s, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    str_printf(s, "\r\n%s", body ? body : "");
}

static inline char *read_all(int fd)
{
    struct str got = {0};
    char block[4096];
    ssize_t n;
    while ((n = recv(fd, block, sizeof block, 0)) > 0) str_add(&got, block, (size_t)n);
    char *text = xstrdup(str_text(&got));
    str_free(&got);
    close(fd);
    return text;
}

static inline char *ask_with(const struct house *h, const char *method, const char *path, const char *headers,
                             const char *body, int *status)
{
    struct str s = {0};
    int fd = join(h);
    put_request(&s, method, path, headers, body);
    send_text(fd, s.p, s.n);
    str_free(&s);
    char *text = read_all(fd);
    *status = !strncmp(text, "HTTP/1.1 ", 9) ? atoi(text + 9) : 0;
    return text;
}

static inline long metric(const struct house *h, const char *name)
{
    int status;
    char *text = ask_with(h, "GET", "/metrics", "", NULL, &status), line[80];
    assert_int_equal(status, 200);
    snprintf(line, sizeof line, "\n%s ", name);
    char *at = strstr(text, line);
    assert_non_null(at);
    long v = atol(at + strlen(line));
    xfree(text);
    return v;
}

#endif
