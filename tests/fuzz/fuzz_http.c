/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of whatever bytes to the server of pages: it answers, or hangs up, and stays. The first byte says whether it
 * wants a token, and whether the request comes in one piece; without the token nobody gets the page. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_port.h"
#include "http/http_serve.h"

static const char page[] = "the page of a run", secret[] = "0123456789abcdef-secret";

static void answer(void *ctx, const char *path, struct http_answer *a)
{
    (void)ctx;
    CHECK(path && *path == '/', "a path '%s'", path ? path : "");
    str_puts(&a->body, page);
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
                                  .timeout_s = PORT_LONG_S};
    CHECK(!http_serve_open(&s, &c, &e), "%s", e.text);
    if (size > 1) ask_port(http_serve_port(s), data + 1, size - 1, cut ? (size - 1) / 2 : 0, &got);
    CHECK(!guarded || !strstr(str_text(&got), page) || memmem(data, size, "secret", 6) || memchr(data, '%', size),
          "the page without the token");
    CHECK(!got.n || str_starts(str_text(&got), "HTTP/1."), "%.60s", str_text(&got));
    str_clear(&got);
    static const char proper[] =
        "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdef-secret\r\n"
        "Connection: close\r\n\r\n";
    ask_port(http_serve_port(s), (const uint8_t *)proper, sizeof proper - 1, 0, &got);
    CHECK(strstr(str_text(&got), page), "a proper client gets '%.60s'", str_text(&got));
    str_free(&got);
    http_serve_close(s);
    return 0;
}
