/* One forward, one backward: after a warm-up just long enough that the first gradient arrives when it is over, each
 * forward is followed by the backward of the oldest microbatch. The bubble is GPipe's, (p-1)(F+B+W), but rank r holds
 * p-r microbatches instead of all.
 *
 * Interleaved: rank r has the stages r, r+p, r+2p, ...; microbatches go in rounds of p through all chunks before the
 * next round starts, which divides the bubble by the number of chunks and multiplies messages by it. Both are one rule:
 * warm-up of w forwards, then pairs, then the backwards that are left. (Narayanan et al., "Efficient large-scale
 * language model training on GPU clusters", 2021, figures 3 and 4.)
 */
#include "schedule/generate.h"

static int min(int a, int b)
{
    return a < b ? a : b;
}

/* The i-th forward (or backward) of a rank when v chunks take turns in rounds of p microbatches. */
static struct action nth(enum action_kind kind, int i, int rank, int p, int v)
{
    int chunk = i / p % v, microbatch = i / (p * v) * p + i % p;
    if (kind != ACTION_F) chunk = v - 1 - chunk;
    return action_of(kind, chunk * p + rank, microbatch);
}

static struct schedule *one_forward_one_backward(const char *kind, int p, int m, int v)
{
    struct schedule *s = schedule_new(kind, p, p * v, m);
    for (int r = 0; r < p; r++) {
        int total = m * v, warm_up = v == 1 ? p - 1 - r : 2 * (p - 1 - r) + (v - 1) * p;
        warm_up = min(warm_up, total);
        for (int i = 0; i < total + warm_up; i++) {
            if (i < total) schedule_push(s, r, nth(ACTION_F, i, r, p, v));
            if (i >= warm_up) schedule_push(s, r, nth(ACTION_BW, i - warm_up, r, p, v));
        }
    }
    return s;
}

struct schedule *schedule_gen_1f1b(int n_ranks, int n_microbatches, int n_chunks)
{
    return one_forward_one_backward("1f1b", n_ranks, n_microbatches, n_chunks);
}

struct schedule *schedule_gen_interleaved(int n_ranks, int n_microbatches, int n_chunks)
{
    return one_forward_one_backward("interleaved", n_ranks, n_microbatches, n_chunks);
}
