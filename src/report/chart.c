/* SPDX-License-Identifier: Apache-2.0 */
/* chart.c: from points to an SVG path. The picture is HEIGHT units high and scales with the page. */
#include "report/chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_WIDTH = 720, HEIGHT = 300, LEFT = 64, RIGHT = 16, TOP = 34, BOTTOM = 38, TICKS = 12 };

struct frame {
    double x0, x1, y0, y1; /* of the data; y as drawn (log10 where log_y) */
    bool log_y;
    int right; /* of the plot */
};

static double px(const struct frame *f, double x) { return LEFT + (x - f->x0) / (f->x1 - f->x0) * (f->right - LEFT); }
static double py(const struct frame *f, double y)
{
    if (f->log_y) y = log10(y);
    return TOP + (f->y1 - y) / (f->y1 - f->y0) * (HEIGHT - TOP - BOTTOM);
}

int chart_ticks(double lo, double hi, double ticks[TICKS])
{
    if (!(hi > lo)) return 0;
    double step = pow(10, floor(log10((hi - lo) / 4)));
    while ((hi - lo) / step > 8) step *= (hi - lo) / step > 16 ? 5 : 2;
    int n = 0;
    for (double k = ceil(lo / step - 1e-9); k * step <= hi + step * 1e-9 && n < TICKS; k++) ticks[n++] = k * step;
    return n;
}

/* "1.5", "3e-04", "12k": short, and the same number. */
static void put_number(struct str *out, double v)
{
    char text[32];
    if (fabs(v) >= 1e4 && fabs(v) < 1e15) {
        str_puts(out, str_count(text, v));
        return;
    }
    str_printf(out, "%.4g", fabs(v) < 1e-12 ? 0.0 : v);
}

static bool find_frame(const struct chart *c, struct frame *f)
{
    *f =
        (struct frame){INFINITY, -INFINITY, INFINITY, -INFINITY, c->log_y, (c->width ? c->width : USUAL_WIDTH) - RIGHT};
    for (int l = 0; l < c->n_lines; l++) {
        const struct curve *v = c->line[l].curve;
        for (int64_t i = 0; i < v->n; i++) {
            f->x0 = fmin(f->x0, v->x[i]);
            f->x1 = fmax(f->x1, v->x[i]);
            f->y0 = fmin(f->y0, v->y[i]);
            f->y1 = fmax(f->y1, v->y[i]);
        }
    }
    if (!(f->x0 <= f->x1)) return false;
    if (f->y0 <= 0) f->log_y = false;
    if (f->log_y) {
        f->y0 = log10(f->y0);
        f->y1 = log10(f->y1);
    } else if (c->from_0 && f->y0 > 0) {
        f->y0 = 0;
    }
    double margin = f->y1 > f->y0 ? 0.04 * (f->y1 - f->y0) : fabs(f->y0) * 0.1 + 1e-12;
    f->y1 += margin;
    if (!(c->from_0 && f->y0 == 0)) f->y0 -= margin;
    if (f->x1 == f->x0) {
        f->x0 -= 1;
        f->x1 += 1;
    }
    return true;
}

/* A curve's points as polyline coordinates: all of them, or per column of half a unit its first, least, largest and
 * last. */
static void put_points(struct str *out, const struct frame *f, const struct curve *c)
{
    const int64_t columns = 2 * (f->right - LEFT);
    if (c->n <= 2 * columns) {
        for (int64_t i = 0; i < c->n; i++) str_printf(out, "%.1f,%.1f ", px(f, c->x[i]), py(f, c->y[i]));
        return;
    }
    for (int64_t i = 0; i < c->n;) {
        int64_t column = (int64_t)(2 * px(f, c->x[i])), least = i, most = i, j = i;
        for (; j < c->n && (int64_t)(2 * px(f, c->x[j])) == column; j++) {
            if (c->y[j] < c->y[least]) least = j;
            if (c->y[j] > c->y[most]) most = j;
        }
        const int64_t pick[4] = {i, least < most ? least : most, least < most ? most : least, j - 1};
        for (int k = 0; k < 4; k++)
            if (!k || pick[k] != pick[k - 1]) str_printf(out, "%.1f,%.1f ", px(f, c->x[pick[k]]), py(f, c->y[pick[k]]));
        i = j;
    }
}

static void put_axes(struct str *out, const struct chart *c, const struct frame *f)
{
    double t[TICKS];
    for (int i = 0, n = chart_ticks(f->x0, f->x1, t); i < n; i++) {
        str_printf(out,
                   "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/><text class=\"tick\" x=\"%.1f\" "
                   "y=\"%d\" text-anchor=\"middle\">",
                   px(f, t[i]), px(f, t[i]), TOP, HEIGHT - BOTTOM, px(f, t[i]), HEIGHT - BOTTOM + 16);
        put_number(out, t[i]);
        str_puts(out, "</text>\n");
    }
    int n = chart_ticks(f->log_y ? pow(10, f->y0) : f->y0, f->log_y ? pow(10, f->y1) : f->y1, t);
    if (f->log_y && f->y1 - f->y0 > 1.5) /* decades instead of equal steps */
        for (n = 0; n < TICKS && ceil(f->y0) + n <= f->y1; n++) t[n] = pow(10, ceil(f->y0) + n);
    for (int i = 0; i < n; i++) {
        str_printf(out,
                   "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"tick\" x=\"%d\" "
                   "y=\"%.1f\" text-anchor=\"end\">",
                   LEFT, f->right, py(f, t[i]), py(f, t[i]), LEFT - 6, py(f, t[i]) + 4);
        put_number(out, t[i]);
        str_puts(out, "</text>\n");
    }
    str_printf(out,
               "<text class=\"title\" x=\"%d\" y=\"18\">%s</text><text class=\"tick\" x=\"%d\" y=\"%d\" "
               "text-anchor=\"end\">step</text>\n",
               LEFT, c->title, f->right, HEIGHT - 6);
    if (*c->unit) str_printf(out, "<text class=\"tick\" x=\"%d\" y=\"%d\">%s</text>\n", 4, TOP - 8, c->unit);
}

void chart_svg(const struct chart *c, struct str *out)
{
    struct frame f;
    if (!find_frame(c, &f)) return;
    str_printf(out, "<svg class=\"chart\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", f.right + RIGHT,
               HEIGHT, c->title);
    put_axes(out, c, &f);
    double legend = f.right;
    for (int l = c->n_lines - 1; l >= 0; l--) {
        const struct chart_line *line = &c->line[l];
        if (!line->curve->n || line->faint) continue;
        legend -= 7.0 * (double)strlen(line->name);
        str_printf(out,
                   "<text class=\"tick\" x=\"%.1f\" y=\"18\">%s</text><rect class=\"key-%d\" x=\"%.1f\" y=\"10\" "
                   "width=\"10\" height=\"10\"/>\n",
                   legend, line->name, line->colour, legend - 14);
        legend -= 30;
    }
    for (int l = 0; l < c->n_lines; l++) {
        const struct chart_line *line = &c->line[l];
        const struct curve *v = line->curve;
        if (!v->n) continue;
        str_printf(out, "<polyline class=\"line-%d%s\" points=\"", line->colour, line->faint ? " faint" : "");
        put_points(out, &f, v);
        str_puts(out, "\"/>\n");
        for (int64_t i = 0; (line->dots || v->n == 1) && i < v->n && v->n <= 200; i++)
            str_printf(out,
                       "<circle class=\"key-%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>step %.0f: "
                       "%.5g</title></circle>\n",
                       line->colour, px(&f, v->x[i]), py(&f, v->y[i]), v->x[i], v->y[i]);
    }
    str_puts(out, "</svg>\n");
}

struct curve curve_smooth(const struct curve *c, double weight)
{
    struct curve s = {.n = c->n, .room = c->n};
    if (!c->n) return s;
    s.x = xmalloc((size_t)c->n * sizeof *s.x);
    s.y = xmalloc((size_t)c->n * sizeof *s.y);
    double sum = 0, total = 0;
    for (int64_t i = 0; i < c->n; i++) {
        sum = weight * sum + c->y[i];
        total = weight * total + 1;
        s.x[i] = c->x[i];
        s.y[i] = sum / total;
    }
    return s;
}

double curve_weight(const struct curve *c) { return 1 - 1 / (1 + (double)c->n / 40); }

void curve_free(struct curve *c)
{
    xfree(c->x);
    xfree(c->y);
    *c = (struct curve){0};
}
