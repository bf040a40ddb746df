/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h: all that one rank does, in one list: what its stages compute, part by part, and beside it the gathering and
 * releasing of parameters, the reductions of gradients and the recomputation of activations; then the update of the
 * parameters and their publishing.
 *
 * A schedule's lists name whole phases: F, B and W of a stage. A phase is cut into parts wherever something has to
 * happen inside it, and parameters travel in units (a layer, the embedding, the head). Which unit a part reads and
 * whose gradient it adds to is said by struct stage_parts, which whoever knows the model makes; here it is numbers
 * only. schedule_list puts into a rank's list what is not there yet, schedule_check_list proves the whole list, whoever
 * wrote it.
 *
 *     0GATHER.0 0GATHER.1 0F0.0 0RELEASE.0 0GATHER.2 0F0.1 0RELEASE.1 0F0.2 0RELEASE.2
 *
 * Of a phase without anything inside only the whole is named (0F0). BW counts its parts through: those of B, then those
 * of W.
 *
 * Invariants (schedule_check_list proves them)
 *   1. The parts of a phase come in order, all of them, and no other phase computes between them: they share scratch
 *      memory.
 *   2. A part that computes forward once more (RECOMPUTE) comes before the part of backward that it serves.
 *   3. What a part reads was gathered before and is released after its last use; nothing is gathered twice or released
 *      unread.
 *   4. Every gradient is reduced once after its last contribution: of the step, or of the window (below).
 *   5. A message is received before the first part that reads it, and sent after the last part.
 *   6. Every unit is updated once, after all that computes and travels (the norm of all gradients comes before), and
 *      published once after that, if each rank steps a piece of it.
 *
 * Floor 1: includes base only. Order: Local; the same arguments give the same list on every rank.
 */
#ifndef TUTTI_SCHEDULE_PARTS_H
#define TUTTI_SCHEDULE_PARTS_H

#include "schedule/schedule.h"

enum { PART_PHASES = 3 }; /* ACTION_F, ACTION_B, ACTION_W */

/* Parts first to last of a phase read a unit's parameters, or add to its gradient. One row per phase, unit and kind of
 * use. */
struct part_use {
    int phase, unit;
    bool writes;
    bool stays; /* read where it is whole: nothing to gather (rule.some) */
    int first, last;
};

struct stage_parts {
    int stage;          /* position in the pipeline */
    int n[PART_PHASES]; /* parts; of W 0 where weight gradients are made in B */
    bool *again;        /* [n[ACTION_B]] this part computes forward once more */
    struct part_use *use;
    int n_use, room_use;
};

struct part_rule {
    bool gather;    /* parameters are shared out, or wait elsewhere: gathered before each use (zero 3, offload) */
    bool some;      /* of these units only; the parts that read others say so */
    int ahead;      /* units; 0: one; negative: none */
    bool arrive;    /* or they are whole, and on their way since the last step until their first use (zero 1 and 2) */
    bool reduce;    /* gradients are handed on at all */
    bool temporary; /* what a window writes is in a temporary, and reduced when the window is over (zero 2 and 3,
                       bf16) */
    bool by_phase;  /* a window is a phase, after which what it wrote of a unit leaves; else a microbatch of a stage, of
                       which then one at a time is alive */
    /* Not temporary: reduced after so many microbatches, and after the last (exact_order); 0: once a step. */
    int64_t every;
    bool update;  /* this rank steps its parameters (no server does) */
    bool publish; /* and gives them to the ranks that share them (zero 1 and 2) */
};

/* What the list of one rank is made of. */
struct rank_parts {
    struct stage_parts *stage; /* [n_stages] held by the rank, ascending */
    int n_stages, n_units;
    const char **unit_name; /* [n_units] for messages; NULL: numbers only */
    int *unit_stage;        /* [n_units] the stage that UPDATE and PUBLISH of a unit name: the first one here that uses
                               it; -1: this rank holds nothing of the unit, or it is frozen. NULL without rule.update */
    struct part_rule rule;
};

/* Parts of an action: 1 for what does not compute. */
int parts_of(const struct stage_parts *p, enum action_kind kind);
const struct stage_parts *parts_stage(const struct rank_parts *p, int stage); /* NULL: it is on another rank */
/* Which phase, and which parts of it [*first, *last], an action computes; of a BW with both phases, those of B (phase
 * ACTION_B) and then, when asked with `second`, those of W. false: nothing. */
bool parts_range(const struct stage_parts *p, struct action a, bool second, int *phase, int *first, int *last);

/* Which window an action's contribution to gradients belongs to: equal numbers, one reduction. */
int64_t parts_window(const struct rank_parts *p, struct action a, int phase);

/* The rank's whole list. What the schedule names by stage (GATHER, RELEASE, REDUCE) is told unit by unit; if it names
 * no GATHER and RELEASE, or no REDUCE, or no RECOMPUTE, or no UPDATE and PUBLISH at all, these are put in: a unit is
 * gathered rule.ahead units ahead of its use and released after the last use in the phase, reduced as soon as its
 * gradient is complete, and recomputed where the program does, updated at the end and published at once. A RECOMPUTE of
 * a whole stage stands for all that its next B or BW repeats. The caller frees out->a. ERR_REQUEST: a RECOMPUTE that
 * serves nothing. */
int schedule_list(struct action_list *out, const struct schedule *s, int rank, const struct rank_parts *p,
                  struct err *e);
/* Proves the invariants of a rank's whole list; an error names rank, action and unit. */
int schedule_check_list(const struct action_list *l, const struct schedule *s, int rank, const struct rank_parts *p,
                        struct err *e);
/* "0F0 0BW0", like schedule_print_rank. */
void schedule_print_list(const struct action_list *l, struct str *out);
/* "unit 3 (layers.2...)". */
void parts_print_unit(const struct rank_parts *p, int unit, char out[96]);

/* A schedule whose lists may name parts and units, with whole phases only: each where its last part stands. What is
 * left is what all ranks can check of each other without knowing the model. */
struct schedule *schedule_join(const struct schedule *s);
bool schedule_has_parts(const struct schedule *s);

#endif
