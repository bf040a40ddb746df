/* SPDX-License-Identifier: Apache-2.0 */
/* action.h: one thing a rank does next, in eight bytes.
 *
 * An action says what (kind), for which piece of the model (stage, part) and for which microbatch. What it needs
 * first follows from these keys (schedule_needs in schedule.h): actions hold no pointers, so a schedule can be
 * written to a file, compared and sent.
 *
 *   text          meaning
 *   2F0           forward of stage 2, microbatch 0
 *   2B0           backward for the stage's input
 *   2W0           backward for the stage's weights, from what B left behind
 *   2BW0          both at once: cheaper than B then W when nothing is gained by waiting
 *   2RF0@1        receive stage 2's input from rank 1            2SF0@3  send stage 2's output to rank 3
 *   2RB0@3        receive the gradient of stage 2's output       2SB0@1  send the gradient of stage 2's input
 *   2GATHER       make stage 2's parameters whole (FSDP)         2RELEASE  give the gathered copy back
 *   2REDUCE       sum stage 2's gradients over the data ranks
 *   2RECOMPUTE0   run the forward again, just before backward
 *   2UPDATE       step stage 2's parameters with their optimizer, after all that computes
 *   2PUBLISH      give the stepped parameters to all data ranks (where each stepped its piece)
 *   2F0.1         part 1 of that forward only (parts.h; absent: the stage in one piece). 2GATHER.1, 2RELEASE.1,
 *                 2REDUCE.1, 2UPDATE.1, 2PUBLISH.1: unit 1 of the rank's parameters only
 *
 * Floor 1: includes base only. Order: Local.
 */
#ifndef TUTTI_SCHEDULE_ACTION_H
#define TUTTI_SCHEDULE_ACTION_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum action_kind {
    ACTION_F,
    ACTION_B,
    ACTION_W,
    ACTION_BW,
    ACTION_RECV_F,
    ACTION_SEND_F,
    ACTION_RECV_B,
    ACTION_SEND_B,
    ACTION_GATHER,
    ACTION_RELEASE,
    ACTION_REDUCE,
    ACTION_RECOMPUTE,
    ACTION_UPDATE,
    ACTION_PUBLISH,
    ACTION_N
};

#define ACTION_WHOLE 0xffff /* part: the stage in one piece */

struct action {
    uint8_t kind; /* enum action_kind */
    uint8_t zero;
    uint16_t stage;      /* position in the pipeline, over all ranks and chunks */
    uint16_t microbatch; /* 0 for what serves all microbatches: GATHER, RELEASE, REDUCE, UPDATE, PUBLISH */
    union {
        uint16_t part; /* ACTION_WHOLE, or which part of the phase; of what serves all microbatches: which unit */
        uint16_t peer; /* RECV and SEND: the other rank */
    };
};
_Static_assert(sizeof(struct action) == 8, "an action is eight bytes");

static inline struct action action_of(enum action_kind kind, int stage, int microbatch)
{
    return (struct action){.kind = (uint8_t)kind,
                           .stage = (uint16_t)stage,
                           .microbatch = (uint16_t)microbatch,
                           .part = ACTION_WHOLE};
}

const char *action_name(enum action_kind kind); /* "F", "BW", "GATHER" */
int action_is_compute(enum action_kind kind);   /* F, B, W, BW, RECOMPUTE */
int action_has_microbatch(enum action_kind kind);
int action_has_peer(enum action_kind kind); /* RECV and SEND */
int action_has_unit(enum action_kind kind); /* GATHER, RELEASE, REDUCE, UPDATE, PUBLISH */
int action_equal(struct action a, struct action b);

/* "2F0"; out holds 32 chars. */
char *action_print(char out[32], struct action a);
/* Reads one action that ends at a blank or at the end of text; *used is how many characters it took. */
int action_parse(const char *text, struct action *out, int *used, struct err *e);

#endif
