/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule of a rank that has the whole model: gradient accumulation.
 *
 * Each microbatch goes forward and at once backward, so one slab of activations serves all of them. Splitting the
 * backward gains nothing on one rank; it is there so that the deferred weight half can be tested against the fused
 * one without a pipeline.
 */
#include "schedule/schedule.h"

struct schedule *schedule_new_onestage(int n_microbatches, bool split_w)
{
    struct schedule *s = schedule_new("onestage", 1, 1, n_microbatches);
    for (int m = 0; m < n_microbatches; m++) {
        schedule_push(s, 0, action_of(ACTION_F, 0, m));
        schedule_push(s, 0, action_of(split_w ? ACTION_B : ACTION_BW, 0, m));
        if (split_w) schedule_push(s, 0, action_of(ACTION_W, 0, m));
    }
    return s;
}
