/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline in a terminal, and as JSON for other programs (as SVG: svg.c). All read the same arrays that the
 * executor and the simulator read; none of them computes a time. */
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

/* ---- JSON --------------------------------------------------------------------------------------------------- */

static void put_peaks(struct json_out *o, const char *key, const struct schedule_peak *peak, int n,
                      int64_t (*get)(const struct schedule_peak *))
{
    json_begin_array(o, key);
    for (int r = 0; r < n; r++) json_put_int(o, NULL, get(&peak[r]));
    json_end_array(o);
}

static int64_t get_activations(const struct schedule_peak *p) { return p->activations; }
static int64_t get_wgrads(const struct schedule_peak *p) { return p->wgrads; }
static int64_t get_both(const struct schedule_peak *p) { return p->both; }

void schedule_json(const struct schedule *s, const struct schedule_timeline *t, const struct schedule_peak *peak,
                   struct str *out)
{
    struct json_out o = {.s = out, .pretty = true};
    json_begin_document(&o, "schedule", 1);
    json_put_string(&o, "kind", s->kind);
    json_put_int(&o, "stages", s->n_ranks);
    json_put_int(&o, "microbatches", s->n_microbatches);
    json_put_int(&o, "chunks", s->n_chunks);
    json_put_real(&o, "makespan", t->makespan);
    json_put_real(&o, "ideal", t->ideal);
    json_put_real(&o, "bubble_ratio", t->bubble_ratio);
    json_put_real(&o, "period", t->period);
    json_put_real(&o, "period_bubble_ratio", t->period_bubble_ratio);
    json_put_real(&o, "idle_share", t->idle_share);
    json_begin_array(&o, "idle");
    for (int r = 0; r < s->n_ranks; r++) json_put_real(&o, NULL, t->idle[r]);
    json_end_array(&o);
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
