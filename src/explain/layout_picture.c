/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank has what, as SVG: a column per rank (layout_fold.c chooses them, bands between them stand for the others),
 * and rows for the tokens of a step, the layers, and the parameters of one layer (layout_params.c).
 *
 *     light    computes with it; striped: only while needed (gathered before, let go after)
 *     dark     keeps its master weights and moments
 */
#include "explain/layout_picture.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "explain/layout_canvas.h"
#include "layout/sequence.h"
#include "verify/layouts.h"

enum {
    LEFT = 290,
    COLUMN = 92,
    BAND = 30,
    GAP = 6,
    MOST_SEQUENCES = 16,
    MOST_LAYERS = 24,
    MOST_ROWS = 60,
    LEGEND = 20
};

/* ---- drawing ------------------------------------------------------------------------------------------------- */

void canvas_box(struct canvas *v, double x, double y, double w, double h, const char *fill)
{
    if (w > 0 && h > 0)
        str_printf(v->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, w, h,
                   fill);
}

void canvas_frame(struct canvas *v, double x, double y, double w, double h)
{
    str_printf(v->out,
               "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" stroke=\"#333\" "
               "stroke-width=\"0.6\"/>\n",
               x, y, w, h);
}

void canvas_label(struct canvas *v, int y, const char *name, const char *more)
{
    str_printf(v->out, "<text x=\"8\" y=\"%d\">%s<tspan dx=\"6\" class=\"more\">%s</tspan></text>\n", y, name, more);
}

void canvas_heading(struct canvas *v, const char *text, const char *more)
{
    v->y += 24;
    str_printf(v->out,
               "<text x=\"8\" y=\"%d\" font-weight=\"bold\">%s<tspan dx=\"8\" class=\"more\" "
               "font-weight=\"normal\">%s</tspan></text>\n",
               v->y, text, more);
    v->y += 10;
}

const char *canvas_fill(const struct book *b) { return b->param_whole ? CANVAS_HELD : "url(#striped)"; }

/* ---- the head ------------------------------------------------------------------------------------------------ */

static const struct {
    const char *brief, *what;
} axes[AXIS_N] = {
    [AXIS_PP] = {"pp", "ranks of a pipeline share out the layers"},
    [AXIS_DP_REPLICATE] = {"rep", "copies of all that follows, for other sequences"},
    [AXIS_DP_SHARD] = {"dp", "data-parallel ranks share out the sequences"},
    [AXIS_CP] = {"cp", "context-parallel ranks share out the positions of a sequence"},
    [AXIS_TP] = {"tp", "tensor-parallel ranks share out every matrix"},
    [AXIS_EP] = {"ep", "ranks share out the experts"},
    [AXIS_ETP] = {"etp", "ranks share out every expert's matrices"},
};

static bool axis_shown(const struct canvas *v, int a)
{
    bool experts = a == AXIS_EP || a == AXIS_ETP;
    return axes[a].brief && mesh_axis(&v->books.mesh, (enum axis)a).size > 1 && (!experts || v->c->model.moe.experts);
}

/* Coordinates on the axes that have a size, two a line; returns how many lines. */
static int draw_coordinates(struct canvas *v, int column, int y)
{
    const struct book *b = v->rank[column];
    int shown = 0;
    if (b->server >= 0) {
        str_printf(v->out, "<text x=\"%d\" y=\"%d\" class=\"small\">server %d</text>\n", v->x[column], y + 14,
                   b->server);
        return 1;
    }
    for (int a = 0; a < AXIS_N; a++) {
        if (!axis_shown(v, a)) continue;
        str_printf(v->out, "<text x=\"%d\" y=\"%d\" class=\"small\">%s %d</text>\n",
                   v->x[column] + shown % 2 * (CANVAS_BOX / 2 + 4), y + 14 + shown / 2 * 12, axes[a].brief, b->at[a]);
        shown++;
    }
    return (shown + 1) / 2;
}

static void draw_header(struct canvas *v)
{
    char layout[160];
    int lines = 0, n = v->books.n, y = 40;
    layout_name(v->c, layout, sizeof layout);
    str_printf(v->out, "<text x=\"8\" y=\"20\" font-size=\"14\" font-weight=\"bold\">%d rank%s: %s</text>\n", n,
               n > 1 ? "s" : "", layout);
    for (int a = 0; a < AXIS_N; a++)
        if (axis_shown(v, a)) {
            str_printf(v->out, "<text x=\"8\" y=\"%d\" class=\"more\">%s: %s</text>\n", y, axes[a].brief, axes[a].what);
            y += 15;
        }
    if (v->books.n > v->books.n_workers) {
        str_printf(v->out,
                   "<text x=\"8\" y=\"%d\" class=\"more\">server: keeps the parameters, for workers that "
                   "compute</text>\n",
                   y);
        y += 15;
    }
    if (v->fold.drawn < n) {
        str_printf(v->out,
                   "<text x=\"8\" y=\"%d\" class=\"more\">%d ranks are drawn; bands stand for the other %d. Alike: as "
                   "much of everything, within 1 %%, but other tokens, layers, experts or rows.</text>\n",
                   y, v->fold.drawn, n - v->fold.drawn);
        y += 15;
    }
    y += 12;
    for (int r = 0; r < v->fold.drawn; r++) {
        str_printf(v->out, "<text x=\"%d\" y=\"%d\" data-ranks=\"%d %d\">rank %d</text>\n", v->x[r], y,
                   v->rank[r]->rank, v->rank[r]->rank, v->rank[r]->rank);
        int k = draw_coordinates(v, r, y);
        lines = k > lines ? k : lines;
    }
    v->y = y + 12 * lines;
}

/* ---- tokens -------------------------------------------------------------------------------------------------- */

/* The positions of a sequence that a rank has, in a box of w x h. */
static void draw_positions(struct canvas *v, const struct book *b, double x, double y, double h)
{
    int64_t seq = v->c->model.seq_len;
    for (int tail = 0; tail < 2; tail++) {
        int64_t lo, hi;
        context_chunk(seq, (int)v->c->parallel.cp, b->at[AXIS_CP], tail, &lo, &hi);
        canvas_box(v, x + CANVAS_BOX * (double)lo / (double)seq, y, CANVAS_BOX * (double)(hi - lo) / (double)seq, h,
                   CANVAS_HELD);
    }
}

/* Sequences from top to bottom, each a box of its own while there are few; positions from left to right. */
static void draw_tokens(struct canvas *v)
{
    int64_t seqs = v->c->batch.global;
    bool each = seqs <= MOST_SEQUENCES;
    double h = each ? 10 * (double)seqs - 2 : 10 * MOST_SEQUENCES, one = each ? 10 : h / (double)seqs;
    char more[128];
    canvas_heading(v, "tokens of a step", "which of them a rank computes");
    snprintf(more, sizeof more, "%lld, top to bottom", (long long)seqs);
    canvas_label(v, v->y + 10, "sequences", more);
    snprintf(more, sizeof more, "%lld, left to right", (long long)v->c->model.seq_len);
    canvas_label(v, v->y + 25, "positions", more);
    for (int r = 0; r < v->fold.drawn; r++) {
        const struct book *b = v->rank[r];
        for (int64_t i = 0; each && i < seqs; i++) {
            double y = v->y + (double)i * one;
            canvas_box(v, v->x[r], y, CANVAS_BOX, one - 2, CANVAS_NOTHING);
            if (i >= b->first_seq && i < b->first_seq + b->n_seqs) draw_positions(v, b, v->x[r], y, one - 2);
            canvas_frame(v, v->x[r], y, CANVAS_BOX, one - 2);
        }
        if (each) continue;
        canvas_box(v, v->x[r], v->y, CANVAS_BOX, h, CANVAS_NOTHING);
        double tall = canvas_seen(one * (double)b->n_seqs), from = fmin(one * (double)b->first_seq, h - tall);
        draw_positions(v, b, v->x[r], v->y + from, tall);
        canvas_frame(v, v->x[r], v->y, CANVAS_BOX, h);
    }
    v->y += (int)fmax(h, 26) + GAP;
}

/* ---- layers -------------------------------------------------------------------------------------------------- */

struct unit_row {
    int from, to; /* parameters of the first unit */
    int units;    /* so many, one after another, that lie alike */
    char first[PARAM_NAME], last[PARAM_NAME];
};

/* The name of the unit that a parameter belongs to: "layers.3", or "embed", "norm", "head". */
static void unit_name(const struct param *p, char *out, size_t n)
{
    int digits = 0;
    size_t i = 0;
    for (; p->name[i] && i + 1 < n; i++) {
        bool digit = isdigit((unsigned char)p->name[i]);
        if (p->name[i] == '.' && (digits || strncmp(p->name, "layers.", 7))) break;
        digits += digit;
        out[i] = p->name[i];
    }
    out[i] = 0;
}

/* What a rank has of parameters [from, to), as parts of all of them. */
static void shares(const struct book *b, int from, int to, double *computes, double *keeps)
{
    double all = 0;
    int64_t lo;
    *computes = *keeps = 0;
    for (int i = from; i < to; i++) {
        all += (double)b->p[i].numel;
        *computes += b->computes ? (double)b->p[i].held : 0;
        *keeps += (double)book_kept(b, i, &lo);
    }
    *computes /= all;
    *keeps /= all;
}

static bool rows_alike(const struct canvas *v, const struct unit_row *a, const struct unit_row *b)
{
    if (strncmp(a->first, "layers.", 7) || strncmp(b->first, "layers.", 7) || a->to - a->from != b->to - b->from)
        return false;
    for (int r = 0; r < v->fold.drawn; r++) {
        double c[2], k[2];
        shares(v->rank[r], a->from, a->to, &c[0], &k[0]);
        shares(v->rank[r], b->from, b->to, &c[1], &k[1]);
        if (fabs(c[0] - c[1]) > 0.002 || fabs(k[0] - k[1]) > 0.002) return false;
    }
    return true;
}

/* One row per unit, or, `folded`, one per run of layers that lie alike; returns how many. */
static int unit_rows(const struct canvas *v, struct unit_row *out, bool folded)
{
    const struct param *p = v->rank[0]->p;
    int n = 0;
    for (int from = 0, to; from < v->books.n_params; from = to) {
        struct unit_row row = {.from = from, .units = 1};
        char other[PARAM_NAME];
        unit_name(&p[from], row.first, sizeof row.first);
        for (to = from + 1; to < v->books.n_params; to++) {
            unit_name(&p[to], other, sizeof other);
            if (strcmp(row.first, other)) break;
        }
        row.to = to;
        memcpy(row.last, row.first, sizeof row.last);
        if (folded && n && rows_alike(v, &out[n - 1], &row)) {
            out[n - 1].units++;
            memcpy(out[n - 1].last, row.first, sizeof row.last);
        } else {
            out[n++] = row;
        }
    }
    return n;
}

static void draw_unit(struct canvas *v, const struct unit_row *row)
{
    char name[2 * PARAM_NAME + 8], more[64] = "";
    bool anywhere = false, layer = !strncmp(row->first, "layers.", 7);
    snprintf(name, sizeof name, "%s%s", layer ? "layer " : "", row->first + (layer ? 7 : 0));
    if (row->units > 1) snprintf(name, sizeof name, "layers %s to %s", row->first + 7, row->last + 7);
    for (int r = 0; r < v->fold.drawn; r++) {
        const struct book *b = v->rank[r];
        double computes, keeps, x = v->x[r];
        shares(b, row->from, row->to, &computes, &keeps);
        canvas_box(v, x, v->y, CANVAS_BOX, 12, CANVAS_NOTHING);
        canvas_box(v, x, v->y, canvas_seen(CANVAS_BOX * computes), 12, canvas_fill(b));
        canvas_box(v, x, v->y, canvas_seen(CANVAS_BOX * keeps), 12, CANVAS_KEPT);
        canvas_frame(v, x, v->y, CANVAS_BOX, 12);
        anywhere |= computes + keeps > 0;
    }
    if (row->units > 1) snprintf(more, sizeof more, "%d alike", row->units);
    if (!anywhere) snprintf(more + strlen(more), sizeof more - strlen(more), "%son ranks not drawn", *more ? ", " : "");
    canvas_label(v, v->y + 10, name, more);
    v->y += 15;
}

static void draw_layers(struct canvas *v)
{
    struct unit_row *row = xcalloc((size_t)v->books.n_params + 1, sizeof *row);
    int n = unit_rows(v, row, false), left = 0;
    if (n > MOST_LAYERS) n = unit_rows(v, row, true);
    canvas_heading(v, "layers", "how much of each a rank has");
    for (int i = 0; i < n; i++) {
        if (i < MOST_ROWS || n <= MOST_ROWS + 4 || i >= n - 3)
            draw_unit(v, &row[i]); /* the last ones: layer, norm, head */
        else left += row[i].units;
        if (i != n - 4 || !left) continue;
        char text[64];
        snprintf(text, sizeof text, "and %d layers more", left);
        canvas_label(v, v->y + 10, text, "not drawn: the rows above go on");
        v->y += 15;
    }
    xfree(row);
}

/* ---- bands, legend ------------------------------------------------------------------------------------------- */

static const char *axis_brief(const struct canvas *v, const struct fold_item *f)
{
    enum axis dense[MESH_VIEW_MAX];
    mesh_view_axes(MESH_DENSE, dense);
    return f->first >= v->books.n_workers ? "servers" : axes[dense[f->axis]].brief;
}

/* What the ranks are that a band stands for. */
static void draw_band(struct canvas *v, const struct fold_item *f, int x, int top)
{
    char text[160];
    int each = (f->last - f->first + 1) / f->groups,
        at = snprintf(text, sizeof text, "rank%s %d", f->last > f->first ? "s" : "", f->first);
    if (f->last > f->first) at += snprintf(text + at, sizeof text - (size_t)at, " to %d", f->last);
    at += snprintf(text + at, sizeof text - (size_t)at, ": %d more", f->groups);
    if (each > 1) at += snprintf(text + at, sizeof text - (size_t)at, " group%s of %d", f->groups > 1 ? "s" : "", each);
    snprintf(text + at, sizeof text - (size_t)at, " along %s, %s", axis_brief(v, f),
             f->alike ? "alike" : "of other amounts");
    str_printf(v->out,
               "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\" fill=\"#fbf7ec\" stroke=\"#c9b98a\" "
               "stroke-dasharray=\"4 3\"/>\n",
               x, top, BAND, v->y - top);
    str_printf(v->out,
               "<text transform=\"translate(%d %d) rotate(90)\" data-ranks=\"%d %d\" fill=\"#6b5a22\">%s</text>\n",
               x + 11, top + 10, f->first, f->last, text);
}

static void draw_bands(struct canvas *v, int top)
{
    for (int i = 0, x = LEFT; i < v->fold.n; i++) {
        bool drawn = v->fold.item[i].axis < 0;
        if (!drawn) draw_band(v, &v->fold.item[i], x, top);
        x += drawn ? COLUMN : BAND + COLUMN - CANVAS_BOX;
    }
}

static void draw_legend(struct canvas *v)
{
    bool servers = v->books.n > v->books.n_workers, striped = false;
    for (int r = 0; r < v->fold.drawn; r++) striped |= v->rank[r]->computes && !v->rank[r]->param_whole;
    const struct {
        const char *fill, *text;
        bool there;
    } rows[] = {
        {CANVAS_HELD, "this rank computes with it", true},
        {"url(#striped)",
         "this rank computes with it, and has it only while it does: it is collected from the ranks that keep it, then "
         "let go",
         striped},
        {CANVAS_KEPT,
         servers ? "this server updates it: it keeps it, and the optimizer's numbers for it"
                 : "this rank computes with it and also updates it: it keeps the optimizer's numbers for it (master "
                   "weights, moments)",
         true},
        {CANVAS_NOTHING, "other ranks have it, this one does not", true},
    };
    v->y += 16;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].there) continue;
        canvas_box(v, 8, v->y, 16, 12, rows[i].fill);
        canvas_frame(v, 8, v->y, 16, 12);
        str_printf(v->out, "<text x=\"30\" y=\"%d\">%s</text>\n", v->y + 10, rows[i].text);
        v->y += LEGEND;
    }
    v->y += 6;
}

static void draw(struct canvas *v, struct str *out)
{
    struct str body = {0}, bands = {0};
    v->out = &body;
    draw_header(v);
    int top = v->y + 8;
    draw_tokens(v);
    draw_layers(v);
    canvas_params(v);
    v->out = &bands; /* behind all the rest */
    draw_bands(v, top);
    v->out = &body;
    draw_legend(v);
    str_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
               "font-family=\"sans-serif\" "
               "font-size=\"12\">\n<style>.small{font-size:10px;fill:#666}.more{fill:#666}</style>"
               "<defs><pattern id=\"striped\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
               "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"white\"/><rect width=\"3\" "
               "height=\"6\" fill=\"%s\"/></pattern></defs>\n"
               "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n%s%s</svg>\n",
               v->width, v->y, v->width, v->y, CANVAS_HELD, str_text(&bands), str_text(&body));
    str_free(&bands);
    str_free(&body);
}

/* ---- which ranks --------------------------------------------------------------------------------------------- */

/* Who is unlike whom is asked only where there is no room for all. */
static int fold_workers(struct canvas *v, int room, struct err *e)
{
    struct library *l = &v->books;
    struct fold_axis axis[MESH_VIEW_MAX];
    enum axis dense[MESH_VIEW_MAX];
    bool *unlike[MESH_VIEW_MAX] = {0};
    const struct book *any;
    int rc = library_get(l, 0, &any, e), n = mesh_view_axes(MESH_DENSE, dense);
    for (int i = 0; !rc && i < n; i++) {
        struct mesh_axis m = mesh_axis(&l->mesh, dense[i]);
        unlike[i] = xcalloc((size_t)m.size, sizeof **unlike);
        axis[i] = (struct fold_axis){.size = m.size,
                                     .stride = m.stride,
                                     .unlike = unlike[i],
                                     .data = dense[i] == AXIS_DP_REPLICATE || dense[i] == AXIS_DP_SHARD};
        if (l->n_workers > room) rc = library_unlike(l, dense[i], unlike[i], e);
    }
    if (!rc) fold_add(&v->fold, axis, n, 0, room);
    for (int i = 0; i < n; i++) xfree(unlike[i]);
    return rc;
}

static int fold_servers(struct canvas *v, int room, struct err *e)
{
    int n = v->books.n - v->books.n_workers, rc = OK;
    if (!n) return OK;
    bool *unlike = xcalloc((size_t)n, sizeof *unlike);
    if (n > room) rc = library_unlike_servers(&v->books, unlike, e);
    if (!rc)
        fold_add(&v->fold, &(struct fold_axis){.size = n, .stride = 1, .unlike = unlike}, 1, v->books.n_workers, room);
    xfree(unlike);
    return rc;
}

static int choose_ranks(struct canvas *v, struct err *e)
{
    int servers = v->books.n - v->books.n_workers, few = servers < FOLD_ROOM / 2 ? servers : FOLD_ROOM / 2;
    int rc = fold_workers(v, FOLD_ROOM - few, e), x = LEFT, n = 0;
    if (!rc) rc = fold_servers(v, v->fold.drawn < FOLD_ROOM ? FOLD_ROOM - v->fold.drawn : 1, e);
    if (rc) return rc;
    v->rank = xcalloc((size_t)v->fold.drawn, sizeof *v->rank);
    v->x = xcalloc((size_t)v->fold.drawn, sizeof *v->x);
    for (int i = 0; !rc && i < v->fold.n; i++) {
        bool drawn = v->fold.item[i].axis < 0;
        if (drawn) {
            v->x[n] = x;
            rc = library_get(&v->books, v->fold.item[i].first, &v->rank[n++], e);
        }
        x += drawn ? COLUMN : BAND + COLUMN - CANVAS_BOX;
    }
    v->width = x + 8 > 800 ? x + 8 : 800;
    return rc;
}

int layout_picture(const struct config *c, int n, struct str *out, struct err *e)
{
    struct canvas v = {.c = c};
    library_init(&v.books, c, n);
    int rc = choose_ranks(&v, e);
    if (!rc) draw(&v, out);
    library_free(&v.books);
    fold_free(&v.fold);
    xfree(v.rank);
    xfree(v.x);
    return rc;
}
