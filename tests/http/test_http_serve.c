/* SPDX-License-Identifier: Apache-2.0 */
/* The server of pages against clients that mean ill: random bytes, requests cut anywhere, headers without end, methods
 * and bodies nobody wants, clients that say nothing or never read. It answers a proper one all the while, gives what is
 * there to who may have it, and nothing to others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/mem.h"
#include "http/http_calls.h"
#include "http/http_serve.h"
#include "sanitized.h"

static void answer(void *ctx, const char *path, struct http_answer *a)
{
    (void)ctx;
    if (!strcmp(path, "/big")) {
        for (int i = 0; i < 1 << 18; i++) str_puts(&a->body, "0123456789abcdef");
        return;
    }
    a->status = strcmp(path, "/") ? 404 : 200;
    str_printf(&a->body, "at %.60s", path);
}

static struct http_server *serve(const char *token, int timeout_s)
{
    struct http_server *s;
    struct err e = {0};
    struct http_serve_config c = {.address = "127.0.0.1", .token = token, .answer = answer, .timeout_s = timeout_s};
    if (http_serve_open(&s, &c, &e)) fail_msg("%s", e.text);
    return s;
}

static int join(const struct http_server *s)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)http_serve_port(s)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval most = {.tv_sec = 3600};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    if (connect(fd, (struct sockaddr *)(void *)&to, sizeof to)) fail_msg("cannot connect");
    return fd;
}

/* What comes back on a request, up to the end of the connection; "" where it is just closed. */
static char *ask_bytes(const struct http_server *s, const void *p, size_t n)
{
    struct str got = {0};
    char block[4096];
    int fd = join(s);
    (void)!send(fd, p, n, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    for (ssize_t k; (k = recv(fd, block, sizeof block, 0)) > 0;) str_add(&got, block, (size_t)k);
    close(fd);
    str_puts(&got, "");
    return got.p ? got.p : xstrdup("");
}

static void expect(const struct http_server *s, const char *request, const char *status, const char *part)
{
    char *got = ask_bytes(s, request, strlen(request));
    if (strncmp(got, "HTTP/1.", 7) || strncmp(got + 9, status, 3) || !strstr(got, part))
        fail_msg("'%.80s': '%.300s', wanted %s", request, got, status);
    xfree(got);
}

#define HEAD "Host: localhost\r\nConnection: close\r\n"

static void test_requests(void **state)
{
    (void)state;
    struct http_server *s = serve(NULL, 0);
    expect(s, "GET / HTTP/1.1\r\n" HEAD "\r\n", "200", "at /");
    expect(s, "HEAD / HTTP/1.1\r\n" HEAD "\r\n", "200", "Content-Security-Policy");
    expect(s, "GET /nowhere HTTP/1.1\r\n" HEAD "\r\n", "404", "at /nowhere");
    expect(s, "GET /%2e%2e/etc/passwd HTTP/1.1\r\n" HEAD "\r\n", "404", "at /../etc/passwd");
    expect(s, "DELETE / HTTP/1.1\r\n" HEAD "\r\n", "405", "Allow: GET, HEAD");
    expect(s, "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", "403", "");
    expect(s, "GET / HTTP/1.1\r\nHost: localhost.evil.example\r\nConnection: close\r\n\r\n", "403", "");
    expect(s, "GET / HTTP/1.1\r\nHost: 127.0.0.1:99\r\nConnection: close\r\n\r\n", "200", "at /");
    expect(s, "GET / HTTP/1.1\r\nHost: [::1]:8080\r\nConnection: close\r\n\r\n", "200", "at /");
    http_serve_close(s);
}

static void test_token(void **state)
{
    (void)state;
    struct http_server *s = serve("a-secret-of-length", 0);
    expect(s, "GET / HTTP/1.1\r\n" HEAD "\r\n", "401", "WWW-Authenticate");
    expect(s, "GET / HTTP/1.1\r\n" HEAD "Authorization: Bearer a-secret-of-lengtx\r\n\r\n", "401", "");
    expect(s, "GET / HTTP/1.1\r\n" HEAD "Authorization: Bearer a-secret-of-length0\r\n\r\n", "401", "");
    expect(s, "GET / HTTP/1.1\r\n" HEAD "Authorization: Bearer \r\n\r\n", "401", "");
    expect(s, "GET /?token=a-secret HTTP/1.1\r\n" HEAD "\r\n", "401", "");
    expect(s, "GET / HTTP/1.1\r\n" HEAD "Authorization: Bearer a-secret-of-length\r\n\r\n", "200", "at /");
    expect(s, "GET /?token=a-secret-of-length HTTP/1.1\r\nHost: node7\r\nConnection: close\r\n\r\n", "200", "at /");
    http_serve_close(s);
}

/* Nothing that is sent ends it, and a proper request after each is answered. */
static void test_any_bytes(void **state)
{
    (void)state;
    struct http_server *s = serve(NULL, 3600);
    const char good[] = "GET / HTTP/1.1\r\n" HEAD "Cookie: a=b; c\r\nAuthorization: Bearer x\r\n\r\n";
    uint64_t x = 1;
    for (int i = 0; i < 400; i += CASE_STRIDE) {
        char bytes[2000];
        size_t n = i % 3 ? sizeof good - 1 : (size_t)(i * 5 % (int)sizeof bytes);
        for (size_t k = 0; k < sizeof bytes; k++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            bytes[k] = (char)(x >> 33);
        }
        if (i % 3) {
            char noise[8];
            memcpy(noise, bytes, sizeof noise);
            memcpy(bytes, good, n);
            for (int k = 0; k < i % 7; k++) bytes[(size_t)(uint8_t)noise[k] % n] = noise[7 - k];
            if (i % 3 == 2) n = (size_t)i % n;
        }
        xfree(ask_bytes(s, bytes, n));
    }
    char *long_line = xcalloc(1, 1 << 20); /* far beyond what a request may have */
    memset(long_line, 'a', (1 << 20) - 1);
    memcpy(long_line, "GET /", 5);
    xfree(ask_bytes(s, long_line, (1 << 20) - 1));
    xfree(long_line);
    expect(s, "POST / HTTP/1.1\r\n" HEAD "Content-Length: 0\r\n\r\n", "405", "");
    xfree(ask_bytes(s, "POST / HTTP/1.1\r\n" HEAD "Content-Length: 3\r\n\r\nabc", 67));
    expect(s, good, "200", "at /");
    http_serve_close(s);
}

/* Clients that say nothing, and that never take their answer; others are served, until there are too many of one
 * address, and again when the slow ones were dropped. */
static void test_slow_clients(void **state)
{
    (void)state;
    struct http_server *s = serve(NULL, 5); /* seconds: a good one needs fewer, the others are waited for */
    int fd[9];
    for (int i = 0; i < 9; i++) {
        const char *begun = i % 2 ? "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n" : "GET / HT";
        fd[i] = join(s);
        (void)!send(fd[i], begun, strlen(begun), MSG_NOSIGNAL);
    }
    expect(s, "GET / HTTP/1.1\r\n" HEAD "\r\n", "200", "at /");
    for (int i = 0; i < 9; i += 2) { /* dropped, however long that takes here */
        char byte;
        while (recv(fd[i], &byte, 1, 0) > 0) {}
    }
    for (int i = 0; i < 9; i++) close(fd[i]);
    expect(s, "GET / HTTP/1.1\r\n" HEAD "\r\n", "200", "at /");
    http_serve_close(s);
}

static void test_refused(void **state)
{
    (void)state;
    struct http_server *s = serve(NULL, 0), *other;
    struct err e;
    struct http_serve_config c = {.address = "127.0.0.1", .port = http_serve_port(s), .answer = answer};
    c.address = "localhost";
    assert_int_equal(http_serve_open(&other, &c, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "numbers"));
    c.address = "192.0.2.1"; /* of documentation: nobody's */
    assert_int_equal(http_serve_open(&other, &c, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "cannot be opened"));
    http_serve_close(s);
}

static void refuse(void *ctx, int status, const char *why, struct str *body)
{
    (void)ctx, (void)status, str_puts(body, why);
}

/* Two servers never have one port: each would get some of the connections. */
static void test_one_port(void **state)
{
    (void)state;
    struct http_server *s = serve(NULL, 0), *other;
    struct http_calls *calls, *more;
    struct err e;
    char port[16];
    snprintf(port, sizeof port, "port %d", http_serve_port(s));
    struct http_serve_config a = {.address = "127.0.0.1", .port = http_serve_port(s), .answer = answer};
    struct http_calls_config b = {.address = "127.0.0.1", .port = http_serve_port(s), .refuse = refuse};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(http_serve_open(&other, &a, &e), ERR_REQUEST);
        assert_true(strstr(e.text, port) && strstr(e.text, a.address) && strstr(e.text, "another program listens"));
        assert_int_equal(http_calls_open(&calls, &b, &e), ERR_REQUEST);
        assert_true(strstr(e.text, port) && strstr(e.text, a.address) && strstr(e.text, "another program listens"));
        a.address = b.address = "0.0.0.0"; /* which has that one in it */
    }
    b.port = 0;
    b.address = "127.0.0.1";
    if (http_calls_open(&calls, &b, &e)) fail_msg("%s", e.text);
    b.port = http_calls_port(calls);
    assert_int_equal(http_calls_open(&more, &b, &e), ERR_REQUEST);
    http_calls_close(calls);
    if (http_calls_open(&calls, &b, &e)) fail_msg("%s", e.text); /* it is free again at once */
    http_calls_close(calls);
    http_serve_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_requests),  cmocka_unit_test(test_token),
                                       cmocka_unit_test(test_any_bytes), cmocka_unit_test(test_slow_clients),
                                       cmocka_unit_test(test_refused),   cmocka_unit_test(test_one_port)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
