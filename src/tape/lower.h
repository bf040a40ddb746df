/* SPDX-License-Identifier: Apache-2.0 */
/* lower.h: what lower.c and place.c share; private to the room. */
#ifndef TUTTI_TAPE_LOWER_H
#define TUTTI_TAPE_LOWER_H

#include "tape/program.h"

struct code {
    struct instr *p;
    int n, room;
};
struct box {
    int64_t row, rows, col, cols;
};
struct grad { /* of a root tensor, while it is being gathered */
    int place;
    struct box *boxes; /* what has been written; they do not overlap */
    int n_boxes, room;
};
struct lower {
    const struct tape *t;
    bool *done;  /* nodes whose backward was emitted ahead of its turn */
    bool *moves; /* root tensor: follows from a parameter that has a gradient, or from the stage before */
    struct lower_options o;
    struct arena *arena;
    struct program *p;
    int room_places;
    struct code code[PHASE_N];
    int wave, loop, n_loops; /* of the nodes that are emitted now: -1, 0 outside */
    bool aside;
    bool *again;       /* root tensor: computed once more for backward */
    int *value;        /* root tensor -> place of its values (the latest instance: recompute makes a new one) */
    struct grad *grad; /* root tensor -> its gradient */
};

/* A layer's product, as it was recorded or of fewer bits. */
static inline bool op_linear_like(enum op op) { return op == OP_LINEAR || op == OP_LINEAR_SCALED; }
struct instr *lower_emit(struct code *c);                          /* one more, empty */
int lower_place(struct lower *l, tid of, bool grad, size_t bytes); /* a new one */
void lower_recipe(struct lower *l);                                /* recipe.c: products of fewer bits */
void lower_pieces(struct lower *l, struct code *c);                /* pieces.c: cuts what the options say */
void lower_offload(struct lower *l); /* offload.c: puts away what the options say, last of all */
/* rounds.c: what runs in rounds. */
void lower_at_node(struct lower *l, int index);       /* emitted next; a loop begins where the waves change */
bool lower_in_wave(const struct lower *l, int index); /* and not aside */
void lower_depth_rules(struct program *p);            /* tells dispatches by which rule products cut their depth */
void program_loops_live(struct program *p);           /* lifetimes of what loops share with others */
/* carriers.c: kernels, scratch and FLOPs of all instructions. */
void lower_choose(struct lower *l, const struct kernel_table *kt);
void lower_fill(struct code *c); /* fill.c: weight gradients of B beside its collectives */
bool instr_same_memory(const struct operand *a, const struct operand *b);
bool instr_touches(const struct instr *i, const struct instr *collective);
void program_finish_late(struct program *p);                   /* underway.c: until when each collective may travel */
void instr_call(const struct instr *i, struct kernel_call *c); /* shapes only, pointers NULL */
/* Lifetimes, homes, offsets. n_act, n_wgrad: as in lower_options; one slab for both where that is smaller. */
void program_place(struct program *p, int64_t n_act, int64_t n_wgrad);

#endif
