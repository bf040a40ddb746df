/* SPDX-License-Identifier: Apache-2.0 */
/* Records attention over the ranks of cp. The exchange is one row of the tape, not a row per message: what visits when
 * depends on the number of ranks, and between messages only partial results live. */
#include "parallel/context.h"

#include <stdio.h>

#include "kernel/attention_heads.h"

static bool lies(const struct tape *t, tid x, enum spmd on_cp) { return tape_tensor(t, x)->type.on[AXIS_CP] == on_cp; }

/* Alone on the axis: the rows are whole, under another type. */
static tid alone(struct tape *t, tid q, tid k, tid v, tid doc_W, tid sink_H, struct attention_attrs s, const char *name)
{
    tid in[3] = {q, k, v};
    for (int i = 0; i < 3; i++) {
        char was[TAPE_NAME];
        if (t->err.code) return TID_NONE;
        snprintf(was, sizeof was, "%s", tape_tensor(t, in[i])->name);
        in[i] = tape_retype(t, in[i], AXIS_CP, SPMD_R, was);
    }
    tid o = op_attention(t, in[0], in[1], in[2], doc_W, sink_H, s, name);
    return t->err.code ? TID_NONE : tape_retype(t, o, AXIS_CP, SPMD_S0, name);
}

tid par_attention(struct tape *t, const struct par *p, tid q, tid k, tid v, tid doc_W, tid sink_H, tid token_W,
                  struct attention_attrs s, const char *name)
{
    if (t->err.code) return TID_NONE;
    if (++t->n_changes == p->forget) return op_attention(t, q, k, v, doc_W, sink_H, s, name);
    for (int a = 0; a < AXIS_N; a++) {
        bool cp = a == AXIS_CP, rows = tape_tensor(t, q)->type.on[a] == SPMD_S0;
        if (cp == rows && (!cp || (lies(t, k, SPMD_S0) && lies(t, v, SPMD_S0)))) continue;
        char type[128];
        err_set(&t->err, ERR_REQUEST,
                "attention '%s' over %s wants tokens split over cp and whole elsewhere: got %s (%s)", name,
                axis_name((enum axis)a), tape_tensor(t, q)->name, spmd_print(type, tape_tensor(t, q)->type));
        return TID_NONE;
    }
    if (p->size[AXIS_CP] == 1) return alone(t, q, k, v, doc_W, sink_H, s, name);
    s.scale = attention_scale(&s);
    struct op_attrs at = ATTRS(context, .over = par_ranks(p, AXIS_CP), .attention = s,
                               .inner = p->context_inner > 0 ? p->context_inner : 1, .gather = p->context_gather);
    int n = token_W >= 0 ? ATTENTION_TOKEN + 1 : attention_inputs(doc_W, sink_H);
    return tape_record(t, OP_CONTEXT, &at, n, (tid[]){q, k, v, doc_W, sink_H, token_W}, DT_N, name);
}
