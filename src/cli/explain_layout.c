/* SPDX-License-Identifier: Apache-2.0 */
/* Every parameter and where it lies, as text: what rank 0 has of it, and how it lies along each axis of the mesh. A line per
 * parameter, none left out; the letters that occur are explained below. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/explain.h"
#include "layout/shape.h"

static int longest_name(const struct param_table *t)
{
    int most = (int)strlen("parameter");
    for (int i = 0; i < t->n; i++)
        if ((int)strlen(t->p[i].name) > most) most = (int)strlen(t->p[i].name);
    return most;
}

static void print_param(const struct explain *x, int i, int name_width, struct str *out)
{
    const struct param *p = &x->g->params.p[i];
    struct shape n = shape_of(p->nd, p->n);
    struct region held = param_rows(p, 0, p->ln[0]);
    char type[128], shape[128], init[32], text[256], box[256] = "nothing";
    if (p->init == INIT_NORMAL) snprintf(init, sizeof init, "N %.3g", p->std);
    else snprintf(init, sizeof init, "%s", p->init == INIT_ONES ? "ones" : "zeros");
    if (p->held) snprintf(box, sizeof box, "%s", region_print(text, &held));
    str_printf(out, "%-*s  %-18s %12" PRId64 "  %-9s  %-26s %12" PRId64 "  %s%s\n", name_width, p->name, shape_print(shape, &n), p->numel,
               init, box, x->g->store.units.piece[i].n, spmd_print(type, p->type), p->decay ? "" : "  (no decay)");
}

static void print_place(const struct explain *x, struct str *out)
{
    int n = config_ranks(x->c), shown = 0;
    str_printf(out, "rank 0 of %d", n);
    for (int a = 0; a < AXIS_N; a++)
        if (mesh_axis(&x->ranks.mesh, (enum axis)a).size > 1 && (x->c->model.moe.experts || (a != AXIS_EP && a != AXIS_ETP && a != AXIS_EDP)))
            str_printf(out, "%s %s 0 of %d", shown++ ? "," : ":", axis_name((enum axis)a), mesh_axis(&x->ranks.mesh, (enum axis)a).size);
    str_puts(out, "\n\n");
}

/* The letters that parameters have here. */
static void print_letters(const struct param_table *t, struct str *out)
{
    bool seen[256] = {false}; /* by the first character of a letter's name */
    for (int i = 0; i < t->n; i++)
        for (int a = 0; a < AXIS_N; a++) seen[(unsigned char)*spmd_name((enum spmd)t->p[i].type.on[a])] = true;
    static const struct {
        char letter;
        const char *text;
    } letters[] = {
        {'S', "S0, S1  each rank of the axis has a part of its own: some of the rows, of the columns, of the experts"},
        {'R', "R       every rank of the axis has all of it, and the gradient of its own tokens: gradients are added up over the axis"},
        {'V', "V       every rank of the axis has values of its own"},
        {'P', "P       every rank of the axis has one summand of it"},
    };
    str_puts(out, "along an axis of the mesh (an axis of size 1 is one rank):\n");
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (seen[(unsigned char)letters[i].letter]) str_printf(out, "  %s\n", letters[i].text);
    str_puts(out, "  not named: every rank of the axis has all of it, and the same gradient (I, invariant)\n");
}

int explain_layout(const struct explain *x, struct str *out, struct err *e)
{
    const struct param_table *t = &x->g->params;
    int width = longest_name(t);
    (void)e;
    print_place(x, out);
    str_printf(out, "%-*s  %-18s %12s  %-9s  %-26s %12s  %s\n", width, "parameter", "shape", "elements", "begins as", "rank 0 computes with",
               "and updates", "along the axes");
    for (int i = 0; i < t->n; i++) print_param(x, i, width, out);
    str_printf(out, "\n%d parameters, %" PRId64 " elements; rank 0 computes with %" PRId64 " of them, and its optimizer updates %" PRId64 "\n", t->n,
               t->numel, t->held, x->g->store.units.shard_numel);
    print_letters(t, out);
    return OK;
}
