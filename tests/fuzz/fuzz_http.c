/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of whatever bytes to the server of pages: it answers, or hangs up, and stays. The first byte says whether it
 * wants a token, and whether the request comes in one piece; without the token nobody gets the page. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "http/http_serve.h"

static const char page[] = "the page of a run", secret[] = "0123456789abcdef-secret";

static void answer(void *ctx, const char *path, struct http_answer *a)
{
    (void)ctx;
    CHECK(path && *path == '/', "a path '%s'", path ? path : "");
    str_puts(&a->body, page);
}

/* Everything that comes back; the connection is closed without a rest, or there would soon be no port left. */
static void ask(const struct http_server *s, const uint8_t *p, size_t n, size_t cut, struct str *got)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)http_serve_port(s)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct linger at_once = {.l_onoff = 1};
    struct timeval most = {.tv_sec = 30};
    char block[4096];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)(void *)&to, sizeof to), "nobody listens");
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    (void)!send(fd, p, cut, MSG_NOSIGNAL);
    (void)!send(fd, p + cut, n - cut, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    for (ssize_t k; (k = recv(fd, block, sizeof block, 0)) > 0;) str_add(got, block, (size_t)k);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_server *s;
    struct err e = {0};
    struct str got = {0};
    bool guarded = size && data[0] & 1, cut = size && data[0] & 2;
    struct http_serve_config c = {.address = "127.0.0.1",
                                  .token = guarded ? secret : NULL,
                                  .answer = answer,
                                  .timeout_s = 5};
    CHECK(!http_serve_open(&s, &c, &e), "%s", e.text);
    if (size > 1) ask(s, data + 1, size - 1, cut ? (size - 1) / 2 : 0, &got);
    CHECK(!guarded || !strstr(str_text(&got), page) || memmem(data, size, "secret", 6) || memchr(data, '%', size),
          "the page without the token");
    CHECK(!got.n || str_starts(str_text(&got), "HTTP/1."), "%.60s", str_text(&got));
    str_clear(&got);
    static const char proper[] =
        "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdef-secret\r\n"
        "Connection: close\r\n\r\n";
    ask(s, (const uint8_t *)proper, sizeof proper - 1, 0, &got);
    CHECK(strstr(str_text(&got), page), "a proper client gets '%.60s'", str_text(&got));
    str_free(&got);
    http_serve_close(s);
    return 0;
}
