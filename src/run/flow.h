/* SPDX-License-Identifier: Apache-2.0 */
/* flow.h: when, inside a program, a unit's parameters are needed and its gradients are complete. Derived from the
 * program's instructions, printed by explain, carried out by the executor.
 *
 *   GATHER u k    before an instruction: start gathering unit u into slot k (one unit ahead of its use)
 *   NEED u        before an instruction that reads u: its gathering must be finished (or, zero 1 and 2, the publishing of
 *                 the last step)
 *   RELEASE u     after the last instruction that reads u: its slot is free
 *   OPEN u k      before the first instruction that writes u's gradient: slot k is its temporary
 *   ZERO u p      before REDUCE, in a temporary: parameter p of u has no gradient in this phase
 *   REDUCE u      after the last instruction that writes u's gradient: it can be sent
 *
 * Invariants
 *   1. Two units hold one slot at different times only (flow_init colours intervals).
 *   2. Events of one instruction come in the order written above; the order of events is the same on every rank.
 * Floor 6. Order: Same(program).
 */
#ifndef TUTTI_RUN_FLOW_H
#define TUTTI_RUN_FLOW_H

#include "state/units.h"
#include "tape/program.h"

enum flow_kind { FLOW_GATHER, FLOW_NEED, FLOW_OPEN, FLOW_RELEASE, FLOW_ZERO, FLOW_REDUCE };
struct flow_event {
    int instr; /* GATHER, NEED, OPEN: before it; RELEASE, ZERO, REDUCE: after it */
    enum flow_kind kind;
    int unit, slot;
    int param; /* ZERO */
};
struct flow {
    struct flow_event *event;
    int n, room;
    int n_param_slots, n_grad_slots;
};
/* gather: parameters are shared out (zero 3); arrive: they are whole, but on their way until they are needed; temporary: gradients are (zero 2, 3). by_phase: other microbatches run
 * between the phases of one, so a temporary does not outlive the phase that opened it. */
struct flow_options {
    bool gather, arrive, temporary, by_phase;
};
void flow_init(struct flow *f, const struct program *p, const struct units *u, struct flow_options o);
void flow_fini(struct flow *f);
const char *flow_kind_name(enum flow_kind k); /* "gather" */
void flow_print(const struct flow *f, const struct units *u, struct str *out);

#endif
