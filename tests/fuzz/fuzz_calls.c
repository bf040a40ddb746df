/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of whatever bytes to the server of calls, and what is in their bodies to the reader of OpenAI's API, which a
 * served model has before it: each is answered with a status, or hung up on, and a proper request afterwards is. The
 * first byte says whether it wants a key, whether the request comes in one piece, and whether the answer does. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_port.h"
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
                                  .timeout_s = PORT_LONG_S,
                                  .max_body = 4096,
                                  .refuse = refuse,
                                  .call = called,
                                  .ctx = &h};
    CHECK(!http_calls_open(&s, &c, &e), "%s", e.text);
    if (size > 1) ask_port(http_calls_port(s), data + 1, size - 1, cut ? (size - 1) / 2 : 0, &got);
    CHECK(!got.n || str_starts(str_text(&got), "HTTP/1."), "%.60s", str_text(&got));
    CHECK(!guarded || !strstr(str_text(&got), "\"ok\":true") || memmem(data, size, secret, sizeof secret - 1),
          "an answer without the key");
    str_clear(&got);
    ask_port(http_calls_port(s), (const uint8_t *)proper, sizeof proper - 1, 0, &got);
    CHECK(str_starts(str_text(&got), "HTTP/1.1 200"), "a proper client gets '%.200s'", str_text(&got));
    str_free(&got);
    http_calls_close(s);
    tokenizer_free(h.t);
    return 0;
}
