/* SPDX-License-Identifier: Apache-2.0 */
/* sigv4.c: the canonical request, the text to sign, the key of the day, the signature. */
#include "remote/sigv4.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "remote/sha256.h"

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The parameters of a query, each with its "=", sorted. Sorting whole "name=value" texts by byte would put "a-b="
 * before "a=": '-' is below '='. The mark between name and value is therefore a byte below all others while they are
 * sorted. */
static void add_query(struct str *out, const char *query)
{
    char *copy = xstrdup(query), **part = NULL, *rest = copy;
    int n = 0, room = 0;
    for (char *p; (p = strsep(&rest, "&"));) {
        if (!*p) continue;
        struct str s = {0};
        size_t name = strcspn(p, "=");
        str_add(&s, p, name);
        str_putc(&s, '\1');
        str_puts(&s, p[name] ? p + name + 1 : "");
        GROW(part, n, room, 1);
        part[n++] = s.p;
    }
    if (n) qsort(part, (size_t)n, sizeof *part, by_bytes);
    for (int i = 0; i < n; i++) {
        *strchr(part[i], '\1') = '=';
        str_printf(out, "%s%s", i ? "&" : "", part[i]);
        xfree(part[i]);
    }
    xfree(part);
    xfree(copy);
}

static void add_names(struct str *out, const struct sigv4_request *r)
{
    for (int i = 0; i < r->n_headers; i++) str_printf(out, "%s%s", i ? ";" : "", r->header[i].name);
}

static void add_canonical(struct str *out, const struct sigv4_request *r)
{
    str_printf(out, "%s\n%s\n", r->method, r->path);
    add_query(out, r->query);
    str_putc(out, '\n');
    for (int i = 0; i < r->n_headers; i++) str_printf(out, "%s:%s\n", r->header[i].name, r->header[i].value);
    str_putc(out, '\n');
    add_names(out, r);
    str_printf(out, "\n%s", r->payload);
}

static void keyed(unsigned char key[SHA256_BYTES], const char *text)
{
    unsigned char out[SHA256_BYTES];
    sha256_keyed(key, SHA256_BYTES, text, strlen(text), out);
    memcpy(key, out, sizeof out);
}

void sigv4_authorization(const struct sigv4_request *r, const struct sigv4_keys *k, struct str *out)
{
    struct str canonical = {0}, scope = {0}, text = {0}, secret = {0};
    unsigned char sum[SHA256_BYTES], key[SHA256_BYTES];
    char hex[SHA256_TEXT], day[9] = "";
    memcpy(day, r->date, strnlen(r->date, 8));
    add_canonical(&canonical, r);
    sha256(canonical.p, canonical.n, sum);
    str_printf(&scope, "%s/%s/%s/aws4_request", day, r->region, r->service);
    str_printf(&text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", r->date, scope.p, sha256_text(hex, sum));
    str_printf(&secret, "AWS4%s", k->secret);
    sha256_keyed(secret.p, secret.n, day, strlen(day), key);
    keyed(key, r->region);
    keyed(key, r->service);
    keyed(key, "aws4_request");
    keyed(key, str_text(&text));
    str_printf(out, "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=", k->id, scope.p);
    add_names(out, r);
    str_printf(out, ", Signature=%s", sha256_text(hex, key));
    memset(secret.p, 0, secret.n);
    str_free(&canonical);
    str_free(&scope);
    str_free(&text);
    str_free(&secret);
}
