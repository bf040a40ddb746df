/* SPDX-License-Identifier: Apache-2.0 */
#include "decode/kept_answer.h"

static bool take_token(void *ctx, const struct answer_token *t)
{
    struct kept_answer *x = ctx;
    str_add(&x->said, t->text, t->n);
    return true;
}

static void take_end(void *ctx, enum answer_end why, const char *rest, size_t n, const struct answer_counts *c,
                     const struct err *e)
{
    struct kept_answer *x = ctx;
    str_add(&x->said, rest, n);
    x->done = true;
    x->why = why;
    x->counts = *c;
    if (why == ANSWER_FAILED) x->err = *e;
}

void kept_answer_keep(struct answer_spec *s, struct kept_answer *x)
{
    s->token = take_token;
    s->end = take_end;
    s->ctx = x;
}

void kept_answer_free(struct kept_answer *x) { str_free(&x->said); }
