/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http_guard.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* As long as the token is, whatever was sent. */
static bool same_token(const char *want, const char *got)
{
    size_t n = strlen(want), m = strlen(got);
    unsigned char other = n != m;
    for (size_t i = 0; i < n; i++) other |= (unsigned char)(want[i] ^ (m ? got[i % m] : 0));
    return !other;
}

static bool is_loopback_name(const char *host)
{
    char name[64];
    if (!host) return false;
    size_t n = strlen(host);
    if (n >= sizeof name) return false;
    memcpy(name, host, n + 1);
    char *colon = name[0] == '[' ? strstr(name, "]:") : strchr(name, ':');
    if (colon) colon[name[0] == '['] = 0;
    struct in_addr a;
    return !strcasecmp(name, "localhost") || !strcmp(name, "[::1]") ||
           (inet_pton(AF_INET, name, &a) == 1 && (ntohl(a.s_addr) >> 24) == 127);
}

int http_guard_refused(const char *token, struct MHD_Connection *c)
{
    const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host"),
               *bearer = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization"),
               *query = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "token");
    if (!token) return is_loopback_name(host) ? 0 : MHD_HTTP_FORBIDDEN;
    if (bearer && !strncasecmp(bearer, "Bearer ", 7) && same_token(token, bearer + 7)) return 0;
    return query && same_token(token, query) ? 0 : MHD_HTTP_UNAUTHORIZED;
}

int http_guard_address(struct http_address *a, const char *text, int port, struct err *e)
{
    a->v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a->v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    a->is6 = inet_pton(AF_INET6, text, &a->v6.sin6_addr) == 1;
    if (!a->is6 && inet_pton(AF_INET, text, &a->v4.sin_addr) != 1)
        return err_set(e, ERR_REQUEST, "%s is no address of numbers, such as 127.0.0.1 or ::1", text);
    return OK;
}

const struct sockaddr *http_guard_sockaddr(const struct http_address *a)
{
    return a->is6 ? (const struct sockaddr *)(const void *)&a->v6 : (const struct sockaddr *)(const void *)&a->v4;
}

void http_guard_headers(struct MHD_Response *r, const char *type)
{
    MHD_add_response_header(r, "Content-Type", type ? type : "text/plain; charset=utf-8");
    MHD_add_response_header(r, "Cache-Control", "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(r, "Content-Security-Policy",
                            "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src "
                            "'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
}
