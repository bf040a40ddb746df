/* SPDX-License-Identifier: Apache-2.0 */
/* The command: two pipes that are served together, so that a hook may answer before it has read everything, or without
 * reading at all; everything waits with poll, never longer than until the limit. */
#include "learn/reward.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "remote/http.h"

enum { LINE_MOST = 64, MORE = 1 << 16 }; /* bytes of a number, and of all that is more */

bool reward_is_address(const char *hook) { return !strncmp(hook, "http://", 7) || !strncmp(hook, "https://", 8); }

static bool stopped(const struct reward_hook *h) { return h->give_up && atomic_load(h->give_up); }

static size_t most_bytes(int64_t n) { return to_size(n) * LINE_MOST + MORE; }

/* ---- what it said ---- */

static int parse_list(const char *text, size_t bytes, int64_t n, double *reward, struct err *e)
{
    struct json *list;
    int rc = json_parse_published(&list, text, bytes, "the list of rewards", e);
    if (rc) return rc;
    if (json_kind(list) != JSON_ARRAY || json_size(list) != to_size(n))
        rc = err_set(e, ERR_CORRUPT, "a list of %zu rewards, wanted %lld, one for each answer", json_size(list),
                     (long long)n);
    for (int64_t i = 0; !rc && i < n; i++) {
        reward[i] = json_real(json_at(list, to_size(i)), NAN);
        if (!isfinite(reward[i]))
            rc = err_set(e, ERR_CORRUPT, "reward %lld of the list is no finite number", (long long)i + 1);
    }
    json_free(list);
    return rc;
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* What a hook says is shown on a terminal: nothing of it moves a cursor there. */
static void make_plain(char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < 32 || (unsigned char)text[i] > 126) text[i] = '?';
}

/* One line, without its end. 1: a number; 0: it is empty. */
static int parse_line(const char *p, size_t n, int64_t line, double *to, struct err *e)
{
    char text[LINE_MOST], *end;
    while (n && is_space(*p)) p++, n--;
    while (n && is_space(p[n - 1])) n--;
    if (!n) return 0;
    size_t shown = n < sizeof text - 1 ? n : sizeof text - 1;
    memcpy(text, p, shown);
    text[shown] = 0;
    *to = strtod(text, &end);
    if (shown == n && strlen(text) == n && end == text + n && isfinite(*to)) return 1;
    make_plain(text, shown);
    return err_set(e, ERR_CORRUPT, "line %lld is '%s': wanted a finite number", (long long)line, text);
}

int reward_parse(const char *text, size_t bytes, int64_t n, double *reward, struct err *e)
{
    size_t at = 0;
    int64_t got = 0, line = 0;
    while (at < bytes && (is_space(text[at]) || text[at] == '\n')) at++;
    if (at < bytes && text[at] == '[') return parse_list(text + at, bytes - at, n, reward, e);
    for (at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t here = end ? (size_t)(end - text) - at : bytes - at;
        double value;
        int rc = parse_line(text + at, here, ++line, &value, e);
        if (rc < 0) return rc;
        if (rc && got < n) reward[got] = value;
        got += rc;
        at += here + 1;
    }
    if (got != n)
        return err_set(e, ERR_CORRUPT, "%lld numbers, wanted %lld, one for each answer", (long long)got, (long long)n);
    return OK;
}

/* ---- a command ---- */

struct command {
    const struct reward_hook *h;
    pid_t child;
    int to, from; /* ends of pipes here; -1: closed */
    double until_s;
    const char *lines;
    size_t left, most;
    struct str said;
};

static void shut(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

__attribute__((noreturn)) static void become(const char *hook, int in, int out)
{
    static const int usual[] = {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};
    sigset_t none;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) signal(usual[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0) _exit(126);
    execl("/bin/sh", "sh", "-c", hook, (char *)NULL);
    _exit(127);
}

static int start(struct command *x, struct err *e)
{
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC)) return err_errno(e, ERR_IO, errno, "no pipe to a reward's command");
    if (pipe2(out, O_CLOEXEC)) {
        int why = errno;
        close(in[0]);
        close(in[1]);
        return err_errno(e, ERR_IO, why, "no pipe from a reward's command");
    }
    x->child = fork();
    if (x->child == 0) become(x->h->hook, in[0], out[1]);
    int why = errno;
    close(in[0]);
    close(out[1]);
    x->to = in[1];
    x->from = out[0];
    if (x->child < 0) return err_errno(e, ERR_IO, why, "the reward's command cannot be started");
    setpgid(x->child, x->child); /* whoever is first */
    fcntl(x->to, F_SETFL, O_NONBLOCK);
    fcntl(x->from, F_SETFL, O_NONBLOCK);
    return OK;
}

/* Who no longer reads has enough: what it says counts. */
static void put(struct command *x)
{
    ssize_t n = write(x->to, x->lines, x->left);
    if (n > 0) {
        x->lines += n;
        x->left -= (size_t)n;
    }
    if (!x->left || (n < 0 && errno != EAGAIN && errno != EINTR)) shut(&x->to);
}

static int get(struct command *x, struct err *e)
{
    char part[4096];
    ssize_t n = read(x->from, part, sizeof part);
    if (n > 0) str_add(&x->said, part, (size_t)n);
    if (x->said.n > x->most)
        return err_set(e, ERR_CORRUPT, "it put out more than %zu bytes, which are no numbers for its answers", x->most);
    if (n == 0) shut(&x->from);
    else if (n < 0 && errno != EAGAIN && errno != EINTR) return err_errno(e, ERR_IO, errno, "reading what it puts out");
    return OK;
}

static int wait_more(const struct command *x, struct err *e)
{
    if (stopped(x->h)) return err_set(e, ERR_SIGNAL, "stopped while rewards were computed");
    if (clock_now_s() < x->until_s) return OK;
    return err_set(e, ERR_IO, "no rewards in %g s (train.grpo.reward_limit_s); it was ended", x->h->limit_s);
}

static int converse(struct command *x, struct err *e)
{
    int rc = OK;
    while (!rc && x->from >= 0) {
        struct pollfd fd[2] = {{.fd = x->from, .events = POLLIN}, {.fd = x->to, .events = POLLOUT}};
        int n = poll(fd, 2, 50);
        if (n > 0 && fd[1].revents) put(x);
        if (n > 0 && fd[0].revents) rc = get(x, e);
        if (!rc) rc = wait_more(x, e);
    }
    return rc;
}

/* Its end, which it may put off until the limit; *status as wait has it. */
static int await(struct command *x, int *status, struct err *e)
{
    int rc = OK;
    for (;;) {
        pid_t p = waitpid(x->child, status, WNOHANG);
        if (p == x->child) break;
        if (p < 0 && errno != EINTR) {
            *status = 0; /* somebody else has it; what it said counts */
            break;
        }
        if ((rc = wait_more(x, e))) return rc;
        poll(NULL, 0, 2);
    }
    x->child = -1;
    return OK;
}

static int end_of(struct command *x, struct err *e)
{
    int status = 0, rc = await(x, &status, e);
    if (rc) return rc;
    if (WIFSIGNALED(status)) return err_set(e, ERR_IO, "it was ended by signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) == 127) return err_set(e, ERR_IO, "it exits with 127: there is no such command");
    if (WEXITSTATUS(status)) return err_set(e, ERR_IO, "it exits with %d", WEXITSTATUS(status));
    return OK;
}

static void end_now(struct command *x)
{
    if (x->child <= 0) return;
    kill(-x->child, SIGKILL);
    kill(x->child, SIGKILL);
    while (waitpid(x->child, NULL, 0) < 0 && errno == EINTR) {}
}

/* Writing to who is gone is an error here, not a signal, whatever the process does about them. */
static int run_command(const struct reward_hook *h, const char *lines, size_t bytes, int64_t n, double *reward,
                       struct err *e)
{
    struct command x = {.h = h,
                        .to = -1,
                        .from = -1,
                        .child = -1,
                        .until_s = clock_now_s() + h->limit_s,
                        .lines = lines,
                        .left = bytes,
                        .most = most_bytes(n)};
    sigset_t pipe, before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    int rc = start(&x, e);
    if (!rc) rc = converse(&x, e);
    shut(&x.to);
    if (!rc) rc = end_of(&x, e);
    end_now(&x);
    shut(&x.from);
    if (!sigismember(&before, SIGPIPE))
        while (sigtimedwait(&pipe, NULL, &(struct timespec){0}) > 0) {}
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!rc) rc = reward_parse(str_text(&x.said), x.said.n, n, reward, e);
    str_free(&x.said);
    return rc;
}

/* ---- an address ---- */

struct reply {
    struct str said;
    size_t most;
};

static bool take_body(void *arg, const struct http_reply *r, const void *p, size_t n)
{
    struct reply *x = arg;
    (void)r;
    if (x->said.n + n > x->most) return false;
    str_add(&x->said, p, n);
    return true;
}

/* The limit is one of the whole request: a server that takes the lines slowly, or that puts out its error byte by byte,
 * has no longer than one that says nothing. So what stalls is no case of its own. */
static int ask_address(const struct reward_hook *h, const char *lines, size_t bytes, int64_t n, double *reward,
                       struct err *e)
{
    static const char *const header[] = {"Content-Type: application/jsonl"};
    struct reply x = {.most = most_bytes(n)};
    double until_s = clock_now_s() + h->limit_s;
    struct http_reply r = {0};
    char why[300] = "";
    struct http *http = http_new();
    struct http_request q = {.url = h->hook,
                             .header = header,
                             .n_headers = 1,
                             .method = "POST",
                             .send = lines,
                             .n_send = bytes,
                             .connect_s = h->limit_s,
                             .stall_s = 2 * h->limit_s + 60,
                             .most_s = h->limit_s,
                             .body = take_body,
                             .arg = &x,
                             .give_up = h->give_up};
    enum http_end end = http_ask(http, &q, &r, why);
    int rc = OK;
    http_free(http);
    make_plain(r.said, strlen(r.said));
    if (end == HTTP_STOPPED) rc = err_set(e, ERR_SIGNAL, "stopped while rewards were computed");
    else if (end == HTTP_FAILED && clock_now_s() >= until_s)
        rc = err_set(e, ERR_IO, "no rewards in %g s (train.grpo.reward_limit_s)", h->limit_s);
    else if (end == HTTP_ENOUGH)
        rc = err_set(e, ERR_CORRUPT, "it answered with more than %zu bytes, which are no numbers for its answers",
                     x.most);
    else if (end != HTTP_ANSWERED) rc = err_set(e, ERR_IO, "%s", why);
    else if (r.status < 200 || r.status > 299) rc = err_set(e, ERR_IO, "it answered with %d: %.200s", r.status, r.said);
    if (!rc) rc = reward_parse(str_text(&x.said), x.said.n, n, reward, e);
    str_free(&x.said);
    return rc;
}

/* ---- tries ---- */

static void pause_for(const struct reward_hook *h)
{
    double until = clock_now_s() + h->pause_s;
    while (clock_now_s() < until && !stopped(h)) poll(NULL, 0, 20);
}

int reward_ask(const struct reward_hook *h, const char *lines, size_t bytes, int64_t n, double *reward, struct err *e)
{
    struct err why = {0};
    int rc = OK;
    for (int64_t try = 1; try <= h->tries; try++) {
        rc = reward_is_address(h->hook) ? ask_address(h, lines, bytes, n, reward, &why)
                                        : run_command(h, lines, bytes, n, reward, &why);
        if (!rc || rc == ERR_SIGNAL) break;
        if (try == h->tries) break;
        log_status_end();
        log_warn("rewards: %s; trying again in %g s (%lld of %lld)", why.text, h->pause_s, (long long)try,
                 (long long)h->tries);
        pause_for(h);
    }
    if (!rc) return OK;
    if (rc == ERR_SIGNAL) return err_set(e, ERR_SIGNAL, "%s", why.text);
    return err_set(e, ERR_IO, "train.grpo.reward: '%.100s': %s%s", h->hook, why.text,
                   h->tries > 1 ? ", each time it was asked" : "");
}
