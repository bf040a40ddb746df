/* SPDX-License-Identifier: Apache-2.0 */
/* chart.h: curves as an SVG picture: axes with round numbers, a line per curve, a legend.
 * A curve with more points than the picture has columns is drawn by the least and the largest of each column, so that
 * no spike is lost. Colours are CSS classes of the page (line-0 ...), so that a page can be dark.
 * Floor 11; includes base and history.h. Order: Local.
 */
#ifndef TUTTI_REPORT_CHART_H
#define TUTTI_REPORT_CHART_H

#include <stdbool.h>

#include "base/str.h"
#include "report/history.h"

struct chart_line {
    const char *name;
    const struct curve *curve;
    int colour; /* 0..3 on a page, 0..9 beside others (several.h) */
    bool faint; /* raw values behind a smoothed line */
    bool dots;  /* few points: mark each */
};
enum { CHART_LINES = 10 };
struct chart {
    const char *title, *unit; /* unit of y, "" for none */
    struct chart_line line[CHART_LINES];
    int n_lines;
    bool log_y;  /* only where all values are positive; else drawn plain */
    bool from_0; /* the axis begins at zero */
    int width;   /* units across; 0: 720 */
};

/* Nothing is written where no line has a point. */
void chart_svg(const struct chart *c, struct str *out);

/* A curve smoothed by an exponential mean whose start does not count: y_i = sum w^(i-k) y_k / sum w^(i-k). */
struct curve curve_smooth(const struct curve *c, double weight);
double curve_weight(const struct curve *c); /* a weight that looks back over a fortieth of the points */
void curve_free(struct curve *c);

/* Between 2 and 12 round numbers (1, 2 or 5 times a power of ten apart) that lie in [lo, hi]; returns how many. */
int chart_ticks(double lo, double hi, double ticks[12]);

#endif
