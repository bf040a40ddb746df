/* SPDX-License-Identifier: Apache-2.0 */
/* Every parameter and where it lies, as text: what rank 0 has of it, how many ranks have it and how it lies along each
 * axis of the mesh. A line per parameter, none left out; the columns and the letters that occur are explained below. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "explain/explain.h"
#include "layout/shape.h"

static int longest_name(const struct param_table *t)
{
    int most = (int)strlen("parameter");
    for (int i = 0; i < t->n; i++)
        if ((int)strlen(t->p[i].name) > most) most = (int)strlen(t->p[i].name);
    return most;
}

static const char *const init_names[INIT_N] = {[INIT_ZEROS] = "zeros",
                                               [INIT_ONES] = "ones",
                                               [INIT_NORMAL] = "normal",
                                               [INIT_DECAY] = "decay",
                                               [INIT_STEP] = "step"};

static void print_init(char out[32], const struct param *p)
{
    if (p->init == INIT_NORMAL) snprintf(out, 32, "N %.3g", p->std);
    else snprintf(out, 32, "%s", init_names[p->init]);
}

/* What follows from a layout for all ranks, from the sizes of its axes: the ranks that hold something, those of them
 * that hold the same box, those that count it in norms and save it (one for each box, or for each piece of it), and the
 * pieces in which a box is stepped. */
struct spread {
    int holders, copies, counts, pieces;
};

static int size_of(const struct layout *l, int i)
{
    const struct layout_place *p = &l->place[i];
    if (p->owner) return 1;
    return p->on.axis == AXIS_PP && l->n_only ? l->n_only : p->on.size;
}

static struct spread spread_of(const struct explain *x, const struct param *p)
{
    struct layout stepped = x->g->store.units.shared ? param_stepped(p) : p->layout;
    struct spread s = {1, 1, 1, 1};
    for (int i = 0; i < p->layout.n_places; i++) {
        int n = size_of(&p->layout, i);
        s.holders *= n;
        if (!spmd_is_shard(p->layout.place[i].type)) s.copies *= n;
    }
    for (int i = 0; i < stepped.n_places; i++)
        if (spmd_is_shard(stepped.place[i].type)) s.counts *= size_of(&stepped, i);
    s.pieces = s.counts / (s.holders / s.copies);
    return s;
}

static void print_param(const struct explain *x, int i, int name_width, struct str *out)
{
    struct spread to = spread_of(x, &x->g->params.p[i]);
    const struct param *p = &x->g->params.p[i];
    struct shape n = shape_of(p->nd, p->n);
    struct region held = param_rows(p, 0, p->ln[0]);
    char shape[128], init[32], text[256], box[256] = "nothing";
    struct str places = {0};
    print_init(init, p);
    if (p->held) snprintf(box, sizeof box, "%s", region_print(text, &held));
    layout_print_places(&p->layout, &places);
    str_printf(out, "%-*s  %-18s %12" PRId64 "  %-9s  %-26s %12" PRId64 "  %6d %6d %6d %6d  %s%s\n", name_width,
               p->name, shape_print(shape, &n), p->numel, init, box, x->g->store.units.piece[i].n, to.holders,
               to.copies, to.counts, to.pieces, str_text(&places), p->decay ? "" : "  (no decay)");
    str_free(&places);
}

/* ---- for a terminal: parameters name their layout, which is told below ---- */
/* Distinct layouts, by what is said of them. */
struct legend {
    struct str *text;
    int n;
};

static void put_ranks(const bool *in, int n, struct str *out)
{
    enum { RUNS = 8 };
    int runs = 0;
    for (int r = 0; r < n; r++) {
        int first = r;
        if (!in[r]) continue;
        while (r + 1 < n && in[r + 1]) r++;
        if (runs++ < RUNS) str_printf(out, first == r ? "%s%d" : "%s%d-%d", runs > 1 ? " " : "", first, r);
    }
    if (runs > RUNS) str_puts(out, " ...");
}

/* Which ranks: of an expert's layout they are another for each expert. */
static void put_list(const char *what, const bool *in, int n, bool owned, struct str *out)
{
    str_puts(out, what);
    if (owned) return;
    str_puts(out, " (");
    put_ranks(in, n, out);
    str_puts(out, ")");
}

/* Elements that this rank's optimizer steps. */
static int64_t updated(const struct explain *x)
{
    const struct units *u = &x->g->store.units;
    int64_t n = 0;
    for (int i = 0; i < u->table->n; i++) n += u->table->p[i].frozen ? 0 : u->piece[i].n;
    return n;
}

static void describe(const struct explain *x, const struct param *p, struct str *out)
{
    const struct layout *l = &p->layout;
    const struct mesh *m = &x->g->params.mesh;
    struct layout stepped = x->g->store.units.shared ? param_stepped(p) : *l;
    struct spread to = spread_of(x, p);
    int n = l->n_ranks, one = -1;
    bool *holds = xcalloc(to_size(n), 1), *same = xcalloc(to_size(n), 1), *saves = xcalloc(to_size(n), 1),
         owned = false;
    for (int i = 0; i < l->n_places; i++) owned |= l->place[i].owner && l->place[i].on.size > 1;
    for (int r = 0; r < n && !owned; r++) {
        holds[r] = layout_holds(l, r);
        if (!holds[r]) continue;
        if (one < 0) one = r;
        struct region a = layout_box(l, one), b = layout_box(l, r);
        same[r] = region_equal(&a, &b);
        saves[r] = mesh_coord(m, AXIS_DP_REPLICATE, r) == 0 && layout_is_first(&stepped, r);
    }
    char type[128], what[64];
    spmd_print_on(type, p->type, explain_axes(x));
    str_printf(out, "%s%sheld by ", type, *type ? "; " : "");
    snprintf(what, sizeof what, "%d of %d ranks", to.holders, n);
    put_list(what, holds, n, owned, out);
    str_printf(out, ", in %d part%s; ", to.holders / to.copies, to.holders == to.copies ? "" : "s");
    snprintf(what, sizeof what, "one part by %d", to.copies);
    put_list(what, same, n, owned, out);
    if (p->frozen) str_puts(out, ", frozen; saved by ");
    else str_printf(out, ", stepped in %d piece%s; counted and saved by ", to.pieces, to.pieces == 1 ? "" : "s");
    snprintf(what, sizeof what, "%d", to.counts);
    put_list(what, saves, n, owned, out);
    xfree(holds);
    xfree(same);
    xfree(saves);
}

static int legend_find(struct legend *g, const struct explain *x, const struct param *p)
{
    struct str text = {0};
    describe(x, p, &text);
    for (int i = 0; i < g->n; i++)
        if (!strcmp(str_text(&g->text[i]), str_text(&text))) {
            str_free(&text);
            return i;
        }
    g->text = xrealloc(g->text, to_size(g->n + 1) * sizeof *g->text);
    g->text[g->n] = text;
    return g->n++;
}

/* a to z, aa, ab, ... */
static char *legend_name(char out[4], int i)
{
    snprintf(out, 4, i < 26 ? "%c" : "%c%c", i < 26 ? 'a' + i : 'a' + (i / 26 - 1) % 26, 'a' + i % 26);
    return out;
}

static void legend_print(struct legend *g, struct str *out)
{
    struct str text = {0};
    char name[4];
    for (int i = 0; i < g->n; i++) {
        str_printf(&text, "  %-2s %s\n", legend_name(name, i), str_text(&g->text[i]));
        str_free(&g->text[i]);
    }
    str_puts(out, "layouts:\n");
    explain_lines_wrap(str_text(&text), EXPLAIN_COLUMNS, 5, out);
    str_free(&text);
    xfree(g->text);
}

/* "all" where the box is the whole shape. */
static void add_param(const struct explain *x, int i, int name_width, struct legend *g, struct lines *l)
{
    const struct param *p = &x->g->params.p[i];
    struct shape n = shape_of(p->nd, p->n);
    struct region held = param_rows(p, 0, p->ln[0]);
    char name[4], shape[128], text[256], box[256] = "nothing", line[512];
    if (p->held) snprintf(box, sizeof box, "%s", p->held == p->numel ? "all" : region_print(text, &held));
    snprintf(line, sizeof line, "  %-*s %-15s %-18s %10" PRId64 "  %-2s%s", name_width,
             explain_short_name(p->name, p->layer), shape_print(shape, &n), box, x->g->store.units.piece[i].n,
             legend_name(name, legend_find(g, x, p)), p->decay ? "" : " *");
    explain_lines_add(l, p->layer, explain_line_number(p->name, "experts."), "", line);
}

static int short_width(const struct param_table *t)
{
    int most = (int)strlen("parameter");
    for (int i = 0; i < t->n; i++) {
        int n = (int)strlen(explain_short_name(t->p[i].name, t->p[i].layer));
        most = n > most ? n : most;
    }
    return most;
}

static void print_params(const struct explain *x, struct str *out)
{
    const struct param_table *t = &x->g->params;
    int width = short_width(t);
    struct lines l = {0};
    char heading[32];
    struct legend g = {0};
    str_printf(out, "  %-*s %-15s %-18s %10s  %s\n", width, "parameter", "shape", "rank 0 computes", "updates",
               "layout");
    for (int i = 0; i < t->n; i++) {
        if (t->p[i].layer >= 0 && (!i || t->p[i].layer != t->p[i - 1].layer)) {
            snprintf(heading, sizeof heading, "layer %d", t->p[i].layer);
            explain_lines_add(&l, t->p[i].layer, -1, "", heading);
        }
        add_param(x, i, width, &g, &l);
    }
    explain_lines_fold(&l, LINE_EXPERT);
    explain_lines_fold(&l, LINE_LAYER);
    explain_lines_print(&l, EXPLAIN_COLUMNS, width + 3, out);
    explain_lines_free(&l);
    str_puts(out, "updates: elements that rank 0's optimizer steps; *: no weight decay; initial values: --full\n\n");
    legend_print(&g, out);
}

static void print_place(const struct explain *x, struct str *out)
{
    int n = config_ranks(x->c), shown = 0;
    str_printf(out, "rank 0 of %d", n);
    for (int a = 0; a < AXIS_N; a++)
        if (mesh_axis(&x->ranks.mesh, (enum axis)a).size > 1 &&
            (x->c->model.moe.experts || (a != AXIS_EP && a != AXIS_ETP && a != AXIS_EDP)))
            str_printf(out, "%s %s 0 of %d", shown++ ? "," : ":", axis_name((enum axis)a),
                       mesh_axis(&x->ranks.mesh, (enum axis)a).size);
    str_puts(out, "\n\n");
}

/* The letters that parameters have here. */
static void print_letters(const struct param_table *t, unsigned axes, struct str *out)
{
    bool seen[256] = {false}; /* by the first character of a letter's name */
    for (int i = 0; i < t->n; i++)
        for (int a = 0; a < AXIS_N; a++)
            if (axes >> a & 1) seen[(unsigned char)*spmd_name((enum spmd)t->p[i].type.on[a])] = true;
    static const struct {
        char letter;
        const char *text;
    } letters[] = {
        {'S', "S0, S1  each rank of the axis has a part of its own: some of the rows, of the columns, of the experts"},
        {'R', "R       every rank of the axis has all of it, and the gradient of its own tokens: gradients are added "
              "up over the axis"},
        {'V', "V       every rank of the axis has values of its own"},
        {'P', "P       every rank of the axis has one summand of it"},
    };
    if (!axes) return;
    str_puts(out, "along an axis of the mesh (an axis of size 1 is one rank):\n");
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (seen[(unsigned char)letters[i].letter]) str_printf(out, "  %s\n", letters[i].text);
    str_puts(out, "  not named: every rank of the axis has all of it, and the same gradient (I, invariant)\n");
}

/* Of layouts, in full. */
static void print_marks(struct str *out)
{
    str_puts(out, "  *16     what is cut stays together in units of so many rows or columns, such as a head's\n"
                  "  {1}     only these ranks of the axis have the parameter: those of its pipeline stages, or of its "
                  "expert\n"
                  "  edp/2, edp%2  the outer and the inner factor of an axis: copies of the state, and ranks that "
                  "share it out\n");
}

int explain_layout(const struct explain *x, struct str *out, struct err *e)
{
    const struct param_table *t = &x->g->params;
    int width = longest_name(t);
    struct str legend = {0};
    (void)e;
    print_place(x, out);
    if (x->full) {
        str_printf(out, "%-*s  %-18s %12s  %-9s  %-26s %12s  %6s %6s %6s %6s  %s\n", width, "parameter", "shape",
                   "elements", "begins as", "rank 0 computes with", "and updates", "on", "same", "save", "each",
                   "along the axes");
        for (int i = 0; i < t->n; i++) print_param(x, i, width, out);
        str_puts(out,
                 "on: ranks that hold some of it; same: those of them that hold one box; save: those that count and "
                 "save it, a part each; each: pieces in which a box is stepped\n");
    } else {
        print_params(x, out);
    }
    str_printf(&legend,
               "\n%d parameters, %" PRId64 " elements; rank 0 computes with %" PRId64
               " of them, and its optimizer updates %" PRId64 "\n",
               t->n, t->numel, t->held, updated(x));
    print_letters(t, x->full ? ~0u : explain_axes(x), &legend);
    if (x->full) print_marks(&legend);
    explain_lines_wrap(str_text(&legend), EXPLAIN_COLUMNS, 10, out);
    str_free(&legend);
    return OK;
}

static void put_layout(struct json_out *o, const char *key, const struct layout *l)
{
    struct str places = {0};
    layout_print_places(l, &places);
    json_put_string(o, key, str_text(&places));
    str_free(&places);
}

int explain_layout_json(const struct explain *x, struct json_out *o, struct err *e)
{
    const struct param_table *t = &x->g->params;
    char init[32];
    (void)e;
    json_begin_array(o, "parameters");
    for (int i = 0; i < t->n; i++) {
        const struct param *p = &t->p[i];
        struct region held = param_rows(p, 0, p->ln[0]);
        struct layout stepped = param_stepped(p);
        print_init(init, p);
        json_begin_object(o, NULL);
        json_put_string(o, "name", p->name);
        json_begin_array(o, "shape");
        for (int k = 0; k < p->nd; k++) json_put_int(o, NULL, p->n[k]);
        json_end_array(o);
        json_put_int(o, "layer", p->layer);
        json_put_string(o, "init", p->init == INIT_NORMAL ? "normal" : init);
        if (p->init == INIT_NORMAL) json_put_real(o, "std", p->std);
        json_put_bool(o, "decay", p->decay);
        explain_type_json(o, "type", p->type);
        put_layout(o, "layout", &p->layout);
        put_layout(o, "stepped", &stepped);
        json_begin_array(o, "held"); /* [from, to) of each dim */
        for (int k = 0; p->held && k < p->nd; k++) {
            json_begin_array(o, NULL);
            json_put_int(o, NULL, held.lo[k]);
            json_put_int(o, NULL, held.hi[k]);
            json_end_array(o);
        }
        json_end_array(o);
        json_put_int(o, "held_elements", p->held);
        json_put_int(o, "updated_elements", x->g->store.units.piece[i].n);
        struct spread to = spread_of(x, p);
        json_put_int(o, "holders", to.holders);
        json_put_int(o, "copies", to.copies);
        json_put_int(o, "counted_by", to.counts);
        json_put_int(o, "pieces", to.pieces);
        json_end_object(o);
    }
    json_end_array(o);
    json_put_int(o, "elements", t->numel);
    json_put_int(o, "held_elements", t->held);
    json_put_int(o, "updated_elements", updated(x));
    return OK;
}
