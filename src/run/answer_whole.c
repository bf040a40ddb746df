/* SPDX-License-Identifier: Apache-2.0 */
#include "run/answer_whole.h"

static bool take_token(void *ctx, const struct answer_token *t)
{
    struct answer_whole *x = ctx;
    str_add(&x->said, t->text, t->n);
    return true;
}

static void take_end(void *ctx, enum answer_end why, const char *rest, size_t n, const struct answer_counts *c,
                     const struct err *e)
{
    struct answer_whole *x = ctx;
    str_add(&x->said, rest, n);
    x->done = true;
    x->why = why;
    x->counts = *c;
    if (why == ANSWER_FAILED) x->err = *e;
}

void answer_whole_keep(struct answer_spec *s, struct answer_whole *x)
{
    s->token = take_token;
    s->end = take_end;
    s->ctx = x;
}

void answer_whole_free(struct answer_whole *x) { str_free(&x->said); }
