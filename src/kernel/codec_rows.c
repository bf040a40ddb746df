/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs as calls of the operation table: codes are bytes, of several ranks the rows of one matrix. */
#include "kernel/codec_rows.h"

#include "base/mem.h"
#include "kernel/flat.h"

struct kernel_call codec_call(enum op op, const struct codec_args *a)
{
    const bool encode = op == OP_ENCODE;
    const int64_t bytes = (int64_t)codec_bytes(a->codec, &a->shape, a->t);
    struct kernel_call c = {.op = op, .phase = KERNEL_FWD, .n_in = 1, .n_out = 1};
    c.at = ATTRS(codec, .codec = a->codec, .shape = a->shape, .to = a->t, .add = a->add);
    c.in[0] = flat_view(a->x, a->t, a->shape.rows * a->shape.cols);
    c.out[0] = flat_view(a->codes, DT_U8, bytes);
    if (encode) return c;
    c.out[0] = c.in[0];
    c.in[0] = (struct view){.p = a->codes,
                            .dtype = DT_U8,
                            .nd = 2,
                            .n = {a->parts, bytes},
                            .stride = a->parts > 1 ? (int64_t)a->stride : bytes};
    return c;
}

struct codec_args codec_of(const struct kernel_call *c)
{
    const struct codec_attrs *at = at_codec(&c->at);
    const bool encode = c->op == OP_ENCODE;
    const struct view *x = encode ? &c->in[0] : &c->out[0], *codes = encode ? &c->out[0] : &c->in[0];
    return (struct codec_args){.codec = at->codec,
                               .shape = at->shape,
                               .x = x->p,
                               .t = x->dtype,
                               .codes = codes->p,
                               .parts = encode ? 0 : (int)codes->n[0],
                               .stride = encode ? 0 : to_size(codes->stride),
                               .add = at->add};
}

static void enqueue(struct stream *s, enum op op, const struct codec_args *a)
{
    struct kernel_call c = codec_call(op, a);
    if (a->shape.rows && a->shape.cols) kernel_enqueue(s, &c);
}

void codec_encode(struct stream *s, const struct codec_args *a) { enqueue(s, OP_ENCODE, a); }
void codec_decode(struct stream *s, const struct codec_args *a) { enqueue(s, OP_DECODE, a); }
