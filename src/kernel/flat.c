/* SPDX-License-Identifier: Apache-2.0 */
/* Whole arrays as calls of the operation table: operands are views of one row, parts the rows of one matrix. */
#include "kernel/flat.h"

struct view flat_view(void *p, enum dtype t, int64_t n)
{
    return (struct view){.p = p, .dtype = t, .nd = 1, .n = {n}, .stride = n};
}

static struct view parts_view(const void *p, enum dtype t, int n_parts, int64_t n)
{
    return (struct view){.p = (void *)(uintptr_t)p, .dtype = t, .nd = 2, .n = {n_parts, n}, .stride = n};
}

static struct view read_view(const void *p, enum dtype t, int64_t n) { return flat_view((void *)(uintptr_t)p, t, n); }

static struct kernel_call call_of(enum op op, struct op_attrs at, struct view in, struct view out)
{
    return (
        struct kernel_call){.op = op, .phase = KERNEL_FWD, .at = at, .n_in = 1, .n_out = 1, .in = {in}, .out = {out}};
}

struct kernel_call cast_call(void *dst, enum dtype to, const void *src, enum dtype from, int64_t n)
{
    return call_of(OP_CAST, ATTRS(array, .to = to), read_view(src, from, n), flat_view(dst, to, n));
}

struct kernel_call sum_into_call(void *to, enum dtype t, const void *from, enum dtype f, int64_t n, bool add)
{
    return call_of(OP_SUM_INTO, ATTRS(array, .to = t, .add = add), read_view(from, f, n), flat_view(to, t, n));
}

struct kernel_call sum_tree_call(float *to, const float *part, int n_parts, int64_t n)
{
    return call_of(OP_SUM_TREE, ATTRS(array, .to = DT_F32), parts_view(part, DT_F32, n_parts, n),
                   flat_view(to, DT_F32, n));
}

struct kernel_call sum_parts_call(void *to, enum dtype t, const void *part, int n_parts, int64_t n)
{
    return call_of(OP_SUM_PARTS, ATTRS(array, .to = t), parts_view(part, t, n_parts, n), flat_view(to, t, n));
}

struct kernel_call sum_squares_call(double *sum, const float *x, int64_t n)
{
    return call_of(OP_SUM_SQUARES, ATTRS(array, .to = DT_F64), read_view(x, DT_F32, n), flat_view(sum, DT_F64, 1));
}

struct kernel_call exact_squares_call(int64_t *word, const float *x, int64_t n)
{
    return call_of(OP_EXACT_SQUARES, ATTRS(array, .to = DT_I64), read_view(x, DT_F32, n),
                   flat_view(word, DT_I64, FLAT_SQUARES_WORDS));
}

struct kernel_call find_nonfinite_call(int64_t *at, const void *x, enum dtype dtype, int64_t n)
{
    return call_of(OP_FIND_NONFINITE, ATTRS(array, .to = DT_I64), read_view(x, dtype, n), flat_view(at, DT_I64, 1));
}

/* ---- on a stream ---- */
static void enqueue(struct stream *s, struct kernel_call c) { kernel_enqueue(s, &c); }

void flat_cast(struct stream *s, void *dst, enum dtype to, const void *src, enum dtype from, int64_t n)
{
    enqueue(s, cast_call(dst, to, src, from, n));
}

void flat_sum_into(struct stream *s, void *to, enum dtype t, const void *from, enum dtype f, int64_t n, bool add)
{
    enqueue(s, sum_into_call(to, t, from, f, n, add));
}

void flat_sum_tree(struct stream *s, float *to, const float *part, int n_parts, int64_t n)
{
    enqueue(s, sum_tree_call(to, part, n_parts, n));
}

void flat_sum_parts(struct stream *s, void *to, enum dtype t, const void *part, int n_parts, int64_t n)
{
    enqueue(s, sum_parts_call(to, t, part, n_parts, n));
}

void flat_sum_squares(struct stream *s, const float *x, int64_t n, double *sum)
{
    enqueue(s, sum_squares_call(sum, x, n));
}

void flat_squares(struct stream *s, const float *x, int64_t n, int64_t *word)
{
    enqueue(s, exact_squares_call(word, x, n));
}

void flat_find_nonfinite(struct stream *s, const void *x, enum dtype dtype, int64_t n, int64_t *at)
{
    enqueue(s, find_nonfinite_call(at, x, dtype, n));
}

/* ---- at once ---- */
void flat_cast_here(const struct kernel_table *t, struct team *team, void *dst, enum dtype to, const void *src,
                    enum dtype from, int64_t n)
{
    struct stream here = kernel_here(team);
    struct kernel_call c = cast_call(dst, to, src, from, n);
    struct kernel_table host = kernel_table_host(t);
    c.stream = &here;
    kernel_run(&host, &c);
}
