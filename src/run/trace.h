/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h: what a rank did when, for Chrome's tracing page and Perfetto: one lane per rank, a box per action (F, B, W),
 * per wait for a message, per reduction and update. The picture of the schedule (tutti schedule --svg) says when each
 * should come; beside it the trace shows where time really went.
 * Floor 6; includes base and comm. Order: Local unless said otherwise.
 */
#ifndef TUTTI_RUN_TRACE_H
#define TUTTI_RUN_TRACE_H

#include "comm/comm.h"

enum trace_kind { TRACE_F, TRACE_B, TRACE_W, TRACE_COMM, TRACE_OPTIMIZER, TRACE_N };
struct trace_span {
    enum trace_kind kind;
    char name[32];       /* "2F0", "wait 2RF0", "reduce", "update" */
    int64_t step;
    double from_s, to_s; /* of the machine's clock (clock_now_s) */
};
struct trace {
    struct trace_span *span;
    int64_t n, room;
    bool on; /* spans are kept only while it is */
};

void trace_free(struct trace *t); /* also of a zeroed struct */
/* t may be NULL: nothing is kept. */
void trace_add(struct trace *t, enum trace_kind kind, const char *name, int64_t step, double from_s, double to_s);
/* Writes all ranks' spans into one file, through rank 0. world: NULL when alone. Clocks are those of the machines: on
 * several hosts lanes are shifted so that they agree at the moment of the call. Collective(world). */
int trace_write(const struct trace *t, struct comm *world, const char *path, struct err *e);

#endif
