/* SPDX-License-Identifier: Apache-2.0 */
/* A panel per class, one below the other, over one axis of powers of two; below them a bar per format from its
 * smallest number to its largest, light where numbers are subnormal. What lies left of a bar becomes 0 in that format,
 * what lies right of it is too large. Shares are of the numbers that are not 0; those that are 0 are told beside. */
#include "report/exponent_picture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "layout/format.h"

enum { CLASSES = 4, LOW = -149, HIGH = 127, BINS = HIGH - LOW + 1, FILE_BYTES = 1 << 28 };
enum { WIDTH = 760, LEFT = 16, RIGHT = 16, TOP = 40, PANEL = 92, GAP = 34, BAR = 20 };

static const struct {
    const char *key, *title;
    bool scaled; /* times the loss scale */
} classes[CLASSES] = {{"activations", "activations (what products read)", false},
                      {"weights", "weights", false},
                      {"gradients", "gradients of activations", true},
                      {"weight_gradients", "gradients of weights", true}};
static const enum format formats[] = {FORMAT_BF16, FORMAT_F16, FORMAT_E5M2, FORMAT_E4M3};
enum { N_FORMATS = sizeof formats / sizeof *formats };

struct counted {
    int64_t step;
    double scale;
    char recipe[32];
    double bin[CLASSES][BINS], zero[CLASSES], not_finite[CLASSES], sum[CLASSES];
    int lo, hi; /* of the axis */
};

/* ---- reading ---- */
static int read_class(struct counted *c, int k, const struct json *x)
{
    const struct json *counts = json_get(x, "counts");
    int64_t first = json_int(json_get(x, "first"), LOW - 1), n = (int64_t)json_size(counts);
    c->zero[k] = (double)json_int(json_get(x, "zero"), -1);
    c->not_finite[k] = (double)json_int(json_get(x, "not_finite"), -1);
    if (!counts || c->zero[k] < 0 || c->not_finite[k] < 0 || first < LOW || first > HIGH + 1 || n > HIGH + 1 - first)
        return -1;
    for (int64_t i = 0; i < n; i++) {
        double v = (double)json_int(json_at(counts, (size_t)i), -1);
        if (v < 0) return -1;
        c->bin[k][first - LOW + i] = v;
        c->sum[k] += v;
    }
    return 0;
}

static int read_line(struct counted *c, const struct json *line)
{
    *c = (struct counted){.step = json_int(json_get(line, "step"), -1),
                          .scale = json_real(json_get(line, "loss_scale"), 0)};
    int power;
    snprintf(c->recipe, sizeof c->recipe, "%s", json_string(json_get(line, "recipe"), NULL, ""));
    for (const char *p = c->recipe; *p; p++)
        if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789-", *p)) return -1;
    if (c->step < 1 || !(c->scale > 0) || !(c->scale < INFINITY) || frexp(c->scale, &power) != 0.5) return -1;
    for (int k = 0; k < CLASSES; k++)
        if (read_class(c, k, json_get(line, classes[k].key))) return -1;
    return 0;
}

/* The line of a step, of the last where it is 0; have: the steps that there are. Lines that are none are passed over.
 */
static bool find(const char *text, int64_t step, struct counted *out, struct str *have)
{
    struct counted *c = xcalloc(1, sizeof *c);
    bool found = false;
    for (const char *p = text, *end; (end = strchr(p, '\n')); p = end + 1) {
        struct json *line = NULL;
        struct err ignored;
        if (json_parse(&line, p, (size_t)(end - p), "exponents.jsonl", &ignored)) continue;
        if (!read_line(c, line)) {
            if (have->n < 400) str_printf(have, "%s%lld", have->n ? ", " : "", (long long)c->step);
            if (!step || c->step == step) {
                *out = *c;
                found = true;
            }
        }
        json_free(line);
    }
    xfree(c);
    return found;
}

/* ---- drawing ---- */
static double at(const struct counted *c, double e)
{
    return LEFT + (e - c->lo) / (c->hi - c->lo) * (WIDTH - LEFT - RIGHT);
}

static void choose_axis(struct counted *c)
{
    int shift = (int)log2(c->scale);
    c->lo = -30;
    c->hi = 18;
    for (int k = 0; k < CLASSES; k++)
        for (int i = 0; i < BINS; i++) {
            if (c->bin[k][i] <= 1e-4 * c->sum[k]) continue; /* a few numbers far away are not worth the width */
            int low = i + LOW - (classes[k].scaled ? shift : 0);
            if (low < c->lo) c->lo = low;
            if (i + LOW + 1 > c->hi) c->hi = i + LOW + 1;
        }
    c->lo -= 2;
    c->hi += 2;
}

static double share_below(const struct counted *c, int k, double smallest)
{
    double sum = 0;
    for (int i = 0; i < BINS; i++)
        if (i + LOW < smallest) sum += c->bin[k][i];
    return c->sum[k] > 0 ? sum / c->sum[k] : 0;
}

static void put_outline(const struct counted *c, int k, double base, double most, int shift, struct str *out)
{
    str_puts(out, "<polyline class=\"without\" points=\"");
    for (int i = 0; i < BINS; i++) {
        int e = i + LOW - shift;
        if (e < c->lo || e + 1 > c->hi) continue;
        double y = base - c->bin[k][i] / most * (PANEL - 8);
        str_printf(out, "%.1f,%.1f %.1f,%.1f ", at(c, e), y, at(c, e + 1), y);
    }
    str_puts(out, "\"/>\n");
}

static void put_panel(const struct counted *c, int k, double top, struct str *out)
{
    const double base = top + PANEL, all = c->sum[k] + c->zero[k] + c->not_finite[k];
    const int shift = classes[k].scaled ? (int)log2(c->scale) : 0;
    double most = 1e-300;
    for (int i = 0; i < BINS; i++) most = fmax(most, c->bin[k][i]);
    str_printf(out, "<text class=\"title\" x=\"%d\" y=\"%.1f\">%s", LEFT, top - 6, classes[k].title);
    if (shift) str_printf(out, ", times the loss scale 2^%d", shift);
    str_puts(out, "</text>\n");
    str_printf(out, "<text class=\"side\" x=\"%d\" y=\"%.1f\">", WIDTH - RIGHT, top - 6);
    if (all > 0) str_printf(out, "0: %.2g %%", 100 * c->zero[k] / all);
    if (c->not_finite[k] > 0) str_printf(out, ", not finite: %.2g %%", 100 * c->not_finite[k] / all);
    str_printf(out, ", below fp16: %.2g %%", 100 * share_below(c, k, -25));
    if (shift) str_printf(out, " (without the scale %.2g %%)", 100 * share_below(c, k, -25 + shift));
    str_puts(out, "</text>\n");
    for (int i = 0; i < BINS; i++) {
        if (!(c->bin[k][i] > 0) || i + LOW < c->lo || i + LOW + 1 > c->hi) continue;
        double h = c->bin[k][i] / most * (PANEL - 8);
        str_printf(out, "<rect class=\"bin\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", at(c, i + LOW),
                   base - h, at(c, 1) - at(c, 0) - 0.5, h);
    }
    if (shift) put_outline(c, k, base, most, shift, out);
    str_printf(out, "<line class=\"axis\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>\n", LEFT, base, WIDTH - RIGHT,
               base);
}

static void put_range(const struct counted *c, double x0, double x1, double y, const char *class, struct str *out)
{
    if (x0 < c->lo) x0 = c->lo;
    if (x1 > c->hi) x1 = c->hi;
    if (x1 > x0)
        str_printf(out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>\n", class, at(c, x0),
                   y, at(c, x1) - at(c, x0), BAR - 6);
}

/* From the smallest number to the largest; light: subnormal. */
static void put_formats(const struct counted *c, double top, struct str *out)
{
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format_info f = format_info(formats[i]);
        double y = top + i * BAR, subnormal = f.lowest - f.fraction;
        put_range(c, subnormal, f.lowest, y, "subnormal", out);
        put_range(c, f.lowest, log2(f.max), y, "normal", out);
        double left = at(c, fmax(subnormal, c->lo)) + 4;
        str_printf(out, "<text class=\"format\" x=\"%.1f\" y=\"%.1f\">%s: 2^%g to %.4g, normal from 2^%d</text>\n",
                   left, y + BAR - 10, f.name, subnormal, f.max, f.lowest);
    }
}

static void put_ticks(const struct counted *c, double top, double bottom, struct str *out)
{
    int every = c->hi - c->lo > 96 ? 16 : 8;
    for (int e = c->lo; e <= c->hi; e++) {
        if (e % every) continue;
        str_printf(out, "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", at(c, e), top,
                   at(c, e), bottom);
        str_printf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\">2^%d</text>\n", at(c, e), bottom + 14, e);
    }
}

static void draw(struct counted *c, struct str *out)
{
    const double bars = TOP + CLASSES * (PANEL + GAP) - 8, bottom = bars + N_FORMATS * BAR, height = bottom + 24;
    choose_axis(c);
    str_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" height=\"%.0f\" "
               "role=\"img\" "
               "aria-label=\"numbers of step %lld by exponent\">\n<style>\n"
               "text { font: 12px sans-serif; fill: #333 } .side, .tick, .format { font-size: 10px; fill: #666 }\n"
               ".side { text-anchor: end } .tick { text-anchor: middle } .head { font-size: 14px }\n"
               ".bin { fill: #3b6ea5 } .axis { stroke: #888 } .grid { stroke: #8883 }\n"
               ".without { fill: none; stroke: #c0504d; stroke-width: 1.5 }\n"
               ".normal { fill: #9cba8f } .subnormal { fill: #dce8d6 }\n"
               "@media (prefers-color-scheme: dark) { text { fill: #ddd } .side, .tick { fill: #aaa } }\n</style>\n",
               WIDTH, height, WIDTH, height, (long long)c->step);
    str_printf(out, "<text class=\"head\" x=\"%d\" y=\"18\">step %lld, %s: numbers by size%s</text>\n", LEFT,
               (long long)c->step, c->recipe, c->scale > 1 ? "; red: without the loss scale" : "");
    put_ticks(c, TOP, bottom, out);
    for (int k = 0; k < CLASSES; k++) put_panel(c, k, TOP + k * (PANEL + GAP), out);
    put_formats(c, bars, out);
    str_puts(out, "</svg>\n");
}

int exponent_picture(const char *dir, int64_t step, struct str *svg, struct err *e)
{
    char *path = fs_join(dir, "exponents.jsonl"), *text;
    size_t n;
    int rc = fs_read_all(path, FILE_BYTES, &text, &n, e);
    if (rc) {
        err_prefix(e, "no numbers were counted by exponent; train with run.exponents_every");
        xfree(path);
        return rc;
    }
    struct counted *c = xcalloc(1, sizeof *c);
    struct str have = {0};
    if (find(text, step, c, &have)) draw(c, svg);
    else if (have.n)
        rc = err_set(e, ERR_REQUEST, "%s: has no step %lld; it has %s", path, (long long)step, str_text(&have));
    else rc = err_set(e, ERR_CORRUPT, "%s: has no line that tells numbers by exponent", path);
    str_free(&have);
    xfree(c);
    xfree(text);
    xfree(path);
    return rc;
}
