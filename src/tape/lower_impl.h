/* SPDX-License-Identifier: Apache-2.0 */
/* lower_impl.h: what the passes of lowering share; private to the room. */
#ifndef TUTTI_TAPE_LOWER_IMPL_H
#define TUTTI_TAPE_LOWER_IMPL_H

#include "base/mem.h"
#include "program/place.h"
#include "tape/lower.h"

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
int lower_place_of(struct lower *l, tid root, bool grad);          /* for its values, or its gradient */
/* Where x lies in a place or slot; and its shape without memory. */
struct operand lower_operand(const struct lower *l, tid x, int place);
struct operand lower_shape(const struct lower *l, tid x);
/* The output is the input's memory (ROTARY). */
static inline bool node_is_alias(const struct tape *t, const struct node *d)
{
    tid o = d->out[0];
    return tape_tensor(t, o)->root != o;
}
/* gradients.c: which tensors have one, and where it gathers. */
void grad_find(struct lower *l); /* fills l->moves: backward goes no further */
bool grad_wanted(const struct lower *l, tid x);
void grad_begin(struct lower *l, tid root, int place); /* all of root's gradient is there */
/* Where a contribution to x's gradient goes, and what it is added to. */
void grad_contribute(struct lower *l, tid x, struct operand *din, struct operand *acc);
/* x's gradient is what lies in the place (of an addition's output): no copy, if x has none yet. False: it has. */
bool grad_hand_on(struct lower *l, tid x, int place);
bool grad_place_is_read(const struct lower *l, int place); /* by somebody else, later */
void grad_check(const struct lower *l, tid root);          /* that no part of it is missing */
void grad_release(struct lower *l, tid root);
struct operand grad_of_weight(const struct lower *l, tid x); /* f32, its slot's */
/* again.c: needed[i - first] of nodes, of a recompute segment or of a round of a wave. */
void again_in_segment(const struct lower *l, const struct segment *s, bool *needed);
void again_in_round(const struct lower *l, const struct wave *w, bool *needed);
void lower_check_values(const struct lower *l);     /* values.c: rows read what forward had; CHECKs */
void lower_recipe(struct lower *l);                 /* recipe.c: products of fewer bits */
void lower_pieces(struct lower *l, struct code *c); /* pieces.c: cuts what the options say */
void lower_offload(struct lower *l);                /* offload.c: puts away what the options say, last of all */
/* rounds.c: what runs in rounds. */
void lower_at_node(struct lower *l, int index);       /* emitted next; a loop begins where the waves change */
bool lower_in_wave(const struct lower *l, int index); /* and not aside */
void lower_depth_rules(struct program *p);            /* tells dispatches by which rule products cut their depth */
/* carriers.c: kernels, scratch and FLOPs of all instructions. ERR_REQUEST names the first that the table has none for.
 */
int lower_choose(struct lower *l, const struct kernel_table *kt, struct err *e);
void lower_fill(struct code *c); /* fill.c: weight gradients of B beside its collectives */

#endif
