/* SPDX-License-Identifier: Apache-2.0 */
/* libmicrohttpd with one internal thread that polls. Answers are copied into the library, which sends them as fast as
 * the client takes them. Rejected: a thread per connection (a client could hold one), parsing HTTP ourselves. */
#include "http/http_serve.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "http/http_guard.h"

struct http_server {
    struct MHD_Daemon *daemon;
    struct http_serve_config c;
    char *token;
};

static enum MHD_Result send_answer(struct MHD_Connection *c, struct http_answer *a)
{
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

int http_serve_open(struct http_server **out, const struct http_serve_config *c, struct err *e)
{
    struct http_address a;
    *out = NULL;
    int rc = http_guard_address(&a, c->address, c->port, e);
    if (rc) return rc;
    struct http_server *s = xcalloc(1, sizeof *s);
    s->c = *c;
    s->token = c->token ? xstrdup(c->token) : NULL;
    unsigned most = c->max_clients ? (unsigned)c->max_clients : 32,
             flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ERROR_LOG;
    errno = 0;
    s->daemon = MHD_start_daemon(a.is6 ? flags | MHD_USE_IPv6 : flags, (uint16_t)c->port, NULL, NULL, request, s,
                                 MHD_OPTION_EXTERNAL_LOGGER, quiet, NULL, MHD_OPTION_SOCK_ADDR, http_guard_sockaddr(&a),
                                 MHD_OPTION_CONNECTION_LIMIT, most, MHD_OPTION_PER_IP_CONNECTION_LIMIT, most / 3 + 1,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(c->timeout_s ? c->timeout_s : 10),
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)16384, MHD_OPTION_LISTENING_ADDRESS_REUSE,
                                 1U, MHD_OPTION_END);
    if (s->daemon) {
        *out = s;
        return OK;
    }
    rc = err_set(e, ERR_REQUEST, "port %d of %s cannot be opened%s%s; choose another one", c->port, c->address,
                 errno ? ": " : "", errno ? strerror(errno) : "");
    xfree(s->token);
    xfree(s);
    return rc;
}

int http_serve_port(const struct http_server *s)
{
    const union MHD_DaemonInfo *i = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
    return i ? i->port : 0;
}

void http_serve_close(struct http_server *s)
{
    if (!s) return;
    MHD_stop_daemon(s->daemon);
    xfree(s->token);
    xfree(s);
}
