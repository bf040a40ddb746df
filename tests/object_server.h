/* SPDX-License-Identifier: Apache-2.0 */
/* object_server.h: a web server and object store on loopback, of threads of the test's own process, that misbehaves
 * when it is told to: for tests of what reads from such.
 *
 *   server_start(&s); server_put(&s, "/b/key", bytes, n, "tag"); ... requests ...; server_stop(&s)
 *
 * It gives ranges, ETags, If-Match, lists of s3://BUCKET/... by ListObjectsV2 in pages, and where `secret` is set it
 * lets nobody in whose signature (version 4) is not right. `trouble` is what the next `left` requests for objects meet.
 */
#ifndef TUTTI_TESTS_OBJECT_SERVER_H
#define TUTTI_TESTS_OBJECT_SERVER_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "remote/sigv4.h"
#include "remote/url.h"

enum trouble {
    FINE,
    STATUS,       /* the answer is `status`, with `extra` in its head */
    RESET,        /* half the body, then a reset connection */
    HANG_UP,      /* no answer */
    STALL,        /* half the body, then nothing */
    TRUNCATE,     /* half the body, then the end, against Content-Length */
    IGNORE_RANGE, /* always the whole */
    NO_LENGTH,    /* the whole, to the end of the connection */
    NEW_TAG,      /* the same under another ETag, whatever If-Match says */
    NO_TAG,       /* neither ETag nor a time of change */
    WRONG_RANGE,  /* bytes from another place, as it says itself */
    SLOW,         /* 8 KiB every 10 ms */
    REDIRECT,     /* to `extra` */
    SHORT_CHUNK   /* half the body, without a length, then the end */
};

struct served {
    char path[160];
    const unsigned char *p;
    size_t n;
    char etag[64];
};
enum { SERVED_MAX = 64, CONNECTIONS_MAX = 256 };
struct object_server {
    int listener, port;
    pthread_t thread, connection[CONNECTIONS_MAX];
    int fd[CONNECTIONS_MAX], n_connections;
    pthread_mutex_t lock; /* guards what follows */
    struct served object[SERVED_MAX];
    int n_objects;
    enum trouble trouble;
    int left, status, page;
    char extra[256];
    int n_requests, n_ranges, n_lists, busy, most_busy;
    double delay_s; /* of each answer */
    const char *id, *secret, *region, *token;
    char refused[2000]; /* what was wrong with the last signature */
    atomic_bool stop;
};

struct asked { /* a request */
    char method[8], path[2048], query[2048];
    char text[16384]; /* its head: lines end with NUL */
    int n_lines;
    char *line[64];
};

static inline const char *asked_header(const struct asked *q, const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < q->n_lines; i++)
        if (!strncasecmp(q->line[i], name, n) && q->line[i][n] == ':')
            return q->line[i] + n + 1 + strspn(q->line[i] + n + 1, " ");
    return NULL;
}

static inline bool server_send(int fd, const void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = send(fd, (const char *)p + at, n - at, MSG_NOSIGNAL);
        if (k <= 0) return false;
        at += (size_t)k;
    }
    return true;
}

/* The next request of the connection; false: there is none. */
static inline bool server_read(int fd, struct asked *q)
{
    size_t n = 0;
    char *end = NULL;
    while (!end) {
        if (n + 1 >= sizeof q->text) return false;
        ssize_t k = recv(fd, q->text + n, 1, 0); /* heads are small; the next request must not be taken */
        if (k <= 0) return false;
        n += (size_t)k;
        q->text[n] = 0;
        end = n >= 4 && !memcmp(q->text + n - 4, "\r\n\r\n", 4) ? q->text + n : NULL;
    }
    q->n_lines = 0;
    for (char *rest = q->text, *l; (l = strsep(&rest, "\n"));) {
        if (*l) l[strcspn(l, "\r")] = 0;
        if (*l && q->n_lines < 64) q->line[q->n_lines++] = l;
    }
    char target[2048];
    if (sscanf(q->line[0], "%7s %2047s", q->method, target) != 2) return false;
    char *mark = strchr(target, '?');
    snprintf(q->query, sizeof q->query, "%s", mark ? mark + 1 : "");
    if (mark) *mark = 0;
    snprintf(q->path, sizeof q->path, "%s", target);
    return true;
}

static inline bool server_answer(int fd, int status, const char *head, const void *p, size_t n)
{
    struct str s = {0};
    str_printf(&s, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n%s\r\n", status, n, head);
    bool good = server_send(fd, s.p, s.n) && server_send(fd, p, n);
    str_free(&s);
    return good;
}

/* The signature of a request as this server makes it, of the headers that the request says are signed. */
static inline bool server_signature_right(struct object_server *s, const struct asked *q)
{
    const char *given = asked_header(q, "Authorization"), *date = asked_header(q, "x-amz-date"),
               *payload = asked_header(q, "x-amz-content-sha256"),
               *names = given ? strstr(given, "SignedHeaders=") : NULL;
    if (!given || !date || !payload || !names) {
        snprintf(s->refused, sizeof s->refused, "a request without a signature");
        return false;
    }
    if (s->token &&
        (!asked_header(q, "x-amz-security-token") || strcmp(asked_header(q, "x-amz-security-token"), s->token)))
        return false;
    char list[256];
    snprintf(list, sizeof list, "%.*s", (int)strcspn(names + 14, ","), names + 14);
    struct sigv4_header header[16];
    int n = 0;
    for (char *rest = list, *name; (name = strsep(&rest, ";")) && n < 16; n++)
        header[n] = (struct sigv4_header){name, asked_header(q, name) ? asked_header(q, name) : ""};
    struct sigv4_request r = {"GET", q->path, q->query, date, s->region, "s3", payload, header, n};
    struct str right = {0};
    sigv4_authorization(&r, &(struct sigv4_keys){s->id, s->secret}, &right);
    bool good = !strcmp(right.p, given);
    if (!good) snprintf(s->refused, sizeof s->refused, "%s instead of %s", given, right.p);
    str_free(&right);
    return good;
}

static inline void query_value(const struct asked *q, const char *name, char *out, size_t room)
{
    size_t n = strlen(name);
    *out = 0;
    for (const char *p = q->query; p; p = strchr(p, '&') ? strchr(p, '&') + 1 : NULL)
        if (!strncmp(p, name, n) && p[n] == '=') snprintf(out, room, "%.*s", (int)strcspn(p + n + 1, "&"), p + n + 1);
    url_decode(out);
}

/* ListObjectsV2 of /BUCKET: names in the order they were put, which tests do not sort. The token is a number. */
static inline bool server_list(struct object_server *s, int fd, const struct asked *q)
{
    struct str x = {0};
    char prefix[512], token[64], next[64] = "";
    query_value(q, "prefix", prefix, sizeof prefix);
    query_value(q, "continuation-token", token, sizeof token);
    int at = *token ? atoi(token + 1) : 0, given = 0;
    size_t bucket = strlen(q->path);
    str_puts(&x, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
                 "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                 "<Name>b</Name><EncodingType>url</EncodingType>\n");
    for (; at < s->n_objects; at++) {
        const struct served *o = &s->object[at];
        if (strncmp(o->path, q->path, bucket) || o->path[bucket] != '/') continue;
        const char *key = o->path + bucket + 1;
        if (strncmp(key, prefix, strlen(prefix))) continue;
        if (given++ == s->page) {
            snprintf(next, sizeof next, "+%d/=", at); /* needs encoding */
            break;
        }
        str_puts(&x, "<Contents>\n  <Key>");
        for (const char *p = key; *p; p++)
            if (*p == ' ') str_putc(&x, '+');
            else url_encode(&x, p, 1, true);
        str_printf(&x,
                   "</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;%s&quot;</ETag><Size>%zu</"
                   "Size>"
                   "<Owner><ID>1</ID></Owner></Contents>",
                   o->etag, o->n);
    }
    str_printf(&x, "<IsTruncated>%s</IsTruncated>", *next ? "true" : "false");
    if (*next) str_printf(&x, "<NextContinuationToken>%s</NextContinuationToken>", next);
    str_puts(&x, "</ListBucketResult>");
    s->n_lists++;
    bool good = server_answer(fd, 200, "Content-Type: application/xml\r\n", x.p, x.n);
    str_free(&x);
    return good;
}

static inline bool send_slowly(struct object_server *s, int fd, const unsigned char *p, size_t n)
{
    for (size_t at = 0; at < n && !atomic_load(&s->stop); at += 8192) {
        if (!server_send(fd, p + at, n - at < 8192 ? n - at : 8192)) return false;
        clock_sleep_s(0.01);
    }
    return true;
}

/* What a request for an object gets; false: the connection ends. */
static inline bool server_give(struct object_server *s, int fd, const struct asked *q, const struct served *o,
                               enum trouble t)
{
    char head[600], tag[80];
    const char *range = asked_header(q, "Range"), *match = asked_header(q, "If-Match");
    long long first = 0, last = (long long)o->n - 1;
    bool part = range && sscanf(range, "bytes=%lld-%lld", &first, &last) == 2 && t != IGNORE_RANGE && t != NO_LENGTH;
    snprintf(tag, sizeof tag, "\"%s%s\"", o->etag, t == NEW_TAG ? "-new" : "");
    if (t == STATUS || t == REDIRECT) {
        if (t == REDIRECT) snprintf(head, sizeof head, "Location: %s\r\n", s->extra);
        else snprintf(head, sizeof head, "%s", s->extra);
        const char *xml = "<Error><Code>Trouble</Code><Message>as it was told &amp; asked</Message></Error>";
        return server_answer(fd, t == REDIRECT ? 302 : s->status, head, xml, strlen(xml));
    }
    if (t == HANG_UP) return false;
    if (match && strcmp(match, tag) && t != NEW_TAG) return server_answer(fd, 412, "", "", 0);
    if (part && first >= (long long)o->n) {
        snprintf(head, sizeof head, "Content-Range: bytes */%zu\r\n", o->n);
        return server_answer(fd, 416, head, "", 0);
    }
    if (!part) first = 0, last = (long long)o->n - 1;
    if (last >= (long long)o->n) last = (long long)o->n - 1;
    size_t n = (size_t)(last - first + 1);
    struct str h = {0};
    if (t == NO_TAG) snprintf(tag, sizeof tag, "-");
    str_printf(&h, "HTTP/1.1 %d X\r\n", part ? 206 : 200);
    if (t != NO_LENGTH && t != SHORT_CHUNK) str_printf(&h, "Content-Length: %zu\r\n", n);
    else str_puts(&h, "Connection: close\r\n");
    if (t != NO_TAG) str_printf(&h, "ETag: %s\r\n", tag);
    if (part)
        str_printf(&h, "Content-Range: bytes %lld-%lld/%zu\r\n", first + (t == WRONG_RANGE), last + (t == WRONG_RANGE),
                   o->n);
    str_puts(&h, "\r\n");
    bool good = server_send(fd, h.p, h.n);
    str_free(&h);
    if (!good) return false;
    const unsigned char *p = o->p + first;
    switch (t) {
    case RESET:
        server_send(fd, p, n / 2);
        clock_sleep_s(0.02);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        return false;
    case STALL:
        server_send(fd, p, n / 2);
        while (!atomic_load(&s->stop) && poll(&(struct pollfd){fd, POLLIN, 0}, 1, 20) == 0) continue;
        return false;
    case SHORT_CHUNK:
    case TRUNCATE: server_send(fd, p, n / 2); return false;
    case SLOW: return send_slowly(s, fd, p, n);
    case NO_LENGTH: server_send(fd, p, n); return false;
    default: return server_send(fd, p, n);
    }
}

static inline bool server_request(struct object_server *s, int fd)
{
    struct asked *q = xcalloc(1, sizeof *q);
    bool good = server_read(fd, q), list;
    char *path = xstrdup(q->path);
    url_decode(path);
    pthread_mutex_lock(&s->lock);
    list = good && strstr(q->query, "list-type=2");
    struct served object = {.n = 0}; /* as it is now: a test may put another meanwhile */
    bool there = false;
    for (int i = 0; i < s->n_objects && !there; i++) {
        there = good && !strcmp(s->object[i].path, path);
        if (there) object = s->object[i];
    }
    enum trouble t = good && s->left > 0 && s->left-- ? s->trouble : FINE;
    bool right = good && (!s->secret || server_signature_right(s, q));
    s->n_requests += good;
    s->n_ranges += good && asked_header(q, "Range");
    s->busy++;
    if (s->busy > s->most_busy) s->most_busy = s->busy;
    double delay_s = s->delay_s;
    if (list && right && t == FINE) good = server_list(s, fd, q);
    pthread_mutex_unlock(&s->lock);
    if (good && delay_s > 0) clock_sleep_s(delay_s);
    const char *no = "<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message></Error>",
               *none = "<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>";
    if (good && !right) good = server_answer(fd, 403, "", no, strlen(no));
    else if (good && (!list || t != FINE) && !there && t != STATUS)
        good = server_answer(fd, 404, "", none, strlen(none));
    else if (good && (!list || t != FINE)) good = server_give(s, fd, q, &object, t);
    pthread_mutex_lock(&s->lock);
    s->busy--;
    pthread_mutex_unlock(&s->lock);
    xfree(path);
    xfree(q);
    return good;
}

struct server_connection {
    struct object_server *s;
    int i;
};
static inline void *server_serve(void *arg)
{
    struct server_connection c = *(struct server_connection *)arg;
    xfree(arg);
    while (!atomic_load(&c.s->stop) && server_request(c.s, c.s->fd[c.i])) continue;
    shutdown(c.s->fd[c.i], SHUT_WR);
    pthread_mutex_lock(&c.s->lock);
    close(c.s->fd[c.i]);
    c.s->fd[c.i] = -1;
    pthread_mutex_unlock(&c.s->lock);
    return NULL;
}

static inline void *server_accept(void *arg)
{
    struct object_server *s = arg;
    while (!atomic_load(&s->stop)) {
        if (poll(&(struct pollfd){s->listener, POLLIN, 0}, 1, 20) <= 0) continue;
        int fd = accept(s->listener, NULL, NULL);
        if (fd < 0) continue;
        CHECK(s->n_connections < CONNECTIONS_MAX, "a test with more than %d connections", CONNECTIONS_MAX);
        struct server_connection *c = xcalloc(1, sizeof *c);
        pthread_mutex_lock(&s->lock);
        int i = s->n_connections++;
        *c = (struct server_connection){s, i};
        s->fd[i] = fd;
        pthread_mutex_unlock(&s->lock);
        CHECK(!pthread_create(&s->connection[i], NULL, server_serve, c), "a thread");
    }
    return NULL;
}

static inline void server_start(struct object_server *s)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    *s = (struct object_server){.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .page = 1000};
    CHECK(s->listener >= 0 && !bind(s->listener, (struct sockaddr *)&a, n) && !listen(s->listener, 64) &&
              !getsockname(s->listener, (struct sockaddr *)&a, &n),
          "no server on loopback: %s", strerror(errno));
    s->port = ntohs(a.sin_port);
    pthread_mutex_init(&s->lock, NULL);
    CHECK(!pthread_create(&s->thread, NULL, server_accept, s), "a thread");
}

static inline void server_stop(struct object_server *s)
{
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n_connections; i++)
        if (s->fd[i] >= 0) shutdown(s->fd[i], SHUT_RDWR);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->n_connections; i++) pthread_join(s->connection[i], NULL);
    close(s->listener);
    pthread_mutex_destroy(&s->lock);
}

/* The bytes stay the caller's. A path that is there gets other bytes. */
static inline void server_put(struct object_server *s, const char *path, const void *p, size_t n, const char *etag)
{
    pthread_mutex_lock(&s->lock);
    int i = 0;
    while (i < s->n_objects && strcmp(s->object[i].path, path)) i++;
    CHECK(i < SERVED_MAX, "more than %d objects", SERVED_MAX);
    s->n_objects += i == s->n_objects;
    snprintf(s->object[i].path, sizeof s->object[i].path, "%s", path);
    snprintf(s->object[i].etag, sizeof s->object[i].etag, "%s", etag);
    s->object[i].p = p;
    s->object[i].n = n;
    pthread_mutex_unlock(&s->lock);
}

static inline void server_remove(struct object_server *s, const char *path)
{
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n_objects; i++)
        if (!strcmp(s->object[i].path, path)) s->object[i--] = s->object[--s->n_objects];
    pthread_mutex_unlock(&s->lock);
}

/* The next n requests meet this. extra: of REDIRECT the address, of STATUS lines of the head, each with \r\n; or "". */
static inline void server_trouble(struct object_server *s, enum trouble t, int n, int status, const char *extra)
{
    pthread_mutex_lock(&s->lock);
    s->trouble = t;
    s->left = n;
    s->status = status;
    snprintf(s->extra, sizeof s->extra, "%s", extra);
    pthread_mutex_unlock(&s->lock);
}

static inline int server_count(struct object_server *s, const int *which)
{
    pthread_mutex_lock(&s->lock);
    int n = *which;
    pthread_mutex_unlock(&s->lock);
    return n;
}

#endif
