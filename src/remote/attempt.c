/* SPDX-License-Identifier: Apache-2.0 */
/* attempt.c: asks until there is an answer that counts, or tries or time are up.
 *
 * The pause before try k + 1 is drawn from the upper half of pause_s * 2^(k - 1), so that many readers whom one server
 * sent away do not come back together; a server that names a time (Retry-After) is given it, as far as give_up_s goes.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "remote/remote_impl.h"
#include "remote/sha256.h"

static const double PAUSE_MOST_S = 20;

static bool stopped(const struct attempt *a)
{
    const atomic_int *g = a->r->o.give_up;
    return (g && atomic_load(g)) || (a->closing && atomic_load(a->closing));
}

static void pause_for(const struct attempt *a, double s)
{
    for (double end = clock_now_s() + s, left = s; left > 0 && !stopped(a); left = end - clock_now_s())
        clock_sleep_s(left < 0.05 ? left : 0.05);
}

static double pause_of(const struct attempt *a, int tried, double asked_s)
{
    double most = a->r->o.pause_s;
    for (int i = 1; i < tried && most < PAUSE_MOST_S; i++) most *= 2;
    if (most > PAUSE_MOST_S) most = PAUSE_MOST_S;
    double chance = rng_uniform((uint64_t)(1e9 * clock_now_s()), (uint64_t)gettid(), (uint64_t)tried);
    double s = most * (0.5 + 0.5 * chance);
    return asked_s > s ? asked_s : s;
}

const char *attempt_other_version(const struct remote_about *about, const struct http_reply *r)
{
    const char *tag = r->etag;
    size_t n = strlen(about->etag);
    if (!strncmp(tag, "W/", 2)) tag += 2;
    if (*tag == '"') tag++;
    if (n && *tag && (strncmp(tag, about->etag, n) || (tag[n] && strcmp(tag + n, "\"")))) return "its ETag is another";
    if (!n && *about->changed && *r->changed && strcmp(about->changed, r->changed))
        return "its time of change is another";
    if (r->total >= 0 && r->total != about->bytes) return "its size is another";
    return NULL;
}

/* ---- one request ---- */

static enum http_end ask(struct http *h, const struct attempt *a, struct http_reply *r, char why[300])
{
    char match[300];
    const char *header[9];
    int n = 0;
    struct s3_get g = {0};
    const struct remote_about *same = a->same;
    if (a->url->s3) {
        unsigned char sum[SHA256_BYTES];
        char payload[SHA256_TEXT];
        sha256(a->send ? a->send : "", a->n_send, sum);
        struct s3_body body = {sha256_text(payload, sum), a->source, a->range};
        s3_make(&g, &a->r->s3, a->method ? a->method : "GET", &body, a->url->bucket, a->url->key, a->query,
                clock_wall_s());
        for (; n < g.n_headers; n++) header[n] = g.header[n];
    }
    if (same && *same->etag && !same->weak) {
        snprintf(match, sizeof match, "If-Match: \"%s\"", same->etag);
        header[n++] = match;
    } else if (same && !*same->etag && *same->changed) {
        snprintf(match, sizeof match, "If-Unmodified-Since: %s", same->changed);
        header[n++] = match;
    }
    struct http_request q = {
        .url = a->url->s3 ? str_text(&g.url) : a->url->text,
        .header = header,
        .n_headers = n,
        .method = a->method,
        .send = a->send,
        .n_send = a->n_send,
        .first = a->first,
        .n = a->n,
        .follow = !a->url->s3,
        .as_is = a->url->s3,
        .connect_s = a->r->o.connect_s,
        .stall_s = a->r->o.stall_s,
        .body = a->body,
        .arg = a->arg,
        .give_up = a->r->o.give_up,
        .closing = a->closing,
    };
    enum http_end end = http_ask(h, &q, r, why);
    s3_get_free(&g);
    return end;
}

/* ---- what came of it ---- */

/* "HTTP 403 (AccessDenied: Access Denied)". */
static void say_status(const struct http_reply *r, char why[300])
{
    char *code = s3_element(r->said, "Code"), *message = s3_element(r->said, "Message");
    snprintf(why, 300, "HTTP %d%s%.60s%s%.160s%s", r->status, code ? " (" : "", code ? code : "",
             message && code ? ": " : "", message && code ? message : "", code ? ")" : "");
    for (char *p = why; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = ' '; /* a server's words, on a terminal */
    xfree(code);
    xfree(message);
}

static bool may_pass(int status)
{
    static const int codes[] = {408, 425, 429, 500, 502, 503, 504};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (status == codes[i]) return true;
    return false;
}

/* What to do about a status that is the same at every try; "": nothing is known. */
static void advise(const struct attempt *a, const struct http_reply *r, char out[200])
{
    bool s3 = a->url->s3, forbidden = r->status == 401 || r->status == 403;
    *out = 0;
    if (s3 && forbidden && !a->r->s3.id)
        snprintf(out, 200, "; it was asked for without keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
    else if (s3 && forbidden)
        snprintf(out, 200, "; the keys of the environment may not %s it, or the clock is wrong",
                 a->method ? "write" : "read");
    else if (s3 && (r->status == 400 || (r->status >= 300 && r->status < 400)))
        snprintf(out, 200, "; the bucket's region is %s, AWS_REGION is %.60s",
                 *r->region ? r->region : "perhaps another", a->r->s3.region);
}

static enum verdict judge(const struct attempt *a, enum http_end end, const struct http_reply *r, char why[300])
{
    if (end == HTTP_FAILED) {
        if (r->status == 200 || r->status == 206) { /* what came of it counts, and another version does not pass */
            char more[300] = "";
            enum verdict v = a->judge(a->arg, r, more);
            if (v == NEVER) memcpy(why, more, sizeof more);
            return v;
        }
        return AGAIN;
    }
    if (end == HTTP_REFUSED) return NEVER;
    if (r->status == 200 || r->status == 206 || r->status == 416 || (a->method && r->status == 204))
        return a->judge(a->arg, r, why);
    if (r->status == 412 && a->same) {
        snprintf(why, 300, "it has changed since its reading began (HTTP 412); start again");
        return NEVER;
    }
    say_status(r, why);
    if (may_pass(r->status)) return AGAIN;
    if ((r->status == 404 || r->status == 410) && a->same)
        snprintf(why + strlen(why), 300 - strlen(why), ": it was there when its reading began");
    char advice[200];
    advise(a, r, advice);
    snprintf(why + strlen(why), 300 - strlen(why), "%.*s", (int)(299 - strlen(why)), advice);
    return NEVER;
}

static void say_place(const struct attempt *a, char out[80])
{
    if (a->method) snprintf(out, 80, "cannot be %s", strcmp(a->method, "DELETE") ? "written" : "removed");
    else if (a->same)
        snprintf(out, 80, "bytes %lld to %lld cannot be read", (long long)a->first,
                 (long long)(a->n ? a->first + a->n : a->same->bytes));
    else snprintf(out, 80, "%s", *a->query ? "its objects cannot be listed" : "cannot be read");
}

int attempt(struct http *h, struct attempt *a, struct err *e)
{
    double from = clock_now_s();
    int most = a->r->o.tries;
    for (int tried = 1;; tried++) {
        struct http_reply r;
        char why[300], place[80];
        enum http_end end = stopped(a) ? HTTP_STOPPED : ask(h, a, &r, why);
        a->status = end == HTTP_STOPPED ? 0 : r.status;
        a->sealed |= end != HTTP_STOPPED && r.sealed;
        enum verdict v = end == HTTP_STOPPED ? NEVER : judge(a, end, &r, why);
        if (end != HTTP_STOPPED) remote_count(a->r, 1, v == AGAIN, r.got, 0);
        if (v == DONE) return OK;
        if (end == HTTP_STOPPED || stopped(a))
            return err_set(e, ERR_SIGNAL, "%s: stopped while it was %s", a->url->shown, a->method ? "written" : "read");
        say_place(a, place);
        if (v == NEVER)
            return err_set(e, a->same || end == HTTP_FAILED ? ERR_IO : ERR_REQUEST, "%s: %s: %s", a->url->shown, place,
                           why);
        double wait = pause_of(a, tried, r.retry_after_s), spent = clock_now_s() - from;
        if (tried >= most || spent + wait > a->r->o.give_up_s)
            return err_set(e, ERR_IO, "%s: %s: %s; tried %d time%s in %.1f s%s", a->url->shown, place, why, tried,
                           tried == 1 ? "" : "s", spent,
                           tried < most ? ", and the next pause would pass data.remote.give_up_s" : "");
        pause_for(a, wait);
    }
}
