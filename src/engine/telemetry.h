/* SPDX-License-Identifier: Apache-2.0 */
/* engine/telemetry.h: what rounding to fewer bits did, by product and operand, on every so many steps: a *look*. A look
 * counts each operand where it has just been rounded (kernel/rounded.h); steps between looks run what they always run,
 * and a look changes no bit of training.
 *
 * Counted are all microbatches, all directions and all ranks of a step, computing again for backward left out. Ranks
 * that round the same numbers (a weight over data-parallel ranks, an input that is whole on every rank of tp) count
 * them as often as all else of the same operand, so shares, errors and largest values are those of one rank; where tp
 * exceeds the heads of keys, those are counted as often as they are held. An operand that two products share is
 * counted with the first. Experts are counted each by itself, and told by layer together with the worst of them.
 * Floor 6. Order: as said.
 */
#ifndef TUTTI_ENGINE_TELEMETRY_H
#define TUTTI_ENGINE_TELEMETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "kernel/rounded.h"
#include "program/program.h"

struct engine;

struct telemetry {
    struct rounded_counts *counts; /* [parameters][RECIPE_OPERANDS], by the first parameter of a product; NULL: none */
    struct buffer on_device;       /* the same, of this rank, while a step runs */
};
/* After a look. */
struct telemetry_row {
    const char *product; /* "attn.q.weight", the first of those that make it; moe.experts.*.gate.weight: of all */
    const char *operand; /* "dy" */
    int param, layer;
    double amax, saturated, flushed;     /* shares of all elements */
    double error;                        /* root of: squares of what rounding moved / squares of what was there */
    double worst_saturated, worst_error; /* of one expert; of other products the same again */
};

int telemetry_new(struct engine *g, struct err *e); /* after recipes_rule */
void telemetry_free(struct engine *g);
/* Whether a look is at this step, of which so many were done before. Same(ranks). */
bool telemetry_due(const struct engine *g, int64_t step);
/* Before the programs of a step: begins a look if one is due. Then telemetry_look wants each instruction that has run.
 */
bool telemetry_begin(struct engine *g, int64_t step);
void telemetry_look(struct engine *g, const struct program *p, const struct kernel_call *c, const struct instr *i);
/* After a look at a step that is taken: adds up over ranks. Collective(world). */
void telemetry_agree(struct engine *g);
/* By product and operand, in the order of layers: *rows is the caller's to free; returns how many. Local. */
int telemetry_rows(const struct engine *g, struct telemetry_row **rows);

#endif
