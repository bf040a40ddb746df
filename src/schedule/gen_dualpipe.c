/* SPDX-License-Identifier: Apache-2.0 */
/* DualPipe: two pipelines through the same ranks in opposite directions, so that one's forward hides the other's
 * backward and its communication. Every rank works on two phases: phase 0 enters near it, phase 1 comes back from the
 * far side. Eight steps, each a count and a small body; h is the half length of the way, k how far in the rank stands:
 *
 *   1  F0            2(h-k-1)       fill
 *   2  F0 F1         k+1
 *   3  B1 W1 F1      h-k-1
 *   4  F0 B1 F1 B0   n-2h+k+1       steady: whole backwards; a forward and a backward beside it may overlap
 *   5  B1 F1 B0      h-k-1
 *   6  B1 B0         k+1            from the middle on, weight halves are put off
 *   7  W B0          h-k-1
 *   8  W             k+1            drain
 *
 * In dualpipe h = p/2 and the phases are the two directions (stage s of the second on rank p-1-s): parameters twice.
 * In dualpipev h = p and the phases are the two arms of a V: parameters once. n is the microbatches of one phase.
 * (DeepSeek-AI, DualPipe, 2025; bubble (h-1)(F&B + B - 3W), where B is the whole backward.)
 */
#include "base/mem.h"
#include "schedule/generator.h"

struct phases {
    struct schedule *s;
    int rank;
    int stage[2], first[2]; /* of phase 0 and 1: the stage here, the first microbatch */
    int forwards[2], backwards[2];
    struct action *later; /* weight halves that were put off, oldest first */
    int n_later, at_later;
};

static void forward(struct phases *d, int phase)
{
    schedule_push(d->s, d->rank, action_of(ACTION_F, d->stage[phase], d->first[phase] + d->forwards[phase]++));
}

static void backward(struct phases *d, int phase, bool put_off)
{
    int m = d->first[phase] + d->backwards[phase]++;
    schedule_push(d->s, d->rank, action_of(put_off ? ACTION_B : ACTION_BW, d->stage[phase], m));
    if (put_off) d->later[d->n_later++] = action_of(ACTION_W, d->stage[phase], m);
}

static void weight(struct phases *d)
{
    CHECK(d->at_later < d->n_later, "no weight half was put off on rank %d", d->rank);
    schedule_push(d->s, d->rank, d->later[d->at_later++]);
}

static void eight_steps(struct phases *d, int h, int k, int n)
{
    for (int i = 0; i < 2 * (h - k - 1); i++) forward(d, 0);
    for (int i = 0; i < k + 1; i++) {
        forward(d, 0);
        forward(d, 1);
    }
    for (int i = 0; i < h - k - 1; i++) {
        backward(d, 1, true);
        weight(d);
        forward(d, 1);
    }
    for (int i = 0; i < n - 2 * h + k + 1; i++) {
        forward(d, 0);
        backward(d, 1, false);
        forward(d, 1);
        backward(d, 0, false);
    }
    for (int i = 0; i < h - k - 1; i++) {
        backward(d, 1, false);
        forward(d, 1);
        backward(d, 0, false);
    }
    bool put_off = false;
    for (int i = 0; i < k + 1; i++) {
        if (i == (k + 1) / 2 && k % 2 == 1) put_off = true;
        backward(d, 1, put_off);
        if (i == (k + 1) / 2 && k % 2 == 0) put_off = true;
        backward(d, 0, put_off);
    }
    for (int i = 0; i < h - k - 1; i++) {
        weight(d);
        backward(d, 0, true);
    }
    while (d->at_later < d->n_later) weight(d);
}

struct schedule *schedule_gen_dualpipe(int n_ranks, int n_microbatches, int n_chunks)
{
    int p = n_ranks, n = n_microbatches / 2;
    struct schedule *s = schedule_new("dualpipe", p, p * n_chunks, n_microbatches);
    schedule_add_way(s, n);
    for (int i = 0; i < p; i++) schedule_place(s, 1, i, p - 1 - i);
    struct action *later = xmalloc(2 * to_size(n) * sizeof *later);
    for (int r = 0; r < p; r++) {
        int near = r < p / 2 ? 0 : 1; /* the direction that enters on this side */
        int k = near ? p - 1 - r : r;
        struct phases d = {.s = s,
                           .rank = r,
                           .stage = {k, p - 1 - k},
                           .first = {near ? n : 0, near ? 0 : n},
                           .later = later};
        eight_steps(&d, p / 2, k, n);
    }
    xfree(later);
    return s;
}

struct schedule *schedule_gen_dualpipev(int n_ranks, int n_microbatches, int n_chunks)
{
    int p = n_ranks;
    struct schedule *s = schedule_new("dualpipev", p, p * n_chunks, n_microbatches);
    schedule_place_v(s);
    struct action *later = xmalloc(2 * to_size(n_microbatches) * sizeof *later);
    for (int r = 0; r < p; r++) {
        struct phases d = {.s = s, .rank = r, .stage = {r, 2 * p - 1 - r}, .later = later};
        eight_steps(&d, p, r, n_microbatches);
    }
    xfree(later);
    return s;
}
