/* SPDX-License-Identifier: Apache-2.0 */
/* http.c: libcurl's easy interface, one handle per thread that reads. Its own threads (looking up names) are its own.
 */
#include "remote/http.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

enum { REDIRECTS = 8, STALL_BYTES_PER_S = 1024, BUFFER = 256 << 10 };

struct http {
    CURL *curl;
    char error[CURL_ERROR_SIZE];
    const struct http_request *q; /* of the request under way */
    struct http_reply *r;
    bool enough, stalled;
    curl_off_t came; /* bytes of the body, and when the last of them came */
    double came_s;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void set_up(void) { CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK, "libcurl cannot be set up"); }

struct http *http_new(void)
{
    pthread_once(&once, set_up);
    struct http *h = xcalloc(1, sizeof *h);
    h->curl = curl_easy_init();
    CHECK(h->curl, "memory for libcurl");
    return h;
}

void http_free(struct http *h)
{
    if (!h) return;
    curl_easy_cleanup(h->curl);
    xfree(h);
}

/* ---- the head of an answer ---- */

static void copy(char *to, size_t room, const char *p, size_t n)
{
    n = n < room ? n : room - 1;
    memcpy(to, p, n);
    to[n] = 0;
}

/* "bytes 0-99/1234", "bytes 0-99/" and a star, "bytes " a star "/1234". */
static void read_range(struct http_reply *r, const char *text)
{
    long long first, last, total;
    if (sscanf(text, "bytes %lld-%lld/%lld", &first, &last, &total) == 3 && first >= 0 && last >= first &&
        total > last) {
        r->first = first;
        r->total = total;
    } else if (sscanf(text, "bytes */%lld", &total) == 1 && total >= 0) {
        r->total = total;
    } else if (sscanf(text, "bytes %lld-%lld/", &first, &last) == 2 && first >= 0) {
        r->first = first;
    }
}

static void read_retry_after(struct http_reply *r, const char *text)
{
    char *end;
    double s = strtod(text, &end);
    if (end > text && !*end) {
        r->retry_after_s = s >= 0 && s < 1e6 ? s : -1;
        return;
    }
    time_t when = curl_getdate(text, NULL);
    double wait = (double)when - clock_wall_s();
    r->retry_after_s = when == -1 ? -1 : wait > 0 ? wait : 0;
}

static void read_header(struct http_reply *r, const char *name, size_t name_n, const char *value, size_t n)
{
    char text[256];
    copy(text, sizeof text, value, n);
#define IS(what) (name_n == strlen(what) && !strncasecmp(name, what, name_n))
    if (IS("content-length")) r->length = strtoll(text, NULL, 10);
    else if (IS("content-range")) read_range(r, text);
    else if (IS("etag")) copy(r->etag, sizeof r->etag, value, n);
    else if (IS("last-modified")) copy(r->changed, sizeof r->changed, value, n);
    else if (IS("x-amz-bucket-region")) copy(r->region, sizeof r->region, value, n);
    else if (IS("x-amz-server-side-encryption")) r->sealed |= str_starts(text, "aws:kms");
    else if (IS("x-amz-server-side-encryption-customer-algorithm")) r->sealed = true;
    else if (IS("retry-after")) read_retry_after(r, text);
#undef IS
}

static const struct http_reply nothing = {.length = -1, .first = -1, .total = -1, .retry_after_s = -1};

/* Lines of every answer come here, those of redirects and of proxies before the last one's. */
static size_t on_header(char *p, size_t one, size_t n, void *arg)
{
    struct http *h = arg;
    size_t all = one * n, m = all;
    while (m && strchr(" \t\r\n", p[m - 1])) m--;
    if (m > 5 && !memcmp(p, "HTTP/", 5)) {
        const char *space = memchr(p, ' ', m);
        *h->r = nothing;
        h->r->status = space ? atoi(space + 1) : 0;
        return all;
    }
    const char *colon = memchr(p, ':', m);
    if (!colon) return all;
    size_t name = (size_t)(colon - p), at = name + 1;
    while (at < m && (p[at] == ' ' || p[at] == '\t')) at++;
    read_header(h->r, p, name, p + at, m - at);
    return all;
}

/* ---- its body ---- */

static size_t on_body(char *p, size_t one, size_t n, void *arg)
{
    struct http *h = arg;
    struct http_reply *r = h->r;
    size_t all = one * n;
    if (r->status >= 300) {
        size_t have = strlen(r->said), room = sizeof r->said - 1 - have, take = all < room ? all : room;
        memcpy(r->said + have, p, take);
        r->said[have + take] = 0;
    } else if (!h->q->body(h->q->arg, r, p, all)) {
        h->enough = true;
        return 0;
    }
    r->got += (int64_t)all;
    return all;
}

static int on_progress(void *arg, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up)
{
    (void)total, (void)up_total;
    now += up;
    struct http *h = arg;
    const struct http_request *q = h->q;
    if (now != h->came) {
        h->came = now;
        h->came_s = clock_now_s();
    }
    h->stalled = clock_now_s() - h->came_s > q->stall_s; /* libcurl's own measure is an average of some seconds */
    return h->stalled || (q->give_up && atomic_load_explicit(q->give_up, memory_order_relaxed)) ||
           (q->closing && atomic_load_explicit(q->closing, memory_order_relaxed));
}

/* ---- the request ---- */

/* The program of that name has options for it; the library is told here. */
static const char *certificates(void)
{
    static const char *const names[] = {"AWS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = getenv(names[i]);
        if (path && *path) return path;
    }
    return NULL;
}

static void set_options(struct http *h, struct curl_slist *headers, const char *range)
{
    CURL *c = h->curl;
    const struct http_request *q = h->q;
    bool tls = str_starts(q->url, "https://");
    curl_easy_reset(c); /* the connection stays */
    curl_easy_setopt(c, CURLOPT_URL, q->url);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, tls ? "https" : "http,https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, (long)q->follow);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)REDIRECTS);
    curl_easy_setopt(c, CURLOPT_PATH_AS_IS, (long)q->as_is);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "tutti/" TUTTI_VERSION);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L); /* signals are the program's */
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, h->error);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)(1000 * q->connect_s));
    if (q->most_s > 0) curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)(1000 * q->most_s) + 1); /* 0 would be no limit */
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, (long)STALL_BYTES_PER_S);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)(q->stall_s < 1 ? 1 : q->stall_s));
    curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(c, CURLOPT_BUFFERSIZE, (long)BUFFER);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, h);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, h);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, h);
    if (range) curl_easy_setopt(c, CURLOPT_RANGE, range);
    if (q->method) {
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, q->send ? q->send : "");
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->n_send);
        curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, q->method);
    }
    if (certificates()) curl_easy_setopt(c, CURLOPT_CAINFO, certificates());
}

/* Failures that waiting may mend; all others are the same at every try. */
static bool may_pass(CURLcode code)
{
    static const CURLcode codes[] = {
        CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY, CURLE_COULDNT_CONNECT, CURLE_WEIRD_SERVER_REPLY,
        CURLE_PARTIAL_FILE,         CURLE_OPERATION_TIMEDOUT,    CURLE_GOT_NOTHING,     CURLE_SEND_ERROR,
        CURLE_RECV_ERROR,           CURLE_SSL_CONNECT_ERROR,     CURLE_HTTP2,           CURLE_HTTP2_STREAM,
        CURLE_CHUNK_FAILED,
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (code == codes[i]) return true;
    return false;
}

/* What happened, in words that stay: the library's own change from version to version. NULL: its words alone. */
static const char *what_happened(CURLcode code)
{
    static const struct {
        CURLcode code;
        const char *words;
    } known[] = {
        {CURLE_COULDNT_RESOLVE_HOST, "the name of the host is not known"},
        {CURLE_COULDNT_RESOLVE_PROXY, "the name of the proxy is not known"},
        {CURLE_COULDNT_CONNECT, "cannot connect"},
        {CURLE_OPERATION_TIMEDOUT, "no answer in time"},
        {CURLE_GOT_NOTHING, "no answer"},
        {CURLE_PARTIAL_FILE, "the answer ended early"},
        {CURLE_CHUNK_FAILED, "the answer ended early"},
        {CURLE_UNSUPPORTED_PROTOCOL, "not an answer of HTTP"},
        {CURLE_WEIRD_SERVER_REPLY, "not an answer of HTTP"},
        {CURLE_SSL_CONNECT_ERROR, "no TLS connection"},
        {CURLE_PEER_FAILED_VERIFICATION, "its certificate is not trusted"},
        {CURLE_SSL_CACERT_BADFILE, "the file of trusted certificates cannot be read"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (code == known[i].code) return known[i].words;
    return NULL;
}

static struct curl_slist *longer(struct curl_slist *headers, const char *line)
{
    struct curl_slist *all = curl_slist_append(headers, line);
    CHECK(all, "memory for libcurl");
    return all;
}

enum http_end http_ask(struct http *h, const struct http_request *q, struct http_reply *r, char why[300])
{
    struct curl_slist *headers = NULL;
    char range[64];
    for (int i = 0; i < q->n_headers; i++) headers = longer(headers, q->header[i]);
    if (q->method) { /* what libcurl would say of a form, and its wait for leave to send */
        headers = longer(headers, "Content-Type:");
        headers = longer(headers, "Expect:");
    }
    snprintf(range, sizeof range, "%lld-%lld", (long long)q->first, (long long)(q->first + q->n - 1));
    *r = nothing;
    *why = 0;
    h->q = q;
    h->r = r;
    h->enough = h->stalled = false;
    h->came = 0;
    h->came_s = clock_now_s();
    h->error[0] = 0;
    set_options(h, headers, q->n ? range : NULL);
    CURLcode code = curl_easy_perform(h->curl);
    curl_slist_free_all(headers);
    if (h->enough) return HTTP_ENOUGH;
    if (code == CURLE_OK) return HTTP_ANSWERED;
    if (code == CURLE_ABORTED_BY_CALLBACK && h->stalled) {
        snprintf(why, 300, "nothing came for %.1f s", clock_now_s() - h->came_s);
        return HTTP_FAILED;
    }
    if (code == CURLE_ABORTED_BY_CALLBACK) return HTTP_STOPPED;
    const char *what = what_happened(code);
    snprintf(why, 300, "%s%s%.200s", what ? what : "", what ? ": " : "",
             h->error[0] ? h->error : curl_easy_strerror(code));
    return may_pass(code) ? HTTP_FAILED : HTTP_REFUSED;
}
