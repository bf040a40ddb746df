/* SPDX-License-Identifier: Apache-2.0 */
/* route_run.h: tensors on their way along routes (layout/route.h), from any layout to any other. What a rank sends
 * another of all the tensors is one message; a rank packs its boxes, all messages are under way at once, and boxes that
 * arrived are unpacked.
 *
 * Ends. A rank holds one box of a tensor as a source and one as a destination, row-major and dense at a place of a
 * buffer. A message whose bytes lie in one stretch of a buffer is sent from there, or received there; others go through
 * buffers of this room, whose bytes are known when it is made: the sum of what is packed. Holders in the routes are
 * ranks of the communicator, which is on the stream's device (comm_on).
 *
 * Invariants
 *   1. Elements are copied, bit for bit. Where a sum is owed (a route with several terms) they are fp32, the first term
 *      is copied and the others added in order: the bits of one sum in fp32 in the order of the terms. Other types are
 *      refused, since they would be rounded once per term; reductions of all that is there are collectives (comm.h).
 *   2. A destination may be the very memory that the same rank's source box is in only where they are the same box at
 *      the same place.
 *   3. Sources are not written, and destinations not read, from begin to end.
 *
 * Often. Routes that are run again and again may have groups of their own: then what is recognised (layout/recognise.h)
 * runs as the collective that it is, with the same bits: a fan as a broadcast, a sum as a reduction in the order of the
 * ranks, to which the receiver adds a zero (a sum of -0 only becomes +0). Only then a sum of k terms takes the room of
 * one.
 *
 * Cost per rank: what it packs and unpacks is copied once, what goes to several in one form is packed once; messages as
 * many as ranks that it exchanges with. Floors 0-2. Order: as stated.
 */
#ifndef TUTTI_STATE_ROUTE_RUN_H
#define TUTTI_STATE_ROUTE_RUN_H

#include "comm/comm.h"
#include "device/device.h"
#include "kernel/kernel.h"
#include "layout/route.h"

/* Where a rank has its box of a tensor. */
struct route_end {
    const struct buffer *buf; /* NULL: nothing is here */
    size_t at;                /* bytes from its beginning */
    struct region box;
};
struct route_tensor {
    const struct route *route; /* borrowed until route_run_free */
    enum dtype dtype;
    struct route_end from, to;
};

struct route_run;

/* Everything on paper, and the buffers. st (borrowed): where packing and unpacking happen, with kernels (kernel_on)
 * where there are sums.
 * often: groups are made for what is recognised, with names that begin so ("pull from 4"); NULL: none are.
 *   order   Local; what two ranks exchange comes of routes and types that both give in the same order, each with its
 *           own ends. often: Collective(c), and all ranks give all routes
 *   fails   ERR_REQUEST: a sum of a type that it has not; ERR_MEMORY. CHECKs that ends hold the boxes that the routes
 *           name */
int route_run_new(struct route_run **out, struct comm *c, struct stream *st, const struct route_tensor *t, int n,
                  const char *often, struct err *e);
/* Packs and sends off; `what` as in comm.h. May be called again after route_run_end. Collective(c). */
void route_run_begin(struct route_run *x, const char *what);
bool route_run_done(struct route_run *x); /* end would not wait. Local. */
/* Waits, unpacks. What st does from here on sees the destinations; errors are c's (comm_status). Local. */
void route_run_end(struct route_run *x);
void route_run_free(struct route_run *x); /* not under way; NULL is fine */

/* Bytes of its own buffers; bytes that one run of it sends to others. */
size_t route_run_bytes(const struct route_run *x);
int64_t route_run_sends(const struct route_run *x);
/* Its own groups, which count what they send; NULL after the last. */
struct comm *route_run_group(const struct route_run *x, int i);

#endif
