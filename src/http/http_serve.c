/* SPDX-License-Identifier: Apache-2.0 */
/* libmicrohttpd with one internal thread that polls. Answers are copied into the library, which sends them as fast as
 * the client takes them. Rejected: a thread per connection (a client could hold one), parsing HTTP ourselves. */
#include "http/http_serve.h"

#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "http/http_guard.h"
#include "http/http_places.h"

struct http_server {
    struct MHD_Daemon *daemon;
    struct http_places *places;
    struct http_serve_config c;
    char *token;
    int port;
};

static enum MHD_Result send_answer(struct MHD_Connection *c, struct http_answer *a)
{
    http_places_answers(c, a->body.n);
    struct MHD_Response *r =
        MHD_create_response_from_buffer(a->body.n, (void *)(uintptr_t)str_text(&a->body), MHD_RESPMEM_MUST_COPY);
    enum MHD_Result done = MHD_NO;
    if (r) {
        http_guard_headers(r, a->type);
        if (a->status == MHD_HTTP_UNAUTHORIZED) MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
        if (a->status == MHD_HTTP_METHOD_NOT_ALLOWED) MHD_add_response_header(r, "Allow", "GET, HEAD");
        done = MHD_queue_response(c, (unsigned)a->status, r);
        MHD_destroy_response(r);
    }
    str_free(&a->body);
    return done;
}

static enum MHD_Result request(void *ctx, struct MHD_Connection *c, const char *url, const char *method,
                               const char *version, const char *data, size_t *n_data, void **mine)
{
    struct http_server *s = ctx;
    struct http_answer a = {.status = MHD_HTTP_OK};
    (void)version;
    (void)data;
    if (!*mine) { /* headers are there; a body would follow */
        *mine = s;
        if (!http_guard_refused(s->token, c)) http_places_may(c);
        return MHD_YES;
    }
    if (*n_data) return MHD_NO; /* nobody has a body to send */
    int why = http_guard_refused(s->token, c);
    if (why) {
        a.status = why;
        str_puts(&a.body, why == MHD_HTTP_UNAUTHORIZED ? "a token is wanted\n" : "only by the name of this host\n");
    } else if (strcmp(method, "GET") && strcmp(method, "HEAD")) {
        a.status = MHD_HTTP_METHOD_NOT_ALLOWED;
        str_puts(&a.body, "GET or HEAD\n");
    } else if (*url != '/') {
        a.status = MHD_HTTP_BAD_REQUEST;
        str_puts(&a.body, "a path begins with /\n");
    } else {
        s->c.answer(s->c.ctx, url, &a);
    }
    return send_answer(c, &a);
}

static void quiet(void *ctx, const char *format, va_list args)
{
    (void)ctx, (void)format, (void)args; /* what clients do wrong is theirs */
}

static void completed(void *ctx, struct MHD_Connection *c, void **mine, enum MHD_RequestTerminationCode how)
{
    (void)ctx, (void)mine, (void)how;
    http_places_again(c);
}

int http_serve_open(struct http_server **out, const struct http_serve_config *c, struct err *e)
{
    bool is6;
    int fd, port = c->port, rc = http_guard_listen(c->address, &port, &is6, &fd, e);
    *out = NULL;
    if (rc) return rc;
    struct http_server *s = xcalloc(1, sizeof *s);
    int timeout_s = c->timeout_s ? c->timeout_s : 10;
    s->c = *c;
    s->token = c->token ? xstrdup(c->token) : NULL;
    s->port = port;
    rc = http_places_open(&s->places, c->max_clients ? c->max_clients : 32, timeout_s, e);
    if (rc) close(fd);
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ERROR_LOG | (is6 ? MHD_USE_IPv6 : 0);
    if (!rc)
        s->daemon =
            MHD_start_daemon(flags, (uint16_t)port, NULL, NULL, request, s, MHD_OPTION_EXTERNAL_LOGGER, quiet, NULL,
                             MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_CONNECTION, http_places_connection,
                             s->places, MHD_OPTION_NOTIFY_COMPLETED, completed, NULL, MHD_OPTION_CONNECTION_LIMIT,
                             http_places_limit(s->places), MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)timeout_s,
                             MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)16384, MHD_OPTION_END);
    if (s->daemon) {
        *out = s;
        return OK;
    }
    if (!rc) rc = err_set(e, ERR_MEMORY, "a server at port %d of %s cannot be started", port, c->address);
    http_places_close(s->places);
    xfree(s->token);
    xfree(s);
    return rc;
}

int http_serve_port(const struct http_server *s) { return s->port; }

void http_serve_close(struct http_server *s)
{
    if (!s) return;
    MHD_stop_daemon(s->daemon);
    http_places_close(s->places);
    xfree(s->token);
    xfree(s);
}
