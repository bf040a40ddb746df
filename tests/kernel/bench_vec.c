/* SPDX-License-Identifier: Apache-2.0 */
/* bench_vec.c: the vector kernels at the shapes of one GPT-2 124M microbatch (4 x 1024 tokens, bf16): GB/s for rows
 * that move memory, GFLOP/s of attention beside the rate of its panels. Not a test.
 *   usage: [TUTTI_ISA=...] bench_vec [threads] [which: f flat, r rows, a attention, c cached] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernel/cache_runs.h"
#include "kernel/cpu/tile/tile.h"
#include "kernel/flat_ops.h"
#include "kernel/kernel.h"

static struct team *team;
static int n_threads;
static const struct step_info step = {.seed = 1, .training = true, .loss_scale = 1e-3f};

static struct view tensor(enum dtype t, int64_t rows, int64_t cols, double size)
{
    struct view v = {.dtype = t, .nd = 2, .n = {rows, cols}, .stride = cols};
    if (cols == 0) v = (struct view){.dtype = t, .nd = 1, .n = {rows}, .stride = rows};
    int64_t n = view_rows(&v) * v.stride;
    v.p = mem_pages_new((size_t)n * dtype_bytes(t));
    for (int64_t i = 0; i < n; i++) {
        double x = size * ((double)(i * 2654435761u % 1000003) / 500001.5 - 1);
        if (t == DT_I32) ((int32_t *)v.p)[i] = (int32_t)(size * (double)(i * 2654435761u % 1000003) / 1000003);
        else if (t == DT_BF16) ((bf16 *)v.p)[i] = bf16_from_f32((float)x);
        else if (t == DT_F32) ((float *)v.p)[i] = (float)x;
    }
    return v;
}

static struct view like(const struct view *v, enum dtype t) { return tensor(t, v->n[0], v->nd > 1 ? v->n[1] : 0, 1); }

/* With one thread its processor time, so that a busy machine does not count. */
static double now_s(void)
{
    struct timespec t;
    if (n_threads > 1) return clock_now_s();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds(struct kernel_call *c)
{
    const struct kernel_slot *s = kernel_way(&kernel_family_cpu, c);
    struct stream here = kernel_here(team);
    c->stream = &here;
    c->step = &step;
    c->scratch_bytes = s->scratch ? s->scratch(c, n_threads) : 0;
    c->scratch = mem_pages_new(c->scratch_bytes + 64);
    double best = 1e9;
    for (int r = 0; r < 12; r++) {
        double t = now_s();
        s->run(c);
        t = now_s() - t;
        if (t < best) best = t;
    }
    mem_pages_free(c->scratch, c->scratch_bytes + 64);
    c->stream = NULL;
    return best;
}

static const char *const phases[] = {"fwd", "bwd_in", "bwd_w"};
static void report(struct kernel_call *c, double bytes, double flops)
{
    double t = seconds(c);
    printf("%-16s %-6s %9.3f ms", op_row(c->op)->name, phases[c->phase], t * 1e3);
    if (flops > 0) printf(" %8.1f GFLOP/s\n", flops / t * 1e-9);
    else printf(" %8.1f GB/s\n", bytes / t * 1e-9);
}

/* Forward, then each backward phase with gradients accumulating in place; bytes per phase as counted by hand. */
static void all_phases(struct kernel_call c, double fwd, double bwd_in, double bwd_w)
{
    const struct op_row *row = op_row(c.op);
    c.n_out = row->n_out;
    row->infer(&c.at, c.n_in, c.in, c.out);
    for (int i = 0; i < c.n_out; i++) c.out[i] = like(&c.out[i], c.out[i].dtype);
    if (c.op == OP_XENT) c.out[0].p = mem_pages_new(16);
    report(&c, fwd, 0);
    for (int i = 0; i < 1 && c.op != OP_XENT; i++) c.dout[i] = tensor(c.out[i].dtype, c.out[i].n[0], c.out[i].n[1], 1);
    for (int p = KERNEL_BWD_IN; p <= KERNEL_BWD_W; p++) {
        int wanted = p == KERNEL_BWD_IN ? row->grad_in : row->weight_in;
        if (!wanted) continue;
        struct kernel_call b = c;
        b.phase = (enum kernel_phase)p;
        for (int i = 0; i < c.n_in; i++)
            if (wanted >> i & 1) {
                b.din[i] = like(&c.in[i], p == KERNEL_BWD_W ? DT_F32 : c.in[i].dtype);
                if (p == KERNEL_BWD_W) b.acc[i] = b.din[i];
            }
        report(&b, p == KERNEL_BWD_IN ? bwd_in : bwd_w, 0);
    }
}

static void rows(enum dtype t)
{
    const int64_t T = 4096, D = 768, F = 3072, V = 50257;
    const double e = (double)dtype_bytes(t);
    const double td = (double)(T * D) * e, tf = (double)(T * F) * e, tv = (double)(T * V) * e;
    struct kernel_call ln = {.op = OP_LAYERNORM,
                             .at = ATTRS(norm, .eps = 1e-5f),
                             .n_in = 3,
                             .in = {tensor(t, T, D, 1), tensor(t, D, 0, 1), tensor(t, D, 0, 1)}};
    all_phases(ln, 2 * td, 3 * td, 2 * td);
    struct kernel_call rms = {.op = OP_RMSNORM, .at = ATTRS(norm, .eps = 1e-5f), .n_in = 2, .in = {ln.in[0], ln.in[1]}};
    all_phases(rms, 2 * td, 3 * td, 2 * td);
    struct kernel_call act = {.op = OP_ACT, .at = ATTRS(act, ACT_GELU), .n_in = 1, .in = {tensor(t, T, F, 3)}};
    all_phases(act, 2 * tf, 3 * tf, 0);
    edit_act(&act.at)->kind = ACT_SWIGLU;
    act.in[0] = tensor(t, T, 2 * F, 3);
    all_phases(act, 3 * tf, 5 * tf, 0);
    struct kernel_call add = {.op = OP_ADD, .at = ATTRS(dropout, 0), .n_in = 2, .in = {ln.in[0], tensor(t, T, D, 1)}};
    all_phases(add, 3 * td, 3 * td, 0);
    edit_dropout(&add.at)->p = 0.1f;
    all_phases(add, 3 * td, 3 * td, 0);
    struct kernel_call rot = {.op = OP_ROTARY,
                              .at = ATTRS(rotary, .heads = 24, .head_dim = 64),
                              .n_in = 3,
                              .in = {tensor(t, T, 2 * D, 1), tensor(DT_I32, T, 0, 1000), tensor(DT_F32, 1024, 64, 1)}};
    all_phases(rot, 4 * td, 4 * td, 0);
    struct kernel_call emb = {.op = OP_EMBED,
                              .at = ATTRS(vocab, 0),
                              .n_in = 2,
                              .in = {tensor(DT_I32, T, 0, (double)V), tensor(t, V, D, 1)}};
    all_phases(emb, 2 * td, 0, td + 8 * (double)(T * D));
    struct kernel_call xent = {.op = OP_XENT,
                               .at = ATTRS(vocab, 0),
                               .n_in = 2,
                               .in = {tensor(t, T, V, 5), tensor(DT_I32, T, 0, (double)V)}};
    all_phases(xent, tv, 2 * tv, 0);
}

static void attention(enum dtype t, int64_t batch, int64_t seq, int heads, int kv_heads, int a, float dropout)
{
    int64_t n = batch * seq;
    struct kernel_call c = {.op = OP_ATTENTION,
                            .n_in = 3,
                            .n_out = 2,
                            .at = ATTRS(attention, .heads = heads, .kv_heads = kv_heads, .head_dim = a, .batch = batch,
                                        .seq = seq, .scale = 0.125f, .causal = true, .dropout.p = dropout)};
    for (int i = 0; i < 3; i++) c.in[i] = tensor(t, n, (int64_t)(i ? kv_heads : heads) * a, 2);
    c.out[0] = tensor(t, n, (int64_t)heads * a, 1);
    c.out[1] = tensor(DT_F32, n, heads, 1);
    double pairs = (double)batch * heads * (double)seq * (double)(seq + 1) / 2, flops = 4 * pairs * a;
    printf("S %d H %d/%d A %d %s dropout %.1f\n  ", (int)seq, heads, kv_heads, a, dtype_name(t), (double)dropout);
    report(&c, 0, flops);
    c.phase = KERNEL_BWD_IN;
    c.dout[0] = tensor(t, n, (int64_t)heads * a, 1);
    for (int i = 0; i < 3; i++) c.din[i] = tensor(t, n, (int64_t)(i ? kv_heads : heads) * a, 1);
    printf("  ");
    report(&c, 0, 2 * flops); /* as usually counted: 8 A per pair; recomputed scores are not credited */
}

static void cached(int64_t room, int heads, int kv_heads, int a, int64_t n)
{
    struct kernel_call c = {.op = OP_ATTENTION_CACHED, .n_in = 6, .n_out = 1};
    c.at = ATTRS(attention, .heads = heads, .kv_heads = kv_heads, .head_dim = a, .scale = 0.125f, .causal = true);
    for (int i = 0; i < 6; i++) c.in[i] = tensor(DT_BF16, i < 4 ? n : room, (int64_t)(i ? kv_heads : heads) * a, 1);
    c.in[3] = tensor(DT_I32, 1, RUN_PAGES + room / 16, 0);
    int32_t *run = c.in[3].p;
    run[RUN_FIRST] = 0;
    run[RUN_ROWS] = (int32_t)n;
    run[RUN_PAST] = (int32_t)(room - n);
    run[RUN_BOTH] = 0;
    for (int64_t i = 0; i < room / 16; i++) run[RUN_PAGES + i] = (int32_t)i;
    c.out[0] = tensor(DT_BF16, n, (int64_t)heads * a, 1);
    printf("C %d H %d/%d n %d ", (int)room, heads, kv_heads, (int)n);
    report(&c, 4.0 * (double)room * kv_heads * a, n > 8 ? 4.0 * (double)(n * room) * heads * a : 0);
}

/* Products of L2-resident panels on one thread: what attention could reach at most, per core. */
static void panel_rate(enum dtype t)
{
    const struct tile_ops *o = tile_ops_get(t);
    int64_t m = 128 / o->mr * o->mr, n = 64, d = 64;
    void *a = mem_pages_new(1 << 20), *b = mem_pages_new(1 << 20);
    float *c = mem_pages_new(1 << 20);
    double best = 1e9;
    o->begin();
    for (int r = 0; r < 5; r++) {
        double s = now_s();
        for (int i = 0; i < 2000; i++) tile_block(o, c, n, a, b, m, n, d, false);
        s = now_s() - s;
        if (s < best) best = s;
    }
    o->end();
    printf("panels %s for %s: %.1f GFLOP/s per core at %d x %d x %d\n", o->name, dtype_name(t),
           2.0 * (double)(m * n * d) * 2000 / best * 1e-9, (int)m, (int)n, (int)d);
}

static void flat(void)
{
    const int64_t n = 40000000;
    float *master = mem_pages_new((size_t)n * 4), *m = mem_pages_new((size_t)n * 4), *v = mem_pages_new((size_t)n * 4);
    float *grad = mem_pages_new((size_t)n * 4);
    bf16 *param = mem_pages_new((size_t)n * 2);
    for (int64_t i = 0; i < n; i++) grad[i] = (float)(i % 13) - 6;
    struct adamw_args a = {n, master, m, v, grad, param, DT_BF16, 1e-3f, 0.9f, 0.99f, 1e-8f, 0.1f, 1, 0.1f, 0.01f};
    double best[5] = {1e9, 1e9, 1e9, 1e9, 1e9};
    for (int r = 0; r < 4; r++)
        for (int k = 0; k < 5; k++) {
            double s = now_s();
            if (k == 0) flat_ops_cpu.adamw(team, &a);
            if (k == 1) flat_ops_cpu.sum_squares(team, grad, n, &(double){0});
            if (k == 2) flat_ops_cpu.find_nonfinite(team, grad, DT_F32, n);
            if (k == 3) flat_ops_cpu.cast(team, param, DT_BF16, grad, DT_F32, n);
            if (k == 4) flat_ops_cpu.cast(team, master, DT_F32, grad, DT_F32, n);
            s = now_s() - s;
            if (s < best[k]) best[k] = s;
        }
    static const char *const names[] = {"adamw", "sum_squares", "find_nonfinite", "cast f32 bf16", "copy f32"};
    static const double per[] = {30, 4, 4, 6, 8};
    for (int k = 0; k < 5; k++)
        printf("%-16s %9.3f ms %8.1f GB/s\n", names[k], best[k] * 1e3, per[k] * (double)n / best[k] * 1e-9);
}

int main(int argc, char **argv)
{
    n_threads = argc > 1 ? atoi(argv[1]) : 1;
    team = team_new(n_threads);
    const char *only = argc > 2 ? argv[2] : "frac";
    if (strchr(only, 'f')) flat();
    if (strchr(only, 'r')) rows(DT_BF16);
    if (strchr(only, 'a')) {
        panel_rate(DT_BF16);
        panel_rate(DT_F32);
        attention(DT_BF16, 4, 1024, 12, 12, 64, 0);
        attention(DT_BF16, 2, 2048, 16, 4, 128, 0);
        attention(DT_BF16, 1, 1024, 12, 12, 80, 0);
        attention(DT_BF16, 2, 1024, 12, 12, 64, 0.1f);
        attention(DT_F32, 1, 1024, 12, 12, 64, 0);
    }
    if (strchr(only, 'c')) {
        cached(1024, 12, 12, 64, 1);
        cached(4096, 32, 8, 128, 1);
        cached(1024, 12, 12, 64, 64);
    }
    team_free(team);
    return 0;
}
