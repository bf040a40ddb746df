/* SPDX-License-Identifier: Apache-2.0 */
/* program.h: a tape lowered to instructions, with every byte placed before anything runs.
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
#ifndef TUTTI_TAPE_PROGRAM_H
#define TUTTI_TAPE_PROGRAM_H

#include <stdatomic.h>

#include "kernel/pairs.h"
#include "tape/recipe.h"
#include "tape/tape.h"

enum tape_phase { PHASE_F, PHASE_B, PHASE_W, PHASE_N };
enum home { HOME_ACT, HOME_WGRAD, HOME_SCRATCH, HOME_AWAY, HOME_N };
const char *home_name(enum home h);

struct place {
    size_t bytes;
    enum home home;
    size_t offset; /* in its home */
    int first, last;
    tid of;      /* the tensor it belongs to; -1: a kernel's scratch */
    bool grad;   /* holds that tensor's gradient */
    int holders; /* while lowering: tensors whose gradient this is and is still wanted */
    bool away;   /* in another memory: only STORE and FETCH touch it */
    bool pinned; /* while lowering: a deferred weight gradient will read it, or its bytes are not ours to add to */
    int slot;    /* >= 0: these bytes are bound there when running (gradients at the ends of a stage); -1: placed */
};

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
    int node;
    bool again;  /* recomputed */
    int loop;    /* > 0: of the instructions that are run in rounds together, one after the other; 0: once */
    bool once;   /* in a loop: it is run in the first round only */
    bool refill; /* in a loop of several rounds: it makes again what another round has overwritten */
    int until;   /* before that instruction begins this one is done: the next one, but for rows that travel */
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

struct program {
    const struct tape *tape; /* borrowed; outlives the program */
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

/* Products and the collectives beside them are done in pieces of rows, so that one piece travels while the next is
 * computed (pieces.c). Same on all ranks of the axis. */
struct pieces_rule {
    int most;           /* pieces; 0 or 1: nothing is cut */
    size_t least_bytes; /* of a message, all ranks' rows together */
    int64_t least_rows; /* of a product: fewer waste the packing of its weights, and kernels for few rows add in another
                           order */
};
enum { PIECES_MOST = 8 };

/* What is kept from F to B is put away meanwhile (offload.c). */
struct away_rule {
    bool on;
    size_t least_bytes; /* of a place: what is smaller stays */
    size_t align;       /* of what is away: 1, or whole blocks of a disk */
};

struct lower_options {
    struct pieces_rule pieces;
    struct away_rule away;
    const struct recipe_rule *recipe; /* NULL: no product has fewer bits than its operands (recipe.c) */
    bool training;                    /* false: F only, nothing is kept */
    /* W is a phase of its own, for products: they are the work that is worth putting off. What would have to be kept
     * for it beyond what F keeps anyway is not put off: gains and biases of norms, embeddings, and products whose input
     * is computed once more, have their gradients in B. Without split_w all weight gradients run inside B. */
    bool split_w;
    /* With split_w: another stage of this rank has the embedding's matrix, too, and its gradients come in between. So
     * the embedding's gradient is made in W, not in B: there it keeps its place in the order of the sums. */
    bool tied;
    /* With split_w: how many microbatches are between F and B, and between F and W, at worst. One slab for both is
     * taken where all slabs together are smaller so; 0: two slabs. */
    int64_t n_act, n_wgrad;
    /* Scratch of a collective beyond the place where a gradient lands before it is added; NULL: none needs any. */
    size_t (*collective_scratch)(const struct kernel_table *kt, const struct kernel_call *c);
};
int program_new(struct program **p, const struct tape *t, const struct kernel_table *kt, struct lower_options o,
                struct err *e);
void program_free(struct program *p);
/* CHECKs invariant 1 over all pairs, and that what travels has its bytes to itself (for tests). */
void program_check(const struct program *p);
/* The instructions [*begin, *end) that are run in rounds with this one; itself alone where it is run once. */
void program_loop(const struct program *p, int instr, int *begin, int *end);
void program_print(const struct program *p, struct str *out);
/* Which of its family's ways the kernel is, in words; "" where there is one. */
const char *instr_path(const struct instr *i);
/* Whose result or gradient an instruction is about, or moves: for messages. */
const char *instr_what(const struct program *p, const struct instr *i);
/* Whether operand din[k] is a weight's gradient, which is added to what its slot holds. */
bool instr_sums_weight(const struct instr *i, int k);
int instr_inputs(const struct instr *i); /* of the call as it runs: n_in, or less (linear_attrs.bias_off) */
/* Bytes that an instruction reads and writes, each once, as if caches were perfect (kernel/ops_cost.c). */
double instr_bytes(const struct instr *i);
/* The last phase that reads or writes what is bound at a slot; -1: none does. */
int program_slot_last(const struct program *p, int slot);

/* Seconds and FLOPs by operation and phase, filled while running when asked. */
struct tape_profile {
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
    struct tape_profile *profile; /* NULL: no timing */
    struct program_place *place;  /* NULL: nobody looks */
    /* Called around each instruction with its index; NULL: not. Windows: they see, and decide nothing. */
    void (*before)(void *ctx, int instr);
    void (*after)(void *ctx, int instr);
    void *around_ctx;
    /* Called after each instruction but copies; NULL: not. A window for debugging (finding the first NaN), never for
     * deciding. */
    void (*look)(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i);
    void *look_ctx;
};
void program_run(const struct program *p, enum tape_phase phase, const struct program_args *a);
static inline double instr_flops(const struct instr *i, const struct program_args *a)
{
    return i->pairs != PAIRS_FIXED && a->shown ? i->flops * a->shown[i->pairs] : i->flops;
}

/* The same in parts: instructions [begin, end) of a phase. Rows may travel from one part to the next, so those under
 * way are kept by the caller, who begins with none and calls program_run_end when the phase is over. */
enum { AWAY_MOST = 24 /* copies of one direction, about */, PROGRAM_UNDER_WAY = 4 * PIECES_MOST + 2 * AWAY_MOST };
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
