/* SPDX-License-Identifier: Apache-2.0 */
/* A ticket is the number of a copy; its event is used again when as many as can be under way have begun since. Cost:
 * two events and a copy. */
#include "program/away.h"
#include "base/mem.h"

int away_run_init(struct away_run *x, struct stream *copies, struct err *e)
{
    *x = (struct away_run){.copies = copies};
    int rc = event_new(&x->ready, copies->dev, e);
    for (int i = 0; !rc && i < PROGRAM_UNDER_WAY; i++) rc = event_new(&x->over[i], copies->dev, e);
    return rc;
}

void away_run_fini(struct away_run *x)
{
    event_free(x->ready);
    for (int i = 0; i < PROGRAM_UNDER_WAY; i++) event_free(x->over[i]);
    *x = (struct away_run){0};
}

static size_t bytes_of(const struct view *v) { return to_size(view_rows(v) * view_cols(v)) * dtype_bytes(v->dtype); }

static struct event *over(struct away_run *x, int64_t ticket) { return x->over[ticket % PROGRAM_UNDER_WAY]; }

static int64_t begin(void *ctx, struct stream *s, const struct kernel_call *c)
{
    struct away_run *x = ctx;
    size_t bytes = bytes_of(&c->in[0]);
    int64_t ticket = ++x->begun;
    event_record(x->ready, s);
    event_wait(x->copies, x->ready);
    if (c->op == OP_STORE) stream_put_away(x->copies, c->out[0].p, c->in[0].p, bytes);
    else stream_bring_back(x->copies, c->out[0].p, c->in[0].p, bytes);
    event_record(over(x, ticket), x->copies);
    return ticket;
}

static void end(void *ctx, struct stream *s, const struct kernel_call *c, int64_t ticket)
{
    (void)c;
    event_wait(s, over(ctx, ticket));
}

struct carrier away_run_carrier(struct away_run *x) { return (struct carrier){.begin = begin, .end = end, .ctx = x}; }
