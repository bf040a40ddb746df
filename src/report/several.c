/* SPDX-License-Identifier: Apache-2.0 */
/* Several runs' validation as one SVG with a style of its own. */
#include "report/several.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char style[] = "<style>.grid{stroke:#ddd;stroke-width:1}.tick{font:11px "
                            "sans-serif;fill:#555}.title{font:13px sans-serif;fill:#222}"
                            "polyline{fill:none;stroke-width:1.5}circle{stroke:none}</style>\n";
static const char *const colours[CHART_LINES] = {"#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee",
                                                 "#aa3377", "#888888", "#dd7722", "#3355cc", "#117755"};

static const char *last_word(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* The chart is a picture of a page; alone it needs a name space, colours and a ground. */
static void stand_alone(const char *chart, struct str *svg)
{
    const char *body = strstr(chart, "\">\n");
    const char *box = strstr(chart, "viewBox=\"");
    int n = box ? (int)strcspn(box + 9, "\"") : 0;
    str_printf(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" %.*s\">\n<!-- SPDX-License-Identifier: Apache-2.0 -->\n",
               n + 9, box ? box : "");
    str_puts(svg, style);
    str_puts(svg, "<style>");
    for (int i = 0; i < CHART_LINES; i++)
        str_printf(svg, ".line-%d{stroke:%s}.key-%d{fill:%s}", i, colours[i], i, colours[i]);
    str_puts(svg, "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
    str_puts(svg, body ? body + 3 : "");
}

/* The last point of c that first has a point beside: its place there, and here in *at. -1 where they share none. A run
 * that went on again has some steps twice: the later ones count. */
static int64_t last_shared(const struct curve *first, const struct curve *c, int64_t *at)
{
    int64_t found = -1;
    for (int64_t i = 0; i < c->n; i++) {
        for (int64_t k = first->n - 1; k >= 0 && (found < 0 || c->x[i] >= c->x[*at]); k--) {
            if (first->x[k] != c->x[i]) continue;
            *at = i, found = k;
            break;
        }
    }
    return found;
}

int several_draw(const char *const *runs, int n, struct str *svg, struct str *table, struct err *e)
{
    struct history *h = xcalloc((size_t)n + 1, sizeof *h);
    struct chart c = {.title = "validation loss", .unit = "nats", .width = 900};
    struct str chart = {0};
    int rc = OK, read = 0;
    if (n > CHART_LINES) rc = err_set(e, ERR_REQUEST, "%d runs in one picture, of at most %d", n, CHART_LINES);
    for (; !rc && read < n; read++) {
        rc = history_read(&h[read], runs[read], e);
        if (!rc && !h[read].curve[CURVE_VALID].n)
            rc = err_set(e, ERR_REQUEST, "%s: no validation (run.eval_every)", runs[read]);
        c.line[read] =
            (struct chart_line){.name = last_word(runs[read]), .curve = &h[read].curve[CURVE_VALID], .colour = read};
    }
    c.n_lines = read;
    if (!rc) {
        chart_svg(&c, &chart);
        stand_alone(str_text(&chart), svg);
        const struct curve *first = &h[0].curve[CURVE_VALID];
        str_puts(table, "| run | step | validation loss | above the first |\n|---|---|---|---|\n");
        for (int i = 0; i < n; i++) {
            const struct curve *own = &h[i].curve[CURVE_VALID];
            int64_t at = own->n - 1, there = last_shared(first, own, &at);
            str_printf(table, "| `%s` | %.0f | %.4f | ", last_word(runs[i]), own->x[at], own->y[at]);
            if (there < 0) str_puts(table, "no step in common |\n");
            else str_printf(table, "%+.2f %% |\n", 100 * (own->y[at] / first->y[there] - 1));
        }
    }
    for (int i = 0; i < read; i++) history_free(&h[i]);
    str_free(&chart);
    xfree(h);
    return rc;
}
