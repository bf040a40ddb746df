/* SPDX-License-Identifier: Apache-2.0 */
/* object_server.h: a web server and object store on loopback, of threads of the test's own process, that misbehaves
 * when it is told to: for tests of what reads from such.
 *
 *   server_start(&s); server_put(&s, "/b/key", bytes, n, "tag"); ... requests ...; server_stop(&s)
 *
 * It gives ranges, ETags, If-Match, lists of s3://BUCKET/... by ListObjectsV2 in pages, and where `secret` is set it
 * lets nobody in whose signature (version 4) is not right, or whose body has another SHA-256. Objects are written by
 * PUT, in one or in parts, and removed by DELETE. `trouble` is what the next `left` requests for objects meet: of those
 * that it is for (`writes`, `reads`, `only`) `pass` are let through before. Its lists may lie, and its ETags.
 */
#ifndef TUTTI_TESTS_OBJECT_SERVER_H
#define TUTTI_TESTS_OBJECT_SERVER_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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
#include "remote/sha256.h"
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
    SHORT_CHUNK,  /* half the body, without a length, then the end */
    HALF_STORED,  /* of a PUT half is kept, and the answer is 200 */
    ERROR_INSIDE, /* of a completion: 200, and an error in the body */
    WRONG_BYTE,   /* of an answer, of the right size */
    WRONG_STORED  /* of what is kept of a PUT, and the answer is 200 */
};

struct served {
    char path[160];
    const unsigned char *p;
    size_t n;
    char etag[64];
    unsigned char *own; /* written by a request: to be freed */
};
struct upload { /* in parts */
    char path[160];
    int id;
    struct {
        unsigned char *p;
        size_t n;
    } part[64];
};
enum { UPLOADS_MAX = 64, SERVED_MAX = 256, CONNECTIONS_MAX = 512 };
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
    struct upload upload[UPLOADS_MAX];
    int n_uploads, begun, aborted, pass;             /* pass: writes that meet no trouble yet */
    bool writes, reads;                              /* trouble is for what writes alone; for what reads alone */
    char only[64];                                   /* and for paths with this in them; "": all */
    enum { TAGS_OWN, TAGS_MD5, TAGS_LIKE_MD5 } tags; /* ETags of what is put: words; MD5; what looks like that */
    enum {
        LISTS_END,
        LISTS_CIRCLE,
        LISTS_ENDLESS,
        LISTS_EMPTY
    } lists;        /* pages: of two names, over and over; of ever
                       new ones; of none, and there are more */
    bool no_copies; /* it does not know how */
    bool sealed;    /* what it gives is encrypted with a key, it says */
    int n_copies, n_puts, n_requests, n_ranges, n_lists, busy, most_busy;
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
        ssize_t k = recv(fd, q->text + n, 1, 0);        /* heads are small; the next request must not be taken */
        if (k <= 0 || q->text[0] == 0x16) return false; /* a greeting of TLS, which it does not speak */
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
    struct sigv4_request r = {q->method, q->path, q->query, date, s->region, "s3", payload, header, n};
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

/* What the next request meets, with the lock held. */
static inline enum trouble server_meets(struct object_server *s, bool write, const char *path)
{
    if (s->left <= 0 || (s->writes && !write) || (s->reads && write) || !strstr(path, s->only)) return FINE;
    if (s->pass > 0) {
        s->pass--;
        return FINE;
    }
    s->left--;
    return s->trouble;
}

/* A page of a list that does not end: the token is a number that grows, or that comes again. */
static inline bool server_list_on(struct object_server *s, int fd, const struct asked *q)
{
    char token[64], prefix[512], text[2048];
    query_value(q, "continuation-token", token, sizeof token);
    query_value(q, "prefix", prefix, sizeof prefix);
    long long at = *token ? atoll(token) : 0, next = s->lists == LISTS_CIRCLE ? (at + 1) % 3 : at + 1;
    char entry[700] = "";
    if (s->lists != LISTS_EMPTY)
        snprintf(entry, sizeof entry, "<Contents><Key>%sname-%lld</Key><ETag>x</ETag><Size>3</Size></Contents>", prefix,
                 at);
    snprintf(text, sizeof text,
             "<ListBucketResult>%s<IsTruncated>true</IsTruncated><NextContinuationToken>%lld</NextContinuationToken>"
             "</ListBucketResult>",
             entry, next);
    s->n_lists++;
    return server_answer(fd, 200, "", text, strlen(text));
}

/* ListObjectsV2 of /BUCKET: names in the order they were put, which tests do not sort. The token is a number. */
static inline bool server_list(struct object_server *s, int fd, const struct asked *q)
{
    struct str x = {0};
    char prefix[512], token[64], next[64] = "";
    if (s->lists != LISTS_END) return server_list_on(s, fd, q);
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
    if (s->sealed) str_puts(&h, "x-amz-server-side-encryption: aws:kms\r\n");
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
    case WRONG_BYTE: {
        unsigned char *wrong = xmalloc(n + 1);
        if (n) memcpy(wrong, p, n);
        if (n) wrong[n / 2] ^= 4;
        good = server_send(fd, wrong, n);
        xfree(wrong);
        return good;
    }
    default: return server_send(fd, p, n);
    }
}

static inline unsigned char *server_copy(const void *p, size_t n)
{
    unsigned char *out = xmalloc(n + 1);
    if (n) memcpy(out, p, n);
    return out;
}

static inline void server_drop(struct object_server *s, int i)
{
    xfree(s->object[i].own);
    s->object[i] = s->object[--s->n_objects];
}

/* A body becomes an object; takes p over. */
static inline void server_keep(struct object_server *s, const char *path, unsigned char *p, size_t n)
{
    char name[sizeof s->object[0].path];
    int i = 0;
    snprintf(name, sizeof name, "%s", path);
    while (i < s->n_objects && strcmp(s->object[i].path, path)) i++;
    CHECK(i < SERVED_MAX, "more than %d objects", SERVED_MAX);
    if (i < s->n_objects) xfree(s->object[i].own);
    else s->n_objects++;
    s->object[i] = (struct served){.p = p, .n = n, .own = p};
    memcpy(s->object[i].path, name, sizeof name);
    char sum[MD5_TEXT];
    snprintf(s->object[i].etag, sizeof s->object[i].etag, "w%d", ++s->n_puts);
    if (s->tags == TAGS_MD5 && md5_text(sum, p, n)) memcpy(s->object[i].etag, sum, sizeof sum);
    if (s->tags == TAGS_LIKE_MD5) snprintf(s->object[i].etag, sizeof s->object[i].etag, "%032x", s->n_puts);
}

static inline const char *server_tag(const struct object_server *s, const char *path)
{
    for (int i = 0; i < s->n_objects; i++)
        if (!strcmp(s->object[i].path, path)) return s->object[i].etag;
    return "";
}

static inline void upload_drop(struct object_server *s, int i)
{
    for (int k = 0; k < 64; k++) xfree(s->upload[i].part[k].p);
    s->upload[i] = s->upload[--s->n_uploads];
}

static inline int upload_find(struct object_server *s, const char *id)
{
    for (int i = 0; i < s->n_uploads; i++)
        if (s->upload[i].id == atoi(id)) return i;
    return -1;
}

/* The parts that the list names, by number and ETag, one behind the other. */
static inline bool upload_complete(struct object_server *s, int i, const char *list)
{
    struct str all = {0};
    int number, next = 1, tag;
    bool good = true;
    for (const char *p = list; good && (p = strstr(p, "<PartNumber>")); p++, next++) {
        good = sscanf(p, "<PartNumber>%d</PartNumber><ETag>\"p%d\"</ETag>", &number, &tag) == 2 && number == next &&
               number < 64 && tag == number && s->upload[i].part[number].p;
        if (good) str_add(&all, (char *)s->upload[i].part[number].p, s->upload[i].part[number].n);
    }
    if (good && next > 1) server_keep(s, s->upload[i].path, server_copy(all.p, all.n), all.n);
    str_free(&all);
    if (good && next > 1) upload_drop(s, i);
    return good && next > 1;
}

/* A PUT whose body is an object of this store, or bytes of it; to part k of upload u, or (u < 0) to an object. */
static inline bool server_copies(struct object_server *s, int fd, const struct asked *q, const char *path, int u, int k)
{
    const char *no = "<Error><Code>NotImplemented</Code><Message>no</Message></Error>",
               *range = asked_header(q, "x-amz-copy-source-range");
    char *from = xstrdup(asked_header(q, "x-amz-copy-source")), head[200];
    long long first = 0, last = -1;
    int i = 0;
    url_decode(from);
    while (i < s->n_objects && strcmp(s->object[i].path, from)) i++;
    xfree(from);
    if (s->no_copies) return server_answer(fd, 501, "", no, strlen(no));
    if (i == s->n_objects) return server_answer(fd, 404, "", no, strlen(no));
    last = (long long)s->object[i].n - 1;
    if (range && (sscanf(range, "bytes=%lld-%lld", &first, &last) != 2 || last >= (long long)s->object[i].n))
        return server_answer(fd, 416, "", no, strlen(no));
    size_t n = (size_t)(last - first + 1);
    unsigned char *p = server_copy(s->object[i].p + first, n);
    s->n_copies++;
    if (u >= 0) {
        xfree(s->upload[u].part[k].p);
        s->upload[u].part[k].p = p;
        s->upload[u].part[k].n = n;
        snprintf(head, sizeof head, "<CopyPartResult><ETag>&quot;p%d&quot;</ETag></CopyPartResult>", k);
    } else {
        server_keep(s, path, p, n);
        snprintf(head, sizeof head, "<CopyObjectResult><ETag>&quot;w%d&quot;</ETag></CopyObjectResult>", s->n_puts);
    }
    return server_answer(fd, 200, "", head, strlen(head));
}

/* ListMultipartUploads: two at a time. */
static inline bool server_list_uploads(struct object_server *s, int fd, const struct asked *q)
{
    struct str x = {0};
    char prefix[512];
    int given = 0;
    bool more = false;
    size_t bucket = strlen(q->path);
    query_value(q, "prefix", prefix, sizeof prefix);
    str_puts(&x, "<ListMultipartUploadsResult><Bucket>b</Bucket><EncodingType>url</EncodingType>");
    for (int i = 0; i < s->n_uploads; i++) {
        const char *key = s->upload[i].path + bucket + 1;
        if (strncmp(key, prefix, strlen(prefix))) continue;
        more = given == 2;
        if (more) break;
        given++;
        str_puts(&x, "<Upload><Key>");
        url_encode(&x, key, strlen(key), true);
        str_printf(&x, "</Key><UploadId>%d/+=</UploadId><Owner><ID>1</ID></Owner></Upload>", s->upload[i].id);
    }
    str_printf(&x, "<IsTruncated>%s</IsTruncated></ListMultipartUploadsResult>", more ? "true" : "false");
    bool good = server_answer(fd, 200, "Content-Type: application/xml\r\n", x.p, x.n);
    str_free(&x);
    return good;
}

/* A PUT, POST or DELETE, with the lock held; body is the caller's. False: the connection ends. */
static inline bool server_write(struct object_server *s, int fd, const struct asked *q, const char *path,
                                const unsigned char *body, size_t n, enum trouble t)
{
    char id[64], number[16], head[128] = "";
    query_value(q, "uploadId", id, sizeof id);
    query_value(q, "partNumber", number, sizeof number);
    int u = *id ? upload_find(s, id) : -1, k = atoi(number);
    const char *none = "<Error><Code>NoSuchUpload</Code><Message>no</Message></Error>",
               *trouble = "<Error><Code>Trouble</Code><Message>as it was told</Message></Error>";
    if (t == STATUS) return server_answer(fd, s->status, s->extra, trouble, strlen(trouble));
    if (t == HANG_UP || t == RESET) return false;
    if (t == HALF_STORED) n /= 2;
    if (!strcmp(q->method, "DELETE")) {
        if (*id) s->aborted++;
        if (u >= 0) upload_drop(s, u);
        for (int i = 0; !*id && i < s->n_objects; i++)
            if (!strcmp(s->object[i].path, path)) server_drop(s, i--);
        return server_answer(fd, 204, "", "", 0);
    }
    if (*id && u < 0) return server_answer(fd, 404, "", none, strlen(none));
    if (!strcmp(q->method, "POST") && !*id) {
        char xml[128];
        CHECK(s->n_uploads < UPLOADS_MAX, "more than %d uploads", UPLOADS_MAX);
        struct upload *x = &s->upload[s->n_uploads++];
        *x = (struct upload){.id = ++s->begun};
        snprintf(x->path, sizeof x->path, "%s", path);
        snprintf(xml, sizeof xml, "<R><Bucket>b</Bucket><UploadId>%d/+=</UploadId></R>", x->id);
        return server_answer(fd, 200, "", xml, strlen(xml));
    }
    if (!strcmp(q->method, "POST")) {
        struct str list = {0};
        str_add(&list, (const char *)body, n);
        const char *done = "<R><ETag>&quot;x-2&quot;</ETag></R>",
                   *later = "<Error><Code>InternalError</Code><Message>again</Message></Error>";
        bool good = t != ERROR_INSIDE && upload_complete(s, u, str_text(&list));
        str_free(&list);
        return server_answer(fd, 200, "", good ? done : later, strlen(good ? done : later));
    }
    if (asked_header(q, "x-amz-copy-source")) return server_copies(s, fd, q, path, u, k);
    if (*id) {
        CHECK(k > 0 && k < 64, "part %d", k);
        xfree(s->upload[u].part[k].p);
        s->upload[u].part[k].p = server_copy(body, n);
        s->upload[u].part[k].n = n;
        snprintf(head, sizeof head, "ETag: \"p%d\"\r\n", k);
    } else {
        unsigned char *kept = server_copy(body, n);
        if (t == WRONG_STORED && n) kept[n / 2] ^= 4;
        server_keep(s, path, kept, n);
        snprintf(head, sizeof head, "ETag: \"%s\"\r\n", server_tag(s, path));
    }
    return server_answer(fd, 200, head, "", 0);
}

/* What a request brings, as long as Content-Length says and trouble lets it; xfree it. NULL: it was cut short. */
static inline unsigned char *server_body(struct object_server *s, int fd, const struct asked *q, size_t *n,
                                         enum trouble t)
{
    const char *length = asked_header(q, "Content-Length");
    *n = length ? (size_t)strtoull(length, NULL, 10) : 0;
    unsigned char *p = xmalloc(*n + 1);
    size_t wanted = t == RESET || t == STALL ? *n / 2 : *n;
    for (size_t at = 0; at < wanted;) {
        ssize_t k = recv(fd, p + at, wanted - at, 0);
        if (k <= 0) {
            xfree(p);
            return NULL;
        }
        at += (size_t)k;
    }
    if (t != STALL) return p;
    while (!atomic_load(&s->stop) && poll(&(struct pollfd){fd, POLLRDHUP, 0}, 1, 20) == 0) continue;
    xfree(p);
    return NULL;
}

/* Its body has the SHA-256 that was signed. */
static inline bool server_body_right(const struct asked *q, const unsigned char *p, size_t n)
{
    unsigned char sum[SHA256_BYTES];
    char text[SHA256_TEXT];
    const char *said = asked_header(q, "x-amz-content-sha256");
    sha256(p, n, sum);
    return said && !strcmp(said, sha256_text(text, sum));
}

/* What is left of a request that writes. */
static inline bool server_writes(struct object_server *s, int fd, const struct asked *q)
{
    char *path = xstrdup(q->path);
    const char *no = "<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message></Error>",
               *other = "<Error><Code>XAmzContentSHA256Mismatch</Code><Message>no</Message></Error>";
    size_t n;
    url_decode(path);
    pthread_mutex_lock(&s->lock);
    enum trouble t = server_meets(s, true, path);
    bool right = !s->secret || server_signature_right(s, q);
    s->n_requests++;
    double delay_s = s->delay_s;
    pthread_mutex_unlock(&s->lock);
    if (delay_s > 0) clock_sleep_s(delay_s);
    unsigned char *body = server_body(s, fd, q, &n, t);
    bool good = body != NULL;
    if (good && !right) good = server_answer(fd, 403, "", no, strlen(no));
    else if (good && s->secret && t != RESET && !server_body_right(q, body, n))
        good = server_answer(fd, 400, "", other, strlen(other));
    else if (good) {
        pthread_mutex_lock(&s->lock);
        good = server_write(s, fd, q, path, body, n, t);
        pthread_mutex_unlock(&s->lock);
    }
    xfree(body);
    xfree(path);
    return good;
}

static inline bool server_request(struct object_server *s, int fd)
{
    struct asked *q = xcalloc(1, sizeof *q);
    bool good = server_read(fd, q), list;
    if (good && strcmp(q->method, "GET") && strcmp(q->method, "HEAD")) {
        good = server_writes(s, fd, q);
        xfree(q);
        return good;
    }
    char *path = xstrdup(q->path);
    url_decode(path);
    pthread_mutex_lock(&s->lock);
    bool uploads = good && strstr(q->query, "uploads=");
    list = uploads || (good && strstr(q->query, "list-type=2"));
    struct served object = {.n = 0}; /* as it is now: a test may put another meanwhile */
    bool there = false;
    for (int i = 0; i < s->n_objects && !there; i++) {
        there = good && !strcmp(s->object[i].path, path);
        if (there) object = s->object[i];
    }
    if (object.own) object.p = object.own = server_copy(object.own, object.n); /* a PUT may free it meanwhile */
    enum trouble t = good ? server_meets(s, false, path) : FINE;
    bool right = good && (!s->secret || server_signature_right(s, q));
    s->n_requests += good;
    s->n_ranges += good && asked_header(q, "Range");
    s->busy++;
    if (s->busy > s->most_busy) s->most_busy = s->busy;
    double delay_s = s->delay_s;
    if (list && right && t == FINE) good = uploads ? server_list_uploads(s, fd, q) : server_list(s, fd, q);
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
    xfree(object.own);
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
        int now = 1; /* a head and a body are two sends: the second does not wait for the first one's receipt */
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &now, sizeof now);
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
    while (s->n_uploads) upload_drop(s, 0);
    while (s->n_objects) server_drop(s, 0);
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
    xfree(s->object[i].own);
    s->object[i].own = NULL;
    s->object[i].p = p;
    s->object[i].n = n;
    pthread_mutex_unlock(&s->lock);
}

static inline void server_remove(struct object_server *s, const char *path)
{
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n_objects; i++)
        if (!strcmp(s->object[i].path, path)) server_drop(s, i--);
    pthread_mutex_unlock(&s->lock);
}

/* The next n requests meet this. extra: of REDIRECT the address, of STATUS lines of the head, each with \r\n; or "". */
static inline void server_trouble(struct object_server *s, enum trouble t, int n, int status, const char *extra)
{
    pthread_mutex_lock(&s->lock);
    s->trouble = t;
    s->writes = s->reads = false;
    s->only[0] = 0;
    s->pass = 0;
    s->left = n;
    s->status = status;
    snprintf(s->extra, sizeof s->extra, "%s", extra);
    pthread_mutex_unlock(&s->lock);
}

/* The next n requests that read (or write) and have `only` in their path meet this, after `pass` of them. */
static inline void server_trouble_for(struct object_server *s, enum trouble t, bool writes, const char *only, int pass,
                                      int n, int status)
{
    server_trouble(s, t, 0, status, "");
    pthread_mutex_lock(&s->lock);
    s->writes = writes;
    s->reads = !writes;
    snprintf(s->only, sizeof s->only, "%s", only);
    s->pass = pass;
    s->left = n;
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
