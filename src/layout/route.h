/* SPDX-License-Identifier: Apache-2.0 */
/* route.h: how a tensor gets from one layout to another: a list of boxes with a sender and a receiver each.
 *
 * route(from, to) = intersection of boxes + choice of a replica. Gathering parameters, scattering gradients, changing
 * tp, writing and reading a checkpoint (a file is one more holder) are all routes. Where one rank sends
 * the same to many, or many send a sum to one, that is recognised (recognise.h) and runs as a collective; the rest as
 * it stands.
 *
 * What a route promises
 *   1. Every element of every receiver's box arrives exactly once per term. Terms are the addends of a sum still owed
 *      (P): with one term elements are copied; with more, term 0 is copied and the others are added in order, so the
 *      sum has the same bits every time.
 *   2. Senders are chosen so: the receiver itself; else a replica that shares the most outer mesh coordinates with it;
 *      among equals the one that has sent the least so far, then the lowest rank. All ranks compute the same route.
 *   3. Messages are sorted by receiver, term, box.
 *
 * What changes and what does not: P in `from` is summed unless the same axis is P in `to` (the sum stays owed). V must
 * be V in both: those ranks hold different things and no route joins them. P only in `to` is refused.
 *
 * Cost: time O(senders' boxes x receivers) box intersections; all ranks hold the whole list.
 * Floor 1; includes base only. Order: Local; the same arguments give the same route on every rank.
 */
#ifndef TUTTI_LAYOUT_ROUTE_H
#define TUTTI_LAYOUT_ROUTE_H

#include <stdint.h>

#include "layout/layout.h"

/* Somebody holds a box. Holders are ranks; numbers from n_ranks on may be files. */
struct holding {
    int holder;
    int term; /* senders: which addend of the sum this is, from 0 */
    int lane; /* senders and receivers meet only in the same lane: 0, or the coordinate on axes that stay V or P */
    struct region box;
};

struct route_msg {
    int src, dst; /* equal: a local copy */
    int term;
    struct region box; /* global indices */
};

struct route {
    int n_terms;
    int64_t n;
    struct route_msg *msg; /* sorted by dst, term, box */
    int64_t *by_src;       /* indices into msg, sorted by src, then in list order */
};

/* ERR_REQUEST where shapes or rank counts differ or the types above do not allow it; OK: there is a route. */
int route_may(const struct layout *from, const struct layout *to, struct err *e);
int route_new(struct route **r, const struct layout *from, const struct layout *to, struct err *e);
/* The general form, for files. Senders' boxes may overlap: then earlier ones are preferred. Terms must be 0..n_terms-1
 * and each must cover every receiver. ERR_CORRUPT names the box that nobody holds, or that is none. */
int route_new_holdings(struct route **r, const struct holding *from, int n_from, const struct holding *to, int n_to,
                       struct err *e);
void route_free(struct route *r);

/* The boxes of a layout, one per rank that holds something, for the general form. Returns how many; out holds
 * n_ranks. Terms count the P axes, lanes the V axes. */
int layout_holdings(const struct layout *l, struct holding *out);

/* A rank's part: what it receives is msg[*first .. *first + returned); what it sends is
 * msg[by_src[*first .. *first + returned)]. Local copies are in both. */
int64_t route_receives(const struct route *r, int rank, int64_t *first);
int64_t route_sends(const struct route *r, int rank, int64_t *first);
/* Elements that leave and reach a rank; local copies do not count. Nothing in the program asks: what is run is
 * counted by the communicators that carry it (comm.h), and tests of routes on paper count by these. */
void route_traffic(const struct route *r, int rank, int64_t *sent, int64_t *received);
int64_t route_traffic_total(const struct route *r);

/* One line per message: "3 -> 1 [0:4, 2:5]", a term as "+1", a local copy as "1 -> 1 (stays)". */
void route_print(const struct route *r, struct str *out);

#endif
