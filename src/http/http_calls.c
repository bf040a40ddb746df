/* SPDX-License-Identifier: Apache-2.0 */
/* libmicrohttpd with one internal thread; a connection whose answer is not there yet is suspended, and resumed by
 * whoever writes. A call has two holders, the library (until its completion is told) and whoever answers; each lets go
 * once, and the last frees it. The mutex of a call guards all that both touch. */
#include "http/http_calls.h"

#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "http/http_guard.h"
#include "http/http_places.h"

enum { BLOCK = 16384, BODY = 4 << 20, UNSENT = 1 << 20, CLIENTS = 128, TIMEOUT_S = 30, BODIES = 16 };

struct http_calls {
    struct MHD_Daemon *daemon;
    struct http_places *places;
    struct http_calls_config c;
    char *key;
    int port;
    atomic_size_t asked, held; /* bytes of bodies that came, and of whole answers that were not let go */
};

struct http_call {
    struct http_calls *server;
    char *method, *path;
    struct str body;
    bool asked, queued; /* handed on; its response is the library's. The server's thread only */

    pthread_mutex_t lock;              /* of all below */
    struct MHD_Connection *connection; /* NULL: gone */
    int socket;
    int holders;
    bool suspended, begun, ended, streams, given_up;
    int status;
    const char *type;
    size_t held;    /* bytes of a whole answer */
    struct str out; /* to be sent, from `sent` on */
    size_t sent;
};

static void let_go(struct http_call *c) /* with the lock, which it opens */
{
    bool last = --c->holders == 0;
    pthread_mutex_unlock(&c->lock);
    if (!last) return;
    pthread_mutex_destroy(&c->lock);
    atomic_fetch_sub(&c->server->asked, c->body.n);
    atomic_fetch_sub(&c->server->held, c->held);
    str_free(&c->body);
    str_free(&c->out);
    xfree(c->method);
    xfree(c->path);
    xfree(c);
}

static void wake(struct http_call *c) /* with the lock */
{
    if (!c->suspended || !c->connection) return;
    c->suspended = false;
    MHD_resume_connection(c->connection);
}

/* ---- what whoever answers calls ---- */

const char *http_call_method(const struct http_call *c) { return c->method; }
const char *http_call_path(const struct http_call *c) { return c->path; }
const char *http_call_body(const struct http_call *c, size_t *n)
{
    *n = c->body.n;
    return str_text(&c->body);
}

void http_call_drop_body(struct http_call *c)
{
    atomic_fetch_sub(&c->server->asked, c->body.n);
    str_free(&c->body);
}

static void begin(struct http_call *c, int status, const char *type, bool streams) /* with the lock */
{
    CHECK(!c->begun, "a call is answered twice");
    c->begun = true;
    c->streams = streams;
    c->status = status;
    c->type = type;
}

void http_call_take(struct http_call *c, int status, const char *type, struct str *body)
{
    pthread_mutex_lock(&c->lock);
    begin(c, status, type, false);
    c->out = *body;
    *body = (struct str){0};
    c->held = c->out.n;
    atomic_fetch_add(&c->server->held, c->held);
    c->ended = true;
    wake(c);
    let_go(c);
}

void http_call_answer(struct http_call *c, int status, const char *type, const char *body, size_t n)
{
    struct str own = {0};
    str_add(&own, body, n);
    http_call_take(c, status, type, &own);
}

size_t http_calls_held(const struct http_call *c) { return atomic_load(&c->server->held); }

void http_call_begin(struct http_call *c, int status, const char *type)
{
    pthread_mutex_lock(&c->lock);
    begin(c, status, type, true);
    wake(c);
    pthread_mutex_unlock(&c->lock);
}

bool http_call_write(struct http_call *c, const char *bytes, size_t n)
{
    size_t most = c->server->c.most_unsent ? c->server->c.most_unsent : UNSENT;
    pthread_mutex_lock(&c->lock);
    CHECK(c->begun && c->streams && !c->ended, "a piece of an answer that is not begun, or at its end");
    if (c->out.n - c->sent + n > most) c->given_up = true;
    bool goes = c->connection && !c->given_up;
    if (goes) str_add(&c->out, bytes, n);
    wake(c);
    pthread_mutex_unlock(&c->lock);
    return goes;
}

void http_call_end(struct http_call *c)
{
    pthread_mutex_lock(&c->lock);
    CHECK(c->begun && !c->ended, "an answer that is not begun ends, or twice");
    c->ended = true;
    wake(c);
    let_go(c);
}

/* A suspended connection is not looked at by the library, so its socket is asked. */
bool http_call_gone(struct http_call *c)
{
    char byte;
    pthread_mutex_lock(&c->lock);
    bool gone =
        !c->connection || c->given_up || (c->suspended && recv(c->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0);
    pthread_mutex_unlock(&c->lock);
    return gone;
}

/* ---- the server's thread ---- */

static ssize_t read_piece(void *ctx, uint64_t at, char *buffer, size_t room)
{
    struct http_call *c = ctx;
    (void)at;
    pthread_mutex_lock(&c->lock);
    size_t left = c->out.n - c->sent, n = left < room ? left : room;
    ssize_t done = (ssize_t)n;
    if (n) {
        memcpy(buffer, c->out.p + c->sent, n);
        c->sent += n;
        if (c->sent == c->out.n) {
            str_clear(&c->out);
            c->sent = 0;
        } else if (c->sent >= c->out.n / 2) {
            memmove(c->out.p, c->out.p + c->sent, c->out.n - c->sent);
            c->out.n -= c->sent;
            c->sent = 0;
        }
    } else if (c->given_up) {
        done = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (c->ended) {
        done = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        c->suspended = true;
        MHD_suspend_connection(c->connection);
    }
    pthread_mutex_unlock(&c->lock);
    return done;
}

static enum MHD_Result send_response(struct MHD_Connection *m, int status, const char *type, struct MHD_Response *r)
{
    if (!r) return MHD_NO;
    http_guard_headers(r, type);
    if (status == MHD_HTTP_UNAUTHORIZED) MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (status == MHD_HTTP_SERVICE_UNAVAILABLE || status == MHD_HTTP_TOO_MANY_REQUESTS)
        MHD_add_response_header(r, "Retry-After", "1");
    enum MHD_Result done = MHD_queue_response(m, (unsigned)status, r);
    MHD_destroy_response(r);
    return done;
}

static enum MHD_Result refuse(struct http_calls *s, struct MHD_Connection *m, int status, const char *why)
{
    struct str body = {0};
    s->c.refuse(s->c.ctx, status, why, &body);
    struct MHD_Response *r =
        MHD_create_response_from_buffer(body.n, (void *)(uintptr_t)str_text(&body), MHD_RESPMEM_MUST_COPY);
    str_free(&body);
    return send_response(m, status, "application/json", r);
}

/* 0, or the status with which a request ends before its body is read. */
static int look(const struct http_calls *s, struct MHD_Connection *m, const char *path, const char *method,
                const char **why)
{
    const char *length = MHD_lookup_connection_value(m, MHD_HEADER_KIND, "Content-Length"),
               *type = MHD_lookup_connection_value(m, MHD_HEADER_KIND, "Content-Type");
    bool has_body = !strcmp(method, "POST");
    int status = http_guard_refused(s->key, m);
    if (status == MHD_HTTP_UNAUTHORIZED && s->c.open && s->c.open(s->c.ctx, path)) status = 0;
    *why = status == MHD_HTTP_UNAUTHORIZED ? "a key is wanted: Authorization: Bearer KEY"
                                           : "only by the name of this host";
    if (status) return status;
    if (!http_guard_refused(s->key, m)) http_places_may(m); /* not who asks for an open page */
    *why = "a path begins with /";
    if (*path != '/') return MHD_HTTP_BAD_REQUEST;
    if (!has_body && strcmp(method, "GET") && strcmp(method, "HEAD")) {
        *why = "GET, HEAD or POST";
        return MHD_HTTP_METHOD_NOT_ALLOWED;
    }
    if (has_body && (!type || strncasecmp(type, "application/json", 16) || (type[16] && !strchr("; \t", type[16])))) {
        *why = "the body must be application/json";
        return MHD_HTTP_UNSUPPORTED_MEDIA_TYPE;
    }
    *why = "the body is too large";
    char *end;
    size_t most = s->c.max_body ? s->c.max_body : BODY;
    errno = 0;
    unsigned long long n = length ? strtoull(length, &end, 10) : 0;
    if (length && (errno || n > most)) return MHD_HTTP_CONTENT_TOO_LARGE;
    *why = "too many large requests are under way; come back later";
    return n + atomic_load(&s->asked) > BODIES * most ? MHD_HTTP_SERVICE_UNAVAILABLE : 0;
}

static struct http_call *call_new(struct http_calls *s, struct MHD_Connection *m, const char *path, const char *method)
{
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(m, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http_call *c = xcalloc(1, sizeof *c);
    c->server = s;
    c->method = xstrdup(method);
    c->path = xstrdup(path);
    c->connection = m;
    c->socket = i ? i->connect_fd : -1;
    c->holders = 1;
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

/* Its answer is there, or has begun. */
static enum MHD_Result send_call(struct http_call *c)
{
    struct MHD_Response *r;
    c->queued = true;
    if (c->streams) r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_piece, c, NULL);
    else /* the bytes stay until the library has told that the call is over */
        r = MHD_create_response_from_buffer(c->out.n, (void *)(uintptr_t)str_text(&c->out), MHD_RESPMEM_PERSISTENT);
    if (!c->streams) http_places_answers(c->connection, c->out.n);
    return send_response(c->connection, c->status, c->type, r);
}

static enum MHD_Result request(void *ctx, struct MHD_Connection *m, const char *url, const char *method,
                               const char *version, const char *data, size_t *n_data, void **mine)
{
    struct http_calls *s = ctx;
    struct http_call *c = *mine;
    const char *why;
    (void)version;
    if (!c) {
        int status = look(s, m, url, method, &why);
        if (status) return refuse(s, m, status, why);
        *mine = call_new(s, m, url, method);
        return MHD_YES;
    }
    if (*n_data) {
        size_t most = s->c.max_body ? s->c.max_body : BODY;
        if (c->body.n + *n_data > most) return MHD_NO; /* more than it said, or it did not say */
        if (atomic_fetch_add(&s->asked, *n_data) + *n_data > (BODIES + 1) * most) {
            atomic_fetch_sub(&s->asked, *n_data);
            return MHD_NO;
        }
        str_add(&c->body, data, *n_data);
        *n_data = 0;
        return MHD_YES;
    }
    if (!c->asked) {
        c->asked = true;
        c->holders = 2;
        http_places_asked(m);
        s->c.call(s->c.ctx, c);
    }
    pthread_mutex_lock(&c->lock);
    bool begun = c->begun;
    if (!begun) {
        c->suspended = true;
        MHD_suspend_connection(m);
    }
    pthread_mutex_unlock(&c->lock); /* the library asks for pieces of an answer with a lock of its own */
    return begun && !c->queued ? send_call(c) : MHD_YES;
}

static void completed(void *ctx, struct MHD_Connection *m, void **mine, enum MHD_RequestTerminationCode how)
{
    struct http_call *c = *mine;
    (void)ctx, (void)how;
    http_places_again(m);
    if (!c) return;
    *mine = NULL;
    pthread_mutex_lock(&c->lock);
    c->connection = NULL;
    let_go(c);
}

static void quiet(void *ctx, const char *format, va_list args)
{
    (void)ctx, (void)format, (void)args; /* what clients do wrong is theirs */
}

int http_calls_open(struct http_calls **out, const struct http_calls_config *c, struct err *e)
{
    bool is6;
    int fd, port = c->port, rc = http_guard_listen(c->address, &port, &is6, &fd, e);
    *out = NULL;
    if (rc) return rc;
    struct http_calls *s = xcalloc(1, sizeof *s);
    int timeout_s = c->timeout_s ? c->timeout_s : TIMEOUT_S;
    s->c = *c;
    s->key = c->key ? xstrdup(c->key) : NULL;
    s->port = port;
    rc = http_places_open(&s->places, c->max_clients ? c->max_clients : CLIENTS,
                          c->request_s ? c->request_s : timeout_s, e);
    if (rc) close(fd);
    unsigned flags =
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ERROR_LOG | MHD_ALLOW_SUSPEND_RESUME | (is6 ? MHD_USE_IPv6 : 0);
    if (!rc)
        s->daemon = MHD_start_daemon(flags, (uint16_t)port, NULL, NULL, request, s, MHD_OPTION_EXTERNAL_LOGGER, quiet,
                                     NULL, MHD_OPTION_NOTIFY_COMPLETED, completed, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
                                     MHD_OPTION_NOTIFY_CONNECTION, http_places_connection, s->places,
                                     MHD_OPTION_CONNECTION_LIMIT, http_places_limit(s->places),
                                     MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)timeout_s,
                                     MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)4 * BLOCK, MHD_OPTION_END);
    if (s->daemon) {
        *out = s;
        return OK;
    }
    if (!rc) rc = err_set(e, ERR_MEMORY, "a server at port %d of %s cannot be started", port, c->address);
    http_places_close(s->places);
    xfree(s->key);
    xfree(s);
    return rc;
}

int http_calls_port(const struct http_calls *s) { return s->port; }

void http_calls_close(struct http_calls *s)
{
    if (!s) return;
    MHD_stop_daemon(s->daemon);
    http_places_close(s->places);
    xfree(s->key);
    xfree(s);
}
