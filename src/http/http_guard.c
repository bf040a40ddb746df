/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http_guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

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

static int open_at(const struct sockaddr *a, socklen_t n, bool is6)
{
    int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    if (fd < 0) return -1;
    /* Only what an ended server left behind does not count; beside one that listens it changes nothing here. */
    if (!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) &&
        (!is6 || !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on)) && !bind(fd, a, n) &&
        !listen(fd, SOMAXCONN))
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

int http_guard_listen(const char *address, int *port, bool *is6, int *fd, struct err *e)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)*port)};
    *fd = -1;
    *is6 = inet_pton(AF_INET6, address, &v6.sin6_addr) == 1;
    if (!*is6 && inet_pton(AF_INET, address, &v4.sin_addr) != 1)
        return err_set(e, ERR_REQUEST, "%s is no address of numbers, such as 127.0.0.1 or ::1", address);
    struct sockaddr *a = *is6 ? (struct sockaddr *)(void *)&v6 : (struct sockaddr *)(void *)&v4;
    socklen_t n = *is6 ? sizeof v6 : sizeof v4;
    *fd = open_at(a, n, *is6);
    if (*fd < 0) {
        const char *taken = errno == EADDRINUSE ? " (another program listens there)" : "";
        return err_set(e, ERR_REQUEST, "port %d of %s cannot be opened: %s%s; choose another one", *port, address,
                       strerror(errno), taken);
    }
    if (!getsockname(*fd, a, &n)) *port = ntohs(*is6 ? v6.sin6_port : v4.sin_port);
    return OK;
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
