/* SPDX-License-Identifier: Apache-2.0 */
/* s3.c: what the environment says, and one signed request. */
#include "remote/s3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "remote/sigv4.h"
#include "remote/url.h"
#include "remote/xml.h"

/* SHA-256 of a body of no bytes. */
#define NO_BODY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* The first of the variables that is there and not empty, else NULL. */
static const char *variable(const char *first, const char *second)
{
    const char *v = getenv(first);
    if ((!v || !*v) && second) v = getenv(second);
    return v && *v ? v : NULL;
}

/* host:port as a client sends it: a port that the scheme implies is left out. */
static char *host_of(const char *host, size_t n, bool tls)
{
    const char *port = tls ? ":443" : ":80";
    size_t m = strlen(port);
    return xstrndup(host, n > m && !memcmp(host + n - m, port, m) ? n - m : n);
}

static int set_endpoint(struct s3 *s, const char *given, struct err *e)
{
    struct str text = {0};
    if (given) str_puts(&text, given);
    else str_printf(&text, "https://s3.%s.amazonaws.com", s->region);
    while (text.n && text.p[text.n - 1] == '/') text.p[--text.n] = 0;
    s->endpoint = text.p;
    bool tls = str_starts(str_text(&text), "https://");
    if (!tls && !str_starts(str_text(&text), "http://"))
        return err_set(e, ERR_REQUEST, "AWS_ENDPOINT_URL: %.200s: wanted http://HOST or https://HOST", given);
    const char *host = strstr(s->endpoint, "://") + 3;
    size_t n = strcspn(host, "/");
    if (!n || memchr(host, '@', n) || strpbrk(host, "?# \t\r\n"))
        return err_set(e, ERR_REQUEST,
                       "AWS_ENDPOINT_URL: wanted http://HOST or https://HOST, perhaps with a port and a "
                       "path, and nothing else");
    s->host = host_of(host, n, tls);
    s->base = xstrdup(host + n);
    return OK;
}

int s3_from_environment(struct s3 *s, struct err *e)
{
    *s = (struct s3){0};
    const char *region = variable("AWS_REGION", "AWS_DEFAULT_REGION");
    const char *id = variable("AWS_ACCESS_KEY_ID", NULL), *secret = variable("AWS_SECRET_ACCESS_KEY", NULL),
               *token = variable("AWS_SESSION_TOKEN", NULL);
    s->region = xstrdup(region ? region : "us-east-1");
    if (!id != !secret)
        return err_set(e, ERR_REQUEST, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY go together, and only %s is set",
                       id ? "the first" : "the second");
    if (strpbrk(s->region, "\r\n /")) return err_set(e, ERR_REQUEST, "AWS_REGION: wanted a name such as us-east-1");
    if (id && strpbrk(id, "\r\n /,"))
        return err_set(e, ERR_REQUEST, "AWS_ACCESS_KEY_ID: has a space, a comma, a slash or a line end in it");
    if (token && strpbrk(token, "\r\n")) return err_set(e, ERR_REQUEST, "AWS_SESSION_TOKEN: has a line end in it");
    if (id) {
        s->id = xstrdup(id);
        s->secret = xstrdup(secret);
        if (token) s->token = xstrdup(token);
    }
    const char *style = variable("AWS_S3_ADDRESSING_STYLE", NULL);
    s->virtual_hosts = style && !strcmp(style, "virtual");
    if (style && !s->virtual_hosts && strcmp(style, "path"))
        return err_set(e, ERR_REQUEST, "AWS_S3_ADDRESSING_STYLE: wanted path or virtual, got %.40s", style);
    return set_endpoint(s, variable("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), e);
}

void s3_free(struct s3 *s)
{
    char *all[] = {s->endpoint, s->host, s->base, s->region, s->id, s->secret, s->token};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) xfree(all[i]);
    *s = (struct s3){0};
}

static void add_line(struct s3_get *g, const char *name, const char *value)
{
    struct str *l = &g->line[g->n_headers];
    str_printf(l, "%s: %s", name, value);
    g->header[g->n_headers++] = l->p;
}

static void sign(struct s3_get *g, const struct s3 *s, const char *method, const struct s3_body *body, const char *host,
                 const char *path, const char *query, double unix_s)
{
    char date[32];
    time_t t = (time_t)unix_s;
    struct tm utc;
    struct str authorization = {0};
    gmtime_r(&t, &utc);
    strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", &utc);
    const struct sigv4_header all[] = {{"host", host},
                                       {"x-amz-content-sha256", body->payload},
                                       {"x-amz-copy-source", body->source},
                                       {"x-amz-copy-source-range", body->range},
                                       {"x-amz-date", date},
                                       {"x-amz-security-token", s->token}};
    struct sigv4_header signed_ones[sizeof all / sizeof *all];
    int n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].value) signed_ones[n++] = all[i];
    struct sigv4_request r = {
        .method = method,
        .path = path,
        .query = query,
        .date = date,
        .region = s->region,
        .service = "s3",
        .payload = body->payload,
        .header = signed_ones,
        .n_headers = n,
    };
    sigv4_authorization(&r, &(struct sigv4_keys){s->id, s->secret}, &authorization);
    for (int i = 1; i < n; i++) add_line(g, signed_ones[i].name, signed_ones[i].value);
    add_line(g, "authorization", authorization.p);
    str_free(&authorization);
}

/* One label of a host's name: what a certificate for *.HOST covers. */
static bool is_label(const char *bucket)
{
    size_t n = strlen(bucket);
    return n && n <= 63 && strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789-") == n && bucket[0] != '-' &&
           bucket[n - 1] != '-';
}

void s3_get_make(struct s3_get *g, const struct s3 *s, const char *bucket, const char *key, const char *query,
                 double unix_s)
{
    s3_make(g, s, "GET", &(struct s3_body){.payload = NO_BODY}, bucket, key, query, unix_s);
}

void s3_make(struct s3_get *g, const struct s3 *s, const char *method, const struct s3_body *body, const char *bucket,
             const char *key, const char *query, double unix_s)
{
    struct str path = {0}, host = {0};
    bool in_host = s->virtual_hosts && is_label(bucket);
    int scheme = (int)(strstr(s->endpoint, "://") + 3 - s->endpoint),
        rest = (int)(strlen(s->endpoint) - strlen(s->base)) - scheme;
    *g = (struct s3_get){0};
    str_printf(&host, "%s%s%s", in_host ? bucket : "", in_host ? "." : "", s->host);
    str_printf(&path, "%s/%s%s", s->base, in_host ? "" : bucket, in_host ? "" : "/");
    url_encode(&path, key, strlen(key), true);
    if (!*key && !in_host) path.p[--path.n] = 0;
    str_printf(&g->url, "%.*s%s%s%.*s%s", scheme, s->endpoint, in_host ? bucket : "", in_host ? "." : "", rest,
               s->endpoint + scheme, path.p);
    if (*query) str_printf(&g->url, "?%s", query);
    if (s->id) sign(g, s, method, body, host.p, path.p, query, unix_s);
    if (!s->id && body->source) add_line(g, "x-amz-copy-source", body->source);
    if (!s->id && body->range) add_line(g, "x-amz-copy-source-range", body->range);
    str_free(&path);
    str_free(&host);
}

void s3_get_free(struct s3_get *g)
{
    str_free(&g->url);
    for (size_t i = 0; i < sizeof g->line / sizeof *g->line; i++) str_free(&g->line[i]);
}

char *s3_element(const char *xml, const char *name)
{
    struct xml x = {.p = xml, .end = xml + strlen(xml)};
    struct str text = {0};
    char *found = NULL;
    while (!found && xml_next(&x)) {
        if (x.kind != XML_TEXT || strcmp(x.name, name)) continue;
        xml_text(&x, &text);
        found = xstrdup(str_text(&text));
    }
    str_free(&text);
    return found;
}
