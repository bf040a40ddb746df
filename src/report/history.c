/* SPDX-License-Identifier: Apache-2.0 */
/* history.c: files of JSON lines, read in blocks; every line is parsed by itself and handed to one function a file. */
#include "report/history.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/lines.h"

enum { LINE_BYTES = 16 << 20 };

typedef void line_fn(struct history *h, const struct json *line);

struct reading {
    struct history *h;
    line_fn *each;
};

static void one_line(void *ctx, const char *text, size_t n)
{
    const struct reading *x = ctx;
    struct json *v;
    if (text && !n) return;
    if (!text || json_parse(&v, text, n, "line", NULL)) {
        x->h->broken++;
        return;
    }
    if (json_kind(v) == JSON_OBJECT) x->each(x->h, v);
    else x->h->broken++;
    json_free(v);
}

/* Calls `each` for every line; a line without its end, or longer than LINE_BYTES, is broken. */
static int read_lines(struct history *h, const char *path, line_fn *each, struct err *e)
{
    return lines_each(path, LINE_BYTES, one_line, &(struct reading){h, each}, e);
}

static void curve_add(struct history *h, enum history_curve which, double x, const struct json *y)
{
    struct curve *c = &h->curve[which];
    if (!y) return;
    double v = json_real(y, NAN);
    if (!isfinite(v)) {
        h->not_finite++;
        return;
    }
    int64_t room = c->room;
    GROW(c->x, c->n, room, 1);
    GROW(c->y, c->n, c->room, 1);
    c->x[c->n] = x;
    c->y[c->n++] = v;
}

static void metrics_line(struct history *h, const struct json *v)
{
    static const char *const keys[CURVE_N] =
        {[CURVE_LOSS] = "loss",           [CURVE_VALID] = "valid_loss", [CURVE_LR] = "lr",
         [CURVE_GRAD_NORM] = "grad_norm", [CURVE_MFU] = "mfu",          [CURVE_RATE] = "tokens_per_s",
         [CURVE_STEP_S] = "step_s"};
    int64_t step = json_int(json_get(v, "step"), -1);
    if (step < 0) {
        h->broken++;
        return;
    }
    for (int i = 0; i < CURVE_N; i++) curve_add(h, (enum history_curve)i, (double)step, json_get(v, keys[i]));
    double s = json_real(json_get(v, "step_s"), 0);
    if (isfinite(s) && s > 0) h->seconds += s;
    if (step > h->steps) h->steps = step;
    h->tokens = json_int(json_get(v, "tokens"), h->tokens);
    h->skipped = json_int(json_get(v, "skipped"), h->skipped);
    int64_t peak = json_int(json_get(v, "peak_bytes"), 0);
    if (peak > h->peak_bytes) h->peak_bytes = peak;
}

static const char *text_of(struct history *h, const struct json *v, const char *key)
{
    return arena_strdup(h->arena, json_string(json_get(v, key), NULL, ""));
}

/* A run that went back to an older checkpoint wrote some samples again: the later ones count. */
static void sample_line(struct history *h, const struct json *v)
{
    int64_t step = json_int(json_get(v, "step"), 0);
    while (h->n_samples && h->sample[h->n_samples - 1].step >= step) h->n_samples--;
    GROW(h->sample, h->n_samples, h->room_samples, 1);
    h->sample[h->n_samples++] =
        (struct history_sample){.step = step, .prompt = text_of(h, v, "prompt"), .text = text_of(h, v, "text")};
}

static void start_line(struct history *h, const struct json *v)
{
    GROW(h->start, h->n_starts, h->room_starts, 1);
    h->start[h->n_starts++] = (struct history_start){.time = text_of(h, v, "time"),
                                                     .host = text_of(h, v, "host"),
                                                     .cpu = text_of(h, v, "cpu"),
                                                     .version = text_of(h, v, "version"),
                                                     .transport = text_of(h, v, "transport"),
                                                     .kernels = text_of(h, v, "kernels"),
                                                     .step = json_int(json_get(v, "step"), 0),
                                                     .ranks = json_int(json_get(v, "ranks"), 0),
                                                     .threads = json_int(json_get(v, "threads"), 0),
                                                     .cores = json_int(json_get(v, "cores"), 0)};
}

int history_read(struct history *h, const char *dir, struct err *e)
{
    static const struct {
        const char *name;
        line_fn *each;
        bool needed;
    } files[] = {{"metrics.jsonl", metrics_line, true},
                 {"samples.jsonl", sample_line, false},
                 {"starts.jsonl", start_line, false}};
    int rc = OK;
    *h = (struct history){.arena = arena_new()};
    for (size_t i = 0; !rc && i < sizeof files / sizeof *files; i++) {
        char *path = fs_join(dir, files[i].name);
        if (files[i].needed || fs_exists(path)) rc = read_lines(h, path, files[i].each, e);
        if (rc == ERR_REQUEST) err_prefix(e, "%s is not the directory of a run (run.dir)", dir);
        xfree(path);
    }
    if (rc) history_free(h);
    return rc;
}

void history_free(struct history *h)
{
    for (int i = 0; i < CURVE_N; i++) {
        xfree(h->curve[i].x);
        xfree(h->curve[i].y);
    }
    xfree(h->sample);
    xfree(h->start);
    if (h->arena) arena_free(h->arena);
    *h = (struct history){0};
}

double curve_last(const struct curve *c) { return c->n ? c->y[c->n - 1] : NAN; }

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double curve_median(const struct curve *c)
{
    if (!c->n) return NAN;
    double *y = xmalloc((size_t)c->n * sizeof *y);
    memcpy(y, c->y, (size_t)c->n * sizeof *y);
    qsort(y, (size_t)c->n, sizeof *y, by_value);
    double v = c->n % 2 ? y[c->n / 2] : (y[c->n / 2 - 1] + y[c->n / 2]) / 2;
    xfree(y);
    return v;
}
