/* SPDX-License-Identifier: Apache-2.0 */
/* choose.h: memory.recompute: auto. What is computed again and, where the config leaves them open, what waits on disk
 * (memory.offload: auto) and what data-parallel ranks share out (parallel.zero), so that every rank stays below
 * memory.limit at the least work: candidates are laid out on paper, byte for byte as training would allocate them, and
 * nothing is guessed but the price of a byte.
 *
 * Tried are: nothing; each group of nn/recompute.h alone; groups together, those first that save most for their work,
 * until it fits; everything (full). Of the last group, and of full, the fewest layers that still fit are looked for,
 * with the groups before it in the others; the least work wins. Work is FLOPs, and 100 FLOPs per byte that an operation
 * reads or writes: between a CPU (50) and a GPU (300). What a candidate computes again costs by how much it makes the
 * step longer: the run's schedule is simulated with the work of its stages' programs, so what falls into a rank's idle
 * time costs nothing, and what the slowest stage does costs all; weight gradients that can no longer be put off count,
 * too.
 *
 * Offload adds a search of this kind for each set of what may wait on disk: activations, what is stepped, both, and
 * with weights, too. A byte that travels is work as one that is read or written. A disk takes it in the time of 1000
 * FLOPs (1 GB/s beside 1 TFLOP/s): activations and weights travel beside a step and cost what is longer than it, what
 * is stepped travels after it and costs all.
 *
 * Where the zero level is open there is a search of this kind for each level and set. A byte that is sent to another
 * rank is work as one that is read (10 GB/s beside 1 TFLOP/s); how many are follows from the table of
 * state/exchange.h. If nothing has to be chosen, since all fits at zero 0, nothing is. A level and set whose cost
 * without anything computed again is that of a candidate that fits already is looked at no further, unless activations
 * travel: only there can computing again be cheaper. Floor 9. Order: Same(world): as collective as `measure` is.
 */
#ifndef TUTTI_SITE_CHOOSE_H
#define TUTTI_SITE_CHOOSE_H

#include "config/config.h"
#include "engine/engine.h"

struct choose_cost {
    double bytes; /* of the rank that needs most */
    double work;  /* what is waited for, on the rank that does most; of a candidate also how much longer than tried[0]'s
                     its step is */
    double step;  /* work of the longest way through a step, as the schedule is simulated */
    double flops; /* of a step, everything; on the rank that does most */
    double moved; /* bytes that a step puts away and brings back; of the rank that does most */
    double sent;  /* bytes of gradients and weights that a step sends over dp_shard; of the rank that sends most */
};
enum { CHOOSE_MOST = 640, CHOOSE_TEXT = 256 };
struct choice {
    struct recompute r;
    unsigned away; /* bits of config_offload.h */
    int zero;
    struct choose_cost cost;
};
struct chosen {
    struct choice tried[CHOOSE_MOST]; /* in their order */
    int n, taken;                     /* which; -1: none fits */
};
/* What candidates are compared by: work, and what is sent. */
double choose_work(const struct choose_cost *x);
/* The costs of c as its memory.chosen, memory.away and parallel.zero say, over all ranks; the same on all of them. */
typedef int choose_measure(void *ctx, const struct config *c, struct choose_cost *out, struct err *e);

/* Sets c->memory.chosen, and of auto c->memory.away and c->parallel.zero. ERR_REQUEST: not even computing everything
 * again fits; says by how much. Does nothing where memory.recompute is not auto (out->n 0). */
int choose_recompute(struct config *c, choose_measure *measure, void *ctx, struct chosen *out, struct err *e);

/* Of one rank, from its engine on a device that counts; but for `step`, which takes all stages: each[stage of the
 * schedule] becomes the most of what it was and what this rank's programs take. */
struct choose_cost choose_cost_of(const struct engine *g);
void choose_stages_of(const struct engine *g, struct schedule_stage_cost *each);
double choose_step(const struct schedule *s, const struct schedule_stage_cost *each);
/* The measure of a rank among others: its own on paper, then the most of all. ctx: the world (comm.h), NULL: alone.
 * Collective(world). */
int choose_together(void *world, const struct config *c, struct choose_cost *out, struct err *e);

/* "full in 3 layers, else attention + norms", "norms, products in 3 layers": of each stage the first 3. */
const char *choose_text(const struct recompute *r, char out[CHOOSE_TEXT]);

#endif
