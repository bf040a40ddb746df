/* SPDX-License-Identifier: Apache-2.0 */
/* status.h: a run's state over HTTP (run.status_port): / a page, /json and /metrics (Prometheus) what is in run_view.h,
 * /health. The server's thread reads the run's files, as anybody outside could, and never meets a rank.
 * Floor 9. Order: Local.
 */
#ifndef TUTTI_WATCH_STATUS_H
#define TUTTI_WATCH_STATUS_H

#include <stdbool.h>

#include "base/err.h"

struct status_config {
    const char *dir, *address, *token_file; /* token_file NULL: none */
    int port;
};
struct status;
/* ERR_REQUEST: the port is taken, no such address, a token file that is empty, too long, or that others may read. */
int status_open(struct status **out, const struct status_config *c, struct err *e);
int status_port(const struct status *s);
void status_close(struct status *s); /* NULL is fine */
/* The text of a request for that path, without a server; false: there is no such path. */
struct str;
struct run_view;
bool status_answer(struct run_view *p, const char *path, const char **type, struct str *out);

/* status_page.c: the page, around the object that /json gives when it is handed out. */
extern const char status_page[], status_page_end[];

#endif
