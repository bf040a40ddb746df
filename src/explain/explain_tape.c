/* SPDX-License-Identifier: Apache-2.0 */
/* tutti explain CONFIG tape: the operations of one microbatch as they were recorded, and the instructions that they
 * became, with the work and the bytes of each.
 *
 * For a terminal, names lose the layer that the heading says, dtypes are named where they are not the model's, mesh
 * types where something is made, and what does nothing here is left out: axes of size 1, and changes of mesh type along
 * them (the same bytes under another name). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "explain/explain.h"

static const char *const phases[PHASE_N] = {"F forward", "B backward (inputs)", "W backward (weights)"};
static const char *const passes[KERNEL_N_PHASES] = {"fwd", "bwd_in", "bwd_w"};

/* Work of a node, all its instructions of a kind of pass together. */
struct work {
    double forward, backward;
};

static struct work *work_of_nodes(const struct program *p)
{
    struct work *w = xcalloc((size_t)p->tape->n_nodes + 1, sizeof *w);
    for (int k = 0; k < p->begin[PHASE_N]; k++) {
        const struct instr *i = &p->code[k];
        if (i->again) continue;
        *(i->kphase == KERNEL_FWD ? &w[i->node].forward : &w[i->node].backward) += i->flops;
    }
    return w;
}

static bool does_nothing(const struct explain *x, const struct node *d)
{
    return d->retype && !(explain_axes(x) >> d->axis & 1);
}

/* Its mesh type is told where it is made. */
static void put_tensor(const struct explain *x, const struct tape *t, tid id, int layer, bool made, struct str *out)
{
    char type[128];
    if (id < 0) {
        str_puts(out, "-");
        return;
    }
    const struct tensor *v = tape_tensor(t, id);
    str_puts(out, explain_short_name(v->name, layer));
    str_printf(out, " %s[", v->dtype == x->g->cfg.dtype ? "" : dtype_name(v->dtype));
    for (int i = 0; i < v->nd; i++) str_printf(out, "%s%" PRId64, i ? "x" : "", v->n[i]);
    str_puts(out, "]");
    if (made && *spmd_print_on(type, v->type, explain_axes(x))) str_printf(out, " %s", type);
}

static void add_node(const struct explain *x, const struct program *p, int index, const struct work *w, struct lines *l)
{
    const struct tape *t = p->tape;
    const struct node *d = &t->nodes[index];
    char at[32], forward[32] = "", backward[32] = "";
    struct str s = {0};
    snprintf(at, sizeof at, "%5d ", index);
    if (w[index].forward > 0) str_flops(forward, w[index].forward);
    if (w[index].backward > 0) str_flops(backward, w[index].backward);
    str_printf(&s, "%-10s %10s %10s  ", d->retype ? "retype" : op_row(d->op)->name, forward, backward);
    for (int k = 0; k < d->n_in; k++) {
        if (k) str_puts(&s, ", ");
        put_tensor(x, t, d->in[k], d->layer, false, &s);
    }
    str_puts(&s, " -> ");
    put_tensor(x, t, d->out[0], d->layer, true, &s);
    if (at_dropout_p(&d->at) > 0) str_printf(&s, ", dropout %g", (double)at_dropout_p(&d->at));
    explain_lines_add(l, d->layer, -1, at, str_text(&s));
    str_free(&s);
}

static void print_nodes(const struct explain *x, const struct program *p, struct str *out)
{
    static const char *const kind[] = {"recomputed in backward",
                                       "loss: backward runs inside forward, so that logits live for one chunk"};
    struct lines l = {0};
    struct work *w = work_of_nodes(p);
    int layer = -1, segment = -1, hidden = 0;
    char text[96];
    str_puts(out, "    # operation     forward   backward  reads -> makes\n");
    for (int i = 0; i < p->tape->n_nodes; i++) {
        const struct node *d = &p->tape->nodes[i];
        hidden += does_nothing(x, d);
        if (does_nothing(x, d)) continue;
        if (d->layer >= 0 && d->layer != layer) {
            snprintf(text, sizeof text, "layer %d", d->layer);
            explain_lines_add(&l, d->layer, -1, "", text);
        } else if (d->layer < 0 && layer >= 0) {
            explain_lines_add(&l, -1, -1, "", "behind the layers");
        }
        if (d->segment >= 0 && d->segment != segment) {
            snprintf(text, sizeof text, "      (%s)", kind[p->tape->segments[d->segment].kind]);
            explain_lines_add(&l, d->layer, -1, "", text);
        }
        layer = d->layer;
        segment = d->segment;
        add_node(x, p, i, w, &l);
    }
    explain_lines_fold(&l, LINE_LAYER);
    explain_lines_print(&l, EXPLAIN_COLUMNS, 41, out);
    if (hidden)
        str_printf(out, "(%d changes of mesh type along axes of size 1, which are the same bytes, are left out)\n",
                   hidden);
    explain_lines_free(&l);
    xfree(w);
}

static void add_instr(const struct program *p, int k, struct lines *l)
{
    const struct instr *i = &p->code[k];
    const struct node *d = &p->tape->nodes[i->node];
    char at[32], name[TAPE_NAME + 64], text[256], flops[32] = "", bytes[32], rate[32] = "";
    double moved = instr_bytes(i);
    int n = snprintf(name, sizeof name, "%s", explain_short_name(i->what, d->layer));
    if (i->run) n += snprintf(name + n, sizeof name - (size_t)n, " %d/%d", i->piece + 1, i->pieces);
    if (i->again || i->refill) snprintf(name + n, sizeof name - (size_t)n, " again");
    if (i->flops > 0) str_flops(flops, i->flops);
    if (i->flops > 0 && moved > 0) snprintf(rate, sizeof rate, "%.1f", i->flops / moved);
    n = snprintf(text, sizeof text, "%-10s %-6s %-20s %10s %8s %6s", op_row(i->op)->name, passes[i->kphase], name,
                 flops, str_bytes(bytes, moved), rate);
    if (i->kernel) n += snprintf(text + n, sizeof text - (size_t)n, " %s %s", i->family, instr_path(i));
    snprintf(at, sizeof at, "%5d ", k);
    if (i->loop && !i->once)
        n += snprintf(text + n, sizeof text - (size_t)n, "  in rounds%s", i->refill ? ", if more than one" : "");
    if (i->kept) n += snprintf(text + n, sizeof text - (size_t)n, "  once a step");
    if (i->when == WHEN_FALLEN) n += snprintf(text + n, sizeof text - (size_t)n, "  if the layer falls back");
    if (i->until > k + 1) /* in the text, so that layers with other flights are not alike */
        snprintf(text + n, sizeof text - (size_t)n, "  travels beside %d", i->until - k - 1);
    explain_lines_add(l, d->layer, -1, at, text);
}

static void print_program(const struct program *p, struct str *out)
{
    char a[32], b[32], c[32];
    str_puts(out, "    # operation  pass   of                         work    bytes FLOP/B by\n");
    for (int ph = 0; ph < PHASE_N; ph++) {
        struct lines l = {0};
        if (p->begin[ph] == p->begin[ph + 1]) continue;
        str_printf(out, "%s: %d instructions, %s\n", phases[ph], p->begin[ph + 1] - p->begin[ph],
                   str_flops(a, p->flops[ph]));
        for (int k = p->begin[ph]; k < p->begin[ph + 1]; k++) add_instr(p, k, &l);
        explain_lines_fold(&l, LINE_LAYER);
        explain_lines_print(&l, EXPLAIN_COLUMNS, 24, out);
        explain_lines_free(&l);
    }
    str_printf(out, "a microbatch keeps %s until backward%s%s; all share %s of scratch",
               str_bytes(a, (double)p->bytes[HOME_ACT]), p->bytes[HOME_WGRAD] ? " and, until weight gradients, " : "",
               p->bytes[HOME_WGRAD] ? str_bytes(b, (double)p->bytes[HOME_WGRAD]) : "",
               str_bytes(c, (double)p->bytes[HOME_SCRATCH]));
    if (p->bytes[HOME_AWAY])
        str_printf(out, ";\n%s of each wait elsewhere (memory.offload_to)", str_bytes(a, (double)p->bytes[HOME_AWAY]));
    str_putc(out, '\n');
}

int explain_tape(const struct explain *x, struct str *out, struct err *e)
{
    (void)e;
    const struct engine_config *ec = &x->g->cfg;
    if (!x->full)
        str_printf(out,
                   "one microbatch of rank 0: %" PRId64 " sequence%s of %" PRId64
                   " tokens; %s where no other type is named. Work\n"
                   "counts a multiply-add as 2; bytes are those read and written, each once. What is made says how it\n"
                   "lies along the axes (the letters: explain layout). --full: all axes, every address.\n",
                   ec->micro, ec->micro > 1 ? "s" : "", ec->seq, dtype_name(ec->dtype));
    for (int i = 0; i < x->g->n_stages; i++) {
        const struct engine_stage *s = &x->g->stage[i];
        if (x->full ? x->g->when->n_stages > 1 : true) {
            if (!x->full) str_putc(out, '\n');
            if (x->g->when->n_stages > 1)
                str_printf(out, "stage %d: layers %d to %d\n", s->index, s->part.first, s->part.end - 1);
        }
        if (x->full) tape_print(s->tape, out);
        else print_nodes(x, s->train, out);
        str_putc(out, '\n');
        if (x->full) program_print(s->train, out);
        else print_program(s->train, out);
    }
    return OK;
}

/* ---- JSON ---- */

static void tensor_json(const struct tape *t, tid id, struct json_out *o)
{
    if (id < 0) {
        json_put_null(o, NULL);
        return;
    }
    const struct tensor *v = tape_tensor(t, id);
    json_begin_object(o, NULL);
    json_put_string(o, "name", v->name);
    json_put_string(o, "dtype", dtype_name(v->dtype));
    json_begin_array(o, "shape");
    for (int i = 0; i < v->nd; i++) json_put_int(o, NULL, v->n[i]);
    json_end_array(o);
    explain_type_json(o, "type", v->type);
    json_end_object(o);
}

static void node_json(const struct tape *t, int index, struct json_out *o)
{
    const struct node *d = &t->nodes[index];
    json_begin_object(o, NULL);
    json_put_int(o, "node", index);
    json_put_string(o, "op", d->retype ? "retype" : op_row(d->op)->name);
    if (d->layer >= 0) json_put_int(o, "layer", d->layer);
    if (d->retype) json_put_string(o, "axis", axis_name(d->axis));
    if (d->segment >= 0)
        json_put_string(o, "segment", t->segments[d->segment].kind == SEGMENT_LOSS ? "loss" : "recompute");
    if (at_dropout_p(&d->at) > 0) json_put_real(o, "dropout", (double)at_dropout_p(&d->at));
    json_begin_array(o, "in");
    for (int k = 0; k < d->n_in; k++) tensor_json(t, d->in[k], o);
    json_end_array(o);
    json_begin_array(o, "out");
    for (int k = 0; k < d->n_out; k++) tensor_json(t, d->out[k], o);
    json_end_array(o);
    json_end_object(o);
}

static void operands_json(const struct program *p, const struct operand *of, int n, const char *key, struct json_out *o)
{
    json_begin_array(o, key);
    for (int k = 0; k < n; k++) {
        const struct operand *q = &of[k];
        if (q->place == OPERAND_NONE) continue;
        const struct place *at = q->place >= 0 ? &p->places[q->place] : NULL;
        json_begin_object(o, NULL);
        if (!at || at->slot >= 0) {
            json_put_int(o, "slot", at ? at->slot : q->slot);
        } else {
            json_put_string(o, "home", home_name(at->home));
            json_put_int(o, "offset", (int64_t)(at->offset + q->offset));
        }
        json_end_object(o);
    }
    json_end_array(o);
}

static void instr_json(const struct program *p, int k, struct json_out *o)
{
    const struct instr *i = &p->code[k];
    json_begin_object(o, NULL);
    json_put_int(o, "instruction", k);
    json_put_int(o, "node", i->node);
    json_put_string(o, "op", op_row(i->op)->name);
    json_put_string(o, "pass", passes[i->kphase]);
    json_put_real(o, "flops", i->flops);
    json_put_real(o, "bytes", instr_bytes(i));
    json_put_bool(o, "again", i->again);
    if (i->when == WHEN_FALLEN) json_put_bool(o, "fallback", true);
    if (i->loop) json_put_int(o, "loop", i->loop);
    if (i->loop) json_put_string(o, "rounds", i->once ? "first" : i->refill ? "if more than one" : "each");
    if (i->kernel) json_put_string(o, "family", i->family);
    if (i->kernel && *instr_path(i)) json_put_string(o, "path", instr_path(i));
    if (i->run) {
        json_put_int(o, "piece", i->piece);
        json_put_int(o, "pieces", i->pieces);
    }
    if (op_row(i->op)->by != BY_KERNEL) json_put_int(o, "until", i->until);
    operands_json(p, i->in, i->n_in, "in", o);
    operands_json(p, i->out, i->n_out, "out", o);
    operands_json(p, i->dout, i->n_out, "dout", o);
    operands_json(p, i->din, i->n_in, "din", o);
    json_end_object(o);
}

static void stage_json(const struct engine_stage *s, struct json_out *o)
{
    const struct program *p = s->train;
    static const char *const names[PHASE_N] = {"F", "B", "W"};
    json_begin_object(o, NULL);
    json_put_int(o, "stage", s->index);
    json_put_int(o, "first_layer", s->part.first);
    json_put_int(o, "n_layers", s->part.end - s->part.first);
    json_begin_array(o, "nodes");
    for (int i = 0; i < s->tape->n_nodes; i++) node_json(s->tape, i, o);
    json_end_array(o);
    json_begin_array(o, "phases");
    for (int ph = 0; ph < PHASE_N; ph++) {
        json_begin_object(o, NULL);
        json_put_string(o, "phase", names[ph]);
        json_put_real(o, "flops", p->flops[ph]);
        json_begin_array(o, "instructions");
        for (int k = p->begin[ph]; k < p->begin[ph + 1]; k++) instr_json(p, k, o);
        json_end_array(o);
        json_end_object(o);
    }
    json_end_array(o);
    json_put_real(o, "flops_model", p->flops_model);
    json_put_int(o, "activation_bytes", (int64_t)p->bytes[HOME_ACT]);
    json_put_int(o, "wgrad_bytes", (int64_t)p->bytes[HOME_WGRAD]);
    json_put_int(o, "scratch_bytes", (int64_t)p->bytes[HOME_SCRATCH]);
    json_put_int(o, "away_bytes", (int64_t)p->bytes[HOME_AWAY]);
    json_end_object(o);
}

int explain_tape_json(const struct explain *x, struct json_out *o, struct err *e)
{
    (void)e;
    json_put_string(o, "dtype", dtype_name(x->g->cfg.dtype));
    json_put_int(o, "sequences", x->g->cfg.micro);
    json_put_int(o, "seq_len", x->g->cfg.seq);
    json_begin_array(o, "stages");
    for (int i = 0; i < x->g->n_stages; i++) stage_json(&x->g->stage[i], o);
    json_end_array(o);
    return OK;
}
