/* SPDX-License-Identifier: Apache-2.0 */
/* engine/exponents.h: on every so many steps, the numbers that a step works on are counted by their exponents
 * (kernel/exponent_bins.h): what explains loss scaling. Counted are, of each product of a layer or the head, the
 * numbers that it reads, in the type that they come in and before they are rounded to fewer bits, once per microbatch;
 * and all gradients of weights, as the optimizer gets them. With a loss scale gradients are multiplied by it. Over all
 * ranks; what is whole on several ranks of tp is counted once. It changes no bit of training. Floor 6. Order: as said.
 */
#ifndef TUTTI_ENGINE_EXPONENTS_H
#define TUTTI_ENGINE_EXPONENTS_H

#include "kernel/exponent_bins.h"
#include "program/program.h"

struct engine;

enum exponent_class { CLASS_ACTIVATIONS, CLASS_WEIGHTS, CLASS_GRADIENTS, CLASS_WEIGHT_GRADIENTS, CLASS_N };
struct exponents {
    int64_t (*bins)[EXPONENT_BINS]; /* [CLASS_N]; NULL: nobody asked */
    struct buffer on_device;        /* the same, of this rank, while a step runs */
};
int exponents_new(struct engine *g, struct err *e);
void exponents_free(struct engine *g);
bool exponents_due(const struct engine *g, int64_t step); /* so many were done before. Same(ranks) */
void exponents_begin(struct engine *g);                   /* before the programs of such a step */
void exponents_look(struct engine *g, const struct program *p, const struct kernel_call *c, const struct instr *i);
void exponents_agree(struct engine *g); /* behind them, before the update. Collective(world) */

#endif
