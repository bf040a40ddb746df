/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a run goes on is what its files say: starts.jsonl has a line per start, ends.jsonl one per end of its own. A
 * start without an end goes on, or was killed: nobody outside can know that of another host, so how long it has been
 * silent is told instead of a guess. Rejected: trying run.dir's lock, which would be in the way of a run that starts.
 */
#include "watch/run_view.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "watch/hang_groups.h"

enum { BLOCK = 1 << 16, LINE_MOST = 16 << 20, SMALL_FILE = 1 << 20, RECENT = 16 };
#define SILENT_S 60.0 /* and as long as ten steps */

const char *const run_view_states[RUN_VIEW_STATES] = {"empty", "goes on", "silent", "stopped", "finished"};

/* ---- metrics.jsonl ---- */
static void forget(struct run_view *p)
{
    p->offset = p->n_recent = 0;
    p->n_points = 0;
    p->every = 1;
    p->step = p->tokens = 0;
    p->loss = p->valid_loss = p->grad_norm = p->lr = p->step_s = p->data_wait_s = p->tokens_per_s = p->mfu = NAN;
    p->peak_bytes = 0;
    p->ranks_least_s = p->ranks_median_s = p->ranks_most_s = NAN;
    p->n_slowest = 0;
    p->straggler = -1;
    str_clear(&p->line);
}

static void add_point(struct run_view *p, struct run_view_point x)
{
    /* The last point may be between two that are kept: it stands there until the next one comes. */
    if (p->n_points > 1 && p->point[p->n_points - 1].step % p->every && x.step > p->point[p->n_points - 1].step)
        p->n_points--;
    if (p->n_points == 2 * RUN_VIEW_POINTS) {
        int n = 0;
        p->every *= 2;
        for (int i = 0; i < p->n_points; i++)
            if (p->point[i].step % p->every == 0) p->point[n++] = p->point[i];
        p->n_points = n;
    }
    p->point[p->n_points++] = x;
}

static double mean(const double *v, int64_t n)
{
    double sum = 0;
    int64_t k = n < RECENT ? n : RECENT;
    for (int64_t i = 0; i < k; i++) sum += v[i];
    return k ? sum / (double)k : NAN;
}

static void ranks_line(struct run_view *p, const struct json *r)
{
    static const char *const parts[] = {"forward_s", "backward_s", "update_s"};
    double *to[] = {&p->ranks_least_s, &p->ranks_median_s, &p->ranks_most_s};
    for (size_t k = 0; k < 3; k++) *to[k] = 0;
    for (int i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++) *to[k] += json_real(json_at(json_get(r, parts[i]), k), NAN);
    const struct json *s = json_get(r, "slowest");
    p->n_slowest = 0;
    for (size_t i = 0; i < json_size(s) && i < 4; i++) p->slowest[p->n_slowest++] = json_int(json_at(s, i), -1);
}

static void add_error(struct run_view *p, const char *text)
{
    if (p->n_errors == RUN_VIEW_ERRORS) return;
    snprintf(p->error[p->n_errors++], RUN_VIEW_TEXT, "%s", text);
}

static void step_line(struct run_view *p, const struct json *v)
{
    int64_t step = json_int(json_get(v, "step"), -1);
    const struct json *straggler = json_get(v, "straggler"), *ranks = json_get(v, "ranks");
    if (step < 0) return;
    if (straggler) {
        p->straggler = json_int(json_get(straggler, "rank"), -1);
        p->straggler_step = step;
        snprintf(p->straggler_cause, sizeof p->straggler_cause, "%s",
                 json_string(json_get(straggler, "cause"), NULL, ""));
    }
    if (json_get(v, "valid_loss")) p->valid_loss = json_real(json_get(v, "valid_loss"), NAN);
    if (!json_get(v, "loss")) return;
    p->step = step;
    p->tokens = json_int(json_get(v, "tokens"), p->tokens);
    p->loss = json_real(json_get(v, "loss"), NAN);
    p->grad_norm = json_real(json_get(v, "grad_norm"), NAN);
    p->lr = json_real(json_get(v, "lr"), NAN);
    p->step_s = json_real(json_get(v, "step_s"), NAN);
    p->data_wait_s = json_real(json_get(v, "data_wait_s"), NAN);
    p->peak_bytes = (double)json_int(json_get(v, "peak_bytes"), 0);
    int64_t at = p->n_recent++ % RECENT;
    double rate = json_real(json_get(v, "tokens_per_s"), NAN);
    p->recent[at] = p->step_s > 0 ? p->step_s : 0;
    p->recent_tokens[at] = p->recent[at] * rate;
    p->recent_mfu[at] = json_real(json_get(v, "mfu"), NAN);
    double seconds = mean(p->recent, p->n_recent);
    p->tokens_per_s = seconds > 0 ? mean(p->recent_tokens, p->n_recent) / seconds : NAN;
    p->mfu = mean(p->recent_mfu, p->n_recent);
    if (ranks) ranks_line(p, ranks);
    add_point(p, (struct run_view_point){step, p->loss, rate, p->peak_bytes});
}

/* The file's own time is another host's, perhaps, and set by people: only the first look has no other. */
static void measure_silence(struct run_view *p, const struct stat *s)
{
    uint64_t now[3] = {(uint64_t)s->st_ino, (uint64_t)s->st_size,
                       (uint64_t)s->st_mtim.tv_sec * 1000000000u + (uint64_t)s->st_mtim.tv_nsec};
    bool first = !p->file[0];
    if (memcmp(now, p->file, sizeof now)) {
        double age = first ? difftime(time(NULL), s->st_mtime) : 0;
        p->seen_silent_s = age > 0 ? age : 0;
        p->seen_s = clock_now_s();
        if (!first && now[0] != p->file[0]) forget(p); /* a run that began anew */
        memcpy(p->file, now, sizeof now);
    }
    p->silent_s = p->seen_silent_s + (clock_now_s() - p->seen_s);
}

/* A pipe, a device and a file without end stay what they are; else it may be read again later. */
static int open_metrics(FILE **f, const char *path, struct err *e)
{
    struct stat s;
    int rc = fs_stream_open(f, path, FS_LINES_MOST, e);
    bool file = stat(path, &s) || S_ISDIR(s.st_mode) || (S_ISREG(s.st_mode) && s.st_size <= FS_LINES_MOST);
    if (rc && file) rc = e->code = ERR_IO;
    return rc;
}

static int read_metrics(struct run_view *p, struct err *e)
{
    char *path = fs_join(p->dir, "metrics.jsonl"), *block = NULL;
    struct stat s;
    FILE *f = NULL;
    int64_t bytes;
    int rc = fs_look(path, &bytes, e);
    if (!rc && bytes >= 0) rc = open_metrics(&f, path, e);
    p->silent_s = NAN;
    if (f && !fstat(fileno(f), &s)) {
        measure_silence(p, &s);
        if (s.st_size < p->offset) forget(p);
    }
    if (f && !fseeko(f, p->offset, SEEK_SET)) {
        block = xmalloc(BLOCK);
        for (size_t n; (n = fread(block, 1, BLOCK, f)) > 0; p->offset += (int64_t)n)
            for (char *at = block, *end; at < block + n; at = end) {
                char *newline = memchr(at, '\n', (size_t)(block + n - at));
                struct json *v;
                end = newline ? newline + 1 : block + n;
                if (p->line.n < LINE_MOST) str_add(&p->line, at, (size_t)((newline ? newline : end) - at));
                if (!newline) continue;
                if (p->line.n && p->line.n < LINE_MOST && !json_parse(&v, p->line.p, p->line.n, path, NULL)) {
                    if (json_kind(v) == JSON_OBJECT) step_line(p, v);
                    json_free(v);
                }
                str_clear(&p->line);
            }
        if (ferror(f)) rc = err_errno(e, ERR_IO, errno, "cannot read %s", path);
    }
    if (f) fclose(f);
    xfree(block);
    xfree(path);
    return rc;
}

/* ---- the other files ---- */
/* A small file of the run; *text stays NULL where there is none. What cannot be read is no file of no lines. */
static int small_file(const struct run_view *p, const char *name, char **text, struct err *e)
{
    char *path = fs_join(p->dir, name);
    int64_t bytes;
    size_t n;
    *text = NULL;
    int rc = fs_look(path, &bytes, e);
    if (!rc && bytes >= 0) rc = fs_read_all(path, SMALL_FILE, text, &n, e);
    xfree(path);
    return rc;
}

/* Calls each for every whole line of a small file. */
static int small_lines(struct run_view *p, const char *name, void (*each)(struct run_view *p, const struct json *v),
                       struct err *e)
{
    char *text;
    int rc = small_file(p, name, &text, e);
    if (text) {
        for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
            struct json *v;
            if (json_parse(&v, at, (size_t)(end - at), name, NULL)) continue;
            if (json_kind(v) == JSON_OBJECT) each(p, v);
            json_free(v);
        }
        xfree(text);
    }
    return rc;
}

static void start_line(struct run_view *p, const struct json *v)
{
    p->n_starts++;
    snprintf(p->start_time, sizeof p->start_time, "%s", json_string(json_get(v, "time"), NULL, ""));
    snprintf(p->started, sizeof p->started, "%s", p->start_time);
    snprintf(p->host, sizeof p->host, "%s", json_string(json_get(v, "host"), NULL, ""));
    snprintf(p->transport, sizeof p->transport, "%s", json_string(json_get(v, "transport"), NULL, ""));
    p->ranks = json_int(json_get(v, "ranks"), 0);
}

static void end_line(struct run_view *p, const struct json *v)
{
    p->n_ends++;
    p->finished = json_bool(json_get(v, "finished"), false);
    p->ended = json_int(json_get(v, "starts"), -1);
    snprintf(p->end_time, sizeof p->end_time, "%s", json_string(json_get(v, "time"), NULL, ""));
    snprintf(p->signal, sizeof p->signal, "%s", json_string(json_get(v, "signal"), NULL, ""));
    p->steps = json_int(json_get(v, "steps"), p->steps);
}

/* "steps: 1000" below "run:" of the resolved config, which print writes one key a line. */
static int read_steps(struct run_view *p, struct err *e)
{
    char *text;
    int rc = small_file(p, "config.yaml", &text, e);
    if (text) {
        char *run = strstr(text, "\nrun:"), *at = run ? strstr(run, "\n  steps:") : NULL;
        long long steps;
        if (at && sscanf(at + 9, "%lld", &steps) == 1 && steps > 0) p->steps = steps;
        xfree(text);
    }
    return rc;
}

static int read_checkpoint(struct run_view *p, struct err *e)
{
    char *path = fs_join(p->dir, "checkpoints/latest");
    long long step;
    ssize_t n = readlink(path, p->checkpoint, sizeof p->checkpoint - 1);
    int rc = n < 0 && errno != ENOENT && errno != EINVAL ? err_errno(e, ERR_IO, errno, "%s: cannot be read", path) : OK;
    p->checkpoint[n > 0 ? n : 0] = 0;
    p->saved = sscanf(p->checkpoint, "step-%lld", &step) == 1 ? step : -1;
    xfree(path);
    return rc;
}

/* The first line of what a failure left: its cause. What cannot be read is told in its place. */
static int read_errors(struct run_view *p, struct err *e)
{
    char **names;
    int n, rc;
    struct err why;
    p->n_errors = 0;
    if ((rc = fs_list(p->dir, &names, &n, e))) return rc;
    for (int i = 0; i < n; i++) {
        if (strncmp(names[i], "flight-rank", 11)) continue;
        char *path = fs_join(p->dir, names[i]), first[RUN_VIEW_TEXT] = "";
        FILE *f;
        if (fs_stream_open(&f, path, FS_LINES_MOST, &why)) {
            snprintf(first, sizeof first, "%.*s", RUN_VIEW_TEXT - 1, why.text);
            if (!fs_absent(path)) add_error(p, first);
        } else if (fgets(first, sizeof first, f)) {
            first[strcspn(first, "\n")] = 0;
            add_error(p, first);
        }
        if (f) fclose(f);
        xfree(path);
    }
    fs_list_free(names, n);
    return OK;
}

/* The first two lines of stacks.txt: what waited for how long, and which process wrote it when. */
static void read_stacks(struct run_view *p)
{
    char *path = fs_join(p->dir, HANG_SUMMARY), cause[RUN_VIEW_TEXT / 2] = "", when[RUN_VIEW_TEXT / 4] = "";
    FILE *f;
    struct err why;
    p->stacks[0] = p->stacks_cause[0] = 0;
    if (fs_stream_open(&f, path, FS_LINES_MOST, &why)) {
        if (!fs_absent(path)) {
            snprintf(p->stacks, sizeof p->stacks, "%s", path);
            snprintf(p->stacks_cause, sizeof p->stacks_cause, "%.*s", (int)sizeof p->stacks_cause - 1, why.text);
        }
    } else if (fgets(cause, sizeof cause, f)) {
        (void)!fgets(when, sizeof when, f);
        cause[strcspn(cause, "\n")] = when[strcspn(when, "\n")] = 0;
        snprintf(p->stacks, sizeof p->stacks, "%s", path);
        snprintf(p->stacks_cause, sizeof p->stacks_cause, "%s%s%s%s", cause, when[0] ? " (" : "", when,
                 when[0] ? ")" : "");
    }
    if (f) fclose(f);
    xfree(path);
}

static void judge(struct run_view *p)
{
    double patience = SILENT_S > 10 * p->step_s ? SILENT_S : 10 * p->step_s; /* NaN: the former */
    if (!(patience > 0)) patience = SILENT_S;
    bool later = strcmp(p->end_time, p->start_time) >= 0; /* ISO 8601, UTC: as text; for runs of before `starts` */
    bool ended = p->n_ends && (p->ended >= 0 ? p->ended >= p->n_starts : later);
    if (ended) p->state = p->finished ? RUN_VIEW_FINISHED : RUN_VIEW_STOPPED;
    else if (!p->n_starts && !p->step) p->state = RUN_VIEW_EMPTY;
    else p->state = p->silent_s > patience ? RUN_VIEW_SILENT : RUN_VIEW_GOES_ON;
    double seconds = mean(p->recent, p->n_recent);
    p->eta_s = p->state == RUN_VIEW_GOES_ON && p->steps > p->step && seconds > 0
                   ? seconds * (double)(p->steps - p->step)
                   : NAN;
}

int run_view_look(struct run_view *p, struct err *e)
{
    int rc = read_metrics(p, e);
    p->n_starts = p->n_ends = 0;
    if (!rc) rc = small_lines(p, "starts.jsonl", start_line, e);
    if (!rc) rc = small_lines(p, "ends.jsonl", end_line, e);
    if (!rc) rc = read_steps(p, e);
    if (!rc) rc = read_checkpoint(p, e);
    if (!rc) rc = read_errors(p, e);
    if (rc) return rc; /* whether it goes on cannot be told */
    read_stacks(p);
    judge(p);
    return rc;
}

int run_view_open(struct run_view **out, const char *dir, struct err *e)
{
    char *config = fs_join(dir, "config.yaml"), *metrics = fs_join(dir, "metrics.jsonl");
    bool is = fs_exists(config) || fs_exists(metrics);
    xfree(config);
    xfree(metrics);
    if (!is)
        return err_set(e, ERR_REQUEST,
                       "%s is not the directory of a run (run.dir): it has neither config.yaml nor metrics.jsonl", dir);
    struct run_view *p = xcalloc(1, sizeof *p);
    p->dir = xstrdup(dir);
    p->point = xcalloc(2 * RUN_VIEW_POINTS + 1, sizeof *p->point);
    forget(p);
    *out = p;
    return OK;
}

void run_view_close(struct run_view *p)
{
    if (!p) return;
    str_free(&p->line);
    xfree(p->point);
    xfree(p->dir);
    xfree(p);
}

/* ---- telling ---- */
static void put_real(struct json_out *o, const char *key, double v)
{
    if (isfinite(v)) json_put_real_digits(o, key, v, 9);
    else json_put_null(o, key);
}

static void put_curve(const struct run_view *p, struct json_out *o)
{
    json_begin_object(o, "curve");
    json_begin_array(o, "steps");
    for (int i = 0; i < p->n_points; i++) json_put_int(o, NULL, p->point[i].step);
    json_end_array(o);
    json_begin_array(o, "losses");
    for (int i = 0; i < p->n_points; i++) put_real(o, NULL, p->point[i].loss);
    json_end_array(o);
    json_begin_array(o, "rates");
    for (int i = 0; i < p->n_points; i++) put_real(o, NULL, p->point[i].tokens_per_s);
    json_end_array(o);
    json_end_object(o);
}

void run_view_put(const struct run_view *p, struct json_out *o, bool curve)
{
    json_put_string(o, "run", p->dir);
    json_put_string(o, "state", run_view_states[p->state]);
    put_real(o, "silent_s", p->silent_s);
    json_put_int(o, "step", p->step);
    json_put_int(o, "steps", p->steps);
    json_put_int(o, "tokens", p->tokens);
    put_real(o, "loss", p->loss);
    put_real(o, "valid_loss", p->valid_loss);
    put_real(o, "grad_norm", p->grad_norm);
    put_real(o, "lr", p->lr);
    put_real(o, "step_s", p->step_s);
    put_real(o, "data_wait_s", p->data_wait_s);
    put_real(o, "tokens_per_s", p->tokens_per_s);
    put_real(o, "mfu", p->mfu);
    put_real(o, "eta_s", p->eta_s);
    json_put_int(o, "peak_bytes", (int64_t)p->peak_bytes);
    json_put_int(o, "ranks", p->ranks);
    json_put_string(o, "host", p->host);
    json_put_string(o, "started", p->started);
    json_put_int(o, "saved", p->saved);
    json_begin_array(o, "computing_s");
    put_real(o, NULL, p->ranks_least_s);
    put_real(o, NULL, p->ranks_median_s);
    put_real(o, NULL, p->ranks_most_s);
    json_end_array(o);
    json_begin_array(o, "slowest");
    for (int64_t i = 0; i < p->n_slowest; i++) json_put_int(o, NULL, p->slowest[i]);
    json_end_array(o);
    json_put_int(o, "straggler", p->straggler);
    if (p->straggler >= 0) json_put_string(o, "straggler_cause", p->straggler_cause);
    json_put_string(o, "stacks", p->stacks);
    json_put_string(o, "stacks_cause", p->stacks_cause);
    json_begin_array(o, "errors");
    for (int i = 0; i < p->n_errors; i++) json_put_string(o, NULL, p->error[i]);
    json_end_array(o);
    if (curve) put_curve(p, o);
}

void run_view_prometheus(const struct run_view *p, struct str *out)
{
    const struct {
        const char *name, *help, *type;
        double v;
    } rows[] = {
        {"tutti_step", "optimizer steps done", "counter", (double)p->step},
        {"tutti_steps_wanted", "run.steps", "gauge", (double)p->steps},
        {"tutti_tokens", "tokens trained", "counter", (double)p->tokens},
        {"tutti_loss", "nats per token of the last step", "gauge", p->loss},
        {"tutti_valid_loss", "of the last validation", "gauge", p->valid_loss},
        {"tutti_grad_norm", "before clipping", "gauge", p->grad_norm},
        {"tutti_learning_rate", "of the last step", "gauge", p->lr},
        {"tutti_step_seconds", "of the last step", "gauge", p->step_s},
        {"tutti_data_wait_seconds", "what the last step waited for its batch", "gauge", p->data_wait_s},
        {"tutti_tokens_per_second", "mean of recent steps", "gauge", p->tokens_per_s},
        {"tutti_mfu_ratio", "mean of recent steps", "gauge", p->mfu},
        {"tutti_peak_bytes", "of the rank that needs most", "gauge", p->peak_bytes},
        {"tutti_ranks", "of the last start", "gauge", (double)p->ranks},
        {"tutti_saved_step", "of the newest checkpoint, -1: none", "gauge", (double)p->saved},
        {"tutti_silent_seconds", "since metrics.jsonl was written", "gauge", p->silent_s},
        {"tutti_straggler_rank", "rank that was named last, -1: none", "gauge", (double)p->straggler},
        {"tutti_goes_on", "1: the run goes on", "gauge", p->state == RUN_VIEW_GOES_ON},
        {"tutti_failures", "files that failures left", "gauge", (double)p->n_errors},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!isfinite(rows[i].v)) continue; /* not known */
        str_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s %.10g\n", rows[i].name, rows[i].help, rows[i].name,
                   rows[i].type, rows[i].name, rows[i].v);
    }
}
