/* SPDX-License-Identifier: Apache-2.0 */
/* freeze.h: which parameters a run trains. A frozen one has its weights and nothing else: no gradient, no master, no
 * state of an optimizer; nothing of it is reduced, and backward ends where everything before is frozen. Patterns are
 * names of parameters in which * stands for any text. Where there are adapters (nn/adapter.h) they are trained, and of
 * the model what `only` names.
 * Floors 0-2. Order: Same(mesh).
 */
#ifndef TUTTI_STATE_FREEZE_H
#define TUTTI_STATE_FREEZE_H

#include "state/param.h"

struct freeze {
    const char *const *only, *const * not ; /* what is trained (n_only 0: all); of that, what is not; borrowed */
    int n_only, n_not;
};
static inline bool freeze_any(const struct freeze *f) { return f->n_only || f->n_not; }
/* Marks rows; refuses a pattern that fits no name, and patterns that leave nothing to train. */
int param_freeze(struct param_table *t, const struct freeze *f, struct err *e);

#endif
