/* SPDX-License-Identifier: Apache-2.0 */
/* every.h: every operation of a communicator, by every algorithm that has it, against closed forms. Runs on any
 * transport: the same checks for ranks as threads and for processes of a launcher.
 *
 * Values are small whole numbers, so sums are exact in every dtype and any order; floats that do not add exactly are
 * compared between algorithms that promise rank order.
 */
#ifndef TUTTI_TESTS_COMM_EVERY_H
#define TUTTI_TESTS_COMM_EVERY_H

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "comm/comm.h"

static const enum dtype every_dtype[] = {DT_F32, DT_BF16, DT_F16, DT_F64, DT_I32, DT_I64};
enum { EVERY_DTYPES = sizeof every_dtype / sizeof *every_dtype };

static double every_get(const void *p, int64_t i, enum dtype t)
{
    switch (t) {
    case DT_F32: return (double)((const float *)p)[i];
    case DT_BF16: return (double)bf16_to_f32(((const bf16 *)p)[i]);
    case DT_F16: return (double)f16_to_f32(((const uint16_t *)p)[i]);
    case DT_F64: return ((const double *)p)[i];
    case DT_I32: return (double)((const int32_t *)p)[i];
    default: return (double)((const int64_t *)p)[i];
    }
}

static void every_put(void *p, int64_t i, enum dtype t, double v)
{
    switch (t) {
    case DT_F32: ((float *)p)[i] = (float)v; break;
    case DT_BF16: ((bf16 *)p)[i] = bf16_from_f32((float)v); break;
    case DT_F16: ((uint16_t *)p)[i] = f16_from_f32((float)v); break;
    case DT_F64: ((double *)p)[i] = v; break;
    case DT_I32: ((int32_t *)p)[i] = (int32_t)v; break;
    default: ((int64_t *)p)[i] = (int64_t)v; break;
    }
}

/* What rank p brings, and folds of it over k ranks: at most 6 * 7, exact in bf16 for k <= 6. */
static double every_value(int p, int64_t i) { return (double)((p + i) % 7 + 1); }

static double every_fold(int k, int64_t i, enum comm_red r, enum dtype t)
{
    double v = every_value(0, i);
    for (int p = 1; p < k; p++) {
        double w = every_value(p, i);
        v = r == COMM_MAX ? (v > w ? v : w) : r == COMM_MIN ? (v < w ? v : w) : v + w;
    }
    if (r != COMM_AVG) return v;
    if (t == DT_I32 || t == DT_I64) return (double)((int64_t)v / k);
    return v / k;
}

struct every {
    struct comm *c;
    const char *algorithm;
    int64_t n;
    enum dtype t;
    enum comm_red r;
    int wrong;
    char *in, *out;
};

static bool every_close(double got, double want, enum dtype t)
{
    double slack = t == DT_BF16 ? 1.0 / 128 : t == DT_F16 ? 1.0 / 1024 : t == DT_F32 ? 1e-6 : t == DT_F64 ? 1e-15 : 0;
    double d = got > want ? got - want : want - got;
    return d <= slack * want; /* averages are rounded at two places by some algorithms */
}

static void every_check(struct every *x, enum comm_op op, const char *how, int64_t i, const void *p, int64_t at,
                        double want)
{
    double got = every_get(p, at, x->t);
    bool exact = x->r != COMM_AVG;
    if (exact ? got == want : every_close(got, want, x->t)) return;
    if (x->wrong++ < 3)
        fprintf(stderr, "%s by %s%s, %s %s, %lld elements, rank %d of %d: [%lld] is %g, not %g\n", comm_op_name(op),
                x->algorithm, how, comm_red_name(x->r), dtype_name(x->t), (long long)x->n, comm_rank(x->c),
                comm_size(x->c), (long long)i, got, want);
}

static void every_fill(struct every *x, void *p, int64_t n, int rank)
{
    for (int64_t i = 0; i < n; i++) every_put(p, i, x->t, every_value(rank, i));
}

static void every_all_reduce(struct every *x)
{
    int me = comm_rank(x->c), k = comm_size(x->c);
    for (int in_place = 0; in_place < 2; in_place++) {
        char *to = in_place ? x->in : x->out;
        every_fill(x, x->in, x->n, me);
        comm_wait(x->c, comm_all_reduce(x->c, x->in, to, x->n, x->t, x->r, "all_reduce"));
        for (int64_t i = 0; i < x->n; i++)
            every_check(x, COMM_ALL_REDUCE, in_place ? " in place" : "", i, to, i, every_fold(k, i, x->r, x->t));
    }
}

static void every_rooted(struct every *x)
{
    int me = comm_rank(x->c), k = comm_size(x->c);
    for (int root = 0; root < k; root++) {
        every_fill(x, x->in, x->n, me);
        comm_wait(x->c, comm_reduce(x->c, x->in, me == root ? x->out : NULL, x->n, x->t, x->r, root, "reduce"));
        for (int64_t i = 0; i < x->n; i++) {
            if (me == root) every_check(x, COMM_REDUCE, "", i, x->out, i, every_fold(k, i, x->r, x->t));
            every_check(x, COMM_REDUCE, " (input)", i, x->in, i, every_value(me, i));
        }
        comm_wait(x->c, comm_broadcast(x->c, x->in, x->n, x->t, root, "broadcast"));
        for (int64_t i = 0; i < x->n; i++) every_check(x, COMM_BROADCAST, "", i, x->in, i, every_value(root, i));
    }
}

/* Even pieces, then uneven ones (some empty), apart and in place. */
static void every_pieces(struct every *x)
{
    int me = comm_rank(x->c), k = comm_size(x->c);
    for (int round = 0; round < 4; round++) {
        bool uneven = round & 1, in_place = round & 2;
        int64_t counts[64], at = 0, total = 0;
        for (int p = 0; p < k; p++) {
            if (p == me) at = total;
            total += counts[p] = uneven ? (p % 3 == 1 ? 0 : x->n / k + p) : x->n / k;
        }
        size_t skip = (size_t)at * dtype_bytes(x->t);
        char *piece = in_place ? x->in + skip : x->out;
        every_fill(x, x->in, total, me);
        if (uneven) comm_wait(x->c, comm_reduce_scatter_v(x->c, x->in, piece, counts, x->t, x->r, "scatter_v"));
        else comm_wait(x->c, comm_reduce_scatter(x->c, x->in, piece, x->n / k, x->t, x->r, "scatter"));
        for (int64_t i = 0; i < counts[me]; i++)
            every_check(x, COMM_REDUCE_SCATTER, in_place ? " in place" : "", at + i, piece, i,
                        every_fold(k, at + i, x->r, x->t));
        char *all = in_place ? x->in : x->out, *from = in_place ? piece : x->in;
        for (int64_t i = 0; i < counts[me]; i++) every_put(from, i, x->t, every_value(me, at + i));
        if (uneven) comm_wait(x->c, comm_all_gather_v(x->c, from, all, counts, x->t, "gather_v"));
        else comm_wait(x->c, comm_all_gather(x->c, from, all, x->n / k, x->t, "gather"));
        for (int64_t i = 0, p = 0, end = counts[0]; i < total; i++) {
            while (i >= end) end += counts[++p];
            every_check(x, COMM_ALL_GATHER, in_place ? " in place" : "", i, all, i, every_value((int)p, i));
        }
    }
}

/* Rank p sends n/k + (p + 2 to) % 3 elements to rank `to`. */
static void every_to_all(struct every *x)
{
    int me = comm_rank(x->c), k = comm_size(x->c);
    int64_t send[64], recv[64], each = x->n / k;
    for (int p = 0; p < k; p++) {
        send[p] = each + (me + 2 * p) % 3;
        recv[p] = each + (p + 2 * me) % 3;
    }
    for (int64_t p = 0, i = 0; p < k; p++)
        for (int64_t j = 0; j < send[p]; j++) every_put(x->in, i++, x->t, (double)((me * k + p + j) % 100));
    comm_wait(x->c, comm_all_to_all_v(x->c, x->in, x->out, send, recv, x->t, "to_all_v"));
    for (int64_t p = 0, i = 0; p < k; p++)
        for (int64_t j = 0; j < recv[p]; j++, i++)
            every_check(x, COMM_ALL_TO_ALL, " uneven", i, x->out, i, (double)((p * k + me + j) % 100));
    for (int64_t i = 0; i < each * k; i++) every_put(x->in, i, x->t, (double)((me * k + i) % 100));
    comm_wait(x->c, comm_all_to_all(x->c, x->in, x->out, each, x->t, "to_all"));
    for (int64_t p = 0, i = 0; p < k; p++)
        for (int64_t j = 0; j < each; j++, i++)
            every_check(x, COMM_ALL_TO_ALL, "", i, x->out, i, (double)((p * k + me * each + j) % 100));
}

/* All operations with one algorithm, dtype, reduction and size; returns elements that were wrong. `in` and `out` have
 * room for n + 64 * ranks + 64 elements. */
static int every_run_in(struct comm *c, const char *algorithm, int64_t n, enum dtype t, enum comm_red r, char *in,
                        char *out)
{
    struct every x = {.c = c, .algorithm = algorithm, .n = n, .t = t, .r = r, .in = in, .out = out};
    struct err e;
    if (comm_algorithm_set(c, algorithm, &e)) x.wrong++;
    every_all_reduce(&x);
    every_rooted(&x);
    every_pieces(&x);
    every_to_all(&x);
    comm_wait(c, comm_barrier(c, "end of a round"));
    return x.wrong;
}

static int every_run(struct comm *c, const char *algorithm, int64_t n, enum dtype t, enum comm_red r)
{
    size_t bytes = (size_t)(n + 64 * comm_size(c) + 64) * dtype_bytes(t);
    char *in = xmalloc(bytes), *out = xmalloc(bytes);
    int wrong = every_run_in(c, algorithm, n, t, r, in, out);
    xfree(in);
    xfree(out);
    return wrong;
}

/* Sums that do not add exactly have the same bits by every algorithm in rank order. Returns how many differ. */
static int every_same_bits(struct comm *c, int64_t n, enum dtype t)
{
    static const char *const ordered[] = {"direct", "gather", NULL}; /* NULL: whatever the table says */
    size_t bytes = (size_t)n * dtype_bytes(t);
    char *in = xmalloc(bytes + 1), *first = xmalloc(bytes + 1), *out = xmalloc(bytes + 1);
    int wrong = 0;
    for (int64_t i = 0; i < n; i++) every_put(in, i, t, 1.0 / (double)(3 + i % 97 + 31 * comm_rank(c)));
    for (int a = 0; a < 3; a++) {
        struct err e;
        if (comm_algorithm_set(c, ordered[a], &e)) wrong++;
        comm_wait(c, comm_all_reduce(c, in, a ? out : first, n, t, COMM_AVG, "bits"));
        if (a && memcmp(first, out, bytes) != 0) wrong++;
    }
    /* And they are those of a plain loop in rank order. */
    for (int64_t i = 0; i < n && t == DT_F32; i++) {
        float sum = 0;
        for (int p = 0; p < comm_size(c); p++) {
            float v = (float)(1.0 / (double)(3 + i % 97 + 31 * p));
            sum = p ? sum + v : v;
        }
        float want = sum * (1.0f / (float)comm_size(c));
        if (memcmp(&want, first + 4 * i, 4) != 0) wrong++;
    }
    if (wrong) fprintf(stderr, "%d sums of %lld %s differ between algorithms\n", wrong, (long long)n, dtype_name(t));
    xfree(in);
    xfree(first);
    xfree(out);
    return wrong;
}

#endif
