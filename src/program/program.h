/* SPDX-License-Identifier: Apache-2.0 */
/* program.h: instructions with every byte placed before anything runs: what a rank does with a microbatch of a stage.
 *
 * Forward (F), backward for inputs (B) and backward for weights (W) are three lists over the same places. A place is
 * memory with a lifetime [first, last] in instructions; from the lifetime follows its home:
 *
 *   first in F, last in B    ACT      slab of this (stage, microbatch), from F to B
 *   last in a deferred W     WGRAD    slab of this (stage, microbatch), until W
 *   within one phase         SCRATCH  shared by all; the same bytes serve many places in turn
 *   put away in F            AWAY     another memory's slab of this (stage, microbatch), from F to B
 *
 * Where weight gradients are deferred there may be one slab instead (joint): all that outlives a phase is ACT, kept
 * until W, and what B leaves for W takes the bytes of what B has used up.
 *
 * Instructions with one loop number are run as often as there are rounds of rows (tape.h, waves), so a place that they
 * share with others lives from the first of them to the last. Backward's first make again what a round's forward held
 * (refill); of a single round they are left out.
 *
 * Invariants
 *   1. Two places of one home whose lifetimes meet do not overlap (program_check proves it).
 *   2. The sizes `bytes` of the homes are final: running allocates nothing.
 *   3. Gradients of activations are written (=) by their first contribution and added to (+=) by later ones; an
 *      addition alone hands its gradient on without a copy.
 *   4. Weight gradients are fp32; the first contribution since the caller cleared `written` writes, others add.
 *   5. The same program and inputs give the same bits.
 * Order: Local. Floors 0-2.
 */
#ifndef TUTTI_PROGRAM_PROGRAM_H
#define TUTTI_PROGRAM_PROGRAM_H

#include "base/str.h"
#include "kernel/kernel.h"
#include "kernel/pairs.h"

enum program_phase { PHASE_F, PHASE_B, PHASE_W, PHASE_N };
enum home { HOME_ACT, HOME_WGRAD, HOME_SCRATCH, HOME_AWAY, HOME_N };
const char *home_name(enum home h);

struct place {
    size_t bytes;
    enum home home;
    size_t offset; /* in its home */
    int first, last;
    int of;      /* which tensor of what it was lowered from; -1: a kernel's scratch */
    bool grad;   /* holds that tensor's gradient */
    int holders; /* while lowering: tensors whose gradient this is and is still wanted */
    bool away;   /* in another memory: only STORE and FETCH touch it */
    bool pinned; /* while lowering: a deferred weight gradient will read it, or its bytes are not ours to add to */
    int slot;    /* >= 0: these bytes are bound there when running (gradients at the ends of a stage); -1: placed */
};

/* How rows lie in the sequences of a microbatch: so many of each, and which row the first here is. each 0: they do not.
 */
struct token_rows {
    int64_t each, first;
};
/* Of n rows those of sequences that exist, where the last `blank` of batch do not. */
int64_t token_rows_there(struct token_rows r, int64_t n, int64_t batch, int64_t blank);

struct operand {
    struct view view; /* p is filled in when running */
    int place;        /* >= 0; OPERAND_NONE or OPERAND_SLOT */
    int slot;         /* OPERAND_SLOT */
    size_t offset;    /* bytes into the place or slot */
};
enum { OPERAND_NONE = -1, OPERAND_SLOT = -2 };

/* A product of fewer bits stands beside the plain product that it replaces; of a layer one of the two is run. */
enum when { ALWAYS, WHILE_ROUNDED, WHEN_FALLEN };

struct instr {
    enum op op;
    enum kernel_phase kphase;
    const char *what; /* whose result or gradient it is about, for messages; a name of what it was lowered from */
    int node, layer;  /* of that; -1: of none */
    bool again;       /* recomputed */
    int loop;         /* > 0: of the instructions that are run in rounds together, one after the other; 0: once */
    bool once;        /* in a loop: it is run in the first round only */
    bool refill;      /* in a loop of several rounds: it makes again what another round has overwritten */
    int until;        /* before that instruction begins this one is done: the next one, but for rows that travel */
    struct op_attrs at;
    int n_in, n_out;
    struct operand in[KERNEL_MAX_IN], out[KERNEL_MAX_OUT], dout[KERNEL_MAX_OUT], din[KERNEL_MAX_IN], acc[KERNEL_MAX_IN];
    enum when when;              /* by program_args.fallen */
    int kept;                    /* > 0: what it makes is kept from microbatch to microbatch; by program_args.kept */
    int operand;                 /* of a QUANTISE: for which operand of the product (enum recipe_operand), */
    enum kernel_phase direction; /* and for which of its directions first */
    struct token_rows rows;      /* AMAX, QUANTISE of tokens: those of sequences that do not exist are zeros to them */
    int scratch;                 /* place, -1 none */
    /* The way it is carried out, chosen when lowering; NULL: collectives, and what nobody computes. */
    const struct kernel_slot *kernel;
    const char *family; /* whose it is; NULL with kernel */
    double flops;       /* where masks show all pairs */
    enum op_pairs pairs;
    /* run > 0: piece `piece` of `pieces` of an instruction that was cut with its neighbours (pieces.c). Different
     * pieces of one run touch different bytes, though their places are the same. */
    int run, piece, pieces;
};

enum { PIECES_MOST = 8 /* of one instruction */, AWAY_MOST = 24 /* copies of one direction, about */ };

struct tape;
struct program {
    const struct tape *tape; /* borrowed, outlives the program: what it was lowered from, for who looks at both */
    struct instr *code;      /* F, then B, then W */
    int begin[PHASE_N + 1];  /* phase p is code[begin[p]] .. code[begin[p + 1] - 1] */
    struct place *places;
    int n_places;
    size_t bytes[HOME_N];
    bool joint;                  /* slabs of activations last until W, there are none of weight gradients' inputs */
    double flops[PHASE_N];       /* all instructions */
    double flops_model;          /* without recomputation */
    double flops_pairs[PAIRS_N]; /* the part of flops_model that follows from what masks show */
    int n_slots;
};

void program_free(struct program *p);
/* CHECKs invariant 1 over all pairs, and that what travels has its bytes to itself (for tests). */
void program_check(const struct program *p);
/* The instructions [*begin, *end) that are run in rounds with this one; itself alone where it is run once. */
void program_loop(const struct program *p, int instr, int *begin, int *end);
void program_print(const struct program *p, struct str *out);
/* Which of its family's ways the kernel is, in words; "" where there is one. */
const char *instr_path(const struct instr *i);
/* Whether operand din[k] is a weight's gradient, which is added to what its slot holds. */
bool instr_sums_weight(const struct instr *i, int k);
int instr_inputs(const struct instr *i); /* of the call as it runs: n_in, or less (linear_attrs.bias_off) */
/* Bytes that an instruction reads and writes, each once, as if caches were perfect (kernel/ops_cost.c). */
double instr_bytes(const struct instr *i);
/* Its call, shapes only, pointers NULL. */
void instr_call(const struct instr *i, struct kernel_call *c);
/* The last phase that reads or writes what is bound at a slot; -1: none does. */
int program_slot_last(const struct program *p, int slot);

#endif
