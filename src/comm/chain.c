/* SPDX-License-Identifier: Apache-2.0 */
/* chain.c: broadcast along a chain, in segments: while a rank passes segment s on, it receives segment s+1.
 *
 * Cost, K ranks, N bytes in S segments, bandwidth B: (K-2+S) N/(S B) and as many latencies, which tends to N/B for long
 * vectors: the best a broadcast can do, at a latency that grows with K. Every rank sends at most N bytes in S messages.
 */
#include "comm/moves.h"

#define SEGMENT_BYTES (128 << 10)

bool chain_write(struct moves *p, const struct coll *c)
{
    if (c->op != COMM_BROADCAST) return false;
    int v = (c->rank - c->root + c->size) % c->size;
    bool first = v == 0, last = v == c->size - 1;
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    int64_t each = SEGMENT_BYTES / (int64_t)dtype_bytes(c->dtype);
    for (int64_t at = 0, passed = 0, n; passed < c->n; at += n) {
        n = c->n - at < each ? c->n - at : each; /* 0 after the last segment has come */
        if (!first) comm_moves_recv(p, before, SIDE_OUT, at, n);
        int64_t here = first ? at + n : at; /* what lies here already */
        if (!last) comm_moves_send(p, next, SIDE_OUT, passed, here - passed);
        comm_moves_fence(p);
        passed = here;
    }
    return true;
}
