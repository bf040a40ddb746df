/* SPDX-License-Identifier: Apache-2.0 */
/* tutti watch RUN: a run's state from its files (watch/run_view.h), live. On a terminal a few lines that are drawn over
 * again, elsewhere a line whenever there is something new; it ends when the run does. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/shown.h"
#include "cli/cli.h"
#include "cli/screen.h"
#include "watch/run_view.h"

struct request {
    const char *run;
    double every;
    bool once, json;
};
static const struct cli_option options[] = {{"--every", "SECONDS", CLI_REAL, offsetof(struct request, every),
                                             .least = 0.05, .most = 86400, .help = "between looks"},
                                            {"--once", NULL, CLI_FLAG, offsetof(struct request, once),
                                             .help = "one look"},
                                            CLI_JSON(struct request, json)};
static const struct cli_word words[] = {{.name = "RUN", .at = offsetof(struct request, run)}};
static const struct cli_table table = {
    .command = "watch",
    .usage = "RUN [--every SECONDS] [--once] [--json]",
    .about =
        "Shows how a run is while it goes on, from its files, on any machine that sees them: step, loss as a line,\n"
        "tokens/s, MFU, memory, ranks, the last checkpoint, failures. Plain lines where stdout is no terminal. Ends\n"
        "when the run does (a run that was killed is told as silent, and watched on). RUN is run.dir. --json: one\n"
        "look.\n",
    CLI_OPTIONS(options),
    CLI_WORDS(words),
};

/* The losses in `width` columns of eight heights. */
static void spark(const struct run_view *p, int width, struct str *out)
{
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double least = INFINITY, most = -INFINITY, v[256];
    int n = 0;
    for (int c = 0; c < width && c < 256; c++) {
        int lo = (int)((int64_t)p->n_points * c / width), hi = (int)((int64_t)p->n_points * (c + 1) / width);
        double sum = 0;
        int k = 0;
        for (int i = lo; i < hi; i++)
            if (isfinite(p->point[i].loss)) sum += p->point[i].loss, k++;
        if (!k) continue;
        v[n] = sum / k;
        least = fmin(least, v[n]);
        most = fmax(most, v[n]);
        n++;
    }
    for (int i = 0; i < n; i++) {
        int h = most > least ? (int)(7.99 * (v[i] - least) / (most - least)) : 3;
        str_puts(out, bars[h]);
    }
    if (n) str_printf(out, "  %.4g to %.4g", most, least);
}

static void bar(const struct run_view *p, int width, struct str *out)
{
    int full = p->steps > 0 ? (int)(p->step * width / p->steps) : 0;
    if (full > width) full = width;
    str_puts(out, "[");
    for (int i = 0; i < width; i++) str_puts(out, i < full ? "#" : ".");
    str_puts(out, "]");
}

static void state(const struct run_view *p, struct str *out)
{
    char text[32];
    str_puts(out, run_view_states[p->state]);
    if (p->state == RUN_VIEW_STOPPED) str_puts(out, " by ");
    if (p->state == RUN_VIEW_STOPPED)
        shown_put(out, p->signal[0] ? p->signal : "?", p->signal[0] ? strlen(p->signal) : 1, false);
    if (p->state == RUN_VIEW_SILENT) str_printf(out, " for %s", str_duration(text, p->silent_s));
    if (isfinite(p->eta_s)) str_printf(out, ", ETA %s", str_duration(text, p->eta_s));
}

static void one_line(const struct run_view *p, struct str *out)
{
    char rate[32];
    str_printf(out, "step %lld/%lld", (long long)p->step, (long long)p->steps);
    if (isfinite(p->loss)) str_printf(out, "  loss %.4f", p->loss);
    if (isfinite(p->valid_loss)) str_printf(out, "  validation %.4f", p->valid_loss);
    if (isfinite(p->tokens_per_s)) str_printf(out, "  %s tok/s", str_count(rate, p->tokens_per_s));
    if (isfinite(p->mfu)) str_printf(out, "  MFU %.0f %%", 100 * p->mfu);
    if (p->saved >= 0) str_printf(out, "  saved %lld", (long long)p->saved);
    str_puts(out, "  ");
    state(p, out);
    str_puts(out, "\n");
}

static void failures(const struct run_view *p, struct str *out)
{
    for (int i = 0; i < p->n_errors; i++) {
        str_puts(out, "failure     ");
        shown_put(out, p->error[i], strnlen(p->error[i], 200), false);
        str_puts(out, "\n");
    }
}

static void stacks(const struct run_view *p, struct str *out)
{
    if (!p->stacks[0]) return;
    str_puts(out, "stacks      ");
    shown_put(out, p->stacks, strlen(p->stacks), false);
    str_puts(out, ": ");
    shown_put(out, p->stacks_cause, strnlen(p->stacks_cause, 300), false);
    str_puts(out, "\n");
}

static void screen(const struct run_view *p, struct str *out)
{
    char a[32], b[32];
    shown_put(out, p->dir, strlen(p->dir), false);
    str_puts(out, "  ");
    state(p, out);
    str_printf(out, "\nstep        %lld of %lld  ", (long long)p->step, (long long)p->steps);
    bar(p, 32, out);
    str_puts(out, "\nloss        ");
    if (isfinite(p->loss)) str_printf(out, "%.4f", p->loss);
    if (isfinite(p->valid_loss)) str_printf(out, "  validation %.4f", p->valid_loss);
    str_puts(out, "\n            ");
    spark(p, 48, out);
    str_puts(out, "\nspeed       ");
    if (isfinite(p->tokens_per_s))
        str_printf(out, "%s tok/s, MFU %.0f %%, %s a step, %s of waiting for data", str_count(a, p->tokens_per_s),
                   100 * p->mfu, str_duration(b, p->step_s),
                   isfinite(p->data_wait_s) && p->data_wait_s > 0 ? "some" : "none");
    str_printf(out, "\nmemory      %s of the rank that needs most\nranks       %lld on ", str_bytes(a, p->peak_bytes),
               (long long)p->ranks);
    shown_put(out, p->host[0] ? p->host : "?", p->host[0] ? strlen(p->host) : 1, false);
    if (isfinite(p->ranks_most_s))
        str_printf(out, ", computing %s to %s, slowest %lld", str_duration(a, p->ranks_least_s),
                   str_duration(b, p->ranks_most_s), (long long)(p->n_slowest ? p->slowest[0] : -1));
    if (p->straggler >= 0)
        str_printf(out, "\nslow        rank %lld was named at step %lld (", (long long)p->straggler,
                   (long long)p->straggler_step);
    if (p->straggler >= 0) shown_put(out, p->straggler_cause, strnlen(p->straggler_cause, 12), false);
    if (p->straggler >= 0) str_puts(out, ")");
    if (p->saved >= 0) str_printf(out, "\ncheckpoint  of step %lld\n", (long long)p->saved);
    else str_puts(out, "\ncheckpoint  none\n");
    failures(p, out);
    stacks(p, out);
}

static bool over(const struct run_view *p) { return p->state == RUN_VIEW_STOPPED || p->state == RUN_VIEW_FINISHED; }

static int watch(struct run_view *p, const struct request *q, struct err *e)
{
    const char *term = getenv("TERM");
    bool terminal = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb");
    struct str out = {0}, before = {0};
    char told[RUN_VIEW_TEXT] = ""; /* of stacks, in plain lines */
    int lines = 0, rc;
    bool cut = false; /* the files cannot be read just now: a file system over a network comes back */
    while (!(rc = run_view_look(p, e)) || (rc == ERR_IO && !q->once)) {
        if (rc) {
            if (!cut) log_warn("%s; it is looked for again", e->text);
            cut = true;
            lines = 0;
            clock_sleep_s(q->every);
            continue;
        }
        cut = false;
        str_clear(&out);
        if (terminal && !q->once && lines) str_printf(&out, "\033[%dA\033[J", lines);
        size_t begin = out.n;
        (terminal || q->once ? screen : one_line)(p, &out);
        lines = 0;
        for (size_t i = begin; i < out.n; i++) lines += out.p[i] == '\n';
        bool news = terminal || q->once || out.n != before.n || memcmp(out.p, before.p, out.n);
        if (!terminal && !q->once) {
            str_clear(&before);
            str_add(&before, out.p, out.n);
        }
        if (!terminal && !q->once && over(p)) failures(p, &out);
        if (!terminal && !q->once && strcmp(told, p->stacks_cause)) {
            stacks(p, &out);
            snprintf(told, sizeof told, "%s", p->stacks_cause);
            news = true;
        }
        if (news && !screen_put_raw(out.p, out.n)) break; /* nobody reads any more */
        if (q->once || over(p)) break;
        clock_sleep_s(q->every);
    }
    str_free(&out);
    str_free(&before);
    return rc;
}

int cmd_watch(int argc, char **argv)
{
    struct request q = {.every = 1};
    struct run_view *p;
    struct err e = {0};
    int rc;
    if (!cli_read(&table, argc, argv, &q, &rc)) return rc;
    rc = run_view_open(&p, q.run, &e);
    if (rc) return cli_fail(&e);
    if (q.json) {
        struct str s = {0};
        struct json_out o = {.s = &s, .pretty = true};
        rc = run_view_look(p, &e);
        json_begin_document(&o, "watch", 1);
        run_view_put(p, &o, true);
        json_end_object(&o);
        if (!rc) printf("%s\n", str_text(&s));
        str_free(&s);
    } else {
        rc = watch(p, &q, &e);
    }
    run_view_close(p);
    return rc ? cli_fail(&e) : 0;
}
