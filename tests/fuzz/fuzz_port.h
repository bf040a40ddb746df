/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_port.h: bytes of a client to a port of this machine, for fuzzing servers. */
#ifndef TUTTI_TESTS_FUZZ_PORT_H
#define TUTTI_TESTS_FUZZ_PORT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/str.h"

/* Longer than an input may take: a server that waits for more, or hangs up on a proper client, is not in time. */
enum { PORT_LONG_S = 3600 };

/* Sends p up to `cut`, and the rest; adds everything that comes back. The connection is closed without a rest, or there
 * would soon be no port left. */
static inline void ask_port(int port, const uint8_t *p, size_t n, size_t cut, struct str *got)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct linger at_once = {.l_onoff = 1};
    char block[4096];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)(void *)&to, sizeof to), "nobody listens");
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    (void)!send(fd, p, cut, MSG_NOSIGNAL);
    (void)!send(fd, p + cut, n - cut, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    for (ssize_t k; (k = recv(fd, block, sizeof block, 0)) > 0;) str_add(got, block, (size_t)k);
    close(fd);
}

#endif
