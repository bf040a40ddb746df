/* SPDX-License-Identifier: Apache-2.0 */
/* page.c: the page from top to bottom, in the order in which one asks: how did it go, what did it write, what did it
 * cost, where did everything lie, what exactly was run. */
#include "report/page.h"

#include <math.h>
#include <stdio.h>

#include "report/chart.h"

static const char style[] =
    ":root{--bg:#fff;--fg:#1b1f24;--dim:#667;--line:#e3e6ea;--card:#f6f8fa;--c0:#2563eb;--c1:#d97706;--c2:#059669;--c3:"
    "#9333ea}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#12151a;--fg:#e6e8eb;--dim:#9aa3ad;--line:#2a3038;--card:#1a1f26;"
    "--c0:#6ea8fe;--c1:#f6ad55;--c2:#4fd1a5;--c3:#c99bff}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;margin:0 "
    "auto;max-width:1100px;padding:24px;background:var(--bg);color:var(--fg)}\n"
    "h1{font-size:24px;margin:0}h2{font-size:17px;margin:32px 0 8px}p{margin:4px 0}.dim{color:var(--dim)}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:10px;margin:18px 0}\n"
    ".tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 12px}.tile "
    "b{display:block;font-size:20px}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(420px,1fr));gap:14px}\n"
    ".charts .wide{grid-column:1/-1}svg.chart{width:100%;height:auto;background:var(--card);border:1px solid "
    "var(--line);border-radius:8px}\n"
    ".chart text{fill:var(--dim);font:11px system-ui,sans-serif}.chart "
    ".title{fill:var(--fg);font-size:13px;font-weight:600}\n"
    ".chart .grid{stroke:var(--line)}.chart polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}.chart "
    ".faint{opacity:.3;stroke-width:1}\n"
    ".line-0{stroke:var(--c0)}.line-1{stroke:var(--c1)}.line-2{stroke:var(--c2)}.line-3{stroke:var(--c3)}\n"
    ".key-0{fill:var(--c0)}.key-1{fill:var(--c1)}.key-2{fill:var(--c2)}.key-3{fill:var(--c3)}\n"
    "table{border-collapse:collapse}td,th{padding:3px 14px 3px "
    "0;text-align:left}td.n{text-align:right;font-variant-numeric:tabular-nums}\n"
    ".bar{display:inline-block;height:10px;background:var(--c0);border-radius:2px}\n"
    "pre{background:var(--card);border:1px solid "
    "var(--line);border-radius:8px;padding:12px;overflow:auto;white-space:pre-wrap;"
    "overflow-wrap:anywhere}.picture{background:#fff;border:1px solid "
    "var(--line);border-radius:8px;padding:8px;overflow:auto}\n"
    ".prompt{font-weight:600}summary{cursor:pointer}\n";

void page_escape(struct str *out, const char *text)
{
    for (; *text; text++) switch (*text) {
        case '&': str_puts(out, "&amp;"); break;
        case '<': str_puts(out, "&lt;"); break;
        case '>': str_puts(out, "&gt;"); break;
        case '"': str_puts(out, "&quot;"); break;
        case '\'': str_puts(out, "&#39;"); break;
        default: str_putc(out, *text);
        }
}

static void tile(struct str *out, const char *name, const char *value)
{
    str_puts(out, "<div class=\"tile\"><b>");
    page_escape(out, value);
    str_puts(out, "</b><span class=\"dim\">");
    page_escape(out, name);
    str_puts(out, "</span></div>\n");
}

static void tile_real(struct str *out, const char *name, const char *format, double v)
{
    char text[64];
    if (!isfinite(v)) return;
    snprintf(text, sizeof text, format, v);
    tile(out, name, text);
}

static void tiles(struct str *out, const struct history *h)
{
    char text[32];
    double rate = curve_median(&h->curve[CURVE_RATE]), mfu = curve_median(&h->curve[CURVE_MFU]);
    str_puts(out, "<div class=\"tiles\">\n");
    tile(out, "steps", str_count(text, (double)h->steps));
    tile(out, "tokens trained", str_count(text, (double)h->tokens));
    tile_real(out, "loss of the last step", "%.4f", curve_last(&h->curve[CURVE_LOSS]));
    tile_real(out, "validation loss, last", "%.4f", curve_last(&h->curve[CURVE_VALID]));
    if (isfinite(rate)) tile(out, "tokens/s, median", str_count(text, rate));
    if (mfu > 0) tile_real(out, "MFU, median", "%.1f %%", 100 * mfu);
    if (h->seconds > 0) tile(out, "time in steps", str_duration(text, h->seconds));
    if (h->peak_bytes > 0) tile(out, "peak memory of a rank", str_bytes(text, (double)h->peak_bytes));
    if (h->skipped > 0) tile(out, "steps skipped", str_count(text, (double)h->skipped));
    str_puts(out, "</div>\n");
}

static void one_chart(struct str *out, const struct history *h, enum history_curve which, const char *title,
                      const char *unit, int colour, bool log_y)
{
    struct curve smooth = curve_smooth(&h->curve[which], curve_weight(&h->curve[which]));
    struct chart c = {.title = title,
                      .unit = unit,
                      .n_lines = 2,
                      .log_y = log_y,
                      .from_0 = !log_y,
                      .line = {{.name = title, .curve = &h->curve[which], .colour = colour, .faint = true},
                               {.name = "smoothed", .curve = &smooth, .colour = colour}}};
    if (which == CURVE_LR) { /* a schedule is exact: nothing to smooth */
        c.n_lines = 1;
        c.line[0].faint = false;
    }
    if (h->curve[which].n) {
        str_puts(out, "<div>");
        chart_svg(&c, out);
        str_puts(out, "</div>\n");
    }
    curve_free(&smooth);
}

static void charts(struct str *out, const struct history *h)
{
    struct curve smooth = curve_smooth(&h->curve[CURVE_LOSS], curve_weight(&h->curve[CURVE_LOSS]));
    struct chart loss = {.title = "Loss, nats per token",
                         .unit = "",
                         .width = 1060,
                         .n_lines = 3,
                         .line = {{.name = "each step", .curve = &h->curve[CURVE_LOSS], .colour = 0, .faint = true},
                                  {.name = "training, smoothed", .curve = &smooth, .colour = 0},
                                  {.name = "validation", .curve = &h->curve[CURVE_VALID], .colour = 1, .dots = true}}};
    str_puts(out, "<div class=\"charts\">\n<div class=\"wide\">");
    chart_svg(&loss, out);
    str_puts(out, "</div>\n");
    one_chart(out, h, CURVE_LR, "Learning rate", "", 2, false);
    one_chart(out, h, CURVE_GRAD_NORM, "Gradient norm", "", 3, true);
    one_chart(out, h, CURVE_RATE, "Tokens per second", "", 0, false);
    one_chart(out, h, CURVE_STEP_S, "Seconds per step", "", 1, false);
    str_puts(out, "</div>\n");
    curve_free(&smooth);
}

/* The last ones say most; how the model came there, the others. */
static void samples(struct str *out, const struct history *h)
{
    enum { MOST = 12 };
    if (!h->n_samples) return;
    str_puts(out, "<h2>What it wrote</h2>\n");
    int first = h->n_samples > MOST ? h->n_samples - MOST : 0;
    if (first) str_printf(out, "<p class=\"dim\">the last %d of %d samples</p>\n", MOST, h->n_samples);
    for (int i = h->n_samples - 1; i >= first; i--) {
        str_printf(out, "<details%s><summary>step %lld</summary><pre><span class=\"prompt\">",
                   i == h->n_samples - 1 ? " open" : "", (long long)h->sample[i].step);
        page_escape(out, h->sample[i].prompt);
        str_puts(out, "</span>");
        page_escape(out, h->sample[i].text);
        str_puts(out, "</pre></details>\n");
    }
}

static void memory(struct str *out, const struct page *p)
{
    double sum = 0, most = 0;
    char text[32];
    for (int i = 0; i < p->n_memory; i++) {
        sum += p->memory[i].bytes;
        most = fmax(most, p->memory[i].bytes);
    }
    if (!(sum > 0)) return;
    str_puts(out, "<h2>Memory</h2>\n<p class=\"dim\">what the plan allots to the rank that needs most, at its "
                  "peak</p>\n<table>\n");
    for (int i = 0; i < p->n_memory; i++) {
        if (!(p->memory[i].bytes > 0)) continue;
        str_puts(out, "<tr><td>");
        page_escape(out, p->memory[i].name);
        str_printf(out,
                   "</td><td class=\"n\">%s</td><td class=\"n\">%.1f %%</td><td><span class=\"bar\" "
                   "style=\"width:%.0fpx\"></span></td></tr>\n",
                   str_bytes(text, p->memory[i].bytes), 100 * p->memory[i].bytes / sum,
                   1 + 300 * p->memory[i].bytes / most);
    }
    str_printf(out, "<tr><th>all</th><td class=\"n\">%s</td></tr>\n</table>\n", str_bytes(text, sum));
}

static void starts(struct str *out, const struct history *h)
{
    if (!h->n_starts) return;
    str_puts(out, "<h2>Machine</h2>\n<table>\n<tr><th>started (UTC)</th><th>after "
                  "step</th><th>host</th><th>processor</th><th>ranks</th><th>threads "
                  "each</th><th>kernels</th><th>over</th><th>tutti</th></tr>\n");
    for (int i = 0; i < h->n_starts; i++) {
        const struct history_start *s = &h->start[i];
        const char *const before[] = {s->host, s->cpu}, *const after[] = {s->kernels, s->transport, s->version};
        str_puts(out, "<tr><td>");
        page_escape(out, s->time);
        str_printf(out, "</td><td class=\"n\">%lld</td>", (long long)s->step);
        for (int k = 0; k < 2; k++) {
            str_puts(out, "<td>");
            page_escape(out, before[k]);
            if (k == 1 && s->cores > 0) str_printf(out, ", %lld cores", (long long)s->cores);
            str_puts(out, "</td>");
        }
        str_printf(out, "<td class=\"n\">%lld</td><td class=\"n\">%lld</td>", (long long)s->ranks,
                   (long long)s->threads);
        for (int k = 0; k < 3; k++) {
            str_puts(out, "<td>");
            page_escape(out, after[k]);
            str_puts(out, "</td>");
        }
        str_puts(out, "</tr>\n");
    }
    str_puts(out, "</table>\n");
}

static void notes(struct str *out, const struct page *p)
{
    const struct history *h = p->history;
    if (h->broken)
        str_printf(out, "<p class=\"dim\">%lld lines of the run's files could not be read and are left out.</p>\n",
                   (long long)h->broken);
    if (h->not_finite)
        str_printf(out, "<p class=\"dim\">%lld values that are not finite are left out of the curves.</p>\n",
                   (long long)h->not_finite);
    for (int i = 0; i < p->n_notes; i++) {
        str_puts(out, "<p class=\"dim\">");
        page_escape(out, p->notes[i]);
        str_puts(out, "</p>\n");
    }
}

void page_html(const struct page *p, struct str *out)
{
    str_puts(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><meta name=\"viewport\" "
                  "content=\"width=device-width\">\n<title>");
    page_escape(out, p->title);
    str_puts(out, " – tutti</title>\n<style>\n");
    str_puts(out, style);
    str_puts(out, "</style></head>\n<body>\n<h1>");
    page_escape(out, p->title);
    str_puts(out, "</h1>\n<p class=\"dim\">");
    if (p->model) page_escape(out, p->model);
    str_puts(out, "</p>\n");
    tiles(out, p->history);
    notes(out, p);
    charts(out, p->history);
    samples(out, p->history);
    memory(out, p);
    for (int i = 0; i < p->n_pictures; i++) {
        if (!p->picture[i].svg) continue;
        str_puts(out, "<h2>");
        page_escape(out, p->picture[i].title);
        str_puts(out, "</h2>\n<p class=\"dim\">");
        page_escape(out, p->picture[i].about);
        str_printf(out, "</p>\n<div class=\"picture\">%s</div>\n", p->picture[i].svg);
    }
    starts(out, p->history);
    if (p->config) {
        str_puts(out, "<h2>Config</h2>\n<details><summary>config.yaml, every default filled in</summary><pre>");
        page_escape(out, p->config);
        str_puts(out, "</pre></details>\n");
    }
    str_puts(out, "</body>\n</html>\n");
}
