/* SPDX-License-Identifier: Apache-2.0 */
/* cut.h: where a stage's program is cut into the parts that a schedule names (schedule/parts.h), and what each part
 * reads and writes. Derived from the program's instructions, which name parameters and gradients by slot.
 *
 * A phase is cut where a unit's parameters are first and last read, if they have to come and go; where its gradient is
 * first and last written, if it is handed on; and where forward is computed once more and where that ends. A part is
 * instructions [at[k], at[k + 1]). Floor 6. Order: Same(program).
 */
#ifndef TUTTI_ENGINE_CUT_H
#define TUTTI_ENGINE_CUT_H

#include "schedule/parts.h"
#include "state/units.h"
#include "program/program.h"

_Static_assert((int)PHASE_F == ACTION_F && (int)PHASE_B == ACTION_B && (int)PHASE_W == ACTION_W &&
                   (int)PHASE_N == PART_PHASES,
               "phases of programs are those of schedules");

/* A parameter whose gradient no phase writes, of a unit with others whose gradients are written. In a temporary its
 * gradient is zeroed, and it leaves with the last phase that writes the unit. */
struct unwritten {
    int phase; /* that last one */
    int unit, param;
};
struct cut {
    int *at[PHASE_N]; /* [parts.n[phase] + 1] instructions */
    struct stage_parts parts;
    /* Where a window (schedule/parts.h) is a phase: by parameter, what is handed on after it, which is what the phase
     * writes. NULL: whole units are. */
    bool *leaves[PHASE_N];
    struct unwritten *unwritten;
    int n_unwritten, room;
};
/* split_w: W is a phase of its own. */
void cut_init(struct cut *c, int stage, const struct program *p, bool split_w, const struct units *u,
              const struct part_rule *r);
void cut_fini(struct cut *c);
/* What a rank's list is made of: the parts of its stages, borrowed from cuts. The caller frees stage, unit_name and
 * unit_stage. */
void cut_rank(struct rank_parts *out, const struct cut *const *cuts, int n, const struct units *u,
              const struct part_rule *r);

#endif
