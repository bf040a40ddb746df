/* SPDX-License-Identifier: Apache-2.0 */
/* hook_server.h: a web server on loopback that says what answers are worth, or misbehaves: a thread of the test's own
 * process, which serves one connection after the other and closes each.
 *
 *   hook_start(&s, &plan, 1); ... s.url ...; hook_stop(&s)
 *
 * The k-th request is answered by plan[k], every later one by the last of them. What was asked is kept: s.asked.
 */
#ifndef TUTTI_TESTS_LEARN_HOOK_SERVER_H
#define TUTTI_TESTS_LEARN_HOOK_SERVER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"

struct hook_plan {
    const char *head; /* all of it, with the empty line; NULL: nothing is said */
    const char *body; /* NULL: what `score` says of the lines that came */
    bool endless;     /* the body again and again, with pause_ms between */
    int pause_ms;
    bool deaf;  /* the request is not read */
    bool holds; /* the connection stays open until who asked has gone */
};
struct hook_server {
    int listener;
    char url[64];
    pthread_t thread;
    const struct hook_plan *plan;
    int n_plans;
    atomic_int n_asked;
    atomic_bool stop;
    struct str asked; /* the last request, head and body; the thread's until hook_stop, or until its answer has come */
    void (*score)(const char *lines, size_t n, struct str *out); /* a JSON list or lines of numbers */
};

static inline bool hook_wait(struct hook_server *s, int fd, short what)
{
    struct pollfd p = {.fd = fd, .events = what};
    while (!atomic_load(&s->stop))
        if (poll(&p, 1, 20) > 0) return true;
    return false;
}

/* The body of a request that has come whole; NULL: not yet. */
static inline const char *hook_body(const struct str *asked, size_t *n)
{
    const char *text = str_text(asked), *body = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
    if (!body || !length || length > body) return NULL;
    *n = strtoul(length + strlen("Content-Length: "), NULL, 10);
    body += 4;
    return asked->n - (size_t)(body - text) >= *n ? body : NULL;
}

static inline const char *hook_read(struct hook_server *s, int fd, size_t *n)
{
    char part[4096];
    str_clear(&s->asked);
    for (;;) {
        const char *body = hook_body(&s->asked, n);
        if (body) return body;
        if (!hook_wait(s, fd, POLLIN)) return NULL;
        ssize_t got = recv(fd, part, sizeof part, 0);
        if (got <= 0) return NULL;
        str_add(&s->asked, part, (size_t)got);
    }
}

static inline bool hook_send(struct hook_server *s, int fd, const char *p, size_t n)
{
    while (n) {
        if (!hook_wait(s, fd, POLLOUT)) return false;
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static inline void hook_serve(struct hook_server *s, int fd, const struct hook_plan *p)
{
    struct str score = {0};
    size_t n = 0;
    char rest[4096];
    const char *body = p->deaf ? NULL : hook_read(s, fd, &n);
    if (body && !p->body && s->score) s->score(body, n, &score);
    const char *text = p->body ? p->body : str_text(&score);
    bool there = p->head && (!p->deaf || p->body) && hook_send(s, fd, p->head, strlen(p->head));
    do {
        there = there && hook_send(s, fd, text, strlen(text));
        if (p->endless && p->pause_ms) poll(NULL, 0, p->pause_ms);
    } while (there && p->endless);
    while (p->holds && !p->deaf && hook_wait(s, fd, POLLIN) && recv(fd, rest, sizeof rest, 0) > 0) {}
    while (p->holds && p->deaf && !atomic_load(&s->stop)) poll(NULL, 0, 10);
    str_free(&score);
}

static inline void *hook_main(void *arg)
{
    struct hook_server *s = arg;
    while (hook_wait(s, s->listener, POLLIN)) {
        int fd = accept(s->listener, NULL, NULL), k = atomic_load(&s->n_asked);
        if (fd < 0) continue;
        hook_serve(s, fd, &s->plan[k < s->n_plans ? k : s->n_plans - 1]);
        atomic_fetch_add(&s->n_asked, 1);
        shutdown(fd, SHUT_WR);
        close(fd);
    }
    return NULL;
}

static inline void hook_start(struct hook_server *s, const struct hook_plan *plan, int n_plans)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    s->plan = plan;
    s->n_plans = n_plans;
    atomic_store(&s->n_asked, 0);
    atomic_store(&s->stop, false);
    s->asked = (struct str){0};
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(s->listener >= 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(s->listener, 8), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&at, &n), 0);
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d/score", ntohs(at.sin_port));
    assert_int_equal(pthread_create(&s->thread, NULL, hook_main, s), 0);
}

static inline void hook_stop(struct hook_server *s)
{
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
    close(s->listener);
    str_free(&s->asked);
}

#endif
