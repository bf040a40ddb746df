/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline as SVG: a row per rank, a box per action, grey where a rank idles and how much of the time that is, and
 * an axis of time below. Times are those of the simulator (schedule_simulate); nothing here computes one. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "schedule/schedule.h"

#define IDLE "#ececec"
#define EDGE " stroke=\"#333\" stroke-width=\"0.5\""
enum { ROW = 26, LEFT = 64, RIGHT = 92, TOP = 62, WIDTH = 1400, FOOT = 92, MOST_TICKS = 16 };

struct canvas {
    const struct schedule *s;
    const struct schedule_timeline *t;
    double scale; /* of time to pixels */
    double step;  /* between ticks */
    int ticks;    /* the last one is not before the end */
    int foot;     /* below the last row */
    struct str *out;
};

static double x_of(const struct canvas *c, double time) { return LEFT + time * c->scale; }

/* 1, 2 or 5 times a power of ten, so that there are few enough. */
static double step_for(double makespan)
{
    static const double nice[] = {1, 2, 5};
    if (!(makespan > 0)) return 1;
    for (double power = pow(10, floor(log10(makespan / MOST_TICKS)));; power *= 10)
        for (int i = 0; i < 3; i++)
            if (nice[i] * power * MOST_TICKS >= makespan) return nice[i] * power;
}

static const char *colour(struct action a, int n_ranks)
{
    static const char *const even[ACTION_N] = {[ACTION_F] = "#8ecae6",
                                               [ACTION_B] = "#ffb703",
                                               [ACTION_W] = "#b5e48c",
                                               [ACTION_BW] = "#fb8500",
                                               [ACTION_RECOMPUTE] = "#cdb4db"};
    static const char *const odd[ACTION_N] = {[ACTION_F] = "#219ebc",
                                              [ACTION_B] = "#e09f00",
                                              [ACTION_W] = "#76c893",
                                              [ACTION_BW] = "#d95f02",
                                              [ACTION_RECOMPUTE] = "#a98bc0"};
    return (a.stage / n_ranks % 2 ? odd : even)[a.kind];
}

static int swatch(struct canvas *c, int x, int y, const char *fill)
{
    str_printf(c->out, "<rect x=\"%d\" y=\"%d\" width=\"16\" height=\"12\" fill=\"%s\"" EDGE "/>", x, y - 10, fill);
    return x + 20;
}

static int word(struct canvas *c, int x, int y, const char *text)
{
    str_printf(c->out, "<text x=\"%d\" y=\"%d\">%s</text>\n", x + 2, y, text);
    return x + 24 + 7 * (int)strlen(text);
}

/* What the colours mean: the kinds that this schedule has, and idle time. */
static void legend(struct canvas *c, int y)
{
    static const struct {
        enum action_kind kind;
        const char *name;
    } rows[] = {{ACTION_F, "forward"},
                {ACTION_BW, "backward"},
                {ACTION_B, "backward, for inputs"},
                {ACTION_W, "backward, for weights"},
                {ACTION_RECOMPUTE, "forward once more"}};
    const struct schedule *s = c->s;
    bool shades = s->n_stages > s->n_ranks;
    int x = LEFT;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!schedule_has(s, rows[i].kind)) continue;
        for (int chunk = 0; chunk <= shades; chunk++)
            x = swatch(c, x, y, colour(action_of(rows[i].kind, chunk * s->n_ranks, 0), s->n_ranks));
        x = word(c, x, y, rows[i].name);
    }
    x = word(c, swatch(c, x, y, IDLE), y, "idle");
    str_printf(c->out, "<text x=\"%d\" y=\"%d\" fill=\"#555\">%s</text>\n", x + 2, y,
               shades ? "number: microbatch; darker: every second of a rank's stages" : "number: microbatch");
}

/* The boxes of a rank, or the numbers in them. */
static void draw_rank(struct canvas *c, int rank, bool numbers)
{
    const struct schedule *s = c->s;
    int y = TOP + ROW * rank;
    char name[32];
    for (int64_t i = 0; i < s->rank[rank].n; i++) {
        struct action a = s->rank[rank].a[i];
        struct schedule_time at = c->t->at[rank][i];
        double x = x_of(c, at.start_s), w = (at.end_s - at.start_s) * c->scale;
        if (!action_is_compute((enum action_kind)a.kind) || w <= 0) continue;
        if (!numbers)
            str_printf(c->out,
                       "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"><title>%s: %.6g to %.6g"
                       "</title></rect>\n",
                       x, y, w, ROW - 4, colour(a, s->n_ranks), action_print(name, a), at.start_s, at.end_s);
        else if (w > 7 + 7 * (a.microbatch > 9) + 7 * (a.microbatch > 99))
            str_printf(c->out, "<text x=\"%.1f\" y=\"%d\">%u</text>\n", x + w / 2, y + 16, a.microbatch);
    }
}

/* Ticks under the rows, thin lines up through them, and in which unit they count. */
static void draw_axis(struct canvas *c)
{
    const struct schedule_cost *cost = &c->t->cost;
    int y = c->foot + 4;
    double end = x_of(c, c->t->makespan);
    str_printf(c->out, "<g stroke=\"#333\"><line x1=\"%d\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n", LEFT, y,
               x_of(c, c->ticks * c->step), y);
    for (int i = 0; i <= c->ticks; i++)
        str_printf(c->out, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n", x_of(c, i * c->step), y,
                   x_of(c, i * c->step), y + 5);
    str_puts(c->out, "</g><g text-anchor=\"middle\">\n");
    for (int i = 0; i <= c->ticks; i++)
        str_printf(c->out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\">%.6g</text>\n", x_of(c, i * c->step), y + 19,
                   i * c->step);
    str_puts(c->out, "</g>\n");
    str_printf(c->out,
               "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#c1121f\" stroke-dasharray=\"4 3\"/>\n", end,
               TOP - 4, end, y);
    str_printf(c->out,
               "<text x=\"%d\" y=\"%d\">time</text><text x=\"%d\" y=\"%d\" fill=\"#555\">unit: as in --cost; one "
               "microbatch on one rank takes %.6g forward, %.6g backward for inputs, %.6g for weights; a message "
               "%.6g</text>\n",
               8, y + 19, LEFT, y + 38, cost->f, cost->b, cost->w, cost->comm);
}

static void draw_head(struct canvas *c)
{
    const struct schedule *s = c->s;
    const struct schedule_timeline *t = c->t;
    str_printf(c->out,
               "<text x=\"8\" y=\"20\" font-size=\"14\" font-weight=\"bold\">%s: %d ranks, %d stages, %d "
               "microbatches</text>\n",
               s->kind, s->n_ranks, s->n_stages, s->n_microbatches);
    str_printf(c->out,
               "<text x=\"8\" y=\"39\" fill=\"#555\">makespan %.6g, of which the busiest rank computes %.6g: bubble "
               "%.1f %% (idle time over work); all ranks together idle %.1f %% of the time</text>\n",
               t->makespan, t->ideal, 100 * t->bubble_ratio, 100 * t->idle_share);
    str_printf(c->out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"#555\">idle</text>\n", WIDTH - 12, TOP - 8);
}

static void draw_rows(struct canvas *c)
{
    const struct schedule *s = c->s;
    for (int r = 0; r < s->n_ranks; r++) {
        int y = TOP + ROW * r;
        double share = c->t->makespan > 0 ? c->t->idle[r] / c->t->makespan : 0;
        str_printf(c->out,
                   "<text x=\"8\" y=\"%d\">rank %d</text><rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" "
                   "fill=\"" IDLE "\"/><text class=\"idle\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%.1f %%</text>\n",
                   y + 16, r, LEFT, y, c->t->makespan * c->scale, ROW - 4, WIDTH - 12, y + 16, 100 * share);
    }
    str_puts(c->out, "<g stroke=\"#c8c8c8\" stroke-width=\"0.6\">\n");
    for (int i = 0; i <= c->ticks; i++)
        str_printf(c->out, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n", x_of(c, i * c->step), TOP,
                   x_of(c, i * c->step), c->foot + 4);
    str_puts(c->out, "</g>\n");
    for (int r = 0; r < s->n_ranks; r++) {
        str_puts(c->out, "<g" EDGE ">\n");
        draw_rank(c, r, false);
        str_puts(c->out, "</g><g text-anchor=\"middle\" pointer-events=\"none\">\n");
        draw_rank(c, r, true);
        str_puts(c->out, "</g>\n");
    }
}

void schedule_svg(const struct schedule *s, const struct schedule_timeline *t, struct str *out)
{
    struct canvas c = {.s = s, .t = t, .out = out, .foot = TOP + ROW * s->n_ranks, .step = step_for(t->makespan)};
    c.ticks = t->makespan > 0 ? (int)ceil(t->makespan / c.step) : 1;
    c.scale = (WIDTH - LEFT - RIGHT) / (c.ticks * c.step);
    str_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
               "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
               "fill=\"white\"/>\n",
               WIDTH, c.foot + FOOT, WIDTH, c.foot + FOOT);
    draw_head(&c);
    draw_rows(&c);
    draw_axis(&c);
    legend(&c, c.foot + 70);
    str_puts(out, "</svg>\n");
}
