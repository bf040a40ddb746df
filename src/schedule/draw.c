/* The timeline as a picture: in a terminal, as SVG, and as JSON for other programs. All three read the same arrays
 * that the executor and the simulator read; none of them computes a time. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "schedule/schedule.h"

/* ---- terminal ----------------------------------------------------------------------------------------------- */

/* "F3" padded to the width of the action; where it does not fit, the kind's letter alone: part of a number misleads. */
static void paint(char *row, int from, int to, struct action a)
{
    char label[32];
    int width = to - from,
        n = snprintf(label, sizeof label, "%s%u", action_name((enum action_kind)a.kind), a.microbatch);
    if (width < 1) return;
    if (n > width) n = 1;
    row[from] = '|';
    for (int i = 0; i < width - 1; i++) row[from + 1 + i] = i < n ? label[i] : ' ';
}

int schedule_draw(const struct schedule *s, const struct schedule_timeline *t, int columns, struct str *out)
{
    double shortest = t->makespan;
    for (int r = 0; r < s->n_ranks; r++)
        for (int64_t i = 0; i < s->rank[r].n; i++) {
            double d = t->at[r][i].end_s - t->at[r][i].start_s;
            if (d > 0 && d < shortest) shortest = d;
        }
    int cells = s->n_microbatches <= 10 ? 3 : s->n_microbatches <= 100 ? 4 : 5; /* "|F7", "|F42" */
    double per_cell = shortest / cells;
    if (!(per_cell > 0) || t->makespan / per_cell > columns - 8) return -1;
    int width = (int)lround(t->makespan / per_cell);
    char *row = xmalloc(to_size(width) + 2);
    for (int r = 0; r < s->n_ranks; r++) {
        memset(row, '.', to_size(width));
        row[width] = '|';
        row[width + 1] = 0;
        for (int64_t i = 0; i < s->rank[r].n; i++)
            if (action_is_compute((enum action_kind)s->rank[r].a[i].kind))
                paint(row, (int)lround(t->at[r][i].start_s / per_cell), (int)lround(t->at[r][i].end_s / per_cell),
                      s->rank[r].a[i]);
        str_printf(out, "rank %-2d %s\n", r, row);
    }
    xfree(row);
    return OK;
}

/* ---- SVG ---------------------------------------------------------------------------------------------------- */

#define IDLE "#eeeeee"
enum { ROW = 26, LEFT = 64, TOP = 34, WIDTH = 1400 };

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

/* What the colours mean: the kinds that this schedule has, and idle time. */
static void legend(const struct schedule *s, int y, struct str *out)
{
    static const struct {
        enum action_kind kind;
        const char *name;
    } rows[] = {{ACTION_F, "forward"},
                {ACTION_BW, "backward"},
                {ACTION_B, "backward, inputs"},
                {ACTION_W, "backward, weights"},
                {ACTION_RECOMPUTE, "recompute"}};
    int x = LEFT;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!schedule_has(s, rows[i].kind)) continue;
        for (int chunk = 0; chunk < (s->n_stages > s->n_ranks ? 2 : 1); chunk++, x += 20) {
            struct action a = action_of(rows[i].kind, chunk * s->n_ranks, 0);
            str_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"16\" height=\"12\" fill=\"%s\" stroke=\"#333\" stroke-width=\"0.5\"/>",
                       x, y - 10, colour(a, s->n_ranks));
        }
        str_printf(out, "<text x=\"%d\" y=\"%d\">%s</text>\n", x + 2, y, rows[i].name);
        x += 24 + 7 * (int)strlen(rows[i].name);
    }
    str_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"16\" height=\"12\" fill=\"%s\" stroke=\"#333\" stroke-width=\"0.5\"/>"
               "<text x=\"%d\" y=\"%d\">idle</text>\n", x, y - 10, IDLE, x + 22, y);
}

/* The boxes of a rank, or the numbers in them. */
static void draw_rank(const struct schedule *s, const struct schedule_timeline *t, int rank, bool numbers, double scale,
                      struct str *out)
{
    int y = TOP + ROW * rank;
    char name[32];
    for (int64_t i = 0; i < s->rank[rank].n; i++) {
        struct action a = s->rank[rank].a[i];
        struct schedule_time at = t->at[rank][i];
        double x = LEFT + at.start_s * scale, w = (at.end_s - at.start_s) * scale;
        if (!action_is_compute((enum action_kind)a.kind) || w <= 0) continue;
        if (!numbers)
            str_printf(out, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"><title>%s: %.6g to %.6g"
                       "</title></rect>\n", x, y, w, ROW - 4, colour(a, s->n_ranks), action_print(name, a), at.start_s, at.end_s);
        else if (w > 16)
            str_printf(out, "<text x=\"%.1f\" y=\"%d\">%u</text>\n", x + w / 2, y + 16, a.microbatch);
    }
}

void schedule_svg(const struct schedule *s, const struct schedule_timeline *t, struct str *out)
{
    double scale = t->makespan > 0 ? (WIDTH - LEFT - 16) / t->makespan : 1;
    int foot = TOP + ROW * s->n_ranks;
    str_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
               "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
               "<text x=\"8\" y=\"20\">%s: %d ranks, %d stages, %d microbatches; makespan %.6g, bubble %.1f %%</text>\n",
               WIDTH, foot + 30, WIDTH, foot + 30, s->kind, s->n_ranks, s->n_stages, s->n_microbatches, t->makespan,
               100 * t->bubble_ratio);
    for (int r = 0; r < s->n_ranks; r++) {
        int y = TOP + ROW * r;
        str_printf(out, "<text x=\"8\" y=\"%d\">rank %d</text><rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n"
                   "<g stroke=\"#333\" stroke-width=\"0.5\">\n", y + 17, r, LEFT, y, t->makespan * scale, ROW - 4, IDLE);
        draw_rank(s, t, r, false, scale, out);
        str_puts(out, "</g><g text-anchor=\"middle\" pointer-events=\"none\">\n");
        draw_rank(s, t, r, true, scale, out);
        str_puts(out, "</g>\n");
    }
    legend(s, foot + 18, out);
    str_puts(out, "</svg>\n");
}

/* ---- JSON --------------------------------------------------------------------------------------------------- */

static void put_peaks(struct json_out *o, const char *key, const struct schedule_peak *peak, int n,
                      int64_t (*get)(const struct schedule_peak *))
{
    json_begin_array(o, key);
    for (int r = 0; r < n; r++) json_put_int(o, NULL, get(&peak[r]));
    json_end_array(o);
}

static int64_t get_activations(const struct schedule_peak *p)
{
    return p->activations;
}
static int64_t get_wgrads(const struct schedule_peak *p)
{
    return p->wgrads;
}
static int64_t get_both(const struct schedule_peak *p)
{
    return p->both;
}

void schedule_json(const struct schedule *s, const struct schedule_timeline *t, const struct schedule_peak *peak,
                   struct str *out)
{
    struct json_out o = {.s = out, .pretty = true};
    json_begin_object(&o, NULL);
    json_put_string(&o, "kind", s->kind);
    json_put_int(&o, "stages", s->n_ranks);
    json_put_int(&o, "microbatches", s->n_microbatches);
    json_put_int(&o, "chunks", s->n_chunks);
    json_put_real(&o, "makespan", t->makespan);
    json_put_real(&o, "ideal", t->ideal);
    json_put_real(&o, "bubble_ratio", t->bubble_ratio);
    json_put_real(&o, "period", t->period);
    json_put_real(&o, "period_bubble_ratio", t->period_bubble_ratio);
    put_peaks(&o, "peak_activations", peak, s->n_ranks, get_activations);
    put_peaks(&o, "peak_wgrads", peak, s->n_ranks, get_wgrads);
    put_peaks(&o, "peak_tapes", peak, s->n_ranks, get_both);
    json_begin_array(&o, "actions");
    for (int r = 0; r < s->n_ranks; r++) {
        struct str line = {0};
        schedule_print_rank(s, r, &line);
        json_put_string(&o, NULL, str_text(&line));
        str_free(&line);
    }
    json_end_array(&o);
    json_end_object(&o);
    str_putc(out, '\n');
}
