/* SPDX-License-Identifier: Apache-2.0 */
/* url.c: takes an address apart as far as messages and s3:// need it; the rest is libcurl's. */
#include "remote/url.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"

enum { BUCKET_MAX = 255, KEY_MAX = 1024, TEXT_MAX = 8192 };

static const char *const schemes[] = {"http://", "https://", "s3://"};

bool url_is(const char *path)
{
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (str_starts(path, schemes[i])) return true;
    return false;
}

static bool control(unsigned char c) { return c < 0x20 || c == 0x7f; }

static int parse_s3(struct url *u, struct err *e)
{
    const char *bucket = u->text + strlen("s3://"), *end = bucket + strcspn(bucket, "/");
    size_t n = (size_t)(end - bucket);
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    if (!n || n > BUCKET_MAX || strspn(bucket, allowed) < n || strspn(bucket, ".") == n)
        return err_set(e, ERR_REQUEST, "%s: names no bucket; wanted s3://BUCKET/KEY", u->shown);
    u->s3 = true;
    u->bucket = xstrndup(bucket, n);
    u->key = xstrdup(*end ? end + 1 : "");
    if (strlen(u->key) > KEY_MAX)
        return err_set(e, ERR_REQUEST, "%s: a key of %zu bytes; an object's has at most %d", u->shown, strlen(u->key),
                       KEY_MAX);
    return OK;
}

/* scheme://host/path of scheme://user:password@host/path?query#fragment. */
static char *without_secrets(const char *text)
{
    const char *host = strstr(text, "://") + 3, *path = host + strcspn(host, "/?#");
    const char *at = memrchr(host, '@', (size_t)(path - host));
    struct str s = {0};
    str_add(&s, text, (size_t)(host - text));
    if (at) host = at + 1;
    str_add(&s, host, (size_t)(path - host) + strcspn(path, "?#"));
    return s.p;
}

static int parse_http(struct url *u, struct err *e)
{
    const char *host = strstr(u->shown, "://") + 3;
    if (!*host || *host == '/' || *host == ':')
        return err_set(e, ERR_REQUEST, "%s: names no host; wanted https://HOST/PATH", u->shown);
    if (strchr(u->text, ' ')) return err_set(e, ERR_REQUEST, "%s: has a space; an address has %%20 there", u->shown);
    return OK;
}

int url_parse(struct url *u, const char *text, struct err *e)
{
    *u = (struct url){.text = xstrdup(text)};
    CHECK(url_is(text), "no address");
    bool s3 = str_starts(text, "s3://");
    u->shown = s3 ? xstrdup(text) : without_secrets(text);
    if (strlen(text) > TEXT_MAX)
        return err_set(e, ERR_REQUEST, "%.80s...: an address of %zu bytes; at most %d are taken", u->shown,
                       strlen(text), TEXT_MAX);
    for (const char *p = text; *p; p++)
        if (control((unsigned char)*p))
            return err_set(e, ERR_REQUEST, "an address with control characters (byte %d of it): wanted none",
                           (int)(p - text));
    return s3 ? parse_s3(u, e) : parse_http(u, e);
}

void url_free(struct url *u)
{
    xfree(u->text);
    xfree(u->shown);
    xfree(u->bucket);
    xfree(u->key);
    *u = (struct url){0};
}

void url_encode(struct str *out, const char *p, size_t n, bool keep_slash)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (size_t i = 0; i < n; i++) {
        bool keep = p[i] && (strchr(plain, p[i]) || (keep_slash && p[i] == '/'));
        if (keep) str_putc(out, p[i]);
        else str_printf(out, "%%%02X", (unsigned char)p[i]);
    }
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

void url_decode(char *p)
{
    char *to = p;
    while (*p) {
        int high = p[0] == '%' ? hex_digit(p[1]) : -1, low = high >= 0 ? hex_digit(p[2]) : -1;
        int c = low >= 0 ? high << 4 | low : 0; /* %00 would end the text: it stays as it is */
        if (c) {
            *to++ = (char)c;
            p += 3;
        } else {
            *to++ = *p++;
        }
    }
    *to = 0;
}
