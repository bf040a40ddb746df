/* SPDX-License-Identifier: Apache-2.0 */
/* Layers and kernels, seen from the two calls around each instruction. Layers follow one another without a gap, so that
 * what is done between two instructions (waiting for the bytes of the next one, say) is inside the layer that needs it;
 * only what is computed once more for backward stands apart from it. */
#include "base/clock.h"
#include "engine/trace.h"
#include "tape/tape.h"

static int label(const struct trace_program *x, int node)
{
    const struct tape *t = x->p->tape;
    if (t->nodes[node].layer >= 0) return t->nodes[node].layer;
    if (x->first_layered < t->n_nodes) return node < x->first_layered ? LAYER_BEFORE : LAYER_AFTER;
    return t->stage_in == TID_NONE ? LAYER_BEFORE : LAYER_AFTER; /* a stage without layers */
}

static void end_layer(struct trace_program *x, double now)
{
    struct trace_event *v = x->in_layer ? trace_put(x->t, TRACE_LAYER, x->layer_s, now) : NULL;
    if (!v) return;
    v->how = (uint8_t)x->phase;
    v->stage = x->layer;
}

static void before(void *ctx, int instr)
{
    struct trace_program *x = ctx;
    const struct instr *i = &x->p->code[instr];
    /* Weight gradients that fill the time of a message (tape/fill.c) are drawn where they run. */
    bool fills = x->in_layer && x->phase == PHASE_B && i->kphase == KERNEL_BWD_W;
    int layer = fills ? x->layer : label(x, i->node);
    if (x->in_layer && layer != x->layer) {
        end_layer(x, x->kernel_s); /* until its last kernel was over and what followed it was begun */
        x->layer_s = x->kernel_s;
    }
    x->layer = layer;
    x->in_layer = true;
    x->t->instr = i;
    x->kernel_s = clock_now_s();
}

static void after(void *ctx, int instr)
{
    struct trace_program *x = ctx;
    struct trace_event *v = trace_put(x->t, TRACE_KERNEL, x->kernel_s, clock_now_s());
    if (v) {
        v->program = x->p;
        v->instr = &x->p->code[instr];
        v->flops = instr_flops(v->instr, x->args);
    }
    x->t->instr = NULL;
    x->kernel_s = clock_now_s();
}

void trace_program_begin(struct trace_program *x, struct trace *t, const struct program *p, enum program_phase phase)
{
    *x = (struct trace_program){.t = t && t->on ? t : NULL, .p = p, .phase = phase};
    if (!x->t) return;
    while (x->first_layered < p->tape->n_nodes && p->tape->nodes[x->first_layered].layer < 0) x->first_layered++;
    x->layer_s = x->kernel_s = clock_now_s();
}

/* The next layer's box begins here and not where the last kernel ended. */
static void stand_apart(struct trace_program *x, double until)
{
    end_layer(x, until);
    x->in_layer = false;
    x->layer_s = x->kernel_s = clock_now_s();
}

void trace_program_part(struct trace_program *x, struct program_args *a, bool again)
{
    if (!x->t) return;
    if (again || x->again) stand_apart(x, x->kernel_s);
    x->again = again;
    x->t->program = x->p;
    x->args = a;
    a->before = before;
    a->after = after;
    a->around_ctx = x;
}

void trace_program_part_end(struct trace_program *x)
{
    if (!x->t) return;
    if (x->again) stand_apart(x, clock_now_s());
    x->t->program = NULL;
}

void trace_program_end(struct trace_program *x)
{
    if (!x->t) return;
    end_layer(x, clock_now_s());
}
