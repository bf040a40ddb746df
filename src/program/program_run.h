/* SPDX-License-Identifier: Apache-2.0 */
/* program_run.h: a program's instructions, enqueued one after the other; rows that travel are begun in their turn and
 * finished before the first instruction that touches their bytes. It decides nothing.
 * Order: Local. Floors 0-2.
 */
#ifndef TUTTI_PROGRAM_PROGRAM_RUN_H
#define TUTTI_PROGRAM_PROGRAM_RUN_H

#include <stdatomic.h>

#include "program/program.h"

/* Seconds and FLOPs by operation and phase, filled while running when asked. */
struct program_profile {
    double s[OP_N][KERNEL_N_PHASES];
    double flops[OP_N][KERNEL_N_PHASES];
    int64_t calls[OP_N][KERNEL_N_PHASES];
};

/* Who carries out rows that are no kernels'. All zero: there are none. */
struct carrier {
    /* Begins a row, behind what s holds, and returns its ticket; 0: it is done. */
    int64_t (*begin)(void *ctx, struct stream *s, const struct kernel_call *c);
    /* What s gets from now on comes after it. */
    void (*end)(void *ctx, struct stream *s, const struct kernel_call *c, int64_t ticket);
    /* Moves what is under way on without waiting; asked between instructions. NULL: not. */
    void (*poll)(void *ctx, const struct kernel_call *c, int64_t ticket);
    /* How many rounds this dispatch takes, whose numbers are there; the same on all its ranks. NULL: there are none. */
    int64_t (*rounds)(void *ctx, struct stream *s, const struct kernel_call *c);
    void *ctx;
};

/* Which instruction a rank is in, for another thread that looks while it runs. */
struct program_place {
    _Atomic(const struct program *) program; /* NULL: none yet */
    atomic_int instr;
};

struct program_args {
    struct stream *stream; /* kernels are enqueued here */
    const struct step_info *step;
    int64_t batch;       /* sequences of a microbatch, of which step->blank do not exist */
    const double *shown; /* [PAIRS_N] the share of a microbatch's pairs that masks show; NULL: all */
    void *const *slot;   /* what externals are bound to; NULL entries on the null device */
    void *act, *wgrad, *scratch;
    void *away;                   /* in the other memory */
    struct carrier ranks, copies; /* who carries out the rows that are no kernels' (op_row.by) */
    /* By slot: this gradient holds something already. The first contribution writes and sets it, later ones add; the
     * caller clears it when a step begins (or when a slot is bound to other bytes). */
    uint8_t *written;
    /* By layer: its products of fewer bits are computed as they would be without (recipe.c). NULL: of none. */
    const uint8_t *fallen;
    /* By instr.kept - 1: is there already, and what makes it is left out; set when it was made. NULL: nothing is kept.
     * The caller clears it when a step begins. */
    uint8_t *kept;
    struct program_profile *profile; /* NULL: no timing */
    struct program_place *place;     /* NULL: nobody looks */
    /* Called around each instruction with its index; NULL: not. Windows: they see, and decide nothing. */
    void (*before)(void *ctx, int instr);
    void (*after)(void *ctx, int instr);
    void *around_ctx;
    /* Called after each instruction but copies; NULL: not. A window for debugging (finding the first NaN), never for
     * deciding. */
    void (*look)(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i);
    void *look_ctx;
};
void program_run(const struct program *p, enum program_phase phase, const struct program_args *a);
static inline double instr_flops(const struct instr *i, const struct program_args *a)
{
    return i->pairs != PAIRS_FIXED && a->shown ? i->flops * a->shown[i->pairs] : i->flops;
}

/* The same in parts: instructions [begin, end) of a phase. Rows may travel from one part to the next, so those under
 * way are kept by the caller, who begins with none and calls program_run_end when the phase is over. */
enum { PROGRAM_UNDER_WAY = 4 * PIECES_MOST + 2 * AWAY_MOST };
struct program_walk {
    struct {
        struct kernel_call call;
        int64_t ticket;
        int until;
    } list[PROGRAM_UNDER_WAY];
    int n;
};
void program_run_part(const struct program *p, int begin, int end, struct program_walk *w,
                      const struct program_args *a);
void program_run_end(const struct program *p, struct program_walk *w, const struct program_args *a);

#endif
