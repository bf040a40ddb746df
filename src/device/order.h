/* SPDX-License-Identifier: Apache-2.0 */
/* order.h: finds two operations on overlapping bytes without an order between them, one of which writes.
 *
 * A lane is whatever runs its operations one after the other: a stream, or one collective. Every lane has a vector
 * clock: how far each other lane is known to have come before what is enqueued next (Fidge 1988; Mattern 1989). An
 * operation is lane and number on it, and comes before another exactly when the other's clock has that lane at that
 * number or beyond, so an access is remembered as those two numbers (Flanagan and Freund, "FastTrack", 2009). It is
 * told operations as they are enqueued; when and in which order they run does not matter. What is remembered of a byte
 * is the last write and the reads since: an access that a later, ordered one covers is dropped.
 *
 * Cost: per span a walk over what is remembered. For tests.
 * Includes: base only. Order: Local.
 */
#ifndef TUTTI_DEVICE_ORDER_H
#define TUTTI_DEVICE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum { ORDER_LANES = 512, ORDER_NAME = 48 };

struct order_clock {
    uint64_t at[ORDER_LANES];
};

/* rows of so many bytes, which begin step bytes apart. */
struct byte_span {
    const void *p;
    size_t bytes, step;
    int64_t rows;
    bool writes;
    const char *part; /* of the operation: "in 1"; a text of the program's, or NULL */
};

/* Who accesses, in words. */
struct order_who {
    const char *op; /* a text of the program's: "linear" */
    char tensor[ORDER_NAME], thread[16], lane[24];
    uint64_t number; /* of the operation on the device, from 1 */
};

struct order_race {
    struct order_who first, second;
    struct byte_span a, b; /* their spans that overlap */
};
typedef void order_report_fn(void *ctx, const struct order_race *r);

struct order;
struct order *order_new(order_report_fn *report, void *ctx);
void order_free(struct order *o);

/* Numbers of lanes. CHECKs that there are not too many. A freed number is given out again, and what comes on it then
 * counts as after what came before: free a lane when its operations are joined. */
int order_lane_new(struct order *o);
void order_lane_free(struct order *o, int lane);
void order_join(struct order_clock *to, const struct order_clock *from);
/* The next operation on a lane: its clock moves, its spans are compared with all accesses that it does not come
 * after. */
void order_next(struct order *o, int lane, struct order_clock *clock, const struct order_who *who,
                const struct byte_span *span, int n);
/* Bytes that are given back: what does not come before `clock` is reported, the rest forgotten. */
void order_forget(struct order *o, const struct order_clock *clock, const struct order_who *who, const void *p,
                  size_t bytes);

#endif
