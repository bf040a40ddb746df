/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation along a pipeline: every stage where the training schedule has it, microbatches in rounds as wide as the
 * pipeline, so that a rank with several stages fills each before it goes on to the next.
 *
 * All lists follow one order of (round, stage, way, microbatch) in which whatever an action needs comes before it: no
 * circle is possible.
 */
#include "schedule/schedule.h"

struct schedule *schedule_new_forward(const struct schedule *s)
{
    struct schedule *f = schedule_new("evaluation", s->n_ranks, s->n_stages, s->n_microbatches);
    if (s->n_ways == 2) schedule_add_way(f, s->way_from);
    for (int w = 0; w < s->n_ways; w++)
        for (int i = 0; i < s->n_stages; i++) schedule_place(f, w, i, s->place[w * s->n_stages + i]);
    f->forward_only = true;
    const int begin[2] = {0, s->way_from}, end[2] = {s->way_from, s->n_microbatches};
    int longest = 0;
    for (int w = 0; w < s->n_ways; w++)
        if (end[w] - begin[w] > longest) longest = end[w] - begin[w];
    for (int round = 0; round < longest; round += s->n_ranks)
        for (int stage = 0; stage < s->n_stages; stage++)
            for (int w = 0; w < s->n_ways; w++)
                for (int i = round; i < round + s->n_ranks && begin[w] + i < end[w]; i++)
                    schedule_push(f, s->place[w * s->n_stages + stage], action_of(ACTION_F, stage, begin[w] + i));
    return f;
}
