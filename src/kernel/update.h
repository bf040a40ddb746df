/* SPDX-License-Identifier: Apache-2.0 */
/* update.h: the table of elementwise updates beyond AdamW and SGD (kernel.h): a row is a name and its operands; one
 * slot of flat_ops runs them all, one call enqueues them. A new optimizer that works element by element is a row here,
 * its arithmetic in ref/update.c (the specification) and in cpu/update_body.h.
 *
 * All operands have n elements, but for those of one, and lie apart or are the same address. The compute copy is f32,
 * bf16 or f16; where it is NULL or equal to the master, nothing else is written.
 *
 * Invariants
 *   1. Elementwise in fp32, with the fused operations that ref/update.c spells out: neither a cut of the elements, nor
 *      the team, nor the family changes a bit.
 * Includes: kernel.h. Order: Local.
 */
#ifndef TUTTI_KERNEL_UPDATE_H
#define TUTTI_KERNEL_UPDATE_H

#include "kernel/kernel.h"

enum { UPDATE_OPERANDS = 5, UPDATE_FACTORS = 8 };
enum update_kind {
    UPDATE_LION,     /* master, m, grad, param */
    UPDATE_MOMENTUM, /* m, grad -> u: what momentum makes of a gradient */
    UPDATE_UNIT,     /* to = from / (root of *sum + eps) */
    UPDATE_BLEND,    /* to = a * x + b * y */
    UPDATE_ADAMW16,  /* master, m, v, grad, param: AdamW with moments in bf16 */
    UPDATE_APPLY,    /* master, o, param: master += step * o, decayed */
    UPDATE_KINDS
};

/* Where a kind's operands and factors are in update_args. */
enum { LION_MASTER, LION_M, LION_GRAD, LION_PARAM };
enum { LION_LR, LION_BETA1, LION_BETA2, LION_DECAY, LION_SCALE };
enum { MOMENTUM_M, MOMENTUM_GRAD, MOMENTUM_U };
enum { MOMENTUM_MU, MOMENTUM_AHEAD, MOMENTUM_SCALE }; /* AHEAD: mu with Nesterov's momentum, else u is m */
enum { UNIT_TO, UNIT_FROM, UNIT_SUM };                /* SUM: one f64, on the device */
enum { UNIT_EPS };
enum { BLEND_TO, BLEND_X, BLEND_Y };
enum { BLEND_A, BLEND_B };
enum { ADAMW16_MASTER, ADAMW16_M, ADAMW16_V, ADAMW16_GRAD, ADAMW16_PARAM };
enum {
    ADAMW16_BETA1,
    ADAMW16_BETA2,
    ADAMW16_EPS,
    ADAMW16_DECAY,
    ADAMW16_ROOT,
    ADAMW16_STEP,
    ADAMW16_SCALE
}; /* flat.h */
enum { APPLY_MASTER, APPLY_O, APPLY_PARAM };
enum { APPLY_STEP, APPLY_DECAY };

struct update_args {
    enum update_kind kind;
    int64_t n;
    struct update_operand {
        void *p;
        enum dtype t;
    } at[UPDATE_OPERANDS];
    float f[UPDATE_FACTORS];
    bool flag; /* MOMENTUM: Nesterov's */
};

struct update_row {
    const char *name;
    int n; /* operands */
    struct {
        const char *name;
        bool writes, one; /* one: a single element, not n */
    } at[UPDATE_OPERANDS];
    int param; /* the operand that is a compute copy of operand 0, or -1 */
};
extern const struct update_row update_rows[UPDATE_KINDS];

/* The compute copy that a call writes beside operand 0: its type, or DT_N where there is none to write. */
static inline enum dtype update_copy(const struct update_args *a)
{
    int k = update_rows[a->kind].param;
    return k >= 0 && a->at[k].p && a->at[k].p != a->at[0].p ? a->at[k].t : DT_N;
}

void flat_update(struct stream *s, const struct update_args *a);

void update_ref(struct team *team, const struct update_args *a);

#endif
