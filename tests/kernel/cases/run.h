/* SPDX-License-Identifier: Apache-2.0 */
/* run.h: a case as calls of a family's slots, with scratch that is full of NaNs and guarded. */
#ifndef TUTTI_TESTS_KERNEL_CASES_RUN_H
#define TUTTI_TESTS_KERNEL_CASES_RUN_H

#include "base/mem.h"
#include "base/thread.h"
#include "kernel/cases/random.h"

static inline struct kernel_call kcase_call(const struct kcase *k, enum kernel_phase phase)
{
    struct kernel_call c =
        {.op = k->op, .phase = phase, .at = k->at, .step = &k->step, .n_in = k->n_in, .n_out = k->n_out};
    memcpy(c.in, k->in, sizeof c.in);
    memcpy(c.out, k->out, sizeof c.out);
    memcpy(c.dout, k->dout, sizeof c.dout);
    memcpy(c.din, k->din, sizeof c.din);
    memcpy(c.acc, k->acc, sizeof c.acc);
    return c;
}

/* What the row does not save is not there in backward: hide it. False: no gradient of this phase is wanted. */
static inline bool hide_unsaved(struct kernel_call *c)
{
    bool wanted = false;
    const struct op_row *row = op_row(c->op);
    unsigned in = c->phase == KERNEL_BWD_W ? row->save_in_w : row->save_in;
    for (int i = 0; i < c->n_in; i++) {
        if (!(in >> i & 1)) c->in[i].p = NULL;
        bool here = (c->phase == KERNEL_BWD_W ? row->weight_in : row->grad_in) >> i & 1;
        if (!here) c->din[i].p = c->acc[i].p = NULL;
        wanted |= c->din[i].p != NULL;
    }
    for (int i = 0; i < c->n_out; i++)
        if (!(row->save_out >> i & 1)) c->out[i].p = NULL;
    return wanted;
}

/* One call with guarded scratch. False: the family has no such slot or does not accept the call, or nothing is
 * wanted of it. */
static inline bool kcase_run(struct kernel_call *c, const struct kernel_family *f, int n_threads)
{
    const struct kernel_slot *s = kernel_way(f, c);
    if (!s) return false;
    if (c->phase != KERNEL_FWD && !hide_unsaved(c)) return false;
    c->scratch_bytes = s->scratch ? s->scratch(c, n_threads) : 0;
    char *block = xmalloc(c->scratch_bytes + 2 * KCASE_GUARD);
    memset(block, 0xff, c->scratch_bytes + 2 * KCASE_GUARD);
    char *scratch = block + (KCASE_GUARD - (uintptr_t)block % KCASE_GUARD);
    c->scratch = c->scratch_bytes ? scratch : NULL;
    struct stream here = kernel_here(n_threads > 1 ? team_new(n_threads) : NULL);
    c->stream = &here;
    s->run(c);
    c->stream = NULL;
    if (here.team) team_free(here.team);
    for (const char *g = scratch + c->scratch_bytes; g < block + c->scratch_bytes + 2 * KCASE_GUARD; g++)
        if (*g != (char)0xff)
            fail_msg("%s %s: wrote beyond %zu bytes of scratch", f->name, op_row(c->op)->name, c->scratch_bytes);
    xfree(block);
    return true;
}

/* ROTARY works in place: its input is copied to the output's place first. */
static inline bool kcase_forward(struct kcase *k, const struct kernel_family *f, int n_threads)
{
    struct kernel_call c = kcase_call(k, KERNEL_FWD);
    if (k->op == OP_ROTARY) {
        view_copy(&k->out[0], &k->in[0]);
        c.in[0] = c.out[0];
    }
    if (kcase_is_root(k->op)) view_fill_zero(&k->out[0]);
    return kcase_run(&c, f, n_threads);
}

static inline bool kcase_backward_phase(struct kcase *k, enum kernel_phase phase, const struct kernel_family *f,
                                        int n_threads)
{
    struct kernel_call c = kcase_call(k, phase);
    return kcase_run(&c, f, n_threads);
}

/* Both halves; true when the family ran at least one of them. */
static inline bool kcase_backward(struct kcase *k, const struct kernel_family *f, int n_threads)
{
    bool in = kcase_backward_phase(k, KERNEL_BWD_IN, f, n_threads);
    bool w = kcase_backward_phase(k, KERNEL_BWD_W, f, n_threads);
    return in || w;
}

#endif
