/* SPDX-License-Identifier: Apache-2.0 */
/* A tape as text: what `tutti explain CONFIG tape` shows. */
#include <inttypes.h>

#include "tape/lower_impl.h"

static void print_tensor(const struct tape *t, tid id, struct str *out)
{
    if (id < 0) {
        str_puts(out, "-");
        return;
    }
    const struct tensor *x = tape_tensor(t, id);
    char type[128];
    str_printf(out, "%s %s[", x->name, dtype_name(x->dtype));
    for (int i = 0; i < x->nd; i++) str_printf(out, "%s%" PRId64, i ? "," : "", x->n[i]);
    str_printf(out, "] %s", spmd_print(type, x->type));
}

static void print_node(const struct tape *t, int index, struct str *out)
{
    const struct node *d = &t->nodes[index];
    const char *what = d->retype ? "retype" : op_row(d->op)->name;
    str_printf(out, "%4d ", index);
    if (d->layer >= 0) str_printf(out, "layer %-3d ", d->layer);
    else str_puts(out, "          ");
    str_printf(out, "%-10s ", what);
    if (d->retype) str_printf(out, "over %s: ", axis_name(d->axis));
    for (int k = 0; k < d->n_in; k++) {
        if (k) str_puts(out, ", ");
        print_tensor(t, d->in[k], out);
    }
    str_puts(out, " -> ");
    print_tensor(t, d->out[0], out);
    if (at_dropout_p(&d->at) > 0) str_printf(out, " dropout=%g", (double)at_dropout_p(&d->at));
    str_putc(out, '\n');
}

void tape_print(const struct tape *t, struct str *out)
{
    static const char *const kind[] = {"recompute", "loss: backward runs inside forward"};
    int open = -1;
    for (int i = 0; i < t->n_nodes; i++) {
        int s = t->nodes[i].segment;
        if (s != open && s >= 0) str_printf(out, "     segment %d (%s)\n", s, kind[t->segments[s].kind]);
        open = s;
        print_node(t, i, out);
    }
}
