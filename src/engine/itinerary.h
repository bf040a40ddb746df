/* SPDX-License-Identifier: Apache-2.0 */
/* itinerary.h: a rank's list of actions with every buffer assigned: what the executor carries out, one step after the
 * other, deciding nothing. Made from the rank's whole list (schedule/parts.h) before anything runs; it also says how
 * many slabs, buffers and slots there must be, so what is planned is what is allocated.
 *
 *   POST    start to receive a message into a buffer, in the order in which the peer sends
 *   ARRIVE  wait until it is there
 *   CLEAR   wait until the last message out of a buffer has been taken
 *   RUN     F, B, W or BW of a stage, or a part of one, or a RECOMPUTE
 *   SEND    start to send a buffer
 *   GATHER  start to gather a unit into a slot
 *   NEED    wait until it is there; without a slot: until what the last step published of it is
 *   RELEASE its slot is free
 *   OPEN    a slot is the temporary of a unit's gradient from here on
 *   REDUCE  hand a unit's gradient on, out of its slot or out of the store
 *   UPDATE  step a unit's parameters
 *   PUBLISH start to give them to the ranks that share them
 *
 * Buffers hold what passes between stages: [tokens, hidden] of one microbatch. Kept ones are filled by a message, or by
 * the neighbouring stage where that is on this rank too, and live until the last action that reads them; sending ones
 * are used in turn, each until its message was taken.
 *
 * Invariants
 *   1. A buffer or slab has one use at a time; F takes a slab, B (activations; W where one slab is for both) and W
 *      (inputs of weight gradients) give it back.
 *   2. Between two ranks messages are received in the order they are sent.
 *   3. A slot has one unit at a time. A temporary stays taken after its REDUCE, which still reads it, until the next
 *      unit's gradient of the same window is complete: the one after that works in another slot meanwhile.
 *   4. With sends that wait for their receiver, and fewer operations under way than a communicator takes (COMM_RING),
 *      all ranks come to their end at any speed: itinerary_choose_sends gives a number of sending buffers that does.
 * Floor 6. Order: Same(schedule).
 */
#ifndef TUTTI_ENGINE_ITINERARY_H
#define TUTTI_ENGINE_ITINERARY_H

#include "base/str.h"
#include "schedule/parts.h"
#include "program/program.h"

enum step_kind {
    STEP_POST,
    STEP_ARRIVE,
    STEP_CLEAR,
    STEP_RUN,
    STEP_SEND,
    STEP_GATHER,
    STEP_NEED,
    STEP_RELEASE,
    STEP_OPEN,
    STEP_REDUCE,
    STEP_UPDATE,
    STEP_PUBLISH
};
struct step {
    enum step_kind kind;
    struct action a;
    int stage;              /* RUN: which of the stages held here */
    int act, wgrad;         /* RUN: slab in the pool of the stage's size class; -1: none */
    int in, din, out, dout; /* RUN: buffers at the stage's ends; -1: none */
    int buffer;             /* POST, ARRIVE, CLEAR, SEND */
    int unit, slot;         /* of all but those above; slot -1: none */
    bool last;              /* REDUCE: of this unit in the step */
    bool begins, ends;      /* RUN: no part of the action comes before, after it */
    int64_t nth;            /* REDUCE: how many of this unit came before */
    int phase;              /* REDUCE: which phase added to the gradient last */
};

/* How long a stage's program needs what came in. Stages of one class have slabs of one size. */
struct stage_use {
    int stage;    /* position in the pipeline */
    int in_until; /* the last phase that reads the input, the gradient of the output */
    int dout_until;
    int act_class, wgrad_class;
    bool joint; /* the slab of activations is needed until W (program.h) */
};

struct itinerary {
    struct step *step;
    int64_t n, room;
    int64_t update;                  /* the first UPDATE; n: there is none. What comes before makes the gradients */
    int n_keep, n_send;              /* buffers: [0, n_keep) kept, [n_keep, n_keep + n_send) for sending */
    int n_act, n_wgrad;              /* classes with at least one slab: length of the lists below */
    int *act, *wgrad;                /* slabs per class */
    int n_param_slots, n_grad_slots; /* temporary units */
};

/* rank's itinerary; use[n_use] tells about the stages held here, in ascending order. n_send: buffers for sending. l is
 * the rank's whole list of actions, and p the parts in it. Both NULL: the list that s has of the rank, in whole phases,
 * which is enough for what depends on messages alone. */
void itinerary_init(struct itinerary *t, const struct schedule *s, int rank, const struct action_list *l,
                    const struct rank_parts *p, const struct stage_use *use, int n_use, int n_send);
void itinerary_fini(struct itinerary *t);
/* How many buffers for sending every rank gets: the fewest, but at least `wanted`, with which all ranks come to their
 * end. The schedule has passed schedule_check and has its messages. */
int itinerary_choose_sends(const struct schedule *s, int wanted);
void itinerary_print(const struct itinerary *t, struct str *out);

#endif
