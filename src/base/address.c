/* SPDX-License-Identifier: Apache-2.0 */
#include "base/address.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static size_t scheme_of(const char *path)
{
    static const char others[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";
    if (!isalpha((unsigned char)*path)) return 0;
    size_t n = strspn(path, others);
    return strncmp(path + n, "://", 3) ? 0 : n;
}

bool address_is(const char *path) { return scheme_of(path) > 0; }

int address_refuse(const char *path, const char *wanted, struct err *e)
{
    static const char *const known[] = {"http", "https", "s3"};
    size_t n = scheme_of(path);
    if (!n) return OK;
    /* What is secret in an address stays in it: a user and a password before the host, a query behind the path. */
    const char *host = path + n + 3, *end = host + strcspn(host, "?#"),
               *slash = memchr(host, '/', (size_t)(end - host)),
               *at = memrchr(host, '@', (size_t)((slash ? slash : end) - host));
    if (at) host = at + 1;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (n == strlen(known[i]) && !strncasecmp(path, known[i], n) && strncmp(path, known[i], n))
            return err_set(e, ERR_REQUEST,
                           "%.*s://%.*s: addresses are written in small letters: %s://; wanted here: %s", (int)n, path,
                           (int)(end - host), host, known[i], wanted);
    return err_set(e, ERR_REQUEST, "%.*s://%.*s: is an address (%.*s://), wanted: %s", (int)n, path, (int)(end - host),
                   host, (int)n, path, wanted);
}
