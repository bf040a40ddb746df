/* SPDX-License-Identifier: Apache-2.0 */
/* However many ask, the files are read at most twice a second. */
#include "watch/status.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "http/http_serve.h"
#include "watch/run_view.h"

enum { TOKEN_MOST = 512 };
#define FRESH_S 0.5

struct status {
    char *dir;
    struct http_server *server;
    struct run_view *pulse; /* the server's thread; NULL until the run's files are there */
    double looked_s;
};

static void put_json(const struct run_view *p, struct str *out)
{
    struct json_out o = {.s = out};
    json_begin_document(&o, "watch", 1);
    run_view_put(p, &o, true);
    json_end_object(&o);
}

bool status_answer(struct run_view *p, const char *path, const char **type, struct str *out)
{
    if (!strcmp(path, "/")) {
        *type = "text/html; charset=utf-8";
        str_puts(out, status_page);
        struct str now = {0};
        put_json(p, &now);
        for (size_t i = 0; i < now.n; i++) /* within a script of the page, no text may end it */
            if (now.p[i] == '<') str_puts(out, "\\u003c");
            else str_putc(out, now.p[i]);
        str_free(&now);
        str_puts(out, status_page_end);
        return true;
    }
    if (!strcmp(path, "/health")) {
        *type = "text/plain; charset=utf-8";
        str_puts(out, "ok\n");
        return true;
    }
    if (!strcmp(path, "/json")) {
        *type = "application/json";
        put_json(p, out);
        return true;
    }
    if (strcmp(path, "/metrics")) return false;
    *type = "text/plain; version=0.0.4; charset=utf-8";
    run_view_prometheus(p, out);
    return true;
}

static void answer(void *ctx, const char *path, struct http_answer *a)
{
    struct status *s = ctx;
    struct err e = {0};
    double now = clock_now_s();
    int rc = s->pulse ? OK : run_view_open(&s->pulse, s->dir, &e);
    if (!rc && (s->looked_s <= 0 || now - s->looked_s > FRESH_S)) {
        rc = run_view_look(s->pulse, &e);
        s->looked_s = rc ? 0 : now; /* who asks next looks again: what was read before is not how the run is */
    }
    if (rc) {
        a->status = 503;
        str_printf(&a->body, "%s\n", e.text);
    } else if (!status_answer(s->pulse, path, &a->type, &a->body)) {
        a->status = 404;
        str_puts(&a->body, "there are /, /json, /metrics and /health\n");
    }
}

/* One line; a file that others may read is no secret. */
static int read_token(const char *path, char **out, struct err *e)
{
    struct stat st;
    size_t n;
    *out = NULL;
    if (!stat(path, &st) && (st.st_mode & (S_IRGRP | S_IROTH)))
        return err_set(e, ERR_REQUEST, "run.status_token: %s may be read by others: chmod 600", path);
    int rc = fs_read_all(path, TOKEN_MOST, out, &n, e);
    if (rc) {
        e->code = ERR_REQUEST;
        return err_prefix(e, "run.status_token");
    }
    (*out)[strcspn(*out, "\r\n")] = 0;
    if (strlen(*out) >= 16) return OK;
    xfree(*out);
    *out = NULL;
    return err_set(e, ERR_REQUEST,
                   "run.status_token: %s has less than 16 characters in its first line; write a longer one", path);
}

int status_open(struct status **out, const struct status_config *c, struct err *e)
{
    char *token = NULL;
    int rc = c->token_file ? read_token(c->token_file, &token, e) : OK;
    *out = NULL;
    if (rc) return rc;
    struct status *s = xcalloc(1, sizeof *s);
    s->dir = xstrdup(c->dir);
    rc = http_serve_open(&s->server,
                         &(struct http_serve_config){.address = c->address,
                                                     .port = c->port,
                                                     .token = token,
                                                     .answer = answer,
                                                     .ctx = s},
                         e);
    if (rc) {
        err_prefix(e, "run.status_port");
        status_close(s);
    } else {
        *out = s;
    }
    xfree(token);
    return rc;
}

int status_port(const struct status *s) { return http_serve_port(s->server); }

void status_close(struct status *s)
{
    if (!s) return;
    http_serve_close(s->server);
    run_view_close(s->pulse);
    xfree(s->dir);
    xfree(s);
}
