/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule as a table: a row per rank, a cell per action, empty cells where a rank idles. That is how a spreadsheet
 * and PyTorch's pipelining write them. Only computing actions stand in it; which rank has which stage follows from who
 * runs it, messages from that.
 *
 *     0F0,0F1,   ,0B0,0B1        F forward; W weight half; I (or B, where the file has that key's W) input half;
 *        ,1F0,1B0,1F1,1B1        B without a W, or BW: the whole backward
 *
 * Two passes: the cells into a list, which says how many stages and microbatches there are; then placement and lists.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "schedule/csv.h"

struct cell {
    int row, stage, microbatch;
    enum action_kind kind;
};
struct table {
    struct cell *cell;
    int64_t n, room;
    int n_rows, n_stages, n_microbatches;
};

static int bad_cell(const char *what, int line, const char *text, size_t n, const char *why, struct err *e)
{
    return err_set(e, ERR_REQUEST, "%s:%d: '%.*s': %s", what, line, n > 40 ? 40 : (int)n, text, why);
}

static long number(const char **p, const char *end, long limit)
{
    long v = *p < end && isdigit((unsigned char)**p) ? 0 : -1;
    for (; *p < end && isdigit((unsigned char)**p) && v >= 0; (*p)++) {
        v = v * 10 + (**p - '0');
        if (v > limit) return -1;
    }
    return v;
}

/* "0F0" between text and text + n, blanks already gone. */
static int read_cell(struct table *t, const char *text, size_t n, const char *what, int line, struct err *e)
{
    const char *p = text, *end = text + n;
    long stage = number(&p, end, SCHEDULE_MAX_STAGES - 1);
    if (stage < 0) return bad_cell(what, line, text, n, "wanted a stage, a kind and a microbatch, as in 2F0", e);
    enum action_kind kind = ACTION_N;
    if (end - p >= 2 && p[0] == 'B' && p[1] == 'W') kind = ACTION_BW, p += 2;
    else if (p < end && *p == 'F') kind = ACTION_F, p++;
    else if (p < end && *p == 'B') kind = ACTION_B, p++;
    else if (p < end && *p == 'I') kind = ACTION_B, p++;
    else if (p < end && *p == 'W') kind = ACTION_W, p++;
    else return bad_cell(what, line, text, n, "wanted F, B, I, W or BW after the stage", e);
    long microbatch = number(&p, end, SCHEDULE_MAX_MICROBATCHES - 1);
    if (microbatch < 0 || p != end) return bad_cell(what, line, text, n, "wanted a microbatch and nothing after it", e);
    GROW(t->cell, t->n, t->room, 1);
    t->cell[t->n++] = (struct cell){t->n_rows, (int)stage, (int)microbatch, kind};
    if (stage >= t->n_stages) t->n_stages = (int)stage + 1;
    if (microbatch >= t->n_microbatches) t->n_microbatches = (int)microbatch + 1;
    return OK;
}

static const char *trim(const char *text, size_t *n)
{
    while (*n && strchr(" \t\r\"", text[*n - 1])) (*n)--;
    while (*n && strchr(" \t\r\"", *text)) text++, (*n)--;
    return text;
}

static int read_row(struct table *t, const char *line, size_t n, const char *what, int number_of_line, struct err *e)
{
    for (size_t at = 0; at <= n;) {
        size_t width = 0;
        while (at + width < n && line[at + width] != ',') width++;
        size_t cell = width;
        const char *text = trim(line + at, &cell);
        int rc = cell ? read_cell(t, text, cell, what, number_of_line, e) : OK;
        if (rc) return rc;
        at += width + 1;
    }
    t->n_rows++;
    return OK;
}

static int read_table(struct table *t, const char *text, const char *what, struct err *e)
{
    int rc = OK;
    for (int line = 1; *text && !rc; line++) {
        size_t n = strcspn(text, "\n"), used = n;
        const char *hash = memchr(text, '#', n);
        if (hash) used = (size_t)(hash - text);
        size_t kept = used;
        (void)trim(text, &kept);
        if (kept) rc = read_row(t, text, used, what, line, e);
        text += n + (text[n] == '\n');
    }
    if (!rc && !t->n) rc = err_set(e, ERR_REQUEST, "%s: no action in it", what);
    if (!rc) rc = schedule_limits(t->n_rows, t->n_stages, t->n_microbatches, e);
    return rc;
}

/* Stages where their first microbatch runs; where a later one runs elsewhere, a second way begins. What does not fit is
 * found and named by schedule_check. */
static void place(struct schedule *s, const struct table *t)
{
    int *rank = xmalloc(to_size(t->n_stages) * to_size(t->n_microbatches) * sizeof *rank), way_from = t->n_microbatches;
    for (int64_t i = 0; i < (int64_t)t->n_stages * t->n_microbatches; i++) rank[i] = -1;
    for (int64_t i = 0; i < t->n; i++)
        if (t->cell[i].kind == ACTION_F)
            rank[(int64_t)t->cell[i].stage * t->n_microbatches + t->cell[i].microbatch] = t->cell[i].row;
    for (int i = 0; i < t->n_stages; i++) {
        const int *of = rank + (int64_t)i * t->n_microbatches;
        if (of[0] >= 0) schedule_place(s, 0, i, of[0]);
        for (int m = 1; m < way_from; m++)
            if (of[m] >= 0 && of[m] != of[0]) way_from = m;
    }
    if (way_from < t->n_microbatches) schedule_add_way(s, way_from);
    for (int i = 0; i < t->n_stages && s->n_ways == 2; i++) {
        int to = rank[(int64_t)i * t->n_microbatches + way_from];
        if (to >= 0) schedule_place(s, 1, i, to);
    }
    xfree(rank);
}

int schedule_parse_csv(struct schedule **out, const char *text, const char *what, struct err *e)
{
    struct table t = {0};
    *out = NULL;
    int rc = read_table(&t, text, what, e);
    if (rc) {
        xfree(t.cell);
        return rc;
    }
    bool *split = xcalloc(to_size(t.n_stages) * to_size(t.n_microbatches), sizeof *split);
    for (int64_t i = 0; i < t.n; i++)
        if (t.cell[i].kind == ACTION_W)
            split[(int64_t)t.cell[i].stage * t.n_microbatches + t.cell[i].microbatch] = true;
    struct schedule *s = schedule_new("csv", t.n_rows, t.n_stages, t.n_microbatches);
    place(s, &t);
    bool backward = false;
    for (int64_t i = 0; i < t.n; i++) {
        struct cell c = t.cell[i];
        bool whole = c.kind == ACTION_B && !split[(int64_t)c.stage * t.n_microbatches + c.microbatch];
        backward |= c.kind != ACTION_F;
        schedule_push(s, c.row, action_of(whole ? ACTION_BW : c.kind, c.stage, c.microbatch));
    }
    s->forward_only = !backward;
    xfree(split);
    xfree(t.cell);
    *out = s;
    return OK;
}
