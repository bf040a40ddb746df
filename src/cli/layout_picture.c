/* Which rank has what, as SVG. Every rank of the layout is built on the null device, as tutti plan does, and what is drawn is read
 * off its own tables: the box of each parameter that it computes with (param.h), the rows that its optimizer keeps (units.h),
 * the sequences and positions of its part of the batch (config.h, layout/context.h). Nothing here knows what a parallelism is.
 *
 *     light    computes with it; striped: only while needed (gathered before, let go after)
 *     dark     keeps its master weights and moments
 */
#include "cli/layout_picture.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "layout/context.h"
#include "run/engine.h"
#include "run/ranks.h"
#include "verify/layouts.h"

enum { LEFT = 230, COLUMN = 86, BOX = 70, TOP = 46, TALL = 30, GAP = 6, MOST_SEQUENCES = 16, MOST_LAYERS = 24, MOST_EXPERTS = 6 };
#define LIGHT "#8ecae6"
#define DARK "#1d6fa5"
#define NOTHING "#f1f1f1"

/* A rank's own books, kept after its engine is gone. */
struct seen {
    struct param *p;
    struct piece *piece;
    bool param_whole, state_whole;
    bool computes, keeps; /* a server does not, its workers do not */
    int at[AXIS_N], part, server;
};
struct picture {
    const struct config *c;
    struct seen rank[PICTURE_RANKS];
    int n, n_params, y;
    struct mesh mesh;
    struct str *out;
};

static int look(struct picture *pic, int rank, struct err *e)
{
    struct device *d = NULL;
    struct engine *g = NULL;
    struct comm *world = NULL;
    struct ranks r = {0};
    struct engine_config ec = config_engine(pic->c);
    int rc = device_null_new(&d, e);
    if (!rc && pic->n > 1) rc = comm_world_null(&world, rank, pic->n, NULL, e);
    if (!rc) rc = ranks_init(&r, world, pic->c, e);
    if (!rc) ranks_engine(&r, &ec);
    if (!rc) rc = engine_new(&g, &ec, d, e);
    if (!rc) {
        struct seen *s = &pic->rank[rank];
        size_t n = (size_t)g->params.n;
        pic->n_params = g->params.n;
        pic->mesh = r.mesh;
        *s = (struct seen){.part = r.part, .server = r.server, .param_whole = store_param_is_whole(&g->store),
                           .state_whole = store_state_is_whole(&g->store),
                           .computes = r.server < 0, .keeps = r.server >= 0 || !r.n_servers};
        s->p = xmalloc(n * sizeof *s->p);
        s->piece = xmalloc(n * sizeof *s->piece);
        memcpy(s->p, g->params.p, n * sizeof *s->p);
        memcpy(s->piece, g->store.units.piece, n * sizeof *s->piece);
        for (int a = 0; a < AXIS_N; a++) s->at[a] = r.server < 0 ? mesh_coord(&r.mesh, (enum axis)a, rank) : 0;
    }
    engine_free(g);
    ranks_fini(&r);
    comm_free(world);
    if (d) device_free(d);
    return rc;
}

/* ---- drawing ------------------------------------------------------------------------------------------------- */

static int column(int rank)
{
    return LEFT + rank * COLUMN;
}

static void box(struct picture *pic, double x, double y, double w, double h, const char *fill)
{
    if (w > 0 && h > 0)
        str_printf(pic->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, w, h, fill);
}

static void frame(struct picture *pic, double x, double y, double w, double h)
{
    str_printf(pic->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" stroke=\"#333\" "
               "stroke-width=\"0.6\"/>\n", x, y, w, h);
}

static void label(struct picture *pic, int y, const char *name, const char *more)
{
    str_printf(pic->out, "<text x=\"8\" y=\"%d\">%s<tspan dx=\"6\" fill=\"#777\">%s</tspan></text>\n", y, name, more);
}

static void heading(struct picture *pic, const char *text)
{
    pic->y += 20;
    str_printf(pic->out, "<text x=\"8\" y=\"%d\" font-weight=\"bold\">%s</text>\n", pic->y, text);
    pic->y += 8;
}

/* Coordinates on the axes that have a size, two a line; returns how many lines. */
static int draw_coordinates(struct picture *pic, int rank)
{
    static const char *const brief[AXIS_N] = {[AXIS_DP_REPLICATE] = "rep", [AXIS_DP_SHARD] = "dp"};
    const struct seen *s = &pic->rank[rank];
    int shown = 0;
    if (s->server >= 0) {
        str_printf(pic->out, "<text x=\"%d\" y=\"%d\" class=\"small\">server %d</text>\n", column(rank), TOP + 14, s->server);
        return 1;
    }
    for (int a = 0; a < AXIS_N; a++) {
        bool experts = a == AXIS_EP || a == AXIS_ETP;
        if (mesh_axis(&pic->mesh, (enum axis)a).size < 2 || a == AXIS_EDP || (experts && !pic->c->model.moe.experts)) continue;
        str_printf(pic->out, "<text x=\"%d\" y=\"%d\" class=\"small\">%s %d</text>\n", column(rank) + shown % 2 * (BOX / 2),
                   TOP + 14 + shown / 2 * 12, brief[a] ? brief[a] : axis_name((enum axis)a), s->at[a]);
        shown++;
    }
    return (shown + 1) / 2;
}

static void draw_header(struct picture *pic)
{
    char layout[160];
    int lines = 0;
    layout_name(pic->c, layout, sizeof layout);
    str_printf(pic->out, "<text x=\"8\" y=\"20\" font-weight=\"bold\">%d rank%s: %s</text>\n", pic->n, pic->n > 1 ? "s" : "", layout);
    for (int r = 0; r < pic->n; r++) {
        str_printf(pic->out, "<text x=\"%d\" y=\"%d\">rank %d</text>\n", column(r), TOP, r);
        int n = draw_coordinates(pic, r);
        lines = n > lines ? n : lines;
    }
    pic->y = TOP + 12 * lines;
}

/* Sequences from top to bottom, positions from left to right. */
static void draw_tokens(struct picture *pic)
{
    int64_t seqs = pic->c->batch.global, seq = pic->c->model.seq_len, shown = seqs < MOST_SEQUENCES ? seqs : MOST_SEQUENCES;
    double h = 8;
    char more[96];
    heading(pic, "tokens of a step");
    snprintf(more, sizeof more, "%lld of %lld positions%s", (long long)seqs, (long long)seq, shown < seqs ? " …" : "");
    label(pic, pic->y + 10, "sequences", more);
    for (int r = 0; r < pic->n; r++) {
        const struct seen *s = &pic->rank[r];
        int64_t first = 0, n = 0;
        if (s->server < 0) config_part(pic->c, s->part, &first, &n);
        for (int64_t i = 0; i < shown; i++) {
            double y = pic->y + (double)i * (h + 2);
            box(pic, column(r), y, BOX, h, NOTHING);
            for (int tail = 0; i >= first && i < first + n && tail < 2; tail++) {
                int64_t lo, hi;
                context_chunk(seq, (int)pic->c->parallel.cp, s->at[AXIS_CP], tail, &lo, &hi);
                box(pic, column(r) + BOX * (double)lo / (double)seq, y, BOX * (double)(hi - lo) / (double)seq, h, LIGHT);
            }
            frame(pic, column(r), y, BOX, h);
        }
    }
    pic->y += (int)((double)shown * (h + 2)) + GAP;
}

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

/* Elements of a parameter whose state a rank keeps: [*lo, *lo + n) of its box. */
static int64_t kept(const struct seen *s, int i, int64_t *lo)
{
    *lo = s->state_whole ? 0 : s->piece[i].lo;
    return !s->keeps ? 0 : s->state_whole ? s->p[i].held : s->piece[i].n;
}

/* What a rank has of parameters [from, to), in elements. */
static void shares(const struct seen *s, int from, int to, double *all, double *computes, double *keeps)
{
    int64_t lo;
    *all = *computes = *keeps = 0;
    for (int i = from; i < to; i++) {
        *all += (double)s->p[i].numel;
        *computes += s->computes ? (double)s->p[i].held : 0;
        *keeps += (double)kept(s, i, &lo);
    }
}

static void draw_layers(struct picture *pic)
{
    int rows = 0;
    heading(pic, "layers");
    for (int from = 0, to; from < pic->n_params && rows < MOST_LAYERS; from = to, rows++) {
        char name[PARAM_NAME], other[PARAM_NAME];
        unit_name(&pic->rank[0].p[from], name, sizeof name);
        for (to = from + 1; to < pic->n_params; to++) {
            unit_name(&pic->rank[0].p[to], other, sizeof other);
            if (strcmp(name, other)) break;
        }
        label(pic, pic->y + 10, name, "");
        for (int r = 0; r < pic->n; r++) {
            const struct seen *s = &pic->rank[r];
            double all, computes, keeps, x = column(r);
            shares(s, from, to, &all, &computes, &keeps);
            box(pic, x, pic->y, BOX, 12, NOTHING);
            box(pic, x, pic->y, BOX * computes / all, 12, s->param_whole ? LIGHT : "url(#striped)");
            box(pic, x, pic->y, BOX * keeps / all, 12, DARK);
            frame(pic, x, pic->y, BOX, 12);
        }
        pic->y += 15;
    }
}

/* The name behind the layer's number: the same in layers of one kind. */
static const char *kind_of(const struct param *p)
{
    const char *name = p->name;
    if (strncmp(name, "layers.", 7)) return name;
    name += 7;
    while (isdigit((unsigned char)*name)) name++;
    return name;
}

/* Rows and columns of the picture of a parameter: its first dim, and the product of the others. */
static void plane(const struct param *p, double *rows, double *cols)
{
    *rows = (double)p->n[0];
    *cols = (double)p->numel / *rows;
}

static void draw_param(struct picture *pic, int i)
{
    const struct param *whole = &pic->rank[0].p[i];
    double rows, cols, w = BOX, h = TALL;
    char more[64] = "", name[PARAM_NAME];
    plane(whole, &rows, &cols);
    if (rows < cols) h *= rows / cols;
    else w *= cols / rows;
    if (h < 8) h = 8;
    if (w < 10) w = 10;
    for (int k = 0; k < whole->nd; k++)
        snprintf(more + strlen(more), sizeof more - strlen(more), "%s%lld", k ? "×" : "", (long long)whole->n[k]);
    snprintf(name, sizeof name, "%s", kind_of(whole) + (*kind_of(whole) == '.'));
    char *weight = strstr(name, ".weight");
    if (weight) *weight = 0;
    label(pic, pic->y + 10, name, more);
    for (int r = 0; r < pic->n; r++) {
        const struct seen *s = &pic->rank[r];
        const struct param *p = &s->p[i];
        double x = column(r), y = pic->y;
        box(pic, x, y, w, h, NOTHING);
        if (p->held) {
            double inner = p->nd > 1 ? (double)p->n[1] : 1; /* columns lie along dim 1 */
            double left = p->nd > 1 ? (double)p->lo[1] / inner : 0, wide = p->nd > 1 ? (double)p->ln[1] / inner : 1;
            double per_row = (double)p->held / (double)p->ln[0];
            int64_t lo, n = kept(s, i, &lo);
            if (s->computes)
                box(pic, x + w * left, y + h * (double)p->lo[0] / rows, w * wide, h * (double)p->ln[0] / rows,
                    s->param_whole ? LIGHT : "url(#striped)");
            box(pic, x + w * left, y + h * ((double)p->lo[0] + (double)lo / per_row) / rows, w * wide, h * (double)n / per_row / rows,
                DARK);
        }
        frame(pic, x, y, w, h);
    }
    pic->y += (int)(h > 12 ? h : 12) + GAP;
}

static bool first_of_kind(const struct picture *pic, int i)
{
    const struct param *p = pic->rank[0].p;
    const char *experts = strstr(p[i].name, "experts.");
    int expert;
    if (experts && sscanf(experts, "experts.%d", &expert) == 1 && expert >= MOST_EXPERTS) return false;
    for (int k = 0; k < i; k++)
        if (!strcmp(kind_of(&p[k]), kind_of(&p[i]))) return false;
    return true;
}

static void draw_legend(struct picture *pic)
{
    static const char *const rows[][2] = {{LIGHT, "computes with"}, {"url(#striped)", "computes with, gathered while needed"},
                                          {DARK, "keeps master weights and moments of"}, {NOTHING, "has nothing of"}};
    double x = 8;
    pic->y += 14;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        box(pic, x, pic->y, 16, 12, rows[i][0]);
        frame(pic, x, pic->y, 16, 12);
        str_printf(pic->out, "<text x=\"%.0f\" y=\"%d\">%s</text>\n", x + 22, pic->y + 10, rows[i][1]);
        x += 40 + 6.6 * (double)strlen(rows[i][1]);
    }
    pic->y += 24;
}

static void draw(struct picture *pic, struct str *out)
{
    struct str body = {0};
    pic->out = &body;
    draw_header(pic);
    draw_tokens(pic);
    draw_layers(pic);
    heading(pic, "parameters, one layer of each kind");
    for (int i = 0; i < pic->n_params; i++)
        if (first_of_kind(pic, i)) draw_param(pic, i);
    draw_legend(pic);
    int width = column(pic->n) > 800 ? column(pic->n) : 800;
    str_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
               "font-family=\"sans-serif\" font-size=\"12\">\n<style>.small{font-size:10px;fill:#777}</style><defs><pattern id=\"striped\" width=\"6\" height=\"6\" "
               "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"white\"/>"
               "<rect width=\"3\" height=\"6\" fill=\"%s\"/></pattern></defs>\n"
               "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n%s</svg>\n",
               width, pic->y, width, pic->y, LIGHT, str_text(&body));
    str_free(&body);
}

int layout_picture(const struct config *c, int n, struct str *out, struct err *e)
{
    struct picture *pic = xcalloc(1, sizeof *pic);
    pic->c = c;
    pic->n = n;
    int rc = n <= PICTURE_RANKS ? OK : err_set(e, ERR_REQUEST, "a picture has room for %d ranks, not %d: choose a smaller layout of the "
                                               "same kind", PICTURE_RANKS, n);
    for (int r = 0; !rc && r < n; r++) rc = look(pic, r, e);
    if (!rc) draw(pic, out);
    for (int r = 0; r < n && r < PICTURE_RANKS; r++) {
        xfree(pic->rank[r].p);
        xfree(pic->rank[r].piece);
    }
    xfree(pic);
    return rc;
}
