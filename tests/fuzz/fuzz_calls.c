/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of whatever bytes to the server of calls, and what is in their bodies to the reader of OpenAI's API, which a
 * served model has before it: each is answered with a status, or hung up on, and a proper request afterwards is. The
 * first byte says whether it wants a key, whether the request comes in one piece, and whether the answer does. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "http/http_calls.h"
#include "serve/api_reply.h"
#include "serve/api_request.h"

static const char secret[] = "0123456789abcdef-secret";

struct house {
    struct tokenizer *t;
    bool pieces;
};

static void refuse(void *ctx, int status, const char *why, struct str *body)
{
    (void)ctx;
    CHECK(status >= 400 && why && *why, "refused with %d", status);
    api_put_error(body, status, why);
}

static void called(void *ctx, struct http_call *c)
{
    const struct house *h = ctx;
    const struct api_limits limits = {.max_tokens = 32, .room = 64, .vocab = 257, .model = "m"};
    struct api_request r;
    struct err e = {0};
    struct str out = {0};
    size_t n;
    int status = 400;
    const char *body = http_call_body(c, &n);
    CHECK(*http_call_path(c) == '/' && !body[n], "a path '%s'", http_call_path(c));
    int rc = api_request_read(&r, strstr(http_call_path(c), "chat") != NULL, body, n, h->t, NULL, &limits, &status, &e);
    CHECK(!rc || status == 400 || status == 404, "refused with %d", status);
    if (rc) api_put_error(&out, status, e.text);
    else str_puts(&out, "{\"ok\":true}");
    if (!rc) api_request_fini(&r);
    if (h->pieces && !rc) {
        http_call_begin(c, 200, "text/event-stream; charset=utf-8");
        for (size_t i = 0; i < out.n; i += 4) (void)http_call_write(c, out.p + i, out.n - i < 4 ? out.n - i : 4);
        http_call_end(c);
    } else {
        http_call_answer(c, rc ? status : 200, "application/json", out.p, out.n);
    }
    str_free(&out);
}

/* Everything that comes back; the connection is closed without a rest, or there would soon be no port left. */
static void ask(const struct http_calls *s, const uint8_t *p, size_t n, size_t cut, struct str *got)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)http_calls_port(s)),
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
    static const char proper[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                                 "Authorization: Bearer 0123456789abcdef-secret\r\nContent-Type: application/json\r\n"
                                 "Content-Length: 14\r\n\r\n{\"prompt\":\"1\"}";
    bool guarded = size && data[0] & 1, cut = size && data[0] & 2;
    struct house h = {.t = tokenizer_new_byte(), .pieces = size && data[0] & 4};
    struct http_calls *s;
    struct err e = {0};
    struct str got = {0};
    struct http_calls_config c = {.address = "127.0.0.1",
                                  .key = guarded ? secret : NULL,
                                  .timeout_s = 5,
                                  .max_body = 4096,
                                  .refuse = refuse,
                                  .call = called,
                                  .ctx = &h};
    CHECK(!http_calls_open(&s, &c, &e), "%s", e.text);
    if (size > 1) ask(s, data + 1, size - 1, cut ? (size - 1) / 2 : 0, &got);
    CHECK(!got.n || str_starts(str_text(&got), "HTTP/1."), "%.60s", str_text(&got));
    CHECK(!guarded || !strstr(str_text(&got), "\"ok\":true") || memmem(data, size, secret, sizeof secret - 1),
          "an answer without the key");
    str_clear(&got);
    ask(s, (const uint8_t *)proper, sizeof proper - 1, 0, &got);
    CHECK(str_starts(str_text(&got), "HTTP/1.1 200"), "a proper client gets '%.200s'", str_text(&got));
    str_free(&got);
    http_calls_close(s);
    tokenizer_free(h.t);
    return 0;
}
